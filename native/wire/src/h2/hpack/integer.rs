//! Integers that begin in the last bits of a byte (RFC 7541 section 5.1).

use crate::h2::hpack::Error;

/// Bytes behind the first that an integer may have: enough for 28 bits, which is more than a block can be long.
const MAX_MORE: u32 = 4;

/// Take an integer from the front of `input`; its first byte has `prefix` bits of it, at most 8.
#[inline]
pub(crate) fn decode(input: &mut &[u8], prefix: u32) -> Result<usize, Error> {
    let (&first, rest) = input.split_first().ok_or(Error::Truncated)?;
    *input = rest;
    let most = (1_usize << prefix) - 1;
    let mut value = usize::from(first) & most;
    if value < most {
        return Ok(value);
    }
    for step in 0..MAX_MORE {
        let (&byte, rest) = input.split_first().ok_or(Error::Truncated)?;
        *input = rest;
        value += usize::from(byte & 0x7F) << (7 * step);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Error::Integer)
}

/// Append an integer; `first` has the bits in front of its prefix.
#[inline]
pub(crate) fn encode(out: &mut Vec<u8>, first: u8, prefix: u32, value: usize) {
    let most = (1_usize << prefix) - 1;
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

    fn decoded(mut input: &[u8], prefix: u32) -> Result<(usize, usize), Error> {
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
                assert_eq!(decoded(&out[..out.len() - 1], prefix), Err(Error::Truncated));
            }
        }
    }

    #[test]
    fn an_integer_has_an_end() {
        assert_eq!(decoded(&[0xff, 0x80, 0x80, 0x80, 0x00], 8), Ok((255, 5)));
        assert_eq!(decoded(&[0xff, 0x80, 0x80, 0x80, 0x80, 0x00], 8), Err(Error::Integer));
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 8), Err(Error::Integer));
    }
}
