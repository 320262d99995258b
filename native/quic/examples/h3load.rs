//! A client that has many requests of HTTP/3 in progress at once: how much CPU they cost a server is seen there.
//!
//! ```text
//! cargo run --release --package quic --example h3load -- 127.0.0.1:8443 CONNECTIONS STREAMS REQUESTS [PATH]
//! ```
//!
//! It reads no fields: a stream that ends counts, with its bytes. `REQUESTS` 0 keeps the connections open and idle.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::too_many_lines,
    clippy::unchecked_time_subtraction,
    reason = "an example"
)]

use std::collections::HashMap;
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

struct Peer {
    connection: Connection,
    active: usize,
    is_ready: bool,
    is_lost: bool,
}

struct Load {
    streams: usize,
    left: usize,
    done: usize,
    failed: usize,
    bytes: usize,
    request: Bytes,
}

impl Load {
    fn act(&mut self, peer: &mut Peer) {
        while let Some(event) = peer.connection.poll() {
            match event {
                Event::Connected => {
                    let control = peer.connection.streams().open(Dir::Uni).unwrap();
                    peer.connection.send_stream(control).write(b"\0\x04\0").unwrap();
                    peer.is_ready = true;
                }
                Event::ConnectionLost { reason } => {
                    println!("lost: {reason}");
                    self.failed += peer.active;
                    peer.active = 0;
                    peer.is_lost = true;
                }
                Event::Stream(StreamEvent::Readable { id }) => self.read(peer, id),
                Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                    while let Some(id) = peer.connection.streams().accept(Dir::Uni) {
                        self.read(peer, id);
                    }
                }
                _ => {}
            }
        }
        while peer.is_ready && !peer.is_lost && peer.active < self.streams && self.left > 0 {
            let Some(stream) = peer.connection.streams().open(Dir::Bi) else { break };
            let mut sent = peer.connection.send_stream(stream);
            sent.write_chunks(&mut [self.request.clone()]).unwrap();
            sent.finish().unwrap();
            peer.active += 1;
            self.left -= 1;
        }
    }

    fn read(&mut self, peer: &mut Peer, id: StreamId) {
        let mut stream = peer.connection.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return };
        let ended = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => self.bytes += chunk.bytes.len(),
                Ok(None) => break Some(true),
                Err(quinn_proto::ReadError::Blocked) => break None,
                Err(quinn_proto::ReadError::Reset(_)) => break Some(false),
            }
        };
        let _ = chunks.finalize();
        if let (Dir::Bi, Some(whole)) = (id.dir(), ended) {
            peer.active -= 1;
            *(if whole { &mut self.done } else { &mut self.failed }) += 1;
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let to: SocketAddr = arguments[0].parse().unwrap();
    let [connections, streams, requests] = [1, 2, 3].map(|index: usize| arguments[index].parse::<usize>().unwrap());
    let path = arguments.get(4).map_or("/", String::as_str);

    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]).unwrap();
    let mut tls = builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone)).with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(Some(VarInt::from_u32(600_000).into()));
    config.transport_config(Arc::new(transport));

    // HEADERS: GET https://localhost with a path, by the static table.
    let mut section = b"\0\0\xd1\xd7\x50\x09localhost\x51".to_vec();
    section.push(path.len() as u8);
    section.extend_from_slice(path.as_bytes());
    let mut request = vec![1, section.len() as u8];
    request.extend_from_slice(&section);

    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let state = UdpSocketState::new(UdpSockRef::from(&socket)).unwrap();
    let _ = state.set_recv_buffer_size(UdpSockRef::from(&socket), 4 << 20);
    let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None);
    let mut peers: HashMap<ConnectionHandle, Peer> = HashMap::new();
    let mut load = Load { streams, left: requests, done: 0, failed: 0, bytes: 0, request: Bytes::from(request) };
    let mut room = vec![0; 8 * 65536];
    let mut metas = [RecvMeta::default(); 8];
    let mut output = Vec::new();
    let mut dirty: Vec<ConnectionHandle> = Vec::new();
    let mut opened = 0;
    let begin = Instant::now();
    let mut looked = begin;
    loop {
        let now = Instant::now();
        // A few handshakes at a time.
        let shaking = peers.values().filter(|peer| !peer.is_ready && !peer.is_lost).count();
        for _ in shaking..16 {
            if opened == connections {
                break;
            }
            let (handle, connection) = endpoint.connect(now, config.clone(), to, "localhost").unwrap();
            peers.insert(handle, Peer { connection, active: 0, is_ready: false, is_lost: false });
            dirty.push(handle);
            opened += 1;
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
            load.act(peer);
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
        if requests > 0 && load.done + load.failed >= requests {
            break;
        }
        if requests == 0 && begin.elapsed() > Duration::from_secs(streams as u64) {
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
    let seconds = begin.elapsed().as_secs_f64();
    let Load { done, failed, bytes, .. } = load;
    let ready = peers.values().filter(|peer| peer.is_ready && !peer.is_lost).count();
    println!(
        "{done} responses, {failed} failed, {bytes} bytes, {:.0} per second, {ready} connections",
        done as f64 / seconds
    );
}
