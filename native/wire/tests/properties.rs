//! The properties of the fuzz targets, on inputs made by proptest: arbitrary bytes, and requests put together from pieces
//! that are right, nearly right and wrong.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

#[path = "../fuzz/src/lib.rs"]
mod targets;

/// Miri takes its time.
const CASES: u32 = if cfg!(miri) { 10 } else { 2_000 };

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..300)
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let lines: &[&[u8]] = &[
        b"GET / HTTP/1.1\r\n",
        b"POST /a%20b?c=%zz HTTP/1.1\r\n",
        b"GET http://b:80/c HTTP/1.0\r\n",
        b"HEAD /% HTTP/1.1\r\n",
        b"Host: a\r\n",
        b"Content-Length: 7\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Expect: 100-continue\r\n",
        b"Connection: keep-alive, close\r\n",
        b"X-Own:\t \xff~ \r\n",
        b"X : y\r\n",
        b"X: y\n",
        b"\r\n",
        b"5;a=\"b\"\r\nhello\r\n",
        b"3\r\nabc\r\n",
        b"0\r\n",
        b"0\r\nx: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
    ];
    select(lines).prop_map(<[u8]>::to_vec)
}

/// A control byte for the target, then lines with, now and then, something else between them.
fn conversation() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![20 => line(), 1 => vec(any::<u8>(), 0..8)];
    (any::<u8>(), vec(piece, 0..12)).prop_map(|(control, pieces)| [vec![control], pieces.concat()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    /// X4
    #[test]
    fn arbitrary_bytes_never_panic_and_never_depend_on_cuts(data in bytes()) {
        targets::h1_request(&data);
        targets::h1_split(&data);
        targets::h1_chunked(&data);
        targets::h1_response(&data);
        targets::h1_exchange(&data);
        targets::h1_shared(&data);
        targets::h3_qpack(&data);
    }

    /// Any order in which sections, entries and acknowledgements pass each other.
    #[test]
    fn sections_of_qpack_are_what_they_were_in_any_order(control in 0..16_u8, limit: u8, steps in vec(any::<u8>(), 0..400)) {
        targets::h3_qpack(&[&[control, limit], &steps[..]].concat());
    }

    /// U6
    #[test]
    fn any_cut_of_a_conversation_gives_the_same_events(data in conversation()) {
        targets::h1_split(&data);
        targets::h1_request(&data[1..]);
    }

    #[test]
    fn any_behaviour_gives_one_response_for_each_request(
        control in any::<u8>(),
        script in vec(any::<u8>(), 0..24),
        data in conversation(),
    ) {
        let length = u8::try_from(script.len()).unwrap();
        targets::h1_exchange(&[vec![control, length], script, data[1..].to_vec()].concat());
    }

    #[test]
    fn connections_that_share_their_parts_know_nothing_of_each_other(
        control in any::<u8>(),
        script in vec(any::<[u8; 2]>(), 62),
        data in vec(conversation(), 2..5),
    ) {
        let script = &script.concat()[..usize::from(control >> 3) * 4];
        let longest = data.iter().map(Vec::len).max().unwrap_or_default();
        let pad = |mut text: Vec<u8>| { text.resize(longest, b'\n'); text };
        let texts: Vec<_> = data.into_iter().map(pad).collect();
        let control = control & !6 | u8::try_from(texts.len() - 2).unwrap() << 1;
        targets::h1_shared(&[&[control], script, &texts.concat()].concat());
    }

    /// D5
    #[test]
    fn any_cut_of_chunks_gives_the_same_data(data in conversation()) {
        targets::h1_chunked(&data);
    }
}

#[test]
fn the_seeds_of_the_fuzzers_hold() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
    for (name, target) in targets::ALL {
        let seeds: Vec<_> = std::fs::read_dir(directory.join(name)).unwrap().flatten().collect();
        assert!(!seeds.is_empty());
        for seed in seeds {
            target(&std::fs::read(seed.path()).unwrap());
        }
    }
}
