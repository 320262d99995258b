"""Signals and threads wake a supervisor that sleeps: a queue and an event that can be waited on with sentinels."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from uvicorn.serving.init_signals import is_init, server_has_ended

SIGNALS: dict[int, str] = {
    getattr(signal, f"SIG{name}"): name
    for name in ("INT", "TERM", "BREAK", "HUP", "QUIT", "TTIN", "TTOU", "USR1", "USR2", "WINCH")
    if hasattr(signal, f"SIG{name}")
}
"""Signals the parent of several workers takes, as far as the platform has them, and their names without SIG."""

PARENTS_SIGNALS = frozenset(
    number for number, name in SIGNALS.items() if name in ("HUP", "QUIT", "TTIN", "TTOU", "USR1", "USR2")
)
"""Signals that are for the parent only, and would end or stop a process that does not handle them."""


@contextlib.contextmanager
def holding_parents_signals() -> Iterator[None]:
    """Have a process that starts here inherit that the parent's signals wait, until `leave_signals_to_parent`."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PARENTS_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_signals_to_parent() -> None:
    """Ignore the parent's signals in a worker, unless the program handles them.

    Workers get such signals with their process group or control group (a closed terminal, `systemctl kill`), and forked
    ones, whose command line is the parent's, from tools that select processes by it.
    """
    for number in PARENTS_SIGNALS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, leave_to_parent)
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENTS_SIGNALS)


def leave_to_parent(number: int, frame: object) -> None:
    """Do nothing. Unlike SIG_IGN a handler is not inherited by programs that the application starts."""


class Wakeup:
    """Becomes readable when any thread or signal handler calls `set`: a pair of sockets, while it is open."""

    def __init__(self) -> None:
        self._pair: tuple[socket.socket, socket.socket] | None = None

    def open(self) -> None:
        """From now on it can be waited for."""
        self._pair = socket.socketpair()
        for end in self._pair:
            end.setblocking(False)

    @property
    def sources(self) -> list[socket.socket]:
        """The object to wait for; None while it is closed."""
        return [] if self._pair is None else [self._pair[0]]

    def fileno(self) -> int:
        """The descriptor whose writing wakes."""
        assert self._pair is not None, "the wakeup is closed"
        return self._pair[1].fileno()

    def set(self) -> None:
        """Wake the waiter; has no effect while closed."""
        # Full means that it is going to wake anyway.
        if pair := self._pair:
            with contextlib.suppress(OSError):
                pair[1].send(b"\0")

    def clear(self) -> None:
        """Go back to sleep."""
        if pair := self._pair:
            with contextlib.suppress(OSError):
                while pair[0].recv(4096):
                    pass

    def close(self) -> None:
        """Close it; nothing may wait for it afterwards."""
        pair, self._pair = self._pair, None
        for end in pair or ():
            end.close()


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
    """The handlers of several signals, replaced until `restore`; nothing outside the main thread.

    `wakeup` is open, and wakes the waiter.
    """

    def __init__(self, handle: Callable[[int], None], wakeup: Wakeup) -> None:
        self._previous: dict[int, Any] = {}
        self._wakeup_fd: int | None = None
        if threading.current_thread() is not threading.main_thread():
            return
        for sig in SIGNALS:
            self._previous[sig] = signal.signal(sig, lambda number, frame: handle(number))
        if sys.platform != "win32" and is_init():
            # Only to wake the loop that reaps orphans.
            self._previous[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)
        # A signal interrupts waiting only if it comes in the middle of it, to this thread, and not on Windows. The byte
        # that the interpreter writes ends it always.
        self._wakeup_fd = signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)

    def restore(self) -> None:
        """Put the previous handlers back, if this is the thread that may; one in another thread keeps ours."""
        if threading.current_thread() is not threading.main_thread():
            return
        if self._wakeup_fd is not None:
            signal.set_wakeup_fd(self._wakeup_fd)
            self._wakeup_fd = None
        for sig, handler in self._previous.items():
            signal.signal(sig, signal.SIG_DFL if handler is None else handler)
        self._previous = {}
        server_has_ended()
