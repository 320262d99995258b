//! The lines of the access log of one event loop.
//!
//! While logging is exactly as uvicorn set it up, which is checked for each record, a line is formatted without Python
//! objects and all lines of one turn of the loop are written at once. Otherwise the Python side gets the record and
//! calls the logger.
//!
//! A client that has one request at a time finds its line written when it has the response: the lines of a turn of ours
//! are written in front of its last response, and in other turns those that there are in front of the first.

use std::cell::{Cell, RefCell};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::untouched::{INFO, Untouched};
use crate::asgi::peer::Peer;
use crate::base::level::Level;
use crate::base::names::Names;

/// A request, as its line is made of.
pub(crate) struct About<'a, 'py> {
    pub(crate) names: &'a Names,
    pub(crate) peer: &'a Peer,
    pub(crate) scope: &'a Bound<'py, PyDict>,
    /// Has the loop asked to end the turn of the lines.
    pub(crate) later: &'a dyn Fn() -> PyResult<()>,
}

/// The lines of one turn of the loop.
pub(crate) struct Lines {
    /// A `LineBuffer`, which writes them.
    pub(super) python: Py<PyAny>,
    level: Level,
    pub(super) untouched: Option<Untouched>,
    pub(super) text: RefCell<String>,
    /// The rest of them will be written when the turn ends.
    scheduled: Cell<bool>,
    /// Some of them were written in front of a response.
    begun: Cell<bool>,
}

impl Lines {
    pub(super) fn new(python: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            level: Level::new(&python.py().import("uvicorn.access.log")?.getattr("logger")?, INFO)?,
            untouched: Untouched::new(python)?,
            python: python.clone().unbind(),
            text: RefCell::default(),
            scheduled: Cell::new(false),
            begun: Cell::new(false),
        })
    }

    /// Whether lines are wanted at all.
    #[inline]
    pub(super) fn are_wanted(&self, py: Python<'_>, names: &Names) -> PyResult<bool> {
        self.level.is_enabled(py, names)
    }

    /// Whether they may be written past the logger, now.
    #[inline]
    pub(super) fn may_write(&self, py: Python<'_>, names: &Names) -> PyResult<bool> {
        self.untouched.as_ref().map_or(Ok(false), |untouched| untouched.holds(py, names))
    }

    pub(super) fn push(&self, line: &str) {
        let mut text = self.text.borrow_mut();
        text.push_str(line);
        text.push('\n');
    }

    /// See to it that the lines are written when the loop gets to it, which `later` asks it for.
    #[inline]
    pub(super) fn schedule(&self, later: &dyn Fn() -> PyResult<()>) -> PyResult<()> {
        if self.scheduled.replace(true) { Ok(()) } else { later() }
    }

    /// The turn has ended.
    pub(crate) fn end_turn(&self, py: Python<'_>, names: &Names) -> PyResult<()> {
        self.scheduled.set(false);
        self.begun.set(false);
        self.flush(py, names)
    }

    /// A response is about to leave, in a turn of ours if that is known: whether it is the `last` one.
    #[inline]
    pub(crate) fn precede(&self, py: Python<'_>, names: &Names, last: impl FnOnce() -> Option<bool>) -> PyResult<()> {
        if !self.scheduled.get() || self.text.borrow().is_empty() {
            return Ok(());
        }
        let is_due = last().unwrap_or_else(|| !self.begun.replace(true));
        if is_due { self.flush(py, names) } else { Ok(()) }
    }

    /// Write the lines collected so far.
    pub(crate) fn flush(&self, py: Python<'_>, names: &Names) -> PyResult<()> {
        if self.text.borrow().is_empty() {
            return Ok(());
        }
        let text = PyString::new(py, &self.text.borrow());
        self.text.borrow_mut().clear();
        self.python.bind(py).call_method1(&names.write, (text,)).map(drop)
    }
}
