//! A process that must not outlive its parent: told to end, and killed if it does not, whatever the interpreter is doing.
//!
//! A thread of Python's cannot do it. Code in C that keeps the interpreter to itself, or never comes back, would hold
//! the port for ever, and no parent would restart or stop the process.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::ffi::descriptor;

const STACK: usize = 64 * 1024;
/// Time for a thread of Python's, which also logs it, to end the process itself.
const PATIENCE: Duration = Duration::from_secs(1);

/// Watch a pipe whose other end the parent holds: a second after that is closed send SIGTERM to this process, and SIGKILL
/// `seconds` later (None: never).
///
/// Raises `OSError` if `descriptor` is invalid, `ValueError` if `seconds` is not a duration.
#[cfg(unix)]
#[pyfunction]
pub(crate) fn end_with_pipe(descriptor: i32, seconds: Option<f64>) -> PyResult<()> {
    let delay = seconds.map(Duration::try_from_secs_f64).transpose();
    let delay = delay.map_err(|error| PyValueError::new_err(error.to_string()))?;
    let pipe = File::from(descriptor::duplicate(descriptor)?);
    let watch = move || {
        if !is_closed_at_last(pipe) {
            return;
        }
        thread::sleep(PATIENCE);
        descriptor::signal_self(libc::SIGTERM);
        if let Some(delay) = delay {
            thread::sleep(delay);
            descriptor::signal_self(libc::SIGKILL);
        }
    };
    thread::Builder::new().name("uvicorn-parent-watch".into()).stack_size(STACK).spawn(watch)?;
    Ok(())
}

/// There are no signals to send.
#[cfg(not(unix))]
#[pyfunction]
pub(crate) fn end_with_pipe(_descriptor: i32, _seconds: Option<f64>) -> PyResult<()> {
    Err(pyo3::exceptions::PyNotImplementedError::new_err("signals"))
}

/// Wait until the last writer of the pipe is gone; false if it cannot be read.
#[cfg(unix)]
fn is_closed_at_last(mut pipe: File) -> bool {
    loop {
        match pipe.read(&mut [0]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}
