//! What connections cost a server, over real sockets of the loopback interface. The client is a process of its own.
//!
//! ```text
//! cargo run --release --package quic --example loopback -- MODE NUMBER
//!
//! get 1073741824     1 GiB to the client: CPU of the server
//! put 1073741824     1 GiB from the client
//! handshakes 2000    CPU of a handshake
//! idle 2000          memory of an idle connection
//! pings 200000       CPU of a packet without effect
//! moves 20000        CPU of a packet from yet another address
//! strangers 20000    CPU of a first packet whose client is gone
//! resets 200000      CPU of a packet for a connection of another worker
//! garbage 200000     CPU of a datagram that is not QUIC
//! ```
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::format_collect,
    clippy::unchecked_time_subtraction,
    reason = "an example"
)]

use std::collections::HashMap;
use std::io::{IoSliceMut, Read as _, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quic::{
    Accepted, Connection, Datagram, Ecn, Endpoint, Event, Handle, Limits, ReadEnd, Received, Settings, Written,
};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{ClientConfig, DatagramEvent, Dir, EcnCodepoint, EndpointConfig, StreamId, TransportConfig, VarInt};
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use rcgen::{CertificateParams, KeyPair};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, Timespec, clock_gettime};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::version::TLS13;

const MESSAGES: usize = 8;
const PIECE: usize = 64 * 1024;

/// A socket, and room for datagrams.
struct Udp {
    socket: UdpSocket,
    state: UdpSocketState,
    room: Vec<u8>,
    metas: [RecvMeta; MESSAGES],
    /// Calls of the kernel, and datagrams.
    received: (usize, usize),
    sent: (usize, usize),
}

impl Udp {
    fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let state = UdpSocketState::new(UdpSockRef::from(&socket)).unwrap();
        let _ = state.set_recv_buffer_size(UdpSockRef::from(&socket), 2 << 20);
        let _ = state.set_send_buffer_size(UdpSockRef::from(&socket), 2 << 20);
        let room = vec![0; MESSAGES * PIECE];
        Self { socket, state, room, metas: [RecvMeta::default(); MESSAGES], received: (0, 0), sent: (0, 0) }
    }

    fn wait(&self, until: Option<Instant>) {
        let left = until.map_or(Duration::from_millis(100), |until| until.saturating_duration_since(Instant::now()));
        let left = Timespec::try_from(left.min(Duration::from_millis(100))).unwrap();
        let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&left));
    }

    fn receive(&mut self, mut take: impl FnMut(&RecvMeta, BytesMut)) -> bool {
        let mut rooms = self.room.chunks_exact_mut(PIECE);
        let mut slices = [(); MESSAGES].map(|()| IoSliceMut::new(rooms.next().unwrap()));
        let Ok(count) = self.state.recv(UdpSockRef::from(&self.socket), &mut slices, &mut self.metas) else {
            return false;
        };
        self.received.0 += 1;
        for (meta, room) in self.metas.iter().zip(self.room.chunks_exact(PIECE)).take(count) {
            for datagram in room[..meta.len].chunks(meta.stride) {
                self.received.1 += 1;
                take(meta, BytesMut::from(datagram));
            }
        }
        true
    }

    fn send(&mut self, to: SocketAddr, ecn: Option<u8>, contents: &[u8], segment: Option<usize>) {
        let ecn = ecn.and_then(quinn_udp::EcnCodepoint::from_bits);
        let transmit = quinn_udp::Transmit { destination: to, ecn, contents, segment_size: segment, src_ip: None };
        while let Err(error) = self.state.try_send(UdpSockRef::from(&self.socket), &transmit) {
            assert!(error.kind() == std::io::ErrorKind::WouldBlock, "{error}");
            std::thread::yield_now();
        }
        self.sent.0 += 1;
        self.sent.1 += segment.map_or(1, |segment| contents.len().div_ceil(segment));
    }
}

/// The server's application: a request is the number of bytes to send back, and what follows is counted.
#[derive(Default)]
struct Served {
    wanted: HashMap<u64, u64>,
}

impl Served {
    fn act(&mut self, connection: &mut Connection, counted: &mut u64, chunks: &mut Vec<Bytes>, zeros: &Bytes) {
        while let Some(event) = connection.poll() {
            match event {
                Event::Opened(stream) | Event::Readable(stream) => {
                    let read = connection.read(stream, usize::MAX, chunks);
                    for chunk in chunks.drain(..) {
                        let skip = if self.wanted.contains_key(&stream) { 0 } else { 8 };
                        if skip > 0 {
                            self.wanted.insert(stream, u64::from_be_bytes(chunk[..8].try_into().unwrap()));
                        }
                        *counted += (chunk.len() - skip) as u64;
                    }
                    if read.end == ReadEnd::Finished {
                        self.write(connection, stream, zeros);
                    }
                }
                Event::Writable(stream) => self.write(connection, stream, zeros),
                _ => {}
            }
        }
    }

    fn write(&mut self, connection: &mut Connection, stream: u64, zeros: &Bytes) {
        let Some(left) = self.wanted.get_mut(&stream) else { return };
        while *left > 0 {
            let mut piece = [zeros.slice(..zeros.len().min(*left as usize))];
            let length = piece[0].len();
            let written = connection.write(stream, &mut piece);
            *left -= (length - piece[0].len()) as u64;
            if written != Written::All {
                return;
            }
        }
        connection.finish(stream);
    }
}

fn cpu() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap()
}

/// Bytes of memory that this process has.
fn memory() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<f64>().unwrap() * 4096.0
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (mode, number) = (arguments[1].as_str(), arguments[2].parse::<u64>().unwrap());
    match arguments.get(3) {
        Some(port) => use_server(mode, number, port.parse().unwrap()),
        None => serve(mode, number),
    }
}

fn serve(mode: &str, number: u64) {
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let (pem, key) = (own.pem(), key.serialize_pem());
    let config = tls::Config::new(tls::Settings {
        certificates: vec![tls::Certificate { host: None, chain: pem.as_bytes(), key: key.as_bytes() }],
        password: None,
        alpn: vec![],
        versions: (0x0304, 0x0304),
        suites: None,
        verify: tls::Verify::None,
        authorities: None,
        revoked: None,
        serves_unverified: false,
        tickets: tls::TicketPolicy::Own,
    });
    let mut endpoint = Endpoint::new(Settings {
        secret: [1; 32],
        slot: 0,
        generation: 0,
        tls: Arc::new(config.unwrap()),
        protocols: vec![b"h3".to_vec()],
        early_data: false,
        discovers_mtu: true,
        limits: Limits { idle: Duration::from_secs(300), ..Limits::default() },
    })
    .unwrap();
    let mut udp = Udp::new();
    udp.socket.set_nonblocking(true).unwrap();
    let port = udp.socket.local_addr().unwrap().port();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([mode, &number.to_string(), &port.to_string()])
        .env("CERTIFICATE", own.der().iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (begin, memory_before, cpu_before) = (Instant::now(), memory(), cpu());
    let counted = listen(&mut endpoint, &mut udp, &mut child);
    let (time, used) = (begin.elapsed(), cpu() - cpu_before);
    let each = used.as_secs_f64() * 1e6 / number as f64;
    println!("{mode} {number}: server {used:?} of CPU in {time:?}, {each:.3} us each, {counted} bytes came");
    println!("received {:?}, sent {:?} (calls, datagrams)", udp.received, udp.sent);
    if mode == "idle" {
        let each = (memory() - memory_before) / 1024.0 / number as f64;
        println!("{} connections: {each:.1} KiB each", endpoint.connections());
        println!("of these {} bytes are one structure", size_of::<Connection>());
    }
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// Serve until the client says that it is done.
fn listen(endpoint: &mut Endpoint, udp: &mut Udp, child: &mut Child) -> u64 {
    let done = child.stdout.take().unwrap();
    rustix::io::ioctl_fionbio(&done, true).unwrap();
    let mut done = done;
    let zeros = Bytes::from(vec![0; 256 * 1024]);
    let mut connections: HashMap<usize, (Handle, Box<Connection>, Served)> = HashMap::new();
    let (mut output, mut reply, mut chunks, mut counted) = (vec![], vec![], vec![], 0);
    let mut due: Option<Instant> = None;
    loop {
        udp.wait(due);
        let mut touched = vec![];
        let mut replies = vec![];
        for _ in 0..4 {
            let now = Instant::now();
            let more = udp.receive(|meta, bytes| {
                let ecn = meta.ecn.and_then(|ecn| Ecn::from_bits(ecn as u8));
                let from = Datagram { remote: meta.addr, local: meta.dst_ip, ecn };
                match endpoint.receive(now, &from, bytes, &mut reply) {
                    Received::Packet(handle, packet) => {
                        if let Some((_, connection, _)) = connections.get_mut(&handle.index()) {
                            connection.receive(packet);
                            touched.push(handle.index());
                        }
                    }
                    Received::Reply(transmit) => replies.push((transmit, reply.clone())),
                    Received::Waiting | Received::Dropped => {}
                }
            });
            if !more {
                break;
            }
        }
        let now = Instant::now();
        for (transmit, bytes) in replies {
            udp.send(transmit.remote, None, &bytes[..transmit.size], None);
        }
        while let Some(accepted) = endpoint.accept(now, &mut reply) {
            if let Accepted::Connection(handle, connection) = accepted {
                connections.insert(handle.index(), (handle, connection, Served::default()));
                touched.push(handle.index());
            }
        }
        if due.is_some_and(|due| due <= now) {
            due = None;
            for (index, (_, connection, _)) in &mut connections {
                if let Some(timeout) = connection.timeout() {
                    if timeout <= now {
                        connection.expire(now);
                        touched.push(*index);
                    } else {
                        due = Some(due.map_or(timeout, |due| due.min(timeout)));
                    }
                }
            }
        }
        touched.sort_unstable();
        touched.dedup();
        for index in touched {
            let Some((handle, connection, served)) = connections.get_mut(&index) else { continue };
            served.act(connection, &mut counted, &mut chunks, &zeros);
            while let Some(transmit) = connection.transmit(now, udp.state.max_gso_segments().min(32), &mut output) {
                let ecn = transmit.ecn.map(|ecn| ecn as u8);
                udp.send(transmit.remote, ecn, &output[..transmit.size], transmit.segment);
                served.act(connection, &mut counted, &mut chunks, &zeros);
            }
            if endpoint.settle(*handle, connection) {
                connections.remove(&index);
            } else if let Some(timeout) = connection.timeout() {
                due = Some(due.map_or(timeout, |due| due.min(timeout)));
            }
        }
        if done.read(&mut [0]).is_ok() {
            return counted;
        }
    }
}

/// A client's connections.
struct Client {
    endpoint: quinn_proto::Endpoint,
    config: ClientConfig,
    server: SocketAddr,
    sockets: Vec<Udp>,
    /// The socket that is used.
    index: usize,
    connections: HashMap<quinn_proto::ConnectionHandle, quinn_proto::Connection>,
}

impl Client {
    fn connect(&mut self) -> quinn_proto::ConnectionHandle {
        let now = Instant::now();
        let (handle, connection) = self.endpoint.connect(now, self.config.clone(), self.server, "localhost").unwrap();
        self.connections.insert(handle, connection);
        handle
    }

    /// Send and receive; returns whether anything came.
    fn turn(&mut self) -> bool {
        let mut came = false;
        let now = Instant::now();
        let mut output = vec![];
        for (handle, connection) in &mut self.connections {
            if connection.poll_timeout().is_some_and(|timeout| timeout <= now) {
                connection.handle_timeout(now);
            }
            let udp = &mut self.sockets[self.index];
            while let Some(transmit) = connection.poll_transmit(now, udp.state.max_gso_segments().min(32), &mut output)
            {
                let ecn = transmit.ecn.map(|ecn| ecn as u8);
                udp.send(transmit.destination, ecn, &output[..transmit.size], transmit.segment_size);
                output.clear();
            }
            while let Some(event) = connection.poll_endpoint_events() {
                if let Some(event) = self.endpoint.handle_event(*handle, event) {
                    connection.handle_event(event);
                }
            }
        }
        for udp in &mut self.sockets {
            while udp.receive(|meta, bytes| {
                came = true;
                let ecn = meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8));
                if let Some(DatagramEvent::ConnectionEvent(handle, event)) =
                    self.endpoint.handle(now, meta.addr, None, ecn, bytes, &mut output)
                    && let Some(connection) = self.connections.get_mut(&handle)
                {
                    connection.handle_event(event);
                }
                output.clear();
            }) {}
        }
        came
    }

    fn wait(&mut self) {
        let timeout = self.connections.values_mut().filter_map(quinn_proto::Connection::poll_timeout).min();
        self.sockets[self.index].wait(timeout);
    }

    fn establish(&mut self, handle: quinn_proto::ConnectionHandle) {
        while self.connections[&handle].is_handshaking() {
            if !self.turn() {
                self.wait();
            }
        }
    }
}

fn use_server(mode: &str, number: u64, port: u16) {
    let hex = std::env::var("CERTIFICATE").unwrap();
    let der: Vec<u8> = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(der)).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]).unwrap();
    let mut tls = builder.with_root_certificates(roots).with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    tls.resumption = rustls::client::Resumption::disabled();
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(Some(VarInt::from_u32(300_000).into()));
    config.transport_config(Arc::new(transport));
    let sockets = if mode == "moves" { 50 } else { 1 };
    let sockets = (0..sockets).map(|_| Udp::new()).collect::<Vec<_>>();
    for udp in &sockets {
        udp.socket.set_nonblocking(true).unwrap();
    }
    let endpoint = quinn_proto::Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None);
    let server = SocketAddr::from(([127, 0, 0, 1], port));
    let mut client = Client { endpoint, config, server, sockets, index: 0, connections: HashMap::new() };
    match mode {
        "get" | "put" => transfer(&mut client, mode, number),
        "handshakes" | "idle" => {
            for _ in 0..number {
                let handle = client.connect();
                client.establish(handle);
                client.turn();
                if mode == "handshakes" {
                    let connection = client.connections.get_mut(&handle).unwrap();
                    connection.close(Instant::now(), VarInt::from_u32(0), Bytes::new());
                    client.turn();
                    client.connections.remove(&handle);
                    client.endpoint.handle_event(handle, quinn_proto::EndpointEvent::drained());
                }
            }
        }
        "pings" | "moves" => {
            let handle = client.connect();
            client.establish(handle);
            for at in 0..number {
                client.index = at as usize % client.sockets.len();
                client.connections.get_mut(&handle).unwrap().ping();
                client.turn();
            }
        }
        "strangers" => {
            for _ in 0..number {
                let handle = client.connect();
                client.turn();
                client.connections.remove(&handle);
                client.endpoint.handle_event(handle, quinn_proto::EndpointEvent::drained());
            }
        }
        "resets" | "garbage" => {
            let mut bytes = [0x55; 60];
            (bytes[0], bytes[1], bytes[2]) = (0x40, 3, if mode == "resets" { quic::MARK ^ 3 } else { 0 });
            for at in 0..number {
                bytes[4..12].copy_from_slice(&at.to_be_bytes());
                client.sockets[0].send(server, None, &bytes, None);
            }
        }
        _ => unreachable!("unknown mode"),
    }
    std::io::stdout().write_all(b"done").unwrap();
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read(&mut [0]);
}

fn transfer(client: &mut Client, mode: &str, number: u64) {
    let handle = client.connect();
    client.establish(handle);
    let id = client.connections.get_mut(&handle).unwrap().streams().open(Dir::Bi).unwrap();
    let zeros = Bytes::from(vec![0; 256 * 1024]);
    let (wanted, mut left) = if mode == "get" { (number, 0) } else { (0, number) };
    let mut first = vec![Bytes::copy_from_slice(&wanted.to_be_bytes())];
    let mut is_finished = false;
    let mut received = 0;
    loop {
        let connection = client.connections.get_mut(&handle).unwrap();
        while let Some(event) = connection.poll() {
            assert!(!matches!(event, quinn_proto::Event::ConnectionLost { .. }), "{event:?}");
        }
        let mut stream = connection.send_stream(id);
        while !is_finished {
            let written = if let Some(first) = first.pop() {
                stream.write(&first).map(drop)
            } else if left == 0 {
                stream.finish().unwrap();
                is_finished = true;
                break;
            } else {
                let piece = zeros.slice(..zeros.len().min(left as usize));
                stream.write_chunks(&mut [piece]).map(|written| left -= written.bytes as u64)
            };
            if written.is_err() {
                break;
            }
        }
        if read(connection, id, &mut received) {
            assert_eq!(received, wanted);
            return;
        }
        if !client.turn() {
            client.wait();
        }
    }
}

/// Whether the stream has ended.
fn read(connection: &mut quinn_proto::Connection, id: StreamId, received: &mut u64) -> bool {
    let mut stream = connection.recv_stream(id);
    let Ok(mut chunks) = stream.read(true) else { return true };
    let ended = loop {
        match chunks.next(usize::MAX) {
            Ok(Some(chunk)) => *received += chunk.bytes.len() as u64,
            Ok(None) => break true,
            Err(_) => break false,
        }
    };
    let _ = chunks.finalize();
    ended
}
