//! The deadlines of a connection and its streams, and what follows when they have passed.

use std::rc::Rc;
use std::time::Duration;

use pyo3::prelude::*;
use wire::error::Refusal;
use wire::h2::{ErrorCode, Failure};
use wire::texts;

use super::connection::{Connection, State, Stream};
use super::states::{Awaits, Ending, Presence};
use crate::asgi::refused::Refused;
use crate::conn::carried::{Carried, Life};
use crate::conn::deadline::{Deadline, Patient};
use crate::conn::grace::Pending;
use crate::streams::deadlines::{REQUEST, WINDOW};

/// The parts of a connection that have deadlines: what the client has to send, what it has to take, whether it is there.
const INPUT: u32 = 0;
const READER: u32 = 1;
const PING: u32 = 2;

/// The payload of a keep-alive PING.
const ALIVE: [u8; 8] = *b"is there";
/// The payload of the PING that follows a first `GOAWAY`.
pub(super) const LAST: [u8; 8] = *b"the last";

impl Patient for Connection {
    #[inline]
    fn deadline(&self, part: u32) -> &Deadline {
        match part {
            READER => &self.waits.reader.deadline,
            PING => &self.waits.ping,
            _ => &self.waits.input,
        }
    }

    #[cold]
    fn look(&self, py: Python<'_>) -> PyResult<Pending> {
        self.look_for_peer(py)
    }

    fn expire(self: Rc<Self>, py: Python<'_>, part: u32) -> PyResult<()> {
        let expired = self.guard(py, "expire", |connection| match part {
            READER => connection.reader_is_due(py),
            PING => connection.ping_is_due(py),
            _ => connection.input_is_due(py),
        });
        expired.or_else(|error| self.abort(py).and(Err(error)))
    }
}

impl Connection {
    /// Have the deadlines count.
    pub(super) fn enter_deadlines(self: &Rc<Self>) {
        let deadlines = &self.core.hub.deadlines;
        self.waits.places.set(Some([INPUT, READER, PING].map(|part| deadlines.insert(self.clone(), part))));
    }

    /// Drop all deadlines.
    pub(super) fn leave_deadlines(&self) {
        for place in self.waits.places.take().into_iter().flatten() {
            self.core.hub.deadlines.remove(place);
        }
    }

    /// Have the timer fire in time for the deadline of the client's input.
    #[inline]
    pub(super) fn watch(&self, py: Python<'_>) -> PyResult<()> {
        self.core.hub.deadlines.watch(py, &self.waits.input)
    }

    /// The input that the connection waits for now.
    fn awaited(&self) -> Awaits {
        let state = self.state.borrow();
        if self.waits.first.get() || state.wire.is_opening() {
            Awaits::Beginning
        } else if state.wire.is_in_section() {
            Awaits::Section
        } else if !state.pending.is_empty() {
            Awaits::Frame
        } else if state.wire.is_idle() {
            Awaits::Idle
        } else {
            Awaits::Nothing
        }
    }

    /// Set the deadline of the connection's present wait, if that has changed.
    pub(super) fn update_deadline(&self, py: Python<'_>) -> PyResult<()> {
        let awaits = self.awaited();
        let progressed = self.waits.progressed.replace(false);
        let is_same = match awaits {
            Awaits::Frame if progressed => false,
            // Its deadline may belong to the wait before a request came.
            Awaits::Nothing => false,
            _ => awaits == self.waits.awaits.get(),
        };
        self.waits.awaits.set(awaits);
        if is_same || self.ending.get() == Ending::LastCall {
            return Ok(());
        }
        if awaits == Awaits::Idle {
            self.shrink();
        }
        let settings = &self.core.settings;
        let after = match awaits {
            Awaits::Beginning | Awaits::Section | Awaits::Frame => settings.timeout_request_head,
            Awaits::Idle => Some(settings.timeout_keep_alive),
            Awaits::Nothing => None,
        };
        self.waits.input.set(after.map(|after| self.core.hub.deadlines.now() + after));
        self.watch(py)
    }

    /// The server shuts down: give requests that are already on their way a moment to arrive.
    pub(super) fn wait_for_last_call(&self, py: Python<'_>) -> PyResult<()> {
        self.waits.input.set(Some(self.core.hub.deadlines.now() + self.core.settings.last_call));
        self.watch(py)
    }

    /// The client has not sent the awaited input.
    #[cold]
    fn input_is_due(&self, py: Python<'_>) -> PyResult<()> {
        match self.life.get() {
            Life::Open => {}
            Life::Lingering => return self.linger_is_due(py),
            Life::Closed => return Ok(()),
        }
        if self.ending.get() == Ending::LastCall {
            return self.end_requests(py);
        }
        match self.waits.awaits.get() {
            Awaits::Section | Awaits::Frame => {
                let failure = Failure { code: ErrorCode::EnhanceYourCalm, reason: "a frame that does not end" };
                {
                    let State { wire, out, .. } = &mut *self.state.borrow_mut();
                    self.core.hub.buffers.supply(out);
                    wire.fail(out, failure);
                }
                self.fail(py, failure)
            }
            Awaits::Beginning => self.close(py, false),
            Awaits::Idle | Awaits::Nothing => self.close(py, true),
        }
    }

    /// The client has not ended its side of a connection whose last output is sent.
    #[cold]
    fn linger_is_due(&self, py: Python<'_>) -> PyResult<()> {
        if !self.waits.reader.still_reads(py, self, self.stops.get())? {
            return self.abort(py);
        }
        self.note_linger(py)?;
        self.wait_for_last_call(py)
    }

    // For the client to read the output.

    /// The client's deadline to read the output has passed.
    #[cold]
    fn reader_is_due(&self, py: Python<'_>) -> PyResult<()> {
        if !self.waits.reader.is_late(py, self, self.life.get())? {
            return Ok(());
        }
        self.note(py, &self.core.debug, texts::READER_LATE)?;
        self.abort_with_reset(py)
    }

    /// Give clients that let nothing more through time to open the windows of their streams.
    #[inline]
    pub(super) fn watch_windows(&self, py: Python<'_>) -> PyResult<()> {
        if self.outflow.unsent_streams.get() == 0 { Ok(()) } else { self.watch_each_window(py) }
    }

    fn watch_each_window(&self, py: Python<'_>) -> PyResult<()> {
        // A client that has ended its output opens no window any more.
        let is_last = self.has_all.get();
        let patience = if is_last { Some(Duration::ZERO) } else { self.core.settings.timeout_write };
        let Some(patience) = patience.filter(|_| self.is_open()) else { return Ok(()) };
        let blocked: Vec<_> = {
            let state = self.state.borrow();
            let unsent = state.streams.iter().filter(|stream| stream.has_more());
            unsent.map(|stream| (stream.clone(), state.wire.is_blocked(stream.id))).collect()
        };
        for (stream, is_blocked) in blocked {
            if !is_blocked {
                stream.deadlines.of(WINDOW).set(None);
            } else if is_last || stream.deadlines.of(WINDOW).get().is_none() {
                stream.sent_before.set(stream.sent.get());
                stream.await_until(py, WINDOW, Some(patience))?;
            }
        }
        Ok(())
    }

    // Whether it is there.

    /// Ask the client in time.
    pub(super) fn restart_ping(&self, py: Python<'_>, after: Option<Duration>) -> PyResult<()> {
        let deadlines = &self.core.hub.deadlines;
        self.waits.ping.set(after.map(|after| deadlines.now() + after));
        deadlines.watch(py, &self.waits.ping)
    }

    /// Ping the client if it was silent for the whole interval.
    #[cold]
    fn ping_is_due(&self, py: Python<'_>) -> PyResult<()> {
        if !self.is_open() {
            return Ok(());
        }
        let presence = self.waits.presence.replace(Presence::Quiet);
        // A client that does not read would not get the PING.
        if presence == Presence::Heard || self.outflow.paused.get() {
            return self.restart_ping(py, self.core.ping_interval);
        }
        if presence == Presence::Asked {
            self.note(py, &self.core.debug, texts::PING_UNANSWERED)?;
            return self.abort(py);
        }
        self.waits.presence.set(Presence::Asked);
        self.put(|wire, out| {
            wire.ping(out, ALIVE);
            Ok(())
        })?;
        self.flush(py)?;
        self.restart_ping(py, Some(self.core.ping_timeout))
    }
}

impl Patient for Stream {
    #[inline]
    fn deadline(&self, part: u32) -> &Deadline {
        self.deadlines.of(part)
    }

    #[cold]
    fn look(&self, py: Python<'_>) -> PyResult<Pending> {
        self.connection.look_for_peer(py)
    }

    fn expire(self: Rc<Self>, py: Python<'_>, part: u32) -> PyResult<()> {
        let connection = &self.connection;
        let expired = connection.guard(py, "expire", |_| match part {
            WINDOW => self.window_is_due(py),
            _ => self.body_is_due(py),
        });
        expired.or_else(|error| connection.abort(py).and(Err(error)))
    }
}

impl Stream {
    /// Set a deadline, and have it count.
    fn await_until(&self, py: Python<'_>, part: u32, patience: Option<Duration>) -> PyResult<()> {
        let all = &self.connection.core.hub.deadlines;
        self.deadlines.set(py, all, part, patience, || self.connection.stream(self.id))
    }

    fn leave(&self, part: u32) {
        self.deadlines.leave(&self.connection.core.hub.deadlines, part);
    }

    /// Drop all deadlines.
    #[inline]
    pub(super) fn leave_deadlines(&self) {
        self.leave(REQUEST);
        self.leave(WINDOW);
    }

    /// Nothing more of the request's body is waited for.
    #[inline]
    pub(super) fn leave_body_deadline(&self) {
        self.leave(REQUEST);
    }

    /// The client may send, and has its whole time for it.
    pub(super) fn restart_deadline(&self, py: Python<'_>) -> PyResult<()> {
        self.await_until(py, REQUEST, self.connection.core.settings.timeout_request_body)
    }

    /// Bytes of a body have come and extend its deadline. Unread bodies are never late.
    pub(super) fn extend_deadline(&self, bytes: usize, unread: usize) {
        let core = &self.connection.core;
        self.deadlines.extend(&core.hub.deadlines, &core.settings, bytes, unread);
    }

    #[cold]
    fn body_is_due(&self, py: Python<'_>) -> PyResult<()> {
        let late = Refused::late(Refusal::BodyTimeout, self.connection.core.settings.timeout_request_body);
        self.connection.refuse(py, self.id, &late)?;
        self.connection.flush(py)?;
        self.connection.after(py)
    }

    /// The client had time to let more of the response through.
    #[cold]
    fn window_is_due(&self, py: Python<'_>) -> PyResult<()> {
        let connection = &self.connection;
        if !self.has_more() || !connection.state.borrow().wire.is_blocked(self.id) {
            return Ok(());
        }
        let taken = self.sent.get().wrapping_sub(self.sent_before.get());
        let patience = connection.core.settings.timeout_write.unwrap_or_default();
        if !connection.has_all.get() && connection.core.settings.is_enough(taken, patience) {
            self.sent_before.set(self.sent.get());
            return self.await_until(py, WINDOW, connection.core.settings.timeout_write);
        }
        connection.note(py, &connection.core.debug, texts::WINDOW_CLOSED)?;
        connection.reset(py, self.id, ErrorCode::Cancel)
    }
}
