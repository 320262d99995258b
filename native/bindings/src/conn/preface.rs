//! What a proxy says in front of everything else: who its client is (`wire::proxy`).

use std::io;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::proxy::{self, Ends, Header, Malformed};

use super::sys::{Address, Descriptor};

/// What was said of a client.
pub(super) struct Told {
    /// `None` where the ends of the connection hold, as those of `destination` do.
    pub(super) source: Option<Address>,
    pub(super) destination: Option<Address>,
    /// The client has encrypted what it sends.
    pub(super) is_secure: bool,
    /// The header, which Python reads again where it is asked for.
    header: Vec<u8>,
}

impl Told {
    fn new(input: &[u8], header: &Header<'_>) -> Self {
        let (source, destination) = match header.ends {
            None => (None, None),
            Some(Ends::Ip { source, destination }) => (Some(Address::Ip(source)), Some(Address::Ip(destination))),
            Some(Ends::Unix { source, destination }) => {
                (Some(Address::Path(source.to_vec())), Some(Address::Path(destination.to_vec())))
            }
        };
        Self {
            source,
            destination,
            is_secure: header.tls.is_some(),
            header: input.get(..header.length).unwrap_or_default().to_vec(),
        }
    }

    /// The header, for Python to read.
    pub(super) fn header(&self, py: Python<'_>) -> Py<PyAny> {
        PyBytes::new(py, &self.header).into_any().unbind()
    }

    /// All of it, as Python has it.
    pub(super) fn introduction(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let module = py.import("uvicorn.proxy_protocol")?;
        Ok(module.call_method1("introduction_of", (self.header(py),))?.unbind())
    }
}

/// What came of a look at it.
pub(super) enum Preface {
    /// It was read, and nothing behind it.
    Complete(Box<Told>),
    Incomplete,
    Malformed(Malformed),
    /// Nothing of it will come any more.
    Lost,
}

/// Read what the kernel has of it, as soon as that is the whole; until then it stays there. `ended`: no more will come.
pub(super) fn read(descriptor: &Descriptor, buffer: &mut [u8], ended: bool) -> Preface {
    let room = buffer.get_mut(..proxy::MAX_LENGTH).unwrap_or_default();
    let length = match descriptor.peek(room) {
        Ok(0) => return Preface::Lost,
        Ok(length) => length,
        Err(error) if is_for_later(&error) => return Preface::Incomplete,
        Err(_) => return Preface::Lost,
    };
    let input = room.get(..length).unwrap_or_default();
    match proxy::read(input) {
        Ok(Some(header)) => {
            let (told, length) = (Told::new(input, &header), header.length);
            match room.get_mut(..length).map(|room| descriptor.receive(room)) {
                Some(Ok(taken)) if taken == length => Preface::Complete(Box::new(told)),
                _ => Preface::Lost,
            }
        }
        Ok(None) if ended => Preface::Lost,
        Ok(None) => Preface::Incomplete,
        Err(malformed) => Preface::Malformed(malformed),
    }
}

fn is_for_later(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}
