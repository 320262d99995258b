"""HTTP/2 from the connection to the application: what is asked, what is answered, and in which version."""

from __future__ import annotations

import asyncio
import ssl
import sys
from typing import Any

import pytest
import trustme

from tests.native.http2_client import PREFACE, HTTP2Client, connect
from tests.protocols.harness import GET, Calls, Client, echo, respond, serve
from tests.utils import wait_until

pytestmark = pytest.mark.anyio


async def test_requests_of_both_versions_come_on_one_port(native: Any) -> None:
    app = Calls()
    async with serve(native, app, http2=True, server_header=True) as service:
        client = await connect(service)
        answer = await client.ask("/a%20b?c", ("cookie", "a=b"), ("accept", "*/*"), ("cookie", "c=d"))
        assert (answer.status, answer.body) == (200, b"ok")
        assert answer.headers == [(b"server", b"uvicorn"), (b"content-length", b"2")]
        assert app.scope == {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "2",
            "server": service.address,
            "client": client.client.sock.getsockname(),
            "scheme": "http",
            "method": "GET",
            "root_path": "",
            "path": "/a b",
            "raw_path": b"/a%20b",
            "query_string": b"c",
            "headers": [(b"host", b"test"), (b"cookie", b"a=b; c=d"), (b"accept", b"*/*")],
            "state": {},
        }
        older = await service.connect()
        assert (await older.ask()).body == b"ok"
        assert [scope["http_version"] for scope in app.scopes] == ["2", "1.1"]


@pytest.mark.parametrize("cut", [1, 3, 20])
async def test_a_preface_comes_in_pieces(native: Any, cut: int) -> None:
    async with serve(native, respond(), http2=True) as service:
        client = HTTP2Client(await service.connect())
        await client.send(PREFACE[:cut])
        await service.accepted()
        await client.send(PREFACE[cut:-1])
        assert await client.client.silent()
        await client.send(PREFACE[-1:])
        (first,) = [await client.read()]
        assert first.stream == 0


@pytest.mark.parametrize("begun", [b"P", b"PRI", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r"])
async def test_less_than_a_preface_has_the_time_of_a_head(native: Any, begun: bytes) -> None:
    """H10"""
    async with serve(native, respond(), http2=True, timeout_request_head=5) as service:
        client = await service.connect()
        await client.send(begun)
        await service.accepted()
        service.pass_time(6)
        assert await client.rest() == b""


@pytest.mark.parametrize("begun", [b"P", b"GE", b"PR"])
async def test_what_is_no_preface_is_a_request_of_old(native: Any, begun: bytes) -> None:
    rest = {b"P": b"OST", b"GE": b"T", b"PR": b"OPFIND"}[begun]
    async with serve(native, respond(), http2=True) as service:
        client = await service.connect()
        await client.send(begun, rest + GET[3:])
        assert (await client.response()).status == 200
        half = await service.connect()
        await half.send(begun)
        await service.accepted(2)
        half.half_close()
        assert await half.rest() == b""


async def test_without_the_setting_nobody_speaks_it(native: Any) -> None:
    async with serve(native, respond()) as service:
        client = await service.connect()
        await client.send(PREFACE)
        assert (await client.response()).status == 505


async def test_many_streams_are_answered_together(native: Any) -> None:
    started: list[str] = []
    released = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        started.append(scope["path"])
        await released.wait()
        await respond(scope["raw_path"])(scope, receive, send)

    async with serve(native, app, http2=True) as service:
        client = await connect(service)
        await client.send(b"".join(client.head(f"/{number}") for number in range(100)))
        await wait_until(lambda: len(started) == 100)
        assert started == [f"/{number}" for number in range(100)]
        released.set()
        for number in range(100):
            assert (await client.answer(2 * number + 1)).body == b"/%d" % number


async def test_a_body_goes_there_and_back(native: Any) -> None:
    async with serve(native, echo, http2=True) as service:
        client = await connect(service)
        body = bytes(range(256)) * 50
        await client.send(client.head("/", ("content-length", str(len(body))), method="POST", end=False))
        await client.send_data(body, 1)
        assert (await client.answer()).body == body


class Encrypted(Client):
    """A client whose bytes are encrypted on their way."""

    def __init__(self, sock: Any, context: ssl.SSLContext) -> None:
        super().__init__(sock)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    async def open(self) -> Encrypted:
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await super().send(self.outgoing.read())
                self.incoming.write(await asyncio.get_running_loop().sock_recv(self.sock, 65536))
            else:
                await super().send(self.outgoing.read())
                return self

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.tls.write(piece)
            await super().send(self.outgoing.read())

    async def receive(self) -> bool:
        while True:
            try:
                data = self.tls.read(65536)
            except ssl.SSLWantReadError:
                self.incoming.write(await asyncio.get_running_loop().sock_recv(self.sock, 65536))
            else:
                self.buffer += data
                return bool(data)


@pytest.fixture
def server_context(tls_certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_certificate.configure_cert(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


@pytest.mark.skipif(sys.platform == "win32", reason="its loops have no start_tls on memory")
@pytest.mark.parametrize(("offered", "version"), [("h2", "2"), ("http/1.1", "1.1")])
async def test_over_tls_the_client_chooses(
    native: Any,
    server_context: ssl.SSLContext,
    tls_ca_ssl_context: ssl.SSLContext,
    offered: str,
    version: str,
) -> None:
    app = Calls()
    tls_ca_ssl_context.set_alpn_protocols([offered])
    async with serve(native, app, http2=True, tls=server_context) as service:
        plain = await service.connect()
        encrypted = await Encrypted(plain.sock, tls_ca_ssl_context).open()
        if version == "2":
            client = await HTTP2Client(encrypted).begin()
            assert (await client.ask()).body == b"ok"
        else:
            assert (await encrypted.ask()).body == b"ok"
        assert (app.scope["http_version"], app.scope["scheme"]) == (version, "https")
