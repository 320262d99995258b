"""Applications that run the event loop from inside themselves, as `nest_asyncio` lets them.

Other requests are served in the middle of theirs. Only asyncio's own loops can be run like this.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import sys
import weakref
from collections.abc import Coroutine
from typing import Any

import pytest

from tests import machines
from tests.access.test_log import Stream, configure
from tests.protocols.harness import GET, Client, Service, request, respond, serve
from tests.utils import PATIENCE, wait_until
from uvicorn.serving.state import ServerState

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("recycling")]

http_protocol_cls = machines.each

ROUNDS = 4
variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable", default="unset")
get_context_of_task = pytest.mark.skipif(sys.version_info < (3, 12), reason="a task does not tell its context")


class Reentrant(asyncio.SelectorEventLoop):
    """A loop that says it can be run from inside: nothing is on the stack then that could not be entered again."""

    def _run_once(self) -> None:
        super()._run_once()  # type: ignore[misc]


@pytest.fixture(params=[asyncio.SelectorEventLoop, Reentrant], ids=["by force", "by design"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """A loop that is run from inside although nothing says so, and one that says so."""
    return "asyncio", {"loop_factory": request.param}


def run_nested(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run the running loop, from inside one of its callbacks, until `coroutine` is done."""
    loop: Any = asyncio.get_running_loop()
    current = asyncio.current_task()
    if current is not None:
        asyncio.tasks._leave_task(loop, current)
    counted = len(loop._ready)
    try:
        task = loop.create_task(coroutine)
        # In a context of its own: a loop keeps timers that were cancelled, and their contexts, for a while.
        impatience = loop.call_later(PATIENCE, task.cancel, context=contextvars.Context())
        while not task.done():
            loop._run_once()
        impatience.cancel()
    finally:
        if current is not None:
            asyncio.tasks._enter_task(loop, current)
        # The turn of the loop that called us takes as many callbacks as there were when it began.
        for _ in range(counted - len(loop._ready)):
            loop.call_soon(print).cancel()
    return task.result()


def bare_state() -> ServerState:
    """A state whose requests start from an empty context."""
    return contextvars.Context().run(ServerState)


@get_context_of_task
async def test_a_context_that_somebody_holds_serves_no_other_request(http_protocol_cls: Any) -> None:
    held: list[contextvars.Context] = []
    inner: list[Client] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        context = asyncio.current_task().get_context()  # type: ignore[union-attr]
        assert all(context is not other for other in held)
        if scope["path"] != "/free":
            held.append(context)
        if scope["path"] == "/outer":
            assert run_nested(inner[0].ask(request("GET", scope["query_string"].decode()))).status == 200
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app, state=bare_state()) as service:
        inner.append(await service.connect())
        outer = await service.connect()
        for path in ("/inner", "/free", "/inner", "/free"):
            for target in (f"/outer?{path}", "/free", "/inner", "/free"):
                assert (await outer.ask(request("GET", target))).status == 200
        await wait_until(lambda: not service.state.tasks)


async def test_what_a_request_sets_is_unknown_to_those_inside_and_behind_it(http_protocol_cls: Any) -> None:
    inner: list[Client] = []
    seen: list[Any] = []
    wrong: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["path"], variable.get(), scope.get("user")))
        before = scope.copy()
        mine = f"set by {len(seen)}"
        if scope["path"] != "/plain":
            variable.set(mine)
            scope["user"] = before["user"] = mine
        if scope["path"] == "/outer":
            for path in ("/plain", "/inner", "/plain"):
                assert run_nested(inner[0].ask(request("GET", path, "cookie: inner"))).body == path.encode()
        if scope != before or (scope["path"] != "/plain" and variable.get() != mine):
            wrong.append((scope, before))
        await respond(scope["path"].encode())(scope, receive, send)

    async with serve(http_protocol_cls, app, state=bare_state()) as service:
        inner.append(await service.connect())
        outer = await service.connect()
        for _ in range(ROUNDS):
            for path in ("/outer", "/plain"):
                assert (await outer.ask(request("GET", path, "cookie: outer"))).body == path.encode()
    assert not wrong
    turn = [(path, "unset", None) for path in ("/outer", "/plain", "/inner", "/plain", "/plain")]
    assert seen == turn * ROUNDS


async def test_every_connection_is_served_while_a_request_runs_the_loop(http_protocol_cls: Any) -> None:
    """Those that are read in one go with the outer request, those that come later, and new ones."""
    served: list[str] = []
    waiting: list[Client] = []

    services: list[Service] = []

    async def others() -> None:
        for client in waiting:
            await client.response()
        for client in [*waiting, await services[0].connect()]:
            assert (await client.ask(request("GET", "/later"))).body == b"/later"

    async def app(scope: Any, receive: Any, send: Any) -> None:
        served.append(scope["path"])
        if scope["path"] == "/outer":
            run_nested(others())
        await respond(scope["path"].encode())(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        services.append(service)
        outer = await service.connect()
        clients = [await service.connect() for _ in range(5)]
        for _ in range(3):
            for client in [outer, *clients]:
                assert (await client.ask()).status == 200
        waiting.extend(clients)
        for data, client in zip([request("GET", "/outer"), *[GET] * 5], [outer, *clients], strict=True):
            client.sock.send(data)
        service.wait_for_bytes()
        assert (await outer.response()).body == b"/outer"
        assert served.count("/later") == 6


async def test_access_lines_of_requests_served_inside_are_written_inside(http_protocol_cls: Any) -> None:
    """The turn in which they are served inside of another may last until the server ends."""
    stream = Stream()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/outer":
            run_nested(ask_inside())
        elif scope["path"] == "/later":
            await asyncio.sleep(0)
        await respond()(scope, receive, send)

    def is_written(line: str) -> bool:
        return stream.getvalue().count(line) == 3

    async def ask_inside() -> None:
        for path in ("/1", "/2", "/later"):
            clients = [await service.connect() for _ in range(3)]
            for client in clients:
                await client.send(request("GET", path))
            for client in clients:
                await client.response()
            await wait_until(functools.partial(is_written, f'"GET {path} '))

    configure(stream)
    async with serve(http_protocol_cls, app, access_log=True) as service:
        assert (await (await service.connect()).ask(request("GET", "/outer"))).body == b"ok"
    assert stream.getvalue().count("\n") == 10


async def test_nothing_of_a_request_outlives_it_because_another_was_served_inside(http_protocol_cls: Any) -> None:
    class Kept:
        pass

    left: list[weakref.ref[Kept]] = []
    inner: list[Client] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        value = Kept()
        left.append(weakref.ref(value))
        scope["state"]["kept"] = value
        variable.set(value)
        if scope["path"] == "/outer":
            run_nested(inner[0].ask())
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app, state=bare_state(), timeout_keep_alive=3600) as service:
        inner.append(await service.connect())
        outer = await service.connect()
        for _ in range(ROUNDS):
            await outer.ask(request("GET", "/outer"))
        await wait_until(lambda: not service.state.tasks)
        await wait_until(lambda: [reference() for reference in left] == [None] * len(left))
