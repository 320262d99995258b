//! How a WebSocket ends (RFC 6455 section 7).

use pyo3::prelude::*;
use wire::ws::{Failure, NO_CODE};

use super::session::Session;
use super::states::{PeerEnd, Stage, State};
use super::waits::Wait;
use crate::conn::carried::Carried;

impl Session {
    /// The client has sent its last. Act on it when the application has had the chance to answer all before it.
    ///
    /// It has had that when it asks for more, when it ends, or some time after it took the last event.
    pub(super) fn peer_ends(&self, py: Python<'_>, end: PeerEnd) -> PyResult<()> {
        let is_idle = self.inbox.queue.borrow().is_empty();
        if is_idle && self.inbox.receivers.len() > usize::from(self.inbox.taking.get()) {
            return self.act_on(py, end);
        }
        self.rare().peer_end.replace(Some(end));
        self.pause_reading(py)?;
        self.stop_keepalive(); // no pong would be read
        if !is_idle {
            self.inbox.took_at.set(Some(self.now()));
        }
        self.await_answers(py)
    }

    pub(super) fn await_answers(&self, py: Python<'_>) -> PyResult<()> {
        let until = self.inbox.took_at.get().map(|took_at| took_at + self.core.patience.answers);
        match until {
            Some(until) if until > self.now() => self.wait(py, Wait::Answers, until),
            _ => self.end_for_peer(py),
        }
    }

    /// Let the client's end take effect, if it has ended.
    pub(super) fn end_for_peer(&self, py: Python<'_>) -> PyResult<()> {
        let Some(end) = self.any_rare().and_then(|rare| rare.peer_end.take()) else { return Ok(()) };
        self.stop_waiting(Wait::Answers);
        self.act_on(py, end)
    }

    fn act_on(&self, py: Python<'_>, end: PeerEnd) -> PyResult<()> {
        match end {
            PeerEnd::Close { code, reason } => self.peer_close(py, code, &reason),
            PeerEnd::Failed(failure) => self.fail(py, failure),
            PeerEnd::Left => {
                self.peer_gone(py)?;
                self.close_transport(py)
            }
        }
    }

    /// From now on nothing is sent but what the close needs; writers who wait find out. The close frame is written before.
    pub(super) fn start_closing(&self, py: Python<'_>) -> PyResult<()> {
        self.leave_queue(py)?;
        if self.stage() < Stage::Closing {
            self.enter(State::Closing(None));
        }
        self.end_entry(py)?;
        self.stop_keepalive();
        self.stop_waiting(Wait::Reader);
        if let Some(rare) = self.any_rare() {
            rare.pong.set(None);
        }
        let piece = self.inflow.piece.take();
        drop(piece);
        self.resume_writers(py)
    }

    /// Start closing an open connection, with a close frame.
    fn start_closing_with(&self, py: Python<'_>, code: u16, reason: &str) -> PyResult<()> {
        let mut out = Vec::new();
        let old = self.state.replace(State::Closed);
        let State::Accepted(mut wire) = old else {
            self.enter(old);
            return self.start_closing(py);
        };
        // The codes that cannot be sent are not sent to here.
        let _ = wire.close(&mut out, code, reason).or_else(|_| wire.close(&mut out, NO_CODE, ""));
        self.enter(State::Closing(Some(wire)));
        self.start_closing(py)?;
        if let Some(log) = self.frame_log(py) {
            log.bind(py).call_method1("close", (">", code, reason))?;
        }
        self.write(py, &out)
    }

    /// Start the closing handshake and wait a limited time for the client's part of it (RFC 6455 section 7.1.2).
    pub(super) fn close(&self, py: Python<'_>, code: u16, reason: &str) -> PyResult<()> {
        self.tell_end(py, code, Some(reason))?;
        self.start_closing_with(py, code, reason)?;
        if self.peer_has_ended() { self.end_for_peer(py) } else { self.await_close(py) }
    }

    fn await_close(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_transport_closing(py)? {
            return Ok(());
        }
        self.awaiting_close.set(true);
        self.close_within(py, self.core.patience.close)?;
        self.resume_carrier(py)?;
        self.read_close(py)
    }

    /// A close frame: echo it if it is not the echo of ours, and close (section 5.5.1).
    fn peer_close(&self, py: Python<'_>, code: u16, reason: &str) -> PyResult<()> {
        if self.is_accepted() {
            self.tell_end(py, code, Some(reason))?;
            self.start_closing_with(py, code, reason)?;
        }
        self.close_transport(py)
    }

    /// The client broke the protocol or a limit: say why, and close (section 7.1.7).
    fn fail(&self, py: Python<'_>, failure: Failure) -> PyResult<()> {
        let code = failure.code();
        if code == 1007 {
            let logger = self.core.logger.bind(py);
            logger.call_method1(&self.core.names.error, ("Invalid UTF-8 sequence received from client.",))?;
        }
        if !self.is_accepted() {
            return self.close_transport(py);
        }
        let reason = failure.reason(&self.core.limits);
        self.tell_end(py, code, Some(&reason))?;
        self.start_closing_with(py, code, &reason)?;
        if failure.leaves_close() {
            // It may be in the middle of a message that is refused: its library would fail if we half-closed.
            return self.await_close(py);
        }
        self.drop_input();
        if self.is_transport_closing(py)? {
            return Ok(());
        }
        self.resume_carrier(py)?;
        self.linger(py)
    }

    /// The client did not answer a ping in time.
    pub(super) fn keepalive_timeout(&self, py: Python<'_>) -> PyResult<()> {
        self.trace(py, "WebSocket keepalive ping timeout")?;
        self.tell_end(py, 1005, None)?;
        self.start_closing_with(py, 1011, "keepalive ping timeout")?;
        self.close_transport(py)
    }

    /// The handshake was refused, and the response sent.
    pub(super) fn rejected(&self, py: Python<'_>, status: u16) -> PyResult<()> {
        self.say(py, ("connection rejected (%d %s)", status, wire::status::phrase(status)))?;
        self.tell_end(py, 1006, None)?;
        self.start_closing(py)?;
        self.resume_carrier(py)?;
        if self.half_closed.get() { self.close_transport(py) } else { self.linger(py) }
    }
}
