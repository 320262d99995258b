//! The choice of a connection's HTTP version, which is the client's.
//!
//! ```text
//! Undecided ──ALPN says h2, or the first bytes are its preface──▶ Http2
//!     └───────────────────────anything else─────────────────────▶ Http1
//! ```
//!
//! Until it is known the connection is one of HTTP/1.1 that has read nothing: so a client that sends less than a
//! preface has the deadline of a first head.

use std::cell::RefCell;
use std::rc::Rc;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use wire::h2::frame::PREFACE;

use crate::conn::carrier::Carrier;
use crate::conn::handler::Handler;
use crate::h1::connection::{Connection as Http1, Leaving};
use crate::h2::connection::Connection as Http2;
use crate::h2::core::Core;
#[cfg(target_os = "linux")]
use crate::h3::connection::Connection as Http3;

/// The protocol version.
enum State {
    /// Undecided: all bytes so far may be the beginning of a preface.
    Undecided {
        http1: Rc<Http1>,
        core: Rc<Core>,
        begun: Vec<u8>,
    },
    Http1(Rc<Http1>),
    Http2(Rc<Http2>),
    #[cfg(target_os = "linux")]
    Http3(Rc<Http3>),
}

/// The version of one connection, and the state machine of that version.
pub(crate) struct Version(RefCell<State>);

/// The state machine of a connection.
pub(crate) enum Served {
    Http1(Rc<Http1>),
    Http2(Rc<Http2>),
    #[cfg(target_os = "linux")]
    Http3(Rc<Http3>),
}

impl Version {
    /// That of a new connection: HTTP/2 is possible if there is a `core` for it.
    pub(crate) fn new(http1: Rc<Http1>, core: Option<Rc<Core>>) -> Self {
        Self(RefCell::new(match core {
            Some(core) => State::Undecided { http1, core, begun: Vec::new() },
            None => State::Http1(http1),
        }))
    }

    /// The present state machine.
    pub(crate) fn served(&self) -> Served {
        match &*self.0.borrow() {
            State::Undecided { http1, .. } | State::Http1(http1) => Served::Http1(http1.clone()),
            State::Http2(http2) => Served::Http2(http2.clone()),
            #[cfg(target_os = "linux")]
            State::Http3(http3) => Served::Http3(http3.clone()),
        }
    }

    /// A connection of QUIC, which has read nothing, becomes one of HTTP/3.
    #[cfg(target_os = "linux")]
    pub(crate) fn become_http3(&self, http3: Rc<Http3>) {
        let old = self.0.replace(State::Http3(http3));
        drop(old);
    }

    fn is_undecided(&self) -> bool {
        matches!(*self.0.borrow(), State::Undecided { .. })
    }

    /// A client has connected: ALPN says what it speaks, or it is to be seen by its first bytes.
    pub(crate) fn connected(&self, py: Python<'_>) -> PyResult<()> {
        if !self.is_undecided() {
            return Ok(());
        }
        let Served::Http1(http1) = self.served() else { return Ok(()) };
        let Some(carrier) = http1.sides.carrier() else { return Ok(()) };
        match carrier.application_protocol(py)? {
            None => Ok(()),
            Some(protocol) => self.decide(py, protocol.as_deref() == Some("h2")).map(drop),
        }
    }

    /// Bytes from a client whose version was not known.
    pub(crate) fn receive(&self, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        let input = {
            let mut state = self.0.borrow_mut();
            match &mut *state {
                State::Undecided { begun, .. } => {
                    begun.extend_from_slice(data);
                    let length = begun.len().min(PREFACE.len());
                    if length < PREFACE.len() && begun.get(..length) == PREFACE.get(..length) {
                        return Ok(());
                    }
                    std::mem::take(begun)
                }
                _ => data.to_vec(),
            }
        };
        self.decide(py, input.starts_with(PREFACE) || breaks_preface(&input))?.on_data(py, &input)
    }

    /// The client sends nothing further.
    pub(crate) fn end(&self, py: Python<'_>) -> PyResult<bool> {
        let begun = match &mut *self.0.borrow_mut() {
            State::Undecided { begun, .. } => std::mem::take(begun),
            _ => Vec::new(),
        };
        let handler = self.decide(py, false)?;
        if !begun.is_empty() {
            handler.clone().on_data(py, &begun)?;
        }
        handler.on_eof(py)
    }

    /// Choose the version; returns its state machine.
    fn decide(&self, py: Python<'_>, is_http2: bool) -> PyResult<Rc<dyn Handler>> {
        let found = match &*self.0.borrow() {
            State::Undecided { http1, core, .. } => Some((http1.clone(), core.clone())),
            _ => None,
        };
        let Some((http1, core)) = found else { return Ok(self.handler()) };
        let leaving = if is_http2 { http1.leave(py) } else { None };
        let Some(Leaving { protocol, carrier, peer, announced }) = leaving else {
            let carrier = http1.sides.carrier();
            self.become_version(carrier.as_deref(), State::Http1(http1));
            return Ok(self.handler());
        };
        let http2 = Rc::new(Http2::new(core, peer));
        self.become_version(Some(&*carrier), State::Http2(http2.clone()));
        http2.begin(protocol.bind(py), carrier, announced)?;
        Ok(http2)
    }

    fn become_version(&self, carrier: Option<&dyn Carrier>, version: State) {
        let old = self.0.replace(version);
        drop(old);
        if let Some(carrier) = carrier {
            carrier.set_handler(self.handler());
        }
    }

    /// The receiver of the connection's events.
    pub(crate) fn handler(&self) -> Rc<dyn Handler> {
        match self.served() {
            Served::Http1(http1) => http1,
            Served::Http2(http2) => http2,
            #[cfg(target_os = "linux")]
            Served::Http3(http3) => http3,
        }
    }

    /// The receiver of its events, once that is final.
    pub(crate) fn decided(&self) -> Option<Rc<dyn Handler>> {
        (!self.is_undecided()).then(|| self.handler())
    }

    // The garbage collector's side.

    /// Show the collector the objects that a cycle of references may go through.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.0.try_borrow().as_deref() {
            Ok(State::Undecided { http1, .. } | State::Http1(http1)) => http1.traverse(visit),
            Ok(State::Http2(http2)) => http2.traverse(visit),
            #[cfg(target_os = "linux")]
            Ok(State::Http3(http3)) => http3.traverse(visit),
            Err(_) => Ok(()),
        }
    }

    /// Let go of them.
    pub(crate) fn clear(&self) {
        match self.served() {
            Served::Http1(http1) => http1.sides.clear(),
            Served::Http2(http2) => http2.sides.clear(),
            #[cfg(target_os = "linux")]
            Served::Http3(http3) => http3.sides.clear(),
        }
    }
}

/// Whether this begins with three words that are not meant as a request, so should have been a preface (RFC 9113 section 3.4).
/// A request line has a slash even where it is malformed, in its target or in its version: its sender has to get a status.
fn breaks_preface(input: &[u8]) -> bool {
    let line = input.split(|&byte| byte == b'\n').next().unwrap_or_default();
    line.len() < input.len() && !line.contains(&b'/') && line.split(|&byte| byte == b' ').nth(2).is_some()
}
