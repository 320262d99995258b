//! Responses of the server's own: to malformed requests, to slow clients, for an application that failed.

use pyo3::prelude::*;

use super::connection::Connection;
use super::states::Closing;
use crate::asgi::access::entry::Head;
use crate::asgi::exchange::State as ExchangeState;
use crate::asgi::identity::OwnField;
use crate::asgi::refused::Refused;

impl Connection {
    /// Whether the peer may ask for an https resource.
    pub(super) fn may_ask_for_https(&self, py: Python<'_>) -> PyResult<bool> {
        if self.is_secure() {
            return Ok(true);
        }
        let client = self.client(py);
        let middleware = py.import("uvicorn.middleware.proxy_headers")?;
        middleware.call_method1("is_trusted_gateway", (&self.core.runner.app, client))?.extract()
    }

    /// Answer in the application's place, and end the connection.
    #[cold]
    pub(super) fn refuse(&self, py: Python<'_>, refused: &Refused) -> PyResult<()> {
        let (status, line) = (refused.status(), refused.line());
        self.core.warn(py, refused.warning(&line))?;
        self.note(py, &self.core.debug, &line)?;
        let exchange = self.state.borrow().exchange.clone();
        match exchange {
            Some(exchange) if !matches!(exchange.state(), ExchangeState::Idle | ExchangeState::Complete) => {
                self.abort_response(py, exchange.is_in_body())
            }
            exchange => {
                self.core.host.count_refusal(exchange.as_deref(), status, refused.method());
                self.say(py, status, refused.text())?;
                self.close(py, Closing::AmidBody)
            }
        }
    }

    /// Write a response of the server's own, after which the connection ends.
    fn say(&self, py: Python<'_>, status: u16, text: &str) -> PyResult<()> {
        self.prepare(py, status, text, None)?;
        self.flush(py)
    }

    /// Encode a response of the server's own; where it begins in the output.
    fn prepare(&self, py: Python<'_>, status: u16, text: &str, own: Option<&OwnField<'_>>) -> PyResult<usize> {
        let core = &self.core;
        core.default_head.refresh(core.host.state.bind(py), &core.names)?;
        self.put(|wire, out| {
            let begin = out.len();
            let limits = &core.settings.limits;
            let mut refuse = |lines: &[u8]| wire.refuse(out, limits, status, lines, text.as_bytes());
            core.default_head.with(|lines| match own {
                None => refuse(lines),
                Some(own) => {
                    let mut lines = lines.to_vec();
                    own.put(&mut lines);
                    refuse(&lines)
                }
            })?;
            Ok(begin)
        })
    }

    /// Encode a whole response of the server's own; its head, with its `lines` if they are wanted, and how long its body is.
    pub(super) fn put_answer(
        &self,
        py: Python<'_>,
        status: u16,
        text: &str,
        own: Option<&OwnField<'_>>,
        lines: bool,
    ) -> PyResult<(Head, usize)> {
        let begin = self.prepare(py, status, text, own)?;
        let state = self.state.borrow();
        let answer = state.out.get(begin..).unwrap_or_default();
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").map_or(answer.len(), |at| at + 4);
        let (head, body) = answer.split_at(end);
        let lines = if lines { head.to_vec() } else { Vec::new() };
        Ok((Head { lines, bodiless: false }, body.len()))
    }
}
