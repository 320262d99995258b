"""Serve a protocol class on a loopback socket inside the running event loop, and talk to it byte by byte.

Nothing is doubled: the transport, the loop and the client's socket are real. `serve` is what a server does around its
protocols and no more, so that what a test sees on the wire is the protocol's own doing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import ssl
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.utils import turns, wait_until
from uvicorn.config import Config
from uvicorn.listening import sockets as listening
from uvicorn.listening.acceptor import OPEN, Checkpoint
from uvicorn.serving.state import ServerState

App = Callable[..., Awaitable[Any]]

PATIENCE = 20.0
"""Seconds a test waits for something that takes milliseconds on a quiet machine."""

GET = b"GET / HTTP/1.1\r\nhost: test\r\n\r\n"
GET_CLOSE = b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n"
HEAD = b"HEAD / HTTP/1.1\r\nhost: test\r\n\r\n"
GET_10 = b"GET / HTTP/1.0\r\n\r\n"


def request(method: str = "GET", target: str = "/", *fields: str, body: bytes = b"", version: str = "1.1") -> bytes:
    """A request with `host: test`, the given field lines and, if there is a body, its length."""
    lines = [f"{method} {target} HTTP/{version}", "host: test", *fields]
    if body:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def make_config(app: Any, protocol: Any, **settings: Any) -> Config:
    """A loaded configuration that adds nothing to a response and says nothing, unless `settings` want it."""
    quiet = {
        "ws": "none",
        "lifespan": "off",
        "log_config": None,
        "access_log": False,
        "proxy_headers": False,
        "server_header": False,
        "date_header": False,
    }
    config = Config(app, http=protocol, **(quiet | settings))
    config.load()
    return config


@dataclass
class Response:
    """One response as the client read it; header names in lower case."""

    status: int
    reason: str
    headers: list[tuple[bytes, bytes]]
    body: bytes = b""
    head: bytes = field(default=b"", repr=False)

    def values(self, name: bytes) -> list[bytes]:
        """The values of the fields called `name`."""
        return [value for key, value in self.headers if key == name]


class Client:
    """One end of a connection; what was read and not yet asked for waits in `buffer`."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.buffer = bytearray()
        self.ended = False

    async def send(self, *pieces: bytes) -> None:
        """Send pieces, letting the loop turn in between."""
        loop = asyncio.get_running_loop()
        for piece in pieces:
            await asyncio.wait_for(loop.sock_sendall(self.sock, piece), PATIENCE)
            if len(pieces) > 1:
                await turns()

    async def receive(self) -> bool:
        """Read what there is; whether there was anything before the end."""
        data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.sock, 262144), PATIENCE)
        self.buffer += data
        self.ended = not data
        return bool(data)

    async def until(self, marker: bytes) -> bytes:
        """Take everything up to and including `marker`."""
        while marker not in self.buffer:
            assert await self.receive(), f"{marker!r} is missing in {bytes(self.buffer)!r}"
        return self._take(self.buffer.index(marker) + len(marker))

    async def exactly(self, size: int) -> bytes:
        """Take `size` bytes."""
        while len(self.buffer) < size:
            assert await self.receive(), f"{size} bytes expected, the connection ended after {len(self.buffer)}"
        return self._take(size)

    async def rest(self) -> bytes:
        """Take everything up to the end of the connection."""
        while not self.ended:
            await self.receive()
        return self._take(len(self.buffer))

    def _take(self, size: int) -> bytes:
        data = bytes(self.buffer[:size])
        del self.buffer[:size]
        return data

    async def response(self, method: str = "GET") -> Response:
        """Take one response, interim or final."""
        head = await self.until(b"\r\n\r\n")
        status_line, *lines = head[:-4].decode("latin-1").split("\r\n")
        version, status, reason = status_line.split(" ", 2)
        assert version == "HTTP/1.1"
        fields = [line.split(": ", 1) for line in lines]
        headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in fields]
        response = Response(int(status), reason, headers, head=head)
        if method != "HEAD" and response.status >= 200 and response.status not in (204, 304):
            response.body = await self._body(response)
        return response

    async def _body(self, response: Response) -> bytes:
        lengths = response.values(b"content-length")
        if response.values(b"transfer-encoding"):
            body = b""
            while True:
                size = int((await self.until(b"\r\n"))[:-2], 16)
                body += await self.exactly(size)
                assert await self.exactly(2) == b"\r\n"
                if not size:
                    return body
        return await self.exactly(int(lengths[0])) if lengths else await self.rest()

    async def ask(self, data: bytes = GET, method: str = "GET") -> Response:
        """Send a request and take its response."""
        await self.send(data)
        return await self.response(method)

    async def silent(self, turns: int = 20) -> bool:
        """Whether nothing comes, not even the end, for some turns of the loop."""
        for _ in range(turns):
            await asyncio.sleep(0.001)  # a turn in which the system is asked as well
        try:
            self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return not self.buffer
        return False

    def half_close(self) -> None:
        """Say that nothing more will be sent."""
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close with RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self) -> None:
        """Close, in the usual way."""
        self.sock.close()


@dataclass
class Service:
    """A protocol class that accepts connections."""

    config: Config
    state: ServerState
    address: Any
    family: int
    listener: listening.Listener
    clients: list[Client] = field(default_factory=list)

    async def connect(self, *, receive_buffer: int | None = None) -> Client:
        """A new connection."""
        sock = socket.socket(self.family, socket.SOCK_STREAM)
        sock.setblocking(False)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if self.family != getattr(socket, "AF_UNIX", None):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = Client(sock)
        self.clients.append(client)
        await asyncio.get_running_loop().sock_connect(sock, self.address)
        return client

    async def accepted(self, count: int = 1) -> None:
        """Wait until so many connections are there, and what they have sent has been read."""
        await wait_until(lambda: len(self.state.connections) == count)
        await turns()

    async def idle(self) -> None:
        """Wait until no connection and no task is left."""
        await wait_until(lambda: not self.state.connections and not self.state.tasks)

    def pass_time(self, seconds: float) -> None:
        """Have so many seconds pass at once for the deadlines of HTTP connections."""
        settings: Any = self.state.protocol_settings
        if hasattr(settings, "advance"):
            settings.advance(seconds)
            return
        clock = settings.clock
        settings.clock = settings.write_deadlines._clock = lambda: clock() + seconds
        connections: list[Any] = list(self.state.connections)
        for connection in connections:
            connection._deadline.look()
        settings.write_deadlines.sweep()

    def wait_for_bytes(self) -> None:
        """Hold the loop until the kernel has bytes to read for every connection.

        Bytes sent over the loopback are usually there when `send` returns. Where the kernel leaves them to a thread of
        its own, they come later, one connection's before another's.
        """
        for connection in self.state.connections:
            server_end = connection.transport.get_extra_info("socket")  # type: ignore[attr-defined]
            assert select.select([server_end.fileno()], [], [], PATIENCE)[0], "nothing came"

    @property
    def transport(self) -> Any:
        """The server's end of the only connection."""
        (connection,) = self.state.connections
        return connection.transport  # type: ignore[attr-defined]


def descriptors() -> int:
    """How many files and sockets this process has open, devices apart, which event loops open when they like."""
    if sys.platform != "linux":
        return 0
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            count += not os.readlink(f"/proc/self/fd/{name}").startswith("/dev/")
    return count


@asynccontextmanager
async def serve(
    protocol: Any,
    app: Any,
    *,
    app_state: dict[str, Any] | None = None,
    host: str = "127.0.0.1",
    uds: str | None = None,
    tls: ssl.SSLContext | None = None,
    state: ServerState | None = None,
    handshake_timeout: float = 10,
    checkpoint: Checkpoint = OPEN,
    **settings: Any,
) -> AsyncIterator[Service]:
    """Serve `app` with `protocol`; on exit nothing of it is left."""
    config = make_config(app, protocol, **settings)
    state = state or ServerState()
    state.configure(headers=config.encoded_headers, date_header=config.date_header)

    def factory() -> asyncio.Protocol:
        made: asyncio.Protocol = protocol(config=config, server_state=state, app_state=app_state or {})
        return made

    bound = socket.socket(socket.AF_UNIX if uds else socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.bind(uds or (host, 0))
    # As a server does, so natively where that is possible.
    (server,) = await listening.listen(
        [bound], factory, backlog=100, context=tls, handshake_timeout=handshake_timeout, checkpoint=checkpoint
    )
    (sock,) = server.sockets
    service = Service(config, state, sock.getsockname(), sock.family, server)
    try:
        yield service
    finally:
        server.close()
        for client in service.clients:
            client.close()
        for connection in list(state.connections):
            connection.transport.abort()  # type: ignore[attr-defined]
        for task in list(state.tasks):
            task.cancel()
        await service.idle()
        state.close()


def respond(body: bytes = b"ok", status: int = 200, headers: Sequence[tuple[bytes, bytes]] | None = None) -> App:
    """An application that answers this; with its length unless `headers` are given."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        fields = [(b"content-length", b"%d" % len(body))] if headers is None else headers
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": body})

    return app


async def body_of(receive: Any) -> bytes | None:
    """The whole body of a request; `None` if the client was gone before its end."""
    body: bytes = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message["body"]
        if not message["more_body"]:
            return body


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers with the request's body."""
    body = await body_of(receive)
    if body is not None:
        await respond(body)(scope, receive, send)


class Calls:
    """An application that notes each scope and hands on to another."""

    def __init__(self, app: App | None = None) -> None:
        self.app = app or respond()
        self.scopes: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        await self.app(scope, receive, send)

    @property
    def scope(self) -> dict[str, Any]:
        """Of the only call."""
        (scope,) = self.scopes
        return scope
