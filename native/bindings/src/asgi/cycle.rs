//! The run of an application for one request, from its call to its end.
//!
//! The cycle is the coroutine of the request's task and drives the application's coroutine. Tools see one coroutine: name and
//! type are the cycle's, the frame and the awaited object are the application's. Task factories and asyncio's debug
//! mode look closer, so they get a coroutine of Python around the cycle (`base/task.rs`).

use std::cell::RefCell;
use std::rc::Rc;

use pyo3::PyTraverseError;
use pyo3::exceptions::{PyAttributeError, PyRuntimeError, PyStopIteration};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::conversation::{Conversation, Facts, Progress, REQUEST, guard};
use super::gate::Ticket;
use super::host::Host;
use crate::base::coroutine::{reused, thrown};
use crate::base::ffi::call::{Turn, in_context, is_coroutine, step};
use crate::base::ffi::slots::Coroutine;
use crate::base::ffi::thread_bound::ThreadBound;
use crate::base::reuse::SpareObject;
use crate::base::shortcuts::Shortcut;
use crate::base::waiter::Waiter;

/// The coroutine of a request's task.
#[pyclass(module = "uvicorn._native", frozen, weakref)]
pub struct RequestResponseCycle {
    /// Its conversation; none while it waits to be used again.
    conversation: ThreadBound<RefCell<Option<Rc<dyn Conversation>>>>,
    run: ThreadBound<Run>,
    /// Where calls of its functions go when they are over, and come from.
    spare_calls: ThreadBound<Rc<SpareObject>>,
}

/// The arguments of the first turn.
pub(super) struct Start {
    pub(super) app: Py<PyAny>,
    pub(super) receive: Py<PyAny>,
    pub(super) send: Py<PyAny>,
}

/// The result of a step that was taken ahead of the task, which collects it in the same call.
enum Step {
    /// The application waits for this.
    Yielded(Py<PyAny>),
    Ended,
    Raised(Box<PyErr>),
}

/// How far the application's call has come.
#[derive(Default)]
struct Run {
    kept: RefCell<Option<Step>>,
    /// The application, until it is called.
    start: RefCell<Option<Start>>,
    /// Its result, until that ends.
    coroutine: RefCell<Option<Py<PyAny>>>,
    /// The task, if it did not end at once: to be forgotten at the end.
    task: RefCell<Option<Py<PyAny>>>,
}

impl RequestResponseCycle {
    /// One that serves nothing yet.
    pub(crate) fn new(spare_calls: Rc<SpareObject>) -> Self {
        Self {
            conversation: ThreadBound::default(),
            run: ThreadBound::default(),
            spare_calls: ThreadBound::new(spare_calls),
        }
    }

    #[inline]
    pub(super) fn spare_calls(&self) -> &ThreadBound<Rc<SpareObject>> {
        &self.spare_calls
    }

    #[inline]
    pub(crate) fn conversation(&self) -> PyResult<Rc<dyn Conversation>> {
        self.conversation.here()?.borrow().clone().ok_or_else(|| PyRuntimeError::new_err("The request is over."))
    }

    /// The name of the Python path's class for the same object.
    pub(super) fn class(&self) -> &'static str {
        let conversation = self.conversation.if_here().and_then(|conversation| conversation.try_borrow().ok()?.clone());
        conversation.map_or(REQUEST, |conversation| conversation.class())
    }

    /// Have it run `app` for `conversation`, with these callables.
    #[inline]
    pub(super) fn prepare(&self, conversation: Rc<dyn Conversation>, start: Start) {
        self.conversation.replace(Some(conversation));
        self.run.start.replace(Some(start));
    }

    /// The attributes of a request that programs read.
    #[cold]
    fn facts(&self, py: Python<'_>) -> PyResult<Facts> {
        let facts = self.conversation()?.facts(py)?;
        facts.ok_or_else(|| PyAttributeError::new_err("a WebSocket has no such attribute"))
    }

    /// It is over, and serves nothing now.
    #[inline]
    pub(super) fn reset(&self) {
        let conversation = self.conversation.take();
        drop(conversation);
    }

    /// `value`, bound to the thread of the same loop. Calls can be made in any thread.
    pub(crate) fn beside<T>(&self, value: T) -> ThreadBound<T> {
        self.conversation.beside(value)
    }

    pub(crate) fn set_task(&self, task: Py<PyAny>) {
        self.run.task.borrow_mut().replace(task);
    }

    /// Whether the application's call is over.
    pub(crate) fn is_over(&self) -> bool {
        self.run.coroutine.borrow().is_none() && self.run.start.borrow().is_none()
    }

    /// Call the application: the coroutine that this gives, or one around whatever else can be awaited.
    fn call<'py>(py: Python<'py>, conversation: &dyn Conversation, start: Start) -> PyResult<Bound<'py, PyAny>> {
        conversation.begin_call(py)?;
        let awaitable = start.app.into_bound(py).call1((conversation.scope(), start.receive, start.send))?;
        if is_coroutine(&awaitable) {
            return Ok(awaitable);
        }
        conversation.host().result_of.bind(py).call1((awaitable,))
    }

    /// The attributes of the application's coroutine: seen from outside it is the one of the task.
    fn attribute(&self, py: Python<'_>, name: &str) -> PyResult<Option<Py<PyAny>>> {
        let coroutine = self.run.here()?.coroutine.borrow().as_ref().map(|coroutine| coroutine.clone_ref(py));
        coroutine.map(|coroutine| coroutine.getattr(py, name)).transpose()
    }

    /// The application's call is over. What it had of the gate can be handed on, or dropped.
    #[inline]
    fn end(&self, py: Python<'_>, conversation: &Rc<dyn Conversation>) -> PyResult<Option<Rc<Ticket>>> {
        let ticket = conversation.end(py)?;
        self.forget_task(py)?;
        Ok(ticket)
    }

    /// Go on with `turn`; after a panic the call is over.
    #[inline]
    pub(crate) fn guarded(
        &self,
        py: Python<'_>,
        turn: impl FnOnce(&Rc<dyn Conversation>) -> PyResult<Option<Py<PyAny>>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let conversation = self.conversation()?;
        match guard(&*conversation, py, "run", || turn(&conversation).map(Some))? {
            Some(waits_for) => Ok(waits_for),
            None => self.close(py).and(self.forget_task(py)).map(|()| None),
        }
    }

    pub(crate) fn turn(&self, py: Python<'_>, conversation: &Rc<dyn Conversation>) -> PyResult<Option<Py<PyAny>>> {
        let kept = self.run.kept.take();
        match kept {
            None => {}
            Some(Step::Yielded(future)) => return Ok(Some(future)),
            Some(Step::Ended) => return Ok(None),
            Some(Step::Raised(error)) => return Err(*error),
        }
        let start = self.run.start.borrow_mut().take();
        let outcome = if let Some(start) = start {
            Self::call(py, &**conversation, start).and_then(|coroutine| {
                self.run.coroutine.borrow_mut().replace(coroutine.clone().unbind());
                step(&coroutine)
            })
        } else {
            let coroutine = self.run.coroutine.borrow().as_ref().map(|coroutine| coroutine.clone_ref(py));
            match coroutine {
                Some(coroutine) => step(coroutine.bind(py)),
                None => return Err(reused()),
            }
        };
        self.settle(py, conversation, outcome)
    }

    /// Continue after a step of the application: pass on the object it waits for, or end.
    #[inline]
    fn settle(
        &self,
        py: Python<'_>,
        conversation: &Rc<dyn Conversation>,
        outcome: PyResult<Turn>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let result = match outcome {
            Ok(Turn::Yielded(future)) => return Ok(Some(future)),
            Ok(Turn::Returned(result)) => Ok(result.into_bound(py)),
            Err(error) => Err(error),
        };
        let coroutine = self.run.coroutine.borrow_mut().take().map(|coroutine| coroutine.into_bound(py));
        drop(coroutine);
        // Whatever goes wrong here, a logger that raises included, the client must not be left waiting.
        let returned = result.is_ok();
        let ended = match result {
            Ok(result) => conversation.returned(py, &result),
            Err(error) => conversation.raised(py, &error),
        };
        let ticket = self.end(py, conversation)?;
        match ticket.filter(|_| returned) {
            None => ended.map(|()| None),
            Some(ticket) => ended.and(ticket.hand_on(py)).map(|()| None),
        }
    }

    fn forget_task(&self, py: Python<'_>) -> PyResult<()> {
        let task = self.run.task.borrow_mut().take();
        if let Some(task) = task {
            let conversation = self.conversation()?;
            let host = conversation.host();
            host.tasks.bind(py).call_method1(&host.names.discard, (task,))?;
        }
        Ok(())
    }

    fn raise(
        &self,
        py: Python<'_>,
        conversation: &Rc<dyn Conversation>,
        kind: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let kept = self.run.kept.take();
        if let Some(kept) = kept {
            return self.cancelled_in_step(py, kept, thrown(kind, value, traceback)?);
        }
        let coroutine = self.run.coroutine.borrow().as_ref().map(|coroutine| coroutine.clone_ref(py));
        let Some(coroutine) = coroutine else {
            let start = self.run.start.take();
            return match start {
                // Not started yet: the application is never called.
                Some(_) => self.settle(py, conversation, thrown(kind, value, traceback).and_then(Err)),
                None => Err(reused()),
            };
        };
        let coroutine = coroutine.bind(py);
        let name = &conversation.host().names.throw;
        let thrown = match value {
            Some(value) => coroutine.call_method1(name, (kind, value, traceback)),
            None => coroutine.call_method1(name, (kind,)),
        };
        let outcome = match thrown {
            Ok(future) => Ok(Turn::Yielded(future.unbind())),
            Err(error) if error.is_instance_of::<PyStopIteration>(py) => {
                error.value(py).getattr("value").map(|value| Turn::Returned(value.unbind()))
            }
            Err(error) => Err(error),
        };
        self.settle(py, conversation, outcome)
    }
}

impl RequestResponseCycle {
    /// The task was cancelled in the step that has just been taken without it: what it does then at the end of a step,
    /// it has to do now.
    #[cold]
    fn cancelled_in_step(&self, py: Python<'_>, kept: Step, error: PyErr) -> PyResult<Option<Py<PyAny>>> {
        let future = match kept {
            Step::Yielded(future) => future,
            // It ends as cancelled.
            Step::Ended => return Err(error),
            Step::Raised(raised) => return Err(*raised),
        };
        let task = self.run.task.borrow().as_ref().map(|task| task.clone_ref(py));
        let Some(task) = task else { return Ok(Some(future)) };
        // It cancels what it is given now, if it is asked to: so it is asked again, and once only.
        let conversation = self.conversation()?;
        let class = conversation.host().task_class.bind(py);
        let asked: usize = class.call_method1("cancelling", (&task,))?.extract()?;
        let uncancel = || class.call_method1("uncancel", (&task,)).map(drop);
        if asked > 0 {
            uncancel()?;
        }
        let message = error.value(py).getattr("args")?.get_item(0).ok();
        class.call_method1("cancel", (&task, message))?;
        if asked == 0 {
            uncancel()?;
        }
        Ok(Some(future))
    }
}

impl Coroutine for RequestResponseCycle {
    #[inline]
    fn turn(slf: &Bound<'_, Self>) -> PyResult<Turn> {
        let (py, cycle) = (slf.py(), slf.get());
        let Some(future) = cycle.guarded(py, |conversation| cycle.turn(py, conversation))? else {
            return Ok(Turn::Returned(py.None()));
        };
        if let Ok(waiter) = future.bind(py).cast_exact::<Waiter>() {
            waiter.get().belongs_to(slf.as_any())?;
        }
        Ok(Turn::Yielded(future))
    }
}

/// Let the task that waits for `waiter` go on now: only inside a callback of the loop, where no task is at work.
pub(crate) fn go_on_at_once(waiter: &Bound<'_, Waiter>, host: &Host) -> PyResult<()> {
    let py = waiter.py();
    if host.settings.shortcuts.take(Shortcut::Steps)
        && let Some(owner) = waiter.get().owner(py)?
        && let Ok(cycle) = owner.cast_exact::<RequestResponseCycle>()
        && cycle.get().step_at_once(py, waiter)?
    {
        return Ok(());
    }
    Waiter::go_on(waiter, host.task_class.bind(py))
}

impl RequestResponseCycle {
    /// Take a step though the task still waits for `waiter`, and leave it waiting for that if the application waits for
    /// the same again: then the task has nothing to learn. Otherwise the result of the step is kept for the step of the
    /// task, which has to follow before anything else happens. Returns whether it need not.
    fn step_at_once(&self, py: Python<'_>, waiter: &Bound<'_, Waiter>) -> PyResult<bool> {
        let task = self.run.here()?.task.borrow().as_ref().map(|task| task.clone_ref(py));
        let (Some(task), Some(context)) = (task, waiter.get().context(py)?) else { return Ok(false) };
        let conversation = self.conversation()?;
        let host = conversation.host();
        let task = task.into_bound(py);
        if !task.get_type().is(&host.task_class) || host.enter_task.bind(py).call1((&host.event_loop, &task)).is_err() {
            return Ok(false);
        }
        let stepped = in_context(&context, || {
            waiter.get().begin_step(task.clone().unbind())?;
            conversation.lend_waiter(Some(waiter.clone().unbind()));
            self.guarded(py, |conversation| self.turn(py, conversation))
        });
        conversation.lend_waiter(None);
        let is_cancel_asked = waiter.get().end_step()?;
        host.leave_task.bind(py).call1((&host.event_loop, &task))?;
        let Ok(outcome) = stepped else { return Ok(false) };
        let kept = match outcome {
            Ok(Some(future)) if future.is(waiter) => {
                if is_cancel_asked && task.getattr("_must_cancel")?.is_truthy()? {
                    Waiter::cancel(waiter, task.getattr("_cancel_message")?.extract()?)?;
                }
                return Waiter::tell(waiter).map(|()| true);
            }
            Ok(Some(future)) => Step::Yielded(future),
            Ok(None) => Step::Ended,
            Err(error) => Step::Raised(Box::new(error)),
        };
        self.run.kept.replace(Some(kept));
        Ok(false)
    }
}

#[pymethods]
impl RequestResponseCycle {
    /// The scope of the request.
    #[getter]
    fn scope(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        Ok(self.conversation()?.scope().clone_ref(py))
    }

    /// Whether the client's disconnect was noticed, even if no call receives it.
    #[getter]
    fn disconnected(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.facts(py)?.disconnected)
    }

    /// Whether the application has started its response.
    #[getter]
    fn response_started(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.facts(py)?.response != Progress::Nothing)
    }

    /// Whether the response is complete.
    #[getter]
    fn response_complete(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.facts(py)?.response == Progress::All)
    }

    /// Whether more of the request's body is to come from the client.
    #[getter]
    fn more_body(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.facts(py)?.more_body)
    }

    /// Whether the client holds its body back until the first `receive()`.
    #[getter]
    fn waiting_for_100_continue(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.facts(py)?.waiting_for_100_continue)
    }

    /// The part of the request's body that has arrived and was not received.
    #[getter]
    fn body(&self, py: Python<'_>) -> PyResult<Py<PyBytes>> {
        Ok(self.facts(py)?.body)
    }

    /// Of the connection, if the request has it for itself.
    #[getter]
    fn transport(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        Ok(self.facts(py)?.transport)
    }

    /// The error log.
    #[getter]
    fn logger(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.conversation()?.host().logger.clone_ref(py))
    }

    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.guarded(py, |conversation| self.turn(py, conversation))
    }

    /// Give the application its turn.
    #[pyo3(signature = (_value, /))]
    fn send(&self, py: Python<'_>, _value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.__next__(py)?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    /// Raise an exception in the application, where it waits.
    #[pyo3(signature = (kind, value=None, traceback=None, /))]
    fn throw(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let turn = |conversation: &Rc<dyn Conversation>| self.raise(py, conversation, kind, value, traceback);
        self.guarded(py, turn)?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    /// End the application's call without an answer, as the interpreter does when a task is thrown away.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let run = self.run.here()?;
        let (start, kept) = (run.start.take(), run.kept.take());
        drop(kept);
        let coroutine = run.coroutine.borrow_mut().take();
        let closed = match (start, coroutine) {
            (None, None) => return Ok(()),
            (_, Some(coroutine)) => coroutine.bind(py).call_method0("close").map(drop),
            (Some(_), None) => Ok(()),
        };
        closed.and(self.end(py, &self.conversation()?).map(drop))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        format!("<coroutine object {} at {:p}>", slf.get().__qualname__(), slf.as_ptr())
    }

    /// That of the method which runs applications in Python.
    #[getter]
    #[expect(clippy::unused_self, reason = "a getter")]
    fn __name__(&self) -> &'static str {
        "run_asgi"
    }

    /// The same with its class.
    #[getter]
    fn __qualname__(&self) -> String {
        format!("{}.run_asgi", self.class())
    }

    /// The frame of the application.
    #[getter]
    fn cr_frame(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.attribute(py, "cr_frame")
    }

    /// The code of the application.
    #[getter]
    fn cr_code(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.attribute(py, "cr_code")
    }

    /// The object that the application awaits.
    #[getter]
    fn cr_await(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.attribute(py, "cr_await")
    }

    /// Where the application's coroutine was made, if that is tracked.
    #[getter]
    fn cr_origin(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.attribute(py, "cr_origin")
    }

    /// Whether the application has its turn.
    #[getter]
    fn cr_running(&self, py: Python<'_>) -> PyResult<bool> {
        self.attribute(py, "cr_running")?.map_or(Ok(false), |running| running.is_truthy(py))
    }

    /// Whether the application waits.
    #[getter]
    fn cr_suspended(&self, py: Python<'_>) -> PyResult<bool> {
        self.attribute(py, "cr_suspended")?.map_or(Ok(false), |suspended| suspended.is_truthy(py))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let (conversation, run) = (self.conversation.for_collector(), self.run.for_collector());
        if let Ok(start) = run.start.try_borrow()
            && let Some(start) = &*start
        {
            visit.call(&start.app)?;
            visit.call(&start.receive)?;
            visit.call(&start.send)?;
        }
        for object in [&run.coroutine, &run.task] {
            if let Ok(object) = object.try_borrow() {
                visit.call(&*object)?;
            }
        }
        if let Ok(kept) = run.kept.try_borrow()
            && let Some(Step::Yielded(future)) = &*kept
        {
            visit.call(future)?;
        }
        let Ok(conversation) = conversation.try_borrow() else { return Ok(()) };
        let Some(conversation) = &*conversation else { return Ok(()) };
        conversation.traverse(&visit)
    }

    fn __clear__(&self) {
        let (Some(conversation), Some(run)) = (self.conversation.if_here(), self.run.if_here()) else { return };
        drop(run.start.take());
        drop(run.kept.take());
        for object in [&run.coroutine, &run.task] {
            let object = object.borrow_mut().take();
            drop(object);
        }
        let conversation = conversation.borrow().clone();
        if let Some(conversation) = conversation {
            conversation.clear();
        }
    }
}
