"""The context in which spans of OpenTelemetry's SDK in the application become children of the server's.

Needs the package `opentelemetry-api` in the process, and nothing of its SDK. A request gets as little
as possible here: most applications look at it once, many never.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any, NamedTuple


class Current(NamedTuple):
    """What makes a span the current one of a context.

    Attributes:
        attach: sets the context of OpenTelemetry in the current one of Python.
        context_class: of that, made of a dict.
        key: of the current span in it.
        span_class: made of a pair, a `traceparent` and a `tracestate` or None.
    """

    attach: Callable[[Any], Any]
    context_class: Callable[[dict[str, Any]], Any]
    key: str
    span_class: Callable[[tuple[str, str | None]], Any]

    def enter(self, context: contextvars.Context, traceparent: str, tracestate: str | None) -> None:
        """Make the span with these fields the current one of a request's context."""
        context.run(self.attach, self.context_class({self.key: self.span_class((traceparent, tracestate))}))


def current_span() -> Current | None:
    """Return what prepares the contexts of requests; `None` without the package."""
    try:
        from opentelemetry import context as contexts
        from opentelemetry import trace
        from opentelemetry.context import _RUNTIME_CONTEXT, Context
        from opentelemetry.trace.propagation import _SPAN_KEY
    except ImportError:
        return None

    class RequestSpan(tuple, trace.NonRecordingSpan):  # type: ignore[type-arg]
        """The server's span, which the server itself records; its ids are read when they are asked for.

        A tuple, because the interpreter makes one without running code.
        """

        __init__ = object.__init__
        __hash__ = object.__hash__
        __eq__ = object.__eq__

        def get_span_context(self) -> trace.SpanContext:
            if "_context" not in vars(self):
                self._context = _span_context(trace, *self)
            return self._context

        def __repr__(self) -> str:
            return f"{type(self).__name__}({self.get_span_context()!r})"

    variable = getattr(_RUNTIME_CONTEXT, "_current_context", None)
    attach = variable.set if isinstance(variable, contextvars.ContextVar) else contexts.attach
    return Current(attach, Context, _SPAN_KEY, RequestSpan)


def _span_context(trace: Any, traceparent: str, tracestate: str | None) -> Any:
    return trace.SpanContext(
        trace_id=int(traceparent[3:35], 16),
        span_id=int(traceparent[36:52], 16),
        is_remote=False,
        trace_flags=trace.TraceFlags(int(traceparent[53:55], 16)),
        trace_state=trace.TraceState.from_header([tracestate]) if tracestate else None,
    )
