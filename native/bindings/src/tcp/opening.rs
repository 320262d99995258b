//! The steps before the protocol of a socket: the PROXY header, if a proxy has to name its client, and the handshake.

use std::rc::Rc;

use pyo3::prelude::*;

use super::preface::{self, Preface};
use super::socket::{Opener, Opening, Socket};
use super::states::{PeerEnd, Phase};
use super::sys::Descriptor;
use super::tls::shared::HandshakeFailure;

impl Socket {
    /// Put a protocol on this socket once `opening` is over.
    pub(super) fn open_later(&self, opening: Opening) {
        self.opening.replace(opening);
    }

    /// Go on with opening; when that is done, the socket has a protocol.
    pub(super) fn go_on_opening(self: &Rc<Self>, py: Python<'_>, buffer: &mut [u8]) -> PyResult<()> {
        let Some(descriptor) = self.descriptor() else { return Ok(()) };
        if self.phase.get() != Phase::Open {
            return Ok(());
        }
        if self.awaits_preface() && !self.hear_preface(py, &descriptor, buffer)? {
            return Ok(());
        }
        match self.tls.as_ref().map_or(Ok(true), |tls| tls.open(py, &descriptor, buffer)) {
            Ok(true) => {
                if let Some(tls) = &self.tls
                    && self.keeper.counts()
                {
                    self.keeper.count(tls.handshake(py)?.place());
                }
                let Some(opener) = self.opening.take().opener() else { return Ok(()) };
                let outcome = opener.stand(py, self);
                opener.is_opened(py)?;
                outcome.or_else(|error| self.lose(py, None).and(Err(error)))
            }
            Ok(false) => self.await_input(py),
            Err(error) => {
                let failure = self.tls.as_ref().map(|tls| tls.failure(py, &error));
                self.give_up_opening(py, &error.into_value(py).into_bound(py).str()?.to_cow()?, failure)
            }
        }
    }

    /// Hear who is there. Returns whether that is known, and welcome.
    fn hear_preface(self: &Rc<Self>, py: Python<'_>, descriptor: &Descriptor, buffer: &mut [u8]) -> PyResult<bool> {
        let ended = self.kernel.peer_end.get() != PeerEnd::Unknown;
        match preface::read(py, descriptor, buffer, ended)? {
            Preface::Complete(proxy_header) => {
                self.who.set_proxy_header(proxy_header);
                if let Some(opener) = self.opening.take().opener() {
                    self.opening.replace(Opening::Handshake(opener));
                }
                if self.is_admitted(py)? {
                    return Ok(true);
                }
                self.reject(py, descriptor).map(|()| false)
            }
            Preface::Incomplete => self.await_input(py).map(|()| false),
            Preface::Malformed(reason) => {
                self.keeper.note_malformed_preface(py, &self.who.nearest_name(py)?, &reason)?;
                self.give_up_opening(py, "the PROXY header is malformed", None).map(|()| false)
            }
            Preface::Lost => {
                self.give_up_opening(py, "the peer disconnected before sending a PROXY header", None).map(|()| false)
            }
        }
    }

    /// Whether the connection limit has room for a client of this address.
    pub(super) fn is_admitted(&self, py: Python<'_>) -> PyResult<bool> {
        let slot = self.who.slot.borrow().as_ref().map(|slot| slot.clone_ref(py));
        slot.map_or(Ok(true), |slot| slot.admits(py, self.who.host(py)?))
    }

    /// There is no room for it.
    #[cold]
    fn reject(&self, py: Python<'_>, descriptor: &Descriptor) -> PyResult<()> {
        let opener = self.opening.borrow().opener();
        opener.map_or(Ok(()), |opener| opener.reject(py, descriptor))?;
        self.give_up_opening(py, "its address has too many connections", None)
    }

    /// The handshake failed, or lasts too long: no protocol knows of the connection, so it only leaves a debug line.
    #[cold]
    pub(super) fn give_up_opening(
        &self,
        py: Python<'_>,
        reason: &str,
        failure: Option<HandshakeFailure>,
    ) -> PyResult<()> {
        let Some(opener) = self.opening.take().opener() else { return Ok(()) };
        if let Some(failure) = failure {
            self.keeper.count(failure.place());
        }
        self.keeper.note_failed_opening(py, &self.who.peer_name(py)?, reason)?;
        opener.is_opened(py)?;
        self.lose(py, None)
    }

    /// It has lasted too long.
    #[cold]
    pub(super) fn give_up_late(&self, py: Python<'_>) -> PyResult<()> {
        let (late, failure) = if self.awaits_preface() {
            ("the PROXY header", None)
        } else {
            ("the TLS handshake", Some(HandshakeFailure::Timeout))
        };
        self.give_up_opening(py, &format!("{late} took too long"), failure)
    }

    pub(super) fn is_opening(&self) -> bool {
        !matches!(*self.opening.borrow(), Opening::Over)
    }

    fn awaits_preface(&self) -> bool {
        matches!(*self.opening.borrow(), Opening::Preface(_))
    }

    /// Whether `opener` has accepted it, and its handshake is not complete.
    pub(super) fn is_opening_for(&self, opener: &Rc<impl Opener>) -> bool {
        self.opening.borrow().opener().is_some_and(|own| std::ptr::addr_eq(Rc::as_ptr(&own), Rc::as_ptr(opener)))
    }
}
