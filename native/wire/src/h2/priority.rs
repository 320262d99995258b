//! Who is served first (RFC 9218): the more urgent, and among equals each in its turn.
//!
//! ```text
//!   urgency 0   ─▶ a ─▶ b ─▶ c ─┐     first() is the longest-waiting of the most urgent
//!      …           ▲             │     served(): an incremental stream stands behind the others after one slice,
//!   urgency 7      └─────────────┘               another after a few
//! ```
//!
//! The RFC would have a response that is not incremental sent as a whole before the next of its urgency. Most clients say
//! nothing, and would have a small answer wait for a large download, so here such a one has only longer turns.

use std::collections::BTreeSet;

use crate::headers::members;

/// What a client wants of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// 0, the most urgent, to 7.
    pub urgency: u8,
    /// Parts of it are of use, so that it can be sent together with others.
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Self { urgency: 3, incremental: false }
    }
}

impl Priority {
    /// Read a field value (section 4): a dictionary (RFC 8941 section 3.2), of which unknown members, and values that are not
    /// of their type or out of range, mean nothing.
    pub fn parse(value: &[u8]) -> Self {
        let mut priority = Self::default();
        for member in members(value) {
            let member = member.split(|&byte| byte == b';').next().unwrap_or_default();
            match member {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.incremental = true,
                b"i=?0" => priority.incremental = false,
                _ => {}
            }
        }
        priority
    }
}

/// Slices that a stream has in one turn if it is not incremental.
const SLICES: u8 = 4;

/// The turn of a stream among those that could send something now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    urgency: u8,
    /// Since when it waits.
    since: u64,
    place: u32,
}

/// Those that could send something now, by the places of their streams.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    waiting: BTreeSet<Turn>,
    next: u64,
}

/// What a stream has to know of its turns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    pub(crate) priority: Priority,
    turn: Option<Turn>,
    slices: u8,
}

impl Waits {
    pub(crate) fn new(priority: Priority) -> Self {
        Self { priority, turn: None, slices: 0 }
    }

    pub(crate) const fn is_waiting(&self) -> bool {
        self.turn.is_some()
    }
}

impl Turns {
    /// The stream at `place` can send something: it stands behind the others, unless it waits already.
    #[inline]
    pub(crate) fn enter(&mut self, waits: &mut Waits, place: u32) {
        if waits.turn.is_none() {
            let turn = Turn { urgency: waits.priority.urgency, since: self.next, place };
            self.next += 1;
            self.waiting.insert(turn);
            waits.turn = Some(turn);
            waits.slices = 0;
        }
    }

    /// It cannot send any more.
    #[inline]
    pub(crate) fn leave(&mut self, waits: &mut Waits) {
        if let Some(turn) = waits.turn.take() {
            self.waiting.remove(&turn);
        }
    }

    /// Whose turn it is.
    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        self.waiting.first().map(|turn| turn.place)
    }

    /// It has sent a slice, and has more.
    pub(crate) fn served(&mut self, waits: &mut Waits, place: u32) {
        waits.slices += 1;
        if waits.priority.incremental || waits.slices >= SLICES {
            self.leave(waits);
            self.enter(waits, place);
        }
    }

    /// The client wants it at another time.
    pub(crate) fn change(&mut self, waits: &mut Waits, priority: Priority, place: u32) {
        let waiting = waits.is_waiting();
        self.leave(waits);
        waits.priority = priority;
        if waiting {
            self.enter(waits, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_is_read_from_its_field() {
        for (text, urgency, incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7, i", 7, true),
            ("i=?1,u=2", 2, true),
            ("i, i=?0", 3, false),
            ("u=1;x=2, y=\"u=5\"", 1, false),
            ("u=8", 3, false),
            ("u=-1, i=1", 3, false),
            ("u=5, u=9", 5, false),
            (" u=4 ", 4, false),
        ] {
            assert_eq!(Priority::parse(text.as_bytes()), Priority { urgency, incremental }, "{text}");
        }
    }

    fn served(priorities: &[(u8, bool)], slices: usize) -> Vec<u32> {
        let mut turns = Turns::default();
        let mut all: Vec<_> =
            priorities.iter().map(|&(urgency, incremental)| Waits::new(Priority { urgency, incremental })).collect();
        for (waits, place) in all.iter_mut().zip(0..) {
            turns.enter(waits, place);
            turns.enter(waits, place);
        }
        (0..slices)
            .map(|_| {
                let place = turns.first().unwrap();
                turns.served(&mut all[place as usize], place);
                place
            })
            .collect()
    }

    #[test]
    fn equals_take_turns_and_the_urgent_go_first() {
        assert_eq!(served(&[(3, true), (3, true), (3, true)], 7), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(served(&[(3, false), (3, false)], 9), [0, 0, 0, 0, 1, 1, 1, 1, 0]);
        assert_eq!(served(&[(3, false), (3, true), (3, true)], 8), [0, 0, 0, 0, 1, 2, 0, 0]);
        assert_eq!(served(&[(5, true), (1, true), (0, false), (1, true)], 5), [2, 2, 2, 2, 2]);
        assert_eq!(served(&[(5, true), (1, true), (1, true)], 4), [1, 2, 1, 2]);
    }

    #[test]
    fn who_leaves_or_changes_is_found_where_it_stands() {
        let (mut turns, mut one, mut two) = (Turns::default(), Waits::default(), Waits::default());
        turns.enter(&mut one, 1);
        turns.enter(&mut two, 2);
        turns.change(&mut two, Priority { urgency: 0, incremental: false }, 2);
        assert_eq!(turns.first(), Some(2));
        turns.leave(&mut two);
        turns.change(&mut two, Priority::default(), 2);
        assert_eq!((turns.first(), two.is_waiting()), (Some(1), false));
        turns.leave(&mut one);
        turns.leave(&mut one);
        assert_eq!((turns.first(), turns.waiting.len()), (None, 0));
    }
}
