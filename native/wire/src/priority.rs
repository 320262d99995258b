//! Who is served first (RFC 9218): the more urgent, and among equals each in its turn.
//!
//! ```text
//!   urgency 0   ─▶ a ─▶ b ─▶ c ─┐     first() is the one of the most urgent that has had least
//!      …           ▲             │     served(): an incremental stream goes behind the others after one slice,
//!   urgency 7      └─────────────┘               another after a few, but for the first time
//! ```
//!
//! A stream's share is the number of the byte that its turn begins with, as all of its urgency count them (start-time
//! fair queueing): a stream that is new, or has sent little, begins where the others are now, and so in front of those
//! that were served. So a small response, or a message, leaves at once however many large ones are on their way; and
//! always having just a little more gains nothing.
//!
//! The RFC would have a response that is not incremental sent as a whole before the next of its urgency. Most clients say
//! nothing, and would have a small answer wait for a large download, so here such a one has only longer turns.

use std::collections::BTreeSet;

use crate::headers::members;

/// The client's wishes for a response.
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

/// Bytes that a stream has in one turn if it is not incremental.
const TURN: u64 = 64 * 1024;

/// How many urgencies there are.
const URGENCIES: usize = 8;

/// The turn of a stream among those that could send something now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    urgency: u8,
    /// The number of its first byte.
    start: u64,
    /// Since when it waits.
    since: u64,
    place: u32,
}

/// Those that could send something now, by the places of their streams.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    waiting: BTreeSet<Turn>,
    next: u64,
    /// With which byte the turn begins that was served last, of each urgency.
    now: [u64; URGENCIES],
}

/// A stream's place among the turns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    pub(crate) priority: Priority,
    turn: Option<Turn>,
    /// Bytes in this turn.
    sent: u64,
    /// The number of the byte behind its last turn.
    end: u64,
}

impl Waits {
    pub(crate) fn new(priority: Priority) -> Self {
        Self { priority, ..Self::default() }
    }

    pub(crate) const fn is_waiting(&self) -> bool {
        self.turn.is_some()
    }
}

impl Turns {
    /// The stream at `place` can send something: it queues behind those with a smaller or equal share, unless it waits
    /// already.
    #[inline]
    pub(crate) fn enter(&mut self, waits: &mut Waits, place: u32) {
        if waits.turn.is_none() {
            let urgency = waits.priority.urgency;
            let start = self.now(urgency).max(waits.end);
            let turn = Turn { urgency, start, since: self.next, place };
            self.next += 1;
            self.waiting.insert(turn);
            waits.turn = Some(turn);
            waits.sent = 0;
        }
    }

    fn now(&self, urgency: u8) -> u64 {
        self.now.get(usize::from(urgency)).copied().unwrap_or_default()
    }

    /// It has nothing to send any longer.
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

    /// It has sent a slice of `length` bytes, and has `more`.
    pub(crate) fn served(&mut self, waits: &mut Waits, length: usize, more: bool) {
        let Some(turn) = waits.turn else { return };
        if let Some(now) = self.now.get_mut(usize::from(turn.urgency)) {
            *now = turn.start;
        }
        let is_first = waits.end == 0;
        waits.sent += length as u64;
        if more && !is_first && !waits.priority.incremental && waits.sent < TURN {
            return;
        }
        waits.end = turn.start + waits.sent;
        self.leave(waits);
        if more {
            self.enter(waits, turn.place);
        }
    }

    /// The client wants it at another time.
    pub(crate) fn change(&mut self, waits: &mut Waits, priority: Priority, place: u32) {
        let waiting = waits.is_waiting();
        self.leave(waits);
        if priority.urgency != waits.priority.urgency {
            // Those of another count for themselves.
            waits.end = 0;
        }
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

    const SLICE: usize = 16 * 1024;

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
                turns.served(&mut all[place as usize], SLICE, true);
                place
            })
            .collect()
    }

    #[test]
    fn equals_take_turns_and_the_urgent_go_first() {
        assert_eq!(served(&[(3, true), (3, true), (3, true)], 7), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(served(&[(3, false), (3, false)], 11), [0, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0]);
        assert_eq!(served(&[(3, false), (3, true), (3, true)], 13), [0, 1, 2, 0, 0, 0, 0, 1, 2, 1, 2, 1, 2]);
        assert_eq!(served(&[(5, true), (1, true), (0, false), (1, true)], 5), [2, 2, 2, 2, 2]);
        assert_eq!(served(&[(5, true), (1, true), (1, true)], 4), [1, 2, 1, 2]);
    }

    #[test]
    fn who_has_had_little_goes_before_its_equals() {
        let (mut turns, mut small) = (Turns::default(), Waits::default());
        let mut large = Waits::new(Priority { incremental: true, ..Priority::default() });
        turns.enter(&mut large, 1);
        for _ in 0..100 {
            turns.served(&mut large, SLICE, true);
        }
        for _ in 0..10 {
            turns.enter(&mut small, 2);
            assert_eq!(turns.first(), Some(2));
            turns.served(&mut small, 100, false);
            assert_eq!(turns.first(), Some(1));
            turns.served(&mut large, SLICE, true);
        }
        // Urgency comes before that.
        turns.change(&mut large, Priority { urgency: 2, incremental: false }, 1);
        turns.enter(&mut small, 2);
        assert_eq!(turns.first(), Some(1));
    }

    #[test]
    fn who_always_has_a_little_more_has_no_more_than_its_share() {
        let mut turns = Turns::default();
        let mut all = [Waits::default(); 4];
        let mut sent = [0; 4];
        for (waits, place) in all.iter_mut().zip(0..) {
            turns.enter(waits, place);
        }
        for _ in 0..4000 {
            let place = turns.first().unwrap() as usize;
            sent[place] += SLICE;
            // One of them has nothing left after each slice, and has the next at once.
            turns.served(&mut all[place], SLICE, place != 0);
            turns.enter(&mut all[place], place as u32);
        }
        assert!(sent.iter().all(|&sent| sent.abs_diff(1000 * SLICE) <= 4 * SLICE), "{sent:?}");
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
