//! The deadlines of all connections of one loop, and of their parts: swept by one timer, never one per request.
//!
//! Each wait for the peer has a deadline; the timer is set for the earliest, but sweeps are at least `GRANULARITY`
//! apart, so that ten thousand idle connections cost one pass over a vector and not ten thousand timers.
//!
//! A deadline that has passed is not final: a peer whose data could not be read has more time (`grace.rs`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use super::grace::{GRANULARITY, Grace, Pending, lag_since};
use crate::base::error::guard_server;
use crate::base::ffi::thread_bound::{ThreadBound, bury};
use crate::base::home::Home;

/// Has deadlines, for itself and for its parts.
pub(crate) trait Patient {
    /// Until when `part` waits.
    fn deadline(&self, part: u32) -> &Deadline;
    /// Whether anything from the peer is yet to be processed; the next turn does that.
    fn look(&self, py: Python<'_>) -> PyResult<Pending>;
    /// The deadline of `part` has passed. Even on failure this has ended the late part.
    fn expire(self: Rc<Self>, py: Python<'_>, part: u32) -> PyResult<()>;
}

/// Until when a connection, or one part of it, waits for its peer. It counts while it is among the [`Deadlines`].
#[derive(Default)]
pub(crate) struct Deadline {
    until: Cell<Option<Instant>>,
    grace: Grace,
}

impl Deadline {
    #[inline]
    pub(crate) fn get(&self) -> Option<Instant> {
        self.until.get()
    }

    /// The caller has to have the timer [cover](Deadlines::watch) it.
    #[inline]
    pub(crate) fn set(&self, until: Option<Instant>) {
        self.until.set(until);
        self.grace.renew();
    }
}

/// The connection of a deadline, and its part.
#[derive(Clone)]
struct Entry {
    owner: Rc<dyn Patient>,
    part: u32,
}

/// All connections with deadlines.
pub(crate) struct Deadlines {
    home: Rc<Home>,
    entries: RefCell<Vec<Option<Entry>>>,
    free: RefCell<Vec<usize>>,
    next: Cell<Option<Instant>>,
    timer: RefCell<Option<Py<PyAny>>>,
    /// When the loop should call, by the system's clock.
    due: Cell<Option<Instant>>,
    /// How far our clock is ahead of the system's.
    ahead: Cell<Duration>,
    /// When the system's clock was stopped, if it was.
    held: Cell<Option<Instant>>,
}

impl Deadlines {
    pub(crate) fn new(home: Rc<Home>) -> Self {
        Self {
            home,
            entries: RefCell::default(),
            free: RefCell::default(),
            next: Cell::new(None),
            timer: RefCell::default(),
            due: Cell::new(None),
            ahead: Cell::default(),
            held: Cell::new(None),
        }
    }

    /// The time that deadlines go by.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        self.held.get().unwrap_or_else(Instant::now) + self.ahead.get()
    }

    /// From now on time only passes by [`advance`](Self::advance).
    pub(crate) fn hold(&self) {
        self.held.set(Some(Instant::now()));
    }

    /// Let so much time have passed.
    pub(crate) fn advance(&self, time: Duration) {
        self.ahead.set(self.ahead.get() + time);
    }

    /// Have the deadline of a `part` of `owner` watched; its place.
    pub(crate) fn insert(&self, owner: Rc<dyn Patient>, part: u32) -> usize {
        let entry = Some(Entry { owner, part });
        let mut entries = self.entries.borrow_mut();
        if let Some(index) = self.free.borrow_mut().pop() {
            if let Some(place) = entries.get_mut(index) {
                *place = entry;
            }
            return index;
        }
        entries.push(entry);
        entries.len() - 1
    }

    /// The entry in this place stops waiting.
    pub(crate) fn remove(&self, index: usize) {
        let gone = self.entries.borrow_mut().get_mut(index).and_then(Option::take);
        if gone.is_some() {
            self.free.borrow_mut().push(index);
        }
    }

    /// Cancel the timer.
    pub(crate) fn disarm(&self, py: Python<'_>) -> PyResult<()> {
        self.next.set(None);
        let timer = self.timer.borrow_mut().take();
        match timer {
            Some(timer) => timer.bind(py).call_method0(&self.home.names.cancel).map(drop),
            None => Ok(()),
        }
    }

    /// See to it that the timer fires in time for `deadline`.
    #[inline]
    pub(crate) fn watch(self: &Rc<Self>, py: Python<'_>, deadline: &Deadline) -> PyResult<()> {
        match deadline.get() {
            Some(until) if !self.covers(until) => self.arm(py, until),
            _ => Ok(()),
        }
    }

    /// Whether the timer will fire in time for `deadline`, or no later than it is allowed to.
    #[inline]
    fn covers(&self, deadline: Instant) -> bool {
        self.next.get().is_some_and(|next| next <= deadline + GRANULARITY)
    }

    /// Set the timer so that it fires at `deadline`, or a little later.
    #[cold]
    fn arm(self: &Rc<Self>, py: Python<'_>, deadline: Instant) -> PyResult<()> {
        let now = self.now();
        let delay = deadline.saturating_duration_since(now).max(GRANULARITY);
        // Never later than it is: a client that is late already must not put the sweep off with every byte.
        if self.next.get().is_some_and(|next| next <= now + delay) {
            return Ok(());
        }
        self.disarm(py)?;
        self.next.set(Some(now + delay));
        self.due.set(Some(Instant::now() + delay));
        let Home { names, event_loop, context, .. } = &*self.home;
        let sweep = Py::new(py, Sweep { deadlines: ThreadBound::new(self.clone()) })?;
        // In the server's context: that of a request would live as long as the timer.
        let call_later = event_loop.bind(py).getattr(&names.call_later)?;
        let timer = context.bind(py).call_method1(&names.run, (call_later, delay.as_secs_f64(), sweep))?;
        *self.timer.borrow_mut() = Some(timer.unbind());
        Ok(())
    }

    /// End parts whose deadline has passed and whose input was looked at, and set the timer for the earliest of the
    /// others. The loop came `lag` too late.
    pub(crate) fn sweep(self: &Rc<Self>, py: Python<'_>, lag: Duration) -> PyResult<()> {
        self.disarm(py)?;
        let now = self.now();
        let mut earliest: Option<Instant> = None;
        let mut expired = Vec::new();
        for entry in self.entries.borrow().iter().flatten() {
            match entry.owner.deadline(entry.part).get() {
                Some(until) if until <= now => expired.push(entry.clone()),
                Some(until) => earliest = Some(earliest.map_or(until, |other| other.min(until))),
                None => {}
            }
        }
        // A connection that fails to end must not keep the others from theirs.
        let mut outcome = Ok(());
        for Entry { owner, part } in expired {
            let deadline = owner.deadline(part);
            // The ends before it may have changed that.
            if deadline.get().is_none_or(|until| until > now) {
                continue;
            }
            match deadline.grace.grant(lag, || owner.look(py)) {
                Ok(Some(longer)) => {
                    let until = now + longer;
                    deadline.until.set(Some(until));
                    earliest = Some(earliest.map_or(until, |other| other.min(until)));
                }
                granted => {
                    deadline.set(None);
                    outcome = outcome.and(granted.map(drop)).and(owner.expire(py, part));
                }
            }
        }
        match earliest {
            Some(deadline) if !self.covers(deadline) => outcome.and(self.arm(py, deadline)),
            _ => outcome,
        }
    }
}

/// Sweeps, called by the timer.
#[pyclass(module = "uvicorn._native", frozen)]
struct Sweep {
    deadlines: ThreadBound<Rc<Deadlines>>,
}

#[pymethods]
impl Sweep {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let deadlines = self.deadlines.here()?;
        bury();
        guard_server(py, &deadlines.home, "sweep", || deadlines.sweep(py, lag_since(deadlines.due.get())))
    }
}
