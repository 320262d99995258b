"""Attacks on HTTP/2 from tests/catalogue/threats.md: the bytes of one connection, and the expected answer.

`test_http2_threats.py` sends them to a server of its own; `scripts/http2-attacks` to one that serves others meanwhile.
The application is `app`, which offers what they need.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.native.http2_client import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PING,
    PREFACE,
    PRIORITY,
    SETTINGS,
    frame,
    reset,
    settings,
    window_update,
)

ROUNDS = 100_000
AT_ONCE = 100
"""Requests on a connection, below the limit of the server."""
LARGEST = 2**31 - 1
HEADER_TABLE_SIZE = 1
PRIORITY_UPDATE = 0x10
PADDED, PRIORITIZED = 0x8, 0x20
LARGE = b"x" * (4 * 1024 * 1024)
PIECE = 65536
PAUSE = 0.1
"""Seconds that `/wait` takes, whatever its client does."""

GET, POST = b"\x82\x86\x84", b"\x83\x86\x84"
AUTHORITY = b"\x01\x01a"

CALM = "GOAWAY ENHANCE_YOUR_CALM"
COMPRESSION = "GOAWAY COMPRESSION_ERROR"
FLOW_CONTROL = "GOAWAY FLOW_CONTROL_ERROR"
PROTOCOL = "GOAWAY PROTOCOL_ERROR"
CLOSED_STREAM = "GOAWAY STREAM_CLOSED"
CANCELLED = "RST_STREAM CANCEL"
CLOSED = "closed"
SERVED = "200"
TOO_LATE = "408"


@dataclass(frozen=True)
class Attack:
    """What is sent on one connection."""

    threat: str
    name: str
    pieces: Callable[[], Iterator[bytes]]
    """In this order; behind an empty one the client waits for a moment."""
    end: str = CALM
    """What the client is told, or what becomes of it."""
    values: dict[int, int] = field(default_factory=dict)
    """Its settings."""
    opening: bytes = PREFACE
    reads: bool = True
    waits: bool = False
    """For a deadline of the server's, or an answer."""
    held: int = 0
    """Bytes of responses that the server may keep for it, for its applications' sake."""
    half_closes: bool = False
    """It says that it sends no more when it has sent all."""

    def begin(self) -> bytes:
        """What stands in front of the pieces."""
        return self.opening + settings(self.values) if self.opening == PREFACE else self.opening


def literal(text: bytes) -> bytes:
    """Without Huffman's code; up to 126 bytes."""
    return bytes([len(text)]) + text


def head(stream: int, *, method: bytes = GET, path: bytes = b"", more: bytes = b"", end: bool = True) -> bytes:
    """The frame of a request."""
    target = b"\x04" + literal(path) if path else b"\x84"
    flags = END_HEADERS | (END_STREAM if end else 0)
    return frame(HEADERS, flags, stream, method[:2] + target + AUTHORITY + more)


def websocket(stream: int) -> bytes:
    """The frame that opens one (RFC 8441)."""
    pseudo = b"\x02" + literal(b"CONNECT") + b"\x00" + literal(b":protocol") + literal(b"websocket")
    version = b"\x00" + literal(b"sec-websocket-version") + literal(b"13")
    return frame(HEADERS, END_HEADERS, stream, pseudo + b"\x86\x84" + AUTHORITY + version)


def numbers(count: int = ROUNDS) -> range:
    """Of streams."""
    return range(1, 2 * count, 2)


def each(*frames: bytes) -> Iterator[bytes]:
    """The same without end."""
    for _ in range(ROUNDS):
        yield b"".join(frames)


def on_each_stream(make: Callable[[int], bytes]) -> Callable[[], Iterator[bytes]]:
    """One request after the other."""
    return lambda: map(make, numbers())


def in_body(*frames: bytes, path: bytes = b"") -> Callable[[], Iterator[bytes]]:
    """The same without end, on a stream whose request goes on."""

    def pieces() -> Iterator[bytes]:
        yield head(1, method=POST, path=path, end=False)
        yield from each(*frames)

    return pieces


def once(*frames: bytes) -> Callable[[], Iterator[bytes]]:
    """These, and then nothing."""
    return lambda: iter(frames)


def requests(path: bytes, *behind: bytes) -> Callable[[], Iterator[bytes]]:
    """As many as a connection may have, and then `behind`."""
    return once(*(head(stream, path=path) for stream in numbers(AT_ONCE)), *behind)


def resets_of_what_runs() -> Iterator[bytes]:
    """The applications have begun when they are told."""
    for first in range(1, 2 * ROUNDS, 2 * AT_ONCE):
        streams = range(first, first + 2 * AT_ONCE, 2)
        yield b"".join(head(stream, path=b"/wait") for stream in streams)
        yield b""
        yield b"".join(map(reset, streams))


def continuations(block: bytes) -> Callable[[], Iterator[bytes]]:
    """A header section that has no end."""

    def pieces() -> Iterator[bytes]:
        yield frame(HEADERS, 0, 1)
        yield from each(frame(CONTINUATION, 0, 1, block))

    return pieces


def hpack_bomb() -> bytes:
    """One large entry, which the rest of the block refers to."""
    entry = b"\x40\x01a\x7f" + bytes([0x80 | (3900 - 127) % 128, (3900 - 127) // 128]) + b"b" * 3900
    return frame(HEADERS, END_HEADERS | END_STREAM, 1, GET + AUTHORITY + entry + b"\xbe" * 12000)


def section(block: bytes) -> bytes:
    """A request whose block begins like this."""
    return frame(HEADERS, END_HEADERS | END_STREAM, 1, block + GET + AUTHORITY)


def table_sizes(stream: int) -> bytes:
    """The server's table is resized, and the client's emptied and filled, by a request that is in order."""
    sizes = b"".join(frame(SETTINGS, payload=struct.pack("!HI", HEADER_TABLE_SIZE, 500 * size)) for size in range(8))
    block = b"\x20\x3f\xe1\x1f" + GET + AUTHORITY + b"\x40" + literal(b"x-%d" % stream) + literal(b"a" * 100)
    return sizes + frame(HEADERS, END_HEADERS | END_STREAM, stream, block)


def windows(size: int) -> bytes:
    """The setting that the windows of streams begin with."""
    return frame(SETTINGS, payload=struct.pack("!HI", INITIAL_WINDOW_SIZE, size))


HELD = AT_ONCE * 3 * PIECE
"""A piece that a stream of the server has, one above its high-water mark, and one that the application waits with."""
NO_WINDOW = {INITIAL_WINDOW_SIZE: 0}
WIDE = {INITIAL_WINDOW_SIZE: LARGEST}
LENGTH_OF_ONE = b"\x0f\x0d\x011"
SMALL_MESSAGES = [head(1, method=POST, end=False), *[frame(DATA, 0, 1, bytes(5))] * 13_000, frame(DATA, END_STREAM, 1)]
PADDING = bytes([255]) + bytes(255)

ATTACKS = [
    Attack("H1", "rapid reset", on_each_stream(lambda stream: head(stream) + reset(stream))),
    Attack("H1", "reset of what runs", resets_of_what_runs),
    Attack("H1", "rapid reset of WebSockets", on_each_stream(lambda stream: websocket(stream) + reset(stream))),
    Attack(
        "H2",
        "made to reset: windows opened by 0",
        on_each_stream(lambda stream: head(stream, method=POST, end=False) + window_update(0, stream)),
    ),
    Attack(
        "H2",
        "made to reset: windows too large",
        on_each_stream(lambda stream: head(stream, method=POST, end=False) + window_update(LARGEST, stream)),
    ),
    Attack(
        "H2",
        "made to reset: longer than declared",
        on_each_stream(
            lambda stream: head(stream, method=POST, more=LENGTH_OF_ONE, end=False) + frame(DATA, 0, stream, b"12")
        ),
    ),
    Attack(
        "H2",
        "made to reset: data behind the end",
        on_each_stream(lambda stream: head(stream, path=b"/wait") + frame(DATA, 0, stream, b"12")),
    ),
    Attack("H2", "too many streams", on_each_stream(lambda stream: head(stream, method=POST, end=False))),
    Attack(
        "H2",
        "fields too large",
        on_each_stream(lambda stream: head(stream, more=b"\x00\x01a\x01b" * 300)),
    ),
    Attack("F20", "malformed fields", on_each_stream(lambda stream: head(stream, more=b"\x00\x01A\x01b"))),
    Attack("F22", "a length and no body", on_each_stream(lambda stream: head(stream, more=LENGTH_OF_ONE))),
    Attack(
        "H8",
        "pseudo-fields missing",
        on_each_stream(lambda stream: frame(HEADERS, END_HEADERS | END_STREAM, stream, GET[:1])),
    ),
    Attack("H3", "CONTINUATION", continuations(b"\x00\x01a\x01b" * 1000)),
    Attack("H3", "CONTINUATION, empty", continuations(b"")),
    Attack("H3", "a section without end, silence", once(head(1) + frame(HEADERS, 0, 3, GET)), waits=True),
    Attack("H4", "HPACK bomb", once(hpack_bomb())),
    Attack("H4", "overlong integer", once(section(b"\x3f" + b"\x80" * 20 + b"\x01")), COMPRESSION),
    Attack("H4", "overlong code", once(section(b"\x00\x01a\x81\xff")), COMPRESSION),
    Attack("H4", "end of string in a code", once(section(b"\x00\x01a\x84\xff\xff\xff\xff")), COMPRESSION),
    Attack("H4", "table above its limit", once(section(b"\x3f\xe2\x1f")), COMPRESSION),
    Attack("H4", "tables resized by each request", on_each_stream(table_sizes)),
    Attack("H5", "PRIORITY", on_each_stream(lambda stream: frame(PRIORITY, 0, stream, b"\0\0\0\0\x10"))),
    Attack(
        "H5",
        "PRIORITY_UPDATE",
        on_each_stream(lambda stream: frame(PRIORITY_UPDATE, 0, 0, struct.pack("!I", stream) + b"u=1")),
    ),
    Attack(
        "H5",
        "dependent on itself",
        on_each_stream(
            lambda stream: frame(
                HEADERS,
                END_HEADERS | END_STREAM | PRIORITIZED,
                stream,
                struct.pack("!IB", stream, 1) + GET + AUTHORITY,
            )
        ),
    ),
    Attack("H6", "SETTINGS", lambda: each(windows(1))),
    Attack("H6", "PING", lambda: each(frame(PING, payload=b"12345678"))),
    Attack("H6", "PING, nothing read", lambda: each(frame(PING, payload=b"12345678")), reads=False),
    Attack("H6", "unknown frames", lambda: each(frame(0xEE, payload=b"?"))),
    Attack("H6", "empty DATA", in_body(frame(DATA, 0, 1))),
    Attack("H6", "padding", in_body(frame(DATA, PADDED, 1, PADDING))),
    Attack("H6", "DATA of 1 byte", in_body(frame(DATA, 0, 1, b"a"), path=b"/wait")),
    Attack("H6", "small messages", once(*SMALL_MESSAGES), SERVED),
    Attack("H6", "WINDOW_UPDATE by 1", in_body(window_update(1, 1) * 100)),
    Attack(
        "H6",
        "a response by the byte",
        lambda: iter([head(1, path=b"/large"), *each(window_update(1, 1) * 100)]),
        values=NO_WINDOW,
    ),
    Attack(
        "H7",
        "data for what was refused",
        on_each_stream(lambda stream: head(stream, more=LENGTH_OF_ONE) + frame(DATA, PADDED, stream, PADDING)),
    ),
    Attack("H7", "window of the connection too large", once(window_update(LARGEST)), FLOW_CONTROL),
    Attack("H7", "setting too large", once(windows(2**31)), FLOW_CONTROL),
    Attack(
        "H7",
        "setting that makes a window too large",
        once(head(1, path=b"/wait") + window_update(LARGEST - 65535, 1), windows(65536)),
        FLOW_CONTROL,
    ),
    Attack("H9", "windows held at 0", requests(b"/large"), CANCELLED, values=NO_WINDOW),
    Attack("H9", "windows held at 0, streams", requests(b"/stream"), CANCELLED, values=NO_WINDOW, held=HELD),
    Attack("H9", "windows below 0", requests(b"/stream", b"", windows(1)), CANCELLED, held=HELD),
    Attack("H9", "window of the connection held at 0", requests(b"/stream"), CANCELLED, values=WIDE, held=HELD),
    Attack("H9", "half closed, windows held at 0", requests(b"/large"), CANCELLED, values=NO_WINDOW, half_closes=True),
    Attack(
        "H9",
        "nothing read",
        requests(b"/stream", window_update(LARGEST - 65535)),
        CLOSED,
        values=WIDE,
        reads=False,
        held=HELD,
    ),
    Attack(
        "H9", "requests whose bodies stop", once(*(head(s, method=POST, end=False) for s in numbers(AT_ONCE))), TOO_LATE
    ),
    Attack(
        "H9",
        "data for a stream that is over",
        once(head(1), b"", frame(DATA, 0, 1, b"late")),
        CLOSED_STREAM,
        waits=True,
    ),
    Attack("H9", "a request on a stream that is over", once(head(3), b"", head(1)), PROTOCOL),
    Attack("H10", "half a preface", once(), CLOSED, opening=PREFACE[:12]),
    Attack("H10", "nothing behind the preface", once(), "GOAWAY NO_ERROR", waits=True),
    Attack("H10", "no preface", once(), PROTOCOL, opening=b"INVALID CONNECTION PREFACE\r\n\r\nSM\r\n\r\n"),
    Attack("H10", "half a frame", once(head(1) + head(3)[:12]), waits=True),
]


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Small answers; 4 MiB at `/large`, the same in pieces at `/stream`; `/wait` reads nothing and answers late."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] != "websocket.disconnect":
            if scope["path"] == "/echo":
                await send({**message, "type": "websocket.send"})
        return
    if scope["path"] == "/wait":
        await asyncio.sleep(PAUSE)
    else:
        while (message := await receive())["type"] == "http.request" and message["more_body"]:
            pass
        if message["type"] == "http.disconnect":
            return
    await send({"type": "http.response.start", "status": 200})
    if scope["path"] == "/stream":
        for start in range(0, len(LARGE), PIECE):
            await send({"type": "http.response.body", "body": LARGE[start : start + PIECE], "more_body": True})
    await send({"type": "http.response.body", "body": LARGE if scope["path"] == "/large" else b"ok"})
