//! Replays `tests/vectors/http2.toml`: each vector whole, cut in two at every byte, and in small pieces. Its format is described
//! in it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "not production code"
)]

#[path = "support/h2.rs"]
mod support;
#[path = "support/tables.rs"]
mod tables;

use std::collections::BTreeMap;
use std::path::Path;

use support::{
    ACK, Answers, App, END_HEADERS, END_STREAM, PADDED, Seen, Server, block, data, frames, get, hello, put, reset,
    window,
};
use tables::{fields, flag, hex, list};
use toml::{Table, Value};
use wire::Limits;
use wire::h2::Settings;

/// Longer input is not cut at every byte.
const MAX_CUT: usize = 1500;
const CODES: [&str; 14] = [
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
];

struct Vector {
    id: String,
    input: Vec<u8>,
    limits: Limits,
    settings: Settings,
    /// `None`: whatever comes.
    requests: Option<Vec<Table>>,
    answers: Vec<u32>,
    statuses: BTreeMap<u32, String>,
    resets: BTreeMap<u32, String>,
    failure: Option<String>,
}

fn number(value: &Value) -> u32 {
    u32::try_from(value.as_integer().unwrap()).unwrap()
}

fn section(kind: u8, flags: u8, stream: u32, table: &Table, first: &[(&str, &str)]) -> Vec<u8> {
    let more = fields(table);
    let all: Vec<_> =
        first.iter().copied().chain(more.iter().map(|(name, value)| (name.as_str(), value.as_str()))).collect();
    put(kind, flags | if flag(table, "part") { 0 } else { END_HEADERS }, stream, &block(&all))
}

fn request(method: &'static str) -> [(&'static str, &'static str); 4] {
    [(":method", method), (":scheme", "http"), (":path", "/"), (":authority", "example.org")]
}

fn frame(table: &Table, step: u32) -> Vec<u8> {
    let end = if flag(table, "end") { END_STREAM } else { 0 };
    let stream = |key: &str| number(&table[key]) + step;
    let kinds = ["get", "post", "headers", "continuation", "data", "reset", "window", "settings", "hex"];
    match kinds.into_iter().find(|&kind| table.contains_key(kind)).unwrap() {
        "get" => section(1, END_STREAM, stream("get"), table, &request("GET")),
        "post" => section(1, 0, stream("post"), table, &request("POST")),
        "headers" => section(1, end, stream("headers"), table, &[]),
        "continuation" => section(9, 0, stream("continuation"), table, &[]),
        "data" => {
            let text = table["text"].as_str().unwrap().as_bytes();
            match table.get("padding").map(number) {
                None => data(stream("data"), end, text),
                Some(padding) => {
                    let padding = u8::try_from(padding).unwrap();
                    let payload = [&[padding], text, &vec![0; usize::from(padding)]].concat();
                    data(stream("data"), end | PADDED, &payload)
                }
            }
        }
        "reset" => reset(stream("reset")),
        "window" => window(stream("window"), number(&table["by"])),
        "settings" => {
            let setting = |pair: &Value| {
                let identifier = u16::try_from(number(&pair[0])).unwrap().to_be_bytes();
                [&identifier[..], &number(&pair[1]).to_be_bytes()].concat()
            };
            put(4, 0, 0, &list(table, "settings", setting).concat())
        }
        _ => hex(table["hex"].as_str().unwrap()),
    }
}

fn input(table: &Table) -> Vec<u8> {
    let mut bytes = if flag(table, "bare") { Vec::new() } else { [hello(&[]), put(4, ACK, 0, b"")].concat() };
    for part in table["input"].as_array().unwrap().iter().map(|part| part.as_table().unwrap()) {
        let times = part.get("times").map_or(1, number);
        let step = part.get("step").map_or(0, number);
        for count in 0..times {
            bytes.extend(frame(part, count * step));
        }
    }
    bytes
}

impl Vector {
    fn parse(table: &Table) -> Self {
        let by_stream = |key: &str| {
            let table = table.get(key).and_then(Value::as_table);
            let text = |value: &Value| value.as_str().map_or_else(|| number(value).to_string(), str::to_owned);
            table.into_iter().flatten().map(|(stream, value)| (stream.parse().unwrap(), text(value))).collect()
        };
        let (mut limits, mut settings) = (Limits::default(), Settings::default());
        for (name, value) in table.get("limits").and_then(Value::as_table).into_iter().flatten() {
            match name.as_str() {
                "fields" => limits.fields = number(value) as usize,
                "body" => limits.body = Some(u64::from(number(value))),
                "streams" => settings.streams = number(value),
                other => panic!("no limit {other}"),
            }
        }
        let any = table.get("requests").is_some_and(Value::is_str);
        let requests = (!any).then(|| list(table, "requests", |request| request.as_table().unwrap().clone()));
        Self {
            id: table["id"].as_str().unwrap().to_owned(),
            input: input(table),
            limits,
            settings,
            requests,
            answers: list(table, "answers", number),
            statuses: by_stream("statuses"),
            resets: by_stream("resets"),
            failure: table.get("failure").map(|code| code.as_str().unwrap().to_owned()),
        }
    }
}

fn load() -> Vec<Vector> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/http2.toml");
    let table: Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
    let vectors = table["vector"].as_array().unwrap();
    assert!(vectors.len() >= 50, "only {} vectors", vectors.len());
    vectors.iter().map(|vector| Vector::parse(vector.as_table().unwrap())).collect()
}

fn check_request(expected: &Table, seen: &Seen) {
    let is = |key: &str, found: &str| expected.get(key).is_none_or(|value| value.as_str().unwrap() == found);
    assert!(is("method", &seen.method) && is("path", &seen.path), "{seen:?}");
    if expected.contains_key("fields") {
        assert_eq!(fields(expected), seen.fields);
    }
    if let Some(body) = expected.get("body") {
        assert_eq!((String::from_utf8_lossy(&seen.body), seen.complete), (body.as_str().unwrap().into(), true));
    }
}

fn replay<'a>(vector: &Vector, pieces: impl Iterator<Item = &'a [u8]>) {
    let mut server = Server::new(App::Echo, vector.settings);
    server.limits = vector.limits.clone();
    pieces.for_each(|piece| server.receive(piece));
    let open = server.failure.is_none();
    if open {
        server.receive(&get(1001));
        let seen = server.seen.remove(&1001);
        assert!(seen.is_some_and(|seen| seen.complete), "{}: it is open and does not serve", vector.id);
    }
    let mut answers = Answers::read(&frames(&server.out));
    if open {
        assert_eq!(answers.ended.pop(), Some(1001));
        answers.statuses.remove(&1001);
    }
    let code = |code: u32| CODES[code as usize].to_owned();
    let resets: BTreeMap<_, _> = answers.resets.into_iter().map(|(stream, number)| (stream, code(number))).collect();
    let statuses: BTreeMap<_, _> = answers
        .statuses
        .into_iter()
        .map(|(stream, statuses)| (stream, statuses.join(" ")))
        .filter(|(_, status)| status != "200")
        .collect();
    let id = &vector.id;
    assert_eq!(answers.go_away.map(code), vector.failure, "{id}");
    assert_eq!(server.failure.map(|failure| code(failure.code as u32)), vector.failure, "{id}");
    assert_eq!(resets, vector.resets, "{id}");
    assert_eq!((&answers.ended, &statuses), (&vector.answers, &vector.statuses), "{id}");
    let Some(requests) = &vector.requests else { return };
    let seen: Vec<_> = server.seen.iter().filter(|(_, seen)| !seen.was_refused_at_once()).collect();
    let streams = |tables: &[Table]| tables.iter().map(|table| number(&table["stream"])).collect::<Vec<_>>();
    assert_eq!(seen.iter().map(|(stream, _)| **stream).collect::<Vec<_>>(), streams(requests), "{id}");
    for (expected, (_, seen)) in requests.iter().zip(seen) {
        check_request(expected, seen);
    }
}

#[test]
fn every_vector_whole() {
    for vector in load() {
        replay(&vector, std::iter::once(vector.input.as_slice()));
    }
}

#[test]
fn every_vector_cut_in_two_at_every_byte() {
    for vector in load().iter().filter(|vector| vector.input.len() <= MAX_CUT) {
        for cut in 0..vector.input.len() {
            let (first, second) = vector.input.split_at(cut);
            replay(vector, [first, second].into_iter());
        }
    }
}

#[test]
fn every_vector_in_small_pieces() {
    for vector in load() {
        replay(&vector, vector.input.chunks(1));
        replay(&vector, vector.input.chunks(7));
    }
}
