//! The common ground of our coroutines and Python's.

use pyo3::exceptions::{PyBaseException, PyRuntimeError, PyStopIteration};
use pyo3::prelude::*;

use super::ffi::call::Turn;

/// The exception that `throw(type, value, traceback)` or `throw(value)` means.
pub(crate) fn thrown(
    kind: &Bound<'_, PyAny>,
    value: Option<&Bound<'_, PyAny>>,
    traceback: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyErr> {
    let error = match value {
        None => PyErr::from_value(kind.clone()),
        Some(value) if value.is_none() => PyErr::from_value(kind.clone()),
        Some(value) if value.is_instance_of::<PyBaseException>() => PyErr::from_value(value.clone()),
        Some(value) => PyErr::from_value(kind.call1((value,))?),
    };
    if let Some(traceback) = traceback
        && !traceback.is_none()
    {
        error.value(kind.py()).setattr("__traceback__", traceback)?;
    }
    Ok(error)
}

/// The exception of a coroutine that is over, as Python's raise it.
#[cold]
pub(crate) fn reused() -> PyErr {
    PyRuntimeError::new_err("cannot reuse already awaited coroutine")
}

/// `error` as a coroutine raises it: a `StopIteration` would end it as a return does, and is a `RuntimeError` (PEP 479).
#[cold]
pub(crate) fn contained(py: Python<'_>, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyStopIteration>(py) {
        return error;
    }
    let raised = PyRuntimeError::new_err("coroutine raised StopIteration");
    raised.set_cause(py, Some(error));
    raised
}

/// The result of a coroutine's `send()` and `throw()`: the object it waits for, or its result in an exception.
pub(crate) fn outcome(turn: Turn) -> PyResult<Py<PyAny>> {
    match turn {
        Turn::Yielded(future) => Ok(future),
        Turn::Returned(value) => Err(PyStopIteration::new_err((value,))),
    }
}
