//! Nanoseconds per operation of HTTP/3's paths, and bytes of an idle connection. `cargo bench --bench h3`, or one case under a profiler:
//! `valgrind --tool=callgrind <binary> --once get`, which runs 10,000 operations. The cases are those of `h2`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "not production code"
)]

mod common;
#[path = "common/requests.rs"]
mod requests;

use std::hint::black_box;

use wire::Limits;
use wire::h3::{Channel, Connection, Event, Scratch, Settings, StreamId, UniStream};
use wire::qpack::{Encoder, Indexing, Section};

use common::time;
use requests::BROWSER;

/// How often each operation runs to be timed.
const ROUNDS: u32 = 100_000;

const GET: [(&str, &str); 5] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":path", "/"),
    (":authority", "127.0.0.1:8000"),
    ("user-agent", "h2load nghttp2/1.59.0"),
];

/// Append an integer of QUIC that takes two bytes at most.
fn put_varint(out: &mut Vec<u8>, value: usize) {
    match u8::try_from(value) {
        Ok(small @ 0..0x40) => out.push(small),
        _ => out.extend_from_slice(&(u16::try_from(value).unwrap() | 0x4000).to_be_bytes()),
    }
}

/// A connection, and its client.
struct Pair {
    connection: Connection<u32>,
    scratch: Scratch,
    limits: Limits,
    out: Vec<u8>,
    encoder: Encoder,
    decoder_stream: UniStream,
    encoder_stream: UniStream,
    input: Vec<u8>,
    number: u64,
    /// What the server has acknowledged in the last round.
    acknowledged: Vec<u8>,
}

impl Pair {
    fn new() -> Self {
        let mut connection = Connection::new(Settings::default());
        let [mut control, mut encoder_stream, mut decoder_stream] = std::array::from_fn(|_| UniStream::default());
        connection.receive_uni(&mut control, b"\0\x04\x05\x01\x50\0\x07\x10", false);
        connection.receive_uni(&mut encoder_stream, b"\x02", false);
        connection.receive_uni(&mut decoder_stream, b"\x03", false);
        let (mut encoder, mut instructions) = (Encoder::new(4096), Vec::new());
        encoder.set_limit(4096, &mut instructions);
        connection.receive_uni(&mut encoder_stream, &instructions, false);
        connection.written(Channel::Decoder, 1);
        Self {
            connection,
            scratch: Scratch::default(),
            limits: Limits::default(),
            out: Vec::new(),
            encoder,
            decoder_stream,
            encoder_stream,
            input: Vec::new(),
            number: 400,
            acknowledged: Vec::new(),
        }
    }

    fn request(&mut self, fields: &[(&str, &str)]) {
        let mut section = Section::default();
        for (name, value) in fields {
            section.push(name.as_bytes(), value.as_bytes(), Indexing::Add);
        }
        let (mut block, mut instructions) = (Vec::new(), Vec::new());
        self.encoder.section(self.number, &section, &mut block, &mut instructions);
        self.connection.receive_uni(&mut self.encoder_stream, &instructions, false);
        self.input.clear();
        self.input.push(1);
        put_varint(&mut self.input, block.len());
        self.input.extend_from_slice(&block);
    }

    /// A connection whose tables know the fields, and the client's bytes.
    fn warm(fields: &[(&str, &str)]) -> Self {
        let mut pair = Self::new();
        for round in 0..3 {
            pair.request(fields);
            pair.get();
            let mut acknowledged = pair.acknowledged.as_slice();
            while let Ok(Some((length, _))) = pair.encoder.instruction(acknowledged) {
                acknowledged = &acknowledged[length..];
            }
            if round == 0 {
                // The client has got the date, the server and the type.
                pair.connection.receive_uni(&mut pair.decoder_stream, &[3], false);
            }
        }
        pair.request(fields);
        pair
    }

    /// A request that is answered: the same bytes, on the next stream.
    fn get(&mut self) {
        let Self { connection, scratch, limits, out, input, number, decoder_stream, acknowledged, .. } = self;
        out.clear();
        let stream = connection.open(*number).unwrap().unwrap();
        let progress = connection.receive(stream, black_box(input), true, scratch, limits);
        let Event::Request { stream, end: true } = progress.event else { panic!("{progress:?}") };
        for item in scratch.head().fields() {
            if let Some(kept) = item.entry.and_then(|entry| connection.kept(entry)) {
                black_box(kept.get_or_insert(1));
            }
        }
        let mut head = connection.start_response(scratch, stream, 200).unwrap();
        head.field(black_box(b"date"), b"Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        head.field(black_box(b"server"), b"uvicorn").unwrap();
        head.field(black_box(b"content-type"), b"text/plain; charset=utf-8").unwrap();
        head.field(black_box(b"content-length"), b"13").unwrap();
        connection.finish_head(out, scratch, head, false).unwrap();
        let refers = out[3] != 0;
        assert!(connection.body(out, stream, 13, true).unwrap());
        out.extend_from_slice(b"Hello, world!");
        connection.ready(stream);
        let turn = connection.turn().unwrap();
        connection.sent(turn.stream, out.len(), false, false);
        assert_eq!(connection.complete(stream), None);
        connection.release(stream);
        acknowledged.clear();
        acknowledged.extend_from_slice(connection.output(Channel::Decoder));
        connection.written(Channel::Decoder, acknowledged.len());
        if refers {
            // The client has read the head.
            let progress = connection.receive_uni(decoder_stream, acknowledgement(*number).as_slice(), false);
            assert_eq!(progress.event, Event::NeedMore);
        }
        *number += 4;
        black_box(&self.out);
    }

    /// A mebibyte of a body, in frames of 16 KiB.
    fn upload(&mut self, stream: StreamId, frames: &[u8]) {
        let Self { connection, scratch, limits, .. } = self;
        let mut at = 0;
        loop {
            let progress = connection.receive(stream, black_box(&frames[at..]), false, scratch, limits);
            at += progress.consumed;
            match progress.event {
                Event::Data { data, .. } => connection.consume(data.len(), 1),
                Event::NeedMore => break,
                other => panic!("{other:?}"),
            }
        }
    }
}

/// An acknowledgement of a section of a stream, of five bytes.
fn acknowledgement(stream: u64) -> [u8; 5] {
    let rest = stream - 127;
    [0xff, rest as u8 | 0x80, (rest >> 7) as u8 | 0x80, (rest >> 14) as u8 | 0x80, (rest >> 21) as u8 & 0x7f]
}

/// Bytes that this process holds.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

/// The memory of a connection that has served a hundred requests, and has none in hand.
fn idle() {
    const COUNT: usize = 5000;
    let make = || {
        let mut pair = Pair::warm(&BROWSER);
        (0..98).for_each(|_| pair.get());
        pair.connection
    };
    let mut connections = Vec::with_capacity(COUNT + 100);
    connections.extend((0..100).map(|_| make()));
    let before = resident();
    connections.extend((0..COUNT).map(|_| make()));
    println!("{:24} {:8} bytes", "idle_connection", (resident() - before) / COUNT);
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let once = arguments.iter().position(|argument| argument == "--once").and_then(|at| arguments.get(at + 1));
    let run = |name: &str| once.is_none_or(|only| only == name);
    for (name, fields) in [("get", &GET[..]), ("get_browser", &BROWSER)] {
        if run(name) {
            let mut pair = Pair::warm(fields);
            time(name, once.is_some(), ROUNDS, || pair.get());
        }
    }
    if once.is_none() && cfg!(target_os = "linux") {
        idle();
    }
    if run("upload_mebibyte") {
        let mut pair = Pair::new();
        pair.request(&[(":method", "POST"), GET[1], GET[2], GET[3]]);
        let input = std::mem::take(&mut pair.input);
        let stream = pair.connection.open(0).unwrap().unwrap();
        pair.connection.receive(stream, &input, false, &mut pair.scratch, &pair.limits);
        let mut frames = Vec::new();
        for _ in 0..64 {
            frames.push(0);
            frames.extend_from_slice(&(16_384_u32 | 0x8000_0000).to_be_bytes());
            frames.resize(frames.len() + 16_384, b'a');
        }
        time("upload_mebibyte", once.is_some(), ROUNDS, || pair.upload(stream, &frames));
    }
}
