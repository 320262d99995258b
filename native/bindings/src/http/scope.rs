//! Build one ASGI http scope, in upstream's key order.

use std::cell::RefCell;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use wire::h1::Sections;
use wire::h1::request::{Head, Method, Version};
use wire::headers::{Field, Name};

use crate::ffi;
use crate::names::Names;
use crate::server::text;
use crate::settings::Settings;

/// What all scopes of one server have in common.
pub(crate) struct ScopeTemplate {
    /// A whole scope; a copy of it keeps the order of the keys. The values that cannot be changed by whoever gets them
    /// (`str`, `bytes`, tuples) are those of the last request: what repeats is not set again.
    scope: Py<PyDict>,
    asgi: Lent,
    state: Lent,
    extensions: Lent,
    /// The same for clients of HTTP/1.0.
    extensions_10: Py<PyDict>,
    root_path: String,
    raw_root_path: Vec<u8>,
    shown: Shown,
    paths: RefCell<Vec<Option<KeptPath>>>,
    pub(crate) kept: KeptHeaders,
}

/// The values that stand in the template now.
struct Shown {
    http_version: Value,
    scheme: Value,
    method: Value,
    server: Value,
    path: Value,
    raw_path: Value,
    query_string: Value,
}

/// One value of the template, to be compared by identity.
struct Value(RefCell<Py<PyAny>>);

impl Value {
    fn none(py: Python<'_>) -> Self {
        Self(RefCell::new(py.None()))
    }

    /// See to it that `scope` has `value` under `key`.
    #[inline]
    fn show<T>(&self, scope: &Bound<'_, PyDict>, key: &Py<PyString>, value: &Bound<'_, T>) -> PyResult<()> {
        let value = value.as_any();
        if self.0.borrow().is(value) {
            return Ok(());
        }
        scope.set_item(key, value)?;
        let old = self.0.replace(value.clone().unbind());
        drop(old);
        Ok(())
    }
}

/// A dict that stands in the template and so in every scope, but never in two that live at the same time, and never as
/// somebody left it.
struct Lent {
    original: Py<PyDict>,
    items: Vec<(Py<PyAny>, Py<PyAny>)>,
    now: RefCell<Py<PyDict>>,
}

impl Lent {
    fn new(original: &Bound<'_, PyDict>) -> PyResult<Self> {
        let (original, lent) = (original.copy()?, original.copy()?);
        let items = original.iter().map(|(key, value)| (key.unbind(), value.unbind())).collect();
        Ok(Self { original: original.unbind(), items, now: RefCell::new(lent.unbind()) })
    }

    /// See to it that `scope` has a dict under `key` that nobody else holds and that is as the original.
    #[inline]
    fn lend(&self, scope: &Bound<'_, PyDict>, key: &Py<PyString>) -> PyResult<()> {
        let py = scope.py();
        let lent = self.now.borrow().bind(py).clone();
        // Held by the template, by `self` and right here.
        if ffi::is_held_by(&lent, 3) && ffi::holds(&lent, &self.items) {
            return Ok(());
        }
        let fresh = self.original.bind(py).copy()?;
        scope.set_item(key, &fresh)?;
        let old = self.now.replace(fresh.unbind());
        drop(old);
        Ok(())
    }
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

/// The header lists of field sections that came word for word before, by the numbers of [`Sections`].
#[derive(Default)]
pub(crate) struct KeptHeaders {
    pub(crate) sections: RefCell<Sections>,
    lists: RefCell<Vec<Option<Kept>>>,
}

struct Kept {
    list: Py<PyList>,
    forwarded: bool,
}

impl KeptHeaders {
    /// The headers of a scope: a list of its own, of tuples that may be shared since nobody can change them.
    #[inline]
    fn headers<'py>(&self, py: Python<'py>, names: &Names, head: &Head, input: &[u8]) -> PyResult<Bound<'py, PyList>> {
        if head.recalled {
            let kept = self.lists.borrow();
            if let Some(Some(kept)) = head.kept.and_then(|number| kept.get(number)) {
                let list = kept.list.bind(py);
                return Ok(list.get_slice(0, list.len()));
            }
        }
        let list = headers(py, names, head, input)?;
        if let Some(number) = head.kept {
            let kept = Kept { list: list.get_slice(0, list.len()).unbind(), forwarded: has_forwarded(head) };
            let mut lists = self.lists.borrow_mut();
            if lists.len() <= number {
                lists.resize_with(number + 1, || None);
            }
            let old = lists.get_mut(number).and_then(|place| place.replace(kept));
            drop(lists);
            drop(old);
        }
        Ok(list)
    }

    /// Whether the request has a field that the proxy headers middleware looks at.
    #[inline]
    pub(crate) fn is_forwarded(&self, head: &Head) -> bool {
        if head.recalled {
            let lists = self.lists.borrow();
            return head.kept.and_then(|number| lists.get(number)?.as_ref()).is_none_or(|kept| kept.forwarded);
        }
        has_forwarded(head)
    }
}

fn has_forwarded(head: &Head) -> bool {
    head.fields.iter().any(|field| matches!(field.known, Name::XForwardedFor | Name::XForwardedProto))
}

/// What is the same for all scopes of one connection.
pub(crate) struct Endpoints<'a, 'py> {
    pub(crate) client: &'a Bound<'py, PyAny>,
    pub(crate) server: &'a Bound<'py, PyAny>,
    pub(crate) secure: bool,
    pub(crate) state: &'a Bound<'py, PyDict>,
}

impl ScopeTemplate {
    pub(crate) fn new(config: &Bound<'_, PyAny>, settings: &Settings, names: &Names) -> PyResult<Self> {
        let py = config.py();
        let asgi = PyDict::new(py);
        asgi.set_item("version", config.getattr("asgi_version")?)?;
        asgi.set_item("spec_version", "2.3")?;
        let scope = PyDict::new(py);
        scope.set_item(&names.r#type, PyString::intern(py, "http"))?;
        scope.set_item(&names.asgi, py.None())?;
        scope.set_item(&names.http_version, PyString::intern(py, "1.1"))?;
        scope.set_item(&names.server, py.None())?;
        scope.set_item(&names.client, py.None())?;
        scope.set_item(&names.scheme, PyString::intern(py, "http"))?;
        scope.set_item(&names.method, PyString::intern(py, "GET"))?;
        scope.set_item(&names.root_path, PyString::new(py, &settings.root_path))?;
        scope.set_item(&names.path, py.None())?;
        scope.set_item(&names.raw_path, py.None())?;
        scope.set_item(&names.query_string, &names.empty_bytes)?;
        scope.set_item(&names.headers, py.None())?;
        scope.set_item(&names.state, py.None())?;
        scope.set_item(&names.extensions, py.None())?;
        let module = py.import("uvicorn.protocols.http.scope")?;
        let extensions = module.getattr("EXTENSIONS")?.cast_into::<PyDict>()?;
        let extensions_10 = module.getattr("EXTENSIONS_10")?.cast_into::<PyDict>()?;
        let root_path = settings.root_path.clone();
        let raw_root_path = if root_path.is_ascii() {
            root_path.clone().into_bytes()
        } else {
            let quoted: String = py.import("urllib.parse")?.call_method1("quote", (&root_path,))?.extract()?;
            quoted.into_bytes()
        };
        let shown = Shown {
            http_version: Value::none(py),
            scheme: Value::none(py),
            method: Value::none(py),
            server: Value::none(py),
            path: Value::none(py),
            raw_path: Value::none(py),
            query_string: Value::none(py),
        };
        let mut paths = Vec::new();
        paths.resize_with(KEPT_PATHS, || None);
        Ok(Self {
            scope: scope.unbind(),
            asgi: Lent::new(&asgi)?,
            state: Lent::new(&PyDict::new(py))?,
            extensions: Lent::new(&extensions)?,
            extensions_10: extensions_10.unbind(),
            root_path,
            raw_root_path,
            shown,
            paths: RefCell::new(paths),
            kept: KeptHeaders::default(),
        })
    }

    /// The scope of the request in `head`, which was parsed from `input`.
    pub(crate) fn build<'py>(
        &self,
        py: Python<'py>,
        names: &Names,
        head: &Head,
        input: &[u8],
        ends: &Endpoints<'_, 'py>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let template = self.scope.bind(py);
        let shown = &self.shown;
        let version = if head.version == Version::Http10 { &names.http_1_0 } else { &names.http_1_1 };
        shown.http_version.show(template, &names.http_version, version.bind(py))?;
        let scheme = if ends.secure { &names.https } else { &names.http };
        shown.scheme.show(template, &names.scheme, scheme.bind(py))?;
        shown.server.show(template, &names.server, ends.server)?;
        match names.methods.get(head.verb as usize) {
            Some(method) => shown.method.show(template, &names.method, method.bind(py))?,
            None => shown.method.show(template, &names.method, &text(py, head.method.of(input)))?,
        }
        // An absolute target may come without a path; with OPTIONS it is about the server as a whole (RFC 9112 sections
        // 3.2.1 and 3.2.4).
        let path = match head.target.path.of(input) {
            [] if head.verb == Method::Options && head.target.query.is_empty() => b"*",
            [] => b"/",
            path => path,
        };
        self.show_path(template, names, path)?;
        match head.target.query.of(input) {
            [] => shown.query_string.show(template, &names.query_string, names.empty_bytes.bind(py))?,
            query => shown.query_string.show(template, &names.query_string, &PyBytes::new(py, query))?,
        }

        self.asgi.lend(template, &names.asgi)?;
        let shares_state = !ends.state.is_empty();
        if !shares_state {
            self.state.lend(template, &names.state)?;
        }
        self.extensions.lend(template, &names.extensions)?;

        let scope = template.copy()?;
        scope.set_item(&names.client, ends.client)?;
        scope.set_item(&names.headers, self.kept.headers(py, names, head, input)?)?;
        if shares_state {
            scope.set_item(&names.state, ends.state.copy()?)?;
        }
        if head.version == Version::Http10 {
            scope.set_item(&names.extensions, self.extensions_10.bind(py).copy()?)?;
        }
        Ok(scope)
    }

    #[inline]
    fn show_path(&self, template: &Bound<'_, PyDict>, names: &Names, sent: &[u8]) -> PyResult<()> {
        let py = template.py();
        let place = place(sent);
        let kept = match self.paths.borrow().get(place) {
            Some(Some(kept)) if *kept.sent == *sent => Some((kept.path.clone_ref(py), kept.raw_path.clone_ref(py))),
            _ => None,
        };
        let (path, raw_path) = match kept {
            Some(kept) => kept,
            None => self.read_path(py, place, sent)?,
        };
        self.shown.path.show(template, &names.path, path.bind(py))?;
        self.shown.raw_path.show(template, &names.raw_path, raw_path.bind(py))
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

fn headers<'py>(py: Python<'py>, names: &Names, head: &Head, input: &[u8]) -> PyResult<Bound<'py, PyList>> {
    let authority = head.target.authority.of(input);
    if authority.is_empty() {
        return PyList::new(py, head.fields.iter().map(|field| pair(py, names, field, input)));
    }
    // RFC 9112 section 3.2.2: the authority of the target replaces the Host field.
    let list = PyList::empty(py);
    list.append((PyBytes::new(py, b"host"), PyBytes::new(py, authority)))?;
    for field in head.fields.iter().filter(|field| field.known != Name::Host) {
        list.append(pair(py, names, field, input))?;
    }
    Ok(list)
}

/// A field as the scope has it.
struct FieldPair<'a> {
    names: &'a Names,
    field: &'a Field,
    input: &'a [u8],
}

#[inline]
fn pair<'a>(_py: Python<'_>, names: &'a Names, field: &'a Field, input: &'a [u8]) -> FieldPair<'a> {
    FieldPair { names, field, input }
}

impl<'py> IntoPyObject<'py> for FieldPair<'_> {
    type Target = PyTuple;
    type Output = Bound<'py, PyTuple>;
    type Error = PyErr;

    #[inline]
    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let value = PyBytes::new(py, self.field.value.of(self.input));
        match self.names.fields.get(self.field.known as usize) {
            Some(name) => (name.bind(py), value).into_pyobject(py),
            None => (PyBytes::new(py, &self.field.name.of(self.input).to_ascii_lowercase()), value).into_pyobject(py),
        }
    }
}
