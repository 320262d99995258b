"""Attacks on HTTP/2 from tests/catalogue/threats.md: the answer, one line in the log, bounded memory.

Everybody else is served; `scripts/http2-attacks` says how soon. What the core does by itself is tested in
`native/wire/tests/h2_threats.rs`.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from itertools import islice
from typing import Any

import pytest
from h2.errors import ErrorCodes

from tests.native.http2_attacks import ATTACKS, Attack, app
from tests.native.http2_client import (
    COMPRESSION_ERROR,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PROTOCOL_ERROR,
    SETTINGS,
    STREAM_CLOSED,
    HTTP2Client,
    connect,
    frame,
    window_update,
)
from tests.native.leak_server import resident
from tests.protocols.harness import Calls, Service, echo, respond, serve
from tests.utils import turns

pytestmark = pytest.mark.anyio

AT_ONCE = 100
MEMORY = 16 * 1024 * 1024
"""Bytes that none of the attacks may cost."""


async def overrun(client: HTTP2Client, attack: Attack) -> None:
    """Send it, until the server has had enough."""
    pieces = attack.pieces()
    while some := list(islice(pieces, AT_ONCE)):
        try:
            await client.send(b"".join(some))
        except ConnectionError:
            return
        await turns()
        with contextlib.suppress(BlockingIOError):
            client.client.buffer += client.client.sock.recv(1 << 20)
        if b"too much" in client.client.buffer or b"too large" in client.client.buffer:
            return


async def assert_served(service: Service) -> None:
    other = await connect(service)
    assert (await other.ask("/other")).status == 200
    other.client.close()


ENDED = [
    pytest.param(attack, id=f"{attack.threat} {attack.name}")
    for attack in ATTACKS
    if attack.end.startswith("GOAWAY") and not attack.waits
]


@pytest.mark.parametrize("attack", ENDED)
async def test_who_attacks_is_told_why_the_connection_ends(
    native: Any, attack: Attack, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls(app)
    async with serve(native, calls, http2=True, http2_max_concurrent_streams=100) as service:
        client = HTTP2Client(await service.connect())
        await client.send(attack.begin())
        before = resident(os.getpid()) if sys.platform == "linux" else 0
        await overrun(client, attack)
        assert ErrorCodes((await client.until(GOAWAY)).code).name == attack.end.removeprefix("GOAWAY ")
        if sys.platform == "linux":
            assert resident(os.getpid()) - before < MEMORY
        # Of requests that are reset in the read that brings them none is asked of the application.
        assert len(calls.scopes) < 500
        await assert_served(service)
        client.client.close()
    lines = [record.getMessage() for record in caplog.records if "HTTP/2" in record.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith(f"HTTP/2 connection ended with {attack.end.removeprefix('GOAWAY ')}: ")


PSEUDO = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "test")]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param([*PSEUDO, ("X-Upper", "a")], id="F20 upper case"),
        pytest.param([*PSEUDO, ("a", "b\r\nc: d")], id="F20 CR LF"),
        pytest.param([*PSEUDO, ("a", "b\0")], id="F20 NUL"),
        pytest.param([*PSEUDO, ("connection", "close")], id="F20 connection"),
        pytest.param([*PSEUDO, ("transfer-encoding", "chunked")], id="F20 chunked"),
        pytest.param([*PSEUDO[:3], ("a", "b"), PSEUDO[3]], id="F20 pseudo behind"),
        pytest.param([*PSEUDO, ("host", "other")], id="F21 two hosts"),
        pytest.param([*PSEUDO, ("content-length", "1")], id="F22 nothing came"),
        pytest.param([*PSEUDO, (":status", "200")], id="H8 status"),
        pytest.param([*PSEUDO, (":path", "/b")], id="H8 twice"),
        pytest.param(PSEUDO[:2], id="H8 missing"),
    ],
)
async def test_what_is_malformed_costs_its_stream(native: Any, fields: list[tuple[str, str]]) -> None:
    app = Calls()
    async with serve(native, app, http2=True) as service:
        client = await connect(service)
        await client.send(client.headers(fields))
        assert (await client.answer(1)).code == PROTOCOL_ERROR
        assert (await client.ask()).status == 200
        assert len(app.scopes) == 1


async def test_one_host_is_known(native: Any) -> None:
    """F21"""
    app = Calls()
    async with serve(native, app, http2=True) as service:
        client = await connect(service)
        await client.ask("/", ("host", "test"))
        assert app.scope["headers"] == [(b"host", b"test")]
        await client.send(client.headers([*PSEUDO[:3], ("host", "alone")]) + client.headers(PSEUDO[:3]))
        assert (await client.answer(3)).status == 200
        assert app.scopes[1]["headers"] == [(b"host", b"alone")]
        assert (await client.answer(5)).status == 400


async def test_a_body_that_is_not_as_long_as_it_said_costs_its_stream(native: Any) -> None:
    """F22"""
    async with serve(native, echo, http2=True) as service:
        client = await connect(service)
        for body in (b"12", b"1234"):
            stream = client.next_stream
            await client.send(client.head("/", ("content-length", "3"), method="POST", end=False))
            await client.send_data(body, stream)
            assert (await client.answer(stream)).code == PROTOCOL_ERROR
        assert (await client.ask()).status == 200


async def test_data_behind_the_end_ends_the_connection_of_who_sends_it(
    native: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(native, echo, http2=True) as service:
        client = await connect(service)
        assert (await client.ask()).status == 200
        await client.send_data(b"late", 1)
        assert (await client.until(GOAWAY)).code == STREAM_CLOSED
        await assert_served(service)
    assert [record.getMessage() for record in caplog.records] == [
        "HTTP/2 connection ended with STREAM_CLOSED: frame for a stream that is closed."
    ]


async def test_what_is_no_preface_and_no_request_is_told_so(native: Any, caplog: pytest.LogCaptureFixture) -> None:
    """H10"""
    async with serve(native, echo, http2=True) as service:
        client = HTTP2Client(await service.connect())
        await client.send(b"INVALID CONNECTION PREFACE\r\n\r\nSM\r\n\r\n")
        assert (await client.until(GOAWAY)).code == PROTOCOL_ERROR
        client.client.close()
    assert [record.getMessage() for record in caplog.records] == [
        "HTTP/2 connection ended with PROTOCOL_ERROR: no preface."
    ]


@pytest.mark.parametrize(
    "line",
    [
        b"GET /?x=y z HTTP/1.1",
        b"GET  / HTTP/1.1",
        b"GET / http/1.1",
        b"GET / HTTP 1.1",
        b"GET / x y",
        b"GET a b HTTP/1.1",
        b" GET / HTTP/1.1",
    ],
)
async def test_malformed_request_line_is_answered_in_http1_where_http2_is_on(native: Any, line: bytes) -> None:
    """U2: its sender, or the proxy in front, would not understand frames."""
    async with serve(native, echo, http2=True) as service:
        client = await service.connect()
        await client.send(line + b"\r\nHost: test\r\n\r\n")
        assert (await client.response()).status == 400


async def test_small_messages_that_are_read_are_no_attack(native: Any) -> None:
    async with serve(native, echo, http2=True) as service:
        client = await connect(service)
        await client.send(client.head(method="POST", end=False))
        for _ in range(50):
            await client.send(frame(DATA, 0, 1, b"a") * 1000)
            await client.pong()
        await client.send_data(b"!", 1)
        await client.send(window_update(2**20) + window_update(2**20, 1))
        assert (await client.answer()).body == b"a" * 50_000 + b"!"


async def test_all_that_a_window_lets_through_at_once_is_no_attack(native: Any) -> None:
    """Messages of gRPC that say nothing: more of them than a budget has, before the application has its turn."""
    async with serve(native, echo, http2=True) as service:
        client = await connect(service)
        await client.send(client.head(method="POST", end=False))
        await client.pong()
        await client.send(frame(DATA, 0, 1, bytes(5)) * 13_000)
        await client.send_data(b"!", 1)
        assert (await client.answer()).body == bytes(65_000) + b"!"


async def test_a_window_below_zero_lets_nothing_through(native: Any) -> None:
    """H7: a setting takes back what was used already (RFC 9113 section 6.9.2)."""
    async with serve(native, respond(bytes(200_000)), http2=True) as service:
        client = await connect(service)
        await client.send(window_update(2**20) + client.head())
        await client.pong()
        assert len(client.answers[1].body) == 65535
        await client.send(frame(SETTINGS, payload=struct.pack("!HI", INITIAL_WINDOW_SIZE, 1)))
        # 1 - 65535, and so much is nothing at all.
        await client.send(window_update(65534, 1))
        await client.pong()
        assert len(client.answers[1].body) == 65535
        await client.send(window_update(10, 1))
        await client.pong()
        assert len(client.answers[1].body) == 65545
        # Others have the new one.
        await client.send(client.head())
        await client.pong()
        assert len(client.answers[3].body) == 1
        await client.send(window_update(2**20, 1) + window_update(2**20, 3))
        assert len((await client.answer(1)).body) == len((await client.answer(3)).body) == 200_000


async def test_the_size_of_the_table_changes_between_requests(native: Any) -> None:
    """H4: what the client says it keeps is all that is referred to (RFC 7541 section 4.2)."""
    fields = [(b"x-%d" % number, b"a" * 200) for number in range(20)]
    async with serve(native, respond(headers=fields), http2=True) as service:
        client = await connect(service)
        for size in (4096, 0, 4096, 300, 0, 0, 2**31, 1, 4096):
            await client.send(frame(SETTINGS, payload=struct.pack("!HI", 1, size)))
            await client.until(SETTINGS)
            client.decoder.max_allowed_table_size = size
            for _ in range(2):
                assert (await client.ask()).headers == fields
            assert client.decoder.header_table_size <= size


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(b"\x3f\xe2\x1f", id="above what was announced"),
        pytest.param(b"\x82\x20", id="behind a field"),
        pytest.param(b"\x3f" + b"\x80" * 20 + b"\x01", id="an integer without end"),
        pytest.param(b"\x00\x01a\x81\xff", id="a code that is padding only"),
    ],
)
async def test_games_with_the_table_end_the_connection(native: Any, block: bytes) -> None:
    """H4: RFC 7541, sections 4.2, 5.1, 5.2 and 6.3."""
    async with serve(native, respond(), http2=True) as service:
        client = await connect(service)
        await client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block + b"\x82\x86\x84\x41\x01a"))
        assert (await client.end()).code == COMPRESSION_ERROR
        await assert_served(service)
