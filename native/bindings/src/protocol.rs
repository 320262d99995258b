//! The asyncio protocol: the object that the event loop knows, around a [`Connection`].

use std::rc::Rc;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::asgi::peer::Peer;
use crate::base::ffi::thread_bound::ThreadBound;
use crate::conn::carried::Carried;
use crate::conn::carrier::Carrier;
use crate::conn::handler::{Handler, with_bytes};
use crate::conn::hub::Hub;
use crate::conn::loop_transport::LoopTransport;
use crate::cores::Cores;
use crate::h1::connection::Connection;
use crate::version::{Served, Version};

/// The native side of `protocol`, if it has one that can do without calls of Python's.
///
/// A subclass may have methods of its own, and a program may have replaced those of the class: a transport calls those.
pub(crate) fn recognise(protocol: &Bound<'_, PyAny>, carrier: Rc<dyn Carrier>) -> PyResult<Option<Rc<dyn Handler>>> {
    let Ok(own) = protocol.cast::<HTTPProtocol>() else { return Ok(None) };
    let version = own.get().version.here()?;
    let Served::Http1(connection) = version.served() else { return Ok(None) };
    if !is_untouched(&connection.core.hub, protocol)? {
        return Ok(None);
    }
    connection.connection_made(own, carrier)?;
    version.connected(protocol.py())?;
    Ok(Some(version.decided().unwrap_or_else(|| Rc::new(Beginning(own.clone().unbind())))))
}

/// Whether the class of `protocol` has our methods and no others: then no program notices that they are not called.
fn is_untouched(hub: &Hub, protocol: &Bound<'_, PyAny>) -> PyResult<bool> {
    const CALLED: [&str; 6] =
        ["connection_made", "connection_lost", "data_received", "eof_received", "pause_writing", "resume_writing"];
    let class = protocol.get_type();
    if hub.untouched.borrow().as_ref().is_some_and(|known| known.is(&class)) {
        return Ok(true);
    }
    let own = protocol.py().get_type::<HTTPProtocol>();
    for name in CALLED {
        if !class.getattr(name)?.is(own.getattr(name)?) {
            return Ok(false);
        }
    }
    hub.untouched.replace(Some(class.unbind()));
    Ok(true)
}

/// Receives the events of a connection whose protocol version is not known yet.
struct Beginning(Py<HTTPProtocol>);

impl Beginning {
    fn version(&self) -> PyResult<&Version> {
        self.0.get().version.here()
    }
}

impl Handler for Beginning {
    fn on_data(self: Rc<Self>, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        self.version()?.receive(py, data)
    }

    fn on_eof(self: Rc<Self>, py: Python<'_>) -> PyResult<bool> {
        self.version()?.end(py)
    }

    fn on_hang_up(self: Rc<Self>, py: Python<'_>, reset: bool) -> PyResult<()> {
        self.version()?.handler().on_hang_up(py, reset)
    }

    fn on_lost(self: Rc<Self>, py: Python<'_>, error: Option<PyErr>) -> PyResult<()> {
        self.version()?.handler().on_lost(py, error)
    }

    fn on_pause(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.version()?.handler().on_pause(py)
    }

    fn on_resume(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.version()?.handler().on_resume(py)
    }

    fn protocol(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        Some(self.0.clone_ref(py).into_any())
    }
}

/// An asyncio protocol that serves requests of HTTP/1.1, or of HTTP/2 where that is asked for, to an ASGI application.
///
/// `HTTPProtocol(cores, app_state)`: `cores` are shared by the connections of one event loop.
#[pyclass(module = "uvicorn._native", frozen, subclass, weakref)]
pub struct HTTPProtocol {
    version: ThreadBound<Version>,
}

impl HTTPProtocol {
    fn handler(&self) -> PyResult<Rc<dyn Handler>> {
        Ok(self.version.here()?.handler())
    }

    fn served(&self) -> PyResult<Served> {
        Ok(self.version.here()?.served())
    }

    /// The version of the connection.
    #[cfg(target_os = "linux")]
    pub(crate) fn version(&self) -> PyResult<&Version> {
        self.version.here()
    }
}

#[pymethods]
impl HTTPProtocol {
    #[new]
    fn new(cores: &Bound<'_, Cores>, app_state: Py<PyDict>) -> PyResult<Self> {
        let py = cores.py();
        let core = cores.get().h1.here()?.clone();
        let connection = Rc::new(Connection::new(core, Peer::new(py.None(), py.None(), false, app_state)));
        let version = Version::new(connection, cores.get().h2.here()?.clone());
        Ok(Self { version: ThreadBound::new(version) })
    }

    /// A client has connected.
    fn connection_made(slf: &Bound<'_, Self>, transport: &Bound<'_, PyAny>) -> PyResult<()> {
        let version = slf.get().version.here()?;
        if let Served::Http1(connection) = version.served() {
            let home = connection.core.hub.share_home();
            connection.connection_made(slf, Rc::new(LoopTransport::new(transport, home)))?;
        }
        version.connected(slf.py())
    }

    /// The connection is gone, for whatever reason.
    fn connection_lost(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) -> PyResult<()> {
        self.handler()?.on_lost(py, None)
    }

    /// Bytes from the client.
    fn data_received(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let version = self.version.here()?;
        match version.decided() {
            Some(handler) => with_bytes(data, |bytes| handler.on_data(data.py(), bytes)),
            None => with_bytes(data, |bytes| version.receive(data.py(), bytes)),
        }
    }

    /// The client has nothing more to send; it may still read. Returns whether the connection stays open.
    fn eof_received(&self, py: Python<'_>) -> PyResult<bool> {
        let version = self.version.here()?;
        version.decided().map_or_else(|| version.end(py), |handler| handler.on_eof(py))
    }

    /// The client has ended, or has `reset` the connection, while no input is read.
    #[pyo3(signature = (reset, /))]
    fn hung_up(&self, py: Python<'_>, reset: bool) -> PyResult<()> {
        self.handler()?.on_hang_up(py, reset)
    }

    /// The transport's buffer is above its high-water mark.
    fn pause_writing(&self, py: Python<'_>) -> PyResult<()> {
        self.handler()?.on_pause(py)
    }

    /// The transport's buffer is low again.
    fn resume_writing(&self, py: Python<'_>) -> PyResult<()> {
        self.handler()?.on_resume(py)
    }

    /// The next response is the last, and announces that; nothing else changes.
    fn announce_close(&self, py: Python<'_>) -> PyResult<()> {
        match self.served()? {
            Served::Http1(connection) => {
                connection.announce_close();
                Ok(())
            }
            Served::Http2(connection) => connection.announce_close(py),
            #[cfg(target_os = "linux")]
            Served::Http3(connection) => connection.announce_close(py),
        }
    }

    /// The server stops: close now if idle, otherwise when the response is complete.
    fn shutdown(&self, py: Python<'_>) -> PyResult<()> {
        match self.served()? {
            Served::Http1(connection) => connection.shutdown(py),
            Served::Http2(connection) => connection.shutdown(py),
            #[cfg(target_os = "linux")]
            Served::Http3(connection) => connection.shutdown(py),
        }
    }

    /// Tell the application that its client is gone, while its response can still be sent.
    fn disconnect(&self, py: Python<'_>) -> PyResult<()> {
        match self.served()? {
            Served::Http1(connection) => connection.disconnect(py),
            Served::Http2(connection) => connection.disconnect(py),
            #[cfg(target_os = "linux")]
            Served::Http3(connection) => connection.disconnect(py),
        }
    }

    /// The connection's transport, `None` before and after its life.
    #[getter]
    fn transport(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match self.served()? {
            Served::Http1(connection) => connection.transport(py),
            Served::Http2(connection) => connection.transport(py),
            #[cfg(target_os = "linux")]
            Served::Http3(connection) => connection.transport(py),
        }
    }

    /// Bytes of responses that wait for the windows of HTTP/2 or HTTP/3; and how many have left so far, after they had waited.
    #[getter]
    fn held_bodies(&self) -> PyResult<(usize, usize)> {
        Ok(match self.served()? {
            Served::Http1(_) => (0, 0),
            Served::Http2(connection) => connection.held_bodies(),
            #[cfg(target_os = "linux")]
            Served::Http3(connection) => connection.held_bodies(),
        })
    }

    /// The peer's address.
    #[getter]
    fn client(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(match self.served()? {
            Served::Http1(connection) => connection.client(py),
            Served::Http2(connection) => connection.client(py),
            #[cfg(target_os = "linux")]
            Served::Http3(connection) => connection.client(py),
        })
    }

    /// The event loop.
    #[getter]
    fn r#loop(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(match self.served()? {
            Served::Http1(connection) => connection.core.event_loop.clone_ref(py),
            Served::Http2(connection) => connection.core.event_loop.clone_ref(py),
            #[cfg(target_os = "linux")]
            Served::Http3(connection) => connection.core.event_loop.clone_ref(py),
        })
    }

    /// The configuration.
    #[getter]
    fn config(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(match self.served()? {
            Served::Http1(connection) => connection.core.config.clone_ref(py),
            Served::Http2(connection) => connection.core.config.clone_ref(py),
            #[cfg(target_os = "linux")]
            Served::Http3(connection) => connection.core.config.clone_ref(py),
        })
    }

    /// The scope of the request being answered, `None` between requests.
    #[getter]
    fn scope(&self, py: Python<'_>) -> PyResult<Option<Py<PyDict>>> {
        Ok(match self.served()? {
            Served::Http1(connection) => connection.scope(py),
            Served::Http2(connection) => connection.scope(py),
            #[cfg(target_os = "linux")]
            Served::Http3(connection) => connection.scope(py),
        })
    }

    /// The class that takes over on an upgrade to WebSocket.
    #[getter]
    fn ws_protocol_class(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(match self.served()? {
            Served::Http1(connection) => connection.core.ws_protocol_class.clone_ref(py),
            Served::Http2(connection) => connection.core.ws_protocol_class.clone_ref(py),
            #[cfg(target_os = "linux")]
            Served::Http3(connection) => connection.core.ws_protocol_class.clone_ref(py),
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.version.for_collector().traverse(&visit)
    }

    fn __clear__(&self) {
        if let Some(version) = self.version.if_here() {
            version.clear();
        }
    }
}

/// Makes the protocols of a server's connections, without a call of Python's.
///
/// `Factory(kind, cores, app_state, last)`: `kind` is `HTTPProtocol` or a subclass that makes its objects in no way of its
/// own; with `last`, each connection serves one request.
#[pyclass(module = "uvicorn._native", frozen)]
pub struct Factory {
    make: Py<PyAny>,
    arguments: Py<PyTuple>,
    last: bool,
}

#[pymethods]
impl Factory {
    #[new]
    fn new(
        kind: &Bound<'_, PyType>,
        cores: &Bound<'_, Cores>,
        app_state: &Bound<'_, PyDict>,
        last: bool,
    ) -> PyResult<Self> {
        let py = kind.py();
        let make = py.get_type::<HTTPProtocol>().getattr("__new__")?.unbind();
        Ok(Self { make, arguments: (kind, cores, app_state).into_pyobject(py)?.unbind(), last })
    }

    fn __call__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let protocol = self.make.bind(py).call1(self.arguments.bind(py))?;
        if self.last {
            protocol.cast::<HTTPProtocol>()?.get().announce_close(py)?;
        }
        Ok(protocol)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.arguments)
    }
}
