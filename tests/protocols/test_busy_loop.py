"""A busy event loop costs latency, never a request: deadlines count the time in which a peer could be heard.

Each scenario brings a connection to where one deadline runs. Then the loop is busy until that is over, and longer; at
the end of it the client does what it is waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests import loops, machines
from tests.loops import busy
from tests.protocols.harness import GET, Client, Response, Service, body_of, request, respond, serve
from tests.protocols.websocket_tools import (
    CLOSE,
    PING,
    TEXT,
    Application,
    ServerFrame,
    close_frame,
    echo,
    frame,
    handshake,
    parse_frames,
)
from tests.utils import turns, wait_until
from uvicorn.listening import connection_limit
from uvicorn.listening.acceptor import Checkpoint, WatchedServer
from uvicorn.protocols.websockets import close_handshake, peer_end
from uvicorn.rules import limits as http_limits
from uvicorn.rules import websocket_limits
from uvicorn.serving.drain import Drain, Latch

pytestmark = pytest.mark.anyio

anyio_backend = loops.each
http_protocol_cls = machines.each
reader = machines.readers

TIME = 0.2
"""Seconds that each deadline leaves a client."""


def sends(client: Client, data: bytes) -> Callable[[], object]:
    """What a client does without the loop."""
    return lambda: client.sock.send(data)


@dataclass
class Ground:
    """Where a scenario takes place."""

    protocol: Any
    certificate: Any
    patch: pytest.MonkeyPatch

    def serve(self, app: Any, **settings: Any) -> contextlib.AbstractAsyncContextManager[Service]:
        """Serve with what is tested."""
        return serve(self.protocol, app, **settings)

    def set(self, module: Any, name: str) -> None:
        """Have a constant that is a time be short."""
        self.patch.setattr(module, name, TIME)


# HTTP/1.1


async def first_request(ground: Ground) -> None:
    async with ground.serve(respond(), timeout_request_head=TIME) as service:
        client = await service.connect()
        await service.accepted()
        await busy(sends(client, GET))
        assert (await client.response()).status == 200


async def rest_of_first_head(ground: Ground) -> None:
    async with ground.serve(respond(), timeout_request_head=TIME) as service:
        client = await service.connect()
        await client.send(GET[:20])
        await service.accepted()
        await busy(sends(client, GET[20:]))
        assert (await client.response()).status == 200


async def rest_of_head(ground: Ground) -> None:
    async with ground.serve(respond(), timeout_request_head=TIME, timeout_keep_alive=60) as service:
        client = await service.connect()
        await client.ask()
        await client.send(GET[:20])
        await turns()
        await busy(sends(client, GET[20:]))
        assert (await client.response()).status == 200


async def keep_alive(ground: Ground) -> None:
    async with ground.serve(respond(), timeout_keep_alive=TIME) as service:
        clients = [await service.connect() for _ in range(20)]
        for client in clients:
            await client.ask()
        await busy(lambda: [client.sock.send(GET) for client in clients])
        answers: list[Response] = [await client.response() for client in clients]
        assert [answer.status for answer in answers] == [200] * 20


async def rest_of_body(ground: Ground) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = await body_of(receive)
        await respond(body or b"cut")(scope, receive, send)

    async with ground.serve(app, timeout_request_body=TIME) as service:
        client = await service.connect()
        await client.send(request("POST", body=b"in two")[:-3])
        await service.accepted()
        await busy(sends(client, b"two"))
        answer = await client.response()
        assert (answer.status, answer.body) == (200, b"in two")


async def rest_of_body_that_nobody_reads(ground: Ground) -> None:
    async with ground.serve(respond(), timeout_request_body=TIME) as service:
        client = await service.connect()
        await client.send(request("POST", body=b"in two")[:-3])
        assert (await client.response()).status == 200
        await busy(sends(client, b"two" + GET))
        assert (await client.response()).status == 200


async def lingering(ground: Ground) -> None:
    """Who is still sending when it is refused reads why."""
    ground.set(http_limits, "LINGER_SECONDS")
    async with ground.serve(respond(), limit_request_body=10) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "content-length: 100000") + b"x")
        await service.accepted()
        await turns()
        await busy(sends(client, b"x" * 50_000))
        assert (await client.response()).status == 413
        assert await client.rest() == b""  # no reset


async def writing(ground: Ground) -> None:
    """What the kernel has given the client while nobody looked has room behind it."""
    body = bytes(4_000_000)
    async with ground.serve(respond(body), timeout_write=TIME) as service:
        for sock in service.listener.sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        client = await service.connect(receive_buffer=8192)
        await client.send(GET)
        await client.until(b"\r\n\r\n")
        await wait_until(lambda: service.transport.get_write_buffer_size())

        def read() -> None:
            with contextlib.suppress(BlockingIOError):
                while True:
                    client.buffer += client.sock.recv(65536)

        await busy(read)
        assert await client.exactly(len(body)) == body


async def last_call(ground: Ground) -> None:
    """A request that was sent before the client knew of the server's end."""
    ground.set(http_limits, "LAST_REQUEST_SECONDS")
    async with ground.serve(respond()) as service:
        client = await service.connect()
        await client.ask()
        (connection,) = service.state.connections
        connection.announce_close()  # type: ignore[attr-defined]
        connection.shutdown()
        await busy(sends(client, GET))
        assert (await client.response()).values(b"connection") == [b"close"]


async def server_end(ground: Ground) -> None:
    """The drain's own moment for requests that are on their way, for a client that was idle for long."""
    ground.set(http_limits, "LAST_REQUEST_SECONDS")

    async def refuse() -> None:
        pass

    async with ground.serve(respond()) as service:
        client = await service.connect()
        await client.ask()
        await asyncio.sleep(TIME)
        drained = asyncio.create_task(Drain(service.state, 30, Latch()).run(refuse))
        await turns()
        await busy(sends(client, GET))
        assert (await client.response()).values(b"connection") == [b"close"]
        await drained


# What comes before it


async def listen_queue(ground: Ground) -> None:
    """A connection that nobody has accepted when the server ends."""
    async with ground.serve(respond()) as service:
        if isinstance(service.listener, WatchedServer):
            pytest.skip("uvloop accepts below Python")
        client = Client(socket.create_connection(service.address))
        service.clients.append(client)
        client.sock.send(GET)
        service.listener.close()
        assert (await client.response()).status == 200


async def tls_handshake(ground: Ground) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ground.certificate.configure_cert(context)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    theirs.check_hostname, theirs.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = theirs.wrap_bio(incoming, outgoing)
    async with ground.serve(respond(), tls=context, handshake_timeout=TIME) as service:
        client = await service.connect()
        await turns()
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        await busy(sends(client, outgoing.read()))

        async def call(act: Callable[[], Any]) -> Any:
            while True:
                try:
                    return act()
                except ssl.SSLWantReadError:
                    await client.send(outgoing.read())
                    assert await client.receive(), "the handshake was cut"
                    incoming.write(client._take(len(client.buffer)))

        await call(tls.do_handshake)
        tls.write(GET)
        await client.send(outgoing.read())
        assert (await call(lambda: tls.read(65536))).startswith(b"HTTP/1.1 200 ")


async def turned_away(ground: Ground) -> None:
    """Who is still sending when there is no room for it reads so."""
    ground.set(connection_limit, "LAST_MOMENT")
    ours, theirs = socket.socketpair()
    rejections = connection_limit.Rejections(asyncio.get_running_loop())
    client = Client(theirs)
    with theirs:
        rejections.tell(ours)
        await busy(sends(client, GET))
        assert (await client.response()).status == 503
        assert await client.rest() == b""  # no reset
        await wait_until(lambda: not len(rejections))


async def proxy_header(ground: Ground) -> None:
    expected = Checkpoint(expects=lambda host: True)
    async with ground.serve(respond(), checkpoint=expected, handshake_timeout=TIME) as service:
        client = await service.connect()
        await client.send(b"PROXY TCP4 192.0.2.1 ")
        await turns()
        await busy(sends(client, b"192.0.2.2 1 2\r\n" + GET))
        assert (await client.response()).status == 200


# WebSocket


@contextlib.asynccontextmanager
async def opened(ground: Ground, script: Any, **settings: Any) -> Any:
    app = Application(script)
    async with ground.serve(app, ws="auto", **settings) as service:
        client = await service.connect()
        await client.send(handshake())
        await client.until(b"\r\n\r\n")
        yield app, client


async def pong(ground: Ground) -> None:
    async with opened(ground, echo, ws_ping_interval=TIME, ws_ping_timeout=TIME) as (_, client):
        (ping,) = parse_frames(await client.exactly(6))
        assert ping.first == PING
        await busy(sends(client, frame(0x8A, ping.payload) + frame(TEXT, b"here")))
        answers = []
        while ServerFrame(TEXT, b"here") not in answers:  # further pings may be in front of it
            answers += parse_frames(await client.exactly(6))
            assert answers[-1].first in (PING, TEXT)


async def answer_to_close(ground: Ground) -> None:
    ground.set(websocket_limits, "CLOSE_TIMEOUT")
    ground.set(close_handshake, "CLOSE_TIMEOUT")

    async def script(receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": 1000})

    async with opened(ground, script) as (_, client):
        assert parse_frames(await client.exactly(4)) == [ServerFrame(CLOSE, b"\x03\xe8")]
        await busy(sends(client, close_frame(1000)))
        assert await client.rest() == b""  # no reset


async def answers_to_last_messages(ground: Ground) -> None:
    """The application has had no time either."""
    ground.set(websocket_limits, "ANSWER_SECONDS")
    ground.set(peer_end, "ANSWER_SECONDS")
    answering = asyncio.Event()

    async def script(receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await receive()
        answering.set()
        await asyncio.sleep(TIME / 2)
        await send({"type": "websocket.send", "text": "answer"})
        await receive()

    async with opened(ground, script) as (_, client):
        await client.send(frame(TEXT, b"question") + close_frame(1000))
        await answering.wait()
        await busy()
        assert parse_frames(await client.rest()) == [ServerFrame(TEXT, b"answer"), ServerFrame(CLOSE, b"\x03\xe8")]


async def websocket_lingering(ground: Ground) -> None:
    ground.set(websocket_limits, "LINGER_SECONDS")

    async def script(receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.close"})

    app = Application(script)
    async with ground.serve(app, ws="auto") as service:
        client = await service.connect()
        await client.send(handshake())
        assert (await client.response()).status == 403
        await busy(sends(client, b"x" * 50_000))
        assert await client.rest() == b""  # no reset


async def websocket_writing(ground: Ground) -> None:
    size = 4_000_000

    async def script(receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "bytes": bytes(size)})
        await receive()

    app = Application(script)
    async with ground.serve(app, ws="auto", timeout_write=TIME) as service:
        for sock in service.listener.sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        client = await service.connect(receive_buffer=8192)
        await client.send(handshake())
        await client.until(b"\r\n\r\n")

        def read() -> None:
            with contextlib.suppress(BlockingIOError):
                while True:
                    client.buffer += client.sock.recv(65536)

        await busy(read)
        await client.exactly(size)


HTTP1: list[Callable[[Ground], Awaitable[None]]] = [
    *(first_request, rest_of_first_head, rest_of_head, keep_alive, rest_of_body, rest_of_body_that_nobody_reads),
    *(lingering, writing, last_call, server_end, listen_queue, tls_handshake, proxy_header, turned_away),
    *(pong, answer_to_close, answers_to_last_messages, websocket_lingering, websocket_writing),
]


@pytest.mark.parametrize("clock", HTTP1, ids=lambda clock: clock.__name__)
async def test_client_that_could_not_be_heard_is_not_late(
    clock: Callable[[Ground], Awaitable[None]],
    http_protocol_cls: Any,
    reader: str,
    tls_certificate: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await clock(Ground(http_protocol_cls, tls_certificate, monkeypatch))


async def test_client_that_drips_is_late_all_the_same(http_protocol_cls: Any, reader: str) -> None:
    """What it sends is looked at, and a few times only."""
    async with serve(http_protocol_cls, respond(), timeout_request_head=5) as service:
        client = await service.connect()
        await client.send(GET[:5])
        await service.accepted()
        looks = 0
        while service.state.connections and not _is_answered(client):
            client.sock.send(b"x")
            service.pass_time(6)
            await turns()
            looks += 1
        assert (await client.response()).status == 408
        assert 1 < looks <= 6


async def test_client_that_asks_at_the_last_moment_is_answered(http_protocol_cls: Any, reader: str) -> None:
    """Nobody has looked at what it has sent when its time is over by the clock."""
    async with serve(http_protocol_cls, respond(), timeout_keep_alive=5) as service:
        client = await service.connect()
        for _ in range(3):
            await client.ask()
            client.sock.send(GET)
            service.pass_time(6)
            assert (await client.response()).status == 200
        service.pass_time(6)
        assert await client.rest() == b""


async def test_server_that_ends_looks_for_a_request_first(http_protocol_cls: Any, reader: str) -> None:
    """However long the connection was idle."""
    async with serve(http_protocol_cls, respond(), timeout_keep_alive=60) as service:
        client = await service.connect()
        await client.ask()
        service.pass_time(30)
        (connection,) = service.state.connections
        connection.announce_close()  # type: ignore[attr-defined]
        client.sock.send(GET)
        connection.shutdown()
        assert (await client.response()).values(b"connection") == [b"close"]


def _is_answered(client: Client) -> bool:
    try:
        return bool(client.sock.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False
