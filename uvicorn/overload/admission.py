"""Admission of requests: which run now, which wait and which are refused, so that admitted ones are served in time.

::

    enter ──▶ ADMITTED ─────────────────────────▶ release
        │      │    ▲ next, overdue, force
        │     park  └────────────────┐
        │      ▼                     │
        │    PARKED ── resume ──▶ RETURNING
        ├──▶ WAITING ── next ──▶ ADMITTED
        │        └── expired, displaced, leave ──▶ REFUSED
        └──▶ REFUSED

A server that accepts more work than it can do answers too late. So at most `limit` requests are active at a time, and
those beyond it wait in a short queue. The queue uses known algorithms:

- First come, first served, while it is short. When it is full, or a request has waited too long, the server is
  overloaded: then the newest are served first, whose clients are still there, and the others wait for a
  part of that time only, until no request was refused for a while (Ben Maurer, "Fail at Scale", ACM Queue 13(8),
  2015: adaptive LIFO and controlled delay; the latter after CoDel: Kathleen Nichols and Van Jacobson, "Controlling
  Queue Delay", ACM Queue 10(5), 2012).
- A client that has few requests here takes the place of one that has more, and of those that wait the client with the
  fewest active requests is served first (Demers, Keshav and Shenker, "Analysis and Simulation of a Fair Queueing
  Algorithm", SIGCOMM 1989; McKenney, "Stochastic Fairness Queueing", INFOCOM 1990). A client that is alone has
  everything.
- One client may hold all places, for longer than requests may wait. So a client below its share, while another is
  above, is served beyond the limit, by up to a quarter of it, or by two; places that the other gives back are then
  not reused until the limit is kept. It waits for the whole time that is allowed.

A request has its place while the server works on it. One that waits for its client (for the body, or for the client to
read) is parked: its place is free for others. When the client was heard the request wants its place again, and is
served before requests of the same standing that have not begun. Too many parked requests of one client, or of all, cost
the client that has most of them the oldest.

The limit is a number, or found out (`AdaptiveLimit`).

This module has no clock, event loop or request: callers pass time and client, and carry out the decisions.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from enum import IntEnum
from itertools import islice
from typing import Generic, Protocol, TypeVar

STANDING_SHARE = 0.05
"""The part of the longest wait that is allowed while the queue does not become empty: 5 of 100 ms, as there."""

LOOKED_AT = 32
"""Requests that have waited longest are looked at for one that may be given up early."""

PARKED_FOR_EACH = 16
"""Requests that may be parked for each that may be active; one client may have half of them."""
LEAST_PARKED = 256
"""Requests that may be parked whatever the limit is: two connections of HTTP/2 have 200 streams."""

LONGEST_RETURN = 1.0
"""Seconds that a request waits for its place again, at most, while no place is given back; multiplied by the number of
requests beyond the limit."""

DEMAND_HALF_LIFE = 10.0
"""Seconds after which the time that a client has asked for counts half as much."""
MAX_KNOWN_CLIENTS = 4096
"""Clients whose demand is remembered; beyond it the one that was unchanged for longest is dropped."""
SAMPLES_PER_CLIENT = 8
"""Requests of one client over which their duration is averaged."""
SAMPLES_OF_ALL = 64
"""Requests of all clients over which their duration is averaged."""
BRIEF_FACTOR = 8
"""Requests are brief if their average duration is below a bound, and none exceeds that bound by this factor."""
LONGEST_HALF_LIFE = 60.0
"""Seconds after which the duration of a client's longest request counts half as much."""
MIN_CLIENT_AGE = 1.0
"""Seconds for which a client counts as known at least, so that its first request is no great demand."""
COMPARED_CLIENTS = 32
"""Clients whose demand one client's is compared with."""
REUSED_SECONDS = 0.01
"""Seconds for which such a look at many clients counts, so that not each request needs one."""
MODEST_FACTOR = 4
"""A client is modest if it asks for less than the average of the others divided by this."""
LEAST_RESERVE = 2
"""Places beyond the limit, at least: one that many may have, and the last one."""

START = 20
"""The adaptive limit to begin with."""
LEAST = 2
"""The least adaptive limit: one request that is served, and one that is there when that has ended."""
MOST = 10_000
"""The greatest adaptive limit."""
WINDOW = 0.1
"""Seconds between two decisions about the limit, at least; as long as requests take, if that is more, so that the
effect of the last one shows."""
SAMPLES = 16
"""Requests that a decision is based on, at least."""
KEPT = 256
"""Requests that a decision is based on, at most: the latest."""
TOLERANCE = 1.5
"""The limit decreases when requests take longer than without load by this factor."""
STEEPEST = 0.8
"""The limit decreases to no less than this part at a time, because not all active requests need be slow."""
SMOOTHING = 0.2
"""Weight of each window without waiting requests in the average duration without load."""
DOWN = 0.05
"""Weight of a window with waiting requests, downwards only: of many windows some are short by chance."""
PROBES = (2.0, 30.0)
"""Seconds between two probes, which measure how long requests take without load: at first and at most. The interval
doubles each time."""
PROBE_SHARE = 4
"""The limit is divided by this during a probe."""
PROBE_SAMPLES = 48
"""Requests that a probe is based on, until it has lasted `PROBE_LENGTH` seconds; `SAMPLES` after that."""
PROBE_LENGTH = 1.0
"""Seconds that a probe waits for `PROBE_SAMPLES` requests."""
PROBE_REST = 20
"""The pause until the next probe, as a multiple of its duration."""
SILENCE = 2.0
"""Seconds, or times as long as requests take, in which none has ended, after which more are let in to learn from."""


class State(IntEnum):
    """How far a request has come."""

    ADMITTED = 0
    WAITING = 1
    REFUSED = 2
    GONE = 3
    PARKED = 4
    RETURNING = 5


ADMITTED, WAITING, REFUSED, GONE, PARKED, RETURNING = State


class Ticket:
    """One request that asks to be served.

    Attributes:
        client: whose it is.
        since: when it came; from when on it is active, once it is; when it wanted its place again.
        ran: seconds that it was active until it was parked, or over.
        state: the decision.
    """

    __slots__ = ("client", "since", "ran", "state")

    def __init__(self, client: object, since: float) -> None:
        self.client = client
        self.since = since
        self.ran = 0.0
        self.state = REFUSED


class Limit(Protocol):
    """How many requests may be active."""

    @property
    def now(self) -> int:
        """At the moment."""

    @property
    def most(self) -> int:
        """The same, without regard to a look at how long requests take without load."""

    @property
    def reserve(self) -> int:
        """Further requests allowed for clients below their share."""

    def observe(self, begun: float, now: float, is_short: bool) -> None:
        """Learn from a request that ran from `begun` to `now`; `is_short`: others were waiting or rejected."""

    def lack(self, now: float) -> None:
        """Note that a request could not be served `now`."""


class FixedLimit:
    """The same all the time. Below four there is no reserve: such numbers are meant exactly."""

    __slots__ = ("now", "most", "reserve")

    def __init__(self, limit: int) -> None:
        self.now = limit
        self.most = limit
        self.reserve = max(LEAST_RESERVE, limit // 4) if limit >= 4 else 0

    def observe(self, begun: float, now: float, is_short: bool) -> None:
        """Do nothing: the limit is fixed."""

    def lack(self, now: float) -> None:
        """Do nothing: the limit is fixed."""


class AdaptiveLimit:
    """As many as can be served at a time without making each other wait for long, found out from how long they take.

    A gradient, as that of Netflix's concurrency-limits (`Gradient2Limit`) and Envoy's adaptive concurrency: after each
    window of time the limit is multiplied by how long requests take without load, over how long they have taken, and
    something is added, which is what keeps it looking for more. That is TCP Vegas (Brakmo and Peterson, IEEE JSAC
    13(8), 1995) with requests in place of packets. Differences, and why:

    - The lower quartile and the median of a window's times count, and the limit decreases only where both are longer
      than without load. Requests that are slow themselves, or because of their clients, are slow with and without load;
      fast ones show first that they had to wait. A few requests of another kind, or a client that is slow on purpose,
      change nothing. In a look at a quarter of the limit, short requests that come anyhow are at most four times as
      many for each long one: too few to move both.
    - What requests take without load is not an average of the past, which under a load that stays becomes what they
      take under load. It is measured: for some moments, rarely, fewer are served at a time (as BBR does to find the
      round-trip time: Cardwell et al., ACM Queue 14(5), 2016), and also when the limit has halved, because then it may
      be the requests that have changed. Where there is no lack of anything, all requests are such a look.
    - Until it goes down for the first time it doubles (slow start), and then looks.
    """

    __slots__ = (
        "now",
        "most",
        "reserve",
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
        self.now = self.most = START
        self.reserve = max(LEAST_RESERVE, START // 4)
        self._limit = float(START)
        # Lower quartile and median of the seconds that requests take: without load, if known, and in the last window.
        self._base: list[float] = []
        self._took = [0.0]
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
        """Note that a request could not be served `now`."""
        if now - self._ended > max(SILENCE, SILENCE * self._took[0]):
            self._ended = now
            self._grow()
            self._set()

    def observe(self, begun: float, now: float, is_short: bool) -> None:
        """Learn from a request that ran from `begun` to `now`; `is_short`: others were waiting or rejected."""
        self._ended = now
        if begun < self._probing:
            return  # it has had the others beside it
        if len(self._times) < KEPT:
            self._times.append(now - begun)
        else:
            self._times[self._count % KEPT] = now - begun
        self._count += 1
        self._was_short = self._was_short or is_short
        if now >= self._decided + max(WINDOW, self._took[0]) and self._count >= self._needed(now):
            self._times.sort()
            self._took = [max(self._times[len(self._times) // part], 1e-6) for part in (4, 2)]
            self._decide(now)
            self._times, self._count, self._was_short = [], 0, False
            self._decided = now
            self._set()

    def _needed(self, now: float) -> int:
        """Number of requests needed to decide. The result of a probe is kept for long."""
        return PROBE_SAMPLES if self._probing and now < self._probing + PROBE_LENGTH else SAMPLES

    def _decide(self, now: float) -> None:
        base, took = self._base or self._took, self._took
        if self._probing:
            self._base = took
            self._interval = min(2 * self._interval, PROBES[1])
            self._probe_at = now + max(self._interval, PROBE_REST * (now - self._probing))
            self._probing = 0.0
            self._at_probe = self._limit
        elif not self._was_short:
            # No request has waited: follow the measured duration.
            self._base = [old + SMOOTHING * (new - old) for old, new in zip(base, took, strict=True)]
            self._interval = PROBES[0]
            self._probe_at = now + self._interval
        else:
            self._base = [old + DOWN * min(0.0, new - old) for old, new in zip(base, took, strict=True)]
            gradient = TOLERANCE * max(old / new for old, new in zip(self._base, took, strict=True))
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
        self.most = int(self._limit)
        self.reserve = max(LEAST_RESERVE, self.most // 4)
        self.now = max(1, self.most // PROBE_SHARE) if self._probing else self.most


TicketT = TypeVar("TicketT", bound=Ticket)


class _Client(Generic[TicketT]):
    """The requests of one client.

    Attributes:
        name: the client.
        running: how many of its requests are active.
        begun: the sum of the times at which these began.
        asked: how many places it asked for on average,
        asked_at: then.
        waiting: those that wait to be admitted, in the order in which they came.
        returning: those that wait for a place again, in the order in which they asked for it.
        parked: those that wait for the client, in the order in which they began to.
        is_rival: it has a place, or asks for one.
    """

    __slots__ = ("name", "running", "begun", "asked", "asked_at", "waiting", "returning", "parked", "is_rival")

    def __init__(self, name: object) -> None:
        self.name = name
        self.running = 0
        self.begun = 0.0
        self.asked = 0.0
        self.asked_at = -math.inf
        # Not dicts: to find the first key of one from which many were taken is to pass all their places.
        self.waiting: OrderedDict[TicketT, None] = OrderedDict()
        self.returning: OrderedDict[TicketT, None] = OrderedDict()
        self.parked: OrderedDict[TicketT, None] = OrderedDict()
        self.is_rival = False


class _Ranking(Generic[TicketT]):
    """Clients by a number, those of the same number in an order."""

    __slots__ = ("_ranks",)

    def __init__(self) -> None:
        self._ranks: dict[int, OrderedDict[_Client[TicketT], None]] = {}

    def __bool__(self) -> bool:
        return bool(self._ranks)

    def put(self, client: _Client[TicketT], number: int, is_last: bool = True) -> None:
        """Add `client`, or move it to one end of those that have its number."""
        rank = self._ranks.get(number)
        if rank is None:
            rank = self._ranks[number] = OrderedDict()
        if client in rank or not is_last:
            rank[client] = None
            rank.move_to_end(client, is_last)
        else:
            rank[client] = None

    def remove(self, client: _Client[TicketT], number: int) -> None:
        """Remove `client`, which has that number."""
        rank = self._ranks[number]
        del rank[client]
        if not rank:
            del self._ranks[number]

    @property
    def lowest(self) -> int:
        """The lowest number that one has."""
        return next(iter(self._ranks)) if len(self._ranks) == 1 else min(self._ranks)

    @property
    def highest(self) -> int:
        """The highest number that one has, 0 if there is none."""
        return max(self._ranks) if self._ranks else 0

    def all(self, number: int, backwards: bool = False) -> Iterator[_Client[TicketT]]:
        """Those that have this number, from the first or `backwards`."""
        return reversed(self._ranks[number]) if backwards else iter(self._ranks[number])

    def count(self, most: int) -> int:
        """Count those with at most `most`."""
        count = 0
        for number, rank in self._ranks.items():
            if number <= most:
                count += len(rank)
        return count


def _left(seconds: float, half_life: float = DEMAND_HALF_LIFE) -> float:
    """Return the part of a figure about a client that still counts after `seconds`."""
    return math.pow(0.5, seconds / half_life)


class _Known:
    """The record of one client.

    Attributes:
        asked: for how many seconds it has asked for a place, the latest most of all.
        longest: how many seconds a request took at most, likewise.
        at: when these were right.
        since: from when on it is known.
        took: how many seconds a request takes on average, 0 if none has ended.
    """

    __slots__ = ("asked", "longest", "at", "since", "took")

    def __init__(self, since: float) -> None:
        self.asked = 0.0
        self.longest = 0.0
        self.at = since
        self.since = since
        self.took = 0.0

    def fade(self, now: float) -> None:
        """Bring it up to `now`: the past counts less."""
        self.asked *= _left(now - self.at)
        self.longest *= _left(now - self.at, LONGEST_HALF_LIFE)
        self.at = now


class ClientDemand:
    """How many places clients have asked for lately, on average, and how long their requests take.

    A request that has run counts with the time it took, one that was not served with the time that others take.
    """

    __slots__ = ("_known", "_took")

    def __init__(self) -> None:
        self._known: OrderedDict[object, _Known] = OrderedDict()
        self._took = 0.0  # of all clients

    def miss(self, client: object, now: float) -> None:
        """A request of `client` is not served."""
        known = self._faded(client, now, now)
        known.asked += known.took or self._took or 1.0

    def learn(self, client: object, ran: float, now: float) -> None:
        """A request of `client` has ended that had its place for `ran` seconds."""
        known = self._faded(client, now - ran, now)
        if known.took:
            known.took += (ran - known.took) / SAMPLES_PER_CLIENT
        else:
            known.asked *= ran / (self._took or 1.0)  # those that were not served would have taken as long
            known.took = ran
        self._took += (ran - self._took) / SAMPLES_OF_ALL if self._took else ran
        known.asked += ran
        known.longest = max(ran, known.longest)

    def _faded(self, client: object, since: float, now: float) -> _Known:
        """Return the record of `client`, brought up to `now`. Of too many, the one longest unchanged is dropped."""
        known = self._known.pop(client, None) or _Known(since)
        known.fade(now)
        self._known[client] = known
        if len(self._known) > MAX_KNOWN_CLIENTS:
            self._known.popitem(last=False)
        return known

    def places(self, client: object, now: float, ages: float = 0.0) -> float:
        """Return how many places `client` has asked for on average, `ages` seconds for requests that run."""
        known = self._known.get(client) or _Known(now)
        seen = 1 - _left(max(now - known.since, MIN_CLIENT_AGE))  # the part of the average that it was here for
        return (known.asked * _left(now - known.at) + ages) * math.log(2) / DEMAND_HALF_LIFE / seen

    @property
    def usual(self) -> float:
        """How many seconds a request takes, on average."""
        return self._took

    def took(self, client: object) -> float:
        """Return how many seconds a request of `client` takes; infinity, if it is not known."""
        known = self._known.get(client)
        return math.inf if known is None else known.took or math.inf

    def is_brief(self, client: object, seconds: float, now: float) -> bool:
        """Whether requests of `client` take no longer than `seconds`, as far as is known: on average, and none lately
        took much longer."""
        known = self._known.get(client)
        if known is None or not 0 < known.took <= seconds:
            return False
        return known.longest * _left(now - known.at, LONGEST_HALF_LIFE) <= BRIEF_FACTOR * seconds


class Admission(Generic[TicketT]):
    """The requests of one event loop.

    Args:
        limit: how many may be active.
        queue: how many may wait.
        patience: seconds that one may wait.
        now: when it begins.

    Attributes:
        limit: see above.
        active: requests that were admitted, and are neither parked nor over.
        parked: requests that were admitted, and wait for their clients, or for a place again after that.
    """

    __slots__ = (
        "limit",
        "active",
        "parked",
        "_queue",
        "_patience",
        "_refused_at",
        "_freed_at",
        "_clients",
        "_rivals",
        "_waiting",
        "_returning",
        "_extra",
        "_levels",
        "_lines",
        "_asking",
        "_back",
        "_idle",
        "_demand",
        "_compared",
        "_compared_sum",
        "_compared_at",
        "_in_vain_at",
    )

    def __init__(self, limit: Limit, queue: int, patience: float, now: float) -> None:
        self.limit = limit
        self.active = 0
        self.parked = 0
        self._queue = queue
        self._patience = patience
        self._refused_at = -math.inf  # when one was refused last
        self._freed_at = now  # when a place was given back last, or one went on without
        self._clients: dict[object, _Client[TicketT]] = {}
        self._rivals: dict[_Client[TicketT], None] = {}  # clients that have a place or ask for one
        self._waiting: OrderedDict[TicketT, None] = OrderedDict()  # in the order in which they came
        self._returning: OrderedDict[TicketT, None] = OrderedDict()  # in the order in which they asked
        self._extra: OrderedDict[TicketT, None] = OrderedDict()  # those that are active beyond the limit
        self._levels: dict[int, int] = {}  # number of clients by their number of active requests
        self._lines: _Ranking[TicketT] = _Ranking()  # clients with waiting requests, by how many they have
        self._asking: _Ranking[TicketT] = _Ranking()  # the same, by how many active ones they have
        self._back: _Ranking[TicketT] = _Ranking()  # clients with returning requests, by the same
        self._idle: _Ranking[TicketT] = _Ranking()  # clients with parked requests, by how many they have
        self._demand = ClientDemand()
        self._compared: dict[object, float] = {}  # how many places clients asked for,
        self._compared_sum = 0.0
        self._compared_at = -math.inf  # then
        self._in_vain_at = -math.inf  # when none of those looked at could be served beyond the limit

    @property
    def waiting(self) -> int:
        """How many wait to be admitted."""
        return len(self._waiting)

    @property
    def is_asked(self) -> bool:
        """Whether requests wait for a place."""
        return bool(self._waiting or self._returning)

    def oldest(self) -> TicketT | None:
        """The one that has waited longest to be admitted."""
        return next(iter(self._waiting), None)

    def enter(self, ticket: TicketT, now: float, may_wait: bool = True) -> TicketT | None:
        """Decide about a request, as its state shows. Returns the request that has lost its place to it, if any."""
        client = self._client_of(ticket)
        if self.active < self.limit.now and not (may_wait and (self._waiting or self._returning)):
            self._admit(ticket, client, now)
            return None
        self.limit.lack(now)
        if self._may_exceed(client, now):
            self._extra[ticket] = None
            self._admit(ticket, client, now)
            return None
        displaced = None
        if len(self._waiting) >= self._queue or not may_wait:
            self._refused_at = now
            displaced = self._displaced_by(client) if may_wait else None
            self._demand.miss(ticket.client if displaced is None else displaced.client, now)
            if displaced is None:
                return None
            self._drop(displaced)
        self._join(ticket, client, now)
        return displaced

    def release(self, ticket: TicketT, now: float, is_measured: bool = True) -> None:
        """A request that was admitted is over. `is_measured`: how long it took says something about others."""
        state = ticket.state
        if state is PARKED or state is RETURNING:
            self._unpark(ticket, GONE)
        elif state is ADMITTED:
            is_short = self.is_asked or self.active >= self.limit.now
            self._stop(ticket, now, GONE)
            self._demand.learn(ticket.client, ticket.ran, now)
            if is_measured:
                self.limit.observe(now - ticket.ran, now, is_short)

    def leave(self, ticket: TicketT) -> bool:
        """Let a waiting request wait no longer; returns whether it did wait."""
        if ticket.state is not WAITING:
            return False
        self._drop(ticket)
        return True

    def next(self, now: float) -> TicketT | None:
        """Admit one that waits, or that wants its place again, if one may be."""
        if not (self._asking or self._back):
            return None
        newest_first = self._is_standing(now)
        ranking = self._asking
        if self._back and not (ranking and ranking.lowest < self._back.lowest):
            # It has begun, and may hold a resource that others wait for.
            ranking = self._back
        lowest = ranking.lowest
        is_extra = self.active >= self.limit.now
        looked_at = 1
        clients = ranking.all(lowest, newest_first)
        if is_extra:
            # All of them have the same number of active requests.
            if not (self._extra_left and self._is_short(next(ranking.all(lowest)))):
                return None
            looked_at = 1 if self._in_vain_at <= now < self._in_vain_at + REUSED_SECONDS else LOOKED_AT
            clients = (one for one in islice(clients, looked_at) if self._may_use_reserve(one, now))
        client = next(clients, None)
        if client is None:
            if looked_at > 1:
                self._in_vain_at = now
            return None
        if ranking is self._back:
            ticket = next(iter(client.returning))
            self._unpark(ticket, ADMITTED)
        else:
            ticket = next(reversed(client.waiting) if newest_first else iter(client.waiting))
            self._drop(ticket)
        if is_extra:
            self._extra[ticket] = None
        self._admit(ticket, client, now, is_last=not newest_first)
        return ticket

    def expired(self, now: float) -> TicketT | None:
        """Give up one that has waited too long, if one has."""
        soon = self._soon(now)
        for ticket in islice(self._waiting, LOOKED_AT):
            if now < ticket.since + soon:
                break
            if now >= ticket.since + self._patience or not self._is_kept(ticket, now):
                self._drop(ticket)
                self._demand.miss(ticket.client, now)
                self._refused_at = now
                return ticket
        return None

    def excuse(self, seconds: float) -> None:
        """Do not count this much of the time that requests have waited to be admitted."""
        for ticket in self._waiting:
            ticket.since += seconds

    def due(self, now: float) -> float | None:
        """When `expired` and `overdue` should be asked next, if nothing else happens."""
        times = [self._overdue_at()] if self._returning else []
        if self._waiting:
            soon = self._soon(now)
            first = next(iter(self._waiting))
            times.append(first.since + self._patience)
            if soon < self._patience:
                early = (ticket for ticket in islice(self._waiting, LOOKED_AT) if not self._is_kept(ticket, now))
                times += [ticket.since + soon for ticket in islice(early, 1)]
        return min(times, default=None)

    # Those that wait for their clients.

    def park(self, ticket: TicketT, now: float) -> bool:
        """Give the place of a request back while it waits for its client; whether that is done."""
        if ticket.state is not ADMITTED or len(self._returning) >= self._most_parked():
            return False
        self._stop(ticket, now, PARKED)
        client = self._client_of(ticket)
        if client.parked:
            self._idle.remove(client, len(client.parked))
        client.parked[ticket] = None
        self._idle.put(client, len(client.parked))
        self.parked += 1
        self._count_rival(client)
        return True

    def evict(self, now: float) -> TicketT | None:
        """Resume a parked request to be ended if there are too many: the oldest of the client with the most."""
        most = self._idle.highest
        bound = self._most_parked()
        if self.parked <= bound and most <= bound // 2:
            return None
        if not most:
            return None
        ticket = next(iter(next(self._idle.all(most)).parked))
        self.force(ticket, now)
        return ticket

    def resume(self, ticket: TicketT, now: float) -> None:
        """A parked request's client was read: it has a place again, or waits for one, as its state shows."""
        if ticket.state is not PARKED:
            return
        client = self._client_of(ticket)
        is_free = self.active < self.limit.now and not self.is_asked
        if is_free or self._may_exceed(client, now):
            if not is_free:
                self._extra[ticket] = None
            self.force(ticket, now)
            return
        ticket.state = RETURNING
        ticket.since = now
        self._let_go(ticket, client)
        if not client.returning:
            self._back.put(client, client.running)
        self._returning[ticket] = client.returning[ticket] = None
        self._count_rival(client)

    def force(self, ticket: TicketT, now: float) -> None:
        """One that is parked goes on, whether or not there is a place for it."""
        if ticket.state is PARKED or ticket.state is RETURNING:
            self._unpark(ticket, ADMITTED)
            self._admit(ticket, self._client_of(ticket), now)

    def overdue(self, now: float) -> TicketT | None:
        """Have one go on that wants its place again, and has waited for it while no place was given back.

        It may hold the resource that all those with places wait for.
        """
        if not self._returning or now < self._overdue_at():
            return None
        ticket = next(iter(self._returning))
        self.force(ticket, now)
        self._freed_at = now
        return ticket

    def all_parked(self) -> list[TicketT]:
        """Those that wait for their clients, or for their place again."""
        return [ticket for client in self._clients.values() for ticket in (*client.parked, *client.returning)]

    def _overdue_at(self) -> float:
        """When the next one goes on: ever later, so that a client cannot exceed the limit by all that it has parked."""
        beyond = max(0, self.active - self.limit.now)
        wait = min(self._patience, LONGEST_RETURN) * (1 + beyond)
        return max(self._freed_at, next(iter(self._returning)).since) + wait

    def _most_parked(self) -> int:
        return max(LEAST_PARKED, PARKED_FOR_EACH * self.limit.most)

    # How long, and in which order.

    def _is_standing(self, now: float) -> bool:
        """There is more to do than can be done: in the time that one may wait, one had to be refused."""
        return now - self._refused_at < self._patience

    def _soon(self, now: float) -> float:
        """How long requests wait that are not reserved for a small client."""
        if self._is_standing(now) and len(self._waiting) > self._reserve():
            return self._patience * STANDING_SHARE
        return self._patience

    def _reserve(self) -> int:
        """Number of waiting requests that are kept, since places for them may become free at once."""
        return max(1, self.limit.most // 4)

    def _share(self, client: _Client[TicketT]) -> float:
        """How many places each client has if all have the same number."""
        return self.limit.most / (len(self._rivals) + (not client.is_rival))

    def _is_owed(self, client: _Client[TicketT], now: float) -> bool:
        """Whether `client` has less than its share while another has more, and few are like it."""
        return self._is_short(client) and (self._is_rare(client) or self._is_modest(client, now))

    def _places(self, client: _Client[TicketT], now: float) -> float:
        """How many places `client` asks for on average; if none of its requests has ended, as many as at the moment."""
        if not client.asked_at <= now < client.asked_at + REUSED_SECONDS:
            client.asked_at = now
            client.asked = self._demand.places(client.name, now, client.running * now - client.begun)
            if math.isinf(self._demand.took(client.name)):
                client.asked = max(client.asked, 1.0, client.running + len(client.waiting))
        return client.asked

    def _is_modest(self, client: _Client[TicketT], now: float) -> bool:
        """Whether `client` asks for less than its share, and much less than others that ask: those that only wait for
        their clients would lower the average."""
        places = self._places(client, now)
        if places >= self._share(client):
            return False
        if not self._compared_at <= now < self._compared_at + REUSED_SECONDS:
            self._compared_at = now
            self._compared = {one.name: self._places(one, now) for one in islice(self._rivals, COMPARED_CLIENTS)}
            self._compared_sum = sum(self._compared.values())
        mine = self._compared.get(client.name)
        others = len(self._compared) - (mine is not None)
        return places * MODEST_FACTOR * others < self._compared_sum - (mine or 0.0)

    def _is_short(self, client: _Client[TicketT]) -> bool:
        """Whether `client` has less than its share while another has more."""
        highest = max(self._levels) if self._levels else 0
        share = self._share(client) * self.limit.now / self.limit.most
        return client.running < highest and client.running < share < highest

    def _is_rare(self, client: _Client[TicketT]) -> bool:
        """Whether few of those that ask have as little as `client`."""
        return self._asking.count(client.running) + (not client.waiting) <= self._reserve()

    def _may_exceed(self, client: _Client[TicketT], now: float) -> bool:
        """Whether a request of `client` is served although no place is free."""
        return self._extra_left > 0 and self._is_short(client) and self._may_use_reserve(client, now)

    @property
    def _extra_left(self) -> int:
        """How many more may be active beyond the limit."""
        return max(0, self.limit.reserve - len(self._extra))

    def _may_use_reserve(self, client: _Client[TicketT], now: float) -> bool:
        """Whether `client`, which has less than its share, may have one of the places beyond the limit that are left.

        The first half of the reserve is for clients that have little at the moment, the rest for those that have asked
        for little: of many that are much alike some always have less than others. The last quarter, and all of it while
        it is measured how long requests take without load, is for one request at a time of clients whose requests are
        known to be over soon, or while the next can wait.
        """
        reserve, free = self.limit.reserve, self._extra_left
        if free <= max(1, reserve // 4) or self.limit.now < self.limit.most:
            is_brief = self._demand.is_brief(client.name, max(self._patience, self._demand.usual / MODEST_FACTOR), now)
            return is_brief and not client.running and self._is_modest(client, now)
        return (free > reserve // 2 and self._is_rare(client)) or self._is_modest(client, now)

    def _is_kept(self, ticket: TicketT, now: float) -> bool:
        """Whether a request may wait as long as allowed: including those that wait its client has at most its share."""
        client = self._client_of(ticket)
        wanted = client.running + len(client.waiting)
        return wanted <= max(1.0, self._share(client)) and self._is_owed(client, now)

    def _displaced_by(self, client: _Client[TicketT]) -> TicketT | None:
        """The request that loses its place to one of `client`: the newest of the longest line, of a larger client."""
        length = self._lines.highest
        if not length:
            return None
        richest = next(self._lines.all(length))
        mine = client.running + len(client.waiting)
        if richest is client or length + richest.running <= mine + 1:
            return None
        return next(reversed(richest.waiting))

    # The books.

    def _client_of(self, ticket: TicketT) -> _Client[TicketT]:
        return self._clients.get(ticket.client) or _Client(ticket.client)

    def _admit(self, ticket: TicketT, client: _Client[TicketT], now: float, is_last: bool = True) -> None:
        ticket.state = ADMITTED
        ticket.since = now
        self.active += 1
        client.begun += now
        self._run(client, client.running + 1, is_last)

    def _stop(self, ticket: TicketT, now: float, state: State) -> None:
        """An active request has ended."""
        ticket.state = state
        ticket.ran += now - ticket.since
        self.active -= 1
        self._freed_at = now
        if self._extra:
            self._extra.pop(ticket, None)
            while len(self._extra) > max(0, self.active - self.limit.now):
                self._extra.popitem()
        client = self._clients[ticket.client]
        client.begun = client.begun - ticket.since if client.running > 1 else 0.0  # rounding errors do not add up
        self._run(client, client.running - 1, not self._is_standing(now))

    def _run(self, client: _Client[TicketT], running: int, is_last: bool) -> None:
        """Set the number of active requests of `client`, and put it behind others with the same number."""
        before, client.running = client.running, running
        levels = self._levels
        if before:
            if levels[before] == 1:
                del levels[before]
            else:
                levels[before] -= 1
        if running:
            levels[running] = levels.get(running, 0) + 1
        if client.waiting:
            self._asking.remove(client, before)
            self._asking.put(client, running, is_last)
        if client.returning:
            self._back.remove(client, before)
            self._back.put(client, running, is_last)
        if not before or not running:
            self._count_rival(client)

    def _join(self, ticket: TicketT, client: _Client[TicketT], now: float) -> None:
        """One waits from now on."""
        ticket.state = WAITING
        length = len(client.waiting)
        self._waiting[ticket] = client.waiting[ticket] = None
        if length:
            self._lines.remove(client, length)
            if self._is_standing(now):
                self._asking.put(client, client.running)  # the newest are served first
        else:
            self._asking.put(client, client.running)
            self._count_rival(client)
        self._lines.put(client, length + 1)

    def _drop(self, ticket: TicketT) -> None:
        """A waiting request has stopped waiting."""
        client = self._clients[ticket.client]
        ticket.state = REFUSED
        del self._waiting[ticket]
        del client.waiting[ticket]
        length = len(client.waiting)
        self._lines.remove(client, length + 1)
        if length:
            self._lines.put(client, length)
        else:
            self._asking.remove(client, client.running)
            self._count_rival(client)

    def _unpark(self, ticket: TicketT, state: State) -> None:
        """A parked request has stopped being parked."""
        client = self._clients[ticket.client]
        if ticket.state is RETURNING:
            del self._returning[ticket]
            del client.returning[ticket]
            if not client.returning:
                self._back.remove(client, client.running)
        else:
            self._let_go(ticket, client)
        self.parked -= 1
        ticket.state = state
        self._count_rival(client)

    def _let_go(self, ticket: TicketT, client: _Client[TicketT]) -> None:
        """A request has stopped waiting for its client."""
        self._idle.remove(client, len(client.parked))
        del client.parked[ticket]
        if client.parked:
            self._idle.put(client, len(client.parked))

    def _count_rival(self, client: _Client[TicketT]) -> None:
        """`client` may have begun or ceased to have a place or to ask for one."""
        is_rival = client.running > 0 or bool(client.waiting) or bool(client.returning)
        if is_rival is not client.is_rival:
            client.is_rival = is_rival
            if is_rival:
                self._rivals[client] = None
            else:
                del self._rivals[client]
        if is_rival or client.parked:
            self._clients[client.name] = client
        else:
            self._clients.pop(client.name, None)
