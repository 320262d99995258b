"""What the protocols of one event loop share."""

from __future__ import annotations

import asyncio
import contextvars
import re
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any

import pytest

from uvicorn import state as module
from uvicorn.state import ConnectionSet, ServerState

pytestmark = pytest.mark.anyio


class Connection:
    def shutdown(self) -> None: ...


# Connections


async def test_waiting_for_the_last_connection_ends_when_it_goes() -> None:
    state = ServerState()
    first, second = Connection(), Connection()
    state.connections.update([first, second])
    waiters = [asyncio.create_task(state.wait_no_connections()) for _ in range(2)]
    await asyncio.sleep(0)
    state.connections.discard(first)
    state.connections.discard(first)
    await asyncio.sleep(0)
    assert not any(waiter.done() for waiter in waiters)
    state.connections.discard(second)
    await asyncio.wait_for(asyncio.gather(*waiters), 1)


async def test_waiting_without_connections_returns_at_once() -> None:
    await asyncio.wait_for(ServerState().wait_no_connections(), 1)


@pytest.mark.parametrize("way", ["discard", "remove", "clear"])
async def test_every_way_of_removing_wakes(way: str) -> None:
    connection = Connection()
    connections = ConnectionSet([connection])
    waiter = asyncio.create_task(connections.wait_empty())
    await asyncio.sleep(0)
    getattr(connections, way)(*([] if way == "clear" else [connection]))
    await asyncio.wait_for(waiter, 1)


async def test_connection_that_comes_in_between_is_waited_for() -> None:
    connection = Connection()
    connections = ConnectionSet([connection])
    waiter = asyncio.create_task(connections.wait_empty())
    await asyncio.sleep(0)
    connections.discard(connection)
    connections.add(connection)
    await asyncio.sleep(0)
    assert not waiter.done()
    connections.discard(connection)
    await asyncio.wait_for(waiter, 1)


async def test_waiter_that_was_cancelled_does_not_disturb_the_others() -> None:
    connection = Connection()
    connections = ConnectionSet([connection])
    gone, kept = [asyncio.create_task(connections.wait_empty()) for _ in range(2)]
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    connections.discard(connection)
    await asyncio.wait_for(kept, 1)


def test_connections_are_a_set() -> None:
    connections = ConnectionSet()
    assert isinstance(connections, set)
    with pytest.raises(KeyError):
        connections.remove(Connection())


# Headers


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.built: list[float] = []

        def count(second: float, usegmt: bool) -> str:
            self.built.append(second)
            return formatdate(second, usegmt=usegmt)

        monkeypatch.setattr(module, "time", lambda: self.now)
        monkeypatch.setattr(module, "formatdate", count)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_fresh_state_has_no_headers() -> None:
    state = ServerState()
    assert state.default_headers == []
    assert state.default_head == b""


def test_date_comes_first_and_is_that_of_the_second(clock: Clock) -> None:
    """RES-01, RES-02, LIFE-12: formatted once in a second, by whoever asks."""
    state = ServerState()
    clock.now = 784111777.9
    state.configure(headers=[(b"server", b"s"), (b"x", b"y")], date_header=True)
    expected = [(b"date", b"Sun, 06 Nov 1994 08:49:37 GMT"), (b"server", b"s"), (b"x", b"y")]
    assert state.default_headers == expected
    assert state.default_head == b"date: Sun, 06 Nov 1994 08:49:37 GMT\r\nserver: s\r\nx: y\r\n"
    assert len(clock.built) == 1
    clock.now += 0.2
    assert state.default_headers[0] == (b"date", b"Sun, 06 Nov 1994 08:49:38 GMT")
    assert len(clock.built) == 2
    clock.now += 1
    assert b":39 GMT\r\n" in state.default_head
    for _ in range(10):
        assert state.default_headers
        assert state.default_head
    assert len(clock.built) == 3


def test_clock_that_is_set_back_is_followed(clock: Clock) -> None:
    state = ServerState()
    clock.now = 1000.0
    state.configure(headers=[], date_header=True)
    clock.now = 10.0
    assert state.default_headers == [(b"date", b"Thu, 01 Jan 1970 00:00:10 GMT")]


def test_without_date_nothing_depends_on_the_time(clock: Clock) -> None:
    state = ServerState()
    state.configure(headers=[(b"a", b"b")], date_header=False)
    clock.now += 100
    assert state.default_headers == [(b"a", b"b")]
    assert state.default_head == b"a: b\r\n"
    assert clock.built == []


def test_configured_headers_are_the_servers_own() -> None:
    state = ServerState()
    headers = [(b"a", b"b")]
    state.configure(headers=headers, date_header=False)
    headers.append((b"c", b"d"))
    assert state.default_headers == [(b"a", b"b")]


def test_default_headers_can_be_assigned() -> None:
    """As upstream's tests and embedders do."""
    state = ServerState()
    state.configure(headers=[(b"a", b"b")], date_header=True)
    state.default_headers = [(b"c", b"d")]
    assert state.default_headers == [(b"c", b"d")]
    assert state.default_head == b"c: d\r\n"


def test_date_is_an_imf_fixdate() -> None:
    """RES-02"""
    state = ServerState()
    state.configure(headers=[], date_header=True)
    assert re.fullmatch(rb"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT", state.default_headers[0][1])


# Requests


def test_limit_calls_back_once_when_it_is_reached() -> None:
    """LIM-07, LIM-08, LIM-09: at that very response; what is complete before the server has reacted is counted too."""
    state, reached = ServerState(), []
    state.limit_requests(3, lambda: reached.append(state.total_requests))
    for _ in range(5):
        state.request_complete()
    assert reached == [3]
    assert state.total_requests == 5


def test_requests_are_counted_without_a_limit() -> None:
    state = ServerState()
    state.request_complete()
    assert state.total_requests == 1
    assert state.request_limit is None
    state.request_limit_reached()


def test_limit_can_be_asked_for() -> None:
    """By an implementation that counts for itself."""
    state, reached = ServerState(), []
    state.limit_requests(3, lambda: reached.append(True))
    assert state.request_limit == 3
    state.request_limit_reached()
    assert reached == [True]


def test_count_can_be_set() -> None:
    """As upstream's users do; what an implementation has counted for itself is added to it."""
    state = ServerState()
    state.total_requests = 5
    assert state.total_requests == 5
    state.protocol_settings = SimpleNamespace(total_requests=2)
    assert state.total_requests == 7


def test_context_is_that_of_the_moment_it_was_captured() -> None:
    """K6, CON-11"""
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable", default=None)
    variable.set(1)
    state = ServerState()
    variable.set(2)
    assert state.context[variable] == 1
    state.capture_context()
    variable.set(3)
    assert state.context[variable] == 2


def test_states_share_nothing() -> None:
    first, second = ServerState(), ServerState()
    for name in ("connections", "tasks", "event_pool"):
        assert getattr(first, name) is not getattr(second, name)
    assert (first.total_requests, first.protocol_settings) == (0, None)
