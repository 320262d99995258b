//! The state that the HTTP/1.1 connections of one event loop share.

use std::ops::Deref;
use std::rc::Rc;

use pyo3::prelude::*;

use super::headers::KeptHeaders;
use super::scratch::SpareScratch;
use crate::asgi::host::Host;
use crate::asgi::runner::Runner;
use crate::base::clock::DefaultHead;
use crate::base::home::Home;
use crate::conn::hub::Hub;

/// Shared by reference counting inside one thread; nothing in it may be borrowed across a call into Python.
pub(crate) struct Core {
    home: Rc<Home>,
    pub(crate) hub: Rc<Hub>,
    pub(crate) host: Rc<Host>,
    pub(crate) runner: Rc<Runner>,
    pub(crate) config: Py<PyAny>,
    pub(crate) ws_protocol_class: Py<PyAny>,
    pub(crate) default_head: DefaultHead,
    pub(super) scratch: SpareScratch,
    pub(super) headers: KeptHeaders,
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
        Ok(Self {
            config: config.clone().unbind(),
            ws_protocol_class: config.getattr("ws_protocol_class")?.unbind(),
            default_head: DefaultHead::default(),
            scratch: SpareScratch::new(home.settings.reuse),
            headers: KeptHeaders::new(runner.host.clone()),
            host: runner.host.clone(),
            runner,
            hub,
            home,
        })
    }
}
