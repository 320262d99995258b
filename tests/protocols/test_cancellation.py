"""`on_disconnect`: a call whose client has left is cancelled after the grace, and no other."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests import loops, machines
from tests.protocols.harness import GET, Client, Service, request, respond, serve
from tests.protocols.websocket_tools import handshake
from tests.utils import deep_after, turns, wait_until
from uvicorn.metrics.page import CANCELLED, Page
from uvicorn.metrics.routes import Routes
from uvicorn.serving.cancellation import MOST_ROUTES, CancelOnDisconnect, _Call
from uvicorn.serving.state import ServerState

pytestmark = pytest.mark.anyio

anyio_backend = loops.one
http_protocol_cls = machines.each
ws_protocol_cls = machines.each_websocket

SETTINGS: dict[str, Any] = {"on_disconnect": "cancel", "on_disconnect_grace": 0}


class Endless:
    """An application whose calls end when they are let, or cancelled."""

    def __init__(self, *, starts: bool = False, mark: str | None = None, offered: str | None = None) -> None:
        self.ends: list[str] = []
        self.begun = 0
        self.let = asyncio.Event()
        self._starts = starts
        self._mark = mark
        self._offered = offered

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.begun += 1
        if self._mark is not None:
            scope["uvicorn.on_disconnect"] = self._mark
        if self._offered is not None:
            # As seen through a middleware that copies the scope.
            dict(scope)["extensions"]["uvicorn.on_disconnect"]["action"] = self._offered
        try:
            if self._starts:
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"part", "more_body": True})
            await self.let.wait()
            self.ends.append("returned")
        except asyncio.CancelledError:
            self.ends.append("cancelled")
            raise
        finally:
            self.ends.append("cleaned up")


def leave(client: Client, how: str) -> None:
    """End the connection in one of the ways in which clients do."""
    if how == "half-close":
        client.half_close()
    elif how == "reset":
        client.reset()
    else:
        client.close()


@contextlib.asynccontextmanager
async def begun(protocol: Any, app: Endless, data: bytes = GET, **settings: Any) -> Any:
    """A service and a client whose request `app` has begun to answer."""
    async with serve(protocol, app, **{**SETTINGS, **settings}) as service:
        client = await service.connect()
        await client.send(data)
        await wait_until(lambda: app.begun == 1)
        await turns()
        yield service, client
        app.let.set()


@pytest.mark.parametrize("starts", [False, True], ids=["idle", "started"])
@pytest.mark.parametrize("how", ["close", "half-close", "reset"])
async def test_call_is_cancelled_when_its_client_leaves(
    http_protocol_cls: Any, how: str, starts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a traceback: that the call ends so is what was asked for."""
    app = Endless(starts=starts)
    async with begun(http_protocol_cls, app) as (service, client):
        leave(client, how)
        await wait_until(lambda: app.ends == ["cancelled", "cleaned up"])
        await wait_until(lambda: not service.state.tasks)
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


@pytest.mark.parametrize(
    ("settings", "app", "ends"),
    [
        pytest.param({"on_disconnect": "ignore"}, {}, "returned", id="default"),
        pytest.param({"on_disconnect_exempt": ["/"]}, {}, "returned", id="exempt path"),
        pytest.param({"on_disconnect_exempt": ["/*"]}, {}, "returned", id="exempt prefix"),
        pytest.param({"on_disconnect_exempt": ["/other"]}, {}, "cancelled", id="other path"),
        pytest.param({}, {"mark": "ignore"}, "returned", id="marked"),
        pytest.param({"on_disconnect_exempt": ["/"]}, {"mark": "cancel"}, "cancelled", id="marked, though exempt"),
        pytest.param(
            {"on_disconnect": "ignore", "asgi_extensions": ["uvicorn.on_disconnect"]},
            {"offered": "cancel"},
            "cancelled",
            id="extension",
        ),
        pytest.param(
            {"asgi_extensions": ["uvicorn.on_disconnect"]}, {"offered": "ignore"}, "returned", id="extension ignores"
        ),
        pytest.param(
            {"on_disconnect": "ignore", "asgi_extensions": ["uvicorn.on_disconnect"]}, {}, "returned", id="unmarked"
        ),
    ],
)
async def test_settings_and_application_decide(
    http_protocol_cls: Any, settings: dict[str, Any], app: dict[str, Any], ends: str
) -> None:
    endless = Endless(**app)
    async with begun(http_protocol_cls, endless, **settings) as (service, client):
        client.reset()
        await wait_until(lambda: not service.state.connections)
        await turns()
        await asyncio.sleep(0.01)
        await turns()
        endless.let.set()
        await wait_until(lambda: bool(endless.ends))
    assert endless.ends[0] == ends


async def test_grace_lets_a_call_end_by_itself(http_protocol_cls: Any) -> None:
    app = Endless()
    async with begun(http_protocol_cls, app, on_disconnect_grace=3600) as (service, client):
        client.reset()
        await wait_until(lambda: not service.state.connections)
        await turns()
        app.let.set()
        await wait_until(lambda: bool(app.ends))
        assert app.ends == ["returned", "cleaned up"]


async def test_what_runs_behind_a_complete_response_goes_on(http_protocol_cls: Any) -> None:
    """Background tasks of frameworks run in the call of the application."""
    let, ends = asyncio.Event(), list[str]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await respond()(scope, receive, send)
        try:
            await let.wait()
            ends.append("returned")
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    async with serve(http_protocol_cls, app, **SETTINGS) as service:
        client = await service.connect()
        await client.ask()
        client.reset()
        await wait_until(lambda: not service.state.connections)
        await asyncio.sleep(0.01)
        await turns()
        let.set()
        await wait_until(lambda: bool(ends))
    assert ends == ["returned"]


async def test_call_that_begins_after_its_client_has_left_is_cancelled(http_protocol_cls: Any) -> None:
    """With its request came the end of the connection's input."""
    app = Endless()
    async with serve(http_protocol_cls, app, **SETTINGS) as service:
        client = await service.connect()
        client.sock.setblocking(True)
        client.sock.sendall(GET)
        client.half_close()
        await wait_until(lambda: "cancelled" in app.ends)
        assert app.begun == 1


async def test_server_that_stops_is_no_client_that_leaves(http_protocol_cls: Any) -> None:
    """The drain has deadlines of its own."""
    app = Endless()
    async with begun(http_protocol_cls, app) as (service, _):
        for connection in list(service.state.connections):
            connection.disconnect()
        await asyncio.sleep(0.01)
        await turns()
        assert app.ends == []
        app.let.set()
        await wait_until(lambda: bool(app.ends))
        assert app.ends[0] == "returned"


async def test_call_that_catches_its_cancellation_goes_on(http_protocol_cls: Any) -> None:
    """And is cancelled once only."""
    ends: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ends.append("cancelled")
        await asyncio.sleep(0.01)
        ends.append(str((await receive())["type"]))
        ends.append(str((await receive())["type"]))

    async with serve(http_protocol_cls, app, **SETTINGS) as service:
        client = await service.connect()
        await client.send(GET)
        await wait_until(lambda: len(service.state.tasks) == 1)
        await turns()
        client.reset()
        await wait_until(lambda: len(ends) == 3)
    assert ends == ["cancelled", "http.request", "http.disconnect"]


async def test_route_that_cannot_be_read_changes_no_answer(
    http_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Route:
        @property
        def path_format(self) -> str:
            raise ValueError("of the route")

    app = Endless()

    async def routed(scope: Any, receive: Any, send: Any) -> None:
        scope["route"] = Route()
        await (respond() if scope["query_string"] else app)(scope, receive, send)

    async with serve(http_protocol_cls, routed, **SETTINGS) as service:
        assert (await (await service.connect()).ask(request("GET", "/?whole"))).status == 200
        client = await service.connect()
        await client.send(GET)
        await wait_until(lambda: app.begun == 1)
        client.reset()
        await wait_until(lambda: "cancelled" in app.ends)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_routes_that_clients_choose_neither_forge_lines_nor_stay(caplog: pytest.LogCaptureFixture) -> None:
    """An application may take its route from the path of a request."""
    caplog.set_level(logging.INFO, "uvicorn.error")
    config: Any = SimpleNamespace(
        on_disconnect="cancel", on_disconnect_grace=0, on_disconnect_exempt=(), root_path="", loaded_app=None
    )
    loop = asyncio.new_event_loop()
    cancellation = CancelOnDisconnect(config, loop, None)
    for number in range(2 * MOST_ROUTES):
        route = f"/{number}\n\x1b[31m" + "x" * 1000
        cancellation._note(_Call({"type": "http", "path": "/", "route": route}, None, 0.0, None))
    assert len(cancellation._cancelled) == MOST_ROUTES + 1
    cancellation.close()
    loop.close()
    (line,) = caplog.messages
    assert line.startswith(f"Cancelled {2 * MOST_ROUTES} requests") and line.isprintable() and len(line) < 2000
    assert f"other ({MOST_ROUTES})" in line and "/0%0A%1B[31mxxx" in line


async def test_cancelled_calls_are_counted_and_logged(http_protocol_cls: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "uvicorn.error")
    app = Endless()
    state = ServerState()
    state.metrics = page = Page.make("")

    async def routed(scope: Any, receive: Any, send: Any) -> None:
        scope["route"] = "/items/{item}"
        if scope["query_string"]:
            await asyncio.sleep(0.05)
            await respond()(scope, receive, send)
        else:
            await app(scope, receive, send)

    async with serve(http_protocol_cls, routed, state=state, **SETTINGS) as service:
        await (await service.connect()).ask(request("GET", "/items/1?whole"))
        client = await service.connect()
        await client.send(request("GET", "/items/2"))
        await wait_until(lambda: app.begun == 1)
        client.reset()
        await wait_until(lambda: "cancelled" in app.ends)
        assert page.words[CANCELLED] == 1
    [line] = [record.getMessage() for record in caplog.records if record.getMessage().startswith("Cancelled")]
    assert line.startswith("Cancelled 1 requests whose clients had disconnected (on_disconnect), after 0.0 seconds")
    assert line.endswith(("spared 0.0 seconds: /items/{item} (1).", "spared 0.1 seconds: /items/{item} (1)."))
    page.close()


@pytest.mark.parametrize("seed", deep_after(3, range(40)))
async def test_no_call_with_a_complete_response_is_cancelled(http_protocol_cls: Any, seed: int) -> None:
    """Clients leave at any moment; a call that has sent everything is never cancelled, any other always is."""
    random_ = random.Random(seed)
    wrong: list[str] = []
    open_calls = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal open_calls
        complete = False
        open_calls += 1
        try:
            await asyncio.sleep(random_.choice([0, 0, 0.001]))
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
            await send({"type": "http.response.body", "body": b"ab", "more_body": True})
            await asyncio.sleep(random_.choice([0, 0.001]))
            await send({"type": "http.response.body", "body": b"cd"})
            complete = True
            await asyncio.sleep(random_.choice([0, 0.002]))
        except asyncio.CancelledError:
            if complete:
                wrong.append("cancelled behind a complete response")
            raise
        finally:
            open_calls -= 1

    async def visit(service: Service) -> None:
        client = await service.connect()
        for _ in range(random_.randrange(1, 4)):
            await client.send(GET)
            await asyncio.sleep(random_.choice([0, 0, 0.001, 0.002]))
        leave(client, random_.choice(["close", "half-close", "reset"]))

    async with serve(http_protocol_cls, app, **SETTINGS) as service:
        await asyncio.gather(*(visit(service) for _ in range(60)))
        await wait_until(lambda: open_calls == 0)
    assert wrong == []


@pytest.mark.parametrize(
    ("scope", "route"),
    [
        ({"route": "/text"}, "/text"),
        ({"route": SimpleNamespace(path="/object")}, "/object"),
        ({"route": SimpleNamespace(path_format="/format", path="/object")}, "/format"),
        ({"route": object()}, ""),
        ({"path_template": "/template"}, "/template"),
        ({}, ""),
        ({"endpoint": print}, ""),
    ],
)
def test_route_is_read_from_the_scope(scope: dict[str, Any], route: str) -> None:
    assert Routes().of(scope) == route


def test_route_of_an_endpoint_is_searched_once() -> None:
    """In the routes of its application, those of mounted ones included."""
    below = SimpleNamespace(path="/{item}", endpoint=len)
    found = [object(), SimpleNamespace(path="/items", routes=[below]), SimpleNamespace(path="/", endpoint=repr)]

    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

    routes, app = Routes(), SimpleNamespace(routes=found)
    for _ in range(2):
        assert routes.of({"app": app, "endpoint": len}) == "/items/{item}"
        assert routes.of({"app": app, "endpoint": repr}) == "/"
        assert routes.of({"app": app, "endpoint": Unhashable()}) == ""
    app.routes = []
    assert routes.of({"app": app, "endpoint": len}) == "/items/{item}"


async def test_websocket_is_cancelled_unless_it_knows_of_the_end(http_protocol_cls: Any, ws_protocol_cls: Any) -> None:
    ends: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        path = scope["path"]
        try:
            if path == "/receives":
                ends.append((await receive())["type"])
            elif path == "/closes":
                await send({"type": "websocket.close"})
            await asyncio.sleep(0.02 if path != "/works" else 3600)
            ends.append(f"{path} returned")
        except asyncio.CancelledError:
            ends.append(f"{path} cancelled")
            raise

    async with serve(http_protocol_cls, app, ws=ws_protocol_cls, **SETTINGS) as service:
        for path, expected in (
            ("/works", ["/works cancelled"]),
            ("/receives", ["websocket.disconnect", "/receives returned"]),
            ("/closes", ["/closes returned"]),
        ):
            client = await service.connect()
            await client.send(handshake(target=path))
            await client.until(b"\r\n\r\n")
            client.reset()
            await wait_until(lambda: not service.state.tasks)
            assert ends == expected
            ends.clear()


async def test_frameworks_clean_up(http_protocol_cls: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Through Starlette's middleware, task groups and shields; a thread is told, and not killed."""
    import anyio
    import anyio.from_thread
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    said: list[str] = []
    told = threading.Event()

    async def passes(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    async def streams(request: Any) -> Any:
        async def tokens() -> Any:
            try:
                while True:
                    yield b"token"
                    await asyncio.sleep(0.001)
            finally:
                said.append("generator closed")

        return StreamingResponse(tokens())

    async def groups(request: Any) -> Any:
        async def child() -> None:
            try:
                said.append("begun")  # the parent waits in its own block by now
                await anyio.sleep(3600)
            finally:
                said.append("child cancelled")

        async with anyio.create_task_group() as group:
            group.start_soon(child)
            try:
                await anyio.sleep(3600)
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.01)
                    said.append("shielded part done")

    def work() -> None:
        said.append("begun")
        while not told.is_set():
            time.sleep(0.001)
            try:
                anyio.from_thread.check_cancelled()
            except BaseException:
                told.set()
                raise

    async def threads(request: Any) -> Any:
        await run_in_threadpool(work)

    routes = [Route("/streams", streams), Route("/groups", groups), Route("/threads", threads)]
    app = Starlette(routes=routes, middleware=[Middleware(BaseHTTPMiddleware, dispatch=passes)])
    async with serve(http_protocol_cls, app, **SETTINGS) as service:
        for path, expected in (
            ("/streams", {"generator closed"}),
            ("/groups", {"child cancelled", "shielded part done"}),
            ("/threads", set()),
        ):
            client = await service.connect()
            await client.send(request("GET", path))
            if path == "/streams":
                await client.until(b"token")
            else:
                await wait_until(lambda: "begun" in said)
            client.reset()
            await wait_until(lambda: not service.state.tasks)
            # The event loop closes an abandoned generator in a task of its own, once that is collected.
            gc.collect()
            await wait_until(lambda expected=expected: expected <= set(said))  # type: ignore[misc]
            assert set(said) - {"begun"} == expected
            said.clear()
    assert told.is_set()
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []
