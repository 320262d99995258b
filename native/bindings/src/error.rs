//! Mistakes of the application become exceptions; a panic costs one connection.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use wire::error::AppError;

/// The exception an application gets for what it sent.
#[cold]
pub(crate) fn exception(error: AppError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}
