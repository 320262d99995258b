//! QUIC for servers (RFC 9000, 9001, 9002), by quinn-proto: datagrams in, events and datagrams out.
//!
//! ```text
//!             ┌─ Packet ──▶ Connection::receive ──▶ poll (events), read, write ──▶ transmit (datagrams)
//!  datagram   │
//!  ───────▶ Endpoint::receive ─ Waiting ──▶ Endpoint::accept ──▶ Connection
//!             │
//!             └─ Reply ──▶ (version negotiation, Retry, CONNECTION_REFUSED, stateless reset)
//! ```
//!
//! After any calls on a connection, its owner polls its events, sends what it [transmits](Connection::transmit), has
//! the endpoint [settle](Endpoint::settle) what the connection asks of it, and calls [`Connection::expire`] at its
//! [timeout](Connection::timeout).
//!
//! ```text
//! HANDSHAKING ──Established──▶ OPEN ──close, Lost──▶ CLOSING ──settle returns true──▶ (dropped)
//!      └──────────────────close, Lost──────────────────┘
//! ```
//!
//! No sockets, no clock, no Python: `bindings` has these. quinn-proto has the protocol; this crate chooses its
//! settings, the form of connection ids, keys that workers share, and the limits of what strangers may cost.
#![forbid(unsafe_code)]

mod congestion;
mod connection;
mod crypto;
mod endpoint;
mod event;
mod flood;
mod identifiers;
mod keys;
mod path;
mod provider;
mod settings;
mod tokens;
mod window;

pub use bytes::{Bytes, BytesMut};
pub use connection::{Connection, Read, ReadEnd, Statistics, Written};
pub use crypto::Handshake;
pub use endpoint::{Accepted, Datagram, Drain, Ecn, Endpoint, Handle, Packet, Received, Transmit};
pub use event::{Event, Lost, is_bidirectional, is_ours};
pub use identifiers::{ID_LENGTH, MARK};
pub use settings::{Limits, Settings};
