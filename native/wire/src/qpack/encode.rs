//! The server's sections, and the entries that they refer to.
//!
//! ```text
//!   entry:  added ── acknowledged ──▶ referred to ── near the end of the table ──▶ draining ── no section needs it ──▶ evicted
//! ```
//!
//! A field that will come again is added to the table, and encoded as a literal until the client is known to have the entry. So
//! no section can be blocked (RFC 9204 section 2.1.2). An entry that must soon make room is not referred to any longer, and is
//! duplicated if it comes again (section 2.1.1.1): else one that every response has would keep all later ones out.

use std::collections::VecDeque;

use crate::fields::table::Table;
use crate::fields::{FIELD_OVERHEAD, Indexing, Section, integer, string};
use crate::qpack::{Error, Reason, static_table};

/// A larger section is not kept for the next: each connection has its own.
const MAX_LAST: usize = 512;
/// Sections with references that are not acknowledged, at most; then no more are made.
const MAX_UNACKNOWLEDGED: usize = 256;
/// Bytes of instructions that wait for the client, beyond which nothing is added.
const MAX_WAITING: usize = 4096;

/// A section that refers to the table, and is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    stream: u64,
    /// The absolute index of its oldest entry, and how many entries it requires.
    oldest: u64,
    required: u64,
}

/// The entries that a section refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct References {
    oldest: u64,
    required: u64,
}

/// A section and what it was encoded as, which is the same as long as nothing is added and nothing new acknowledged.
#[derive(Debug)]
struct Last {
    section: Section,
    bytes: Vec<u8>,
    references: References,
    added: u64,
    known: u64,
}

/// Encodes the sections of one connection.
#[derive(Debug)]
pub struct Encoder {
    table: Table<()>,
    /// Bytes of the table, at most.
    most: usize,
    /// How many entries fit into the largest table that the client allows.
    entries: u64,
    /// How many entries the client is known to have got.
    known: u64,
    /// The sections that are not acknowledged, in order.
    sent: VecDeque<Sent>,
    last: Option<Box<Last>>,
}

impl Encoder {
    /// An encoder that uses a table of `most` bytes, as soon as the client allows one.
    pub fn new(most: usize) -> Self {
        Self { table: Table::new(0), most, entries: 0, known: 0, sent: VecDeque::new(), last: None }
    }

    /// The client allows a table of `limit` bytes (`SETTINGS_QPACK_MAX_TABLE_CAPACITY`), and says so once. Instructions are
    /// appended to `instructions`.
    pub fn set_limit(&mut self, limit: u64, instructions: &mut Vec<u8>) {
        self.entries = limit / FIELD_OVERHEAD as u64;
        let capacity = usize::try_from(limit).unwrap_or(usize::MAX).min(self.most);
        if capacity > 0 {
            self.table.set_limit(capacity);
            integer::encode(instructions, 0x20, 5, capacity);
        }
    }

    /// Carry out the instruction of the decoder stream at the front of `input` (section 4.4): how long it is, and whether it
    /// says something of a section or an entry of ours. `None`: it is incomplete.
    pub fn instruction(&mut self, input: &[u8]) -> Result<Option<(usize, bool)>, Error> {
        let mut rest = input;
        match self.instruction_of(&mut rest) {
            Ok(useful) => Ok(Some((input.len() - rest.len(), useful))),
            Err(Reason::Truncated) => Ok(None),
            Err(reason) => Err(Error::DecoderStream(reason)),
        }
    }

    fn instruction_of(&mut self, rest: &mut &[u8]) -> Result<bool, Reason> {
        let first = *rest.first().ok_or(Reason::Truncated)?;
        if first & 0x80 != 0 {
            let stream = integer::decode_long(rest, 7)?;
            let place = self.sent.iter().position(|sent| sent.stream == stream).ok_or(Reason::Acknowledgement)?;
            let required = self.sent.remove(place).map_or(0, |sent| sent.required);
            self.known = self.known.max(required);
            Ok(true)
        } else if first & 0x40 != 0 {
            let stream = integer::decode_long(rest, 6)?;
            let before = self.sent.len();
            self.sent.retain(|sent| sent.stream != stream);
            Ok(self.sent.len() < before)
        } else {
            let more = integer::decode_long(rest, 6)?;
            let known = self.known.saturating_add(more);
            if more == 0 || known > self.table.added() {
                return Err(Reason::Acknowledgement);
            }
            self.known = known;
            Ok(true)
        }
    }

    /// Append a whole section of a stream to `out`, and to `instructions` what is added to the table. Servers repeat themselves:
    /// a section that was the last one as well is not encoded again.
    pub fn section(&mut self, stream: u64, section: &Section, out: &mut Vec<u8>, instructions: &mut Vec<u8>) {
        let may_refer = self.sent.len() < MAX_UNACKNOWLEDGED;
        if let Some(last) = self.last.as_deref()
            && (may_refer || last.references.required == 0)
            && last.added == self.table.added()
            && last.known == self.known
            && last.section == *section
        {
            out.extend_from_slice(&last.bytes);
            let references = last.references;
            self.note(stream, references);
            return;
        }
        let (start, added) = (out.len(), self.table.added());
        // Most prefixes have two bytes.
        out.extend_from_slice(&[0, 0]);
        let mut references = References { oldest: u64::MAX, required: 0 };
        let draining = self.table.first_behind(self.table.limit() / 4);
        for (name, value, indexing) in section.iter() {
            let referred = self.field(out, instructions, name, value, indexing, may_refer, draining);
            if let Some(absolute) = referred {
                references.oldest = references.oldest.min(absolute);
                references.required = references.required.max(absolute + 1);
            }
        }
        self.put_prefix(out, start, references.required);
        self.note(stream, references);
        // A field that was just added is encoded as an index later.
        if added == self.table.added() && section.length() <= MAX_LAST {
            let known = self.known;
            let last = self.last.get_or_insert_with(|| {
                Box::new(Last { section: Section::default(), bytes: Vec::new(), references, added, known })
            });
            last.section.clone_from(section);
            last.bytes.clear();
            last.bytes.extend_from_slice(out.get(start..).unwrap_or_default());
            (last.references, last.added, last.known) = (references, added, known);
        }
    }

    fn note(&mut self, stream: u64, references: References) {
        let References { oldest, required } = references;
        if required > 0 {
            self.sent.push_back(Sent { stream, oldest, required });
        }
    }

    /// Put the prefix of a section into the two bytes at `start`. Relative indices count from the entries that are known.
    fn put_prefix(&self, out: &mut Vec<u8>, start: usize, required: u64) {
        if required == 0 {
            return;
        }
        // Section 4.5.1.1
        let encoded = required % (2 * self.entries) + 1;
        let delta = self.known - required;
        if let (0..255, 0..127, Some([first, second])) = (encoded, delta, out.get_mut(start..start + 2)) {
            (*first, *second) = (encoded as u8, delta as u8);
            return;
        }
        let mut prefix = Vec::new();
        integer::encode_long(&mut prefix, 0x00, 8, encoded);
        integer::encode_long(&mut prefix, 0x00, 7, delta);
        out.splice(start..start + 2, prefix);
    }

    /// Append a field; the absolute index of the entry that it refers to.
    #[expect(clippy::too_many_arguments, reason = "two outputs, three parts of a field, and two limits of the section")]
    fn field(
        &mut self,
        out: &mut Vec<u8>,
        instructions: &mut Vec<u8>,
        name: &[u8],
        value: &[u8],
        indexing: Indexing,
        may_refer: bool,
        draining: u64,
    ) -> Option<u64> {
        let (of_static, whole) = static_table::find(name, value);
        if let Some(index) = whole
            && indexing != Indexing::Never
        {
            integer::encode_long(out, 0xC0, 6, index);
            return None;
        }
        let added = self.table.added();
        let absolute = |index: Option<usize>| index.map(|index| added - index as u64 - 1);
        let (named, whole) = self.table.find(name, value);
        let (named, whole) = (absolute(named), absolute(whole));
        let can_refer = |absolute: &u64| may_refer && *absolute < self.known && *absolute >= draining;
        if let Some(absolute) = whole.filter(can_refer)
            && indexing != Indexing::Never
        {
            integer::encode_long(out, 0x80, 6, self.known - absolute - 1);
            return Some(absolute);
        }
        let named = named.filter(can_refer);
        if indexing == Indexing::Add && whole.is_none_or(|absolute| absolute < draining) {
            self.insert(instructions, name, value, of_static, whole);
        }
        let never = indexing == Indexing::Never;
        if let Some(index) = of_static {
            integer::encode_long(out, if never { 0x70 } else { 0x50 }, 4, index);
            string::encode(out, 0x00, 7, value);
            return None;
        }
        let Some(absolute) = named else {
            string::encode(out, if never { 0x30 } else { 0x20 }, 3, name);
            string::encode(out, 0x00, 7, value);
            return None;
        };
        integer::encode_long(out, if never { 0x60 } else { 0x40 }, 4, self.known - absolute - 1);
        string::encode(out, 0x00, 7, value);
        Some(absolute)
    }

    /// Add an entry, if there is room for it, and for its instruction (section 4.3).
    fn insert(
        &mut self,
        instructions: &mut Vec<u8>,
        name: &[u8],
        value: &[u8],
        of_static: Option<u64>,
        whole: Option<u64>,
    ) {
        let size = name.len() + value.len() + FIELD_OVERHEAD;
        // A field that fills the table by itself would evict all others.
        if size > self.table.limit() / 2 || instructions.len() > MAX_WAITING {
            return;
        }
        // Sections 2.1.1 and 2.1.3: entries that are needed, or that the client may not have got yet, stay.
        let needed = self.sent.iter().map(|sent| sent.oldest).min().unwrap_or(u64::MAX).min(self.known);
        if self.table.first_behind(size) > needed {
            return;
        }
        let added = self.table.added();
        if let Some(absolute) = whole {
            integer::encode_long(instructions, 0x00, 5, added - absolute - 1);
        } else {
            match of_static {
                Some(index) => integer::encode_long(instructions, 0xC0, 6, index),
                None => string::encode(instructions, 0x40, 5, name),
            }
            string::encode(instructions, 0x00, 7, value);
        }
        self.table.insert(name, value);
    }
}
