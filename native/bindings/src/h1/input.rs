//! The input: from the transport or past it, kept until it can be processed, divided into requests and bodies.

use std::rc::Rc;

use pyo3::prelude::*;
use wire::error::Error;
use wire::h1::Scratch;
use wire::h1::connection::{Awaits, Event, Progress};
use wire::h1::framing::BodyLength;
use wire::h1::request::Head;

use super::connection::{Connection, HIGH_WATER, State};
use super::request::Begun;
use super::states::Reading;
use crate::asgi::exchange::Exchange;
use crate::asgi::refused::Refused;
use crate::base::ffi::thread_bound::ThreadBound;
use crate::base::places;
use crate::conn::carried::Carried;

/// Why input is not looked at any further.
enum Stop {
    Refused(Refused),
    Failed(PyErr),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Refused(error.into())
    }
}

impl From<PyErr> for Stop {
    fn from(error: PyErr) -> Self {
        Self::Failed(error)
    }
}

impl Connection {
    /// Bytes from the client, however they came.
    pub(crate) fn receive(self: &Rc<Self>, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        if let Some(metrics) = &self.core.metrics {
            metrics.add(places::BYTES_RECEIVED, data.len());
        }
        if !self.is_open() {
            self.linger_on();
            return Ok(());
        }
        let joined = {
            let mut state = self.state.borrow_mut();
            if state.pending.is_empty() {
                None
            } else {
                state.pending.extend_from_slice(data);
                if self.resume_scheduled.get() || state.exchange.is_some() && Self::is_busy(&state) {
                    drop(state);
                    return self.regulate(py);
                }
                Some(std::mem::take(&mut state.pending))
            }
        };
        match joined {
            None => {
                let used = self.consume(py, data, true)?;
                self.keep(py, data.get(used..).unwrap_or_default())
            }
            Some(buffer) => self.consume_buffer(py, buffer, true),
        }
    }

    pub(super) fn is_busy(state: &State) -> bool {
        state.wire.awaits() == Awaits::Nothing
    }

    /// Keep input that could not be read yet.
    #[inline]
    fn keep(&self, py: Python<'_>, rest: &[u8]) -> PyResult<()> {
        if rest.is_empty() && !self.is_read_paused() || !self.is_open() {
            return Ok(());
        }
        self.state.borrow_mut().pending.extend_from_slice(rest);
        self.regulate(py)
    }

    /// Consume a buffer of our own and keep the rest of it.
    pub(super) fn consume_buffer(self: &Rc<Self>, py: Python<'_>, mut buffer: Vec<u8>, eager: bool) -> PyResult<()> {
        let used = self.consume(py, &buffer, eager)?;
        if !self.is_open() {
            return Ok(());
        }
        if used < buffer.len() {
            buffer.drain(..used);
            let mut state = self.state.borrow_mut();
            buffer.append(&mut state.pending);
            state.pending = buffer;
        }
        self.regulate(py)
    }

    /// Read from the socket unless pipelined input, or input for the application, is above the high-water mark.
    pub(super) fn regulate(&self, py: Python<'_>) -> PyResult<()> {
        if !self.is_open() {
            return Ok(());
        }
        let (awaits, waits) = {
            let state = self.state.borrow();
            let awaits = state.wire.awaits();
            let waits = match awaits {
                _ if self.resume_scheduled.get() => state.pending.len(),
                Awaits::Body => state.exchange.as_ref().map_or(0, |exchange| exchange.body_length()),
                Awaits::Nothing => state.pending.len(),
                // Part of a head, which has limits of its own, or nothing that is kept.
                Awaits::Idle | Awaits::Head | Awaits::Discard => 0,
            };
            (awaits, waits)
        };
        if waits > HIGH_WATER {
            self.pause_reading(py)?;
            return if awaits == Awaits::Body { Ok(()) } else { self.heed_end(py) };
        }
        if !self.is_read_paused() {
            return Ok(());
        }
        self.resume_reading(py)?;
        self.restart_body_deadline(py)
    }

    /// Process `input`; returns how much was used. The caller must keep the rest.
    fn consume(self: &Rc<Self>, py: Python<'_>, input: &[u8], eager: bool) -> PyResult<usize> {
        let outer = self.consuming.replace(true);
        let result = self.core.scratch.with(|scratch| self.events(py, input, eager, scratch));
        let flushed = self.flush(py);
        self.consuming.set(outer);
        flushed?;
        let used = match result {
            Ok(used) => used,
            Err(Stop::Refused(refused)) => {
                self.refuse(py, &refused)?;
                return Ok(input.len());
            }
            Err(Stop::Failed(error)) => return Err(error),
        };
        self.after_exchange(py, used == input.len())?;
        Ok(used)
    }

    fn events(
        self: &Rc<Self>,
        py: Python<'_>,
        input: &[u8],
        eager: bool,
        scratch: &mut Scratch,
    ) -> Result<usize, Stop> {
        let limits = &self.core.settings.limits;
        let mut at = 0;
        let mut budget = self.core.settings.max_eager_requests;
        // A request with a body, whose application starts once the part that has arrived was fed.
        let mut waiting: Option<Begun> = None;
        loop {
            let rest = input.get(at..).unwrap_or_default();
            let Progress { consumed, event } = {
                let sections = &mut *self.core.headers.sections.borrow_mut();
                self.state.borrow_mut().wire.poll_recalling(rest, scratch, limits, Some(sections))?
            };
            at += consumed;
            let is_whole = match event {
                Event::Request => {
                    let head = scratch.head();
                    let Some(begun) = self.request(py, head, rest)? else { return Ok(input.len()) };
                    budget = budget.saturating_sub(1);
                    let is_whole = head.body == BodyLength::None;
                    if is_whole {
                        self.start(py, begun, eager)?;
                    } else {
                        waiting = Some(begun);
                    }
                    is_whole
                }
                Event::Body { data, end } => {
                    let exchange = self.body(py, rest.get(data).unwrap_or_default(), consumed, end)?;
                    if let Some(exchange) = exchange
                        && waiting.is_none()
                    {
                        exchange.wake(py)?;
                    }
                    if end && let Some(begun) = waiting.take() {
                        self.start(py, begun, eager)?;
                    }
                    end
                }
                Event::Skipped => false,
                Event::NeedMore | Event::Busy | Event::Switched | Event::Closed => break,
            };
            if is_whole && at == input.len() {
                break;
            }
            if is_whole && budget == 0 && self.core.is_real {
                self.resume_soon(py)?;
                break;
            }
        }
        if let Some(begun) = waiting {
            self.start(py, begun, eager)?;
        }
        Ok(at)
    }

    /// A head is complete. Returns the request; `None` if the connection was handed over.
    #[inline]
    fn request(self: &Rc<Self>, py: Python<'_>, head: &Head, input: &[u8]) -> Result<Option<Begun>, Stop> {
        if head.target.names_https(input) && !self.may_ask_for_https(py)? {
            return Err(Stop::Refused(Refused::misdirected()));
        }
        if head.upgrades && self.wants_websocket(py, head.upgrades_to(input, b"websocket"), head.body)? {
            self.hand_over(py, input, head.expects_continue)?;
            return Ok(None);
        }
        let begun = self.begin(py, head, input)?;
        self.update_deadline_in_place();
        Ok(Some(begun))
    }

    /// A piece of a body has come, in `bytes` on the wire. Returns its exchange, to be woken.
    fn body(&self, py: Python<'_>, piece: &[u8], bytes: usize, end: bool) -> PyResult<Option<Rc<Exchange>>> {
        let exchange = self.state.borrow().exchange.clone();
        let Some(exchange) = exchange else { return Ok(None) };
        if !piece.is_empty() && exchange.feed(py, piece) > HIGH_WATER {
            self.pause_reading(py)?;
        }
        if end {
            exchange.feed_end();
        }
        self.extend_deadline(bytes);
        Ok(Some(exchange))
    }

    /// Serve other connections first, then process the kept input.
    fn resume_soon(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.resume_scheduled.set(true);
        let resume = Py::new(py, Resume { connection: ThreadBound::new(self.clone()) })?;
        self.core.event_loop.bind(py).call_method1(&self.core.names.call_soon, (resume,)).map(drop)
    }

    fn resume(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.resume_scheduled.set(false);
        if !self.is_open() {
            return Ok(());
        }
        let buffer = std::mem::take(&mut self.state.borrow_mut().pending);
        self.consume_buffer(py, buffer, true)
    }

    fn pause_reading(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_read_paused() {
            return Ok(());
        }
        self.reading.set(Reading::Paused { heeded: None });
        if self.state.borrow().waits_for == Awaits::Body {
            self.deadline.set(None);
        }
        self.on_carrier(py, |carrier| carrier.pause_reading(py)).map(drop)
    }

    /// Read from the socket again.
    pub(super) fn resume_reading(&self, py: Python<'_>) -> PyResult<()> {
        let Reading::Paused { heeded } = self.reading.replace(Reading::On) else { return Ok(()) };
        self.ignore_end(py, heeded)?;
        if self.is_closed() || self.has_all() {
            return Ok(());
        }
        self.on_carrier(py, |carrier| carrier.resume_reading(py)).map(drop)
    }

    /// Watch for the client's end while nothing is read: the application may be waiting for it.
    #[cold]
    fn heed_end(&self, py: Python<'_>) -> PyResult<()> {
        if self.reading.get() != (Reading::Paused { heeded: None }) || !self.core.is_real {
            return Ok(());
        }
        let Some(protocol) = self.sides.protocol(py) else { return Ok(()) };
        let found = self.on_carrier(py, |carrier| carrier.descriptor_of_end(py))?;
        let Some(descriptor) = found.flatten() else { return Ok(()) };
        let tell = protocol.bind(py).getattr("hung_up")?;
        self.core.hub.hang_ups(py)?.call_method1("watch", (descriptor, tell))?;
        self.reading.set(Reading::Paused { heeded: Some(descriptor) });
        Ok(())
    }

    /// Stop watching the descriptor that was `heeded`.
    pub(super) fn ignore_end(&self, py: Python<'_>, heeded: Option<i32>) -> PyResult<()> {
        match heeded {
            Some(descriptor) => self.core.hub.hang_ups(py)?.call_method1("unwatch", (descriptor,)).map(drop),
            None => Ok(()),
        }
    }
}

/// Goes on with pipelined requests in a later turn of the loop.
#[pyclass(module = "uvicorn._native", frozen)]
struct Resume {
    connection: ThreadBound<Rc<Connection>>,
}

#[pymethods]
impl Resume {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        self.connection.guard(py, "resume", |connection| connection.resume(py))
    }
}
