//! A request as the other end of its application's conversation.

use std::rc::Rc;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use wire::texts;

use super::conversation::{Conversation, Facts, Function, Progress, Received, Sent};
use super::exchange::{Body, Client, Exchange, State};
use super::gate::Ticket;
use super::host::Host;
use super::send::send;
use crate::base::current_span::Trace;
use crate::base::line::{Line, WOKEN_TOGETHER};

impl Conversation for Exchange {
    fn host(&self) -> &Rc<Host> {
        &self.host
    }

    fn scope(&self) -> &Py<PyDict> {
        &self.scope
    }

    #[inline]
    fn trace<'py>(&self, py: Python<'py>) -> PyResult<Option<Trace<'py>>> {
        Ok(self.loan.trace(py))
    }

    #[cold]
    fn facts(&self, py: Python<'_>) -> PyResult<Option<Facts>> {
        Ok(Some(Facts {
            disconnected: self.client.get() != Client::Here,
            response: match self.state.get() {
                State::Idle => Progress::Nothing,
                State::Complete => Progress::All,
                State::Started | State::Sending | State::Trailers => Progress::Some,
            },
            more_body: self.body.more.get(),
            waiting_for_100_continue: self.body.expects_continue.get(),
            body: match &*self.body.kept.borrow() {
                Body::Empty => self.host.names.empty_bytes.clone_ref(py),
                Body::Piece(piece) => piece.clone_ref(py),
                Body::Pieces(pieces) => PyBytes::new(py, pieces).unbind(),
            },
            transport: self.stream.own_connection(py)?,
        }))
    }

    #[inline]
    fn begin_call(&self, _py: Python<'_>) -> PyResult<()> {
        if let Some(span) = &self.span {
            span.call();
        }
        Ok(())
    }

    fn receive<'py>(&self, py: Python<'py>, in_turn: bool) -> PyResult<Received<'py>> {
        let names = &self.host.names;
        if self.body.expects_continue.replace(false)
            && self.state.get() == State::Idle
            && self.client.get() == Client::Here
        {
            self.stream.send_continue(py)?;
        }
        if self.is_at_end() {
            return self.last_message(py).map(Received::Message);
        }
        if !self.has_message() || !(in_turn || self.receivers.is_empty()) {
            self.stream.want_body(py)?;
            return Ok(Received::Nothing);
        }
        if self.seat.parked.get() {
            self.unpark(py, true)?;
        }
        let message = names.empty_request.bind(py).copy()?;
        let body = self.body.kept.replace(Body::Empty);
        self.body.length.set(0);
        match body {
            Body::Empty => {}
            Body::Piece(piece) => message.set_item(&names.body, piece)?,
            Body::Pieces(pieces) => message.set_item(&names.body, PyBytes::new(py, &pieces))?,
        }
        if self.body.more.get() {
            message.set_item(&names.more_body, true)?;
            self.stream.want_body(py)?;
        } else {
            self.body.given.set(true);
        }
        Ok(Received::Message(message))
    }

    fn last_message<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.host.names.disconnect.bind(py).copy()
    }

    /// One behind the end of the response is refused at once.
    fn send(self: Rc<Self>, message: &Bound<'_, PyAny>, in_turn: bool) -> PyResult<Sent> {
        if !self.stream.capacity().takes_more(in_turn) && !self.is_disconnected() && self.state.get() != State::Complete
        {
            return Ok(Sent::Later);
        }
        if self.seat.parked.get() {
            self.unpark(message.py(), true)?;
        }
        self.guard(message.py(), Function::Send.name(), || send(&self, message))
    }

    fn line(&self, function: Function) -> &Line {
        match function {
            Function::Receive => &self.receivers,
            Function::Send => &self.stream.capacity().writers,
        }
    }

    fn advance(&self, py: Python<'_>, function: Function) -> PyResult<()> {
        let count = match function {
            Function::Receive if self.is_at_end() => WOKEN_TOGETHER,
            Function::Receive if self.has_message() => 1,
            Function::Send if !self.stream.capacity().is_paused() => WOKEN_TOGETHER,
            Function::Receive | Function::Send => return Ok(()),
        };
        self.line(function).advance(py, &self.host.names, count)
    }

    #[cold]
    fn begin_wait(self: Rc<Self>, py: Python<'_>, function: Function) -> PyResult<()> {
        let is_for_client = match function {
            Function::Receive => !self.has_message() && !self.body.given.get(),
            Function::Send => true,
        };
        if is_for_client { self.park(py, function) } else { Ok(()) }
    }

    fn resume<'py>(&self, py: Python<'py>, function: Function) -> PyResult<Option<Bound<'py, PyAny>>> {
        let goes_on = match function {
            Function::Receive => self.has_message(),
            Function::Send => self.stream.capacity().takes_more(true),
        };
        if !self.seat.parked.get() || !goes_on || self.is_disconnected() { Ok(None) } else { self.await_place(py) }
    }

    fn end_wait(&self, py: Python<'_>, function: Function) -> PyResult<()> {
        if self.seat.parked.get() && (function == Function::Send || !self.body.given.get()) {
            self.unpark(py, false)?;
        }
        Ok(())
    }

    fn returned(&self, py: Python<'_>, result: &Bound<'_, PyAny>) -> PyResult<()> {
        let host = &self.host;
        let error = &host.names.error;
        let state = self.state.get();
        if !result.is_none() {
            self.note_failure(py, None);
            host.logger.bind(py).call_method1(error, (texts::APPLICATION_RETURNED, result))?;
        } else if state != State::Complete && self.client.get() == Client::Here {
            let text = match state {
                State::Idle => texts::NOT_STARTED,
                _ => texts::NOT_COMPLETED,
            };
            self.note_failure(py, None);
            host.logger.bind(py).call_method1(error, (text,))?;
        } else {
            return Ok(());
        }
        if state == State::Idle { self.send_500(py) } else { Ok(()) }
    }

    #[cold]
    fn raised(&self, py: Python<'_>, error: &PyErr) -> PyResult<()> {
        self.note_failure(py, Some(error));
        // Write the request's access line, if there is one already, before its traceback.
        self.host.flush_log(py)?;
        self.host.log_exception(py, texts::APPLICATION_FAILED, error)?;
        if self.state.get() == State::Idle { self.send_500(py) } else { Ok(()) }
    }

    /// Abort an incomplete response, since the application cannot complete it any more.
    #[inline]
    fn end(&self, py: Python<'_>) -> PyResult<Option<Rc<Ticket>>> {
        let ticket = self.leave_ticket();
        if self.state.get() != State::Complete {
            // A program that still holds `receive` has come too late for the request, too.
            self.body.given.set(true);
            self.break_off(py)?;
        }
        Ok(ticket)
    }

    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.stream.abandon(py)
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.scope)?;
        self.loan.traverse(visit)?;
        self.receivers.traverse(visit)
    }

    fn clear(&self) {
        self.receivers.clear();
    }
}
