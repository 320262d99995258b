//! The input: divided into requests, bodies and ends of streams; and the applications that it is for.

use std::cell::RefCell;
use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use wire::fields::Key;
use wire::h2::{Event, Head, Progress, Scratch, StreamId};

use super::connection::{Connection, State, Stream};
use super::states::{Awaits, Ending, Presence};
use crate::asgi::runner::Runner;
use crate::asgi::scope::Request;
use crate::base::names::Names;
use crate::base::places;
use crate::base::task::Start;
use crate::conn::carried::Carried;
use crate::streams::headers::{HeadFields, Remembers, is_forwarded};
use crate::streams::open::{OpenStream, shrink};
use crate::streams::pairs::{Repeated, StaticPairs};
use crate::streams::starting::{Asked, Opening, Pace, Starts, Wanted};

impl Connection {
    /// Take bytes from the client, from any source.
    pub(super) fn receive(self: &Rc<Self>, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        if let Some(metrics) = &self.core.metrics {
            metrics.add(places::BYTES_RECEIVED, data.len());
        }
        if !self.is_open() {
            return Ok(());
        }
        self.waits.presence.set(Presence::Heard);
        self.refused.set(0);
        if !self.outflow.rests.get() {
            self.outflow.written.set(0);
        }
        let outer = self.consuming.replace(true);
        let outcome =
            self.take_in(py, data).and_then(|()| self.start_asked(py, true)).and_then(|()| self.serve_tunnels(py));
        self.consuming.set(outer);
        if outer {
            return outcome;
        }
        let flushed = self.flush(py);
        outcome.and(flushed)?;
        self.regulate(py)?;
        self.after(py)
    }

    /// Process all input; an incomplete rest is kept.
    fn take_in(self: &Rc<Self>, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        self.give_back();
        self.count_time();
        let mut pending = std::mem::take(&mut self.state.borrow_mut().pending);
        if pending.is_empty() {
            let used = self.core.sections.with_scratch(|scratch| self.events(py, data, scratch))?;
            let rest = data.get(used..).unwrap_or_default();
            if !rest.is_empty() {
                self.state.borrow_mut().pending = rest.to_vec();
            }
            return Ok(());
        }
        pending.extend_from_slice(data);
        let used = self.core.sections.with_scratch(|scratch| self.events(py, &pending, scratch))?;
        if used < pending.len() {
            pending.drain(..used);
            self.state.borrow_mut().pending = pending;
        }
        Ok(())
    }

    /// Time gives back some of a client's budget.
    fn count_time(&self) {
        let seconds = self.waits.counted.passed(self.core.hub.deadlines.now());
        if seconds > 0 {
            self.state.borrow_mut().wire.pass(seconds);
        }
    }

    /// Give streams without an owner back to the client.
    pub(super) fn give_back(&self) {
        let mut gone = self.due.gone.borrow_mut();
        if gone.is_empty() {
            return;
        }
        let State { wire, out, .. } = &mut *self.state.borrow_mut();
        for id in gone.drain(..) {
            wire.release(out, id);
        }
    }

    /// No request is in progress: keep only as much room as a connection with a few requests at a time needs.
    pub(super) fn shrink(&self) {
        self.state.borrow_mut().streams.shrink();
        shrink(&self.due.gone);
        shrink(&self.due.ended);
    }

    /// Process `input`; returns how much was used.
    fn events(self: &Rc<Self>, py: Python<'_>, input: &[u8], scratch: &mut Scratch) -> PyResult<usize> {
        let limits = &self.core.settings.limits;
        let mut at = 0;
        while self.is_open() {
            let rest = input.get(at..).unwrap_or_default();
            let Progress { consumed, event } = {
                let State { wire, out, .. } = &mut *self.state.borrow_mut();
                self.core.hub.buffers.supply(out);
                wire.poll(rest, out, scratch, limits)
            };
            at += consumed;
            self.waits.progressed.set(self.waits.progressed.get() || consumed > 0);
            match event {
                Event::NeedMore => break,
                Event::Request { stream, end } => self.ask(py, stream, end, scratch.head())?,
                Event::Data { stream, data, end } => self.feed(py, stream, rest.get(data).unwrap_or_default(), end)?,
                Event::Reset { stream, .. } => {
                    self.lose(py, stream)?;
                    self.give_back();
                }
                Event::Refused { stream, error } => {
                    if self.stream(stream).is_none() {
                        let stream = Rc::new(Stream::new(self.clone(), stream));
                        self.state.borrow_mut().streams.keep(OpenStream { stream, exchange: None });
                    }
                    self.refuse(py, stream, &error.into())?;
                }
                Event::Pong(data) => self.pong(py, data)?,
                Event::GoAway { .. } => {}
                Event::Failed(failure) => self.fail(py, failure)?,
                Event::Closed => return Ok(input.len()),
            }
        }
        Ok(at)
    }

    /// A request, complete or with a body that is still to come: its application starts once all available input was
    /// processed.
    fn ask(self: &Rc<Self>, py: Python<'_>, id: StreamId, end: bool, head: &Head) -> PyResult<()> {
        self.waits.first.set(false);
        // It may be over before the next check, leaving the connection as idle as it was.
        self.waits.awaits.set(Awaits::Nothing);
        self.say_end()?;
        if head.protocol().is_some() {
            return self.ask_for_tunnel(py, id, end, head);
        }
        let runner = &self.core.runner;
        let request = Request {
            http_version: &self.core.names.http_2,
            is_of_1_0: false,
            method: head.verb,
            method_text: head.method(),
            path: head.path(),
            query: head.query(),
            fields: HeadFields { connection: &**self, head, is_early: false },
            has_body: !end,
            expects_continue: head.expects_continue,
        };
        let stream = Rc::new(Stream::new(self.clone(), id));
        let exchange = runner.begin(py, &request, self.peer.clone(), stream.clone())?;
        self.note_begin();
        let look = runner.look(request.path, || is_forwarded(head));
        {
            let mut state = self.state.borrow_mut();
            state.streams.keep(OpenStream { stream: stream.clone(), exchange: Some(exchange.clone()) });
            state.streams.ask(Asked { id, what: Wanted::Response { exchange, look } });
        }
        if end || head.expects_continue { Ok(()) } else { stream.restart_deadline(py) }
    }

    /// A piece of a request's body.
    fn feed(&self, py: Python<'_>, id: StreamId, piece: &[u8], end: bool) -> PyResult<()> {
        let found = self.state.borrow().streams.get(id).map(|slot| (slot.stream.clone(), slot.exchange.clone()));
        let (stream, exchange) = match found {
            Some((stream, Some(exchange))) => (stream, exchange),
            Some((stream, None)) => {
                if let Some(channel) = stream.channel.get() {
                    stream.keep_input(channel, piece, end);
                }
                return Ok(());
            }
            None => return Ok(()),
        };
        let unread = if piece.is_empty() {
            exchange.body_length()
        } else {
            stream.pieces.set(stream.pieces.get() + 1);
            exchange.feed(py, piece)
        };
        if end {
            exchange.feed_end();
            stream.leave_body_deadline();
        } else {
            stream.extend_deadline(piece.len(), unread);
        }
        exchange.wake(py)
    }

    /// Read from the socket again.
    pub(super) fn resume_reading(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_closed() || self.has_all.get() {
            return Ok(());
        }
        self.on_carrier(py, |carrier| carrier.resume_reading(py)).map(drop)
    }
}

impl Remembers for Connection {
    #[inline]
    fn names(&self) -> &Names {
        &self.core.names
    }

    #[inline]
    fn pairs(&self) -> &StaticPairs {
        &self.core.sections.pairs
    }

    #[inline]
    fn repeated(&self) -> &RefCell<Repeated> {
        &self.repeated
    }

    #[inline]
    fn with_kept<R>(&self, entry: Key, with: impl FnOnce(&mut Option<Py<PyTuple>>) -> R) -> Option<R> {
        self.state.borrow_mut().wire.kept(entry).map(with)
    }
}

impl Starts for Connection {
    type Id = StreamId;

    #[inline]
    fn runner(&self) -> &Rc<Runner> {
        &self.core.runner
    }

    #[inline]
    fn pace(&self) -> &Pace {
        &self.pace
    }

    #[inline]
    fn start(&self) -> Start {
        self.start.get()
    }

    #[inline]
    fn next_asked(&self) -> Option<Asked<StreamId>> {
        self.state.borrow_mut().streams.next_asked()
    }

    fn has_asked(&self) -> bool {
        self.state.borrow().streams.has_asked()
    }

    #[cold]
    fn holds_some(&self, py: Python<'_>) -> PyResult<bool> {
        if self.outflow.unsent_streams.get() > 0 {
            return Ok(true);
        }
        let waiting = self.on_carrier(py, |carrier| carrier.waiting(py))?;
        Ok(waiting.unwrap_or_default() > 0)
    }

    #[cold]
    fn make_room(&self, py: Python<'_>) -> PyResult<()> {
        match self.ending.get() {
            Ending::None | Ending::Due | Ending::Announced | Ending::Heard => self.end_requests(py),
            Ending::LastCall | Ending::Last | Ending::Now => Ok(()),
        }
    }

    fn open_websocket(&self, py: Python<'_>, id: StreamId, opening: &Opening) -> PyResult<()> {
        self.open_tunnel(py, id, opening)
    }

    fn resume(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.pace.resume_scheduled.set(false);
        self.outflow.rests.set(false);
        self.outflow.written.set(0);
        if !self.is_open() {
            return Ok(());
        }
        let outer = self.consuming.replace(true);
        let started = self.start_asked(py, true).and_then(|()| self.serve_tunnels(py));
        self.consuming.set(outer);
        let flushed = self.flush(py);
        started.and(flushed)?;
        self.after(py)
    }

    fn serve(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        let outer = self.consuming.replace(true);
        let served = self.serve_tunnels(py);
        self.consuming.set(outer);
        let flushed = self.flush(py);
        served.and(flushed)?;
        self.after(py)
    }
}
