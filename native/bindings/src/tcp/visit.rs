//! The record that a connection limit keeps of one connection: an `uvicorn.listening.connection_limit.Visit`.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// One connection that is counted.
pub(super) struct Visit(Py<PyAny>);

impl Visit {
    /// A visit has begun, unless there is no room for one.
    pub(super) fn begin(py: Python<'_>, enter: &Py<PyAny>) -> PyResult<Option<Self>> {
        let visit = enter.bind(py).call0()?;
        Ok((!visit.is_none()).then(|| Self(visit.unbind())))
    }

    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self(self.0.clone_ref(py))
    }

    /// Whether there is room for one more of this address.
    pub(super) fn admits(&self, py: Python<'_>, host: Option<Bound<'_, PyString>>) -> PyResult<bool> {
        self.0.bind(py).call_method1(intern!(py, "admit"), (host,))?.is_truthy()
    }

    /// It is over.
    pub(super) fn leave(&self, py: Python<'_>) -> PyResult<()> {
        self.0.bind(py).call_method0(intern!(py, "leave")).map(drop)
    }
}
