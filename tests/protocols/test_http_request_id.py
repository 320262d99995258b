"""The id of a request, in its scope and its response, on every implementation; `test_request_id.py` says what it is."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import os
import queue
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import machines
from tests.access.test_log import Stream, configure
from tests.access.test_request_id import TRACE, TRACEPARENT, is_made
from tests.doubles import MockLoop, MockTransport
from tests.protocols.harness import GET, Calls, make_config, request, respond, serve
from tests.protocols.websocket_tools import Application, connected, handshake
from tests.utils import wait_until
from uvicorn.serving.state import ServerState

pytestmark = pytest.mark.anyio

http_protocol_cls = machines.each
ws_protocol_cls = machines.each_websocket

TRUSTING: dict[str, Any] = {"request_id": True, "proxy_headers": True, "forwarded_allow_ips": "127.0.0.1"}


def ask(*fields: str) -> bytes:
    return request("GET", "/", *fields)


async def test_without_the_setting_there_is_none(http_protocol_cls: Any) -> None:
    app = Calls()
    async with serve(http_protocol_cls, app) as service:
        answer = await (await service.connect()).ask(ask("x-request-id: a"))
    assert "request_id" not in app.scope and answer.headers == [(b"content-length", b"2")]


async def test_each_request_has_one_of_its_own(http_protocol_cls: Any) -> None:
    """I11"""
    app = Calls()
    async with serve(http_protocol_cls, app, request_id=True) as service:
        client = await service.connect()
        await client.send(GET * 20)
        answers = [await client.response() for _ in range(20)]
    named = [scope["request_id"] for scope in app.scopes]
    assert [answer.values(b"x-request-id") for answer in answers] == [[name.encode()] for name in named]
    assert len(set(named)) == 20 and all(type(name) is str and is_made(name) for name in named)


def by_generator(name: str) -> Any:
    def wait() -> Any:
        yield
        yield name

    waiting = wait()
    next(waiting)
    return waiting


def by_thread(name: str) -> Any:
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    told.put(name)
    return told


#: Ways of an application to keep an id, and how it is had back.
KEEPERS: dict[str, tuple[Callable[[str], Any], Callable[[Any], str]]] = {
    "itself": (lambda name: name, lambda kept: kept),
    "as a key": (lambda name: {name: 1}, lambda kept: next(iter(kept))),
    "interned": (sys.intern, lambda kept: kept),
    "formatted": (lambda name: f"{name}", lambda kept: kept),
    "sliced": (lambda name: name[:], lambda kept: kept),
    "in a match": (lambda name: re.match(".*", name), lambda kept: kept.string),
    "in an argument": (lambda name: functools.partial(str, name), lambda kept: kept()),
    "in a frame": (by_generator, next),
    "for a thread": (by_thread, lambda kept: kept.get()),
    "in a record": (lambda name: logging.makeLogRecord({"request_id": name}), lambda kept: kept.request_id),
}


@pytest.mark.usefixtures("recycling")
@pytest.mark.parametrize("keeper", KEEPERS)
async def test_an_id_stays_what_it_is_wherever_it_is_kept(http_protocol_cls: Any, keeper: str) -> None:
    """I11: what requests are given is used again, of which an id that somebody knows must not be a part."""
    keep, get = KEEPERS[keeper]
    kept: list[Any] = []
    expected: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/keep":
            kept.append(keep(scope["request_id"]))
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app, request_id=True) as service:
        client = await service.connect()
        for _ in range(5):
            for path in ("/", "/keep", "/", "/"):
                answer = await client.ask(request("GET", path))
                if path == "/keep":
                    expected += [value.decode() for value in answer.values(b"x-request-id")]
    assert [get(one) for one in kept] == expected and len(set(expected)) == 5


@pytest.mark.usefixtures("recycling")
@pytest.mark.parametrize("beside", ["nothing", "its scope", "another's id"])
@pytest.mark.parametrize("count", range(5))
async def test_an_id_stays_what_it_is_however_many_hold_it(http_protocol_cls: Any, count: int, beside: str) -> None:
    """I11: who holds it is told by a number, which must not be that of others."""
    kept: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/keep":
            kept.append(([scope["request_id"]] * count, scope if beside == "its scope" else None))
        await respond()(scope, receive, send)

    expected: list[str] = []
    async with serve(http_protocol_cls, app, **TRUSTING) as service:
        client = await service.connect()
        for _ in range(5):
            answer = await client.ask(request("GET", "/keep"))
            expected += [value.decode() for value in answer.values(b"x-request-id")]
            if beside == "another's id":
                await client.ask(ask("x-request-id: a-1"))
            for _ in range(3):
                await client.ask(GET)
    assert [ids for ids, _ in kept] == [[name] * count for name in expected]
    assert [scope["request_id"] for _, scope in kept if scope] == expected * (beside == "its scope")


@pytest.mark.usefixtures("recycling")
async def test_an_id_that_was_looked_up_has_the_hash_of_no_other(http_protocol_cls: Any) -> None:
    """I11: a `str` remembers its hash."""
    seen: set[str] = set()
    found: list[tuple[bool, bool]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        before = scope["request_id"] in seen
        seen.add("".join(list(scope["request_id"])))
        found.append((before, scope["request_id"] in seen))
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app, request_id=True) as service:
        client = await service.connect()
        answers = [await client.ask(GET) for _ in range(5)]
    assert found == [(False, True)] * 5
    assert {answer.values(b"x-request-id")[0].decode() for answer in answers} == seen


async def test_what_a_trusted_peer_says_is_taken_for_its_request_only(http_protocol_cls: Any) -> None:
    """I11"""
    app = Calls()
    async with serve(http_protocol_cls, app, **TRUSTING) as service:
        client = await service.connect()
        for fields in [("X-Request-Id: a-1",), (), (f"traceparent: {TRACEPARENT}",), ("x-request-id: a-1",)] * 3:
            await client.ask(ask(*fields))
    named = [scope["request_id"] for scope in app.scopes]
    assert named[0::4] == named[3::4] == ["a-1"] * 3
    assert named[2::4] == [TRACE] * 3
    assert len(set(named[1::4])) == 3 and all(map(is_made, named[1::4]))


async def test_another_name_of_the_field(http_protocol_cls: Any) -> None:
    app = Calls()
    async with serve(http_protocol_cls, app, **TRUSTING, request_id_header="X-Trace") as service:
        client = await service.connect()
        for _ in range(3):
            answer = await client.ask(ask("x-request-id: a", "x-TRACE: b"))
            assert answer.values(b"x-trace") == [b"b"] and not answer.values(b"x-request-id")
    assert {scope["request_id"] for scope in app.scopes} == {"b"}


@pytest.mark.parametrize(
    "fields",
    [
        ("x-request-id: a b",),
        ("x-request-id: a\x80",),
        ("x-request-id: " + "a" * 129,),
        ("x-request-id: a", "x-request-id: a"),
        (f"traceparent: {TRACEPARENT}", f"traceparent: {TRACEPARENT}"),
        (f"traceparent: {TRACEPARENT.upper()}",),
        (f"traceparent: {TRACEPARENT}-",),
        (f"traceparent: ff{TRACEPARENT[2:]}",),
        (f"traceparent: {TRACEPARENT[:3]}{'0' * 32}{TRACEPARENT[35:]}",),
    ],
)
async def test_what_is_invalid_is_ignored(http_protocol_cls: Any, fields: tuple[str, ...]) -> None:
    """L2"""
    app = Calls()
    async with serve(http_protocol_cls, app, **TRUSTING) as service:
        client = await service.connect()
        for _ in range(2):
            answer = await client.ask(ask(*fields))
            assert is_made(app.scopes[-1]["request_id"])
            assert answer.values(b"x-request-id") == [app.scopes[-1]["request_id"].encode()]


async def test_nobody_else_is_believed(http_protocol_cls: Any) -> None:
    """L2"""
    app = Calls()
    settings = {**TRUSTING, "forwarded_allow_ips": "192.0.2.1"}
    async with serve(http_protocol_cls, app, **settings) as service:
        await (await service.connect()).ask(ask("x-request-id: mine", "x-forwarded-for: 192.0.2.1"))
    assert is_made(app.scope["request_id"])


@pytest.mark.parametrize("name", [b"x-request-id", b"X-Request-ID"])
@pytest.mark.parametrize("make", [list, iter])
async def test_the_response_has_the_applications_own_and_no_other(
    http_protocol_cls: Any, name: bytes, make: Any
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = make([(b"content-length", b"2"), (name, b"own")])
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    async with serve(http_protocol_cls, app, request_id=True) as service:
        client = await service.connect()
        for _ in range(2):
            assert (await client.ask()).values(b"x-request-id") == [b"own"]


async def test_an_iterator_of_headers_is_followed_by_the_id(http_protocol_cls: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": iter([(b"a", b"1")])})
        await send({"type": "http.response.body", "body": b"ok"})

    async with serve(http_protocol_cls, app, request_id=True) as service:
        answer = await (await service.connect()).ask()
    assert [name for name, _ in answer.headers] == [b"a", b"transfer-encoding", b"x-request-id"] or [
        name for name, _ in answer.headers
    ] == [b"a", b"x-request-id", b"transfer-encoding"]


async def test_the_answer_for_an_application_that_fails_has_it(http_protocol_cls: Any) -> None:
    scopes: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)
        raise OSError

    async with serve(http_protocol_cls, app, request_id=True) as service:
        answer = await (await service.connect()).ask()
    assert (answer.status, answer.values(b"x-request-id")) == (500, [scopes[0]["request_id"].encode()])


async def test_the_last_response_has_it_too(http_protocol_cls: Any) -> None:
    async with serve(http_protocol_cls, respond(), request_id=True) as service:
        answer = await (await service.connect()).ask(ask("connection: close"))
    assert len(answer.values(b"x-request-id")) == len(answer.values(b"connection")) == 1


async def test_a_file_that_the_server_sends_itself_has_one(http_protocol_cls: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("text")
    async with serve(http_protocol_cls, respond(), **TRUSTING, mount=f"/files={tmp_path}") as service:
        client = await service.connect()
        for target in ("/files/a", "/files/none", "/files/a"):
            assert len((await client.ask(request("GET", target))).values(b"x-request-id")) == 1
        named = await client.ask(request("GET", "/files/a", "x-request-id: a"))
    assert (named.body, named.values(b"x-request-id")) == (b"text", [b"a"])


async def test_requests_beside_each_other_keep_their_own(http_protocol_cls: Any) -> None:
    """I11"""
    all_here = asyncio.Event()
    seen: list[tuple[str, str]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        before = scope["request_id"]
        await all_here.wait()
        seen.append((before, scope["request_id"]))
        await respond(before.encode())(scope, receive, send)

    async with serve(http_protocol_cls, app, request_id=True) as service:
        clients = [await service.connect() for _ in range(10)]
        for client in clients:
            await client.send(GET)
        await wait_until(lambda: len(service.state.tasks) == 10)
        all_here.set()
        for client in clients:
            answer = await client.response()
            assert answer.values(b"x-request-id") == [answer.body]
    assert all(before == after for before, after in seen) and len(set(seen)) == 10


async def test_what_an_application_puts_there_is_not_the_next_ones(http_protocol_cls: Any) -> None:
    """I11"""
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["request_id"])
        scope["request_id"] = "theirs"
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app, request_id=True) as service:
        client = await service.connect()
        answers = [await client.ask() for _ in range(3)]
    assert [answer.values(b"x-request-id") for answer in answers] == [[name.encode()] for name in seen]
    assert "theirs" not in seen


async def test_the_log_has_the_same(http_protocol_cls: Any) -> None:
    stream = Stream()
    configure(stream)
    app = Calls()
    settings = {**TRUSTING, "access_log": True, "access_log_format": "%(request_id)s %({x-request-id}o)s"}
    async with serve(http_protocol_cls, app, **settings) as service:
        client = await service.connect()
        await client.ask(ask("x-request-id: a"))
        await client.ask()
        await wait_until(lambda: stream.getvalue().count("\n") == 2)
    made = app.scopes[1]["request_id"]
    assert stream.getvalue() == f"a a\n{made} {made}\n"


async def test_the_log_in_json_has_the_same(http_protocol_cls: Any) -> None:
    stream = Stream()
    configure(stream)
    app = Calls()
    settings = {**TRUSTING, "access_log": True, "access_log_format": "json", "forwarded_allow_ips": "192.0.2.1"}
    async with serve(http_protocol_cls, app, **settings) as service:
        await (await service.connect()).ask(ask("x-request-id: a"))
        await wait_until(lambda: "\n" in stream.getvalue())
    assert json.loads(stream.getvalue())["request_id"] == app.scope["request_id"] != "a"


@pytest.mark.skipif(sys.platform == "win32", reason="there are no forks")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_child_of_a_fork_does_not_go_on_where_its_parent_was(http_protocol_cls: Any) -> None:
    """L3"""
    config = make_config(respond(), http_protocol_cls, request_id=True)
    state = ServerState()
    state.configure(headers=[], date_header=False)
    loop: Any = MockLoop()

    def ask_once() -> bytes:
        transport = MockTransport()
        protocol = http_protocol_cls(config=config, server_state=state, app_state={}, _loop=loop)
        protocol.connection_made(transport)
        protocol.data_received(GET)
        with contextlib.suppress(StopIteration):
            loop.coroutines.pop().send(None)
        return transport.buffer.partition(b"x-request-id: ")[2][:32]

    ours = [ask_once()]
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        try:
            os.write(writing, ask_once())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reading, 100)
    os.close(reading)
    os.close(writing)
    ours += [ask_once() for _ in range(3)]
    assert is_made(theirs.decode()) and len({theirs, *ours}) == 5


# WebSocket


async def test_a_handshake_has_one_in_scope_and_answer(ws_protocol_cls: Any) -> None:
    app = Application()
    async with connected(ws_protocol_cls, app, request_id=True) as peer:
        peer.send(handshake("x-request-id: a"))
        await peer.until(lambda: peer.head)
    assert is_made(app.scope["request_id"])
    assert [value for name, value in peer.headers if name.lower() == "x-request-id"] == [app.scope["request_id"]]


async def test_a_trusted_peer_says_that_of_a_handshake(ws_protocol_cls: Any) -> None:
    app = Application()
    settings = {"proxy_headers": True, "forwarded_allow_ips": "192.0.2.0/24"}
    async with connected(ws_protocol_cls, app, request_id=True, **settings) as peer:
        peer.send(handshake(f"traceparent: {TRACEPARENT}"))
        await peer.until(lambda: peer.head)
    assert app.scope["request_id"] == TRACE


async def test_a_handshake_without_the_setting_has_none(ws_protocol_cls: Any) -> None:
    app = Application()
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake("x-request-id: a"))
        await peer.until(lambda: peer.head)
    assert "request_id" not in app.scope and b"x-request-id" not in peer.head.lower()


ENDS: dict[str, tuple[int, Any]] = {
    "accepted": (101, {"type": "websocket.accept"}),
    "refused": (403, {"type": "websocket.close"}),
    "denied": (401, {"type": "websocket.http.response.start", "status": 401}),
}


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("end", ENDS)
async def test_each_answer_to_a_handshake_has_one(ws_protocol_cls: Any, end: str, own: bool) -> None:
    status, message = ENDS[end]

    async def script(receive: Any, send: Any) -> None:
        await receive()
        await send({**message, "headers": [(b"X-Request-Id", b"own")] if own else []})
        if end == "denied":
            await send({"type": "websocket.http.response.body", "body": b"no"})

    app = Application(script)
    async with connected(ws_protocol_cls, app, request_id=True) as peer:
        peer.send(handshake())
        await peer.until(lambda: app.done and peer.head)
        assert peer.status == status
        values = [value for name, value in peer.headers if name.lower() == "x-request-id"]
        assert values == ["own" if own and end != "refused" else app.scope["request_id"]]


async def test_a_handshake_whose_application_fails_is_answered_with_it(ws_protocol_cls: Any) -> None:
    async def script(receive: Any, send: Any) -> None:
        raise OSError

    app = Application(script)
    async with connected(ws_protocol_cls, app, request_id=True) as peer:
        peer.send(handshake())
        await peer.until(lambda: app.done and peer.head)
        assert (peer.status, dict(peer.headers)["x-request-id"]) == (500, app.scope["request_id"])
