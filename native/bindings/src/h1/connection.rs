//! One HTTP/1.1 connection, between a transport and the exchanges on it.
//!
//! What the bytes mean and which move is legal is decided by [`wire::h1::connection::Connection`]; here are the Python
//! objects, the back-pressure, the deadlines and the order of writes. Everything that completes while input is being
//! consumed leaves in one write at the end, past the transport straight to the socket while nothing waits in front of it.
//!
//! Any call into Python can come back here (`write` may pause, an eager application may send, close or raise), so no
//! borrow of [`State`] is held across one: what is needed is taken out first.
//!
//! Here: what a connection is, its beginning and its end. What happens to it is in `events`, what comes in in `input`, the
//! requests made of it in `request`, what exchanges ask of it in `stream` and `response`, the server's own answers in
//! `refusal`, the way out in `output`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use wire::h1::connection::{Awaits, Connection as Wire, Eof};

use super::core::Core;
use super::states::{End, Ending, Life, Reading};
use crate::asgi::exchange::{Exchange, State as ExchangeState};
use crate::asgi::peer::Peer;
use crate::base::error;
use crate::base::level::Level;
use crate::base::line::{Line, WOKEN_TOGETHER, wake};
use crate::base::task::Start;
use crate::conn::carrier::Carrier;
use crate::conn::deadline::Deadline;
use crate::conn::socket::Socket;

pub(super) use wire::limits::table::HIGH_WATER_LIMIT as HIGH_WATER;

/// What changes while a connection lives.
pub(super) struct State {
    pub(super) wire: Wire,
    pub(super) exchange: Option<Rc<Exchange>>,
    /// Input that cannot be looked at yet.
    pub(super) pending: Vec<u8>,
    /// Output that is not written yet.
    pub(super) out: Vec<u8>,
    /// Where in `out` a head begins that waits for its body.
    pub(super) held: Option<usize>,
    /// What the deadline is for.
    pub(super) waits_for: Awaits,
}

/// One connection. Shared by the protocol object, its exchanges and the list of deadlines.
pub(crate) struct Connection {
    pub(crate) core: Rc<Core>,
    /// The protocol object, between `connection_made` and `connection_lost`.
    pub(super) protocol: RefCell<Option<Py<PyAny>>>,
    /// Between `connection_made` and `connection_lost`, or the hand-over to another protocol.
    pub(super) carrier: RefCell<Option<Carrier>>,
    /// Of nobody before `connection_made`.
    pub(super) peer: RefCell<Rc<Peer>>,
    pub(super) state: RefCell<State>,
    /// `send()` calls that wait until the transport takes more.
    pub(super) writers: Line,
    /// The future of who sends a file, and so stands in no line.
    pub(super) watcher: RefCell<Option<Py<PyAny>>>,
    /// Of what it waits for its client to send.
    pub(super) deadline: Deadline,
    /// Of what it waits for its client to take.
    pub(super) reader_deadline: Deadline,
    /// The places of both among those of the loop.
    pub(super) places: Cell<Option<[usize; 2]>>,
    /// Bytes that the client had to take when the time for that began.
    pub(super) unsent: Cell<usize>,
    pub(super) life: Cell<Life>,
    pub(super) end: Cell<End>,
    pub(super) reading: Cell<Reading>,
    /// By what the loop was like when the connection was made.
    pub(super) start: Cell<Start>,
    pub(super) consuming: Cell<bool>,
    pub(super) first: Cell<bool>,
    pub(super) write_paused: Cell<bool>,
    pub(super) resume_scheduled: Cell<bool>,
    pub(super) ending: Cell<Ending>,
}

impl Connection {
    pub(crate) fn new(core: Rc<Core>, peer: Peer) -> Self {
        Self {
            core,
            protocol: RefCell::new(None),
            carrier: RefCell::new(None),
            peer: RefCell::new(Rc::new(peer)),
            state: RefCell::new(State {
                wire: Wire::new(),
                exchange: None,
                pending: Vec::new(),
                out: Vec::new(),
                held: None,
                waits_for: Awaits::Nothing,
            }),
            writers: Line::default(),
            watcher: RefCell::default(),
            deadline: Deadline::default(),
            reader_deadline: Deadline::default(),
            places: Cell::new(None),
            unsent: Cell::new(0),
            life: Cell::new(Life::Open),
            end: Cell::new(End::Open),
            reading: Cell::new(Reading::On),
            start: Cell::new(Start::Later),
            consuming: Cell::new(false),
            first: Cell::new(true),
            write_paused: Cell::new(false),
            resume_scheduled: Cell::new(false),
            ending: Cell::new(Ending::None),
        }
    }

    /// What carries its bytes, while there is something.
    #[inline]
    pub(super) fn carrier(&self) -> Option<Carrier> {
        self.carrier.borrow().clone()
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.life.get() == Life::Open
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.life.get() == Life::Closed
    }

    /// Whether the client sends no more, and all that it has sent was received.
    #[inline]
    pub(super) fn has_all(&self) -> bool {
        self.end.get() == End::Here
    }

    #[inline]
    pub(super) fn is_read_paused(&self) -> bool {
        matches!(self.reading.get(), Reading::Paused { .. })
    }

    /// Whether one direction cannot be ended without the other: so it is with the loop's encrypted transports.
    pub(super) fn ends_as_a_whole(&self) -> bool {
        self.is_secure() && matches!(*self.carrier.borrow(), Some(Carrier::Transport(_)))
    }

    /// What Python knows that as.
    pub(crate) fn transport(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.carrier().map(|carrier| carrier.transport(py)).transpose()
    }

    /// Output waits for the end of the input that is being consumed.
    pub(super) fn is_consuming(&self) -> bool {
        self.consuming.get()
    }

    /// Whether the connection is encrypted.
    pub(super) fn is_secure(&self) -> bool {
        self.peer.borrow().secure
    }

    /// Run an entry point. A panic is logged and ends this connection, and nothing else; the caller gets the default.
    #[inline]
    pub(crate) fn guard<R: Default>(
        self: &Rc<Self>,
        py: Python<'_>,
        entry: &str,
        body: impl FnOnce(&Rc<Self>) -> PyResult<R>,
    ) -> PyResult<R> {
        error::guard(py, &self.core, entry, || self.abandon(py), || body(self))
    }

    /// One line about this connection, with the client in front.
    pub(super) fn note(&self, py: Python<'_>, level: &Level, text: &str) -> PyResult<()> {
        if !level.is_enabled(py, &self.core.names)? {
            return Ok(());
        }
        let peer = self.peer.borrow().clone();
        let mut prefix = peer.client_text(py).to_owned();
        if !prefix.is_empty() {
            prefix.push_str(" - ");
        }
        level.log(py, &prefix, text)
    }

    /// Take hold of both sides, which is all that `abandon` needs.
    pub(crate) fn attach(&self, protocol: &Bound<'_, PyAny>, carrier: Carrier) {
        self.protocol.replace(Some(protocol.clone().unbind()));
        self.carrier.replace(Some(carrier));
    }

    /// A client has connected, and a transport of the loop's carries it.
    pub(crate) fn connection_made(
        self: &Rc<Self>,
        protocol: &Bound<'_, PyAny>,
        transport: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let utils = transport.py().import("uvicorn.protocols.utils")?;
        let client = utils.call_method1("get_remote_addr", (transport,))?;
        let local = utils.call_method1("get_local_addr", (transport,))?;
        let secure = utils.call_method1("is_ssl", (transport,))?.is_truthy()?;
        self.open(protocol, &client, &local, secure)
    }

    /// A client has connected, and a socket of ours carries it.
    pub(crate) fn accepted(self: &Rc<Self>, protocol: &Bound<'_, PyAny>, socket: &Rc<Socket>) -> PyResult<()> {
        let py = protocol.py();
        let client = socket.peer(py)?.into_pyobject(py)?;
        let local = socket.local(py)?.into_pyobject(py)?;
        self.core.host.share(socket.reactor());
        self.open(protocol, client.as_any(), &local, socket.is_secure())
    }

    fn open(
        self: &Rc<Self>,
        protocol: &Bound<'_, PyAny>,
        client: &Bound<'_, PyAny>,
        local: &Bound<'_, PyAny>,
        secure: bool,
    ) -> PyResult<()> {
        let py = protocol.py();
        let Core { hub, .. } = &*self.core;
        hub.connections.add(protocol, &self.core.names)?;
        self.start.set(Start::of(&self.core, py)?);
        let (client, server) = (client.clone().unbind(), hub.server_address(local)?);
        let app_state = self.peer.borrow().app_state.clone_ref(py);
        self.peer.replace(Rc::new(Peer::new(client, server, secure, app_state)));
        self.enter_deadlines();
        self.note(py, &self.core.trace, "HTTP connection made")?;
        self.update_deadline(py)
    }

    pub(crate) fn connection_lost(&self, py: Python<'_>) -> PyResult<()> {
        self.forget(py)?;
        self.life.set(Life::Closed);
        self.note(py, &self.core.trace, "HTTP connection lost")?;
        if let Reading::Paused { heeded } = self.reading.replace(Reading::On) {
            self.ignore_end(py, heeded)?;
        }
        self.leave_deadlines();
        self.deadline.set(None);
        self.stop_awaiting_reader();
        let exchange = {
            let mut state = self.state.borrow_mut();
            state.pending = Vec::new();
            state.held = None;
            self.core.hub.buffers.give(std::mem::take(&mut state.out));
            state.exchange.take()
        };
        let carrier = self.carrier.take();
        drop(carrier);
        if let Some(exchange) = exchange {
            exchange.disconnect(py, false)?;
        }
        self.resume_writing(py)
    }

    /// The client has nothing more to send; it may still read. Returns whether the connection stays open.
    pub(crate) fn eof_received(&self, py: Python<'_>) -> PyResult<bool> {
        self.end.set(End::Here);
        if self.ends_as_a_whole() {
            return Ok(false);
        }
        // What is missing of a body will not come, so it cannot be late.
        self.deadline.set(None);
        let (exchange, pending) = {
            let state = self.state.borrow();
            (state.exchange.clone(), !state.pending.is_empty())
        };
        let Some(exchange) = exchange else {
            // Requests that have not had their turn are answered first.
            let waiting = self.resume_scheduled.get();
            if waiting {
                let _: Eof = self.state.borrow_mut().wire.receive_eof(pending);
            }
            return Ok(waiting);
        };
        let over = exchange.state() == ExchangeState::Complete;
        let _: Eof = self.state.borrow_mut().wire.receive_eof(pending);
        if over {
            return Ok(false);
        }
        exchange.disconnect(py, true)?;
        Ok(true)
    }

    /// The transport's buffer is above its high-water mark.
    pub(crate) fn pause_writing(&self, py: Python<'_>) -> PyResult<()> {
        self.write_paused.set(true);
        self.await_reader(py)
    }

    /// It takes more again, or is gone: let those who wait go on.
    pub(crate) fn resume_writing(&self, py: Python<'_>) -> PyResult<()> {
        self.write_paused.set(false);
        if !self.is_closed() {
            self.stop_awaiting_reader();
        }
        let watcher = self.watcher.take();
        if let Some(watcher) = watcher {
            wake(watcher.bind(py), &self.core.names)?;
        }
        self.writers.advance(py, &self.core.names, WOKEN_TOGETHER)
    }

    /// The next response whose head is encoded is the last, and says so; nothing else changes.
    pub(crate) fn announce_close(&self) {
        if self.ending.get() == Ending::None {
            self.ending.set(Ending::Announced);
        }
        self.state.borrow_mut().wire.announce_close();
    }

    /// The server stops: close now if idle, otherwise when the response is complete. Behind an `announce_close` a client that
    /// was told nothing yet is given a moment for one more request.
    pub(crate) fn shutdown(&self, py: Python<'_>) -> PyResult<()> {
        match self.ending.get() {
            Ending::None => {
                self.ending.set(Ending::Now);
                self.state.borrow_mut().wire.shutdown();
            }
            Ending::Announced => self.ending.set(Ending::LastCall),
            Ending::LastCall | Ending::Now => {}
        }
        let busy = {
            let state = self.state.borrow();
            state.exchange.as_ref().is_some_and(|exchange| exchange.state() != ExchangeState::Complete)
        };
        if busy || self.ending.get() == Ending::LastCall && self.wait_for_last_call(py)? {
            return Ok(());
        }
        self.close(py, false)
    }

    /// Tell the application that its client is gone, while its response can still be sent.
    pub(crate) fn disconnect(&self, py: Python<'_>) -> PyResult<()> {
        let exchange = self.state.borrow().exchange.clone();
        exchange.map_or(Ok(()), |exchange| exchange.disconnect(py, true))
    }

    /// Take the protocol object out of the live connections.
    pub(super) fn forget(&self, py: Python<'_>) -> PyResult<()> {
        let protocol = self.protocol.borrow_mut().take();
        match protocol {
            Some(protocol) => self.core.hub.connections.discard(protocol.bind(py), &self.core.names),
            None => Ok(()),
        }
    }

    /// Cut the connection off after a panic, without a look at what it was doing.
    #[cold]
    pub(crate) fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.leave_deadlines();
        let aborted = self.abort(py);
        let exchange = self.state.borrow_mut().exchange.take();
        if let Some(exchange) = exchange {
            exchange.disconnect(py, false)?;
        }
        self.resume_writing(py)?;
        self.forget(py).and(aborted)
    }

    // What the protocol object shows.

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
        if let Ok(carrier) = self.carrier.try_borrow()
            && let Some(Carrier::Transport(transport)) = &*carrier
        {
            visit.call(&**transport)?;
        }
        self.protocol.try_borrow().map_or(Ok(()), |protocol| visit.call(&*protocol))
    }

    /// Let go of them.
    pub(crate) fn clear(&self) {
        let carrier = self.carrier.take();
        drop(carrier);
        let protocol = self.protocol.take();
        drop(protocol);
    }
}
