//! Strings (RFC 7541 section 5.2): as they are, or in the Huffman code.

use crate::fields::{Malformed, huffman, integer};

/// A string: as it was sent, or in the scratch.
#[derive(Clone, Copy)]
pub(crate) enum Text<'a> {
    Sent(&'a [u8]),
    Decoded(usize, usize),
}

impl<'a> Text<'a> {
    #[inline]
    pub(crate) fn of(self, scratch: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Sent(bytes) => bytes,
            Self::Decoded(start, end) => scratch.get(start..end).unwrap_or_default(),
        }
    }
}

/// Take a string from the front of `rest`: the length in its first byte has `prefix` bits, and the bit in front of them says
/// whether the string is coded. Decoded, it is appended to `scratch`.
#[inline]
pub(crate) fn decode<'a>(rest: &mut &'a [u8], prefix: u32, scratch: &mut Vec<u8>) -> Result<Text<'a>, Malformed> {
    let coded = rest.first().ok_or(Malformed::Truncated)? & (1 << prefix) != 0;
    let length = integer::decode(rest, prefix)?;
    let (bytes, behind) = rest.split_at_checked(length).ok_or(Malformed::Truncated)?;
    *rest = behind;
    if !coded {
        return Ok(Text::Sent(bytes));
    }
    let start = scratch.len();
    huffman::decode(bytes, scratch)?;
    Ok(Text::Decoded(start, scratch.len()))
}

/// Append a string in the shorter of its two forms; `first` has the bits in front of the one that says which.
#[inline]
pub(crate) fn encode(out: &mut Vec<u8>, first: u8, prefix: u32, text: &[u8]) {
    let length = huffman::length(text);
    if length < text.len() {
        integer::encode(out, first | 1 << prefix, prefix, length);
        huffman::encode(text, out);
    } else {
        integer::encode(out, first, prefix, text.len());
        out.extend_from_slice(text);
    }
}
