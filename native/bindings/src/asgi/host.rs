//! The state that the exchanges of one event loop share.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::access::entry::AccessLog;
use super::identity::Identity;
use super::tracing::Tracing;
use crate::base::error::guard_server;
use crate::base::ffi::thread_bound::ThreadBound;
use crate::base::home::Home;
use crate::base::objects::KnownText;
use crate::base::reuse::SpareObject;
use crate::base::shortcuts::Shortcut;
use crate::base::turns::{AfterTurn, Turns};

/// Shared by reference counting inside one thread; nothing in it may be borrowed across a call into Python.
pub(crate) struct Host {
    home: Rc<Home>,
    pub(crate) response_start: KnownText,
    pub(crate) response_body: KnownText,
    /// The Python `ServerState`.
    pub(crate) state: Py<PyAny>,
    pub(crate) tasks: Py<PyAny>,
    /// `utils.result_of`
    pub(crate) result_of: Py<PyAny>,
    /// `files.send_file`
    pub(crate) send_file: Py<PyAny>,
    /// A call of `receive` or `send` that is over.
    pub(crate) spare_calls: Rc<SpareObject>,
    pub(crate) access: AccessLog,
    /// Cancels calls of the application whose clients leave, if that is wanted: a `CancelOnDisconnect`.
    cancellation: Option<Py<PyAny>>,
    /// Chooses the ids of requests, if they are to have any.
    pub(crate) identity: Option<Identity>,
    /// Begins their spans, if they are traced.
    pub(crate) tracing: Option<Box<Tracing>>,
    /// In which connections are served, if it is not by transports.
    turns: RefCell<Option<Rc<dyn Turns>>>,
    /// The access lines are written when its turn ends.
    flushes_after_turn: Cell<bool>,
    /// Written here only; read in any thread.
    total_requests: Arc<AtomicU64>,
    request_limit: Option<u64>,
}

impl Deref for Host {
    type Target = Home;

    #[inline]
    fn deref(&self) -> &Home {
        &self.home
    }
}

impl Host {
    pub(crate) fn new(home: Rc<Home>, config: &Bound<'_, PyAny>, state: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = config.py();
        Ok(Self {
            response_start: KnownText::new(py, "http.response.start"),
            response_body: KnownText::new(py, "http.response.body"),
            state: state.clone().unbind(),
            tasks: state.getattr("tasks")?.unbind(),
            result_of: py.import("uvicorn.protocols.utils")?.getattr("result_of")?.unbind(),
            send_file: py.import("uvicorn.files.sending")?.getattr("send_file")?.unbind(),
            spare_calls: Rc::new(SpareObject::new(home.settings.reuse)),
            access: AccessLog::new(config, home.event_loop.bind(py))?,
            cancellation: {
                let found = state.call_method1("cancellation", (config, &home.event_loop))?;
                (!found.is_none()).then(|| found.unbind())
            },
            identity: Identity::new(config, state, home.settings.shortcuts.take(Shortcut::Texts))?,
            tracing: Tracing::of_state(state, &home)?.map(Box::new),
            turns: RefCell::default(),
            flushes_after_turn: Cell::new(false),
            total_requests: Arc::default(),
            request_limit: state.getattr("request_limit")?.extract()?,
            home,
        })
    }

    /// The application as it has to be called.
    pub(super) fn wrapped(&self, app: Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        match &self.cancellation {
            Some(cancellation) => cancellation.call_method1(app.py(), "wrap", (app.clone(),)),
            None => Ok(app.unbind()),
        }
    }

    /// The client of this request or WebSocket has left.
    #[inline]
    pub(crate) fn client_left(&self, py: Python<'_>, scope: &Py<PyDict>) -> PyResult<()> {
        match &self.cancellation {
            Some(cancellation) => cancellation.call_method1(py, "client_left", (scope,)).map(drop),
            None => Ok(()),
        }
    }

    /// A message of a response was dropped, because the client cannot be reached.
    #[cold]
    pub(super) fn dropped(&self, scope: &Py<PyDict>, message: &Bound<'_, PyAny>) -> PyResult<()> {
        match &self.cancellation {
            Some(cancellation) => cancellation.call_method1(message.py(), "dropped", (scope, message)).map(drop),
            None => Ok(()),
        }
    }

    /// Completed responses.
    pub(crate) fn total_requests(&self) -> Arc<AtomicU64> {
        self.total_requests.clone()
    }

    /// Count one completed response, and tell the server when the last one allowed was served.
    #[inline]
    pub(crate) fn request_complete(&self, py: Python<'_>) -> PyResult<()> {
        let total = self.total_requests.load(Ordering::Relaxed) + 1;
        self.total_requests.store(total, Ordering::Relaxed);
        if self.request_limit.is_some_and(|limit| total == limit) {
            self.state.bind(py).call_method0("request_limit_reached")?;
        }
        Ok(())
    }

    /// Connections are served in these turns, if in any.
    #[inline]
    pub(crate) fn share(&self, turns: impl FnOnce() -> Option<Rc<dyn Turns>>) {
        if self.turns.borrow().is_none() {
            self.turns.replace(turns());
        }
    }

    // The lines of the access log.

    /// Write the lines collected so far.
    pub(crate) fn flush_log(&self, py: Python<'_>) -> PyResult<()> {
        self.access.lines().map_or(Ok(()), |lines| lines.flush(py, &self.names))
    }

    /// Have them written when the loop gets to it, or the turn of connections ends.
    #[cold]
    pub(super) fn flush_log_later(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        if let Some(turns) = self.turns.borrow().as_ref().filter(|turns| turns.is_running()) {
            if !self.flushes_after_turn.replace(true) {
                turns.after_turn(self.clone());
            }
            return Ok(());
        }
        let flush = Py::new(py, Flush { host: ThreadBound::new(self.clone()) })?;
        self.event_loop.bind(py).call_method1(&self.names.call_soon, (flush,)).map(drop)
    }

    /// A response is about to leave, if something does: its access line goes first, if that is free.
    #[inline]
    pub(crate) fn log_first(&self, py: Python<'_>, leaves: impl FnOnce() -> bool) -> PyResult<()> {
        let Some(lines) = self.access.lines() else { return Ok(()) };
        if !leaves() {
            return Ok(());
        }
        lines.precede(py, &self.names, || {
            let turns = self.turns.borrow();
            turns.as_ref().filter(|turns| turns.is_running()).map(|turns| turns.serves_last())
        })
    }

    pub(crate) fn end_turn_of_log(&self, py: Python<'_>) -> PyResult<()> {
        self.access.lines().map_or(Ok(()), |lines| lines.end_turn(py, &self.names))
    }
}

impl AfterTurn for Host {
    fn after_turn(&self, py: Python<'_>) -> PyResult<()> {
        self.flushes_after_turn.set(false);
        self.end_turn_of_log(py)
    }
}

/// Ends the turn of the access log, called by the loop.
#[pyclass(module = "uvicorn._native", frozen)]
struct Flush {
    host: ThreadBound<Rc<Host>>,
}

#[pymethods]
impl Flush {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let host = self.host.here()?;
        guard_server(py, host, "flush", || host.end_turn_of_log(py))
    }
}
