//! A listening endpoint on real sockets and a real event loop, with an application that echoes data, and clients of
//! quinn-proto in other threads. The last one serves other programs.
//!
//! They need the interpreter as a library: `LD_LIBRARY_PATH=... cargo test --package bindings --lib udp`, with
//! `PYTHONPATH` and `QUIC_TEST_LOOP=uvloop` for another event loop.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::IntoRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use quic::{Drain, Limits, Lost, ReadEnd, Written};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection as Quinn, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    Event, VarInt,
};
use rcgen::{CertificateParams, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::version::TLS13;

use super::connection::Connection;
use super::handler::Handler;
use super::listening::{Listening, Settings};
use super::opener::{Opener, Why};
use crate::tcp::reactor::Poller;
use crate::tcp::tls::config::TLSConfig;

const PATIENCE: Duration = Duration::from_secs(10);

// The server.

/// Echoes data.
struct Echo {
    connection: Rc<Connection>,
    log: Rc<Log>,
    unsent: RefCell<BTreeMap<u64, (VecDeque<Bytes>, bool)>>,
}

#[derive(Default)]
struct Log {
    events: RefCell<Vec<String>>,
    connections: RefCell<Vec<Rc<Connection>>>,
    is_drained: Cell<bool>,
    is_full: Cell<bool>,
    /// Streams that were opened since events were last delivered, and the most of them.
    opened: Cell<usize>,
    most_opened: Cell<usize>,
}

impl Log {
    fn note(&self, text: String) {
        self.events.borrow_mut().push(text);
    }

    fn has(&self, text: &str) -> bool {
        self.events.borrow().iter().any(|event| event.contains(text))
    }
}

struct EchoOpener(Rc<Log>);

impl Opener for EchoOpener {
    fn open(&self, _py: Python<'_>, connection: &Rc<Connection>) -> PyResult<Option<Rc<dyn Handler>>> {
        if self.0.is_full.get() {
            return Ok(None);
        }
        self.0.connections.borrow_mut().push(connection.clone());
        let echo = Echo { connection: connection.clone(), log: self.0.clone(), unsent: RefCell::default() };
        Ok(Some(Rc::new(echo)))
    }

    fn code(&self, why: Why) -> (u64, &'static str) {
        match why {
            Why::Refused => (0x10B, "no room"),
            Why::Failed => (0x102, "failed"),
            Why::Shutdown => (0x100, ""),
        }
    }

    fn on_failed(&self, _py: Python<'_>, _remote: SocketAddr, lost: &Lost) -> PyResult<()> {
        self.0.note(format!("failed: {lost}"));
        Ok(())
    }

    fn on_drained(&self, _py: Python<'_>) -> PyResult<()> {
        self.0.is_drained.set(true);
        Ok(())
    }
}

impl Echo {
    fn write(&self, py: Python<'_>, stream: u64) -> PyResult<()> {
        let Some((mut unsent, ends)) = self.unsent.borrow_mut().remove(&stream) else { return Ok(()) };
        let written = self.connection.write(py, stream, unsent.make_contiguous())?;
        unsent.retain(|piece| !piece.is_empty());
        if written == Written::All && ends {
            return self.connection.finish(py, stream);
        }
        self.unsent.borrow_mut().insert(stream, (unsent, ends));
        Ok(())
    }
}

impl Handler for Echo {
    fn on_established(self: Rc<Self>, _py: Python<'_>) -> PyResult<()> {
        self.log.note(format!("established at {}", self.connection.local()));
        Ok(())
    }

    fn on_opened(self: Rc<Self>, py: Python<'_>, stream: u64) -> PyResult<()> {
        self.log.opened.set(self.log.opened.get() + 1);
        self.on_readable(py, stream)
    }

    fn on_events_delivered(self: Rc<Self>, _py: Python<'_>) -> PyResult<()> {
        self.log.most_opened.set(self.log.most_opened.get().max(self.log.opened.take()));
        Ok(())
    }

    fn on_readable(self: Rc<Self>, py: Python<'_>, stream: u64) -> PyResult<()> {
        let mut chunks = vec![];
        let read = self.connection.read(py, stream, usize::MAX, &mut chunks)?;
        if chunks.first().is_some_and(|chunk| chunk.starts_with(b"raise")) {
            return Err(PyValueError::new_err("it was asked for"));
        }
        assert!(!chunks.first().is_some_and(|chunk| chunk.starts_with(b"panic")), "it was asked for");
        let mut unsent = self.unsent.borrow_mut();
        let (pieces, ends) = unsent.entry(stream).or_default();
        pieces.extend(chunks);
        *ends |= read.end == ReadEnd::Finished;
        drop(unsent);
        self.write(py, stream)
    }

    fn on_writable(self: Rc<Self>, py: Python<'_>, stream: u64) -> PyResult<()> {
        self.write(py, stream)
    }

    fn on_stopped(self: Rc<Self>, py: Python<'_>, stream: u64, code: u64) -> PyResult<()> {
        self.log.note(format!("stopped {stream} {code}"));
        self.unsent.borrow_mut().remove(&stream);
        self.connection.reset(py, stream, code)
    }

    fn on_flooded(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.connection.close(py, 0, "flooded")
    }

    fn on_moved(self: Rc<Self>, _py: Python<'_>) -> PyResult<()> {
        self.log.note(format!("moved to {}", self.connection.remote()));
        Ok(())
    }

    fn on_lost(self: Rc<Self>, _py: Python<'_>, lost: &Lost) -> PyResult<()> {
        self.log.note(format!("lost: {lost}"));
        Ok(())
    }
}

/// A loop, and an endpoint on it.
struct Server<'py> {
    py: Python<'py>,
    event_loop: Bound<'py, PyAny>,
    poller: Bound<'py, Poller>,
    listening: Rc<Listening>,
    log: Rc<Log>,
    addresses: Vec<SocketAddr>,
    authority: CertificateDer<'static>,
    errors: Bound<'py, PyAny>,
}

impl<'py> Server<'py> {
    fn new(py: Python<'py>, binds: &[&str], limits: Limits) -> Self {
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let name = std::env::var("QUIC_TEST_LOOP").unwrap_or_else(|_| "asyncio".to_owned());
        let event_loop = py.import(&*name).unwrap().call_method0("new_event_loop").unwrap();
        let poller = Bound::new(py, Poller::new(&event_loop).unwrap()).unwrap();
        let keywords = PyDict::new(py);
        let none = py.None();
        let certificate = (py.None(), own.pem().as_bytes().to_vec(), key.serialize_pem().into_bytes());
        keywords.set_item("certificates", vec![certificate]).unwrap();
        for name in ["password", "suites", "authorities", "revoked", "ticket_keys", "describe"] {
            keywords.set_item(name, &none).unwrap();
        }
        keywords.set_item("alpn", vec!["h2"]).unwrap();
        keywords.set_item("min_version", 0x0303).unwrap();
        keywords.set_item("max_version", 0x0304).unwrap();
        keywords.set_item("verify", 0).unwrap();
        keywords.set_item("serves_unverified", false).unwrap();
        keywords.set_item("tickets", "own").unwrap();
        let tls = py.get_type::<TLSConfig>().call((), Some(&keywords)).unwrap().cast_into::<TLSConfig>().unwrap();
        let sockets: Vec<_> = binds.iter().map(|bind| UdpSocket::bind(bind).unwrap()).collect();
        let addresses = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
        let settings = Settings {
            descriptors: sockets.into_iter().map(IntoRawFd::into_raw_fd).collect(),
            tls: tls.unbind(),
            secret: [1; 32],
            slot: 0,
            generation: 0,
            protocols: vec![b"h3".to_vec()],
            early_data: false,
            limits,
        };
        let log = Rc::new(Log::default());
        let listening = Listening::listen(&poller, Rc::new(EchoOpener(log.clone())), settings).unwrap();
        let errors = py.eval(c"[]", None, None).unwrap();
        let names = PyDict::new(py);
        names.set_item("errors", &errors).unwrap();
        let handler = py.eval(c"lambda loop, context: errors.append(repr(context))", Some(&names), None).unwrap();
        event_loop.call_method1("set_exception_handler", (handler,)).unwrap();
        let authority = own.der().clone();
        Self { py, event_loop, poller, listening, log, addresses, authority, errors }
    }

    /// Run the loop until `is_done`.
    fn run(&self, mut is_done: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_done() {
            assert!(Instant::now() < end, "{:?} {}", self.log.events.borrow(), self.errors);
            let asyncio = self.py.import("asyncio").unwrap();
            let sleep = asyncio.call_method1("sleep", (0.005,)).unwrap();
            self.event_loop.call_method1("run_until_complete", (sleep,)).unwrap();
        }
    }

    /// Run the loop while a client does its work.
    fn with<T: Send + 'static>(&self, index: usize, act: impl FnOnce(Client) -> T + Send + 'static) -> T {
        let task = self.spawn(index, act);
        self.run(|| task.is_finished());
        task.join().unwrap()
    }

    fn spawn<T: Send + 'static>(&self, index: usize, act: impl FnOnce(Client) -> T + Send + 'static) -> JoinHandle<T> {
        let (mut to, authority) = (self.addresses[index], self.authority.clone());
        if to.ip().is_unspecified() {
            to.set_ip([127, 0, 0, 1].into());
        }
        thread::spawn(move || act(Client::new(to, authority)))
    }

    fn end(self) {
        self.listening.close(self.py).unwrap();
        self.run(|| true);
        assert_eq!(self.poller.getattr("connections").unwrap().extract::<usize>().unwrap(), 0);
        self.log.connections.take();
        assert_eq!(Rc::strong_count(&self.listening), 1, "something keeps the endpoint");
        self.event_loop.call_method0("close").unwrap();
    }
}

// Clients.

struct Client {
    socket: UdpSocket,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    connection: Quinn,
    lost: Option<ConnectionError>,
}

impl Client {
    fn new(to: SocketAddr, authority: CertificateDer<'static>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(authority).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]).unwrap();
        let mut tls = builder.with_root_certificates(roots).with_no_client_auth();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
        let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None);
        let (handle, connection) = endpoint.connect(Instant::now(), config, to, "localhost").unwrap();
        Self { socket: Self::socket(to), endpoint, handle, connection, lost: None }
    }

    fn socket(to: SocketAddr) -> UdpSocket {
        UdpSocket::bind(if to.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" }).unwrap()
    }

    /// Go on until `is_done`, or the connection is lost.
    fn run(&mut self, mut is_done: impl FnMut(&mut Quinn) -> bool) -> bool {
        let end = Instant::now() + PATIENCE;
        let mut buffer = vec![0; 2000];
        loop {
            assert!(Instant::now() < end, "the client waits in vain");
            while let Some(event) = self.connection.poll() {
                if let Event::ConnectionLost { reason } = event {
                    self.lost = Some(reason);
                }
            }
            if is_done(&mut self.connection) {
                self.send();
                return true;
            }
            self.send();
            if self.lost.is_some() {
                return false;
            }
            let now = Instant::now();
            let timeout = self.connection.poll_timeout().map_or(PATIENCE, |timeout| timeout - now.min(timeout));
            let timeout = timeout.clamp(Duration::from_millis(1), Duration::from_millis(20));
            self.socket.set_read_timeout(Some(timeout)).unwrap();
            if let Ok((length, from)) = self.socket.recv_from(&mut buffer) {
                let bytes = BytesMut::from(&buffer[..length]);
                let mut reply = vec![];
                let event = self.endpoint.handle(Instant::now(), from, None, None, bytes, &mut reply);
                if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                    self.connection.handle_event(event);
                }
            }
            if self.connection.poll_timeout().is_some_and(|timeout| timeout <= Instant::now()) {
                self.connection.handle_timeout(Instant::now());
            }
            while let Some(event) = self.connection.poll_endpoint_events() {
                if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                    self.connection.handle_event(event);
                }
            }
        }
    }

    fn send(&mut self) {
        let mut output = vec![];
        while let Some(transmit) = self.connection.poll_transmit(Instant::now(), 1, &mut output) {
            self.socket.send_to(&output[..transmit.size], transmit.destination).unwrap();
            output.clear();
        }
    }

    fn establish(&mut self) -> bool {
        self.run(|connection| !connection.is_handshaking())
    }

    /// The echo, unless the connection is lost before.
    fn echo(&mut self, data: &[u8]) -> Option<Vec<u8>> {
        if !self.establish() {
            return None;
        }
        let id = self.connection.streams().open(Dir::Bi).unwrap();
        let (mut sent, mut received, mut ended) = (0, vec![], false);
        let done = self.run(|connection| {
            while sent < data.len() {
                let Ok(length) = connection.send_stream(id).write(&data[sent..]) else { break };
                sent += length;
                if sent == data.len() {
                    connection.send_stream(id).finish().unwrap();
                }
            }
            let mut stream = connection.recv_stream(id);
            if let Ok(mut chunks) = stream.read(true) {
                loop {
                    match chunks.next(usize::MAX) {
                        Ok(Some(chunk)) => received.extend_from_slice(&chunk.bytes),
                        Ok(None) => break ended = true,
                        Err(_) => break,
                    }
                }
                let _ = chunks.finalize();
            }
            ended
        });
        done.then_some(received)
    }

    fn close(&mut self) {
        self.connection.close(Instant::now(), VarInt::from_u32(0x100), Bytes::new());
        self.send();
    }

    fn code(&self) -> Option<u64> {
        match &self.lost {
            Some(ConnectionError::ApplicationClosed(close)) => Some(close.error_code.into()),
            _ => None,
        }
    }
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}

fn attach(act: impl FnOnce(Python<'_>)) {
    Python::initialize();
    Python::attach(act);
}

// Clients that hold no lock of the interpreter's may run while the loop does.

#[test]
fn data_comes_back_over_each_family() {
    attach(|py| {
        let server = Server::new(py, &["127.0.0.1:0", "[::1]:0", "[::]:0"], Limits::default());
        for index in 0..3 {
            let echoed = server.with(index, |mut client| {
                let echoed = client.echo(&bytes(3_000_000));
                client.close();
                echoed
            });
            assert!(echoed == Some(bytes(3_000_000)));
            let mut local = server.addresses[index];
            if index == 2 {
                local.set_ip("::ffff:127.0.0.1".parse().unwrap());
            }
            let expected = [format!("established at {local}"), format!("established at 127.0.0.1:{}", local.port())];
            assert!(expected.iter().any(|text| server.log.has(text)), "{:?}", server.log.events.borrow());
            server
                .run(|| server.log.events.borrow().iter().filter(|event| event.contains("closed it")).count() > index);
        }
        server.end();
    });
}

#[test]
fn many_clients_are_served_at_once() {
    attach(|py| {
        let server = Server::new(py, &["127.0.0.1:0"], Limits::default());
        let tasks: Vec<_> = (0..16)
            .map(|_| server.spawn(0, |mut client| (0..5).all(|_| client.echo(&bytes(20_000)) == Some(bytes(20_000)))))
            .collect();
        server.run(|| tasks.iter().all(JoinHandle::is_finished));
        assert!(tasks.into_iter().all(|task| task.join().unwrap()));
        server.end();
    });
}

#[test]
fn failures_cost_their_connection_alone() {
    attach(|py| {
        let server = Server::new(py, &["127.0.0.1:0"], Limits::default());
        let other = server.spawn(0, |mut client| {
            let first = client.echo(b"hello");
            thread::sleep(Duration::from_millis(300));
            (first, client.echo(b"still here"))
        });
        let code = server.with(0, |mut client| {
            assert_eq!(client.echo(b"raise"), None);
            client.code()
        });
        assert_eq!(code, Some(0x102));
        assert!(server.errors.to_string().contains("it was asked for"), "{}", server.errors);
        let code = server.with(0, |mut client| {
            assert_eq!(client.echo(b"panic"), None);
            client.code()
        });
        assert_eq!(code, Some(0x102));
        server.run(|| other.is_finished());
        assert_eq!(other.join().unwrap(), (Some(b"hello".to_vec()), Some(b"still here".to_vec())));
        // A reference to a connection that is gone does not reach the one that has its place now.
        let late = server.spawn(0, |mut client| {
            let first = client.echo(b"hello");
            thread::sleep(Duration::from_millis(200));
            (first, client.echo(b"still here"))
        });
        let count = server.log.connections.borrow().len();
        server.run(|| server.log.connections.borrow().len() > count);
        for connection in server.log.connections.borrow().iter().take(count) {
            connection.close(py, 1, "late").unwrap();
        }
        server.run(|| late.is_finished());
        assert_eq!(late.join().unwrap(), (Some(b"hello".to_vec()), Some(b"still here".to_vec())));
        server.log.is_full.set(true);
        let code = server.with(0, |mut client| {
            client.establish();
            client.run(|_| false);
            client.code()
        });
        assert_eq!(code, Some(0x10B));
        server.end();
    });
}

#[test]
fn client_that_moves_keeps_its_connection() {
    attach(|py| {
        let server = Server::new(py, &["127.0.0.1:0"], Limits::default());
        let address = server.with(0, |mut client| {
            assert!(client.echo(b"hello").is_some());
            let to = client.connection.remote_address();
            client.socket = Client::socket(to);
            assert!(client.echo(&bytes(100_000)).is_some());
            client.socket.local_addr().unwrap()
        });
        assert!(server.log.has(&format!("moved to {address}")), "{:?}", server.log.events.borrow());
        server.end();
    });
}

#[test]
fn client_with_many_new_streams_has_several_turns() {
    attach(|py| {
        let server = Server::new(py, &["127.0.0.1:0"], Limits::default());
        server.with(0, |mut client| {
            client.establish();
            let streams: Vec<_> = (0..90)
                .map(|_| {
                    let stream = client.connection.streams().open(Dir::Bi).unwrap();
                    client.connection.send_stream(stream).write(b"?").unwrap();
                    client.connection.send_stream(stream).finish().unwrap();
                    stream
                })
                .collect();
            // All of them in one datagram.
            assert!(client.run(|connection| {
                streams.iter().all(|stream| {
                    let mut received = connection.recv_stream(*stream);
                    let Ok(mut chunks) = received.read(true) else { return true };
                    let is_over = matches!(chunks.next(9), Ok(None)) || matches!(chunks.next(9), Ok(None));
                    let _ = chunks.finalize();
                    is_over
                })
            }));
        });
        assert_eq!(server.log.most_opened.get(), 32);
        server.end();
    });
}

#[test]
fn silent_client_is_given_up_without_any_packet() {
    attach(|py| {
        let limits = Limits { idle: Duration::from_millis(400), ..Limits::default() };
        let server = Server::new(py, &["127.0.0.1:0"], limits);
        server.with(0, |mut client| assert!(client.echo(b"hello").is_some()));
        server.run(|| server.log.has("lost: the client was silent for too long"));
        server.run(|| server.listening.connections() == 0);
        server.end();
    });
}

#[test]
fn drain_refuses_new_clients_and_ends_with_the_last() {
    attach(|py| {
        let server = Server::new(py, &["127.0.0.1:0"], Limits::default());
        let task = server.spawn(0, |mut client| {
            assert!(client.echo(b"hello").is_some());
            thread::sleep(Duration::from_millis(300));
            let echoed = client.echo(b"still here");
            client.close();
            echoed
        });
        server.run(|| server.log.has("established"));
        server.listening.drain(py, Drain::Refuse).unwrap();
        let lost = server.with(0, |mut client| {
            client.establish();
            client.lost
        });
        assert!(matches!(lost, Some(ConnectionError::ConnectionClosed(_))), "{lost:?}");
        assert!(!server.log.is_drained.get());
        server.run(|| task.is_finished());
        assert_eq!(task.join().unwrap(), Some(b"still here".to_vec()));
        server.run(|| server.log.is_drained.get());
        server.end();
    });
}

#[test]
fn close_tells_each_client() {
    attach(|py| {
        let server = Server::new(py, &["127.0.0.1:0"], Limits::default());
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                server.spawn(0, |mut client| {
                    assert!(client.echo(b"hello").is_some());
                    client.run(|_| false);
                    client.code()
                })
            })
            .collect();
        server.run(|| server.log.events.borrow().len() == 4);
        server.listening.close(py).unwrap();
        server.run(|| tasks.iter().all(JoinHandle::is_finished));
        assert!(tasks.into_iter().all(|task| task.join().unwrap() == Some(0x100)));
        assert_eq!(server.log.events.borrow().iter().filter(|event| event.contains("lost")).count(), 4);
        server.end();
    });
}

/// Serve clients of other programs on the port in `QUIC_TEST_PORT`, until one stops a stream with code 99.
#[test]
#[ignore = "for other programs"]
fn serves_other_programs() {
    attach(|py| {
        let port = std::env::var("QUIC_TEST_PORT").unwrap();
        let server = Server::new(py, &[&format!("127.0.0.1:{port}")], Limits::default());
        let end = Instant::now() + Duration::from_secs(120);
        while !server.log.has(" 99") && Instant::now() < end {
            let from = Instant::now();
            server.run(|| from.elapsed() > Duration::from_millis(100));
        }
        eprintln!("{:#?}", server.log.events.borrow());
        server.end();
    });
}
