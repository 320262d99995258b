"""Deadlines for clients that do not read.

Such a client would hold memory, a descriptor and an application forever. Its progress shows in the decrease of
`unsent`. Nothing is added while an application waits to write, or once the connection is closing, so a
difference is what the client has read.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import socket
import struct
import sys
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Protocol

from uvicorn.rules.grace import Grace, has_pending_io
from uvicorn.rules.limits import READ_BYTES_PER_SECOND

if sys.platform == "win32":

    def _in_kernel(descriptor: int) -> int:
        """Return 0: the system does not report it."""
        return 0

else:
    import fcntl
    import termios

    def _in_kernel(descriptor: int) -> int:
        """Return how many bytes of a socket's have not reached its peer."""
        return int.from_bytes(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


_NO_LINGER = struct.pack("ii", 1, 0)


def reset_on_close(transport: asyncio.Transport) -> None:
    """See to it that closing `transport` resets the connection, so that the peer does not take it for a regular end."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):  # of a socket that is gone already
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)


def unsent_by_process(transport: asyncio.Transport) -> int:
    """Return how many bytes the kernel has not taken yet; none, if that is a double, which need not know.

    At least one as long as a closed transport waits for its client's end of TLS, which Python 3.10 does for ever.
    """
    try:
        return transport.get_write_buffer_size() or _awaits_end_of_tls(transport)
    except (AttributeError, NotImplementedError):
        return 0


if sys.version_info >= (3, 11):

    def _awaits_end_of_tls(transport: asyncio.Transport) -> bool:
        """Return False: the transport has a deadline of its own."""
        return False

else:
    from asyncio import sslproto

    def _awaits_end_of_tls(transport: asyncio.Transport) -> bool:
        return isinstance(transport, sslproto._SSLProtocolTransport) and transport._closed


def unsent(transport: asyncio.Transport) -> int:
    """Return how many bytes the peer has yet to take.

    Those in the kernel are counted, because it may take minutes of a slow peer's reading before it asks for more.
    """
    get_size = getattr(transport, "get_unsent_size", None)
    if get_size is not None:  # a transport of ours, which need not show its socket for that
        return int(get_size())
    size = unsent_by_process(transport)
    sock = transport.get_extra_info("socket")
    if sock is not None:
        try:
            size += _in_kernel(sock.fileno())
        except (OSError, ValueError):
            pass  # it is closed, or of a kind that cannot tell
    return size


class Writer(Protocol):
    """A connection with output that waits for its client."""

    transport: asyncio.Transport

    def reader_is_late(self) -> None:
        """The client has taken next to nothing in all its time."""


class WriteDeadlines:
    """The waits of one event loop's connections for their clients: one timer serves them all.

    Args:
        loop: the event loop.
        context: in which it calls back.
        seconds: how long a client may read nothing; 0: unlimited. One that takes `READ_BYTES_PER_SECOND` on an average
            has that time again.
        clock: returns the time.
    """

    __slots__ = ("_loop", "_context", "_seconds", "_clock", "_awaited", "_timer", "_due")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context,
        seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._loop = loop
        self._context = context
        self._seconds = seconds
        self._clock = clock
        # Deadline, unsent bytes and granted time; all wait equally long, so the first is the first to be late.
        self._awaited: OrderedDict[Writer, tuple[float, int, Grace]] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def wait(self, writer: Writer) -> None:
        """Give the client of `writer` its time, from now on."""
        if self._seconds <= 0:
            return
        self._awaited[writer] = self._clock() + self._seconds, unsent(writer.transport), Grace()
        self._awaited.move_to_end(writer)
        if self._timer is None:
            self._arm(self._seconds)

    def waits(self, writer: Writer) -> bool:
        """Tell whether the client of `writer` has a limited time."""
        return writer in self._awaited

    def forget(self, writer: Writer) -> None:
        """The client has taken enough, or the connection is gone."""
        self._awaited.pop(writer, None)

    def close(self) -> None:
        """Drop all waits."""
        self._awaited.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, seconds: float) -> None:
        # In the context of the server: that of a request would live as long as the timer.
        self._due = self._clock() + seconds
        self._timer = self._context.run(self._loop.call_later, seconds, self._fire)

    def _fire(self) -> None:
        self.sweep(self._clock() - self._due)

    def sweep(self, lag: float = 0.0) -> None:
        """End the connections whose clients are late, `lag` seconds after the next should have been looked at."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock()
        for writer, (until, before, grace) in list(self._awaited.items()):
            if until > now:
                break
            longer = grace.grant(lag, partial(has_pending_io, writer.transport))
            if longer:
                self._awaited[writer] = now + longer, before, grace  # still in front
            elif before - unsent(writer.transport) >= self._seconds * READ_BYTES_PER_SECOND:
                self.wait(writer)
            else:
                self.forget(writer)
                writer.reader_is_late()
        if self._awaited and self._timer is None:
            until = next(iter(self._awaited.values()))[0]
            self._arm(max(until - now, 0.0))
