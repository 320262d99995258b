"""Attacks on QUIC and HTTP/3 from tests/catalogue/threats.md: what clients and strangers send, and the expected end.

`scripts/http3-attacks` sends them to a server that serves others meanwhile. A client makes its handshake by aioquic;
its packets are made here, of any frames. The application is that of `http2_attacks`.
"""

from __future__ import annotations

import os
import random
import select
import socket
import ssl
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import pylsqpack
from aioquic._buffer import Buffer
from aioquic._crypto import CryptoError
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.crypto import CryptoPair
from aioquic.quic.events import ConnectionTerminated
from aioquic.quic.packet import QuicErrorCode
from aioquic.tls import Epoch

Address = tuple[str, int]

PATIENCE = 10.0
ROUNDS = 1_000_000
AT_ONCE = 100
"""Requests on a connection, below the limit of the server."""
LARGEST = 2**62 - 1
SIZE = 1200
"""Bytes of frames in a packet."""
MOMENT = 0.002
"""Seconds that an attacker waits for the server to do something."""
FLIGHT = 32
"""Packets that are not acknowledged: more would be lost in the server's socket."""

CODES = {
    0x100: "H3_NO_ERROR",
    0x101: "H3_GENERAL_PROTOCOL_ERROR",
    0x102: "H3_INTERNAL_ERROR",
    0x103: "H3_STREAM_CREATION_ERROR",
    0x104: "H3_CLOSED_CRITICAL_STREAM",
    0x105: "H3_FRAME_UNEXPECTED",
    0x106: "H3_FRAME_ERROR",
    0x107: "H3_EXCESSIVE_LOAD",
    0x108: "H3_ID_ERROR",
    0x109: "H3_SETTINGS_ERROR",
    0x10A: "H3_MISSING_SETTINGS",
    0x10B: "H3_REQUEST_REJECTED",
    0x10C: "H3_REQUEST_CANCELLED",
    0x10D: "H3_REQUEST_INCOMPLETE",
    0x10E: "H3_MESSAGE_ERROR",
    0x200: "QPACK_DECOMPRESSION_FAILED",
    0x201: "QPACK_ENCODER_STREAM_ERROR",
    0x202: "QPACK_DECODER_STREAM_ERROR",
}

TRANSPORT = {int(code): code.name for code in QuicErrorCode}
CONTROL, ENCODER, DECODER = 2, 6, 10
"""The streams of the client."""

LOAD = "H3_EXCESSIVE_LOAD"
SERVED = "200"
TOO_LATE = "408"
IDLE = "H3_NO_ERROR"
"""The deadline of a connection without requests."""
ID_LIMIT = "CONNECTION_ID_LIMIT_ERROR"
CANCELLED = "reset H3_REQUEST_CANCELLED"
ENDLESS = ""
"""Nothing ends it: it costs the server less than its sender, and others are served."""


# Frames of QUIC (RFC 9000 section 19).


def varint(value: int) -> bytes:
    """RFC 9000 section 16"""
    for length, mark in ((1, 0), (2, 0x40), (4, 0x80)):
        if value < 1 << (8 * length - 2):
            return (value | mark << 8 * (length - 1)).to_bytes(length, "big")
    return (value | 0xC0 << 56).to_bytes(8, "big")


def integers(kind: int, *values: int, data: bytes = b"") -> bytes:
    """A frame of integers, and `data`."""
    return varint(kind) + b"".join(map(varint, values)) + data


def stream(number: int, data: bytes = b"", offset: int = 0, *, end: bool = False) -> bytes:
    """STREAM"""
    return integers(0x0E | end, number, offset, len(data), data=data)


def crypto(offset: int, data: bytes) -> bytes:
    """CRYPTO"""
    return integers(0x06, offset, len(data), data=data)


def reset(number: int, size: int = 0) -> bytes:
    """RESET_STREAM"""
    return integers(0x04, number, 0x10C, size)


def stop(number: int) -> bytes:
    """STOP_SENDING"""
    return integers(0x05, number, 0x10C)


def new_id(sequence: int, retire: int) -> bytes:
    """NEW_CONNECTION_ID"""
    return integers(0x18, sequence, retire, data=b"\x08" + sequence.to_bytes(8, "big") + os.urandom(16))


PING = b"\x01"


# Frames of HTTP/3, without compression.


def frame(kind: int, payload: bytes = b"") -> bytes:
    """RFC 9114 section 7.1"""
    return varint(kind) + varint(len(payload)) + payload


def head(path: bytes = b"/", *fields: tuple[bytes, bytes], method: bytes = b"GET", protocol: bytes = b"") -> bytes:
    """The HEADERS of a request: literal fields (RFC 9204 section 4.5.6)."""
    pairs = [(b":method", method), (b":scheme", b"https"), (b":authority", b"a"), (b":path", path)]
    pairs += [(b":protocol", protocol)] if protocol else []
    return frame(0x01, b"\0\0" + b"".join(literal(*pair) for pair in (*pairs, *fields)))


def literal(name: bytes, value: bytes) -> bytes:
    """A field whose name is up to 133 bytes, and its value up to 253."""
    first = bytes((0x20 | len(name),)) if len(name) < 7 else bytes((0x27, len(name) - 7))
    second = bytes((len(value),)) if len(value) < 127 else bytes((0x7F, len(value) - 127))
    return first + name + second + value


POST = head(method=b"POST")
GET = head()
WEBSOCKET = head(b"/", (b"sec-websocket-version", b"13"), method=b"CONNECT", protocol=b"websocket")
BLOCKED = frame(0x01, b"\x02\0\xd1\xd7\xc1\x50\x01a\x80")
"""A request that waits for the first entry of the table."""
CAPACITY = b"\x3f\xe1\x1f"
"""Of the table: 4096."""
ENTRY = b"\x41a\x01b"


class Client:
    """A connection to a server. aioquic makes the handshake; behind it packets are made here, of any frames."""

    def __init__(self, address: Address, source: str = "127.0.0.1", **configuration: Any) -> None:
        self.address = address
        self.sock = bound(address, source)
        settings: dict[str, Any] = {"max_data": 2**40, "max_stream_data": 2**40, **configuration}
        quic = QuicConnection(
            configuration=QuicConfiguration(
                is_client=True, alpn_protocols=["h3"], verify_mode=ssl.CERT_NONE, server_name="localhost", **settings
            ),
            token_handler=lambda token: self.tokens.append(token),
        )
        self.quic: Any = quic
        self.tokens: list[bytes] = []
        self.is_known = False
        self.ended = ""
        """The code by which the server has closed the connection."""
        self.ends: Counter[str] = Counter()
        self.over: set[int] = set()
        """Streams whose responses are complete."""
        self.datagrams = 0
        self.acknowledges = True
        self.is_acknowledged = True
        self.ids: list[tuple[int, bytes]] = []
        """Of the server's, with their numbers."""
        self.number = 0
        """Of the next packet."""
        self.acknowledged = -1
        self.limits: dict[str, int] = {}
        self._came: list[list[int]] = []
        self._unacknowledged: dict[int, bytes] = {}
        self._progress = 0.0
        self._offsets: Counter[int] = Counter()
        self._input: dict[int, bytearray] = {}
        self._next = 0
        self._decoder = pylsqpack.Decoder(0, 0)
        self.quic.connect(address, time.monotonic())

    # The handshake.

    def shake(self) -> bool:
        """Make the handshake; whether the server took part in it."""
        deadline = time.monotonic() + PATIENCE
        while not (self.is_known or self.ended) and time.monotonic() < deadline:
            for data, _ in self.quic.datagrams_to_send(time.monotonic()):
                self.put(data)
            select.select([self.sock], [], [], 0.01)
            for data in self._arrived():
                self.quic.receive_datagram(data, self.address, time.monotonic())
            timer = self.quic.get_timer()
            if timer is not None and timer <= time.monotonic():
                self.quic.handle_timer(time.monotonic())
            while (event := self.quic.next_event()) is not None:
                if isinstance(event, ConnectionTerminated):
                    self._end(int(event.error_code))
            self.is_known = self.quic._handshake_confirmed
        return self.is_known

    def begin(self) -> bool:
        """Make the handshake, and open the streams of HTTP/3."""
        if not self.shake():
            return False
        for data, _ in self.quic.datagrams_to_send(time.monotonic()):
            self.put(data)
        quic = self.quic
        self._pair = quic._cryptos[Epoch.ONE_RTT]
        self.number = quic._packet_number
        self.acknowledged = self.number - 1
        self.ids = [(0, quic._peer_cid.cid), *((one.sequence_number, one.cid) for one in quic._peer_cid_available)]
        self._expected = quic._spaces[Epoch.ONE_RTT].expected_packet_number
        self._came = [[one.start, one.stop] for one in quic._spaces[Epoch.ONE_RTT].ack_queue]
        self.limits = {
            "data": quic._remote_max_data,
            "bidirectional": quic._remote_max_streams_bidi,
            "unidirectional": quic._remote_max_streams_uni,
        }
        self.send(self.on(CONTROL, b"\0" + frame(0x04)) + self.on(ENCODER, b"\x02") + self.on(DECODER, b"\x03"))
        return True

    def put(self, data: bytes) -> None:
        """Send a datagram."""
        self.datagrams += 1
        try:
            self.sock.send(data)
        except (BlockingIOError, ConnectionRefusedError):
            time.sleep(0.0005)

    def _arrived(self, sock: socket.socket | None = None) -> Iterator[bytes]:
        while True:
            try:
                yield (sock or self.sock).recv(65536)
            except (BlockingIOError, ConnectionRefusedError):
                return

    def _end(self, code: int) -> None:
        self.ended = CODES.get(code) or TRANSPORT.get(code) or hex(code)
        self.ends[self.ended] += 1

    # Packets.

    def send(self, frames: bytes) -> None:
        """Send a packet of these frames."""
        number, self.number = self.number, self.number + 1
        header = bytes((0x41 | self._pair.key_phase << 2,)) + self.ids[0][1] + (number & 0xFFFF).to_bytes(2, "big")
        if not self._unacknowledged:
            self._progress = time.monotonic()
        self._unacknowledged[number] = frames
        self.put(self._pair.encrypt_packet(header, frames.ljust(4, b"\0"), number))

    def read(self) -> bool:
        """Take what has come, and acknowledge it; whether there was something."""
        came = False
        for data in self._arrived():
            came = True
            self._take_packet(data)
        if not self.is_acknowledged and self.acknowledges and not self.ended:
            self.acknowledge()
        self._repeat()
        return came

    def _take_packet(self, data: bytes) -> None:
        if data[0] & 0x80:
            return  # of the handshake, repeated
        try:
            _, frames, number = self._pair.decrypt_packet(data, 1 + len(self.quic.host_cid), self._expected)
        except CryptoError:
            if len(data) >= 21 and data[-16:] in self.quic._peer_cid.stateless_reset_token:
                self.ended = "reset"
            return
        if any(start <= number < stop for start, stop in self._came):
            return
        self._expected = max(self._expected, number + 1)
        if self._came and self._came[-1][1] == number:
            self._came[-1][1] += 1
        else:
            self._came = sorted([*self._came[-16:], [number, number + 1]])
        self._take_frames(Buffer(data=frames))

    def acknowledge(self) -> None:
        """ACK: all that has come."""
        self.is_acknowledged = True
        start, stop = self._came[-1]
        more = b""
        for lower, upper in reversed(self._came[:-1]):
            more += varint(max(start - upper - 1, 0)) + varint(upper - lower - 1)
            start = lower
        first = self._came[-1]
        self.number += 1
        frames = integers(0x02, stop - 1, 0, len(self._came) - 1, first[1] - first[0] - 1, data=more)
        header = bytes((0x41 | self._pair.key_phase << 2,)) + self.ids[0][1]
        number = self.number - 1
        self.put(self._pair.encrypt_packet(header + (number & 0xFFFF).to_bytes(2, "big"), frames, number))

    def _repeat(self) -> None:
        """Send what was lost again: it has not been acknowledged for long."""
        if self._unacknowledged and time.monotonic() - self._progress > 0.1 and not self.ended:
            lost, self._unacknowledged = self._unacknowledged, {}
            for frames in list(lost.values())[:FLIGHT]:
                self.send(frames)

    def _take_frames(self, buffer: Any) -> None:
        while not buffer.eof():
            kind = buffer.pull_uint_var()
            if kind not in (0x00, 0x02, 0x03, 0x1C, 0x1D):
                self.is_acknowledged = False
            self._take_frame(kind, buffer)

    def _take_frame(self, kind: int, buffer: Any) -> None:
        pull = buffer.pull_uint_var
        if kind in (0x02, 0x03):
            self._take_acknowledgement(buffer)
            for _ in range(3 * (kind - 2)):
                pull()
        elif kind == 0x04:
            number, code, _ = pull(), pull(), pull()
            self.ends[f"reset {CODES.get(code, hex(code))}"] += 1
            self.over.add(number)
        elif kind == 0x05:
            _, code = pull(), pull()
            self.ends[f"stop {CODES.get(code, hex(code))}"] += 1
        elif kind == 0x06:
            pull()
            buffer.pull_bytes(pull())
        elif kind == 0x07:
            self.tokens.append(buffer.pull_bytes(pull()))
        elif 0x08 <= kind < 0x10:
            number = pull()
            offset = pull() if kind & 4 else 0
            length = pull() if kind & 2 else buffer.capacity - buffer.tell()
            self._take_data(number, offset, buffer.pull_bytes(length), bool(kind & 1))
        elif kind in (0x10, 0x12, 0x13):
            name = {0x10: "data", 0x12: "bidirectional", 0x13: "unidirectional"}[kind]
            self.limits[name] = max(self.limits[name], pull())
        elif kind in (0x11, 0x15):
            pull(), pull()
        elif kind in (0x14, 0x16, 0x17, 0x19):
            pull()
        elif kind == 0x18:
            sequence, _ = pull(), pull()
            self.ids.append((sequence, buffer.pull_bytes(buffer.pull_uint8())))
            buffer.pull_bytes(16)
        elif kind in (0x1A, 0x1B):
            token = buffer.pull_bytes(8)
            if kind == 0x1A and self.acknowledges:
                self.send(integers(0x1B, data=token))
        elif kind in (0x1C, 0x1D):
            code = pull()
            if kind == 0x1C:
                pull()
            buffer.pull_bytes(pull())
            self._end(code)

    def _take_acknowledgement(self, buffer: Any) -> None:
        largest, _, count, first = (buffer.pull_uint_var() for _ in range(4))
        ranges = [(largest - first, largest)]
        for _ in range(count):
            gap, length = buffer.pull_uint_var(), buffer.pull_uint_var()
            top = ranges[-1][0] - gap - 2
            ranges.append((top - length, top))
        self.acknowledged = max(self.acknowledged, largest)
        for number in list(self._unacknowledged):
            if any(low <= number <= high for low, high in ranges):
                del self._unacknowledged[number]
                self._progress = time.monotonic()

    def _take_data(self, number: int, offset: int, data: bytes, end: bool) -> None:
        """Look at the beginning of a response, which tells its status."""
        if number & 3:
            return
        if end:
            self.over.add(number)
        if offset or len(data) < 3 or data[0] != 1:
            return
        at = Buffer(data=data[1:])
        section = at.pull_bytes(min(at.pull_uint_var(), at.capacity - at.tell()))
        try:
            _, fields = self._decoder.feed_header(number, section)
        except pylsqpack.DecompressionFailed:
            return  # its rest is in another packet
        self.ends.update(value.decode() for name, value in fields if name == b":status")

    # Streams.

    def is_ahead(self) -> bool:
        """As many packets are on their way as may be."""
        return len(self._unacknowledged) >= FLIGHT

    def is_heard(self) -> bool:
        """All packets were acknowledged."""
        return not self._unacknowledged

    def on(self, number: int, data: bytes, *, end: bool = False) -> bytes:
        """The next data of a stream."""
        offset = self._offsets[number]
        self._offsets[number] += len(data)
        return stream(number, data, offset, end=end)

    def sent(self, number: int) -> int:
        """Bytes of a stream so far."""
        return self._offsets[number]

    def may_open(self, number: int) -> bool:
        """Whether the server allows a stream of this number."""
        return number // 4 < self.limits["unidirectional" if number & 2 else "bidirectional"]

    def room(self) -> int:
        """Bytes that the server still takes on all streams."""
        return self.limits["data"] - sum(self._offsets.values())

    def ask(self, path: bytes = b"/") -> bool:
        """Send a request; whether its response came."""
        number, self._next = self._next, self._next + 4
        self.send(self.on(number, head(path), end=True))
        deadline = time.monotonic() + PATIENCE
        while number not in self.over and not self.ended and time.monotonic() < deadline:
            select.select([self.sock], [], [], 0.05)
            self.read()
        return number in self.over

    def close(self) -> None:
        """Leave, and say so."""
        if self.ids and not self.ended:
            self.send(integers(0x1D, 0x100, 0))
        self.sock.close()


def bound(address: Address, source: str) -> socket.socket:
    """A socket of this source for datagrams to the address."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**21)
    sock.bind((source, 0))
    sock.connect(address)
    sock.setblocking(False)
    return sock


# Attacks.

Steps = Generator[None, None, None]
Packets = Iterator[bytes | None]
"""The frames of each packet; `None`: wait until all were acknowledged, or for a moment."""


@dataclass(frozen=True)
class Attack:
    """What one client sends, again and again."""

    threat: str
    name: str
    packets: Callable[[Client], Packets]
    end: str = LOAD
    """What it is told, or what becomes of it."""
    configuration: dict[str, Any] = field(default_factory=dict)
    reads: bool = True
    """Its client acknowledges what it gets."""
    waits: bool = False
    """For a deadline of the server's."""
    stranger: Callable[[Address, Counter[str]], Steps] | None = None
    """What is sent without a connection, one step after the other."""
    held: int = 0
    """Bytes of responses that the server may keep for it, for its applications' sake."""
    otherwise: str = ""
    """What may end it instead, by how fast its client is."""


def each(*frames: bytes) -> Callable[[Client], Packets]:
    """Packets full of these frames."""
    one = b"".join(frames)
    full = one * max(1, SIZE // len(one))
    return lambda client: iter([full] * ROUNDS)


def counted(make: Callable[[int], bytes], at_once: int = 30) -> Callable[[Client], Packets]:
    """Packets of frames that have a number."""

    def packets(client: Client) -> Packets:
        for first in range(0, ROUNDS, at_once):
            yield b"".join(map(make, range(first, first + at_once)))

    return packets


def on_each_stream(
    make: Callable[[Client, int], bytes], *, uni: bool = False, at_once: int = 10
) -> Callable[[Client], Packets]:
    """One stream after the other, as the server allows them."""

    def packets(client: Client) -> Packets:
        number = 14 if uni else 0
        for _ in range(ROUNDS):
            frames = b""
            for _ in range(at_once):
                while not client.may_open(number):
                    yield frames or None
                    frames = b""
                frames += make(client, number)
                number += 4
            yield frames

    return packets


def in_stream(
    begin: bytes, data: bytes, *, kind: int | None = None, rounds: int = ROUNDS, end: bool = False
) -> Callable[[Client], Packets]:
    """The same data on one stream, without end; of a `kind` of its own, or a request's."""

    def packets(client: Client) -> Packets:
        number = 0 if kind is None else kind
        if begin:
            yield client.on(number, begin)
        part = data * max(1, 1000 // len(data))
        for _ in range(rounds):
            while client.room() < len(part):
                yield None
            yield client.on(number, part)
        if end:
            yield client.on(number, b"", end=True)

    return packets


def once(make: Callable[[Client], list[bytes]]) -> Callable[[Client], Packets]:
    """These packets, and then nothing."""
    return lambda client: iter(make(client))


def requests(path: bytes, *frames: bytes) -> Callable[[Client], Packets]:
    """As many as a connection may have, each with `frames` behind."""

    def make(client: Client) -> list[bytes]:
        return [client.on(4 * number, head(path), end=True) + b"".join(frames) for number in range(AT_ONCE)]

    return once(make)


def windows_by_the_byte(client: Client) -> Packets:
    """A large response, whose window grows by a byte."""
    yield client.on(0, head(b"/large"), end=True)
    for size in range(1, ROUNDS):
        yield integers(0x11, 0, size) + integers(0x10, 10_000 + size)


def many_priorities(client: Client) -> Packets:
    """PRIORITY_UPDATE for streams that are open, and that are not."""
    number = CONTROL
    for _ in range(ROUNDS):
        data = b"".join(frame(0xF0700, varint(4 * stream) + b"u=%d" % (stream % 8)) for stream in range(60))
        while client.room() < len(data):
            yield None
        yield client.on(number, data)


def rising(kind: int) -> Callable[[Client], Packets]:
    """Control frames whose identifier may only rise."""

    def packets(client: Client) -> Packets:
        number = CONTROL
        for value in range(0, ROUNDS, 100):
            data = b"".join(frame(kind, varint(one)) for one in range(value, value + 100))
            while client.room() < len(data):
                yield None
            yield client.on(number, data)

    return packets


def holes(client: Client) -> Packets:
    """Every other byte of a body, the last ones first."""
    yield client.on(0, head(b"/wait", method=b"POST") + b"\0\x80\x0f\x42\x40")
    begin = client.sent(0)
    for first in range(60_000, 0, -200):
        yield b"".join(stream(0, b"x", begin + at) for at in range(first, first + 200, 2))
    while True:  # and again
        for first in range(60_000, 0, -200):
            yield b"".join(stream(0, b"x", begin + at) for at in range(first, first + 200, 2))


def repeated(client: Client) -> Packets:
    """The same bytes of a body over and over."""
    yield client.on(0, head(b"/wait", method=b"POST") + b"\0\x80\x0f\x42\x40")
    begin = client.sent(0) + 1
    while True:
        yield stream(0, bytes(1150), begin)


def crowded(client: Client) -> Packets:
    """Bytes with gaps between them, then many frames of one of them in each packet."""
    yield client.on(0, head(b"/wait", method=b"POST") + b"\0\x80\x0f\x42\x40")
    begin = client.sent(0) + 1
    for first in range(0, 1800, 200):
        yield b"".join(stream(0, b"x", begin + at) for at in range(first, first + 200, 2))
    while True:
        yield stream(0, b"x", begin) * 180


def by_the_byte(client: Client) -> Packets:
    """A body, a byte in a packet."""
    yield client.on(0, POST + b"\0\x80\x0f\x42\x40")
    for _ in range(1_000_000):
        yield client.on(0, b"x")


def in_tiny_frames(client: Client) -> Packets:
    """A body, a byte in a frame."""
    yield client.on(0, POST + b"\0\x80\x0f\x42\x40")
    for _ in range(5000):
        while client.room() < 200:
            yield None
        yield b"".join(client.on(0, b"x") for _ in range(200))


def acknowledgements(client: Client) -> Packets:
    """Of packets that have come, with as many ranges as there is room for."""
    for _ in range(ROUNDS):
        yield integers(0x02, 1, 0, 0, 1) * 200


def key_updates(client: Client) -> Packets:
    """New keys for each packet, once the server has the last ones."""
    for _ in range(ROUNDS):
        client._pair.update_key()
        yield PING
        yield None


def retired(client: Client) -> Packets:
    """Connection ids are given back as soon as they were issued."""
    done = 0
    for _ in range(ROUNDS):
        for sequence in [sequence for sequence, _ in client.ids if sequence > done]:
            done = sequence
            client.ids = [one for one in client.ids if one[0] != sequence]
            yield integers(0x19, sequence)
        yield None


def moves(client: Client) -> Packets:
    """Each packet comes from another address."""
    for _ in range(ROUNDS):
        client.sock.close()
        client.sock = bound(client.address, any_source())
        yield PING + bytes(1100)


def blocked(client: Client) -> Packets:
    """Requests that wait for the table are reset, and others come."""
    number = 0
    while True:
        while not client.may_open(number):
            yield None
        yield client.on(number, BLOCKED)
        yield reset(number, len(BLOCKED))
        number += 4


def any_source() -> str:
    """An address of this machine."""
    return f"127.{random.randrange(1, 255)}.{random.randrange(1, 255)}.{random.randrange(1, 255)}"


def unread(number: int) -> Callable[[Client], Packets]:
    """Requests without windows for their responses."""

    def make(client: Client) -> list[bytes]:
        return [client.on(4 * place, head(b"/stream"), end=True) for place in range(number)]

    return once(make)


# Attacks of strangers, who have no connection.


class Sources:
    """Some sockets on different addresses."""

    def __init__(self, address: Address, count: int = 64) -> None:
        self.socks = deque[socket.socket]()
        for _ in range(count):
            self.socks.append(bound(address, any_source()))

    def send(self, data: bytes, ends: Counter[str]) -> None:
        """Send from the next one."""
        sock = self.socks[0]
        self.socks.rotate()
        ends["sent"] += 1
        try:
            sock.send(data)
        except (BlockingIOError, ConnectionRefusedError):
            time.sleep(0.0005)
        try:
            while True:
                ends[kind_of(sock.recv(65536))] += 1
        except (BlockingIOError, ConnectionRefusedError):
            pass


def kind_of(data: bytes) -> str:
    """Of a packet of the server's, as its first byte tells."""
    if not data[0] & 0x80:
        return "stateless reset"
    if data[1:5] == bytes(4):
        return "version negotiation"
    return ("Initial", "0-RTT", "Handshake", "Retry")[data[0] >> 4 & 3]


class Strangers:
    """Makes Initials of ever new clients, out of one ClientHello."""

    def __init__(self, address: Address) -> None:
        client = Client(address)
        client.sock.close()
        self.source = client.quic.host_cid
        self.hello = bytes(client.quic._crypto_streams[Epoch.INITIAL].sender._buffer)
        self.meet()

    def meet(self) -> None:
        """Be another client from now on."""
        self.destination = os.urandom(8)
        self._pair = CryptoPair()
        self._pair.setup_initial(cid=self.destination, is_client=True, version=1)

    def initial(self, frames: bytes = b"", token: bytes = b"", packet: int = 0) -> bytes:
        """A datagram of 1200 bytes at least: with the whole ClientHello, or with these frames."""
        payload = (frames or crypto(0, self.hello)).ljust(SIZE - 60 - len(token), b"\0")
        header = b"\xc1\0\0\0\x01\x08" + self.destination + bytes((len(self.source),)) + self.source
        header += (
            varint(len(token)) + token + (len(payload) + 18 | 0x4000).to_bytes(2, "big") + packet.to_bytes(2, "big")
        )
        return bytes(self._pair.encrypt_packet(header, payload, packet)).ljust(SIZE, b"\0")

    def another(self, token: bytes = b"") -> bytes:
        """The Initial of another client."""
        self.meet()
        return self.initial(token=token)


def spoofed_initials(address: Address, ends: Counter[str]) -> Steps:
    """Clients that never answer."""
    return tokens(address, ends, lambda: b"")


def replayed_initials(address: Address, ends: Counter[str]) -> Steps:
    """The same few Initials from everywhere."""
    sources, strangers = Sources(address), Strangers(address)
    known = [strangers.another() for _ in range(50)]
    while True:
        for data in known:
            sources.send(data, ends)
        yield


def tokens(address: Address, ends: Counter[str], token: Callable[[], bytes]) -> Steps:
    """Initials with a token."""
    sources, strangers = Sources(address), Strangers(address)
    while True:
        sources.send(strangers.another(token()), ends)
        yield


def invalid_tokens(address: Address, ends: Counter[str]) -> Steps:
    """Tokens that the server has not made."""
    return tokens(address, ends, lambda: os.urandom(80))


def stolen_tokens(address: Address, ends: Counter[str]) -> Steps:
    """A token of another address."""
    client = Client(address, any_source())
    if client.begin():
        client.ask()
    client.close()
    return tokens(address, ends, lambda: client.tokens[-1])


def garbage(address: Address, ends: Counter[str]) -> Steps:
    """Nothing that means anything."""
    sources = Sources(address)
    while True:
        for _ in range(100):
            sources.send(os.urandom(random.randrange(1, 1300)), ends)
        yield


def foreign_packets(address: Address, ends: Counter[str]) -> Steps:
    """Packets of connections that the server does not know."""
    sources = Sources(address)
    while True:
        for _ in range(100):
            sources.send(b"\x41\0\0" + os.urandom(1000), ends)
        yield


def old_versions(address: Address, ends: Counter[str]) -> Steps:
    """A version that the server does not have."""
    sources = Sources(address)
    while True:
        for _ in range(100):
            sources.send(b"\xc0\xba\xba\xba\xba\x08" + os.urandom(8) + b"\x08" + os.urandom(8) + bytes(1200), ends)
        yield


def small_initials(address: Address, ends: Counter[str]) -> Steps:
    """Initials that are not padded."""
    sources, strangers = Sources(address), Strangers(address)
    while True:
        sources.send(strangers.another()[:600], ends)
        yield


def handshakes(address: Address, ends: Counter[str]) -> Steps:
    """Clients that are there, and leave at once."""
    while True:
        client = Client(address)
        ends["handshakes" if client.shake() else "no handshake"] += 1
        ends["sent"] += client.datagrams
        client.close()
        yield


def hello_in_pieces(address: Address, ends: Counter[str]) -> Steps:
    """A ClientHello by the byte, the last one first: a CRYPTO frame for each, and the first of them never."""
    sources, strangers = Sources(address), Strangers(address)
    while True:
        strangers.meet()
        hello = strangers.hello
        for packet, last in enumerate(range(len(hello), 200, -200)):
            frames = b"".join(crypto(at, hello[at : at + 1]) for at in range(last - 1, last - 200, -1))
            sources.send(strangers.initial(frames, packet=packet), ends)
            sources.socks.rotate(-1)
        sources.socks.rotate()
        yield


def nothing(client: Client) -> Packets:
    """No packets of a connection."""
    return iter(())


HELD = AT_ONCE * 3 * 65536
"""A piece that a stream of the server has, one above its high-water mark, and one that the application waits with."""
NO_WINDOW = {"max_stream_data": 0}
LENGTH_OF_ONE = head(b"/", (b"content-length", b"1"), method=b"POST")

ATTACKS = [
    Attack("H16", "spoofed Initials", nothing, "Retry", stranger=spoofed_initials),
    Attack("H16", "repeated Initials", nothing, "Initial", stranger=replayed_initials),
    Attack("H16", "Initials with an invalid token", nothing, "Retry", stranger=invalid_tokens),
    Attack("H16", "Initials with another's token", nothing, "Retry", stranger=stolen_tokens),
    Attack("H16", "Initials that are too small", nothing, ENDLESS, stranger=small_initials),
    Attack("H16", "a ClientHello by the byte", nothing, ENDLESS, stranger=hello_in_pieces),
    Attack("H16", "handshakes", nothing, "handshakes", stranger=handshakes),
    Attack("H17", "garbage", nothing, ENDLESS, stranger=garbage),
    Attack("H17", "packets of unknown connections", nothing, ENDLESS, stranger=foreign_packets),
    Attack("H17", "unknown versions", nothing, "version negotiation", stranger=old_versions),
    Attack("H18", "PING", each(PING)),
    Attack("H18", "ACK", acknowledgements),
    Attack("H18", "ACK of what was never sent", each(integers(0x02, 1 << 20, 0, 0, 0)), "PROTOCOL_VIOLATION"),
    Attack("H18", "PATH_CHALLENGE", each(integers(0x1A, data=b"12345678"))),
    Attack("H18", "NEW_CONNECTION_ID", counted(lambda n: new_id(n + 8, n + 8)), ID_LIMIT, otherwise=LOAD),
    Attack("H18", "NEW_CONNECTION_ID, repeated", each(new_id(7, 1)), ID_LIMIT),
    Attack("H18", "RETIRE_CONNECTION_ID", retired, IDLE),
    Attack("H18", "MAX_DATA", each(integers(0x10, 1))),
    Attack("H18", "DATA_BLOCKED", each(integers(0x14, 1))),
    Attack("H18", "STREAMS_BLOCKED", each(integers(0x16, 1))),
    Attack("H18", "padding", each(PING + bytes(1100)), IDLE, otherwise=LOAD),
    Attack("H18", "CRYPTO behind the handshake", each(crypto(1, bytes(1000))), IDLE, otherwise=LOAD),
    Attack("H18", "key updates", key_updates, IDLE),
    Attack("H18", "moves", moves, IDLE),
    Attack("H19", "a body by the byte", by_the_byte, ENDLESS),
    Attack("H19", "a body in frames of 1 byte", in_tiny_frames),
    Attack("H19", "holes in a body", holes, "INTERNAL_ERROR"),
    Attack("H19", "the same data again", repeated, SERVED),
    Attack("H19", "the same byte behind gaps", crowded),
    Attack(
        "H19", "empty STREAM frames", lambda client: iter([client.on(0, POST), *[stream(0, b"", 1) * 200] * ROUNDS])
    ),
    Attack("H1", "rapid reset", on_each_stream(lambda c, n: c.on(n, GET) + reset(n, len(GET)))),
    Attack("H1", "rapid reset and stop", on_each_stream(lambda c, n: c.on(n, GET) + stop(n) + reset(n, len(GET)))),
    Attack("H1", "rapid stop", on_each_stream(lambda c, n: c.on(n, head(b"/wait"), end=True) + stop(n))),
    Attack(
        "H1", "rapid reset of WebSockets", on_each_stream(lambda c, n: c.on(n, WEBSOCKET) + reset(n, len(WEBSOCKET)))
    ),
    Attack("H2", "streams that end empty", on_each_stream(lambda c, n: stream(n, end=True), at_once=30)),
    Attack("H2", "streams that are reset empty", on_each_stream(lambda c, n: reset(n), at_once=30)),
    Attack("H2", "a length and no body", on_each_stream(lambda c, n: c.on(n, LENGTH_OF_ONE, end=True))),
    Attack(
        "H2", "fields too large", on_each_stream(lambda c, n: c.on(n, b"\x01\x80\x10\0\0") + reset(n, 5), at_once=30)
    ),
    Attack("F20", "malformed fields", on_each_stream(lambda c, n: c.on(n, head(b"/", (b"A", b"b")), end=True))),
    Attack("H5", "PRIORITY_UPDATE", many_priorities),
    Attack("H6", "empty DATA", in_stream(POST, frame(0))),
    Attack("H6", "DATA of 1 byte", in_stream(head(b"/wait", method=b"POST"), frame(0, b"x"))),
    Attack("H6", "small messages", in_stream(POST, frame(0, b"12345"), rounds=300, end=True), SERVED),
    Attack("H6", "a response by the byte", windows_by_the_byte, configuration=NO_WINDOW),
    Attack("H9", "windows held at 0", requests(b"/large"), CANCELLED, NO_WINDOW, waits=True),
    Attack("H9", "windows held at 0, streams", requests(b"/stream"), CANCELLED, NO_WINDOW, waits=True, held=HELD),
    Attack("H9", "windows of 1 byte", requests(b"/stream"), CANCELLED, {"max_stream_data": 1}, waits=True, held=HELD),
    Attack(
        "H9", "window of the connection at 0", requests(b"/stream"), CANCELLED, {"max_data": 0}, waits=True, held=HELD
    ),
    Attack("H9", "nothing acknowledged", requests(b"/stream"), CANCELLED, reads=False, held=HELD),
    Attack(
        "H9",
        "requests whose bodies stop",
        lambda c: iter([c.on(4 * n, POST) for n in range(AT_ONCE)]),
        TOO_LATE,
        waits=True,
    ),
    Attack(
        "H9",
        "requests that stop inside",
        lambda c: iter([c.on(4 * n, POST[:9]) for n in range(AT_ONCE)]),
        TOO_LATE,
        waits=True,
    ),
    Attack("H11", "entries", in_stream(CAPACITY, ENTRY, kind=ENCODER)),
    Attack("H11", "large entries", in_stream(CAPACITY, b"\x41a\x7f\xd9\x06" + b"b" * 984, kind=ENCODER)),
    Attack("H11", "duplicates", in_stream(CAPACITY + ENTRY, b"\0", kind=ENCODER)),
    Attack("H11", "capacities", in_stream(b"", CAPACITY + b"\x20", kind=ENCODER)),
    Attack(
        "H12",
        "blocked streams",
        lambda c: iter([c.on(4 * n, BLOCKED) for n in range(AT_ONCE)]),
        "QPACK_DECOMPRESSION_FAILED",
    ),
    Attack("H12", "blocked streams, reset", blocked),
    Attack(
        "H4",
        "a large section of few bytes",
        on_each_stream(
            lambda c, n: c.on(n, frame(1, b"\0\0\xd1\xd7\xc1\x50\x01a" + b"\xf5" * 300), end=True), at_once=3
        ),
    ),
    Attack(
        "H4",
        "overlong integer",
        lambda c: iter([c.on(0, frame(1, b"\xff" + b"\x80" * 20))]),
        "QPACK_DECOMPRESSION_FAILED",
    ),
    Attack(
        "H13",
        "incomplete sections",
        lambda c: iter([c.on(4 * n, b"\x01\x7f\xff" + bytes(1100)) for n in range(AT_ONCE)]),
        TOO_LATE,
    ),
    Attack("H14", "cancellations", in_stream(b"", b"\x40", kind=DECODER)),
    Attack("H14", "acknowledgements of nothing", in_stream(b"", b"\x80", kind=DECODER), "QPACK_DECODER_STREAM_ERROR"),
    Attack("H15", "unknown frames", in_stream(POST, frame(0x21, b""))),
    Attack("H15", "unknown frames, large", in_stream(POST + b"\x21\xbf\xff\xff\xff", bytes(1000))),
    Attack("H15", "unknown control frames", in_stream(b"", frame(0x21, b"?"), kind=CONTROL)),
    Attack("H15", "MAX_PUSH_ID", rising(0x0D)),
    Attack("H15", "GOAWAY", in_stream(b"", frame(0x07, b"\0"), kind=CONTROL)),
    Attack("H15", "CANCEL_PUSH", in_stream(b"", frame(0x03, b"\0"), kind=CONTROL), "H3_ID_ERROR"),
    Attack("H15", "a second SETTINGS", in_stream(b"", frame(0x04), kind=CONTROL), "H3_FRAME_UNEXPECTED"),
    Attack("H15", "unknown streams", on_each_stream(lambda c, n: c.on(n, b"\x21") + reset(n, 1), uni=True)),
    Attack("H15", "unknown streams that end", on_each_stream(lambda c, n: c.on(n, b"\x21", end=True), uni=True)),
    Attack(
        "H15", "streams of one direction that end empty", on_each_stream(lambda c, n: stream(n, end=True), uni=True)
    ),
    Attack("H15", "streams of one direction that are reset", on_each_stream(lambda c, n: reset(n), uni=True)),
    Attack("H15", "streams whose type is cut off", on_each_stream(lambda c, n: c.on(n, b"\xc0", end=True), uni=True)),
]


class Attacker:
    """One connection of an attack."""

    def __init__(self, address: tuple[str, int], attack: Attack, number: int) -> None:
        self.client = Client(address, f"127.0.0.{2 + number}", **attack.configuration)
        self.is_over = not self.client.begin()
        self.client.acknowledges = attack.reads
        self.attack = attack
        self.packets: Packets = iter(()) if self.is_over else attack.packets(self.client)
        self.waits = False
        self.until = 0.0
        self.is_done = False

    def step(self) -> bool:
        """Send what can be sent now, and read; whether something was done."""
        client = self.client
        done = client.read()
        if client.ended:
            self.is_over = True
            return True
        if self.waits:
            if not client.is_heard() or time.monotonic() < self.until:
                return done
            self.waits = False
        while not (client.is_ahead() or self.is_done):
            frames = next(self.packets, b"")
            if frames is None:
                self.waits, self.until = True, time.monotonic() + MOMENT
                break
            if not frames:
                self.is_done = True
                break
            client.send(frames)
            done = True
        return done
