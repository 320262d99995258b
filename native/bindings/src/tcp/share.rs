//! Which of several workers takes a new connection: the one that has the fewest.
//!
//! Each has a number in a file that all of them see (`uvicorn/listening/loads.py` describes it). A worker that has more
//! than another leaves a connection to it for a moment, and takes ever more of those that are still there after that:
//! the other may be busy. This costs two small system calls per connection, and none without workers.
//!
//! The kernel wakes all workers, and without the table the first to run takes every pending connection: of 400
//! connections one of four workers had 8 times as many as another, and 174 times as many WebSocket sessions.
//! `EPOLLEXCLUSIVE` does not help: the event loop watches our epoll set, so an exclusive wake-up would wake no worker.
//! `SO_REUSEPORT` distributes by hash, blind to the load, and loses the pending connections of a worker that dies. A
//! fixed delay that grows with the load was the third alternative.

use std::cell::Cell;

use super::sys::Table;

/// How many more than another worker one may have, each time that a connection was found where it was left.
const SLACK: [u32; 7] = [1, 2, 4, 8, 16, 32, u32::MAX];
/// As far as that goes while the others take connections too: enough for a crowd to be let in soon, and evenly.
const CROWD: usize = 3;
/// Connections taken after the last of these, before the others are given a chance again.
const UNASKED: u32 = 32;

/// The number written for a count of connections; 0 means no worker.
fn number_of(connections: usize) -> u32 {
    u32::try_from(connections).map_or(Table::RESTS - 1, |number| number.saturating_add(1).min(Table::RESTS - 1))
}

/// The place of one event loop in the table.
pub(super) struct Share {
    table: Table,
    index: usize,
    /// The number that others see.
    told: Cell<u32>,
    /// How often connections were found where they were left.
    found: Cell<usize>,
    /// The smallest number at that time.
    fewest: Cell<u32>,
    /// Taken since that was at its end.
    unasked: Cell<u32>,
}

impl Share {
    pub(super) fn new(table: Table, index: usize) -> Self {
        Self { table, index, told: Cell::new(0), found: Cell::new(0), fewest: Cell::new(0), unasked: Cell::new(0) }
    }

    /// Tell the others how many connections there are here.
    #[inline]
    pub(super) fn tell(&self, connections: usize) {
        self.write(number_of(connections));
    }

    /// Nothing is accepted here, so other workers leave nothing to us; but the connections are counted.
    pub(super) fn leave(&self, connections: usize) {
        self.write(number_of(connections) | Table::RESTS);
    }

    fn write(&self, number: u32) {
        if self.told.replace(number) != number {
            self.table.write(self.index, number);
        }
    }

    /// Whether the next connection is ours, who have so many.
    pub(super) fn may_take(&self, connections: usize) -> bool {
        self.tell(connections);
        let Some(fewest) = self.table.fewest(self.index) else { return true };
        let slack = SLACK.get(self.found.get()).copied().unwrap_or(u32::MAX);
        if self.told.get() >= fewest.saturating_add(slack) {
            self.leave_to(fewest);
            return false;
        }
        if slack == u32::MAX {
            self.unasked.set(self.unasked.get() + 1);
            if self.unasked.get() >= UNASKED {
                self.all_taken();
            }
        }
        true
    }

    /// A connection is left to the others. Next time we may take more, unless they do.
    fn leave_to(&self, fewest: u32) {
        let stands_still = self.fewest.replace(fewest) == fewest;
        let found = self.found.get();
        self.found.set(if found < CROWD || stands_still { (found + 1).min(SLACK.len() - 1) } else { CROWD });
    }

    /// There is nothing to be taken.
    pub(super) fn all_taken(&self) {
        self.found.set(0);
        self.unasked.set(0);
    }
}
