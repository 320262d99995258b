//! Whether a request may be served now: `uvicorn/overload/gate.py` decides that for all implementations.
//!
//! A call into Python is affordable here: it costs a hundredth of the work that the decision saves. Without a limit it is
//! one branch. A place is given back when the application's call ends, or at the latest when the exchange is dropped.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::base::ffi::thread_bound::ThreadBound;

/// The status of a refusal.
pub(crate) const STATUS: u16 = 503;

/// `uvicorn.overload.gate.Gate`, and its response to refused clients.
pub(crate) struct Gate {
    object: Py<PyAny>,
    pub(crate) fields: Py<PyAny>,
    /// Those of them that are not about its content.
    pub(crate) hints: Py<PyAny>,
    pub(crate) body: Py<PyBytes>,
    /// The application that says the same, and waits for a client that does not read.
    pub(super) refuse: Py<PyAny>,
    refused: Py<PyAny>,
    waiting: Py<PyAny>,
}

/// The gate's decision on a request.
pub(crate) enum Decision {
    /// It is not counted.
    Uncounted,
    Admitted(Ticket),
    Waits(Ticket),
    Refused,
}

impl Gate {
    /// That of a `ServerState`, if requests are counted.
    pub(crate) fn of_state(
        state: &Bound<'_, PyAny>,
        config: &Bound<'_, PyAny>,
        event_loop: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Self>> {
        let gate = state.call_method1("gate_for", (config, event_loop))?;
        if gate.is_none() {
            return Ok(None);
        }
        let states = state.py().import("uvicorn.overload.admission")?;
        Ok(Some(Self {
            fields: gate.getattr("fields")?.unbind(),
            hints: gate.getattr("hints")?.unbind(),
            body: gate.getattr("body")?.cast_into()?.unbind(),
            refuse: gate.getattr("refuse")?.unbind(),
            refused: states.getattr("REFUSED")?.unbind(),
            waiting: states.getattr("WAITING")?.unbind(),
            object: gate.unbind(),
        }))
    }

    /// Decide about the request of `scope`; one that must not wait is admitted or refused at once.
    pub(crate) fn enter(&self, scope: &Bound<'_, PyDict>, may_wait: bool) -> PyResult<Decision> {
        let py = scope.py();
        let ticket = self.object.bind(py).call_method1(intern!(py, "enter"), (scope, may_wait))?;
        if ticket.is_none() {
            return Ok(Decision::Uncounted);
        }
        let state = ticket.getattr(intern!(py, "state"))?;
        if state.is(&self.refused) {
            return Ok(Decision::Refused);
        }
        let ticket = Ticket { gate: self.object.clone_ref(py), object: ticket.unbind() };
        Ok(if state.is(&self.waiting) { Decision::Waits(ticket) } else { Decision::Admitted(ticket) })
    }
}

/// Of one request, among those that are active or wait. It is given back when this is dropped, in whatever way that
/// happens.
pub(crate) struct Ticket {
    gate: Py<PyAny>,
    object: Py<PyAny>,
}

impl Ticket {
    /// The client is gone, or looks like it. Returns whether it has waited.
    pub(crate) fn leave(&self, py: Python<'_>) -> PyResult<bool> {
        self.gate.bind(py).call_method1(intern!(py, "leave"), (&self.object,))?.extract()
    }

    /// Have `holder` told when it is its turn, or will not be.
    pub(crate) fn hold(&self, holder: &Bound<'_, TicketHolder>) -> PyResult<()> {
        self.object.bind(holder.py()).setattr(intern!(holder.py(), "holder"), holder)
    }

    /// Give it back while the application waits for the client, `for_body` or to send; whether that was done. `holder` is
    /// told if the request is to end meanwhile.
    pub(super) fn park(&self, holder: &Bound<'_, TicketHolder>, for_body: bool) -> PyResult<bool> {
        let py = holder.py();
        self.gate.bind(py).call_method1(intern!(py, "park"), (&self.object, holder, for_body))?.extract()
    }

    /// Take the place again, now that the client has sent or read data. Returns the object to await if none is free,
    /// before this is called again.
    pub(super) fn resume<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let future = self.gate.bind(py).call_method1(intern!(py, "resume"), (&self.object,))?;
        Ok(Some(future).filter(|future| !future.is_none()))
    }

    /// Have it again, free or not; `is_seen`: the application works, though it seemed to wait.
    pub(super) fn force(&self, py: Python<'_>, is_seen: bool) -> PyResult<()> {
        self.gate.bind(py).call_method1(intern!(py, "force"), (&self.object, is_seen)).map(drop)
    }

    /// Give it back in the last step of the application's call, inside which the next one may begin.
    #[cold]
    #[inline(never)]
    pub(super) fn hand_on(&self, py: Python<'_>) -> PyResult<()> {
        self.gate.bind(py).call_method1(intern!(py, "hand_on"), (&self.object,)).map(drop)
    }

    /// Give it back without counting how long it was held, which is not representative.
    pub(crate) fn give_back_unmeasured(self, py: Python<'_>) -> PyResult<()> {
        self.gate.bind(py).call_method1(intern!(py, "release"), (&self.object, false)).map(drop)
    }
}

impl Drop for Ticket {
    // Few servers have a limit: keep this off the path of requests without a place.
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        Python::attach(|py| {
            let released = self.gate.bind(py).call_method1(intern!(py, "release"), (&self.object,));
            if let Err(error) = released {
                error.write_unraisable(py, Some(self.gate.bind(py)));
            }
        });
    }
}

/// A request whose application has to wait until it is called, or waits for the client.
pub(crate) trait Waiting {
    /// Start its application; `eagerly`: its first step may happen now.
    fn admit(&self, py: Python<'_>, eagerly: bool) -> PyResult<()>;
    /// Answer it, if it still can be answered.
    fn refuse(&self, py: Python<'_>) -> PyResult<()>;
    /// End it though its application runs: answer it, or break off its response.
    fn evict(&self, py: Python<'_>) -> PyResult<()>;
}

/// The same, as Python tells it.
#[pyclass(module = "uvicorn._native", frozen)]
pub(crate) struct TicketHolder {
    waiting: ThreadBound<Box<dyn Waiting>>,
}

impl TicketHolder {
    pub(crate) fn new(waiting: impl Waiting + 'static) -> Self {
        Self { waiting: ThreadBound::new(Box::new(waiting)) }
    }
}

#[pymethods]
impl TicketHolder {
    /// Start its application; `eagerly`: its first step may happen now.
    fn admit(&self, py: Python<'_>, eagerly: bool) -> PyResult<()> {
        self.waiting.here()?.admit(py, eagerly)
    }

    /// Answer it 503, if it still can be answered.
    fn refuse(&self, py: Python<'_>) -> PyResult<()> {
        self.waiting.here()?.refuse(py)
    }

    /// End it though its application runs: answer it 503, or break off its response.
    fn evict(&self, py: Python<'_>) -> PyResult<()> {
        self.waiting.here()?.evict(py)
    }
}
