//! Calls on a descriptor, or on this process, that the standard library lacks.

use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::{AsRawFd, BorrowedFd};
#[cfg(unix)]
use std::os::fd::{FromRawFd, OwnedFd};

/// Take over a descriptor that Python has given away with `socket.detach()`.
#[cfg(target_os = "linux")]
pub(crate) fn own_descriptor(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: a query of one number; one that is not open is an error, not more.
    if number < 0 || unsafe { libc::fcntl(number, libc::F_GETFD) } == -1 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the number is open, and its owner has promised not to use it again: that is what the argument means.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// A duplicate of `descriptor`, not inherited by programs that are started.
#[cfg(unix)]
pub(crate) fn duplicate(descriptor: i32) -> io::Result<OwnedFd> {
    // SAFETY: a number goes in; the kernel rejects one that is not a descriptor.
    let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created it, and no other code knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// How many bytes of a socket's have not reached its peer; 0 where the kernel does not tell. Only sockets of ours ask.
#[cfg(target_os = "linux")]
pub(crate) fn in_kernel(socket: BorrowedFd<'_>) -> usize {
    let mut size: libc::c_int = 0;
    // SAFETY: the descriptor is open while it is borrowed, and this request stores one int at the address, which is ours.
    let told = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut size) } == 0;
    if told { usize::try_from(size).unwrap_or_default() } else { 0 }
}

/// Have a TCP socket take no more output while `most` bytes are unsent; other sockets lack that option.
#[cfg(target_os = "linux")]
pub(crate) fn limit_unsent(socket: BorrowedFd<'_>, most: i32) {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    let value: libc::c_int = most;
    let option = libc::TCP_NOTSENT_LOWAT;
    // SAFETY: the descriptor is open while it is borrowed, and one int is read from the address, which is ours.
    unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, option, (&raw const value).cast(), length) };
}

/// Send a signal to this process; an invalid number has no effect.
#[cfg(unix)]
pub(crate) fn signal_self(signal: i32) {
    // SAFETY: neither call touches memory.
    unsafe { libc::kill(libc::getpid(), signal) };
}

/// Enlarge the stack of this thread's signal handlers to `bytes`, for good, where they have a smaller one of their own.
///
/// That of `faulthandler` has room for few: signals of different numbers interrupt each other's handlers, and four of them
/// overflow it on processors whose registers take kilobytes.
#[cfg(unix)]
pub(crate) fn enlarge_signal_stack(bytes: usize) {
    let mut stack = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: 0, ss_size: 0 };
    // SAFETY: without a new stack this stores the description of the present one, at an address that is ours.
    let told = unsafe { libc::sigaltstack(std::ptr::null(), &raw mut stack) } == 0;
    if !told || stack.ss_flags & libc::SS_DISABLE != 0 || stack.ss_size >= bytes {
        return;
    }
    let room = Box::leak(vec![0_u8; bytes].into_boxed_slice());
    let larger = libc::stack_t { ss_sp: room.as_mut_ptr().cast(), ss_flags: 0, ss_size: bytes };
    // SAFETY: the memory is leaked, so it outlives every handler; the kernel refuses a change while one runs there.
    unsafe { libc::sigaltstack(&raw const larger, std::ptr::null_mut()) };
}

/// Have the C library keep up to `bytes` of freed memory for later allocations; larger pieces always come from the
/// kernel. Returns whether it does: only glibc has such a setting.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn keep_freed(bytes: i32) -> bool {
    // SAFETY: two numbers of the allocator's, which it changes under its own lock.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, bytes) == 1 && libc::mallopt(libc::M_TRIM_THRESHOLD, bytes) == 1 }
}

/// The same, for C libraries without such a setting.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn keep_freed(_bytes: i32) -> bool {
    false
}
