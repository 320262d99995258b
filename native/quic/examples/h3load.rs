//! A client that has many requests of HTTP/3 in progress at once: how much CPU they cost a server is seen there.
//!
//! ```text
//! cargo run --release --package quic --example h3load -- 127.0.0.1:8443 CONNECTIONS STREAMS REQUESTS [PATH]
//!
//! REQUESTS         a number, or a duration as `5s`; 0 keeps the connections open and idle for STREAMS seconds
//! --method POST    instead of GET
//! --body FILE      sent with each request
//! --field N:V      a field of each request, as often as wanted
//! --expect N       a body of another length is an error
//! --newcomers N    after half a second N further clients connect, and send one request each
//! --json           one line for the program `bench`
//! ```
//!
//! A request counts when its stream ends with status 200. Times are from the opening of a stream to its end; with
//! newcomers they are theirs alone, from the first packet of their handshake.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::too_many_lines,
    clippy::unchecked_time_subtraction,
    reason = "an example"
)]

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig, Event, StreamEvent,
    StreamId, TransportConfig, VarInt,
};
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{DigitallySignedStruct, SignatureScheme};

/// How long the busy ones are alone before newcomers come.
const ALONE: Duration = Duration::from_millis(500);
/// How long responses are awaited behind the end.
const PATIENCE: Duration = Duration::from_secs(15);

/// Trusts everyone.
#[derive(Debug)]
struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::RSA_PSS_SHA256, SignatureScheme::ED25519]
    }
}

/// The response on a stream.
struct Answer {
    since: Instant,
    /// Of the request, as far as it was not written.
    unsent: Bytes,
    /// Bytes of a frame's head, or of the first section.
    held: Vec<u8>,
    /// Bytes of the present frame that follow, and whether they are of the body.
    left: u64,
    is_body: bool,
    is_good: Option<bool>,
    length: u64,
}

impl Answer {
    fn take(&mut self, mut input: &[u8]) {
        while !input.is_empty() {
            if self.left > 0 && (self.is_body || self.is_good.is_some()) {
                let taken = self.left.min(input.len() as u64);
                self.left -= taken;
                self.length += if self.is_body { taken } else { 0 };
                input = &input[taken as usize..];
            } else if self.left > 0 {
                // The prefix of the first section, and its first field: status 200 of the static table.
                self.held.push(input[0]);
                input = &input[1..];
                self.left -= 1;
                if self.held.len() == 3 || self.left == 0 {
                    self.is_good = Some(self.held == b"\0\0\xd9");
                    self.held.clear();
                }
            } else {
                self.held.push(input[0]);
                input = &input[1..];
                let Some((kind, behind)) = integer(&self.held, 0) else { continue };
                let Some((length, _)) = integer(&self.held, behind) else { continue };
                self.held.clear();
                (self.left, self.is_body) = (length, kind == 0);
            }
        }
    }
}

/// The integer at a place (RFC 9000 section 16), and the place behind it.
fn integer(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let first = *bytes.get(at)?;
    let behind = at + (1 << (first >> 6));
    let rest = bytes.get(at + 1..behind)?;
    Some((rest.iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte)), behind))
}

fn put_integer(out: &mut Vec<u8>, value: usize) {
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        _ => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
    }
}

/// A string of QPACK behind bits of another meaning, without Huffman's code.
fn put_string(out: &mut Vec<u8>, first: u8, bits: u32, text: &[u8]) {
    let most = (1_usize << bits) - 1;
    if text.len() < most {
        out.push(first | text.len() as u8);
    } else {
        out.push(first | most as u8);
        let mut rest = text.len() - most;
        while rest >= 0x80 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }
    out.extend_from_slice(text);
}

struct Peer {
    connection: Connection,
    answers: HashMap<StreamId, Answer>,
    begun: Instant,
    is_newcomer: bool,
    is_ready: bool,
    is_lost: bool,
}

struct Load {
    streams: usize,
    /// Requests to be begun.
    left: usize,
    /// None is begun from then on.
    end: Option<Instant>,
    done: usize,
    bytes: u64,
    errors: BTreeMap<&'static str, usize>,
    expected: Option<u64>,
    request: Bytes,
    newcomers: usize,
    /// Of newcomers that are over.
    came: usize,
    /// Microseconds, and how often.
    times: BTreeMap<u64, u64>,
}

impl Load {
    fn failed(&self) -> usize {
        self.errors.values().sum()
    }

    fn fail(&mut self, why: &'static str, count: usize) {
        if count > 0 {
            *self.errors.entry(why).or_default() += count;
        }
    }

    fn act(&mut self, peer: &mut Peer, now: Instant) {
        while let Some(event) = peer.connection.poll() {
            match event {
                Event::Connected => {
                    let control = peer.connection.streams().open(Dir::Uni).unwrap();
                    peer.connection.send_stream(control).write(b"\0\x04\0").unwrap();
                    peer.is_ready = true;
                }
                Event::ConnectionLost { reason } => {
                    eprintln!("lost: {reason}");
                    self.fail("lost connections", peer.answers.len().max(1));
                    self.came += usize::from(peer.is_newcomer);
                    peer.answers.clear();
                    peer.is_lost = true;
                }
                Event::Stream(StreamEvent::Readable { id }) => self.read(peer, id, now),
                Event::Stream(StreamEvent::Writable { id }) => Self::write(peer, id),
                Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                    while let Some(id) = peer.connection.streams().accept(Dir::Uni) {
                        self.read(peer, id, now);
                    }
                }
                _ => {}
            }
        }
        let streams = if peer.is_newcomer { 1 } else { self.streams };
        while peer.is_ready && !peer.is_lost && peer.answers.len() < streams {
            let is_over = self.end.is_some_and(|end| now >= end);
            if !peer.is_newcomer && (self.left == 0 || is_over) {
                break;
            }
            let Some(stream) = peer.connection.streams().open(Dir::Bi) else { break };
            let since = if peer.is_newcomer { peer.begun } else { now };
            let unsent = self.request.clone();
            let answer = Answer { since, unsent, held: Vec::new(), left: 0, is_body: false, is_good: None, length: 0 };
            peer.answers.insert(stream, answer);
            self.left -= usize::from(!peer.is_newcomer);
            Self::write(peer, stream);
        }
    }

    fn write(peer: &mut Peer, id: StreamId) {
        let Some(answer) = peer.answers.get_mut(&id) else { return };
        let mut sent = peer.connection.send_stream(id);
        let mut pieces = [std::mem::take(&mut answer.unsent)];
        while !pieces[0].is_empty() && sent.write_chunks(&mut pieces).is_ok() {}
        let [rest] = pieces;
        if rest.is_empty() {
            let _ = sent.finish();
        }
        answer.unsent = rest;
    }

    fn read(&mut self, peer: &mut Peer, id: StreamId, now: Instant) {
        let mut stream = peer.connection.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return };
        // None on the server's own streams.
        let mut answer = peer.answers.get_mut(&id);
        let is_whole = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    self.bytes += chunk.bytes.len() as u64;
                    if let Some(answer) = &mut answer {
                        answer.take(&chunk.bytes);
                    }
                }
                Ok(None) => break Some(true),
                Err(quinn_proto::ReadError::Blocked) => break None,
                Err(quinn_proto::ReadError::Reset(_)) => break Some(false),
            }
        };
        let _ = chunks.finalize();
        let Some(is_whole) = is_whole else { return };
        let Some(answer) = peer.answers.remove(&id) else { return };
        if !is_whole {
            self.fail("reset", 1);
        } else if answer.is_good != Some(true) {
            self.fail("status", 1);
        } else if self.expected.is_some_and(|expected| expected != answer.length) {
            self.fail("length", 1);
        } else {
            self.done += 1;
            if peer.is_newcomer || self.newcomers == 0 {
                *self.times.entry((now - answer.since).as_micros() as u64).or_default() += 1;
            }
        }
        if peer.is_newcomer {
            self.came += 1;
            peer.connection.close(now, VarInt::from_u32(0x100), Bytes::new());
            peer.is_lost = true;
        }
    }
}

/// The values behind names, and the positional arguments.
struct Options {
    named: Vec<(String, String)>,
    others: Vec<String>,
}

impl Options {
    fn read() -> Self {
        let mut options = Self { named: Vec::new(), others: Vec::new() };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            if argument == "--json" {
                options.named.push((argument, String::new()));
            } else if argument.starts_with("--") {
                options.named.push((argument, arguments.next().unwrap()));
            } else {
                options.others.push(argument);
            }
        }
        options
    }

    fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.named.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn one(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.one(name).map(|value| value.parse().unwrap())
    }
}

/// The frames of a request: fields by the static table where it has them.
fn request(options: &Options, path: &str) -> Bytes {
    let mut section = b"\0\0\xd7\x50\x09localhost".to_vec();
    match options.one("--method") {
        None | Some("GET") => section.push(0xd1),
        Some("POST") => section.push(0xd4),
        Some(method) => {
            section.extend_from_slice(b"\x5f\0");
            put_string(&mut section, 0, 7, method.as_bytes());
        }
    }
    section.push(0x51);
    put_string(&mut section, 0, 7, path.as_bytes());
    for field in options.all("--field") {
        let (name, value) = field.split_once(':').unwrap();
        put_string(&mut section, 0x20, 3, name.to_ascii_lowercase().as_bytes());
        put_string(&mut section, 0, 7, value.trim().as_bytes());
    }
    let mut request = vec![1];
    put_integer(&mut request, section.len());
    request.extend_from_slice(&section);
    if let Some(file) = options.one("--body") {
        let body = std::fs::read(file).unwrap();
        request.push(0);
        put_integer(&mut request, body.len());
        request.extend_from_slice(&body);
    }
    Bytes::from(request)
}

fn main() {
    let options = Options::read();
    let arguments = &options.others;
    let to: SocketAddr = arguments[0].parse().unwrap();
    let [connections, streams] = [1, 2].map(|index: usize| arguments[index].parse::<usize>().unwrap());
    let seconds = arguments[3].strip_suffix('s').map(|seconds| Duration::from_secs_f64(seconds.parse().unwrap()));
    let requests = if seconds.is_some() { usize::MAX } else { arguments[3].parse().unwrap() };
    let path = arguments.get(4).map_or("/", String::as_str);

    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]).unwrap();
    let mut tls = builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone)).with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    // As servers see clients that come for the first time.
    tls.resumption = rustls::client::Resumption::disabled();
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(Some(VarInt::from_u32(600_000).into()));
    config.transport_config(Arc::new(transport));

    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let state = UdpSocketState::new(UdpSockRef::from(&socket)).unwrap();
    let _ = state.set_recv_buffer_size(UdpSockRef::from(&socket), 4 << 20);
    let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None);
    let mut peers: HashMap<ConnectionHandle, Peer> = HashMap::new();
    let begin = Instant::now();
    let mut load = Load {
        streams,
        left: requests,
        end: seconds.map(|seconds| begin + seconds),
        done: 0,
        bytes: 0,
        errors: BTreeMap::new(),
        expected: options.number("--expect").map(|length| length as u64),
        request: request(&options, path),
        newcomers: options.number("--newcomers").unwrap_or_default(),
        came: 0,
        times: BTreeMap::new(),
    };
    let mut room = vec![0; 8 * 65536];
    let mut metas = [RecvMeta::default(); 8];
    let mut output = Vec::new();
    let mut dirty: Vec<ConnectionHandle> = Vec::new();
    let (mut opened, mut newcomers) = (0, 0);
    let mut looked = begin;
    loop {
        let now = Instant::now();
        // A few handshakes at a time.
        let shaking = peers.values().filter(|peer| !peer.is_ready && !peer.is_lost && !peer.is_newcomer).count();
        let mut to_open = if shaking < 16 { (16 - shaking).min(connections - opened) } else { 0 };
        opened += to_open;
        let mut to_come = 0;
        if now - begin > ALONE && newcomers < load.newcomers {
            // The busy ones must not wait for the client.
            to_come = (load.newcomers - newcomers).min(8);
            newcomers += to_come;
            to_open += to_come;
        }
        for index in 0..to_open {
            let (handle, connection) = endpoint.connect(now, config.clone(), to, "localhost").unwrap();
            let is_newcomer = index >= to_open - to_come;
            let answers = HashMap::new();
            let begun = Instant::now();
            peers.insert(handle, Peer { connection, answers, begun, is_newcomer, is_ready: false, is_lost: false });
            dirty.push(handle);
        }
        if now - looked > Duration::from_millis(2) {
            looked = now;
            for (handle, peer) in &mut peers {
                if peer.connection.poll_timeout().is_some_and(|timeout| timeout <= now) {
                    peer.connection.handle_timeout(now);
                    dirty.push(*handle);
                }
            }
        }
        for handle in dirty.drain(..) {
            let Some(peer) = peers.get_mut(&handle) else { continue };
            load.act(peer, now);
            while let Some(event) = peer.connection.poll_endpoint_events() {
                if let Some(event) = endpoint.handle_event(handle, event) {
                    peer.connection.handle_event(event);
                }
            }
            output.clear();
            while let Some(transmit) = peer.connection.poll_transmit(now, 10, &mut output) {
                let datagrams = quinn_udp::Transmit {
                    destination: transmit.destination,
                    ecn: transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
                    contents: &output[..transmit.size],
                    segment_size: transmit.segment_size,
                    src_ip: None,
                };
                let _ = state.try_send(UdpSockRef::from(&socket), &datagrams);
                output.clear();
            }
        }
        let are_waiting = peers.values().any(|peer| !peer.answers.is_empty()) || load.came < load.newcomers;
        let is_over = match load.end {
            Some(end) => now >= end && (!are_waiting || now >= end + PATIENCE),
            None if requests == 0 => now - begin > Duration::from_secs(streams as u64),
            None => load.done + load.failed() >= requests,
        };
        if is_over {
            break;
        }
        let wait = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        let _ = poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&wait));
        let now = Instant::now();
        loop {
            let mut rooms = room.chunks_exact_mut(65536);
            let mut slices = [(); 8].map(|()| IoSliceMut::new(rooms.next().unwrap()));
            let Ok(count) = state.recv(UdpSockRef::from(&socket), &mut slices, &mut metas) else { break };
            for (meta, room) in metas.iter().zip(room.chunks_exact(65536)).take(count) {
                for datagram in room[..meta.len].chunks(meta.stride) {
                    let ecn = meta.ecn.and_then(|ecn| quinn_proto::EcnCodepoint::from_bits(ecn as u8));
                    let mut reply = Vec::new();
                    let bytes = BytesMut::from(datagram);
                    let event = endpoint.handle(now, meta.addr, None, ecn, bytes, &mut reply);
                    if let Some(DatagramEvent::ConnectionEvent(handle, event)) = event
                        && let Some(peer) = peers.get_mut(&handle)
                    {
                        peer.connection.handle_event(event);
                        if dirty.last() != Some(&handle) {
                            dirty.push(handle);
                        }
                    }
                }
            }
        }
    }
    let took = begin.elapsed().as_secs_f64();
    let unanswered: usize = peers.values().map(|peer| peer.answers.len()).sum();
    load.fail("unanswered", unanswered);
    if load.newcomers > 0 {
        let gone = load.newcomers - load.came;
        load.fail("newcomers without a connection", gone.saturating_sub(unanswered));
    }
    let failed = load.failed();
    let Load { done, bytes, errors, times, .. } = load;
    if options.one("--json").is_some() {
        let mut line = format!("{{\"requests\": {done}, \"seconds\": {took}, \"received\": {bytes}, \"errors\": {{");
        let errors: Vec<_> = errors.iter().map(|(kind, count)| format!("\"{kind}\": {count}")).collect();
        let times: Vec<_> = times.iter().map(|(micros, count)| format!("[{micros}, {count}]")).collect();
        let _ = write!(line, "{}}}, \"times\": [{}]}}", errors.join(", "), times.join(", "));
        println!("{line}");
        return;
    }
    let ready = peers.values().filter(|peer| peer.is_ready && !peer.is_lost).count();
    let counted: u64 = times.values().sum();
    let at = |part: u64| {
        let mut left = counted * part / 100;
        let found = times.iter().find(|(_, count)| {
            let is_here = left < **count;
            left = left.saturating_sub(**count);
            is_here
        });
        found.or(times.last_key_value()).map_or(0, |(micros, _)| *micros)
    };
    println!("{errors:?}, times in us: median {}, 90 % {}, 99 % {}", at(50), at(90), at(99));
    println!(
        "{done} responses, {failed} failed, {bytes} bytes, {:.0} per second, {ready} connections",
        done as f64 / took
    );
}
