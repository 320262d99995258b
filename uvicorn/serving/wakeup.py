"""Wake an event loop that sleeps when a signal comes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Iterator

# Of the servers that run in the main thread, all in one event loop: signals wake it through one of them.
_wakeup_fds: list[int] = []


@contextlib.contextmanager
def waking_on_signals(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Let every signal wake the selector of `loop`, so that Python's handlers run at once. Main thread only.

    Otherwise it sleeps on, until something else happens, whenever a signal comes at the moment before it falls asleep,
    or another thread is interrupted by it; and always on Windows.
    """
    receiving, sending = socket.socketpair()
    with receiving, sending:
        receiving.setblocking(False)
        sending.setblocking(False)
        loop.add_reader(receiving.fileno(), receiving.recv, 4096)
        own = sending.fileno()
        _replace_wakeup_fd(-1, own)
        _wakeup_fds.append(own)
        try:
            yield
        finally:
            _wakeup_fds.remove(own)
            _replace_wakeup_fd(own, _wakeup_fds[-1] if _wakeup_fds else -1)
            loop.remove_reader(receiving.fileno())


def _replace_wakeup_fd(old: int, new: int) -> None:
    """Let the interpreter write to `new` if it has written to `old`. An event loop with handlers has its own there."""
    current = signal.set_wakeup_fd(new, warn_on_full_buffer=False)
    if current != old:
        signal.set_wakeup_fd(current)


def awake() -> contextlib.AbstractContextManager[None]:
    """`waking_on_signals` where it is needed and possible: uvloop and the proactor loop see to it themselves."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, asyncio.SelectorEventLoop) and threading.current_thread() is threading.main_thread():
        return waking_on_signals(loop)
    return contextlib.nullcontext()
