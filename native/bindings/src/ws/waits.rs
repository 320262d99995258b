//! The deadlines of a WebSocket, by reason.

use std::cell::{Cell, OnceCell};
use std::time::{Duration, Instant};

use crate::conn::deadline::Deadline;

/// The reason for a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The time of the next ping, or the pong.
    KeepAlive,
    /// The application's answers to the last that the client has sent.
    Answers,
    /// The end of the connection.
    Close,
    /// The client, to read some of the waiting output.
    Reader,
}

pub(super) const WAITS: [Wait; 4] = [Wait::KeepAlive, Wait::Answers, Wait::Close, Wait::Reader];

/// Until when it waits for each; the earliest is the deadline that is watched.
#[derive(Default)]
pub(super) struct Times {
    keep_alive: Cell<Option<Instant>>,
    pub(super) earliest: Deadline,
    pub(super) place: Cell<Option<usize>>,
    /// Kept apart, so that an open WebSocket which waits is small.
    rare: OnceCell<Box<Rare>>,
}

/// What one does not have until it ends, or its client does not read.
#[derive(Default)]
struct Rare {
    answers: Cell<Option<Instant>>,
    close: Cell<Option<Instant>>,
    reader: Cell<Option<Instant>>,
    unsent: Unsent,
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
        if until.is_some() && wait != Wait::KeepAlive {
            self.rare();
        }
        if let Some(place) = self.place(wait) {
            place.set(until);
        }
        self.earliest.set(WAITS.into_iter().filter_map(|wait| self.get(wait)).min());
    }

    pub(super) fn get(&self, wait: Wait) -> Option<Instant> {
        self.place(wait).and_then(Cell::get)
    }

    pub(super) fn unsent(&self) -> &Unsent {
        &self.rare().unsent
    }

    /// None if it never had a deadline.
    fn place(&self, wait: Wait) -> Option<&Cell<Option<Instant>>> {
        match wait {
            Wait::KeepAlive => Some(&self.keep_alive),
            Wait::Answers => self.rare.get().map(|rare| &rare.answers),
            Wait::Close => self.rare.get().map(|rare| &rare.close),
            Wait::Reader => self.rare.get().map(|rare| &rare.reader),
        }
    }

    fn rare(&self) -> &Rare {
        self.rare.get_or_init(Box::default)
    }
}
