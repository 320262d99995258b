//! The events of a connection.

use std::ops::Range;

use crate::ws::failure::Failure;
use crate::ws::frame::Opcode;

/// The result of [`Connection::poll`](crate::ws::Connection::poll).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// No further event before more bytes arrive.
    NeedMore,
    /// A message.
    Message {
        /// Its kind.
        kind: Kind,
        /// Its payload.
        payload: Payload,
    },
    /// A piece of a large binary message, as [`Connection::in_pieces`](crate::ws::Connection::in_pieces) asks for; all of
    /// its pieces follow each other, without another event but `NeedMore` between them.
    Piece {
        /// Where in this poll's input it lies.
        payload: Range<usize>,
        /// Bytes of the message that are still to come; 0 if this was the last.
        left: u64,
    },
    /// A ping, with the range of this poll's input that the pong is to carry.
    Ping(Range<usize>),
    /// A pong, and its payload.
    Pong(Range<usize>),
    /// The client's close frame. Nothing more is read. If the server has not said `close`, answer with the same code.
    Close {
        /// The code; [`NO_CODE`](crate::ws::NO_CODE) if it carries none.
        code: u16,
        /// The range of the reason in this poll's input, in UTF-8.
        reason: Range<usize>,
    },
    /// The client broke the protocol or a limit. Nothing more is read. Close with its code and reason.
    Failed(Failure),
    /// Both sides have finished: close the transport once everything is written.
    Closed,
}

/// The event, and how many bytes of the input are dealt with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Drop this many bytes from the front of the input.
    pub consumed: usize,
    /// Their meaning.
    pub event: Event,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UTF-8.
    Text,
    /// Any bytes.
    Binary,
}

impl Kind {
    pub(crate) const fn opcode(self) -> Opcode {
        match self {
            Self::Text => Opcode::Text,
            Self::Binary => Opcode::Binary,
        }
    }
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// It lies in the input of the poll, unmasked.
    Input(Range<usize>),
    /// It has been put together. Give the buffer back with [`StreamPool::recycle`](crate::ws::StreamPool::recycle) when
    /// it is no longer needed.
    Assembled(Vec<u8>),
}

impl Payload {
    /// The bytes; `input` is that of the poll. Those of a text are UTF-8.
    #[inline]
    pub fn of<'a>(&'a self, input: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Input(range) => input.get(range.clone()).unwrap_or_default(),
            Self::Assembled(bytes) => bytes,
        }
    }
}
