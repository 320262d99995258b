//! One event loop and the objects that all work on it needs: names, settings, the logger.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use super::level::Level;
use super::metrics::Metrics;
use super::names::Names;
use super::panic::Rehearsal;
use super::settings::Settings;

const TRACE: u8 = 5;
const DEBUG: u8 = 10;

/// Shared by reference counting inside one thread; nothing in it may be borrowed across a call into Python.
pub(crate) struct Home {
    pub(crate) names: Names,
    pub(crate) settings: Settings,
    pub(crate) event_loop: Py<PyAny>,
    /// Whether it can do more than `create_task` and `call_later`, which is all that a test's double can.
    pub(crate) is_real: bool,
    /// The context in which the server was started: that of a request would live as long as objects created in it.
    pub(crate) context: Py<PyAny>,
    /// Return the running task, set it, and unset it.
    pub(crate) current_task: Py<PyAny>,
    pub(crate) enter_task: Py<PyAny>,
    pub(crate) leave_task: Py<PyAny>,
    /// `asyncio.Task`
    pub(crate) task_class: Py<PyType>,
    pub(crate) logger: Py<PyAny>,
    /// Of that logger: of lines about single connections, and about requests that are refused.
    pub(crate) trace: Level,
    pub(crate) debug: Level,
    pub(crate) rehearsal: Rehearsal,
    /// Counts events, if the metrics are served.
    pub(crate) metrics: Option<Metrics>,
    /// Tasks can be started eagerly (3.12) and told their context (3.11).
    pub(crate) eager: bool,
    pub(crate) task_context: bool,
}

impl Home {
    pub(crate) fn new(
        config: &Bound<'_, PyAny>,
        state: &Bound<'_, PyAny>,
        event_loop: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let py = config.py();
        let is_real = event_loop.is_instance(&py.import("asyncio")?.getattr("AbstractEventLoop")?)?;
        let version = py.version_info();
        let tasks = py.import("asyncio.tasks")?;
        let logger = py.import("logging")?.call_method1("getLogger", ("uvicorn.error",))?;
        Ok(Self {
            names: Names::new(py)?,
            settings: Settings::from_config(config)?,
            event_loop: event_loop.clone().unbind(),
            is_real,
            context: state.getattr("context")?.unbind(),
            current_task: tasks.getattr("current_task")?.unbind(),
            enter_task: tasks.getattr("_enter_task")?.unbind(),
            leave_task: tasks.getattr("_leave_task")?.unbind(),
            task_class: tasks.getattr("Task")?.cast_into()?.unbind(),
            trace: Level::new(&logger, TRACE)?,
            debug: Level::new(&logger, DEBUG)?,
            logger: logger.unbind(),
            rehearsal: Rehearsal::default(),
            metrics: Metrics::of_state(state)?,
            eager: is_real && version >= (3, 12),
            task_context: version >= (3, 11),
        })
    }

    /// Count an event, if the metrics are served.
    #[inline]
    pub(crate) fn count(&self, place: usize) {
        if let Some(metrics) = &self.metrics {
            metrics.add(place, 1);
        }
    }

    /// Log one line at WARNING.
    pub(crate) fn warn(&self, py: Python<'_>, text: &str) -> PyResult<()> {
        self.logger.bind(py).call_method1(&self.names.warning, (text,)).map(drop)
    }

    /// Log `error` with its traceback, under a line of text.
    #[cold]
    pub(crate) fn log_exception(&self, py: Python<'_>, text: &str, error: &PyErr) -> PyResult<()> {
        let details = PyDict::new(py);
        // Before Python 3.12 an exception that was never caught does not have its traceback yet: this gives it to it.
        details.set_item("exc_info", error.clone_ref(py).into_value(py))?;
        self.logger.bind(py).call_method(&self.names.error, (text,), Some(&details)).map(drop)
    }
}
