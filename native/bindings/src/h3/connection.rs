//! One HTTP/3 connection, between a QUIC connection and the exchanges on its streams.
//!
//! [`wire::h3::Connection`] interprets the bytes of streams and permits or refuses each call; QUIC carries the streams,
//! keeps their order and says how much may be sent. Here are the Python objects, the back-pressure and the deadlines.
//! All input of a turn is processed first, then its applications take their first steps, and everything that completes
//! meanwhile leaves in the same datagrams.
//!
//! ```text
//! QUIC stream ── read ──▶ wire ── Request, Data ──▶ Exchange
//!      ▲                                              │
//!      └── write, when it is its turn ◀── Queue ◀─────┘
//! ```
//!
//! Any call into Python can come back here, so no borrow of [`State`] is held across one: its parts are taken out
//! first.
//!
//! This module defines connections and streams. Events of a connection are in `events`, its input in `input`, calls
//! from exchanges in `stream` and `response`, the server's own responses in `refusal`, the output in `output`,
//! deadlines in `deadline`.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::Instant;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use quic::Bytes;
use wire::h3::{Connection as Wire, StreamId, UniStream};

use super::core::Core;
use super::queue::Queue;
use super::sent::{Sent, Taking};
use super::states::{Awaits, Ending, Reading};
use crate::asgi::exchange::Exchange;
use crate::asgi::peer::Peer;
use crate::asgi::write_capacity::WriteCapacity;
use crate::base::level::Level;
use crate::base::task::Start;
use crate::conn::carried::{Life, Sides};
use crate::conn::deadline::Deadline;
use crate::streams::deadlines::StreamDeadlines;
use crate::streams::open::{Named, OpenStream, OpenStreams};
use crate::streams::pairs::Repeated;
use crate::streams::seconds::Seconds;
use crate::streams::starting::Pace;
use crate::streams::tunnel::Channel;
use crate::tcp::slot::ConnectionSlot;
use crate::udp::connection::Connection as Quic;

/// The state that changes while a connection lives.
pub(super) struct State {
    pub(super) wire: Wire<Py<PyTuple>>,
    pub(super) streams: OpenStreams<Stream>,
    /// The same by their numbers in QUIC, which rise. Mostly the first one ends first.
    numbers: VecDeque<(u64, StreamId)>,
    /// The client's unidirectional streams.
    pub(super) unis: Vec<(u64, UniStream)>,
    /// The server's own streams, by the places of their channels.
    pub(super) own: [Option<u64>; 3],
}

/// Streams with work that is due.
#[derive(Default)]
pub(super) struct Due {
    /// Streams without an owner: they are given back to the client.
    pub(super) gone: RefCell<Vec<StreamId>>,
    /// QUIC has all of their output.
    pub(super) ended: RefCell<Vec<StreamId>>,
    /// Tunnels with unread data, which they get next.
    pub(super) to_serve: RefCell<Vec<StreamId>>,
    /// Streams that can be read on.
    pub(super) to_read: RefCell<Vec<StreamId>>,
}

/// The waits of a connection, with their deadlines.
pub(super) struct Waits {
    /// For the client's input.
    pub(super) input: Deadline,
    /// Its place among those of the loop.
    pub(super) place: Cell<Option<usize>>,
    /// The awaited input of `input`.
    pub(super) awaits: Cell<Awaits>,
    /// Bytes that were acknowledged when the client got more time to read its last response, and when that was, if it did.
    pub(super) extended: Cell<Option<(u64, Instant)>>,
    /// No request has come yet.
    pub(super) first: Cell<bool>,
    /// Those that have given back some of the client's budget.
    pub(super) counted: Seconds,
}

/// The output.
#[derive(Default)]
pub(super) struct Outflow {
    /// Bytes of responses that QUIC has taken.
    pub(super) taken: Cell<usize>,
    /// The streams of responses whose end the client has not acknowledged.
    pub(super) unacknowledged: RefCell<VecDeque<u64>>,
}

/// One connection. Shared by the protocol object, its streams, QUIC and the list of deadlines.
pub(crate) struct Connection {
    pub(crate) core: Rc<Core>,
    pub(crate) sides: Sides,
    pub(super) quic: Rc<Quic>,
    /// A client may come to have another address.
    pub(super) peer: RefCell<Rc<Peer>>,
    pub(super) state: RefCell<State>,
    pub(super) repeated: RefCell<Repeated>,
    pub(super) due: Due,
    pub(super) waits: Waits,
    pub(super) outflow: Outflow,
    pub(super) pace: Pace,
    pub(super) life: Cell<Life>,
    pub(super) ending: Cell<Ending>,
    /// The server stops.
    pub(super) stops: Cell<bool>,
    /// How applications start, decided by the loop's state when the connection was made.
    pub(super) start: Cell<Start>,
    /// Output waits for the end of the input that is being consumed.
    pub(super) consuming: Cell<bool>,
    /// A later turn serves the streams that are due.
    pub(super) serve_scheduled: Cell<bool>,
    /// Its record at the connection limit.
    pub(super) slot: Cell<Option<ConnectionSlot>>,
    /// A reference to itself, for later work.
    pub(super) own: OnceCell<Weak<Connection>>,
    /// The status of the last request that was refused, if that was in this turn.
    pub(super) refused: Cell<u16>,
    /// Room for pieces on their way, and for QUIC's copies of them, empty between calls.
    pub(super) chunks: Cell<Vec<Bytes>>,
    pub(super) copies: Cell<Vec<Bytes>>,
}

/// The state of one request of a connection that `wire` does not have.
pub(super) struct Stream {
    pub(super) connection: Rc<Connection>,
    pub(super) id: StreamId,
    /// Of the connection when the request came.
    pub(super) peer: Rc<Peer>,
    pub(super) queue: RefCell<Queue>,
    pub(super) capacity: WriteCapacity,
    /// The head as lines, if the log wants them.
    pub(super) lines: RefCell<Vec<u8>>,
    /// Bytes and pieces of the request's body that have come, and were not consumed yet.
    pub(super) unconsumed: Cell<(usize, usize)>,
    pub(super) reading: Cell<Reading>,
    /// Input that waits for entries of the table, and whether the stream ends with it.
    pub(super) blocked_input: RefCell<Option<(Vec<u8>, bool)>>,
    /// A whole request has come, or nothing of it is awaited.
    pub(super) has_begun: Cell<bool>,
    /// QUIC takes nothing more at present.
    pub(super) is_blocked: Cell<bool>,
    /// The WebSocket on it, if it is a tunnel.
    pub(super) channel: OnceCell<Box<Channel>>,
    pub(super) deadlines: StreamDeadlines,
    /// What QUIC has taken.
    pub(super) sent: RefCell<Sent>,
    /// The client's time to take more.
    pub(super) taking: Cell<Option<Taking>>,
}

impl Stream {
    pub(super) fn new(connection: Rc<Connection>, id: StreamId) -> Self {
        Self {
            peer: connection.peer(),
            connection,
            id,
            queue: RefCell::default(),
            capacity: WriteCapacity::default(),
            lines: RefCell::default(),
            unconsumed: Cell::default(),
            reading: Cell::new(Reading::Open),
            blocked_input: RefCell::default(),
            has_begun: Cell::new(false),
            is_blocked: Cell::new(false),
            channel: OnceCell::new(),
            deadlines: StreamDeadlines::default(),
            sent: RefCell::default(),
            taking: Cell::default(),
        }
    }
}

impl Named for Stream {
    type Id = StreamId;

    #[inline]
    fn id(&self) -> StreamId {
        self.id
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.connection.due.gone.borrow_mut().push(self.id);
    }
}

impl Connection {
    pub(crate) fn new(core: Rc<Core>, quic: Rc<Quic>, peer: Rc<Peer>, slot: Option<ConnectionSlot>) -> Self {
        let wire = Wire::new(core.own_settings);
        let now = core.hub.deadlines.now();
        Self {
            core,
            sides: Sides::default(),
            quic,
            peer: RefCell::new(peer),
            state: RefCell::new(State {
                wire,
                streams: OpenStreams::default(),
                numbers: VecDeque::new(),
                unis: Vec::new(),
                own: [None; 3],
            }),
            repeated: RefCell::default(),
            due: Due::default(),
            waits: Waits {
                input: Deadline::default(),
                place: Cell::new(None),
                awaits: Cell::new(Awaits::Nothing),
                extended: Cell::new(None),
                first: Cell::new(true),
                counted: Seconds::from(now),
            },
            outflow: Outflow::default(),
            pace: Pace::default(),
            life: Cell::new(Life::Open),
            ending: Cell::new(Ending::None),
            stops: Cell::new(false),
            start: Cell::new(Start::Later),
            consuming: Cell::new(false),
            serve_scheduled: Cell::new(false),
            slot: Cell::new(slot),
            own: OnceCell::new(),
            refused: Cell::new(0),
            chunks: Cell::default(),
            copies: Cell::default(),
        }
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.life.get() == Life::Open
    }

    pub(super) fn peer(&self) -> Rc<Peer> {
        self.peer.borrow().clone()
    }

    /// One line about this connection, with the client in front.
    pub(super) fn note(&self, py: Python<'_>, level: &Level, text: &str) -> PyResult<()> {
        self.peer().note(py, &self.core.names, level, text)
    }

    // Streams, by their places.

    /// The exchange of a stream, until the connection is done with it.
    #[inline]
    pub(super) fn exchange(&self, id: StreamId) -> Option<Rc<Exchange>> {
        self.state.borrow().streams.exchange(id)
    }

    /// The stream, if it is not over.
    #[inline]
    pub(super) fn stream(&self, id: StreamId) -> Option<Rc<Stream>> {
        self.state.borrow().streams.stream(id)
    }

    /// The stream with this number in QUIC, if it is not over.
    #[inline]
    pub(super) fn numbered(&self, number: u64) -> Option<Rc<Stream>> {
        let state = self.state.borrow();
        let place = state.numbers.binary_search_by_key(&number, |&(number, _)| number).ok()?;
        let (_, id) = *state.numbers.get(place)?;
        state.streams.stream(id)
    }

    /// All streams that are not over.
    pub(super) fn streams(&self) -> Vec<Rc<Stream>> {
        self.state.borrow().streams.iter().cloned().collect()
    }

    /// All exchanges that the connection is not done with.
    pub(super) fn exchanges(&self) -> Vec<Rc<Exchange>> {
        self.state.borrow().streams.exchanges()
    }

    // The attributes of the protocol object.

    /// Bytes of responses that wait for the client; and how many QUIC has taken since the connection began.
    pub(crate) fn held_bodies(&self) -> (usize, usize) {
        let held = self.state.borrow().streams.iter().map(|stream| stream.queue.borrow().len()).sum();
        (held, self.outflow.taken.get())
    }

    /// The peer's address.
    pub(crate) fn client(&self, py: Python<'_>) -> Py<PyAny> {
        self.peer().client.clone_ref(py)
    }

    /// The scope of the oldest request that is being answered.
    pub(crate) fn scope(&self, py: Python<'_>) -> Option<Py<PyDict>> {
        self.state.borrow().streams.scope(py)
    }

    // The garbage collector's side.

    /// Show the collector the objects that a cycle of references may go through.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Ok(peer) = self.peer.try_borrow() {
            visit.call(&peer.app_state)?;
        }
        self.sides.traverse(visit)
    }
}

impl State {
    /// Have a stream found by its place and by its number.
    #[inline]
    pub(super) fn keep(&mut self, open: OpenStream<Stream>) {
        let id = open.stream.id;
        self.streams.keep(open);
        let behind = self.numbers.partition_point(|&(number, _)| number < id.number());
        self.numbers.insert(behind, (id.number(), id));
    }

    /// Remove and return the record of a stream that is over.
    #[inline]
    pub(super) fn take(&mut self, id: StreamId) -> Option<OpenStream<Stream>> {
        let open = self.streams.take(id);
        if open.is_some()
            && let Ok(place) = self.numbers.binary_search_by_key(&id.number(), |&(number, _)| number)
        {
            self.numbers.remove(place);
        }
        open
    }
}
