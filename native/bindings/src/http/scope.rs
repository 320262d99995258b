//! Build one ASGI http scope, in upstream's key order.

use std::cell::RefCell;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use wire::h1::Sections;
use wire::h1::request::{Head, Method, Version};
use wire::headers::{Field, Name};

use crate::names::Names;
use crate::server::text;
use crate::settings::Settings;

/// What all scopes of one server have in common.
pub(crate) struct ScopeTemplate {
    /// A whole scope; a copy of it keeps the order of the keys.
    scope: Py<PyDict>,
    asgi: Py<PyDict>,
    root_path: String,
    raw_root_path: Vec<u8>,
    pub(crate) kept: KeptHeaders,
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
    fn headers<'py>(
        &self,
        py: Python<'py>,
        names: &Names,
        head: &Head,
        input: &[u8],
    ) -> PyResult<Bound<'py, PyList>> {
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
        scope.set_item(&names.asgi, &asgi)?;
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
        let root_path = settings.root_path.clone();
        let raw_root_path = if root_path.is_ascii() {
            root_path.clone().into_bytes()
        } else {
            let quoted: String = py.import("urllib.parse")?.call_method1("quote", (&root_path,))?.extract()?;
            quoted.into_bytes()
        };
        Ok(Self { scope: scope.unbind(), asgi: asgi.unbind(), root_path, raw_root_path, kept: KeptHeaders::default() })
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
        let scope = self.scope.bind(py).copy()?;
        scope.set_item(&names.asgi, self.asgi.bind(py).copy()?)?;
        if head.version == Version::Http10 {
            scope.set_item(&names.http_version, &names.http_1_0)?;
        }
        if ends.secure {
            scope.set_item(&names.scheme, &names.https)?;
        }
        scope.set_item(&names.server, ends.server)?;
        scope.set_item(&names.client, ends.client)?;
        match names.methods.get(head.verb as usize) {
            Some(_) if head.verb == Method::Get => {}
            Some(method) => scope.set_item(&names.method, method)?,
            None => scope.set_item(&names.method, text(py, head.method.of(input)))?,
        }
        // An absolute target may come without a path; with OPTIONS it is about the server as a whole (RFC 9112 sections
        // 3.2.1 and 3.2.4).
        let path = match head.target.path.of(input) {
            [] if head.verb == Method::Options && head.target.query.is_empty() => b"*",
            [] => b"/",
            path => path,
        };
        self.set_path(&scope, names, path)?;
        let query = head.target.query.of(input);
        if !query.is_empty() {
            scope.set_item(&names.query_string, PyBytes::new(py, query))?;
        }
        scope.set_item(&names.headers, self.kept.headers(py, names, head, input)?)?;
        let state = if ends.state.is_empty() { PyDict::new(py) } else { ends.state.copy()? };
        scope.set_item(&names.state, state)?;
        Ok(scope)
    }

    #[inline]
    fn set_path(&self, scope: &Bound<'_, PyDict>, names: &Names, path: &[u8]) -> PyResult<()> {
        let py = scope.py();
        let decoded = if path.contains(&b'%') {
            PyString::new(py, &String::from_utf8_lossy(&percent_decode(path)))
        } else {
            text(py, path)
        };
        if self.root_path.is_empty() {
            scope.set_item(&names.path, decoded)?;
            return scope.set_item(&names.raw_path, PyBytes::new(py, path));
        }
        scope.set_item(&names.path, format!("{}{}", self.root_path, decoded.to_str()?))?;
        let raw = [&self.raw_root_path, path].concat();
        scope.set_item(&names.raw_path, PyBytes::new(py, &raw))
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
