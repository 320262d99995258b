//! Frames (RFC 9114 section 7): a type and a length, both of variable size, and the payload.

pub(crate) const DATA: u64 = 0x0;
pub(crate) const HEADERS: u64 = 0x1;
pub(crate) const CANCEL_PUSH: u64 = 0x3;
pub(crate) const SETTINGS: u64 = 0x4;
pub(crate) const PUSH_PROMISE: u64 = 0x5;
pub(crate) const GOAWAY: u64 = 0x7;
pub(crate) const MAX_PUSH_ID: u64 = 0xd;
/// RFC 9218 section 7.2.
pub(crate) const PRIORITY_UPDATE: u64 = 0xf_0700;
pub(crate) const PRIORITY_UPDATE_PUSH: u64 = 0xf_0701;

/// The largest integer of variable size (RFC 9000 section 16).
pub(crate) const MAX_VARINT: u64 = (1 << 62) - 1;
/// Bytes in front of a section that are reserved for the head of its frame.
const RESERVED: usize = 3;

/// Whether a frame type is one of HTTP/2 that must not be sent (RFC 9114 section 7.2.8).
pub(crate) const fn is_of_http2(kind: u64) -> bool {
    matches!(kind, 0x2 | 0x6 | 0x8 | 0x9)
}

/// Take an integer from the front of `input`; `None`: more bytes are needed.
#[inline]
pub(crate) fn varint(input: &mut &[u8]) -> Option<u64> {
    let first = *input.first()?;
    let length = 1 << (first >> 6);
    let (bytes, rest) = input.split_at_checked(length)?;
    *input = rest;
    let value = bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
    Some(value & (u64::MAX >> (66 - 8 * length)))
}

/// Read the head of a frame, whose beginning may be held: its type, its length, and how many bytes of `input` it took. `None`:
/// more bytes are needed, and all of `input` is held.
#[inline]
pub(crate) fn read_head(held: &mut Vec<u8>, input: &[u8]) -> Option<(u64, u64, usize)> {
    if held.is_empty() {
        let mut rest = input;
        if let (Some(kind), Some(length)) = (varint(&mut rest), varint(&mut rest)) {
            return Some((kind, length, input.len() - rest.len()));
        }
        held.extend_from_slice(input);
        return None;
    }
    for (taken, &byte) in (1..).zip(input) {
        held.push(byte);
        let mut rest = held.as_slice();
        if let (Some(kind), Some(length)) = (varint(&mut rest), varint(&mut rest)) {
            held.clear();
            return Some((kind, length, taken));
        }
    }
    None
}

/// The first `length` bytes of `held` and `input` together, and how many of `input` they take. `None`: there are fewer,
/// and all of `input` is held.
#[inline]
pub(crate) fn gather<'a>(held: &'a mut Vec<u8>, input: &'a [u8], length: usize) -> Option<(&'a [u8], usize)> {
    let missing = length.saturating_sub(held.len());
    match input.get(..missing) {
        Some(whole) if held.is_empty() => Some((whole, missing)),
        Some(rest) => {
            held.extend_from_slice(rest);
            Some((held, missing))
        }
        None => {
            held.extend_from_slice(input);
            None
        }
    }
}

/// Append an integer, which is at most [`MAX_VARINT`], in as few bytes as possible.
pub(crate) fn put_varint(out: &mut Vec<u8>, value: u64) {
    let bytes = value.to_be_bytes();
    let (length, mark) = match value {
        0..0x40 => (1, 0x00),
        0x40..0x4000 => (2, 0x40),
        0x4000..0x4000_0000 => (4, 0x80),
        _ => (8, 0xc0),
    };
    let start = out.len();
    out.extend_from_slice(bytes.get(8 - length..).unwrap_or_default());
    if let Some(first) = out.get_mut(start) {
        *first |= mark;
    }
}

/// Append the head of a frame.
pub(crate) fn put_head(out: &mut Vec<u8>, kind: u64, length: usize) {
    put_varint(out, kind);
    put_varint(out, length as u64);
}

/// Append a `HEADERS` frame, whose payload `section` appends.
#[inline]
pub(crate) fn put_headers(out: &mut Vec<u8>, section: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[HEADERS as u8, 0x40, 0]);
    section(out);
    let length = out.len() - start - RESERVED;
    if let (0..0x4000, Some([_, high, low])) = (length, out.get_mut(start..start + RESERVED)) {
        (*high, *low) = (0x40 | (length >> 8) as u8, length as u8);
        return;
    }
    let mut head = Vec::new();
    put_head(&mut head, HEADERS, length);
    out.splice(start..start + RESERVED, head);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9000 appendix A.1
    #[test]
    fn integers_have_four_sizes() {
        for (bytes, value) in [
            (&b"\xc2\x19\x7c\x5e\xff\x14\xe8\x8c"[..], 151_288_809_941_952_652),
            (b"\x9d\x7f\x3e\x7d", 494_878_333),
            (b"\x7b\xbd", 15293),
            (b"\x25", 37),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff", MAX_VARINT),
        ] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out, bytes);
            let mut input = [bytes, b"x"].concat();
            assert_eq!((varint(&mut input.as_slice()), input.len()), (Some(value), bytes.len() + 1));
            input.truncate(bytes.len() - 1);
            assert_eq!(varint(&mut input.as_slice()), None);
        }
        assert_eq!(varint(&mut &b"\x40\x25"[..]), Some(37));
    }

    #[test]
    fn a_head_and_a_payload_are_found_in_any_cut() {
        let input = b"\x4f\x07\x80\0\0\x05hello";
        for cut in 0..=6 {
            let (mut held, mut found, mut at) = (Vec::new(), None, 0);
            for piece in [&input[..cut], &input[cut..]] {
                if found.is_none() {
                    found = read_head(&mut held, piece);
                    at += found.map_or(piece.len(), |(_, _, taken)| taken);
                }
            }
            assert_eq!((found.map(|(kind, length, _)| (kind, length)), at), (Some((0xf07, 5)), 6));
            assert!(held.is_empty());
            assert_eq!(gather(&mut held, b"he", 5), None);
            assert_eq!(gather(&mut held, b"lloxx", 5), Some((&b"hello"[..], 3)));
            assert_eq!(gather(&mut Vec::new(), b"hellox", 5), Some((&b"hello"[..], 5)));
        }
    }

    #[test]
    fn a_section_has_the_head_that_it_needs() {
        for (length, head) in [(0, &b"\x01\x40\x00"[..]), (16_383, b"\x01\x7f\xff"), (16_384, b"\x01\x80\0\x40\0")] {
            let mut out = b"before".to_vec();
            put_headers(&mut out, |out| out.resize(out.len() + length, b'x'));
            assert_eq!(out, [b"before", head, &vec![b'x'; length]].concat());
        }
    }
}
