"""How much memory a process occupies, by the means that each platform has."""

from __future__ import annotations

import os
import subprocess
import sys

PS_PATIENCE = 5.0
"""Seconds `ps` gets."""


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
