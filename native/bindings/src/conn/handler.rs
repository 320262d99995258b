//! The receiver of a socket's events: its protocol.

use std::rc::Rc;
use std::sync::OnceLock;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::base::ffi::bytes::Growing;
use crate::base::objects::{copy_of, slice};

/// Receives the events of a socket, in the words of asyncio's protocols. Any of these calls may come back to the
/// socket, and may run application code: the caller holds no borrow.
pub(crate) trait Handler {
    /// Bytes have come.
    fn on_data(self: Rc<Self>, py: Python<'_>, data: &[u8]) -> PyResult<()>;
    /// Bytes have come, and may be changed in place: the caller does not use them again.
    fn on_input(self: Rc<Self>, py: Python<'_>, data: &mut [u8]) -> PyResult<()> {
        self.on_data(py, data)
    }
    /// Call `receive` with the buffer for the next bytes, if there is one. Usually there is none.
    fn with_receive_buffer(&self, _receive: &mut dyn FnMut(&mut Growing)) {}
    /// `length` bytes were received in that buffer.
    fn on_received_in_buffer(self: Rc<Self>, _py: Python<'_>, _length: usize) -> PyResult<()> {
        Ok(())
    }
    /// The peer has nothing more to send. Returns whether the socket stays open for writing.
    fn on_eof(self: Rc<Self>, py: Python<'_>) -> PyResult<bool>;
    /// The peer has ended, or has reset the connection, while no input is taken; earlier input may still be there.
    fn on_hang_up(self: Rc<Self>, _py: Python<'_>, _reset: bool) -> PyResult<()> {
        Ok(())
    }
    /// The socket is gone, because of `error` if there is one. No event follows.
    fn on_lost(self: Rc<Self>, py: Python<'_>, error: Option<PyErr>) -> PyResult<()>;
    /// More waits to be written than should.
    fn on_pause(self: Rc<Self>, py: Python<'_>) -> PyResult<()>;
    /// Little enough waits to be written again.
    fn on_resume(self: Rc<Self>, py: Python<'_>) -> PyResult<()>;
    /// The asyncio protocol that it is to Python.
    fn protocol(&self, py: Python<'_>) -> Option<Py<PyAny>>;
}

/// Use the bytes of any object that has some.
pub(crate) fn with_bytes<R>(data: &Bound<'_, PyAny>, use_bytes: impl FnOnce(&[u8]) -> PyResult<R>) -> PyResult<R> {
    match data.cast::<PyBytes>() {
        Ok(data) => use_bytes(data.as_bytes()),
        Err(_) => use_bytes(copy_of(data)?.as_bytes()),
    }
}

/// Hand `data` to `handler`: any object that has bytes.
pub(crate) fn hand_data(handler: Rc<impl Handler>, data: &Bound<'_, PyAny>) -> PyResult<()> {
    with_bytes(data, |bytes| handler.on_data(data.py(), bytes))
}

/// Finds the native protocol that takes over a socket from another protocol: it knows of the connection already.
type Recognise = fn(&Bound<'_, PyAny>) -> PyResult<Option<Rc<dyn Handler>>>;

static RECOGNISE: OnceLock<Recognise> = OnceLock::new();

/// Have native protocols that take over recognised by this function.
pub(crate) fn recognise_successors_by(recognise: Recognise) {
    let _ = RECOGNISE.set(recognise);
}

/// A handler for whatever `protocol` is, which takes a socket over.
pub(crate) fn handler_of(protocol: &Bound<'_, PyAny>) -> PyResult<Rc<dyn Handler>> {
    let native = RECOGNISE.get().map_or(Ok(None), |recognise| recognise(protocol))?;
    native.map_or_else(|| Ok(Rc::new(PythonProtocol::new(protocol)?) as Rc<dyn Handler>), Ok)
}

/// An asyncio protocol written in Python.
pub(crate) struct PythonProtocol {
    protocol: Py<PyAny>,
    /// It is an `asyncio.BufferedProtocol`.
    buffered: bool,
}

impl PythonProtocol {
    pub(crate) fn new(protocol: &Bound<'_, PyAny>) -> PyResult<Self> {
        let class = protocol.py().import("asyncio")?.getattr("BufferedProtocol")?;
        Ok(Self { buffered: protocol.is_instance(&class)?, protocol: protocol.clone().unbind() })
    }

    fn fill_buffers(&self, py: Python<'_>, mut data: &[u8]) -> PyResult<()> {
        let protocol = self.protocol.bind(py);
        while !data.is_empty() {
            let buffer = protocol.call_method1("get_buffer", (data.len(),))?;
            let view = pyo3::types::PyMemoryView::from(&buffer)?.call_method1("cast", ("B",))?;
            let (part, rest) = data.split_at(data.len().min(view.len()?));
            if part.is_empty() {
                return Err(PyRuntimeError::new_err("get_buffer() returned an empty buffer"));
            }
            view.set_item(slice(py, 0, part.len())?, PyBytes::new(py, part))?;
            protocol.call_method1("buffer_updated", (part.len(),))?;
            data = rest;
        }
        Ok(())
    }
}

impl Handler for PythonProtocol {
    fn on_data(self: Rc<Self>, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        if self.buffered {
            return self.fill_buffers(py, data);
        }
        self.protocol.bind(py).call_method1("data_received", (PyBytes::new(py, data),)).map(drop)
    }

    fn on_eof(self: Rc<Self>, py: Python<'_>) -> PyResult<bool> {
        self.protocol.bind(py).call_method0("eof_received")?.is_truthy()
    }

    fn on_lost(self: Rc<Self>, py: Python<'_>, error: Option<PyErr>) -> PyResult<()> {
        let error = error.map(|error| error.into_value(py));
        self.protocol.bind(py).call_method1("connection_lost", (error,)).map(drop)
    }

    fn on_pause(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.protocol.bind(py).call_method0("pause_writing").map(drop)
    }

    fn on_resume(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.protocol.bind(py).call_method0("resume_writing").map(drop)
    }

    fn protocol(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        Some(self.protocol.clone_ref(py))
    }
}
