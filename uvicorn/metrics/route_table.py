"""The counters of one event loop by method and route: a table in shared memory, behind the places of its page.

    capacity │ number of bounds │ bounds │ slots: `none` by method, `other` by method, then a slot for each series

A series is a method and a route. Its slot is claimed once, by its event loop alone, and never given back. `none` counts
requests without a route, `other` those whose series found no slot: so the sum over all slots is always that of all
requests.

Readers take no lock. The seal of a slot is a checksum of its name, that of an exemplar is one of its content: what does
not match is being written, and is left out. The native core writes the same words (`base/routes.rs`).
"""

from __future__ import annotations

import hashlib
import logging
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from time import monotonic_ns, time_ns
from typing import Any, NamedTuple

from uvicorn.metrics.page import BOUNDS, METHODS, PLACES, STATUS_CLASSES, Course, Page
from uvicorn.metrics.routes import NO_ROUTE, OTHER, Routes
from uvicorn.rules import trace_context

NONE = "none"
"""The route of requests without one; `OTHER` is that of those beyond the capacity."""

KINDS = (*METHODS, "WEBSOCKET")
"""The first half of a series: a method, or WebSocket for its sessions."""

WEBSOCKET = len(METHODS)
"""The kind of sessions."""

MOST_NAME = 160
"""Bytes of a route; a longer one is cut, and ends in a digest."""

MOST_BOUNDS = 64
"""Bounds of a histogram."""

LONGEST_BOUND = 1e6
"""Seconds."""

MOST_SAMPLED = 4096
"""Tasks that one look at those in flight passes; if there are more the rest is estimated."""

METHOD_NOT_ALLOWED = 405
"""Counted without a route: otherwise a client could claim a slot for each method of each route."""

_NANO = 1_000_000_000
_KINDS = {name: number for number, name in enumerate(METHODS)}
_NUMBER = (1 << 64) - 1

logger = logging.getLogger("uvicorn.error")


def parse_bounds(text: str) -> tuple[float, ...]:
    """Return the bounds of buckets from the setting `metrics_buckets`.

    Raises:
        ValueError: they are not increasing numbers from a nanosecond to `LONGEST_BOUND`, or too many.
    """
    bounds = tuple(float(part) for part in text.split(","))
    is_rising = all(low < high for low, high in zip((0.0, *bounds), bounds, strict=False))
    if not is_rising or len(bounds) > MOST_BOUNDS or bounds[0] < 1e-9 or not bounds[-1] <= LONGEST_BOUND:
        raise ValueError(text)
    return bounds


class Layout(NamedTuple):
    """Where the table has its numbers: the first slot from the start of the page, the others from that of a slot."""

    capacity: int
    reserved: int
    first: int
    size: int
    seal: int
    kind: int
    length: int
    name: int
    statuses: int
    received: int
    sent: int
    cancelled: int
    in_flight: int
    sessions: int
    duration: int
    queue_wait: int
    first_byte: int
    exemplars: int
    buckets: int


_NAME_WORDS = MOST_NAME // 8
EXEMPLAR_WORDS = 5
"""Two halves of the trace id, nanoseconds, nanoseconds since the epoch, seal."""


class Shape(NamedTuple):
    """The size of a table.

    Attributes:
        capacity: series that have a slot of their own; 0 for no table.
        bounds: of the histograms, in seconds.
    """

    capacity: int = 0
    bounds: tuple[float, ...] = BOUNDS

    @classmethod
    def of(cls, config: Any) -> Shape:
        """Return that which the settings describe."""
        text = config.metrics_buckets
        return cls(config.metrics_routes, BOUNDS if text is None else parse_bounds(text))

    @property
    def layout(self) -> Layout:
        """Where everything is."""
        buckets = len(self.bounds) + 1
        histogram = buckets + 1
        name = 3
        statuses = name + _NAME_WORDS
        received = statuses + STATUS_CLASSES
        duration = received + 5
        exemplars = duration + 3 * histogram
        return Layout(
            capacity=self.capacity,
            reserved=2 * len(KINDS),
            first=PLACES + 2 + len(self.bounds),
            size=exemplars + EXEMPLAR_WORDS * buckets,
            seal=0,
            kind=1,
            length=2,
            name=name,
            statuses=statuses,
            received=received,
            sent=received + 1,
            cancelled=received + 2,
            in_flight=received + 3,
            sessions=received + 4,
            duration=duration,
            queue_wait=duration + histogram,
            first_byte=duration + 2 * histogram,
            exemplars=exemplars,
            buckets=buckets,
        )

    @property
    def words(self) -> int:
        """Words that the table needs behind the places of a page."""
        layout = self.layout
        if not self.capacity:
            return 0
        return layout.first - PLACES + layout.size * (layout.reserved + self.capacity)


class Exemplar(NamedTuple):
    """One request of a bucket.

    Attributes:
        trace: its trace id, in hexadecimal digits.
        value: its duration in nanoseconds.
        time: when it ended, in nanoseconds since the epoch.
    """

    trace: str
    value: int
    time: int


class Series(NamedTuple):
    """The numbers of one series, from the first status to the last histogram; and the last exemplar of each bucket."""

    counts: list[int]
    exemplars: list[Exemplar | None]


def bounded_name(route: str) -> bytes:
    """Return a route as a slot has it: a long one cut, with a digest that keeps it apart from others."""
    name = route.encode("utf-8", "replace")
    if len(name) <= MOST_NAME:
        return name
    digest = hashlib.blake2b(name, digest_size=8).hexdigest()
    head = name[: MOST_NAME - len(digest) - 4].decode("utf-8", "ignore")
    return f"{head}...{digest}".encode()


def trace_of(headers: Iterable[Any]) -> bytes:
    """Return the trace id of a sampled request (W3C Trace Context `traceparent`); empty if there is none."""
    for name, value in headers:
        if name == b"traceparent":
            parent = trace_context.parse(bytes(value).decode("latin-1"))
            return bytes.fromhex(parent.trace) if parent is not None and parent.flags & trace_context.SAMPLED else b""
    return b""


def _seal_of(kind: int, name: bytes) -> int:
    return 1 << 63 | zlib.crc32(name, kind)


def _exemplar_seal(high: int, low: int, value: int, time: int) -> int:
    # Multiplied by odd numbers, so that parts of two exemplars do not match.
    return (high * 3 + low * 5 + value * 7 + time * 11 + 13) & _NUMBER


class RouteTable:
    """The table in a page, written by its event loop.

    Args:
        page: the page, made with room for it.
        app: the application, from which prefixes of mounts are known.

    Attributes:
        layout: where everything is.
        bounds: of the histograms, in nanoseconds.
    """

    def __init__(self, page: Page, shape: Shape, app: Any = None) -> None:
        self._words = page.words
        self.layout = shape.layout
        self.bounds = [int(bound * _NANO) for bound in shape.bounds]
        self._routes = Routes(app)
        self._slots: dict[tuple[int, str], int] = {}
        self._taken = 0
        self._sampled: set[int] = set()
        self._traced: dict[int, int] = {}
        words = self._words
        words[PLACES], words[PLACES + 1] = shape.capacity, len(self.bounds)
        words[PLACES + 2 : PLACES + 2 + len(self.bounds)] = memoryview(array("Q", self.bounds))

    # Which slot.

    def slot_of(self, scope: Any, kind: int) -> tuple[int, bool]:
        """Return where the slot of a request begins, and whether that holds for all with the same route object.

        The object is the first of `route`, `path_template` and `endpoint` that the scope has.
        """
        try:
            route, is_fixed = self._routes.find(scope)
        except Exception:
            # Properties of route objects may raise; monitoring must not end the request.
            logger.debug("Cannot read the route of a request", exc_info=True)
            route, is_fixed = NO_ROUTE, False
        if route == NO_ROUTE:
            return self.none(kind), False
        slot = self._slots.get((kind, route))
        if slot is None:
            slot = self._claim(kind, route)
        return slot, is_fixed

    def none(self, kind: int) -> int:
        """Return where the slot of requests without a route begins."""
        return self.layout.first + kind * self.layout.size

    def _claim(self, kind: int, route: str) -> int:
        layout = self.layout
        if self._taken >= layout.capacity:
            # Not remembered: there is no end of such series.
            return layout.first + (len(KINDS) + kind) * layout.size
        slot = layout.first + (layout.reserved + self._taken) * layout.size
        self._taken += 1
        if self._taken == layout.capacity:
            logger.warning(
                "All %d series of metrics_routes are taken; further routes and methods count as `other`.", self._taken
            )
        name, words = bounded_name(route), self._words
        words[slot + layout.kind], words[slot + layout.length] = kind, len(name)
        packed = memoryview(name.ljust(MOST_NAME, b"\0")).cast("Q")
        words[slot + layout.name : slot + layout.statuses] = packed
        words[slot + layout.seal] = _seal_of(kind, name)
        self._slots[kind, route] = slot
        return slot

    # Counting. The native core has `end` for itself.

    def begin(self, page: Page, row: int, method: str, scope: Any) -> RouteCourse:
        """A request begins."""
        return RouteCourse(page, row, self, _KINDS.get(method, _KINDS["other"]), scope)

    def end(self, course: RouteCourse, status: int, duration: int, is_complete: bool) -> None:
        """Count a request that has ended, after `duration` nanoseconds; `is_complete`: with its whole response."""
        layout, words, kind = self.layout, self._words, course.kind
        slot = self.none(kind) if status == METHOD_NOT_ALLOWED else self.slot_of(course.scope, kind)[0]
        words[slot + layout.statuses + min(status // 100, STATUS_CLASSES - 1)] += 1
        words[slot + layout.received] += course.received
        words[slot + layout.sent] += course.sent
        if course.queue_wait >= 0:
            self._observe(slot + layout.queue_wait, course.queue_wait)
        if course.first_byte >= 0 or (is_complete and status):
            self._observe(slot + layout.first_byte, course.first_byte if course.first_byte >= 0 else duration)
        bucket = self._observe(slot + layout.duration, duration)
        trace = trace_of(course.scope.get("headers", ()))
        if trace:
            self._exemplify(slot, bucket, trace, duration)

    def _observe(self, histogram: int, nanoseconds: int) -> int:
        words, bucket = self._words, bisect_left(self.bounds, nanoseconds)
        words[histogram + bucket] += 1
        if nanoseconds > 0:
            words[histogram + self.layout.buckets] += nanoseconds
        return bucket

    def _exemplify(self, slot: int, bucket: int, trace: bytes, value: int) -> None:
        place, now = slot + self.layout.exemplars + EXEMPLAR_WORDS * bucket, time_ns()
        high, low = int.from_bytes(trace[:8], "big"), int.from_bytes(trace[8:], "big")
        content = (high, low, value, now, _exemplar_seal(high, low, value, now))
        for offset, word in enumerate(content):
            self._words[place + offset] = word

    def refuse(self, row: int, status: int) -> None:
        """Count invalid input, in the same class as the page does."""
        self._words[self.none(row) + self.layout.statuses + status // 100] += 1

    def cancelled(self, scope: Any) -> None:
        """Count a call of the application that was cancelled, because its client has left."""
        kind = WEBSOCKET if scope.get("type") == "websocket" else _KINDS.get(scope.get("method"), _KINDS["other"])
        self._words[self.slot_of(scope, kind)[0] + self.layout.cancelled] += 1

    def open_session(self, scope: Any) -> tuple[int, int]:
        """A WebSocket was accepted; returns what `close_session` needs."""
        slot, _ = self.slot_of(scope, WEBSOCKET)
        self._words[slot + self.layout.sessions] += 1
        self._words[slot + self.layout.in_flight] += 1
        return slot, monotonic_ns()

    def close_session(self, session: tuple[int, int]) -> None:
        """It has ended."""
        slot, since = session
        self._words[slot + self.layout.in_flight] -= 1
        self._observe(slot + self.layout.duration, monotonic_ns() - since)

    # Requests in flight, whose routes are known only while their applications run.

    def sample(self, tasks: Sequence[Any] | set[Any]) -> None:
        """Count the requests in flight by route, from the tasks in which their applications run."""
        counts: dict[int, int] = {}
        for task in islice(tuple(tasks), MOST_SAMPLED):
            scope = _scope_in_flight(task)
            if scope is not None:
                kind = _KINDS.get(scope.get("method"), _KINDS["other"])
                # As at the end of a request that is answered with 405.
                slot = self.slot_of(scope, kind)[0] if _is_allowed(scope) else self.none(kind)
                counts[slot] = counts.get(slot, 0) + 1
        factor = max(1.0, len(tasks) / MOST_SAMPLED)
        place = self.layout.in_flight
        for slot in self._sampled.difference(counts):
            self._words[slot + place] = 0
        for slot, count in counts.items():
            self._words[slot + place] = round(count * factor)
        self._sampled = set(counts)


def _scope_in_flight(task: Any) -> Any:
    """Return the scope of the HTTP request that a task serves, None if there is none or its response is over."""
    try:
        coroutine = task.get_coro()
        cycle = coroutine
        if not hasattr(cycle, "response_complete"):
            variables = coroutine.cr_frame.f_locals
            cycle = variables.get("self") or variables.get("cycle")
        scope = None if cycle.response_complete else cycle.scope
    except Exception:
        # A task of another kind, or one that has just ended.
        return None
    return scope if scope is not None and scope.get("type") == "http" else None


def _is_allowed(scope: Any) -> bool:
    """Tell whether the route of a request takes its method, as far as that is known."""
    methods = getattr(scope.get("route"), "methods", None)
    return not isinstance(methods, (set, frozenset, list, tuple)) or scope.get("method") in methods


class RouteCourse(Course):
    """One request that is counted by its route.

    Attributes:
        kind: its method.
        scope: from which the route is read at the end.
        queue_wait, first_byte: nanoseconds; -1 while unknown.
    """

    __slots__ = ("_table", "kind", "scope", "queue_wait", "first_byte", "received", "sent")

    is_by_route = True

    def __init__(self, page: Page, row: int, table: RouteTable, kind: int, scope: Any) -> None:
        super().__init__(page, row)
        self._table = table
        self.kind = kind
        self.scope = scope
        self.queue_wait = self.first_byte = -1
        self.received = self.sent = 0

    def run(self) -> None:
        """Its application is called now."""
        if self.queue_wait < 0 and self._page is not None:
            self.queue_wait = monotonic_ns() - self._since
        super().run()

    def count_received(self, size: int) -> None:
        """Count bytes of the request body that have arrived."""
        self.received += size

    def count_sent(self, size: int) -> None:
        """Count bytes of the response body that were written; with the first ones the head has left."""
        self.sent += size
        if self.first_byte < 0:
            self.first_byte = monotonic_ns() - self._since

    def end(self, is_complete: bool = False) -> None:
        """Count the end of the response; only the first call counts."""
        if self._page is not None:
            status = self._status
            super().end()
            self._table.end(self, status, monotonic_ns() - self._since, is_complete)
            self.scope = None


# Reading.


class RouteFigures:
    """The series of several tables of one shape, added up."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.series: dict[tuple[str, str], Series] = {}

    def add(self, kind: str, route: str, counts: Sequence[int], exemplars: Sequence[Exemplar | None]) -> None:
        """Add the numbers of one series; of two exemplars the later one stays."""
        known = self.series.get((kind, route))
        if known is None:
            self.series[kind, route] = Series(list(counts), list(exemplars))
            return
        known.counts[:] = [one + another for one, another in zip(known.counts, counts, strict=True)]
        for bucket, exemplar in enumerate(exemplars):
            held = known.exemplars[bucket]
            if exemplar is not None and (held is None or held.time < exemplar.time):
                known.exemplars[bucket] = exemplar

    def update(self, other: RouteFigures) -> None:
        """Add all series of another."""
        for (kind, route), series in other.series.items():
            self.add(kind, route, series.counts, series.exemplars)

    def without_gauges(self) -> list[tuple[str, str, list[int]]]:
        """Return method, route and counts of each series, without exemplars and gauges."""
        gauge = self.shape.layout.in_flight - self.shape.layout.statuses
        return [
            (kind, route, [0 if place == gauge else count for place, count in enumerate(series.counts)])
            for (kind, route), series in self.series.items()
        ]

    def number(self, series: Series, place: int) -> int:
        """Return one of its numbers, by its place in a slot."""
        return series.counts[place - self.shape.layout.statuses]


class RouteTotals:
    """Adds up the tables of running event loops and the sums of those that have ended.

    There are no more series than in one table: further ones are added to `other`, and stay there.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._past = RouteFigures(shape)
        self._inherited = RouteFigures(shape)
        self._admitted: set[tuple[int, str]] = set()

    def retire(self, words: Any) -> None:
        """Keep the sums of a table whose event loop has ended, without its gauges."""
        gauge = self._shape.layout.in_flight - self._shape.layout.statuses
        for kind, route, counts, exemplars in self._read(words):
            counts[gauge] = 0
            self._past.add(kind, route, counts, exemplars)

    def inherit(self, inherited: RouteFigures) -> None:
        """Add the sums of a predecessor from now on, in place of those that it has sent before."""
        figures = RouteFigures(self._shape)
        for (kind, route), series in inherited.series.items():
            if route not in (NONE, OTHER):
                _, route = self._merged(KINDS.index(kind), route)
            figures.add(kind, route, series.counts, series.exemplars)
        self._inherited = figures

    def figures(self, tables: Iterable[Any]) -> RouteFigures:
        """Return the sums of these, of the retired tables and of the predecessor."""
        figures = RouteFigures(self._shape)
        figures.update(self._past)
        figures.update(self._inherited)
        for words in tables:
            for series in self._read(words):
                figures.add(*series)
        return figures

    def _read(self, words: Any) -> Iterator[tuple[str, str, list[int], list[Exemplar | None]]]:
        layout = self._shape.layout
        for number in range(layout.reserved + layout.capacity):
            slot = layout.first + number * layout.size
            if number < layout.reserved:
                kind, route = number % len(KINDS), NONE if number < len(KINDS) else OTHER
                counts = words[slot + layout.statuses : slot + layout.exemplars].tolist()
                if not any(counts):
                    continue
            else:
                if not words[slot + layout.seal]:
                    return  # they are claimed in order
                named = _name_of(words, slot, layout)
                if named is None:
                    continue
                kind, route = self._merged(*named)
                counts = words[slot + layout.statuses : slot + layout.exemplars].tolist()
            yield KINDS[kind], route, counts, _exemplars_of(words, slot, layout)

    def _merged(self, kind: int, route: str) -> tuple[int, str]:
        if (kind, route) not in self._admitted:
            if len(self._admitted) >= self._shape.capacity:
                return kind, OTHER
            self._admitted.add((kind, route))
        return kind, route


def _name_of(words: Any, slot: int, layout: Layout) -> tuple[int, str] | None:
    """Return the series of a slot, None while it is being written."""
    kind, length = words[slot + layout.kind], words[slot + layout.length]
    name = words[slot + layout.name : slot + layout.statuses].tobytes()[:length]
    if kind >= len(KINDS) or length > MOST_NAME or words[slot + layout.seal] != _seal_of(kind, name):
        return None
    return kind, name.decode("utf-8", "replace")


def _exemplars_of(words: Any, slot: int, layout: Layout) -> list[Exemplar | None]:
    begin = slot + layout.exemplars
    content = words[begin : begin + EXEMPLAR_WORDS * layout.buckets].tolist()
    found: list[Exemplar | None] = []
    for bucket in range(layout.buckets):
        high, low, value, time, seal = content[EXEMPLAR_WORDS * bucket : EXEMPLAR_WORDS * (bucket + 1)]
        is_whole = time and seal == _exemplar_seal(high, low, value, time)
        found.append(Exemplar(f"{high:016x}{low:016x}", value, time) if is_whole else None)
    return found
