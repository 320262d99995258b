//! The dynamic table (RFC 7541 section 2.3.2, RFC 9204 section 3.2): the last fields of a connection, as many as fit.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::fields::FIELD_OVERHEAD;

/// Names one entry for ever: the next one in its place has another number, and so have those of every other table. The
/// slot of an entry can therefore never be found by a number that another connection has given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Number {
    table: u64,
    entry: u64,
}

/// An entry of one of the two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// Of the static one: its index, 1 to 61 for HPACK, 0 to 98 for QPACK.
    Static(u8),
    /// Of the dynamic one.
    Dynamic(Number),
}

/// How many tables there have been.
static TABLES: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
struct Entry<K> {
    /// Where its name begins, counted from the first byte that was ever in the table; its value follows.
    start: usize,
    name: usize,
    value: usize,
    /// The caller's, gone with the entry.
    kept: K,
}

impl<K> Entry<K> {
    const fn size(&self) -> usize {
        self.name + self.value + FIELD_OVERHEAD
    }
}

/// An entry as it is found.
pub(crate) struct Found<'a, K> {
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) number: Number,
    pub(crate) kept: &'a mut K,
}

/// The entries, newest last, each with something of the caller's.
#[derive(Debug)]
pub(crate) struct Table<K> {
    /// Which of all tables it is.
    which: u64,
    entries: VecDeque<Entry<K>>,
    /// Their bytes, oldest first; in front of them there may be some of entries that are gone.
    bytes: Vec<u8>,
    /// How many bytes were in front of these and have been dropped.
    dropped: usize,
    size: usize,
    limit: usize,
    /// The number that the next entry gets.
    next: u64,
}

impl<K: Default> Table<K> {
    pub(crate) fn new(limit: usize) -> Self {
        let which = TABLES.fetch_add(1, Ordering::Relaxed);
        Self { which, entries: VecDeque::new(), bytes: Vec::new(), dropped: 0, size: 0, limit, next: 0 }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes as the RFC counts them (section 4.1).
    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Change how much fits (section 4.3).
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        self.make_room(0);
    }

    /// How many entries were ever added: as long as this and the limit are the same, so is everything in it.
    pub(crate) const fn added(&self) -> u64 {
        self.next
    }

    /// The place of the entry that is so far from the newest, which is 0.
    fn place(&self, index: usize) -> Option<usize> {
        self.entries.len().checked_sub(index.checked_add(1)?)
    }

    /// The name and the value of an entry.
    fn text(&self, index: usize) -> Option<(&[u8], &[u8])> {
        text(&self.bytes, self.dropped, self.entries.get(self.place(index)?)?)
    }

    /// The entry, counted from the newest, which is 0.
    #[inline]
    pub(crate) fn get(&mut self, index: usize) -> Option<Found<'_, K>> {
        let place = self.place(index)?;
        let entry = self.entries.get_mut(place)?;
        let (name, value) = text(&self.bytes, self.dropped, entry)?;
        let number = Number { table: self.which, entry: self.next.wrapping_sub(index as u64 + 1) };
        Some(Found { name, value, number, kept: &mut entry.kept })
    }

    /// The entry that was added as this one of all, the first being 0: QPACK's absolute index (RFC 9204 section 3.2.4).
    #[inline]
    pub(crate) fn at(&mut self, absolute: u64) -> Option<Found<'_, K>> {
        let behind = self.next.checked_sub(absolute)?.checked_sub(1)?;
        self.get(usize::try_from(behind).ok()?)
    }

    /// The absolute index of the oldest entry.
    pub(crate) fn oldest(&self) -> u64 {
        self.next.wrapping_sub(self.entries.len() as u64)
    }

    /// The absolute index of the first entry that stays when the older ones, of `size` bytes at least, make room.
    pub(crate) fn first_behind(&self, size: usize) -> u64 {
        let mut room = self.limit - self.size;
        let gone = self.entries.iter().take_while(|entry| {
            let goes = room < size;
            room += entry.size();
            goes
        });
        self.oldest() + gone.count() as u64
    }

    /// The slot of an entry, if it is still here.
    #[inline]
    pub(crate) fn kept(&mut self, number: Number) -> Option<&mut K> {
        if number.table != self.which {
            return None;
        }
        let age = usize::try_from(self.next.checked_sub(number.entry)?).ok()?;
        let place = self.entries.len().checked_sub(age)?;
        Some(&mut self.entries.get_mut(place)?.kept)
    }

    /// The newest entry with this name, and the newest that is this field.
    pub(crate) fn find(&self, name: &[u8], value: &[u8]) -> (Option<usize>, Option<usize>) {
        let mut first = None;
        for index in 0..self.entries.len() {
            let Some((other, content)) = self.text(index) else { break };
            if other == name {
                first = first.or(Some(index));
                if content == value {
                    return (first, Some(index));
                }
            }
        }
        (first, None)
    }

    /// Add a field; returns its slot, or `None` if it is larger than the table, which is empty then (section 4.4).
    pub(crate) fn insert(&mut self, name: &[u8], value: &[u8]) -> Option<(Number, &mut K)> {
        let size = name.len() + value.len() + FIELD_OVERHEAD;
        self.make_room(size);
        if size > self.limit {
            return None;
        }
        let start = self.dropped.wrapping_add(self.bytes.len());
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.size += size;
        self.entries.push_back(Entry { start, name: name.len(), value: value.len(), kept: K::default() });
        let number = Number { table: self.which, entry: self.next };
        self.next += 1;
        self.entries.back_mut().map(|entry| (number, &mut entry.kept))
    }

    /// Evict until `size` bytes fit.
    fn make_room(&mut self, size: usize) {
        let room = self.limit.saturating_sub(size);
        while self.size > room {
            let Some(entry) = self.entries.pop_front() else { break };
            self.size -= entry.size();
        }
        let dead = self.entries.front().map_or(self.bytes.len(), |entry| entry.start.wrapping_sub(self.dropped));
        // Not each time: moving the live entries should be paid for by the evicted ones.
        if self.entries.is_empty() || dead > self.limit {
            self.bytes.drain(..dead);
            self.dropped = self.dropped.wrapping_add(dead);
        }
    }
}

/// The name and the value of an entry in `bytes`, whose first `dropped` bytes are gone.
fn text<'a, K>(bytes: &'a [u8], dropped: usize, entry: &Entry<K>) -> Option<(&'a [u8], &'a [u8])> {
    let (name, rest) = bytes.get(entry.start.wrapping_sub(dropped)..)?.split_at_checked(entry.name)?;
    Some((name, rest.get(..entry.value)?))
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn the_oldest_give_way_and_numbers_stay_with_their_entries() {
        let mut table = Table::<usize>::new(3 * 40);
        let mut numbers = Vec::new();
        for round in 0..200_u32 {
            let value = format!("{round:04}");
            let (number, kept) = table.insert(b"name", value.as_bytes()).unwrap();
            *kept = numbers.len();
            numbers.push(number);
            assert!(table.size() <= 120 && table.len() == numbers.len().min(3) && table.bytes.len() <= 120 + 24 + 8);
            for index in 0..table.len() {
                let expected = format!("{:04}", round as usize - index);
                let of = numbers[round as usize - index];
                let found = table.get(index).unwrap();
                assert_eq!((found.name, found.value, found.number), (&b"name"[..], expected.as_bytes(), of));
                assert_eq!(numbers[*found.kept], of);
                assert!(table.kept(of).is_some_and(|kept| numbers[*kept] == of));
                assert_eq!(table.find(b"name", expected.as_bytes()), (Some(0), Some(index)));
            }
            assert!(table.get(3).is_none());
            assert!(numbers.len() < 4 || table.kept(numbers[numbers.len() - 4]).is_none());
        }
        assert_eq!((table.find(b"nam", b"e"), table.find(b"name", b"")), ((None, None), (Some(0), None)));
    }

    #[test]
    fn what_is_kept_lives_as_long_as_its_entry_and_only_its_table_has_it() {
        let (mut one, mut other) = (Table::<Option<Rc<()>>>::new(40), Table::<Option<Rc<()>>>::new(40));
        let object = Rc::new(());
        let (number, kept) = one.insert(b"name", b"one").unwrap();
        *kept = Some(object.clone());
        other.insert(b"name", b"two").unwrap();
        assert!(one.kept(number).is_some() && other.kept(number).is_none());
        one.insert(b"name", b"new").unwrap();
        assert_eq!((Rc::strong_count(&object), one.kept(number).is_none()), (1, true));
    }

    /// RFC 7541 sections 4.3 and 4.4
    #[test]
    fn what_does_not_fit_empties_the_table() {
        let mut table = Table::<()>::new(40);
        assert!(table.insert(b"name", b"four").is_some() && table.size() == 40);
        assert!(table.insert(b"name", b"fives").is_none());
        assert_eq!((table.len(), table.size(), table.bytes.len()), (0, 0, 0));
        table.insert(b"name", b"");
        table.set_limit(0);
        assert_eq!((table.len(), table.insert(b"", b"")), (0, None));
        table.set_limit(32);
        assert!(table.insert(b"", b"").is_some() && table.get(usize::MAX).is_none());
    }
}
