//! What `receive()` and `send()` return: objects that can be awaited, and handed to `create_task`, `wait_for`, `gather`
//! and `ensure_future`, since they are coroutines to `collections.abc`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use pyo3::PyTraverseError;
use pyo3::exceptions::{PyStopIteration, PyTypeError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::guard;
use crate::ffi::{ThreadBound, Turn, step};
use crate::http::cycle::Exchange;

/// The exception that `throw(type, value, traceback)` or `throw(value)` means.
fn thrown(kind: &Bound<'_, PyAny>, value: Option<&Bound<'_, PyAny>>) -> PyErr {
    match value {
        Some(value) if !value.is_none() => PyErr::from_value(value.clone()),
        _ => PyErr::from_value(kind.clone()),
    }
}

/// The result of a `send()` that is done already: awaiting it takes no time. One object serves all.
#[pyclass(module = "uvicorn._native", frozen)]
pub struct Finished;

#[pymethods]
impl Finished {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[expect(clippy::unused_self, reason = "a slot of the class")]
    fn __next__(&self) -> Option<Py<PyAny>> {
        None
    }

    /// Take a turn, which ends it.
    #[expect(clippy::unused_self, reason = "a method of every coroutine")]
    #[pyo3(signature = (_value, /))]
    fn send(&self, _value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        Err(PyStopIteration::new_err(()))
    }

    /// Raise `value` here.
    #[expect(clippy::unused_self, reason = "a method of every coroutine")]
    #[pyo3(signature = (kind, value=None, _traceback=None, /))]
    fn throw(
        &self,
        kind: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        Err(thrown(kind, value))
    }

    /// Nothing is open.
    #[expect(clippy::unused_self, reason = "a method of every coroutine")]
    fn close(&self) {}
}

/// The iterator of a future that is being waited for.
#[derive(Default)]
struct Waiting(RefCell<Option<Py<PyAny>>>);

impl Waiting {
    /// Let the future have its turn: what the task must wait for, or `None` when the wait is over.
    fn step(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let Some(iterator) = self.0.borrow().as_ref().map(|iterator| iterator.clone_ref(py)) else { return Ok(None) };
        let turn = step(iterator.bind(py));
        if !matches!(turn, Ok(Turn::Yielded(_))) {
            self.0.borrow_mut().take();
        }
        match turn? {
            Turn::Yielded(future) => Ok(Some(future)),
            Turn::Returned(_) => Ok(None),
        }
    }

    fn start(&self, future: &Bound<'_, PyAny>) -> PyResult<()> {
        let iterator = future.call_method0("__await__")?;
        self.0.borrow_mut().replace(iterator.unbind());
        Ok(())
    }

    /// The wait is cut short by an exception.
    fn throw(&self, py: Python<'_>, error: PyErr) -> PyErr {
        let iterator = self.0.borrow_mut().take();
        if let Some(iterator) = iterator
            && let Err(raised) = iterator.bind(py).call_method1("throw", (error.clone_ref(py),))
        {
            return raised;
        }
        error
    }

    fn close(&self) {
        let iterator = self.0.borrow_mut().take();
        drop(iterator);
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.0.try_borrow().map_or(Ok(()), |iterator| visit.call(&*iterator))
    }
}

/// A `receive()`: nothing happens before it is awaited.
#[pyclass(module = "uvicorn._native", frozen)]
pub struct Received {
    exchange: ThreadBound<Rc<Exchange>>,
    waiting: ThreadBound<Waiting>,
}

impl Received {
    pub(crate) fn new(exchange: Rc<Exchange>) -> Self {
        Self { exchange: ThreadBound::new(exchange), waiting: ThreadBound::new(Waiting::default()) }
    }

    fn turn(&self, py: Python<'_>) -> PyResult<Receive> {
        loop {
            if let Some(future) = self.waiting.step(py)? {
                return Ok(Receive::Waits(future));
            }
            if let Some(message) = self.exchange.receive(py)? {
                return Ok(Receive::Message(message.unbind()));
            }
            self.waiting.start(&self.exchange.wait_for_message(py)?)?;
        }
    }
}

/// What a turn of a `receive()` led to.
#[derive(Default)]
enum Receive {
    Waits(Py<PyAny>),
    Message(Py<PyDict>),
    /// The connection is no more.
    #[default]
    Gone,
}

#[pymethods]
impl Received {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let connection = self.exchange.here()?.connection();
        match guard(py, connection, "receive", |_| self.turn(py))? {
            Receive::Waits(future) => Ok(Some(future)),
            Receive::Message(message) => Err(PyStopIteration::new_err((message,))),
            Receive::Gone => {
                Err(PyStopIteration::new_err((connection.core.names.disconnect.bind(py).copy()?.unbind(),)))
            }
        }
    }

    /// Take a turn.
    #[pyo3(signature = (_value, /))]
    fn send(&self, py: Python<'_>, _value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.__next__(py)?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    /// Raise an exception where this waits.
    #[pyo3(signature = (kind, value=None, _traceback=None, /))]
    fn throw(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        Err(self.waiting.here()?.throw(py, thrown(kind, value)))
    }

    /// Stop waiting.
    fn close(&self) -> PyResult<()> {
        self.waiting.here()?.close();
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.waiting.for_collector().traverse(&visit)
    }

    fn __clear__(&self) {
        if let Some(waiting) = self.waiting.if_here() {
            waiting.close();
        }
    }
}

/// A `send()` that waits until the transport takes more, and then sends.
#[pyclass(module = "uvicorn._native", frozen)]
pub struct Sending {
    exchange: ThreadBound<Rc<Exchange>>,
    message: ThreadBound<RefCell<Option<Py<PyAny>>>>,
    waiting: ThreadBound<Waiting>,
    /// What is waited for does the rest.
    passed_on: ThreadBound<Cell<bool>>,
}

impl Sending {
    pub(crate) fn new(exchange: Rc<Exchange>, message: Py<PyAny>) -> Self {
        Self {
            exchange: ThreadBound::new(exchange),
            message: ThreadBound::new(RefCell::new(Some(message))),
            waiting: ThreadBound::new(Waiting::default()),
            passed_on: ThreadBound::new(Cell::new(false)),
        }
    }

    fn turn(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        loop {
            if let Some(future) = self.waiting.step(py)? {
                return Ok(Some(future));
            }
            if self.passed_on.get() {
                return Ok(None);
            }
            if let Some(future) = self.exchange.connection().wait_until_writable(py)? {
                self.waiting.start(&future)?;
                continue;
            }
            let Some(message) = self.message.borrow_mut().take() else {
                return Err(PyTypeError::new_err("cannot reuse already awaited coroutine"));
            };
            let Some(rest) = Exchange::send(&self.exchange, message.bind(py))? else { return Ok(None) };
            self.passed_on.set(true);
            self.waiting.start(rest.bind(py))?;
        }
    }
}

#[pymethods]
impl Sending {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        guard(py, self.exchange.here()?.connection(), "send", |_| self.turn(py))
    }

    /// Take a turn.
    #[pyo3(signature = (_value, /))]
    fn send(&self, py: Python<'_>, _value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.__next__(py)?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    /// Raise an exception where this waits.
    #[pyo3(signature = (kind, value=None, _traceback=None, /))]
    fn throw(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        Err(self.waiting.here()?.throw(py, thrown(kind, value)))
    }

    /// Stop waiting.
    fn close(&self) -> PyResult<()> {
        self.waiting.here()?.close();
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Ok(message) = self.message.for_collector().try_borrow() {
            visit.call(&*message)?;
        }
        self.waiting.for_collector().traverse(&visit)
    }

    fn __clear__(&self) {
        if let Some(waiting) = self.waiting.if_here() {
            waiting.close();
        }
    }
}
