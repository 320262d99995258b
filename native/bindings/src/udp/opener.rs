//! The maker of handlers.

use std::net::SocketAddr;
use std::rc::Rc;

use pyo3::prelude::*;
use quic::Lost;

use super::connection::Connection;
use super::handler::Handler;

/// Why the endpoint itself closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// There is no room for it.
    Refused,
    /// Its handler has failed.
    Failed,
    /// The server ends.
    Shutdown,
}

/// Makes the handlers of new connections.
pub(crate) trait Opener {
    /// Make the handler of a connection whose handshake is complete, or whose early data has come; `None` if there is
    /// no room for it: then the connection is closed. No event was delivered before.
    fn open(&self, py: Python<'_>, connection: &Rc<Connection>) -> PyResult<Option<Rc<dyn Handler>>>;
    /// The code of the application's protocol that connections are closed with, and words for the peer.
    fn code(&self, why: Why) -> (u64, &'static str);
    /// The handshake of a client has failed; no handler knows of it.
    fn on_failed(&self, _py: Python<'_>, _remote: SocketAddr, _lost: &Lost) -> PyResult<()> {
        Ok(())
    }
    /// No connection is in its handshake, after `Listening::drain`.
    fn on_opened(&self, _py: Python<'_>) -> PyResult<()> {
        Ok(())
    }
    /// No connection is left, after `Listening::drain`.
    fn on_drained(&self, _py: Python<'_>) -> PyResult<()> {
        Ok(())
    }
}
