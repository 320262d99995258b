//! The receiver of a connection's events: its protocol.

use std::rc::Rc;

use pyo3::prelude::*;
use quic::Lost;

/// Receives the events of a connection. Any of these calls may come back to the connection, and may run application
/// code: the caller holds no borrow. Streams have the ids of RFC 9000 section 2.1.
///
/// What a handler reads, writes and closes meanwhile is sent after [`on_events_delivered`](Self::on_events_delivered),
/// in one go.
pub(crate) trait Handler {
    /// The handshake is complete. It is the first call, unless there was early data.
    fn on_established(self: Rc<Self>, py: Python<'_>) -> PyResult<()>;
    /// The peer has opened this stream, and has probably sent something on it: `Connection::read` it.
    fn on_opened(self: Rc<Self>, py: Python<'_>, stream: u64) -> PyResult<()>;
    /// There is something to read on this stream: data, its end, or a reset.
    fn on_readable(self: Rc<Self>, py: Python<'_>, stream: u64) -> PyResult<()>;
    /// A write to this stream was blocked, and is no longer.
    fn on_writable(self: Rc<Self>, py: Python<'_>, stream: u64) -> PyResult<()>;
    /// The peer has acknowledged everything on this stream, with its end.
    fn on_finished(self: Rc<Self>, _py: Python<'_>, _stream: u64) -> PyResult<()> {
        Ok(())
    }
    /// The peer reads no more of this stream: `Connection::reset` it. `code` is its reason.
    fn on_stopped(self: Rc<Self>, py: Python<'_>, stream: u64, code: u64) -> PyResult<()>;
    /// The peer allows more streams of ours, after `Connection::open` has had none.
    fn on_can_open(self: Rc<Self>, _py: Python<'_>) -> PyResult<()> {
        Ok(())
    }
    /// The peer has shown that another address is its own: `Connection::remote`.
    fn on_moved(self: Rc<Self>, _py: Python<'_>) -> PyResult<()> {
        Ok(())
    }
    /// The peer sends more packets that make no progress than it may: `Connection::close` it.
    fn on_flooded(self: Rc<Self>, py: Python<'_>) -> PyResult<()>;
    /// All events that came together were delivered.
    fn on_events_delivered(self: Rc<Self>, _py: Python<'_>) -> PyResult<()> {
        Ok(())
    }
    /// The connection is over, with all its streams. No event follows.
    fn on_lost(self: Rc<Self>, py: Python<'_>, lost: &Lost) -> PyResult<()>;
}
