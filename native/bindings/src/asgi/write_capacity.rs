//! Whether the carrier of a response takes more of it, and the calls that wait until it does.

use std::cell::{Cell, RefCell};

use pyo3::prelude::*;

use crate::base::home::Home;
use crate::base::line::{Line, WOKEN_TOGETHER, wake};
use crate::base::names::Names;

/// Whether the carrier of a response accepts more of it.
#[derive(Default)]
pub(crate) struct WriteCapacity {
    paused: Cell<bool>,
    /// `send()` calls that wait until there is some.
    pub(crate) writers: Line,
    /// The future of a task that sends a file, which is not in a line.
    watcher: RefCell<Option<Py<PyAny>>>,
}

impl WriteCapacity {
    /// Whether as much waits to be written as should.
    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.get()
    }

    /// Whether a message is taken now; unless a call is `in_turn`, those who wait come first.
    #[inline]
    pub(crate) fn takes_more(&self, in_turn: bool) -> bool {
        !self.paused.get() && (in_turn || self.writers.is_empty())
    }

    /// Enough waits to be written.
    pub(crate) fn pause(&self) {
        self.paused.set(true);
    }

    /// Few bytes wait, or writing has become impossible: resume waiting writers.
    pub(crate) fn resume(&self, py: Python<'_>, names: &Names) -> PyResult<()> {
        self.paused.set(false);
        let watcher = self.watcher.take();
        if let Some(watcher) = watcher {
            wake(watcher.bind(py), names)?;
        }
        self.writers.advance(py, names, WOKEN_TOGETHER)
    }

    /// Return a future that is done when there is room, or the connection ends. One at a time waits in this way.
    pub(crate) fn watcher(&self, py: Python<'_>, home: &Home) -> PyResult<Py<PyAny>> {
        let future = home.event_loop.bind(py).call_method0(&home.names.create_future)?.unbind();
        let old = self.watcher.replace(Some(future.clone_ref(py)));
        drop(old);
        Ok(future)
    }
}
