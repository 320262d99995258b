"""Methods of the protocol classes that programs override read requests as upstream's do; what they change is served."""

from __future__ import annotations

import functools
import logging
from typing import Any

import h11
import httptools
import pytest

from tests.protocols import harness
from tests.protocols.harness import GET, Calls, echo, request, respond
from uvicorn.config import Config
from uvicorn.hooks import SkippedOverride, never_called
from uvicorn.protocols.http import h11_impl, httptools_impl
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_impl import WebSocketProtocol

pytestmark = pytest.mark.anyio

serve = functools.partial(harness.serve, asgi_extensions=())

POST = request("POST", "/a%20b?c", "X-One: 1 ", "Expect: 100-continue", body=b"hello")
CHUNKED = request("POST", "/", "Transfer-Encoding: Chunked") + b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: 1\r\n\r\n"


class Verifying(HttpToolsProtocol):
    """Puts a field in front of all others, which a client cannot forge."""

    def on_headers_complete(self) -> None:
        self.headers.insert(0, (b"verified-uuid", b"true"))  # type: ignore[union-attr]
        super().on_headers_complete()


class VerifyingLate(HttpToolsProtocol):
    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self.headers.insert(0, (b"verified-uuid", b"true"))  # type: ignore[union-attr]


class VerifyingH11(H11Protocol):
    def handle_events(self) -> None:
        super().handle_events()
        headers = self.headers
        if headers and headers[0][0] != b"verified-uuid":
            headers.insert(0, (b"verified-uuid", b"true"))


class VerifyingEvent(H11Protocol):
    """What reads the connection is replaced."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        next_event = self.conn.next_event

        def verified() -> Any:
            event = next_event()
            if type(event) is h11.Request:
                headers = [(b"verified-uuid", b"true"), *event.headers]
                event = h11.Request(
                    method=event.method, target=event.target, headers=headers, http_version=event.http_version
                )
            return event

        self.conn.next_event = verified  # type: ignore[method-assign]


class Whole(H11Protocol):
    """Has a loop of its own, and makes cycles as upstream's are made."""

    def handle_events(self) -> None:
        while True:
            event = self.conn.next_event()
            if type(event) is h11.Request:
                self._start(event)
            elif type(event) is h11.Data:
                self.cycle.body += event.data  # type: ignore[union-attr]
                self.cycle.message_event.set()  # type: ignore[union-attr]
            elif type(event) is h11.EndOfMessage:
                self.cycle.more_body = False  # type: ignore[union-attr]
                self.cycle.message_event.set()  # type: ignore[union-attr]
            else:
                return

    def _start(self, event: h11.Request) -> None:
        path, _, query = event.target.partition(b"?")
        scope: Any = {
            "type": "http",
            "method": event.method.decode(),
            "path": path.decode(),
            "raw_path": path,
            "query_string": query,
            "http_version": event.http_version.decode(),
            "headers": [(b"verified-uuid", b"true"), *event.headers],
            "client": self.client,
        }
        self.cycle = h11_impl.RequestResponseCycle(
            scope=scope,
            transport=self.transport,
            conn=self.conn,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=[],
            message_event=None,
            on_response=self.on_response_complete,
        )
        task = self.loop.create_task(self.cycle.run_asgi(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)


VERIFYING = [Verifying, VerifyingLate, VerifyingH11, VerifyingEvent, Whole]


@pytest.mark.parametrize("kind", VERIFYING)
async def test_field_that_a_program_puts_in_front_is_in_front_of_each_request(kind: Any) -> None:
    """Of those that come again word for word as well, and of those that come with a forged field."""
    app = Calls()
    forged = request("GET", "/", "verified-uuid: forged")
    async with serve(kind, app) as service:
        client = await service.connect()
        for data in (GET, GET, GET, forged, request("POST", "/", body=b"a"), forged, CHUNKED, GET):
            assert (await client.ask(data)).status == 200
        await client.send(forged * 3)
        assert [(await client.response()).status for _ in range(3)] == [200] * 3
    assert len(app.scopes) == 11
    assert [scope["headers"][0] for scope in app.scopes] == [(b"verified-uuid", b"true")] * 11


@pytest.mark.parametrize("kind", VERIFYING)
@pytest.mark.parametrize("data", [POST, CHUNKED], ids=["length", "chunked"])
@pytest.mark.parametrize("whole", [True, False])
async def test_body_reaches_the_application_behind_a_program_s_methods(kind: Any, data: bytes, whole: bool) -> None:
    async with serve(kind, echo) as service:
        client = await service.connect()
        for _ in range(3):
            pieces = [data] if whole else [data[at : at + 1] for at in range(len(data))]
            await client.send(*pieces)
            response = await client.response()
            if response.status == 100:
                response = await client.response()
            assert response.body == (b"hello" if data is POST else b"abcde")


@pytest.mark.parametrize("kind", VERIFYING)
async def test_strict_rules_stand_in_front_of_a_program_s_methods(kind: Any) -> None:
    calls: list[str] = []

    def noting(name: str) -> Any:
        def method(self: Any, *args: Any) -> None:
            calls.append(name)
            getattr(kind, name)(self, *args)

        return method

    names = ("on_message_begin", "on_url", "on_header", "on_headers_complete", "on_body", "handle_events")
    mine = type("Mine", (kind,), {name: noting(name) for name in names if hasattr(kind, name)})
    async with serve(mine, respond()) as service:
        for bad in (
            b"GET / HTTP/1.1\r\nhost: a\r\nx: a\x00b\r\n\r\n",
            b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
            b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
            b"GET / HTTP/1.1\r\nhost: a\nx: y\r\n\r\n",
            b"GET /#x HTTP/1.1\r\nhost: a\r\n\r\n",
        ):
            client = await service.connect()
            await client.send(bad)
            assert (await client.response()).status == 400
            client.close()
    assert calls == []


async def test_callbacks_of_httptools_come_in_order_and_with_what_was_sent() -> None:
    calls: list[Any] = []

    class Noting(HttpToolsProtocol):
        def on_message_begin(self) -> None:
            super().on_message_begin()
            self.scope["extra"] = len(calls)  # type: ignore[index,typeddict-unknown-key]
            calls.append(sorted(self.scope))  # type: ignore[arg-type]

        def on_url(self, url: bytes) -> None:
            super().on_url(url)
            self.scope["state"]["seen"] = True  # type: ignore[index]
            calls.append((url, self.url))

        def on_header(self, name: bytes, value: bytes) -> None:
            super().on_header(name, value)
            calls.append((name, value))

        def on_headers_complete(self) -> None:
            assert self.cycle is None and self.parser.get_method() == b"POST"
            super().on_headers_complete()
            assert self.cycle is not None and not self.cycle.response_started
            calls.append((self.expect_100_continue, self.scope["path"]))  # type: ignore[index]

        def on_body(self, body: bytes) -> None:
            super().on_body(body)
            calls.append((body, self.cycle.body))  # type: ignore[union-attr]

        def on_message_complete(self) -> None:
            super().on_message_complete()
            calls.append(self.cycle.more_body)  # type: ignore[union-attr]

    app = Calls()
    async with serve(Noting, app) as service:
        client = await service.connect()
        await client.send(POST)
        assert (await client.response()).status == 200
    assert calls == [
        [*("asgi", "client", "extra", "headers", "http_version", "root_path", "scheme", "server", "state", "type")],
        (b"/a%20b?c", b"/a%20b?c"),
        *((b"host", b"test"), (b"X-One", b"1 "), (b"Expect", b"100-continue"), (b"content-length", b"5")),
        (True, "/a b"),
        (b"hello", b"hello"),
        False,
    ]
    assert app.scope["extra"] == 0 and app.scope["state"] == {"seen": True}
    assert app.scope["headers"] == [
        *((b"host", b"test"), (b"x-one", b"1"), (b"expect", b"100-continue"), (b"content-length", b"5"))
    ]


async def test_target_field_and_body_may_be_others() -> None:
    class Changing(HttpToolsProtocol):
        def on_url(self, url: bytes) -> None:
            super().on_url(b"/prefix" + url)

        def on_header(self, name: bytes, value: bytes) -> None:
            if name != b"X-One":
                super().on_header(name, value.upper())

        def on_body(self, body: bytes) -> None:
            super().on_body(body.upper())

    app = Calls(echo)
    async with serve(Changing, app) as service:
        client = await service.connect()
        await client.send(request("POST", "/a%20b?c", "X-One: 1", body=b"hello"))
        assert (await client.response()).body == b"HELLO"
    scope = app.scope
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/prefix/a b", b"/prefix/a%20b", b"c")
    assert scope["headers"] == [(b"host", b"TEST"), (b"content-length", b"5")]


async def test_field_of_a_proxy_that_a_program_adds_passes_the_middleware() -> None:
    class Adding(HttpToolsProtocol):
        def on_headers_complete(self) -> None:
            self.headers.append((b"x-forwarded-proto", b"https"))  # type: ignore[union-attr]
            super().on_headers_complete()

    app = Calls()
    async with serve(Adding, app, proxy_headers=True) as service:
        client = await service.connect()
        assert (await client.ask()).status == 200
    assert app.scope["scheme"] == "https"


@pytest.mark.parametrize("name", ["on_url", "on_header", "on_headers_complete", "on_message_complete"])
async def test_method_that_fails_ends_the_request(name: str, caplog: pytest.LogCaptureFixture) -> None:
    def fails(self: Any, *args: Any) -> None:
        raise ValueError("no")

    app = Calls()
    async with serve(type("Mine", (HttpToolsProtocol,), {name: fails}), app) as service:
        client = await service.connect()
        assert (await client.ask()).status == 400
        assert await client.rest() == b""
    assert not app.scopes
    assert any(record.exc_info and "Mine" in record.getMessage() for record in caplog.records)


async def test_program_s_handshake_is_what_the_websocket_gets() -> None:
    from tests.protocols.websocket_tools import handshake

    scopes: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)
        await receive()
        await send({"type": "websocket.accept"})
        await receive()

    for kind in (Verifying, VerifyingEvent):
        async with serve(kind, app, ws="websockets-sansio") as service:
            client = await service.connect()
            await client.send(handshake())
            assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
            client.close()
            await service.idle()
    assert [(b"verified-uuid", b"true") in scope["headers"] for scope in scopes] == [True, True]


async def test_next_event_that_is_patched_reads_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    original = h11.Connection.next_event

    def next_event(self: Any) -> Any:
        event = original(self)
        if type(event) is h11.Request:
            event = h11.Request(
                method=event.method, target=b"/patched", headers=event.headers, http_version=event.http_version
            )
        return event

    monkeypatch.setattr(h11.Connection, "next_event", next_event)
    app = Calls()
    async with serve(H11Protocol, app) as service:
        client = await service.connect()
        for _ in range(4):
            assert (await client.ask()).status == 200
    assert [scope["path"] for scope in app.scopes] == ["/patched"] * 4


@pytest.mark.parametrize("kind", [HttpToolsProtocol, H11Protocol])
async def test_library_reads_what_is_new_and_is_let_go_of(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that comes again word for word goes past it from the third time on."""
    heads: list[bytes] = []
    original = kind.feed_head

    def feed_head(self: Any, head: bytes) -> None:
        heads.append(head)
        original(self, head)

    monkeypatch.setattr(kind, "feed_head", feed_head)
    monkeypatch.setattr("uvicorn.protocols.http.protocol_settings.replaced", lambda cls: [])
    async with serve(kind, respond()) as service:
        client = await service.connect()
        for _ in range(5):
            assert (await client.ask()).status == 200
        assert (await client.ask(request("GET", "/other"))).status == 200
    assert heads == [GET, GET, request("GET", "/other")]


@pytest.mark.parametrize("method", ["GET", "QUERY", "BREW", "PRI", "SOURCE", "M-SEARCH"])
@pytest.mark.parametrize("kind", [HttpToolsProtocol, H11Protocol])
async def test_methods_that_a_library_does_not_know_are_served(kind: Any, method: str) -> None:
    app = Calls()
    async with serve(kind, app) as service:
        client = await service.connect()
        for version in ("1.1", "1.3"):
            assert (await client.ask(request(method, "/", version=version))).status == 200
    assert [scope["method"] for scope in app.scopes] == [method] * 2


def test_methods_of_httptools_are_those_it_takes() -> None:
    def takes(method: bytes) -> bool:
        parser = httptools.HttpRequestParser(object())
        try:
            parser.feed_data(method + b" / HTTP/1.1\r\nhost: a\r\n\r\n")
        except httptools.HttpParserError:
            return False
        return True

    assert [method for method in httptools_impl.METHODS if not takes(method)] == []


async def test_end_that_only_httptools_sees_is_none() -> None:
    """llhttp heeds `Proxy-Connection`, which is no field of HTTP."""
    async with serve(HttpToolsProtocol, respond()) as service:
        client = await service.connect()
        for number in range(3):
            assert (await client.ask(request("GET", f"/{number}", "Proxy-Connection: close"))).status == 200


# What is never called


class Skipping(WebSocketProtocol):
    async def ws_handler(self) -> None: ...


def test_method_that_nothing_calls_ends_the_start() -> None:
    assert never_called(Skipping) == ["Skipping.ws_handler"]
    with pytest.raises(SkippedOverride, match=r"never called by the server: Skipping\.ws_handler\. .*--allow-skipped"):
        Config(respond(), log_config=None, ws=Skipping).load()


def test_method_that_nothing_calls_is_skipped_where_that_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="uvicorn.error")
    config = Config(respond(), log_config=None, ws=Skipping, allow_skipped_overrides=True)
    config.load()
    assert config.ws_protocol_class is Skipping
    assert caplog.messages == [
        "Ignoring overridden methods that the server never calls: Skipping.ws_handler (allow_skipped_overrides)."
    ]
