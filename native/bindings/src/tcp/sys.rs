//! Descriptors that are ours, and the calls of the system on them. Each is owned by its type: a number is never used
//! after its close, and never handed out.

use std::io;
use std::net::SocketAddr;

use pyo3::PyErr;
use pyo3::exceptions::PyOSError;

/// The exception that Python has for `error`: of the class that its number means.
#[cold]
pub(super) fn os_error(error: &io::Error) -> PyErr {
    match error.raw_os_error() {
        Some(number) => {
            let text = error.to_string();
            let text = text.split(" (os error ").next().unwrap_or_default().to_owned();
            PyOSError::new_err((number, text))
        }
        None => PyOSError::new_err(error.to_string()),
    }
}

/// The name of one end of a connection.
#[derive(Clone, Debug)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there are no sockets of ours"))]
pub(crate) enum Address {
    Ip(SocketAddr),
    /// Of a Unix socket; empty if it has none.
    Path(Vec<u8>),
}

/// The events of a descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    /// As which it was added.
    pub(crate) token: u64,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The peer will send nothing more, or is gone: read to the end.
    pub(crate) hung_up: bool,
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io::{self, IoSlice};
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, IntoRawFd, OwnedFd};
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, epoll, poll};
    use rustix::net::{self, RecvFlags, SendFlags, Shutdown, SocketAddrAny, SocketAddrUnix, SocketFlags, sockopt};
    use rustix::time::Timespec;

    use super::{Address, Event};
    use crate::base::ffi::descriptor::own_descriptor;

    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

    /// One connected socket.
    pub(crate) struct Descriptor(OwnedFd);

    impl Descriptor {
        /// Read without blocking; 0 is the end of input.
        #[inline]
        pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
            let (_, length) = net::recv(&self.0, buffer, RecvFlags::DONTWAIT)?;
            Ok(length)
        }

        /// Read available input without consuming it; 0 is the end of input.
        pub(crate) fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
            let (_, length) = net::recv(&self.0, buffer, RecvFlags::DONTWAIT | RecvFlags::PEEK)?;
            Ok(length)
        }

        /// The same, into uninitialized memory; returns the part that was filled.
        pub(crate) fn receive_into<'a>(&self, room: &'a mut [MaybeUninit<u8>]) -> io::Result<&'a mut [u8]> {
            let ((received, _), _) = net::recv(&self.0, room, RecvFlags::DONTWAIT)?;
            Ok(received)
        }

        /// Write without blocking; how many bytes the kernel took.
        #[inline]
        pub(crate) fn send(&self, data: &[u8]) -> io::Result<usize> {
            Ok(net::send(&self.0, data, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
        }

        /// Write several pieces in one call.
        #[inline]
        pub(crate) fn send_all(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
            let mut nothing = net::SendAncillaryBuffer::default();
            Ok(net::sendmsg(&self.0, pieces, &mut nothing, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
        }

        /// How many bytes that the kernel took have not reached the peer.
        pub(crate) fn in_kernel(&self) -> usize {
            crate::base::ffi::descriptor::in_kernel(self.0.as_fd())
        }

        /// Take no more output while `most` bytes are unsent.
        pub(crate) fn limit_unsent(&self, most: i32) {
            crate::base::ffi::descriptor::limit_unsent(self.0.as_fd(), most);
        }

        /// Tell the peer that nothing more will come.
        pub(crate) fn end_output(&self) -> io::Result<()> {
            Ok(net::shutdown(&self.0, Shutdown::Write)?)
        }

        /// Whether there is something to read at this moment, or room for more, if that is `wanted`.
        pub(crate) fn is_ready(&self, wanted: (bool, bool)) -> (bool, bool) {
            let (mut input, mut output) = (PollFlags::IN | PollFlags::RDHUP, PollFlags::OUT);
            input.set(PollFlags::IN | PollFlags::RDHUP, wanted.0);
            output.set(PollFlags::OUT, wanted.1);
            let mut asked = [PollFd::new(&self.0, input | output)];
            let gone = PollFlags::ERR | PollFlags::HUP;
            let found = match poll(&mut asked, Some(&NOW)) {
                Ok(_) => asked.iter().fold(PollFlags::empty(), |found, asked| found | asked.revents()),
                Err(_) => PollFlags::empty(),
            };
            (wanted.0 && found.intersects(input | gone), wanted.1 && found.intersects(output | gone))
        }

        /// Whether the connection was reset; not if its peer has only ended its output.
        pub(crate) fn is_reset(&self) -> bool {
            let mut asked = [PollFd::new(&self.0, PollFlags::empty())];
            let gone = PollFlags::ERR | PollFlags::HUP;
            poll(&mut asked, Some(&NOW)).is_ok() && asked.iter().any(|asked| asked.revents().intersects(gone))
        }

        /// Have the close that follows tell the peer that the connection was cut off (RFC 9293 section 3.10.7).
        pub(crate) fn reset_on_close(&self) {
            let _ = sockopt::set_socket_linger(&self.0, Some(Duration::ZERO));
        }

        /// Whether closing resets the connection, because a program has asked for it.
        pub(crate) fn resets_on_close(&self) -> bool {
            sockopt::socket_linger(&self.0).is_ok_and(|linger| linger == Some(Duration::ZERO))
        }

        /// The address of this end.
        pub(crate) fn local_address(&self) -> Option<Address> {
            net::getsockname(&self.0).ok().map(address)
        }

        /// A second descriptor of the same socket, for others.
        pub(crate) fn duplicate(&self) -> io::Result<i32> {
            self.0.try_clone().map(IntoRawFd::into_raw_fd)
        }

        /// The identity of this socket among all others.
        pub(crate) fn inode(&self) -> Option<u64> {
            rustix::fs::fstat(&self.0).ok().map(|status| status.st_ino)
        }
    }

    /// One listening socket: a duplicate of whose it is.
    pub(crate) struct Listener(OwnedFd);

    impl Listener {
        /// Take over a descriptor that Python has given away.
        pub(crate) fn adopt(number: i32) -> io::Result<Self> {
            let descriptor = own_descriptor(number)?;
            // Accepted sockets inherit it. Unix sockets know no such thing.
            let _ = sockopt::set_tcp_nodelay(&descriptor, true);
            rustix::io::ioctl_fionbio(&descriptor, true)?;
            Ok(Self(descriptor))
        }

        /// Take the connection that has waited longest.
        pub(crate) fn accept(&self) -> io::Result<(Descriptor, Address)> {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let (descriptor, peer) = net::acceptfrom_with(&self.0, flags)?;
            Ok((Descriptor(descriptor), peer.map_or(Address::Path(Vec::new()), address)))
        }

        /// The address that all its connections arrive at, unless that depends on the connection.
        pub(crate) fn address(&self) -> Option<Address> {
            let own = net::getsockname(&self.0).ok().map(address)?;
            match &own {
                Address::Ip(ip) if ip.ip().is_unspecified() => None,
                _ => Some(own),
            }
        }
    }

    /// A file of numbers, one for each place, behind one that is of no place (`uvicorn/listening/loads.py` says how it
    /// looks).
    pub(crate) struct Table(OwnedFd);

    impl Table {
        const NUMBER: usize = size_of::<u32>();
        /// The bit of a number that means: nothing is accepted there.
        pub(crate) const RESTS: u32 = 1 << 31;
        /// Places read at once.
        const READ: usize = 64;

        /// Where the number of a place is.
        fn offset(index: usize) -> u64 {
            (Self::NUMBER * (1 + index)) as u64
        }

        /// Take over a descriptor that Python has given away.
        pub(crate) fn adopt(number: i32) -> io::Result<Self> {
            own_descriptor(number).map(Self)
        }

        pub(crate) fn write(&self, index: usize, number: u32) {
            // A worker with an old number only gets a different share of connections.
            let _ = rustix::io::pwrite(&self.0, &number.to_ne_bytes(), Self::offset(index));
        }

        /// The smallest number of the others that accept.
        pub(crate) fn fewest(&self, own: usize) -> Option<u32> {
            let mut room = [0; Self::READ * Self::NUMBER];
            let mut fewest = None;
            let mut first = 0;
            loop {
                let length = rustix::io::pread(&self.0, &mut room, Self::offset(first)).unwrap_or(0);
                let (numbers, _) = room.get(..length).unwrap_or_default().as_chunks::<{ Self::NUMBER }>();
                for (index, number) in numbers.iter().enumerate() {
                    let number = u32::from_ne_bytes(*number);
                    if first + index != own && number > 0 && number < Self::RESTS {
                        fewest = Some(fewest.map_or(number, |fewest: u32| fewest.min(number)));
                    }
                }
                if length < room.len() {
                    return fewest;
                }
                first += Self::READ;
            }
        }
    }

    fn address(any: SocketAddrAny) -> Address {
        if let Ok(ip) = any.clone().try_into() {
            return Address::Ip(ip);
        }
        let path = SocketAddrUnix::try_from(any).ok();
        Address::Path(path.and_then(|unix| unix.path_bytes().map(<[u8]>::to_vec)).unwrap_or_default())
    }

    /// An epoll(7) instance: connections are edge-triggered, so that an event is not repeated before more happens,
    /// listening sockets level-triggered.
    pub(crate) struct Poll(OwnedFd);

    impl Poll {
        /// Reported at once; further events follow in the next call.
        const MAX_EVENTS: usize = 256;

        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
        }

        /// For the event loop, which watches it.
        pub(crate) fn number(&self) -> i32 {
            self.0.as_raw_fd()
        }

        /// Report events of `descriptor` as `token`, at once if it is ready already.
        pub(crate) fn watch(&self, descriptor: &Descriptor, token: u64) -> io::Result<()> {
            let flags =
                epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
            Ok(epoll::add(&self.0, &descriptor.0, epoll::EventData::new_u64(token), flags)?)
        }

        pub(crate) fn listen(&self, listener: &Listener, token: u64) -> io::Result<()> {
            Ok(epoll::add(&self.0, &listener.0, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?)
        }

        /// Stop reporting its events, although others have the socket open.
        pub(crate) fn forget(&self, descriptor: &Descriptor) -> io::Result<()> {
            Ok(epoll::delete(&self.0, &descriptor.0)?)
        }

        pub(crate) fn ignore(&self, listener: &Listener) -> io::Result<()> {
            Ok(epoll::delete(&self.0, &listener.0)?)
        }

        /// Report as `token` that there is something to read of `descriptor`, for as long as there is.
        pub(crate) fn watch_level(&self, descriptor: BorrowedFd<'_>, token: u64) -> io::Result<()> {
            Ok(epoll::add(&self.0, descriptor, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?)
        }

        /// Report as well, or no longer, that there is room to write.
        pub(crate) fn rewatch_level(&self, descriptor: BorrowedFd<'_>, token: u64, writable: bool) -> io::Result<()> {
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, writable);
            Ok(epoll::modify(&self.0, descriptor, epoll::EventData::new_u64(token), flags)?)
        }

        /// Report nothing of it any more.
        pub(crate) fn unwatch(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
            Ok(epoll::delete(&self.0, descriptor)?)
        }

        /// Fill `events` with those that are due now.
        #[inline]
        pub(crate) fn poll(&self, events: &mut Vec<epoll::Event>) {
            events.clear();
            events.reserve(Self::MAX_EVENTS);
            // Nothing can go wrong with it but a signal, and then the loop calls again.
            let _ = epoll::wait(&self.0, rustix::buffer::spare_capacity(events), Some(&NOW));
        }
    }

    /// The buffer for the kernel's events.
    pub(crate) type Events = Vec<epoll::Event>;

    pub(crate) fn each(events: &Events) -> impl Iterator<Item = Event> {
        events.iter().map(|event| {
            let flags = event.flags;
            Event {
                token: event.data.u64(),
                readable: flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR)
                    || flags.contains(epoll::EventFlags::RDHUP),
                writable: flags.intersects(epoll::EventFlags::OUT | epoll::EventFlags::HUP | epoll::EventFlags::ERR),
                hung_up: flags.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR),
            }
        })
    }
}

#[cfg(target_os = "linux")]
pub(crate) use linux::{Descriptor, Events, Listener, Poll, Table, each};

/// Other systems have no epoll: the loop's transports serve, and none of this can be made.
#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use std::io::{self, IoSlice};
    use std::mem::MaybeUninit;

    use super::{Address, Event};

    pub(crate) enum Descriptor {}

    impl Descriptor {
        pub(crate) fn receive(&self, _buffer: &mut [u8]) -> io::Result<usize> {
            match *self {}
        }

        pub(crate) fn peek(&self, _buffer: &mut [u8]) -> io::Result<usize> {
            match *self {}
        }

        pub(crate) fn receive_into<'a>(&self, _room: &'a mut [MaybeUninit<u8>]) -> io::Result<&'a mut [u8]> {
            match *self {}
        }

        pub(crate) fn send(&self, _data: &[u8]) -> io::Result<usize> {
            match *self {}
        }

        pub(crate) fn send_all(&self, _pieces: &[IoSlice<'_>]) -> io::Result<usize> {
            match *self {}
        }

        pub(crate) fn in_kernel(&self) -> usize {
            match *self {}
        }

        pub(crate) fn limit_unsent(&self, _most: i32) {
            match *self {}
        }

        pub(crate) fn end_output(&self) -> io::Result<()> {
            match *self {}
        }

        pub(crate) fn is_ready(&self, _wanted: (bool, bool)) -> (bool, bool) {
            match *self {}
        }

        pub(crate) fn resets_on_close(&self) -> bool {
            match *self {}
        }

        pub(crate) fn is_reset(&self) -> bool {
            match *self {}
        }

        pub(crate) fn reset_on_close(&self) {
            match *self {}
        }

        pub(crate) fn local_address(&self) -> Option<Address> {
            match *self {}
        }

        pub(crate) fn duplicate(&self) -> io::Result<i32> {
            match *self {}
        }

        pub(crate) fn inode(&self) -> Option<u64> {
            match *self {}
        }
    }

    pub(crate) enum Listener {}

    impl Listener {
        pub(crate) fn adopt(_number: i32) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(crate) fn accept(&self) -> io::Result<(Descriptor, Address)> {
            match *self {}
        }

        pub(crate) fn address(&self) -> Option<Address> {
            match *self {}
        }
    }

    pub(crate) enum Poll {}

    impl Poll {
        pub(crate) fn new() -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(crate) fn number(&self) -> i32 {
            match *self {}
        }

        pub(crate) fn watch(&self, _descriptor: &Descriptor, _token: u64) -> io::Result<()> {
            match *self {}
        }

        pub(crate) fn listen(&self, _listener: &Listener, _token: u64) -> io::Result<()> {
            match *self {}
        }

        pub(crate) fn forget(&self, _descriptor: &Descriptor) -> io::Result<()> {
            match *self {}
        }

        pub(crate) fn ignore(&self, _listener: &Listener) -> io::Result<()> {
            match *self {}
        }

        pub(crate) fn poll(&self, _events: &mut Events) {
            match *self {}
        }
    }

    pub(crate) enum Table {}

    impl Table {
        pub(crate) const RESTS: u32 = 1 << 31;

        pub(crate) fn adopt(_number: i32) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(crate) fn write(&self, _index: usize, _number: u32) {
            match *self {}
        }

        pub(crate) fn fewest(&self, _own: usize) -> Option<u32> {
            match *self {}
        }
    }

    pub(crate) type Events = Vec<Event>;

    pub(crate) fn each(events: &Events) -> impl Iterator<Item = Event> {
        events.iter().copied()
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::{Descriptor, Events, Listener, Poll, Table, each};
