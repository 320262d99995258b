//! When connections have something to do although no packet comes: one timer of the kernel for all of them.
//!
//! The loop's timers count milliseconds, and cost an object each. QUIC waits for fractions of them, and changes its
//! mind with every packet; most of the time it puts a timeout off. So a connection keeps its place until that time
//! comes, and is asked again then.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::connection::Connection;

/// The kernel's timer, and the times when connections are due.
pub(super) struct Timeouts {
    timer: OwnedFd,
    /// Each connection at most once, by its index.
    entries: RefCell<BTreeSet<(Instant, usize)>>,
    /// When the timer fires.
    armed: Cell<Option<Instant>>,
}

impl Timeouts {
    pub(super) fn new() -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Self { timer, entries: RefCell::default(), armed: Cell::new(None) })
    }

    /// It becomes readable when a connection is due.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// A connection is due at this time, or never.
    pub(super) fn set(&self, connection: &Connection, due: Option<Instant>) {
        let old = connection.due.get();
        let stays = match (old, due) {
            (Some(old), Some(due)) => old <= due,
            (None, None) => true,
            _ => false,
        };
        if stays {
            return;
        }
        connection.due.set(due);
        let mut entries = self.entries.borrow_mut();
        if let Some(old) = old {
            entries.remove(&(old, connection.handle.index()));
        }
        if let Some(due) = due {
            entries.insert((due, connection.handle.index()));
        }
    }

    /// The index of the connection that is due longest, and since when. It has no time any more.
    pub(super) fn pop(&self, now: Instant) -> Option<(usize, Instant)> {
        let mut entries = self.entries.borrow_mut();
        let (due, index) = entries.first().copied().filter(|(due, _)| *due <= now)?;
        entries.pop_first();
        Some((index, due))
    }

    /// Have the timer fire in time. It may fire too early, for a connection that has put it off.
    pub(super) fn arm(&self) -> io::Result<()> {
        let Some((first, _)) = self.entries.borrow().first().copied() else { return Ok(()) };
        if self.armed.get().is_some_and(|armed| armed <= first) {
            return Ok(());
        }
        // Zero would stop it.
        let delay = first.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let value = Timespec::try_from(delay).map_err(|_| io::ErrorKind::InvalidInput)?;
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: zero, it_value: value })?;
        self.armed.set(Some(first));
        Ok(())
    }

    /// The timer has fired.
    pub(super) fn acknowledge(&self) {
        // It is readable until then.
        let _ = rustix::io::read(&self.timer, &mut [0; 8]);
        self.armed.set(None);
    }
}
