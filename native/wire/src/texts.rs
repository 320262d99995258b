//! What operators read in the log, and applications in the exceptions that they get.
//!
//! Written by scripts/sync-settings from uvicorn/rules/texts.py. Do not edit.

#![allow(clippy::doc_markdown, reason = "these texts are for people")]

use std::fmt::Display;

/// Invalid HTTP request received.
pub const INVALID_REQUEST: &str = "Invalid HTTP request received.";
/// Request refused with {status} {phrase}: {reason}.
pub fn request_refused(status: impl Display, phrase: impl Display, reason: impl Display) -> String {
    format!("Request refused with {status} {phrase}: {reason}.")
}
/// {protocol} connection ended with {code}: {reason}.
pub fn connection_refused(protocol: impl Display, code: impl Display, reason: impl Display) -> String {
    format!("{protocol} connection ended with {code}: {reason}.")
}
/// Exceeded concurrency limit.
pub const CONCURRENCY_EXCEEDED: &str = "Exceeded concurrency limit.";
/// Unsupported upgrade request.
pub const UPGRADE_UNSUPPORTED: &str = "Unsupported upgrade request.";
/// Client does not read its response, aborting the connection (timeout_write).
pub const READER_LATE: &str = "Client does not read its response, aborting the connection (timeout_write).";
/// Client keeps its window closed, resetting the stream (timeout_write).
pub const WINDOW_CLOSED: &str = "Client keeps its window closed, resetting the stream (timeout_write).";
/// Client does not answer a ping, aborting the connection (http2_ping_timeout).
pub const PING_UNANSWERED: &str = "Client does not answer a ping, aborting the connection (http2_ping_timeout).";
/// No supported WebSocket library detected. Please use "pip install 'uvicorn[standard]'", or install
/// 'websockets' or 'wsproto' manually.
pub const WEBSOCKET_UNSUPPORTED: &str = "No supported WebSocket library detected. Please use \"pip install 'uvicorn[standard]'\", or install 'websockets' or 'wsproto' manually.";
/// Exception in ASGI application
pub const APPLICATION_FAILED: &str = "Exception in ASGI application\n";
/// ASGI callable should return None, but returned '%s'.
pub const APPLICATION_RETURNED: &str = "ASGI callable should return None, but returned '%s'.";
/// ASGI callable returned without starting response.
pub const NOT_STARTED: &str = "ASGI callable returned without starting response.";
/// ASGI callable returned without completing response.
pub const NOT_COMPLETED: &str = "ASGI callable returned without completing response.";
/// The status of a response must be an int, got {status}.
pub fn status_type(status: impl Display) -> String {
    format!("The status of a response must be an int, got {status}.")
}
/// Invalid HTTP status code '{status}' in response.
pub fn status(status: impl Display) -> String {
    format!("Invalid HTTP status code '{status}' in response.")
}
/// Header names and values must be bytes, got {name}: {value}.
pub fn field_type(name: impl Display, value: impl Display) -> String {
    format!("Header names and values must be bytes, got {name}: {value}.")
}
/// Invalid HTTP header name.
pub const FIELD_NAME: &str = "Invalid HTTP header name.";
/// Invalid HTTP header value.
pub const FIELD_VALUE: &str = "Invalid HTTP header value.";
/// Invalid Content-Length header.
pub const CONTENT_LENGTH: &str = "Invalid Content-Length header.";
/// Conflicting Content-Length headers.
pub const LENGTHS_CONFLICT: &str = "Conflicting Content-Length headers.";
/// Invalid Transfer-Encoding header.
pub const TRANSFER_ENCODING: &str = "Invalid Transfer-Encoding header.";
/// Status {status} would accept the WebSocket over HTTP/2; use 300 or more.
pub fn opens_stream(status: impl Display) -> String {
    format!("Status {status} would accept the WebSocket over HTTP/2; use 300 or more.")
}
/// Field '{name}' is not allowed in trailers.
pub fn trailer(name: impl Display) -> String {
    format!("Field '{name}' is not allowed in trailers.")
}
/// Links must be bytes, got {link}.
pub fn link_type(link: impl Display) -> String {
    format!("Links must be bytes, got {link}.")
}
/// Response content longer than Content-Length
pub const TOO_LONG: &str = "Response content longer than Content-Length";
/// Response content shorter than Content-Length
pub const TOO_SHORT: &str = "Response content shorter than Content-Length";
/// Unexpected ASGI message '{type}' sent, after response already completed.
pub fn already_complete(kind: impl Display) -> String {
    format!("Unexpected ASGI message '{kind}' sent, after response already completed.")
}
/// Unexpected ASGI message '{type}' sent, while a file is being sent.
pub fn sending_file(kind: impl Display) -> String {
    format!("Unexpected ASGI message '{kind}' sent, while a file is being sent.")
}
/// Expected ASGI message 'http.response.{expected}', but got '{type}'.
pub fn out_of_order(expected: impl Display, kind: impl Display) -> String {
    format!("Expected ASGI message 'http.response.{expected}', but got '{kind}'.")
}
