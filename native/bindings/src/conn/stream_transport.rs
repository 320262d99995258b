//! The Python view of a stream of a multiplexed connection.

use std::rc::Rc;

use pyo3::prelude::*;

use super::carrier::Carrier;
use super::ends::Ends;
use crate::base::ffi::thread_bound::ThreadBound;

/// What a stream is to Python, where a connection of its own would have an `asyncio.Transport`: it can be asked, and ended.
#[pyclass(module = "uvicorn._native", frozen)]
pub(crate) struct StreamTransport(ThreadBound<Rc<dyn Carrier>>);

impl StreamTransport {
    pub(crate) fn new(stream: Rc<dyn Carrier>) -> Self {
        Self(ThreadBound::new(stream))
    }
}

#[pymethods]
impl StreamTransport {
    #[pyo3(signature = (name, default = None))]
    fn get_extra_info(&self, py: Python<'_>, name: &str, default: Option<Py<PyAny>>) -> PyResult<Option<Py<PyAny>>> {
        let Ends { client, server, ssl_object, .. } = self.0.here()?.ends(py)?;
        Ok(match name {
            "peername" => Some(client),
            "sockname" => Some(server),
            "ssl_object" => ssl_object.map_or(Ok(None), |object| object.get(py))?.or(default),
            "sslcontext" => {
                let object = ssl_object.map_or(Ok(None), |object| object.get(py))?;
                object.map(|object| object.getattr(py, "context")).transpose()?.or(default)
            }
            _ => default,
        })
    }

    fn is_closing(&self, py: Python<'_>) -> PyResult<bool> {
        self.0.here()?.is_closing(py)
    }

    fn get_write_buffer_size(&self, py: Python<'_>) -> PyResult<usize> {
        self.0.here()?.waiting(py)
    }

    /// It holds nothing: waiting output is the connection's.
    #[expect(clippy::unused_self, reason = "an attribute of every transport of ours")]
    fn get_held_size(&self) -> (usize, usize) {
        (0, 0)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.0.here()?.clone().close(py)
    }

    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.0.here()?.abort(py)
    }
}
