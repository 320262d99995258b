//! TLS between a socket and its handler, by one of two engines.
//!
//! ```text
//! OPENING ──the handshake is complete──▶ OPEN ──finish──▶ FINISHED (close_notify is sent)
//! ```
//!
//! `openssl` acts through an `ssl.SSLContext`, whose every setting holds. `rustls` serves if the context has an attribute
//! `rustls`, which is a [`TLSConfig`](config::TLSConfig); it exists on Linux alone, as the sockets do.
//!
//! Either side may end before the other (RFC 8446 section 6.1). So a client that has sent its `close_notify` still gets
//! its response, and a client that is still sending can read a rejection. The transports of the event loops can do
//! neither.

pub(crate) mod config;
pub(super) mod engine;
mod openssl;
#[cfg(target_os = "linux")]
mod rustls;
pub(super) mod shared;
