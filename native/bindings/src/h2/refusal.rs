//! Responses of the server's own: to what is no request, and to who is too slow.

use std::time::Duration;

use pyo3::prelude::*;
use wire::error::{Error, Refusal};
use wire::h2::{ErrorCode, Failure, StreamId};
use wire::texts;

use super::connection::Connection;
use crate::asgi::exchange::State as ExchangeState;

/// Why a request is answered by the server itself.
pub(super) struct Refused {
    refusal: Refusal,
    reason: String,
}

impl Refused {
    /// A deadline has passed.
    pub(super) fn late(refusal: Refusal, deadline: Option<Duration>) -> Self {
        Self { refusal, reason: refusal.reason(deadline.unwrap_or_default().as_secs_f64()) }
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self { refusal: error.refusal, reason: error.reason() }
    }
}

impl Connection {
    /// Answer in the application's place, or break off what it has begun.
    #[cold]
    pub(super) fn refuse(&self, py: Python<'_>, id: StreamId, refused: &Refused) -> PyResult<()> {
        let status = refused.refusal.status();
        let phrase = wire::h1::response::reason(status);
        let line = texts::request_refused(status, phrase, &refused.reason);
        self.core.warn(py, if status == 400 { texts::INVALID_REQUEST } else { &line })?;
        self.note(py, &self.core.debug, &line)?;
        let Some(stream) = self.stream(id) else { return Ok(()) };
        let exchange = self.disown(py, id);
        if exchange.as_ref().is_some_and(|exchange| exchange.state() != ExchangeState::Idle) {
            self.reset(py, id, ErrorCode::Cancel)?;
        } else {
            self.core.host.count_refusal(exchange.as_deref(), status);
            let text = if status == 400 { texts::INVALID_REQUEST } else { phrase };
            stream.leave_deadlines();
            stream.put_answer(py, status, text, false)?;
        }
        match exchange {
            Some(exchange) => exchange.disconnect(py, false),
            None => Ok(()),
        }
    }

    /// The client has broken the connection: all of its streams are over, and it is told why.
    #[cold]
    pub(super) fn fail(&self, py: Python<'_>, failure: Failure) -> PyResult<()> {
        let line = texts::connection_refused(failure.code.name(), failure.reason);
        self.core.warn(py, &line)?;
        self.note(py, &self.core.debug, &line)?;
        self.close(py, true)
    }
}
