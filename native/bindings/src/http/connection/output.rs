//! The way out: one write for all that is ready, past the transport where that is possible, and the end of the connection.

use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PySlice};
use wire::error::AppError;
use wire::h1::connection::Connection as Wire;

use super::Connection;
use crate::error::exception;
use crate::ffi;

impl Connection {
    /// Append to the output.
    #[inline]
    pub(in crate::http) fn put<R>(
        &self,
        append: impl FnOnce(&mut Wire, &mut Vec<u8>) -> Result<R, AppError>,
    ) -> PyResult<R> {
        let state = &mut *self.state.borrow_mut();
        self.core.buffers.supply(&mut state.out);
        append(&mut state.wire, &mut state.out).map_err(exception)
    }

    /// Write what may leave, unless it leaves with more anyway.
    #[inline]
    pub(in crate::http) fn flush_unless_consuming(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_consuming() { Ok(()) } else { self.flush(py) }
    }

    /// Write what may be written: everything in front of a head that still waits for its body.
    pub(in crate::http) fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let (out, rest) = {
            let mut state = self.state.borrow_mut();
            let length = state.held.unwrap_or(state.out.len());
            if length == 0 {
                if state.out.is_empty() && state.out.capacity() > 0 {
                    let out = std::mem::take(&mut state.out);
                    drop(state);
                    self.core.buffers.give(out);
                }
                return Ok(());
            }
            let mut out = std::mem::take(&mut state.out);
            let rest = if length < out.len() { out.split_off(length) } else { Vec::new() };
            if state.held.is_some() {
                state.held = Some(0);
            }
            (out, rest)
        };
        if !rest.is_empty() {
            self.state.borrow_mut().out = rest;
        }
        let written = self.write(py, &out);
        self.core.buffers.give(out);
        written
    }

    /// Whether bytes may go straight to the socket: nothing waits in the transport, and it is not closing.
    #[inline]
    fn direct(&self, py: Python<'_>) -> PyResult<Option<i32>> {
        let Some(descriptor) = self.descriptor.get() else { return Ok(None) };
        if self.closed.get() {
            return Ok(None);
        }
        let Some(transport) = self.transport(py) else { return Ok(None) };
        let transport = transport.bind(py);
        let names = &self.core.names;
        // Inside data_received the transport is known to be open: it has just called us. At any other time the socket
        // may have been closed under it, and its number may already belong to another connection.
        if !self.consuming.get() && transport.call_method0(&names.is_closing)?.is_truthy()? {
            return Ok(None);
        }
        if self.buffered.get() {
            let waiting: usize = transport.call_method0(&names.get_write_buffer_size)?.extract()?;
            if waiting > 0 {
                return Ok(None);
            }
            self.buffered.set(false);
        }
        Ok(Some(descriptor))
    }

    fn write(&self, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        self.core.rehearsal.happen_in("write");
        let sent = match self.direct(py)? {
            // Any error, a full socket included, is found again by the transport, which knows what to do about it.
            Some(descriptor) => ffi::send(descriptor, data).unwrap_or(0),
            None => 0,
        };
        match data.get(sent..) {
            Some(rest) if !rest.is_empty() => self.write_to_transport(py, PyBytes::new(py, rest).as_any()),
            _ => Ok(()),
        }
    }

    /// Write a large object without a copy of it: `bytes` and no others, which could change before they are sent.
    pub(in crate::http) fn write_object(&self, py: Python<'_>, body: &Bound<'_, PyBytes>) -> PyResult<()> {
        let sent = match self.direct(py)? {
            Some(descriptor) => ffi::send(descriptor, body.as_bytes()).unwrap_or(0),
            None => 0,
        };
        if sent == 0 {
            self.write_to_transport(py, body)
        } else if sent < body.as_bytes().len() {
            let view = PyMemoryView::from(body)?;
            let rest = view.get_item(PySlice::new(py, sent.cast_signed(), isize::MAX, 1))?;
            self.write_to_transport(py, &rest)
        } else {
            Ok(())
        }
    }

    fn write_to_transport(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        self.buffered.set(true);
        match self.transport(py) {
            Some(transport) => transport.bind(py).call_method1(&self.core.names.write, (data,)).map(drop),
            None => Ok(()),
        }
    }

    /// Close once everything is written; with `linger` only after the peer had a chance to read it.
    pub(super) fn end(&self, py: Python<'_>, linger: bool) -> PyResult<()> {
        self.flush(py)?;
        let names = &self.core.names;
        let exchange = {
            let mut state = self.state.borrow_mut();
            state.pending = Vec::new();
            state.exchange.take()
        };
        if let Some(exchange) = exchange {
            exchange.disconnect(py, false)?;
            // Whoever waits to send has nothing to wait for.
            self.resume_writing(py)?;
        }
        let Some(transport) = self.transport(py) else { return Ok(()) };
        let transport = transport.bind(py);
        if linger
            && self.core.real_loop
            && !self.eof.get()
            && !self.secure.get()
            && !transport.call_method0(&names.is_closing)?.is_truthy()?
            && transport.call_method0(&names.can_write_eof)?.is_truthy()?
        {
            // Closing with unread input makes the kernel reset the connection, and the peer may lose the answer.
            self.lingering.set(true);
            transport.call_method0(&names.write_eof)?;
            self.resume_reading(py)?;
            self.state.borrow_mut().deadline = Some(Instant::now() + self.core.settings.linger);
            return self.watch(py);
        }
        self.closed.set(true);
        self.descriptor.set(None);
        self.state.borrow_mut().deadline = None;
        transport.call_method0(&names.close).map(drop)
    }

    pub(crate) fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.closed.set(true);
        self.descriptor.set(None);
        self.on_transport(py, &self.core.names.abort)
    }
}
