//! Mistakes of the application become exceptions; a panic is logged once and costs one connection its life.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use wire::error::AppError;

use super::home::Home;
use super::panic::describe;

/// The exception for an application whose message is invalid.
#[cold]
pub(crate) fn exception(error: AppError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

/// Run `body`, which may fail, while an object is being freed and no caller can handle an exception: one that is
/// already set stays set, and one of `body` is reported as that of a destructor.
pub(crate) fn undisturbed(py: Python<'_>, body: impl FnOnce() -> PyResult<()>) {
    let pending = PyErr::take(py);
    if let Err(error) = body() {
        error.write_unraisable(py, None);
    }
    if let Some(pending) = pending {
        pending.restore(py);
    }
}

/// Run an entry point of a connection, called `entry`. A panic is logged and has the connection abandoned, which
/// affects no other connection; the caller gets the default.
#[inline]
pub(crate) fn guard<R: Default>(
    py: Python<'_>,
    home: &Home,
    entry: &str,
    abandon: impl FnOnce() -> PyResult<()>,
    body: impl FnOnce() -> PyResult<R>,
) -> PyResult<R> {
    contain(home, entry, body).unwrap_or_else(|text| {
        // It may be the very state of the connection that is broken.
        let ended = catch_unwind(AssertUnwindSafe(abandon)).unwrap_or_else(|payload| {
            describe(&*payload);
            Ok(())
        });
        log(py, home, "Native core panicked in %s, closing the connection: %s", entry, text)?;
        ended.map(|()| R::default())
    })
}

/// Run code that belongs to no connection. A panic is logged; the caller gets the default.
#[inline]
pub(crate) fn guard_server<R: Default>(
    py: Python<'_>,
    home: &Home,
    entry: &str,
    body: impl FnOnce() -> PyResult<R>,
) -> PyResult<R> {
    contain(home, entry, body).unwrap_or_else(|text| {
        log(py, home, "Native core panicked in %s: %s", entry, text)?;
        Ok(R::default())
    })
}

#[inline]
fn contain<R>(home: &Home, entry: &str, body: impl FnOnce() -> R) -> Result<R, String> {
    let run = || {
        home.rehearsal.happen_in(entry);
        body()
    };
    // State left inconsistent is only seen by the code that abandons it.
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| describe(&*payload))
}

fn log(py: Python<'_>, home: &Home, line: &str, entry: &str, text: String) -> PyResult<()> {
    home.logger.bind(py).call_method1(&home.names.error, (line, entry, text)).map(drop)
}
