//! The record that a connection limit keeps of one connection: an `uvicorn.listening.connection_limit.ConnectionSlot`.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// One connection that is counted.
pub(crate) struct ConnectionSlot(Py<PyAny>);

impl ConnectionSlot {
    /// Take a slot, unless the limit is reached.
    pub(crate) fn take(py: Python<'_>, enter: &Py<PyAny>) -> PyResult<Option<Self>> {
        let slot = enter.bind(py).call0()?;
        Ok((!slot.is_none()).then(|| Self(slot.unbind())))
    }

    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self(self.0.clone_ref(py))
    }

    /// Whether the limit per address allows this connection.
    pub(crate) fn admits(&self, py: Python<'_>, host: Option<Bound<'_, PyString>>) -> PyResult<bool> {
        self.0.bind(py).call_method1(intern!(py, "admit"), (host,))?.is_truthy()
    }

    /// Nothing more is sent.
    pub(crate) fn linger(&self, py: Python<'_>) -> PyResult<()> {
        self.0.bind(py).call_method0(intern!(py, "linger")).map(drop)
    }

    /// Give the slot back.
    pub(crate) fn leave(&self, py: Python<'_>) -> PyResult<()> {
        self.0.bind(py).call_method0(intern!(py, "leave")).map(drop)
    }
}
