//! The object that a coroutine of ours gives its task to wait for, in place of a future of the loop's.
//!
//! A future announces its end by way of the loop: its task goes on in the next turn, after everything between two
//! turns. A callback of the loop that belongs to no task can let waiting tasks [go on at once](Waiter::go_on). The
//! coroutine that has given this to its task can even take a step of its own: the task waits for the same object before
//! and after it.

use std::cell::{Cell, RefCell};

use pyo3::PyTraverseError;
use pyo3::exceptions::asyncio::{CancelledError, InvalidStateError};
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use super::ffi::call::in_context;
use super::ffi::thread_bound::ThreadBound;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Pending,
    Done,
    Cancelled,
}

/// A callback for when it is over, and its context.
struct Callback {
    function: Py<PyAny>,
    context: Py<PyAny>,
}

struct State {
    event_loop: Py<PyAny>,
    outcome: Cell<Outcome>,
    blocking: Cell<bool>,
    /// The task that waits takes a step, though this is not over; it has not asked yet whether it may.
    grants: Cell<bool>,
    /// The same task asked to be cancelled meanwhile.
    is_cancel_asked: Cell<bool>,
    /// That task, in its step: whatever it does then, it does not wait for this.
    stepper: Cell<Option<Py<PyAny>>>,
    /// The coroutine that has given it to its task.
    owner: RefCell<Option<Py<PyAny>>>,
    message: RefCell<Option<Py<PyAny>>>,
    callbacks: RefCell<Vec<Callback>>,
}

/// The attributes of a future that tasks use, and no more.
#[pyclass(module = "uvicorn._native", frozen)]
pub struct Waiter {
    state: ThreadBound<State>,
}

impl Waiter {
    pub(crate) fn new(py: Python<'_>, event_loop: &Py<PyAny>) -> PyResult<Py<Self>> {
        let state = State {
            event_loop: event_loop.clone_ref(py),
            outcome: Cell::new(Outcome::Pending),
            blocking: Cell::new(false),
            grants: Cell::new(false),
            is_cancel_asked: Cell::new(false),
            stepper: Cell::new(None),
            owner: RefCell::default(),
            message: RefCell::default(),
            callbacks: RefCell::default(),
        };
        Py::new(py, Self { state: ThreadBound::new(state) })
    }

    /// Whether the wait is over; raises if it was cancelled. If not, the task that is given this next is asked to wait.
    #[inline]
    pub(crate) fn look(&self, py: Python<'_>) -> PyResult<bool> {
        let state = self.state.here()?;
        match state.outcome.get() {
            Outcome::Pending if state.grants.take() => Ok(true),
            Outcome::Pending => {
                state.blocking.set(true);
                Ok(false)
            }
            Outcome::Done => Ok(true),
            Outcome::Cancelled => Err(self.cancellation(py)?),
        }
    }

    /// Let the tasks that wait take their next step now, which is all that asyncio does in it; only where no task is at
    /// work. All other callbacks are called in the next turn of the loop, as is a task whose context is in use.
    pub(crate) fn go_on(slf: &Bound<'_, Self>, task_class: &Bound<'_, PyType>) -> PyResult<()> {
        let py = slf.py();
        slf.get().finish(Outcome::Done)?;
        let callbacks = slf.get().state.here()?.callbacks.take();
        for callback in callbacks {
            let function = callback.function.bind(py);
            let is_step =
                function.getattr(intern!(py, "__self__")).is_ok_and(|of| of.is_instance(task_class).unwrap_or(false));
            let called = if is_step {
                in_context(callback.context.bind(py), || function.call1((slf,)).map(drop))
            } else {
                call_soon(slf, &callback)?;
                continue;
            };
            match called {
                Ok(result) => result?,
                Err(_in_use) => call_soon(slf, &callback)?,
            }
        }
        Ok(())
    }

    /// `owner` gives this to its task.
    #[inline]
    pub(crate) fn belongs_to(&self, owner: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut known = self.state.here()?.owner.borrow_mut();
        if known.as_ref().is_none_or(|known| !known.is(owner)) {
            *known = Some(owner.clone().unbind());
        }
        Ok(())
    }

    pub(crate) fn owner<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.state.here()?.owner.borrow().as_ref().map(|owner| owner.bind(py).clone()))
    }

    /// The context of the task that waits for this, if it is the only one.
    #[inline]
    pub(crate) fn context<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(match &**self.state.here()?.callbacks.borrow() {
            [callback] => Some(callback.context.bind(py).clone()),
            _ => None,
        })
    }

    /// `task`, which waits for this, takes a step though it is not over.
    #[inline]
    pub(crate) fn begin_step(&self, task: Py<PyAny>) -> PyResult<()> {
        let state = self.state.here()?;
        state.grants.set(true);
        state.stepper.set(Some(task));
        Ok(())
    }

    /// The step is over. Whether the task asked to be cancelled in it.
    #[inline]
    pub(crate) fn end_step(&self) -> PyResult<bool> {
        let state = self.state.here()?;
        state.grants.set(false);
        let task = state.stepper.take();
        drop(task);
        Ok(state.is_cancel_asked.take())
    }

    fn is_in_step(&self) -> PyResult<bool> {
        let stepper = &self.state.here()?.stepper;
        let task = stepper.take();
        let is_in_step = task.is_some();
        stepper.set(task);
        Ok(is_in_step)
    }

    /// Whether `task`, which is at work, takes its step by this, and can wait for it again.
    #[inline]
    pub(crate) fn is_lent_to(&self, task: &Bound<'_, PyAny>) -> PyResult<bool> {
        let state = self.state.here()?;
        let stepper = state.stepper.take();
        let is_same = stepper.as_ref().is_some_and(|stepper| stepper.is(task));
        state.stepper.set(stepper);
        Ok(is_same && state.outcome.get() == Outcome::Pending && !state.is_cancel_asked.get())
    }

    /// Let those who wait go on, with the next turn of the loop; a task that takes a step now, behind that.
    pub(crate) fn wake(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.get().finish(Outcome::Done)?;
        if slf.get().is_in_step()? { Ok(()) } else { Self::tell(slf) }
    }

    /// It is over now.
    fn finish(&self, outcome: Outcome) -> PyResult<()> {
        let state = self.state.here()?;
        if state.outcome.get() == Outcome::Pending {
            state.outcome.set(outcome);
            let owner = state.owner.take();
            drop(owner);
        }
        Ok(())
    }

    /// Notify those that wait, if it is over, in the next turn of the loop.
    pub(crate) fn tell(slf: &Bound<'_, Self>) -> PyResult<()> {
        if !slf.get().is_done()? {
            return Ok(());
        }
        let callbacks = slf.get().state.here()?.callbacks.take();
        callbacks.iter().try_for_each(|callback| call_soon(slf, callback))
    }

    fn cancellation(&self, py: Python<'_>) -> PyResult<PyErr> {
        let message = self.state.here()?.message.borrow().as_ref().map(|message| message.clone_ref(py));
        Ok(message.map_or_else(|| CancelledError::new_err(()), |message| CancelledError::new_err((message,))))
    }

    pub(crate) fn is_done(&self) -> PyResult<bool> {
        Ok(self.state.here()?.outcome.get() != Outcome::Pending)
    }
}

/// Call a callback in the next turn of the loop.
fn call_soon(waiter: &Bound<'_, Waiter>, callback: &Callback) -> PyResult<()> {
    let py = waiter.py();
    let keywords = PyDict::new(py);
    keywords.set_item("context", &callback.context)?;
    let event_loop = waiter.get().state.here()?.event_loop.bind(py);
    event_loop.call_method("call_soon", (&callback.function, waiter), Some(&keywords)).map(drop)
}

#[pymethods]
impl Waiter {
    /// Tools that inspect a task, such as anyio, ask `isinstance(task._fut_waiter, asyncio.Future)`.
    #[getter]
    #[expect(clippy::unused_self, reason = "a getter")]
    fn __class__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("asyncio")?.getattr("Future")
    }

    /// As that of a future.
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let state = self.state.here()?;
        let name = match state.outcome.get() {
            Outcome::Pending => "pending",
            Outcome::Done => "finished result=None",
            Outcome::Cancelled => "cancelled",
        };
        let callbacks: Vec<_> = state.callbacks.borrow().iter().map(|one| one.function.clone_ref(py)).collect();
        let names = callbacks.iter().map(|one| Ok(one.bind(py).getattr("__qualname__")?.to_string()));
        let names = names.collect::<PyResult<Vec<_>>>()?.join("(), ");
        Ok(if names.is_empty() { format!("<Future {name}>") } else { format!("<Future {name} cb=[{names}()]>") })
    }

    /// The cancellation, if it was cancelled.
    fn exception(&self, py: Python<'_>) -> PyResult<()> {
        match self.state.here()?.outcome.get() {
            Outcome::Pending => Err(InvalidStateError::new_err("Exception is not set.")),
            Outcome::Done => Ok(()),
            Outcome::Cancelled => Err(self.cancellation(py)?),
        }
    }

    /// A task has asked whether it may wait for this; the answer is given once.
    #[getter]
    fn _asyncio_future_blocking(&self) -> PyResult<bool> {
        Ok(self.state.here()?.blocking.get())
    }

    #[setter(_asyncio_future_blocking)]
    fn set_blocking(&self, value: bool) -> PyResult<()> {
        self.state.here()?.blocking.set(value);
        Ok(())
    }

    /// The event loop.
    fn get_loop(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.state.here()?.event_loop.clone_ref(py))
    }

    /// Have `callback` called with this when it is over, in `context`.
    #[pyo3(signature = (callback, /, *, context=None))]
    fn add_done_callback(slf: &Bound<'_, Self>, callback: Py<PyAny>, context: Option<Py<PyAny>>) -> PyResult<()> {
        let py = slf.py();
        let context = match context {
            Some(context) => context,
            None => py.import("contextvars")?.call_method0("copy_context")?.unbind(),
        };
        let callback = Callback { function: callback, context };
        let state = slf.get().state.here()?;
        if state.outcome.get() != Outcome::Pending {
            return call_soon(slf, &callback);
        }
        let mut callbacks = state.callbacks.borrow_mut();
        if callbacks.is_empty() {
            // Mostly there is one task, for as long as a connection is idle.
            callbacks.reserve_exact(1);
        }
        callbacks.push(callback);
        Ok(())
    }

    /// Do not call `callback`; returns how often it would have been.
    #[pyo3(signature = (callback, /))]
    fn remove_done_callback(&self, callback: &Bound<'_, PyAny>) -> PyResult<usize> {
        let state = self.state.here()?;
        let (mut kept, mut removed) = (Vec::new(), 0);
        for known in state.callbacks.take() {
            if known.function.bind(callback.py()).eq(callback)? {
                removed += 1;
            } else {
                kept.push(known);
            }
        }
        state.callbacks.replace(kept);
        Ok(removed)
    }

    /// Cancel the wait. Returns whether it was still going on.
    #[pyo3(signature = (msg=None))]
    pub(crate) fn cancel(slf: &Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        let this = slf.get();
        if this.is_in_step()? {
            // As asyncio has it: a task in its step waits for nothing, and is cancelled when it does again.
            this.state.here()?.is_cancel_asked.set(true);
            return Ok(false);
        }
        if this.is_done()? {
            return Ok(false);
        }
        let old = this.state.here()?.message.replace(msg);
        drop(old);
        this.finish(Outcome::Cancelled)?;
        Self::tell(slf)?;
        Ok(true)
    }

    /// Whether it was cancelled.
    fn cancelled(&self) -> PyResult<bool> {
        Ok(self.state.here()?.outcome.get() == Outcome::Cancelled)
    }

    /// Whether it is over.
    fn done(&self) -> PyResult<bool> {
        self.is_done()
    }

    /// Nothing, or the cancellation.
    fn result(&self, py: Python<'_>) -> PyResult<()> {
        match self.state.here()?.outcome.get() {
            Outcome::Pending => Err(InvalidStateError::new_err("Result is not ready.")),
            Outcome::Done => Ok(()),
            Outcome::Cancelled => Err(self.cancellation(py)?),
        }
    }

    /// Let those who wait go on, with the next turn of the loop.
    #[pyo3(signature = (_result, /))]
    fn set_result(slf: &Bound<'_, Self>, _result: &Bound<'_, PyAny>) -> PyResult<()> {
        Self::wake(slf)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let state = self.state.for_collector();
        if let Ok(message) = state.message.try_borrow() {
            visit.call(&*message)?;
        }
        if let Ok(owner) = state.owner.try_borrow() {
            visit.call(&*owner)?;
        }
        let Ok(callbacks) = state.callbacks.try_borrow() else { return Ok(()) };
        callbacks.iter().try_for_each(|callback| {
            visit.call(&callback.function)?;
            visit.call(&callback.context)
        })
    }

    fn __clear__(&self) {
        if let Some(state) = self.state.if_here() {
            let (callbacks, owner) = (state.callbacks.take(), state.owner.take());
            drop(callbacks);
            drop(owner);
        }
    }
}
