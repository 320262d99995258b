//! The output: one write for all that is ready, in the order of the streams' turns; the ends of streams and of the
//! connection.
//!
//! A more urgent stream cannot overtake bytes that were written. So little is written ahead: nothing while the transport
//! holds output, and the kernel takes only 64 KiB beyond the bytes on their way (`TCP_NOTSENT_LOWAT`, `UNSENT`).

use std::rc::{Rc, Weak};

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use wire::error::AppError;
use wire::h2::{Connection as Wire, ErrorCode, StreamId};

use super::connection::{Connection, State, Stream};
use super::states::{Awaits, Ending};
use crate::asgi::exchange::Exchange;
use crate::base::error::exception;
use crate::base::places;
use crate::conn::carried::{Carried, Life};
use crate::streams::open::OpenStream;
use crate::streams::starting::Starts;

/// Bytes of bodies that are put together for one write: output that becomes more urgent meanwhile waits for no more
/// than this.
const AT_ONCE: usize = 64 * 1024;

/// Bytes that are written before input is read again. A client on the same machine takes them as fast as they are
/// written: an application that always has more would never pause.
const IN_ONE_TURN: usize = 256 * 1024;

impl Connection {
    /// Append to the output.
    #[inline]
    pub(super) fn put<R>(
        &self,
        append: impl FnOnce(&mut Wire<Py<PyTuple>>, &mut Vec<u8>) -> Result<R, AppError>,
    ) -> PyResult<R> {
        let State { wire, out, .. } = &mut *self.state.borrow_mut();
        self.core.hub.buffers.supply(out);
        append(wire, out).map_err(exception)
    }

    /// Write the output, unless it leaves with more anyway.
    #[inline]
    pub(super) fn flush_unless_consuming(&self, py: Python<'_>) -> PyResult<()> {
        if self.consuming.get() { Ok(()) } else { self.flush(py) }
    }

    /// The same, with what follows from written output: streams that are over, and the next wait.
    pub(super) fn settle_unless_consuming(&self, py: Python<'_>) -> PyResult<()> {
        if self.consuming.get() {
            return Ok(());
        }
        self.flush(py)?;
        self.after(py)
    }

    /// Write as much as the windows and the transport let through.
    pub(super) fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let mut more = !self.outflow.paused.get() && self.is_open();
        while more {
            let mut relieved = Vec::new();
            more = !self.outflow.rests.get() && self.fill(py, &mut relieved);
            self.write(py)?;
            for stream in relieved {
                stream.relieve(py)?;
            }
            more &= !self.outflow.paused.get() && self.is_open();
        }
        self.watch_windows(py)
    }

    /// This much was written: the rest is written after the loop's next turn.
    fn count_written(&self, py: Python<'_>, length: usize) -> PyResult<()> {
        let written = self.outflow.written.get() + length;
        self.outflow.written.set(written);
        if written <= IN_ONE_TURN || !self.core.is_real || self.outflow.rests.get() {
            return Ok(());
        }
        let Some(own) = self.own.get().and_then(Weak::upgrade) else { return Ok(()) };
        self.outflow.rests.set(true);
        own.resume_later(py)
    }

    /// Append parts of bodies to the output; returns whether more could leave. Applications whose bodies have become
    /// short enough may go on.
    fn fill(&self, py: Python<'_>, relieved: &mut Vec<Rc<Stream>>) -> bool {
        let State { wire, out, streams, .. } = &mut *self.state.borrow_mut();
        self.core.hub.buffers.supply(out);
        wire.fill(out, AT_ONCE, |part, out| {
            let Some(slot) = streams.at(part.stream.place()) else { return };
            if slot.stream.take(py, part.length, out) {
                relieved.push(slot.stream.clone());
            }
            if part.end {
                self.due.ended.borrow_mut().push(part.stream);
            }
        })
    }

    /// Write all of the output.
    fn write(&self, py: Python<'_>) -> PyResult<()> {
        // The callback may write too, and its output comes after this.
        let logged = self.core.host.log_first(py, || !self.state.borrow().out.is_empty());
        let out = std::mem::take(&mut self.state.borrow_mut().out);
        self.core.rehearsal.happen_in("write");
        let written = if out.is_empty() || self.is_closed() {
            Ok(None)
        } else {
            if let Some(metrics) = &self.core.metrics {
                metrics.add(places::BYTES_SENT, out.len());
            }
            self.on_carrier(py, |carrier| carrier.write(py, &out))
        };
        let length = out.len();
        self.core.hub.buffers.give(out);
        logged.and(written.map(drop))?;
        self.count_written(py, length)
    }

    /// Act on the state of the connection after something was completed or consumed.
    pub(super) fn after(&self, py: Python<'_>) -> PyResult<()> {
        self.settle(py)?;
        self.give_back();
        if !self.is_open() {
            return Ok(());
        }
        if matches!(self.ending.get(), Ending::Due | Ending::Last) && self.state.borrow().wire.is_idle() {
            self.say_end()?;
            self.flush(py)?;
        }
        if self.state.borrow().wire.is_over() || self.has_all.get() && self.state.borrow().wire.is_idle() {
            let lingers = self.waits.awaits.get() == Awaits::Nothing || self.has_unsent(py)?;
            return self.close(py, lingers);
        }
        self.update_deadline(py)
    }

    /// Let go of streams that are over on the wire.
    pub(super) fn settle(&self, py: Python<'_>) -> PyResult<()> {
        loop {
            let Some(id) = self.due.ended.borrow_mut().pop() else { return Ok(()) };
            let slot = {
                let state = &mut *self.state.borrow_mut();
                if state.is_over(id) { state.streams.take(id) } else { None }
            };
            if let Some(OpenStream { stream, exchange }) = slot {
                stream.leave_deadlines();
                if stream.channel.get().is_some() {
                    stream.give_up(py)?;
                }
                drop(stream);
                self.core.runner.retire(py, exchange);
            }
        }
    }

    /// Take its exchange from a stream, which is over for the application; one that was not called yet never is.
    pub(super) fn disown(&self, id: StreamId) -> Option<Rc<Exchange>> {
        let (exchange, asked) = self.state.borrow_mut().streams.disown(id);
        drop(asked);
        exchange
    }

    /// A stream is over, perhaps before its time.
    pub(super) fn lose(&self, py: Python<'_>, id: StreamId) -> PyResult<()> {
        let exchange = self.disown(id);
        let slot = self.state.borrow_mut().streams.take(id);
        let relieved = slot.map_or(Ok(()), |slot| slot.stream.give_up(py));
        relieved.and(self.core.runner.part(py, exchange))
    }

    /// End a stream that cannot be completed.
    pub(super) fn reset(&self, py: Python<'_>, id: StreamId, code: ErrorCode) -> PyResult<()> {
        {
            let State { wire, out, .. } = &mut *self.state.borrow_mut();
            self.core.hub.buffers.supply(out);
            wire.reset(out, id, code);
        }
        self.lose(py, id)?;
        self.settle_unless_consuming(py)
    }

    /// All streams are over.
    pub(super) fn lose_all(&self, py: Python<'_>) -> PyResult<()> {
        let ids: Vec<_> = self.state.borrow().streams.iter().map(|stream| stream.id).collect();
        ids.into_iter().try_fold((), |(), id| self.lose(py, id))
    }

    /// Close once everything is written; with `linger` only after the peer had a chance to read it. The output ends
    /// with a GOAWAY, if one is needed.
    pub(super) fn close(&self, py: Python<'_>, linger: bool) -> PyResult<()> {
        if !self.is_open() {
            return Ok(());
        }
        {
            let State { wire, out, .. } = &mut *self.state.borrow_mut();
            self.core.hub.buffers.supply(out);
            wire.end(out);
        }
        let has_failed = self.state.borrow().wire.is_closed();
        self.write(py)?;
        self.life.set(Life::Closed);
        self.waits.ping.set(None);
        self.state.borrow_mut().pending = Vec::new();
        self.lose_all(py)?;
        if linger && self.core.is_real && !self.has_all.get() && self.can_linger(py)? {
            // Closing with unread input makes the kernel reset the connection, and the peer may lose the answer.
            self.life.set(Life::Lingering);
            // Before the transport is used: the peer may be gone unnoticed.
            let settings = &self.core.settings;
            // A client that has broken the protocol may still be sending; others close theirs, or keep it in a pool.
            let patience = if has_failed { settings.linger } else { settings.last_call };
            self.waits.input.set(Some(self.core.hub.deadlines.now() + patience));
            self.watch(py)?;
            self.on_carrier(py, |carrier| carrier.write_eof(py))?;
            self.note_linger(py)?;
            return self.resume_reading(py);
        }
        self.waits.input.set(None);
        if self.close_carrier(py)? { self.waits.reader.wait(py, self) } else { Ok(()) }
    }
}
