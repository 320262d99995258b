//! Every number a peer can push, with its default and the reason for it.
//!
//! A value of exactly the limit passes; one more does not. Each has a test at n and n + 1.

/// Bounds on what one connection may make the server hold or do. One value serves a whole server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of request line and header section together, empty lines in front included; beyond: 431 (414 while still
    /// in the request line). Two 64 KiB cookies fit; most servers stop between 8 and 64 KiB.
    pub head: usize,
    /// Header fields in a request, and trailer fields in a chunked body; beyond: 431. Browsers send about 20.
    pub fields: usize,
    /// Bytes of the request target; beyond: 414. RFC 9112 section 3 recommends at least 8,000.
    pub target: usize,
    /// Bytes of the method; beyond: 501, as RFC 9112 section 3 says. The longest registered one has 17.
    pub method: usize,
    /// Empty lines skipped in front of a request line; beyond: 400. RFC 9112 section 2.2 asks for at least one.
    pub empty_lines: usize,
    /// Bytes of request body; beyond: 413, at the head when the length is declared. `None`: no limit.
    pub body: Option<u64>,
    /// Bytes of chunk extensions and leading zeros a chunked body may waste at once; beyond: 400. Data earns it back
    /// at one byte in 16, so honest chunk signatures pass and a flood does not.
    pub chunk_slack: u32,
    /// Bytes of trailer section; beyond: 431. Trailers are read only to find the end of the message.
    pub trailers: usize,
    /// Bytes of an unread body thrown away after an early response to keep the connection; beyond: close.
    pub discard: u64,
}

/// Digits of a chunk size: as many as a `u64` holds; beyond: 400.
pub const CHUNK_SIZE_DIGITS: u8 = 16;

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: 131_072,
            fields: 256,
            target: 65_536,
            method: 64,
            empty_lines: 8,
            body: None,
            chunk_slack: 16_384,
            trailers: 16_384,
            discard: 1_048_576,
        }
    }
}
