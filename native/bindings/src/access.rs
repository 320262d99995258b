//! The access log of one event loop, as `uvicorn.access.AccessLog` has it.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::http::protocol::Connection;

/// Hands records to the Python side.
pub(crate) struct AccessLog {
    python: Py<PyAny>,
}

impl AccessLog {
    pub(crate) fn new(config: &Bound<'_, PyAny>, event_loop: &Bound<'_, PyAny>) -> PyResult<Self> {
        let class = config.py().import("uvicorn.access")?.getattr("AccessLog")?;
        Ok(Self { python: class.call_method1("from_config", (config, event_loop))?.unbind() })
    }

    /// Log one response.
    pub(crate) fn record(
        &self,
        py: Python<'_>,
        connection: &Connection,
        scope: &Bound<'_, PyDict>,
        status: u16,
    ) -> PyResult<()> {
        self.python.bind(py).call_method1(&connection.core.names.record, (scope, status)).map(drop)
    }

    /// Write the lines collected so far.
    pub(crate) fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.python.bind(py).call_method0("flush").map(drop)
    }
}
