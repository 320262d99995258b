//! The output of a stream that QUIC has, and how much of it the client has acknowledged: a client may take minutes to open its
//! windows again, and acknowledges meanwhile.
//!
//! QUIC drops pieces in their order once they are acknowledged. Each holds a reference, so the number of references is that of
//! the pieces on their way, and everything in front of them was acknowledged.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use quic::Bytes;

/// What a client had acknowledged when its time to take more of a response began.
#[derive(Clone, Copy)]
pub(super) struct Taking {
    pub(super) since: Instant,
    /// Bytes of the response.
    pub(super) of_stream: usize,
    /// Bytes of all, when that time was last extended.
    pub(super) of_connection: u64,
}

/// A piece of the output, for as long as QUIC holds it.
struct Piece {
    bytes: Bytes,
    _on_its_way: Arc<()>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// What QUIC has taken of one stream.
#[derive(Default)]
pub(super) struct Sent {
    bytes: usize,
    acknowledged: usize,
    /// Where each piece ends that was not seen to be acknowledged.
    ends: VecDeque<usize>,
    on_their_way: Arc<()>,
}

impl Sent {
    /// Whether it has taken nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// QUIC has taken so much of a response that was handed on without copies.
    pub(super) fn skip(&mut self, taken: usize) {
        self.bytes += taken;
    }

    /// Make QUIC's copies of `pieces`.
    pub(super) fn follow(&self, pieces: &[Bytes], copies: &mut Vec<Bytes>) {
        copies.extend(
            pieces
                .iter()
                .map(|bytes| Bytes::from_owner(Piece { bytes: bytes.clone(), _on_its_way: self.on_their_way.clone() })),
        );
    }

    /// QUIC has taken the part of `pieces` that is missing in `copies`: keep the rest of them.
    pub(super) fn note(&mut self, pieces: &mut [Bytes], copies: &mut Vec<Bytes>) {
        for (piece, copy) in pieces.iter_mut().zip(copies.drain(..)) {
            let taken = piece.split_to(piece.len() - copy.len()).len();
            if taken > 0 {
                self.bytes += taken;
                self.ends.push_back(self.bytes);
            }
        }
        self.look();
    }

    /// Bytes of the pieces that were acknowledged.
    pub(super) fn acknowledged(&mut self) -> usize {
        self.look();
        self.acknowledged
    }

    /// Whether some are on their way, or may be: those that were skipped are acknowledged with the next one.
    pub(super) fn is_on_its_way(&self) -> bool {
        Arc::strong_count(&self.on_their_way) > 1 || self.bytes > 0 && self.acknowledged == 0
    }

    /// See which pieces QUIC has dropped.
    fn look(&mut self) {
        let on_their_way = Arc::strong_count(&self.on_their_way) - 1;
        while self.ends.len() > on_their_way
            && let Some(end) = self.ends.pop_front()
        {
            self.acknowledged = end;
        }
    }
}
