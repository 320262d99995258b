//! The output of a stream that QUIC has not taken: heads, frames of the body and its pieces, in order.

use std::cell::RefCell;
use std::collections::VecDeque;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use quic::Bytes;

use crate::base::queued_bytes::QueuedBytes;

/// Shorter pieces are copied behind the head of their frame: to refer to them costs more, by 10 % of a request with 1 KiB.
const COPIED: usize = 4096;

/// Bytes that a short response takes with its head.
const SHORT: usize = 1536;

/// Rooms that wait for their next use, in one thread.
const SPARE: usize = 512;

thread_local! {
    static SPARES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Output that QUIC holds until the client has acknowledged it. Finding hundreds of rooms of this size at once would keep the
/// allocator busy for a tenth of the time.
struct Room(Vec<u8>);

impl Room {
    fn take() -> Vec<u8> {
        let spare = SPARES.try_with(|spares| spares.borrow_mut().pop()).ok().flatten();
        spare.unwrap_or_else(|| Vec::with_capacity(SHORT))
    }
}

impl AsRef<[u8]> for Room {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut room = std::mem::take(&mut self.0);
        if room.capacity() != SHORT {
            return;
        }
        room.clear();
        // The thread may be about to end.
        let _ = SPARES.try_with(|spares| {
            let mut spares = spares.borrow_mut();
            if spares.len() < SPARE {
                spares.push(room);
            }
        });
    }
}

/// `room` for QUIC. Only the first of a stream is handed on as a whole: of a response by the byte, or many small messages, each
/// byte would hold a room of its own until it is acknowledged.
fn fit(room: Vec<u8>, is_first: bool) -> Bytes {
    let room = Room(room);
    if is_first || room.0.len() >= SHORT / 4 { Bytes::from_owner(room) } else { Bytes::copy_from_slice(&room.0) }
}

/// Output that waits.
#[derive(Default)]
pub(super) struct Queue {
    pieces: VecDeque<Bytes>,
    /// What `wire` appends to, behind the pieces.
    tail: Vec<u8>,
    /// Bytes of the pieces.
    length: usize,
    /// The memory of all.
    held: QueuedBytes,
    /// Some of it was handed on.
    has_begun: bool,
}

impl Queue {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.length + self.tail.len()
    }

    /// Append by this function.
    #[inline]
    pub(super) fn put<R>(&mut self, append: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let before = self.tail.len();
        if self.tail.capacity() == 0 {
            self.tail = Room::take();
        }
        let result = append(&mut self.tail);
        self.held.add(self.tail.len() - before);
        result
    }

    /// Append a piece of a body.
    #[inline]
    pub(super) fn push(&mut self, piece: &Bound<'_, PyBytes>) {
        let bytes = piece.as_bytes();
        self.held.add(bytes.len());
        if bytes.len() <= COPIED {
            self.tail.extend_from_slice(bytes);
            return;
        }
        self.seal();
        self.length += bytes.len();
        self.pieces.push_back(Bytes::from_owner(PyBackedBytes::from(piece.clone())));
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            self.length += self.tail.len();
            let piece = self.cut();
            self.pieces.push_back(piece);
        }
    }

    /// The tail as a piece.
    fn cut(&mut self) -> Bytes {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        fit(std::mem::take(&mut self.tail), is_first)
    }

    /// Move up to `most` bytes from the front to `taken`.
    #[inline]
    pub(super) fn take(&mut self, most: usize, taken: &mut Vec<Bytes>) -> usize {
        if self.pieces.is_empty() && (1..=most).contains(&self.tail.len()) {
            let piece = self.cut();
            let length = piece.len();
            taken.push(piece);
            self.held.remove(length);
            return length;
        }
        self.seal();
        let mut left = most;
        while left > 0
            && let Some(piece) = self.pieces.front_mut()
        {
            let part = if piece.len() <= left { self.pieces.pop_front() } else { Some(piece.split_to(left)) };
            let Some(part) = part else { break };
            left -= part.len();
            self.length -= part.len();
            taken.push(part);
        }
        self.held.remove(most - left);
        most - left
    }

    /// Put back the rest of that.
    pub(super) fn give_back(&mut self, taken: &mut Vec<Bytes>) {
        for piece in taken.drain(..).rev().filter(|piece| !piece.is_empty()) {
            self.length += piece.len();
            self.held.add(piece.len());
            self.pieces.push_front(piece);
        }
    }
}
