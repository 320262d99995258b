"""WebSocket sockets: echo, broadcast, opened and closed again; and what else of WebSocket this harness speaks.

The load comes from a program in C (`c/websocket_load.c`): a server that is to be measured must have more to do than its
client. Its message is made here: one, masked once, without extensions except permessage-deflate on request; the client
compares each answer with it. Compressed answers are counted, and the first ones read here.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import os
import time
import zlib
from collections.abc import Mapping
from typing import Any

from bench import compiler
from bench.errors import LoadError, last_line
from bench.load import histogram
from bench.load.base import Aim, ClosedLoop
from bench.load.own import MARK
from bench.load.sockets import Client, Connection
from bench.model import Burst, Load

MASK = b"\x00\x00\x00\x00"
# The load's mask: unmasking costs the same as with a random one.
MASKED = b"\x37\xfa\x21\x3d"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
COMPRESSED = 0x40
HANDSHAKE_TIMEOUT = 10.0
# As browsers ask for it.
OFFER = {"Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits"}
PATTERNS = ("echo", "broadcast", "open")
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class WebSocketGenerator(ClosedLoop):
    """The generator `websocket`. Options of the aim: `pattern`, one of PATTERNS; `kind`, text or binary; `deflate`."""

    name = "websocket"
    pipelines = True
    abilities = frozenset({"pattern", "kind", "deflate"})

    def missing(self) -> str | None:
        """The program has to be compiled, and hdrhistogram installed."""
        try:
            histogram.record(())
        except LoadError as exc:
            return str(exc)
        return compiler.missing()

    def command(self, aim: Aim, load: Load) -> list[str]:
        """One burst; the message and the expected answer are written into the aim's directory."""
        stem, key = aim.directory / f"{self.name}-{aim.port}", new_key()
        deflate = "deflate" in aim.options
        handshake = handshake_bytes(f"127.0.0.1:{aim.port}", aim.path, key, OFFER if deflate else {})
        stem.with_suffix(".head").write_bytes(handshake)
        stem.with_suffix(".frame").write_bytes(_message(aim, deflate))
        stem.with_suffix(".wanted").write_bytes(aim.body)
        argv = [str(compiler.compiled("websocket_load")), str(aim.port), str(load.connections), f"{load.seconds:g}"]
        argv += [str(load.pipeline), aim.options.get("pattern", "echo"), str(stem), _accept(key)]
        return [*argv, str(int(deflate))]

    def parse(self, output: str, load: Load) -> Burst:
        """Parse the last line; raises LoadError if it is missing, or if compressed answers differ from the message."""
        line = last_line(output, "nothing")
        if not line.startswith(MARK + "{"):
            raise LoadError(f"{self.name} did not finish; it printed: {line}")
        found: dict[str, Any] = json.loads(line[len(MARK) :])
        check_compressed(bytes.fromhex(found["sample"]), bytes.fromhex(found["wanted"]))
        recorded = histogram.counted(found["latencies"])
        known = histogram.latency(recorded)
        errors = {kind: count for kind, count in found["errors"].items() if count}
        encoded = histogram.encode(recorded) if known else None
        return Burst(found["requests"], found["seconds"], errors, known, found["received"], encoded)


def check_compressed(sample: bytes, wanted: bytes) -> None:
    """Raises LoadError when compressed messages of one socket, in a row, are not all the wanted one."""
    if not sample:
        return
    try:
        found = zlib.decompressobj(-zlib.MAX_WBITS).decompress(sample)
    except zlib.error as exc:
        raise LoadError(f"what the server has compressed cannot be read: {exc}") from None
    count, rest = divmod(len(found), len(wanted))
    if rest or found != wanted * count:
        raise LoadError("the server's compressed answers differ from the message sent")


def document(size: int) -> bytes:
    """A message as applications send them, so long: ASCII, and it can be compressed as such messages can."""
    made, length = [], 0
    for number in itertools.count():
        made.append(_ENTRY % (number * 7919 % 9973, number, number * 31 % 1000, number * 17 % 10000 / 100))
        length += len(made[-1])
        if length >= size:
            return "".join(made).encode()[:size]
    raise AssertionError


_ENTRY = '{"id":%d,"seq":%d,"kind":"trade","size":%d,"price":%.2f,"side":"buy"}'


def _message(aim: Aim, deflate: bool) -> bytes:
    """The frame that is sent again and again; compressed, it refers to nothing that was sent before."""
    opcode, payload = BINARY if aim.options.get("kind") == "binary" else TEXT, aim.body
    return _deflated(opcode, payload) if deflate else frame(opcode, payload, MASKED)


def _deflated(opcode: int, payload: bytes) -> bytes:
    # Servers may ask for a window as small as this.
    compressor = zlib.compressobj(wbits=-9)
    data = compressor.compress(payload) + compressor.flush(zlib.Z_SYNC_FLUSH)
    return frame(opcode | COMPRESSED, data.removesuffix(b"\0\0\xff\xff"), MASKED)


def new_key() -> str:
    """A new random Sec-WebSocket-Key."""
    return base64.b64encode(os.urandom(16)).decode()


def _accept(key: str) -> str:
    """What the server answers to a key (RFC 6455 section 4.2.2)."""
    return base64.b64encode(hashlib.sha1(key.encode() + _GUID).digest()).decode()


def frame(opcode: int, payload: bytes, mask: bytes = MASK) -> bytes:
    """One final client frame; an opcode may have COMPRESSED beside it."""
    size = len(payload)
    if size < 126:
        head = bytes((0x80 | opcode, 0x80 | size))
    elif size < 65536:
        head = bytes((0x80 | opcode, 0xFE)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, 0xFF)) + size.to_bytes(8, "big")
    stream = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return head + mask + (int.from_bytes(payload, "big") ^ stream).to_bytes(size, "big")


class FrameReader:
    """Feed bytes in any cut, get (opcode, payload) of complete server frames out."""

    __slots__ = ("_buffer",)

    def __init__(self, rest: bytes = b"") -> None:
        self._buffer = rest

    def keep(self, data: bytes) -> None:
        """Take bytes whose frames are asked for later."""
        self._buffer += data

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


def handshake_bytes(host: str, path: str, key: str = "", headers: Mapping[str, str] | None = None) -> bytes:
    """The request that opens a WebSocket; without a key, with one of its own."""
    key = key or new_key()
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    return (
        f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n{more}\r\n"
    ).encode()


def upgrade(client: Client, connections: list[Connection], path: str, headers: Mapping[str, str] | None = None) -> None:
    """Open the WebSocket on each connection; raises LoadError when the server refuses."""
    head = handshake_bytes(f"127.0.0.1:{client.port}", path, headers=headers)
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


def say_compressed(client: Client, connections: list[Connection], body: bytes) -> None:
    """One compressed message on each connection, and its answer, of which only is seen that it comes."""
    message = _deflated(TEXT, body)
    for connection in connections:
        client.send(connection, message)
    waiting = {connection.sock.fileno() for connection in connections}
    deadline = time.perf_counter() + HANDSHAKE_TIMEOUT
    while waiting:
        if time.perf_counter() > deadline:
            raise LoadError(f"{len(waiting)} messages were not answered")
        for connection, data in client.wait(min(deadline, time.perf_counter() + 0.05)):
            if data is None:
                raise LoadError("the server closed behind a compressed message")
            waiting.discard(connection.sock.fileno())


def _handshake(connection: Connection, data: bytes | None, heads: dict[int, bytes]) -> None:
    number = connection.sock.fileno()
    if data is None:
        raise LoadError("the server closed during the handshake")
    if isinstance(connection.reader, FrameReader):
        # It speaks first, and others are not done yet.
        connection.reader.keep(data)
        return
    heads[number] += data
    head, separator, rest = heads[number].partition(b"\r\n\r\n")
    if not separator:
        return
    if not head.startswith(b"HTTP/1.1 101"):
        raise LoadError(f"the handshake was refused: {head.splitlines()[0][:60]!r}")
    connection.reader = FrameReader(rest)
    del heads[number]
