"""What the native core keeps for reuse is bounded, and its figures can be read."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from tests.protocols.harness import GET, Service, request, respond, serve
from tests.utils import GIL, wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("recycling")]

MOST_IDLE = 256
LARGEST_KEPT = 256 * 1024


def stats(service: Service, pool: str = "buffers") -> dict[str, int]:
    figures: dict[str, int] = service.state.protocol_settings.stats()[pool]
    return figures


async def test_figures_are_those_of_the_python_pool(native: Any) -> None:
    async with serve(native, respond()) as service:
        await (await service.connect()).ask()
        for pool in ("buffers", "cycles"):
            assert list(stats(service, pool)) == ["created", "reused", "discarded", "idle", "in_use"]
            assert stats(service, pool).keys() <= service.state.event_pool.stats().keys()


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


async def test_buffer_that_is_sent_in_two_parts_is_counted_for_each(native: Any) -> None:
    proceed = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        if scope["path"] == "/held":
            await proceed.wait()
        await send({"type": "http.response.body"})

    async with serve(native, app) as service:
        client = await service.connect()
        for _ in range(3):
            # The first response is complete; the head of the second, behind it, waits.
            await client.send(GET + request("GET", "/held"))
            await client.response()
            await wait_until(lambda: stats(service)["in_use"] == 1)
            proceed.set()
            await client.response()
            proceed.clear()
            assert stats(service)["in_use"] == 0
        # Before 3.12 the second application starts when the first response has left.
        assert stats(service)["created"] == stats(service)["idle"] == (2 if sys.version_info >= (3, 12) else 1)


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


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks start eagerly from 3.12 on")
@pytest.mark.skipif(not GIL, reason="without it nothing tells that nobody else holds a cycle")
async def test_cycle_of_an_application_that_never_waits_serves_the_next_request(native: Any) -> None:
    async with serve(native, respond()) as service:
        client = await service.connect()
        for _ in range(100):
            await client.ask()
        assert stats(service, "cycles") == {"created": 1, "reused": 99, "discarded": 0, "idle": 1, "in_use": 0}


async def test_cycle_is_not_used_again_while_somebody_holds_something_of_it(native: Any) -> None:
    kept = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        kept.append(send)
        await respond()(scope, receive, send)

    async with serve(native, app) as service:
        client = await service.connect()
        for _ in range(3):
            await client.ask()
        await wait_until(lambda: not service.state.tasks)
        assert len({id(send) for send in kept}) == 3
        assert stats(service, "cycles") == {"created": 3, "reused": 0, "discarded": 3, "idle": 0, "in_use": 0}


async def test_cycle_of_an_application_that_waits_stays_with_its_task(native: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0)
        await respond()(scope, receive, send)

    async with serve(native, app) as service:
        client = await service.connect()
        for _ in range(3):
            await client.ask()
        assert stats(service, "cycles") == {"created": 3, "reused": 0, "discarded": 3, "idle": 0, "in_use": 0}
