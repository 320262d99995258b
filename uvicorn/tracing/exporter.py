"""Sends spans to a collector: OTLP over HTTP, in protobuf, from a thread of its own.

::

    loop: append, at most MAX_PENDING ──▶ spans ──▶ thread: BATCH at a time ──▶ POST ──▶ collector
                                                               ▲                 │ 429, 502, 503, 504, no connection
                                                               └── wait ◀────────┘ at most ATTEMPTS times

Spans that find no room, or that the collector does not take, are dropped, counted and logged once a minute.
"""

from __future__ import annotations

import contextlib
import gzip
import http.client
import io
import logging
import random
import socket
import sys
import threading
import time
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from uvicorn.metrics.page import SPANS, SPANS_DROPPED, Page
from uvicorn.rules.syntax import printable
from uvicorn.tracing.options import TracingOptions
from uvicorn.tracing.otlp import Envelope

MAX_PENDING = 4096
"""Spans that wait at a time; further ones are dropped."""
BATCH = 512
"""Spans of one request to the collector, and how many of them wake the thread."""
INTERVAL = 1.0
"""Seconds that a span waits for others at most."""
ATTEMPTS = 4
"""How often a batch is sent."""
BACKOFF = 1.0
"""Seconds before the second attempt; twice as many before each further one."""
MOST_PATIENCE = 30.0
"""Seconds that a `retry-after` can ask for."""
TIMEOUT = 10.0
"""Seconds for a request to the collector, from the connection to the last byte of the answer."""
PIECE = 16 * 1024
"""Bytes that are sent at once: a record of TLS."""
LONGEST_BODY = 64 * 1024
"""Bytes of the body of an answer that are read."""
LONGEST_ANSWER = 2 * LONGEST_BODY
"""Bytes of an answer with its head, and any interim ones before."""
MOST_REASON = 200
"""Characters of the reason for which spans were dropped, in the log."""
FLUSH = 2.0
"""Seconds that the server waits at its end until all is sent."""
QUIET_PERIOD = 60.0
"""Seconds between two lines about dropped spans."""

_RETRIED = frozenset({429, 502, 503, 504})

logger = logging.getLogger("uvicorn.error")


class Outcome(NamedTuple):
    """The fate of a batch.

    Attributes:
        error: why it was not taken; empty if it was.
        again: after how many seconds it can be sent again; None: never, 0: as the exporter likes.
        rejected: spans of a batch that was taken in part.
    """

    error: str = ""
    again: float | None = None
    rejected: int = 0


def _left(deadline: float) -> float:
    """Return the seconds until a deadline; raises `TimeoutError` after it."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("timed out")
    return seconds


class _Bounded(io.RawIOBase):
    """An answer as the collector sends it: a timeout of the socket alone begins again with each byte."""

    def __init__(self, source: socket.SocketIO, sock: socket.socket, deadline: float) -> None:
        self._source = source
        self._sock = sock
        self._deadline = deadline
        self._room = LONGEST_ANSWER

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(_left(self._deadline))
        if self._room <= 0:
            raise http.client.HTTPException(f"the answer is longer than {LONGEST_ANSWER} bytes")
        size = self._source.readinto(buffer)
        self._room -= size or 0
        return size

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """One that ends in time."""

    def __init__(self, sock: socket.socket, *arguments: Any, deadline: float, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp: Any = io.BufferedReader(_Bounded(self.fp.detach(), sock, deadline))


class _Connection(http.client.HTTPConnection):
    """One that connects and sends in time, also where each step of TLS succeeds."""

    deadline = 0.0

    def begin(self, timeout: float) -> None:
        """Begin a request, which has these seconds until the last byte of its answer."""
        self.deadline = time.monotonic() + timeout
        self.response_class = partial(_Response, deadline=self.deadline)  # type: ignore[assignment]
        self._create_connection = self._open

    # `HTTPConnection.connect` calls it, and then that of HTTPS shakes hands with the timeout of the socket.
    def _open(self, address: tuple[str, int], *_: Any) -> socket.socket:
        failure: OSError = TimeoutError("timed out")
        for found in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            try:
                sock = socket.create_connection((str(found[4][0]), address[1]), _left(self.deadline))
            except OSError as exc:
                failure = exc
            else:
                sock.settimeout(max(self.deadline - time.monotonic(), 0.001))
                return sock
        raise failure

    def send(self, data: Any) -> None:
        """Send in pieces, each of which has the time that is left."""
        if self.sock is None:
            self.connect()
        rest = memoryview(data)
        while rest:
            self.sock.settimeout(_left(self.deadline))
            rest = rest[self.sock.send(rest[:PIECE]) :]


class _SecureConnection(_Connection, http.client.HTTPSConnection):
    """The same with TLS."""


class Exporter:
    """The thread, and its connection.

    Args:
        options: where the spans go.
        spans: encoded ones. Event loops append, this thread takes from the front.
        page: counts spans.

    Attributes:
        overflowed: spans that found no room; written by the event loop.
    """

    def __init__(self, options: TracingOptions, spans: list[bytes], page: Page) -> None:
        version: str = sys.modules["uvicorn"].__version__  # the package imports this module
        self.overflowed = 0
        self._spans = spans
        self._page = page
        self._url = options.url
        self._parts = urlsplit(options.url)
        self._headers = {"content-type": "application/x-protobuf", "user-agent": f"uvicorn/{version}"}
        self._headers.update(options.headers)
        self._compresses = options.compresses
        self._envelope = Envelope(options.resource, version)
        self._connection: _Connection | None = None
        self._sending = 0  # spans of the batch that is being delivered
        self._woken = threading.Event()
        self._ending = threading.Event()
        self._is_closed = False
        self._deadline = 0.0  # once it is ending
        self._overflow_seen = 0
        self._unreported = 0
        self._reason = ""
        self._quiet_until = 0.0
        # A daemon: a collector that hangs must not keep the process.
        self._thread = threading.Thread(target=self._run, name="uvicorn-otel", daemon=True)

    # The event loop's side.

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Have it send now."""
        self._woken.set()

    def close(self) -> None:
        """Send the remaining spans within `FLUSH` seconds; drop those that are left then."""
        self._deadline = time.monotonic() + FLUSH
        self._ending.set()
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join(FLUSH)
        waiting = len(self._spans)
        del self._spans[:waiting]
        self._is_closed = True
        left = waiting + self._sending
        if left:
            self._page.add(SPANS, waiting)
            self._page.add(SPANS_DROPPED, left)
            logger.warning("Dropped %d OpenTelemetry spans at shutdown: no answer of %s.", left, self._url)

    # The thread's side.

    def _run(self) -> None:
        while True:
            self._woken.wait(INTERVAL)
            self._woken.clear()
            is_last = self._ending.is_set()
            try:
                self._send_all()
            except Exception as exc:  # tracing must not end because of one batch
                logger.error("The exporter of OpenTelemetry spans has failed.", exc_info=exc)
            if is_last:
                self._close_connection()
                return

    def _send_all(self) -> None:
        self._count_overflow()
        while batch := self._spans[:BATCH]:
            del self._spans[: len(batch)]
            self._page.add(SPANS, len(batch))
            self._sending = len(batch)
            try:
                dropped, reason = self._deliver(batch)
            finally:
                self._sending = 0
            if dropped and not self._is_closed:  # otherwise `close` has counted them
                self._drop(dropped, reason)
            self._count_overflow()
        self._report()

    def _count_overflow(self) -> None:
        count = self.overflowed - self._overflow_seen
        if count:
            self._overflow_seen += count
            self._page.add(SPANS, count)
            self._drop(count, f"{MAX_PENDING} wait for {self._parts.netloc} already")

    def _drop(self, count: int, reason: str) -> None:
        self._unreported += count
        self._reason = printable(reason[:MOST_REASON])
        self._report()
        self._page.add(SPANS_DROPPED, count)

    def _report(self) -> None:
        """Log how many were dropped since the last line."""
        now = time.monotonic()
        if self._unreported and (now >= self._quiet_until or self._ending.is_set()):
            logger.warning("Dropped %d OpenTelemetry spans (otel_endpoint): %s.", self._unreported, self._reason)
            self._unreported = 0
            self._quiet_until = now + QUIET_PERIOD

    def _deliver(self, batch: list[bytes]) -> tuple[int, str]:
        """Send a batch until it is taken; returns how many were not, and why."""
        body = self._envelope.enclose(batch)
        if self._compresses:
            body = gzip.compress(body, 1)
        outcome = Outcome()
        for attempt in range(ATTEMPTS):
            outcome = self._post(body)
            if not outcome.error:
                return outcome.rejected, f"{self._url} rejected them"
            if outcome.again is None or attempt == ATTEMPTS - 1:
                break
            backoff = BACKOFF * 2**attempt * random.uniform(0.75, 1.25)
            if self._ending.wait(max(outcome.again, backoff)):
                break  # the server does not wait for a collector that fails
        return len(batch), outcome.error

    def _remaining(self) -> float:
        return self._deadline - time.monotonic() if self._ending.is_set() else TIMEOUT

    def _post(self, body: bytes) -> Outcome:
        headers = dict(self._headers)
        if self._compresses:
            headers["content-encoding"] = "gzip"
        for is_kept in (self._connection is not None, False):
            try:
                return self._exchange(body, headers)
            except (OSError, http.client.HTTPException, ValueError) as exc:
                self._close_connection()
                # A collector may close a connection that was idle, which says nothing.
                if not is_kept or isinstance(exc, TimeoutError):
                    return Outcome(f"{self._url}: {exc or type(exc).__name__}", 0.0)
        raise AssertionError("unreachable")

    def _exchange(self, body: bytes, headers: dict[str, str]) -> Outcome:
        timeout = min(TIMEOUT, max(self._remaining(), 0.1))
        connection = self._connection
        if connection is None:
            kind = _SecureConnection if self._parts.scheme == "https" else _Connection
            assert self._parts.hostname is not None
            self._connection = connection = kind(self._parts.hostname, self._parts.port)
        connection.begin(timeout)
        connection.request("POST", self._parts.path, body, headers)
        response = connection.getresponse()
        answer = response.read(LONGEST_BODY)
        if not response.isclosed():
            self._close_connection()  # an answer without an end is not waited for
        if 200 <= response.status < 300:
            return Outcome(rejected=rejected_of(answer))
        error = f"{self._url} answers {response.status} {response.reason}"
        if response.status not in _RETRIED:
            return Outcome(error)
        return Outcome(error, min(seconds_of(response.getheader("retry-after", "")), MOST_PATIENCE))

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.close()


def seconds_of(retry_after: str) -> float:
    """Return how long a `retry-after` asks to wait, 0 if it does not say (RFC 9110 section 10.2.3)."""
    text = retry_after.strip()
    if text.isdigit() and text.isascii() and len(text) < 10:
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0.0


def rejected_of(answer: bytes) -> int:
    """Return how many spans a collector has rejected that took the others: `ExportTraceServiceResponse`.

    Anything that cannot be read counts as none.
    """
    # partial_success (1), and in it rejected_spans (1), which is written first.
    if len(answer) < 4 or answer[0] != 0x0A or answer[1] >= 0x80 or answer[2] != 0x08:
        return 0
    rejected = 0
    for place, byte in enumerate(answer[3:8]):
        rejected |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return min(rejected, BATCH)
    return 0
