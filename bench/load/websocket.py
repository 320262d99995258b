"""WebSocket sockets: echo (each socket sends its next message when the last came back), broadcast, and idle ones.

Only what a client under measurement needs: unfragmented binary messages, masked with a constant (a random mask would
measure the client's random numbers), no extensions.
"""

from __future__ import annotations

import base64
import os
import sys
import time
from collections import Counter

from bench.errors import LoadError
from bench.load import own
from bench.load.base import Aim, ClosedLoop
from bench.load.sockets import Client, Connection, open_all
from bench.model import Burst, Load

MASK = b"\x00\x00\x00\x00"
BINARY, CLOSE, PING, PONG = 2, 8, 9, 10
HANDSHAKE_TIMEOUT = 10.0
DRAIN = 5.0


class WebSocketGenerator(own.Own, ClosedLoop):
    """The generator `websocket`; the aim's options say `pattern`: echo (default) or broadcast."""

    name = "websocket"
    module = "bench.load.websocket"
    abilities = frozenset({"pattern"})


def frame(opcode: int, payload: bytes) -> bytes:
    """One final client frame."""
    size = len(payload)
    if size < 126:
        head = bytes((0x80 | opcode, 0x80 | size))
    elif size < 65536:
        head = bytes((0x80 | opcode, 0xFE)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, 0xFF)) + size.to_bytes(8, "big")
    return head + MASK + payload


class FrameReader:
    """Feed bytes in any cut, get (opcode, payload) of complete server frames out."""

    __slots__ = ("_buffer",)

    def __init__(self, rest: bytes = b"") -> None:
        self._buffer = rest

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The frames these bytes complete; raises LoadError for fragments and masked frames."""
        self._buffer += data
        found = []
        while (one := self._next()) is not None:
            found.append(one)
        return found

    def _next(self) -> tuple[int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        if not buffer[0] & 0x80 or buffer[0] & 0x70 or buffer[1] & 0x80:
            raise LoadError(f"not a plain server frame: {buffer[:2].hex()}")
        size, start = buffer[1], 2
        if size >= 126:
            start = 4 if size == 126 else 10
            if len(buffer) < start:
                return None
            size = int.from_bytes(buffer[2:start], "big")
        if len(buffer) < start + size:
            return None
        self._buffer = buffer[start + size :]
        return buffer[0] & 15, buffer[start : start + size]


def handshake_bytes(host: str, path: str) -> bytes:
    """The request that opens a WebSocket."""
    key = base64.b64encode(os.urandom(16)).decode()
    return (
        f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()


def upgrade(client: Client, connections: list[Connection], path: str) -> None:
    """Open the WebSocket on each connection; raises LoadError when the server refuses."""
    head = handshake_bytes(f"127.0.0.1:{client.port}", path)
    heads: dict[int, bytes] = {}
    for connection in connections:
        client.send(connection, head)
        heads[connection.sock.fileno()] = b""
    deadline = time.perf_counter() + HANDSHAKE_TIMEOUT
    while heads:
        if time.perf_counter() > deadline:
            raise LoadError(f"{len(heads)} handshakes were not answered")
        for connection, data in client.wait(min(deadline, time.perf_counter() + 0.05)):
            _handshake(connection, data, heads)


def _handshake(connection: Connection, data: bytes | None, heads: dict[int, bytes]) -> None:
    number = connection.sock.fileno()
    if data is None:
        raise LoadError("the server closed during the handshake")
    heads[number] += data
    head, separator, rest = heads[number].partition(b"\r\n\r\n")
    if not separator:
        return
    if not head.startswith(b"HTTP/1.1 101"):
        raise LoadError(f"the handshake was refused: {head.splitlines()[0][:60]!r}")
    connection.reader = FrameReader(rest)
    del heads[number]


class Sockets:
    """One burst over open WebSockets."""

    def __init__(self, aim: Aim, load: Load) -> None:
        """Opens every socket; raises LoadError when one is refused."""
        self.aim, self.load = aim, load
        self.pattern = aim.options.get("pattern", "echo")
        self.latencies: list[float] = []
        self.errors: Counter[str] = Counter()
        self.received = 0
        self._message = frame(BINARY, aim.body)
        self._client = Client(aim.port)
        self._connections = open_all(self._client, load.connections)
        upgrade(self._client, self._connections, aim.path)
        self._pending = 0

    def run(self) -> Burst:
        """Echo: one message in flight per socket. Broadcast: one message in flight altogether, delivered to all."""
        begun = time.perf_counter()
        self._end = begun + self.load.seconds
        for connection in self._senders():
            self._send(connection)
        while self._pending and self._client.connections:
            now = time.perf_counter()
            if now > self._end + DRAIN:
                self.errors["unanswered"] += self._pending
                break
            for connection, data in self._client.wait(now + 0.05):
                self._take(connection, data)
        seconds = time.perf_counter() - begun
        self._close()
        return own.burst(self.latencies, seconds, self.errors, self.received)

    def _senders(self) -> list[Connection]:
        return self._connections[:1] if self.pattern == "broadcast" else self._connections

    def _send(self, connection: Connection) -> None:
        connection.since = time.perf_counter()
        try:
            self._client.send(connection, self._message)
        except OSError:
            self.errors["write"] += 1
            return
        self._pending += len(self._client.connections) if self.pattern == "broadcast" else 1

    def _take(self, connection: Connection, data: bytes | None) -> None:
        if data is None:
            self.errors["read"] += 1
            self._pending -= 1
            self._client.discard(connection)
            return
        self.received += len(data)
        reader = connection.reader
        assert isinstance(reader, FrameReader)
        for opcode, payload in reader.feed(data):
            if opcode == PING:
                self._client.send(connection, frame(PONG, payload))
            elif opcode == CLOSE:
                self.errors["closed"] += 1
            elif len(payload) != len(self.aim.body):
                self.errors["length"] += 1
            else:
                self._arrived(connection)

    def _arrived(self, connection: Connection) -> None:
        now = time.perf_counter()
        sender = self._connections[0] if self.pattern == "broadcast" else connection
        self.latencies.append(now - sender.since)
        self._pending -= 1
        if now < self._end and (self.pattern == "echo" or self._pending == 0):
            self._send(sender)

    def _close(self) -> None:
        for connection in list(self._client.connections.values()):
            try:
                self._client.send(connection, frame(CLOSE, b"\x03\xe8"))
            except OSError:
                continue
        self._client.close()


if __name__ == "__main__":
    sys.exit(own.main(sys.argv, lambda aim, load: Sockets(aim, load).run()))
