"""Questions every protocol asks of a transport or a scope, and how an application's task starts and is thrown away."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

from uvicorn._types import WWWScope
from uvicorn.access.arguments import get_client_addr as get_client_addr
from uvicorn.access.arguments import get_path_with_query_string as get_path_with_query_string
from uvicorn.hooks import beside, values_beside
from uvicorn.rules.grace import clock_of as clock_of

EAGER_START = sys.version_info >= (3, 12)  # to compare versions for each request would cost more than all else


beside(get_client_addr)
beside(get_path_with_query_string)


class ClientDisconnected(OSError):
    """The peer is gone: raised from `send()` of a WebSocket application."""


def _address(value: Any) -> tuple[str, int] | None:
    # TCP names are (host, port) or, for IPv6, (host, port, flow info, scope id).
    if isinstance(value, (list, tuple)) and len(value) >= 2:
        return str(value[0]), int(value[1])
    return None


@beside
def get_remote_addr(transport: asyncio.BaseTransport) -> tuple[str, int] | None:
    """Return (host, port) of the peer, or `None` where it has none (Unix sockets)."""
    socket_info = transport.get_extra_info("socket")
    if socket_info is not None:
        try:
            return _address(socket_info.getpeername())
        except OSError:
            # The peer is gone already; the transport may remember its name.
            pass
    return _address(transport.get_extra_info("peername"))


@beside
def get_local_addr(transport: asyncio.BaseTransport) -> tuple[str, int | None] | None:
    """Return (host, port) of this end of the connection, (path, None) for a Unix socket, or `None` if unknown."""
    socket_info = transport.get_extra_info("socket")
    name = transport.get_extra_info("sockname") if socket_info is None else socket_info.getsockname()
    if isinstance(name, (str, bytes)) and name:
        return (name if isinstance(name, str) else name.decode("utf-8", "surrogateescape")), None
    return _address(name)


@beside
def is_ssl(transport: asyncio.BaseTransport) -> bool:
    """Tell whether the connection is encrypted."""
    return bool(transport.get_extra_info("sslcontext"))


class Functions(NamedTuple):
    """The functions that programs replace in the modules of the protocol classes, as those have them now."""

    get_client_addr: Callable[[WWWScope], str] = get_client_addr
    get_local_addr: Callable[[asyncio.BaseTransport], tuple[str, int | None] | None] = get_local_addr
    get_path_with_query_string: Callable[[WWWScope], str] = get_path_with_query_string
    get_remote_addr: Callable[[asyncio.BaseTransport], tuple[str, int] | None] = get_remote_addr
    is_ssl: Callable[[asyncio.BaseTransport], bool] = is_ssl


def functions_of(cls: type) -> Functions:
    """Return those that the module of a protocol class has."""
    found: dict[str, Any] = values_beside(cls)
    return Functions(**{name: found[name] for name in Functions._fields if name in found})


def is_secure(transport: asyncio.BaseTransport, is_encrypted: Callable[[asyncio.BaseTransport], bool] = is_ssl) -> bool:
    """Tell whether the client has encrypted the connection, here or at a proxy that says so."""
    if is_encrypted(transport):
        return True
    proxy_header = transport.get_extra_info("proxy_protocol")
    return proxy_header is not None and proxy_header.tls is not None


def tls_of(transport: asyncio.BaseTransport) -> Any:
    """Return the source of the extension `tls`: the connection's TLS object, or a proxy's words about the client's."""
    proxy_header = transport.get_extra_info("proxy_protocol")
    if proxy_header is not None and proxy_header.tls is not None:
        return proxy_header
    return transport.get_extra_info("ssl_object") if is_ssl(transport) else None


def is_reentrant(loop: asyncio.AbstractEventLoop) -> bool:
    """Tell whether `loop` can be run from inside one of its own callbacks, as after `nest_asyncio.apply()`.

    asyncio's own cannot, and nothing that makes them so leaves `_run_once` alone.
    """
    run_once = getattr(type(loop), "_run_once", None)
    return run_once is not None and run_once.__module__ != "asyncio.base_events"


_run_once = getattr(asyncio.BaseEventLoop, "_run_once", None)
_NOT_REENTRANT = _run_once if getattr(_run_once, "__module__", "") == "asyncio.base_events" else object()


def client_prefix(client: tuple[str, int] | None) -> str:
    """The beginning of log lines about a connection: its client, if that has an address."""
    return "%s:%d - " % client if client else ""


def start_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, None],
    context: contextvars.Context,
    eager: bool = False,
) -> asyncio.Task[None]:
    """Run `coroutine` in a task whose context is `context`: a copy before 3.11, and if there is a task factory.

    With `eager`, on CPython 3.12 and later, the first step runs before this returns. It does not if the loop has a task
    factory, is in debug mode (which would report the interrupted callback as slow), or is reentrant (a connection that
    waits for its turn to end would get no further call). Use `eager` on real loops only; test doubles have just
    `create_task` and `call_later`.
    """
    if (
        eager
        and EAGER_START
        and loop.get_task_factory() is None
        and not loop.get_debug()
        # Without the call for asyncio's own loops, and for those that have no such method.
        and ((own := getattr(type(loop), "_run_once", None)) is _NOT_REENTRANT or own is None or not is_reentrant(loop))
    ):
        return asyncio.Task(coroutine, loop=loop, context=context, eager_start=True)  # type: ignore[call-arg]
    if sys.version_info >= (3, 11):
        # Factories need not know the keyword.
        if isinstance(loop, asyncio.AbstractEventLoop) and loop.get_task_factory() is None:
            return loop.create_task(coroutine, context=context)
    return context.run(loop.create_task, coroutine)


def is_thrown_away(task: asyncio.Task[None] | None) -> bool:
    """Whether a `GeneratorExit` in the call of an application means that its task was abandoned.

    Otherwise the application has raised it: it does so in a turn of its task, while the interpreter throws a coroutine
    away in the turn of another, or in none. `task` is the one of the call, `None` in its first turn.
    """
    try:
        current = asyncio.current_task()
    except RuntimeError:
        return True  # no loop is running
    return current is None or task not in (None, current)


# For the native core, whose own coroutines are none to the interpreter.


async def result_of(awaitable: Awaitable[Any]) -> Any:
    """Await an awaitable that is not a coroutine itself."""
    return await awaitable


class _Turn:
    """Yields what a native cycle has yielded, and looks like that to debuggers."""

    __slots__ = ("yielded", "_cycle")

    def __init__(self, cycle: Any) -> None:
        self.yielded: list[object] = []
        self._cycle = cycle

    def __await__(self) -> _Turn:
        return self

    def __iter__(self) -> _Turn:
        return self

    def __next__(self) -> object:
        if self.yielded:
            return self.yielded.pop()
        raise StopIteration

    @property
    def cr_frame(self) -> Any:
        """The frame of the application."""
        return self._cycle.cr_frame

    @property
    def cr_await(self) -> Any:
        """The object that the application awaits."""
        return self._cycle.cr_await


async def run_asgi(self: Coroutine[Any, Any, None]) -> None:
    """Run a native `RequestResponseCycle`: a coroutine that task factories and debuggers can inspect.

    It is not awaited: the interpreter closes an awaited object where it should throw a `GeneratorExit` into it, as the
    step of a task does whose child has raised one.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:  # a double of a loop takes the steps
        task = None
    turn: Any = _Turn(self)
    step: Callable[[Any], Any] = self.send
    value: BaseException | None = None
    while True:
        try:
            turn.yielded.append(step(value))
        except StopIteration:
            return
        finally:
            value = None  # its traceback leads here: only a collector could free both
        try:
            await turn
        except BaseException as exc:
            if isinstance(exc, GeneratorExit) and is_thrown_away(task):
                self.close()
                raise
            step, value = self.throw, exc
        else:
            step = self.send


def end_with(cycle: Any) -> Callable[[asyncio.Future[Any]], None]:
    """Return a callback that ends a native cycle with its task, which may be cancelled before its first step."""

    def end(_task: asyncio.Future[Any]) -> None:
        cycle.close()

    return end


run_asgi.__qualname__ = "RequestResponseCycle.run_asgi"
