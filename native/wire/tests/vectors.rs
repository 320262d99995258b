//! Replays `tests/vectors/http1.toml`, the data every implementation of the server is held to: each vector whole, cut in
//! two at every byte, and one byte at a time. Its format is described beside it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "not production code"
)]

mod support;

use std::collections::HashSet;
use std::path::Path;

use support::{App, Seen, Server};
use toml::{Table, Value};
use wire::{Error, Limits};

const PROBE: &[u8] = b"GET /probe HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n";

struct Vector {
    id: String,
    data: Vec<u8>,
    eof: bool,
    app: App,
    limits: Limits,
    expect: Vec<Table>,
    requests: Vec<Table>,
    /// The method of a request that never reaches the application.
    refused: Option<String>,
    reason: Option<String>,
    connection: HashSet<String>,
}

fn octets(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.chars().map(|point| u8::try_from(u32::from(point)).unwrap()).collect(),
        Value::Array(parts) => parts.iter().flat_map(octets).collect(),
        Value::Table(part) => {
            octets(&part["repeat"]).repeat(usize::try_from(part["times"].as_integer().unwrap()).unwrap())
        }
        other => panic!("no octets: {other:?}"),
    }
}

fn one_or_more(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_else(|| vec![value.clone()])
}

fn tables(value: Option<&Value>) -> Vec<Table> {
    value.map(one_or_more).unwrap_or_default().iter().map(|table| table.as_table().unwrap().clone()).collect()
}

fn limits(settings: Option<&Value>) -> Limits {
    let mut limits = Limits::default();
    for (name, value) in settings.and_then(Value::as_table).into_iter().flatten() {
        let value = usize::try_from(value.as_integer().unwrap()).unwrap();
        match name.as_str() {
            "limit_request_head" => limits.head = value,
            "limit_request_fields" => limits.fields = value,
            "limit_request_target" => limits.target = value,
            "limit_request_body" => limits.body = Some(value as u64),
            other => panic!("no setting {other}"),
        }
    }
    limits
}

fn load() -> Vec<Vector> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/http1.toml");
    let table: Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
    let vector = |table: Table| Vector {
        id: table["id"].as_str().unwrap().to_owned(),
        data: octets(&table["input"]),
        eof: table.get("eof").is_some_and(|eof| eof.as_bool().unwrap()),
        app: App::named(table.get("app").map_or("echo", |app| app.as_str().unwrap())),
        limits: limits(table.get("settings")),
        expect: tables(table.get("expect")),
        requests: tables(table.get("requests")),
        refused: table.get("refused").map(|method| method.as_str().unwrap().to_owned()),
        reason: table.get("reason").map(|reason| reason.as_str().unwrap().to_owned()),
        connection: one_or_more(&table["connection"]).iter().map(|state| state.as_str().unwrap().to_owned()).collect(),
    };
    tables(table.get("vector")).into_iter().map(vector).collect()
}

/// A response as a client reads it.
#[derive(Debug)]
struct Response {
    status: i64,
    headers: Vec<(String, String)>,
    framing: &'static str,
    body: Vec<u8>,
}

impl Response {
    fn value(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn says_close(&self) -> bool {
        self.value("connection").is_some_and(|value| value.contains("close"))
    }
}

fn responses(mut data: &[u8], mut methods: impl Iterator<Item = String>, closed: bool) -> Vec<Response> {
    let mut found = Vec::new();
    while !data.is_empty() {
        let end = data.windows(4).position(|window| window == b"\r\n\r\n").expect("a response head");
        let head = std::str::from_utf8(&data[..end]).unwrap();
        data = &data[end + 4..];
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap();
        let headers =
            lines.map(|line| line.split_once(": ").unwrap()).map(|(name, value)| (name.into(), value.into())).collect();
        let mut response = Response { status, headers, framing: "none", body: Vec::new() };
        let method = if status < 200 { None } else { methods.next() };
        data = content(&mut response, data, method.as_deref(), closed);
        found.push(response);
    }
    found
}

fn content<'a>(response: &mut Response, mut data: &'a [u8], method: Option<&str>, closed: bool) -> &'a [u8] {
    let (length, coding) = (response.value("content-length"), response.value("transfer-encoding"));
    assert!(length.is_none() || coding.is_none(), "both framings: {response:?}");
    if response.status < 200 || response.status == 204 {
        assert!(length.is_none() && coding.is_none(), "framing on {response:?}");
    }
    if method == Some("HEAD") || response.status < 200 || [204, 304].contains(&response.status) {
        return data;
    }
    if coding.is_some() {
        response.framing = "chunked";
        loop {
            let end = data.iter().position(|&byte| byte == b'\r').unwrap();
            let size = usize::from_str_radix(std::str::from_utf8(&data[..end]).unwrap(), 16).unwrap();
            let (chunk, rest) = data[end + 2..].split_at(size);
            response.body.extend_from_slice(chunk);
            data = rest.strip_prefix(b"\r\n").unwrap();
            if size == 0 {
                return data;
            }
        }
    }
    let length = length.map(|length| length.parse().unwrap());
    response.framing = if length.is_some() { "length" } else { "close" };
    assert!(length.is_some() || closed, "a body up to the end of a connection that stays open");
    let (body, rest) = data.split_at(length.unwrap_or(data.len()));
    response.body = body.to_vec();
    rest
}

fn matches_response(expected: &Table, response: &Response) -> bool {
    one_or_more(&expected["status"]).contains(&Value::Integer(response.status))
}

fn check_responses(expected: &[Table], found: &[Response]) {
    let mut rest = found;
    for table in expected {
        match rest {
            [response, others @ ..] if matches_response(table, response) => {
                rest = others;
                if let Some(framing) = table.get("framing") {
                    assert!(
                        one_or_more(framing).contains(&Value::String(response.framing.into())),
                        "{table:?}: {response:?}"
                    );
                }
                if let Some(body) = table.get("body") {
                    assert_eq!(response.body, octets(body), "{table:?}");
                }
                for (name, value) in table.get("headers").and_then(Value::as_table).into_iter().flatten() {
                    assert_eq!(response.value(name), value.as_str(), "{table:?}");
                }
            }
            _ => assert!(table.get("optional").is_some(), "expected {table:?}, found {rest:?}"),
        }
    }
    assert!(rest.is_empty(), "unexpected {rest:?}");
}

fn matches_request(expected: &Table, seen: &Seen) -> bool {
    let is = |key: &str, found: &[u8]| expected.get(key).is_none_or(|value| octets(value) == found);
    let pair = |pair: &Value| (octets(&pair[0]), octets(&pair[1]));
    let headers = |value: &Value| value.as_array().unwrap().iter().map(pair).collect::<Vec<_>>();
    is("method", seen.method.as_bytes())
        && is("raw_path", &seen.raw_path)
        && is("query_string", &seen.query_string)
        && is("http_version", seen.http_version.as_bytes())
        && expected.get("headers").is_none_or(|value| headers(value) == seen.headers)
        && (expected.get("truncated").is_none() || !seen.complete)
        && expected.get("body").is_none_or(|body| seen.complete && octets(body) == seen.body)
}

fn check_requests(expected: &[Table], seen: &[Seen]) {
    let mut rest = seen;
    for table in expected {
        match rest {
            [request, others @ ..] if matches_request(table, request) => rest = others,
            _ => assert!(
                table.contains_key("optional") || table.contains_key("truncated"),
                "expected {table:?}, found {rest:?}"
            ),
        }
    }
    assert!(rest.is_empty(), "reached the application: {rest:?}");
}

fn replay<'a>(vector: &Vector, pieces: impl Iterator<Item = &'a [u8]>) {
    let mut server = Server::new(vector.app, vector.limits.clone());
    pieces.for_each(|piece| server.receive(piece));
    if vector.eof {
        server.receive_eof();
    }
    let before = server.requests.len();
    if vector.connection.contains("open") {
        server.receive(PROBE);
    }
    let probed = server.requests.len() > before;
    let methods = server.requests.iter().map(|seen| seen.method.clone()).chain(vector.refused.clone());
    let found = responses(&server.out, methods, server.is_closed());
    let answers = if probed { &found[..found.len() - 1] } else { &found[..] };
    check_responses(&vector.expect, answers);
    check_requests(&vector.requests, &server.requests[..before]);
    if vector.reason.is_some() {
        assert_eq!(server.error.map(Error::reason), vector.reason);
    }
    let state = match probed {
        true => "open",
        false if server.is_closed() => "closed",
        false => "waiting",
    };
    assert!(vector.connection.contains(state), "the connection is {state}");
    let finals: Vec<_> = found.iter().filter(|response| response.status >= 200).collect();
    if let [others @ .., last] = finals.as_slice() {
        assert!(!others.iter().any(|response| response.says_close()), "a response follows a close");
        let early = vector.eof || matches!(vector.app, App::Ignore | App::ReadOnce);
        assert!(state != "closed" || vector.connection.len() > 1 || early || last.says_close(), "no close announced");
        assert!(state != "waiting" || !last.says_close(), "a close announced and not kept");
    }
}

/// Run `check`; name the vector if it fails.
fn named(vector: &Vector, how: &str, check: impl FnOnce() + std::panic::UnwindSafe) -> bool {
    let passed = std::panic::catch_unwind(check).is_ok();
    if !passed {
        eprintln!("^ {} {how}", vector.id);
    }
    passed
}

fn replay_all(how: &str, check: impl Fn(&Vector) + std::panic::RefUnwindSafe) {
    let vectors = load();
    assert!(vectors.len() >= 400, "only {} vectors", vectors.len());
    let failed =
        vectors.iter().filter(|vector| !named(vector, how, std::panic::AssertUnwindSafe(|| check(vector)))).count();
    assert_eq!(failed, 0, "of {} vectors", vectors.len());
}

#[test]
fn every_vector_whole() {
    replay_all("whole", |vector| replay(vector, std::iter::once(vector.data.as_slice())));
}

/// U6
#[test]
fn every_vector_cut_in_two_at_every_byte() {
    replay_all("cut in two", |vector| {
        let step = 1 + vector.data.len() / 300;
        for cut in (0..vector.data.len()).step_by(step) {
            let (first, second) = vector.data.split_at(cut);
            replay(vector, [first, second].into_iter());
        }
    });
}

/// U6
#[test]
fn every_vector_in_small_pieces() {
    replay_all("in pieces", |vector| {
        replay(vector, vector.data.chunks(1 + vector.data.len() / 50_000));
        replay(vector, vector.data.chunks(7 + vector.data.len() / 50_000));
    });
}
