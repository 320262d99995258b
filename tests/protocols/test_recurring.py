"""Conclusions that are kept: which, how many, and that requests share nothing but them."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocols import harness
from uvicorn.protocols.http.wire.recurring import Recurring


def note(store: Recurring[Any], key: bytes, value: Any) -> None:
    """Keep a value if its key recurs."""
    if store.recurs(key):
        store.keep(key, value)


def test_value_is_kept_when_its_bytes_come_a_second_time() -> None:
    store: Recurring[int] = Recurring(4, longest=8)
    note(store, b"a", 1)
    assert store.get(b"a") is None
    note(store, b"a", 1)
    assert store.get(b"a") == 1
    assert len(store) == 1


def test_long_ones_are_not_kept() -> None:
    store: Recurring[int] = Recurring(4, longest=8)
    for key in (b"a" * 8, b"b" * 9):
        note(store, key, 1)
        note(store, key, 1)
    assert store.get(b"a" * 8) == 1
    assert store.get(b"b" * 9) is None


def test_what_never_comes_again_pushes_nothing_out() -> None:
    store: Recurring[int] = Recurring(4, longest=8)
    for _ in range(2):
        note(store, b"kept", 1)
    for number in range(5000):
        note(store, b"%d" % number, number)
    assert store.get(b"kept") == 1
    assert len(store) == 1


def test_the_oldest_makes_room() -> None:
    store: Recurring[int] = Recurring(3, longest=8)
    for number in range(5):
        for _ in range(2):
            note(store, b"%d" % number, number)
    assert [store.get(b"%d" % number) for number in range(5)] == [None, None, 2, 3, 4]


def test_what_is_kept_already_pushes_nothing_out() -> None:
    store: Recurring[int] = Recurring(2, longest=8)
    for key in (b"a", b"b"):
        for _ in range(6):
            note(store, key, 1)
    assert (store.get(b"a"), store.get(b"b")) == (1, 1)
    for _ in range(6):
        note(store, b"b", 1)
    assert (store.get(b"a"), store.get(b"b")) == (1, 1)


@given(st.lists(st.sampled_from([b"a", b"b", b"c", b"d", b"e"]), max_size=60))
def test_what_is_found_is_what_was_noted(keys: list[bytes]) -> None:
    store: Recurring[bytes] = Recurring(2, longest=1)
    for key in keys:
        found = store.get(key)
        assert found in (None, key)
        if found is None:
            note(store, key, key)
        assert len(store) <= 2


pytestmark = pytest.mark.anyio

serve = functools.partial(harness.serve, asgi_extensions="all")

HEAD = b"GET /a%20b?c HTTP/1.1\r\nHost: a\r\nX-One: 1\r\n\r\n"


class Recorder:
    """An application that spoils what it is given, once it has taken note of it."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        parts = ("method", "http_version", "path", "raw_path", "query_string", "headers", "extensions")
        self.seen.append({name: type(scope[name])(scope[name]) for name in parts})
        scope["headers"].append((b"x-added", b"1"))
        scope["extensions"]["added"] = {}
        scope["path"] = "/other"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})


async def test_requests_that_repeat_have_scopes_of_their_own(http_protocol_cls: Any) -> None:
    app = Recorder()
    async with serve(http_protocol_cls, app) as service:
        for _ in range(2):
            client = await service.connect()
            for _ in range(4):
                assert (await client.ask(HEAD)).status == 200
    assert len(app.seen) == 8
    assert all(scope == app.seen[0] for scope in app.seen)
    assert app.seen[0]["headers"] == [(b"host", b"a"), (b"x-one", b"1")]
    assert app.seen[0]["path"] == "/a b"


@pytest.mark.parametrize(
    ("line", "status"),
    [
        pytest.param(b"GET / HTTP/1.1", 200, id="plain"),
        pytest.param(b"GET / HTTP/1.0", 200, id="version-1.0"),
        pytest.param(b"GET / HTTP/1.2", 200, id="later-version"),
        pytest.param(b"GET / HTTP/2.0", 505, id="version-2.0"),
        pytest.param(b"GET http://b/ HTTP/1.1", 200, id="absolute-form"),
        pytest.param(b"OPTIONS * HTTP/1.1", 200, id="asterisk-form"),
        pytest.param(b"GET * HTTP/1.1", 400, id="asterisk-form-of-get"),
        pytest.param(b"CONNECT b:1 HTTP/1.1", 501, id="authority-form"),
        pytest.param(b"CONNECT / HTTP/1.1", 400, id="connect-a-path"),
        pytest.param(b"GET /%2 HTTP/1.1", 400, id="broken-percent"),
        pytest.param(b"GET /?%2 HTTP/1.1", 200, id="broken-percent-in-the-query"),
        pytest.param(b"GET /#a HTTP/1.1", 400, id="fragment"),
        pytest.param(b"get / HTTP/1.1", 400, id="method-in-lower-case"),
        pytest.param(b"GET  / HTTP/1.1", 400, id="two-spaces"),
        pytest.param(b"GET /\t HTTP/1.1", 400, id="control-character"),
        pytest.param(b"G" * 65 + b" / HTTP/1.1", 501, id="long-method"),
        pytest.param(b"GET /" + b"a" * 40 + b" HTTP/1.1", 414, id="long-target"),
        pytest.param(b"GET /?" + b"a" * 34 + b" HTTP/1.1", 200, id="longest-target"),
    ],
)
async def test_line_means_the_same_in_front_of_fields_that_were_met(
    line: bytes, status: int, http_protocol_cls: Any
) -> None:
    """F1, F2, U1: known fields do not excuse a bad request line."""
    fields = b"\r\nHost: a\r\n\r\n"
    async with serve(http_protocol_cls, Recorder(), limit_request_target=36) as service:
        for _ in range(3):
            client = await service.connect()
            await client.ask(b"GET / HTTP/1.1" + fields)
            await client.ask(b"GET / HTTP/1.1" + fields)
            assert (await client.ask(line + fields)).status == status


async def test_head_of_known_parts_can_be_too_large(http_protocol_cls: Any) -> None:
    """D4: the limit is that of both together."""
    fields = b"\r\nHost: a\r\nX: " + b"b" * 60 + b"\r\n\r\n"
    long, short = (b"GET /" + b"c" * size + b" HTTP/1.1" for size in (60, 1))
    async with serve(http_protocol_cls, Recorder(), limit_request_head=150) as service:
        client = await service.connect()
        for _ in range(3):
            assert (await client.ask(short + fields)).status == 200
            assert (await client.ask(long + b"\r\nHost: a\r\n\r\n")).status == 200
        assert (await client.ask(long + fields)).status == 431


async def test_field_that_counts_is_honoured_each_time(http_protocol_cls: Any) -> None:
    """K2: what the fields say about the connection and the body is said each time they come."""
    async with serve(http_protocol_cls, Recorder()) as service:
        for _ in range(4):
            client = await service.connect()
            head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n"
            for _ in range(3):
                assert (await client.ask(head + b"abc")).status == 200
            chunked = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
            assert (await client.ask(chunked)).status == 200
            assert (await client.ask(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")).status == 200
            assert await client.rest() == b""
            client.close()
        await service.idle()
