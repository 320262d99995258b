//! Tuples made of fields: of those of the static table, for all connections of a loop, and of those of the last
//! request.

use std::cell::RefCell;

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use wire::fields::{Head, Key};

/// One more than the last index of a static table: that of HPACK has fewer entries than that of QPACK.
const STATIC_ENTRIES: usize = 99;

/// Tuples of the entries of the static table, which all clients share.
pub(crate) struct StaticPairs(RefCell<Vec<Option<Py<PyTuple>>>>);

impl Default for StaticPairs {
    fn default() -> Self {
        let mut pairs = Vec::new();
        pairs.resize_with(STATIC_ENTRIES, || None);
        Self(RefCell::new(pairs))
    }
}

impl StaticPairs {
    pub(crate) fn get(&self, py: Python<'_>, index: u8) -> Option<Py<PyTuple>> {
        self.0.borrow().get(usize::from(index))?.as_ref().map(|pair| pair.clone_ref(py))
    }

    pub(crate) fn keep(&self, index: u8, pair: Py<PyTuple>) {
        let old = self.0.borrow_mut().get_mut(usize::from(index)).and_then(|place| place.replace(pair));
        drop(old);
    }
}

/// More fields are not looked at again.
const MAX_REPEATED: usize = 32;

/// The headers of a connection's last request, by the entries of tables that they were: mostly the next has the same.
#[derive(Default)]
pub(crate) struct Repeated {
    entries: Vec<Key>,
    /// Once they have come a second time.
    pub(crate) list: Option<Py<PyList>>,
}

impl Repeated {
    /// Whether `head` has the noted fields, all of them entries of the table.
    #[inline]
    pub(crate) fn matches(&self, head: &Head) -> bool {
        let fields = head.fields();
        !fields.is_empty()
            && fields.len() == self.entries.len()
            && fields.iter().zip(&self.entries).all(|(item, entry)| item.entry == Some(*entry))
    }

    /// Note fields that have come for the first time. Returns the evicted list, for a caller who holds no borrow.
    pub(crate) fn note(&mut self, head: &Head) -> Option<Py<PyList>> {
        self.entries.clear();
        let whole = head.fields().iter().all(|item| item.entry.is_some());
        if whole && head.fields().len() <= MAX_REPEATED {
            self.entries.extend(head.fields().iter().filter_map(|item| item.entry));
        }
        self.list.take()
    }
}
