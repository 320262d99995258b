//! The headers of a scope: tuples made of a table's entry stay with it, for later references to the same entry.

use std::cell::RefCell;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use wire::fields::{Head, Item, Key};
use wire::headers::Name;

use super::pairs::{Repeated, StaticPairs};
use crate::asgi::fields::pair;
use crate::asgi::identity::Identity;
use crate::asgi::scope::Fields;
use crate::base::names::Names;

const EARLY_DATA: &[u8] = b"early-data";

/// A connection that keeps the objects made of fields.
pub(crate) trait Remembers {
    fn names(&self) -> &Names;
    fn pairs(&self) -> &StaticPairs;
    fn repeated(&self) -> &RefCell<Repeated>;
    /// Use the place beside an entry of the client's dynamic table, as long as there is such an entry.
    fn with_kept<R>(&self, entry: Key, with: impl FnOnce(&mut Option<Py<PyTuple>>) -> R) -> Option<R>;
}

/// The fields of the request in `head`.
pub(crate) struct HeadFields<'a, C> {
    pub(crate) connection: &'a C,
    pub(crate) head: &'a Head,
    /// The request came in early data, and a field says so (RFC 8470 section 5.1).
    pub(crate) is_early: bool,
}

impl<C: Remembers> Fields for HeadFields<'_, C> {
    #[inline]
    fn are(&self, list: &Py<PyList>) -> bool {
        let repeated = self.connection.repeated().borrow();
        !self.is_early && repeated.list.as_ref().is_some_and(|known| known.is(list)) && repeated.matches(self.head)
    }

    #[inline]
    fn list<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyList>, Option<Py<PyList>>)> {
        if self.is_early {
            let list = self.new_list(py)?;
            list.append((PyBytes::new(py, EARLY_DATA), PyBytes::new(py, b"1")))?;
            return Ok((list, None));
        }
        let is_repeated = self.connection.repeated().borrow().matches(self.head);
        if !is_repeated {
            let list = self.new_list(py)?;
            let old = self.connection.repeated().borrow_mut().note(self.head);
            drop(old);
            return Ok((list, None));
        }
        let known = self.connection.repeated().borrow().list.as_ref().map(|list| list.clone_ref(py));
        let known = if let Some(known) = known {
            known
        } else {
            let made = self.new_list(py)?.unbind();
            self.connection.repeated().borrow_mut().list = Some(made.clone_ref(py));
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

impl<C: Remembers> HeadFields<'_, C> {
    fn new_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.head.fields().iter().map(|item| FieldPair { fields: self, item }))
    }

    #[inline]
    fn field_pair<'py>(&self, py: Python<'py>, item: &Item) -> PyResult<Bound<'py, PyTuple>> {
        let Some(entry) = item.entry else { return self.new_pair(py, item) };
        let known = match entry {
            Key::Static(index) => self.connection.pairs().get(py, index),
            Key::Dynamic(_) => {
                let copy = |kept: &mut Option<Py<PyTuple>>| kept.as_ref().map(|pair| pair.clone_ref(py));
                self.connection.with_kept(entry, copy).flatten()
            }
        };
        if let Some(pair) = known {
            return Ok(pair.into_bound(py));
        }
        let pair = self.new_pair(py, item)?;
        match entry {
            Key::Static(index) => self.connection.pairs().keep(index, pair.clone().unbind()),
            Key::Dynamic(_) => {
                // The entry may be gone: a later one of this request has pushed it out.
                self.connection.with_kept(entry, |kept| *kept = Some(pair.clone().unbind()));
            }
        }
        Ok(pair)
    }

    fn new_pair<'py>(&self, py: Python<'py>, item: &Item) -> PyResult<Bound<'py, PyTuple>> {
        let name = || PyBytes::new(py, self.head.name(item));
        pair(py, self.connection.names(), item.known, name, self.head.value(item))
    }
}

struct FieldPair<'a, C> {
    fields: &'a HeadFields<'a, C>,
    item: &'a Item,
}

impl<'py, C: Remembers> IntoPyObject<'py> for FieldPair<'_, C> {
    type Target = PyTuple;
    type Output = Bound<'py, PyTuple>;
    type Error = PyErr;

    #[inline]
    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.fields.field_pair(py, self.item)
    }
}

/// Whether the request has a field that the proxy headers middleware looks at.
pub(crate) fn is_forwarded(head: &Head) -> bool {
    head.fields().iter().any(|item| matches!(item.known, Name::XForwardedFor | Name::XForwardedProto))
}
