//! One HTTP/1.1 connection: the asyncio protocol, between a transport and the exchanges on it.
//!
//! What the bytes mean and which move is legal is decided by [`wire::h1::connection::Connection`]; here are the Python
//! objects, the back-pressure, the deadlines and the order of writes. Everything that completes while input is being
//! consumed leaves in one write at the end, past the transport straight to the socket while nothing waits in front of it.
//!
//! Any call into Python can come back here (`write` may pause, an eager application may send, close or raise), so no
//! borrow of [`State`] is held across one: what is needed is taken out first.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use pyo3::PyTraverseError;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use wire::error::{Error, ErrorKind};
use wire::h1::connection::{Connection as Wire, Deadline, Eof, Event, Progress};
use wire::h1::framing::BodyLength;
use wire::h1::request::Head;
use wire::h1::response::Framing;
use wire::limits::Limits;

use crate::access;
use crate::access::format::FormattedLog;
use crate::error::{exception, guard};
use crate::ffi::{self, ThreadBound};
use crate::http::cycle::{Exchange, Served, State as ExchangeState, wake_all};
use crate::http::idle;
use crate::http::message::Message;
use crate::http::scope::Endpoints;
use crate::server::{Core, Server};
use crate::task::is_empty;

/// The level of the lines about single connections.
const TRACE: u8 = 5;
/// Bytes kept for an application or a peer that does not take them, before the other side is made to wait.
pub(super) const HIGH_WATER: usize = 65536;
/// Every this many bytes of a request body move its deadline on by a second.
const BODY_BYTES_PER_SECOND: u32 = 16384;
/// How long a refused connection goes on reading, so that its peer reads the answer before a reset.
const LINGER: Duration = Duration::from_secs(2);
/// Pipelined requests served before other connections get their turn.
const MAX_EAGER_REQUESTS: usize = 32;

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
    /// Futures of `send()` calls that wait.
    pub(super) writers: Vec<Py<PyAny>>,
}

/// One connection. Shared by the protocol object, its exchanges and the list of deadlines.
pub(crate) struct Connection {
    pub(crate) core: Rc<Core>,
    server: Py<Server>,
    app_state: Py<PyDict>,
    /// The protocol object, between `connection_made` and `connection_lost`.
    protocol: RefCell<Option<Py<PyAny>>>,
    transport: RefCell<Option<Py<PyAny>>>,
    client: RefCell<Option<Py<PyAny>>>,
    /// `host:port` of it, made when the first line is logged.
    client_text: OnceCell<String>,
    server_address: RefCell<Option<Py<PyAny>>>,
    pub(super) state: RefCell<State>,
    slot: Cell<Option<usize>>,
    /// The socket, while writing past the transport is allowed at all.
    descriptor: Cell<Option<i32>>,
    /// The socket is read by [`Reader`](crate::http::reader::Reader), and not by the transport.
    adopted: Cell<bool>,
    /// Something was given to the transport and may still wait in its buffer.
    buffered: Cell<bool>,
    secure: Cell<bool>,
    /// Tasks may be started here: the loop had no task factory when the connection was made.
    eager: Cell<bool>,
    consuming: Cell<bool>,
    closed: Cell<bool>,
    lingering: Cell<bool>,
    eof: Cell<bool>,
    first: Cell<bool>,
    read_paused: Cell<bool>,
    write_paused: Cell<bool>,
    resume_scheduled: Cell<bool>,
}

/// Why a request is answered by the server itself.
struct Refusal {
    status: u16,
    reason: String,
}

impl Refusal {
    /// What the operator is told: which setting to look at, where there is one.
    fn new(error: Error, limits: &Limits) -> Self {
        let reason = match error.kind {
            ErrorKind::UriTooLong => {
                format!("request target longer than limit_request_target ({})", limits.target)
            }
            ErrorKind::ContentTooLarge => {
                let limit = limits.body.unwrap_or_default();
                format!("request body larger than limit_request_body ({limit} bytes)")
            }
            ErrorKind::FieldsTooLarge if error.detail == "head over the limit" => {
                format!("request head larger than limit_request_head ({} bytes)", limits.head)
            }
            ErrorKind::FieldsTooLarge if error.detail == "too many fields" => {
                format!("more header fields than limit_request_fields ({})", limits.fields)
            }
            _ => error.detail.to_owned(),
        };
        Self { status: error.status(), reason }
    }
}

impl Connection {
    fn new(core: Rc<Core>, server: Py<Server>, app_state: Py<PyDict>) -> Self {
        Self {
            core,
            server,
            app_state,
            protocol: RefCell::new(None),
            transport: RefCell::new(None),
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
                writers: Vec::new(),
            }),
            slot: Cell::new(None),
            descriptor: Cell::new(None),
            adopted: Cell::new(false),
            buffered: Cell::new(false),
            secure: Cell::new(false),
            eager: Cell::new(false),
            consuming: Cell::new(false),
            closed: Cell::new(false),
            lingering: Cell::new(false),
            eof: Cell::new(false),
            first: Cell::new(true),
            read_paused: Cell::new(false),
            write_paused: Cell::new(false),
            resume_scheduled: Cell::new(false),
        }
    }

    pub(super) fn transport(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.transport.borrow().as_ref().map(|transport| transport.clone_ref(py))
    }

    /// Call a method of the transport, if there still is one.
    fn on_transport(&self, py: Python<'_>, method: &Py<pyo3::types::PyString>) -> PyResult<()> {
        match self.transport(py) {
            Some(transport) => transport.bind(py).call_method0(method).map(drop),
            None => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn is_write_paused(&self) -> bool {
        self.write_paused.get()
    }

    /// Output waits for the end of the input that is being consumed.
    pub(super) fn is_consuming(&self) -> bool {
        self.consuming.get()
    }

    /// One line at TRACE, with the client in front.
    fn trace(&self, py: Python<'_>, text: &str) -> PyResult<()> {
        let logger = self.core.logger.bind(py);
        if !logger.call_method1(&self.core.names.is_enabled_for, (TRACE,))?.is_truthy()? {
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
        logger.call_method1("log", (TRACE, text, prefix)).map(drop)
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

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.state.borrow().deadline
    }

    // The event loop's side.

    fn connection_made(self: &Rc<Self>, transport: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = transport.py();
        let names = &self.core.names;
        let utils = py.import("uvicorn.protocols.utils")?;
        let client = utils.call_method1("get_remote_addr", (transport,))?;
        let local = utils.call_method1("get_local_addr", (transport,))?;
        let secure = utils.call_method1("is_ssl", (transport,))?.is_truthy()?;
        self.secure.set(secure);
        let event_loop = self.core.event_loop.bind(py);
        self.eager.set(self.core.eager && event_loop.call_method0(&names.get_task_factory)?.is_none());
        self.server_address.replace(Some(self.core.server_address(&local)?));
        self.client.replace(Some(client.unbind()));
        if !secure && has_plain_socket(transport)? {
            let socket = transport.call_method1(&names.get_extra_info, ("socket",))?;
            if !socket.is_none() {
                self.descriptor
                    .set(socket.call_method0("fileno")?.extract().ok().filter(|&descriptor: &i32| descriptor >= 0));
            }
        }
        self.slot.set(Some(self.core.deadlines.insert(self.clone())));
        self.trace(py, "%sHTTP connection made")?;
        self.update_deadline(py)
    }

    fn connection_lost(&self, py: Python<'_>) -> PyResult<()> {
        self.closed.set(true);
        self.trace(py, "%sHTTP connection lost")?;
        self.descriptor.set(None);
        self.write_paused.set(false);
        if let Some(slot) = self.slot.take() {
            self.core.deadlines.remove(slot);
        }
        let (exchange, writers) = {
            let mut state = self.state.borrow_mut();
            state.deadline = None;
            state.pending = Vec::new();
            state.held = None;
            self.core.buffers.give(std::mem::take(&mut state.out));
            (state.exchange.take(), std::mem::take(&mut state.writers))
        };
        let transport = self.transport.borrow_mut().take();
        drop(transport);
        if let Some(exchange) = exchange {
            exchange.disconnect(py, false)?;
        }
        wake_all(py, self, writers)
    }

    /// The client has nothing more to send; it may still read. Returns whether the connection stays open.
    fn eof_received(&self, py: Python<'_>) -> PyResult<bool> {
        self.eof.set(true);
        if self.secure.get() {
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

    fn resume_writing(&self, py: Python<'_>) -> PyResult<()> {
        self.write_paused.set(false);
        let writers = std::mem::take(&mut self.state.borrow_mut().writers);
        wake_all(py, self, writers)
    }

    /// A future that is done when the transport takes more; `None` if it does now.
    pub(crate) fn wait_until_writable<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if !self.write_paused.get() {
            return Ok(None);
        }
        let future = self.core.event_loop.bind(py).call_method0(&self.core.names.create_future)?;
        self.state.borrow_mut().writers.push(future.clone().unbind());
        Ok(Some(future))
    }

    pub(crate) fn data_received(self: &Rc<Self>, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        if self.closed.get() || self.lingering.get() {
            return Ok(());
        }
        let joined = {
            let mut state = self.state.borrow_mut();
            if state.pending.is_empty() {
                None
            } else {
                state.pending.extend_from_slice(data);
                if self.resume_scheduled.get() || state.exchange.is_some() && Self::is_busy(&state) {
                    let full = state.pending.len() > HIGH_WATER;
                    drop(state);
                    return if full { self.pause_reading(py) } else { Ok(()) };
                }
                Some(std::mem::take(&mut state.pending))
            }
        };
        match joined {
            None => {
                let used = self.consume(py, data, true)?;
                if let Some(rest) = data.get(used..).filter(|rest| !rest.is_empty()) {
                    self.keep(py, rest)?;
                }
                Ok(())
            }
            Some(buffer) => self.consume_buffer(py, buffer, true),
        }
    }

    /// Have the socket read past the transport from now on, if it can be.
    #[cold]
    fn adopt(&self, py: Python<'_>) -> PyResult<()> {
        let names = &self.core.names;
        let (Some(descriptor), Some(slot)) = (self.descriptor.get(), self.slot.get()) else { return Ok(()) };
        if self.closed.get() || self.lingering.get() || self.eof.get() || self.read_paused.get() {
            return Ok(());
        }
        let Some(transport) = self.transport(py) else { return Ok(()) };
        let transport = transport.bind(py);
        if transport.call_method0(&names.is_closing)?.is_truthy()? {
            return Ok(());
        }
        transport.call_method0(&names.pause_reading)?;
        if self.core.reader.watch(&self.core, self.server.bind(py), descriptor, slot)? {
            self.adopted.set(true);
            return Ok(());
        }
        self.have_transport_read(py)
    }

    /// Leave reading to the transport again.
    pub(crate) fn release(&self, py: Python<'_>) -> PyResult<()> {
        if !self.adopted.replace(false) || self.is_transport_closing(py)? {
            return Ok(());
        }
        if let Some(descriptor) = self.descriptor.get() {
            self.core.reader.unwatch(descriptor);
        }
        if self.read_paused.get() { Ok(()) } else { self.have_transport_read(py) }
    }

    /// The socket, if it is to be read now.
    #[inline]
    pub(crate) fn readable(&self) -> Option<i32> {
        let wanted = self.adopted.get() && !self.closed.get() && !self.read_paused.get() && !self.eof.get();
        self.descriptor.get().filter(|_| wanted)
    }

    /// Whether the transport has begun to close.
    pub(crate) fn is_transport_closing(&self, py: Python<'_>) -> PyResult<bool> {
        match self.transport(py) {
            Some(transport) => transport.bind(py).call_method0(&self.core.names.is_closing)?.is_truthy(),
            None => Ok(true),
        }
    }

    /// The client has nothing more to send, which the transport does not know.
    pub(crate) fn at_eof(&self, py: Python<'_>) -> PyResult<()> {
        if self.eof_received(py)? { Ok(()) } else { self.on_transport(py, &self.core.names.close) }
    }

    /// An exception got out of what was done with the input: the loop hears of it, and the connection ends.
    #[cold]
    pub(crate) fn fail_reading(&self, py: Python<'_>, error: &PyErr) -> PyResult<()> {
        let context = PyDict::new(py);
        context.set_item("message", "Fatal error: protocol.data_received() call failed.")?;
        context.set_item("exception", error.value(py))?;
        context.set_item("transport", self.transport(py))?;
        context.set_item("protocol", self.protocol.borrow().as_ref().map(|protocol| protocol.clone_ref(py)))?;
        self.core.event_loop.bind(py).call_method1("call_exception_handler", (context,))?;
        self.abort(py)
    }

    fn is_busy(state: &State) -> bool {
        state.wire.deadline_hint() == Deadline::None
    }

    fn keep(&self, py: Python<'_>, rest: &[u8]) -> PyResult<()> {
        if self.closed.get() || self.lingering.get() {
            return Ok(());
        }
        let full = {
            let mut state = self.state.borrow_mut();
            state.pending.extend_from_slice(rest);
            state.pending.len() > HIGH_WATER && Self::is_busy(&state)
        };
        if full { self.pause_reading(py) } else { Ok(()) }
    }

    /// Consume a buffer of our own and keep what is left of it.
    fn consume_buffer(self: &Rc<Self>, py: Python<'_>, mut buffer: Vec<u8>, eager: bool) -> PyResult<()> {
        let used = self.consume(py, &buffer, eager)?;
        if self.closed.get() || self.lingering.get() || used >= buffer.len() {
            return Ok(());
        }
        buffer.drain(..used);
        let mut state = self.state.borrow_mut();
        if state.pending.is_empty() {
            state.pending = buffer;
        } else {
            buffer.extend_from_slice(&state.pending);
            state.pending = buffer;
        }
        Ok(())
    }

    /// Work through `input`; how much of it is dealt with. What is left must be kept.
    fn consume(self: &Rc<Self>, py: Python<'_>, input: &[u8], eager: bool) -> PyResult<usize> {
        let outer = self.consuming.replace(true);
        let result = self.consume_events(py, input, eager);
        let flushed = self.flush(py);
        self.consuming.set(outer);
        flushed?;
        let used = match result {
            Ok(used) => used,
            Err(refusal) => {
                self.refuse(py, &refusal?)?;
                return Ok(input.len());
            }
        };
        self.after_exchange(py, used == input.len())?;
        Ok(used)
    }

    fn consume_events(self: &Rc<Self>, py: Python<'_>, input: &[u8], eager: bool) -> Result<usize, PyResult<Refusal>> {
        let mut head = self.core.head.take().unwrap_or_default();
        let result = self.events(py, input, eager, &mut head);
        self.core.head.set(Some(head));
        result
    }

    fn events(
        self: &Rc<Self>,
        py: Python<'_>,
        input: &[u8],
        eager: bool,
        head: &mut Head,
    ) -> Result<usize, PyResult<Refusal>> {
        let limits = &self.core.settings.limits;
        let mut at = 0;
        let mut budget = MAX_EAGER_REQUESTS;
        // A request with a body, whose application starts when what has arrived of it was fed.
        let mut waiting: Option<(Rc<Exchange>, Py<PyAny>)> = None;
        loop {
            let rest = input.get(at..).unwrap_or_default();
            let progress = {
                let sections = &mut *self.core.scope.kept.sections.borrow_mut();
                self.state.borrow_mut().wire.poll_recalling(rest, head, limits, Some(sections))
            };
            let Progress { consumed, event } = progress.map_err(|error| Ok(Refusal::new(error, limits)))?;
            let begin = at;
            at += consumed;
            match event {
                Event::Request => {
                    let input = input.get(begin..).unwrap_or_default();
                    if head.upgrades
                        && self.wants_websocket(py, head.upgrades_to(input, b"websocket"), head.body).map_err(Err)?
                    {
                        self.hand_over(py, input).map_err(Err)?;
                        return Ok(begin + input.len());
                    }
                    let (exchange, app) = self.begin(py, head, input).map_err(Err)?;
                    self.update_deadline_in_place();
                    if head.body == BodyLength::None {
                        self.start(py, exchange, app, eager).map_err(Err)?;
                    } else {
                        waiting = Some((exchange, app));
                    }
                    if at == begin + input.len() {
                        break;
                    }
                    budget -= 1;
                    if budget == 0 && self.core.real_loop {
                        self.resume_soon(py).map_err(Err)?;
                        break;
                    }
                }
                Event::Body { data, end } => {
                    let exchange = self.state.borrow().exchange.clone();
                    if let Some(exchange) = exchange {
                        let piece = rest.get(data).unwrap_or_default();
                        if !piece.is_empty() && exchange.feed(py, piece) > HIGH_WATER {
                            self.pause_reading(py).map_err(Err)?;
                        }
                        if end {
                            exchange.feed_end();
                        }
                        self.extend_deadline(consumed);
                        if waiting.is_none() {
                            exchange.wake(py).map_err(Err)?;
                        }
                    }
                    if end && let Some((exchange, app)) = waiting.take() {
                        self.start(py, exchange, app, eager).map_err(Err)?;
                    }
                }
                Event::Skipped => {}
                Event::NeedMore | Event::Busy | Event::Switched | Event::Closed => break,
            }
        }
        if let Some((exchange, app)) = waiting {
            self.start(py, exchange, app, eager).map_err(Err)?;
        }
        Ok(at)
    }

    /// Other connections first; then on with what is kept.
    fn resume_soon(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.resume_scheduled.set(true);
        let resume = Py::new(py, Resume { connection: ThreadBound::new(self.clone()) })?;
        self.core.event_loop.bind(py).call_method1(&self.core.names.call_soon, (resume,)).map(drop)
    }

    fn resume(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.resume_scheduled.set(false);
        if self.closed.get() || self.lingering.get() {
            return Ok(());
        }
        let buffer = std::mem::take(&mut self.state.borrow_mut().pending);
        self.consume_buffer(py, buffer, true)
    }

    // Requests.

    /// Build scope and exchange of the request in `head`; and choose who answers it.
    fn begin(self: &Rc<Self>, py: Python<'_>, head: &Head, input: &[u8]) -> PyResult<(Rc<Exchange>, Py<PyAny>)> {
        let core = &self.core;
        // The last one is over; its scope may serve again.
        let last = self.state.borrow_mut().exchange.take();
        self.retire(py, last);
        let none = py.None();
        let client = self.client.borrow().as_ref().unwrap_or(&none).clone_ref(py);
        let server = self.server_address.borrow().as_ref().unwrap_or(&none).clone_ref(py);
        let ends = Endpoints {
            client: client.bind(py),
            server: server.bind(py),
            secure: self.secure.get(),
            state: self.app_state.bind(py),
        };
        let scope = core.scope.build(py, &core.names, head, input, &ends)?;
        let exchange =
            Rc::new(Exchange::new(self.clone(), scope.unbind(), head.body != BodyLength::None, head.expects_continue));
        if self.eof.get() && self.state.borrow().pending.is_empty() {
            exchange.disconnect(py, true)?;
        }
        self.first.set(false);
        if core.formatted.is_some() {
            FormattedLog::begin(&exchange);
        }
        {
            let mut state = self.state.borrow_mut();
            state.exchange = Some(exchange.clone());
            state.deadline = None;
            state.waits_for = Deadline::None;
        }
        let app = match &core.direct_app {
            Some(app) if !core.scope.kept.is_forwarded(head) => app,
            _ => &core.app,
        };
        let app = if self.is_over_limit(py)? { &core.unavailable_app } else { app };
        Ok((exchange, app.clone_ref(py)))
    }

    /// Let go of an exchange that is over.
    #[inline]
    fn retire(&self, py: Python<'_>, exchange: Option<Rc<Exchange>>) {
        if let Some(Ok(exchange)) = exchange.map(Rc::try_unwrap) {
            self.core.scope.give(&self.core.names, exchange.into_scope().into_bound(py));
        }
    }

    fn is_over_limit(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(limit) = self.core.settings.limit_concurrency else { return Ok(false) };
        let core = &self.core;
        let over = core.connections.bind(py).len()? >= limit || core.tasks.bind(py).len()? >= limit;
        if over {
            core.warn(py, "Exceeded concurrency limit.")?;
        }
        Ok(over)
    }

    /// Run the application in a task, whose first step happens here if it may be eager.
    fn start(self: &Rc<Self>, py: Python<'_>, exchange: Rc<Exchange>, app: Py<PyAny>, eager: bool) -> PyResult<()> {
        let core = &self.core;
        let served = core.spare_cycles.take(py, exchange, app)?;
        let started = self.task(py, &served, eager);
        if served.cycle.get().is_over() {
            // The task goes first, because it holds cycle and context.
            let context = started.map(|(_task, context)| context);
            core.spare_cycles.give(py, served);
            return context?.map_or(Ok(()), |context| core.eager_call.give(context, &core.names));
        }
        let cycle = served.cycle.clone_ref(py);
        core.spare_cycles.part_with(served);
        let (task, context) = started?;
        if context.is_some() {
            core.eager_call.forget(py, &core.names)?;
        }
        cycle.get().set_task(task.clone().unbind());
        core.tasks.bind(py).call_method1(&core.names.add, (task,)).map(drop)
    }

    /// The task of a cycle; one that starts eagerly may be over by now, and comes with its context.
    fn task<'py>(
        &self,
        py: Python<'py>,
        served: &Served,
        eager: bool,
    ) -> PyResult<(Bound<'py, PyAny>, Option<Bound<'py, PyAny>>)> {
        let core = &self.core;
        let names = &core.names;
        let eager = eager && self.eager.get();
        let reset = core.settings.reset_contextvars;
        let is_empty = reset || is_empty(core.context.bind(py));
        let spare = if eager && is_empty { core.eager_call.empty_context(py) } else { None };
        let is_set = spare.is_some();
        let context = match spare {
            Some(context) => context,
            None if reset => core.new_context.bind(py).call0()?,
            None => ffi::copy_context(core.context.bind(py))?,
        };
        let event_loop = core.event_loop.bind(py);
        let cycle = served.cycle.bind(py);
        if eager {
            let task = core.eager_call.start(served.arguments.bind(py), &context, is_set, names);
            return match task {
                Ok(task) => Ok((task, Some(context))),
                Err(error) => core.eager_call.forget(py, names).and(Err(error)),
            };
        }
        let task = if core.real_loop && core.task_context {
            let keywords = PyDict::new(py);
            keywords.set_item(&names.context, context)?;
            event_loop.call_method(&names.create_task, (cycle,), Some(&keywords))
        } else {
            // Before 3.11 a task always copies the current context; a double knows no keyword.
            context.call_method1(&names.run, (event_loop.getattr(&names.create_task)?, cycle))
        };
        Ok((task?, None))
    }

    /// Whether the connection is to become a WebSocket; log why not.
    fn wants_websocket(&self, py: Python<'_>, websocket: bool, body: BodyLength) -> PyResult<bool> {
        let websocket = websocket && body == BodyLength::None;
        if websocket && !self.core.ws_protocol_class.is_none(py) {
            return Ok(true);
        }
        self.core.warn(py, "Unsupported upgrade request.")?;
        if websocket {
            self.core.warn(
                py,
                "No supported WebSocket library detected. Please use \"pip install 'uvicorn[standard]'\", or install \
                 'websockets' or 'wsproto' manually.",
            )?;
        }
        Ok(false)
    }

    /// Give the connection to the WebSocket protocol, with the handshake as it was sent and what is behind it.
    fn hand_over(&self, py: Python<'_>, input: &[u8]) -> PyResult<()> {
        let core = &self.core;
        let names = &core.names;
        self.trace(py, "%sUpgrading to WebSocket")?;
        self.flush(py)?;
        self.resume_reading(py)?;
        self.release(py)?;
        let Some(transport) = self.transport(py) else { return Ok(()) };
        let transport = transport.bind(py);
        self.closed.set(true);
        self.state.borrow_mut().deadline = None;
        if let Some(slot) = self.slot.take() {
            core.deadlines.remove(slot);
        }
        let keywords = PyDict::new(py);
        keywords.set_item("config", &core.config)?;
        keywords.set_item("server_state", &core.state)?;
        keywords.set_item("app_state", &self.app_state)?;
        let protocol = core.ws_protocol_class.bind(py).call((), Some(&keywords))?;
        protocol.call_method1(&names.connection_made, (transport,))?;
        self.forget(py)?;
        transport.call_method1(&names.set_protocol, (&protocol,))?;
        protocol.call_method1(&names.data_received, (PyBytes::new(py, input),))?;
        let transport = self.transport.borrow_mut().take();
        drop(transport);
        Ok(())
    }

    /// Take the protocol object out of the live connections.
    fn forget(&self, py: Python<'_>) -> PyResult<()> {
        let protocol = self.protocol.borrow_mut().take();
        match protocol {
            Some(protocol) => {
                self.core.connections.bind(py).call_method1(&self.core.names.discard, (protocol,)).map(drop)
            }
            None => Ok(()),
        }
    }

    /// Answer in the application's place, and end the connection.
    #[cold]
    fn refuse(&self, py: Python<'_>, refusal: &Refusal) -> PyResult<()> {
        let Refusal { status, reason } = refusal;
        let phrase = wire::h1::response::reason(*status);
        let text = if *status == 400 {
            self.core.warn(py, "Invalid HTTP request received.")?;
            "Invalid HTTP request received."
        } else {
            self.core.warn(py, &format!("Request refused with {status} {phrase}: {reason}."))?;
            phrase
        };
        let exchange = self.state.borrow().exchange.clone();
        match exchange {
            Some(exchange) if !matches!(exchange.state(), ExchangeState::Idle | ExchangeState::Complete) => {
                self.abort_response(py, &exchange)
            }
            _ => {
                self.say(py, *status, text)?;
                self.end(py, true)
            }
        }
    }

    /// Write a response of the server's own, after which the connection ends.
    fn say(&self, py: Python<'_>, status: u16, text: &str) -> PyResult<()> {
        self.prepare(py, status, text)?;
        self.flush(py)
    }

    /// Encode a response of the server's own; where it begins in the output.
    fn prepare(&self, py: Python<'_>, status: u16, text: &str) -> PyResult<usize> {
        let core = &self.core;
        core.default_head.refresh(core.state.bind(py), &core.names)?;
        let mut state = self.state.borrow_mut();
        let State { wire, out, .. } = &mut *state;
        if out.capacity() == 0 {
            *out = core.buffers.take();
        }
        let begin = out.len();
        let limits = &core.settings.limits;
        core.default_head.with(|lines| wire.refuse(out, limits, status, lines, text.as_bytes())).map_err(exception)?;
        Ok(begin)
    }

    /// The application of `exchange` failed before it started its response.
    pub(crate) fn fail(&self, py: Python<'_>, exchange: &Exchange, status: u16, text: &str) -> PyResult<()> {
        if !self.is_current(exchange) {
            return Ok(());
        }
        if let Some(access) = &self.core.access {
            access.record(py, self, exchange.scope.bind(py), status)?;
        }
        let begin = self.prepare(py, status, text)?;
        self.log_answer(py, exchange, status, begin);
        self.flush(py)?;
        self.core.request_complete(py)?;
        let unread = self.state.borrow().wire.deadline_hint() == Deadline::Discard;
        self.end(py, unread)
    }

    /// Let the access log, if it has a format of the user's, know of the whole response that begins at `begin`.
    fn log_answer(&self, py: Python<'_>, exchange: &Exchange, status: u16, begin: usize) {
        let Some(log) = &self.core.formatted else { return };
        let (head, body) = {
            let state = self.state.borrow();
            let answer = state.out.get(begin..).unwrap_or_default();
            let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").map_or(answer.len(), |at| at + 4);
            let (head, body) = answer.split_at(end);
            (log.keep(head), body.len())
        };
        log.answer(py, exchange, status, head, body);
    }

    fn is_current(&self, exchange: &Exchange) -> bool {
        self.state.borrow().exchange.as_ref().is_some_and(|current| std::ptr::eq(&raw const **current, exchange))
    }

    // What an exchange asks for.

    /// Encode the head, which waits for the first piece of the body; and log the response.
    pub(crate) fn start_response(&self, py: Python<'_>, exchange: &Exchange, message: &Message<'_>) -> PyResult<()> {
        let core = &self.core;
        let names = &core.names;
        let status = final_status(message.status(names)?)?;
        core.default_head.refresh(core.state.bind(py), names)?;
        let mut out = {
            let mut state = self.state.borrow_mut();
            if state.out.capacity() == 0 { core.buffers.take() } else { std::mem::take(&mut state.out) }
        };
        let held = out.len();
        let encoded = self.encode_head(&mut out, status, message.headers.as_ref());
        if encoded.is_err() {
            out.truncate(held);
        }
        let mut state = self.state.borrow_mut();
        // Iterating over headers may run code that writes; that stays in front.
        let early = std::mem::replace(&mut state.out, out);
        if !early.is_empty() {
            state.out.splice(0..0, early);
        }
        encoded?;
        state.held = Some(held);
        drop(state);
        if let Some(access) = &core.access {
            return access.record(py, self, exchange.scope.bind(py), status);
        }
        self.log_start(py, exchange, status);
        Ok(())
    }

    /// Let the access log, if it has a format of the user's, know of the response whose head is held.
    fn log_start(&self, py: Python<'_>, exchange: &Exchange, status: u16) {
        let Some(log) = &self.core.formatted else { return };
        let (head, bodiless) = {
            let state = &mut *self.state.borrow_mut();
            let head = state.held.and_then(|held| state.out.get(held..)).unwrap_or_default();
            (log.keep(head), state.wire.body().is_ok_and(|body| body.framing() == Framing::None))
        };
        log.start(py, exchange, status, head, bodiless);
    }

    fn encode_head(&self, out: &mut Vec<u8>, status: u16, headers: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let writer = {
            let state = self.state.borrow();
            self.core.default_head.with(|lines| state.wire.start_response(out, status, lines))
        };
        let mut writer = writer.map_err(exception)?;
        if let Some(headers) = headers {
            let mut add = |header: &Bound<'_, PyAny>| {
                with_pair(header, |name, value| writer.field(out, name, value).map_err(exception))
            };
            if let Ok(headers) = headers.cast_exact::<PyList>() {
                for header in headers.iter() {
                    add(&header)?;
                }
            } else {
                for header in headers.try_iter()? {
                    add(&header?)?;
                }
            }
        }
        self.state.borrow_mut().wire.finish_head(writer, out, None).map_err(exception)
    }

    /// Write a piece of the body, behind the head if that still waits.
    pub(crate) fn send_body(&self, py: Python<'_>, body: Option<&Bound<'_, PyAny>>, more_body: bool) -> PyResult<()> {
        let large = match body {
            None => false,
            Some(body) => match body.cast::<PyBytes>() {
                Ok(body) => self.append_body(body.as_bytes(), more_body)?,
                Err(_) => self.append_body(PyBytes::new(py, &bytes_of(body)?).as_bytes(), more_body)?,
            },
        };
        if large && let Some(body) = body {
            self.flush(py)?;
            self.write_object(py, body)?;
            let state = &mut *self.state.borrow_mut();
            if state.out.capacity() == 0 {
                state.out = self.core.buffers.take();
            }
            let State { wire, out, .. } = state;
            wire.body().map_err(exception)?.end_part(out);
        }
        if !more_body {
            let state = &mut *self.state.borrow_mut();
            if state.out.capacity() == 0 {
                state.out = self.core.buffers.take();
            }
            let State { wire, out, .. } = state;
            let limits = &self.core.settings.limits;
            wire.finish(out, limits).map_err(exception)?;
        }
        if self.consuming.get() && self.state.borrow().out.len() <= HIGH_WATER { Ok(()) } else { self.flush(py) }
    }

    /// Append `data` to the output; `true` if it is large and only what stands in front of it was appended. A wrong length
    /// leaves everything as it was, so that a head that still waits is never sent.
    #[inline]
    fn append_body(&self, data: &[u8], more_body: bool) -> PyResult<bool> {
        let state = &mut *self.state.borrow_mut();
        if state.out.capacity() == 0 {
            state.out = self.core.buffers.take();
        }
        let State { wire, out, held, .. } = state;
        let body = wire.body().map_err(exception)?;
        if !more_body {
            body.check_end(data.len() as u64).map_err(exception)?;
        }
        let large = data.len() > HIGH_WATER;
        let begun = if large { body.begin_part(out, data.len()) } else { body.write(out, data).map(|()| false) };
        let begun = begun.map_err(exception)?;
        *held = None;
        Ok(begun)
    }

    /// Write `100 Continue`: the application asks for the body. Once per request that expects it, and also when the body
    /// is there already.
    pub(crate) fn send_continue(&self, py: Python<'_>) -> PyResult<()> {
        {
            let state = &mut *self.state.borrow_mut();
            if state.out.capacity() == 0 {
                state.out = self.core.buffers.take();
            }
            let State { wire, out, .. } = state;
            if !wire.send_continue(out) {
                out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            }
        }
        self.restart_body_deadline(py)?;
        if self.consuming.get() { Ok(()) } else { self.flush(py) }
    }

    /// The application waits for more of the request body.
    pub(crate) fn want_body(&self, py: Python<'_>) -> PyResult<()> {
        if self.read_paused.get() && self.state.borrow().wire.deadline_hint() == Deadline::Body {
            self.resume_reading(py)?;
            return self.restart_body_deadline(py);
        }
        Ok(())
    }

    /// The client may send again, and has its whole time for it.
    fn restart_body_deadline(&self, py: Python<'_>) -> PyResult<()> {
        {
            let mut state = self.state.borrow_mut();
            if state.waits_for == Deadline::Body {
                state.waits_for = Deadline::None;
            }
        }
        self.update_deadline(py)
    }

    /// The response is complete: go on with the next request, or close.
    pub(crate) fn finish(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.core.request_complete(py)?;
        self.state.borrow_mut().held = None;
        if self.consuming.get() {
            return Ok(());
        }
        self.flush(py)?;
        self.after_exchange(py, true)
    }

    /// Do what the state of the connection asks for once something was completed or consumed.
    fn after_exchange(self: &Rc<Self>, py: Python<'_>, consumed_all: bool) -> PyResult<()> {
        if self.closed.get() || self.lingering.get() {
            return Ok(());
        }
        let over = {
            let mut state = self.state.borrow_mut();
            let next = state.wire.deadline_hint() != Deadline::None || state.wire.is_closed();
            state.exchange.take_if(|exchange| next && exchange.state() == ExchangeState::Complete)
        };
        self.retire(py, over);
        let hint = {
            let state = self.state.borrow();
            let hint = state.wire.deadline_hint();
            if state.wire.is_closed() {
                let unread = !state.pending.is_empty() || !consumed_all || state.waits_for == Deadline::Discard;
                drop(state);
                return self.end(py, unread);
            }
            if hint == Deadline::Discard && state.wire.is_closing() {
                drop(state);
                return self.end(py, true);
            }
            hint
        };
        if matches!(hint, Deadline::Idle | Deadline::Head | Deadline::Discard) && self.state.borrow().exchange.is_none()
        {
            if !self.consuming.get() {
                self.resume_reading(py)?;
                let buffer = std::mem::take(&mut self.state.borrow_mut().pending);
                if !buffer.is_empty() && consumed_all && !self.resume_scheduled.get() {
                    return self.consume_buffer(py, buffer, false);
                }
                if !buffer.is_empty() {
                    self.state.borrow_mut().pending = buffer;
                }
            }
            if self.eof.get() && consumed_all && !self.resume_scheduled.get() {
                return self.end(py, false);
            }
        }
        self.update_deadline(py)
    }

    /// End a response that cannot be completed, so that the client notices.
    pub(crate) fn abort_response(&self, py: Python<'_>, exchange: &Exchange) -> PyResult<()> {
        if !self.is_current(exchange) {
            return Ok(());
        }
        let looks_complete = {
            let mut state = self.state.borrow_mut();
            let begun = state.held.is_none();
            if let Some(held) = state.held.take() {
                state.out.truncate(held);
            }
            begun
                && matches!(exchange.state(), ExchangeState::Started | ExchangeState::Sending)
                && state.wire.body().is_ok_and(|body| body.framing() == Framing::CloseDelimited)
        };
        if looks_complete && let Some(transport) = self.transport(py) {
            // Closing would look like the regular end of the body (RFC 9112 section 8): reset instead.
            py.import("uvicorn.protocols.http.protocol")?.call_method1("reset_on_close", (transport,))?;
        }
        self.end(py, false)
    }

    // Writing and closing.

    /// Write what may be written: everything in front of a head that still waits for its body.
    pub(super) fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let (out, rest) = {
            let mut state = self.state.borrow_mut();
            let length = state.held.unwrap_or(state.out.len());
            if length == 0 {
                if state.out.is_empty() && state.out.capacity() > 0 {
                    let out = std::mem::take(&mut state.out);
                    drop(state);
                    self.core.buffers.give(out);
                }
                return Ok(());
            }
            let mut out = std::mem::take(&mut state.out);
            let rest = if length < out.len() { out.split_off(length) } else { Vec::new() };
            if state.held.is_some() {
                state.held = Some(0);
            }
            (out, rest)
        };
        if !rest.is_empty() {
            self.state.borrow_mut().out = rest;
        }
        let written = self.write(py, &out);
        self.core.buffers.give(out);
        written
    }

    /// Whether bytes may go straight to the socket: nothing waits in the transport, and it is not closing.
    #[inline]
    fn direct(&self, py: Python<'_>) -> PyResult<Option<i32>> {
        let Some(descriptor) = self.descriptor.get() else { return Ok(None) };
        if self.closed.get() {
            return Ok(None);
        }
        let Some(transport) = self.transport(py) else { return Ok(None) };
        let transport = transport.bind(py);
        let names = &self.core.names;
        // Inside data_received the transport is known to be open: it has just called us. At any other time the socket
        // may have been closed under it, and its number may already belong to another connection.
        if !self.consuming.get() && transport.call_method0(&names.is_closing)?.is_truthy()? {
            return Ok(None);
        }
        if self.buffered.get() {
            let waiting: usize = transport.call_method0(&names.get_write_buffer_size)?.extract()?;
            if waiting > 0 {
                return Ok(None);
            }
            self.buffered.set(false);
        }
        Ok(Some(descriptor))
    }

    fn write(&self, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        self.core.rehearsal.happen_in("write");
        let sent = match self.direct(py)? {
            // Any error, a full socket included, is found again by the transport, which knows what to do about it.
            Some(descriptor) => ffi::send(descriptor, data).unwrap_or(0),
            None => 0,
        };
        match data.get(sent..) {
            Some(rest) if !rest.is_empty() => self.write_to_transport(py, PyBytes::new(py, rest).as_any()),
            _ => Ok(()),
        }
    }

    /// Write a large object without a copy of it.
    pub(super) fn write_object(&self, py: Python<'_>, body: &Bound<'_, PyAny>) -> PyResult<()> {
        let Ok(bytes) = body.cast::<PyBytes>() else { return self.write_to_transport(py, body) };
        let sent = match self.direct(py)? {
            Some(descriptor) => ffi::send(descriptor, bytes.as_bytes()).unwrap_or(0),
            None => 0,
        };
        if sent == 0 {
            self.write_to_transport(py, body)
        } else if sent < bytes.as_bytes().len() {
            let view = pyo3::types::PyMemoryView::from(body)?;
            let rest = view.get_item(pyo3::types::PySlice::new(py, sent.cast_signed(), isize::MAX, 1))?;
            self.write_to_transport(py, &rest)
        } else {
            Ok(())
        }
    }

    fn write_to_transport(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        self.buffered.set(true);
        match self.transport(py) {
            Some(transport) => transport.bind(py).call_method1(&self.core.names.write, (data,)).map(drop),
            None => Ok(()),
        }
    }

    fn pause_reading(&self, py: Python<'_>) -> PyResult<()> {
        if self.read_paused.replace(true) {
            return Ok(());
        }
        self.state.borrow_mut().deadline = None;
        if self.adopted.get() { Ok(()) } else { self.on_transport(py, &self.core.names.pause_reading) }
    }

    /// Read from the socket again.
    fn resume_reading(&self, py: Python<'_>) -> PyResult<()> {
        if !self.read_paused.replace(false) || self.closed.get() || self.eof.get() {
            return Ok(());
        }
        if !self.adopted.get() {
            return self.have_transport_read(py);
        }
        if let (Some(descriptor), Some(slot)) = (self.descriptor.get(), self.slot.get())
            && !self.is_transport_closing(py)?
        {
            self.core.reader.rewatch(descriptor, slot);
        }
        Ok(())
    }

    /// In the server's context, because the loop reads on in that of whoever resumes, and a request's would live as long
    /// as the connection.
    fn have_transport_read(&self, py: Python<'_>) -> PyResult<()> {
        let Some(transport) = self.transport(py) else { return Ok(()) };
        let resume = transport.bind(py).getattr(&self.core.names.resume_reading)?;
        self.core.context.bind(py).call_method1(&self.core.names.run, (resume,)).map(drop)
    }

    /// Close once everything is written; with `linger` only after the peer had a chance to read it.
    fn end(&self, py: Python<'_>, linger: bool) -> PyResult<()> {
        self.flush(py)?;
        let names = &self.core.names;
        let exchange = {
            let mut state = self.state.borrow_mut();
            state.pending = Vec::new();
            state.exchange.take()
        };
        if let Some(exchange) = exchange {
            exchange.disconnect(py, false)?;
            // Whoever waits to send has nothing to wait for.
            self.resume_writing(py)?;
        }
        let Some(transport) = self.transport(py) else { return Ok(()) };
        let transport = transport.bind(py);
        if linger
            && self.core.real_loop
            && !self.eof.get()
            && !self.secure.get()
            && !transport.call_method0(&names.is_closing)?.is_truthy()?
            && transport.call_method0(&names.can_write_eof)?.is_truthy()?
        {
            // Closing with unread input makes the kernel reset the connection, and the peer may lose the answer.
            self.lingering.set(true);
            transport.call_method0(&names.write_eof)?;
            self.resume_reading(py)?;
            self.state.borrow_mut().deadline = Some(Instant::now() + LINGER);
            return self.watch(py);
        }
        self.closed.set(true);
        self.descriptor.set(None);
        self.state.borrow_mut().deadline = None;
        transport.call_method0(&names.close).map(drop)
    }

    pub(crate) fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.closed.set(true);
        self.descriptor.set(None);
        self.on_transport(py, &self.core.names.abort)
    }

    /// Cut the connection off after a panic, without a look at what it was doing.
    #[cold]
    pub(crate) fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(slot) = self.slot.take() {
            self.core.deadlines.remove(slot);
        }
        self.write_paused.set(false);
        let aborted = self.abort(py);
        let (exchange, writers) = {
            let mut state = self.state.borrow_mut();
            (state.exchange.take(), std::mem::take(&mut state.writers))
        };
        if let Some(exchange) = exchange {
            exchange.disconnect(py, false)?;
        }
        wake_all(py, self, writers)?;
        self.forget(py).and(aborted)
    }

    /// The next response is the last, and says so; nothing else changes.
    fn announce_close(&self) {
        self.state.borrow_mut().wire.announce_close();
    }

    /// The server stops: close now if idle, otherwise when the response is complete.
    fn shutdown(&self, py: Python<'_>) -> PyResult<()> {
        let busy = {
            let mut state = self.state.borrow_mut();
            state.wire.shutdown();
            state.exchange.as_ref().is_some_and(|exchange| exchange.state() != ExchangeState::Complete)
        };
        if busy { Ok(()) } else { self.end(py, false) }
    }

    /// Tell the application that its client is gone, while its response can still be sent.
    fn disconnect(&self, py: Python<'_>) -> PyResult<()> {
        let exchange = self.state.borrow().exchange.clone();
        exchange.map_or(Ok(()), |exchange| exchange.disconnect(py, true))
    }

    // Deadlines.

    /// Set the deadline of what the connection waits for now, if that has changed.
    fn update_deadline(&self, py: Python<'_>) -> PyResult<()> {
        self.update_deadline_in_place();
        self.watch(py)
    }

    fn update_deadline_in_place(&self) {
        let settings = &self.core.settings;
        let state = &mut *self.state.borrow_mut();
        let hint = state.wire.deadline_hint();
        if hint == state.waits_for {
            return;
        }
        let after = match hint {
            Deadline::Idle if self.first.get() => settings.timeout_request_head,
            Deadline::Idle => Some(settings.timeout_keep_alive),
            Deadline::Head if self.first.get() && state.deadline.is_some() => {
                // The first request's deadline has run since the connection was made.
                state.waits_for = hint;
                return;
            }
            Deadline::Head => settings.timeout_request_head,
            // Nobody is late with a body that is not read, that he was not told to send, or that cannot come.
            Deadline::Body if self.read_paused.get() || self.eof.get() || state.wire.awaits_continue() => None,
            Deadline::Body | Deadline::Discard => settings.timeout_request_body,
            Deadline::None => None,
        };
        state.waits_for = hint;
        state.deadline = after.map(|after| Instant::now() + after);
    }

    fn extend_deadline(&self, bytes: usize) {
        let state = &mut *self.state.borrow_mut();
        if let Some(deadline) = &mut state.deadline
            && state.waits_for == Deadline::Body
        {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            *deadline += Duration::from_secs(1) * bytes / BODY_BYTES_PER_SECOND;
        }
    }

    /// See to it that the timer fires in time for the deadline.
    #[inline]
    fn watch(&self, py: Python<'_>) -> PyResult<()> {
        match self.deadline() {
            Some(deadline) if !self.core.deadlines.covers(deadline) => {
                idle::arm(&self.core, self.server.bind(py), deadline)
            }
            _ => Ok(()),
        }
    }

    /// The deadline has passed.
    pub(crate) fn expire(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        let (hint, begun) = {
            let mut state = self.state.borrow_mut();
            state.deadline = None;
            (state.wire.deadline_hint(), state.wire.deadline_hint() == Deadline::Head)
        };
        if self.lingering.get() {
            return self.abort(py);
        }
        let settings = &self.core.settings;
        match hint {
            Deadline::Head if begun => self.refuse(py, &timeout("head", settings.timeout_request_head)),
            Deadline::Body => self.refuse(py, &timeout("body", settings.timeout_request_body)),
            Deadline::Discard => self.end(py, true),
            _ => self.end(py, false),
        }
    }
}

fn timeout(part: &str, seconds: Option<Duration>) -> Refusal {
    let seconds = seconds.unwrap_or_default().as_secs_f64();
    Refusal { status: 408, reason: format!("{part} not complete within timeout_request_{part} ({seconds} s)") }
}

/// Whether the transport is one whose socket can be written to beside it: uvloop's and asyncio's own, without TLS.
fn has_plain_socket(transport: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = transport.get_type();
    let module: String = class.module()?.to_string();
    let name: String = class.name()?.to_string();
    Ok(matches!(
        (module.as_str(), name.as_str()),
        ("uvloop.loop", "TCPTransport" | "UnixTransport") | ("asyncio.selector_events", "_SelectorSocketTransport")
    ))
}

fn final_status(status: &Bound<'_, PyAny>) -> PyResult<u16> {
    if !status.is_instance_of::<pyo3::types::PyInt>() {
        let text = format!("The status of a response must be an int, got {}.", status.repr()?);
        return Err(PyTypeError::new_err(text));
    }
    match status.extract::<u16>() {
        Ok(code @ 200..=599) => Ok(code),
        _ => Err(PyRuntimeError::new_err(format!("Invalid HTTP status code '{}' in response.", status.str()?))),
    }
}

/// Use the two byte strings of a header, a tuple or any other sequence of two.
#[inline]
pub(super) fn with_pair<R>(
    header: &Bound<'_, PyAny>,
    use_pair: impl FnOnce(&[u8], &[u8]) -> PyResult<R>,
) -> PyResult<R> {
    if let Ok(pair) = header.cast_exact::<PyTuple>()
        && let [name, value] = pair.as_slice()
    {
        return with_bytes(name, value, use_pair);
    }
    let (name, value) = header.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>().or_else(|_| {
        let items: Vec<Bound<'_, PyAny>> = header.try_iter()?.collect::<PyResult<_>>()?;
        match <[_; 2]>::try_from(items) {
            Ok([name, value]) => Ok((name, value)),
            Err(_) => Err(PyValueError::new_err("A header must be a pair of name and value.")),
        }
    })?;
    with_bytes(&name, &value, use_pair)
}

#[inline]
fn with_bytes<R>(
    name: &Bound<'_, PyAny>,
    value: &Bound<'_, PyAny>,
    use_pair: impl FnOnce(&[u8], &[u8]) -> PyResult<R>,
) -> PyResult<R> {
    if let (Ok(name), Ok(value)) = (name.cast::<PyBytes>(), value.cast::<PyBytes>()) {
        return use_pair(name.as_bytes(), value.as_bytes());
    }
    let text = format!("Header names and values must be bytes, got {}: {}.", name.repr()?, value.repr()?);
    Err(PyTypeError::new_err(text))
}

/// The bytes of a bytes-like object.
fn bytes_of(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let bytes = pyo3::types::PyMemoryView::from(object)?.call_method0("tobytes")?;
    Ok(bytes.cast_into::<PyBytes>()?.as_bytes().to_vec())
}

/// Goes on with pipelined requests in a later turn of the loop.
#[pyclass(module = "uvicorn._native", frozen)]
struct Resume {
    connection: ThreadBound<Rc<Connection>>,
}

#[pymethods]
impl Resume {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        guard(py, &self.connection, "resume", |connection| connection.resume(py))
    }
}

/// An asyncio protocol that serves HTTP/1.1 requests to an ASGI application.
///
/// `HTTPProtocol(server, app_state)`: `server` is shared by the connections of one event loop.
#[pyclass(module = "uvicorn._native", frozen, subclass, weakref)]
pub struct HTTPProtocol {
    connection: ThreadBound<Rc<Connection>>,
}

#[pymethods]
impl HTTPProtocol {
    #[new]
    fn new(server: &Bound<'_, Server>, app_state: Py<PyDict>) -> Self {
        let core = (*server.get().core).clone();
        let connection = Rc::new(Connection::new(core, server.clone().unbind(), app_state));
        Self { connection: ThreadBound::new(connection) }
    }

    /// A client has connected.
    fn connection_made(slf: &Bound<'_, Self>, transport: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let connection = (*slf.get().connection).clone();
        connection.protocol.replace(Some(slf.clone().into_any().unbind()));
        connection.transport.replace(Some(transport.clone().unbind()));
        guard(py, &connection, "connection_made", |connection| {
            connection.core.connections.bind(py).call_method1(&connection.core.names.add, (slf,))?;
            connection.connection_made(transport)
        })
    }

    /// The connection is gone, for whatever reason.
    fn connection_lost(slf: &Bound<'_, Self>, _error: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let connection = (*slf.get().connection).clone();
        guard(py, &connection, "connection_lost", |connection| {
            connection.forget(py)?;
            connection.connection_lost(py)
        })
    }

    /// Bytes from the client.
    fn data_received(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = data.py();
        guard(py, &self.connection, "data_received", |connection| {
            let is_second = !connection.first.get();
            match data.cast::<PyBytes>() {
                Ok(data) => connection.data_received(py, data.as_bytes())?,
                Err(_) => connection.data_received(py, &bytes_of(data)?)?,
            }
            if is_second { connection.adopt(py) } else { Ok(()) }
        })
    }

    /// The client has nothing more to send; it may still read. Returns whether the connection stays open.
    fn eof_received(&self, py: Python<'_>) -> PyResult<bool> {
        guard(py, &self.connection, "eof_received", |connection| connection.eof_received(py))
    }

    /// The transport's buffer is above its high-water mark.
    fn pause_writing(&self) {
        self.connection.write_paused.set(true);
    }

    /// The transport's buffer is low again.
    fn resume_writing(&self, py: Python<'_>) -> PyResult<()> {
        guard(py, &self.connection, "resume_writing", |connection| connection.resume_writing(py))
    }

    /// The next response is the last, and says so; nothing else changes.
    fn announce_close(&self) {
        self.connection.announce_close();
    }

    /// The server stops: close now if idle, otherwise when the response is complete.
    fn shutdown(&self, py: Python<'_>) -> PyResult<()> {
        guard(py, &self.connection, "shutdown", |connection| connection.shutdown(py))
    }

    /// Tell the application that its client is gone, while its response can still be sent.
    fn disconnect(&self, py: Python<'_>) -> PyResult<()> {
        guard(py, &self.connection, "disconnect", |connection| connection.disconnect(py))
    }

    /// The connection's transport, `None` before and after its life.
    #[getter]
    fn transport(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.connection.core.reader.transports_lent.set(true);
        self.connection.transport(py)
    }

    /// The peer's address.
    #[getter]
    fn client(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.connection.client.borrow().as_ref().map(|client| client.clone_ref(py))
    }

    /// The event loop.
    #[getter]
    fn r#loop(&self, py: Python<'_>) -> Py<PyAny> {
        self.connection.core.event_loop.clone_ref(py)
    }

    /// The configuration.
    #[getter]
    fn config(&self, py: Python<'_>) -> Py<PyAny> {
        self.connection.core.config.clone_ref(py)
    }

    /// The scope of the request being answered, `None` between requests.
    #[getter]
    fn scope(&self, py: Python<'_>) -> Option<Py<PyDict>> {
        self.connection.state.borrow().exchange.as_ref().map(|exchange| exchange.scope.clone_ref(py))
    }

    /// The class that takes over on an upgrade to WebSocket.
    #[getter]
    fn ws_protocol_class(&self, py: Python<'_>) -> Py<PyAny> {
        self.connection.core.ws_protocol_class.clone_ref(py)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let connection = self.connection.for_collector();
        visit.call(&connection.server)?;
        visit.call(&connection.app_state)?;
        for object in [&connection.transport, &connection.protocol] {
            if let Ok(object) = object.try_borrow() {
                visit.call(&*object)?;
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        let Some(connection) = self.connection.if_here() else { return };
        for object in [&connection.transport, &connection.protocol] {
            let object = object.borrow_mut().take();
            drop(object);
        }
    }
}
