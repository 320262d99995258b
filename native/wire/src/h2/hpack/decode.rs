//! Header blocks of a client's, decoded.

use crate::fields::string::{self, Text};
use crate::fields::table::{Found, Key, Number, Table};
use crate::fields::{FIELD_OVERHEAD, Field, Size, integer};
use crate::h2::hpack::{Error, static_table};

/// A larger scratch is not kept for the next field: each connection has its own.
const MAX_IDLE_SCRATCH: usize = 256;

/// A block larger than its limit by this factor is not decoded to its end: three bytes can add an entry of 4 KiB, which
/// takes time.
const EXCESS: usize = 8;
/// A lower limit counts as this one there.
const LEAST_LIMIT: usize = 64 * 1024;

/// Decodes the blocks of one connection, in order, and keeps a `K` with each entry for as long as it lives.
#[derive(Debug)]
pub struct Decoder<K = ()> {
    table: Table<K>,
    /// The limit of the table: the `SETTINGS_HEADER_TABLE_SIZE` that was announced.
    most: usize,
    /// The strings of one field, if they are not as they were sent.
    scratch: Vec<u8>,
}

impl<K: Default> Decoder<K> {
    /// A decoder for a client that may use a table of `table_size` bytes; [`TABLE_SIZE`](crate::h2::hpack::TABLE_SIZE)
    /// without a setting.
    pub fn new(table_size: usize) -> Self {
        Self { table: Table::new(table_size), most: table_size, scratch: Vec::new() }
    }

    /// The slot of an entry, if that still lives.
    #[inline]
    pub fn kept(&mut self, number: Number) -> Option<&mut K> {
        self.table.kept(number)
    }

    /// Decode a whole block. `sink` gets the fields in order, as long as they are within `limit` bytes together. A
    /// slightly larger block is decoded to its end, for the table's sake; a far larger one is an error.
    pub fn decode(&mut self, block: &[u8], limit: usize, mut sink: impl FnMut(Field<'_, K>)) -> Result<Size, Error> {
        let (mut rest, mut size, mut begun) = (block, 0, false);
        let most = limit.max(LEAST_LIMIT).saturating_mul(EXCESS);
        while let Some(&first) = rest.first() {
            if first & 0xE0 == 0x20 {
                if begun {
                    return Err(Error::TableSize);
                }
                self.resize(integer::decode(&mut rest, 5)?)?;
                continue;
            }
            begun = true;
            self.field(first, &mut rest, |field| {
                size += field.name.len() + field.value.len() + FIELD_OVERHEAD;
                if size <= limit {
                    sink(field);
                }
            })?;
            if size > most {
                return Err(Error::Bomb);
            }
        }
        Ok(Size::of(size, limit))
    }

    /// A dynamic table size update (section 6.3).
    fn resize(&mut self, size: usize) -> Result<(), Error> {
        if size > self.most {
            return Err(Error::TableSize);
        }
        self.table.set_limit(size);
        Ok(())
    }

    fn field(&mut self, first: u8, rest: &mut &[u8], sink: impl FnOnce(Field<'_, K>)) -> Result<(), Error> {
        if first & 0x80 != 0 {
            let index = integer::decode(rest, 7)?;
            if let Some((name, value)) = static_table::get(index) {
                let whole = Some(Key::Static(index as u8));
                sink(Field { name, value, whole, kept: None, never_indexed: false });
                return Ok(());
            }
            let Found { name, value, number, kept } = self.entry(index)?;
            sink(Field { name, value, whole: Some(Key::Dynamic(number)), kept: Some(kept), never_indexed: false });
            return Ok(());
        }
        let (adds, never_indexed) = (first & 0x40 != 0, first & 0xF0 == 0x10);
        let index = integer::decode(rest, if adds { 6 } else { 4 })?;
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let name = if index == 0 {
            string::decode(rest, 7, &mut scratch)?
        } else if let Some((name, _)) = static_table::get(index) {
            Text::Sent(name)
        } else {
            // The entry may give way to the field that is named after it (section 4.4).
            scratch.extend_from_slice(self.entry(index)?.name);
            Text::Decoded(0, scratch.len())
        };
        let value = string::decode(rest, 7, &mut scratch)?;
        let (name, value) = (name.of(&scratch), value.of(&scratch));
        let (whole, kept) = match if adds { self.table.insert(name, value) } else { None } {
            Some((number, kept)) => (Some(Key::Dynamic(number)), Some(kept)),
            None => (None, None),
        };
        sink(Field { name, value, whole, kept, never_indexed });
        if scratch.capacity() <= MAX_IDLE_SCRATCH {
            self.scratch = scratch;
        }
        Ok(())
    }

    /// The entry of the dynamic table with an index in both (section 2.3.3).
    #[inline]
    fn entry(&mut self, index: usize) -> Result<Found<'_, K>, Error> {
        let behind = index.checked_sub(static_table::FIELDS.len() + 1).ok_or(Error::Index)?;
        self.table.get(behind).ok_or(Error::Index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::{Indexing, Section};
    use crate::h2::hpack::{Encoder, TABLE_SIZE};

    type Fields = Vec<(String, String)>;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<_> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
        digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
    }

    fn fields(text: &[(&str, &str)]) -> Fields {
        text.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn decoded(decoder: &mut Decoder<usize>, block: &[u8], limit: usize) -> Result<(Fields, Size), Error> {
        let mut found = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let size = decoder.decode(block, limit, |field| found.push((text(field.name), text(field.value))))?;
        Ok((found, size))
    }

    /// RFC 7541 appendix C.2
    #[test]
    fn each_representation() {
        for (block, name, value, size, never) in [
            (
                "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
                "custom-key",
                "custom-header",
                55,
                false,
            ),
            ("040c 2f73 616d 706c 652f 7061 7468", ":path", "/sample/path", 0, false),
            ("1008 7061 7373 776f 7264 0673 6563 7265 74", "password", "secret", 0, true),
            ("82", ":method", "GET", 0, false),
        ] {
            let (mut decoder, mut count) = (Decoder::<()>::new(TABLE_SIZE), 0);
            let total = decoder.decode(&hex(block), 1000, |field| {
                count += 1;
                assert_eq!((field.name, field.value), (name.as_bytes(), value.as_bytes()));
                assert_eq!(field.never_indexed, never);
                assert_eq!(field.whole.is_some(), block == "82" || size > 0);
            });
            assert_eq!((count, total), (1, Ok(Size::Within(name.len() + value.len() + 32))));
            assert_eq!(decoder.table.size(), size);
        }
    }

    const AUTHORITY: (&str, &str) = (":authority", "www.example.com");
    const REQUESTS: [&[(&str, &str)]; 3] = [
        &[(":method", "GET"), (":scheme", "http"), (":path", "/"), AUTHORITY],
        &[(":method", "GET"), (":scheme", "http"), (":path", "/"), AUTHORITY, ("cache-control", "no-cache")],
        &[
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/index.html"),
            AUTHORITY,
            ("custom-key", "custom-value"),
        ],
    ];
    const LOCATION: (&str, &str) = ("location", "https://www.example.com");
    const RESPONSES: [&[(&str, &str)]; 3] = [
        &[(":status", "302"), ("cache-control", "private"), ("date", "Mon, 21 Oct 2013 20:13:21 GMT"), LOCATION],
        &[(":status", "307"), ("cache-control", "private"), ("date", "Mon, 21 Oct 2013 20:13:21 GMT"), LOCATION],
        &[
            (":status", "200"),
            ("cache-control", "private"),
            ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
            LOCATION,
            ("content-encoding", "gzip"),
            ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
        ],
    ];

    /// RFC 7541 appendices C.3 to C.6
    #[test]
    fn connections_with_a_table() {
        let plain_requests = [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ];
        let coded_requests = [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ];
        let plain_responses = [
            "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 \
             474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "4803 3330 37c1 c0bf",
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 \
             666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 \
             3630 303b 2076 6572 7369 6f6e 3d31",
        ];
        let coded_responses = [
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 \
             63c7 8f0b 97c8 e9ae 82ae 43d3",
            "4883 640e ffc1 c0bf",
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 \
             b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
        ];
        for (blocks, lists, table_size, sizes, coded) in [
            (plain_requests, REQUESTS, TABLE_SIZE, [57, 110, 164], false),
            (coded_requests, REQUESTS, TABLE_SIZE, [57, 110, 164], true),
            (plain_responses, RESPONSES, 256, [222, 222, 215], false),
            (coded_responses, RESPONSES, 256, [222, 222, 215], true),
        ] {
            let (mut decoder, mut encoder) = (Decoder::<usize>::new(table_size), Encoder::new());
            encoder.set_limit(table_size);
            encoder.begin(&mut Vec::new());
            for ((block, list), size) in blocks.iter().zip(lists).zip(sizes) {
                let total = list.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
                let block = hex(block);
                assert_eq!(decoded(&mut decoder, &block, total), Ok((fields(list), Size::Within(total))));
                assert_eq!(decoder.table.size(), size);
                let mut out = Vec::new();
                encoder.begin(&mut out);
                for (name, value) in list {
                    encoder.field(&mut out, name.as_bytes(), value.as_bytes(), Indexing::Add);
                }
                // The examples also use Huffman codes that save nothing.
                assert!(!coded || out == block || (list[0].1 == "307" && out.len() == block.len()), "{out:x?}");
            }
        }
    }

    #[test]
    fn a_field_that_comes_again_has_the_same_key_and_what_is_kept_with_it() {
        let mut decoder = Decoder::<usize>::new(TABLE_SIZE);
        let mut found = Vec::new();
        // Added, then twice by its index; named after it; and after another was added, by its new index.
        decoder
            .decode(&hex("4001 6101 62 be be 0f2f 0163 4001 7801 79 bf"), 1000, |field| {
                let kept = field.kept.map(|kept| {
                    *kept += 1;
                    *kept
                });
                found.push((field.whole, kept));
            })
            .unwrap();
        let first = found[0].0;
        let Some(Key::Dynamic(number)) = first else { panic!("{first:?}") };
        assert_eq!(found[..4], [(first, Some(1)), (first, Some(2)), (first, Some(3)), (None, None)]);
        assert!(found[4].0 != first && found[4].1 == Some(1));
        assert_eq!((found[5], decoder.kept(number)), ((first, Some(4)), Some(&mut 4)));
        assert_eq!(Decoder::<usize>::new(TABLE_SIZE).kept(number), None);
    }

    /// RFC 7541 section 4.4
    #[test]
    fn a_name_may_push_its_own_entry_out() {
        let mut decoder = Decoder::<usize>::new(40);
        assert!(decoded(&mut decoder, &hex("4004 6e61 6d65 0161"), 100).is_ok());
        let (found, _) = decoded(&mut decoder, &hex("7e 0162"), 100).unwrap();
        assert_eq!(found, fields(&[("name", "b")]));
        let (found, _) = decoded(&mut decoder, &hex("7e 0a62626262626262626262"), 100).unwrap();
        assert_eq!(found, fields(&[("name", "bbbbbbbbbb")]));
        assert_eq!(decoded(&mut decoder, &hex("be"), 100), Err(Error::Index));
    }

    #[test]
    fn the_limit_is_on_what_is_decoded_and_leaves_the_table_in_step() {
        let mut decoder = Decoder::<usize>::new(TABLE_SIZE);
        let block = hex("4001 6101 62 be be 4001 7801 79");
        let (found, size) = decoded(&mut decoder, &block, 2 * 34).unwrap();
        assert_eq!((found, size), (fields(&[("a", "b"), ("a", "b")]), Size::Over));
        let (found, size) = decoded(&mut decoder, &hex("bf be"), 2 * 34).unwrap();
        assert_eq!((found, size), (fields(&[("a", "b"), ("x", "y")]), Size::Within(68)));
        // A short one behind one that is too long is not given out either.
        let (found, size) = decoded(&mut decoder, &hex("0001 6103 626262 bf"), 34).unwrap();
        assert_eq!((found, size), (vec![], Size::Over));
    }

    #[test]
    fn what_cannot_be_decoded_is_an_error() {
        for (block, error) in [
            ("80", Error::Index),
            ("be", Error::Index),
            ("7e 0161", Error::Index),
            ("ff80 8080 8000", Error::Integer),
            ("40", Error::Truncated),
            ("4001", Error::Truncated),
            ("4001 61", Error::Truncated),
            ("4001 6102 62", Error::Truncated),
            ("ff", Error::Truncated),
            ("0001 6181 00", Error::Huffman),
            ("3fe2 1f", Error::TableSize),
            ("82 20", Error::TableSize),
        ] {
            assert_eq!(decoded(&mut Decoder::<usize>::new(TABLE_SIZE), &hex(block), 1000), Err(error), "{block}");
        }
    }

    /// H4: by adding entries that are named after a long one, time and memory are made of nothing.
    #[test]
    fn a_block_that_is_far_too_large_is_not_decoded_to_its_end() {
        let name = [hex("40 7f a1 1e"), vec![b'a'; 4000], hex("00")].concat();
        let mut decoder = Decoder::<usize>::new(TABLE_SIZE);
        let mut count = 0;
        let block = [name, hex("7e 00").repeat(200)].concat();
        let result = decoder.decode(&block, 5000, |_| count += 1);
        assert_eq!((result, count), (Err(Error::Bomb), 1));
        assert_eq!(EXCESS * LEAST_LIMIT / 4032, 130); // of the two hundred
        let block = [hex("40 0161 00"), hex("7e 00").repeat(200)].concat();
        assert_eq!(Decoder::<usize>::new(TABLE_SIZE).decode(&block, 5000, |_| {}), Ok(Size::Over));
    }

    /// RFC 7541 section 4.2
    #[test]
    fn the_table_changes_its_size_in_front_of_fields() {
        let (mut decoder, mut encoder) = (Decoder::<usize>::new(TABLE_SIZE), Encoder::new());
        let mut exchange = |limits: &[usize], prefix: &str| {
            for &limit in limits {
                encoder.set_limit(limit);
            }
            let mut out = Vec::new();
            encoder.begin(&mut out);
            assert_eq!(out, hex(prefix));
            encoder.field(&mut out, b"name", b"value", Indexing::Add);
            let (found, _) = decoded(&mut decoder, &out, 100).unwrap();
            assert_eq!(found, fields(&[("name", "value")]));
            (out.len() - hex(prefix).len(), decoder.table.limit(), decoder.table.size())
        };
        let whole = exchange(&[], "").0;
        assert_eq!(exchange(&[TABLE_SIZE], ""), (1, TABLE_SIZE, 41));
        assert_eq!(exchange(&[1 << 20], ""), (1, TABLE_SIZE, 41));
        assert_eq!(exchange(&[100], "3f45"), (1, 100, 41));
        assert_eq!(exchange(&[0, 100], "20 3f45"), (whole, 100, 41));
        assert_eq!(exchange(&[0], "20"), (whole, 0, 0));
        assert_eq!(exchange(&[50, 4096], "3f13 3fe1 1f"), (whole, 4096, 41));
    }

    /// RFC 7541 section 7.1.3
    #[test]
    fn what_is_secret_is_never_in_a_table() {
        let (mut decoder, mut encoder) = (Decoder::<usize>::new(TABLE_SIZE), Encoder::new());
        for (indexing, never) in [(Indexing::Never, true), (Indexing::Without, false), (Indexing::Never, true)] {
            let mut out = Vec::new();
            encoder.field(&mut out, b"set-cookie", b"a=b", indexing);
            decoder
                .decode(&out, 1000, |field| {
                    assert_eq!((field.never_indexed, field.whole, field.value), (never, None, &b"a=b"[..]));
                })
                .unwrap();
        }
        // Nor is it referred to if another field has put it there.
        let mut out = Vec::new();
        encoder.field(&mut out, b"set-cookie", b"a=b", Indexing::Add);
        encoder.field(&mut out, b"set-cookie", b"a=b", Indexing::Never);
        let mut flags = Vec::new();
        decoder.decode(&out, 1000, |field| flags.push(field.never_indexed)).unwrap();
        assert_eq!(flags, [false, true]);
    }

    #[test]
    fn a_section_that_comes_again_is_encoded_once() {
        let (mut decoder, mut encoder) = (Decoder::new(TABLE_SIZE), Encoder::new());
        let mut section = |pairs: &[(&str, &str)], indexing| {
            let (mut section, mut out) = (Section::default(), Vec::new());
            for (name, value) in pairs {
                section.push(name.as_bytes(), value.as_bytes(), indexing);
            }
            encoder.block(&mut out, &section);
            assert_eq!(decoded(&mut decoder, &out, 1000).unwrap().0, fields(pairs));
            (out.len(), encoder.has_block_of(&section))
        };
        let one = [("server", "us"), ("date", "today")];
        assert_eq!(section(&one, Indexing::Add), (10, false));
        assert_eq!(section(&one, Indexing::Add), (2, true));
        assert_eq!(section(&one, Indexing::Add), (2, true));
        assert_eq!(section(&[("server", "us"), ("date", "later")], Indexing::Add), (7, false));
        // The entries have moved on, so the block that is kept no longer matches the section.
        assert_eq!(section(&one, Indexing::Add), (2, true));
        assert!(section(&[("date", "never")], Indexing::Without).1);
        assert_eq!(section(&one, Indexing::Add), (2, true));
        let long = "a".repeat(MAX_LONG);
        assert!(!section(&[("date", &long)], Indexing::Without).1);
    }

    /// More than is kept of a section.
    const MAX_LONG: usize = 600;

    #[test]
    fn what_would_fill_the_table_is_not_put_there() {
        let (mut decoder, mut encoder) = (Decoder::<usize>::new(TABLE_SIZE), Encoder::new());
        for (length, added) in [(2048 - 32 - 4, true), (2048 - 32 - 3, false)] {
            let mut out = Vec::new();
            encoder.field(&mut out, b"name", &vec![b'a'; length], Indexing::Add);
            decoder.decode(&out, 10_000, |field| assert_eq!(field.whole.is_some(), added)).unwrap();
        }
    }
}
