//! The dynamic table (RFC 7541 section 2.3.2): the last fields of a connection, as many as fit.

use std::collections::VecDeque;

use crate::h2::hpack::FIELD_OVERHEAD;

/// Names one entry for ever: the next one in its place has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Number(u64);

impl Number {
    /// The place of the entry among `places`, which it shares with those before and after it. A table never has more
    /// entries at a time than its size divided by [`FIELD_OVERHEAD`].
    #[inline]
    pub const fn place(self, places: usize) -> usize {
        if places == 0 { 0 } else { (self.0 % places as u64) as usize }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Where its name begins, counted from the first byte that was ever in the table; its value follows.
    start: usize,
    name: usize,
    value: usize,
}

impl Entry {
    const fn size(self) -> usize {
        self.name + self.value + FIELD_OVERHEAD
    }
}

/// The entries, newest last.
#[derive(Debug)]
pub(crate) struct Table {
    entries: VecDeque<Entry>,
    /// Their bytes, oldest first; in front of them there may be some of entries that are gone.
    bytes: Vec<u8>,
    /// How many bytes were in front of these and have been dropped.
    dropped: usize,
    size: usize,
    limit: usize,
    /// The number that the next entry gets.
    next: u64,
}

impl Table {
    pub(crate) const fn new(limit: usize) -> Self {
        Self { entries: VecDeque::new(), bytes: Vec::new(), dropped: 0, size: 0, limit, next: 0 }
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

    /// The entry, counted from the newest, which is 0.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<(&[u8], &[u8], Number)> {
        let place = self.entries.len().checked_sub(index.checked_add(1)?)?;
        let entry = *self.entries.get(place)?;
        let start = entry.start.wrapping_sub(self.dropped);
        let (name, rest) = self.bytes.get(start..)?.split_at_checked(entry.name)?;
        Some((name, rest.get(..entry.value)?, Number(self.next.wrapping_sub(index as u64 + 1))))
    }

    /// The newest entry with this name, and the newest that is this field.
    pub(crate) fn find(&self, name: &[u8], value: &[u8]) -> (Option<usize>, Option<usize>) {
        let mut first = None;
        for index in 0..self.entries.len() {
            let Some((other, content, _)) = self.get(index) else { break };
            if other == name {
                first = first.or(Some(index));
                if content == value {
                    return (first, Some(index));
                }
            }
        }
        (first, None)
    }

    /// Add a field; `None` if it is larger than the table, which is empty then (section 4.4).
    pub(crate) fn insert(&mut self, name: &[u8], value: &[u8]) -> Option<Number> {
        let entry = Entry { start: self.dropped.wrapping_add(self.bytes.len()), name: name.len(), value: value.len() };
        self.make_room(entry.size());
        if entry.size() > self.limit {
            return None;
        }
        let entry = Entry { start: self.dropped.wrapping_add(self.bytes.len()), ..entry };
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.size += entry.size();
        self.entries.push_back(entry);
        let number = Number(self.next);
        self.next += 1;
        Some(number)
    }

    /// Evict until so many bytes fit.
    fn make_room(&mut self, size: usize) {
        let room = self.limit.saturating_sub(size);
        while self.size > room {
            let Some(entry) = self.entries.pop_front() else { break };
            self.size -= entry.size();
        }
        let dead = self.entries.front().map_or(self.bytes.len(), |entry| entry.start.wrapping_sub(self.dropped));
        // Not each time: moving what is alive should be paid for by what is dead.
        if self.entries.is_empty() || dead > self.limit {
            self.bytes.drain(..dead);
            self.dropped = self.dropped.wrapping_add(dead);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_give_way_and_numbers_stay_with_their_entries() {
        let mut table = Table::new(3 * 40);
        let mut numbers = Vec::new();
        for round in 0..200_u32 {
            let value = format!("{round:04}");
            let number = table.insert(b"name", value.as_bytes()).unwrap();
            numbers.push(number);
            assert!(table.size() <= 120 && table.len() == numbers.len().min(3) && table.bytes.len() <= 120 + 24 + 8);
            for index in 0..table.len() {
                let expected = format!("{:04}", round as usize - index);
                let of = numbers[round as usize - index];
                assert_eq!(table.get(index), Some((&b"name"[..], expected.as_bytes(), of)));
                assert_eq!(table.find(b"name", expected.as_bytes()), (Some(0), Some(index)));
            }
            assert_eq!(table.get(3), None);
        }
        assert_ne!(numbers[0], numbers[3]);
        assert_eq!(numbers[0].place(3), numbers[3].place(3));
        assert_eq!(numbers[0].place(0), 0);
        assert_eq!((table.find(b"nam", b"e"), table.find(b"name", b"")), ((None, None), (Some(0), None)));
    }

    /// RFC 7541 sections 4.3 and 4.4
    #[test]
    fn what_does_not_fit_empties_the_table() {
        let mut table = Table::new(40);
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
