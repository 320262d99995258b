//! The request streams of a connection. Their order and their numbers are QUIC's; here each has a place, which it keeps until
//! it is released.

use std::mem;

use crate::fields::body::Expected;
use crate::fields::response::{self, Kind, Promised};
use crate::priority::Waits;

/// The number of places that a connection without streams keeps: a client with a few requests at a time is without any
/// between two turns.
const KEPT_PLACES: usize = 16;

/// Names one request stream uniquely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId {
    number: u64,
    place: u32,
}

impl StreamId {
    /// Its number in QUIC: a multiple of 4.
    pub const fn number(self) -> u64 {
        self.number
    }

    /// A small number that no other stream has until it is released: less than
    /// [`streams`](crate::h3::Settings::streams).
    pub const fn place(self) -> usize {
        self.place as usize
    }
}

/// A response head for a stream of HTTP/3.
pub type ResponseHead = response::ResponseHead<StreamId>;

/// The client's half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remote {
    /// No request has come yet.
    Head,
    /// A body comes.
    Open(Expected),
    /// Trailers have come, and nothing may follow them.
    Trailers,
    /// Further input is thrown away.
    Dropped,
    Ended,
}

/// The server's half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Local {
    Awaiting,
    Body(Promised),
    /// All of the response was appended to the output.
    Ended,
    /// And written.
    Complete,
}

/// The meaning of the next bytes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The head of a frame, of which some bytes may be held.
    Frame,
    /// The payload of a `HEADERS` frame of this length, of which some bytes may be held.
    Section(usize),
    /// A whole section is held, and waits for entries of the client's table.
    Blocked,
    /// This many bytes of a `DATA` frame.
    Data(u64),
    /// This many bytes of a frame that means nothing.
    Skip(u64),
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) reading: Reading,
    /// The beginning of something that is incomplete.
    pub(crate) held: Vec<u8>,
    pub(crate) remote: Remote,
    pub(crate) local: Local,
    pub(crate) waits: Waits,
    pub(crate) kind: Kind,
    /// The request was refused: its response gives nothing back to the budget.
    pub(crate) refused: bool,
}

impl Stream {
    fn new() -> Self {
        Self {
            reading: Reading::Frame,
            held: Vec::new(),
            remote: Remote::Head,
            local: Local::Awaiting,
            waits: Waits::default(),
            kind: Kind::Request,
            refused: false,
        }
    }
}

#[derive(Debug)]
enum Entry {
    Free,
    Live(u64, Stream),
    Gone(u64),
}

#[derive(Debug, Default)]
pub(crate) struct Streams {
    places: Vec<Entry>,
    free: Vec<u32>,
    live: usize,
}

impl Streams {
    /// The streams that the caller has not released.
    pub(crate) fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether none is live.
    pub(crate) const fn is_idle(&self) -> bool {
        self.live == 0
    }

    #[inline]
    pub(crate) fn open(&mut self, number: u64) -> StreamId {
        let new = Entry::Live(number, Stream::new());
        let place = self.free.pop().unwrap_or(self.places.len() as u32);
        match self.places.get_mut(place as usize) {
            Some(free) => *free = new,
            None => self.places.push(new),
        }
        self.live += 1;
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

    /// The live stream at a place.
    #[inline]
    pub(crate) fn at(&self, place: u32) -> Option<StreamId> {
        match self.places.get(place as usize) {
            Some(Entry::Live(number, _)) => Some(StreamId { number: *number, place }),
            _ => None,
        }
    }

    /// The live stream with a number.
    pub(crate) fn find(&self, number: u64) -> Option<StreamId> {
        self.all().find(|id| id.number == number)
    }

    /// All that are live.
    pub(crate) fn all(&self) -> impl Iterator<Item = StreamId> {
        self.places.iter().zip(0..).filter_map(|(entry, place)| match entry {
            Entry::Live(number, _) => Some(StreamId { number: *number, place }),
            _ => None,
        })
    }

    /// A live stream is over on the wire.
    #[inline]
    pub(crate) fn close(&mut self, id: StreamId) -> Option<Stream> {
        let entry = self.places.get_mut(id.place as usize)?;
        if !matches!(entry, Entry::Live(number, _) if *number == id.number) {
            return None;
        }
        let Entry::Live(_, stream) = mem::replace(entry, Entry::Gone(id.number)) else { return None };
        self.live -= 1;
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
            (self.places, self.free) = (Vec::new(), Vec::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_again_when_it_was_released_and_no_sooner() {
        let mut streams = Streams::default();
        let first = streams.open(0);
        streams.release(first); // not yet
        assert!(streams.get(first).is_some() && streams.find(0) == Some(first) && streams.at(0) == Some(first));
        assert!(streams.close(first).is_some() && streams.close(first).is_none());
        let second = streams.open(4);
        assert_eq!((second.place(), streams.count(), streams.is_idle()), (1, 2, false));
        streams.release(first);
        streams.release(first);
        let third = streams.open(8);
        assert_eq!((third.place(), streams.count()), (0, 2));
        streams.release(first); // another stream has its place
        assert!(streams.get(third).is_some() && streams.get(first).is_none() && streams.find(0).is_none());
        let all: Vec<_> = (0..100).map(|round| streams.open(100 + round * 4)).collect();
        for id in all.into_iter().chain([second, third]) {
            streams.close(id);
            streams.release(id);
        }
        assert_eq!((streams.places.capacity(), streams.count(), streams.is_idle()), (0, 0, true));
    }
}
