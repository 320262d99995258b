//! Integers that begin in the last bits of a byte (RFC 7541 section 5.1).

use crate::fields::Malformed;

/// Bytes behind the first that an integer of HPACK may have: enough for 28 bits, which is more than a block can be long.
const SHORT: u32 = 4;
/// Bytes behind the first that one of QPACK may have: enough for 62 bits (RFC 9204 section 4.1.1).
const LONG: u32 = 9;
/// The largest integer of QPACK.
const MOST: u64 = (1 << 62) - 1;

/// Take an integer of 28 bits at most from the front of `input`; its first byte has `prefix` bits of it, at most 8.
#[inline]
pub(crate) fn decode(input: &mut &[u8], prefix: u32) -> Result<usize, Malformed> {
    decode_up_to::<SHORT>(input, prefix).map(|value| value as usize)
}

/// The same for 62 bits.
#[inline]
pub(crate) fn decode_long(input: &mut &[u8], prefix: u32) -> Result<u64, Malformed> {
    let value = decode_up_to::<LONG>(input, prefix)?;
    if value > MOST { Err(Malformed::Integer) } else { Ok(value) }
}

#[inline]
fn decode_up_to<const MORE: u32>(input: &mut &[u8], prefix: u32) -> Result<u64, Malformed> {
    let (&first, rest) = input.split_first().ok_or(Malformed::Truncated)?;
    *input = rest;
    let most = (1_u64 << prefix) - 1;
    let mut value = u64::from(first) & most;
    if value < most {
        return Ok(value);
    }
    for step in 0..MORE {
        let (&byte, rest) = input.split_first().ok_or(Malformed::Truncated)?;
        *input = rest;
        value += u64::from(byte & 0x7F) << (7 * step);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed::Integer)
}

/// Append an integer; `first` has the bits in front of its prefix.
#[inline]
pub(crate) fn encode(out: &mut Vec<u8>, first: u8, prefix: u32, value: usize) {
    encode_long(out, first, prefix, value as u64);
}

/// The same for 64 bits.
#[inline]
pub(crate) fn encode_long(out: &mut Vec<u8>, first: u8, prefix: u32, value: u64) {
    let most = (1_u64 << prefix) - 1;
    if value < most {
        out.push(first | value as u8);
        return;
    }
    out.push(first | most as u8);
    let mut rest = value - most;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(mut input: &[u8], prefix: u32) -> Result<(usize, usize), Malformed> {
        let length = input.len();
        decode(&mut input, prefix).map(|value| (value, length - input.len()))
    }

    /// RFC 7541 appendix C.1
    #[test]
    fn the_examples() {
        for (value, prefix, bytes) in [(10, 5, &[0x0a][..]), (1337, 5, &[0x1f, 0x9a, 0x0a]), (42, 8, &[0x2a])] {
            let mut out = Vec::new();
            encode(&mut out, 0, prefix, value);
            assert_eq!(out, bytes);
            assert_eq!(decoded(bytes, prefix), Ok((value, bytes.len())));
        }
    }

    #[test]
    fn what_is_written_is_read_with_any_prefix() {
        for prefix in 1..=8 {
            for value in (0..600).chain([16_383, 16_384, 1 << 20, (1 << 28) - 1]) {
                let mut out = Vec::new();
                encode(&mut out, 0, prefix, value);
                assert_eq!(decoded(&out, prefix), Ok((value, out.len())));
                assert_eq!(decoded(&out[..out.len() - 1], prefix), Err(Malformed::Truncated));
            }
        }
    }

    /// RFC 9204 section 4.1.1
    #[test]
    fn long_ones_have_62_bits() {
        for value in [0, 254, 255, 1 << 28, (1 << 62) - 1, 1 << 62, u64::MAX >> 1] {
            for prefix in 3..=8 {
                let mut out = Vec::new();
                encode_long(&mut out, 0, prefix, value);
                let expected = if value > MOST { Err(Malformed::Integer) } else { Ok(value) };
                assert_eq!(decode_long(&mut out.as_slice(), prefix), expected, "{value}");
            }
        }
        assert_eq!(decode_long(&mut [&[0xff; 9][..], &[0x80, 0]].concat().as_slice(), 8), Err(Malformed::Integer));
        assert_eq!(decode_long(&mut [&[0xff][..], &[0x80; 8], &[0]].concat().as_slice(), 8), Ok(255));
    }

    #[test]
    fn an_integer_has_an_end() {
        assert_eq!(decoded(&[0xff, 0x80, 0x80, 0x80, 0x00], 8), Ok((255, 5)));
        assert_eq!(decoded(&[0xff, 0x80, 0x80, 0x80, 0x80, 0x00], 8), Err(Malformed::Integer));
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 8), Err(Malformed::Integer));
    }
}
