use super::*;
use crate::fields::{Indexing, Item};
use crate::h2::hpack::{Encoder, TABLE_SIZE};
use crate::method::Method;
use crate::priority::Priority;

type Fields<'a> = &'a [(&'a str, &'a str)];

const GET: [(&str, &str); 4] = [(":method", "GET"), (":scheme", "https"), (":path", "/a?b"), (":authority", "h:1")];

fn block(encoder: &mut Encoder, fields: Fields<'_>) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        encoder.field(&mut block, name.as_bytes(), value.as_bytes(), Indexing::Add);
    }
    block
}

fn read_with(fields: Fields<'_>, limits: &Limits, change: impl FnOnce(&mut Rules<'_>)) -> Result<Head, Fault> {
    let (mut decoder, mut head) = (Decoder::<Slot<()>>::new(TABLE_SIZE), Head::default());
    let mut rules = Rules { limits, size: 1000, connect_protocol: true, end_stream: true };
    change(&mut rules);
    read(&mut decoder, &block(&mut Encoder::new(), fields), &mut head, rules).unwrap().map(|()| head)
}

fn read_one(fields: Fields<'_>) -> Result<Head, Fault> {
    read_with(fields, &Limits::default(), |_| {})
}

fn with(more: Fields<'_>) -> Vec<(&'static str, String)> {
    GET.iter().chain(more).map(|&(name, value)| (String::leak(name.into()) as &str, value.to_owned())).collect()
}

fn plus(more: Fields<'_>) -> Result<Head, Fault> {
    let all = with(more);
    read_one(&all.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>())
}

fn refused(result: &Result<Head, Fault>) -> Option<u16> {
    match result {
        Err(Fault::Refused(error)) => Some(error.status()),
        _ => None,
    }
}

fn texts(head: &Head) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    head.fields().iter().map(|item| (text(head.name(item)), text(head.value(item)))).collect()
}

#[test]
fn a_request_is_put_together() {
    let head = plus(&[("x-a", "1"), ("accept", "*/*"), ("x-a", "2")]).unwrap();
    assert_eq!((head.method(), head.verb, head.scheme()), (&b"GET"[..], Method::Get, &b"https"[..]));
    assert_eq!((head.path(), head.query(), head.protocol()), (&b"/a"[..], &b"b"[..], None));
    let pairs = [("host", "h:1"), ("x-a", "1"), ("accept", "*/*"), ("x-a", "2")];
    assert_eq!(texts(&head), pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!((head.length, head.expects_continue, head.priority), (None, false, Priority::default()));
}

/// RFC 9113 section 8.2.3
#[test]
fn cookies_are_one() {
    let head = plus(&[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2"), ("cookie", "c=3")]).unwrap();
    let pairs = [("host", "h:1"), ("cookie", "a=1; b=2; c=3"), ("x", "y")];
    assert_eq!(texts(&head), pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(head.fields()[1].entry, None);
    assert!(plus(&[("cookie", "a=1")]).unwrap().fields()[1].entry.is_some());
}

/// F21
#[test]
fn there_is_one_host() {
    let head = plus(&[("host", "h:1")]).unwrap();
    assert_eq!(texts(&head), [("host".to_owned(), "h:1".to_owned())]);
    for hosts in [&[("host", "other")][..], &[("host", "h")], &[("host", "h:1"), ("host", "other")]] {
        assert_eq!(plus(hosts), Err(Fault::Malformed));
    }
    let alone = read_one(&[GET[0], GET[1], GET[2], ("host", "x")]).unwrap();
    assert_eq!(texts(&alone), [("host".to_owned(), "x".to_owned())]);
    assert_eq!(read_one(&[GET[0], GET[1], GET[2], ("host", "x"), ("host", "x")]), Err(Fault::Malformed));
    assert_eq!(refused(&read_one(&GET[..3])), Some(400));
    assert_eq!(refused(&read_one(&[GET[0], GET[1], GET[2], (":authority", "u@h")])), Some(400));
}

/// H8, F20
#[test]
fn pseudo_fields_are_complete_once_and_in_front() {
    for left_out in 0..3 {
        let fields: Vec<_> =
            GET.iter().enumerate().filter(|(at, _)| *at != left_out).map(|(_, &field)| field).collect();
        assert_eq!(read_one(&fields), Err(Fault::Malformed));
    }
    for (name, value) in GET {
        assert_eq!(plus(&[(name, value)]), Err(Fault::Malformed), "{name} twice");
        let empty: Vec<_> = GET.iter().map(|&field| if field.0 == name { (name, "") } else { field }).collect();
        assert_eq!(read_one(&empty), Err(Fault::Malformed), "{name} empty");
    }
    for more in [(":status", "200"), (":protocol", "websocket"), (":x", "y"), ("Upper", "x"), ("te", "gzip")] {
        assert_eq!(plus(&[more]), Err(Fault::Malformed), "{more:?}");
    }
    assert_eq!(read_one(&[GET[0], GET[1], ("x", "y"), GET[2], GET[3]]), Err(Fault::Malformed));
    assert_eq!(read_one(&[GET[0], GET[1], GET[3], ("host", "h:1"), GET[2]]), Err(Fault::Malformed));
    assert_eq!(read_one(&[]), Err(Fault::Malformed));
}

fn target(method: &str, path: &str) -> Result<Head, Fault> {
    read_one(&[(":method", method), GET[1], (":path", path), GET[3]])
}

#[test]
fn targets_are_those_of_http_1() {
    for path in ["a", "?a", "*", "http://h/"] {
        assert_eq!(target("GET", path), Err(Fault::Malformed), "{path}");
    }
    for path in ["/%", "/%4", "/%zz", "/a#b", "/?a#b", "/a b", "/\u{e9}", "/?\u{e9}"] {
        assert_eq!(refused(&target("GET", path)), Some(400), "{path}");
    }
    for (path, parts) in [("/", ("/", "")), ("/%41?%", ("/%41", "%")), ("/?", ("/", "")), ("//?a?b", ("//", "a?b"))] {
        let head = target("GET", path).unwrap();
        assert_eq!((head.path(), head.query()), (parts.0.as_bytes(), parts.1.as_bytes()));
    }
    assert_eq!(target("OPTIONS", "*").unwrap().path(), b"*");
    assert_eq!(refused(&target("G T", "/")), Some(400));
    assert_eq!(refused(&read_one(&[GET[0], (":scheme", "ftp"), GET[2], GET[3]])), Some(400));
}

/// RFC 9113 section 8.5, RFC 8441 section 4
#[test]
fn connect_is_extended_or_not_implemented() {
    let connect = (":method", "CONNECT");
    let protocol = (":protocol", "websocket");
    assert_eq!(refused(&read_one(&[connect, GET[3]])), Some(501));
    for fields in [&[connect, GET[1], GET[3]][..], &[connect, GET[2], GET[3]], &[connect]] {
        assert_eq!(read_one(fields), Err(Fault::Malformed));
    }
    let extended = [connect, protocol, GET[1], GET[2], GET[3]];
    let head = read_one(&extended).unwrap();
    assert_eq!((head.protocol(), head.path()), (Some(&b"websocket"[..]), &b"/a"[..]));
    assert_eq!(read_one(&extended[..4]), Err(Fault::Malformed));
    let off = read_with(&extended, &Limits::default(), |rules| rules.connect_protocol = false);
    assert_eq!(off, Err(Fault::Malformed));
}

/// F22
#[test]
fn a_length_is_one_number_and_not_of_nothing() {
    for (value, expected) in [("0", Ok(Some(0))), ("5", Err(Fault::Malformed)), ("-1", Err(Fault::Malformed))] {
        assert_eq!(plus(&[("content-length", value)]).map(|head| head.length), expected);
    }
    let all = with(&[("content-length", "5")]);
    let all: Vec<_> = all.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let open = |limits: &Limits| read_with(&all, limits, |rules| rules.end_stream = false);
    assert_eq!(open(&Limits::default()).unwrap().length, Some(5));
    assert_eq!(refused(&open(&Limits { body: Some(4), ..Limits::default() })), Some(413));
    assert_eq!(plus(&[("content-length", "0"), ("content-length", "0")]), Err(Fault::Malformed));
    assert_eq!(plus(&[("content-length", "18446744073709551616")]), Err(Fault::Malformed));
}

#[test]
fn expectations_and_priorities_are_read() {
    let fields: Vec<_> = GET.iter().copied().chain([("expect", "100-Continue"), ("priority", "u=1, i")]).collect();
    let head = read_with(&fields, &Limits::default(), |rules| rules.end_stream = false).unwrap();
    assert!(head.expects_continue && head.priority == Priority { urgency: 1, incremental: true });
    assert!(!read_one(&fields).unwrap().expects_continue);
    assert_eq!(refused(&plus(&[("expect", "x")])), Some(417));
}

/// H4: limits apply to decoded fields; and n passes where n + 1 does not
#[test]
fn limits_are_met() {
    let size: usize = GET.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
    for (limit, expected) in [(size, None), (size - 1, Some(431))] {
        assert_eq!(refused(&read_with(&GET, &Limits::default(), |rules| rules.size = limit)), expected);
    }
    let of = |limits: Limits| refused(&read_with(&GET, &limits, |_| {}));
    let default = Limits::default;
    assert_eq!((of(Limits { target: 4, ..default() }), of(Limits { target: 3, ..default() })), (None, Some(414)));
    assert_eq!((of(Limits { method: 3, ..default() }), of(Limits { method: 2, ..default() })), (None, Some(501)));
    let more = |count: usize| {
        let fields: Vec<_> = GET.iter().copied().chain(std::iter::repeat_n(("a", "b"), count)).collect();
        refused(&read_with(&fields, &Limits { fields: 3, ..default() }, |_| {}))
    };
    assert_eq!((more(2), more(3)), (None, Some(431)));
    // A malformed request is not answered, even if it exceeds a limit.
    assert_eq!(read_with(&[("A", "b")], &Limits { fields: 0, ..default() }, |_| {}), Err(Fault::Malformed));
}

#[test]
fn what_is_found_of_an_entry_holds_when_it_comes_again() {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::<Slot<u32>>::new(TABLE_SIZE));
    let limits = Limits::default();
    let rules = Rules { limits: &limits, size: 1000, connect_protocol: true, end_stream: true };
    let fields: Vec<_> = GET.iter().copied().chain([("user-agent", "me"), ("x", "y")]).collect();
    let mut read_next = |fields: Fields<'_>| {
        let mut head = Head::default();
        let result = read(&mut decoder, &block(&mut encoder, fields), &mut head, rules).unwrap();
        for item in head.fields() {
            if let Some(Key::Dynamic(number)) = item.entry {
                *decoder.kept(number).unwrap().kept.get_or_insert(0) += 1;
            }
        }
        let kept = |item: &Item| match item.entry {
            Some(Key::Dynamic(number)) => decoder.kept(number).unwrap().kept,
            _ => None,
        };
        result.map(|()| (texts(&head), head.fields().iter().map(kept).collect::<Vec<_>>()))
    };
    let first = read_next(&fields).unwrap();
    let second = read_next(&fields).unwrap();
    assert_eq!(first.0, second.0);
    assert_eq!((first.1, second.1), (vec![Some(1); 3], vec![Some(2); 3]));
    let bad: Vec<_> = GET.iter().copied().chain([("connection", "close")]).collect();
    assert_eq!((read_next(&bad), read_next(&bad)), (Err(Fault::Malformed), Err(Fault::Malformed)));
}

#[test]
fn trailers_are_fields_within_limits() {
    let limits = Limits { fields: 2, trailers: 100, ..Limits::default() };
    let of = |fields: Fields<'_>| {
        read_trailers(&mut Decoder::<Slot<()>>::new(TABLE_SIZE), &block(&mut Encoder::new(), fields), &limits).unwrap()
    };
    assert_eq!(of(&[("a", "b"), ("c", "d")]), Ok(()));
    assert_eq!(of(&[("a", "b"), (":path", "/")]), Err(Fault::Malformed));
    let status = |result| match result {
        Err(Fault::Refused(error)) => error.status(),
        other => panic!("{other:?}"),
    };
    assert_eq!(status(of(&[("a", "b"); 3])), 431);
    assert_eq!(status(of(&[("a", &"b".repeat(68))])), 431);
}
