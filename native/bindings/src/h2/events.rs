//! The events of a connection, one method for each; they come from a socket of ours or from the protocol object.

use std::rc::Rc;

use pyo3::prelude::*;
use wire::limits::table::HIGH_WATER_LIMIT as HIGH_WATER;

use super::connection::Connection;
use super::deadline::LAST;
use super::states::Ending;
use crate::base::places;
use crate::base::task::Start;
use crate::conn::carried::{Carried, Life, Sides};
use crate::conn::carrier::Carrier;
use crate::conn::hub::Hub;

/// Bytes that the kernel takes beyond those on their way: whatever is more urgent by then comes behind them.
const UNSENT: i32 = 64 * 1024;

// Its beginning, and the server's own decisions.

impl Connection {
    /// A client speaks HTTP/2 on what carries this: `protocol` is the object that Python knows, among the live connections by
    /// now. It is `announced` already that the client should look for another one.
    pub(crate) fn begin(
        self: &Rc<Self>,
        protocol: &Bound<'_, PyAny>,
        carrier: Rc<dyn Carrier>,
        announced: bool,
    ) -> PyResult<()> {
        let py = protocol.py();
        self.sides.attach(protocol, carrier);
        let _ = self.own.set(Rc::downgrade(self));
        self.guard(py, "connection_made", |connection| {
            connection.core.count(places::HTTP2_OPENED);
            connection.start.set(Start::of(&connection.core, py)?);
            connection.on_carrier(py, |carrier| carrier.keep_little(py, UNSENT))?;
            connection.enter_deadlines();
            connection.update_deadline(py)?;
            connection.restart_ping(py, connection.core.ping_interval)?;
            if announced { connection.announce(py) } else { connection.flush(py) }
        })
    }

    /// No more requests should come; those that do are served.
    pub(crate) fn announce_close(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.guard(py, "announce_close", |connection| connection.announce(py))
    }

    fn announce(&self, py: Python<'_>) -> PyResult<()> {
        if self.ending.get() != Ending::None || !self.is_open() {
            return Ok(());
        }
        self.ending.set(Ending::Due);
        if !self.state.borrow().wire.is_idle() {
            return Ok(());
        }
        self.say_end()?;
        self.flush_unless_consuming(py)
    }

    /// Send the GOAWAY that is due, if any: a request to open no more streams, or the id of the last one.
    ///
    /// Some clients read nothing behind a GOAWAY, not even the responses that they wait for (Python's h2, and so
    /// httpx). So while there are responses it is only sent to a client that goes on to ask; and the PING, whose answer
    /// comes behind all requests sent before, precedes it.
    pub(super) fn say_end(&self) -> PyResult<()> {
        let next = match self.ending.get() {
            Ending::Due => Ending::Announced,
            Ending::Last => Ending::Now,
            _ => return Ok(()),
        };
        self.ending.set(next);
        self.put(|wire, out| {
            if next == Ending::Announced {
                wire.ping(out, LAST);
                wire.announce_end(out);
            } else {
                wire.end(out);
            }
            Ok(())
        })
    }

    /// A ping was answered: all requests that the client sent before it got the GOAWAY are here.
    pub(super) fn pong(&self, py: Python<'_>, data: [u8; 8]) -> PyResult<()> {
        match self.ending.get() {
            Ending::Announced if data == LAST => self.ending.set(Ending::Heard),
            Ending::LastCall if data == LAST => return self.end_requests(py),
            _ => {}
        }
        Ok(())
    }

    /// The server stops: say which request was the last, as soon as it is known that none is on its way, and close when all are
    /// answered.
    pub(crate) fn shutdown(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.stops.set(true);
        self.guard(py, "shutdown", |connection| match connection.ending.get() {
            Ending::None | Ending::Due | Ending::Heard => connection.end_requests(py),
            Ending::Announced => {
                connection.ending.set(Ending::LastCall);
                connection.wait_for_last_call(py)
            }
            Ending::LastCall | Ending::Last | Ending::Now => Ok(()),
        })
    }

    /// Take no further request; but a client that got no GOAWAY yet, and waits for responses, gets it with its next
    /// request.
    pub(super) fn end_requests(&self, py: Python<'_>) -> PyResult<()> {
        let knows = !matches!(self.ending.replace(Ending::Last), Ending::None | Ending::Due);
        if !self.is_open() {
            return Ok(());
        }
        self.waits.input.set(None);
        if knows || self.state.borrow().wire.is_idle() {
            self.say_end()?;
        }
        self.settle_unless_consuming(py)
    }

    /// Tell the applications that their client is gone, while their responses can still be sent.
    pub(crate) fn disconnect(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.guard(py, "disconnect", |connection| connection.tell_disconnect(py))
    }

    /// The client has left, and can still read its responses.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        self.exchanges().into_iter().try_for_each(|exchange| exchange.leave(py, true))
    }

    fn tell_disconnect(&self, py: Python<'_>) -> PyResult<()> {
        self.exchanges().into_iter().try_for_each(|exchange| exchange.disconnect(py, true))
    }
}

impl Carried for Connection {
    const ENDS: &[usize] = &[places::CONNECTIONS_CLOSED, places::HTTP2_CLOSED];

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
        self.has_all.set(true);
        if !self.is_open() || self.sides.end_as_a_whole(py)? || self.state.borrow().wire.is_idle() {
            return Ok(false);
        }
        // The missing parts of bodies will not come, so they cannot be late.
        self.waits.input.set(None);
        self.waits.ping.set(None);
        let streams: Vec<_> = self.state.borrow().streams.iter().cloned().collect();
        for stream in streams {
            stream.leave_body_deadline();
        }
        for stream in self.state.borrow().streams.iter() {
            if let Some(channel) = stream.channel.get() {
                stream.keep_input(channel, b"", true);
            }
        }
        self.leave(py)?;
        self.serve_tunnels(py)?;
        self.watch_windows(py)?;
        Ok(true)
    }

    fn hung_up(&self, py: Python<'_>, reset: bool) -> PyResult<()> {
        if self.is_closed() {
            Ok(())
        } else if reset {
            self.abort(py)
        } else {
            self.leave(py)
        }
    }

    /// From now on the output waits here, where it has an order.
    fn pause_writing(&self, py: Python<'_>) -> PyResult<()> {
        self.outflow.paused.set(true);
        self.waits.reader.wait(py, self)
    }

    fn resume_writing(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.outflow.paused.set(false);
        match self.life.get() {
            Life::Open => {}
            Life::Lingering => return self.note_linger(py),
            Life::Closed => return Ok(()),
        }
        self.waits.reader.stop();
        self.resume_reading(py)?;
        self.flush_unless_consuming(py)?;
        self.after(py)
    }

    fn connection_lost(&self, py: Python<'_>) -> PyResult<()> {
        self.forget(py)?;
        self.life.set(Life::Closed);
        self.note(py, &self.core.trace, "HTTP connection lost")?;
        self.leave_deadlines();
        {
            let mut state = self.state.borrow_mut();
            state.pending = Vec::new();
            self.core.hub.buffers.give(std::mem::take(&mut state.out));
        }
        self.sides.drop_carrier();
        self.lose_all(py)
    }

    #[cold]
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.leave_deadlines();
        let aborted = self.abort(py);
        self.lose_all(py)?;
        self.forget(py).and(aborted)
    }
}

impl Connection {
    /// A client that does not take answers may not ask for more. What it asks for while large ones are on their way is another
    /// matter: it may be urgent.
    pub(super) fn regulate(&self, py: Python<'_>) -> PyResult<()> {
        if self.outflow.paused.get() && self.state.borrow().out.len() > HIGH_WATER {
            self.on_carrier(py, |carrier| carrier.pause_reading(py))?;
        }
        Ok(())
    }
}
