//! What the connections of one event loop share: settings, names, pools, the clock, counters.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyString, PyType};

use crate::access::format::FormattedLog;
use crate::access::{AccessLog, Lines};
use crate::awaitable::SpareCall;
use crate::clock::DefaultHead;
use crate::conn::Reactor;
use crate::conn::reactor::AfterTurn;
use crate::connections::Connections;
use crate::error::{Rehearsal, guard_server};
use crate::ffi::ThreadBound;
use crate::http::cycle::SpareCycles;
use crate::http::idle::Deadlines;
use crate::http::protocol::HTTPProtocol;
use crate::http::scope::ScopeTemplate;
use crate::level::Level;
use crate::names::Names;
use crate::pool::{BufferPool, SpareScratch};
use crate::settings::Settings;
use crate::task::{EagerCall, Reentrance};

const TRACE: u8 = 5;
const DEBUG: u8 = 10;

/// Shared by reference counting inside one thread; nothing in it may be borrowed across a call into Python.
pub(crate) struct Core {
    pub(crate) names: Names,
    pub(crate) response_start: KnownText,
    pub(crate) response_body: KnownText,
    pub(crate) settings: Settings,
    pub(crate) config: Py<PyAny>,
    pub(crate) event_loop: Py<PyAny>,
    /// Whether the loop can do more than `create_task` and `call_later`, which is all that a test's double can.
    pub(crate) real_loop: bool,
    pub(crate) state: Py<PyAny>,
    pub(crate) connections: Connections,
    pub(crate) tasks: Py<PyAny>,
    pub(crate) context: Py<PyAny>,
    pub(crate) new_context: Py<PyAny>,
    pub(crate) eager_call: EagerCall,
    pub(crate) reentrance: Reentrance,
    /// `utils.run_asgi` and `utils.result_of`
    pub(crate) run_asgi: Py<PyAny>,
    pub(crate) result_of: Py<PyAny>,
    /// Tasks can be started eagerly (3.12) and told their context (3.11).
    pub(crate) eager: bool,
    pub(crate) task_context: bool,
    pub(crate) logger: Py<PyAny>,
    /// Of that logger: of lines about single connections, and about requests that are refused.
    pub(crate) trace: Level,
    pub(crate) debug: Level,
    pub(crate) app: Py<PyAny>,
    /// What is behind the proxy headers middleware, which does nothing for a request without such headers.
    pub(crate) direct_app: Option<Py<PyAny>>,
    pub(crate) unavailable_app: Py<PyAny>,
    /// `files.send_file`
    pub(crate) send_file: Py<PyAny>,
    pub(crate) ws_protocol_class: Py<PyAny>,
    pub(crate) spare_call: SpareCall,
    pub(crate) scope: ScopeTemplate,
    pub(crate) default_head: DefaultHead,
    pub(crate) buffers: BufferPool,
    pub(crate) spare_cycles: SpareCycles,
    pub(crate) deadlines: Deadlines,
    /// `hang_up.HangUps`, for transports, once it is needed.
    hang_ups: RefCell<Option<Py<PyAny>>>,
    /// In whose turns the connections are served, if it is not by transports.
    reactor: RefCell<Option<Rc<Reactor>>>,
    /// The access lines are written when its turn ends.
    flushes_after_turn: Cell<bool>,
    /// The class of protocols that nobody has changed.
    untouched: RefCell<Option<Py<PyType>>>,
    pub(crate) rehearsal: Rehearsal,
    pub(crate) access: Option<AccessLog>,
    /// In place of `access`, if the user has a format.
    pub(crate) formatted: Option<FormattedLog>,
    pub(crate) scratch: SpareScratch,
    /// Written here only; read in any thread.
    total_requests: Arc<AtomicU64>,
    pub(crate) request_limit: Cell<Option<u64>>,
    pub(crate) last_server_address: RefCell<Option<(Py<PyAny>, Py<PyAny>)>>,
}

impl Core {
    fn new(config: &Bound<'_, PyAny>, state: &Bound<'_, PyAny>, event_loop: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = config.py();
        let asyncio = py.import("asyncio")?;
        let names = Names::new(py)?;
        let settings = Settings::from_config(config)?;
        let app = config.getattr("loaded_app")?;
        let middleware = py.import("uvicorn.middleware.proxy_headers")?.getattr("ProxyHeadersMiddleware")?;
        let direct_app = if app.get_type().is(&middleware) { Some(app.getattr("app")?.unbind()) } else { None };
        let real_loop = event_loop.is_instance(&asyncio.getattr("AbstractEventLoop")?)?;
        let version = py.version_info();
        let task_class = asyncio.getattr("Task")?.cast_into::<PyType>()?;
        let access = AccessLog::new(config, event_loop)?;
        let formatted = FormattedLog::new(config, event_loop)?;
        let utils = py.import("uvicorn.protocols.utils")?;
        let logger = py.import("logging")?.call_method1("getLogger", ("uvicorn.error",))?;
        Ok(Self {
            run_asgi: utils.getattr("run_asgi")?.unbind(),
            result_of: utils.getattr("result_of")?.unbind(),
            response_start: KnownText::new(py, "http.response.start"),
            response_body: KnownText::new(py, "http.response.body"),
            scope: ScopeTemplate::new(config, &settings, &names)?,
            config: config.clone().unbind(),
            event_loop: event_loop.clone().unbind(),
            real_loop,
            connections: Connections::new(&state.getattr("connections")?)?,
            tasks: state.getattr("tasks")?.unbind(),
            context: state.getattr("context")?.unbind(),
            new_context: py.import("contextvars")?.getattr("Context")?.unbind(),
            eager_call: EagerCall::new(&task_class, event_loop, &names, settings.poison)?,
            reentrance: Reentrance::of(event_loop)?,
            eager: real_loop && version >= (3, 12),
            task_context: version >= (3, 11),
            trace: Level::new(&logger, TRACE)?,
            debug: Level::new(&logger, DEBUG)?,
            logger: logger.unbind(),
            app: app.unbind(),
            direct_app,
            unavailable_app: py.import("uvicorn.protocols.http.flow_control")?.getattr("service_unavailable")?.unbind(),
            send_file: py.import("uvicorn.protocols.http.files")?.getattr("send_file")?.unbind(),
            ws_protocol_class: config.getattr("ws_protocol_class")?.unbind(),
            spare_call: SpareCall::new(settings.poison),
            default_head: DefaultHead::default(),
            buffers: BufferPool::new(settings.poison),
            spare_cycles: SpareCycles::new(settings.poison),
            deadlines: Deadlines::default(),
            hang_ups: RefCell::default(),
            reactor: RefCell::default(),
            flushes_after_turn: Cell::new(false),
            untouched: RefCell::default(),
            rehearsal: Rehearsal::default(),
            access,
            formatted,
            scratch: SpareScratch::new(settings.poison),
            total_requests: Arc::default(),
            request_limit: Cell::new(state.getattr("request_limit")?.extract()?),
            last_server_address: RefCell::new(None),
            state: state.clone().unbind(),
            names,
            settings,
        })
    }

    /// Who tells of the ends of connections that are not read.
    pub(crate) fn hang_ups<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(made) = &*self.hang_ups.borrow() {
            return Ok(made.bind(py).clone());
        }
        let class = py.import("uvicorn.protocols.http.hang_up")?.getattr("HangUps")?;
        let made = class.call1((&self.event_loop, &self.context))?;
        self.hang_ups.replace(Some(made.clone().unbind()));
        Ok(made)
    }

    /// Connections of ours are served in its turns.
    #[inline]
    pub(crate) fn share_turns_of(&self, reactor: &Rc<Reactor>) {
        if self.reactor.borrow().is_none() {
            self.reactor.replace(Some(reactor.clone()));
        }
    }

    /// Whether the lines of the access log will be written without asking the loop for a call.
    #[inline]
    pub(crate) fn will_flush_log(self: &Rc<Self>) -> bool {
        let reactor = self.reactor.borrow();
        let Some(reactor) = reactor.as_ref().filter(|reactor| reactor.is_running()) else { return false };
        if !self.flushes_after_turn.replace(true) {
            reactor.after_turn(self.clone());
        }
        true
    }

    /// Whether the class of `protocol` has our methods and no others: then nobody notices that they are not called.
    pub(crate) fn is_untouched(&self, protocol: &Bound<'_, PyAny>) -> PyResult<bool> {
        const CALLED: [&str; 6] =
            ["connection_made", "connection_lost", "data_received", "eof_received", "pause_writing", "resume_writing"];
        let class = protocol.get_type();
        if self.untouched.borrow().as_ref().is_some_and(|known| known.is(&class)) {
            return Ok(true);
        }
        let own = protocol.py().get_type::<HTTPProtocol>();
        for name in CALLED {
            if !class.getattr(name)?.is(own.getattr(name)?) {
                return Ok(false);
            }
        }
        self.untouched.replace(Some(class.unbind()));
        Ok(true)
    }

    /// The lines of the access log, if there is one.
    #[inline]
    fn lines(&self) -> Option<&Lines> {
        match (&self.access, &self.formatted) {
            (Some(access), _) => Some(&access.lines),
            (None, Some(formatted)) => Some(&formatted.lines),
            (None, None) => None,
        }
    }

    /// Write the access lines collected so far.
    pub(crate) fn flush_log(&self, py: Python<'_>) -> PyResult<()> {
        self.lines().map_or(Ok(()), |lines| lines.flush(py, &self.names))
    }

    /// A response is about to leave, if something does: its access line goes first, if that is free.
    #[inline]
    pub(crate) fn log_first(&self, py: Python<'_>, leaves: impl FnOnce() -> bool) -> PyResult<()> {
        let Some(lines) = self.lines() else { return Ok(()) };
        if !leaves() {
            return Ok(());
        }
        lines.precede(py, &self.names, || {
            let reactor = self.reactor.borrow();
            reactor.as_ref().filter(|reactor| reactor.is_running()).map(|reactor| reactor.serves_last())
        })
    }

    fn end_turn_of_log(&self, py: Python<'_>) -> PyResult<()> {
        self.lines().map_or(Ok(()), |lines| lines.end_turn(py, &self.names))
    }

    /// Log one line at WARNING.
    pub(crate) fn warn(&self, py: Python<'_>, text: &str) -> PyResult<()> {
        self.logger.bind(py).call_method1(&self.names.warning, (text,)).map(drop)
    }

    /// Count one completed response, and tell the server when the last one allowed was served.
    #[inline]
    pub(crate) fn request_complete(&self, py: Python<'_>) -> PyResult<()> {
        let total = self.total_requests.load(Ordering::Relaxed) + 1;
        self.total_requests.store(total, Ordering::Relaxed);
        if self.request_limit.get().is_some_and(|limit| total == limit) {
            self.state.bind(py).call_method0("request_limit_reached")?;
        }
        Ok(())
    }

    /// The address of this end, made once for connections that arrive at the same one.
    pub(crate) fn server_address(&self, address: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = address.py();
        let last = self.last_server_address.borrow().as_ref().map(|(_, made)| made.clone_ref(py));
        if let Some(made) = last
            && (made.is(address) || made.bind(py).eq(address)?)
        {
            return Ok(made);
        }
        let made = address.clone().unbind();
        *self.last_server_address.borrow_mut() = Some((made.clone_ref(py), made.clone_ref(py)));
        Ok(made)
    }
}

impl AfterTurn for Core {
    fn after_turn(&self, py: Python<'_>) -> PyResult<()> {
        self.flushes_after_turn.set(false);
        self.end_turn_of_log(py)
    }
}

/// What the native connections of one event loop share, as the Python side sees it.
#[pyclass(module = "uvicorn._native", frozen)]
pub struct Server {
    pub(crate) core: ThreadBound<Rc<Core>>,
    config: Py<PyAny>,
    total_requests: Arc<AtomicU64>,
}

#[pymethods]
impl Server {
    /// `Server(config, server_state, loop)`
    #[new]
    fn new(
        config: &Bound<'_, PyAny>,
        server_state: &Bound<'_, PyAny>,
        event_loop: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let core = Core::new(config, server_state, event_loop)?;
        let total_requests = core.total_requests.clone();
        Ok(Self { core: ThreadBound::new(Rc::new(core)), config: config.clone().unbind(), total_requests })
    }

    /// The configuration it was made from.
    #[getter]
    fn config(&self, py: Python<'_>) -> Py<PyAny> {
        self.config.clone_ref(py)
    }

    /// Completed responses.
    #[getter]
    fn total_requests(&self) -> u64 {
        self.total_requests.load(Ordering::Relaxed)
    }

    /// Figures of each pool: `created`, `reused`, `discarded`, `idle`, `in_use`.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let core = self.core.here()?;
        let stats = PyDict::new(py);
        for (pool, figures) in [("buffers", core.buffers.stats()), ("cycles", core.spare_cycles.stats())] {
            stats.set_item(pool, figures.into_py_dict(py)?)?;
        }
        Ok(stats)
    }

    /// Write the access lines collected so far.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.core.here()?;
        guard_server(py, core, "flush", || core.end_turn_of_log(py))
    }

    /// The access log of Python, if it has a format of the user's.
    #[getter]
    fn formatted(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        Ok(self.core.here()?.formatted.as_ref().map(|log| log.python().clone_ref(py)))
    }

    /// The server has ended: write what waits to be written, and sweep no more.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.core.here()?;
        guard_server(py, core, "close", || {
            core.deadlines.disarm(py, &core.names)?;
            let hang_ups = core.hang_ups.take();
            if let Some(hang_ups) = hang_ups {
                hang_ups.bind(py).call_method0("close")?;
            }
            core.flush_log(py)?;
            crate::ffi::bury();
            Ok(())
        })
    }

    /// Close the connections whose deadline has passed, and come back for the next.
    fn sweep(slf: &Bound<'_, Self>) -> PyResult<()> {
        let core = slf.get().core.here()?.clone();
        crate::ffi::bury();
        guard_server(slf.py(), &core, "sweep", || crate::http::idle::sweep(&core, slf))
    }

    /// Have so many seconds pass for the deadlines, and end what is over its own, to see what does.
    fn advance(slf: &Bound<'_, Self>, seconds: f64) -> PyResult<()> {
        let time = Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))?;
        slf.get().core.here()?.deadlines.advance(time);
        Self::sweep(slf)
    }

    /// Make the next call of an entry point panic, to see what that costs: `data_received`, `send`, `sweep` and so on; or
    /// the next `write`, in the middle of one.
    fn rehearse_panic(&self, entry: String) -> PyResult<()> {
        self.core.here()?.rehearsal.arm(entry);
        Ok(())
    }
}

/// An exact str for text that is known to be ASCII.
#[inline]
pub(crate) fn text<'py>(py: Python<'py>, ascii: &[u8]) -> Bound<'py, PyString> {
    PyString::new(py, std::str::from_utf8(ascii).unwrap_or_default())
}

/// Whether `left` and `right` are one object.
#[inline]
pub(crate) fn same<T>(left: &Bound<'_, PyAny>, right: &Py<T>) -> bool {
    left.as_ptr() == right.as_ptr()
}

/// A name that applications write as a constant of their own: equal to ours, but another object, and always the same one.
pub(crate) struct KnownText {
    name: Py<PyString>,
    last: RefCell<Option<Py<PyAny>>>,
}

impl KnownText {
    pub(crate) fn new(py: Python<'_>, text: &str) -> Self {
        Self { name: PyString::intern(py, text).unbind(), last: RefCell::new(None) }
    }

    /// Whether `value` is this text: the pointer settles it nearly always.
    #[inline]
    pub(crate) fn is(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        if same(value, &self.name) || self.last.borrow().as_ref().is_some_and(|last| same(value, last)) {
            return Ok(true);
        }
        self.compare(value)
    }

    #[cold]
    fn compare(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let equal = value.eq(&self.name)?;
        // Of a subclass a request could hang anything on it.
        if equal && value.is_exact_instance_of::<PyString>() {
            // Held, so that its address cannot come to mean another object.
            let old = self.last.borrow_mut().replace(value.clone().unbind());
            drop(old);
        }
        Ok(equal)
    }
}
