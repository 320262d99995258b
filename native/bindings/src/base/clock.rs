//! The default header lines with their cached date: rebuilt by the first use after the second has changed. No timer.

use std::cell::{Cell, RefCell};
use std::time::{SystemTime, UNIX_EPOCH};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::names::Names;

/// The lines every response of one server starts with.
#[derive(Default)]
pub(crate) struct DefaultHead {
    second: Cell<u64>,
    lines: RefCell<Vec<u8>>,
}

impl DefaultHead {
    /// Bring the lines up to date, and say whether they were not. `state` is the Python `ServerState`, which builds them.
    #[inline]
    pub(crate) fn refresh(&self, state: &Bound<'_, PyAny>, names: &Names) -> PyResult<bool> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let is_over = now != self.second.get();
        if is_over {
            self.rebuild(state, names)?;
            self.second.set(now);
        }
        Ok(is_over)
    }

    #[cold]
    fn rebuild(&self, state: &Bound<'_, PyAny>, names: &Names) -> PyResult<()> {
        let lines = state.getattr(&names.default_head)?.cast_into::<PyBytes>()?;
        let mut own = self.lines.borrow_mut();
        own.clear();
        own.extend_from_slice(lines.as_bytes());
        Ok(())
    }

    /// Use the lines, each ended by CRLF.
    #[inline]
    pub(crate) fn with<R>(&self, use_lines: impl FnOnce(&[u8]) -> R) -> R {
        use_lines(&self.lines.borrow())
    }
}
