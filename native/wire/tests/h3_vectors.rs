//! Replays `tests/vectors/http3.toml`: each vector whole, cut in two at every byte, and in small pieces. Its format is described
//! in it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "not production code"
)]

#[path = "support/h3.rs"]
mod support;
#[path = "support/tables.rs"]
mod tables;

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::path::Path;

use support::{App, GET, POST, Seen, Server, Step, data, frame, headers, hello};
use tables::{fields, flag, hex, list};
use toml::{Table, Value};
use wire::Limits;
use wire::h3::Settings;

/// Longer input is not cut at every byte.
const MAX_CUT: usize = 400;
const CODES: [(&str, u64); 19] = [
    ("H3_NO_ERROR", 0x100),
    ("H3_GENERAL_PROTOCOL_ERROR", 0x101),
    ("H3_INTERNAL_ERROR", 0x102),
    ("H3_STREAM_CREATION_ERROR", 0x103),
    ("H3_CLOSED_CRITICAL_STREAM", 0x104),
    ("H3_FRAME_UNEXPECTED", 0x105),
    ("H3_FRAME_ERROR", 0x106),
    ("H3_EXCESSIVE_LOAD", 0x107),
    ("H3_ID_ERROR", 0x108),
    ("H3_SETTINGS_ERROR", 0x109),
    ("H3_MISSING_SETTINGS", 0x10a),
    ("H3_REQUEST_REJECTED", 0x10b),
    ("H3_REQUEST_CANCELLED", 0x10c),
    ("H3_REQUEST_INCOMPLETE", 0x10d),
    ("H3_MESSAGE_ERROR", 0x10e),
    ("H3_CONNECT_ERROR", 0x10f),
    ("QPACK_DECOMPRESSION_FAILED", 0x200),
    ("QPACK_ENCODER_STREAM_ERROR", 0x201),
    ("QPACK_DECODER_STREAM_ERROR", 0x202),
];

struct Vector {
    id: String,
    steps: Vec<Step>,
    limits: Limits,
    settings: Settings,
    /// `None`: whatever comes.
    requests: Option<Vec<Table>>,
    answers: Vec<u64>,
    statuses: BTreeMap<u64, String>,
    resets: BTreeMap<u64, String>,
    stopped: Vec<u64>,
    blocked: Vec<u64>,
    /// The bytes of the decoder stream, if they are given.
    acknowledged: Option<Vec<u8>>,
    failure: Option<String>,
}

fn number(value: &Value) -> u64 {
    u64::try_from(value.as_integer().unwrap()).unwrap()
}

fn section(table: &Table, first: &[(&str, &str)]) -> Vec<u8> {
    let more = fields(table);
    let all: Vec<_> =
        first.iter().copied().chain(more.iter().map(|(name, value)| (name.as_str(), value.as_str()))).collect();
    headers(&all)
}

fn step(table: &Table, further: u64) -> Step {
    let kinds = ["get", "post", "headers", "data", "end", "reset", "stop", "stream"];
    let kind = kinds.into_iter().find(|&kind| table.contains_key(kind)).unwrap();
    let stream = number(&table[kind]) + further;
    let end = flag(table, "fin");
    let data = match kind {
        "get" => return Step::Bytes { stream, data: section(table, &GET), end: !flag(table, "open") },
        "post" => section(table, &POST),
        "headers" => section(table, &[]),
        "data" => data(table["text"].as_str().unwrap().as_bytes()),
        "end" => return Step::Bytes { stream, data: Vec::new(), end: true },
        "reset" => return Step::Reset { stream },
        "stop" => return Step::Stop { stream },
        _ => {
            let mut octets = hex(table["hex"].as_str().unwrap());
            if let Some(repeat) = table.get("repeat") {
                octets.extend(hex(repeat[0].as_str().unwrap()).repeat(usize::try_from(number(&repeat[1])).unwrap()));
            }
            table.get("frame").map_or(octets.clone(), |kind| frame(number(kind), &octets))
        }
    };
    Step::Bytes { stream, data, end }
}

fn steps(table: &Table) -> Vec<Step> {
    let mut steps = Vec::new();
    if !flag(table, "bare") {
        steps.push(Step::Bytes { stream: 2, data: hello(&[]), end: false });
    }
    for part in table["input"].as_array().unwrap().iter().map(|part| part.as_table().unwrap()) {
        let times = part.get("times").map_or(1, number);
        let further = part.get("step").map_or(0, number);
        steps.extend((0..times).map(|count| step(part, count * further)));
    }
    steps
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
            let value = number(value);
            match name.as_str() {
                "fields" => limits.fields = usize::try_from(value).unwrap(),
                "body" => limits.body = Some(value),
                "streams" => settings.streams = u32::try_from(value).unwrap(),
                "section" => settings.fields = u32::try_from(value).unwrap(),
                "table" => settings.table = u32::try_from(value).unwrap(),
                "blocked" => settings.blocked = u32::try_from(value).unwrap(),
                other => panic!("no limit {other}"),
            }
        }
        for key in table.keys() {
            const KEYS: [&str; 14] = [
                "id",
                "rows",
                "source",
                "bare",
                "input",
                "limits",
                "requests",
                "answers",
                "statuses",
                "resets",
                "stopped",
                "blocked",
                "acknowledged",
                "failure",
            ];
            assert!(KEYS.contains(&key.as_str()), "{key}");
        }
        let any = table.get("requests").is_some_and(Value::is_str);
        let requests = (!any).then(|| list(table, "requests", |request| request.as_table().unwrap().clone()));
        Self {
            id: table["id"].as_str().unwrap().to_owned(),
            steps: steps(table),
            limits,
            settings,
            requests,
            answers: list(table, "answers", number),
            statuses: by_stream("statuses"),
            resets: by_stream("resets"),
            stopped: list(table, "stopped", number),
            blocked: list(table, "blocked", number),
            acknowledged: table.get("acknowledged").map(|text| hex(text.as_str().unwrap())),
            failure: table.get("failure").map(|code| code.as_str().unwrap().to_owned()),
        }
    }

    /// Bytes of all steps.
    fn length(&self) -> usize {
        self.steps.iter().map(|step| if let Step::Bytes { data, .. } = step { data.len() } else { 0 }).sum()
    }

    /// The steps, with the bytes around `cut` in two calls; the end of a stream comes with its last byte, or
    /// after it if `apart`.
    fn cut(&self, cut: usize, apart: bool) -> Vec<Step> {
        let (mut steps, mut before) = (Vec::new(), 0);
        for step in &self.steps {
            let Step::Bytes { stream, data, end } = step else {
                steps.push(step.clone());
                continue;
            };
            let at = cut.checked_sub(before).filter(|&at| at <= data.len()).unwrap_or(data.len());
            before += data.len();
            let (first, second) = data.split_at(at);
            let is_cut = !second.is_empty();
            let last = *end && !apart;
            steps.push(Step::Bytes { stream: *stream, data: first.to_vec(), end: last && !is_cut });
            if is_cut {
                steps.push(Step::Bytes { stream: *stream, data: second.to_vec(), end: last });
            }
            if *end && apart {
                steps.push(Step::Bytes { stream: *stream, data: Vec::new(), end: true });
            }
        }
        steps
    }

    fn pieces(&self, size: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        for step in &self.steps {
            match step {
                Step::Bytes { stream, data, end } if !data.is_empty() => {
                    let count = data.len().div_ceil(size);
                    steps.extend(data.chunks(size).zip(1..).map(|(piece, at)| Step::Bytes {
                        stream: *stream,
                        data: piece.to_vec(),
                        end: *end && at == count,
                    }));
                }
                _ => steps.push(step.clone()),
            }
        }
        steps
    }
}

fn load() -> Vec<Vector> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/http3.toml");
    let table: Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
    let vectors = table["vector"].as_array().unwrap();
    assert!(vectors.len() >= 80, "only {} vectors", vectors.len());
    vectors.iter().map(|vector| Vector::parse(vector.as_table().unwrap())).collect()
}

fn check_request(id: &str, expected: &Table, seen: &Seen) {
    let is = |key: &str, found: &str| expected.get(key).is_none_or(|value| value.as_str().unwrap() == found);
    assert!(is("method", &seen.method) && is("path", &seen.path), "{id}: {seen:?}");
    if expected.contains_key("fields") {
        assert_eq!(fields(expected), seen.fields, "{id}");
    }
    if let Some(body) = expected.get("body") {
        assert_eq!((String::from_utf8_lossy(&seen.body), seen.complete), (body.as_str().unwrap().into(), true), "{id}");
    }
}

/// A stream that no vector uses.
const LAST: u64 = 4000;

fn replay(vector: &Vector, steps: &[Step], whole: bool) {
    let id = &vector.id;
    let mut server = Server::new(App::Echo, vector.settings);
    server.limits = vector.limits.clone();
    for step in steps {
        server.step(step);
    }
    let code = |code: u64| CODES.iter().find(|(_, number)| *number == code).unwrap().0.to_owned();
    assert_eq!(server.failure.map(|failure| code(failure.code.number())), vector.failure, "{id}");
    let blocked: Vec<u64> = server.kept.keys().copied().collect();
    if server.failure.is_none() {
        assert_eq!(blocked, vector.blocked, "{id}");
        if !vector.limits_streams() {
            server.step(&Step::Bytes { stream: LAST, data: headers(&GET), end: true });
            let seen = server.seen.remove(&LAST);
            assert!(seen.is_some_and(|seen| seen.complete), "{id}: it is open and does not serve");
            server.out.remove(&LAST);
            server.ended.retain(|&stream| stream != LAST);
        }
    }
    let resets: BTreeMap<_, _> = server.resets.iter().map(|(&stream, &number)| (stream, code(number))).collect();
    // A connection that has failed has no streams any longer.
    if vector.failure.is_none() || !vector.resets.is_empty() {
        assert_eq!(resets, vector.resets, "{id}");
    }
    let statuses: BTreeMap<_, _> = server
        .answers()
        .into_iter()
        .map(|(stream, answer)| (stream, answer.status().to_owned()))
        .filter(|(_, status)| status != "200")
        .collect();
    assert_eq!((&server.ended, &statuses), (&vector.answers, &vector.statuses), "{id}");
    let stopped: Vec<_> = server.stopped.iter().copied().filter(|stream| stream % 4 == 2).collect();
    assert!(vector.failure.is_some() || stopped == vector.stopped, "{id}: {stopped:?}");
    if let Some(acknowledged) = vector.acknowledged.as_ref().filter(|_| whole) {
        assert_eq!(&server.own[2][1..], acknowledged, "{id}");
    }
    let Some(requests) = &vector.requests else { return };
    let seen: Vec<_> = server.seen.iter().filter(|(_, seen)| !seen.refused_at_once).collect();
    let streams = |tables: &[Table]| tables.iter().map(|table| number(&table["stream"])).collect::<Vec<_>>();
    assert_eq!(seen.iter().map(|(stream, _)| **stream).collect::<Vec<_>>(), streams(requests), "{id}");
    for (expected, (_, seen)) in requests.iter().zip(seen) {
        check_request(id, expected, seen);
    }
}

impl Vector {
    /// Whether no further request may be served, because it looks at that.
    fn limits_streams(&self) -> bool {
        self.settings.streams < 10 || self.settings.fields < 1000
    }
}

#[test]
fn every_vector_whole() {
    let broken = load().into_iter().filter(|vector| {
        let replayed = catch_unwind(|| {
            replay(vector, &vector.steps, true);
            replay(vector, &vector.cut(usize::MAX, true), false);
        });
        replayed.is_err()
    });
    assert_eq!(broken.map(|vector| vector.id).collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn every_vector_cut_in_two_at_every_byte() {
    for vector in load().iter().filter(|vector| vector.length() <= MAX_CUT) {
        for cut in 0..vector.length() {
            replay(vector, &vector.cut(cut, cut % 2 == 1), false);
        }
    }
}

#[test]
fn every_vector_in_small_pieces() {
    for vector in load() {
        replay(&vector, &vector.pieces(1), false);
        replay(&vector, &vector.pieces(7), false);
    }
}
