//! The streams of a connection (RFC 9113 section 5.1).
//!
//! ```text
//!                  HEADERS                       both halves have ended, or a reset
//!   idle ───────────────────────────▶ live ────────────────────────────────────────▶ gone ── release ──▶ free
//!                                      │
//!          remote:  Open ─▶ Ended      │ local:  Awaiting ─▶ Body ─▶ Ended
//!                     └──▶ Dropped     │
//! ```
//!
//! A live stream is known by its number on the wire and by its place here; a gone one only by its place, which the
//! caller still has. So requests whose applications have not noticed yet that they were reset count as well, and no
//! number of resets makes more of them than there may be. Of closed streams only the numbers of the last few are kept,
//! and of those that the server has reset, whose clients may not know it yet.

use std::collections::VecDeque;

use crate::error::AppError;
use crate::fields::Section;
use crate::fields::body::Expected;
use crate::fields::response::{self, Kind, Promised};
use crate::h2::flow::{Incoming, Outgoing};
use crate::priority::{Turns, Waits};

/// The largest number of a stream.
pub(crate) const MAX_NUMBER: u32 = (1 << 31) - 1;
/// Numbers of streams that were reset here, at most: more than one budget allows.
const MAX_RESET: usize = 256;
/// Numbers of streams that have ended: they only make an error say more.
const ENDED: usize = 8;
/// The number of places that a connection without streams keeps.
const KEPT_PLACES: usize = 8;

/// Names one stream uniquely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId {
    number: u32,
    place: u32,
}

impl StreamId {
    /// Its number on the wire.
    pub const fn number(self) -> u32 {
        self.number
    }

    /// A small number that no other stream has until it is released: less than
    /// [`streams`](crate::h2::Settings::streams).
    pub const fn place(self) -> usize {
        self.place as usize
    }
}

/// A response head for a stream of HTTP/2.
pub type ResponseHead = response::ResponseHead<StreamId>;

/// The client's half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remote {
    /// A body comes.
    Open(Expected),
    /// Further input is thrown away.
    Dropped,
    Ended,
}

/// The server's half.
#[derive(Debug)]
pub(crate) enum Local {
    Awaiting,
    Body(Sending),
    Ended,
}

/// A response body on its way.
#[derive(Debug)]
pub(crate) struct Sending {
    promised: Promised,
    /// Bytes that the caller has and that are not sent.
    pub(crate) waiting: usize,
    pub(crate) then: Then,
}

/// The frame after the waiting part of the body.
#[derive(Debug)]
pub(crate) enum Then {
    More,
    End,
    Trailers(Box<Section>),
}

impl Sending {
    pub(crate) const fn new(declared: Option<u64>) -> Self {
        Self { promised: Promised::new(declared), waiting: 0, then: Then::More }
    }

    /// Whether `length` bytes more can be the last ones.
    pub(crate) fn check_end(&self, length: usize) -> Result<(), AppError> {
        self.promised.check_end(length)
    }

    /// The application gives `length` bytes more, the last ones if `last`.
    pub(crate) fn give(&mut self, length: usize, last: bool) -> Result<(), AppError> {
        if !matches!(self.then, Then::More) {
            return Err(AppError::State);
        }
        self.promised.give(length, last)?;
        self.waiting = self.waiting.saturating_add(length);
        if last {
            self.then = Then::End;
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) remote: Remote,
    pub(crate) local: Local,
    pub(crate) incoming: Incoming,
    pub(crate) outgoing: Outgoing,
    pub(crate) waits: Waits,
    /// The properties of the request that the response depends on.
    pub(crate) kind: Kind,
    /// The request was refused: its response gives nothing back to the budget.
    pub(crate) refused: bool,
}

impl Stream {
    /// Bytes that could be sent now, if the connection let them.
    #[inline]
    pub(crate) fn ready(&self) -> usize {
        match &self.local {
            Local::Body(sending) => sending.waiting.min(self.outgoing.room()),
            Local::Awaiting | Local::Ended => 0,
        }
    }

    /// Let it have turns while it has something to send, and may.
    #[inline]
    pub(crate) fn regulate(&mut self, turns: &mut Turns, id: StreamId) {
        if self.ready() > 0 {
            turns.enter(&mut self.waits, id.place);
        } else {
            turns.leave(&mut self.waits);
        }
    }
}

#[derive(Debug)]
enum Entry {
    Free,
    Live(u32, Stream),
    Gone(u32),
}

/// The state of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// No stream yet.
    Idle,
    Live(StreamId),
    /// Reset here: the client may not know.
    Reset,
    /// It has ended.
    Ended,
    /// It is over, or can never exist.
    Closed,
}

#[derive(Debug, Default)]
pub(crate) struct Streams {
    places: Vec<Entry>,
    free: Vec<u32>,
    /// Numbers and places of those that are live: numbers only grow, so this is sorted.
    live: VecDeque<(u32, u32)>,
    /// The highest number so far.
    last: u32,
    reset: VecDeque<u32>,
    ended: [u32; ENDED],
}

impl Streams {
    /// The streams that the caller has not released.
    pub(crate) fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether none is live.
    pub(crate) fn is_idle(&self) -> bool {
        self.live.is_empty()
    }

    /// The highest number so far.
    pub(crate) const fn last(&self) -> u32 {
        self.last
    }

    #[inline]
    fn index(&self, number: u32) -> Option<usize> {
        if self.live.back().is_some_and(|&(last, _)| last == number) {
            return Some(self.live.len() - 1);
        }
        self.live.binary_search_by_key(&number, |&(number, _)| number).ok()
    }

    #[inline]
    pub(crate) fn find(&self, number: u32) -> Found {
        if number > self.last || number.is_multiple_of(2) {
            return Found::Idle;
        }
        match self.index(number).and_then(|index| self.live.get(index)) {
            Some(&(number, place)) => Found::Live(StreamId { number, place }),
            None if self.reset.contains(&number) => Found::Reset,
            None if self.ended.contains(&number) => Found::Ended,
            None => Found::Closed,
        }
    }

    /// A number was used without opening a stream.
    pub(crate) fn refuse(&mut self, number: u32) {
        self.last = number;
        self.remember_reset(number);
    }

    /// A new stream: its number is higher than all before.
    #[inline]
    pub(crate) fn open(&mut self, number: u32, stream: Stream) -> StreamId {
        debug_assert!(number > self.last);
        self.last = number;
        let new = Entry::Live(number, stream);
        let place = self.free.pop().unwrap_or(self.places.len() as u32);
        match self.places.get_mut(place as usize) {
            Some(free) => *free = new,
            None => self.places.push(new),
        }
        self.live.push_back((number, place));
        StreamId { number, place }
    }

    #[inline]
    pub(crate) fn get(&self, id: StreamId) -> Option<&Stream> {
        match self.places.get(id.place as usize) {
            Some(Entry::Live(number, stream)) if *number == id.number => Some(stream),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        match self.places.get_mut(id.place as usize) {
            Some(Entry::Live(number, stream)) if *number == id.number => Some(stream),
            _ => None,
        }
    }

    /// The oldest that is live.
    pub(crate) fn first(&self) -> Option<StreamId> {
        self.live.front().map(|&(number, place)| StreamId { number, place })
    }

    /// The live stream at a place.
    #[inline]
    pub(crate) fn at(&mut self, place: u32) -> Option<(StreamId, &mut Stream)> {
        match self.places.get_mut(place as usize) {
            Some(Entry::Live(number, stream)) => Some((StreamId { number: *number, place }, stream)),
            _ => None,
        }
    }

    /// All that are live.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = (StreamId, &mut Stream)> {
        self.places.iter_mut().zip(0..).filter_map(|(entry, place)| match entry {
            Entry::Live(number, stream) => Some((StreamId { number: *number, place }, stream)),
            _ => None,
        })
    }

    /// A live stream is over on the wire; it was reset here if `reset`.
    pub(crate) fn close(&mut self, id: StreamId, reset: bool) -> Option<Stream> {
        let entry = self.places.get_mut(id.place as usize)?;
        if !matches!(entry, Entry::Live(number, _) if *number == id.number) {
            return None;
        }
        let Entry::Live(_, stream) = std::mem::replace(entry, Entry::Gone(id.number)) else { return None };
        if let Some(index) = self.index(id.number) {
            self.live.remove(index);
        }
        if reset {
            self.remember_reset(id.number);
        } else {
            self.ended.rotate_right(1);
            if let Some(first) = self.ended.first_mut() {
                *first = id.number;
            }
        }
        Some(stream)
    }

    /// The caller releases a stream that is over.
    #[inline]
    pub(crate) fn release(&mut self, id: StreamId) {
        let Some(entry) = self.places.get_mut(id.place as usize) else { return };
        if !matches!(entry, Entry::Gone(number) if *number == id.number) {
            return;
        }
        *entry = Entry::Free;
        self.free.push(id.place);
        if self.free.len() == self.places.len() && self.places.len() > KEPT_PLACES {
            (self.places, self.free, self.live) = (Vec::new(), Vec::new(), VecDeque::new());
        }
    }

    fn remember_reset(&mut self, number: u32) {
        if self.reset.len() == MAX_RESET {
            self.reset.pop_front();
        }
        self.reset.push_back(number);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn stream() -> Stream {
        Stream {
            remote: Remote::Ended,
            local: Local::Awaiting,
            incoming: Incoming::new(10),
            outgoing: Outgoing::new(10),
            waits: Waits::default(),
            kind: Kind::Request,
            refused: false,
        }
    }

    /// RFC 9113 sections 5.1 and 5.1.1
    #[test]
    fn a_number_is_idle_then_live_then_closed() {
        let mut streams = Streams::default();
        assert_eq!(
            (streams.find(1), streams.find(2), streams.find(MAX_NUMBER)),
            (Found::Idle, Found::Idle, Found::Idle)
        );
        let id = streams.open(5, stream());
        assert_eq!((streams.find(5), streams.find(3), streams.find(7)), (Found::Live(id), Found::Closed, Found::Idle));
        assert!(streams.close(id, false).is_some() && streams.close(id, false).is_none());
        assert_eq!((streams.find(5), streams.is_idle(), streams.count()), (Found::Ended, true, 1));
        let other = streams.open(7, stream());
        assert!(other.place() != id.place() && streams.get(id).is_none() && streams.get(other).is_some());
        streams.refuse(9);
        streams.close(other, true);
        assert_eq!((streams.find(7), streams.find(9), streams.last()), (Found::Reset, Found::Reset, 9));
    }

    /// H1: a stream that was reset and is still served counts
    #[test]
    fn a_place_is_used_again_when_it_was_released_and_no_sooner() {
        let mut streams = Streams::default();
        let first = streams.open(1, stream());
        streams.release(first); // not yet
        assert!(streams.get(first).is_some());
        streams.close(first, true);
        let second = streams.open(3, stream());
        assert_eq!((second.place(), streams.count()), (1, 2));
        streams.release(first);
        streams.release(first);
        let third = streams.open(5, stream());
        assert_eq!((third.place(), streams.count()), (0, 2));
        streams.release(first); // another stream has its place
        assert!(streams.get(third).is_some() && streams.get(first).is_none());
    }

    #[test]
    fn of_what_is_over_little_is_kept() {
        let mut streams = Streams::default();
        for round in 0..100_000 {
            let id = streams.open(round * 2 + 1, stream());
            streams.close(id, round % 2 == 0);
            streams.release(id);
        }
        assert_eq!((streams.places.len(), streams.reset.len(), streams.live.len()), (1, MAX_RESET, 0));
        let all: Vec<_> = (0..100).map(|round| streams.open(200_001 + round * 2, stream())).collect();
        assert!(all.iter().all(|id| streams.find(id.number()) == Found::Live(*id)));
        for id in all {
            streams.close(id, false);
            streams.release(id);
        }
        assert_eq!((streams.places.capacity(), streams.live.capacity(), streams.count()), (0, 0, 0));
    }

    #[test]
    fn a_body_is_as_long_as_was_declared() {
        let mut sending = Sending::new(Some(5));
        assert_eq!(sending.give(6, false), Err(AppError::TooLong));
        assert_eq!(sending.give(4, true), Err(AppError::TooShort));
        assert_eq!((sending.give(4, false), sending.give(1, true)), (Ok(()), Ok(())));
        assert_eq!((sending.give(0, true), sending.waiting), (Err(AppError::State), 5));
    }
}
