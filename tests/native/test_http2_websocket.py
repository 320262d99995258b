"""WebSocket over HTTP/2 (RFC 8441): the native session on a stream."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

import pytest

from tests.native.http2_client import (
    DATA,
    GOAWAY,
    INITIAL_WINDOW_SIZE,
    PROTOCOL_ERROR,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    HTTP2Client,
    connect,
    frame,
    reset,
    window_update,
)
from tests.protocols.harness import Calls, respond, serve
from tests.utils import turns, wait_until
from uvicorn.rules.limits import MAX_EAGER_REQUESTS

wsproto = pytest.importorskip("wsproto")

pytestmark = pytest.mark.anyio

LARGE = os.urandom(1024) * 300

Fields = tuple[tuple[str, str], ...]


class Peer:
    """The frames of a client, on one stream."""

    def __init__(self, client: HTTP2Client, stream: int, extensions: list[Any]) -> None:
        self.client, self.stream = client, stream
        self.frames = wsproto.connection.Connection(wsproto.ConnectionType.CLIENT, extensions)
        self.read = 0

    async def send(self, event: Any) -> None:
        await self.client.send_data(self.frames.send(event), self.stream, end=False)

    async def event(self) -> Any:
        while True:
            for event in self.frames.events():
                return event
            await self.more()

    async def more(self) -> None:
        answer = self.client.answers[self.stream]
        while len(answer.body) == self.read:
            assert not answer.ended, answer
            await self.client.read()
        self.frames.receive_data(answer.body[self.read :])
        self.read = len(answer.body)

    async def text(self) -> str:
        text = ""
        while True:
            event = await self.event()
            text += str(event.data)
            if event.message_finished:
                return text


async def open_one(client: HTTP2Client, path: str = "/", *fields: tuple[str, str]) -> Peer:
    stream = client.next_stream
    await client.send(client.websocket(path, *fields))
    while stream not in client.answers:
        await client.read()
    assert client.answers[stream].status == 200, client.answers[stream]
    extensions = []
    agreed = dict(client.answers[stream].headers).get(b"sec-websocket-extensions")
    if agreed:
        extension = wsproto.extensions.PerMessageDeflate()
        extension.finalize(agreed.decode())
        extensions.append(extension)
    return Peer(client, stream, extensions)


async def echo(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await respond()(scope, receive, send)
        return
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept", "headers": [(b"x-a", b"b")]})
    while (event := await receive())["type"] == "websocket.receive":
        content = {name: event[name] for name in ("text", "bytes") if event.get(name) is not None}
        await send({"type": "websocket.send", **content})


SETTINGS_OF_TESTS: dict[str, Any] = {"http2": True, "ws": "native"}


async def test_it_is_announced_where_it_is_possible(native: Any) -> None:
    for ws, announced in (("native", True), ("wsproto", False), ("none", False)):
        async with serve(native, echo, http2=True, ws=ws) as service:
            client = HTTP2Client(await service.connect())
            await client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS))
            assert (b"\0\x08\0\0\0\x01" in (await client.read()).payload) == announced
            if not announced:
                await client.send(client.websocket())
                assert (await client.answer()).code == PROTOCOL_ERROR


@pytest.mark.parametrize("deflate", [True, False])
async def test_messages_go_there_and_back(native: Any, deflate: bool) -> None:
    scopes: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)
        await echo(scope, receive, send)

    async with serve(native, app, **SETTINGS_OF_TESTS) as service:
        client = await connect(service, {INITIAL_WINDOW_SIZE: 2**30})
        await client.send(window_update(2**30))
        fields: Fields = (("sec-websocket-extensions", "permessage-deflate"),) if deflate else ()
        peer = await open_one(client, "/a?b", ("sec-websocket-protocol", "one, two"), *fields)
        assert dict(client.answers[1].headers)[b"x-a"] == b"b"
        (scope,) = scopes
        assert (scope["type"], scope["http_version"], scope["scheme"]) == ("websocket", "2", "ws")
        assert (scope["path"], scope["query_string"], scope["subprotocols"]) == ("/a", b"b", ["one", "two"])
        assert scope["headers"][:2] == [(b"host", b"test"), (b"sec-websocket-version", b"13")]
        assert scope["client"] == client.client.sock.getsockname()
        for text in ("short", "x" * 20_000, ""):
            await peer.send(wsproto.events.TextMessage(data=text))
            assert await peer.text() == text
        # Requests go on beside it.
        assert (await client.ask()).body == b"ok"
        await peer.send(wsproto.events.Ping(payload=b"?"))
        assert (await peer.event()).payload == b"?"
        await peer.send(wsproto.events.CloseConnection(code=1000))
        assert (await peer.event()).code == 1000
        assert (await client.answer(1)).ended
        await wait_until(lambda: not service.state.tasks)
        assert (await client.ask()).body == b"ok"


async def test_a_subprotocol_is_chosen(native: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept", "subprotocol": "two"})
        await send({"type": "websocket.close", "code": 3000, "reason": "enough"})

    async with serve(native, app, **SETTINGS_OF_TESTS) as service:
        client = await connect(service)
        peer = await open_one(client, "/", ("sec-websocket-protocol", "one, two"))
        assert dict(client.answers[1].headers)[b"sec-websocket-protocol"] == b"two"
        closed = await peer.event()
        assert (closed.code, closed.reason) == (3000, "enough")
        await peer.send(closed.response())
        assert (await client.answer(1)).ended


@pytest.mark.parametrize("kind", ["close", "response", "fail", "streamed"])
async def test_what_is_not_accepted_is_answered(native: Any, kind: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        if kind == "close":
            await send({"type": "websocket.close"})
        elif kind == "fail":
            raise RuntimeError("on purpose")
        else:
            await send({"type": "websocket.http.response.start", "status": 401, "headers": [(b"x-a", b"b")]})
            if kind == "streamed":
                await send({"type": "websocket.http.response.body", "body": b"n", "more_body": True})
            await send({"type": "websocket.http.response.body", "body": b"o"})

    async with serve(native, app, **SETTINGS_OF_TESTS) as service:
        client = await connect(service)
        await client.send(client.websocket())
        answer = await client.answer()
        expected = {
            "close": (403, b""),
            "response": (401, b"o"),
            "fail": (500, b"Internal Server Error"),
            "streamed": (401, b"no"),
        }
        assert (answer.status, answer.body) == expected[kind]
        assert b"connection" not in dict(answer.headers)
        await wait_until(lambda: len(service.state.connections) == 1)


async def test_a_response_that_would_open_it_is_an_error(native: Any) -> None:
    errors: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        try:
            await send({"type": "websocket.http.response.start", "status": 200})
        except RuntimeError as exc:
            errors.append(str(exc))
        await send({"type": "websocket.close"})

    async with serve(native, app, **SETTINGS_OF_TESTS) as service:
        client = await connect(service)
        await client.send(client.websocket())
        assert (await client.answer()).status == 403
    assert errors == ["Status 200 would accept the WebSocket over HTTP/2; use 300 or more."]


@pytest.mark.parametrize(
    ("fields", "protocol", "status"),
    [
        ((), "chat", 501),
        ((("sec-websocket-version", "12"),), "websocket", 426),
        ((("sec-websocket-protocol", "a b"),), "websocket", 400),
    ],
)
async def test_what_cannot_be_opened_is_refused(native: Any, fields: Fields, protocol: str, status: int) -> None:
    async with serve(native, echo, **SETTINGS_OF_TESTS) as service:
        client = await connect(service)
        await client.send(client.websocket("/", *fields, protocol=protocol))
        assert (await client.answer()).status == status
        assert (await client.ask()).body == b"ok"


@pytest.mark.parametrize("end", ["reset", "stream", "connection"])
async def test_a_client_that_leaves_is_heard(native: Any, end: str) -> None:
    heard: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        heard.append(await receive())

    async with serve(native, app, **SETTINGS_OF_TESTS) as service:
        client = await connect(service)
        await open_one(client)
        if end == "reset":
            await client.send(reset(1))
        elif end == "stream":
            await client.send(frame(DATA, 1, 1))
        else:
            client.client.close()
        await wait_until(lambda: len(heard) == 1)
        assert (heard[0]["type"], heard[0]["code"]) == ("websocket.disconnect", 1005)
        if end != "connection":
            await wait_until(lambda: len(service.state.connections) == 1)
            assert end == "reset" or (await client.answer(1)).ended


async def test_messages_that_are_not_taken_wait_behind_the_window(native: Any) -> None:
    release = asyncio.Event()
    got: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await respond()(scope, receive, send)
            return
        await receive()
        await send({"type": "websocket.accept"})
        await release.wait()
        while (event := await receive())["type"] == "websocket.receive":
            got.append(len(event["bytes"]))

    async with serve(native, app, **SETTINGS_OF_TESTS) as service:
        client = await connect(service)
        peer = await open_one(client)
        sent, room = 0, 60_000
        while room >= 10_000:
            await peer.send(wsproto.events.BytesMessage(data=LARGE[:9_000]))
            sent, room = sent + 1, room - 9_008
            await client.pong()
            room += sum(
                int.from_bytes(found.payload, "big")
                for found in client.frames
                if found.kind == WINDOW_UPDATE and found.stream == 1
            )
            client.frames.clear()
        # What the session keeps, what is kept in front of it, and one window.
        assert sent < 50
        assert (await client.ask()).body == b"ok"
        release.set()
        await wait_until(lambda: got == [9_000] * sent)


async def test_senders_wait_for_the_window(native: Any) -> None:
    sent: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        for _ in range(20):
            await send({"type": "websocket.send", "bytes": LARGE[:30_000]})
            sent.append(1)

    async with serve(native, app, **SETTINGS_OF_TESTS) as service:
        client = await connect(service, {INITIAL_WINDOW_SIZE: 10})
        peer = await open_one(client)
        await client.pong()
        await turns()
        assert 1 <= len(sent) < 10
        await client.send(window_update(2**30, 1) + window_update(2**30))
        for _ in range(20):
            size = 0
            while True:
                event = await peer.event()
                size += len(event.data)
                if event.message_finished:
                    break
            assert size == 30_000
        assert len(sent) == 20


async def test_the_server_ends_it(native: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "uvicorn.error")
    async with serve(native, echo, **SETTINGS_OF_TESTS) as service:
        client = await connect(service)
        peer = await open_one(client, "/a")
        for connection in list(service.state.connections):
            connection.shutdown()
        closed = await peer.event()
        assert closed.code == 1012
        await peer.send(closed.response())
        assert (await client.answer(1)).ended
        assert (await client.until(GOAWAY)).code == 0
        await client.client.rest()
        client.client.close()
        await service.idle()
    lines = [
        record.getMessage().partition(" - ")[2] for record in caplog.records if "WebSocket /a" in record.getMessage()
    ]
    assert lines == ['"WebSocket /a" [accepted]', '"WebSocket /a" [closed 1012]']


async def test_a_reset_while_it_is_asked_ends_it(native: Any) -> None:
    heard: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        heard.append(await receive())

    async with serve(native, app, **SETTINGS_OF_TESTS) as service:
        client = await connect(service)
        await client.send(client.websocket())
        await wait_until(lambda: len(service.state.tasks) == 1)
        await client.send(reset(1))
        await wait_until(lambda: len(heard) == 1)
        assert heard[0]["code"] == 1006
        assert RST_STREAM


async def test_one_that_is_reset_at_once_starts_nothing(native: Any) -> None:
    """H1: as of requests, none is asked of the application that is given up in the read that brings it."""
    app = Calls(echo)
    async with serve(native, app, **SETTINGS_OF_TESTS) as service:
        client = await connect(service)
        await client.send(b"".join(client.websocket() + reset(2 * number + 1) for number in range(50)))
        assert (await client.ask()).body == b"ok"
        assert [scope["type"] for scope in app.scopes] == ["http"]


async def test_a_few_are_opened_in_one_turn(native: Any) -> None:
    """Others have their turns between those that one client asks for together."""
    turn = 0
    begun: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        begun.append(turn)
        await echo(scope, receive, send)

    async def count() -> None:
        nonlocal turn
        while len(begun) < 100:
            turn += 1
            await asyncio.sleep(0)

    async with serve(native, app, **SETTINGS_OF_TESTS) as service:
        client = await connect(service)
        counting = asyncio.create_task(count())
        await client.send(b"".join(client.websocket() for _ in range(100)))
        await counting
        assert max(begun.count(turn) for turn in begun) <= MAX_EAGER_REQUESTS


async def test_what_comes_with_the_handshake_is_read(native: Any) -> None:
    async with serve(native, echo, **SETTINGS_OF_TESTS) as service:
        client = await connect(service)
        peers = [Peer(client, 2 * number + 1, []) for number in range(100)]
        text = peers[0].frames.send(wsproto.events.TextMessage(data="early"))
        await client.send(b"".join(client.websocket() + frame(DATA, 0, peer.stream, text) for peer in peers))
        for peer in peers:
            while peer.stream not in client.answers or not client.answers[peer.stream].body:
                await client.read()
            assert await peer.text() == "early"


async def test_the_end_of_the_server_is_told_to_those_that_wait_to_be_opened(native: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if len(calls.scopes) == 1:
            for connection in list(service.state.connections):
                connection.shutdown()
        await echo(scope, receive, send)

    calls = Calls(app)

    async with serve(native, calls, **SETTINGS_OF_TESTS) as service:
        client = await connect(service)
        await client.send(b"".join(client.websocket() for _ in range(2 * MAX_EAGER_REQUESTS)))
        assert (await client.until(GOAWAY)).code == 0
        for number in range(2 * MAX_EAGER_REQUESTS):
            assert (await client.answer(2 * number + 1)).ended
        client.client.close()
        await service.idle()
