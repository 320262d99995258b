"""What event loops have counted, put together and told over HTTP as Prometheus reads it.

A `Board` has the pages of the loops that are there, and the sums of those that have ended: nothing that was counted is
lost when a worker goes. An `Exposition` tells of it, on an address of its own and in a thread of its own, so that it
answers, too, while an event loop is blocked.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from uvicorn import metrics
from uvicorn.metrics import BOUNDS, CLASSES, METHODS, PAIRS, PLACES, STATUS_CLASSES, Page
from uvicorn.overload import Reason
from uvicorn.sockets import parse_address
from uvicorn.worker_events import EventKind

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

PATIENCE = 5.0
"""Seconds that one who asks has, from the connection to the end of the answer; others wait meanwhile."""

LONGEST_HEAD = 8192
"""Bytes of the head of a request."""

REQUESTS_JSON = b"/requests.json"
REQUESTS = {b"/requests": "text/plain; charset=utf-8", REQUESTS_JSON: "application/json"}
"""Where requests in flight are told of, and the content types."""


logger = logging.getLogger("uvicorn.error")


class Board:
    """The pages of several event loops. Used by more than one thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pages: list[Page] = []
        self._past = [0] * PLACES
        self._made = 0

    def page(self, shared: bool) -> Page:
        """A new one; `shared` for another process.

        Raises:
            OSError: there is no memory for it.
        """
        with self._lock:
            self._made += 1
            page = Page.make(f"uvicorn-metrics-{os.getpid()}-{id(self):x}-{self._made}" if shared else "")
            self._pages.append(page)
        return page

    def retire(self, page: Page) -> None:
        """Its event loop has ended, however that happened: what it has counted stays, what it had is gone."""
        with self._lock:
            if page not in self._pages:
                return
            self._pages.remove(page)
            past = [sum(numbers) for numbers in zip(self._past, page.words, strict=True)]
            for begun, ended in PAIRS:
                past[ended] = past[begun]
            self._past = past
        page.close()

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

    def totals(self) -> list[int]:
        """What all have counted."""
        with self._lock:
            return [sum(numbers) for numbers in zip(self._past, *(page.words for page in self._pages), strict=True)]


@dataclass(frozen=True)
class WorkerFigures:
    """What a supervisor knows of its workers.

    Attributes:
        resident: bytes of each process that are in memory, by its id.
        events: how often what has happened: by kind and reason.
        certificates: when each expires that new connections are shown, in seconds since the epoch, by its name.
    """

    resident: Mapping[int, int]
    events: Mapping[tuple[EventKind, str | None], int]
    certificates: Mapping[str, int] = field(default_factory=dict)


def render(totals: Sequence[int], workers: WorkerFigures) -> str:
    """Return the text of all there is to tell."""
    return "\n".join([*_lines(totals, workers), ""])


def _lines(totals: Sequence[int], workers: WorkerFigures) -> Iterator[str]:
    yield from _requests(totals)
    yield from _histogram(
        "request_duration_seconds", "From the head of a request to the end of its response.", totals, metrics.DURATION
    )
    in_flight = max(0, totals[metrics.BEGUN] - totals[metrics.ENDED])
    yield from _single("requests_in_flight", "gauge", "Requests being answered.", in_flight)
    yield from _histogram(
        "request_queue_wait_seconds",
        "From when a request was noticed to the call of its application.",
        totals,
        metrics.QUEUE_WAIT,
    )
    yield from _histogram("loop_lag_seconds", "How late event loops were.", totals, metrics.LOOP_LAG)
    yield from _connections(totals, in_flight)
    for name, place in (("received", metrics.BYTES_RECEIVED), ("sent", metrics.BYTES_SENT)):
        yield from _single(f"{name}_bytes_total", "counter", f"Bytes {name}, without encryption.", totals[place])
    yield from _admission(totals)
    yield from _single(
        "websocket_sessions_total", "counter", "WebSockets that were accepted.", totals[metrics.ACCEPTED]
    )
    messages = (("received", metrics.MESSAGES_RECEIVED), ("sent", metrics.MESSAGES_SENT))
    yield from _family(
        "websocket_messages_total",
        "counter",
        "Messages of WebSockets.",
        ((f'direction="{name}"', totals[place]) for name, place in messages),
    )
    yield from _family(
        "worker_resident_bytes",
        "gauge",
        "Memory of each process.",
        ((f'pid="{pid}"', size) for pid, size in workers.resident.items()),
    )
    yield from _family(
        "worker_events_total",
        "counter",
        "Starts and ends of workers, and what else happened to them.",
        ((f'event="{kind}",reason="{reason or ""}"', count) for (kind, reason), count in workers.events.items()),
    )

    if workers.certificates:
        now = time.time()
        yield from _family(
            "tls_certificate_expiry_seconds",
            "gauge",
            "Until the certificate in use expires.",
            ((f'name="{name}"', int(end - now)) for name, end in workers.certificates.items()),
        )


def _requests(totals: Sequence[int]) -> Iterator[str]:
    places = enumerate(totals[metrics.REQUESTS : metrics.REQUESTS + len(METHODS) * STATUS_CLASSES])
    samples = (
        (f'method="{METHODS[place // STATUS_CLASSES]}",status="{CLASSES[place % STATUS_CLASSES]}"', count)
        for place, count in places
        if count
    )
    yield from _family("requests_total", "counter", "Requests that have ended.", samples)


def _connections(totals: Sequence[int], in_flight: int) -> Iterator[str]:
    """There may be more requests in flight than connections that ask: each number is of another moment."""
    websockets = max(0, totals[metrics.UPGRADED] - totals[metrics.SESSIONS_GONE])
    others = max(0, totals[metrics.OPENED] - totals[metrics.GONE] - websockets)
    beside = totals[metrics.BESIDE] - totals[metrics.BESIDE_ENDED]
    active = min(max(0, in_flight - beside), others)
    states = (("active", active), ("idle", others - active), ("websocket", websockets))
    samples = ((f'state="{state}"', count) for state, count in states)
    yield from _family("connections", "gauge", "Connections that are open.", samples)
    accepted = totals[metrics.OPENED] - totals[metrics.UPGRADED]
    refused = (("address", metrics.REFUSED), ("proxy_protocol", metrics.UNINTRODUCED))
    yield from _family(
        "connections_refused_total",
        "counter",
        "Connections that were closed before they were served: too many of an address, or a bad PROXY header.",
        ((f'reason="{reason}"', totals[place]) for reason, place in refused),
    )
    yield from _single("connections_total", "counter", "Connections that were served.", accepted)


def _admission(totals: Sequence[int]) -> Iterator[str]:
    """What `limit_active_requests` has done; nothing where there is no limit."""
    if not totals[metrics.LIMIT_RAISED]:
        return
    gauges = (
        ("active_requests_limit", "Requests that may be active.", metrics.LIMIT_RAISED, metrics.LIMIT_LOWERED),
        ("queued_requests", "Requests that wait to be admitted.", metrics.QUEUED, metrics.UNQUEUED),
        ("parked_requests", "Admitted requests that wait for their clients.", metrics.PARKED, metrics.UNPARKED),
    )
    parked = totals[metrics.PARKED] - totals[metrics.UNPARKED]
    active = max(0, totals[metrics.ADMITTED] - totals[metrics.RELEASED] - parked)
    yield from _single("active_requests", "gauge", "Requests that were admitted, and run.", active)
    for name, text, more, less in gauges:
        yield from _single(name, "gauge", text, max(0, totals[more] - totals[less]))
    counters = (
        ("admitted_requests_total", "Requests that were admitted.", metrics.ADMITTED),
        ("waited_requests_total", "Requests that have waited for it.", metrics.QUEUED),
    )
    for name, text, place in counters:
        yield from _single(name, "counter", text, totals[place])
    yield from _family(
        "refused_requests_total",
        "counter",
        "Requests that were refused because others were active.",
        ((f'reason="{reason.name.lower()}"', totals[metrics.SHED + reason]) for reason in Reason),
    )


def _single(name: str, kind: str, text: str, value: int) -> Iterator[str]:
    yield from _family(name, kind, text, [("", value)])


def _family(name: str, kind: str, text: str, samples: Iterable[tuple[str, int]]) -> Iterator[str]:
    yield f"# HELP uvicorn_{name} {text}"
    yield f"# TYPE uvicorn_{name} {kind}"
    for labels, value in samples:
        yield f"uvicorn_{name}{{{labels}}} {value}" if labels else f"uvicorn_{name} {value}"


def _histogram(name: str, text: str, totals: Sequence[int], begin: int) -> Iterator[str]:
    yield f"# HELP uvicorn_{name} {text}"
    yield f"# TYPE uvicorn_{name} histogram"
    count = 0
    for number, bound in enumerate([*map(str, BOUNDS), "+Inf"]):
        count += totals[begin + number]
        yield f'uvicorn_{name}_bucket{{le="{bound}"}} {count}'
    yield f"uvicorn_{name}_sum {totals[begin + metrics.BUCKETS] / 1e9}"
    yield f"uvicorn_{name}_count {count}"


# Telling.


def bind(address: str) -> socket.socket:
    """A socket that listens there.

    Raises:
        OSError: it cannot.
    """
    host, port = parse_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=16)


class Exposition:
    """Answers `GET /metrics` with what `text` returns, from `start` to `close`."""

    def __init__(self, listener: socket.socket, text: Callable[[], str]) -> None:
        self._listener = listener
        self._text = text
        self._requests: Callable[[bool], str] | None = None
        self._token = ""
        self._thread = threading.Thread(target=self._serve, name="uvicorn-metrics", daemon=True)
        self._is_closed = False

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self._listener.getsockname()[:2]
        return host, port

    def start(self) -> None:
        """Answer from now on."""
        host, port = self.address
        logger.info("Metrics on http://%s:%d/metrics", _in_url(host), port)
        self._thread.start()

    def tell_requests(self, requests: Callable[[bool], str]) -> None:
        """Answer `/requests` as well, and as JSON, for which it is told true, `/requests.json`.

        Where a connection comes from says nothing of who asks: a proxy on this machine connects from here for
        everybody, and need not say so; a browser, for the pages it shows; and every user of the machine can. So it is
        told to those who know a token, which is made anew each time and is in the log alone, as the list itself is when
        it is asked for by a signal. Nobody is to read it on the way, so other machines are not told at all.
        """
        self._token = secrets.token_urlsafe(24)
        self._requests = requests
        host, port = self.address
        if (address := ipaddress.ip_address(host)).is_unspecified:
            host = "127.0.0.1" if address.version == 4 else "::1"
        where = f"http://{_in_url(host)}:{port}/requests?token={self._token}"
        logger.info("Requests in flight, for this machine alone, on %s", where)

    def close(self) -> None:
        """Answer no more."""
        self._is_closed = True
        with contextlib.suppress(OSError):  # what wakes a thread that accepts is not the same everywhere
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def forget(self) -> None:
        """Called in a child that was forked, where the thread is not."""
        self._listener.close()

    def _serve(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                if not self._is_closed:
                    time.sleep(0.1)  # descriptors may have run out
                continue
            with client:
                try:
                    self._answer(client)
                except OSError:
                    pass  # whoever asked is gone, or too slow
                except Exception:
                    # Nothing that somebody sends is to leave all others without an answer.
                    logger.exception("A request for the metrics could not be answered")

    def _answer(self, client: socket.socket) -> None:
        until = time.monotonic() + PATIENCE
        head = _receive_head(client, until)
        is_whole = b"\r\n\r\n" in head
        method, _, rest = head.partition(b" ")
        path, _, query = rest.partition(b" ")[0].partition(b"?")
        if not is_whole:
            is_long = len(head) >= LONGEST_HEAD
            status, body = "431 Request Header Fields Too Large" if is_long else "400 Bad Request", b""
        elif method not in (b"GET", b"HEAD"):
            status, body = "405 Method Not Allowed", b"Only GET is served here.\n"
        elif self._requests is not None and path in REQUESTS:
            status, body = self._requests_for(client, query, self._requests, path == REQUESTS_JSON)
        elif path not in (b"/metrics", b"/"):
            status, body = "404 Not Found", b"See /metrics.\n"
        else:
            status, body = self._told(self._text)
        kind = "text/plain; charset=utf-8"
        if status.startswith("200"):
            kind = REQUESTS.get(path, CONTENT_TYPE)
        lines = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        client.settimeout(PATIENCE)
        client.sendall(lines.encode() + (b"" if method == b"HEAD" else body))
        if not is_whole:
            _drain(client, until)

    def _requests_for(
        self, client: socket.socket, query: bytes, requests: Callable[[bool], str], as_json: bool
    ) -> tuple[str, bytes]:
        if not is_local(client.getpeername()[0], client.getsockname()[0]):
            return "403 Forbidden", b"Only told on this machine itself.\n"
        given = parse_qs(query.decode("latin-1")).get("token", [])
        if len(given) != 1 or not hmac.compare_digest(given[0].encode(), self._token.encode()):
            return "403 Forbidden", b"Only told to those who know the token, which is in the log of the server.\n"
        return self._told(lambda: requests(as_json) + "\n")

    def _told(self, text: Callable[[], str]) -> tuple[str, bytes]:
        try:
            return "200 OK", text().encode()
        except Exception:
            # Whoever watches must not end what is watched.
            logger.exception("The metrics cannot be told")
            return "500 Internal Server Error", b"See the log.\n"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def is_local(peer: str, own: str) -> bool:
    """Tell whether a connection between these addresses does not leave this machine."""
    return peer == own or ipaddress.ip_address(peer.partition("%")[0]).is_loopback


def _receive_head(client: socket.socket, until: float) -> bytes:
    """The head of a request, or as much of it as comes."""
    head = b""
    while b"\r\n\r\n" not in head and len(head) < LONGEST_HEAD:
        data = _receive(client, until)
        if not data:
            break
        head += data
    return head


def _drain(client: socket.socket, until: float) -> None:
    """Take what still comes: a close before it would have the client lose the answer (RFC 9112 section 9.6)."""
    client.shutdown(socket.SHUT_WR)
    while _receive(client, until):
        pass


def _receive(client: socket.socket, until: float) -> bytes:
    remaining = until - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    client.settimeout(remaining)
    return client.recv(4096)
