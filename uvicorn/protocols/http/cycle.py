"""The ASGI side of one HTTP request and its response: `receive()`, `send()` and the run of the application, once.

::

    IDLE ──http.response.start──▶ STARTED ──last http.response.body──▶ COMPLETE

What goes on the wire belongs to the connection: the cycle calls `start_response`, `send_body`, `send_continue` and
`finish` on it, and knows no bytes. The head waits there for the first piece of the body, so that both are one write.
"""

from __future__ import annotations

import asyncio
from enum import IntEnum
from typing import TYPE_CHECKING, cast

from uvicorn._types import ASGI3Application, ASGIReceiveEvent, ASGISendEvent, HTTPScope
from uvicorn.protocols.http.flow_control import CLOSE_HEADER

if TYPE_CHECKING:
    from uvicorn.protocols.http.protocol import HTTPProtocol


class CycleState(IntEnum):
    """How far the response has come."""

    IDLE = 0
    STARTED = 1
    COMPLETE = 2


# A member looked up on its class costs several times a global, and these are read for each message.
IDLE, STARTED, COMPLETE = CycleState.IDLE, CycleState.STARTED, CycleState.COMPLETE


class RequestResponseCycle:
    """One request, from its head to the end of the application's call.

    Attributes:
        more_body: more of the request body is to come from the client.
        ended: the application was given the last piece of the body.
        peer_gone: `receive()` has only `http.disconnect` left to give, once the body was read; a half-closed client
            and a server that shuts down look like this, and may still be sent the response.
        disconnected: nothing can be sent any more; `send()` returns without doing anything.
    """

    __slots__ = (
        "connection",
        "app",
        "scope",
        "state",
        "body",
        "more_body",
        "ended",
        "peer_gone",
        "disconnected",
        "expect_continue",
        "_events",
        "__weakref__",
    )

    def __init__(
        self,
        connection: HTTPProtocol,
        app: ASGI3Application,
        scope: HTTPScope,
        more_body: bool,
        expect_continue: bool,
    ) -> None:
        self.connection = connection
        self.app = app
        self.scope = scope
        self.state = IDLE
        self.body: bytes | bytearray = b""
        self.more_body = more_body
        self.ended = False
        self.peer_gone = False
        self.disconnected = False
        self.expect_continue = expect_continue
        self._events: tuple[asyncio.Event, ...] = ()

    # Told by the connection.

    def feed(self, data: bytes) -> None:
        """Add a piece of the request body."""
        if not self.body:
            self.body = data
        else:
            if not isinstance(self.body, bytearray):
                self.body = bytearray(self.body)
            self.body += data
        self._wake()

    def feed_end(self) -> None:
        """The request body is complete."""
        self.more_body = False
        self._wake()

    def disconnect(self, reachable: bool = False) -> None:
        """The client is gone, or is treated as if it were; `reachable` says that it can still be sent the response."""
        self.peer_gone = True
        if not reachable:
            self.disconnected = True
        self._wake()

    def _wake(self) -> None:
        for event in self._events:
            event.set()

    # The application's side.

    async def run(self) -> None:
        """Call the application and see to it that the response ends, well or badly."""
        connection = self.connection
        logger = connection.logger
        try:
            result = await self.app(self.scope, self.receive, self.send)  # type: ignore[func-returns-value]
        except BaseException as exc:
            # Whatever it is, SystemExit and CancelledError included, it ends this response and nothing else.
            logger.error("Exception in ASGI application\n", exc_info=exc)
            if self.state is IDLE:
                await self.send_500_response()
        else:
            if result is not None:
                logger.error("ASGI callable should return None, but returned '%s'.", result)
                if self.state is IDLE:
                    await self.send_500_response()
            elif self.state is not COMPLETE and not self.peer_gone:
                if self.state is IDLE:
                    logger.error("ASGI callable returned without starting response.")
                    await self.send_500_response()
                else:
                    logger.error("ASGI callable returned without completing response.")
        finally:
            if self.state is not COMPLETE:
                connection.abort_response(self)

    async def send_500_response(self) -> None:
        """Answer for an application that failed before it started its response."""
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"21"),
            CLOSE_HEADER,
        ]
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": b"Internal Server Error", "more_body": False})

    async def send(self, message: ASGISendEvent) -> None:
        """Take one message of the response from the application.

        Waits while the transport's buffer is above its high-water mark. Does nothing once the client is gone.

        Raises:
            RuntimeError: the message is out of order, or would break the framing or the header section.
            TypeError: a value of the wrong type.
        """
        connection = self.connection
        if connection.flow.write_paused and not self.disconnected:
            await connection.flow.drain()
        if self.disconnected:
            return
        message_type = message["type"]
        if self.state is IDLE:
            if message_type != "http.response.start":
                raise RuntimeError(f"Expected ASGI message 'http.response.start', but got '{message_type}'.")
            status = message["status"]  # type: ignore[typeddict-item]
            connection.start_response(self, status, message.get("headers", ()))  # type: ignore[arg-type]
            self.state = STARTED
        elif self.state is STARTED:
            if message_type != "http.response.body":
                raise RuntimeError(f"Expected ASGI message 'http.response.body', but got '{message_type}'.")
            more_body = bool(message.get("more_body", False))
            connection.send_body(self, cast(bytes, message.get("body", b"")), more_body)
            if not more_body:
                self.state = COMPLETE
                self._wake()
                connection.finish(self)
        else:
            raise RuntimeError(f"Unexpected ASGI message '{message_type}' sent, after response already completed.")

    async def receive(self) -> ASGIReceiveEvent:
        """Return the next piece of the request body, or `http.disconnect`.

        Waits until there is something to tell. A body that is complete is delivered even if the client has gone
        meanwhile; one that is not ends in `http.disconnect`, never in a false end of body.
        """
        if self.expect_continue:
            self.expect_continue = False
            if self.state is IDLE and not self.peer_gone:
                self.connection.send_continue()
        while True:
            if self.state is COMPLETE or (self.peer_gone and (self.ended or self.more_body)):
                return {"type": "http.disconnect"}
            if not self.ended and (self.body or not self.more_body):
                break
            self.connection.want_body()
            await self._wait()
        body = self.body
        self.body = b""
        self.ended = not self.more_body
        if self.more_body:
            self.connection.want_body()
        return {"type": "http.request", "body": bytes(body), "more_body": self.more_body}

    async def _wait(self) -> None:
        """Wait for `_wake`, on an event of the pool; each of several waiters has its own."""
        pool = self.connection.server_state.event_pool
        event = pool.acquire()
        self._events += (event,)
        try:
            await event.wait()
        finally:
            self._events = tuple(other for other in self._events if other is not event)
            pool.release(event)
