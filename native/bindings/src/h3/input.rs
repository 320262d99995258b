//! The input: requests, bodies and ends of streams, as far as their applications read them.

use std::cell::RefCell;
use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use quic::{Bytes, ReadEnd};
use wire::error::{Error, Refusal};
use wire::fields::Key;
use wire::h3::{ErrorCode, Event, Head, Progress, Scratch, StreamId, UniStream};
use wire::limits::table::HIGH_WATER_LIMIT as HIGH_WATER;
use wire::method::Method;

use super::connection::{Connection, Stream};
use super::states::{Awaits, Ending, Reading};
use crate::asgi::refused::Refused;
use crate::asgi::runner::Runner;
use crate::asgi::scope::Request;
use crate::base::names::Names;
use crate::base::places;
use crate::base::task::Start;
use crate::streams::headers::{HeadFields, Remembers, is_forwarded};
use crate::streams::open::shrink;
use crate::streams::pairs::{Repeated, StaticPairs};
use crate::streams::starting::{Asked, Opening, Pace, Starts, Wanted};
use crate::streams::tunnel::{Tunnel, read_opening};

/// Bytes that are read of a stream before it is seen whether its application has enough.
const AT_ONCE: usize = 64 * 1024;

impl Connection {
    /// Read a request stream, until its application has enough.
    pub(super) fn read(self: &Rc<Self>, py: Python<'_>, stream: &Rc<Stream>) -> PyResult<()> {
        self.count_time();
        while self.is_open() && stream.reading.get() != Reading::Over {
            if stream.is_full() {
                stream.reading.set(Reading::Paused);
                // The client may have left nevertheless.
                let reset = self.quic.reset_of(stream.id.number());
                return reset.map_or(Ok(()), |code| self.reset_by_client(py, stream, code));
            }
            stream.reading.set(Reading::Open);
            let mut chunks = self.chunks.take();
            let read = self.quic.read(py, stream.id.number(), AT_ONCE, &mut chunks)?;
            self.count_received(read.length);
            let taken = self.take_in(py, stream, &chunks, read.end == ReadEnd::Finished);
            chunks.clear();
            self.chunks.set(chunks);
            taken?;
            match read.end {
                ReadEnd::More => {}
                ReadEnd::Blocked => return Ok(()),
                ReadEnd::Finished | ReadEnd::Closed => stream.reading.set(Reading::Over),
                ReadEnd::Reset(code) => self.reset_by_client(py, stream, code)?,
            }
        }
        Ok(())
    }

    fn reset_by_client(&self, py: Python<'_>, stream: &Rc<Stream>, code: u64) -> PyResult<()> {
        stream.reading.set(Reading::Over);
        if self.stream(stream.id).is_none() {
            return Ok(());
        }
        let event = self.state.borrow_mut().wire.reset_by_client(stream.id, code);
        self.ended_by_client(py, stream, &event)
    }

    fn count_received(&self, length: usize) {
        if let Some(metrics) = &self.core.metrics {
            metrics.add(places::BYTES_RECEIVED, length);
        }
    }

    /// Time gives back some of a client's budget.
    fn count_time(&self) {
        let seconds = self.waits.counted.passed(self.core.hub.deadlines.now());
        if seconds > 0 {
            self.state.borrow_mut().wire.pass(seconds);
        }
    }

    /// Process these bytes of a stream, with which it `ends` or does not.
    fn take_in(self: &Rc<Self>, py: Python<'_>, stream: &Rc<Stream>, chunks: &[Bytes], ends: bool) -> PyResult<()> {
        let Some((last, others)) = chunks.split_last() else {
            return if ends { self.take_one(py, stream, &[], true) } else { Ok(()) };
        };
        others.iter().try_for_each(|chunk| self.take_one(py, stream, chunk, false))?;
        self.take_one(py, stream, last, ends)
    }

    fn take_one(self: &Rc<Self>, py: Python<'_>, stream: &Rc<Stream>, input: &[u8], end: bool) -> PyResult<()> {
        if let Some((kept, ends)) = &mut *stream.blocked_input.borrow_mut() {
            kept.extend_from_slice(input);
            *ends = end;
            return Ok(());
        }
        self.core.sections.with_scratch(|scratch| self.events(py, stream, input, end, scratch))
    }

    fn events(
        self: &Rc<Self>,
        py: Python<'_>,
        stream: &Rc<Stream>,
        input: &[u8],
        end: bool,
        scratch: &mut Scratch,
    ) -> PyResult<()> {
        let limits = &self.core.settings.limits;
        let id = stream.id;
        let mut at = 0;
        while self.is_open() {
            let rest = input.get(at..).unwrap_or_default();
            let Progress { consumed, event } = self.state.borrow_mut().wire.receive(id, rest, end, scratch, limits);
            at += consumed;
            match event {
                Event::NeedMore | Event::Closed => return Ok(()),
                Event::Request { end: is_whole, .. } => {
                    self.ask(py, stream, is_whole, scratch.head())?;
                    if is_whole {
                        return Ok(());
                    }
                }
                Event::Data { data, end: is_last, .. } => {
                    self.feed(py, stream, rest.get(data).unwrap_or_default(), is_last)?;
                    if is_last {
                        return Ok(());
                    }
                }
                Event::Refused { error, .. } => {
                    self.note_request(stream);
                    return self.refuse(py, id, &error.into());
                }
                Event::Blocked { .. } => {
                    let rest = input.get(at..).unwrap_or_default().to_vec();
                    stream.blocked_input.replace(Some((rest, end)));
                    return Ok(());
                }
                Event::Reset { code, .. } => {
                    self.cut(py, id.number(), code)?;
                    return self.lose(py, id);
                }
                Event::Failed(failure) => return self.fail(py, failure),
                Event::Unblocked { .. } | Event::Stop { .. } | Event::GoAway => {}
            }
        }
        Ok(())
    }

    /// Read a unidirectional stream of the client's: settings, entries of its table, acknowledgements.
    pub(super) fn read_uni(self: &Rc<Self>, py: Python<'_>, number: u64) -> PyResult<()> {
        self.count_time();
        loop {
            let place = self.state.borrow().unis.iter().position(|&(known, _)| known == number);
            let Some(place) = place else { return Ok(()) };
            let (_, mut uni) = self.state.borrow_mut().unis.swap_remove(place);
            let mut chunks = self.chunks.take();
            let read = self.quic.read(py, number, AT_ONCE, &mut chunks)?;
            self.count_received(read.length);
            let mut unblocked = Vec::new();
            let ends = read.end == ReadEnd::Finished;
            let mut outcome = Ok(());
            if chunks.is_empty() && ends {
                outcome = self.take_uni(py, number, &mut uni, &[], true, &mut unblocked);
            }
            for (index, chunk) in (1..).zip(&chunks) {
                let last = ends && index == chunks.len();
                outcome = outcome.and_then(|()| self.take_uni(py, number, &mut uni, chunk, last, &mut unblocked));
            }
            chunks.clear();
            self.chunks.set(chunks);
            outcome?;
            if let ReadEnd::Reset(_) = read.end {
                let event = self.state.borrow_mut().wire.reset_uni(&uni);
                if let Event::Failed(failure) = event {
                    return self.fail(py, failure);
                }
            }
            if matches!(read.end, ReadEnd::More | ReadEnd::Blocked) {
                self.state.borrow_mut().unis.push((number, uni));
            }
            unblocked.into_iter().try_for_each(|id| self.unblock(py, id))?;
            if read.end != ReadEnd::More || !self.is_open() {
                return Ok(());
            }
        }
    }

    fn take_uni(
        &self,
        py: Python<'_>,
        number: u64,
        uni: &mut UniStream,
        input: &[u8],
        end: bool,
        unblocked: &mut Vec<StreamId>,
    ) -> PyResult<()> {
        let mut at = 0;
        while self.is_open() {
            let rest = input.get(at..).unwrap_or_default();
            let Progress { consumed, event } = self.state.borrow_mut().wire.receive_uni(uni, rest, end);
            at += consumed;
            match event {
                Event::NeedMore | Event::Closed => return Ok(()),
                Event::Unblocked { stream } => unblocked.push(stream),
                Event::Stop { code } => self.quic.stop(py, number, code.number())?,
                Event::Failed(failure) => return self.fail(py, failure),
                _ => {}
            }
        }
        Ok(())
    }

    /// The entries that a stream has waited for are there.
    fn unblock(self: &Rc<Self>, py: Python<'_>, id: StreamId) -> PyResult<()> {
        let Some(stream) = self.stream(id) else { return Ok(()) };
        let kept = stream.blocked_input.take();
        let Some((input, end)) = kept else { return Ok(()) };
        self.core.sections.with_scratch(|scratch| self.events(py, &stream, &input, end, scratch))?;
        self.read(py, &stream)
    }

    /// Read streams whose applications want more.
    pub(super) fn read_on(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        loop {
            let Some(id) = self.due.to_read.borrow_mut().pop() else { return Ok(()) };
            if let Some(stream) = self.stream(id).filter(|stream| stream.reading.get() == Reading::Paused) {
                self.read(py, &stream)?;
            }
        }
    }

    /// Give streams without an owner back to the client.
    pub(super) fn give_back(&self) {
        let mut gone = self.due.gone.borrow_mut();
        if gone.is_empty() {
            return;
        }
        let wire = &mut self.state.borrow_mut().wire;
        for id in gone.drain(..) {
            wire.release(id);
        }
    }

    /// No request is in progress: keep only as much room as a connection with a few requests at a time needs.
    pub(super) fn shrink(&self) {
        self.state.borrow_mut().streams.shrink();
        shrink(&self.due.gone);
        shrink(&self.due.ended);
    }

    /// A request has come, or what should have been one.
    fn note_request(&self, stream: &Stream) {
        stream.has_begun.set(true);
        self.waits.first.set(false);
        // It may be over before the next check, leaving the connection as idle as it was.
        self.waits.awaits.set(Awaits::Nothing);
    }

    /// A request, complete or with a body that is still to come: its application starts once all available input was
    /// processed.
    fn ask(self: &Rc<Self>, py: Python<'_>, stream: &Rc<Stream>, end: bool, head: &Head) -> PyResult<()> {
        self.note_request(stream);
        stream.leave_body_deadline();
        let id = stream.id;
        let is_early = self.quic.is_handshaking();
        if is_early && !(self.core.early_data && is_safe(head.verb)) {
            self.core.count(places::EARLY_REFUSED);
            return self.refuse(py, id, &Refused::from(Error::new(Refusal::EarlyData)).of(head.verb));
        }
        stream.prioritize(head.priority);
        if head.protocol().is_some() {
            return self.ask_for_tunnel(py, stream, end, head);
        }
        let runner = &self.core.runner;
        let request = Request {
            http_version: &self.core.names.http_3,
            is_of_1_0: false,
            method: head.verb,
            method_text: head.method(),
            path: head.path(),
            query: head.query(),
            fields: HeadFields { connection: &**self, head, is_early },
            has_body: !end,
            expects_continue: head.expects_continue,
        };
        let exchange = runner.begin(py, &request, stream.peer.clone(), stream.clone())?;
        self.note_begin();
        let look = runner.look(request.path, || is_forwarded(head));
        {
            let mut state = self.state.borrow_mut();
            if let Some(slot) = state.streams.get_mut(id) {
                slot.exchange = Some(exchange.clone());
            }
            state.streams.ask(Asked { id, what: Wanted::Response { exchange, look } });
        }
        if end || head.expects_continue { Ok(()) } else { stream.restart_deadline(py) }
    }

    /// A request for a stream that becomes something else.
    fn ask_for_tunnel(self: &Rc<Self>, py: Python<'_>, stream: &Rc<Stream>, end: bool, head: &Head) -> PyResult<()> {
        let id = stream.id;
        let opening = match read_opening(py, &**self, head, end, self.core.deflate)? {
            Ok(opening) => opening,
            Err(error) => return self.refuse(py, id, &Refused::from(error).of(head.verb)),
        };
        let _ = stream.channel.set(Box::default());
        self.state.borrow_mut().streams.ask(Asked { id, what: Wanted::WebSocket(Box::new(opening)) });
        Ok(())
    }

    /// A piece of a request's body.
    fn feed(&self, py: Python<'_>, stream: &Rc<Stream>, piece: &[u8], end: bool) -> PyResult<()> {
        let (bytes, pieces) = stream.unconsumed.get();
        stream.unconsumed.set((bytes + piece.len(), pieces + usize::from(!piece.is_empty())));
        if let Some(channel) = stream.channel.get() {
            channel.keep(piece, end);
            self.due.to_serve.borrow_mut().push(stream.id);
            return Ok(());
        }
        let Some(exchange) = self.exchange(stream.id) else { return Ok(()) };
        let unread = if piece.is_empty() { exchange.body_length() } else { exchange.feed(py, piece) };
        if end {
            exchange.feed_end();
            stream.leave_body_deadline();
        } else {
            stream.extend_deadline(piece.len(), unread);
        }
        exchange.wake(py)
    }
}

/// Whether to repeat the request does no harm (RFC 9110 section 9.2.1).
fn is_safe(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head | Method::Options | Method::Trace)
}

impl Stream {
    /// Whether the application has enough to read, or the input waits for entries of the table: QUIC keeps the rest then,
    /// within its windows.
    fn is_full(&self) -> bool {
        if self.blocked_input.borrow().is_some() {
            return true;
        }
        let unread = match self.channel.get() {
            Some(channel) => channel.unread(),
            None => self.connection.exchange(self.id).map_or(0, |exchange| exchange.body_length()),
        };
        unread > HIGH_WATER
    }

    /// Nothing more of the stream is wanted.
    pub(super) fn stop_reading(&self, py: Python<'_>, code: ErrorCode) -> PyResult<()> {
        if self.reading.replace(Reading::Over) == Reading::Over {
            return Ok(());
        }
        self.connection.quic.stop(py, self.id.number(), code.number())
    }

    /// Bytes of the body were read, up to those that are still `unread`; whether there were any.
    pub(super) fn consume(&self, unread: usize) -> bool {
        let (bytes, pieces) = self.unconsumed.get();
        let read = bytes.saturating_sub(unread);
        if read == 0 {
            return false;
        }
        self.unconsumed.set((bytes - read, 0));
        self.connection.state.borrow_mut().wire.consume(read, pieces);
        true
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
    fn holds_some(&self, _py: Python<'_>) -> PyResult<bool> {
        Ok(self.held_bodies().0 > 0)
    }

    #[cold]
    fn make_room(&self, py: Python<'_>) -> PyResult<()> {
        if self.ending.get() == Ending::Now { Ok(()) } else { self.end_requests(py) }
    }

    fn open_websocket(&self, py: Python<'_>, id: StreamId, opening: &Opening) -> PyResult<()> {
        self.open_tunnel(py, id, opening)
    }

    fn resume(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.pace.resume_scheduled.set(false);
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
        self.serve_scheduled.set(false);
        let outer = self.consuming.replace(true);
        let served = self.read_on(py).and_then(|()| self.serve_tunnels(py));
        self.consuming.set(outer);
        let flushed = self.flush(py);
        served.and(flushed)?;
        self.after(py)
    }
}

impl Connection {
    /// Hand on the data that has come for tunnels.
    pub(super) fn serve_tunnels(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        loop {
            let Some(id) = self.due.to_serve.borrow_mut().pop() else { return Ok(()) };
            let Some(stream) = self.stream(id) else { continue };
            stream.deliver(py)?;
            if stream.reading.get() == Reading::Paused && !stream.is_full() {
                self.read(py, &stream)?;
            }
        }
    }
}
