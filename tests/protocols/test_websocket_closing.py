"""How an open connection ends: by the client, by the application, by the server, by a loss."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import struct
import sys
import weakref
from collections.abc import Awaitable, Callable
from enum import IntEnum
from functools import partial
from typing import Any

import pytest

from tests import machines
from tests.protocols.websocket_tools import (
    BINARY,
    CLOSE,
    PING,
    TEXT,
    Application,
    ServerFrame,
    Wire,
    accept,
    close_frame,
    connected,
    echo,
    frame,
    handshake,
    listen,
)
from tests.utils import Mapping
from uvicorn.protocols.http.flow_control import WOKEN_TOGETHER
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.session import WebSocketSession
from uvicorn.protocols.websockets.session_states import SessionState
from uvicorn.rules import websocket_limits
from uvicorn.serving.write_deadlines import unsent

pytestmark = pytest.mark.anyio

ws_protocol_cls = machines.each_websocket


class GoingAway(IntEnum):
    CODE = 1001


def disconnect(code: int, reason: str | None = None) -> dict[str, Any]:
    event: dict[str, Any] = {"type": "websocket.disconnect", "code": code}
    if reason is not None:
        event["reason"] = reason
    return event


def sends(*messages: Any, then: Callable[[Any, Any], Awaitable[Any]] | None = None) -> Application:
    """An application that accepts, sends, and then receives what there is to receive."""

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        for message in messages:
            await send(message)
        if then is not None:
            await then(receive, send)

    return Application(script)


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [record.getMessage().rstrip("\n") for record in caplog.records if record.levelno >= level]


# The client closes


@pytest.mark.parametrize(
    ("sent", "echoed", "event"),
    [
        pytest.param(
            close_frame(1000, "bye"), ServerFrame(CLOSE, b"\x03\xe8bye"), disconnect(1000, "bye"), id="reason"
        ),
        pytest.param(close_frame(4999), ServerFrame(CLOSE, b"\x13\x87"), disconnect(4999, ""), id="private code"),
        pytest.param(close_frame(1014), ServerFrame(CLOSE, b"\x03\xf6"), disconnect(1014, ""), id="1014"),
        pytest.param(frame(CLOSE), ServerFrame(CLOSE, b""), disconnect(1005, ""), id="no code"),
    ],
)
async def test_close_frame_is_echoed_and_reported_and_the_connection_closed(
    ws_protocol_cls: Any, sent: bytes, echoed: ServerFrame, event: dict[str, Any]
) -> None:
    """WSX-01 WSX-02 WSX-17; WSX-05: each further receive gives the same event; upstream gives another, then blocks."""
    app = Application(listen)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        peer.send(sent)
        await peer.until(lambda: app.done)
        assert peer.frames == [echoed]
        assert app.events[1:] == [event] * 3
        await peer.until(lambda: peer.wire.lost)
        assert not peer.wire.aborted


async def test_messages_before_the_close_frame_are_delivered_first(ws_protocol_cls: Any) -> None:
    """WSX-01"""
    app = Application(listen)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        peer.send(frame(TEXT, b"a") + frame(TEXT, b"b") + close_frame(1000) + frame(TEXT, b"never"))
        await peer.until(lambda: app.done)
        assert app.messages == ["a", "b"]
        assert app.events[-1] == disconnect(1000, "")


async def test_frames_behind_the_close_frame_are_not_looked_at(ws_protocol_cls: Any) -> None:
    app = Application(listen)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        peer.send(close_frame(1000) + b"\xff\xff\xff")
        await peer.until(lambda: app.done)
        assert peer.frames == [ServerFrame(CLOSE, b"\x03\xe8")]


async def test_end_is_logged_with_client_path_and_code(ws_protocol_cls: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Upstream does not log it. The code is what the application is told."""
    caplog.set_level(logging.INFO, "uvicorn.error")

    async def closes(receive: Any, send: Any) -> None:
        await accept(receive, send)
        await send({"type": "websocket.close", "code": 4000})
        await receive()

    async def raises(receive: Any, send: Any) -> None:
        await accept(receive, send)
        raise ValueError

    cases: list[tuple[Any, bytes | None, int]] = [
        (listen, close_frame(1001, "x\ny"), 1001),
        (listen, frame(CLOSE), 1005),
        (listen, None, 1005),
        (listen, frame(TEXT, b"", mask=None), 1002),
        (accept, b"", 1000),
        (raises, b"", 1011),
        (closes, b"", 4000),
    ]
    for script, sent, code in cases:
        app = Application(script)
        async with connected(ws_protocol_cls, app) as peer:
            await peer.open(target="/chat%0a?x=1")
            if sent is None:
                peer.wire.lose()
            else:
                peer.send(sent)
            await peer.until(partial(getattr, peer.session, "disconnected"))
            await peer.turn()
        assert lines(caplog, logging.INFO)[-1] == f'192.0.2.7:50000 - "WebSocket /chat%0A?x=1" [closed {code}]'


# The connection is lost


@pytest.mark.parametrize("how", ["lost", "reset", "half-closed"])
async def test_loss_without_close_frame_is_reported_as_1005_each_time(ws_protocol_cls: Any, how: str) -> None:
    """WSX-03; WSX-06: upstream reports it once and then blocks for ever."""
    app = Application(listen)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        if how == "half-closed":
            peer.eof()
        else:
            peer.wire.lose(ConnectionResetError() if how == "reset" else None)
        await peer.until(lambda: app.done)
        assert app.events[1:] == [disconnect(1005)] * 3
        await peer.until(lambda: peer.wire.lost)
        assert peer.session.state is SessionState.CLOSED


async def test_loss_before_accept_is_reported_as_1006(ws_protocol_cls: Any, caplog: pytest.LogCaptureFixture) -> None:
    """WSX-04 WSX-10"""

    async def script(receive: Any, send: Any) -> None:
        await receive()
        peer.wire.lose()
        await receive()
        await send({"type": "websocket.accept"})

    caplog.set_level(logging.INFO, "uvicorn.error")
    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.until(lambda: app.done)
        assert app.events[1:] == [disconnect(1006)]
        assert isinstance(app.error, ClientDisconnected)
        assert lines(caplog, logging.INFO) == []


async def test_messages_received_before_the_loss_are_delivered(ws_protocol_cls: Any) -> None:
    """WSX-03"""
    app = Application(listen)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        peer.send(frame(TEXT, b"last words"))
        peer.wire.lose()
        await peer.until(lambda: app.done)
        assert app.messages == ["last words"]


async def test_receive_that_nobody_answers_is_no_trap_for_the_event_loop(ws_protocol_cls: Any) -> None:
    """An application that never looks at the type of an event cannot stop the server."""

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        while True:
            await receive()

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        peer.wire.lose()
        await peer.turn()
        assert not app.done
        for task in peer.state.tasks:
            task.cancel()
        await peer.until(lambda: app.done)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param({"type": "websocket.send", "text": "x"}, id="send"),
        pytest.param({"type": "websocket.close"}, id="close"),
        pytest.param({"type": "nonsense"}, id="nonsense"),
    ],
)
@pytest.mark.parametrize("how", ["lost", "closed"])
async def test_send_after_the_client_has_gone_raises_and_nothing_is_logged(
    ws_protocol_cls: Any, message: Any, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """WSX-07 WSX-08 WSX-09"""
    caplog.set_level(logging.WARNING, "uvicorn.error")

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        await receive()
        await send(message)

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        if how == "lost":
            peer.wire.lose()
        else:
            peer.send(close_frame(1000))
        await peer.until(lambda: app.done)
        await peer.turn()
        assert isinstance(app.error, ClientDisconnected) and isinstance(app.error, OSError)
        assert lines(caplog) == []


async def test_client_disconnected_raised_on_an_open_connection_closes_it(ws_protocol_cls: Any) -> None:
    """W6: it may come from elsewhere, from another connection the application serves."""

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        raise ClientDisconnected

    async with connected(ws_protocol_cls, Application(script)) as peer:
        await peer.open()
        await peer.until(lambda: peer.frames)
        assert peer.frames[0].close == (1000, "")


# Backpressure


async def test_send_waits_while_the_buffer_is_full(ws_protocol_cls: Any) -> None:
    """WSM-13"""

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        peer.wire.stall()
        await send({"type": "websocket.send", "text": "x"})

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.turn()
        assert not app.done and peer.frames == []
        peer.wire.flow()
        await peer.until(lambda: app.done)
        assert peer.frames[0] == ServerFrame(TEXT, b"x")


async def test_client_that_vanishes_while_send_waits_releases_it(ws_protocol_cls: Any) -> None:
    """W7 WSM-14"""
    events: list[Any] = []

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        peer.wire.stall()
        waiting = [asyncio.ensure_future(send({"type": "websocket.send", "text": "x"})) for _ in range(2)]
        await asyncio.wait(waiting)
        events.extend(task.exception() for task in waiting)
        await receive()

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.turn()
        assert not events
        peer.wire.lose()
        await peer.until(lambda: app.done)
        assert [type(event) for event in events] == [ClientDisconnected] * 2
        assert app.events[1:] == [disconnect(1005)]


async def test_many_sends_to_a_client_that_does_not_read_keep_their_order_and_go_on_by_and_by(
    ws_protocol_cls: Any,
) -> None:
    """I8: other connections have their turn in between."""
    count = 2000

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        peer.wire.stall()
        waiting = [
            asyncio.ensure_future(send({"type": "websocket.send", "text": str(number)})) for number in range(count)
        ]
        await asyncio.wait(waiting)
        await send({"type": "websocket.send", "text": "last"})

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.turn()
        peer.wire.flow()
        written = peer.wire.writes
        while not app.done:
            await asyncio.sleep(0)
            assert peer.wire.writes - written <= WOKEN_TOGETHER + 2  # with the last message, and a close frame
            written = peer.wire.writes
        assert [sent.payload.decode() for sent in peer.frames if sent.first == TEXT] == [
            *map(str, range(count)),
            "last",
        ]


async def test_cancelled_sends_leave_nothing_behind(ws_protocol_cls: Any) -> None:
    """I5 I8"""

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        peer.wire.stall()
        for _ in range(100):
            waiting = asyncio.ensure_future(send({"type": "websocket.send", "text": "given up"}))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
        left.append(peer.waits_to_send)
        await send({"type": "websocket.send", "text": "kept"})

    left: list[bool] = []
    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.until(lambda: left)
        assert left == [False]
        peer.wire.flow()
        await peer.until(lambda: app.done)
        assert app.error is None
        assert peer.frames[0] == ServerFrame(TEXT, b"kept")


async def test_half_closed_client_that_does_not_read_is_dropped_by_a_deadline(ws_protocol_cls: Any) -> None:
    """W7: asyncio would wait for the buffer to drain, for ever."""
    app = sends(then=listen)

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        peer.wire.stall()
        await send({"type": "websocket.send", "text": "x"})

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.turn()
        peer.eof()
        peer.timers.advance(websocket_limits.ANSWER_SECONDS)
        await peer.until(lambda: app.done)
        assert isinstance(app.error, ClientDisconnected)
        assert not peer.wire.lost
        peer.timers.advance(10.0)
        await peer.until(lambda: peer.wire.lost)
        assert peer.wire.aborted


async def test_client_that_does_not_read_is_dropped_by_a_deadline(ws_protocol_cls: Any) -> None:
    """Pings cannot tell when the application waits to send and reads nothing: its client could hold it for ever."""

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        peer.wire.stall()
        await send({"type": "websocket.send", "text": "x"})

    app = Application(script)
    async with connected(ws_protocol_cls, app, ws_max_queue=1, ws_ping_interval=20.0) as peer:
        await peer.open()
        peer.send(frame(TEXT, b"x") * 100)
        await peer.turn()
        assert peer.wire.read_paused
        for _ in range(5):
            peer.wire.unsent -= 14_500  # 240 bytes in each second, and the pings
            peer.timers.advance(60.0)
            assert not peer.wire.closing
        peer.wire.unsent -= 14_000
        peer.timers.advance(59.9)
        assert not peer.wire.closing and not app.done
        peer.timers.advance(0.1)
        assert peer.wire.aborted
        await peer.until(lambda: app.done)
        assert isinstance(app.error, ClientDisconnected)
        assert peer.queued.pop() == disconnect(1005)


async def test_client_that_reads_in_time_is_not_dropped(ws_protocol_cls: Any) -> None:
    async with connected(ws_protocol_cls, Application()) as peer:
        await peer.open()
        for _ in range(3):
            peer.wire.stall()
            peer.timers.advance(59.9)
            peer.wire.flow()
            peer.timers.advance(3600.0)
            assert not peer.wire.closing


async def test_deadline_for_clients_that_do_not_read_can_be_switched_off(ws_protocol_cls: Any) -> None:
    async with connected(ws_protocol_cls, Application(), timeout_write=0) as peer:
        await peer.open()
        peer.wire.stall()
        peer.timers.advance(1e6)
        assert not peer.wire.closing


async def test_client_that_takes_the_last_message_by_the_byte_is_dropped(ws_protocol_cls: Any) -> None:
    """W3: 240 bytes a second are asked of it."""
    app = sends({"type": "websocket.send", "bytes": b"x" * 100_000}, {"type": "websocket.close"})
    async with connected(ws_protocol_cls, app) as peer:
        peer.wire.stalled = True
        await peer.open()
        await peer.until(lambda: app.done)
        for taken in (2400, 2400, 2399):
            assert not peer.wire.closing
            peer.wire.unsent -= taken
            peer.timers.advance(10.0)
        await peer.until(lambda: peer.wire.lost)
        assert peer.wire.aborted


@pytest.mark.skipif(sys.platform != "linux", reason="counts differently, or not at all")
async def test_what_the_kernel_holds_for_a_peer_counts_as_not_taken() -> None:
    """It can be megabytes, and asks for more when a third of them is gone."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire = Wire()
        assert unsent(wire) == 0
        wire.socket = ours
        ours.sendall(b"x" * 5000)
        held = unsent(wire)
        wire.unsent = 7
        assert held >= 5000 and unsent(wire) == held + 7
        theirs.recv(5000)
        assert unsent(wire) == 7
    assert unsent(wire) == 7


async def test_only_the_latest_ping_is_answered_when_the_client_does_not_read(ws_protocol_cls: Any) -> None:
    """RFC 6455 section 5.5.3: a client cannot make the server keep a heap of pongs."""
    async with connected(ws_protocol_cls, Application()) as peer:
        await peer.open()
        peer.wire.stall()
        peer.send(*(frame(PING, struct.pack("!I", number)) for number in range(1000)))
        assert peer.frames == []
        peer.wire.flow()
        assert peer.frames == [ServerFrame(0x8A, struct.pack("!I", 999))]
        peer.wire.stall()
        peer.wire.flow()
        assert len(peer.frames) == 1


# The application closes


@pytest.mark.parametrize(
    ("message", "code", "reason"),
    [
        pytest.param({}, 1000, "", id="defaults"),
        pytest.param({"code": None, "reason": None}, 1000, "", id="None"),
        pytest.param({"code": 1008, "reason": "policy"}, 1008, "policy", id="1008"),
        pytest.param({"code": 3000, "reason": "ünï"}, 3000, "ünï", id="3000"),
        pytest.param({"code": 4999}, 4999, "", id="4999"),
        pytest.param({"code": GoingAway.CODE}, 1001, "", id="IntEnum"),
        pytest.param({"reason": "x" * 123}, 1000, "x" * 123, id="123 bytes"),
        pytest.param({"reason": "x" * 124}, 1000, "x" * 123, id="124 bytes"),
        pytest.param({"reason": "x" * 122 + "é"}, 1000, "x" * 122, id="cut at a character"),
    ],
)
async def test_close_is_sent_and_reported_back(ws_protocol_cls: Any, message: Any, code: int, reason: str) -> None:
    """W4 WSX-11 WSX-12: a reason is cut to the 123 bytes that fit, at a character."""

    async def ask(receive: Any, send: Any) -> None:
        await receive()
        await receive()

    app = sends({"type": "websocket.close", **message}, then=ask)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.until(lambda: app.done)
        assert [sent.close for sent in peer.frames] == [(code, reason)]
        assert app.events[1:] == [disconnect(code, reason)] * 2


@pytest.mark.parametrize("code", [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, -1])
async def test_invalid_close_code_raises_before_anything_happens(ws_protocol_cls: Any, code: int) -> None:
    """W4 WSX-15; WSX-16: upstream has then told the application already that the connection is closed."""

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        with pytest.raises(ValueError, match=f"^Invalid close code {code}: "):
            await send({"type": "websocket.close", "code": code})
        await send({"type": "websocket.send", "text": "still open"})
        await receive()

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        peer.send(frame(TEXT, b"hi"))
        await peer.until(lambda: app.done)
        assert app.error is None and app.messages == ["hi"]
        assert peer.frames[0] == ServerFrame(TEXT, b"still open")


async def closes(ws_protocol_cls: Any, app: Application) -> list[tuple[int, str]]:
    """Serve an application, which ends without an error; code and reason of its frames, all of them closes."""
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.until(lambda: app.done)
        assert app.error is None
        return [sent.close for sent in peer.frames]


@pytest.mark.parametrize("event", [{"code": 1000.0}, {"code": "1000"}, {"reason": b"bye"}, {"reason": 5}])
async def test_close_of_the_wrong_type_raises_before_anything_happens(ws_protocol_cls: Any, event: Any) -> None:
    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        with pytest.raises(TypeError):
            await send({"type": "websocket.close", **event})
        await send({"type": "websocket.close", "code": 3000})

    assert await closes(ws_protocol_cls, Application(script)) == [(3000, "")]


@pytest.mark.parametrize("reason", [None, "", b"", 0])
async def test_reason_that_is_false_is_none(ws_protocol_cls: Any, reason: Any) -> None:
    """As with upstream."""
    app = sends({"type": "websocket.close", "reason": reason})
    assert await closes(ws_protocol_cls, app) == [(1000, "")]


class Closing(Mapping):
    """An event that closes the connection while it is looked at."""

    def __init__(self, send: Any, **items: Any) -> None:
        super().__init__(**items)
        self.send = send

    def get(self, key: str, default: Any = None) -> Any:
        if key in ("text", "reason"):
            with pytest.raises(StopIteration):
                self.send({"type": "websocket.close", "code": 3001}).send(None)
        return super().get(key, default)


@pytest.mark.parametrize("event", [{"type": "websocket.send", "text": "late"}, {"type": "websocket.close"}])
async def test_nothing_follows_a_close_sent_while_an_event_is_looked_at(ws_protocol_cls: Any, event: Any) -> None:
    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        with pytest.raises(RuntimeError, match=f"Unexpected ASGI message '{event['type']}'"):
            await send(Closing(send, **event))

    assert await closes(ws_protocol_cls, Application(script)) == [(3001, "")]


@pytest.mark.parametrize("kind", ["websocket.send", "websocket.close", "websocket.accept"])
async def test_anything_after_the_applications_close_is_an_error(ws_protocol_cls: Any, kind: str) -> None:
    """WSE-08"""
    app = sends({"type": "websocket.close"}, {"type": kind})
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.until(lambda: app.done)
        assert isinstance(app.error, RuntimeError)
        assert str(app.error) == f"Unexpected ASGI message '{kind}', after sending 'websocket.close'."
        assert len(peer.frames) == 1


async def test_connection_is_kept_until_the_client_has_closed_too(ws_protocol_cls: Any) -> None:
    """W3 WSX-13 WSX-14: also after the application has returned; data meanwhile is dropped, pings need no answer."""
    app = sends({"type": "websocket.close", "code": 3000})
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.until(lambda: app.done)
        peer.send(frame(TEXT, b"late"), frame(0x01, b"la"), frame(0x80, b"te"), frame(PING, b"p"))
        peer.timers.advance(9.9)
        await peer.turn()
        assert not peer.wire.closing
        peer.send(close_frame(3000))
        await peer.until(lambda: peer.wire.lost)
        assert len(peer.frames) == 1 and not peer.wire.aborted
        assert [event["type"] for event in app.events] == ["websocket.connect"]


async def test_client_that_does_not_answer_the_close_is_dropped_after_ten_seconds(ws_protocol_cls: Any) -> None:
    """W3 WSX-13"""
    assert websocket_limits.CLOSE_TIMEOUT == 10.0
    app = sends({"type": "websocket.close"})
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.until(lambda: app.done)
        peer.timers.advance(10.0)
        await peer.until(lambda: peer.wire.lost)
        assert not peer.wire.aborted


async def test_slow_client_gets_all_of_a_large_last_message(ws_protocol_cls: Any) -> None:
    """W3: as long as it makes progress it has ten seconds more."""
    app = sends({"type": "websocket.send", "bytes": b"x" * 100_000}, {"type": "websocket.close", "code": 3001})
    async with connected(ws_protocol_cls, app) as peer:
        peer.wire.stalled = True
        await peer.open()
        await peer.until(lambda: app.done)
        for _ in range(5):
            peer.wire.unsent -= 10_000
            peer.timers.advance(10.0)
            await peer.turn()
        assert not peer.wire.lost
        peer.wire.flow()
        peer.send(close_frame(3001))
        await peer.until(lambda: peer.wire.lost)
        assert [len(sent.payload) for sent in peer.frames] == [100_000, 2]
        assert not peer.wire.aborted


async def test_client_that_stops_reading_the_last_message_is_dropped(ws_protocol_cls: Any) -> None:
    """W3: bounded"""
    app = sends({"type": "websocket.send", "bytes": b"x" * 100_000}, {"type": "websocket.close"})
    async with connected(ws_protocol_cls, app) as peer:
        peer.wire.stalled = True
        await peer.open()
        await peer.until(lambda: app.done)
        peer.timers.advance(10.0)
        await peer.until(lambda: peer.wire.lost)
        assert peer.wire.aborted


async def test_garbage_instead_of_the_clients_close_ends_the_wait(ws_protocol_cls: Any) -> None:
    """W3"""
    app = sends({"type": "websocket.close"})
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.until(lambda: app.done)
        peer.send(frame(TEXT, b"unmasked", mask=None))
        await peer.until(lambda: peer.wire.lost)
        assert len(peer.frames) == 1


async def test_paused_reading_does_not_hide_the_clients_close(ws_protocol_cls: Any) -> None:
    """W3: the frames that were kept back are read when the connection closes."""
    app = sends(then=lambda receive, send: peer.until(lambda: peer.wire.read_paused))
    async with connected(ws_protocol_cls, app, ws_max_queue=1) as peer:
        await peer.open()
        peer.send(frame(TEXT, b"a") + frame(TEXT, b"b") + close_frame(1000))
        await peer.until(lambda: peer.wire.lost)
        assert peer.frames[0].close == (1000, "")


@pytest.mark.parametrize("size", [1001, 100_000, 2**40])
async def test_client_whose_message_is_refused_can_finish_it_and_take_part_in_the_close(
    ws_protocol_cls: Any, size: int
) -> None:
    """W8: half-closing in the middle of it makes the library on the other side fail. What follows is not kept."""
    app = Application(listen)
    async with connected(ws_protocol_cls, app, ws_max_size=1000) as peer:
        await peer.open()
        peer.send(b"\x82\xff" + size.to_bytes(8, "big") if size > 65535 else b"\x82\xfe" + size.to_bytes(2, "big"))
        peer.send(b"mask" + b"x" * min(size // 2, 50_000))
        await peer.until(lambda: app.done)
        assert peer.frames[0].close[0] == 1009
        assert not peer.wire.eof and not peer.wire.closing
        if size > 2**32:
            peer.timers.advance(9.9)
            assert not peer.wire.closing
            peer.timers.advance(0.1)
        else:
            rest = size - size // 2
            peer.send(b"x" * (rest - 1), b"x" + frame(TEXT, b"late"), close_frame(1009))
        await peer.until(lambda: peer.wire.lost)
        assert len(peer.frames) == 1 and peer.kept == 0


async def test_message_beyond_the_limit_behind_the_servers_close_is_passed_over(ws_protocol_cls: Any) -> None:
    """W3 W8: nothing of it is kept, and the client's close is still found."""
    app = sends({"type": "websocket.close", "code": 3000})
    async with connected(ws_protocol_cls, app, ws_max_size=1000) as peer:
        await peer.open()
        await peer.until(lambda: app.done)
        late = frame(BINARY, bytes(5000)) + frame(0x02, bytes(70_000)) + frame(PING) + frame(0x41, b"?")
        for start in range(0, len(late), 999):
            peer.send(late[start : start + 999])
            assert peer.kept < 20 and not peer.wire.closing
        peer.send(close_frame(3000))
        await peer.until(lambda: peer.wire.lost)
        assert [sent.close for sent in peer.frames] == [(3000, "")]


async def test_closing_over_tls_does_not_half_close(ws_protocol_cls: Any) -> None:
    async with connected(ws_protocol_cls, Application(), tls=True) as peer:
        await peer.open()
        peer.send(frame(TEXT, b"x", mask=None))
        assert not peer.wire.eof and not peer.wire.closing
        peer.timers.advance(2.0)
        await peer.until(lambda: peer.wire.lost)


async def test_connection_whose_closing_hangs_is_aborted(ws_protocol_cls: Any) -> None:
    """TLS: the peer does not take part in the end of the encrypted stream."""
    app = sends({"type": "websocket.close"})
    async with connected(ws_protocol_cls, app, tls=True) as peer:
        await peer.open()
        await peer.until(lambda: app.done)
        peer.wire.closing = True
        peer.timers.advance(10.0)
        await peer.until(lambda: peer.wire.lost)
        assert peer.wire.aborted


# The application ends


async def test_return_without_close_sends_1000(ws_protocol_cls: Any, caplog: pytest.LogCaptureFixture) -> None:
    """W6; WSE-04: upstream drops the connection."""
    caplog.set_level(logging.WARNING, "uvicorn.error")
    app = sends()
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.until(lambda: peer.frames)
        assert [sent.close for sent in peer.frames] == [(1000, "")]
        peer.send(close_frame(1000))
        await peer.until(lambda: peer.wire.lost)
        assert lines(caplog) == []


@pytest.mark.parametrize("error", [ValueError, SystemExit, GeneratorExit], ids=lambda error: error.__name__)
async def test_exception_after_accept_sends_1011(
    ws_protocol_cls: Any, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """W6; WSE-02: upstream drops the connection."""
    caplog.set_level(logging.WARNING, "uvicorn.error")

    async def boom(receive: Any, send: Any) -> None:
        raise error("boom")

    async with connected(ws_protocol_cls, sends(then=boom)) as peer:
        await peer.open()
        await peer.until(lambda: peer.frames)
        assert [sent.close for sent in peer.frames] == [(1011, "")]
        assert lines(caplog) == ["Exception in ASGI application"]
        assert caplog.records[-1].exc_info is not None


async def test_exception_after_the_close_is_logged_and_changes_nothing(
    ws_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """WSE-02"""

    async def boom(receive: Any, send: Any) -> None:
        raise ValueError("boom")

    app = sends({"type": "websocket.close", "code": 3000}, then=boom)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.until(lambda: app.done)
        await peer.turn()
        assert [sent.close for sent in peer.frames] == [(3000, "")]
        assert lines(caplog) == ["Exception in ASGI application"]


async def test_cancelled_application_is_logged_and_sends_1011(
    ws_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """LIFE-21, for a WebSocket"""
    async with connected(ws_protocol_cls, Application(echo)) as peer:
        await peer.open()
        for task in peer.state.tasks:
            task.cancel()
        await peer.until(lambda: peer.frames)
        assert [sent.close for sent in peer.frames] == [(1011, "")]
        assert lines(caplog) == ["Exception in ASGI application"]


async def test_return_of_something_is_logged_and_sends_1011(
    ws_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """WSE-05"""

    async def script(receive: Any, send: Any) -> int:
        await accept(receive, send)
        return 42

    async with connected(ws_protocol_cls, Application(script)) as peer:
        await peer.open()
        await peer.until(lambda: peer.frames)
        assert [sent.close for sent in peer.frames] == [(1011, "")]
        assert lines(caplog) == ["ASGI callable should return None, but returned '42'."]


async def test_wrong_message_after_accept_is_an_error(ws_protocol_cls: Any) -> None:
    """WSE-07"""
    app = sends({"type": "websocket.accept"})
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.until(lambda: app.done)
        assert isinstance(app.error, RuntimeError)
        expected = "Expected ASGI message 'websocket.send' or 'websocket.close', but got 'websocket.accept'."
        assert str(app.error) == expected


async def test_application_thrown_away_with_its_event_loop_is_no_news(
    ws_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """K8: one that ignores its cancellation; nothing can be sent any more."""
    async with connected(ws_protocol_cls, Application(listen)) as peer:
        await peer.open()
        (task,) = peer.state.tasks
        task.get_coro().close()  # type: ignore[union-attr]
        assert peer.frames == []
    assert "Exception in ASGI application" not in caplog.text


def test_hooks_are_for_a_library_to_fill(ws_reader_cls: Any) -> None:
    """The session leaves `open` and `parse` to its subclass."""
    if not issubclass(ws_reader_cls, WebSocketSession):
        pytest.skip("it has no library")
    session: Any = object.__new__(WebSocketSession)
    for name, arguments in {"open": (None,), "parse": (b"",)}.items():
        with pytest.raises(NotImplementedError):
            getattr(session, name)(*arguments)
        assert getattr(ws_reader_cls, name) is not getattr(WebSocketSession, name)


# The server stops


async def test_shutdown_sends_1012_and_waits_for_the_client_with_a_bound(ws_protocol_cls: Any) -> None:
    """W16 WSX-18: upstream closes at once, so that the client can lose the frame."""
    app = Application(listen)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        peer.session.shutdown()
        await peer.until(lambda: app.done)
        assert [sent.close for sent in peer.frames] == [(1012, "")]
        assert app.events[1:] == [disconnect(1012)] * 3
        assert not peer.wire.closing
        peer.session.shutdown()
        assert len(peer.frames) == 1 and not peer.wire.closing
        peer.timers.advance(10.0)
        await peer.until(lambda: peer.wire.lost)


@pytest.mark.parametrize("code", [1001, 4000])
async def test_shutdown_code_can_be_chosen(ws_protocol_cls: Any, code: int) -> None:
    """W16"""
    app = Application(listen)
    async with connected(ws_protocol_cls, app, ws_shutdown_code=code) as peer:
        await peer.open()
        peer.session.shutdown()
        await peer.until(lambda: app.done)
        assert [sent.close for sent in peer.frames] == [(code, "")]
        assert app.events[-1] == disconnect(code)


async def test_shutdown_releases_a_send_that_waits(ws_protocol_cls: Any) -> None:
    """W16 K8"""

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        peer.wire.stall()
        await send({"type": "websocket.send", "text": "x"})

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        await peer.turn()
        peer.session.shutdown()
        await peer.until(lambda: app.done)
        assert isinstance(app.error, ClientDisconnected)


async def test_shutdown_during_the_handshake_answers_500(ws_protocol_cls: Any) -> None:
    """WSX-19"""

    async def script(receive: Any, send: Any) -> None:
        await receive()
        peer.session.shutdown()
        await receive()
        await send({"type": "websocket.accept"})

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.until(lambda: app.done)
        assert (peer.status, peer.body) == (500, b"Internal Server Error")
        assert app.events[1:] == [disconnect(1006)]
        assert isinstance(app.error, ClientDisconnected)


async def test_shutdown_before_the_handshake_is_complete_closes_silently(ws_protocol_cls: Any) -> None:
    async with connected(ws_protocol_cls, Application()) as peer:
        peer.send(handshake()[:-2])
        peer.session.shutdown()
        await peer.until(lambda: peer.wire.lost)
        assert peer.wire.written == b""


async def test_shutdown_lets_a_refusal_in_progress_end(ws_protocol_cls: Any) -> None:
    """LIFE-15, for a refusal"""

    async def script(receive: Any, send: Any) -> None:
        await send({"type": "websocket.http.response.start", "status": 401, "headers": []})
        peer.session.shutdown()
        await send({"type": "websocket.http.response.body", "body": b"no"})

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.until(lambda: app.done)
        assert (peer.status, peer.body) == (401, b"no")
        peer.session.shutdown()
        assert peer.wire.closing


async def test_disconnect_tells_the_application_at_once(ws_protocol_cls: Any) -> None:
    """K8: the server's last step before it cancels"""
    app = Application(listen)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        peer.session.disconnect()
        await peer.until(lambda: app.done)
        assert app.events[1] == disconnect(1012)


async def test_disconnect_reaches_an_application_that_is_refusing(ws_protocol_cls: Any) -> None:
    """K8"""

    async def script(receive: Any, send: Any) -> None:
        await send({"type": "websocket.http.response.start", "status": 401, "headers": []})
        await receive()
        await receive()

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.turn()
        peer.session.disconnect()
        await peer.until(lambda: app.done)
        assert app.events == [{"type": "websocket.connect"}, disconnect(1006)]


# What is left


async def test_names_that_tools_read(ws_protocol_cls: Any) -> None:
    async with connected(ws_protocol_cls, Application()) as peer:
        session = peer.session
        assert not session.handshake_complete and not session.disconnected and not session.read_paused
        await peer.open()
        assert session.handshake_complete and session.transport is peer.wire
        peer.wire.lose()
        assert session.disconnected


@pytest.mark.parametrize("end", ["before", "during", "after", "refused"])
async def test_lost_connections_leave_no_session_behind(ws_protocol_cls: Any, end: str) -> None:
    """K3, for a WebSocket: no timer, no task and no cycle of references keeps one."""

    async def deny(receive: Any, send: Any) -> None:
        await send({"type": "websocket.close"})

    async def one() -> weakref.ref[Any]:
        app = Application(deny if end == "refused" else None)
        async with connected(ws_protocol_cls, app, ws_ping_interval=20.0) as peer:
            if end == "before":
                peer.send(handshake()[:-1])
            else:
                peer.send(handshake("Sec-WebSocket-Extensions: permessage-deflate"))
                await peer.until(lambda: peer.wire.written)
            if end == "after":
                peer.send(close_frame(1000))
                await peer.until(lambda: peer.wire.lost)
            peer.wire.lose(ConnectionResetError())
            return weakref.ref(peer.session)

    gc.collect()
    gc.disable()
    try:
        references = [await one() for _ in range(10)]
        await asyncio.sleep(0)
        assert sum(reference() is not None for reference in references) <= 1
    finally:
        gc.enable()


async def test_no_object_of_a_connection_uses_a_dict(ws_protocol_cls: Any) -> None:
    """One per connection, request or message: every attribute is declared. Programs may add theirs to a session."""
    async with connected(ws_protocol_cls, Application()) as peer:
        session = peer.session
        peer.send(handshake()[:-1])
        peer.send(handshake()[-1:])
        objects = [session]
        if isinstance(session, WebSocketSession):
            objects += [session._incoming, session._incoming.frames, session._answer, session._answer.handshake]
            objects += [session.flow, session.keepalive, session.inbox, session._incoming.peer_end, session._head]
            objects += [session._output, session._output.closer, session._log, session._closing]
        await peer.until(lambda: peer.wire.written)
        objects += [session._log.frames] if isinstance(session, WebSocketSession) and session._log.frames else []
        for item in objects:
            assert not getattr(item, "__dict__", None), type(item)
            assert item is session or not hasattr(item, "__dict__"), type(item)
