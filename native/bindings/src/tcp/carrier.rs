//! A socket as the carrier of a connection.

use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::socket::Socket;
use crate::base::encrypted::SslObject;
use crate::base::turns::Turns;
use crate::conn::carrier::{Carrier, Negotiated};
use crate::conn::ends::Ends;
use crate::conn::grace::Pending;
use crate::conn::handler::Handler;

impl Carrier for Socket {
    fn ends(&self, py: Python<'_>) -> PyResult<Ends> {
        let told = self.who.tls_at_proxy(py)?;
        Ok(Ends {
            client: self.who.peer(py)?,
            server: self.who.local(py, self.descriptor().as_deref())?,
            secure: self.is_encrypted() || told.is_some(),
            // The parameters that the client has encrypted with.
            ssl_object: told.map(SslObject::Made).or_else(|| self.ssl_object(py)),
        })
    }

    fn application_protocol(&self, py: Python<'_>) -> PyResult<Option<Negotiated>> {
        self.tls.as_ref().map(|tls| tls.application_protocol(py)).transpose()
    }

    fn transport(self: Rc<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Socket::transport(&self, py)
    }

    fn release_transport(&self, py: Python<'_>) {
        Socket::release_transport(self, py);
    }

    fn turns(&self) -> Option<Rc<dyn Turns>> {
        Some(self.keeper.clone())
    }

    fn set_handler(&self, handler: Rc<dyn Handler>) {
        Socket::set_handler(self, handler);
    }

    fn pause_reading(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        Socket::pause_reading(&self, py)
    }

    fn resume_reading(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        Socket::resume_reading(&self, py)
    }

    fn look(self: Rc<Self>, py: Python<'_>) -> PyResult<Pending> {
        Socket::look(&self, py)
    }

    #[inline]
    fn write(self: Rc<Self>, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        Socket::write(&self, py, data)
    }

    fn write_with(self: Rc<Self>, py: Python<'_>, head: &[u8], body: &Bound<'_, PyBytes>) -> PyResult<()> {
        Socket::write_with(&self, py, head, body)
    }

    fn write_both(self: Rc<Self>, py: Python<'_>, head: &[u8], body: &[u8]) -> PyResult<()> {
        Socket::write_both(&self, py, head, body)
    }

    fn waiting(&self, _py: Python<'_>) -> PyResult<usize> {
        Ok(Socket::waiting(self))
    }

    fn unsent(&self, _py: Python<'_>) -> PyResult<usize> {
        Ok(Socket::unsent(self))
    }

    fn pause_early(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.set_limits(py, 0, 0)
    }

    fn keep_little(self: Rc<Self>, py: Python<'_>, most: i32) -> PyResult<()> {
        if let Some(descriptor) = self.descriptor() {
            descriptor.limit_unsent(most);
        }
        self.pause_early(py)
    }

    #[inline]
    fn is_closing(&self, _py: Python<'_>) -> PyResult<bool> {
        Ok(Socket::is_closing(self))
    }

    fn write_eof(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        Socket::write_eof(&self, py)
    }

    fn close(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        Socket::close(&self, py)
    }

    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.lose(py, None)
    }

    fn reset_on_close(&self, _py: Python<'_>) -> PyResult<()> {
        Socket::reset_on_close(self);
        Ok(())
    }
}
