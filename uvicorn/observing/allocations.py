"""Find the growth of memory of a process while it serves: `GET /memory` at the debug address.

The native core samples allocations from the start of the measurement on; `tracemalloc` traces all of them if asked to,
or without the core. After a third of the time, and at its end, the garbage is collected and all that is still in use is
listed; the difference has grown in between. So the filling of caches at the start counts less than steady growth.

A sampled allocation belongs to the request in whose context it was made. Otherwise it belongs to a route if the code of
the route's endpoint, or of a dependency that FastAPI calls for it, is in its traceback. Code that several routes use
belongs to all of them.
"""

from __future__ import annotations

import gc
import inspect
import json
import math
import os
import random
import sys
import sysconfig
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, TypedDict

from uvicorn.metrics.routes import NO_ROUTE, Routes
from uvicorn.middleware.in_flight import REQUEST, InFlightRequest
from uvicorn.observing.orders import Order
from uvicorn.rules.syntax import printable

if TYPE_CHECKING:
    from uvicorn.observing.debugging import Observer

WARM_UP = 1 / 3
"""Part of the time after which growth counts."""

MOST_ENDPOINTS = 2048
"""Endpoints whose code is remembered."""

MOST_PLACES = 500
"""Lines that a process reports: those that have grown most."""

MOST_SHOWN = 50
"""Lines that a page shows."""

MOST_TRACE = 8
"""Frames of a traceback that are shown: the innermost."""

MOST_ROUTES = 3
"""Routes that are named of code that several use."""

LEAST_GROWTH = 512
"""Bytes by which a line must have grown."""

LEAST_RATIO = 2.0
"""Growth by its standard error, below which a sample shows none: four blocks more."""

RELEASE_INTERVAL = 1.0
"""Seconds after which requests are dropped whose blocks are freed."""

COLLECT_ATTEMPTS = 100
"""To collect garbage, 10 ms apart."""

NO_ENDPOINT = "(outside of endpoints)"

_OWN = f"{Path(__file__).resolve().parent}{os.sep}"
"""The code that measures."""

_SERVER = f"{Path(__file__).resolve().parent.parent}{os.sep}"
_FOREIGN = tuple({f"{sysconfig.get_paths()[name]}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")})
"""Directories of the standard library and of installed packages."""


class Grown(TypedDict):
    """The growth of one line of code, of allocations for one route.

    `trace` ends with the line that has allocated; `variance` is that of a sampled `size`.
    """

    route: str
    place: str
    size: int
    blocks: int
    variance: float
    trace: list[str]


class GrowthPart(TypedDict):
    """The growth of one process. `traced` is whether a program traces its allocations itself."""

    pid: int
    seconds: float
    grown: list[Grown]
    last: bool


class Endpoints:
    """The lines of code that belong to routes, learned from requests that end."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._known: set[int] = set()
        self._kept: list[Any] = []  # so that an id remains that of its endpoint
        self._lines: dict[str, dict[tuple[int, int], set[str]]] = {}

    def note(self, scope: Any) -> None:
        """Learn the endpoint of a request that has ended."""
        endpoint = scope.get("endpoint") or getattr(scope.get("route_handler"), "fn", None)
        route_object = scope.get("route")
        key = id(endpoint) ^ id(route_object)
        if endpoint is None or key in self._known or len(self._known) >= MOST_ENDPOINTS:
            return
        self._known.add(key)
        self._kept += [endpoint, route_object]
        route = self._routes.of(scope)
        if route == NO_ROUTE:
            return
        for function in (endpoint, *_dependencies(getattr(route_object, "dependant", None), set())):
            for code in _codes_of(function):
                lines = self._lines.setdefault(code.co_filename, {})
                lines.setdefault((code.co_firstlineno, _last_line(code)), set()).add(route)

    def route_of(self, trace: Sequence[tuple[str, int]]) -> str:
        """Return the route of a traceback, innermost last: of code of the fewest routes, the innermost."""
        found: set[str] = set()
        for file, line in reversed(trace):
            for (first, last), routes in self._lines.get(file, {}).items():
                if first <= line <= last and (not found or len(routes) < len(found)):
                    found = routes
        if not found:
            return NO_ENDPOINT
        named = sorted(found)[:MOST_ROUTES]
        return ", ".join(named) + (f" and {len(found) - MOST_ROUTES} more" if len(found) > MOST_ROUTES else "")


def _dependencies(dependant: Any, seen: set[int]) -> Iterator[Any]:
    """Yield the functions that FastAPI calls before an endpoint."""
    for one in getattr(dependant, "dependencies", None) or ():
        if id(one) not in seen:
            seen.add(id(one))
            if (call := getattr(one, "call", None)) is not None:
                yield call
            yield from _dependencies(one, seen)


def _codes_of(endpoint: Any) -> Iterator[CodeType]:
    endpoint = inspect.unwrap(getattr(endpoint, "func", endpoint))
    found: list[Any] = [endpoint]
    if isinstance(endpoint, type):
        found = list(vars(endpoint).values())
    elif not hasattr(endpoint, "__code__"):
        found = [vars(type(endpoint)).get("__call__", getattr(endpoint, "__func__", None))]
    for function in found:
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if isinstance(code, CodeType):
            yield code


def _last_line(code: CodeType) -> int:
    """Return the last line of a function, functions within it included."""
    own = max((line for *_, line in code.co_lines() if line is not None), default=code.co_firstlineno)
    return max([own, *(_last_line(one) for one in code.co_consts if isinstance(one, CodeType))])


Emit = Callable[[Mapping[str, Any]], None]

Trace = Sequence[tuple[str, int]]
"""File and line of each frame, innermost last."""

Change = tuple[str, Trace, float, float, float]
"""The change of memory with one route and traceback: bytes, blocks, and the variance of the bytes."""


def measure_growth(order: Order, observers: Sequence[Observer], emit: Emit, is_over: threading.Event) -> None:
    """Trace or sample until the time has passed or `is_over`, and emit the growth as the only part.

    Raises:
        RuntimeError: allocations are sampled already.
    """
    endpoints = Endpoints(observers[0].in_flight.routes if observers else Routes())
    noting = {id(observer.in_flight): observer.in_flight for observer in observers}.values()
    began = time.monotonic()
    try:
        for in_flight in noting:
            in_flight.on_end = endpoints.note
        changes = (_sampled if order.every else _traced)(order, endpoints, began, is_over)
    finally:
        for in_flight in noting:
            in_flight.on_end = None
    part: GrowthPart = {
        "pid": os.getpid(),
        "seconds": round(time.monotonic() - began, 3),
        "grown": _grown(changes),
        "last": True,
    }
    emit(part)


def _traced(order: Order, endpoints: Endpoints, began: float, is_over: threading.Event) -> list[Change]:
    traces_anyway = tracemalloc.is_tracing()
    try:
        if not traces_anyway:
            tracemalloc.start(order.frames)
        is_over.wait(order.seconds * WARM_UP)
        before = _snapshot()
        is_over.wait(max(0.0, began + order.seconds - time.monotonic()))
        after = _snapshot()
    finally:
        if not traces_anyway:
            tracemalloc.stop()
    changes: list[Change] = []
    for one in after.compare_to(before, "traceback"):
        trace = [(frame.filename, frame.lineno) for frame in one.traceback]
        if one.size_diff:
            changes.append((endpoints.route_of(trace), trace, one.size_diff, one.count_diff, 0.0))
    return changes


def _snapshot() -> tracemalloc.Snapshot:
    _collect()
    return tracemalloc.take_snapshot()


def _collect() -> None:
    """Collect all garbage. The call does nothing while another thread collects, whose callback may pass the GIL on."""
    count = gc.get_stats()[-1]["collections"]
    for _ in range(COLLECT_ATTEMPTS):
        gc.collect()
        if gc.get_stats()[-1]["collections"] != count:
            break
        time.sleep(0.01)


def _sampled(order: Order, endpoints: Endpoints, began: float, is_over: threading.Event) -> list[Change]:
    from uvicorn._native import AllocationSampler

    def snapshot(until: float) -> Any:
        while (left := until - time.monotonic()) > 0 and not is_over.wait(min(left, RELEASE_INTERVAL)):
            sampler.release()
        sampler.mark()
        _collect()
        return sampler.snapshot()

    _abandon_in_children(AllocationSampler.abandon)
    sampler = AllocationSampler(order.every * 1024, order.frames, REQUEST, random.getrandbits(63))
    try:
        before = snapshot(began + order.seconds * WARM_UP)
        after = snapshot(began + order.seconds)
    finally:
        sampler.close()
    # Blocks of before that are in use still are in both, so that they add nothing, to the variance either.
    changes: list[Change] = []
    traces: dict[int, Trace] = {}
    for groups, sign in ((before, -1.0), (after, 1.0)):
        for request, stack, generation, size, blocks, variance in groups:
            trace = traces.get(id(stack))
            if trace is None:
                trace = traces[id(stack)] = [(code.co_filename, line) for code, line in stack]
            route = request.route() if isinstance(request, InFlightRequest) else ""
            spread = -sign * variance if generation == 0 else variance
            changes.append((route or endpoints.route_of(trace), trace, sign * size, sign * blocks, spread))
    return changes


_abandons_in_children = False


def _abandon_in_children(abandon: Callable[[], None]) -> None:
    """Have forked processes sample nothing; that cannot be undone, so it is done once."""
    global _abandons_in_children
    if not _abandons_in_children and sys.platform != "win32":
        os.register_at_fork(after_in_child=abandon)
        _abandons_in_children = True


def _grown(changes: Sequence[Change]) -> list[Grown]:
    """Return the sums of changes by route and line, the largest first."""
    places: dict[tuple[str, str], Grown] = {}
    sums: dict[tuple[str, str], list[float]] = {}
    largest: dict[tuple[str, str], float] = {}
    for route, trace, size, blocks, variance in changes:
        if any(file.startswith(_OWN) or file == tracemalloc.__file__ for file, _ in trace):
            continue
        key = (route, _place(trace))
        total = sums.setdefault(key, [0.0, 0.0, 0.0])
        for position, number in enumerate((size, blocks, variance)):
            total[position] += number
        if key not in places or size > largest[key]:
            largest[key] = size
            lines = [f"{file}:{line}" for file, line in trace[-MOST_TRACE:]]
            places[key] = {"route": route, "place": key[1], "size": 0, "blocks": 0, "variance": 0.0, "trace": lines}
    for key, (size, blocks, variance) in sums.items():
        place = places[key]
        place["size"], place["blocks"], place["variance"] = round(size), round(blocks), max(0.0, variance)
    # Of a sample those that seem to have shrunk count in the sum of a route.
    found = (one for one in places.values() if (abs(one["size"]) if one["variance"] else one["size"]) >= LEAST_GROWTH)
    return sorted(found, key=lambda one: -abs(one["size"]))[:MOST_PLACES]


def _place(trace: Sequence[tuple[str, int]]) -> str:
    """Return the innermost line of the application, if there is one, else the innermost of a file."""
    files = [one for one in reversed(trace) if not one[0].startswith("<")] or [*trace[-1:], ("(other stacks)", 0)]
    file, line = next((one for one in files if _is_of_application(one[0])), files[0])
    return f"{file}:{line}"


def _is_of_application(file: str) -> bool:
    return not file.startswith(("<", _SERVER, *_FOREIGN))


# Merging and formats


class Growth:
    """The growth of all processes.

    Attributes:
        places: by route and line.
    """

    def __init__(self) -> None:
        self.places: dict[tuple[str, str], Grown] = {}

    def add(self, part: GrowthPart) -> None:
        """Add that of one process."""
        for one in part["grown"]:
            known = self.places.get((one["route"], one["place"]))
            if known is None:
                self.places[one["route"], one["place"]] = one
            else:
                known["size"] += one["size"]
                known["blocks"] += one["blocks"]
                known["variance"] += one["variance"]

    def by_line(self) -> list[Grown]:
        """Return the lines that have grown, most growth first."""
        return sorted(filter(_has_grown, self.places.values()), key=lambda one: -one["size"])

    def by_route(self) -> list[tuple[Grown, list[Grown]]]:
        """Return the routes that have grown, with their lines, most growth first, and last all that is of none."""
        sums: dict[str, Grown] = {}
        for one in self.places.values():
            whole = sums.setdefault(one["route"], {**one, "size": 0, "blocks": 0, "variance": 0.0, "trace": []})
            whole["size"] += one["size"]
            whole["blocks"] += one["blocks"]
            whole["variance"] += one["variance"]
        lines = self.by_line()
        found = [(one, [line for line in lines if line["route"] == route]) for route, one in sums.items()]
        return sorted(filter(lambda one: _has_grown(one[0]), found), key=lambda one: _rank(one[0]))


def _rank(whole: Grown) -> tuple[bool, int]:
    return whole["route"] == NO_ENDPOINT, -whole["size"]


def _has_grown(one: Grown) -> bool:
    return one["size"] >= max(LEAST_GROWTH, LEAST_RATIO * math.sqrt(one["variance"]))


def as_json(growth: Growth, notes: Sequence[str]) -> str:
    """Return it for programs: bytes and blocks by route and line."""
    return json.dumps({"notes": notes, "grown": [_told(one) for one in growth.by_line()]}, indent=1) + "\n"


def _told(one: Grown) -> dict[str, Any]:
    """Return a line with the standard error in bytes instead of the variance."""
    error = round(math.sqrt(one["variance"]))
    return {name: value for name, value in one.items() if name != "variance"} | ({"error": error} if error else {})


def as_text(growth: Growth, order: Order, workers: str, notes: Sequence[str]) -> str:
    """Return it as a page that people read."""
    return "\n".join([*_page(growth, order, workers, notes), ""])


def _page(growth: Growth, order: Order, workers: str, notes: Sequence[str]) -> Iterator[str]:
    seconds = order.seconds * (1 - WARM_UP)
    yield f"Growth of memory in the last {seconds:.3g} of {order.seconds:g} s, {workers}"
    yield from notes
    if not growth.by_line():
        yield "Nothing has grown."
    if order.by_route:
        for whole, lines in growth.by_route()[:MOST_SHOWN]:
            yield ""
            yield f"{_size(whole)}  {printable(whole['route'])}"
            for one in lines[:10]:
                yield from _line(one, "    ", "")
    else:
        yield ""
        for one in growth.by_line()[:MOST_SHOWN]:
            yield from _line(one, "", f"  {printable(one['route'])}")


def _line(one: Grown, indent: str, route: str) -> Iterator[str]:
    yield f"{indent}{_size(one)}  {one['blocks']:+,} blocks  {printable(one['place'])}{route}"
    for frame in one["trace"]:
        if frame != one["place"] and _is_of_application(frame):
            yield f"{indent}                {printable(frame)}"


def _size(one: Grown) -> str:
    error = f" ± {math.sqrt(one['variance']) / 1024:,.1f}" if one["variance"] else ""
    return f"{one['size'] / 1024:+12,.1f}{error} KiB"
