//! The ends of a socket: its addresses, or a proxy's description of its client.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use super::address::{Local, host, host_of, name};
use super::slot::ConnectionSlot;
use super::sys::{Address, Descriptor};

/// Both ends of a connection.
pub(super) struct Who {
    /// Of the other end of the socket, which may be a proxy.
    nearest: Address,
    /// Of this end, where all that one listening socket accepts have the same.
    local: Option<Rc<Local>>,
    /// An `uvicorn.listening.proxy_protocol.ProxyHeader`, if a proxy has made one. Its ends are pairs of host and port
    /// or paths of Unix sockets, or `None` where those of the socket hold.
    proxy_header: OnceCell<Py<PyAny>>,
    /// Its record at the connection limit.
    pub(super) slot: RefCell<Option<ConnectionSlot>>,
}

impl Who {
    pub(super) fn new(nearest: Address, local: Option<Rc<Local>>) -> Self {
        Self { nearest, local, proxy_header: OnceCell::new(), slot: RefCell::default() }
    }

    /// A proxy has described its client.
    pub(super) fn set_proxy_header(&self, proxy_header: Py<PyAny>) {
        let _ = self.proxy_header.set(proxy_header);
    }

    /// The proxy's description of its client, if there is one.
    pub(super) fn proxy_header(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.proxy_header.get().map(|said| said.clone_ref(py))
    }

    /// A part of that, unless it is `None`.
    fn said<'py>(&self, py: Python<'py>, name: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(said) = self.proxy_header.get() else { return Ok(None) };
        Ok(Some(said.bind(py).getattr(name)?).filter(|part| !part.is_none()))
    }

    fn client<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.said(py, intern!(py, "source"))
    }

    /// The text that distinguishes the client from others that have an address.
    pub(super) fn host<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        match self.client(py)? {
            Some(client) => client.cast::<PyTuple>().map_or(Ok(None), |pair| Ok(Some(pair.get_item(0)?.cast_into()?))),
            None => Ok(host_of(py, &self.nearest)),
        }
    }

    /// `(host, port)` of the client, or `None`.
    pub(super) fn peer(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match (self.client(py)?, &self.nearest) {
            (Some(client), _) if client.is_instance_of::<PyTuple>() => Ok(client.unbind()),
            (None, Address::Ip(ip)) => Ok((host(py, ip.ip()), ip.port()).into_pyobject(py)?.into_any().unbind()),
            _ => Ok(py.None()),
        }
    }

    /// The address of the client, as `socket.getpeername()` has it.
    pub(super) fn peer_name(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.client(py)?.map_or_else(|| self.nearest_name(py), |client| name_of_said(&client))
    }

    /// The same of the peer at the other end of the socket.
    pub(super) fn nearest_name(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        name(py, &self.nearest)
    }

    /// Where the client has connected to, as scopes have it: `(host, port)`, or the path of a Unix socket and `None`.
    pub(super) fn local(&self, py: Python<'_>, descriptor: Option<&Descriptor>) -> PyResult<Py<PyAny>> {
        let shown = match self.said(py, intern!(py, "destination"))? {
            Some(said) if said.is_instance_of::<PyTuple>() => Some(said.unbind()),
            Some(path) if path.is_truthy()? => Some((path, py.None()).into_pyobject(py)?.into_any().unbind()),
            Some(_) => None,
            None => self.local_address(descriptor).map_or(Ok(None), |local| local.shown(py))?,
        };
        Ok(shown.unwrap_or_else(|| py.None()))
    }

    /// The same, as `socket.getsockname()` has it.
    pub(super) fn local_name(&self, py: Python<'_>, descriptor: Option<&Descriptor>) -> PyResult<Py<PyAny>> {
        match self.said(py, intern!(py, "destination"))? {
            Some(said) => name_of_said(&said),
            None => self.local_address(descriptor).map_or_else(|| Ok(py.None()), |local| name(py, &local.address)),
        }
    }

    fn local_address(&self, descriptor: Option<&Descriptor>) -> Option<Rc<Local>> {
        self.local.clone().or_else(|| descriptor?.local_address().map(Local::new).map(Rc::new))
    }

    /// The proxy's description, if it says that the client has encrypted the connection.
    pub(super) fn tls_at_proxy(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        Ok(self.said(py, intern!(py, "tls"))?.and_then(|_| self.proxy_header(py)))
    }
}

/// An address in a proxy's description, in the form of Python's sockets.
fn name_of_said(said: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    Ok(said.py().import("uvicorn.listening.proxy_protocol")?.call_method1("socket_name", (said,))?.unbind())
}
