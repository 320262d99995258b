"""Nothing of one client's request reaches another's, whatever becomes of the first."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests import loops, machines
from tests.protocols.harness import request, respond, serve
from tests.utils import PATIENCE, run_server, server_port, wait_until
from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope
from uvicorn.config import Config

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("recycling", "ways")]

anyio_backend = loops.one
http_protocol_cls = machines.each


async def describe(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    """Answers with the request as it came; a slow one when its client has half-closed."""
    assert scope["type"] == "http"
    if scope["path"] == "/slow":
        while (await receive())["type"] != "http.disconnect":
            pass
    fields = [[name.decode(), value.decode()] for name, value in scope["headers"]]
    body = json.dumps([scope["method"], scope["path"], fields]).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def cut_off(port: int, pieces: list[bytes]) -> None:
    """Send a request and the beginning of another, half-close, and read to the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(0)
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), PATIENCE)
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == pieces[0].count(b"GET ") and b'"/slow"' in answer
    writer.close()
    await writer.wait_closed()


async def ask(port: int) -> Any:
    """What the application sees of a request of three fields."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /mine HTTP/1.1\r\nHost: a\r\nCookie: session=mine\r\nConnection: close\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), PATIENCE)
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n"), answer
    return json.loads(body)


@pytest.mark.parametrize(
    "cut",
    [
        b"PUT",
        b"PUT /x HTTP/1.1\r\n",
        b"PUT /x HTTP/1.1\r\nCookie: session=theirs\r\nX-",
        b"PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n",
    ],
    ids=["method", "request-line", "field-name", "fields"],
)
@pytest.mark.parametrize("before", [b"", b"GET /first HTTP/1.1\r\nHost: a\r\n\r\n"], ids=["alone", "pipelined"])
async def test_a_request_is_read_from_its_own_bytes_alone(http_protocol_cls: Any, before: bytes, cut: bytes) -> None:
    slow = b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n"
    config = Config(describe, port=0, http=http_protocol_cls, lifespan="off", log_level="critical")
    async with run_server(config) as server:
        port = server_port(server)
        for pieces in ([before + slow + cut], [before + slow, cut], [before + slow, cut[:2], cut[2:]]):
            await cut_off(port, pieces)
            expected = [["host", "a"], ["cookie", "session=mine"], ["connection", "close"]]
            assert await ask(port) == ["GET", "/mine", expected]


class WhenThrownAway:
    """Does something when it is: anything can happen where an object is let go of."""

    def __init__(self, action: Callable[[], None]) -> None:
        self.action = action

    def __del__(self) -> None:
        self.action()


@pytest.mark.parametrize("known", [(1,), (3,), (1, 3, 4)], ids=["new", "known", "both"])
async def test_requests_that_come_while_another_is_read_are_not_taken_for_it(
    http_protocol_cls: Any, known: tuple[int, ...]
) -> None:
    """More kinds of clients than are remembered, in the middle of taking up a request of a kind that was."""
    seen: dict[str, list[Any]] = {}
    others: list[Any] = []

    def feed() -> None:
        for number, other in enumerate(others):
            other.data_received(request("GET", f"/{number}", f"cookie: {number}") * 2)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.setdefault(scope["path"], []).extend(value for name, value in scope["headers"] if name == b"cookie")
        if scope["path"] == "/mine" and len(seen["/mine"]) in known:
            scope["left"] = WhenThrownAway(feed)
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        for _ in range(10):
            await service.connect()
        await wait_until(lambda: len(service.state.connections) == 10)
        others.extend(service.state.connections)
        client = await service.connect()
        await client.send(request("GET", "/mine", "cookie: mine") * 6)
        for _ in range(6):
            assert (await client.response()).status == 200
        for number, other in reversed(list(enumerate(others))):
            other.data_received(request("GET", f"/{number}", f"cookie: {number}"))
        others.clear()
        await wait_until(lambda: len(seen) == 11 and not service.state.tasks)
    for path, cookies in seen.items():
        assert set(cookies) == {path[1:].encode()}


async def test_requests_that_come_wherever_python_code_runs_stay_apart(http_protocol_cls: Any) -> None:
    """Collectors and signal handlers may run anything there, in the middle of reading a head too."""
    seen: list[list[bytes]] = []
    others: list[Any] = []
    fed = most = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append([value for name, value in scope["headers"] if name.startswith(b"x-")])
        await respond()(scope, receive, send)

    def fields(who: str) -> list[str]:
        return [f"x-{number}: {who}" for number in range(9)]

    def feed(frame: Any, event: str, _argument: Any) -> None:
        nonlocal fed
        # Each request calls several functions, each of which brings a request: without a limit there is no end.
        if event == "call" and "uvicorn" in frame.f_code.co_filename and fed < most:
            fed += 1
            others[fed % 5].data_received(request("GET", "/", *fields(f"theirs {fed}")))

    async with serve(http_protocol_cls, app) as service:
        for _ in range(5):
            await service.connect()
        await wait_until(lambda: len(service.state.connections) == 5)
        others.extend(service.state.connections)
        client = await service.connect()
        for number in range(10):
            await client.send(request("GET", "/", *fields(f"mine {number}")))
            most = fed + 300
            sys.setprofile(feed)
            await wait_until(lambda number=number: [b"mine %d" % number] * 9 in seen)  # type: ignore[misc]
            sys.setprofile(None)
            await client.response()
        others.clear()
    # Before 3.12 a profiler is not told of what uvloop calls.
    assert fed or (sys.version_info < (3, 12) and "uvloop" in type(asyncio.get_running_loop()).__module__)
    assert all(len(values) == 9 and len(set(values)) == 1 for values in seen)
