//! Responses of the server's own: to what is no request, to who is too slow, for an application that failed.

use std::time::Duration;

use pyo3::prelude::*;
use wire::error::{Error, Refusal};
use wire::h1::connection::Deadline;
use wire::texts;

use super::Connection;
use crate::http::cycle::{Exchange, State as ExchangeState};

/// Why a request is answered by the server itself.
pub(super) struct Refused {
    refusal: Refusal,
    reason: String,
}

impl Refused {
    /// RFC 9110 section 7.4.
    pub(super) fn misdirected() -> Self {
        Error::new(Refusal::Misdirected).into()
    }

    /// The deadline of a head or of a body has passed.
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
    /// Whether the peer may ask for an https resource.
    pub(super) fn may_ask_for_https(&self, py: Python<'_>) -> PyResult<bool> {
        if self.secure.get() {
            return Ok(true);
        }
        let client = self.client(py);
        let middleware = py.import("uvicorn.middleware.proxy_headers")?;
        middleware.call_method1("is_trusted_gateway", (&self.core.app, client))?.extract()
    }

    /// Answer in the application's place, and end the connection.
    #[cold]
    pub(super) fn refuse(&self, py: Python<'_>, refused: &Refused) -> PyResult<()> {
        let status = refused.refusal.status();
        let phrase = wire::h1::response::reason(status);
        let line = texts::request_refused(status, phrase, &refused.reason);
        self.core.warn(py, if status == 400 { texts::INVALID_REQUEST } else { &line })?;
        self.note(py, &self.core.debug, &line)?;
        let exchange = self.state.borrow().exchange.clone();
        match exchange {
            Some(exchange) if !matches!(exchange.state(), ExchangeState::Idle | ExchangeState::Complete) => {
                self.abort_response(py, &exchange)
            }
            _ => {
                let text = if status == 400 { texts::INVALID_REQUEST } else { phrase };
                self.say(py, status, text)?;
                self.end(py, true)
            }
        }
    }

    /// Write a response of the server's own, after which the connection ends.
    fn say(&self, py: Python<'_>, status: u16, text: &str) -> PyResult<()> {
        self.prepare(py, status, text)?;
        self.flush(py)
    }

    /// Encode a response of the server's own; where it begins in the output.
    fn prepare(&self, py: Python<'_>, status: u16, text: &str) -> PyResult<usize> {
        let core = &self.core;
        core.default_head.refresh(core.state.bind(py), &core.names)?;
        self.put(|wire, out| {
            let begin = out.len();
            let limits = &core.settings.limits;
            core.default_head.with(|lines| wire.refuse(out, limits, status, lines, text.as_bytes()))?;
            Ok(begin)
        })
    }

    /// The application of `exchange` failed before it started its response.
    pub(crate) fn fail(&self, py: Python<'_>, exchange: &Exchange, status: u16, text: &str) -> PyResult<()> {
        if !self.is_current(exchange) {
            return Ok(());
        }
        if let Some(access) = &self.core.access {
            access.record(py, self, exchange.scope.bind(py), status)?;
        }
        let begin = self.prepare(py, status, text)?;
        self.log_answer(py, exchange, status, begin);
        self.flush(py)?;
        self.core.request_complete(py)?;
        let unread = self.state.borrow().wire.deadline_hint() == Deadline::Discard;
        self.end(py, unread)
    }

    /// Let the access log, if it has a format of the user's, know of the whole response that begins at `begin`.
    fn log_answer(&self, py: Python<'_>, exchange: &Exchange, status: u16, begin: usize) {
        let Some(log) = &self.core.formatted else { return };
        let (head, body) = {
            let state = self.state.borrow();
            let answer = state.out.get(begin..).unwrap_or_default();
            let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").map_or(answer.len(), |at| at + 4);
            let (head, body) = answer.split_at(end);
            (log.keep(head), body.len())
        };
        log.answer(py, exchange, status, head, body);
    }
}
