"""Attacks on TLS, and on WebSockets over TLS, from tests/catalogue/threats.md, also for `scripts/http3-attacks`.

The application is that of `http2_attacks`. Its path `/echo` sends messages back.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import ssl
import struct
import subprocess
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator

from tests.native.http3_attacks import ENDLESS, Address, Attack, Steps, nothing

PATIENCE = 2.0
"""Seconds that a client waits for the server to close."""
AT_ONCE = 20
MASK = b"\x11\x22\x33\x44"
TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9
FIN, COMPRESSED, MASKED = 0x80, 0x40, 0x80
TOO_LARGE, POLICY, PROTOCOL = "close 1009", "close 1008", "close 1002"
CLOSED = "closed"
ALERT = "alert"
MEGABYTES = 64


def context() -> ssl.SSLContext:
    """Of a client that trusts anyone."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return made


def ws_frame(opcode: int, payload: bytes, *, first: int = FIN, masked: bool = True, length: int | None = None) -> bytes:
    """A frame of a client, perhaps with another length than its payload has."""
    size = len(payload) if length is None else length
    bit = MASKED if masked else 0
    if size < 126:
        head = bytes((first | opcode, bit | size))
    elif size < 65536:
        head = bytes((first | opcode, bit | 126)) + struct.pack("!H", size)
    else:
        head = bytes((first | opcode, bit | 127)) + struct.pack("!Q", size)
    key = int.from_bytes((MASK * (len(payload) // 4 + 1))[: len(payload)], "big")
    data = (int.from_bytes(payload, "big") ^ key).to_bytes(len(payload), "big") if masked else payload
    return head + (MASK if masked else b"") + data


class WebSocket:
    """A connection with a WebSocket on it, whose calls wait for a moment at most."""

    def __init__(self, address: Address, path: str = "/", *, deflate: bool = False) -> None:
        self.sock = context().wrap_socket(socket.create_connection(address, timeout=10))
        extension = "Sec-WebSocket-Extensions: permessage-deflate\r\n" if deflate else ""
        self.sock.sendall(
            f"GET {path} HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{extension}"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        self.input = b""
        while b"\r\n\r\n" not in self.input:
            data = self.sock.recv(4096)
            if not data:
                raise ConnectionError("no handshake")
            self.input += data
        self.input = self.input.partition(b"\r\n\r\n")[2]
        self.sent = 0

    def send(self, data: bytes) -> bool:
        """Send it; whether the server takes more."""
        self.sock.settimeout(0.2)
        try:
            self.sock.sendall(data)
            self.sent += 1
        except OSError:
            return False
        return True

    def read(self) -> None:
        """Take what there is."""
        self.sock.setblocking(False)
        with contextlib.suppress(OSError):
            while data := self.sock.recv(65536):
                self.input += data

    def end(self, ends: Counter[str], wait: float = PATIENCE) -> None:
        """Wait until the server closes, and note how."""
        self.sock.settimeout(wait)
        try:
            while data := self.sock.recv(65536):
                self.input += data
            closed = True
        except TimeoutError:
            closed = False
        except OSError:
            closed = True
        ends["sent"] += self.sent
        ends[self._code() or (CLOSED if closed else "open")] += 1
        self.sock.close()

    def _code(self) -> str:
        data = self.input
        while len(data) >= 2:
            start, size = 2, data[1] & 0x7F
            if size == 126:
                start, size = 4, int.from_bytes(data[2:4], "big")
            elif size == 127:
                start, size = 10, int.from_bytes(data[2:10], "big")
            if data[0] & 0xF == CLOSE:
                return f"close {int.from_bytes(data[start : start + 2], 'big')}"
            data = data[start + size :]
        return ""


def over_websocket(
    pieces: Callable[[], Iterator[bytes]], *, path: str = "/", deflate: bool = False, reads: bool = True
) -> Callable[[Address, Counter[str]], Steps]:
    """Send pieces on one WebSocket after the other, as long as the server takes them."""

    def steps(address: Address, ends: Counter[str]) -> Steps:
        while True:
            one = WebSocket(address, path, deflate=deflate)
            try:
                for number, piece in enumerate(pieces()):
                    if not one.send(piece):
                        break
                    if reads and number % 16 == 0:
                        one.read()
                    yield
            finally:
                one.end(ends)

    return steps


def endless(begin: bytes, piece: bytes, count: int = 100_000) -> Callable[[], Iterator[bytes]]:
    """A beginning, and the same without end."""

    def pieces() -> Iterator[bytes]:
        yield begin
        together = piece * max(1, 4000 // len(piece))
        for _ in range(count):
            yield together

    return pieces


@functools.cache
def deflated(size: int) -> bytes:
    """A compressed message of so many zeros."""
    maker = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = b"".join(maker.compress(bytes(2**20)) for _ in range(size)) + maker.flush(zlib.Z_SYNC_FLUSH)
    return ws_frame(BINARY, data.removesuffix(b"\0\0\xff\xff"), first=FIN | COMPRESSED)


def bombs() -> Iterator[bytes]:
    """64 MiB in 64 KiB."""
    yield deflated(MEGABYTES)


def tiny_records(address: Address, ends: Counter[str]) -> Steps:
    """Messages, each byte in a record of its own."""
    one = WebSocket(address)
    data = ws_frame(TEXT, b"hello")
    while True:
        for place in range(len(data)):
            one.send(data[place : place + 1])
        ends["sent"] += len(data)
        yield


def slow_handshakes(address: Address, ends: Counter[str]) -> Steps:
    """Handshakes by the byte."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context().wrap_bio(incoming, outgoing, server_hostname="a")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read()
    socks = [socket.create_connection(address, timeout=1) for _ in range(AT_ONCE * 10)]
    try:
        for place in range(len(hello) - 1):
            for sock in socks:
                with contextlib.suppress(OSError):
                    sock.sendall(hello[place : place + 1])
                ends["sent"] += 1
            yield
            time.sleep(0.02)
    finally:
        for sock in socks:
            sock.close()


def abandoned_handshakes(address: Address, ends: Counter[str]) -> Steps:
    """A ClientHello, and nothing behind the server's answer."""
    while True:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context().wrap_bio(incoming, outgoing, server_hostname="a")
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
        with socket.create_connection(address, timeout=5) as sock:
            sock.sendall(outgoing.read())
            ends["answers"] += bool(sock.recv(1))
        ends["sent"] += 1
        yield


def garbage_records(address: Address, ends: Counter[str]) -> Steps:
    """Records that cannot be opened, behind a WebSocket's handshake."""
    while True:
        one = WebSocket(address)
        raw = socket.socket(fileno=os.dup(one.sock.fileno()))
        raw.sendall(b"\x17\x03\x03\x00\x40" + os.urandom(64))
        raw.close()
        one.sock.settimeout(PATIENCE)
        try:
            ends[CLOSED] += not one.sock.recv(100)
        except ssl.SSLError:
            ends[ALERT] += 1
        except OSError:
            ends[CLOSED] += 1
        one.sock.close()
        ends["sent"] += 1
        yield


def key_updates(address: Address, ends: Counter[str]) -> Steps:
    """Requests for new keys, by openssl's client."""
    command = ["openssl", "s_client", "-connect", f"{address[0]}:{address[1]}", "-tls1_3", "-noservername"]
    if shutil.which("openssl") is None:
        return
    while True:
        client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert client.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            for _ in range(2000):
                client.stdin.write(b"K\n")
                client.stdin.flush()
                ends["sent"] += 1
                if client.poll() is not None:
                    break
                yield
                time.sleep(0.0005)  # a line that is not read alone is no command
        ends[CLOSED if client.poll() is not None else "open"] += 1
        client.kill()
        client.wait()
        with contextlib.suppress(BrokenPipeError):
            client.stdin.close()


def close_races(address: Address, ends: Counter[str]) -> Steps:
    """A close frame with messages in front and behind, and the end of the stream at once."""
    while True:
        one = WebSocket(address, "/echo")
        one.send(ws_frame(TEXT, b"x") * 50 + ws_frame(CLOSE, b"\x03\xe8") + ws_frame(TEXT, b"y") * 50)
        with contextlib.suppress(OSError, ValueError):
            one.sock.unwrap()
        one.end(ends)
        yield


LARGE = ws_frame(BINARY, bytes(65536))

TLS_ATTACKS = [
    Attack("T8", "TLS, slow handshakes", nothing, ENDLESS, stranger=slow_handshakes),
    Attack("T8", "TLS, handshakes given up", nothing, "answers", stranger=abandoned_handshakes),
    Attack("T9", "TLS, a byte in a record", nothing, ENDLESS, stranger=tiny_records),
    Attack("T9", "TLS, records that cannot be opened", nothing, ALERT, stranger=garbage_records),
    Attack("T9", "TLS, key updates", nothing, CLOSED, stranger=key_updates),
    Attack(
        "W9",
        "WebSocket, empty fragments",
        nothing,
        POLICY,
        stranger=over_websocket(endless(ws_frame(TEXT, b"", first=0), ws_frame(0, b"", first=0))),
    ),
    Attack(
        "W9",
        "WebSocket, fragments of 1 byte",
        nothing,
        POLICY,
        stranger=over_websocket(endless(ws_frame(TEXT, b"x", first=0), ws_frame(0, b"x", first=0))),
    ),
    Attack(
        "W8",
        "WebSocket, a message without end",
        nothing,
        TOO_LARGE,
        stranger=over_websocket(endless(ws_frame(BINARY, b"x", first=0), ws_frame(0, bytes(60_000), first=0))),
    ),
    Attack(
        "W8",
        "WebSocket, a compression bomb",
        nothing,
        TOO_LARGE,
        held=2**24,
        stranger=over_websocket(bombs, deflate=True),
    ),
    Attack(
        "W8",
        "WebSocket, a frame of 1 GiB",
        nothing,
        TOO_LARGE,
        stranger=over_websocket(endless(ws_frame(BINARY, b"x", length=2**30), bytes(4000))),
    ),
    Attack(
        "W11",
        "WebSocket, frames without a mask",
        nothing,
        PROTOCOL,
        stranger=over_websocket(endless(b"", ws_frame(TEXT, b"x", masked=False), 1)),
    ),
    Attack(
        "W14",
        "WebSocket, half a frame",
        nothing,
        "close 1011",
        stranger=over_websocket(lambda: iter([ws_frame(TEXT, b"xx")[:3]])),
    ),
    Attack(
        "W14",
        "WebSocket, pings",
        nothing,
        "close 1011",
        stranger=over_websocket(endless(b"", ws_frame(PING, bytes(125)), 2000)),
    ),
    Attack(
        "W14",
        "WebSocket, pings, nothing read",
        nothing,
        "close 1011",
        stranger=over_websocket(endless(b"", ws_frame(PING, bytes(125))), reads=False),
    ),
    Attack(
        "W3",
        "WebSocket, echoes that are not read",
        nothing,
        "close 1011",
        stranger=over_websocket(endless(b"", LARGE), path="/echo", reads=False),
    ),
    Attack("W3", "WebSocket, races to close", nothing, "close 1000", stranger=close_races, otherwise=CLOSED),
]
