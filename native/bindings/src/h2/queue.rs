//! The part of a body that an application has given, and the client has not taken.

use std::collections::VecDeque;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::base::queued_bytes::QueuedBytes;

/// Pieces of a body, as they were given; mostly there is one.
#[derive(Default)]
pub(super) struct Queue {
    first: Option<Py<PyBytes>>,
    /// So much of the first has been taken.
    offset: usize,
    others: VecDeque<Py<PyBytes>>,
    /// Bytes of all.
    length: usize,
    /// The memory of the pieces: each occupies all of it until its end.
    held: QueuedBytes,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Bytes that are kept in memory for it.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    #[inline]
    pub(super) fn push(&mut self, piece: &Bound<'_, PyBytes>) {
        let length = piece.as_bytes().len();
        self.length += length;
        self.held.add(length);
        if self.first.is_none() {
            self.first = Some(piece.clone().unbind());
        } else {
            self.others.push_back(piece.clone().unbind());
        }
    }

    /// Move the first `length` bytes to the end of `out`.
    #[inline]
    pub(super) fn take(&mut self, py: Python<'_>, length: usize, out: &mut Vec<u8>) {
        let mut left = length.min(self.len());
        self.length -= left;
        while left > 0
            && let Some(piece) = &self.first
        {
            let rest = piece.as_bytes(py).get(self.offset..).unwrap_or_default();
            let part = rest.get(..left).unwrap_or(rest);
            out.extend_from_slice(part);
            left -= part.len();
            self.offset += part.len();
            if part.len() == rest.len() {
                self.held.remove(piece.as_bytes(py).len());
                self.first = self.others.pop_front();
                self.offset = 0;
            }
        }
    }
}
