"""What event loops have counted, put together and told over HTTP as Prometheus reads it.

A `Board` has the pages of the loops that are there, and the sums of those that have ended: nothing that was counted is
lost when a worker goes. An `Exposition` tells of it, on an address of its own and in a thread of its own, so that it
answers, too, while an event loop is blocked.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from uvicorn import metrics
from uvicorn.metrics import BOUNDS, CLASSES, METHODS, PAIRS, PLACES, STATUS_CLASSES, Page
from uvicorn.sockets import parse_address
from uvicorn.worker_events import EventKind

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

PATIENCE = 5.0
"""Seconds that one who asks has, from the connection to the end of the answer; others wait meanwhile."""

LONGEST_HEAD = 8192
"""Bytes of a request."""

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
    """

    resident: Mapping[int, int]
    events: Mapping[tuple[EventKind, str | None], int]


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
    yield from _single("connections_total", "counter", "Connections that were served.", accepted)


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
        logger.info("Metrics on http://%s:%d/metrics", f"[{host}]" if ":" in host else host, port)
        self._thread.start()

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
            with client, contextlib.suppress(OSError):
                self._answer(client)

    def _answer(self, client: socket.socket) -> None:
        head = _receive_head(client, time.monotonic() + PATIENCE)
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            status, body = "405 Method Not Allowed", b"Only GET is served here.\n"
        elif path not in (b"/metrics", b"/"):
            status, body = "404 Not Found", b"See /metrics.\n"
        else:
            status, body = self._told()
        kind = CONTENT_TYPE if status.startswith("200") else "text/plain; charset=utf-8"
        lines = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        client.settimeout(PATIENCE)
        client.sendall(lines.encode() + (b"" if method == b"HEAD" else body))

    def _told(self) -> tuple[str, bytes]:
        try:
            return "200 OK", self._text().encode()
        except Exception:
            # Whoever watches must not end what is watched.
            logger.exception("The metrics cannot be told")
            return "500 Internal Server Error", b"See the log.\n"


def _receive_head(client: socket.socket, until: float) -> bytes:
    """The head of a request, or as much of it as comes."""
    head = b""
    while b"\r\n\r\n" not in head and len(head) < LONGEST_HEAD:
        client.settimeout(max(0.001, until - time.monotonic()))
        data = client.recv(4096)
        if not data:
            break
        head += data
    return head
