//! Waits until an event loop is overdue, without the interpreter. The words are those of `uvicorn/metrics/loop_state.py`.

use pyo3::prelude::*;

#[cfg(target_os = "linux")]
pub(crate) use linux::Watchdog;

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
    use std::time::Duration;

    use pyo3::exceptions::PyValueError;

    use super::{Bound, Py, PyAny, PyResult, Python, pyclass, pymethods};
    use crate::base::ffi::clocks;
    use crate::base::ffi::pending::MainCall;
    use crate::base::ffi::words::Words;

    const DUE: usize = 1;

    /// The clocks at one moment, in nanoseconds.
    #[derive(Clone, Copy)]
    struct Look {
        time: u64,
        thread: u64,
        process: u64,
    }

    impl Look {
        fn now(clock: libc::clockid_t) -> Self {
            let thread = clocks::read(clock).unwrap_or_default();
            Self { time: clocks::monotonic(), thread, process: clocks::process_cpu() }
        }
    }

    /// The loop was overdue at this moment.
    #[derive(Clone, Copy)]
    struct Overdue {
        asked: Look,
        is_running: bool,
    }

    /// Time, processor time of the loop's thread and of the process, time of waiting for the interpreter, and processor
    /// time of the loop's thread meanwhile; whether that thread was running, or ready to, when the wait began.
    type Found = (u64, u64, u64, u64, u64, bool);

    struct State {
        is_closed: bool,
        last: Look,
        /// While the watching thread waits for the interpreter.
        overdue: Option<Overdue>,
    }

    /// Watches one event loop for one thread of Python's, which calls `wait` again and again.
    #[pyclass(module = "uvicorn._native", frozen)]
    pub(crate) struct Watchdog {
        words: Words,
        interval: Duration,
        clock: libc::clockid_t,
        /// The status of the loop's thread.
        status: String,
        /// Takes a sample in the loop's own thread, if that is the main thread.
        from_inside: Option<MainCall>,
        state: Mutex<State>,
        closing: Condvar,
    }

    #[pymethods]
    impl Watchdog {
        #[new]
        fn new(
            words: &Bound<'_, PyAny>,
            interval: f64,
            clock: i32,
            thread: u32,
            from_inside: Option<Py<PyAny>>,
        ) -> PyResult<Self> {
            let interval =
                Duration::try_from_secs_f64(interval).map_err(|error| PyValueError::new_err(error.to_string()))?;
            let state = Mutex::new(State { is_closed: false, last: Look::now(clock), overdue: None });
            let status = format!("/proc/self/task/{thread}/stat");
            let from_inside = from_inside.map(MainCall::new);
            Ok(Self { words: Words::of(words)?, interval, clock, status, from_inside, state, closing: Condvar::new() })
        }

        /// Wait until the loop is half an interval overdue, then for the interpreter. Returns the nanoseconds since the
        /// previous look, see [`Found`]; None once it is closed.
        fn wait(&self, py: Python<'_>) -> Option<Found> {
            if !py.detach(|| self.wait_until_overdue()) {
                return None;
            }
            let found = self.look();
            self.state().overdue = None;
            Some(found)
        }

        /// Look now, while another thread may be in `wait`.
        fn look(&self) -> Found {
            let now = Look::now(self.clock);
            let mut state = self.state();
            let before = std::mem::replace(&mut state.last, now);
            let Overdue { asked, is_running } =
                state.overdue.unwrap_or(Overdue { asked: now, is_running: now.thread > before.thread });
            // The part of the wait that the previous look has not had.
            let asked = if asked.time < before.time { before } else { asked };
            (
                now.time.saturating_sub(before.time),
                now.thread.saturating_sub(before.thread),
                now.process.saturating_sub(before.process),
                now.time.saturating_sub(asked.time),
                now.thread.saturating_sub(asked.thread),
                is_running,
            )
        }

        /// Have `wait` return None from now on; from any thread.
        fn close(&self) {
            self.state().is_closed = true;
            self.closing.notify_all();
        }
    }

    impl Watchdog {
        fn state(&self) -> MutexGuard<'_, State> {
            self.state.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// Wait; false once it is closed.
        fn wait_until_overdue(&self) -> bool {
            let patience = u64::try_from(self.interval.as_nanos() / 2).unwrap_or(u64::MAX);
            let mut state = self.state();
            let mut pause = self.interval;
            loop {
                if state.is_closed {
                    return false;
                }
                let waited = self.closing.wait_timeout(state, pause);
                (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
                let due = self.words.get(DUE);
                let now = Look::now(self.clock);
                // Until the next beat is overdue; that word is written by others, so no longer than two intervals.
                let left = Duration::from_nanos(due.saturating_add(patience).saturating_sub(now.time));
                pause = left.clamp(self.interval / 2, self.interval * 2);
                if !state.is_closed && due != 0 && now.time >= due.saturating_add(patience) {
                    state.overdue = Some(Overdue { asked: now, is_running: self.is_running() });
                    drop(state);
                    if let Some(from_inside) = &self.from_inside {
                        from_inside.request();
                    }
                    return true;
                }
                state.last = now;
            }
        }

        /// Whether the loop's thread has a processor or waits for one: its state is behind its name, which is in brackets.
        fn is_running(&self) -> bool {
            let status = fs::read_to_string(&self.status).unwrap_or_default();
            status.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('R'))
        }
    }
}

/// Other systems lack the clock of a thread, or have a clock of their own for Python.
#[cfg(not(target_os = "linux"))]
#[pyclass(module = "uvicorn._native", frozen)]
pub(crate) struct Watchdog {}

#[cfg(not(target_os = "linux"))]
#[pymethods]
impl Watchdog {
    #[new]
    fn new(
        _words: &Bound<'_, PyAny>,
        _interval: f64,
        _clock: i32,
        _thread: u32,
        _from_inside: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        Err(pyo3::exceptions::PyNotImplementedError::new_err("the clock of a thread"))
    }

    #[expect(clippy::unused_self, reason = "there is no object")]
    fn wait(&self, _py: Python<'_>) -> Option<(u64, u64, u64, u64, u64, bool)> {
        None
    }

    #[expect(clippy::unused_self, reason = "there is no object")]
    fn look(&self) -> (u64, u64, u64, u64, u64, bool) {
        (0, 0, 0, 0, 0, false)
    }

    #[expect(clippy::unused_self, reason = "there is no object")]
    fn close(&self) {}
}
