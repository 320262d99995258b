//! The calls of an exchange: a head that waits for its body, pieces of the body, the end, and its consequences.

use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::error::AppError;
use wire::h1::connection::Awaits;
use wire::h1::response::{CONTINUE, Framing};

use super::connection::{Connection, HIGH_WATER, State};
use super::states::Closing;
use crate::asgi::exchange::State as ExchangeState;
use crate::asgi::identity::{OwnField, each_field_beside};
use crate::asgi::stream::Follows;
use crate::base::error::exception;

impl Connection {
    /// Encode the head behind the output, with `own` if no field has that name; `false` if a look at the headers would run
    /// code of the application, which may send something itself: nothing was encoded then.
    #[inline]
    pub(super) fn encode_head(
        &self,
        status: u16,
        headers: Option<&Bound<'_, PyAny>>,
        own: Option<&OwnField<'_>>,
    ) -> PyResult<bool> {
        let State { wire, out, held, .. } = &mut *self.state.borrow_mut();
        self.core.hub.buffers.supply(out);
        let begin = out.len();
        let encode = |lines: &[u8]| -> Result<bool, AppError> {
            let mut writer = wire.start_response(out, status, lines)?;
            let mut own = own;
            let plain = each_field_beside(&mut own, headers, |name, value| writer.field(out, name, value))?;
            if plain {
                if let Some(own) = own {
                    own.put(out);
                }
                wire.finish_head(writer, out, None)?;
            }
            Ok(plain)
        };
        let encoded = self.core.default_head.with(encode);
        match encoded {
            Ok(true) => *held = Some(begin),
            _ => out.truncate(begin),
        }
        encoded.map_err(exception)
    }

    /// Write a piece of the body, behind the head if that still waits.
    pub(super) fn send_body(
        &self,
        py: Python<'_>,
        body: Option<&Bound<'_, PyBytes>>,
        follows: Follows,
    ) -> PyResult<()> {
        if follows == Follows::Nothing {
            let State { wire, out, held, .. } = &mut *self.state.borrow_mut();
            if held.is_some() {
                wire.announce_certain_close(out, &self.core.settings.limits);
            }
        }
        // Without a body as with an empty one: the head is sent, and held to its length.
        let large = self.append_body(body.map_or(&[], |body| body.as_bytes()), follows)?;
        if large && let Some(body) = body {
            self.write_object(py, body)?;
            self.put(|wire, out| wire.body().map(|body| body.end_part(out)))?;
        }
        if follows == Follows::Nothing {
            self.put(|wire, out| wire.finish(out, &self.core.settings.limits))?;
        }
        if self.consuming.get() && self.state.borrow().out.len() <= HIGH_WATER { Ok(()) } else { self.flush(py) }
    }

    /// Append `data` to the output; `true` if it is large and only its framing was appended. A wrong length leaves
    /// everything as it was, so that a head that still waits is never sent.
    #[inline]
    fn append_body(&self, data: &[u8], follows: Follows) -> PyResult<bool> {
        let state = &mut *self.state.borrow_mut();
        self.core.hub.buffers.supply(&mut state.out);
        let State { wire, out, held, .. } = state;
        let body = wire.body().map_err(exception)?;
        if follows != Follows::Body {
            body.check_end(data.len() as u64).map_err(exception)?;
        }
        let large = data.len() > HIGH_WATER;
        let begun = if large { body.begin_part(out, data.len()) } else { body.write(out, data).map(|()| false) };
        let begun = begun.map_err(exception)?;
        *held = None;
        Ok(begun)
    }

    /// Write `100 Continue`: the application asks for the body. Once per request that expects it, and also when the body
    /// is there already.
    pub(super) fn send_continue(&self, py: Python<'_>) -> PyResult<()> {
        self.put(|wire, out| {
            if !wire.send_continue(out) {
                out.extend_from_slice(CONTINUE);
            }
            Ok(())
        })?;
        self.restart_body_deadline(py)?;
        self.flush_unless_consuming(py)
    }

    /// The response is complete: go on with the next request, or close.
    pub(super) fn finish(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.state.borrow_mut().held = None;
        if self.consuming.get() {
            return Ok(());
        }
        self.flush(py)?;
        self.after_exchange(py, true)
    }

    /// Act on the state of the connection after something was completed or consumed.
    pub(super) fn after_exchange(self: &Rc<Self>, py: Python<'_>, consumed_all: bool) -> PyResult<()> {
        if !self.is_open() {
            return Ok(());
        }
        let over = {
            let mut state = self.state.borrow_mut();
            let next = state.wire.awaits() != Awaits::Nothing || state.wire.is_closed();
            state.exchange.take_if(|exchange| next && exchange.state() == ExchangeState::Complete)
        };
        self.core.runner.retire(py, over);
        let (awaits, is_last) = {
            let wire = &self.state.borrow().wire;
            let awaits = wire.awaits();
            (awaits, wire.is_closed() || awaits == Awaits::Discard && wire.is_closing())
        };
        if is_last {
            return self.close(py, self.behind_response());
        }
        if matches!(awaits, Awaits::Idle | Awaits::Head | Awaits::Discard) && self.state.borrow().exchange.is_none() {
            if !self.consuming.get() {
                let buffer = std::mem::take(&mut self.state.borrow_mut().pending);
                if !buffer.is_empty() && consumed_all && !self.resume_scheduled.get() {
                    return self.consume_buffer(py, buffer, false);
                }
                if !buffer.is_empty() {
                    self.state.borrow_mut().pending = buffer;
                }
                if consumed_all && self.is_read_paused() {
                    self.regulate(py)?;
                }
            }
            if self.has_all() && consumed_all && !self.resume_scheduled.get() {
                return self.close(py, Closing::AtOnce);
            }
        }
        self.update_deadline(py)
    }

    /// End a response that cannot be completed, so that the client notices.
    pub(super) fn abort_response(&self, py: Python<'_>, in_body: bool) -> PyResult<()> {
        let looks_complete = {
            let mut state = self.state.borrow_mut();
            let begun = state.held.is_none();
            if let Some(held) = state.held.take() {
                state.out.truncate(held);
            }
            begun && in_body && state.wire.body().is_ok_and(|body| body.framing() == Framing::CloseDelimited)
        };
        if looks_complete && let Some(carrier) = self.sides.carrier() {
            // Closing would look like the regular end of the body (RFC 9112 section 8): reset instead.
            carrier.reset_on_close(py)?;
            return self.close(py, Closing::AtOnce);
        }
        // Responses in front of it are to arrive.
        self.close(py, self.behind_response())
    }
}
