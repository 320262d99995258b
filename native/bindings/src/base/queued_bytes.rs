//! Bytes that this process holds for peers which have not taken them, over all connections of all event loops.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use pyo3::prelude::*;

static TOTAL: AtomicUsize = AtomicUsize::new(0);
/// Beyond this nothing more should be added.
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// How many of them one queue holds.
#[derive(Default)]
pub(crate) struct QueuedBytes(usize);

impl QueuedBytes {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0
    }

    #[inline]
    pub(crate) fn add(&mut self, bytes: usize) {
        self.0 += bytes;
        TOTAL.fetch_add(bytes, Relaxed);
    }

    #[inline]
    pub(crate) fn remove(&mut self, bytes: usize) {
        self.0 -= bytes;
        TOTAL.fetch_sub(bytes, Relaxed);
    }

    pub(crate) fn clear(&mut self) {
        self.remove(self.0);
    }
}

impl Drop for QueuedBytes {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Whether more is held than the process may.
#[inline]
pub(crate) fn is_over() -> bool {
    TOTAL.load(Relaxed) > LIMIT.load(Relaxed)
}

/// Set how many bytes this process may hold for peers; `None` is any number.
#[pyfunction]
#[pyo3(signature = (limit, /))]
pub(crate) fn limit_held_bytes(limit: Option<usize>) {
    LIMIT.store(limit.unwrap_or(usize::MAX), Relaxed);
}

/// How many bytes this process holds for peers which have not taken them.
#[pyfunction]
pub(crate) fn held_bytes() -> usize {
    TOTAL.load(Relaxed)
}
