"""Clients that do not read their responses: they have a minute, and again whenever they take something."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests import loops, machines
from tests.protocols.harness import GET, GET_CLOSE, Client, Service, descriptors, respond, serve
from tests.utils import turns, wait_until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="other systems count, and buffer, differently"),
]

BUFFER = 8192
"""Bytes that each end's kernel is asked to keep; it keeps a few times as many."""

LATE = "Client does not read its response, aborting the connection (timeout_write)."


anyio_backend = loops.each
http_protocol_cls = machines.each


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger="uvicorn.error")
    return caplog


class Stream:
    """An application that streams for ever, until it hears that the client is gone."""

    def __init__(self) -> None:
        self.sent = 0
        self.heard: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        watching = asyncio.ensure_future(receive())
        await send({"type": "http.response.start", "status": 200})
        with contextlib.suppress(OSError):
            while not watching.done():
                await send({"type": "http.response.body", "body": bytes(16384), "more_body": True})
                self.sent += 1
        self.heard.append((await watching)["type"])


@contextlib.asynccontextmanager
async def small(protocol: Any, app: Any, **settings: Any) -> AsyncIterator[Service]:
    """A server whose kernel keeps little for each client."""
    async with serve(protocol, app, **settings) as service:
        for sock in service.listener.sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        yield service


async def connect(service: Service) -> Client:
    return await service.connect(receive_buffer=BUFFER)


async def stalled(service: Service) -> None:
    """Wait until the client would have to read for the server to go on."""
    await wait_until(lambda: service.state.connections and service.transport.get_write_buffer_size())
    size = -1
    while size != service.transport.get_write_buffer_size():
        size = service.transport.get_write_buffer_size()
        await asyncio.sleep(0.02)


async def dropped(service: Service) -> None:
    """Let minutes pass, and wait for the end of the connection. What its system took in the first one counts for it,
    and so does what that has room for by then."""
    for _ in range(4):
        service.pass_time(61)
        await turns()
    await service.idle()


def lines(log: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in log.messages if "does not read" in line]


async def test_client_that_reads_nothing_is_dropped(http_protocol_cls: Any, log: pytest.LogCaptureFixture) -> None:
    app = Stream()
    async with small(http_protocol_cls, app) as service:
        client = await connect(service)
        await client.send(GET)
        await stalled(service)
        service.pass_time(59)
        assert not app.heard and service.state.connections
        await dropped(service)
        assert app.heard == ["http.disconnect"]
        (line,) = lines(log)
        host, port = client.sock.getsockname()
        assert line == f"{host}:{port} - {LATE}"


async def test_client_that_reads_in_time_is_not_dropped(http_protocol_cls: Any, log: pytest.LogCaptureFixture) -> None:
    app = Stream()
    async with small(http_protocol_cls, app) as service:
        client = await connect(service)
        await client.send(GET)
        for _ in range(4):
            await stalled(service)
            service.pass_time(59)
            sent = app.sent
            while app.sent < sent + 10:
                await client.exactly(16384)
        assert not lines(log)
        assert service.state.connections


async def test_client_that_takes_a_little_is_not_dropped(http_protocol_cls: Any, log: pytest.LogCaptureFixture) -> None:
    """240 bytes a second, of what waits on this side and in the kernel; the rest of a closed connection, too."""
    async with small(http_protocol_cls, respond(bytes(1_000_000))) as service:
        client = await connect(service)
        await client.send(GET_CLOSE)
        await client.until(b"\r\n\r\n")
        await stalled(service)
        service.pass_time(10)
        for _ in range(4):
            await client.exactly(60_000)
            service.pass_time(51)
        assert service.state.connections
        await dropped(service)
        assert len(lines(log)) == 1


@pytest.mark.parametrize("data", [GET, GET_CLOSE], ids=["keep-alive", "close"])
@pytest.mark.parametrize("size", [30_000, 1_000_000])
async def test_rest_of_a_complete_response_has_a_deadline(http_protocol_cls: Any, data: bytes, size: int) -> None:
    """The application is done, and the connection would wait for ever to be closed."""
    async with small(http_protocol_cls, respond(bytes(size))) as service:
        client = await connect(service)
        await client.send(data)
        await stalled(service)
        await wait_until(lambda: not service.state.tasks)
        service.pass_time(6)  # it is idle, too
        service.pass_time(53)
        assert service.state.connections
        await dropped(service)
        with pytest.raises(ConnectionResetError):
            await client.rest()


async def test_waiting_for_a_reader_opens_no_descriptor(http_protocol_cls: Any) -> None:
    """Thousands of downloads may be waiting."""
    app = Stream()
    async with small(http_protocol_cls, app) as service:
        client = await connect(service)
        await wait_until(lambda: service.state.connections)
        before = descriptors()
        await client.send(GET)
        await stalled(service)
        assert descriptors() == before


async def test_deadline_can_be_switched_off(http_protocol_cls: Any) -> None:
    app = Stream()
    async with small(http_protocol_cls, app, timeout_write=0) as service:
        client = await connect(service)
        await client.send(GET)
        await stalled(service)
        service.pass_time(1e6)
        await client.exactly(500_000)
        assert not app.heard


async def test_client_that_does_not_read_a_file_is_dropped(
    http_protocol_cls: Any, tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    """The kernel sends it, past the transport. Who takes some of it has his time again."""
    path = tmp_path / "file"
    path.write_bytes(bytes(4_000_000))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4000000")]})
        await send({"type": "http.response.pathsend", "path": str(path)})

    async with small(http_protocol_cls, app, asgi_extensions=["http.response.pathsend"]) as service:
        client = await connect(service)
        await client.send(GET)
        await client.until(b"\r\n\r\n")
        for _ in range(4):
            await client.exactly(200_000)
            service.pass_time(50)
        assert not lines(log) and service.state.tasks
        await dropped(service)
        assert len(lines(log)) == 1


async def test_client_that_does_not_read_over_tls_is_dropped(
    http_protocol_cls: Any,
    tls_certificate: Any,
    tls_ca_ssl_context: ssl.SSLContext,
    log: pytest.LogCaptureFixture,
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_certificate.configure_cert(context)
    app = Stream()
    async with small(http_protocol_cls, app, tls=context) as service:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, service.address)
        _, writer = await asyncio.open_connection(
            sock=sock, ssl=tls_ca_ssl_context, server_hostname="localhost", limit=1024
        )
        writer.write(GET)
        await stalled(service)
        service.pass_time(59)
        await asyncio.sleep(0.01)
        assert not app.heard
        await dropped(service)
        assert app.heard == ["http.disconnect"]
        assert len(lines(log)) == 1
        writer.transport.abort()
