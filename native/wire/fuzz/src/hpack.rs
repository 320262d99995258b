//! HPACK: any block is decoded or refused within bounds, and every encoded block decodes again, in any state of the
//! tables.

use wire::h2::hpack::{Decoder, Encoder, FIELD_OVERHEAD, Field, Indexing, Key, Size, TABLE_SIZE};

use super::fingerprint;

type Pair = (Vec<u8>, Vec<u8>);

/// Check that the slot of an entry belongs to its field, for ever.
fn check(field: Field<'_, Option<Pair>>, pair: &Pair) {
    assert_eq!(field.kept.is_some(), matches!(field.whole, Some(Key::Dynamic(_))));
    if let Some(kept) = field.kept {
        assert_eq!(kept.get_or_insert_with(|| pair.clone()), pair);
    }
}

/// The first two bytes say how large the table may be and where to cut; the rest are blocks, and fields.
pub fn h2_hpack(data: &[u8]) -> u64 {
    let [control, cut, rest @ ..] = data else { return 0 };
    fingerprint(&(decode_any(*control, *cut, rest), round_trip(*control, rest)))
}

fn decode_any(control: u8, cut: u8, data: &[u8]) -> u64 {
    let (table_size, limit) = (usize::from(control) * 16, usize::from(cut) * 8);
    let (mut decoder, mut again) = (Decoder::new(table_size), Decoder::<()>::new(table_size));
    let mut outcome = Vec::new();
    for block in data.chunks(1 + usize::from(cut)) {
        let (mut size, mut fields) = (0, Vec::new());
        let result = decoder.decode(block, limit, |field| {
            let pair = (field.name.to_vec(), field.value.to_vec());
            size += pair.0.len() + pair.1.len() + FIELD_OVERHEAD;
            assert!(field.whole.is_none() || !field.never_indexed);
            check(field, &pair);
            fields.push(pair);
        });
        assert!(size <= limit);
        assert!(result.is_err() || result == Ok(Size::Over) || result == Ok(Size::Within(size)));
        // With a larger limit it is the same, and more of it.
        let mut count = 0;
        let unlimited = again.decode(block, usize::MAX, |field| {
            if let Some((name, value)) = fields.get(count) {
                assert_eq!((field.name, field.value), (name.as_slice(), value.as_slice()));
            }
            count += 1;
        });
        assert_eq!(result.is_err(), unlimited.is_err());
        assert!(result != Ok(Size::Within(size)) || count == fields.len());
        outcome.push(fingerprint(&(result.err(), result == Ok(Size::Over), fields.len().min(4))));
        if result.is_err() {
            break;
        }
    }
    fingerprint(&outcome)
}

fn round_trip(control: u8, mut rest: &[u8]) -> u64 {
    const NAMES: [&[u8]; 6] = [b":status", b"content-type", b"x-a", b"set-cookie", b"", b"x-long-name-of-a-field"];
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(TABLE_SIZE));
    let mut blocks = Vec::new();
    while let [head, behind @ ..] = rest {
        let (piece, behind) = behind.split_at(behind.len().min(usize::from(head >> 2 & 31)));
        rest = behind;
        if head & 3 == 3 {
            encoder.set_limit(usize::from(control) * usize::from(head >> 2));
            continue;
        }
        let mut expected: Vec<(Pair, bool)> = Vec::new();
        let mut block = Vec::new();
        encoder.begin(&mut block);
        for value in piece.split(|&byte| byte == b',') {
            let name = NAMES[value.len() % NAMES.len()];
            let value = value.repeat(1 + usize::from(head >> 7) * 9);
            let indexing = [Indexing::Add, Indexing::Without, Indexing::Never][usize::from(head & 3)];
            encoder.field(&mut block, name, &value, indexing);
            expected.push(((name.to_vec(), value), indexing == Indexing::Never));
        }
        let mut found = Vec::new();
        let size = decoder
            .decode(&block, usize::MAX, |field| {
                let pair = (field.name.to_vec(), field.value.to_vec());
                found.push((pair.clone(), field.never_indexed));
                check(field, &pair);
            })
            .unwrap();
        let sum: usize = found.iter().map(|((name, value), _)| name.len() + value.len() + FIELD_OVERHEAD).sum();
        assert_eq!(size, Size::Within(sum));
        assert_eq!(found, expected);
        blocks.push((block.len().checked_ilog2(), found.len()));
    }
    fingerprint(&blocks)
}
