//! The engine of a connection, which its context selects.

use std::cell::RefCell;
use std::io::IoSlice;
use std::rc::Rc;

use pyo3::intern;
use pyo3::prelude::*;

use super::openssl;
#[cfg(target_os = "linux")]
use super::rustls;
use super::shared::{Handshake, HandshakeFailure, Input, PIECE};
use crate::base::encrypted::SslObject;
use crate::conn::carrier::{Negotiated, negotiated};
use crate::conn::output::Output;
use crate::tcp::sys::Descriptor;

/// The TLS settings of one listening socket's connections.
pub(crate) enum Encryption {
    OpenSsl(Rc<openssl::Encryption>),
    /// OpenSSL for connections that rustls is not to encrypt any longer.
    #[cfg(target_os = "linux")]
    Rustls(Rc<rustls::Encryption>, Rc<openssl::Encryption>),
}

impl Encryption {
    pub(crate) fn new(context: &Bound<'_, PyAny>) -> PyResult<Self> {
        let openssl = openssl::Encryption::new(context).map(Rc::new)?;
        #[cfg(target_os = "linux")]
        if let Some(config) = context.getattr_opt(intern!(context.py(), "rustls"))?.filter(|config| !config.is_none()) {
            return Ok(Self::Rustls(Rc::new(rustls::Encryption::new(context, &config)?), openssl));
        }
        Ok(Self::OpenSsl(openssl))
    }
}

/// The TLS side of one connection.
pub(crate) enum Tls {
    OpenSsl(Box<openssl::Tls>),
    /// Shared with what describes it to programs.
    #[cfg(target_os = "linux")]
    Rustls(Rc<rustls::Tls>),
}

/// Call a method of the engine.
macro_rules! engine {
    ($own:expr, $tls:ident => $call:expr) => {
        match $own {
            Self::OpenSsl($tls) => $call,
            #[cfg(target_os = "linux")]
            Self::Rustls($tls) => $call,
        }
    };
}

impl Tls {
    pub(crate) fn new(py: Python<'_>, encryption: &Encryption) -> PyResult<Self> {
        let openssl = match encryption {
            Encryption::OpenSsl(openssl) => openssl,
            #[cfg(target_os = "linux")]
            Encryption::Rustls(rustls, openssl) => match rustls.current() {
                Some(settings) => return Ok(Self::Rustls(Rc::new(rustls::Tls::new(rustls, settings)))),
                None => openssl,
            },
        };
        openssl::Tls::new(py, openssl).map(Box::new).map(Self::OpenSsl)
    }

    /// Bytes that the kernel has not taken yet.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        engine!(self, tls => tls.waiting())
    }

    /// Nothing of it will be sent. The caller drops the result.
    pub(crate) fn forget(&self) -> Option<Py<PyAny>> {
        engine!(self, tls => tls.forget())
    }

    /// Go on with the handshake. Returns whether it is complete.
    pub(crate) fn open(&self, py: Python<'_>, descriptor: &Descriptor, buffer: &mut [u8]) -> PyResult<bool> {
        match self {
            Self::OpenSsl(tls) => tls.open(py, descriptor, buffer),
            #[cfg(target_os = "linux")]
            Self::Rustls(tls) => tls.open(py, descriptor),
        }
    }

    /// Version and resumption of a complete handshake.
    pub(crate) fn handshake(&self, py: Python<'_>) -> PyResult<Handshake> {
        match self {
            Self::OpenSsl(tls) => tls.handshake(py),
            #[cfg(target_os = "linux")]
            Self::Rustls(tls) => Ok(tls.handshake()),
        }
    }

    /// Why the handshake has failed, if that was by this error.
    pub(crate) fn failure(&self, py: Python<'_>, error: &PyErr) -> HandshakeFailure {
        match self {
            Self::OpenSsl(tls) => tls.failure(py, error),
            #[cfg(target_os = "linux")]
            Self::Rustls(tls) => tls.failure(),
        }
    }

    /// Read the peer's data, into the whole of `buffer` if there is that much.
    pub(crate) fn receive(&self, py: Python<'_>, descriptor: &Descriptor, buffer: &mut [u8]) -> PyResult<Input> {
        engine!(self, tls => tls.receive(py, descriptor, buffer))
    }

    /// How much of `body` is written with a `head`: one piece together.
    pub(crate) fn first<'a>(&self, head: &[u8], body: &'a [u8]) -> &'a [u8] {
        let most = match self {
            Self::OpenSsl(_) => PIECE.saturating_sub(head.len()),
            #[cfg(target_os = "linux")]
            Self::Rustls(_) => rustls::together(body.len()),
        };
        body.get(..most).unwrap_or(body)
    }

    /// Encrypt and send as much of `pieces` as the kernel takes; returns how many bytes that is.
    pub(crate) fn send(&self, py: Python<'_>, descriptor: &Descriptor, pieces: &[IoSlice<'_>]) -> PyResult<usize> {
        engine!(self, tls => tls.send(py, descriptor, pieces))
    }

    /// Encrypt and send the first of the waiting bytes. Returns how many, which is 0 if it has to wait; `None` if no bytes
    /// wait. Python code may run meanwhile, so no borrow is held then.
    pub(crate) fn send_first(
        &self,
        py: Python<'_>,
        descriptor: &Descriptor,
        output: &RefCell<Output>,
    ) -> PyResult<Option<usize>> {
        match self {
            Self::OpenSsl(tls) => {
                let first = output.borrow().first(py, PIECE)?;
                first.map(|first| tls.send_piece(py, descriptor, &first)).transpose()
            }
            #[cfg(target_os = "linux")]
            Self::Rustls(tls) => {
                // It calls no Python.
                let output = output.borrow();
                (output.len() > 0)
                    .then(|| {
                        output.give(py, |pieces| tls.send_most(py, descriptor, pieces, rustls::together(output.len())))
                    })
                    .transpose()
            }
        }
    }

    /// Tell the peer that nothing follows (`close_notify`, RFC 8446 section 6.1). Returns whether that is sent.
    pub(crate) fn finish(&self, py: Python<'_>, descriptor: &Descriptor) -> PyResult<bool> {
        engine!(self, tls => tls.finish(py, descriptor))
    }

    /// Write the engine's output to the kernel. Returns whether it has taken everything.
    pub(crate) fn flush(&self, py: Python<'_>, descriptor: &Descriptor) -> PyResult<bool> {
        engine!(self, tls => tls.flush(py, descriptor))
    }

    /// Whether `error` only means that the peer has closed without `close_notify`.
    pub(crate) fn is_sudden_end(&self, py: Python<'_>, error: &PyErr) -> bool {
        engine!(self, tls => tls.is_sudden_end(py, error))
    }

    /// What programs see of the connection.
    pub(crate) fn object(&self, py: Python<'_>) -> SslObject {
        match self {
            Self::OpenSsl(tls) => SslObject::Made(tls.object(py)),
            #[cfg(target_os = "linux")]
            Self::Rustls(tls) => SslObject::Later(tls.clone()),
        }
    }

    /// The connection is over: keep no object that only programs need. The caller drops the result.
    pub(crate) fn release_object(&self) -> Option<Py<PyAny>> {
        match self {
            Self::OpenSsl(_) => None,
            #[cfg(target_os = "linux")]
            Self::Rustls(tls) => tls.release_object(),
        }
    }

    /// The `ssl.SSLContext` that the connection has: of OpenSSL's the one that SNI has selected.
    pub(crate) fn context(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::OpenSsl(tls) => tls.object(py).bind(py).getattr(intern!(py, "context")).map(Bound::unbind),
            #[cfg(target_os = "linux")]
            Self::Rustls(tls) => Ok(tls.context(py)),
        }
    }

    /// The protocol of ALPN.
    pub(crate) fn application_protocol(&self, py: Python<'_>) -> PyResult<Negotiated> {
        match self {
            Self::OpenSsl(tls) => negotiated(tls.object(py).bind(py)),
            #[cfg(target_os = "linux")]
            Self::Rustls(tls) => Ok(tls.protocol()),
        }
    }
}
