//! One connected socket, of TCP or Unix: its states, its input and its end.
//!
//! ```text
//! OPEN ──close──▶ CLOSING ──everything is written──▶ LOST ──the turn ends──▶ (descriptor closed, handler notified)
//! ```
//!
//! The steps before its protocol are in `opening`, its output in `output`, the interface for connections in `carrier`,
//! that for Python in `shown` and `transport`.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::address::Local;
use super::states::{End, Kernel, Outgoing, PeerEnd, Phase, QueueState, Reading, Shown};
use super::sys::{Address, Descriptor, os_error};
use super::tls::engine::Tls;
use super::tls::shared::{self, Input};
use super::who::Who;
use crate::base::encrypted::SslObject;
use crate::base::turns::Turns;
use crate::conn::grace::Pending;
use crate::conn::handler::Handler;

/// Serves sockets in its turns, and watches their descriptors.
pub(crate) trait Keeper: Turns {
    /// Watch `descriptor`; its events carry `token`.
    fn watch(&self, descriptor: &Descriptor, token: u64) -> io::Result<()>;
    /// Stop watching it, if it was watched.
    fn forget(&self, descriptor: &Descriptor);
    /// Serve `socket` in its turn.
    fn queue(&self, py: Python<'_>, socket: &Rc<Socket>) -> PyResult<()>;
    /// The end of a connection is due: handled once no call on its stack is in progress.
    fn lose(&self, py: Python<'_>, token: u64) -> PyResult<()>;
    /// The Python transport of a socket.
    fn transport_of(&self, py: Python<'_>, socket: &Rc<Socket>) -> PyResult<Py<PyAny>>;
    /// Report an exception to the loop.
    fn report(&self, context: &Bound<'_, PyDict>) -> PyResult<()>;
    /// The handshake with `peer` has failed, or its PROXY header.
    fn note_failed_opening(&self, py: Python<'_>, peer: &Py<PyAny>, reason: &str) -> PyResult<()>;
    /// Whether anything is counted.
    fn counts(&self) -> bool;
    /// Count one at a place, if anything is counted.
    fn count(&self, place: usize);
    /// `peer` had to send a PROXY header, and has sent something else.
    fn note_malformed_preface(&self, py: Python<'_>, peer: &Py<PyAny>, reason: &str) -> PyResult<()>;
}

/// Puts a protocol on a socket whose handshake is complete.
pub(super) trait Opener {
    /// Put a new protocol on `socket`.
    fn stand(&self, py: Python<'_>, socket: &Rc<Socket>) -> PyResult<()>;
    /// One handshake has ended.
    fn is_opened(&self, py: Python<'_>) -> PyResult<()>;
    /// There is no room for the connection of `descriptor`. Clients of unencrypted HTTP get a response.
    fn reject(&self, py: Python<'_>, descriptor: &Descriptor) -> PyResult<()>;
}

/// The steps that must come before the protocol, and the listener that puts it on the socket.
#[derive(Clone, Default)]
pub(super) enum Opening {
    /// The PROXY header, then the handshake.
    Preface(Rc<dyn Opener>),
    Handshake(Rc<dyn Opener>),
    /// Nothing: the socket has its protocol.
    #[default]
    Over,
}

impl Opening {
    pub(super) fn opener(&self) -> Option<Rc<dyn Opener>> {
        match self {
            Self::Preface(opener) | Self::Handshake(opener) => Some(opener.clone()),
            Self::Over => None,
        }
    }
}

/// A connection between the kernel and a [`Handler`].
pub(crate) struct Socket {
    pub(super) keeper: Rc<dyn Keeper>,
    token: u64,
    descriptor: RefCell<Option<Rc<Descriptor>>>,
    pub(super) who: Who,
    /// The TLS state, if the connection is encrypted.
    pub(super) tls: Option<Tls>,
    pub(super) opening: RefCell<Opening>,
    handler: RefCell<Option<Rc<dyn Handler>>>,
    pub(super) phase: Cell<Phase>,
    reading: Cell<Reading>,
    pub(super) kernel: Kernel,
    pub(super) outgoing: Outgoing,
    pub(super) queue_state: Cell<QueueState>,
    /// When it took its place in the queue, if the metrics are served.
    pub(super) queued_at: Cell<Option<Instant>>,
    pub(super) shown: Shown,
    end: End,
}

impl Socket {
    pub(super) fn new(
        keeper: Rc<dyn Keeper>,
        token: u64,
        descriptor: Descriptor,
        peer: Address,
        local: Option<Rc<Local>>,
        tls: Option<Tls>,
    ) -> Self {
        Self {
            keeper,
            token,
            descriptor: RefCell::new(Some(Rc::new(descriptor))),
            who: Who::new(peer, local),
            tls,
            opening: RefCell::default(),
            handler: RefCell::default(),
            phase: Cell::new(Phase::Open),
            reading: Cell::new(Reading::On),
            kernel: Kernel::default(),
            outgoing: Outgoing::default(),
            queue_state: Cell::new(QueueState::Nowhere),
            queued_at: Cell::new(None),
            shown: Shown::default(),
            end: End::default(),
        }
    }

    pub(super) fn token(&self) -> u64 {
        self.token
    }

    /// Set the receiver of all further events.
    pub(super) fn set_handler(&self, handler: Rc<dyn Handler>) {
        let old = self.handler.replace(Some(handler));
        drop(old);
    }

    pub(super) fn handler(&self) -> Option<Rc<dyn Handler>> {
        self.handler.borrow().clone()
    }

    pub(super) fn descriptor(&self) -> Option<Rc<Descriptor>> {
        self.descriptor.borrow().clone()
    }

    /// What programs see of an encrypted connection.
    pub(super) fn ssl_object(&self, py: Python<'_>) -> Option<SslObject> {
        self.tls.as_ref().map(|tls| tls.object(py))
    }

    /// The `ssl.SSLContext` of an encrypted connection.
    pub(super) fn ssl_context(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.tls.as_ref().map(|tls| tls.context(py)).transpose()
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether the end has begun: output may not arrive any longer.
    #[inline]
    pub(super) fn is_closing(&self) -> bool {
        self.phase.get() != Phase::Open
    }

    // Input.

    /// Take an event from the kernel.
    pub(super) fn notice(&self, readable: bool, writable: bool, hung_up: bool) {
        if readable {
            self.kernel.readable.set(true);
        }
        if writable {
            self.kernel.writable.set(true);
        }
        if hung_up && self.kernel.peer_end.get() == PeerEnd::Unknown {
            self.kernel.peer_end.set(PeerEnd::Known);
        }
    }

    /// Whether a turn has work to do here.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        let writes = self.kernel.writable.get() && self.waiting() > 0;
        self.kernel.readable.get() && self.is_reading() || writes || self.outgoing.yields.get() || self.end_is_news()
    }

    /// Whether there is anything to read, or room to write, that no turn has handled yet; the next one does. No
    /// deadline expires before that.
    #[cold]
    pub(super) fn look(self: &Rc<Self>, py: Python<'_>) -> PyResult<Pending> {
        match self.queue_state.get() {
            QueueState::Nowhere => {}
            QueueState::Queued => {
                self.queue_state.set(QueueState::Examined);
                return Ok(Pending::Something);
            }
            QueueState::Examined => return Ok(Pending::Unserved),
        }
        let Some(descriptor) = self.descriptor().filter(|_| self.phase.get() != Phase::Lost) else {
            return Ok(Pending::Nothing);
        };
        let (readable, writable) = descriptor.is_ready((self.is_reading(), self.waiting() > 0));
        if !readable && !writable {
            return Ok(Pending::Nothing);
        }
        self.notice(readable, writable, false);
        let queued = self.keeper.queue(py, self);
        self.queue_state.set(QueueState::Examined);
        queued.map(|()| Pending::Something)
    }

    /// Whether the peer's end, which came while no input is taken, is unknown to the handler.
    #[inline]
    fn end_is_news(&self) -> bool {
        let waits = self.reading.get() == Reading::Paused && self.phase.get() == Phase::Open;
        waits && self.kernel.peer_end.get() == PeerEnd::Known
    }

    /// Read and write as much as one turn allows.
    pub(super) fn serve(self: &Rc<Self>, py: Python<'_>, buffer: &mut [u8], reads: usize) -> PyResult<()> {
        if self.is_opening() {
            self.go_on_opening(py, buffer)?;
        }
        let yielded = self.outgoing.begin_turn();
        if self.waiting() > 0 {
            self.flush(py)?;
        } else if yielded {
            self.apply_marks(py)?;
        }
        if self.end_is_news() {
            self.kernel.peer_end.set(PeerEnd::Told);
            let reset = self.descriptor().is_none_or(|descriptor| descriptor.is_reset());
            let Some(handler) = self.handler() else { return Ok(()) };
            return handler.on_hang_up(py, reset);
        }
        for _ in 0..reads {
            if !(self.kernel.readable.get() && self.is_reading() && self.read(py, buffer)?) {
                break;
            }
        }
        Ok(())
    }

    /// Read once, and hand on the data. Returns whether there may be more.
    #[inline]
    fn read(self: &Rc<Self>, py: Python<'_>, buffer: &mut [u8]) -> PyResult<bool> {
        let (Some(descriptor), Some(handler)) = (self.descriptor(), self.handler()) else { return Ok(false) };
        let (mut placed, mut is_placed) = (None, false);
        let received = match &self.tls {
            None => {
                handler.with_receive_buffer(&mut |place| placed = Some(shared::receive_into(&descriptor, place)));
                is_placed = placed.is_some();
                placed.unwrap_or_else(|| shared::receive(&descriptor, buffer))
            }
            Some(tls) => tls.receive(py, &descriptor, buffer),
        };
        drop(descriptor);
        let (length, drained) = match received {
            Ok(Input::Data { length, drained }) => (length, drained),
            Ok(Input::End) => return self.end_input(py).map(|()| false),
            // All the data was part of a record. The end behind it is to be read; no event follows.
            Ok(Input::Nothing) if self.is_encrypted() && self.kernel.peer_end.get() != PeerEnd::Unknown => {
                return Ok(true);
            }
            Ok(Input::Nothing) => return self.await_input(py).map(|()| false),
            Err(error) => return self.lose_by(py, error).map(|()| false),
        };
        // An edge follows when more data comes.
        let last = drained && self.kernel.peer_end.get() == PeerEnd::Unknown;
        self.kernel.readable.set(!last || !self.kernel.watched.get());
        let outcome = if is_placed {
            handler.on_received_in_buffer(py, length)
        } else {
            handler.on_input(py, buffer.get_mut(..length).unwrap_or_default())
        };
        if let Err(error) = outcome {
            self.fail(py, error, "Fatal error: protocol.data_received() call failed.")?;
            return Ok(false);
        }
        if self.tls.is_some() && self.waiting() > 0 {
            // The waiting output may have needed this input (RFC 5246 section 7.4.1.1).
            self.flush(py)?;
        }
        Ok(!(last && self.kernel.watched.get()))
    }

    /// Handle an error of the connection. A TLS peer that closes without `close_notify` is not an error.
    #[cold]
    pub(super) fn lose_by(&self, py: Python<'_>, error: PyErr) -> PyResult<()> {
        let sudden = self.tls.as_ref().is_some_and(|tls| tls.is_sudden_end(py, &error));
        self.lose(py, if sudden { None } else { Some(error) })
    }

    /// Have the kernel report events; those that are due already it reports at once.
    pub(super) fn watch(&self, py: Python<'_>) -> PyResult<()> {
        if self.kernel.watched.replace(true) || self.phase.get() == Phase::Lost {
            return Ok(());
        }
        let Some(descriptor) = self.descriptor() else { return Ok(()) };
        match self.keeper.watch(&descriptor, self.token) {
            Ok(()) => Ok(()),
            Err(error) => self.lose(py, Some(os_error(&error))),
        }
    }

    /// There is nothing to read for now.
    pub(super) fn await_input(&self, py: Python<'_>) -> PyResult<()> {
        self.kernel.readable.set(false);
        self.watch(py)
    }

    fn end_input(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.reading.set(Reading::Ended);
        self.kernel.readable.set(false);
        let Some(handler) = self.handler() else { return Ok(()) };
        match handler.on_eof(py) {
            // A peer that is gone altogether is noticed by writing, so the kernel must report that.
            Ok(true) => self.watch(py),
            Ok(false) => self.close(py),
            Err(error) => self.fail(py, error, "Fatal error: protocol.eof_received() call failed."),
        }
    }

    /// Stop reading until [`resume_reading`](Self::resume_reading).
    pub(super) fn pause_reading(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        if self.reading.get() != Reading::On {
            return Ok(());
        }
        self.reading.set(Reading::Paused);
        if self.kernel.peer_end.get() == PeerEnd::Told {
            self.kernel.peer_end.set(PeerEnd::Known);
        }
        // Else the peer's end would go unnoticed.
        self.watch(py)?;
        if self.end_is_news() { self.keeper.queue(py, self) } else { Ok(()) }
    }

    /// Start reading again.
    pub(super) fn resume_reading(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        if self.reading.get() == Reading::Paused {
            self.reading.set(Reading::On);
            if self.has_work() {
                return self.keeper.queue(py, self);
            }
        }
        Ok(())
    }

    pub(super) fn is_reading(&self) -> bool {
        self.reading.get() == Reading::On && self.phase.get() == Phase::Open
    }

    // The end.

    /// Stop reading, and end once everything is written.
    pub(super) fn close(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        if self.phase.get() != Phase::Open {
            return Ok(());
        }
        self.phase.set(Phase::Closing);
        if self.waiting() == 0 { self.written(py) } else { self.watch(py) }
    }

    pub(super) fn resets(&self) -> bool {
        self.end.resets.get()
    }

    /// Have the close reset the connection, so that the peer notices.
    pub(super) fn reset_on_close(&self) {
        self.end.resets.set(true);
    }

    /// End at once, by `error` if there is one; waiting output is lost.
    pub(super) fn lose(&self, py: Python<'_>, error: Option<PyErr>) -> PyResult<()> {
        if self.phase.replace(Phase::Lost) == Phase::Lost {
            return Ok(());
        }
        let old = self.end.error.replace(error.map(Box::new));
        drop(old);
        self.outgoing.clear();
        let records = self.tls.as_ref().map(Tls::forget);
        drop(records);
        self.keeper.lose(py, self.token)
    }

    /// End the connection: the kernel forgets our number first, then the handler is notified.
    pub(super) fn bury(&self, py: Python<'_>) -> PyResult<()> {
        let slot = self.who.slot.take();
        let left = slot.map_or(Ok(()), |slot| slot.leave(py));
        self.bury_what_stands(py).and(left)
    }

    fn bury_what_stands(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(opener) = self.opening.take().opener() {
            opener.is_opened(py)?;
        }
        let descriptor = self.descriptor.take();
        if let Some(descriptor) = descriptor {
            if self.end.resets.get() {
                descriptor.reset_on_close();
            }
            let closed = self.close_duplicate(py, &descriptor);
            drop(descriptor);
            closed?;
        }
        let transport = self.shown.transport.take();
        drop(transport);
        let handler = self.handler.take();
        let error = self.end.error.take();
        let outcome = match handler {
            Some(handler) => handler.on_lost(py, error.map(|error| *error)),
            None => Ok(()),
        };
        let object = self.tls.as_ref().and_then(Tls::release_object);
        drop(object);
        outcome
    }

    /// An exception got out of the handler: report it to the loop, and end the connection.
    #[cold]
    fn fail(self: &Rc<Self>, py: Python<'_>, error: PyErr, message: &str) -> PyResult<()> {
        if !error.is_instance_of::<pyo3::exceptions::PyException>(py) {
            // These end the loop.
            self.lose(py, None)?;
            return Err(error);
        }
        let kept = error.clone_ref(py);
        self.report(py, error, message)?;
        self.lose(py, Some(kept))
    }

    #[cold]
    pub(super) fn report(self: &Rc<Self>, py: Python<'_>, error: PyErr, message: &str) -> PyResult<()> {
        let context = PyDict::new(py);
        context.set_item("message", message)?;
        context.set_item("exception", error.into_value(py))?;
        context.set_item("transport", self.transport(py)?)?;
        context.set_item("protocol", self.handler().and_then(|handler| handler.protocol(py)))?;
        self.keeper.report(&context)
    }
}
