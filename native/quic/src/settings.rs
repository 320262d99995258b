//! The settings of an endpoint.

use std::sync::Arc;
use std::time::Duration;

/// The settings of an endpoint, as they are given.
pub struct Settings {
    /// Known to all workers of a server: from it come the keys of stateless resets and of address validation tokens.
    pub secret: [u8; 32],
    /// The place of this worker, by which packets are steered to it.
    pub slot: u8,
    /// How many workers have had that place before, modulo 256.
    pub generation: u8,
    /// Certificates, verification of clients, tickets.
    pub tls: Arc<tls::Config>,
    /// The protocols of ALPN, one of which a client must offer.
    pub protocols: Vec<Vec<u8>>,
    /// Whether clients that come again may send data in their first flight (0-RTT), which an attacker can repeat. It is read
    /// before the end of the handshake if a token validates the client's address: else that may be forged.
    pub early_data: bool,
    /// Whether datagrams are never fragmented, so that larger ones can be tried (RFC 8899).
    pub discovers_mtu: bool,
    /// What strangers and clients may cost.
    pub limits: Limits,
}

/// The limits of what strangers and clients may cost.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections, with those in a handshake and those that are closing. Further clients get `CONNECTION_REFUSED`.
    pub connections: usize,
    /// Handshakes with clients whose address is not validated. Further clients have to validate theirs by a Retry
    /// first.
    ///
    /// 256: a handshake takes one round trip, so a worker with 1,000 new clients a second has about 100 under way.
    /// Spoofed ones last for [`handshake`](Self::handshake), hold about 30 KiB each, and cost 0.3 ms of CPU; a Retry
    /// costs 0.01 ms.
    pub unvalidated: usize,
    /// Handshakes that wait for [`accept`](crate::Endpoint::accept). Further ones are refused.
    pub waiting: usize,
    /// Bidirectional streams of a client that are open at once.
    pub bidirectional: u32,
    /// Unidirectional streams of a client that are open at once. HTTP/3 has three; others are ignored or refused by it.
    pub unidirectional: u32,
    /// Bytes that a client may send on one stream before they are read.
    pub stream_window: u32,
    /// Bytes that a client may send on all streams before they are read, once it has sent something that was read.
    /// Before, these are [`MIN_WINDOW`](Self::MIN_WINDOW).
    pub receive_window: u32,
    /// Bytes that are written to a connection and not acknowledged, in the same way.
    pub send_window: u32,
    /// Bytes for the windows of all connections together, in each direction: each has an equal part of it, but at least
    /// [`MIN_WINDOW`](Self::MIN_WINDOW).
    pub total_window: u64,
    /// A connection without packets ends after this time.
    pub idle: Duration,
    /// A handshake ends after this time.
    pub handshake: Duration,
}

impl Limits {
    /// Bytes that each client may send, however many there are.
    pub const MIN_WINDOW: u32 = 64 * 1024;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 65_536,
            unvalidated: 256,
            waiting: 1024,
            bidirectional: 100,
            unidirectional: 8,
            stream_window: 512 * 1024,
            receive_window: 1024 * 1024,
            send_window: 1024 * 1024,
            total_window: 256 * 1024 * 1024,
            idle: Duration::from_secs(30),
            handshake: Duration::from_secs(10),
        }
    }
}
