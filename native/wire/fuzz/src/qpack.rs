//! QPACK: any bytes are decoded or refused within bounds; and in whatever order a client gets and acknowledges the encoder's
//! output, every section decodes to its fields, and is never blocked.

use std::collections::VecDeque;

use wire::qpack::{Decoded, Decoder, Encoder, FIELD_OVERHEAD, Field, Indexing, Inserted, Key, Section, Size};

use super::fingerprint;

type Pair = (Vec<u8>, Vec<u8>);

/// Check that the slot of an entry belongs to its field, for ever.
fn check(field: Field<'_, Option<Pair>>, pair: &Pair) {
    assert_eq!(field.kept.is_some(), matches!(field.whole, Some(Key::Dynamic(_))));
    if let Some(kept) = field.kept {
        assert_eq!(kept.get_or_insert_with(|| pair.clone()), pair);
    }
}

/// The first two bytes say how large the table may be and where to cut; the rest are sections, instructions, and fields.
pub fn h3_qpack(data: &[u8]) -> u64 {
    let [control, cut, rest @ ..] = data else { return 0 };
    fingerprint(&(decode_any(*control, *cut, rest), any_order(*control, *cut, rest), acknowledge_any(*control, rest)))
}

/// Instructions and sections in turns.
fn decode_any(control: u8, cut: u8, data: &[u8]) -> u64 {
    let (table_size, limit) = (usize::from(control) * 16, usize::from(cut) * 8);
    let mut decoder = Decoder::new(table_size);
    let mut outcome = Vec::new();
    for (turn, block) in data.chunks(1 + usize::from(cut & 63)).enumerate() {
        if turn % 2 == 0 {
            let (mut rest, mut count) = (block, 0);
            loop {
                match decoder.instruction(rest) {
                    Ok(Some((length, Inserted::Entry(size)))) => {
                        assert!(size <= table_size && length > 0);
                        rest = &rest[length..];
                    }
                    Ok(Some((length, Inserted::Nothing))) => rest = &rest[length..],
                    Ok(None) => break,
                    Err(error) => return fingerprint(&(outcome, error)),
                }
                count += 1;
            }
            outcome.push((rest.len().min(2), count));
            continue;
        }
        let mut size = 0;
        let result = decoder.decode(4, block, limit, |field| {
            let pair = (field.name.to_vec(), field.value.to_vec());
            size += pair.0.len() + pair.1.len() + FIELD_OVERHEAD;
            assert!(field.whole.is_none() || !field.never_indexed);
            check(field, &pair);
        });
        assert!(size <= limit);
        match result {
            Ok(Decoded::Whole(Size::Within(found))) => assert_eq!(found, size),
            Ok(Decoded::Blocked(required)) => assert!(required > decoder.inserted()),
            Ok(Decoded::Whole(Size::Over)) => {}
            Err(error) => return fingerprint(&(outcome, error)),
        }
        outcome.push((size.min(200), usize::from(decoder.inserted() > 0)));
    }
    fingerprint(&outcome)
}

/// A decoder stream that says anything.
fn acknowledge_any(control: u8, mut data: &[u8]) -> u64 {
    let (mut encoder, mut instructions, mut section) = (Encoder::new(256), Vec::new(), Section::default());
    encoder.set_limit(u64::from(control) * 8, &mut instructions);
    let mut count = 0;
    loop {
        section.clear();
        section.push(b"x-a", &[b'a'; 20][..usize::from(control & 15)], Indexing::Add);
        section.push(b"server", b"b", Indexing::Add);
        encoder.section(4, &section, &mut Vec::new(), &mut instructions);
        match encoder.instruction(data) {
            Ok(Some((length, _))) => data = &data[length..],
            Ok(None) => return fingerprint(&(count, data.len().min(2))),
            Err(error) => return fingerprint(&(count, error)),
        }
        count += 1;
    }
}

/// A section on its way, and what it must become.
struct OnTheWay {
    stream: u64,
    bytes: Vec<u8>,
    fields: Vec<(Pair, bool)>,
}

/// Each byte is a step of the server's or its client's.
fn any_order(control: u8, limit: u8, steps: &[u8]) -> u64 {
    const NAMES: [&[u8]; 6] =
        [b":status", b"content-type", b"x-a", b"set-cookie", b"server", b"x-long-name-of-a-field"];
    let most = usize::from(control & 15) * 40;
    let (mut encoder, mut decoder) = (Encoder::new(most), Decoder::new(usize::from(limit) * 3));
    let (mut instructions, mut acknowledgements) = (Vec::new(), Vec::new());
    encoder.set_limit(u64::from(limit) * 3, &mut instructions);
    let (mut sections, mut next, mut outcome) = (VecDeque::<OnTheWay>::new(), 0, Vec::new());
    let mut at = 0;
    // The decoder stream begins with its type.
    let mut skipped = false;
    let mut steps = steps.iter().copied();
    let mut last: Option<(Section, Vec<(Pair, bool)>)> = None;
    while let Some(step) = steps.next() {
        match step & 7 {
            // A section, perhaps the same again.
            0..3 => {
                let (section, fields) = match last.take() {
                    Some(same) if step & 8 != 0 => same,
                    _ => {
                        let (mut section, mut fields) = (Section::default(), Vec::new());
                        for _ in 0..step >> 6 {
                            let what = steps.next().unwrap_or_default();
                            let name = NAMES[usize::from(what % 6)];
                            let value = vec![b'a' + (what >> 4); usize::from(what >> 3 & 7) * 5];
                            let indexing = [Indexing::Add, Indexing::Add, Indexing::Without, Indexing::Never];
                            let indexing = indexing[usize::from(what >> 6)];
                            section.push(name, &value, indexing);
                            fields.push(((name.to_vec(), value), indexing == Indexing::Never));
                        }
                        (section, fields)
                    }
                };
                let mut bytes = Vec::new();
                encoder.section(next, &section, &mut bytes, &mut instructions);
                outcome.push(bytes.len().min(100));
                sections.push_back(OnTheWay { stream: next, bytes, fields: fields.clone() });
                last = Some((section, fields));
                next += 4 * u64::from(step >> 4 & 1);
            }
            // Some bytes of the encoder stream arrive.
            3 => {
                let end = instructions.len().min(at + usize::from(step >> 3));
                while let Some((length, _)) = decoder.instruction(&instructions[at..end]).unwrap() {
                    at += length;
                }
            }
            // A section arrives, out of order unless it is of the same stream as one before it.
            4 => {
                let place = usize::from(step >> 3) % sections.len().max(1);
                let stream = sections.get(place).map(|section| section.stream);
                let place = sections.iter().position(|section| Some(section.stream) == stream);
                if let Some(section) = place.and_then(|place| sections.remove(place)) {
                    read(&mut decoder, &section);
                }
            }
            // All of a stream is given up.
            5 => {
                let place = usize::from(step >> 3) % sections.len().max(1);
                if let Some(stream) = sections.get(place).map(|section| section.stream) {
                    sections.retain(|section| section.stream != stream);
                    decoder.cancel(stream);
                    next = next.max(stream + 4);
                }
            }
            // Acknowledgements arrive.
            _ => {
                acknowledgements.extend_from_slice(&decoder.output()[usize::from(!skipped)..]);
                skipped = true;
                decoder.unwritten().clear();
                let most = acknowledgements.len().min(usize::from(step >> 3));
                let mut used = 0;
                while let Some((length, _)) = encoder.instruction(&acknowledgements[used..most]).unwrap() {
                    used += length;
                }
                acknowledgements.drain(..used);
            }
        }
    }
    for section in sections {
        read(&mut decoder, &section);
    }
    fingerprint(&outcome)
}

/// Every section can be read as soon as it arrives.
fn read(decoder: &mut Decoder<Option<Pair>>, section: &OnTheWay) {
    let mut found = Vec::new();
    let decoded = decoder.decode(section.stream, &section.bytes, usize::MAX, |field| {
        let pair = (field.name.to_vec(), field.value.to_vec());
        found.push((pair.clone(), field.never_indexed));
        check(field, &pair);
    });
    assert!(matches!(decoded, Ok(Decoded::Whole(_))), "{decoded:?}");
    assert_eq!(found, section.fields);
}
