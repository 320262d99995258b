//! The deadlines of a connection and its streams, and what follows when they have passed. QUIC itself finds out whether the
//! client is still there.

use std::rc::Rc;
use std::time::Duration;

use pyo3::prelude::*;
use wire::error::Refusal;
use wire::h3::ErrorCode;
use wire::texts;

use super::connection::{Connection, Stream};
use super::sent::Taking;
use super::states::{Awaits, Ending};
use crate::asgi::refused::Refused;
use crate::conn::carried::Carried;
use crate::conn::deadline::{Deadline, Patient};
use crate::conn::grace::Pending;
use crate::streams::deadlines::{REQUEST, WINDOW};

/// The part of a connection that has a deadline: what the client has to send.
const INPUT: u32 = 0;

/// Requests on their way have at least so long to arrive, and these round trips.
const LAST_CALL: Duration = Duration::from_millis(50);
const LAST_ROUND_TRIPS: u32 = 3;

/// Round trips within which a packet that is lost and sent again is mostly acknowledged.
const ROUND_TRIPS: u32 = 8;

/// So long may a client acknowledge enough of a connection, but too little of one response, which waits for its windows or behind
/// others. The last piece that was sent of it may take a minute, at the lowest rate.
const BEHIND_OTHERS: Duration = Duration::from_secs(300);

impl Patient for Connection {
    #[inline]
    fn deadline(&self, _part: u32) -> &Deadline {
        &self.waits.input
    }

    #[cold]
    fn look(&self, py: Python<'_>) -> PyResult<Pending> {
        self.look_for_peer(py)
    }

    fn expire(self: Rc<Self>, py: Python<'_>, _part: u32) -> PyResult<()> {
        let expired = self.guard(py, "expire", |connection| connection.input_is_due(py));
        expired.or_else(|error| self.abort(py).and(Err(error)))
    }
}

impl Connection {
    /// Have the deadlines count.
    pub(super) fn enter_deadlines(self: &Rc<Self>) {
        self.waits.place.set(Some(self.core.hub.deadlines.insert(self.clone(), INPUT)));
    }

    /// Drop all deadlines.
    pub(super) fn leave_deadlines(&self) {
        if let Some(place) = self.waits.place.take() {
            self.core.hub.deadlines.remove(place);
        }
    }

    /// The input that the connection waits for now.
    fn awaited(&self) -> Awaits {
        if self.state.borrow().wire.is_over() {
            Awaits::Acknowledgements
        } else if !self.state.borrow().wire.is_idle() {
            // Each request has a deadline of its own.
            Awaits::Nothing
        } else if self.waits.first.get() {
            Awaits::Beginning
        } else {
            Awaits::Idle
        }
    }

    /// Set the deadline of the connection's present wait, if that has changed.
    pub(super) fn update_deadline(&self, py: Python<'_>) -> PyResult<()> {
        let awaits = self.awaited();
        let before = self.waits.awaits.replace(awaits);
        // The deadline before a request belongs to another wait.
        let is_same = awaits == before && awaits != Awaits::Nothing;
        if is_same || self.ending.get() == Ending::LastCall {
            return Ok(());
        }
        if awaits == Awaits::Idle {
            self.shrink();
        }
        let settings = &self.core.settings;
        self.wait(
            py,
            match awaits {
                Awaits::Beginning => settings.timeout_request_head,
                Awaits::Idle => Some(settings.timeout_keep_alive),
                Awaits::Acknowledgements => Some(self.some_time()),
                Awaits::Nothing => None,
            },
        )
    }

    /// A client that receives a response acknowledges some of it meanwhile, unless packets are lost for longer.
    fn some_time(&self) -> Duration {
        self.core.settings.last_call + self.quic.statistics().rtt * ROUND_TRIPS
    }

    /// Start to wait.
    fn wait(&self, py: Python<'_>, after: Option<Duration>) -> PyResult<()> {
        self.waits.extended.set(None);
        self.extend(py, after)
    }

    /// Wait on, for as long from now.
    fn extend(&self, py: Python<'_>, after: Option<Duration>) -> PyResult<()> {
        let deadlines = &self.core.hub.deadlines;
        self.waits.input.set(after.map(|after| deadlines.now() + after));
        deadlines.watch(py, &self.waits.input)
    }

    /// The server shuts down: give requests that are already on their way a moment to arrive, and a client that has just
    /// connected for its first one the time that it has in the other versions.
    pub(super) fn wait_for_last_call(&self, py: Python<'_>) -> PyResult<()> {
        let most = self.core.settings.last_call;
        let after = LAST_CALL + self.quic.statistics().rtt * LAST_ROUND_TRIPS;
        self.wait(py, Some(if self.waits.first.get() { most } else { after.min(most) }))
    }

    /// The client has not sent the awaited input.
    #[cold]
    fn input_is_due(&self, py: Python<'_>) -> PyResult<()> {
        let has_all = self.outflow.unacknowledged.borrow().is_empty();
        if !self.is_open() {
            Ok(())
        } else if self.ending.get() == Ending::LastCall {
            self.end_requests(py)
        } else if !has_all && self.still_reads() {
            // Its last response is on its way.
            self.extend(py, Some(self.some_time()))
        } else if has_all && self.waits.awaits.get() == Awaits::Idle && self.waits.extended.get().is_some() {
            // It has not had all of that for long.
            self.wait(py, Some(self.core.settings.timeout_keep_alive))
        } else {
            self.state.borrow_mut().wire.end();
            self.write_own(py)?;
            self.close(py, ErrorCode::NoError, "")
        }
    }

    /// Whether the client acknowledges enough, or still has time to. What else it sends does not count. A server that stops
    /// waits for no client that may be gone.
    fn still_reads(&self) -> bool {
        let now = self.core.hub.deadlines.now();
        let limit = if self.stops.get() { Some(self.some_time()) } else { self.core.settings.timeout_write };
        if let Some((before, since)) = self.waits.extended.get() {
            let Some(limit) = limit.filter(|limit| now.duration_since(since) >= *limit) else { return true };
            if !self.acknowledges(before, limit) {
                return false;
            }
        }
        self.waits.extended.set(Some((self.quic.acknowledged(), now)));
        true
    }

    /// Whether the client has acknowledged enough for this time, beyond what it had `before`.
    fn acknowledges(&self, before: u64, time: Duration) -> bool {
        let acknowledged = self.quic.acknowledged();
        // At another address it begins again.
        let taken = acknowledged.checked_sub(before).unwrap_or(acknowledged);
        self.core.settings.is_enough(usize::try_from(taken).unwrap_or(usize::MAX), time)
    }

    /// Whether no stream can be written to, so that each waits for the client to read others.
    fn is_blocked(&self) -> bool {
        let control = self.state.borrow().own.first().copied().flatten();
        control.is_some_and(|control| self.quic.is_blocked(control))
    }

    /// Give clients that take no more of their responses time to do so.
    #[inline]
    pub(super) fn watch_windows(&self, py: Python<'_>) -> PyResult<()> {
        let blocked: Vec<_> = {
            let state = self.state.borrow();
            let blocked = state
                .streams
                .iter()
                .filter(|stream| stream.is_blocked.get() && stream.deadlines.of(WINDOW).get().is_none());
            blocked.cloned().collect()
        };
        blocked.into_iter().try_for_each(|stream| stream.await_window(py))
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
            _ => self.request_is_due(py),
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

    /// Nothing more of the request is waited for.
    #[inline]
    pub(super) fn leave_body_deadline(&self) {
        self.leave(REQUEST);
    }

    /// The client has opened the stream, and has to send a request.
    pub(super) fn await_head(&self, py: Python<'_>) -> PyResult<()> {
        self.await_until(py, REQUEST, self.connection.core.settings.timeout_request_head)
    }

    /// The client may send the body, and has its whole time for it.
    pub(super) fn restart_deadline(&self, py: Python<'_>) -> PyResult<()> {
        if !self.is_read() {
            return Ok(());
        }
        self.await_until(py, REQUEST, self.connection.core.settings.timeout_request_body)
    }

    /// The client has its time to take more of the response.
    fn await_window(&self, py: Python<'_>) -> PyResult<()> {
        let connection = &self.connection;
        self.extend_window(
            py,
            Taking {
                since: connection.core.hub.deadlines.now(),
                of_stream: self.sent.borrow_mut().acknowledged(),
                of_connection: connection.quic.acknowledged(),
            },
        )
    }

    /// The client has that time again.
    fn extend_window(&self, py: Python<'_>, taking: Taking) -> PyResult<()> {
        self.taking.set(Some(taking));
        self.await_until(py, WINDOW, self.connection.core.settings.timeout_write)
    }

    /// Bytes of a body have come and extend its deadline. Unread bodies are never late.
    pub(super) fn extend_deadline(&self, bytes: usize, unread: usize) {
        let core = &self.connection.core;
        self.deadlines.extend(&core.hub.deadlines, &core.settings, bytes, unread);
    }

    #[cold]
    fn request_is_due(&self, py: Python<'_>) -> PyResult<()> {
        let settings = &self.connection.core.settings;
        let late = if self.has_begun.get() {
            Refused::late(Refusal::BodyTimeout, settings.timeout_request_body)
        } else {
            Refused::late(Refusal::HeadTimeout, settings.timeout_request_head)
        };
        self.connection.refuse(py, self.id, &late)?;
        self.connection.flush(py)?;
        self.connection.after(py)
    }

    /// The client had time to take more of the response.
    #[cold]
    fn window_is_due(&self, py: Python<'_>) -> PyResult<()> {
        let connection = &self.connection;
        if !self.has_more() || !self.is_blocked.get() {
            return Ok(());
        }
        if let Some(taking) = self.taking.get() {
            let settings = &connection.core.settings;
            let time = connection.core.hub.deadlines.now().duration_since(taking.since);
            let taken = self.sent.borrow_mut().acknowledged() - taking.of_stream;
            if settings.is_enough(taken, time) {
                return self.await_window(py);
            }
            let may_follow = self.sent.borrow().is_on_its_way() || connection.is_blocked();
            let patience = settings.timeout_write.unwrap_or_default();
            if time < BEHIND_OTHERS && may_follow && connection.acknowledges(taking.of_connection, patience) {
                return self.extend_window(py, Taking { of_connection: connection.quic.acknowledged(), ..taking });
            }
        }
        connection.note(py, &connection.core.debug, texts::WINDOW_CLOSED)?;
        connection.reset(py, self.id, ErrorCode::RequestCancelled)
    }
}
