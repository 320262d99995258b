//! Endpoints of ours and clients of quinn-proto in a network of memory, with a clock of its own, that loses and
//! reorders datagrams.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    clippy::needless_for_each,
    clippy::needless_pass_by_value,
    reason = "tests"
)]

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quic::{
    Accepted, Connection, Datagram, Ecn, Endpoint, Event, Handle, Limits, Lost, ReadEnd, Received, Settings, Written,
};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, ConnectionHandle, DatagramEvent, Dir, EcnCodepoint, EndpointConfig, StreamEvent, StreamId,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::version::TLS13;
use tls::{Certificate, TicketPolicy, Verify};

pub const SECRET: [u8; 32] = [7; 32];
pub const SERVER: &str = "192.0.2.1:443";
/// One way.
pub const LATENCY: Duration = Duration::from_millis(10);
/// The application of the client closes with it.
pub const CODE: u64 = 0x100;

pub fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// An authority and the certificate of a server.
pub struct Pki {
    authority: CertificateDer<'static>,
    chain: String,
    key: String,
}

impl Pki {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&key).unwrap().der().clone();
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        Self { authority, chain: own.pem(), key: key.serialize_pem() }
    }

    pub fn config(&self, tickets: TicketPolicy) -> Arc<tls::Config> {
        let settings = tls::Settings {
            certificates: vec![Certificate { host: None, chain: self.chain.as_bytes(), key: self.key.as_bytes() }],
            password: None,
            alpn: vec![b"h2".to_vec()],
            versions: (0x0303, 0x0304),
            suites: None,
            verify: Verify::None,
            authorities: None,
            revoked: None,
            serves_unverified: false,
            tickets,
        };
        Arc::new(tls::Config::new(settings).unwrap())
    }

    /// The settings of a client, which keeps its sessions and tokens in them.
    pub fn client(&self, protocol: &[u8]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]).unwrap();
        let mut tls = builder.with_root_certificates(roots).with_no_client_auth();
        tls.alpn_protocols = vec![protocol.to_vec()];
        tls.enable_early_data = true;
        ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()))
    }
}

pub fn settings(pki: &Pki) -> Settings {
    Settings {
        secret: SECRET,
        slot: 1,
        generation: 2,
        tls: pki.config(TicketPolicy::Own),
        protocols: vec![b"h3".to_vec()],
        early_data: false,
        discovers_mtu: true,
        limits: Limits::default(),
    }
}

/// A connection of a server, whose application echoes the data of bidirectional streams.
pub struct Served {
    pub handle: Handle,
    pub connection: Box<Connection>,
    pub events: Vec<Event>,
    /// The content of streams.
    pub received: BTreeMap<u64, Vec<u8>>,
    /// Data to be written to streams, and whether their end follows.
    pub unsent: BTreeMap<u64, (VecDeque<Bytes>, bool)>,
    /// Streams that were readable while the handshake was under way.
    pub early: Vec<u64>,
}

impl Served {
    fn act(&mut self, reads: bool) {
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Opened(stream) | Event::Readable(stream) if reads => self.read(stream),
                Event::Writable(stream) => self.write(stream),
                _ => {}
            }
            self.events.push(event);
        }
    }

    pub fn read(&mut self, stream: u64) {
        if self.connection.is_handshaking() {
            self.early.push(stream);
        }
        let mut chunks = vec![];
        let end = loop {
            let read = self.connection.read(stream, 100_000, &mut chunks);
            if read.end != ReadEnd::More {
                break read.end;
            }
        };
        let received = self.received.entry(stream).or_default();
        chunks.iter().for_each(|chunk| received.extend_from_slice(chunk));
        if quic::is_bidirectional(stream) {
            let (unsent, ends) = self.unsent.entry(stream).or_default();
            unsent.extend(chunks);
            *ends |= end == ReadEnd::Finished;
            self.write(stream);
        }
    }

    fn write(&mut self, stream: u64) {
        let Some((unsent, ends)) = self.unsent.get_mut(&stream) else { return };
        let written = self.connection.write(stream, unsent.make_contiguous());
        unsent.retain(|piece| !piece.is_empty());
        if written == Written::All && *ends {
            self.connection.finish(stream);
            self.unsent.remove(&stream);
        }
    }

    pub fn lost(&self) -> Option<&Lost> {
        self.events.iter().find_map(|event| if let Event::Lost(lost) = event { Some(lost) } else { None })
    }
}

pub struct Server {
    pub endpoint: Endpoint,
    pub served: BTreeMap<usize, Served>,
    /// Those that are over.
    pub over: Vec<Served>,
    pub reads: bool,
    pub accepts: bool,
}

/// A client's connection.
pub struct Used {
    pub connection: quinn_proto::Connection,
    pub from: SocketAddr,
    pub events: Vec<quinn_proto::Event>,
    pub received: BTreeMap<StreamId, (Vec<u8>, bool)>,
    unsent: BTreeMap<StreamId, VecDeque<Bytes>>,
}

impl Used {
    fn act(&mut self) {
        while let Some(event) = self.connection.poll() {
            match &event {
                quinn_proto::Event::Stream(StreamEvent::Readable { id }) => self.read(*id),
                quinn_proto::Event::Stream(StreamEvent::Writable { id }) => self.write(*id),
                _ => {}
            }
            self.events.push(event);
        }
    }

    fn read(&mut self, id: StreamId) {
        let mut stream = self.connection.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return };
        let (received, ended) = self.received.entry(id).or_default();
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => received.extend_from_slice(&chunk.bytes),
                Ok(None) => break *ended = true,
                Err(_) => break,
            }
        }
        let _ = chunks.finalize();
    }

    fn write(&mut self, id: StreamId) {
        let Some(unsent) = self.unsent.get_mut(&id) else { return };
        while !unsent.is_empty() {
            match self.connection.send_stream(id).write_chunks(unsent.make_contiguous()) {
                Ok(_) => unsent.retain(|piece| !piece.is_empty()),
                Err(_) => return,
            }
        }
        self.unsent.remove(&id);
        let _ = self.connection.send_stream(id).finish();
    }

    /// Send a request on a new stream.
    pub fn request(&mut self, data: &[u8]) -> StreamId {
        self.try_request(data).unwrap()
    }

    /// The same, unless there are too many.
    pub fn try_request(&mut self, data: &[u8]) -> Option<StreamId> {
        let id = self.connection.streams().open(Dir::Bi)?;
        self.unsent.insert(id, data.chunks(50_000).map(Bytes::copy_from_slice).collect());
        self.write(id);
        Some(id)
    }

    pub fn lost(&self) -> Option<&quinn_proto::ConnectionError> {
        self.events.iter().find_map(|event| match event {
            quinn_proto::Event::ConnectionLost { reason } => Some(reason),
            _ => None,
        })
    }

    pub fn is_answered(&self, id: StreamId) -> bool {
        self.received.get(&id).is_some_and(|(_, ended)| *ended)
    }
}

/// A datagram on its way.
#[derive(Clone)]
pub struct Flight {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub ecn: Option<Ecn>,
    pub bytes: Vec<u8>,
}

/// The fate of a datagram: copies of it arrive after these times.
pub type Fate = Box<dyn FnMut(&mut Flight, &mut Random) -> Vec<Duration>>;

/// Numbers from a seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn is_one_of(&mut self, number: u64) -> bool {
        self.next().is_multiple_of(number)
    }
}

pub struct World {
    pub begin: Instant,
    pub now: Instant,
    pub servers: Vec<Server>,
    pub client: quinn_proto::Endpoint,
    pub used: BTreeMap<usize, Used>,
    /// By time of arrival, and by number.
    flights: BTreeMap<(Instant, u64), Flight>,
    number: u64,
    pub fate: Fate,
    pub random: Random,
    /// The server that datagrams of clients go to.
    pub route: Box<dyn FnMut(&Flight) -> usize>,
    /// Bytes and datagrams sent by servers and clients.
    pub sent: [(usize, usize); 2],
}

impl World {
    pub fn new(settings: Vec<Settings>) -> Self {
        let now = Instant::now();
        let servers = settings.into_iter().map(|settings| Server {
            endpoint: Endpoint::new(settings).unwrap(),
            served: BTreeMap::new(),
            over: vec![],
            reads: true,
            accepts: true,
        });
        Self {
            begin: now,
            now,
            servers: servers.collect(),
            client: quinn_proto::Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None),
            used: BTreeMap::new(),
            flights: BTreeMap::new(),
            number: 0,
            fate: Box::new(|_, _| vec![LATENCY]),
            random: Random(0x9E37_79B9_7F4A_7C15),
            route: Box::new(|_| 0),
            sent: [(0, 0); 2],
        }
    }

    pub fn one(settings: Settings) -> Self {
        Self::new(vec![settings])
    }

    pub fn connect(&mut self, config: &ClientConfig, from: &str) -> usize {
        let (handle, connection) = self.client.connect(self.now, config.clone(), address(SERVER), "localhost").unwrap();
        let used = Used {
            connection,
            from: address(from),
            events: vec![],
            received: BTreeMap::new(),
            unsent: BTreeMap::new(),
        };
        self.used.insert(handle.0, used);
        handle.0
    }

    pub fn send(&mut self, mut flight: Flight) {
        let side = usize::from(flight.to == address(SERVER));
        self.sent[side].0 += flight.bytes.len();
        self.sent[side].1 += 1;
        for delay in (self.fate)(&mut flight, &mut self.random) {
            self.number += 1;
            self.flights.insert((self.now + delay, self.number), flight.clone());
        }
    }

    /// Have both ends say what they have to say.
    fn speak(&mut self) {
        let mut output = vec![];
        let mut flights = vec![];
        let now = self.now;
        for server in &mut self.servers {
            while server.accepts
                && let Some(accepted) = server.endpoint.accept(now, &mut output)
            {
                match accepted {
                    Accepted::Connection(handle, connection) => {
                        let served = Served {
                            handle,
                            connection,
                            events: vec![],
                            received: BTreeMap::new(),
                            unsent: BTreeMap::new(),
                            early: vec![],
                        };
                        server.served.insert(handle.index(), served);
                    }
                    Accepted::Reply(transmit, _) => cut(&mut flights, &transmit, &output),
                    Accepted::Failed(_) => {}
                }
            }
            let handles: Vec<_> = server.served.keys().copied().collect();
            for handle in handles {
                let served = server.served.get_mut(&handle).unwrap();
                if served.connection.timeout().is_some_and(|timeout| timeout <= now) {
                    served.connection.expire(now);
                }
                served.act(server.reads);
                while let Some(transmit) = served.connection.transmit(now, 10, &mut output) {
                    cut(&mut flights, &transmit, &output);
                }
                if server.endpoint.settle(served.handle, &mut served.connection) {
                    server.over.push(server.served.remove(&handle).unwrap());
                }
            }
        }
        let mut over = vec![];
        for (handle, used) in &mut self.used {
            if used.connection.poll_timeout().is_some_and(|timeout| timeout <= now) {
                used.connection.handle_timeout(now);
            }
            used.act();
            while let Some(event) = used.connection.poll_endpoint_events() {
                if event.is_drained() {
                    over.push(*handle);
                }
                if let Some(answer) = self.client.handle_event(ConnectionHandle(*handle), event) {
                    used.connection.handle_event(answer);
                }
            }
            output.clear();
            while let Some(transmit) = used.connection.poll_transmit(now, 10, &mut output) {
                let size = transmit.segment_size.unwrap_or(transmit.size);
                for bytes in output[..transmit.size].chunks(size) {
                    let ecn = transmit.ecn.and_then(|ecn| Ecn::from_bits(ecn as u8));
                    flights.push(Flight { from: used.from, to: transmit.destination, ecn, bytes: bytes.to_vec() });
                }
                output.clear();
            }
        }
        flights.into_iter().for_each(|flight| self.send(flight));
    }

    /// Deliver what arrives now.
    pub fn arrive(&mut self, flight: Flight) {
        let bytes = BytesMut::from(&flight.bytes[..]);
        let mut output = vec![];
        if flight.to == address(SERVER) {
            let index = (self.route)(&flight);
            let server = &mut self.servers[index];
            let local: IpAddr = flight.to.ip();
            let from = Datagram { remote: flight.from, local: Some(local), ecn: flight.ecn };
            match server.endpoint.receive(self.now, &from, bytes, &mut output) {
                Received::Packet(handle, packet) => {
                    // A worker that was killed takes none.
                    if let Some(served) = server.served.get_mut(&handle.index()) {
                        served.connection.receive(packet);
                    }
                }
                Received::Reply(transmit) => {
                    let mut flights = vec![];
                    cut(&mut flights, &transmit, &output);
                    flights.into_iter().for_each(|flight| self.send(flight));
                }
                Received::Waiting | Received::Dropped => {}
            }
            return;
        }
        let ecn = flight.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8));
        if let Some(DatagramEvent::ConnectionEvent(handle, event)) =
            self.client.handle(self.now, flight.from, None, ecn, bytes, &mut output)
        {
            // A client that was dropped has lost its state.
            if let Some(used) = self.used.get_mut(&handle.0) {
                used.connection.handle_event(event);
            }
        }
    }

    /// The next time at which anything happens.
    fn next(&mut self) -> Option<Instant> {
        let flight = self.flights.first_key_value().map(|((time, _), _)| *time);
        let served = self.servers.iter_mut().flat_map(|server| server.served.values_mut());
        let served = served.filter_map(|served| served.connection.timeout()).min();
        let used = self.used.values_mut().filter_map(|used| used.connection.poll_timeout()).min();
        [flight, served, used].into_iter().flatten().min()
    }

    /// Go on until `is_done`, for `most` at most.
    pub fn run(&mut self, most: Duration, mut is_done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + most;
        loop {
            self.speak();
            if is_done(self) {
                return true;
            }
            let Some(next) = self.next().filter(|next| *next <= end) else {
                self.now = end;
                return false;
            };
            self.now = self.now.max(next);
            while let Some(entry) = self.flights.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let flight = entry.remove();
                self.arrive(flight);
            }
        }
    }

    pub fn pass(&mut self, time: Duration) {
        self.run(time, |_| false);
    }

    /// Have the handshake completed on both sides.
    pub fn establish(&mut self, client: usize) {
        assert!(self.run(Duration::from_secs(5), |world| world.is_open(client)), "{:?}", self.used[&client].events);
        // Tickets and tokens.
        self.pass(LATENCY * 4);
    }

    pub fn is_open(&self, client: usize) -> bool {
        self.used[&client].events.iter().any(|event| matches!(event, quinn_proto::Event::Connected))
    }

    pub fn only(&mut self) -> &mut Served {
        let server = &mut self.servers[0];
        assert_eq!(server.served.len(), 1);
        server.served.values_mut().next().unwrap()
    }

    pub fn used(&mut self, client: usize) -> &mut Used {
        self.used.get_mut(&client).unwrap()
    }

    /// Send `data` and get it back.
    pub fn echo(&mut self, client: usize, data: &[u8], most: Duration) {
        if !self.is_open(client) {
            self.establish(client);
        }
        let id = self.used(client).request(data);
        let done = self.run(most, |world| world.used[&client].is_answered(id));
        assert!(done, "{:?}", self.used[&client].lost());
        assert!(self.used[&client].received[&id].0 == data);
    }
}

fn cut(flights: &mut Vec<Flight>, transmit: &quic::Transmit, output: &[u8]) {
    let from = SocketAddr::new(transmit.local.unwrap_or(address(SERVER).ip()), 443);
    for bytes in output[..transmit.size].chunks(transmit.segment.unwrap_or(transmit.size)) {
        flights.push(Flight { from, to: transmit.remote, ecn: transmit.ecn, bytes: bytes.to_vec() });
    }
}

pub fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}
