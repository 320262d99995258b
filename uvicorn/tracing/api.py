"""The context in which spans of OpenTelemetry's SDK in the application become children of the server's.

Needs the package `opentelemetry-api` in the process, and nothing of its SDK. A request gets as little
as possible here: most applications look at it once, many never.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Self

try:
    from uvicorn._native import SpanFields
except ImportError:

    class PythonSpanFields:
        """The fields of a span, of which a subclass makes its context when it is asked for."""

        _span_context: Callable[[str, str | None], Any]
        _fields: tuple[str, str | None]
        _made: Any = None

        def __new__(cls, traceparent: str, tracestate: str | None) -> Self:
            """Make the span of a request with these fields of its scope."""
            span = super().__new__(cls)
            span._fields = traceparent, tracestate
            return span

        @property
        def _context(self) -> Any:
            if self._made is None:
                self._made = self._span_context(*self._fields)
            return self._made

    SpanFields = PythonSpanFields  # type: ignore[assignment, misc]


class Current(NamedTuple):
    """What makes a span the current one of a context.

    Attributes:
        attach: sets the context of OpenTelemetry in the current one of Python.
        variable: the `ContextVar` whose `set` is `attach`; None if that does anything else.
        context_class: of that, made of a dict.
        key: of the current span in it.
        span_class: made of a `traceparent`, and a `tracestate` or None.
    """

    attach: Callable[[Any], Any]
    variable: contextvars.ContextVar[Any] | None
    context_class: Callable[[dict[str, Any]], Any]
    key: str
    span_class: Callable[[str, str | None], Any]

    def enter(self, context: contextvars.Context, traceparent: str, tracestate: str | None) -> None:
        """Make the span with these fields the current one of a request's context."""
        context.run(self.attach, self.context_class({self.key: self.span_class(traceparent, tracestate)}))


def current_span() -> Current | None:
    """Return what prepares the contexts of requests; `None` without the package."""
    try:
        from opentelemetry import context as contexts
        from opentelemetry import trace
        from opentelemetry.context import _RUNTIME_CONTEXT, Context
        from opentelemetry.trace.propagation import _SPAN_KEY
    except ImportError:
        return None

    class RequestSpan(SpanFields, trace.NonRecordingSpan):  # type: ignore[override]
        """The server's span, which the server itself records; its ids are read when they are asked for."""

        __init__ = object.__init__
        _span_context = staticmethod(partial(_span_context, trace))

    variable = getattr(_RUNTIME_CONTEXT, "_current_context", None)
    if not isinstance(variable, contextvars.ContextVar):
        return Current(contexts.attach, None, Context, _SPAN_KEY, RequestSpan)
    return Current(variable.set, variable, Context, _SPAN_KEY, RequestSpan)


def _span_context(trace: Any, traceparent: str, tracestate: str | None) -> Any:
    return trace.SpanContext(
        trace_id=int(traceparent[3:35], 16),
        span_id=int(traceparent[36:52], 16),
        is_remote=False,
        trace_flags=trace.TraceFlags(int(traceparent[53:55], 16)),
        trace_state=trace.TraceState.from_header([tracestate]) if tracestate else None,
    )
