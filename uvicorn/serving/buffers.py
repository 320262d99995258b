"""Limits the output that a process holds for clients which have not read it.

Each connection and each HTTP/2 stream holds little: `send()` waits beyond 64 KiB and one message. Many of them hold
much. Above `limit_buffers`:

- An HTTP/2 connection that holds something starts no further request (the native core, at once).
- Connections whose clients do not read are reset, those that hold most first, until the rest is below the limit.

A client reads if at its pace it would have taken all bytes held for it within `PATIENCE`.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import os
import sys
from collections.abc import Callable, Collection
from typing import Any

from uvicorn.metrics.memory import FreedMemory, resident_memory
from uvicorn.metrics.page import QUEUED_BYTES, TAKEN_BYTES, Page
from uvicorn.rules.limits import HIGH_WATER_LIMIT
from uvicorn.serving.state import ConnectionSet
from uvicorn.serving.write_deadlines import reset_on_close, unsent_by_process

try:
    from uvicorn._native import held_bytes, limit_held_bytes
except ImportError:  # only Python counts

    def held_bytes() -> int:
        """Return how many bytes the native core holds."""
        return 0

    def limit_held_bytes(limit: int | None, /) -> None:
        """Set how many it may hold."""


logger = logging.getLogger("uvicorn.error")

MEBIBYTE = 2**20
INTERVAL = 1.0
"""Seconds between two checks of the held bytes."""
GRACE = 2.0
"""Seconds above the limit in which a client has to take something."""
PATIENCE = 30.0
"""Seconds in which a client at its pace must have taken all bytes held for it."""
WARNING_INTERVAL = 60.0
"""Seconds between two lines in the log."""

_held: dict[BufferLimit, int] = {}
"""The bytes that the connections of each event loop of this process held at the last look."""


def _resident() -> int | None:
    """Bytes of this process in memory, where a look costs next to nothing."""
    return resident_memory(os.getpid()) if sys.platform in ("linux", "win32") else None


class BufferLimit:
    """Reset connections of clients that do not read while the process holds too many bytes; count the bytes held.

    Args:
        loop: calls `look` every `INTERVAL` seconds while there are connections.
        connections: the live ones of this loop.
        limit: MiB; 0 is any number.
        resident: returns how many bytes of the process are in memory, None if that is not known.
        page: where the held bytes are counted, if they are.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connections: Collection[Any],
        limit: int,
        resident: Callable[[], int | None] = _resident,
        page: Page | None = None,
    ) -> None:
        self._loop = loop
        self._connections = connections
        self._limit = limit * MEBIBYTE
        self._resident = resident
        self._page = page
        self._counted = 0
        self._readers: dict[Any, _Reader] = {}
        self._ended = 0
        self._ended_bytes = 0
        self._warned = -math.inf
        self._due = 0.0
        self._heard = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Set the limit."""
        if self._limit:
            limit_held_bytes(self._limit)
        if self._limit or self._page is not None:
            _held[self] = 0

    def watch(self) -> None:
        """Start looking: a client has connected."""
        if self in _held and self._timer is None:
            self._wait()

    def stop(self) -> None:
        """Stop sampling."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if _held.pop(self, None) is not None and not _held:
            limit_held_bytes(None)
        self._count(0)

    def _wait(self) -> None:
        self._due = self._loop.time() + INTERVAL
        self._timer = contextvars.Context().run(self._loop.call_later, INTERVAL, self.look)

    def look(self) -> None:
        """Sum the held bytes, and reset connections above the limit."""
        self._timer = None
        # Clients are only read while the loop runs: its delay does not count against them.
        self._heard += max(0.0, INTERVAL - max(0.0, self._loop.time() - self._due))
        if self._connections or self._ended:
            self._wait()
        self._warn()
        if self._page is None and self._is_small():
            _held[self] = 0
            self._readers = {}
            return
        held = {connection: held_by(connection) for connection in self._connections}
        _held[self] = sum(size for size, _ in held.values())
        self._count(_held[self])
        excess = sum(list(_held.values())) - self._limit
        if excess <= 0 or not self._limit:
            self._readers = {}
            return
        now = self._heard
        readers, self._readers = self._readers, {}
        late: list[tuple[int, Any]] = []
        for connection, (size, taken) in held.items():
            if size <= HIGH_WATER_LIMIT:
                continue
            reader = self._readers[connection] = readers.get(connection) or _Reader(size, taken, now)
            if reader.is_late(size, taken, now):
                late.append((size, connection))
        for size, connection in sorted(late, key=lambda each: each[0], reverse=True):
            if excess <= 0:
                break
            excess -= size
            self._end(connection, size)
        self._warn()

    def _is_small(self) -> bool:
        """Whether the process is smaller than the limit, so that it holds less; part of a larger one may be swapped."""
        resident = self._resident()
        return resident is not None and resident <= self._limit and held_bytes() <= self._limit

    def _count(self, held: int) -> None:
        change, self._counted = held - self._counted, held
        if self._page is not None:
            self._page.add(QUEUED_BYTES if change > 0 else TAKEN_BYTES, abs(change))

    def _end(self, connection: Any, size: int) -> None:
        self._readers.pop(connection, None)
        _held[self] -= size  # the other loops need not end theirs as well
        self._ended += 1
        self._ended_bytes += size
        transport = connection.transport
        try:
            reset_on_close(transport)  # otherwise the kernel would keep its buffer for the client
            transport.abort()
        except Exception as exc:
            logger.error("Cannot close a connection, because its transport failed.\n", exc_info=exc)

    def _warn(self) -> None:
        now = self._loop.time()
        if not self._ended or now - self._warned < WARNING_INTERVAL:
            return
        self._warned = now
        logger.warning(
            "Reset %d connection(s) with %.1f MiB that their clients did not read: this process held more than %d MiB "
            "for clients (limit_buffers).",
            self._ended,
            self._ended_bytes / MEBIBYTE,
            self._limit // MEBIBYTE,
        )
        self._ended = self._ended_bytes = 0


def watch_memory(
    loop: asyncio.AbstractEventLoop, connections: ConnectionSet, limit: int, page: Page | None
) -> Callable[[], None]:
    """Limit and free memory while clients are connected. Returns the function that stops that."""
    freed, buffers = FreedMemory(loop, connections), BufferLimit(loop, connections, limit, page=page)

    def watch() -> None:
        freed.watch()
        buffers.watch()

    def stop() -> None:
        connections.on_first = None
        freed.stop()
        buffers.stop()

    freed.start()
    buffers.start()
    connections.on_first = watch
    return stop


class _Reader:
    """How fast a client has taken its bytes since the process held too many."""

    __slots__ = ("_size", "_taken", "_since", "_progress")

    def __init__(self, size: int, taken: int | None, now: float) -> None:
        self._size, self._taken, self._since, self._progress = size, taken, now, 0.0

    def is_late(self, size: int, taken: int | None, now: float) -> bool:
        """Whether it has had its time, and has not taken enough in it."""
        if taken is not None and self._taken is not None:
            self._progress += taken - self._taken
        elif size > self._size:
            # No output is added above the high-water mark, so the client took some in between.
            self._progress = math.inf
        else:
            self._progress += self._size - size
        self._size, self._taken = size, taken
        elapsed = now - self._since
        if elapsed < GRACE:
            return False
        enough = self._progress * PATIENCE >= size * elapsed
        self._since, self._progress = now, 0.0
        return not enough


def held_by(connection: Any) -> tuple[int, int | None]:
    """Return how many bytes are held for the client of a connection, and how many of such it has taken so far.

    The second is None where only the first is known: an event loop's transport does not count.
    """
    transport = getattr(connection, "transport", None)
    if transport is None:
        return 0, None
    bodies, bodies_taken = getattr(connection, "held_bodies", (0, 0))
    counted = getattr(transport, "get_held_size", None)
    if counted is None:
        return unsent_by_process(transport) + bodies, None
    size, taken = counted()
    return size + bodies, taken + bodies_taken
