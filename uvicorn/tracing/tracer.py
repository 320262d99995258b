"""Chooses the requests that are sampled, and gives each request its place in a trace.

The native core does the same for HTTP (`asgi/tracing.rs`), with the buffer and the functions of this object.
"""

from __future__ import annotations

import contextvars
import os
from typing import Any

from uvicorn.metrics.page import Course, Page
from uvicorn.metrics.routes import Routes
from uvicorn.rules.trace_context import SAMPLED, TraceParent, join_states, parse
from uvicorn.tracing.api import enter_function
from uvicorn.tracing.exporter import BATCH, MAX_PENDING, Exporter
from uvicorn.tracing.options import TracingOptions
from uvicorn.tracing.span import ServerSpan

_DIGITS = 48
"""Of a trace id and a span id."""
_IDS = 256
"""Pairs of ids for which random bytes are fetched at once."""


class Tracer:
    """The tracer of one event loop.

    Args:
        options: where spans go, and of which requests.
        page: where the server counts, if it does.

    Attributes:
        spans: encoded ones that wait for the exporter.
        page: that of the server, or one of its own; the native core notes there how long a connection has waited.
        bound: a request without a parent is sampled if the low 64 bits of its trace id are below.
    """

    def __init__(self, options: TracingOptions, page: Page | None) -> None:
        self.page = Page.make() if page is None else page
        self.spans: list[bytes] = []
        self.has_query = options.has_query
        self.follows_parent = options.follows_parent
        self.bound = round(options.ratio * 2**64)  # as the SDKs have it, so that they agree
        self.most_pending = MAX_PENDING
        self.batch = BATCH
        self.set_current = enter_function()
        self.exporter = Exporter(options, self.spans, self.page)
        self._routes = Routes()
        self._digits = ""
        self._used = 0

    def start(self) -> None:
        """Start the thread that sends."""
        self.exporter.start()

    def close(self) -> None:
        """Send what is left, within a short time."""
        self.exporter.close()

    # Of each request.

    def begin(self, scope: Any, course: Course | None = None) -> ServerSpan | Course | None:
        """Begin the span of a request or WebSocket, and put its `traceparent` into the scope.

        Returns what takes its course: `course`, if it is not sampled.
        """
        parents: list[bytes] = []
        states: list[bytes] = []
        host = user_agent = b""
        for name, value in scope["headers"]:
            if name == b"host":
                host = value
            elif name == b"user-agent":
                user_agent = value
            elif name == b"traceparent":
                parents.append(value)
            elif name == b"tracestate":
                states.append(value)
        parent = parse(parents[0].decode("latin-1")) if len(parents) == 1 else None
        digits = self._make_ids()
        trace, span = (digits[:32] if parent is None else parent.trace), digits[32:]
        flags = self._flags(trace, parent)
        scope["traceparent"] = f"00-{trace}-{span}-{flags:02x}"
        state = join_states(states) if states and parent is not None else ""
        if state:
            scope["tracestate"] = state
        if not flags & SAMPLED:
            return course
        ids = (trace, span, "" if parent is None else parent.span)
        return ServerSpan(self, scope, ids, flags, state, host, user_agent, course)

    def begin_session(self, scope: Any) -> ServerSpan | None:
        """Begin the span of a WebSocket, for which the metrics have no course; `None` if it is not sampled."""
        span = self.begin(scope)
        return span if isinstance(span, ServerSpan) else None

    def enter(self, context: contextvars.Context, scope: Any) -> None:
        """Make the server's span the current one in the context of a request."""
        if self.set_current is not None and (traceparent := scope.get("traceparent")) is not None:
            self.set_current(context, traceparent, scope.get("tracestate"))

    def _flags(self, trace: str, parent: TraceParent | None) -> int:
        if parent is not None and self.follows_parent:
            return parent.flags
        is_sampled = self.bound >= 2**64 or (self.bound > 0 and int(trace[16:], 16) < self.bound)
        return (0 if parent is None else parent.flags & ~SAMPLED) | (SAMPLED if is_sampled else 0)

    def _make_ids(self) -> str:
        used = self._used
        if used >= len(self._digits):
            self._digits = os.urandom(_IDS * _DIGITS // 2).hex()
            used = 0
        self._used = used + _DIGITS
        return self._digits[used : used + _DIGITS]

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

    def route_of(self, scope: Any) -> str:
        """Return the route of a request, empty if its application has left none."""
        try:
            return self._routes.of(scope)
        except Exception:  # objects of the application's
            return ""
