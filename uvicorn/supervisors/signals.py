"""Signals and threads wake a supervisor that sleeps: a queue and an event that can be waited on with sentinels."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

SIGNALS: dict[int, str] = {
    getattr(signal, f"SIG{name}"): name
    for name in ("INT", "TERM", "BREAK", "HUP", "QUIT", "TTIN", "TTOU", "USR1", "USR2", "WINCH")
    if hasattr(signal, f"SIG{name}")
}
"""Signals the parent of several workers takes, as far as the platform has them, and their names without SIG."""


class Wakeup:
    """A socket that becomes readable when any thread or signal handler calls `set`."""

    def __init__(self) -> None:
        self.receiver, self.sender = socket.socketpair()
        self.receiver.setblocking(False)
        self.sender.setblocking(False)

    def set(self) -> None:
        """Wake whoever waits for `receiver`. After `close` this does nothing."""
        # Full means that it is going to wake anyway.
        with contextlib.suppress(OSError):
            self.sender.send(b"\0")

    def clear(self) -> None:
        """Go back to sleep."""
        with contextlib.suppress(OSError):
            while self.receiver.recv(4096):
                pass

    def close(self) -> None:
        """Nobody is going to wait any more."""
        self.receiver.close()
        self.sender.close()


class SignalQueue(list[int]):
    """Signals received and not handled yet; appending one wakes the supervisor."""

    def __init__(self, wakeup: Wakeup) -> None:
        super().__init__()
        self._wakeup = wakeup

    def append(self, sig: int) -> None:
        """Queue `sig`; safe in signal handlers and from any thread."""
        super().append(sig)
        self._wakeup.set()


class WakingEvent(threading.Event):
    """An event whose setting wakes the supervisor."""

    def __init__(self, wakeup: Wakeup) -> None:
        super().__init__()
        self._wakeup = wakeup

    def set(self) -> None:
        """Set it."""
        super().set()
        self._wakeup.set()


class Handlers:
    """The handlers of several signals, replaced until `restore`; nothing outside the main thread."""

    def __init__(self, handle: Callable[[int], None], wakeup: Wakeup) -> None:
        self._previous: dict[int, Any] = {}
        self._wakeup_fd: int | None = None
        if threading.current_thread() is not threading.main_thread():
            return
        for sig in SIGNALS:
            self._previous[sig] = signal.signal(sig, lambda number, frame: handle(number))
        if sys.platform == "win32":
            # Waiting is not interrupted by a signal there; the byte the interpreter writes does it.
            self._wakeup_fd = signal.set_wakeup_fd(wakeup.sender.fileno(), warn_on_full_buffer=False)

    def restore(self) -> None:
        """Put the previous handlers back, if this is the thread that may; one in another thread keeps ours."""
        if threading.current_thread() is not threading.main_thread():
            return
        if self._wakeup_fd is not None:
            signal.set_wakeup_fd(self._wakeup_fd)
        for sig, handler in self._previous.items():
            signal.signal(sig, signal.SIG_DFL if handler is None else handler)
        self._previous = {}
