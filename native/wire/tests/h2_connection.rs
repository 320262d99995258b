//! Connections of HTTP/2 as a whole: cases that are hard to write as data.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "not production code"
)]

#[path = "support/h2.rs"]
mod support;

use support::{
    ACK, Answers, App, END_HEADERS, END_STREAM, GET, POST, Server, data, get, headers, hello, post, put, reset, window,
};
use wire::h2::{ErrorCode, Settings};
use wire::{AppError, Limits};

fn number(count: u32) -> u32 {
    count * 2 + 1
}

/// RFC 9113 section 6.9.2
#[test]
fn a_window_of_nothing_holds_a_response_and_less_than_nothing_as_well() {
    let mut server = Server::new(App::Bytes(1000), Settings::default());
    server.receive(&[hello(&[(4, 0)]), get(1)].concat());
    let id = server.ids[&1];
    assert!(server.connection.is_blocked(id));
    let bytes = |server: &mut Server| Answers::read(&server.take()).bodies.get(&1).map_or(0, Vec::len);
    assert_eq!(bytes(&mut server), 0);
    server.receive(&put(4, 0, 0, &[0, 4, 0, 0, 0, 100]));
    assert_eq!(bytes(&mut server), 100);
    server.receive(&put(4, 0, 0, &[0, 4, 0, 0, 0, 10])); // ninety less than nothing
    server.receive(&window(1, 90));
    assert_eq!((bytes(&mut server), server.connection.is_blocked(id)), (0, true));
    server.receive(&window(1, 1));
    assert_eq!(bytes(&mut server), 1);
    server.receive(&window(1, 10_000));
    assert_eq!((bytes(&mut server), server.connection.is_idle()), (899, true));
}

/// RFC 9218: a small answer overtakes a large download, and equals take turns.
#[test]
fn a_large_download_never_delays_a_small_answer() {
    let mut server = Server::ready(App::Bytes(10_000_000));
    server.flushes = false;
    server.receive(&[window(0, 0x7fff_0000), put(4, 0, 0, &[0, 4, 0x7f, 0, 0, 0])].concat());
    for count in 0..8 {
        server.receive(&get(number(count)));
    }
    server.flush(1_000_000);
    server.take();
    server.app = App::Bytes(5);
    server.receive(&get(101));
    server.flush(16_384 * 4 * 8 + 1000);
    let frames = server.take();
    let at = frames.iter().position(|frame| frame.stream == 101 && frame.kind == 0).unwrap();
    assert!(at <= 1 + 8 * 4, "behind {at} frames");
    assert!(frames[at].ends());
    // One that is urgent goes at once, and one that can wait waits.
    server.app = App::Bytes(50_000);
    let fields = |value| [&GET[..], &[("priority", value)]].concat();
    server.receive(&headers(103, END_STREAM, &fields("u=7")));
    server.receive(&headers(105, END_STREAM, &fields("u=0")));
    server.flush(300_000);
    let frames = server.take();
    let order: Vec<_> = frames.iter().filter(|frame| frame.kind == 0).map(|frame| frame.stream).collect();
    assert_eq!(order[..4], [105; 4]);
    assert!(!order.contains(&103) && order.len() > 10);
    // The client changes its mind.
    server.receive(&put(0x10, 0, 0, b"\0\0\0\x67u=0"));
    server.flush(60_000);
    let order: Vec<_> = server.take().iter().filter(|frame| frame.kind == 0).map(|frame| frame.stream).collect();
    assert_eq!(order[..4], [103; 4]);
}

#[test]
fn incremental_responses_take_turns_by_the_frame() {
    let mut server = Server::ready(App::Bytes(60_000));
    server.flushes = false;
    server.receive(&window(0, 1 << 24));
    let fields = [&GET[..], &[("priority", "i")]].concat();
    for number in [1, 3, 5] {
        server.receive(&headers(number, END_STREAM, &fields));
    }
    assert!(server.flush(100_000));
    let order: Vec<_> = server.take().iter().filter(|frame| frame.kind == 0).map(|frame| frame.stream).collect();
    assert_eq!(order[..6], [1, 3, 5, 1, 3, 5]);
}

/// An application that does not read stops its own stream only.
#[test]
fn a_body_that_is_not_read_stops_its_own_stream() {
    let mut server = Server::ready(App::Silent);
    server.receive(&post(1));
    for _ in 0..4 {
        server.receive(&data(1, 0, &[0; 16_384]));
    }
    let id = server.ids[&1];
    assert_eq!((server.connection.held(id), server.failure), (65_536, None));
    server.app = App::Echo;
    server.receive(&[post(3), data(3, END_STREAM, &[1; 16_384])].concat());
    assert_eq!(Answers::read(&server.take()).bodies[&3].len(), 16_384);
    server.receive(&data(1, 0, b"x"));
    assert_eq!((server.seen[&1].reset, server.failure), (Some(ErrorCode::FlowControl as u32), None));
}

/// Windows of bodies that are read as they come grow, so that a long way does not slow them down.
#[test]
fn a_window_grows_with_use_within_bounds() {
    let most = 1 << 20;
    let settings = Settings { largest_window: most, growth: most, ..Settings::default() };
    let mut server = Server::new(App::Echo, settings);
    server.receive(&[hello(&[]), put(4, ACK, 0, b""), post(1), post(3)].concat());
    let mut windows = [65_536_i64; 2];
    let mut largest = [0; 2];
    for _ in 0..400 {
        for (at, stream) in [(0, 1), (1, 3)] {
            server.receive(&data(stream, 0, &[0; 16_000]));
            windows[at] -= 16_000;
            for frame in server.take().iter().filter(|frame| frame.kind == 8 && frame.stream == stream) {
                windows[at] += i64::from(frame.number(0));
            }
            largest[at] = largest[at].max(windows[at]);
        }
    }
    assert!(server.failure.is_none());
    let sum: i64 = largest.iter().sum();
    assert!(sum >= i64::from(most) && sum <= i64::from(most) + 2 * 65_536, "{largest:?}");
}

/// Growth of a closed stream's window is there for the next stream.
#[test]
fn what_windows_have_grown_by_comes_back() {
    let settings = Settings { largest_window: 1 << 20, growth: 1 << 20, ..Settings::default() };
    let mut server = Server::new(App::Echo, settings);
    server.receive(&[hello(&[]), put(4, ACK, 0, b"")].concat());
    for count in 0..10 {
        let stream = number(count);
        server.receive(&post(stream));
        server.app = App::Bytes(0);
        let (mut window, mut largest) = (65_536, 0);
        for _ in 0..100 {
            server.receive(&data(stream, 0, &[0; 16_000]));
            window -= 16_000;
            for frame in server.take().iter().filter(|frame| frame.kind == 8 && frame.stream == stream) {
                window += i64::from(frame.number(0));
            }
            largest = largest.max(window);
        }
        server.receive(&if count % 2 == 0 { reset(stream) } else { data(stream, END_STREAM, b"") });
        assert!(largest > 1 << 19, "{count}: {largest}");
    }
    assert!(server.failure.is_none());
}

#[test]
fn a_connection_ends_twice_and_what_is_in_flight_is_served() {
    let mut server = Server::ready(App::Silent);
    server.receive(&get(1));
    server.connection.announce_end(&mut server.out);
    server.connection.announce_end(&mut server.out);
    server.receive(&get(3));
    assert!(server.connection.is_ending() && server.seen.len() == 2);
    server.connection.end(&mut server.out);
    server.receive(&get(5));
    let frames = server.take();
    let last: Vec<_> = frames.iter().filter(|frame| frame.kind == 7).map(|frame| frame.number(0)).collect();
    assert_eq!(last, [0x7fff_ffff, 3]);
    assert_eq!((Answers::read(&frames).resets[&5], server.seen.len()), (7, 2));
    for number in [1, 3] {
        assert!(!server.connection.is_over());
        let id = server.ids[&number];
        server.respond(id, 200, b"bye");
        server.flush(1000);
    }
    assert_eq!((Answers::read(&server.take()).ended.len(), server.connection.is_over()), (2, true));
}

#[test]
fn numbers_of_streams_run_out_in_peace() {
    let mut server = Server::ready(App::Echo);
    server.receive(&get(0x7fff_ffff - 1900));
    assert!(server.connection.is_ending() && Answers::read(&server.take()).go_away == Some(0));
    server.receive(&get(0x7fff_ffff));
    assert_eq!(Answers::read(&server.take()).statuses[&0x7fff_ffff], ["200"]);
    assert!(server.connection.is_over() && server.failure.is_none());
}

/// RFC 8441: both halves of a tunnel are the application's.
#[test]
fn a_tunnel_carries_both_ways_until_both_have_ended() {
    let mut server = Server::ready(App::Silent);
    server.limits.body = Some(3);
    let fields = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":path", "/ws"),
        (":authority", "host"),
    ];
    server.receive(&[headers(1, 0, &fields), data(1, 0, b"hello")].concat());
    let id = server.ids[&1];
    assert_eq!(server.seen[&1].body, b"hello");
    let head = server.connection.start_response(&mut server.scratch, id, 200).unwrap();
    server.connection.finish_head(&mut server.out, &mut server.scratch, head, false).unwrap();
    assert_eq!(server.connection.body(&mut server.out, id, 0, true), Ok(false));
    assert!(server.connection.is_live(id));
    server.receive(&data(1, END_STREAM, b"bye"));
    assert!(!server.connection.is_live(id) && server.seen[&1].complete);
    assert!(Answers::read(&server.take()).resets.is_empty());
}

/// RFC 9113 section 8.1
#[test]
fn a_response_that_is_complete_before_its_request_asks_for_no_more() {
    let mut server = Server::ready(App::Silent);
    server.receive(&[post(1), data(1, 0, b"some")].concat());
    let id = server.ids[&1];
    server.respond(id, 200, b"early");
    server.flush(1000);
    let frames = server.take();
    let last = frames.last().unwrap();
    assert_eq!((last.kind, last.number(0), server.connection.is_live(id)), (3, 0, false));
    // Frames that were on their way are thrown away.
    server.receive(&[data(1, END_STREAM, b"more"), get(3)].concat());
    assert!(server.failure.is_none() && server.seen.contains_key(&3));
}

/// A refused request has ended even when its body comes later: its answer is not followed by a reset.
#[test]
fn a_refused_request_ends_with_its_body() {
    for end in [data(1, END_STREAM, b"x"), headers(1, END_STREAM, &[("a", "b")])] {
        let mut server = Server::ready(App::Silent);
        (server.limits.fields, server.flushes) = (4, false);
        server.receive(&headers(1, 0, &[&POST[..], &[("a", "b"); 4]].concat()));
        server.receive(&end);
        server.flush(1000);
        let frames = server.take();
        assert_eq!((server.seen[&1].refused, Answers::read(&frames).ended), (Some(431), vec![1]));
        assert!(frames.iter().all(|frame| frame.kind <= 1) && server.connection.is_idle());
    }
}

#[test]
fn responses_without_content_have_none() {
    for (method, status) in [("HEAD", 200), ("GET", 204), ("GET", 304), ("GET", 205)] {
        let mut server = Server::ready(App::Silent);
        server.receive(&headers(1, END_STREAM, &[(":method", method), GET[1], GET[2], GET[3]]));
        let id = server.ids[&1];
        let mut head = server.connection.start_response(&mut server.scratch, id, status).unwrap();
        head.field(b"Content-Length", b"5").unwrap();
        server.connection.finish_head(&mut server.out, &mut server.scratch, head, false).unwrap();
        assert!(!server.connection.is_live(id));
        assert_eq!(server.connection.body(&mut server.out, id, 5, true), Ok(false));
        let frames = server.take();
        assert!(frames.len() == 1 && frames[0].ends());
    }
}

#[test]
fn interim_responses_come_in_front() {
    let mut server = Server::ready(App::Silent);
    server.receive(&headers(1, 0, &[&POST[..], &[("expect", "100-continue")]].concat()));
    let id = server.ids[&1];
    let Server { connection, scratch, out, .. } = &mut server;
    let link = [(&b"link"[..], &b"</a>; rel=preload"[..])];
    connection.interim(out, scratch, id, 103, link).unwrap();
    assert!(connection.send_continue(out, scratch, id) && !connection.send_continue(out, scratch, id));
    assert_eq!(connection.interim(out, scratch, id, 101, []), Err(AppError::Status));
    assert_eq!(connection.interim(out, scratch, id, 103, [(&b"a b"[..], &b""[..])]), Err(AppError::FieldName));
    server.respond(id, 200, b"");
    server.receive(&[]);
    assert_eq!(Answers::read(&server.take()).statuses[&1], ["103", "100", "200"]);
    assert_eq!(server.connection.interim(&mut server.out, &mut server.scratch, id, 103, []), Err(AppError::State));
}

/// A large section of ours is cut into frames that the client takes.
#[test]
fn a_large_response_head_takes_several_frames() {
    let mut server = Server::ready(App::Silent);
    server.receive(&get(1));
    let id = server.ids[&1];
    let mut head = server.connection.start_response(&mut server.scratch, id, 200).unwrap();
    head.field(b"x", &vec![b'~'; 40_000]).unwrap();
    server.connection.finish_head(&mut server.out, &mut server.scratch, head, true).unwrap();
    let frames = server.take();
    assert_eq!(frames.iter().map(|frame| frame.kind).collect::<Vec<_>>(), [1, 9, 9]);
    assert!(frames.iter().all(|frame| frame.payload.len() <= 16_384));
    assert_eq!(frames[2].flags & END_HEADERS, END_HEADERS);
}

/// Before a client knows our settings it goes by the defaults (RFC 9113 section 6.5.3).
#[test]
fn settings_hold_when_they_are_acknowledged() {
    let settings = Settings { window: 1000, ..Settings::default() };
    let mut server = Server::new(App::Silent, settings);
    server.receive(&[hello(&[]), post(1), data(1, 0, &[0; 16_000])].concat());
    assert!(!server.connection.is_acknowledged());
    server.receive(&[put(4, ACK, 0, b""), post(3), data(3, 0, &[0; 1000])].concat());
    assert!(server.connection.is_acknowledged() && server.seen.values().all(|seen| seen.reset.is_none()));
    server.receive(&[data(1, 0, b"x"), data(3, 0, b"x")].concat());
    let code = Some(ErrorCode::FlowControl as u32);
    assert_eq!((server.seen[&1].reset, server.seen[&3].reset, server.failure), (code, code, None));
}

#[test]
fn a_body_above_the_limit_is_refused_when_it_crosses_it() {
    let limits = Limits { body: Some(10), ..Limits::default() };
    let mut server = Server::ready(App::Silent);
    server.limits = limits;
    server.receive(&[post(1), data(1, 0, &[0; 10])].concat());
    assert_eq!((server.seen[&1].refused, server.seen[&1].body.len()), (None, 10));
    server.receive(&[data(1, 0, b"x"), data(1, END_STREAM, b"x")].concat());
    let answers = Answers::read(&server.take());
    assert_eq!((server.seen[&1].refused, &answers.statuses[&1][0][..]), (Some(413), "413"));
    assert!(server.failure.is_none());
}
