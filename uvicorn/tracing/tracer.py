"""Chooses the requests that are sampled, and gives each request its place in a trace.

The native core does the same for HTTP (`asgi/tracing.rs`), with the buffer and the functions of this object.
"""

from __future__ import annotations

import contextvars
import os
from typing import Any

from uvicorn.metrics.page import Course, Page
from uvicorn.metrics.routes import Routes
from uvicorn.rules.trace_context import SAMPLED, join_states, parse
from uvicorn.tracing.api import current_span
from uvicorn.tracing.exporter import BATCH, MAX_PENDING, Exporter
from uvicorn.tracing.options import TracingOptions
from uvicorn.tracing.span import ServerSpan

_DIGITS = 48
"""Of a trace id and a span id."""
_IDS = 256
"""Pairs of ids for which random bytes are fetched at once."""
_TAILS = ("-00", "-01", "-02", "-03")
"""The last part of a `traceparent`, by the flags."""


class Tracer:
    """The tracer of one event loop.

    Args:
        options: where spans go, and of which requests.
        page: where the server counts, if it does.
        app: the application, whose mounts `http.route` includes.

    Attributes:
        spans: encoded ones that wait for the exporter.
        page: that of the server, or one of its own; the native core notes there how long a connection has waited.
        bound: a request without a parent is sampled if the low 64 bits of its trace id are below.
        route_of: returns the route of a request by its scope, empty if the application has left none.
    """

    def __init__(self, options: TracingOptions, page: Page | None, app: Any = None) -> None:
        self.page = Page.make() if page is None else page
        self.spans: list[bytes] = []
        self.has_query = options.has_query
        self.follows_parent = options.follows_parent
        self.bound = round(options.ratio * 2**64)  # as the SDKs have it, so that they agree
        self.most_pending = MAX_PENDING
        self.batch = BATCH
        self.current = current_span()
        self.exporter = Exporter(options, self.spans, self.page)
        self.route_of = Routes(app).of
        self._digits = ""
        self._used = 0
        self._own_flags = SAMPLED if self.bound >= 2**64 else -1 if self.bound else 0  # -1: the trace id decides

    def start(self) -> None:
        """Start the thread that sends."""
        self.exporter.start()

    def close(self) -> None:
        """Send the remaining spans, within a short time."""
        self.exporter.close()

    # Of each request.

    def begin(self, scope: Any, course: Course | ServerSpan | None = None) -> Course | ServerSpan | None:
        """Begin the span of a request or WebSocket, and put its `traceparent` into the scope.

        Returns what takes its course: `course`, if it is not sampled.
        """
        headers = scope["headers"]
        parents = [value for name, value in headers if name == b"traceparent"]
        parent = parse(parents[0].decode("latin-1")) if len(parents) == 1 else None
        used = self._used
        if used >= len(self._digits):
            self._digits = os.urandom(_IDS * _DIGITS // 2).hex()
            used = 0
        self._used = used + _DIGITS
        digits = self._digits
        span = digits[used : used + 16]
        state = ""
        if parent is None:
            trace, flags = digits[used + 16 : used + 48], self._own_flags
            if flags < 0:
                flags = self._flags(trace)
        else:
            trace = parent.trace
            flags = parent.flags if self.follows_parent else (parent.flags & ~SAMPLED) | self._flags(trace)
            if state := join_states([value for name, value in headers if name == b"tracestate"]):
                scope["tracestate"] = state
        scope["traceparent"] = f"00-{trace}-{span}{_TAILS[flags]}"
        if not flags & SAMPLED:
            return course
        host = user_agent = b""
        for name, value in headers:
            if name == b"host":
                host = value
            elif name == b"user-agent":
                user_agent = value
        ids = (trace, span, "" if parent is None else parent.span)
        return ServerSpan(self, scope, ids, flags, state, host, user_agent, course)

    def begin_session(self, scope: Any) -> ServerSpan | None:
        """Begin the span of a WebSocket, for which the metrics have no course; `None` if it is not sampled."""
        span = self.begin(scope)
        return span if isinstance(span, ServerSpan) else None

    def enter(self, context: contextvars.Context, scope: Any) -> None:
        """Make the server's span the current one in the context of a request."""
        if self.current is not None and (traceparent := scope.get("traceparent")) is not None:
            self.current.enter(context, traceparent, scope.get("tracestate"))

    def _flags(self, trace: str) -> int:
        return SAMPLED if int(trace[16:], 16) < self.bound else 0

    # Of each span that has ended.

    def has_room(self) -> bool:
        """Tell whether the buffer takes another span; count it as dropped if not."""
        if len(self.spans) < self.most_pending:
            return True
        self.overflow()
        return False

    def overflow(self) -> None:
        """Drop a span, because the collector is slower than the server."""
        self.exporter.overflowed += 1

    def take(self, span: bytes) -> None:
        """Buffer a span, and wake the exporter if a batch is complete."""
        self.spans.append(span)
        if len(self.spans) == self.batch:
            self.wake()

    def wake(self) -> None:
        """Wake the exporter."""
        self.exporter.wake()
