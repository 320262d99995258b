//! A timer of the kernel's that ends this process, set by a signal handler which needs no interpreter.
//!
//! The timer sends the signal that has set it, and the handler tells by its origin that the time is over. There is no thread:
//! processes with one cannot be forked safely, and Python warns of it.
//!
//! A second timer interrupts a call of the system that blocks, a moment after the signal: if that came between Python's last
//! look for signals and the call, it left a mark that Python would not see before the call returns.

use std::io;
use std::mem::{transmute, zeroed};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering::SeqCst};

/// Signals have numbers below this.
const SIGNALS: usize = 65;

const MESSAGE: &[u8] = b"ERROR:    The interpreter is locked and timeout_graceful_shutdown has passed: \
    killing the process.\n";

/// Python's handler of each signal.
static NEXT: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];
static DELAY: AtomicU64 = AtomicU64::new(0);
static IS_SET: AtomicBool = AtomicBool::new(false);
static END: AtomicUsize = AtomicUsize::new(0);
static INTERRUPTION: AtomicUsize = AtomicUsize::new(0);
/// The process that the timers belong to, which a fork does not copy.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Milliseconds from the first signal to the interruption.
const UNTIL_INTERRUPTION: u64 = 1000;

/// A timer; its signals bear it as their value.
#[derive(Clone, Copy)]
enum Timer {
    End,
    Interruption,
}

impl Timer {
    /// Where the kernel's name of it is kept.
    fn name(self) -> &'static AtomicUsize {
        match self {
            Self::End => &END,
            Self::Interruption => &INTERRUPTION,
        }
    }
}

type Handler = unsafe extern "C" fn(libc::c_int);

/// Milliseconds from the first signal to the end, unless `set` changes that.
pub(crate) fn set_delay(milliseconds: u64) {
    DELAY.store(milliseconds, SeqCst);
}

/// Take `signal` in front of the handler that there is; false, and nothing, if there is none, or it wants to know the origin.
pub(crate) fn take(signal: i32) -> io::Result<bool> {
    let Some(next) = usize::try_from(signal).ok().and_then(|number| NEXT.get(number)) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    make_timers(signal)?;
    // SAFETY: all zeros is a valid `sigaction`: pointers that may be null, numbers and a set of signals.
    let mut action: libc::sigaction = unsafe { zeroed() };
    // SAFETY: without a new action this stores the present one, at an address that is ours.
    if unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let own = on_signal as *const () as usize;
    if action.sa_sigaction == own {
        return Ok(true);
    }
    let is_function = action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN;
    if !is_function || action.sa_flags & libc::SA_SIGINFO != 0 {
        return Ok(false);
    }
    next.store(action.sa_sigaction, SeqCst);
    action.sa_sigaction = own;
    action.sa_flags |= libc::SA_SIGINFO;
    // SAFETY: the function has the signature that SA_SIGINFO asks for, and calls what a handler may call.
    if unsafe { libc::sigaction(signal, &raw const action, null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(true)
}

/// Have the process end in this many milliseconds; 0 cancels that.
pub(crate) fn set(milliseconds: u64) {
    IS_SET.store(milliseconds > 0, SeqCst);
    start(Timer::Interruption, 0); // Python runs
    start(Timer::End, milliseconds);
}

fn make_timers(signal: i32) -> io::Result<()> {
    // SAFETY: the call touches no memory.
    let process = unsafe { libc::getpid() };
    if OWNER.swap(process, SeqCst) == process {
        return Ok(());
    }
    let made = make_timer(Timer::End, signal).and_then(|()| make_timer(Timer::Interruption, signal));
    if made.is_err() {
        OWNER.store(0, SeqCst);
    }
    IS_SET.store(false, SeqCst);
    made
}

fn make_timer(timer: Timer, signal: i32) -> io::Result<()> {
    // SAFETY: all zeros is a valid `sigevent`: numbers, and a union of them with pointers.
    let mut event: libc::sigevent = unsafe { zeroed() };
    event.sigev_notify = libc::SIGEV_SIGNAL;
    event.sigev_signo = signal;
    event.sigev_value.sival_ptr = std::ptr::without_provenance_mut(timer as usize);
    let mut made: libc::timer_t = null_mut();
    // SAFETY: both addresses are ours.
    if unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut made) } != 0 {
        return Err(io::Error::last_os_error());
    }
    timer.name().store(made as usize, SeqCst);
    Ok(())
}

/// Called by the handler, too.
fn start(timer: Timer, milliseconds: u64) {
    // SAFETY: the call touches no memory.
    if OWNER.load(SeqCst) != unsafe { libc::getpid() } {
        return;
    }
    let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let seconds = libc::time_t::try_from(milliseconds / 1000).unwrap_or(libc::time_t::MAX);
    let rest = libc::c_long::try_from(milliseconds % 1000 * 1_000_000).unwrap_or_default();
    let it_value = libc::timespec { tv_sec: seconds, tv_nsec: rest };
    let value = libc::itimerspec { it_interval: zero, it_value };
    // SAFETY: the timer was made in this process, and is never deleted; the value is read from an address of ours.
    unsafe { libc::timer_settime(timer.name().load(SeqCst) as libc::timer_t, 0, &raw const value, null_mut()) };
}

unsafe extern "C" fn on_signal(signal: libc::c_int, origin: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO the address of the signal's description.
    let is_timer = unsafe { (*origin).si_code } == libc::SI_TIMER;
    // SAFETY: as above; the signals of timers have a value.
    if is_timer && unsafe { (*origin).si_value() }.sival_ptr.addr() == Timer::Interruption as usize {
        return; // the call has been interrupted
    }
    if is_timer {
        // SAFETY: the bytes are static; all three calls are allowed in a handler. Process 1 cannot kill itself.
        unsafe {
            libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len());
            libc::kill(libc::getpid(), libc::SIGKILL);
            libc::_exit(128 + libc::SIGKILL);
        }
    }
    // SAFETY: the address is that of this thread's own number.
    let error = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *error };
    if !IS_SET.swap(true, SeqCst) {
        start(Timer::End, DELAY.load(SeqCst));
        start(Timer::Interruption, UNTIL_INTERRUPTION);
    }
    // SAFETY: as above.
    unsafe { *error = before };
    let next = usize::try_from(signal).ok().and_then(|number| NEXT.get(number)).map_or(0, |next| next.load(SeqCst));
    if next != 0 {
        // SAFETY: `take` has put it there: a handler without SA_SIGINFO, which is a function of this type.
        let next: Handler = unsafe { transmute::<usize, Handler>(next) };
        // SAFETY: it is called as the kernel would call it.
        unsafe { next(signal) };
    }
}
