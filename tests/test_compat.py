"""One way to run a coroutine and to tell a coroutine function, on every Python version."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from uvicorn._compat import asyncio_run, iscoroutinefunction, marked_as_coroutine_function, run_in_new_loop

Runner = Callable[..., Any]


class Loop(asyncio.SelectorEventLoop):
    """A loop of a class of its own."""


@pytest.fixture(params=[pytest.param(asyncio_run, id="asyncio_run"), pytest.param(run_in_new_loop, id="fallback")])
def run(request: pytest.FixtureRequest) -> Runner:
    runner: Runner = request.param
    return runner


async def current_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_runs_in_a_loop_of_the_factory_and_closes_it(run: Runner) -> None:
    loop = run(current_loop(), loop_factory=Loop)
    assert type(loop) is Loop
    assert loop.is_closed()


def test_runs_without_a_factory(run: Runner) -> None:
    assert run(current_loop(), loop_factory=None).is_closed()


@pytest.mark.parametrize("debug", [True, False])
def test_sets_debug_when_told(run: Runner, debug: bool) -> None:
    async def main() -> bool:
        return asyncio.get_running_loop().get_debug()

    assert run(main(), debug=debug) is debug


def test_lets_the_exception_of_the_coroutine_out(run: Runner) -> None:
    async def main() -> None:
        raise LookupError("inside")

    with pytest.raises(LookupError, match="inside"):
        run(main())


def test_cancels_what_is_left_and_closes_generators(run: Runner) -> None:
    events: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            events.append("cancelled")
            raise

    async def generate() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            events.append("closed")

    generator = generate()

    async def main() -> asyncio.Task[None]:
        await anext(generator)
        task = asyncio.create_task(forever())
        await asyncio.sleep(0)
        return task

    assert run(main()).cancelled()
    assert events == ["cancelled", "closed"]


def test_reports_a_task_that_fails_while_the_loop_closes(run: Runner) -> None:
    reported: list[dict[str, Any]] = []

    async def stubborn() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise LookupError("too late") from None

    async def main() -> asyncio.Task[None]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: reported.append(context))
        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        return task

    task = run(main())
    assert [context["exception"] for context in reported] == [task.exception()]


@pytest.mark.anyio
async def test_refuses_to_run_inside_a_loop(run: Runner) -> None:
    coroutine = current_loop()
    with pytest.raises(RuntimeError):
        run(coroutine)
    coroutine.close()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="asyncio.run has no loop_factory")
def test_is_the_standard_librarys_where_that_suffices() -> None:
    assert asyncio_run is asyncio.run


def test_tells_coroutine_functions() -> None:
    assert iscoroutinefunction(current_loop)
    assert iscoroutinefunction(functools.partial(current_loop))
    assert not iscoroutinefunction(lambda: current_loop())
    marked = marked_as_coroutine_function(lambda: current_loop())
    assert iscoroutinefunction(marked) and inspect.iscoroutinefunction(marked)
