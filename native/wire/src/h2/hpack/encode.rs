//! Header blocks of the server's, encoded.

use crate::fields::table::Table;
use crate::fields::{FIELD_OVERHEAD, Indexing, Section, integer, string};
use crate::h2::hpack::{TABLE_SIZE, static_table};

/// Encodes the blocks of one connection, in order.
#[derive(Debug)]
pub struct Encoder {
    table: Table<()>,
    /// The size of the table has changed since the last block: its minimum, and its present value.
    resized: Option<(usize, usize)>,
    last: Option<Box<Last>>,
}

/// A section and its block, which is that of the same section as long as nothing has been added to the table.
#[derive(Debug)]
struct Last {
    section: Section,
    block: Vec<u8>,
    added: u64,
}

/// A larger section is not kept for the next: each connection has its own.
const MAX_LAST: usize = 512;

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An encoder for a client that has not set the size of its table.
    pub fn new() -> Self {
        Self { table: Table::new(TABLE_SIZE), resized: None, last: None }
    }

    /// The client allows a table of `limit` bytes (`SETTINGS_HEADER_TABLE_SIZE`). No more than [`TABLE_SIZE`] is used.
    pub fn set_limit(&mut self, limit: usize) {
        let limit = limit.min(TABLE_SIZE);
        let least = self.resized.map_or(limit, |(least, _)| least.min(limit));
        if limit != self.table.limit() || self.resized.is_some() {
            self.resized = Some((least, limit));
            self.last = None;
            self.table.set_limit(limit);
        }
    }

    /// Begin a block: append the changes of the table's size (section 4.2).
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some((least, limit)) = self.resized.take() {
            for size in [Some(least).filter(|&least| least < limit), Some(limit)].into_iter().flatten() {
                integer::encode(out, 0x20, 5, size);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn has_block_of(&self, section: &Section) -> bool {
        self.last.as_ref().is_some_and(|last| last.section == *section)
    }

    /// Append a whole block. Servers repeat themselves: a section that was the last one as well is not encoded again.
    pub fn block(&mut self, out: &mut Vec<u8>, section: &Section) {
        self.begin(out);
        if let Some(last) = self.last.as_deref().filter(|last| last.added == self.table.added())
            && last.section == *section
        {
            out.extend_from_slice(&last.block);
            return;
        }
        let (start, added) = (out.len(), self.table.added());
        for (name, value, indexing) in section.iter() {
            self.field(out, name, value, indexing);
        }
        // A field that was just added is encoded as an index the next time.
        if added == self.table.added() && section.length() <= MAX_LAST {
            let last = self
                .last
                .get_or_insert_with(|| Box::new(Last { section: Section::default(), block: Vec::new(), added }));
            last.section.clone_from(section);
            last.block.clear();
            last.block.extend_from_slice(out.get(start..).unwrap_or_default());
            last.added = added;
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
        // A field that fills the table by itself would evict all others.
        let fits = name.len() + value.len() + FIELD_OVERHEAD <= self.table.limit() / 2;
        let (first, prefix) = match indexing {
            Indexing::Add if fits => (0x40, 6),
            Indexing::Add | Indexing::Without => (0x00, 4),
            Indexing::Never => (0x10, 4),
        };
        integer::encode(out, first, prefix, named.unwrap_or(0));
        if named.is_none() {
            string::encode(out, 0x00, 7, name);
        }
        string::encode(out, 0x00, 7, value);
        if first == 0x40 {
            self.table.insert(name, value);
        }
    }
}
