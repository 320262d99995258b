"""The id of a request over HTTP/2."""

from __future__ import annotations

from typing import Any

import pytest

from tests.access.test_log import Stream, configure
from tests.access.test_request_id import TRACE, TRACEPARENT, is_made
from tests.native.http2_client import connect
from tests.native.test_http2_websocket import open_one
from tests.protocols.harness import Calls, respond, serve
from tests.protocols.test_http_request_id import TRUSTING
from tests.utils import wait_until

pytestmark = pytest.mark.anyio


async def test_each_stream_has_one_of_its_own(native: Any) -> None:
    """I11"""
    app = Calls()
    async with serve(native, app, http2=True, **TRUSTING) as service:
        client = await connect(service)
        fields = [(), (("x-request-id", "a"),), (), (("traceparent", TRACEPARENT),), (("x-request-id", "a b"),)] * 2
        answers = [await client.ask("/", *some) for some in fields]
    named = [scope["request_id"] for scope in app.scopes]
    assert [[value for name, value in answer.headers if name == b"x-request-id"] for answer in answers] == [
        [name.encode()] for name in named
    ]
    assert [named[1], named[6], named[3], named[8]] == ["a", "a", TRACE, TRACE]
    made = named[0::5] + named[2::5] + named[4::5]
    assert len(set(made)) == 6 and all(map(is_made, made))


async def test_the_applications_own_stands(native: Any) -> None:
    async with serve(native, respond(headers=[(b"X-Request-ID", b"own")]), http2=True, request_id=True) as service:
        client = await connect(service)
        for _ in range(2):
            assert (await client.ask()).headers == [(b"x-request-id", b"own")]


async def test_another_name_and_an_application_that_fails(native: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise OSError

    settings = {**TRUSTING, "request_id_header": "x-trace"}
    async with serve(native, app, http2=True, **settings) as service:
        answer = await (await connect(service)).ask("/", ("x-trace", "b"))
    assert (answer.status, dict(answer.headers)[b"x-trace"]) == (500, b"b")


async def test_the_log_has_what_was_sent(native: Any) -> None:
    stream = Stream()
    configure(stream)
    settings = {"access_log": True, "access_log_format": "%(request_id)s %({x-request-id}o)s"}
    async with serve(native, respond(), http2=True, **TRUSTING, **settings) as service:
        await (await connect(service)).ask("/", ("x-request-id", "a"))
        await wait_until(lambda: "\n" in stream.getvalue())
    assert stream.getvalue() == "a a\n"


async def test_a_websocket_has_one(native: Any) -> None:
    scopes: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)
        await receive()
        await send({"type": "websocket.accept"})

    async with serve(native, app, http2=True, ws="native", **TRUSTING) as service:
        client = await connect(service)
        await open_one(client, "/", ("x-request-id", "a"))
        assert dict(client.answers[1].headers)[b"x-request-id"] == b"a"
    assert scopes[0]["request_id"] == "a"
