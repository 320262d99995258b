//! One stream, as the [`Stream`](crate::asgi::stream::Stream) of its exchange.
//!
//! ```text
//! application ── send ──▶ Queue ── fill, when it is its turn ──▶ output of the connection
//! ```
//!
//! A stream is the client's again when this is dropped, which its exchange holds: one that was reset counts for as long as its
//! application runs.

use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::Trailers;
use wire::error::AppError;
use wire::h2::ErrorCode;
use wire::limits::table::HIGH_WATER_LIMIT as HIGH_WATER;

use super::connection::{State, Stream};
use crate::asgi::access::entry::Head;
use crate::asgi::identity::OwnField;
use crate::asgi::stream::{Follows, Stream as Interface};
use crate::asgi::write_capacity::WriteCapacity;
use crate::base::error::exception;
use crate::conn::carried::Carried;
use crate::streams::deadlines::{REQUEST, WINDOW};
use crate::streams::response::Responds;
use crate::streams::starting::Starts;
use crate::streams::tunnel::Tunnel;

/// So little of a body may wait, and its application goes on.
const LOW_WATER: usize = HIGH_WATER / 4;

impl Stream {
    /// Have a piece of the body wait for its turn.
    #[inline]
    pub(super) fn push(&self, piece: &Bound<'_, PyBytes>) {
        let mut queue = self.queue.borrow_mut();
        let unsent = &self.connection.outflow.unsent_streams;
        unsent.set(unsent.get() + usize::from(queue.len() == 0));
        queue.push(piece);
        if queue.len() > HIGH_WATER {
            self.capacity.pause();
        }
    }

    /// Move the next bytes of the body to the end of `out`; whether the application can go on now.
    #[inline]
    pub(super) fn take(&self, py: Python<'_>, length: usize, out: &mut Vec<u8>) -> bool {
        let mut queue = self.queue.borrow_mut();
        queue.take(py, length, out);
        self.sent.set(self.sent.get().wrapping_add(length));
        let taken = &self.connection.outflow.taken;
        taken.set(taken.get().wrapping_add(length));
        if queue.len() == 0 {
            self.has_sent_all();
        }
        self.capacity.is_paused() && queue.len() <= LOW_WATER
    }

    fn has_sent_all(&self) {
        let unsent = &self.connection.outflow.unsent_streams;
        unsent.set(unsent.get().saturating_sub(1));
        self.deadlines.of(WINDOW).set(None);
    }

    /// Whether some of the body waits for its turn.
    pub(super) fn has_more(&self) -> bool {
        self.queue.borrow().len() > 0
    }

    /// Few bytes wait, or sending has become impossible: resume waiting writers.
    pub(super) fn relieve(&self, py: Python<'_>) -> PyResult<()> {
        self.capacity.resume(py, &self.connection.core.names)?;
        self.relieve_channel(py)
    }

    /// Sending has become impossible.
    pub(super) fn give_up(&self, py: Python<'_>) -> PyResult<()> {
        let unsent = self.queue.take();
        if unsent.len() > 0 {
            self.has_sent_all();
        }
        drop(unsent);
        self.leave_deadlines();
        if self.channel.get().is_some() { self.lose_channel(py) } else { self.relieve(py) }
    }

    /// How much of the request's body waits for the application.
    fn unread(&self) -> usize {
        self.connection.exchange(self.id).map_or(0, |exchange| exchange.body_length())
    }
}

impl Interface for Stream {
    fn send_continue(&self, py: Python<'_>) -> PyResult<()> {
        let connection = &self.connection;
        connection.core.sections.with_scratch(|scratch| {
            let State { wire, out, .. } = &mut *connection.state.borrow_mut();
            wire.send_continue(out, scratch, self.id);
        });
        self.restart_deadline(py)?;
        connection.flush_unless_consuming(py)
    }

    fn want_body(&self, py: Python<'_>) -> PyResult<()> {
        let connection = &self.connection;
        let unread = self.unread();
        let is_read = {
            let State { wire, out, .. } = &mut *connection.state.borrow_mut();
            let read = wire.held(self.id).saturating_sub(unread);
            if read > 0 {
                wire.consume_pieces(out, self.id, read, self.pieces.take());
            }
            read > 0
        };
        if !is_read {
            return Ok(());
        }
        if self.deadlines.of(REQUEST).get().is_none() {
            self.restart_deadline(py)?;
        }
        connection.flush_unless_consuming(py)
    }

    fn start(
        &self,
        py: Python<'_>,
        status: u16,
        headers: Option<&Bound<'_, PyAny>>,
        own: Option<&OwnField<'_>>,
    ) -> PyResult<bool> {
        self.refresh_defaults(py)?;
        self.encode_head(status, headers, own)
    }

    fn head(&self, _lines: bool) -> Head {
        let bodiless = !self.connection.state.borrow().wire.takes_body(self.id);
        Head { lines: self.lines.take(), bodiless }
    }

    fn body(&self, py: Python<'_>, data: Option<&Bound<'_, PyBytes>>, follows: Follows) -> PyResult<()> {
        let bytes = data.map_or(&[][..], |data| data.as_bytes());
        let last = follows == Follows::Nothing;
        let at_once = !self.connection.outflow.paused.get() && !self.connection.outflow.rests.get();
        let (waits, length) = self.connection.put(|wire, out| {
            if follows == Follows::Trailers {
                wire.check_end(self.id, bytes.len())?;
            }
            let waits = !(at_once && wire.body_at_once(out, self.id, bytes, last)?)
                && wire.body(out, self.id, bytes.len(), last)?;
            Ok((waits, out.len()))
        })?;
        if waits && let Some(data) = data {
            self.push(data);
        }
        // Behind the last one `finish` follows, which has it written.
        if last || self.connection.consuming.get() && length <= HIGH_WATER {
            return Ok(());
        }
        self.connection.flush(py)
    }

    fn interim(&self, py: Python<'_>, status: u16, fields: &[(&[u8], &[u8])]) -> PyResult<()> {
        if fields.is_empty() {
            return Ok(());
        }
        let connection = &self.connection;
        let written = connection.core.sections.with_scratch(|scratch| {
            let State { wire, out, .. } = &mut *connection.state.borrow_mut();
            wire.interim(out, scratch, self.id, status, fields.iter().copied())
        });
        match written {
            // The head has left.
            Ok(()) | Err(AppError::State) => connection.flush_unless_consuming(py),
            Err(error) => Err(exception(error)),
        }
    }

    fn end_body(&self, py: Python<'_>) -> PyResult<()> {
        self.connection.put(|wire, _| wire.check_end(self.id, 0))?;
        self.connection.flush_unless_consuming(py)
    }

    fn trailers(&self, _py: Python<'_>, trailers: Option<&Trailers>) -> PyResult<()> {
        let connection = &self.connection;
        let written = connection.core.sections.with_scratch(|scratch| {
            let State { wire, out, .. } = &mut *connection.state.borrow_mut();
            match trailers {
                Some(trailers) => wire.trailers(out, scratch, self.id, trailers),
                None => wire.body(out, self.id, 0, true).map(drop),
            }
        });
        written.map_err(exception)
    }

    fn finish(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.leave_body_deadline();
        let connection = &self.connection;
        if !connection.state.borrow().wire.is_live(self.id) {
            connection.due.ended.borrow_mut().push(self.id);
        }
        connection.settle_unless_consuming(py)
    }

    fn begin_file(&self, length: u64, is_last: bool) -> PyResult<bool> {
        let wanted = self.connection.put(|wire, _| {
            let length = usize::try_from(length).map_err(|_| AppError::TooLong)?;
            if is_last {
                wire.check_end(self.id, length)?;
            }
            Ok(length > 0 && wire.takes_body(self.id))
        })?;
        Ok(wanted)
    }

    fn file(&self, py: Python<'_>, data: &Bound<'_, PyBytes>) -> PyResult<()> {
        self.body(py, Some(data), Follows::Body)
    }

    fn end_file(&self, py: Python<'_>, _wanted: bool, more: bool) -> PyResult<()> {
        if more { self.connection.flush_unless_consuming(py) } else { Ok(()) }
    }

    #[inline]
    fn capacity(&self) -> &WriteCapacity {
        &self.capacity
    }

    fn answer(
        &self,
        py: Python<'_>,
        status: u16,
        text: &str,
        own: Option<&OwnField<'_>>,
        lines: bool,
    ) -> PyResult<(Head, usize)> {
        self.put_answer(py, status, text, own, lines)
    }

    fn end(&self, py: Python<'_>) -> PyResult<()> {
        self.leave_body_deadline();
        self.connection.flush_unless_consuming(py)
    }

    fn abort(&self, py: Python<'_>, _in_body: bool) -> PyResult<()> {
        self.connection.reset(py, self.id, ErrorCode::Internal)
    }

    fn note_end(&self) {
        self.connection.count_end();
    }

    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.connection.abandon(py)
    }
}
