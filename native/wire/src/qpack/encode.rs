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

impl References {
    const NONE: Self = Self { oldest: u64::MAX, required: 0 };

    fn add(&mut self, absolute: u64) {
        self.oldest = self.oldest.min(absolute);
        self.required = self.required.max(absolute + 1);
    }
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
    /// Of the section that is being encoded: what it refers to, and whether a field could not be added for want of room.
    references: References,
    lacks_room: bool,
}

/// The rules for all fields of a section.
#[derive(Clone, Copy, Debug)]
struct Rules {
    may_refer: bool,
    /// Entries before this one are not referred to.
    draining: u64,
}

impl Encoder {
    /// An encoder that uses a table of `most` bytes, as soon as the client allows one.
    pub fn new(most: usize) -> Self {
        Self {
            table: Table::new(0),
            most,
            entries: 0,
            known: 0,
            sent: VecDeque::new(),
            last: None,
            references: References::NONE,
            lacks_room: false,
        }
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

    /// Append a whole section of a stream to `out`, and new entries to `instructions`. Servers repeat themselves:
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
        (self.references, self.lacks_room) = (References::NONE, false);
        let rules = Rules { may_refer, draining: self.table.first_behind(self.table.limit() / 4) };
        for (name, value, indexing) in section.iter() {
            self.field(out, instructions, (name, value), indexing, rules);
        }
        let references = self.references;
        self.put_prefix(out, start, references.required);
        self.note(stream, references);
        // A field that was just added is encoded as an index later, and one that was not may be added then.
        if added == self.table.added() && !self.lacks_room && may_refer && section.length() <= MAX_LAST {
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

    /// Append a field.
    fn field(
        &mut self,
        out: &mut Vec<u8>,
        instructions: &mut Vec<u8>,
        (name, value): (&[u8], &[u8]),
        indexing: Indexing,
        rules: Rules,
    ) {
        let (of_static, whole) = static_table::find(name, value);
        if let Some(index) = whole
            && indexing != Indexing::Never
        {
            integer::encode_long(out, 0xC0, 6, index);
            return;
        }
        let added = self.table.added();
        let absolute = |index: Option<usize>| index.map(|index| added - index as u64 - 1);
        let (named, whole) = self.table.find(name, value);
        let (named, whole) = (absolute(named), absolute(whole));
        let known = self.known;
        let can_refer = |absolute: &u64| rules.may_refer && *absolute < known && *absolute >= rules.draining;
        if let Some(absolute) = whole.filter(can_refer)
            && indexing != Indexing::Never
        {
            self.references.add(absolute);
            integer::encode_long(out, 0x80, 6, known - absolute - 1);
            return;
        }
        let never = if indexing == Indexing::Never { 0x20 } else { 0x00 };
        if let Some(index) = of_static {
            integer::encode_long(out, 0x50 | never, 4, index);
        } else if let Some(absolute) = named.filter(can_refer) {
            self.references.add(absolute);
            integer::encode_long(out, 0x40 | never, 4, known - absolute - 1);
        } else {
            string::encode(out, 0x20 | never >> 1, 3, name);
        }
        string::encode(out, 0x00, 7, value);
        if indexing == Indexing::Add && whole.is_none_or(|absolute| absolute < rules.draining) {
            self.insert(instructions, name, value, of_static, whole);
        }
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
        if size > self.table.limit() / 2 {
            return;
        }
        // Sections 2.1.1 and 2.1.3: entries that are needed, or that the client may not have got yet, stay.
        let needed = self.sent.iter().map(|sent| sent.oldest).min().unwrap_or(u64::MAX);
        let needed = needed.min(self.references.oldest).min(self.known);
        if instructions.len() > MAX_WAITING || self.table.first_behind(size) > needed {
            self.lacks_room = true;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// An encoder with a table of 4 KiB, and its instructions.
    fn with_table() -> (Encoder, Vec<u8>) {
        let (mut encoder, mut instructions) = (Encoder::new(4096), Vec::new());
        encoder.set_limit(1 << 20, &mut instructions);
        assert_eq!(instructions, b"\x3f\xe1\x1f");
        instructions.clear();
        (encoder, instructions)
    }

    fn section(encoder: &mut Encoder, stream: u64, value: &[u8], instructions: &mut Vec<u8>) -> Vec<u8> {
        let (mut section, mut out) = (Section::default(), Vec::new());
        section.push(b":status", b"200", Indexing::Add);
        section.push(b"server", value, Indexing::Add);
        section.push(b"x-other", b"", Indexing::Without);
        encoder.section(stream, &section, &mut out, instructions);
        out
    }

    const LITERAL: &[u8] = b"\0\0\xd9\x5f\x4d\x01!\x2d\xf2\xb1\xd3\x39\x6c\0";
    const REFERENCE: &[u8] = b"\x02\0\xd9\x80\x2d\xf2\xb1\xd3\x39\x6c\0";

    /// RFC 9204 section 2.1.2
    #[test]
    fn a_field_is_a_literal_until_the_client_has_its_entry() {
        let (mut encoder, mut instructions) = with_table();
        for stream in [0, 4, 8] {
            assert_eq!(section(&mut encoder, stream, b"!", &mut instructions), LITERAL);
            assert_eq!(instructions, b"\xff\x1d\x01!");
        }
        assert_eq!(encoder.instruction(b"\x01"), Ok(Some((1, true))));
        for stream in [12, 16] {
            assert_eq!(section(&mut encoder, stream, b"!", &mut instructions), REFERENCE);
        }
        assert_eq!((instructions.len(), encoder.sent.len()), (4, 2));
        // Acknowledged, cancelled, and neither of them again.
        assert_eq!(encoder.instruction(b"\x90"), Ok(Some((1, true))));
        assert_eq!(encoder.instruction(b"\x4c"), Ok(Some((1, true))));
        assert_eq!(encoder.instruction(b"\x4c"), Ok(Some((1, false))));
        assert!(encoder.instruction(b"\x90").is_err() && encoder.sent.is_empty());
    }

    #[test]
    fn a_client_that_acknowledges_no_section_gets_literals() {
        let (mut encoder, mut instructions) = with_table();
        section(&mut encoder, 0, b"!", &mut instructions);
        encoder.instruction(b"\x01").unwrap();
        let count =
            (1..1000).take_while(|&round| section(&mut encoder, round * 4, b"!", &mut Vec::new())[0] != 0).count();
        assert_eq!((count, encoder.sent.len()), (MAX_UNACKNOWLEDGED, MAX_UNACKNOWLEDGED));
        encoder.instruction(b"\x84").unwrap();
        assert_eq!(section(&mut encoder, 8000, b"!", &mut instructions)[0], 2);
    }

    /// RFC 9204 sections 2.1.1 and 2.1.3
    #[test]
    fn an_entry_that_is_needed_is_not_evicted() {
        let (mut encoder, mut instructions) = (Encoder::new(160), Vec::new());
        encoder.set_limit(160, &mut instructions);
        for value in [&b"one"[..], b"two", b"three"] {
            section(&mut encoder, 0, value, &mut instructions);
        }
        assert_eq!((encoder.table.added(), encoder.table.oldest()), (3, 0));
        // Not before the client has them.
        section(&mut encoder, 0, b"four", &mut instructions);
        assert_eq!(encoder.table.added(), 3);
        encoder.instruction(b"\x03").unwrap();
        assert_eq!(section(&mut encoder, 4, b"two", &mut instructions)[0], 3);
        section(&mut encoder, 0, b"four", &mut instructions);
        section(&mut encoder, 0, b"five", &mut instructions);
        assert_eq!((encoder.table.added(), encoder.table.oldest()), (4, 1));
        // The section that needs the second one is read.
        encoder.instruction(b"\x84").unwrap();
        encoder.instruction(b"\x01").unwrap();
        section(&mut encoder, 0, b"five", &mut instructions);
        assert_eq!((encoder.table.added(), encoder.table.oldest()), (5, 2));
    }
}
