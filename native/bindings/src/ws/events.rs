//! The events of a WebSocket, one method for each; they come from a socket of ours or from the protocol object.

use std::rc::Rc;

use pyo3::prelude::*;

use super::session::Session;
use super::states::{PeerEnd, Ping, Stage, State};
use super::waits::Wait;
use crate::asgi::cycle::go_on_at_once;
use crate::asgi::peer::Peer;
use crate::base::ffi::bytes::Growing;
use crate::base::places;
use crate::base::shortcuts::Shortcut;
use crate::base::waiter::Waiter;
use crate::conn::carried::{Carried, Sides};
use crate::conn::carrier::Carrier;
use crate::conn::ends::Ends;
use crate::conn::hub::Hub;

impl Session {
    /// An HTTP protocol hands over its connection.
    pub(crate) fn connection_made(
        self: &Rc<Self>,
        protocol: &Bound<'_, PyAny>,
        carrier: Rc<dyn Carrier>,
    ) -> PyResult<()> {
        self.sides.attach(protocol, carrier);
        self.guard(protocol.py(), "connection_made", |session| session.open(protocol))
    }

    pub(super) fn open(self: &Rc<Self>, protocol: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = protocol.py();
        let Some(Ends { client, server, secure, ssl_object }) = self.ends(py)? else { return Ok(()) };
        let app_state = self.peer.borrow().app_state.clone_ref(py);
        self.peer.replace(Rc::new(Peer::new(client, server, secure, app_state).with_tls(ssl_object)));
        self.enter_deadlines();
        self.open_frame_log(py)?;
        self.core.hub.connections.add(protocol, &self.core.names)?;
        self.core.count(places::CONNECTIONS_OPENED);
        self.core.count(places::UPGRADED);
        self.trace(py, "WebSocket connection made")
    }

    /// Count bytes on the wire; those of a stream its connection counts, in their frames.
    #[inline]
    pub(super) fn count_bytes(&self, place: usize, bytes: usize) {
        if let Some(metrics) = &self.core.metrics
            && !self.sides.are_a_stream()
        {
            metrics.add(place, bytes);
        }
    }

    /// The peer is gone: end the connection in both directions.
    pub(super) fn peer_gone(&self, py: Python<'_>) -> PyResult<()> {
        // There was no close frame, which RFC 6455 section 7.1.5 calls 1006 and upstream 1005 once it is open.
        let code = if self.is_accepted() { 1005 } else { 1006 };
        self.tell_end(py, code, None)?;
        self.start_closing(py)?;
        self.awaiting_close.set(false);
        self.drop_input();
        Ok(())
    }

    /// Bytes from the client, what the application does with them if it waits for them, and one write for its answers.
    fn take_input(
        self: &Rc<Self>,
        py: Python<'_>,
        length: usize,
        take: impl FnOnce(&Rc<Self>) -> PyResult<()>,
    ) -> PyResult<()> {
        if self.scope.get().is_some() {
            // The handshake's bytes were counted before it was handed over.
            self.count_bytes(places::BYTES_RECEIVED, length);
        }
        if !self.inbox.has_waiters.get() || self.outflow.gathering.replace(true) {
            return take(self);
        }
        let received = take(self);
        let gone_on = received.and_then(|()| self.let_receivers_go_on(py));
        self.outflow.gathering.set(false);
        let written = self.flush(py);
        gone_on.and(written)
    }

    /// Calls that wait for an event take their steps.
    fn let_receivers_go_on(&self, py: Python<'_>) -> PyResult<()> {
        let at_once = self.core.settings.shortcuts.take(Shortcut::Wakeups);
        // A call that takes an event may make room for more, which the next call waits for.
        while self.inbox.is_to_wake.take() {
            let first = self.inbox.receivers.first(py);
            match first.as_ref().map(|first| first.bind(py).cast_exact::<Waiter>()) {
                Some(Ok(waiter)) if at_once && self.core.runner.may_step(py)? => {
                    go_on_at_once(waiter, &self.core.host)?;
                }
                _ => self.wake_receivers(py)?,
            }
        }
        Ok(())
    }

    /// Bytes from the client: its handshake, then frames.
    fn take_data(self: &Rc<Self>, py: Python<'_>, data: &mut [u8]) -> PyResult<()> {
        if self.scope.get().is_none() {
            return self.receive_head(py, data);
        }
        match self.stage() {
            Stage::Accepted => self.read_new(py, data),
            Stage::Connecting => {
                // Frames behind a handshake that the application has not answered yet.
                self.feed(data);
                self.hold_if_full(py)
            }
            _ if self.awaiting_close.get() => {
                self.feed(data);
                self.read_close(py)
            }
            _ => Ok(()),
        }
    }

    /// The server stops: close an open connection, refuse one that is not; a response in progress is completed.
    pub(crate) fn shutdown(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.guard(py, "shutdown", |session| session.stop(py))
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        match self.stage() {
            Stage::Accepted => {
                let code = self.core.shutdown_code;
                self.tell_end(py, code, None)?;
                self.close(py, code, "")
            }
            Stage::Connecting if self.scope.get().is_some() => {
                if self.leave_queue(py)? {
                    return self.refuse_overload(py);
                }
                self.refuse(py, 500, "Internal Server Error")
            }
            Stage::Denying => Ok(()),
            _ if self.awaiting_close.get() => Ok(()),
            _ => self.on_carrier(py, |carrier| carrier.close(py)).map(drop),
        }
    }

    /// Tell the application that its client is gone, without waiting for it.
    pub(crate) fn disconnect(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.guard(py, "disconnect", |session| {
            session.stop(py)?;
            session.tell_end(py, 1006, None)
        })
    }
}

impl Carried for Session {
    const ENDS: &[usize] = &[places::CONNECTIONS_CLOSED, places::SESSIONS_CLOSED];

    #[inline]
    fn hub(&self) -> &Hub {
        &self.core.hub
    }

    #[inline]
    fn sides(&self) -> &Sides {
        &self.sides
    }

    fn end_output(&self) {
        self.drop_output();
    }

    /// The bytes are the caller's, but masks are removed in place.
    fn data_received(self: &Rc<Self>, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        let mut own = self.core.hub.buffers.take();
        own.extend_from_slice(data);
        let outcome = self.own_data_received(py, &mut own);
        self.core.hub.buffers.give(own);
        outcome
    }

    fn own_data_received(self: &Rc<Self>, py: Python<'_>, data: &mut [u8]) -> PyResult<()> {
        self.take_input(py, data.len(), |session| session.take_data(py, data))
    }

    fn with_receive_buffer(&self, receive: &mut dyn FnMut(&mut Growing)) {
        self.with_piece(receive);
    }

    fn buffered_data_received(self: &Rc<Self>, py: Python<'_>, length: usize) -> PyResult<()> {
        self.take_input(py, length, |session| session.read_piece(py, length))
    }

    fn eof_received(&self, py: Python<'_>) -> PyResult<bool> {
        if self.can_write_eof(py)? {
            match self.stage() {
                Stage::Denying => {
                    self.half_closed.set(true);
                    return Ok(true);
                }
                Stage::Accepted => {
                    if !self.peer_has_ended() {
                        self.peer_ends(py, PeerEnd::Left)?;
                    }
                    return Ok(true);
                }
                _ => {}
            }
        }
        self.end_for_peer(py)?;
        self.peer_gone(py)?;
        // Closing waits until all output is written, but a peer that is gone never reads it.
        self.close_within(py, self.core.patience.close)?;
        Ok(false)
    }

    fn pause_writing(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_ending() {
            return Ok(()); // no call can wait now
        }
        self.outflow.capacity.pause();
        self.await_reader(py)
    }

    fn resume_writing(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.stop_waiting(Wait::Reader);
        self.ping.set(Ping { unsent: None, ..self.ping.get() });
        self.resume_writers(py)?;
        let pong = self.any_rare().and_then(|rare| rare.pong.take());
        match pong {
            Some(payload) => self.write_frames(py, |wire, out| wire.pong(out, &payload)),
            None => Ok(()),
        }
    }

    fn note_end(&self, py: Python<'_>) -> PyResult<()> {
        let Some(routes) = self.core.metrics.as_ref().and_then(|metrics| metrics.routes.as_ref()) else {
            return Ok(());
        };
        match self.any_rare().and_then(|rare| rare.counted.take()) {
            Some(counted) => routes.close_session(py, counted),
            None => Ok(()),
        }
    }

    fn connection_lost(&self, py: Python<'_>) -> PyResult<()> {
        self.forget(py)?;
        self.trace(py, "WebSocket connection lost")?;
        self.end_for_peer(py)?;
        self.peer_gone(py)?;
        if let Some(scope) = self.scope.get() {
            self.core.host.client_left(py, scope)?;
        }
        self.enter(State::Closed);
        self.end_span(py)?;
        self.leave_deadlines();
        self.drop_output();
        self.sides.drop_carrier();
        Ok(())
    }

    #[cold]
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.leave_deadlines();
        self.enter(State::Closed);
        self.drop_output();
        let gone = self.tell_end(py, 1006, None);
        let aborted = self.abort(py).and(self.end_span(py));
        self.resume_writers(py)?;
        self.forget(py).and(aborted).and(gone)
    }
}
