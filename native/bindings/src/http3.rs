//! HTTP/3 on the UDP sockets of one event loop, as Python sees it.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use quic::{Drain, Limits, Lost};
use wire::h3::ErrorCode;

use crate::asgi::peer::Peer;
use crate::base::ffi::thread_bound::ThreadBound;
use crate::cores::Cores;
use crate::h3::connection::Connection as Http3;
use crate::h3::core::Core;
use crate::protocol::HTTPProtocol;
use crate::tcp::reactor::Poller;
use crate::tcp::slot::ConnectionSlot;
use crate::tcp::tls::config::TLSConfig;
use crate::udp::connection::Connection as Quic;
use crate::udp::handler::Handler;
use crate::udp::listening::{Listening, Settings};
use crate::udp::opener::{Opener, Why};
use crate::version::Served;

/// What clients have to offer by ALPN.
const PROTOCOL: &[u8] = b"h3";

/// Makes the protocol objects of connections.
struct Connections {
    factory: RefCell<Option<Py<PyAny>>>,
    /// Takes a slot at the connection limit, if there is one.
    enter: Option<Py<PyAny>>,
    core: OnceCell<Rc<Core>>,
    /// Called once no connection is in its handshake, after the end of accepting.
    opened: Cell<Option<Py<PyAny>>>,
}

impl Connections {
    /// The state that the connections share: that of the `protocol` of the first of them.
    fn core(&self, py: Python<'_>, served: &Served) -> PyResult<Rc<Core>> {
        if let Some(core) = self.core.get() {
            return Ok(core.clone());
        }
        let Served::Http1(http1) = served else { return Err(unfit()) };
        let find = py.import("uvicorn.protocols.native_cores")?.getattr("cores_of")?;
        let core = &http1.core;
        let runner = &core.runner;
        let cores = find.call1((&core.config, &runner.host.state, &core.event_loop, "protocol_settings"))?;
        let found = cores.cast::<Cores>()?.get().h3.here()?.clone();
        let found = found.ok_or_else(|| PyValueError::new_err("HTTP/3 is not configured."))?;
        Ok(self.core.get_or_init(|| found).clone())
    }
}

#[cold]
fn unfit() -> PyErr {
    PyTypeError::new_err("`factory` must make native protocols.")
}

impl Opener for Connections {
    fn open(&self, py: Python<'_>, quic: &Rc<Quic>) -> PyResult<Option<Rc<dyn Handler>>> {
        let factory = self.factory.borrow().as_ref().map(|factory| factory.clone_ref(py));
        let Some(factory) = factory else { return Ok(None) };
        let made = factory.bind(py).call0()?;
        let protocol = made.cast::<HTTPProtocol>().map_err(|_| unfit())?;
        let version = protocol.get().version()?;
        let served = version.served();
        let core = self.core(py, &served)?;
        let Served::Http1(http1) = served else { return Err(unfit()) };
        let slot = match &self.enter {
            Some(enter) => match ConnectionSlot::take(py, enter)? {
                Some(slot) if slot.admits(py, Some(PyString::new(py, &quic.remote().ip().to_string())))? => Some(slot),
                Some(slot) => return slot.leave(py).map(|()| None),
                None => return Ok(None),
            },
            None => None,
        };
        let (app_state, announced) = http1.beginnings(py);
        let peer = Rc::new(Peer::new(py.None(), py.None(), true, app_state));
        let http3 = Rc::new(Http3::new(core, quic.clone(), peer, slot));
        version.become_http3(http3.clone());
        if let Err(error) = http3.begin(protocol.as_any(), announced) {
            return http3.on_lost(py, &Lost::ClosedHere).and(Err(error));
        }
        Ok(Some(http3))
    }

    fn on_opened(&self, py: Python<'_>) -> PyResult<()> {
        self.opened.take().map_or(Ok(()), |opened| opened.call0(py).map(drop))
    }

    fn code(&self, why: Why) -> (u64, &'static str) {
        match why {
            Why::Refused => (ErrorCode::ExcessiveLoad.number(), "no room"),
            Why::Failed => (ErrorCode::Internal.number(), ""),
            Why::Shutdown => (ErrorCode::NoError.number(), ""),
        }
    }
}

/// Serves HTTP/3 on UDP sockets of one event loop; at rest until `resume`.
#[pyclass(module = "uvicorn._native", frozen)]
pub struct HTTP3Listener {
    listening: ThreadBound<RefCell<Option<Rc<Listening>>>>,
    connections: ThreadBound<Rc<Connections>>,
    poller: Py<Poller>,
    settings: ThreadBound<RefCell<Option<Settings>>>,
}

#[pymethods]
impl HTTP3Listener {
    #[new]
    #[pyo3(signature = (*, poller, descriptors, factory, context, slot, generation, secret, enter, handshake_timeout))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python's")]
    fn new(
        poller: Bound<'_, Poller>,
        descriptors: Vec<i32>,
        factory: Py<PyAny>,
        context: &Bound<'_, PyAny>,
        slot: u8,
        generation: u8,
        secret: &[u8],
        enter: Option<Py<PyAny>>,
        handshake_timeout: f64,
    ) -> PyResult<Self> {
        let tls = context.getattr("rustls")?.cast_into::<TLSConfig>()?.unbind();
        let handshake = Duration::try_from_secs_f64(handshake_timeout);
        let handshake = handshake.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let secret = secret.try_into().map_err(|_| PyValueError::new_err("`secret` must have 32 bytes."))?;
        let settings = Settings {
            descriptors,
            tls,
            secret,
            slot,
            generation,
            protocols: vec![PROTOCOL.to_vec()],
            early_data: false,
            limits: Limits { handshake, ..Limits::default() },
        };
        Ok(Self {
            listening: ThreadBound::default(),
            connections: ThreadBound::new(Rc::new(Connections {
                factory: RefCell::new(Some(factory)),
                enter,
                core: OnceCell::new(),
                opened: Cell::default(),
            })),
            poller: poller.unbind(),
            settings: ThreadBound::new(RefCell::new(Some(settings))),
        })
    }

    /// Read datagrams from now on.
    fn resume(&self, py: Python<'_>) -> PyResult<()> {
        let Some(mut settings) = self.settings.here()?.take() else { return Ok(()) };
        let connections = self.connections.here()?;
        let factory = connections.factory.borrow().as_ref().map(|factory| factory.clone_ref(py));
        if let Some(factory) = factory {
            // One without a client, for the state that all share.
            let made = factory.bind(py).call0()?;
            let protocol = made.cast::<HTTPProtocol>().map_err(|_| unfit())?;
            let core = connections.core(py, &protocol.get().version()?.served())?;
            settings.early_data = core.early_data;
            settings.limits.bidirectional = core.own_settings.streams;
        }
        let listening = Listening::listen(self.poller.bind(py), connections.clone(), settings)?;
        self.listening.here()?.replace(Some(listening));
        Ok(())
    }

    /// Ignore packets of new connections; existing ones go on. `is_opened` is called once none is in its handshake.
    fn stop_accepting(&self, py: Python<'_>, is_opened: Py<PyAny>) -> PyResult<()> {
        self.connections.here()?.opened.set(Some(is_opened));
        let listening = self.listening.here()?.borrow().clone();
        listening.map_or(Ok(()), |listening| listening.drain(py, Drain::Elsewhere))
    }

    /// Close all connections and the sockets.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let settings = self.settings.here()?.take();
        drop(settings);
        let listening = self.listening.here()?.take();
        let closed = listening.map_or(Ok(()), |listening| listening.close(py));
        let connections = self.connections.here()?;
        drop((connections.factory.take(), connections.opened.take()));
        closed
    }

    /// Connections, with those in a handshake and those that are closing.
    #[getter]
    fn connections(&self) -> PyResult<usize> {
        Ok(self.listening.here()?.borrow().as_ref().map_or(0, |listening| listening.connections()))
    }
}
