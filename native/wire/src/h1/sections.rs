//! Field sections met before, word for word, so that they need not be read again.
//!
//! A client on a kept connection, a load balancer, a service calling another: they send the same fields with every
//! request. What this crate concludes from a field section depends on nothing but its bytes (and the version), so a
//! section that was found plain once is plain again. Only plain ones are kept: no body, no upgrade, no expectation, no
//! close. A section is kept when it comes a second time, so that those which differ every time push nothing out.

use std::cell::Cell;

use crate::fingerprint::fingerprint;

/// Sections kept: as many kinds of client as are busy at one moment; a miss compares with each.
const SLOTS: usize = 8;
/// Longest section kept; longer ones mostly carry something that changes.
const MAX_BYTES: usize = 2048;
/// Fingerprints of sections met once.
const FINGERPRINTS: usize = 64;

/// Names one section uniquely: the next one in its place has another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Number(u64);

impl Number {
    /// The place of the section, which it shares with those before and after it: there are few of them.
    #[inline]
    pub const fn place(self) -> usize {
        self.0 as usize % SLOTS
    }
}

/// A small store of field sections. Its owner keeps what it made of each in the same place, under the same number.
#[derive(Debug)]
pub struct Sections {
    slots: Vec<(Number, Box<[u8]>)>,
    met_once: [u64; FINGERPRINTS],
    /// Where the last one was found, and the number that the next one gets.
    last: Cell<usize>,
    next: u64,
}

impl Default for Sections {
    fn default() -> Self {
        Self::new()
    }
}

impl Sections {
    /// An empty store.
    pub const fn new() -> Self {
        Self { slots: Vec::new(), met_once: [0; FINGERPRINTS], last: Cell::new(0), next: 0 }
    }

    /// The number of the section that `rest` begins with, and its length.
    #[inline]
    pub(crate) fn find(&self, rest: &[u8]) -> Option<(Number, usize)> {
        if let Some((number, section)) = self.slots.get(self.last.get())
            && rest.starts_with(section)
        {
            return Some((*number, section.len()));
        }
        let (number, section) = self.slots.iter().find(|(_, section)| rest.starts_with(section))?;
        self.last.set(number.place());
        Some((*number, section.len()))
    }

    /// Take note of a plain section, its empty line included: its number if it is kept from now on.
    #[inline]
    pub(crate) fn note(&mut self, section: &[u8]) -> Option<Number> {
        if section.len() > MAX_BYTES {
            return None;
        }
        let fingerprint = fingerprint(section);
        let met = self.met_once.get_mut(fingerprint as usize % FINGERPRINTS)?;
        if *met != fingerprint {
            *met = fingerprint;
            return None;
        }
        *met = 0;
        let number = Number(self.next);
        self.next += 1;
        match self.slots.get_mut(number.place()) {
            Some(slot) => *slot = (number, section.into()),
            None => self.slots.push((number, section.into())),
        }
        self.last.set(number.place());
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(number: usize) -> Vec<u8> {
        format!("Host: a{number}\r\n\r\n").into_bytes()
    }

    #[test]
    fn a_section_is_kept_when_it_comes_again() {
        let mut sections = Sections::new();
        assert_eq!(sections.note(&section(1)), None);
        assert_eq!(sections.find(&section(1)), None);
        assert_eq!(sections.note(&section(1)), Some(Number(0)));
        let more = [section(1), b"GET".to_vec()].concat();
        assert_eq!(sections.find(&more), Some((Number(0), section(1).len())));
        assert_eq!(sections.find(&section(2)), None);
        assert_eq!(sections.find(b"Host: a1\r\n"), None);
    }

    #[test]
    fn the_oldest_makes_room_when_all_slots_are_taken() {
        let mut sections = Sections::new();
        for number in 0..=SLOTS {
            sections.note(&section(number));
            assert_eq!(sections.note(&section(number)), Some(Number(number as u64)));
        }
        let last = Number(SLOTS as u64);
        assert_eq!(sections.find(&section(0)), None);
        assert_eq!(sections.find(&section(1)), Some((Number(1), section(1).len())));
        assert_eq!(sections.find(&section(SLOTS)), Some((last, section(SLOTS).len())));
        assert_eq!(last.place(), Number(0).place(), "one place, two numbers");
        assert_eq!(sections.slots.len(), SLOTS);
    }

    #[test]
    fn a_long_section_is_not_kept() {
        let mut sections = Sections::new();
        for (length, kept) in [(MAX_BYTES, true), (MAX_BYTES + 1, false)] {
            let long = vec![b'a'; length];
            sections.note(&long);
            assert_eq!(sections.note(&long).is_some(), kept, "{length}");
        }
    }
}
