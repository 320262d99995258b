//! Build one ASGI http scope, in upstream's key order.

use std::cell::{Cell, RefCell};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use wire::h1::Sections;
use wire::h1::request::{Head, Version};
use wire::h1::sections::Number;
use wire::headers::{Field, Name};
use wire::limits::Limits;

use crate::ffi;
use crate::names::Names;
use crate::server::text;
use crate::settings::Settings;

/// What all scopes of one server have in common.
pub(crate) struct ScopeTemplate {
    /// A whole scope; a copy of it keeps the order of the keys. The values that cannot be changed by whoever gets them
    /// (`str`, `bytes`, tuples) are those of the last request: what repeats is not set again. Client and headers are
    /// missing.
    scope: Py<PyDict>,
    /// What stands in `scope`, and client and headers of the last one: to be compared by identity.
    items: RefCell<Vec<(Py<PyAny>, Py<PyAny>)>>,
    /// The last scope as it was handed out, if that is what the items say.
    version: Cell<Option<u64>>,
    /// A scope that came back.
    spare: RefCell<Option<Spare>>,
    asgi: Lent,
    state: Lent,
    /// Names of those that are offered, and of those that are to clients of HTTP/1.0; mostly none.
    extensions: Vec<String>,
    extensions_10: Vec<String>,
    root_path: String,
    raw_root_path: Vec<u8>,
    limits: Limits,
    paths: RefCell<Vec<Option<KeptPath>>>,
    pub(crate) kept: KeptHeaders,
}

/// Where a value stands in a scope, in the order of its keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Asgi = 1,
    HttpVersion,
    Server,
    Client,
    Scheme,
    Method,
    Path = 8,
    RawPath,
    QueryString,
    Headers,
    State,
}

/// A scope that nobody holds any more, and in which nothing but the headers differs from the items of the template.
struct Spare {
    scope: Py<PyDict>,
    /// Its headers, if they are as they were and nobody else holds them, and the list they are a copy of. If not, they
    /// are missing.
    headers: Option<(Py<PyAny>, Py<PyList>)>,
}

/// A dict that stands in the template and so in every scope, but never in two that live at the same time, and never as
/// somebody left it.
struct Lent {
    place: Place,
    original: Py<PyDict>,
    items: Vec<(Py<PyAny>, Py<PyAny>)>,
    /// The one that stands in the template, as it was put there.
    version: Cell<Option<u64>>,
}

impl Lent {
    fn new(place: Place, original: &Bound<'_, PyDict>) -> PyResult<Self> {
        let original = original.copy()?;
        let items = original.iter().map(|(key, value)| (key.unbind(), value.unbind())).collect();
        Ok(Self { place, original: original.unbind(), items, version: Cell::new(None) })
    }

    /// Whether `lent`, held by this many others, is held by nobody else and is as the original.
    #[inline]
    fn is_back(&self, lent: &Bound<'_, PyAny>, others: isize) -> bool {
        ffi::is_held_by(lent, others)
            && lent.cast_exact().is_ok_and(|lent| ffi::is_unchanged(lent, self.version.get(), &self.items))
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
    /// The list that was copied last.
    last: RefCell<Option<Py<PyList>>>,
}

struct Kept {
    number: Number,
    list: Py<PyList>,
    forwarded: bool,
}

impl KeptHeaders {
    /// The headers of a scope: a list of its own, of tuples that may be shared since nobody can change them.
    #[inline]
    fn headers<'py>(
        &self,
        py: Python<'py>,
        names: &Names,
        head: &Head,
        input: &[u8],
        limits: &Limits,
    ) -> PyResult<Bound<'py, PyList>> {
        if head.recalled {
            if let Some(list) = self.find(head, |kept| kept.list.clone_ref(py)) {
                let list = list.into_bound(py);
                let old = self.last.replace(Some(list.clone().unbind()));
                drop(old);
                return Ok(list.get_slice(0, list.len()));
            }
            return self.read_again(py, names, head, input, limits);
        }
        let list = headers(py, names, head, input)?;
        self.keep(&list, head.kept, has_forwarded(head));
        Ok(list)
    }

    /// The section was met before, and what was made of it is not here: it could not be made then, or the section has
    /// made room for another since the head was read.
    #[cold]
    fn read_again<'py>(
        &self,
        py: Python<'py>,
        names: &Names,
        head: &Head,
        input: &[u8],
        limits: &Limits,
    ) -> PyResult<Bound<'py, PyList>> {
        let mut again = Head::default();
        again.parse(input, limits).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        let list = headers(py, names, &again, input)?;
        self.keep(&list, head.kept, has_forwarded(&again));
        Ok(list)
    }

    /// Keep a copy of `list`, if its section has a number.
    #[inline]
    fn keep(&self, list: &Bound<'_, PyList>, number: Option<Number>, forwarded: bool) {
        let Some(number) = number else { return };
        let kept = Kept { number, list: list.get_slice(0, list.len()).unbind(), forwarded };
        let mut lists = self.lists.borrow_mut();
        if lists.len() <= number.place() {
            lists.resize_with(number.place() + 1, || None);
        }
        let old = lists.get_mut(number.place()).and_then(|place| place.replace(kept));
        drop(lists);
        drop(old);
    }

    /// What was made of the section of `head`, if it is still here.
    #[inline]
    fn find<R>(&self, head: &Head, look: impl FnOnce(&Kept) -> R) -> Option<R> {
        let number = head.kept?;
        let lists = self.lists.borrow();
        lists.get(number.place())?.as_ref().filter(|kept| kept.number == number).map(look)
    }

    /// Whether the headers of the request are those in `list`, one of ours.
    #[inline]
    fn are(&self, list: &Py<PyList>, head: &Head) -> bool {
        head.recalled && self.find(head, |kept| kept.list.is(list)).unwrap_or(false)
    }

    /// Whether the request has a field that the proxy headers middleware looks at.
    #[inline]
    pub(crate) fn is_forwarded(&self, head: &Head) -> bool {
        if head.recalled { self.find(head, |kept| kept.forwarded).unwrap_or(true) } else { has_forwarded(head) }
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
        let known: Vec<String> = py.import("uvicorn.protocols.http.scope")?.getattr("EXTENSIONS_10")?.extract()?;
        let extensions = settings.extensions.clone();
        let extensions_10 = extensions.iter().filter(|name| known.contains(name)).cloned().collect();
        let root_path = settings.root_path.clone();
        let raw_root_path = if root_path.is_ascii() {
            root_path.clone().into_bytes()
        } else {
            let quoted: String = py.import("urllib.parse")?.call_method1("quote", (&root_path,))?.extract()?;
            quoted.into_bytes()
        };
        let items = scope.iter().map(|(key, value)| (key.unbind(), value.unbind())).collect();
        let mut paths = Vec::new();
        paths.resize_with(KEPT_PATHS, || None);
        Ok(Self {
            scope: scope.unbind(),
            items: RefCell::new(items),
            version: Cell::new(None),
            spare: RefCell::default(),
            asgi: Lent::new(Place::Asgi, &asgi)?,
            state: Lent::new(Place::State, &PyDict::new(py))?,
            extensions,
            extensions_10,
            root_path,
            raw_root_path,
            limits: settings.limits.clone(),
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
        self.version.set(None);
        let spare = self.spare.take().filter(|spare| ffi::is_held_by(spare.scope.bind(py), 1));
        let back = spare.as_ref().map(|spare| spare.scope.bind(py));
        let version = if head.version == Version::Http10 { &names.http_1_0 } else { &names.http_1_1 };
        self.show(back, Place::HttpVersion, version.bind(py))?;
        let scheme = if ends.secure { &names.https } else { &names.http };
        self.show(back, Place::Scheme, scheme.bind(py))?;
        self.show(back, Place::Server, ends.server)?;
        match names.methods.get(head.verb as usize) {
            Some(method) => self.show(back, Place::Method, method.bind(py))?,
            None => self.show(back, Place::Method, &text(py, head.method.of(input)))?,
        }
        self.show_path(py, back, head.target.effective_path(input, head.verb))?;
        match head.target.query.of(input) {
            [] => self.show(back, Place::QueryString, names.empty_bytes.bind(py))?,
            query => self.show(back, Place::QueryString, &PyBytes::new(py, query))?,
        }

        self.lend(py, back, &self.asgi)?;
        let shares_state = !ends.state.is_empty();
        if !shares_state {
            self.lend(py, back, &self.state)?;
        }

        let scope = match back {
            Some(scope) => scope.clone(),
            None => self.scope.bind(py).copy()?,
        };
        if spare.is_none() || !self.shows(Place::Client, ends.client) {
            scope.set_item(&names.client, ends.client)?;
            self.note(Place::Client, ends.client);
        }
        let headers = match spare.and_then(|spare| spare.headers) {
            Some((headers, copied)) if self.kept.are(&copied, head) => headers.into_bound(py),
            _ => {
                let headers = self.kept.headers(py, names, head, input, &self.limits)?.into_any();
                scope.set_item(&names.headers, &headers)?;
                headers
            }
        };
        self.note(Place::Headers, &headers);
        if shares_state {
            scope.set_item(&names.state, ends.state.copy()?)?;
        }
        let extensions = if head.version == Version::Http10 { &self.extensions_10 } else { &self.extensions };
        if !extensions.is_empty() {
            scope.set_item(&names.extensions, offer(py, extensions)?)?;
        } else if !shares_state {
            self.version.set(ffi::version(&scope));
        }
        Ok(scope)
    }

    /// Take back the scope of a request that is over. It serves the next one if nobody holds it and it is as it was
    /// handed out; so it keeps nothing alive that an application put there.
    #[inline]
    pub(crate) fn give(&self, names: &Names, scope: Bound<'_, PyDict>) {
        let py = scope.py();
        let same = ffi::is_held_by(&scope, 1) && {
            let items = self.items.borrow();
            // Held by the template, its list of items and this scope.
            let is_back =
                |lent: &Lent| items.get(lent.place as usize).is_some_and(|(_, dict)| lent.is_back(dict.bind(py), 3));
            ffi::is_unchanged(&scope, self.version.get(), &items) && self.lents().into_iter().all(is_back)
        };
        let Some(headers) = self.note(Place::Headers, py.None().bind(py)) else { return };
        if !same {
            return;
        }
        let copied = self.kept.last.borrow().as_ref().map(|copied| copied.clone_ref(py));
        let copied = copied.filter(|copied| {
            let headers = headers.bind(py).cast_exact::<PyList>();
            // By the scope and right here.
            headers.is_ok_and(|headers| ffi::is_held_by(headers, 2) && ffi::are_equal(headers, copied.bind(py)))
        });
        if copied.is_none() && scope.set_item(&names.headers, py.None()).is_err() {
            return;
        }
        let spare = Spare { scope: scope.unbind(), headers: copied.map(|copied| (headers, copied)) };
        let old = self.spare.replace(Some(spare));
        drop(old);
    }

    fn lents(&self) -> [&Lent; 2] {
        [&self.asgi, &self.state]
    }

    /// Whether `value` is what is known to stand there.
    #[inline]
    fn shows<T>(&self, place: Place, value: &Bound<'_, T>) -> bool {
        self.items.borrow().get(place as usize).is_some_and(|(_, shown)| shown.is(value))
    }

    /// Remember what stands there now; what did before.
    #[inline]
    fn note<T>(&self, place: Place, value: &Bound<'_, T>) -> Option<Py<PyAny>> {
        let value = value.as_any().clone().unbind();
        self.items.borrow_mut().get_mut(place as usize).map(|(_, shown)| std::mem::replace(shown, value))
    }

    /// See to it that the template has `value` in this place, and the scope that is `back`, if any.
    #[inline]
    fn show<T>(&self, back: Option<&Bound<'_, PyDict>>, place: Place, value: &Bound<'_, T>) -> PyResult<()> {
        if self.shows(place, value) { Ok(()) } else { self.replace(back, place, value.as_any()) }
    }

    fn replace(&self, back: Option<&Bound<'_, PyDict>>, place: Place, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = value.py();
        let Some(key) = self.items.borrow().get(place as usize).map(|(key, _)| key.clone_ref(py)) else {
            return Ok(());
        };
        self.scope.bind(py).set_item(&key, value)?;
        let old = self.note(place, value);
        drop(old);
        back.map_or(Ok(()), |scope| scope.set_item(&key, value))
    }

    /// See to it that the next scope gets a dict that nobody else holds and that is as the original.
    #[inline]
    fn lend(&self, py: Python<'_>, back: Option<&Bound<'_, PyDict>>, lent: &Lent) -> PyResult<()> {
        // What came back was looked at when it did.
        if back.is_some() {
            return Ok(());
        }
        let fresh = match self.items.borrow().get(lent.place as usize) {
            // Held by the template and its list of items.
            Some((_, shown)) if lent.is_back(shown.bind(py), 2) => return Ok(()),
            _ => lent.original.bind(py).copy()?,
        };
        self.replace(None, lent.place, fresh.as_any())?;
        lent.version.set(ffi::version(&fresh));
        Ok(())
    }

    #[inline]
    fn show_path(&self, py: Python<'_>, back: Option<&Bound<'_, PyDict>>, sent: &[u8]) -> PyResult<()> {
        let place = place(sent);
        let kept = match self.paths.borrow().get(place) {
            Some(Some(kept)) if *kept.sent == *sent => Some((kept.path.clone_ref(py), kept.raw_path.clone_ref(py))),
            _ => None,
        };
        let (path, raw_path) = match kept {
            Some(kept) => kept,
            None => self.read_path(py, place, sent)?,
        };
        self.show(back, Place::Path, path.bind(py))?;
        self.show(back, Place::RawPath, raw_path.bind(py))
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

/// What a scope says of the extensions that are offered: of its own for each, since middleware is known to add keys.
fn offer<'py>(py: Python<'py>, extensions: &[String]) -> PyResult<Bound<'py, PyDict>> {
    let offered = PyDict::new(py);
    for name in extensions {
        offered.set_item(name, PyDict::new(py))?;
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
