"""One connection's pipelined requests, started eagerly, do not starve another's."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest

from tests import loops, machines
from tests.protocols.harness import GET, Calls, request, respond, serve
from tests.utils import wait_until
from uvicorn.protocols.http.pace import Pace
from uvicorn.rules import limits, shortcuts
from uvicorn.rules.shortcuts import Shortcut

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
        greedy.sock.send(request("GET", "/greedy") * 1500)
        modest.sock.send(request("GET", "/modest"))
        service.wait_for_bytes()
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
        service.wait_for_bytes()
        for client in clients:
            for _ in range(3):
                await client.response()
    firsts = [order.index(f"/{number}") for number in range(3)]
    assert max(firsts) < 15


# Among eager starts.

is_eager = pytest.mark.skipif(Shortcut.EAGER not in shortcuts.chosen(), reason="tasks do not start eagerly here")
PERIOD = 4


@pytest.fixture
def pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps from 2 ms on are long."""
    monkeypatch.setattr(limits, "LONGEST_EAGER_STEP", 0.002)
    monkeypatch.setattr(limits, "EAGER_STEPS_PER_LOOK", PERIOD)


class Steps:
    """An application that computes for `step` seconds first, and notes whether it has started eagerly."""

    def __init__(self, step: float) -> None:
        self.step = step
        self.eager: list[bool] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.eager.append(asyncio.current_task() in asyncio.tasks._eager_tasks)  # type: ignore[attr-defined]
        end = time.perf_counter() + self.step
        while time.perf_counter() < end:
            pass
        await respond()(scope, receive, send)


@is_eager
async def test_requests_with_long_first_steps_wait_for_their_turn(http_protocol_cls: Any, pace: None) -> None:
    """They would overtake those that wait; one in four is measured, and the others follow what it says."""
    app = Steps(0.004)
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        for _ in range(10 * PERIOD):
            assert (await client.ask()).status == 200
        assert app.eager[:PERIOD] == [True] * PERIOD
        assert app.eager[-2 * PERIOD :] == [False, False, False, True] * 2
        app.step = 0
        while app.eager[-2 * PERIOD :] != [True] * 2 * PERIOD:
            assert len(app.eager) < 2000
            assert (await client.ask()).status == 200


@is_eager
async def test_limit_of_concurrency_does_not_count_tasks_that_wait_for_their_first_step(
    http_protocol_cls: Any, pace: None
) -> None:
    app = Steps(0.004)
    async with serve(http_protocol_cls, app, limit_concurrency=5) as service:
        client = await service.connect()
        for _ in range(10 * PERIOD):
            assert (await client.ask()).status == 200
    assert app.eager == [True] * 10 * PERIOD


@is_eager
async def test_task_factory_of_a_loop_that_serves_already_is_used(http_protocol_cls: Any, pace: None) -> None:
    made: list[Any] = []

    def factory(loop: Any, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **options)

    app, loop = Steps(0.004), asyncio.get_running_loop()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        for _ in range(10 * PERIOD):
            assert (await client.ask()).status == 200
        loop.set_task_factory(factory)
        try:
            for _ in range(PERIOD):
                assert (await client.ask()).status == 200
        finally:
            loop.set_task_factory(None)
    assert sum(asyncio.iscoroutine(one) for one in made if "run_asgi" in getattr(one, "__qualname__", "")) >= PERIOD - 1


@is_eager
async def test_task_that_is_cancelled_before_its_first_step_has_an_answer(
    http_protocol_cls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LONGEST_EAGER_STEP", 1e-6)
    monkeypatch.setattr(limits, "EAGER_STEPS_PER_LOOK", 7)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/alone":
            for task in service.state.tasks - {asyncio.current_task()}:
                task.cancel()
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        one, other = await service.connect(), await service.connect()
        await other.ask()
        # The last one is measured; the next six are not, and wait for their turn.
        for _ in range(7 * 12 - 1):
            await one.ask()
        for client in (one, other):
            client.sock.send(request("GET", "/alone"))
        service.wait_for_bytes()
        answers = [await client.response() for client in (one, other)]
        assert sorted(answer.status for answer in answers) == [200, 500]
        assert {answer.body for answer in answers} == {b"ok", b"Internal Server Error"}
        await wait_until(lambda: not service.state.tasks)


def test_pace_is_that_of_the_last_steps() -> None:
    now = 0.0
    pace = Pace(longest=2.0, period=17, clock=lambda: now)

    def measured(seconds: float) -> bool:
        nonlocal now
        begun = pace.begin()
        now += seconds
        pace.end(begun)
        return pace.is_short

    assert [measured(3.0) for _ in range(30)] == [True] * 8 + [False] * 22
    assert [measured(0.0) for _ in range(5)] == [False, False, True, True, True]
    # Two in a row that other programs have drawn out change nothing.
    assert all(measured(seconds) for seconds in (*[1.0] * 30, 60.0, 60.0, 1.0))
