//! The deadlines of a WebSocket, and what follows when they have passed.

use std::rc::Rc;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::session::Session;
use super::states::Ping;
use super::waits::{WAITS, Wait};
use crate::conn::carried::Carried;
use crate::conn::deadline::{Deadline, Patient};
use crate::conn::grace::Pending;

impl Patient for Session {
    #[inline]
    fn deadline(&self, _part: u32) -> &Deadline {
        &self.times.earliest
    }

    #[cold]
    fn look(&self, py: Python<'_>) -> PyResult<Pending> {
        self.look_for_peer(py)
    }

    fn expire(self: Rc<Self>, py: Python<'_>, _part: u32) -> PyResult<()> {
        let expired = self.guard(py, "expire", |session| session.look_at_clock(py));
        expired.or_else(|error| self.abort(py).and(Err(error)))
    }
}

impl Session {
    fn look_at_clock(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        let now = self.now();
        for wait in WAITS {
            if self.times.get(wait).is_some_and(|until| until <= now) {
                self.times.put(wait, None);
                match wait {
                    Wait::KeepAlive => self.keep_alive(py)?,
                    Wait::Answers => self.await_answers(py)?,
                    Wait::Close => self.close_is_due(py)?,
                    Wait::Reader => self.reader_is_due(py)?,
                }
            }
        }
        // A ping that was not late goes on waiting.
        self.times.put(Wait::KeepAlive, self.times.get(Wait::KeepAlive));
        self.core.hub.deadlines.watch(py, &self.times.earliest)
    }

    pub(super) fn now(&self) -> Instant {
        self.core.hub.deadlines.now()
    }

    /// Wait no longer than until then.
    pub(super) fn wait(&self, py: Python<'_>, wait: Wait, until: Instant) -> PyResult<()> {
        self.times.put(wait, Some(until));
        if self.times.place.get().is_none() {
            return Ok(());
        }
        self.core.hub.deadlines.watch(py, &self.times.earliest)
    }

    pub(super) fn stop_waiting(&self, wait: Wait) {
        self.times.put(wait, None);
    }

    /// Have the deadlines count.
    pub(super) fn enter_deadlines(self: &Rc<Self>) {
        self.times.place.set(Some(self.core.hub.deadlines.insert(self.clone(), 0)));
    }

    /// Drop all deadlines.
    pub(super) fn leave_deadlines(&self) {
        if let Some(place) = self.times.place.take() {
            self.core.hub.deadlines.remove(place);
        }
    }

    // Pings and their pongs (RFC 6455 section 5.5.2).

    /// The connection is open: the first ping is due in one interval.
    pub(super) fn start_keepalive(&self, py: Python<'_>) -> PyResult<()> {
        match self.core.patience.ping_interval {
            Some(interval) => self.wait(py, Wait::KeepAlive, self.now() + interval),
            None => Ok(()),
        }
    }

    pub(super) fn stop_keepalive(&self) {
        self.stop_waiting(Wait::KeepAlive);
        self.ping.set(Ping { pending: None, is_timed: false, ..self.ping.get() });
    }

    fn keep_alive(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        let (ping, now) = (self.ping.get(), self.now());
        if ping.is_timed && ping.pending.is_some() {
            return match self.core.patience.ping_timeout {
                // An unread pong is not late.
                Some(timeout) if self.inflow.read_paused.get() || self.ping_is_under_way(py)? => {
                    self.wait(py, Wait::KeepAlive, now + timeout)
                }
                _ => self.keepalive_timeout(py),
            };
        }
        let payload: [u8; 4] = py.import("os")?.call_method1("urandom", (4,))?.extract()?;
        let sent_at = self.core.event_loop.bind(py).call_method0("time")?.extract()?;
        let is_timed = self.core.patience.ping_timeout.is_some();
        self.ping.set(Ping { pending: Some(payload), sent: Some(now), is_timed, sent_at, unsent: Some(0), ..ping });
        if let Some(log) = self.frame_log(py) {
            log.bind(py).call_method1("frame", (">", 9, PyBytes::new(py, &payload)))?;
        }
        self.write_frames(py, |wire, out| wire.ping(out, &payload))?;
        let unsent = self.on_carrier(py, |carrier| carrier.unsent(py))?;
        self.ping.set(Ping { unsent, ..self.ping.get() });
        match self.core.patience.ping_timeout.or(self.core.patience.ping_interval) {
            Some(after) if self.is_accepted() => self.wait(py, Wait::KeepAlive, now + after),
            _ => Ok(()),
        }
    }

    /// Whether the ping may not have arrived yet, while the client still reads the output in front of it.
    fn ping_is_under_way(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(unsent) = self.on_carrier(py, |carrier| carrier.unsent(py))? else { return Ok(false) };
        let ping = self.ping.get();
        self.ping.set(Ping { unsent: Some(unsent), ..ping });
        Ok(unsent > 0 && ping.unsent.is_none_or(|before| unsent < before))
    }

    /// A pong has come. One that does not answer the ping in flight means nothing (section 5.5.3).
    pub(super) fn receive_pong(&self, py: Python<'_>, payload: &[u8]) -> PyResult<()> {
        let ping = self.ping.get();
        let (Some(pending), Some(sent), Some(interval)) = (ping.pending, ping.sent, self.core.patience.ping_interval)
        else {
            return Ok(());
        };
        if payload != pending {
            return Ok(());
        }
        let round_trip = self.now().saturating_duration_since(sent).as_secs_f64();
        self.ping.set(Ping { pending: None, is_timed: false, round_trip, ..ping });
        // One interval after the previous ping, not after its answer.
        if ping.is_timed { self.wait(py, Wait::KeepAlive, sent + interval) } else { Ok(()) }
    }

    /// Reading goes on after a pause: the pong has all of its time again.
    pub(super) fn restart_deadline(&self, py: Python<'_>) -> PyResult<()> {
        let ping = self.ping.get();
        match self.core.patience.ping_timeout {
            Some(timeout) if ping.is_timed && ping.pending.is_some() => {
                self.wait(py, Wait::KeepAlive, self.now() + timeout)
            }
            _ => Ok(()),
        }
    }

    // The client, to read.

    /// Start the deadline for the client to read some of the waiting output.
    pub(super) fn await_reader(&self, py: Python<'_>) -> PyResult<()> {
        let Some(patience) = self.core.settings.timeout_write else { return Ok(()) };
        let Some(unsent) = self.on_carrier(py, |carrier| carrier.unsent(py))? else { return Ok(()) };
        self.times.unsent().at_first.set(unsent);
        self.wait(py, Wait::Reader, self.now() + patience)
    }

    fn reader_is_due(&self, py: Python<'_>) -> PyResult<()> {
        let settings = &self.core.settings;
        let patience = settings.timeout_write.unwrap_or_default();
        let Some(unsent) = self.on_carrier(py, |carrier| carrier.unsent(py))? else { return Ok(()) };
        if settings.is_enough(self.times.unsent().at_first.get().saturating_sub(unsent), patience) {
            return self.await_reader(py);
        }
        self.trace(py, "WebSocket client does not read")?;
        self.abort(py)
    }

    // The end.

    /// Close once everything is written.
    pub(super) fn close_transport(&self, py: Python<'_>) -> PyResult<()> {
        self.flush(py)?;
        self.on_carrier(py, |carrier| carrier.close(py))?;
        self.close_within(py, self.core.patience.close)
    }

    /// Close then, unless the peer does so before. One that is slow but reads gets its time again.
    pub(super) fn close_within(&self, py: Python<'_>, time: Duration) -> PyResult<()> {
        self.flush(py)?;
        let Some(unsent) = self.on_carrier(py, |carrier| carrier.unsent(py))? else { return Ok(()) };
        self.times.unsent().at_close.set(unsent);
        self.times.unsent().close_after.set(time);
        self.wait(py, Wait::Close, self.now() + time)
    }

    /// Close, but not while unread input arrives: the kernel would reset the connection.
    pub(super) fn linger(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_transport_closing(py)? {
            return Ok(());
        }
        self.close_within(py, self.core.patience.linger)?;
        if self.can_write_eof(py)? {
            self.on_carrier(py, |carrier| carrier.write_eof(py))?;
        }
        Ok(())
    }

    fn close_is_due(&self, py: Python<'_>) -> PyResult<()> {
        let Some(waits) = self.on_carrier(py, |carrier| Ok(carrier.waiting(py)? > 0))? else { return Ok(()) };
        let Some(unsent) = self.on_carrier(py, |carrier| carrier.unsent(py))? else { return Ok(()) };
        let before = self.times.unsent();
        let taken = before.at_close.get().saturating_sub(unsent);
        if waits && self.core.settings.is_enough(taken, before.close_after.get()) {
            self.close_within(py, self.core.patience.close)
        } else if waits || self.is_transport_closing(py)? {
            self.abort(py)
        } else {
            self.close_transport(py)
        }
    }
}
