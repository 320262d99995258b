//! HTTP/2 without sockets: a server that reads bytes and answers, and a client that reads its output.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "not production code"
)]

use std::collections::BTreeMap;

use wire::Limits;
use wire::h2::frame::{self, PREFACE};
use wire::h2::hpack::{Decoder, Encoder, Indexing, TABLE_SIZE};
use wire::h2::{Connection, Event, Failure, Scratch, Settings, StreamId};

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;
pub(crate) const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":authority", "host"), (":path", "/")];
pub(crate) const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "http"), (":authority", "host"), (":path", "/")];

/// A frame of any kind.
pub(crate) fn put(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The preface and settings.
pub(crate) fn hello(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    frame::put_settings(&mut out, settings);
    out
}

/// A block without references to a table.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = Encoder::new();
    for (name, value) in fields {
        encoder.field(&mut out, name.as_bytes(), value.as_bytes(), Indexing::Without);
    }
    out
}

pub(crate) fn headers(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    put(1, flags | END_HEADERS, stream, &block(fields))
}

pub(crate) fn get(stream: u32) -> Vec<u8> {
    headers(stream, END_STREAM, &GET)
}

pub(crate) fn post(stream: u32) -> Vec<u8> {
    headers(stream, 0, &POST)
}

pub(crate) fn data(stream: u32, flags: u8, data: &[u8]) -> Vec<u8> {
    put(0, flags, stream, data)
}

pub(crate) fn reset(stream: u32) -> Vec<u8> {
    put(3, 0, stream, &8_u32.to_be_bytes())
}

pub(crate) fn window(stream: u32, increment: u32) -> Vec<u8> {
    put(8, 0, stream, &increment.to_be_bytes())
}

/// A frame of the server's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// A number of the payload.
    pub(crate) fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }

    pub(crate) fn ends(&self) -> bool {
        self.kind <= 1 && self.flags & END_STREAM != 0
    }
}

pub(crate) fn frames(mut out: &[u8]) -> Vec<Frame> {
    let mut found = Vec::new();
    while let [a, b, c, kind, flags, rest @ ..] = out {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let stream = u32::from_be_bytes(rest[..4].try_into().unwrap());
        let payload = rest[4..4 + length].to_vec();
        found.push(Frame { kind: *kind, flags: *flags, stream, payload });
        out = &rest[4 + length..];
    }
    found
}

/// A request as the application gets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) complete: bool,
    /// The code of the reset.
    pub(crate) reset: Option<u32>,
    pub(crate) refused: Option<u16>,
    /// It was never given to the application.
    refused_at_once: bool,
}

impl Seen {
    pub(crate) fn was_refused_at_once(&self) -> bool {
        self.refused_at_once
    }
}

/// The application's reaction to a request that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum App {
    /// Answers 200 with its body, or `hello`.
    Echo,
    /// Never answers, and never reads.
    Silent,
    /// Answers with this many bytes, at once.
    Bytes(usize),
}

/// A server for tests, from bytes to bytes.
pub(crate) struct Server {
    pub(crate) connection: Connection,
    pub(crate) app: App,
    pub(crate) limits: Limits,
    pub(crate) scratch: Scratch,
    input: Vec<u8>,
    pub(crate) out: Vec<u8>,
    pub(crate) seen: BTreeMap<u32, Seen>,
    pub(crate) ids: BTreeMap<u32, StreamId>,
    bodies: BTreeMap<u32, Vec<u8>>,
    pub(crate) failure: Option<Failure>,
    /// Whether windows and turns are looked at by itself.
    pub(crate) flushes: bool,
}

impl Server {
    pub(crate) fn new(app: App, settings: Settings) -> Self {
        let mut out = Vec::new();
        let connection = Connection::new(settings, &mut out);
        Self {
            connection,
            app,
            limits: Limits::default(),
            scratch: Scratch::default(),
            input: Vec::new(),
            out,
            seen: BTreeMap::new(),
            ids: BTreeMap::new(),
            bodies: BTreeMap::new(),
            failure: None,
            flushes: true,
        }
    }

    /// One that knows its client, and whose client knows it.
    pub(crate) fn ready(app: App) -> Self {
        let mut server = Self::new(app, Settings::default());
        server.receive(&[hello(&[]), put(4, ACK, 0, b"")].concat());
        server.connection.pass(1);
        server.take();
        server
    }

    /// The frames since the last time.
    pub(crate) fn take(&mut self) -> Vec<Frame> {
        frames(&std::mem::take(&mut self.out))
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        let input = std::mem::take(&mut self.input);
        let mut at = 0;
        loop {
            let progress = self.connection.poll(&input[at..], &mut self.out, &mut self.scratch, &self.limits);
            let window = &input[at..];
            at += progress.consumed;
            let is_request = matches!(progress.event, Event::Request { .. } | Event::Refused { .. });
            assert!(is_request || self.scratch.is_empty());
            match progress.event {
                Event::NeedMore | Event::Closed => break,
                Event::Request { stream, end } => {
                    self.note(stream);
                    self.ended(stream, end);
                }
                Event::Data { stream, data, end } => {
                    let data = window[data].to_vec();
                    self.seen.get_mut(&stream.number()).unwrap().body.extend_from_slice(&data);
                    if self.app != App::Silent {
                        self.connection.consume(&mut self.out, stream, data.len());
                    }
                    self.ended(stream, end);
                }
                Event::Refused { stream, error } => {
                    let at_once = !self.scratch.is_empty();
                    if at_once {
                        self.note(stream);
                    }
                    let seen = self.seen.get_mut(&stream.number()).unwrap();
                    (seen.refused, seen.refused_at_once) = (Some(error.status()), at_once);
                    self.respond(stream, error.status(), b"no");
                }
                Event::Reset { stream, code, .. } => {
                    self.bodies.remove(&stream.number());
                    self.seen.get_mut(&stream.number()).unwrap().reset = Some(code);
                    self.connection.release(&mut self.out, stream);
                }
                Event::Failed(failure) => self.failure = Some(failure),
                Event::Pong(_) | Event::GoAway { .. } => {}
            }
            // So that frames before a failure leave before it, in any cut of the input.
            if self.flushes {
                self.flush(usize::MAX);
            }
        }
        self.input = input[at..].to_vec();
        if self.flushes {
            self.flush(usize::MAX);
        }
    }

    fn note(&mut self, stream: StreamId) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let head = self.scratch.head();
        let fields = head.fields().iter().map(|item| (text(head.name(item)), text(head.value(item)))).collect();
        let seen = Seen { method: text(head.method()), path: text(head.path()), fields, ..Seen::default() };
        assert!(self.seen.insert(stream.number(), seen).is_none());
        self.ids.insert(stream.number(), stream);
    }

    fn ended(&mut self, stream: StreamId, end: bool) {
        let seen = self.seen.get_mut(&stream.number()).unwrap();
        assert!(!seen.complete, "something behind the end");
        seen.complete = end;
        match self.app {
            App::Echo if end && seen.body.is_empty() => self.respond(stream, 200, b"hello"),
            App::Echo if end => {
                let body = seen.body.clone();
                self.respond(stream, 200, &body);
            }
            App::Bytes(length) if end => self.respond(stream, 200, &vec![b'x'; length]),
            App::Echo | App::Silent | App::Bytes(_) => {}
        }
    }

    pub(crate) fn respond(&mut self, stream: StreamId, status: u16, body: &[u8]) {
        let Ok(head) = self.connection.start_response(&mut self.scratch, stream, status) else { return };
        self.connection.finish_head(&mut self.out, &mut self.scratch, head, false).unwrap();
        if self.connection.body(&mut self.out, stream, body.len(), true).unwrap() {
            self.bodies.insert(stream.number(), body.to_vec());
        }
    }

    /// Write as much as the windows allow, and release the streams that are over.
    pub(crate) fn flush(&mut self, most: usize) -> bool {
        let bodies = &mut self.bodies;
        let more = self.connection.fill(&mut self.out, most, |part, out| {
            out.extend(bodies.get_mut(&part.stream.number()).unwrap().drain(..part.length));
        });
        for id in self.ids.values() {
            if !self.connection.is_live(*id) && self.seen.get(&id.number()).is_none_or(|seen| seen.reset.is_none()) {
                self.connection.release(&mut self.out, *id);
            }
        }
        self.ids.retain(|_, id| self.connection.is_live(*id));
        more
    }
}

/// The client's view of the answers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) statuses: BTreeMap<u32, Vec<String>>,
    pub(crate) bodies: BTreeMap<u32, Vec<u8>>,
    pub(crate) ended: Vec<u32>,
    /// With other codes than `NO_ERROR`.
    pub(crate) resets: BTreeMap<u32, u32>,
    pub(crate) go_away: Option<u32>,
}

impl Answers {
    pub(crate) fn read(frames: &[Frame]) -> Self {
        let (mut answers, mut decoder) = (Self::default(), Decoder::<()>::new(TABLE_SIZE));
        for frame in frames {
            assert!(!answers.ended.contains(&frame.stream) || frame.kind > 1, "{frame:?} behind the end");
            match frame.kind {
                0 => answers.bodies.entry(frame.stream).or_default().extend_from_slice(&frame.payload),
                1 => {
                    assert_eq!(frame.flags & END_HEADERS, END_HEADERS);
                    let statuses = answers.statuses.entry(frame.stream).or_default();
                    let size = decoder.decode(&frame.payload, 100_000, |field| {
                        if field.name == b":status" {
                            statuses.push(String::from_utf8(field.value.to_vec()).unwrap());
                        }
                    });
                    size.unwrap();
                }
                3 if frame.number(0) != 0 => assert!(answers.resets.insert(frame.stream, frame.number(0)).is_none()),
                7 => answers.go_away = Some(frame.number(4)),
                _ => {}
            }
            if frame.ends() {
                answers.ended.push(frame.stream);
            }
        }
        answers
    }
}
