//! The way out.

use std::rc::Rc;

use pyo3::exceptions::{PyException, PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::ws::{Connection as Wire, Kind, Pool, SendError};

use super::session::Session;
use super::states::State;
use super::waits::Wait;
use crate::base::line::WOKEN_TOGETHER;
use crate::base::names::Names;
use crate::conn::carrier::Carrier;

/// Bytes of the application's that are not copied to be sent.
const LARGE: usize = 16 * 1024;

/// A frame that is out of place: nothing that an application can bring about.
fn refused(error: SendError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

impl Session {
    /// Write what `append` makes of the frames of an open WebSocket.
    pub(super) fn write_frames(
        &self,
        py: Python<'_>,
        append: impl FnOnce(&mut Wire, &mut Vec<u8>) -> Result<(), SendError>,
    ) -> PyResult<()> {
        self.write_encoded(py, |wire, out, _| append(wire, out))
    }

    fn write_encoded(
        &self,
        py: Python<'_>,
        append: impl FnOnce(&mut Wire, &mut Vec<u8>, &mut Pool) -> Result<(), SendError>,
    ) -> PyResult<()> {
        let mut out = Vec::new();
        self.core.hub.buffers.supply(&mut out);
        let encoded = match &mut *self.state.borrow_mut() {
            State::Accepted(wire) => append(wire, &mut out, &mut self.core.pool.borrow_mut()),
            _ => Ok(()),
        };
        let written = match encoded {
            Ok(()) => self.write(py, &out),
            Err(error) => Err(refused(error)),
        };
        self.core.hub.buffers.give(out);
        written
    }

    /// Write a text message.
    pub(super) fn write_text(&self, py: Python<'_>, text: &str) -> PyResult<()> {
        self.write_encoded(py, |wire, out, pool| wire.message(out, Kind::Text, text.as_bytes(), pool))
    }

    /// Write a binary message: a large one from where it is.
    pub(super) fn write_bytes(&self, py: Python<'_>, payload: &Bound<'_, PyBytes>) -> PyResult<()> {
        let bytes = payload.as_bytes();
        if bytes.len() >= LARGE {
            let head = match &*self.state.borrow() {
                State::Accepted(wire) => wire.message_head(Kind::Binary, bytes.len(), &self.core.pool.borrow()),
                _ => return Ok(()),
            };
            if let Some(head) = head.map_err(refused)? {
                self.on_carrier(py, |carrier, names| carrier.write_with(py, names, head.as_bytes(), payload))?;
                return Ok(());
            }
        }
        self.write_encoded(py, |wire, out, pool| wire.message(out, Kind::Binary, bytes, pool))
    }

    /// Write `data`, unless nothing can be written any more.
    pub(super) fn write(&self, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        self.core.rehearsal.happen_in("write");
        if data.is_empty() || self.is_transport_closing(py)? {
            return Ok(());
        }
        self.on_carrier(py, |carrier, names| carrier.write(py, names, data)).map(drop)
    }

    // What carries it.

    /// Whether nothing can be written any more.
    pub(super) fn is_transport_closing(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.on_carrier(py, |carrier, names| carrier.is_closing(py, names))?.unwrap_or(true))
    }

    pub(super) fn can_write_eof(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.on_carrier(py, |carrier, names| carrier.can_write_eof(py, names))?.unwrap_or_default())
    }

    /// Ask something of what carries the bytes: `None` if there is nothing any more, or if it has failed.
    #[inline]
    pub(super) fn on_carrier<T>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&Carrier, &Names) -> PyResult<T>,
    ) -> PyResult<Option<T>> {
        let carrier = self.carrier.borrow().clone();
        let Some(carrier) = carrier else { return Ok(None) };
        match ask(&carrier, &self.core.names) {
            Ok(answer) => Ok(Some(answer)),
            Err(error) => self.give_up(py, error).map(|()| None),
        }
    }

    /// The transport has raised `error`: whatever the connection was doing is over, and `connection_lost` clears up.
    #[cold]
    fn give_up(&self, py: Python<'_>, error: PyErr) -> PyResult<()> {
        if !error.is_instance_of::<PyException>(py) {
            return Err(error);
        }
        if !error.is_instance_of::<PyOSError>(py) {
            self.core.log_exception(py, "Transport failed, aborting the connection.\n", &error)?;
        }
        self.abort(py)
    }

    /// Take the transport away.
    pub(super) fn abort(&self, py: Python<'_>) -> PyResult<()> {
        let carrier = self.carrier.borrow().clone();
        match carrier.map(|carrier| carrier.abort(py, &self.core.names)) {
            None | Some(Ok(())) => Ok(()),
            // Nobody else will say that the connection is lost.
            Some(Err(error)) if error.is_instance_of::<PyException>(py) => self.connection_lost(py),
            Some(Err(error)) => Err(error),
        }
    }

    // The marks.

    /// Stop reading from the socket; may be called again.
    pub(super) fn pause_reading(&self, py: Python<'_>) -> PyResult<()> {
        if self.read_paused.replace(true) {
            return Ok(());
        }
        self.on_carrier(py, |carrier, names| carrier.pause_reading(py, names)).map(drop)
    }

    /// Read from the socket again; may be called without a pause before it.
    pub(super) fn resume_carrier(&self, py: Python<'_>) -> PyResult<()> {
        if !self.read_paused.replace(false) {
            return Ok(());
        }
        let context = &self.core.context;
        self.on_carrier(py, |carrier, names| carrier.resume_reading(py, names, context)).map(drop)
    }

    /// Let those who wait to send go on.
    pub(super) fn resume_writers(&self, py: Python<'_>) -> PyResult<()> {
        self.write_paused.set(false);
        self.writers.advance(py, &self.core.names, WOKEN_TOGETHER)
    }

    /// The transport's buffer is above its high-water mark.
    pub(super) fn pause_writing(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_ending() {
            return Ok(()); // there is nobody who could wait
        }
        self.write_paused.set(true);
        self.await_reader(py)
    }

    /// It is low again.
    pub(super) fn resume_writing(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.stop_waiting(Wait::Reader);
        self.resume_writers(py)?;
        let pong = self.pong.take();
        match pong {
            Some(payload) => self.write_frames(py, |wire, out| wire.pong(out, &payload)),
            None => Ok(()),
        }
    }
}
