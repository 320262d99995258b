//! Nanoseconds per operation of HTTP/2's paths, and bytes of an idle connection. `cargo bench --bench h2`, or one case under a profiler:
//! `valgrind --tool=callgrind <binary> --once get`, which runs 10,000 operations.

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
use wire::h2::frame::{self, PREFACE};
use wire::h2::hpack::{Encoder, Indexing};
use wire::h2::{Connection, Event, Scratch, Settings};

use common::time;
use requests::BROWSER;

/// How often each operation runs to be timed.
const ROUNDS: u32 = 100_000;

const GET: [(&str, &str); 5] = [
    (":method", "GET"),
    (":scheme", "http"),
    (":path", "/"),
    (":authority", "127.0.0.1:8000"),
    ("user-agent", "h2load nghttp2/1.59.0"),
];

/// A connection, and its client.
struct Pair {
    connection: Connection<u32>,
    scratch: Scratch,
    limits: Limits,
    out: Vec<u8>,
    encoder: Encoder,
    input: Vec<u8>,
    number: u32,
}

impl Pair {
    fn new() -> Self {
        let mut out = Vec::new();
        let mut connection = Connection::new(Settings::default(), &mut out);
        let (mut scratch, limits, mut input) = (Scratch::default(), Limits::default(), PREFACE.to_vec());
        frame::put_settings(&mut input, &[]);
        frame::put_settings_ack(&mut input);
        connection.poll(&input, &mut out, &mut scratch, &limits);
        Self { connection, scratch, limits, out, encoder: Encoder::new(), input, number: 1 }
    }

    fn request(&mut self, fields: &[(&str, &str)], end: bool) {
        let mut block = Vec::new();
        for (name, value) in fields {
            self.encoder.field(&mut block, name.as_bytes(), value.as_bytes(), Indexing::Add);
        }
        self.input.clear();
        frame::put_headers(&mut self.input, self.number, &block, end, 16_384);
        // A client's window updates behind it.
        frame::put_window_update(&mut self.input, 0, 13);
    }

    /// A connection whose tables know the fields, and the client's bytes.
    fn warm(fields: &[(&str, &str)]) -> Self {
        let mut pair = Self::new();
        for _ in 0..2 {
            pair.request(fields, true);
            pair.get();
        }
        pair
    }

    /// A request that is answered: the same bytes, but for the number.
    fn get(&mut self) {
        let Self { connection, scratch, limits, out, input, number, .. } = self;
        input[5..9].copy_from_slice(&number.to_be_bytes());
        *number += 2;
        out.clear();
        let progress = connection.poll(black_box(input), out, scratch, limits);
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
        connection.body(out, stream, 13, true).unwrap();
        connection.fill(out, 65_536, |_, out| out.extend_from_slice(b"Hello, world!"));
        connection.release(out, stream);
        let progress = connection.poll(&input[progress.consumed..], out, scratch, limits);
        assert_eq!(progress.event, Event::NeedMore);
        black_box(&self.out);
    }

    /// A mebibyte of a body, in frames of 16 KiB.
    fn upload(&mut self, frames: &[u8]) {
        let Self { connection, scratch, limits, out, .. } = self;
        out.clear();
        let mut at = 0;
        loop {
            let progress = connection.poll(black_box(&frames[at..]), out, scratch, limits);
            at += progress.consumed;
            match progress.event {
                Event::Data { stream, data, .. } => connection.consume(out, stream, data.len()),
                Event::NeedMore => break,
                other => panic!("{other:?}"),
            }
        }
    }
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
        pair.request(&[(":method", "POST"), GET[1], GET[2], GET[3]], false);
        let input = std::mem::take(&mut pair.input);
        pair.connection.poll(&input, &mut pair.out, &mut pair.scratch, &pair.limits);
        let mut frames = Vec::new();
        for _ in 0..64 {
            frame::put_data_head(&mut frames, 1, 16_384, false);
            frames.resize(frames.len() + 16_384, b'a');
        }
        time("upload_mebibyte", once.is_some(), ROUNDS, || pair.upload(&frames));
    }
}
