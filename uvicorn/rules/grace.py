"""Time in which the event loop was blocked does not count against a peer's deadline.

When a deadline passes, the server first extends it by the time the loop was late, once, and reads what the peer has
sent. The native core does the same (`conn/grace.rs`).

The reason is that event loops call timers that are due while input still waits in the kernel. So a busy loop costs its
clients latency but no connection, and a slow client gains no more time than the loop was busy.
"""

from __future__ import annotations

import asyncio
import select
import socket
import sys
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

T = TypeVar("T")

GRANULARITY = 0.05
"""Seconds. A timer that fires later than this shows that the loop was busy. One look extends the deadline by this
much."""

MOST_LOOKS = 4
"""Extensions for a peer that keeps sending. After these it is slow, not overlooked."""


def clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Return the clock of a loop: asyncio's without the call in between, and for uvloop, whose clock pauses while a
    callback runs, the clock that it follows."""
    kind = type(loop)
    follows = getattr(kind, "time", None) is asyncio.BaseEventLoop.time or kind.__module__.partition(".")[0] == "uvloop"
    return monotonic if follows else loop.time


class Grace:
    """Extra time granted to a peer since its deadline was set."""

    __slots__ = ("_looks",)

    def __init__(self) -> None:
        self._looks = 0

    def renew(self) -> None:
        """The deadline is another one."""
        self._looks = 0

    def grant(self, lag: float, look: Callable[[], bool]) -> float:
        """Return how many seconds longer a peer that is late is waited for; 0: it had its time.

        Args:
            lag: seconds by which the loop came too late.
            look: returns whether there is unprocessed input of the peer.
        """
        if not self._looks and lag > GRANULARITY:
            self._looks = 1
            return lag
        if self._looks < MOST_LOOKS and look():
            self._looks += 1
            return GRANULARITY
        return 0.0


class GraceTimer:
    """Calls `expire` in `seconds`, or later if the peer's data could not be read meanwhile.

    Args:
        loop: the event loop.
        seconds: from now on.
        expire: called without arguments.
        look: as `Grace.grant` has it; by default nothing is there.
    """

    __slots__ = ("_loop", "_expire", "_look", "_grace", "_due", "_handle")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        seconds: float,
        expire: Callable[[], object],
        look: Callable[[], bool] = lambda: False,
    ) -> None:
        self._loop = loop
        self._expire = expire
        self._look = look
        self._grace = Grace()
        self._due = 0.0
        self._handle: asyncio.TimerHandle | None = None
        self._arm(seconds)

    def cancel(self) -> None:
        """Do not call."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self, seconds: float) -> None:
        self._due = self._loop.time() + seconds
        self._handle = self._loop.call_later(seconds, self._fire)

    def _fire(self) -> None:
        self._handle = None
        longer = self._grace.grant(self._loop.time() - self._due, self._look)
        if longer:
            self._arm(longer)
        else:
            self._expire()


async def wait_for(awaitable: Awaitable[T], seconds: float, look: Callable[[], bool]) -> T:
    """Await a peer's part of an exchange, as `asyncio.wait_for`, but not longer than a `GraceTimer` allows.

    Raises:
        asyncio.TimeoutError: the peer had its time.
    """
    future = asyncio.ensure_future(awaitable)
    is_over = False

    def expire() -> None:
        nonlocal is_over
        is_over = future.cancel()

    timer = GraceTimer(future.get_loop(), seconds, expire, look)
    try:
        return await future
    except asyncio.CancelledError:
        if is_over:
            raise asyncio.TimeoutError from None
        raise
    finally:
        timer.cancel()


def is_readable(sock: socket.socket) -> bool:
    """Tell whether there is something to read, the end included."""
    return _is_ready(sock.fileno(), True, False)


def has_pending_io(transport: asyncio.Transport) -> bool:
    """Tell whether there is anything to read, or room to write, that the loop has not dealt with.

    A loop polls every socket before it runs a timer of `GRANULARITY` seconds, so pending input is served first.
    """
    own = getattr(transport, "has_pending_io", None)
    if own is not None:  # a transport of ours
        return bool(own())
    sock = transport.get_extra_info("socket")
    if sock is None:
        return False
    try:
        reads = transport.is_reading()
        return _is_ready(sock.fileno(), reads, transport.get_write_buffer_size() > 0)
    except Exception:
        return False  # it is closed, broken, or a double without this method: the deadline applies


if sys.platform == "win32":

    def _is_ready(descriptor: int, reads: bool, writes: bool) -> bool:
        if descriptor < 0:
            return False
        found = select.select([descriptor] if reads else [], [descriptor] if writes else [], [], 0)
        return bool(found[0] or found[1])

else:

    def _is_ready(descriptor: int, reads: bool, writes: bool) -> bool:
        asked = (select.POLLIN if reads else 0) | (select.POLLOUT if writes else 0)
        if descriptor < 0 or not asked:
            return False
        poll = select.poll()
        poll.register(descriptor, asked)
        return bool(poll.poll(0))
