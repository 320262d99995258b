//! Replays `tests/vectors/websocket.toml`, the data every implementation of WebSocket is held to: each vector whole, cut in
//! two at every byte, and one byte at a time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "not production code"
)]

use std::path::Path;

use toml::{Table, Value};
use wire::ws::{Connection, Event, Handshake, Kind, Limits, NO_CODE, StreamPool};
use wire::{Error, h1};

const HANDSHAKE: &str = "GET / HTTP/1.1\r\nHost: example.org\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";

#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    status: u16,
    messages: Vec<(bool, Vec<u8>)>,
    pongs: Vec<Vec<u8>>,
    close: Option<u16>,
}

struct Vector {
    id: String,
    head: Vec<u8>,
    frames: Vec<u8>,
    http: wire::Limits,
    limits: Limits,
    expected: Outcome,
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).unwrap()).collect()
}

fn octets(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => hex(text),
        Value::Table(part) => {
            let times = part.get("times").map_or(1, |times| times.as_integer().unwrap());
            hex(part["hex"].as_str().unwrap()).repeat(usize::try_from(times).unwrap())
        }
        other => panic!("no octets: {other:?}"),
    }
}

fn latin1(text: &str) -> Vec<u8> {
    text.chars().map(|point| u8::try_from(u32::from(point)).unwrap()).collect()
}

fn message(value: &Value) -> (bool, Vec<u8>) {
    match value {
        Value::String(text) => (true, text.clone().into_bytes()),
        bytes => (false, octets(bytes)),
    }
}

fn list<T>(table: &Table, key: &str, read: impl Fn(&Value) -> T) -> Vec<T> {
    table.get(key).map_or(Vec::new(), |values| values.as_array().unwrap().iter().map(read).collect())
}

impl Vector {
    fn parse(table: &Table) -> Self {
        let number = |key: &str| table.get(key).map(|value| u16::try_from(value.as_integer().unwrap()).unwrap());
        let lines = list(table, "lines", |line| line.as_str().unwrap().to_owned() + "\r\n").concat();
        let head = table
            .get("request")
            .map_or_else(|| format!("{HANDSHAKE}{lines}\r\n"), |request| request.as_str().unwrap().to_owned());
        let (mut http, mut limits) = (wire::Limits::default(), Limits::default());
        for (name, value) in table.get("settings").and_then(Value::as_table).into_iter().flatten() {
            let value = usize::try_from(value.as_integer().unwrap()).unwrap();
            match name.as_str() {
                "limit_request_head" => http.head = value,
                "limit_request_fields" => http.fields = value,
                "ws_max_size" => limits.message = value,
                other => panic!("no setting {other}"),
            }
        }
        Self {
            id: table["id"].as_str().unwrap().to_owned(),
            head: latin1(&head),
            frames: list(table, "input", octets).concat(),
            http,
            limits,
            expected: Outcome {
                status: number("status").unwrap_or(101),
                messages: list(table, "messages", message),
                pongs: list(table, "pongs", octets),
                close: number("close"),
            },
        }
    }
}

fn load() -> Vec<Vector> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/websocket.toml");
    let table: Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
    let vectors: Vec<_> = table["vector"].as_array().unwrap().iter().map(|row| row.as_table().unwrap()).collect();
    assert!(vectors.len() >= 80, "only {} vectors", vectors.len());
    vectors.into_iter().map(Vector::parse).collect()
}

/// A server that accepts at once, answers pings and sends nothing else.
struct Server<'a> {
    vector: &'a Vector,
    http: h1::Connection,
    scratch: h1::Scratch,
    open: Option<Connection>,
    pool: StreamPool,
    input: Vec<u8>,
    out: Vec<u8>,
    outcome: Outcome,
}

impl<'a> Server<'a> {
    fn new(vector: &'a Vector) -> Self {
        Self {
            vector,
            http: h1::Connection::new(),
            scratch: h1::Scratch::default(),
            open: None,
            pool: StreamPool::default(),
            input: Vec::new(),
            out: Vec::new(),
            outcome: Outcome::default(),
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        if self.outcome.status == 0 {
            self.read_head().unwrap_or_else(|error| self.outcome.status = error.status());
        }
        self.read_frames();
    }

    fn read_head(&mut self) -> Result<(), Error> {
        let progress = self.http.poll(&self.input, &mut self.scratch, &self.vector.http)?;
        if progress.event == h1::Event::Request {
            let answer = Handshake::read(self.scratch.head(), &self.input, true)?.answer;
            answer.accept(&mut Vec::new(), None, b"", []).unwrap();
            self.http.switch().unwrap();
            self.outcome.status = 101;
            self.open = Some(Connection::new(answer.deflate));
        }
        self.input.drain(..progress.consumed);
        Ok(())
    }

    fn read_frames(&mut self) {
        let Some(connection) = &mut self.open else { return };
        let mut at = 0;
        loop {
            let window = &mut self.input[at..];
            let progress = connection.poll(window, &mut self.pool, &self.vector.limits);
            at += progress.consumed;
            match progress.event {
                Event::NeedMore => break,
                Event::Closed => {
                    self.input.clear();
                    return;
                }
                Event::Message { kind, payload } => {
                    self.outcome.messages.push((kind == Kind::Text, payload.of(window).to_vec()));
                }
                Event::Piece { .. } => panic!("this connection does not use pieces"),
                Event::Ping(range) => {
                    let payload = &window[range];
                    connection.pong(&mut self.out, payload).unwrap();
                    self.outcome.pongs.push(payload.to_vec());
                }
                Event::Pong(_) => {}
                Event::Close { code, reason } => {
                    let reason = std::str::from_utf8(&window[reason]).unwrap();
                    if connection.close(&mut self.out, code, reason).is_ok() {
                        self.outcome.close = Some(code);
                    }
                }
                Event::Failed(failure) => {
                    let reason = failure.reason(&self.vector.limits);
                    connection.close(&mut self.out, failure.code(), &reason).unwrap();
                    self.outcome.close = Some(failure.code());
                }
            }
        }
        self.input.drain(..at);
    }

    /// The close frame that was sent is the last, and the only one.
    fn check_close(&self) {
        let Some(code) = self.outcome.close else { return };
        let mut frames = self.out.as_slice();
        let mut closes = Vec::new();
        while let [first, length, rest @ ..] = frames {
            let (payload, behind) = rest.split_at(usize::from(*length));
            frames = behind;
            assert!(closes.is_empty(), "something follows the close frame");
            if *first == 0x88 {
                closes.push(payload);
            }
        }
        let sent = closes[0].first_chunk().map_or(NO_CODE, |bytes| u16::from_be_bytes(*bytes));
        assert_eq!(sent, code);
    }
}

fn replay<'a>(vector: &Vector, pieces: impl Iterator<Item = &'a [u8]>) {
    let mut server = Server::new(vector);
    pieces.for_each(|piece| server.receive(piece));
    server.check_close();
    assert_eq!(server.outcome, vector.expected, "{}", vector.id);
}

fn bytes(vector: &Vector) -> Vec<u8> {
    [vector.head.as_slice(), &vector.frames].concat()
}

#[test]
fn every_vector_whole() {
    for vector in load() {
        replay(&vector, std::iter::once(bytes(&vector).as_slice()));
    }
}

#[test]
fn every_vector_cut_in_two_at_every_byte() {
    for vector in load() {
        let data = bytes(&vector);
        for cut in 0..data.len() {
            let (first, second) = data.split_at(cut);
            replay(&vector, [first, second].into_iter());
        }
    }
}

#[test]
fn every_vector_in_small_pieces() {
    for vector in load() {
        let data = bytes(&vector);
        replay(&vector, data.chunks(1));
        replay(&vector, data.chunks(7));
    }
}
