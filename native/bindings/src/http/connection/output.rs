//! The way out: one write for all that is ready, past the transport where that is possible, and the end of the connection.

use std::time::Instant;

use pyo3::exceptions::{PyException, PyOSError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMemoryView, PySlice, PyString};
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
            let rest = self.core.buffers.split_off(&mut out, length);
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
        // Inside data_received the transport is known to be open: it has just called us. At any other time the socket
        // may have been closed under it, and its number may already belong to another connection.
        if !self.consuming.get() && self.is_transport_closing(py)? {
            return Ok(None);
        }
        if self.buffered.get() {
            let waiting = self.on_transport(py, &self.core.names.get_write_buffer_size)?;
            if !waiting.is_some_and(|waiting| waiting.extract::<usize>().is_ok_and(|waiting| waiting == 0)) {
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
        match self.transport(py).filter(|_| !self.closed.get()) {
            Some(transport) => match transport.bind(py).call_method1(&self.core.names.write, (data,)) {
                Ok(_) => Ok(()),
                Err(error) => self.give_up(py, error),
            },
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
        if linger && self.can_linger(py)? {
            // Closing with unread input makes the kernel reset the connection, and the peer may lose the answer.
            self.lingering.set(true);
            // Before the transport is asked for anything: the peer may be gone, and nobody has noticed.
            self.state.borrow_mut().deadline = Some(Instant::now() + self.core.settings.linger);
            self.watch(py)?;
            self.on_transport(py, &names.write_eof)?;
            return self.resume_reading(py);
        }
        if self.closed.replace(true) {
            return Ok(());
        }
        self.descriptor.set(None);
        self.state.borrow_mut().deadline = None;
        self.on_transport(py, &names.close).map(drop)
    }

    fn can_linger(&self, py: Python<'_>) -> PyResult<bool> {
        if !self.core.real_loop || self.eof.get() || self.secure.get() || self.is_transport_closing(py)? {
            return Ok(false);
        }
        self.on_transport(py, &self.core.names.can_write_eof)?.map_or(Ok(false), |answer| answer.is_truthy())
    }

    /// Call a method of the transport: what it returns, or `None` if there is no transport any more.
    #[inline]
    pub(in crate::http) fn on_transport<'py>(
        &self,
        py: Python<'py>,
        method: &Py<PyString>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(transport) = self.transport(py) else { return Ok(None) };
        match transport.bind(py).call_method0(method) {
            Ok(answer) => Ok(Some(answer)),
            Err(error) => self.give_up(py, error).map(|()| None),
        }
    }

    /// The transport has raised `error`: whatever the connection was doing is over, and `connection_lost` clears up.
    #[cold]
    pub(super) fn give_up(&self, py: Python<'_>, error: PyErr) -> PyResult<()> {
        if !error.is_instance_of::<PyException>(py) {
            return Err(error);
        }
        if !error.is_instance_of::<PyOSError>(py) {
            let details = PyDict::new(py);
            details.set_item("exc_info", error.value(py))?;
            let text = ("Transport failed, aborting the connection.\n",);
            self.core.logger.bind(py).call_method(&self.core.names.error, text, Some(&details))?;
        }
        self.abort(py)
    }

    /// Take the transport away.
    pub(crate) fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.closed.set(true);
        self.descriptor.set(None);
        let Some(transport) = self.transport(py) else { return Ok(()) };
        match transport.bind(py).call_method0(&self.core.names.abort) {
            Ok(_) => Ok(()),
            // Nobody else will say that the connection is lost.
            Err(error) if error.is_instance_of::<PyException>(py) => self.connection_lost(py),
            Err(error) => Err(error),
        }
    }
}
