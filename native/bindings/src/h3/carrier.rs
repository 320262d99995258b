//! A QUIC connection, as what carries an HTTP/3 connection: it has two ends, and can be closed. Bytes go by its streams.

use std::net::SocketAddr;
use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::h3::ErrorCode;

use crate::base::encrypted::SslObject;
use crate::base::turns::Turns;
use crate::conn::carrier::Carrier;
use crate::conn::ends::Ends;
use crate::conn::grace::Pending;
use crate::conn::stream_transport::StreamTransport;
use crate::udp::connection::Connection as Quic;

/// Carries an HTTP/3 connection.
pub(super) struct QuicCarrier(pub(super) Rc<Quic>);

/// An address, as scopes have it.
pub(super) fn shown(py: Python<'_>, address: SocketAddr) -> PyResult<Py<PyAny>> {
    Ok((address.ip().to_string(), address.port()).into_pyobject(py)?.into_any().unbind())
}

impl Carrier for QuicCarrier {
    fn ends(&self, py: Python<'_>) -> PyResult<Ends> {
        Ok(Ends {
            client: shown(py, self.0.remote())?,
            server: shown(py, self.0.local())?,
            secure: true,
            ssl_object: Some(SslObject::Later(self.0.clone())),
        })
    }

    fn transport(self: Rc<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, StreamTransport::new(self))?.into_any())
    }

    fn turns(&self) -> Option<Rc<dyn Turns>> {
        self.0.turns()
    }

    fn pause_reading(self: Rc<Self>, _py: Python<'_>) -> PyResult<()> {
        Ok(())
    }

    fn resume_reading(self: Rc<Self>, _py: Python<'_>) -> PyResult<()> {
        Ok(())
    }

    fn look(self: Rc<Self>, py: Python<'_>) -> PyResult<Pending> {
        self.0.look(py)
    }

    fn write(self: Rc<Self>, _py: Python<'_>, _data: &[u8]) -> PyResult<()> {
        Ok(())
    }

    fn write_with(self: Rc<Self>, _py: Python<'_>, _head: &[u8], _body: &Bound<'_, PyBytes>) -> PyResult<()> {
        Ok(())
    }

    fn waiting(&self, _py: Python<'_>) -> PyResult<usize> {
        Ok(0)
    }

    fn is_closing(&self, _py: Python<'_>) -> PyResult<bool> {
        Ok(self.0.is_closing())
    }

    fn write_eof(self: Rc<Self>, _py: Python<'_>) -> PyResult<()> {
        Ok(())
    }

    fn close(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.0.close(py, ErrorCode::NoError.number(), "")
    }

    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.0.close(py, ErrorCode::Internal.number(), "")
    }
}
