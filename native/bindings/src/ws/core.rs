//! The state that the `WebSocket`s of one event loop share.

use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};
use wire::ws::limits::table::DEFLATE_MIN_SIZE;
use wire::ws::{Limits, Settings, StreamPool};

use super::broadcast::Broadcast;
use crate::asgi::fields::FieldTuples;
use crate::asgi::host::Host;
use crate::asgi::runner::Runner;
use crate::base::home::Home;
use crate::base::level::Level;
use crate::base::objects::KnownText;
use crate::base::settings::seconds;
use crate::conn::hub::Hub;

const INFO: u8 = 20;

/// The time limits of a WebSocket.
pub(super) struct Patience {
    pub(super) ping_interval: Option<Duration>,
    pub(super) ping_timeout: Option<Duration>,
    pub(super) close: Duration,
    pub(super) answers: Duration,
    pub(super) linger: Duration,
}

impl Patience {
    fn new(config: &Bound<'_, PyAny>, constants: &Bound<'_, PyAny>) -> PyResult<Self> {
        let optional = |name: &str| -> PyResult<Option<Duration>> {
            if config.getattr(name)?.is_none() { Ok(None) } else { seconds(config, name) }
        };
        let constant = |name: &str| Ok::<_, PyErr>(seconds(constants, name)?.unwrap_or_default());
        Ok(Self {
            ping_interval: optional("ws_ping_interval")?,
            ping_timeout: optional("ws_ping_timeout")?,
            close: constant("CLOSE_TIMEOUT")?,
            answers: constant("ANSWER_SECONDS")?,
            linger: constant("LINGER_SECONDS")?,
        })
    }
}

/// Shared by reference counting inside one thread; nothing in it may be borrowed across a call into Python.
pub(crate) struct Core {
    home: Rc<Home>,
    pub(crate) hub: Rc<Hub>,
    pub(super) host: Rc<Host>,
    pub(super) runner: Rc<Runner>,
    pub(crate) config: Py<PyAny>,
    pub(super) tuples: FieldTuples,
    pub(super) limits: Limits,
    pub(super) pool: RefCell<StreamPool>,
    pub(super) broadcast: RefCell<Broadcast>,
    pub(super) max_queue: usize,
    pub(super) deflate: bool,
    pub(super) shutdown_code: u16,
    pub(super) patience: Patience,
    pub(super) info: Level,
    pub(super) send: KnownText,
    /// `websocket.receive`
    pub(super) receive: Py<PyString>,
    /// `utils.ClientDisconnected`
    pub(super) client_disconnected: Py<PyAny>,
    /// The class of protocols that no program has changed.
    pub(crate) untouched: RefCell<Option<Py<PyType>>>,
}

impl Deref for Core {
    type Target = Home;

    #[inline]
    fn deref(&self) -> &Home {
        &self.home
    }
}

impl Core {
    pub(crate) fn new(home: Rc<Home>, hub: Rc<Hub>, runner: Rc<Runner>, config: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = config.py();
        let constants = py.import("uvicorn.rules.websocket_limits")?;
        let max_size: Option<usize> = config.getattr("ws_max_size")?.extract()?;
        let max_queue: i64 = config.getattr("ws_max_queue")?.extract()?;
        Ok(Self {
            tuples: FieldTuples::default(),
            limits: Limits {
                message: max_size.unwrap_or(usize::MAX),
                overhead: constants.getattr("MAX_OVERHEAD")?.extract()?,
            },
            pool: RefCell::new(StreamPool::new(Settings { threshold: DEFLATE_MIN_SIZE, ..Settings::default() })),
            broadcast: RefCell::default(),
            max_queue: usize::try_from(max_queue).unwrap_or_default().max(1),
            deflate: config.getattr("ws_per_message_deflate")?.is_truthy()?,
            shutdown_code: config.getattr("ws_shutdown_code")?.extract()?,
            patience: Patience::new(config, &constants)?,
            info: Level::new(home.logger.bind(py), INFO)?,
            send: KnownText::new(py, "websocket.send"),
            receive: PyString::intern(py, "websocket.receive").unbind(),
            client_disconnected: py.import("uvicorn.protocols.utils")?.getattr("ClientDisconnected")?.unbind(),
            untouched: RefCell::default(),
            config: config.clone().unbind(),
            host: runner.host.clone(),
            runner,
            hub,
            home,
        })
    }
}
