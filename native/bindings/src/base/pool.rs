//! Free lists, one per event loop, so without a lock: their figures, and that of byte buffers.
//!
//! A connection takes a buffer when it has something to keep and gives it back empty: an idle one holds none.

use std::cell::{Cell, RefCell};

use pyo3::prelude::*;

use super::ffi::refcount::is_known_to;

/// Buffers kept at most: as many as connections that are being answered at one moment on a busy loop.
const CAPACITY: usize = 256;
/// A buffer that grew beyond this is freed, so that one large response does not stay in memory.
const MAX_BYTES: usize = 256 * 1024;
/// A fresh buffer holds a usual response without growing.
const FIRST_BYTES: usize = 512;

/// Figures of a pool: `created`, `reused`, `discarded`, `idle`, `in_use`.
pub(crate) type Stats = [(&'static str, i64); 5];

/// What a free list counts.
#[derive(Default)]
pub(crate) struct Figures {
    created: Cell<u64>,
    reused: Cell<u64>,
    discarded: Cell<u64>,
    in_use: Cell<i64>,
}

impl Figures {
    /// One was taken: one that was there, or one made anew.
    #[inline]
    pub(crate) fn taken(&self, reused: bool) {
        let count = if reused { &self.reused } else { &self.created };
        count.set(count.get() + 1);
        self.in_use.set(self.in_use.get() + 1);
    }

    /// One came back, to be kept or not.
    #[inline]
    pub(crate) fn given(&self, kept: bool) {
        self.in_use.set(self.in_use.get() - 1);
        if !kept {
            self.discarded.set(self.discarded.get() + 1);
        }
    }

    pub(crate) fn stats(&self, idle: usize) -> Stats {
        [
            ("created", self.created.get().cast_signed()),
            ("reused", self.reused.get().cast_signed()),
            ("discarded", self.discarded.get().cast_signed()),
            ("idle", i64::try_from(idle).unwrap_or(i64::MAX)),
            ("in_use", self.in_use.get()),
        ]
    }
}

/// The free list of buffers.
pub(crate) struct BufferPool {
    idle: RefCell<Vec<Vec<u8>>>,
    figures: Figures,
    poison: bool,
}

impl BufferPool {
    /// None yet; none ever, if what comes back is to be poisoned.
    pub(crate) fn new(poison: bool) -> Self {
        Self { idle: RefCell::default(), figures: Figures::default(), poison }
    }

    /// An empty buffer.
    #[inline]
    pub(crate) fn take(&self) -> Vec<u8> {
        let idle = self.idle.borrow_mut().pop();
        self.figures.taken(idle.is_some());
        idle.unwrap_or_else(|| Vec::with_capacity(FIRST_BYTES))
    }

    /// Put a buffer in the place of one that has no room at all.
    #[inline]
    pub(crate) fn supply(&self, buffer: &mut Vec<u8>) {
        if buffer.capacity() == 0 {
            *buffer = self.take();
        }
    }

    /// What is in `buffer` from `at` on, in a buffer of its own.
    pub(crate) fn split_off(&self, buffer: &mut Vec<u8>, at: usize) -> Vec<u8> {
        let rest = buffer.get(at..).unwrap_or_default();
        if rest.is_empty() {
            return Vec::new();
        }
        let mut own = self.take();
        own.extend_from_slice(rest);
        buffer.truncate(at);
        own
    }

    /// Take `buffer` back; its contents are forgotten.
    #[inline]
    pub(crate) fn give(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() == 0 {
            return;
        }
        let mut idle = self.idle.borrow_mut();
        if self.poison {
            poison(&mut buffer);
        }
        let kept = !self.poison && idle.len() < CAPACITY && buffer.capacity() <= MAX_BYTES;
        self.figures.given(kept);
        if !kept {
            return;
        }
        buffer.clear();
        idle.push(buffer);
    }

    pub(crate) fn stats(&self) -> Stats {
        self.figures.stats(self.idle.borrow().len())
    }
}

/// A Python object that is over, and nobody knows any more: it serves as the next. It is not here while it does.
pub(crate) struct SpareObject {
    place: Cell<Option<Py<PyAny>>>,
    poison: bool,
}

impl SpareObject {
    /// None yet; none ever, if what comes back is to be poisoned.
    pub(crate) fn new(poison: bool) -> Self {
        Self { place: Cell::default(), poison }
    }

    /// The object, unless somebody has kept it.
    #[inline]
    pub(crate) fn take<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let object = self.place.take()?.into_bound(py);
        is_known_to(&object, 1).then_some(object)
    }

    /// `object` is over. Whoever uses it still holds it.
    #[inline]
    pub(crate) fn give(&self, object: &Bound<'_, PyAny>) {
        if !self.poison {
            let old = self.place.replace(Some(object.clone().unbind()));
            drop(old);
        }
    }
}

/// Overwrite what is in `buffer` with something that nobody can take for their own.
pub(crate) fn poison(buffer: &mut [u8]) {
    buffer.fill(0xdd);
}
