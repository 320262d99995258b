"""Limits of connections of a process, in all and per address, and the connections that wait for room.

A connection has a `ConnectionSlot` from before it is accepted until its descriptor is closed, so nothing in between can
make the numbers wrong. One that has sent its last response, and only waits for its peer to end, too, makes room for
another; but no more than the limit do so at a time, and one address has no more than its limit. (Not on uvloop without
the native core: it ends the output below Python.) Connections beyond the limit of all wait in the listen backlog: a
short wait is better than a refusal, and other workers may accept them. Connections beyond the limit of an address are
refused at once, because they would take the places of other addresses.

The count covers all event loops of a process. It is in Python for the native core, too, because it costs one call per
connection, and none without a limit.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial

from uvicorn.logging.rate_limit import QUIET_PERIOD, LogRateLimit
from uvicorn.rules.grace import GraceTimer, is_readable
from uvicorn.rules.network import network_of

TURNED_AWAY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 41\r\n"
    b"retry-after: 10\r\nconnection: close\r\n\r\nToo many connections from your address.\r\n"
)
"""The response to a refused connection, sent before its request."""

ASKED = 16384
"""Bytes of the request that are read and dropped; otherwise the kernel would reset the connection."""

LAST_MOMENT = 2.0
"""Seconds that such a connection may stay, for its client to read that."""

MOST_REJECTIONS = 64
"""Of them at a time, at each listening socket of an event loop."""

logger = logging.getLogger("uvicorn.error")


class ConnectionLimit:
    """Counts the connections of a process; used by the threads of all its event loops.

    Args:
        limit: connections at a time, of all clients; `None`: unlimited.
        limit_per_address: of each address; `None`: unlimited.
    """

    def __init__(
        self,
        limit: int | None = None,
        limit_per_address: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = limit
        self._limit_per_address = limit_per_address
        self._clock = clock
        self._lock = threading.Lock()
        self._here = _Counts()
        self._lingering = _Counts()
        self._waiting: dict[CountedListener, None] = {}
        self._leaving: deque[tuple[_Counts, str | None]] = deque()
        self._says_full = False
        self._quiet_until = 0.0
        self._log_limit = LogRateLimit(clock)

    @property
    def count(self) -> int:
        """Connections that are there, without those that linger."""
        return self._here.total

    @property
    def addresses(self) -> int:
        """Addresses that have any, where they are counted."""
        return len(self._here.by_address)

    def enter(self, listener: CountedListener) -> ConnectionSlot | None:
        """Count one more connection; without room notify `listener` when there may be some."""
        limit = self._limit
        with self._lock:
            has_room = limit is None or self._here.total < limit
            if has_room:
                self._here.total += 1
            else:
                self._waiting[listener] = None
            is_news = not has_room and self._may_say_full()
        self._settle()
        if is_news:
            logger.warning("limit_connections=%d reached: further connections wait in the listen backlog.", limit)
        return ConnectionSlot(self, listener) if has_room else None

    def forget(self, listener: CountedListener) -> None:
        """Stop notifying a listener."""
        with self._lock:
            self._waiting.pop(listener, None)
        self._settle()

    def _may_say_full(self) -> bool:
        now = self._clock()
        if self._says_full or now < self._quiet_until:
            return False
        self._says_full = True
        self._quiet_until = now + QUIET_PERIOD
        return True

    def _admit(self, address: str) -> bool:
        limit = self._limit_per_address
        with self._lock:
            has_room = limit is None or self._here.by_address[address] < limit
            if has_room:
                self._here.by_address[address] += 1
        self._settle()
        if not has_room and self._log_limit.allows(address):
            logger.warning(
                "limit_connections_per_address=%d reached by %s: closing its further connections.", limit, address
            )
        return has_room

    def _linger(self, address: str | None) -> bool:
        """Count a connection among those that linger, if there is room."""
        limit, of_address = self._limit, self._limit_per_address
        with self._lock:
            has_room = (limit is None or self._lingering.total < limit) and (
                address is None or of_address is None or self._lingering.by_address[address] < of_address
            )
            if has_room:
                self._lingering.total += 1
                if address is not None:
                    self._lingering.by_address[address] += 1
                self._leaving.append((self._here, address))
        self._settle()
        return has_room

    def _leave(self, address: str | None, lingers: bool) -> None:
        self._leaving.append((self._lingering if lingers else self._here, address))
        self._settle()

    def _settle(self) -> None:
        """Drop closed connections from the counts; if the lock is held, its owner does it.

        Never waits: the garbage collector may close a connection at any moment, even while its thread holds the lock.
        """
        while self._leaving and self._lock.acquire(blocking=False):
            try:
                while self._leaving:
                    counts, address = self._leaving.popleft()
                    counts.drop(address)
                count, limit = self._here.total, self._limit
                # Not for each that ends while others wait.
                has_room = limit is not None and self._says_full and count <= limit - max(1, limit // 10)
                self._says_full = self._says_full and not has_room
                waiting, self._waiting = self._waiting, {}
            finally:
                self._lock.release()
            if has_room:
                logger.info("Accepting connections again: %d of limit_connections=%d are open.", count, limit)
            for listener in waiting:
                listener.tell()


class _Counts:
    """Connections of one sort: all of them, and those of each address, where that is counted."""

    def __init__(self) -> None:
        self.total = 0
        self.by_address: Counter[str] = Counter()

    def drop(self, address: str | None) -> None:
        self.total -= 1
        if address is None:
            return
        self.by_address[address] -= 1
        if not self.by_address[address]:
            del self.by_address[address]


class CountedListener:
    """Where connections come in: one listening socket on one event loop.

    Args:
        connection_limit: counts them.
        tell: called, from any thread, when there may be room again.
        note_refused: called, in the thread of the event loop, for each that is refused.
    """

    def __init__(
        self, connection_limit: ConnectionLimit, tell: Callable[[], object], note_refused: Callable[[], object]
    ) -> None:
        self.connection_limit = connection_limit
        self.tell = tell
        self.note_refused = note_refused

    def enter(self) -> ConnectionSlot | None:
        """One more, if there is room; otherwise `tell` is called when there may be."""
        return self.connection_limit.enter(self)

    def close(self) -> None:
        """Stop being notified."""
        self.connection_limit.forget(self)


class ConnectionSlot:
    """The place of one connection, taken before it is accepted."""

    __slots__ = ("_connection_limit", "_listener", "_address", "_lingers")

    def __init__(self, connection_limit: ConnectionLimit, listener: CountedListener) -> None:
        self._connection_limit: ConnectionLimit | None = connection_limit
        self._listener = listener
        self._address: str | None = None
        self._lingers = False

    def admit(self, host: str | None) -> bool:
        """Count the connection for its address, if it has one; return false if that address has too many."""
        connection_limit = self._connection_limit
        if connection_limit is None or host is None or connection_limit._limit_per_address is None:
            return True
        address = network_of(host)
        if not connection_limit._admit(address):
            self._listener.note_refused()
            return False
        self._address = address
        return True

    def linger(self) -> None:
        """The connection sends nothing more: give the place to another, unless too many have."""
        if self._connection_limit is not None and not self._lingers:
            self._lingers = self._connection_limit._linger(self._address)

    def leave(self) -> None:
        """Give the place back; further calls do nothing."""
        connection_limit, self._connection_limit = self._connection_limit, None
        if connection_limit is not None:
            connection_limit._leave(self._address, self._lingers)


class CountedSocket(socket.socket):
    """A connection that is counted until its descriptor is closed, or another's."""

    slot: ConnectionSlot | None = None

    @classmethod
    def take(cls, sock: socket.socket, slot: ConnectionSlot) -> CountedSocket:
        """The connection of `sock`, which is detached."""
        counted = cls(sock.family, sock.type, sock.proto, sock.detach())
        counted.slot = slot
        return counted

    def shutdown(self, how: int) -> None:
        """End a side of it; without its output it need not be counted."""
        super().shutdown(how)
        if self.slot is not None and how != socket.SHUT_RD:
            self.slot.linger()

    def close(self) -> None:
        """Close it, and stop counting it."""
        super().close()
        self._leave()

    def detach(self) -> int:
        """Let go of the descriptor, and stop counting it."""
        descriptor = super().detach()
        self._leave()
        return descriptor

    def __del__(self) -> None:
        # The descriptor of an abandoned socket is closed by its finalizer. That warns, which may raise.
        try:
            super().__del__()  # type: ignore[misc]
        finally:
            self._leave()

    def _leave(self) -> None:
        slot, self.slot = self.slot, None
        if slot is not None:
            slot.leave()


class Rejections:
    """Answers refused connections of an event loop with 503.

    Data that reaches a closed socket is answered with a reset, and the peer loses the response that it has not read. So
    a connection stays open for a moment, and its input is dropped. It is not counted, or it would take the place of
    others; therefore only a few stay, and the rest closes at once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._staying: dict[socket.socket, GraceTimer] = {}
        self._taken: dict[socket.socket, int] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._staying)

    def tell(self, sock: socket.socket) -> None:
        """Say it, if the peer seems to speak HTTP/1.1. The socket belongs to this object from then on."""
        sock.setblocking(False)
        if not _is_told(sock) or self._is_closed or len(self) >= MOST_REJECTIONS:
            sock.close()
            return
        self._taken[sock] = 0
        self._staying[sock] = GraceTimer(
            self._loop, LAST_MOMENT, partial(self._close, sock), partial(is_readable, sock)
        )
        self._loop.add_reader(sock.fileno(), self._read, sock)

    def _read(self, sock: socket.socket) -> None:
        try:
            length = len(sock.recv(ASKED))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            length = 0
        self._taken[sock] += length
        if not length or self._taken[sock] >= ASKED:
            self._close(sock)

    def _close(self, sock: socket.socket) -> None:
        del self._taken[sock]
        self._staying.pop(sock).cancel()
        self._loop.remove_reader(sock.fileno())
        sock.close()

    def close(self) -> None:
        """Close all of them, and later ones at once: the loop may be about to end."""
        self._is_closed = True
        for sock in list(self._staying):
            self._close(sock)


def _is_told(sock: socket.socket) -> bool:
    try:
        asked = sock.recv(ASKED)
    except (BlockingIOError, InterruptedError):
        asked = b""
    except OSError:
        return False
    if asked.startswith(b"PRI * HTTP/2.0"):
        return False
    try:
        sock.send(TURNED_AWAY)
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        return False
    return True
