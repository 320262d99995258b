//! The state of one HTTP request and its response: the messages of `receive()` and the course of the response.
//!
//! ```text
//! IDLE ──http.response.start──▶ STARTED ──last http.response.body──▶ COMPLETE
//!                                ▲   │ │                                ▲
//!           a file, while it is  │   ▼ └─ if trailers were announced ─▶ TRAILERS
//!                    being sent  SENDING
//! ```

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use wire::Trailers;
use wire::method::Method;

use super::access::entry::{Entry, Head};
use super::access::lines::About;
use super::conversation::{Conversation, Function, guard};
use super::gate::{self, Gate, Ticket};
use super::host::Host;
use super::identity::OwnField;
use super::loan::Loan;
use super::peer::Peer;
use super::scope::Lent;
use super::stream::{Follows, Stream};
use super::tracing::RequestSpan;
use crate::base::course::Course;
use crate::base::line::Line;

/// The answer to the request of an application that failed.
const SERVER_ERROR: &str = "Internal Server Error";

/// The progress of the response.
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
pub(super) enum Body {
    Empty,
    /// A single piece, which is a Python object already.
    Piece(Py<PyBytes>),
    Pieces(Vec<u8>),
}

/// The request body on its way from the client to the application.
pub(super) struct Inflow {
    pub(super) kept: RefCell<Body>,
    /// The length of it in bytes.
    pub(super) length: Cell<usize>,
    /// The client has not sent all of it.
    pub(super) more: Cell<bool>,
    /// The client waits for `100 Continue`, which the first `receive()` sends.
    pub(super) expects_continue: Cell<bool>,
    /// The application has received the last piece.
    pub(super) given: Cell<bool>,
}

impl Inflow {
    pub(super) fn new(more: bool, expects_continue: bool) -> Self {
        Self {
            kept: RefCell::new(Body::Empty),
            length: Cell::new(0),
            more: Cell::new(more),
            expects_continue: Cell::new(expects_continue),
            given: Cell::new(false),
        }
    }
}

/// Whether the client is there to receive the response; it only ever goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    Here,
    /// `receive()` has only `http.disconnect` left; the response can still be sent.
    Gone,
    /// Nothing can be sent any longer.
    Unreachable,
}

/// Its place among the active or waiting requests, if those are counted.
#[derive(Default)]
pub(super) struct Seat {
    /// Until the application's call is over.
    ticket: Cell<Option<Rc<Ticket>>>,
    /// The place was given back for as long as the application waits for the client.
    pub(super) parked: Cell<bool>,
}

impl Host {
    /// Count a request that the server answers itself, even one without an exchange.
    #[cold]
    pub(crate) fn count_refusal(&self, exchange: Option<&Exchange>, status: u16, method: Method) {
        let is_noted = exchange.is_some_and(|exchange| exchange.note_refusal(status));
        if !is_noted && let Some(metrics) = &self.metrics {
            metrics.refuse(status, method);
        }
    }
}

/// One request, from its head to the end of the application's call.
pub(crate) struct Exchange {
    pub(crate) host: Rc<Host>,
    pub(crate) stream: Rc<dyn Stream>,
    peer: Rc<Peer>,
    pub(crate) scope: Py<PyDict>,
    pub(super) loan: Box<Loan>,
    /// Its id, if requests have ids.
    id: Option<Py<PyString>>,
    pub(super) state: Cell<State>,
    pub(super) body: Inflow,
    pub(super) client: Cell<Client>,
    /// The response's trailers, if the application announced any.
    pub(crate) trailers: Cell<Option<Box<Trailers>>>,
    /// Of the access log.
    entry: Entry,
    /// If it is counted.
    course: Option<Box<Course>>,
    /// Its span, if it is sampled.
    pub(super) span: Option<Box<RequestSpan>>,
    pub(super) seat: Seat,
    /// `receive()` calls that wait.
    pub(super) receivers: Line,
}

impl Exchange {
    pub(super) fn new(
        py: Python<'_>,
        host: Rc<Host>,
        stream: Rc<dyn Stream>,
        peer: Rc<Peer>,
        lent: Lent,
        method: Method,
        body: Inflow,
    ) -> Self {
        Self {
            entry: host.access.begin(),
            course: host.metrics.as_ref().map(|metrics| Box::new(metrics.begin(method, lent.scope.bind(py)))),
            host,
            stream,
            peer,
            scope: lent.scope,
            loan: lent.loan,
            id: lent.id,
            span: lent.span,
            state: Cell::new(State::Idle),
            body,
            client: Cell::new(Client::Here),
            trailers: Cell::new(None),
            seat: Seat::default(),
            receivers: Line::default(),
        }
    }

    /// The scope with everything lent with it.
    pub(crate) fn into_lent(self) -> Lent {
        Lent { scope: self.scope, loan: self.loan, id: self.id, span: None }
    }

    /// The field of the response with the id of the request, if it has one.
    #[inline]
    pub(super) fn own_field<'a>(&'a self, py: Python<'a>) -> Option<OwnField<'a>> {
        let id = self.id.as_ref()?;
        let identity = self.host.identity.as_ref()?;
        Some(OwnField::new(identity, id.bind(py).to_str().ok()?.as_bytes()))
    }

    /// Run an entry point of the application's; see [`guard`].
    #[inline]
    pub(crate) fn guard<R: Default>(
        &self,
        py: Python<'_>,
        entry: &str,
        body: impl FnOnce() -> PyResult<R>,
    ) -> PyResult<R> {
        guard(self, py, entry, body)
    }

    #[inline]
    pub(crate) fn state(&self) -> State {
        self.state.get()
    }

    pub(crate) fn set_state(&self, state: State) {
        self.state.set(state);
    }

    pub(crate) fn is_disconnected(&self) -> bool {
        self.client.get() == Client::Unreachable
    }

    // Called by the connection.

    /// Add a piece of the request body; returns how much waits for the application then.
    pub(crate) fn feed(&self, py: Python<'_>, data: &[u8]) -> usize {
        {
            let mut body = self.body.kept.borrow_mut();
            match &mut *body {
                Body::Empty => *body = Body::Piece(PyBytes::new(py, data).unbind()),
                Body::Piece(first) => *body = Body::Pieces([first.as_bytes(py), data].concat()),
                Body::Pieces(pieces) => pieces.extend_from_slice(data),
            }
        }
        let length = self.body.length.get() + data.len();
        self.body.length.set(length);
        if let Some(course) = &self.course {
            course.received.set(course.received.get() + data.len());
        }
        length
    }

    /// How much of the body waits for the application.
    pub(crate) fn body_length(&self) -> usize {
        self.body.length.get()
    }

    /// The request body is complete.
    pub(crate) fn feed_end(&self) {
        self.body.more.set(false);
    }

    /// The client is gone, or is treated as if it were; `reachable`: it can still be sent the response.
    pub(crate) fn disconnect(&self, py: Python<'_>, reachable: bool) -> PyResult<()> {
        if self.client.get() == Client::Here {
            self.client.set(Client::Gone);
        }
        if let Some(ticket) = self.ticket() {
            ticket.leave(py)?;
        }
        if !reachable {
            self.client.set(Client::Unreachable);
            self.log_end(py);
            self.end_course(py, false);
        }
        self.wake(py)
    }

    /// The same, because the client has left and not because the server stops.
    pub(crate) fn leave(&self, py: Python<'_>, reachable: bool) -> PyResult<()> {
        let told = self.disconnect(py, reachable);
        if self.state.get() == State::Complete { told } else { told.and(self.host.client_left(py, &self.scope)) }
    }

    /// Wake waiting `receive()` calls.
    #[inline]
    pub(crate) fn wake(&self, py: Python<'_>) -> PyResult<()> {
        if self.receivers.is_empty() { Ok(()) } else { self.advance(py, Function::Receive) }
    }

    /// The response cannot be completed.
    #[cold]
    pub(super) fn break_off(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_disconnected() { Ok(()) } else { self.stream.abort(py, self.is_in_body()) }
    }

    /// Whether some of the body may have left, and not all of it.
    pub(crate) fn is_in_body(&self) -> bool {
        matches!(self.state.get(), State::Started | State::Sending)
    }

    /// Whether the response has begun, and the application has not completed it: it may be complete for the client, which
    /// gets no content.
    pub(crate) fn is_unfinished(&self) -> bool {
        matches!(self.state.get(), State::Started | State::Sending | State::Trailers)
    }

    // Admission.

    /// It has this place, until the application's call is over.
    pub(super) fn take_ticket(&self, ticket: Ticket) {
        self.seat.ticket.set(Some(Rc::new(ticket)));
    }

    /// Its place.
    #[inline]
    pub(super) fn ticket(&self) -> Option<Rc<Ticket>> {
        let ticket = self.seat.ticket.take();
        self.seat.ticket.set(ticket.clone());
        ticket
    }

    /// The application's call is over; returns the place that it had.
    #[inline]
    pub(super) fn leave_ticket(&self) -> Option<Rc<Ticket>> {
        self.seat.ticket.take()
    }

    /// Answer a request for which there is no room.
    #[cold]
    pub(super) fn refuse(&self, py: Python<'_>, gate: &Gate) -> PyResult<()> {
        self.answer(gate::STATUS, gate.fields.bind(py), gate.body.bind(py))
    }

    // The access log.

    /// The response starts, with the head that `head` gives.
    #[inline]
    pub(super) fn log_start(&self, py: Python<'_>, status: u16, head: impl FnOnce() -> Head) -> PyResult<()> {
        self.logged(py, |about| self.host.access.start(&self.entry, about, status, head))
    }

    // The metrics.

    /// The server answers in the place of the application.
    fn note_refusal(&self, status: u16) -> bool {
        let is_its_own = self.state.get() == State::Idle;
        if is_its_own {
            self.note_status(status);
        }
        is_its_own
    }

    /// Note the status of the response, for metrics and trace.
    #[inline]
    pub(crate) fn note_status(&self, status: u16) {
        if let Some(course) = &self.course {
            course.status.set(status);
        }
        if let Some(span) = &self.span {
            span.respond(status);
        }
    }

    /// Note that a part of the response has left, and more are to follow.
    #[inline]
    pub(super) fn note_part(&self) {
        if let Some(course) = &self.course {
            course.note_part();
        }
    }

    /// The application has raised this error, or has not completed its response.
    #[cold]
    pub(super) fn note_failure(&self, py: Python<'_>, error: Option<&PyErr>) {
        if let Some(span) = &self.span {
            span.fail(py, error);
        }
    }

    /// Count the end of the response; the first caller decides.
    #[inline]
    fn end_course(&self, py: Python<'_>, is_complete: bool) {
        if let Some(course) = &self.course
            && let Some(metrics) = &self.host.metrics
            && !course.is_over.replace(true)
        {
            metrics.end(course, self.scope.bind(py), is_complete);
            self.stream.note_end();
        }
        if let Some(span) = &self.span {
            self.end_span(py, span);
        }
    }

    /// Buffer the span. A failure costs the span, but never the response.
    #[cold]
    #[inline(never)]
    fn end_span(&self, py: Python<'_>, span: &RequestSpan) {
        if let Some(tracing) = self.host.tracing.as_ref().filter(|_| span.ends())
            && let Err(error) = tracing.end(span, self.scope.bind(py), &self.loan, &self.host.names)
        {
            error.write_unraisable(py, None);
        }
    }

    // The access log.

    /// This much of the body was sent.
    #[inline]
    pub(super) fn log_sent(&self, bytes: usize) {
        self.entry.count(bytes);
        if let Some(course) = &self.course {
            course.sent.set(course.sent.get() + bytes);
        }
        if let Some(span) = &self.span {
            span.send();
        }
    }

    /// The response is over.
    #[inline]
    fn log_end(&self, py: Python<'_>) {
        if self.entry.is_open() {
            self.logged(py, |about| self.host.access.end(&self.entry, about));
        }
    }

    #[inline]
    fn logged<R>(&self, py: Python<'_>, log: impl FnOnce(&About<'_, '_>) -> R) -> R {
        let later = || self.host.flush_log_later(py);
        log(&About { names: &self.host.names, peer: &self.peer, scope: self.scope.bind(py), later: &later })
    }

    // The application's side.

    /// Whether `receive()` has only the client's disconnect left.
    #[inline]
    pub(super) fn is_at_end(&self) -> bool {
        self.state.get() == State::Complete
            || (self.client.get() != Client::Here && (self.body.given.get() || self.body.more.get()))
    }

    #[inline]
    pub(super) fn has_message(&self) -> bool {
        self.is_at_end() || !self.body.given.get() && (self.body.length.get() > 0 || !self.body.more.get())
    }

    /// The body is complete, and its last piece was a file.
    pub(crate) fn end_body(&self, py: Python<'_>) -> PyResult<()> {
        if self.expects_trailers() {
            return self.await_trailers(py);
        }
        self.stream.body(py, None, Follows::Nothing)?;
        self.complete(py)
    }

    #[inline]
    pub(super) fn expects_trailers(&self) -> bool {
        let trailers = self.trailers.take();
        let expected = trailers.is_some();
        self.trailers.set(trailers);
        expected
    }

    #[cold]
    pub(super) fn await_trailers(&self, py: Python<'_>) -> PyResult<()> {
        self.stream.end_body(py)?;
        self.state.set(State::Trailers);
        Ok(())
    }

    /// The response is complete.
    #[inline]
    pub(crate) fn complete(&self, py: Python<'_>) -> PyResult<()> {
        self.state.set(State::Complete);
        self.log_end(py);
        self.end_course(py, true);
        self.host.request_complete(py)?;
        self.stream.clone().finish(py)?;
        self.wake(py)
    }

    /// Send the server's own response at once, without an application.
    pub(super) fn answer(&self, status: u16, headers: &Bound<'_, PyAny>, body: &Bound<'_, PyBytes>) -> PyResult<()> {
        let py = body.py();
        if self.is_disconnected() {
            return Ok(());
        }
        self.stream.start(py, status, Some(headers), self.own_field(py).as_ref())?;
        self.note_status(status);
        self.log_start(py, status, || self.stream.head(self.host.access.wants_head()))?;
        self.state.set(State::Started);
        self.stream.body(py, Some(body), Follows::Nothing)?;
        self.log_sent(body.as_bytes().len());
        self.complete(py)
    }

    /// Answer for an application that failed before it started its response.
    pub(super) fn send_500(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_disconnected() {
            return Ok(());
        }
        let stream = &self.stream;
        let (head, length) =
            stream.answer(py, 500, SERVER_ERROR, self.own_field(py).as_ref(), self.host.access.wants_head())?;
        self.note_status(500);
        self.log_start(py, 500, || head)?;
        self.log_sent(length);
        self.log_end(py);
        self.end_course(py, true);
        self.host.request_complete(py)?;
        stream.end(py)?;
        self.state.set(State::Complete);
        self.wake(py)
    }
}
