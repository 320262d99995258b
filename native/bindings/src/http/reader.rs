//! Reading busy connections past their transports: one call of the event loop for all that have something to say.
//!
//! A transport costs more than the request it delivers: a callback, a bytes object and two changes of the thread state
//! for each. So a connection that sends a second request has its transport stop reading, and its socket is watched by a
//! `Poll` of ours, which the loop watches as one more descriptor. The transport stays in charge of all the rest: writing
//! what the socket does not take, closing, and reading again for whoever takes the connection over.
//!
//! Only plain sockets of Linux are read like this, and only the transports of `uvloop` and `asyncio` are known well enough.
//!
//! An application that is called from here may run the loop again, and stay there. So nothing that others need is kept on
//! the stack: what is to be read is in a queue, with which a call inside this one goes on, and that call has a buffer and
//! a context of its own.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::error::guard;
use crate::ffi::{Poll, Ready, ThreadBound, copy_context};
use crate::http::connection::Connection;
use crate::pool::poison;
use crate::server::{Core, Server};

/// Read at once from one connection; more stays for its next turn.
const BUFFER_BYTES: usize = 64 * 1024;
/// Times that a connection which fills the buffer is read from before others have their turn.
const MAX_READS: usize = 4;

/// What the loop watches in place of many transports.
#[derive(Default)]
pub(crate) struct Reader {
    poll: RefCell<Option<Poll>>,
    /// What that told and is not read yet.
    ready: RefCell<VecDeque<Ready>>,
    /// It was tried, and this system or this loop cannot.
    unavailable: Cell<bool>,
    /// Taken out while it is used, so that nothing is borrowed.
    buffer: Cell<Vec<u8>>,
    /// The loop's call is running: what can be done once for all waits for its end.
    running: Cell<bool>,
    flush_log: Cell<bool>,
    /// Python code had a transport in its hands, so a socket may close without our doing at any time.
    pub(crate) transports_lent: Cell<bool>,
}

impl Reader {
    /// Whether the lines of the access log will be written without asking the loop for a call.
    #[inline]
    pub(crate) fn will_flush_log(&self) -> bool {
        if self.running.get() {
            self.flush_log.set(true);
        }
        self.running.get()
    }

    /// Watch the socket of the connection in `slot`; `false`: it must be read by its transport.
    pub(crate) fn watch(&self, core: &Core, server: &Bound<'_, Server>, descriptor: i32, slot: usize) -> bool {
        if self.unavailable.get() {
            return false;
        }
        if self.poll.borrow().is_none() {
            let Ok(poll) = Poll::new() else {
                self.unavailable.set(true);
                return false;
            };
            if have_loop_watch(core, &poll, server).is_err() {
                self.unavailable.set(true);
                return false;
            }
            self.poll.replace(Some(poll));
        }
        self.poll.borrow().as_ref().is_some_and(|poll| poll.add(descriptor, slot).is_ok())
    }

    /// Say again what there is to read.
    pub(crate) fn rewatch(&self, descriptor: i32, slot: usize) {
        if let Some(poll) = &*self.poll.borrow() {
            // It can only fail for a socket that is closed, about which there is nothing more to say.
            let _ = poll.rearm(descriptor, slot);
        }
    }

    /// Leave the socket to its transport.
    pub(crate) fn unwatch(&self, descriptor: i32) {
        if let Some(poll) = &*self.poll.borrow() {
            let _ = poll.remove(descriptor);
        }
    }

    /// Whose turn it is.
    fn next(&self) -> Option<Ready> {
        self.ready.borrow_mut().pop_front()
    }

    /// See to it that a loop that is run from inside comes back here for those that are still to be read.
    #[cold]
    fn tell_again(&self, core: &Core) {
        let ready = self.ready.borrow();
        let mut connections = ready.iter().filter_map(|event| Some((event.slot, core.deadlines.get(event.slot)?)));
        let next = connections.find_map(|(slot, connection)| Some((connection.readable()?, slot)));
        if let Some((descriptor, slot)) = next {
            self.rewatch(descriptor, slot);
        }
    }

    /// The server has ended: connections that are still there are read by their transports again.
    pub(crate) fn close(&self, core: &Core, py: Python<'_>) -> PyResult<()> {
        self.unavailable.set(true);
        for connection in core.deadlines.all() {
            connection.release(py)?;
        }
        let poll = self.poll.borrow_mut().take();
        match poll {
            Some(poll) => core.event_loop.bind(py).call_method1("remove_reader", (poll.descriptor(),)).map(drop),
            None => Ok(()),
        }
    }
}

/// Have the loop call `Server.read` when there is something to read.
fn have_loop_watch(core: &Core, poll: &Poll, server: &Bound<'_, Server>) -> PyResult<()> {
    let py = server.py();
    let event_loop = core.event_loop.bind(py);
    let read = server.getattr("read")?;
    if core.reentrance.is_possible() && event_loop.hasattr("_add_reader")? {
        let handle = event_loop.call_method1("_add_reader", (poll.descriptor(), read))?;
        let contexts = Contexts { base: core.context.clone_ref(py), spare: ThreadBound::default() };
        return handle.setattr("_context", Py::new(py, contexts)?);
    }
    let add_reader = event_loop.getattr("add_reader")?;
    core.context.bind(py).call_method1(&core.names.run, (add_reader, poll.descriptor(), read)).map(drop)
}

/// What a handle of asyncio's calls its callback in. A context could not be entered a second time, when the loop is run
/// again from inside the callback; this takes another then.
#[pyclass(module = "uvicorn._native", frozen)]
struct Contexts {
    /// The server's; each one is a copy of it.
    base: Py<PyAny>,
    spare: ThreadBound<Cell<Option<Py<PyAny>>>>,
}

#[pymethods]
impl Contexts {
    #[pyo3(signature = (*arguments))]
    fn run<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let spare = self.spare.here()?;
        let context = match spare.take() {
            Some(context) => context.into_bound(py),
            None => copy_context(self.base.bind(py))?,
        };
        let result = context.getattr("run")?.call1(arguments);
        spare.set(Some(context.unbind()));
        result
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.base)
    }
}

/// Read from every connection that has something to say.
pub(crate) fn read(core: &Rc<Core>, py: Python<'_>) -> PyResult<()> {
    let reader = &core.reader;
    if let Some(poll) = &*reader.poll.borrow() {
        poll.wait(&mut reader.ready.borrow_mut());
    }
    let mut buffer = reader.buffer.take();
    buffer.resize(BUFFER_BYTES, 0);
    let outer = reader.running.replace(true);
    let mut is_told = !core.reentrance.is_possible();
    // A connection that fails must not keep the others from being read.
    let mut outcome = Ok(());
    while let Some(event) = reader.next() {
        if !std::mem::replace(&mut is_told, true) {
            reader.tell_again(core);
        }
        if let Some(connection) = core.deadlines.get(event.slot) {
            let turn = guard(py, &connection, "data_received", |connection| {
                read_from(py, connection, event.slot, event.hung_up, &mut buffer)
            });
            outcome = outcome.and(turn.or_else(|error| connection.fail_reading(py, &error)));
        }
    }
    reader.running.set(outer);
    if core.settings.poison {
        poison(&mut buffer);
    }
    reader.buffer.set(buffer);
    if reader.flush_log.replace(false) {
        outcome = outcome.and(core.flush_log(py));
    }
    outcome
}

fn read_from(
    py: Python<'_>,
    connection: &Rc<Connection>,
    slot: usize,
    hung_up: bool,
    buffer: &mut [u8],
) -> PyResult<()> {
    let reader = &connection.core.reader;
    for turn in 0..MAX_READS {
        let Some(descriptor) = connection.readable() else { return Ok(()) };
        // The socket is ours until somebody else has closed it, and its number may be another's by then.
        if (turn > 0 || reader.transports_lent.get()) && connection.is_transport_closing(py)? {
            return Ok(());
        }
        match crate::ffi::recv(descriptor, buffer) {
            Ok(0) => return connection.at_eof(py),
            Ok(length) => {
                connection.receive(py, buffer.get(..length).unwrap_or_default())?;
                if length < buffer.len() && !hung_up {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // A reset, mostly: as the transport does, without a word.
            Err(_) => return connection.abort(py),
        }
    }
    if let Some(descriptor) = connection.readable() {
        reader.rewatch(descriptor, slot);
    }
    Ok(())
}
