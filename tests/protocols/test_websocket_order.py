"""What the client's end does to the messages in front of it: nothing, however TCP has cut the stream.

A close frame, a mistake or the end of the stream takes effect when the application has taken what came before it and
asks for more, or after a time.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests import machines
from tests.protocols.websocket_tools import (
    BINARY,
    CLOSE,
    DEFLATE,
    PING,
    PONG,
    RSV1,
    TEXT,
    Application,
    Peer,
    ServerFrame,
    accept,
    close_frame,
    connected,
    frame,
    handshake,
)
from tests.utils import deep_after
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.rules.websocket_limits import ANSWER_SECONDS

pytestmark = pytest.mark.anyio

ws_protocol_cls = machines.each_websocket

NEVER = frame(TEXT, b"never")

ENDS = [
    pytest.param(close_frame(3000, "bye"), ServerFrame(CLOSE, b"\x0b\xb8bye"), (3000, "bye"), id="close"),
    pytest.param(frame(CLOSE), ServerFrame(CLOSE, b""), (1005, ""), id="close without code"),
    pytest.param(frame(0x83), ServerFrame(CLOSE, b"\x03\xeainvalid opcode"), (1002, "invalid opcode"), id="opcode"),
    pytest.param(
        frame(TEXT, b"\xff") + NEVER,
        ServerFrame(CLOSE, b"\x03\xefinvalid UTF-8 in a text message"),
        (1007, "invalid UTF-8 in a text message"),
        id="UTF-8",
    ),
    pytest.param(
        frame(TEXT, b"x" * 1001) + NEVER,
        ServerFrame(CLOSE, b"\x03\xf1Message exceeds the maximum size (1000 bytes)"),
        (1009, "Message exceeds the maximum size (1000 bytes)"),
        id="size",
    ),
    pytest.param(None, None, (1005, None), id="end of the stream"),
]


def disconnect(code: int, reason: str | None) -> dict[str, Any]:
    event: dict[str, Any] = {"type": "websocket.disconnect", "code": code}
    if reason is not None:
        event["reason"] = reason
    return event


def finish(peer: Peer, data: bytes, end: bytes | None) -> None:
    """`data`, and the end right behind it."""
    peer.send(data + (end or b""))
    if end is None:
        peer.eof()


async def echo_twice(receive: Any, send: Any) -> None:
    """Answer each message with two, and take some time for that; then find that no more can be sent."""
    await accept(receive, send)
    while (event := await receive())["type"] == "websocket.receive":
        for number in (1, 2):
            for _ in range(3):
                await asyncio.sleep(0)
            await send({"type": "websocket.send", "text": event["text"] + str(number)})
    with pytest.raises(ClientDisconnected):
        await send({"type": "websocket.send", "text": "too late"})


@pytest.mark.parametrize(("end", "answer", "told"), ENDS)
@pytest.mark.parametrize("together", [False, True], ids=["later", "with the handshake"])
async def test_messages_in_one_segment_with_the_end_are_answered(
    ws_protocol_cls: Any, end: bytes | None, answer: ServerFrame | None, told: Any, together: bool
) -> None:
    app = Application(echo_twice)
    async with connected(ws_protocol_cls, app, ws_max_size=1000) as peer:
        messages = frame(TEXT, b"a") + frame(TEXT, b"b")
        if together:
            peer.send(handshake() + messages + (end or b""))
            await peer.until(lambda: peer.wire.written)
            messages, end = b"", None if end is None else b""
        else:
            await peer.open()
            await peer.turn()
        finish(peer, messages, end)
        await peer.until(lambda: app.done)
        assert app.error is None
        expected = [ServerFrame(TEXT, text) for text in (b"a1", b"a2", b"b1", b"b2")]
        assert peer.frames == [*expected, *([answer] if answer else [])]
        assert app.events[3:] == [disconnect(*told)]


@pytest.mark.parametrize(("end", "answer", "told"), ENDS)
async def test_application_can_still_send_after_it_accepted(
    ws_protocol_cls: Any, end: bytes | None, answer: ServerFrame | None, told: Any
) -> None:
    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        if end is None:
            peer.eof()
        await send({"type": "websocket.send", "text": "welcome"})
        await receive()

    app = Application(script)
    async with connected(ws_protocol_cls, app, ws_max_size=1000) as peer:
        peer.send(handshake() + (end or b""))
        await peer.until(lambda: app.done)
        assert peer.frames == [ServerFrame(TEXT, b"welcome"), *([answer] if answer else [])]
        assert app.events[1:] == [disconnect(*told)]


@pytest.mark.parametrize(("end", "answer", "told"), ENDS)
async def test_application_that_waits_is_told_at_once(
    ws_protocol_cls: Any, end: bytes | None, answer: ServerFrame | None, told: Any
) -> None:
    app = Application(echo_twice)
    async with connected(ws_protocol_cls, app, ws_max_size=1000) as peer:
        await peer.open()
        await peer.turn()
        finish(peer, b"", end)
        assert peer.frames == ([answer] if answer else [])
        await peer.until(lambda: app.done)
        assert app.events[1:] == [disconnect(*told)]


@pytest.mark.parametrize(("end", "answer", "told"), ENDS)
async def test_application_that_never_asks_again_has_a_time_to_answer(
    ws_protocol_cls: Any, end: bytes | None, answer: ServerFrame | None, told: Any
) -> None:
    """Counted from when it took its last message: one that only sends does not make its clients wait."""

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        await receive()
        while True:
            await go_on.wait()
            go_on.clear()
            await send({"type": "websocket.send", "text": "tick"})

    async def tick() -> None:
        go_on.set()
        await peer.turn()

    for seconds in (0.0, ANSWER_SECONDS - 0.5, ANSWER_SECONDS, 1000.0):
        go_on = asyncio.Event()
        app = Application(script)
        async with connected(ws_protocol_cls, app, ws_max_size=1000) as peer:
            await peer.open()
            peer.send(frame(TEXT, b"subscribe"))
            await peer.turn()
            peer.timers.advance(seconds)
            finish(peer, b"", end)
            if seconds < ANSWER_SECONDS:
                await tick()
                assert peer.frames == [ServerFrame(TEXT, b"tick")]
                peer.timers.advance(ANSWER_SECONDS - seconds)
            assert peer.frames[-1:] == ([answer] if answer else peer.frames[:1])
            await tick()
            assert isinstance(app.error, ClientDisconnected)


async def test_each_message_that_is_taken_gives_its_application_time_again(ws_protocol_cls: Any) -> None:
    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        while (event := await receive())["type"] == "websocket.receive":
            await go_on.wait()
            go_on.clear()
            await send({**event, "type": "websocket.send"})

    go_on = asyncio.Event()
    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.turn()
        peer.timers.advance(100.0)
        peer.send(b"".join(frame(TEXT, b"%d" % number) for number in range(5)) + close_frame(1000))
        await peer.turn()
        for _ in range(5):
            peer.timers.advance(ANSWER_SECONDS - 0.5)
            go_on.set()
            await peer.turn()
        assert [sent.payload for sent in peer.frames] == [b"0", b"1", b"2", b"3", b"4", b"\x03\xe8"]
        assert app.done and app.error is None


@pytest.mark.parametrize(("end", "answer", "told"), ENDS)
async def test_close_of_the_application_comes_before_the_clients_end(
    ws_protocol_cls: Any, end: bytes | None, answer: ServerFrame | None, told: Any
) -> None:
    """As if the client's end had come later: the application's code is what both are told."""

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        event = await receive()
        await send({**event, "type": "websocket.send"})
        await send({"type": "websocket.close", "code": 4000, "reason": "done"})
        await receive()

    app = Application(script)
    async with connected(ws_protocol_cls, app, ws_max_size=1000) as peer:
        await peer.open()
        finish(peer, frame(TEXT, b"a"), end)
        await peer.until(lambda: app.done)
        assert peer.frames == [ServerFrame(TEXT, b"a"), ServerFrame(CLOSE, b"\x0f\xa0done")]
        assert app.events[2:] == [disconnect(4000, "done")]
        await peer.until(lambda: peer.wire.lost)


@pytest.mark.parametrize(("end", "answer", "told"), ENDS)
async def test_loss_behind_the_end_does_not_change_what_the_application_is_told(
    ws_protocol_cls: Any, end: bytes | None, answer: ServerFrame | None, told: Any
) -> None:
    app = Application(echo_twice)
    async with connected(ws_protocol_cls, app, ws_max_size=1000) as peer:
        await peer.open()
        await peer.turn()
        finish(peer, frame(TEXT, b"a"), end)
        peer.wire.lose(ConnectionResetError())
        await peer.until(lambda: app.done)
        assert app.messages == ["a"] and isinstance(app.error, ClientDisconnected)
        assert peer.queued.pop() == disconnect(*told)
        assert peer.frames == []


@pytest.mark.parametrize("noticed", [False, True])
async def test_half_closed_client_gets_the_close_frame_too(ws_protocol_cls: Any, noticed: bool) -> None:
    """The end of its stream, behind its close frame, says nothing new; most event loops do not see it yet."""
    app = Application(echo_twice)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.turn()
        peer.send(frame(TEXT, b"a") + close_frame(1000))
        if noticed:
            assert peer.session.eof_received()
        else:
            peer.eof()
        await peer.until(lambda: app.done)
        assert [sent.payload for sent in peer.frames] == [b"a1", b"a2", b"\x03\xe8"]
        assert app.events[2:] == [disconnect(1000, "")]
        await peer.until(lambda: peer.wire.lost)


async def test_encrypted_stream_that_ends_cannot_be_answered(ws_protocol_cls: Any) -> None:
    """TLS has no half of a connection; what was received is delivered."""
    app = Application(echo_twice)
    async with connected(ws_protocol_cls, app, tls=True) as peer:
        await peer.open()
        await peer.turn()
        peer.send(frame(TEXT, b"a") + close_frame(1000))
        assert not peer.session.eof_received()
        await peer.until(lambda: app.done)
        assert app.messages == ["a"] and isinstance(app.error, ClientDisconnected)
        assert peer.queued.pop() == disconnect(1000, "")


async def test_server_that_stops_closes_without_waiting_for_an_answer(ws_protocol_cls: Any) -> None:
    """W16"""

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        await receive()
        peer.session.shutdown()
        await receive()

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        peer.send(frame(TEXT, b"a") + close_frame(1000))
        await peer.until(lambda: app.done)
        assert [sent.close for sent in peer.frames] == [(1012, "")]
        await peer.until(lambda: peer.wire.lost)


async def test_what_follows_the_end_is_not_kept(ws_protocol_cls: Any) -> None:
    """A client cannot fill the memory while the application answers."""

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        await receive()
        await asyncio.Event().wait()

    for end in (close_frame(1000), frame(0x83), frame(TEXT, b"\xff")):
        async with connected(ws_protocol_cls, Application(script)) as peer:
            await peer.open()
            peer.send(frame(TEXT, b"a") + end)
            assert peer.wire.read_paused
            peer.timers.advance(ANSWER_SECONDS)
            peer.send(bytes(100_000) * 10)
            assert peer.kept == 0


# Random streams


@dataclass
class Stream:
    """What a client sends, and the settings of its server."""

    data: bytes
    eof: bool
    deflate: bool
    settings: dict[str, Any]


@dataclass
class Outcome:
    """What came of it, less what may depend on the moment: pongs go out between the answers."""

    events: list[Any]
    sent: list[ServerFrame]
    pongs: list[bytes]
    half_closed: bool
    closing: bool


def fragments(rng: random.Random, first: int, payload: bytes) -> Iterator[bytes]:
    """The frames of one message, and control frames between them."""
    cuts = sorted(rng.randrange(len(payload) + 1) for _ in range(rng.choice((0, 0, 1, 2, 5))))
    starts, ends = [0, *cuts], [*cuts, len(payload)]
    for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
        fin = 0x80 if index == len(cuts) else 0
        yield frame((first if index == 0 else 0) | fin, payload[start:end], rng.randbytes(4))
        if not fin and rng.random() < 0.2:
            yield frame(rng.choice((PING, PONG)), rng.randbytes(rng.randrange(126)))


def make_stream(seed: int) -> Stream:
    """A stream that is valid up to a point."""
    rng = random.Random(seed)
    deflate = rng.random() < 0.4
    compressor = zlib.compressobj(wbits=-12)

    def message() -> bytes:
        size = rng.choice((0, 1, 10, 125, 126, 400, 1000))
        text = rng.random() < 0.5
        payload = rng.choice("aé€😀").encode() * (size // 4) if text else rng.randbytes(size)
        first = 0x01 if text else 0x02
        if deflate and rng.random() < 0.7:
            payload = (compressor.compress(payload) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]
            first |= 0x40
        return b"".join(fragments(rng, first, payload))

    def mistake() -> bytes:
        return rng.choice(
            (
                frame(0x83),
                frame(TEXT, b"\xff"),
                frame(0x01, b"ok") + frame(0x80, b"\xff\xff"),
                frame(0x01, b"a") + frame(TEXT, b"b"),
                frame(0x80, b"x"),
                frame(TEXT, b"x", mask=None),
                frame(0x91, b"x"),
                frame(0x49, b"x"),
                frame(0x09, b"x"),
                frame(PING, bytes(126)),
                frame(BINARY, bytes(1001)),
                frame(0x02, bytes(600)) + frame(0x00, bytes(600)) + frame(0x80),
                frame(0xC1, b"\xff\xff\xff"),
                frame(0x41, b"\xff\xff") + frame(0x80, b"\xff"),
                frame(CLOSE, b"\x03"),
                close_frame(1005),
                frame(CLOSE, b"\x03\xe8\xff"),
                b"\x81\xfe\x00\x05mask12345",
                rng.randbytes(rng.randrange(40)),
            )
        )

    def close() -> bytes:
        return rng.choice((frame(CLOSE), close_frame(1000), close_frame(4000, "bye")))

    pieces = [message() for _ in range(rng.randrange(8))]
    pieces += [rng.choice((mistake, mistake, close, close, bytes))() for _ in range(1)]
    pieces += [rng.choice((message, mistake, close, bytes))() for _ in range(rng.randrange(4))]
    data = b"".join(pieces)
    if rng.random() < 0.1:
        data = data[: rng.randrange(len(data) + 1)]
    settings = {"ws_max_size": 1000, "ws_max_queue": rng.choice((1, 2, 32))}
    return Stream(data, rng.random() < 0.3, deflate, settings)


async def answer(receive: Any, send: Any) -> None:
    """Answer each message with two, the second of them later."""
    await accept(receive, send)
    while (event := await receive())["type"] == "websocket.receive":
        await send({**event, "type": "websocket.send"})
        for _ in range(len(event.get("text") or "") % 3):
            await asyncio.sleep(0)
        await send({"type": "websocket.send", "text": "second"})


def inflated(frames: list[ServerFrame]) -> Iterator[ServerFrame]:
    """The frames as they were before they were compressed, or not, which is each implementation's choice."""
    stream = zlib.decompressobj(-15)
    for sent in frames:
        is_compressed = sent.first & RSV1
        payload = stream.decompress(sent.payload + b"\x00\x00\xff\xff") if is_compressed else sent.payload
        yield ServerFrame(sent.first & ~RSV1, payload)


async def replay(protocol_cls: Any, stream: Stream, pieces: list[bytes], rng: random.Random) -> Outcome:
    app = Application(answer)
    async with connected(protocol_cls, app, **stream.settings) as peer:
        await peer.open(*[DEFLATE] * stream.deflate)
        for piece in pieces:
            peer.send(piece)
            for _ in range(rng.choice((0, 0, 1, 5, 30))):
                await asyncio.sleep(0)
                peer.deliver()
        if stream.eof:
            peer.eof()
        for _ in range(10):
            await peer.turn()
        return Outcome(
            events=app.events[1:],
            sent=[plain for plain in inflated(peer.frames) if plain.first != PONG],
            pongs=[sent.payload for sent in peer.frames if sent.first == PONG],
            half_closed=peer.wire.eof,
            closing=peer.wire.closing,
        )


def cut(rng: random.Random, data: bytes) -> list[bytes]:
    positions = sorted({rng.randrange(len(data) + 1) for _ in range(rng.choice((1, 2, 5, 20)))})
    return [data[start:end] for start, end in zip([0, *positions], [*positions, len(data)], strict=True)]


@pytest.mark.no_cover
@pytest.mark.parametrize("start", deep_after(1, range(0, 200, 10)))
async def test_random_stream_has_one_outcome_however_it_is_cut(ws_protocol_classes: dict[str, Any], start: int) -> None:
    """The same messages, the same answers and the same close frame, on every implementation."""
    for seed in range(start, start + 10):
        stream = make_stream(seed)
        rng = random.Random(-seed)
        outcomes = {}
        for name, protocol_cls in ws_protocol_classes.items():
            outcomes[name, 0] = await replay(protocol_cls, stream, [stream.data], rng)
            for number in range(1, 5):
                outcomes[name, number] = await replay(protocol_cls, stream, cut(rng, stream.data), rng)
        expected = next(iter(outcomes.values()))
        for how, outcome in outcomes.items():
            assert outcome == expected, (seed, how)


def test_random_streams_are_of_all_kinds() -> None:
    """Otherwise the test above would show little."""
    streams = [make_stream(seed) for seed in range(200)]
    assert len({stream.data for stream in streams}) > 190
    assert 40 < sum(stream.eof for stream in streams) < 160
    assert 40 < sum(stream.deflate for stream in streams) < 160
