//! What both engines and plain sockets have in common: calls of the kernel, and the outcomes of handshakes.

use std::io::{self, IoSlice};

use pyo3::prelude::*;

use crate::base::ffi::bytes::Growing;
use crate::base::places;
use crate::tcp::sys::{Descriptor, os_error};

/// Bytes encrypted at once. OpenSSL keeps that much room for as long as the connection lives.
pub(crate) const PIECE: usize = 64 * 1024;
/// Read at once to its destination, so that it is processed while it is in a near cache.
const PLACED: usize = 256 * 1024;

/// The result of a read.
pub(crate) enum Input {
    /// That many bytes. If it is `drained`, the kernel had no more at this moment.
    Data { length: usize, drained: bool },
    /// The peer has nothing more to send.
    End,
    /// Nothing, for now.
    Nothing,
}

/// The counted properties of a complete handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handshake {
    /// 0x0303 is TLS 1.2.
    pub(super) version: u16,
    /// The session of an earlier connection was resumed.
    pub(super) resumed: bool,
}

impl Handshake {
    /// Where it is counted.
    pub(crate) fn place(self) -> usize {
        match (self.version, self.resumed) {
            (0x0304.., false) => places::TLS13_HANDSHAKES,
            (0x0304.., true) => places::TLS13_RESUMED,
            (_, false) => places::TLS12_HANDSHAKES,
            (_, true) => places::TLS12_RESUMED,
        }
    }
}

/// Why a handshake was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeFailure {
    /// It has taken too long.
    Timeout,
    /// The client has closed the connection, or the server shuts down.
    Closed,
    /// The client has no version of TLS that is served.
    Version,
    /// The client has no cipher suite, group or signature algorithm that is served.
    Parameters,
    /// The certificate of the client is missing, or was not accepted.
    Certificate,
    /// The client has sent an alert.
    Alert,
    /// What the client has sent is not TLS.
    NotTls,
    Other,
}

impl HandshakeFailure {
    /// Where it is counted.
    pub(crate) fn place(self) -> usize {
        match self {
            Self::Timeout => places::HANDSHAKE_TIMEOUTS,
            Self::Closed => places::HANDSHAKES_CLOSED,
            Self::Version => places::HANDSHAKES_OF_OTHER_VERSIONS,
            Self::Parameters => places::HANDSHAKES_WITHOUT_PARAMETERS,
            Self::Certificate => places::HANDSHAKES_WITHOUT_CERTIFICATE,
            Self::Alert => places::HANDSHAKE_ALERTS,
            Self::NotTls => places::HANDSHAKES_NOT_TLS,
            Self::Other => places::OTHER_HANDSHAKE_FAILURES,
        }
    }
}

/// Read the kernel's input.
#[inline]
pub(crate) fn receive(descriptor: &Descriptor, buffer: &mut [u8]) -> PyResult<Input> {
    received(|| Ok((buffer.len(), descriptor.receive(buffer)?)))
}

/// Read the kernel's input into `object`, which has room for it.
pub(crate) fn receive_into(descriptor: &Descriptor, object: &mut Growing) -> PyResult<Input> {
    received(|| object.fill_by(PLACED, |room| descriptor.receive_into(room)))
}

/// The result of `read`, which returns how many bytes it had room for, and how many it read.
#[inline]
fn received(mut read: impl FnMut() -> io::Result<(usize, usize)>) -> PyResult<Input> {
    loop {
        match read() {
            Ok((_, 0)) => return Ok(Input::End),
            Ok((room, length)) => return Ok(Input::Data { length, drained: length < room }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Input::Nothing),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(os_error(&error)),
        }
    }
}

/// Write as much as the kernel takes; returns how many bytes that is.
#[inline]
pub(crate) fn send(descriptor: &Descriptor, pieces: &[IoSlice<'_>]) -> PyResult<usize> {
    loop {
        let sent = match pieces {
            [piece] => descriptor.send(piece),
            pieces => descriptor.send_all(pieces),
        };
        match sent {
            Ok(sent) => return Ok(sent),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(os_error(&error)),
        }
    }
}
