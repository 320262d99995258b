//! Tasks that take their first step while they are made, as they can since 3.12: `asyncio.Task(cycle, eager_start=True)`.

use std::cell::RefCell;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::ffi;
use crate::names::Names;

/// The call that makes them.
pub(crate) struct EagerCall {
    class: Py<PyType>,
    keywords: Py<PyDict>,
    /// A context in which nothing was ever set and that nobody knows any more; it stands in `keywords` too.
    spare: RefCell<Option<Py<PyAny>>>,
}

impl EagerCall {
    pub(crate) fn new(class: &Bound<'_, PyType>, event_loop: &Bound<'_, PyAny>, names: &Names) -> PyResult<Self> {
        let keywords = PyDict::new(class.py());
        keywords.set_item("loop", event_loop)?;
        keywords.set_item(&names.context, class.py().None())?;
        keywords.set_item("eager_start", true)?;
        Ok(Self { class: class.clone().unbind(), keywords: keywords.unbind(), spare: RefCell::default() })
    }

    /// A context to run a task in, if one is at hand that is as good as a new one.
    #[inline]
    pub(crate) fn empty_context<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let spare = self.spare.take()?.into_bound(py);
        is_forgotten(&spare).then_some(spare)
    }

    /// Start a task in `context`.
    #[inline]
    pub(crate) fn start<'py>(
        &self,
        arguments: &Bound<'py, PyTuple>,
        context: &Bound<'py, PyAny>,
        is_set: bool,
        names: &Names,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = context.py();
        let keywords = self.keywords.bind(py);
        if !is_set {
            keywords.set_item(&names.context, context)?;
        }
        ffi::instantiate(self.class.bind(py), arguments, keywords)
    }

    /// The task is over and gone: its context serves the next one if it is empty and nobody else holds it.
    #[inline]
    pub(crate) fn give(&self, context: Bound<'_, PyAny>, names: &Names) -> PyResult<()> {
        if is_forgotten(&context) && is_empty(&context) {
            self.spare.replace(Some(context.unbind()));
            return Ok(());
        }
        self.forget(context.py(), names)
    }

    /// Keep no context until the next task comes.
    pub(crate) fn forget(&self, py: Python<'_>, names: &Names) -> PyResult<()> {
        let spare = self.spare.take();
        drop(spare);
        self.keywords.bind(py).set_item(&names.context, py.None())
    }
}

/// Whether `context` is held by the keywords and the caller alone.
#[inline]
fn is_forgotten(context: &Bound<'_, PyAny>) -> bool {
    ffi::is_known_to(context, 2)
}

/// Whether no variable has a value in `context`.
#[inline]
pub(crate) fn is_empty(context: &Bound<'_, PyAny>) -> bool {
    context.len().is_ok_and(|length| length == 0)
}
