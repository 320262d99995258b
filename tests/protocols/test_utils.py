"""Addresses, log tokens, and how an application task is started."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import socket
import string
import sys
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles import MockLoop, MockTransport
from uvicorn.protocols import utils
from uvicorn.protocols.utils import (
    EAGER_START,
    ClientDisconnected,
    get_client_addr,
    get_local_addr,
    get_path_with_query_string,
    get_remote_addr,
    is_ssl,
    start_task,
)

pytestmark = pytest.mark.anyio


class Socket:
    """The names of a socket's two ends, or the errors that asking for them gives."""

    def __init__(self, peername: Any = None, sockname: Any = None) -> None:
        self.names = {"peer": peername, "sock": sockname}

    def _name(self, end: str) -> Any:
        name = self.names[end]
        if isinstance(name, Exception):
            raise name
        return name

    def getpeername(self) -> Any:
        return self._name("peer")

    def getsockname(self) -> Any:
        return self._name("sock")


def transport(**extra: Any) -> Any:
    made = MockTransport()
    made.extra = extra
    return made


def test_client_disconnected_is_an_os_error() -> None:
    """WSX-07"""
    assert issubclass(ClientDisconnected, OSError)


NAMES = [
    pytest.param(("123.45.6.7", 123), ("123.45.6.7", 123), id="ipv4"),
    pytest.param(["::1", 123], ("::1", 123), id="list"),
    pytest.param(("::1", 123, 0, 0), ("::1", 123), id="ipv6"),
    pytest.param(("fe80::1%eth0", 123, 0, 2), ("fe80::1%eth0", 123), id="scope-id"),
    pytest.param("", None, id="unix-without-name"),
    pytest.param(None, None, id="unknown"),
    pytest.param(("one",), None, id="too-short"),
]


@pytest.mark.parametrize(("name", "address"), [*NAMES, pytest.param("/s", None, id="unix")])
def test_remote_address(name: Any, address: Any) -> None:
    """SCO-05, K11: of the socket if there is one, else what the transport remembers."""
    assert get_remote_addr(transport(socket=Socket(peername=name))) == address
    assert get_remote_addr(transport(peername=name)) == address


def test_remote_address_of_a_peer_that_is_gone_already() -> None:
    """K4: asking the socket fails; the transport may remember, or not."""
    gone = Socket(peername=OSError())
    assert get_remote_addr(transport(socket=gone, peername=("1.2.3.4", 5))) == ("1.2.3.4", 5)
    assert get_remote_addr(transport(socket=gone)) is None


@pytest.mark.parametrize(
    ("name", "address"),
    [
        *NAMES,
        pytest.param("/s", ("/s", None), id="unix"),
        pytest.param(b"\0name\xff", ("\0name\udcff", None), id="abstract"),
        pytest.param(b"", None, id="abstract-without-name"),
    ],
)
def test_local_address(name: Any, address: Any) -> None:
    """SCO-04, K11"""
    assert get_local_addr(transport(socket=Socket(sockname=name))) == address
    assert get_local_addr(transport(sockname=name)) == address


@pytest.mark.skipif(sys.platform == "win32", reason="no Unix sockets")
def test_addresses_of_real_sockets() -> None:
    """K11"""
    left, right = socket.socketpair()
    with left, right:
        assert get_remote_addr(transport(socket=left)) is None
        assert get_local_addr(transport(socket=left)) is None
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert get_remote_addr(transport(socket=client)) == server.getsockname()
        assert get_local_addr(transport(socket=client)) == client.getsockname()


def test_ssl_is_what_the_transport_says() -> None:
    """TLS-09"""
    assert is_ssl(transport(sslcontext=object()))
    assert not is_ssl(transport(sslcontext=None))
    assert not is_ssl(transport())


@pytest.mark.parametrize(
    ("scope", "text"),
    [
        pytest.param({"client": ("127.0.0.1", 36000)}, "127.0.0.1:36000", id="ipv4"),
        pytest.param({"client": ("::1", 1)}, "::1:1", id="ipv6"),
        pytest.param({"client": ["1.2.3.4", 0]}, "1.2.3.4:0", id="list"),
        pytest.param({"client": None}, "", id="none"),
        pytest.param({}, "", id="missing"),
    ],
)
def test_client_address_as_text(scope: Any, text: str) -> None:
    """ACC-03, ACC-04"""
    assert get_client_addr(scope) == text


@pytest.mark.parametrize(
    ("path", "query", "text"),
    [
        pytest.param("/foo", b"", "/foo", id="path"),
        pytest.param("/foo", b"bar=1&baz=%20", "/foo?bar=1&baz=%20", id="query"),
        pytest.param("/foo bar", b"", "/foo%20bar", id="quoted"),
        pytest.param("/a;b=c", b"", "/a%3Bb%3Dc", id="ACC-05"),
        pytest.param("*", b"", "%2A", id="asterisk"),
        pytest.param("/é", b"", "/%C3%A9", id="utf-8"),
        pytest.param("/\ufffd", b"", "/%EF%BF%BD", id="undecodable"),
        pytest.param("/\r\n\x1b[31m\x00", b"", "/%0D%0A%1B%5B31m%00", id="L1-control"),
        pytest.param("/a-b_c.d~e", b"", "/a-b_c.d~e", id="unreserved"),
        pytest.param("/²", b"", "/%C2%B2", id="digit-that-is-not-ascii"),
        pytest.param("/", b'a="b"', "/?a=%22b%22", id="L1-quotation-mark"),
        pytest.param("", b"a", "?a", id="no-path"),
    ],
)
def test_path_with_query(path: str, query: bytes, text: str) -> None:
    """ACC-05, ACC-06, L1"""
    assert get_path_with_query_string({"path": path, "query_string": query}) == text  # type: ignore[typeddict-item]


@given(st.text(), st.binary().map(lambda data: bytes(byte for byte in data if 0x21 <= byte <= 0x7E)))
def test_path_with_query_is_one_harmless_token(path: str, query: bytes) -> None:
    """L1"""
    text = get_path_with_query_string({"path": path, "query_string": query})  # type: ignore[typeddict-item]
    assert set(text) <= set(string.ascii_letters + string.digits + string.punctuation) - {'"'}


# Tasks


async def test_task_runs_in_the_context_it_is_given() -> None:
    """K6: the context itself, not a copy of it; and nothing leaks into the caller's."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("caller")
    context = contextvars.Context()

    async def run() -> None:
        assert variable.get("unset") == "unset"
        variable.set("inner")
        await asyncio.sleep(0)
        assert variable.get() == "inner"

    for eager in (False, True):
        context = contextvars.Context()
        await start_task(asyncio.get_running_loop(), run(), context, eager)
        assert variable.get() == "caller"
        if sys.version_info >= (3, 11):
            assert context[variable] == "inner"


async def test_eager_task_takes_its_first_step_at_once() -> None:
    steps: list[Any] = []

    async def run() -> None:
        steps.append(asyncio.current_task())
        await asyncio.sleep(0)

    task = start_task(asyncio.get_running_loop(), run(), contextvars.copy_context(), eager=True)
    assert steps == ([task] if EAGER_START else [])
    await task
    assert steps == [task]


async def test_eager_task_may_be_done_at_once() -> None:
    async def run() -> None:
        pass

    task = start_task(asyncio.get_running_loop(), run(), contextvars.copy_context(), eager=True)
    assert task.done() is EAGER_START
    await task


async def test_task_that_is_not_eager_waits_for_the_loop() -> None:
    steps: list[int] = []

    async def run() -> None:
        steps.append(1)

    task = start_task(asyncio.get_running_loop(), run(), contextvars.copy_context())
    assert steps == []
    await task


async def test_task_factory_is_used_where_there_is_one() -> None:
    """An application's own kind of task: it decides how tasks start."""
    made: list[Any] = []

    def factory(loop: Any, coroutine: Any, **options: Any) -> Any:
        made.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **options)

    async def run() -> None:
        pass

    loop = asyncio.get_running_loop()
    loop.set_task_factory(factory)
    try:
        await start_task(loop, run(), contextvars.copy_context(), eager=True)
    finally:
        loop.set_task_factory(None)
    assert len(made) == 1


@pytest.mark.parametrize("version", [(3, 10), (3, 11)] if sys.version_info >= (3, 11) else [(3, 10)])
async def test_older_interpreters_start_the_task_in_its_context_too(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int]
) -> None:
    """K6: before 3.11 a task takes the context of its caller; before 3.12 there is no eager start."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("caller")

    async def run() -> None:
        assert variable.get("unset") == "unset"

    with monkeypatch.context() as patch:
        patch.setattr(sys, "version_info", version)
        older = ModuleType("older")
        exec(Path(utils.__file__).read_text("utf-8"), vars(older))  # it decides when it is imported
        task = older.start_task(asyncio.get_running_loop(), run(), contextvars.Context(), eager=True)
    assert not task.done()
    await task


async def test_double_of_a_loop_is_asked_for_a_task_in_the_context() -> None:
    """Upstream's tests hand in a loop that knows `create_task` without a context."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    seen: list[str] = []

    class Loop(MockLoop):
        def create_task(self, coroutine: Any) -> Any:
            seen.append(variable.get("unset"))
            return super().create_task(coroutine)

    async def run() -> None:
        pass

    variable.set("caller")
    loop = Loop()
    start_task(loop, run(), contextvars.Context())  # type: ignore[arg-type]
    assert seen == ["unset"]
    await loop.run_one()


async def test_exception_of_a_wrapped_cycle_is_not_left_to_the_collector() -> None:
    """Its traceback leads to the coroutine that threw it, and with that to all that the application had."""

    class Cancelled(BaseException):
        pass

    waiting: Any = asyncio.Event().wait()
    coroutine = utils.run_asgi(waiting)
    coroutine.send(None)
    error = Cancelled()
    kept = weakref.ref(error)
    gc.disable()
    try:
        with contextlib.suppress(Cancelled):
            coroutine.throw(error)
        del error
        assert kept() is None
    finally:
        gc.enable()
