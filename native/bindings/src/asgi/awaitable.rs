//! The result of `receive()` and `send()`: a [`Call`], which does nothing before it is awaited, like the coroutine of
//! an `async def` function. It can be handed to `create_task`, `gather`, `wait_for` and the like.
//!
//! ```text
//! Created ──first step──▶ Running ──nothing to be waited for──▶ Closed
//!                          ▲   │
//!                          │   ▼
//!                         Waiting ──close(), or forgotten──▶ Closed
//! ```
//!
//! An application mostly awaits a call at once and keeps no reference to it. Its object then serves the next call
//! ([`SpareCall`]).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use pyo3::PyTraverseError;
use pyo3::exceptions::{PyRuntimeError, PyRuntimeWarning, PyStopIteration, PyTypeError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::conversation::{Conversation, Function, REQUEST, Received, Sent, guard};
use super::cycle::RequestResponseCycle;
use crate::base::coroutine::{contained, outcome, reused, thrown};
use crate::base::error::undisturbed;
use crate::base::ffi::call::{Turn, step};
use crate::base::ffi::slots::{self, Awaited, Called, Coroutine, Entry};
use crate::base::ffi::thread_bound::ThreadBound;
use crate::base::reuse::{Reuse, SpareObject};
use crate::base::shortcuts::{self, Shortcut};
use crate::base::waiter::Waiter;

/// `receive` or `send` of one request, as its application has it: called as fast as a function, and known for one whose
/// calls are coroutines.
#[pyclass(module = "uvicorn._native", frozen, weakref)]
pub struct Callable {
    entry: Entry,
    cycle: Py<RequestResponseCycle>,
    function: Function,
}

impl Callable {
    pub(crate) fn new(cycle: &Bound<'_, RequestResponseCycle>, function: Function) -> Self {
        Self { entry: Entry::of::<Self>(), cycle: cycle.clone().unbind(), function }
    }

    fn qualified_name(&self) -> String {
        self.function.qualified_name(self.cycle.get().class())
    }
}

impl Called for Callable {
    fn entry(&self) -> &Entry {
        &self.entry
    }

    #[inline]
    fn takes(&self) -> usize {
        usize::from(self.function == Function::Send)
    }

    #[inline]
    fn recycled<'py>(&self, py: Python<'py>, argument: Option<&Bound<'py, PyAny>>) -> Option<Bound<'py, PyAny>> {
        Call::recycled(self.cycle.bind(py), argument)
    }

    fn make(slf: &Bound<'_, Self>, argument: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        Call::make(slf.get().cycle.bind(slf.py()), argument)
    }

    #[cold]
    fn call(
        slf: &Bound<'_, Self>,
        arguments: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let ours = slf.get();
        let named = keywords.map_or(0, PyDictMethods::len);
        let message = match (ours.function, arguments.len(), named) {
            (Function::Receive, 0, 0) => Some(None),
            (Function::Send, 1, 0) => Some(Some(arguments.get_item(0)?)),
            (Function::Send, 0, 1) => keywords.map_or(Ok(None), |keywords| keywords.get_item("message"))?.map(Some),
            _ => None,
        };
        if let Some(message) = message {
            return Self::make(slf, message.as_ref());
        }
        let name = ours.qualified_name();
        let takes = if ours.function == Function::Send { "one argument, 'message'" } else { "no arguments" };
        Err(PyTypeError::new_err(format!("{name}() takes {takes}")))
    }
}

#[pymethods]
impl Callable {
    #[pyo3(signature = (*arguments, **keywords))]
    fn __call__(
        slf: &Bound<'_, Self>,
        arguments: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        Called::call(slf, arguments, keywords)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let this = slf.get();
        let cycle = this.cycle.bind(slf.py()).repr()?;
        Ok(format!("<bound method {} of {cycle}>", this.qualified_name()))
    }

    /// The name of the function.
    #[getter]
    fn __name__(&self) -> &'static str {
        self.function.name()
    }

    /// The name of the function, with its class.
    #[getter]
    fn __qualname__(&self) -> String {
        self.qualified_name()
    }

    /// Its conversation.
    #[getter]
    fn __self__(&self, py: Python<'_>) -> Py<RequestResponseCycle> {
        self.cycle.clone_ref(py)
    }

    /// Makes `inspect.iscoroutinefunction` accept a callable that behaves as a coroutine function, from 3.12 on.
    #[getter]
    #[expect(clippy::unused_self, reason = "a getter")]
    fn _is_coroutine_marker<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let marked = py.import("types")?.getattr("SimpleNamespace")?.call0()?;
        py.import("inspect")?.call_method1("markcoroutinefunction", (&marked,))?;
        marked.getattr("_is_coroutine_marker")
    }

    /// And `asyncio.iscoroutinefunction`, before.
    #[getter]
    #[expect(clippy::unused_self, reason = "a getter")]
    fn _is_coroutine<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("asyncio.coroutines")?.getattr("_is_coroutine")
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.cycle)
    }
}

/// The operation that a call has yet to perform.
enum Operation {
    Receive,
    Send(Py<PyAny>),
    /// Receive the final message, because no other can come.
    Last,
    /// Nothing: the awaited object performs it.
    PassedOn,
}

/// Where a call waits, or the object that performs its operation.
struct Wait {
    source: Source,
    place: Option<InLine>,
}

/// Gives the task something to wait for.
enum Source {
    /// A future, or any other awaitable.
    Iterator(Py<PyAny>),
    Waiter(Py<Waiter>),
    /// It has ended, and cannot be asked again.
    Over,
}

impl Source {
    /// The object for the task to wait for; `None` if the wait is over.
    #[inline]
    fn step(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match self {
            Self::Iterator(iterator) => match step(iterator.bind(py))? {
                Turn::Yielded(future) => Ok(Some(future)),
                Turn::Returned(_) => Ok(None),
            },
            Self::Waiter(waiter) if waiter.get().look(py)? => Ok(None),
            Self::Waiter(waiter) => Ok(Some(waiter.clone_ref(py).into_any())),
            Self::Over => Ok(None),
        }
    }

    /// The same when `error` interrupts the wait.
    fn throw(&self, py: Python<'_>, error: PyErr) -> PyResult<Option<Py<PyAny>>> {
        let Self::Iterator(iterator) = self else { return Err(error) };
        match iterator.bind(py).call_method1("throw", (error,)) {
            Ok(future) => Ok(Some(future.unbind())),
            Err(error) if error.is_instance_of::<PyStopIteration>(py) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self {
            Self::Iterator(iterator) => iterator.bind(py).call_method0("close").map(drop),
            Self::Waiter(_) | Self::Over => Ok(()),
        }
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Iterator(iterator) => visit.call(iterator),
            Self::Waiter(waiter) => visit.call(waiter),
            Self::Over => Ok(()),
        }
    }
}

/// A place in one of the lines of a conversation. Leaving it, in whatever way, gives the next call its turn.
struct InLine {
    conversation: Rc<dyn Conversation>,
    function: Function,
    ticket: u64,
}

impl Drop for InLine {
    fn drop(&mut self) {
        let _ = Python::try_attach(|py| {
            undisturbed(py, || {
                self.conversation.line(self.function).leave(self.ticket);
                self.conversation.end_wait(py, self.function)?;
                self.conversation.advance(py, self.function)
            });
        });
    }
}

impl Wait {
    /// Queue up, or queue up again in the same place.
    fn new(
        py: Python<'_>,
        conversation: &Rc<dyn Conversation>,
        function: Function,
        place: Option<InLine>,
    ) -> PyResult<Self> {
        let core = conversation.host();
        let (source, future) = if let Some(waiter) = conversation.waiter(py)? {
            (Source::Waiter(waiter.clone_ref(py)), waiter.into_any())
        } else {
            let future = core.event_loop.bind(py).call_method0(&core.names.create_future)?;
            (Source::Iterator(future.call_method0(&core.names.dunder_await)?.unbind()), future.unbind())
        };
        let line = conversation.line(function);
        let place = if let Some(place) = place {
            line.wait_again(place.ticket, future);
            place
        } else {
            InLine { conversation: conversation.clone(), function, ticket: line.join(future) }
        };
        conversation.clone().begin_wait(py, function)?;
        conversation.advance(py, function)?;
        Ok(Self { source, place: Some(place) })
    }

    /// Wait for `future`, in the same place.
    fn on(future: &Bound<'_, PyAny>, place: InLine) -> PyResult<Self> {
        let iterator = future.call_method0("__await__")?.unbind();
        Ok(Self { source: Source::Iterator(iterator), place: Some(place) })
    }
}

/// Lets the loop run once.
fn one_turn(py: Python<'_>) -> PyResult<Py<PyAny>> {
    py.import("asyncio")?.call_method1("sleep", (0,))?.call_method0("__await__").map(Bound::unbind)
}

/// The progress of a call.
#[derive(Default)]
enum Stage {
    Created {
        cycle: Py<RequestResponseCycle>,
        /// The argument of `send()`.
        message: Option<Py<PyAny>>,
    },
    Running,
    Waiting(Box<Waiting>),
    #[default]
    Closed,
}

struct Waiting {
    conversation: Rc<dyn Conversation>,
    operation: Operation,
    wait: Wait,
}

struct State {
    function: Cell<Function>,
    stage: RefCell<Stage>,
}

/// A call of `receive()` or `send()`: a coroutine.
#[pyclass(module = "uvicorn._native", frozen)]
pub struct Call {
    state: ThreadBound<State>,
}

impl Call {
    /// A call of a function of `cycle`, with a message if it takes one. May be made in any thread.
    pub(crate) fn make(
        cycle: &Bound<'_, RequestResponseCycle>,
        message: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let state = State { function: Cell::new(Function::Receive), stage: RefCell::default() };
        state.begin(cycle, message);
        Ok(Py::new(cycle.py(), Self { state: cycle.get().beside(state) })?.into_any())
    }

    /// The same, made from a forgotten one if there is one.
    #[inline]
    pub(crate) fn recycled<'py>(
        cycle: &Bound<'py, RequestResponseCycle>,
        message: Option<&Bound<'py, PyAny>>,
    ) -> Option<Bound<'py, PyAny>> {
        let spare = cycle.get().spare_calls().if_here()?.take(cycle.py())?;
        spare.cast_exact::<Self>().ok()?.get().state.if_here()?.begin(cycle, message);
        Some(spare)
    }

    /// A turn of the coroutine.
    #[inline]
    pub(crate) fn turn(slf: &Bound<'_, Self>) -> PyResult<Turn> {
        let py = slf.py();
        let state = slf.get().state.here()?;
        let (cycle, message) = match state.stage.replace(Stage::Running) {
            Stage::Created { cycle, message } => (cycle.into_bound(py), message),
            stage => return state.resume(py, stage),
        };
        let conversation = cycle.get().conversation().inspect_err(|_| state.set(Stage::Closed))?;
        // Bound, because to let go of it costs less then.
        let Some(message) = message.map(|message| message.into_bound(py)) else {
            return state.start(py, &conversation, None);
        };
        let sent = conversation.send(&message, false);
        state.set(Stage::Closed);
        match sent.map_err(|error| contained(py, error))? {
            Sent::Done => cycle.get().spare_calls().give(slf.as_any()),
            Sent::PassedOn(rest) => return state.pass_on(py, &cycle.get().conversation()?, rest),
            Sent::Later => return state.start(py, &cycle.get().conversation()?, Some(message.unbind())),
        }
        Ok(Turn::Returned(py.None()))
    }
}

impl State {
    #[inline]
    fn begin(&self, cycle: &Bound<'_, RequestResponseCycle>, message: Option<&Bound<'_, PyAny>>) {
        self.function.set(if message.is_none() { Function::Receive } else { Function::Send });
        let message = message.map(|message| message.clone().unbind());
        self.set(Stage::Created { cycle: cycle.clone().unbind(), message });
    }

    #[inline]
    fn set(&self, stage: Stage) {
        match self.stage.replace(stage) {
            // They are empty: no destructor needs to run.
            old @ (Stage::Running | Stage::Closed) => std::mem::forget(old),
            old => drop(old),
        }
    }

    /// Take a step; if it does not end in waiting, it is the last one. After a panic `send()` returns as if the client
    /// was gone, and `receive()` reports that it is.
    #[inline]
    fn guarded(
        &self,
        py: Python<'_>,
        conversation: &Rc<dyn Conversation>,
        body: impl FnOnce() -> PyResult<Option<Turn>>,
    ) -> PyResult<Turn> {
        let function = self.function.get();
        let turn = guard(&**conversation, py, function.name(), body);
        if !matches!(turn, Ok(Some(Turn::Yielded(_)))) {
            self.set(Stage::Closed);
        }
        match turn.map_err(|error| contained(py, error))? {
            Some(turn) => Ok(turn),
            None if function == Function::Send => Ok(Turn::Returned(py.None())),
            None => Ok(Turn::Returned(conversation.last_message(py)?.into_any().unbind())),
        }
    }

    /// Go on with a call that is not at its beginning.
    #[cold]
    fn resume(&self, py: Python<'_>, stage: Stage) -> PyResult<Turn> {
        let Waiting { conversation, operation, wait } = *self.waiting(stage)?;
        self.guarded(py, &conversation, || self.go_on(py, &conversation, operation, Some(wait)))
    }

    /// The object it waits for, unless it does not wait.
    fn waiting(&self, stage: Stage) -> PyResult<Box<Waiting>> {
        match stage {
            Stage::Waiting(waiting) => Ok(waiting),
            Stage::Running => Err(PyValueError::new_err("coroutine already executing")),
            Stage::Created { .. } | Stage::Closed => {
                self.set(Stage::Closed);
                Err(reused())
            }
        }
    }

    /// Begin an operation that may have to wait.
    #[cold]
    fn start(&self, py: Python<'_>, conversation: &Rc<dyn Conversation>, message: Option<Py<PyAny>>) -> PyResult<Turn> {
        self.set(Stage::Running);
        let operation = message.map_or(Operation::Receive, Operation::Send);
        self.guarded(py, conversation, || self.go_on(py, conversation, operation, None))
    }

    /// Let `rest` complete the call.
    #[cold]
    fn pass_on(&self, py: Python<'_>, conversation: &Rc<dyn Conversation>, rest: Py<PyAny>) -> PyResult<Turn> {
        self.set(Stage::Running);
        let wait = Some(Wait { source: Source::Iterator(rest), place: None });
        self.guarded(py, conversation, || self.go_on(py, conversation, Operation::PassedOn, wait))
    }

    /// Perform the operation as soon as possible.
    fn go_on(
        &self,
        py: Python<'_>,
        conversation: &Rc<dyn Conversation>,
        mut operation: Operation,
        mut wait: Option<Wait>,
    ) -> PyResult<Option<Turn>> {
        loop {
            // The place is kept until the operation is done: calls made meanwhile come later.
            let mut place = None;
            if let Some(waited) = wait.take() {
                if let Some(future) = waited.source.step(py)? {
                    return Ok(Some(self.wait(conversation, operation, waited, future)));
                }
                place = waited.place;
                if let Some(held) = place.take() {
                    if let Some(future) = conversation.resume(py, held.function)? {
                        wait = Some(Wait::on(&future, held)?);
                        continue;
                    }
                    place = Some(held);
                }
            }
            (operation, wait) = match operation {
                Operation::Receive => match conversation.receive(py, place.is_some())? {
                    Received::Message(message) => return Ok(Some(Turn::Returned(message.into_any().unbind()))),
                    Received::Nothing => {
                        (Operation::Receive, Some(Wait::new(py, conversation, Function::Receive, place)?))
                    }
                    Received::Last => {
                        (Operation::Last, Some(Wait { source: Source::Iterator(one_turn(py)?), place: None }))
                    }
                },
                Operation::Send(message) => match conversation.clone().send(message.bind(py), place.is_some())? {
                    Sent::Done => return Ok(Some(Turn::Returned(py.None()))),
                    Sent::PassedOn(rest) => {
                        (Operation::PassedOn, Some(Wait { source: Source::Iterator(rest), place: None }))
                    }
                    Sent::Later => {
                        let message = match &place {
                            Some(_) => message,
                            None => conversation.copy(message.bind(py))?.unbind(),
                        };
                        (Operation::Send(message), Some(Wait::new(py, conversation, Function::Send, place)?))
                    }
                },
                // The last event of `receive()`, once there is no other.
                Operation::Last => return Ok(None),
                Operation::PassedOn => return Ok(Some(Turn::Returned(py.None()))),
            };
        }
    }

    fn wait(&self, conversation: &Rc<dyn Conversation>, operation: Operation, wait: Wait, future: Py<PyAny>) -> Turn {
        self.stage.replace(Stage::Waiting(Box::new(Waiting { conversation: conversation.clone(), operation, wait })));
        Turn::Yielded(future)
    }

    /// Raise `error` where this waits, if it does.
    fn throw(&self, py: Python<'_>, error: PyErr) -> PyResult<Turn> {
        let stage = self.stage.replace(Stage::Running);
        if matches!(stage, Stage::Created { .. }) {
            self.set(Stage::Closed);
            return Err(error);
        }
        let Waiting { conversation, operation, mut wait } = *self.waiting(stage)?;
        self.guarded(py, &conversation, || {
            if let Some(future) = wait.source.throw(py, error)? {
                return Ok(Some(self.wait(&conversation, operation, wait, future)));
            }
            wait.source = Source::Over;
            self.go_on(py, &conversation, operation, Some(wait))
        })
    }

    /// Warn if the call was dropped without ever being awaited: the program has forgotten an `await`.
    fn abandon(&self) {
        let stage = self.stage.take();
        let Stage::Created { cycle, .. } = &stage else { return };
        let _ = Python::try_attach(|py| {
            let name = self.function.get().qualified_name(cycle.get().class());
            let text = format!("coroutine '{name}' was never awaited");
            undisturbed(py, || {
                let text = std::ffi::CString::new(text)?;
                PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 1)
            });
        });
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(state) = self.state.if_here() {
            state.abandon();
        }
    }
}

impl Coroutine for Call {
    #[inline]
    fn turn(slf: &Bound<'_, Self>) -> PyResult<Turn> {
        Self::turn(slf)
    }
}

impl Awaited for Call {
    #[inline]
    fn is_awaited(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let state = slf.get().state.here()?;
        Ok(state.stage.try_borrow().is_ok_and(|stage| matches!(&*stage, Stage::Waiting(_) | Stage::Running)))
    }

    #[cold]
    fn check_awaited(slf: &Bound<'_, Self>) -> PyResult<()> {
        if Self::is_awaited(slf)? {
            return Err(PyRuntimeError::new_err("coroutine is being awaited already"));
        }
        Ok(())
    }
}

/// Give the interpreter direct access to the slots of every request's objects. Only while the module is being made.
pub(crate) fn install_slots(py: Python<'_>) -> PyResult<()> {
    if !shortcuts::is_taken(Shortcut::Slots) {
        return Ok(());
    }
    slots::install_turns::<RequestResponseCycle>(py);
    slots::install_awaits::<Call>(py);
    let cycle = Bound::new(py, RequestResponseCycle::new(Rc::new(SpareObject::new(Reuse::Off))))?;
    slots::install_entry(&Bound::new(py, Callable::new(&cycle, Function::Send))?);
    Ok(())
}

#[pymethods]
impl Call {
    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        Ok(format!("<coroutine object {} at {:p}>", slf.get().__qualname__()?, slf.as_ptr()))
    }

    /// The name of the function.
    #[getter]
    fn __name__(&self) -> PyResult<&'static str> {
        Ok(self.state.here()?.function.get().name())
    }

    /// The name of the function, with its class.
    #[getter]
    fn __qualname__(&self) -> PyResult<String> {
        let state = self.state.here()?;
        let class = match state.stage.try_borrow().as_deref() {
            Ok(Stage::Created { cycle, .. }) => cycle.get().class(),
            Ok(Stage::Waiting(waiting)) => waiting.conversation.class(),
            _ => REQUEST,
        };
        Ok(state.function.get().qualified_name(class))
    }

    fn __await__(slf: &Bound<'_, Self>) -> PyResult<Py<Self>> {
        Self::check_awaited(slf).map(|()| slf.clone().unbind())
    }

    fn __iter__(slf: &Bound<'_, Self>) -> PyResult<Py<Self>> {
        Self::__await__(slf)
    }

    fn __next__(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        outcome(Self::turn(slf)?)
    }

    /// Take a turn.
    #[pyo3(signature = (value, /))]
    fn send(slf: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        if !value.is_none() && matches!(&*slf.get().state.here()?.stage.borrow(), Stage::Created { .. }) {
            return Err(PyTypeError::new_err("can't send non-None value to a just-started coroutine"));
        }
        Self::__next__(slf)
    }

    /// Raise an exception where this waits.
    #[pyo3(signature = (kind, value=None, traceback=None, /))]
    fn throw(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        outcome(self.state.here()?.throw(py, thrown(kind, value, traceback)?)?)
    }

    /// Stop waiting.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let state = self.state.here()?;
        match state.stage.take() {
            Stage::Waiting(waiting) => waiting.wait.source.close(py),
            Stage::Running => {
                state.stage.replace(Stage::Running);
                Err(PyValueError::new_err("coroutine already executing"))
            }
            Stage::Created { .. } | Stage::Closed => Ok(()),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(stage) = self.state.for_collector().stage.try_borrow() else { return Ok(()) };
        match &*stage {
            Stage::Created { cycle, message } => {
                visit.call(cycle)?;
                visit.call(message)
            }
            Stage::Waiting(waiting) => {
                waiting.wait.source.traverse(&visit)?;
                match &waiting.operation {
                    Operation::Send(message) => visit.call(message),
                    Operation::Receive | Operation::Last | Operation::PassedOn => Ok(()),
                }
            }
            Stage::Running | Stage::Closed => Ok(()),
        }
    }

    fn __clear__(&self) {
        if let Some(state) = self.state.if_here() {
            state.abandon();
        }
    }
}
