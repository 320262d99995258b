//! The states of a WebSocket. States that exclude each other are one enum, with their data inside.

use std::time::Instant;

use pyo3::prelude::*;
use wire::h1::request::Head;
use wire::ws::{Answer, Connection as Wire, Failure};

/// The life of a WebSocket; the diagram is that of `uvicorn/protocols/websockets/session.py`.
pub(super) enum State {
    /// The handshake is being read, or its answer is up to the application.
    Connecting(Connecting),
    Accepted(Box<Wire>),
    /// The application answers with a response of its own: a `DenialResponse`.
    Denying(Py<PyAny>),
    /// The server has ended its side. If that was a close frame, the client's is looked for.
    Closing(Option<Box<Wire>>),
    Closed,
}

pub(super) enum Connecting {
    Head(Box<Head>),
    Asked(Box<Answer>),
}

/// The same without the data; in the order in which they follow each other, and with Python's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Connecting,
    Accepted,
    Denying,
    Closing,
    Closed,
}

impl State {
    #[inline]
    pub(super) fn stage(&self) -> Stage {
        match self {
            Self::Connecting(_) => Stage::Connecting,
            Self::Accepted(_) => Stage::Accepted,
            Self::Denying(_) => Stage::Denying,
            Self::Closing(_) => Stage::Closing,
            Self::Closed => Stage::Closed,
        }
    }
}

/// How the application ended it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended {
    Close,
    Response,
}

impl Ended {
    /// Why a further message is unexpected, for the exception.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Close => "after sending 'websocket.close'",
            Self::Response => "after response already completed",
        }
    }
}

/// The end of the client's input, which takes effect after the messages in front of it.
pub(super) enum PeerEnd {
    /// Its close frame.
    Close { code: u16, reason: String },
    /// It has broken the protocol or a limit.
    Failed(Failure),
    /// Nothing more comes.
    Left,
}

/// How far the pings have come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ping {
    /// Of the one whose pong is awaited.
    pub(super) pending: Option<[u8; 4]>,
    pub(super) sent: Option<Instant>,
    /// Its pong has a deadline; otherwise the deadline is that of the next ping.
    pub(super) is_timed: bool,
    /// Bytes that the client had to take behind it, or when its time began again; `None` once it has taken some since.
    pub(super) unsent: Option<usize>,
    /// By the clock of the loop.
    pub(super) sent_at: f64,
    /// Seconds the last answered ping took.
    pub(super) round_trip: f64,
}
