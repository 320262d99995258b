//! The server's own responses, in an application's place.

use std::time::Duration;

use wire::error::{Error, Refusal};
use wire::method::Method;
use wire::texts;

/// Why a request is answered by the server itself.
pub(crate) struct Refused {
    refusal: Refusal,
    reason: String,
    /// As far as the head was read.
    method: Method,
}

impl Refused {
    /// RFC 9110 section 7.4.
    pub(crate) fn misdirected() -> Self {
        Error::new(Refusal::Misdirected).into()
    }

    /// A deadline has passed.
    pub(crate) fn late(refusal: Refusal, deadline: Option<Duration>) -> Self {
        Self { refusal, reason: refusal.reason(deadline.unwrap_or_default().as_secs_f64()), method: Method::Other }
    }

    /// The request has this method.
    pub(crate) fn of(self, method: Method) -> Self {
        Self { method, ..self }
    }

    pub(crate) fn method(&self) -> Method {
        self.method
    }

    pub(crate) fn status(&self) -> u16 {
        self.refusal.status()
    }

    /// The body for the client.
    pub(crate) fn text(&self) -> &'static str {
        match self.status() {
            400 => texts::INVALID_REQUEST,
            status => wire::status::phrase(status),
        }
    }

    /// The log line, whatever its level.
    pub(crate) fn line(&self) -> String {
        let status = self.status();
        texts::request_refused(status, wire::status::phrase(status), &self.reason)
    }

    /// The text of the warning; a malformed request is warned of without a reason, as upstream does.
    pub(crate) fn warning<'a>(&self, line: &'a str) -> &'a str {
        if self.status() == 400 { texts::INVALID_REQUEST } else { line }
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self { refusal: error.refusal, reason: error.reason(), method: Method::Other }
    }
}
