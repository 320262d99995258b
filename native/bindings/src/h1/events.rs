//! The events of a connection, one method for each; they come from a socket of ours or from the protocol object.

use std::rc::Rc;

use pyo3::prelude::*;
use wire::h1::connection::Eof;

use super::connection::Connection;
use super::states::{Closing, End, Ending, Reading};
use crate::asgi::exchange::State as ExchangeState;
use crate::asgi::peer::Peer;
use crate::base::places;
use crate::base::task::Start;
use crate::conn::carried::{Carried, Life, Sides};
use crate::conn::carrier::Carrier;
use crate::conn::ends::Ends;
use crate::conn::hub::Hub;

// Its beginning, and the server's own decisions.

impl Connection {
    /// A client has connected.
    pub(crate) fn connection_made(
        self: &Rc<Self>,
        protocol: &Bound<'_, PyAny>,
        carrier: Rc<dyn Carrier>,
    ) -> PyResult<()> {
        self.sides.attach(protocol, carrier);
        self.guard(protocol.py(), "connection_made", |connection| connection.open(protocol))
    }

    fn open(self: &Rc<Self>, protocol: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = protocol.py();
        self.core.host.share(|| self.sides.carrier()?.turns());
        self.core.hub.connections.add(protocol, &self.core.names)?;
        self.core.count(places::CONNECTIONS_OPENED);
        self.start.set(Start::of(&self.core, py)?);
        let Some(Ends { client, server, secure, ssl_object }) = self.ends(py)? else { return Ok(()) };
        let app_state = self.peer.borrow().app_state.clone_ref(py);
        self.peer.replace(Rc::new(Peer::new(client, server, secure, app_state).with_tls(ssl_object)));
        self.enter_deadlines();
        self.note(py, &self.core.trace, "HTTP connection made")?;
        self.update_deadline(py)
    }

    /// The next response whose head is encoded is the last, and announces that; nothing else changes.
    pub(crate) fn announce_close(&self) {
        if self.ending.get() == Ending::None {
            self.ending.set(Ending::Announced);
        }
        self.state.borrow_mut().wire.announce_close();
    }

    /// The server stops: close now if idle, otherwise when the response is complete. After an `announce_close`, a
    /// client that does not know yet has a moment for one more request.
    pub(crate) fn shutdown(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.guard(py, "shutdown", |connection| connection.stop(py))
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        match self.ending.get() {
            Ending::None => {
                self.ending.set(Ending::Now);
                self.state.borrow_mut().wire.shutdown();
            }
            Ending::Announced => self.ending.set(Ending::LastCall),
            Ending::LastCall | Ending::Now => {}
        }
        let busy = {
            let state = self.state.borrow();
            state.exchange.as_ref().is_some_and(|exchange| exchange.state() != ExchangeState::Complete)
        };
        if busy || self.ending.get() == Ending::LastCall && self.wait_for_last_call(py)? {
            return Ok(());
        }
        if self.life.get() == Life::Lingering {
            let last = self.core.hub.deadlines.now() + self.core.settings.last_call;
            self.deadline.set(Some(self.deadline.get().map_or(last, |until| until.min(last))));
            self.lingers_until.set(Some(last));
            return self.watch(py);
        }
        self.close(py, self.between_requests(py)?)
    }

    /// Tell the application that its client is gone, while its response can still be sent.
    pub(crate) fn disconnect(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.guard(py, "disconnect", |connection| connection.tell_disconnect(py))
    }

    fn tell_disconnect(&self, py: Python<'_>) -> PyResult<()> {
        let exchange = self.state.borrow().exchange.clone();
        exchange.map_or(Ok(()), |exchange| exchange.disconnect(py, true))
    }
}

impl Carried for Connection {
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

    fn data_received(self: &Rc<Self>, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        self.receive(py, data)
    }

    fn eof_received(&self, py: Python<'_>) -> PyResult<bool> {
        self.end.set(End::Here);
        if self.sides.end_as_a_whole(py)? {
            return Ok(false);
        }
        // The missing part of a body will not come, so it cannot be late.
        self.deadline.set(None);
        // Requests that have not had their turn are answered first; that before them may be over, and still be here.
        let waiting = self.resume_scheduled.get();
        let exchange = {
            let state = &mut *self.state.borrow_mut();
            if waiting || state.exchange.is_some() {
                let _: Eof = state.wire.receive_eof(!state.pending.is_empty());
            }
            state.exchange.clone()
        };
        match exchange.filter(|exchange| exchange.state() != ExchangeState::Complete) {
            Some(exchange) => exchange.leave(py, true).map(|()| true),
            None if waiting => Ok(true),
            // Output may still wait for the client, which has its time for it.
            None => self.close(py, Closing::AtOnce).map(|()| false),
        }
    }

    /// Its earlier input is still there, and is read in turn. Of an incomplete body, the end is seen when that was
    /// read.
    #[cold]
    fn hung_up(&self, py: Python<'_>, reset: bool) -> PyResult<()> {
        let waits = self.is_read_paused() && Self::is_busy(&self.state.borrow());
        if !waits || self.is_closed() {
            return Ok(());
        }
        if reset {
            return self.abort(py);
        }
        self.end.set(End::Known);
        let exchange = self.state.borrow().exchange.clone();
        exchange.map_or(Ok(()), |exchange| exchange.leave(py, true))
    }

    fn pause_writing(&self, py: Python<'_>) -> PyResult<()> {
        self.capacity.pause();
        self.reader.wait(py, self)
    }

    fn resume_writing(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        if self.life.get() == Life::Lingering {
            self.note_linger(py)?;
        }
        self.relieve(py)
    }

    fn connection_lost(&self, py: Python<'_>) -> PyResult<()> {
        self.forget(py)?;
        self.life.set(Life::Closed);
        self.note(py, &self.core.trace, "HTTP connection lost")?;
        if let Reading::Paused { heeded } = self.reading.replace(Reading::On) {
            self.ignore_end(py, heeded)?;
        }
        self.leave_deadlines();
        self.deadline.set(None);
        self.reader.stop();
        let exchange = {
            let mut state = self.state.borrow_mut();
            state.pending = Vec::new();
            state.held = None;
            self.core.hub.buffers.give(std::mem::take(&mut state.out));
            state.exchange.take()
        };
        self.sides.drop_carrier();
        if let Some(exchange) = exchange {
            exchange.leave(py, false)?;
        }
        self.relieve(py)
    }

    #[cold]
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.leave_deadlines();
        let aborted = self.abort(py);
        let exchange = self.state.borrow_mut().exchange.take();
        if let Some(exchange) = exchange {
            exchange.leave(py, false)?;
        }
        self.relieve(py)?;
        self.forget(py).and(aborted)
    }
}

impl Connection {
    /// There is room for more, or sending has become impossible: resume waiting writers.
    pub(super) fn relieve(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_open() {
            self.reader.stop();
        }
        self.capacity.resume(py, &self.core.names)
    }
}
