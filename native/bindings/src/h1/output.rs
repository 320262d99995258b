//! The way out: one write for all that is ready, and the end of the connection.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::error::AppError;
use wire::h1::connection::{Awaits, Connection as Wire};

use super::connection::Connection;
use super::states::{Closing, Ending};
use crate::base::error::exception;
use crate::base::places;
use crate::conn::carried::{Carried, Life};

impl Connection {
    /// Append to the output.
    #[inline]
    pub(super) fn put<R>(&self, append: impl FnOnce(&mut Wire, &mut Vec<u8>) -> Result<R, AppError>) -> PyResult<R> {
        let state = &mut *self.state.borrow_mut();
        self.core.hub.buffers.supply(&mut state.out);
        append(&mut state.wire, &mut state.out).map_err(exception)
    }

    /// Write the output, unless it leaves with more anyway.
    #[inline]
    pub(super) fn flush_unless_consuming(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_consuming() { Ok(()) } else { self.flush(py) }
    }

    /// Write the output in front of a head that still waits for its body.
    pub(super) fn flush(&self, py: Python<'_>) -> PyResult<()> {
        // The callback may write too, and its output comes after this.
        let logged = self.core.host.log_first(py, || !self.state.borrow().out.is_empty());
        logged.and(self.flush_out(py))
    }

    fn flush_out(&self, py: Python<'_>) -> PyResult<()> {
        let (out, rest) = {
            let mut state = self.state.borrow_mut();
            let length = state.held.unwrap_or(state.out.len());
            if length == 0 {
                if state.out.is_empty() && state.out.capacity() > 0 {
                    let out = std::mem::take(&mut state.out);
                    drop(state);
                    self.core.hub.buffers.give(out);
                }
                return Ok(());
            }
            let mut out = std::mem::take(&mut state.out);
            let rest = self.core.hub.buffers.split_off(&mut out, length);
            if state.held.is_some() {
                state.held = Some(0);
            }
            (out, rest)
        };
        if !rest.is_empty() {
            self.state.borrow_mut().out = rest;
        }
        let written = self.write(py, &out);
        self.core.hub.buffers.give(out);
        written
    }

    fn write(&self, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        self.core.rehearsal.happen_in("write");
        if self.is_closed() {
            return Ok(());
        }
        self.count_sent(data.len());
        self.on_carrier(py, |carrier| carrier.write(py, data)).map(drop)
    }

    #[inline]
    fn count_sent(&self, bytes: usize) {
        if let Some(metrics) = &self.core.metrics {
            metrics.add(places::BYTES_SENT, bytes);
        }
    }

    /// Write the waiting output followed by a large object, without copying it: only `bytes`, since other buffers could
    /// change before they are sent.
    pub(super) fn write_object(&self, py: Python<'_>, body: &Bound<'_, PyBytes>) -> PyResult<()> {
        let logged = self.core.host.log_first(py, || true);
        // A transport that cannot write any more counts the pieces, and complains of many.
        let is_over = self.is_closed() || self.is_transport_closing(py)?;
        let out = std::mem::take(&mut self.state.borrow_mut().out);
        let written = if is_over {
            Ok(None)
        } else {
            self.count_sent(out.len() + body.as_bytes().len());
            self.on_carrier(py, |carrier| carrier.write_with(py, &out, body))
        };
        self.core.hub.buffers.give(out);
        logged.and(written.map(drop))
    }

    /// The way to close behind a response.
    pub(super) fn behind_response(&self) -> Closing {
        let state = self.state.borrow();
        let discards =
            matches!(state.wire.awaits(), Awaits::Body | Awaits::Discard) || state.waits_for == Awaits::Discard;
        if discards { Closing::AmidBody } else { Closing::AfterResponse }
    }

    /// The way to close when a request may come, but none has.
    pub(super) fn between_requests(&self, py: Python<'_>) -> PyResult<Closing> {
        if self.state.borrow().wire.awaits() == Awaits::Discard {
            return Ok(Closing::AmidBody);
        }
        Ok(if self.has_unsent(py)? { Closing::AfterResponse } else { Closing::AtOnce })
    }

    /// Close once everything is written, and unless that is to be at once, the client has had time to read it.
    pub(super) fn close(&self, py: Python<'_>, closing: Closing) -> PyResult<()> {
        self.flush(py)?;
        let exchange = {
            let mut state = self.state.borrow_mut();
            state.pending = Vec::new();
            state.exchange.take()
        };
        if let Some(exchange) = exchange {
            exchange.leave(py, false)?;
            // Calls that wait to send have nothing to wait for.
            self.relieve(py)?;
        }
        let settings = &self.core.settings;
        // A server that ends does not wait for the rest of a body.
        let longest = if self.ending.get() == Ending::None { settings.linger } else { settings.last_call };
        let patience = match closing {
            Closing::AtOnce => None,
            Closing::AfterResponse => Some(settings.last_call),
            Closing::AmidBody => Some(longest),
        };
        let patience = patience.filter(|_| self.core.is_real && self.is_open() && !self.has_all());
        if let Some(patience) = patience
            && self.can_linger(py)?
        {
            self.life.set(Life::Lingering);
            // Before the transport is used: the peer may be gone unnoticed.
            let now = self.core.hub.deadlines.now();
            self.deadline.set(Some(now + patience));
            self.lingers_until.set(Some(now + longest));
            self.watch(py)?;
            self.on_carrier(py, |carrier| carrier.write_eof(py))?;
            self.note_linger(py)?;
            return self.resume_reading(py);
        }
        if self.life.replace(Life::Closed) == Life::Closed {
            return Ok(());
        }
        self.deadline.set(None);
        if self.close_carrier(py)? { self.reader.wait(py, self) } else { Ok(()) }
    }
}
