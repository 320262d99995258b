//! The numbers of WebSocket that both languages go by.
//!
//! Written by scripts/sync-settings from uvicorn/config/settings.py, and uvicorn/rules/websocket_limits.py and uvicorn/protocols/websockets/deflate.py. Do not edit.

#![allow(clippy::doc_markdown, reason = "these texts are for people")]

/// Close with 1009 when a message is larger than N bytes after inflation.
pub const WS_MAX_SIZE: usize = 16_777_216;
/// Bytes of frame headers one message may have beyond its payload; beyond it 1008. Fragments smaller than their
/// headers are never necessary, and an endless series of them is an attack (CVE-2026-48779).
pub const MAX_OVERHEAD: usize = 1_048_576;
/// Bytes of a close reason: a control frame carries 125, the code takes two (RFC 6455 section 5.5).
pub const MAX_CLOSE_REASON: usize = 123;
/// Bytes of the target of a refused handshake that a log line shows.
pub const MAX_LOGGED_TARGET: usize = 2048;
/// Seconds without progress after which a connection is dropped: the peer answers no close frame, or reads no
/// data.
pub const CLOSE_TIMEOUT: f64 = 10.0;
/// Seconds an application has to answer the last message it took, when the client has ended behind that.
pub const ANSWER_SECONDS: f64 = 2.0;
/// How long a connection that failed or was refused goes on reading, so that its peer reads why before a reset.
pub const LINGER_SECONDS: f64 = 2.0;
/// Of the 8 to 15 of section 7.1.2: 4 KiB of history compress chat-sized messages as well as 32 KiB do.
pub const WINDOW_BITS: usize = 12;
/// Shorter messages are sent as they are (section 6): it would save a dozen bytes of a packet of nearly a
/// hundred.
pub const DEFLATE_MIN_SIZE: usize = 32;
