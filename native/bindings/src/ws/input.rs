//! Frames from the client.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use wire::limits::table::HIGH_WATER_LIMIT;
use wire::ws::{Event, Failure, Kind};

use super::session::Session;
use super::states::{PeerEnd, State};
use crate::base::places;

/// What was found, with nothing of the input in it.
enum Found<'py> {
    Nothing,
    Text(Bound<'py, PyAny>),
    Bytes(Bound<'py, PyAny>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(u16, String),
    Failed(Failure),
    Over,
}

impl Session {
    // What was not looked at yet.

    pub(super) fn feed(&self, data: &[u8]) {
        let mut input = self.input.borrow_mut();
        self.core.hub.buffers.supply(&mut input);
        input.extend_from_slice(data);
    }

    pub(super) fn drop_input(&self) {
        self.dealt_with.set(0);
        let input = self.input.take();
        self.core.hub.buffers.give(input);
    }

    /// Keep no more of it than what is still to be looked at.
    fn shorten_input(&self) {
        let mut input = self.input.borrow_mut();
        let dealt_with = self.dealt_with.take().min(input.len());
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

    /// Look for the next event. No Python code is run.
    fn poll<'py>(&self, py: Python<'py>) -> Found<'py> {
        let mut state = self.state.borrow_mut();
        let (State::Accepted(wire) | State::Closing(Some(wire))) = &mut *state else { return Found::Nothing };
        let mut input = self.input.borrow_mut();
        let pool = &mut *self.core.pool.borrow_mut();
        let rest = input.get_mut(self.dealt_with.get()..).unwrap_or_default();
        let progress = wire.poll(rest, pool, &self.core.limits);
        self.dealt_with.set(self.dealt_with.get() + progress.consumed);
        let bytes = |range| rest.get::<std::ops::Range<usize>>(range).unwrap_or_default();
        match progress.event {
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
            Event::Ping(range) => Found::Ping(bytes(range).to_vec()),
            Event::Pong(range) => Found::Pong(bytes(range).to_vec()),
            Event::Close { code, reason } => Found::Close(code, String::from_utf8_lossy(bytes(reason)).into_owned()),
            Event::Failed(failure) => Found::Failed(failure),
            Event::Closed => Found::Over,
        }
    }

    /// Read what is there, as long as the application keeps up.
    pub(super) fn read_frames(&self, py: Python<'_>) -> PyResult<()> {
        if self.consuming.replace(true) {
            return Ok(());
        }
        let outcome = self.read_each(py);
        self.consuming.set(false);
        self.shorten_input();
        outcome
    }

    fn read_each(&self, py: Python<'_>) -> PyResult<()> {
        while !self.read_paused.get() && self.is_accepted() {
            match self.poll(py) {
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
                    return self.peer_ends(py, PeerEnd::Close { code, reason });
                }
                Found::Failed(failure) => return self.peer_ends(py, PeerEnd::Failed(failure)),
                Found::Nothing | Found::Over => return Ok(()),
            }
        }
        Ok(())
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

    /// Look for the answer to our close frame; nothing else counts any more.
    pub(super) fn read_close(&self, py: Python<'_>) -> PyResult<()> {
        loop {
            match self.poll(py) {
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
        if self.log.borrow().is_some() {
            self.log_frame(py, 9, PyBytes::new(py, &payload).as_any())?;
        }
        if self.write_paused.get() {
            // RFC 6455 section 5.5.3: only the latest need be answered. A peer that does not read gets no heap of them.
            self.pong.replace(Some(payload));
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
            let mut queue = self.queue.borrow_mut();
            queue.push_back(event.unbind());
            queue.len() == 1
        };
        let queued = self.queued.get() + content.len()?;
        self.queued.set(queued);
        if self.queue.borrow().len() >= self.core.max_queue || queued > HIGH_WATER_LIMIT {
            self.pause_reading(py)?;
        }
        // Whoever waited for one that came before goes on anyway.
        match is_first {
            true if self.gathering.get() => {
                self.is_to_wake.set(true);
                Ok(())
            }
            true => self.wake_receivers(py),
            false => Ok(()),
        }
    }

    /// The application has caught up.
    pub(super) fn resume_reading(&self, py: Python<'_>) -> PyResult<()> {
        if self.peer_end.borrow().is_some() {
            return Ok(());
        }
        self.resume_carrier(py)?;
        self.restart_deadline(py)?;
        self.read_frames(py)
    }
}
