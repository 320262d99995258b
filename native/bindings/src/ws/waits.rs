//! Until when a WebSocket waits for what.

use std::cell::{Cell, OnceCell};
use std::time::{Duration, Instant};

use crate::conn::deadline::Deadline;

/// What it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The time of the next ping, or the pong.
    KeepAlive,
    /// The application's answers to the last that the client has sent.
    Answers,
    /// The end of the connection.
    Close,
    /// The client, to take some of what waits for it.
    Reader,
}

pub(super) const WAITS: [Wait; 4] = [Wait::KeepAlive, Wait::Answers, Wait::Close, Wait::Reader];

/// Until when it waits for each; the earliest is the deadline that is watched.
#[derive(Default)]
pub(super) struct Times {
    each: [Cell<Option<Instant>>; 4],
    pub(super) earliest: Deadline,
    pub(super) place: Cell<Option<usize>>,
    unsent: OnceCell<Box<Unsent>>,
}

/// Bytes that the client had to take when the time for that began, and when that for the close did. Most take all at once.
#[derive(Default)]
pub(super) struct Unsent {
    pub(super) at_first: Cell<usize>,
    pub(super) at_close: Cell<usize>,
    pub(super) close_after: Cell<Duration>,
}

impl Times {
    pub(super) fn put(&self, wait: Wait, until: Option<Instant>) {
        if let Some(place) = self.each.get(wait as usize) {
            place.set(until);
        }
        self.earliest.set(self.each.iter().filter_map(Cell::get).min());
    }

    pub(super) fn unsent(&self) -> &Unsent {
        self.unsent.get_or_init(Box::default)
    }

    pub(super) fn get(&self, wait: Wait) -> Option<Instant> {
        self.each.get(wait as usize).and_then(Cell::get)
    }
}
