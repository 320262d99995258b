//! The numbers that both languages go by.
//!
//! Written by scripts/sync-settings from uvicorn/config/settings.py and uvicorn/rules/limits.py. Do not edit.

#![allow(clippy::doc_markdown, reason = "these texts are for people")]

/// Answer 431 when request line and header section exceed N bytes together.
pub const LIMIT_REQUEST_HEAD: usize = 131_072;
/// Answer 431 when a request has more than N header fields, or trailer fields.
pub const LIMIT_REQUEST_FIELDS: usize = 256;
/// Answer 414 when a request target exceeds N bytes.
pub const LIMIT_REQUEST_TARGET: usize = 65_536;
/// Answer 413 when a request body exceeds N bytes; by default any size is accepted.
pub const LIMIT_REQUEST_BODY: Option<u64> = None;
/// Bytes of a method; beyond it 501. The longest registered one has 17.
pub const MAX_METHOD_LENGTH: usize = 64;
/// Empty lines skipped in front of a request line; beyond it 400. RFC 9112 section 2.2 asks for at least one.
pub const MAX_EMPTY_LINES: usize = 8;
/// Longest body that can be declared: a signed number of 64 bits, as everywhere; beyond it 400.
pub const MAX_LENGTH: u64 = 9_223_372_036_854_775_807;
/// Digits of a chunk size: as many as 64 bits need; beyond it 400.
pub const MAX_CHUNK_SIZE_DIGITS: usize = 16;
/// Bytes of chunk extensions and leading zeros that a body may waste at once; beyond it 400 (CVE-2023-39326).
/// Data earns them back.
pub const MAX_CHUNK_WASTE: usize = 16_384;
/// Bytes of a chunk that earn back one byte of waste: chunk signatures pass in chunks of 2 KiB, a flood does
/// not.
pub const CHUNK_BYTES_PER_WASTE: usize = 16;
/// Bytes of the field lines of a trailer section; beyond it 431. They are read only to find the end of the
/// message.
pub const MAX_TRAILER_BYTES: usize = 16_384;
/// Body bytes an application left unread that are read and dropped to keep the connection; beyond it, it
/// closes.
pub const MAX_DISCARDED: usize = 1_048_576;
/// Bytes kept for an application or a peer that does not take them, before the other side is made to wait.
pub const HIGH_WATER_LIMIT: usize = 65_536;
/// Every this many bytes of a request body move its deadline on by a second, but never beyond the time a body
/// has at its beginning. Slower than this a client counts as one that does not send; a modem is faster.
pub const BODY_BYTES_PER_SECOND: usize = 240;
/// Bytes per second that a peer has to read on average while output waits, or it counts as one that does not
/// read.
pub const READ_BYTES_PER_SECOND: usize = 240;
/// How long a connection goes on reading after its last response if its client was still sending, so that the
/// client reads that before a reset. Clients that do read it close at once; the others send the whole of a
/// large body first.
pub const LINGER_SECONDS: f64 = 10.0;
/// How long a connection whose last response did not say `close` waits, when the server ends, for a request
/// that its client may have sent meanwhile; since that response, or since the connection was made. Also how
/// long it waits, after its last response was read, for its client's end.
pub const LAST_REQUEST_SECONDS: f64 = 1.0;
/// Pipelined requests served before other connections get their turn.
pub const MAX_EAGER_REQUESTS: usize = 32;
/// Seconds of first steps, on average, up to which tasks start eagerly. That saves a turn of the loop, about 3
/// us. A new request also overtakes all that wait for their turn, and mixes their stages: it cost litellm a
/// fifth of its CPU time.
pub const LONGEST_EAGER_STEP: f64 = 0.0003;
/// One in this many starts eagerly in any case, and is measured. A prime: requests of several kinds come in
/// turn.
pub const EAGER_STEPS_PER_LOOK: usize = 17;
