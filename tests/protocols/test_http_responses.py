"""Responses: what an application sends, and what of it reaches the wire."""

from __future__ import annotations

import asyncio
import http
import re
from collections import UserDict
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests import machines
from tests.protocols.harness import GET, GET_10, GET_CLOSE, HEAD, Client, request, respond, serve
from tests.utils import turns, wait_until

pytestmark = pytest.mark.anyio

http_protocol_cls = machines.each


def start(status: Any = 200, *headers: tuple[bytes, bytes], **more: Any) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers), **more}


def body(data: Any = b"", more: Any = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


def sending(*messages: Any) -> Callable[..., Any]:
    """An application that sends these messages."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(dict(message))

    return app


async def is_kept(client: Client) -> bool:
    """Whether a further request on this connection is answered."""
    try:
        await client.send(HEAD)
        return (await client.response("HEAD")).status > 0
    except (AssertionError, ConnectionError):
        return False


# Headers


async def test_default_headers_come_first(http_protocol_cls: Any) -> None:
    """RES-01, RES-02, RES-04, RES-05: date, server, configured, then the application's, none merged."""
    app = sending(start(200, (b"X-App", b"1"), (b"server", b"mine"), (b"content-length", b"0")), body())
    settings: dict[str, Any] = {
        "server_header": True,
        "date_header": True,
        "headers": [("X-Own", "a"), ("X-Own", "b\xe9")],
    }
    async with serve(http_protocol_cls, app, **settings) as service:
        response = await (await service.connect()).ask()
    (name, date), *others = response.headers
    assert name == b"date"
    assert re.fullmatch(rb"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", date)
    assert others == [
        (b"server", b"uvicorn"),
        (b"x-own", b"a"),
        (b"x-own", b"b\xe9"),
        (b"x-app", b"1"),
        (b"server", b"mine"),
        (b"content-length", b"0"),
    ]


async def test_response_is_these_bytes(http_protocol_cls: Any) -> None:
    """RES-06, RES-26: names in lower case whatever the implementation; nothing about keep-alive."""
    app = sending(start(200, (b"X-UPPER", b"Value"), (b"Content-Length", b"2")), body(b"ok"))
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        assert await client.until(b"ok") == b"HTTP/1.1 200 OK\r\nx-upper: Value\r\ncontent-length: 2\r\n\r\nok"
        assert await is_kept(client)


@pytest.mark.parametrize(
    ("status", "phrase"),
    [
        pytest.param(200, "OK", id="200"),
        pytest.param(299, "", id="unknown"),
        pytest.param(404, "Not Found", id="404"),
        pytest.param(413, "Content Too Large", id="413"),
        pytest.param(414, "URI Too Long", id="414"),
        pytest.param(416, "Range Not Satisfiable", id="416"),
        pytest.param(422, "Unprocessable Content", id="422"),
        pytest.param(418, "I'm a Teapot", id="418"),
        pytest.param(500, "Internal Server Error", id="500"),
        pytest.param(599, "", id="last"),
    ],
)
async def test_reason_phrase_is_the_registrys(http_protocol_cls: Any, status: int, phrase: str) -> None:
    """RES-07: the same on every interpreter; empty behind the space if the number is unknown."""
    async with serve(http_protocol_cls, sending(start(status), body())) as service:
        response = await (await service.connect()).ask()
    assert (response.status, response.reason) == (status, phrase)
    assert response.values(b"transfer-encoding") == [b"chunked"]


@pytest.mark.parametrize("headers", [(), ((b"content-length", b"4"),), ((b"transfer-encoding", b"chunked"),)])
async def test_205_has_no_body_and_says_so(http_protocol_cls: Any, headers: Any) -> None:
    """RES-12, R5: RFC 9110 section 15.3.6."""
    async with serve(http_protocol_cls, sending(start(205, *headers), body(b"gone"))) as service:
        client = await service.connect()
        response = await client.ask()
        assert (response.values(b"content-length"), response.body) == ([b"0"], b"")
        assert response.values(b"transfer-encoding") == []
        assert await is_kept(client)


async def test_status_may_be_an_http_status(http_protocol_cls: Any) -> None:
    async with serve(http_protocol_cls, sending(start(http.HTTPStatus.CREATED), body())) as service:
        assert (await (await service.connect()).ask()).status == 201


class Once(list[tuple[bytes, bytes]]):
    """Headers that can be read once."""

    def __iter__(self) -> Any:
        yield (b"x", b"1")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param({"type": "http.response.start", "status": 200}, [], id="missing"),
        pytest.param(start() | {"headers": ((b"x", b"1"),)}, [(b"x", b"1")], id="tuple"),
        pytest.param(start() | {"headers": [[b"x", b"1"]]}, [(b"x", b"1")], id="lists"),
        pytest.param(start() | {"headers": Once()}, [(b"x", b"1")], id="generator"),
        pytest.param(start(200, (b"x", b"\t a\tb \xff ")), [(b"x", b"a\tb \xff")], id="tab-and-latin-1"),
        pytest.param(start(200, (b"x", b"")), [(b"x", b"")], id="empty-value"),
        pytest.param(start(200, (b"set-cookie", b"a"), (b"set-cookie", b"b")), None, id="repeated"),
    ],
)
async def test_headers_may_be(
    http_protocol_cls: Any, message: dict[str, Any], expected: list[tuple[bytes, bytes]] | None
) -> None:
    """RES-27, RES-32"""
    async with serve(http_protocol_cls, sending(message, body())) as service:
        response = await (await service.connect()).ask()
    if expected is None:
        expected = message["headers"]
    assert [field for field in response.headers if field[0] != b"transfer-encoding"] == expected


async def test_body_and_more_body_have_defaults(http_protocol_cls: Any) -> None:
    """RES-28"""
    async with serve(http_protocol_cls, sending(start(), {"type": "http.response.body"})) as service:
        assert (await (await service.connect()).ask()).body == b""


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("size", [3, 100_000])
async def test_body_may_be_bytes_like(http_protocol_cls: Any, kind: Any, size: int) -> None:
    """What the application does with its buffer afterwards changes nothing."""
    data = bytes(range(256)) * 400

    async def app(scope: Any, receive: Any, send: Any) -> None:
        buffer = bytearray(data[:size])
        await send(start())
        await send(body(kind(buffer), True))
        await send(body(kind(buffer), True))
        buffer[:] = b"\0" * size
        await send(body())

    async with serve(http_protocol_cls, app) as service:
        response = await (await service.connect()).ask()
    assert response.body == data[:size] * 2


@pytest.mark.parametrize("size", [5, 5_000_000])
@pytest.mark.parametrize("message", [[], (), "", [("type", "http.response.body")]])
async def test_message_that_is_no_mapping_is_refused(http_protocol_cls: Any, message: Any, size: int) -> None:
    """Also behind a body that waits for the client."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        await send(body(b"a" * size, True))
        with pytest.raises(TypeError):
            await send(message)
        await send(body())

    async with serve(http_protocol_cls, app) as service:
        assert (await (await service.connect()).ask()).body == b"a" * size


@pytest.mark.parametrize("pieces", [[None], [b"a", None, b"b", None]])
@pytest.mark.parametrize("mapping", [dict, UserDict])
async def test_body_may_be_none(http_protocol_cls: Any, pieces: list[bytes | None], mapping: Any) -> None:
    """Upstream takes it for an empty one."""
    last = len(pieces) - 1
    messages = [mapping(body(piece, at < last)) for at, piece in enumerate(pieces)]  # type: ignore[arg-type]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in (mapping(start()), *messages):
            await send(message)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        assert (await client.ask()).body == b"".join(filter(None, pieces))
        assert await is_kept(client)


@pytest.mark.parametrize("kind", [bytearray, memoryview])
@pytest.mark.parametrize("met", [False, True])
async def test_header_may_be_bytes_like(http_protocol_cls: Any, kind: Any, met: bool) -> None:
    """As with upstream, and also if no earlier response had the same in bytes."""
    name = f"x-{kind.__name__}-{met:d}".encode()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        is_first = met and scope["path"] == "/first"
        value = bytearray(b"a")
        await send(start(200, (name, b"a") if is_first else (kind(name), kind(value))))
        value[:] = b"b"
        await send(body())

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        for path in ("/first", "/second"):
            assert (name, b"a") in (await client.ask(request("GET", path))).headers


# What may not be sent: raised in the application, and nothing of it on the wire


INVALID: list[Any] = [
    pytest.param(start(200, (b"x", b"a\r\nb: c")), RuntimeError, "Invalid HTTP header value.", id="value-crlf"),
    pytest.param(start(200, (b"x", b"a\nb")), RuntimeError, "Invalid HTTP header value.", id="value-lf"),
    pytest.param(start(200, (b"x", b"a\0")), RuntimeError, "Invalid HTTP header value.", id="value-nul"),
    pytest.param(start(200, (b"x", b"\x7f")), RuntimeError, "Invalid HTTP header value.", id="value-del"),
    pytest.param(start(200, (b"x\r\ny", b"a")), RuntimeError, "Invalid HTTP header name.", id="name-crlf"),
    pytest.param(start(200, (b"x y", b"a")), RuntimeError, "Invalid HTTP header name.", id="name-space"),
    pytest.param(start(200, (b"x[", b"a")), RuntimeError, "Invalid HTTP header name.", id="name-bracket"),
    pytest.param(start(200, (b"x\\", b"a")), RuntimeError, "Invalid HTTP header name.", id="name-backslash"),
    pytest.param(start(200, (b"x:", b"a")), RuntimeError, "Invalid HTTP header name.", id="name-colon"),
    pytest.param(start(200, (b"x\xe9", b"a")), RuntimeError, "Invalid HTTP header name.", id="name-latin-1"),
    pytest.param(start(200, (b"", b"a")), RuntimeError, "Invalid HTTP header name.", id="name-empty"),
    pytest.param(start(200, ("x", "a")), TypeError, "must be bytes", id="text"),  # type: ignore[arg-type]
    pytest.param(start(200, (b"x", 1)), TypeError, "must be bytes", id="number"),  # type: ignore[arg-type]
    pytest.param(start(200, (b"x",)), ValueError, "", id="no-pair"),  # type: ignore[arg-type]
    pytest.param(start(200, (b"content-length", b"x")), RuntimeError, "Invalid Content-Length", id="ERR-17-length"),
    pytest.param(start(200, (b"content-length", b"+1")), RuntimeError, "Invalid Content-Length", id="signed-length"),
    pytest.param(start(200, (b"content-length", b"")), RuntimeError, "Invalid Content-Length", id="empty-length"),
    pytest.param(
        start(200, (b"content-length", b"1"), (b"content-length", b"2")),
        RuntimeError,
        "Conflicting Content-Length",
        id="two-lengths",
    ),
    pytest.param(
        start(200, (b"transfer-encoding", b"chunked"), (b"transfer-encoding", b"gzip")),
        RuntimeError,
        "Transfer-Encoding header",
        id="RES-18-coding-behind-chunked",
    ),
    pytest.param(start(99), RuntimeError, "Invalid HTTP status code '99' in response.", id="R8-99"),
    pytest.param(start(600), RuntimeError, "Invalid HTTP status code '600' in response.", id="R8-600"),
    pytest.param(start(1000), RuntimeError, "Invalid HTTP status code '1000' in response.", id="R8-1000"),
    pytest.param(start(-200), RuntimeError, "Invalid HTTP status code '-200' in response.", id="R8-negative"),
    pytest.param(start(101), RuntimeError, "Invalid HTTP status code '101' in response.", id="RES-09-101"),
    pytest.param(start(103), RuntimeError, "Invalid HTTP status code '103' in response.", id="RES-09-103"),
    pytest.param(start("200"), TypeError, "must be an int", id="R8-text"),
    pytest.param(start(200.0), TypeError, "must be an int", id="R8-float"),
    pytest.param(start(None), TypeError, "must be an int", id="R8-none"),
    pytest.param({"type": "http.response.start"}, KeyError, "status", id="ERR-16-missing"),
]


@pytest.mark.parametrize(("message", "error", "text"), INVALID)
async def test_invalid_head_is_raised_in_the_application_and_ends_in_a_500(
    http_protocol_cls: Any, message: dict[str, Any], error: type[Exception], text: str, caplog: Any
) -> None:
    """R1, R2, R8, RES-08, RES-29, RES-30, RES-31, ERR-15: nothing has been started, so a 500 can be sent."""
    raised: list[BaseException] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await send(message)
        except Exception as exc:
            raised.append(exc)
            raise

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        response = await client.ask()
        assert (response.status, response.body) == (500, b"Internal Server Error")
        assert await client.rest() == b""
    (exc,) = raised
    assert type(exc) is error
    assert text in str(exc)
    (record,) = caplog.records
    assert record.getMessage() == "Exception in ASGI application\n"


async def test_application_that_recovers_from_an_invalid_head_answers(http_protocol_cls: Any) -> None:
    """R1: the path echoed into a header; the next attempt is as good as the first."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        with pytest.raises(RuntimeError):
            await send(start(302, (b"location", scope["query_string"] + scope["path"].encode() + b"\r\n")))
        await send(start(404, (b"content-length", b"0")))
        await send(body())

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request("GET", "/foo%0d%0aX:y"))
        assert await client.until(b"\r\n\r\n") == b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
        assert await is_kept(client)


@pytest.mark.parametrize("wrong", ["text", "t" * 70_000, 5, ["x"]])
@pytest.mark.parametrize("headers", [[], [(b"content-length", b"4")]])
async def test_body_that_is_not_bytes_is_raised_in_the_application(
    http_protocol_cls: Any, wrong: Any, headers: Any
) -> None:
    raised: list[type[BaseException]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start(200, *headers))
        try:
            await send(body(wrong))
        except Exception as exc:
            raised.append(type(exc))
            raise

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        assert await client.rest() == b""
    assert raised == [TypeError]


# Framing


CASES: list[Any] = [
    pytest.param(
        GET, [start(200, (b"content-length", b"2")), body(b"ok")], b"content-length: 2\r\n\r\nok", id="length"
    ),
    pytest.param(
        GET,
        [start(), body(b"ab", True), body(b"", True), body(b"c" * 17)],
        b"transfer-encoding: chunked\r\n\r\n2\r\nab\r\n11\r\nccccccccccccccccc\r\n0\r\n\r\n",
        id="RES-10-RES-15-RES-16-chunked",
    ),
    pytest.param(GET, [start(), body()], b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n", id="empty"),
    pytest.param(
        GET,
        [start(200, (b"Transfer-Encoding", b"Chunked")), body(b"a")],
        b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        id="RES-17-own-coding",
    ),
    pytest.param(
        GET,
        [start(200, (b"transfer-encoding", b"gzip, chunked")), body(b"a")],
        b"transfer-encoding: gzip, chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        id="RES-18-two-codings",
    ),
    pytest.param(
        GET,
        [start(200, (b"transfer-encoding", b"gzip")), body(b"a")],
        b"transfer-encoding: gzip, chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        id="RES-18-chunked-added",
    ),
    pytest.param(
        GET,
        [start(200, (b"transfer-encoding", b"gzip"), (b"x", b"y"), (b"transfer-encoding", b"chunked")), body(b"a")],
        b"transfer-encoding: gzip, chunked\r\nx: y\r\n\r\n1\r\na\r\n0\r\n\r\n",
        id="RES-18-two-fields",
    ),
    pytest.param(
        GET,
        [start(200, (b"content-length", b"1"), (b"transfer-encoding", b"chunked")), body(b"a")],
        b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        id="RES-19-R3-both",
    ),
    pytest.param(
        GET,
        [start(200, (b"content-length", b"1"), (b"x", b"y"), (b"content-length", b"1")), body(b"a")],
        b"content-length: 1\r\nx: y\r\n\r\na",
        id="RES-20-two-lengths",
    ),
    pytest.param(
        HEAD, [start(200, (b"content-length", b"5")), body(b"hello")], b"content-length: 5\r\n\r\n", id="HEAD"
    ),
    pytest.param(HEAD, [start(200, (b"content-length", b"5")), body()], b"content-length: 5\r\n\r\n", id="RES-22-less"),
    pytest.param(HEAD, [start(200, (b"content-length", b"1")), body(b"ab")], b"content-length: 1\r\n\r\n", id="RES-22"),
    pytest.param(HEAD, [start(), body(b"a", True), body(b"b")], b"\r\n", id="RES-11-HEAD-without-length"),
    pytest.param(GET, [start(204), body()], b"\r\n", id="204"),
    pytest.param(GET, [start(204), body(b"dropped")], b"\r\n", id="ERR-14-204-with-a-body"),
    pytest.param(GET, [start(204, (b"content-length", b"0"), (b"x", b"y")), body()], b"x: y\r\n\r\n", id="204-length"),
    pytest.param(GET, [start(204, (b"transfer-encoding", b"chunked")), body()], b"\r\n", id="204-coding"),
    pytest.param(GET, [start(304, (b"content-length", b"5")), body(b"x")], b"content-length: 5\r\n\r\n", id="304"),
    pytest.param(GET, [start(304), body(b"dropped")], b"\r\n", id="304-without-length"),
]


@pytest.mark.parametrize(("asked", "messages", "expected"), CASES)
async def test_framing(http_protocol_cls: Any, asked: bytes, messages: list[Any], expected: bytes) -> None:
    """R3, R5, R6, and the facts in the ids; the connection stays in step."""
    async with serve(http_protocol_cls, sending(*messages)) as service:
        client = await service.connect()
        await client.send(asked)
        await client.until(b"\r\n")
        assert await client.exactly(len(expected)) == expected
        assert await client.silent()
        assert await is_kept(client)


@pytest.mark.parametrize(
    ("asked", "headers"),
    [
        pytest.param(GET_10, [], id="1.0"),
        pytest.param(GET_10, [(b"transfer-encoding", b"chunked")], id="own-coding-is-dropped"),
        pytest.param(request("GET", "/", "connection: keep-alive", version="1.0"), [], id="REQ-26-keep-alive"),
    ],
)
async def test_http_10_client_gets_a_body_that_ends_with_the_connection(
    http_protocol_cls: Any, asked: bytes, headers: Any
) -> None:
    """RES-13, RES-14, REQ-26, R6"""
    async with serve(http_protocol_cls, sending(start(200, *headers), body(b"a", True), body(b"b"))) as service:
        client = await service.connect()
        await client.send(asked)
        assert await client.rest() == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nab"


async def test_http_10_client_gets_the_length_if_there_is_one(http_protocol_cls: Any) -> None:
    """RES-14"""
    async with serve(http_protocol_cls, respond()) as service:
        client = await service.connect()
        await client.send(GET_10)
        assert await client.rest() == b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"


async def test_http_10_response_that_breaks_off_is_reset(http_protocol_cls: Any) -> None:
    """R7: closing would look like the regular end of the body."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        await send(body(b"part", True))
        await asyncio.sleep(0)
        raise RuntimeError

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET_10)
        with pytest.raises(ConnectionResetError):
            await client.rest()


async def test_head_and_first_piece_of_the_body_are_written_together(http_protocol_cls: Any) -> None:
    """RES-21: the head waits for the first body message, which may be empty and is then sent alone."""
    proceed = asyncio.Event()
    steps: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        steps.append("started")
        await proceed.wait()
        proceed.clear()
        await send(body(b"", True))
        await proceed.wait()
        await send(body(b"x"))

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        await wait_until(lambda: steps)
        assert await client.silent()
        proceed.set()
        assert await client.until(b"\r\n\r\n") == b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        proceed.set()
        assert await client.until(b"0\r\n\r\n") == b"1\r\nx\r\n0\r\n\r\n"


async def test_first_event_of_a_stream_is_sent_at_once(http_protocol_cls: Any) -> None:
    """R11"""
    never = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start(200, (b"content-type", b"text/event-stream")))
        await send(body(b"data: 1\n\n", True))
        await never.wait()

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        assert (await client.until(b"data: 1\n\n\r\n")).endswith(b"\r\n\r\n9\r\ndata: 1\n\n\r\n")


async def test_large_pieces_arrive_whole(http_protocol_cls: Any) -> None:
    pieces = [bytes([number]) * 100_000 for number in range(5)]
    app = sending(start(), *(body(piece, True) for piece in pieces), body())
    async with serve(http_protocol_cls, app) as service:
        assert (await (await service.connect()).ask()).body == b"".join(pieces)


@pytest.mark.parametrize("more", [True, False])
async def test_more_body_than_announced_is_an_error(http_protocol_cls: Any, more: bool) -> None:
    """R4, ERR-11, ERR-13: the same error everywhere; the piece too long is not sent, the connection ends."""
    raised: list[BaseException] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start(200, (b"content-length", b"3")))
        await send(body(b"ab", True))
        try:
            await send(body(b"cd", more))
        except Exception as exc:
            raised.append(exc)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET + GET)
        assert await client.rest() == b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab"
    assert [(type(exc), str(exc)) for exc in raised] == [(RuntimeError, "Response content longer than Content-Length")]


async def test_less_body_than_announced_is_an_error(http_protocol_cls: Any) -> None:
    """R4, ERR-12, ERR-13"""
    raised: list[BaseException] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start(200, (b"content-length", b"3")))
        await send(body(b"a", True))
        try:
            await send(body(b"b"))
        except Exception as exc:
            raised.append(exc)
            raise

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET + GET)
        assert (await client.rest()).startswith(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\na")
        assert service.state.total_requests == 0
    assert [(type(exc), str(exc)) for exc in raised] == [(RuntimeError, "Response content shorter than Content-Length")]


@pytest.mark.parametrize("size", [2, 4, 100_000], ids=["shorter", "longer", "much-longer"])
async def test_nothing_is_sent_of_a_wrong_body_in_one_piece(http_protocol_cls: Any, size: int) -> None:
    """R4: the head still waits for it, so the client never sees a response that cannot be completed."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start(200, (b"content-length", b"3")))
        with pytest.raises(RuntimeError, match="Response content"):
            await send(body(b"x" * size))

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        assert await client.rest() == b""
        assert service.state.total_requests == 0


@pytest.mark.parametrize("size", [2, 4, 100_000], ids=["shorter", "longer", "much-longer"])
async def test_body_of_a_wrong_length_can_be_replaced(http_protocol_cls: Any, size: int) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start(200, (b"content-length", b"3")))
        with pytest.raises(RuntimeError, match="Response content"):
            await send(body(b"x" * size))
        await send(body(b"abc"))

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        for _ in range(2):
            assert (await client.ask()).body == b"abc"


# The end of the connection


@pytest.mark.parametrize("value", ["close", "Close", "keep-alive, CLOSE", "x , close"])
async def test_client_asks_for_the_end(http_protocol_cls: Any, value: str) -> None:
    """RES-23, K2, REQ-29: what is behind it is ignored."""
    async with serve(http_protocol_cls, respond()) as service:
        client = await service.connect()
        await client.send(request("GET", "/", f"connection: {value}") + GET, GET)
        assert await client.rest() == b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"
        assert service.state.total_requests == 1


@pytest.mark.parametrize("value", [b"close", b"Close", b"x, close"])
async def test_application_asks_for_the_end(http_protocol_cls: Any, value: bytes) -> None:
    """RES-24: said once."""
    app = sending(start(200, (b"Connection", value), (b"content-length", b"0")), body())
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        response = await client.ask()
        assert response.values(b"connection") == [value]
        assert await client.rest() == b""


async def test_keep_alive_of_the_application_gives_way_to_close(http_protocol_cls: Any) -> None:
    """RES-25"""
    app = sending(start(200, (b"connection", b"Keep-Alive"), (b"content-length", b"0")), body())
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        assert (await client.ask()).values(b"connection") == [b"Keep-Alive"]
        response = await client.ask(GET_CLOSE)
        assert response.values(b"connection") == [b"close"]
        assert await client.rest() == b""


# Waiting and leaving


async def test_send_waits_for_a_slow_reader(http_protocol_cls: Any) -> None:
    """R9, CON-08: little more than the transport's high-water mark is held for a client that does not read."""
    piece = bytes(65_536)
    sent: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        for _ in range(150):
            await send(body(piece, True))
            sent.append(len(piece))
        await send(body())

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect(receive_buffer=65_536)
        await client.send(GET)
        before = -1
        while len(sent) != before:
            before = len(sent)
            await turns(50)
        assert len(sent) < 150
        assert service.transport.get_write_buffer_size() < 4 * 65_536
        assert (await client.response()).body == piece * 150


async def test_send_that_waits_ends_when_the_client_goes(http_protocol_cls: Any) -> None:
    """R9, R10, CON-07, CON-08"""
    ended = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        for _ in range(1000):
            await send(body(bytes(65_536), True))
        ended.set()

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect(receive_buffer=65_536)
        await client.send(GET)
        await client.until(b"\r\n\r\n")
        client.reset()
        await asyncio.wait_for(ended.wait(), 20)
        await service.idle()


async def test_send_that_waits_ends_when_the_request_turns_out_broken(http_protocol_cls: Any) -> None:
    """Otherwise a client that sends a bad chunk and does not read would hold the application for ever."""
    ended = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        for _ in range(1000):
            await send(body(bytes(65_536), True))
        ended.set()

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect(receive_buffer=65_536)
        await client.send(request("POST", "/", "transfer-encoding: chunked"))
        await client.until(b"\r\n\r\n")
        await client.send(b"x\r\n")
        await asyncio.wait_for(ended.wait(), 20)


async def test_send_after_the_client_has_gone_does_nothing(http_protocol_cls: Any) -> None:
    """R10, CON-07, CON-09: the application's task is not cancelled either."""
    gone, done = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await gone.wait()
        await send(start(200, (b"content-length", b"1")))
        for _ in range(1000):
            await send(body(bytes(10_000), True))
        await send({"type": "of no meaning"})
        done.set()

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        await wait_until(lambda: service.state.tasks)
        client.reset()
        await wait_until(lambda: not service.state.connections)
        gone.set()
        await asyncio.wait_for(done.wait(), 20)
        await wait_until(lambda: not service.state.tasks)
        assert service.state.total_requests == 0


async def test_answer_to_a_client_that_is_still_uploading_can_be_read(http_protocol_cls: Any) -> None:
    """R13: ten megabytes, sent by a client that looks at the answer only when it has sent them all."""
    async with serve(http_protocol_cls, respond(b"no", 403)) as service:
        client = await service.connect()
        size = 10 * 1024 * 1024
        await client.send(request("POST", "/", f"content-length: {size}"))
        for _ in range(160):
            await client.send(bytes(65_536))
        assert (await client.response()).status == 403
        assert await client.rest() == b""


async def test_completed_responses_are_counted(http_protocol_cls: Any) -> None:
    """LIM-07, LIM-17: not those whose client left before."""
    ready = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/slow":
            await ready.wait()
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.ask()
        await client.ask()
        assert service.state.total_requests == 2
        await client.send(request("GET", "/slow"))
        await wait_until(lambda: service.state.tasks)
        client.reset()
        await wait_until(lambda: not service.state.connections)
        ready.set()
        await service.idle()
        assert service.state.total_requests == 2


def unread(messages: Iterable[str]) -> Callable[..., Any]:
    return sending(*({"type": message} for message in messages))


@pytest.mark.parametrize("message", ["http.response.push", "http.response.debug"])
async def test_messages_of_extensions_that_are_not_offered_are_errors(
    http_protocol_cls: Any, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """RES-33: those that are offered have `test_http_extensions`."""
    async with serve(http_protocol_cls, unread([message])) as service:
        assert (await (await service.connect()).ask()).status == 500
    assert f"Expected ASGI message 'http.response.start', but got '{message}'." in caplog.text
