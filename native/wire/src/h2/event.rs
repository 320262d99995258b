//! The results of [`Connection::poll`](crate::h2::Connection::poll).

use std::fmt;
use std::ops::Range;

use crate::error::Error;
use crate::h2::frame::ErrorCode;
use crate::h2::streams::StreamId;

/// The event, and how many bytes of the input are dealt with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Drop this many bytes from the front of the input.
    pub consumed: usize,
    /// Their meaning.
    pub event: Event,
}

/// Something that the caller has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// No further event before more bytes arrive.
    NeedMore,
    /// A request, which is in the scratch. From now on the stream is the caller's, until it is
    /// [released](crate::h2::Connection::release).
    Request {
        /// Its stream.
        stream: StreamId,
        /// It is complete; else `Data` follows.
        end: bool,
    },
    /// A request is to be answered with the status of `error`, unless its response has begun: then with a reset. No
    /// more of it comes. If there was no `Request` for the stream, it is the caller's from now on as well, and the
    /// scratch holds the known part of the request.
    Refused {
        /// Its stream.
        stream: StreamId,
        /// The mistake.
        error: Error,
    },
    /// A part of a request body, as a range of this poll's input; it may be empty. Give it back to the window with
    /// [`consume`](crate::h2::Connection::consume) when it has been read.
    Data {
        /// Its stream.
        stream: StreamId,
        /// Where the bytes lie.
        data: Range<usize>,
        /// Whether the body is complete with it.
        end: bool,
    },
    /// The stream is over: nothing comes of it, and nothing can be sent.
    Reset {
        /// Which.
        stream: StreamId,
        /// The reason: an [`ErrorCode`] as a number, or any number of the client's.
        code: u32,
        /// Whether the server had to, because of the client's input.
        ours: bool,
    },
    /// The answer to a ping.
    Pong([u8; 8]),
    /// The client is about to leave.
    GoAway {
        /// Why: an [`ErrorCode`] as a number, or anything.
        code: u32,
    },
    /// The client has broken the protocol: all streams are over. The GOAWAY was appended; write it, and close.
    Failed(Failure),
    /// Nothing will be read from this connection again.
    Closed,
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Failure {
    /// The code in the GOAWAY.
    pub code: ErrorCode,
    /// The reason, for the log: never contains bytes of the peer's.
    pub reason: &'static str,
}

impl Failure {
    pub(crate) const fn new(code: ErrorCode, reason: &'static str) -> Self {
        Self { code, reason }
    }

    pub(crate) const fn protocol(reason: &'static str) -> Self {
        Self::new(ErrorCode::Protocol, reason)
    }

    /// More than the budget.
    pub(crate) const CALM: Self = Self::new(ErrorCode::EnhanceYourCalm, "too much work for nothing");
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

impl std::error::Error for Failure {}
