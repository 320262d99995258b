//! The two error families.
//!
//! [`Error`] is the peer's fault: it knows the status its sender deserves, and after it the connection must not be read
//! again. [`AppError`] is the application's fault: it is raised where the application called, and the peer never sees
//! what caused it. Nothing downstream needs to look at texts.

use std::fmt;

/// What kind of answer a peer's mistake deserves. One kind, one status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The bytes are not a request this server may act upon (RFC 9110 section 15.5.1).
    BadRequest,
    /// A deadline passed; raised by whoever owns the clock, never by this crate.
    RequestTimeout,
    /// The body is, or says it will be, over the limit.
    ContentTooLarge,
    /// The request target is over the limit.
    UriTooLong,
    /// `Expect` asks for something other than `100-continue`.
    ExpectationFailed,
    /// The head, the number of fields or the trailers are over their limits.
    FieldsTooLarge,
    /// A method or transfer coding this server does not have.
    NotImplemented,
    /// A major version other than 1.
    VersionNotSupported,
}

impl ErrorKind {
    /// The status code to answer with.
    pub const fn status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::RequestTimeout => 408,
            Self::ContentTooLarge => 413,
            Self::UriTooLong => 414,
            Self::ExpectationFailed => 417,
            Self::FieldsTooLarge => 431,
            Self::NotImplemented => 501,
            Self::VersionNotSupported => 505,
        }
    }
}

/// A mistake of the peer. Answer with [`status`](Error::status), then close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// What the peer deserves.
    pub kind: ErrorKind,
    /// What was wrong, for the log: never contains bytes of the peer's.
    pub detail: &'static str,
}

impl Error {
    /// An error of `kind`, with one phrase for the log.
    pub const fn new(kind: ErrorKind, detail: &'static str) -> Self {
        Self { kind, detail }
    }

    pub(crate) const fn bad(detail: &'static str) -> Self {
        Self::new(ErrorKind::BadRequest, detail)
    }

    /// The status code to answer with.
    pub const fn status(self) -> u16 {
        self.kind.status()
    }

    /// The reason phrase that belongs to [`status`](Error::status).
    pub fn reason(self) -> &'static str {
        crate::h1::response::reason(self.status())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.status(), self.reason(), self.detail)
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
    /// The call does not fit what has been sent so far: no request in hand, or its response already begun or ended.
    State,
}

impl AppError {
    const fn text(self) -> &'static str {
        match self {
            Self::Status => "Invalid HTTP status code.",
            Self::FieldName => "Invalid HTTP header name.",
            Self::FieldValue => "Invalid HTTP header value.",
            Self::ContentLength => "Invalid Content-Length header.",
            Self::Conflict => "Conflicting Content-Length headers.",
            Self::TransferEncoding => "Conflicting Transfer-Encoding headers.",
            Self::Trailer => "Field not allowed in trailers.",
            Self::TooLong => "Response content longer than Content-Length",
            Self::TooShort => "Response content shorter than Content-Length",
            Self::State => "Response already begun or completed.",
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
    fn error_names_status_reason_and_detail() {
        let error = Error::new(ErrorKind::UriTooLong, "target over the limit");
        assert_eq!(error.to_string(), "414 URI Too Long: target over the limit");
    }

    #[test]
    fn every_kind_has_its_own_status_with_a_phrase() {
        use ErrorKind::*;
        let kinds = [
            BadRequest,
            RequestTimeout,
            ContentTooLarge,
            UriTooLong,
            ExpectationFailed,
            FieldsTooLarge,
            NotImplemented,
            VersionNotSupported,
        ];
        let statuses: Vec<u16> = kinds.iter().map(|kind| kind.status()).collect();
        assert_eq!(statuses, [400, 408, 413, 414, 417, 431, 501, 505]);
        assert!(kinds.iter().all(|&kind| !Error::new(kind, "").reason().is_empty()));
    }

    #[test]
    fn the_texts_applications_may_look_for_are_upstreams() {
        assert_eq!(AppError::FieldName.to_string(), "Invalid HTTP header name.");
        assert_eq!(AppError::FieldValue.to_string(), "Invalid HTTP header value.");
        assert_eq!(AppError::TooLong.to_string(), "Response content longer than Content-Length");
        assert_eq!(AppError::TooShort.to_string(), "Response content shorter than Content-Length");
    }
}
