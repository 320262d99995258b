//! Sessions and a client of rustls, which checks every record it gets.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, missing_docs, reason = "tests")]

mod common;

use std::sync::Arc;

use common::{Link, Pki, settings};
use rustls::version::{TLS12, TLS13};
use rustls::{HandshakeKind, ProtocolVersion};
use tls::{Certificate, Config, FailureKind, KEY, PROVIDER, Settings, TicketKeys, TicketPolicy, Verify};

fn config(settings: Settings<'_>) -> Arc<Config> {
    Arc::new(Config::new(settings).unwrap())
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}

#[test]
fn every_cut_brings_the_same_bytes() {
    let pki = Pki::new();
    let own = pki.sign("localhost", 1);
    let config = config(settings(&own));
    for versions in [[&TLS12], [&TLS13]] {
        let client = Arc::new(pki.client(&versions, None));
        for cut in [1, 2, 3, 4, 5, 6, 7, 11, 64, 1000, 16_384, 16_389, 70_000] {
            let data = bytes(if cut < 64 { 17_000 } else { 80_000 });
            let mut link = Link::new(&client, "localhost", &config, cut);
            link.pump().unwrap();
            assert!(link.session.is_open() && !link.client.is_handshaking(), "cut into {cut}");
            link.say(&data).unwrap();
            assert!(link.received == data, "cut into {cut}");
            link.answer(&[b"head", &data[..100]]).unwrap();
            link.answer(&[b"head", &data, b"", b"tail"]).unwrap();
            link.answer(&[&data[..16_384]]).unwrap();
            let expected = [b"head", &data[..100], b"head", &data, b"tail", &data[..16_384]].concat();
            assert!(link.echoed == expected, "cut into {cut}");
            assert_eq!(link.session.buffered(), 0);
        }
    }
}

#[test]
fn what_comes_with_the_handshake_is_not_lost() {
    let pki = Pki::new();
    let own = pki.sign("localhost", 1);
    let config = config(settings(&own));
    for versions in [[&TLS12], [&TLS13]] {
        let client = Arc::new(pki.client(&versions, None));
        let mut link = Link::new(&client, "localhost", &config, usize::MAX);
        // Behind the last flight of the client, in one segment.
        while link.client.is_handshaking() {
            let mut records = vec![];
            link.client.write_tls(&mut records).unwrap();
            link.feed(&records).unwrap();
        }
        std::io::Write::write_all(&mut link.client.writer(), b"early").unwrap();
        let mut records = vec![];
        while link.client.wants_write() {
            link.client.write_tls(&mut records).unwrap();
        }
        link.session.room(&mut link.scratch, records.len()).copy_from_slice(&records);
        let got = link.session.receive(&mut link.scratch, records.len(), &mut []);
        assert_eq!((got.length, got.failure, link.session.has_plaintext()), (0, None, true));
        // The server speaks before it reads.
        link.answer(&[b"first"]).unwrap();
        let mut room = [0; 3];
        let got = link.session.receive(&mut link.scratch, 0, &mut room);
        assert_eq!((got.length, &room), (3, b"ear"));
        let got = link.session.receive(&mut link.scratch, 0, &mut room);
        assert_eq!((got.length, &room[..2]), (2, &b"ly"[..]));
        assert_eq!(link.echoed, b"first");
    }
}

#[test]
fn part_of_a_record_waits_with_plaintext_in_front_of_it() {
    let pki = Pki::new();
    let own = pki.sign("localhost", 1);
    let config = config(settings(&own));
    let client = Arc::new(pki.client(&[&TLS13], None));
    let mut link = Link::new(&client, "localhost", &config, usize::MAX);
    link.pump().unwrap();
    let data = bytes(40_000);
    std::io::Write::write_all(&mut link.client.writer(), &data).unwrap();
    let mut records = vec![];
    while link.client.wants_write() {
        link.client.write_tls(&mut records).unwrap();
    }
    let (first, rest) = records.split_at(25_000);
    let mut room = vec![0; 50_000];
    let mut got = 0;
    for (part, most) in [(first, 1000), (&[][..], 50), (&[][..], 15_334), (rest, 20_000), (&[][..], 50_000)] {
        if !part.is_empty() {
            link.session.room(&mut link.scratch, part.len()).copy_from_slice(part);
        }
        let received = link.session.receive(&mut link.scratch, part.len(), &mut room[got..][..most.min(50_000 - got)]);
        assert_eq!(received.failure, None);
        got += received.length;
        // What others leave in the memory that they share.
        link.scratch.spoil();
    }
    assert!(room[..got] == data);
}

#[test]
fn keys_are_updated_while_data_moves() {
    let pki = Pki::new();
    let own = pki.sign("localhost", 1);
    let client = Arc::new(pki.client(&[&TLS13], None));
    let config = config(settings(&own));
    for cut in [1, 7, 70_000] {
        let mut link = Link::new(&client, "localhost", &config, cut);
        link.pump().unwrap();
        for _ in 0..3 {
            link.client.refresh_traffic_keys().unwrap();
            link.say(b"question").unwrap();
            link.answer(&[b"answer"]).unwrap();
        }
        assert_eq!(
            (link.received.as_slice(), link.echoed.as_slice()),
            (&b"question".repeat(3)[..], &b"answer".repeat(3)[..])
        );
    }
}

#[test]
fn either_side_ends_first() {
    let pki = Pki::new();
    let own = pki.sign("localhost", 1);
    let config = config(settings(&own));
    for versions in [[&TLS12], [&TLS13]] {
        let client = Arc::new(pki.client(&versions, None));
        let open = || {
            let mut link = Link::new(&client, "localhost", &config, 70_000);
            link.pump().unwrap();
            link
        };
        // The client ends, and gets its answer.
        let mut link = open();
        link.say(b"question").unwrap();
        link.client.send_close_notify();
        link.pump().unwrap();
        assert!(link.session.has_ended() && link.session.end_input().is_ok());
        link.answer(&[b"answer"]).unwrap();
        link.session.finish(&mut link.scratch).unwrap();
        link.pump().unwrap();
        assert!(link.client_has_end());
        assert_eq!((link.received.as_slice(), link.echoed.as_slice()), (&b"question"[..], &b"answer"[..]));
        // What follows the end is ignored.
        link.feed(b"\x17\x03\x03\x00\x05hello").unwrap();
        assert_eq!(link.received, b"question");
        // The server ends, and reads on.
        let mut link = open();
        link.session.finish(&mut link.scratch).unwrap();
        assert!(!link.session.can_seal());
        link.deliver();
        assert!(link.client_has_end());
        link.say(b"still here").unwrap();
        assert_eq!(link.received, b"still here");
        link.answer(&[b"too late"]).unwrap();
        assert_eq!(link.echoed, b"");
        // Without a close_notify it is cut off.
        let mut link = open();
        let failure = link.session.end_input().unwrap_err();
        assert_eq!(
            (failure.kind, failure.text.as_str()),
            (FailureKind::Closed, "the peer has closed without close_notify")
        );
        let mut link = Link::new(&client, "localhost", &config, 70_000);
        assert_eq!(link.session.end_input().unwrap_err().text, "the peer has closed");
    }
}

#[test]
fn errors_come_behind_the_data_in_front_of_them() {
    let pki = Pki::new();
    let own = pki.sign("localhost", 1);
    let config = config(settings(&own));
    let client = Arc::new(pki.client(&[&TLS13], None));
    let mut link = Link::new(&client, "localhost", &config, 70_000);
    link.pump().unwrap();
    std::io::Write::write_all(&mut link.client.writer(), b"good").unwrap();
    let mut records = vec![];
    link.client.write_tls(&mut records).unwrap();
    records.extend_from_slice(b"\x17\x03\x03\x00\x20-------- forged record --------");
    records.resize(records.len() + 1, 0);
    let failure = link.feed(&records).unwrap_err();
    assert_eq!(failure.text, "cannot decrypt peer's message; sent the alert bad_record_mac");
    assert_eq!(link.received, b"good");
    // The client has got the alert.
    assert!(matches!(link.client_error, Some(rustls::Error::AlertReceived(rustls::AlertDescription::BadRecordMac))));
    assert!(!link.session.can_seal() && !link.session.is_open());
    link.answer(&[b"no"]).unwrap();
    link.session.finish(&mut link.scratch).unwrap();
}

#[test]
fn failures_have_kinds() {
    let pki = Pki::new();
    let own = pki.sign("localhost", 1);
    let other = Pki::named("another");
    let plain = config(settings(&own));
    let fail = |versions: &[&'static rustls::SupportedProtocolVersion], pki: &Pki, config: &Arc<Config>| {
        let mut link = Link::new(&Arc::new(pki.client(versions, None)), "localhost", config, 100);
        let failure = link.pump().unwrap_err();
        (failure.kind, failure.text)
    };
    let newest = config(Settings { versions: (0x0304, 0x0304), ..settings(&own) });
    let (kind, text) = fail(&[&TLS12], &pki, &newest);
    assert_eq!(kind, FailureKind::Version);
    assert!(text.ends_with("sent the alert protocol_version"), "{text}");
    let chacha = config(Settings { suites: Some(vec![0xcca8]), versions: (0x0303, 0x0303), ..settings(&own) });
    assert_eq!(fail(&[&TLS12], &pki, &chacha).0, FailureKind::Parameters);
    let strict =
        Settings { verify: Verify::Required, authorities: Some(pki.authority_pem.as_bytes()), ..settings(&own) };
    let strict = config(strict);
    assert_eq!(fail(&[&TLS13], &pki, &strict).0, FailureKind::Certificate);
    assert_eq!(
        fail(&[&TLS13], &other, &plain),
        (FailureKind::Alert, "the peer has sent the alert unknown_ca".to_owned())
    );
    let mut link = Link::new(&Arc::new(pki.client(&[&TLS13], None)), "localhost", &plain, 100);
    let failure = link.feed(b"GET / HTTP/1.1\r\n\r\n").unwrap_err();
    assert_eq!(failure.kind, FailureKind::NotTls);
    assert_eq!(failure.text, "the peer does not speak TLS; sent the alert decode_error");
}

#[test]
fn old_clients_are_named_by_their_version() {
    // TLS 1.1 with one suite, and without the extensions that rustls misses first.
    let body = [&[3, 2][..], &[7; 32], &[0, 0, 2, 0, 47, 1, 0]].concat();
    let length = u8::try_from(body.len()).unwrap();
    let hello = [&[22, 3, 1, 0, length + 4, 1, 0, 0, length][..], &body].concat();
    let pki = Pki::new();
    let config = config(settings(&pki.sign("localhost", 1)));
    let mut link = Link::new(&Arc::new(pki.client(&[&TLS12], None)), "localhost", &config, 100);
    let failure = link.feed(&hello).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Version);
    assert_eq!(failure.text, "the peer speaks TLS 1.1 at most; sent the alert handshake_failure");
}

#[test]
fn messages_in_many_records_are_read_up_to_a_bound() {
    let pki = Pki::new();
    let own = pki.sign("localhost", 1);
    let config = config(settings(&own));
    let cut_up = |message: &[u8]| message.iter().flat_map(|byte| [22, 3, 1, 0, 1, *byte]).collect::<Vec<_>>();
    let mut link = Link::new(&Arc::new(pki.client(&[&TLS13], None)), "localhost", &config, 7);
    let hello = link.records();
    link.feed(&cut_up(&hello[5..])).unwrap();
    link.pump().unwrap();
    assert!(link.session.is_open());

    let length = 60_000_usize.to_be_bytes();
    let endless = cut_up(&[&[1], &length[5..], &bytes(50_000)[..]].concat());
    let mut link = Link::new(&Arc::new(pki.client(&[&TLS13], None)), "localhost", &config, 1000);
    let failure = link.feed(&endless).unwrap_err();
    assert_eq!((failure.kind, failure.text.as_str()), (FailureKind::Other, "a message has too many records"));
}

#[test]
fn names_select_certificates() {
    let pki = Pki::new();
    let (default, exact, wild) = (pki.sign("localhost", 1), pki.sign("a.example.org", 2), pki.sign("*.example.org", 3));
    let mut all = settings(&default);
    for (host, own) in [("a.example.org", &exact), ("*.example.org", &wild)] {
        let certificate =
            Certificate { host: Some(host.to_owned()), chain: own.pem.as_bytes(), key: own.key.as_bytes() };
        all.certificates.push(certificate);
    }
    let config = config(all);
    let client = Arc::new(pki.client(&[&TLS13], None));
    for (name, host, own) in [
        ("localhost", None, &default),
        ("a.example.org", Some("a.example.org"), &exact),
        ("A.Example.Org", Some("a.example.org"), &exact),
        ("b.example.org", Some("*.example.org"), &wild),
    ] {
        let mut link = Link::new(&client, name, &config, 100);
        link.pump().unwrap();
        assert_eq!(link.session.server_name(), Some(name.to_lowercase().as_str()));
        assert_eq!(link.session.host(), host, "{name}");
        assert_eq!(link.client.peer_certificates().unwrap()[0], own.der, "{name}");
    }
}

#[test]
fn alpn_is_negotiated_or_left_out() {
    let pki = Pki::new();
    let own = pki.sign("localhost", 1);
    let names = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>();
    for versions in [[&TLS12], [&TLS13]] {
        for (ours, theirs, result) in [
            (&["h2", "http/1.1"][..], &["http/1.1", "h2"][..], Some("h2")),
            (&["h2", "http/1.1"], &["http/1.1"], Some("http/1.1")),
            (&["http/1.1"], &["h3", "spdy/3"], None),
            (&["h2"], &[], None),
            (&[], &["h2"], None),
        ] {
            let config = config(Settings { alpn: names(ours), ..settings(&own) });
            let mut client = pki.client(&versions, None);
            client.alpn_protocols = names(theirs);
            let mut link = Link::new(&Arc::new(client), "localhost", &config, 3);
            link.pump().unwrap();
            assert_eq!(link.session.protocol(), result.map(str::as_bytes));
            assert_eq!(link.client.alpn_protocol(), result.map(str::as_bytes));
        }
    }
}

#[test]
fn sessions_are_resumed_by_tickets_alone() {
    let pki = Pki::new();
    let own = pki.sign("localhost", 1);
    let shared = |byte: u8| {
        TicketPolicy::Shared(Box::new(move || {
            Some(TicketKeys { period: 1, current: vec![byte; KEY].into(), before: None })
        }))
    };
    let with = |tickets: TicketPolicy| config(Settings { tickets, ..settings(&own) });
    let (mine, others) = (with(TicketPolicy::Own), with(TicketPolicy::Own));
    for (versions, number) in [([&TLS12], 0x0303), ([&TLS13], 0x0304)] {
        for (first, second, resumed) in [
            (&mine, &mine, true),
            (&mine, &others, false),
            (&with(shared(1)), &with(shared(1)), true),
            (&with(shared(1)), &with(shared(2)), false),
            (&with(TicketPolicy::None), &with(TicketPolicy::None), false),
        ] {
            let client = Arc::new(pki.client(&versions, None));
            let shakes: Vec<_> = [first, second]
                .into_iter()
                .map(|config| {
                    let mut link = Link::new(&client, "localhost", config, 100);
                    link.pump().unwrap();
                    link.answer(&[b"data"]).unwrap();
                    assert_eq!(link.echoed, b"data");
                    let shaken = link.session.shaken().unwrap();
                    assert_eq!(shaken.resumed, link.client.handshake_kind() == Some(HandshakeKind::Resumed));
                    (shaken.version, shaken.resumed)
                })
                .collect();
            assert_eq!(shakes, [(number, false), (number, resumed)]);
        }
    }
}

#[test]
fn client_certificates_are_verified() {
    let (pki, stranger) = (Pki::new(), Pki::named("another"));
    let own = pki.sign("localhost", 1);
    let (good, revoked, unknown) = (pki.sign("good", 7), pki.sign("revoked", 8), stranger.sign("good", 9));
    let list = pki.revoke(8);
    let unknown_issuer = "the issuer of the certificate is unknown";
    for versions in [[&TLS12], [&TLS13]] {
        for (verify, serves, shown, outcome) in [
            (Verify::None, false, Some(&good), Ok((0, None))),
            (Verify::Optional, false, None, Ok((0, None))),
            (Verify::Optional, false, Some(&good), Ok((1, None))),
            (Verify::Optional, false, Some(&unknown), Err(())),
            (Verify::Optional, true, Some(&unknown), Ok((1, Some(unknown_issuer)))),
            (Verify::Optional, true, None, Ok((0, None))),
            (Verify::Required, false, None, Err(())),
            (Verify::Required, false, Some(&good), Ok((1, None))),
            (Verify::Required, false, Some(&revoked), Err(())),
            (Verify::Required, true, Some(&revoked), Ok((1, Some("the certificate is revoked")))),
            (Verify::Required, true, Some(&good), Ok((1, None))),
            (Verify::Required, true, None, Err(())),
        ] {
            let config = config(Settings {
                verify,
                serves_unverified: serves,
                authorities: Some(pki.authority_pem.as_bytes()),
                revoked: Some(list.as_bytes()),
                tickets: TicketPolicy::Own,
                ..settings(&own)
            });
            let client = Arc::new(pki.client(&versions, shown));
            // The second is resumed, and its certificate is verified again.
            for resumed in [false, true] {
                let mut link = Link::new(&client, "localhost", &config, 100);
                let opened = link.pump();
                let seen = opened.map(|()| (link.session.chain().len(), link.session.error())).map_err(|failure| {
                    assert_eq!(failure.kind, FailureKind::Certificate);
                });
                assert_eq!(seen, outcome, "{verify:?} {serves} {}", shown.is_some());
                if outcome.is_err() {
                    break;
                }
                assert_eq!(link.session.shaken().unwrap().resumed, resumed);
                if let Some(&der) = link.session.chain().first() {
                    assert_eq!(der, shown.unwrap().der.as_ref());
                }
                link.answer(&[b"data"]).unwrap();
            }
        }
    }
}

#[test]
fn authorities_and_lists_have_dates() {
    let (pki, other) = (Pki::new(), Pki::named("another"));
    let own = pki.sign("localhost", 1);
    let (good, revoked) = (pki.sign("good", 7), pki.sign("revoked", 8));
    let (over, ahead, valid) = (pki.between(2000, 2010), pki.between(2100, 2110), pki.between(2000, 2110));
    let (stranger, list, old) = (&other.authority_pem, pki.revoke(8), pki.revoke_until(8, 2010));
    let not_valid =
        Err("the authority of the certificate has expired or is not yet valid; sent the alert certificate_expired");
    for (authorities, lists, shown, outcome) in [
        (over.clone(), None, &good, not_valid),
        (ahead.clone(), None, &good, not_valid),
        (format!("{over}{stranger}"), None, &good, not_valid),
        (format!("{over}{ahead}"), None, &good, not_valid),
        (format!("{over}{valid}"), None, &good, Ok(())),
        (format!("{valid}{over}"), Some(list.clone()), &good, Ok(())),
        (
            format!("{valid}{over}"),
            Some(list.clone()),
            &revoked,
            Err("the certificate is revoked; sent the alert certificate_revoked"),
        ),
        (valid.clone(), Some(old.clone()), &good, Err("the revocation list has expired; sent the alert unknown_ca")),
        (valid.clone(), Some(format!("{old}{list}")), &good, Ok(())),
        (valid.clone(), Some(format!("{list}{old}")), &good, Ok(())),
    ] {
        let settings = || Settings {
            verify: Verify::Required,
            authorities: Some(authorities.as_bytes()),
            revoked: lists.as_ref().map(String::as_bytes),
            ..settings(&own)
        };
        let client = Arc::new(pki.client(&[&TLS13], Some(shown)));
        let mut link = Link::new(&client, "localhost", &config(settings()), 100);
        assert_eq!(link.pump().map_err(|failure| failure.text), outcome.map_err(str::to_owned));

        let mut link =
            Link::new(&client, "localhost", &config(Settings { serves_unverified: true, ..settings() }), 100);
        link.pump().unwrap();
        assert_eq!(link.session.error(), outcome.err().and_then(|text| text.split(';').next()));
    }
}

#[test]
fn errors_of_certificates_stay_with_their_connection() {
    let (pki, stranger) = (Pki::new(), Pki::named("another"));
    let own = pki.sign("localhost", 1);
    let (good, unknown) = (pki.sign("good", 7), stranger.sign("good", 9));
    let config = config(Settings {
        verify: Verify::Optional,
        serves_unverified: true,
        authorities: Some(pki.authority_pem.as_bytes()),
        ..settings(&own)
    });
    for versions in [[&TLS12], [&TLS13]] {
        let link = |shown| Link::new(&Arc::new(pki.client(&versions, Some(shown))), "localhost", &config, 100);
        // The first handshake stops, the other one happens, the first one goes on.
        for (first, second, error) in
            [(&unknown, &good, Some("the issuer of the certificate is unknown")), (&good, &unknown, None)]
        {
            for at in (0..).step_by(40) {
                let mut held = link(first);
                let hello = held.records();
                held.feed(&hello).unwrap();
                let flight = held.records();
                let Some((before, behind)) = flight.split_at_checked(at) else { break };
                held.feed(before).unwrap();
                link(second).pump().unwrap();
                held.feed(behind).unwrap();
                assert!(held.session.is_open());
                assert_eq!(held.session.error(), error, "{at}");
            }
        }
    }
}

#[test]
fn parameters_follow_the_settings() {
    let pki = Pki::new();
    let own = pki.sign("localhost", 1);
    // X25519MLKEM768, which only AWS-LC has, or X25519.
    let group = if PROVIDER == "AWS-LC" { 4588 } else { 29 };
    for (versions, suites, suite, group) in [
        ((0x0303, 0x0304), None, 0x1301, Some(group)),
        ((0x0303, 0x0303), None, 0xc02b, Some(29)),
        ((0x0303, 0x0304), Some(vec![0x1302, 0x1301]), 0x1302, Some(group)),
        ((0x0303, 0x0303), Some(vec![0xc02c, 0xc02b]), 0xc02c, Some(29)),
    ] {
        let config = config(Settings { versions, suites, ..settings(&own) });
        let mut link = Link::new(&Arc::new(pki.client(&[&TLS12, &TLS13], None)), "localhost", &config, 100);
        link.pump().unwrap();
        assert_eq!((link.session.suite(), link.session.group()), (Some(suite), group));
        assert_eq!(link.client.protocol_version(), Some(ProtocolVersion::from(versions.1)));
    }
}

#[test]
fn keys_of_every_form_are_read() {
    let pki = Pki::new();
    let own = pki.sign("localhost", 1);
    let reason = |key: &[u8], password: Option<&[u8]>| {
        let certificate = Certificate { host: None, chain: own.pem.as_bytes(), key };
        let settings = Settings { certificates: vec![certificate], password, ..settings(&own) };
        Config::new(settings).map(drop).unwrap_err()
    };
    // Read, and then found to be of another certificate.
    let read = "the private key does not match the certificate";
    for key in
        [&include_bytes!("keys/sec1.pem")[..], include_bytes!("keys/pkcs8.pem"), include_bytes!("keys/pkcs1.pem")]
    {
        assert_eq!(reason(key, None), read);
    }
    for key in [
        &include_bytes!("keys/pkcs8-aes-256.pem")[..],
        include_bytes!("keys/pkcs8-aes-128-sha1.pem"),
        include_bytes!("keys/pkcs8-des3.pem"),
        include_bytes!("keys/pkcs8-scrypt.pem"),
        include_bytes!("keys/legacy-aes128.pem"),
        include_bytes!("keys/legacy-aes192.pem"),
        include_bytes!("keys/legacy-aes256.pem"),
        include_bytes!("keys/legacy-des3.pem"),
    ] {
        assert_eq!(reason(key, Some(b"secret")), read, "{}", String::from_utf8_lossy(key));
        assert_eq!(reason(key, None), "the private key is encrypted, and there is no password");
        let wrong = reason(key, Some(b"other"));
        // One in 256 wrong passwords leaves padding that looks right.
        let unlucky = "the kind of the private key is not supported";
        assert!(wrong == "the password does not fit the private key" || wrong == unlucky, "{wrong}");
    }
    for (key, text) in [
        (&include_bytes!("keys/pkcs8-v1.pem")[..], "the encryption of the private key is not supported"),
        (b"", "the PEM data contains no private key"),
        (b"-----BEGIN PRIVATE KEY-----\n", "the private key is malformed"),
        (b"-----BEGIN PRIVATE KEY-----\n!!\n-----END PRIVATE KEY-----\n", "the private key is malformed"),
        (
            b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
            "the kind of the private key is not supported",
        ),
    ] {
        assert_eq!(reason(key, Some(b"secret")), text);
    }
}

#[test]
fn settings_that_do_not_fit_are_errors() {
    let pki = Pki::new();
    let own = pki.sign("localhost", 1);
    let error = |settings: Settings<'_>| Config::new(settings).map(drop).unwrap_err();
    assert_eq!(error(Settings { versions: (0x0301, 0x0302), ..settings(&own) }), "only TLS 1.2 and 1.3 are supported");
    assert_eq!(
        error(Settings { suites: Some(vec![0x002f]), ..settings(&own) }),
        "none of the cipher suites fits the versions of TLS"
    );
    assert_eq!(error(Settings { certificates: vec![], ..settings(&own) }), "one certificate must be for all names");
    let required = || Settings { verify: Verify::Required, ..settings(&own) };
    assert_eq!(error(required()), "client certificates need authorities to verify them");
    let authority = Some(pki.authority_pem.as_bytes());
    assert_eq!(
        error(Settings { authorities: authority, revoked: Some(b"none"), ..required() }),
        "the file of revocation lists contains none in PEM"
    );
}
