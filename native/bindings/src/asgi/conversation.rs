//! The other end of an application's `receive` and `send`: a request, or any other ASGI conversation.

use std::rc::Rc;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::gate::Ticket;
use super::host::Host;
use super::message;
use crate::base::current_span::Trace;
use crate::base::error;
use crate::base::line::Line;
use crate::base::waiter::Waiter;

/// The functions that an application calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Receive,
    Send,
}

impl Function {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Send => "send",
        }
    }

    /// With the class that Python's path has it in.
    pub(super) fn qualified_name(self, class: &str) -> String {
        format!("{class}.{}", self.name())
    }
}

/// The result of a call of `receive()`.
pub(crate) enum Received<'py> {
    Message(Bound<'py, PyDict>),
    /// Nothing yet: wait, and ask again.
    Nothing,
    /// Nothing ever again, but that: behind a turn of the loop, which an application that asks for ever must not stop.
    Last,
}

/// The outcome of sending a message.
#[derive(Default)]
pub(crate) enum Sent {
    #[default]
    Done,
    /// This iterator goes on with it.
    PassedOn(Py<PyAny>),
    /// Nothing was done: it must wait.
    Later,
}

/// How much of a response the application has sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Nothing,
    Some,
    All,
}

/// The facts of a request that programs read through its `receive` and `send`, without calling them.
pub(crate) struct Facts {
    /// The client's end was heard of.
    pub(crate) disconnected: bool,
    pub(crate) response: Progress,
    pub(crate) more_body: bool,
    pub(crate) waiting_for_100_continue: bool,
    /// The part of the body that has arrived and was not received.
    pub(crate) body: Py<PyBytes>,
    /// Of the connection, if the request has it for itself.
    pub(crate) transport: Option<Py<PyAny>>,
}

/// The class that applications know requests by.
pub(super) const REQUEST: &str = "RequestResponseCycle";

/// One call of an application, from its scope to its end. Any of these calls may run Python code, of the application
/// too, and come back: the caller holds no borrow.
pub(crate) trait Conversation {
    fn host(&self) -> &Rc<Host>;
    fn scope(&self) -> &Py<PyDict>;

    /// What its scope has of its trace.
    #[cold]
    fn trace<'py>(&self, py: Python<'py>) -> PyResult<Option<Trace<'py>>> {
        let (scope, names) = (self.scope().bind(py), &self.host().names);
        let Some(Ok(parent)) = scope.get_item(&names.traceparent)?.map(Bound::cast_into) else { return Ok(None) };
        let state = scope.get_item(&names.tracestate)?.and_then(|state| state.cast_into().ok());
        Ok(Some((parent, state)))
    }
    /// The facts of a request; `None` for any other conversation.
    fn facts(&self, _py: Python<'_>) -> PyResult<Option<Facts>> {
        Ok(None)
    }
    /// The class in which Python's path has `run_asgi`, `receive` and `send`.
    fn class(&self) -> &'static str {
        REQUEST
    }

    // The application's side.

    /// The application is called now.
    fn begin_call(&self, _py: Python<'_>) -> PyResult<()> {
        Ok(())
    }
    /// The next message; `in_turn`: this call has waited for its turn, and has it.
    fn receive<'py>(&self, py: Python<'py>, in_turn: bool) -> PyResult<Received<'py>>;
    /// The message received once no other can come.
    fn last_message<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>>;
    /// Take one message, unless it must wait, because of the transport or, unless it is `in_turn`, behind others.
    /// [Guarded] here, where that costs no detour.
    ///
    /// [Guarded]: guard
    fn send(self: Rc<Self>, message: &Bound<'_, PyAny>, in_turn: bool) -> PyResult<Sent>;
    /// Copy a message that has to wait, since the application may change it meanwhile.
    fn copy<'py>(&self, message: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let names = &self.host().names;
        message::copy(message, names, [&names.body])
    }
    /// The waiter of a call that waits, if it may [go on at once](crate::base::waiter) from inside it.
    fn waiter(&self, _py: Python<'_>) -> PyResult<Option<Py<Waiter>>> {
        Ok(None)
    }
    /// Offer the waiter of the application's task to the next call that waits, or take it back.
    fn lend_waiter(&self, _waiter: Option<Py<Waiter>>) {}
    /// Where calls of `function` wait for their turn.
    fn line(&self, function: Function) -> &Line;
    /// Let the first of those who wait have its turn, if there is something for it.
    fn advance(&self, py: Python<'_>, function: Function) -> PyResult<()>;
    /// A call of `function` waits from now on.
    fn begin_wait(self: Rc<Self>, _py: Python<'_>, _function: Function) -> PyResult<()> {
        Ok(())
    }
    /// It need not wait any more; returns the object to await before it goes on, if there is no place for that.
    fn resume<'py>(&self, _py: Python<'py>, _function: Function) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(None)
    }
    /// It does not wait any more: it goes on, or was given up.
    fn end_wait(&self, _py: Python<'_>, _function: Function) -> PyResult<()> {
        Ok(())
    }

    // Its end.

    /// The application has returned `result`.
    fn returned(&self, py: Python<'_>, result: &Bound<'_, PyAny>) -> PyResult<()>;
    /// The application has raised `error`: whatever it is, it ends this and nothing else.
    fn raised(&self, py: Python<'_>, error: &PyErr) -> PyResult<()>;
    /// Its call is over, in one of these ways or because it was thrown away. Returns what it had of the gate, if that
    /// can be handed on to another in the last step of the call.
    fn end(&self, py: Python<'_>) -> PyResult<Option<Rc<Ticket>>>;
    /// Abort everything after a panic, without inspecting the state.
    fn abandon(&self, py: Python<'_>) -> PyResult<()>;

    // The garbage collector's side.

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError>;
    fn clear(&self);
}

/// Run an entry point of the application's. A panic is logged and ends what it talks to, and nothing else; the caller
/// gets the default.
#[inline]
pub(crate) fn guard<R: Default>(
    conversation: &dyn Conversation,
    py: Python<'_>,
    entry: &str,
    body: impl FnOnce() -> PyResult<R>,
) -> PyResult<R> {
    error::guard(py, conversation.host(), entry, || conversation.abandon(py), body)
}
