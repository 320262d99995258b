//! The Python view of a socket: its transport, and a `socket.socket` on a duplicate of its descriptor.

use std::io;
use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::socket::Socket;
use super::sys::Descriptor;
use crate::base::ffi::refcount::is_known_to;

impl Socket {
    /// The transport that it is to Python: always the same one.
    pub(super) fn transport(self: &Rc<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if let Some(transport) = &*self.shown.transport.borrow() {
            return Ok(transport.clone_ref(py));
        }
        let transport = self.keeper.transport_of(py, self)?;
        if self.descriptor().is_some() {
            self.shown.transport.replace(Some(transport.clone_ref(py)));
        }
        Ok(transport)
    }

    /// Release the transport if no other reference exists: then no program can notice that it gets another one later.
    pub(super) fn release_transport(&self, py: Python<'_>) {
        let made = self.shown.transport.take();
        if let Some(transport) = &made
            && !is_known_to(transport.bind(py), 1)
        {
            self.shown.transport.replace(made);
        }
    }

    /// The number of a new duplicate of the descriptor, which the caller has to close.
    pub(super) fn duplicate_number(&self) -> io::Result<i32> {
        self.descriptor().map_or(Err(io::ErrorKind::NotConnected.into()), |descriptor| descriptor.duplicate())
    }

    /// An `asyncio.trsock.TransportSocket` on a duplicate of the descriptor, on a closed one once that is closed.
    pub(super) fn duplicate<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let shown = py.import("asyncio.trsock")?.getattr("TransportSocket")?;
        if let Some(made) = &*self.shown.duplicate.borrow() {
            return shown.call1((made,));
        }
        let class = py.import("socket")?.getattr("socket")?;
        let made = if let Some(descriptor) = self.descriptor() {
            let keywords = PyDict::new(py);
            keywords.set_item("fileno", descriptor.duplicate()?)?;
            let made = class.call((), Some(&keywords))?;
            // It shares that with the original, and so do its own duplicates.
            made.call_method1("setblocking", (false,))?;
            made
        } else {
            let closed = class.call0()?;
            closed.call_method0("close")?;
            closed
        };
        self.shown.duplicate.replace(Some(made.clone().unbind()));
        shown.call1((made,))
    }

    /// Close the duplicate, unless a program has closed it already: its number may be another's by now.
    pub(super) fn close_duplicate(&self, py: Python<'_>, descriptor: &Descriptor) -> PyResult<()> {
        let Some(made) = self.shown.duplicate.borrow().as_ref().map(|made| made.clone_ref(py)) else { return Ok(()) };
        let made = made.bind(py);
        // The kernel would report events for as long as further duplicates are open.
        self.keeper.forget(descriptor);
        let number: i64 = made.call_method0("fileno")?.extract()?;
        let is_ours = match py.import("os")?.call_method1("fstat", (number,)) {
            Ok(status) => Some(status.getattr("st_ino")?.extract()?) == descriptor.inode(),
            Err(_) => false,
        };
        made.call_method0(if is_ours { "close" } else { "detach" }).map(drop)
    }
}
