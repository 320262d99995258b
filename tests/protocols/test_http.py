"""The protocol without a real loop or transport: what tools read from it, and how it uses what it is given."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.doubles import MockLoop, MockTransport
from tests.protocols.harness import GET, GET_10, GET_CLOSE, Calls, echo, make_config, request, respond
from tests.utils import wait_until
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.serving.state import ServerState

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@pytest.fixture(params=[pytest.param(HttpToolsProtocol, id="httptools"), pytest.param(H11Protocol, id="h11")])
def http_protocol_cls(request: pytest.FixtureRequest) -> Any:
    """The implementations in Python: the native core needs a real loop."""
    return request.param


@pytest.fixture
def loop() -> Iterator[MockLoop]:
    loop = MockLoop()
    yield loop
    loop.close()


Connect = Callable[..., Any]


@pytest.fixture
def connect(http_protocol_cls: Any, loop: MockLoop) -> Connect:
    """Make a connected protocol on the double of a loop."""

    def connect(app: Any = None, transport: MockTransport | None = None, **settings: Any) -> Any:
        config = make_config(app or respond(), http_protocol_cls, **settings)
        protocol = http_protocol_cls(config=config, server_state=ServerState(), app_state={}, _loop=loop)
        protocol.connection_made(transport or MockTransport())
        return protocol

    return connect


async def test_request_runs_when_the_loop_runs_its_task(connect: Connect, loop: MockLoop) -> None:
    protocol = connect()
    protocol.data_received(GET)
    assert protocol.transport.buffer == b""
    await loop.run_one()
    assert protocol.transport.buffer == OK
    assert not protocol.transport.is_closing()


async def test_head_and_body_are_one_write(connect: Connect, loop: MockLoop) -> None:
    """RES-21"""
    protocol = connect()
    protocol.data_received(GET)
    await loop.run_one()
    assert protocol.transport.writes == [OK]


async def test_responses_of_one_read_are_one_write(http_protocol_cls: Any) -> None:
    """What is completed while input is worked through leaves together."""
    config = make_config(respond(), http_protocol_cls)
    transport = MockTransport()
    protocol = http_protocol_cls(config=config, server_state=ServerState(), app_state={})
    protocol.connection_made(transport)
    protocol.data_received(GET * 16)
    await wait_until(lambda: len(transport.buffer) >= len(OK * 16))
    assert transport.buffer == OK * 16
    assert len(transport.writes) <= 16
    protocol.connection_lost(None)


async def test_attributes_that_tools_read(connect: Connect, loop: MockLoop, http_protocol_cls: Any) -> None:
    protocol = connect()
    assert protocol.loop is loop
    assert isinstance(protocol.transport, MockTransport)
    assert protocol.config.http_protocol_class is http_protocol_cls
    assert protocol.app is protocol.config.loaded_app
    assert protocol.ws_protocol_class is None
    assert protocol.client == ("127.0.0.1", 8001)
    assert not protocol.scope
    protocol.data_received(request("GET", "/here"))
    assert protocol.scope["path"] == "/here"
    await loop.run_one()
    assert not protocol.scope


async def test_configuration_is_loaded_if_it_is_not(http_protocol_cls: Any, loop: MockLoop) -> None:
    """API-05"""
    config = Config(respond(), http=http_protocol_cls, log_config=None)
    protocol = http_protocol_cls(config, ServerState(), {}, loop)
    assert config.loaded
    assert protocol.app is config.loaded_app


async def test_connections_share_what_they_derive_from_a_configuration(http_protocol_cls: Any, loop: MockLoop) -> None:
    state = ServerState()
    first, second = [make_config(respond(), http_protocol_cls) for _ in range(2)]
    protocols = [http_protocol_cls(config, state, {}, loop) for config in (first, first, second)]
    assert [protocol.config for protocol in protocols] == [first, first, second]
    assert [protocol.app for protocol in protocols] == [config.loaded_app for config in (first, first, second)]


async def test_loop_is_the_running_one_unless_given(http_protocol_cls: Any) -> None:
    protocol = http_protocol_cls(make_config(respond(), http_protocol_cls), ServerState(), {})
    assert protocol.loop is asyncio.get_running_loop()


@pytest.mark.parametrize(
    ("extra", "scheme", "server", "client"),
    [
        pytest.param({}, "http", ("127.0.0.1", 8000), ("127.0.0.1", 8001), id="tcp"),
        pytest.param({"sslcontext": True}, "https", ("127.0.0.1", 8000), ("127.0.0.1", 8001), id="tls"),
        pytest.param({"sockname": "/s", "peername": ""}, "http", ("/s", None), None, id="unix"),
        pytest.param(
            {"sockname": ("::1", 1, 0, 0), "peername": ("fe80::1%eth0", 2, 0, 3)},
            "http",
            ("::1", 1),
            ("fe80::1%eth0", 2),
            id="ipv6",
        ),
        pytest.param({"sockname": None, "peername": None}, "http", None, None, id="unknown"),
    ],
)
async def test_scope_takes_addresses_from_the_transport(
    connect: Connect, extra: dict[str, Any], scheme: str, server: Any, client: Any
) -> None:
    """SCO-04, SCO-05, SCO-21, K11"""
    protocol = connect(transport=MockTransport(**extra))
    protocol.data_received(GET)
    scope = protocol.scope
    assert (scope["scheme"], scope["server"], scope["client"]) == (scheme, server, client)


async def test_keep_alive_timer_is_there_while_the_connection_is_idle(connect: Connect, loop: MockLoop) -> None:
    """CON-01, K1"""
    protocol = connect(timeout_keep_alive=5, timeout_request_head=0)
    protocol.data_received(GET)
    assert protocol.timeout_keep_alive_task is None
    await loop.run_one()
    assert protocol.timeout_keep_alive_task is not None
    protocol.data_received(GET[:5])
    assert protocol.timeout_keep_alive_task is None
    protocol.data_received(GET[5:])
    await loop.run_one()
    loop.run_later(with_delay=1)
    assert not protocol.transport.is_closing()
    protocol.data_received(GET)
    await loop.run_one()
    loop.run_later(with_delay=5)
    assert protocol.transport.is_closing()


async def test_no_timer_is_left_after_the_connection(connect: Connect, loop: MockLoop) -> None:
    """K3: whatever it was waiting for."""
    for data in (b"", GET[:5], GET, GET_CLOSE, request("POST", "/", "content-length: 5")):
        protocol = connect(echo)
        if data:
            protocol.data_received(data)
        if data in (GET, GET_CLOSE):
            await loop.run_one()
        protocol.connection_lost(None)
        assert loop.timers == []
        assert protocol.timeout_keep_alive_task is None


async def test_requests_do_not_make_timers(http_protocol_cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One timer per connection serves all deadlines."""
    loop = asyncio.get_running_loop()
    made: list[float] = []
    original = loop.call_later

    def call_later(delay: float, *args: Any, **options: Any) -> Any:
        made.append(delay)
        return original(delay, *args, **options)

    monkeypatch.setattr(loop, "call_later", call_later)
    protocol = http_protocol_cls(make_config(echo, http_protocol_cls), ServerState(), {})
    transport = MockTransport()
    protocol.connection_made(transport)
    for _ in range(100):
        protocol.data_received(request("POST", body=b"x"))
        await asyncio.sleep(0)
    assert transport.buffer.count(b"HTTP/1.1 200 OK") == 100
    assert len(made) <= 3
    protocol.connection_lost(None)


async def test_connection_is_known_while_it_lives(connect: Connect) -> None:
    protocol = connect()
    state = protocol.server_state
    assert state.connections == {protocol}
    protocol.connection_lost(None)
    assert not state.connections


async def test_lost_connection_may_be_lost_with_an_error(connect: Connect) -> None:
    protocol = connect()
    protocol.data_received(GET)
    protocol.connection_lost(ConnectionResetError())
    assert not protocol.server_state.connections


async def test_data_behind_the_end_is_ignored(connect: Connect, loop: MockLoop) -> None:
    """K2"""
    protocol = connect()
    protocol.data_received(GET_CLOSE)
    await loop.run_one()
    before = protocol.transport.buffer
    protocol.data_received(GET)
    assert protocol.transport.is_closing()
    assert protocol.transport.buffer == before
    assert loop.coroutines == []


async def test_requests_behind_the_first_are_dropped_with_the_connection(http_protocol_cls: Any) -> None:
    """K1: also those that were to be served in the next turn of the loop."""
    app = Calls()
    protocol = http_protocol_cls(make_config(app, http_protocol_cls), ServerState(), {})
    protocol.connection_made(MockTransport())
    protocol.data_received(GET * 100)
    protocol.connection_lost(None)
    served = len(app.scopes)
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(app.scopes) in (served, 1)
    assert served < 100


async def test_empty_lines_do_not_move_a_deadline(connect: Connect, loop: MockLoop) -> None:
    """D1, REQ-14: not that of the first head, and not that of keep-alive."""
    protocol = connect(timeout_request_head=3, timeout_keep_alive=5)
    protocol.data_received(b"\r\n")
    protocol.data_received(b"\r")
    protocol.data_received(b"\n")
    assert not protocol.transport.is_closing()
    loop.run_later(with_delay=3)
    assert protocol.transport.is_closing()


async def test_response_that_breaks_off_closes_a_transport_without_socket(connect: Connect, loop: MockLoop) -> None:
    """R7"""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"part", "more_body": True})
        raise RuntimeError

    protocol = connect(app)
    protocol.data_received(GET_10)
    await loop.run_one()
    assert protocol.transport.buffer.endswith(b"part")
    assert protocol.transport.is_closing()


async def test_refused_request_is_answered_and_the_transport_closed(connect: Connect, loop: MockLoop) -> None:
    """REQ-01"""
    protocol = connect()
    protocol.data_received(b"nonsense\r\n\r\n")
    assert protocol.transport.buffer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert protocol.transport.is_closing()
    assert loop.coroutines == []


async def test_reading_is_paused_above_the_high_water_mark(connect: Connect, loop: MockLoop) -> None:
    """BODY-05, CON-05, D4"""
    protocol = connect(echo)
    transport = protocol.transport
    protocol.data_received(request("POST", "/", "content-length: 200000") + bytes(65_536))
    assert not transport.read_paused
    protocol.data_received(b"x")
    assert transport.read_paused
    protocol.data_received(bytes(200_000 - 65_537))
    await loop.run_one()
    assert not transport.read_paused
    transport.clear_buffer()
    protocol.data_received(GET)
    protocol.data_received(GET * 3000)
    assert transport.read_paused
    await loop.run_one()
    while loop.coroutines:
        await loop.run_one()
    assert not transport.read_paused
    assert transport.buffer.count(b"HTTP/1.1 200 OK") == 3001


async def test_writers_wait_while_the_transport_is_full(http_protocol_cls: Any) -> None:
    """CON-08"""
    sent: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        for number in range(3):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            sent.append(number)
            protocol.pause_writing()

    protocol = http_protocol_cls(make_config(app, http_protocol_cls), ServerState(), {})
    protocol.connection_made(MockTransport())
    protocol.data_received(GET)
    for expected in ([0], [0, 1], [0, 1, 2]):
        for _ in range(5):
            await asyncio.sleep(0)
        assert sent == expected
        protocol.resume_writing()
    protocol.connection_lost(None)
    await asyncio.sleep(0)


async def test_context_of_a_request_is_a_copy_on_the_double_of_a_loop(connect: Connect, loop: MockLoop) -> None:
    """K6: `create_task` is called in it."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    seen: list[str] = []
    original = loop.create_task
    protocol = connect()
    variable.set("later")

    def create_task(coroutine: Any) -> Any:
        seen.append(variable.get())
        return original(coroutine)

    loop.create_task = create_task  # type: ignore[method-assign]
    protocol.data_received(GET)
    assert seen == ["unset"]


async def test_shutdown_of_an_idle_connection_closes_it(connect: Connect, loop: MockLoop) -> None:
    """K7, LIFE-14"""
    protocol = connect()
    protocol.shutdown()
    assert protocol.transport.is_closing()
    assert protocol.transport.buffer == b""
    assert loop.timers == []


async def test_shutdown_of_a_busy_connection_waits_for_the_response(connect: Connect, loop: MockLoop) -> None:
    """K7, LIFE-15"""
    protocol = connect()
    protocol.data_received(GET)
    protocol.shutdown()
    assert not protocol.transport.is_closing()
    await loop.run_one()
    assert b"\r\nconnection: close\r\n" in protocol.transport.buffer
    assert protocol.transport.is_closing()
