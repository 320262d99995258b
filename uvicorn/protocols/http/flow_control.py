"""Back-pressure both ways for one connection, and the answer given when the server is full."""

from __future__ import annotations

import asyncio
import contextvars

from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope
from uvicorn.protocols.http.limits import HIGH_WATER_LIMIT as HIGH_WATER_LIMIT

CLOSE_HEADER = (b"connection", b"close")


class FlowControl:
    """Pauses and resumes one transport's reading, and makes writers wait while its buffer is full.

    Args:
        transport: whose reading it is.
        context: reading is resumed in it, because the loop reads on in the context of whoever resumes: that of a
            request would live as long as the connection. `None`: in the context of the caller.
    """

    __slots__ = ("_transport", "_context", "read_paused", "write_paused", "_waiters")

    def __init__(self, transport: asyncio.Transport, context: contextvars.Context | None = None) -> None:
        self._transport = transport
        self._context = context
        self.read_paused = False
        self.write_paused = False
        self._waiters: list[asyncio.Future[None]] = []

    async def drain(self) -> None:
        """Wait until the transport takes more to write, or is gone."""
        while self.write_paused:
            await self.waiter()

    def waiter(self) -> asyncio.Future[None]:
        """Return a future that is done when the transport takes more to write, or is gone."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters = [other for other in self._waiters if not other.done()]
        self._waiters.append(waiter)
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
            if self._context is None:
                self._transport.resume_reading()
            else:
                self._context.run(self._transport.resume_reading)

    def pause_writing(self) -> None:
        """The transport's buffer is above its high-water mark: `drain` waits from now on."""
        self.write_paused = True

    def resume_writing(self) -> None:
        """The transport's buffer is low again, or the connection is lost: let all waiting writers go on."""
        self.write_paused = False
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


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
