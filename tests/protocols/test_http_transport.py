"""The transport of a connection fails: whatever was asked of it, the connection ends and nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import ssl
import sys
from functools import partial
from typing import Any

import pytest
import trustme

from tests import loops, machines
from tests.protocols.harness import GET, PATIENCE, Client, Service, request, respond, serve
from tests.utils import wait_until

pytestmark = pytest.mark.anyio


anyio_backend = loops.each
http_protocol_cls = machines.each


@pytest.fixture
def tls_server_context(tls_certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_certificate.configure_cert(context)
    return context


class Held:
    """An application that answers, without reading, when it is told to; `streaming`: in pieces."""

    def __init__(self, pieces: int = 1) -> None:
        self.pieces = pieces
        self.entered = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.entered.set()
        await asyncio.wait_for(self.open.wait(), PATIENCE)
        await send({"type": "http.response.start", "status": 200})
        for left in reversed(range(self.pieces)):
            await send({"type": "http.response.body", "body": b"x" * 10_000, "more_body": left > 0})


UPLOAD = b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 8000000\r\n\r\n" + b"x" * 500_000
"""More than is read for an application that does not, of more than is thrown away."""


def sockets() -> int:
    """How many sockets this process has open."""
    if sys.platform != "linux":
        return 0
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return count


async def left_alone(service: Service, before: int) -> None:
    """Nothing remains of any connection."""
    await service.idle()
    await wait_until(lambda: sockets() <= before)


# A client that leaves in the middle of what it has announced


@pytest.mark.parametrize("busy", [False, True], ids=["first", "busy"])
@pytest.mark.parametrize("pieces", [1, 20])
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_client_that_leaves_during_its_upload_leaves_nothing(
    http_protocol_cls: Any, how: str, pieces: int, busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application answers without reading, so the end of the input is seen by nobody."""
    monkeypatch.setattr("uvicorn.rules.limits.LINGER_SECONDS", 3600.0)
    app = Held(pieces)
    async with serve(http_protocol_cls, app) as service:
        before = sockets()
        client = await service.connect()
        if busy:
            app.open.set()
            for _ in range(2):
                await client.ask()
            app.open.clear()
            app.entered.clear()
        sending = asyncio.ensure_future(client.send(UPLOAD))
        await asyncio.wait_for(app.entered.wait(), PATIENCE)
        await client.silent()  # as much was read as will be
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sending
        getattr(client, how)()
        app.open.set()
        await left_alone(service, before)


HANDSHAKE = request(
    "GET",
    "/",
    "connection: upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
)


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_client_that_leaves_during_its_handshake_leaves_nothing(
    http_protocol_cls: Any, ws_protocol_cls: Any, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is refused when it is gone, of which what it has sent behind its handshake keeps the server from hearing."""
    entered, refuse = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        entered.set()
        await asyncio.wait_for(refuse.wait(), PATIENCE)
        await send({"type": "websocket.close"})

    async with serve(http_protocol_cls, app, ws=ws_protocol_cls) as service:
        before = sockets()
        client = await service.connect()
        sending = asyncio.ensure_future(client.send(HANDSHAKE + b"x" * 500_000))
        await asyncio.wait_for(entered.wait(), PATIENCE)
        await client.silent()
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sending
        getattr(client, how)()
        refuse.set()
        await left_alone(service, before)
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_encrypted_client_that_leaves_during_its_upload_leaves_nothing(
    http_protocol_cls: Any, how: str, tls_server_context: ssl.SSLContext, tls_ca_ssl_context: ssl.SSLContext
) -> None:
    app = Held()
    async with serve(http_protocol_cls, app, tls=tls_server_context) as service:
        before = sockets()
        host, port = service.address[:2]
        _, writer = await asyncio.open_connection(host, port, ssl=tls_ca_ssl_context, server_hostname="localhost")
        writer.write(UPLOAD)
        await asyncio.wait_for(app.entered.wait(), PATIENCE)
        if how == "close":
            writer.close()
        else:
            writer.transport.abort()
        app.open.set()
        await left_alone(service, before)


@pytest.mark.skipif(sys.version_info >= (3, 11), reason="asyncio has a deadline for it")
@pytest.mark.parametrize("path", ["http", "websocket"])
async def test_client_that_never_ends_tls_is_let_go(
    http_protocol_cls: Any,
    path: str,
    tls_server_context: ssl.SSLContext,
    tls_ca_ssl_context: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if type(asyncio.get_running_loop()).__module__ == "uvloop":
        pytest.skip("uvloop has a deadline for it")
    monkeypatch.setattr("uvicorn.rules.websocket_limits.CLOSE_TIMEOUT", 0.2)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if path == "websocket":
            await receive()
            await send({"type": "websocket.close"})
        else:
            await respond()(scope, receive, send)

    head = HANDSHAKE if path == "websocket" else request("GET", "/", "connection: close")
    async with serve(http_protocol_cls, app, tls=tls_server_context, timeout_write=0.2) as service:

        def ask() -> ssl.SSLSocket:
            plain = socket.create_connection(service.address[:2], timeout=PATIENCE)
            client = tls_ca_ssl_context.wrap_socket(plain, server_hostname="localhost")
            client.sendall(head)
            while client.recv(10_000):
                pass  # the server has closed its side
            return client

        client = await asyncio.get_running_loop().run_in_executor(None, ask)
        await service.idle()
        client.close()


def answer_to_large_upload(address: tuple[str, int], context: ssl.SSLContext) -> bytes:
    """What a client gets that sends its whole body, 1.6 MB, before it reads; the first pieces come at once."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    answer = bytearray()
    with socket.create_connection(address, timeout=PATIENCE) as client:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                client.sendall(outgoing.read())
                incoming.write(client.recv(65536))
        tls.write(request("POST", "/", "content-length: 1600000"))
        for piece in range(100):
            tls.write(b"x" * 16_000)
            if piece > 7:
                client.sendall(outgoing.read())
        with contextlib.suppress(ssl.SSLZeroReturnError):
            while b"\r\n\r\n" not in answer or len(answer.partition(b"\r\n\r\n")[2]) < 200_000:
                try:
                    answer += tls.read(65536)
                except ssl.SSLWantReadError:
                    incoming.write(client.recv(65536))
    return bytes(answer)


async def test_encrypted_client_that_reads_after_its_upload_gets_the_whole_answer(
    http_protocol_cls: Any, tls_server_context: ssl.SSLContext, tls_ca_ssl_context: ssl.SSLContext
) -> None:
    """The application answers without reading; closing with unread input would reset the connection."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        fields = [(b"content-length", b"200000"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        await send({"type": "http.response.body", "body": b"y" * 200_000})

    async with serve(http_protocol_cls, app, tls=tls_server_context) as service:
        ask = partial(answer_to_large_upload, service.address[:2], tls_ca_ssl_context)
        answer = await asyncio.get_running_loop().run_in_executor(None, ask)
        assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"y" * 200_000)
        await service.idle()


# A transport that raises


class Faulty:
    """A transport of which some methods raise."""

    def __init__(self, transport: asyncio.Transport, failing: set[str], error: Exception) -> None:
        self.transport = transport
        self.failing = failing
        self.error = error

    def __getattr__(self, name: str) -> Any:
        if name in self.failing:
            return self.fail
        return getattr(self.transport, name)

    def fail(self, *args: object) -> None:
        raise self.error


METHODS = [
    "write",
    "write_eof",
    "can_write_eof",
    "close",
    "is_closing",
    "pause_reading",
    "resume_reading",
    "get_write_buffer_size",
]


async def read_and_close(client: Client) -> None:
    """Read to the end, as a client does that has understood that there is no more."""
    try:
        await client.rest()
    finally:
        client.close()


SCENARIOS = {
    "close": request("GET", "/", "connection: close"),
    "idle": GET,
    "refused": b"nonsense\r\n\r\n",
    "upload": UPLOAD,
    "pipeline": request("GET", "/slow", f"x-fill: {'x' * 500}") * 400 + b"nonsense\r\n\r\n",
}


@pytest.mark.parametrize(
    ("hopeless", "error"),
    [pytest.param(False, RuntimeError("closed"), id="aborted"), pytest.param(True, OSError("gone"), id="hopeless")],
)
async def test_transport_that_raises_loses_its_connection(
    http_protocol_cls: Any, hopeless: bool, error: Exception
) -> None:
    """One method after the other; or `abort` as well, and nothing can be done about the socket any more."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/slow":
            await asyncio.sleep(0)
        await respond()(scope, receive, send)

    transports: list[asyncio.Transport] = []
    failing: set[str] = set()

    class Protocol(http_protocol_cls):  # type: ignore[misc]
        def connection_made(self, transport: Any) -> None:
            transports.append(transport)
            super().connection_made(Faulty(transport, failing, error))

    async with serve(Protocol, app, timeout_keep_alive=0) as service:
        for (scenario, data), method in itertools.product(SCENARIOS.items(), METHODS):
            client = await service.connect()
            await wait_until(lambda: service.state.connections)
            failing.update({method, "abort"} if hopeless else {method})
            traffic = [asyncio.ensure_future(client.send(data)), asyncio.ensure_future(read_and_close(client))]
            try:
                await service.idle()
            except AssertionError:
                pytest.fail(f"{method} failed, and left a connection behind ({scenario})")
            transport = transports.pop()
            failing.clear()
            assert hopeless or transport.is_closing(), (method, scenario)
            transport.abort()
            await asyncio.gather(*traffic, return_exceptions=True)
