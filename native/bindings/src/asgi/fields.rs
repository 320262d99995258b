//! The headers of a scope, and the parts of them that come again.

use std::cell::RefCell;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use wire::fingerprint::fingerprint;
use wire::headers::{Field, Name, Span};

use crate::base::names::Names;

/// Field lines remembered, and as many fingerprints of lines that came once.
const SLOTS: usize = 128;
/// Longest line remembered: 64 KiB in all.
const MAX_BYTES: usize = 512;

/// Makes the headers of scopes: lists of their own, of tuples of `bytes`.
///
/// Most fields are the same in each request of a browser or a service, even if one of them differs. A line that comes a
/// second time leaves its tuple here for any request with the same bytes: tuples cannot be changed, and a client gets
/// only bytes that it sent itself. A line that differs each time leaves a fingerprint, and evicts no tuple.
pub(crate) struct FieldTuples(RefCell<Store>);

struct Store {
    met_once: [u64; SLOTS],
    slots: Vec<Option<Known>>,
}

struct Known {
    fingerprint: u64,
    line: Box<[u8]>,
    tuple: Py<PyTuple>,
}

impl Default for FieldTuples {
    fn default() -> Self {
        let mut slots = Vec::new();
        slots.resize_with(SLOTS, || None);
        Self(RefCell::new(Store { met_once: [0; SLOTS], slots }))
    }
}

impl FieldTuples {
    /// The fields of a request, of which `input` has the texts; `authority` is what its target names, if it does.
    pub(crate) fn list<'py>(
        &self,
        py: Python<'py>,
        names: &Names,
        fields: &[Field],
        authority: &[u8],
        input: &[u8],
    ) -> PyResult<Bound<'py, PyList>> {
        let pair = |field| FieldPair { tuples: self, names, field, input };
        if authority.is_empty() {
            return PyList::new(py, fields.iter().map(pair));
        }
        // RFC 9112 section 3.2.2: the authority of the target replaces the Host field.
        let list = PyList::empty(py);
        list.append((PyBytes::new(py, b"host"), PyBytes::new(py, authority)))?;
        for field in fields.iter().filter(|field| field.known != Name::Host) {
            list.append(pair(field))?;
        }
        Ok(list)
    }

    #[inline]
    fn tuple<'py>(&self, py: Python<'py>, names: &Names, field: &Field, input: &[u8]) -> PyResult<Bound<'py, PyTuple>> {
        let line = Span { start: field.name.start, end: field.value.end.max(field.name.end) }.of(input);
        if line.len() > MAX_BYTES {
            return make(py, names, field, input);
        }
        let fingerprint = fingerprint(line);
        if let Some(tuple) = self.0.borrow().find(py, fingerprint, line) {
            return Ok(tuple);
        }
        let tuple = make(py, names, field, input)?;
        let old = self.0.borrow_mut().note(fingerprint, line, &tuple);
        drop(old);
        Ok(tuple)
    }
}

impl Store {
    #[inline]
    fn find<'py>(&self, py: Python<'py>, fingerprint: u64, line: &[u8]) -> Option<Bound<'py, PyTuple>> {
        let known = self.slots.get(fingerprint as usize % SLOTS)?.as_ref()?;
        (known.fingerprint == fingerprint && *known.line == *line).then(|| known.tuple.bind(py).clone())
    }

    /// Note an unknown line: it is remembered if it came before. Returns the evicted entry, to be dropped by the
    /// caller, who then holds no borrow.
    #[inline]
    fn note(&mut self, fingerprint: u64, line: &[u8], tuple: &Bound<'_, PyTuple>) -> Option<Known> {
        let place = fingerprint as usize % SLOTS;
        let met = self.met_once.get_mut(place)?;
        if *met != fingerprint {
            *met = fingerprint;
            return None;
        }
        *met = 0;
        self.slots.get_mut(place)?.replace(Known { fingerprint, line: line.into(), tuple: tuple.clone().unbind() })
    }
}

fn make<'py>(py: Python<'py>, names: &Names, field: &Field, input: &[u8]) -> PyResult<Bound<'py, PyTuple>> {
    let name = || PyBytes::new(py, &field.name.of(input).to_ascii_lowercase());
    pair(py, names, field.known, name, field.value.of(input))
}

/// A field as the scope has it; `name` makes that of one that is not known.
#[inline]
pub(crate) fn pair<'py>(
    py: Python<'py>,
    names: &Names,
    known: Name,
    name: impl FnOnce() -> Bound<'py, PyBytes>,
    value: &[u8],
) -> PyResult<Bound<'py, PyTuple>> {
    let value = PyBytes::new(py, value);
    match names.fields.get(known as usize) {
        Some(name) => (name.bind(py), value).into_pyobject(py),
        None => (name(), value).into_pyobject(py),
    }
}

struct FieldPair<'a> {
    tuples: &'a FieldTuples,
    names: &'a Names,
    field: &'a Field,
    input: &'a [u8],
}

impl<'py> IntoPyObject<'py> for FieldPair<'_> {
    type Target = PyTuple;
    type Output = Bound<'py, PyTuple>;
    type Error = PyErr;

    #[inline]
    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.tuples.tuple(py, self.names, self.field, self.input)
    }
}
