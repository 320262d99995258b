//! Time in which the event loop was busy does not count against a peer's deadline. When a deadline passes, the server first
//! extends it by the time the loop was late, once, and reads what the peer has sent.

use std::cell::Cell;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// A timer that fires later than this shows that the loop was busy. One look extends the deadline by this much.
pub(super) const GRANULARITY: Duration = Duration::from_millis(50);

/// Extensions for a peer that keeps sending. After these it is slow, not overlooked.
const MOST_LOOKS: u8 = 4;

/// Whether a connection has input to read, or room to write, that was not used yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    Nothing,
    Something,
    /// That was found before, and has not had its turn since.
    Unserved,
}

/// The time granted to a peer since its deadline was set.
#[derive(Default)]
pub(crate) struct Grace(Cell<u8>);

impl Grace {
    /// The deadline is another one.
    #[inline]
    pub(super) fn renew(&self) {
        self.0.set(0);
    }

    /// How much longer a peer that is late is waited for, if it is: the loop came `lag` too late to look, and `look` says what
    /// is there of the peer.
    pub(crate) fn grant(&self, lag: Duration, look: impl FnOnce() -> PyResult<Pending>) -> PyResult<Option<Duration>> {
        let looks = self.0.get();
        if looks == 0 && lag > GRANULARITY {
            self.0.set(1);
            return Ok(Some(lag));
        }
        let granted = match look()? {
            Pending::Unserved => true,
            Pending::Something if looks < MOST_LOOKS => {
                self.0.set(looks + 1);
                true
            }
            Pending::Something | Pending::Nothing => false,
        };
        Ok(granted.then_some(GRANULARITY))
    }
}

/// How late the loop is that should have called at `due`.
pub(crate) fn lag_since(due: Option<Instant>) -> Duration {
    due.map_or(Duration::ZERO, |due| Instant::now().saturating_duration_since(due))
}
