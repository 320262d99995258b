"""The life of a connection of HTTP/2: how long it waits, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.native.http2_client import (
    ACK,
    CONTINUATION,
    DATA,
    ENHANCE_YOUR_CALM,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    NO_ERROR,
    PING,
    REFUSED_STREAM,
    SETTINGS,
    HTTP2Client,
    connect,
    frame,
    window_update,
)
from tests.protocols.harness import Service, respond, serve
from tests.utils import turns, wait_until

pytestmark = pytest.mark.anyio

LARGEST = 2**31 - 1


def connection_of(service: Service) -> Any:
    (connection,) = service.state.connections
    return connection


async def heard(client: HTTP2Client) -> list[int]:
    """The kinds of all frames up to the answer to a ping."""
    await client.send(frame(PING, payload=b"are you?"))
    kinds = []
    while True:
        one = await client.read()
        kinds.append(one.kind)
        if (one.kind, one.payload) == (PING, b"are you?"):
            return kinds


def last_of(goaway: Any) -> int:
    return int.from_bytes(goaway.payload[:4], "big")


class Held:
    """An application that answers when it is let."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.started = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.started += 1
        await self.released.wait()
        await respond()(scope, receive, send)


@asynccontextmanager
async def held(native: Any, **settings: Any) -> AsyncIterator[tuple[Service, HTTP2Client, Held]]:
    """A connection with a request that its application has not answered yet."""
    app = Held()
    async with serve(native, app, http2=True, **settings) as service:
        client = await connect(service)
        await client.send(client.head())
        await wait_until(lambda: app.started == 1)
        yield service, client, app


# Settings


async def test_the_settings_are_announced(native: Any) -> None:
    settings = {"http2_max_concurrent_streams": 7, "http2_initial_window_size": 1000, "http2_max_frame_size": 20000}
    async with serve(native, respond(), http2=True, http2_max_header_list_size=999, **settings) as service:
        client = HTTP2Client(await service.connect())
        await client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS))
        payload = (await client.read()).payload
        said = dict(struct.iter_unpack("!HI", payload))
        assert {3: 7, 4: 1000, 5: 20000, 6: 999}.items() <= said.items()


# The server's end


async def test_an_end_in_two_steps_loses_no_request(native: Any) -> None:
    async with held(native) as (service, client, app):
        connection_of(service).announce_close()
        assert GOAWAY not in await heard(client)
        # A client that goes on to ask is told not to, and what it has asked is served.
        await client.send(client.head())
        ping = await client.until(PING)
        first = await client.until(GOAWAY)
        assert (last_of(first), first.code) == (LARGEST, NO_ERROR)
        # This was on its way.
        await client.send(client.head())
        await wait_until(lambda: app.started == 3)
        connection_of(service).shutdown()
        assert GOAWAY not in await heard(client)
        await client.send(frame(PING, ACK, payload=ping.payload))
        second = await client.until(GOAWAY)
        assert (last_of(second), second.code) == (5, NO_ERROR)
        # This was not.
        assert (await client.ask()).code == REFUSED_STREAM
        app.released.set()
        answers = [await client.answer(number) for number in (1, 3, 5)]
        assert [answer.body for answer in answers] == [b"ok"] * 3
        assert await client.client.rest() == b""
        client.client.close()


async def test_a_client_that_does_not_answer_is_not_waited_for(native: Any) -> None:
    async with serve(native, respond(), http2=True) as service:
        client = await connect(service)
        assert (await client.ask()).status == 200
        connection_of(service).announce_close()
        connection_of(service).shutdown()
        service.pass_time(1.5)
        goaway = await client.end()
        assert (last_of(goaway), goaway.code) == (1, NO_ERROR)


async def test_an_end_at_once_answers_what_was_asked(native: Any) -> None:
    async with held(native) as (service, client, app):
        connection_of(service).shutdown()
        assert GOAWAY not in await heard(client)
        app.released.set()
        assert (await client.answer()).body == b"ok"
        assert last_of(await client.until(GOAWAY)) == 1
        assert await client.client.rest() == b""


async def test_nothing_stands_behind_a_goaway_that_was_asked_before_it(native: Any) -> None:
    """Python's h2, and so httpx, reads nothing behind it."""
    async with held(native) as (service, client, app):
        connection_of(service).announce_close()
        app.released.set()
        seen = []
        while GOAWAY not in seen:
            seen.append((await client.read()).kind)
        assert seen[-2:] == [PING, GOAWAY]
        assert DATA in seen[:-2]
        assert await client.client.silent()


async def test_a_class_that_closes_connections_says_so_at_once(native: Any) -> None:
    async with serve(native, respond(), http2=True) as service:
        connection = None

        def announced() -> bool:
            nonlocal connection
            for connection in service.state.connections:
                connection.announce_close()  # type: ignore[attr-defined]
            return connection is not None

        client = HTTP2Client(await service.connect())
        await wait_until(announced)
        await client.begin()
        assert last_of(await client.until(GOAWAY)) == LARGEST
        assert (await client.ask()).body == b"ok"


async def test_a_server_that_ends_tells_applications(native: Any) -> None:
    heard: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        heard.append((await receive())["type"])
        await respond()(scope, receive, send)

    async with serve(native, app, http2=True) as service:
        client = await connect(service)
        await client.send(client.head())
        await wait_until(lambda: len(service.state.tasks) == 1)
        connection_of(service).disconnect()
        assert (await client.answer()).body == b"ok"
        assert heard == ["http.disconnect"]


# The client's end


async def test_a_client_that_has_asked_all_is_answered(native: Any) -> None:
    app = Held()
    async with serve(native, app, http2=True) as service:
        client = await connect(service)
        await client.send(client.head() + client.head())
        await wait_until(lambda: app.started == 2)
        client.client.half_close()
        await turns()
        app.released.set()
        assert (await client.answer(3)).body == b"ok"
        assert (await client.end()).code == NO_ERROR


async def test_a_client_that_has_left_is_not_waited_for_to_open_its_window(native: Any) -> None:
    """Nothing that it has sent would let the response through, and nothing more can come."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 300_000, "more_body": True})
        await send({"type": "http.response.body", "body": b"x"})

    async with serve(native, app, http2=True, timeout_write=1000) as service:
        client = await connect(service)
        await client.send(client.head())
        await wait_until(lambda: bool(service.state.tasks))
        client.client.half_close()
        await wait_until(lambda: not service.state.connections)
        await service.idle()


async def test_a_client_that_leaves_leaves_nothing(native: Any) -> None:
    app = Held()
    async with serve(native, app, http2=True) as service:
        for _ in range(3):
            client = await connect(service)
            await client.send(client.head() + client.head(method="POST", end=False))
            await wait_until(lambda: len(service.state.tasks) == 2)
            client.client.reset()
            await wait_until(lambda: not service.state.connections)
            app.released.set()
            await service.idle()
            app.released.clear()


# Deadlines


@pytest.mark.parametrize("asked", [True, False])
async def test_an_idle_connection_is_closed(native: Any, asked: bool) -> None:
    settings = {"timeout_keep_alive": 5, "timeout_request_head": 50}
    async with serve(native, respond(), http2=True, **settings) as service:
        client = await connect(service)
        await client.pong()
        if asked:
            assert (await client.ask()).status == 200
        service.pass_time(6)
        if not asked:
            await client.pong()
            service.pass_time(50)
        assert (await client.end()).code == NO_ERROR


async def test_each_request_gives_an_idle_connection_its_time_again(native: Any) -> None:
    async with serve(native, respond(), http2=True, timeout_keep_alive=5) as service:
        client = await connect(service)
        for _ in range(4):
            assert (await client.ask()).status == 200
            service.pass_time(4)
            await client.pong()
        service.pass_time(2)
        assert (await client.end()).code == NO_ERROR


async def test_a_busy_connection_is_not_idle(native: Any) -> None:
    async with held(native, timeout_keep_alive=5, http2_ping_interval=0) as (service, client, app):
        service.pass_time(100)
        app.released.set()
        assert (await client.answer()).status == 200


@pytest.mark.parametrize("kind", ["frame", "section"])
async def test_what_has_begun_must_end(native: Any, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """H3"""
    async with serve(native, respond(), http2=True, timeout_request_head=5, timeout_keep_alive=50) as service:
        client = await connect(service)
        assert (await client.ask()).status == 200
        if kind == "frame":
            await client.send(frame(PING, payload=b"12345678")[:-1])
        else:
            await client.send(frame(HEADERS, 0, 3, b"\x82"))
            await service.accepted()
            service.pass_time(4)
            await client.send(frame(CONTINUATION, 0, 3, b"\x86"))
        await service.accepted()
        service.pass_time(6 if kind == "frame" else 2)
        assert (await client.until(GOAWAY)).code == ENHANCE_YOUR_CALM
        client.client.close()
        await service.idle()
    line = "HTTP/2 connection ended with ENHANCE_YOUR_CALM: a frame that does not end."
    assert [record.getMessage() for record in caplog.records] == [line]


async def test_a_silent_client_is_asked_whether_it_is_there(native: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "uvicorn.error")
    async with held(native, http2_ping_interval=20, http2_ping_timeout=10) as (service, client, app):
        service.pass_time(21)  # something was heard
        service.pass_time(21)
        ping = await client.until(PING)
        await client.send(frame(PING, ACK, payload=ping.payload))
        await service.accepted()
        service.pass_time(11)
        service.pass_time(21)
        await client.until(PING)
        assert service.state.connections
        service.pass_time(11)
        await wait_until(lambda: not service.state.connections)
        app.released.set()
    assert sum("does not answer a ping" in record.getMessage() for record in caplog.records) == 1


async def test_a_client_that_reads_nothing_is_dropped(native: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "uvicorn.error")
    async with serve(native, respond(bytes(20_000_000)), http2=True, timeout_write=5) as service:
        client = HTTP2Client(await service.connect(receive_buffer=4096))
        await client.begin({INITIAL_WINDOW_SIZE: LARGEST})
        await client.send(window_update(2**30) + client.head())
        await service.accepted()

        def is_gone() -> bool:
            service.pass_time(6)
            return not service.state.connections

        await wait_until(is_gone)
    assert sum("does not read" in record.getMessage() for record in caplog.records) == 1


async def test_a_late_body_of_data_is_cut_anywhere(native: Any) -> None:
    """A frame of a body is read as it comes, so it is no frame that does not end."""
    async with serve(native, respond(), http2=True, timeout_request_head=5) as service:
        client = await connect(service)
        await client.send(client.head(method="POST", end=False))
        data = frame(DATA, 1, 1, bytes(100))
        await client.send(data[:50])
        await service.accepted()
        service.pass_time(6)
        await client.send(data[50:])
        assert (await client.answer()).status == 200


async def test_numbers_of_streams_run_out_in_peace(native: Any) -> None:
    """The client is told in time to look for another connection, and is answered (RFC 9113 section 5.1.1)."""
    async with serve(native, respond(), http2=True) as service:
        client = await connect(service)
        client.next_stream = LARGEST - 2000
        assert (await client.ask()).body == b"ok"
        assert GOAWAY not in await heard(client)
        assert (await client.ask()).body == b"ok"
        told = await client.until(GOAWAY)
        assert (last_of(told), told.code) == (LARGEST, NO_ERROR)
        for stream in (LARGEST - 4, LARGEST - 2, LARGEST):
            client.next_stream = stream
            assert (await client.ask()).body == b"ok"
        ended = await client.end()
        assert (last_of(ended), ended.code) == (LARGEST, NO_ERROR)
        client.client.close()
        await service.idle()
