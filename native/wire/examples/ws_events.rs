//! What a WebSocket connection makes of bytes, for comparison with other implementations. Each line of the input is one
//! connection: words, of which `deflate` agrees on compression, `max=10` limits messages to ten bytes, and any other is
//! what one read brings, in hexadecimal. For each there is one line of output, its events:
//!
//! ```text
//! $ echo 'max=5 8185000000 0048656c6c6f 8901000000' | cargo run -q -p wire --example ws_events
//! text 48656c6c6f; failed 1002 incorrect masking
//! ```

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "not production code")]

use std::io::{self, BufRead, Write};

use wire::ws::{Agreement, Connection, Event, Kind, Limits, StreamPool};

const AGREED: Agreement =
    Agreement { client_bits: 15, client_is_told: false, server_bits: 12, client_reset: false, server_reset: false };

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<_> = hex.bytes().collect();
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("a hexadecimal digit");
    digits.chunks_exact(2).map(|pair| (digit(pair[0]) << 4 | digit(pair[1])) as u8).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

/// Everything that happens until more bytes are wanted.
fn events(
    connection: &mut Connection,
    input: &mut Vec<u8>,
    pool: &mut StreamPool,
    limits: &Limits,
    found: &mut Vec<String>,
) {
    let mut at = 0;
    loop {
        let window = &mut input[at..];
        let progress = connection.poll(window, pool, limits);
        at += progress.consumed;
        found.push(match progress.event {
            Event::NeedMore | Event::Closed => break,
            Event::Message { kind: Kind::Text, payload } => format!("text {}", hex(payload.of(window))),
            Event::Message { kind: Kind::Binary, payload } => format!("binary {}", hex(payload.of(window))),
            Event::Piece { payload, left } => format!("piece {} {left}", hex(&window[payload])),
            Event::Ping(range) => format!("ping {}", hex(&window[range])),
            Event::Pong(range) => format!("pong {}", hex(&window[range])),
            Event::Close { code, reason } => format!("close {code} {}", hex(&window[reason])),
            Event::Failed(failure) => format!("failed {} {}", failure.code(), failure.reason(limits)),
        });
    }
    input.drain(..at);
}

fn main() -> io::Result<()> {
    let mut pool = StreamPool::default();
    for line in io::stdin().lock().lines() {
        let (line, mut limits, mut found) = (line?, Limits::default(), Vec::new());
        let words = || line.split_whitespace();
        if let Some(max) = words().find_map(|word| word.strip_prefix("max=")) {
            limits.message = max.parse().expect("a number");
        }
        let mut connection = Connection::new(words().any(|word| word == "deflate").then_some(AGREED));
        let mut input = Vec::new();
        for word in words().filter(|word| *word != "deflate" && !word.starts_with("max=")) {
            input.extend(bytes(word));
            events(&mut connection, &mut input, &mut pool, &limits, &mut found);
        }
        writeln!(io::stdout(), "{}", found.join("; "))?;
    }
    Ok(())
}
