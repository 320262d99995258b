"""What the native core keeps for reuse is bounded, and its figures can be read (docs/architecture.md)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.protocols.harness import GET, Service, respond, serve
from tests.utils import wait_until

pytestmark = pytest.mark.anyio

MOST_IDLE = 256
LARGEST_KEPT = 256 * 1024


def stats(service: Service) -> dict[str, int]:
    figures: dict[str, int] = service.state.protocol_settings.stats()
    return figures


async def test_figures_are_those_of_the_python_pool(native: Any) -> None:
    async with serve(native, respond()) as service:
        await (await service.connect()).ask()
        assert list(stats(service)) == ["created", "reused", "discarded", "idle", "in_use"]
        assert stats(service).keys() <= service.state.event_pool.stats().keys()


async def test_buffer_is_reused_and_goes_back_after_each_response(native: Any) -> None:
    async with serve(native, respond()) as service:
        client = await service.connect()
        for _ in range(100):
            await client.ask()
        assert stats(service) == {"created": 1, "reused": 99, "discarded": 0, "idle": 1, "in_use": 0}


async def test_buffer_is_with_its_connection_while_a_head_waits_for_its_body(native: Any) -> None:
    proceed = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await proceed.wait()
        await send({"type": "http.response.body"})

    async with serve(native, app) as service:
        clients = [await service.connect() for _ in range(5)]
        for client in clients:
            await client.send(GET)
        await wait_until(lambda: stats(service)["in_use"] == 5)
        # Two are gone before their response is complete.
        for client in clients[:2]:
            client.reset()
        proceed.set()
        for client in clients[2:]:
            await client.response()
        await wait_until(lambda: len(service.state.connections) == 3 and not service.state.tasks)
        assert stats(service)["in_use"] == 0
        assert stats(service)["idle"] == stats(service)["created"]


async def test_pool_keeps_no_more_than_its_bound(native: Any) -> None:
    proceed = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await proceed.wait()
        await send({"type": "http.response.body"})

    count = MOST_IDLE + 20
    async with serve(native, app) as service:
        clients = [await service.connect() for _ in range(count)]
        for client in clients:
            await client.send(GET)
        await wait_until(lambda: stats(service)["in_use"] == count)
        proceed.set()
        for client in clients:
            await client.response()
        await wait_until(lambda: not service.state.tasks)
        figures = stats(service)
        assert figures["created"] == count
        assert figures["idle"] == MOST_IDLE
        assert figures["discarded"] == 20
        assert figures["in_use"] == 0


async def test_buffer_that_grew_large_is_not_kept(native: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"x-%d" % number, b"v" * 60_000) for number in range(2 * LARGEST_KEPT // 60_000)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body"})

    async with serve(native, app) as service:
        client = await service.connect()
        await client.send(GET)
        await client.response()
        assert stats(service) == {"created": 1, "reused": 0, "discarded": 1, "idle": 0, "in_use": 0}
