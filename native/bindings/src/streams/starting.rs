//! Requests whose applications have not started: as many start in a turn of the loop as may.

use std::cell::Cell;
use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::PyList;
use wire::ws::Answer;

use crate::asgi::exchange::Exchange;
use crate::asgi::runner::{Look, Runner};
use crate::base::ffi::thread_bound::ThreadBound;
use crate::base::places;
use crate::base::queued_bytes;
use crate::base::task::Start;
use crate::conn::carried::Carried;

/// Seconds until requests are looked at again that wait because of `limit_buffers`.
const OVER_LIMIT_PAUSE: f64 = 0.1;

/// A request whose application has not started.
pub(crate) struct Asked<Id> {
    pub(crate) id: Id,
    pub(crate) what: Wanted,
}

/// The purpose of a request.
pub(crate) enum Wanted {
    Response { exchange: Rc<Exchange>, look: Look },
    WebSocket(Box<Opening>),
}

/// A requested WebSocket, which is opened in turn.
pub(crate) struct Opening {
    pub(crate) path: Vec<u8>,
    pub(crate) query: Vec<u8>,
    pub(crate) headers: Py<PyList>,
    pub(crate) subprotocols: Vec<String>,
    pub(crate) answer: Answer,
}

/// What the starting of requests needs of a connection.
#[derive(Default)]
pub(crate) struct Pace {
    pub(crate) resume_scheduled: Cell<bool>,
    /// Requests that have not ended, where they are counted.
    in_flight: Cell<usize>,
}

/// A connection with requests in progress beside each other.
pub(crate) trait Starts: Carried + 'static {
    /// Names its streams.
    type Id: Copy;

    fn runner(&self) -> &Rc<Runner>;
    fn pace(&self) -> &Pace;
    /// How applications start.
    fn start(&self) -> Start;
    /// Take the request that has waited longest.
    fn next_asked(&self) -> Option<Asked<Self::Id>>;
    /// Whether one waits.
    fn has_asked(&self) -> bool;
    /// Whether its client has unread output.
    fn holds_some(&self, py: Python<'_>) -> PyResult<bool>;
    /// There are too many connections or tasks: take no further request, and close behind the last response.
    fn make_room(&self, py: Python<'_>) -> PyResult<()>;
    /// Open a WebSocket on the stream that requested one.
    fn open_websocket(&self, py: Python<'_>, id: Self::Id, opening: &Opening) -> PyResult<()>;
    /// Other connections have had their turn.
    fn resume(self: &Rc<Self>, py: Python<'_>) -> PyResult<()>;
    /// Do the work that must not run inside the call that caused it.
    fn serve(self: &Rc<Self>, py: Python<'_>) -> PyResult<()>;

    /// Start the applications of new requests, as many as may start in one turn; the others start in later turns.
    fn start_asked(self: &Rc<Self>, py: Python<'_>, eager: bool) -> PyResult<()> {
        if self.pace().resume_scheduled.get() {
            return Ok(());
        }
        let runner = self.runner();
        for _ in 0..self.home().settings.max_eager_requests {
            if queued_bytes::is_over() && self.holds_some(py)? {
                return self.start_asked_later(py);
            }
            let Some(Asked { id, what }) = self.next_asked() else { return Ok(()) };
            match what {
                Wanted::Response { exchange, look } => {
                    let app = runner.app_for(py, &exchange, look)?;
                    if runner.turns_away(&app) {
                        self.make_room(py)?;
                    }
                    runner.serve(py, exchange, app, self.start(), eager)?;
                }
                Wanted::WebSocket(opening) => self.open_websocket(py, id, &opening)?,
            }
        }
        if !self.has_asked() {
            return Ok(());
        }
        if !self.home().is_real {
            return self.start_asked(py, eager);
        }
        self.pace().resume_scheduled.set(true);
        self.resume_later(py)
    }

    /// The process holds more than `limit_buffers`: do not add to the output that this client has not read.
    #[cold]
    fn start_asked_later(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        if !self.has_asked() {
            return Ok(());
        }
        let resume = Py::new(py, Resume { connection: ThreadBound::new(self.clone()) })?;
        let home = self.home();
        let call_later = home.event_loop.bind(py).getattr(&home.names.call_later)?;
        home.context.bind(py).call_method1(&home.names.run, (call_later, OVER_LIMIT_PAUSE, resume))?;
        self.pace().resume_scheduled.set(true);
        Ok(())
    }

    /// Go on after others have had their turn.
    fn resume_later(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        let resume = Py::new(py, Resume { connection: ThreadBound::new(self.clone()) })?;
        self.home().event_loop.bind(py).call_method1(&self.home().names.call_soon, (resume,)).map(drop)
    }

    /// Serve its streams in a later turn of the loop.
    fn serve_later(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        let serve = Py::new(py, Serve { connection: ThreadBound::new(self.clone()) })?;
        self.home().event_loop.bind(py).call_method1(&self.home().names.call_soon, (serve,)).map(drop)
    }

    /// Count a request that has begun: beside others the connection is active already.
    fn note_begin(&self) {
        let in_flight = &self.pace().in_flight;
        if let Some(metrics) = &self.home().metrics
            && in_flight.replace(in_flight.get() + 1) > 0
        {
            metrics.add(places::CONCURRENT, 1);
        }
    }

    /// Count a request that has ended.
    fn count_end(&self) {
        let in_flight = &self.pace().in_flight;
        in_flight.set(in_flight.get().saturating_sub(1));
        if let Some(metrics) = &self.home().metrics
            && in_flight.get() > 0
        {
            metrics.add(places::CONCURRENT_ENDED, 1);
        }
    }
}

/// A connection that goes on in a later turn.
trait Later {
    fn resume_now(self: Rc<Self>, py: Python<'_>) -> PyResult<()>;
    fn serve_now(self: Rc<Self>, py: Python<'_>) -> PyResult<()>;
}

impl<C: Starts> Later for C {
    fn resume_now(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.guard(py, "resume", |connection| connection.resume(py))
    }

    fn serve_now(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.guard(py, "resume", |connection| connection.serve(py))
    }
}

/// Goes on with requests in a later turn of the loop.
#[pyclass(module = "uvicorn._native", frozen)]
struct Resume {
    connection: ThreadBound<Rc<dyn Later>>,
}

#[pymethods]
impl Resume {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        self.connection.here()?.clone().resume_now(py)
    }
}

/// Serves streams, in a turn of the loop.
#[pyclass(module = "uvicorn._native", frozen)]
struct Serve {
    connection: ThreadBound<Rc<dyn Later>>,
}

#[pymethods]
impl Serve {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        self.connection.here()?.clone().serve_now(py)
    }
}
