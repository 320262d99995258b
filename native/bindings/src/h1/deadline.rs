//! How long a connection waits for what, and what happens when it has waited long enough.

use std::rc::Rc;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use wire::error::Refusal;
use wire::h1::connection::Deadline;
use wire::texts;

use super::connection::{Connection, Ending, Reader};
use super::refusal::Refused;
use crate::conn::deadline::Patient;

impl Patient for Connection {
    /// When it is late, for whatever reason.
    #[inline]
    fn deadline(&self) -> Option<Instant> {
        let deadline = self.state.borrow().deadline;
        match self.reader.get() {
            None => deadline,
            Some(Reader { until, .. }) => Some(deadline.map_or(until, |deadline| deadline.min(until))),
        }
    }

    fn expire(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        let expired = self.guard(py, "expire", |connection| connection.expire_now(py));
        expired.or_else(|error| self.abort(py).and(Err(error)))
    }
}

impl Connection {
    /// Set the deadline of what the connection waits for now, if that has changed.
    pub(super) fn update_deadline(&self, py: Python<'_>) -> PyResult<()> {
        self.update_deadline_in_place();
        self.watch(py)
    }

    pub(super) fn update_deadline_in_place(&self) {
        let settings = &self.core.settings;
        let state = &mut *self.state.borrow_mut();
        let hint = state.wire.deadline_hint();
        if hint == state.waits_for {
            return;
        }
        let after = match hint {
            Deadline::Idle | Deadline::Head | Deadline::Discard if self.ending.get() == Ending::LastCall => {
                Some(settings.last_call)
            }
            Deadline::Idle if self.first.get() => settings.timeout_request_head,
            Deadline::Idle => Some(settings.timeout_keep_alive),
            Deadline::Head if self.first.get() && state.deadline.is_some() => {
                // The first request's deadline has run since the connection was made.
                state.waits_for = hint;
                return;
            }
            Deadline::Head => settings.timeout_request_head,
            // Nobody is late with a body that is not read, that he was not told to send, or that cannot come.
            Deadline::Body if self.read_paused.get() || self.eof.get() || state.wire.awaits_continue() => None,
            Deadline::Body | Deadline::Discard => settings.timeout_request_body,
            Deadline::None => None,
        };
        state.waits_for = hint;
        state.deadline = after.map(|after| self.core.hub.deadlines.now() + after);
    }

    /// The server ends, and the client was told nothing yet: the time that is left for one more request starts now, or has
    /// since nothing was asked. `false`: none is left, or none can come.
    pub(super) fn wait_for_last_call(&self, py: Python<'_>) -> PyResult<bool> {
        if self.eof.get() || self.lingering.get() || self.closed.get() {
            return Ok(false);
        }
        {
            let settings = &self.core.settings;
            let state = &mut *self.state.borrow_mut();
            if self.resume_scheduled.get() && !state.pending.is_empty() {
                // It is there.
                return Ok(true);
            }
            let now = self.core.hub.deadlines.now();
            let until = match state.wire.deadline_hint() {
                Deadline::Idle => {
                    let usual = if self.first.get() {
                        settings.timeout_request_head
                    } else {
                        Some(settings.timeout_keep_alive)
                    };
                    // Without a deadline nobody knows since when the client has nothing to ask.
                    let since = state.deadline.zip(usual).and_then(|(deadline, usual)| deadline.checked_sub(usual));
                    since.map(|since| since + settings.last_call)
                }
                _ => Some(now + settings.last_call),
            };
            match until {
                Some(until) if until > now => state.deadline = Some(until),
                _ => return Ok(false),
            }
        }
        self.watch(py)?;
        Ok(true)
    }

    /// Bytes of a body have come: they give back some of the time that has passed.
    pub(super) fn extend_deadline(&self, bytes: usize) {
        let state = &mut *self.state.borrow_mut();
        let settings = &self.core.settings;
        if let Some(deadline) = &mut state.deadline
            && let Some(whole) = settings.timeout_request_body
            && state.waits_for == Deadline::Body
        {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            let later = *deadline + Duration::from_secs(1) * bytes / settings.body_bytes_per_second;
            *deadline = later.min(self.core.hub.deadlines.now() + whole);
        }
    }

    /// The client may send again, and has its whole time for it.
    pub(super) fn restart_body_deadline(&self, py: Python<'_>) -> PyResult<()> {
        {
            let mut state = self.state.borrow_mut();
            if state.waits_for == Deadline::Body {
                state.waits_for = Deadline::None;
            }
        }
        self.update_deadline(py)
    }

    /// See to it that the timer fires in time for the deadline.
    #[inline]
    pub(super) fn watch(&self, py: Python<'_>) -> PyResult<()> {
        match self.deadline() {
            Some(deadline) if !self.core.hub.deadlines.covers(deadline) => self.core.hub.deadlines.arm(py, deadline),
            _ => Ok(()),
        }
    }

    /// Give the client time to take some of what waits for it.
    #[cold]
    pub(crate) fn await_reader(&self, py: Python<'_>) -> PyResult<()> {
        let Some(patience) = self.core.settings.timeout_write.filter(|_| self.core.is_real) else { return Ok(()) };
        let Some(unsent) = self.on_carrier(py, |carrier, _| carrier.unsent(py))? else { return Ok(()) };
        self.reader.set(Some(Reader { until: self.core.hub.deadlines.now() + patience, unsent }));
        self.watch(py)
    }

    /// The client has taken enough of it.
    pub(crate) fn stop_awaiting_reader(&self) {
        self.reader.set(None);
    }

    /// The time of the client is over. Nothing was added meanwhile to what waits for it, so it has read the difference.
    #[cold]
    fn reader_is_due(&self, py: Python<'_>, before: usize) -> PyResult<()> {
        let settings = &self.core.settings;
        let least = settings.timeout_write.unwrap_or_default().as_secs_f64() * settings.read_bytes_per_second;
        self.reader.set(None);
        let Some(unsent) = self.on_carrier(py, |carrier, _| carrier.unsent(py))? else { return Ok(()) };
        #[expect(clippy::cast_precision_loss, reason = "how many bytes a socket holds is known to the byte")]
        if before.saturating_sub(unsent) as f64 >= least {
            return self.await_reader(py);
        }
        self.note(py, &self.core.debug, texts::READER_LATE)?;
        // Else the kernel would go on waiting for it, with what it holds.
        self.on_carrier(py, |carrier, _| carrier.reset_on_close(py))?;
        self.abort(py)
    }

    /// No deadline applies any more.
    pub(super) fn leave_deadlines(&self) {
        if let Some(slot) = self.slot.take() {
            self.core.hub.deadlines.remove(slot);
        }
    }

    /// A deadline has passed.
    fn expire_now(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        let now = self.core.hub.deadlines.now();
        if let Some(reader) = self.reader.get().filter(|reader| reader.until <= now) {
            self.reader_is_due(py, reader.unsent)?;
            if self.closed.get() {
                return Ok(());
            }
        }
        let hint = {
            let mut state = self.state.borrow_mut();
            if state.deadline.is_none_or(|deadline| deadline > now) {
                return Ok(());
            }
            state.deadline = None;
            state.wire.deadline_hint()
        };
        if self.lingering.get() {
            return self.abort(py);
        }
        let settings = &self.core.settings;
        match hint {
            Deadline::Head if self.ending.get() == Ending::LastCall => self.close(py, false),
            Deadline::Head => self.refuse(py, &Refused::late(Refusal::HeadTimeout, settings.timeout_request_head)),
            Deadline::Body => self.refuse(py, &Refused::late(Refusal::BodyTimeout, settings.timeout_request_body)),
            Deadline::Discard => self.close(py, true),
            _ => self.close(py, false),
        }
    }
}
