//! Whether records of one level are wanted: what `logger.isEnabledFor(level)` says, at a tenth of the cost:
//! the shortcut `logging`.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::names::Names;
use super::shortcuts::{Shortcut, is_taken};

/// One level of one logger.
pub(crate) struct Level {
    logger: Py<PyAny>,
    /// The logger's cache by level; emptied when any level changes. It belongs to the logger for life.
    answers: Py<PyDict>,
    value: Py<PyAny>,
}

impl Level {
    pub(crate) fn new(logger: &Bound<'_, PyAny>, level: u8) -> PyResult<Self> {
        let py = logger.py();
        // A class of the user's may have other answers.
        let is_plain = is_taken(Shortcut::Logging) && logger.get_type().is(&py.import("logging")?.getattr("Logger")?);
        let answers = if is_plain { logger.getattr("_cache")?.cast_into::<PyDict>()? } else { PyDict::new(py) };
        Ok(Self {
            logger: logger.clone().unbind(),
            answers: answers.unbind(),
            value: level.into_pyobject(py)?.into_any().unbind(),
        })
    }

    /// Whether a record would be made. That of a logger which was disabled since is asked for in vain, and not made then.
    #[inline]
    pub(crate) fn is_enabled(&self, py: Python<'_>, names: &Names) -> PyResult<bool> {
        match self.answers.bind(py).get_item(&self.value)? {
            Some(enabled) => enabled.is_truthy(),
            None => self.logger.bind(py).call_method1(&names.is_enabled_for, (&self.value,))?.is_truthy(),
        }
    }

    /// Log `prefix` and `text`.
    pub(crate) fn log(&self, py: Python<'_>, prefix: &str, text: &str) -> PyResult<()> {
        self.logger.bind(py).call_method1("log", (&self.value, "%s%s", prefix, text)).map(drop)
    }
}
