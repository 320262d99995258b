"""A client of HTTP/2 whose every frame is in the test's hands. Fields are packed by `hpack`."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import hpack

from tests.protocols.harness import Client, Service

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM = ACK = 0x1
END_HEADERS = 0x4

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, _, STREAM_CLOSED = range(6)
REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, _, ENHANCE_YOUR_CALM = range(7, 12)

MAX_FRAME = 16384

INITIAL_WINDOW_SIZE = 4

Fields = Iterable[tuple[str, str]]


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """One frame, right or wrong."""
    return struct.pack("!I", len(payload))[1:] + bytes([kind, flags]) + struct.pack("!I", stream) + payload


def settings(values: dict[int, int] | None = None) -> bytes:
    """What a client says of itself."""
    return frame(SETTINGS, payload=b"".join(struct.pack("!HI", *pair) for pair in (values or {}).items()))


def window_update(increment: int, stream: int = 0) -> bytes:
    """Let the server send more."""
    return frame(WINDOW_UPDATE, stream=stream, payload=struct.pack("!I", increment))


def reset(stream: int, code: int = CANCEL) -> bytes:
    """Give a request up."""
    return frame(RST_STREAM, stream=stream, payload=struct.pack("!I", code))


@dataclass
class Frame:
    """One that the server has sent."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def ends(self) -> bool:
        """Whether the stream ends with it."""
        return self.kind in (DATA, HEADERS) and bool(self.flags & END_STREAM)

    @property
    def code(self) -> int:
        """Why a stream or the connection ends."""
        start = {RST_STREAM: 0, GOAWAY: 4}[self.kind]
        return int.from_bytes(self.payload[start : start + 4], "big")


@dataclass
class Answer:
    """What has come of a response."""

    heads: list[list[tuple[bytes, bytes]]] = field(default_factory=list)
    body: bytes = b""
    ended: bool = False
    code: int | None = None
    """Of the reset, if there was one."""

    def status_of(self, index: int) -> int:
        return int(dict(self.heads[index])[b":status"])

    @property
    def status(self) -> int:
        """That of the response, behind interim ones."""
        return next(status for status in map(self.status_of, range(len(self.heads))) if status >= 200)

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The fields of the response."""
        final = next(index for index in range(len(self.heads)) if self.status_of(index) >= 200)
        return [pair for pair in self.heads[final] if pair[0] != b":status"]

    @property
    def trailers(self) -> list[tuple[bytes, bytes]]:
        """The fields behind the body."""
        return self.heads[-1] if b":status" not in dict(self.heads[-1]) else []


class HTTP2Client:
    """One connection. What the server says is kept by stream; windows are opened only by the test."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.encoder, self.decoder = hpack.Encoder(), hpack.Decoder()
        self.answers: dict[int, Answer] = {}
        self.frames: list[Frame] = []
        """Those of the connection, and resets."""
        self.next_stream = 1

    async def send(self, *pieces: bytes) -> None:
        await self.client.send(*pieces)

    async def begin(self, values: dict[int, int] | None = None) -> HTTP2Client:
        """Send all that a connection begins with, and read the server's settings."""
        await self.send(PREFACE + settings(values))
        first = await self.read()
        assert (first.kind, first.flags) == (SETTINGS, 0)
        await self.send(frame(SETTINGS, ACK))
        return self

    def head(
        self,
        path: str = "/",
        *fields: tuple[str, str],
        method: str = "GET",
        end: bool = True,
        stream: int | None = None,
    ) -> bytes:
        """The frame of a request, on the next stream unless that is named."""
        pseudo = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "test")]
        return self.headers([*pseudo, *fields], end=end, stream=stream)

    def headers(self, fields: Fields, *, end: bool = True, stream: int | None = None) -> bytes:
        """A frame with exactly these fields."""
        if stream is None:
            stream, self.next_stream = self.next_stream, self.next_stream + 2
        flags = END_HEADERS | (END_STREAM if end else 0)
        return frame(HEADERS, flags, stream, self.encoder.encode(list(fields)))

    def websocket(self, path: str = "/", *fields: tuple[str, str], protocol: str = "websocket") -> bytes:
        """The frame that asks for a WebSocket on the next stream (RFC 8441)."""
        pseudo = [(":method", "CONNECT"), (":protocol", protocol), (":scheme", "http"), (":path", path)]
        version = ("sec-websocket-version", "13")
        return self.headers([*pseudo, (":authority", "test"), version, *fields], end=False)

    async def send_data(self, body: bytes, stream: int, *, end: bool = True) -> None:
        """Send a body, in as many frames as it takes, without a look at windows."""
        for start in range(0, len(body), MAX_FRAME):
            last = end and start + MAX_FRAME >= len(body)
            await self.send(frame(DATA, END_STREAM if last else 0, stream, body[start : start + MAX_FRAME]))

    async def read(self) -> Frame:
        """Take the next frame, and note what it says."""
        head = await self.client.exactly(9)
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
        taken = Frame(kind, flags, stream, await self.client.exactly(int.from_bytes(head[:3], "big")))
        self.note(taken)
        return taken

    def note(self, taken: Frame) -> None:
        if taken.kind not in (DATA, HEADERS, RST_STREAM):
            self.frames.append(taken)
            return
        answer = self.answers.setdefault(taken.stream, Answer())
        if taken.kind == HEADERS:
            assert taken.flags & END_HEADERS
            fields: Any = self.decoder.decode(taken.payload, raw=True)
            answer.heads.append([(bytes(name), bytes(value)) for name, value in fields])
        elif taken.kind == DATA:
            answer.body += taken.payload
        else:
            answer.code = taken.code
            self.frames.append(taken)
        answer.ended |= taken.ends or taken.kind == RST_STREAM

    async def answer(self, stream: int = 1) -> Answer:
        """Wait until nothing more comes of a response."""
        while stream not in self.answers or not self.answers[stream].ended:
            await self.read()
        return self.answers[stream]

    async def ask(self, path: str = "/", *fields: tuple[str, str], method: str = "GET") -> Answer:
        """Send a request without a body and take its response."""
        stream = self.next_stream
        await self.send(self.head(path, *fields, method=method))
        return await self.answer(stream)

    async def until(self, kind: int) -> Frame:
        """Take frames up to the next one of a kind, which may have come before."""
        while True:
            for index, found in enumerate(self.frames):
                if found.kind == kind:
                    return self.frames.pop(index)
            await self.read()

    async def pong(self) -> None:
        """Wait until the server has dealt with all that was sent, and has written what it had to say."""
        for data in (b"question", b"one more"):  # the answer to the first stands in front of what is written with it
            await self.send(frame(PING, payload=data))
            while not any(found.kind == PING and found.payload == data for found in self.frames):
                await self.read()
            self.frames = [found for found in self.frames if found.kind != PING]

    async def end(self) -> Frame:
        """Wait for the end of the connection; why it ends."""
        while await self._more():
            await self.read()
        return [found for found in self.frames if found.kind == GOAWAY][-1]

    async def _more(self) -> bool:
        return bool(self.client.buffer) or await self.client.receive()


async def connect(service: Service, values: dict[int, int] | None = None) -> HTTP2Client:
    """A connection on which settings were exchanged."""
    return await HTTP2Client(await service.connect()).begin(values)
