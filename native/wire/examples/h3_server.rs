//! A server without QUIC, for `scripts/http3-oracle`: pieces of streams on standard input, and on standard output what it sends.
//!
//! ```text
//!   piece   number of the stream (8 bytes), 1 if it ends with it (1 byte), length (4 bytes), bytes        integers are big-endian
//!   answer  pieces of any streams, then one of stream 2^64 - 1, whose bytes are the reason of a failure
//! ```
//!
//! It answers with the body of a request, its fields whose names begin with `x-`, and some that are the same each time; with
//! trailers if the path is `/trailers`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "not production code"
)]

use std::io::{Read, Write, stdin, stdout};

use wire::h1::Trailers;
use wire::h3::Settings;

#[path = "../tests/support/h3.rs"]
mod support;

use support::{App, Server, Step};

/// The numbers of the server's own streams.
const OWN: [u64; 3] = [3, 7, 11];

fn put(out: &mut Vec<u8>, stream: u64, end: bool, bytes: &[u8]) {
    out.extend_from_slice(&stream.to_be_bytes());
    out.push(u8::from(end));
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_be_bytes());
    out.extend_from_slice(bytes);
}

/// Answer a request that is complete.
fn respond(server: &mut Server, stream: u64) {
    let (seen, id) = (server.seen[&stream].clone(), server.ids[&stream]);
    let Server { connection, scratch, out, .. } = server;
    let out = out.entry(stream).or_default();
    connection.interim(out, scratch, id, 103, [(&b"link"[..], &b"</style.css>"[..])]).unwrap();
    let mut head = connection.start_response(scratch, id, 200).unwrap();
    head.field(b"server", b"a server with a name").unwrap();
    head.field(b"date", format!("second {}", stream / 20).as_bytes()).unwrap();
    for (name, value) in seen.fields.iter().filter(|(name, _)| name.starts_with("x-")) {
        head.field(name.as_bytes(), value.as_bytes()).unwrap();
    }
    connection.finish_head(out, scratch, head, false).unwrap();
    let trailers = seen.path == "/trailers";
    if connection.body(out, id, seen.body.len(), !trailers).unwrap() {
        out.extend_from_slice(&seen.body);
    }
    if trailers {
        let mut fields = Trailers::default();
        fields.add(b"x-check", b"complete").unwrap();
        connection.trailers(out, scratch, id, &fields).unwrap();
    }
    server.finish(id);
}

fn main() {
    let (mut server, mut input, mut output) = (Server::new(App::Silent, Settings::default()), stdin(), stdout());
    let mut own = [0; 3];
    let mut head = [0; 13];
    while input.read_exact(&mut head).is_ok() {
        let stream = u64::from_be_bytes(head[..8].try_into().unwrap());
        let mut data = vec![0; u32::from_be_bytes(head[9..].try_into().unwrap()) as usize];
        input.read_exact(&mut data).unwrap();
        server.step(&Step::Bytes { stream, data, end: head[8] == 1 });
        let complete: Vec<u64> =
            server.seen.iter().filter(|(_, seen)| seen.complete).map(|(stream, _)| *stream).collect();
        for stream in complete {
            respond(&mut server, stream);
        }
        server.write();
        let mut out = Vec::new();
        for ((number, bytes), at) in OWN.iter().zip(&server.own).zip(&mut own) {
            put(&mut out, *number, false, &bytes[*at..]);
            *at = bytes.len();
        }
        for (stream, bytes) in std::mem::take(&mut server.out) {
            put(&mut out, stream, true, &bytes);
            server.seen.remove(&stream);
        }
        put(&mut out, u64::MAX, true, server.failure.map_or("", |failure| failure.reason).as_bytes());
        output.write_all(&out).unwrap();
        output.flush().unwrap();
    }
}
