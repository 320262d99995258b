//! The addresses of the peer: the one that it has shown to be its own, and those that packets only claim to come from.
//!
//! quinn-proto sends to the source of the newest packet, which may be forged, and returns if that does not answer its challenge.
//! It reports neither. But all its packets carry the challenge until it is answered: the first without one shows that it was.
//!
//! A claimed address gets at most three times the bytes that came from it (RFC 9000 section 8): quinn-proto fills the last
//! datagram that it begins, pads all of them to 1200 bytes, and neither counts probes of the MTU nor answers to challenges from
//! a third address.

use std::mem;
use std::net::SocketAddr;

use quinn_proto::{Connection, ConnectionStats};

use crate::endpoint::Transmit;

/// Bytes to an address for each from it, until it is validated.
const AMPLIFICATION: u64 = 3;

/// The addresses of one connection.
pub(crate) struct Path {
    validated: SocketAddr,
    /// Datagrams go there.
    current: SocketAddr,
    /// The two that were claimed last, one of which may be the current one.
    claims: (Claim, Claim),
}

/// An address that is not validated, with the bytes from it and to it.
#[derive(Clone, Copy)]
struct Claim {
    address: SocketAddr,
    received: u64,
    sent: u64,
}

impl Claim {
    const fn new(address: SocketAddr) -> Self {
        Self { address, received: 0, sent: 0 }
    }
}

impl Path {
    pub(crate) const fn new(address: SocketAddr) -> Self {
        Self { validated: address, current: address, claims: (Claim::new(address), Claim::new(address)) }
    }

    /// The last address that the peer has shown to be its own.
    #[inline]
    pub(crate) const fn validated(&self) -> SocketAddr {
        self.validated
    }

    /// Whether datagrams go to an address that may belong to a stranger.
    #[inline]
    pub(crate) fn is_claimed(&self) -> bool {
        self.current != self.validated
    }

    /// A datagram of this size has come.
    #[inline]
    pub(crate) fn note_received(&mut self, from: SocketAddr, size: usize) {
        if from != self.validated {
            self.claim(from).received += size as u64;
        }
    }

    /// Datagrams go to this address now: whether that is new, and only claimed.
    #[inline]
    pub(crate) fn follow(&mut self, address: SocketAddr) -> bool {
        mem::replace(&mut self.current, address) != address && self.is_claimed()
    }

    /// Whether a datagram that `inner` has made may be sent to an address that was not validated. `before` are the numbers
    /// of `inner` before that, if the current address was only claimed.
    #[cold]
    pub(crate) fn permits(&mut self, made: &Transmit, before: Option<&ConnectionStats>, inner: &Connection) -> bool {
        if let Some(before) = before.filter(|_| made.remote == self.current && !inner.is_closed()) {
            let after = inner.stats();
            if before.path.sent_plpmtud_probes != after.path.sent_plpmtud_probes {
                return false;
            }
            if before.frame_tx.path_challenge == after.frame_tx.path_challenge {
                self.validated = made.remote;
                return true;
            }
        }
        let claim = self.claim(made.remote);
        let sent = claim.sent + made.size as u64;
        let is_permitted = sent <= AMPLIFICATION * claim.received;
        if is_permitted {
            claim.sent = sent;
        }
        is_permitted
    }

    #[cold]
    fn claim(&mut self, address: SocketAddr) -> &mut Claim {
        let (first, second) = &mut self.claims;
        if first.address == address {
            return first;
        }
        if second.address != address {
            if second.address == self.current {
                mem::swap(first, second);
            }
            *second = Claim::new(address);
        }
        second
    }
}
