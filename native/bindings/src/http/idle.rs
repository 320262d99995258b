//! The deadlines of all connections of one loop: swept by one timer, never one per request.
//!
//! A connection that waits for its peer says until when; the timer is set for the earliest, but sweeps are at least
//! `GRANULARITY` apart, so that ten thousand idle connections cost one pass over a vector and not ten thousand timers.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::error::guard;
use crate::http::connection::Connection;
use crate::names::Names;
use crate::server::{Core, Server};

/// How late a deadline may be noticed.
const GRANULARITY: Duration = Duration::from_millis(50);

/// Who waits until when.
#[derive(Default)]
pub(crate) struct Deadlines {
    slots: RefCell<Vec<Option<Rc<Connection>>>>,
    free: RefCell<Vec<usize>>,
    next: Cell<Option<Instant>>,
    timer: RefCell<Option<Py<PyAny>>>,
    /// How far our clock is ahead of the system's.
    ahead: Cell<Duration>,
}

impl Deadlines {
    /// The time that deadlines go by.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        Instant::now() + self.ahead.get()
    }

    /// Let so much time have passed.
    pub(crate) fn advance(&self, time: Duration) {
        self.ahead.set(self.ahead.get() + time);
    }

    /// A place for `connection`.
    pub(crate) fn insert(&self, connection: Rc<Connection>) -> usize {
        let mut slots = self.slots.borrow_mut();
        if let Some(index) = self.free.borrow_mut().pop() {
            if let Some(slot) = slots.get_mut(index) {
                *slot = Some(connection);
            }
            return index;
        }
        slots.push(Some(connection));
        slots.len() - 1
    }

    /// The connection is gone.
    pub(crate) fn remove(&self, index: usize) {
        let gone = self.slots.borrow_mut().get_mut(index).and_then(Option::take);
        if gone.is_some() {
            self.free.borrow_mut().push(index);
        }
    }

    /// Cancel the timer.
    pub(crate) fn disarm(&self, py: Python<'_>, names: &Names) -> PyResult<()> {
        self.next.set(None);
        let timer = self.timer.borrow_mut().take();
        match timer {
            Some(timer) => timer.bind(py).call_method0(&names.cancel).map(drop),
            None => Ok(()),
        }
    }

    /// Whether the timer will fire in time for `deadline`, or no later than it is allowed to.
    #[inline]
    pub(crate) fn covers(&self, deadline: Instant) -> bool {
        self.next.get().is_some_and(|next| next <= deadline + GRANULARITY)
    }
}

/// Set the timer so that it fires at `deadline`, or a little later.
#[cold]
pub(crate) fn arm(core: &Core, server: &Bound<'_, Server>, deadline: Instant) -> PyResult<()> {
    let py = server.py();
    let now = core.deadlines.now();
    let delay = deadline.saturating_duration_since(now).max(GRANULARITY);
    // Never later than it is: a client that is late already must not put the sweep off with every byte.
    if core.deadlines.next.get().is_some_and(|next| next <= now + delay) {
        return Ok(());
    }
    core.deadlines.disarm(py, &core.names)?;
    core.deadlines.next.set(Some(now + delay));
    let callback = server.getattr("sweep")?;
    // In the server's context: that of a request would live as long as the timer.
    let call_later = core.event_loop.bind(py).getattr(&core.names.call_later)?;
    let timer = core.context.bind(py).call_method1(&core.names.run, (call_later, delay.as_secs_f64(), callback))?;
    *core.deadlines.timer.borrow_mut() = Some(timer.unbind());
    Ok(())
}

/// End what is over its deadline, and set the timer for the earliest of the others.
pub(crate) fn sweep(core: &Rc<Core>, server: &Bound<'_, Server>) -> PyResult<()> {
    let py = server.py();
    core.deadlines.next.set(None);
    core.deadlines.timer.borrow_mut().take();
    let now = core.deadlines.now();
    let mut earliest: Option<Instant> = None;
    let mut expired = Vec::new();
    for connection in core.deadlines.slots.borrow().iter().flatten() {
        match connection.deadline() {
            Some(deadline) if deadline <= now => expired.push(connection.clone()),
            Some(deadline) => earliest = Some(earliest.map_or(deadline, |other| other.min(deadline))),
            None => {}
        }
    }
    // A connection that fails to end must not keep the others from theirs.
    let mut outcome = Ok(());
    for connection in expired {
        let ended = guard(py, &connection, "expire", |connection| connection.expire(py));
        outcome = outcome.and(ended.or_else(|error| connection.abort(py).and(Err(error))));
    }
    match earliest {
        Some(deadline) if !core.deadlines.covers(deadline) => outcome.and(arm(core, server, deadline)),
        _ => outcome,
    }
}
