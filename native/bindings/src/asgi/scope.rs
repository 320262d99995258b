//! Build one ASGI http scope, in upstream's key order.

use std::cell::RefCell;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use wire::method::Method;

use super::identity::Identity;
use super::loan::{Items, Loan, ScopeField};
use super::peer::Peer;
use super::tracing::{RequestSpan, Tracing};
use crate::base::ffi::refcount::is_held_by;
use crate::base::names::Names;
use crate::base::objects::text;
use crate::base::reuse::Several;
use crate::base::settings::Settings;

/// The header fields of a request.
pub(crate) trait Fields {
    /// Whether they are those that were made into `list` before.
    fn are(&self, list: &Py<PyList>) -> bool;
    /// A list of their own, of tuples that may be shared because they cannot change; and the list that it is a copy of,
    /// if any.
    fn list<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyList>, Option<Py<PyList>>)>;
    /// Whether one of them may be the id of the request.
    fn name_request(&self, identity: &Identity) -> bool;
    /// Whether one of them may be the parent of its span.
    fn name_parent(&self) -> bool;
}

/// A request, as its scope shows it.
pub(crate) struct Request<'a, F> {
    /// `1.1` and the like.
    pub(crate) http_version: &'a Py<PyString>,
    /// Whether the client is of HTTP/1.0, and so does not know all extensions.
    pub(crate) is_of_1_0: bool,
    pub(crate) method: Method,
    /// Of a method that has no name here.
    pub(crate) method_text: &'a [u8],
    /// As it was sent, without the query.
    pub(crate) path: &'a [u8],
    pub(crate) query: &'a [u8],
    pub(crate) fields: F,
    pub(crate) has_body: bool,
    /// The client waits for `100 Continue` before it sends the body.
    pub(crate) expects_continue: bool,
}

/// The extension that describes the connection, if it is encrypted.
const TLS: &str = "tls";
/// The extension that every WebSocket has.
const DENIAL: &str = "websocket.http.response";

/// As many scopes wait to be used again as requests of one read mostly are.
const MAX_SPARES: usize = 32;

/// The scope of a request, its loan, to be given back, the request's id, if it has one, and its span, if it is sampled.
pub(crate) struct Lent {
    pub(crate) scope: Py<PyDict>,
    pub(crate) loan: Box<Loan>,
    pub(crate) id: Option<Py<PyString>>,
    pub(crate) span: Option<Box<RequestSpan>>,
}

/// The part that all scopes of one server share.
pub(crate) struct ScopeTemplate {
    /// A whole scope, for its keys and their order; what differs from request to request is `None`.
    pattern: Py<PyDict>,
    items: Items,
    asgi: Py<PyDict>,
    asgi_items: Items,
    /// The remains of the last scopes. While a request has one, it is the exchange's.
    spare: Several<Spare>,
    /// Names of those that are offered, to clients of HTTP/1.0 and for a WebSocket as well.
    extensions: Vec<String>,
    extensions_10: Vec<String>,
    extensions_websocket: Vec<String>,
    root_path: String,
    raw_root_path: Vec<u8>,
    paths: RefCell<Vec<Option<KeptPath>>>,
}

/// The remains of a scope that is over.
struct Spare {
    /// The scope itself, if it was as it had been lent.
    scope: Option<Py<PyDict>>,
    loan: Box<Loan>,
}

/// Paths kept at most, each in the place that its last bytes say: a power of two.
const KEPT_PATHS: usize = 64;
/// A longer path is not kept, so that the memory is bounded.
const MAX_KEPT_PATH: usize = 128;

/// A path that came before, as the scope has it.
struct KeptPath {
    sent: Box<[u8]>,
    path: Py<PyString>,
    raw_path: Py<PyBytes>,
}

/// The place of `path` among the kept ones.
#[inline]
fn place(path: &[u8]) -> usize {
    let end = path
        .last_chunk::<8>()
        .map_or_else(|| path.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)), |end| u64::from_be_bytes(*end));
    let mixed = (end ^ path.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 58) as usize
}

impl ScopeTemplate {
    pub(crate) fn new(
        config: &Bound<'_, PyAny>,
        settings: &Settings,
        names: &Names,
        is_traced: bool,
    ) -> PyResult<Self> {
        let py = config.py();
        let asgi = PyDict::new(py);
        asgi.set_item("version", config.getattr("asgi_version")?)?;
        asgi.set_item("spec_version", "2.3")?;
        let scope = PyDict::new(py);
        scope.set_item(&names.r#type, PyString::intern(py, "http"))?;
        scope.set_item(&names.asgi, py.None())?;
        scope.set_item(&names.http_version, &names.http_1_1)?;
        scope.set_item(&names.server, py.None())?;
        scope.set_item(&names.client, py.None())?;
        scope.set_item(&names.scheme, &names.http)?;
        scope.set_item(&names.method, names.methods.get(Method::Get as usize))?;
        scope.set_item(&names.root_path, PyString::new(py, &settings.root_path))?;
        scope.set_item(&names.path, py.None())?;
        scope.set_item(&names.raw_path, py.None())?;
        scope.set_item(&names.query_string, &names.empty_bytes)?;
        scope.set_item(&names.headers, py.None())?;
        scope.set_item(&names.state, py.None())?;
        if config.getattr("request_id")?.is_truthy()? {
            scope.set_item(&names.request_id, py.None())?;
        }
        if is_traced {
            scope.set_item(&names.traceparent, py.None())?;
        }
        let types = py.import("uvicorn._types")?;
        let extensions = settings.extensions.clone();
        let known_to = |names: &str| -> PyResult<Vec<String>> {
            let known: Vec<String> = types.getattr(names)?.extract()?;
            Ok(extensions.iter().filter(|name| known.contains(name)).cloned().collect())
        };
        let extensions_10 = known_to("EXTENSIONS_10")?;
        let extensions_websocket = [vec![DENIAL.to_owned()], known_to("EXTENSIONS_WEBSOCKET")?].concat();
        let root_path = settings.root_path.clone();
        let raw_root_path = if root_path.is_ascii() {
            root_path.clone().into_bytes()
        } else {
            let quoted: String = py.import("urllib.parse")?.call_method1("quote", (&root_path,))?.extract()?;
            quoted.into_bytes()
        };
        let mut paths = Vec::new();
        paths.resize_with(KEPT_PATHS, || None);
        Ok(Self {
            items: items_of(&scope),
            pattern: scope.unbind(),
            asgi_items: items_of(&asgi),
            asgi: asgi.unbind(),
            spare: Several::new(MAX_SPARES, settings.reuse),
            extensions,
            extensions_10,
            extensions_websocket,
            root_path,
            raw_root_path,
            paths: RefCell::new(paths),
        })
    }

    /// The scope of `request`; `identity` finds its id, `tracing` begins its span.
    pub(crate) fn build(
        &self,
        py: Python<'_>,
        names: &Names,
        request: &Request<'_, impl Fields>,
        peer: &Peer,
        identity: Option<&Identity>,
        tracing: Option<&Tracing>,
    ) -> PyResult<Lent> {
        let (scope, mut loan) = self.take(py)?;
        loan.show(&scope, ScopeField::HttpVersion, request.http_version.bind(py))?;
        let scheme = if peer.secure { &names.https } else { &names.http };
        loan.show(&scope, ScopeField::Scheme, scheme.bind(py))?;
        loan.show(&scope, ScopeField::Server, peer.server.bind(py))?;
        loan.show(&scope, ScopeField::Client, peer.client.bind(py))?;
        match names.methods.get(request.method as usize) {
            Some(method) => loan.show(&scope, ScopeField::Method, method.bind(py))?,
            None => loan.show(&scope, ScopeField::Method, &text(py, request.method_text))?,
        }
        let (path, raw_path) = self.path(py, request.path)?;
        loan.show(&scope, ScopeField::Path, path.bind(py))?;
        loan.show(&scope, ScopeField::RawPath, raw_path.bind(py))?;
        match request.query {
            [] => loan.show(&scope, ScopeField::QueryString, names.empty_bytes.bind(py))?,
            query => loan.show(&scope, ScopeField::QueryString, &PyBytes::new(py, query))?,
        }
        if !loan.copied().is_some_and(|copied| request.fields.are(copied)) {
            let (headers, copied) = request.fields.list(py)?;
            loan.lend_headers(&scope, &headers, copied)?;
        }
        loan.lend_asgi(&scope, self.asgi.bind(py))?;
        loan.lend_state(&scope, peer.app_state.bind(py))?;
        let mut id = None;
        if let Some(identity) = identity {
            let named = || request.fields.name_request(identity);
            let mut last = loan.take_id(py);
            let found = identity.of(py, peer, loan.value(py, ScopeField::Headers), named, &mut last)?;
            loan.id = last;
            loan.show(&scope, ScopeField::RequestId, &found)?;
            id = Some(found.unbind());
        }
        let (span, is_all) = match tracing {
            None => (None, true),
            Some(tracing) => begin_span(tracing, &scope, &mut loan, names, request)?,
        };
        let extensions = if request.is_of_1_0 { &self.extensions_10 } else { &self.extensions };
        if !extensions.is_empty() {
            scope.set_item(&names.extensions, offer(py, extensions, peer)?)?;
        }
        loan.seal(&scope, is_all && extensions.is_empty());
        Ok(Lent { scope: scope.unbind(), loan, id, span })
    }

    /// The scope of a request to open a WebSocket, which has the keys of a request's but for its method.
    pub(crate) fn websocket<'py>(
        &self,
        py: Python<'py>,
        names: &Names,
        (path, query): (&[u8], &[u8]),
        headers: &Bound<'py, PyList>,
        subprotocols: &[&str],
        peer: &Peer,
    ) -> PyResult<Bound<'py, PyDict>> {
        let scope = self.pattern.bind(py).copy()?;
        let asgi = self.asgi.bind(py).copy()?;
        asgi.set_item(intern!(py, "spec_version"), intern!(py, "2.4"))?;
        scope.set_item(&names.r#type, intern!(py, "websocket"))?;
        scope.set_item(&names.asgi, asgi)?;
        scope.set_item(&names.server, &peer.server)?;
        scope.set_item(&names.client, &peer.client)?;
        scope.set_item(&names.scheme, if peer.secure { intern!(py, "wss") } else { intern!(py, "ws") })?;
        scope.del_item(&names.method)?;
        let (path, raw_path) = self.path(py, path)?;
        scope.set_item(&names.path, path)?;
        scope.set_item(&names.raw_path, raw_path)?;
        scope.set_item(&names.query_string, PyBytes::new(py, query))?;
        scope.set_item(&names.headers, headers)?;
        scope.set_item(&names.state, peer.app_state.bind(py).copy()?)?;
        scope.set_item(intern!(py, "subprotocols"), PyList::new(py, subprotocols)?)?;
        scope.set_item(&names.extensions, offer(py, &self.extensions_websocket, peer)?)?;
        Ok(scope)
    }

    /// A scope to begin with, and its loan.
    #[inline]
    fn take<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyDict>, Box<Loan>)> {
        let loan = match self.spare.take() {
            Some(Spare { scope: Some(scope), loan }) if is_held_by(scope.bind(py), 1) => {
                return Ok((scope.into_bound(py), loan));
            }
            Some(Spare { loan, .. }) => Some(loan),
            None => None,
        };
        let scope = self.pattern.bind(py).copy()?;
        let loan = match loan {
            Some(mut loan) => {
                loan.begin_again(&scope, &self.items)?;
                loan
            }
            None => Box::new(Loan::new(py, &self.items)),
        };
        Ok((scope, loan))
    }

    /// Take back the loan of a request that is over. Unchanged parts without other holders serve the next request; the
    /// rest is dropped now, along with everything the application put there.
    #[inline]
    pub(crate) fn give(&self, scope: Bound<'_, PyDict>, mut loan: Box<Loan>) {
        let py = scope.py();
        if self.spare.poisons() {
            let _: PyResult<()> = loan.poison(&scope);
            return;
        }
        let scope = Some(scope).filter(|scope| loan.is_back(scope));
        if loan.take_back(py, scope.as_ref(), &self.asgi_items).is_ok() {
            self.spare.give(Spare { scope: scope.map(Bound::unbind), loan });
        }
    }

    #[inline]
    fn path(&self, py: Python<'_>, sent: &[u8]) -> PyResult<(Py<PyString>, Py<PyBytes>)> {
        let place = place(sent);
        let kept = match self.paths.borrow().get(place) {
            Some(Some(kept)) if *kept.sent == *sent => Some((kept.path.clone_ref(py), kept.raw_path.clone_ref(py))),
            _ => None,
        };
        kept.map_or_else(|| self.read_path(py, place, sent), Ok)
    }

    /// The path of a target as str, and as it was sent; both behind the root path.
    fn read_path(&self, py: Python<'_>, place: usize, sent: &[u8]) -> PyResult<(Py<PyString>, Py<PyBytes>)> {
        let decoded = if sent.contains(&b'%') {
            PyString::new(py, &String::from_utf8_lossy(&percent_decode(sent)))
        } else {
            text(py, sent)
        };
        let (path, raw_path) = if self.root_path.is_empty() {
            (decoded.unbind(), PyBytes::new(py, sent).unbind())
        } else {
            let path = format!("{}{}", self.root_path, decoded.to_str()?);
            let raw = [&self.raw_root_path, sent].concat();
            (PyString::new(py, &path).unbind(), PyBytes::new(py, &raw).unbind())
        };
        if sent.len() <= MAX_KEPT_PATH {
            let kept = KeptPath { sent: sent.into(), path: path.clone_ref(py), raw_path: raw_path.clone_ref(py) };
            let old = self.paths.borrow_mut().get_mut(place).and_then(|place| place.replace(kept));
            drop(old);
        }
        Ok((path, raw_path))
    }
}

/// Begin the span of a request, put its `traceparent` into the scope, and tell whether that has no further keys.
#[cold]
#[inline(never)]
fn begin_span(
    tracing: &Tracing,
    scope: &Bound<'_, PyDict>,
    loan: &mut Loan,
    names: &Names,
    request: &Request<'_, impl Fields>,
) -> PyResult<(Option<Box<RequestSpan>>, bool)> {
    let py = scope.py();
    let mut last = loan.take_traceparent();
    let headers = loan.value(py, ScopeField::Headers).filter(|_| request.fields.name_parent());
    let begun = tracing.begin(py, request.method, headers, &mut last)?;
    loan.traceparent = last;
    loan.tracestate = begun.tracestate.as_ref().map(|state| state.clone().unbind());
    loan.show_last(scope, &begun.traceparent)?;
    let is_all = begun.tracestate.is_none();
    if let Some(state) = begun.tracestate {
        scope.set_item(&names.tracestate, state)?;
    }
    Ok((begun.span, is_all))
}

fn items_of(dict: &Bound<'_, PyDict>) -> Items {
    dict.iter().map(|(key, value)| (key.unbind(), value.unbind())).collect()
}

/// The extensions offered in a scope: each scope has its own, since middleware is known to add keys.
fn offer<'py>(py: Python<'py>, extensions: &[String], peer: &Peer) -> PyResult<Bound<'py, PyDict>> {
    let offered = PyDict::new(py);
    for name in extensions {
        if name != TLS {
            offered.set_item(name, PyDict::new(py))?;
        } else if let Some(tls) = peer.tls(py)? {
            offered.set_item(name, tls)?;
        }
    }
    Ok(offered)
}

/// `%XX` to bytes; anything that is not two hexadecimal digits stays as it is, as `urllib.parse.unquote` has it.
fn percent_decode(path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte == b'%'
            && let [high, low, behind @ ..] = tail
            && let (Some(high), Some(low)) = (hex(*high), hex(*low))
        {
            decoded.push(high << 4 | low);
            rest = behind;
        } else {
            decoded.push(byte);
        }
    }
    decoded
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}
