//! The results of [`Connection::receive`](crate::h3::Connection::receive) and its like.

use std::fmt;
use std::ops::Range;

use crate::error::Error;
use crate::h3::error::ErrorCode;
use crate::h3::streams::StreamId;
use crate::qpack;

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
    /// All input is consumed; no further event before more arrives on this stream.
    NeedMore,
    /// A request, which is in the scratch.
    Request {
        /// Its stream.
        stream: StreamId,
        /// It is complete; else `Data` follows.
        end: bool,
    },
    /// A request is to be answered with the status of `error`, unless its response has begun: then with a reset. No
    /// more of it comes: stop reading the stream with `H3_NO_ERROR`. If there was no `Request` for the stream, the scratch holds
    /// the known part of the request.
    Refused {
        /// Its stream.
        stream: StreamId,
        /// The mistake.
        error: Error,
    },
    /// A part of a request body, as a range of this call's input; it may be empty. Say when it has been read, with
    /// [`consume`](crate::h3::Connection::consume).
    Data {
        /// Its stream.
        stream: StreamId,
        /// Where the bytes lie.
        data: Range<usize>,
        /// Whether the body is complete with it.
        end: bool,
    },
    /// The stream is over: nothing comes of it, and nothing can be sent. If the server had to reset it (`ours`), reset the
    /// sending half of the stream of QUIC, and stop the receiving one, with this code. If the client did, do so with
    /// `H3_REQUEST_CANCELLED`.
    Reset {
        /// Which.
        stream: StreamId,
        /// The reason: an [`ErrorCode`] as a number, or any number of the client's.
        code: u64,
        /// Whether the server had to, because of the client's input.
        ours: bool,
    },
    /// The stream cannot be read on before the client's QPACK encoder stream has brought more. Keep the rest of the input,
    /// and whether the stream ends with it, and read no more of the stream; give it again after `Unblocked`.
    Blocked {
        /// Which.
        stream: StreamId,
    },
    /// The stream can be read on: call [`receive`](crate::h3::Connection::receive) with the kept input, even if that is empty.
    Unblocked {
        /// Which.
        stream: StreamId,
    },
    /// Stop reading this unidirectional stream, whose type is unknown, with this code (RFC 9114 section 6.2).
    Stop {
        /// `H3_STREAM_CREATION_ERROR`.
        code: ErrorCode,
    },
    /// The client is about to leave: it takes no pushes, and sends no more requests soon.
    GoAway,
    /// The client has broken the protocol: all streams are over. Close the connection of QUIC with the code and the reason.
    Failed(Failure),
    /// Nothing will be read from this connection again.
    Closed,
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Failure {
    /// The code for the client.
    pub code: ErrorCode,
    /// The reason, for the client and the log: never contains bytes of the peer's.
    pub reason: &'static str,
}

impl Failure {
    pub(crate) const fn new(code: ErrorCode, reason: &'static str) -> Self {
        Self { code, reason }
    }

    /// More than the budget.
    pub(crate) const CALM: Self = Self::new(ErrorCode::ExcessiveLoad, "too much work for nothing");
    /// A frame ends with the stream, or its payload has another length than its fields.
    pub(crate) const FRAME: Self = Self::new(ErrorCode::Frame, "malformed frame");
    /// A frame where it must not be.
    pub(crate) const UNEXPECTED: Self = Self::new(ErrorCode::FrameUnexpected, "frame out of place");
    /// One of the client's three streams is over.
    pub(crate) const CRITICAL: Self = Self::new(ErrorCode::ClosedCriticalStream, "critical stream closed");
}

impl From<qpack::Error> for Failure {
    fn from(error: qpack::Error) -> Self {
        let code = match error {
            qpack::Error::Section(_) => ErrorCode::Decompression,
            qpack::Error::EncoderStream(_) => ErrorCode::EncoderStream,
            qpack::Error::DecoderStream(_) => ErrorCode::DecoderStream,
        };
        Self::new(code, error.text())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

impl std::error::Error for Failure {}
