//! The Python view of a [`Socket`]: an `asyncio.Transport`, created on demand.

use std::rc::Rc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyTuple};

use super::socket::Socket;
use crate::base::ffi::thread_bound::ThreadBound;
use crate::conn::grace::Pending;
use crate::conn::handler::handler_of;

/// The transport of a connection that is accepted, read and written natively. It has all methods of
/// `asyncio.Transport`.
///
/// `get_extra_info` knows `peername`, `sockname` and `socket`, `proxy_protocol` where a proxy has said who its client
/// is (an `uvicorn.listening.proxy_protocol.ProxyHeader`), and of encrypted connections `ssl_object`, `sslcontext`,
/// `peercert`, `cipher` and `compression`.
#[pyclass(module = "uvicorn._native", frozen, weakref)]
pub struct Transport {
    socket: ThreadBound<Rc<Socket>>,
}

impl Transport {
    pub(super) fn new(socket: Rc<Socket>) -> Self {
        Self { socket: ThreadBound::new(socket) }
    }

    /// Its socket.
    pub(crate) fn socket(&self) -> PyResult<Rc<Socket>> {
        self.socket.here().cloned()
    }
}

#[pymethods]
impl Transport {
    /// Optional information about the connection.
    #[pyo3(signature = (name, default=None))]
    fn get_extra_info(&self, py: Python<'_>, name: &str, default: Option<Py<PyAny>>) -> PyResult<Option<Py<PyAny>>> {
        let socket = self.socket.here()?;
        match name {
            "peername" => socket.who.peer_name(py).map(Some),
            "sockname" => local_name(socket, py).map(Some),
            "socket" => {
                let shown = TransportSocket { socket: ThreadBound::new(socket.clone()) };
                Ok(Some(Py::new(py, shown)?.into_any()))
            }
            "proxy_protocol" => Ok(socket.who.proxy_header(py).or(default)),
            "sslcontext" => socket.ssl_context(py).map(|known| known.or(default)),
            _ => match socket.ssl_object(py).map_or(Ok(None), |object| object.get(py))? {
                Some(object) => about_encryption(object.bind(py), name).map(|known| known.or(default)),
                None => Ok(default),
            },
        }
    }

    /// Whether the transport is closing or closed.
    fn is_closing(&self) -> PyResult<bool> {
        Ok(self.socket.here()?.is_closing())
    }

    /// Stop reading, and close once everything is written.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.socket.here()?.close(py)
    }

    /// Close at once; output that waits is lost.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.socket.here()?.lose(py, None)
    }

    /// Have another protocol receive the events.
    fn set_protocol(&self, protocol: &Bound<'_, PyAny>) -> PyResult<()> {
        let socket = self.socket.here()?;
        socket.set_handler(handler_of(protocol)?);
        Ok(())
    }

    /// The protocol that receives the events.
    fn get_protocol(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        Ok(self.socket.here()?.handler().and_then(|handler| handler.protocol(py)))
    }

    /// Whether input is taken.
    fn is_reading(&self) -> PyResult<bool> {
        Ok(self.socket.here()?.is_reading())
    }

    /// Take no input until `resume_reading`.
    fn pause_reading(&self, py: Python<'_>) -> PyResult<()> {
        self.socket.here()?.pause_reading(py)
    }

    /// Take input again.
    fn resume_reading(&self, py: Python<'_>) -> PyResult<()> {
        self.socket.here()?.resume_reading(py)
    }

    /// Set the marks for the protocol's `pause_writing` and `resume_writing`, in bytes.
    #[pyo3(signature = (high=None, low=None))]
    fn set_write_buffer_limits(&self, py: Python<'_>, high: Option<usize>, low: Option<usize>) -> PyResult<()> {
        let high = high.unwrap_or_else(|| low.map_or(64 * 1024, |low| 4 * low));
        let low = low.unwrap_or(high / 4);
        if high < low {
            return Err(PyValueError::new_err(format!("high ({high}) must be >= low ({low}) must be >= 0")));
        }
        self.socket.here()?.set_limits(py, high, low)
    }

    /// `(low, high)`
    fn get_write_buffer_limits(&self) -> PyResult<(usize, usize)> {
        Ok(self.socket.here()?.limits())
    }

    /// Bytes that wait to be written.
    fn get_write_buffer_size(&self) -> PyResult<usize> {
        Ok(self.socket.here()?.waiting())
    }

    /// Bytes that are kept until they are written; and how many were written so far that had waited.
    fn get_held_size(&self) -> PyResult<(usize, usize)> {
        Ok(self.socket.here()?.held())
    }

    /// The number of a new duplicate of the descriptor, which belongs to the caller.
    ///
    /// Raises `OSError` if the connection is closed or there is no descriptor left.
    fn duplicate(&self) -> PyResult<i32> {
        Ok(self.socket.here()?.duplicate_number()?)
    }

    /// Bytes that the peer has yet to take, those in the kernel included.
    fn get_unsent_size(&self) -> PyResult<usize> {
        Ok(self.socket.here()?.unsent())
    }

    /// Whether there is anything to read, or room to write, that no turn of the loop has dealt with; the next one does.
    fn has_pending_io(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.socket.here()?.look(py)? != Pending::Nothing)
    }

    /// Write bytes, or keep them to be written.
    fn write(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let socket = self.socket.here()?;
        if let Ok(bytes) = data.cast_exact::<PyBytes>() {
            return socket.write_with(data.py(), b"", bytes);
        }
        socket.write(data.py(), copy(data)?.as_bytes())
    }

    /// Write pieces, in one call of the system if there is one.
    fn writelines(&self, pieces: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = pieces.py();
        let socket = self.socket.here()?;
        let joined = PyBytes::new(py, b"").call_method1("join", (pieces,))?;
        socket.write_with(py, b"", &joined.cast_into::<PyBytes>()?)
    }

    /// Tell the peer that nothing more will come, once everything is written.
    fn write_eof(&self, py: Python<'_>) -> PyResult<()> {
        self.socket.here()?.write_eof(py)
    }

    /// TCP and Unix sockets can end one direction, and so can TLS (RFC 8446 section 6.1).
    #[expect(clippy::unused_self, reason = "a method of every transport")]
    fn can_write_eof(&self) -> bool {
        true
    }

    /// How `loop.sendfile` does it: by reading and writing.
    #[getter]
    #[pyo3(name = "_sendfile_compatible")]
    #[expect(clippy::unused_self, reason = "an attribute of every transport")]
    fn sendfile_compatible<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("asyncio.constants")?.getattr("_SendfileMode")?.getattr("FALLBACK")
    }

    /// `loop.start_tls` refuses: listen with a TLS context instead.
    #[getter]
    #[pyo3(name = "_start_tls_compatible")]
    #[expect(clippy::unused_self, reason = "an attribute of every transport")]
    fn start_tls_compatible(&self) -> bool {
        false
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let socket = self.socket.here()?;
        let state = if socket.is_closing() { "closing" } else { "open" };
        let peer = socket.who.peer_name(py)?;
        Ok(format!("<uvicorn._native.Transport {state} peername={} write={}>", peer.bind(py).repr()?, socket.waiting()))
    }
}

/// The address of this end.
fn local_name(socket: &Socket, py: Python<'_>) -> PyResult<Py<PyAny>> {
    socket.who.local_name(py, socket.descriptor().as_deref())
}

/// The value of `name` in an `ssl.SSLObject`, if there is one.
fn about_encryption(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<Py<PyAny>>> {
    let known = match name {
        "ssl_object" => object.clone(),
        "peercert" => object.call_method0("getpeercert")?,
        "cipher" => object.call_method0("cipher")?,
        "compression" => object.call_method0("compression")?,
        _ => return Ok(None),
    };
    Ok(Some(known.unbind()))
}

/// The socket of a transport, for options and the like.
///
/// Addresses are answered without a call of the system. Whatever else is asked goes to an
/// `asyncio.trsock.TransportSocket` on a duplicate of the descriptor, made then: the number of the connection itself is
/// never handed out.
#[pyclass(module = "uvicorn._native", frozen)]
pub struct TransportSocket {
    socket: ThreadBound<Rc<Socket>>,
}

impl TransportSocket {
    fn shown<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.socket.here()?.duplicate(py)
    }
}

#[pymethods]
impl TransportSocket {
    /// The address of the peer.
    fn getpeername(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.socket.here()?.who.peer_name(py)
    }

    /// The address of this end.
    fn getsockname(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        local_name(self.socket.here()?, py)
    }

    /// The address family.
    #[getter]
    fn family(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.shown(py)?.getattr("family").map(Bound::unbind)
    }

    /// The socket type.
    #[getter]
    fn r#type(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.shown(py)?.getattr("type").map(Bound::unbind)
    }

    /// The number of the protocol.
    #[getter]
    fn proto(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.shown(py)?.getattr("proto").map(Bound::unbind)
    }

    /// The number of the duplicate, -1 once the connection is closed.
    fn fileno(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.shown(py)?.call_method0("fileno").map(Bound::unbind)
    }

    /// A `socket.socket` on one more duplicate.
    fn dup(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.shown(py)?.call_method0("dup").map(Bound::unbind)
    }

    /// Programs that are started do not inherit it.
    fn get_inheritable(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.shown(py)?.call_method0("get_inheritable").map(Bound::unbind)
    }

    /// As of a `socket.socket`.
    #[pyo3(signature = (*args))]
    fn getsockopt(&self, args: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        self.shown(args.py())?.call_method1("getsockopt", args.clone()).map(Bound::unbind)
    }

    /// As of a `socket.socket`.
    #[pyo3(signature = (*args))]
    fn setsockopt(&self, args: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.shown(args.py())?.call_method1("setsockopt", args.clone()).map(drop)
    }

    /// As of a `socket.socket`: the connection notices.
    fn shutdown(&self, py: Python<'_>, how: Py<PyAny>) -> PyResult<()> {
        self.shown(py)?.call_method1("shutdown", (how,)).map(drop)
    }

    /// It never blocks.
    fn gettimeout(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.shown(py)?.call_method0("gettimeout").map(Bound::unbind)
    }

    /// Only 0 is possible.
    fn settimeout(&self, py: Python<'_>, value: Py<PyAny>) -> PyResult<()> {
        self.shown(py)?.call_method1("settimeout", (value,)).map(drop)
    }

    /// Only false is possible.
    fn setblocking(&self, py: Python<'_>, flag: Py<PyAny>) -> PyResult<()> {
        self.shown(py)?.call_method1("setblocking", (flag,)).map(drop)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let socket = self.socket.here()?;
        Ok(format!(
            "<uvicorn._native.TransportSocket laddr={} raddr={}>",
            local_name(socket, py)?.bind(py).repr()?,
            socket.who.peer_name(py)?.bind(py).repr()?
        ))
    }
}

/// The present content of a bytes-like object.
fn copy<'py>(data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    if let Ok(view) = PyMemoryView::from(data) {
        return Ok(view.call_method0("tobytes")?.cast_into::<PyBytes>()?);
    }
    let text = format!("data argument must be a bytes-like object, not '{}'", data.get_type().name()?);
    Err(PyTypeError::new_err(text))
}
