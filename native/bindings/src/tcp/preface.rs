//! The PROXY header, in which a proxy names its client before everything else. Python reads it
//! (`uvicorn/listening/proxy_protocol.py`).
//!
//! A parser in Rust would need 1 microsecond instead of 20, of about 120 per connection. It could disagree with the one in
//! Python, which the transports of the event loops need anyway.

use std::io;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::sys::Descriptor;

/// The result of reading it.
pub(super) enum Preface {
    /// It was read, and nothing behind it: an `uvicorn.listening.proxy_protocol.ProxyHeader`.
    Complete(Py<PyAny>),
    Incomplete,
    Malformed(String),
    /// The rest of it will not come.
    Lost,
}

/// Read what the kernel has of it, as soon as that is the whole; until then it stays there. `ended`: no more will come.
pub(super) fn read(py: Python<'_>, descriptor: &Descriptor, buffer: &mut [u8], ended: bool) -> PyResult<Preface> {
    let module = py.import("uvicorn.listening.proxy_protocol")?;
    let longest: usize = module.getattr("MAX_LENGTH")?.extract()?;
    let room = buffer.get_mut(..longest).unwrap_or_default();
    let length = match descriptor.peek(room) {
        Ok(0) => return Ok(Preface::Lost),
        Ok(length) => length,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Preface::Incomplete),
        Err(_) => return Ok(Preface::Lost),
    };
    let input = PyBytes::new(py, room.get(..length).unwrap_or_default());
    let found = match module.call_method1("read", (input,)) {
        Ok(found) => found.extract::<Option<(Py<PyAny>, usize)>>()?,
        Err(error) if error.is_instance(py, &module.getattr("MalformedHeader")?) => {
            return Ok(Preface::Malformed(error.value(py).to_string()));
        }
        Err(error) => return Err(error),
    };
    let Some((proxy_header, length)) = found else {
        return Ok(if ended { Preface::Lost } else { Preface::Incomplete });
    };
    match room.get_mut(..length).map(|room| descriptor.receive(room)) {
        Some(Ok(taken)) if taken == length => Ok(Preface::Complete(proxy_header)),
        _ => Ok(Preface::Lost),
    }
}
