//! Output that waits to leave a connection, and the marks at which writers pause and resume.

use std::collections::VecDeque;
use std::io::IoSlice;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::base::objects::slice;
use crate::base::queued_bytes::QueuedBytes;

/// Bytes of the application's that are not copied to wait.
const LARGE: usize = 16 * 1024;
/// Pieces that leave at once.
const PIECES: usize = 16;

enum Piece {
    Own(Vec<u8>),
    /// Immutable, so it may wait where it is.
    Object(Py<PyBytes>),
}

impl Piece {
    fn bytes<'a>(&'a self, py: Python<'a>) -> &'a [u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Object(bytes) => bytes.as_bytes(py),
        }
    }
}

/// Bytes in the order in which they leave.
pub(crate) struct Output {
    pieces: VecDeque<Piece>,
    /// How much of the first piece is sent.
    sent: usize,
    length: usize,
    /// The memory of the pieces: a large one occupies all of it until its end.
    held: QueuedBytes,
    /// Bytes that have left after they had waited, since the connection began.
    taken: usize,
    pub(crate) high: usize,
    pub(crate) low: usize,
    /// The handler was asked to pause.
    pub(crate) paused: bool,
}

impl Default for Output {
    fn default() -> Self {
        // asyncio's marks.
        Self {
            pieces: VecDeque::new(),
            sent: 0,
            length: 0,
            held: QueuedBytes::default(),
            taken: 0,
            high: 64 * 1024,
            low: 16 * 1024,
            paused: false,
        }
    }
}

impl Output {
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Bytes that are kept in memory for it.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Keep a copy of `data`.
    pub(crate) fn push(&mut self, data: &[u8]) {
        self.length += data.len();
        self.held.add(data.len());
        match self.pieces.back_mut() {
            Some(Piece::Own(last)) if last.len() + data.len() <= LARGE => last.extend_from_slice(data),
            _ => self.pieces.push_back(Piece::Own(data.to_vec())),
        }
    }

    /// Keep `data` from `from` on, itself if it is large.
    pub(crate) fn push_object(&mut self, py: Python<'_>, data: &Py<PyBytes>, from: usize) {
        let rest = data.as_bytes(py).get(from..).unwrap_or_default();
        if rest.len() < LARGE || !self.pieces.is_empty() && from > 0 {
            return self.push(rest);
        }
        if self.pieces.is_empty() {
            self.sent = from;
        }
        self.length += rest.len();
        self.held.add(data.as_bytes(py).len());
        self.pieces.push_back(Piece::Object(data.clone_ref(py)));
    }

    /// Show `send` the first bytes. Returns how many of them it took. It may not run Python code.
    pub(crate) fn give<R>(&self, py: Python<'_>, send: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
        let mut slices = [IoSlice::new(&[]); PIECES];
        let mut skip = self.sent;
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(piece.bytes(py).get(std::mem::take(&mut skip)..).unwrap_or_default());
            count += 1;
        }
        send(slices.get(..count).unwrap_or_default())
    }

    /// The first `limit` bytes, or the first piece if that is less. Of a large object it is a view.
    pub(crate) fn first<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(piece) = self.pieces.front() else { return Ok(None) };
        let bytes = piece.bytes(py).get(self.sent..).unwrap_or_default();
        let length = bytes.len().min(limit);
        if let Piece::Object(object) = piece
            && length == limit
        {
            let part = slice(py, self.sent, self.sent + length)?;
            return PyMemoryView::from(object.bind(py))?.get_item(part).map(Some);
        }
        Ok(Some(PyBytes::new(py, bytes.get(..length).unwrap_or_default()).into_any()))
    }

    /// So much of it is sent. Returns what need not be kept any more: dropped by the caller, who then holds no borrow.
    pub(crate) fn advance(&mut self, py: Python<'_>, sent: usize) -> Vec<Py<PyBytes>> {
        let mut done = Vec::new();
        self.length -= sent;
        self.taken = self.taken.wrapping_add(sent);
        self.sent += sent;
        while let Some(first) = self.pieces.front() {
            let length = first.bytes(py).len();
            if self.sent < length {
                return done;
            }
            self.sent -= length;
            self.held.remove(length);
            if let Some(Piece::Object(bytes)) = self.pieces.pop_front() {
                done.push(bytes);
            }
        }
        // An idle connection keeps no room for it.
        self.pieces = VecDeque::new();
        done
    }

    /// Drop everything; the caller drops the returned pieces.
    pub(crate) fn clear(&mut self) -> impl Sized + use<> {
        (self.sent, self.length) = (0, 0);
        self.held.clear();
        std::mem::take(&mut self.pieces)
    }
}
