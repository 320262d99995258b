"""The event pool's contract: reuse, bounds, no stale wake-up, figures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.doubles import MockTransport
from tests.protocols.harness import Client, echo, make_config, request, serve
from tests.utils import deep_after
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.serving.event_pool import DEFAULT_CAPACITY, EventPool
from uvicorn.serving.state import ServerState

pytestmark = pytest.mark.anyio


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def stats(pool: EventPool) -> tuple[int, int, int, int, int]:
    figures = pool.stats()
    return figures["created"], figures["reused"], figures["discarded"], figures["idle"], figures["in_use"]


# Reuse and bounds


def test_event_comes_back_to_the_next_user() -> None:
    pool = EventPool()
    event = pool.acquire()
    pool.release(event)
    assert pool.acquire() is event
    assert stats(pool) == (1, 1, 0, 0, 1)


def test_two_users_never_share_an_event() -> None:
    pool = EventPool()
    held = [pool.acquire() for _ in range(10)]
    assert len(set(map(id, held))) == 10


def test_empty_pool_makes_a_fresh_event() -> None:
    """It never blocks: beyond its capacity it creates and counts."""
    pool = EventPool(capacity=2)
    held = [pool.acquire() for _ in range(5)]
    assert stats(pool) == (5, 0, 0, 0, 5)
    for event in held:
        pool.release(event)
    assert stats(pool) == (5, 0, 3, 2, 0)


def test_capacity_of_zero_switches_reuse_off() -> None:
    pool = EventPool(capacity=0)
    first = pool.acquire()
    pool.release(first)
    assert pool.acquire() is not first
    assert stats(pool) == (2, 0, 1, 0, 1)


def test_preallocated_events_are_there_at_once() -> None:
    pool = EventPool(capacity=8, preallocate=3)
    assert stats(pool) == (3, 0, 0, 3, 0)
    for _ in range(4):
        pool.acquire()
    assert stats(pool) == (4, 3, 0, 0, 4)


def test_defaults() -> None:
    pool = EventPool()
    assert (pool.capacity, pool.preallocate, pool.idle_expiry) == (DEFAULT_CAPACITY, 0, None)
    assert stats(pool) == (0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"capacity": -1}, id="capacity"),
        pytest.param({"preallocate": -1}, id="preallocate"),
        pytest.param({"capacity": 1, "preallocate": 2}, id="preallocate-beyond-capacity"),
        pytest.param({"idle_expiry": 0}, id="expiry-of-nothing"),
        pytest.param({"idle_expiry": -1.0}, id="negative-expiry"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: Any) -> None:
    with pytest.raises(ValueError):
        EventPool(**arguments)


# Expiry


def test_idle_events_expire_oldest_first() -> None:
    clock = Clock()
    pool = EventPool(capacity=8, idle_expiry=10, clock=clock)
    first, second = pool.acquire(), pool.acquire()
    pool.release(first)
    clock.now += 6
    pool.release(second)
    clock.now += 6
    assert pool.expire() == 1
    assert stats(pool) == (2, 0, 1, 1, 0)
    assert pool.acquire() is second


def test_release_expires_what_is_due() -> None:
    clock = Clock()
    pool = EventPool(idle_expiry=10, clock=clock)
    held = [pool.acquire() for _ in range(5)]
    for event in held[:4]:
        pool.release(event)
    clock.now += 11
    pool.release(held[4])
    assert stats(pool) == (5, 0, 4, 1, 0)


def test_expiry_keeps_the_preallocated() -> None:
    clock = Clock()
    pool = EventPool(capacity=8, preallocate=2, idle_expiry=10, clock=clock)
    held = [pool.acquire() for _ in range(5)]
    for event in held:
        pool.release(event)
    clock.now += 1000
    assert pool.expire() == 3
    assert pool.expire() == 0
    assert stats(pool)[3] == 2


def test_expiry_is_exact() -> None:
    clock = Clock()
    pool = EventPool(idle_expiry=10, clock=clock)
    pool.release(pool.acquire())
    clock.now += 10
    assert pool.expire() == 0
    clock.now += 0.001
    assert pool.expire() == 1


def test_without_expiry_nothing_expires_and_no_clock_is_read() -> None:
    def clock() -> float:
        raise AssertionError

    pool = EventPool(clock=clock)
    pool.release(pool.acquire())
    assert pool.expire() == 0
    assert stats(pool)[3] == 1


# No stale wake-up


async def test_event_is_cleared_when_it_comes_back() -> None:
    pool = EventPool()
    event = pool.acquire()
    event.set()
    pool.release(event)
    assert not pool.acquire().is_set()


async def test_event_set_after_its_release_does_not_wake_the_next_user() -> None:
    """The former user kept it and sets it late."""
    pool = EventPool()
    event = pool.acquire()
    pool.release(event)
    event.set()
    again = pool.acquire()
    assert again is event
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(again.wait(), 0.01)


async def test_event_somebody_waits_on_is_dropped() -> None:
    """A waiter that is still there would take the next user's wake-up."""
    pool = EventPool()
    event = pool.acquire()
    waiter = asyncio.create_task(event.wait())
    await asyncio.sleep(0)
    pool.release(event)
    assert stats(pool) == (1, 0, 1, 0, 0)
    assert pool.acquire() is not event
    event.set()
    await waiter


async def test_event_of_a_waiter_that_was_cancelled_but_has_not_left_is_dropped() -> None:
    """Cancelled in this turn of the loop, it lets go of the event only in the next."""
    pool = EventPool()
    event = pool.acquire()
    waiter = asyncio.create_task(event.wait())
    await asyncio.sleep(0)
    waiter.cancel()
    pool.release(event)
    assert stats(pool)[2:] == (1, 0, 0)
    with pytest.raises(asyncio.CancelledError):
        await waiter


async def test_event_of_a_cancelled_waiter_that_has_left_is_reused() -> None:
    pool = EventPool()
    event = pool.acquire()
    waiter = asyncio.create_task(event.wait())
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    pool.release(event)
    again = pool.acquire()
    assert again is event
    late = asyncio.create_task(again.wait())
    await asyncio.sleep(0)
    again.set()
    assert await late


async def test_event_woken_but_not_yet_run_is_dropped() -> None:
    """Set in this turn: its waiter runs in the next, and is still on it."""
    pool = EventPool()
    event = pool.acquire()
    waiter = asyncio.create_task(event.wait())
    await asyncio.sleep(0)
    event.set()
    pool.release(event)
    assert pool.acquire() is not event
    await waiter


# As a model


class Model(RuleBasedStateMachine):
    """Any sequence of uses, on a loop that turns only when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = Clock()
        self.capacity, self.preallocate = 4, 1
        self.pool = EventPool(self.capacity, self.preallocate, 10.0, clock=self.clock)
        self.held: list[asyncio.Event] = []
        self.released: list[asyncio.Event] = []
        self.waiters: list[tuple[asyncio.Event, asyncio.Task[Any]]] = []
        self.acquired = 0

    def turn(self) -> None:
        self.loop.run_until_complete(asyncio.sleep(0))

    def teardown(self) -> None:
        for _, task in self.waiters:
            task.cancel()
        self.turn()
        self.turn()
        self.loop.close()

    @rule()
    def acquire(self) -> None:
        event = self.pool.acquire()
        self.acquired += 1
        assert not event.is_set()
        assert all(event is not other for other in self.held)
        assert all(event is not other or task.done() for other, task in self.waiters), "somebody waits on it"
        self.held.append(event)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def wait(self, data: st.DataObject) -> None:
        event = data.draw(st.sampled_from(self.held))
        self.waiters.append((event, self.loop.create_task(event.wait())))
        self.turn()

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def set(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.held)).set()

    @precondition(lambda self: self.released)
    @rule(data=st.data())
    def set_one_that_was_released(self, data: st.DataObject) -> None:
        event = data.draw(st.sampled_from(self.released))
        if all(event is not other for other in self.held):
            event.set()

    @precondition(lambda self: self.waiters)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.waiters))[1].cancel()

    @rule()
    def let_the_loop_turn(self) -> None:
        self.turn()
        self.waiters = [(event, task) for event, task in self.waiters if not task.done()]

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        event = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.pool.release(event)
        self.released.append(event)

    @rule(seconds=st.sampled_from([1.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds
        self.pool.expire()

    @invariant()
    def figures_add_up(self) -> None:
        created, reused, discarded, idle, in_use = stats(self.pool)
        assert in_use == len(self.held)
        assert 0 <= idle <= self.capacity
        assert created == idle + in_use + discarded
        assert reused + created - self.preallocate == self.acquired


TestModel = Model.TestCase


# In use


async def waiting_requests(service: Any, client: Client, count: int) -> None:
    """Requests whose body comes a moment after their head, so that each waits for it."""
    for number in range(count):
        await client.send(request("POST", "/", "content-length: 5"))
        while not service.state.event_pool.stats()["in_use"]:
            await asyncio.sleep(0)
        await client.send(b"%05d" % number)
        assert (await client.response()).body == b"%05d" % number


@pytest.fixture(params=[pytest.param(HttpToolsProtocol, id="httptools"), pytest.param(H11Protocol, id="h11")])
def python_protocol_cls(request: pytest.FixtureRequest) -> Any:
    """The implementations whose requests wait on events of this pool; the native core has one of its own."""
    return request.param


async def test_request_whose_body_is_there_takes_no_event(python_protocol_cls: Any) -> None:
    async with serve(python_protocol_cls, echo) as service:
        client = await service.connect()
        for _ in range(10):
            assert (await client.ask(request("POST", body=b"x"))).body == b"x"
        assert stats(service.state.event_pool) == (0, 0, 0, 0, 0)


@pytest.mark.usefixtures("recycling")
async def test_waiting_requests_reuse_one_event(python_protocol_cls: Any) -> None:
    async with serve(python_protocol_cls, echo) as service:
        await waiting_requests(service, await service.connect(), 50)
        created, reused, discarded, idle, in_use = stats(service.state.event_pool)
        assert (created, discarded, idle, in_use) == (1, 0, 1, 0)
        assert reused == 49


@pytest.mark.no_cover
@pytest.mark.usefixtures("recycling")
@pytest.mark.parametrize("requests", deep_after(1, [10_000, 100_000]))
async def test_thousands_of_waiting_requests_allocate_next_to_nothing(requests: int) -> None:
    """At most one in a hundred of the events they would make without the pool; h11 would only take longer to say so."""
    side_by_side = 100

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    state = ServerState()
    config = make_config(app, HttpToolsProtocol)
    protocols = []
    for _ in range(side_by_side):
        protocol = HttpToolsProtocol(config, state, {})
        protocol.connection_made(MockTransport())  # type: ignore[arg-type]
        protocols.append(protocol)
    head = request("POST", "/", "content-length: 1")
    for _ in range(requests // side_by_side):
        for protocol in protocols:
            protocol.data_received(head)
        await asyncio.sleep(0)
        assert state.event_pool.stats()["in_use"] == side_by_side
        for protocol in protocols:
            protocol.data_received(b"x")
        await asyncio.sleep(0)
    created, reused, _, _, in_use = stats(state.event_pool)
    assert created + reused == requests
    assert created <= requests // 100
    assert in_use == 0
    assert state.total_requests == requests
    for protocol in protocols:
        protocol.connection_lost(None)


@pytest.mark.no_cover
@pytest.mark.parametrize("connections", deep_after(1, [100, 1000]))
async def test_many_connections_finish_without_one_error(http_protocol_cls: Any, connections: int) -> None:
    """On sockets, all waiting for their bodies at the same time."""
    async with serve(http_protocol_cls, echo) as service:
        clients = [await service.connect() for _ in range(connections)]

        async def run(client: Client, number: int) -> None:
            body = b"%07d" % number
            for _ in range(3):
                await client.send(request("POST", "/", "content-length: 7"))
                await asyncio.sleep(0.001)
                await client.send(body[:3], body[3:])
                response = await client.response()
                assert (response.status, response.body) == (200, body)

        await asyncio.gather(*(run(client, number) for number, client in enumerate(clients)))
        assert service.state.total_requests == 3 * connections
        figures = service.state.event_pool.stats()
        assert figures["in_use"] == 0
        assert figures["idle"] <= DEFAULT_CAPACITY
