//! The deadlines of a connection, and what follows when they have passed.

use std::rc::Rc;
use std::time::Duration;

use pyo3::prelude::*;
use wire::error::Refusal;
use wire::h1::connection::Awaits;
use wire::texts;

use super::connection::Connection;
use super::states::{Closing, Ending};
use crate::asgi::refused::Refused;
use crate::conn::carried::{Carried, Life};
use crate::conn::deadline::{Deadline, Patient};
use crate::conn::grace::Pending;

/// The parts of a connection that have deadlines: the client's input, and the client's reading of the output.
const INPUT: u32 = 0;
const READER: u32 = 1;

impl Patient for Connection {
    #[inline]
    fn deadline(&self, part: u32) -> &Deadline {
        if part == READER { &self.reader.deadline } else { &self.deadline }
    }

    #[cold]
    fn look(&self, py: Python<'_>) -> PyResult<Pending> {
        self.look_for_peer(py)
    }

    fn expire(self: Rc<Self>, py: Python<'_>, part: u32) -> PyResult<()> {
        let expired = self.guard(py, "expire", |connection| match part {
            READER => connection.reader_is_due(py),
            _ => connection.input_is_due(py),
        });
        expired.or_else(|error| self.abort(py).and(Err(error)))
    }
}

impl Connection {
    /// Set the deadline of the connection's present wait, if that has changed.
    pub(super) fn update_deadline(&self, py: Python<'_>) -> PyResult<()> {
        self.update_deadline_in_place();
        self.watch(py)
    }

    pub(super) fn update_deadline_in_place(&self) {
        let settings = &self.core.settings;
        let state = &mut *self.state.borrow_mut();
        let awaits = state.wire.awaits();
        if awaits == state.waits_for {
            return;
        }
        let after = match awaits {
            Awaits::Idle | Awaits::Head | Awaits::Discard if self.ending.get() == Ending::LastCall => {
                Some(settings.last_call)
            }
            Awaits::Idle if self.first.get() => settings.timeout_request_head,
            Awaits::Idle => Some(settings.timeout_keep_alive),
            Awaits::Head if self.first.get() && self.deadline.get().is_some() => {
                // The first request's deadline has run since the connection was made.
                state.waits_for = awaits;
                return;
            }
            Awaits::Head => settings.timeout_request_head,
            // A body is not late if the server does not read it, has not asked for it, or if it cannot come.
            Awaits::Body if self.is_read_paused() || self.has_all() || state.wire.awaits_continue() => None,
            Awaits::Body | Awaits::Discard => settings.timeout_request_body,
            Awaits::Nothing => None,
        };
        state.waits_for = awaits;
        self.deadline.set(after.map(|after| self.core.hub.deadlines.now() + after));
    }

    /// The server shuts down, and the client does not know yet: the time left for one more request starts now, or with
    /// the last response. `false`: none is left, or none can come.
    pub(super) fn wait_for_last_call(&self, py: Python<'_>) -> PyResult<bool> {
        if self.has_all() || !self.is_open() {
            return Ok(false);
        }
        if !self.sets_last_call() {
            if self.look_for_peer(py)? == Pending::Nothing {
                return Ok(false);
            }
            // A request that came meanwhile was not read yet.
            self.deadline.set(Some(self.core.hub.deadlines.now() + self.core.settings.last_call));
        }
        self.watch(py)?;
        Ok(true)
    }

    /// Set the deadline for one more request, or leave it if that is there; `false` if its time is over.
    fn sets_last_call(&self) -> bool {
        let settings = &self.core.settings;
        let state = self.state.borrow();
        if self.resume_scheduled.get() && !state.pending.is_empty() {
            return true;
        }
        let now = self.core.hub.deadlines.now();
        let until = match state.wire.awaits() {
            Awaits::Idle => {
                let usual =
                    if self.first.get() { settings.timeout_request_head } else { Some(settings.timeout_keep_alive) };
                // Without a deadline it is unknown since when the client is idle.
                let since = self.deadline.get().zip(usual).and_then(|(until, usual)| until.checked_sub(usual));
                since.map(|since| since + settings.last_call)
            }
            _ => Some(now + settings.last_call),
        };
        let until = until.filter(|until| *until > now);
        if until.is_some() {
            self.deadline.set(until);
        }
        until.is_some()
    }

    /// Bytes of a body have come: they give back some of the time that has passed.
    pub(super) fn extend_deadline(&self, bytes: usize) {
        let settings = &self.core.settings;
        if let Some(until) = self.deadline.get()
            && let Some(whole) = settings.timeout_request_body
            && self.state.borrow().waits_for == Awaits::Body
        {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            let later = until + Duration::from_secs(1) * bytes / settings.body_bytes_per_second;
            self.deadline.set(Some(later.min(self.core.hub.deadlines.now() + whole)));
        }
    }

    /// The client may send again, and has its whole time for it.
    pub(super) fn restart_body_deadline(&self, py: Python<'_>) -> PyResult<()> {
        {
            let mut state = self.state.borrow_mut();
            if state.waits_for == Awaits::Body {
                state.waits_for = Awaits::Nothing;
            }
        }
        self.update_deadline(py)
    }

    /// Have the timer fire in time for the deadline of the client's input.
    #[inline]
    pub(super) fn watch(&self, py: Python<'_>) -> PyResult<()> {
        self.core.hub.deadlines.watch(py, &self.deadline)
    }

    /// The time of the client to take something is over.
    #[cold]
    fn reader_is_due(&self, py: Python<'_>) -> PyResult<()> {
        if !self.reader.is_late(py, self, self.life.get())? {
            return Ok(());
        }
        self.note(py, &self.core.debug, texts::READER_LATE)?;
        self.abort_with_reset(py)
    }

    /// Input came that is thrown away: its client, which may be sending more, has its time again.
    pub(super) fn linger_on(&self) {
        let again = self.core.hub.deadlines.now() + self.core.settings.last_call;
        let Some(until) = self.lingers_until.get().map(|until| until.min(again)) else { return };
        if self.life.get() == Life::Lingering && self.deadline.get().is_some_and(|present| present < until) {
            self.deadline.set(Some(until));
        }
    }

    /// The client has not ended its side of a connection whose last response is sent.
    #[cold]
    fn linger_is_due(&self, py: Python<'_>) -> PyResult<()> {
        if !self.reader.still_reads(py, self, self.ending.get() != Ending::None)? {
            return self.abort(py);
        }
        self.note_linger(py)?;
        self.deadline.set(Some(self.core.hub.deadlines.now() + self.core.settings.last_call));
        self.watch(py)
    }

    /// Have the deadlines count.
    pub(super) fn enter_deadlines(self: &Rc<Self>) {
        let deadlines = &self.core.hub.deadlines;
        self.places.set(Some([INPUT, READER].map(|part| deadlines.insert(self.clone(), part))));
    }

    /// Drop all deadlines.
    pub(super) fn leave_deadlines(&self) {
        for place in self.places.take().into_iter().flatten() {
            self.core.hub.deadlines.remove(place);
        }
    }

    /// The client has not sent the awaited input.
    #[cold]
    fn input_is_due(&self, py: Python<'_>) -> PyResult<()> {
        match self.life.get() {
            Life::Open => {}
            Life::Lingering => return self.linger_is_due(py),
            Life::Closed => return Ok(()),
        }
        let settings = &self.core.settings;
        let waited_for = self.state.borrow().waits_for;
        match waited_for {
            Awaits::Idle if self.first.get() => self.close(py, Closing::AtOnce),
            Awaits::Idle if self.ending.get() == Ending::LastCall => self.close(py, self.between_requests(py)?),
            Awaits::Head if self.ending.get() == Ending::LastCall => self.close(py, Closing::AfterResponse),
            Awaits::Head => self.refuse(py, &Refused::late(Refusal::HeadTimeout, settings.timeout_request_head)),
            Awaits::Body => self.refuse(py, &Refused::late(Refusal::BodyTimeout, settings.timeout_request_body)),
            Awaits::Discard => self.close(py, Closing::AmidBody),
            Awaits::Idle | Awaits::Nothing => self.close(py, Closing::AfterResponse),
        }
    }
}
