//! A stream of a connection that has many, in place of a socket.

use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::ends::Ends;
use super::grace::Pending;
use crate::base::ffi::thread_bound::ThreadBound;

/// What a [`Carrier`](super::carrier::Carrier) can be asked for, of a stream. What stands on it is a
/// [`Handler`](super::handler::Handler), and is told as if it stood on a socket.
pub(crate) trait Tunnel {
    /// Who is at the ends of the connection.
    fn ends(&self, py: Python<'_>) -> Ends;
    /// The end has begun.
    fn is_closing(&self) -> bool;
    /// Write `data`. First of all that is the head of a response, as HTTP/1.1 has it.
    fn write(&self, data: &Bound<'_, PyBytes>) -> PyResult<()>;
    /// Bytes that wait for the windows.
    fn waiting(&self) -> usize;
    /// What is there of the peer that nobody has dealt with.
    fn look(&self, py: Python<'_>) -> PyResult<Pending>;
    /// Take input, or none.
    fn set_reading(&self, py: Python<'_>, reading: bool) -> PyResult<()>;
    /// End the stream once everything is written.
    fn close(&self, py: Python<'_>) -> PyResult<()>;
    /// End it at once.
    fn abort(&self, py: Python<'_>) -> PyResult<()>;
}

/// What a stream is to Python, where a connection of its own would have an `asyncio.Transport`: it can be asked, and ended.
#[pyclass(module = "uvicorn._native", frozen)]
pub(super) struct StreamTransport(ThreadBound<Rc<dyn Tunnel>>);

impl StreamTransport {
    pub(super) fn new(stream: Rc<dyn Tunnel>) -> Self {
        Self(ThreadBound::new(stream))
    }
}

#[pymethods]
impl StreamTransport {
    #[pyo3(signature = (name, default = None))]
    fn get_extra_info(&self, py: Python<'_>, name: &str, default: Option<Py<PyAny>>) -> PyResult<Option<Py<PyAny>>> {
        let Ends { client, server, .. } = self.0.here()?.ends(py);
        Ok(match name {
            "peername" => Some(client),
            "sockname" => Some(server),
            _ => default,
        })
    }

    fn is_closing(&self) -> PyResult<bool> {
        Ok(self.0.here()?.is_closing())
    }

    fn get_write_buffer_size(&self) -> PyResult<usize> {
        Ok(self.0.here()?.waiting())
    }

    /// None of its own: what waits is the connection's.
    #[expect(clippy::unused_self, reason = "an attribute of every transport of ours")]
    fn get_held_size(&self) -> (usize, usize) {
        (0, 0)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.0.here()?.close(py)
    }

    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.0.here()?.abort(py)
    }
}
