"""How far a connection is read ahead of its application: a client that sends faster than it is answered has to wait.

What counts is how much a client could send, not what the process weighs.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from typing import Any

import pytest
import trustme

from tests import loops, machines
from tests.protocols.harness import GET, PATIENCE, Client, Service, request, respond, serve
from tests.utils import wait_until

pytestmark = pytest.mark.anyio


anyio_backend = loops.each
http_protocol_cls = machines.each


AHEAD = 1024 * 1024
"""Bytes a client may be ahead of its answers: the high-water mark, one read, and what the system keeps of a socket with
small buffers, with room to spare. Unbounded it is many times as much."""


class Flood:
    """Sends the same bytes again and again, whenever the connection takes some."""

    def __init__(self, client: Client, data: bytes) -> None:
        self.client = client
        self.data = memoryview(data * (1 + 262144 // len(data)))
        self.period = len(data)
        self.sent = 0

    def push(self) -> bool:
        """Send what is taken now; whether that was anything."""
        before = self.sent
        try:
            while True:
                self.sent += self.client.sock.send(self.data[self.sent % self.period :])
        except BlockingIOError:
            return self.sent > before

    async def push_until_it_blocks(self) -> int:
        """Send for as long as something is taken at least once in many turns of the loop; how much that was."""
        idle = 0
        while idle < 50:
            idle = 0 if self.push() else idle + 1
            assert self.sent < 16 * AHEAD, "there is no end to what is read"
            await asyncio.sleep(0.001)
        return self.sent


async def narrow(service: Service, busy: bool = False) -> Client:
    """A client of whose traffic the system keeps little; `busy`: with requests behind it."""
    client = await service.connect()
    await wait_until(lambda: service.state.connections)
    service.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32768)
    for _ in range(2 * busy):
        await client.ask(request("GET", "/ready"))
    return client


class Gate:
    """An application that answers when it is told to, but for those that ask whether the server is ready."""

    def __init__(self) -> None:
        self.entered = 0
        self.open = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/ready":
            self.entered += 1
            await self.open.wait()
        await respond()(scope, receive, send)


@pytest.mark.parametrize("busy", [False, True], ids=["first", "busy"])
async def test_reading_stops_behind_a_request_that_waits(http_protocol_cls: Any, busy: bool) -> None:
    app = Gate()
    async with serve(http_protocol_cls, app) as service:
        client = await narrow(service, busy)
        flood = Flood(client, GET)
        assert await flood.push_until_it_blocks() < AHEAD
        assert app.entered == 1
        app.open.set()
        await client.response()


async def test_reading_of_an_encrypted_connection_stops_behind_a_request_that_waits(
    http_protocol_cls: Any, tls_certificate: trustme.LeafCert, tls_ca_ssl_context: ssl.SSLContext
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_certificate.configure_cert(context)
    app = Gate()
    async with serve(http_protocol_cls, app, tls=context) as service:
        host, port = service.address[:2]
        _, writer = await asyncio.open_connection(host, port, ssl=tls_ca_ssl_context, server_hostname="localhost")
        await wait_until(lambda: service.state.connections)
        for end in (writer.transport, service.transport):
            end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
            end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32768)
        writer.transport.set_write_buffer_limits(0)
        sent, data, idle = 0, GET * 1000, 0
        while idle < 50:
            if writer.transport.get_write_buffer_size():
                idle += 1
            else:
                idle = 0
                writer.write(data)
                sent += len(data)
            assert sent < 16 * AHEAD, "there is no end to what is read"
            await asyncio.sleep(0.001)
        # Both ends keep more here: what is encrypted, and what is not.
        assert sent < 3 * AHEAD
        writer.transport.abort()


@pytest.mark.no_cover
@pytest.mark.parametrize("turns", [0, 1])
@pytest.mark.parametrize("busy", [False, True], ids=["first", "busy"])
async def test_client_that_pipelines_faster_than_it_is_answered_is_never_far_ahead(
    http_protocol_cls: Any, busy: bool, turns: int
) -> None:
    """However many exchanges have made room for one request each: every one of them let a whole read in."""
    answered = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal answered
        for _ in range(turns):
            await asyncio.sleep(0)
        answered += scope["path"] != "/ready"
        await respond()(scope, receive, send)

    data = request("GET", "/", f"x-fill: {'x' * 80}")
    async with serve(http_protocol_cls, app) as service:
        client = await narrow(service, busy)
        flood = Flood(client, data)
        reading = asyncio.ensure_future(client.rest())
        while answered < 500:
            flood.push()
            assert flood.sent - answered * len(data) < AHEAD
            await asyncio.sleep(0)
        # And all that was sent is answered.
        whole = flood.sent // len(data)
        await wait_until(lambda: answered >= whole)
        client.half_close()
        received = await asyncio.wait_for(reading, PATIENCE)
        assert received.count(b"HTTP/1.1 200 OK\r\n") == whole


@pytest.mark.parametrize("busy", [False, True], ids=["first", "busy"])
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(request("GET", "/", f"x-fill: {'x' * 100_000}"), id="large-heads"),
        pytest.param(request("POST", "/", body=b"x" * 10_000), id="bodies"),
        pytest.param(request("POST", "/", body=b"x" * 300_000), id="large-bodies"),
    ],
)
async def test_whatever_is_pipelined_is_read_in_the_end(http_protocol_cls: Any, data: bytes, busy: bool) -> None:
    """A head or a body that is not complete is read on, whatever stands in front of it."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0)
        if scope["method"] == "POST" and scope["path"] == "/":
            length, more = 0, True
            while more:
                message = await receive()
                length, more = length + len(message["body"]), message["more_body"]
            await respond(b"%d" % length)(scope, receive, send)
        else:
            await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        client = await narrow(service, busy)
        sending = asyncio.ensure_future(client.send(data * 12))
        for _ in range(12):
            assert (await client.response()).status == 200
        await sending
        assert (await client.ask(request("GET", "/ready"))).status == 200


async def test_body_that_is_not_read_does_not_hold_up_what_is_behind_it(http_protocol_cls: Any) -> None:
    """Each is dropped in its turn, though reading had stopped."""
    app = Gate()
    async with serve(http_protocol_cls, app) as service:
        client = await narrow(service)
        sending = asyncio.ensure_future(client.send(request("POST", body=b"x" * 200_000) * 10))
        await wait_until(lambda: app.entered)
        app.open.set()
        for _ in range(10):
            assert (await client.response()).status == 200
        await sending
        assert (await client.ask()).status == 200


async def test_upgrade_behind_a_full_pipeline_is_read_on(http_protocol_cls: Any, ws_protocol_cls: Any) -> None:
    entered, go = asyncio.Event(), asyncio.Event()
    texts: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            entered.set()
            await go.wait()
            await respond()(scope, receive, send)
            return
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            texts.append(message["text"])
        assert message["code"] == 1000

    handshake = request(
        "GET",
        "/",
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    )
    frame = b"\x81\xfe\x27\x10\0\0\0\0" + b"x" * 10_000
    close = b"\x88\x82\0\0\0\0\x03\xe8"
    async with serve(http_protocol_cls, app, ws=ws_protocol_cls) as service:
        client = await narrow(service)
        sending = asyncio.ensure_future(client.send(GET * 3 + handshake + frame * 50 + close))
        await entered.wait()
        await client.silent()  # as much was read as will be
        go.set()
        for _ in range(3):
            assert (await client.response()).status == 200
        assert (await client.response()).status == 101
        await sending
        assert (await client.exactly(4)) == b"\x88\x02\x03\xe8"
        await service.idle()
    assert texts == ["x" * 10_000] * 50


# The client's end, while reading has stopped


FULL = GET * 4000
"""More than is kept, and less than fits between a client and a server: an end behind it can be seen."""


async def hear(receive: Any, heard: list[str]) -> None:
    """Read a request to its end, then wait for what comes."""
    while (message := await receive())["type"] == "http.request" and message["more_body"]:
        pass
    heard.append((await receive())["type"])


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of an end that was not read")


@linux_only
@pytest.mark.parametrize("busy", [False, True], ids=["first", "busy"])
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_application_hears_that_a_client_with_a_full_pipeline_has_gone(
    http_protocol_cls: Any, how: str, busy: bool
) -> None:
    heard: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/ready":
            await hear(receive, heard)
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        for _ in range(2 * busy):
            await client.ask(request("GET", "/ready"))
        await client.send(FULL)
        await client.silent()
        assert not heard
        getattr(client, how)()
        await wait_until(lambda: heard)
        await service.idle()
    assert set(heard) == {"http.disconnect"}


@linux_only
async def test_failure_of_another_request_keeps_no_end_from_being_heard(http_protocol_cls: Any) -> None:
    heard: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/fail":
            raise RuntimeError("on purpose")
        await hear(receive, heard)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(FULL)
        await client.silent()
        assert (await (await service.connect()).ask(request("GET", "/fail"))).status == 500
        client.close()
        await wait_until(lambda: heard)
    assert heard == ["http.disconnect"]


@linux_only
async def test_application_hears_that_an_encrypted_client_with_a_full_pipeline_has_gone(
    http_protocol_cls: Any, tls_certificate: trustme.LeafCert, tls_ca_ssl_context: ssl.SSLContext
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_certificate.configure_cert(context)
    heard: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await hear(receive, heard)

    async with serve(http_protocol_cls, app, tls=context) as service:
        host, port = service.address[:2]
        _, writer = await asyncio.open_connection(host, port, ssl=tls_ca_ssl_context, server_hostname="localhost")
        writer.write(FULL)
        await wait_until(lambda: service.state.tasks)
        for _ in range(20):
            await asyncio.sleep(0.001)
        writer.transport.abort()
        await wait_until(lambda: heard)
    assert heard == ["http.disconnect"]


@linux_only
@pytest.mark.parametrize("busy", [False, True], ids=["first", "busy"])
async def test_pipeline_of_a_client_that_has_ended_is_answered_to_its_end(http_protocol_cls: Any, busy: bool) -> None:
    """It has nothing more to send, and reads: what it sent before its end is not lost."""
    heard: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/wait":
            await hear(receive, heard)
        await respond()(scope, receive, send)

    count = 100
    async with serve(http_protocol_cls, app) as service:
        client = await narrow(service, busy)
        pipeline = request("GET", "/", f"x-fill: {'x' * 1000}") * count
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * len(pipeline))
        await client.send(request("GET", "/wait") + pipeline)
        assert not heard
        client.half_close()
        received = await client.rest()
    assert heard == ["http.disconnect"]
    assert received.count(b"HTTP/1.1 200 OK\r\n") == 1 + count


@pytest.mark.parametrize("size", [10_000, 100_000, 1_000_000])
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_application_hears_that_a_client_with_a_large_body_has_gone(
    http_protocol_cls: Any, how: str, size: int
) -> None:
    """Reading stopped for the body, and goes on when that was taken."""
    heard: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        heard.append("body")
        heard.append((await receive())["type"])

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request("POST", "/", body=b"x" * size))
        await wait_until(lambda: heard)
        getattr(client, how)()
        await service.idle()
    assert heard == ["body", "http.disconnect"]
