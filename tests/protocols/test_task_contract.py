"""What asyncio promises of a task holds for those of applications, whatever shortcut their steps take.

Several conversations get a message in one turn of the loop, and their applications then act on each other.
`UVICORN_SHORTCUTS=none` is the oracle: each case must hold with it as well. These are the promises of `asyncio.Task`,
with the code that keeps each one where a shortcut is taken, and the tests.

1. A task clears the flag of an awaited future, adds one callback and sets `_fut_waiter` before other code runs. Kept
   by asyncio: after a step that awaits anything but the next message, `Waiter::go_on` makes the task take its own step
   (`cycle.rs`, `Step`). Tests: `test_task_waits_for_what_its_step_awaited`,
   `test_shared_future_is_awaited_by_all_who_come_in_one_turn`.
2. A cancellation reaches the awaited future. Kept by the same. Tests:
   `test_cancellation_in_the_same_turn_reaches_what_is_awaited`, `test_timeout_of_nothing_ends_what_is_awaited`,
   `test_scopes_of_anyio_end_what_is_awaited`.
3. A task cancelled during its step cancels the next future that it awaits. `Waiter::cancel` returns false during a
   step, so that asyncio sets `_must_cancel`; `cancelled_in_step` asks the task again once that is consumed. Tests:
   `test_cancelling_oneself_cancels_what_is_awaited_next`, `test_cancelling_that_is_taken_back_goes_as_in_a_task`.
4. A task counts its cancellations and keeps their message. Kept by asyncio; `cancelled_in_step` does not change the
   count. Tests: the same, by `cancelling()` and `args`.
5. A task that returns or raises is done, and its callbacks run in the next turn. Kept by asyncio, in the task's own
   step. Tests: the same, cases `return` and `raise`.
6. Each await has a future of its own. `Session::waiter` lends the waiter of a step to the task of that step only.
   Test: `test_eager_child_that_receives_is_cancelled_alone`.
7. A task wakes up by `call_soon`, after the callbacks scheduled before. `Waiter::wake`; data wakes a waiting task
   inside the read (`wakeups`), but never another callback. Test:
   `test_what_was_scheduled_in_a_step_runs_behind_it_and_in_order`.
8. During its step a task is `current_task()`, with its context, name and stack. `_enter_task`, `in_context`; the cycle
   shows the application's `cr_frame`. Tests: `test_step_is_one_of_its_task`, tests/native/test_websocket.py.
9. A task starts eagerly only as asyncio does it: in its context, as the current task, registered unless it ends.
   `asyncio.Task(..., eager_start=True)` in `base/task.rs` and `utils.start_task`. Test:
   tests/protocols/test_http_tasks.py.
10. A task of a program's class takes all its steps itself. `step_at_once` requires `asyncio.Task`; a task factory or
    debug mode turns `coroutines` off. Test: `test_task_of_another_class_takes_all_its_steps_itself`.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from tests import loops
from tests.native.http2_client import ACK, END_STREAM, PREFACE, HTTP2Client, settings
from tests.native.http2_client import DATA as DATA_FRAME
from tests.native.http2_client import SETTINGS as SETTINGS_FRAME
from tests.native.http2_client import frame as http2_frame
from tests.protocols.harness import Client, request
from tests.protocols.websocket_tools import TEXT, frame, handshake
from tests.utils import run_server, server_port, wait_until
from uvicorn.config import Config
from uvicorn.rules.shortcuts import VARIABLE

pytestmark = pytest.mark.anyio

anyio_backend = loops.each

MACHINES = ["native", "python"]
KINDS = {
    "websocket": MACHINES,
    "post": MACHINES,
    "http2-websocket": ["native"],
    "http2-post": ["native"],
}


#: The long way is asyncio's own: once is enough, in the night for each machine.
LONG = {("websocket", "native"): False, ("post", "native"): True, ("websocket", "python"): True}


def conversations() -> Iterator[Any]:
    for kind, machines in KINDS.items():
        for machine in machines:
            yield pytest.param((kind, machine, None), id=f"{kind}-{machine}")
            if (kind, machine) in LONG:
                marks = [pytest.mark.deep] * LONG[kind, machine]
                yield pytest.param((kind, machine, "none"), id=f"{kind}-{machine}-none", marks=marks)


@pytest.fixture(params=conversations())
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Kind and machine of the conversations, with all shortcuts or without any."""
    kind, machine, shortcuts = request.param
    if machine == "native":
        pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)
    if shortcuts is None:
        monkeypatch.delenv(VARIABLE, raising=False)
    else:
        monkeypatch.setenv(VARIABLE, shortcuts)
    return kind, machine


Script = Callable[[Any, Any], Awaitable[Any]]


def set_if_pending(future: asyncio.Future[str]) -> None:
    if not future.done():
        future.set_result("2")


class World:
    """A server, and conversations with it. Each runs a script that gets `receive` when the first message was taken."""

    def __init__(self, kind: str, machine: str) -> None:
        self.kind = kind
        self.machine = machine
        self.scripts: list[Script] = []
        self.tasks: list[Any] = []
        self.results: list[Any] = []
        self.told: list[Callable[[], Any]] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.port = 0

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        number = int(scope["path"][1:])
        is_websocket = scope["type"] == "websocket"
        if is_websocket:
            assert (await receive())["type"] == "websocket.connect"
            await send({"type": "websocket.accept"})
        self.tasks[number] = asyncio.current_task()
        content = "text" if is_websocket else "body"
        if not is_websocket:
            assert (await receive())["body"] == b"0"

        async def more() -> Any:
            return (await receive())[content]

        try:
            assert await more() in ("1", b"1")
            self.results[number] = await self.scripts[number](self, more)
        except BaseException as error:
            self.results[number] = error
            raise

    async def open(self, script: Script) -> int:
        """Begin a conversation whose application waits for its first message."""
        number = len(self.scripts)
        self.scripts.append(script)
        self.tasks.append(None)
        self.results.append(...)
        sock = socket.create_connection(("127.0.0.1", self.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=sock)
        self.writers.append(writer)
        if self.kind == "websocket":
            writer.write(handshake(target=f"/{number}"))
            await reader.readuntil(b"\r\n\r\n")
            messages = [frame(TEXT, b"1"), frame(TEXT, b"2")]
        elif self.kind == "post":
            writer.write(request("POST", f"/{number}", "content-length: 3") + b"0")
            messages = [b"1", b"2"]
        else:
            http2 = HTTP2Client(Client.__new__(Client))
            writer.write(PREFACE + settings() + http2_frame(SETTINGS_FRAME, ACK))
            if self.kind == "http2-websocket":
                pseudo = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http")]
                fields = [*pseudo, (":path", f"/{number}"), (":authority", "test"), ("sec-websocket-version", "13")]
                writer.write(http2.headers(fields, end=False))
                pieces = [(frame(TEXT, b"1"), 0), (frame(TEXT, b"2"), 0)]
            else:
                head = http2.head(f"/{number}", ("content-length", "3"), method="POST", end=False)
                writer.write(head + http2_frame(DATA_FRAME, 0, 1, b"0"))
                pieces = [(b"1", 0), (b"2", END_STREAM)]
            messages = [http2_frame(DATA_FRAME, flags, 1, data) for data, flags in pieces]
        left = iter(messages)
        self.told.append(lambda: sock.send(next(left)))
        await wait_until(lambda: self.tasks[number] is not None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return number

    def tell(self) -> None:
        """Send each conversation its next message, so that the server finds all of them in one turn."""
        for tell in self.told:
            tell()

    async def end(self) -> list[Any]:
        """What became of the scripts, when all are over."""
        await wait_until(lambda: ... not in self.results)
        return [outcome(result) for result in self.results]


def outcome(result: Any) -> Any:
    return (type(result).__name__, *result.args) if isinstance(result, BaseException) else result


@asynccontextmanager
async def world_of(kind: tuple[str, str]) -> AsyncIterator[World]:
    world = World(*kind)
    native = world.machine == "native"
    config = Config(
        world.app,
        http="native" if native else "h11",
        ws="native" if native else "websockets-sansio",
        http2=native,
        port=0,
        lifespan="off",
        log_config=None,
        interface="asgi3",
    )
    async with run_server(config) as server:
        world.port = server_port(server)
        try:
            yield world
        finally:
            for task in world.tasks:
                task.cancel()
            for writer in world.writers:
                writer.close()
            await wait_until(lambda: not server.server_state.tasks)


@pytest.fixture
async def world(kind: Any) -> AsyncIterator[World]:
    async with world_of(kind) as world:
        yield world


# What can be awaited, and how to see what became of it.


async def _awaiting(task: asyncio.Task[Any]) -> None:
    await task


class Awaited:
    """Something that does not end by itself, and what a cancellation did to it."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.cancelled: list[str] = []
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.future.add_done_callback(lambda future: self.cancelled.append("future") if future.cancelled() else None)

    def child(self) -> asyncio.Task[Any]:
        child = asyncio.get_running_loop().create_task(asyncio.Event().wait())
        child.add_done_callback(lambda child: self.cancelled.append("child") if child.cancelled() else None)
        return child

    async def wait(self) -> None:
        if self.how == "future":
            await self.future
        elif self.how == "task":
            await self.child()
        elif self.how == "gather":
            await asyncio.gather(self.child(), self.child())
        elif self.how == "wait_for":
            await asyncio.wait_for(self.future, 60)
        elif self.how == "shield":
            await asyncio.shield(self.future)
        elif self.how == "group":
            async with cast(Any, asyncio).TaskGroup() as group:
                group.create_task(_awaiting(self.child()))
        elif self.how == "queue":
            await asyncio.Queue[None]().get()
        elif self.how == "sleep":
            await asyncio.sleep(60)

    @property
    def reached(self) -> list[str]:
        """What the cancellation has to reach."""
        reached = {"future": ["future"], "task": ["child"], "gather": ["child"] * 2, "wait_for": ["future"]}
        return reached.get(self.how, ["child"] if self.how == "group" else [])


WAYS = ["future", "task", "gather", "wait_for", "shield", "queue", "sleep"]
WAYS += ["group"] if sys.version_info >= (3, 11) else []


# Awaiting the same.


async def test_shared_future_is_awaited_by_all_who_come_in_one_turn(world: World) -> None:
    """Single flight: the first makes the task, the others await it."""
    flight: list[asyncio.Task[str]] = []

    async def load() -> str:
        for _ in range(3):
            await asyncio.sleep(0)
        return "loaded"

    async def script(world: World, more: Any) -> str:
        if not flight:
            flight.append(asyncio.get_running_loop().create_task(load()))
        return await flight[0]

    for _ in range(4):
        await world.open(script)
    world.tell()
    assert await world.end() == ["loaded"] * 4


async def test_task_waits_for_what_its_step_awaited(world: World) -> None:
    """Flag, callback and `_fut_waiter`, as whoever runs next sees them."""
    futures: list[Any] = []
    seen: list[Any] = []

    async def waits(world: World, more: Any) -> None:
        futures.append(asyncio.get_running_loop().create_future())
        await futures[0]

    async def looks(world: World, more: Any) -> None:
        while not futures:
            await asyncio.sleep(0)
        (future,) = futures
        task: Any = world.tasks[0]
        seen.extend((future._asyncio_future_blocking, len(future._callbacks), task._fut_waiter is future))
        future.set_result(None)

    await world.open(waits)
    await world.open(looks)
    world.tell()
    assert await world.end() == [None, None] and seen == [False, 1, True]


async def test_generator_exit_of_a_child_is_raised_where_it_is_awaited(world: World) -> None:
    async def child() -> None:
        raise GeneratorExit

    async def script(world: World, more: Any) -> None:
        await asyncio.get_running_loop().create_task(child())

    await world.open(script)
    world.tell()
    assert await world.end() == [("GeneratorExit",)]
    await wait_until(lambda: world.tasks[0].done())


# Cancellation.


@pytest.mark.parametrize("how", WAYS)
async def test_cancellation_in_the_same_turn_reaches_what_is_awaited(world: World, how: str) -> None:
    awaited: list[Awaited] = []

    async def waits(world: World, more: Any) -> None:
        awaited.append(Awaited(how))
        await awaited[0].wait()

    async def cancels(world: World, more: Any) -> bool:
        while not awaited:
            await asyncio.sleep(0)
        return bool(world.tasks[0].cancel("enough"))

    await world.open(waits)
    await world.open(cancels)
    world.tell()
    results = await world.end()
    assert results[0][0] == "CancelledError" and results[1] is True
    await wait_until(lambda: awaited[0].cancelled == awaited[0].reached)


@pytest.mark.parametrize(
    ("how", "times"),
    [*((how, 1) for how in [*WAYS, "message", "turn", "return", "raise"]), ("future", 2), ("message", 2), ("raise", 2)],
)
async def test_cancelling_oneself_cancels_what_is_awaited_next(world: World, how: str, times: int) -> None:
    awaited: list[Awaited] = []
    numbers: list[int] = []

    async def script(world: World, more: Any) -> Any:
        awaited.append(Awaited(how))
        task: Any = asyncio.current_task()
        assert task is world.tasks[0] and task._fut_waiter is not awaited[0].future
        for number in range(times):
            assert task.cancel(f"mine {number}")
        try:
            if how == "message":
                await more()
            elif how == "turn":
                await asyncio.sleep(0)
            elif how == "return":
                return "returned"
            elif how == "raise":
                raise ValueError("mine")
            else:
                await awaited[0].wait()
        finally:
            if sys.version_info >= (3, 11):
                numbers.append(task.cancelling())
            assert not task._must_cancel or how in ("return", "raise")

    await world.open(script)
    world.tell()
    await wait_until(lambda: world.tasks[0].done() and ... not in world.results)
    (result,) = await world.end()
    assert numbers == [times][: len(numbers)]
    if how == "return":
        assert result == "returned" and world.tasks[0].cancelled()
    elif how == "raise":
        assert result == ("ValueError", "mine")
    else:
        assert result[0] == "CancelledError"
        if how in ("future", "message", "turn", "queue", "sleep"):
            assert result[1:] == (f"mine {times - 1}",)
    await wait_until(lambda: awaited[0].cancelled == awaited[0].reached)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tasks do not count how often they were cancelled")
@pytest.mark.parametrize("how", ["future", "message"])
async def test_cancelling_that_is_taken_back_goes_as_in_a_task(world: World, how: str) -> None:
    """From 3.13 on nothing is left of it; before that the next wait is cancelled all the same."""
    taken_back = sys.version_info >= (3, 13)
    begun: list[bool] = []

    async def script(world: World, more: Any) -> Any:
        task: Any = asyncio.current_task()
        begun.append(task.cancel("mine"))
        task.uncancel()
        future = asyncio.get_running_loop().create_future()
        future.get_loop().call_soon(set_if_pending, future)
        try:
            result = await (future if how == "future" else more())
            return result in ("2", b"2"), task.cancelling()
        except asyncio.CancelledError as error:
            return error.args, task.cancelling()

    await world.open(script)
    world.tell()
    if how == "message":
        await wait_until(lambda: begun)
        world.tell()
    assert await world.end() == [(True, 0) if taken_back else (("mine",), 0)]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.timeout is not there")
@pytest.mark.parametrize("how", [*WAYS, "message"])
async def test_timeout_of_nothing_ends_what_is_awaited(world: World, how: str) -> None:
    awaited: list[Awaited] = []

    async def script(world: World, more: Any) -> tuple[str, int, Any]:
        awaited.append(Awaited(how))
        task: Any = asyncio.current_task()
        try:
            async with cast(Any, asyncio).timeout(0):
                await (more() if how == "message" else awaited[0].wait())
        except TimeoutError:
            pass
        # The conversation goes on.
        return "late", task.cancelling(), await more() in ("2", b"2")

    await world.open(script)
    world.tell()
    await wait_until(lambda: awaited and awaited[0].cancelled == awaited[0].reached)
    world.tell()
    assert await world.end() == [("late", 0, True)]


@pytest.mark.parametrize("mode", ["cancel", "scope"])
async def test_scopes_of_anyio_end_what_is_awaited(world: World, mode: str) -> None:
    """They look into tasks: `_fut_waiter` and `_must_cancel`."""
    import anyio

    scopes: list[Any] = []

    async def waits(world: World, more: Any) -> Any:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            if mode == "cancel":
                scope.cancel()
            await asyncio.Event().wait()
        return scope.cancelled_caught, await more() in ("2", b"2")

    async def cancels(world: World, more: Any) -> None:
        while not scopes:
            await asyncio.sleep(0)
        scopes[0].cancel()

    await world.open(waits)
    await world.open(cancels)
    world.tell()
    await wait_until(lambda: world.results[1] is None)
    world.told[0]()
    assert await world.end() == [(True, True), None]


# Children.


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks do not start eagerly")
@pytest.mark.parametrize("who_waits", ["parent", "nobody"])
async def test_eager_child_that_receives_is_cancelled_alone(world: World, who_waits: str) -> None:
    begun: list[bool] = []

    async def script(world: World, more: Any) -> Any:
        begun.append(True)
        loop = asyncio.get_running_loop()
        parent = asyncio.current_task()
        child = asyncio.Task(more(), loop=loop, eager_start=True)  # type: ignore[call-arg]
        assert asyncio.current_task() is parent and not child.done()
        if who_waits == "parent":
            loop.call_soon(child.cancel)
        else:
            child.cancel()
        return await more() in ("2", b"2"), child.cancelled()

    await world.open(script)
    world.tell()
    await wait_until(lambda: begun)
    world.tell()
    assert await world.end() == [(True, True)]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="TaskGroup is not there")
async def test_failure_of_a_child_cancels_its_siblings_and_its_parent_once(world: World) -> None:
    awaited: list[Awaited] = []

    async def fails() -> None:
        raise ValueError("mine")

    async def script(world: World, more: Any) -> Any:
        awaited.append(Awaited("task"))
        task: Any = asyncio.current_task()
        try:
            async with cast(Any, asyncio).TaskGroup() as group:
                group.create_task(_awaiting(awaited[0].child()))
                group.create_task(fails())
                await awaited[0].future
        except BaseException as error:
            return type(error).__name__, task.cancelling(), await more() in ("2", b"2")

    await world.open(script)
    world.tell()
    await wait_until(lambda: awaited and sorted(awaited[0].cancelled) == ["child", "future"])
    world.tell()
    assert await world.end() == [("ExceptionGroup", 0, True)]


# What a task says of itself.


async def test_step_is_one_of_its_task(world: World) -> None:
    seen: list[Any] = []

    async def script(world: World, more: Any) -> str:
        task: Any = asyncio.current_task()
        task.set_name("mine")
        seen.append((task is world.tasks[0], task in asyncio.all_tasks(), task.get_name(), task.done()))
        # Before 3.12 the application stands inside a coroutine that awaits it.
        seen.append(task.get_stack()[-1].f_code.co_name in ("app", "run_asgi", "awaited"))
        await asyncio.sleep(0)
        return "done"

    await world.open(script)
    world.tell()
    assert await world.end() == ["done"]
    assert seen == [(True, True, "mine", False), True]


async def test_what_was_scheduled_in_a_step_runs_behind_it_and_in_order(world: World) -> None:
    order: list[str] = []

    async def script(world: World, more: Any) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(order.append, "first")
        future = loop.create_future()
        loop.call_soon(future.set_result, None)
        loop.call_soon(order.append, "second")
        order.append("step")
        await future
        order.append("third")

    await world.open(script)
    world.tell()
    await world.end()
    assert order == ["step", "first", "second", "third"]


async def test_task_of_another_class_takes_all_its_steps_itself(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    class Noting(asyncio.Task[Any]):
        def cancel(self, msg: Any = None) -> bool:
            steps.append("cancelled")
            return super().cancel(msg)

    def make(coroutine: Any, **keywords: Any) -> Any:
        return Noting(coroutine, loop=loop, **keywords)

    async def script(world: World, more: Any) -> Any:
        task: Any = asyncio.current_task()
        task.cancel("mine")
        await asyncio.sleep(60)

    loop = asyncio.get_running_loop()
    if type(loop).__module__.startswith("uvloop"):
        loop.set_task_factory(lambda loop, coroutine, **keywords: make(coroutine, **keywords))
    else:
        monkeypatch.setattr(loop, "create_task", make)
    try:
        await world.open(script)
        made = type(world.tasks[0])
        world.tell()
        assert await world.end() == [("CancelledError", "mine")]
        assert steps == ["cancelled"] * (made is Noting)
    finally:
        loop.set_task_factory(None)
