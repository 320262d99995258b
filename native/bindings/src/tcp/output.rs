//! The output of a socket: bytes that the kernel takes at once, bytes that wait, and their share of a turn.

use std::io::IoSlice;
use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::socket::Socket;
use super::states::{Phase, Writing};
use super::sys::{Descriptor, os_error};
use super::tls::engine::Tls;
use super::tls::shared::send;

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

impl Socket {
    /// Bytes that wait.
    pub(super) fn waiting(&self) -> usize {
        self.outgoing.output.borrow().len() + self.tls.as_ref().map_or(0, Tls::waiting)
    }

    /// Bytes that are kept until they are written; and how many were written so far that had waited.
    pub(super) fn held(&self) -> (usize, usize) {
        let output = self.outgoing.output.borrow();
        (output.held(), output.taken())
    }

    /// Bytes that the peer has yet to take, those in the kernel included: it may take minutes of a slow peer's reading before
    /// that asks for more.
    pub(super) fn unsent(&self) -> usize {
        self.waiting() + self.descriptor().map_or(0, |descriptor| descriptor.in_kernel())
    }

    /// Set the marks above which writers pause, and below which they resume.
    pub(super) fn set_limits(self: &Rc<Self>, py: Python<'_>, high: usize, low: usize) -> PyResult<()> {
        {
            let mut output = self.outgoing.output.borrow_mut();
            (output.high, output.low) = (high, low);
        }
        self.apply_marks(py)
    }

    pub(super) fn limits(&self) -> (usize, usize) {
        let output = self.outgoing.output.borrow();
        (output.low, output.high)
    }

    /// Whether anything that is written now can still leave.
    #[inline]
    fn takes_output(&self) -> bool {
        self.phase.get() != Phase::Lost && self.outgoing.writing.get() == Writing::On
    }

    /// Write `data`; the part that the kernel does not take is kept.
    pub(super) fn write(self: &Rc<Self>, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        if data.is_empty() || !self.takes_output() {
            return Ok(());
        }
        let sent = self.send_now(py, &[IoSlice::new(data)])?;
        match data.get(sent..) {
            Some(rest) if !rest.is_empty() && self.takes_output() => {
                self.outgoing.output.borrow_mut().push(rest);
                self.keep(py)
            }
            _ => self.keep_records(py, sent),
        }
    }

    /// So much is given away, and nothing of it is kept; but of the records that it became some may wait.
    #[inline]
    fn keep_records(self: &Rc<Self>, py: Python<'_>, sent: usize) -> PyResult<()> {
        if self.tls.as_ref().is_some_and(|tls| tls.waiting() > 0) {
            self.kernel.writable.set(false);
            return self.keep(py);
        }
        let before = self.outgoing.spent.get();
        let spent = before.saturating_add(u32::try_from(sent).unwrap_or(u32::MAX));
        self.outgoing.spent.set(spent);
        // A single write is never divided.
        if before > 0 && spent as usize > SHARE { self.yield_turn(py) } else { Ok(()) }
    }

    /// Have writers wait until others had their turn.
    #[cold]
    fn yield_turn(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        if self.phase.get() != Phase::Open || self.outgoing.yields.replace(true) {
            return Ok(());
        }
        self.keeper.queue(py, self)?;
        if std::mem::replace(&mut self.outgoing.output.borrow_mut().paused, true) {
            Ok(())
        } else {
            self.tell(py, true)
        }
    }

    /// Write `head` and behind it `body`, in one call of the system. The body is not copied if it is large; over TLS no more
    /// of it than the piece that leaves with the head.
    pub(super) fn write_with(self: &Rc<Self>, py: Python<'_>, head: &[u8], body: &Bound<'_, PyBytes>) -> PyResult<()> {
        if !self.takes_output() {
            return Ok(());
        }
        let bytes = body.as_bytes();
        let direct = match &self.tls {
            Some(tls) => tls.first(head, bytes),
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
            let mut output = self.outgoing.output.borrow_mut();
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

    /// The same for a body that is the caller's: the part that the kernel does not take is copied.
    pub(super) fn write_both(self: &Rc<Self>, py: Python<'_>, head: &[u8], body: &[u8]) -> PyResult<()> {
        if !self.takes_output() {
            return Ok(());
        }
        let sent = self.send_now(py, &[IoSlice::new(head), IoSlice::new(body)])?;
        if sent == head.len() + body.len() || !self.takes_output() {
            return self.keep_records(py, sent);
        }
        {
            let mut output = self.outgoing.output.borrow_mut();
            let (behind_head, behind_body) = (head.get(sent..), body.get(sent.saturating_sub(head.len())..));
            for rest in behind_head.into_iter().chain(behind_body).filter(|rest| !rest.is_empty()) {
                output.push(rest);
            }
        }
        self.keep(py)
    }

    /// Write new output at once, as far as the kernel takes it, unless older output waits.
    #[inline]
    fn send_now(&self, py: Python<'_>, pieces: &[IoSlice<'_>]) -> PyResult<usize> {
        if self.waiting() > 0 {
            return Ok(0);
        }
        let Some(descriptor) = self.descriptor() else { return Ok(0) };
        let sent = match &self.tls {
            None => send(&descriptor, pieces),
            Some(tls) => tls.send(py, &descriptor, pieces),
        };
        drop(descriptor);
        let sent = sent.or_else(|error| self.lose_by(py, error).map(|()| 0))?;
        if sent < pieces.iter().map(|piece| piece.len()).sum() {
            self.kernel.writable.set(false);
        }
        Ok(sent)
    }

    /// Something waits now.
    fn keep(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        // It may have become writable before it was watched; then the kernel reports that at once.
        self.watch(py)?;
        self.apply_marks(py)
    }

    pub(super) fn apply_marks(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        let pause = {
            let waiting = self.waiting();
            let mut output = self.outgoing.output.borrow_mut();
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

    /// Write the waiting output.
    pub(super) fn flush(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        let Some(descriptor) = self.descriptor() else { return Ok(()) };
        let outcome = match &self.tls {
            None => self.flush_plain(py, &descriptor),
            Some(tls) => self.flush_encrypted(py, &descriptor, tls),
        };
        drop(descriptor);
        match outcome {
            Ok(Rest::Nothing) => self.written(py)?,
            Ok(Rest::Kernel) => self.kernel.writable.set(false),
            Ok(Rest::Turn) => self.keeper.queue(py, self)?,
            Err(error) => return self.lose_by(py, error),
        }
        self.apply_marks(py)
    }

    fn flush_plain(&self, py: Python<'_>, descriptor: &Descriptor) -> PyResult<Rest> {
        let mut total = 0;
        while self.outgoing.output.borrow().len() > 0 {
            if total >= SHARE {
                return Ok(Rest::Turn);
            }
            let sent = self.outgoing.output.borrow().give(py, |pieces| send(descriptor, pieces))?;
            if sent == 0 {
                return Ok(Rest::Kernel);
            }
            total += sent;
            let done = self.outgoing.output.borrow_mut().advance(py, sent);
            drop(done);
        }
        Ok(Rest::Nothing)
    }

    /// Python code may run while something is encrypted, so no borrow is held then.
    fn flush_encrypted(&self, py: Python<'_>, descriptor: &Descriptor, tls: &Tls) -> PyResult<Rest> {
        let mut total = 0;
        loop {
            if total >= SHARE && self.outgoing.output.borrow().len() > 0 {
                return Ok(Rest::Turn);
            }
            let Some(sent) = tls.send_first(py, descriptor, &self.outgoing.output)? else {
                return Ok(if tls.flush(py, descriptor)? { Rest::Nothing } else { Rest::Kernel });
            };
            if sent == 0 || self.outgoing.output.borrow().len() == 0 {
                return Ok(Rest::Kernel);
            }
            total += sent;
            let done = self.outgoing.output.borrow_mut().advance(py, sent);
            drop(done);
        }
    }

    /// Everything is written: end the operations that waited for that.
    pub(super) fn written(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        if self.phase.get() == Phase::Closing || self.outgoing.writing.get() == Writing::Ending {
            let finished = match (&self.tls, self.descriptor()) {
                (Some(tls), Some(descriptor)) => tls.finish(py, &descriptor),
                _ => Ok(true),
            };
            match finished {
                Ok(true) => {}
                Ok(false) => {
                    self.kernel.writable.set(false);
                    return self.watch(py);
                }
                // The peer is gone, and cannot be notified.
                Err(error) => return self.lose_by(py, error),
            }
        }
        if self.outgoing.writing.get() == Writing::Ending {
            self.outgoing.writing.set(Writing::Ended);
            let slot = self.who.slot.borrow().as_ref().map(|slot| slot.clone_ref(py));
            slot.map_or(Ok(()), |slot| slot.linger(py))?;
            let ended = self.descriptor().map_or(Ok(()), |descriptor| descriptor.end_output());
            if let Err(error) = ended {
                return self.lose(py, Some(os_error(&error)));
            }
        }
        if self.phase.get() == Phase::Closing { self.lose_written(py) } else { Ok(()) }
    }

    /// Everything is written, and nothing more will come. The descriptor is closed at the end of a turn, but the end of
    /// output is sent at once: the peer's input until then is lost.
    fn lose_written(&self, py: Python<'_>) -> PyResult<()> {
        if !self.keeper.is_running()
            && self.outgoing.writing.get() == Writing::On
            && let Some(descriptor) = self.descriptor()
            && !(self.resets() || descriptor.resets_on_close())
        {
            // A peer that is gone by now does not need it.
            let _ = descriptor.end_output();
        }
        self.lose(py, None)
    }

    /// Tell the peer that nothing more will come, once everything is written.
    pub(super) fn write_eof(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        if self.phase.get() != Phase::Open || self.outgoing.writing.get() != Writing::On {
            return Ok(());
        }
        self.outgoing.writing.set(Writing::Ending);
        if self.waiting() == 0 { self.written(py) } else { Ok(()) }
    }
}
