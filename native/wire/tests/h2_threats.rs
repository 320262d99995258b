//! Attacks by clients of HTTP/2: each threat has a test that is named after it.

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
    ACK, Answers, App, END_HEADERS, END_STREAM, GET, PADDED, POST, Server, block, data, get, headers, hello, post, put,
    reset, window,
};
use wire::h2::{ErrorCode, Scratch, Settings};
use wire::{AppError, Trailers};

/// The frames that a client repeats, by a number that grows.
type Round = fn(u32) -> Vec<u8>;

const CALM: ErrorCode = ErrorCode::EnhanceYourCalm;

/// Send `round` after `round` until the server has had enough; how many that were, and the code.
fn until_calm(server: &mut Server, round: impl Fn(u32) -> Vec<u8>) -> (u32, ErrorCode) {
    for count in 0..200_000 {
        server.receive(&round(count));
        server.take();
        if let Some(failure) = server.failure {
            return (count, failure.code);
        }
    }
    panic!("it never ends");
}

fn number(count: u32) -> u32 {
    count * 2 + 1
}

#[test]
fn h1_rapid_reset() {
    let mut server = Server::ready(App::Silent);
    let (count, code) = until_calm(&mut server, |count| [get(number(count)), reset(number(count))].concat());
    assert_eq!((count, code), (200, CALM));
    // Nothing is accepted any longer, and nothing is alive.
    server.receive(&get(100_001));
    assert!(server.take().is_empty() && server.connection.is_idle());
}

/// A stream that was reset and is still served counts: only the allowed number is served at a time.
#[test]
fn h1_applications_that_do_not_notice_their_resets_are_bounded() {
    let settings = Settings { streams: 10, ..Settings::default() };
    let mut server = Server::new(App::Silent, settings);
    server.receive(&[hello(&[]), put(4, ACK, 0, b"")].concat());
    let mut scratch = Scratch::default();
    let (mut accepted, mut out) = (Vec::new(), Vec::new());
    for count in 0..50 {
        let input = [get(number(count)), reset(number(count))].concat();
        let mut at = 0;
        loop {
            let progress = server.connection.poll(&input[at..], &mut out, &mut scratch, &server.limits);
            at += progress.consumed;
            match progress.event {
                wire::h2::Event::Request { stream, .. } => accepted.push(stream),
                wire::h2::Event::NeedMore => break,
                _ => {}
            }
        }
    }
    assert_eq!(accepted.len(), 10);
    assert!(Answers::read(&support::frames(&out)).resets.values().all(|&code| code == 7));
    server.connection.release(&mut out, accepted[3]);
    server.receive(&get(1001));
    assert!(server.seen.contains_key(&1001));
}

/// Whatever makes the server reset a stream costs as much as a reset.
#[test]
fn h2_resets_that_the_server_is_made_to_send() {
    let rounds: [(&str, Round); 7] = [
        ("window of nothing", |number| [post(number), window(number, 0)].concat()),
        ("window too large", |number| [post(number), window(number, 0x7fff_ffff)].concat()),
        ("data behind the end", |number| [get(number), data(number, 0, &[0; 20])].concat()),
        ("a request behind the end", |number| [get(number), get(number)].concat()),
        ("a priority of the wrong size", |number| [post(number), put(2, 0, number, b"")].concat()),
        ("malformed", |number| headers(number, END_STREAM, &GET[1..])),
        ("too many fields", |number| headers(number, END_STREAM, &[&GET[..], &[("a", "b"); 14]].concat())),
    ];
    for (what, round) in rounds {
        let mut server = Server::ready(App::Silent);
        server.limits.fields = 10;
        let (count, code) = until_calm(&mut server, |count| round(number(count)));
        assert_eq!((code, (90..=350).contains(&count)), (CALM, true), "{what}: {count}");
    }
}

#[test]
fn h2_requests_that_are_refused_cost_too() {
    let mut server = Server::ready(App::Silent);
    let (count, code) = until_calm(&mut server, |count| get(number(count)));
    assert_eq!((count, code), (128 + 200, CALM));
}

#[test]
fn h3_continuation_floods() {
    for (payload, most) in [(&b""[..], 1000), (&[0x40, 1, b'a', 1, b'b'], 1000), (&[0; 16_384], 17)] {
        let mut server = Server::ready(App::Silent);
        server.receive(&put(1, END_STREAM, 1, b""));
        let (count, code) = until_calm(&mut server, |_| put(9, 0, 1, payload));
        assert!(code == CALM && count <= most, "{count}");
    }
}

/// Blocks of references to one large field: a little too large, and far too large.
#[test]
fn h4_hpack_bomb() {
    let mut server = Server::ready(App::Echo);
    let first = [block(&GET), vec![0x40, 1, b'a', 0x7f, 0xa1, 0x1e], vec![b'b'; 4000]].concat();
    let references = |count| [block(&GET), vec![0xbe; count]].concat();
    server.receive(&put(1, END_STREAM | END_HEADERS, 1, &first));
    server.receive(&put(1, END_STREAM | END_HEADERS, 3, &references(40)));
    assert_eq!(server.seen[&3].refused, Some(431));
    assert!(server.seen[&3].fields.len() < 40);
    assert_eq!(Answers::read(&server.take()).statuses[&3], ["431"]);
    server.receive(&put(1, END_STREAM | END_HEADERS, 5, &references(1)));
    assert!(server.seen[&5].complete);
    server.receive(&put(1, END_STREAM | END_HEADERS, 7, &references(16_000)));
    assert_eq!(server.failure.map(|failure| failure.code), Some(CALM));
    // Nor is one decoded for a stream that is refused.
    let mut server = Server::ready(App::Silent);
    server.connection.end(&mut server.out);
    server.receive(&put(1, END_STREAM | END_HEADERS, 1, &first));
    server.receive(&put(1, END_STREAM | END_HEADERS, 3, &references(16_000)));
    assert_eq!(server.failure.map(|failure| failure.code), Some(CALM));
}

#[test]
fn h5_priority_floods() {
    for round in [
        |count: u32| put(2, 0, number(count) + 2, &[0, 0, 0, 1, 9]),
        |count: u32| put(0x10, 0, 0, &[&(number(count)).to_be_bytes()[..], b"u=1"].concat()),
        |count: u32| put(0xfa, 0, count, b"grease"),
    ] {
        let mut server = Server::ready(App::Silent);
        assert_eq!(until_calm(&mut server, round), (1000, CALM));
    }
}

#[test]
fn h6_floods_of_small_frames() {
    let rounds: [(&str, Round, u32); 8] = [
        ("empty data", |_| data(1, 0, b""), 1000),
        ("only padding", |_| put(0, PADDED, 1, &[vec![255], vec![0; 255]].concat()), 1000),
        ("a byte and padding", |_| put(0, PADDED, 1, &[vec![254], vec![0; 255]].concat()), 10_000),
        ("a byte", |_| data(1, 0, b"a"), 10_000),
        ("ping", |_| put(6, 0, 0, &[0; 8]), 1000),
        ("pong", |_| put(6, ACK, 0, &[0; 8]), 1000),
        ("settings", |_| put(4, 0, 0, &[0, 4, 0, 0, 0, 1]), 200),
        ("settings that are acknowledged", |_| put(4, ACK, 0, b""), 1000),
    ];
    for (what, round, most) in rounds {
        let mut server = Server::ready(App::Silent);
        server.receive(&post(1));
        let (count, code) = until_calm(&mut server, round);
        // A round that is cut off sooner has met its window.
        assert!(code == CALM && count <= most && count > 150, "{what}: {count} {code:?}");
    }
    let mut server = Server::ready(App::Silent);
    let (count, code) = until_calm(&mut server, |_| window(0, 1));
    assert_eq!((count, code), (5000, CALM));
}

/// Windows that are opened by the byte make a frame of each: CVE-2019-9511.
#[test]
fn h6_windows_that_let_a_byte_through() {
    for opened in [1, 0] {
        let mut server = Server::ready(App::Bytes(100_000));
        server.receive(&[get(1), window(1 - opened, 1 << 20)].concat());
        let flood: Round = if opened == 1 { |_| window(1, 1) } else { |_| window(0, 1) };
        let (count, code) = until_calm(&mut server, flood);
        assert!(code == CALM && (4000..=5100).contains(&count), "{count}");
    }
}

/// An application that reads small messages as they come is served without limit; and so is a slow client.
#[test]
fn h6_small_messages_that_are_read_are_no_flood() {
    let mut server = Server::ready(App::Echo);
    server.receive(&post(1));
    for _ in 0..100_000 {
        server.receive(&data(1, 0, b"a"));
    }
    server.receive(&data(1, END_STREAM, b"z"));
    assert_eq!((server.failure, server.seen[&1].body.len()), (None, 100_001));
    for _ in 0..5000 {
        server.receive(&put(6, 0, 0, &[0; 8]));
        server.connection.pass(1);
    }
    assert_eq!(server.failure, None);
}

/// The window of the connection is whole again, wherever its bytes went.
#[test]
fn h7_windows_never_leak() {
    let rounds: [(&str, Round); 5] = [
        ("read", |number| [post(number), data(number, END_STREAM, &[0; 16_000])].concat()),
        ("reset by the client", |number| [post(number), data(number, 0, &[0; 16_000]), reset(number)].concat()),
        ("reset by the server", |number| {
            [post(number), window(number, 0), data(number, 0, &[0; 16_000]), data(number, 0, &[0; 16_000])].concat()
        }),
        ("padded", |number| {
            [post(number), put(0, PADDED | END_STREAM, number, &[vec![255], vec![0; 16_000]].concat())].concat()
        }),
        ("refused", |number| {
            let malformed = headers(number, 0, &POST[1..]);
            [malformed, data(number, END_STREAM, &[0; 16_000])].concat()
        }),
    ];
    for (what, round) in rounds {
        let settings = Settings { connection_window: 200_000, ..Settings::default() };
        let mut server = Server::new(App::Echo, settings);
        server.receive(&[hello(&[]), put(4, ACK, 0, b"")].concat());
        server.connection.pass(1000);
        let (mut sent, mut told) = (0_u64, 0_u64);
        let mut check = |server: &mut Server| {
            for frame in server.take().iter().filter(|frame| frame.kind == 8 && frame.stream == 0) {
                told += u64::from(frame.number(0));
            }
            told
        };
        check(&mut server);
        for count in 0..300 {
            let input = round(number(count));
            sent += support::frames(&input)
                .iter()
                .map(|frame| (frame.payload.len() * usize::from(frame.kind == 0)) as u64)
                .sum::<u64>();
            server.receive(&input);
            server.connection.pass(1);
            let told = check(&mut server);
            assert!(server.failure.is_none(), "{what}: {:?}", server.failure);
            // The whole window, less the part that is only given back once half of it is owed.
            assert!(told <= sent + 200_000 - 65_535 && told + 65_535 > sent, "{what}: {sent} {told}");
        }
    }
}

/// Padding belongs to no body: the stream it came on may send as much again.
#[test]
fn h7_padding_is_given_back_to_its_stream() {
    let mut server = Server::ready(App::Echo);
    server.receive(&post(1));
    let padded = put(0, PADDED, 1, &[&[255, b'a'][..], &[0; 255]].concat());
    for _ in 0..1000 {
        server.receive(&padded);
        server.connection.pass(1);
    }
    server.receive(&data(1, END_STREAM, b""));
    assert_eq!((server.failure, server.seen[&1].reset, server.seen[&1].body.len()), (None, None, 1000));
}

/// A response that waits for its turn, or for a window, and is reset does not hold up others.
#[test]
fn h7_a_reset_lets_the_others_go_on() {
    let mut server = Server::ready(App::Bytes(40_000));
    server.flushes = false;
    server.receive(&[get(1), get(3), get(5)].concat());
    server.flush(10_000);
    server.receive(&reset(1));
    let id = server.ids[&3];
    assert!(server.connection.reset(&mut server.out, id, ErrorCode::Cancel));
    server.receive(&[window(0, 1 << 20), get(7)].concat());
    assert!(!server.flush(usize::MAX));
    assert_eq!(Answers::read(&server.take()).ended, [5, 7]);
}

#[test]
fn h9_every_response_ends_and_trailers_come_behind_the_body() {
    let mut server = Server::ready(App::Silent);
    server.receive(&window(0, 1 << 20));
    server.receive(&[get(1), get(3), get(5), headers(7, END_STREAM, &[("x", "y")])].concat());
    let mut trailers = Trailers::default();
    trailers.add(b"x-sum", b"1").unwrap();
    for (number, length) in [(1, 0), (3, 100_000), (5, 5)] {
        let id = server.ids[&number];
        let head = server.connection.start_response(&mut server.scratch, id, 200).unwrap();
        server.connection.finish_head(&mut server.out, &mut server.scratch, head, false).unwrap();
        assert_eq!(server.connection.body(&mut server.out, id, length, false), Ok(length > 0));
        server.connection.trailers(&mut server.out, &mut server.scratch, id, &trailers).unwrap();
        // One that is over takes nothing more, and one that is not has announced its end.
        let again = server.connection.body(&mut server.out, id, 1, true);
        assert_eq!(again, if length == 0 { Ok(false) } else { Err(AppError::State) });
    }
    let fill = |server: &mut Server| {
        server.connection.fill(&mut server.out, usize::MAX, |part, out| out.resize(out.len() + part.length, 0))
    };
    assert!(!fill(&mut server));
    let mut frames = server.take();
    let answers = Answers::read(&frames);
    assert_eq!((answers.ended.as_slice(), answers.bodies[&5].len()), (&[1, 5][..], 5));
    assert_eq!(answers.bodies[&3].len(), 65_535);
    server.flushes = false;
    server.receive(&window(3, 1 << 20));
    assert!(!fill(&mut server));
    frames.extend(server.take());
    let of_third: Vec<_> = frames.iter().filter(|frame| frame.stream == 3).map(|frame| frame.kind).collect();
    assert_eq!((of_third.first(), of_third.last()), (Some(&1), Some(&1)));
    assert!(Answers::read(&frames).ended.contains(&3) && !server.connection.is_live(server.ids[&3]));
}

#[test]
fn h10_a_preface_that_does_not_come_is_waited_for_and_a_wrong_one_is_told() {
    let mut server = Server::new(App::Echo, Settings::default());
    let hello = hello(&[]);
    for byte in &hello[..hello.len() - 1] {
        assert!(server.connection.is_inside());
        server.receive(&[*byte]);
    }
    server.receive(&hello[hello.len() - 1..]);
    assert!(!server.connection.is_inside() && server.failure.is_none());
    for cut in 0..24 {
        let mut server = Server::new(App::Echo, Settings::default());
        server.receive(&[&hello[..cut], b"\x01"].concat());
        assert_eq!(server.failure.map(|failure| failure.code), Some(ErrorCode::Protocol));
    }
}

/// A connection that serves for long is as large as one that serves for the first time.
#[test]
fn h11_streams_that_are_over_are_freed() {
    let mut server = Server::ready(App::Echo);
    for count in 0..20_000 {
        server.receive(&[get(number(count)), window(0, 5)].concat());
        server.seen.clear();
        server.take();
    }
    assert!(server.connection.is_idle() && server.failure.is_none());
    assert!(server.ids.is_empty());
}
