//! The client as the reader of its output, with a deadline for each part of that.

use std::cell::Cell;
use std::rc::Rc;

use pyo3::prelude::*;

use super::carried::{Carried, Life};
use super::carrier::Carrier;
use super::deadline::Deadline;

/// The deadline for a client to take some of the waiting output.
#[derive(Default)]
pub(crate) struct Reader {
    pub(crate) deadline: Deadline,
    /// Bytes that it had to take when the time for that began.
    unsent: Cell<usize>,
}

impl Reader {
    /// Its time begins.
    #[cold]
    pub(crate) fn wait(&self, py: Python<'_>, connection: &impl Carried) -> PyResult<()> {
        let home = connection.home();
        let Some(patience) = home.settings.timeout_write.filter(|_| home.is_real) else { return Ok(()) };
        let Some(unsent) = connection.on_carrier(py, |carrier| carrier.unsent(py))? else { return Ok(()) };
        let deadlines = &connection.hub().deadlines;
        self.unsent.set(unsent);
        self.deadline.set(Some(deadlines.now() + patience));
        deadlines.watch(py, &self.deadline)
    }

    /// It has taken enough.
    pub(crate) fn stop(&self) {
        self.deadline.set(None);
    }

    /// Whether a client that has not ended its side is still reading the last output, for which it has the time of a reader.
    /// A server that `stops` leaves to the kernel what that has.
    #[cold]
    pub(crate) fn still_reads(&self, py: Python<'_>, connection: &impl Carried, stops: bool) -> PyResult<bool> {
        let ask = |carrier: Rc<dyn Carrier>| if stops { carrier.waiting(py) } else { carrier.unsent(py) };
        if connection.on_carrier(py, ask)?.is_none_or(|rest| rest == 0) {
            return Ok(false);
        }
        if self.deadline.get().is_none() {
            self.wait(py, connection)?;
        }
        Ok(true)
    }

    /// The deadline has passed: whether the client does not read. A connection that lingers ends without that if the rest is
    /// up to the kernel.
    #[cold]
    pub(crate) fn is_late(&self, py: Python<'_>, connection: &impl Carried, life: Life) -> PyResult<bool> {
        if self.goes_on(py, connection)? {
            return Ok(false);
        }
        let waiting = connection.on_carrier(py, |carrier| carrier.waiting(py))?;
        if life == Life::Lingering && waiting.is_none_or(|waiting| waiting == 0) {
            return connection.abort(py).map(|()| false);
        }
        Ok(true)
    }

    /// The deadline has passed. No output was added meanwhile, so the client has read the difference: if that is
    /// enough, the deadline is extended. `false`: it does not read.
    #[cold]
    fn goes_on(&self, py: Python<'_>, connection: &impl Carried) -> PyResult<bool> {
        let settings = &connection.home().settings;
        let Some(unsent) = connection.on_carrier(py, |carrier| carrier.unsent(py))? else { return Ok(true) };
        let taken = self.unsent.get().saturating_sub(unsent);
        if !settings.is_enough(taken, settings.timeout_write.unwrap_or_default()) {
            return Ok(false);
        }
        self.wait(py, connection).map(|()| true)
    }
}
