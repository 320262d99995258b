//! What happens to a connection.

use std::rc::Rc;

use pyo3::prelude::*;

use super::connection::Connection;
use crate::conn::handler::Handler;

impl Handler for Connection {
    fn on_data(self: Rc<Self>, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        self.guard(py, "data_received", |connection| connection.receive(py, data))
    }

    fn on_eof(self: Rc<Self>, py: Python<'_>) -> PyResult<bool> {
        self.guard(py, "eof_received", |connection| connection.eof_received(py))
    }

    fn on_hang_up(self: Rc<Self>, py: Python<'_>, reset: bool) -> PyResult<()> {
        self.guard(py, "hung_up", |connection| connection.hung_up(py, reset))
    }

    fn on_lost(self: Rc<Self>, py: Python<'_>, _error: Option<PyErr>) -> PyResult<()> {
        self.guard(py, "connection_lost", |connection| connection.connection_lost(py))
    }

    fn on_pause(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.guard(py, "pause_writing", |connection| connection.pause_writing(py))
    }

    fn on_resume(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.guard(py, "resume_writing", |connection| connection.resume_writing(py))
    }

    fn protocol(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.protocol.borrow().as_ref().map(|protocol| protocol.clone_ref(py))
    }
}
