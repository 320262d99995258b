"""Upgrade requests: handed over, or served as if nothing had been asked for."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import pytest

from tests.protocols.harness import GET, Calls, echo, request, respond, serve
from tests.utils import wait_until
from uvicorn.logging import TRACE_LOG_LEVEL

pytestmark = pytest.mark.anyio

UNSUPPORTED = "Unsupported upgrade request."
NO_LIBRARY = (
    "No supported WebSocket library detected. Please use \"pip install 'uvicorn[standard]'\", or install "
    "'websockets' or 'wsproto' manually."
)
HANDSHAKE = request(
    "GET",
    "/ws?a=b",
    "Connection: Upgrade",
    "Upgrade: WebSocket",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
)


class Takeover(asyncio.Protocol):
    """Somebody's WebSocket protocol: keeps what it is given and says so."""

    made: list[Takeover] = []

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any]) -> None:
        self.config, self.server_state, self.app_state = config, server_state, app_state
        self.received = b""
        self.order: list[str] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.server_state.connections.add(self)
        self.order.append("connection_made")
        self.made.append(self)

    def data_received(self, data: bytes) -> None:
        self.order.append("data_received")
        self.received += data
        self.transport.write(b"taken")

    def connection_lost(self, exc: Exception | None) -> None:
        self.server_state.connections.discard(self)

    def shutdown(self) -> None:
        self.transport.close()


@pytest.fixture(autouse=True)
def nobody_has_taken_over() -> None:
    Takeover.made.clear()


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


async def test_handshake_that_expects_100_gets_it_in_front_of_everything_else(http_protocol_cls: Any) -> None:
    """RFC 9110 section 7.8: a server that receives both sends 100 before 101."""
    handshake = HANDSHAKE.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")
    async with serve(http_protocol_cls, Calls(), ws=Takeover) as service:
        client = await service.connect()
        await client.send(handshake)
        assert await client.exactly(30) == b"HTTP/1.1 100 Continue\r\n\r\ntaken"
        (taken,) = Takeover.made
        assert taken.received == handshake


async def test_handshake_is_handed_over_as_it_was_sent_with_what_is_behind_it(http_protocol_cls: Any) -> None:
    """UPG-01, UPG-02, UPG-07, UPG-08, W12: upstream loses the bytes behind it, and changes the case of the names."""
    app = Calls()
    state: dict[str, Any] = {"a": 1}
    async with serve(http_protocol_cls, app, ws=Takeover, app_state=state) as service:
        client = await service.connect()
        await client.send(HANDSHAKE + b"\x81\x80abcd")
        assert await client.exactly(5) == b"taken"
        await client.send(b"more")
        await client.exactly(5)
        (taken,) = Takeover.made
        assert taken.received == HANDSHAKE + b"\x81\x80abcdmore"
        assert taken.order == ["connection_made", "data_received", "data_received"]
        assert (taken.config, taken.server_state, taken.app_state) == (service.config, service.state, state)
        assert set(service.state.connections) == {taken}
        assert taken.transport.get_protocol() is taken
        client.close()
        await service.idle()
    assert app.scopes == []
    assert service.state.total_requests == 0


async def test_handshake_is_not_in_the_access_log(http_protocol_cls: Any, caplog: pytest.LogCaptureFixture) -> None:
    """UPG-02, ACC-12"""
    caplog.set_level(logging.INFO)
    async with serve(http_protocol_cls, respond(), ws=Takeover, access_log=True) as service:
        client = await service.connect()
        await client.send(HANDSHAKE)
        await client.exactly(5)
    assert "uvicorn.access" not in [record.name for record in caplog.records]


async def test_handshake_in_single_bytes_is_handed_over_whole(http_protocol_cls: Any) -> None:
    """U6"""
    async with serve(http_protocol_cls, respond(), ws=Takeover) as service:
        client = await service.connect()
        await client.send(*(HANDSHAKE[at : at + 1] for at in range(len(HANDSHAKE))))
        await client.exactly(5)
    assert Takeover.made[0].received == HANDSHAKE


async def test_handshake_behind_requests_waits_for_its_turn(http_protocol_cls: Any) -> None:
    """UPG-02, K1: answers come first; large bodies have not left the transport paused."""
    proceed = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "GET":
            await proceed.wait()
        await echo(scope, receive, send)

    async with serve(http_protocol_cls, app, ws=Takeover) as service:
        client = await service.connect()
        large = bytes(150_000)
        await client.send(request("POST", body=large))
        assert (await client.response()).body == large
        await client.send(GET + request("POST", body=large) + HANDSHAKE, b"frame")
        assert not Takeover.made
        proceed.set()
        assert (await client.response()).body == b""
        assert (await client.response()).body == large
        await client.exactly(5)
        await client.send(b"frame")
        await wait_until(lambda: Takeover.made[0].received == HANDSHAKE + b"frame" + b"frame")


async def test_handshake_is_never_refused_for_concurrency(http_protocol_cls: Any) -> None:
    """LIM-06"""
    async with serve(http_protocol_cls, respond(), ws=Takeover, limit_concurrency=1) as service:
        client = await service.connect()
        await client.send(HANDSHAKE)
        assert await client.exactly(5) == b"taken"


async def test_handover_is_traced(http_protocol_cls: Any, caplog: pytest.LogCaptureFixture) -> None:
    """TRC-02"""
    caplog.set_level(TRACE_LOG_LEVEL, "uvicorn.error")
    async with serve(http_protocol_cls, respond(), ws=Takeover) as service:
        client = await service.connect()
        await client.send(HANDSHAKE)
        await client.exactly(5)
        host, port = client.sock.getsockname()
    assert messages(caplog) == [f"{host}:{port} - HTTP connection made", f"{host}:{port} - Upgrading to WebSocket"]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(["Connection: keep-alive, UPGRADE", "upgrade: websocket"], id="in-a-list"),
        pytest.param(["Connection: keep-alive", "Connection: upgrade", "upgrade: WEBSOCKET"], id="in-two-fields"),
        pytest.param(["Connection: upgrade", "upgrade: h2c, websocket"], id="UPG-12-one-of-two"),
    ],
)
async def test_handshake_may_be_spelled(http_protocol_cls: Any, fields: list[str]) -> None:
    """UPG-01; RFC 9110 section 7.8: the header is a list, of which one may be chosen."""
    async with serve(http_protocol_cls, respond(), ws=Takeover) as service:
        client = await service.connect()
        await client.send(request("GET", "/", *fields))
        assert await client.exactly(5) == b"taken"


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_ignored_upgrade_keeps_its_body_and_the_connection(
    http_protocol_cls: Any, framing: str, caplog: pytest.LogCaptureFixture
) -> None:
    """F18, UPG-03, UPG-05: upstream's httptools implementation loses the body."""
    upgrade = ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMA"]
    if framing == "length":
        data = request("POST", "/", *upgrade, body=b"hello")
    else:
        data = request("POST", "/", *upgrade, "Transfer-Encoding: chunked") + b"5\r\nhello\r\n0\r\n\r\n"
    async with serve(http_protocol_cls, echo, ws=Takeover) as service:
        client = await service.connect()
        await client.send(data + request("POST", body=b"pipelined"))
        assert (await client.response()).body == b"hello"
        assert (await client.response()).body == b"pipelined"
        assert (await client.ask(request("POST", body=b"kept"))).body == b"kept"
    assert messages(caplog) == [UNSUPPORTED]


async def test_websocket_without_an_implementation_is_served_as_a_request(
    http_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """UPG-04"""
    app = Calls()
    async with serve(http_protocol_cls, app, ws="none") as service:
        assert (await (await service.connect()).ask(HANDSHAKE)).body == b"ok"
    assert app.scope["type"] == "http"
    assert messages(caplog) == [UNSUPPORTED, NO_LIBRARY]
    assert {(record.name, record.levelno) for record in caplog.records} == {("uvicorn.error", logging.WARNING)}


async def test_websocket_is_served_as_a_request_by_wsgi(
    http_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """UPG-04, WSGI-02"""

    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [("content-length", "2")])
        return [b"ok"]

    async with serve(http_protocol_cls, app, interface="wsgi", ws=Takeover) as service:
        assert (await (await service.connect()).ask(HANDSHAKE)).body == b"ok"
        await wait_until(lambda: not service.state.tasks)
    assert messages(caplog) == [UNSUPPORTED, NO_LIBRARY]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(request("GET", "/", "Connection: upgrade"), id="UPG-06-no-upgrade-header"),
        pytest.param(request("GET", "/", "Upgrade: websocket"), id="UPG-06-not-named"),
        pytest.param(request("GET", "/", "Connection: upgraded", "Upgrade: websocket"), id="other-token"),
        pytest.param(HANDSHAKE.replace(b"HTTP/1.1", b"HTTP/1.0"), id="UPG-09-http-1.0"),
    ],
)
async def test_request_that_only_looks_like_a_handshake_is_a_request(
    http_protocol_cls: Any, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """UPG-06, UPG-09; RFC 9110 section 7.8: an upgrade asked for in HTTP/1.0 is ignored. Without any warning."""
    async with serve(http_protocol_cls, respond(), ws=Takeover) as service:
        assert (await (await service.connect()).ask(data)).body == b"ok"
    assert Takeover.made == []
    assert messages(caplog) == []


@pytest.mark.parametrize("framing", ["Content-Length: 5", "Transfer-Encoding: chunked"])
async def test_handshake_with_a_body_is_a_request(http_protocol_cls: Any, framing: str) -> None:
    """W12, F18: its body would be taken for frames."""
    async with serve(http_protocol_cls, respond(), ws=Takeover) as service:
        client = await service.connect()
        assert (await client.ask(HANDSHAKE[:-2] + framing.encode() + b"\r\n\r\n")).body == b"ok"
    assert Takeover.made == []


async def test_nothing_is_left_of_connections_that_were_handed_over_and_dropped(http_protocol_cls: Any) -> None:
    """K3, K4"""
    async with serve(http_protocol_cls, respond(), ws=Takeover) as service:

        async def some(count: int) -> int:
            for number in range(count):
                client = await service.connect()
                await client.send(HANDSHAKE)
                if number % 2:
                    await client.exactly(5)
                client.reset()
            service.clients.clear()
            await service.idle()
            Takeover.made.clear()
            gc.collect()
            return sum(isinstance(thing, asyncio.Protocol) for thing in gc.get_objects())

        before = await some(20)
        assert await some(1000) <= before + 2
