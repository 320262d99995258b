//! The output: streams have turns, in the order of their priorities; the ends of streams and of the connection.
//!
//! What QUIC has taken leaves by its own order: it has the priority of the stream as well. It takes as much as may be on its
//! way to the client.

use std::rc::{Rc, Weak};

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use quic::{Bytes, Written};
use wire::error::AppError;
use wire::h3::{Channel, Connection as Wire, ErrorCode, StreamId};

use super::connection::{Connection, Stream};
use super::states::Reading;
use crate::asgi::exchange::Exchange;
use crate::base::error::exception;
use crate::base::places;
use crate::conn::carried::Life;
use crate::streams::deadlines::WINDOW;
use crate::streams::open::OpenStream;
use crate::streams::starting::Starts;
use crate::streams::tunnel::Said;

impl Stream {
    /// Append to the output, which is written when it is the stream's turn.
    #[inline]
    pub(super) fn put<R>(
        &self,
        append: impl FnOnce(&mut Wire<Py<PyTuple>>, &mut Vec<u8>) -> Result<R, AppError>,
    ) -> PyResult<R> {
        let wire = &mut self.connection.state.borrow_mut().wire;
        let result = self.queue.borrow_mut().put(|out| append(wire, out));
        if !self.is_blocked.get() {
            wire.ready(self.id);
        }
        result.map_err(exception)
    }
}

impl Connection {
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

    /// Write as much as QUIC takes.
    pub(super) fn flush(&self, py: Python<'_>) -> PyResult<()> {
        if !self.is_open() {
            return Ok(());
        }
        self.core.rehearsal.happen_in("write");
        self.write_own(py)?;
        let mut is_logged = false;
        while self.is_open() {
            let Some(turn) = self.state.borrow().wire.turn() else { break };
            // The callback may write too.
            if !std::mem::replace(&mut is_logged, true) {
                self.core.host.log_first(py, || true)?;
            }
            match self.stream(turn.stream) {
                Some(stream) => self.write(py, &stream, turn.most)?,
                None => self.state.borrow_mut().wire.sent(turn.stream, 0, false, false),
            }
        }
        self.watch_windows(py)
    }

    /// Write the server's own streams.
    pub(super) fn write_own(&self, py: Python<'_>) -> PyResult<()> {
        for (place, channel) in Channel::ALL.into_iter().enumerate() {
            let output = match self.state.borrow_mut().wire.output(channel) {
                [] => continue,
                output => Bytes::copy_from_slice(output),
            };
            let known = self.state.borrow().own.get(place).copied().flatten();
            let number = if let Some(number) = known {
                number
            } else {
                // The client allows three at least (RFC 9114 section 6.2); else it is asked again when it allows more.
                let Some(number) = self.quic.open(py)? else { return Ok(()) };
                if let Some(own) = self.state.borrow_mut().own.get_mut(place) {
                    *own = Some(number);
                }
                self.quic.set_priority(number, OWN_PRIORITY);
                number
            };
            let length = output.len();
            let mut pieces = [output];
            self.quic.write(py, number, &mut pieces)?;
            let left: usize = pieces.iter().map(Bytes::len).sum();
            self.state.borrow_mut().wire.written(channel, length - left);
        }
        Ok(())
    }

    /// Have QUIC take up to `most` bytes of a stream; how many it has.
    fn hand_on(&self, py: Python<'_>, stream: &Stream, most: usize) -> PyResult<(Written, usize)> {
        let number = stream.id.number();
        let mut pieces = self.chunks.take();
        let length = stream.queue.borrow_mut().take(most, &mut pieces);
        let is_whole = stream.is_whole();
        let written = if length == 0 {
            Ok(Written::All)
        } else if is_whole {
            self.quic.write(py, number, &mut pieces)
        } else {
            let mut copies = self.copies.take();
            stream.sent.borrow().follow(&pieces, &mut copies);
            let written = self.quic.write(py, number, &mut copies);
            stream.sent.borrow_mut().note(&mut pieces, &mut copies);
            self.copies.set(copies);
            written
        };
        let left: usize = pieces.iter().map(Bytes::len).sum();
        let taken = length - left;
        if is_whole {
            stream.sent.borrow_mut().skip(taken);
        }
        stream.queue.borrow_mut().give_back(&mut pieces);
        pieces.clear();
        self.chunks.set(pieces);
        Ok((written?, taken))
    }

    /// It is the turn of this stream: write up to `most` bytes.
    fn write(&self, py: Python<'_>, stream: &Rc<Stream>, most: usize) -> PyResult<()> {
        let id = stream.id;
        let (written, taken) = self.hand_on(py, stream, most)?;
        self.outflow.taken.set(self.outflow.taken.get().wrapping_add(taken));
        if let Some(metrics) = &self.core.metrics {
            metrics.add(places::BYTES_SENT, taken);
        }
        let is_blocked = written == Written::Blocked;
        stream.is_blocked.set(is_blocked);
        let has_more = stream.has_more();
        let has_ended = {
            let wire = &mut self.state.borrow_mut().wire;
            wire.sent(id, taken, has_more && !is_blocked, is_blocked);
            !has_more && wire.has_ended(id)
        };
        if !is_blocked {
            stream.deadlines.of(WINDOW).set(None);
        }
        match written {
            Written::Stopped(code) => return self.stopped(py, id.number(), code),
            Written::Closed => return self.lose(py, id),
            Written::All if has_ended => self.complete(py, stream)?,
            Written::All | Written::Blocked => {}
        }
        if stream.can_go_on() { stream.relieve(py) } else { Ok(()) }
    }

    /// QUIC has all of a response.
    fn complete(&self, py: Python<'_>, stream: &Stream) -> PyResult<()> {
        let id = stream.id;
        self.quic.finish(py, id.number())?;
        self.outflow.unacknowledged.borrow_mut().push_back(id.number());
        let unwanted = self.state.borrow_mut().wire.complete(id);
        if let Some(code) = unwanted {
            stream.leave_body_deadline();
            stream.stop_reading(py, code)?;
        }
        self.due.ended.borrow_mut().push(id);
        Ok(())
    }

    /// Act on the state of the connection after something was completed or consumed.
    pub(super) fn after(&self, py: Python<'_>) -> PyResult<()> {
        self.settle(py)?;
        self.give_back();
        self.refused.set(0);
        if !self.is_open() {
            return Ok(());
        }
        if self.state.borrow().wire.is_over() && self.outflow.unacknowledged.borrow().is_empty() {
            return self.close(py, ErrorCode::NoError, "");
        }
        self.update_deadline(py)
    }

    /// Let go of streams that are over on the wire.
    pub(super) fn settle(&self, py: Python<'_>) -> PyResult<()> {
        loop {
            let Some(id) = self.due.ended.borrow_mut().pop() else { return Ok(()) };
            let Some(stream) = self.stream(id) else { continue };
            // The client's end still has to reach an application that goes on after a response without content.
            let is_unfinished = self.exchange(id).is_some_and(|exchange| exchange.is_unfinished());
            if is_unfinished || !self.is_over(py, &stream)? {
                continue;
            }
            let slot = self.state.borrow_mut().take(id);
            stream.leave_deadlines();
            if stream.channel.get().is_some() {
                stream.give_up(py)?;
            }
            drop(stream);
            if let Some(OpenStream { stream, exchange }) = slot {
                drop(stream);
                self.core.runner.retire(py, exchange);
            }
        }
    }

    /// Whether a stream is over on the wire. A tunnel is once all was said.
    fn is_over(&self, py: Python<'_>, stream: &Stream) -> PyResult<bool> {
        let id = stream.id;
        if !self.state.borrow().wire.is_live(id) {
            return Ok(true);
        }
        let is_said = stream.channel.get().is_some_and(|channel| channel.said.get() == Said::All);
        if !is_said || stream.has_more() {
            return Ok(false);
        }
        stream.stop_reading(py, ErrorCode::NoError)?;
        self.state.borrow_mut().wire.reset(id);
        Ok(true)
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
        let slot = {
            let state = &mut *self.state.borrow_mut();
            state.wire.reset(id);
            state.take(id)
        };
        let relieved = slot.map_or(Ok(()), |slot| slot.stream.give_up(py));
        relieved.and(self.core.runner.part(py, exchange))
    }

    /// Cut off both directions of a stream of QUIC.
    pub(super) fn cut(&self, py: Python<'_>, number: u64, code: u64) -> PyResult<()> {
        self.quic.reset(py, number, code)?;
        self.quic.stop(py, number, code)
    }

    /// End a stream that cannot be completed.
    pub(super) fn reset(&self, py: Python<'_>, id: StreamId, code: ErrorCode) -> PyResult<()> {
        if self.state.borrow().wire.is_live(id) && self.stream(id).is_some() {
            self.cut(py, id.number(), code.number())?;
        }
        self.lose(py, id)?;
        self.settle_unless_consuming(py)
    }

    /// All streams are over.
    pub(super) fn lose_all(&self, py: Python<'_>) -> PyResult<()> {
        self.streams().into_iter().try_fold((), |(), stream| self.lose(py, stream.id))
    }

    /// Close the connection: whatever was not acknowledged is lost. Without an error its GOAWAY leaves before.
    pub(super) fn close(&self, py: Python<'_>, code: ErrorCode, reason: &str) -> PyResult<()> {
        if !self.is_open() {
            return Ok(());
        }
        self.life.set(Life::Closed);
        self.waits.input.set(None);
        self.lose_all(py)?;
        if code == ErrorCode::NoError {
            self.quic.send(py)?;
        }
        self.quic.close(py, code.number(), reason)
    }

    /// Have streams that are due served in a later turn.
    pub(super) fn serve_soon(&self, py: Python<'_>) -> PyResult<()> {
        if self.serve_scheduled.replace(true) {
            return Ok(());
        }
        self.own.get().and_then(Weak::upgrade).map_or(Ok(()), |connection| connection.serve_later(py))
    }
}

/// Ahead of all responses: they may need entries of the table.
const OWN_PRIORITY: i32 = 16;

impl Stream {
    /// Have QUIC send what it has of this stream before or behind that of others (RFC 9218 section 4.1).
    pub(super) fn prioritize(&self, priority: wire::h3::Priority) {
        let urgency = i32::from(priority.urgency);
        if urgency != i32::from(wire::h3::Priority::default().urgency) {
            self.connection.quic.set_priority(self.id.number(), 3 - urgency);
        }
    }

    /// Whether the piece that was taken from the queue is the whole response: QUIC mostly takes all of that, so that no deadline
    /// asks how much of it is acknowledged, and short ones are spared the count.
    fn is_whole(&self) -> bool {
        !self.has_more() && self.sent.borrow().is_empty() && self.connection.state.borrow().wire.has_ended(self.id)
    }

    /// Whether some of the output waits for its turn.
    pub(super) fn has_more(&self) -> bool {
        self.queue.borrow().len() > 0
    }

    /// Whether it is read, or could be.
    pub(super) fn is_read(&self) -> bool {
        self.reading.get() != Reading::Over
    }
}
