"""What is asked for while large responses are on their way does not wait for them: counted in bytes, not in time."""

from __future__ import annotations

import ssl
import sys
from typing import Any

import pytest

from tests.native.http2_client import INITIAL_WINDOW_SIZE, HTTP2Client, window_update
from tests.native.test_http2 import Encrypted
from tests.native.test_http2 import server_context as server_context  # a fixture
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


async def test_who_takes_nothing_is_not_asked_for_ever(native: Any) -> None:
    """Answers without a body stand in no order, so they are few: then nothing is read."""
    calls = Calls(app)
    async with serve(native, calls, http2=True) as service:
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
