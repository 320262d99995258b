//! A listening endpoint: its sockets, its connections, and its part of each turn.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use quic::{Accepted, Drain, Event, Handle, Limits, Lost, Received, Transmit};

use super::connection::{Connection, Keeper, Phase};
use super::handler::Handler;
use super::opener::{Opener, Why};
use super::socket::{Buffers, Sent, Socket};
use super::timeouts::Timeouts;
use crate::base::panic::describe;
use crate::base::places;
use crate::base::turns::{HANDSHAKES, TURN, Turns};
use crate::conn::grace::Pending;
use crate::tcp::reactor::{Datagrams, Poller, Reactor};
use crate::tcp::socket::Keeper as _;
use crate::tcp::tls::config::{Current, TLSConfig};

/// New streams of one connection before others have their turn: as many as requests that begin at once.
const MAX_OPENED: usize = 32;
/// Calls of the kernel for one connection, of up to 40 KiB each, before others have their turn.
const MAX_SENDS: usize = 8;
/// Timeouts of clients whose packets may still be unread are put off so long.
const MAX_LAG: Duration = Duration::from_secs(1);

/// The number of the timer among the descriptors; sockets have lower ones.
const TIMER: u32 = u16::MAX as u32;

/// The settings of a listening endpoint, as they are given.
pub(crate) struct Settings {
    /// The descriptors of UDP sockets, which belong to the endpoint from then on.
    pub(crate) descriptors: Vec<i32>,
    /// Certificates and tickets; replaced ones are used for new connections.
    pub(crate) tls: Py<TLSConfig>,
    /// Known to all workers.
    pub(crate) secret: [u8; 32],
    /// The place of this worker.
    pub(crate) slot: u8,
    pub(crate) generation: u8,
    /// The protocols of ALPN.
    pub(crate) protocols: Vec<Vec<u8>>,
    pub(crate) early_data: bool,
    pub(crate) limits: Limits,
}

/// Whether it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// No new connections, but those in their handshake.
    Opening,
    /// No new connections.
    Draining,
    /// No sockets.
    Closed,
}

/// Receives the datagrams of its sockets for its connections.
pub(crate) struct Listening {
    own: Weak<Self>,
    reactor: Rc<Reactor>,
    token: Cell<u64>,
    state: Cell<State>,
    opener: Rc<dyn Opener>,
    tls: Py<TLSConfig>,
    /// The settings that new connections have; `None` if rustls is not to encrypt any.
    settings: RefCell<Option<Arc<Current>>>,
    /// The last settings that were looked at: those that do not fit are not used.
    seen: RefCell<Option<Arc<Current>>>,
    endpoint: RefCell<quic::Endpoint>,
    /// Connections in their handshake.
    shaking: Cell<usize>,
    sockets: RefCell<Vec<Rc<Socket>>>,
    /// By their handles.
    connections: RefCell<Vec<Option<Rc<Connection>>>>,
    /// Those that have changed, first come first served.
    queue: RefCell<VecDeque<Rc<Connection>>>,
    /// Those that wait until a socket takes more.
    blocked: RefCell<Vec<Rc<Connection>>>,
    timeouts: Timeouts,
    /// Taken out while they are used, so that a nested turn has its own.
    buffers: Cell<Option<Box<Buffers>>>,
    output: Cell<Vec<u8>>,
    /// The sockets that clients who wait have come by, with the endpoint's queue.
    arrivals: RefCell<VecDeque<usize>>,
    /// The timer has fired, and its connections were not served.
    has_fired: Cell<bool>,
}

impl Listening {
    /// Listen on the sockets of `settings`. Errors: `OSError` of a socket, `ValueError` if TLS does not fit.
    pub(crate) fn listen(poller: &Bound<'_, Poller>, opener: Rc<dyn Opener>, settings: Settings) -> PyResult<Rc<Self>> {
        let Settings { descriptors, tls, secret, slot, generation, protocols, early_data, limits } = settings;
        // All of them belong to us, also if one of them is no good.
        let sockets: Vec<_> = descriptors.into_iter().map(Socket::adopt).collect();
        let sockets = sockets.into_iter().map(|socket| socket.map(Rc::new)).collect::<io::Result<Vec<_>>>()?;
        let current = tls.get().current();
        let current = current.ok_or_else(|| PyValueError::new_err("QUIC needs TLS by rustls."))?;
        let endpoint = quic::Endpoint::new(quic::Settings {
            secret,
            slot,
            generation,
            tls: current.config.clone(),
            protocols,
            early_data,
            discovers_mtu: sockets.iter().all(|socket| socket.discovers_mtu()),
            limits,
        });
        let endpoint = endpoint.map_err(|error| PyValueError::new_err(error + "."))?;
        let reactor = poller.get().reactor()?.clone();
        let timeouts = Timeouts::new()?;
        Poller::attach(poller)?;
        let listening = Rc::new_cyclic(|own| Self {
            own: own.clone(),
            reactor: reactor.clone(),
            token: Cell::new(0),
            state: Cell::new(State::Open),
            opener,
            tls,
            settings: RefCell::new(Some(current.clone())),
            seen: RefCell::new(Some(current)),
            endpoint: RefCell::new(endpoint),
            shaking: Cell::new(0),
            sockets: RefCell::new(sockets),
            connections: RefCell::default(),
            queue: RefCell::default(),
            blocked: RefCell::default(),
            timeouts,
            buffers: Cell::default(),
            output: Cell::default(),
            arrivals: RefCell::default(),
            has_fired: Cell::new(false),
        });
        let token = reactor.add_datagrams(listening.clone());
        listening.token.set(token);
        match listening.watch() {
            Ok(()) => Ok(listening),
            Err(error) => {
                listening.leave(poller.py())?;
                Err(error.into())
            }
        }
    }

    fn watch(&self) -> io::Result<()> {
        let token = self.token.get();
        self.reactor.with_poll(|poll| {
            poll.watch_level(self.timeouts.descriptor(), token | u64::from(TIMER))?;
            let sockets = self.sockets.borrow();
            sockets.iter().zip(token..).try_for_each(|(socket, token)| poll.watch_level(socket.descriptor(), token))
        })
    }

    fn socket(&self, index: usize) -> Option<Rc<Socket>> {
        self.sockets.borrow().get(index).cloned()
    }

    fn connection(&self, index: usize) -> Option<Rc<Connection>> {
        self.connections.borrow().get(index).cloned().flatten()
    }

    /// Connections, with those in a handshake and those that are closing.
    pub(crate) fn connections(&self) -> usize {
        self.endpoint.borrow().connections()
    }

    // Packets.

    /// Read packets and serve their connections, up to the budget of a turn. Returns whether all were read.
    ///
    /// The connections of each batch are served before the next one is read: the state of many does not fit into the
    /// caches of a processor, and is changed in both steps.
    fn read(&self, py: Python<'_>, buffers: &mut Buffers) -> PyResult<bool> {
        let begin = Instant::now();
        let mut now = begin;
        let mut outcome = Ok(());
        loop {
            let mut has_more = false;
            for (index, socket) in self.sockets.borrow().clone().iter().enumerate() {
                if socket.readable.get() {
                    outcome = outcome.and(self.read_batch(py, buffers, index, socket, now));
                    has_more |= socket.readable.get();
                }
            }
            outcome = outcome.and(self.round(py, begin));
            now = Instant::now();
            if !has_more || outcome.is_err() || now - begin >= TURN {
                return outcome.map(|()| !has_more);
            }
        }
    }

    /// Read what one call of the kernel brings.
    fn read_batch(
        &self,
        py: Python<'_>,
        buffers: &mut Buffers,
        index: usize,
        socket: &Socket,
        now: Instant,
    ) -> PyResult<()> {
        let mut outcome = Ok(());
        let (mut datagrams, mut size) = (0, 0);
        socket.receive(buffers, |from, bytes, reply| {
            datagrams += 1;
            size += bytes.len();
            let received = self.endpoint.borrow_mut().receive(now, from, bytes, reply);
            match received {
                Received::Packet(handle, packet) => {
                    let Some(connection) = self.connection(handle.index()) else { return };
                    connection.receive(packet, from.remote, index);
                    let queued = self.queue(py, &connection);
                    outcome = std::mem::replace(&mut outcome, Ok(())).and(queued);
                }
                Received::Reply(transmit) => self.answer(socket, &transmit, reply),
                Received::Waiting => self.arrivals.borrow_mut().push_back(index),
                Received::Dropped => {}
            }
        });
        self.reactor.count_many(places::UDP_RECEIVED, datagrams);
        self.reactor.count_many(places::UDP_BYTES_RECEIVED, size);
        outcome
    }

    /// Answer a datagram that has no connection.
    fn answer(&self, socket: &Socket, transmit: &Transmit, reply: &[u8]) {
        self.reactor.count(place_of_reply(reply));
        self.count_sent(transmit);
        socket.answer(transmit, reply);
    }

    fn count_sent(&self, transmit: &Transmit) {
        let datagrams = transmit.segment.map_or(1, |segment| transmit.size.div_ceil(segment.max(1)));
        self.reactor.count_many(places::UDP_SENT, datagrams);
        self.reactor.count_many(places::UDP_BYTES_SENT, transmit.size);
    }

    /// Begin handshakes up to the budget of a turn.
    fn shake_hands(&self, py: Python<'_>, buffers: &mut Buffers) -> PyResult<()> {
        if self.arrivals.borrow().is_empty() {
            return Ok(());
        }
        let begin = Instant::now();
        let mut outcome = self.renew_tls(py);
        let mut now = begin;
        while now - begin < HANDSHAKES {
            let Some(index) = self.arrivals.borrow_mut().pop_front() else { break };
            self.reactor.count(places::HANDSHAKES_BEGUN);
            let accepted = self.endpoint.borrow_mut().accept(now, &mut buffers.reply);
            match accepted {
                Some(Accepted::Connection(handle, connection)) => {
                    outcome = outcome.and(self.insert(py, handle, connection, index));
                }
                Some(Accepted::Reply(transmit, lost)) => {
                    if let Some(socket) = self.socket(index) {
                        self.count_sent(&transmit);
                        socket.answer(&transmit, &buffers.reply);
                    }
                    self.count_failure(&lost);
                    outcome = outcome.and(self.opener.on_failed(py, transmit.remote, &lost));
                }
                Some(Accepted::Failed(lost)) => self.count_failure(&lost),
                None => {}
            }
            now = Instant::now();
        }
        outcome.and(self.tell_opened(py))
    }

    fn insert(&self, py: Python<'_>, handle: Handle, quic: Box<quic::Connection>, index: usize) -> PyResult<()> {
        let (Some(settings), Some(socket)) = (self.settings.borrow().clone(), self.socket(index)) else {
            self.endpoint.borrow_mut().forget(handle);
            return Ok(());
        };
        let keeper: Weak<dyn Keeper> = self.own.clone();
        let connection = Connection::new(keeper, handle, quic, settings, index, socket.address);
        let mut connections = self.connections.borrow_mut();
        if connections.len() <= handle.index() {
            connections.resize_with(handle.index() + 1, || None);
        }
        if let Some(place) = connections.get_mut(handle.index()) {
            *place = Some(connection.clone());
        }
        drop(connections);
        self.shaking.set(self.shaking.get() + 1);
        self.queue(py, &connection)
    }

    /// Put a connection into `phase`; the one it was in.
    fn enter(&self, connection: &Connection, phase: Phase) -> Phase {
        let before = connection.phase.replace(phase);
        if before == Phase::Shaking {
            self.shaking.set(self.shaking.get() - 1);
        }
        before
    }

    /// Use the present TLS settings for new connections.
    fn renew_tls(&self, py: Python<'_>) -> PyResult<()> {
        let current = self.tls.get().current();
        let is_same = match (&current, &*self.seen.borrow()) {
            (Some(new), Some(old)) => Arc::ptr_eq(new, old),
            (None, None) => true,
            _ => false,
        };
        if is_same {
            return Ok(());
        }
        let outcome = match &current {
            Some(new) => self.endpoint.borrow_mut().set_tls(new.config.clone()),
            None => Err("QUIC needs TLS by rustls".to_owned()),
        };
        let old = self.seen.replace(current.clone());
        drop(old);
        if let Err(error) = outcome {
            return self.reactor.log(py, "error", &format!("New TLS settings are not used for HTTP/3: {error}"));
        }
        let old = self.settings.replace(current);
        drop(old);
        Ok(())
    }

    // Connections.

    /// Serve the connections whose timeout has passed.
    fn expire(&self, py: Python<'_>, all_read: bool) -> PyResult<()> {
        let now = Instant::now();
        let mut outcome = Ok(());
        // A connection that is due again at once has its turn first.
        let latest = if all_read { now } else { now.checked_sub(MAX_LAG).unwrap_or(now) };
        while let Some((index, _)) = self.timeouts.pop(latest) {
            let Some(connection) = self.connection(index) else { continue };
            connection.due.set(None);
            connection.expire(now);
            outcome = outcome.and(self.queue(py, &connection));
        }
        outcome
    }

    /// Serve the connections in the queue, each once, as long as the turn that has begun at `begin` lasts.
    fn round(&self, py: Python<'_>, begin: Instant) -> PyResult<()> {
        let mut outcome = Ok(());
        let length = self.queue.borrow().len();
        for _ in 0..length {
            let Some(connection) = self.queue.borrow_mut().pop_front() else { break };
            connection.is_queued.set(false);
            let served = catch_unwind(AssertUnwindSafe(|| self.serve_one(py, &connection)));
            outcome = outcome.and(served.unwrap_or_else(|payload| self.contain(py, &connection, &describe(&*payload))));
            if begin.elapsed() >= TURN {
                break;
            }
        }
        outcome
    }

    /// Deliver the events of a connection, and send what it has to say.
    fn serve_one(&self, py: Python<'_>, connection: &Rc<Connection>) -> PyResult<()> {
        if connection.is_gone.get() {
            return Ok(());
        }
        self.reactor.rehearse("datagram");
        connection.is_served.set(true);
        let delivered = self.deliver(py, connection);
        connection.is_served.set(false);
        if let Err(error) = delivered {
            self.fail(py, connection, error)?;
        }
        self.transmit(py, connection)?;
        self.settle(py, connection)
    }

    fn deliver(&self, py: Python<'_>, connection: &Rc<Connection>) -> PyResult<()> {
        let mut delivered = false;
        let mut opened = 0;
        while opened < MAX_OPENED
            && let Some(event) = connection.poll()
        {
            delivered = true;
            opened += usize::from(matches!(event, Event::Opened(_)));
            self.hand(py, connection, event)?;
        }
        if opened == MAX_OPENED {
            self.queue(py, connection)?;
        }
        match connection.handler() {
            Some(handler) if delivered => handler.on_events_delivered(py),
            _ => Ok(()),
        }
    }

    /// Hand one event to the handler, which comes with the first of them.
    fn hand(&self, py: Python<'_>, connection: &Rc<Connection>, event: Event) -> PyResult<()> {
        if let Event::Lost(lost) = event {
            return self.lose(py, connection, &lost);
        }
        if event == Event::Established {
            let place = if connection.handshake().is_some_and(|handshake| handshake.resumed) {
                places::TLS13_RESUMED
            } else {
                places::TLS13_HANDSHAKES
            };
            self.reactor.count(place);
            self.reactor.count(places::QUIC_HANDSHAKES);
            if connection.has_early_data() {
                self.reactor.count(places::EARLY_ACCEPTED);
            }
        }
        let Some(handler) = self.handler_of(py, connection)? else { return Ok(()) };
        match event {
            Event::Established => handler.on_established(py),
            Event::Opened(stream) => handler.on_opened(py, stream),
            Event::Readable(stream) => handler.on_readable(py, stream),
            Event::Writable(stream) => handler.on_writable(py, stream),
            Event::Finished(stream) => handler.on_finished(py, stream),
            Event::Stopped { stream, code } => handler.on_stopped(py, stream, code),
            Event::CanOpen => handler.on_can_open(py),
            Event::Moved(_) => {
                self.reactor.count(places::QUIC_MOVED);
                handler.on_moved(py)
            }
            Event::Flooded => handler.on_flooded(py),
            Event::Lost(_) => Ok(()),
        }
    }

    fn handler_of(&self, py: Python<'_>, connection: &Rc<Connection>) -> PyResult<Option<Rc<dyn Handler>>> {
        if connection.phase.get() != Phase::Shaking {
            return Ok(connection.handler());
        }
        self.enter(connection, Phase::Served);
        let made = self.opener.open(py, connection)?;
        if made.is_none() {
            let (code, reason) = self.opener.code(Why::Refused);
            connection.close(py, code, reason)?;
        }
        connection.handler.replace(made.clone());
        self.tell_opened(py)?;
        Ok(made)
    }

    /// A connection is over for its handler.
    fn lose(&self, py: Python<'_>, connection: &Rc<Connection>, lost: &Lost) -> PyResult<()> {
        let phase = self.enter(connection, Phase::Lost);
        let handler = connection.handler.take();
        connection.release_object();
        let outcome = match handler {
            Some(handler) => handler.on_lost(py, lost),
            None if phase == Phase::Shaking => {
                self.count_failure(lost);
                self.opener.on_failed(py, connection.remote(), lost)
            }
            None => Ok(()),
        };
        outcome.and(self.tell_opened(py))
    }

    fn count_failure(&self, lost: &Lost) {
        self.reactor.count(place_of(lost));
        self.reactor.count(places::QUIC_HANDSHAKES_FAILED);
    }

    /// Send what a connection has to say, as far as the kernel takes it.
    fn transmit(&self, py: Python<'_>, connection: &Rc<Connection>) -> PyResult<()> {
        let mut output = self.output.take();
        let outcome = self.transmit_by(py, connection, &mut output);
        self.output.set(output);
        outcome
    }

    fn transmit_by(&self, py: Python<'_>, connection: &Rc<Connection>, output: &mut Vec<u8>) -> PyResult<()> {
        let now = Instant::now();
        let Some(socket) = self.socket(connection.socket.get()) else { return Ok(()) };
        for _ in 0..MAX_SENDS {
            if socket.is_blocked() {
                if !connection.is_blocked.replace(true) {
                    self.blocked.borrow_mut().push(connection.clone());
                }
                return Ok(());
            }
            let Some(transmit) = connection.transmit(now, socket.segments(), output) else { return Ok(()) };
            self.count_sent(&transmit);
            let other = connection.other_socket.get();
            let aside = if transmit.remote == connection.target() { None } else { self.socket(other) };
            let index = if aside.is_some() { other } else { connection.socket.get() };
            if aside.as_ref().unwrap_or(&socket).send(&transmit, output) == Sent::Blocked {
                self.await_writable(index, true)?;
            }
        }
        // Others first.
        self.queue(py, connection)
    }

    fn await_writable(&self, index: usize, wanted: bool) -> io::Result<()> {
        let Some(socket) = self.socket(index) else { return Ok(()) };
        let token = self.token.get() + index as u64;
        self.reactor.with_poll(|poll| poll.rewatch_level(socket.descriptor(), token, wanted))
    }

    /// Do what a connection asks of its endpoint, and remember when it is due.
    fn settle(&self, py: Python<'_>, connection: &Rc<Connection>) -> PyResult<()> {
        if self.reactor.counts() {
            self.reactor.count_many(places::QUIC_LOST, connection.newly_lost());
        }
        let is_over = connection.settle(&mut self.endpoint.borrow_mut());
        if is_over {
            return self.remove(py, connection);
        }
        self.timeouts.set(connection, connection.timeout());
        Ok(())
    }

    /// A connection is gone, and its handle may come to mean another one.
    fn remove(&self, py: Python<'_>, connection: &Rc<Connection>) -> PyResult<()> {
        connection.is_gone.set(true);
        self.timeouts.set(connection, None);
        let index = connection.handle.index();
        let mut connections = self.connections.borrow_mut();
        let gone = connections.get_mut(index).and_then(Option::take);
        while connections.last().is_some_and(Option::is_none) {
            connections.pop();
        }
        drop(connections);
        let mut outcome = Ok(());
        if connection.phase.get() != Phase::Lost {
            outcome = self.lose(py, connection, &Lost::ClosedHere);
        }
        drop(gone);
        outcome.and(self.tell_drained(py))
    }

    fn tell_opened(&self, py: Python<'_>) -> PyResult<()> {
        let is_opening = self.state.get() == State::Opening;
        if !is_opening || self.shaking.get() > 0 || self.endpoint.borrow().waiting() > 0 {
            return Ok(());
        }
        self.state.set(State::Draining);
        self.opener.on_opened(py)?;
        self.tell_drained(py)
    }

    fn tell_drained(&self, py: Python<'_>) -> PyResult<()> {
        let is_drained = self.state.get() == State::Draining && self.connections() == 0;
        if is_drained { self.opener.on_drained(py) } else { Ok(()) }
    }

    /// An exception got out of the handler: report it to the loop, and close the connection.
    #[cold]
    fn fail(&self, py: Python<'_>, connection: &Rc<Connection>, error: PyErr) -> PyResult<()> {
        let (code, reason) = self.opener.code(Why::Failed);
        connection.close(py, code, reason)?;
        if !error.is_instance_of::<PyException>(py) {
            // These end the loop.
            return Err(error);
        }
        let context = PyDict::new(py);
        context.set_item("message", "Fatal error: an event of an HTTP/3 connection failed.")?;
        context.set_item("exception", error.into_value(py))?;
        self.reactor.report(&context)
    }

    /// A panic only costs its connection. The client gets `CONNECTION_CLOSE`, or if that panics as well, a stateless
    /// reset.
    #[cold]
    fn contain(&self, py: Python<'_>, connection: &Rc<Connection>, text: &str) -> PyResult<()> {
        let line = format!("Native core panicked in datagram, closing the connection: {text}");
        connection.is_served.set(false);
        let logged = self.reactor.log(py, "error", &line);
        let closed = catch_unwind(AssertUnwindSafe(|| {
            let lost = self.lose(py, connection, &Lost::ClosedHere);
            let (code, reason) = self.opener.code(Why::Failed);
            lost.and(connection.close(py, code, reason)).and(self.transmit(py, connection))
        }));
        if let Ok(outcome) = closed {
            return logged.and(outcome);
        }
        if let Ok(mut endpoint) = self.endpoint.try_borrow_mut()
            && !connection.is_gone.get()
        {
            endpoint.forget(connection.handle);
        }
        logged.and(self.remove(py, connection))
    }

    // The end.

    /// Accept no new connections; those that exist go on. `Opener::on_opened` follows when none is in its handshake, and
    /// `Opener::on_drained` when none is left.
    pub(crate) fn drain(&self, py: Python<'_>, drain: Drain) -> PyResult<()> {
        if self.state.get() != State::Open {
            return Ok(());
        }
        self.state.set(State::Opening);
        self.endpoint.borrow_mut().set_drain(drain);
        self.tell_opened(py)
    }

    /// Close all connections, and the sockets. The last words of connections are sent once.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.state.replace(State::Closed) == State::Closed {
            return Ok(());
        }
        self.endpoint.borrow_mut().forget_waiting();
        self.arrivals.borrow_mut().clear();
        let (code, reason) = self.opener.code(Why::Shutdown);
        let connections: Vec<_> = self.connections.borrow().iter().flatten().cloned().collect();
        let mut outcome = Ok(());
        for connection in connections {
            outcome = outcome.and(connection.close(py, code, reason));
            let served =
                catch_unwind(AssertUnwindSafe(|| self.deliver(py, &connection).and(self.transmit(py, &connection))));
            outcome = outcome.and(served.unwrap_or_else(|payload| self.contain(py, &connection, &describe(&*payload))));
            self.timeouts.set(&connection, None);
        }
        outcome.and(self.leave(py))
    }

    /// The reactor has no more work with it.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        self.state.set(State::Closed);
        let sockets = self.sockets.take();
        for socket in &sockets {
            // It may be unwatched, if not all could be.
            let _ = self.reactor.with_poll(|poll| poll.unwatch(socket.descriptor()));
        }
        let _ = self.reactor.with_poll(|poll| poll.unwatch(self.timeouts.descriptor()));
        drop(sockets);
        let blocked = self.blocked.take();
        let queue = self.queue.take();
        let connections = self.connections.take();
        drop((blocked, queue, connections));
        self.reactor.remove_datagrams(py, self.token.get())
    }
}

impl Keeper for Listening {
    fn queue(&self, py: Python<'_>, connection: &Rc<Connection>) -> PyResult<()> {
        if connection.is_gone.get() || connection.is_queued.replace(true) || self.state.get() == State::Closed {
            return Ok(());
        }
        self.queue.borrow_mut().push_back(connection.clone());
        if self.reactor.is_running() { Ok(()) } else { self.reactor.ask_for_turn(py) }
    }

    fn send(&self, py: Python<'_>, connection: &Rc<Connection>) -> PyResult<()> {
        if connection.is_gone.get() { Ok(()) } else { self.transmit(py, connection) }
    }

    fn turns(&self) -> Rc<dyn Turns> {
        self.reactor.clone()
    }

    fn look(&self, py: Python<'_>) -> PyResult<Pending> {
        let sockets = self.sockets.borrow().clone();
        if sockets.iter().any(|socket| socket.readable.get()) {
            return Ok(Pending::Unserved);
        }
        if sockets.iter().any(|socket| socket.has_input()) {
            self.reactor.ask_for_turn(py)?;
            return Ok(Pending::Something);
        }
        Ok(Pending::Nothing)
    }
}

impl Datagrams for Listening {
    fn notice(&self, number: u32, readable: bool, writable: bool) {
        if number == TIMER {
            self.timeouts.acknowledge();
            self.has_fired.set(true);
        } else if let Some(socket) = self.socket(number as usize) {
            socket.readable.set(socket.readable.get() || readable);
            if writable && socket.is_blocked() && socket.resume() == Sent::Done {
                let _ = self.await_writable(number as usize, false);
                for connection in self.blocked.take() {
                    connection.is_blocked.set(false);
                    if !connection.is_gone.get() && !connection.is_queued.replace(true) {
                        self.queue.borrow_mut().push_back(connection);
                    }
                }
            }
        }
    }

    fn has_work(&self) -> bool {
        if self.state.get() == State::Closed {
            return false;
        }
        let sockets = self.sockets.borrow();
        sockets.iter().any(|socket| socket.readable.get())
            || self.has_fired.get()
            || !self.arrivals.borrow().is_empty()
            || !self.queue.borrow().is_empty()
    }

    fn serve(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        let mut buffers = self.buffers.take().unwrap_or_default();
        self.has_fired.set(false);
        let (all_read, read) = match self.read(py, &mut buffers) {
            Ok(all_read) => (all_read, Ok(())),
            Err(error) => (false, Err(error)),
        };
        let outcome = read.and(self.shake_hands(py, &mut buffers));
        let outcome = outcome.and(self.expire(py, all_read));
        let outcome = outcome.and(self.round(py, Instant::now()));
        self.buffers.set(Some(buffers));
        outcome.and(self.timeouts.arm().map_err(Into::into))
    }
}

/// Where the answer to a datagram without a connection is counted (RFC 9000 section 17).
fn place_of_reply(reply: &[u8]) -> usize {
    match reply {
        [first, ..] if first & 0x80 == 0 => places::QUIC_RESETS_SENT,
        [_, 0, 0, 0, 0, ..] => places::QUIC_VERSIONS_OFFERED,
        [first, ..] if first & 0x30 == 0x30 => places::QUIC_RETRIES,
        _ => places::QUIC_REFUSED,
    }
}

/// Where a failed handshake is counted.
fn place_of(lost: &Lost) -> usize {
    /// TLS alerts are codes from here on (RFC 9001 section 4.8).
    const CRYPTO: u64 = 0x100;
    const CERTIFICATE_ALERTS: [u64; 8] = [42, 43, 44, 45, 46, 48, 51, 116];
    const PARAMETER_ALERTS: [u64; 3] = [40, 70, 120];
    match lost {
        Lost::HandshakeTimeout | Lost::IdleTimeout => places::HANDSHAKE_TIMEOUTS,
        Lost::PeerError { code, .. } if (CRYPTO..2 * CRYPTO).contains(code) => places::HANDSHAKE_ALERTS,
        Lost::ProtocolError { code, .. } if (CRYPTO..2 * CRYPTO).contains(code) => {
            let alert = code - CRYPTO;
            if CERTIFICATE_ALERTS.contains(&alert) {
                places::HANDSHAKES_WITHOUT_CERTIFICATE
            } else if PARAMETER_ALERTS.contains(&alert) {
                places::HANDSHAKES_WITHOUT_PARAMETERS
            } else {
                places::OTHER_HANDSHAKE_FAILURES
            }
        }
        Lost::ClosedByPeer { .. } | Lost::PeerError { .. } | Lost::Reset | Lost::ClosedHere => {
            places::HANDSHAKES_CLOSED
        }
        Lost::ProtocolError { .. } => places::OTHER_HANDSHAKE_FAILURES,
    }
}
