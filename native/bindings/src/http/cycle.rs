//! The ASGI side of one HTTP request and its response: `receive()`, `send()` and the run of the application.
//!
//! ```text
//! IDLE ──http.response.start──▶ STARTED ──last http.response.body──▶ COMPLETE
//!                                ▲   │ │                                ▲
//!           a file, while it is  │   ▼ └─ if trailers were announced ─▶ TRAILERS
//!                    being sent  SENDING
//! ```
//!
//! [`Exchange`] is the state, shared with the connection. [`RequestResponseCycle`] is the coroutine that the task runs:
//! it gives the application its turns and sees to it that the response ends, well or badly.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use pyo3::PyTraverseError;
use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use wire::h1::response::Trailers;
use wire::texts;

use crate::access::format::EntryCell;
use crate::awaitable::{Call, Callable, Function, reused, thrown};
use crate::error::guard;
use crate::ffi::{ThreadBound, Turn, step};
use crate::http::connection::{Connection, Follows, copy_of};
use crate::http::extension;
use crate::http::loan::Loan;
use crate::http::message::Message;
use crate::line::{Line, WOKEN_TOGETHER};
use crate::pool::{Figures, Stats};

/// How far the response has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Idle,
    Started,
    /// A file is being sent: nothing else may come between its bytes.
    Sending,
    /// The body is complete, and trailers are to follow.
    Trailers,
    Complete,
}

/// The part of the request body that the application has not taken yet.
enum Body {
    Empty,
    /// One piece, as a Python object already.
    Piece(Py<PyBytes>),
    Pieces(Vec<u8>),
}

/// One request, from its head to the end of the application's call.
pub(crate) struct Exchange {
    connection: Rc<Connection>,
    pub(crate) scope: Py<PyDict>,
    loan: Box<Loan>,
    state: Cell<State>,
    body: RefCell<Body>,
    body_length: Cell<usize>,
    /// More of the request body is to come from the client.
    more_body: Cell<bool>,
    /// The client waits for `100 Continue`, which the first `receive()` sends.
    expects_continue: Cell<bool>,
    /// The application was given the last piece of the body.
    ended: Cell<bool>,
    /// `receive()` has only `http.disconnect` left to give; the response can still be sent.
    peer_gone: Cell<bool>,
    /// Nothing can be sent any more.
    disconnected: Cell<bool>,
    /// Those that have come, if the application announced any.
    pub(crate) trailers: Cell<Option<Box<Trailers>>>,
    /// Of the access log, if that has a format of the user's.
    pub(crate) entry: EntryCell,
    /// `receive()` calls that wait.
    receivers: Line,
}

impl Exchange {
    pub(crate) fn new(
        connection: Rc<Connection>,
        scope: Py<PyDict>,
        loan: Box<Loan>,
        more_body: bool,
        expects_continue: bool,
    ) -> Self {
        Self {
            connection,
            scope,
            loan,
            state: Cell::new(State::Idle),
            body: RefCell::new(Body::Empty),
            body_length: Cell::new(0),
            more_body: Cell::new(more_body),
            expects_continue: Cell::new(expects_continue),
            ended: Cell::new(false),
            peer_gone: Cell::new(false),
            disconnected: Cell::new(false),
            trailers: Cell::new(None),
            entry: EntryCell::new(),
            receivers: Line::default(),
        }
    }

    /// The scope, and what was lent with it.
    pub(crate) fn into_loan(self) -> (Py<PyDict>, Box<Loan>) {
        (self.scope, self.loan)
    }

    pub(crate) fn connection(&self) -> &Rc<Connection> {
        &self.connection
    }

    #[inline]
    pub(crate) fn state(&self) -> State {
        self.state.get()
    }

    pub(crate) fn set_state(&self, state: State) {
        self.state.set(state);
    }

    pub(crate) fn is_disconnected(&self) -> bool {
        self.disconnected.get()
    }

    // Told by the connection.

    /// Add a piece of the request body; how much waits for the application then.
    pub(crate) fn feed(&self, py: Python<'_>, data: &[u8]) -> usize {
        {
            let mut body = self.body.borrow_mut();
            match &mut *body {
                Body::Empty => *body = Body::Piece(PyBytes::new(py, data).unbind()),
                Body::Piece(first) => *body = Body::Pieces([first.as_bytes(py), data].concat()),
                Body::Pieces(pieces) => pieces.extend_from_slice(data),
            }
        }
        let length = self.body_length.get() + data.len();
        self.body_length.set(length);
        length
    }

    /// How much of the body waits for the application.
    pub(crate) fn body_length(&self) -> usize {
        self.body_length.get()
    }

    /// The request body is complete.
    pub(crate) fn feed_end(&self) {
        self.more_body.set(false);
    }

    /// The client is gone, or is treated as if it were; `reachable`: it can still be sent the response.
    pub(crate) fn disconnect(&self, py: Python<'_>, reachable: bool) -> PyResult<()> {
        self.peer_gone.set(true);
        if !reachable {
            self.disconnected.set(true);
            self.end_entry(py);
        }
        self.wake(py)
    }

    /// Log the response, if its end is what that waits for.
    fn end_entry(&self, py: Python<'_>) {
        if let Some(log) = &self.connection.core.formatted {
            log.end(py, self);
        }
    }

    /// Let waiting `receive()` calls look again.
    #[inline]
    pub(crate) fn wake(&self, py: Python<'_>) -> PyResult<()> {
        if self.receivers.is_empty() { Ok(()) } else { self.advance(py, Function::Receive) }
    }

    /// Where calls of `function` wait for their turn.
    pub(crate) fn line(&self, function: Function) -> &Line {
        match function {
            Function::Receive => &self.receivers,
            Function::Send => &self.connection.writers,
        }
    }

    /// Let the first of those who wait have its turn, if there is something for it.
    pub(crate) fn advance(&self, py: Python<'_>, function: Function) -> PyResult<()> {
        let count = match function {
            Function::Receive if self.is_at_end() => WOKEN_TOGETHER,
            Function::Receive if self.has_message() => 1,
            Function::Send if !self.connection.is_write_paused() => WOKEN_TOGETHER,
            Function::Receive | Function::Send => return Ok(()),
        };
        self.line(function).advance(py, &self.connection.core.names, count)
    }

    // The application's side.

    /// Whether all that is left to be received is that the client is gone.
    #[inline]
    fn is_at_end(&self) -> bool {
        self.state.get() == State::Complete || (self.peer_gone.get() && (self.ended.get() || self.more_body.get()))
    }

    #[inline]
    fn has_message(&self) -> bool {
        self.is_at_end() || !self.ended.get() && (self.body_length.get() > 0 || !self.more_body.get())
    }

    /// `{"type": "http.disconnect"}`
    pub(crate) fn disconnect_message<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.connection.core.names.disconnect.bind(py).copy()
    }

    /// The next message, or `None`: wait first. `in_turn`: this call has waited for its turn, and has it.
    pub(crate) fn receive<'py>(&self, py: Python<'py>, in_turn: bool) -> PyResult<Option<Bound<'py, PyDict>>> {
        let names = &self.connection.core.names;
        if self.expects_continue.replace(false) && self.state.get() == State::Idle && !self.peer_gone.get() {
            self.connection.send_continue(py)?;
        }
        if self.is_at_end() {
            return self.disconnect_message(py).map(Some);
        }
        if !self.has_message() || !(in_turn || self.receivers.is_empty()) {
            self.connection.want_body(py)?;
            return Ok(None);
        }
        let message = names.empty_request.bind(py).copy()?;
        let body = self.body.replace(Body::Empty);
        self.body_length.set(0);
        match body {
            Body::Empty => {}
            Body::Piece(piece) => message.set_item(&names.body, piece)?,
            Body::Pieces(pieces) => message.set_item(&names.body, PyBytes::new(py, &pieces))?,
        }
        if self.more_body.get() {
            message.set_item(&names.more_body, true)?;
            self.connection.want_body(py)?;
        } else {
            self.ended.set(true);
        }
        Ok(Some(message))
    }

    /// Whether a `send()` must wait, because of the transport or, unless it has its turn, behind others. One behind the end of
    /// the response is refused at once.
    #[inline]
    pub(crate) fn must_wait_to_send(&self, in_turn: bool) -> bool {
        let connection = &self.connection;
        (connection.is_write_paused() || !(in_turn || connection.writers.is_empty()))
            && !self.disconnected.get()
            && self.state.get() != State::Complete
    }

    /// Take one message of the response from the application. What this gives, if anything, is an iterator that goes on
    /// with it.
    #[inline]
    pub(crate) fn send(this: &Rc<Self>, message: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
        if this.disconnected.get() && this.state.get() != State::Complete {
            return Ok(None);
        }
        let py = message.py();
        let names = &this.connection.core.names;
        let parts = Message::read(message, names)?;
        let kind = parts.kind(names)?;
        match this.state.get() {
            State::Idle if this.connection.core.response_start.is(kind)? => {
                this.connection.start_response(py, this, &parts)?;
                this.state.set(State::Started);
                if parts.trailers()? && this.connection.core.settings.offers("http.response.trailers") {
                    this.trailers.set(Some(Box::default()));
                }
            }
            State::Started if this.connection.core.response_body.is(kind)? => {
                let follows = match parts.more_body()? {
                    true => Follows::Body,
                    false if this.expects_trailers() => Follows::Trailers,
                    false => Follows::Nothing,
                };
                // What is not `bytes` is copied: the application may use its buffer again as soon as this returns.
                let copy;
                let body = match parts.body.as_ref().map(|body| (body, body.cast_exact::<PyBytes>())) {
                    None => None,
                    Some((_, Ok(bytes))) => Some(bytes),
                    Some((other, Err(_))) => {
                        copy = copy_of(other)?;
                        Some(&copy)
                    }
                };
                if this.state.get() != State::Started {
                    // Reading the message ran code of the application, which has sent something meanwhile.
                    return Err(extension::out_of_order(this.state.get(), kind));
                }
                this.connection.send_body(py, body, follows)?;
                if let Some(entry) = this.entry.get() {
                    entry.count(body.map_or(0, |body| body.as_bytes().len()));
                }
                match follows {
                    Follows::Body => {}
                    Follows::Trailers => this.await_trailers(py)?,
                    Follows::Nothing => this.complete(py)?,
                }
            }
            _ => return extension::send(this, message, kind),
        }
        Ok(None)
    }

    /// The body is complete, of which the last piece was a file.
    pub(crate) fn end_body(&self, py: Python<'_>) -> PyResult<()> {
        if self.expects_trailers() {
            return self.await_trailers(py);
        }
        self.connection.send_body(py, None, Follows::Nothing)?;
        self.complete(py)
    }

    #[inline]
    fn expects_trailers(&self) -> bool {
        let trailers = self.trailers.take();
        let expected = trailers.is_some();
        self.trailers.set(trailers);
        expected
    }

    #[cold]
    fn await_trailers(&self, py: Python<'_>) -> PyResult<()> {
        self.connection.await_trailers(py)?;
        self.state.set(State::Trailers);
        Ok(())
    }

    /// The response is complete.
    #[inline]
    pub(crate) fn complete(&self, py: Python<'_>) -> PyResult<()> {
        self.state.set(State::Complete);
        if self.entry.get().is_some() {
            self.end_entry(py);
        }
        self.connection.finish(py)?;
        self.wake(py)
    }

    /// Answer for an application that failed before it started its response.
    fn send_500(&self, py: Python<'_>) -> PyResult<()> {
        if self.disconnected.get() {
            return Ok(());
        }
        self.connection.fail(py, self, 500, wire::h1::response::reason(500))?;
        self.state.set(State::Complete);
        self.wake(py)
    }

    /// The application has returned `result`.
    fn returned(&self, py: Python<'_>, result: &Bound<'_, PyAny>) -> PyResult<()> {
        let core = &self.connection.core;
        let error = &core.names.error;
        let state = self.state.get();
        if !result.is_none() {
            core.logger.bind(py).call_method1(error, (texts::APPLICATION_RETURNED, result))?;
        } else if state != State::Complete && !self.peer_gone.get() {
            let text = match state {
                State::Idle => texts::NOT_STARTED,
                _ => texts::NOT_COMPLETED,
            };
            core.logger.bind(py).call_method1(error, (text,))?;
        } else {
            return Ok(());
        }
        if state == State::Idle { self.send_500(py) } else { Ok(()) }
    }

    /// The application has raised `error`: whatever it is, it ends this response and nothing else.
    #[cold]
    fn raised(&self, py: Python<'_>, error: &PyErr) -> PyResult<()> {
        let core = &self.connection.core;
        // The line of this request, if it has one already, stands in front of its traceback.
        core.flush_log(py)?;
        let details = PyDict::new(py);
        details.set_item("exc_info", error.value(py))?;
        let text = (texts::APPLICATION_FAILED,);
        core.logger.bind(py).call_method(&core.names.error, text, Some(&details))?;
        if self.state.get() == State::Idle { self.send_500(py) } else { Ok(()) }
    }
}

/// The coroutine of a request's task.
#[pyclass(module = "uvicorn._native", frozen, weakref)]
pub struct RequestResponseCycle {
    /// What it serves; nothing while it waits among the [`SpareCycles`].
    exchange: ThreadBound<RefCell<Option<Rc<Exchange>>>>,
    run: ThreadBound<Run>,
}

/// A cycle with the two callables that its application gets.
pub(crate) struct Served {
    pub(crate) cycle: Py<RequestResponseCycle>,
    receive: Py<Callable>,
    send: Py<Callable>,
    /// `(cycle,)`, what its task is called with.
    pub(crate) arguments: Py<PyTuple>,
}

impl Served {
    fn new(py: Python<'_>) -> PyResult<Self> {
        let cycle = Bound::new(py, RequestResponseCycle::new())?;
        let receive = Py::new(py, Callable::new(&cycle, Function::Receive))?;
        let send = Py::new(py, Callable::new(&cycle, Function::Send))?;
        let arguments = PyTuple::new(py, [&cycle])?.unbind();
        Ok(Self { cycle: cycle.unbind(), receive, send, arguments })
    }

    /// Whether it is as it was made, and nobody else holds anything of it.
    #[inline]
    fn is_forgotten(&self, py: Python<'_>) -> bool {
        crate::ffi::is_forgotten(py, &self.cycle, [&self.receive, &self.send], &self.arguments)
    }
}

/// Cycles whose application ended in its first turn and kept nothing of them: they serve the next requests.
pub(crate) struct SpareCycles {
    idle: RefCell<Vec<Served>>,
    figures: Figures,
    poison: bool,
}

/// As many as applications that run inside one another, which are few.
const MAX_SPARE_CYCLES: usize = 8;

impl SpareCycles {
    /// None yet; none ever, if what comes back is to be poisoned.
    pub(crate) fn new(poison: bool) -> Self {
        Self { idle: RefCell::default(), figures: Figures::default(), poison }
    }

    /// A cycle that runs `app` for `exchange`.
    #[inline]
    pub(crate) fn take(&self, py: Python<'_>, exchange: Rc<Exchange>, app: Py<PyAny>) -> PyResult<Served> {
        crate::ffi::bury();
        let spare = self.idle.borrow_mut().pop().filter(|served| served.is_forgotten(py));
        let reused = spare.is_some();
        let served = spare.map_or_else(|| Served::new(py), Ok)?;
        self.figures.taken(reused);
        let cycle = served.cycle.get();
        cycle.exchange.replace(Some(exchange));
        let start = Start { app, receive: served.receive.clone_ref(py), send: served.send.clone_ref(py) };
        cycle.run.start.replace(Some(start));
        Ok(served)
    }

    /// Take back a cycle that is over.
    ///
    /// One that somebody holds keeps its exchange, of which `receive()` tells that it is over.
    #[inline]
    pub(crate) fn give(&self, py: Python<'_>, served: Served) {
        let kept = !self.poison && self.idle.borrow().len() < MAX_SPARE_CYCLES && served.is_forgotten(py);
        self.figures.given(kept);
        if kept {
            let exchange = served.cycle.get().exchange.take();
            drop(exchange);
            self.idle.borrow_mut().push(served);
        }
    }

    /// Leave a cycle that is not over to its task.
    pub(crate) fn part_with(&self, served: Served) {
        self.figures.given(false);
        drop(served);
    }

    pub(crate) fn stats(&self) -> Stats {
        self.figures.stats(self.idle.borrow().len())
    }
}

/// What the first turn needs.
struct Start {
    app: Py<PyAny>,
    receive: Py<Callable>,
    send: Py<Callable>,
}

/// How far the application's call has come.
#[derive(Default)]
struct Run {
    /// The application, until it is called.
    start: RefCell<Option<Start>>,
    /// What it returned, until that ends.
    coroutine: RefCell<Option<Py<PyAny>>>,
    /// The task, if it did not end at once: what must be forgotten at the end.
    task: RefCell<Option<Py<PyAny>>>,
}

impl RequestResponseCycle {
    /// One that serves nothing yet.
    pub(crate) fn new() -> Self {
        Self { exchange: ThreadBound::default(), run: ThreadBound::default() }
    }

    #[inline]
    pub(crate) fn exchange(&self) -> PyResult<Rc<Exchange>> {
        self.exchange.here()?.borrow().clone().ok_or_else(|| PyRuntimeError::new_err("The request is over."))
    }

    /// A call that may be used again.
    #[inline]
    pub(crate) fn spare_call<'py>(&self, py: Python<'py>) -> Option<Bound<'py, Call>> {
        self.exchange.if_here()?.try_borrow().ok()?.as_ref()?.connection.core.spare_call.take(py)
    }

    /// `value`, bound to the thread of the same loop. Calls can be made in any thread.
    pub(crate) fn beside<T>(&self, value: T) -> ThreadBound<T> {
        self.exchange.beside(value)
    }

    pub(crate) fn set_task(&self, task: Py<PyAny>) {
        self.run.task.borrow_mut().replace(task);
    }

    /// Whether the application's call is over.
    pub(crate) fn is_over(&self) -> bool {
        self.run.coroutine.borrow().is_none() && self.run.start.borrow().is_none()
    }

    /// Call the application: the coroutine that this gives, or one around whatever else can be awaited.
    fn call<'py>(py: Python<'py>, exchange: &Exchange, start: Start) -> PyResult<Bound<'py, PyAny>> {
        let awaitable = start.app.into_bound(py).call1((&exchange.scope, start.receive, start.send))?;
        if crate::ffi::is_coroutine(&awaitable) {
            return Ok(awaitable);
        }
        exchange.connection.core.result_of.bind(py).call1((awaitable,))
    }

    /// What the application's coroutine says of itself: seen from outside it is the one of the task.
    fn attribute(&self, py: Python<'_>, name: &str) -> PyResult<Option<Py<PyAny>>> {
        let coroutine = self.run.here()?.coroutine.borrow().as_ref().map(|coroutine| coroutine.clone_ref(py));
        coroutine.map(|coroutine| coroutine.getattr(py, name)).transpose()
    }

    /// The application's call is over: nobody completes a response that is not complete.
    #[inline]
    fn end(&self, py: Python<'_>, exchange: &Rc<Exchange>) -> PyResult<()> {
        if exchange.state.get() != State::Complete {
            // Whoever still holds `receive` has come too late, for the request too.
            exchange.ended.set(true);
            exchange.connection.abort_response(py, exchange)?;
        }
        self.forget_task(py)
    }

    /// Go on with `turn`; after a panic the call is over.
    #[inline]
    pub(crate) fn guarded(
        &self,
        py: Python<'_>,
        turn: impl FnOnce(&Rc<Exchange>) -> PyResult<Option<Py<PyAny>>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let exchange = self.exchange()?;
        match guard(py, &exchange.connection, "run", |_| turn(&exchange).map(Some))? {
            Some(waits_for) => Ok(waits_for),
            None => self.close(py).and(self.forget_task(py)).map(|()| None),
        }
    }

    pub(crate) fn turn(&self, py: Python<'_>, exchange: &Rc<Exchange>) -> PyResult<Option<Py<PyAny>>> {
        let start = self.run.start.borrow_mut().take();
        let outcome = if let Some(start) = start {
            Self::call(py, exchange, start).and_then(|coroutine| {
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
        self.settle(py, exchange, outcome)
    }

    /// Go on with what the application did: pass on what it waits for, or end.
    #[inline]
    fn settle(&self, py: Python<'_>, exchange: &Rc<Exchange>, outcome: PyResult<Turn>) -> PyResult<Option<Py<PyAny>>> {
        let result = match outcome {
            Ok(Turn::Yielded(future)) => return Ok(Some(future)),
            Ok(Turn::Returned(result)) => Ok(result.into_bound(py)),
            Err(error) => Err(error),
        };
        let coroutine = self.run.coroutine.borrow_mut().take().map(|coroutine| coroutine.into_bound(py));
        drop(coroutine);
        // Whatever goes wrong here, a logger that raises included, the client must not be left waiting.
        let ended = match result {
            Ok(result) => exchange.returned(py, &result),
            Err(error) => exchange.raised(py, &error),
        };
        self.end(py, exchange)?;
        ended.map(|()| None)
    }

    fn forget_task(&self, py: Python<'_>) -> PyResult<()> {
        let task = self.run.task.borrow_mut().take();
        if let Some(task) = task {
            let exchange = self.exchange()?;
            let core = &exchange.connection.core;
            core.tasks.bind(py).call_method1(&core.names.discard, (task,))?;
        }
        Ok(())
    }

    fn raise(
        &self,
        py: Python<'_>,
        exchange: &Rc<Exchange>,
        kind: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let coroutine = self.run.coroutine.borrow().as_ref().map(|coroutine| coroutine.clone_ref(py));
        let Some(coroutine) = coroutine else {
            let start = self.run.start.take();
            return match start {
                // Not started yet: the application is never called.
                Some(_) => self.settle(py, exchange, thrown(kind, value, traceback).and_then(Err)),
                None => Err(reused()),
            };
        };
        let coroutine = coroutine.bind(py);
        let name = &exchange.connection.core.names.throw;
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
        self.settle(py, exchange, outcome)
    }
}

#[pymethods]
impl RequestResponseCycle {
    /// The scope of the request.
    #[getter]
    fn scope(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        Ok(self.exchange()?.scope.clone_ref(py))
    }

    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.guarded(py, |exchange| self.turn(py, exchange))
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
        let turn = |exchange: &Rc<Exchange>| self.raise(py, exchange, kind, value, traceback);
        self.guarded(py, turn)?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    /// End the application's call without an answer, as the interpreter does when a task is thrown away.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let run = self.run.here()?;
        let start = run.start.take();
        let coroutine = run.coroutine.borrow_mut().take();
        let closed = match (start, coroutine) {
            (None, None) => return Ok(()),
            (_, Some(coroutine)) => coroutine.bind(py).call_method0("close").map(drop),
            (Some(_), None) => Ok(()),
        };
        closed.and(self.end(py, &self.exchange()?))
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
    #[expect(clippy::unused_self, reason = "a getter")]
    fn __qualname__(&self) -> &'static str {
        "RequestResponseCycle.run_asgi"
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

    /// What the application awaits.
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
        let (exchange, run) = (self.exchange.for_collector(), self.run.for_collector());
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
        let Ok(exchange) = exchange.try_borrow() else { return Ok(()) };
        let Some(exchange) = &*exchange else { return Ok(()) };
        visit.call(&exchange.scope)?;
        exchange.loan.traverse(&visit)?;
        exchange.receivers.traverse(&visit)
    }

    fn __clear__(&self) {
        let (Some(exchange), Some(run)) = (self.exchange.if_here(), self.run.if_here()) else { return };
        drop(run.start.take());
        for object in [&run.coroutine, &run.task] {
            let object = object.borrow_mut().take();
            drop(object);
        }
        let exchange = exchange.borrow().clone();
        if let Some(exchange) = exchange {
            exchange.receivers.clear();
        }
    }
}
