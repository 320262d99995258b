//! Time in which the loop was busy and read no input is not held against a peer: before its deadline ends anything it
//! gets that time back, once, and its input is read.

use std::cell::Cell;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// How late a deadline may be noticed. A timer that is later than that tells that the loop was busy.
pub(super) const GRANULARITY: Duration = Duration::from_millis(50);

/// Looks at a peer that is late and has sent something each time: it is slow, and not unheard.
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
