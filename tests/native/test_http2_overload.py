"""`limit_active_requests` over HTTP/2: each stream is one request, of which some wait and some are refused."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.native.http2_client import CANCEL, NO_ERROR, HTTP2Client, connect, reset
from tests.protocols.harness import Service, echo, respond, serve
from tests.utils import turns, wait_until

pytestmark = pytest.mark.anyio

LONG = 3600.0


def counts(service: Service) -> tuple[int, int]:
    assert service.state.gate is not None
    return service.state.gate.admission.active, service.state.gate.admission.waiting


class Doors:
    """An application that answers a request when it is let; by path."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.doors: dict[str, asyncio.Event] = {}

    def door(self, path: str) -> asyncio.Event:
        return self.doors.setdefault(path, asyncio.Event())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.called.append(scope["path"])
        await self.door(scope["path"]).wait()
        await respond(scope["path"].encode())(scope, receive, send)


async def test_streams_are_served_wait_or_are_refused_one_by_one(native: Any) -> None:
    """D11"""
    app = Doors()
    settings: Any = {"limit_active_requests": 2, "limit_queue": 1, "timeout_queue": LONG, "http2": True}
    async with serve(native, app, **settings) as service:
        client = await connect(service)
        await client.send(b"".join(client.head(f"/{number}") for number in range(4)))
        answer = await client.answer(7)
        assert (answer.status, answer.body) == (503, b"Service Unavailable")
        assert dict(answer.headers)[b"retry-after"] == b"1"
        assert counts(service) == (2, 1)
        await wait_until(lambda: app.called == ["/0", "/1"])
        app.door("/2").set()
        app.door("/0").set()
        assert (await client.answer(5)).body == b"/2"
        app.door("/1").set()
        assert (await client.answer(3)).body == b"/1"
        await wait_until(lambda: counts(service) == (0, 0))


async def test_stream_that_is_reset_waits_no_more(native: Any) -> None:
    app = Doors()
    settings: Any = {"limit_active_requests": 1, "limit_queue": 5, "timeout_queue": LONG, "http2": True}
    async with serve(native, app, **settings) as service:
        client = await connect(service)
        await client.send(client.head("/1"), client.head("/2"), client.head("/3", end=False))
        await wait_until(lambda: counts(service) == (1, 2))
        await client.send(reset(3, CANCEL) + reset(5, CANCEL))
        await wait_until(lambda: counts(service) == (1, 0))
        app.door("/1").set()
        assert (await client.answer(1)).body == b"/1"
        await client.pong()
        assert app.called == ["/1"]


async def test_connection_that_exceeds_the_concurrency_ends_behind_its_responses(native: Any) -> None:
    """LIM-01: it counts, so a client that asked again and again would keep others out."""
    doors = Doors()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await doors(scope, receive, send)
        else:
            await send({"type": "websocket.accept"})

    async with serve(native, app, limit_concurrency=2, http2=True, ws="native") as service:
        client = await connect(service)
        await client.send(client.head("/0"), client.head("/1"))
        await wait_until(lambda: len(service.state.tasks) == 2)
        await client.send(client.head("/2"), client.websocket())
        assert [(await client.answer(stream)).status for stream in (5, 7)] == [503, 200]
        assert doors.called == ["/0", "/1"]
        doors.door("/0").set()
        doors.door("/1").set()
        assert [(await client.answer(stream)).body for stream in (1, 3)] == [b"/0", b"/1"]
        assert (await client.end()).code == NO_ERROR
        await wait_until(lambda: not service.state.connections)


@pytest.mark.parametrize("end", ["turn", "reset", "refused"])
async def test_websocket_waits_for_its_turn(native: Any, end: str) -> None:
    doors = Doors()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await doors(scope, receive, send)
            return
        doors.called.append("websocket")
        await receive()
        await send({"type": "websocket.accept"})

    settings: Any = {"limit_active_requests": 1, "limit_queue": 5, "http2": True, "ws": "native"}
    async with serve(native, app, timeout_queue=0.05 if end == "refused" else LONG, **settings) as service:
        client = await connect(service)
        await client.send(client.head("/1"), client.websocket())
        if end == "refused":
            assert (await client.answer(3)).status == 503
        else:
            await wait_until(lambda: counts(service) == (1, 1))
        if end == "reset":
            await client.send(reset(3, CANCEL))
            await wait_until(lambda: counts(service) == (1, 0))
        doors.door("/1").set()
        assert (await client.answer(1)).body == b"/1"
        if end == "turn":
            assert (await client.answer(3)).status == 200
        assert doors.called == (["/1", "websocket"] if end == "turn" else ["/1"])
        await wait_until(lambda: counts(service) == (0, 0))


async def test_bodies_of_refused_streams_leave_the_windows_open(native: Any) -> None:
    app = Doors()
    settings: Any = {"limit_active_requests": 1, "limit_queue": 0, "timeout_queue": LONG, "http2": True}
    async with serve(native, app, **settings) as service:
        client = await connect(service)
        await client.send(client.head("/1"))
        await wait_until(lambda: counts(service) == (1, 0))
        for number in range(20):
            stream = client.next_stream
            await client.send(client.head(f"/{number}", method="POST", end=False))
            await client.send_data(b"x" * 10_000, stream)
            assert (await client.answer(stream)).status == 503
        await client.pong()


def parked(service: Service) -> tuple[int, int, int]:
    assert service.state.gate is not None
    admission = service.state.gate.admission
    return admission.active, admission.waiting, admission.parked


async def test_streams_whose_bodies_do_not_come_hold_no_place(native: Any) -> None:
    """D11"""
    settings: Any = {"limit_active_requests": 2, "limit_queue": 0, "timeout_queue": LONG, "http2": True}
    async with serve(native, echo, **settings) as service:
        client, other = await connect(service), await connect(service)
        await client.send(b"".join(client.head("/", method="POST", end=False) for _ in range(2)))
        await wait_until(lambda: parked(service) == (0, 0, 2))
        await client.send(b"".join(client.head("/", method="POST", end=False) for _ in range(2)))
        await wait_until(lambda: parked(service) == (0, 0, 4))
        await other.send(other.head("/"))
        assert (await other.answer(1)).status == 200
        await client.send(reset(7, CANCEL))
        await wait_until(lambda: parked(service) == (0, 0, 3))
        for stream in (1, 3, 5):
            await client.send_data(b"x" * 10, stream, end=True)
            assert (await client.answer(stream)).body == b"x" * 10
        await wait_until(lambda: parked(service) == (0, 0, 0))


async def test_streams_whose_client_gives_no_window_hold_no_place(native: Any) -> None:
    """D11"""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(10 if scope["path"] == "/large" else 1):
            await send({"type": "http.response.body", "body": b"x" * 30_000, "more_body": number < 9})
        if scope["path"] != "/large":
            await send({"type": "http.response.body", "body": b""})

    settings: Any = {"limit_active_requests": 1, "limit_queue": 0, "timeout_queue": LONG, "http2": True}
    async with serve(native, app, **settings) as service:
        client, other = await connect(service), await connect(service)
        for number in range(1, 5):
            await client.send(client.head("/large"))
            await wait_until(lambda number=number: parked(service) == (0, 0, number))  # type: ignore[misc]
        await other.send(other.head("/"))
        assert (await other.answer(1)).status == 200
        await client.send(b"".join(reset(stream, CANCEL) for stream in (1, 3, 5, 7)))
        await wait_until(lambda: parked(service) == (0, 0, 0))


async def test_client_that_has_too_many_streams_parked_loses_the_oldest(
    native: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D11"""
    monkeypatch.setattr("uvicorn.overload.admission.LEAST_PARKED", 4)
    monkeypatch.setattr("uvicorn.overload.admission.PARKED_FOR_EACH", 1)
    settings: Any = {"limit_active_requests": 1, "limit_queue": 0, "timeout_queue": LONG, "http2": True}
    async with serve(native, echo, **settings) as service:
        client = await connect(service)
        for number in range(1, 4):
            await client.send(client.head("/", method="POST", end=False))
            await wait_until(lambda number=number: service.state.gate.admission.parked == min(number, 2))  # type: ignore[misc, union-attr]
        assert (await client.answer(1)).status == 503
        await client.send_data(b"whole", 3, end=True)
        assert (await client.answer(3)).body == b"whole"
        await wait_until(lambda: parked(service) == (0, 0, 1))
        await client.pong()


@pytest.mark.parametrize("seed", range(8))
async def test_every_place_is_given_back_whatever_happens(native: Any, seed: int) -> None:
    """D11"""
    rnd = random.Random(seed)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for _ in range(rnd.randrange(4)):
            await asyncio.sleep(0)
        if rnd.random() < 0.3:
            raise RuntimeError("on purpose")
        if scope["method"] == "POST" and rnd.random() < 0.5:
            await receive()
        await respond()(scope, receive, send)

    settings: Any = {"limit_active_requests": rnd.randint(1, 3), "limit_queue": rnd.randint(0, 4), "http2": True}
    async with serve(native, app, timeout_queue=LONG, **settings) as service:
        clients: list[HTTP2Client] = [await connect(service) for _ in range(5)]
        for _ in range(60):
            client = rnd.choice(clients)
            if client.client.ended:
                continue
            stream, end = client.next_stream, rnd.random() < 0.6
            await client.send(client.head("/", method="GET" if end else "POST", end=end))
            match rnd.randrange(5):
                case 0:
                    await client.send(reset(stream))
                case 1 if not end:
                    await client.send_data(b"x", stream)
                case 2 if rnd.random() < 0.1:
                    client.client.reset()
                    client.client.ended = True
            await turns(rnd.randrange(3))
        gate = service.state.gate
        assert gate is not None
    await wait_until(lambda: (gate.admission.active, gate.admission.waiting) == (0, 0))
