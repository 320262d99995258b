"""The span of one request or WebSocket that is sampled."""

from __future__ import annotations

from time import monotonic_ns, time_ns
from typing import Any, Protocol

from uvicorn.metrics.page import Course
from uvicorn.tracing.otlp import OTHER, authority

try:
    from uvicorn._native import encode_span as encode
except ImportError:
    from uvicorn.tracing.otlp import encode


class Sink(Protocol):
    """The tracer, as its spans know it.

    Attributes:
        has_query: spans have the query.
    """

    has_query: bool

    def has_room(self) -> bool:
        """Tell whether it takes another span."""

    def take(self, span: bytes) -> None:
        """Take an encoded span."""

    def route_of(self, scope: Any) -> str:
        """Return the route of a request, empty if its application has left none."""


class ServerSpan:
    """A request from its head to its end; in the place of the metrics' `Course`, to which it passes all on.

    Args:
        tracer: takes it when it has ended.
        scope: of the request. It is read at the end, when middleware has put the client of a proxy there.
        ids: hexadecimal ids of its trace, itself and its parent; the last is empty without one.
        flags: of the trace.
        state: `tracestate`, or empty.
        host, user_agent: fields of the request, empty without them.
        course: of the metrics, if there are any.

    Attributes:
        is_by_route: whether `count_received` and `count_sent` have an effect.
    """

    __slots__ = (
        "_tracer",
        "_scope",
        "_ids",
        "_flags",
        "_state",
        "_host",
        "_user_agent",
        "_course",
        "is_by_route",
        "_began",
        "_since",
        "_called",
        "_first_byte",
        "_status",
        "_error",
    )

    def __init__(
        self,
        tracer: Sink,
        scope: Any,
        ids: tuple[str, str, str],
        flags: int,
        state: str,
        host: bytes,
        user_agent: bytes,
        course: Course | ServerSpan | None,
    ) -> None:
        self._tracer: Sink | None = tracer
        self._scope = scope
        self._ids = ids
        self._flags = flags
        self._state = state
        self._host = host
        self._user_agent = user_agent
        self._course = course
        self.is_by_route: bool = course is not None and course.is_by_route
        self._began = time_ns()
        self._since = monotonic_ns() - self._began  # a clock that is set back does not matter
        self._called = 0
        self._first_byte = 0
        self._status = 0
        self._error = b""

    def run(self) -> None:
        """Its application is called now."""
        if not self._called:
            self._called = monotonic_ns() - self._since
        if self._course is not None:
            self._course.run()

    def respond(self, status: int) -> None:
        """Its response has begun."""
        self._status = status
        if self._course is not None:
            self._course.respond(status)

    def count_received(self, size: int) -> None:
        """Count bytes of the request body that have arrived."""
        if self._course is not None:
            self._course.count_received(size)

    def count_sent(self, size: int) -> None:
        """Count bytes of the response body that were written."""
        if self._course is not None:
            self._course.count_sent(size)

    def send(self) -> None:
        """The first bytes of the response leave."""
        if not self._first_byte:
            self._first_byte = monotonic_ns() - self._since

    def fail(self, exc: BaseException | None = None) -> None:
        """The application has raised `exc`, or returned without a whole response."""
        self._error = OTHER.encode() if exc is None else name_of(type(exc)).encode("utf-8", "replace")

    def end(self, is_complete: bool = False) -> None:
        """The response has ended, complete or not; only the first call counts."""
        tracer, self._tracer = self._tracer, None
        if tracer is not None and tracer.has_room():
            tracer.take(self._encode(tracer, monotonic_ns() - self._since))
        if self._course is not None:
            self._course.end(is_complete)
            self._course = None

    def _encode(self, tracer: Sink, end: int) -> bytes:
        scope, status = self._scope, self._status
        host, port = authority(self._host) if self._host else _address(scope.get("server"))
        version = _bytes(scope.get("http_version"))
        method = scope.get("method") or ("CONNECT" if version == b"2" else "GET")  # of a WebSocket
        route = tracer.route_of(scope)
        client, client_port = _address(scope.get("client"))
        trace, span, parent = self._ids
        return encode(
            trace,
            span,
            parent,
            self._state,
            self._flags,
            (self._began, self._called, self._first_byte, end),
            (str(method), _bytes(scope.get("scheme")), _bytes(route), status, version, host, port),
            _bytes(scope.get("raw_path")),
            _bytes(scope.get("query_string")) if tracer.has_query else b"",
            (client, client_port or 0),
            self._user_agent,
            self._error or (b"%d" % status if status >= 500 else b""),
        )


def name_of(cls: type) -> str:
    """Return the name of an exception's class, with its module unless that is `builtins`."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _bytes(value: object) -> bytes:
    """Return a value of a scope, in which an application may have put anything."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    return value if isinstance(value, bytes) else b""


def _address(value: object) -> tuple[bytes, int | None]:
    if isinstance(value, (tuple, list)) and len(value) == 2:
        return _bytes(value[0]), value[1] if isinstance(value[1], int) and 0 <= value[1] < 65536 else None
    return b"", None
