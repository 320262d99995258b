"""How much memory a process occupies, by the means that each platform has."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
from collections.abc import Callable, Sized
from typing import Any, NamedTuple

PS_PATIENCE = 5.0
"""Seconds `ps` gets."""
FREED_BYTES = 32 * 1024 * 1024
"""Freed memory that stays with the process: several of the largest messages and bodies that are usual."""
EXCESS = 32 * 1024 * 1024
"""Growth of a process, in bytes, after which it is worth checking how much of it is free."""
LOOKS = 5
"""Looks after the last client has left, whose memory need not be free at once."""
INTERVAL = 2.0
"""Seconds between two looks, each of which costs some microseconds."""
_CHOSEN_BY = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")


def is_chosen_by_environment() -> bool:
    """Whether the environment configures the C library's treatment of freed memory."""
    return any(name in os.environ for name in _CHOSEN_BY) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")


def keep_freed_memory() -> bool:
    """Keep some of the memory that is freed in this process, and return whether that was possible.

    glibc gives it back to the kernel as soon as there is a little, and asks again for the next large message or body: a
    fourth of what those cost. Nothing is done where the environment says how it is to be, or without the native core.
    """
    if is_chosen_by_environment():
        return False
    try:
        from uvicorn._native import keep_freed_memory as keep
    except ImportError:
        return False
    return keep(FREED_BYTES)


class FreedMemory:
    """Returns free memory between used blocks of the C library's heap to the kernel.

    What clients made the server hold (responses they did not read, large messages) is scattered over the heap. The C
    library itself returns only memory at the end of it.

    It checks while there are connections, and a few times afterwards: an idle server sleeps.

    Args:
        loop: calls `look`.
        connections: the live ones.
        resident: returns the bytes of this process that are in memory.
        heap: the C library's; None if it cannot return memory on request.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connections: Sized,
        resident: Callable[[], int | None] = lambda: resident_memory(os.getpid()),
        heap: Callable[[], Heap | None] = lambda: glibc(),
    ) -> None:
        self._loop = loop
        self._connections = connections
        self._resident = resident
        self._heap = heap
        self._smallest: int | None = None
        self._least = 0
        self._left = 0
        self._timer: asyncio.TimerHandle | None = None
        self._looks = 0

    def start(self) -> None:
        """Measure the base of further growth; where memory cannot be given back, do nothing."""
        if sys.platform == "linux" and not is_chosen_by_environment():
            self._smallest = self._resident()
            self._least = self._smallest or 0

    def watch(self) -> None:
        """Start checking: a client has connected."""
        if self._smallest is not None and self._timer is None:
            self._looks = LOOKS
            self._wait()

    def _wait(self) -> None:
        self._timer = contextvars.Context().run(self._loop.call_later, INTERVAL, self.look)

    def look(self) -> None:
        """Return free memory if the process has grown by `EXCESS`, and as much is free.

        Returned memory still counts as free in the C library. So memory is returned again only when the process has
        grown since, or when more is free.
        """
        self._timer = None
        self._looks = LOOKS if self._connections else self._looks - 1
        if self._looks > 0:
            self._wait()
        resident = self._resident()
        if resident is None or self._smallest is None:
            return
        self._smallest, self._least = min(self._smallest, resident), min(self._least, resident)
        if resident - self._smallest < EXCESS:
            return
        heap = self._heap()
        if heap is None:
            return
        free = heap.free()
        self._left = min(self._left, free)
        if free >= EXCESS and (resident - self._least >= EXCESS or free - self._left >= EXCESS):
            heap.trim(0)
            self._least, self._left = self._resident() or 0, heap.free()

    def stop(self) -> None:
        """Stop sampling."""
        self._smallest = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Heap(NamedTuple):
    """The C library's memory: the number of free bytes in it; and a function that gives back all but a given number."""

    free: Callable[[], int]
    trim: Callable[[int], object]


def glibc() -> Heap | None:
    """Return the heap of glibc, None if the C library is another one."""
    import ctypes  # by those that have grown

    library = ctypes.CDLL(None)
    trim, told = getattr(library, "malloc_trim", None), getattr(library, "mallinfo2", None)
    number: Any = ctypes.c_size_t
    if told is None:  # before 2.33, and in numbers of 32 bits
        told, number = getattr(library, "mallinfo", None), ctypes.c_uint
    if trim is None or told is None:
        return None
    trim.argtypes = [ctypes.c_size_t]
    fields = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    told.restype = type("mallinfo", (ctypes.Structure,), {"_fields_": [(name, number) for name in fields]})
    return Heap(lambda: int(told().fordblks), trim)


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
