//! One connected socket.
//!
//! ```text
//! OPEN ──close──▶ CLOSING ──everything is written──▶ LOST ──the turn ends──▶ (descriptor closed, handler told)
//!   └──────────── abort, an error ───────────────────▲
//! ```

use std::cell::{Cell, OnceCell, RefCell};
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use super::grace::Pending;
use super::handler::Handler;
use super::output::Output;
use super::preface::{self, Preface, Told};
use super::sys::{Address, Descriptor, os_error};
use super::tls::{self, Input, Tls};
use super::visit::Visit;
use crate::base::ffi::refcount::is_known_to;
use crate::base::turns::Turns;

/// Serves sockets in its turns, and has the kernel tell of them.
pub(crate) trait Keeper: Turns {
    /// Have the kernel tell what happens to `descriptor`, under `token`.
    fn watch(&self, descriptor: &Descriptor, token: u64) -> io::Result<()>;
    /// The kernel tells of it no more, if it did.
    fn forget(&self, descriptor: &Descriptor);
    /// Serve `socket` in its turn.
    fn queue(&self, py: Python<'_>, socket: &Rc<Socket>) -> PyResult<()>;
    /// The end of a connection is due: dealt with when nobody is in the middle of it.
    fn lose(&self, py: Python<'_>, token: u64) -> PyResult<()>;
    /// The transport that a socket is to Python.
    fn transport_of(&self, py: Python<'_>, socket: &Rc<Socket>) -> PyResult<Py<PyAny>>;
    /// Tell the loop of an exception.
    fn report(&self, context: &Bound<'_, PyDict>) -> PyResult<()>;
    fn note_failed_opening(&self, py: Python<'_>, reason: &str) -> PyResult<()>;
    /// `peer` was to say who its client is, and has said something else.
    fn note_malformed_preface(&self, py: Python<'_>, peer: &Py<PyAny>, reason: &str) -> PyResult<()>;
}

/// Knows what stands on a socket whose handshake is not complete.
pub(super) trait Opener {
    /// Put a new protocol on `socket`.
    fn stand(&self, py: Python<'_>, socket: &Rc<Socket>) -> PyResult<()>;
    /// One handshake is over.
    fn is_opened(&self, py: Python<'_>) -> PyResult<()>;
    /// There is no room for the connection of `descriptor`. Who speaks HTTP in the clear hears that.
    fn turn_away(&self, py: Python<'_>, descriptor: &Descriptor) -> PyResult<()>;
}

/// How far its life has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// Nothing is read any more; what waits is written first.
    Closing,
    /// The end is due, and is dealt with at the end of the turn.
    Lost,
}

/// Whether input is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    On,
    Paused,
    /// The peer has nothing more to send.
    Ended,
}

/// The other end of our output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    On,
    /// The peer will be told that nothing follows, once everything is written.
    Ending,
    Ended,
}

/// Bytes that one connection may give the kernel while others wait. A peer that takes them as fast as they come would
/// otherwise have the loop to itself for as long as its download lasts.
const SHARE: usize = 512 * 1024;

/// Why something of the output waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// Nothing does.
    Nothing,
    /// The kernel takes no more.
    Kernel,
    /// Others have their turn first.
    Turn,
}

/// A connection between the kernel and a [`Handler`].
pub(crate) struct Socket {
    keeper: Rc<dyn Keeper>,
    token: u64,
    descriptor: RefCell<Option<Rc<Descriptor>>>,
    peer: Address,
    /// Of this end, where all that one listening socket accepts have the same.
    local: Option<Rc<Local>>,
    /// A proxy has to say who is there before anything else is read.
    awaits_preface: Cell<bool>,
    /// What it has said.
    told: OnceCell<Box<Told>>,
    /// That it is here, for who counts.
    visit: RefCell<Option<Visit>>,
    /// Where the connection is encrypted.
    tls: Option<Box<Tls>>,
    /// Who knows which protocol stands on it, while it is not known who is there, or its handshake lasts.
    opening: RefCell<Option<Rc<dyn Opener>>>,
    handler: RefCell<Option<Rc<dyn Handler>>>,
    phase: Cell<Phase>,
    reading: Cell<Reading>,
    writing: Cell<Writing>,
    output: RefCell<Output>,
    /// It stands in the reactor's queue.
    pub(super) queued: Cell<bool>,
    /// Somebody waits for its turn, to judge it by what comes of that.
    is_examined: Cell<bool>,
    /// Since when, if anybody asks for it.
    pub(super) queued_at: Cell<Option<Instant>>,
    /// There may be input that was not read yet.
    readable: Cell<bool>,
    /// The kernel may take more.
    writable: Cell<bool>,
    /// Bytes that it took since the last turn.
    spent: Cell<u32>,
    /// Writers wait for the next turn, for others to have theirs.
    yields: Cell<bool>,
    /// The peer has ended its side, so a short read is not the last.
    hung_up: Cell<bool>,
    /// The handler knows of that, though it takes no input.
    end_told: Cell<bool>,
    /// The kernel tells us of it.
    watched: Cell<bool>,
    /// Made when Python asks for it.
    transport: RefCell<Option<Py<PyAny>>>,
    /// A `socket.socket` on a duplicate of the descriptor, for others.
    duplicate: RefCell<Option<Py<PyAny>>>,
    /// The close cuts the connection off.
    resets: Cell<bool>,
    error: RefCell<Option<Box<PyErr>>>,
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
            peer,
            local,
            awaits_preface: Cell::new(false),
            told: OnceCell::new(),
            visit: RefCell::default(),
            tls: tls.map(Box::new),
            opening: RefCell::default(),
            handler: RefCell::default(),
            phase: Cell::new(Phase::Open),
            reading: Cell::new(Reading::On),
            writing: Cell::new(Writing::On),
            output: RefCell::default(),
            queued: Cell::new(false),
            is_examined: Cell::new(false),
            queued_at: Cell::new(None),
            readable: Cell::new(true),
            writable: Cell::new(true),
            spent: Cell::new(0),
            yields: Cell::new(false),
            hung_up: Cell::new(false),
            end_told: Cell::new(false),
            watched: Cell::new(false),
            transport: RefCell::default(),
            duplicate: RefCell::default(),
            resets: Cell::new(false),
            error: RefCell::default(),
        }
    }

    pub(super) fn token(&self) -> u64 {
        self.token
    }

    /// The turns in which it is served.
    pub(crate) fn turns(&self) -> Rc<dyn Turns> {
        self.keeper.clone()
    }

    /// Whoever is told what happens from now on.
    pub(crate) fn set_handler(&self, handler: Rc<dyn Handler>) {
        let old = self.handler.replace(Some(handler));
        drop(old);
    }

    pub(super) fn handler(&self) -> Option<Rc<dyn Handler>> {
        self.handler.borrow().clone()
    }

    // Who it is.

    /// A proxy is to say first who its client is.
    pub(super) fn expect_preface(&self) {
        self.awaits_preface.set(true);
    }

    /// It counts among others, until it is gone.
    pub(super) fn count_in(&self, visit: Visit) {
        self.visit.replace(Some(visit));
    }

    /// The peer, whoever stands in between.
    fn peer_address(&self) -> &Address {
        self.told.get().and_then(|told| told.source.as_ref()).unwrap_or(&self.peer)
    }

    /// What a proxy has said of it, if one has.
    pub(super) fn introduction(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.told.get().map(|told| told.introduction(py)).transpose()
    }

    /// The `ssl.SSLObject` of an encrypted connection.
    pub(crate) fn ssl_object(&self) -> Option<&Py<PyAny>> {
        self.tls.as_ref().map(|tls| &tls.object)
    }

    /// What the client has encrypted with: the `ssl.SSLObject`, or the PROXY header that tells of it, where the encryption
    /// ended at a proxy. It is read when somebody asks.
    pub(super) fn tls_of_client(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match self.told.get().filter(|told| told.is_secure) {
            Some(told) => Some(told.header(py)),
            None => self.ssl_object().map(|object| object.clone_ref(py)),
        }
    }

    /// Whether the connection is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether its client has encrypted what it sends, here or at a proxy that says so.
    pub(crate) fn is_secure(&self) -> bool {
        self.is_encrypted() || self.told.get().is_some_and(|told| told.is_secure)
    }

    fn descriptor(&self) -> Option<Rc<Descriptor>> {
        self.descriptor.borrow().clone()
    }

    /// The end has begun: nothing that is written will arrive for certain.
    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.phase.get() != Phase::Open
    }

    // Input.

    /// The kernel has something to say.
    pub(super) fn notice(&self, readable: bool, writable: bool, hung_up: bool) {
        if readable {
            self.readable.set(true);
        }
        if writable {
            self.writable.set(true);
        }
        if hung_up {
            self.hung_up.set(true);
        }
    }

    /// Whether a turn has anything to do here.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        let reads = self.readable.get() && self.reading.get() == Reading::On && self.phase.get() == Phase::Open;
        reads || self.writable.get() && self.waiting() > 0 || self.yields.get() || self.end_is_news()
    }

    /// Whether there is anything to read, or room to write, that no turn has dealt with yet; the next one does. Nobody is late
    /// before that.
    #[cold]
    pub(crate) fn look(self: &Rc<Self>, py: Python<'_>) -> PyResult<Pending> {
        if self.queued.get() {
            return Ok(if self.is_examined.replace(true) { Pending::Unserved } else { Pending::Something });
        }
        let Some(descriptor) = self.descriptor().filter(|_| self.phase.get() != Phase::Lost) else {
            return Ok(Pending::Nothing);
        };
        let (readable, writable) = descriptor.is_ready((self.is_reading(), self.waiting() > 0));
        if !readable && !writable {
            return Ok(Pending::Nothing);
        }
        self.notice(readable, writable, false);
        self.is_examined.set(true);
        self.keeper.queue(py, self).map(|()| Pending::Something)
    }

    /// Whether the peer has ended while no input is taken, and the handler does not know.
    #[inline]
    fn end_is_news(&self) -> bool {
        let waits = self.reading.get() == Reading::Paused && self.phase.get() == Phase::Open;
        waits && self.hung_up.get() && !self.end_told.get()
    }

    /// Read and write as much as one turn allows.
    pub(super) fn serve(self: &Rc<Self>, py: Python<'_>, buffer: &mut [u8], reads: usize) -> PyResult<()> {
        self.is_examined.set(false);
        if self.is_opening() {
            self.go_on_opening(py, buffer)?;
        }
        self.spent.set(0);
        let yielded = self.yields.replace(false);
        if self.waiting() > 0 {
            self.flush(py)?;
        } else if yielded {
            self.apply_marks(py)?;
        }
        if self.end_is_news() {
            self.end_told.set(true);
            let reset = self.descriptor().is_none_or(|descriptor| descriptor.is_reset());
            let Some(handler) = self.handler() else { return Ok(()) };
            return handler.on_hang_up(py, reset);
        }
        for _ in 0..reads {
            if !self.readable.get() || self.reading.get() != Reading::On || self.phase.get() != Phase::Open {
                return Ok(());
            }
            let (Some(descriptor), Some(handler)) = (self.descriptor(), self.handler()) else { return Ok(()) };
            let (mut placed, mut is_placed) = (None, false);
            let received = match &self.tls {
                None => {
                    handler.with_place(&mut |place| placed = Some(tls::receive_into(&descriptor, place)));
                    is_placed = placed.is_some();
                    placed.unwrap_or_else(|| tls::receive(&descriptor, buffer))
                }
                Some(tls) => tls.receive(py, &descriptor, buffer),
            };
            drop(descriptor);
            match received {
                Ok(Input::Data { length, drained }) => {
                    // An edge follows when more comes than was there for this read.
                    let last = drained && !self.hung_up.get();
                    self.readable.set(!last || !self.watched.get());
                    let outcome = if is_placed {
                        handler.on_placed(py, length)
                    } else {
                        handler.on_input(py, buffer.get_mut(..length).unwrap_or_default())
                    };
                    if let Err(error) = outcome {
                        return self.fail(py, error, "Fatal error: protocol.data_received() call failed.");
                    }
                    if self.tls.is_some() && self.waiting() > 0 {
                        // What waits may have waited for this input (RFC 5246 section 7.4.1.1).
                        self.flush(py)?;
                    }
                    if last && self.watched.get() {
                        return Ok(());
                    }
                }
                Ok(Input::End) => return self.end_input(py),
                Ok(Input::Nothing) => {
                    self.readable.set(false);
                    return self.watch(py);
                }
                Err(error) => return self.lose_by(py, error),
            }
        }
        Ok(())
    }

    /// An error of the connection. That the peer of an encrypted one went without a word is none.
    #[cold]
    fn lose_by(&self, py: Python<'_>, error: PyErr) -> PyResult<()> {
        let sudden = self.tls.as_ref().is_some_and(|tls| tls.is_sudden_end(py, &error));
        self.lose(py, if sudden { None } else { Some(error) })
    }

    // What comes before the protocol: who is there, if a proxy has to say that, and the handshake.

    /// What stands on this socket is known to `opener`, and is put there when it is open.
    pub(super) fn open_later(&self, opener: Rc<dyn Opener>) {
        self.opening.replace(Some(opener));
    }

    /// Go on with opening; a protocol stands on the socket when that is done.
    fn go_on_opening(self: &Rc<Self>, py: Python<'_>, buffer: &mut [u8]) -> PyResult<()> {
        let Some(descriptor) = self.descriptor() else { return Ok(()) };
        if self.phase.get() != Phase::Open {
            return Ok(());
        }
        if self.awaits_preface.get() && !self.hear_preface(py, &descriptor, buffer)? {
            return Ok(());
        }
        match self.tls.as_ref().map_or(Ok(true), |tls| tls.open(py, &descriptor, buffer)) {
            Ok(true) => {
                let Some(opener) = self.opening.take() else { return Ok(()) };
                let outcome = opener.stand(py, self);
                opener.is_opened(py)?;
                outcome.or_else(|error| self.abort(py).and(Err(error)))
            }
            Ok(false) => {
                self.readable.set(false);
                self.watch(py)
            }
            Err(error) => self.give_up_opening(py, &error.into_value(py).into_bound(py).str()?.to_cow()?),
        }
    }

    /// Hear who is there. Returns whether that is known, and welcome.
    fn hear_preface(self: &Rc<Self>, py: Python<'_>, descriptor: &Descriptor, buffer: &mut [u8]) -> PyResult<bool> {
        match preface::read(descriptor, buffer, self.hung_up.get()) {
            Preface::Complete(told) => {
                self.awaits_preface.set(false);
                let _ = self.told.set(told);
                if self.is_admitted(py)? {
                    return Ok(true);
                }
                self.turn_away(py, descriptor).map(|()| false)
            }
            Preface::Incomplete => {
                self.readable.set(false);
                self.watch(py).map(|()| false)
            }
            Preface::Malformed(reason) => {
                self.keeper.note_malformed_preface(py, &name(py, &self.peer)?, &reason.to_string())?;
                self.give_up_opening(py, "the PROXY header is malformed").map(|()| false)
            }
            Preface::Lost => self.give_up_opening(py, "the peer disconnected before sending a PROXY header").map(|()| false),
        }
    }

    /// Whether whoever counts has room for a client of this address.
    pub(super) fn is_admitted(&self, py: Python<'_>) -> PyResult<bool> {
        let visit = self.visit.borrow().as_ref().map(|visit| visit.clone_ref(py));
        visit.map_or(Ok(true), |visit| visit.admits(py, host_of(py, self.peer_address())))
    }

    /// There is no room for it.
    #[cold]
    fn turn_away(&self, py: Python<'_>, descriptor: &Descriptor) -> PyResult<()> {
        let opener = self.opening.borrow().clone();
        opener.map_or(Ok(()), |opener| opener.turn_away(py, descriptor))?;
        self.give_up_opening(py, "its address has too many connections")
    }

    /// The handshake fails, or lasts too long: nobody knows of the connection, so it only leaves a line for those who look.
    #[cold]
    pub(super) fn give_up_opening(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        let Some(opener) = self.opening.take() else { return Ok(()) };
        self.keeper.note_failed_opening(py, reason)?;
        opener.is_opened(py)?;
        self.lose(py, None)
    }

    /// It has lasted too long.
    #[cold]
    pub(super) fn give_up_late(&self, py: Python<'_>) -> PyResult<()> {
        let late = if self.awaits_preface.get() { "the PROXY header" } else { "the TLS handshake" };
        self.give_up_opening(py, &format!("{late} took too long"))
    }

    pub(super) fn is_opening(&self) -> bool {
        self.opening.borrow().is_some()
    }

    /// Whether `opener` has accepted it, and its handshake is not complete.
    pub(super) fn is_opening_for(&self, opener: &Rc<impl Opener>) -> bool {
        self.opening.borrow().as_ref().is_some_and(|own| std::ptr::addr_eq(Rc::as_ptr(own), Rc::as_ptr(opener)))
    }

    /// Have the kernel tell what happens; whatever is there by now it tells at once.
    fn watch(&self, py: Python<'_>) -> PyResult<()> {
        if self.watched.replace(true) || self.phase.get() == Phase::Lost {
            return Ok(());
        }
        let Some(descriptor) = self.descriptor() else { return Ok(()) };
        match self.keeper.watch(&descriptor, self.token) {
            Ok(()) => Ok(()),
            Err(error) => self.lose(py, Some(os_error(&error))),
        }
    }

    fn end_input(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.reading.set(Reading::Ended);
        self.readable.set(false);
        let Some(handler) = self.handler() else { return Ok(()) };
        match handler.on_eof(py) {
            // A peer that is gone altogether is noticed by writing, so the kernel must tell of it.
            Ok(true) => self.watch(py),
            Ok(false) => self.close(py),
            Err(error) => self.fail(py, error, "Fatal error: protocol.eof_received() call failed."),
        }
    }

    /// Take no input before [`resume_reading`](Self::resume_reading).
    pub(crate) fn pause_reading(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        if self.reading.get() != Reading::On {
            return Ok(());
        }
        self.reading.set(Reading::Paused);
        self.end_told.set(false);
        // Else nobody would hear of the peer's end.
        self.watch(py)?;
        if self.end_is_news() { self.keeper.queue(py, self) } else { Ok(()) }
    }

    /// Take input again.
    pub(crate) fn resume_reading(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        if self.reading.get() == Reading::Paused {
            self.reading.set(Reading::On);
            if self.has_work() {
                return self.keeper.queue(py, self);
            }
        }
        Ok(())
    }

    pub(crate) fn is_reading(&self) -> bool {
        self.reading.get() == Reading::On && self.phase.get() == Phase::Open
    }

    // Output.

    /// Bytes that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.output.borrow().len() + self.tls.as_deref().map_or(0, Tls::waiting)
    }

    /// Bytes that are kept until they are written; and how many were written so far that had waited.
    pub(super) fn held(&self) -> (usize, usize) {
        let output = self.output.borrow();
        (output.held(), output.taken())
    }

    /// Bytes that the peer has yet to take, those in the kernel included: it may take minutes of a slow peer's reading before
    /// that asks for more.
    pub(crate) fn unsent(&self) -> usize {
        self.waiting() + self.descriptor().map_or(0, |descriptor| descriptor.in_kernel())
    }

    /// Keep little of what waits where it cannot be overtaken: in the kernel `most` bytes that are not on their way, and say at
    /// once that it takes no more.
    pub(crate) fn keep_little(self: &Rc<Self>, py: Python<'_>, most: i32) -> PyResult<()> {
        if let Some(descriptor) = self.descriptor() {
            descriptor.limit_unsent(most);
        }
        self.set_limits(py, 0, 0)
    }

    /// Set the marks above which writers are told to wait, and below which they may go on.
    pub(crate) fn set_limits(self: &Rc<Self>, py: Python<'_>, high: usize, low: usize) -> PyResult<()> {
        {
            let mut output = self.output.borrow_mut();
            (output.high, output.low) = (high, low);
        }
        self.apply_marks(py)
    }

    pub(crate) fn limits(&self) -> (usize, usize) {
        let output = self.output.borrow();
        (output.low, output.high)
    }

    /// Whether anything that is written now can still leave.
    #[inline]
    fn takes_output(&self) -> bool {
        self.phase.get() != Phase::Lost && self.writing.get() == Writing::On
    }

    /// Write `data`; what the kernel does not take is kept.
    pub(crate) fn write(self: &Rc<Self>, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        if data.is_empty() || !self.takes_output() {
            return Ok(());
        }
        let sent = self.send_now(py, &[IoSlice::new(data)])?;
        match data.get(sent..) {
            Some(rest) if !rest.is_empty() && self.takes_output() => {
                self.output.borrow_mut().push(rest);
                self.keep(py)
            }
            _ => self.keep_records(py, sent),
        }
    }

    /// So much is given away, and nothing of it is kept; but of the records that it became some may wait.
    #[inline]
    fn keep_records(self: &Rc<Self>, py: Python<'_>, sent: usize) -> PyResult<()> {
        if self.tls.as_ref().is_some_and(|tls| tls.waiting() > 0) {
            self.writable.set(false);
            return self.keep(py);
        }
        let before = self.spent.get();
        let spent = before.saturating_add(u32::try_from(sent).unwrap_or(u32::MAX));
        self.spent.set(spent);
        // What is written in one piece leaves in one.
        if before > 0 && spent as usize > SHARE { self.yield_turn(py) } else { Ok(()) }
    }

    /// Have writers wait until others had their turn.
    #[cold]
    fn yield_turn(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        if self.phase.get() != Phase::Open || self.yields.replace(true) {
            return Ok(());
        }
        self.keeper.queue(py, self)?;
        if std::mem::replace(&mut self.output.borrow_mut().paused, true) { Ok(()) } else { self.tell(py, true) }
    }

    /// Write `head` and behind it `body`, in one call of the system. The body is not copied if it is large; over TLS no more
    /// of it than the piece that leaves with the head.
    pub(crate) fn write_with(self: &Rc<Self>, py: Python<'_>, head: &[u8], body: &Bound<'_, PyBytes>) -> PyResult<()> {
        if !self.takes_output() {
            return Ok(());
        }
        let bytes = body.as_bytes();
        let direct = match &self.tls {
            Some(_) => bytes.get(..tls::PIECE.saturating_sub(head.len())).unwrap_or(bytes),
            None => bytes,
        };
        let sent = if head.is_empty() {
            self.send_now(py, &[IoSlice::new(direct)])?
        } else {
            self.send_now(py, &[IoSlice::new(head), IoSlice::new(direct)])?
        };
        if sent == head.len() + bytes.len() || !self.takes_output() {
            return self.keep_records(py, sent);
        }
        {
            let mut output = self.output.borrow_mut();
            if let Some(rest) = head.get(sent..).filter(|rest| !rest.is_empty()) {
                output.push(rest);
            }
            output.push_object(py, &body.clone().unbind(), sent.saturating_sub(head.len()));
        }
        if sent < head.len() + direct.len() {
            return self.keep(py);
        }
        // The kernel may take more.
        self.watch(py)?;
        self.flush(py)
    }

    /// The same of a body that is the caller's: what of it the kernel does not take is copied.
    pub(crate) fn write_both(self: &Rc<Self>, py: Python<'_>, head: &[u8], body: &[u8]) -> PyResult<()> {
        if !self.takes_output() {
            return Ok(());
        }
        let sent = self.send_now(py, &[IoSlice::new(head), IoSlice::new(body)])?;
        if sent == head.len() + body.len() || !self.takes_output() {
            return self.keep_records(py, sent);
        }
        {
            let mut output = self.output.borrow_mut();
            let (behind_head, behind_body) = (head.get(sent..), body.get(sent.saturating_sub(head.len())..));
            for rest in behind_head.into_iter().chain(behind_body).filter(|rest| !rest.is_empty()) {
                output.push(rest);
            }
        }
        self.keep(py)
    }

    /// Give the kernel what it takes of something new, unless something older waits.
    #[inline]
    fn send_now(&self, py: Python<'_>, pieces: &[IoSlice<'_>]) -> PyResult<usize> {
        if self.waiting() > 0 {
            return Ok(0);
        }
        let Some(descriptor) = self.descriptor() else { return Ok(0) };
        let sent = match &self.tls {
            None => tls::send(&descriptor, pieces),
            Some(tls) => tls.send(py, &descriptor, pieces),
        };
        drop(descriptor);
        let sent = sent.or_else(|error| self.lose_by(py, error).map(|()| 0))?;
        if sent < pieces.iter().map(|piece| piece.len()).sum() {
            self.writable.set(false);
        }
        Ok(sent)
    }

    /// Something waits now.
    fn keep(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        // It may have become writable before it was watched; then the kernel says so at once.
        self.watch(py)?;
        self.apply_marks(py)
    }

    fn apply_marks(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        let pause = {
            let waiting = self.waiting();
            let mut output = self.output.borrow_mut();
            let pause = match output.paused {
                false if waiting > output.high => true,
                true if waiting <= output.low => false,
                _ => return Ok(()),
            };
            output.paused = pause;
            pause
        };
        self.tell(py, pause)
    }

    /// Tell the handler to wait, or to go on.
    fn tell(self: &Rc<Self>, py: Python<'_>, pause: bool) -> PyResult<()> {
        let Some(handler) = self.handler() else { return Ok(()) };
        let outcome = if pause { handler.on_pause(py) } else { handler.on_resume(py) };
        match outcome {
            Ok(()) => Ok(()),
            Err(error) => self.report(
                py,
                error,
                if pause { "protocol.pause_writing() failed" } else { "protocol.resume_writing() failed" },
            ),
        }
    }

    /// Write what waits.
    fn flush(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        let Some(descriptor) = self.descriptor() else { return Ok(()) };
        let outcome = match &self.tls {
            None => self.flush_plain(py, &descriptor),
            Some(tls) => self.flush_encrypted(py, &descriptor, tls),
        };
        drop(descriptor);
        match outcome {
            Ok(Rest::Nothing) => self.written(py)?,
            Ok(Rest::Kernel) => self.writable.set(false),
            Ok(Rest::Turn) => self.keeper.queue(py, self)?,
            Err(error) => return self.lose_by(py, error),
        }
        self.apply_marks(py)
    }

    fn flush_plain(&self, py: Python<'_>, descriptor: &Descriptor) -> PyResult<Rest> {
        let mut total = 0;
        while self.output.borrow().len() > 0 {
            if total >= SHARE {
                return Ok(Rest::Turn);
            }
            let sent = self.output.borrow().send(py, descriptor)?;
            if sent == 0 {
                return Ok(Rest::Kernel);
            }
            total += sent;
            let done = self.output.borrow_mut().advance(py, sent);
            drop(done);
        }
        Ok(Rest::Nothing)
    }

    /// Python code may run while something is encrypted, so no borrow is held then.
    fn flush_encrypted(&self, py: Python<'_>, descriptor: &Descriptor, tls: &Tls) -> PyResult<Rest> {
        let mut total = 0;
        loop {
            let first = self.output.borrow().first(py, tls::PIECE)?;
            let Some(first) = first else {
                return Ok(if tls.flush(py, descriptor)? { Rest::Nothing } else { Rest::Kernel });
            };
            if total >= SHARE {
                return Ok(Rest::Turn);
            }
            let sent = tls.send_piece(py, descriptor, &first)?;
            if sent == 0 || self.output.borrow().len() == 0 {
                return Ok(Rest::Kernel);
            }
            total += sent;
            let done = self.output.borrow_mut().advance(py, sent);
            drop(done);
        }
    }

    /// Everything is written: end what waited for that.
    fn written(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        if self.phase.get() == Phase::Closing || self.writing.get() == Writing::Ending {
            let finished = match (&self.tls, self.descriptor()) {
                (Some(tls), Some(descriptor)) => tls.finish(py, &descriptor),
                _ => Ok(true),
            };
            match finished {
                Ok(true) => {}
                Ok(false) => {
                    self.writable.set(false);
                    return self.watch(py);
                }
                // The peer is gone, and cannot be told.
                Err(error) => return self.lose_by(py, error),
            }
        }
        if self.writing.get() == Writing::Ending {
            self.writing.set(Writing::Ended);
            let ended = self.descriptor().map_or(Ok(()), |descriptor| descriptor.end_output());
            if let Err(error) = ended {
                return self.lose(py, Some(os_error(&error)));
            }
        }
        if self.phase.get() == Phase::Closing { self.lose_written(py) } else { Ok(()) }
    }

    /// Everything is written, and nothing more will come. The descriptor is closed at the end of a turn, and the peer is told
    /// at once: what it sends until it hears of that is lost to it.
    fn lose_written(&self, py: Python<'_>) -> PyResult<()> {
        if !self.keeper.is_running()
            && self.writing.get() == Writing::On
            && let Some(descriptor) = self.descriptor()
            && !(self.resets.get() || descriptor.resets_on_close())
        {
            // Whoever is gone by now need not be told.
            let _ = descriptor.end_output();
        }
        self.lose(py, None)
    }

    /// Tell the peer that nothing more will come, once everything is written.
    pub(crate) fn write_eof(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        if self.phase.get() != Phase::Open || self.writing.get() != Writing::On {
            return Ok(());
        }
        self.writing.set(Writing::Ending);
        if self.waiting() == 0 { self.written(py) } else { Ok(()) }
    }

    // The end.

    /// Read no more, and end once everything is written.
    pub(crate) fn close(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        if self.phase.get() != Phase::Open {
            return Ok(());
        }
        self.phase.set(Phase::Closing);
        if self.waiting() == 0 { self.written(py) } else { self.watch(py) }
    }

    /// End at once; what waits is lost.
    pub(crate) fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.lose(py, None)
    }

    /// Have the close tell the peer that the connection was cut off.
    pub(crate) fn reset_on_close(&self) {
        self.resets.set(true);
    }

    fn lose(&self, py: Python<'_>, error: Option<PyErr>) -> PyResult<()> {
        if self.phase.replace(Phase::Lost) == Phase::Lost {
            return Ok(());
        }
        let old = self.error.replace(error.map(Box::new));
        drop(old);
        let waiting = self.output.borrow_mut().clear();
        drop(waiting);
        let records = self.tls.as_deref().map(Tls::forget);
        drop(records);
        self.keeper.lose(py, self.token)
    }

    /// The end itself: nothing is known to the kernel under our number any more, then the handler hears of it.
    pub(super) fn bury(&self, py: Python<'_>) -> PyResult<()> {
        let visit = self.visit.take();
        let left = visit.map_or(Ok(()), |visit| visit.leave(py));
        self.bury_what_stands(py).and(left)
    }

    fn bury_what_stands(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(opener) = self.opening.take() {
            opener.is_opened(py)?;
        }
        let descriptor = self.descriptor.take();
        if let Some(descriptor) = descriptor {
            if self.resets.get() {
                descriptor.reset_on_close();
            }
            let closed = self.close_duplicate(py, &descriptor);
            drop(descriptor);
            closed?;
        }
        let transport = self.transport.take();
        drop(transport);
        let handler = self.handler.take();
        let error = self.error.take();
        match handler {
            Some(handler) => handler.on_lost(py, error.map(|error| *error)),
            None => Ok(()),
        }
    }

    /// An exception got out of the handler: the loop hears of it, and the connection ends.
    #[cold]
    fn fail(self: &Rc<Self>, py: Python<'_>, error: PyErr, message: &str) -> PyResult<()> {
        if !error.is_instance_of::<pyo3::exceptions::PyException>(py) {
            // The loop ends by these.
            self.lose(py, None)?;
            return Err(error);
        }
        let kept = error.clone_ref(py);
        self.report(py, error, message)?;
        self.lose(py, Some(kept))
    }

    #[cold]
    fn report(self: &Rc<Self>, py: Python<'_>, error: PyErr, message: &str) -> PyResult<()> {
        let context = PyDict::new(py);
        context.set_item("message", message)?;
        context.set_item("exception", error.into_value(py))?;
        context.set_item("transport", self.transport(py)?)?;
        context.set_item("protocol", self.handler().and_then(|handler| handler.protocol(py)))?;
        self.keeper.report(&context)
    }

    // What Python sees.

    /// The transport that it is to Python: always the same one.
    pub(crate) fn transport(self: &Rc<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if let Some(transport) = &*self.transport.borrow() {
            return Ok(transport.clone_ref(py));
        }
        let transport = self.keeper.transport_of(py, self)?;
        if self.descriptor.borrow().is_some() {
            self.transport.replace(Some(transport.clone_ref(py)));
        }
        Ok(transport)
    }

    /// Let go of the transport if nobody else has it: whoever asks later cannot tell that his is another one.
    pub(crate) fn release_transport(&self, py: Python<'_>) {
        let made = self.transport.take();
        if let Some(transport) = &made
            && !is_known_to(transport.bind(py), 1)
        {
            self.transport.replace(made);
        }
    }

    /// The address of the peer, as `socket.getpeername()` has it.
    pub(crate) fn peer_name(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        name(py, self.peer_address())
    }

    /// `(host, port)` of the peer, if it has one.
    pub(crate) fn peer(&self, py: Python<'_>) -> PyResult<Option<Py<PyTuple>>> {
        match self.peer_address() {
            Address::Ip(ip) => Ok(Some((host(py, ip.ip()), ip.port()).into_pyobject(py)?.unbind())),
            Address::Path(_) => Ok(None),
        }
    }

    /// What a scope says of this end: `(host, port)`, or the path of a Unix socket and `None`.
    pub(crate) fn local(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.local_address().map_or(Ok(None), |local| local.shown(py))
    }

    /// The address of this end.
    fn local_address(&self) -> Option<Rc<Local>> {
        if let Some(told) = self.told.get().and_then(|told| told.destination.as_ref()) {
            return Some(Rc::new(Local::new(told.clone())));
        }
        if self.local.is_some() {
            return self.local.clone();
        }
        self.descriptor().and_then(|descriptor| descriptor.local_address()).map(Local::new).map(Rc::new)
    }

    /// The address of this end, as `socket.getsockname()` has it.
    pub(crate) fn local_name(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.local_address() {
            Some(local) => name(py, &local.address),
            None => Ok(py.None()),
        }
    }

    /// The number of a new duplicate of the descriptor, which nobody closes here.
    pub(super) fn duplicate_number(&self) -> io::Result<i32> {
        self.descriptor().map_or(Err(io::ErrorKind::NotConnected.into()), |descriptor| descriptor.duplicate())
    }

    /// An `asyncio.trsock.TransportSocket` on a duplicate of the descriptor, on a closed one once that is closed.
    pub(super) fn duplicate<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let shown = py.import("asyncio.trsock")?.getattr("TransportSocket")?;
        if let Some(made) = &*self.duplicate.borrow() {
            return shown.call1((made,));
        }
        let class = py.import("socket")?.getattr("socket")?;
        let made = if let Some(descriptor) = self.descriptor() {
            let keywords = PyDict::new(py);
            keywords.set_item("fileno", descriptor.duplicate()?)?;
            let made = class.call((), Some(&keywords))?;
            // It shares that with the original, and so do its own duplicates.
            made.call_method1("setblocking", (false,))?;
            made
        } else {
            let closed = class.call0()?;
            closed.call_method0("close")?;
            closed
        };
        self.duplicate.replace(Some(made.clone().unbind()));
        shown.call1((made,))
    }

    /// Close the duplicate, unless somebody has closed it behind our back: its number may be another's by now.
    fn close_duplicate(&self, py: Python<'_>, descriptor: &Descriptor) -> PyResult<()> {
        let Some(made) = self.duplicate.borrow().as_ref().map(|made| made.clone_ref(py)) else { return Ok(()) };
        let made = made.bind(py);
        // Further duplicates would have the kernel tell of it for as long as they are open.
        self.keeper.forget(descriptor);
        let number: i64 = made.call_method0("fileno")?.extract()?;
        let is_ours = match py.import("os")?.call_method1("fstat", (number,)) {
            Ok(status) => Some(status.getattr("st_ino")?.extract()?) == descriptor.inode(),
            Err(_) => false,
        };
        made.call_method0(if is_ours { "close" } else { "detach" }).map(drop)
    }
}

/// The address of this end of connections.
pub(super) struct Local {
    address: Address,
    /// Immutable, so all of them may have the same.
    shown: OnceCell<Option<Py<PyAny>>>,
}

impl Local {
    pub(super) fn new(address: Address) -> Self {
        Self { address, shown: OnceCell::new() }
    }

    /// What a scope says of it.
    fn shown(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if let Some(shown) = self.shown.get() {
            return Ok(shown.as_ref().map(|shown| shown.clone_ref(py)));
        }
        let shown = match &self.address {
            Address::Ip(ip) => Some((host(py, ip.ip()), ip.port()).into_pyobject(py)?.into_any().unbind()),
            Address::Path(path) if !path.is_empty() => {
                let path = String::from_utf8_lossy(path);
                Some((path, py.None()).into_pyobject(py)?.into_any().unbind())
            }
            Address::Path(_) => None,
        };
        Ok(self.shown.get_or_init(|| shown).as_ref().map(|shown| shown.clone_ref(py)))
    }
}

/// What tells a peer from others that have an address.
pub(super) fn host_of<'py>(py: Python<'py>, address: &Address) -> Option<Bound<'py, PyString>> {
    match address {
        Address::Ip(ip) => Some(host(py, ip.ip())),
        Address::Path(_) => None,
    }
}

/// The text of an address. Each connection needs one, and the general way to write numbers costs ten times as much.
fn host(py: Python<'_>, ip: IpAddr) -> Bound<'_, PyString> {
    let IpAddr::V4(ip) = ip else { return PyString::new(py, &ip.to_string()) };
    let mut text = String::with_capacity("255.255.255.255".len());
    for octet in ip.octets() {
        if !text.is_empty() {
            text.push('.');
        }
        for (from, unit) in [(100, 100), (10, 10), (0, 1)] {
            if octet >= from {
                text.push(char::from(b'0' + octet / unit % 10));
            }
        }
    }
    PyString::new(py, &text)
}

/// An address as Python's sockets have it.
fn name(py: Python<'_>, address: &Address) -> PyResult<Py<PyAny>> {
    use std::net::SocketAddr::{V4, V6};
    Ok(match address {
        Address::Ip(V4(ip)) => (host(py, IpAddr::V4(*ip.ip())), ip.port()).into_pyobject(py)?.into_any().unbind(),
        Address::Ip(V6(ip)) => {
            (ip.ip().to_string(), ip.port(), ip.flowinfo(), ip.scope_id()).into_pyobject(py)?.into_any().unbind()
        }
        Address::Path(path) => py.import("os")?.call_method1("fsdecode", (PyBytes::new(py, path),))?.unbind(),
    })
}
