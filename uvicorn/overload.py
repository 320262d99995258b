"""Which requests are served now, which wait a moment, and which are refused: so that who is served is served in time.

::

    enter ──▶ ADMITTED ────────────────────────▶ release
        ├──▶ WAITING ── next ──▶ ADMITTED
        │        └── expired, displaced, leave ──▶ REFUSED
        └──▶ REFUSED

Whoever takes more work than it can do serves nobody: all answers come too late. So no more requests are active at a
time than `limit`, and those beyond it wait in a short queue. What the queue does is known:

- First come, first served, while it is short. When it has become full, or somebody has waited too long, there is more
  to do than can be done: then the newest are served first, whose clients are still there, and the others wait for a
  part of that time only, until nobody had to be refused for a while (Ben Maurer, "Fail at Scale", ACM Queue 13(8),
  2015: adaptive LIFO and controlled delay; the latter after CoDel: Kathleen Nichols and Van Jacobson, "Controlling
  Queue Delay", ACM Queue 10(5), 2012).
- A client that has few requests here takes the place of one that has more, and is served before one that has more than
  its part of what is served (Demers, Keshav and Shenker, "Analysis and Simulation of a Fair Queueing Algorithm",
  SIGCOMM 1989; McKenney, "Stochastic Fairness Queueing", INFOCOM 1990). Who is alone has everything.

The limit is a number, or found out (`AdaptiveLimit`).

No clock, no event loop, no request: callers say when it is and who asks, and do what is decided.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from enum import IntEnum
from itertools import islice
from typing import Generic, Protocol, TypeVar

STANDING_SHARE = 0.05
"""The part of the longest wait that is allowed while the queue does not become empty: 5 of 100 ms, as there."""

LOOKED_AT = 32
"""Clients that wait are looked at for one that has less than its part, before the first of them has its turn."""

START = 20
"""The adaptive limit to begin with."""
LEAST = 2
"""The least it becomes: one request that is served, and one that is there when that has ended."""
MOST = 10_000
"""The most."""
WINDOW = 0.1
"""Seconds at least between two decisions about the limit, or as long as requests take: the last one has to be seen."""
SAMPLES = 16
"""Requests at least that each of them is based on."""
KEPT = 256
"""Requests at most that each of them is based on: the latest."""
TOLERANCE = 1.5
"""So many times longer than without load may requests take, before the limit goes down."""
STEEPEST = 0.8
"""The limit goes down to no less than this part of it at a time: not all that is active need be what is slow."""
SMOOTHING = 0.2
"""How much each window in which nobody had to wait changes what is known of how long requests take without load."""
DOWN = 0.05
"""How much one changes it, downwards only, in which somebody had to: of many windows some are short by chance."""
PROBES = (2.0, 30.0)
"""Seconds from one look at how long requests take without load to the next: twice as many each time, within these."""
PROBE_SHARE = 4
"""Such a look is taken with the limit divided by this."""
PROBE_SAMPLES = 48
"""It is based on so many requests,"""
PROBE_LENGTH = 1.0
"""unless that takes more than so many seconds."""
PROBE_REST = 20
"""And so many times as long as it has taken it is not taken again."""
SILENCE = 2.0
"""Seconds, or times as long as requests take, in which none has ended, after which more are let in to learn from."""


class State(IntEnum):
    """How far a request has come."""

    ADMITTED = 0
    WAITING = 1
    REFUSED = 2
    GONE = 3


class Reason(IntEnum):
    """Why a request was refused."""

    FULL = 0
    """There was no place for it in the queue."""
    DISPLACED = 1
    """A client with fewer requests has its place."""
    LATE = 2
    """It has waited too long."""
    LEFT = 3
    """Its client is gone, or looks like it, or the server ends."""


ADMITTED, WAITING, REFUSED, GONE = State


class Ticket:
    """One request that asks to be served.

    Attributes:
        client: whose it is.
        since: when it came; from when on it was served, once it is.
        state: what was decided.
    """

    __slots__ = ("client", "since", "state")

    def __init__(self, client: object, since: float) -> None:
        self.client = client
        self.since = since
        self.state = REFUSED


class Limit(Protocol):
    """How many requests may be active."""

    @property
    def now(self) -> int:
        """At the moment."""

    def observe(self, begun: float, now: float, is_short: bool) -> None:
        """One that was admitted when it was `begun` has ended `now`. `is_short`: others would have been served, too."""

    def lack(self, now: float) -> None:
        """One has come that cannot be served `now`."""


class FixedLimit:
    """The same all the time."""

    __slots__ = ("now",)

    def __init__(self, limit: int) -> None:
        self.now = limit

    def observe(self, begun: float, now: float, is_short: bool) -> None:
        """It does not matter."""

    def lack(self, now: float) -> None:
        """It does not matter."""


class AdaptiveLimit:
    """As many as can be served at a time without making each other wait for long, found out from how long they take.

    A gradient, as that of Netflix's concurrency-limits (`Gradient2Limit`) and Envoy's adaptive concurrency: after each
    window of time the limit is multiplied by how long requests take without load, over how long they have taken, and
    something is added, which is what keeps it looking for more. That is TCP Vegas (Brakmo and Peterson, IEEE JSAC
    13(8), 1995) with requests in place of packets. Differences, and why:

    - Of the times of a window the lower quartile counts. What is slow by itself, or because its client is, is slow with
      and without load, and says little; what is fast says first when it has to wait. A few requests of another kind,
      or a client that is slow on purpose, change nothing.
    - What requests take without load is not an average of the past, which under a load that stays becomes what they
      take under load. It is measured: for some moments, rarely, fewer are served at a time (as BBR does to find the
      round-trip time: Cardwell et al., ACM Queue 14(5), 2016), and also when the limit has halved, because then it may
      be the requests that have changed. Where there is no lack of anything, all requests are such a look.
    - Until it goes down for the first time it doubles (slow start), and then looks.
    """

    __slots__ = (
        "now",
        "_limit",
        "_base",
        "_took",
        "_times",
        "_count",
        "_was_short",
        "_decided",
        "_ended",
        "_is_slow_start",
        "_probing",
        "_probe_at",
        "_interval",
        "_at_probe",
    )

    def __init__(self, now: float) -> None:
        self.now = START
        self._limit = float(START)
        self._base = 0.0  # what requests take without load, in seconds; 0 while it is not known
        self._took = 0.0  # what they have taken in the last window
        self._times: list[float] = []
        self._count = 0
        self._was_short = False
        self._decided = now
        self._ended = now  # a request, for the last time
        self._is_slow_start = True
        self._probing = 0.0  # since when, if it is
        self._interval = PROBES[0]
        self._probe_at = now + self._interval
        self._at_probe = float(START)

    def lack(self, now: float) -> None:
        """One has come that cannot be served `now`."""
        if now - self._ended > max(SILENCE, SILENCE * self._took):
            self._ended = now
            self._grow()
            self._set()

    def observe(self, begun: float, now: float, is_short: bool) -> None:
        """One that was admitted when it was `begun` has ended `now`. `is_short`: others would have been served, too."""
        self._ended = now
        if begun < self._probing:
            return  # it has had the others beside it
        if len(self._times) < KEPT:
            self._times.append(now - begun)
        else:
            self._times[self._count % KEPT] = now - begun
        self._count += 1
        self._was_short = self._was_short or is_short
        if now >= self._decided + max(WINDOW, self._took) and self._count >= self._needed(now):
            self._times.sort()
            self._took = max(self._times[len(self._times) // 4], 1e-6)
            self._decide(now, self._took)
            self._times, self._count, self._was_short = [], 0, False
            self._decided = now
            self._set()

    def _needed(self, now: float) -> int:
        """How many requests are enough to decide. What is learned from few is held on to for long after a look."""
        return PROBE_SAMPLES if self._probing and now < self._probing + PROBE_LENGTH else SAMPLES

    def _decide(self, now: float, took: float) -> None:
        if self._probing:
            self._base = took
            self._interval = min(2 * self._interval, PROBES[1])
            self._probe_at = now + max(self._interval, PROBE_REST * (now - self._probing))
            self._probing = 0.0
            self._at_probe = self._limit
        elif not self._was_short:
            # Nobody has waited for anybody; let what is known follow what is.
            self._base += SMOOTHING * (took - self._base) if self._base else took
            self._interval = PROBES[0]
            self._probe_at = now + self._interval
        else:
            self._base += DOWN * min(0.0, took - self._base) if self._base else took
            gradient = TOLERANCE * self._base / took
            is_first = self._is_slow_start and gradient < 1
            if is_first:
                self._is_slow_start = False
            self._limit *= min(1.0, max(STEEPEST, gradient))
            self._grow()
            if is_first or (not self._is_slow_start and (now >= self._probe_at or self._limit < self._at_probe / 2)):
                self._probing = now

    def _grow(self) -> None:
        self._limit += self._limit if self._is_slow_start else math.sqrt(self._limit) / 2

    def _set(self) -> None:
        self._limit = min(float(MOST), max(float(LEAST), self._limit))
        self.now = max(1, int(self._limit) // PROBE_SHARE) if self._probing else int(self._limit)


TicketT = TypeVar("TicketT", bound=Ticket)


class Admission(Generic[TicketT]):
    """The requests of one event loop.

    Args:
        limit: how many may be active.
        queue: how many may wait.
        patience: seconds that one may wait.
        now: when it begins.

    Attributes:
        limit: see above.
        active: requests that were admitted, and not released.
    """

    __slots__ = ("limit", "active", "_queue", "_patience", "_refused_at", "_waiting", "_lines", "_longest", "_running")

    def __init__(self, limit: Limit, queue: int, patience: float, now: float) -> None:
        self.limit = limit
        self.active = 0
        self._queue = queue
        self._patience = patience
        self._refused_at = -math.inf  # when one was refused last
        # Not dicts: to find the first key of one from which many were taken is to pass all their places.
        self._waiting: OrderedDict[TicketT, None] = OrderedDict()  # in the order in which they came
        self._lines: OrderedDict[object, OrderedDict[TicketT, None]] = OrderedDict()  # the same, by clients
        self._longest: dict[int, OrderedDict[object, None]] = {}  # clients, by the lengths of their lines
        self._running: dict[object, int] = {}  # active ones, by clients

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def oldest(self) -> TicketT | None:
        """Who has waited longest."""
        return next(iter(self._waiting), None)

    def enter(self, ticket: TicketT, now: float, may_wait: bool = True) -> TicketT | None:
        """Decide about a request: its state says what. Returns the one that has lost its place to it, if one has."""
        if self.active < self.limit.now and not (self._waiting and may_wait):
            self._admit(ticket, now)
            return None
        self.limit.lack(now)
        displaced = None
        if len(self._waiting) >= self._queue or not may_wait:
            self._refused_at = now
            displaced = self._displaced_by(ticket.client) if may_wait else None
            if displaced is None:
                return None
            self._drop(displaced, REFUSED)
        ticket.state = WAITING
        self._join(ticket)
        return displaced

    def release(self, ticket: TicketT, now: float, is_measured: bool = True) -> None:
        """A request that was admitted is over. `is_measured`: how long it took says something."""
        if ticket.state is not ADMITTED:
            return
        ticket.state = GONE
        is_short = bool(self._waiting) or self.active >= self.limit.now
        self.active -= 1
        running = self._running[ticket.client] - 1
        if running:
            self._running[ticket.client] = running
        else:
            del self._running[ticket.client]
        if is_measured:
            self.limit.observe(ticket.since, now, is_short)

    def leave(self, ticket: TicketT) -> bool:
        """Let one that waits wait no more; whether it did."""
        if ticket.state is not WAITING:
            return False
        self._drop(ticket, REFUSED)
        return True

    def next(self, now: float) -> TicketT | None:
        """Admit one that waits, if one may be."""
        if not self._lines or self.active >= self.limit.now:
            return None
        newest_first = self._is_standing(now)
        line = self._lines[self._next_client(newest_first)]
        ticket = next(reversed(line) if newest_first else iter(line))
        self._drop(ticket, ADMITTED)
        if line:
            self._lines.move_to_end(ticket.client, last=not newest_first)
        self._admit(ticket, now)
        return ticket

    def expired(self, now: float) -> TicketT | None:
        """Give up one that has waited too long, if one has."""
        if not self._waiting:
            return None
        ticket = next(iter(self._waiting))
        if now < ticket.since + self._allowed(now):
            return None
        self._drop(ticket, REFUSED)
        self._refused_at = now
        return ticket

    def due(self, now: float) -> float | None:
        """When `expired` should be asked next, if nothing else happens."""
        if not self._waiting:
            return None
        return next(iter(self._waiting)).since + self._allowed(now)

    # How long, and in which order.

    def _is_standing(self, now: float) -> bool:
        """There is more to do than can be done: in the time that one may wait, one had to be refused."""
        return now - self._refused_at < self._patience

    def _allowed(self, now: float) -> float:
        if self._is_standing(now) and len(self._waiting) > self._reserve():
            return self._patience * STANDING_SHARE
        return self._patience

    def _reserve(self) -> int:
        """As many as may be wanted before others come: nobody gives them up early."""
        return max(1, self.limit.now // 4)

    def _next_client(self, newest_first: bool) -> object:
        """The first client that has less than its part of what is served; there is one, and few are looked at."""
        part = -(-self.limit.now // len(self._lines))
        clients = list(islice(reversed(self._lines) if newest_first else iter(self._lines), LOOKED_AT))
        return next((client for client in clients if self._running.get(client, 0) < part), clients[0])

    def _displaced_by(self, client: object) -> TicketT | None:
        """Who loses its place to a request of `client`: the newest of the longest line, of a client that has more."""
        if not self._longest:
            return None  # not a client: those without an address are known as None, too
        length = max(self._longest)
        richest = next(iter(self._longest[length]))
        mine = self._running.get(client, 0) + len(self._lines.get(client, ()))
        if richest == client or length + self._running.get(richest, 0) <= mine + 1:
            return None
        return next(reversed(self._lines[richest]))

    # The books.

    def _admit(self, ticket: TicketT, now: float) -> None:
        ticket.state = ADMITTED
        ticket.since = now
        self.active += 1
        self._running[ticket.client] = self._running.get(ticket.client, 0) + 1

    def _join(self, ticket: TicketT) -> None:
        client = ticket.client
        self._waiting[ticket] = None
        line = self._lines.get(client)
        if line is None:
            line = self._lines[client] = OrderedDict()
        elif self._is_standing(ticket.since):
            self._lines.move_to_end(client)  # the newest are served first
        line[ticket] = None
        self._note_length(client, len(line) - 1, len(line))

    def _drop(self, ticket: TicketT, state: State) -> None:
        client = ticket.client
        ticket.state = state
        del self._waiting[ticket]
        line = self._lines[client]
        del line[ticket]
        self._note_length(client, len(line) + 1, len(line))
        if not line:
            del self._lines[client]

    def _note_length(self, client: object, before: int, after: int) -> None:
        if before:
            of_length = self._longest[before]
            del of_length[client]
            if not of_length:
                del self._longest[before]
        if after:
            self._longest.setdefault(after, OrderedDict())[client] = None
