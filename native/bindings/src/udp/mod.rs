//! QUIC connections over UDP sockets, received, sent and timed here; Linux only. The loop runs tasks and timers.
//!
//! ```text
//! event loop ──▶ Reactor ──turn──▶ Listening ──reads──▶ quic::Endpoint ──packets──▶ Connection ──events──▶ Handler
//!                                   │  ▲  ▲                                          │ ▲
//!                                   │  │  └── Timeouts (one timerfd for all) ────────┤ │ read, write, reset, close
//!                                   │  └───── queue: connections that have changed ◀─┘ │
//!                                   └──datagrams (GSO)──▶ Socket                       └── Handler
//! ```
//!
//! A turn of a listening endpoint: packets up to a budget, handshakes up to a budget, timeouts that have passed, then each
//! connection in the queue once. That delivers the events of a connection, then sends its datagrams.
//!
//! A connection has a [`Handler`](handler::Handler) from the end of its handshake on, or from early data on, as its
//! [`Opener`](opener::Opener) decides. Before, it costs no object of Python's.

pub(crate) mod connection;
mod described;
pub(crate) mod handler;
pub(crate) mod listening;
pub(crate) mod opener;
mod socket;
#[cfg(test)]
mod tests;
mod timeouts;
