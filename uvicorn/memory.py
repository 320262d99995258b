"""How much memory a process occupies, by the means that each platform has."""

from __future__ import annotations

import os
import subprocess
import sys

PS_PATIENCE = 5.0
"""Seconds `ps` gets."""
FREED_BYTES = 32 * 1024 * 1024
"""What stays with the process of memory it has freed: several of the largest messages and bodies that are usual."""
_CHOSEN_BY = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")


def keep_freed_memory() -> bool:
    """Keep some of the memory that is freed in this process, and return whether that was possible.

    glibc gives it back to the kernel as soon as there is a little, and asks again for the next large message or body: a
    fourth of what those cost. Nothing is done where the environment says how it is to be, or without the native core.
    """
    if any(name in os.environ for name in _CHOSEN_BY) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    try:
        from uvicorn._native import keep_freed_memory as keep
    except ImportError:
        return False
    return keep(FREED_BYTES)


def resident_memory(pid: int) -> int | None:
    """Bytes of this process that are in memory; None if that cannot be found out, or there is none."""
    if sys.platform == "linux":
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
        except (OSError, IndexError):  # it is gone
            return None
    elif sys.platform == "win32":
        return _from_windows(pid)
    else:
        return _from_ps(pid)


def _from_ps(pid: int) -> int | None:
    """POSIX has no call for it, but a program, whose unit is a kilobyte."""
    command = ["ps", "-o", "rss=", "-p", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PS_PATIENCE, check=True)
        return int(done.stdout) * 1024
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    _PROCESS_QUERY_LIMITED_INFORMATION = 0x1000

    class _Counters(ctypes.Structure):
        """PROCESS_MEMORY_COUNTERS."""

        _fields_ = [
            ("cb", wintypes.DWORD),
            ("PageFaultCount", wintypes.DWORD),
            ("PeakWorkingSetSize", ctypes.c_size_t),
            ("WorkingSetSize", ctypes.c_size_t),
            ("QuotaPeakPagedPoolUsage", ctypes.c_size_t),
            ("QuotaPagedPoolUsage", ctypes.c_size_t),
            ("QuotaPeakNonPagedPoolUsage", ctypes.c_size_t),
            ("QuotaNonPagedPoolUsage", ctypes.c_size_t),
            ("PagefileUsage", ctypes.c_size_t),
            ("PeakPagefileUsage", ctypes.c_size_t),
        ]

    def _from_windows(pid: int) -> int | None:
        kernel = ctypes.WinDLL("kernel32")
        kernel.OpenProcess.restype = wintypes.HANDLE
        kernel.K32GetProcessMemoryInfo.argtypes = [wintypes.HANDLE, ctypes.c_void_p, wintypes.DWORD]
        kernel.CloseHandle.argtypes = [wintypes.HANDLE]
        handle = kernel.OpenProcess(_PROCESS_QUERY_LIMITED_INFORMATION, False, pid)
        if not handle:
            return None
        try:
            counters = _Counters(cb=ctypes.sizeof(_Counters))
            known = kernel.K32GetProcessMemoryInfo(handle, ctypes.byref(counters), counters.cb)
            return int(counters.WorkingSetSize) if known else None
        finally:
            kernel.CloseHandle(handle)
