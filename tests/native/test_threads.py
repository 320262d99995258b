"""A protocol belongs to the thread of its event loop; there can be as many of these threads as there are loops."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.protocols.harness import GET, echo, request, serve
from tests.utils import GIL
from uvicorn import _native

THREADS = 4


def in_thread(function: Any, *arguments: Any) -> Any:
    """Call it in a thread of its own; what it returns or raises."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments).result(30)


def test_module_does_not_turn_the_gil_on() -> None:
    assert _native.__name__ == "uvicorn._native"
    assert GIL is getattr(sys, "_is_gil_enabled", lambda: True)()


def test_loops_of_several_threads_serve_side_by_side(native: Any) -> None:
    """With a garbage collector at work in yet another thread."""
    start = threading.Barrier(THREADS)

    async def serve_and_ask() -> int:
        async with serve(native, echo) as service:
            clients = [await service.connect() for _ in range(4)]
            start.wait(30)
            for number in range(30):
                body = b"%d" % number * 300
                answers = await asyncio.gather(*(client.ask(request("POST", body=body)) for client in clients))
                assert [answer.body for answer in answers] == [body] * len(clients)
                clients.pop(0).reset()
                clients.append(await service.connect())
            return int(service.state.protocol_settings.total_requests)

    over = threading.Event()

    def collect() -> None:
        while not over.wait(0.005):
            gc.collect()

    with ThreadPoolExecutor(THREADS + 1) as pool:
        collecting = pool.submit(collect)
        serving = [pool.submit(asyncio.run, serve_and_ask()) for _ in range(THREADS)]
        try:
            assert [future.result(100) for future in serving] == [120] * THREADS
        finally:
            over.set()
        collecting.result(30)


@pytest.mark.anyio
@pytest.mark.filterwarnings("ignore:coroutine 'RequestResponseCycle.receive' was never awaited")
async def test_connection_dropped_in_another_thread_harms_nobody(native: Any) -> None:
    kept: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        kept.extend((scope, receive, send, receive(), send))
        await echo(scope, receive, send)

    async with serve(native, app) as service:
        client = await service.connect()
        assert (await client.ask()).status == 200
        kept.append(next(iter(service.state.connections)))
        client.close()
        await service.idle()
        in_thread(kept.clear)
        in_thread(gc.collect)
        assert (await (await service.connect()).ask()).status == 200


@pytest.mark.anyio
@pytest.mark.skipif(GIL, reason="the GIL keeps threads apart")
async def test_what_another_thread_calls_is_awaited_at_home(native: Any) -> None:
    """As `asyncio.run_coroutine_threadsafe` has it; there it raises."""
    calls: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        calls[:] = [receive, lambda: send({"type": "http.response.start", "status": 200})]
        for call in calls:
            made = in_thread(call)
            with pytest.raises(RuntimeError, match="used outside the thread of its event loop"):
                in_thread(made.send, None)
            await made
        await send({"type": "http.response.body"})

    async with serve(native, app) as service:
        client = await service.connect()
        assert (await client.ask(GET)).status == 200
        assert len(calls) == 2


def test_another_thread_may_ask_for_the_number_of_requests(native: Any) -> None:
    async def serve_and_ask() -> None:
        async with serve(native, echo) as service:
            for _ in range(3):
                assert (await (await service.connect()).ask(GET)).status == 200
            assert await asyncio.to_thread(lambda: service.state.total_requests) == 3

    asyncio.run(serve_and_ask())


@pytest.mark.skipif(GIL, reason="the GIL keeps threads apart")
def test_state_used_in_another_thread_raises_an_exception(native: Any) -> None:
    """One that `except Exception` catches, and nothing on standard error."""
    running: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        cycle: Any = asyncio.current_task().get_coro()  # type: ignore[union-attr]
        # Without the shortcut, a coroutine of Python's awaits it, which says "already executing" of itself.
        cycles = [] if inspect.iscoroutine(cycle) else [cycle.close, lambda: cycle.scope]
        (service,) = running
        settings = service.state.protocol_settings
        connection = next(iter(service.state.connections))
        made = receive()
        for call in (
            made.close,
            lambda: made.send(None),
            *cycles,
            settings.stats,
            settings.flush,
            connection.shutdown,
            connection.pause_writing,
            lambda: connection.client,
        ):
            with pytest.raises(RuntimeError, match="used outside the thread of its event loop"):
                in_thread(call)
        made.close()
        await echo(scope, receive, send)

    async def serve_and_ask() -> None:
        async with serve(native, app) as service:
            running.append(service)
            assert (await (await service.connect()).ask(GET)).status == 200

    asyncio.run(serve_and_ask())


@pytest.mark.skipif(GIL, reason="the GIL keeps threads apart")
def test_what_the_collector_of_another_thread_finds_is_freed(native: Any) -> None:
    """By the thread that it belongs to, with its next request."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["kept"] = [scope, receive, send]
        await asyncio.sleep(0)
        await echo(scope, receive, send)

    async def serve_and_ask() -> int:
        async with serve(native, app) as service:
            client = await service.connect()
            before = 0
            for number in range(10):
                if number == 2:
                    before = sys.getallocatedblocks()
                for _ in range(200):
                    assert (await client.ask(GET)).status == 200
                await asyncio.to_thread(gc.collect)
            await client.ask(GET)
            return sys.getallocatedblocks() - before

    gc.disable()
    try:
        # Each request would leave one behind, at least.
        assert asyncio.run(serve_and_ask()) < 400
    finally:
        gc.enable()
