//! QPACK (RFC 9204): header fields, compressed by reference to tables that streams may read before they are complete.
//!
//! ```text
//!   encoder stream ─▶ Decoder ── output ─▶ decoder stream         Encoder ── instructions ─▶ encoder stream
//!   section ────────▶  │  ▲ │                                       │  ▲  ◀─ decoder stream
//!                      ▼  │ └─▶ Field, Field … or Blocked           ▼  │
//!                     Table (the client's)                         Table (ours) ─▶ section
//! ```
//!
//! A section that refers to entries which have not arrived is [blocked](Decoded::Blocked): decode it again when there are as many
//! as it needs. Our encoder refers to acknowledged entries only, so a lost packet never delays a response of another stream.
//! As in [HPACK](crate::h2::hpack), a slot of the caller's lives as long as its entry.

mod decode;
mod encode;
pub(crate) mod static_table;

use std::fmt;

pub use crate::fields::{FIELD_OVERHEAD, Field, Indexing, Key, Number, Section, Size};
pub use decode::{Decoded, Decoder, Inserted};
pub use encode::Encoder;

use crate::fields::Malformed;

/// Bytes of a table, by default. Without settings of the other side there is none (RFC 9204 section 5).
pub const TABLE_SIZE: usize = 4096;

/// A mistake of the client, by its place: each ends the connection, with a code of its own (RFC 9204 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// In a field section: `QPACK_DECOMPRESSION_FAILED`.
    Section(Reason),
    /// On the encoder stream: `QPACK_ENCODER_STREAM_ERROR`.
    EncoderStream(Reason),
    /// On the decoder stream: `QPACK_DECODER_STREAM_ERROR`.
    DecoderStream(Reason),
}

/// The mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// An integer that is larger, or has more bytes, than any may have (section 4.1.1).
    Integer,
    /// It ends inside a field.
    Truncated,
    /// A string is not in the Huffman code, or not padded as it should be (section 4.1.2).
    Huffman,
    /// No entry has this index (sections 3.1 and 2.2.3).
    Index,
    /// No section can need this number of entries, or begin its counting there (section 4.5.1).
    Prefix,
    /// The table becomes larger than was allowed (section 3.2.3).
    TableSize,
    /// An entry is larger than the table (section 3.2.2).
    EntrySize,
    /// Something is acknowledged that was not sent (section 4.4).
    Acknowledgement,
}

impl From<Malformed> for Reason {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Integer => Self::Integer,
            Malformed::Truncated => Self::Truncated,
            Malformed::Huffman => Self::Huffman,
        }
    }
}

impl Error {
    /// The reason, for the log.
    pub const fn text(self) -> &'static str {
        let (Self::Section(reason) | Self::EncoderStream(reason) | Self::DecoderStream(reason)) = self;
        match reason {
            Reason::Integer => Malformed::Integer.text(),
            Reason::Truncated => Malformed::Truncated.text(),
            Reason::Huffman => Malformed::Huffman.text(),
            Reason::Index => "no header table entry with this index",
            Reason::Prefix => "malformed prefix of a field section",
            Reason::TableSize => "header table size not allowed",
            Reason::EntrySize => "header table entry larger than the table",
            Reason::Acknowledgement => "acknowledgement of something that was not sent",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Error {}
