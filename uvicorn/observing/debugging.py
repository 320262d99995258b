"""Report the activity of the event loops of a process: the settings `debug_requests` and `stall_threshold`.

An `Observer` belongs to one event loop. It reports the requests in flight there, where their tasks are, and the stalls
of the loop. Code that asks several (`listings_of`) runs in a separate thread and waits only briefly for
a blocked loop; then the report is limited to information that another thread can see. Reports contain files, lines and
names, and the path and client of a request: no field, no body, and no query unless configured. Their size is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypedDict
from urllib.parse import quote

from uvicorn._compat import has_gil
from uvicorn.access.format import escape, escape_word
from uvicorn.metrics.loop_state import LoopState
from uvicorn.metrics.page import Page
from uvicorn.middleware.in_flight import InFlight, InFlightRequest, request_of
from uvicorn.observing import stacks
from uvicorn.observing.stalls import StallWatch, sorted_records, when_of

MOST_REQUESTS = 200
"""Requests that one loop lists: the oldest."""

MOST_STALLS = 10
"""Routes and kinds whose stalls are listed: those with the most time."""

MOST_TASKS = 5
"""Other tasks of one request."""

MOST_TEXT = 200
"""Characters of a path, or a query."""

PATIENCE = 1.0
"""Seconds for which a loop is waited for before it is looked at from outside."""

_SIGNAL: int | None = getattr(signal, "SIGUSR1", None)

logger = logging.getLogger("uvicorn.error")


class TaskListing(TypedDict):
    """A task that a request has started."""

    task: str
    stack: list[str]


class RequestListing(TypedDict):
    """One request. `age` is in seconds, `query` only there if it was asked for."""

    age: float
    type: str
    method: str
    path: str
    query: str | None
    http_version: str
    client: str
    request_id: str | None
    task: str
    stack: list[str]
    tasks: list[TaskListing]


class StallListing(TypedDict):
    """The stalls of one route and kind: how many, their seconds, and the longest one: when it began, where it was."""

    route: str
    kind: str
    count: int
    seconds: float
    longest: float
    when: str
    what: str
    request: str
    stack: list[str]


class LoopListing(TypedDict):
    """One event loop. `overdue` are the seconds for which it has not turned, and `stack` is where it is then.

    `stalls` are those with the most time.
    """

    pid: int
    thread: str
    in_flight: int
    overdue: float
    stack: list[str]
    requests: list[RequestListing]
    threshold: float
    stalls: list[StallListing]


class DebugSettings(Protocol):
    """The settings for the content of an observer's listing."""

    debug_requests_query: bool

    @property
    def longest_turn(self) -> float:
        """Seconds from which a turn of the event loop is a stall; 0 if they are not looked for."""


class Observer:
    """Watches the event loop that runs, from `start` to `stop`.

    Args:
        config: the content of listings.
        in_flight: the requests, which are there only with `debug_requests`; and what finds their routes.
        page: counts stalls, if metrics are served.
        state: that of the loop, if a probe reads it, which needs a beat every `interval` seconds.

    Attributes:
        loop: the same.
        thread: that runs it.
        in_flight: the requests of all event loops.
    """

    def __init__(
        self,
        config: DebugSettings,
        in_flight: InFlight,
        page: Page | None = None,
        state: LoopState | None = None,
        interval: float = float("inf"),
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.in_flight = in_flight
        self._shows_queries = config.debug_requests_query
        self.thread = threading.current_thread()
        self._stalls: StallWatch | None = None
        if threshold := config.longest_turn:
            self._stalls = StallWatch(self.loop, threshold, in_flight, state, interval, page, _text_of)

    def start(self) -> None:
        """Watch from now on."""
        if self._stalls is not None:
            self._stalls.start()

    def stop(self) -> None:
        """Stop watching."""
        if self._stalls is not None:
            self._stalls.stop()

    def ask(self) -> Question:
        """Ask the loop for its listing; from any other thread."""
        question = Question(self)
        with contextlib.suppress(RuntimeError):  # it is closed
            self.loop.call_soon_threadsafe(question.answer)
        return question

    def answer(self) -> LoopListing:
        """Return the listing; called by the loop."""
        return self._list(True)

    def answer_from_outside(self, seconds: float) -> LoopListing:
        """Return the listing that another thread can see; the loop has not answered for `seconds`."""
        # Without a GIL only the loop may look at coroutines that may be running.
        listing = self._list(has_gil())
        overdue = 0.0 if self._stalls is None else self._stalls.overdue()
        listing["overdue"] = round(max(overdue, seconds), 3)
        listing["stack"] = stacks.lines_of(stacks.frames_of(self.thread.ident or 0))
        return listing

    def _list(self, with_stacks: bool) -> LoopListing:
        in_flight = self.in_flight.of(self.loop)
        others = self._others() if with_stacks else {}
        now = time.monotonic()
        requests = [self._tell(request, now, with_stacks, others) for request in in_flight[:MOST_REQUESTS]]
        return {
            "pid": os.getpid(),
            "thread": self.thread.name,
            "in_flight": len(in_flight),
            "overdue": 0.0,
            "stack": [],
            "requests": [request for request in requests if request is not None],
            "threshold": 0.0 if self._stalls is None else self._stalls.threshold,
            "stalls": [] if self._stalls is None else _listed(self._stalls),
        }

    def _others(self) -> dict[InFlightRequest, list[asyncio.Task[Any]]]:
        """The tasks that requests have started, by request."""
        found: dict[InFlightRequest, list[asyncio.Task[Any]]] = {}
        for task in asyncio.all_tasks(self.loop):
            request = request_of(task)
            if request is not None and request.task is not task:
                found.setdefault(request, []).append(task)
        return found

    def _tell(
        self,
        request: InFlightRequest,
        now: float,
        with_stacks: bool,
        others: dict[InFlightRequest, list[asyncio.Task[Any]]],
    ) -> RequestListing | None:
        scope, task = request.scope, request.task
        if scope is None or task is None:
            return None  # it has ended meanwhile
        # An application may have changed its scope.
        query = scope.get("query_string", b"").decode("latin-1") if self._shows_queries else None
        return {
            "age": round(now - request.began, 3),
            "type": scope.get("type", ""),
            "method": escape(str(scope.get("method", "GET"))),
            "path": quote(scope.get("path", ""))[:MOST_TEXT],
            "query": None if query is None else escape(query[:MOST_TEXT]),
            "http_version": scope.get("http_version", ""),
            "client": _address(scope.get("client")),
            "request_id": escape(str(named)) if (named := scope.get("request_id")) is not None else None,
            "task": escape(task.get_name()),
            "stack": [*stacks.chain_of(request.call), *stacks.awaited_by(task)] if with_stacks else [],
            "tasks": [
                {"task": escape(stacks.called(other)), "stack": stacks.stack_of(other)}
                for other in others.get(request, [])[:MOST_TASKS]
            ],
        }


def _text_of(request: InFlightRequest) -> str:
    """Return method and path of a request; empty if it is over."""
    scope = request.scope
    if scope is None:
        return ""
    return f"{escape(str(scope.get('method', 'GET')))} {quote(scope.get('path', ''))[:MOST_TEXT]}"


def _listed(watch: StallWatch) -> list[StallListing]:
    return [
        {
            "route": escape(route),
            "kind": kind,
            "count": record.count,
            "seconds": round(record.nanoseconds / 1e9, 3),
            "longest": round(record.worst.nanoseconds / 1e9, 3),
            "when": when_of(record.worst.when),
            "what": escape(record.worst.what),
            "request": record.worst.request,
            "stack": stacks.lines_at(record.worst.stack),
        }
        for route, kind, record in sorted_records(watch.records)[:MOST_STALLS]
    ]


class Question:
    """One that an event loop was asked, and its answer."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._asked_at = time.monotonic()
        self._is_answered = threading.Event()
        self._listing: LoopListing | None = None

    def answer(self) -> None:
        """Called by the loop."""
        self._listing = self._observer.answer()
        self._is_answered.set()

    def listing(self, until: float) -> LoopListing:
        """Return the answer, or a partial one if there is none until then (`time.monotonic()`)."""
        self._is_answered.wait(max(0.0, until - time.monotonic()))
        return self._listing or self._observer.answer_from_outside(time.monotonic() - self._asked_at)


def listings_of(observers: Sequence[Observer]) -> list[LoopListing]:
    """Ask all of them, side by side."""
    questions = [observer.ask() for observer in observers]
    until = time.monotonic() + PATIENCE
    return [question.listing(until) for question in questions]


def _address(client: Any) -> str:
    """Host and port, as far as they are there; a proxy may have said anything."""
    return "-" if not client else escape_word(f"{client[0]}:{client[1]}"[:MOST_TEXT])


# Telling.


def shown(listings: Sequence[LoopListing], as_json: bool = False) -> str:
    """Return them as a page that people read, or as JSON."""
    if as_json:
        return json.dumps({"loops": list(listings)}, indent=1)
    return "\n".join(line for listing in listings for line in _page(listing))


def _page(listing: LoopListing) -> Iterator[str]:
    count = listing["in_flight"]
    yield f"Process {listing['pid']}, {listing['thread']}: {count} request{'' if count == 1 else 's'} in flight"
    if listing["overdue"]:
        yield f"  The event loop has not turned for {listing['overdue']:.3f} s; it is here:"
        yield from _indented(listing["stack"])
    for request in listing["requests"]:
        query = "" if not request["query"] else f"?{request['query']}"
        named = "" if request["request_id"] is None else f"  id {request['request_id']}"
        kind = "WebSocket" if request["type"] == "websocket" else request["method"]
        yield (
            f"  {request['age']:9.3f} s  {kind} {request['path']}{query}  HTTP/{request['http_version']}  "
            f"from {request['client']}  {request['task']}{named}"
        )
        yield from _indented(request["stack"])
        for task in request["tasks"]:
            yield f"      beside it {task['task']}"
            yield from _indented(task["stack"])
    if count > len(listing["requests"]):
        yield f"  ... {count - len(listing['requests'])} more"
    if listing["threshold"] > 0:
        stalled = sum(one["count"] for one in listing["stalls"]) or "none"
        yield f"  Stalls longer than {listing['threshold']:g} s: {stalled}"
    yield from _stalls(listing["stalls"])


def _stalls(stalls: Sequence[StallListing]) -> Iterator[str]:
    for one in stalls:
        yield f"  {one['seconds']:9.3f} s  {one['kind']}  route {one['route']}  in {one['count']}"
        yield f"      longest {one['longest']:.3f} s  {one['when']}  {one['what']}  {one['request']}".rstrip()
        yield from _indented(one["stack"])


def shown_stalls(listings: Sequence[LoopListing], as_json: bool = False) -> str:
    """Return the worst stalls of all loops together, and where blocked loops are, as a page or as JSON."""
    found: dict[tuple[str, str], StallListing] = {}
    for one in (one for listing in listings for one in listing["stalls"]):
        known = found.get((one["route"], one["kind"]), one)
        worst = max(known, one, key=lambda each: each["longest"])
        merged = worst.copy()
        if known is not one:
            merged["count"] = known["count"] + one["count"]
            merged["seconds"] = round(known["seconds"] + one["seconds"], 3)
        found[one["route"], one["kind"]] = merged
    stalls = sorted(found.values(), key=lambda one: -one["seconds"])[:MOST_STALLS]
    blocked = [listing for listing in listings if listing["overdue"]]
    if as_json:
        names = ("pid", "thread", "overdue", "stack")
        now = [{name: value for name, value in listing.items() if name in names} for listing in blocked]
        return json.dumps({"stalls": stalls, "blocked": now}, indent=1)
    lines = [f"Stalls by route: {sum(one['count'] for one in stalls) or 'none'}", *_stalls(stalls)]
    for listing in blocked:
        lines.append(f"Process {listing['pid']}, {listing['thread']}, has not turned for {listing['overdue']:.3f} s:")
        lines += _indented(listing["stack"])
    return "\n".join(lines)


def _indented(lines: Sequence[str]) -> Iterator[str]:
    return (f"        {line}" for line in lines)


# SIGUSR1


class OnSignal:
    """Writes the listings to the log at each SIGUSR1, from `start` to `stop`; in the main thread only.

    Has no effect if the platform lacks that signal, or the program handles it.
    """

    def __init__(self, observers: Callable[[], Sequence[Observer]]) -> None:
        self._observers = observers
        self._is_writing = threading.Lock()
        self._has_handler = False

    def start(self) -> None:
        """Take the signal."""
        number = _SIGNAL
        if number is None or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda sig, frame: self.write_soon())
            self._has_handler = True

    def stop(self) -> None:
        """Leave the signal as it was found."""
        number = _SIGNAL
        if number is not None and self._has_handler:
            self._has_handler = False
            signal.signal(number, signal.SIG_DFL)

    def write_soon(self) -> None:
        """Have another thread write it: the handler may have interrupted a call of `logging`."""
        threading.Thread(target=self._write, name="uvicorn-requests", daemon=True).start()

    def _write(self) -> None:
        if self._is_writing.acquire(blocking=False):
            try:
                write(listings_of(self._observers()))
            finally:
                self._is_writing.release()


class Debugging:
    """Observation of the running event loop until `close`, with a report at a signal if `on_signal`.

    Attributes:
        observer: of the loop.
    """

    def __init__(self, observer: Observer, on_signal: bool) -> None:
        self.observer = observer
        self._on_signal = OnSignal(lambda: [observer])
        observer.start()
        if on_signal:
            self._on_signal.start()

    def close(self) -> None:
        """Stop observing."""
        self._on_signal.stop()
        self.observer.stop()


def write(listings: Sequence[LoopListing]) -> None:
    """Write the listings to the log."""
    logger.info("%s", shown(listings))
