"""A worker's records that survive a stuck interpreter: a pulse, and the stacks of its threads.

It is a file in memory that parent and child both hold:

    pulse, 8 bytes, in the order of the machine │ text that `faulthandler` has written │ ...

A thread that needs no interpreter counts the pulse up, so that the parent can tell a process that does not run
(stopped, or starved) from one whose interpreter is locked. Stacks are written by a signal handler in C, which does not
wait for the interpreter either: when the parent insists on them, and when the process crashes. The parent asks first: a
thread that has the interpreter keeps the frames it reads, while the handler may read one that is going away.

Both hold one description of the file, and so one place where it is written next: what the parent takes, it removes.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import struct
import sys
import tempfile
import threading
import time
import traceback
import weakref
from itertools import islice
from typing import Any

from uvicorn.rules.syntax import printable

_PULSE = struct.Struct("=Q")

STACKS_SIGNAL: int | None = getattr(signal, "SIGRTMAX", None) or getattr(signal, "SIGINFO", None)
"""The signal that asks a child for its stacks, otherwise unused; None where there is none."""

MOST_TEXT = 64 * 1024
"""Characters of stacks for the log, about; others are left out in favour of those that say most."""

MOST_THREADS = MOST_FRAMES = 100
"""Threads of a process and frames of a thread that are written down, as by `faulthandler`."""

_STACK = re.compile(r"^(?:Current thread|Thread) 0x.*\n?(?:  .*\n?)*", re.MULTILINE)
"""The stack of one thread, as it is written for the log; that of a crash begins otherwise."""

CRASH = "Fatal Python error"
"""How the text of `faulthandler` begins when a signal ends the process."""

LOOP_THREAD = "uvicorn-loop-"
"""How the names of threads begin that run an event loop, the main thread's excepted."""

SIGNAL_STACK = 256 * 1024
"""Bytes that signal handlers of the main thread have, one within another."""


class Recorder:
    """One worker's file; pickled to its process, and a descriptor of its own there."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def make(cls) -> Recorder | None:
        """An empty one; None if processes cannot share a file on this system, or if there is no room for one."""
        if sys.platform == "win32":
            return None
        try:
            if sys.platform == "linux":
                made = cls(os.memfd_create("uvicorn-worker", os.MFD_CLOEXEC))
            else:
                with tempfile.TemporaryFile() as file:
                    made = cls(os.dup(file.fileno()))
            made._clear()
        except OSError:
            return None
        return made

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
        if not faulthandler.is_enabled():
            # Of a hundred threads at most, the newest, the crashed one might be none.
            faulthandler.enable(self._descriptor, all_threads=False)
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
        """Write down the stacks of all other threads, in the form of `faulthandler`, those with an event loop last.

        Raises:
            OSError: there is no room for them.
        """
        own, main = threading.get_ident(), threading.main_thread().ident
        loops = {thread.ident for thread in threading.enumerate() if thread.name.startswith(LOOP_THREAD)}
        # All of them first: the fewer steps, the likelier it is that no other thread runs meanwhile.
        stacks = {
            ident: list(islice(traceback.walk_stack(frame), MOST_FRAMES))
            for ident, frame in sys._current_frames().items()
            if ident != own
        }
        text = ""
        for ident in sorted(stacks, key=lambda ident: (ident == main, ident in loops))[-MOST_THREADS:]:
            text += f"Thread 0x{ident:016x} (most recent call first):\n"
            for frame, line in stacks[ident]:
                code = frame.f_code
                text += f'  File "{printable(code.co_filename)}", line {line} in {printable(code.co_name)}\n'
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
        return bool(_STACK.search(self._text()))

    @property
    def size(self) -> int:
        """Bytes that were written; it grows while a signal handler writes stacks, which takes it many steps."""
        return os.fstat(self._descriptor).st_size

    def take_stacks(self) -> str:
        """Return those written since the last call, without that of a crash, which may be another process's."""
        return _shortened("\n\n".join(stack.rstrip() for stack in _STACK.findall(self._take())))

    def take_crash(self) -> str:
        """Return what the last fatal signal has written; empty if none has."""
        _, crash, stack = self._take().rpartition(CRASH)
        return (crash + stack)[:MOST_TEXT]

    def _take(self) -> str:
        text = self._text()
        if text:
            self._clear()
        return text

    def _text(self) -> str:
        # A child that writes while this is cleared leaves a hole in front.
        return self._read(self.size, _PULSE.size).decode(errors="replace").strip("\0\n")

    def _clear(self) -> None:
        if sys.platform != "win32":
            os.ftruncate(self._descriptor, _PULSE.size)
            os.lseek(self._descriptor, _PULSE.size, os.SEEK_SET)

    def _read(self, size: int, offset: int) -> bytes:
        if sys.platform == "win32":
            return b""
        return os.pread(self._descriptor, size, offset)


def _shortened(text: str) -> str:
    """Leave out the first threads if there are too many: the last ones say most."""
    if len(text) <= MOST_TEXT:
        return text
    parts = text.split("\n\n")
    left, room = 0, MOST_TEXT - len(text)
    while room < 0 and left < len(parts) - 1:
        room += len(parts[left]) + 2
        left += 1
    return "\n\n".join([f"... {left} more", *parts[left:]])


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
