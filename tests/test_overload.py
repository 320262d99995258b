"""Who is served, who waits, who is refused; and how many are, found out. The clock is the test's."""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from uvicorn.overload import (
    ADMITTED,
    GONE,
    LEAST,
    LOOKED_AT,
    MOST,
    PROBE_SHARE,
    REFUSED,
    SAMPLES,
    STANDING_SHARE,
    START,
    TOLERANCE,
    WAITING,
    WINDOW,
    AdaptiveLimit,
    Admission,
    FixedLimit,
    Limit,
    Ticket,
)

PATIENCE = 1.0


class Clients:
    """Requests of clients who are named by letters."""

    def __init__(self, limit: int, queue: int) -> None:
        self.admission: Admission[Ticket] = Admission(FixedLimit(limit), queue, PATIENCE, 0.0)
        self.displaced: list[Ticket] = []

    def ask(self, client: object, now: float = 0.0, may_wait: bool = True) -> Ticket:
        ticket = Ticket(client, now)
        displaced = self.admission.enter(ticket, now, may_wait)
        if displaced is not None:
            self.displaced.append(displaced)
        return ticket

    def all_of(self, clients: str, now: float = 0.0) -> list[Ticket]:
        return [self.ask(client, now) for client in clients]

    def next(self, now: float = 0.0) -> object:
        ticket = self.admission.next(now)
        return None if ticket is None else ticket.client


def test_no_more_are_admitted_than_may_be_active() -> None:
    clients = Clients(2, 3)
    tickets = clients.all_of("abcdef")
    assert [ticket.state for ticket in tickets] == [ADMITTED, ADMITTED, WAITING, WAITING, WAITING, REFUSED]
    assert (clients.admission.active, clients.admission.waiting) == (2, 3)


def test_without_a_queue_nobody_waits() -> None:
    assert [ticket.state for ticket in Clients(1, 0).all_of("ab")] == [ADMITTED, REFUSED]


def test_who_must_not_wait_is_admitted_or_refused() -> None:
    clients = Clients(1, 5)
    first = clients.ask("a")
    assert clients.ask("b", may_wait=False).state is REFUSED
    clients.admission.release(first, 0.0)
    assert clients.ask("b", may_wait=False).state is ADMITTED


def test_first_come_is_first_served_while_the_queue_is_short() -> None:
    clients = Clients(1, 5)
    (first, *_) = clients.all_of("abcd")
    assert clients.next() is None
    order = []
    for _ in range(3):
        clients.admission.release(first, 0.0)
        first = clients.admission.next(0.0) or first
        order.append(first.client)
    assert order == ["b", "c", "d"]


def test_one_who_comes_does_not_overtake_those_who_wait() -> None:
    clients = Clients(1, 5)
    first, _ = clients.all_of("ab")
    clients.admission.release(first, 0.0)
    assert clients.ask("c").state is WAITING
    assert clients.next() == "b"


def test_newest_is_served_first_once_somebody_had_to_be_refused() -> None:
    clients = Clients(1, 3)
    (first, *_) = clients.all_of("abcd")
    assert clients.ask("e").state is REFUSED
    clients.admission.release(first, 0.0)
    assert clients.next() == "d"


def test_order_is_that_of_arrival_again_when_nobody_was_refused_for_a_while() -> None:
    clients = Clients(1, 3)
    (first, *_) = clients.all_of("abcde")
    for ticket in list(clients.admission._waiting):
        assert clients.admission.leave(ticket)
    for client in "fg":
        clients.ask(client, PATIENCE)
    clients.admission.release(first, PATIENCE)
    assert clients.next(PATIENCE) == "f"


def test_nobody_waits_longer_than_allowed() -> None:
    clients = Clients(1, 5)
    clients.ask("a")
    waiting = clients.ask("b", 0.25)
    assert clients.admission.due(0.25) == 0.25 + PATIENCE
    assert clients.admission.expired(PATIENCE) is None
    assert clients.admission.expired(0.25 + PATIENCE) is waiting
    assert (waiting.state, clients.admission.waiting, clients.admission.due(2.0)) == (REFUSED, 0, None)


def test_wait_is_short_while_there_is_more_to_do_than_can_be_done() -> None:
    clients = Clients(1, 4)
    clients.all_of("abcde")
    assert clients.ask("f").state is REFUSED
    soon = PATIENCE * STANDING_SHARE
    assert clients.admission.due(0.0) == soon
    late = [clients.admission.expired(soon) for _ in range(4)]
    # The last one is kept: a slot may become free before another comes.
    assert [ticket and ticket.client for ticket in late] == ["b", "c", "d", None]
    assert clients.admission.due(soon) == PATIENCE


def test_one_who_leaves_is_not_admitted() -> None:
    clients = Clients(1, 5)
    first, second, _ = clients.all_of("abc")
    assert clients.admission.leave(second)
    assert not clients.admission.leave(second)
    assert not clients.admission.leave(first)
    clients.admission.release(first, 0.0)
    assert clients.next() == "c"
    assert first.state is GONE


def test_client_with_fewer_requests_takes_a_place_of_one_with_more() -> None:
    clients = Clients(2, 4)
    greedy = clients.all_of("aaaaaa")
    assert clients.ask("a").state is REFUSED
    assert clients.ask("b").state is WAITING
    assert clients.displaced == [greedy[-1]]
    assert greedy[-1].state is REFUSED


@pytest.mark.parametrize("known", ["a", None])
def test_without_a_queue_nobody_is_displaced(known: object) -> None:
    """Clients that have no address are known as `None`."""
    clients = Clients(2, 0)
    assert [clients.ask(known).state for _ in range(3)] == [ADMITTED, ADMITTED, REFUSED]
    assert [clients.ask(client).state for client in ("b", None)] == [REFUSED, REFUSED]
    assert not clients.displaced


def test_first_client_has_its_turn_where_all_have_their_part_even_without_an_address() -> None:
    clients = Clients(LOOKED_AT, 2 * LOOKED_AT)
    everybody: list[object] = [None, *range(1, LOOKED_AT)]
    first, *_ = [clients.ask(client) for client in everybody]
    for client in [*everybody, *range(LOOKED_AT, LOOKED_AT + 8)]:
        clients.ask(client)
    clients.admission.release(first, 0.0)
    clients.admission._running[None] = 1  # its part, as the others have theirs
    assert clients.next() is None
    assert None not in clients.admission._lines


def test_places_are_taken_until_all_have_as_many() -> None:
    clients = Clients(2, 4)
    clients.all_of("aaaaaa" + "bbb" + "b")
    held = Counter(ticket.client for ticket in clients.admission._waiting)
    assert held == {"a": 1, "b": 3}
    clients.all_of("cccc")
    held = Counter(ticket.client for ticket in clients.admission._waiting)
    assert held == {"a": 1, "b": 2, "c": 1}


def test_client_that_has_its_part_of_what_is_served_lets_others_pass() -> None:
    clients = Clients(4, 8)
    served = clients.all_of("aaaa")
    clients.all_of("aaaabb")
    order = []
    for ticket in served:
        clients.admission.release(ticket, 0.0)
        order.append(clients.next())
    # Half of four is the part of each, and a has more than that until two of its requests are over.
    assert order == ["b", "b", "a", "a"]


def test_client_that_is_alone_has_everything() -> None:
    clients = Clients(3, 3)
    assert [ticket.state for ticket in clients.all_of("aaaaaa")] == [ADMITTED] * 3 + [WAITING] * 3


def test_release_counts_once() -> None:
    clients = Clients(1, 0)
    ticket = clients.ask("a")
    refused = clients.ask("b")
    for one in (ticket, ticket, refused):
        clients.admission.release(one, 0.0)
    assert clients.admission.active == 0


@pytest.mark.parametrize("seed", range(40))
def test_books_agree_whatever_happens(seed: int) -> None:
    """Nothing is lost, nobody is admitted beyond the limit, and in the end all is as in the beginning."""
    rnd = random.Random(seed)
    limit = FixedLimit(rnd.randint(1, 6))
    admission: Admission[Ticket] = Admission(limit, rnd.randint(0, 12), PATIENCE, 0.0)
    asked: list[Ticket] = []
    now = 0.0

    def step() -> None:
        nonlocal now
        now += rnd.expovariate(20)
        match rnd.randrange(6):
            case 0 | 1:
                ticket = Ticket(rnd.choice("aaaabcdefg"), now)
                asked.append(ticket)
                admission.enter(ticket, now, rnd.random() < 0.9)
            case 2:
                admission.release(rnd.choice(asked or [Ticket("-", now)]), now)
            case 3:
                admission.leave(rnd.choice(asked or [Ticket("-", now)]))
            case 4:
                admission.expired(now)
            case 5:
                admission.next(now)

    for _ in range(600):
        before = admission.active
        limit.now = max(1, limit.now + rnd.choice((-1, 0, 0, 1)))
        step()
        states = Counter(ticket.state for ticket in asked)
        assert (admission.active, admission.waiting) == (states[ADMITTED], states[WAITING])
        assert admission.active <= max(before, limit.now)
        assert sum(admission._running.values()) == admission.active
        assert sum(map(len, admission._lines.values())) == admission.waiting
        lengths = {client: len(line) for client, line in admission._lines.items()}
        assert {client: n for n, clients in admission._longest.items() for client in clients} == lengths
    for ticket in asked:
        admission.leave(ticket)
        admission.release(ticket, now)
    assert (admission.active, admission.waiting) == (0, 0)
    assert not (admission._running or admission._lines or admission._longest or admission._waiting)


# An event loop that is asked for more than it can do


@dataclass
class Outcome:
    """What became of requests that came at a rate: how many were served in a second, and how long they took."""

    good: float
    p99: float


IDLE, WORK, REFUSING = 0.010, 0.001, 0.000_015


def outcome(limit: Limit, rate: float, seconds: float, settle: float, in_time: float = 0.5) -> Outcome:
    """Serve requests that come by chance, whether or not others were answered, on one thread whose time is counted.

    Each computes for half of `WORK`, waits `IDLE`, and computes for the other half. In each turn of the loop all that
    has come is read first, then what is ready takes its step. What is answered behind `in_time` is worth nothing.
    """
    rnd = random.Random(1)
    admission: Admission[Ticket] = Admission(limit, 100, 0.1, 0.0)
    now, due = 0.0, rnd.expovariate(rate)
    came: dict[Ticket, float] = {}
    ready: deque[tuple[Ticket, bool]] = deque()
    idle: deque[tuple[float, Ticket]] = deque()
    took: list[float] = []
    while now < seconds:
        while due <= now:
            ticket = Ticket(len(came) % 1000, now)
            came[ticket] = due
            admission.enter(ticket, now)
            now += REFUSING
            if ticket.state is ADMITTED:
                ready.append((ticket, True))
            due += rnd.expovariate(rate)
        while idle and idle[0][0] <= now:
            ready.append((idle.popleft()[1], False))
        for _ in range(len(ready)):
            ticket, is_first = ready.popleft()
            now += WORK / 2
            if is_first:
                idle.append((now + IDLE, ticket))
            else:
                admission.release(ticket, now)
                if came[ticket] >= settle:
                    took.append(now - came[ticket])
        while (admitted := admission.next(now)) is not None:
            ready.append((admitted, True))
        while admission.expired(now) is not None:
            now += REFUSING
        if not ready:
            waits = [due, *(at for at, _ in list(idle)[:1]), *filter(None, [admission.due(now)])]
            now = max(now + 1e-6, min(waits))
    took.sort()
    good = sum(one <= in_time for one in took) / (seconds - settle)
    return Outcome(good, took[len(took) * 99 // 100] if took else math.inf)


@pytest.mark.parametrize("limit", [lambda: FixedLimit(16), lambda: AdaptiveLimit(0.0)], ids=["16", "auto"])
def test_what_is_served_at_three_times_the_capacity_is_served_in_time(limit: Callable[[], Limit]) -> None:
    """D11: nine tenths of what can be done are done, in less than three times of what it takes without load."""
    capacity = 1 / WORK
    unloaded = outcome(FixedLimit(10_000), 0.2 * capacity, 8.0, 1.0)
    loaded = outcome(limit(), 3 * capacity, 20.0, 6.0)
    assert loaded.good >= 0.9 * capacity
    assert loaded.p99 < 3 * unloaded.p99


def test_without_a_limit_nothing_is_served_in_time() -> None:
    assert outcome(FixedLimit(10**9), 3 / WORK, 8.0, 4.0).good == 0


@pytest.mark.parametrize("limit", [lambda: FixedLimit(16), lambda: AdaptiveLimit(0.0)], ids=["16", "auto"])
def test_nothing_is_refused_below_the_capacity(limit: Callable[[], Limit]) -> None:
    assert outcome(limit(), 0.8 / WORK, 12.0, 4.0).good >= 0.97 * 0.8 / WORK


# The limit that is found out


def ended(limit: AdaptiveLimit, now: float, took: float, is_short: bool = True) -> None:
    for _ in range(SAMPLES):
        limit.observe(now, now + took, is_short)


class Machine:
    """Requests that take `idle`, and then the thread of their server, each for `work`; always as many as there may be.

    With n of them each takes `max(idle + work, n * work)`.
    """

    def __init__(self, idle: float, work: float) -> None:
        self.idle, self.work = idle, work
        self.limit = AdaptiveLimit(1000.0)
        self.now = 1000.0
        self.peak = 0

    def run(self, seconds: float, noise: random.Random | None = None) -> list[int]:
        limits = []
        until = self.now + seconds
        while self.now < until:
            count = self.limit.now
            took = max(self.idle + self.work, count * self.work)
            begun = self.now
            self.now += took
            for _ in range(count):
                factor = 1.0 if noise is None else noise.uniform(0.7, 1.4)
                self.limit.observe(begun, begun + took * factor, True)
            limits.append(count)
        return limits


def test_it_begins_with_what_is_said() -> None:
    assert AdaptiveLimit(0.0).now == START


@pytest.mark.parametrize("idle, work", [(0.010, 0.001), (0.050, 0.001), (0.004, 0.0005), (0.2, 0.004)])
def test_limit_comes_to_what_is_enough_and_not_to_much_more(idle: float, work: float) -> None:
    machine = Machine(idle, work)
    machine.run(60)
    enough = (idle + work) / work
    settled = [limit for limit in machine.run(60) if limit > machine.limit._limit / PROBE_SHARE + 1]
    assert min(settled) >= enough
    assert max(settled) <= 2.2 * enough


def test_limit_follows_noise_but_little() -> None:
    machine = Machine(0.010, 0.001)
    noise = random.Random(1)
    machine.run(60, noise)
    settled = sorted(machine.run(60, noise))
    assert settled[len(settled) // 20] >= 5
    assert 11 <= settled[len(settled) // 2] <= 27


def test_load_that_stays_does_not_become_what_is_usual() -> None:
    machine = Machine(0.010, 0.001)
    machine.run(60)
    early = machine.limit._limit
    machine.run(1200)
    assert machine.limit._limit < 1.3 * early


def test_requests_that_become_slower_by_themselves_are_let_in_again() -> None:
    machine = Machine(0.010, 0.001)
    machine.run(60)
    machine.idle = 0.100
    machine.run(120)
    assert machine.limit._limit >= 100


def test_few_slow_ones_among_fast_ones_change_nothing() -> None:
    """Two of three requests take 1 ms, with and without load, the others half a second."""
    limit = AdaptiveLimit(1000.0)
    rnd = random.Random(3)
    now = 1000.0
    for _ in range(600):
        for _ in range(40):
            limit.observe(now, now + (0.001 if rnd.random() < 0.67 else 0.5), True)
        now += 0.02
    assert limit._limit > START


def test_limit_stays_where_nothing_is_short() -> None:
    limit = AdaptiveLimit(1000.0)
    for turn in range(200):
        ended(limit, 1000.0 + turn * WINDOW, 0.01 * (1 + turn % 7), is_short=False)
    assert limit.now == START


def test_limit_keeps_its_bounds() -> None:
    fast, slow = AdaptiveLimit(1000.0), AdaptiveLimit(1000.0)
    now = 1000.0
    for turn in range(4000):
        now += 0.2
        ended(fast, now - 0.001, 0.001)
        ended(slow, now - 0.001, 0.001 if slow._probing else 0.001 * (1 + turn % 50))
        assert 1 <= slow.now <= MOST and 1 <= fast.now <= MOST
        assert slow._limit >= LEAST
    assert fast._limit == MOST


def test_more_are_let_in_where_none_ends() -> None:
    limit = AdaptiveLimit(1000.0)
    limit.lack(1001.0)
    assert limit.now == START
    limit.lack(1003.0)
    assert limit.now > START
    known = limit.now
    limit.lack(1003.5)
    assert limit.now == known


def test_tolerance_is_above_what_is_usual() -> None:
    """What takes a little longer than without load is no overload."""
    limit = AdaptiveLimit(1000.0)
    now = 1000.0
    for turn in range(100):
        now += 0.2
        ended(limit, now - 0.1, 0.1 * (TOLERANCE * 0.9 if turn % 2 else 1.0))
    assert limit._limit > START
