"""Extensions of ASGI: early hints, trailers and files, as applications use them and as they look on the wire."""

from __future__ import annotations

import asyncio
import errno
import functools
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest

from tests import machines
from tests.protocols import harness
from tests.protocols.harness import GET, GET_10, GET_CLOSE, HEAD, Calls, descriptors, request, respond
from tests.utils import Mapping, wait_until
from uvicorn._types import EXTENSIONS_10, ExtensionType

pytestmark = pytest.mark.anyio

http_protocol_cls = machines.each

serve = functools.partial(harness.serve, asgi_extensions="all")

MESSAGES = [name for name in get_args(ExtensionType) if name not in ("tls", "all")]
LENGTH = b"content-length"
WITH_TE = request("GET", "/", "te: trailers")
CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
TEXT = b"0123456789"


def start(status: int = 200, *headers: tuple[bytes, bytes], **more: Any) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers), **more}


def length(size: int) -> tuple[bytes, bytes]:
    return LENGTH, b"%d" % size


def body(data: bytes = b"", more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


def trailers(*headers: tuple[Any, Any], **more: Any) -> dict[str, Any]:
    return {"type": "http.response.trailers", "headers": list(headers), **more}


def hint(*links: Any) -> dict[str, Any]:
    return {"type": "http.response.early_hint", "links": list(links)}


def path_send(path: Any) -> dict[str, Any]:
    return {"type": "http.response.pathsend", "path": path}


def file_send(file: Any, **more: Any) -> dict[str, Any]:
    return {"type": "http.response.zerocopysend", "file": file, **more}


class Application:
    """Sends messages, and notes what raised; goes on with `otherwise` after the first that did."""

    def __init__(self, *messages: Any, otherwise: tuple[dict[str, Any], ...] = ()) -> None:
        self.messages = messages
        self.otherwise = otherwise
        self.error: BaseException | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            for message in self.messages:
                await send(message)
        except Exception as exc:
            self.error = exc
            for message in self.otherwise:
                await send(message)


async def wire(protocol: Any, app: Any, data: bytes = GET_CLOSE) -> bytes:
    """All that comes back for `data`, after which the connection must end by itself."""
    async with serve(protocol, app) as service:
        client = await service.connect()
        await client.send(data)
        return await client.rest()


def closing(data: bytes) -> bytes:
    """A request with `connection: close`."""
    return data.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The path of a file that holds `TEXT`."""
    path = tmp_path / "file"
    path.write_bytes(TEXT)
    return str(path)


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Whatever is opened inside is closed inside."""
    before = descriptors()
    yield
    assert descriptors() == before


# What is offered


async def test_nothing_is_offered_unless_asked_for(http_protocol_cls: Any) -> None:
    """SCO-01: frameworks change what they send where they see one."""
    app = Calls()
    async with harness.serve(http_protocol_cls, app) as service:
        await (await service.connect()).ask()
    assert "extensions" not in app.scope


@pytest.mark.parametrize("asked", [GET, GET_10], ids=["1.1", "1.0"])
async def test_only_what_is_asked_for_is_offered(http_protocol_cls: Any, asked: bytes) -> None:
    app = Calls()
    async with harness.serve(http_protocol_cls, app, asgi_extensions=["http.response.early_hint"]) as service:
        await (await service.connect()).ask(asked)
    assert app.scope.get("extensions") == ({"http.response.early_hint": {}} if asked is GET else None)


@pytest.mark.parametrize(
    "message", [hint(b"<a>"), path_send("file"), file_send(0), trailers()], ids=lambda m: m["type"]
)
async def test_messages_of_what_is_not_offered_are_out_of_order(
    http_protocol_cls: Any, message: dict[str, Any]
) -> None:
    """RES-33: upstream refuses all of them, and does not know of trailers that are announced."""
    before = Application(message, otherwise=(start(200, length(2)), body(b"ok")))
    within = Application(start(200, length(2), trailers=True), message, otherwise=(body(b"ok"),))
    behind = Application(start(200, length(2), trailers=True), body(b"ok"), message)
    for app in (before, within, behind):
        async with harness.serve(http_protocol_cls, app) as service:
            assert (await (await service.connect()).ask()).body == b"ok"
        assert isinstance(app.error, RuntimeError)
    kind = message["type"]
    assert str(before.error) == f"Expected ASGI message 'http.response.start', but got '{kind}'."
    assert str(within.error) == f"Expected ASGI message 'http.response.body', but got '{kind}'."
    assert str(behind.error) == f"Unexpected ASGI message '{kind}' sent, after response already completed."


async def test_scope_says_what_is_supported(http_protocol_cls: Any) -> None:
    app = Calls()
    async with serve(http_protocol_cls, app) as service:
        await (await service.connect()).ask()
    assert app.scope["extensions"] == {message: {} for message in MESSAGES}
    assert list(app.scope)[-1] == "extensions"


async def test_scope_of_http_1_0_offers_files_only(http_protocol_cls: Any) -> None:
    """It has neither chunks, where trailers go, nor interim responses."""
    app = Calls()
    async with serve(http_protocol_cls, app) as service:
        await (await service.connect()).ask(GET_10)
    offered: dict[str, Any] = {message: {} for message in MESSAGES if message in EXTENSIONS_10}
    assert app.scope["extensions"] == offered
    assert offered.keys() & {hint()["type"], trailers()["type"]} == set()


async def test_extensions_of_one_scope_are_not_those_of_the_next(http_protocol_cls: Any) -> None:
    """Middleware adds keys for the application behind it, which must not reach other requests."""
    app = Calls()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.ask()
        app.scope["extensions"]["http.response.debug"] = {}
        app.scope["extensions"]["http.response.early_hint"]["added"] = 1
        del app.scope["extensions"]["http.response.pathsend"]
        await client.ask()
    assert app.scopes[1]["extensions"].keys() == set(MESSAGES)
    assert app.scopes[1]["extensions"]["http.response.pathsend"] == {}
    assert app.scopes[1]["extensions"]["http.response.early_hint"] == {}


# Early hints

HINTED = b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n"
LINK = b"</a.css>; rel=preload"


async def test_early_hints_come_before_the_response(http_protocol_cls: Any) -> None:
    app = Application(hint(LINK), hint(b" </b> ", b"</c>"), start(200, length(2)), body(b"ok"))
    second = b"HTTP/1.1 103 Early Hints\r\nlink: </b>\r\nlink: </c>\r\n\r\n"
    response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"
    assert await wire(http_protocol_cls, app) == HINTED + second + response
    assert app.error is None


async def test_early_hint_does_not_wait_for_the_response(http_protocol_cls: Any) -> None:
    ready = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(hint(LINK))
        await ready.wait()
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        response = await client.ask()
        assert (response.status, response.reason, response.headers) == (103, "Early Hints", [(b"link", LINK)])
        ready.set()
        assert (await client.response()).body == b"ok"


async def test_early_hint_after_the_start_comes_before_a_head_that_has_not_left(http_protocol_cls: Any) -> None:
    """The specification has it there; the head waits for the first piece of the body."""
    app = Application(start(200, length(2)), hint(LINK), hint(LINK), body(b"ok"))
    response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"
    assert await wire(http_protocol_cls, app) == HINTED * 2 + response


async def test_early_hint_is_dropped_when_the_head_has_left(http_protocol_cls: Any) -> None:
    app = Application(start(200, length(2)), body(b"o", more=True), hint(LINK), body(b"k"))
    assert await wire(http_protocol_cls, app) == b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"
    assert app.error is None


@pytest.mark.parametrize("messages", [[hint(LINK), start(200, length(2))], [start(200, length(2)), hint(LINK)]])
async def test_early_hint_is_dropped_for_http_1_0(http_protocol_cls: Any, messages: list[Any]) -> None:
    """RFC 9110 section 15.2: a server must not send a 1xx response to an HTTP/1.0 client."""
    app = Application(*messages, body(b"ok"))
    data = await wire(http_protocol_cls, app, GET_10)
    assert data == b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"
    assert app.error is None


async def test_early_hint_without_links_is_nothing(http_protocol_cls: Any) -> None:
    app = Application(hint(), start(200, length(0)), body())
    assert (await wire(http_protocol_cls, app)).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("data", [GET, GET_10], ids=["1.1", "1.0"])
@pytest.mark.parametrize(
    ("message", "error", "text"),
    [
        pytest.param(hint("</a>"), TypeError, "Links must be bytes, got '</a>'.", id="str"),
        pytest.param({**hint(), "links": b"</a>"}, TypeError, "Links must be bytes, got 60.", id="bytes"),
        pytest.param({**hint(), "links": None}, TypeError, "'NoneType' object is not iterable", id="none"),
        pytest.param(hint(b"</a>\r\nx: y"), RuntimeError, "Invalid HTTP header value.", id="split"),
        pytest.param({"type": "http.response.early_hint"}, KeyError, "'links'", id="missing"),
    ],
)
async def test_early_hint_that_cannot_be_sent_raises(
    http_protocol_cls: Any, data: bytes, message: Any, error: type[Exception], text: str
) -> None:
    """R1: and leaves the response as it was."""
    app = Application(message, otherwise=(start(200, length(2)), body(b"ok")))
    async with serve(http_protocol_cls, app) as service:
        assert (await (await service.connect()).ask(data)).body == b"ok"
    assert type(app.error) is error
    assert str(app.error) == text


async def test_early_hints_of_pipelined_requests_stay_with_their_responses(http_protocol_cls: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        name = scope["path"].encode()
        await send(hint(name))
        await respond(name)(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request("GET", "/a") + request("GET", "/b"))
        for name in (b"/a", b"/b"):
            assert (await client.response()).headers == [(b"link", name)]
            assert (await client.response()).body == name


# Trailers


async def test_trailers_follow_the_last_chunk(http_protocol_cls: Any) -> None:
    announced = start(200, (b"trailer", b"x-sum"), trailers=True)
    app = Application(announced, body(b"abc", more=True), body(b"d"), trailers((b"X-Sum", b" 1 ")))
    head = CHUNKED_HEAD.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    head = head.replace(b"transfer", b"trailer: x-sum\r\ntransfer", 1)
    expected = head + b"3\r\nabc\r\n1\r\nd\r\n0\r\nx-sum: 1\r\n\r\n"
    assert await wire(http_protocol_cls, app, closing(WITH_TE)) == expected
    assert app.error is None


async def test_trailers_may_come_in_several_messages(http_protocol_cls: Any) -> None:
    app = Application(
        start(trailers=True), body(b"a"), trailers((b"x-a", b"1"), more_trailers=True), trailers((b"x-b", b"2"))
    )
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        for _ in range(2):
            await client.send(WITH_TE)
            section = b"0\r\nx-a: 1\r\nx-b: 2\r\n\r\n"
            assert await client.until(section) == CHUNKED_HEAD + b"1\r\na\r\n" + section


async def test_message_of_an_extension_may_be_any_mapping(http_protocol_cls: Any) -> None:
    messages = [hint(b"<a>"), start(trailers=True), body(), trailers((b"x-a", b"1"))]
    app = Application(*(Mapping(**message) for message in messages))
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(WITH_TE)
        assert b"link: <a>" in await client.until(b"\r\n\r\n")
        await client.until(b"0\r\nx-a: 1\r\n\r\n")
    assert app.error is None


@pytest.mark.parametrize("message", [trailers(), {"type": "http.response.trailers"}], ids=["empty", "missing"])
async def test_trailers_may_be_none(http_protocol_cls: Any, message: Any) -> None:
    app = Application(start(trailers=True), body(b"a"), message)
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        assert (await client.ask(WITH_TE)).body == b"a"
        assert (await client.ask(WITH_TE)).body == b"a"


@pytest.mark.parametrize(
    ("field", "sent"),
    [
        pytest.param("te: trailers", True, id="trailers"),
        pytest.param("TE: gzip;q=0.5, Trailers", True, id="among-others"),
        pytest.param("te: gzip", False, id="others"),
        pytest.param("te: xtrailers", False, id="alike"),
        pytest.param("te:", False, id="empty"),
        pytest.param("x-te: trailers", False, id="another-field"),
    ],
)
async def test_trailers_go_to_clients_that_take_them(http_protocol_cls: Any, field: str, sent: bool) -> None:
    """RFC 9110 sections 6.5.1 and 10.1.4, and the ASGI specification: to whom says `TE: trailers`."""
    app = Application(start(trailers=True), body(b"a"), trailers((b"x-sum", b"1")))
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request("GET", "/", field))
        section = b"0\r\nx-sum: 1\r\n\r\n" if sent else b"0\r\n\r\n"
        assert await client.until(section) == CHUNKED_HEAD + b"1\r\na\r\n" + section
        assert (await client.ask(HEAD, "HEAD")).status == 200


@pytest.mark.parametrize(
    ("data", "message", "expected"),
    [
        pytest.param(WITH_TE, start(200, length(1), trailers=True), b"content-length: 1\r\n\r\na", id="length"),
        pytest.param(WITH_TE, start(204, trailers=True), b"\r\n\r\n", id="204"),
        pytest.param(WITH_TE, start(304, trailers=True), b"\r\n\r\n", id="304"),
        pytest.param(
            request("HEAD", "/", "te: trailers"), start(200, length(1), trailers=True), b": 1\r\n\r\n", id="HEAD"
        ),
    ],
)
async def test_trailers_are_dropped_where_nothing_can_carry_them(
    http_protocol_cls: Any, data: bytes, message: Any, expected: bytes
) -> None:
    """And the connection goes on."""
    app = Application(message, body(b"a"), trailers((b"x-sum", b"1")))
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        first = data.replace(b"\r\nhost", b"\r\nx: y\r\nhost")
        await client.send(first + closing(data))
        received = await client.rest()
    heads = received.split(b"HTTP/1.1 ")[1:]
    assert len(heads) == 2
    assert heads[0].endswith(expected)
    assert b"x-sum" not in received
    assert b"transfer-encoding" not in received
    assert app.error is None


async def test_trailers_are_dropped_for_http_1_0(http_protocol_cls: Any) -> None:
    app = Application(start(trailers=True), body(b"a"), trailers((b"x-sum", b"1")))
    data = await wire(http_protocol_cls, app, b"GET / HTTP/1.0\r\nte: trailers\r\n\r\n")
    assert data == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\na"
    assert app.error is None


@pytest.mark.parametrize("headers", [(), (length(1),)], ids=["chunked", "length"])
async def test_response_is_complete_only_with_its_trailers(http_protocol_cls: Any, headers: Any) -> None:
    """Until then neither the next request has its turn nor does `receive()` tell of the end."""
    ready = asyncio.Event()
    paths: list[str] = []
    waiting: list[asyncio.Task[Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        paths.append(scope["path"])
        await receive()
        waiting.append(asyncio.create_task(receive()))
        await send(start(200, *headers, trailers=True))
        await send(body(b"a"))
        await ready.wait()
        await send(trailers((b"x-sum", b"1")))
        assert (await waiting[-1])["type"] == "http.disconnect"

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request("GET", "/a", "te: trailers") + request("GET", "/b", "te: trailers"))
        await client.until(b"a" if headers else b"1\r\na\r\n")
        assert await client.silent()
        assert paths == ["/a"]
        assert not waiting[0].done()
        ready.set()
        await wait_until(lambda: len(paths) == 2)
        await client.until(b"\r\n\r\na" if headers else b"\r\na\r\n0\r\nx-sum: 1\r\n\r\n")


async def test_large_body_before_trailers(http_protocol_cls: Any) -> None:
    data = os.urandom(200_000)
    app = Application(start(trailers=True), body(data), trailers((b"x-sum", b"1")))
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(WITH_TE)
        expected = CHUNKED_HEAD + b"%x\r\n%b\r\n0\r\nx-sum: 1\r\n\r\n" % (len(data), data)
        assert await client.exactly(len(expected)) == expected


async def test_trailers_that_do_not_come_break_the_response_off(
    http_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The client must not take it for complete."""
    app = Application(start(trailers=True), body(b"a"))
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(WITH_TE)
        assert await client.rest() == CHUNKED_HEAD + b"1\r\na\r\n"
    assert "ASGI callable returned without completing response." in caplog.text


TOO_LATE = [
    *("Content-Length", "transfer-encoding", "TRAILER", "connection", "host", "te", "upgrade", "keep-alive"),
    *("authorization", "www-authenticate", "proxy-authenticate", "set-cookie", "cookie", "cache-control", "expect"),
    *("range", "if-match", "content-type", "content-encoding", "content-range", "date", "age", "expires", "vary"),
    *("location", "retry-after", "warning", "max-forwards", "pragma"),
]


@pytest.mark.parametrize("data", [WITH_TE, GET], ids=["wanted", "dropped"])
async def test_fields_that_come_too_late_in_trailers_are_refused(
    http_protocol_cls: Any, data: bytes, subtests: pytest.Subtests
) -> None:
    """RFC 9110 section 6.5.1: whether or not this client would get them; others may follow."""
    for name in TOO_LATE:
        with subtests.test(name):
            await require_refusal_of_trailer(http_protocol_cls, name, data)


async def require_refusal_of_trailer(http_protocol_cls: Any, name: str, data: bytes) -> None:
    wrong = trailers((b"x-a", b"0"), (name.encode(), b"1"))
    app = Application(start(trailers=True), body(b"a"), wrong, otherwise=(trailers((b"x-a", b"1")),))
    section = b"0\r\nx-a: 1\r\n\r\n" if data is WITH_TE else b"0\r\n\r\n"
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(data)
        assert await client.until(section) == CHUNKED_HEAD + b"1\r\na\r\n" + section
    assert type(app.error) is RuntimeError
    assert str(app.error) == f"Field '{name.lower()}' is not allowed in trailers."


@pytest.mark.parametrize(
    ("header", "error", "text"),
    [
        pytest.param((b"a b", b""), RuntimeError, "Invalid HTTP header name.", id="name"),
        pytest.param((b"a", b"b\r\nc: d"), RuntimeError, "Invalid HTTP header value.", id="value"),
        pytest.param(("a", b"b"), TypeError, "Header names and values must be bytes, got 'a': b'b'.", id="str"),
        pytest.param((b"content-length", b"x"), RuntimeError, None, id="length"),
    ],
)
async def test_trailers_that_cannot_be_sent_raise(
    http_protocol_cls: Any, header: Any, error: type[Exception], text: str | None
) -> None:
    """R1, R2"""
    app = Application(start(trailers=True), body(b"a"), trailers(header), otherwise=(trailers(),))
    async with serve(http_protocol_cls, app) as service:
        assert (await (await service.connect()).ask(WITH_TE)).body == b"a"
    assert type(app.error) is error
    assert str(app.error) == (text or "Field 'content-length' is not allowed in trailers.")


@pytest.mark.parametrize("size", [1, 100_000])
async def test_short_body_before_trailers_is_an_error(http_protocol_cls: Any, size: int) -> None:
    """R4: nothing of it is sent, as without trailers."""
    app = Application(start(200, length(size + 1), trailers=True), body(b"a" * size), trailers())
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        assert await client.rest() == b""
    assert str(app.error) == "Response content shorter than Content-Length"


@pytest.mark.parametrize("wrong", [b"a", b"abcd", b"a" * 100_000], ids=["shorter", "longer", "much-longer"])
async def test_body_of_a_wrong_length_before_trailers_can_be_replaced(http_protocol_cls: Any, wrong: bytes) -> None:
    announced = start(200, length(3), trailers=True)
    app = Application(announced, body(wrong), otherwise=(body(b"abc"), trailers()))
    data = await wire(http_protocol_cls, app)
    assert data == b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: close\r\n\r\nabc"
    assert str(app.error).startswith("Response content ")


# Files

REQUESTS = [
    pytest.param(GET_CLOSE, b"content-length: 10\r\nconnection: close\r\n\r\n" + TEXT, (length(10),), id="length"),
    pytest.param(
        GET_CLOSE,
        b"transfer-encoding: chunked\r\nconnection: close\r\n\r\na\r\n" + TEXT + b"\r\n0\r\n\r\n",
        (),
        id="chunked",
    ),
    pytest.param(GET_10, b"connection: close\r\n\r\n" + TEXT, (), id="1.0"),
    pytest.param(closing(HEAD), b"content-length: 10\r\nconnection: close\r\n\r\n", (length(10),), id="HEAD"),
]


@pytest.mark.parametrize(("data", "expected", "headers"), REQUESTS)
async def test_path_is_sent_as_the_body(
    http_protocol_cls: Any, file: str, data: bytes, expected: bytes, headers: Any
) -> None:
    app = Application(start(200, *headers), path_send(file))
    with no_descriptor_left():
        assert await wire(http_protocol_cls, app, data) == b"HTTP/1.1 200 OK\r\n" + expected
        await asyncio.sleep(0)
    assert app.error is None


@pytest.mark.parametrize(("data", "expected", "headers"), REQUESTS)
async def test_open_file_is_sent_as_the_body(
    http_protocol_cls: Any, file: str, data: bytes, expected: bytes, headers: Any
) -> None:
    """It is the application's, and stays open."""
    with open(file, "rb") as opened:
        app = Application(start(200, *headers), file_send(opened))
        assert await wire(http_protocol_cls, app, data) == b"HTTP/1.1 200 OK\r\n" + expected
        assert opened.tell() == 10
        opened.seek(0)
        assert opened.read() == TEXT
    assert app.error is None


@pytest.mark.parametrize("status", [204, 304])
async def test_file_is_dropped_where_there_is_no_body(http_protocol_cls: Any, file: str, status: int) -> None:
    """R5"""
    app = Application(start(status), path_send(file))
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        for _ in range(2):
            await client.send(GET)
            assert (await client.response()).status == status
        assert await client.silent()
    assert app.error is None


async def test_connection_goes_on_after_a_file(http_protocol_cls: Any, file: str) -> None:
    app = Application(start(200, length(10)), path_send(file))
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET * 3)
        for _ in range(3):
            assert (await client.response()).body == TEXT
        assert service.state.total_requests == 3


async def test_empty_file(http_protocol_cls: Any, tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    app = Application(start(), path_send(str(path)))
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        assert (await client.ask()).body == b""
        assert (await client.ask()).body == b""


async def test_relative_path_is_one_of_the_working_directory(
    http_protocol_cls: Any, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for `open`: Starlette passes on the path that its `FileResponse` was given."""
    monkeypatch.chdir(os.path.dirname(file))
    app = Application(start(200, length(10)), path_send("file"))
    async with serve(http_protocol_cls, app) as service:
        assert (await (await service.connect()).ask()).body == TEXT


async def test_file_before_trailers(http_protocol_cls: Any, file: str) -> None:
    app = Application(start(trailers=True), path_send(file), trailers((b"x-sum", b"1")))
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        for _ in range(2):
            await client.send(WITH_TE)
            section = b"\r\n0\r\nx-sum: 1\r\n\r\n"
            assert await client.until(section) == CHUNKED_HEAD + b"a\r\n" + TEXT + section
    assert app.error is None


@pytest.mark.parametrize(
    ("more", "expected", "position"),
    [
        pytest.param({"offset": 3}, TEXT[3:], 0, id="offset"),
        pytest.param({"count": 4}, TEXT[:4], 4, id="count"),
        pytest.param({"offset": 3, "count": 4}, TEXT[3:7], 0, id="both"),
        pytest.param({"offset": 0, "count": 99}, TEXT, 0, id="more-than-there-is"),
        pytest.param({"offset": 99}, b"", 0, id="behind-the-end"),
        pytest.param({"offset": 10, "count": 1}, b"", 0, id="at-the-end"),
        pytest.param({"count": 0}, b"", 0, id="nothing"),
        pytest.param({"offset": None, "count": None}, TEXT, 10, id="none"),
    ],
)
async def test_part_of_a_file(
    http_protocol_cls: Any, file: str, more: dict[str, Any], expected: bytes, position: int
) -> None:
    """Without an offset the file's position counts, and moves on; with one it stays."""
    with open(file, "rb") as opened:
        app = Application(start(), file_send(opened, **more))
        async with serve(http_protocol_cls, app) as service:
            assert (await (await service.connect()).ask()).body == expected
        assert opened.tell() == position
    assert app.error is None


async def test_files_mix_with_other_pieces(http_protocol_cls: Any, file: str) -> None:
    with open(file, "rb") as opened:
        assert opened.read(2) == b"01"  # the descriptor is at the end now, because reading is buffered
        app = Application(
            start(),
            body(b"<", more=True),
            file_send(opened, count=3, more_body=True),
            file_send(opened, count=2, more_body=True),
            file_send(opened, offset=0, count=1, more_body=True),
            body(b"", more=True),
            file_send(opened, more_body=True),
            body(b">"),
        )
        async with serve(http_protocol_cls, app) as service:
            client = await service.connect()
            assert (await client.ask()).body == b"<" + b"234" + b"56" + b"0" + b"789" + b">"
    assert app.error is None


@pytest.mark.parametrize("how", ["descriptor", "raw", "only-fileno", "asynchronous"])
async def test_kinds_of_files(http_protocol_cls: Any, file: str, how: str) -> None:
    """Anything with a descriptor, and a descriptor itself."""

    class OnlyFileno:
        def __init__(self, raw: Any) -> None:
            self.fileno = raw.fileno

    class Asynchronous(OnlyFileno):
        """As the files of anyio and aiofiles are."""

        def __init__(self, raw: Any) -> None:
            super().__init__(raw)
            self.raw = raw

        async def tell(self) -> int:
            return int(self.raw.tell())

        async def seek(self, position: int) -> int:
            return int(self.raw.seek(position))

    with open(file, "rb", buffering=0) as raw:
        raw.seek(1)
        kinds: dict[str, Callable[[Any], Any]] = {
            "descriptor": lambda raw: raw.fileno(),
            "raw": lambda raw: raw,
            "only-fileno": OnlyFileno,
            "asynchronous": Asynchronous,
        }
        opened = kinds[how](raw)
        app = Application(start(), file_send(opened, count=2, more_body=True), file_send(opened))
        async with serve(http_protocol_cls, app) as service:
            assert (await (await service.connect()).ask()).body == TEXT[1:]
        assert raw.tell() == 10
    assert app.error is None


# Files that cannot be sent

OTHERWISE = (body(b"otherwise"),)


def missing(directory: Path) -> str:
    return str(directory / "missing")


def named_pipe(directory: Path) -> str:
    path = str(directory / "pipe")
    os.mkfifo(path)
    return path


@pytest.mark.parametrize(
    ("make", "number"),
    [
        pytest.param(missing, errno.ENOENT, id="missing"),
        pytest.param(str, errno.EISDIR, id="directory"),
        pytest.param(
            named_pipe,
            errno.EINVAL,
            id="named-pipe",
            marks=pytest.mark.skipif(sys.platform == "win32", reason="there are none"),
        ),
    ],
)
async def test_path_that_cannot_be_sent_is_an_error_of_the_system(
    http_protocol_cls: Any, tmp_path: Path, make: Callable[[Path], str], number: int
) -> None:
    """S3: before anything has been sent, so the application can still say something else."""
    path = make(tmp_path)
    app = Application(start(), path_send(path), otherwise=OTHERWISE)
    with no_descriptor_left():
        async with serve(http_protocol_cls, app) as service:
            assert (await (await service.connect()).ask()).body == b"otherwise"
            await asyncio.sleep(0)
    assert isinstance(app.error, OSError)
    assert (app.error.errno, app.error.filename) == (number, path)


async def test_missing_file_that_nobody_expected_sends_nothing(
    http_protocol_cls: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """S3"""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        await send(path_send(missing(tmp_path)))

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        assert await client.rest() == b""
    assert "FileNotFoundError" in caplog.text


@pytest.mark.parametrize(
    ("message", "error", "text"),
    [
        pytest.param(
            path_send(b"/etc"), TypeError, "The path of a file to send must be a str, got b'/etc'.", id="path"
        ),
        pytest.param({"type": "http.response.pathsend"}, KeyError, "'path'", id="no-path"),
        pytest.param({"type": "http.response.zerocopysend"}, KeyError, "'file'", id="no-file"),
        pytest.param(file_send("x"), TypeError, "A file to send must have a file descriptor, got 'x'.", id="text"),
        pytest.param(
            file_send(0, offset="1"), TypeError, "The offset of a file to send must be an int, got '1'.", id="1"
        ),
        pytest.param(
            file_send(0, count=1.0), TypeError, "The count of a file to send must be an int, got 1.0.", id="2"
        ),
        pytest.param(
            file_send(0, offset=-1), ValueError, "The offset of a file to send must not be negative, got -1.", id="3"
        ),
        pytest.param(
            file_send(0, count=-1), ValueError, "The count of a file to send must not be negative, got -1.", id="4"
        ),
    ],
)
async def test_file_message_with_a_wrong_value_raises(
    http_protocol_cls: Any, message: Any, error: type[Exception], text: str
) -> None:
    app = Application(start(), message, otherwise=OTHERWISE)
    async with serve(http_protocol_cls, app) as service:
        assert (await (await service.connect()).ask()).body == b"otherwise"
    assert type(app.error) is error
    assert str(app.error) == text


async def test_file_without_descriptor_raises(http_protocol_cls: Any) -> None:
    app = Application(start(), file_send(io.BytesIO(TEXT)), otherwise=OTHERWISE)
    async with serve(http_protocol_cls, app) as service:
        assert (await (await service.connect()).ask()).body == b"otherwise"
    assert type(app.error) is TypeError
    assert str(app.error).startswith("A file to send must have a file descriptor, got <_io.BytesIO")


@pytest.mark.parametrize(
    ("announced", "text"),
    [(9, "Response content longer than Content-Length"), (11, "Response content shorter than Content-Length")],
)
@pytest.mark.parametrize("how", ["path", "open"])
async def test_file_that_contradicts_the_length_raises(
    http_protocol_cls: Any, file: str, announced: int, text: str, how: str
) -> None:
    """S3, R4: in the words for bodies; before anything has been sent, so that another body may follow."""
    with open(file, "rb") as opened:
        message = path_send(file) if how == "path" else file_send(opened)
        app = Application(start(200, length(announced)), message, otherwise=(body(bytes(announced)),))
        async with serve(http_protocol_cls, app) as service:
            assert (await (await service.connect()).ask()).body == bytes(announced)
        assert opened.tell() == 0
    assert type(app.error) is RuntimeError
    assert str(app.error) == text


async def test_part_of_a_file_may_be_shorter_than_what_is_announced(http_protocol_cls: Any, file: str) -> None:
    with open(file, "rb") as opened:
        app = Application(start(200, length(12)), file_send(opened, more_body=True), body(b"ab"))
        async with serve(http_protocol_cls, app) as service:
            assert (await (await service.connect()).ask()).body == TEXT + b"ab"


# Order

NEEDS_START = "Expected ASGI message 'http.response.start', but got '{}'."
NEEDS_BODY = "Expected ASGI message 'http.response.body', but got '{}'."
NEEDS_TRAILERS = "Expected ASGI message 'http.response.trailers', but got '{}'."
IS_COMPLETE = "Unexpected ASGI message '{}' sent, after response already completed."


@pytest.mark.parametrize(
    ("before", "wrong", "text"),
    [
        *([[], name, NEEDS_START] for name in ("body", "trailers", "pathsend", "zerocopysend", "push", "nonsense")),
        *([[start()], name, NEEDS_BODY] for name in ("start", "trailers", "push", "nonsense")),
        [[start(trailers=True)], "trailers", NEEDS_BODY],
        [[start(), body(b"", more=True)], "trailers", NEEDS_BODY],
        *(
            [[start(trailers=True), body()], name, NEEDS_TRAILERS]
            for name in ("start", "body", "pathsend", "zerocopysend", "early_hint", "push")
        ),
        *(
            [[start(), body()], name, IS_COMPLETE]
            for name in ("start", "body", "trailers", "pathsend", "zerocopysend", "early_hint", "push")
        ),
        [[start(trailers=True), body(), trailers()], "trailers", IS_COMPLETE],
        [[start(trailers=False), body()], "trailers", IS_COMPLETE],
    ],
)
async def test_message_out_of_order_is_an_error(
    http_protocol_cls: Any, before: list[Any], wrong: str, text: str
) -> None:
    """ERR-08, ERR-09, ERR-10, RES-33: in the same words everywhere."""
    kind = f"http.response.{wrong}"
    app = Application(*before, {"type": kind})
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        await wait_until(lambda: app.error is not None)
    assert type(app.error) is RuntimeError
    assert str(app.error) == text.format(kind)


async def test_messages_after_a_file_that_was_the_end_are_errors(http_protocol_cls: Any, file: str) -> None:
    app = Application(start(200, length(10)), path_send(file), body())
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        assert (await client.ask()).body == TEXT
        await wait_until(lambda: app.error is not None)
        assert (await client.ask()).body == TEXT
    assert str(app.error) == IS_COMPLETE.format("http.response.body")


async def test_extensions_after_the_client_has_gone_do_nothing(http_protocol_cls: Any, file: str) -> None:
    """CON-07: as `send()` of a body does."""
    left = asyncio.Event()
    done = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        assert (await receive())["type"] == "http.disconnect"
        await left.wait()
        for message in (
            hint(LINK),
            start(trailers=True),
            path_send(file),
            path_send("/missing"),
            trailers((b"te", b"")),
        ):
            await send(message)
        done.set()

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        await wait_until(lambda: service.state.tasks)
        client.reset()
        await wait_until(lambda: not service.state.connections)
        left.set()
        await wait_until(done.is_set)
