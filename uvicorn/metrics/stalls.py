"""Seconds that an event loop was stalled, by route and kind: a table of a fixed size behind the places of a `Page`.

    row:  route, UTF-8, filled up with zeros │ stalls and nanoseconds of each kind

A row is written by its event loop alone: first the route, then the numbers, so readers see no number without its route.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

from uvicorn.metrics.routes import OTHER

Kind = Literal["computing", "gil", "blocked", "gc"]
"""Why a loop did not turn: Python code that computes, a call that holds the GIL, a call of the system that waits, or
garbage collection."""

KINDS: Final[tuple[Kind, ...]] = ("computing", "gil", "blocked", "gc")
"""All kinds, in the order of the table."""

ROUTES = 64
"""Routes with a row; the last row is for all others, which are `OTHER`."""

_NAME_WORDS = 16
_NAME_BYTES = _NAME_WORDS * 8
_ROW = _NAME_WORDS + 2 * len(KINDS)

WORDS = ROUTES * _ROW
"""64-bit words of the table."""


class StallTotal(NamedTuple):
    """The number of the stalls of one route and kind, and their nanoseconds."""

    number: int = 0
    nanoseconds: int = 0

    def plus(self, other: StallTotal) -> StallTotal:
        """Return the sum."""
        return StallTotal(self.number + other.number, self.nanoseconds + other.nanoseconds)


StallTotals = dict[tuple[str, Kind], StallTotal]
"""The stalls by route and kind."""


class StallTable:
    """The table in `words`, written by one event loop."""

    def __init__(self, words: memoryview) -> None:
        self._words = words
        self._bytes = words.cast("B")
        self._rows: dict[str, int] = {}

    def add(self, route: str, kind: Kind, nanoseconds: int) -> None:
        """Count one stall."""
        place = self._row_of(route) * _ROW + _NAME_WORDS + 2 * KINDS.index(kind)
        self._words[place] += 1
        self._words[place + 1] += nanoseconds

    def _row_of(self, route: str) -> int:
        row = self._rows.get(route)
        if row is None:
            if len(self._rows) >= ROUTES - 1:
                return self._name(ROUTES - 1, OTHER)
            row = self._rows[route] = self._name(len(self._rows), route)
        return row

    def _name(self, row: int, route: str) -> int:
        name = route.encode(errors="replace").replace(b"\0", b"?")[:_NAME_BYTES]
        begin = row * _ROW * 8
        self._bytes[begin : begin + len(name)] = name
        return row

    def totals(self) -> Iterator[tuple[tuple[str, Kind], StallTotal]]:
        """Yield the counts of each route and kind that has any; long routes are cut, so one may come twice."""
        for row in range(ROUTES):
            begin = row * _ROW
            numbers = self._words[begin + _NAME_WORDS : begin + _ROW]
            if not any(numbers):
                continue
            name = bytes(self._bytes[begin * 8 : begin * 8 + _NAME_BYTES]).rstrip(b"\0").decode(errors="ignore")
            for index, kind in enumerate(KINDS):
                if numbers[2 * index]:
                    yield (name, kind), StallTotal(numbers[2 * index], numbers[2 * index + 1])

    def release(self) -> None:
        """Let go of the memory."""
        self._bytes.release()
        self._words.release()


def add_up(into: StallTotals, found: Iterable[tuple[tuple[str, Kind], StallTotal]]) -> None:
    """Add counts to others. Beyond `ROUTES` of these, further routes count as `OTHER`."""
    for (route, kind), total in found:
        key: tuple[str, Kind] = (route, kind)
        if key not in into and len(into) >= ROUTES * len(KINDS):
            key = (OTHER, kind)
        into[key] = into.get(key, StallTotal()).plus(total)
