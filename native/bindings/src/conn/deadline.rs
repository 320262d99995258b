//! The deadlines of all connections of one loop: swept by one timer, never one per request.
//!
//! A connection that waits for its peer says until when; the timer is set for the earliest, but sweeps are at least
//! `GRANULARITY` apart, so that ten thousand idle connections cost one pass over a vector and not ten thousand timers.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::base::error::guard_server;
use crate::base::ffi::thread_bound::{ThreadBound, bury};
use crate::base::home::Home;

/// How late a deadline may be noticed.
const GRANULARITY: Duration = Duration::from_millis(50);

/// Has deadlines.
pub(crate) trait Patient {
    /// The earliest, if there is one now.
    fn deadline(&self) -> Option<Instant>;
    /// It has passed. Does not fail without having ended what was late.
    fn expire(self: Rc<Self>, py: Python<'_>) -> PyResult<()>;
}

/// Who waits until when.
pub(crate) struct Deadlines {
    home: Rc<Home>,
    slots: RefCell<Vec<Option<Rc<dyn Patient>>>>,
    free: RefCell<Vec<usize>>,
    next: Cell<Option<Instant>>,
    timer: RefCell<Option<Py<PyAny>>>,
    /// How far our clock is ahead of the system's.
    ahead: Cell<Duration>,
}

impl Deadlines {
    pub(crate) fn new(home: Rc<Home>) -> Self {
        Self {
            home,
            slots: RefCell::default(),
            free: RefCell::default(),
            next: Cell::new(None),
            timer: RefCell::default(),
            ahead: Cell::default(),
        }
    }

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
    pub(crate) fn insert(&self, connection: Rc<dyn Patient>) -> usize {
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
    pub(crate) fn disarm(&self, py: Python<'_>) -> PyResult<()> {
        self.next.set(None);
        let timer = self.timer.borrow_mut().take();
        match timer {
            Some(timer) => timer.bind(py).call_method0(&self.home.names.cancel).map(drop),
            None => Ok(()),
        }
    }

    /// Whether the timer will fire in time for `deadline`, or no later than it is allowed to.
    #[inline]
    pub(crate) fn covers(&self, deadline: Instant) -> bool {
        self.next.get().is_some_and(|next| next <= deadline + GRANULARITY)
    }

    /// Set the timer so that it fires at `deadline`, or a little later.
    #[cold]
    pub(crate) fn arm(self: &Rc<Self>, py: Python<'_>, deadline: Instant) -> PyResult<()> {
        let now = self.now();
        let delay = deadline.saturating_duration_since(now).max(GRANULARITY);
        // Never later than it is: a client that is late already must not put the sweep off with every byte.
        if self.next.get().is_some_and(|next| next <= now + delay) {
            return Ok(());
        }
        self.disarm(py)?;
        self.next.set(Some(now + delay));
        let Home { names, event_loop, context, .. } = &*self.home;
        let sweep = Py::new(py, Sweep { deadlines: ThreadBound::new(self.clone()) })?;
        // In the server's context: that of a request would live as long as the timer.
        let call_later = event_loop.bind(py).getattr(&names.call_later)?;
        let timer = context.bind(py).call_method1(&names.run, (call_later, delay.as_secs_f64(), sweep))?;
        *self.timer.borrow_mut() = Some(timer.unbind());
        Ok(())
    }

    /// End what is over its deadline, and set the timer for the earliest of the others.
    pub(crate) fn sweep(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.next.set(None);
        self.timer.borrow_mut().take();
        let now = self.now();
        let mut earliest: Option<Instant> = None;
        let mut expired = Vec::new();
        for connection in self.slots.borrow().iter().flatten() {
            match connection.deadline() {
                Some(deadline) if deadline <= now => expired.push(connection.clone()),
                Some(deadline) => earliest = Some(earliest.map_or(deadline, |other| other.min(deadline))),
                None => {}
            }
        }
        // A connection that fails to end must not keep the others from theirs.
        let mut outcome = Ok(());
        for connection in expired {
            outcome = outcome.and(connection.expire(py));
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
        guard_server(py, &deadlines.home, "sweep", || deadlines.sweep(py))
    }
}
