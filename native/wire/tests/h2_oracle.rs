//! The `h2` crate beside ours. Its client checks every frame that it gets, and gets back its own request; its server
//! accepts all requests that are accepted here.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "not production code"
)]

#[path = "support/h2.rs"]
mod support;

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{Reason, RecvStream};
use http::{HeaderMap, Method, Request};
use support::{App, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use wire::h2::Settings;
use wire::h2::frame::put_headers;
use wire::h2::hpack::{Encoder, Indexing};

/// A xorshift generator: the same conversations everywhere.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn length(&mut self, bound: u64) -> usize {
        usize::try_from(self.below(bound)).unwrap()
    }

    fn bytes(&mut self, bound: u64) -> Vec<u8> {
        let length = self.length(bound);
        (0..length).map(|_| u8::try_from(self.below(256)).unwrap()).collect()
    }
}

/// Serve a client until it is gone; it must do nothing wrong.
async fn serve(mut socket: DuplexStream, settings: Settings) -> Server {
    let mut server = Server::new(App::Echo, settings);
    let mut buffer = vec![0; 10_000];
    loop {
        let out = std::mem::take(&mut server.out);
        if socket.write_all(&out).await.is_err() {
            return server;
        }
        match socket.read(&mut buffer).await {
            Ok(0) | Err(_) => return server,
            Ok(length) => server.receive(&buffer[..length]),
        }
        server.connection.pass(1);
        assert_eq!(server.failure, None);
    }
}

/// All of a body, and its trailers.
async fn read(mut body: RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut all = Vec::new();
    while let Some(part) = body.data().await {
        let part = part?;
        all.extend_from_slice(&part);
        body.flow_control().release_capacity(part.len())?;
    }
    assert!(body.trailers().await?.is_none());
    Ok(all)
}

async fn converse(mut client: SendRequest<Bytes>, mut random: Random) {
    let body = if random.below(3) == 0 { Vec::new() } else { random.bytes(200_000) };
    let mut request = Request::builder().method(Method::POST).uri("http://example.org/a?b");
    for count in 0..random.below(6) {
        let value = format!("{}", random.below(4)).repeat(random.length(60) + 1);
        request = request.header(format!("x-{count}"), value);
    }
    let end = body.is_empty() && random.below(2) == 0;
    poll_fn(|context| client.poll_ready(context)).await.unwrap();
    let (response, mut stream) = client.send_request(request.body(()).unwrap(), end).unwrap();
    if !end {
        for part in body.chunks(random.length(30_000) + 1) {
            stream.send_data(Bytes::copy_from_slice(part), false).unwrap();
        }
        if random.below(8) == 0 {
            stream.send_reset(Reason::CANCEL);
            return;
        }
        if random.below(3) == 0 {
            let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), "1".parse().unwrap())]);
            stream.send_trailers(trailers).unwrap();
        } else {
            stream.send_data(Bytes::new(), true).unwrap();
        }
    }
    let response = response.await.unwrap();
    assert_eq!(response.status(), 200);
    let expected = if body.is_empty() { b"hello".to_vec() } else { body };
    assert_eq!(read(response.into_body()).await.unwrap(), expected);
}

async fn conversation(seed: u64) {
    let mut random = Random(seed * 0x9e37_79b9 + 1);
    let (near, far) = duplex(random.length(100_000) + 1);
    let settings =
        Settings { streams: 5, window: 1000 + u32::try_from(random.below(100_000)).unwrap(), ..Settings::default() };
    let server = tokio::spawn(serve(far, settings));
    let mut builder = Builder::new();
    builder
        .initial_window_size(u32::try_from(random.below(70_000)).unwrap() + 1)
        .header_table_size(u32::try_from(random.below(5000)).unwrap())
        .max_concurrent_reset_streams(100)
        .enable_push(false);
    let (client, connection) = builder.handshake::<_, Bytes>(near).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut all = JoinSet::new();
    for count in 0..20 {
        all.spawn(converse(client.clone(), Random(random.below(u64::MAX) | count | 1)));
    }
    drop(client);
    while let Some(result) = all.join_next().await {
        result.unwrap();
    }
    connection.await.unwrap().unwrap();
    let server = server.await.unwrap();
    assert!(server.connection.is_idle());
    for seen in server.seen.values().filter(|seen| seen.reset.is_none()) {
        assert_eq!((seen.method.as_str(), seen.path.as_str(), seen.complete), ("POST", "/a", true));
        assert_eq!(seen.fields[0], ("host".to_owned(), "example.org".to_owned()));
    }
}

/// Fields of a request, most of them as they should be.
fn fields(random: &mut Random) -> Vec<(String, Vec<u8>)> {
    const NAMES: [&str; 14] = [
        ":method",
        ":scheme",
        ":path",
        ":authority",
        ":status",
        ":protocol",
        "host",
        "content-length",
        "te",
        "connection",
        "Accept",
        "x-y",
        "user-agent",
        "expect",
    ];
    const VALUES: [&[u8]; 14] = [
        b"GET",
        b"http",
        b"/",
        b"h",
        b"0",
        b"5",
        b"trailers",
        b"a\r\nb",
        b" a",
        b"",
        b"\xe9",
        b"h:80",
        b"/a?b",
        b"100-continue",
    ];
    let mut fields: Vec<(String, Vec<u8>)> = support::GET
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
        .filter(|_| random.below(12) > 0)
        .collect();
    for _ in 0..random.below(4) {
        let (name, value) = (NAMES[random.length(14)], VALUES[random.length(14)]);
        let at = if random.below(3) == 0 { random.length(fields.len() as u64 + 1) } else { fields.len() };
        fields.insert(at, (name.to_owned(), value.to_vec()));
    }
    fields
}

/// The crate's server's view of the first request in `input`.
async fn accepted(input: &[u8]) -> Option<Request<RecvStream>> {
    let (mut near, far) = duplex(100_000);
    near.write_all(input).await.unwrap();
    let mut connection = h2::server::handshake(far).await.ok()?;
    connection.accept().await?.ok().map(|(request, _)| request)
}

/// Every request accepted here is accepted there, and is the same.
async fn compare(random: &mut Random) -> bool {
    let fields = fields(random);
    let (mut encoder, mut block, mut input) = (Encoder::new(), Vec::new(), support::hello(&[]));
    for (name, value) in &fields {
        encoder.field(&mut block, name.as_bytes(), value, Indexing::Add);
    }
    put_headers(&mut input, 1, &block, true, random.length(60) + 1);
    let mut server = Server::new(App::Silent, Settings::default());
    server.receive(&input);
    assert_eq!(server.failure, None);
    let Some(seen) = server.seen.get(&1).filter(|seen| seen.refused.is_none()) else { return false };
    // So that it does not wait for one that it does not accept.
    input.extend_from_slice(&support::put(7, 0, 0, &[0; 8]));
    let request = accepted(&input).await.unwrap_or_else(|| panic!("accepted here alone: {fields:?}"));
    assert_eq!((request.method().as_str(), request.uri().path()), (seen.method.as_str(), seen.path.as_str()));
    let authority = request.uri().authority().map(|authority| authority.as_str().to_owned());
    let host = request.headers().get("host").map(|host| host.to_str().unwrap().to_owned());
    assert_eq!(authority.or(host), Some(seen.fields.iter().find(|field| field.0 == "host").unwrap().1.clone()));
    for (name, value) in seen.fields.iter().filter(|field| field.0 != "host") {
        let mut values = request.headers().get_all(name).iter();
        assert!(values.any(|other| String::from_utf8_lossy(other.as_bytes()) == *value), "{fields:?}");
    }
    true
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

#[test]
fn what_is_accepted_here_another_server_accepts() {
    let (runtime, mut random, mut accepted) = (runtime(), Random(1), 0);
    for _ in 0..5000 {
        accepted += u32::from(runtime.block_on(compare(&mut random)));
    }
    assert!(accepted > 500, "only {accepted}");
}

#[test]
fn what_another_client_sends_comes_back() {
    let runtime = runtime();
    for seed in 1..=20 {
        let done = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), conversation(seed)).await });
        assert!(done.is_ok(), "conversation {seed} has come to a halt");
    }
}
