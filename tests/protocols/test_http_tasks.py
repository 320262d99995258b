"""What a call of the application may give, what it may raise, and the task that it runs in."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import io
import sys
import traceback
import types
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import pytest

from tests import loops, machines
from tests.protocols.harness import GET, request, respond, serve
from tests.utils import wait_until

pytestmark = pytest.mark.anyio

SERVER_ERROR = (
    b"HTTP/1.1 500 Internal Server Error\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 21\r\n"
    b"connection: close\r\n\r\nInternal Server Error"
)


anyio_backend = loops.one
http_protocol_cls = machines.each


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


# What the call gives.


async def waiting(scope: Any, receive: Any, send: Any) -> None:
    """Wait once before and once in the middle of the response."""
    await asyncio.sleep(0)
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b"ok"})


class Awaitable1:
    """Gives the iterator of a coroutine."""

    def __init__(self, *arguments: Any) -> None:
        self.coroutine = waiting(*arguments)

    def __await__(self) -> Any:
        return self.coroutine.__await__()


class Awaitable2(Awaitable1):
    """Gives a generator."""

    def __await__(self) -> Any:
        yield from self.coroutine.__await__()


class CoroutineLike(Awaitable1):
    """As compiled coroutines are: one by its methods, none by its type."""

    def __await__(self) -> Any:
        return self

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return self.coroutine.send(None)

    def send(self, value: Any) -> Any:
        return self.coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self.coroutine.throw(*error)

    def close(self) -> None:
        self.coroutine.close()


@types.coroutine
def generator_based(scope: Any, receive: Any, send: Any) -> Generator[Any, None, None]:
    yield from waiting(scope, receive, send).__await__()


def returns_future(scope: Any, receive: Any, send: Any) -> Any:
    return asyncio.ensure_future(waiting(scope, receive, send))


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(functools.partial(waiting), id="partial"),
        pytest.param(generator_based, id="generator-based"),
        pytest.param(Awaitable1, id="awaitable"),
        pytest.param(Awaitable2, id="generator"),
        pytest.param(CoroutineLike, id="coroutine-like"),
        pytest.param(returns_future, id="future"),
    ],
)
async def test_whatever_can_be_awaited_is(http_protocol_cls: Any, call: Callable[..., Awaitable[None]]) -> None:
    async with serve(http_protocol_cls, call, interface="asgi3") as service:
        client = await service.connect()
        for _ in range(2):
            assert (await client.ask()).body == b"ok"
        await wait_until(lambda: not service.state.tasks)


class AwaitsNothing:
    def __await__(self) -> Any:
        return 7


class AwaitsCoroutine(Awaitable1):
    def __await__(self) -> Any:
        self.coroutine.close()
        return self.coroutine


def is_a_generator(scope: Any, receive: Any, send: Any) -> Generator[Any, None, None]:
    yield from waiting(scope, receive, send).__await__()


async def is_an_async_generator(scope: Any, receive: Any, send: Any) -> Any:
    yield 1


@pytest.mark.parametrize(
    "call, text",
    [
        pytest.param(
            lambda scope, receive, send: None, "object NoneType can't be used in 'await' expression", id="none"
        ),
        pytest.param(lambda scope, receive, send: 5, "object int can't be used in 'await' expression", id="number"),
        pytest.param(is_a_generator, "object generator can't be used in 'await' expression", id="generator"),
        pytest.param(
            is_an_async_generator, "object async_generator can't be used in 'await' expression", id="async-generator"
        ),
        pytest.param(
            lambda scope, receive, send: AwaitsNothing(),
            "__await__() returned non-iterator of type 'int'",
            id="not-an-iterator",
        ),
        pytest.param(
            lambda *arguments: AwaitsCoroutine(*arguments), "__await__() returned a coroutine", id="coroutine"
        ),
    ],
)
async def test_what_cannot_be_awaited_is_an_error_of_the_application(
    http_protocol_cls: Any, call: Any, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The text is that of an `await` in Python."""
    async with serve(http_protocol_cls, call, interface="asgi3") as service:
        client = await service.connect()
        await client.send(GET)
        assert await client.rest() == SERVER_ERROR
    (record,) = caplog.records
    assert record.getMessage() == "Exception in ASGI application\n"
    assert record.exc_info is not None
    if sys.version_info < (3, 14) or "await' expression" not in text:  # which says it in other words
        assert str(record.exc_info[1]) == text
    assert record.exc_info[0] is TypeError
    assert record.exc_info[2] is not None


# What it raises.

RAISED = (GeneratorExit, KeyboardInterrupt, SystemExit, asyncio.CancelledError, StopAsyncIteration, BaseException)


@pytest.mark.parametrize("error", RAISED, ids=lambda error: error.__name__)
@pytest.mark.parametrize("waits", [False, True], ids=["at-once", "later"])
async def test_exception_of_any_kind_is_answered_and_ends_no_other_request(
    http_protocol_cls: Any, error: type[BaseException], waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/fine":
            await respond()(scope, receive, send)
            return
        if waits:
            await asyncio.sleep(0)
        raise error("reason")

    async with serve(http_protocol_cls, app) as service:
        client, other = await service.connect(), await service.connect()
        await client.send(GET)
        assert await client.rest() == SERVER_ERROR
        assert (await other.ask(request("GET", "/fine"))).body == b"ok"
        await wait_until(lambda: not service.state.tasks)
    assert messages(caplog) == ["Exception in ASGI application\n"]
    assert caplog.records[0].exc_info is not None
    assert caplog.records[0].exc_info[0] is error
    assert [frame.name for frame in traceback.extract_tb(caplog.records[0].exc_info[2])][-1:] == ["app"]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: error.__name__)
async def test_exception_of_any_kind_in_the_middle_cuts_the_response(
    http_protocol_cls: Any, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"ok", "more_body": True})
        await asyncio.sleep(0)
        raise error

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        assert await client.rest() == b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nok"
        await wait_until(lambda: not service.state.tasks)
    assert messages(caplog) == ["Exception in ASGI application\n"]


@pytest.mark.parametrize("error", [GeneratorExit, BaseException, asyncio.CancelledError])
@pytest.mark.parametrize("plainly", ["none", "debug", "factory", "as usual"])
async def test_exception_of_an_awaited_child_is_the_application_s(
    http_protocol_cls: Any, error: type[BaseException], plainly: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task throws it into its coroutine, and the interpreter closes what that awaits for a `GeneratorExit`."""

    async def child() -> None:
        raise error

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.get_running_loop().create_task(child())

    if plainly == "none":
        monkeypatch.setenv("UVICORN_SHORTCUTS", "none")
    loop = asyncio.get_running_loop()
    loop.set_debug(plainly == "debug")
    async with serve(http_protocol_cls, app) as service:
        if plainly == "factory":
            loop.set_task_factory(lambda loop, coro, **keywords: asyncio.Task(coro, loop=loop, **keywords))
        client = await service.connect()
        await client.send(GET)
        assert await client.rest() == SERVER_ERROR
        await wait_until(lambda: not service.state.tasks)
    loop.set_debug(False)
    loop.set_task_factory(None)


async def test_call_that_is_thrown_away_costs_its_connection_and_is_not_logged(
    http_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As the interpreter throws away what nobody will ever go on with: here while the loop is still there."""
    begun, ended = [], []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        begun.append(scope)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(sys.exc_info()[0])

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        await wait_until(lambda: begun)
        (task,) = service.state.tasks
        task.get_coro().close()
        assert ended == [GeneratorExit]
        assert await client.rest() == b""
        task.cancel()
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            await task
    assert messages(caplog) == []


async def test_call_that_is_thrown_away_by_the_collector_inside_of_another_is_not_logged(
    http_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """That another task has its turn at that moment must not make it look like the application's own doing."""
    kept: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/second":
            kept.pop().close()
            gc.collect()
            await respond()(scope, receive, send)
            return
        await asyncio.Event().wait()

    async with serve(http_protocol_cls, app) as service:
        first, second = await service.connect(), await service.connect()
        await first.send(GET)
        await wait_until(lambda: service.state.tasks)
        (task,) = service.state.tasks
        kept.append(task.get_coro())
        assert (await second.ask(request("GET", "/second"))).body == b"ok"
        assert await first.rest() == b""
        task.cancel()
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            await task
    assert messages(caplog) == []


# The task.


class Looks:
    """An application that waits until it was looked at."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.inside: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.inside = [repr(task), task.get_stack(), inspect.getcoroutinestate(task.get_coro())]  # type: ignore[arg-type]
        await self.wait()
        await respond()(scope, receive, send)

    async def wait(self) -> None:
        await self.go_on.wait()


async def test_task_says_what_it_runs_and_where(http_protocol_cls: Any) -> None:
    app = Looks()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        await wait_until(lambda: app.inside)
        (task,) = service.state.tasks
        coroutine: Any = task.get_coro()
        assert (coroutine.__name__, coroutine.__qualname__) == ("run_asgi", "RequestResponseCycle.run_asgi")
        assert f"<coroutine object RequestResponseCycle.run_asgi at {id(coroutine):#x}>" == repr(coroutine)
        shown = repr(task)
        assert "coro=<RequestResponseCycle.run_asgi() running at " in shown
        assert "wait_for=<Future pending" in shown
        assert "coro=<RequestResponseCycle.run_asgi() running at " in app.inside[0]
        assert inspect.getcoroutinestate(coroutine) == inspect.CORO_SUSPENDED
        assert app.inside[2] == inspect.CORO_RUNNING
        assert app.inside[1]
        (frame,) = task.get_stack()
        assert frame.f_code is coroutine.cr_code
        stack = io.StringIO()
        task.print_stack(file=stack)
        assert "await " in stack.getvalue()
        assert task in asyncio.all_tasks()
        app.go_on.set()
        assert (await client.response()).body == b"ok"
        await wait_until(task.done)
        assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
        assert (coroutine.cr_frame, coroutine.cr_await, coroutine.cr_running) == (None, None, False)


async def test_what_a_task_waits_for_can_be_followed_to_its_end(http_protocol_cls: Any) -> None:
    """As monitors do, and asyncio's own call graphs from 3.14 on: each frame once, in the order of the calls."""
    app = Looks()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        await wait_until(lambda: app.inside)
        (task,) = service.state.tasks
        codes = []
        coroutine: Any = task.get_coro()
        while hasattr(coroutine, "cr_await"):
            codes.append(coroutine.cr_frame.f_code)
            coroutine = coroutine.cr_await
        codes = [code for code in codes if code.co_name != "run_asgi"]
        assert codes == [Looks.__call__.__code__, Looks.wait.__code__, asyncio.Event.wait.__code__]
        app.go_on.set()
        await client.response()


async def test_task_factory_gets_a_coroutine_that_it_can_inspect(http_protocol_cls: Any) -> None:
    seen: list[Any] = []

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **keywords: Any) -> Any:
        if "run_asgi" in coroutine.__qualname__:
            state = inspect.getcoroutinestate(coroutine)
            own = coroutine.cr_frame.f_locals["self"]
            seen.append((inspect.iscoroutine(coroutine), coroutine.__name__, coroutine.__qualname__, state))
            seen.append((coroutine.cr_code.co_name, own.scope["path"]))
            # Those of asyncio's loop need not know a keyword.
            assert not keywords or type(loop).__module__ == "uvloop"
        return asyncio.Task(coroutine, loop=loop, **keywords)

    loop = asyncio.get_running_loop()
    loop.set_task_factory(factory)
    try:
        async with serve(http_protocol_cls, waiting) as service:
            client = await service.connect()
            for path in ("/1", "/2"):
                assert (await client.ask(request("GET", path))).body == b"ok"
            await wait_until(lambda: not service.state.tasks)
    finally:
        loop.set_task_factory(None)
    first = (True, "run_asgi", "RequestResponseCycle.run_asgi", inspect.CORO_CREATED)
    assert seen == [first, ("run_asgi", "/1"), first, ("run_asgi", "/2")]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there is no such factory before 3.12")
async def test_factory_of_eager_tasks_is_used(http_protocol_cls: Any) -> None:
    loop = asyncio.get_running_loop()
    if type(loop).__module__ == "uvloop":
        pytest.skip("uvloop calls it with a keyword that it does not know")
    loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined,unused-ignore]
    try:
        async with serve(http_protocol_cls, respond()) as service:
            client = await service.connect()
            for _ in range(3):
                assert (await client.ask()).body == b"ok"
            await wait_until(lambda: not service.state.tasks)
    finally:
        loop.set_task_factory(None)


async def test_in_debug_mode_a_task_is_what_it_is_without_a_core(http_protocol_cls: Any) -> None:
    """It does not begin inside the callback that reads its connection, which asyncio would then call slow."""
    outer: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        outer.append((inspect.iscoroutine(task.get_coro()), "_native" in repr(task)))
        outer.append(any("data_received" in frame.f_code.co_name for frame in task.get_stack()))
        await waiting(scope, receive, send)

    loop = asyncio.get_running_loop()
    before = loop.get_debug()
    loop.set_debug(True)
    try:
        async with serve(http_protocol_cls, app) as service:
            assert (await (await service.connect()).ask()).body == b"ok"
    finally:
        loop.set_debug(before)
    assert outer == [(True, False), False]


async def test_task_that_is_cancelled_before_its_first_step_is_over(http_protocol_cls: Any) -> None:
    made: list[Any] = []

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **keywords: Any) -> Any:
        task = asyncio.Task(coroutine, loop=loop, **keywords)
        if coroutine.__qualname__.endswith("run_asgi"):
            made.append(task)
            task.cancel()
        return task

    async with serve(http_protocol_cls, respond()) as service:
        asyncio.get_running_loop().set_task_factory(factory)
        try:
            client = await service.connect()
            await client.send(GET)
            await wait_until(lambda: made and made[0].done() and not service.state.tasks)
        finally:
            asyncio.get_running_loop().set_task_factory(None)
