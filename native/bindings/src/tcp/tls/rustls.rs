//! TLS by rustls: a `tls::Session`, between the kernel and the buffers of its socket.
//!
//! What one call of the kernel brings is decrypted in one go, and what it takes is encrypted in the memory that it takes it
//! from. The interpreter keeps its lock: 64 KiB take 10 microseconds, less than a thread needs to be woken.

use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use tls::{Failure, FailureKind, Scratch, Session};

use super::config::{Current, TLSConfig};
use super::shared::{Handshake, HandshakeFailure, Input, receive, send};
use crate::base::encrypted::Described;
use crate::tcp::sys::Descriptor;

/// Bytes encrypted at once, three full records: with their headers they fit into one packet of the kernel's (64 KiB before
/// segmentation), and stay in a near cache until it has them. Of ten sizes it took the least CPU for a response of 1 MiB,
/// on a busy machine: 0.71 and 0.84 of that with 80 KiB, which are a packet and a small one; 112 KiB were no worse in one of
/// two runs. `MSG_MORE`, which has the kernel fill the packets, took more than it saved.
const MOST: usize = 48 * 1024;
/// The most plaintext of a record.
const RECORD: usize = 16 * 1024;
/// Bytes of a handshake that are read at once.
const READ: usize = 16 * 1024;
/// How a `ClientHello` begins: the type of its record, and the first byte of its version (RFC 8446 section 5.1).
const HELLO: &[u8] = &[22, 3];
/// Pieces that are encrypted at once; one more has to wait.
const PIECES: usize = 16;

/// The TLS settings of one listening socket's connections.
pub(crate) struct Encryption {
    /// The `ssl.SSLContext` of the listener.
    context: Py<PyAny>,
    config: Py<TLSConfig>,
    /// Taken while a session works.
    scratch: Cell<Option<Box<Scratch>>>,
    /// `ssl.SSLError`
    failed: Py<PyAny>,
    /// `ssl.SSLEOFError`: the peer has ended without saying so.
    eof: Py<PyAny>,
}

impl Encryption {
    /// `config` is the `TLSConfig` of `context`.
    pub(super) fn new(context: &Bound<'_, PyAny>, config: &Bound<'_, PyAny>) -> PyResult<Self> {
        let ssl = config.py().import("ssl")?;
        Ok(Self {
            context: context.clone().unbind(),
            config: config.cast::<TLSConfig>()?.clone().unbind(),
            scratch: Cell::default(),
            failed: ssl.getattr("SSLError")?.unbind(),
            eof: ssl.getattr("SSLEOFError")?.unbind(),
        })
    }

    /// The settings of a connection that begins now; `None` if OpenSSL encrypts it.
    pub(super) fn current(&self) -> Option<Arc<Current>> {
        self.config.get().current()
    }

    fn error(&self, py: Python<'_>, failure: &Failure) -> PyErr {
        let class = if failure.kind == FailureKind::Closed { &self.eof } else { &self.failed };
        match class.bind(py).call1((1, &failure.text)) {
            Ok(error) => PyErr::from_value(error),
            Err(error) => error,
        }
    }
}

/// The TLS side of one connection.
pub(crate) struct Tls {
    encryption: Rc<Encryption>,
    settings: Arc<Current>,
    /// Borrowed while it works; callbacks and finalizers may come back here.
    session: RefCell<Session>,
    /// Records that the kernel has not taken, and how many bytes of them it has.
    unsent: RefCell<(Vec<u8>, usize)>,
    waiting: Cell<usize>,
    /// Of the handshake.
    failure: Cell<HandshakeFailure>,
    /// An error found behind input that is to be processed first.
    late: RefCell<Option<Failure>>,
    /// What programs see; a program may have it refer to the connection.
    object: RefCell<Option<Py<PyAny>>>,
}

impl Tls {
    pub(super) fn new(encryption: &Rc<Encryption>, settings: Arc<Current>) -> Self {
        Self {
            encryption: encryption.clone(),
            session: RefCell::new(Session::new(settings.config.clone())),
            settings,
            unsent: RefCell::default(),
            waiting: Cell::new(0),
            failure: Cell::new(HandshakeFailure::Closed),
            late: RefCell::default(),
            object: RefCell::default(),
        }
    }

    #[inline]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.get()
    }

    pub(super) fn forget(&self) -> Option<Py<PyAny>> {
        self.waiting.set(0);
        self.unsent.take();
        None
    }

    /// The connection is over: nothing keeps what programs have seen of it; later calls make another. The caller drops the
    /// result.
    pub(super) fn release_object(&self) -> Option<Py<PyAny>> {
        self.object.take()
    }

    /// Have the session work, unless it does; then there is `otherwise`.
    fn work<T>(&self, otherwise: T, act: impl FnOnce(&mut Session, &mut Scratch) -> PyResult<T>) -> PyResult<T> {
        let Ok(mut session) = self.session.try_borrow_mut() else { return Ok(otherwise) };
        let mut scratch = self.encryption.scratch.take().unwrap_or_default();
        let outcome = act(&mut session, &mut scratch);
        // Of a failed call some may be left.
        scratch.output.clear();
        self.encryption.scratch.set(Some(scratch));
        outcome
    }

    pub(super) fn open(&self, py: Python<'_>, descriptor: &Descriptor) -> PyResult<bool> {
        self.work(false, |session, scratch| {
            loop {
                let (is_new, began) = (session.awaits_hello(), session.buffered() > 0);
                let room = session.room(scratch, READ);
                let (length, ended) = receive_hello(descriptor, room, is_new)?;
                // A client that has ended behind its hello cannot complete the handshake, and the answer costs most of it.
                let is_vain = ended && is_new && (began || room.starts_with(HELLO));
                let failure = if length > 0 && !is_vain {
                    let received = session.receive(scratch, length, &mut []);
                    let delivered = self.deliver(descriptor, scratch);
                    let Some(failure) = received.failure else {
                        delivered?;
                        if session.is_open() {
                            return Ok(true);
                        }
                        // Until the kernel has no more: behind the end of input no event follows.
                        continue;
                    };
                    failure
                } else if ended {
                    match session.end_input() {
                        Err(failure) => failure,
                        Ok(()) => return Ok(false),
                    }
                } else {
                    return Ok(false);
                };
                self.failure.set(kind_of(failure.kind));
                return Err(self.encryption.error(py, &failure));
            }
        })
    }

    pub(super) fn failure(&self) -> HandshakeFailure {
        self.failure.get()
    }

    pub(super) fn handshake(&self) -> Handshake {
        let shaken = self.session.try_borrow().ok().and_then(|session| session.shaken());
        Handshake {
            version: shaken.map_or(0, |shaken| shaken.version),
            resumed: shaken.is_some_and(|shaken| shaken.resumed),
        }
    }

    pub(super) fn receive(&self, py: Python<'_>, descriptor: &Descriptor, buffer: &mut [u8]) -> PyResult<Input> {
        if let Some(failure) = self.late.take() {
            return Err(self.encryption.error(py, &failure));
        }
        self.work(Input::Nothing, |session, scratch| {
            loop {
                if session.has_plaintext() {
                    let received = session.receive(scratch, 0, buffer);
                    return self.deliver(descriptor, scratch).and_then(|()| self.hand_on(py, received, false));
                }
                if session.has_ended() {
                    return Ok(Input::End);
                }
                let most = buffer.len().saturating_sub(session.buffered());
                let (length, drained) = match receive(descriptor, session.room(scratch, most))? {
                    Input::Data { length, drained } => (length, drained),
                    Input::Nothing => return Ok(Input::Nothing),
                    Input::End => match session.end_input() {
                        Ok(()) => return Ok(Input::End),
                        Err(failure) => return Err(self.encryption.error(py, &failure)),
                    },
                };
                let received = session.receive(scratch, length, buffer);
                let delivered = self.deliver(descriptor, scratch);
                if received.failure.is_none() {
                    delivered?;
                    if received.length == 0 && session.has_ended() {
                        return Ok(Input::End);
                    }
                    if received.length == 0 && !drained {
                        continue;
                    }
                }
                return self.hand_on(py, received, drained && !session.has_ended());
            }
        })
    }

    /// The result of a read. An error comes behind the data in front of it.
    fn hand_on(&self, py: Python<'_>, received: tls::Received, drained: bool) -> PyResult<Input> {
        match (received.length, received.failure) {
            (0, Some(failure)) => Err(self.encryption.error(py, &failure)),
            (0, None) => Ok(Input::Nothing),
            (length, None) => Ok(Input::Data { length, drained }),
            (length, Some(failure)) => {
                self.late.replace(Some(failure));
                Ok(Input::Data { length, drained: false })
            }
        }
    }

    pub(super) fn send(&self, py: Python<'_>, descriptor: &Descriptor, pieces: &[IoSlice<'_>]) -> PyResult<usize> {
        self.send_most(py, descriptor, pieces, usize::MAX)
    }

    /// The same for the first `most` bytes.
    pub(super) fn send_most(
        &self,
        py: Python<'_>,
        descriptor: &Descriptor,
        pieces: &[IoSlice<'_>],
        most: usize,
    ) -> PyResult<usize> {
        self.work(0, |session, scratch| {
            let total = pieces.iter().map(|piece| piece.len()).sum::<usize>().min(most);
            let mut done = 0;
            while done < total && session.can_seal() && self.flush_unsent(descriptor)? {
                let mut room = [IoSlice::new(&[]); PIECES];
                let (count, length) = part(pieces, done, together(total - done), &mut room);
                let sealed = session.seal(scratch, room.get(..count).unwrap_or_default());
                let delivered = self.deliver(descriptor, scratch);
                sealed.map_err(|failure| self.encryption.error(py, &failure))?;
                delivered?;
                done += length;
            }
            Ok(done)
        })
    }

    pub(super) fn finish(&self, py: Python<'_>, descriptor: &Descriptor) -> PyResult<bool> {
        self.work((), |session, scratch| {
            // A session that has failed before has sent its alert.
            let finished = session.finish(scratch);
            let delivered = self.deliver(descriptor, scratch);
            drop(finished);
            delivered
        })?;
        self.flush(py, descriptor)
    }

    pub(super) fn flush(&self, _py: Python<'_>, descriptor: &Descriptor) -> PyResult<bool> {
        self.flush_unsent(descriptor)
    }

    #[inline]
    fn flush_unsent(&self, descriptor: &Descriptor) -> PyResult<bool> {
        if self.waiting.get() == 0 { Ok(true) } else { self.send_unsent(descriptor) }
    }

    fn send_unsent(&self, descriptor: &Descriptor) -> PyResult<bool> {
        let mut unsent = self.unsent.borrow_mut();
        let (records, sent) = &mut *unsent;
        let rest = records.get(*sent..).unwrap_or_default();
        let count = send(descriptor, &[IoSlice::new(rest)])?;
        *sent += count;
        self.waiting.set(rest.len() - count);
        if self.waiting.get() > 0 {
            return Ok(false);
        }
        *unsent = (Vec::new(), 0);
        Ok(true)
    }

    /// Send the session's output; what the kernel does not take is kept.
    fn deliver(&self, descriptor: &Descriptor, scratch: &mut Scratch) -> PyResult<()> {
        let records = scratch.output.bytes();
        if records.is_empty() {
            return Ok(());
        }
        let sent = if self.waiting.get() == 0 { send(descriptor, &[IoSlice::new(records)])? } else { 0 };
        let rest = records.get(sent..).unwrap_or_default();
        if !rest.is_empty() {
            self.unsent.borrow_mut().0.extend_from_slice(rest);
            self.waiting.set(self.waiting.get() + rest.len());
        }
        scratch.output.clear();
        Ok(())
    }

    pub(super) fn is_sudden_end(&self, py: Python<'_>, error: &PyErr) -> bool {
        error.is_instance(py, self.encryption.eof.bind(py))
    }

    pub(super) fn context(&self, py: Python<'_>) -> Py<PyAny> {
        self.encryption.context.clone_ref(py)
    }

    pub(super) fn protocol(&self) -> Option<String> {
        let session = self.session.try_borrow().ok()?;
        session.protocol().map(|protocol| String::from_utf8_lossy(protocol).into_owned())
    }
}

impl Described for Tls {
    fn describe(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if let Some(object) = &*self.object.borrow() {
            return Ok(Some(object.clone_ref(py)));
        }
        let Some(describe) = &self.settings.describe else { return Ok(None) };
        let arguments = {
            let Ok(session) = self.session.try_borrow() else { return Ok(None) };
            let Some(shaken) = session.shaken() else { return Ok(None) };
            let chain =
                PyTuple::new(py, session.chain().into_iter().map(|der| PyBytes::new(py, der)).collect::<Vec<_>>())?;
            (
                shaken.version,
                session.suite(),
                self.protocol(),
                session.server_name().map(str::to_owned),
                chain,
                shaken.resumed,
                session.group(),
                session.error().map(str::to_owned),
                session.host().map(str::to_owned),
            )
        };
        let made = describe.bind(py).call1(arguments)?;
        if made.is_none() {
            return Ok(None);
        }
        // Making it may have come here.
        let mut object = self.object.borrow_mut();
        Ok(Some(object.get_or_insert_with(|| made.unbind()).clone_ref(py)))
    }
}

/// Read the kernel's input; of a client that `is_new`, until there is no more. Returns how many bytes that is, and whether
/// the input ends there.
fn receive_hello(descriptor: &Descriptor, room: &mut [u8], is_new: bool) -> PyResult<(usize, bool)> {
    let mut length = 0;
    while let Some(rest) = room.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match receive(descriptor, rest)? {
            Input::Data { length: more, .. } => length += more,
            Input::Nothing => break,
            Input::End => return Ok((length, true)),
        }
        if !is_new {
            break;
        }
    }
    Ok((length, false))
}

fn kind_of(kind: FailureKind) -> HandshakeFailure {
    match kind {
        FailureKind::Closed => HandshakeFailure::Closed,
        FailureKind::Version => HandshakeFailure::Version,
        FailureKind::Parameters => HandshakeFailure::Parameters,
        FailureKind::Certificate => HandshakeFailure::Certificate,
        FailureKind::Alert => HandshakeFailure::Alert,
        FailureKind::NotTls => HandshakeFailure::NotTls,
        FailureKind::Other => HandshakeFailure::Other,
    }
}

/// How many of `length` bytes are encrypted at once, so that all records of the next pieces are full.
pub(super) fn together(length: usize) -> usize {
    if length <= MOST + RECORD { length } else { MOST - (RECORD - length % RECORD) % RECORD }
}

/// Fill `room` with the parts of `pieces` from `from` on that are `most` bytes together. Returns how many parts, and how
/// many bytes.
fn part<'a>(pieces: &'a [IoSlice<'_>], from: usize, most: usize, room: &mut [IoSlice<'a>; PIECES]) -> (usize, usize) {
    let (mut skip, mut count, mut length) = (from, 0, 0);
    for piece in pieces {
        let rest = piece.get(skip.min(piece.len())..).unwrap_or_default();
        skip = skip.saturating_sub(piece.len());
        let rest = rest.get(..most - length).unwrap_or(rest);
        if rest.is_empty() {
            continue;
        }
        let Some(slot) = room.get_mut(count) else { break };
        *slot = IoSlice::new(rest);
        count += 1;
        length += rest.len();
    }
    (count, length)
}
