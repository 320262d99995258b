"""Back-pressure both ways for one connection, and the answer given when the server is full."""

from __future__ import annotations

import asyncio
import contextvars
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice

from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope
from uvicorn.hooks import beside, original
from uvicorn.rules.limits import HIGH_WATER_LIMIT as HIGH_WATER_LIMIT

CLOSE_HEADER = (b"connection", b"close")

WOKEN_TOGETHER = 16
"""How many of those in a line go on in one turn of the event loop: enough to be quick, too few to hold up others."""


class Line:
    """Coroutines that wait for the same thing, and go on in the order in which they came.

    Each costs the same however many there are, and one that is cancelled leaves nothing behind. It is true while
    it has waiters: new callers then have to queue up too.

    Attributes:
        waiters: those in it, by ticket; `None` until there was one. To look at it costs less than to ask for the truth.
    """

    __slots__ = ("waiters", "_last")

    def __init__(self) -> None:
        # By ticket. Not a dict: to find the first key of one from which many were taken is to pass all their places.
        self.waiters: OrderedDict[int, asyncio.Future[None]] | None = None  # until it is needed
        self._last = 0

    def __bool__(self) -> bool:
        return bool(self.waiters)

    async def wait(self, ready: Callable[[], bool]) -> None:
        """Return when it is the caller's turn and `ready` returns true."""
        waiters = self.waiters
        if waiters is None:
            waiters = self.waiters = OrderedDict()
        self._last = ticket = self._last + 1
        loop = asyncio.get_running_loop()
        try:
            while True:
                waiters[ticket] = waiter = loop.create_future()  # in its old place, if it waits again
                await waiter
                if ready():
                    return
        finally:
            del waiters[ticket]
            if ready():
                self.move()

    def move(self) -> None:
        """The awaited room or data is there: wake the first in the line. The others follow when those have left it."""
        waiters = self.waiters
        if not waiters or next(iter(waiters.values())).done():
            return
        for waiter in islice(waiters.values(), WOKEN_TOGETHER):
            if not waiter.done():
                waiter.set_result(None)


@beside
@original
class FlowControl:
    """Pauses and resumes one transport's reading, and makes writers wait while its buffer is full.

    Programs derive classes from it, whose constructor is given the transport alone.

    Args:
        transport: the one to pause and resume.

    Attributes:
        context: reading is resumed in it, because the loop keeps the context of the resuming call: that of a
            request would live as long as the connection. `None`: in the context of the caller.
        read_paused: the socket is not read.
        write_paused: the transport's buffer is above its high-water mark.
        congested: `write_paused`, or others wait to write: new writers must `drain` first.
    """

    __slots__ = ("_transport", "context", "read_paused", "write_paused", "congested", "_writers", "_watchers")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.context: contextvars.Context | None = None
        self.read_paused = False
        self.write_paused = False
        self.congested = False
        self._writers = Line()
        self._watchers: set[asyncio.Future[None]] | None = None  # until it is needed

    async def drain(self) -> None:
        """Wait until the transport takes more to write, or is gone; first come, first served."""
        if self.congested:
            try:
                await self._writers.wait(self._writable)
            finally:
                self.congested = self.write_paused or bool(self._writers)

    def _writable(self) -> bool:
        return not self.write_paused

    def waiter(self) -> asyncio.Future[None]:
        """Return a future that is done when the transport takes more to write, or is gone."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._watchers is None:
            self._watchers = set()
        self._watchers.add(waiter)
        waiter.add_done_callback(self._watchers.discard)
        return waiter

    def pause_reading(self) -> None:
        """Stop reading from the socket; may be called again."""
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read from the socket again; may be called without a pause before it."""
        if self.read_paused:
            self.read_paused = False
            if self.context is None:
                self._transport.resume_reading()
            else:
                self.context.run(self._transport.resume_reading)

    def pause_writing(self) -> None:
        """The transport's buffer is above its high-water mark: `drain` waits from now on."""
        self.write_paused = self.congested = True

    def resume_writing(self) -> None:
        """The transport's buffer is low again, or the connection is lost: resume waiting writers."""
        self.write_paused = False
        self.congested = bool(self._writers)
        self._writers.move()
        for watcher in self._watchers or ():
            if not watcher.done():
                watcher.set_result(None)


@beside
async def service_unavailable(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    """The ASGI application that refuses a request when a concurrency limit is reached: 503 and close."""
    await send(
        {
            "type": "http.response.start",
            "status": 503,
            "headers": [
                (b"content-type", b"text/plain; charset=utf-8"),
                (b"content-length", b"19"),
                CLOSE_HEADER,
            ],
        }
    )
    await send({"type": "http.response.body", "body": b"Service Unavailable", "more_body": False})
