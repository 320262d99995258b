"""Responses arrive whole, though bytes of their client come when the server has ended (RFC 9112 section 9.6)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tests import loops
from tests.protocols.harness import GET, PATIENCE, Service, request, respond, serve
from tests.utils import wait_until
from uvicorn.config import Config
from uvicorn.serving.drain import announce_close

pytestmark = pytest.mark.anyio
anyio_backend = loops.one

LARGE = b"b" * 300_000
ANOTHER = request("GET", "/another", "x: " + "v" * 100)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """One large response; others end the connection as their paths say."""
    path = scope["path"].removeprefix("/")
    if path == "before":
        raise RuntimeError("before the response")
    fields = [(b"connection", b"close")] if path == "application" else []
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    if path == "within":
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        raise RuntimeError("within the response")
    if path != "nothing":
        await send({"type": "http.response.body", "body": LARGE if path == "large" else b"ok"})


def last(how: str) -> bytes:
    """A request whose response is the last."""
    return request("GET", f"/{how}", *(["connection: close"] if how == "client" else []))


def read(first: bytes, late: bytes, address: Any, context: ssl.SSLContext | None) -> bytes:
    """Send `first`, and a moment later `late`, before anything is read; what came until the end of the connection."""
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(socket.create_connection(address[:2], timeout=PATIENCE))
        if context is not None:
            client = stack.enter_context(context.wrap_socket(client, server_hostname="localhost"))
        client.sendall(first)
        time.sleep(0.1)
        if late:
            client.sendall(late)
            time.sleep(0.1)
        answer = bytearray()
        while piece := client.recv(65_536):
            answer += piece
        return bytes(answer)


async def answer_to(service: Service, first: bytes, late: bytes = b"", context: ssl.SSLContext | None = None) -> bytes:
    ask = partial(read, first, late, service.address, context)
    return await asyncio.get_running_loop().run_in_executor(None, ask)


@dataclass
class Ends:
    """The contexts of server and client, if they encrypt."""

    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None


@pytest.fixture
def encrypt(tls_certificate_key_and_chain_path: str, tls_ca_ssl_context: ssl.SSLContext) -> Callable[[str], Ends]:
    """Makes the contexts for an engine of TLS; for "plain" there are none."""

    def contexts(engine: str) -> Ends:
        if engine == "plain":
            return Ends()
        if engine == "rustls":
            pytest.importorskip("uvicorn._native")
        config = Config(app, tls=engine, ssl_certfile=tls_certificate_key_and_chain_path)
        config.load()
        return Ends(config.ssl, tls_ca_ssl_context)

    return contexts


@pytest.mark.parametrize(
    ("engine", "when", "how"),
    [
        *(("plain", "behind", how) for how in ("application", "client", "before", "within", "nothing")),
        ("rustls", "behind", "before"),
        ("openssl", "behind", "client"),
        *((engine, "late", "application") for engine in ("plain", "rustls", "openssl")),
    ],
)
async def test_responses_are_complete_though_requests_follow_the_last(
    http_protocol_cls: Any, encrypt: Callable[[str], Ends], engine: str, when: str, how: str
) -> None:
    """More than one read of requests behind the last is there, or one comes when the server has ended its side."""
    ends = encrypt(engine)
    first = request("GET", "/large") + last(how)
    more = (ANOTHER * 600, b"") if when == "behind" else (b"", ANOTHER)
    async with serve(http_protocol_cls, app, tls=ends.server) as service:
        answer = await answer_to(service, first + more[0], more[1], ends.client)
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert LARGE in rest
    assert answer.count(b"HTTP/1.1 ") == (1 if how == "nothing" else 2)


@pytest.mark.parametrize("engine", ["plain", "rustls", "openssl"])
async def test_the_last_response_is_complete_though_a_request_comes_while_it_is_read(
    http_protocol_cls: Any, encrypt: Callable[[str], Ends], engine: str
) -> None:
    ends = encrypt(engine)
    async with serve(http_protocol_cls, app, tls=ends.server) as service:
        answer = await answer_to(service, request("GET", "/large", "connection: close"), ANOTHER, ends.client)
    assert LARGE in answer


@pytest.mark.parametrize("engine", ["plain", "rustls"])
async def test_a_response_is_complete_though_a_request_comes_too_late(
    http_protocol_cls: Any, encrypt: Callable[[str], Ends], engine: str
) -> None:
    """The time for another request is over before the response is read."""
    ends = encrypt(engine)
    async with serve(http_protocol_cls, app, tls=ends.server, timeout_keep_alive=0) as service:
        answer = await answer_to(service, request("GET", "/large"), ANOTHER, ends.client)
    assert LARGE in answer


@pytest.mark.parametrize(("when", "sends"), [("announced", False), ("announced", True), ("lingers", True)])
async def test_server_that_stops_waits_no_longer_than_a_second(
    http_protocol_cls: Any, when: str, sends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if more of a body is to come, and though a byte comes now and then, which would take `LINGER_SECONDS`."""
    monkeypatch.setattr("uvicorn.rules.limits.LINGER_SECONDS", 3600.0)
    monkeypatch.setattr("uvicorn.rules.limits.LAST_REQUEST_SECONDS", 0.2)
    async with serve(http_protocol_cls, respond()) as service:
        client = await service.connect()
        await service.accepted()
        fields = ["content-length: 10000000"]
        if when == "announced":
            announce_close(service.state.connections)
        else:
            fields.append("connection: close")
        await client.send(request("POST", "/", *fields) + b"x")
        assert (await client.rest()).endswith(b"ok")
        for connection in list(service.state.connections):
            connection.shutdown()
        now = asyncio.get_running_loop().time
        until = now() + PATIENCE
        while sends and service.state.connections:
            with contextlib.suppress(ConnectionError):
                await client.send(b"x")
            await asyncio.sleep(0.02)
            assert now() < until
        await service.idle()


async def test_client_that_goes_on_sending_has_its_time_but_not_for_ever(
    http_protocol_cls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uvicorn.rules.limits.LINGER_SECONDS", 1.0)
    monkeypatch.setattr("uvicorn.rules.limits.LAST_REQUEST_SECONDS", 0.3)
    async with serve(http_protocol_cls, respond()) as service:
        now = asyncio.get_running_loop().time
        client = await service.connect()
        await client.send(last("client") + ANOTHER)
        assert (await client.rest()).endswith(b"ok")
        ended = now()
        while service.state.connections:
            with contextlib.suppress(ConnectionError):
                await client.send(b"x")
            await asyncio.sleep(0.02)
            assert now() < ended + PATIENCE
        assert now() > ended + 0.9


@pytest.mark.parametrize("leaves", [True, False])
async def test_client_is_let_go_when_it_ends_its_side_or_after_its_time(
    http_protocol_cls: Any, leaves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uvicorn.rules.limits.LAST_REQUEST_SECONDS", 3600.0 if leaves else 0.2)
    async with serve(http_protocol_cls, respond()) as service:
        client = await service.connect()
        await client.send(last("client"))
        assert (await client.rest()).endswith(b"ok")
        assert len(service.state.connections) == 1
        if leaves:
            client.close()
        await service.idle()


HUGE = b"h" * 20_000_000


async def served_slowly(service: Service, tell: Callable[[], bool]) -> int:
    """Ask for a response that the buffers do not hold, read it once `tell` is true, and return its length."""
    client = await service.connect(receive_buffer=65_536)
    await client.send(last("client"))
    await client.until(b"\r\n\r\n")
    await wait_until(tell)
    await client.send(ANOTHER)
    return len(await client.rest())


async def test_client_that_still_reads_is_not_cut_off(http_protocol_cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a client that only has to leave is not that of one with most of a response still to read."""
    monkeypatch.setattr("uvicorn.rules.limits.LAST_REQUEST_SECONDS", 0.1)
    monkeypatch.setattr("uvicorn.rules.limits.LINGER_SECONDS", 0.1)
    async with serve(http_protocol_cls, respond(HUGE)) as service:
        now = asyncio.get_running_loop().time
        until = now() + 0.5
        assert await served_slowly(service, lambda: now() > until) == len(HUGE)
        await service.idle()


@pytest.mark.parametrize("length", [3_000_000, 20_000_000], ids=["kernel", "process"])
async def test_client_that_reads_nothing_of_the_last_response_is_let_go(
    http_protocol_cls: Any, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uvicorn.rules.limits.LAST_REQUEST_SECONDS", 0.1)
    async with serve(http_protocol_cls, respond(b"h" * length), timeout_write=0.5) as service:
        client = await service.connect(receive_buffer=65_536)
        await client.send(last("client"))
        await client.until(b"\r\n\r\n")
        await service.idle()


@pytest.mark.parametrize("ended", [False, True], ids=["idle", "half-closed"])
async def test_client_that_reads_nothing_is_let_go_whatever_it_has_ended(http_protocol_cls: Any, ended: bool) -> None:
    """Also if no writer was paused for the output that waits."""
    async with serve(http_protocol_cls, respond(HUGE), timeout_write=0.5, timeout_keep_alive=1) as service:
        client = await service.connect(receive_buffer=65_536)
        await service.accepted()
        service.transport.set_write_buffer_limits(high=2 * len(HUGE))
        await client.send(GET)
        await client.until(b"\r\n\r\n")
        if ended:
            client.sock.shutdown(socket.SHUT_WR)
        await service.idle()
