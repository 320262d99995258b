//! HTTP/3 without QUIC: a server that reads the bytes of streams and answers, and a client that reads its output.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "not production code"
)]

use std::collections::{BTreeMap, BTreeSet};

use wire::Limits;
use wire::h3::{Channel, Connection, Event, Failure, Scratch, Settings, StreamId, UniStream};
use wire::qpack::{Decoded, Decoder, Encoder, Indexing, Section};

pub(crate) const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":authority", "host"), (":path", "/")];
pub(crate) const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "https"), (":authority", "host"), (":path", "/")];

/// An integer of variable size.
pub(crate) fn varint(value: u64) -> Vec<u8> {
    match value {
        0..0x40 => vec![u8::try_from(value).unwrap()],
        0x40..0x4000 => (u16::try_from(value).unwrap() | 0x4000).to_be_bytes().to_vec(),
        0x4000..0x4000_0000 => (u32::try_from(value).unwrap() | 0x8000_0000).to_be_bytes().to_vec(),
        _ => (value | 0xc000_0000_0000_0000).to_be_bytes().to_vec(),
    }
}

pub(crate) fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    [&varint(kind), &varint(payload.len() as u64), payload].concat()
}

/// A section without references to a dynamic table.
pub(crate) fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let (mut section, mut out) = (Section::default(), Vec::new());
    for (name, value) in fields {
        section.push(name.as_bytes(), value.as_bytes(), Indexing::Without);
    }
    Encoder::new(0).section(0, &section, &mut out, &mut Vec::new());
    out
}

pub(crate) fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    frame(1, &section(fields))
}

pub(crate) fn data(data: &[u8]) -> Vec<u8> {
    frame(0, data)
}

/// The type of the control stream and settings.
pub(crate) fn hello(settings: &[(u64, u64)]) -> Vec<u8> {
    let payload: Vec<u8> =
        settings.iter().flat_map(|&(identifier, value)| [varint(identifier), varint(value)].concat()).collect();
    [vec![0], frame(4, &payload)].concat()
}

/// Something that happens to a stream.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Bytes { stream: u64, data: Vec<u8>, end: bool },
    Reset { stream: u64 },
    Stop { stream: u64 },
}

pub(crate) fn bytes(stream: u64, data: &[u8], end: bool) -> Step {
    Step::Bytes { stream, data: data.to_vec(), end }
}

/// A request as the application gets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) complete: bool,
    pub(crate) reset: Option<u64>,
    pub(crate) refused: Option<u16>,
    pub(crate) refused_at_once: bool,
}

/// The application's reaction to a request that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum App {
    /// Answers 200 with its body, or `hello`.
    Echo,
    /// Never answers, and never reads.
    Silent,
}

/// A server for tests.
pub(crate) struct Server {
    pub(crate) connection: Connection<String>,
    pub(crate) app: App,
    pub(crate) limits: Limits,
    pub(crate) scratch: Scratch,
    pub(crate) seen: BTreeMap<u64, Seen>,
    pub(crate) ids: BTreeMap<u64, StreamId>,
    unis: BTreeMap<u64, UniStream>,
    /// The rest of the input of blocked streams.
    pub(crate) kept: BTreeMap<u64, (Vec<u8>, bool)>,
    /// The output of request streams, and those that have ended.
    pub(crate) out: BTreeMap<u64, Vec<u8>>,
    pub(crate) ended: Vec<u64>,
    /// The output of the server's own streams.
    pub(crate) own: [Vec<u8>; 3],
    /// Codes of the resets of the server's will.
    pub(crate) resets: BTreeMap<u64, u64>,
    /// Streams that are read no further.
    pub(crate) stopped: BTreeSet<u64>,
    pub(crate) failure: Option<Failure>,
    pub(crate) go_away: bool,
}

impl Server {
    pub(crate) fn new(app: App, settings: Settings) -> Self {
        Self {
            connection: Connection::new(settings),
            app,
            limits: Limits::default(),
            scratch: Scratch::default(),
            seen: BTreeMap::new(),
            ids: BTreeMap::new(),
            unis: BTreeMap::new(),
            kept: BTreeMap::new(),
            out: BTreeMap::new(),
            ended: Vec::new(),
            own: Default::default(),
            resets: BTreeMap::new(),
            stopped: BTreeSet::new(),
            failure: None,
            go_away: false,
        }
    }

    /// One that knows its client, which has a table of 4 KiB.
    pub(crate) fn ready(app: App) -> Self {
        let mut server = Self::new(app, Settings::default());
        server.step(&bytes(2, &hello(&[(1, 4096), (7, 16)]), false));
        server
    }

    pub(crate) fn step(&mut self, step: &Step) {
        match step {
            Step::Bytes { stream, data, end } => self.receive(*stream, data, *end),
            Step::Reset { stream } | Step::Stop { stream } if stream.is_multiple_of(4) => {
                let Some(id) = self.open(*stream) else { return };
                let event = match step {
                    Step::Reset { .. } => self.connection.reset_by_client(id, 0x10c),
                    _ => self.connection.stopped_by_client(id, 0x10c),
                };
                self.event(event, &[]);
            }
            Step::Reset { stream } => {
                let event = self.connection.reset_uni(self.unis.entry(*stream).or_default());
                self.event(event, &[]);
            }
            Step::Stop { .. } => {
                let event = self.connection.stopped_own();
                self.event(event, &[]);
            }
        }
        self.write();
    }

    /// Write to the server's own streams.
    pub(crate) fn write(&mut self) {
        for (channel, own) in Channel::ALL.into_iter().zip(&mut self.own) {
            let length = self.connection.output(channel).len();
            own.extend_from_slice(self.connection.output(channel));
            self.connection.written(channel, length);
        }
    }

    fn open(&mut self, stream: u64) -> Option<StreamId> {
        if self.ids.contains_key(&stream) || self.stopped.contains(&stream) || self.failure.is_some() {
            return self.ids.get(&stream).copied();
        }
        match self.connection.open(stream) {
            Ok(Some(id)) => drop(self.ids.insert(stream, id)),
            Ok(None) => {
                self.resets.insert(stream, 0x10b);
                self.stopped.insert(stream);
            }
            Err(failure) => self.failure = Some(failure),
        }
        self.ids.get(&stream).copied()
    }

    pub(crate) fn receive(&mut self, stream: u64, data: &[u8], end: bool) {
        if self.stopped.contains(&stream) {
            return;
        }
        if let Some((kept, ends)) = self.kept.get_mut(&stream) {
            kept.extend_from_slice(data);
            *ends = end;
            return;
        }
        let mut at = 0;
        loop {
            let rest = &data[at..];
            let progress = if stream.is_multiple_of(4) {
                let Some(id) = self.open(stream) else { return };
                self.connection.receive(id, rest, end, &mut self.scratch, &self.limits)
            } else {
                let uni = self.unis.entry(stream).or_default();
                self.connection.receive_uni(uni, rest, end)
            };
            at += progress.consumed;
            let is_request = matches!(progress.event, Event::Request { .. } | Event::Refused { .. });
            assert!(is_request || self.scratch.is_empty());
            match progress.event {
                Event::Blocked { .. } => {
                    self.kept.insert(stream, (data[at..].to_vec(), end));
                    return;
                }
                Event::Stop { code } => {
                    assert_eq!(code.number(), 0x103);
                    self.stopped.insert(stream);
                    return;
                }
                Event::NeedMore | Event::Closed => {
                    assert_eq!(at, data.len());
                    return;
                }
                event => {
                    let over = matches!(event, Event::Reset { .. } | Event::Failed(_));
                    self.event(event, rest);
                    if over {
                        assert_eq!(at, data.len());
                        return;
                    }
                }
            }
        }
    }

    fn event(&mut self, event: Event, window: &[u8]) {
        match event {
            Event::Request { stream, end } => {
                self.note(stream);
                self.ended(stream, end);
            }
            Event::Data { stream, data, end } => {
                let data = window[data].to_vec();
                self.seen.get_mut(&stream.number()).unwrap().body.extend_from_slice(&data);
                if self.app != App::Silent {
                    self.connection.consume(data.len(), 1);
                }
                self.ended(stream, end);
            }
            Event::Refused { stream, error } => {
                let at_once = !self.seen.contains_key(&stream.number());
                if at_once {
                    self.note(stream);
                }
                let seen = self.seen.get_mut(&stream.number()).unwrap();
                (seen.refused, seen.refused_at_once) = (Some(error.status()), at_once);
                self.stopped.insert(stream.number());
                self.respond(stream, error.status(), b"no");
            }
            Event::Reset { stream, code, ours } => {
                self.kept.remove(&stream.number());
                if let Some(seen) = self.seen.get_mut(&stream.number()) {
                    seen.reset = Some(code);
                }
                if ours {
                    self.resets.insert(stream.number(), code);
                }
                self.connection.release(stream);
            }
            Event::Unblocked { stream } => {
                let (rest, end) = self.kept.remove(&stream.number()).unwrap();
                self.receive(stream.number(), &rest, end);
            }
            Event::GoAway => self.go_away = true,
            Event::Failed(failure) => self.failure = Some(failure),
            Event::NeedMore | Event::Closed | Event::Blocked { .. } | Event::Stop { .. } => {}
        }
    }

    fn note(&mut self, stream: StreamId) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let head = self.scratch.head();
        let mut fields = Vec::new();
        for item in head.fields() {
            let pair = (text(head.name(item)), text(head.value(item)));
            // The slot of an entry belongs to its field.
            if let Some(kept) = item.entry.and_then(|entry| self.connection.kept(entry)) {
                let whole = format!("{}: {}", pair.0, pair.1);
                assert_eq!(kept.get_or_insert_with(|| whole.clone()), &whole);
            }
            fields.push(pair);
        }
        let seen = Seen { method: text(head.method()), path: text(head.path()), fields, ..Seen::default() };
        assert!(self.seen.insert(stream.number(), seen).is_none());
    }

    fn ended(&mut self, stream: StreamId, end: bool) {
        let seen = self.seen.get_mut(&stream.number()).unwrap();
        assert!(!seen.complete, "something behind the end");
        seen.complete = end;
        if self.app == App::Echo && end {
            let body = if seen.body.is_empty() { b"hello".to_vec() } else { seen.body.clone() };
            self.respond(stream, 200, &body);
        }
    }

    pub(crate) fn respond(&mut self, stream: StreamId, status: u16, body: &[u8]) {
        let Ok(head) = self.connection.start_response(&mut self.scratch, stream, status) else { return };
        let out = self.out.entry(stream.number()).or_default();
        self.connection.finish_head(out, &mut self.scratch, head, false).unwrap();
        if self.connection.body(out, stream, body.len(), true).unwrap() {
            out.extend_from_slice(body);
        }
        self.finish(stream);
    }

    /// All of a response was written.
    pub(crate) fn finish(&mut self, stream: StreamId) {
        assert!(self.connection.has_ended(stream));
        self.ended.push(stream.number());
        if self.connection.complete(stream).is_some() {
            self.stopped.insert(stream.number());
        }
        if !self.connection.is_live(stream) {
            self.connection.release(stream);
        }
    }

    /// The client's view of the answers.
    pub(crate) fn answers(&self) -> BTreeMap<u64, Answer> {
        let mut decoder = Decoder::<()>::new(4096);
        let mut instructions = &self.own[1][1..];
        while !instructions.is_empty() {
            let (length, _) = decoder.instruction(instructions).unwrap().expect("whole instructions");
            instructions = &instructions[length..];
        }
        let one = |(&stream, out): (&u64, &Vec<u8>)| (stream, Answer::read(out, stream, &mut decoder));
        self.out.iter().map(one).collect()
    }
}

/// An answer as a client reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) sections: Vec<Vec<(String, String)>>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    fn read(mut out: &[u8], stream: u64, decoder: &mut Decoder) -> Self {
        let mut answer = Self::default();
        while !out.is_empty() {
            let (kind, length) = (take(&mut out), usize::try_from(take(&mut out)).unwrap());
            let (payload, rest) = out.split_at(length);
            out = rest;
            match kind {
                0 => answer.body.extend_from_slice(payload),
                1 => {
                    let mut fields = Vec::new();
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let decoded = decoder.decode(stream, payload, usize::MAX, |field| {
                        fields.push((text(field.name), text(field.value)));
                    });
                    assert!(matches!(decoded, Ok(Decoded::Whole(_))), "{decoded:?}");
                    answer.sections.push(fields);
                }
                other => panic!("frame of type {other:#x}"),
            }
        }
        answer
    }

    pub(crate) fn status(&self) -> &str {
        &self.sections[0][0].1
    }
}

/// Take an integer of variable size.
pub(crate) fn take(input: &mut &[u8]) -> u64 {
    let length = 1 << (input[0] >> 6);
    let (bytes, rest) = input.split_at(length);
    *input = rest;
    let value = bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
    value & u64::MAX >> (66 - 8 * length)
}
