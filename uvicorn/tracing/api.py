"""The context in which spans of OpenTelemetry's SDK in the application become children of the server's.

Needs the package `opentelemetry-api` in the process, and nothing of its SDK. What is made here for a request is as
little as possible: most applications look at it once, many never.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

Enter = Callable[[contextvars.Context, str, "str | None"], None]
"""Makes the span of a `traceparent` and a `tracestate` the current one of a context."""


def enter_function() -> Enter | None:
    """Return the function that prepares a request's context; `None` without the package."""
    try:
        from opentelemetry import context as contexts
        from opentelemetry import trace
        from opentelemetry.context import _RUNTIME_CONTEXT, Context
        from opentelemetry.trace.propagation import _SPAN_KEY
    except ImportError:
        return None

    class RequestSpan(trace.NonRecordingSpan):
        """The server's span, which the server itself records; its ids are read when they are asked for."""

        def __init__(self, traceparent: str, tracestate: str | None) -> None:
            self._texts: tuple[str, str | None] | None = (traceparent, tracestate)

        def get_span_context(self) -> trace.SpanContext:
            if self._texts is not None:
                (traceparent, tracestate), self._texts = self._texts, None
                super().__init__(_span_context(trace, traceparent, tracestate))
            return super().get_span_context()

        def __repr__(self) -> str:
            return f"{type(self).__name__}({self.get_span_context()!r})"

    variable = getattr(_RUNTIME_CONTEXT, "_current_context", None)
    attach: Callable[[Context], Any] = variable.set if isinstance(variable, contextvars.ContextVar) else contexts.attach

    def enter(context: contextvars.Context, traceparent: str, tracestate: str | None) -> None:
        context.run(attach, Context({_SPAN_KEY: RequestSpan(traceparent, tracestate)}))

    return enter


def _span_context(trace: Any, traceparent: str, tracestate: str | None) -> Any:
    return trace.SpanContext(
        trace_id=int(traceparent[3:35], 16),
        span_id=int(traceparent[36:52], 16),
        is_remote=False,
        trace_flags=trace.TraceFlags(int(traceparent[53:55], 16)),
        trace_state=trace.TraceState.from_header([tracestate]) if tracestate else None,
    )
