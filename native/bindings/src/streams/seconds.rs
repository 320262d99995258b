//! Whole seconds as they pass: a client's budget is given back by them.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The time up to which seconds were counted.
pub(crate) struct Seconds(Cell<Instant>);

impl Seconds {
    /// Count from `now` on.
    pub(crate) fn from(now: Instant) -> Self {
        Self(Cell::new(now))
    }

    /// How many have passed since the last call.
    #[inline]
    pub(crate) fn passed(&self, now: Instant) -> u64 {
        let since = self.0.get();
        let seconds = now.saturating_duration_since(since).as_secs();
        if seconds > 0 {
            self.0.set(since + Duration::from_secs(seconds));
        }
        seconds
    }
}
