//! One connection: packets and calls in, events and datagrams out.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn_proto::{ConnectionError, Dir, ReadError, Side, StreamEvent, StreamId, VarInt, WriteError};

use crate::congestion;
use crate::crypto::Handshake;
use crate::endpoint::{Packet, Transmit};
use crate::event::{Event, Lost, is_bidirectional, is_ours};
use crate::flood::Flood;
use crate::path::Path;
use crate::settings::Limits;
use crate::window::Windows;

/// How far the life of a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Handshaking,
    Open,
    /// [`Event::Lost`] was or will be polled. Packets are answered by the reason until the peer must have it.
    Closing,
    /// No packet is sent.
    Abandoned,
}

/// The result of [`Connection::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Bytes that were read.
    pub length: usize,
    /// The state of the stream behind them.
    pub end: ReadEnd,
}

/// The state of a stream behind the bytes that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadEnd {
    /// Probably more: read again, no event follows.
    More,
    /// Nothing yet: [`Event::Readable`] follows.
    Blocked,
    /// The end of the stream. It is closed for reading.
    Finished,
    /// The peer has reset the stream, by this code. It is closed for reading.
    Reset(u64),
    /// The stream was closed for reading before.
    Closed,
}

/// The result of [`Connection::write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Everything was taken.
    All,
    /// The rest has to wait for [`Event::Writable`].
    Blocked,
    /// The peer does not read the stream: reset it. The code is the peer's reason.
    Stopped(u64),
    /// The stream is closed for writing.
    Closed,
}

/// Numbers about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// The estimated round trip time.
    pub rtt: Duration,
    /// Packets that were sent.
    pub sent_packets: u64,
    /// Those of them that were lost.
    pub lost_packets: u64,
    /// Bytes that may be on their way.
    pub congestion_window: u64,
    /// Bytes of the largest datagram that arrives.
    pub mtu: u16,
}

/// The server's end of one connection.
pub struct Connection {
    pub(crate) inner: quinn_proto::Connection,
    phase: Phase,
    /// Early data waits for the end of the handshake.
    defers: bool,
    /// When the handshake has to be complete.
    deadline: Option<Instant>,
    path: Path,
    /// The address of the peer that an event has reported.
    remote: SocketAddr,
    /// New streams may wait, of both directions.
    opened: [bool; 2],
    /// Made here.
    events: VecDeque<Event>,
    windows: Rc<Windows>,
    /// The part of the memory that it has now.
    part: u32,
    /// It has read something, so that its peer may send more.
    reads: bool,
    most_received: u32,
    most_sent: u32,
    flood: Flood,
}

impl Connection {
    /// `defers`: early data waits for the end of the handshake.
    pub(crate) fn new(
        inner: quinn_proto::Connection,
        now: Instant,
        limits: &Limits,
        windows: Rc<Windows>,
        defers: bool,
    ) -> Self {
        let remote = inner.remote_address();
        Self {
            inner,
            phase: Phase::Handshaking,
            defers,
            deadline: Some(now + limits.handshake),
            path: Path::new(remote, now),
            remote,
            opened: [false; 2],
            events: VecDeque::new(),
            windows,
            part: Limits::MIN_WINDOW,
            reads: false,
            most_received: limits.receive_window,
            most_sent: limits.send_window,
            flood: Flood::new(now),
        }
    }

    /// Take the present part of the memory, if it is used at all: what a peer was allowed to send cannot be taken back.
    fn resize(&mut self) {
        let part = if self.reads { self.windows.part() } else { self.part };
        if std::mem::replace(&mut self.part, part) != part {
            self.inner.set_receive_window(part.min(self.most_received).into());
            self.inner.set_send_window(part.min(self.most_sent).into());
        }
    }

    // Packets and time.

    /// Process a packet that the endpoint has received, unless it would be one move too many.
    pub fn receive(&mut self, packet: Packet) {
        self.resize();
        self.flood.note_datagram();
        if self.path.accepts(packet.remote, packet.at) {
            self.path.note_received(packet.remote, packet.size);
            self.inner.handle_event(packet.event);
            self.path.follow(self.inner.remote_address());
        }
    }

    /// When [`expire`](Self::expire) has to be called. Ask again after any other call.
    pub fn timeout(&mut self) -> Option<Instant> {
        match (self.inner.poll_timeout(), self.deadline) {
            (Some(timeout), Some(deadline)) => Some(timeout.min(deadline)),
            (timeout, deadline) => timeout.or(deadline),
        }
    }

    /// Handle the timeouts that have passed.
    pub fn expire(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = None;
            if self.phase == Phase::Handshaking {
                // Its address may not be its own.
                self.phase = Phase::Abandoned;
                self.events.push_back(Event::Lost(Lost::HandshakeTimeout));
                return;
            }
        }
        self.inner.handle_timeout(now);
        // It has returned from an address that did not answer.
        self.path.follow(self.inner.remote_address());
    }

    /// Fill `output` with up to `segments` datagrams for one call of the kernel, in place of its content; `None` if
    /// there is nothing to send now. Call it until then.
    pub fn transmit(&mut self, now: Instant, segments: usize, output: &mut Vec<u8>) -> Option<Transmit> {
        output.clear();
        if self.phase == Phase::Abandoned {
            return None;
        }
        // Packets of the handshake count once it is complete: before that, no owner could end the connection.
        let is_due = self.phase == Phase::Open && self.flood.is_due();
        if is_due && self.flood.look(now, &self.inner.stats().frame_rx) {
            self.events.push_back(Event::Flooded);
        }
        loop {
            let before = self.path.is_claimed().then(|| self.inner.stats());
            let segments = if before.is_some() { 1 } else { segments.max(1) };
            if let Some(before) = &before
                && !self.inner.is_closed()
                && self.path.waits(self.inner.current_mtu(), before)
            {
                return None;
            }
            let made = Transmit::from(self.inner.poll_transmit(now, segments, output)?);
            if made.remote == self.path.validated() || self.path.permits(&made, before.as_ref(), &self.inner) {
                return Some(made);
            }
            output.clear();
        }
    }

    // Events.

    /// The next event.
    pub fn poll(&mut self) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        let is_deferred = self.defers && self.inner.is_handshaking();
        if is_deferred || self.phase == Phase::Abandoned {
            return None;
        }
        let remote = self.path.validated();
        if remote != self.remote {
            self.remote = remote;
            return Some(Event::Moved(remote));
        }
        loop {
            if let Some(stream) = self.next_opened() {
                return Some(Event::Opened(stream));
            }
            let event = match self.inner.poll()? {
                quinn_proto::Event::Connected => {
                    self.phase = Phase::Open;
                    self.deadline = None;
                    Event::Established
                }
                quinn_proto::Event::ConnectionLost { reason } => {
                    self.phase = Phase::Closing;
                    self.deadline = None;
                    Event::Lost(reason.into())
                }
                quinn_proto::Event::Stream(StreamEvent::Opened { dir }) => {
                    self.opened = [self.opened[0] || dir == Dir::Bi, self.opened[1] || dir == Dir::Uni];
                    continue;
                }
                quinn_proto::Event::Stream(StreamEvent::Readable { id }) => Event::Readable(number(id)),
                quinn_proto::Event::Stream(StreamEvent::Writable { id }) => Event::Writable(number(id)),
                quinn_proto::Event::Stream(StreamEvent::Finished { id }) => Event::Finished(number(id)),
                quinn_proto::Event::Stream(StreamEvent::Stopped { id, error_code }) => {
                    Event::Stopped { stream: number(id), code: error_code.into() }
                }
                quinn_proto::Event::Stream(StreamEvent::Available { .. }) => Event::CanOpen,
                // The first is part of `Established`; the others do not occur without datagrams.
                quinn_proto::Event::HandshakeDataReady
                | quinn_proto::Event::DatagramReceived
                | quinn_proto::Event::DatagramsUnblocked => continue,
            };
            return Some(event);
        }
    }

    fn next_opened(&mut self) -> Option<u64> {
        for dir in [Dir::Bi, Dir::Uni] {
            let waits = self.opened.get_mut(dir as usize)?;
            if *waits {
                match self.inner.streams().accept(dir) {
                    Some(id) => return Some(number(id)),
                    None => *waits = false,
                }
            }
        }
        None
    }

    // Streams.

    /// Open a stream of ours, on which only we send; `None` if the peer allows no more: [`Event::CanOpen`] follows.
    pub fn open(&mut self) -> Option<u64> {
        self.inner.streams().open(Dir::Uni).map(number)
    }

    /// Append up to `most` bytes of a stream to `chunks`. They are parts of the datagrams that brought them, not
    /// copies.
    pub fn read(&mut self, stream: u64, most: usize, chunks: &mut Vec<Bytes>) -> Read {
        let mut received = self.inner.recv_stream(id(stream));
        let Ok(mut next) = received.read(true) else { return Read { length: 0, end: ReadEnd::Closed } };
        let (mut length, before) = (0, chunks.len());
        let end = loop {
            if length >= most {
                break ReadEnd::More;
            }
            match next.next(most - length) {
                Ok(Some(chunk)) => {
                    length += chunk.bytes.len();
                    chunks.push(chunk.bytes);
                }
                Ok(None) => break ReadEnd::Finished,
                Err(ReadError::Blocked) => break ReadEnd::Blocked,
                Err(ReadError::Reset(code)) => break ReadEnd::Reset(code.into()),
            }
        };
        // `transmit` sends the peer its larger window, if it has grown enough.
        let _ = next.finalize();
        self.flood.note_read(chunks.len() - before, length);
        if length > 0 && self.phase == Phase::Open {
            self.reads = true;
        }
        Read { length, end }
    }

    /// The code with which the peer has reset a stream, if it has: known without reading it, and told once.
    pub fn reset_of(&mut self, stream: u64) -> Option<u64> {
        self.inner.recv_stream(id(stream)).received_reset().ok().flatten().map(Into::into)
    }

    /// Read no more of a stream, and tell the peer why (`STOP_SENDING`).
    pub fn stop(&mut self, stream: u64, code: u64) {
        // It may have ended.
        let _ = self.inner.recv_stream(id(stream)).stop(code_of(code));
    }

    /// Write `pieces` to a stream, without copying them. Those that are taken become empty.
    pub fn write(&mut self, stream: u64, pieces: &mut [Bytes]) -> Written {
        let mut sent = self.inner.send_stream(id(stream));
        let mut length = 0;
        let written = loop {
            // Those that are taken are empty.
            let Some(first) = pieces.iter().position(|piece| !piece.is_empty()) else { break Written::All };
            match sent.write_chunks(pieces.get_mut(first..).unwrap_or_default()) {
                Ok(taken) => length += taken.bytes,
                Err(WriteError::Blocked) => break Written::Blocked,
                Err(WriteError::Stopped(code)) => break Written::Stopped(code.into()),
                Err(WriteError::ClosedStream) => break Written::Closed,
            }
        };
        self.flood.note_written(length, written == Written::All && length > 0);
        written
    }

    /// Whether nothing can be written to any stream: the peer's window for all together is closed, or as much waits for its
    /// acknowledgement as may. `stream` is one of ours, on which the peer allows more.
    pub fn is_blocked(&mut self, stream: u64) -> bool {
        self.inner.send_stream(id(stream)).write_chunks(&mut []) == Err(WriteError::Blocked)
    }

    /// Nothing follows on a stream. Does nothing if that is so already.
    pub fn finish(&mut self, stream: u64) {
        if self.inner.send_stream(id(stream)).finish().is_ok() {
            self.flood.note_finished();
        }
    }

    /// Cut a stream off (`RESET_STREAM`): unsent data is lost. Does nothing if it is closed for writing.
    pub fn reset(&mut self, stream: u64, code: u64) {
        let _ = self.inner.send_stream(id(stream)).reset(code_of(code));
    }

    /// Send the data of streams with a higher priority first; 0 is the default.
    pub fn set_priority(&mut self, stream: u64, priority: i32) {
        let _ = self.inner.send_stream(id(stream)).set_priority(priority);
    }

    // The connection as a whole.

    /// Close the connection, with a code of the application's protocol and words for the peer. [`Event::Lost`] follows.
    pub fn close(&mut self, now: Instant, code: u64, reason: &str) {
        if matches!(self.phase, Phase::Handshaking | Phase::Open) {
            self.phase = Phase::Closing;
            self.deadline = None;
            self.inner.close(now, code_of(code), Bytes::copy_from_slice(reason.as_bytes()));
            self.events.push_back(Event::Lost(Lost::ClosedHere));
        }
    }

    /// What both ends have agreed on, once it is known: before [`Event::Established`] if there is early data.
    pub fn handshake(&self) -> Option<Handshake> {
        self.inner.crypto_session().handshake_data()?.downcast().ok().map(|data| *data)
    }

    /// Whether the handshake is not complete. Until then reading yields early data, which an attacker may repeat.
    pub fn is_handshaking(&self) -> bool {
        self.phase == Phase::Handshaking
    }

    /// Whether the end has begun.
    pub fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing | Phase::Abandoned)
    }

    /// Whether the peer has shown that its address is its own, or has ended.
    pub(crate) fn is_validated(&self) -> bool {
        self.phase != Phase::Handshaking
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.phase == Phase::Abandoned
    }

    /// The peer's address: the last that it has shown to be its own.
    pub fn remote(&self) -> SocketAddr {
        self.path.validated()
    }

    /// The address that datagrams go to, which may only be claimed.
    pub fn target(&self) -> SocketAddr {
        self.inner.remote_address()
    }

    /// The address that the peer sends to, if the socket has several.
    pub fn local(&self) -> Option<IpAddr> {
        self.inner.local_ip()
    }

    /// Whether the client's early data was accepted.
    pub fn has_early_data(&self) -> bool {
        self.inner.has_0rtt()
    }

    /// Bytes of packets that the peer has acknowledged, since it has another address if it does.
    pub fn acknowledged(&self) -> u64 {
        congestion::acknowledged(self.inner.congestion_state())
    }

    /// Numbers about it.
    pub fn statistics(&self) -> Statistics {
        let all = self.inner.stats();
        Statistics {
            rtt: all.path.rtt,
            sent_packets: all.path.sent_packets,
            lost_packets: all.path.lost_packets,
            congestion_window: all.path.cwnd,
            mtu: all.path.current_mtu,
        }
    }
}

impl From<ConnectionError> for Lost {
    fn from(error: ConnectionError) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match error {
            ConnectionError::ApplicationClosed(close) => {
                Self::ClosedByPeer { code: close.error_code.into(), reason: text(&close.reason) }
            }
            ConnectionError::ConnectionClosed(close) => {
                Self::PeerError { code: close.error_code.into(), reason: text(&close.reason) }
            }
            ConnectionError::TransportError(error) => {
                Self::ProtocolError { code: error.code.into(), reason: error.reason }
            }
            ConnectionError::Reset => Self::Reset,
            ConnectionError::TimedOut => Self::IdleTimeout,
            ConnectionError::LocallyClosed => Self::ClosedHere,
            ConnectionError::VersionMismatch | ConnectionError::CidsExhausted => {
                Self::ProtocolError { code: 0, reason: error.to_string() }
            }
        }
    }
}

fn id(stream: u64) -> StreamId {
    let side = if is_ours(stream) { Side::Server } else { Side::Client };
    let dir = if is_bidirectional(stream) { Dir::Bi } else { Dir::Uni };
    StreamId::new(side, dir, stream >> 2)
}

fn number(id: StreamId) -> u64 {
    VarInt::from(id).into_inner()
}

/// Codes are numbers of 62 bits.
fn code_of(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}
