//! The headers of a scope: tuples made of a table's entry stay with it, for later references to the same entry.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use wire::h2::hpack::Key;
use wire::h2::{Head, Item};
use wire::headers::Name;

use super::connection::Connection;
use crate::asgi::fields::pair;
use crate::asgi::identity::Identity;
use crate::asgi::scope::Fields;

/// The fields of the request in `head`.
pub(super) struct HeadFields<'a> {
    pub(super) connection: &'a Connection,
    pub(super) head: &'a Head,
}

impl Fields for HeadFields<'_> {
    #[inline]
    fn are(&self, list: &Py<PyList>) -> bool {
        let repeated = self.connection.repeated.borrow();
        repeated.list.as_ref().is_some_and(|known| known.is(list)) && repeated.matches(self.head)
    }

    #[inline]
    fn list<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyList>, Option<Py<PyList>>)> {
        let is_repeated = self.connection.repeated.borrow().matches(self.head);
        if !is_repeated {
            let list = self.new_list(py)?;
            let old = self.connection.repeated.borrow_mut().note(self.head);
            drop(old);
            return Ok((list, None));
        }
        let known = self.connection.repeated.borrow().list.as_ref().map(|list| list.clone_ref(py));
        let known = if let Some(known) = known {
            known
        } else {
            let made = self.new_list(py)?.unbind();
            self.connection.repeated.borrow_mut().list = Some(made.clone_ref(py));
            made
        };
        let copy = known.bind(py).get_slice(0, known.bind(py).len());
        Ok((copy, Some(known)))
    }

    fn name_request(&self, identity: &Identity) -> bool {
        self.head.fields().iter().any(|item| identity.is_named(item.known, || self.head.name(item)))
    }

    fn name_parent(&self) -> bool {
        self.head.fields().iter().any(|item| item.known == Name::Traceparent)
    }
}

impl HeadFields<'_> {
    fn new_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.head.fields().iter().map(|item| FieldPair { fields: self, item }))
    }

    #[inline]
    fn field_pair<'py>(&self, py: Python<'py>, item: &Item) -> PyResult<Bound<'py, PyTuple>> {
        let core = &self.connection.core;
        let Some(entry) = item.entry else { return self.new_pair(py, item) };
        let known = match entry {
            Key::Static(index) => core.pairs.get(py, index),
            Key::Dynamic(_) => {
                let wire = &mut self.connection.state.borrow_mut().wire;
                wire.kept(entry).and_then(|kept| kept.as_ref().map(|pair| pair.clone_ref(py)))
            }
        };
        if let Some(pair) = known {
            return Ok(pair.into_bound(py));
        }
        let pair = self.new_pair(py, item)?;
        match entry {
            Key::Static(index) => core.pairs.keep(index, pair.clone().unbind()),
            Key::Dynamic(_) => {
                // The entry may be gone: a later one of this request has pushed it out.
                if let Some(kept) = self.connection.state.borrow_mut().wire.kept(entry) {
                    *kept = Some(pair.clone().unbind());
                }
            }
        }
        Ok(pair)
    }

    fn new_pair<'py>(&self, py: Python<'py>, item: &Item) -> PyResult<Bound<'py, PyTuple>> {
        let name = || PyBytes::new(py, self.head.name(item));
        pair(py, &self.connection.core.names, item.known, name, self.head.value(item))
    }
}

struct FieldPair<'a> {
    fields: &'a HeadFields<'a>,
    item: &'a Item,
}

impl<'py> IntoPyObject<'py> for FieldPair<'_> {
    type Target = PyTuple;
    type Output = Bound<'py, PyTuple>;
    type Error = PyErr;

    #[inline]
    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.fields.field_pair(py, self.item)
    }
}

/// Whether the request has a field that the proxy headers middleware looks at.
pub(super) fn is_forwarded(head: &Head) -> bool {
    head.fields().iter().any(|item| matches!(item.known, Name::XForwardedFor | Name::XForwardedProto))
}
