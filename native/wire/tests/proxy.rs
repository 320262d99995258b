//! Replays `tests/vectors/proxy_protocol.toml`, which the implementation in Python is held to as well: each vector whole, cut at
//! every byte, and in front of something else. Its format is described in it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "not production code"
)]

use std::path::Path;

use toml::{Table, Value};
use wire::proxy::{Ends, Header, Malformed, read};

fn hex(text: &str) -> Vec<u8> {
    text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn input(vector: &Table) -> Vec<u8> {
    match (vector.get("line"), vector.get("hex")) {
        (Some(line), None) => line.as_str().unwrap().chars().map(|point| u8::try_from(point).unwrap()).collect(),
        (None, Some(Value::String(text))) => hex(text),
        (None, Some(Value::Array(pieces))) => pieces.iter().flat_map(|piece| hex(piece.as_str().unwrap())).collect(),
        _ => panic!("no octets: {vector:?}"),
    }
}

fn shown(ends: Option<Ends<'_>>) -> Option<(String, String)> {
    let path = |path: &[u8]| format!("unix:{}", str::from_utf8(path).unwrap());
    ends.map(|ends| match ends {
        Ends::Ip { source, destination } => (source.to_string(), destination.to_string()),
        Ends::Unix { source, destination } => (path(source), path(destination)),
    })
}

fn check(id: &str, header: &Header<'_>, vector: &Table) {
    let told = |key: &str| vector.get(key).map(|value| value.as_str().unwrap().to_owned());
    let text = |key: &str| told(key).unwrap_or_default();
    let ends = told("source_address").zip(told("destination_address"));
    assert_eq!(shown(header.ends), ends, "{id}");
    assert_eq!(header.authority, text("authority"), "{id}");
    assert_eq!(header.alpn, text("alpn").as_bytes(), "{id}");
    assert_eq!(header.unique_id, text("unique_id").as_bytes(), "{id}");
    assert_eq!(header.tls.is_some(), vector.contains_key("tls"), "{id}");
    let Some((tls, told)) = header.tls.zip(vector.get("tls")) else { return };
    let text = |key: &str| told.get(key).map(|value| value.as_str().unwrap()).unwrap_or_default();
    assert_eq!((tls.version, tls.cipher), (text("version"), text("cipher")), "{id}");
    assert_eq!(tls.common_name, text("common_name"), "{id}");
    assert_eq!(tls.has_certificate, told.get("has_certificate").is_some(), "{id}");
    assert_eq!(tls.verified, told.get("is_verified").is_some(), "{id}");
}

#[test]
fn vectors() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/proxy_protocol.toml");
    let table: Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
    let vectors = table["vector"].as_array().unwrap();
    assert!(vectors.len() >= 30, "only {} vectors", vectors.len());
    for vector in vectors {
        let vector = vector.as_table().unwrap();
        let id = vector["id"].as_str().unwrap();
        let input = input(vector);
        let whole = read(&input);
        let error = whole.err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), vector.get("error").map(|error| error.as_str().unwrap()), "{id}");
        assert_eq!(whole == Ok(None), vector.contains_key("incomplete"), "{id}");
        if let Ok(Some(header)) = &whole {
            assert_eq!(header.length, input.len(), "{id}");
            check(id, header, vector);
        }
        check_cuts(id, &input, whole);
    }
}

/// However much of it has come, what is known of it stays the same; and what follows changes nothing.
fn check_cuts(id: &str, input: &[u8], whole: Result<Option<Header<'_>>, Malformed>) {
    let mut known = false;
    for end in 0..=input.len() {
        match read(&input[..end]) {
            Ok(None) => assert!(!known, "{id} {end}"),
            other => {
                known = true;
                assert_eq!(other, whole, "{id} {end}");
            }
        }
    }
    let followed = [input, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"].concat();
    if known {
        assert_eq!(read(&followed), whole, "{id}");
    }
}
