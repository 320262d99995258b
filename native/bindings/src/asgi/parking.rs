//! A request that has a place gives it back while its application waits for the client, see `uvicorn/overload/gate.py`.

use std::rc::Rc;

use pyo3::prelude::*;
use wire::method::Method;

use super::conversation::Function;
use super::exchange::{Exchange, State};
use super::gate::{self, TicketHolder, Waiting};

/// The response body for a client whose request has waited too long for its place.
const TEXT: &str = "Service Unavailable";

impl Exchange {
    /// The application waits for the client, in `function`.
    pub(super) fn park(self: &Rc<Self>, py: Python<'_>, function: Function) -> PyResult<()> {
        if self.seat.parked.get() {
            return Ok(());
        }
        let Some(ticket) = self.ticket() else { return Ok(()) };
        let holder = Bound::new(py, TicketHolder::new(Parked(self.clone())))?;
        // A `receive()` beside a call that waits to send waits for the client in any case.
        let for_body = function == Function::Receive && self.stream.capacity().writers.is_empty();
        self.seat.parked.set(ticket.park(&holder, for_body)?);
        Ok(())
    }

    /// The client has sent or read data. Returns the object to await until there is a place to go on.
    pub(super) fn await_place<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(ticket) = self.ticket().filter(|_| self.seat.parked.get()) else { return Ok(None) };
        let future = ticket.resume(py)?;
        self.seat.parked.set(future.is_some());
        Ok(future)
    }

    /// The application goes on, whether or not there is a place; `is_seen`: though it seemed to wait.
    #[cold]
    pub(super) fn unpark(&self, py: Python<'_>, is_seen: bool) -> PyResult<()> {
        match self.ticket() {
            Some(ticket) if self.seat.parked.replace(false) => ticket.force(py, is_seen),
            _ => Ok(()),
        }
    }

    /// End it though its application runs: answer it in the application's place, or break off its response.
    fn evict(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_disconnected() || self.state() == State::Complete {
            return Ok(());
        }
        if self.state() != State::Idle {
            return self.break_off(py);
        }
        self.host.count_refusal(Some(self), gate::STATUS, Method::Other);
        self.stream.answer(py, gate::STATUS, TEXT, self.own_field(py).as_ref(), false)?;
        self.stream.end(py)?;
        if self.is_disconnected() { Ok(()) } else { self.disconnect(py, false) }
    }
}

/// One that waits for its client.
struct Parked(Rc<Exchange>);

impl Waiting for Parked {
    /// Its application runs.
    fn admit(&self, _py: Python<'_>, _eagerly: bool) -> PyResult<()> {
        Ok(())
    }

    /// The same.
    fn refuse(&self, _py: Python<'_>) -> PyResult<()> {
        Ok(())
    }

    fn evict(&self, py: Python<'_>) -> PyResult<()> {
        self.0.guard(py, "evict", || self.0.evict(py))
    }
}
