"""What programs read of a request behind a bound `receive` or `send`, without a call of either."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests import loops, machines
from tests.native import http2_client as http2
from tests.protocols.harness import Client, request, respond, serve
from tests.protocols.websocket_tools import handshake
from tests.utils import wait_until

pytestmark = pytest.mark.anyio

anyio_backend = loops.one
http_protocol_cls = machines.each

ENDS = {"fin": Client.close, "half": Client.half_close, "reset": Client.reset}

REQUESTS = {
    "get": request("GET", "/"),
    "stream": request("GET", "/stream"),
    "body to come": request("POST", "/", "content-length: 10") + b"body",
    "body to come, received": request("POST", "/receive", "content-length: 10") + b"body",
    "body": request("POST", "/", body=b"body"),
    "body, received": request("POST", "/receive", body=b"body"),
    "more body than is read": request("POST", "/", body=b"x" * 120_000),
}


class Watching:
    """An application that looks at `disconnected`, receives nothing more, and ends when it is let."""

    def __init__(self) -> None:
        self.cycle: Any = None
        self.proceed = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/receive":
            await receive()
        if scope["path"] == "/stream":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
        self.cycle = receive.__self__
        assert send.__self__ is self.cycle
        await self.proceed.wait()


@pytest.mark.parametrize("data", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_clients_end_is_known_though_nobody_receives(http_protocol_cls: Any, data: bytes, end: Any) -> None:
    app = Watching()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(data)
        await wait_until(lambda: app.cycle is not None)
        assert not app.cycle.disconnected
        end(client)
        await wait_until(lambda: app.cycle.disconnected)
        app.proceed.set()


async def test_reset_of_a_stream_is_its_clients_end() -> None:
    implementation = pytest.importorskip("uvicorn.protocols.http.native_impl", exc_type=ModuleNotFoundError)
    app = Watching()
    async with serve(implementation.NativeProtocol, app, http2=True) as service:
        client = await http2.connect(service)
        await client.send(client.head())
        await wait_until(lambda: app.cycle is not None)
        assert not app.cycle.disconnected
        assert app.cycle.transport is None
        await client.send(http2.reset(1))
        await wait_until(lambda: app.cycle.disconnected)
        app.proceed.set()


async def test_how_far_a_request_has_come_can_be_read(http_protocol_cls: Any) -> None:
    seen: list[Any] = []
    kept: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        cycle = receive.__self__
        kept.append(cycle)

        def note() -> None:
            facts = (cycle.waiting_for_100_continue, bytes(cycle.body), cycle.more_body)
            seen.append((*facts, cycle.response_started, cycle.response_complete, cycle.disconnected))

        assert cycle.scope is scope
        assert cycle.logger is logging.getLogger("uvicorn.error")
        assert cycle.transport.get_extra_info("peername") == scope["client"]
        note()
        while (await receive())["more_body"]:
            note()
        note()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        note()
        await send({"type": "http.response.body", "body": b"ok"})
        note()

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "content-length: 4", "expect: 100-continue"))
        assert (await client.response()).status == 100
        await client.send(b"bo")
        await wait_until(lambda: len(seen) == 2)
        await client.send(b"dy")
        assert (await client.response()).body == b"ok"
        client.close()
        await service.idle()
        # What comes when the response is complete is none of its client's ends.
        assert not kept[0].disconnected
    nothing = (False, b"")
    assert seen == [
        (True, b"", True, False, False, False),
        (*nothing, True, False, False, False),
        (*nothing, False, False, False, False),
        (*nothing, False, True, False, False),
        (*nothing, False, True, True, False),
    ]


async def test_a_request_that_serves_again_shows_the_next_one(http_protocol_cls: Any, recycling: None) -> None:
    paths: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        cycle = receive.__self__
        paths.append((cycle.scope["path"], cycle.response_started, cycle.disconnected))
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        for number in range(4):
            assert (await client.ask(request("GET", f"/{number}"))).status == 200
    assert paths == [(f"/{number}", False, False) for number in range(4)]


async def test_a_native_websocket_has_none_of_it() -> None:
    implementation = pytest.importorskip("uvicorn.protocols.http.native_impl", exc_type=ModuleNotFoundError)
    found: list[bool] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        found.append(hasattr(receive.__self__, "disconnected"))

    async with serve(implementation.NativeProtocol, app, ws="native") as service:
        client = await service.connect()
        await client.send(handshake())
        await wait_until(lambda: found)
    assert found == [False]


@pytest.mark.parametrize("implementation", ["h11_impl:H11Protocol", "httptools_impl:HttpToolsProtocol"])
async def test_what_a_program_assigns_to_a_connection_is_in_its_scopes(implementation: str) -> None:
    module, _, name = implementation.partition(":")
    kind = getattr(pytest.importorskip(f"uvicorn.protocols.http.{module}"), name)
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["root_path"], scope["path"], scope["state"]["of"], dict(scope["headers"]).get(b"own")))
        connection: Any = next(iter(service.state.connections))
        assert connection.scope["headers"] is connection.headers
        await respond()(scope, receive, send)

    async with serve(kind, app) as service:
        client = await service.connect()
        await wait_until(lambda: bool(service.state.connections))
        connection: Any = next(iter(service.state.connections))
        connection.app_state = {"of": "first"}
        await client.ask(request("GET", "/a"))
        connection.root_path = "/sub"
        connection.app_state = {"of": "second"}
        await client.ask(request("GET", "/a"))
        assert connection.root_path == "/sub" and connection.app_state == {"of": "second"}
    assert seen == [("", "/a", "first", None), ("/sub", "/sub/a", "second", None)]
