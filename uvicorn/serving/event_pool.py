"""Bounded reuse of `asyncio.Event`, one pool per event loop.

A request takes an event only when `receive()` really has to wait, so one whose body is already there takes none. The
pool never blocks: when it is empty it makes a fresh event and counts it. An event comes back cleared, and only when
it has no waiters; otherwise it is dropped. The next user therefore never sees a wake-up meant for the previous one.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TypedDict

DEFAULT_CAPACITY = 256
"""Idle events kept at most: as many as requests may wait for a body at one moment on a busy server; about 20 KiB."""


def is_poisoned() -> bool:
    """Tell whether nothing is to be used again, so that whatever looks at something of a request that is over shows.

    `UVICORN_POISON=1` in the environment says so. "Ownership" in docs/architecture.md has the rules that it tests.
    """
    return os.environ.get("UVICORN_POISON") == "1"


class EventPoolStats(TypedDict):
    """Figures of an `EventPool`: `created`, `reused`, `discarded` only grow; `idle` and `in_use` are of this moment."""

    created: int
    reused: int
    discarded: int
    idle: int
    in_use: int


class EventPool:
    """A bounded stock of idle events.

    Args:
        capacity: idle events kept at most; one that comes back to a full pool is discarded. Zero switches reuse off.
        preallocate: events made at once, and kept however long they are idle. Must not exceed `capacity`.
        idle_expiry: seconds after which an idle event beyond `preallocate` is dropped, oldest first; `None` keeps them.
        clock: monotonic seconds, replaceable in tests.

    Raises:
        ValueError: `capacity` or `preallocate` is negative, or `preallocate` exceeds `capacity`, or `idle_expiry` is
            not positive.

    Not thread-safe: a pool belongs to the thread of its event loop.
    """

    __slots__ = (
        "capacity",
        "preallocate",
        "idle_expiry",
        "_clock",
        "_idle",
        "_created",
        "_reused",
        "_discarded",
        "_out",
    )

    def __init__(
        self,
        capacity: int = DEFAULT_CAPACITY,
        preallocate: int = 0,
        idle_expiry: float | None = None,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        if not 0 <= preallocate <= capacity:
            raise ValueError("preallocate must be between 0 and capacity.")
        if idle_expiry is not None and idle_expiry <= 0:
            raise ValueError("idle_expiry must be positive, or None to keep idle events.")
        self.capacity = capacity
        self.preallocate = preallocate
        self.idle_expiry = idle_expiry
        self._clock = clock
        # Used as a stack, so that the events at the left are those idle for longest.
        self._idle: deque[tuple[asyncio.Event, float]] = deque()
        self._created = preallocate
        self._reused = 0
        self._discarded = 0
        self._out = 0
        now = self._now()
        for _ in range(preallocate):
            self._idle.append((asyncio.Event(), now))

    def _now(self) -> float:
        return self._clock() if self.idle_expiry is not None else 0.0

    def acquire(self) -> asyncio.Event:
        """Return a cleared event without waiters; never blocks."""
        self._out += 1
        if self._idle:
            event, _ = self._idle.pop()
            # A former user may have kept the event and set it after giving it back.
            event.clear()
            self._reused += 1
            return event
        self._created += 1
        return asyncio.Event()

    def release(self, event: asyncio.Event) -> None:
        """Give `event` back. It must have come from `acquire` of this pool, and is not to be used afterwards."""
        self._out -= 1
        # A waiter that is still there, a cancelled one included, would take the next user's wake-up or lose its own.
        # There is no public way to ask.
        if event._waiters or len(self._idle) >= self.capacity:
            self._discarded += 1
            return
        event.clear()
        self._idle.append((event, self._now()))
        if self.idle_expiry is not None:
            self.expire()

    def expire(self) -> int:
        """Drop events idle for longer than `idle_expiry`, beyond `preallocate`; return how many."""
        if self.idle_expiry is None:
            return 0
        oldest_kept = self._clock() - self.idle_expiry
        dropped = 0
        while len(self._idle) > self.preallocate and self._idle[0][1] < oldest_kept:
            self._idle.popleft()
            dropped += 1
        self._discarded += dropped
        return dropped

    def stats(self) -> EventPoolStats:
        """Return the figures of this pool."""
        return {
            "created": self._created,
            "reused": self._reused,
            "discarded": self._discarded,
            "idle": len(self._idle),
            "in_use": self._out,
        }
