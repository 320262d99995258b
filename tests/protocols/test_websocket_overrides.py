"""Methods of the WebSocket classes that take what the client sends: what programs override of them is called.

Each was tried against upstream; `tests/contract` compares what applications and clients see.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from tests.protocols.websocket_tools import (
    BINARY,
    CLOSE,
    DEFLATE,
    PING,
    PONG,
    TEXT,
    Application,
    ServerFrame,
    accept,
    close_frame,
    connected,
    echo,
    frame,
    handshake,
)
from uvicorn.protocols.websockets.incoming import Incoming, OverriddenIncoming
from uvicorn.protocols.websockets.websockets_impl import WebSocketProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

pytestmark = pytest.mark.anyio

CONT = 0x80


def calling(kind: Any, heard: list[Any]) -> Any:
    """A class of which every method that takes frames is overridden: it notes its name, and calls upstream's."""

    def noting(name: str) -> Callable[..., None]:
        def method(self: Any, *args: Any) -> None:
            heard.append(name)
            getattr(super(mine, self), name)(*args)

        return method

    mine = type("Mine", (kind,), {name: noting(name) for name in (*kind.frame_methods, "handle_connect")})
    return mine


kinds = pytest.mark.parametrize("kind", [WebSocketsSansIOProtocol, WSProtocol], ids=["sansio", "wsproto"])


async def talked(kind: Any, *pieces: bytes, app: Any = None, **settings: Any) -> tuple[Application, list[ServerFrame]]:
    """What an application receives, and what a client is sent."""
    application = app or Application()
    async with connected(kind, application, **settings) as peer:
        await peer.open()
        for piece in pieces:
            peer.send(piece)
            await peer.turn()
        return application, peer.frames


@kinds
async def test_class_as_it_is_takes_the_fast_way(kind: Any) -> None:
    for cls, way in ((kind, Incoming), (type("Mine", (kind,), {"handle_close": kind.parse}), OverriddenIncoming)):
        async with connected(cls, Application()) as peer:
            assert type(peer.session._incoming) is way
            assert peer.state.overridden == {cls: way is OverriddenIncoming}


@kinds
async def test_method_that_is_patched_is_called(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Any] = []
    monkeypatch.setattr(kind, "handle_pong", lambda self, event: heard.append(self.queue.qsize()))
    await talked(kind, frame(PONG, b"a"))
    assert heard == [0]


async def test_methods_of_sansio_are_called_as_upstream_calls_them() -> None:
    heard: list[Any] = []
    fragments = frame(0x01, b"\xc3") + frame(PING, b"p") + frame(CONT, b"\xa9")
    pieces = [frame(TEXT, b"hi"), fragments, frame(BINARY, b"b"), frame(PONG), close_frame(3000, "bye")]
    app, frames = await talked(calling(WebSocketsSansIOProtocol, heard), *pieces)
    whole = ["send_receive_event_to_app"]
    assert heard == [
        *("handle_events", "handle_connect"),
        *("handle_events", "handle_text", *whole),
        *("handle_events", "handle_text", "handle_events", "handle_ping", "handle_events", "handle_cont", *whole),
        *("handle_events", "handle_bytes", *whole),
        *("handle_events", "handle_pong", "handle_events", "handle_close"),
    ]
    assert app.messages == ["hi", "é", b"b"]
    assert app.events[-1] == {"type": "websocket.disconnect", "code": 3000, "reason": "bye"}
    assert [one.payload for one in frames] == [b"hi", b"p", "é".encode(), b"b", b"\x0b\xb8bye"]


async def test_methods_of_wsproto_are_called_as_upstream_calls_them() -> None:
    heard: list[Any] = []
    fragments = frame(0x01, b"\xc3") + frame(PING, b"p") + frame(CONT, b"\xa9")
    pieces = [fragments, frame(BINARY, b"b"), frame(PONG), close_frame(3000, "bye")]
    app, frames = await talked(calling(WSProtocol, heard), *pieces)
    assert [name for name in heard if name != "handle_events"] == [
        *("handle_connect", "handle_message", "handle_ping", "handle_message"),
        *("handle_message", "handle_pong", "handle_close"),
    ]
    assert app.messages == ["é", b"b"]
    assert app.events[-1] == {"type": "websocket.disconnect", "code": 3000, "reason": "bye"}
    assert [one.payload for one in frames] == [b"p", "é".encode(), b"b", b"\x0b\xb8bye"]


async def test_message_that_is_changed() -> None:
    class Upper(WebSocketsSansIOProtocol):
        def handle_text(self, event: Any) -> None:
            event.data = bytes(event.data).upper()
            super().handle_text(event)

    class UpperToo(WSProtocol):
        def handle_message(self, event: Any) -> None:
            super().handle_message(dataclasses.replace(event, data=event.data.upper()))

    for kind in (Upper, UpperToo):
        app, frames = await talked(kind, frame(TEXT, b"hi"), frame(TEXT, b""))
        assert app.messages == ["HI", ""]
        assert [one.payload for one in frames] == [b"HI", b""]


@pytest.mark.parametrize(
    ("kind", "name", "sent", "left"),
    [
        (WebSocketsSansIOProtocol, "handle_text", frame(TEXT, b"a") + frame(BINARY, b"b"), [b"b"]),
        (WebSocketsSansIOProtocol, "handle_ping", frame(PING, b"a") + frame(BINARY, b"b"), [b"b"]),
        (WebSocketsSansIOProtocol, "handle_pong", frame(PONG, b"a") + frame(BINARY, b"b"), [b"b"]),
        (WebSocketsSansIOProtocol, "handle_close", frame(BINARY, b"b") + close_frame(1000) + frame(TEXT), [b"b"]),
        (WebSocketsSansIOProtocol, "handle_parser_exception", frame(0x83, b"a") + frame(BINARY, b"b"), []),
        (WebSocketsSansIOProtocol, "handle_parser_exception", frame(TEXT, b"\xff") + frame(BINARY, b"b"), []),
        (WSProtocol, "handle_message", frame(TEXT, b"a") + frame(PING, b"b"), [b"b"]),
        (WSProtocol, "handle_ping", frame(PING, b"a") + frame(BINARY, b"b"), [b"b"]),
        (WSProtocol, "handle_close", frame(BINARY, b"b") + frame(TEXT, b"\xff") + frame(TEXT), [b"b"]),
    ],
)
async def test_what_is_dropped_is_not_answered(kind: Any, name: str, sent: bytes, left: list[bytes]) -> None:
    dropping = type("Dropping", (kind,), {name: lambda *args: None})
    async with connected(dropping, Application()) as peer:
        await peer.open()
        peer.send(sent)
        await peer.turn()
        peer.send(frame(TEXT, b"z" * 500))
        await peer.turn()
        assert [one.payload for one in peer.frames if one.payload != b"z" * 500] == left
        assert not peer.wire.closing and peer.kept == 0


@kinds
async def test_mistake_of_the_client_ends_the_connection_as_without_overrides(kind: Any) -> None:
    settings = {"ws_max_size": 100}
    bad = [frame(0x83), frame(TEXT, b"\xff"), frame(TEXT, b"x" * 101), frame(CLOSE, b"a"), frame(TEXT, b"", None)]
    for data in (*bad, *(frame(TEXT, b"ok") + one for one in bad)):
        ends = []
        for cls in (kind, calling(kind, [])):
            app, frames = await talked(cls, data, **settings)
            ends.append((app.events, frames))
        assert ends[0] == ends[1] and ends[0][1][-1].first == CLOSE


async def test_mistake_reaches_the_method_that_takes_them() -> None:
    heard: list[Any] = []

    class Noting(WebSocketsSansIOProtocol):
        def handle_parser_exception(self) -> None:
            assert self.conn.close_sent is not None
            heard.append((self.conn.close_sent.code, self.conn.close_sent.reason, str(self.conn.parser_exc)))
            super().handle_parser_exception()

    class NotingToo(WSProtocol):
        def handle_close(self, event: Any) -> None:
            heard.append((event.code, event.reason))
            super().handle_close(event)

    for data in (frame(TEXT, b"x" * 101), frame(TEXT, b"\xff"), frame(0x83)):
        for kind in (Noting, NotingToo):
            await talked(kind, data, ws_max_size=100)
    size, text = "Message exceeds the maximum size (100 bytes)", "invalid UTF-8 in a text message"
    assert heard == [
        *((1009, size, size), (1009, size)),
        *((1007, text, "None"), (1007, text)),
        *((1002, "invalid opcode", "invalid opcode"), (1002, "invalid opcode")),
    ]


async def test_program_fails_the_connection_by_its_library() -> None:
    class Strict(WebSocketsSansIOProtocol):
        def handle_text(self, event: Any) -> None:
            self.conn.fail(1008, "no text")
            self.handle_parser_exception()

    class Lax(WebSocketsSansIOProtocol):
        def handle_text(self, event: Any) -> None:
            self.handle_parser_exception()

    for kind, end in ((Strict, b"\x03\xf0no text"), (Lax, b"\x03\xea")):
        _, frames = await talked(kind, frame(TEXT, b"a"), frame(TEXT, b"b"))
        assert frames == [ServerFrame(CLOSE, end)]


@kinds
async def test_large_frame_comes_whole(kind: Any) -> None:
    sizes: list[int] = []

    class Measuring(kind):  # type: ignore[misc]
        def handle_bytes(self, event: Any) -> None:
            sizes.append(len(event.data))
            super().handle_bytes(event)

        def handle_message(self, event: Any) -> None:
            sizes.append(len(event.data))
            super().handle_message(event)

        def handle_cont(self, event: Any) -> None:
            sizes.append(len(event.data))
            super().handle_cont(event)

    data = frame(BINARY, b"x" * 70_000)
    first = frame(0x02, b"y" * 300)
    pieces = [data[:5], data[5:9], data[9:30_000], data[30_000:] + first[:100], first[100:], frame(CONT, b"z")]
    app, _ = await talked(Measuring, *pieces)
    assert sizes == [70_000, 300, 1]
    assert app.messages == [b"x" * 70_000, b"y" * 300 + b"z"]


@kinds
async def test_compressed_messages(kind: Any) -> None:
    import zlib

    heard: list[Any] = []
    packer = zlib.compressobj(wbits=-12)
    data = packer.compress(b"hello " * 20) + packer.flush(zlib.Z_SYNC_FLUSH)
    app = Application()
    async with connected(calling(kind, heard), app) as peer:
        await peer.open(DEFLATE)
        peer.send(frame(0xC1, data[:-4]), frame(TEXT, b"short"), frame(0xC1, b"\xff\xff"))
        await peer.turn()
        assert app.messages == ["hello " * 20, "short"]
        assert peer.frames[-1] == ServerFrame(CLOSE, b"\x03\xeadecompression failed")
    assert heard[-1] in ("handle_parser_exception", "handle_close")


async def test_program_that_has_its_own_dispatch() -> None:
    class Own(WebSocketsSansIOProtocol):
        def handle_events(self) -> None:
            for event in self.conn.events_received():
                kind = getattr(event, "opcode", None)
                if kind is None:
                    self.handle_connect(event)  # type: ignore[arg-type]
                elif kind == 1:
                    self.handle_text(event)  # type: ignore[arg-type]
                elif kind == 8:
                    self.handle_close(event)  # type: ignore[arg-type]
                else:
                    self.handle_ping()

    class OwnToo(WSProtocol):
        def handle_events(self) -> None:
            for event in self.conn.events():
                name = type(event).__name__
                method = {"Request": self.handle_connect, "TextMessage": self.handle_message, "Ping": self.handle_ping}
                method.get(name, self.handle_close)(event)  # type: ignore[operator]

    for kind in (Own, OwnToo):
        app, frames = await talked(kind, frame(TEXT, b"a") + frame(PING, b"p") + close_frame(1000))
        assert app.messages == ["a"]
        assert sorted(one.payload for one in frames) == [b"\x03\xe8", b"a", b"p"]


async def test_events_put_by_a_program() -> None:
    """As methods of upstream's do themselves; `read_paused` and the transport go together."""

    class Own(WebSocketsSansIOProtocol):
        def send_receive_event_to_app(self) -> None:
            text = b"".join(self.frames).decode()
            self.frames = []
            self.queue.put_nowait({"type": "websocket.receive", "text": f"{self.curr_msg_data_type} {text}"})
            if not self.read_paused:
                self.read_paused = True
                self.transport.pause_reading()

        async def receive(self) -> Any:
            event = await self.queue.get()
            if self.read_paused and self.queue.empty():
                self.read_paused = False
                self.transport.resume_reading()
            return event

    app, frames = await talked(Own, frame(TEXT, b"a") + frame(BINARY, b"b") + frame(TEXT, b"c"), close_frame(1000))
    assert app.messages == ["text a", "bytes b", "text c"]
    assert frames[-1] == ServerFrame(CLOSE, b"\x03\xe8")


async def test_queue_of_a_session() -> None:
    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        await asyncio.Event().wait()

    async with connected(WebSocketsSansIOProtocol, Application(script), ws_max_queue=2) as peer:
        queue = peer.session.queue
        with pytest.raises(asyncio.QueueEmpty):
            queue.get_nowait()
        await peer.open()
        assert (queue.empty(), queue.qsize()) == (True, 0)
        await queue.put({"type": "websocket.receive", "bytes": b"a"})
        assert not peer.session.read_paused
        queue.put_nowait({"type": "websocket.receive", "bytes": b"b"})
        assert peer.session.read_paused
        assert queue.get_nowait() == {"type": "websocket.receive", "bytes": b"a"}
        for code in (3000, 3001):
            queue.put_nowait({"type": "websocket.disconnect", "code": code})
        queue.put_nowait({"type": "websocket.receive", "bytes": b"never"})
        assert [await queue.get() for _ in range(3)][1:] == [{"type": "websocket.disconnect", "code": 3000}] * 2


@kinds
async def test_what_programs_read_of_a_session(kind: Any) -> None:
    """Under upstream's names, in methods of theirs."""

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        await asyncio.Event().wait()

    async with connected(kind, Application(script)) as peer:
        session = peer.session
        assert not session.handshake_initiated and session.scheme == "ws" and session.root_path == ""
        session.scheme = "own"
        assert session.scheme == "own"
        await peer.open()
        assert session.handshake_initiated and session.asgi_version == "3.0"
        state = session.server_state
        assert session.connections is state.connections and session.tasks is state.tasks
        assert session.default_headers == state.default_headers
        writable = session.writable
        assert writable.is_set() and await asyncio.wait_for(writable.wait(), 5)
        writable.clear()
        assert not writable.is_set()
        writable.set()
        assert writable.is_set()
        for step in (session.stop_keepalive, session.start_keepalive, session.schedule_ping):
            step()
        session.send_keepalive_ping()
        session.stop_keepalive()
        await peer.turn()
        assert [one.first for one in peer.frames] == [PING]
        assert not session.close_sent
        session.close_sent = False
        assert not session.close_sent


@pytest.mark.parametrize("first", [True, False])
async def test_reading_paused_before_the_handshake_is_answered(first: bool) -> None:
    answered = asyncio.Event()

    async def script(receive: Any, send: Any) -> None:
        await answered.wait()
        await echo(receive, send)

    async with connected(WebSocketsSansIOProtocol, Application(script)) as peer:
        peer.send(handshake() + frame(TEXT, b"a"))
        peer.session.read_paused = first
        assert peer.wire.read_paused is first
        peer.session.read_paused = False
        assert not peer.wire.read_paused and peer.kept
        answered.set()
        await peer.until(lambda: peer.wire.written and peer.frames)


async def test_close_frame_written_by_a_program() -> None:
    """Its echo ends the connection, and so does a client that never sends one."""

    class Closing(WebSocketsSansIOProtocol):
        def handle_text(self, event: Any) -> None:
            self.conn.send_close(1008, "no")
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            self.queue.put_nowait({"type": "websocket.disconnect", "code": 1008, "reason": "no"})

    for answer in (close_frame(1008), b""):
        app = Application()
        async with connected(Closing, app) as peer:
            await peer.open()
            peer.send(frame(TEXT, b"a") + frame(TEXT, b"b"))
            await peer.turn()
            assert peer.frames == [ServerFrame(CLOSE, b"\x03\xf0no")]
            assert app.events[-1]["code"] == 1008
            assert not peer.wire.closing
            if answer:
                peer.send(answer)
            else:
                peer.timers.advance(60)
            assert peer.wire.closing


@kinds
async def test_answer_to_a_close_frame_reaches_its_method(kind: Any) -> None:
    heard: list[Any] = []

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        await send({"type": "websocket.close", "code": 4000})

    async with connected(calling(kind, heard), Application(script)) as peer:
        await peer.open()
        await peer.turn()
        heard.clear()
        peer.send(frame(TEXT, b"late") + close_frame(4000))
        assert heard == ["handle_events", "handle_close"]
        assert peer.wire.closing


def failing(kind: Any) -> Any:
    def fail(*args: Any) -> None:
        raise LookupError

    names = ("handle_text", "handle_message", "handle_close")
    return type("Failing", (kind,), {name: fail for name in names if hasattr(kind, name)})


@kinds
@pytest.mark.parametrize("resumed", [False, True])
async def test_method_that_fails_breaks_the_connection_off(kind: Any, resumed: bool) -> None:
    """The application is told of the end, and not of what failed, though it may be the one that asked for more."""
    reported: list[Any] = []

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        while (await receive())["type"] != "websocket.disconnect":
            pass

    app = Application(script)
    async with connected(failing(kind), app, ws_max_queue=1) as peer:
        peer.timers.call_exception_handler = reported.append  # type: ignore[attr-defined]
        await peer.open()
        peer.session.read_paused = resumed
        if resumed:
            peer.session.data_received(frame(TEXT, b"a"))
            peer.session.read_paused = False
        else:
            peer.send(frame(TEXT, b"a"))
        await peer.turn()
        assert peer.wire.aborted
        assert app.error is None and app.events[-1] == {"type": "websocket.disconnect", "code": 1005}
    (context,) = reported
    assert isinstance(context["exception"], LookupError) and context["protocol"] is peer.session


@kinds
async def test_method_that_fails_for_the_answer_to_a_close_frame(kind: Any) -> None:
    reported: list[Any] = []
    app = Application(accept)
    async with connected(failing(kind), app) as peer:
        peer.timers.call_exception_handler = reported.append  # type: ignore[attr-defined]
        await peer.open()
        await peer.turn()
        peer.send(close_frame(1000))
        assert peer.wire.aborted and len(reported) == 1


async def test_frames_of_a_program_leave_with_its_pong() -> None:
    class Saying(WebSocketsSansIOProtocol):
        def handle_ping(self) -> None:
            self.conn.send_text(b"pinged")
            super().handle_ping()

    _, frames = await talked(Saying, frame(PING, b"a"))
    assert [one.payload for one in frames] == [b"a", b"pinged"]


async def test_legacy_class_has_methods_of_a_program_s_own() -> None:
    heard: list[Any] = []
    mine = type("Mine", (WebSocketProtocol,), {"handle_text": lambda *args: heard.append(args)})
    app, _ = await talked(mine, frame(TEXT, b"a"), allow_skipped_overrides=True)
    assert app.messages == ["a"] and not heard
