//! The addresses of the peer: the one that it has shown to be its own, and those that packets only claim to come from.
//!
//! quinn-proto sends to the source of the newest packet, which may be forged, and returns if that does not answer its challenge.
//! It reports neither. But all its packets carry the challenge until it is answered: the first without one shows that it was.
//!
//! A claimed address gets at most three times the bytes that came from it (RFC 9000 section 8): quinn-proto fills the last
//! datagram that it begins, pads all of them to 1200 bytes, and neither counts probes of the MTU nor answers to challenges from
//! a third address. Another port of the validated host gets one datagram more: a NAT has changed it, behind the back of a client
//! that may send too little to have the challenge.
//!
//! Each move makes the state of a path, and datagrams of 1200 bytes. An observer can forge moves, by copies of packets that come
//! before the originals, and the peer must not pay (RFC 9000 section 9.3.3): those of further addresses are dropped.

use std::mem;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use quinn_proto::{Connection, ConnectionStats};

use crate::endpoint::Transmit;

/// Bytes to an address for each from it, until it is validated.
const AMPLIFICATION: u64 = 3;
/// Bytes that another port of the validated host is taken to have sent.
const KNOWN_HOST: u64 = 500;
/// Moves to claimed addresses at once.
const MOVES: u64 = 20;
/// The time that gives back one.
const TIME: Duration = Duration::from_secs(1);

/// The addresses of one connection.
pub(crate) struct Path {
    validated: SocketAddr,
    /// Datagrams go there.
    current: SocketAddr,
    /// The two that were claimed last, one of which may be the current one.
    claims: (Claim, Claim),
    /// quinn-proto first asks the validated address, which was left, whether the peer is still there.
    asks: bool,
    /// Answers to challenges that had come when datagrams were made last.
    answers: u64,
    /// Moves that are left, as of that time.
    moves: (u64, Instant),
}

/// An address that is not validated, with the bytes from it and to it.
#[derive(Clone, Copy)]
struct Claim {
    address: SocketAddr,
    received: u64,
    sent: u64,
}

impl Claim {
    const fn new(address: SocketAddr, received: u64) -> Self {
        Self { address, received, sent: 0 }
    }

    const fn has_room(&self, size: u64) -> bool {
        self.sent + size <= AMPLIFICATION * self.received
    }
}

impl Path {
    pub(crate) const fn new(address: SocketAddr, now: Instant) -> Self {
        let claim = Claim::new(address, 0);
        Self {
            validated: address,
            current: address,
            claims: (claim, claim),
            asks: false,
            answers: 0,
            moves: (MOVES, now),
        }
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

    /// Whether a datagram from this address is to be processed: one that may be a move, if one is left.
    #[inline]
    pub(crate) fn accepts(&mut self, from: SocketAddr, now: Instant) -> bool {
        from == self.current || from == self.validated || self.has_moves(now)
    }

    #[cold]
    fn has_moves(&mut self, now: Instant) -> bool {
        let (left, since) = &mut self.moves;
        let passed = now.saturating_duration_since(*since).as_secs() / TIME.as_secs();
        *since += TIME * u32::try_from(passed).unwrap_or(u32::MAX);
        *left = left.saturating_add(passed).min(MOVES);
        *left > 0
    }

    /// A datagram of this size has come.
    #[inline]
    pub(crate) fn note_received(&mut self, from: SocketAddr, size: usize) {
        if from != self.validated {
            self.claim(from).received += size as u64;
        }
    }

    /// Datagrams go to this address now.
    #[inline]
    pub(crate) fn follow(&mut self, address: SocketAddr) {
        let before = mem::replace(&mut self.current, address);
        if before != address && self.is_claimed() {
            self.moves.0 = self.moves.0.saturating_sub(1);
            self.asks |= before == self.validated;
        }
    }

    /// Whether a datagram of the largest size has to wait until more has come from the current address, which is claimed.
    /// Without room for it, one is made if it may go elsewhere, or show that the challenge was answered.
    pub(crate) fn waits(&mut self, largest: u16, before: &ConnectionStats) -> bool {
        let answers = before.frame_rx.path_response;
        let is_answered = mem::replace(&mut self.answers, answers) != answers;
        let asks = mem::take(&mut self.asks);
        !is_answered && !asks && !self.claim(self.current).has_room(largest.into())
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
        let is_permitted = claim.has_room(made.size as u64);
        if is_permitted {
            claim.sent += made.size as u64;
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
            *second = Claim::new(address, if address.ip() == self.validated.ip() { KNOWN_HOST } else { 0 });
        }
        second
    }
}
