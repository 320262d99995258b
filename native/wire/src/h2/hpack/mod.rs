//! HPACK (RFC 7541): header fields, compressed by reference to those before.
//!
//! ```text
//!   block ─▶ Decoder ─▶ Field, Field …        Encoder ◀─ name, value, Indexing
//!               │ ▲                               │ ▲
//!               ▼ │                               ▼ │
//!             Table (the client's)              Table (ours)
//! ```
//!
//! A decoded [`Field`] is given to a sink before the next one is read, because that may push its entry out of the
//! table. It also has the entry's [`Key`] and slot: a caller that keeps there what it has made of a field need not make
//! it again when the field comes again. The slot goes with its entry: so a connection finds its own values only,
//! because a [`Number`] is found in the table that gave it out only.

mod decode;
mod encode;
pub(crate) mod static_table;

use std::fmt;

pub use crate::fields::{FIELD_OVERHEAD, Field, Indexing, Key, Number, Section, Size};
pub use decode::Decoder;
pub use encode::Encoder;

use crate::fields::Malformed;

/// Bytes of a table, as both sides have it before they say otherwise (RFC 9113 section 6.5.2).
pub const TABLE_SIZE: usize = 4096;

/// A block that cannot be decoded, or is not. The tables of both sides differ from now on: the connection is over, with
/// `COMPRESSION_ERROR` (RFC 9113 section 4.3), or `ENHANCE_YOUR_CALM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// An integer that is larger, or has more bytes, than anything in a block could need (section 5.1).
    Integer,
    /// The block ends inside a field.
    Truncated,
    /// No entry has this index (section 2.3.3).
    Index,
    /// A string is not in the Huffman code, or not padded as it should be (section 5.2).
    Huffman,
    /// The table becomes larger than was allowed, or changes its size behind a field (sections 4.2 and 6.3).
    TableSize,
    /// The fields are far larger than is allowed.
    Bomb,
}

impl Error {
    /// The reason, for the log.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Integer => Malformed::Integer.text(),
            Self::Truncated => Malformed::Truncated.text(),
            Self::Index => "no header table entry with this index",
            Self::Huffman => Malformed::Huffman.text(),
            Self::TableSize => "header table size not allowed",
            Self::Bomb => "header block far too large when decoded",
        }
    }
}

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Integer => Self::Integer,
            Malformed::Truncated => Self::Truncated,
            Malformed::Huffman => Self::Huffman,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Error {}
