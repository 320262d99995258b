//! One HTTP/1.1 connection, between a transport and the exchanges on it.
//!
//! What the bytes mean and which move is legal is decided by [`wire::h1::connection::Connection`]; here are the Python
//! objects, the back-pressure, the deadlines and the order of writes. Everything that completes while input is being
//! consumed leaves in one write at the end, past the transport straight to the socket while nothing waits in front of it.
//!
//! Any call into Python can come back here (`write` may pause, an eager application may send, close or raise), so no
//! borrow of [`State`] is held across one: its parts are taken out first.
//!
//! This module defines connections, their beginning and their end. Events of a connection are in `events`, its input in
//! `input`, requests in `request`, calls from exchanges in `stream` and `response`, the server's own responses in
//! `refusal`, the output in `output`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use wire::h1::connection::{Awaits, Connection as Wire};

use super::core::Core;
use super::states::{End, Ending, Reading};
use crate::asgi::exchange::Exchange;
use crate::asgi::peer::Peer;
use crate::asgi::write_capacity::WriteCapacity;
use crate::base::level::Level;
use crate::base::task::Start;
use crate::conn::carried::{Life, Sides};
use crate::conn::carrier::Carrier;
use crate::conn::deadline::Deadline;
use crate::conn::reader::Reader;

pub(super) use wire::limits::table::HIGH_WATER_LIMIT as HIGH_WATER;

/// The state that changes while a connection lives.
pub(super) struct State {
    pub(super) wire: Wire,
    pub(super) exchange: Option<Rc<Exchange>>,
    /// Input that cannot be looked at yet.
    pub(super) pending: Vec<u8>,
    /// Output that is not written yet.
    pub(super) out: Vec<u8>,
    /// Where in `out` a head begins that waits for its body.
    pub(super) held: Option<usize>,
    /// The reason for the deadline.
    pub(super) waits_for: Awaits,
}

/// The parts of a connection that pass to another version of HTTP.
pub(crate) struct Leaving {
    pub(crate) protocol: Py<PyAny>,
    pub(crate) carrier: Rc<dyn Carrier>,
    pub(crate) peer: Rc<Peer>,
    /// A GOAWAY is due: the client should look for another connection.
    pub(crate) announced: bool,
}

/// One connection. Shared by the protocol object, its exchanges and the list of deadlines.
pub(crate) struct Connection {
    pub(crate) core: Rc<Core>,
    pub(crate) sides: Sides,
    /// Empty before `connection_made`.
    pub(super) peer: RefCell<Rc<Peer>>,
    pub(super) state: RefCell<State>,
    pub(super) capacity: WriteCapacity,
    /// The deadline for the client's input.
    pub(super) deadline: Deadline,
    /// The deadline for the client to read the output.
    pub(super) reader: Reader,
    /// The places of both among those of the loop.
    pub(super) places: Cell<Option<[usize; 2]>>,
    pub(super) life: Cell<Life>,
    pub(super) end: Cell<End>,
    pub(super) reading: Cell<Reading>,
    /// How applications start, decided by the loop's state when the connection was made.
    pub(super) start: Cell<Start>,
    pub(super) consuming: Cell<bool>,
    pub(super) first: Cell<bool>,
    pub(super) resume_scheduled: Cell<bool>,
    pub(super) ending: Cell<Ending>,
    /// How long a client that goes on sending has after the last response, unless it is still reading that.
    pub(super) lingers_until: Cell<Option<Instant>>,
}

impl Connection {
    pub(crate) fn new(core: Rc<Core>, peer: Peer) -> Self {
        Self {
            core,
            sides: Sides::default(),
            peer: RefCell::new(Rc::new(peer)),
            state: RefCell::new(State {
                wire: Wire::new(),
                exchange: None,
                pending: Vec::new(),
                out: Vec::new(),
                held: None,
                waits_for: Awaits::Nothing,
            }),
            capacity: WriteCapacity::default(),
            deadline: Deadline::default(),
            reader: Reader::default(),
            places: Cell::new(None),
            life: Cell::new(Life::Open),
            end: Cell::new(End::Open),
            reading: Cell::new(Reading::On),
            start: Cell::new(Start::Later),
            consuming: Cell::new(false),
            first: Cell::new(true),
            resume_scheduled: Cell::new(false),
            ending: Cell::new(Ending::None),
            lingers_until: Cell::new(None),
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

    /// Whether the client's output has ended, and all of it was received.
    #[inline]
    pub(super) fn has_all(&self) -> bool {
        self.end.get() == End::Here
    }

    #[inline]
    pub(super) fn is_read_paused(&self) -> bool {
        matches!(self.reading.get(), Reading::Paused { .. })
    }

    /// Output waits for the end of the input that is being consumed.
    pub(super) fn is_consuming(&self) -> bool {
        self.consuming.get()
    }

    /// Whether the connection is encrypted.
    pub(crate) fn is_secure(&self) -> bool {
        self.peer.borrow().secure
    }

    /// One line about this connection, with the client in front.
    pub(super) fn note(&self, py: Python<'_>, level: &Level, text: &str) -> PyResult<()> {
        let peer = self.peer.borrow().clone();
        peer.note(py, &self.core.names, level, text)
    }

    /// Hand the connection and its ends over to another version, which has read nothing of it.
    pub(crate) fn leave(&self, py: Python<'_>) -> Option<Leaving> {
        let carrier = self.sides.carrier()?;
        let protocol = self.sides.protocol(py)?;
        self.life.set(Life::Closed);
        self.deadline.set(None);
        self.leave_deadlines();
        self.sides.clear();
        let announced = self.ending.get() != Ending::None;
        Some(Leaving { protocol, carrier, peer: self.peer.borrow().clone(), announced })
    }

    /// The state that the lifespan left, and whether the connection is to serve one request only: for a version that takes the
    /// place of this one before there is a transport.
    #[cfg(target_os = "linux")]
    pub(crate) fn beginnings(&self, py: Python<'_>) -> (Py<PyDict>, bool) {
        (self.peer.borrow().app_state.clone_ref(py), self.ending.get() != Ending::None)
    }

    // The attributes of the protocol object.

    /// The peer's address.
    pub(crate) fn client(&self, py: Python<'_>) -> Py<PyAny> {
        self.peer.borrow().client.clone_ref(py)
    }

    /// The scope of the request being answered.
    pub(crate) fn scope(&self, py: Python<'_>) -> Option<Py<PyDict>> {
        self.state.borrow().exchange.as_ref().map(|exchange| exchange.scope.clone_ref(py))
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
