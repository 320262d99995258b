"""The counters of one event loop, in memory shared with the process that exports them: 64-bit numbers at fixed places.

    requests by method and class of status │ three histograms │ counters

A place is written by its event loop alone, with plain stores, and read without a lock: a number may be old for a
moment. All numbers only grow; a gauge is the difference of two of them.
The native core has the same places (`base/metrics.rs`), under numbers that `scripts/sync-settings` writes. A new metric
is a place here, and a `Family` if it is exposed as it is.
"""

from __future__ import annotations

import asyncio
import contextvars
import mmap
import os
import sys
import zlib
from bisect import bisect_left
from collections.abc import Callable
from enum import IntEnum
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from uvicorn.metrics import stalls
from uvicorn.metrics.stalls import StallTable

if TYPE_CHECKING:
    from typing_extensions import Self

METHODS = ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "other")
"""Methods that are distinguished, in the order of the native core."""

CLASSES = ("none", "1xx", "2xx", "3xx", "4xx", "5xx")
"""Classes of statuses, by their first digit; `none` is for those that ended without a response."""

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds up to which each bucket of a histogram counts; behind the last there is one for all that took longer."""

STATUS_CLASSES = len(CLASSES)
"""Classes of statuses, which are a row."""
OTHER_METHOD = METHODS.index("other")
"""The row of methods that have none of their own."""
BUCKETS = len(BOUNDS) + 1
"""Buckets of a histogram, behind which the sum of all that was observed has its place, in nanoseconds."""
MOST_CERTIFICATES = 32
"""Certificates that have a place; further ones are not exported."""


class ShedReason(IntEnum):
    """Why a request was refused."""

    FULL = 0
    """There was no place for it in the queue."""
    DISPLACED = 1
    """A client with fewer requests has its place."""
    LATE = 2
    """It has waited too long."""
    LEFT = 3
    """Its client is gone, or looks like it, or the server ends."""
    STALLED = 4
    """It has waited for its client, and too many others have, too."""


class _Places:
    """Gives places to numbers, in the order of this module.

    Attributes:
        taken: how many there are.
        pairs: the place that counts beginnings, and the one that counts ends.
    """

    def __init__(self) -> None:
        self.taken = 0
        self.pairs: list[tuple[int, int]] = []

    def take(self, size: int = 1, *, ends: int | None = None) -> int:
        """Return the first of `size` places; `ends` is the place of the beginnings, if these are ends."""
        place = self.taken
        self.taken += size
        if ends is not None:
            self.pairs.append((ends, place))
        return place


_places = _Places()

REQUESTS = _places.take(len(METHODS) * STATUS_CLASSES)
"""Requests that have ended: a row for each method, and in it a place for each class of statuses."""
DURATION = _places.take(BUCKETS + 1)
"""The histogram of requests: from the head to the end of the response."""
QUEUE_WAIT = _places.take(BUCKETS + 1)
"""The histogram of the time from noticing a request's bytes to calling its application."""
LOOP_LAG = _places.take(BUCKETS + 1)
"""The histogram of the event loop's delay of due callbacks."""
BEGUN = _places.take()
"""Requests that have begun."""
ENDED = _places.take(ends=BEGUN)
"""Requests that have ended."""
CONNECTIONS_OPENED = _places.take()
"""Connections that a protocol has begun to serve."""
CONNECTIONS_CLOSED = _places.take(ends=CONNECTIONS_OPENED)
"""Protocols whose connection has closed."""
UPGRADED = _places.take()
"""Connections that were upgraded to WebSocket, which is a second protocol on them."""
SESSIONS_CLOSED = _places.take(ends=UPGRADED)
"""Upgraded connections that have closed."""
ACCEPTED = _places.take()
"""WebSockets that applications have accepted."""
MESSAGES_RECEIVED = _places.take()
"""Messages that WebSockets have received."""
MESSAGES_SENT = _places.take()
"""Messages that applications have sent to WebSockets."""
BYTES_RECEIVED = _places.take()
"""Bytes that were received, decrypted."""
BYTES_SENT = _places.take()
"""Bytes that were given to the network, before encryption."""
CONCURRENT = _places.take()
"""Requests that have begun while others of their connection were being answered."""
CONCURRENT_ENDED = _places.take(ends=CONCURRENT)
"""Requests that have ended while others of their connection went on."""
REFUSED = _places.take()
"""Connections that were refused, because their address had too many."""
NO_PROXY_HEADER = _places.take()
"""Connections that were refused, because their PROXY header was missing or malformed."""
READ_DELAY = _places.take()
"""Nanoseconds that the connection being served has waited: a note of the native core to itself."""
CERTIFICATES = _places.take(MOST_CERTIFICATES)
"""When each certificate in use expires, in seconds since the epoch: no sum; 0 is unknown."""
ADMITTED = _places.take()
"""Requests that `limit_active_requests` has admitted."""
RELEASED = _places.take(ends=ADMITTED)
"""Admitted requests that have ended."""
QUEUED = _places.take()
"""Requests that were queued for admission."""
UNQUEUED = _places.take(ends=QUEUED)
"""Queued requests that have stopped waiting."""
SHED = _places.take(len(ShedReason))
"""Requests that were refused, by reason: a place for each `ShedReason`."""
LIMIT_RAISED = _places.take()
"""Sum of the increases of the limit, which begins at 0."""
LIMIT_LOWERED = _places.take(ends=LIMIT_RAISED)
"""Sum of the decreases of the limit."""
PARKED = _places.take()
"""Requests that have given their place back, because they waited for their clients."""
UNPARKED = _places.take(ends=PARKED)
"""Parked requests that no longer wait, neither for their clients nor for a place."""
QUEUED_BYTES = _places.take()
"""Bytes by which the data held for clients has grown between samples."""
TAKEN_BYTES = _places.take(ends=QUEUED_BYTES)
"""Bytes by which the data held for clients has shrunk between samples."""
CANCELLED = _places.take()
"""Calls of the application that were cancelled because their clients had disconnected."""
SPANS = _places.take()
"""Sampled spans of `otel_endpoint` that have ended; written by its thread alone, as the next."""
SPANS_DROPPED = _places.take()
"""Those of them that the collector has not got."""
HANDSHAKES_BEGUN = _places.take()
"""Connections that were accepted natively and begin with a TLS handshake."""
TLS12_HANDSHAKES = _places.take()
"""Handshakes of TLS 1.2, or of an earlier version; of native sockets, as the next."""
TLS12_RESUMED = _places.take()
"""Those that have resumed a session."""
TLS13_HANDSHAKES = _places.take()
"""Handshakes of TLS 1.3."""
TLS13_RESUMED = _places.take()
"""Those that have resumed a session."""
HANDSHAKE_TIMEOUTS = _places.take()
"""Handshakes that have taken too long; the next are other reasons why one has failed."""
HANDSHAKES_CLOSED = _places.take()
"""The client has closed the connection."""
HANDSHAKES_OF_OTHER_VERSIONS = _places.take()
"""The client has no version of TLS that is served."""
HANDSHAKES_WITHOUT_PARAMETERS = _places.take()
"""The client has no cipher suite, group or signature algorithm that is served."""
HANDSHAKES_WITHOUT_CERTIFICATE = _places.take()
"""The certificate of the client is missing, or was not accepted."""
HANDSHAKE_ALERTS = _places.take()
"""The client has sent an alert: most do not accept our certificate."""
HANDSHAKES_NOT_TLS = _places.take()
"""What the client has sent is not TLS."""
OTHER_HANDSHAKE_FAILURES = _places.take()
"""The client has sent malformed or unexpected messages, most of the time."""
HTTP2_OPENED = _places.take()
"""Connections that were served by HTTP/2."""
HTTP2_CLOSED = _places.take(ends=HTTP2_OPENED)
"""Those of them that have closed."""
HTTP3_OPENED = _places.take()
"""Connections that were served by HTTP/3."""
HTTP3_CLOSED = _places.take(ends=HTTP3_OPENED)
"""Those of them that have closed."""
UDP_RECEIVED = _places.take()
"""Datagrams that have come; the numbers from here to `EARLY_REFUSED` are those of QUIC."""
UDP_SENT = _places.take()
"""Datagrams that the kernel has taken."""
UDP_BYTES_RECEIVED = _places.take()
"""Bytes of the datagrams that have come."""
UDP_BYTES_SENT = _places.take()
"""Bytes of those that the kernel has taken."""
QUIC_HANDSHAKES = _places.take()
"""Handshakes that are complete."""
QUIC_HANDSHAKES_FAILED = _places.take()
"""Handshakes that have failed, those of clients that have disappeared included."""
QUIC_RETRIES = _places.take()
"""New clients that had to come again with a token."""
QUIC_REFUSED = _places.take()
"""New clients that were refused: there are too many, their token is not valid, or the worker ends."""
QUIC_VERSIONS_OFFERED = _places.take()
"""Answers to clients of other versions of QUIC."""
QUIC_RESETS_SENT = _places.take()
"""Stateless resets: answers to packets of connections that no longer exist."""
QUIC_LOST = _places.take()
"""Packets that clients have not acknowledged in time."""
QUIC_MOVED = _places.take()
"""Connections that have gone on from another address of the client."""
EARLY_ACCEPTED = _places.take()
"""Connections whose early data was read."""
EARLY_REFUSED = _places.take()
"""Requests in early data that were refused by 425."""

PLACES = _places.taken
"""The number of places."""

PAIRS = tuple(_places.pairs)
"""Beginnings and ends: a gauge is the difference, which is 0 for a process that has ended."""


_NUMBERS = sorted(item for item in globals().items() if isinstance(item[1], int))
LAYOUT = f"{zlib.crc32(repr((METHODS, CLASSES, BOUNDS, _NUMBERS)).encode()):08x}"
"""A checksum of the places: two versions of this module that have it in common mean the same numbers."""


class Family(NamedTuple):
    """Numbers that are exposed as they are.

    Attributes:
        name: without the prefix of all names.
        kind: as Prometheus has it.
        text: one sentence, for Prometheus and for docs/concepts/metrics.md.
        samples: labels, the place of the number, and the place that counts the ends, if those are subtracted.
        needs: a place; if its number is 0 there are no samples.
    """

    name: str
    kind: Literal["counter", "gauge"]
    text: str
    samples: tuple[tuple[str, int, int | None], ...]
    needs: int | None = None


FAMILIES = (
    Family(
        "connections_refused_total",
        "counter",
        "Connections closed before service: too many of one address, or a malformed PROXY header.",
        (('reason="address"', REFUSED, None), ('reason="proxy_protocol"', NO_PROXY_HEADER, None)),
    ),
    Family("received_bytes_total", "counter", "Bytes received, without TLS overhead.", (("", BYTES_RECEIVED, None),)),
    Family("sent_bytes_total", "counter", "Bytes sent, without TLS overhead.", (("", BYTES_SENT, None),)),
    Family(
        "held_bytes",
        "gauge",
        "Bytes of responses and messages that clients have not taken, sampled once a second.",
        (("", QUEUED_BYTES, TAKEN_BYTES),),
    ),
    Family("websocket_sessions_total", "counter", "Accepted WebSockets.", (("", ACCEPTED, None),)),
    Family(
        "websocket_messages_total",
        "counter",
        "WebSocket messages.",
        (('direction="received"', MESSAGES_RECEIVED, None), ('direction="sent"', MESSAGES_SENT, None)),
    ),
    Family(
        "active_requests_limit",
        "gauge",
        "Requests that may be active at a time.",
        (("", LIMIT_RAISED, LIMIT_LOWERED),),
        needs=LIMIT_RAISED,
    ),
    Family(
        "queued_requests", "gauge", "Requests that wait for admission.", (("", QUEUED, UNQUEUED),), needs=LIMIT_RAISED
    ),
    Family(
        "parked_requests",
        "gauge",
        "Admitted requests that wait for their clients.",
        (("", PARKED, UNPARKED),),
        needs=LIMIT_RAISED,
    ),
    Family(
        "admitted_requests_total",
        "counter",
        "Admitted requests.",
        (("", ADMITTED, None),),
        needs=LIMIT_RAISED,
    ),
    Family(
        "refused_requests_total",
        "counter",
        "Rejected requests: the queue was full, a client with fewer displaced them, they waited too long, their "
        "client was gone, or too many waited for their clients.",
        tuple((f'reason="{reason.name.lower()}"', SHED + reason, None) for reason in ShedReason),
        needs=LIMIT_RAISED,
    ),
    Family("waited_requests_total", "counter", "Requests that were queued.", (("", QUEUED, None),), needs=LIMIT_RAISED),
    Family(
        "cancelled_requests_total",
        "counter",
        "Requests and WebSockets that `on_disconnect` has cancelled.",
        (("", CANCELLED, None),),
        needs=CANCELLED,
    ),
    Family("otel_spans_total", "counter", "Sampled spans of `otel_endpoint`.", (("", SPANS, None),), needs=SPANS),
    Family(
        "otel_spans_dropped_total",
        "counter",
        "Spans that did not reach the collector.",
        (("", SPANS_DROPPED, None),),
        needs=SPANS,
    ),
    Family(
        "tls_handshakes_total",
        "counter",
        "Complete TLS handshakes of native sockets.",
        (
            ('version="1.2",resumed="false"', TLS12_HANDSHAKES, None),
            ('version="1.2",resumed="true"', TLS12_RESUMED, None),
            ('version="1.3",resumed="false"', TLS13_HANDSHAKES, None),
            ('version="1.3",resumed="true"', TLS13_RESUMED, None),
        ),
        needs=HANDSHAKES_BEGUN,
    ),
    Family(
        "tls_handshakes_failed_total",
        "counter",
        "Failed TLS handshakes: too slow, connection closed, no version or parameters in common, client certificate "
        "missing or rejected, alert from the client, not TLS, or another reason.",
        (
            ('reason="timeout"', HANDSHAKE_TIMEOUTS, None),
            ('reason="closed"', HANDSHAKES_CLOSED, None),
            ('reason="version"', HANDSHAKES_OF_OTHER_VERSIONS, None),
            ('reason="parameters"', HANDSHAKES_WITHOUT_PARAMETERS, None),
            ('reason="certificate"', HANDSHAKES_WITHOUT_CERTIFICATE, None),
            ('reason="alert"', HANDSHAKE_ALERTS, None),
            ('reason="not_tls"', HANDSHAKES_NOT_TLS, None),
            ('reason="other"', OTHER_HANDSHAKE_FAILURES, None),
        ),
        needs=HANDSHAKES_BEGUN,
    ),
    Family(
        "http_connections",
        "gauge",
        "Open connections of HTTP/2 and HTTP/3.",
        (('version="2"', HTTP2_OPENED, HTTP2_CLOSED), ('version="3"', HTTP3_OPENED, HTTP3_CLOSED)),
    ),
    Family(
        "http_connections_opened_total",
        "counter",
        "Connections served by HTTP/2 and HTTP/3.",
        (('version="2"', HTTP2_OPENED, None), ('version="3"', HTTP3_OPENED, None)),
    ),
    Family(
        "udp_datagrams_total",
        "counter",
        "UDP datagrams of HTTP/3.",
        (('direction="received"', UDP_RECEIVED, None), ('direction="sent"', UDP_SENT, None)),
        needs=UDP_RECEIVED,
    ),
    Family(
        "udp_bytes_total",
        "counter",
        "Bytes of these datagrams.",
        (('direction="received"', UDP_BYTES_RECEIVED, None), ('direction="sent"', UDP_BYTES_SENT, None)),
        needs=UDP_RECEIVED,
    ),
    Family(
        "quic_handshakes_total",
        "counter",
        "QUIC handshakes, which also count as TLS handshakes: complete or failed.",
        (('outcome="complete"', QUIC_HANDSHAKES, None), ('outcome="failed"', QUIC_HANDSHAKES_FAILED, None)),
        needs=UDP_RECEIVED,
    ),
    Family(
        "quic_replies_total",
        "counter",
        "Datagrams sent without a connection: Retry, refusal, version negotiation, stateless reset.",
        (
            ('kind="retry"', QUIC_RETRIES, None),
            ('kind="refused"', QUIC_REFUSED, None),
            ('kind="version_negotiation"', QUIC_VERSIONS_OFFERED, None),
            ('kind="stateless_reset"', QUIC_RESETS_SENT, None),
        ),
        needs=UDP_RECEIVED,
    ),
    Family("quic_packets_lost_total", "counter", "QUIC packets lost.", (("", QUIC_LOST, None),), UDP_RECEIVED),
    Family(
        "quic_migrations_total",
        "counter",
        "Changes of a client's address during a connection.",
        (("", QUIC_MOVED, None),),
        UDP_RECEIVED,
    ),
    Family(
        "quic_early_data_total",
        "counter",
        "Connections whose early data was accepted, and requests in it that were answered with 425.",
        (('outcome="accepted"', EARLY_ACCEPTED, None), ('outcome="refused"', EARLY_REFUSED, None)),
        needs=EARLY_ACCEPTED,
    ),
)
"""Numbers that are exposed as they are counted; `exposition` computes the others."""

INTERVAL = 0.5
"""Seconds between two looks at how late the event loop is."""

_NANO = 1_000_000_000
_BOUNDS = tuple(int(bound * _NANO) for bound in BOUNDS)
_METHODS = {name: REQUESTS + row * STATUS_CLASSES for row, name in enumerate(METHODS)}
_OTHERS = REQUESTS + OTHER_METHOD * STATUS_CLASSES


class CountsByRoute(Protocol):
    """A table of the same counters by method and route: `route_table.RouteTable`."""

    def begin(self, page: Page, row: int, method: str, scope: Any) -> Course:
        """A request begins."""

    def refuse(self, row: int, status: int) -> None:
        """Count invalid input."""

    def cancelled(self, scope: Any) -> None:
        """Count a call of the application that was cancelled."""

    def open_session(self, scope: Any) -> tuple[int, int]:
        """A WebSocket was accepted; returns what `close_session` needs."""

    def close_session(self, session: tuple[int, int]) -> None:
        """It has ended."""


class SharedWords:
    """64-bit numbers; pickled to another process, they are the same memory there."""

    COUNT = 0
    """How many at least; a subclass sets it."""

    def __init__(self, memory: mmap.mmap, descriptor: int = -1, name: str = "") -> None:
        self.words = memoryview(memory).cast("Q")
        self._count = len(self.words)
        self._memory: Any = memory
        self._descriptor = descriptor
        self._name = name

    @classmethod
    def make(cls, name: str = "", more: int = 0) -> Self:
        """Return empty memory, with room for `more` words. A child process can open it by a unique `name`.

        Raises:
            OSError: there is no memory for it.
        """
        size = (cls.COUNT + more) * 8
        if not name:
            return cls(mmap.mmap(-1, size))
        if sys.platform == "win32":
            return cls(mmap.mmap(-1, size, name), name=name)
        descriptor = _file_in_memory()
        os.ftruncate(descriptor, size)
        return cls(mmap.mmap(descriptor, size), descriptor)

    def close(self) -> None:
        """Close the descriptor that other processes inherit; the places stay while they are in use."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def discard(self) -> None:
        """Release all of it, including the descriptor that the mapping keeps."""
        self.close()
        self.words.release()
        self._memory.close()

    def __getstate__(self) -> Any:
        if sys.platform == "win32":
            return self._name, self._count
        else:
            from multiprocessing.reduction import DupFd

            return DupFd(self._descriptor), self._count

    def __setstate__(self, state: Any) -> None:
        shared, words = state
        size = words * 8
        if sys.platform == "win32":
            self.__init__(mmap.mmap(-1, size, shared), name=shared)  # type: ignore[misc]
        else:
            descriptor: int = shared.detach()
            self.__init__(mmap.mmap(descriptor, size))  # type: ignore[misc]
            os.close(descriptor)


class Page(SharedWords):
    """The places of one event loop, behind them perhaps a table of routes, and at the end one of stalls.

    Attributes:
        words: the numbers but those of stalls.
        stalls: seconds for which the loop did not turn.
        routes: counts by route, if that is wanted.
    """

    COUNT = PLACES + stalls.WORDS

    def __init__(self, memory: mmap.mmap, descriptor: int = -1, name: str = "") -> None:
        super().__init__(memory, descriptor, name)
        words = self.words
        self.words = words[: -stalls.WORDS]
        self.stalls = StallTable(words[-stalls.WORDS :])
        words.release()
        self.routes: CountsByRoute | None = None

    def discard(self) -> None:
        """Release all of it, including the descriptor that the mapping keeps."""
        self.stalls.release()
        super().discard()

    # Counted by the Python implementations.

    def add(self, place: int, number: int = 1) -> None:
        """Count."""
        self.words[place] += number

    def observe(self, histogram: int, nanoseconds: int) -> None:
        """Put one value into a histogram."""
        words = self.words
        words[histogram + bisect_left(_BOUNDS, nanoseconds)] += 1
        if nanoseconds > 0:
            words[histogram + BUCKETS] += nanoseconds

    def begin(self, method: str, scope: Any = None) -> Course:
        """A request begins, with this scope."""
        self.words[BEGUN] += 1
        row = _METHODS.get(method, _OTHERS)
        return Course(self, row) if self.routes is None else self.routes.begin(self, row, method, scope)

    def refuse(self, status: int) -> None:
        """Count invalid input, or a request that cannot be served, answered with `status`."""
        self.words[_OTHERS + status // 100] += 1
        if self.routes is not None:
            self.routes.refuse(OTHER_METHOD, status)


class Course:
    """One request, from its head to its end.

    Attributes:
        is_by_route: whether `count_received` and `count_sent` have an effect.
    """

    __slots__ = ("_page", "_row", "_status", "_since", "_has_run")

    is_by_route = False

    def __init__(self, page: Page, row: int) -> None:
        self._page: Page | None = page
        self._row = row
        self._status = 0
        self._since = monotonic_ns()
        self._has_run = False

    def run(self) -> None:
        """Its application is called now."""
        if not self._has_run and self._page is not None:
            self._has_run = True
            self._page.observe(QUEUE_WAIT, monotonic_ns() - self._since)

    def respond(self, status: int) -> None:
        """Its response has begun."""
        self._status = status

    def count_received(self, size: int) -> None:
        """Count bytes of the request body that have arrived."""

    def count_sent(self, size: int) -> None:
        """Count bytes of the response body that were written."""

    def send(self) -> None:
        """The first bytes of the response leave."""

    def fail(self, exc: BaseException | None = None) -> None:
        """The application has raised `exc`, or returned without a whole response."""

    def end(self, is_complete: bool = False) -> None:
        """Count the end of the response, which `is_complete` or not; only the first call counts."""
        page, self._page = self._page, None
        if page is not None:
            words = page.words
            words[ENDED] += 1
            words[self._row + min(self._status // 100, STATUS_CLASSES - 1)] += 1
            page.observe(DURATION, monotonic_ns() - self._since)


class LagProbe:
    """Looks again and again how late an event loop is, from `start` to `stop`; and calls `sample` then, if given."""

    def __init__(
        self,
        page: Page,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], int] = monotonic_ns,
        sample: Callable[[], None] | None = None,
    ) -> None:
        self._sample = sample
        self._page = page
        self._loop = loop
        self._clock = clock
        self._due = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look from now on."""
        self._due = self._clock() + int(INTERVAL * _NANO)
        self._timer = contextvars.Context().run(self._loop.call_later, INTERVAL, self.look)

    def look(self) -> None:
        """Note how late this is called."""
        self._page.observe(LOOP_LAG, max(0, self._clock() - self._due))
        if self._sample is not None:
            self._sample()
        self.start()

    def stop(self) -> None:
        """Stop sampling."""
        if self._timer is not None:
            self._timer.cancel()


def _file_in_memory() -> int:
    """A descriptor that a child process can be given."""
    if sys.platform == "linux":
        return os.memfd_create("uvicorn-metrics", os.MFD_CLOEXEC)
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
