"""The ASGI side of one HTTP request and its response: `receive()`, `send()` and the run of the application, once.

::

    IDLE ──http.response.start──▶ STARTED ──last http.response.body──▶ COMPLETE
                                   ▲   │ │                                ▲
              a file, while it is  │   ▼ └─ if trailers were announced ─▶ TRAILERS
                       being sent  SENDING

The wire belongs to the connection. The cycle calls a `Stream` (`_types`), and knows neither bytes nor the version of
HTTP.

Messages of extensions (the setting `asgi_extensions`) are dealt with apart from those that every response has. Files go
through `files.send_file`, to which a cycle is the sink.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from enum import IntEnum
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from uvicorn._types import ASGI3Application, ASGIReceiveEvent, ASGISendEvent, FileRoute, HTTPScope, Stream
from uvicorn.access.log import Entry
from uvicorn.files.sending import MOUNTED, send_file
from uvicorn.hooks import original
from uvicorn.metrics.page import Course
from uvicorn.protocols.http.flow_control import WOKEN_TOGETHER
from uvicorn.protocols.http.wire.head import Field
from uvicorn.protocols.http.wire.response import accepts_trailers, as_body, check_links, check_trailers, copy_message
from uvicorn.protocols.utils import is_thrown_away
from uvicorn.rules import texts

if TYPE_CHECKING:
    from uvicorn.tracing.span import ServerSpan


class CycleState(IntEnum):
    """How far the response has come."""

    IDLE = 0
    """The application has not started it."""
    STARTED = 1
    """The head was taken, and pieces of the body follow."""
    SENDING = 2
    """A file is being sent: nothing else may come between its bytes."""
    TRAILERS = 3
    """The body is complete, and trailers are to follow."""
    COMPLETE = 4
    """Nothing may follow."""


class Peer(IntEnum):
    """The client, as its request knows it; it only ever goes forward."""

    PRESENT = 0
    """It is there."""
    LEFT = 1
    """`receive()` has only `http.disconnect` left to give, once the body was read. A half-closed client and a server
    that shuts down look like this, and may still be sent the response."""
    UNREACHABLE = 2
    """Nothing can be sent any longer either: `send()` returns without effect."""


# A member looked up on its class costs several times a global, and these are read for each message.
IDLE, STARTED, SENDING, TRAILERS, COMPLETE = CycleState
PRESENT, LEFT, UNREACHABLE = Peer

SERVER_ERROR = b"Internal Server Error"
SERVER_ERROR_FIELDS = ((b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"21"))
FILE_MESSAGES = ("http.response.pathsend", "http.response.zerocopysend", MOUNTED)


class Waiting(Protocol):
    """A request whose application has to wait until it is called."""

    def leave(self) -> None:
        """The client is gone, or looks like it."""


class Gated(Protocol):
    """Where a request has a place among those that are active, which it gives back while it waits for its client.

    Attributes:
        senders: calls of `send()` that wait for the client, or for a place after that.
    """

    senders: int

    @property
    def is_parked(self) -> bool:
        """It has no place."""

    def park(self, for_body: bool) -> None:
        """The application waits for the client: `for_body`, or to send."""

    def resume(self) -> asyncio.Future[None] | None:
        """The client has sent or read data. Returns a future if no place is free; call again when that is done."""

    def force(self, is_seen: bool = False) -> None:
        """The application runs, whether or not there is a place for it; `is_seen`: though it waits, as it seemed."""


async def _resumed(gated: Gated) -> None:
    """Return when the request has a place again."""
    while (future := gated.resume()) is not None:
        await future


@original
class RequestResponseCycle:
    """One request, from its head to the end of the application's call.

    Args:
        stream: the stream of the request and its response.
        scope: of the request.
        more_body: see below.
        expect_continue: the client holds its body back until it is asked for it (RFC 9110 section 10.1.1).

    The classes of the implementations have upstream's constructor: see `meet`.

    Attributes:
        more_body: more of the request body is to come from the client.
        body_given: the application was given the last piece of the body.
        peer: whether the client is there.
        trailers: those so far; `None` if the application announced none.
        entry: of the access log, if that has a format of the user's.
        course: for metrics and traces, if there are any.
        waiting: notified when the client disconnects while the application has not been called yet.
        gated: its place, where the number of active requests is limited, from the start of its application on.
        task: in which the application is called, from the end of its first turn to that of the call.
    """

    __slots__ = (
        "stream",
        "scope",
        "task",
        "state",
        "body",
        "more_body",
        "body_given",
        "peer",
        "expect_continue",
        "trailers",
        "entry",
        "course",
        "waiting",
        "gated",
        "_events",
        "__weakref__",
    )

    def __init__(
        self,
        stream: Stream,
        scope: HTTPScope,
        more_body: bool,
        expect_continue: bool,
    ) -> None:
        self.stream = stream
        self.scope = scope
        self.task: asyncio.Task[None] | None = None
        self.state = IDLE
        self.body: bytes | bytearray = b""
        self.more_body = more_body
        self.body_given = False
        self.peer = PRESENT
        self.expect_continue = expect_continue
        self.trailers: list[Field] | None = None
        self.entry: Entry | None = None
        self.course: Course | ServerSpan | None = None
        self.waiting: Waiting | None = None
        self.gated: Gated | None = None
        self._events: OrderedDict[asyncio.Event, None] | tuple[()] = ()

    def meet(self, scope: HTTPScope, transport: Any) -> None:
        """Begin with the relevant ones of upstream's arguments.

        A program has replaced the constructor that is given them, or calls it in a method of upstream's that it has
        replaced; such a method starts the application as well.
        """
        stream: Stream | None = getattr(self, "stream", None)
        if stream is None:
            stream, expect_continue = transport.get_protocol().adopt(self)
        else:
            expect_continue = self.expect_continue
        RequestResponseCycle.__init__(self, stream, scope, True, expect_continue)

    # Told by the connection.

    def feed(self, data: bytes) -> None:
        """Add a piece of the request body."""
        if self.course is not None and self.course.is_by_route:
            self.course.count_received(len(data))
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
        if self.peer is PRESENT:
            self.peer = LEFT
        if self.waiting is not None:
            self.waiting.leave()
        if not reachable:
            self.peer = UNREACHABLE
            if self.entry is not None:
                self.entry.end()
            if self.course is not None:
                self.course.end()
        self._wake()

    def _wake(self) -> None:
        """Wake the waiters: all at the end of the request, otherwise the first."""
        if not self._events or not self._has_message():
            return
        for event in islice(self._events, WOKEN_TOGETHER if self._is_at_end() else 1):
            event.set()

    # Names that tools read.

    @property
    def response_started(self) -> bool:
        """Whether the application has started its response."""
        return self.state is not IDLE

    @property
    def response_complete(self) -> bool:
        """Whether the response is complete."""
        return self.state is COMPLETE

    @property
    def disconnected(self) -> bool:
        """Whether the client has disconnected, even if the application does not receive."""
        return self.peer is not PRESENT

    @property
    def waiting_for_100_continue(self) -> bool:
        """Whether the client holds its body back until the first `receive()`."""
        return self.expect_continue

    @property
    def logger(self) -> logging.Logger:
        """The error log."""
        return self.stream.logger

    @property
    def message_event(self) -> RequestResponseCycle:
        """Upstream's event: `set` it after changing `body` or `more_body` from outside."""
        return self

    def set(self) -> None:
        """Wake callers that wait for the body."""
        self._wake()

    # The application's side.

    async def run_asgi(self, app: ASGI3Application) -> None:
        """Call `app`, the application or its replacement, and ensure that the response ends.

        Tools that trace requests replace this.
        """
        stream = self.stream
        logger = stream.logger
        if self.course is not None:
            self.course.run()
        try:
            result = await app(self.scope, self.receive, self.send)  # type: ignore[func-returns-value]
        except BaseException as exc:
            # Whatever it is, SystemExit and CancelledError included, it ends this response and nothing else.
            if isinstance(exc, GeneratorExit) and is_thrown_away(self.task):
                raise
            if self.course is not None:
                self.course.fail(exc)
            stream.flush_log()
            logger.error(texts.APPLICATION_FAILED, exc_info=exc)
            if self.state is IDLE:
                # Where only logging the start has failed, it has started: the connection closes below.
                with contextlib.suppress(RuntimeError):
                    await self.send_500_response()
        else:
            if result is not None:
                if self.course is not None:
                    self.course.fail()
                logger.error(texts.APPLICATION_RETURNED, result)
                if self.state is IDLE:
                    await self.send_500_response()
            elif self.state is not COMPLETE and self.peer is PRESENT:
                if self.course is not None:
                    self.course.fail()
                if self.state is IDLE:
                    logger.error(texts.NOT_STARTED)
                    await self.send_500_response()
                else:
                    logger.error(texts.NOT_COMPLETED)
        finally:
            # An application may keep `send` or `receive`, and with them this object; its task ends here.
            self.task = None
            if self.state is not COMPLETE:
                # Later calls of `receive` are too late for the request, too.
                self.body_given = True
                stream.abort()

    def answer(self, status: int, headers: list[Field], body: bytes) -> None:
        """Send a response of the server itself, at once and without an application."""
        stream = self.stream
        if self.course is not None:
            self.course.run()
        stream.start(status, headers)
        self.state = STARTED
        sent = stream.body(body, False)
        if self.entry is not None:
            self.entry.sent += sent
        if self.course is not None and self.course.is_by_route:
            self.course.count_sent(sent)
        self._end_body()

    async def send_500_response(self) -> None:
        """Answer for an application that failed before it started its response."""
        self.stream.announce_close()
        await self.send({"type": "http.response.start", "status": 500, "headers": [*SERVER_ERROR_FIELDS]})
        await self.send({"type": "http.response.body", "body": SERVER_ERROR, "more_body": False})

    async def send(self, message: ASGISendEvent) -> None:
        """Take one message of the response from the application.

        Waits while the transport's buffer is above its high-water mark. Does nothing once the client is gone.

        Raises:
            RuntimeError: the message is out of order, or would break the framing or the header section.
            TypeError: a value of the wrong type.
        """
        stream = self.stream
        if stream.flow.congested and self.peer is not UNREACHABLE and self.state is not COMPLETE:
            message = copy_message(message, "body")
            if self.gated is None:
                await stream.writable()
            else:
                await self._writable(self.gated)
        elif self.gated is not None and self.gated.is_parked:
            if self.gated.senders and self.state is not COMPLETE:
                await self._writable(self.gated)  # behind those that wait for a place
            self.gated.force(is_seen=True)
        if self.peer is UNREACHABLE and self.state is not COMPLETE:
            stream.dropped(self.scope, message)
            return
        message_type = message["type"]
        if self.state is IDLE and message_type == "http.response.start":
            status = message["status"]  # type: ignore[typeddict-item]
            if not stream.start(status, message.get("headers", ())):  # type: ignore[arg-type]
                raise self.out_of_order(message_type)
            self.state = STARTED
            if message.get("trailers") and stream.offers("http.response.trailers"):
                self.trailers = []
        elif self.state is STARTED and message_type == "http.response.body":
            more_body = not not message.get("more_body", False)  # noqa: SIM208 - a call costs more
            body: Any = message.get("body", b"")
            if type(body) is not bytes:
                body = as_body(body)  # refuses objects that are not bytes-like, copies mutable ones
            if self.state is not STARTED:
                # Reading the message ran code of the application, which has sent something meanwhile.
                raise self.out_of_order(message_type)
            sent = stream.body(body, more_body, self.trailers is not None)
            if self.entry is not None:
                self.entry.sent += sent
            if self.course is not None and self.course.is_by_route:
                self.course.count_sent(sent)
            if not more_body:
                if self.trailers is None and self.entry is None and not self._events:
                    # As `_end_body`, without the call.
                    self.state = COMPLETE
                    stream.finish()
                else:
                    self._end_body()
        else:
            await self._send_extension(message_type, message)

    async def _writable(self, gated: Gated) -> None:
        """Wait until more can be written, without a place; then until there is one."""
        gated.senders += 1
        try:
            gated.park(for_body=False)
            await self.stream.writable()
            if self.peer is not UNREACHABLE:
                await _resumed(gated)
        finally:
            gated.senders -= 1
            gated.force()

    def _end_body(self) -> None:
        """The body is complete: so is the response, unless trailers follow."""
        if self.trailers is not None:
            self.state = TRAILERS
            return
        self.state = COMPLETE
        if self._events:
            self._wake()
        if self.entry is not None:
            self.entry.end()
        self.stream.finish()

    # Extensions.

    async def _send_extension(self, message_type: str, message: Any) -> None:
        """Take a message that not every response has, or refuse one that is out of order or not offered."""
        state = self.state
        if message_type != MOUNTED and not self.stream.offers(message_type):
            raise self.out_of_order(message_type)
        if state <= STARTED and message_type == "http.response.early_hint":
            links = check_links(message["links"])
            if self.state > STARTED:
                raise self.out_of_order(message_type)
            if links:
                self.stream.interim(103, links)
        elif state is STARTED and message_type in FILE_MESSAGES:
            await send_file(self, message)
        elif state is TRAILERS and message_type == "http.response.trailers":
            self._send_trailers(message)
        else:
            raise self.out_of_order(message_type)

    def out_of_order(self, message_type: str) -> RuntimeError:
        """Return the exception for a message that does not come next."""
        if self.state is COMPLETE:
            return RuntimeError(texts.ALREADY_COMPLETE.format(type=message_type))
        if self.state is SENDING:
            return RuntimeError(texts.SENDING_FILE.format(type=message_type))
        expected = {IDLE: "start", STARTED: "body", TRAILERS: "trailers"}[self.state]
        return RuntimeError(texts.OUT_OF_ORDER.format(expected=expected, type=message_type))

    def _send_trailers(self, message: Any) -> None:
        """Take trailers, which are checked at once, and sent when they are complete."""
        fields = check_trailers(message.get("headers", ()))
        more_trailers = bool(message.get("more_trailers", False))
        # RFC 9110 section 6.5.1: a client that did not announce support may drop trailers.
        wanted = not more_trailers and accepts_trailers(self.scope["headers"])
        if self.trailers is None:
            # All this ran code of the application, which has sent the last ones meanwhile.
            raise self.out_of_order("http.response.trailers")
        self.trailers += fields
        if not more_trailers:
            self.stream.trailers(self.trailers if wanted else ())
            self.trailers = None
            self._end_body()

    @property
    def transport(self) -> Any:
        """Of the connection, if the request has that to itself; programs know it from upstream's cycles."""
        return self.stream.own_connection

    # The interface for files: `files.FileSink`.

    @property
    def unreachable(self) -> bool:
        """Whether nothing can be sent any longer."""
        return self.peer is UNREACHABLE

    @property
    def file_route(self) -> FileRoute | None:
        """By which the kernel can send it."""
        return self.stream.file_route

    @property
    def write_paused(self) -> bool:
        """The stream has enough to write."""
        return self.stream.flow.write_paused

    def waiter(self) -> asyncio.Future[None]:
        """Return a future that is done when the stream takes more, or the connection ends."""
        return self.stream.flow.waiter()

    def await_reader(self) -> None:
        """Start the deadline for the client to read data sent by the file route."""
        self.stream.await_reader()

    def stop_awaiting_reader(self) -> None:
        """Cancel that deadline."""
        self.stream.stop_awaiting_reader()

    def park(self) -> None:
        """The application waits until the client has read some of a file."""
        if self.gated is not None:
            self.gated.park(for_body=False)

    def resume(self) -> asyncio.Future[None] | None:
        """All of it is written. Returns a future if no place is free to go on; call again when that is done."""
        return None if self.gated is None else self.gated.resume()

    def force(self) -> None:
        """The application goes on, whether or not there is a place."""
        if self.gated is not None:
            self.gated.force()

    def declare(self, kind: str, length: int, more_body: bool) -> bool:
        """Prepare for a file of `length` bytes."""
        if self.state is not STARTED:
            raise self.out_of_order(kind)
        wanted = self.stream.begin_file(length, more_body)
        self.state = SENDING
        return wanted

    def write(self, data: bytes) -> None:
        """Write some of them."""
        if self.entry is not None:
            self.entry.sent += len(data)
        if self.course is not None and self.course.is_by_route:
            self.course.count_sent(len(data))
        self.stream.file(data)

    def sent(self, size: int) -> None:
        """Count `size` bytes as sent by the file route."""
        if self.entry is not None:
            self.entry.sent += size
        if self.course is not None and self.course.is_by_route:
            self.course.count_sent(size)
        self.stream.sent_past(size)

    def complete(self, begun: bool, more_body: bool) -> None:
        """They were all written: go on with the response."""
        self.state = STARTED
        if begun:
            self.stream.end_file()
        self.stream.body(b"", more_body, self.trailers is not None)
        if not more_body:
            self._end_body()

    def abandon(self) -> None:
        """Break the response off in the middle of a file."""
        self.stream.abort()

    async def receive(self) -> ASGIReceiveEvent:
        """Return the next piece of the request body, or `http.disconnect`.

        Waits until there is a message. A body that is complete is delivered even if the client has gone
        meanwhile; one that is not ends in `http.disconnect`, never in a false end of body.
        """
        if self.expect_continue:
            self.expect_continue = False
            if self.state is IDLE and self.peer is PRESENT:
                self.stream.interim(100)
        # As `_is_at_end` and `_has_message`, without the calls.
        if self.state is COMPLETE or (self.peer is not PRESENT and (self.body_given or self.more_body)):
            return {"type": "http.disconnect"}
        if self._events or self.body_given or (self.more_body and not self.body):
            # New callers queue behind waiting ones.
            return await self._wait()
        if self.gated is not None:
            self.gated.force(is_seen=True)
        return self._take()

    def _is_at_end(self) -> bool:
        """Tell whether all that is left to be received is that the client is gone."""
        return self.state is COMPLETE or (self.peer is not PRESENT and (self.body_given or self.more_body))

    def _has_message(self) -> bool:
        """Tell whether there is something to be received."""
        return self._is_at_end() or not (self.body_given or (self.more_body and not self.body))

    def _take(self) -> ASGIReceiveEvent:
        """Return the part of the request body that is here."""
        body = self.body
        self.body = b""
        self.body_given = not self.more_body
        if self.more_body:
            self.stream.want_body()
        return {"type": "http.request", "body": bytes(body), "more_body": self.more_body}

    async def _wait(self) -> ASGIReceiveEvent:
        """Return the next message once it is there, after earlier callers have got theirs.

        On an event of the pool; each of several waiting callers has its own.
        """
        if not isinstance(self._events, OrderedDict):
            # Not a dict: to find the first key of one from which many were taken is to pass all their places.
            self._events = OrderedDict()
        pool = self.stream.events
        event = pool.acquire()
        self._events[event] = None
        gated = self.gated
        try:
            while True:
                self.stream.want_body()
                if gated is not None and not self.body_given and not self._has_message():
                    gated.park(for_body=not gated.senders)
                await event.wait()
                if gated is not None and self.peer is not UNREACHABLE and self._has_message():
                    await _resumed(gated)
                if self._is_at_end():
                    return {"type": "http.disconnect"}
                if self._has_message():
                    return self._take()
                event.clear()
        finally:
            del self._events[event]
            pool.release(event)
            if gated is not None and not self.body_given:
                gated.force()
            self._wake()


def made_by_us(cls: type[RequestResponseCycle]) -> type[RequestResponseCycle]:
    """Return a class of an implementation with the constructor of the class above, which takes less time."""
    names = {"__slots__": (), "__init__": RequestResponseCycle.__init__, "__module__": cls.__module__}
    return type(cls.__name__, (cls,), names)


def made_as_upstream(
    cls: type[RequestResponseCycle], stream: Stream, scope: HTTPScope, expect_continue: bool, arguments: dict[str, Any]
) -> RequestResponseCycle:
    """Return a cycle whose constructor a program has replaced; `arguments` are upstream's, but for `scope`."""
    cycle = cls.__new__(cls)
    cycle.stream = stream
    cycle.expect_continue = expect_continue
    cls.__init__(cycle, scope=scope, **arguments)
    return cycle
