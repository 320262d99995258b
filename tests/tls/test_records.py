"""The records of responses that rustls encrypts."""

from __future__ import annotations

import asyncio
import functools
import math
import socket
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from tests.utils import PATIENCE, run_server, server_port
from uvicorn.config import Config
from uvicorn.tls import rustls

pytestmark = pytest.mark.skipif(rustls.why_not() is not None, reason=str(rustls.why_not()))

FRAGMENT = 16 * 1024
APPLICATION_DATA = 23
CONTENT = b"".join(number.to_bytes(4, "big") for number in range(300_000))
# Beside full records and pieces of the transport, and more than one turn of the event loop sends.
LENGTHS = sorted(
    {0, 1, 1024**2, 1024**2 + 1, 1_000_000}
    | {max(count * FRAGMENT + more, 0) for count in (1, 2, 3, 4, 5, 8, 40) for more in (-200, -1, 0, 1)}
)


async def app(scope: Any, receive: Any, send: Any) -> None:
    length, path = int(scope["query_string"]), scope["path"]
    sent = CONTENT[:length]
    if path == "/whole":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % length)]})
        await send({"type": "http.response.body", "body": sent})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % length)]})
    for at in range(0, length, 70_000):
        await send({"type": "http.response.body", "body": sent[at : at + 70_000], "more_body": True})
    await send({"type": "http.response.body", "body": b""})


class Client:
    """A connection of TLS that sees the records of the server."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")
        self._records = bytearray()
        self._call(self._tls.do_handshake)

    def get(self, target: str) -> bytes:
        """The body of a response."""
        self._call(functools.partial(self._tls.write, f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()))
        response = b""
        while b"\r\n\r\n" not in response:
            response += self._call(functools.partial(self._tls.read, 2**20))
        head, _, body = response.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split()[0])
        while len(body) < length:
            body += self._call(functools.partial(self._tls.read, 2**20))
        return body

    def records(self) -> list[int]:
        """The lengths of the records with data since the last call."""
        lengths, at = [], 0
        while at < len(self._records):
            length = int.from_bytes(self._records[at + 3 : at + 5], "big")
            if self._records[at] == APPLICATION_DATA:
                lengths.append(length)
            at += 5 + length
        self._records.clear()
        return lengths

    def close(self) -> None:
        self._socket.close()

    def _call(self, act: Callable[[], Any]) -> Any:
        while True:
            try:
                return act()
            except ssl.SSLWantReadError:
                pass
            finally:
                self._socket.sendall(self._out.read())
            data = self._socket.recv(2**20)
            assert data
            self._records += data
            self._in.write(data)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("version", "suite"),
    [
        (ssl.TLSVersion.TLSv1_2, "ECDHE+AESGCM"),
        (ssl.TLSVersion.TLSv1_2, "ECDHE+CHACHA20"),
        (ssl.TLSVersion.TLSv1_3, "ECDHE+AESGCM"),
    ],
)
async def test_responses_come_whole_and_in_full_records(
    version: ssl.TLSVersion,
    suite: str,
    tls_ca_ssl_context: ssl.SSLContext,
    tls_certificate_key_and_chain_path: str,
    subtests: Any,
) -> None:
    """TLS-01: a record beside full ones is the head of a response, or the odd part of its body."""
    tls_ca_ssl_context.minimum_version = tls_ca_ssl_context.maximum_version = version
    tls_ca_ssl_context.set_ciphers(suite)

    def fetch(port: int) -> list[tuple[str, bool, list[int]]]:
        client = Client(port, tls_ca_ssl_context)
        try:
            client.get("/whole?1")  # session tickets come in front of it
            client.records()
            return [
                (target, client.get(target) == CONTENT[:length], client.records())
                for length in LENGTHS
                for target in (f"/whole?{length}", f"/pieces?{length}")
            ]
        finally:
            client.close()

    config = Config(
        app, port=0, lifespan="off", log_config=None, tls="rustls", ssl_certfile=tls_certificate_key_and_chain_path
    )
    async with run_server(config) as server:
        responses = await asyncio.to_thread(fetch, server_port(server))
    for target, is_right, records in responses:
        with subtests.test(target):
            assert is_right
            length = int(target.partition("?")[2])
            if target.startswith("/whole"):
                assert len(records) <= 1 + math.ceil(length / FRAGMENT)
                assert sum(record < FRAGMENT for record in records) <= 2
