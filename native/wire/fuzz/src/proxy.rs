//! PROXY headers: whoever connects may have written them.

use wire::proxy::{Ends, Header, MAX_LENGTH, Malformed, read};

use super::fingerprint;

/// Cuts of short input are all looked at, of longer input these and the last.
const CUTS: usize = 160;

/// What is known of a header is known of every longer beginning of the same input, and holds nothing it must not hold.
pub fn proxy(data: &[u8]) -> u64 {
    let whole = read(data);
    let mut known: Option<Result<Option<Header<'_>>, Malformed>> = None;
    let cuts = data.len().min(CUTS);
    for end in (0..cuts).chain(cuts.max(data.len().saturating_sub(2))..=data.len()) {
        match (read(&data[..end]), &known) {
            (Ok(None), known) => assert!(known.is_none()),
            (outcome, None) => known = Some(outcome),
            (outcome, Some(known)) => assert_eq!(&outcome, known),
        }
    }
    assert_eq!(known.unwrap_or(Ok(None)), whole);
    match whole {
        Ok(None) => assert!(data.len() < MAX_LENGTH),
        Ok(Some(header)) => check(&header, data),
        Err(_) => {}
    }
    fingerprint(&whole.map(|header| {
        header.map(|header| {
            let said = (header.alpn.is_empty(), header.authority.is_empty(), header.unique_id.is_empty());
            (
                header.length.min(300),
                header.ends.map(|ends| matches!(ends, Ends::Unix { .. })),
                said,
                header.tls.is_some(),
            )
        })
    }))
}

fn check(header: &Header<'_>, data: &[u8]) {
    let said = &data[..header.length];
    assert!(said.len() <= MAX_LENGTH && header.unique_id.len() <= 128);
    let tls = header.tls.unwrap_or_default();
    for text in [header.authority, tls.version, tls.cipher, tls.common_name] {
        assert!(!text.chars().any(char::is_control));
    }
    if let Some(Ends::Unix { source, destination }) = header.ends {
        assert!(source.len() <= 108 && destination.len() <= 108);
        assert!(!source.contains(&0) && !destination.contains(&0));
    }
    if said.starts_with(b"PROXY ") {
        assert!(said.len() <= 107 && said.ends_with(b"\r\n"));
        assert!(said[..said.len() - 2].iter().all(|byte| (b' '..=b'~').contains(byte)));
        if let Some(Ends::Ip { source, destination }) = header.ends
            && source.is_ipv4()
        {
            // There is one way to write it.
            let (from, to) = (source.port(), destination.port());
            let line = format!("PROXY TCP4 {} {} {from} {to}\r\n", source.ip(), destination.ip());
            assert_eq!(said, line.as_bytes());
        }
    }
}
