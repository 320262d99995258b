//! A transport of the event loop as the carrier of a connection.

use std::rc::Rc;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::carrier::{Carrier, Negotiated, negotiated};
use super::ends::Ends;
use super::grace::Pending;
use crate::base::encrypted::SslObject;
use crate::base::home::Home;

/// An `asyncio.Transport` that the event loop has created.
pub(crate) struct LoopTransport {
    transport: Py<PyAny>,
    home: Rc<Home>,
}

impl LoopTransport {
    pub(crate) fn new(transport: &Bound<'_, PyAny>, home: Rc<Home>) -> Self {
        Self { transport: transport.clone().unbind(), home }
    }

    /// Ask a function of `uvicorn` about the transport.
    fn ask<'py>(&self, py: Python<'py>, module: &str, function: &str) -> PyResult<Bound<'py, PyAny>> {
        py.import(module)?.call_method1(function, (&self.transport,))
    }

    fn is_encrypted(&self, py: Python<'_>) -> PyResult<bool> {
        self.ask(py, UTILS, "is_ssl")?.is_truthy()
    }
}

const UTILS: &str = "uvicorn.protocols.utils";

impl Carrier for LoopTransport {
    fn ends(&self, py: Python<'_>) -> PyResult<Ends> {
        let secure = self.ask(py, UTILS, "is_secure")?.is_truthy()?;
        let tls = if secure { Some(self.ask(py, UTILS, "tls_of")?).filter(|tls| !tls.is_none()) } else { None };
        Ok(Ends {
            client: self.ask(py, UTILS, "get_remote_addr")?.unbind(),
            server: self.ask(py, UTILS, "get_local_addr")?.unbind(),
            secure,
            ssl_object: tls.map(|object| SslObject::Made(object.unbind())),
        })
    }

    fn application_protocol(&self, py: Python<'_>) -> PyResult<Option<Negotiated>> {
        if !self.is_encrypted(py)? {
            return Ok(None);
        }
        let object = self.transport.bind(py).call_method1(&self.home.names.get_extra_info, ("ssl_object",))?;
        if object.is_none() { Ok(Some(None)) } else { negotiated(&object).map(Some) }
    }

    fn transport(self: Rc<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.transport.clone_ref(py))
    }

    fn pause_reading(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.transport.bind(py).call_method0(&self.home.names.pause_reading).map(drop)
    }

    /// A loop reads on in the context of the caller, and that of a request would live as long as the connection: so
    /// this is called in the server's.
    fn resume_reading(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        let Home { names, context, .. } = &*self.home;
        let resume = self.transport.bind(py).getattr(&names.resume_reading)?;
        context.bind(py).call_method1(&names.run, (resume,)).map(drop)
    }

    fn look(self: Rc<Self>, py: Python<'_>) -> PyResult<Pending> {
        let found = self.ask(py, "uvicorn.rules.grace", "has_pending_io")?.is_truthy()?;
        Ok(if found { Pending::Something } else { Pending::Nothing })
    }

    fn descriptor_of_end(&self, py: Python<'_>) -> PyResult<Option<i32>> {
        let socket = self.transport.bind(py).call_method1(&self.home.names.get_extra_info, ("socket",))?;
        if socket.is_none() || self.is_closing(py)? {
            return Ok(None);
        }
        socket.call_method0("fileno")?.extract().map(Some)
    }

    fn write(self: Rc<Self>, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        self.transport.bind(py).call_method1(&self.home.names.write, (PyBytes::new(py, data),)).map(drop)
    }

    fn write_with(self: Rc<Self>, py: Python<'_>, head: &[u8], body: &Bound<'_, PyBytes>) -> PyResult<()> {
        if !head.is_empty() {
            self.clone().write(py, head)?;
        }
        self.transport.bind(py).call_method1(&self.home.names.write, (body,)).map(drop)
    }

    fn waiting(&self, py: Python<'_>) -> PyResult<usize> {
        self.ask(py, "uvicorn.serving.write_deadlines", "unsent_by_process")?.extract()
    }

    fn unsent(&self, py: Python<'_>) -> PyResult<usize> {
        self.ask(py, "uvicorn.serving.write_deadlines", "unsent")?.extract()
    }

    fn pause_early(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.ask(py, "uvicorn.protocols.http.h1.carrier", "pause_early").map(drop)
    }

    fn keep_little(self: Rc<Self>, py: Python<'_>, most: i32) -> PyResult<()> {
        let module = py.import("uvicorn.protocols.http.h1.carrier")?;
        module.call_method1("keep_little", (&self.transport, most)).map(drop)
    }

    #[inline]
    fn is_closing(&self, py: Python<'_>) -> PyResult<bool> {
        self.transport.bind(py).call_method0(&self.home.names.is_closing)?.is_truthy()
    }

    fn can_write_eof(&self, py: Python<'_>) -> PyResult<bool> {
        self.transport.bind(py).call_method0(&self.home.names.can_write_eof)?.is_truthy()
    }

    fn ends_as_a_whole(&self, py: Python<'_>) -> PyResult<bool> {
        self.is_encrypted(py)
    }

    fn write_eof(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.transport.bind(py).call_method0(&self.home.names.write_eof).map(drop)
    }

    fn close(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.transport.bind(py).call_method0(&self.home.names.close).map(drop)
    }

    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.transport.bind(py).call_method0(&self.home.names.abort).map(drop)
    }

    fn reset_on_close(&self, py: Python<'_>) -> PyResult<()> {
        self.ask(py, "uvicorn.protocols.http.h1.carrier", "reset_on_close").map(drop)
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.transport)
    }
}
