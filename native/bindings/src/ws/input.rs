//! Frames from the client.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use wire::limits::table::HIGH_WATER_LIMIT;
use wire::ws::{Event, Failure, Kind};

use super::session::Session;
use super::states::{PeerEnd, State};
use crate::base::ffi::bytes::Growing;
use crate::base::places;
use crate::base::shortcuts::Shortcut;
use crate::conn::carried::Carried;

/// Binary messages of a frame so large, if they do not come as a whole, become objects as they come. Smaller ones are
/// put together in buffers that are used again.
const PIECES_FROM: u64 = 16 * 1024;

/// Where no message becomes one as it comes.
const NO_PIECES: u64 = u64::MAX;

/// An event, without references to the input.
enum Found<'py> {
    Nothing,
    Text(Bound<'py, PyAny>),
    Bytes(Bound<'py, PyAny>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(u16, String),
    Failed(Failure),
    /// There is no memory for it.
    Broken(PyErr),
    Over,
}

impl Session {
    /// From which size on they do here.
    pub(super) fn pieces_from(&self) -> u64 {
        if self.core.settings.shortcuts.take(Shortcut::Bytes) { PIECES_FROM } else { NO_PIECES }
    }

    // Input that was not processed yet.

    pub(super) fn feed(&self, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let mut input = self.inflow.input.borrow_mut();
        self.core.hub.buffers.supply(&mut input);
        input.extend_from_slice(data);
    }

    pub(super) fn drop_input(&self) {
        self.inflow.dealt_with.set(0);
        let input = self.inflow.input.take();
        self.core.hub.buffers.give(input);
        let piece = self.inflow.piece.take();
        drop(piece);
    }

    /// Drop the processed part of the input.
    fn shorten_input(&self) {
        let mut input = self.inflow.input.borrow_mut();
        let dealt_with = self.inflow.dealt_with.take().min(input.len());
        if dealt_with < input.len() {
            input.drain(..dealt_with);
            return;
        }
        let all = std::mem::take(&mut *input);
        drop(input);
        self.core.hub.buffers.give(all);
    }

    /// Stop reading while there is enough that cannot be looked at yet.
    pub(super) fn hold_if_full(&self, py: Python<'_>) -> PyResult<()> {
        if self.buffered() > HIGH_WATER_LIMIT { self.pause_reading(py) } else { Ok(()) }
    }

    /// Look for the next event in the input that was kept.
    fn poll_kept<'py>(&self, py: Python<'py>) -> Found<'py> {
        let mut input = self.inflow.input.borrow_mut();
        let rest = input.get_mut(self.inflow.dealt_with.get()..).unwrap_or_default();
        let (consumed, found) = self.poll(py, rest);
        self.inflow.dealt_with.set(self.inflow.dealt_with.get() + consumed);
        found
    }

    /// Look for the next event in `rest`; how much of that is dealt with. No Python code is run.
    fn poll<'py>(&self, py: Python<'py>, rest: &mut [u8]) -> (usize, Found<'py>) {
        let mut state = self.state.borrow_mut();
        let (State::Accepted(wire) | State::Closing(Some(wire))) = &mut *state else { return (0, Found::Nothing) };
        let pool = &mut *self.core.pool.borrow_mut();
        let progress = wire.poll(rest, pool, &self.core.limits);
        let bytes = |range| rest.get::<std::ops::Range<usize>>(range).unwrap_or_default();
        let found = match progress.event {
            Event::NeedMore => Found::Nothing,
            Event::Message { kind, payload } => {
                let content = payload.of(rest);
                let found = match kind {
                    Kind::Text => match PyString::from_bytes(py, content) {
                        Ok(text) => Found::Text(text.into_any()),
                        Err(_) => Found::Failed(Failure::Text),
                    },
                    Kind::Binary => Found::Bytes(PyBytes::new(py, content).into_any()),
                };
                if let wire::ws::Payload::Assembled(buffer) = payload {
                    pool.recycle(buffer);
                }
                found
            }
            Event::Piece { payload, left } => self.add_piece(py, bytes(payload), left).unwrap_or_else(Found::Broken),
            Event::Ping(range) => Found::Ping(bytes(range).to_vec()),
            Event::Pong(range) => Found::Pong(bytes(range).to_vec()),
            Event::Close { code, reason } => Found::Close(code, String::from_utf8_lossy(bytes(reason)).into_owned()),
            Event::Failed(failure) => Found::Failed(failure),
            Event::Closed => Found::Over,
        };
        (progress.consumed, found)
    }

    /// A piece of a large binary message, whose object is made as it comes.
    fn add_piece<'py>(&self, py: Python<'py>, piece: &[u8], left: u64) -> PyResult<Found<'py>> {
        let ahead = usize::try_from(left)?;
        let begun = self.inflow.piece.take();
        let grown = match begun {
            None => Growing::new(py, piece, ahead)?,
            Some(begun) => begun.push(py, piece, ahead)?,
        };
        if left == 0 {
            return Ok(Found::Bytes(grown.finish(py).into_any()));
        }
        self.inflow.piece.set(Some(Box::new(grown)));
        Ok(Found::Nothing)
    }

    /// Have `receive` put the next bytes into the large message in progress, if there is one with room for them.
    pub(super) fn with_piece(&self, receive: &mut dyn FnMut(&mut Growing)) {
        let Some(mut begun) = self.inflow.piece.take() else { return };
        let is_next = self.takes_frames() && self.buffered() == 0 && !self.inflow.consuming.get();
        if is_next && begun.has_room() {
            receive(&mut begun);
        }
        self.inflow.piece.set(Some(begun));
    }

    /// Read the bytes of a large message that were received where they belong.
    pub(super) fn read_piece(&self, py: Python<'_>, length: usize) -> PyResult<()> {
        let Some(mut begun) = self.inflow.piece.take() else { return Ok(()) };
        let left = match &mut *self.state.borrow_mut() {
            State::Accepted(wire) => wire.piece(begun.last_mut(length)),
            _ => None,
        };
        match left {
            Some(0) => self.take_frame(py, Found::Bytes(begun.finish(py).into_any())).map(drop),
            Some(_) => {
                self.inflow.piece.set(Some(begun));
                Ok(())
            }
            // Nothing but that message was to come.
            None => self.abort(py),
        }
    }

    /// Read frames for as long as the application keeps up.
    pub(super) fn read_frames(&self, py: Python<'_>) -> PyResult<()> {
        if self.inflow.consuming.replace(true) {
            return Ok(());
        }
        let mut outcome = Ok(true);
        while let Ok(true) = outcome
            && self.takes_frames()
        {
            let found = self.poll_kept(py);
            outcome = self.take_frame(py, found);
        }
        self.inflow.consuming.set(false);
        self.shorten_input();
        outcome.map(drop)
    }

    /// Read new input in place; frames that the application is not ready for are kept.
    pub(super) fn read_new(&self, py: Python<'_>, data: &mut [u8]) -> PyResult<()> {
        if self.buffered() > 0 || self.inflow.consuming.replace(true) {
            self.feed(data);
            return self.read_frames(py);
        }
        let mut outcome = Ok(true);
        let mut rest = data;
        while let Ok(true) = outcome
            && self.takes_frames()
        {
            let (consumed, found) = self.poll(py, rest);
            rest = rest.get_mut(consumed..).unwrap_or_default();
            match found {
                // Nothing counts that is behind it.
                Found::Close(..) => rest = &mut [],
                // Behind it a close frame is looked for.
                Found::Failed(_) => {
                    self.feed(rest);
                    rest = &mut [];
                }
                _ => {}
            }
            outcome = self.take_frame(py, found);
        }
        self.inflow.consuming.set(false);
        self.feed(rest);
        outcome?;
        // The end has come meanwhile, from this side.
        if self.awaiting_close.get() && self.buffered() > 0 { self.read_close(py) } else { Ok(()) }
    }

    fn takes_frames(&self) -> bool {
        !self.inflow.read_paused.get() && self.is_accepted()
    }

    /// Process an event; returns whether there may be more.
    fn take_frame(&self, py: Python<'_>, found: Found<'_>) -> PyResult<bool> {
        match found {
            Found::Text(text) => {
                self.deliver(py, &self.core.names.text, &text)?;
                self.log_frame(py, 1, &text)?;
            }
            Found::Bytes(bytes) => {
                self.deliver(py, &self.core.names.bytes, &bytes)?;
                self.log_frame(py, 2, &bytes)?;
            }
            Found::Ping(payload) => self.receive_ping(py, payload)?,
            Found::Pong(payload) => self.receive_pong(py, &payload)?,
            Found::Close(code, reason) => {
                self.log_close(py, code, &reason)?;
                self.drop_input();
                return self.peer_ends(py, PeerEnd::Close { code, reason }).map(|()| false);
            }
            Found::Failed(failure) => return self.peer_ends(py, PeerEnd::Failed(failure)).map(|()| false),
            Found::Broken(error) => return Err(error),
            Found::Nothing | Found::Over => return Ok(false),
        }
        Ok(true)
    }

    fn log_frame(&self, py: Python<'_>, opcode: u8, content: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(log) = self.frame_log(py) else { return Ok(()) };
        if opcode == 9 {
            return log.bind(py).call_method1("frame", ("<", opcode, content)).map(drop);
        }
        log.bind(py).call_method1("message", (content,)).map(drop)
    }

    fn log_close(&self, py: Python<'_>, code: u16, reason: &str) -> PyResult<()> {
        let Some(log) = self.frame_log(py) else { return Ok(()) };
        log.bind(py).call_method1("close", ("<", code, reason)).map(drop)
    }

    /// Look for the answer to our close frame, and ignore everything else.
    pub(super) fn read_close(&self, py: Python<'_>) -> PyResult<()> {
        loop {
            match self.poll_kept(py) {
                Found::Nothing => {
                    self.shorten_input();
                    return Ok(());
                }
                Found::Close(code, reason) => {
                    self.log_close(py, code, &reason)?;
                    break;
                }
                Found::Over => break,
                _ => {}
            }
        }
        self.awaiting_close.set(false);
        self.drop_input();
        self.close_transport(py)
    }

    /// A ping: answered at once, if the client reads.
    fn receive_ping(&self, py: Python<'_>, payload: Vec<u8>) -> PyResult<()> {
        if self.any_rare().is_some_and(|rare| rare.log.borrow().is_some()) {
            self.log_frame(py, 9, PyBytes::new(py, &payload).as_any())?;
        }
        if self.outflow.capacity.is_paused() {
            // RFC 6455 section 5.5.3: only the latest need be answered. A peer that does not read gets no heap of them.
            self.rare().pong.set(Some(payload.into()));
            return Ok(());
        }
        self.write_frames(py, |wire, out| wire.pong(out, &payload))
    }

    /// Queue a message for the application, and stop reading when it falls behind.
    fn deliver(&self, py: Python<'_>, key: &Py<PyString>, content: &Bound<'_, PyAny>) -> PyResult<()> {
        self.core.count(places::MESSAGES_RECEIVED);
        let event = PyDict::new(py);
        event.set_item(&self.core.names.r#type, &self.core.receive)?;
        event.set_item(key, content)?;
        let is_first = {
            let mut queue = self.inbox.queue.borrow_mut();
            queue.push_back(event.unbind());
            queue.len() == 1
        };
        let queued = self.inbox.queued.get() + content.len()?;
        self.inbox.queued.set(queued);
        if self.inbox.queue.borrow().len() >= self.core.max_queue || queued > HIGH_WATER_LIMIT {
            self.pause_reading(py)?;
        }
        // A call that waited for an earlier event goes on anyway.
        match is_first {
            true if self.outflow.gathering.get() => {
                self.inbox.is_to_wake.set(true);
                Ok(())
            }
            true => self.wake_receivers(py),
            false => Ok(()),
        }
    }

    /// The application has caught up.
    pub(super) fn resume_reading(&self, py: Python<'_>) -> PyResult<()> {
        if self.peer_has_ended() {
            return Ok(());
        }
        self.resume_carrier(py)?;
        self.restart_deadline(py)?;
        self.read_frames(py)
    }
}
