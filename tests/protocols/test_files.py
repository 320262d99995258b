"""Large files on real connections: sent by the kernel where it can, copied where it cannot, at the reader's pace."""

from __future__ import annotations

import asyncio
import errno
import functools
import gc
import hashlib
import logging
import os
import random
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import loops, machines
from tests.protocols import harness
from tests.protocols.harness import GET, GET_10, GET_CLOSE, HEAD, PATIENCE, Service, descriptors, request
from tests.utils import wait_until
from uvicorn.files import sending as files
from uvicorn.files.sending import KERNEL_PIECE, PIECE, FileRange

serve = functools.partial(harness.serve, asgi_extensions="all")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not hasattr(os, "sendfile"), reason="the system has no sendfile"),
]

SIZE = 5_000_003
"""Several times what the buffers of a connection hold, and no multiple of anything."""


anyio_backend = loops.each
http_protocol_cls = machines.each


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "large"
    path.write_bytes(random.Random(1).randbytes(SIZE))
    return path


@pytest.fixture(scope="session")
def digest(large: Path) -> str:
    return hashlib.sha256(large.read_bytes()).hexdigest()


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What each call of `os.sendfile` has sent."""
    sent: list[int] = []
    sendfile = os.sendfile

    def counting(target: int, source: int, offset: int, count: int) -> int:
        sent.append(sendfile(target, source, offset, count))
        return sent[-1]

    monkeypatch.setattr(os, "sendfile", counting)
    return sent


def length(size: int) -> tuple[bytes, bytes]:
    return b"content-length", b"%d" % size


class Sender:
    """An application that sends a file, from an open one if `more` is given, and notes how that ended."""

    def __init__(self, path: Path, *headers: tuple[bytes, bytes], **more: Any) -> None:
        self.path = path
        self.headers = headers
        self.more = more
        self.ended: list[BaseException | None] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(self.headers)})
        try:
            if not self.more:
                await send({"type": "http.response.pathsend", "path": str(self.path)})
            else:
                with self.path.open("rb") as file:
                    await send({"type": "http.response.zerocopysend", "file": file, **self.more})
        except BaseException as exc:
            self.ended.append(exc)
            raise
        self.ended.append(None)


@asynccontextmanager
async def stream(service: Service, tls: ssl.SSLContext | None = None) -> AsyncIterator[Any]:
    """A connection as a pair of streams."""
    name = "localhost" if tls else None
    # A client on uvloop that is paused when the end comes loses what it has decrypted and still holds.
    limit = 2 * SIZE if tls else 262144
    if isinstance(service.address, tuple):
        opening = asyncio.open_connection(*service.address, ssl=tls, server_hostname=name, limit=limit)
    else:
        opening = asyncio.open_unix_connection(service.address, ssl=tls, server_hostname=name, limit=limit)
    reader, writer = await opening
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def read_body(reader: asyncio.StreamReader) -> str:
    """The digest of the body of one response, chunked or to the end of the connection."""
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
    body = hashlib.sha256()

    async def take(size: int) -> None:
        while size:
            data = await asyncio.wait_for(reader.read(min(size, 65536)), PATIENCE)
            assert data, f"the connection ended {size} bytes too early"
            body.update(data)
            size -= len(data)

    if b"chunked" in head:
        while size := int(await asyncio.wait_for(reader.readline(), PATIENCE), 16):
            await take(size)
            assert await reader.readline() == b"\r\n"
        assert await reader.readline() == b"\r\n"
    elif b"content-length" in head:
        await take(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
    else:
        body.update(await asyncio.wait_for(reader.read(-1), PATIENCE))
    return body.hexdigest()


# Whole files


@pytest.mark.parametrize("data", [GET, GET_10], ids=["1.1", "1.0"])
@pytest.mark.parametrize("headers", [(length(SIZE),), ()], ids=["length", "none"])
@pytest.mark.parametrize("transport", ["tcp", "unix", "tls"])
async def test_large_file_arrives_as_it_is(
    http_protocol_cls: Any,
    large: Path,
    digest: str,
    kernel: list[int],
    transport: str,
    headers: Any,
    data: bytes,
    tmp_path: Path,
    tls_certificate: Any,
    tls_ca_ssl_context: ssl.SSLContext,
) -> None:
    """By way of the kernel, except over TLS."""
    app = Sender(large, *headers)
    settings: dict[str, Any] = {}
    if transport == "tls":
        settings["tls"] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls_certificate.configure_cert(settings["tls"])
    if transport == "unix":
        settings["uds"] = str(tmp_path / "socket")
    before = descriptors()
    async with serve(http_protocol_cls, app, **settings) as service:
        async with stream(service, tls_ca_ssl_context if transport == "tls" else None) as (reader, writer):
            times = 1 if data is GET_10 else 3
            for _ in range(times):
                writer.write(data)
                assert await read_body(reader) == digest
        assert service.state.total_requests == times
        await service.idle()
    assert app.ended == [None] * times
    assert sum(kernel) == (0 if transport == "tls" else SIZE * times)
    await wait_until(lambda: descriptors() == before)


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted in /proc")
async def test_connection_that_has_sent_a_file_keeps_no_descriptor(
    http_protocol_cls: Any, large: Path, digest: str, kernel: list[int]
) -> None:
    async with serve(http_protocol_cls, Sender(large)) as service, stream(service) as (reader, writer):
        await service.accepted(1)
        before = descriptors()
        for times in (1, 2):
            writer.write(GET)
            assert await read_body(reader) == digest
            await wait_until(lambda: not service.state.tasks)
            assert len(service.state.connections) == 1 and service.state.total_requests == times
            assert descriptors() <= before
    assert sum(kernel) == 2 * SIZE


@pytest.mark.parametrize("size", [1, PIECE - 1, PIECE, PIECE + 1, KERNEL_PIECE, KERNEL_PIECE + 1, 2 * KERNEL_PIECE])
@pytest.mark.parametrize("headers", [True, False], ids=["length", "chunked"])
async def test_sizes_about_those_of_pieces(
    http_protocol_cls: Any, large: Path, kernel: list[int], size: int, headers: bool
) -> None:
    app = Sender(large, *([length(size)] if headers else []), offset=7, count=size)
    expected = hashlib.sha256(large.read_bytes()[7 : 7 + size]).hexdigest()
    async with serve(http_protocol_cls, app) as service, stream(service) as (reader, writer):
        for _ in range(2):
            writer.write(GET)
            assert await read_body(reader) == expected
    assert sum(kernel) == (size * 2 if size > PIECE else 0)


async def test_many_pieces_of_one_file(http_protocol_cls: Any, large: Path, digest: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        with large.open("rb") as file:
            for count, more in [(1, True), (PIECE * 2, True), (3, True), (SIZE, False)]:
                await send({"type": "http.response.zerocopysend", "file": file, "count": count, "more_body": more})

    async with serve(http_protocol_cls, app) as service, stream(service) as (reader, writer):
        writer.write(GET)
        assert await read_body(reader) == digest


async def test_head_and_file_of_one_piece_are_one_write(http_protocol_cls: Any, tmp_path: Path) -> None:
    path = tmp_path / "small"
    path.write_bytes(b"small")
    async with serve(http_protocol_cls, Sender(path, length(5))) as service:
        client = await service.connect()
        await client.send(GET)
        await client.receive()
        assert bytes(client.buffer) == b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nsmall"


async def test_responses_stay_in_order(http_protocol_cls: Any, large: Path, digest: str) -> None:
    """P1: a file, something small, a file, all asked for at once; and the small one also in front of the first."""
    file = Sender(large, length(SIZE))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/file":
            await file(scope, receive, send)
        else:
            await send({"type": "http.response.start", "status": 200, "headers": [length(4)]})
            await send({"type": "http.response.body", "body": b"body"})

    small = hashlib.sha256(b"body").hexdigest()
    paths = ["/small", "/file", "/small", "/small", "/file"]
    async with serve(http_protocol_cls, app) as service, stream(service) as (reader, writer):
        writer.write(b"".join(request("GET", path) for path in paths))
        for path in paths:
            assert await read_body(reader) == (digest if path == "/file" else small)


@pytest.mark.parametrize("way", ["kernel", "copy"])
async def test_file_waits_for_what_is_in_front_of_it(
    http_protocol_cls: Any, large: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the transport is full when the application wants to send it."""
    if way == "copy":
        monkeypatch.setattr(files, "_PLAIN_TRANSPORTS", set())
    front = random.Random(2).randbytes(SIZE)
    paused = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [length(2 * SIZE)]})
        await send({"type": "http.response.body", "body": front, "more_body": True})
        assert service.transport.get_write_buffer_size() > 65536
        sending = send({"type": "http.response.pathsend", "path": str(large)})
        paused.set()
        await sending

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect(receive_buffer=65536)
        await client.send(GET)
        await paused.wait()
        await client.until(b"\r\n\r\n")
        assert await client.exactly(2 * SIZE) == front + large.read_bytes()
        assert service.state.total_requests == 1


@pytest.mark.parametrize("headers", [True, False], ids=["length", "chunked"])
async def test_nothing_comes_between_the_bytes_of_a_file(
    http_protocol_cls: Any, large: Path, digest: str, headers: bool
) -> None:
    """Whatever another task sends meanwhile is refused, and the file arrives."""
    errors: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [length(SIZE)] if headers else []})
        sending = asyncio.create_task(send({"type": "http.response.pathsend", "path": str(large)}))
        await wait_until(lambda: written(service))
        for kind in ("body", "start", "pathsend", "zerocopysend", "trailers", "early_hint"):
            try:
                await send(
                    {"type": f"http.response.{kind}", "body": b"between", "links": [b"</a>"], "path": str(large)}
                )
            except RuntimeError as exc:
                errors.append(str(exc))
        await sending

    def written(service: Service) -> bool:
        # The client reads nothing before the errors are in.
        return bool(service.state.connections) and client_has_head.is_set()

    client_has_head = asyncio.Event()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect(receive_buffer=4096)
        await client.send(GET)
        await client.until(b"\r\n\r\n")
        client_has_head.set()
        await wait_until(lambda: len(errors) == 6)
        if not headers:
            await client.until(b"4c4b43\r\n")
        body = await client.exactly(SIZE)
        assert hashlib.sha256(body).hexdigest() == digest
        if not headers:
            assert await client.exactly(7) == b"\r\n0\r\n\r\n"
    assert errors[0] == "Unexpected ASGI message 'http.response.body' sent, while a file is being sent."
    assert len(set(errors)) == 6


@pytest.mark.parametrize("transport", ["tcp", "tls"])
async def test_access_log_counts_the_bytes_of_files(
    http_protocol_cls: Any,
    large: Path,
    transport: str,
    tls_certificate: Any,
    tls_ca_ssl_context: ssl.SSLContext,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Those that were sent; if the client has left, fewer than there are."""
    caplog.set_level(logging.INFO, "uvicorn.access")
    settings: dict[str, Any] = {"access_log": True, "access_log_format": "%(B)s"}
    if transport == "tls":
        settings["tls"] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls_certificate.configure_cert(settings["tls"])
    client_tls = tls_ca_ssl_context if transport == "tls" else None
    app = Sender(large, length(SIZE))
    async with serve(http_protocol_cls, app, **settings) as service:
        async with stream(service, client_tls) as (reader, writer):
            writer.write(GET)
            await read_body(reader)
            writer.write(HEAD)
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
            writer.write(GET)
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
            writer.transport.pause_reading()
        await service.idle()
    whole, none, part = (int(record.getMessage()) for record in caplog.records)
    assert (whole, none) == (SIZE, 0)
    assert 0 < part <= SIZE


# Slow readers


@pytest.mark.parametrize("transport", ["tcp", "tls"])
async def test_slow_reader_costs_no_memory_and_no_time_of_others(
    http_protocol_cls: Any,
    tmp_path: Path,
    transport: str,
    tls_certificate: Any,
    tls_ca_ssl_context: ssl.SSLContext,
) -> None:
    """The file waits in the file; meanwhile others are served."""
    settings: dict[str, Any] = {}
    if transport == "tls":
        settings["tls"] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls_certificate.configure_cert(settings["tls"])
    client_tls = tls_ca_ssl_context if transport == "tls" else None
    # More than the buffers of both kernels' ends grow to; with holes, so that it takes no room on the disk.
    size = 40_000_000
    path = tmp_path / "huge"
    path.touch()
    os.truncate(path, size)
    file = Sender(path, length(size))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/":
            return await file(scope, receive, send)
        await send({"type": "http.response.start", "status": 200, "headers": [length(0)]})
        await send({"type": "http.response.body"})

    async with (
        serve(http_protocol_cls, app, **settings) as service,
        stream(service, client_tls) as (reader, writer),
        stream(service, client_tls) as (other, others),
    ):
        writer.transport.pause_reading()
        writer.write(GET)
        await wait_until(lambda: service.state.tasks)
        for _ in range(100):
            others.write(request("GET", "/other"))
            assert b"200 OK" in await asyncio.wait_for(other.readuntil(b"\r\n\r\n"), PATIENCE)
        for connection in service.state.connections:
            assert connection.transport.get_write_buffer_size() < 2_000_000  # type: ignore[attr-defined]
        assert file.ended == []
        writer.transport.resume_reading()
        assert await read_body(reader) == hashlib.sha256(bytes(size)).hexdigest()
    assert file.ended == [None]


async def test_pace_is_the_readers(http_protocol_cls: Any, large: Path, digest: str) -> None:
    """A window of a few kilobytes, and pauses: every byte arrives, once."""
    async with serve(http_protocol_cls, Sender(large, length(SIZE))) as service:
        client = await service.connect(receive_buffer=4096)
        await client.send(GET)
        await client.until(b"\r\n\r\n")
        body = hashlib.sha256()
        left = SIZE
        while left:
            data = await client.exactly(min(left, 262144))
            body.update(data)
            left -= len(data)
            await asyncio.sleep(0)
        assert body.hexdigest() == digest


async def test_client_that_says_no_more_still_gets_the_file(http_protocol_cls: Any, large: Path, digest: str) -> None:
    """K5: a half-closed connection is sent the rest."""
    async with serve(http_protocol_cls, Sender(large, length(SIZE))) as service:
        client = await service.connect()
        await client.send(GET)
        client.half_close()
        await client.until(b"\r\n\r\n")
        assert hashlib.sha256(await client.exactly(SIZE)).hexdigest() == digest


# Ends that come too early


@pytest.mark.parametrize("data", [GET, GET_10], ids=["1.1", "1.0"])
@pytest.mark.parametrize("headers", [True, False], ids=["length", "none"])
@pytest.mark.parametrize("way", ["kernel", "copy"])
async def test_file_that_becomes_shorter_breaks_the_response_off(
    http_protocol_cls: Any,
    tmp_path: Path,
    data: bytes,
    headers: bool,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S3: the client must not take what it got for the whole, nor wait for the rest."""
    if way == "copy":
        monkeypatch.setattr(files, "_PLAIN_TRANSPORTS", set())
    path = tmp_path / "shrinking"
    path.write_bytes(bytes(SIZE))
    app = Sender(path, *([length(SIZE)] if headers else []))
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect(receive_buffer=4096)
        await client.send(data)
        await client.until(b"\r\n\r\n")
        os.truncate(path, SIZE - 1000)
        received = 0
        try:
            while await client.receive():
                received += len(client.buffer)
                client.buffer.clear()
        except ConnectionError:
            assert data is GET_10 and not headers
        else:
            assert received < SIZE
            assert data is GET or headers
        await service.idle()
    assert [str(error) for error in app.ended] == ["The file shrank while it was sent."]
    assert "RuntimeError: The file shrank while it was sent." in caplog.text


async def test_file_that_becomes_longer_is_sent_as_it_was(http_protocol_cls: Any, tmp_path: Path) -> None:
    """S3"""
    path = tmp_path / "growing"
    path.write_bytes(bytes(SIZE))
    app = Sender(path, length(SIZE))
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect(receive_buffer=4096)
        await client.send(GET)
        await client.until(b"\r\n\r\n")
        with path.open("ab") as file:
            file.write(b"more")
        assert await client.exactly(SIZE) == bytes(SIZE)
        assert await client.silent()
        await client.send(GET)
        assert await client.rest() == b""
    assert app.ended[0] is None
    assert str(app.ended[1]) == "Response content longer than Content-Length"


@pytest.mark.parametrize("transport", ["tcp", "tls"])
@pytest.mark.parametrize("how", ["reset", "close", "abort"])
async def test_client_that_leaves_ends_the_sending_quietly(
    http_protocol_cls: Any,
    large: Path,
    how: str,
    transport: str,
    tls_certificate: Any,
    tls_ca_ssl_context: ssl.SSLContext,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """CON-07: `send()` returns, as for a body; whether the client or the server has ended the connection."""
    settings: dict[str, Any] = {}
    if transport == "tls":
        settings["tls"] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls_certificate.configure_cert(settings["tls"])
    app = Sender(large, length(SIZE))
    before = descriptors()
    async with serve(http_protocol_cls, app, **settings) as service:
        for number in range(3):
            async with stream(service, tls_ca_ssl_context if transport == "tls" else None) as (reader, writer):
                writer.write(GET)
                await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
                writer.transport.pause_reading()
                if how == "abort":
                    service.transport.abort()
                elif how == "close":
                    writer.close()
                    if transport == "tls" and sys.version_info < (
                        3,
                        11,
                    ):  # waits for the server's word
                        writer.transport.resume_reading()
                else:
                    writer.transport.abort()
                await service.idle()
            assert app.ended == [None] * (number + 1)
    gc.collect()
    await wait_until(lambda: descriptors() == before)
    assert caplog.records == []


async def test_client_that_leaves_while_nobody_reads_is_noticed(
    http_protocol_cls: Any, large: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The transport reads nothing, because much was sent behind the request: only the file can find it out."""
    app = Sender(large, length(SIZE))
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect(receive_buffer=4096)
        await client.send(GET)
        await client.until(b"\r\n\r\n")
        await client.send(GET * 20000)
        await wait_until(lambda: not service.transport.is_reading())
        client.reset()
        await service.idle()
    assert app.ended == [None]
    assert caplog.records == []


@pytest.mark.parametrize("way", ["kernel", "copy"])
async def test_cancelled_sending_breaks_the_response_off(
    http_protocol_cls: Any, large: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No byte of another message takes the place of those that are missing."""
    if way == "copy":
        monkeypatch.setattr(files, "_PLAIN_TRANSPORTS", set())
    cancelled = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [length(SIZE)]})
        try:
            await asyncio.wait_for(send({"type": "http.response.pathsend", "path": str(large)}), 0.05)
        except asyncio.TimeoutError:
            cancelled.set()
        await send({"type": "http.response.body", "body": b"x" * SIZE})

    before = descriptors()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect(receive_buffer=4096)
        await client.send(GET)
        await cancelled.wait()
        received = await client.rest()
        await service.idle()
    assert large.read_bytes().startswith(received.partition(b"\r\n\r\n")[2])
    assert len(received) < SIZE
    await wait_until(lambda: descriptors() == before)


async def test_server_that_stops_finishes_the_file(http_protocol_cls: Any, large: Path, digest: str) -> None:
    """K7"""
    async with serve(http_protocol_cls, Sender(large, length(SIZE))) as service:
        client = await service.connect(receive_buffer=4096)
        await client.send(GET)
        await client.until(b"\r\n\r\n")
        (connection,) = service.state.connections
        connection.shutdown()
        connection.disconnect()  # type: ignore[attr-defined]
        assert hashlib.sha256(await client.exactly(SIZE)).hexdigest() == digest
        assert not await client.receive()


# Where the kernel cannot


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOMEM])
async def test_what_the_kernel_does_not_send_is_copied(
    http_protocol_cls: Any, large: Path, digest: str, number: int, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first byte, or from wherever it gave up."""
    calls: list[int] = []
    sendfile = os.sendfile

    def failing(target: int, source: int, offset: int, count: int) -> int:
        calls.append(offset)
        if len(calls) > after:
            raise OSError(number, os.strerror(number))
        return sendfile(target, source, offset, count)

    monkeypatch.setattr(os, "sendfile", failing)
    async with serve(http_protocol_cls, Sender(large)) as service, stream(service) as (reader, writer):
        writer.write(GET)
        assert await read_body(reader) == digest
    assert len(calls) == after + 1


async def test_without_a_spare_descriptor_files_are_copied(
    http_protocol_cls: Any, large: Path, digest: str, kernel: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def dup(descriptor: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async with serve(http_protocol_cls, Sender(large)) as service, stream(service) as (reader, writer):
        with monkeypatch.context() as context:  # uvloop, too, needs it to start and to end
            context.setattr(files, "_duplicate", dup)
            writer.write(GET)
            assert await read_body(reader) == digest
    assert kernel == []


async def test_file_that_is_on_disk_only_is_read_in_a_thread(
    http_protocol_cls: Any, large: Path, digest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_PLAIN_TRANSPORTS", set())
    monkeypatch.setattr(files, "_is_cached", lambda descriptor, position: False)
    async with serve(http_protocol_cls, Sender(large)) as service, stream(service) as (reader, writer):
        writer.write(GET)
        assert await read_body(reader) == digest


async def test_file_that_cannot_be_read_breaks_the_response_off(
    http_protocol_cls: Any, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application gets the system's error, and the client a response that is not whole."""
    monkeypatch.setattr(files, "_PLAIN_TRANSPORTS", set())
    pread = os.pread

    def failing(descriptor: int, size: int, offset: int) -> bytes:
        if offset > PIECE:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", failing)
    app = Sender(large, length(SIZE))
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        received = await client.rest()
    assert len(received.partition(b"\r\n\r\n")[2]) == 2 * PIECE
    (error,) = app.ended
    assert isinstance(error, OSError) and error.errno == errno.EIO


@pytest.mark.parametrize("data", [GET_CLOSE, HEAD], ids=["GET", "HEAD"])
async def test_sendfile_leaves_the_transport_as_it_was(http_protocol_cls: Any, large: Path, data: bytes) -> None:
    """Its buffer has its limits again."""
    limits: list[tuple[int, int]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        transport = service.transport
        limits.append(transport.get_write_buffer_limits())
        await Sender(large, length(SIZE))(scope, receive, send)
        limits.append(transport.get_write_buffer_limits())

    async with serve(http_protocol_cls, app) as service, stream(service) as (reader, writer):
        writer.write(data)
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        if data is not HEAD:
            await asyncio.wait_for(reader.readexactly(SIZE), PATIENCE)
        await wait_until(lambda: len(limits) == 2)
    assert limits[0] == limits[1]


# Ranges


def test_range_is_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "ten"
    path.write_bytes(b"0123456789")
    with path.open("rb") as file:
        cases = {(0, None): 10, (3, None): 7, (3, 4): 4, (3, 99): 7, (10, None): 0, (11, 5): 0, (0, 0): 0}
        for (offset, count), left in cases.items():
            assert FileRange(file.fileno(), offset, count).left == left
