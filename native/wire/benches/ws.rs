//! Nanoseconds per operation of WebSocket, and per byte of its masking. `cargo bench --bench ws`, or one case under a
//! profiler, as with `h1`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "not production code"
)]

mod common;

use std::hint::black_box;

use wire::ws::mask::Mask;
use wire::ws::{Agreement, Connection, Event, Kind, Limits, Settings, StreamPool};

use common::time;

const TEXT: &[u8] = br#"{"id":12345,"user":"alice","text":"hello there, how are you?"} "#;

/// How often to repeat an operation on this many bytes.
fn rounds(bytes: usize) -> u32 {
    u32::try_from((50_000_000 / (bytes + 100)).clamp(20, 200_000)).unwrap()
}

/// A frame as a client sends it; the mask is not in step with the payload.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        length @ 0..=125 => frame.push(0x80 | length as u8),
        length @ 126..=0xFFFF => {
            frame.push(0xFE);
            frame.extend((length as u16).to_be_bytes());
        }
        length => {
            frame.push(0xFF);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend([0x37, 0xfa, 0x21, 0x3d]);
    let start = frame.len();
    frame.extend_from_slice(payload);
    Mask::new([0x37, 0xfa, 0x21, 0x3d]).apply(&mut frame[start..]);
    frame
}

/// Read one message from a copy of `bytes`; the copy is what the kernel would make.
fn read(connection: &mut Connection, bytes: &[u8], input: &mut [u8], pool: &mut StreamPool, limits: &Limits) -> usize {
    input.copy_from_slice(black_box(bytes));
    let progress = connection.poll(input, pool, limits);
    let Event::Message { payload, .. } = progress.event else { panic!("no message: {progress:?}") };
    let length = payload.of(input).len();
    if let wire::ws::Payload::Assembled(buffer) = payload {
        pool.recycle(buffer);
    }
    length
}

fn agreement(reset: bool) -> Agreement {
    Agreement { client_bits: 12, client_is_told: true, server_bits: 12, client_reset: reset, server_reset: reset }
}

fn plain(once: &dyn Fn(&str) -> Option<bool>, name: &str, kind: Kind, size: usize) {
    let (limits, mut pool, mut connection) = (Limits::default(), StreamPool::default(), Connection::new(None));
    let payload: Vec<u8> = TEXT.iter().copied().cycle().take(size).collect();
    let bytes = frame(if kind == Kind::Text { 0x81 } else { 0x82 }, &payload);
    let (mut input, mut out) = (bytes.clone(), Vec::new());
    if let Some(once) = once(&format!("read_{name}")) {
        time(&format!("read_{name}"), once, rounds(size), || {
            black_box(read(&mut connection, &bytes, &mut input, &mut pool, &limits));
        });
    }
    if let Some(once) = once(&format!("write_{name}")) {
        time(&format!("write_{name}"), once, rounds(size), || {
            out.clear();
            connection.message(&mut out, kind, black_box(&payload), &mut pool).unwrap();
            black_box(&out);
        });
    }
}

fn deflated(once: &dyn Fn(&str) -> Option<bool>, name: &str, size: usize, level: u8, reset: bool) {
    let limits = Limits::default();
    let mut pool = StreamPool::new(Settings { level, ..Settings::default() });
    let (mut server, mut client) = (Connection::new(Some(agreement(reset))), Connection::new(Some(agreement(true))));
    let payload: Vec<u8> = TEXT.iter().copied().cycle().take(size).collect();
    let mut out = Vec::new();
    let (writing, reading) = (format!("deflate_{name}_level_{level}"), format!("inflate_{name}_level_{level}"));
    if let Some(once) = once(&writing) {
        time(&writing, once, rounds(size * 4), || {
            out.clear();
            server.message(&mut out, Kind::Text, black_box(&payload), &mut pool).unwrap();
            black_box(&out);
        });
        println!("{:40} {:12} bytes", "", out.len());
    }
    out.clear();
    client.message(&mut out, Kind::Text, &payload, &mut pool).unwrap();
    let start = if out[1] == 126 { 4 } else { 2 };
    let bytes = frame(0xC1, &out[start..]);
    let mut input = bytes.clone();
    if let Some(once) = once(&reading) {
        time(&reading, once, rounds(size * 4), || {
            black_box(read(&mut server, &bytes, &mut input, &mut pool, &limits));
        });
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let once = arguments.iter().any(|argument| argument == "--once");
    let names: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    let wanted = |name: &str| (names.is_empty() || names.iter().any(|other| *other == name)).then_some(once);

    let (mut data, mut copy) = (vec![7; 1 << 20], vec![0; 1 << 20]);
    if let Some(once) = wanted("memcpy_1m") {
        time("memcpy_1m", once, rounds(1 << 20), || {
            copy.copy_from_slice(black_box(&data));
            black_box(&copy);
        });
    }
    for offset in [0, 1] {
        let name = format!("unmask_1m_offset_{offset}");
        if let Some(once) = wanted(&name) {
            time(&name, once, rounds(1 << 20), || Mask::new([1, 2, 3, 4]).apply(black_box(&mut data[offset..])));
        }
    }
    for (name, size) in [("64", 64), ("16k", 16 << 10), ("1m", 1 << 20)] {
        plain(&wanted, &format!("binary_{name}"), Kind::Binary, size);
        plain(&wanted, &format!("text_{name}"), Kind::Text, size);
    }
    for (level, reset) in [(1, false), (1, true), (3, false), (6, false)] {
        let reset_name = if reset { "_reset" } else { "" };
        deflated(&wanted, &format!("64{reset_name}"), 64, level, reset);
        deflated(&wanted, &format!("16k{reset_name}"), 16 << 10, level, reset);
    }
}
