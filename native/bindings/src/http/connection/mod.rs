//! One HTTP/1.1 connection, between a transport and the exchanges on it.
//!
//! What the bytes mean and which move is legal is decided by [`wire::h1::connection::Connection`]; here are the Python
//! objects, the back-pressure, the deadlines and the order of writes. Everything that completes while input is being
//! consumed leaves in one write at the end, past the transport straight to the socket while nothing waits in front of it.
//!
//! Any call into Python can come back here (`write` may pause, an eager application may send, close or raise), so no
//! borrow of [`State`] is held across one: what is needed is taken out first.
//!
//! Here: what a connection is, its beginning and its end. What comes in is in [`input`], the requests made of it in
//! [`request`], their responses in [`response`], the server's own in [`refusal`], the way out in [`output`].

mod deadline;
mod input;
mod output;
mod refusal;
mod request;
mod response;

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use wire::h1::connection::{Connection as Wire, Deadline, Eof};

use crate::access;
use crate::conn::{Carrier, Handler, Socket};
use crate::error::guard;
use crate::http::cycle::{Exchange, State as ExchangeState};
use crate::level::Level;
use crate::line::{Line, WOKEN_TOGETHER, wake};
use crate::server::{Core, Server};
use crate::task::Start;
use deadline::Reader;

pub(super) use response::{Follows, copy_of, with_pair};
pub(super) use wire::limits::table::HIGH_WATER_LIMIT as HIGH_WATER;

/// What changes while a connection lives.
pub(super) struct State {
    pub(super) wire: Wire,
    exchange: Option<Rc<Exchange>>,
    /// Input that cannot be looked at yet.
    pending: Vec<u8>,
    /// Output that is not written yet.
    pub(super) out: Vec<u8>,
    /// Where in `out` a head begins that waits for its body.
    pub(super) held: Option<usize>,
    waits_for: Deadline,
    deadline: Option<Instant>,
}

/// What the end of the server means for a connection; it only ever goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    None,
    /// The next head says `close`.
    Announced,
    /// And its request has to come soon.
    LastCall,
    /// No further request is taken.
    Now,
}

/// One connection. Shared by the protocol object, its exchanges and the list of deadlines.
pub(crate) struct Connection {
    pub(crate) core: Rc<Core>,
    server: Py<Server>,
    app_state: Py<PyDict>,
    /// The protocol object, between `connection_made` and `connection_lost`.
    protocol: RefCell<Option<Py<PyAny>>>,
    /// Between `connection_made` and `connection_lost`, or the hand-over to another protocol.
    carrier: RefCell<Option<Carrier>>,
    client: RefCell<Option<Py<PyAny>>>,
    /// `host:port` of it, made when the first line is logged.
    client_text: OnceCell<String>,
    server_address: RefCell<Option<Py<PyAny>>>,
    pub(super) state: RefCell<State>,
    /// `send()` calls that wait until the transport takes more.
    pub(crate) writers: Line,
    /// The future of who sends a file, and so stands in no line.
    watcher: RefCell<Option<Py<PyAny>>>,
    slot: Cell<Option<usize>>,
    secure: Cell<bool>,
    /// By what the loop was like when the connection was made.
    start: Cell<Start>,
    consuming: Cell<bool>,
    closed: Cell<bool>,
    lingering: Cell<bool>,
    eof: Cell<bool>,
    /// The client has nothing more to send than what the system still holds.
    ended: Cell<bool>,
    /// The descriptor of its transport's socket, while that is watched for the client's end.
    heeded: Cell<Option<i32>>,
    first: Cell<bool>,
    read_paused: Cell<bool>,
    write_paused: Cell<bool>,
    resume_scheduled: Cell<bool>,
    ending: Cell<Ending>,
    /// The client has to take some of what waits for it.
    reader: Cell<Option<Reader>>,
}

impl Connection {
    pub(in crate::http) fn new(core: Rc<Core>, server: Py<Server>, app_state: Py<PyDict>) -> Self {
        Self {
            core,
            server,
            app_state,
            protocol: RefCell::new(None),
            carrier: RefCell::new(None),
            client: RefCell::new(None),
            client_text: OnceCell::new(),
            server_address: RefCell::new(None),
            state: RefCell::new(State {
                wire: Wire::new(),
                exchange: None,
                pending: Vec::new(),
                out: Vec::new(),
                held: None,
                waits_for: Deadline::None,
                deadline: None,
            }),
            writers: Line::default(),
            watcher: RefCell::default(),
            slot: Cell::new(None),
            secure: Cell::new(false),
            start: Cell::new(Start::Later),
            consuming: Cell::new(false),
            closed: Cell::new(false),
            lingering: Cell::new(false),
            eof: Cell::new(false),
            ended: Cell::new(false),
            heeded: Cell::new(None),
            first: Cell::new(true),
            read_paused: Cell::new(false),
            write_paused: Cell::new(false),
            resume_scheduled: Cell::new(false),
            ending: Cell::new(Ending::None),
            reader: Cell::new(None),
        }
    }

    /// What carries its bytes, while there is something.
    #[inline]
    fn carrier(&self) -> Option<Carrier> {
        self.carrier.borrow().clone()
    }

    /// Whether one direction cannot be ended without the other: so it is with the loop's encrypted transports.
    fn ends_as_a_whole(&self) -> bool {
        self.secure.get() && matches!(*self.carrier.borrow(), Some(Carrier::Transport(_)))
    }

    /// What Python knows that as.
    pub(super) fn transport(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.carrier().map(|carrier| carrier.transport(py)).transpose()
    }

    #[inline]
    pub(crate) fn is_write_paused(&self) -> bool {
        self.write_paused.get()
    }

    /// Output waits for the end of the input that is being consumed.
    pub(super) fn is_consuming(&self) -> bool {
        self.consuming.get()
    }

    /// One line about this connection, with the client in front.
    fn note(&self, py: Python<'_>, level: &Level, text: &str) -> PyResult<()> {
        if !level.is_enabled(py, &self.core.names)? {
            return Ok(());
        }
        let client = match &*self.client.borrow() {
            Some(client) => client.clone_ref(py),
            None => py.None(),
        };
        let mut prefix = String::new();
        if self.push_client(&mut prefix, client.bind(py)) && !prefix.is_empty() {
            prefix.push_str(" - ");
        }
        level.log(py, &prefix, text)
    }

    /// Append the client's address if `client` is it; the middleware may have put another in its place.
    pub(crate) fn push_client(&self, line: &mut String, client: &Bound<'_, PyAny>) -> bool {
        let own = self.client.borrow().as_ref().is_some_and(|own| own.is(client));
        if own {
            line.push_str(self.client_text.get_or_init(|| match client.extract::<(String, u16)>() {
                Ok((host, port)) => format!("{host}:{port}"),
                Err(_) => String::new(),
            }));
        }
        own
    }

    /// Have the access lines written when the loop gets to it.
    pub(crate) fn flush_log_soon(&self, py: Python<'_>) -> PyResult<()> {
        access::flush_soon(&self.core, self.server.bind(py))
    }

    /// Take hold of both sides, which is all that `abandon` needs.
    pub(in crate::http) fn attach(&self, protocol: &Bound<'_, PyAny>, carrier: Carrier) {
        self.protocol.replace(Some(protocol.clone().unbind()));
        self.carrier.replace(Some(carrier));
    }

    /// A client has connected, and a transport of the loop's carries it.
    pub(in crate::http) fn connection_made(
        self: &Rc<Self>,
        protocol: &Bound<'_, PyAny>,
        transport: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let utils = transport.py().import("uvicorn.protocols.utils")?;
        let client = utils.call_method1("get_remote_addr", (transport,))?;
        let local = utils.call_method1("get_local_addr", (transport,))?;
        self.secure.set(utils.call_method1("is_ssl", (transport,))?.is_truthy()?);
        self.open(protocol, &client, &local)
    }

    /// A client has connected, and a socket of ours carries it.
    pub(in crate::http) fn accepted(self: &Rc<Self>, protocol: &Bound<'_, PyAny>, socket: &Rc<Socket>) -> PyResult<()> {
        let py = protocol.py();
        let client = socket.peer(py)?.into_pyobject(py)?;
        let local = socket.local(py)?.into_pyobject(py)?;
        self.secure.set(socket.is_secure());
        self.core.share_turns_of(socket.reactor());
        self.open(protocol, client.as_any(), &local)
    }

    fn open(
        self: &Rc<Self>,
        protocol: &Bound<'_, PyAny>,
        client: &Bound<'_, PyAny>,
        local: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let py = protocol.py();
        self.core.connections.add(protocol, &self.core.names)?;
        self.start.set(Start::of(&self.core, py)?);
        self.server_address.replace(Some(self.core.server_address(local)?));
        self.client.replace(Some(client.clone().unbind()));
        self.slot.set(Some(self.core.deadlines.insert(self.clone())));
        self.note(py, &self.core.trace, "HTTP connection made")?;
        self.update_deadline(py)
    }

    pub(in crate::http) fn connection_lost(&self, py: Python<'_>) -> PyResult<()> {
        self.forget(py)?;
        self.closed.set(true);
        self.note(py, &self.core.trace, "HTTP connection lost")?;
        self.ignore_end(py)?;
        self.leave_deadlines();
        self.stop_awaiting_reader();
        let exchange = {
            let mut state = self.state.borrow_mut();
            state.deadline = None;
            state.pending = Vec::new();
            state.held = None;
            self.core.buffers.give(std::mem::take(&mut state.out));
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
    pub(in crate::http) fn eof_received(&self, py: Python<'_>) -> PyResult<bool> {
        self.eof.set(true);
        if self.ends_as_a_whole() {
            return Ok(false);
        }
        let (exchange, pending) = {
            let state = &mut *self.state.borrow_mut();
            // What is missing of a body will not come, so it cannot be late.
            state.deadline = None;
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
    pub(in crate::http) fn pause_writing(&self, py: Python<'_>) -> PyResult<()> {
        self.write_paused.set(true);
        self.await_reader(py)
    }

    /// It takes more again, or is gone: let those who wait go on.
    pub(in crate::http) fn resume_writing(&self, py: Python<'_>) -> PyResult<()> {
        self.write_paused.set(false);
        if !self.closed.get() {
            self.stop_awaiting_reader();
        }
        let watcher = self.watcher.take();
        if let Some(watcher) = watcher {
            wake(watcher.bind(py), &self.core.names)?;
        }
        self.writers.advance(py, &self.core.names, WOKEN_TOGETHER)
    }

    /// A future that is done when the transport takes more, or the connection ends. One at a time waits in this way.
    pub(crate) fn watcher(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let future = self.core.event_loop.bind(py).call_method0(&self.core.names.create_future)?.unbind();
        let old = self.watcher.replace(Some(future.clone_ref(py)));
        drop(old);
        Ok(future)
    }

    /// The next response whose head is encoded is the last, and says so; nothing else changes.
    pub(in crate::http) fn announce_close(&self) {
        if self.ending.get() == Ending::None {
            self.ending.set(Ending::Announced);
        }
        self.state.borrow_mut().wire.announce_close();
    }

    /// The server stops: close now if idle, otherwise when the response is complete. Behind an `announce_close` a client that
    /// was told nothing yet is given a moment for one more request.
    pub(in crate::http) fn shutdown(&self, py: Python<'_>) -> PyResult<()> {
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
        self.end(py, false)
    }

    /// Tell the application that its client is gone, while its response can still be sent.
    pub(in crate::http) fn disconnect(&self, py: Python<'_>) -> PyResult<()> {
        let exchange = self.state.borrow().exchange.clone();
        exchange.map_or(Ok(()), |exchange| exchange.disconnect(py, true))
    }

    /// Take the protocol object out of the live connections.
    fn forget(&self, py: Python<'_>) -> PyResult<()> {
        let protocol = self.protocol.borrow_mut().take();
        match protocol {
            Some(protocol) => self.core.connections.discard(protocol.bind(py), &self.core.names),
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
    pub(in crate::http) fn client(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.client.borrow().as_ref().map(|client| client.clone_ref(py))
    }

    /// The scope of the request being answered.
    pub(in crate::http) fn scope(&self, py: Python<'_>) -> Option<Py<PyDict>> {
        self.state.borrow().exchange.as_ref().map(|exchange| exchange.scope.clone_ref(py))
    }

    // The garbage collector's side.

    /// Show the collector the objects that a cycle of references may go through.
    pub(in crate::http) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.server)?;
        visit.call(&self.app_state)?;
        if let Ok(carrier) = self.carrier.try_borrow()
            && let Some(Carrier::Transport(transport)) = &*carrier
        {
            visit.call(&**transport)?;
        }
        self.protocol.try_borrow().map_or(Ok(()), |protocol| visit.call(&*protocol))
    }

    /// Let go of them.
    pub(in crate::http) fn clear(&self) {
        let carrier = self.carrier.take();
        drop(carrier);
        let protocol = self.protocol.take();
        drop(protocol);
    }
}

impl Handler for Connection {
    fn on_data(self: Rc<Self>, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        guard(py, &self, "data_received", |connection| connection.receive(py, data))
    }

    fn on_eof(self: Rc<Self>, py: Python<'_>) -> PyResult<bool> {
        guard(py, &self, "eof_received", |connection| connection.eof_received(py))
    }

    fn on_hang_up(self: Rc<Self>, py: Python<'_>, reset: bool) -> PyResult<()> {
        guard(py, &self, "hung_up", |connection| connection.hung_up(py, reset))
    }

    fn on_lost(self: Rc<Self>, py: Python<'_>, _error: Option<PyErr>) -> PyResult<()> {
        guard(py, &self, "connection_lost", |connection| connection.connection_lost(py))
    }

    fn on_pause(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        guard(py, &self, "pause_writing", |connection| connection.pause_writing(py))
    }

    fn on_resume(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        guard(py, &self, "resume_writing", |connection| connection.resume_writing(py))
    }

    fn protocol(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.protocol.borrow().as_ref().map(|protocol| protocol.clone_ref(py))
    }
}
