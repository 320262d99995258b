//! The sections of a client's, decoded: of a request, and of trailers.

use crate::fields::request::{Fault, Reader, Rules, Slot, TrailerReader};
use crate::fields::{Head, Key, Kind};
use crate::h2::hpack::{Decoder, Error, Size, static_table};
use crate::limits::Limits;

/// Read the section of a request into `head`, which is empty. The inner result is that of the request; the outer one ends the
/// connection.
pub(crate) fn read<K>(
    decoder: &mut Decoder<Slot<K>>,
    block: &[u8],
    head: &mut Head,
    rules: Rules<'_>,
) -> Result<Result<(), Fault>, Error> {
    let mut reader = Reader::new(head, rules.limits);
    let size = decoder.decode(block, rules.size, |field| {
        let kind = match (field.kept, field.whole) {
            (Some(slot), _) => *slot.kind.get_or_insert_with(|| Kind::of(field.name, field.value)),
            (None, Some(Key::Static(index))) => static_table::kind(index),
            (None, _) => Kind::of(field.name, field.value),
        };
        reader.field(kind, field.name, field.value, field.whole);
    })?;
    Ok(reader.end(size == Size::Over, rules))
}

/// Read a trailer section.
pub(crate) fn read_trailers<K>(
    decoder: &mut Decoder<Slot<K>>,
    block: &[u8],
    limits: &Limits,
) -> Result<Result<(), Fault>, Error> {
    let mut reader = TrailerReader::default();
    let size = decoder.decode(block, limits.trailers, |field| reader.field(Kind::of(field.name, field.value)))?;
    Ok(reader.end(size == Size::Over, limits))
}

#[cfg(test)]
mod tests;
