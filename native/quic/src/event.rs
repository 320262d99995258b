//! The events of a connection.

use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;

/// An event of a connection. Streams have the ids of RFC 9000 section 2.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The handshake is complete. Streams with early data may be opened before.
    Established,
    /// The peer has opened this stream, and has probably sent something on it: read it.
    Opened(u64),
    /// There is something to read on this stream: data, its end, or a reset.
    Readable(u64),
    /// A write to this stream was [blocked](crate::Written::Blocked), and is no longer.
    Writable(u64),
    /// The peer has acknowledged everything on this stream, with its end.
    Finished(u64),
    /// The peer reads no more of this stream (`STOP_SENDING`): reset it.
    Stopped {
        /// The stream.
        stream: u64,
        /// The peer's reason, a code of the application's protocol.
        code: u64,
    },
    /// The peer allows more streams of ours, after [`open`](crate::Connection::open) has had none.
    CanOpen,
    /// The peer has shown that another address is its own (RFC 9000 section 9).
    Moved(SocketAddr),
    /// The peer sends more packets that make no progress than it may: close the connection.
    Flooded,
    /// The connection is over. No event follows. Streams have no ends of their own then.
    Lost(Lost),
}

/// Why a connection is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The peer has closed it, with a code of the application's protocol.
    ClosedByPeer {
        /// The code.
        code: u64,
        /// The peer's words, which may be anything.
        reason: String,
    },
    /// The peer's transport has closed it (RFC 9000 section 20.1).
    PeerError {
        /// The code.
        code: u64,
        /// The peer's words, which may be anything.
        reason: String,
    },
    /// The peer has violated the protocol, or has failed the handshake.
    ProtocolError {
        /// The code that the peer was sent.
        code: u64,
        /// The violation.
        reason: String,
    },
    /// The peer has lost its state (stateless reset).
    Reset,
    /// No packet came for the time of `idle`.
    IdleTimeout,
    /// The handshake took longer than `handshake`.
    HandshakeTimeout,
    /// [`close`](crate::Connection::close) was called.
    ClosedHere,
}

impl Display for Lost {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClosedByPeer { code, reason } => {
                write!(formatter, "the client has closed it with code {code:#x}{}", Words(reason))
            }
            Self::PeerError { code, reason } => {
                write!(formatter, "the client reports error {code:#x}{}", Words(reason))
            }
            Self::ProtocolError { code, reason } => write!(formatter, "error {code:#x}{}", Words(reason)),
            Self::Reset => formatter.write_str("the client has lost its state"),
            Self::IdleTimeout => formatter.write_str("the client was silent for too long"),
            Self::HandshakeTimeout => formatter.write_str("the handshake took too long"),
            Self::ClosedHere => formatter.write_str("the server has closed it"),
        }
    }
}

/// Words of a peer, fit for a line of a log.
struct Words<'a>(&'a str);

impl Display for Words<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        formatter.write_str(": ")?;
        self.0.chars().try_for_each(|letter| match letter {
            _ if letter.is_control() => write!(formatter, "{}", letter.escape_default()),
            _ => write!(formatter, "{letter}"),
        })
    }
}

/// Whether both ends send on this stream.
#[must_use]
pub fn is_bidirectional(stream: u64) -> bool {
    stream & 2 == 0
}

/// Whether the server has opened this stream.
#[must_use]
pub fn is_ours(stream: u64) -> bool {
    stream & 1 == 1
}
