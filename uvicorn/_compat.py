"""The differences between the Python versions, behind one name each."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, TypeVar

__all__ = ["asyncio_run", "has_gil", "iscoroutinefunction", "marked_as_coroutine_function"]

T = TypeVar("T")
_Function = TypeVar("_Function", bound=Callable[..., Awaitable[Any]])


def run_in_new_loop(
    main: Coroutine[Any, Any, T],
    *,
    debug: bool | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> T:
    """Run a coroutine as ``asyncio.run`` does from Python 3.12 on, where it knows ``loop_factory``.

    Raises:
        RuntimeError: this thread already runs an event loop.
    """
    if asyncio._get_running_loop() is not None:
        main.close()
        raise RuntimeError("asyncio_run() cannot be called from a running event loop")
    loop = asyncio.new_event_loop() if loop_factory is None else loop_factory()
    try:
        asyncio.set_event_loop(loop)
        if debug is not None:
            loop.set_debug(debug)
        return loop.run_until_complete(main)
    finally:
        try:
            _cancel_all_tasks(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def _cancel_all_tasks(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    if not tasks:
        return
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    for task in tasks:
        if not task.cancelled() and (exception := task.exception()) is not None:
            message = "unhandled exception while the event loop was closing"
            loop.call_exception_handler({"message": message, "exception": exception, "task": task})


if sys.version_info >= (3, 12):
    asyncio_run = asyncio.run
else:
    asyncio_run = run_in_new_loop

if sys.version_info >= (3, 14):
    iscoroutinefunction = inspect.iscoroutinefunction
else:
    # Also true for functions that older frameworks have marked as coroutine functions (`asyncio.coroutines`).
    iscoroutinefunction = asyncio.iscoroutinefunction


def marked_as_coroutine_function(function: _Function) -> _Function:
    """Mark a callable that returns an awaitable as a coroutine function, for code that inspects it.

    Before 3.12 a callable cannot mark itself for `inspect.iscoroutinefunction`, which other servers use: there it
    becomes a coroutine function.
    """
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)

    @wraps(function)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return awaited  # type: ignore[return-value]


def has_gil() -> bool:
    """Tell whether threads run one at a time."""
    is_enabled = getattr(sys, "_is_gil_enabled", None)
    return is_enabled is None or bool(is_enabled())
