//! How far things have come on a socket. What excludes each other is one state.

use std::cell::{Cell, RefCell};

use pyo3::prelude::*;

use crate::conn::output::Output;

/// How far its life has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// Nothing is read any more; waiting output is written first.
    Closing,
    /// The end is due, and is dealt with at the end of the turn.
    Lost,
}

/// Whether input is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    On,
    Paused,
    /// The peer has nothing more to send.
    Ended,
}

/// The other end of our output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writing {
    On,
    /// The end of output follows once everything is written.
    Ending,
    Ended,
}

/// Its place in the queue of the reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueState {
    Nowhere,
    Queued,
    /// A deadline was put off until it has had its turn.
    Examined,
}

/// The end of the peer's output, as far as the kernel has reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerEnd {
    Unknown,
    /// The kernel has it, so a short read is not the last.
    Known,
    /// The handler was notified, though it takes no input.
    Told,
}

/// The state of the descriptor, as the kernel has reported it.
pub(super) struct Kernel {
    /// There may be input that was not read yet.
    pub(super) readable: Cell<bool>,
    /// It may take more.
    pub(super) writable: Cell<bool>,
    /// It is watched.
    pub(super) watched: Cell<bool>,
    pub(super) peer_end: Cell<PeerEnd>,
}

impl Default for Kernel {
    /// No event has come, so both have to be tried.
    fn default() -> Self {
        Self {
            readable: Cell::new(true),
            writable: Cell::new(true),
            watched: Cell::new(false),
            peer_end: Cell::new(PeerEnd::Unknown),
        }
    }
}

/// Output being written, and output that waits.
pub(super) struct Outgoing {
    pub(super) output: RefCell<Output>,
    pub(super) writing: Cell<Writing>,
    /// Bytes that the kernel took since the last turn.
    pub(super) spent: Cell<u32>,
    /// Writers wait for the next turn, for others to have theirs.
    pub(super) yields: Cell<bool>,
}

impl Default for Outgoing {
    fn default() -> Self {
        Self {
            output: RefCell::default(),
            writing: Cell::new(Writing::On),
            spent: Cell::new(0),
            yields: Cell::new(false),
        }
    }
}

impl Outgoing {
    /// A turn begins. Returns whether writers wait for it.
    #[inline]
    pub(super) fn begin_turn(&self) -> bool {
        self.spent.set(0);
        self.yields.replace(false)
    }

    /// Drop the waiting output.
    pub(super) fn clear(&self) {
        let waiting = self.output.borrow_mut().clear();
        drop(waiting);
    }
}

/// Made when Python asks for it.
#[derive(Default)]
pub(super) struct Shown {
    pub(super) transport: RefCell<Option<Py<PyAny>>>,
    /// A `socket.socket` on a duplicate of the descriptor.
    pub(super) duplicate: RefCell<Option<Py<PyAny>>>,
}

/// How the connection ends.
#[derive(Default)]
pub(super) struct End {
    /// The close cuts the connection off.
    pub(super) resets: Cell<bool>,
    pub(super) error: RefCell<Option<Box<PyErr>>>,
}
