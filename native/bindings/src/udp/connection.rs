//! One connection of a listening endpoint, as its handler uses it.
//!
//! ```text
//! SHAKING ──established, or early data──▶ SERVED ──lost, closed──▶ LOST ──the peer must know──▶ (removed)
//!    └───────────────────────failed────────────────────────────────┘
//! ```
//!
//! Any call that changes it puts it into the queue of its endpoint, whose present or next turn sends what there is to
//! send.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Instant;

use pyo3::prelude::*;
use quic::{Bytes, Event, Handle, Handshake, Packet, Read, Statistics, Transmit, Written};

use super::handler::Handler;
use crate::base::turns::Turns;
use crate::conn::grace::Pending;
use crate::tcp::tls::config::Current;

/// The endpoint of a connection, which serves it in its turns.
pub(super) trait Keeper {
    /// Serve `connection` in the present turn if it is to be served in it, or the next.
    fn queue(&self, py: Python<'_>, connection: &Rc<Connection>) -> PyResult<()>;
    /// Send what `connection` has to say now.
    fn send(&self, py: Python<'_>, connection: &Rc<Connection>) -> PyResult<()>;
    /// The turns in which connections are served.
    fn turns(&self) -> Rc<dyn Turns>;
    /// Whether packets wait that no turn has read.
    fn look(&self, py: Python<'_>) -> PyResult<Pending>;
}

/// Whether events are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// There is no handler yet.
    Shaking,
    /// Events go to the handler.
    Served,
    /// No event follows.
    Lost,
}

/// A QUIC connection between its endpoint and its [`Handler`].
pub(crate) struct Connection {
    keeper: Weak<dyn Keeper>,
    pub(super) handle: Handle,
    /// Borrowed for single calls, none of which runs Python code.
    quic: RefCell<Box<quic::Connection>>,
    /// What it was accepted with.
    pub(super) settings: Arc<Current>,
    pub(super) handler: RefCell<Option<Rc<dyn Handler>>>,
    pub(super) phase: Cell<Phase>,
    /// It is in the queue of its endpoint.
    pub(super) is_queued: Cell<bool>,
    /// The endpoint has forgotten it: its handle may mean another one.
    pub(super) is_gone: Cell<bool>,
    /// Its events are being delivered: what it has to say is sent then.
    pub(super) is_served: Cell<bool>,
    /// It is among those that wait for a socket.
    pub(super) is_blocked: Cell<bool>,
    /// The address of the socket that it was accepted by.
    bound: SocketAddr,
    /// The sockets that packets of the peer came from last: from the address that datagrams go to, and from any.
    pub(super) socket: Cell<usize>,
    pub(super) other_socket: Cell<usize>,
    /// When it is in the table of timeouts.
    pub(super) due: Cell<Option<Instant>>,
    /// Packets that were lost, as far as they are counted.
    lost: Cell<u64>,
    /// What programs see of its encryption; a program may have it refer to the connection.
    pub(super) object: RefCell<Option<Py<PyAny>>>,
}

impl Connection {
    pub(super) fn new(
        keeper: Weak<dyn Keeper>,
        handle: Handle,
        quic: Box<quic::Connection>,
        settings: Arc<Current>,
        socket: usize,
        bound: SocketAddr,
    ) -> Rc<Self> {
        Rc::new(Self {
            keeper,
            handle,
            quic: RefCell::new(quic),
            settings,
            handler: RefCell::default(),
            phase: Cell::new(Phase::Shaking),
            is_queued: Cell::new(false),
            is_gone: Cell::new(false),
            is_served: Cell::new(false),
            is_blocked: Cell::new(false),
            bound,
            socket: Cell::new(socket),
            other_socket: Cell::new(socket),
            due: Cell::new(None),
            lost: Cell::new(0),
            object: RefCell::default(),
        })
    }

    // For the endpoint.

    /// A packet has come, from this address and by this socket.
    pub(super) fn receive(&self, packet: Packet, from: SocketAddr, socket: usize) {
        let mut quic = self.quic.borrow_mut();
        quic.receive(packet);
        self.other_socket.set(socket);
        if quic.target() == from {
            self.socket.set(socket);
        }
    }

    pub(super) fn poll(&self) -> Option<Event> {
        self.quic.borrow_mut().poll()
    }

    pub(super) fn expire(&self, now: Instant) {
        self.quic.borrow_mut().expire(now);
    }

    pub(super) fn timeout(&self) -> Option<Instant> {
        self.quic.borrow_mut().timeout()
    }

    pub(super) fn transmit(&self, now: Instant, segments: usize, output: &mut Vec<u8>) -> Option<Transmit> {
        self.quic.borrow_mut().transmit(now, segments, output)
    }

    pub(super) fn settle(&self, endpoint: &mut quic::Endpoint) -> bool {
        endpoint.settle(self.handle, &mut self.quic.borrow_mut())
    }

    pub(super) fn handler(&self) -> Option<Rc<dyn Handler>> {
        self.handler.borrow().clone()
    }

    /// The connection is over: nothing keeps what programs have seen of it.
    pub(super) fn release_object(&self) {
        let object = self.object.take();
        drop(object);
    }

    /// Have the endpoint serve the connection.
    fn changed(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        if self.is_queued.get() || self.is_served.get() {
            return Ok(());
        }
        self.keeper.upgrade().map_or(Ok(()), |keeper| keeper.queue(py, self))
    }

    // Streams.

    /// Open a stream on which only we send; `None` if the peer allows no more: [`Handler::on_can_open`] follows.
    pub(crate) fn open(self: &Rc<Self>, py: Python<'_>) -> PyResult<Option<u64>> {
        let stream = self.quic.borrow_mut().open();
        self.changed(py).map(|()| stream)
    }

    /// Append up to `most` bytes of a stream to `chunks`, without copying them.
    pub(crate) fn read(
        self: &Rc<Self>,
        py: Python<'_>,
        stream: u64,
        most: usize,
        chunks: &mut Vec<Bytes>,
    ) -> PyResult<Read> {
        let read = self.quic.borrow_mut().read(stream, most, chunks);
        // The peer may be allowed to send more now.
        self.changed(py).map(|()| read)
    }

    /// The code with which the peer has reset a stream that is not read, if it has; told once.
    pub(crate) fn reset_of(&self, stream: u64) -> Option<u64> {
        self.quic.borrow_mut().reset_of(stream)
    }

    /// Read no more of a stream, and tell the peer why.
    pub(crate) fn stop(self: &Rc<Self>, py: Python<'_>, stream: u64, code: u64) -> PyResult<()> {
        self.quic.borrow_mut().stop(stream, code);
        self.changed(py)
    }

    /// Write `pieces` to a stream, without copying them; those that are taken become empty. They live until the peer
    /// has acknowledged them.
    pub(crate) fn write(self: &Rc<Self>, py: Python<'_>, stream: u64, pieces: &mut [Bytes]) -> PyResult<Written> {
        let written = self.quic.borrow_mut().write(stream, pieces);
        self.changed(py).map(|()| written)
    }

    /// Whether nothing can be written to any stream; `stream` is one of ours, on which the peer allows more.
    pub(crate) fn is_blocked(&self, stream: u64) -> bool {
        self.quic.borrow_mut().is_blocked(stream)
    }

    /// Nothing follows on a stream.
    pub(crate) fn finish(self: &Rc<Self>, py: Python<'_>, stream: u64) -> PyResult<()> {
        self.quic.borrow_mut().finish(stream);
        self.changed(py)
    }

    /// Cut a stream off: unsent data is lost.
    pub(crate) fn reset(self: &Rc<Self>, py: Python<'_>, stream: u64, code: u64) -> PyResult<()> {
        self.quic.borrow_mut().reset(stream, code);
        self.changed(py)
    }

    /// Send the data of streams with a higher priority first; 0 is the default.
    pub(crate) fn set_priority(&self, stream: u64, priority: i32) {
        self.quic.borrow_mut().set_priority(stream, priority);
    }

    // The connection as a whole.

    /// Send written data at once, as far as the peer may have more: [`close`](Self::close) drops it.
    pub(crate) fn send(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.keeper.upgrade().map_or(Ok(()), |keeper| keeper.send(py, self))
    }

    /// Close the connection by a code of the application's protocol. [`Handler::on_lost`] follows.
    pub(crate) fn close(self: &Rc<Self>, py: Python<'_>, code: u64, reason: &str) -> PyResult<()> {
        self.quic.borrow_mut().close(Instant::now(), code, reason);
        self.changed(py)
    }

    /// What both ends have agreed on, once that is known.
    pub(crate) fn handshake(&self) -> Option<Handshake> {
        self.quic.borrow().handshake()
    }

    /// Whether reading yields early data now, which an attacker may repeat.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.quic.borrow().is_handshaking()
    }

    /// Whether the end has begun: nothing that is written arrives.
    pub(crate) fn is_closing(&self) -> bool {
        self.quic.borrow().is_closing()
    }

    /// The peer's address: the last that it has shown to be its own.
    pub(crate) fn remote(&self) -> SocketAddr {
        self.quic.borrow().remote()
    }

    /// The address that datagrams go to, which may only be claimed.
    pub(super) fn target(&self) -> SocketAddr {
        self.quic.borrow().target()
    }

    /// The address that the peer has connected to.
    pub(crate) fn local(&self) -> SocketAddr {
        let ip = self.quic.borrow().local().unwrap_or(self.bound.ip());
        SocketAddr::new(ip, self.bound.port())
    }

    /// Whether the client's early data was accepted.
    pub(super) fn has_early_data(&self) -> bool {
        self.quic.borrow().has_early_data()
    }

    /// Bytes of packets that the peer has acknowledged, since it has another address if it does.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.quic.borrow().acknowledged()
    }

    /// Packets that were lost since the last call.
    pub(super) fn newly_lost(&self) -> usize {
        let lost = self.statistics().lost_packets;
        usize::try_from(lost - self.lost.replace(lost)).unwrap_or_default()
    }

    /// Numbers about it.
    pub(crate) fn statistics(&self) -> Statistics {
        self.quic.borrow().statistics()
    }

    /// The turns in which it is served.
    pub(crate) fn turns(&self) -> Option<Rc<dyn Turns>> {
        self.keeper.upgrade().map(|keeper| keeper.turns())
    }

    /// Whether packets wait that no turn has read: they may be the peer's. No deadline expires before they are.
    pub(crate) fn look(&self, py: Python<'_>) -> PyResult<Pending> {
        self.keeper.upgrade().map_or(Ok(Pending::Nothing), |keeper| keeper.look(py))
    }
}
