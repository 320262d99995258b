//! The state that the HTTP/2 connections of one event loop share.

use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;
use std::time::Duration;

use pyo3::prelude::*;
use wire::error::AppError;
use wire::h2::{Defaults, ResponseHead, Scratch, Settings};

use super::pairs::StaticPairs;
use crate::asgi::host::Host;
use crate::asgi::runner::Runner;
use crate::base::clock::DefaultHead;
use crate::base::error::exception;
use crate::base::home::Home;
use crate::base::reuse::Single;
use crate::base::settings::seconds;
use crate::conn::hub::Hub;

/// Shared by reference counting inside one thread; nothing in it may be borrowed across a call into Python.
pub(crate) struct Core {
    home: Rc<Home>,
    pub(crate) hub: Rc<Hub>,
    pub(crate) host: Rc<Host>,
    pub(crate) runner: Rc<Runner>,
    pub(crate) config: Py<PyAny>,
    pub(crate) ws_protocol_class: Py<PyAny>,
    /// The settings sent to clients.
    pub(super) own_settings: Settings,
    /// How long a connection may be silent before a PING, and how long the client has to answer it.
    pub(super) ping_interval: Option<Duration>,
    pub(super) ping_timeout: Duration,
    /// Whether a WebSocket is compressed.
    pub(super) deflate: bool,
    pub(super) pairs: StaticPairs,
    /// One for all connections. One that is served inside the turn of another has one of its own.
    scratch: Single<Box<Scratch>>,
    default_head: DefaultHead,
    defaults: RefCell<Defaults>,
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
        let fields: Option<u32> = config.getattr("http2_max_header_list_size")?.extract()?;
        let window = config.getattr("http2_initial_window_size")?.extract()?;
        let defaults = Settings::default();
        let ws_protocol_class = config.getattr("ws_protocol_class")?;
        let own_settings = Settings {
            streams: config.getattr("http2_max_concurrent_streams")?.extract()?,
            window,
            largest_window: defaults.largest_window.max(window),
            frame: config.getattr("http2_max_frame_size")?.extract()?,
            fields: fields.unwrap_or_else(|| u32::try_from(home.settings.limits.head).unwrap_or(u32::MAX)),
            // Other implementations want a transport.
            connect_protocol: ws_protocol_class.getattr_opt("stands_on_streams")?.is_some(),
            ..defaults
        };
        Ok(Self {
            config: config.clone().unbind(),
            ws_protocol_class: ws_protocol_class.unbind(),
            deflate: config.getattr("ws_per_message_deflate")?.is_truthy()?,
            own_settings,
            ping_interval: seconds(config, "http2_ping_interval")?,
            ping_timeout: seconds(config, "http2_ping_timeout")?.unwrap_or_default(),
            pairs: StaticPairs::default(),
            scratch: Single::new(home.settings.reuse),
            default_head: DefaultHead::default(),
            defaults: RefCell::default(),
            host: runner.host.clone(),
            runner,
            hub,
            home,
        })
    }

    /// Run `body` with scratch in which there is no request, and leave none in it.
    #[inline]
    pub(super) fn with_scratch<R>(&self, body: impl FnOnce(&mut Scratch) -> R) -> R {
        let mut scratch = self.scratch.take().unwrap_or_default();
        let result = body(&mut scratch);
        scratch.clear();
        self.scratch.give(scratch);
        result
    }

    /// Bring the fields that each response begins with up to date.
    #[inline]
    pub(super) fn refresh_defaults(&self, py: Python<'_>) -> PyResult<()> {
        if self.default_head.refresh(self.host.state.bind(py), &self.names)? {
            let fields = self.default_head.with(read_fields).map_err(exception)?;
            self.defaults.replace(fields);
        }
        Ok(())
    }

    /// Add them.
    #[inline]
    pub(super) fn add_defaults(&self, head: &mut ResponseHead) {
        head.defaults(&self.defaults.borrow());
    }

    /// Show each of them to `with`.
    pub(super) fn each_default(&self, with: impl FnMut((&[u8], &[u8]))) {
        self.defaults.borrow().iter().for_each(with);
    }
}

/// The fields of these lines.
fn read_fields(lines: &[u8]) -> Result<Defaults, AppError> {
    let mut fields = Defaults::default();
    for line in lines.split(|&byte| byte == b'\n') {
        if let Some(colon) = line.iter().position(|&byte| byte == b':') {
            let (name, value) = line.split_at(colon);
            fields.add(name, value.get(1..).unwrap_or_default().trim_ascii())?;
        }
    }
    Ok(fields)
}
