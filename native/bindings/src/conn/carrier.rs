//! The lower side of a connection: whatever carries its bytes.

use std::rc::Rc;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::ends::Ends;
use super::grace::Pending;
use super::handler::Handler;
use crate::base::turns::Turns;

/// Carries the bytes of one connection: a socket of ours, a transport of the event loop, or a stream of another connection.
///
/// Any of these calls may run Python code, and come back: the caller holds no borrow. What a carrier cannot do is left to the
/// defaults, which are right for one that shares its connection with others.
pub(crate) trait Carrier {
    // The ends.

    /// The two ends.
    fn ends(&self, py: Python<'_>) -> PyResult<Ends>;
    /// The protocol that ALPN has agreed on (RFC 7301); `None` if the connection is not encrypted.
    fn application_protocol(&self, _py: Python<'_>) -> PyResult<Option<Negotiated>> {
        Ok(None)
    }
    /// Whether it is one of several streams, and so knows chunks and lengths of its own.
    fn is_stream(&self) -> bool {
        false
    }
    /// A field of the server's own that responses by it do not have.
    fn omitted_field(&self) -> Option<&'static [u8]> {
        None
    }
    /// The `asyncio.Transport` that it is to Python.
    fn transport(self: Rc<Self>, py: Python<'_>) -> PyResult<Py<PyAny>>;
    /// Drop that object if it has no other holder.
    fn release_transport(&self, _py: Python<'_>) {}
    /// The turns in which it is served, unless the event loop serves it.
    fn turns(&self) -> Option<Rc<dyn Turns>> {
        None
    }
    /// Send further events to `handler`, if a Python protocol has not received them directly.
    fn set_handler(&self, _handler: Rc<dyn Handler>) {}

    // Input.

    /// Take no input.
    fn pause_reading(self: Rc<Self>, py: Python<'_>) -> PyResult<()>;
    /// Take input again.
    fn resume_reading(self: Rc<Self>, py: Python<'_>) -> PyResult<()>;
    /// Whether the peer has sent or taken anything that is yet to be processed; the next turn does that.
    fn look(self: Rc<Self>, py: Python<'_>) -> PyResult<Pending>;
    /// The descriptor to watch for the peer's end while no input is taken; `None` if the handler is notified of that.
    fn descriptor_of_end(&self, _py: Python<'_>) -> PyResult<Option<i32>> {
        Ok(None)
    }

    // Output.

    /// Write `data`, or keep a copy of the part that cannot be written yet.
    fn write(self: Rc<Self>, py: Python<'_>, data: &[u8]) -> PyResult<()>;
    /// Write `head` and `body`, which is not copied if it has to wait.
    fn write_with(self: Rc<Self>, py: Python<'_>, head: &[u8], body: &Bound<'_, PyBytes>) -> PyResult<()>;
    /// Write `head` and `body`, or keep a copy of the part that cannot be written yet.
    fn write_both(self: Rc<Self>, py: Python<'_>, head: &[u8], body: &[u8]) -> PyResult<()> {
        self.write(py, &[head, body].concat())
    }
    /// Bytes that wait on this side of the kernel.
    fn waiting(&self, py: Python<'_>) -> PyResult<usize>;
    /// Bytes that the peer has yet to take.
    fn unsent(&self, py: Python<'_>) -> PyResult<usize> {
        self.waiting(py)
    }
    /// Have writers pause while anything waits on this side of the kernel, and resume once nothing does.
    fn pause_early(self: Rc<Self>, _py: Python<'_>) -> PyResult<()> {
        Ok(())
    }
    /// Hold back little output where it cannot be overtaken: at most `most` unsent bytes in the kernel, and pause writers
    /// early.
    fn keep_little(self: Rc<Self>, _py: Python<'_>, _most: i32) -> PyResult<()> {
        Ok(())
    }

    // The end.

    /// Whether the end has begun.
    fn is_closing(&self, py: Python<'_>) -> PyResult<bool>;
    /// Whether output can end before input does.
    fn can_write_eof(&self, _py: Python<'_>) -> PyResult<bool> {
        Ok(true)
    }
    /// Whether the end of input is the end of output as well.
    fn ends_as_a_whole(&self, _py: Python<'_>) -> PyResult<bool> {
        Ok(false)
    }
    /// Tell the peer that nothing more will come, once everything is written.
    fn write_eof(self: Rc<Self>, py: Python<'_>) -> PyResult<()>;
    /// Close once everything is written.
    fn close(self: Rc<Self>, py: Python<'_>) -> PyResult<()>;
    /// Close at once.
    fn abort(&self, py: Python<'_>) -> PyResult<()>;
    /// Have the close that follows tell the peer that the connection was cut off.
    fn reset_on_close(&self, _py: Python<'_>) -> PyResult<()> {
        Ok(())
    }

    // The garbage collector's side.

    /// Show the collector the objects that a cycle of references may go through.
    fn traverse(&self, _visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        Ok(())
    }
}

/// The protocol that the ends of an encrypted connection have negotiated by ALPN, if any.
pub(crate) type Negotiated = Option<String>;

/// Ask an `ssl.SSLObject` for that.
pub(crate) fn negotiated(object: &Bound<'_, PyAny>) -> PyResult<Negotiated> {
    object.call_method0("selected_alpn_protocol")?.extract()
}
