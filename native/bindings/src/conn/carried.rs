//! The dealings of every connection with its carrier and its handler, in any protocol.

use std::cell::RefCell;
use std::rc::Rc;

use pyo3::PyTraverseError;
use pyo3::exceptions::{PyException, PyOSError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;

use super::carrier::Carrier;
use super::ends::Ends;
use super::grace::Pending;
use super::handler::Handler;
use super::hub::Hub;
use crate::base::error;
use crate::base::ffi::bytes::Growing;
use crate::base::home::Home;
use crate::base::places;

/// The life of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Open,
    /// All output is sent, and the client has a moment to read it: its input is thrown away.
    Lingering,
    Closed,
}

/// Both sides of a connection: the asyncio protocol that it is to Python, and what carries its bytes. Neither is there before
/// `connection_made`, nor after `connection_lost` or the hand-over to another protocol.
#[derive(Default)]
pub(crate) struct Sides {
    protocol: RefCell<Option<Py<PyAny>>>,
    carrier: RefCell<Option<Rc<dyn Carrier>>>,
}

impl Sides {
    /// Take hold of both, which is all that abandoning a connection needs.
    pub(crate) fn attach(&self, protocol: &Bound<'_, PyAny>, carrier: Rc<dyn Carrier>) {
        self.protocol.replace(Some(protocol.clone().unbind()));
        self.carrier.replace(Some(carrier));
    }

    pub(crate) fn protocol(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.protocol.borrow().as_ref().map(|protocol| protocol.clone_ref(py))
    }

    #[inline]
    pub(crate) fn carrier(&self) -> Option<Rc<dyn Carrier>> {
        self.carrier.borrow().clone()
    }

    /// Whether the end of input is the end of output as well.
    pub(crate) fn end_as_a_whole(&self, py: Python<'_>) -> PyResult<bool> {
        self.carrier().map_or(Ok(false), |carrier| carrier.ends_as_a_whole(py))
    }

    /// Whether the connection is a stream of another.
    pub(crate) fn are_a_stream(&self) -> bool {
        self.carrier.borrow().as_ref().is_some_and(|carrier| carrier.is_stream())
    }

    /// Let go of the carrier.
    pub(crate) fn drop_carrier(&self) {
        let carrier = self.carrier.take();
        drop(carrier);
    }

    // The garbage collector's side.

    /// Show the collector the objects that a cycle of references may go through.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Ok(carrier) = self.carrier.try_borrow()
            && let Some(carrier) = &*carrier
        {
            carrier.traverse(visit)?;
        }
        self.protocol.try_borrow().map_or(Ok(()), |protocol| visit.call(&*protocol))
    }

    /// Let go of them.
    pub(crate) fn clear(&self) {
        self.drop_carrier();
        let protocol = self.protocol.take();
        drop(protocol);
    }
}

/// A connection between its [`Sides`].
pub(crate) trait Carried: Sized {
    /// The counters that its end advances.
    const ENDS: &[usize] = &[places::CONNECTIONS_CLOSED];

    fn hub(&self) -> &Hub;
    fn sides(&self) -> &Sides;
    /// It is about to be cut off: nothing more is to be written.
    fn end_output(&self);

    // The events. A panic in any of these costs the connection, and nothing else.

    /// Bytes have come.
    fn data_received(self: &Rc<Self>, py: Python<'_>, data: &[u8]) -> PyResult<()>;
    /// Bytes have come, and may be changed in place: the caller does not use them again.
    fn own_data_received(self: &Rc<Self>, py: Python<'_>, data: &mut [u8]) -> PyResult<()> {
        self.data_received(py, data)
    }
    /// Call `receive` with the buffer for the next bytes, if there is one.
    fn with_receive_buffer(&self, _receive: &mut dyn FnMut(&mut Growing)) {}
    /// `length` bytes were received in that buffer.
    fn buffered_data_received(self: &Rc<Self>, _py: Python<'_>, _length: usize) -> PyResult<()> {
        Ok(())
    }
    /// The client has nothing more to send; it may still read. Returns whether the connection stays open.
    fn eof_received(&self, py: Python<'_>) -> PyResult<bool>;
    /// The client has ended, or has reset the connection, while no input is read.
    fn hung_up(&self, _py: Python<'_>, _reset: bool) -> PyResult<()> {
        Ok(())
    }
    /// More waits to be written than should.
    fn pause_writing(&self, py: Python<'_>) -> PyResult<()>;
    /// Little enough does again.
    fn resume_writing(self: &Rc<Self>, py: Python<'_>) -> PyResult<()>;
    /// It is gone: nothing can be sent, and nothing will come.
    fn connection_lost(&self, py: Python<'_>) -> PyResult<()>;
    /// Its end was counted.
    fn note_end(&self, _py: Python<'_>) -> PyResult<()> {
        Ok(())
    }
    /// Abort it after a panic, without inspecting its state.
    fn abandon(&self, py: Python<'_>) -> PyResult<()>;

    #[inline]
    fn home(&self) -> &Home {
        self.hub().home()
    }

    /// Run an entry point. A panic is logged and ends this connection, and nothing else; the caller gets the default.
    #[inline]
    fn guard<R: Default>(
        self: &Rc<Self>,
        py: Python<'_>,
        entry: &str,
        body: impl FnOnce(&Rc<Self>) -> PyResult<R>,
    ) -> PyResult<R> {
        error::guard(py, self.home(), entry, || self.abandon(py), || body(self))
    }

    /// Python's object for its carrier.
    fn transport(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.sides().carrier().map(|carrier| carrier.transport(py)).transpose()
    }

    /// The two ends: connections that arrive at the same address share one object for that.
    fn ends(&self, py: Python<'_>) -> PyResult<Option<Ends>> {
        let Some(carrier) = self.sides().carrier() else { return Ok(None) };
        let ends = carrier.ends(py)?;
        Ok(Some(Ends { server: self.hub().server_address(ends.server.bind(py))?, ..ends }))
    }

    /// Call the carrier: `None` if it is gone, or if it has failed.
    #[inline]
    fn on_carrier<T>(&self, py: Python<'_>, ask: impl FnOnce(Rc<dyn Carrier>) -> PyResult<T>) -> PyResult<Option<T>> {
        let Some(carrier) = self.sides().carrier() else { return Ok(None) };
        match ask(carrier) {
            Ok(answer) => Ok(Some(answer)),
            Err(error) => self.give_up(py, error).map(|()| None),
        }
    }

    /// Whether anything from the peer is yet to be processed; the next turn does that.
    #[cold]
    fn look_for_peer(&self, py: Python<'_>) -> PyResult<Pending> {
        Ok(self.on_carrier(py, |carrier| carrier.look(py))?.unwrap_or(Pending::Nothing))
    }

    /// Whether writing has become impossible.
    fn is_transport_closing(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.on_carrier(py, |carrier| carrier.is_closing(py))?.unwrap_or(true))
    }

    /// Whether one direction can be ended without the other.
    fn can_write_eof(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.on_carrier(py, |carrier| carrier.can_write_eof(py))?.unwrap_or_default())
    }

    /// Whether it can say its last and go on reading, until the peer has read that and closes.
    fn can_linger(&self, py: Python<'_>) -> PyResult<bool> {
        if self.sides().end_as_a_whole(py)? || self.is_transport_closing(py)? {
            return Ok(false);
        }
        self.can_write_eof(py)
    }

    /// The transport has raised `error`: whatever the connection was doing is over, and `connection_lost` clears up.
    #[cold]
    fn give_up(&self, py: Python<'_>, error: PyErr) -> PyResult<()> {
        if !error.is_instance_of::<PyException>(py) {
            return Err(error);
        }
        if !error.is_instance_of::<PyOSError>(py) {
            self.home().log_exception(py, "Transport failed, aborting the connection.\n", &error)?;
        }
        self.abort(py)
    }

    /// Take the transport away.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.end_output();
        match self.sides().carrier().map(|carrier| carrier.abort(py)) {
            None | Some(Ok(())) => Ok(()),
            // No other code will report that the connection is lost.
            Some(Err(error)) if error.is_instance_of::<PyException>(py) => self.connection_lost(py),
            Some(Err(error)) => Err(error),
        }
    }

    /// Drop the transport, and have the kernel reset the connection: else it would keep the output of a peer that does
    /// not read.
    #[cold]
    fn abort_with_reset(&self, py: Python<'_>) -> PyResult<()> {
        self.on_carrier(py, |carrier| carrier.reset_on_close(py))?;
        self.abort(py)
    }

    /// Whether the peer has yet to take some of the output.
    fn has_unsent(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.on_carrier(py, |carrier| carrier.unsent(py))?.is_some_and(|unsent| unsent > 0))
    }

    /// Close once everything is written; whether that is up to the client, who has its time for it.
    fn close_carrier(&self, py: Python<'_>) -> PyResult<bool> {
        let waiting = self.on_carrier(py, |carrier| {
            carrier.clone().close(py)?;
            carrier.waiting(py)
        })?;
        Ok(waiting.unwrap_or_default() > 0)
    }

    /// It lingers: once the kernel has its last response, which [`resume_writing`](Self::resume_writing) reports if that is
    /// later, another connection may have its place.
    fn note_linger(&self, py: Python<'_>) -> PyResult<()> {
        match self.on_carrier(py, |carrier| carrier.waiting(py))? {
            None => Ok(()),
            Some(0) => {
                let protocol = self.sides().protocol(py);
                protocol.map_or(Ok(()), |protocol| self.hub().connections.linger(protocol.bind(py)))
            }
            Some(_) => self.on_carrier(py, |carrier| carrier.pause_early(py)).map(drop),
        }
    }

    /// Take the protocol object out of the live connections.
    fn forget(&self, py: Python<'_>) -> PyResult<()> {
        let protocol = self.sides().protocol.borrow_mut().take();
        match protocol {
            Some(protocol) => {
                for place in Self::ENDS {
                    self.home().count(*place);
                }
                self.note_end(py)?;
                self.hub().connections.discard(protocol.bind(py), &self.home().names)
            }
            None => Ok(()),
        }
    }
}

impl<C: Carried> Handler for C {
    fn on_data(self: Rc<Self>, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        self.guard(py, "data_received", |connection| connection.data_received(py, data))
    }

    fn on_input(self: Rc<Self>, py: Python<'_>, data: &mut [u8]) -> PyResult<()> {
        self.guard(py, "data_received", |connection| connection.own_data_received(py, data))
    }

    fn with_receive_buffer(&self, receive: &mut dyn FnMut(&mut Growing)) {
        Carried::with_receive_buffer(self, receive);
    }

    fn on_received_in_buffer(self: Rc<Self>, py: Python<'_>, length: usize) -> PyResult<()> {
        self.guard(py, "data_received", |connection| connection.buffered_data_received(py, length))
    }

    fn on_eof(self: Rc<Self>, py: Python<'_>) -> PyResult<bool> {
        self.guard(py, "eof_received", |connection| connection.eof_received(py))
    }

    fn on_hang_up(self: Rc<Self>, py: Python<'_>, reset: bool) -> PyResult<()> {
        self.guard(py, "hung_up", |connection| connection.hung_up(py, reset))
    }

    fn on_lost(self: Rc<Self>, py: Python<'_>, _error: Option<PyErr>) -> PyResult<()> {
        self.guard(py, "connection_lost", |connection| connection.connection_lost(py))
    }

    fn on_pause(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.guard(py, "pause_writing", |connection| connection.pause_writing(py))
    }

    fn on_resume(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.guard(py, "resume_writing", |connection| connection.resume_writing(py))
    }

    fn protocol(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.sides().protocol(py)
    }
}
