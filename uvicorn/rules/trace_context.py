"""W3C Trace Context: the fields by which a request names the trace that it belongs to."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_TRACESTATE = 512
"""Characters of a `tracestate` that is passed on (section 3.3.1.5); a longer one is dropped."""

SAMPLED = 1
"""The flag of a trace that is recorded (section 3.2.2.5.1)."""
RANDOM = 2
"""The flag of a trace id whose last 7 bytes are random (Level 2)."""

_traceparent = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?!0{32})(?P<trace>[0-9a-f]{32})-(?!0{16})(?P<span>[0-9a-f]{16})"
    r"-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?",
    re.DOTALL,
).fullmatch

_tracestate = re.compile(rb"[\x20-\x7e\t]*").fullmatch


class TraceParent(NamedTuple):
    """The span that has caused a request.

    Attributes:
        trace: id of the trace, 32 hexadecimal digits.
        span: id of the span, 16 hexadecimal digits.
        flags: `SAMPLED` and `RANDOM`; others are unknown, and not passed on.
    """

    trace: str
    span: str
    flags: int


def parse(traceparent: str) -> TraceParent | None:
    """Return the parent in a `traceparent`, `None` if that is invalid (section 3.2).

    Of a later version than 00, the known part is read, as the standard demands.
    """
    match = _traceparent(traceparent)
    if match is None or (match["version"] == "00" and match["more"] is not None):
        return None
    return TraceParent(match["trace"], match["span"], int(match["flags"], 16) & (SAMPLED | RANDOM))


def join_states(values: list[bytes]) -> str:
    """Return the `tracestate` to pass on, of all fields of this name; empty if it is too long or not ASCII."""
    state = b",".join(values)
    return state.decode("ascii") if len(state) <= MAX_TRACESTATE and _tracestate(state) else ""
