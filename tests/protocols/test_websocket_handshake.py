"""The opening handshake: what the application sees of it, what the client is answered."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest

from tests import machines
from tests.protocols.websocket_tools import (
    ACCEPT,
    DEFLATE,
    KEY,
    TEXT,
    Application,
    ServerFrame,
    accept,
    connected,
    echo,
    frame,
    handshake,
)
from uvicorn.protocols.http.wire.head import HeadLimits, RequestRefused
from uvicorn.protocols.websockets.handshake import accept_response, parse_handshake

pytestmark = pytest.mark.anyio

ws_protocol_cls = machines.each_websocket


def without(head: bytes, name: str) -> bytes:
    """`head` without the lines of the field `name`."""
    lines = head.split(b"\r\n")
    return b"\r\n".join(line for line in lines if not line.lower().startswith(name.encode() + b":"))


# The scope


async def test_scope_has_exactly_the_keys_of_the_specification(ws_protocol_cls: Any) -> None:
    """WS-01 WS-02"""
    app = Application()
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open(target="/a%20b?c=%20d")
        assert app.scope == {
            "type": "websocket",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "scheme": "ws",
            "server": ("192.0.2.1", 8000),
            "client": ("192.0.2.7", 50000),
            "root_path": "",
            "path": "/a b",
            "raw_path": b"/a%20b",
            "query_string": b"c=%20d",
            "headers": [
                (b"host", b"example.org"),
                (b"upgrade", b"websocket"),
                (b"connection", b"Upgrade"),
                (b"sec-websocket-version", b"13"),
                (b"sec-websocket-key", KEY.encode()),
            ],
            "subprotocols": [],
            "state": {},
            "extensions": {"websocket.http.response": {}},
        }


async def test_scheme_is_wss_over_tls(ws_protocol_cls: Any) -> None:
    """WS-01"""
    app = Application()
    async with connected(ws_protocol_cls, app, tls=True) as peer:
        await peer.open()
        assert app.scope["scheme"] == "wss"


async def test_root_path_stands_in_front_of_both_paths(ws_protocol_cls: Any) -> None:
    """WS-04"""
    app = Application()
    async with connected(ws_protocol_cls, app, root_path="/api") as peer:
        await peer.open(target="/x")
        assert (app.scope["root_path"], app.scope["path"], app.scope["raw_path"]) == ("/api", "/api/x", b"/api/x")


async def test_state_is_a_shallow_copy_of_what_the_lifespan_left(ws_protocol_cls: Any) -> None:
    """WS-04"""
    state = {"shared": [1]}
    app = Application()
    async with connected(ws_protocol_cls, app, state=state) as peer:
        await peer.open()
        assert app.scope["state"] == state and app.scope["state"] is not state
        assert app.scope["state"]["shared"] is state["shared"]


async def test_absolute_target_gives_its_path_and_its_host(ws_protocol_cls: Any) -> None:
    """WS-04: the HTTP rules; the authority in the target replaces the host field."""
    app = Application()
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open(target="http://other.example/x?y")
        assert (app.scope["raw_path"], app.scope["query_string"]) == (b"/x", b"y")
        assert [value for name, value in app.scope["headers"] if name == b"host"] == [b"other.example"]


async def test_subprotocols_are_those_of_all_fields_split_and_trimmed(ws_protocol_cls: Any) -> None:
    """WS-03 W2"""
    app = Application()
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open("Sec-WebSocket-Protocol: a,  b ,", "Sec-WebSocket-Protocol: c")
        assert app.scope["subprotocols"] == ["a", "b", "c"]


async def test_high_bytes_in_a_header_value_reach_the_scope_unchanged(ws_protocol_cls: Any) -> None:
    """WS-21"""
    app = Application()
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open("X-Name: \xe9\xff")
        assert (b"x-name", b"\xe9\xff") in app.scope["headers"]


async def test_any_origin_is_let_in(ws_protocol_cls: Any) -> None:
    """WS-20"""
    async with connected(ws_protocol_cls, Application()) as peer:
        await peer.open("Origin: https://elsewhere.example")


async def test_configuration_is_loaded_if_it_is_not(ws_protocol_cls: Any) -> None:
    """API-08: classes are called with config, server_state and app_state."""
    from uvicorn.config import Config
    from uvicorn.server import ServerState

    config = Config(echo, log_config=None)
    session = ws_protocol_cls(config=config, server_state=ServerState(), app_state={})
    assert config.loaded
    assert session.app is config.loaded_app


# Accepting


async def test_connect_comes_first_even_if_the_application_has_accepted_already(ws_protocol_cls: Any) -> None:
    """WS-05"""

    async def script(receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        await receive()
        await receive()

    app = Application(script)
    async with connected(ws_protocol_cls, app) as peer:
        await peer.open()
        peer.send(frame(TEXT, b"hi"))
        await peer.until(lambda: app.done)
        assert app.events == [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": "hi"}]


async def test_accept_is_logged_with_client_and_path(ws_protocol_cls: Any, caplog: pytest.LogCaptureFixture) -> None:
    """WS-06 WS-08"""
    caplog.set_level(logging.INFO, "uvicorn.error")
    async with connected(ws_protocol_cls, Application()) as peer:
        await peer.open(target="/chat%0a?x=1")
        assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
            ("INFO", '192.0.2.7:50000 - "WebSocket /chat%0A?x=1" [accepted]'),
            ("INFO", "connection open"),
        ]


async def test_answer_has_its_lines_in_upstreams_order(ws_protocol_cls: Any) -> None:
    """WS-09 WS-11 WS-12"""

    async def script(receive: Any, send: Any) -> None:
        headers = [(b"X-One", b"1"), (b"x-one", b"2")]
        await send({"type": "websocket.accept", "subprotocol": "chat", "headers": headers})
        await receive()
        await receive()

    async with connected(ws_protocol_cls, Application(script), headers=[("X-Default", "d")]) as peer:
        await peer.open(DEFLATE, "Sec-WebSocket-Protocol: chat")
        assert peer.head.split(b"\r\n") == [
            b"HTTP/1.1 101 Switching Protocols",
            b"Upgrade: websocket",
            b"Connection: Upgrade",
            b"Sec-WebSocket-Accept: " + ACCEPT,
            b"Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=12; client_max_window_bits=12",
            b"server: uvicorn",
            b"x-default: d",
            b"x-one: 1",
            b"x-one: 2",
            b"Sec-WebSocket-Protocol: chat",
        ]


async def test_date_header_false_leaves_the_date_out(ws_protocol_cls: Any) -> None:
    """WS-10: upstream's legacy implementation sends it all the same."""
    async with connected(ws_protocol_cls, Application()) as peer:
        await peer.open()
        assert "date" not in dict(peer.headers)
    async with connected(ws_protocol_cls, Application()) as peer:
        peer.state.configure(headers=[], date_header=True)
        await peer.open()
        assert [name for name, _ in peer.headers].count("date") == 1


@pytest.mark.parametrize("subprotocol", [None, ""], ids=["missing", "empty"])
async def test_no_subprotocol_sends_no_field(ws_protocol_cls: Any, subprotocol: str | None) -> None:
    """WS-14"""

    async def script(receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept", "subprotocol": subprotocol})
        await receive()
        await receive()

    async with connected(ws_protocol_cls, Application(script)) as peer:
        await peer.open("Sec-WebSocket-Protocol: chat")
        assert "sec-websocket-protocol" not in dict(peer.headers)


async def test_subprotocol_that_was_not_offered_is_sent_anyway(ws_protocol_cls: Any) -> None:
    """WS-13: as websockets-sansio does; wsproto closed without an answer."""

    async def script(receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept", "subprotocol": "other"})
        await receive()
        await receive()

    async with connected(ws_protocol_cls, Application(script)) as peer:
        await peer.open("Sec-WebSocket-Protocol: chat")
        assert dict(peer.headers)["sec-websocket-protocol"] == "other"


@pytest.mark.parametrize(
    ("message", "error"),
    [
        pytest.param({"subprotocol": "a\r\nx: y"}, RuntimeError, id="subprotocol"),
        pytest.param({"headers": [(b"x", b"a\r\ny: z")]}, RuntimeError, id="value"),
        pytest.param({"headers": [(b"x y", b"z")]}, RuntimeError, id="name"),
        pytest.param({"headers": [("x", "y")]}, TypeError, id="text"),
    ],
)
async def test_accept_that_would_split_the_answer_raises_and_leaves_the_handshake_open(
    ws_protocol_cls: Any, message: Any, error: type[Exception]
) -> None:
    """R1, for the answer to a handshake"""

    async def script(receive: Any, send: Any) -> None:
        with pytest.raises(error):
            await send({"type": "websocket.accept", **message})
        await send({"type": "websocket.accept"})
        await receive()
        await receive()

    async with connected(ws_protocol_cls, Application(script)) as peer:
        await peer.open()
        assert b"y: z" not in peer.wire.written and b"x: y" not in peer.wire.written


async def test_fields_that_the_answer_has_itself_are_not_sent_twice(ws_protocol_cls: Any) -> None:
    """W5"""

    async def script(receive: Any, send: Any) -> None:
        names = [b"Upgrade", b"connection", b"Sec-WebSocket-Accept", b"content-length", b"sec-websocket-protocol"]
        headers = [(name, b"0") for name in names]
        await send({"type": "websocket.accept", "headers": headers, "subprotocol": "chat"})
        await receive()
        await receive()

    async with connected(ws_protocol_cls, Application(script)) as peer:
        await peer.open()
        names = [name for name, _ in peer.headers]
        assert names == ["upgrade", "connection", "sec-websocket-accept", "server", "sec-websocket-protocol"]


async def test_subprotocol_given_as_a_header_is_sent(ws_protocol_cls: Any) -> None:
    request = parse_handshake(handshake(), HeadLimits(1000, 100, 100))
    headers = [(b"sec-websocket-protocol", b"chat")]
    assert b"\r\nsec-websocket-protocol: chat\r\n" in accept_response(request, b"", headers, None, b"")


# Bytes behind the handshake


async def test_frames_in_the_same_read_as_the_handshake_are_processed(ws_protocol_cls: Any) -> None:
    """W12 UPG-07: upstream loses them."""
    app = Application()
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake() + frame(TEXT, b"early") + frame(TEXT, b"bird")[:3])
        await peer.until(lambda: app.messages)
        assert peer.frames == [ServerFrame(TEXT, b"early")]
        peer.send(frame(TEXT, b"bird")[3:])
        await peer.until(lambda: len(peer.frames) == 2)
        assert peer.frames[1] == ServerFrame(TEXT, b"bird")


async def test_frames_before_the_accept_wait_and_are_bounded(ws_protocol_cls: Any) -> None:
    """W12 D4: reading pauses at 64 KiB until the application has accepted."""

    async def script(receive: Any, send: Any) -> None:
        await receive()
        assert peer.wire.read_paused
        await send({"type": "websocket.accept"})
        await receive()
        await receive()

    app = Application(script)
    async with connected(ws_protocol_cls, app, ws_max_size=200_000) as peer:
        peer.send(handshake())
        peer.send(frame(0x82, b"x" * 40_000))
        assert not peer.wire.read_paused
        peer.send(frame(0x82, b"y" * 40_000))
        assert peer.wire.read_paused
        peer.send(frame(0x82, b"z"))
        assert bytes(peer.wire.held) == frame(0x82, b"z")
        await peer.until(lambda: app.done)
        assert app.messages == [b"x" * 40_000, b"y" * 40_000]


async def test_handshake_in_pieces_is_understood(ws_protocol_cls: Any) -> None:
    """W12: classes are handed raw bytes, however they were cut."""
    app = Application()
    async with connected(ws_protocol_cls, app) as peer:
        for byte in handshake() + frame(TEXT, b"hi"):
            peer.send(bytes((byte,)))
        await peer.until(lambda: app.messages)
        assert app.messages == ["hi"]


# Broken handshakes

BROKEN = [
    pytest.param(without(handshake(), "sec-websocket-key"), 400, "missing Sec-WebSocket-Key header", id="no key"),
    pytest.param(handshake(f"Sec-WebSocket-Key: {KEY}"), 400, "invalid Sec-WebSocket-Key header", id="two keys"),
    pytest.param(
        handshake().replace(KEY.encode(), b"abc="),
        400,
        "invalid Sec-WebSocket-Key header",
        id="key that is not 16 bytes",
    ),
    pytest.param(
        handshake().replace(KEY.encode(), b"!GhlIHNhbXBsZSBub25jZQ=="),
        400,
        "invalid Sec-WebSocket-Key header",
        id="key that is not base64",
    ),
    pytest.param(
        without(handshake(), "sec-websocket-version"), 400, "missing Sec-WebSocket-Version header", id="no version"
    ),
    pytest.param(
        handshake().replace(b"Version: 13", b"Version: 8"), 426, "unsupported Sec-WebSocket-Version", id="old version"
    ),
    pytest.param(handshake(method="POST"), 405, "WebSocket requested with a method other than GET", id="not GET"),
    pytest.param(handshake(version="HTTP/1.0"), 505, "WebSocket requested with HTTP/1.0", id="HTTP/1.0"),
    pytest.param(handshake(version="HTTP/2.0"), 505, "HTTP version above 1", id="HTTP/2.0"),
    pytest.param(without(handshake(), "upgrade"), 426, "this needs a WebSocket client", id="no upgrade"),
    pytest.param(without(handshake(), "connection"), 426, "this needs a WebSocket client", id="no connection"),
    pytest.param(without(handshake(), "host"), 400, "missing Host", id="no host"),
    pytest.param(handshake("Content-Length: 2"), 400, "a WebSocket handshake has no body", id="with a body"),
    pytest.param(handshake("Transfer-Encoding: chunked"), 400, "a WebSocket handshake has no body", id="chunked"),
    pytest.param(handshake("Expect: tea"), 417, "unknown expectation", id="expectation"),
    pytest.param(handshake("Sec-WebSocket-Protocol: \x80\xff"), 400, "invalid Sec-WebSocket-Protocol header", id="W1"),
    pytest.param(handshake("Sec-WebSocket-Protocol: a b"), 400, "invalid Sec-WebSocket-Protocol header", id="blank"),
    pytest.param(
        handshake("Sec-WebSocket-Extensions: ;x"), 400, "invalid Sec-WebSocket-Extensions header", id="extensions"
    ),
    pytest.param(
        handshake("Sec-WebSocket-Extensions: \x80\xff"), 400, "invalid Sec-WebSocket-Extensions header", id="D8"
    ),
    pytest.param(handshake(target="/#x"), 400, "fragment in the request target", id="fragment"),
    pytest.param(handshake("broken line"), 400, "malformed field name", id="no colon"),
    pytest.param(handshake().replace(b"\r\n", b"\n"), 400, "malformed HTTP version", id="bare LF"),
]


@pytest.mark.parametrize(("head", "status", "reason"), BROKEN)
async def test_broken_handshake_is_refused_and_the_application_not_called(
    ws_protocol_cls: Any, head: bytes, status: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """W1 W13 D8 WS-15 WS-16 WS-17 WS-18 WS-19 UPG-09"""
    caplog.set_level(logging.INFO, "uvicorn.error")
    app = Application()
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(head)
        assert peer.status == status
        assert peer.body.decode() == f"Failed to open a WebSocket connection: {reason}.\n"
        headers = dict(peer.headers)
        assert headers["content-length"] == str(len(peer.body))
        assert headers["content-type"] == "text/plain; charset=utf-8"
        assert "close" in headers["connection"]
        await peer.turn()
        assert app.scope is None
        asked, rejected = (record.getMessage() for record in caplog.records)
        assert asked.startswith('192.0.2.7:50000 - "WebSocket ') and asked.endswith(f'" {status}')
        assert rejected.startswith("connection rejected (")


@pytest.mark.parametrize(
    ("head", "shown"),
    [
        pytest.param(handshake(target="/a?b=c", method="POST"), "/a?b=c", id="path and query"),
        pytest.param(b"\r\n" + handshake(target='/"?"', method="POST"), "/%22?%22", id="quotation marks"),
        pytest.param(handshake(target="/" + "x" * 9000, method="POST"), "/" + "x" * 2047, id="long"),
        pytest.param(handshake(target="*"), "*", id="asterisk"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00", "-", id="not HTTP"),
        pytest.param(b"GET /\x1b HTTP/1.1\r\n\r\n", "-", id="control character"),
    ],
)
async def test_refused_handshake_is_logged_with_client_and_target(
    ws_protocol_cls: Any, head: bytes, shown: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Upstream says neither. Nothing of it can end the line, or reach the terminal as control."""
    caplog.set_level(logging.INFO, "uvicorn.error")
    async with connected(ws_protocol_cls, Application()) as peer:
        peer.send(head)
        line = caplog.records[0].getMessage()
        assert line == f'192.0.2.7:50000 - "WebSocket {shown}" {peer.status}'


async def test_refusal_of_a_head_request_has_no_content(ws_protocol_cls: Any) -> None:
    """W13 R5: RFC 9110 section 9.3.2"""
    async with connected(ws_protocol_cls, Application()) as peer:
        peer.send(handshake(method="HEAD"))
        assert (peer.status, peer.body) == (405, b"")
        assert int(dict(peer.headers)["content-length"]) > 0


async def test_refusals_say_what_would_be_right(ws_protocol_cls: Any) -> None:
    """W13 WS-17 WS-18: RFC 9110 sections 15.5.6 and 15.5.22, RFC 6455 section 4.4"""
    async with connected(ws_protocol_cls, Application()) as peer:
        peer.send(handshake(method="POST"))
        assert dict(peer.headers)["allow"] == "GET"
    async with connected(ws_protocol_cls, Application()) as peer:
        peer.send(handshake().replace(b"Version: 13", b"Version: 8"))
        headers = dict(peer.headers)
        assert (headers["sec-websocket-version"], headers["upgrade"]) == ("13", "websocket")
        assert headers["connection"] == "upgrade, close"


@pytest.mark.parametrize(
    ("setting", "head", "status"),
    [
        pytest.param({"limit_request_head": 400}, handshake("X: " + "y" * 400), 431, id="head"),
        pytest.param({"limit_request_head": 400}, b"GET / HTTP/1.1\r\nX: " + b"y" * 400, 431, id="head without end"),
        pytest.param({"limit_request_fields": 5}, handshake("X: y"), 431, id="fields"),
        pytest.param({"limit_request_target": 10}, handshake(target="/1234567890"), 414, id="target"),
    ],
)
async def test_oversized_handshake_is_refused(
    ws_protocol_cls: Any, setting: dict[str, Any], head: bytes, status: int
) -> None:
    """W13"""
    app = Application()
    async with connected(ws_protocol_cls, app, **setting) as peer:
        peer.send(head)
        assert peer.status == status
        await peer.turn()
        assert app.scope is None


async def test_handshake_exactly_at_the_limits_is_let_in(ws_protocol_cls: Any) -> None:
    """W13: the bytes behind it do not count."""
    head = handshake(target="/12345")
    limits: dict[str, Any] = {"limit_request_head": len(head), "limit_request_fields": 5, "limit_request_target": 6}
    app = Application()
    async with connected(ws_protocol_cls, app, **limits) as peer:
        peer.send(head + frame(TEXT, b"x" * 100))
        await peer.until(lambda: app.messages)


async def test_refused_client_may_go_on_sending_without_effect(ws_protocol_cls: Any) -> None:
    """The connection is half-closed and read for a while, so that the client gets the answer and no reset."""
    async with connected(ws_protocol_cls, Application()) as peer:
        peer.send(handshake(method="POST"))
        assert peer.wire.eof and not peer.wire.closing
        written = bytes(peer.wire.written)
        peer.send(handshake(), frame(TEXT, b"x"))
        peer.timers.advance(2.0)
        assert peer.wire.closing
        assert peer.wire.written == written


async def test_client_that_leaves_in_the_middle_of_the_handshake_leaves_nothing_behind(ws_protocol_cls: Any) -> None:
    """D1: the deadline for the head is the HTTP protocol's."""
    app = Application()
    async with connected(ws_protocol_cls, app) as peer:
        peer.send(handshake()[:-3])
        assert peer.session in peer.state.connections
        peer.eof()
        await peer.turn()
        assert peer.wire.lost and not peer.wire.written and app.scope is None


async def test_time_to_accept_is_not_limited(ws_protocol_cls: Any) -> None:
    """D1: it is the application's."""

    async def script(receive: Any, send: Any) -> None:
        await receive()
        peer.timers.advance(100_000)
        await send({"type": "websocket.accept"})
        await receive()

    async with connected(ws_protocol_cls, Application(script)) as peer:
        await peer.open()


# Debug and trace lines


async def test_debug_lines_show_the_handshake_with_names_in_lower_case(
    ws_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """UPG-08; control characters of the C1 set are escaped."""
    caplog.set_level(logging.DEBUG, "uvicorn.error")
    async with connected(ws_protocol_cls, Application(accept)) as peer:
        await peer.open("X-Evil: \x9b31m", target="/x")
        lines = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
        assert lines[:2] == ["< GET /x HTTP/1.1", "< host: example.org"]
        assert f"< sec-websocket-key: {KEY}" in lines
        assert "< x-evil: \\x9b31m" in lines
        assert "> HTTP/1.1 101 Switching Protocols" in lines


async def test_trace_lines_tell_of_the_connection(ws_protocol_cls: Any, caplog: pytest.LogCaptureFixture) -> None:
    """TRC-02"""
    caplog.set_level(5, "uvicorn.error")
    async with connected(ws_protocol_cls, Application()):
        pass
    assert [record.getMessage() for record in caplog.records if record.levelname == "TRACE"] == [
        "192.0.2.7:50000 - WebSocket connection made",
        "192.0.2.7:50000 - WebSocket connection lost",
    ]


# Which implementation


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        pytest.param(("uvicorn._native",), "WebSocketsSansIOProtocol", id="both"),
        pytest.param(("uvicorn._native", "websockets"), "WSProtocol", id="no websockets"),
        pytest.param(("uvicorn._native", "websockets", "wsproto"), "NoneType", id="neither"),
    ],
)
def test_auto_prefers_websockets_then_wsproto_then_none(missing: tuple[str, ...], expected: str) -> None:
    """UPG-10; without websockets its masking in C is not there either."""
    code = (
        "import sys\n"
        f"for name in {missing!r}: sys.modules[name] = None\n"
        "from uvicorn.protocols.websockets.auto import AutoWebSocketsProtocol as chosen\n"
        "print(chosen.__name__ if chosen else type(chosen).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == (expected, "")


def test_websockets_is_the_sans_io_implementation() -> None:
    """UPG-11: the warning is the configuration's."""
    from uvicorn.protocols.websockets.websockets_impl import WebSocketProtocol
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

    assert issubclass(WebSocketProtocol, WebSocketsSansIOProtocol)


def test_refusal_carries_its_status() -> None:
    with pytest.raises(RequestRefused) as refused:
        parse_handshake(handshake(method="PUT"), HeadLimits(1000, 100, 100))
    assert refused.value.status == 405
