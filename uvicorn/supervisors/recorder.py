"""A worker's records that survive a stuck interpreter: a pulse, and the stacks of its threads.

It is a file in memory that parent and child both hold:

    pulse, 8 bytes, in the order of the machine │ text that `faulthandler` has written │ ...

A thread that needs no interpreter counts the pulse up, so that the parent can tell a process that does not run
(stopped, or starved) from one whose interpreter is locked. Stacks are written by a signal handler in C, which does not
wait for the interpreter either: when the parent insists on them, and when the process crashes. The parent asks first: a
thread that has the interpreter finds the others standing still, while the handler may read a frame that changes.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import struct
import sys
import tempfile
import threading
import time
import traceback
import weakref
from typing import Any

_PULSE = struct.Struct("=Q")

STACKS_SIGNAL: int | None = getattr(signal, "SIGRTMAX", None) or getattr(signal, "SIGINFO", None)
"""The signal that asks a child for its stacks, otherwise unused; None where there is none."""

MOST_TEXT = 64 * 1024
"""Bytes of stacks that are read at once."""

SIGNAL_STACK = 256 * 1024
"""Bytes that signal handlers of the main thread have, one within another."""


class Recorder:
    """One worker's file; pickled to its process, and a descriptor of its own there."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._read_to = _PULSE.size
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def make(cls) -> Recorder | None:
        """An empty one; None if processes cannot share a file on this system, or if there is no room for one."""
        if sys.platform == "win32":
            return None
        try:
            if sys.platform == "linux":
                return cls(os.memfd_create("uvicorn-worker", os.MFD_CLOEXEC))
            with tempfile.TemporaryFile() as file:
                return cls(os.dup(file.fileno()))
        except OSError:
            return None

    def __getstate__(self) -> Any:
        if sys.platform == "win32":
            raise TypeError("there are no recorders on Windows")
        else:
            from multiprocessing.reduction import DupFd

            return DupFd(self._descriptor)

    def __setstate__(self, duplicate: Any) -> None:
        self.__init__(duplicate.detach())  # type: ignore[misc]

    # In the child

    def record(self, interval: float) -> None:
        """Count the pulse up every `interval` seconds, and have stacks written here, until the process ends.

        A `faulthandler` that the user has enabled keeps writing to its own file when the process crashes.
        """
        if sys.platform == "win32":
            return
        os.lseek(self._descriptor, _PULSE.size, os.SEEK_SET)
        if not faulthandler.is_enabled():
            faulthandler.enable(self._descriptor)
        if STACKS_SIGNAL is not None:
            faulthandler.register(STACKS_SIGNAL, self._descriptor)
        try:
            from uvicorn._native import beat
        except ImportError:
            _enlarge_signal_stack()
            threading.Thread(target=self._beat, args=(interval,), name="uvicorn-pulse", daemon=True).start()
        else:
            beat(self._descriptor, interval)

    def write_stacks(self) -> None:
        """Write down the stacks of all other threads, in the form of `faulthandler`, the main thread's last."""
        frames, main = sys._current_frames(), threading.main_thread().ident
        text = ""
        for ident in sorted(frames.keys() - {threading.get_ident()}, key=lambda ident: ident == main):
            text += f"Thread 0x{ident:016x} (most recent call first):\n"
            for called, line in traceback.walk_stack(frames[ident]):
                text += f'  File "{called.f_code.co_filename}", line {line} in {called.f_code.co_name}\n'
            text += "\n"
        os.write(self._descriptor, text.encode(errors="replace"))

    def _beat(self, interval: float) -> None:
        """As the native core does it, but for an interpreter that is locked."""
        with contextlib.suppress(OSError):
            for pulse in range(1, 2**64):
                self._write_pulse(pulse)
                time.sleep(interval)

    def _write_pulse(self, pulse: int) -> None:
        if sys.platform != "win32":
            os.pwrite(self._descriptor, _PULSE.pack(pulse), 0)

    # In the parent

    def pulse(self) -> int:
        """A number that has changed a moment later if the process runs; 0 before the first beat."""
        data = self._read(_PULSE.size, 0)
        return _PULSE.unpack(data)[0] if len(data) == _PULSE.size else 0

    def has_stacks(self) -> bool:
        """Tell whether any were written since the last `take_stacks`."""
        return bool(self._read(1, self._read_to))

    def take_stacks(self) -> str:
        """Return the text written since the last call."""
        data = self._read(MOST_TEXT, self._read_to)
        self._read_to += len(data)
        return data.decode(errors="replace").rstrip()

    def _read(self, size: int, offset: int) -> bytes:
        if sys.platform == "win32":
            return b""
        return os.pread(self._descriptor, size, offset)


def _enlarge_signal_stack() -> None:
    """Replace the stack that `faulthandler` has made for signal handlers, Python's included, as the native core does.

    On that one, a burst of six different signals ends the process: it has room for the registers of five handlers.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        class Stack(ctypes.Structure):
            _fields_ = [("ss_sp", ctypes.c_void_p), ("ss_flags", ctypes.c_int), ("ss_size", ctypes.c_size_t)]

        library = ctypes.CDLL(None)
        library.malloc.restype = ctypes.c_void_p  # never freed: a signal may come until the process has ended
        address = library.malloc(ctypes.c_size_t(SIGNAL_STACK))
        if address:
            library.sigaltstack(ctypes.byref(Stack(address, 0, SIGNAL_STACK)), None)
