//! The cores of all protocols, which the native connections of one event loop share, as the Python side sees them.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use crate::asgi::host::Host;
use crate::asgi::runner::Runner;
use crate::base::error::guard_server;
use crate::base::ffi::thread_bound::{ThreadBound, bury};
use crate::base::home::Home;
use crate::conn::hub::Hub;
use crate::h1::core::Core;
use crate::h2::core::Core as Http2;
#[cfg(target_os = "linux")]
use crate::h3::core::Core as Http3;
use crate::ws::core::Core as WebSockets;

/// The cores of all protocols, which the native connections of one event loop share.
#[pyclass(module = "uvicorn._native", frozen)]
pub struct Cores {
    pub(crate) h1: ThreadBound<Rc<Core>>,
    /// If it is spoken.
    pub(crate) h2: ThreadBound<Option<Rc<Http2>>>,
    /// If it is spoken.
    #[cfg(target_os = "linux")]
    pub(crate) h3: ThreadBound<Option<Rc<Http3>>>,
    pub(crate) ws: ThreadBound<Rc<WebSockets>>,
    config: Py<PyAny>,
    total_requests: Arc<AtomicU64>,
}

#[pymethods]
impl Cores {
    /// `Cores(config, server_state, loop)`
    #[new]
    fn new(
        config: &Bound<'_, PyAny>,
        server_state: &Bound<'_, PyAny>,
        event_loop: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let home = Rc::new(Home::new(config, server_state, event_loop)?);
        let hub = Rc::new(Hub::new(home.clone(), server_state)?);
        let host = Rc::new(Host::new(home.clone(), config, server_state)?);
        let total_requests = host.total_requests();
        let runner = Rc::new(Runner::new(host, config)?);
        let ws = Rc::new(WebSockets::new(home.clone(), hub.clone(), runner.clone(), config)?);
        let h2 = if config.getattr("http2")?.is_truthy()? {
            Some(Rc::new(Http2::new(home.clone(), hub.clone(), runner.clone(), config)?))
        } else {
            None
        };
        #[cfg(target_os = "linux")]
        let h3 = if config.getattr_opt("http3")?.map_or(Ok(false), |http3| http3.is_truthy())? {
            Some(Rc::new(Http3::new(home.clone(), hub.clone(), runner.clone(), config)?))
        } else {
            None
        };
        let h1 = Rc::new(Core::new(home, hub, runner, config)?);
        Ok(Self {
            h1: ThreadBound::new(h1),
            h2: ThreadBound::new(h2),
            #[cfg(target_os = "linux")]
            h3: ThreadBound::new(h3),
            ws: ThreadBound::new(ws),
            config: config.clone().unbind(),
            total_requests,
        })
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
        let core = self.h1.here()?;
        let stats = PyDict::new(py);
        for (pool, figures) in [("buffers", core.hub.buffers.stats()), ("cycles", core.runner.stats())] {
            stats.set_item(pool, figures.into_py_dict(py)?)?;
        }
        Ok(stats)
    }

    /// Write the access lines collected so far.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.h1.here()?;
        guard_server(py, core, "flush", || core.host.end_turn_of_log(py))
    }

    /// The access log of Python, if it has a format of the user's.
    #[getter]
    fn formatted(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        Ok(self.h1.here()?.host.access.formatted().map(|log| log.clone_ref(py)))
    }

    /// The server has ended: write the waiting output, and sweep no more.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.h1.here()?;
        guard_server(py, core, "close", || {
            core.hub.close(py)?;
            core.runner.close(py)?;
            core.host.flush_log(py)?;
            bury();
            Ok(())
        })
    }

    /// Close the connections whose deadline has passed, and come back for the next.
    fn sweep(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.h1.here()?;
        bury();
        guard_server(py, core, "sweep", || core.hub.deadlines.sweep(py, Duration::ZERO))
    }

    /// Let `seconds` pass for the deadlines, and end everything whose deadline has passed; for tests.
    fn advance(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let time = Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.h1.here()?.hub.deadlines.advance(time);
        self.sweep(py)
    }

    /// Stop the clock of the deadlines, except for `advance`.
    fn hold_clock(&self) -> PyResult<()> {
        self.h1.here()?.hub.deadlines.hold();
        Ok(())
    }

    /// Make the next call of an entry point panic, to see what that costs: `data_received`, `send`, `sweep` and so on; or
    /// the next `write`, in the middle of one.
    fn rehearse_panic(&self, entry: String) -> PyResult<()> {
        self.h1.here()?.rehearsal.arm(entry);
        Ok(())
    }
}
