//! The events of a connection, one method for each; they come from QUIC or from the protocol object.

use std::rc::Rc;

use pyo3::prelude::*;
use quic::{Lost, is_bidirectional, is_ours};
use wire::h3::{ErrorCode, Event, UniStream};

use super::carrier::{QuicCarrier, shown};
use super::connection::{Connection, Stream};
use super::states::{Ending, Reading};
use crate::asgi::peer::Peer;
use crate::base::encrypted::SslObject;
use crate::base::places;
use crate::base::task::Start;
use crate::conn::carried::{Carried, Life, Sides};
use crate::conn::ends::Ends;
use crate::conn::hub::Hub;
use crate::streams::open::OpenStream;
use crate::streams::starting::Starts;
use crate::udp::handler::Handler;

// Its beginning, and the server's own decisions.

impl Connection {
    /// A client has connected: `protocol` is the object that Python knows. It is `announced` already that the client should look
    /// for another connection.
    pub(crate) fn begin(self: &Rc<Self>, protocol: &Bound<'_, PyAny>, announced: bool) -> PyResult<()> {
        let py = protocol.py();
        self.sides.attach(protocol, Rc::new(QuicCarrier(self.quic.clone())));
        let _ = self.own.set(Rc::downgrade(self));
        self.guard(py, "connection_made", |connection| {
            let core = &connection.core;
            core.host.share(|| connection.quic.turns());
            core.hub.connections.add(protocol, &core.names)?;
            core.count(places::CONNECTIONS_OPENED);
            core.count(places::HTTP3_OPENED);
            connection.start.set(Start::of(core, py)?);
            connection.meet(py)?;
            connection.enter_deadlines();
            connection.note(py, &core.trace, "HTTP connection made")?;
            if announced {
                connection.announce();
            }
            connection.write_own(py)?;
            connection.update_deadline(py)
        })
    }

    /// Note the two ends.
    fn meet(&self, py: Python<'_>) -> PyResult<()> {
        let Some(Ends { client, server, secure, ssl_object }) = self.ends(py)? else { return Ok(()) };
        let app_state = self.peer().app_state.clone_ref(py);
        let old = self.peer.replace(Rc::new(Peer::new(client, server, secure, app_state).with_tls(ssl_object)));
        drop(old);
        Ok(())
    }

    /// No more requests should come; those that do are served.
    pub(crate) fn announce_close(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.guard(py, "announce_close", |connection| {
            connection.announce();
            connection.flush_unless_consuming(py)
        })
    }

    fn announce(&self) {
        if self.ending.get() == Ending::None && self.is_open() {
            self.ending.set(Ending::Announced);
            self.state.borrow_mut().wire.announce_end();
        }
    }

    /// The server stops: requests on their way have a moment to arrive, if the client was asked for no more of them. Then say
    /// which was the last, and close when all are answered.
    pub(crate) fn shutdown(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.stops.set(true);
        self.guard(py, "shutdown", |connection| match connection.ending.get() {
            Ending::None => connection.end_requests(py),
            Ending::Announced => {
                connection.ending.set(Ending::LastCall);
                connection.wait_for_last_call(py)
            }
            Ending::LastCall | Ending::Now => Ok(()),
        })
    }

    /// Take no further request.
    pub(super) fn end_requests(&self, py: Python<'_>) -> PyResult<()> {
        self.ending.set(Ending::Now);
        if !self.is_open() {
            return Ok(());
        }
        self.waits.input.set(None);
        self.state.borrow_mut().wire.end();
        self.settle_unless_consuming(py)
    }

    /// Tell the applications that their client is gone, while their responses can still be sent.
    pub(crate) fn disconnect(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.guard(py, "disconnect", |connection| {
            connection.exchanges().into_iter().try_for_each(|exchange| exchange.disconnect(py, true))
        })
    }
}

// The streams of QUIC.

impl Connection {
    fn opened(self: &Rc<Self>, py: Python<'_>, number: u64) -> PyResult<()> {
        if !self.is_open() {
            return Ok(());
        }
        if !is_bidirectional(number) {
            self.state.borrow_mut().unis.push((number, UniStream::default()));
            return self.read_uni(py, number);
        }
        self.give_back();
        let opened = self.state.borrow_mut().wire.open(number);
        match opened {
            Ok(Some(id)) => {
                let stream = Rc::new(Stream::new(self.clone(), id));
                self.state.borrow_mut().keep(OpenStream { stream: stream.clone(), exchange: None });
                self.read(py, &stream)?;
                let is_awaited = !stream.has_begun.get() && self.stream(id).is_some();
                if is_awaited { stream.await_head(py) } else { Ok(()) }
            }
            Ok(None) => self.cut(py, number, ErrorCode::RequestRejected.number()),
            Err(failure) => self.fail(py, failure),
        }
    }

    fn readable(self: &Rc<Self>, py: Python<'_>, number: u64) -> PyResult<()> {
        if !self.is_open() {
            Ok(())
        } else if !is_bidirectional(number) {
            self.read_uni(py, number)
        } else if let Some(stream) = self.numbered(number) {
            self.read(py, &stream)
        } else {
            Ok(())
        }
    }

    fn writable(&self, number: u64) {
        if let Some(stream) = self.numbered(number) {
            stream.is_blocked.set(false);
            self.state.borrow_mut().wire.ready(stream.id);
        }
    }

    /// The client reads no more of a stream.
    pub(super) fn stopped(&self, py: Python<'_>, number: u64, code: u64) -> PyResult<()> {
        if is_ours(number) {
            let event = self.state.borrow_mut().wire.stopped_own();
            return if let Event::Failed(failure) = event { self.fail(py, failure) } else { Ok(()) };
        }
        let Some(stream) = self.numbered(number) else {
            // All of its response was written.
            self.note_acknowledged(number);
            return self.quic.reset(py, number, code);
        };
        let event = self.state.borrow_mut().wire.stopped_by_client(stream.id, code);
        self.ended_by_client(py, &stream, &event)
    }

    /// The client has reset a stream, or stopped its response.
    pub(super) fn ended_by_client(&self, py: Python<'_>, stream: &Rc<Stream>, event: &Event) -> PyResult<()> {
        if let Event::Failed(failure) = event {
            return self.fail(py, *failure);
        }
        stream.reading.set(Reading::Over);
        self.cut(py, stream.id.number(), ErrorCode::RequestCancelled.number())?;
        self.lose(py, stream.id)
    }

    /// All of a response has arrived, or is no longer wanted.
    fn note_acknowledged(&self, number: u64) {
        let mut numbers = self.outflow.unacknowledged.borrow_mut();
        // Mostly the first.
        if let Some(place) = numbers.iter().position(|&known| known == number) {
            numbers.remove(place);
        }
    }

    /// All events of a turn were delivered.
    fn end_turn(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.consuming.set(true);
        let outcome = self.read_on(py).and_then(|()| self.start_asked(py, true)).and_then(|()| self.serve_tunnels(py));
        self.consuming.set(false);
        let flushed = self.flush(py);
        outcome.and(flushed)?;
        self.after(py)
    }
}

impl Handler for Connection {
    fn on_established(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.guard(py, "connection_made", |connection| connection.write_own(py))
    }

    fn on_opened(self: Rc<Self>, py: Python<'_>, stream: u64) -> PyResult<()> {
        self.consuming.set(true);
        self.guard(py, "data_received", |connection| connection.opened(py, stream))
    }

    fn on_readable(self: Rc<Self>, py: Python<'_>, stream: u64) -> PyResult<()> {
        self.consuming.set(true);
        self.guard(py, "data_received", |connection| connection.readable(py, stream))
    }

    fn on_writable(self: Rc<Self>, _py: Python<'_>, stream: u64) -> PyResult<()> {
        self.writable(stream);
        Ok(())
    }

    fn on_finished(self: Rc<Self>, _py: Python<'_>, stream: u64) -> PyResult<()> {
        self.note_acknowledged(stream);
        Ok(())
    }

    fn on_stopped(self: Rc<Self>, py: Python<'_>, stream: u64, code: u64) -> PyResult<()> {
        self.guard(py, "data_received", |connection| connection.stopped(py, stream, code))
    }

    fn on_can_open(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.guard(py, "connection_made", |connection| connection.write_own(py))
    }

    fn on_moved(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.guard(py, "data_received", |connection| {
            let peer = connection.peer();
            let client = shown(py, connection.quic.remote())?;
            let ssl_object = Some(SslObject::Later(connection.quic.clone()));
            let moved = Peer::new(client, peer.server.clone_ref(py), peer.secure, peer.app_state.clone_ref(py));
            let old = connection.peer.replace(Rc::new(moved.with_tls(ssl_object)));
            drop(old);
            Ok(())
        })
    }

    fn on_flooded(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.guard(py, "data_received", |connection| {
            let event = connection.state.borrow_mut().wire.flooded();
            if let Event::Failed(failure) = event { connection.fail(py, failure) } else { Ok(()) }
        })
    }

    fn on_events_delivered(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.guard(py, "data_received", |connection| connection.end_turn(py))
    }

    fn on_lost(self: Rc<Self>, py: Python<'_>, lost: &Lost) -> PyResult<()> {
        self.guard(py, "connection_lost", |connection| {
            match lost {
                Lost::ClosedHere | Lost::ClosedByPeer { code: 0x100, .. } => {}
                _ => connection.note(py, &connection.core.debug, &format!("HTTP/3 connection lost: {lost}"))?,
            }
            connection.connection_lost(py)
        })
    }
}

impl Carried for Connection {
    const ENDS: &[usize] = &[places::CONNECTIONS_CLOSED, places::HTTP3_CLOSED];

    #[inline]
    fn hub(&self) -> &Hub {
        &self.core.hub
    }

    #[inline]
    fn sides(&self) -> &Sides {
        &self.sides
    }

    fn end_output(&self) {
        self.life.set(Life::Closed);
    }

    // Bytes come by streams.

    fn data_received(self: &Rc<Self>, _py: Python<'_>, _data: &[u8]) -> PyResult<()> {
        Ok(())
    }

    fn eof_received(&self, _py: Python<'_>) -> PyResult<bool> {
        Ok(true)
    }

    fn pause_writing(&self, _py: Python<'_>) -> PyResult<()> {
        Ok(())
    }

    fn resume_writing(self: &Rc<Self>, _py: Python<'_>) -> PyResult<()> {
        Ok(())
    }

    fn connection_lost(&self, py: Python<'_>) -> PyResult<()> {
        self.forget(py)?;
        self.life.set(Life::Closed);
        self.note(py, &self.core.trace, "HTTP connection lost")?;
        self.leave_deadlines();
        self.sides.drop_carrier();
        let left = self.slot.take().map_or(Ok(()), |slot| slot.leave(py));
        self.lose_all(py).and(left)
    }

    #[cold]
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.leave_deadlines();
        let aborted = self.abort(py);
        self.lose_all(py)?;
        self.forget(py).and(aborted)
    }
}
