//! What the metrics know of one request.

use std::cell::Cell;
use std::time::{Duration, Instant};

use wire::method::Method;

use super::places;

/// A request that is being answered.
pub(crate) struct Course {
    pub(super) since: Instant,
    pub(super) method: Method,
    /// Nanoseconds.
    pub(super) queue_wait: u64,
    /// The number of entries that the scope had, if its route is of interest.
    pub(super) scope_size: usize,
    /// Of the response, once it has begun.
    pub(crate) status: Cell<u16>,
    /// It was counted.
    pub(crate) is_over: Cell<bool>,
    /// When the first part of a response left that has several.
    pub(super) first: Cell<Option<Instant>>,
    /// Bytes of the request body and of the response body.
    pub(crate) received: Cell<usize>,
    pub(crate) sent: Cell<usize>,
}

impl Course {
    /// A part of the response has left, and more are to follow.
    pub(crate) fn note_part(&self) {
        if self.first.get().is_none() {
            self.first.set(Some(Instant::now()));
        }
    }
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The class of a status, as its place among the classes.
#[inline]
pub(super) fn class_of(status: u16) -> usize {
    usize::from(status / 100).min(places::STATUS_CLASSES - 1)
}
