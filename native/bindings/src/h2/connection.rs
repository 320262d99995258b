//! One HTTP/2 connection, between a transport and the exchanges on its streams.
//!
//! [`wire::h2::Connection`] interprets the bytes and permits or refuses each call; here are the Python objects, the
//! back-pressure, the deadlines and the order of writes. All input is processed first, then its applications take their
//! first steps, and everything that completes meanwhile leaves in one write.
//!
//! Any call into Python can come back here, so no borrow of [`State`] is held across one: its parts are taken out
//! first.
//!
//! This module defines connections and streams. Events of a connection are in `events`, its input in `input`, calls
//! from exchanges in `stream` and `response`, the server's own responses in `refusal`, the output in `output`,
//! deadlines in `deadline`.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use wire::h2::{Connection as Wire, ErrorCode, StreamId};

use super::core::Core;
use super::queue::Queue;
use super::states::{Awaits, Ending, Presence};
use crate::asgi::exchange::Exchange;
use crate::asgi::peer::Peer;
use crate::asgi::write_capacity::WriteCapacity;
use crate::base::level::Level;
use crate::base::task::Start;
use crate::conn::carried::{Life, Sides};
use crate::conn::deadline::Deadline;
use crate::conn::reader::Reader;
use crate::streams::deadlines::StreamDeadlines;
use crate::streams::open::{Named, OpenStream, OpenStreams};
use crate::streams::pairs::Repeated;
use crate::streams::seconds::Seconds;
use crate::streams::starting::Pace;
use crate::streams::tunnel::{Channel, Said};

/// The state that changes while a connection lives.
pub(super) struct State {
    pub(super) wire: Wire<Py<PyTuple>>,
    pub(super) streams: OpenStreams<Stream>,
    /// The beginning of an incomplete frame.
    pub(super) pending: Vec<u8>,
    /// Output that is not written yet.
    pub(super) out: Vec<u8>,
}

/// Streams with work that is due.
#[derive(Default)]
pub(super) struct Due {
    /// Streams without an owner: they are given back to the client.
    pub(super) gone: RefCell<Vec<StreamId>>,
    /// Their last byte has been put into the output.
    pub(super) ended: RefCell<Vec<StreamId>>,
    /// Tunnels with unread data, which they get next.
    pub(super) to_serve: RefCell<Vec<StreamId>>,
}

/// The waits of a connection, with their deadlines.
pub(super) struct Waits {
    /// For the client's input.
    pub(super) input: Deadline,
    /// For the client to read the output.
    pub(super) reader: Reader,
    /// For any sign of life from the client.
    pub(super) ping: Deadline,
    /// The places of these among those of the loop.
    pub(super) places: Cell<Option<[usize; 3]>>,
    /// The awaited input of `input`.
    pub(super) awaits: Cell<Awaits>,
    /// No request has come yet.
    pub(super) first: Cell<bool>,
    /// A whole frame has come since `input` was looked at.
    pub(super) progressed: Cell<bool>,
    pub(super) presence: Cell<Presence>,
    /// Those that have given back some of the client's budget.
    pub(super) counted: Seconds,
}

/// The output.
#[derive(Default)]
pub(super) struct Outflow {
    /// The carrier has enough to write.
    pub(super) paused: Cell<bool>,
    /// Streams with waiting output.
    pub(super) unsent_streams: Cell<usize>,
    /// Bytes of bodies that the windows have let through after they had waited for them.
    pub(super) taken: Cell<usize>,
    /// Bytes written since others had their turn, and whether that is enough for now.
    pub(super) written: Cell<usize>,
    pub(super) rests: Cell<bool>,
}

/// One connection. Shared by the protocol object, its streams and the list of deadlines.
pub(crate) struct Connection {
    pub(crate) core: Rc<Core>,
    pub(crate) sides: Sides,
    pub(super) peer: Rc<Peer>,
    pub(super) state: RefCell<State>,
    pub(super) repeated: RefCell<Repeated>,
    pub(super) due: Due,
    pub(super) waits: Waits,
    pub(super) outflow: Outflow,
    pub(super) life: Cell<Life>,
    pub(super) ending: Cell<Ending>,
    /// The server stops.
    pub(super) stops: Cell<bool>,
    /// How applications start, decided by the loop's state when the connection was made.
    pub(super) start: Cell<Start>,
    /// Output waits for the end of the input that is being consumed.
    pub(super) consuming: Cell<bool>,
    pub(super) pace: Pace,
    /// A reference to itself, for later work.
    pub(super) own: OnceCell<Weak<Connection>>,
    /// The client's output has ended.
    pub(super) has_all: Cell<bool>,
    /// The status of the last request that was refused, if that was in this read.
    pub(super) refused: Cell<u16>,
}

/// The state of one request of a connection that `wire` does not have.
pub(super) struct Stream {
    pub(super) connection: Rc<Connection>,
    pub(super) id: StreamId,
    pub(super) queue: RefCell<Queue>,
    pub(super) capacity: WriteCapacity,
    /// The head as lines, if the log wants them.
    pub(super) lines: RefCell<Vec<u8>>,
    /// Pieces of the request's body that have come, and were not read yet.
    pub(super) pieces: Cell<usize>,
    /// The WebSocket on it, if it is a tunnel.
    pub(super) channel: OnceCell<Box<Channel>>,
    pub(super) deadlines: StreamDeadlines,
    /// Bytes of the body that were put into the output, and that had been when the time for more began.
    pub(super) sent: Cell<usize>,
    pub(super) sent_before: Cell<usize>,
}

impl Stream {
    pub(super) fn new(connection: Rc<Connection>, id: StreamId) -> Self {
        Self {
            connection,
            id,
            queue: RefCell::default(),
            capacity: WriteCapacity::default(),
            lines: RefCell::default(),
            pieces: Cell::new(0),
            channel: OnceCell::new(),
            deadlines: StreamDeadlines::default(),
            sent: Cell::new(0),
            sent_before: Cell::new(0),
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
    pub(crate) fn new(core: Rc<Core>, peer: Rc<Peer>) -> Self {
        let mut out = core.hub.buffers.take();
        let wire = Wire::new(core.own_settings, &mut out);
        let now = core.hub.deadlines.now();
        Self {
            core,
            sides: Sides::default(),
            peer,
            state: RefCell::new(State { wire, streams: OpenStreams::default(), pending: Vec::new(), out }),
            repeated: RefCell::default(),
            due: Due::default(),
            waits: Waits {
                input: Deadline::default(),
                reader: Reader::default(),
                ping: Deadline::default(),
                places: Cell::new(None),
                awaits: Cell::new(Awaits::Nothing),
                first: Cell::new(true),
                progressed: Cell::new(false),
                presence: Cell::new(Presence::Quiet),
                counted: Seconds::from(now),
            },
            outflow: Outflow::default(),
            life: Cell::new(Life::Open),
            ending: Cell::new(Ending::None),
            stops: Cell::new(false),
            start: Cell::new(Start::Later),
            consuming: Cell::new(false),
            pace: Pace::default(),
            own: OnceCell::new(),
            has_all: Cell::new(false),
            refused: Cell::new(0),
        }
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.life.get() == Life::Open
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.life.get() == Life::Closed
    }

    /// One line about this connection, with the client in front.
    pub(super) fn note(&self, py: Python<'_>, level: &Level, text: &str) -> PyResult<()> {
        self.peer.note(py, &self.core.names, level, text)
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

    /// All exchanges that the connection is not done with.
    pub(super) fn exchanges(&self) -> Vec<Rc<Exchange>> {
        self.state.borrow().streams.exchanges()
    }

    // The attributes of the protocol object.

    /// Bytes of bodies that wait for the windows; and how many have left since the connection began, after they had waited.
    pub(crate) fn held_bodies(&self) -> (usize, usize) {
        let held = self.state.borrow().streams.iter().map(|stream| stream.queue.borrow().held()).sum();
        (held, self.outflow.taken.get())
    }

    /// The peer's address.
    pub(crate) fn client(&self, py: Python<'_>) -> Py<PyAny> {
        self.peer.client.clone_ref(py)
    }

    /// The scope of the oldest request that is being answered.
    pub(crate) fn scope(&self, py: Python<'_>) -> Option<Py<PyDict>> {
        self.state.borrow().streams.scope(py)
    }

    // The garbage collector's side.

    /// Show the collector the objects that a cycle of references may go through.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.peer.app_state)?;
        self.sides.traverse(visit)
    }
}

impl State {
    /// Whether a stream is over on the wire. Once its response is complete, the rest of its input is not awaited.
    pub(super) fn is_over(&mut self, id: StreamId) -> bool {
        if self.wire.is_live(id)
            && let Some(OpenStream { stream, .. }) = self.streams.get(id)
            && stream.channel.get().is_some_and(|channel| channel.said.get() == Said::All)
            && !stream.has_more()
        {
            self.wire.reset(&mut self.out, id, ErrorCode::NoError);
        }
        !self.wire.is_live(id)
    }
}
