//! What was made of fields of the static table, for all connections of a loop.

use std::cell::RefCell;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// One more than the last index of the static table.
const STATIC_ENTRIES: usize = 62;

/// What was made of entries of the static table, which all clients have.
pub(super) struct StaticPairs(RefCell<Vec<Option<Py<PyTuple>>>>);

impl Default for StaticPairs {
    fn default() -> Self {
        let mut pairs = Vec::new();
        pairs.resize_with(STATIC_ENTRIES, || None);
        Self(RefCell::new(pairs))
    }
}

impl StaticPairs {
    pub(super) fn get(&self, py: Python<'_>, index: u8) -> Option<Py<PyTuple>> {
        self.0.borrow().get(usize::from(index))?.as_ref().map(|pair| pair.clone_ref(py))
    }

    pub(super) fn keep(&self, index: u8, pair: Py<PyTuple>) {
        let old = self.0.borrow_mut().get_mut(usize::from(index)).and_then(|place| place.replace(pair));
        drop(old);
    }
}
