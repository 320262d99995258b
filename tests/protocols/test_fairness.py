"""One connection's pipelined requests, started eagerly, do not starve another's."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from tests import loops, machines
from tests.protocols.harness import GET, Calls, request, respond, serve
from tests.utils import wait_until

pytestmark = pytest.mark.anyio


anyio_backend = loops.each
http_protocol_cls = machines.each


async def test_other_connection_is_served_among_pipelined_requests(http_protocol_cls: Any) -> None:
    """Its turn comes after tens of requests of the first, not after all of them."""
    order: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        order.append(scope["path"])
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        greedy, modest = await service.connect(), await service.connect()
        await greedy.ask(request("GET", "/warm-up"))
        await modest.ask(request("GET", "/warm-up"))
        order.clear()
        # Both are in the kernel's buffers before the loop looks at either.
        greedy.sock.send(request("GET", "/greedy") * 1500)
        modest.sock.send(request("GET", "/modest"))
        assert (await modest.response()).status == 200
        for _ in range(1500):
            await greedy.response()
    assert len(order) == 1501
    assert order.index("/modest") <= 200


async def test_timer_fires_among_pipelined_requests(http_protocol_cls: Any) -> None:
    """The loop itself gets its turns."""
    app = Calls()
    turns: list[int] = []
    loop = asyncio.get_running_loop()

    def turn() -> None:
        turns.append(len(app.scopes))
        if len(app.scopes) < 2000:
            loop.call_soon(turn)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.ask()
        client.sock.send(GET * 2000)
        turn()
        await wait_until(lambda: len(app.scopes) >= 2000)
        for _ in range(2000):
            await client.response()
    steps = [after - before for before, after in pairwise(turns)]
    assert max(steps) <= 200


async def test_applications_that_wait_are_interleaved(http_protocol_cls: Any) -> None:
    """Requests of several connections make progress together."""
    order: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for _ in range(5):
            order.append(scope["path"])
            await asyncio.sleep(0)
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        clients = [await service.connect() for _ in range(3)]
        for client in clients:
            await client.ask()
        order.clear()
        for number, client in enumerate(clients):
            client.sock.send(request("GET", f"/{number}") * 3)
        for client in clients:
            for _ in range(3):
                await client.response()
    firsts = [order.index(f"/{number}") for number in range(3)]
    assert max(firsts) < 15
