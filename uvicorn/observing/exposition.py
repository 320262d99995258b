"""Adds up the counts of event loops, and serves them over HTTP in Prometheus' format.

A `MetricsAggregator` has the pages of the running loops and the sums of those that ended, so no counts are lost when a
worker exits. An `Exposition` serves it on a separate address and in a separate thread, so that it answers while an
event loop is blocked.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import logging
import math
import os
import secrets
import selectors
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from enum import IntEnum
from functools import partial
from itertools import chain
from typing import Any
from urllib.parse import parse_qs

from uvicorn.listening import handover
from uvicorn.listening.sockets import parse_address
from uvicorn.metrics import page as metrics
from uvicorn.metrics.page import BOUNDS, CLASSES, FAMILIES, METHODS, PAIRS, PLACES, STATUS_CLASSES, Page
from uvicorn.metrics.route_table import RouteFigures, RouteTotals, Shape
from uvicorn.metrics.stalls import StallTotal, StallTotals, add_up
from uvicorn.observing.orders import KINDS, PATHS, Answer, Order, order_of
from uvicorn.observing.route_exposition import route_lines
from uvicorn.observing.text_format import escaped, head, histogram, sample
from uvicorn.worker_events import EventKind

PLAIN_TEXT = "text/plain; charset=utf-8"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPEN_CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

PATIENCE = 2.0
"""Seconds that a client has to send its request, and then to read the response."""

RESULT_PATIENCE = 30.0
"""Seconds that a client has to read the result of a measurement, which may have megabytes."""

MOST_CLIENTS = 64
"""Connections at a time."""

BACKLOG = 128
"""Connections that wait to be accepted."""

LONGEST_HEAD = 8192
"""Bytes of the head of a request."""

NO_THREAD = b"There is no room for a thread.\n"


logger = logging.getLogger("uvicorn.error")


@dataclass(frozen=True)
class Lost:
    """Requests and connections still open when their worker ended: it crashed, was killed or ran out of time."""

    requests: int = 0
    connections: int = 0

    @classmethod
    def of(cls, page: Page) -> Lost:
        """Count the requests and connections still open in the event loop of `page`."""
        words = page.words
        requests, connections = (
            words[metrics.BEGUN] - words[metrics.ENDED],
            words[metrics.CONNECTIONS_OPENED] - words[metrics.CONNECTIONS_CLOSED],
        )
        return cls(max(0, requests), max(0, connections))

    def __add__(self, other: Lost) -> Lost:
        return Lost(self.requests + other.requests, self.connections + other.connections)


class MetricsAggregator:
    """The pages of several event loops. Used by more than one thread.

    Args:
        shape: of the table of routes in each page.
    """

    def __init__(self, shape: Shape = Shape()) -> None:  # noqa: B008 - a tuple
        self._shape = shape
        self._by_route = RouteTotals(self._shape)
        self._lock = threading.Lock()
        self._pages: list[Page] = []
        self._past = [0] * PLACES
        self._past_stalls: StallTotals = {}
        self._lost = Lost()
        self._inherited = [0] * PLACES
        self._inherited_lost = Lost()
        self._inherited_stalls: StallTotals = {}
        self._made = 0

    def page(self, shared: bool) -> Page:
        """A new one; `shared` for another process.

        Raises:
            OSError: there is no memory for it.
        """
        with self._lock:
            self._made += 1
            page = Page.make(
                f"uvicorn-metrics-{os.getpid()}-{id(self):x}-{self._made}" if shared else "", self._shape.words
            )
            self._pages.append(page)
        return page

    def retire(self, page: Page) -> None:
        """Its event loop has ended, however that happened: its counts stay, its gauges are gone."""
        with self._lock:
            if page not in self._pages:
                return
            self._pages.remove(page)
            self._lost += Lost.of(page)
            past = [sum(numbers) for numbers in zip(self._past, page.words[:PLACES], strict=True)]
            for begun, ended in PAIRS:
                past[ended] = past[begun]
            self._past = past
            if self._shape.capacity:
                self._by_route.retire(page.words)
            add_up(self._past_stalls, page.stalls.totals())
        page.close()

    # Succession

    def counts(self) -> dict[str, Any]:
        """Return all counts for a successor, as JSON has them, without gauges: the successor counts on from them."""
        totals = self.totals()
        for begun, ended in PAIRS:
            totals[ended] = totals[begun]
        found: dict[str, Any] = {"layout": metrics.LAYOUT, "totals": totals, "lost": astuple(self.lost)}
        found["stalls"] = [[*key, *total] for key, total in self.stalls().items()]
        if (routes := self.routes()) is not None:
            found["bounds"], found["routes"] = routes.shape.bounds, routes.without_gauges()
        return found

    def inherit(self, counts: Mapping[str, Any]) -> None:
        """Add the counts of a predecessor from now on, in place of those that it has sent before.

        If another version has counted otherwise they begin at 0, and so do those by route if the buckets are others.
        """
        try:
            totals, lost = [int(number) for number in counts["totals"]], Lost(*map(int, counts["lost"]))
            if counts["layout"] != metrics.LAYOUT or len(totals) != PLACES:
                return
            stalls: StallTotals = {(route, kind): StallTotal(*total) for route, kind, *total in counts["stalls"]}
            routes = RouteFigures(self._shape)
            if self._shape.capacity and counts.get("bounds") == list(self._shape.bounds):
                for kind, route, numbers in counts["routes"]:
                    routes.add(kind, route, numbers, [None] * self._shape.layout.buckets)
        except (KeyError, TypeError, ValueError):
            logger.debug("Cannot read the counts of the predecessor", exc_info=True)
            return
        with self._lock:
            self._inherited, self._inherited_lost, self._inherited_stalls = totals, lost, stalls
            self._by_route.inherit(routes)

    @property
    def lost(self) -> Lost:
        """Requests and connections that were still open when their event loops ended."""
        with self._lock:
            return self._lost + self._inherited_lost

    def certificates(self, names: Sequence[str]) -> dict[str, int]:
        """When the certificates of these names expire: of several that are shown in different loops the first."""
        with self._lock:
            pages = list(self._pages)
        known: dict[str, int] = {}
        for place, name in enumerate(names[: metrics.MOST_CERTIFICATES], metrics.CERTIFICATES):
            times = [time for page in pages if (time := page.words[place])]
            if times:
                known[name] = min(times)
        return known

    def stalls(self) -> StallTotals:
        """The stalls of all event loops."""
        with self._lock:
            totals = self._past_stalls.copy()
            add_up(totals, self._inherited_stalls.items())
            for page in self._pages:
                add_up(totals, page.stalls.totals())
        return totals

    def totals(self) -> list[int]:
        """The counts of all event loops."""
        with self._lock:
            counted = (page.words[:PLACES] for page in self._pages)
            return [sum(numbers) for numbers in zip(self._past, self._inherited, *counted, strict=True)]

    def routes(self) -> RouteFigures | None:
        """The counts of all event loops by route; None if they are not counted by route."""
        if not self._shape.capacity:
            return None
        with self._lock:
            return self._by_route.figures([page.words for page in self._pages])


@dataclass(frozen=True)
class WorkerFigures:
    """A supervisor's knowledge of its workers.

    Attributes:
        resident: bytes of each process that are in memory, by its id.
        events: counts of worker events by kind and reason.
        certificates: expiry of each certificate that new connections are shown, in seconds since the epoch, by name.
        lost: requests and connections that were still open when their workers ended.
        routes: counts by route, if there are any.
        stalls: those of their event loops.
    """

    resident: Mapping[int, int]
    events: Mapping[tuple[EventKind, str | None], int]
    certificates: Mapping[str, int] = field(default_factory=dict)
    lost: Lost = Lost()
    routes: RouteFigures | None = None
    stalls: StallTotals = field(default_factory=dict)


_SAME_AS_GAUGE = "uvicorn_connections_total"
"""A counter whose family would have the name of a gauge; its name stays, and its type becomes `unknown`."""


def render(totals: Sequence[int], workers: WorkerFigures, is_open: bool = False) -> str:
    """Return the text of all metrics; `is_open`: in the format of OpenMetrics, which has exemplars."""
    lines = _lines(totals, workers)
    if workers.routes is not None:
        lines = chain(lines, route_lines(workers.routes, is_open))
    return "\n".join([*map(_opened, lines), "# EOF", ""] if is_open else [*lines, ""])


def _opened(line: str) -> str:
    """Return a line as OpenMetrics has it, where a counter's family is named without `_total`."""
    if not line.startswith("# "):
        return line
    mark, keyword, name, text = line.split(" ", 3)
    if name == _SAME_AS_GAUGE:
        return f"{mark} {keyword} {name} unknown" if keyword == "TYPE" else line
    return f"{mark} {keyword} {name.removesuffix('_total')} {text}"


def _lines(totals: Sequence[int], workers: WorkerFigures) -> Iterator[str]:
    yield from _requests(totals)
    yield from _histogram("request_duration_seconds", "From request head to response end.", totals, metrics.DURATION)
    in_flight = max(0, totals[metrics.BEGUN] - totals[metrics.ENDED])
    yield from _single("requests_in_flight", "gauge", "Requests being answered.", in_flight)
    yield from _single(
        "requests_lost_total",
        "counter",
        "Unfinished requests of workers that crashed or were killed.",
        workers.lost.requests,
    )
    yield from _histogram(
        "request_queue_wait_seconds",
        "From readable connection to application call; in the native core without the wait for admission.",
        totals,
        metrics.QUEUE_WAIT,
    )
    yield from _histogram(
        "loop_lag_seconds", "Delay of event loop callbacks, sampled twice a second.", totals, metrics.LOOP_LAG
    )
    yield from _connections(totals, in_flight)
    yield from _single(
        "connections_lost_total",
        "counter",
        "Open connections of workers that crashed or were killed.",
        workers.lost.connections,
    )
    yield from _admission(totals)
    for family in FAMILIES:
        if family.needs is None or totals[family.needs]:
            numbers = ((labels, max(0, totals[place] - _ended(totals, less))) for labels, place, less in family.samples)
            yield from _family(family.name, family.kind, family.text, numbers)
    yield from _family(
        "worker_resident_bytes",
        "gauge",
        "Memory of each serving process.",
        ((f'pid="{pid}"', size) for pid, size in workers.resident.items()),
    )
    yield from _family(
        "worker_events_total",
        "counter",
        "Starts, ends and other events of workers.",
        ((f'event="{kind}",reason="{reason or ""}"', count) for (kind, reason), count in workers.events.items()),
    )

    if workers.stalls:
        yield from _stalls(workers.stalls)
    if workers.certificates:
        now = time.time()
        yield from _family(
            "tls_certificate_expiry_seconds",
            "gauge",
            "Seconds until the certificate in use expires; default, or a name of --ssl-cert.",
            ((f'name="{name}"', int(end - now)) for name, end in workers.certificates.items()),
        )


def _stalls(totals: StallTotals) -> Iterator[str]:
    """The metrics of `stall_threshold`."""
    found = [(f'route="{escaped(route)}",kind="{kind}"', total) for (route, kind), total in sorted(totals.items())]
    yield from _family(
        "stalls_total",
        "counter",
        "Stalls of event loops: turns longer than `--stall-threshold`.",
        ((labels, total.number) for labels, total in found),
    )
    yield from _family(
        "stall_seconds_total",
        "counter",
        "Duration of these stalls.",
        ((labels, total.nanoseconds / 1e9) for labels, total in found),
    )


def _requests(totals: Sequence[int]) -> Iterator[str]:
    places = enumerate(totals[metrics.REQUESTS : metrics.REQUESTS + len(METHODS) * STATUS_CLASSES])
    samples = (
        (f'method="{METHODS[place // STATUS_CLASSES]}",status="{CLASSES[place % STATUS_CLASSES]}"', count)
        for place, count in places
        if count
    )
    yield from _family(
        "requests_total", "counter", "Completed requests; none is the status of those without a response.", samples
    )


def _connections(totals: Sequence[int], in_flight: int) -> Iterator[str]:
    """There may be more requests in flight than connections that ask: each number is of another moment."""
    websockets = max(0, totals[metrics.UPGRADED] - totals[metrics.SESSIONS_CLOSED])
    others = max(0, totals[metrics.CONNECTIONS_OPENED] - totals[metrics.CONNECTIONS_CLOSED] - websockets)
    beside = totals[metrics.CONCURRENT] - totals[metrics.CONCURRENT_ENDED]
    active = min(max(0, in_flight - beside), others)
    states = (("active", active), ("idle", others - active), ("websocket", websockets))
    samples = ((f'state="{state}"', count) for state, count in states)
    yield from _family(
        "connections", "gauge", "Open connections; a WebSocket over HTTP/2 counts beside its connection.", samples
    )
    accepted = totals[metrics.CONNECTIONS_OPENED] - totals[metrics.UPGRADED]
    yield from _single("connections_total", "counter", "Connections served.", accepted)


def _ended(totals: Sequence[int], place: int | None) -> int:
    return 0 if place is None else totals[place]


def _admission(totals: Sequence[int]) -> Iterator[str]:
    """The metrics of `limit_active_requests`; none without a limit."""
    if not totals[metrics.LIMIT_RAISED]:
        return
    parked = totals[metrics.PARKED] - totals[metrics.UNPARKED]
    active = max(0, totals[metrics.ADMITTED] - totals[metrics.RELEASED] - parked)
    yield from _single("active_requests", "gauge", "Requests that are admitted and run.", active)


def _single(name: str, kind: str, text: str, value: int) -> Iterator[str]:
    yield from _family(name, kind, text, [("", value)])


def _family(name: str, kind: str, text: str, samples: Iterable[tuple[str, float]]) -> Iterator[str]:
    yield from head(name, kind, text)
    for labels, value in samples:
        yield sample(name, labels, value)


def _histogram(name: str, text: str, totals: Sequence[int], begin: int) -> Iterator[str]:
    yield from head(name, "histogram", text)
    yield from histogram(name, "", BOUNDS, totals[begin : begin + metrics.BUCKETS + 1])


# Telling.


def bind(address: str, use: handover.Use = handover.Use.METRICS) -> socket.socket:
    """A socket that listens there, taken over from a predecessor that has one for the same use.

    Raises:
        OSError: it cannot.
    """
    host, port = parse_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = handover.current.take(family, (host, port), use)
    return sock or socket.create_server((host, port), family=family, backlog=BACKLOG)


running: weakref.WeakSet[Exposition] = weakref.WeakSet()
"""Those of this process that answer."""


class _Stage(IntEnum):
    """How far a connection has come."""

    READING = 0
    TELLING = 1
    WRITING = 2
    DRAINING = 3
    MEASURING = 4


class _Client:
    """One connection.

    Attributes:
        sock: the same.
        until: when it is closed, if it has not reached its next stage.
        stage: how far it has come.
        head: of the request, as far as it is there.
        out: bytes to be written.
        is_over: set to stop its measurement, if it waits for one.
        is_answered: set when it has the result of that, or has left.
    """

    __slots__ = ("sock", "until", "stage", "head", "out", "is_over", "is_answered")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.until = time.monotonic() + PATIENCE
        self.stage = _Stage.READING
        self.head = b""
        self.out = memoryview(b"")
        self.is_over: threading.Event | None = None
        self.is_answered = threading.Event()


class Exposition:
    """Answers `GET /metrics` with the result of `text`, from `start` to `close`.

    `text` is called with whether the client accepts OpenMetrics.

    One thread serves all connections, none of which waits for another. There are no more than `MOST_CLIENTS`: for one
    more, the oldest is closed that has not asked yet, or else the oldest that does not wait for a thread: those had to
    present the token.
    """

    fields = ""
    """Further fields of every response."""

    def __init__(self, listener: socket.socket, text: Callable[[bool], str]) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._text = text
        self._listings: dict[bytes, Callable[[bool], str]] = {}
        self._token = ""
        self._thread = threading.Thread(target=self._serve, name="uvicorn-metrics", daemon=True)
        self._is_closed = False
        self._selector = selectors.DefaultSelector()
        self._clients: dict[_Client, None] = {}  # in the order in which they came
        self._telling: _Client | None = None  # of requests: event loops are asked, and may be blocked
        self._told: deque[tuple[_Client, str, bytes, str]] = deque()
        self._measure: Callable[[Order, threading.Event], Answer] | None = None
        self._measuring: _Client | None = None
        self._aggregators: Mapping[str, MetricsAggregator] = {}
        self._alarm, self._bell = socket.socketpair()
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._alarm, selectors.EVENT_READ)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self._listener.getsockname()[:2]
        return host, port

    @property
    def listener(self) -> socket.socket:
        """The listening socket."""
        return self._listener

    def start(self) -> None:
        """Answer from now on, or once the predecessor that this process takes over from has stopped answering.

        Prometheus would take alternating answers of both for counters that are reset time and again.
        """
        running.add(self)
        host, port = self.address
        logger.info("Metrics on http://%s:%d/metrics", _in_url(host), port)
        handover.current.inherit(self._inherit)

    def hand_on(self, aggregators: Mapping[str, MetricsAggregator]) -> None:
        """Take the counts of a predecessor into these, by pool, and give theirs to a successor."""
        self._aggregators = aggregators

    def counts(self) -> dict[str, Any]:
        """Return the counts for a successor, by pool."""
        return {pool: aggregator.counts() for pool, aggregator in self._aggregators.items()}

    def _inherit(self, counts: Any) -> None:
        if isinstance(counts, dict):
            for pool, aggregator in self._aggregators.items():
                if pool in counts:
                    aggregator.inherit(counts[pool])
        if self._thread.ident is None and not self._is_closed:
            self._thread.start()

    def tell_requests(self, requests: Callable[[bool], str]) -> None:
        """Answer `/requests` as well, and `/requests.json`, for which `requests` is called with true.

        The address of a connection does not identify its client: a local proxy connects on behalf of any client, a
        browser on behalf of the pages it shows, and so can every user of the machine. So requests need a token, which
        is generated at each start and is in the log only, as is the list itself at a signal. Other machines are
        refused, because the token would cross the network in clear text.
        """
        self._listings[b"/requests"] = requests
        logger.info("Requests in flight (this machine only) on %s", self._protected("requests"))

    def tell_stalls(self, stalls: Callable[[bool], str]) -> None:
        """Answer `/stalls` and `/stalls.json` in the same way."""
        self._listings[b"/stalls"] = stalls
        logger.info("Stalls of event loops (this machine only) on %s", self._protected("stalls"))

    def _protected(self, path: str) -> str:
        """Return the address of a path that needs the token."""
        self._token = self._token or secrets.token_urlsafe(24)
        host, port = self.address
        if (address := ipaddress.ip_address(host)).is_unspecified:
            host = "127.0.0.1" if address.version == 4 else "::1"
        return f"http://{_in_url(host)}:{port}/{path}?token={self._token}"

    def measure_on_demand(self, measure: Callable[[Order, threading.Event], Answer]) -> None:
        """Answer `/profile` and `/memory` too, to the same clients as `/requests`; see `orders`.

        `measure` carries an order out, in a thread, until it is done or the event is set: the client has left, or this
        ends.
        """
        self._measure = measure

    def close(self) -> None:
        """Stop answering; the client of a measurement has the result up to now."""
        measured = [client for client in list(self._clients) if client.is_over is not None]
        if self._thread.is_alive():
            for client in measured:
                if client.is_over is not None:
                    client.is_over.set()
            deadline = time.monotonic() + PATIENCE
            for client in measured:
                client.is_answered.wait(max(0.0, deadline - time.monotonic()))
        running.discard(self)
        self._is_closed = True
        self._listener.close()
        self._ring()
        if self._thread.ident is None:
            self._close_all()

    def join(self) -> None:
        """Wait until no more answers are composed, after `close`."""
        if self._thread.ident is not None:
            self._thread.join(PATIENCE)

    def forget(self) -> None:
        """Called in a child that was forked, where the thread is not."""
        self._close_all()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):
            self._bell.send(b"\0")

    def _close_all(self) -> None:
        self._selector.close()
        for sock in (self._listener, self._alarm, self._bell, *(client.sock for client in list(self._clients))):
            sock.close()

    def _serve(self) -> None:
        while not self._is_closed:
            try:
                self._turn()
            except Exception:
                if not self._is_closed:
                    # One client's input must not keep the others from an answer.
                    logger.exception("Error while serving metrics; serving them again")
                    time.sleep(0.1)
        self._close_all()

    def _turn(self) -> None:
        """Wait until something happens, and see to it."""
        due = min((client.until for client in self._clients), default=math.inf)
        timeout = None if due == math.inf else max(0.0, due - time.monotonic())
        for key, _ in self._selector.select(timeout):
            client = key.data
            if client is not None:
                self._attend(client)
            elif key.fileobj is self._alarm:
                self._alarm.recv(64)
                while self._told:
                    client, status, body, kind = self._told.popleft()
                    self._attend(client, partial(self._say, status=status, body=body, kind=kind))
            else:
                self._accept()
        now = time.monotonic()
        for client in [client for client in self._clients if client.until <= now]:
            self._drop(client)

    def _accept(self) -> None:
        """Accept the pending connections. Mostly their requests have arrived, too."""
        for _ in range(BACKLOG):
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                if not self._is_closed:
                    time.sleep(0.1)  # descriptors may have run out
                return
            sock.setblocking(False)
            if len(self._clients) >= MOST_CLIENTS:
                self._drop(min(self._clients, key=lambda client: _EVICTIONS[client.stage]))
            client = _Client(sock)
            self._clients[client] = None
            self._selector.register(sock, selectors.EVENT_READ, client)
            self._attend(client)

    def _drop(self, client: _Client) -> None:
        if client in self._clients:
            del self._clients[client]
            if client.is_over is not None:
                client.is_over.set()
                client.is_answered.set()
            if client.stage is not _Stage.TELLING:
                self._selector.unregister(client.sock)
            client.sock.close()

    def _attend(self, client: _Client, step: Callable[[_Client], None] | None = None) -> None:
        """Read and write as much on one connection as is possible now."""
        if client not in self._clients:
            return
        try:
            if step is None:
                _STEPS[client.stage](self, client)
            else:
                step(client)
        except BlockingIOError:
            pass
        except OSError:
            self._drop(client)  # the client is gone
        except Exception:
            logger.exception("Cannot answer a request for metrics; closing its connection")
            self._drop(client)

    def _read(self, client: _Client) -> None:
        while client.stage is _Stage.READING:
            data = client.sock.recv(4096)
            client.head += data
            if not data or b"\r\n\r\n" in client.head or len(client.head) >= LONGEST_HEAD:
                self._answer(client)

    def _answer(self, client: _Client) -> None:
        method, _, rest = client.head.partition(b" ")
        path, _, query = rest.partition(b" ")[0].partition(b"?")
        listing = path.removesuffix(b".json")
        if not _is_whole(client):
            is_long = len(client.head) >= LONGEST_HEAD
            self._say(client, "431 Request Header Fields Too Large" if is_long else "400 Bad Request", b"")
        elif method not in (b"GET", b"HEAD"):
            self._say(client, "405 Method Not Allowed", b"Only GET is served here.\n")
        elif listing in self._listings:
            self._answer_listing(client, query, self._listings[listing], path != listing)
        elif self._measure is not None and path.decode("latin-1") in PATHS:
            self._answer_measurement(client, path.decode(), query, self._measure)
        elif path not in (b"/metrics", b"/"):
            self._say(client, "404 Not Found", b"See /metrics.\n")
        else:
            is_open = accepts_open(client.head)
            kind = OPEN_CONTENT_TYPE if is_open else CONTENT_TYPE
            self._say(client, *self._text_or_fault(lambda: self._text(is_open), kind))

    def _answer_listing(self, client: _Client, query: bytes, listing: Callable[[bool], str], as_json: bool) -> None:
        if not self._may_ask(client, parse_qs(query.decode("latin-1")).get("token", [])):
            return
        if self._telling is not None:
            self._say(client, "503 Service Unavailable", b"Another request is being answered.\n")
        else:
            self._telling = client
            self._selector.unregister(client.sock)
            client.stage, client.until = _Stage.TELLING, math.inf

            def tell() -> None:
                kind = "application/json" if as_json else PLAIN_TEXT
                told = self._text_or_fault(lambda: listing(as_json) + "\n", kind)
                self._telling = None
                self._told.append((client, *told))
                self._ring()

            try:
                threading.Thread(target=tell, name="uvicorn-metrics-requests", daemon=True).start()
            except RuntimeError:
                self._telling = None
                self._say(client, "503 Service Unavailable", NO_THREAD)

    def _may_ask(self, client: _Client, given: list[str]) -> bool:
        """Refuse a client of another machine, or without the token."""
        if not is_local(client.sock.getpeername()[0], client.sock.getsockname()[0]):
            self._say(client, "403 Forbidden", b"Only served to clients on this machine.\n")
        elif len(given) != 1 or not hmac.compare_digest(given[0].encode(), self._token.encode()):
            self._say(client, "403 Forbidden", b"Only served with the token, which is in the log.\n")
        else:
            return True
        return False

    def _answer_measurement(
        self, client: _Client, path: str, text: bytes, measure: Callable[[Order, threading.Event], Answer]
    ) -> None:
        query = parse_qs(text.decode("latin-1"), keep_blank_values=True)
        if not self._may_ask(client, query.get("token", [])):
            return
        try:
            order = order_of(path, query)
        except ValueError as exc:
            self._say(client, "400 Bad Request", f"{exc}\n".encode())
            return
        if self._measuring is not None:
            self._say(
                client, "503 Service Unavailable", b"Another measurement is running; try again when it has ended.\n"
            )
            return
        if client.head.startswith(b"HEAD "):
            self._say(client, "200 OK", b"", KINDS[order.format])
            return
        self._measuring = client
        client.is_over = is_over = threading.Event()
        client.stage, client.until = _Stage.MEASURING, math.inf

        def carry_out() -> None:
            try:
                answer = measure(order, is_over)
            except Exception:
                logger.exception("Cannot measure (%s); answering 500", path)
                answer = Answer.refusal("500 Internal Server Error", "See the log.")
            self._told.append((client, answer.status, answer.body, answer.kind))
            self._measuring = None
            self._ring()

        try:
            threading.Thread(target=carry_out, name="uvicorn-measurement", daemon=True).start()
        except RuntimeError:
            self._measuring = None
            self._say(client, "503 Service Unavailable", NO_THREAD)

    def _text_or_fault(self, text: Callable[[], str], kind: str) -> tuple[str, bytes, str]:
        """Return status, body and content type of an answer with a text of this kind."""
        try:
            return "200 OK", text().encode(), kind
        except Exception:
            # Monitoring must not end the server.
            logger.exception("Cannot collect the metrics; answering 500")
            return "500 Internal Server Error", b"See the log.\n", PLAIN_TEXT

    def _say(self, client: _Client, status: str, body: bytes, kind: str = PLAIN_TEXT) -> None:
        """Answer."""
        lines = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{self.fields}"
        lines += "connection: close\r\n\r\n"
        client.out = memoryview(lines.encode() + (b"" if client.head.startswith(b"HEAD ") else body))
        if client.stage is _Stage.TELLING:
            self._selector.register(client.sock, selectors.EVENT_WRITE, client)
        else:
            self._selector.modify(client.sock, selectors.EVENT_WRITE, client)
        patience = PATIENCE if client.is_over is None else RESULT_PATIENCE
        client.stage, client.until = _Stage.WRITING, time.monotonic() + patience
        self._write(client)

    def _write(self, client: _Client) -> None:
        client.out = client.out[client.sock.send(client.out) :]
        if client.out:
            return
        if _is_whole(client) and client.head.startswith((b"GET ", b"HEAD ")) and client.head.endswith(b"\r\n\r\n"):
            self._drop(client)
            return
        # Closing before the client's data ends would lose it the answer (RFC 9112 section 9.6).
        client.sock.shutdown(socket.SHUT_WR)
        self._selector.modify(client.sock, selectors.EVENT_READ, client)
        client.stage = _Stage.DRAINING
        self._drain(client)

    def _drain(self, client: _Client) -> None:
        """Notice that a client leaves; what it sends does not matter."""
        for _ in range(BACKLOG):
            if not client.sock.recv(4096):
                self._drop(client)
                return


_EVICTIONS = {
    _Stage.READING: 0,
    _Stage.WRITING: 1,
    _Stage.DRAINING: 1,
    _Stage.TELLING: 2,
    _Stage.MEASURING: 2,
}
"""Which clients are closed first when there are too many."""

_STEPS = {
    _Stage.READING: Exposition._read,
    _Stage.WRITING: Exposition._write,
    _Stage.DRAINING: Exposition._drain,
    _Stage.MEASURING: Exposition._drain,
}


def accepts_open(head: bytes) -> bool:
    """Tell whether a request accepts OpenMetrics, and prefers it to plain text."""
    best = {b"application/openmetrics-text": 0.0, b"text/plain": 0.0}
    for line in head.lower().split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name != b"accept":
            continue
        for member in value.split(b","):
            kind, *parameters = (part.strip() for part in member.split(b";"))
            weights = [part[2:] for part in parameters if part.startswith(b"q=")]
            try:
                weight = float(weights[0]) if weights else 1.0
            except ValueError:
                weight = 0.0
            if kind in best:
                best[kind] = max(best[kind], weight)
    open_weight, plain_weight = best.values()
    return open_weight > 0 and open_weight >= plain_weight


def _is_whole(client: _Client) -> bool:
    return b"\r\n\r\n" in client.head


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def is_local(peer: str, own: str) -> bool:
    """Tell whether a connection between these addresses does not leave this machine."""
    return peer == own or ipaddress.ip_address(peer.partition("%")[0]).is_loopback
