//! One UDP socket: datagrams in batches, both ways.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use quic::{BytesMut, Datagram, Ecn, Transmit};
use quinn_udp::{EcnCodepoint, RecvMeta, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::base::ffi::descriptor::own_descriptor;

/// Messages that one call of the kernel brings, each of which may be up to 64 datagrams of one sender (GRO).
const MESSAGES: usize = 8;
/// Bytes of one.
const MESSAGE_BYTES: usize = 64 * 1024;
/// Datagrams that one call of the kernel takes (GSO); it takes no more than 64 KiB. More than 10 save little, and would
/// delay others.
const SEGMENTS: usize = 32;

/// Room for datagrams on their way, used by one turn at a time.
pub(super) struct Buffers {
    received: Vec<u8>,
    metas: [RecvMeta; MESSAGES],
    /// Answers of the endpoint.
    pub(super) reply: Vec<u8>,
}

impl Default for Buffers {
    fn default() -> Self {
        Self {
            // The kernel gives memory to the parts that are used.
            received: vec![0; MESSAGES * MESSAGE_BYTES],
            metas: [RecvMeta::default(); MESSAGES],
            reply: Vec::new(),
        }
    }
}

/// The result of sending datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The kernel has them, or they can never be sent: then they count as lost.
    Done,
    /// They wait until it takes more.
    Blocked,
}

/// A UDP socket.
pub(super) struct Socket {
    descriptor: OwnedFd,
    state: UdpSocketState,
    /// The address that it is bound to.
    pub(super) address: SocketAddr,
    /// There may be datagrams to read.
    pub(super) readable: Cell<bool>,
    /// What the kernel did not take.
    unsent: RefCell<Option<(Transmit, Vec<u8>)>>,
}

impl Socket {
    /// Take over a descriptor that Python has given away.
    pub(super) fn adopt(number: i32) -> io::Result<Self> {
        let descriptor = own_descriptor(number)?;
        let state = UdpSocketState::new(UdpSockRef::from(&descriptor))?;
        let address = rustix::net::getsockname(&descriptor)?.try_into().map_err(io::Error::from)?;
        Ok(Self { descriptor, state, address, readable: Cell::new(true), unsent: RefCell::default() })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Whether datagrams are never fragmented.
    pub(super) fn discovers_mtu(&self) -> bool {
        !self.state.may_fragment()
    }

    /// How many datagrams it sends at once.
    pub(super) fn segments(&self) -> usize {
        self.state.max_gso_segments().min(SEGMENTS)
    }

    /// Whether datagrams wait in the kernel at this moment.
    pub(super) fn has_input(&self) -> bool {
        let mut asked = [PollFd::new(&self.descriptor, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut asked, Some(&now)).is_ok_and(|count| count > 0)
    }

    /// Whether datagrams wait until the kernel takes more.
    pub(super) fn is_blocked(&self) -> bool {
        self.unsent.borrow().is_some()
    }

    /// Read what one call of the kernel brings; returns whether there may be more. `take` gets each datagram.
    pub(super) fn receive(
        &self,
        buffers: &mut Buffers,
        mut take: impl FnMut(&Datagram, BytesMut, &mut Vec<u8>),
    ) -> bool {
        let Buffers { received, metas, reply, .. } = buffers;
        let mut rooms = received.chunks_exact_mut(MESSAGE_BYTES);
        let mut slices = [(); MESSAGES].map(|()| IoSliceMut::new(rooms.next().unwrap_or_default()));
        let count = match self.state.recv(UdpSockRef::from(&self.descriptor), &mut slices, metas) {
            Ok(count) => count,
            Err(error) => {
                // Others are errors of datagrams that were sent, such as an unreachable port: each is reported once.
                let is_empty = error.kind() == io::ErrorKind::WouldBlock;
                self.readable.set(!is_empty);
                return !is_empty;
            }
        };
        for (meta, room) in metas.iter().zip(received.chunks_exact(MESSAGE_BYTES)).take(count) {
            let ecn = meta.ecn.and_then(|ecn| Ecn::from_bits(ecn as u8));
            let from = Datagram { remote: meta.addr, local: meta.dst_ip, ecn };
            let content = room.get(..meta.len).unwrap_or_default();
            // Each in memory of its own: an unread rest of one must not keep the others.
            for datagram in content.chunks(meta.stride.max(1)) {
                take(&from, BytesMut::from(datagram), reply);
            }
        }
        // A full batch, or more has come meanwhile: the next call says so.
        self.readable.set(count == MESSAGES);
        count == MESSAGES
    }

    /// Send datagrams of a connection; they are kept if they have to wait.
    pub(super) fn send(&self, transmit: &Transmit, output: &mut Vec<u8>) -> Sent {
        if self.give(transmit, output) == Sent::Done {
            return Sent::Done;
        }
        self.unsent.replace(Some((*transmit, std::mem::take(output))));
        Sent::Blocked
    }

    /// Send an answer; it is lost if it would have to wait.
    pub(super) fn answer(&self, transmit: &Transmit, reply: &[u8]) {
        if !self.is_blocked() {
            self.give(transmit, reply);
        }
    }

    /// The kernel takes more: send the waiting datagrams.
    pub(super) fn resume(&self) -> Sent {
        let Some((transmit, mut output)) = self.unsent.take() else { return Sent::Done };
        self.send(&transmit, &mut output)
    }

    fn give(&self, transmit: &Transmit, output: &[u8]) -> Sent {
        let contents = output.get(..transmit.size).unwrap_or_default();
        let datagrams = quinn_udp::Transmit {
            destination: transmit.remote,
            ecn: transmit.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8)),
            contents,
            segment_size: transmit.segment,
            src_ip: transmit.local,
        };
        loop {
            match self.state.try_send(UdpSockRef::from(&self.descriptor), &datagrams) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Sent::Blocked,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Too large for the path, or no route: QUIC finds out by itself.
                Ok(()) | Err(_) => return Sent::Done,
            }
        }
    }
}
