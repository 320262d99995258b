//! HTTP/3 connections from what their clients see: drain, priorities, responses of all kinds, tables, and bounds.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "not production code"
)]

#[path = "support/h3.rs"]
mod support;

use support::{App, GET, POST, Server, bytes, data, frame, headers, take, varint};
use wire::h1::Trailers;
use wire::h3::{Channel, Connection, ErrorCode, Event, Priority, Settings, StreamId, UniStream};
use wire::qpack::Decoder;
use wire::{AppError, Limits};

/// An encoder stream with one entry, `a: b`, and a section of a request that refers to it.
const INSERT: &[u8] = b"\x02\x3f\x45\x41a\x01b";
const WITH_ENTRY: &[u8] = b"\x02\0\xd1\xd7\xc1\x50\x01h\x80";

/// The frames of the control stream behind the settings: types and payloads.
fn control(server: &Server) -> Vec<(u64, Vec<u8>)> {
    let (mut rest, mut found) = (&server.own[0][1..], Vec::new());
    while !rest.is_empty() {
        let (kind, length) = (take(&mut rest), usize::try_from(take(&mut rest)).unwrap());
        let (payload, behind) = rest.split_at(length);
        found.push((kind, payload.to_vec()));
        rest = behind;
    }
    assert_eq!(found.remove(0).0, 4);
    found
}

fn request(server: &mut Server, stream: u64, fields: &[(&str, &str)], end: bool) -> StreamId {
    server.step(&bytes(stream, &headers(fields), end));
    server.ids[&stream]
}

fn with<'a>(first: &[(&'a str, &'a str)], more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [first, more].concat()
}

/// RFC 9114 section 5.2
#[test]
fn a_connection_is_drained_in_two_steps() {
    let mut server = Server::ready(App::Silent);
    let first = request(&mut server, 0, &GET, true);
    server.connection.announce_end();
    server.connection.announce_end();
    let late = request(&mut server, 8, &GET, true);
    server.connection.end();
    server.connection.end();
    server.step(&bytes(12, &headers(&GET), true));
    let reordered = request(&mut server, 4, &GET, true);
    assert_eq!(control(&server), [(7, varint((1 << 62) - 4)), (7, varint(12))]);
    assert_eq!(server.resets, [(12, ErrorCode::RequestRejected.number())].into());
    for stream in [first, late, reordered] {
        assert!(server.connection.is_ending() && !server.connection.is_over());
        server.respond(stream, 200, b"hello");
    }
    assert!(server.connection.is_over() && server.connection.is_idle());
    assert_eq!(server.answers().len(), 3);
}

/// RFC 9218
#[test]
fn the_more_urgent_go_first_and_equals_in_turns() {
    let mut server = Server::ready(App::Silent);
    let update = |stream: u64, value: &[u8]| bytes(2, &frame(0xf_0700, &[&varint(stream), value].concat()), false);
    server.step(&update(4, b"u=0"));
    for (stream, priority) in [(0, "u=5"), (4, "u=7"), (8, "u=2, i"), (12, "i, u=2"), (16, "u=1")] {
        request(&mut server, stream, &with(&GET, &[("priority", priority)]), true);
    }
    server.step(&update(16, b"u=6"));
    // A request whose head is not complete.
    server.step(&bytes(20, b"\x01", false));
    server.step(&update(20, b"u=4"));
    server.step(&bytes(20, &headers(&GET)[1..], true));
    assert_eq!(server.connection.priority(server.ids[&20]).urgency, 4);
    server.connection.reset(server.ids[&20]);
    server.ids.remove(&20);
    let of = |server: &Server, stream| server.connection.priority(server.ids[&stream]);
    assert_eq!(of(&server, 4), Priority { urgency: 0, incremental: false });
    assert_eq!(of(&server, 16), Priority { urgency: 6, incremental: false });
    let ids: Vec<_> = server.ids.values().copied().collect();
    for id in &ids {
        server.connection.ready(*id);
    }
    let mut order = Vec::new();
    let mut slices = std::collections::BTreeMap::new();
    while let Some(turn) = server.connection.turn() {
        let slice = slices.entry(turn.stream.number()).or_insert(0);
        *slice += 1;
        order.push(turn.stream.number());
        server.connection.sent(turn.stream, turn.most, *slice < 2, false);
    }
    assert_eq!(order, [4, 4, 8, 12, 8, 12, 0, 0, 16, 16]);
    // One that is blocked waits until it can be written to.
    server.connection.ready(ids[0]);
    server.connection.sent(ids[0], 0, false, true);
    assert_eq!(server.connection.turn(), None);
    server.connection.ready(ids[0]);
    assert_eq!(server.connection.turn().map(|turn| turn.stream), Some(ids[0]));
}

#[test]
fn a_response_has_interim_ones_a_body_and_trailers() {
    let mut server = Server::ready(App::Silent);
    let id = request(&mut server, 0, &with(&POST, &[("expect", "100-continue")]), false);
    let Server { connection, scratch, out, .. } = &mut server;
    let out = out.entry(0).or_default();
    assert!(connection.send_continue(out, scratch, id) && !connection.send_continue(out, scratch, id));
    connection.interim(out, scratch, id, 103, [(&b"Link"[..], &b"</a>; rel=preload"[..])]).unwrap();
    assert_eq!(connection.interim(out, scratch, id, 101, []), Err(AppError::Status));
    assert_eq!(connection.body(out, id, 1, false), Err(AppError::State));
    let mut head = connection.start_response(scratch, id, 200).unwrap();
    head.field(b"Content-Length", b"4").unwrap();
    head.field(b"Connection", b"close").unwrap();
    connection.finish_head(out, scratch, head, false).unwrap();
    assert_eq!(connection.interim(out, scratch, id, 103, []), Err(AppError::State));
    assert_eq!(connection.check_end(id, 3), Err(AppError::TooShort));
    for (piece, last) in [(&b"ab"[..], false), (b"", false), (b"cd", false)] {
        if connection.body(out, id, piece.len(), last).unwrap() {
            out.extend_from_slice(piece);
        }
    }
    assert_eq!(connection.body(out, id, 1, false), Err(AppError::TooLong));
    let mut trailers = Trailers::default();
    trailers.add(b"x-check", b"1").unwrap();
    connection.trailers(out, scratch, id, &trailers).unwrap();
    assert!(connection.has_ended(id));
    // The body of the request is unwanted (RFC 9114 section 4.1).
    assert_eq!(connection.complete(id), Some(ErrorCode::NoError));
    let answer = server.answers().remove(&0).unwrap();
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        answer.sections,
        [
            vec![field(":status", "100")],
            vec![field(":status", "103"), field("link", "</a>; rel=preload")],
            vec![field(":status", "200"), field("content-length", "4")],
            vec![field("x-check", "1")],
        ]
    );
    assert_eq!(answer.body, b"abcd");
}

#[test]
fn a_response_without_content_ends_with_its_head() {
    let head: Vec<_> =
        GET.iter().map(|&(name, value)| if name == ":method" { (name, "HEAD") } else { (name, value) }).collect();
    for (fields, status) in [(&head[..], 200), (&GET, 204), (&GET, 304)] {
        let mut server = Server::ready(App::Silent);
        let id = request(&mut server, 0, fields, true);
        let Server { connection, scratch, out, .. } = &mut server;
        let out = out.entry(0).or_default();
        let head = connection.start_response(scratch, id, status).unwrap();
        connection.finish_head(out, scratch, head, false).unwrap();
        assert!(connection.has_ended(id) && !connection.takes_body(id));
        assert_eq!(connection.body(out, id, 5, true), Ok(false));
        connection.trailers(out, scratch, id, &Trailers::default()).unwrap();
        assert_eq!((connection.complete(id), connection.is_live(id)), (None, false));
        assert_eq!(server.answers()[&0].sections.len(), 1);
    }
}

/// RFC 9220
#[test]
fn a_tunnel_is_open_until_both_halves_end() {
    let connect = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":path", "/"),
        (":authority", "host"),
    ];
    for client_first in [false, true] {
        let mut server = Server::ready(App::Silent);
        server.limits.body = Some(1);
        let id = request(&mut server, 0, &connect, false);
        let Server { connection, scratch, out, .. } = &mut server;
        let out = out.entry(0).or_default();
        let head = connection.start_response(scratch, id, 200).unwrap();
        connection.finish_head(out, scratch, head, false).unwrap();
        assert!(connection.body(out, id, 2, false).unwrap());
        server.step(&bytes(0, &data(b"ping"), client_first));
        server.connection.body(&mut Vec::new(), id, 0, true).unwrap();
        assert_eq!(server.connection.complete(id), None);
        assert_eq!(server.connection.is_live(id), !client_first);
        if !client_first {
            server.step(&bytes(0, &data(b"pong"), false));
            server.step(&bytes(0, b"", true));
        }
        assert!(!server.connection.is_live(id) && server.seen[&0].complete);
        assert_eq!(server.seen[&0].body.len(), if client_first { 4 } else { 8 });
    }
}

/// The client's acknowledgements of all that the server has sent.
fn acknowledge(server: &mut Server, decoder: &mut Decoder, read: &mut usize, stream: u64) {
    let encoder = server.own[1].clone();
    while let Some((length, _)) = decoder.instruction(&encoder[*read..]).unwrap() {
        *read += length;
    }
    let mut rest = server.out[&stream].as_slice();
    while !rest.is_empty() {
        let (kind, length) = (take(&mut rest), usize::try_from(take(&mut rest)).unwrap());
        let (payload, behind) = rest.split_at(length);
        rest = behind;
        if kind == 1 {
            decoder.decode(stream, payload, usize::MAX, |_| {}).unwrap();
        }
    }
    let output = decoder.output().to_vec();
    decoder.unwritten().clear();
    server.step(&bytes(10, &output, false));
}

/// RFC 9204 sections 2.1.1 to 2.1.4
#[test]
fn what_comes_again_is_in_the_table_and_stays_there_while_others_come_and_go() {
    let mut server = Server::ready(App::Silent);
    let (mut decoder, mut read, mut lengths) = (Decoder::<()>::new(4096), 1, Vec::new());
    for round in 0..500_u64 {
        let id = request(&mut server, round * 4, &GET, true);
        let Server { connection, scratch, out, .. } = &mut server;
        let out = out.entry(round * 4).or_default();
        let mut head = connection.start_response(scratch, id, 200).unwrap();
        head.field(b"server", b"a server with quite a long name").unwrap();
        head.field(b"date", format!("a second that comes once: {round}").as_bytes()).unwrap();
        head.field(b"set-cookie", b"a secret").unwrap();
        connection.finish_head(out, scratch, head, true).unwrap();
        lengths.push(out.len());
        server.finish(id);
        server.write();
        acknowledge(&mut server, &mut decoder, &mut read, round * 4);
    }
    // The date is new each time; the server is a reference, but for when its entry was moved.
    assert!(lengths[0] > lengths[1] + 20, "{lengths:?}");
    let literal = lengths.iter().skip(1).filter(|&&length| length > lengths[1] + 20).count();
    assert!((1..40).contains(&literal), "{literal}");
    assert!(!server.own[1].windows(6).any(|part| part == b"secret") && server.failure.is_none());
}

/// H14: a client that acknowledges nothing gets literals; one that reads no acknowledgements is refused.
#[test]
fn what_waits_for_a_client_is_bounded() {
    let mut server = Server::ready(App::Echo);
    server.step(&bytes(10, b"\x03", false));
    for round in 0..2000 {
        server.step(&bytes(round * 4, &headers(&GET), true));
    }
    assert!(server.failure.is_none() && server.own[1].len() < 200);

    let mut connection = Connection::<()>::new(Settings::default());
    let mut stream = UniStream::default();
    connection.receive_uni(&mut stream, INSERT, false);
    let (mut scratch, limits) = (wire::h3::Scratch::default(), Limits::default());
    let failed = (0_u64..100_000).find_map(|round| {
        let id = match connection.open(round * 4) {
            Ok(id) => id.unwrap(),
            Err(failure) => return Some((round, failure)),
        };
        connection.receive(id, &frame(1, WITH_ENTRY), true, &mut scratch, &limits);
        connection.release(id);
        None
    });
    let (round, failure) = failed.unwrap();
    assert!(failure.code == ErrorCode::ExcessiveLoad && round > 10_000, "{round}");
    assert!(connection.is_closed() && connection.is_over());
}

/// H1: a stream that was reset and is still served counts
#[test]
fn streams_count_until_they_are_released() {
    let mut connection = Connection::<()>::new(Settings { streams: 2, ..Settings::default() });
    let first = connection.open(0).unwrap().unwrap();
    let second = connection.open(4).unwrap().unwrap();
    assert_eq!(connection.reset_by_client(first, 7), Event::Reset { stream: first, code: 7, ours: false });
    assert_eq!(connection.reset_by_client(first, 7), Event::NeedMore);
    assert_eq!(connection.open(8), Ok(None));
    connection.release(first);
    let third = connection.open(12).unwrap().unwrap();
    assert_eq!((third.place(), second.place()), (0, 1));
    assert!(connection.reset(second) && !connection.reset(second));
    assert_eq!(connection.open(16), Ok(None));
}

#[test]
fn a_failure_ends_everything_once() {
    let mut server = Server::ready(App::Silent);
    let id = request(&mut server, 0, &POST, false);
    server.step(&bytes(2, &frame(4, b""), false));
    assert_eq!(server.failure.map(|failure| failure.code), Some(ErrorCode::FrameUnexpected));
    let Server { connection, scratch, .. } = &mut server;
    assert!(!connection.is_live(id) && connection.is_idle());
    assert_eq!(connection.start_response(scratch, id, 200).err(), Some(AppError::State));
    assert_eq!(connection.body(&mut Vec::new(), id, 5, true), Ok(false));
    assert_eq!((connection.complete(id), connection.turn(), connection.open(4)), (None, None, Ok(None)));
    connection.announce_end();
    connection.end();
    connection.release(id);
    let progress = connection.receive(id, b"more", true, scratch, &Limits::default());
    assert_eq!((progress.consumed, progress.event), (4, Event::Closed));
    assert_eq!(connection.receive_uni(&mut UniStream::default(), b"more", true).event, Event::Closed);
    assert_eq!(connection.stopped_own(), Event::Closed);
    assert_eq!(connection.output(Channel::Control), b"");
}

/// The caller's values live as long as the entries of the client's table.
#[test]
fn what_is_kept_with_an_entry_is_found_again() {
    let mut server = Server::ready(App::Echo);
    server.step(&bytes(6, INSERT, false));
    for stream in [0, 4] {
        server.step(&bytes(stream, &frame(1, WITH_ENTRY), true));
        let entries = server.seen[&stream].fields.clone();
        assert_eq!(entries[1], ("a".to_owned(), "b".to_owned()));
    }
    // The section is of another connection's client, but the number of its entry is not.
    let mut other = Server::ready(App::Echo);
    other.step(&bytes(6, b"\x02\x3f\x45\x41a\x01c", false));
    other.step(&bytes(0, &frame(1, WITH_ENTRY), true));
    assert_eq!(other.seen[&0].fields[1].1, "c");
    assert_eq!(server.own[2][1..], [1, 0x80, 0x84]);
}
