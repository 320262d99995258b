//! The turns of one event loop: one query finds all ready sockets, which are served first come first served.
//!
//! The loop watches one descriptor, our epoll set, and calls [`Poller::turn`]. A turn takes new connections and looks
//! for new input, which get their places in the queue in the order in which they came. Then it serves one round of the
//! queue, for [`TURN`] at most; the rest waits for the turn that is scheduled for the next iteration, so that the loop's
//! tasks and timers have theirs. libuv accepts one connection per turn, so new clients of a busy server would wait until
//! the load ends.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use pyo3::PyTraverseError;
use pyo3::exceptions::PyValueError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::address::Local;
use super::registry::Registry;
use super::share::Share;
use super::socket::{Keeper, Socket};
use super::states::QueueState;
use super::sys::{self, Descriptor, Events, Poll};
use super::tls::engine::Tls;
use super::transport::Transport;
use crate::base::ffi::call::copy_context;
use crate::base::ffi::thread_bound::{ThreadBound, bury};
use crate::base::metrics::Metrics;
use crate::base::panic::{Rehearsal, describe};
use crate::base::places;
use crate::base::shortcuts::{Shortcut, is_taken};
use crate::base::turns::{AfterTurn, HANDSHAKES, TURN, Turns};
use crate::conn::grace::{Grace, lag_since};

/// The time for which a connection is left to other workers.
const MOMENT: Duration = Duration::from_millis(1);
/// Bytes of one read.
const BUFFER_BYTES: usize = 64 * 1024;
/// How often a connection that fills the buffer is read before others have their turn.
const MAX_READS: usize = 4;
/// `logging.DEBUG`
const DEBUG: u8 = 10;
/// Differs from the tokens of connections by a bit that those never have.
const LISTENER: u64 = 1 << 63;
/// Differs from those of listening sockets in the same way. The lowest 16 bits are the number of a descriptor.
const DATAGRAMS: u64 = LISTENER | 1 << 62;
const DATAGRAMS_SHIFT: u32 = 16;

/// Calls a callback as a handle of asyncio's does. A context cannot be entered a second time, when the loop is run
/// again from inside the callback; then this takes another.
#[pyclass(module = "uvicorn._native", frozen)]
struct Contexts {
    /// The context that is copied for each call.
    base: Py<PyAny>,
    spare: ThreadBound<Cell<Option<Py<PyAny>>>>,
}

#[pymethods]
impl Contexts {
    #[pyo3(signature = (*arguments))]
    fn run<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let spare = self.spare.here()?;
        let context = match spare.take() {
            Some(context) => context.into_bound(py),
            None => copy_context(self.base.bind(py))?,
        };
        let result = context.getattr("run")?.call1(arguments);
        spare.set(Some(context.unbind()));
        result
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.base)
    }
}

/// Accepts connections.
pub(super) trait Accepts {
    /// Accept waiting connections, up to a bound.
    fn accept(self: Rc<Self>, py: Python<'_>, reactor: &Rc<Reactor>) -> PyResult<()>;
    /// Whether it accepts nothing for a while.
    fn is_resting(&self) -> bool;
    /// Look again at connections that were left to other workers, if any were.
    fn look_again(&self, poll: &Poll, token: u64) -> io::Result<bool>;
}

/// Receives and sends datagrams.
pub(crate) trait Datagrams {
    /// The descriptor with this number has events.
    fn notice(&self, number: u32, readable: bool, writable: bool);
    /// Whether a turn has work to do here.
    fn has_work(&self) -> bool;
    /// Do as much of it as one turn allows.
    fn serve(self: Rc<Self>, py: Python<'_>) -> PyResult<()>;
}

/// A connection that is not open yet, and its deadline.
struct Opening {
    due: Instant,
    token: u64,
    grace: Grace,
}

/// Accepts, reads and writes for one event loop.
pub(crate) struct Reactor {
    /// Set while something is watched.
    poll: RefCell<Option<Poll>>,
    caller: Caller,
    logger: Py<PyAny>,
    registry: Registry,
    listeners: RefCell<Vec<Option<Rc<dyn Accepts>>>>,
    datagrams: RefCell<Vec<Option<Rc<dyn Datagrams>>>>,
    /// The sockets with events, in the order in which those were noticed.
    ready: RefCell<VecDeque<Rc<Socket>>>,
    /// The sockets whose end is due.
    lost: RefCell<Vec<u64>>,
    /// The sockets in a handshake, with their deadlines in order.
    opening: RefCell<VecDeque<Opening>>,
    /// Our share as one of several workers.
    share: RefCell<Option<Share>>,
    /// The loop has a call of `look_again` scheduled.
    looking_away: Cell<bool>,
    /// When the loop will call `expire`.
    expiring: Cell<Option<Instant>>,
    after: RefCell<Vec<Rc<dyn AfterTurn>>>,
    /// Counts how long connections wait for their turns, if the metrics are served.
    metrics: OnceCell<Metrics>,
    /// Taken out while they are used, so that a nested turn has its own.
    buffer: Cell<Vec<u8>>,
    events: Cell<Events>,
    turn: Cell<Turn>,
    /// The loop has a turn scheduled.
    scheduled: Cell<bool>,
    rehearsal: Rehearsal,
}

/// Whether a turn is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    None,
    Running,
    /// The connection being served is the last in the queue.
    ServingLast,
}

/// The event loop, which calls the reactor.
struct Caller {
    event_loop: Py<PyAny>,
    /// The loop's calls run in copies of it: the context of a request would live on in work done for others.
    context: Py<PyAny>,
    /// The loop is one of asyncio's, which libraries may run from inside one of its callbacks, and stay there. So
    /// nothing that other connections need is kept on the stack: ready sockets are in a queue, with which a nested turn
    /// goes on.
    nests: bool,
    /// `scheduled_turn` of the `Poller`, bound, while the loop watches.
    callback: RefCell<Option<Py<PyAny>>>,
}

impl Caller {
    fn new(event_loop: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = event_loop.py();
        Ok(Self {
            event_loop: event_loop.clone().unbind(),
            context: py.import("contextvars")?.call_method0("copy_context")?.unbind(),
            nests: event_loop.is_instance(&py.import("asyncio")?.getattr("BaseEventLoop")?)?,
            callback: RefCell::default(),
        })
    }

    fn callback(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.callback.borrow().as_ref().map(|callback| callback.clone_ref(py))
    }

    fn is_closed(&self, py: Python<'_>) -> PyResult<bool> {
        self.event_loop.bind(py).call_method0("is_closed")?.is_truthy()
    }

    fn keywords<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let keywords = PyDict::new(py);
        keywords.set_item("context", copy_context(self.context.bind(py))?)?;
        Ok(keywords)
    }

    /// Have the loop call `callback` in its next iteration.
    fn call_soon(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        self.event_loop.bind(py).call_method("call_soon", (callback,), Some(&self.keywords(py)?)).map(drop)
    }

    /// Have the loop call a method of the `Poller`.
    fn call_later(&self, py: Python<'_>, delay: f64, method: &str) -> PyResult<()> {
        let Some(turn) = self.callback(py) else { return Ok(()) };
        let method = turn.bind(py).getattr("__self__")?.getattr(method)?;
        self.event_loop.bind(py).call_method("call_later", (delay, method), Some(&self.keywords(py)?)).map(drop)
    }

    /// Have the loop call `turn` when a descriptor is ready.
    fn watch(&self, py: Python<'_>, poll: &Poll, turn: &Bound<'_, PyAny>) -> PyResult<()> {
        let event_loop = self.event_loop.bind(py);
        if self.nests && is_taken(Shortcut::Handles) && event_loop.hasattr("_add_reader")? {
            let handle = event_loop.call_method1("_add_reader", (poll.number(), turn))?;
            let contexts = Contexts { base: self.context.clone_ref(py), spare: ThreadBound::default() };
            return handle.setattr("_context", Py::new(py, contexts)?);
        }
        let add_reader = event_loop.getattr("add_reader")?;
        self.context.bind(py).call_method1("run", (add_reader, poll.number(), turn)).map(drop)
    }
}

impl Reactor {
    fn new(event_loop: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = event_loop.py();
        Ok(Self {
            poll: RefCell::new(Some(Poll::new()?)),
            caller: Caller::new(event_loop)?,
            logger: py.import("logging")?.call_method1("getLogger", ("uvicorn.error",))?.unbind(),
            registry: Registry::default(),
            listeners: RefCell::default(),
            datagrams: RefCell::default(),
            ready: RefCell::default(),
            lost: RefCell::default(),
            opening: RefCell::default(),
            share: RefCell::default(),
            looking_away: Cell::new(false),
            expiring: Cell::new(None),
            after: RefCell::default(),
            metrics: OnceCell::new(),
            buffer: Cell::default(),
            events: Cell::default(),
            turn: Cell::new(Turn::None),
            scheduled: Cell::new(false),
            rehearsal: Rehearsal::default(),
        })
    }

    /// Count several events, if the metrics are served.
    pub(crate) fn count_many(&self, place: usize, number: usize) {
        if let Some(metrics) = self.metrics.get()
            && number > 0
        {
            metrics.add(place, number);
        }
    }

    /// Use the poller.
    pub(crate) fn with_poll(&self, act: impl FnOnce(&Poll) -> io::Result<()>) -> io::Result<()> {
        self.poll.borrow().as_ref().map_or(Ok(()), act)
    }

    /// A new connection.
    pub(super) fn open(
        self: &Rc<Self>,
        descriptor: Descriptor,
        peer: sys::Address,
        local: Option<Rc<Local>>,
        tls: Option<Tls>,
    ) -> Rc<Socket> {
        self.registry.insert(|token| Socket::new(self.clone(), token, descriptor, peer, local, tls))
    }

    pub(crate) fn ask_for_turn(&self, py: Python<'_>) -> PyResult<()> {
        let Some(callback) = self.caller.callback(py) else { return Ok(()) };
        if self.scheduled.get() {
            return Ok(());
        }
        if self.caller.is_closed(py)? {
            // The loop will never take a turn again.
            return self.bury(py);
        }
        // Before the call: what it collects may ask for a turn, too, and each that is scheduled schedules another.
        self.scheduled.set(true);
        // After a failure `turn` must not wait for one that never comes.
        self.caller.call_soon(py, callback).inspect_err(|_| self.scheduled.set(false))
    }

    /// Do the work that is due.
    fn turn(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.rehearsal.happen_in("turn");
        let outer = self.turn.replace(Turn::Running);
        let mut buffer = self.buffer.take();
        buffer.resize(BUFFER_BYTES, 0);
        // A connection that fails must not keep the others from being served.
        let outcome = self.look(py).and(self.round(py, &mut buffer));
        self.buffer.set(buffer);
        let outcome = outcome.and(self.serve_datagrams(py));
        let outcome = outcome.and(self.bury(py));
        self.turn.set(outer);
        self.tell_share();
        let outcome = outcome.and(self.finish(py));
        let outcome = if outer == Turn::None { outcome.and(self.rest(py)) } else { outcome };
        let more = !self.ready.borrow().is_empty() || !self.lost.borrow().is_empty() || self.has_datagrams();
        if more { outcome.and(self.ask_for_turn(py)) } else { outcome }
    }

    /// Serve the sockets in the queue, each once.
    fn round(self: &Rc<Self>, py: Python<'_>, buffer: &mut [u8]) -> PyResult<()> {
        let begin = Instant::now();
        let mut now = begin;
        let mut outcome = Ok(());
        let standing = self.ready.borrow().len();
        let mut shaken = Duration::ZERO;
        for number in 1..=standing {
            let Some(socket) = self.ready.borrow_mut().pop_front() else { break };
            let shakes = socket.is_encrypted() && socket.is_opening();
            if shakes && shaken >= HANDSHAKES {
                // It keeps its state, so deadlines know that it waits for us.
                self.ready.borrow_mut().push_back(socket);
                continue;
            }
            socket.queue_state.set(QueueState::Nowhere);
            if let Some(metrics) = self.metrics.get() {
                let since = socket.queued_at.take().unwrap_or(now);
                metrics.note_wait(now.saturating_duration_since(since));
            }
            self.turn.set(if number == standing { Turn::ServingLast } else { Turn::Running });
            if self.caller.nests && !self.ready.borrow().is_empty() {
                // For a loop that is run inside a callback.
                outcome = outcome.and(self.ask_for_turn(py));
            }
            let served = catch_unwind(AssertUnwindSafe(|| {
                self.rehearsal.happen_in("serve");
                socket.serve(py, buffer, MAX_READS)
            }));
            outcome = outcome.and(served.unwrap_or_else(|payload| self.contain(py, &socket, &describe(&*payload))));
            if socket.has_work() {
                outcome = outcome.and(self.queue(py, &socket));
            }
            let before = std::mem::replace(&mut now, Instant::now());
            if shakes {
                shaken += now.saturating_duration_since(before);
            }
            if now - begin >= TURN {
                break;
            }
        }
        outcome
    }

    /// A panic only costs its connection.
    #[cold]
    fn contain(&self, py: Python<'_>, socket: &Rc<Socket>, text: &str) -> PyResult<()> {
        let line = "Native core panicked in %s, closing the connection: %s";
        self.logger.bind(py).call_method1("error", (line, "serve", text))?;
        socket.lose(py, None)
    }

    /// Collect the events, and take new connections.
    fn look(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        let mut events = self.events.take();
        if let Some(poll) = &*self.poll.borrow() {
            poll.poll(&mut events);
        }
        let mut outcome = Ok(());
        for event in sys::each(&events) {
            if event.token & LISTENER == 0 {
                if let Some(socket) = self.registry.get(event.token) {
                    socket.notice(event.readable, event.writable, event.hung_up);
                    if socket.has_work() {
                        outcome = outcome.and(self.queue(py, &socket));
                    }
                }
            } else if event.token & DATAGRAMS == DATAGRAMS {
                if let Some(datagrams) = self.datagrams_of(event.token) {
                    let number = event.token as u32 & ((1 << DATAGRAMS_SHIFT) - 1);
                    datagrams.notice(number, event.readable, event.writable);
                }
            } else if let Some(listening) = self.listener(event.token) {
                outcome = outcome.and(listening.accept(py, self));
            }
        }
        self.events.set(events);
        outcome
    }

    /// End the connections whose end is due.
    fn bury(&self, py: Python<'_>) -> PyResult<()> {
        let mut outcome = Ok(());
        loop {
            let Some(token) = self.lost.borrow_mut().pop() else { return outcome };
            let Some(socket) = self.registry.get(token) else { continue };
            self.registry.remove(token);
            outcome = outcome.and(socket.bury(py));
        }
    }

    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let mut outcome = Ok(());
        let after = std::mem::take(&mut *self.after.borrow_mut());
        for after in after {
            outcome = outcome.and(after.after_turn(py));
        }
        outcome
    }

    // Other workers.

    /// Whether to take the next waiting connection here. If not, it is left to others for a moment.
    pub(super) fn may_take(&self, py: Python<'_>, look_away: impl FnOnce(&Poll) -> io::Result<()>) -> PyResult<bool> {
        match &*self.share.borrow() {
            Some(share) if !share.may_take(self.registry.len()) => {}
            _ => return Ok(true),
        }
        self.with_poll(look_away)?;
        if !self.looking_away.replace(true) {
            self.caller.call_later(py, MOMENT.as_secs_f64(), "look_again")?;
        }
        Ok(false)
    }

    /// Note that no connection waits.
    pub(super) fn all_taken(&self) {
        if let Some(share) = &*self.share.borrow() {
            share.all_taken();
        }
    }

    /// Tell other workers how many connections there are here.
    pub(super) fn tell_share(&self) {
        if let Some(share) = &*self.share.borrow() {
            let accepts = self.listeners.borrow().iter().flatten().any(|listening| !listening.is_resting());
            let connections = self.registry.len();
            if accepts { share.tell(connections) } else { share.leave(connections) }
        }
    }

    /// Connections left to others may still be there.
    fn look_again(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.looking_away.set(false);
        let listeners = self.listeners.borrow().clone();
        let mut outcome = Ok(());
        for (index, listening) in listeners.iter().enumerate() {
            let Some(listening) = listening else { continue };
            let mut looks = false;
            self.with_poll(|poll| {
                looks = listening.look_again(poll, index as u64 | LISTENER)?;
                Ok(())
            })?;
            if looks {
                // At once: if it is gone, nothing is left to do, which has to be known.
                outcome = outcome.and(listening.clone().accept(py, self));
            }
        }
        outcome
    }

    // Handshakes.

    /// Give up on `socket` when its handshake is not complete after `patience`.
    pub(super) fn expect_opening(&self, py: Python<'_>, socket: &Socket, patience: Duration) -> PyResult<()> {
        let (due, token) = (Instant::now() + patience, socket.token());
        self.opening.borrow_mut().push_back(Opening { due, token, grace: Grace::default() });
        self.expire_later(py)
    }

    fn expire_later(&self, py: Python<'_>) -> PyResult<()> {
        let Some(due) = self.opening.borrow().front().map(|front| front.due) else { return Ok(()) };
        if self.expiring.get().is_some() {
            return Ok(());
        }
        self.expiring.set(Some(due));
        self.caller.call_later(py, due.saturating_duration_since(Instant::now()).as_secs_f64(), "expire")
    }

    /// Give up on sockets whose deadline has passed, and whose input was looked at.
    fn expire(&self, py: Python<'_>) -> PyResult<()> {
        let lag = lag_since(self.expiring.take());
        let now = Instant::now();
        let mut outcome = Ok(());
        loop {
            let front = self.opening.borrow_mut().pop_front();
            let Some(front) = front else { break };
            let Some(socket) = self.registry.get(front.token).filter(|socket| socket.is_opening()) else { continue };
            if front.due > now {
                self.opening.borrow_mut().push_front(front);
                break;
            }
            match front.grace.grant(lag, || socket.look(py)) {
                Ok(Some(longer)) => {
                    let due = now + longer;
                    let mut opening = self.opening.borrow_mut();
                    let place = opening.partition_point(|other| other.due <= due);
                    opening.insert(place, Opening { due, ..front });
                }
                granted => outcome = outcome.and(granted.map(drop)).and(socket.give_up_late(py)),
            }
        }
        outcome.and(self.expire_later(py))
    }

    /// Give up the handshakes that `meant` selects.
    pub(super) fn give_up_opening(&self, py: Python<'_>, meant: impl Fn(&Socket) -> bool) -> PyResult<()> {
        let tokens: Vec<u64> = self.opening.borrow().iter().map(|opening| opening.token).collect();
        let mut outcome = Ok(());
        for socket in tokens.into_iter().filter_map(|token| self.registry.get(token)) {
            if meant(&socket) {
                outcome = outcome.and(socket.give_up_opening(py, "the server is shutting down", None));
            }
        }
        outcome
    }

    // Listening.

    fn listener(&self, token: u64) -> Option<Rc<dyn Accepts>> {
        self.listeners.borrow().get((token & !LISTENER) as usize).cloned().flatten()
    }

    /// Accept connections of `listening` from now on; returns its token.
    pub(super) fn listen(&self, listening: Rc<dyn Accepts>) -> u64 {
        let mut listeners = self.listeners.borrow_mut();
        listeners.push(Some(listening));
        (listeners.len() as u64 - 1) | LISTENER
    }

    /// Forget a listener that is closed.
    pub(super) fn unlisten(&self, py: Python<'_>, token: u64) -> PyResult<()> {
        let gone = self.listeners.borrow_mut().get_mut((token & !LISTENER) as usize).and_then(Option::take);
        drop(gone);
        self.rest(py)
    }

    // Datagrams.

    fn datagrams_of(&self, token: u64) -> Option<Rc<dyn Datagrams>> {
        let index = (token & !DATAGRAMS) >> DATAGRAMS_SHIFT;
        self.datagrams.borrow().get(index as usize).cloned().flatten()
    }

    fn has_datagrams(&self) -> bool {
        self.datagrams.borrow().iter().flatten().any(|datagrams| datagrams.has_work())
    }

    fn serve_datagrams(&self, py: Python<'_>) -> PyResult<()> {
        let mut outcome = Ok(());
        let count = self.datagrams.borrow().len();
        for index in 0..count {
            let datagrams = self.datagrams.borrow().get(index).cloned().flatten();
            let Some(datagrams) = datagrams.filter(|datagrams| datagrams.has_work()) else { continue };
            outcome = outcome.and(datagrams.serve(py));
        }
        outcome
    }

    /// Serve `datagrams` in all turns from now on. Returns the token of its descriptor 0; those of others have higher
    /// numbers.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there are no sockets of ours"))]
    pub(crate) fn add_datagrams(&self, datagrams: Rc<dyn Datagrams>) -> u64 {
        let mut all = self.datagrams.borrow_mut();
        all.push(Some(datagrams));
        DATAGRAMS | (all.len() as u64 - 1) << DATAGRAMS_SHIFT
    }

    /// Forget the server of datagrams with this token.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there are no sockets of ours"))]
    pub(crate) fn remove_datagrams(&self, py: Python<'_>, token: u64) -> PyResult<()> {
        let index = (token & !DATAGRAMS) >> DATAGRAMS_SHIFT;
        let gone = self.datagrams.borrow_mut().get_mut(index as usize).and_then(Option::take);
        drop(gone);
        self.rest(py)
    }

    /// Log a line.
    #[cold]
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there are no sockets of ours"))]
    pub(crate) fn log(&self, py: Python<'_>, level: &str, text: &str) -> PyResult<()> {
        self.logger.bind(py).call_method1(level, ("%s", text)).map(drop)
    }

    /// Panic here if a test wants that.
    #[inline]
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there are no sockets of ours"))]
    pub(crate) fn rehearse(&self, entry: &str) {
        self.rehearsal.happen_in(entry);
    }

    /// Let go of the loop when no work is left for it.
    fn rest(&self, py: Python<'_>) -> PyResult<()> {
        let idle = self.registry.len() == 0 && self.listeners.borrow().iter().all(Option::is_none);
        let idle = idle && self.datagrams.borrow().iter().all(Option::is_none);
        if !idle || self.is_running() {
            return Ok(());
        }
        let callback = self.caller.callback.take();
        let poll = self.poll.take();
        let (Some(_), Some(poll)) = (callback, poll) else { return Ok(()) };
        if self.caller.is_closed(py)? {
            return Ok(());
        }
        self.caller.event_loop.bind(py).call_method1("remove_reader", (poll.number(),)).map(drop)
    }
}

impl Keeper for Reactor {
    fn watch(&self, descriptor: &Descriptor, token: u64) -> io::Result<()> {
        self.with_poll(|poll| poll.watch(descriptor, token))
    }

    fn forget(&self, descriptor: &Descriptor) {
        // It may be unwatched.
        let _ = self.with_poll(|poll| poll.forget(descriptor));
    }

    fn queue(&self, py: Python<'_>, socket: &Rc<Socket>) -> PyResult<()> {
        if socket.queue_state.get() != QueueState::Nowhere {
            return Ok(());
        }
        socket.queue_state.set(QueueState::Queued);
        if self.metrics.get().is_some() {
            socket.queued_at.set(Some(Instant::now()));
        }
        self.ready.borrow_mut().push_back(socket.clone());
        if self.is_running() { Ok(()) } else { self.ask_for_turn(py) }
    }

    fn lose(&self, py: Python<'_>, token: u64) -> PyResult<()> {
        self.lost.borrow_mut().push(token);
        if self.is_running() { Ok(()) } else { self.ask_for_turn(py) }
    }

    fn transport_of(&self, py: Python<'_>, socket: &Rc<Socket>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Transport::new(socket.clone()))?.into_any())
    }

    fn report(&self, context: &Bound<'_, PyDict>) -> PyResult<()> {
        self.caller.event_loop.bind(context.py()).call_method1("call_exception_handler", (context,)).map(drop)
    }

    #[cold]
    fn note_failed_opening(&self, py: Python<'_>, peer: &Py<PyAny>, reason: &str) -> PyResult<()> {
        let logger = self.logger.bind(py);
        if !logger.call_method1("isEnabledFor", (DEBUG,))?.is_truthy()? {
            return Ok(());
        }
        let line = "%sConnection lost while it was being set up: %s";
        let client = match peer.extract::<(String, u16)>(py) {
            Ok((host, port)) => format!("{host}:{port} - "),
            Err(_) => String::new(),
        };
        logger.call_method1("debug", (line, client, reason)).map(drop)
    }

    fn counts(&self) -> bool {
        self.metrics.get().is_some()
    }

    fn count(&self, place: usize) {
        if let Some(metrics) = self.metrics.get() {
            metrics.add(place, 1);
        }
    }

    #[cold]
    fn note_malformed_preface(&self, py: Python<'_>, peer: &Py<PyAny>, reason: &str) -> PyResult<()> {
        self.count(places::NO_PROXY_HEADER);
        let module = py.import("uvicorn.listening.proxy_protocol")?;
        module.call_method1("complain", (peer, reason)).map(drop)
    }
}

impl Turns for Reactor {
    #[inline]
    fn is_running(&self) -> bool {
        self.turn.get() != Turn::None
    }

    #[inline]
    fn serves_last(&self) -> bool {
        self.turn.get() == Turn::ServingLast
    }

    fn after_turn(&self, after: Rc<dyn AfterTurn>) {
        self.after.borrow_mut().push(after);
    }
}

/// Accepts connections of one event loop, and reads and writes them, in place of the loop's own transports.
///
/// `Poller(loop)`: raises `OSError` if this system lacks epoll, or another exception if the loop does not support it.
#[pyclass(module = "uvicorn._native", frozen)]
pub struct Poller {
    reactor: ThreadBound<Rc<Reactor>>,
}

impl Poller {
    pub(crate) fn reactor(&self) -> PyResult<&Rc<Reactor>> {
        self.reactor.here()
    }

    /// Have the loop watch, unless it does.
    pub(crate) fn attach(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let reactor = slf.get().reactor.here()?;
        if reactor.caller.callback.borrow().is_some() {
            return Ok(());
        }
        let poll = match reactor.poll.take() {
            Some(poll) => poll,
            None => Poll::new()?,
        };
        reactor.caller.watch(py, &poll, &slf.getattr("turn")?)?;
        reactor.poll.replace(Some(poll));
        reactor.caller.callback.replace(Some(slf.getattr("scheduled_turn")?.unbind()));
        Ok(())
    }
}

#[pymethods]
impl Poller {
    #[new]
    pub(crate) fn new(event_loop: &Bound<'_, PyAny>) -> PyResult<Self> {
        let reactor = Reactor::new(event_loop)?;
        Ok(Self { reactor: ThreadBound::new(Rc::new(reactor)) })
    }

    /// A socket is ready: called by the loop. Nothing is done if a turn is scheduled: two in one iteration would each
    /// schedule another, and there would be one more in each iteration while there is work.
    fn turn(&self, py: Python<'_>) -> PyResult<()> {
        if self.reactor.here()?.scheduled.get() { Ok(()) } else { self.scheduled_turn(py) }
    }

    /// Do the work that is due: called by the loop.
    fn scheduled_turn(&self, py: Python<'_>) -> PyResult<()> {
        let reactor = self.reactor.here()?.clone();
        reactor.scheduled.set(false);
        bury();
        catch_unwind(AssertUnwindSafe(|| reactor.turn(py))).unwrap_or_else(|payload| {
            reactor.turn.set(Turn::None);
            let text = describe(&*payload);
            reactor.logger.bind(py).call_method1("error", ("Native core panicked in %s: %s", "turn", text))?;
            reactor.ask_for_turn(py)
        })
    }

    /// Be one of several workers that accept from the same sockets: `descriptor` is the number of a duplicate of their
    /// table, which belongs to this object from then on, and `index` the place in it.
    fn share(&self, descriptor: i32, index: usize) -> PyResult<()> {
        let share = Share::new(sys::Table::adopt(descriptor)?, index);
        let old = self.reactor.here()?.share.replace(Some(share));
        drop(old);
        Ok(())
    }

    /// Count in these numbers, a page of `uvicorn.metrics.page`.
    fn measure(&self, words: &Bound<'_, PyAny>) -> PyResult<()> {
        let metrics = Metrics::new(words)?;
        self.reactor.here()?.metrics.set(metrics).map_err(|_| PyValueError::new_err("it counts already"))
    }

    /// Check whether connections left to other workers are still there: called by the loop.
    fn look_again(&self, py: Python<'_>) -> PyResult<()> {
        self.reactor.here()?.look_again(py)
    }

    /// Give up handshakes that last too long: called by the loop.
    fn expire(&self, py: Python<'_>) -> PyResult<()> {
        self.reactor.here()?.expire(py)
    }

    /// Make the next `turn` panic, or the next `serve` in one, to test the consequences.
    fn rehearse_panic(&self, entry: String) -> PyResult<()> {
        self.reactor.here()?.rehearsal.arm(entry);
        Ok(())
    }

    /// Connections that are open.
    #[getter]
    fn connections(&self) -> PyResult<usize> {
        Ok(self.reactor.here()?.registry.len())
    }
}
