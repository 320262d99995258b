"""State that the protocols of one event loop share: connections, running tasks and default response headers.

One `ServerState` belongs to one server on one event loop. It owns no sockets and takes no decisions: protocols add
themselves and count, `server.py` and `drain.py` read and wait. Nothing here polls; a waiter is woken by the change.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterable
from email.utils import formatdate
from time import time
from typing import TYPE_CHECKING, Any

from uvicorn._types import ON_DISCONNECT, Connection, ProtocolConfig
from uvicorn.access.request_id import RequestIds
from uvicorn.metrics.page import Page
from uvicorn.rules.grace import clock_of
from uvicorn.rules.shortcuts import Shortcut, chosen
from uvicorn.serving.event_pool import DEFAULT_CAPACITY, EventPool, is_poisoned
from uvicorn.serving.write_deadlines import WriteDeadlines

if TYPE_CHECKING:
    from uvicorn.overload.gate import Gate
    from uvicorn.serving.cancellation import CancelOnDisconnect
    from uvicorn.tracing.tracer import Tracer

Header = tuple[bytes, bytes]


class ConnectionSet(set[Connection]):
    """The live connections: a set that can be waited on until it is empty.

    Attributes:
        on_first: called when there is a connection, and was none.
    """

    __slots__ = ("_waiters", "on_first")

    def __init__(self, connections: Iterable[Connection] = ()) -> None:
        super().__init__(connections)
        self.on_first: Callable[[], None] | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def add(self, connection: Connection) -> None:
        """Add `connection`; say so if it is the first."""
        is_first = not self
        super().add(connection)
        if is_first and self.on_first is not None:
            self.on_first()

    def discard(self, connection: object) -> None:
        """Remove `connection` if it is there; wake callers that wait for the last to close."""
        super().discard(connection)
        self._wake_if_empty()

    def remove(self, connection: Connection) -> None:
        """Remove `connection`, which must be there (`KeyError`); wake callers that wait for the last to close."""
        super().remove(connection)
        self._wake_if_empty()

    def clear(self) -> None:
        """Remove all connections and wake the callers that wait for that."""
        super().clear()
        self._wake_if_empty()

    def _wake_if_empty(self) -> None:
        if self._waiters and not self:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait_empty(self) -> None:
        """Return once no connection is left; at once if there is none."""
        while self:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter


class ForcedEnd(KeyboardInterrupt):
    """A second SIGINT, while a call blocks the event loop."""


class ServerState:
    """Shared between the server and the protocol objects of one event loop.

    `total_requests` counts completed HTTP responses, `lingering` are connections that only wait for their client to
    end, too, `tasks` holds the running application tasks, `context` is copied for each request, `metrics` is the page
    of counters, if metrics are enabled, `tracer` that of `otel_endpoint`. Both headers and date are given once through
    `configure`.
    """

    __slots__ = (
        "_total_requests",
        "connections",
        "lingering",
        "tasks",
        "context",
        "event_pool",
        "metrics",
        "tracer",
        "protocol_settings",
        "gate",
        "_write_deadlines",
        "_request_ids",
        "_cancellation",
        "websocket_settings",
        "overridden",
        "_configured",
        "_date_header",
        "_second",
        "_headers",
        "_head",
        "_request_limit",
        "_on_request_limit",
        "__dict__",  # for the attributes of programs
    )

    def __init__(self) -> None:
        self._total_requests = 0
        self.connections: ConnectionSet = ConnectionSet()
        self.lingering: set[object] = set()  # one for each of them that has sent its last response
        self.tasks: set[asyncio.Task[None]] = set()
        self.context = contextvars.copy_context()
        self.event_pool = EventPool(0 if is_poisoned() or Shortcut.REUSE not in chosen() else DEFAULT_CAPACITY)
        self.metrics: Page | None = None
        self.tracer: Tracer | None = None
        self.protocol_settings: Any = None  # derived from a Config by the first HTTP protocol
        self.gate: Gate | None = None  # admits requests, if they are limited; see `gate_for`
        self._write_deadlines: WriteDeadlines | None = None
        self._request_ids: RequestIds | None = None
        self._cancellation: CancelOnDisconnect | None = None
        self.websocket_settings: Any = None  # the same of native WebSockets, if the HTTP protocols are others
        self.overridden: dict[type, bool] = {}  # WebSocket classes, and whether programs override what takes frames
        self._configured: list[Header] = []
        self._date_header = False
        self._second = -1
        self._headers: list[Header] = []
        self._head = b""
        self._request_limit: int | None = None
        self._on_request_limit: Callable[[], None] | None = None

    def capture_context(self) -> None:
        """Make the current context the one that requests start from.

        The server calls this when it starts to serve, so that a variable set by one request (or leaked into a
        transport's callbacks, see python/cpython#140947) is never seen by the next.
        """
        self.context = contextvars.copy_context()

    def configure(self, *, headers: list[Header], date_header: bool) -> None:
        """Set the default header fields of responses: `date` if wanted, then `headers` (name, value), in order."""
        self._configured = list(headers)
        self._date_header = date_header
        self._second = -1
        self._rebuild(int(time()))

    def _rebuild(self, second: int) -> None:
        headers = list(self._configured)
        if self._date_header:
            headers.insert(0, (b"date", formatdate(second, usegmt=True).encode("ascii")))
        self._second = second
        self._headers = headers
        self._head = b"".join(b"%b: %b\r\n" % header for header in headers)

    @property
    def default_headers(self) -> list[Header]:
        """Return the default headers of responses, with the date; refreshed by the first call in a new second."""
        if self._date_header:
            second = int(time())
            if second != self._second:
                self._rebuild(second)
        return self._headers

    @default_headers.setter
    def default_headers(self, headers: list[Header]) -> None:
        self.configure(headers=headers, date_header=False)

    @property
    def default_head(self) -> bytes:
        """`default_headers` as the lines that go on the wire, each ended by CR LF."""
        if self._date_header:
            second = int(time())
            if second != self._second:
                self._rebuild(second)
        return self._head

    @property
    def total_requests(self) -> int:
        """Completed HTTP responses; the native core counts its own."""
        return self._total_requests + getattr(self.protocol_settings, "total_requests", 0)

    @total_requests.setter
    def total_requests(self, total: int) -> None:
        self._total_requests = total

    @property
    def request_limit(self) -> int | None:
        """The number of responses after which to notify the server, `None` without a limit."""
        return self._request_limit

    def limit_requests(self, limit: int, callback: Callable[[], None]) -> None:
        """Call `callback` once, when `total_requests` reaches `limit`."""
        self._request_limit = limit
        self._on_request_limit = callback

    def write_deadlines(self, loop: asyncio.AbstractEventLoop, seconds: float) -> WriteDeadlines:
        """Return the watch over slow readers other than HTTP's, with `seconds` to read; made on demand."""
        if self._write_deadlines is None:
            self._write_deadlines = WriteDeadlines(loop, self.context, seconds, clock_of(loop))
        return self._write_deadlines

    def gate_for(self, config: ProtocolConfig, loop: asyncio.AbstractEventLoop) -> Gate | None:
        """Return the gate for requests, if `limit_active_requests` is set; created when the first protocol asks."""
        if self.gate is None and config.limit_active_requests is not None:
            # Imported by those that have a limit.
            from uvicorn.overload.gate import Gate

            self.gate = Gate(config, loop, self.context, self.metrics)
        return self.gate

    def request_ids(self, config: ProtocolConfig) -> RequestIds | None:
        """Return the source of request ids, `None` if `config` does not ask for any; created when first needed."""
        if self._request_ids is None:
            self._request_ids = RequestIds.from_config(config)
        return self._request_ids

    def cancellation(self, config: ProtocolConfig, loop: asyncio.AbstractEventLoop) -> CancelOnDisconnect | None:
        """Return what cancels calls whose clients leave, `None` if `config` never wants that; made on demand."""
        if self._cancellation is None and (config.on_disconnect == "cancel" or ON_DISCONNECT in config.asgi_extensions):
            # Imported by those that want it.
            from uvicorn.serving.cancellation import CancelOnDisconnect

            self._cancellation = CancelOnDisconnect(config, loop, self.metrics)
        return self._cancellation

    def request_complete(self) -> None:
        """Count one completed response."""
        self._total_requests += 1
        if self._total_requests == self._request_limit:
            self.request_limit_reached()

    def request_limit_reached(self) -> None:
        """Call `on_limit`: the last response allowed is complete."""
        if self._on_request_limit is not None:
            self._on_request_limit()

    async def wait_no_connections(self) -> None:
        """Return once no connection is left."""
        await self.connections.wait_empty()

    def is_full(self, limit: int) -> bool:
        """Whether `limit` connections may still bring requests, or as many tasks run.

        Those that linger do not count, so that the refusals of a busy second do not refuse those of the next.
        """
        return len(self.connections) - len(self.lingering) >= limit or len(self.tasks) >= limit

    def close(self) -> None:
        """Write pending access lines, and release objects that the protocols derived from the settings.

        Called in the thread of the event loop when the server has ended. The native core's part refers back to this
        object: without this neither would ever be freed.
        """
        if self._write_deadlines is not None:
            self._write_deadlines.close()
            self._write_deadlines = None
        if self.gate is not None:
            self.gate.close()
            self.gate = None
        if self._cancellation is not None:
            self._cancellation.close()
            self._cancellation = None
        self._total_requests = self.total_requests
        settings, self.protocol_settings = (self.protocol_settings, self.websocket_settings), None
        self.websocket_settings = None
        for shared in settings:
            if shared is not None:
                shared.close()
