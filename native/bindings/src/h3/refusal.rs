//! Responses of the server's own: to malformed requests, and to clients that are too slow.

use pyo3::prelude::*;
use wire::h3::{ErrorCode, Failure, StreamId};
use wire::texts;

use super::connection::Connection;
use crate::asgi::exchange::State as ExchangeState;
use crate::asgi::refused::Refused;
use crate::streams::response::Responds;

impl Connection {
    /// Answer in the application's place, or abort its response. Nothing more of the request is read.
    #[cold]
    pub(super) fn refuse(&self, py: Python<'_>, id: StreamId, refused: &Refused) -> PyResult<()> {
        let (status, line) = (refused.status(), refused.line());
        // H2: many refused requests of one client deserve one line.
        if self.refused.replace(status) != status {
            self.core.warn(py, refused.warning(&line))?;
        }
        self.note(py, &self.core.debug, &line)?;
        let Some(stream) = self.stream(id) else { return Ok(()) };
        stream.stop_reading(py, ErrorCode::NoError)?;
        let exchange = self.disown(id);
        if exchange.as_ref().is_some_and(|exchange| exchange.state() != ExchangeState::Idle) {
            self.reset(py, id, ErrorCode::RequestCancelled)?;
        } else {
            self.core.host.count_refusal(exchange.as_deref(), status, refused.method());
            stream.leave_deadlines();
            stream.put_answer(py, status, refused.text(), None, false)?;
        }
        self.core.runner.part(py, exchange)
    }

    /// The client has broken the protocol: end all of its streams, and say why.
    #[cold]
    pub(super) fn fail(&self, py: Python<'_>, failure: Failure) -> PyResult<()> {
        let line = texts::connection_refused("HTTP/3", failure.code.name(), failure.reason);
        self.core.warn(py, &line)?;
        self.note(py, &self.core.debug, &line)?;
        self.close(py, failure.code, failure.reason)
    }
}
