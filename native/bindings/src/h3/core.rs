//! The state that the HTTP/3 connections of one event loop share.

use std::ops::Deref;
use std::rc::Rc;

use pyo3::prelude::*;
use wire::h3::Settings;

use crate::asgi::host::Host;
use crate::asgi::runner::Runner;
use crate::base::home::Home;
use crate::conn::hub::Hub;
use crate::streams::sections::Sections;

/// Where other versions announce HTTP/3.
const ALT_SVC: &[u8] = b"alt-svc";

/// Shared by reference counting inside one thread; nothing in it may be borrowed across a call into Python.
pub(crate) struct Core {
    home: Rc<Home>,
    pub(crate) hub: Rc<Hub>,
    pub(crate) host: Rc<Host>,
    pub(crate) runner: Rc<Runner>,
    pub(crate) config: Py<PyAny>,
    pub(crate) ws_protocol_class: Py<PyAny>,
    /// The settings sent to clients.
    pub(crate) own_settings: Settings,
    /// Whether requests in early data are served.
    pub(crate) early_data: bool,
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
        let ws_protocol_class = config.getattr("ws_protocol_class")?;
        let own_settings = Settings {
            streams: config.getattr("http3_max_concurrent_streams")?.extract()?,
            fields: u32::try_from(home.settings.limits.head).unwrap_or(u32::MAX),
            // Other implementations want a transport.
            connect_protocol: ws_protocol_class.getattr_opt("stands_on_streams")?.is_some(),
            ..Settings::default()
        };
        let fields: Vec<(Vec<u8>, Vec<u8>)> = config.getattr("encoded_headers")?.extract()?;
        let sets_alt_svc = fields.iter().any(|(name, _)| name == ALT_SVC);
        Ok(Self {
            config: config.clone().unbind(),
            ws_protocol_class: ws_protocol_class.unbind(),
            own_settings,
            early_data: config.getattr("http3_early_data")?.is_truthy()?,
            deflate: config.getattr("ws_per_message_deflate")?.is_truthy()?,
            sections: Sections::new(home.settings.reuse, (!sets_alt_svc).then_some(ALT_SVC)),
            host: runner.host.clone(),
            runner,
            hub,
            home,
        })
    }
}
