//! The state that the HTTP/2 connections of one event loop share.

use std::ops::Deref;
use std::rc::Rc;
use std::time::Duration;

use pyo3::prelude::*;
use wire::h2::Settings;

use crate::asgi::host::Host;
use crate::asgi::runner::Runner;
use crate::base::home::Home;
use crate::base::settings::seconds;
use crate::conn::hub::Hub;
use crate::streams::sections::Sections;

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
    pub(super) sections: Sections,
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
            sections: Sections::new(home.settings.reuse, None),
            host: runner.host.clone(),
            runner,
            hub,
            home,
        })
    }
}
