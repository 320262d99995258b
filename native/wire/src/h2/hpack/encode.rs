//! Header blocks of the server's, encoded.

use crate::h2::hpack::table::Table;
use crate::h2::hpack::{FIELD_OVERHEAD, TABLE_SIZE, huffman, integer, static_table};

/// What becomes of a field that is in no table (RFC 7541 section 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexing {
    /// It is put into the table: it will come again.
    Add,
    /// It is not.
    Without,
    /// It is not, and may not be by anybody who passes it on: a secret that others could find out by its size.
    Never,
}

/// Encodes the blocks of one connection, in order.
#[derive(Debug)]
pub struct Encoder {
    table: Table,
    /// The size of the table has changed since the last block: the least that it was, and what it is.
    resized: Option<(usize, usize)>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An encoder for a client that has said nothing about its table.
    pub const fn new() -> Self {
        Self { table: Table::new(TABLE_SIZE), resized: None }
    }

    /// The client allows a table of so many bytes (`SETTINGS_HEADER_TABLE_SIZE`). No more than [`TABLE_SIZE`] is used.
    pub fn set_limit(&mut self, limit: usize) {
        let limit = limit.min(TABLE_SIZE);
        let least = self.resized.map_or(limit, |(least, _)| least.min(limit));
        if limit != self.table.limit() || self.resized.is_some() {
            self.resized = Some((least, limit));
            self.table.set_limit(limit);
        }
    }

    /// Begin a block: append what the client has to know about the table (section 4.2).
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some((least, limit)) = self.resized.take() {
            for size in [Some(least).filter(|&least| least < limit), Some(limit)].into_iter().flatten() {
                integer::encode(out, 0x20, 5, size);
            }
        }
    }

    /// Append a field. Its name must be in lower case, and both must be valid: nothing is checked here.
    pub fn field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8], indexing: Indexing) {
        let (mut named, mut whole) = static_table::find(name, value);
        if whole.is_none() {
            let (index, same) = self.table.find(name, value);
            let behind = |index| index + static_table::FIELDS.len() + 1;
            named = named.or(index.map(behind));
            whole = same.map(behind);
        }
        if let Some(index) = whole.filter(|_| indexing != Indexing::Never) {
            integer::encode(out, 0x80, 7, index);
            return;
        }
        // What fills the table by itself would push out all others.
        let fits = name.len() + value.len() + FIELD_OVERHEAD <= self.table.limit() / 2;
        let (first, prefix) = match indexing {
            Indexing::Add if fits => (0x40, 6),
            Indexing::Add | Indexing::Without => (0x00, 4),
            Indexing::Never => (0x10, 4),
        };
        integer::encode(out, first, prefix, named.unwrap_or(0));
        if named.is_none() {
            string(out, name);
        }
        string(out, value);
        if first == 0x40 {
            self.table.insert(name, value);
        }
    }
}

/// Append a string in the shorter of its two forms (section 5.2).
fn string(out: &mut Vec<u8>, text: &[u8]) {
    let length = huffman::length(text);
    if length < text.len() {
        integer::encode(out, 0x80, 7, length);
        huffman::encode(text, out);
    } else {
        integer::encode(out, 0x00, 7, text.len());
        out.extend_from_slice(text);
    }
}
