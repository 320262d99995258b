//! The results of decoding a field section.

use crate::fields::table::Key;

/// A field. The bytes are there until the sink returns.
#[derive(Debug, PartialEq, Eq)]
pub struct Field<'a, K> {
    /// The name, which need not be one: HPACK and QPACK carry any bytes.
    pub name: &'a [u8],
    /// The value; the same holds for it.
    pub value: &'a [u8],
    /// The entry that is this field: it was one, or has become one.
    pub whole: Option<Key>,
    /// The slot of that entry, if it is of the dynamic table: a default for a new one.
    pub kept: Option<&'a mut K>,
    /// Intermediaries must not put it into a table (RFC 7541 section 7.1.3, RFC 9204 section 7.1.3).
    pub never_indexed: bool,
}

/// How large the fields of a section are, as RFC 9113 section 10.5.1 and RFC 9114 section 4.2.2 count them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Within the limit.
    Within(usize),
    /// Larger: the sink has not got all fields, but later sections can be decoded.
    Over,
}

impl Size {
    /// That of `length` bytes with this limit.
    #[inline]
    pub(crate) const fn of(length: usize, limit: usize) -> Self {
        if length <= limit { Self::Within(length) } else { Self::Over }
    }
}
