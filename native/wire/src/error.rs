//! The two error families.
//!
//! [`Error`] is the peer's fault: it knows the status its sender deserves, and after it the connection must not be read
//! again. What can be wrong is a [`Refusal`], of a table that Python has as well. [`AppError`] is the application's fault: it is raised where the application called, and the peer never sees
//! what caused it. Nothing downstream needs to look at texts.

use std::fmt;

#[rustfmt::skip]
mod table;

pub use table::Refusal;

use crate::texts;

/// A mistake of the peer. Answer with [`status`](Error::status), then close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Error {
    /// The kind of mistake.
    pub refusal: Refusal,
    /// The limit that was crossed, for the log; 0 where there is none.
    pub limit: u64,
}

impl Error {
    /// A mistake that has nothing to do with a limit.
    pub const fn new(refusal: Refusal) -> Self {
        Self { refusal, limit: 0 }
    }

    /// More than `limit` of something.
    pub(crate) fn over(refusal: Refusal, limit: impl TryInto<u64>) -> Self {
        Self { refusal, limit: limit.try_into().unwrap_or(u64::MAX) }
    }

    /// The status code to answer with.
    pub const fn status(self) -> u16 {
        self.refusal.status()
    }

    /// The reason phrase that belongs to [`status`](Error::status).
    pub const fn phrase(self) -> &'static str {
        crate::status::phrase(self.status())
    }

    /// The mistake, for the log: never contains bytes of the peer's.
    pub fn reason(self) -> String {
        self.refusal.reason(self.limit)
    }
}

impl Refusal {
    /// Its text for the log, with the limit that it names.
    pub fn reason(self, limit: impl fmt::Display) -> String {
        self.text().replace("{limit}", &limit.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&texts::request_refused(self.status(), self.phrase(), self.reason()))
    }
}

impl std::error::Error for Error {}

/// A mistake of the application. What it had added to the output has been taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppError {
    /// The status is outside 100 to 599.
    Status,
    /// A field name is not a token (RFC 9110 section 5.1).
    FieldName,
    /// A field value holds a control character other than a tab (RFC 9110 section 5.5).
    FieldValue,
    /// `content-length` is not a number.
    ContentLength,
    /// Two `content-length` fields differ.
    Conflict,
    /// More codings behind `transfer-encoding: chunked`.
    TransferEncoding,
    /// A trailer field that would change framing or routing (RFC 9110 section 6.5.1).
    Trailer,
    /// More body bytes than `content-length` promised.
    TooLong,
    /// Fewer body bytes than `content-length` promised.
    TooShort,
    /// The subprotocol of a WebSocket is not a token (RFC 6455 section 11.3.4).
    Subprotocol,
    /// The call is out of order: no request in hand, or its response already begun or ended.
    State,
}

impl AppError {
    /// The text for applications, except for two errors whose text quotes a value: callers that have it fill it in.
    const fn text(self) -> &'static str {
        match self {
            Self::Status => "status outside 100 to 599",
            Self::FieldName => texts::FIELD_NAME,
            Self::FieldValue => texts::FIELD_VALUE,
            Self::ContentLength => texts::CONTENT_LENGTH,
            Self::Conflict => texts::LENGTHS_CONFLICT,
            Self::TransferEncoding => texts::TRANSFER_ENCODING,
            Self::Trailer => "field not allowed in trailers",
            Self::TooLong => texts::TOO_LONG,
            Self::TooShort => texts::TOO_SHORT,
            Self::Subprotocol => "Invalid WebSocket subprotocol.",
            Self::State => "response already begun or completed",
        }
    }
}

impl fmt::Display for AppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for AppError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_status_phrase_reason_and_limit() {
        let text = "Request refused with 414 URI Too Long: request target longer than limit_request_target (10).";
        assert_eq!(Error::over(Refusal::TargetTooLong, 10_usize).to_string(), text);
        assert_eq!(Error::new(Refusal::Method).reason(), "malformed method");
    }

    #[test]
    fn every_refusal_has_a_status_with_a_phrase() {
        assert!(Refusal::ALL.iter().all(|&refusal| !Error::new(refusal).phrase().is_empty()));
    }

    #[test]
    fn the_texts_applications_may_look_for_are_upstreams() {
        assert_eq!(AppError::FieldName.to_string(), "Invalid HTTP header name.");
        assert_eq!(AppError::FieldValue.to_string(), "Invalid HTTP header value.");
        assert_eq!(AppError::TooLong.to_string(), "Response content longer than Content-Length");
        assert_eq!(AppError::TooShort.to_string(), "Response content shorter than Content-Length");
    }
}
