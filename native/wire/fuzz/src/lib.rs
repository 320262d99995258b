//! What must hold for any bytes at all. A target panics if it does not, and otherwise gives a number that differs when
//! something different happened. Called by the coverage-guided fuzzer, by `examples/fuzz.rs`, and by `tests/properties.rs`.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a target panics to report a failure; the file is a crate and a module"
)]

mod exchange;
mod frames;
mod h2;
mod h3;
mod hpack;
mod qpack;
mod shared;
#[path = "../../tests/support/h3.rs"]
mod support_h3;
mod ws;

use std::hash::{DefaultHasher, Hash, Hasher};

pub use exchange::h1_exchange;
pub use frames::h2_frames;
pub use h2::h2_connection;
pub use h3::h3_connection;
pub use hpack::h2_hpack;
pub use qpack::h3_qpack;
pub use shared::h1_shared;
pub use ws::{ws_deflate, ws_frames, ws_messages};

use wire::h1::response::Exchange;
use wire::h1::{
    BodyWriter, Chunked, Connection, Decoder, Event, Framing, Head, HeadWriter, Scratch, Sections, Status, Version,
};
use wire::{AppError, Error, Limits};

/// Takes any bytes, and returns a hash of the results.
pub type Target = fn(&[u8]) -> u64;

/// All targets, by their names.
pub const ALL: [(&str, Target); 14] = [
    ("h1_request", h1_request),
    ("h1_split", h1_split),
    ("h1_chunked", h1_chunked),
    ("h1_response", h1_response),
    ("h1_exchange", h1_exchange),
    ("h1_shared", h1_shared),
    ("h2_frames", h2_frames),
    ("h2_hpack", h2_hpack),
    ("h2_connection", h2_connection),
    ("h3_qpack", h3_qpack),
    ("h3_connection", h3_connection),
    ("ws_frames", ws_frames),
    ("ws_messages", ws_messages),
    ("ws_deflate", ws_deflate),
];

/// Limits small enough for a fuzzer to meet.
fn small() -> Limits {
    Limits {
        head: 160,
        fields: 4,
        target: 40,
        method: 8,
        empty_lines: 2,
        body: Some(40),
        chunk_waste: 12,
        trailers: 24,
        discard: 60,
    }
}

fn fingerprint(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// A head that is accepted is one that httparse reads the same way, and holds nothing it must not hold.
pub fn h1_request(data: &[u8]) -> u64 {
    let mut head = Head::default();
    let mut outcome = Vec::new();
    for limits in [Limits::default(), small()] {
        match head.parse(data, &limits) {
            Ok(Status::Complete(length)) => {
                check_head(&head, &data[..length], &limits);
                let names: Vec<_> = head.fields.iter().map(|field| field.known).collect();
                outcome.push(fingerprint(&(names, head.verb, head.expects_continue, head.persistent, head.upgrades)));
            }
            Ok(Status::Partial) => assert!(data.len() - head.start <= limits.head),
            Err(error) => outcome.push(fingerprint(&error)),
        }
        agree_with_memory(data, &limits);
    }
    fingerprint(&outcome)
}

/// A field section met before means the same as when it was read.
fn agree_with_memory(data: &[u8], limits: &Limits) {
    let (mut read, mut recalled, mut sections) = (Head::default(), Head::default(), Sections::new());
    let expected = read.parse(data, limits);
    for _ in 0..3 {
        assert_eq!(recalled.parse_recalling(data, limits, Some(&mut sections)), expected);
        if expected.is_ok() {
            let meaning = |head: &Head| {
                (head.target, head.version, head.body, head.persistent, head.upgrades, head.expects_continue)
            };
            assert_eq!(meaning(&recalled), meaning(&read));
            assert!(recalled.fields == read.fields || recalled.is_recalled());
        }
    }
}

fn check_head(head: &Head, data: &[u8], limits: &Limits) {
    assert!(data.len() - head.start <= limits.head && data.ends_with(b"\r\n\r\n"));
    assert!(head.fields.len() <= limits.fields && head.target.whole.len() <= limits.target);
    assert!(data[..head.start].iter().all(|byte| b"\r\n".contains(byte)));
    let lines = data[head.start..].split(|&byte| byte == b'\n').count() - 1;
    assert_eq!(lines, head.fields.len() + 2, "one line for each field");
    for field in &head.fields {
        let (name, value) = (field.name.of(data), field.value.of(data));
        assert!(wire::headers::is_token(name) && wire::headers::is_value(value));
        assert!(name.eq_ignore_ascii_case(field.known.as_str().as_bytes()) || field.known == wire::Name::Other);
        assert!(!value.starts_with(b" ") && !value.ends_with(b"\t"));
    }
    agree_with_httparse(head, data);
}

fn agree_with_httparse(head: &Head, data: &[u8]) {
    let minor = data[head.target.whole.end as usize + 8];
    let mut data = data.to_vec();
    // It knows 1.0 and 1.1 only.
    data[head.target.whole.end as usize + 8] = minor.min(b'1');
    let mut storage = vec![httparse::EMPTY_HEADER; head.fields.len()];
    let mut request = httparse::Request::new(&mut storage);
    assert_eq!(request.parse(&data), Ok(httparse::Status::Complete(data.len())));
    assert_eq!(request.method.map(str::as_bytes), Some(head.method.of(&data)));
    assert_eq!(request.path.map(str::as_bytes), Some(head.target.whole.of(&data)));
    assert_eq!(request.version == Some(0), head.version == Version::Http10);
    for (theirs, ours) in request.headers.iter().zip(&head.fields) {
        assert_eq!((theirs.name.as_bytes(), theirs.value), (ours.name.of(&data), ours.value.of(&data)));
    }
}

/// Cuts do not matter. The first byte chooses the application's behaviour and the cuts of the rest.
pub fn h1_split(data: &[u8]) -> u64 {
    let Some((&control, data)) = data.split_first() else { return 0 };
    let (early, limits) = (control & 1 == 1, if control & 2 == 2 { small() } else { Limits::default() });
    let whole = trace(std::iter::once(data), early, &limits);
    let size = usize::from(control >> 2) + 1;
    assert_eq!(trace(data.chunks(size), early, &limits), whole, "in pieces of {size}");
    assert_eq!(trace(data.chunks(1), early, &limits), whole, "byte by byte");
    let (first, second) = data.split_at(size.min(data.len()));
    assert_eq!(trace([first, second].into_iter(), early, &limits), whole, "cut at {size}");
    fingerprint(&whole)
}

/// The view of a connection that an application and its peer have.
fn trace<'a>(pieces: impl Iterator<Item = &'a [u8]>, early: bool, limits: &Limits) -> Vec<String> {
    let (mut connection, mut scratch, mut seen, mut input) =
        (Connection::new(), Scratch::default(), vec![String::new()], Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        let used = feed(&mut connection, &mut scratch, &input, early, limits, &mut seen);
        input.drain(..used);
    }
    seen.push(format!("{:?} {:?}", connection.awaits(), connection.receive_eof(!input.is_empty())));
    seen
}

fn feed(
    connection: &mut Connection,
    scratch: &mut Scratch,
    input: &[u8],
    early: bool,
    limits: &Limits,
    seen: &mut Vec<String>,
) -> usize {
    let mut at = 0;
    loop {
        let start = at;
        let event = match connection.poll(&input[at..], scratch, limits) {
            Ok(progress) => {
                at += progress.consumed;
                assert!(at <= input.len());
                progress.event
            }
            Err(error) => {
                seen.push(format!("error {error}"));
                return input.len();
            }
        };
        match event {
            Event::Request => {
                let head = scratch.head();
                seen.push(describe(head, &input[start..]));
                seen.push(String::new());
                if early || head.body == wire::h1::BodyLength::None {
                    respond(connection, limits);
                }
            }
            Event::Body { data, end } => {
                assert!(data.end <= at - start);
                seen.last_mut().unwrap().push_str(&input[start..][data].escape_ascii().to_string());
                if end {
                    seen.push("end".into());
                    respond(connection, limits);
                }
            }
            Event::Skipped => assert!(at > start, "skipping makes progress"),
            Event::NeedMore | Event::Busy | Event::Switched | Event::Closed => return at,
        }
    }
}

fn respond(connection: &mut Connection, limits: &Limits) {
    let mut out = Vec::new();
    let head = connection.start_response(&mut out, 204, b"").unwrap();
    connection.finish_head(head, &mut out, None).unwrap();
    connection.finish(&mut out, limits).unwrap();
}

fn describe(head: &Head, input: &[u8]) -> String {
    let fields = head
        .fields
        .iter()
        .map(|field| format!("{}={};", field.name.of(input).escape_ascii(), field.value.of(input).escape_ascii()));
    format!(
        "{} {} {:?} {:?} {:?} {}",
        head.method.of(input).escape_ascii(),
        head.target.whole.of(input).escape_ascii(),
        head.target.form,
        head.version,
        head.body,
        fields.collect::<String>()
    )
}

/// Cuts do not matter, every call makes progress, and no more data comes out than went in.
pub fn h1_chunked(data: &[u8]) -> u64 {
    let Some((&control, data)) = data.split_first() else { return 0 };
    let limits = if control & 1 == 1 { small() } else { Limits::default() };
    let whole = dechunk(data, data.len().max(1), &limits);
    assert!(whole.0.len() <= data.len());
    assert_eq!(dechunk(data, 1, &limits), whole);
    assert_eq!(dechunk(data, usize::from(control >> 1) + 1, &limits), whole);
    if let Ok(Some(left)) = whole.1 {
        assert_eq!(reference(data), Some((whole.0.clone(), left)));
        round_trip(&whole.0);
    }
    fingerprint(&(whole.1, whole.0.len().min(4)))
}

fn dechunk(data: &[u8], size: usize, limits: &Limits) -> (Vec<u8>, Result<Option<usize>, Error>) {
    let mut decoder = Decoder::Chunked(Chunked::new(limits));
    let (mut body, mut at) = (Vec::new(), 0);
    while at < data.len() {
        let piece = &data[at..data.len().min(at + size)];
        match decoder.decode(piece, limits) {
            Ok(decoded) => {
                assert!(decoded.consumed > 0 && decoded.consumed <= piece.len());
                body.extend_from_slice(&piece[decoded.data]);
                at += decoded.consumed;
                if decoded.done {
                    return (body, Ok(Some(data.len() - at)));
                }
            }
            Err(error) => return (body, Err(error)),
        }
    }
    (body, Ok(None))
}

/// The slow and obvious way to read chunks that are known to be complete: the data, and how much is left behind them.
fn reference(mut data: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut body = Vec::new();
    loop {
        let line = take_line(&mut data)?;
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let size = u64::from_str_radix(std::str::from_utf8(&line[..digits]).ok()?, 16).ok()?;
        let extensions = line[digits..].trim_ascii_start();
        if digits > 16 || !(digits == line.len() || extensions.starts_with(b";")) {
            return None;
        }
        if size == 0 {
            break;
        }
        let (chunk, rest) = data.split_at_checked(usize::try_from(size).ok()?)?;
        body.extend_from_slice(chunk);
        data = rest.strip_prefix(b"\r\n")?;
    }
    while !take_line(&mut data)?.is_empty() {}
    Some((body, data.len()))
}

/// The bytes in front of the next CRLF, if they hold no control character but tabs.
fn take_line<'a>(data: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = data.iter().position(|&byte| byte == b'\r')?;
    let (line, rest) = data.split_at_checked(end)?;
    *data = rest.strip_prefix(b"\r\n")?;
    wire::headers::is_value(line).then_some(line)
}

/// Check that chunked data decodes to the same.
fn round_trip(data: &[u8]) {
    let (mut out, mut body) = (Vec::new(), body_writer(None));
    data.chunks(7).for_each(|part| body.write(&mut out, part).unwrap());
    body.finish(&mut out).unwrap();
    assert_eq!(dechunk(&out, out.len(), &Limits::default()), (data.to_vec(), Ok(Some(0))));
}

fn body_writer(length: Option<u64>) -> BodyWriter {
    let head = HeadWriter::begin(&mut Vec::new(), Exchange::default(), 200, b"").unwrap();
    head.end(&mut Vec::new(), length).unwrap().0
}

/// Any messages of an application produce one well-formed response, or nothing. The first two bytes are the request and
/// the status; lines of `name:value` follow, and behind an empty line the body, in parts of a line each.
pub fn h1_response(data: &[u8]) -> u64 {
    let [control, status, rest @ ..] = data else { return 0 };
    let exchange = Exchange {
        head: control & 1 == 1,
        version: if control & 2 == 2 { Version::Http10 } else { Version::Http11 },
        close: control & 4 == 4,
    };
    let status = if *status < 64 { [200, 204, 205, 304][usize::from(status % 4)] } else { u16::from(*status) * 3 };
    let known = (control & 8 == 8).then_some(u64::from(control >> 4));
    let mut out = b"before".to_vec();
    match write_response(&mut out, exchange, status, rest, known) {
        Ok(framing) => {
            check_response(&out[6..], exchange, status, framing);
            fingerprint(&(std::mem::discriminant(&framing), out.len().ilog2()))
        }
        Err((error, true)) => {
            assert_eq!(out, b"before", "an error in the head takes it back");
            fingerprint(&error.to_string())
        }
        Err((error, false)) => fingerprint(&(error.to_string(), 1)),
    }
}

/// Errors come with whether the head was still being written.
fn write_response(
    out: &mut Vec<u8>,
    exchange: Exchange,
    status: u16,
    rest: &[u8],
    known: Option<u64>,
) -> Result<Framing, (AppError, bool)> {
    let in_head = |error| (error, true);
    let in_body = |error| (error, false);
    let mut head = HeadWriter::begin(out, exchange, status, b"server: x\r\n").map_err(in_head)?;
    let mut lines = rest.split(|&byte| byte == b'\n');
    for line in lines.by_ref().take_while(|line| !line.is_empty()) {
        let mut halves = line.splitn(2, |&byte| byte == b':');
        let (name, value) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
        head.field(out, name, value).map_err(in_head)?;
    }
    let (mut body, _) = head.end(out, known).map_err(in_head)?;
    let framing = body.framing();
    for part in lines {
        body.write(out, part).map_err(in_body)?;
    }
    body.finish(out).map_err(in_body)?;
    Ok(framing)
}

fn check_response(out: &[u8], exchange: Exchange, status: u16, framing: Framing) {
    let mut storage = vec![httparse::EMPTY_HEADER; out.len() / 4];
    let mut response = httparse::Response::new(&mut storage);
    let Ok(httparse::Status::Complete(length)) = response.parse(out) else { panic!("not a whole head") };
    assert_eq!((response.code, response.version), (Some(status), Some(1)));
    let lines = out[..length].split(|&byte| byte == b'\n').count() - 1;
    assert_eq!(lines, response.headers.len() + 2, "one line for each field");
    let values = |name: &str| {
        response.headers.iter().filter(|field| field.name == name).map(|field| field.value).collect::<Vec<_>>()
    };
    assert!(response.headers.iter().all(|field| !field.name.bytes().any(|byte| byte.is_ascii_uppercase())));
    let (lengths, codings) = (values("content-length"), values("transfer-encoding"));
    assert!(lengths.len() + codings.len() <= 1, "one framing field at most");
    assert!(codings.is_empty() || exchange.version == Version::Http11);
    assert!(status != 204 || lengths.is_empty() && codings.is_empty());
    let body = &out[length..];
    match framing {
        Framing::None => assert!(body.is_empty()),
        Framing::Length(length) => {
            assert_eq!(body.len() as u64, length);
            assert_eq!(lengths[0].iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0')), length);
        }
        Framing::Chunked => {
            assert!(codings[0].ends_with(b"chunked"));
            let limits = Limits { chunk_waste: 0, ..Limits::default() };
            assert_eq!(dechunk(body, body.len(), &limits).1, Ok(Some(0)), "no byte wasted, none left");
        }
        Framing::CloseDelimited => assert!(lengths.is_empty() && codings.is_empty()),
    }
}
