//! Every number a peer can push, with its default and the reason for it.
//!
//! A value of exactly the limit passes; one more does not. Each has a vector at n and n + 1. The numbers are in [`table`],
//! which is written from those of Python.

pub mod table;

/// Bounds on what one connection may make the server hold or do. One value serves a whole server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of request line and header section together, behind empty lines; beyond: 431 (414 while still in the request
    /// line). Two 64 KiB cookies fit; most servers stop between 8 and 64 KiB.
    pub head: usize,
    /// Header fields in a request, and trailer fields in a chunked body; beyond: 431. Browsers send about 20.
    pub fields: usize,
    /// Bytes of the request target; beyond: 414. RFC 9112 section 3 recommends at least 8,000.
    pub target: usize,
    /// Bytes of the method; beyond: 501, as RFC 9112 section 3 says.
    pub method: usize,
    /// Empty lines skipped in front of a request line; beyond: 400.
    pub empty_lines: usize,
    /// Bytes of request body; beyond: 413, at the head when the length is declared. `None`: no limit.
    pub body: Option<u64>,
    /// Bytes of chunk extensions and leading zeros a chunked body may waste at once; beyond: 400. Data earns it back, so
    /// honest chunk signatures pass and a flood does not.
    pub chunk_waste: usize,
    /// Bytes of the field lines of a trailer section; beyond: 431. Trailers are read only to find the end of the message.
    pub trailers: usize,
    /// Bytes of an unread body thrown away after an early response to keep the connection; beyond: close.
    pub discard: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: table::LIMIT_REQUEST_HEAD,
            fields: table::LIMIT_REQUEST_FIELDS,
            target: table::LIMIT_REQUEST_TARGET,
            method: table::MAX_METHOD_LENGTH,
            empty_lines: table::MAX_EMPTY_LINES,
            body: table::LIMIT_REQUEST_BODY,
            chunk_waste: table::MAX_CHUNK_WASTE,
            trailers: table::MAX_TRAILER_BYTES,
            discard: table::MAX_DISCARDED as u64,
        }
    }
}
