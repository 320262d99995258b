"""TLS over connections that are accepted, read and written natively: clients whose every byte is in our hands."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import socket
import ssl
import sys
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trustme

from tests import loops, machines
from tests.native.test_transport import Recorder
from tests.protocols.harness import GET, echo, request, respond, serve
from tests.utils import wait_until
from uvicorn.listening import sockets as listening
from uvicorn.listening.acceptor import NativeAcceptor
from uvicorn.tls.connection import TLSConnection

native = pytest.importorskip("uvicorn._native")

anyio_backend = loops.each

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the loop's transports serve here"),
]

http_protocol_cls = machines.each

LARGE = os.urandom(1024) * 4096


@pytest.fixture
def openssl_context(tls_certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = RustlsContext(ssl.PROTOCOL_TLS_SERVER)
    # As the server's own contexts do, also where Python has been told to take every end for a proper one.
    context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    tls_certificate.configure_cert(context)
    return context


class RustlsContext(ssl.SSLContext):
    """A context that leaves its connections to rustls if it has settings for it."""

    rustls: Any = None


def rustls_config(certificate: trustme.LeafCert, **settings: Any) -> Any:
    """Settings of rustls; those that are not given turn something off."""
    pem = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
    defaults = {
        "certificates": [(None, pem, certificate.private_key_pem.bytes())],
        **dict.fromkeys(["password", "suites", "authorities", "revoked", "ticket_keys", "describe"]),
        "alpn": [],
        "min_version": 0x0303,
        "max_version": 0x0304,
        "verify": ssl.CERT_NONE,
        "tickets": "own",
        "serves_unverified": False,
    }
    return native.TLSConfig(**(defaults | settings))


@pytest.fixture(params=["openssl", "rustls"])
def server_context(
    request: pytest.FixtureRequest, openssl_context: ssl.SSLContext, tls_certificate: trustme.LeafCert
) -> ssl.SSLContext:
    """The context of a server, for each engine."""
    if request.param == "rustls":
        openssl_context.rustls = rustls_config(tls_certificate)  # type: ignore[attr-defined]
    return openssl_context


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def client_context(request: pytest.FixtureRequest, tls_ca_ssl_context: ssl.SSLContext) -> ssl.SSLContext:
    tls_ca_ssl_context.minimum_version = tls_ca_ssl_context.maximum_version = request.param
    return tls_ca_ssl_context


class Client:
    """A TLS client on memory: what leaves, and when, is said by the test."""

    def __init__(self, context: ssl.SSLContext, sock: socket.socket) -> None:
        self.sock = sock
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.received = b""
        self.ended: str | None = None

    async def push(self, *, cut: int | None = None) -> None:
        """Send what OpenSSL has written, in pieces of `cut` bytes."""
        loop = asyncio.get_running_loop()
        data = self.outgoing.read()
        step = cut or len(data) or 1
        for start in range(0, len(data), step):
            await loop.sock_sendall(self.sock, data[start : start + step])
            if cut:
                await asyncio.sleep(0)

    async def pull(self) -> bool:
        """Take what the server has sent; false at its end."""
        data = await asyncio.get_running_loop().sock_recv(self.sock, 65536)
        if data:
            self.incoming.write(data)
        else:
            self.incoming.write_eof()
        return bool(data)

    async def open(self, *, cut: int | None = None) -> Client:
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.push(cut=cut)
                await self.pull()
            else:
                await self.push(cut=cut)
                return self

    async def send(self, data: bytes, *, cut: int | None = None) -> None:
        self.tls.write(data)
        await self.push(cut=cut)

    async def read(self, enough: Callable[[bytes], bool] = lambda received: False) -> bytes:
        """What the server sends, until it is `enough` or has ended: `ended` says how."""
        while not enough(self.received):
            try:
                data = self.tls.read(65536)
            except ssl.SSLWantReadError:
                await self.pull()
                continue
            except ssl.SSLZeroReturnError:
                data = b""
            except ssl.SSLError as exc:
                assert isinstance(exc, ssl.SSLEOFError) or exc.reason == "UNEXPECTED_EOF_WHILE_READING"
                self.ended = "cut off"
                break
            if not data:
                self.ended = "close_notify"
                break
            self.received += data
        return self.received

    async def end(self) -> None:
        """Say that nothing follows."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        await self.push()


class Both:
    """A server's protocols and a client's connections."""

    def __init__(self, acceptor: NativeAcceptor, context: ssl.SSLContext) -> None:
        self.acceptor = acceptor
        self.context = context
        self.made: list[Recorder] = []
        self.clients: list[socket.socket] = []

    async def connect(self) -> Client:
        sock = socket.socket()
        sock.setblocking(False)
        self.clients.append(sock)
        await asyncio.get_running_loop().sock_connect(sock, self.acceptor.sockets[0].getsockname())
        return Client(self.context, sock)

    async def open(self) -> tuple[Recorder, Client]:
        client = await (await self.connect()).open()
        await wait_until(lambda: len(self.made) == 1)
        return self.made[0], client


@contextlib.asynccontextmanager
async def recorders(
    server: ssl.SSLContext,
    client: ssl.SSLContext,
    prepare: Callable[[Recorder], None] = lambda recorder: None,
    patience: float = 10,
) -> AsyncIterator[Both]:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))

    def factory() -> Recorder:
        recorder = Recorder()
        prepare(recorder)
        both.made.append(recorder)
        return recorder

    (acceptor,) = await listening.listen([bound], factory, backlog=100, context=server, handshake_timeout=patience)
    assert isinstance(acceptor, NativeAcceptor)
    both = Both(acceptor, client)
    try:
        yield both
    finally:
        acceptor.close()
        for sock in both.clients:
            sock.close()
        for recorder in both.made:
            recorder.transport.abort()
        await acceptor.wait_closed()
        await wait_until(lambda: acceptor.poller.connections == 0)


@pytest.mark.parametrize("cut", [None, 1, 100])
async def test_bytes_arrive_however_records_are_cut(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext, cut: int | None
) -> None:
    async with recorders(server_context, client_context) as both:
        client = await (await both.connect()).open(cut=cut)
        await client.send(b"hello ", cut=cut)
        await client.send(b"there", cut=cut)
        await wait_until(lambda: both.made and both.made[0].received == b"hello there")
        both.made[0].transport.write(b"and back")
        assert await client.read(lambda received: len(received) == 8) == b"and back"


async def test_the_transport_says_how_it_is_encrypted(
    openssl_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    async with recorders(openssl_context, client_context) as both:
        recorder, client = await both.open()
        transport = recorder.transport
        assert isinstance(transport, native.Transport)
        assert transport.get_extra_info("sslcontext") is openssl_context
        assert isinstance(transport.get_extra_info("ssl_object"), ssl.SSLObject)
        assert transport.get_extra_info("cipher") == client.tls.cipher()
        assert transport.get_extra_info("peercert", "not asked for") is None
        assert transport.get_extra_info("compression", "not there") is None
        assert transport.get_extra_info("peername") == client.sock.getsockname()
        assert transport.can_write_eof()


async def test_what_a_program_notes_at_a_connection_goes_with_it(
    openssl_context: ssl.SSLContext, tls_certificate: trustme.LeafCert, client_context: ssl.SSLContext
) -> None:
    describe = functools.partial(TLSConnection, openssl_context)
    openssl_context.rustls = rustls_config(tls_certificate, describe=describe)  # type: ignore[attr-defined]
    async with recorders(openssl_context, client_context) as both:
        recorder, client = await both.open()
        transport = recorder.transport
        connection = transport.get_extra_info("ssl_object")
        connection.transport = transport
        left = weakref.ref(connection)
        del connection
        assert transport.get_extra_info("ssl_object").transport is transport
        client.sock.close()
        await wait_until(lambda: transport.is_closing() and left() is None)
        assert transport.get_extra_info("ssl_object").version() == client.tls.version()


async def test_large_data_both_ways_at_once(server_context: ssl.SSLContext, client_context: ssl.SSLContext) -> None:
    async with recorders(server_context, client_context) as both:
        recorder, client = await both.open()
        recorder.transport.write(LARGE)
        recorder.transport.write(b"end")
        assert "pause" in recorder.told
        sending = asyncio.create_task(client.send(LARGE))
        assert await client.read(lambda received: received.endswith(b"end")) == LARGE + b"end"
        await sending
        await wait_until(lambda: recorder.received == LARGE)
        assert recorder.told[-1] == "resume"
        assert recorder.transport.get_write_buffer_size() == 0


async def test_large_data_leaves_no_objects_behind(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    async with recorders(server_context, client_context) as both:
        recorder, client = await both.open()

        async def download(times: int) -> int:
            for _ in range(times):
                client.received = b""
                recorder.transport.write(LARGE)
                await client.read(lambda received: len(received) == len(LARGE))
            client.received = b""
            gc.collect()
            return sys.getallocatedblocks()

        before = await download(2)
        assert await download(4) - before < 200  # 256 records each


async def test_what_waits_is_bounded_where_nobody_reads(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    async with recorders(server_context, client_context) as both:
        recorder, client = await both.open()
        recorder.transport.pause_reading()
        client.sock.setblocking(False)
        sent = 0
        with pytest.raises(BlockingIOError):
            for _ in range(1000):
                client.tls.write(LARGE[:65536])
                data = client.outgoing.read()
                while data:
                    count = client.sock.send(data)
                    sent += count
                    data = data[count:]
        assert recorder.received == b""
        recorder.transport.resume_reading()
        await wait_until(lambda: len(recorder.received) > sent * 0.9)


async def test_close_sends_everything_and_says_so(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    async with recorders(server_context, client_context) as both:
        recorder, client = await both.open()
        recorder.transport.write(LARGE)
        recorder.transport.close()
        assert await client.read() == LARGE
        assert client.ended == "close_notify"
        await wait_until(lambda: ("lost", None) in recorder.told)


async def test_abort_says_nothing(server_context: ssl.SSLContext, client_context: ssl.SSLContext) -> None:
    async with recorders(server_context, client_context) as both:
        recorder, client = await both.open()
        recorder.transport.abort()
        await client.read()
        assert client.ended == "cut off"


@pytest.mark.parametrize("stays_open", [False, True])
async def test_client_says_that_nothing_follows(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext, stays_open: bool
) -> None:
    def prepare(recorder: Recorder) -> None:
        recorder.stays_open = stays_open

    async with recorders(server_context, client_context, prepare) as both:
        recorder, client = await both.open()
        await client.send(b"last words")
        await client.end()
        await wait_until(lambda: "eof" in recorder.told)
        assert recorder.received == b"last words"
        if stays_open:
            recorder.transport.write(b"answer")
            recorder.transport.close()
        await client.read()
        assert client.received == (b"answer" if stays_open else b"")
        await wait_until(lambda: ("lost", None) in recorder.told)


async def test_client_that_goes_without_a_word_has_not_ended(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    """What it has sent could be cut short (RFC 8446 section 6.1)."""
    async with recorders(server_context, client_context) as both:
        recorder, client = await both.open()
        await client.send(b"half a")
        client.sock.shutdown(socket.SHUT_WR)
        await wait_until(lambda: recorder.told[-1] == ("lost", None))
        assert recorder.received == b"half a"
        assert "eof" not in recorder.told


async def test_bad_record_costs_the_connection(server_context: ssl.SSLContext, client_context: ssl.SSLContext) -> None:
    async with recorders(server_context, client_context) as both:
        recorder, client = await both.open()
        client.tls.write(b"good")
        record = client.outgoing.read()
        await asyncio.get_running_loop().sock_sendall(client.sock, record + record)
        await wait_until(lambda: recorder.told[-1] == ("lost", ssl.SSLError))
        assert recorder.received == b"good"


async def test_plain_words_are_refused_before_a_protocol_is_made(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "uvicorn.error")
    async with recorders(server_context, client_context) as both:
        client = await both.connect()
        await asyncio.get_running_loop().sock_sendall(client.sock, GET)
        await wait_until(lambda: both.acceptor.poller.connections == 0 and caplog.messages)
        assert both.made == []
    assert "Connection lost while it was being set up: " in caplog.text


async def test_handshake_has_its_time(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "uvicorn.error")
    async with recorders(server_context, client_context, patience=0.01) as both:
        silent = [await both.connect() for _ in range(3)]
        for client in silent:
            assert not await client.pull()
    lines = [line.partition(" - ")[2] for line in caplog.messages]
    assert lines == 3 * ["Connection lost while it was being set up: the TLS handshake took too long"]


async def test_closing_gives_handshakes_a_moment(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    async with recorders(server_context, client_context) as both:
        client, silent = await both.connect(), await both.connect()
        await wait_until(lambda: both.acceptor.poller.connections == 2)
        both.acceptor.close()
        await client.open()
        await wait_until(lambda: len(both.made) == 1)
        assert not await silent.pull()
        await both.acceptor.wait_closed()
        await client.send(b"still here")
        await wait_until(lambda: both.made[0].received == b"still here")


@pytest.mark.parametrize("silent", [0, 1])
async def test_nothing_is_left_of_an_acceptor_that_is_closed(server_context: ssl.SSLContext, silent: int) -> None:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    (acceptor,) = await listening.listen([bound], Recorder, backlog=10, context=server_context)
    assert isinstance(acceptor, NativeAcceptor)
    poller = acceptor.poller
    clients = [socket.create_connection(bound.getsockname()) for _ in range(silent)]
    await wait_until(lambda: poller.connections == silent)
    acceptor.close()
    await acceptor.wait_closed()
    left = weakref.ref(acceptor)
    del acceptor
    await wait_until(lambda: gc.collect() >= 0 and left() is None and poller.connections == 0)
    for client in clients:
        client.close()


async def test_context_is_asked_for_each_connection(
    openssl_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    """Whatever a context can be told holds: here a callback for names, and what it raises."""
    asked: list[Any] = []

    def name(connection: ssl.SSLObject, host: str, context: ssl.SSLContext) -> int | None:
        asked.append(host)
        return None if len(asked) == 1 else ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    openssl_context.sni_callback = name
    openssl_context.set_alpn_protocols(["http/1.1"])
    client_context.set_alpn_protocols(["h2", "http/1.1"])
    async with recorders(openssl_context, client_context) as both:
        recorder, _client = await both.open()
        assert recorder.transport.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        with pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
            await (await both.connect()).open()
        assert asked == ["localhost", "localhost"]


async def test_object_class_of_the_context_is_used(
    openssl_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    reads = 0

    class Counting(ssl.SSLObject):
        def read(self, len: int = 1024, buffer: Any = None) -> Any:
            nonlocal reads
            reads += 1
            return super().read(len, buffer) if buffer is not None else super().read(len)

    openssl_context.sslobject_class = Counting
    async with recorders(openssl_context, client_context) as both:
        recorder, client = await both.open()
        await client.send(b"counted")
        await wait_until(lambda: recorder.received == b"counted")
        assert reads
        recorder.transport.close()
        await client.read()
        assert client.ended == "close_notify"


# The HTTP protocols over it.


async def test_request_is_answered_and_secure(
    http_protocol_cls: Any, server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    schemes: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        schemes.append(scope["scheme"])
        await echo(scope, receive, send)

    async with serve(http_protocol_cls, app, tls=server_context) as service:
        client = await encrypted(service, client_context)
        await client.send(request("POST", "/", body=LARGE))
        await client.read(lambda received: received.endswith(LARGE[-100:]) and len(received) > len(LARGE))
        assert client.received.endswith(LARGE)
        assert schemes == ["https"]


async def test_client_that_ends_its_side_is_answered(server_context: ssl.SSLContext, client_context: Any) -> None:
    """And let go, though its end may come in one read with its request."""
    from uvicorn.protocols.http.native_impl import NativeProtocol

    release = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await release.wait()
        await respond(b"late")(scope, receive, send)

    async with serve(NativeProtocol, app, tls=server_context, timeout_keep_alive=3600) as service:
        client = await encrypted(service, client_context)
        await client.send(GET)
        await client.end()
        await wait_until(lambda: service.state.tasks)
        release.set()
        assert (await client.read()).endswith(b"late")
        assert client.ended == "close_notify"


async def test_refusal_is_read_by_a_client_that_still_sends(
    http_protocol_cls: Any, server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    """A reset would take the answer away."""
    async with serve(http_protocol_cls, respond(), tls=server_context) as service:
        client = await encrypted(service, client_context)
        await client.send(b"GET / HTTP/1.1\r\nbroken\r\n\r\n" + LARGE[:200_000])
        assert (await client.read()).startswith(b"HTTP/1.1 400 ")


async def encrypted(service: Any, context: ssl.SSLContext) -> Client:
    plain = socket.socket()
    plain.setblocking(False)
    service.clients.append(plain)
    await asyncio.get_running_loop().sock_connect(plain, service.address)
    return await Client(context, plain).open()
