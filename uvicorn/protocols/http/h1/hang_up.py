"""Detect that a client has closed while its socket is not being read.

Reading stops where a client is too far ahead of its answers, and with it the event loop's only way to notice that the
client has gone. Linux can tell: one `epoll` object for each event loop, which the loop watches as one more descriptor,
is asked for nothing but the other end's closing.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import select
import sys
from collections.abc import Callable

if sys.platform == "linux":

    class HangUps:
        """Reports closed connections, each once.

        Args:
            loop: the event loop.
            context: in which it calls back.
        """

        __slots__ = ("_loop", "_context", "_epoll", "_told")

        def __init__(self, loop: asyncio.AbstractEventLoop, context: contextvars.Context) -> None:
            self._loop = loop
            self._context = context
            self._epoll: select.epoll | None = None
            self._told: dict[int, Callable[[bool], None]] = {}

        def watch(self, descriptor: int, tell: Callable[[bool], None]) -> None:
            """Have `tell(reset)` called when the peer of this socket has ended, or has `reset` the connection."""
            if self._epoll is None:
                self._epoll = select.epoll()
                self._context.run(self._loop.add_reader, self._epoll.fileno(), self._look)
            with contextlib.suppress(OSError):  # the system watches as many as it can
                self._epoll.register(descriptor, select.EPOLLRDHUP | select.EPOLLONESHOT)
                self._told[descriptor] = tell

        def unwatch(self, descriptor: int) -> None:
            """Forget about this socket."""
            if self._told.pop(descriptor, None) is not None and self._epoll is not None:
                with contextlib.suppress(OSError):  # it is closed already
                    self._epoll.unregister(descriptor)

        def close(self) -> None:
            """Forget about all of them."""
            self._told.clear()
            if self._epoll is not None:
                self._loop.remove_reader(self._epoll.fileno())
                self._epoll.close()
                self._epoll = None

        def _look(self) -> None:
            assert self._epoll is not None
            for descriptor, events in self._epoll.poll(0):
                tell = self._told.get(descriptor)
                if tell is not None:
                    tell(bool(events & (select.EPOLLHUP | select.EPOLLERR)))

else:

    class HangUps:
        """Reports nothing: other systems do not signal the end before all input was read."""

        __slots__ = ()

        def __init__(self, loop: asyncio.AbstractEventLoop, context: contextvars.Context) -> None: ...

        def watch(self, descriptor: int, tell: Callable[[bool], None]) -> None:
            """Do nothing."""

        def unwatch(self, descriptor: int) -> None:
            """Do nothing."""

        def close(self) -> None:
            """Do nothing."""
