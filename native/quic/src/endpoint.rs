//! The endpoint: which connection a datagram is for, and which clients get one.
//!
//! ```text
//!                     ┌─ a limit is reached ──────────────────────▶ CONNECTION_REFUSED
//!  first packet ──────┼─ too many addresses are unvalidated ──────▶ Retry ──(the client comes again, with a token)──┐
//!      ▲              └─ else ──▶ WAITING ──accept──▶ handshake                                                     │
//!      └────────────────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! An endpoint that [drains](Drain) answers all first packets by a Retry whose connection id no slot owns, so that the
//! client comes to another worker, or refuses them.

use std::collections::{HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quinn_proto::{
    ConnectionHandle, DatagramEvent, EcnCodepoint, EndpointConfig, EndpointEvent, IdleTimeout, Incoming, ServerConfig,
    TransportConfig, ValidationTokenConfig, VarInt,
};

use crate::congestion::Congestion;
use crate::connection::Connection;
use crate::crypto::Crypto;
use crate::event::Lost;
use crate::identifiers::Identifiers;
use crate::keys;
use crate::settings::{Limits, Settings};
use crate::tokens::UsedTokens;
use crate::window::Windows;

/// For how long a token lets a client skip the validation of its address.
const TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// Bytes that clients may send in first packets and early data while their handshake waits: each, and all together.
const WAITING_BYTES: u64 = 16 * 1024;
const ALL_WAITING_BYTES: u64 = 4 * 1024 * 1024;

/// Where a datagram comes from, and how it came.
#[derive(Clone, Copy, Debug)]
pub struct Datagram {
    /// The sender.
    pub remote: SocketAddr,
    /// The address that it was sent to, if the socket has several.
    pub local: Option<IpAddr>,
    /// Its congestion mark.
    pub ecn: Option<Ecn>,
}

/// The congestion mark of a datagram (RFC 3168).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Ecn {
    /// ECT(1)
    Ect1 = 1,
    /// ECT(0)
    Ect0 = 2,
    /// Congestion was experienced.
    Ce = 3,
}

impl Ecn {
    /// The mark in the two lowest bits of `bits`.
    pub fn from_bits(bits: u8) -> Option<Self> {
        match bits & 3 {
            1 => Some(Self::Ect1),
            2 => Some(Self::Ect0),
            3 => Some(Self::Ce),
            _ => None,
        }
    }
}

/// Datagrams to be sent: the first `size` bytes of the buffer that was filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The receiver.
    pub remote: SocketAddr,
    /// The address to send from, if the socket has several.
    pub local: Option<IpAddr>,
    /// The congestion mark.
    pub ecn: Option<Ecn>,
    /// Bytes of all datagrams.
    pub size: usize,
    /// Bytes of each datagram but the last, if there are several (GSO).
    pub segment: Option<usize>,
}

impl From<quinn_proto::Transmit> for Transmit {
    fn from(transmit: quinn_proto::Transmit) -> Self {
        Self {
            remote: transmit.destination,
            local: transmit.src_ip,
            ecn: transmit.ecn.and_then(|ecn| Ecn::from_bits(ecn as u8)),
            size: transmit.size,
            segment: transmit.segment_size,
        }
    }
}

/// The place of a connection in its endpoint. Places are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(ConnectionHandle);

impl Handle {
    /// Small numbers, for a table of connections.
    pub fn index(self) -> usize {
        self.0.0
    }
}

/// A packet for one connection, which takes it by [`Connection::receive`].
pub struct Packet {
    pub(crate) event: quinn_proto::ConnectionEvent,
    pub(crate) remote: SocketAddr,
    /// Bytes of the datagram.
    pub(crate) size: usize,
    /// When it was received.
    pub(crate) at: Instant,
}

/// The result of receiving a datagram.
pub enum Received {
    /// It is for this connection.
    Packet(Handle, Packet),
    /// It has an answer, which is in the buffer.
    Reply(Transmit),
    /// A client wants to connect: [`Endpoint::accept`] begins its handshake.
    Waiting,
    /// It is malformed, or has no connection and no answer.
    Dropped,
}

/// The result of accepting a client.
pub enum Accepted {
    /// It has a connection, whose handshake begins.
    Connection(Handle, Box<Connection>),
    /// It has made an error, and the answer is in the buffer.
    Reply(Transmit, Lost),
    /// It has made an error that has no answer.
    Failed(Lost),
}

/// Whether new clients get a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// They do.
    Off,
    /// They are sent to another worker by a Retry, and those that come again are refused.
    Elsewhere,
    /// They get `CONNECTION_REFUSED`.
    Refuse,
}

/// Receives the datagrams of one or several sockets.
pub struct Endpoint {
    inner: quinn_proto::Endpoint,
    limits: Limits,
    protocols: Vec<Vec<u8>>,
    early_data: bool,
    /// The parts of the settings that TLS does not change.
    template: ServerConfig,
    tls: Arc<tls::Config>,
    waiting: VecDeque<Incoming>,
    /// Those of them whose address is not validated.
    waiting_unvalidated: usize,
    /// The connections whose address is not validated.
    unvalidated: HashSet<usize>,
    /// The ids that are made now are for no worker in particular.
    unmarked: Arc<AtomicBool>,
    windows: Rc<Windows>,
    drain: Drain,
}

impl Endpoint {
    /// An endpoint without connections.
    ///
    /// Errors: a sentence without a full stop that says what does not fit.
    pub fn new(settings: Settings) -> Result<Self, String> {
        let Settings { secret, slot, generation, tls, protocols, early_data, discovers_mtu, limits } = settings;
        let unmarked = Arc::new(AtomicBool::new(false));
        let mut config = EndpointConfig::new(keys::reset_key(&secret));
        let of_ids = unmarked.clone();
        config.cid_generator(move || Box::new(Identifiers::new(slot, generation, of_ids.clone())));
        // The clients of a killed worker get a reset at once. A reset is shorter than what it answers, and only ids
        // with a mark have one.
        config.min_reset_interval(Duration::ZERO);
        let crypto = Crypto::new(tls.clone(), &protocols, early_data)?;
        let mut template = ServerConfig::new(crypto, keys::token_key(&secret));
        let mut tokens = ValidationTokenConfig::default();
        tokens.sent(1).lifetime(TOKEN_LIFETIME).log(Arc::new(UsedTokens::default()));
        template
            .transport_config(Arc::new(transport(&limits)))
            .validation_token_config(tokens)
            .migration(true)
            .max_incoming(limits.waiting.saturating_add(1))
            .incoming_buffer_size(WAITING_BYTES)
            .incoming_buffer_size_total(ALL_WAITING_BYTES);
        let windows = Windows::new(&limits);
        let inner = quinn_proto::Endpoint::new(Arc::new(config), Some(Arc::new(template.clone())), discovers_mtu, None);
        Ok(Self {
            inner,
            limits,
            protocols,
            early_data,
            template,
            tls,
            waiting: VecDeque::new(),
            waiting_unvalidated: 0,
            unvalidated: HashSet::new(),
            unmarked,
            windows,
            drain: Drain::Off,
        })
    }

    /// The TLS settings of new connections.
    pub fn tls(&self) -> &Arc<tls::Config> {
        &self.tls
    }

    /// Use these settings for new connections; those that exist keep theirs.
    ///
    /// Errors: as [`new`](Self::new); then the old ones stay.
    pub fn set_tls(&mut self, tls: Arc<tls::Config>) -> Result<(), String> {
        self.template.crypto = Crypto::new(tls.clone(), &self.protocols, self.early_data)?;
        self.inner.set_server_config(Some(Arc::new(self.template.clone())));
        self.tls = tls;
        Ok(())
    }

    /// Whether new clients get a connection from now on. Handshakes that have begun go on.
    pub fn set_drain(&mut self, drain: Drain) {
        self.drain = drain;
    }

    /// Connections, with those in a handshake and those that are closing.
    pub fn connections(&self) -> usize {
        self.inner.open_connections()
    }

    /// Clients that wait for [`accept`](Self::accept).
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Handshakes with clients whose address is not validated, with those that wait.
    pub fn unvalidated(&self) -> usize {
        self.unvalidated.len() + self.waiting_unvalidated
    }

    /// Process one datagram: `bytes` is its content. An answer replaces the content of `reply`.
    ///
    /// Of several datagrams that came together (GRO) each is processed by itself.
    pub fn receive(&mut self, now: Instant, from: &Datagram, bytes: BytesMut, reply: &mut Vec<u8>) -> Received {
        reply.clear();
        let ecn = from.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8));
        let (remote, size) = (from.remote, bytes.len());
        match self.inner.handle(now, remote, from.local, ecn, bytes, reply) {
            None => Received::Dropped,
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                Received::Packet(Handle(handle), Packet { event, remote, size, at: now })
            }
            Some(DatagramEvent::Response(transmit)) => Received::Reply(transmit.into()),
            Some(DatagramEvent::NewConnection(incoming)) => self.judge(incoming, reply),
        }
    }

    /// Decide whether a client waits, retries or is refused.
    fn judge(&mut self, incoming: Incoming, reply: &mut Vec<u8>) -> Received {
        let is_full = self.connections() + self.waiting.len() >= self.limits.connections
            || self.waiting.len() >= self.limits.waiting;
        let is_validated = incoming.remote_address_validated();
        match self.drain {
            Drain::Elsewhere if incoming.may_retry() => return self.retry(incoming, true, reply),
            Drain::Elsewhere | Drain::Refuse => return Received::Reply(self.inner.refuse(incoming, reply).into()),
            Drain::Off if is_full => return Received::Reply(self.inner.refuse(incoming, reply).into()),
            Drain::Off => {}
        }
        if !is_validated && self.unvalidated() >= self.limits.unvalidated && incoming.may_retry() {
            return self.retry(incoming, false, reply);
        }
        self.waiting_unvalidated += usize::from(!is_validated);
        self.waiting.push_back(incoming);
        Received::Waiting
    }

    /// Have a client come again, here or elsewhere.
    fn retry(&mut self, incoming: Incoming, elsewhere: bool, reply: &mut Vec<u8>) -> Received {
        self.unmarked.store(elsewhere, Ordering::Relaxed);
        let retried = self.inner.retry(incoming, reply);
        self.unmarked.store(false, Ordering::Relaxed);
        match retried {
            Ok(transmit) => Received::Reply(transmit.into()),
            Err(error) => {
                self.inner.ignore(error.into_incoming());
                Received::Dropped
            }
        }
    }

    /// Begin the handshake of the client that has waited longest: the most expensive of all calls. An answer replaces
    /// the content of `reply`.
    pub fn accept(&mut self, now: Instant, reply: &mut Vec<u8>) -> Option<Accepted> {
        let incoming = self.waiting.pop_front()?;
        reply.clear();
        let is_validated = incoming.remote_address_validated();
        self.waiting_unvalidated -= usize::from(!is_validated);
        match self.inner.accept(incoming, now, reply, None) {
            Ok((handle, connection)) => {
                if !is_validated {
                    self.unvalidated.insert(handle.0);
                }
                self.windows.divide_by(self.inner.open_connections());
                let connection = Connection::new(connection, now, &self.limits, self.windows.clone(), !is_validated);
                Some(Accepted::Connection(Handle(handle), Box::new(connection)))
            }
            Err(error) => Some(match error.response {
                Some(transmit) => Accepted::Reply(transmit.into(), error.cause.into()),
                None => Accepted::Failed(error.cause.into()),
            }),
        }
    }

    /// Give up on clients that wait: they are not answered, and come again.
    pub fn forget_waiting(&mut self) {
        self.waiting_unvalidated = 0;
        for incoming in std::mem::take(&mut self.waiting) {
            self.inner.ignore(incoming);
        }
    }

    /// Do what the connection asks of its endpoint. Returns whether it is over: then drop it, and use its handle no
    /// more.
    pub fn settle(&mut self, handle: Handle, connection: &mut Connection) -> bool {
        if connection.is_abandoned() {
            self.forget(handle);
            return true;
        }
        if connection.is_validated() && !self.unvalidated.is_empty() {
            self.unvalidated.remove(&handle.index());
        }
        while let Some(event) = connection.inner.poll_endpoint_events() {
            if event.is_drained() {
                self.forget(handle);
                return true;
            }
            if let Some(answer) = self.inner.handle_event(handle.0, event) {
                connection.inner.handle_event(answer);
            }
        }
        false
    }

    /// A connection was dropped before [`settle`](Self::settle) has said so.
    pub fn forget(&mut self, handle: Handle) {
        self.unvalidated.remove(&handle.index());
        self.inner.handle_event(handle.0, EndpointEvent::drained());
        self.windows.divide_by(self.inner.open_connections());
    }
}

fn transport(limits: &Limits) -> TransportConfig {
    let mut transport = TransportConfig::default();
    let idle = u64::try_from(limits.idle.as_millis()).ok().and_then(|idle| VarInt::from_u64(idle).ok());
    transport
        .max_concurrent_bidi_streams(limits.bidirectional.into())
        .max_concurrent_uni_streams(limits.unidirectional.into())
        .stream_receive_window(limits.stream_window.into())
        // Both grow with the first data that is read.
        .receive_window(limits.receive_window.min(Limits::MIN_WINDOW).into())
        .send_window(limits.send_window.min(Limits::MIN_WINDOW).into())
        // A client that waits for a response is silent: whether it is there is asked in time.
        .keep_alive_interval(Some(limits.idle / 3))
        .max_idle_timeout(Some(IdleTimeout::from(idle.unwrap_or(VarInt::MAX))))
        // No datagrams (RFC 9221) yet.
        .datagram_receive_buffer_size(None)
        .congestion_controller_factory(Arc::new(Congestion::default()));
    transport
}
