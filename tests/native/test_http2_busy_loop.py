"""The deadlines of HTTP/2 count time in which the client could be heard; see `tests/protocols/test_busy_loop.py`."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests import machines
from tests.loops import busy
from tests.native.http2_client import (
    ACK,
    DATA,
    END_STREAM,
    GOAWAY,
    INITIAL_WINDOW_SIZE,
    PING,
    PREFACE,
    HTTP2Client,
    connect,
    frame,
    settings,
    window_update,
)
from tests.protocols.harness import body_of, respond, serve
from tests.utils import turns, wait_until
from uvicorn.protocols.http.native_impl import NativeProtocol
from uvicorn.rules import limits

pytestmark = pytest.mark.anyio

reader = machines.readers

TIME = 0.2
"""Seconds that each deadline leaves a client."""


def sends(client: HTTP2Client, data: bytes) -> Callable[[], object]:
    """What a client does without the loop."""
    return lambda: client.client.sock.send(data)


def served(app: Any, **options: Any) -> Any:
    return serve(NativeProtocol, app, http2=True, **options)


def read_all(client: HTTP2Client) -> Callable[[], None]:
    def read() -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                client.client.buffer += client.client.sock.recv(65536)

    return read


async def beginning(patch: pytest.MonkeyPatch) -> None:
    async with served(respond(), timeout_request_head=TIME) as service:
        client = HTTP2Client(await service.connect())
        await client.send(PREFACE[:10])
        await service.accepted()
        await busy(sends(client, PREFACE[10:] + settings() + client.head()))
        assert (await client.answer()).status == 200


async def first_request(patch: pytest.MonkeyPatch) -> None:
    async with served(respond(), timeout_request_head=TIME) as service:
        client = await connect(service)
        await busy(sends(client, client.head()))
        assert (await client.answer()).status == 200


async def keep_alive(patch: pytest.MonkeyPatch) -> None:
    async with served(respond(), timeout_keep_alive=TIME) as service:
        client = await connect(service)
        await client.ask()
        await busy(sends(client, client.head()))
        assert (await client.answer(3)).status == 200


async def rest_of_frame(patch: pytest.MonkeyPatch) -> None:
    async with served(respond(), timeout_request_head=TIME, timeout_keep_alive=60) as service:
        client = await connect(service)
        await client.ask()
        head = client.head()
        await client.send(head[:-3])
        await turns()
        await busy(sends(client, head[-3:]))
        assert (await client.answer(3)).status == 200


async def rest_of_body(patch: pytest.MonkeyPatch) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await respond(await body_of(receive) or b"cut")(scope, receive, send)

    async with served(app, timeout_request_body=TIME) as service:
        client = await connect(service)
        await client.send(client.head(method="POST", end=False))
        await turns()
        await busy(sends(client, frame(DATA, END_STREAM, 1, b"body")))
        assert (await client.answer()).body == b"body"


async def window(patch: pytest.MonkeyPatch) -> None:
    async with served(respond(b"x" * 50), timeout_write=TIME) as service:
        client = await connect(service, {INITIAL_WINDOW_SIZE: 20})
        await client.send(client.head())
        while len(client.answers[1].body if 1 in client.answers else b"") < 20:
            await client.read()
        await busy(sends(client, window_update(100, 1)))
        assert (await client.answer()).body == b"x" * 50


async def writing(patch: pytest.MonkeyPatch) -> None:
    size = 4_000_000
    async with served(respond(bytes(size)), timeout_write=TIME) as service:
        for sock in service.listener.sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        client = HTTP2Client(await service.connect(receive_buffer=8192))
        await client.begin({INITIAL_WINDOW_SIZE: 2**30})
        await client.send(window_update(2**30) + client.head())
        await wait_until(lambda: service.transport.get_write_buffer_size())
        await busy(read_all(client))
        assert len((await client.answer()).body) == size


async def ping(patch: pytest.MonkeyPatch) -> None:
    go_on = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await go_on.wait()
        await respond()(scope, receive, send)

    async with served(app, http2_ping_interval=TIME, http2_ping_timeout=TIME) as service:
        client = await connect(service)
        await client.send(client.head())
        asked = await client.until(PING)
        await busy(sends(client, frame(PING, ACK, payload=asked.payload)))
        go_on.set()
        assert (await client.answer()).status == 200


async def last_call(patch: pytest.MonkeyPatch) -> None:
    """A request that was sent before the client has heard of the server's end."""
    patch.setattr(limits, "LAST_REQUEST_SECONDS", TIME)
    async with served(respond()) as service:
        client = await connect(service)
        await client.ask()
        (connection,) = service.state.connections
        connection.announce_close()  # type: ignore[attr-defined]
        connection.shutdown()
        await busy(sends(client, client.head()))
        assert (await client.answer(3)).status == 200


async def lingering(patch: pytest.MonkeyPatch) -> None:
    """Who has broken the connection, and is still sending, reads why."""
    patch.setattr(limits, "LINGER_SECONDS", TIME)
    async with served(respond()) as service:
        client = await connect(service)
        await client.send(frame(DATA, stream=0))
        await turns()
        await busy(sends(client, bytes(50_000)))
        await client.until(GOAWAY)
        await client.client.rest()  # no reset


async def websocket_pong(patch: pytest.MonkeyPatch) -> None:
    """That of a stream: the bytes are those of its connection."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await receive()
        await send({"type": "websocket.send", "text": "here"})
        await receive()

    async with served(app, ws="auto", ws_ping_interval=TIME, ws_ping_timeout=TIME) as service:
        client = await connect(service)
        fields = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"), (":path", "/")]
        fields += [(":authority", "test"), ("sec-websocket-version", "13")]
        await client.send(client.headers(fields, end=False))
        while len(client.answers[1].body if 1 in client.answers else b"") < 6:
            await client.read()
        payload = client.answers[1].body[2:6]
        pong = b"\x8a\x84" + bytes(4) + payload
        await busy(sends(client, frame(DATA, stream=1, payload=pong + b"\x81\x80" + bytes(4))))
        while b"\x81\x04here" not in client.answers[1].body:
            assert not client.answers[1].ended
            await client.read()


CLOCKS = [
    *(beginning, first_request, keep_alive, rest_of_frame, rest_of_body, window, writing, ping, last_call, lingering),
    websocket_pong,
]


@pytest.mark.parametrize("clock", CLOCKS, ids=lambda clock: clock.__name__)
async def test_client_that_could_not_be_heard_is_not_late(
    clock: Callable[[pytest.MonkeyPatch], Awaitable[None]], reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await clock(monkeypatch)
