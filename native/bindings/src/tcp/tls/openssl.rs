//! TLS by OpenSSL: an `ssl.SSLObject` of Python's, pumped here.
//!
//! ```text
//! OPENING ──the handshake is complete──▶ OPEN ──finish──▶ FINISHED (close_notify is sent)
//! ```
//!
//! Certificates, versions, ciphers, callbacks: all settings of an `ssl.SSLContext` hold, because OpenSSL acts through
//! that context. It reads and writes memory; the data moved between that and the kernel is bounded.

use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::rc::Rc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::shared::{Handshake, HandshakeFailure, Input, PIECE, receive, send};
use crate::tcp::sys::Descriptor;

/// More than a record has (RFC 8446 section 5.1), and with it what one read can give.
const RECORD: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Opening,
    Open,
    /// Our side has ended; nothing can be written.
    Finished,
}

/// The TLS settings of one listening socket's connections.
pub(crate) struct Encryption {
    /// `context.wrap_bio`.
    wrap: Py<PyAny>,
    /// `ssl.MemoryBIO`.
    memory: Py<PyAny>,
    /// The class `ssl.SSLObject`, whose own instances only wrap the object inside.
    plain: Py<PyAny>,
    want_read: Py<PyAny>,
    want_write: Py<PyAny>,
    /// That the peer has ended without saying so.
    eof: Py<PyAny>,
    /// That it was read to its end.
    zero: Py<PyAny>,
}

impl Encryption {
    pub(super) fn new(context: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = context.py();
        let ssl = py.import("ssl")?;
        let get = |name: &str| ssl.getattr(name).map(Bound::unbind);
        Ok(Self {
            wrap: context.getattr("wrap_bio")?.unbind(),
            memory: get("MemoryBIO")?,
            plain: get("SSLObject")?,
            want_read: get("SSLWantReadError")?,
            want_write: get("SSLWantWriteError")?,
            eof: get("SSLEOFError")?,
            zero: get("SSLZeroReturnError")?,
        })
    }

    /// Whether more input, or room for output, is all that is missing.
    fn is_later(&self, py: Python<'_>, error: &PyErr) -> bool {
        error.is_instance(py, self.want_read.bind(py)) || error.is_instance(py, self.want_write.bind(py))
    }
}

/// The TLS side of one connection.
pub(crate) struct Tls {
    encryption: Rc<Encryption>,
    object: Py<PyAny>,
    /// The object that is called: the inner one, unless a program has overridden methods of the outer one.
    engine: Py<PyAny>,
    phase: Cell<Phase>,
    incoming: Incoming,
    outgoing: Outgoing,
    /// An error found after input that is to be processed first.
    failure: RefCell<Option<PyErr>>,
    /// OpenSSL is called, and with it the context's callbacks, or finalizers that are due: they may come back here.
    busy: Cell<bool>,
}

/// Records on their way in.
struct Incoming {
    /// An `ssl.MemoryBIO`.
    memory: Py<PyAny>,
    /// The kernel has reported the end of input.
    ended: Cell<bool>,
    /// OpenSSL may have some that it has not given.
    holds: Cell<bool>,
    /// Data that it has given, to be read first.
    early: RefCell<Option<Py<PyBytes>>>,
}

/// Records on their way out.
struct Outgoing {
    /// An `ssl.MemoryBIO`.
    memory: Py<PyAny>,
    /// OpenSSL was called, and may have written some.
    has_spoken: Cell<bool>,
    /// Those that the kernel has not taken yet, and how many bytes of them it has.
    unsent: RefCell<Option<(Py<PyBytes>, usize)>>,
    /// Bytes that it has not.
    waiting: Cell<usize>,
}

impl Tls {
    pub(super) fn new(py: Python<'_>, encryption: &Rc<Encryption>) -> PyResult<Self> {
        let memory = encryption.memory.bind(py);
        let (incoming, outgoing) = (memory.call0()?, memory.call0()?);
        // incoming, outgoing, server_side
        let object = encryption.wrap.bind(py).call1((&incoming, &outgoing, true))?;
        let is_plain = object.get_type().is(encryption.plain.bind(py));
        let engine = if is_plain { object.getattr(intern!(py, "_sslobj"))? } else { object.clone() };
        Ok(Self {
            encryption: encryption.clone(),
            object: object.unbind(),
            engine: engine.unbind(),
            phase: Cell::new(Phase::Opening),
            incoming: Incoming {
                memory: incoming.unbind(),
                ended: Cell::new(false),
                holds: Cell::new(true),
                early: RefCell::default(),
            },
            outgoing: Outgoing {
                memory: outgoing.unbind(),
                has_spoken: Cell::new(false),
                unsent: RefCell::default(),
                waiting: Cell::new(0),
            },
            failure: RefCell::default(),
            busy: Cell::new(false),
        })
    }

    /// Bytes that the kernel has not taken yet.
    #[inline]
    pub(super) fn waiting(&self) -> usize {
        self.outgoing.waiting.get()
    }

    /// Nothing of it will be sent.
    pub(super) fn forget(&self) -> Option<Py<PyAny>> {
        self.outgoing.waiting.set(0);
        self.outgoing.unsent.take().map(|(records, _)| records.into_any())
    }

    /// The `ssl.SSLObject`, as programs are shown it.
    pub(super) fn object(&self, py: Python<'_>) -> Py<PyAny> {
        self.object.clone_ref(py)
    }

    /// Version and resumption of a complete handshake.
    pub(super) fn handshake(&self, py: Python<'_>) -> PyResult<Handshake> {
        let object = self.object.bind(py);
        let version = object.call_method0(intern!(py, "version"))?;
        let version = if version.eq("TLSv1.3")? { 0x0304 } else { 0x0303 };
        Ok(Handshake { version, resumed: object.getattr(intern!(py, "session_reused"))?.is_truthy()? })
    }

    /// Why the handshake has failed, by OpenSSL's name for the error.
    #[cold]
    pub(super) fn failure(&self, py: Python<'_>, error: &PyErr) -> HandshakeFailure {
        if self.is_sudden_end(py, error)
            || error.is_instance_of::<pyo3::exceptions::PyOSError>(py) && !is_ssl(py, error)
        {
            return HandshakeFailure::Closed;
        }
        let reason = error.value(py).getattr_opt(intern!(py, "reason")).ok().flatten();
        let reason = reason.map(|reason| reason.to_string()).unwrap_or_default();
        match reason.as_str() {
            "UNSUPPORTED_PROTOCOL" | "VERSION_TOO_LOW" | "UNKNOWN_PROTOCOL" => HandshakeFailure::Version,
            "NO_SHARED_CIPHER"
            | "NO_SUITABLE_KEY_SHARE"
            | "NO_SHARED_SIGNATURE_ALGORITHMS"
            | "NO_SHARED_GROUP"
            | "NO_SUITABLE_SIGNATURE_ALGORITHM" => HandshakeFailure::Parameters,
            "CERTIFICATE_VERIFY_FAILED" | "PEER_DID_NOT_RETURN_A_CERTIFICATE" => HandshakeFailure::Certificate,
            "HTTP_REQUEST" | "HTTPS_PROXY_REQUEST" | "WRONG_VERSION_NUMBER" => HandshakeFailure::NotTls,
            reason if reason.contains("_ALERT_") => HandshakeFailure::Alert,
            _ => HandshakeFailure::Other,
        }
    }

    /// Call OpenSSL, unless that is being done.
    fn exclusively<T>(&self, otherwise: T, act: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
        if self.busy.replace(true) {
            return Ok(otherwise);
        }
        let outcome = act();
        self.busy.set(false);
        outcome
    }

    /// Go on with the handshake. Returns whether it is complete.
    pub(super) fn open(&self, py: Python<'_>, descriptor: &Descriptor, buffer: &mut [u8]) -> PyResult<bool> {
        self.exclusively(false, || self.shake_hands(py, descriptor, buffer))
    }

    fn shake_hands(&self, py: Python<'_>, descriptor: &Descriptor, buffer: &mut [u8]) -> PyResult<bool> {
        loop {
            self.outgoing.has_spoken.set(true);
            let outcome = self.engine.bind(py).call_method0(intern!(py, "do_handshake"));
            match outcome {
                Ok(_) => {
                    self.flush(py, descriptor)?;
                    self.phase.set(Phase::Open);
                    return Ok(true);
                }
                Err(error) if self.encryption.is_later(py, &error) => {
                    self.flush(py, descriptor)?;
                    match self.fill(py, descriptor, buffer)? {
                        Input::Data { .. } => {}
                        Input::End if !self.incoming.ended.replace(true) => {}
                        Input::End => return Err(error),
                        Input::Nothing => return Ok(false),
                    }
                }
                Err(error) => {
                    // Send the alert, if that is possible.
                    let _ = self.flush(py, descriptor);
                    return Err(error);
                }
            }
        }
    }

    /// Read the peer's data, into the whole of `buffer` if there is that much.
    pub(super) fn receive(&self, py: Python<'_>, descriptor: &Descriptor, buffer: &mut [u8]) -> PyResult<Input> {
        self.exclusively(Input::Nothing, || self.decrypt(py, descriptor, buffer))
    }

    fn decrypt(&self, py: Python<'_>, descriptor: &Descriptor, buffer: &mut [u8]) -> PyResult<Input> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        let mut length = 0;
        let mut drained = false;
        if let Some(early) = self.incoming.early.take() {
            let early = early.as_bytes(py);
            if let Some(place) = buffer.get_mut(..early.len()) {
                place.copy_from_slice(early);
                length = early.len();
            }
        }
        loop {
            // First the data that OpenSSL has.
            while self.has_input(py)? {
                let room = (buffer.len() - length).min(RECORD);
                if room == 0 {
                    return Ok(Input::Data { length, drained: false });
                }
                match self.engine.bind(py).call_method1(intern!(py, "read"), (room,)) {
                    Ok(data) => {
                        let data = data.cast_into::<PyBytes>()?;
                        let data = data.as_bytes();
                        if data.is_empty() {
                            return Ok(self.end_behind(length));
                        }
                        if let Some(place) = buffer.get_mut(length..length + data.len()) {
                            place.copy_from_slice(data);
                        }
                        length += data.len();
                    }
                    Err(error) if self.encryption.is_later(py, &error) => {
                        // It may have something to say itself (RFC 8446 section 4.6.3).
                        self.outgoing.has_spoken.set(true);
                        self.incoming.holds.set(false);
                        self.flush(py, descriptor)?;
                        break;
                    }
                    Err(error) if error.is_instance(py, self.encryption.zero.bind(py)) => {
                        return Ok(self.end_behind(length));
                    }
                    Err(error) => {
                        // Send the alert, if that is possible.
                        self.outgoing.has_spoken.set(true);
                        let _ = self.flush(py, descriptor);
                        if length == 0 {
                            return Err(error);
                        }
                        self.failure.replace(Some(error));
                        return Ok(Input::Data { length, drained: false });
                    }
                }
            }
            if drained {
                return Ok(if length > 0 { Input::Data { length, drained } } else { Input::Nothing });
            }
            let Some(rest) = buffer.get_mut(length..).filter(|rest| !rest.is_empty()) else {
                return Ok(Input::Data { length, drained: false });
            };
            match self.fill(py, descriptor, rest)? {
                Input::Data { drained: last, .. } => drained = last,
                Input::Nothing => drained = true,
                // Not `close_notify`: complete records are read, then OpenSSL reports that something is missing.
                Input::End if !self.incoming.ended.replace(true) => {}
                Input::End => return Ok(self.end_behind(length)),
            }
        }
    }

    /// The end, or the data in front of it; then OpenSSL is asked again, though nothing more comes.
    fn end_behind(&self, length: usize) -> Input {
        self.incoming.ended.set(true);
        if length > 0 { Input::Data { length, drained: false } } else { Input::End }
    }

    /// Whether OpenSSL has something to give, or to look at.
    fn has_input(&self, py: Python<'_>) -> PyResult<bool> {
        if self.incoming.ended.get() {
            return Ok(true);
        }
        let holds = self.incoming.holds.get()
            && (self.incoming.memory.bind(py).getattr(intern!(py, "pending"))?.is_truthy()?
                || self.engine.bind(py).call_method0(intern!(py, "pending"))?.is_truthy()?);
        self.incoming.holds.set(holds);
        Ok(holds)
    }

    /// Give OpenSSL the kernel's input, by way of `buffer`.
    fn fill(&self, py: Python<'_>, descriptor: &Descriptor, buffer: &mut [u8]) -> PyResult<Input> {
        let received = receive(descriptor, buffer)?;
        match received {
            Input::Data { length, .. } => {
                let data = PyBytes::new(py, buffer.get(..length).unwrap_or_default());
                self.incoming.memory.bind(py).call_method1(intern!(py, "write"), (data,))?;
                self.incoming.holds.set(true);
            }
            Input::End => {
                self.incoming.memory.bind(py).call_method0(intern!(py, "write_eof"))?;
            }
            Input::Nothing => {}
        }
        Ok(received)
    }

    /// Encrypt and send as much of `pieces` as the kernel takes; returns how many bytes that is.
    pub(super) fn send(&self, py: Python<'_>, descriptor: &Descriptor, pieces: &[IoSlice<'_>]) -> PyResult<usize> {
        let total: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut done = 0;
        while done < total {
            let data = PyBytes::new_with(py, PIECE.min(total - done), |room| {
                gather(pieces, done, room);
                Ok(())
            })?;
            let count = self.send_piece(py, descriptor, data.as_any())?;
            done += count;
            if count == 0 {
                break;
            }
        }
        Ok(done)
    }

    /// Encrypt and send at most [`PIECE`]. Returns its length, or 0 if it has to wait.
    pub(super) fn send_piece(
        &self,
        py: Python<'_>,
        descriptor: &Descriptor,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        self.exclusively(0, || {
            if self.phase.get() != Phase::Open || !self.flush(py, descriptor)? {
                return Ok(0);
            }
            self.outgoing.has_spoken.set(true);
            let count = match self.engine.bind(py).call_method1(intern!(py, "write"), (data,)) {
                Ok(count) => count.extract::<usize>()?,
                // It must read something of the peer first.
                Err(error) if self.encryption.is_later(py, &error) => 0,
                Err(error) => return Err(error),
            };
            self.flush(py, descriptor)?;
            Ok(count)
        })
    }

    /// Tell the peer that nothing follows (`close_notify`, RFC 8446 section 6.1). Returns whether that is sent.
    pub(super) fn finish(&self, py: Python<'_>, descriptor: &Descriptor) -> PyResult<bool> {
        if self.phase.get() == Phase::Open {
            self.phase.set(Phase::Finished);
            self.outgoing.has_spoken.set(true);
            // It would wait for the peer's, or has failed before: either way the alert is sent, if that is possible.
            let ended = self.without_input(py, || self.object.bind(py).call_method0(intern!(py, "unwrap")));
            drop(ended);
        }
        self.flush(py, descriptor)
    }

    /// Call OpenSSL as if nothing had come: behind its own `close_notify` it takes data for an error, and gives none then.
    fn without_input<'py>(
        &self,
        py: Python<'py>,
        act: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let engine = self.engine.bind(py);
        let ready = engine.call_method0(intern!(py, "pending"))?;
        if ready.is_truthy()? {
            let data = engine.call_method1(intern!(py, "read"), (ready,))?;
            self.incoming.early.replace(Some(data.cast_into::<PyBytes>()?.unbind()));
        }
        let memory = self.incoming.memory.bind(py);
        let records = memory.call_method0(intern!(py, "read"))?;
        let outcome = act();
        if records.is_truthy()? {
            memory.call_method1(intern!(py, "write"), (records,))?;
            self.incoming.holds.set(true);
        }
        outcome
    }

    /// Write OpenSSL's output to the kernel. Returns whether it has taken everything.
    pub(super) fn flush(&self, py: Python<'_>, descriptor: &Descriptor) -> PyResult<bool> {
        loop {
            let waiting = self.outgoing.unsent.borrow_mut().take();
            let (records, sent) = if let Some(waiting) = waiting {
                waiting
            } else if !self.outgoing.has_spoken.replace(false) {
                return Ok(true);
            } else {
                let records =
                    self.outgoing.memory.bind(py).call_method0(intern!(py, "read"))?.cast_into::<PyBytes>()?;
                if records.as_bytes().is_empty() {
                    return Ok(true);
                }
                (records.unbind(), 0)
            };
            let rest = records.as_bytes(py).get(sent..).unwrap_or_default();
            let count = send(descriptor, &[IoSlice::new(rest)])?;
            let waiting = rest.len() - count;
            self.outgoing.waiting.set(waiting);
            if waiting > 0 {
                self.outgoing.unsent.replace(Some((records, sent + count)));
                return Ok(false);
            }
        }
    }

    /// Whether `error` only means that the peer has closed without `close_notify`.
    pub(super) fn is_sudden_end(&self, py: Python<'_>, error: &PyErr) -> bool {
        error.is_instance(py, self.encryption.eof.bind(py)) || is_unexpected_eof(py, error).unwrap_or(false)
    }
}

/// Whether it is OpenSSL's, and not the system's.
#[cold]
fn is_ssl(py: Python<'_>, error: &PyErr) -> bool {
    py.import("ssl").and_then(|ssl| ssl.getattr("SSLError")).is_ok_and(|class| error.is_instance(py, &class))
}

/// What older releases of Python (3.11.2) do not know for an `SSLEOFError`, which OpenSSL 3 says in its own way.
#[cold]
fn is_unexpected_eof(py: Python<'_>, error: &PyErr) -> PyResult<bool> {
    let reason = error.value(py).getattr_opt(intern!(py, "reason"))?;
    reason.map_or(Ok(false), |reason| reason.eq("UNEXPECTED_EOF_WHILE_READING"))
}

/// Fill `room` with the content of `pieces` from `from` on.
fn gather(pieces: &[IoSlice<'_>], from: usize, room: &mut [u8]) {
    let mut skip = from;
    let mut at = 0;
    for piece in pieces {
        let part = piece.get(skip.min(piece.len())..).unwrap_or_default();
        skip = skip.saturating_sub(piece.len());
        let length = part.len().min(room.len() - at);
        if let (Some(place), Some(part)) = (room.get_mut(at..at + length), part.get(..length)) {
            place.copy_from_slice(part);
        }
        at += length;
    }
}
