"""The orders for measurements at the debug address: their paths, parameters and answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import NamedTuple

MOST_SECONDS = 300
"""Seconds of one measurement."""

MOST_RATE = 1000
"""Samples a second."""

MOST_FRAMES = 64
"""Frames of the traceback of an allocation."""

MOST_EVERY = 16_384
"""KiB from one sampled allocation to the next."""

PROFILE, MEMORY = "/profile", "/memory"
PATHS = (PROFILE, MEMORY)

ALL, ANY = 0, -1
"""Instead of a process id: all workers, and one of them."""

KINDS = {
    "html": "text/html; charset=utf-8",
    "folded": "text/plain; charset=utf-8",
    "text": "text/plain; charset=utf-8",
    "speedscope": "application/json",
    "json": "application/json",
}
"""Content types by format."""

_FORMATS = {PROFILE: ("html", "folded", "speedscope"), MEMORY: ("text", "json")}
_PARAMETERS = {
    PROFILE: ("seconds", "rate", "format", "by", "route", "idle", "worker", "token"),
    MEMORY: ("seconds", "every", "frames", "format", "by", "route", "worker", "token"),
}


class Order(NamedTuple):
    """The parameters of a measurement.

    Attributes:
        path: the kind of it.
        seconds: for how long.
        rate: samples a second of a profile.
        frames: of each traceback of memory.
        format: of the answer.
        by_route: whether results are divided by route.
        idle: whether a profile has threads that wait, each with the time that passes.
        worker: the process id of the only one that is measured; `ALL` or `ANY`.
        every: KiB from one sampled allocation to the next; 0 if all are traced.
    """

    path: str
    seconds: float
    rate: int = 100
    frames: int = 8
    format: str = ""
    by_route: bool = False
    idle: bool = False
    worker: int = 0
    every: int = 0


class Answer(NamedTuple):
    """A response: status and phrase, content type, body."""

    status: str
    kind: str
    body: bytes

    @classmethod
    def refusal(cls, status: str, text: str) -> Answer:
        """Return one with a line of text."""
        return cls(status, KINDS["text"], f"{text}\n".encode())


def order_of(path: str, query: Mapping[str, Sequence[str]]) -> Order:
    """Return the order that a query contains.

    Raises:
        ValueError: a parameter is unknown or its value is not accepted; the text is for the client.
    """
    accepted = _PARAMETERS[path]
    for name, values in query.items():
        if name not in accepted:
            raise ValueError(f"Unknown parameter {name[:40]!a}; accepted are {', '.join(accepted)}.")
        if len(values) > 1:
            raise ValueError(f"{name} was given {len(values)} times; give it once.")
    given = {name: values[0] for name, values in query.items()}
    by = given.get("by", "")
    if by not in ("", "route"):
        raise ValueError(f"by must be route, not {by[:40]!a}.")
    formats = _FORMATS[path]
    chosen = given.get("format", formats[0])
    if chosen not in formats:
        raise ValueError(f"format must be one of {', '.join(formats)}, not {chosen[:40]!a}.")
    every = _every(given) if path == MEMORY else 0
    return Order(
        path,
        _number(given, "seconds", 10 if path == PROFILE else 60, 1, MOST_SECONDS),
        int(_number(given, "rate", 100, 1, MOST_RATE)),
        int(_number(given, "frames", 32 if every else 8, 1, MOST_FRAMES)),
        chosen,
        by == "route" or _flag(given, "route"),
        _flag(given, "idle"),
        _worker(given.get("worker", ""), ANY if path == MEMORY and not every else ALL),
        every,
    )


def can_sample() -> bool:
    """Tell whether the native core is there, which samples allocations."""
    return find_spec("uvicorn._native") is not None


def _every(given: Mapping[str, str]) -> int:
    """Return the KiB between two samples; without the native core all allocations are traced."""
    every = int(_number(given, "every", 128 if can_sample() else 0, 0, MOST_EVERY))
    if every and not can_sample():
        raise ValueError("every must be 0: sampling needs the native core.")
    return every


def _worker(value: str, default: int) -> int:
    """Return which process is meant. Tracing slows down a process, so by default one is traced."""
    if value in ("", "all"):
        return ALL if value else default
    if not (value.isascii() and value.isdigit() and len(value) < 12 and int(value) > 0):
        raise ValueError(f"worker must be a process id or all, not {value[:40]!a}.")
    return int(value)


def _number(given: Mapping[str, str], name: str, default: float, least: int, most: int) -> float:
    if name not in given:
        return default
    try:
        number = float(given[name])
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise ValueError(f"{name} must be a number from {least} to {most}, not {given[name][:40]!a}.")
    return number


def _flag(given: Mapping[str, str], name: str) -> bool:
    value = given.get(name, "0")
    if value not in ("0", "1"):
        raise ValueError(f"{name} must be 0 or 1, not {value[:40]!a}.")
    return value == "1"
