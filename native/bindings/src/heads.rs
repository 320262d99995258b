//! Strict checks on request heads before httptools or h11 parses them (`Shortcut::Heads`).
//!
//! `uvicorn/protocols/http/wire/head.py` has the same rules in Python and names the mistake in a bad head. This code
//! either accepts a head or leaves it to Python.

use std::sync::{Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use wire::h1::framing::BodyLength;
use wire::h1::request::{Head, Status, Version};
use wire::h1::target::Form;
use wire::headers::{Name, Span};
use wire::limits::Limits;
use wire::method::Method;

use crate::base::objects::text;

/// Python's `CHUNKED`.
const CHUNKED: i64 = -1;
const VERSION_BEGIN: usize = " HTTP/1.".len();

/// Takes a strict look at complete heads.
#[pyclass(frozen, module = "uvicorn._native")]
pub(crate) struct HeadReader {
    limits: Limits,
    /// Python's `PLAIN`, and its class.
    plain: Py<PyAny>,
    framing: Py<PyAny>,
    /// Offered by each request. `None` where a root path precedes each path: Python decodes those.
    extensions: Option<Py<PyAny>>,
    /// By `Method`: as bytes and as text.
    methods: Vec<(Py<PyBytes>, Py<PyString>)>,
    minors: [Py<PyBytes>; 2],
    /// Taken out while a head is read.
    spare: Mutex<Option<Head>>,
}

#[pymethods]
impl HeadReader {
    #[new]
    fn new(
        py: Python<'_>,
        limits: (usize, usize, usize),
        limit_body: Option<u64>,
        plain: Py<PyAny>,
        extensions: Option<Py<PyAny>>,
    ) -> Self {
        let (head, fields, target) = limits;
        let method = |method: &Method| {
            (PyBytes::new(py, method.as_str().as_bytes()).unbind(), PyString::intern(py, method.as_str()).unbind())
        };
        Self {
            limits: Limits { head, fields, target, body: limit_body, ..Limits::default() },
            framing: plain.bind(py).get_type().into_any().unbind(),
            plain,
            extensions,
            methods: Method::ALL.iter().map(method).collect(),
            minors: [PyBytes::new(py, b"0").unbind(), PyBytes::new(py, b"1").unbind()],
            spare: Mutex::new(None),
        }
    }

    /// Return the result of Python's `look_at` and the decoded request line, or `None` in place of the line where
    /// decoding needs Python. Return `None` for a head that Python has to check.
    fn read<'py>(&self, py: Python<'py>, head: &Bound<'py, PyBytes>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let mut read = self.spare().take().unwrap_or_default();
        let bytes = head.as_bytes();
        let found = match read.parse(bytes, &self.limits) {
            Ok(Status::Complete(length))
                if length == bytes.len() && read.start == 0 && read.target.form == Form::Origin =>
            {
                self.describe(py, &read, bytes)
            }
            _ => Ok(None),
        };
        *self.spare() = Some(read);
        found
    }
}

impl HeadReader {
    fn spare(&self) -> std::sync::MutexGuard<'_, Option<Head>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn describe<'py>(&self, py: Python<'py>, head: &Head, bytes: &[u8]) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let minor = match bytes.get(head.target.whole.end as usize + VERSION_BEGIN) {
            Some(b'0') => &self.minors[0],
            Some(b'1') => &self.minors[1],
            _ => return Ok(None),
        };
        let known = self.methods.get(head.verb as usize);
        let method =
            known.map_or_else(|| PyBytes::new(py, head.method.of(bytes)), |(method, _)| method.bind(py).clone());
        let target = PyBytes::new(py, head.target.whole.of(bytes));
        let framing = self.framing(py, head, bytes)?;
        let look = (method, &target, minor, py.None(), false, framing, &target).into_pyobject(py)?;
        let line = match &self.extensions {
            Some(extensions) if head.version == Version::Http11 => {
                let name = known.map_or_else(|| text(py, head.method.of(bytes)), |(_, method)| method.bind(py).clone());
                line(py, head, bytes, name, &target, extensions)?
            }
            _ => None,
        };
        Ok(Some((look, line).into_pyobject(py)?))
    }

    fn framing<'py>(&self, py: Python<'py>, head: &Head, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        let (mut is_special, mut is_forwarded) = (head.version == Version::Http10, false);
        for field in &head.fields {
            match field.known {
                Name::XForwardedFor | Name::XForwardedProto => is_forwarded = true,
                Name::ContentLength | Name::TransferEncoding | Name::Connection | Name::Upgrade | Name::Expect => {
                    is_special = true;
                }
                _ => {}
            }
        }
        if !is_special && !is_forwarded {
            return Ok(self.plain.bind(py).clone());
        }
        let length = match head.body {
            BodyLength::None => 0,
            BodyLength::Length(length) => length.cast_signed(),
            BodyLength::Chunked => CHUNKED,
        };
        let upgrade = if head.upgrades { offers(head, bytes) } else { Vec::new() };
        let upgrade = PyBytes::new(py, &upgrade);
        self.framing.bind(py).call1((length, head.persistent, head.expects_continue, upgrade, is_forwarded))
    }
}

/// The requested protocols, in lower case.
fn offers(head: &Head, bytes: &[u8]) -> Vec<u8> {
    let fields = head.fields.iter().filter(|field| field.known == Name::Upgrade);
    let values: Vec<&[u8]> = fields.map(|field| field.value.of(bytes)).collect();
    values.join(&b","[..]).to_ascii_lowercase()
}

/// Method, version, decoded path, raw path, query and extensions; none where the path has to be decoded.
fn line<'py>(
    py: Python<'py>,
    head: &Head,
    bytes: &[u8],
    method: Bound<'py, PyString>,
    target: &Bound<'py, PyBytes>,
    extensions: &Py<PyAny>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let path = head.target.path.of(bytes);
    if path.contains(&b'%') {
        return Ok(None);
    }
    let has_query = head.target.query != Span::default();
    let raw_path = if has_query { PyBytes::new(py, path) } else { target.clone() };
    let query = PyBytes::new(py, head.target.query.of(bytes));
    Ok(Some((method, intern!(py, "1.1"), text(py, path), raw_path, query, extensions).into_pyobject(py)?))
}

/// Collects the fields of a head that httptools parses.
#[pyclass(frozen, module = "uvicorn._native")]
pub(crate) struct FieldList {
    /// By `Name`.
    names: Vec<Py<PyBytes>>,
    fields: Mutex<Option<Py<PyList>>>,
}

#[pymethods]
impl FieldList {
    #[new]
    fn new(py: Python<'_>) -> Self {
        let names = Name::ALL.iter().map(|name| PyBytes::new(py, name.as_str().as_bytes()).unbind()).collect();
        Self { names, fields: Mutex::new(None) }
    }

    /// Called by httptools for each field.
    fn on_header(&self, name: &Bound<'_, PyBytes>, value: &Bound<'_, PyBytes>) -> PyResult<()> {
        let py = name.py();
        let known = self.names.get(Name::classify(name.as_bytes()) as usize);
        let name =
            known.map_or_else(|| PyBytes::new(py, &name.as_bytes().to_ascii_lowercase()), |name| name.bind(py).clone());
        let value = match value.as_bytes() {
            [.., b' ' | b'\t'] => PyBytes::new(py, trim_end(value.as_bytes())),
            _ => value.clone(),
        };
        let field = (name, value).into_pyobject(py)?;
        // Creating an object may run a garbage collection and thereby any code: no lock is held meanwhile.
        let taken = self.fields().take();
        let list = taken.map_or_else(|| PyList::empty(py), |list| list.into_bound(py));
        list.append(field)?;
        *self.fields() = Some(list.unbind());
        Ok(())
    }

    /// Return the fields that came since the last call.
    fn take<'py>(&self, py: Python<'py>) -> Bound<'py, PyList> {
        let fields = self.fields().take();
        fields.map_or_else(|| PyList::empty(py), |list| list.into_bound(py))
    }
}

impl FieldList {
    fn fields(&self) -> std::sync::MutexGuard<'_, Option<Py<PyList>>> {
        self.fields.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn trim_end(mut value: &[u8]) -> &[u8] {
    while let [start @ .., b' ' | b'\t'] = value {
        value = start;
    }
    value
}
