//! A sign of life that needs no interpreter.
//!
//! A supervisor can tell by it a process that does not run from one whose interpreter is locked.

use std::fs::File;
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::ffi::descriptor;

const STACK: usize = 64 * 1024;

/// Room for as many handlers as there are signals that mean something to a server, interrupting each other.
const SIGNAL_STACK: usize = 256 * 1024;

/// Write a number of 8 bytes at the beginning of a file, one more every `interval` seconds, as long as it can be written.
/// A signal stack that `faulthandler` has set up in this thread is enlarged.
///
/// Raises `OSError` if `descriptor` is invalid, `ValueError` if `interval` is not a duration.
#[cfg(unix)]
#[pyfunction]
pub(crate) fn beat(descriptor: i32, interval: f64) -> PyResult<()> {
    use std::os::unix::fs::FileExt;

    let interval = Duration::try_from_secs_f64(interval).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let file = File::from(descriptor::duplicate(descriptor)?);
    descriptor::enlarge_signal_stack(SIGNAL_STACK);
    let count = move || {
        let mut pulse: u64 = 1;
        while file.write_all_at(&pulse.to_ne_bytes(), 0).is_ok() {
            thread::sleep(interval);
            pulse = pulse.wrapping_add(1);
        }
    };
    thread::Builder::new().name("uvicorn-pulse".into()).stack_size(STACK).spawn(count)?;
    Ok(())
}

/// No supervisor reads it on this system.
#[cfg(not(unix))]
#[pyfunction]
pub(crate) fn beat(_descriptor: i32, _interval: f64) -> PyResult<()> {
    Err(pyo3::exceptions::PyNotImplementedError::new_err("files at positions"))
}
