//! Addresses of sockets, as Python has them.

use std::cell::OnceCell;
use std::net::IpAddr;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use super::sys::Address;

/// The address of this end of connections.
pub(super) struct Local {
    pub(super) address: Address,
    /// Immutable, so all of them may have the same.
    shown: OnceCell<Option<Py<PyAny>>>,
}

impl Local {
    pub(super) fn new(address: Address) -> Self {
        Self { address, shown: OnceCell::new() }
    }

    /// Its value in a scope.
    pub(super) fn shown(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if let Some(shown) = self.shown.get() {
            return Ok(shown.as_ref().map(|shown| shown.clone_ref(py)));
        }
        let shown = match &self.address {
            Address::Ip(ip) => Some((host(py, ip.ip()), ip.port()).into_pyobject(py)?.into_any().unbind()),
            Address::Path(path) if !path.is_empty() => {
                let path = String::from_utf8_lossy(path);
                Some((path, py.None()).into_pyobject(py)?.into_any().unbind())
            }
            Address::Path(_) => None,
        };
        Ok(self.shown.get_or_init(|| shown).as_ref().map(|shown| shown.clone_ref(py)))
    }
}

/// The text of an address, which distinguishes peers; Unix sockets have none.
pub(super) fn host_of<'py>(py: Python<'py>, address: &Address) -> Option<Bound<'py, PyString>> {
    match address {
        Address::Ip(ip) => Some(host(py, ip.ip())),
        Address::Path(_) => None,
    }
}

/// Write an address. Each connection needs one, and the general way to write numbers costs ten times as much.
pub(super) fn host(py: Python<'_>, ip: IpAddr) -> Bound<'_, PyString> {
    let IpAddr::V4(ip) = ip else { return PyString::new(py, &ip.to_string()) };
    let mut text = String::with_capacity("255.255.255.255".len());
    for octet in ip.octets() {
        if !text.is_empty() {
            text.push('.');
        }
        for (from, unit) in [(100, 100), (10, 10), (0, 1)] {
            if octet >= from {
                text.push(char::from(b'0' + octet / unit % 10));
            }
        }
    }
    PyString::new(py, &text)
}

/// An address as Python's sockets have it.
pub(super) fn name(py: Python<'_>, address: &Address) -> PyResult<Py<PyAny>> {
    use std::net::SocketAddr::{V4, V6};
    Ok(match address {
        Address::Ip(V4(ip)) => (host(py, IpAddr::V4(*ip.ip())), ip.port()).into_pyobject(py)?.into_any().unbind(),
        Address::Ip(V6(ip)) => {
            (ip.ip().to_string(), ip.port(), ip.flowinfo(), ip.scope_id()).into_pyobject(py)?.into_any().unbind()
        }
        Address::Path(path) => py.import("os")?.call_method1("fsdecode", (PyBytes::new(py, path),))?.unbind(),
    })
}
