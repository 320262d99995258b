//! The way out.

use std::rc::Rc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use wire::ws::{Connection as Wire, Kind, SendError, StreamPool};

use super::session::Session;
use super::states::State;
use crate::base::places;
use crate::conn::carried::Carried;
use crate::conn::carrier::Carrier;

/// Bytes of the application's that are not copied to be sent.
const LARGE: usize = 16 * 1024;

/// Whether `object` is of a type whose objects never change.
fn is_exact(object: &Bound<'_, PyAny>) -> bool {
    object.is_exact_instance_of::<PyString>() || object.is_exact_instance_of::<PyBytes>()
}

/// A frame that is out of place: nothing that an application can bring about.
fn refused(error: SendError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

impl Session {
    /// Write the frames of an open WebSocket that `append` makes.
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
        append: impl FnOnce(&mut Wire, &mut Vec<u8>, &mut StreamPool) -> Result<(), SendError>,
    ) -> PyResult<()> {
        self.put(|out| match &mut *self.state.borrow_mut() {
            State::Accepted(wire) => append(wire, out, &mut self.core.pool.borrow_mut()),
            _ => Ok(()),
        })
        .map_err(refused)?;
        self.flush_unless_gathering(py)
    }

    /// Write a message, of which `object` is the whole.
    fn write_message(&self, py: Python<'_>, object: &Bound<'_, PyAny>, kind: Kind, payload: &[u8]) -> PyResult<()> {
        self.write_encoded(py, |wire, out, pool| {
            if !wire.compresses() || !is_exact(object) {
                return wire.message(out, kind, payload, pool);
            }
            let mut broadcast = self.core.broadcast.borrow_mut();
            match broadcast.prepared(object, kind, payload, std::ptr::from_ref(self).addr()) {
                None => wire.message(out, kind, payload, pool),
                Some(prepared) => wire.prepared(prepared, pool).map(|frame| out.extend_from_slice(frame)),
            }
        })
    }

    /// Write a binary message: a large one from where it is.
    pub(super) fn write_bytes(&self, py: Python<'_>, payload: &Bound<'_, PyBytes>) -> PyResult<()> {
        let bytes = payload.as_bytes();
        if !self.put_head_of_large(Kind::Binary, bytes)? {
            return self.write_message(py, payload.as_any(), Kind::Binary, bytes);
        }
        self.flush_with(py, bytes.len(), |carrier, out| carrier.write_with(py, out, payload))
    }

    /// Write a text: a large one from where it is, but of one that has to wait a copy is kept.
    pub(super) fn write_text(&self, py: Python<'_>, text: &Bound<'_, PyString>, encoded: &[u8]) -> PyResult<()> {
        if !self.put_head_of_large(Kind::Text, encoded)? {
            return self.write_message(py, text.as_any(), Kind::Text, encoded);
        }
        self.flush_with(py, encoded.len(), |carrier, out| carrier.write_both(py, out, encoded))
    }

    /// Append the head of a large message whose payload is sent as it is. Returns whether it is one.
    fn put_head_of_large(&self, kind: Kind, payload: &[u8]) -> PyResult<bool> {
        if payload.len() < LARGE {
            return Ok(false);
        }
        let head = match &*self.state.borrow() {
            State::Accepted(wire) => wire.message_head(kind, payload.len(), &self.core.pool.borrow()),
            _ => return Ok(false),
        };
        let Some(head) = head.map_err(refused)? else { return Ok(false) };
        self.put(|out| out.extend_from_slice(head.as_bytes()));
        Ok(true)
    }

    /// Write `data`.
    pub(super) fn write(&self, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        self.put(|out| out.extend_from_slice(data));
        self.flush_unless_gathering(py)
    }

    /// Append to the output.
    fn put<R>(&self, append: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let mut out = self.outflow.out.borrow_mut();
        self.core.hub.buffers.supply(&mut out);
        append(&mut out)
    }

    /// Write the output, unless it leaves with more anyway.
    fn flush_unless_gathering(&self, py: Python<'_>) -> PyResult<()> {
        // Much is not kept: its writers may have to wait.
        if self.outflow.gathering.get() && self.outflow.out.borrow().len() < LARGE { Ok(()) } else { self.flush(py) }
    }

    /// Write the output, unless nothing can be written any more.
    pub(super) fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let out = self.outflow.out.take();
        if out.is_empty() {
            self.core.hub.buffers.give(out);
            return Ok(());
        }
        let written = self.write_out(py, out.len(), |carrier| carrier.write(py, &out));
        self.core.hub.buffers.give(out);
        written
    }

    /// The same, followed by bytes that are elsewhere.
    fn flush_with(
        &self,
        py: Python<'_>,
        length: usize,
        write: impl FnOnce(Rc<dyn Carrier>, &[u8]) -> PyResult<()>,
    ) -> PyResult<()> {
        let out = self.outflow.out.take();
        let written = self.write_out(py, out.len() + length, |carrier| write(carrier, &out));
        self.core.hub.buffers.give(out);
        written
    }

    fn write_out(
        &self,
        py: Python<'_>,
        bytes: usize,
        write: impl FnOnce(Rc<dyn Carrier>) -> PyResult<()>,
    ) -> PyResult<()> {
        self.core.rehearsal.happen_in("write");
        if self.is_transport_closing(py)? {
            return Ok(());
        }
        self.count_bytes(places::BYTES_SENT, bytes);
        self.on_carrier(py, write).map(drop)
    }

    /// Drop the output, which cannot be delivered any more.
    pub(super) fn drop_output(&self) {
        let out = self.outflow.out.take();
        self.core.hub.buffers.give(out);
    }

    // The marks.

    /// Stop reading from the socket; may be called again.
    pub(super) fn pause_reading(&self, py: Python<'_>) -> PyResult<()> {
        if self.inflow.read_paused.replace(true) {
            return Ok(());
        }
        self.on_carrier(py, |carrier| carrier.pause_reading(py)).map(drop)
    }

    /// Read from the socket again; may be called without a pause before it.
    pub(super) fn resume_carrier(&self, py: Python<'_>) -> PyResult<()> {
        if !self.inflow.read_paused.replace(false) {
            return Ok(());
        }
        self.on_carrier(py, |carrier| carrier.resume_reading(py)).map(drop)
    }

    /// Let those who wait to send go on.
    pub(super) fn resume_writers(&self, py: Python<'_>) -> PyResult<()> {
        self.outflow.capacity.resume(py, &self.core.names)
    }
}
