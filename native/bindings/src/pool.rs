//! A free list of byte buffers, one per event loop, so without a lock.
//!
//! A connection takes a buffer when it has something to keep and gives it back empty: an idle one holds none.

use std::cell::{Cell, RefCell};

/// Buffers kept at most: as many as connections that are being answered at one moment on a busy loop.
const CAPACITY: usize = 256;
/// A buffer that grew beyond this is freed, so that one large response does not stay in memory.
const MAX_BYTES: usize = 256 * 1024;
/// A fresh buffer holds a usual response without growing.
const FIRST_BYTES: usize = 512;

/// The free list and its figures.
#[derive(Default)]
pub(crate) struct BufferPool {
    idle: RefCell<Vec<Vec<u8>>>,
    created: Cell<u64>,
    reused: Cell<u64>,
    discarded: Cell<u64>,
    in_use: Cell<i64>,
}

/// Figures of a pool: `created`, `reused`, `discarded`, `idle`, `in_use`.
pub(crate) type Stats = [(&'static str, i64); 5];

impl BufferPool {
    /// An empty buffer.
    #[inline]
    pub(crate) fn take(&self) -> Vec<u8> {
        self.in_use.set(self.in_use.get() + 1);
        if let Some(buffer) = self.idle.borrow_mut().pop() {
            self.reused.set(self.reused.get() + 1);
            return buffer;
        }
        self.created.set(self.created.get() + 1);
        Vec::with_capacity(FIRST_BYTES)
    }

    /// Take `buffer` back; its contents are forgotten.
    #[inline]
    pub(crate) fn give(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() == 0 {
            return;
        }
        self.in_use.set(self.in_use.get() - 1);
        let mut idle = self.idle.borrow_mut();
        if idle.len() >= CAPACITY || buffer.capacity() > MAX_BYTES {
            self.discarded.set(self.discarded.get() + 1);
            return;
        }
        if cfg!(debug_assertions) {
            // Whoever still looks at it notices.
            buffer.fill(0xdd);
        }
        buffer.clear();
        idle.push(buffer);
    }

    pub(crate) fn stats(&self) -> Stats {
        [
            ("created", self.created.get().cast_signed()),
            ("reused", self.reused.get().cast_signed()),
            ("discarded", self.discarded.get().cast_signed()),
            ("idle", i64::try_from(self.idle.borrow().len()).unwrap_or(i64::MAX)),
            ("in_use", self.in_use.get()),
        ]
    }
}
