"""Refusing to open: by close, by a response of the application, by an application that fails."""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Iterator
from typing import Any

import pytest

from tests import machines
from tests.protocols.websocket_tools import Application, connected, frame, handshake
from uvicorn.protocols.utils import ClientDisconnected

pytestmark = pytest.mark.anyio

ws_protocol_cls = machines.each_websocket

DISCONNECT = {"type": "websocket.disconnect", "code": 1006}

START = {"type": "websocket.http.response.start", "status": 401, "headers": []}


def body(data: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "websocket.http.response.body", "body": data, "more_body": more}


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage().rstrip("\n")) for record in caplog.records]


async def test_close_before_accept_answers_403(ws_protocol_cls: Any, caplog: pytest.LogCaptureFixture) -> None:
    """W5 WSR-01 WSR-02 WSR-03 WSR-04 WSR-07 WS-07 WS-08"""
    caplog.set_level(logging.INFO, "uvicorn.error")

    async def script(receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.close", "code": 3000, "reason": "ignored"})
        await receive()
        await receive()

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake(target="/x"))
        await peer.until(lambda: app.done)
        assert peer.head.split(b"\r\n") == [
            b"HTTP/1.1 403 Forbidden",
            b"server: uvicorn",
            b"content-type: text/plain; charset=utf-8",
            b"content-length: 0",
            b"connection: close",
        ]
        assert peer.body == b""
        assert app.events[1:] == [DISCONNECT, DISCONNECT]
        assert peer.wire.eof
        assert lines(caplog) == [
            ("INFO", '192.0.2.7:50000 - "WebSocket /x" 403'),
            ("INFO", "connection rejected (403 Forbidden)"),
        ]


async def test_receive_that_waits_is_released_by_the_refusal(ws_protocol_cls: Any) -> None:
    """W5"""

    async def script(receive: Any, send: Any) -> None:
        await receive()
        waiting = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        await send({"type": "websocket.close"})
        await waiting

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.until(lambda: app.done)
        assert app.events[1:] == [DISCONNECT]


@pytest.mark.parametrize("kind", ["websocket.accept", "websocket.send", "websocket.close"])
async def test_anything_after_the_refusal_is_an_error(ws_protocol_cls: Any, kind: str) -> None:
    """WSE-08"""

    async def script(receive: Any, send: Any) -> None:
        await send({"type": "websocket.close"})
        await send({"type": kind})

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.until(lambda: app.done)
        assert isinstance(app.error, RuntimeError)
        assert str(app.error) == f"Unexpected ASGI message '{kind}', after sending 'websocket.close'."


# A response of the application


async def test_response_in_one_piece_says_its_length(ws_protocol_cls: Any, caplog: pytest.LogCaptureFixture) -> None:
    """WSR-05 WSR-06 WSR-10 WSR-12 WS-07: nothing is logged at ERROR."""
    caplog.set_level(logging.INFO, "uvicorn.error")

    async def script(receive: Any, send: Any) -> None:
        await receive()
        await send({**START, "headers": [(b"X-Why", b"no"), (b"content-type", b"text/html")]})
        await send(body(b"<p>no</p>"))
        await receive()

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake(target="/x"))
        await peer.until(lambda: app.done)
        assert peer.head.split(b"\r\n") == [
            b"HTTP/1.1 401 Unauthorized",
            b"server: uvicorn",
            b"x-why: no",
            b"content-type: text/html",
            b"content-length: 9",
            b"connection: close",
        ]
        assert peer.body == b"<p>no</p>"
        assert peer.wire.writes == 1
        assert app.events[1:] == [DISCONNECT]
        assert lines(caplog) == [
            ("INFO", '192.0.2.7:50000 - "WebSocket /x" 401'),
            ("INFO", "connection rejected (401 Unauthorized)"),
        ]


async def test_response_in_pieces_is_streamed(ws_protocol_cls: Any) -> None:
    """WSR-05 WSR-06: websockets-sansio kept the pieces until the end."""

    async def script(receive: Any, send: Any) -> None:
        await send(START)
        assert peer.wire.written == b""
        await send(body(b"one", more=True))
        assert peer.body == b"3\r\none\r\n"
        await send(body(b"", more=True))
        await send(body(b" two"))

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.until(lambda: app.done)
        assert ("transfer-encoding", "chunked") in peer.headers
        assert peer.body == b"3\r\none\r\n4\r\n two\r\n0\r\n\r\n"


async def test_response_keeps_the_length_and_no_field_comes_twice(ws_protocol_cls: Any) -> None:
    """W5 WSR-06"""

    async def script(receive: Any, send: Any) -> None:
        await send({**START, "headers": [(b"Content-Length", b"5"), (b"Connection", b"close")]})
        await send(body(b"he", more=True))
        await send(body(b"llo"))

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.until(lambda: app.done)
        assert [name for name, _ in peer.headers] == ["server", "content-length", "connection"]
        assert peer.body == b"hello"


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(bytearray, id="bytearray"),
        pytest.param(lambda data: memoryview(bytearray(data[::-1]))[::-1], id="backwards"),
        pytest.param(lambda data: array("H", data), id="array"),
    ],
)
@pytest.mark.parametrize("length", [None, b"8"], ids=["chunked", "length"])
async def test_buffer_is_sent_as_it_was_at_send(ws_protocol_cls: Any, make: Any, length: bytes | None) -> None:
    """I2"""

    async def script(receive: Any, send: Any) -> None:
        await send({**START, "headers": [(b"content-length", length)] if length else []})
        peer.wire.stall()
        buffer = make(b"abcdefgh")
        sending = asyncio.ensure_future(send(body(buffer)))
        await asyncio.sleep(0)
        buffer[0] = 1
        peer.wire.flow()
        await sending

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.until(lambda: app.done)
        assert app.error is None
        assert peer.body == b"abcdefgh"


async def test_piece_of_the_wrong_length_leaves_the_response_as_it_was(ws_protocol_cls: Any) -> None:
    async def script(receive: Any, send: Any) -> None:
        await send({**START, "headers": [(b"content-length", b"5")]})
        for wrong in (body(b"much too long"), body(b"he"), body(b"too long", more=True)):
            with pytest.raises(RuntimeError, match="Content-Length"):
                await send(wrong)
        await send(body(b"hello"))

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.until(lambda: app.done)
        assert app.error is None
        assert (peer.status, peer.body) == (401, b"hello")


@pytest.mark.parametrize("outer", ["websocket.accept", "websocket.http.response.start"])
@pytest.mark.parametrize(
    ("inner", "status"),
    [
        pytest.param({"type": "websocket.accept"}, 101, id="accept"),
        pytest.param({"type": "websocket.close"}, 403, id="close"),
        pytest.param(START, 401, id="start"),
    ],
)
async def test_send_while_headers_are_read_is_in_front(
    ws_protocol_cls: Any, outer: str, inner: dict[str, Any], status: int
) -> None:
    """I4: headers may be a generator, which may send; what comes second is out of order."""

    async def script(receive: Any, send: Any) -> None:
        def headers() -> Iterator[tuple[bytes, bytes]]:
            with pytest.raises(StopIteration):
                send(inner).send(None)
            yield b"x-late", b"1"

        with pytest.raises(RuntimeError, match="ASGI message"):
            await send({"type": outer, "status": 402, "headers": headers()})
        if status == 401:
            await send(body(b""))

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.until(lambda: app.done)
        assert app.error is None
        assert peer.status == status and "x-late" not in dict(peer.headers)


async def test_response_completed_while_a_piece_of_it_is_read_is_not_added_to(ws_protocol_cls: Any) -> None:
    """I4: so may whatever says if more is to come."""

    class Sends:
        def __init__(self, send: Any) -> None:
            self.send = send

        def __bool__(self) -> bool:
            with pytest.raises(StopIteration):
                self.send(body(b"first")).send(None)
            return False

    async def script(receive: Any, send: Any) -> None:
        await send({**START, "headers": [(b"content-length", b"5")]})
        with pytest.raises(RuntimeError, match="after response already completed"):
            await send({**body(b"second"), "more_body": Sends(send)})

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.until(lambda: app.done)
        assert app.error is None
        assert peer.body == b"first"


@pytest.mark.parametrize("status", [204, 304])
async def test_response_without_content_has_none(ws_protocol_cls: Any, status: int) -> None:
    """R5, for a refusal"""

    async def script(receive: Any, send: Any) -> None:
        await send({**START, "status": status})
        await send(body(b"text"))

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.until(lambda: app.done)
        assert (peer.status, peer.body) == (status, b"")


async def test_headers_and_body_may_be_left_out(ws_protocol_cls: Any) -> None:
    """WSR-09: upstream raises KeyError; both have defaults in the specification."""

    async def script(receive: Any, send: Any) -> None:
        await send({"type": "websocket.http.response.start", "status": 404})
        await send({"type": "websocket.http.response.body"})

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.until(lambda: app.done)
        assert (peer.status, peer.body, app.error) == (404, b"", None)


@pytest.mark.parametrize("kind", [bytearray, memoryview])
async def test_fields_may_be_bytes_like_and_a_body_none(ws_protocol_cls: Any, kind: Any) -> None:
    async def script(receive: Any, send: Any) -> None:
        await receive()
        await send({**START, "headers": [(kind(b"x-a"), kind(b"b"))]})
        await send({**body(b""), "body": None})

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.until(lambda: app.done)
        assert b"x-a: b" in peer.head.split(b"\r\n")
        assert peer.body == b""


async def test_status_without_a_name_has_an_empty_phrase(ws_protocol_cls: Any) -> None:
    """WSR-07 WSR-11"""

    async def script(receive: Any, send: Any) -> None:
        await send({**START, "status": 299})
        await send(body(b""))

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.until(lambda: app.done)
        assert peer.head.startswith(b"HTTP/1.1 299 \r\n")


@pytest.mark.parametrize("status", [99, 100, 101, 199, 600])
async def test_status_that_cannot_refuse_raises_and_500_is_sent(ws_protocol_cls: Any, status: int) -> None:
    """WSR-11; 1xx do not end a request either."""

    async def script(receive: Any, send: Any) -> None:
        await send({**START, "status": status})

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.until(lambda: peer.wire.written)
        assert isinstance(app.error, RuntimeError)
        assert str(app.error) == f"Invalid HTTP status code '{status}' in response."
        assert peer.status == 500


async def test_header_that_would_split_the_response_raises_and_500_is_sent(ws_protocol_cls: Any) -> None:
    """R1, for a refusal"""

    async def script(receive: Any, send: Any) -> None:
        await send({**START, "headers": [(b"x", b"a\r\ny: z")]})

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.until(lambda: peer.wire.written)
        assert isinstance(app.error, RuntimeError)
        assert peer.status == 500 and b"y: z" not in peer.wire.written


async def test_start_without_any_body_closes_without_an_answer(
    ws_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """WSR-08: the head waits for the body; wsproto sent it alone."""
    caplog.set_level(logging.ERROR, "uvicorn.error")

    async def script(receive: Any, send: Any) -> None:
        await send(START)

    async with connected(ws_protocol_cls, Application(script)) as peer:
        peer.send(handshake())
        await peer.until(lambda: peer.wire.lost)
        assert peer.wire.written == b""
        assert lines(caplog) == [("ERROR", "ASGI callable returned without completing handshake.")]


async def test_body_without_its_end_is_visibly_cut(ws_protocol_cls: Any, caplog: pytest.LogCaptureFixture) -> None:
    """WSR-08"""
    caplog.set_level(logging.ERROR, "uvicorn.error")

    async def script(receive: Any, send: Any) -> None:
        await send(START)
        await send(body(b"half", more=True))

    async with connected(ws_protocol_cls, Application(script)) as peer:
        peer.send(handshake())
        await peer.until(lambda: peer.wire.lost)
        assert peer.body == b"4\r\nhalf\r\n"
        assert lines(caplog) == [("ERROR", "ASGI callable returned without completing handshake.")]


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        pytest.param([b"12", b"3456"], "Response content longer than Content-Length", id="longer"),
        pytest.param([b"12", b"3"], "Response content shorter than Content-Length", id="shorter"),
    ],
)
async def test_body_that_contradicts_its_length_raises(ws_protocol_cls: Any, pieces: list[bytes], message: str) -> None:
    """R4, for a refusal"""

    async def script(receive: Any, send: Any) -> None:
        await send({**START, "headers": [(b"content-length", b"5")]})
        for piece in pieces:
            await send(body(piece, more=piece is not pieces[-1]))

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.until(lambda: peer.wire.lost)
        assert isinstance(app.error, RuntimeError) and str(app.error) == message
        assert (peer.status, peer.body) == (401, b"12")


@pytest.mark.parametrize("kind", ["websocket.close", "websocket.accept", "websocket.http.response.start"])
async def test_other_message_after_the_start_is_an_error(ws_protocol_cls: Any, kind: str) -> None:
    """WSR-13"""

    async def script(receive: Any, send: Any) -> None:
        await send(START)
        await send({"type": kind})

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.until(lambda: app.done)
        expected = f"Expected ASGI message 'websocket.http.response.body' but got '{kind}'."
        assert isinstance(app.error, RuntimeError) and str(app.error) == expected


async def test_anything_after_the_response_is_an_error(ws_protocol_cls: Any) -> None:
    """WSE-08"""

    async def script(receive: Any, send: Any) -> None:
        await send(START)
        await send(body(b""))
        await send(body(b""))

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.until(lambda: app.done)
        expected = "Unexpected ASGI message 'websocket.http.response.body', after response already completed."
        assert isinstance(app.error, RuntimeError) and str(app.error) == expected


async def test_half_closed_client_still_gets_its_refusal(ws_protocol_cls: Any) -> None:
    """K5, for a refusal"""

    async def script(receive: Any, send: Any) -> None:
        await send(START)
        await send(body(b"one", more=True))
        peer.eof()
        await send(body(b"two"))

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.until(lambda: app.done)
        assert peer.body.endswith(b"0\r\n\r\n")
        assert peer.wire.closing


async def test_half_closed_client_is_gone_over_tls(ws_protocol_cls: Any) -> None:
    """asyncio cannot keep an encrypted connection open in one direction."""

    async def script(receive: Any, send: Any) -> None:
        await send(START)
        await receive()
        peer.eof()
        await receive()
        await send(body(b""))

    app = Application(script)
    async with connected(ws_protocol_cls, app, tls=True) as peer:
        peer.send(handshake())
        await peer.until(lambda: app.done)
        assert app.events[1:] == [DISCONNECT]
        assert isinstance(app.error, ClientDisconnected)


async def test_refusal_waits_for_a_slow_client(ws_protocol_cls: Any) -> None:
    """R9, for a refusal"""

    async def script(receive: Any, send: Any) -> None:
        await send(START)
        await send(body(b"one", more=True))
        peer.wire.stall()
        await send(body(b"two"))

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.turn()
        assert not app.done and peer.body == b"3\r\none\r\n"
        peer.wire.flow()
        await peer.until(lambda: app.done)


async def test_frames_sent_with_a_refused_handshake_are_dropped(ws_protocol_cls: Any) -> None:
    """W12: reading goes on, so that the kernel does not reset the connection before the client has read."""

    async def script(receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.close"})
        await receive()

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake() + frame(0x82, b"x" * 70_000))
        peer.send(frame(0x82, b"x" * 70_000))
        await peer.until(lambda: app.done)
        await peer.turn()
        assert not peer.wire.read_paused and not peer.wire.held
        assert app.events[1:] == [DISCONNECT]


# Applications that fail before they accept


async def test_exception_before_accept_is_logged_and_answered_500(
    ws_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """WSE-01 WSE-09 WSR-07"""
    caplog.set_level(logging.INFO, "uvicorn.error")

    async def script(receive: Any, send: Any) -> None:
        raise ValueError("boom")

    async with connected(ws_protocol_cls, Application(script)) as peer:
        peer.send(handshake())
        await peer.until(lambda: peer.wire.written)
        assert peer.head.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
        assert peer.body == b"Internal Server Error"
        assert dict(peer.headers) == {
            "server": "uvicorn",
            "content-type": "text/plain; charset=utf-8",
            "content-length": "21",
            "connection": "close",
        }
        assert lines(caplog) == [
            ("ERROR", "Exception in ASGI application"),
            ("INFO", '192.0.2.7:50000 - "WebSocket /" 500'),
            ("INFO", "connection rejected (500 Internal Server Error)"),
        ]
        assert caplog.records[0].exc_info is not None and caplog.records[0].exc_info[0] is ValueError


async def test_return_before_accept_is_logged_and_answered_500(
    ws_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """WSE-03"""
    caplog.set_level(logging.ERROR, "uvicorn.error")

    async def script(receive: Any, send: Any) -> None:
        await receive()

    async with connected(ws_protocol_cls, Application(script)) as peer:
        peer.send(handshake())
        await peer.until(lambda: peer.wire.written)
        assert peer.status == 500
        assert lines(caplog) == [("ERROR", "ASGI callable returned without completing handshake.")]


@pytest.mark.parametrize("kind", ["websocket.send", "http.response.start"])
async def test_wrong_first_message_is_an_error(ws_protocol_cls: Any, kind: str) -> None:
    """WSE-06"""

    async def script(receive: Any, send: Any) -> None:
        await send({"type": kind})

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake())
        await peer.until(lambda: app.done)
        assert isinstance(app.error, RuntimeError)
        assert str(app.error) == (
            "Expected ASGI message 'websocket.accept', 'websocket.close' or 'websocket.http.response.start' "
            f"but got '{kind}'."
        )
