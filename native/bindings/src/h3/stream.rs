//! One stream, as the [`Stream`](crate::asgi::stream::Stream) of its exchange.
//!
//! ```text
//! application ── send ──▶ Queue ── flush, when it is its turn ──▶ QUIC
//! ```
//!
//! A stream is the client's again when this is dropped, which its exchange holds: one that was reset counts for as long as its
//! application runs.

use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::Trailers;
use wire::error::AppError;
use wire::h3::ErrorCode;
use wire::limits::table::HIGH_WATER_LIMIT as HIGH_WATER;

use super::connection::Stream;
use super::states::Reading;
use crate::asgi::access::entry::Head;
use crate::asgi::identity::OwnField;
use crate::asgi::stream::{Follows, Stream as Interface};
use crate::asgi::write_capacity::WriteCapacity;
use crate::base::error::exception;
use crate::conn::carried::Carried;
use crate::streams::deadlines::REQUEST;
use crate::streams::response::Responds;
use crate::streams::starting::Starts;
use crate::streams::tunnel::Tunnel;

/// So little of the output may wait, and its application goes on.
const LOW_WATER: usize = HIGH_WATER / 4;

impl Stream {
    /// Append a piece of the body.
    #[inline]
    pub(super) fn push(&self, piece: &Bound<'_, PyBytes>) {
        let mut queue = self.queue.borrow_mut();
        queue.push(piece);
        if queue.len() > HIGH_WATER {
            self.capacity.pause();
        }
    }

    /// Whether the application was paused, and little waits.
    pub(super) fn can_go_on(&self) -> bool {
        self.capacity.is_paused() && self.queue.borrow().len() <= LOW_WATER
    }

    /// Few bytes wait, or sending has become impossible: resume waiting writers.
    pub(super) fn relieve(&self, py: Python<'_>) -> PyResult<()> {
        self.capacity.resume(py, &self.connection.core.names)?;
        self.relieve_channel(py)
    }

    /// Sending has become impossible.
    pub(super) fn give_up(&self, py: Python<'_>) -> PyResult<()> {
        let unsent = self.queue.take();
        drop(unsent);
        self.blocked_input.take();
        self.reading.set(Reading::Over);
        self.leave_deadlines();
        if self.channel.get().is_some() { self.lose_channel(py) } else { self.relieve(py) }
    }

    /// The application is done with it: it ends when QUIC has all of the response.
    fn let_go(&self, py: Python<'_>) -> PyResult<()> {
        self.leave_body_deadline();
        let connection = &self.connection;
        if !connection.state.borrow().wire.is_live(self.id) {
            connection.due.ended.borrow_mut().push(self.id);
        }
        connection.settle_unless_consuming(py)
    }

    /// How much of the request's body waits for the application.
    fn unread(&self) -> usize {
        self.connection.exchange(self.id).map_or(0, |exchange| exchange.body_length())
    }
}

impl Interface for Stream {
    fn send_continue(&self, py: Python<'_>) -> PyResult<()> {
        self.connection
            .core
            .sections
            .with_scratch(|scratch| self.put(|wire, out| Ok(wire.send_continue(out, scratch, self.id))))?;
        self.restart_deadline(py)?;
        self.connection.flush_unless_consuming(py)
    }

    fn want_body(&self, py: Python<'_>) -> PyResult<()> {
        if !self.consume(self.unread()) {
            return Ok(());
        }
        if self.deadlines.of(REQUEST).get().is_none() {
            self.restart_deadline(py)?;
        }
        if self.reading.get() != Reading::Paused {
            return Ok(());
        }
        self.connection.due.to_read.borrow_mut().push(self.id);
        self.connection.serve_soon(py)
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
        let length = data.map_or(0, |data| data.as_bytes().len());
        let last = follows == Follows::Nothing;
        let has_body = self.put(|wire, out| {
            if follows == Follows::Trailers {
                wire.check_end(self.id, length)?;
            }
            wire.body(out, self.id, length, last)
        })?;
        if has_body && let Some(data) = data {
            self.push(data);
        }
        // Behind the last one `finish` follows, which has it written.
        if last || self.connection.consuming.get() && self.queue.borrow().len() <= HIGH_WATER {
            return Ok(());
        }
        self.connection.flush(py)
    }

    fn interim(&self, py: Python<'_>, status: u16, fields: &[(&[u8], &[u8])]) -> PyResult<()> {
        if fields.is_empty() {
            return Ok(());
        }
        let written = self.connection.core.sections.with_scratch(|scratch| {
            self.put(|wire, out| match wire.interim(out, scratch, self.id, status, fields.iter().copied()) {
                // The head has left.
                Ok(()) | Err(AppError::State) => Ok(()),
                Err(error) => Err(error),
            })
        });
        written.and_then(|()| self.connection.flush_unless_consuming(py))
    }

    fn end_body(&self, py: Python<'_>) -> PyResult<()> {
        self.connection.state.borrow().wire.check_end(self.id, 0).map_err(exception)?;
        self.connection.flush_unless_consuming(py)
    }

    fn trailers(&self, _py: Python<'_>, trailers: Option<&Trailers>) -> PyResult<()> {
        self.connection.core.sections.with_scratch(|scratch| {
            self.put(|wire, out| match trailers {
                Some(trailers) => wire.trailers(out, scratch, self.id, trailers),
                None => wire.body(out, self.id, 0, true).map(drop),
            })
        })
    }

    fn finish(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.let_go(py)
    }

    fn begin_file(&self, length: u64, is_last: bool) -> PyResult<bool> {
        self.put(|wire, _| {
            let length = usize::try_from(length).map_err(|_| AppError::TooLong)?;
            if is_last {
                wire.check_end(self.id, length)?;
            }
            Ok(length > 0 && wire.takes_body(self.id))
        })
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
        let connection = &self.connection;
        if !connection.state.borrow().wire.has_ended(self.id) {
            return connection.reset(py, self.id, ErrorCode::Internal);
        }
        // Without content it is complete for the client, whatever becomes of the application.
        let exchange = connection.disown(self.id);
        connection.core.runner.part(py, exchange)?;
        self.let_go(py)
    }

    fn note_end(&self) {
        self.connection.count_end();
    }

    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.connection.abandon(py)
    }
}
