//! The asyncio protocol of a WebSocket: the object that the event loop knows, around a [`Session`].

use std::rc::Rc;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use wire::ws::Handshake;

use crate::asgi::peer::Peer;
use crate::base::ffi::thread_bound::ThreadBound;
use crate::conn::carried::Carried;
use crate::conn::carrier::Carrier;
use crate::conn::handler::{Handler, hand_data};
use crate::conn::loop_transport::LoopTransport;
use crate::cores::Cores;
use crate::tcp::transport::Transport;
use crate::ws::session::Session;

/// The native side of `protocol`, if it is a WebSocket that can do without calls of Python's.
pub(crate) fn recognise(protocol: &Bound<'_, PyAny>) -> PyResult<Option<Rc<dyn Handler>>> {
    let Ok(own) = protocol.cast::<WebSocketProtocol>() else { return Ok(None) };
    let session = own.get().session.here()?.clone();
    if is_untouched(&session, protocol)? { Ok(Some(session)) } else { Ok(None) }
}

/// Put `protocol`, a WebSocket of ours, on a stream of this version of HTTP; returns the receiver of the stream's events.
pub(crate) fn open_on_stream(
    protocol: &Bound<'_, PyAny>,
    stream: Rc<dyn Carrier>,
    version: &'static str,
    parts: (&[u8], &[u8]),
    headers: &Bound<'_, PyList>,
    handshake: &Handshake<'_>,
) -> PyResult<Rc<dyn Handler>> {
    let session = protocol.cast::<WebSocketProtocol>()?.get().session.here()?.clone();
    session.open_on(protocol, stream, version, parts, headers, handshake)?;
    Ok(session)
}

/// Whether the class of `protocol` has our methods and no others: then no program notices that they are not called.
fn is_untouched(session: &Session, protocol: &Bound<'_, PyAny>) -> PyResult<bool> {
    const CALLED: [&str; 5] = ["connection_lost", "data_received", "eof_received", "pause_writing", "resume_writing"];
    let class = protocol.get_type();
    if session.core.untouched.borrow().as_ref().is_some_and(|known| known.is(&class)) {
        return Ok(true);
    }
    let own = protocol.py().get_type::<WebSocketProtocol>();
    for name in CALLED {
        if !class.getattr(name)?.is(own.getattr(name)?) {
            return Ok(false);
        }
    }
    session.core.untouched.replace(Some(class.unbind()));
    Ok(true)
}

/// An asyncio protocol that opens a WebSocket for an ASGI application, or refuses to.
///
/// `WebSocketProtocol(cores, app_state)`: `cores` are shared by the connections of one event loop.
#[pyclass(module = "uvicorn._native", frozen, subclass, weakref)]
pub struct WebSocketProtocol {
    session: ThreadBound<Rc<Session>>,
    cores: Py<Cores>,
}

impl Drop for WebSocketProtocol {
    fn drop(&mut self) {
        if let Some(session) = self.session.if_here() {
            session.shown.set(false);
        }
    }
}

impl WebSocketProtocol {
    fn handler(&self) -> PyResult<Rc<Session>> {
        self.session.here().cloned()
    }
}

#[pymethods]
impl WebSocketProtocol {
    #[new]
    fn new(cores: &Bound<'_, Cores>, app_state: Py<PyDict>) -> PyResult<Self> {
        let py = cores.py();
        let core = cores.get().ws.here()?.clone();
        let session = Rc::new(Session::new(core, Peer::new(py.None(), py.None(), false, app_state)));
        session.shown.set(true);
        Ok(Self { session: ThreadBound::new(session), cores: cores.clone().unbind() })
    }

    /// An HTTP protocol hands over its connection.
    fn connection_made(slf: &Bound<'_, Self>, transport: &Bound<'_, PyAny>) -> PyResult<()> {
        let session = slf.get().session.here()?;
        let carrier: Rc<dyn Carrier> = match transport.cast_exact::<Transport>() {
            Ok(ours) => ours.get().socket()?,
            Err(_) => Rc::new(LoopTransport::new(transport, session.core.hub.share_home())),
        };
        session.connection_made(slf, carrier)
    }

    /// The connection is gone, for whatever reason.
    fn connection_lost(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) -> PyResult<()> {
        self.handler()?.on_lost(py, None)
    }

    /// Bytes from the client: its handshake, then frames.
    fn data_received(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        hand_data(self.handler()?, data)
    }

    /// The client sends nothing more. Returns whether the connection stays open: for answers that it still reads.
    fn eof_received(&self, py: Python<'_>) -> PyResult<bool> {
        self.handler()?.on_eof(py)
    }

    /// The transport's buffer is above its high-water mark.
    fn pause_writing(&self, py: Python<'_>) -> PyResult<()> {
        self.handler()?.on_pause(py)
    }

    /// The transport's buffer is low again.
    fn resume_writing(&self, py: Python<'_>) -> PyResult<()> {
        self.handler()?.on_resume(py)
    }

    /// The server stops: close an open connection, refuse one that is not; a response in progress is completed.
    fn shutdown(&self, py: Python<'_>) -> PyResult<()> {
        self.session.here()?.shutdown(py)
    }

    /// Tell the application that its client is gone, without waiting for it.
    fn disconnect(&self, py: Python<'_>) -> PyResult<()> {
        self.session.here()?.disconnect(py)
    }

    /// The state that the connections of the same loop share.
    #[getter]
    fn cores(&self, py: Python<'_>) -> Py<Cores> {
        self.cores.clone_ref(py)
    }

    /// The connection's transport, `None` before and after its life.
    #[getter]
    fn transport(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.session.here()?.transport(py)
    }

    /// The event loop.
    #[getter]
    fn r#loop(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.session.here()?.core.event_loop.clone_ref(py))
    }

    /// The configuration.
    #[getter]
    fn config(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.session.here()?.core.config.clone_ref(py))
    }

    /// The scope, `None` until the handshake is read.
    #[getter]
    fn scope(&self, py: Python<'_>) -> PyResult<Option<Py<PyDict>>> {
        Ok(self.session.here()?.shown_scope(py))
    }

    /// How far it has come: the value of a `SessionState`.
    #[getter]
    fn stage(&self) -> PyResult<u8> {
        Ok(self.session.here()?.stage() as u8)
    }

    /// A list of the events that the application has not received yet.
    #[getter]
    fn queue<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.session.here()?.events(py)
    }

    /// Bytes of the client's that were not looked at yet.
    #[getter]
    fn buffered(&self) -> PyResult<usize> {
        Ok(self.session.here()?.buffered())
    }

    /// Whether reading is paused because the application does not read.
    #[getter]
    fn read_paused(&self) -> PyResult<bool> {
        Ok(self.session.here()?.is_read_paused())
    }

    /// Whether more waits to be written than should.
    #[getter]
    fn write_paused(&self) -> PyResult<bool> {
        Ok(self.session.here()?.is_write_paused())
    }

    /// Whether the application is, or will be, told that the connection has ended.
    #[getter]
    fn disconnected(&self) -> PyResult<bool> {
        Ok(self.session.here()?.is_disconnected())
    }

    /// Whether a `receive()` waits, and whether a `send()` does.
    #[getter]
    fn waiting(&self) -> PyResult<(bool, bool)> {
        let session = self.session.here()?;
        Ok((session.has_waiting_receivers(), session.has_waiting_writers()))
    }

    /// The payload of the ping whose pong is awaited.
    #[getter]
    fn pending_ping_payload<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(self.session.here()?.ping().0.map(|payload| PyBytes::new(py, &payload)))
    }

    /// When the last ping was sent, by the loop's clock.
    #[getter]
    fn ping_sent_at(&self) -> PyResult<f64> {
        Ok(self.session.here()?.ping().1)
    }

    /// Seconds the last answered ping took.
    #[getter]
    fn last_ping_rtt(&self) -> PyResult<f64> {
        Ok(self.session.here()?.ping().2)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.cores)?;
        self.session.for_collector().visit(&visit)
    }

    fn __clear__(&self) {
        if let Some(session) = self.session.if_here() {
            session.let_go();
        }
    }
}
