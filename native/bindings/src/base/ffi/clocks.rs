//! Clocks of the kernel's, by their ids.

/// The time since some moment, the same for all processes, in nanoseconds; Python's `time.monotonic_ns()`.
pub(crate) fn monotonic() -> u64 {
    read(libc::CLOCK_MONOTONIC).unwrap_or_default()
}

/// Nanoseconds for which this process has used processors.
pub(crate) fn process_cpu() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or_default()
}

/// Nanoseconds of the clock `id`; None if there is no such clock, or its thread has ended.
pub(crate) fn read(id: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one value is written to the address, which is ours; the kernel rejects a number that is not a clock.
    if unsafe { libc::clock_gettime(id, &raw mut time) } != 0 {
        return None;
    }
    let seconds = u64::try_from(time.tv_sec).ok()?;
    Some(seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).ok()?))
}
