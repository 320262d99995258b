"""Streams and connections of HTTP/2 that end while an application is elsewhere: it hears of it, and nothing fails."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from pathlib import Path
from typing import Any

import pytest

from tests import loops
from tests.native.http2_client import (
    DATA,
    FLOW_CONTROL_ERROR,
    INITIAL_WINDOW_SIZE,
    HTTP2Client,
    connect,
    frame,
    reset,
    window_update,
)
from tests.protocols.harness import Service, respond, serve
from tests.utils import turns, wait_until

anyio_backend = loops.each

pytestmark = pytest.mark.anyio

LARGEST = 2**31 - 1
START = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1000000")]}


def piece(length: int, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": bytes(length), "more_body": more}


async def end_stream(client: HTTP2Client, how: str) -> None:
    if how == "reset":
        await client.send(reset(1))
    elif how == "overflow":
        await client.send(window_update(LARGEST, 1) * 2)
    else:
        client.client.close()
    await turns()


@pytest.mark.parametrize("how", ["reset", "overflow", "close"])
@pytest.mark.parametrize("where", ["request", "receive", "head", "body", "send"])
async def test_an_end_at_any_moment_is_heard(
    native: Any, how: str, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    there, goes_on = asyncio.Event(), asyncio.Event()
    heard: list[str] = []

    async def pause(at: str) -> None:
        if at == where:
            there.set()
            await goes_on.wait()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/other":
            await respond()(scope, receive, send)
            return
        await receive()
        await pause("request")
        if where == "receive":
            there.set()
        else:
            await send(START)
            await pause("head")
            await send(piece(1000))
            await pause("body")
            if where == "send":
                there.set()
            for _ in range(9):
                await send(piece(100_000))
            await send(piece(99_000, more=False))
        heard.append((await receive())["type"])

    async with serve(native, app, http2=True) as service:
        client = await connect(service)
        await client.send(window_update(2**20))
        await client.send(client.head(method="POST", end=False) + frame(DATA, 0, 1, b"a"))
        await there.wait()
        await end_stream(client, how)
        goes_on.set()
        await wait_until(lambda: not service.state.tasks)
        if how != "close":
            assert (await client.ask("/other")).status == 200
            client.client.close()
        await service.idle()
    assert heard == ["http.disconnect"]
    assert not caplog.records


async def test_a_window_becomes_too_large_while_its_stream_is_written(native: Any) -> None:
    async with serve(native, respond(bytes(8_000_000)), http2=True) as service:
        client = await connect(service, {INITIAL_WINDOW_SIZE: LARGEST})
        await client.send(window_update(LARGEST - 65535) + client.head() + window_update(LARGEST, 1) * 2)
        assert (await client.answer()).code == FLOW_CONTROL_ERROR
        assert (await client.ask()).status == 200


@pytest.mark.parametrize("how", ["reset", "overflow"])
async def test_a_file_is_given_up_half_way(
    native: Any, how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1_000_000))
    heard: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await send({"type": "http.response.pathsend", "path": str(path)})
        await receive()
        heard.append((await receive())["type"])

    async with serve(native, app, http2=True, asgi_extensions=["http.response.pathsend"]) as service:
        client = await connect(service)
        await client.send(client.head())
        await client.pong()
        await end_stream(client, how)
        await wait_until(lambda: not service.state.tasks)
        client.client.close()
        await service.idle()
    assert heard == ["http.disconnect"]
    assert not caplog.records


class Cutting(logging.Handler):
    """Cuts all connections off, whatever the server has to say."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self.service = service
        self.lines = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += 1
        connections: list[Any] = list(self.service.state.connections)
        for connection in connections:
            connection.transport.abort()


@pytest.mark.parametrize("occasion", ["refused", "failed", "limited"])
async def test_a_log_handler_cuts_the_connection_off(native: Any, occasion: str) -> None:
    settings = {"limit_concurrency": 1} if occasion == "limited" else {"limit_request_fields": 2}
    logger = logging.getLogger("uvicorn.error")
    async with serve(native, respond(), http2=True, **settings) as service:
        client = await connect(service)
        handler = Cutting(service)
        logger.addHandler(handler)
        try:
            first = window_update(LARGEST) if occasion == "failed" else client.head("/", *[("a", "b")] * 3)
            await client.send(first + client.head() + client.head(method="POST", end=False))
            with contextlib.suppress(ConnectionError):
                await client.client.rest()
        finally:
            logger.removeHandler(handler)
        assert handler.lines
        await wait_until(lambda: not service.state.tasks)
        client.client.close()
        await service.idle()


@pytest.mark.parametrize("how", ["reset", "close", "half-close"])
async def test_stream_that_its_client_has_left_is_cancelled(native: Any, how: str) -> None:
    """With `on_disconnect="cancel"`. A reset is of one stream: the others go on."""
    let = asyncio.Event()
    ends: dict[str, str] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        ends[scope["path"]] = "runs"
        try:
            await let.wait()
            ends[scope["path"]] = "returned"
        except asyncio.CancelledError:
            ends[scope["path"]] = "cancelled"
            raise
        await respond()(scope, receive, send)

    settings: Any = {"http2": True, "on_disconnect": "cancel", "on_disconnect_grace": 0}
    async with serve(native, app, **settings) as service:
        client = await connect(service)
        await client.send(client.head("/1"), client.head("/2"))
        await wait_until(lambda: len(ends) == 2)
        if how == "reset":
            await client.send(reset(1))
            await wait_until(lambda: ends["/1"] == "cancelled")
            let.set()
            assert (await client.answer(3)).status == 200
            assert ends == {"/1": "cancelled", "/2": "returned"}
        else:
            if how == "close":
                client.client.close()
            else:
                client.client.half_close()
            await wait_until(lambda: set(ends.values()) == {"cancelled"})


async def test_websocket_over_http2_is_cancelled_when_its_client_leaves(native: Any) -> None:
    begun, ends = list[str](), list[str]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        begun.append("accepted")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    settings: Any = {"http2": True, "ws": "native", "on_disconnect": "cancel", "on_disconnect_grace": 0}
    async with serve(native, app, **settings) as service:
        client = await connect(service)
        websocket = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"), (":path", "/")]
        fields = [*websocket, (":authority", "test"), ("sec-websocket-version", "13")]
        await client.send(client.headers(fields, end=False))
        await wait_until(lambda: len(begun) == 1)
        await client.send(reset(1))
        await wait_until(lambda: ends == ["cancelled"])


async def most_of(service: Service, size: int, part: float) -> HTTP2Client:
    """Ask for `size` bytes, read that part of them, and leave the rest to small buffers and an open window."""
    for sock in service.listener.sockets:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    client = HTTP2Client(await service.connect(receive_buffer=8192))
    await client.begin({INITIAL_WINDOW_SIZE: LARGEST})
    await client.send(window_update(LARGEST - 65_535) + client.head())
    while 1 not in client.answers or len(client.answers[1].body) < part * size:
        await client.read()
    return client


async def test_last_response_is_not_cut_off_while_its_client_reads(
    native: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of a client that only has to leave is not that of one with some of the response still to read."""
    monkeypatch.setattr("uvicorn.rules.limits.LAST_REQUEST_SECONDS", 0.1)
    size = 100_000
    async with serve(native, respond(bytes(size)), http2=True) as service:
        # The rest is more than the kernel holds, and less than makes the server wait with its last frame.
        client = await most_of(service, size, 0.4)
        for connection in list(service.state.connections):
            connection.announce_close()  # type: ignore[attr-defined]
            connection.shutdown()
        await asyncio.sleep(0.5)
        assert len((await client.answer()).body) == size
        await client.client.rest()  # the server ends its side, and nothing is reset


async def test_response_is_complete_though_its_client_speaks_when_another_request_would_be_late(native: Any) -> None:
    size = 100_000
    async with serve(native, respond(bytes(size)), http2=True, timeout_keep_alive=0) as service:
        client = await most_of(service, size, 0.6)
        await asyncio.sleep(0.3)
        await client.send(window_update(1))
        await asyncio.sleep(0.1)
        assert len((await client.answer()).body) == size
