//! One WebSocket, from the handshake on: its state. `uvicorn/protocols/websockets/session.py` is the same in Python.
//!
//! ```text
//!                 accept                    close frame sent or received, or the
//! CONNECTING ─────────▶ ACCEPTED ──────▶ response complete ───────────────────▶ CLOSING ──▶ CLOSED
//!     │                                            ▲                                ▲
//!     ├── websocket.http.response.start ──▶ DENYING                                 │
//!     └── websocket.close: 403 ─────────────────────────────────────────────────────┘
//! ```
//!
//! Any call into Python can come back here, so no borrow is held across one. Events are in `events`, input in
//! `handshake` and `input`, the application's messages in `application`, the end in `closing`, deadlines in `times`,
//! output in `output`.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use super::core::Core;
use super::states::{Connecting, Ended, PeerEnd, Ping, Stage, State};
use super::waits::Times;
use crate::asgi::gate::Ticket;
use crate::asgi::peer::Peer;
use crate::asgi::write_capacity::WriteCapacity;
use crate::base::ffi::bytes::Growing;
use crate::base::line::{Line, WOKEN_TOGETHER};
use crate::base::waiter::Waiter;
use crate::conn::carried::Sides;

/// The input from the client.
#[derive(Default)]
pub(super) struct Inflow {
    /// The handshake, then unread frames.
    pub(super) input: RefCell<Vec<u8>>,
    /// The processed part of it.
    pub(super) dealt_with: Cell<usize>,
    /// The part of a large binary message that has come.
    pub(super) piece: Cell<Option<Box<Growing>>>,
    /// Frames are being read.
    pub(super) consuming: Cell<bool>,
    pub(super) read_paused: Cell<bool>,
}

/// The events for the application.
#[derive(Default)]
pub(super) struct Inbox {
    /// Events that it has not received yet.
    pub(super) queue: RefCell<VecDeque<Py<PyDict>>>,
    /// Bytes put into the queue since it was last empty.
    pub(super) queued: Cell<usize>,
    pub(super) receivers: Line,
    /// The first of them has its turn: it has stopped waiting, though it keeps its place until it is through.
    pub(super) taking: Cell<bool>,
    /// When the application took its last event.
    pub(super) took_at: Cell<Option<Instant>>,
    /// Calls of the application wait for waiters, and can so go on inside of them.
    pub(super) has_waiters: Cell<bool>,
    /// The waiter of the application's task, while that takes a step without its task.
    pub(super) lent_waiter: Cell<Option<Py<Waiter>>>,
    /// The first receiver goes on when all input was processed.
    pub(super) is_to_wake: Cell<bool>,
}

/// The output.
#[derive(Default)]
pub(super) struct Outflow {
    /// Output that is being gathered.
    pub(super) out: RefCell<Vec<u8>>,
    /// Input is being processed: output written meanwhile leaves in one piece afterwards.
    pub(super) gathering: Cell<bool>,
    pub(super) capacity: WriteCapacity,
}

/// One WebSocket. Shared by the protocol object, its carrier, its application's call and the list of deadlines.
pub(crate) struct Session {
    pub(crate) core: Rc<Core>,
    pub(crate) sides: Sides,
    /// Empty before `connection_made`.
    pub(super) peer: RefCell<Rc<Peer>>,
    pub(super) state: RefCell<State>,
    /// Once the handshake is read.
    pub(super) scope: OnceCell<Py<PyDict>>,
    /// The id of the request, if it has one.
    pub(super) id: OnceCell<Py<PyString>>,
    pub(super) inflow: Inflow,
    pub(super) inbox: Inbox,
    pub(super) outflow: Outflow,
    /// Its place among the active requests, if those are counted; until it is accepted, or the application's call is
    /// over.
    pub(super) ticket: Cell<Option<Box<Ticket>>>,
    /// How the application ended it.
    pub(super) ended: Cell<Option<Ended>>,
    /// The client has nothing more to send, and may read the response.
    pub(super) half_closed: Cell<bool>,
    /// Our close frame is sent, and the client's is awaited.
    pub(super) awaiting_close: Cell<bool>,
    pub(super) ping: Cell<Ping>,
    pub(super) times: Times,
    /// Kept apart, so that an open WebSocket which waits is small.
    rare: OnceCell<Box<Rare>>,
    /// A protocol object shows its content to the garbage collector, so nothing else may.
    pub(crate) shown: Cell<bool>,
}

/// The fields that most sessions need at their end, if at all.
#[derive(Default)]
pub(super) struct Rare {
    /// How the client has ended, while the application has not received all earlier messages.
    pub(super) peer_end: RefCell<Option<PeerEnd>>,
    /// The application's disconnect event.
    disconnect: RefCell<Option<Py<PyDict>>>,
    /// What the metrics by route know of it, from the acceptance on.
    pub(super) counted: Cell<Option<Py<PyAny>>>,
    /// The payload of the latest ping, while the peer does not read.
    pub(super) pong: Cell<Option<Box<[u8]>>>,
    /// A `FrameLog`, if debug lines are wanted.
    pub(super) log: RefCell<Option<Py<PyAny>>>,
    /// Of the access log, if that has a format of the user's.
    pub(super) entry: RefCell<Option<Py<PyAny>>>,
    /// A `ServerSpan`, if the session is traced and sampled.
    pub(super) span: RefCell<Option<Py<PyAny>>>,
}

impl Session {
    pub(crate) fn new(core: Rc<Core>, peer: Peer) -> Self {
        Self {
            core,
            sides: Sides::default(),
            peer: RefCell::new(Rc::new(peer)),
            state: RefCell::new(State::Connecting(Connecting::Head(Box::default()))),
            scope: OnceCell::new(),
            id: OnceCell::new(),
            inflow: Inflow::default(),
            inbox: Inbox::default(),
            outflow: Outflow::default(),
            ticket: Cell::new(None),
            ended: Cell::new(None),
            half_closed: Cell::new(false),
            awaiting_close: Cell::new(false),
            ping: Cell::default(),
            times: Times::default(),
            rare: OnceCell::new(),
            shown: Cell::new(false),
        }
    }

    #[inline]
    pub(crate) fn stage(&self) -> Stage {
        self.state.borrow().stage()
    }

    #[inline]
    pub(super) fn is_accepted(&self) -> bool {
        self.stage() == Stage::Accepted
    }

    /// Whether only frames that the end needs are still sent.
    pub(super) fn is_ending(&self) -> bool {
        self.stage() >= Stage::Closing
    }

    /// Enter another state; the data of the old one is dropped afterwards.
    pub(super) fn enter(&self, state: State) {
        let old = self.state.replace(state);
        drop(old);
    }

    /// The fields that few sessions need.
    pub(super) fn rare(&self) -> &Rare {
        self.rare.get_or_init(Box::default)
    }

    /// The same, if there is any.
    #[inline]
    pub(super) fn any_rare(&self) -> Option<&Rare> {
        self.rare.get().map(|rare| &**rare)
    }

    /// The session's data for the access log, if that has a format of the user's.
    pub(super) fn entry(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.any_rare()?.entry.borrow().as_ref().map(|entry| entry.clone_ref(py))
    }

    /// The session's span, if it is traced and sampled.
    pub(super) fn span<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.any_rare()?.span.borrow().as_ref().map(|span| span.bind(py).clone())
    }

    /// The session is over, and so is its span.
    pub(super) fn end_span(&self, py: Python<'_>) -> PyResult<()> {
        self.span(py).map_or(Ok(()), |span| span.call_method0(&self.core.names.end).map(drop))
    }

    /// The disconnect event that the application has got.
    pub(super) fn told(&self, py: Python<'_>) -> Option<Py<PyDict>> {
        self.any_rare()?.disconnect.borrow().as_ref().map(|event| event.clone_ref(py))
    }

    /// Whether the client's end is unknown to the application.
    #[inline]
    pub(super) fn peer_has_ended(&self) -> bool {
        self.any_rare().is_some_and(|rare| rare.peer_end.borrow().is_some())
    }

    /// Set the last event for the application.
    pub(super) fn set_disconnect(&self, py: Python<'_>, code: u16, reason: Option<&str>) -> PyResult<()> {
        let event = PyDict::new(py);
        event.set_item(&self.core.names.r#type, "websocket.disconnect")?;
        event.set_item(&self.core.names.code, code)?;
        if let Some(reason) = reason {
            event.set_item(&self.core.names.reason, reason)?;
        }
        let copy = event.copy()?.unbind();
        self.rare().disconnect.replace(Some(event.unbind()));
        self.inbox.queue.borrow_mut().push_back(copy);
        Ok(())
    }

    /// Set the application's disconnect event, unless it is set.
    pub(super) fn tell_end(&self, py: Python<'_>, code: u16, reason: Option<&str>) -> PyResult<()> {
        if self.is_disconnected() {
            return Ok(());
        }
        if self.is_accepted() {
            self.log_end(py, code)?;
        }
        self.set_disconnect(py, code, reason)?;
        self.wake_receivers(py)
    }

    pub(super) fn wake_receivers(&self, py: Python<'_>) -> PyResult<()> {
        if self.inbox.receivers.is_empty() {
            return Ok(());
        }
        self.inbox.receivers.advance(py, &self.core.names, WOKEN_TOGETHER)
    }

    // The attributes of the protocol object.

    /// The scope, once the handshake is read.
    pub(crate) fn shown_scope(&self, py: Python<'_>) -> Option<Py<PyDict>> {
        self.scope.get().map(|scope| scope.clone_ref(py))
    }

    /// The events that wait for the application.
    pub(crate) fn events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let events: Vec<_> = self.inbox.queue.borrow().iter().map(|event| event.clone_ref(py)).collect();
        PyList::new(py, events)
    }

    /// The number of unread bytes.
    pub(crate) fn buffered(&self) -> usize {
        self.inflow.input.borrow().len() - self.inflow.dealt_with.get()
    }

    pub(crate) fn is_read_paused(&self) -> bool {
        self.inflow.read_paused.get()
    }

    pub(crate) fn is_write_paused(&self) -> bool {
        self.outflow.capacity.is_paused()
    }

    #[inline]
    pub(crate) fn is_disconnected(&self) -> bool {
        self.rare.get().is_some_and(|rare| rare.disconnect.borrow().is_some())
    }

    pub(crate) fn has_waiting_receivers(&self) -> bool {
        !self.inbox.receivers.is_empty()
    }

    pub(crate) fn has_waiting_writers(&self) -> bool {
        !self.outflow.capacity.writers.is_empty()
    }

    /// The payload of the latest ping, when it was sent by the clock of the loop, and how many seconds the answer to
    /// the last one took.
    pub(crate) fn ping(&self) -> (Option<[u8; 4]>, f64, f64) {
        let ping = self.ping.get();
        (ping.pending, ping.sent_at, ping.round_trip)
    }

    // The garbage collector's side.

    /// Show the collector the objects that a cycle of references may go through.
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Ok(peer) = self.peer.try_borrow() {
            visit.call(&peer.app_state)?;
        }
        if let Some(scope) = self.scope.get() {
            visit.call(scope)?;
        }
        self.sides.traverse(visit)?;
        if let Ok(state) = self.state.try_borrow()
            && let State::Denying(response) = &*state
        {
            visit.call(response)?;
        }
        if let Ok(queue) = self.inbox.queue.try_borrow() {
            queue.iter().try_for_each(|event| visit.call(event))?;
        }
        if let Some(rare) = self.any_rare() {
            for object in [&rare.log, &rare.entry, &rare.span] {
                if let Ok(object) = object.try_borrow() {
                    visit.call(&*object)?;
                }
            }
        }
        self.inbox.receivers.traverse(visit)?;
        self.outflow.capacity.writers.traverse(visit)
    }

    /// Let go of them.
    pub(crate) fn let_go(&self) {
        self.sides.clear();
        if let Some(rare) = self.any_rare() {
            for object in [&rare.log, &rare.entry, &rare.span] {
                let object = object.take();
                drop(object);
            }
        }
        let queue = self.inbox.queue.take();
        drop(queue);
        self.inbox.receivers.clear();
        self.outflow.capacity.writers.clear();
    }
}
