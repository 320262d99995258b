"""Small requests on an HTTP/2 connection that others keep full: how long does an answer wait behind large ones?

Several streams (`downloads` among the aim's options) ask for `download-path`, each again when it is complete; the
windows are as large as they can be, so nothing but the server decides what leaves next. Beside them, on the same
connection, small requests are sent one after the other. The time of each runs from its frame to the end of its answer.

The burst's latencies and requests are those of the small ones; its bytes include the downloads.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections import Counter

from bench.errors import LoadError
from bench.load import own
from bench.load.base import Aim, ClosedLoop
from bench.load.http2 import (
    ACK,
    DATA,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    LARGEST,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    frame_head,
    get,
    is_success,
    section,
)
from bench.load.sockets import trusting
from bench.model import Burst, Load

# The connection's window is extended after this many received bytes.
GIVEN_BACK = 2**24
READ_SIZE = 2**18
# Bytes that the client's kernel takes, and nothing overtakes: its own choice, and left alone it would be megabytes.
RECEIVE_BUFFER = 2**17
# Deadline in seconds.
PATIENCE = 15.0


def connect(aim: Aim) -> socket.socket:
    """One connection, encrypted if the aim is."""
    sock = socket.socket()
    sock.settimeout(PATIENCE)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    sock.connect(("127.0.0.1", aim.port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not aim.tls:
        return sock
    context = trusting()
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(sock)


class Beside:
    """One burst."""

    def __init__(self, aim: Aim, load: Load) -> None:
        """Opens the connection; raises OSError when the server does not take it."""
        self.aim, self.load = aim, load
        self.latencies: list[float] = []
        self.errors: Counter[str] = Counter()
        self.received = 0
        scheme, authority = aim.url.split(":", 1)[0], f"127.0.0.1:{aim.port}"
        self._small = section(aim.path, scheme, authority)
        self._large = section(aim.options.get("download-path", aim.path), scheme, authority)
        self._next_stream = 1
        self._downloads: set[int] = set()
        self._asked = 0
        self._since = 0.0
        self._length = 0
        self._taken = 0
        self._buffer = memoryview(bytearray(READ_SIZE))
        self._kept = 0
        self._sock = connect(aim)

    def run(self) -> Burst:
        """Until the load's seconds are over."""
        window = struct.pack("!HI", INITIAL_WINDOW_SIZE, LARGEST)
        first = frame(SETTINGS, 0, 0, window) + frame(WINDOW_UPDATE, 0, 0, struct.pack("!I", LARGEST - 65535))
        self._sock.sendall(PREFACE + first)
        for _ in range(int(self.aim.options.get("downloads", "0"))):
            self._download()
        begun = time.perf_counter()
        end = begun + self.load.seconds
        self._ask()
        while time.perf_counter() < end and not self.errors["lost"]:
            self._read()
        seconds = time.perf_counter() - begun
        self._sock.close()
        return own.burst(self.latencies, seconds, self.errors, self.received)

    def _request(self, fields: bytes) -> int:
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        self._sock.sendall(get(fields, stream, 1))
        return stream

    def _download(self) -> None:
        self._downloads.add(self._request(self._large))

    def _ask(self) -> None:
        self._since, self._length = time.perf_counter(), 0
        self._asked = self._request(self._small)

    def _read(self) -> None:
        count = self._sock.recv_into(self._buffer[self._kept :])
        self.received += count
        if not count:
            self.errors["lost"] += 1
            return
        at, end = 0, self._kept + count
        while end - at >= 9:
            length, kind, flags, stream = frame_head(self._buffer, at)
            behind = at + 9 + length
            if behind > end:
                break
            self._take(kind, flags, stream, self._buffer, at + 9, length)
            at = behind
        self._kept = end - at
        self._buffer[: self._kept] = bytes(self._buffer[at:end])

    def _take(self, kind: int, flags: int, stream: int, data: memoryview, start: int, length: int) -> None:
        if kind == DATA:
            self._give_back(length)
            if stream == self._asked:
                self._length += length
        elif kind == HEADERS and length and not is_success(bytes(data[start : start + min(length, 5)])):
            self.errors["status"] += 1
        elif kind == SETTINGS and not flags & ACK:
            self._sock.sendall(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self._sock.sendall(frame(PING, ACK, 0, bytes(data[start : start + length])))
        elif kind in (RST_STREAM, GOAWAY):
            self.errors["reset"] += 1
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            self._ended(stream)

    def _ended(self, stream: int) -> None:
        if stream in self._downloads:
            self._downloads.remove(stream)
            self._download()
        elif stream == self._asked:
            if self.aim.response_bytes not in (None, self._length):
                self.errors["length"] += 1
            self.latencies.append(time.perf_counter() - self._since)
            self._ask()

    def _give_back(self, length: int) -> None:
        self._taken += length
        if self._taken >= GIVEN_BACK:
            self._sock.sendall(frame(WINDOW_UPDATE, 0, 0, struct.pack("!I", self._taken)))
            self._taken = 0


def drive(aim: Aim, load: Load) -> Burst:
    """One burst; raises LoadError where the load is none for it."""
    if load.connections != 1:
        raise LoadError("beside is one connection")
    return Beside(aim, load).run()


class BesideGenerator(own.Own, ClosedLoop):
    """The generator `beside`."""

    name = "beside"
    module = "bench.load.beside"
    abilities = frozenset({"http2", "tls", "downloads", "download-path"})


if __name__ == "__main__":
    sys.exit(own.main(sys.argv, drive))
