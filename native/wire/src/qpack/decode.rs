//! The client's sections, and the entries that they refer to.

use crate::fields::string::{self, Text};
use crate::fields::table::{Found, Key, Number, Table};
use crate::fields::{FIELD_OVERHEAD, Field, Size, integer};
use crate::qpack::{Error, Reason, static_table};

/// A larger scratch is not kept for the next field: each connection has its own.
const MAX_IDLE_SCRATCH: usize = 256;

/// The first byte of the decoder stream: its type (RFC 9204 section 4.2).
const STREAM_TYPE: u8 = 0x3;

/// The result of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// The sink has got the fields.
    Whole(Size),
    /// It needs this number of entries in all, which is more than have come.
    Blocked(u64),
}

/// The effect of an instruction of the encoder stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// Added an entry of this size.
    Entry(usize),
    /// Set the capacity of the table.
    Nothing,
}

/// The beginning of a section (section 4.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Prefix {
    /// How many entries there must have been.
    required: u64,
    /// The absolute index from which relative ones count.
    base: u64,
}

/// Decodes the sections of one connection, and keeps a `K` with each entry for as long as it lives.
#[derive(Debug)]
pub struct Decoder<K = ()> {
    table: Table<K>,
    /// The limit of the table: the `SETTINGS_QPACK_MAX_TABLE_CAPACITY` that was announced.
    most: usize,
    /// How many entries the client knows to have arrived.
    known: u64,
    /// Instructions of the decoder stream that are not written yet.
    out: Vec<u8>,
    /// The strings of one field, if they are not as they were sent.
    scratch: Vec<u8>,
}

impl<K: Default> Decoder<K> {
    /// A decoder for a client that may use a table of `table_size` bytes.
    pub fn new(table_size: usize) -> Self {
        Self { table: Table::new(0), most: table_size, known: 0, out: vec![STREAM_TYPE], scratch: Vec::new() }
    }

    /// The slot of an entry, if that still lives.
    #[inline]
    pub fn kept(&mut self, number: Number) -> Option<&mut K> {
        self.table.kept(number)
    }

    /// How many entries have ever been added.
    #[inline]
    pub fn inserted(&self) -> u64 {
        self.table.added()
    }

    /// The bytes to be written next to the decoder stream: acknowledgements, and how many entries have come beyond those that
    /// were acknowledged with a section (section 4.4).
    pub fn output(&mut self) -> &[u8] {
        let more = self.table.added() - self.known;
        if more > 0 {
            self.known = self.table.added();
            integer::encode_long(&mut self.out, 0x00, 6, more);
        }
        &self.out
    }

    /// The same, without the last.
    pub fn unwritten(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// A stream is read no further, or was reset: sections of it that were not decoded never will be (section 4.4.2).
    pub fn cancel(&mut self, stream: u64) {
        if self.most > 0 {
            integer::encode_long(&mut self.out, 0x40, 6, stream);
        }
    }

    /// Carry out the instruction at the front of `input` (section 4.3): how long it is. `None`: it is incomplete.
    pub fn instruction(&mut self, input: &[u8]) -> Result<Option<(usize, Inserted)>, Error> {
        let mut rest = input;
        match self.instruction_of(&mut rest) {
            Ok(inserted) => Ok(Some((input.len() - rest.len(), inserted))),
            Err(Reason::Truncated) => Ok(None),
            Err(reason) => Err(Error::EncoderStream(reason)),
        }
    }

    fn instruction_of(&mut self, rest: &mut &[u8]) -> Result<Inserted, Reason> {
        let first = *rest.first().ok_or(Reason::Truncated)?;
        if first & 0xE0 == 0x20 {
            let capacity = usize::try_from(integer::decode_long(rest, 5)?).unwrap_or(usize::MAX);
            if capacity > self.most {
                return Err(Reason::TableSize);
            }
            self.table.set_limit(capacity);
            return Ok(Inserted::Nothing);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let (name, value) = if first & 0x80 != 0 {
            let index = integer::decode_long(rest, 6)?;
            let name = if first & 0x40 != 0 {
                Text::Sent(static_table::get(index).ok_or(Reason::Index)?.0)
            } else {
                scratch.extend_from_slice(self.newest(index)?.name);
                Text::Decoded(0, scratch.len())
            };
            (name, self.text(rest, 7, &mut scratch)?)
        } else if first & 0x40 != 0 {
            (self.text(rest, 5, &mut scratch)?, self.text(rest, 7, &mut scratch)?)
        } else {
            let index = integer::decode_long(rest, 5)?;
            let entry = self.newest(index)?;
            scratch.extend_from_slice(entry.name);
            scratch.extend_from_slice(entry.value);
            (Text::Decoded(0, entry.name.len()), Text::Decoded(entry.name.len(), scratch.len()))
        };
        let (name, value) = (name.of(&scratch), value.of(&scratch));
        let size = name.len() + value.len() + FIELD_OVERHEAD;
        if size > self.table.limit() {
            return Err(Reason::EntrySize);
        }
        self.table.insert(name, value);
        if scratch.capacity() <= MAX_IDLE_SCRATCH {
            self.scratch = scratch;
        }
        Ok(Inserted::Entry(size))
    }

    /// A string of an instruction, which must be short enough for the table before all of it has come.
    fn text<'a>(&self, rest: &mut &'a [u8], prefix: u32, scratch: &mut Vec<u8>) -> Result<Text<'a>, Reason> {
        let mut look = *rest;
        let coded = look.first().ok_or(Reason::Truncated)? & (1 << prefix) != 0;
        let length = integer::decode_long(&mut look, prefix)?;
        // A byte takes 30 bits at most, and 5 at least.
        let most = self.table.limit() as u64 * if coded { 4 } else { 1 };
        if length > most {
            return Err(Reason::EntrySize);
        }
        Ok(string::decode(rest, prefix, scratch)?)
    }

    /// The entry that is so far from the newest, which is 0.
    fn newest(&mut self, index: u64) -> Result<Found<'_, K>, Reason> {
        usize::try_from(index).ok().and_then(|index| self.table.get(index)).ok_or(Reason::Index)
    }

    /// Decode a whole section of a stream. `sink` gets the fields in order, as long as they are within `limit` bytes together;
    /// a larger section is not decoded to its end.
    #[inline]
    pub fn decode(
        &mut self,
        stream: u64,
        section: &[u8],
        limit: usize,
        mut sink: impl FnMut(Field<'_, K>),
    ) -> Result<Decoded, Error> {
        let mut rest = section;
        let prefix = self.prefix(&mut rest).map_err(Error::Section)?;
        if prefix.required > self.table.added() {
            return Ok(Decoded::Blocked(prefix.required));
        }
        let mut size = 0;
        while size <= limit
            && let Some(&first) = rest.first()
        {
            let read = self.field(first, &mut rest, prefix, |field| {
                size += field.name.len() + field.value.len() + FIELD_OVERHEAD;
                if size <= limit {
                    sink(field);
                }
            });
            read.map_err(Error::Section)?;
        }
        if prefix.required > 0 {
            self.known = self.known.max(prefix.required);
            integer::encode_long(&mut self.out, 0x80, 7, stream);
        }
        Ok(Decoded::Whole(Size::of(size, limit)))
    }

    /// Section 4.5.1
    #[inline]
    fn prefix(&self, rest: &mut &[u8]) -> Result<Prefix, Reason> {
        let encoded = integer::decode_long(rest, 8)?;
        let negative = rest.first().ok_or(Reason::Truncated)? & 0x80 != 0;
        let delta = integer::decode_long(rest, 7)?;
        let required = if encoded == 0 { 0 } else { self.required(encoded)? };
        let base = if negative {
            required.checked_sub(delta).and_then(|base| base.checked_sub(1)).ok_or(Reason::Prefix)?
        } else {
            required + delta
        };
        Ok(Prefix { required, base })
    }

    /// Section 4.5.1.1
    fn required(&self, encoded: u64) -> Result<u64, Reason> {
        let entries = (self.most / FIELD_OVERHEAD) as u64;
        let range = 2 * entries;
        if encoded > range {
            return Err(Reason::Prefix);
        }
        let most = self.table.added() + entries;
        let wrapped = most / range * range;
        let mut required = wrapped + encoded - 1;
        if required > most {
            required = required.checked_sub(range).ok_or(Reason::Prefix)?;
        }
        if required == 0 { Err(Reason::Prefix) } else { Ok(required) }
    }

    /// Sections 4.5.2 to 4.5.6
    #[inline]
    fn field(
        &mut self,
        first: u8,
        rest: &mut &[u8],
        prefix: Prefix,
        sink: impl FnOnce(Field<'_, K>),
    ) -> Result<(), Reason> {
        if first & 0x80 != 0 {
            let index = integer::decode_long(rest, 6)?;
            if first & 0x40 == 0 {
                return self.indexed(prefix.before(index)?, sink);
            }
            let (name, value) = static_table::get(index).ok_or(Reason::Index)?;
            sink(Field { name, value, whole: Some(Key::Static(index as u8)), kept: None, never_indexed: false });
            return Ok(());
        }
        if first & 0xF0 == 0x10 {
            let index = integer::decode_long(rest, 4)?;
            return self.indexed(prefix.behind(index)?, sink);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let (name, never_indexed) = if first & 0x40 != 0 {
            let index = integer::decode_long(rest, 4)?;
            let name = if first & 0x10 != 0 {
                Text::Sent(static_table::get(index).ok_or(Reason::Index)?.0)
            } else {
                self.name(prefix.before(index)?, &mut scratch)?
            };
            (name, first & 0x20 != 0)
        } else if first & 0x20 != 0 {
            (string::decode(rest, 3, &mut scratch)?, first & 0x10 != 0)
        } else {
            let index = integer::decode_long(rest, 3)?;
            (self.name(prefix.behind(index)?, &mut scratch)?, first & 0x08 != 0)
        };
        let value = string::decode(rest, 7, &mut scratch)?;
        sink(Field { name: name.of(&scratch), value: value.of(&scratch), whole: None, kept: None, never_indexed });
        if scratch.capacity() <= MAX_IDLE_SCRATCH {
            self.scratch = scratch;
        }
        Ok(())
    }

    #[inline]
    fn indexed(&mut self, absolute: u64, sink: impl FnOnce(Field<'_, K>)) -> Result<(), Reason> {
        let Found { name, value, number, kept } = self.table.at(absolute).ok_or(Reason::Index)?;
        sink(Field { name, value, whole: Some(Key::Dynamic(number)), kept: Some(kept), never_indexed: false });
        Ok(())
    }

    fn name(&mut self, absolute: u64, scratch: &mut Vec<u8>) -> Result<Text<'static>, Reason> {
        scratch.extend_from_slice(self.table.at(absolute).ok_or(Reason::Index)?.name);
        Ok(Text::Decoded(0, scratch.len()))
    }
}

impl Prefix {
    /// The absolute index of a relative one (section 3.2.5), which must be of an entry that is required (section 2.2.3).
    #[inline]
    fn before(self, index: u64) -> Result<u64, Reason> {
        let absolute = self.base.checked_sub(index).and_then(|behind| behind.checked_sub(1));
        absolute.filter(|&absolute| absolute < self.required).ok_or(Reason::Index)
    }

    /// That of a post-base one (section 3.2.6).
    #[inline]
    fn behind(self, index: u64) -> Result<u64, Reason> {
        let absolute = self.base.checked_add(index);
        absolute.filter(|&absolute| absolute < self.required).ok_or(Reason::Index)
    }
}
