//! Field sections of HTTP/2 and HTTP/3: what both versions share.
//!
//! ```text
//!   HPACK, QPACK ─▶ name, value, Key ─▶ Kind ─▶ Reader ─▶ Head          ResponseHead ─▶ Section ─▶ HPACK, QPACK
//!         │                                                                                             │
//!         └── Table, string, huffman, integer ──────────────────────────────────────────────────────────┘
//! ```
//!
//! The rules for fields (RFC 9113 section 8, RFC 9114 section 4) are the same in both versions, and so are the strings, the
//! integers and the dynamic tables of their compressions (RFC 7541, RFC 9204). Nothing here knows frames or streams.

pub(crate) mod body;
mod decoded;
pub(crate) mod huffman;
pub(crate) mod integer;
mod kind;
pub(crate) mod request;
pub(crate) mod response;
mod scratch;
mod section;
pub(crate) mod string;
pub(crate) mod table;

use std::fmt;

pub use decoded::{Field, Size};
pub(crate) use kind::Kind;
pub use request::{Head, Item};
pub use response::{Defaults, ResponseHead};
pub use scratch::Scratch;
pub use section::{Indexing, Section};
pub use table::{Key, Number};

/// The overhead of an entry or a field beyond its name and value (RFC 7541 section 4.1, RFC 9204 section 3.2.1).
pub const FIELD_OVERHEAD: usize = 32;

/// Bytes that are not an integer or a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Malformed {
    /// An integer that is too large, or has too many bytes.
    Integer,
    /// The bytes end inside.
    Truncated,
    /// A string is not in the Huffman code, or not padded as it should be (RFC 7541 section 5.2).
    Huffman,
}

impl Malformed {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Integer => "integer too large in a header block",
            Self::Truncated => "header block ends inside a field",
            Self::Huffman => "malformed Huffman code in a header block",
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
