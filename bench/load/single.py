"""One request at a time on a blocking socket, for counts that must not depend on how fast a server is."""

from __future__ import annotations

import socket

from bench.errors import BenchError
from bench.load.response import ResponseReader


def received(client: socket.socket, counted: str) -> bytes:
    """Take the next bytes; raises BenchError, with the noun for the `counted` things, when none come."""
    try:
        data = client.recv(262144)
    except OSError as exc:
        raise BenchError(f"no answer while {counted} are counted: {exc}") from None
    if not data:
        raise BenchError(f"the server closed while its {counted} were counted")
    return data


def exchange(client: socket.socket, request: bytes, counted: str) -> None:
    """Send a request and take its answer; raises BenchError unless that is a 200 that leaves the connection open."""
    client.sendall(request)
    reader = ResponseReader()
    while not (answers := reader.feed(received(client, counted))):
        pass
    if answers[0].status != 200 or answers[0].close:
        raise BenchError(f"the server answers {answers[0].status}, or closes, while its {counted} are counted")
