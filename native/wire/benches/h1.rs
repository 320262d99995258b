//! Nanoseconds per operation of the paths every request takes. `cargo bench`, or one case under a profiler:
//! `valgrind --tool=callgrind <binary> --once parse_browser`, which runs 10,000 operations.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "not production code"
)]

mod common;

use std::hint::black_box;

use wire::h1::{Chunked, Connection, Event, Head, Scratch, Status};
use wire::{Limits, h1};

use common::time;

/// How often each operation runs to be timed.
const ROUNDS: u32 = 200_000;

const SMALL: &[u8] = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n";
const WRK: &[u8] = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n\r\n";
const BROWSER: &[u8] = b"GET /assets/app.js?v=3f2a HTTP/1.1\r\nHost: www.example.com\r\nConnection: keep-alive\r\n\
    sec-ch-ua: \"Chromium\";v=\"130\", \"Google Chrome\";v=\"130\", \"Not?A_Brand\";v=\"99\"\r\nsec-ch-ua-mobile: ?0\r\n\
    sec-ch-ua-platform: \"Linux\"\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
    Chrome/130.0.0.0 Safari/537.36\r\nAccept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,\
    image/webp,*/*;q=0.8\r\nSec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-GB,en;q=0.9\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef\r\n\r\n";
const DEFAULTS: &[u8] = b"date: Sun, 06 Nov 1994 08:49:37 GMT\r\nserver: uvicorn\r\n";

fn parse(head: &mut Head, input: &[u8], limits: &Limits) {
    let Ok(Status::Complete(length)) = head.parse(black_box(input), limits) else { unreachable!("a complete head") };
    black_box(length);
}

fn httparse(input: &[u8]) {
    let mut fields = [const { std::mem::MaybeUninit::uninit() }; 64];
    let mut request = httparse::Request::new(&mut []);
    let _ = black_box(request.parse_with_uninit_headers(black_box(input), &mut fields));
}

fn respond(connection: &mut Connection, out: &mut Vec<u8>, limits: &Limits) -> Result<(), wire::AppError> {
    let mut head = connection.start_response(out, 200, DEFAULTS)?;
    head.field(out, black_box(b"content-type"), black_box(b"text/plain; charset=utf-8"))?;
    head.field(out, black_box(b"content-length"), black_box(b"13"))?;
    connection.finish_head(head, out, Some(13))?;
    connection.body()?.write(out, black_box(b"Hello, world!"))?;
    connection.finish(out, limits)
}

fn exchange(connection: &mut Connection, scratch: &mut Scratch, out: &mut Vec<u8>, limits: &Limits) {
    out.clear();
    let progress = connection.poll(black_box(SMALL), scratch, limits);
    assert!(matches!(progress, Ok(h1::Progress { event: Event::Request, .. })));
    assert!(respond(connection, out, limits).is_ok());
    black_box(&out);
}

fn chunks(input: &[u8], limits: &Limits) {
    let mut decoder = h1::Decoder::Chunked(Chunked::new(limits));
    let mut rest = input;
    while let Ok(decoded) = decoder.decode(black_box(rest), limits) {
        rest = &rest[decoded.consumed..];
        if decoded.done {
            break;
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let once = arguments.iter().any(|argument| argument == "--once");
    let wanted = |name: &str| {
        let mut names = arguments.iter().filter(|argument| !argument.starts_with("--")).peekable();
        names.peek().is_none() || names.any(|argument| name.starts_with(argument.as_str()))
    };
    let (limits, mut head) = (Limits::default(), Head::default());
    for (name, input) in [("wrk", WRK), ("small", SMALL), ("browser", BROWSER)] {
        let case = format!("parse_{name}");
        if wanted(&case) {
            time(&format!("{case} ({} bytes)", input.len()), once, ROUNDS, || parse(&mut head, input, &limits));
        }
        let case = format!("httparse_{name}");
        if wanted(&case) {
            time(&case, once, ROUNDS, || httparse(input));
        }
    }
    if wanted("exchange_small") {
        let (mut connection, mut scratch, mut out) = (Connection::new(), Scratch::default(), Vec::new());
        time("exchange_small", once, ROUNDS, || exchange(&mut connection, &mut scratch, &mut out, &limits));
    }
    if wanted("chunks_1k") {
        let chunk: Vec<u8> = [b"400\r\n".as_slice(), &[b'x'; 1024], b"\r\n"].concat();
        let body: Vec<u8> = [chunk.repeat(10), b"0\r\n\r\n".to_vec()].concat();
        time("chunks_1k (10 chunks)", once, ROUNDS, || chunks(&body, &limits));
    }
}
