"""Messages in both directions: content, fragments, limits, compression, pausing."""

from __future__ import annotations

import asyncio
import gc
import logging
import tracemalloc
import zlib
from array import array
from collections import UserDict
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import pytest

from tests.protocols.websocket_tools import (
    BINARY,
    CLOSE,
    DEFLATE,
    PING,
    PONG,
    RSV1,
    TEXT,
    Application,
    ServerFrame,
    accept,
    close_frame,
    connected,
    frame,
    listen,
)
from tests.utils import Mapping, deep_after
from uvicorn.protocols.websockets.deflate import DEFLATE_MIN_SIZE
from uvicorn.rules import websocket_limits

pytestmark = pytest.mark.anyio


class Deflater:
    """The client's half of permessage-deflate."""

    def __init__(self, bits: int = 12) -> None:
        self.compressor = zlib.compressobj(wbits=-bits)
        self.decompressor = zlib.decompressobj(-15)

    def compress(self, data: bytes) -> bytes:
        return (self.compressor.compress(data) + self.compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]

    def decompress(self, data: bytes) -> bytes:
        return self.decompressor.decompress(data + b"\x00\x00\xff\xff")

    def unpack(self, sent: ServerFrame) -> bytes:
        """What a message says. The native core sends one as it is that would get longer by being compressed."""
        return self.decompress(sent.payload) if sent.first & RSV1 else sent.payload


def sends(*messages: Any) -> Application:
    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        for message in messages:
            await send({"type": "websocket.send", **message})
        await receive()

    return Application(script)


# From the client


async def test_text_and_binary_messages_have_one_key_each(ws_reader_cls: Any) -> None:
    """WSM-01"""
    app = Application()
    async with connected(ws_reader_cls, app) as peer:
        await peer.open()
        peer.send(frame(TEXT, "größe".encode()), frame(BINARY, b"\x00\xff"), frame(TEXT), frame(BINARY))
        await peer.until(lambda: len(app.events) == 5)
        assert app.events[1:] == [
            {"type": "websocket.receive", "text": "größe"},
            {"type": "websocket.receive", "bytes": b"\x00\xff"},
            {"type": "websocket.receive", "text": ""},
            {"type": "websocket.receive", "bytes": b""},
        ]
        assert all(type(event["bytes"]) is bytes for event in app.events if "bytes" in event)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 2047, 2048, 65535, 65536, 300_000])
@pytest.mark.parametrize("lines", [(), (DEFLATE,)], ids=["plain", "deflate"])
async def test_message_of_any_size_is_echoed_in_one_frame(ws_reader_cls: Any, size: int, lines: Any) -> None:
    """WSM-05 WSC-04"""
    data = bytes(index * index % 251 for index in range(size))
    client = Deflater()
    app = Application()
    async with connected(ws_reader_cls, app) as peer:
        await peer.open(*lines)
        for _ in range(2):
            peer.send(frame(BINARY | RSV1, client.compress(data)) if lines else frame(BINARY, data))
        await peer.until(lambda: len(app.messages) == 2)
        assert app.messages == [data, data]
        await peer.until(lambda: len(peer.frames) == 2)
        for sent in peer.frames:
            assert sent.first in ((BINARY | RSV1, BINARY) if lines else (BINARY,))
            assert client.unpack(sent) == data


async def test_fragments_are_joined_and_control_frames_between_them_handled_at_once(ws_reader_cls: Any) -> None:
    """WSM-02 WSM-06"""
    app = Application()
    async with connected(ws_reader_cls, app) as peer:
        await peer.open()
        peer.send(frame(0x01, "gr\u00f6".encode()[:3]), frame(PING, b"between"))
        assert peer.frames == [ServerFrame(PONG, b"between")]
        peer.send(frame(0x00, "gr\u00f6".encode()[3:]), frame(0x00), frame(PONG, b"?"), frame(0x80, b"!"))
        peer.send(frame(0x02, b"a"), frame(0x80, b"b"))
        await peer.until(lambda: len(app.messages) == 2)
        assert app.messages == ["grö!", b"ab"]


async def test_pings_are_answered_and_unsolicited_pongs_ignored(ws_reader_cls: Any) -> None:
    """WSM-06"""
    app = Application()
    async with connected(ws_reader_cls, app) as peer:
        await peer.open()
        peer.send(frame(PING), frame(PONG, b"x"), frame(PING, b"p" * 125))
        assert peer.frames == [ServerFrame(PONG, b""), ServerFrame(PONG, b"p" * 125)]
        await peer.turn()
        assert len(app.events) == 1


async def test_messages_that_come_in_one_read_are_all_delivered(ws_reader_cls: Any) -> None:
    """WSM-07"""
    app = Application()
    async with connected(ws_reader_cls, app, ws_max_queue=2) as peer:
        await peer.open()
        peer.send(b"".join(frame(TEXT, str(number).encode()) for number in range(100)))
        await peer.until(lambda: len(app.messages) == 100)
        assert app.messages == [str(number) for number in range(100)]
        await peer.until(lambda: len(peer.frames) == 100)


@pytest.mark.parametrize("payload", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"a\xf5\x80\x80\x80"])
async def test_invalid_text_closes_with_1007(
    ws_reader_cls: Any, payload: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """W11 WSM-11: wsproto dropped the connection."""
    app = Application(listen)
    async with connected(ws_reader_cls, app) as peer:
        await peer.open()
        peer.send(frame(TEXT, b"ok") + frame(TEXT, payload) + frame(TEXT, b"never"))
        await peer.until(lambda: app.done)
        reason = "invalid UTF-8 in a text message"
        assert peer.frames[-1].close == (1007, reason)
        assert app.messages == ["ok"]
        assert app.events[-1] == {"type": "websocket.disconnect", "code": 1007, "reason": reason}
        errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        assert errors == ["Invalid UTF-8 sequence received from client."]


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([frame(0x01, b"a"), frame(0x00, b"\xff")], id="middle"),
        pytest.param([frame(0x01, b"a"), frame(0x80, b"\xc3")], id="cut at the end"),
        pytest.param([frame(CLOSE, b"\x03\xe8\xff")], id="close reason"),
    ],
)
async def test_invalid_text_is_found_in_fragments_and_reasons(ws_reader_cls: Any, pieces: list[bytes]) -> None:
    """W11 WSM-11"""
    async with connected(ws_reader_cls, Application()) as peer:
        await peer.open()
        peer.send(*pieces)
        await peer.until(lambda: peer.frames)
        assert peer.frames[-1].close[0] == 1007


async def test_invalid_text_is_found_before_its_frame_is_complete(ws_reader_cls: Any) -> None:
    """RFC 6455 section 8.1; a character may be cut, but nothing behind a mistake makes it good."""
    app = Application(listen)
    async with connected(ws_reader_cls, app) as peer:
        await peer.open()
        good, bad = frame(TEXT, "aé€😀".encode() * 3), frame(TEXT, b"ok\xed\xa0\x80" + b"x" * 1000)
        for byte in good:
            peer.send(bytes((byte,)))
        await peer.until(lambda: len(app.messages) == 1)
        for start in range(0, 20, 3):
            peer.send(bad[start : start + 3])
        await peer.until(lambda: app.done)
        assert peer.frames[-1].close == (1007, "invalid UTF-8 in a text message") and not peer.wire.eof
        # It can finish its message, and take part in the close.
        peer.send(bad[21:], close_frame(1007))
        await peer.until(lambda: peer.wire.lost)
        assert app.messages == ["aé€😀" * 3] and len(peer.frames) == 1


async def test_invalid_text_is_found_before_its_fragment_is_complete(ws_reader_cls: Any) -> None:
    app = Application(listen)
    async with connected(ws_reader_cls, app) as peer:
        await peer.open()
        text = ("aé€😀" * 3).encode()
        for cut in range(len(text) + 1):
            for byte in frame(0x01, text[:cut]) + frame(0x00, b"") + frame(0x80, text[cut:]):
                peer.send(bytes((byte,)))
        await peer.until(lambda: len(app.messages) == len(text) + 1)
        assert set(app.messages) == {"aé€😀" * 3}
        # A piece of a character in the first fragment, and no rest of it in the second, which is not complete.
        peer.send(frame(0x01, b"ok\xf0\x9f") + frame(0x00, b"\x98") + frame(0x80, b"x" * 1000)[:20])
        await peer.until(lambda: app.done)
        assert peer.frames[-1].close == (1007, "invalid UTF-8 in a text message")


async def test_close_frame_with_an_invalid_reason_is_the_last(ws_reader_cls: Any) -> None:
    """There is no other to wait for (RFC 6455 section 7.1.1): the server ends its side."""
    app = Application()
    async with connected(ws_reader_cls, app) as peer:
        await peer.open()
        peer.send(frame(CLOSE, b"\x03\xe8\xff"))
        await peer.until(lambda: app.done)
        assert peer.frames[-1].close == (1007, "invalid UTF-8 in the close reason")
        assert peer.wire.eof


async def test_protocol_error_sends_1002_and_reads_on_for_a_while(ws_reader_cls: Any) -> None:
    """W11 WSM-12: wsproto dropped the connection; the client gets the frame, not a reset."""
    app = Application()
    async with connected(ws_reader_cls, app) as peer:
        await peer.open()
        peer.send(frame(TEXT, b"x", mask=None))
        await peer.until(lambda: app.done)
        assert peer.frames[0].close == (1002, "incorrect masking")
        event = {"type": "websocket.disconnect", "code": 1002, "reason": "incorrect masking"}
        assert app.events[1:] == [event]
        assert peer.wire.eof and not peer.wire.closing
        peer.send(b"more" * 1000, close_frame(1002))
        peer.timers.advance(2.0)
        await peer.until(lambda: peer.wire.lost)
        assert len(peer.frames) == 1


# Limits


@pytest.mark.parametrize("fragments", [1, 2, 5])
@pytest.mark.parametrize("deflate", [False, True], ids=["plain", "deflate"])
async def test_message_of_exactly_the_limit_passes_and_one_byte_more_does_not(
    ws_reader_cls: Any, fragments: int, deflate: bool
) -> None:
    """W8 WSM-09 WSM-10"""

    def message(size: int) -> bytes:
        data = b"\x07" * size
        if deflate:
            data = client.compress(data)
        step = -(-len(data) // fragments)
        pieces = [data[start : start + step] for start in range(0, len(data), step)]
        out = b""
        for index, piece in enumerate(pieces):
            first = (0x02 | RSV1 * deflate) if index == 0 else 0x00
            out += frame(first | (0x80 if index == len(pieces) - 1 else 0), piece)
        return out

    client = Deflater()
    app = Application()
    async with connected(ws_reader_cls, app, ws_max_size=1000) as peer:
        await peer.open(*[DEFLATE] * deflate)
        peer.send(message(1000))
        await peer.until(lambda: app.messages)
        assert app.messages == [b"\x07" * 1000]
        peer.send(message(1001))
        await peer.until(lambda: app.done)
        reason = "Message exceeds the maximum size (1000 bytes)"
        assert peer.frames[-1].close == (1009, reason)
        assert app.events[-1] == {"type": "websocket.disconnect", "code": 1009, "reason": reason}


async def test_incompressible_message_of_exactly_the_limit_passes(ws_reader_cls: Any) -> None:
    """W8: on the wire it is larger than the limit, which is about what it inflates to."""
    import random

    data = random.Random(1).randbytes(100_000)
    payload = Deflater().compress(data)
    assert len(payload) > len(data)
    for fragments in (1, 2):
        app = Application()
        async with connected(ws_reader_cls, app, ws_max_size=100_000) as peer:
            await peer.open(DEFLATE)
            if fragments == 1:
                peer.send(frame(BINARY | RSV1, payload))
            else:
                peer.send(frame(0x42, payload[:50_000]), frame(0x80, payload[50_000:]))
            await peer.until(partial(attrgetter("messages"), app))
            assert app.messages == [data]


async def test_oversized_frame_is_refused_by_its_header(ws_reader_cls: Any) -> None:
    """W8: not a byte of the payload is waited for, or kept."""
    async with connected(ws_reader_cls, Application()) as peer:
        await peer.open()
        peer.send(b"\x82\xff" + (16 * 2**20 + 1).to_bytes(8, "big"))
        assert peer.frames == []
        peer.send(b"mask")
        assert peer.frames[0].close[0] == 1009


@pytest.mark.parametrize("fragments", deep_after(1, [1, 3]))
async def test_compressed_bomb_is_inflated_to_the_limit_and_no_further(ws_reader_cls: Any, fragments: int) -> None:
    """W8: 64 MiB of zeros in 64 KiB"""
    bomb = Deflater().compress(bytes(64 * 2**20))
    step = -(-len(bomb) // fragments)
    app = Application()
    async with connected(ws_reader_cls, app, ws_max_size=2**20) as peer:
        await peer.open(DEFLATE)
        tracemalloc.start()
        try:
            for index in range(fragments):
                first = (0x42 if index == 0 else 0) | (0x80 if index == fragments - 1 else 0)
                peer.send(frame(first, bomb[index * step : (index + 1) * step]))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peer.frames[0].close[0] == 1009
        assert peak < 6 * 2**20


async def test_many_bombs_in_one_read_are_inflated_one_by_one(ws_reader_cls: Any) -> None:
    """W8: reading stops at 64 KiB of content, whatever is in the buffer already."""

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        await asyncio.Event().wait()

    client = Deflater()
    bombs = b"".join(frame(BINARY | RSV1, client.compress(bytes(2**20))) for _ in range(100))
    async with connected(ws_reader_cls, Application(script)) as peer:
        await peer.open(DEFLATE)
        await peer.turn()
        peer.send(bombs)
        assert len(peer.queued) == 1
        assert peer.wire.read_paused


@pytest.mark.no_cover
@pytest.mark.parametrize("thousands", deep_after(1, [5, 70]))
async def test_small_fragments_pass_however_many_they_are(ws_reader_cls: Any, thousands: int) -> None:
    """W9: fragments of a message that is within its limit, 16 bytes each"""
    app = Application()
    async with connected(ws_reader_cls, app) as peer:
        await peer.open()
        piece = frame(0x00, b"0123456789abcdef")
        peer.send(frame(0x01), *[piece * 1000] * thousands, frame(0x80, b"\r\n!"))
        await peer.until(lambda: app.messages)
        assert app.messages == ["0123456789abcdef" * 1000 * thousands + "\r\n!"]


async def test_headers_of_fragments_are_limited_to_what_these_carry_and_some(
    ws_reader_cls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W9: exactly the limit passes, one more fragment closes with 1008."""
    assert websocket_limits.MAX_OVERHEAD == 2**20
    monkeypatch.setattr(websocket_limits, "MAX_OVERHEAD", 6 * 2000)
    app = Application()
    async with connected(ws_reader_cls, app) as peer:
        await peer.open()
        for extra in (0, 60):
            # What is carried pays for headers, before and behind it.
            paid = frame(0x00, b"x" * extra) + frame(0x00) * (extra // 6 - 1) if extra else b""
            peer.send(frame(0x02) + paid + frame(0x00) * 1998 + frame(0x80))
            await peer.until(partial(getattr, app, "messages"))
            assert app.messages.pop() == b"x" * extra
            app.events.clear()
        peer.send(frame(0x02), *[frame(0x00)] * 1999)
        assert len(peer.frames) == 2
        peer.send(frame(0x00))
        await peer.until(lambda: len(peer.frames) == 3)
        assert peer.frames[-1].close == (1008, "message in too many small fragments")


@pytest.mark.no_cover
async def test_fragments_that_carry_nothing_leave_nothing(ws_reader_cls: Any) -> None:
    """W9: what measures the code would be measured with it."""
    async with connected(ws_reader_cls, Application()) as peer:
        await peer.open()
        peer.send(frame(0x02), *[frame(0x00)] * 10)
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            peer.send(*[frame(0x00)] * 1999)
            assert tracemalloc.get_traced_memory()[0] - before < 4096
        finally:
            tracemalloc.stop()


@pytest.mark.no_cover
@pytest.mark.parametrize("first", [0x01, 0x02], ids=["text", "binary"])
async def test_memory_of_a_message_in_tiny_fragments_is_that_of_its_content(ws_reader_cls: Any, first: int) -> None:
    """W9: 6 bytes each, so that the headers are paid for"""
    async with connected(ws_reader_cls, Application()) as peer:
        await peer.open()
        peer.send(frame(first, b"abcdef"))
        tracemalloc.start()
        try:
            for _ in range(50):
                peer.send(frame(0x00, b"abcdef") * 100)
            assert tracemalloc.get_traced_memory()[0] < 6 * 5000 * 5  # four bytes for a character
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("first", [1, 20, 65536])
async def test_large_message_in_any_cut_is_what_was_sent(ws_reader_cls: Any, first: int) -> None:
    """The first read decides how much room is made for the others; what stands behind the message is read as well."""
    data = bytes(index * index % 251 for index in range(200_000))
    app = Application()
    async with connected(ws_reader_cls, app) as peer:
        await peer.open()
        stream = b"".join(frame(BINARY, one) for one in (data, b"behind", data[:16384], data[:16383]))
        peer.send(stream[:first])
        for start in range(first, len(stream), 30_000):
            peer.send(stream[start : start + 30_000])
        await peer.until(lambda: len(app.messages) == 4)
        assert app.messages == [data, b"behind", data[:16384], data[:16383]]


@pytest.mark.parametrize("end", ["eof", "lost", "failed", "server"])
async def test_large_message_that_is_not_complete_is_never_there(ws_reader_cls: Any, end: str) -> None:
    app = Application(listen)
    async with connected(ws_reader_cls, app) as peer:
        await peer.open()
        whole = frame(BINARY, bytes(100_000))
        peer.send(whole[:50_000])
        if end == "eof":
            peer.send(whole[50_000:-1])
            peer.eof()
        elif end == "lost":
            peer.wire.lose()
        elif end == "failed":
            # No frame may stand within another one: this is a message, and a frame that is none.
            peer.send(whole[50_000:], frame(0x83))
        else:
            peer.session.shutdown()
            peer.send(whole[50_000:], close_frame(1001))
        await peer.until(lambda: app.done)
        assert app.messages == ([bytes(100_000)] if end == "failed" else [])


@pytest.mark.parametrize("kind", ["binary", "text", "fragment"])
async def test_large_message_is_kept_once_while_it_comes(ws_reader_cls: Any, kind: str) -> None:
    """However many reads it takes; the reader's buffer and the message are not both there."""
    size = 4_000_000
    app = Application(listen)
    first = {"binary": BINARY, "text": TEXT, "fragment": 0x02}[kind]
    reads = frame(first, bytes(size))
    async with connected(ws_reader_cls, app) as peer:
        await peer.open()
        await peer.turn()
        pieces = [reads[start : start + 65536] for start in range(0, size - 65536, 65536)]
        tracemalloc.start()
        try:
            for piece in pieces:
                peer.session.data_received(piece)
            assert tracemalloc.get_traced_memory()[1] < size * 1.3
        finally:
            tracemalloc.stop()
        peer.send(reads[sum(map(len, pieces)) :])
        if kind == "fragment":
            peer.send(frame(0x80))
        await peer.until(lambda: app.messages)
        assert app.messages == ["\0" * size if kind == "text" else bytes(size)]


# Pausing


@pytest.mark.parametrize("limit", [1, 3, 32])
async def test_reading_pauses_when_the_queue_is_full_and_goes_on_when_it_is_empty(
    ws_protocol_cls: Any, limit: int
) -> None:
    """WSM-07 WSM-08: ws_max_queue has an effect in every implementation."""
    proceed = asyncio.Event()

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        await proceed.wait()
        while True:
            await receive()

    app = Application(script)
    async with connected(ws_protocol_cls, app, ws_max_queue=limit) as peer:
        await peer.open()
        for number in range(limit):
            assert not peer.wire.read_paused
            peer.send(frame(TEXT, str(number).encode()))
        assert peer.wire.read_paused and peer.session.read_paused
        assert len(peer.queued) == limit
        proceed.set()
        await peer.until(lambda: len(app.messages) == limit)
        assert not peer.wire.read_paused


async def test_ws_max_queue_is_32_by_default(ws_protocol_cls: Any) -> None:
    """WSM-08"""

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        await asyncio.Event().wait()

    async with connected(ws_protocol_cls, Application(script)) as peer:
        await peer.open()
        await peer.turn()
        peer.send(frame(TEXT, b"x") * 100)
        assert len(peer.queued) == 32


async def test_reading_pauses_when_the_queued_messages_are_large(ws_protocol_cls: Any) -> None:
    """WSM-07 D4: at 64 KiB, however few messages that is"""

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        await proceed.wait()
        await receive()
        await receive()
        await receive()

    proceed = asyncio.Event()
    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.turn()
        peer.send(frame(BINARY, b"x" * 65536))
        assert not peer.wire.read_paused
        peer.send(frame(BINARY, b"x"))
        assert peer.wire.read_paused
        proceed.set()
        await peer.turn()
        assert not peer.wire.read_paused
        peer.send(frame(BINARY, b"y"))
        await peer.until(lambda: app.done)


async def test_cancelled_receive_loses_no_message(ws_protocol_cls: Any) -> None:
    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        for _ in range(3):
            waiting = asyncio.ensure_future(receive())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
        # Woken and cancelled in the same turn.
        waiting = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        peer.send(frame(TEXT, b"kept"))
        waiting.cancel()
        await asyncio.wait([waiting])
        await receive()

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.until(lambda: app.done)
        assert app.messages == ["kept"]
        assert not peer.waits_to_receive


async def test_several_receivers_get_one_message_each(ws_protocol_cls: Any) -> None:
    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        await asyncio.gather(receive(), receive(), receive())

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.turn()
        peer.send(frame(TEXT, b"1"))
        await peer.turn()
        peer.send(frame(TEXT, b"2") + frame(TEXT, b"3"))
        await peer.until(lambda: app.done)
        assert app.messages == ["1", "2", "3"]


# From the application


@pytest.mark.parametrize(
    ("message", "sent"),
    [
        pytest.param({"text": "größe"}, ServerFrame(TEXT, "größe".encode()), id="text"),
        pytest.param({"bytes": b"\x00"}, ServerFrame(BINARY, b"\x00"), id="bytes"),
        pytest.param({"bytes": b"b", "text": "t"}, ServerFrame(BINARY, b"b"), id="both"),
        pytest.param({"bytes": None, "text": "t"}, ServerFrame(TEXT, b"t"), id="bytes None"),
        pytest.param({"bytes": b"b", "text": None}, ServerFrame(BINARY, b"b"), id="text None"),
        pytest.param({"bytes": b"", "text": "t"}, ServerFrame(BINARY, b""), id="empty bytes"),
        pytest.param({"text": ""}, ServerFrame(TEXT, b""), id="empty text"),
        pytest.param({"bytes": bytearray(b"ab")}, ServerFrame(BINARY, b"ab"), id="bytearray"),
        pytest.param({"bytes": memoryview(b"abcd")[::2]}, ServerFrame(BINARY, b"ac"), id="memoryview"),
    ],
)
async def test_message_is_sent_as_one_frame(ws_protocol_cls: Any, message: Any, sent: ServerFrame) -> None:
    """WSM-03 WSM-05"""
    async with connected(ws_protocol_cls, sends(message)) as peer:
        await peer.open()
        await peer.until(lambda: peer.frames)
        assert peer.frames == [sent]
        assert peer.wire.writes == 2  # the answer to the handshake, and the frame


@pytest.mark.parametrize(
    ("message", "error"),
    [
        pytest.param({}, TypeError, id="neither"),
        pytest.param({"bytes": None, "text": None}, TypeError, id="both None"),
        pytest.param({"bytes": 5}, TypeError, id="a number"),
        pytest.param({"text": b"x"}, AttributeError, id="bytes as text"),
        pytest.param({"text": "\ud800"}, UnicodeEncodeError, id="half a surrogate pair"),
    ],
)
async def test_message_that_cannot_be_sent_raises(ws_protocol_cls: Any, message: Any, error: type[Exception]) -> None:
    """WSM-04: websockets-sansio sends nothing and says nothing."""
    app = sends(message)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.until(lambda: app.done)
        assert type(app.error) is error


@pytest.mark.parametrize("message", [[], (), "", [("type", "websocket.send"), ("text", "a")]])
@pytest.mark.parametrize("stalled", [False, True], ids=["", "waiting"])
async def test_message_that_is_no_mapping_is_refused(ws_protocol_cls: Any, message: Any, stalled: bool) -> None:
    """Also where it has to wait for the client."""

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        if stalled:
            peer.wire.stall()
        sending = asyncio.ensure_future(send(message))
        await asyncio.sleep(0)
        if stalled:
            peer.wire.flow()
        with pytest.raises(TypeError):
            await sending
        await send({"type": "websocket.send", "text": "b"})
        await receive()

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.until(lambda: peer.frames)
        assert peer.frames == [ServerFrame(TEXT, b"b")]


@pytest.mark.parametrize("mapping", [Mapping, UserDict, lambda **items: MappingProxyType(items)])
@pytest.mark.parametrize("stalled", [False, True], ids=["", "waiting"])
async def test_message_may_be_any_mapping(ws_protocol_cls: Any, mapping: Any, stalled: bool) -> None:
    async def script(receive: Any, send: Any) -> None:
        await receive()
        await send(mapping(type="websocket.accept", headers=[]))
        if stalled:
            peer.wire.stall()
        sending = asyncio.ensure_future(send(mapping(type="websocket.send", bytes=bytearray(b"a"))))
        await asyncio.sleep(0)
        if stalled:
            peer.wire.flow()
        await sending
        await send(mapping(type="websocket.send", text="b", bytes=None))
        await receive()

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.until(lambda: len(peer.frames) == 2)
        assert peer.frames == [ServerFrame(BINARY, b"a"), ServerFrame(TEXT, b"b")]


BUFFERS = [
    pytest.param(bytearray, id="bytearray"),
    pytest.param(lambda data: memoryview(bytearray(data)), id="memoryview"),
    pytest.param(lambda data: memoryview(bytearray(byte for byte in data for _ in range(2)))[::2], id="strided"),
    pytest.param(lambda data: memoryview(bytearray(data[::-1]))[::-1], id="backwards"),
    pytest.param(lambda data: memoryview(bytearray(data)).cast("B", (len(data) // 4, 4)), id="two dimensions"),
    pytest.param(lambda data: array("I", data), id="array"),
]


def spoil(buffer: Any) -> None:
    """Change every byte of a buffer."""
    if isinstance(buffer, bytearray | array):
        buffer = memoryview(buffer)
    if buffer.format != "B" or buffer.ndim > 1:
        buffer = buffer.cast("B")
    for position in range(len(buffer)):
        buffer[position] ^= 0xFF


@pytest.mark.parametrize("make", BUFFERS)
@pytest.mark.parametrize("size", [16, 100_000])
@pytest.mark.parametrize("stalled", [False, True], ids=["", "waiting"])
async def test_what_was_in_a_buffer_at_send_arrives(ws_protocol_cls: Any, make: Any, size: int, stalled: bool) -> None:
    """I2: whatever its shape, and whatever is done with it and its message while it waits"""
    data = bytes(number * number % 251 for number in range(size))

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        if stalled:
            peer.wire.stall()
        buffer = make(data)
        message = {"type": "websocket.send", "bytes": buffer}
        sending = asyncio.ensure_future(send(message))
        await asyncio.sleep(0)
        spoil(buffer)
        message.update(type="nonsense", bytes=None)
        if stalled:
            peer.wire.flow()
        await sending
        await receive()

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.until(lambda: peer.frames)
        assert peer.frames == [ServerFrame(BINARY, data)]


@pytest.mark.parametrize("make", BUFFERS)
async def test_buffer_is_compressed_as_it_was_at_send(ws_protocol_cls: Any, make: Any) -> None:
    """I2"""
    data = bytes(range(64)) * 1000
    async with connected(ws_protocol_cls, sends({"bytes": make(data)})) as peer:
        await peer.open(DEFLATE)
        await peer.until(lambda: peer.frames)
        assert Deflater().decompress(peer.frames[0].payload) == data


# Compression


@pytest.mark.parametrize(
    ("offer", "answer"),
    [
        pytest.param("permessage-deflate", "; server_max_window_bits=12", id="plain"),
        pytest.param(
            "permessage-deflate; client_max_window_bits",
            "; server_max_window_bits=12; client_max_window_bits=12",
            id="client window",
        ),
        pytest.param(
            "permessage-deflate; client_max_window_bits=10; server_max_window_bits=9",
            "; server_max_window_bits=9; client_max_window_bits=10",
            id="smaller windows",
        ),
        pytest.param(
            'permessage-deflate; server_max_window_bits="15"', "; server_max_window_bits=12", id="quoted value"
        ),
        pytest.param(
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
            "; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=12",
            id="no context takeover",
        ),
        pytest.param(
            "permessage-deflate; server_max_window_bits=8, permessage-deflate",
            "; server_max_window_bits=12",
            id="second offer",
        ),
        pytest.param('x-other; a="b, c"; d, permessage-deflate', "; server_max_window_bits=12", id="after another"),
        pytest.param("permessage-deflate; client_max_window_bits=16", None, id="window too large"),
        pytest.param("permessage-deflate; client_max_window_bits=08", None, id="leading zero"),
        pytest.param("permessage-deflate; server_max_window_bits", None, id="value missing"),
        pytest.param("permessage-deflate; server_no_context_takeover=1", None, id="value too many"),
        pytest.param("permessage-deflate; unknown", None, id="unknown parameter"),
        pytest.param("permessage-deflate; client_max_window_bits; client_max_window_bits", None, id="twice"),
        pytest.param("permessage-bzip2", None, id="other extension"),
        pytest.param("", None, id="empty"),
    ],
)
async def test_compression_is_negotiated(ws_protocol_cls: Any, offer: str, answer: str | None) -> None:
    """WSC-01 WSC-02; WSC-03: wsproto and legacy took windows of 32 KiB."""
    async with connected(ws_protocol_cls, Application()) as peer:
        await peer.open(f"Sec-WebSocket-Extensions: {offer}")
        expected = None if answer is None else "permessage-deflate" + answer
        assert dict(peer.headers).get("sec-websocket-extensions") == expected


async def test_offers_in_two_fields_are_one_list(ws_protocol_cls: Any) -> None:
    """WSC-01"""
    async with connected(ws_protocol_cls, Application()) as peer:
        await peer.open("Sec-WebSocket-Extensions: x-other", "Sec-WebSocket-Extensions: permessage-deflate")
        assert dict(peer.headers)["sec-websocket-extensions"].startswith("permessage-deflate")


async def test_offer_is_ignored_when_compression_is_off(ws_protocol_cls: Any) -> None:
    """WSC-01"""
    async with connected(ws_protocol_cls, Application(), ws_per_message_deflate=False) as peer:
        await peer.open(DEFLATE)
        assert "sec-websocket-extensions" not in dict(peer.headers)
        peer.send(frame(TEXT, b"plain"))
        await peer.until(lambda: peer.frames)
        assert peer.frames == [ServerFrame(TEXT, b"plain")]


@pytest.mark.parametrize("parameter", ["", "; client_no_context_takeover", "; server_no_context_takeover"])
async def test_compressed_messages_are_understood_whole_and_in_fragments(ws_reader_cls: Any, parameter: str) -> None:
    """W10 WSC-04"""
    app = Application()
    client = Deflater()
    async with connected(ws_reader_cls, app) as peer:
        await peer.open(DEFLATE + parameter)
        one, two = "one" * DEFLATE_MIN_SIZE, "two" * DEFLATE_MIN_SIZE
        for text in (one, two, one):
            if parameter.startswith("; client"):
                client.compressor = Deflater().compressor
            payload = client.compress(text.encode())
            peer.send(frame(0x41, payload[:1]), frame(PING), frame(0x00), frame(0x80, payload[1:]))
            if parameter.startswith("; client"):
                client.compressor = Deflater().compressor
            peer.send(frame(TEXT | RSV1, client.compress(text.encode())))
        peer.send(frame(TEXT, b"not compressed, " * 4))
        peer.send(frame(0x01, b"nor " * 10), frame(0x80, b"this"))
        await peer.until(lambda: len(app.messages) == 8)
        assert app.messages == [one] * 2 + [two] * 2 + [one] * 2 + ["not compressed, " * 4, "nor " * 10 + "this"]
        echoed = [sent for sent in peer.frames if sent.first != PONG]
        decompressed = []
        for sent in echoed:
            if parameter.startswith("; server"):
                client.decompressor = zlib.decompressobj(-15)
            decompressed.append(client.unpack(sent).decode())
        assert parameter.startswith("; server") or all(sent.first == TEXT | RSV1 for sent in echoed)
        assert decompressed == app.messages


@pytest.mark.parametrize("key", ["text", "bytes"])
async def test_short_messages_are_not_compressed_and_keep_the_stream_in_step(ws_reader_cls: Any, key: str) -> None:
    """WSC-04: RFC 7692 section 6"""
    client = Deflater()
    shortest = "ab" * (DEFLATE_MIN_SIZE // 2)
    texts = ["", shortest[1:], shortest, "", shortest, shortest[1:]]
    opcode = TEXT if key == "text" else BINARY
    async with connected(
        ws_reader_cls, sends(*({key: text if key == "text" else text.encode()} for text in texts))
    ) as peer:
        await peer.open(DEFLATE)
        await peer.until(lambda: len(peer.frames) == len(texts))
        assert [client.unpack(sent).decode() for sent in peer.frames] == texts
        firsts = [opcode | (RSV1 if len(text) >= DEFLATE_MIN_SIZE else 0) for text in texts]
        assert [sent.first for sent in peer.frames] == firsts


async def test_message_that_ends_its_deflate_stream_is_followed_by_a_new_one(ws_reader_cls: Any) -> None:
    """RFC 7692 section 7.2.3.4: a block may be marked as the last."""
    app = Application()
    async with connected(ws_reader_cls, app) as peer:
        await peer.open(DEFLATE)
        last = b"\xf3\x48\xcd\xc9\xc9\x07\x00\x00"  # the example of the RFC
        peer.send(frame(TEXT | RSV1, last), frame(TEXT | RSV1, last), frame(TEXT | RSV1, Deflater().compress(b"x")))
        for end in range(1, len(last)):
            peer.send(frame(0x41, last[:end]), frame(0x80, last[end:]))
        await peer.until(lambda: len(app.messages) == 3 + len(last) - 1)
        assert app.messages == ["Hello", "Hello", "x"] + ["Hello"] * (len(last) - 1)


UNFINISHED = b"\x4a\x4c\x4a\x4e\x49\x4d\x4b"  # the beginning of a block


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([frame(0xC1, b"\xff\xff\xff")], id="whole"),
        pytest.param([frame(0x41, b"\xff\xff\xff"), frame(0x80)], id="fragments"),
        pytest.param([frame(0xC1, b"\xf3\x48\xcd\xc9\xc9\x07\x00\x00junk")], id="behind the last block"),
        pytest.param([frame(0x41, b"\xf3\x48\xcd\xc9\xc9\x07\x00"), frame(0, b"\x01")], id="in a fragment behind it"),
        *(pytest.param([frame(0xC1, UNFINISHED[:end])], id=f"inside a block, at {end}") for end in range(1, 5)),
    ],
)
async def test_bad_deflate_data_closes_with_1002(ws_reader_cls: Any, pieces: list[bytes]) -> None:
    """W10"""
    async with connected(ws_reader_cls, Application()) as peer:
        await peer.open(DEFLATE)
        peer.send(*pieces)
        await peer.until(lambda: peer.frames)
        assert peer.frames[-1].close == (1002, "decompression failed")


async def test_every_end_inside_a_block_is_judged_alike(ws_protocol_classes: dict[str, Any]) -> None:
    """The tail that is left out of a message would go into the block, and zlib would not mind."""
    compressor = zlib.compressobj(wbits=-12)
    whole = compressor.compress(b"".join(b"%d, " % number for number in range(200))) + compressor.flush()
    for end in range(1, len(whole), 7):
        judged = {}
        for name, protocol_cls in ws_protocol_classes.items():
            async with connected(protocol_cls, Application()) as peer:
                await peer.open(DEFLATE)
                peer.send(frame(0xC2, whole[:end]))
                await peer.until(partial(attrgetter("frames"), peer))
                judged[name] = peer.frames[-1]
        assert set(judged.values()) == {ServerFrame(CLOSE, b"\x03\xeadecompression failed")}, (end, judged)


# Memory


@pytest.mark.parametrize("used", [False, True], ids=["idle", "used"])
async def test_connection_with_compression_has_a_small_fixed_size(ws_protocol_cls: Any, used: bool) -> None:
    """W15: streams are made when they are first needed, with windows of 4 KiB."""
    from contextlib import AsyncExitStack

    count = 10
    async with AsyncExitStack() as stack:
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(count):
                peer = await stack.enter_async_context(connected(ws_protocol_cls, Application()))
                await peer.open(DEFLATE)
                if used:
                    peer.send(frame(TEXT | RSV1, Deflater().compress(b"hello")))
                    await peer.until(partial(attrgetter("frames"), peer))
            gc.collect()
            each = (tracemalloc.get_traced_memory()[0] - before) / count
        finally:
            tracemalloc.stop()
        # The configuration, the double of the transport and the application's task are part of it.
        assert each < (80_000 if used else 32_000)


# Debug lines


async def test_debug_lines_show_the_frames(ws_protocol_cls: Any, caplog: pytest.LogCaptureFixture) -> None:
    """UPG-08: as the websockets library shows them, in every implementation; payloads are cut and escaped."""
    caplog.set_level(logging.DEBUG, "uvicorn.error")
    app = Application()
    async with connected(ws_protocol_cls, app, ws_ping_interval=20.0) as peer:
        await peer.open()
        caplog.clear()
        peer.send(
            frame(TEXT, b"a\nb" + b"x" * 100), frame(BINARY, b"\xff\x1b"), frame(PING, b"p"), close_frame(1000, "\x1b")
        )
        await peer.until(lambda: app.done)
        shown = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
        text = repr("a\nb" + "x" * 72)
        assert f"< TEXT {text} [103 bytes]" in shown
        assert "< BINARY '\\\\xff\\x1b' [2 bytes]" in shown
        assert "< PING 'p' [1 bytes]" in shown
        assert "< CLOSE 1000 '\\x1b'" in shown and "> CLOSE 1000 '\\x1b'" in shown
    caplog.clear()
    async with connected(ws_protocol_cls, sends({"text": "t"}, {"bytes": b"b"}), ws_ping_interval=20.0) as peer:
        await peer.open()
        peer.timers.advance(20.0)
        shown = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
        assert "> TEXT 't' [1 bytes]" in shown and "> BINARY 'b' [1 bytes]" in shown
        assert any(line.startswith("> PING ") for line in shown)
