//! The ASGI side of one HTTP request and its response: `receive()`, `send()` and the run of the application.
//!
//! ```text
//! IDLE ──http.response.start──▶ STARTED ──last http.response.body──▶ COMPLETE
//! ```
//!
//! [`Exchange`] is the state, shared with the connection. [`RequestResponseCycle`] is the coroutine that the task runs:
//! it gives the application its turns and sees to it that the response ends, well or badly.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pyo3::PyTraverseError;

use crate::awaitable::{Received, Sending};
use crate::ffi::{ThreadBound, Turn, step};
use crate::http::protocol::Connection;

/// How far the response has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Idle,
    Started,
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
    /// Futures of `receive()` calls that wait.
    waiters: RefCell<Vec<Py<PyAny>>>,
}

impl Exchange {
    pub(crate) fn new(
        connection: Rc<Connection>,
        scope: Py<PyDict>,
        more_body: bool,
        expects_continue: bool,
    ) -> Self {
        Self {
            connection,
            scope,
            state: Cell::new(State::Idle),
            body: RefCell::new(Body::Empty),
            body_length: Cell::new(0),
            more_body: Cell::new(more_body),
            expects_continue: Cell::new(expects_continue),
            ended: Cell::new(false),
            peer_gone: Cell::new(false),
            disconnected: Cell::new(false),
            waiters: RefCell::new(Vec::new()),
        }
    }

    pub(crate) fn connection(&self) -> &Rc<Connection> {
        &self.connection
    }

    #[inline]
    pub(crate) fn state(&self) -> State {
        self.state.get()
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

    /// The request body is complete.
    pub(crate) fn feed_end(&self) {
        self.more_body.set(false);
    }

    /// The client is gone, or is treated as if it were; `reachable`: it can still be sent the response.
    pub(crate) fn disconnect(&self, py: Python<'_>, reachable: bool) -> PyResult<()> {
        self.peer_gone.set(true);
        if !reachable {
            self.disconnected.set(true);
        }
        self.wake(py)
    }

    /// Let waiting `receive()` calls look again.
    pub(crate) fn wake(&self, py: Python<'_>) -> PyResult<()> {
        if self.waiters.borrow().is_empty() {
            return Ok(());
        }
        let waiters = std::mem::take(&mut *self.waiters.borrow_mut());
        wake_all(py, &self.connection, waiters)
    }

    // The application's side.

    /// The next message, or `None`: wait first.
    pub(crate) fn receive<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let names = &self.connection.core.names;
        if self.expects_continue.replace(false) && self.state.get() == State::Idle && !self.peer_gone.get() {
            self.connection.send_continue(py)?;
        }
        if self.state.get() == State::Complete
            || (self.peer_gone.get() && (self.ended.get() || self.more_body.get()))
        {
            return names.disconnect.bind(py).copy().map(Some);
        }
        if self.ended.get() || (self.body_length.get() == 0 && self.more_body.get()) {
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

    /// A future that is done when there may be a message.
    pub(crate) fn wait_for_message<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.connection.want_body(py)?;
        let core = &self.connection.core;
        let future = core.event_loop.bind(py).call_method0(&core.names.create_future)?;
        self.waiters.borrow_mut().push(future.clone().unbind());
        Ok(future)
    }

    /// Take one message of the response from the application.
    #[inline]
    pub(crate) fn send(this: &Rc<Self>, message: &Bound<'_, PyAny>) -> PyResult<()> {
        if this.disconnected.get() {
            return Ok(());
        }
        let py = message.py();
        let names = &this.connection.core.names;
        let kind = message.get_item(&names.r#type)?;
        match this.state.get() {
            State::Idle => {
                if !this.connection.core.response_start.is(&kind)? {
                    return Err(PyRuntimeError::new_err(format!(
                        "Expected ASGI message 'http.response.start', but got '{kind}'."
                    )));
                }
                this.connection.start_response(py, this, message)?;
                this.state.set(State::Started);
                Ok(())
            }
            State::Started => {
                if !this.connection.core.response_body.is(&kind)? {
                    return Err(PyRuntimeError::new_err(format!(
                        "Expected ASGI message 'http.response.body', but got '{kind}'."
                    )));
                }
                let more_body = match optional(message, &names.more_body)? {
                    Some(more) => more.is_truthy()?,
                    None => false,
                };
                let body = optional(message, &names.body)?;
                this.connection.send_body(py, body.as_ref(), more_body)?;
                if !more_body {
                    this.state.set(State::Complete);
                    this.connection.finish(py)?;
                    this.wake(py)?;
                }
                Ok(())
            }
            State::Complete => Err(PyRuntimeError::new_err(format!(
                "Unexpected ASGI message '{kind}' sent, after response already completed."
            ))),
        }
    }

    /// Answer for an application that failed before it started its response.
    fn send_500(&self, py: Python<'_>) -> PyResult<()> {
        if self.disconnected.get() {
            return Ok(());
        }
        self.connection.fail(py, self, 500, "Internal Server Error")?;
        self.state.set(State::Complete);
        self.wake(py)
    }

    /// The application has returned `result`.
    fn returned(&self, py: Python<'_>, result: &Bound<'_, PyAny>) -> PyResult<()> {
        let core = &self.connection.core;
        let error = &core.names.error;
        let state = self.state.get();
        if !result.is_none() {
            let text = "ASGI callable should return None, but returned '%s'.";
            core.logger.bind(py).call_method1(error, (text, result))?;
        } else if state != State::Complete && !self.peer_gone.get() {
            let text = match state {
                State::Idle => "ASGI callable returned without starting response.",
                _ => "ASGI callable returned without completing response.",
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
        let details = PyDict::new(py);
        details.set_item("exc_info", error.value(py))?;
        let text = ("Exception in ASGI application\n",);
        core.logger.bind(py).call_method(&core.names.error, text, Some(&details))?;
        if self.state.get() == State::Idle { self.send_500(py) } else { Ok(()) }
    }
}

/// `message.get(name)`, for the dict that messages nearly always are and for any other mapping.
#[inline]
fn optional<'py>(message: &Bound<'py, PyAny>, name: &Py<pyo3::types::PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
    match message.cast::<PyDict>() {
        Ok(message) => message.get_item(name),
        Err(_) => {
            let value = message.call_method1("get", (name,))?;
            Ok((!value.is_none()).then_some(value))
        }
    }
}

/// Complete the futures that are still waited for.
pub(crate) fn wake_all(py: Python<'_>, connection: &Connection, waiters: Vec<Py<PyAny>>) -> PyResult<()> {
    let names = &connection.core.names;
    for waiter in waiters {
        let waiter = waiter.bind(py);
        if !waiter.call_method0(&names.done)?.is_truthy()? {
            waiter.call_method1(&names.set_result, (py.None(),))?;
        }
    }
    Ok(())
}

/// The coroutine of a request's task.
#[pyclass(module = "uvicorn._native", frozen, weakref)]
pub struct RequestResponseCycle {
    exchange: ThreadBound<Rc<Exchange>>,
    run: ThreadBound<Run>,
}

/// How far the application's call has come.
#[derive(Default)]
struct Run {
    /// The application, until it is called.
    app: RefCell<Option<Py<PyAny>>>,
    /// What it returned, until that ends.
    coroutine: RefCell<Option<Py<PyAny>>>,
    /// The task, if it did not end at once: what must be forgotten at the end.
    task: RefCell<Option<Py<PyAny>>>,
}

impl RequestResponseCycle {
    pub(crate) fn new(exchange: Rc<Exchange>, app: Py<PyAny>) -> Self {
        let run = Run { app: RefCell::new(Some(app)), ..Run::default() };
        Self { exchange: ThreadBound::new(exchange), run: ThreadBound::new(run) }
    }

    /// The application's `receive()`.
    #[inline]
    pub(crate) fn receive(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Received::new((*self.exchange).clone()))?.into_any())
    }

    /// The application's `send(message)`.
    #[inline]
    pub(crate) fn send_message(&self, message: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = message.py();
        let connection = &self.exchange.connection;
        if connection.is_write_paused() && !self.exchange.disconnected.get() {
            let sending = Sending::new((*self.exchange).clone(), message.clone().unbind());
            return Ok(Py::new(py, sending)?.into_any());
        }
        Exchange::send(&self.exchange, message)?;
        Ok(connection.core.finished.clone_ref(py).into_any())
    }

    pub(crate) fn set_task(&self, task: Py<PyAny>) {
        self.run.task.borrow_mut().replace(task);
    }

    /// Whether the application's call is over.
    pub(crate) fn is_over(&self) -> bool {
        self.run.coroutine.borrow().is_none() && self.run.app.borrow().is_none()
    }

    /// Call the application: the iterator that its awaitable gives.
    fn call<'py>(slf: &Bound<'py, Self>, app: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let this = slf.get();
        let (receive, send) = crate::ffi::callables(slf)?;
        let awaitable = app.call1((&this.exchange.scope, receive, send))?;
        if crate::ffi::is_coroutine(&awaitable) { Ok(awaitable) } else { awaitable.call_method0("__await__") }
    }

    fn turn(slf: &Bound<'_, Self>) -> PyResult<Option<Py<PyAny>>> {
        let py = slf.py();
        let this = slf.get();
        let app = this.run.app.borrow_mut().take();
        let outcome = if let Some(app) = app {
            Self::call(slf, app.bind(py)).and_then(|coroutine| {
                this.run.coroutine.borrow_mut().replace(coroutine.clone().unbind());
                step(&coroutine)
            })
        } else {
            let coroutine = this.run.coroutine.borrow().as_ref().map(|coroutine| coroutine.clone_ref(py));
            match coroutine {
                Some(coroutine) => step(coroutine.bind(py)),
                None => return Ok(None),
            }
        };
        this.settle(py, outcome)
    }

    /// Go on with what the application did: pass on what it waits for, or end.
    #[inline]
    fn settle(&self, py: Python<'_>, outcome: PyResult<Turn>) -> PyResult<Option<Py<PyAny>>> {
        let result = match outcome {
            Ok(Turn::Yielded(future)) => return Ok(Some(future)),
            Ok(Turn::Returned(result)) => Ok(result),
            Err(error) => Err(error),
        };
        let coroutine = self.run.coroutine.borrow_mut().take();
        drop(coroutine);
        // Whatever goes wrong here, a logger that raises included, the client must not be left waiting.
        let ended = match result {
            Ok(result) => self.exchange.returned(py, result.bind(py)),
            Err(error) => self.exchange.raised(py, &error),
        };
        if self.exchange.state.get() != State::Complete {
            self.exchange.connection.abort_response(py, &self.exchange)?;
        }
        let task = self.run.task.borrow_mut().take();
        if let Some(task) = task {
            let core = &self.exchange.connection.core;
            core.tasks.bind(py).call_method1(&core.names.discard, (task,))?;
        }
        ended.map(|()| None)
    }
}

#[pymethods]
impl RequestResponseCycle {
    /// The scope of the request.
    #[getter]
    fn scope(&self, py: Python<'_>) -> Py<PyDict> {
        self.exchange.scope.clone_ref(py)
    }

    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(slf: &Bound<'_, Self>) -> PyResult<Option<Py<PyAny>>> {
        Self::turn(slf)
    }

    /// Give the application its turn.
    fn send(slf: &Bound<'_, Self>, _value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        Self::turn(slf)?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    /// Raise an exception in the application, where it waits.
    #[pyo3(signature = (kind, value=None, traceback=None))]
    fn throw(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let coroutine = self.run.coroutine.borrow().as_ref().map(|coroutine| coroutine.clone_ref(py));
        let outcome = match coroutine {
            Some(coroutine) => {
                let coroutine = coroutine.bind(py);
                let name = &self.exchange.connection.core.names.throw;
                let thrown = match value {
                    Some(value) => coroutine.call_method1(name, (kind, value, traceback)),
                    None => coroutine.call_method1(name, (kind,)),
                };
                match thrown {
                    Ok(future) => Ok(Turn::Yielded(future.unbind())),
                    Err(error) if error.is_instance_of::<PyStopIteration>(py) => {
                        error.value(py).getattr("value").map(|value| Turn::Returned(value.unbind()))
                    }
                    Err(error) => Err(error),
                }
            }
            None => {
                // Not started yet: the application is never called.
                self.run.app.borrow_mut().take();
                Err(PyErr::from_value(value.unwrap_or(kind).clone()))
            }
        };
        self.settle(py, outcome)?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    /// End the application's call without an answer, as the interpreter does when a task is thrown away.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.run.app.borrow_mut().take();
        let coroutine = self.run.coroutine.borrow_mut().take();
        match coroutine {
            Some(coroutine) => coroutine.bind(py).call_method0("close").map(drop),
            None => Ok(()),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.exchange.scope)?;
        for object in [&self.run.app, &self.run.coroutine, &self.run.task] {
            if let Ok(object) = object.try_borrow() {
                visit.call(&*object)?;
            }
        }
        if let Ok(waiters) = self.exchange.waiters.try_borrow() {
            for waiter in &*waiters {
                visit.call(waiter)?;
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        for object in [&self.run.app, &self.run.coroutine, &self.run.task] {
            let object = object.borrow_mut().take();
            drop(object);
        }
        let waiters = std::mem::take(&mut *self.exchange.waiters.borrow_mut());
        drop(waiters);
    }
}
