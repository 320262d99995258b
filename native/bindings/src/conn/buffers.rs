//! Byte buffers that are used again.
//!
//! A connection takes a buffer when it has something to keep and gives it back empty: an idle one holds none.

use crate::base::reuse::{Reuse, Stats, Stock};

/// Buffers kept at most: as many as connections that are being answered at one moment on a busy loop.
const CAPACITY: usize = 256;
/// A buffer that grew beyond this is freed, so that one large response does not stay in memory.
const MAX_BYTES: usize = 256 * 1024;
/// A fresh buffer holds a usual response without growing.
const FIRST_BYTES: usize = 512;

/// The buffers of one event loop.
pub(crate) struct BufferPool {
    stock: Stock<Vec<u8>>,
    reuse: Reuse,
}

impl BufferPool {
    pub(crate) fn new(reuse: Reuse) -> Self {
        Self { stock: Stock::new(CAPACITY, reuse), reuse }
    }

    /// An empty buffer.
    #[inline]
    pub(crate) fn take(&self) -> Vec<u8> {
        self.stock.take(|_| true).unwrap_or_else(|| Vec::with_capacity(FIRST_BYTES))
    }

    /// Put a buffer in the place of one that has no room at all.
    #[inline]
    pub(crate) fn supply(&self, buffer: &mut Vec<u8>) {
        if buffer.capacity() == 0 {
            *buffer = self.take();
        }
    }

    /// Move the content of `buffer` from `at` on to a buffer of its own.
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
        if self.reuse == Reuse::Poison {
            poison(&mut buffer);
        }
        let is_fit = buffer.capacity() <= MAX_BYTES;
        self.stock.give(buffer, is_fit, Vec::clear);
    }

    pub(crate) fn stats(&self) -> Stats {
        self.stock.stats()
    }
}

/// Overwrite `buffer` with bytes that no program takes for its own.
fn poison(buffer: &mut [u8]) {
    buffer.fill(0xdd);
}
