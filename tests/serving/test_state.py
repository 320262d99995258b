"""What the protocols of one event loop share."""

from __future__ import annotations

import asyncio
import collections
import contextvars
import gc
import re
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import machines
from tests.access.test_log import Stream, configure
from tests.protocols.harness import GET, request, respond, serve
from tests.utils import server_port, wait_until
from uvicorn.config import Config
from uvicorn.server import Server
from uvicorn.serving import state as module
from uvicorn.serving.state import ConnectionSet, ServerState

pytestmark = pytest.mark.anyio

http_protocol_cls = machines.each


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


# The end


class Parts:
    """What protocols derive from a configuration."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_closing_tells_the_protocols_part_and_lets_go_of_it() -> None:
    state, parts = ServerState(), Parts()
    state.close()
    state.protocol_settings = parts
    state.close()
    state.close()
    assert parts.closed == 1
    assert state.protocol_settings is None


async def test_closing_keeps_the_number_of_responses(http_protocol_cls: Any) -> None:
    async with serve(http_protocol_cls, respond()) as service:
        client = await service.connect()
        await client.ask()
        await client.ask()
        service.state.close()
        assert service.state.total_requests == 2
        # A connection that is still there goes on.
        await client.ask()


@pytest.mark.parametrize("text", [None, "%(U)s %(B)s"], ids=["default", "format"])
async def test_closing_writes_what_waits_for_the_end_of_the_turn(http_protocol_cls: Any, text: str | None) -> None:
    stream = Stream()
    configure(stream)
    states: list[ServerState] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await respond()(scope, receive, send)
        assert stream.getvalue() == ""
        states[0].close()
        assert stream.getvalue().count("\n") == 1

    async with serve(http_protocol_cls, app, access_log=True, access_log_format=text) as service:
        states.append(service.state)
        client = await service.connect()
        assert (await client.ask()).body == b"ok"
        await service.connect()  # the application has returned by now
    assert stream.getvalue().count("\n") == 1


def uvicorn_objects() -> collections.Counter[str]:
    """How many objects of each class of the package there are, among those the collector knows."""
    gc.collect()
    kinds = (type(thing) for thing in gc.get_objects())
    return collections.Counter(kind.__qualname__ for kind in kinds if str(kind.__module__).startswith("uvicorn"))


@pytest.mark.parametrize("text", [None, "json"], ids=["default", "format"])
def test_nothing_is_left_of_a_server_that_has_ended(http_protocol_cls: Any, tmp_path: Path, text: str | None) -> None:
    """The lines of the last requests are in the log, and no object of the package is still there."""
    log = tmp_path / "access.log"

    async def run() -> None:
        config = Config(
            app, http=http_protocol_cls, port=0, lifespan="off", log_config=None, access_log_format=text, ws="none"
        )
        server = Server(config)

        def stop() -> None:
            server.should_exit = True

        stops.append(stop)
        serving = asyncio.create_task(server.serve())
        await wait_until(lambda: server.started)
        reader, writer = await asyncio.open_connection("127.0.0.1", server_port(server))
        writer.write(GET + request("GET", "/last"))
        assert (await reader.read()).count(b"HTTP/1.1 200") == 2
        writer.close()
        await serving

    stops: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await respond()(scope, receive, send)
        if scope["path"] == "/last":
            stops.pop()()

    def serve_once() -> None:
        with log.open("a") as file:
            configure(file)
            asyncio.run(run())

    serve_once()  # what is made once for the process
    before = uvicorn_objects()
    serve_once()
    assert uvicorn_objects() - before == collections.Counter()
    assert [line.count("/last") for line in log.read_text().splitlines()] == [0, 1, 0, 1]


def test_connections_that_linger_do_not_make_a_server_full() -> None:
    """Upstream closes at once, and answers a hundred clients a second that end a second later."""
    state = ServerState()
    connections = [object() for _ in range(4)]
    for place, connection in enumerate(connections, 1):
        state.connections.add(connection)  # type: ignore[arg-type]
        assert state.is_full(2) is (place >= 2)
    for count, is_full in ((2, True), (3, False), (4, False)):
        state.lingering.update(map(id, connections[:count]))
        assert state.is_full(2) is is_full
