//! Kill a process that does not end in time, whatever the interpreter is doing.
//!
//! Code in C that keeps the interpreter to itself lets neither the handler of a signal run nor any thread of Python's.

#[cfg(target_os = "linux")]
use std::time::Duration;

#[cfg(target_os = "linux")]
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

#[cfg(target_os = "linux")]
use super::ffi::end_timer;

#[cfg(target_os = "linux")]
fn milliseconds(seconds: f64) -> PyResult<u64> {
    let duration = Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Kill this process `seconds` after the first of the signals, unless `end_in` says otherwise by then; returns whether
/// all of them have a handler that this could be put in front of. It goes when Python installs another one.
///
/// Raises `OSError` if a signal is invalid, `ValueError` if `seconds` is not a duration.
#[cfg(target_os = "linux")]
#[pyfunction]
#[pyo3(signature = (seconds, *signals))]
pub(crate) fn end_after_signals(seconds: f64, signals: Vec<i32>) -> PyResult<bool> {
    end_timer::set_delay(milliseconds(seconds)?);
    let mut all = true;
    for signal in signals {
        all &= end_timer::take(signal)?;
    }
    Ok(all)
}

/// Nothing ends a process here.
#[cfg(not(target_os = "linux"))]
#[pyfunction]
#[pyo3(signature = (seconds, *signals))]
pub(crate) fn end_after_signals(seconds: f64, signals: Vec<i32>) -> bool {
    let _ = (seconds, signals);
    false
}

/// Kill this process in `seconds` instead; None: not before the next signal.
///
/// Raises `ValueError` if `seconds` is not a duration.
#[cfg(target_os = "linux")]
#[pyfunction]
pub(crate) fn end_in(seconds: Option<f64>) -> PyResult<()> {
    end_timer::set(seconds.map(milliseconds).transpose()?.map_or(0, |number| number.max(1)));
    Ok(())
}

/// Nothing ends a process here.
#[cfg(not(target_os = "linux"))]
#[pyfunction]
pub(crate) fn end_in(_seconds: Option<f64>) {}
