//! A listening socket: connections are taken from it in batches, and get their protocols.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::address::{Local, host_of};
use super::reactor::{Accepts, Poller, Reactor};
use super::slot::ConnectionSlot;
use super::socket::{Keeper as _, Opener, Opening, Socket};
use super::sys::{self, Address};
use super::tls::engine::{Encryption, Tls};
use crate::base::ffi::thread_bound::ThreadBound;
use crate::base::places;
use crate::conn::carrier::Carrier;
use crate::conn::handler::{Handler, PythonProtocol};

/// Taken at once, so that those already open get their turn too.
const BATCH: usize = 64;

/// One listening socket of a [`Reactor`].
pub(crate) struct Listening {
    listener: RefCell<Option<sys::Listener>>,
    /// Of all its connections, if they have the same.
    address: Option<Rc<Local>>,
    /// Makes the protocol of a connection.
    factory: Py<PyAny>,
    /// Receives errors that concern more than one connection, and decides how to go on.
    on_error: Py<PyAny>,
    resting: Cell<bool>,
    /// Waiting connections are left to other workers for a moment.
    looks_away: Cell<bool>,
    encryption: Option<Encryption>,
    /// The time limit from the first byte to the protocol, if a header or a handshake comes first.
    patience: Duration,
    /// Whether the peer of this address has to send a PROXY header, if peers may.
    expects: Option<Py<PyAny>>,
    /// Has room for one connection more, or not, if they are counted.
    enter: Option<Py<PyAny>>,
    /// Answers a connection, of which it gets a duplicate, that there is no room for it.
    reject: Py<PyAny>,
    /// Those that are not open yet.
    opening: Cell<usize>,
    /// Called when the last one is gone.
    when_opened: RefCell<Option<Py<PyAny>>>,
}

impl Listening {
    /// Serve a new connection, or turn it away.
    fn open(
        self: &Rc<Self>,
        py: Python<'_>,
        reactor: &Rc<Reactor>,
        descriptor: sys::Descriptor,
        peer: Address,
        slot: Option<ConnectionSlot>,
    ) -> PyResult<()> {
        let left = slot.as_ref().map(|slot| slot.clone_ref(py));
        match (self.receive(py, reactor, descriptor, peer, slot), left) {
            // It has probably sent something already.
            (Ok(Some(socket)), _) => reactor.queue(py, &socket),
            (Ok(None), Some(slot)) => slot.leave(py),
            (Err(error), Some(slot)) => slot.leave(py).and(Err(error)),
            (outcome, None) => outcome.map(drop),
        }
    }

    fn receive(
        self: &Rc<Self>,
        py: Python<'_>,
        reactor: &Rc<Reactor>,
        descriptor: sys::Descriptor,
        peer: Address,
        slot: Option<ConnectionSlot>,
    ) -> PyResult<Option<Rc<Socket>>> {
        let has_preface = match &self.expects {
            Some(expects) => expects.bind(py).call1((host_of(py, &peer),))?.is_truthy()?,
            None => false,
        };
        if let Some(slot) = &slot
            && !has_preface
            && !slot.admits(py, host_of(py, &peer))?
        {
            return self.reject(py, &descriptor).map(|()| None);
        }
        let tls = self.encryption.as_ref().map(|encryption| Tls::new(py, encryption)).transpose()?;
        if tls.is_some() {
            reactor.count(places::HANDSHAKES_BEGUN);
        }
        let opens_later = has_preface || tls.is_some();
        let socket = reactor.open(descriptor, peer, self.address.clone(), tls);
        if let Some(slot) = slot {
            socket.who.slot.replace(Some(slot));
        }
        let outcome = if opens_later {
            self.opening.set(self.opening.get() + 1);
            let opener: Rc<dyn Opener> = self.clone();
            socket.open_later(if has_preface { Opening::Preface(opener) } else { Opening::Handshake(opener) });
            reactor.expect_opening(py, &socket, self.patience)
        } else {
            self.stand(py, &socket)
        };
        match outcome {
            Ok(()) => Ok(Some(socket)),
            Err(error) => socket.lose(py, None).and(Err(error)),
        }
    }

    /// Accept waiting connections, up to a bound. Returns whether more may wait.
    fn take(self: &Rc<Self>, py: Python<'_>, reactor: &Rc<Reactor>) -> PyResult<bool> {
        for _ in 0..BATCH {
            if self.resting.get() || !reactor.may_take(py, |poll| self.look_away(poll))? {
                return Ok(false);
            }
            let slot = match &self.enter {
                Some(enter) => match ConnectionSlot::take(py, enter)? {
                    // The listener rests until there is room.
                    None => return Ok(false),
                    slot => slot,
                },
                None => None,
            };
            let accepted = self.listener.borrow().as_ref().map(sys::Listener::accept);
            let error = match accepted {
                Some(Ok((descriptor, peer))) => {
                    self.open(py, reactor, descriptor, peer, slot)?;
                    continue;
                }
                Some(Err(error)) => Some(error),
                None => None,
            };
            if let Some(slot) = slot {
                slot.leave(py)?;
            }
            match error {
                None => return Ok(false),
                Some(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    reactor.all_taken();
                    return Ok(false);
                }
                Some(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Some(error) => {
                    let rests = self.on_error.bind(py).call1((sys::os_error(&error).into_value(py),))?.is_truthy()?;
                    if rests {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Ignore waiting connections, for others to take. The poller refuses to ignore a listener twice.
    fn look_away(&self, poll: &sys::Poll) -> io::Result<()> {
        if self.looks_away.replace(true) {
            return Ok(());
        }
        self.listener.borrow().as_ref().map_or(Ok(()), |listener| poll.ignore(listener))
    }
}

impl Accepts for Listening {
    fn accept(self: Rc<Self>, py: Python<'_>, reactor: &Rc<Reactor>) -> PyResult<()> {
        self.take(py, reactor).map(drop)
    }

    fn is_resting(&self) -> bool {
        self.resting.get()
    }

    fn look_again(&self, poll: &sys::Poll, token: u64) -> io::Result<bool> {
        if !self.looks_away.replace(false) {
            return Ok(false);
        }
        match &*self.listener.borrow() {
            Some(listener) if !self.resting.get() => poll.listen(listener, token)?,
            _ => {}
        }
        Ok(true)
    }
}

impl Opener for Listening {
    fn stand(&self, py: Python<'_>, socket: &Rc<Socket>) -> PyResult<()> {
        stand_on(&self.factory.bind(py).call0()?, socket)
    }

    fn is_opened(&self, py: Python<'_>) -> PyResult<()> {
        self.opening.set(self.opening.get() - 1);
        if self.opening.get() > 0 {
            return Ok(());
        }
        match self.when_opened.take() {
            Some(callback) => callback.bind(py).call0().map(drop),
            None => Ok(()),
        }
    }

    #[cold]
    fn reject(&self, py: Python<'_>, descriptor: &sys::Descriptor) -> PyResult<()> {
        if self.encryption.is_some() {
            return Ok(());
        }
        // Without a descriptor for that it only closes.
        descriptor.duplicate().map_or(Ok(()), |number| self.reject.bind(py).call1((number,)).map(drop))
    }
}

/// Finds the native protocol that a Python object is, if it is one that can do without Python's calls.
type Recognise = fn(&Bound<'_, PyAny>, Rc<dyn Carrier>) -> PyResult<Option<Rc<dyn Handler>>>;

static RECOGNISE: OnceLock<Recognise> = OnceLock::new();

/// Have native protocols recognised by this function.
pub(crate) fn recognise_by(recognise: Recognise) {
    let _ = RECOGNISE.set(recognise);
}

/// Put `protocol` on a new socket.
fn stand_on(protocol: &Bound<'_, PyAny>, socket: &Rc<Socket>) -> PyResult<()> {
    if let Some(recognise) = RECOGNISE.get()
        && let Some(handler) = recognise(protocol, socket.clone())?
    {
        socket.set_handler(handler);
        return Ok(());
    }
    let py = protocol.py();
    socket.set_handler(Rc::new(PythonProtocol::new(protocol)?));
    protocol.call_method1("connection_made", (socket.transport(py)?,)).map(drop)
}

/// A listening socket of a `Poller`, as its owner sees it.
///
/// `Listener(poller, descriptor, factory, on_error, context, handshake_timeout, checkpoint)`: `descriptor` is the
/// number of a duplicate of the listening socket, which belongs to this object from then on. With `context`,
/// connections start with a TLS handshake. `checkpoint` is the `uvicorn.listening.acceptor.NativeCheckpoint` that
/// connections pass: where it expects a PROXY header, that comes in front of everything else. Both together may take so
/// many seconds.
#[pyclass(module = "uvicorn._native", frozen)]
pub struct Listener {
    poller: Py<Poller>,
    listening: ThreadBound<Rc<Listening>>,
    token: u64,
}

#[pymethods]
impl Listener {
    #[new]
    fn new(
        poller: &Bound<'_, Poller>,
        descriptor: i32,
        factory: Py<PyAny>,
        on_error: Py<PyAny>,
        context: Option<&Bound<'_, PyAny>>,
        handshake_timeout: f64,
        checkpoint: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let patience = Duration::try_from_secs_f64(handshake_timeout)
            .map_err(|error| PyValueError::new_err(format!("handshake_timeout: {error}")))?;
        let encryption = context.map(Encryption::new).transpose()?;
        let reactor = poller.get().reactor()?;
        let listener = sys::Listener::adopt(descriptor)?;
        Poller::attach(poller)?;
        let listening = Rc::new(Listening {
            address: listener.address().map(Local::new).map(Rc::new),
            listener: RefCell::new(Some(listener)),
            factory,
            on_error,
            resting: Cell::new(true),
            looks_away: Cell::new(false),
            encryption,
            patience,
            expects: checkpoint.getattr("expects")?.extract()?,
            enter: checkpoint.getattr("enter")?.extract()?,
            reject: checkpoint.getattr("reject")?.unbind(),
            opening: Cell::new(0),
            when_opened: RefCell::default(),
        });
        let token = reactor.listen(listening.clone());
        Ok(Self { poller: poller.clone().unbind(), listening: ThreadBound::new(listening), token })
    }

    /// Take connections (again).
    fn resume(&self) -> PyResult<()> {
        let listening = self.listening.here()?;
        let reactor = self.poller.get().reactor()?;
        if let Some(listener) = &*listening.listener.borrow()
            && listening.resting.replace(false)
            && !listening.looks_away.get()
        {
            reactor.with_poll(|poll| poll.listen(listener, self.token))?;
        }
        reactor.tell_share();
        Ok(())
    }

    /// Leave connections where they are for a while.
    fn pause(&self) -> PyResult<()> {
        let listening = self.listening.here()?;
        let reactor = self.poller.get().reactor()?;
        if let Some(listener) = &*listening.listener.borrow()
            && !listening.resting.replace(true)
            && !listening.looks_away.get()
        {
            reactor.with_poll(|poll| poll.ignore(listener))?;
        }
        reactor.tell_share();
        Ok(())
    }

    /// Have `callback` called, without an argument, when no handshake is under way. Returns whether one is; if not,
    /// nothing is called.
    fn when_opened(&self, callback: Py<PyAny>) -> PyResult<bool> {
        let listening = self.listening.here()?;
        if listening.opening.get() == 0 {
            return Ok(false);
        }
        let old = listening.when_opened.replace(Some(callback));
        drop(old);
        Ok(true)
    }

    /// Give up the handshakes that are under way.
    fn give_up_opening(&self, py: Python<'_>) -> PyResult<()> {
        let listening = self.listening.here()?;
        self.poller.get().reactor()?.give_up_opening(py, |socket| socket.is_opening_for(listening))
    }

    /// Accept all waiting connections: the system resets those still in the backlog when the socket is closed.
    fn take_rest(&self, py: Python<'_>) -> PyResult<()> {
        let (listening, reactor) = (self.listening.here()?, self.poller.get().reactor()?);
        while listening.take(py, reactor)? {}
        Ok(())
    }

    /// Stop accepting.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.pause()?;
        let listener = self.listening.here()?.listener.take();
        drop(listener);
        self.poller.get().reactor()?.unlisten(py, self.token)
    }
}
