"""What is asked for while large responses are on their way does not wait for them: counted in bytes, not in time."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections import Counter
from typing import Any

import pytest

from tests.native.http2_client import INITIAL_WINDOW_SIZE, HTTP2Client, window_update
from tests.native.test_http2 import Encrypted
from tests.native.test_http2 import server_context as server_context  # a fixture
from tests.process import ROOT
from tests.protocols.harness import Calls, respond, serve
from tests.utils import turns, wait_until

pytestmark = pytest.mark.anyio

LARGEST = 2**31 - 1
LARGE = bytes(4_000_000)
DOWNLOADS = 8

IN_FRONT = 640 * 1024
"""Bytes of other responses that may stand in front of an answer: those of a write, and what the kernel has on both
sides. It would be megabytes if the kernel took as much as it can."""


async def app(scope: Any, receive: Any, send: Any) -> None:
    await respond(LARGE if scope["path"] == "/large" else b"small")(scope, receive, send)


async def at_rest(client: HTTP2Client, calls: Calls) -> None:
    """Ask for large responses, and read none of them, until no more of them can leave."""
    await client.send(window_update(2**30), *(client.head("/large") for _ in range(DOWNLOADS)))
    await wait_until(lambda: len(calls.scopes) == DOWNLOADS)
    await turns()


async def in_front(client: HTTP2Client, stream: int) -> int:
    """Bytes of other bodies that come before the whole answer, those apart that are here."""
    before = sum(len(answer.body) for answer in client.answers.values()) + len(client.client.buffer)
    answer = await client.answer(stream)
    assert answer.body == b"small"
    return sum(len(answer.body) for answer in client.answers.values()) - before - len(b"small")


async def connect_tls(service: Any, context: ssl.SSLContext) -> HTTP2Client:
    context.set_alpn_protocols(["h2"])
    plain = await service.connect(receive_buffer=65536)
    return await HTTP2Client(await Encrypted(plain.sock, context).open()).begin({INITIAL_WINDOW_SIZE: LARGEST})


@pytest.mark.parametrize("encrypted", [False, pytest.param(True, id="tls")])
async def test_little_stands_in_front_of_a_small_answer(
    native: Any, server_context: ssl.SSLContext, tls_ca_ssl_context: ssl.SSLContext, encrypted: bool
) -> None:
    """A client that reads nothing for a while: whatever was let go cannot be overtaken."""
    if encrypted and sys.platform == "win32":
        pytest.skip("its loops have no start_tls on memory")
    calls = Calls(app)
    async with serve(native, calls, http2=True, tls=server_context if encrypted else None) as service:
        if encrypted:
            client = await connect_tls(service, tls_ca_ssl_context)
        else:
            plain = await service.connect(receive_buffer=65536)
            client = await HTTP2Client(plain).begin({INITIAL_WINDOW_SIZE: LARGEST})
        await at_rest(client, calls)
        stream = client.next_stream
        await client.send(client.head("/small"))
        # It is asked although nothing can be written.
        await wait_until(lambda: len(calls.scopes) == DOWNLOADS + 1)
        assert await in_front(client, stream) < IN_FRONT
        # And again, while much is under way.
        stream = client.next_stream
        await client.send(client.head("/small"))
        assert await in_front(client, stream) < IN_FRONT


@pytest.mark.deep
async def test_who_takes_nothing_is_not_asked_for_ever(native: Any) -> None:
    """Answers without a body stand in no order, so they are few: then nothing is read."""
    calls = Calls(app)
    async with serve(native, calls, http2=True, timeout_write=0) as service:  # a busy machine takes a minute for it
        plain = await service.connect(receive_buffer=4096)
        client = await HTTP2Client(plain).begin({INITIAL_WINDOW_SIZE: LARGEST})
        await client.send(window_update(2**30) + client.head("/large"))
        unsent, blocked = b"", 0
        while blocked < 50 and len(calls.scopes) < 20_000:
            unsent = unsent or b"".join(client.head(method="HEAD") for _ in range(20))
            try:
                unsent = unsent[plain.sock.send(unsent) :]
                blocked = 0
            except BlockingIOError:
                blocked += 1
            await turns()
        asked = len(calls.scopes)
        assert 100 < asked < 20_000
        await turns()
        assert len(calls.scopes) == asked


READER = """
import socket, struct, sys
sys.path.insert(0, sys.argv[2])
from tests.native.http2_client import *
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as sock:
    fields = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "test")]
    ask = frame(HEADERS, END_HEADERS | END_STREAM, 1, hpack.Encoder().encode(fields))
    sock.sendall(PREFACE + settings({INITIAL_WINDOW_SIZE: 2**31 - 1}) + window_update(2**30) + ask)
    left = int(sys.argv[3])
    while left > 0:
        left -= len(sock.recv(2**20))
"""


async def test_an_application_that_always_has_more_takes_turns(native: Any) -> None:
    """A client that takes everything at once never makes it wait: others have their turns, requests beside it too."""
    piece, count = bytes(65536), 1000
    loop = asyncio.get_running_loop()
    sent: Counter[int] = Counter()
    turn, over = 0, False

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        if not over:
            loop.call_soon(next_turn)

    async def sending(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for left in range(count, 0, -1):
            await send({"type": "http.response.body", "body": piece, "more_body": left > 1})
            sent[turn] += len(piece)

    async with serve(native, sending, http2=True) as service:
        loop.call_soon(next_turn)
        arguments = [str(service.address[1]), str(ROOT), str(len(piece) * count)]
        reader = await asyncio.create_subprocess_exec(sys.executable, "-c", READER, *arguments)
        assert await reader.wait() == 0
        over = True
    assert sum(sent.values()) == len(piece) * count
    # What is written in one turn, what waits behind it, and two pieces around them.
    assert max(sent.values()) <= (256 + 64 + 64 + 2 * 64) * 1024
