//! HTTP/2 connections: any clients and applications, any cut of the input, any sharing of the scratch.

use std::collections::{BTreeMap, HashMap};

use wire::Limits;
use wire::h2::frame::{self, PREFACE};
use wire::h2::hpack::{Encoder, Indexing};
use wire::h2::{Connection, ErrorCode, Event, Scratch, Settings, StreamId};

use super::{fingerprint, small};

const SETTINGS: Settings = Settings {
    streams: 4,
    window: 300,
    largest_window: 2000,
    growth: 3000,
    connection_window: 70_000,
    frame: 16_384,
    fields: 400,
    connect_protocol: true,
};

/// The client's limits on its input, by its own settings, and the input it has seen.
struct Client {
    encoder: Encoder,
    next: u32,
    initial: i64,
    connection: i64,
    streams: HashMap<u32, i64>,
    ended: Vec<u32>,
    closed: bool,
}

impl Client {
    fn new() -> Self {
        let (initial, connection) = (65_535, 65_535);
        let (streams, ended) = (HashMap::new(), Vec::new());
        Self { encoder: Encoder::new(), next: 1, initial, connection, streams, ended, closed: false }
    }

    /// Every frame of the server's is one that may come now.
    fn check(&mut self, mut out: &[u8]) {
        while let [a, b, c, kind, flags, rest @ ..] = out {
            assert!(!self.closed, "something behind a GOAWAY that ends all");
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            let stream = u32::from_be_bytes(rest[..4].try_into().unwrap());
            let payload = &rest[4..4 + length];
            out = &rest[4 + length..];
            assert!(length <= 16_384 && (*kind > 1 || !self.ended.contains(&stream)), "{kind} of {stream}");
            match kind {
                0 => {
                    let window = self.streams.entry(stream).or_insert(self.initial);
                    let taken = i64::try_from(length).unwrap();
                    *window -= taken;
                    self.connection -= taken;
                    assert!(length == 0 || *window >= 0 && self.connection >= 0, "more than a window");
                }
                7 => self.closed = payload[4..8] != [0; 4],
                _ => {}
            }
            if *kind == 3 || *kind <= 1 && flags & 1 != 0 {
                self.ended.push(stream);
            }
        }
        assert!(out.is_empty());
    }

    fn request(&mut self, method: &str, end: bool, value: &[u8]) -> Vec<u8> {
        let mut block = Vec::new();
        for (name, value) in [(":method", method), (":scheme", "http"), (":path", "/a?b"), (":authority", "h")] {
            self.encoder.field(&mut block, name.as_bytes(), value.as_bytes(), Indexing::Add);
        }
        if !value.is_empty() {
            self.encoder.field(&mut block, b"x-value", value, Indexing::Add);
        }
        let mut out = Vec::new();
        frame::put_headers(&mut out, self.next, &block, end, 20 + value.len());
        self.streams.insert(self.next, self.initial);
        self.next += 2;
        out
    }
}

/// A connection, its application's state, and all of its events.
struct Peer {
    connection: Connection<Vec<u8>>,
    client: Client,
    input: Vec<u8>,
    out: Vec<u8>,
    streams: BTreeMap<u32, (StreamId, usize)>,
    seen: Vec<(u32, &'static str, Vec<u8>)>,
    failed: bool,
}

impl Peer {
    fn new() -> Self {
        let mut out = Vec::new();
        let connection = Connection::new(SETTINGS, &mut out);
        let mut input = PREFACE.to_vec();
        frame::put_settings(&mut input, &[]);
        frame::put_settings_ack(&mut input);
        let (client, streams, seen) = (Client::new(), BTreeMap::new(), Vec::new());
        Self { connection, client, input, out, streams, seen, failed: false }
    }

    fn note(&mut self, number: u32, what: &'static str, bytes: &[u8]) {
        match self.seen.last_mut() {
            Some((last, "data", data)) if what == "data" && *last == number => data.extend_from_slice(bytes),
            _ => self.seen.push((number, what, bytes.to_vec())),
        }
    }

    fn read(&mut self, scratch: &mut Scratch, limits: &Limits) {
        let input = std::mem::take(&mut self.input);
        let mut at = 0;
        loop {
            let progress = self.connection.poll(&input[at..], &mut self.out, scratch, limits);
            let window = &input[at..];
            at += progress.consumed;
            assert!(matches!(progress.event, Event::Request { .. } | Event::Refused { .. }) || scratch.is_empty());
            match progress.event {
                Event::NeedMore | Event::Closed => break,
                Event::Request { stream, end } => {
                    let text = self.head(scratch);
                    self.open(stream);
                    self.note(stream.number(), if end { "request" } else { "head" }, &text);
                }
                Event::Refused { stream, error } => {
                    if !self.streams.contains_key(&stream.number()) {
                        self.open(stream);
                    }
                    self.note(stream.number(), "refused", &error.status().to_be_bytes());
                }
                Event::Data { stream, data, end } => {
                    assert!(self.streams.contains_key(&stream.number()));
                    self.note(stream.number(), "data", &window[data]);
                    if end {
                        self.note(stream.number(), "end", b"");
                    }
                }
                Event::Reset { stream, code, .. } => {
                    assert!(!self.connection.is_live(stream) && self.streams.contains_key(&stream.number()));
                    self.note(stream.number(), "reset", &code.to_be_bytes());
                }
                Event::Failed(failure) => {
                    self.failed = true;
                    self.note(0, "failed", failure.reason.as_bytes());
                    assert!(self.connection.is_idle() && self.connection.is_over());
                }
                Event::Pong(data) => self.note(0, "pong", &data),
                Event::GoAway { code } => self.note(0, "bye", &code.to_be_bytes()),
            }
        }
        self.input = input[at..].to_vec();
    }

    /// Render a whole request; checks that each slot belongs to its entry.
    fn head(&mut self, scratch: &Scratch) -> Vec<u8> {
        let head = scratch.head();
        let mut text = [head.method(), b" ", head.path(), b"?", head.query()].concat();
        for item in head.fields() {
            let pair = [head.name(item), b"=", head.value(item)].concat();
            if let Some(kept) = item.entry.and_then(|entry| self.connection.kept(entry)) {
                assert_eq!(kept.get_or_insert_with(|| pair.clone()), &pair);
            }
            text.extend(pair);
        }
        text
    }

    fn open(&mut self, stream: StreamId) {
        assert!(stream.place() < SETTINGS.streams as usize);
        assert!(self.streams.insert(stream.number(), (stream, 0)).is_none());
    }

    /// The application's action on one of its streams.
    fn act(&mut self, what: u8, which: usize, amount: usize, scratch: &mut Scratch) {
        let number = self.streams.keys().nth(which % self.streams.len().max(1)).copied();
        let Some((stream, waiting)) = number.and_then(|number| self.streams.get_mut(&number)) else { return };
        let (stream, out) = (*stream, &mut self.out);
        let live = self.connection.is_live(stream);
        match what {
            0 => {
                if let Ok(mut head) = self.connection.start_response(scratch, stream, 200) {
                    head.field(b"x-amount", &vec![b'a'; amount]).unwrap();
                    self.connection.finish_head(out, scratch, head, amount == 1).unwrap();
                }
            }
            1 => {
                if self.connection.body(out, stream, amount * 8, amount & 1 == 1).unwrap_or(false) {
                    *waiting += amount * 8;
                }
            }
            2 => self.connection.consume(out, stream, amount * 4),
            3 => assert_eq!(self.connection.reset(out, stream, ErrorCode::Cancel), live),
            _ => {
                self.connection.release(out, stream);
                self.streams.remove(&stream.number());
            }
        }
        assert!(live || !self.connection.is_live(stream));
    }

    fn fill(&mut self, most: usize) {
        let streams = &mut self.streams;
        self.connection.fill(&mut self.out, most, |part, out| {
            let (stream, waiting) = streams.get_mut(&part.stream.number()).unwrap();
            assert_eq!(*stream, part.stream);
            *waiting -= part.length;
            out.resize(out.len() + part.length, b'z');
        });
    }

    /// Send bytes of the client's, chosen by `what`.
    fn send(&mut self, what: u8, which: u8, data: &[u8]) {
        let (client, mut out) = (&mut self.client, Vec::new());
        let stream = (client.next.saturating_sub(2)).saturating_sub(2 * u32::from(which & 3)) | 1;
        let amount = u32::from(data.first().copied().unwrap_or(0)) * (1 << (which & 15));
        match what {
            0 | 1 => out = client.request("GET", true, data),
            2 => out = client.request("POST", false, data),
            3 | 4 => {
                frame::put_data_head(&mut out, stream, data.len(), what == 4);
                out.extend_from_slice(data);
            }
            5 => frame::put_reset(&mut out, stream, ErrorCode::Cancel),
            6 if amount > 0 => {
                frame::put_window_update(&mut out, stream, amount);
                *client.streams.entry(stream).or_insert(client.initial) += i64::from(amount);
            }
            7 if amount > 0 => {
                frame::put_window_update(&mut out, 0, amount);
                client.connection += i64::from(amount);
            }
            8 => {
                frame::put_settings(&mut out, &[(1, amount), (4, amount)]);
                for window in client.streams.values_mut() {
                    *window += i64::from(amount) - client.initial;
                }
                client.initial = i64::from(amount);
            }
            9 => frame::put_ping(&mut out, [which; 8], which & 1 == 0),
            // What could be anything, but for windows, of which the model has to know.
            _ => {
                let known = [2, 5, 7, 9, 16, 0xfa, 6, 3];
                let kind = known[usize::from(which >> 4 & 7)];
                out.extend_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
                out.extend_from_slice(&[kind, which, 0, 0, 0, which & 7]);
                out.extend_from_slice(data);
            }
        }
        self.input.extend_from_slice(&out);
    }
}

/// One step of a script, for a peer; its input comes in pieces of `piece` bytes.
fn step(peer: &mut Peer, what: u8, which: u8, data: &[u8], piece: usize, scratch: &mut Scratch, limits: &Limits) {
    if what & 16 == 0 {
        let kept = peer.input.len();
        peer.send(what & 15, which, data);
        let new = peer.input.split_off(kept);
        for piece in new.chunks(piece) {
            peer.input.extend_from_slice(piece);
            peer.read(scratch, limits);
        }
    } else if what & 8 == 0 {
        peer.act(what & 7, usize::from(which), data.len(), scratch);
    } else {
        peer.fill(usize::from(which) * 8);
    }
    let out = std::mem::take(&mut peer.out);
    peer.client.check(&out);
    peer.seen.push((u32::MAX, "out", out));
}

/// Whether two peers have seen the same; neighbouring data is one.
fn same(one: &Peer, other: &Peer) {
    assert_eq!(one.seen, other.seen);
    assert_eq!(one.failed, other.failed);
}

/// The first byte says which limits; then come steps of three bytes and what they say: what, on which connection and stream,
/// how many bytes follow. Two connections share a scratch and get their input as it comes; two have one of their own and get it
/// byte by byte.
pub fn h2_connection(data: &[u8]) -> u64 {
    let [control, rest @ ..] = data else { return 0 };
    let mut rest = rest;
    let limits = if control & 1 == 1 { small() } else { Limits::default() };
    let mut shared = Scratch::default();
    let mut own = [Scratch::default(), Scratch::default()];
    let (mut peers, mut alone) = ([Peer::new(), Peer::new()], [Peer::new(), Peer::new()]);
    for peer in &mut peers {
        peer.read(&mut shared, &limits);
    }
    for (peer, scratch) in alone.iter_mut().zip(&mut own) {
        peer.read(scratch, &limits);
    }
    while let [what, which, length, behind @ ..] = rest {
        let (data, behind) = behind.split_at(behind.len().min(usize::from(*length) % 64));
        rest = behind;
        let at = usize::from(what >> 7);
        step(&mut peers[at], *what, *which, data, usize::MAX, &mut shared, &limits);
        step(&mut alone[at], *what, *which, data, 1, &mut own[at], &limits);
    }
    for (one, other) in peers.iter().zip(&alone) {
        same(one, other);
    }
    let outcome = |peer: &Peer| {
        let kinds: Vec<_> = peer.seen.iter().map(|(_, what, bytes)| (*what, bytes.len().min(2))).collect();
        fingerprint(&(kinds, peer.failed))
    };
    fingerprint(&(outcome(&peers[0]), outcome(&peers[1])))
}
