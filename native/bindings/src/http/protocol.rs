//! The asyncio protocol: the object that the event loop knows, around a [`Connection`].

use std::rc::Rc;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::error::guard;
use crate::ffi::ThreadBound;
use crate::http::connection::{Connection, bytes_of};
use crate::server::Server;

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
        connection.attach(slf, transport);
        guard(py, &connection, "connection_made", |connection| connection.connection_made(slf, transport))
    }

    /// The connection is gone, for whatever reason.
    fn connection_lost(slf: &Bound<'_, Self>, _error: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let connection = (*slf.get().connection).clone();
        guard(py, &connection, "connection_lost", |connection| connection.connection_lost(py))
    }

    /// Bytes from the client.
    fn data_received(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = data.py();
        guard(py, &self.connection, "data_received", |connection| match data.cast::<PyBytes>() {
            Ok(data) => connection.data_received(py, data.as_bytes()),
            Err(_) => connection.data_received(py, &bytes_of(data)?),
        })
    }

    /// The client has nothing more to send; it may still read. Returns whether the connection stays open.
    fn eof_received(&self, py: Python<'_>) -> PyResult<bool> {
        guard(py, &self.connection, "eof_received", |connection| connection.eof_received(py))
    }

    /// The transport's buffer is above its high-water mark.
    fn pause_writing(&self) {
        self.connection.pause_writing();
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
        self.connection.client(py)
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
        self.connection.scope(py)
    }

    /// The class that takes over on an upgrade to WebSocket.
    #[getter]
    fn ws_protocol_class(&self, py: Python<'_>) -> Py<PyAny> {
        self.connection.core.ws_protocol_class.clone_ref(py)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.connection.for_collector().traverse(&visit)
    }

    fn __clear__(&self) {
        if let Some(connection) = self.connection.if_here() {
            connection.clear();
        }
    }
}
