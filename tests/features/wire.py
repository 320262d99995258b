"""A client that asks one thing on a connection of its own, as strangely as is needed."""

from __future__ import annotations

import io
import json
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from typing import Any

from tests.utils import PATIENCE, read_to_end


@dataclass(frozen=True)
class Answer:
    """What came back. The status is 0 if the connection ended, or was refused, without an answer."""

    status: int = 0
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        """The body; an empty object if it is no JSON."""
        with suppress(ValueError):
            return json.loads(self.body)
        return {}


@dataclass(frozen=True)
class Way:
    """How a server is reached: from which address, with what in front of everything else, over which TLS."""

    address: tuple[str, int] | str
    source: str = "127.0.0.1"
    before: bytes = b""
    tls: ssl.SSLContext | None = None
    name: str = "localhost"
    session: ssl.SSLSession | None = None


def connect(way: Way, timeout: float = PATIENCE) -> socket.socket:
    """A connection, its handshake done; raises OSError if there is none to be had."""
    if isinstance(way.address, str):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(timeout)
        sock.connect(way.address)
    else:
        sock = socket.create_connection(way.address, timeout, (way.source, 0))
    try:
        if way.before:
            sock.sendall(way.before)
        if way.tls:
            return way.tls.wrap_socket(sock, server_hostname=way.name, session=way.session)
    except BaseException:
        sock.close()
        raise
    return sock


def head(target: str, method: str = "GET", fields: Sequence[str] = (), closing: bool = True) -> bytes:
    """A request without a body."""
    lines = [f"{method} {target} HTTP/1.1", "host: localhost", *["connection: close"] * closing, *fields, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def receive(sock: socket.socket, method: str = "GET") -> Answer:
    """The answer on a connection that is closed after it."""
    try:
        raw = read_to_end(sock)
        response = HTTPResponse(_Received(raw), method=method)  # type: ignore[arg-type]
        response.begin()
        # Of an answer to HEAD all that came is told of, since there should be nothing.
        body = raw.partition(b"\r\n\r\n")[2] if method == "HEAD" else response.read()
    except (OSError, HTTPException):
        return Answer()
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, body)


def ask(way: Way, target: str = "/", method: str = "GET", fields: Sequence[str] = ()) -> Answer:
    """One request, and what became of it."""
    try:
        with connect(way) as sock:
            sock.sendall(head(target, method, fields))
            return receive(sock, method)
    except OSError:
        return Answer()


class _Received:
    """What `HTTPResponse` reads from, in the place of a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)
