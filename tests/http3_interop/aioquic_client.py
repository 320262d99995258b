"""A client of HTTP/3 by aioquic. See `clients` for its arguments and its output."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import ssl
import sys
import time
from collections import defaultdict
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import urlsplit

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated
from aioquic.tls import CipherSuite, SessionTicket

UNSUPPORTED = 3


class Client(QuicConnectionProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._statuses: dict[int, int] = {}
        self._bodies: dict[int, list[bytes]] = defaultdict(list)

    def quic_event_received(self, event: Any) -> None:
        """Sort what has come."""
        if isinstance(event, ConnectionTerminated) and not self.ended.done():
            self.ended.set_result(f"{event.error_code:#x} {event.reason_phrase}")
            for answer in self.answers.values():
                if not answer.done():
                    answer.set_exception(ConnectionError(self.ended.result()))
        for one in self.http.handle_event(event):
            if isinstance(one, HeadersReceived):
                self._statuses.setdefault(one.stream_id, int(dict(one.headers).get(b":status", 0)))
            elif isinstance(one, DataReceived):
                self._bodies[one.stream_id].append(one.data)
            if getattr(one, "stream_ended", False):
                stream: int = one.stream_id  # type: ignore[attr-defined]
                body = b"".join(self._bodies.pop(stream, []))
                digest = hashlib.sha256(body).hexdigest()
                told = {"status": self._statuses[stream], "length": len(body), "digest": digest}
                self.answers[stream].set_result(told)

    def ask(self, path: str, method: str = "GET", body: bytes = b"") -> asyncio.Future[dict[str, Any]]:
        """Send a request."""
        stream = self._quic.get_next_available_stream_id()
        head = {":method": method, ":scheme": "https", ":authority": "localhost", ":path": path}
        self.http.send_headers(stream, [(k.encode(), v.encode()) for k, v in head.items()], not body)
        if body:
            self.http.send_data(stream, body, True)
        self.answers[stream] = asyncio.get_running_loop().create_future()
        self.transmit()
        return self.answers[stream]


tickets: list[SessionTicket] = []


def opened(base: str, wait: bool = True, **settings: Any) -> AbstractAsyncContextManager[Any]:
    """A connection."""
    url = urlsplit(base)
    quic = QuicConfiguration(
        is_client=True, alpn_protocols=["h3"], verify_mode=ssl.CERT_NONE, server_name="localhost", **settings
    )
    return connect(
        url.hostname or "",
        url.port or 443,
        configuration=quic,
        create_protocol=Client,
        session_ticket_handler=tickets.append,
        wait_connected=wait,
    )


async def perform(operation: str, base: str, *arguments: str) -> dict[str, Any]:
    """Return the result."""
    if operation == "load":
        return await load(base, float(arguments[0]), arguments[1])
    settings: dict[str, Any] = {}
    path = arguments[-1] if arguments else "/"
    if operation == "version":
        settings["supported_versions"] = [0x1A2A3A4A, 1]
        settings["original_version"] = 0x1A2A3A4A
    if operation == "chacha20":
        settings["cipher_suites"] = [CipherSuite.CHACHA20_POLY1305_SHA256]
    async with opened(base, **settings) as client:
        if operation == "get":
            return {"responses": await asyncio.gather(*(client.ask(path) for _ in range(int(arguments[0]))))}
        if operation == "post":
            return {"responses": [await client.ask(path, "POST", bytes(int(arguments[0])))]}
        found = await client.ask(path)
        if operation == "keyupdate":
            client.request_key_update()
            found = await client.ask(path)
            client.request_key_update()
            found = await client.ask(path)
        elif operation == "migrate":
            loop = asyncio.get_running_loop()
            old = client._transport
            sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind(("::", 0))
            new, _ = await loop.create_datagram_endpoint(lambda: client, sock=sock)
            client._transport = new
            client.change_connection_id()
            found = await client.ask(path)
            old.close()
        elif operation == "wait":  # it ignores stateless resets, so `again` shows nothing
            return await lose(client, operation, path)
        elif operation in ("resume", "early"):
            while not tickets:
                await asyncio.sleep(0.01)
        elif operation not in ("version", "chacha20"):
            sys.exit(UNSUPPORTED)
    if operation in ("resume", "early"):
        async with opened(base, wait=operation == "resume", session_ticket=tickets[-1]) as client:
            found = await client.ask(path)
    return {"responses": [found]}


async def lose(client: Client, operation: str, path: str) -> dict[str, Any]:
    """Ask once more, or wait, when the runner says that the server has changed."""
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    begin = time.monotonic()
    if operation == "again":
        try:
            return {"responses": [await client.ask(path)]}
        except ConnectionError as exc:
            error = str(exc)
    else:
        error = await client.ended
    return {"error": error, "seconds": time.monotonic() - begin}


async def load(base: str, seconds: float, path: str) -> dict[str, Any]:
    """Ask again and again, on another connection once one has ended."""
    count, failures, end = 0, [], time.monotonic() + seconds
    while time.monotonic() < end:
        async with opened(base) as client:
            while time.monotonic() < end and not client.ended.done():
                try:
                    await client.ask(path)
                    count += 1
                except ConnectionError as exc:
                    # It does not read GOAWAY: a connection that is closed without an error has not served this request.
                    if not str(exc).startswith("0x100 "):
                        failures.append(str(exc))
    return {"count": count, "failures": failures}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(perform(*sys.argv[1:]))))
