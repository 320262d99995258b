"""Handshakes with the engine that serves a context: rustls through sockets of the native core, OpenSSL in memory."""

from __future__ import annotations

import asyncio
import functools
import select
import socket
import ssl
import threading
import time
from typing import Any

from tests.utils import PATIENCE
from uvicorn.listening.acceptor import NativeAcceptor

NAMES = ("rustls", "openssl")


def handshake(
    server: ssl.SSLContext, client: ssl.SSLContext, name: str = "localhost", session: ssl.SSLSession | None = None
) -> tuple[Any, Any]:
    """Connect two contexts; returns both ends, which know `write`, `read` and what can be asked of a connection.

    Raises:
        ssl.SSLError: an end has refused the other.
    """
    if getattr(server, "rustls", None) is not None:
        return _listeners().connect(server, client, name, session)
    return _in_memory(server, client, name, session)


def _in_memory(
    server: ssl.SSLContext, client: ssl.SSLContext, name: str, session: ssl.SSLSession | None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname=name, session=session),
    )
    waiting = list(reversed(ends))
    for _ in range(20):
        for end in waiting[:]:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(end)
        if not waiting:
            break
    assert not waiting
    return ends


class _End(asyncio.Protocol):
    """The server's end of a connection, for another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.is_made = threading.Event()
        self.transport: Any = None
        self._received = b""
        self._changed = threading.Condition()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.is_made.set()

    def data_received(self, data: bytes) -> None:
        with self._changed:
            self._received += data
            self._changed.notify_all()

    def write(self, data: bytes) -> None:
        self._loop.call_soon_threadsafe(self.transport.write, data)

    def read(self, size: int) -> bytes:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._received) >= size, PATIENCE)
            data, self._received = self._received[:size], self._received[size:]
            return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport.get_extra_info("ssl_object"), name)


class _Listeners:
    """Listening sockets of the native core, on an event loop in a thread of its own."""

    def __init__(self) -> None:
        from uvicorn._native import Poller

        self._loop = asyncio.SelectorEventLoop()
        self._poller = Poller(self._loop)
        threading.Thread(target=self._loop.run_forever, name="tls", daemon=True).start()

    def connect(
        self, server: ssl.SSLContext, client: ssl.SSLContext, name: str, session: ssl.SSLSession | None
    ) -> tuple[_End, ssl.SSLSocket]:
        end = _End(self._loop)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            address = listening.getsockname()
            acceptor = self._run(self._listen(listening.dup(), end, server))
        try:
            here = client.wrap_socket(
                socket.create_connection(address, PATIENCE),
                server_hostname=name,
                session=session,
                do_handshake_on_connect=False,
            )
            _sockets.append(here)
            here.do_handshake()
            # In TLS 1.3 the client is done before the server has looked at its certificate.
            deadline = time.monotonic() + PATIENCE
            here.settimeout(0.05)
            while not end.is_made.wait(0.005):
                assert time.monotonic() < deadline, "the handshake has no end"
                if select.select([here], [], [], 0)[0]:
                    try:
                        data = here.recv(1)
                    except TimeoutError:
                        continue
                    raise ssl.SSLError("closed" if not data else "data before the handshake was complete")
            here.settimeout(PATIENCE)
            return end, here
        finally:
            self._run(self._close(acceptor))

    async def _listen(self, sock: socket.socket, end: _End, context: ssl.SSLContext) -> NativeAcceptor:
        acceptor = NativeAcceptor(
            sock, lambda: end, backlog=1, poller=self._poller, context=context, handshake_timeout=PATIENCE
        )
        await acceptor.start_serving()
        return acceptor

    async def _close(self, acceptor: NativeAcceptor) -> None:
        acceptor.close()

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE)


@functools.cache
def _listeners() -> _Listeners:
    return _Listeners()


_sockets: list[socket.socket] = []


def close() -> None:
    """Close the connections made so far."""
    while _sockets:
        _sockets.pop().close()
