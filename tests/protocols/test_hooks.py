"""What programs replace of the protocol classes is called where upstream calls it, or its author is told otherwise.

Each was tried against upstream.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import httptools
import pytest

from tests.protocols.harness import GET, Calls, make_config, request, respond, serve
from tests.utils import wait_until
from uvicorn.config import Config
from uvicorn.hooks import (
    SkippedOverride,
    TakenName,
    never_called,
    replaced,
    replaced_beside,
    taken_names,
)
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http import h11_impl, httptools_impl
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.http.cycle import RequestResponseCycle
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.http.protocol import HTTPProtocol
from uvicorn.protocols.websockets.auto import AutoWebSocketsProtocol
from uvicorn.protocols.websockets.session_states import FRAME_METHODS, LEGACY, LEGACY_LIBRARY
from uvicorn.protocols.websockets.websockets_impl import WebSocketProtocol
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[HttpToolsProtocol, H11Protocol], ids=["httptools", "h11"])
def python(request: pytest.FixtureRequest) -> Any:
    """Each implementation in Python."""
    return request.param


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="uvicorn.error")
    return caplog


# Methods


async def test_methods_of_a_subclass_are_called_around_a_request(python: Any) -> None:
    calls: list[Any] = []

    class Noting(python):  # type: ignore[misc]
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            calls.append("made")

        def data_received(self, data: bytes) -> None:
            calls.append(len(data))
            super().data_received(data)
            # As with upstream, the application has not started yet.
            calls.append((self.scope["path"], self.cycle.response_started))
            self.scope["added"] = True

        def on_response_complete(self) -> None:
            calls.append(("completing", self.scope["path"], self.cycle.response_complete))
            super().on_response_complete()
            calls.append(("complete", self.scope["path"], self.server_state.total_requests))

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            calls.append(("lost", self.scope))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        calls.append(("application", scope["added"]))
        await respond()(scope, receive, send)

    async with serve(Noting, app) as service:
        client = await service.connect()
        await client.ask(request("GET", "/1"))
        assert calls == [
            "made",
            *(31, ("/1", False), ("application", True)),
            *(("completing", "/1", True), ("complete", "/1", 1)),
        ]
        await client.ask(request("GET", "/2"))
        assert calls[-2:] == [("completing", "/2", True), ("complete", "/2", 2)]
        client.close()
        await service.idle()
    assert calls[-1] == ("lost", None)


async def test_pipelined_requests_of_a_subclass_are_answered_in_turn(python: Any) -> None:
    class Plain(python):  # type: ignore[misc]
        pass

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await respond(scope["path"].encode())(scope, receive, send)

    async with serve(Plain, app) as service:
        client = await service.connect()
        await client.send(b"".join(request("GET", f"/{number}") for number in range(40)))
        assert [(await client.response()).body for _ in range(40)] == [b"/%d" % number for number in range(40)]


@pytest.mark.parametrize("closes", [True, False], ids=["closing", "leaving it open"])
async def test_answer_to_what_is_no_request_may_be_another(python: Any, closes: bool) -> None:
    """It is given the text, knows the transport, and the connection ends whether or not it closes it."""
    texts: list[str] = []

    class Refusing(python):  # type: ignore[misc]
        def send_400_response(self, msg: str) -> None:
            texts.append(msg)
            self.transport.write(b"HTTP/1.1 400 Mine\r\n\r\n")
            if closes:
                self.transport.close()

    async with serve(Refusing, respond()) as service:
        client = await service.connect()
        await client.send(GET + b"nonsense\r\n\r\n")
        assert (await client.response()).status == 200
        assert await client.rest() == b"HTTP/1.1 400 Mine\r\n\r\n"
        client.close()
        await service.idle()
    assert texts == ["Invalid HTTP request received."]


async def test_answer_to_what_is_no_request_may_have_another_text(python: Any) -> None:
    class Refusing(python):  # type: ignore[misc]
        def send_400_response(self, msg: str) -> None:
            super().send_400_response("Nö.")

    async with serve(Refusing, respond()) as service:
        client = await service.connect()
        await client.send(b"nonsense\r\n\r\n")
        response = await client.response()
        assert (response.status, response.body) == (400, "Nö.".encode())
        assert response.values(b"content-length") == [b"4"]
        assert await client.rest() == b""


async def test_end_of_an_idle_connection_may_be_prevented(python: Any) -> None:
    """It is called when a request was answered and no other came; upstream has no time limit before the first."""
    idle: list[bool] = []

    class Patient(python):  # type: ignore[misc]
        def timeout_keep_alive_handler(self) -> None:
            idle.append(self.transport.is_closing())
            if len(idle) > 1:
                super().timeout_keep_alive_handler()

    async with serve(Patient, respond(), timeout_keep_alive=0) as service:
        client = await service.connect()
        assert (await client.ask()).status == 200
        await wait_until(lambda: idle == [False])
        assert (await client.ask()).status == 200
        assert await client.rest() == b""
        assert idle == [False, False]


async def test_time_without_a_first_request_is_no_idle_connection(python: Any) -> None:
    class Noting(python):  # type: ignore[misc]
        def timeout_keep_alive_handler(self) -> None:
            raise AssertionError("called")

    async with serve(Noting, respond(), timeout_request_head=300) as service:
        client = await service.connect()
        await service.accepted()
        service.pass_time(400)
        assert await client.rest() == b""


async def test_handler_of_idle_connections_closes_when_it_is_called(python: Any) -> None:
    async with serve(python, respond()) as service:
        client = await service.connect()
        await client.ask()
        (connection,) = service.state.connections
        for _ in range(2):
            connection.timeout_keep_alive_handler()  # type: ignore[attr-defined]
        assert await client.rest() == b""


# Cycles


def tracing(seen: list[Any], cycle: type[RequestResponseCycle] = RequestResponseCycle) -> Callable[..., Any]:
    """What tracing tools put in place of `run_asgi`."""
    original = cycle.run_asgi

    async def run_asgi(self: Any, app: Any) -> None:
        async def traced(scope: Any, receive: Any, send: Any) -> None:
            seen.append(scope["path"])
            await app(scope, receive, send)

        await original(self, traced)
        seen.append((self.scope["path"], self.response_started, self.response_complete, self.disconnected))

    return run_asgi


async def test_cycle_that_is_patched_is_called(python: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    for module in (h11_impl, httptools_impl):  # as tools do, whichever is in use
        monkeypatch.setattr(module.RequestResponseCycle, "run_asgi", tracing(seen, module.RequestResponseCycle))
    async with serve(python, respond()) as service:
        assert (await (await service.connect()).ask()).body == b"ok"
        await service.idle() if not service.clients else None
    assert seen == ["/", ("/", True, True, False)]


async def test_cycle_that_stands_in_the_module_is_called(python: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    class Cycle(RequestResponseCycle):
        run_asgi = tracing(seen)

        async def send(self, message: Any) -> None:
            seen.append(message["type"])
            await super().send(message)

    monkeypatch.setattr(importlib.import_module(python.__module__), "RequestResponseCycle", Cycle)
    async with serve(python, respond()) as service:
        assert (await (await service.connect()).ask()).body == b"ok"
    assert seen == ["/", "http.response.start", "http.response.body", ("/", True, True, False)]


# Attributes


async def test_attributes_are_those_of_the_server_until_they_are_assigned(python: Any) -> None:
    made: list[Any] = []
    app = Calls()

    class Assigning(python):  # type: ignore[misc]
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            made.append(self)
            assert type(self.app) is ProxyHeadersMiddleware
            assert self.transport is self.scope is self.cycle is self.client is self.scheme is None
            assert (self.ws_protocol_class, self.timeout_keep_alive, self.limit_concurrency) == (None, 5, None)
            assert (self.access_log, self.access_logger.name) == (False, "uvicorn.access")
            if len(made) > 1:
                inner = self.app

                async def outer(scope: Any, receive: Any, send: Any) -> None:
                    scope["outer"] = True
                    await inner(scope, receive, send)

                self.app = outer
                self.ws_protocol_class = WSProtocol
                self.timeout_keep_alive = 7
                self.limit_concurrency = 100

        def connection_made(self: Any, transport: Any) -> None:
            super().connection_made(transport)
            assert self.client is not None and self.scheme == "http"
            assert self in self.connections and not self.tasks
            if len(made) > 1:
                self.scheme = "https"
                self.client = ("10.0.0.1", 1)
                self.server = ("10.0.0.2", 2)

    async with serve(Assigning, app, proxy_headers=True, root_path="/root") as service:
        first, second = [await service.connect() for _ in range(2)]
        await wait_until(lambda: len(made) == 2)
        forwarded = request("GET", "/", "x-forwarded-proto: https")
        for client, expected in [(second, True), (first, False), (second, True)]:
            for data in (GET, forwarded):
                app.scopes.clear()
                assert (await client.ask(data)).status == 200
                assert ("outer" in app.scope) is expected
                if data is GET:
                    assert app.scope["scheme"] == ("https" if expected else "http")
                assert (app.scope["client"] == ("10.0.0.1", 1)) is expected
                assert (app.scope["server"] == ("10.0.0.2", 2)) is expected
        assert [one.timeout_keep_alive for one in made] == [5, 7]
        assert [one.limit_concurrency for one in made] == [None, 100]
        assert [one.ws_protocol_class for one in made] == [None, WSProtocol]
        assert made[1].root_path == "/root" and made[1].asgi_version == "3.0"


async def test_application_that_is_assigned_between_requests_serves_the_next(python: Any) -> None:
    async with serve(python, respond(b"one")) as service:
        client = await service.connect()
        assert (await client.ask()).body == b"one"
        (connection,) = service.state.connections
        connection.app = respond(b"two")  # type: ignore[attr-defined]
        assert (await client.ask()).body == b"two"


async def test_scheme_that_is_assigned_does_not_make_a_connection_secure(python: Any) -> None:
    """A half-closed client is still answered, which TLS cannot do."""

    class Behind(python):  # type: ignore[misc]
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.scheme = "https"

    proceed = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await proceed.wait()
        await respond(scope["scheme"].encode())(scope, receive, send)

    async with serve(Behind, app) as service:
        client = await service.connect()
        await client.send(GET)
        await wait_until(lambda: service.state.tasks)
        client.half_close()
        (connection,) = service.state.connections
        await wait_until(lambda: connection.cycle.disconnected)  # type: ignore[attr-defined]
        proceed.set()
        assert (await client.response()).body == b"https"


async def test_scope_that_is_assigned_is_the_one_the_application_gets(python: Any) -> None:
    app = Calls()

    class Assigning(python):  # type: ignore[misc]
        def data_received(self: Any, data: bytes) -> None:
            super().data_received(data)
            self.scope = {**self.scope, "path": "/mine"}
            assert self.headers == [(b"host", b"test")]

    async with serve(Assigning, app) as service:
        client = await service.connect()
        await client.ask()
        (connection,) = service.state.connections
        assert connection.scope["path"] == "/mine"  # type: ignore[attr-defined]
        connection.scope = None  # type: ignore[attr-defined]
        assert connection.headers is None  # type: ignore[attr-defined]
    assert app.scope["path"] == "/mine"


class Lines(logging.Handler):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def access() -> Iterator[Lines]:
    """What goes to the logger of requests."""
    handler = Lines()
    logger = logging.getLogger("uvicorn.access")
    before = logger.handlers, logger.level
    logger.handlers, logger.level = [handler], logging.INFO
    logger.manager._clear_cache()  # type: ignore[attr-defined]
    yield handler
    logger.handlers, logger.level = before
    logger.manager._clear_cache()  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", [None, "%(U)s"], ids=["as upstream", "a format"])
async def test_access_log_of_a_connection_can_be_switched(python: Any, access: Lines, text: str | None) -> None:
    async with serve(python, respond(), access_log=True, access_log_format=text) as service:
        client = await service.connect()
        for number, wanted in enumerate([None, False, True]):
            if wanted is not None:
                (connection,) = service.state.connections
                connection.access_log = wanted  # type: ignore[attr-defined]
                assert connection.access_log is wanted  # type: ignore[attr-defined]
            await client.ask(request("GET", f"/{number}"))
    assert [line.split()[-3 if text is None else 0] for line in access.lines] == ["/0", "/2"]


async def test_access_logger_of_a_connection_can_be_another(python: Any, access: Lines) -> None:
    class Mine(python):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.access_logger = logging.Logger("mine", logging.INFO)
            self.access_logger.addHandler(mine)

    mine = Lines()
    async with serve(Mine, respond(), access_log=True) as service:
        client = await service.connect()
        await client.ask(request("GET", "/a?b"))
        assert mine.lines == ['%s:%d - "GET /a?b HTTP/1.1" 200' % client.sock.getsockname()]
    assert access.lines == []


@pytest.mark.parametrize("setting", [True, False], ids=["logging", "not logging"])
@pytest.mark.parametrize("order", ["logger", "logger, log", "log, logger", "logger, no log", "no log, logger"])
async def test_access_logger_is_used_where_requests_are_logged(python: Any, order: str, setting: bool) -> None:
    mine = Lines()
    logger = logging.Logger("mine", logging.INFO)
    logger.addHandler(mine)

    class Assigning(python):  # type: ignore[misc]
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            for step in order.split(", "):
                if step == "logger":
                    self.access_logger = logger
                else:
                    self.access_log = step == "log"
            assert self.access_logger is logger
            assert self.access_log == wanted

    wanted = setting if order == "logger" else "no" not in order
    async with serve(Assigning, respond(), access_log=setting) as service:
        assert (await (await service.connect()).ask()).body == b"ok"
    assert len(mine.lines) == wanted


# Attributes of the program's own


async def test_patched_method_may_set_an_attribute(python: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    receive, answer, run = python.data_received, python.send_400_response, python.cycle_class().run_asgi

    def data_received(self: Any, data: bytes) -> None:
        self._last_data = data
        self.server_state.last_data = data
        receive(self, data)

    def send_400_response(self: Any, msg: str) -> None:
        seen.append((self._last_data, self.server_state.last_data))
        answer(self, msg)

    async def run_asgi(self: Any, app: Any) -> None:
        self.span = "span"
        await run(self, app)
        seen.append(self.span)

    monkeypatch.setattr(python, "data_received", data_received)
    monkeypatch.setattr(python, "send_400_response", send_400_response)
    monkeypatch.setattr(python.cycle_class(), "run_asgi", run_asgi)
    async with serve(python, respond()) as service:
        client = await service.connect()
        assert (await client.ask()).status == 200
        await client.send(b"nonsense\r\n\r\n")
        assert (await client.response()).status == 400
    assert seen == ["span", (b"nonsense\r\n\r\n",) * 2]


# The timer of an idle connection


async def test_timer_that_is_assigned_ends_a_connection_that_asks_nothing(python: Any) -> None:
    ended: list[bool] = []

    class Own(python):  # type: ignore[misc]
        def connection_made(self: Any, transport: Any) -> None:
            super().connection_made(transport)
            self.timeout_keep_alive_task = timer = self.loop.call_later(0, self.timeout_keep_alive_handler)
            assert self.timeout_keep_alive_task is timer

        def timeout_keep_alive_handler(self) -> None:
            ended.append(True)
            super().timeout_keep_alive_handler()

    async with serve(Own, respond()) as service:
        assert await (await service.connect()).rest() == b""
    assert ended == [True]


async def test_timer_that_is_assigned_is_cancelled_by_the_next_data(python: Any) -> None:
    timers: list[asyncio.TimerHandle] = []

    class Own(python):  # type: ignore[misc]
        def connection_made(self: Any, transport: Any) -> None:
            super().connection_made(transport)
            self.assign()

        def assign(self: Any) -> None:
            timers.append(self.loop.call_later(3600, self.timeout_keep_alive_handler))
            self.timeout_keep_alive_task = timers[-1]

    async with serve(Own, respond()) as service:
        client = await service.connect()
        assert (await client.ask()).status == 200
        (connection,) = service.state.connections
        idle: Any = connection
        assert timers[0].cancelled()
        assert isinstance(idle.timeout_keep_alive_task, asyncio.TimerHandle)
        idle.assign()
        service.pass_time(100)  # the limit of the server is not in force beside that
        assert (await client.ask()).status == 200
        assert timers[1].cancelled()
        idle.assign()
        client.close()
        await service.idle()
    assert timers[2].cancelled()


async def test_timer_that_is_taken_away_and_cancelled_is_set_again(python: Any) -> None:
    class Own(python):  # type: ignore[misc]
        def data_received(self: Any, data: bytes) -> None:
            if self.timeout_keep_alive_task is not None:
                self.timeout_keep_alive_task.cancel()
                self.timeout_keep_alive_task = None
            super().data_received(data)

    async with serve(Own, respond(), timeout_keep_alive=1) as service:
        client = await service.connect()
        for _ in range(2):
            assert (await client.ask()).status == 200
        assert await client.rest() == b""


# A program that feeds the library by itself


@pytest.mark.parametrize("kind", [HttpToolsProtocol, H11Protocol])
async def test_library_can_be_fed_by_data_received(kind: Any) -> None:
    """Whole, in pieces, pipelined; and what breaks a rule does not reach it."""
    heard: list[bytes] = []

    class Feeding(kind):  # type: ignore[misc]
        def data_received(self: Any, data: bytes) -> None:
            heard.append(data)
            if kind is H11Protocol:
                self.conn.receive_data(data)
                self.handle_events()
            else:
                self.parser.feed_data(data)

    app = Calls()
    async with serve(Feeding, app) as service:
        client = await service.connect()
        assert [(await client.ask()).status for _ in range(2)] == [200, 200]
        body = request("POST", "/", "content-length: 5") + b"hello"
        for piece in (body[:10], body[10:-2], body[-2:]):
            await client.send(piece)
            await asyncio.sleep(0.01)
        assert (await client.response()).status == 200
        chunked = request("POST", "/", "transfer-encoding: chunked") + b"5\r\nhello\r\n0\r\n\r\n"
        await client.send(chunked + GET)
        assert [(await client.response()).status for _ in range(2)] == [200, 200]
        count = len(app.scopes)
        await client.send(b"GET / HTTP/1.1\r\nhost: a\r\n b: folded\r\n\r\n")
        assert (await client.response()).status == 400
        assert len(app.scopes) == count == 5
    assert len(heard) == 7


# What cannot work


@pytest.mark.parametrize("name", [*LEGACY, *LEGACY_LIBRARY, *FRAME_METHODS])
def test_author_of_a_method_that_nothing_calls_is_told(name: str, log: pytest.LogCaptureFixture) -> None:
    kind: Any = WebSocketProtocol
    mine = type("Mine", (kind,), {name: lambda self: None, "method": lambda self: None})
    below = type("Below", (mine,), {})
    assert never_called(kind) == []
    settings: Any = {"http": HttpToolsProtocol, "ws": below}
    with pytest.raises(
        SkippedOverride, match=rf"never called by the server: Mine\.{name}\. .*--allow-skipped-overrides"
    ):
        Config(respond(), log_config=None, **settings).load()
    Config(respond(), log_config=None, allow_skipped_overrides=True, **settings).load()
    (line,) = [record.getMessage() for record in log.records if record.name == "uvicorn.error"]
    assert line == f"Ignoring overridden methods that the server never calls: Mine.{name} (allow_skipped_overrides)."


def test_methods_of_the_library_that_upstream_s_class_inherits_are_known() -> None:
    """All that `websockets` has there are named, called, or only for others to call."""
    legacy: Any = pytest.importorskip("websockets.legacy.server").WebSocketServerProtocol
    theirs = {
        name
        for base in legacy.__mro__
        if base.__module__.startswith("websockets.")
        for name, value in vars(base).items()
        if not name.startswith("__") and (callable(value) or isinstance(value, (property, staticmethod)))
    }
    called = {"connection_made", "connection_lost", "data_received", "eof_received", "pause_writing", "resume_writing"}
    read_by_others = {"close_code", "close_reason", "host", "local_address", "port", "remote_address", "secure"}
    assert theirs == {"process_request", "process_subprotocol", *LEGACY_LIBRARY, *called, *read_by_others}


@pytest.mark.parametrize("name", ["ws_handler", "process_origin"])
def test_method_that_is_patched_and_that_nothing_calls_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WebSocketProtocol, name, lambda self: None, raising=False)
    for kind in (WebSocketProtocol, type("Mine", (WebSocketProtocol,), {})):
        assert never_called(kind) == [f"WebSocketProtocol.{name}"]
    assert never_called(WSProtocol) == []


class Taking:
    _closing = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        other: Any = Calls()
        value = args
        self._deadline = self.kept = value
        other._reader = None
        super().__init__(*args, **kwargs)


@pytest.mark.parametrize("kind", [H11Protocol, HttpToolsProtocol])
def test_author_of_an_attribute_that_is_taken_is_told(kind: Any) -> None:
    mine = type("Mine", (Taking, kind), {"_scope": None})
    assert taken_names(kind) == []
    assert taken_names(mine) == ["Taking._closing", "Taking._deadline"]
    with pytest.raises(TakenName, match=r"^Taking\._closing, Taking\._deadline is a private attribute"):
        Config(respond(), log_config=None, http=mine).load()


def test_class_of_somebody_else_has_what_methods_it_likes(log: pytest.LogCaptureFixture) -> None:
    class Other(asyncio.Protocol):
        never_called = ("on_url",)

        def on_url(self, url: bytes) -> None: ...

    assert never_called(Other) == replaced(Other)[1:] == []
    Config(respond(), log_config=None, http=Other).load()
    assert log.records == []


def test_classes_are_as_they_were() -> None:
    for cls in (HTTPProtocol, HttpToolsProtocol, H11Protocol, RequestResponseCycle):
        assert replaced(cls) == []
    for module in (h11_impl, httptools_impl, importlib.import_module(SANSIO)):
        assert replaced_beside(module.__name__) == []


# `--http auto`


@pytest.fixture
def core() -> Any:
    """The class of the native core, which `auto` takes."""
    return pytest.importorskip("uvicorn.protocols.http.native_impl").NativeProtocol


def chosen() -> Any:
    config = Config(respond(), log_config=None)
    config.load()
    return config.http_protocol_class


async def nothing(self: Any, *args: Any) -> None: ...


PATCHES: list[tuple[str, str]] = [
    ("cycle:RequestResponseCycle", "run_asgi"),
    ("httptools_impl:RequestResponseCycle", "send"),
    ("httptools_impl:RequestResponseCycle", "__init__"),
    ("httptools_impl:RequestResponseCycle", "of_its_own"),
    ("httptools_impl:HttpToolsProtocol", "data_received"),
    ("httptools_impl:HttpToolsProtocol", "on_response_complete"),
    ("protocol:HTTPProtocol", "on_response_complete"),
]


@pytest.mark.parametrize(("where", "name"), PATCHES)
def test_auto_is_what_somebody_has_patched(
    core: Any, where: str, name: str, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    assert chosen() is core
    module, _, attribute = where.partition(":")
    cls = getattr(importlib.import_module(f"uvicorn.protocols.http.{module}"), attribute)
    monkeypatch.setattr(cls, name, nothing, raising=False)
    assert chosen() is HttpToolsProtocol
    reason = f"which would not call {attribute}.{name}."
    assert [record.getMessage() for record in log.records] == [
        f"HTTP is served by httptools instead of the native core, {reason}"
    ]
    monkeypatch.undo()
    assert chosen() is core


@pytest.mark.parametrize("name", ["HttpToolsProtocol", "RequestResponseCycle"])
def test_auto_is_the_class_that_somebody_has_put_in_the_module(
    core: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = type("Mine", (getattr(httptools_impl, name),), {})
    monkeypatch.setattr(httptools_impl, name, mine)
    assert chosen() is (mine if name == "HttpToolsProtocol" else HttpToolsProtocol)


def test_patch_of_what_auto_would_not_take_changes_nothing(core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With upstream it has no effect either."""
    monkeypatch.setattr(H11Protocol, "data_received", nothing)
    monkeypatch.setattr(h11_impl.RequestResponseCycle, "run_asgi", nothing)
    assert chosen() is core


def test_what_is_asked_for_by_name_is_taken(core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestResponseCycle, "run_asgi", nothing)
    config = Config(respond(), log_config=None, http="native")
    config.load()
    assert config.http_protocol_class is core


def chosen_websocket(**settings: Any) -> Any:
    config = Config(respond(), log_config=None, **settings)
    config.load()
    return config.ws_protocol_class


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("websockets_sansio_impl:WebSocketsSansIOProtocol", "data_received"),
        ("websockets_sansio_impl:WebSocketsSansIOProtocol", "__init__"),
        ("session:WebSocketSession", "send"),
        ("attributes:Attributes", "of_its_own"),
    ],
)
def test_auto_is_the_websocket_that_somebody_has_patched(
    core: Any, where: str, name: str, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    native = importlib.import_module("uvicorn.protocols.websockets.native_impl").NativeWebSocketProtocol
    python = importlib.import_module("uvicorn.protocols.websockets.websockets_sansio_impl").WebSocketsSansIOProtocol
    assert chosen_websocket() is native
    module, _, attribute = where.partition(":")
    cls = getattr(importlib.import_module(f"uvicorn.protocols.websockets.{module}"), attribute)
    monkeypatch.setattr(cls, name, nothing, raising=False)
    assert chosen_websocket() is python
    assert [record.getMessage() for record in log.records] == [
        f"WebSocket is not served by the native core, which would not call {attribute}.{name}."
    ]
    assert chosen_websocket(ws="native") is native
    monkeypatch.undo()
    assert chosen_websocket() is native


def test_auto_is_the_websocket_class_that_somebody_has_put_in_the_module(
    core: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("uvicorn.protocols.websockets.websockets_sansio_impl")
    mine = type("Mine", (module.WebSocketsSansIOProtocol,), {})
    monkeypatch.setattr(module, "WebSocketsSansIOProtocol", mine)
    assert chosen_websocket() is mine


# What stands beside the classes, replaced in their module

FUNCTIONS = ["get_client_addr", "get_local_addr", "get_path_with_query_string", "get_remote_addr", "is_ssl"]
SANSIO = "uvicorn.protocols.websockets.websockets_sansio_impl"


@pytest.mark.parametrize("name", [*FUNCTIONS, "FlowControl", "service_unavailable"])
def test_auto_calls_what_somebody_has_put_beside_the_class(
    core: Any, name: str, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    mine: Any = type("Mine", (FlowControl,), {}) if name == "FlowControl" else lambda subject: None
    monkeypatch.setattr(h11_impl, name, mine)
    assert chosen() is core  # upstream's `auto` would not call it either
    monkeypatch.setattr(httptools_impl, name, mine)
    assert chosen() is HttpToolsProtocol
    reason = f"which would not call httptools_impl.{name}."
    assert [record.getMessage() for record in log.records] == [
        f"HTTP is served by httptools instead of the native core, {reason}"
    ]


@pytest.mark.parametrize("path", ["utils:get_remote_addr", "http.flow_control:FlowControl"])
def test_auto_calls_what_its_module_will_import(core: Any, path: str) -> None:
    """In a process where nothing has imported that module."""
    where, _, name = path.partition(":")
    program = f"""
import sys, uvicorn, uvicorn.protocols.{where} as where
def chosen():
    config = uvicorn.Config("tests.deployment_app:app", log_config=None)
    config.load()
    return config.http_protocol_class
first = chosen()
assert "{httptools_impl.__name__}" not in sys.modules
where.{name} = type("Mine", (where.{name},), {{}}) if isinstance(where.{name}, type) else lambda transport: None
print(first.__name__, chosen().__name__, sys.modules["{httptools_impl.__name__}"].{name} is where.{name})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["NativeProtocol", "HttpToolsProtocol", "True"]


def test_auto_calls_methods_of_the_flow_control_and_the_parser(core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(FlowControl, "drain", nothing)
        assert chosen() is HttpToolsProtocol
    assert chosen() is core
    monkeypatch.setattr(httptools, "HttpRequestParser", lambda protocol: None)
    assert chosen() is HttpToolsProtocol


@pytest.mark.parametrize("name", FUNCTIONS)
def test_auto_calls_what_somebody_has_put_beside_the_websocket_class(
    core: Any, name: str, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    module = importlib.import_module(SANSIO)
    monkeypatch.setattr(module, name, lambda subject: None)
    assert chosen_websocket() is module.WebSocketsSansIOProtocol
    assert [record.getMessage() for record in log.records] == [
        f"WebSocket is not served by the native core, which would not call websockets_sansio_impl.{name}."
    ]


LEGACY_MODULE = "uvicorn.protocols.websockets.websockets_impl"
LIBRARY = [
    ("websockets_sansio_impl.ServerProtocol", SANSIO, ("auto", "websockets-sansio")),
    ("websockets_sansio_impl.ServerPerMessageDeflateFactory", SANSIO, ("auto", "websockets-sansio")),
    ("ServerProtocol.accept", "websockets.server", ("auto", "websockets-sansio")),
    ("WebSocketServerProtocol.process_origin", "websockets.legacy.server", (f"{LEGACY_MODULE}:WebSocketProtocol",)),
    ("wsproto.WSConnection", "wsproto", ("wsproto",)),
    ("wsproto_impl.PerMessageDeflate", "uvicorn.protocols.websockets.wsproto_impl", ("wsproto",)),
    ("wsproto_impl.WebsocketBuffer", "uvicorn.protocols.websockets.wsproto_impl", ("wsproto",)),
    ("wsproto_impl.FrameTooLargeError", "uvicorn.protocols.websockets.wsproto_impl", ("wsproto",)),
    ("wsproto_impl.unquote", "uvicorn.protocols.websockets.wsproto_impl", ("wsproto",)),
    ("websockets_sansio_impl.unquote", SANSIO, ("auto", "websockets-sansio")),
    ("websockets_impl.Server", LEGACY_MODULE, (f"{LEGACY_MODULE}:WebSocketProtocol",)),
    ("websockets_impl.unquote", LEGACY_MODULE, (f"{LEGACY_MODULE}:WebSocketProtocol",)),
]


@pytest.mark.parametrize(("name", "path", "kinds"), LIBRARY)
def test_class_of_the_library_that_nothing_uses_ends_the_start(
    name: str, path: str, kinds: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    module = pytest.importorskip(path)  # which does not mind warnings
    owner, _, attribute = name.rpartition(".")
    for kind in kinds:
        assert never_called(chosen_websocket(ws=kind)) == []
    where = getattr(module, owner) if hasattr(module, owner) else module
    mine: Any = type("Mine", (), {}) if where is module else nothing
    if isinstance(vars(where).get(attribute), staticmethod):
        mine = staticmethod(nothing)
    monkeypatch.setattr(where, attribute, mine, raising=False)
    for kind in kinds:
        with pytest.raises(SkippedOverride, match=rf"never called by the server: {name}\. .*--allow-skipped-overrides"):
            chosen_websocket(ws=kind)
        log.clear()
        assert chosen_websocket(ws=kind, allow_skipped_overrides=True).__module__.startswith("uvicorn.protocols.")
        assert log.messages[-1].endswith(f"never calls: {name} (allow_skipped_overrides).")


def test_function_of_upstreams_that_nothing_uses_ends_the_start(python: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(python.__module__)
    monkeypatch.setattr(module, "unquote", nothing)
    name = f"{module.__name__.rpartition('.')[2]}.unquote"
    with pytest.raises(SkippedOverride, match=rf"never called by the server: {name}\. "):
        Config(respond(), log_config=None, http=python).load()


async def test_flow_control_that_is_not_derived_ends_the_start(python: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(python.__module__)
    monkeypatch.setattr(module, "FlowControl", type("Mine", (), {}))
    name = f"{module.__name__.rpartition('.')[2]}.FlowControl"
    with pytest.raises(SkippedOverride, match=rf"never called by the server: {name}\. "):
        Config(respond(), log_config=None, http=python).load()
    async with serve(python, respond(), allow_skipped_overrides=True) as service:
        assert (await (await service.connect()).ask()).body == b"ok"


@pytest.mark.parametrize("name", ["get_client_addr", "get_path_with_query_string"])
def test_access_log_with_a_format_does_not_skip_what_masks_it(
    python: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    http, websocket = importlib.import_module(python.__module__), importlib.import_module(SANSIO)
    for setting, module, kind in (("http", http, python), ("ws", websocket, websocket.WebSocketsSansIOProtocol)):
        with monkeypatch.context() as patched:
            patched.setattr(module, name, lambda scope: "")
            named = f"{module.__name__.rpartition('.')[2]}.{name}"
            settings: Any = {"log_config": None, setting: kind}
            Config(respond(), **settings).load()
            Config(respond(), access_log_format="%(U)s", access_log=False, **settings).load()
            Config(respond(), access_log_format="%(U)s", allow_skipped_overrides=True, **settings).load()
            with pytest.raises(SkippedOverride, match=rf"never called by the server: {named}\. "):
                Config(respond(), access_log_format="%(U)s", **settings).load()


async def test_access_logger_of_a_program_has_what_masks_its_lines(
    python: Any, access: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Lines()
    logger = logging.Logger("mine", logging.INFO)
    logger.addHandler(mine)
    monkeypatch.setattr(
        importlib.import_module(python.__module__), "get_path_with_query_string", lambda scope: "/masked"
    )
    async with serve(python, respond(), access_log=True) as service:
        client = await service.connect()
        await client.ask(request("GET", "/a?token"))
        (connection,) = service.state.connections
        for assigned in ({"access_logger": logger}, {"access_log": False}, {"access_log": True}):
            for name, value in assigned.items():
                setattr(connection, name, value)
            await client.ask(request("GET", "/a?token"))
    assert [line.split()[-3] for line in access.lines + mine.lines] == ["/masked"] * 3


@pytest.mark.parametrize("lifecycle_path", [None, "/-/"])
async def test_answer_of_a_full_server_may_be_a_program_s(
    python: Any, lifecycle_path: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.import_module(python.__module__), "service_unavailable", respond(b"mine"))
    async with serve(python, respond(), limit_concurrency=1, lifecycle_path=lifecycle_path) as service:
        assert (await (await service.connect()).ask()).body == b"mine"


async def test_no_function_is_called_for_a_log_that_nobody_wants(python: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(importlib.import_module(python.__module__), "get_client_addr", calls.append)
    async with serve(python, respond(), access_log=False) as service:
        assert (await (await service.connect()).ask()).body == b"ok"
    assert calls == []


# Subclasses of the native core


async def test_methods_of_a_native_subclass_hear_of_each_read(core: Any) -> None:
    """Not only of the first, after which a connection is read past its transport."""
    calls: list[Any] = []

    class Noting(core):  # type: ignore[misc]
        def data_received(self, data: bytes) -> None:
            calls.append(len(data))
            super().data_received(data)

        def eof_received(self) -> bool:
            calls.append("eof")
            return bool(super().eof_received())

    async with serve(Noting, respond()) as service:
        client = await service.connect()
        for _ in range(4):
            assert (await client.ask()).body == b"ok"
        client.half_close()
        await service.idle()
    assert calls == [len(GET)] * 4 + ["eof"]


def constructors(base: Any) -> list[Any]:
    """Subclasses with the constructors that programs write, called as the server does."""

    class PassingThrough(base):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.added = 1

    class WithMore(base):  # type: ignore[misc]
        def __init__(self, config: Any, server_state: Any, app_state: Any, _loop: Any = None, added: int = 1) -> None:
            super().__init__(config, server_state, app_state, _loop)
            self.added = added

    class OnlyKeywords(base):  # type: ignore[misc]
        def __init__(self, **kwargs: Any) -> None:
            self.added = 1
            super().__init__(**kwargs)

    return [PassingThrough, WithMore, OnlyKeywords, functools.partial(WithMore, added=1)]


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("kind", ["auto", "native"])
async def test_subclass_may_have_a_constructor_of_its_own(core: Any, kind: str, number: int) -> None:
    async with serve(constructors(AutoHTTPProtocol if kind == "auto" else core)[number], respond()) as service:
        assert (await (await service.connect()).ask()).body == b"ok"
        (connection,) = service.state.connections
        assert connection.added == 1  # type: ignore[attr-defined]
        assert hasattr(connection, "scope")


@pytest.mark.parametrize("kind", ["auto", "native"])
async def test_websocket_subclass_may_have_a_constructor_of_its_own(core: Any, kind: str) -> None:
    from uvicorn.protocols.websockets.native_impl import NativeWebSocketProtocol

    base = AutoWebSocketsProtocol if kind == "auto" else NativeWebSocketProtocol

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await receive()

    upgrade = request(
        *("GET", "/", "connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13"),
        "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==",
    )
    for number in range(4):
        async with serve(core, app, ws=constructors(base)[number]) as service:
            client = await service.connect()
            await client.send(upgrade)
            assert (await client.response()).status == 101
            assert [getattr(one, "added", None) for one in service.state.connections] == [1]
            assert all(one.scope["type"] == "websocket" for one in service.state.connections)  # type: ignore[attr-defined]
            client.close()


def test_native_connection_is_not_made_of_nothing(core: Any) -> None:
    with pytest.raises(TypeError, match="a connection is made of config, server_state, app_state, _loop: 'config'"):
        core()


async def test_attribute_assigned_in_the_constructor_of_the_auto_class_has_its_effect() -> None:
    """Upstream's `auto` is a class in Python."""

    class Assigning(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.ws_protocol_class = None
            self.app = respond(b"mine")

    async with serve(Assigning, respond(), ws="auto") as service:
        client = await service.connect()
        upgrade = request("GET", "/", "connection: upgrade", "upgrade: websocket")
        assert (await client.ask(upgrade)).body == b"mine"


@pytest.mark.parametrize("name", ["app", "transport", "scope", "client", "scheme", "ws_protocol_class", "access_log"])
def test_attributes_of_a_native_subclass_cannot_be_assigned(core: Any, name: str) -> None:
    """Assigned without effect they would be a trap."""
    from uvicorn.serving.state import ServerState

    async def make() -> Any:
        config = make_config(respond(), core)
        return type("Mine", (core,), {})(config=config, server_state=ServerState(), app_state={})

    connection = asyncio.run(make())
    getattr(connection, name)
    with pytest.raises(AttributeError):
        setattr(connection, name, None)


async def test_native_connection_says_what_it_is(core: Any) -> None:
    async with serve(core, respond(), access_log=True) as service:
        await (await service.connect()).ask()
        (connection,) = service.state.connections
        known: Any = connection
        assert (known.scheme, known.app, known.access_log) == ("http", service.config.loaded_app, True)
        assert known.access_logger is logging.getLogger("uvicorn.access")


def test_author_of_a_native_subclass_is_told_of_more(core: Any) -> None:
    from uvicorn.protocols.websockets.native_impl import NativeWebSocketProtocol

    http = ["send_400_response", "on_response_complete", "timeout_keep_alive_handler", "on_url", "_should_upgrade"]
    websocket = [*LEGACY, *FRAME_METHODS, "run_asgi", "receive", "send", "schedule_ping", "keepalive_timeout"]
    for base, names in ((core, http), (NativeWebSocketProtocol, websocket)):
        mine = type("Mine", (base,), dict.fromkeys(names, lambda self: None))
        assert never_called(mine) == [f"Mine.{name}" for name in names]


# What stands beside the classes


@pytest.mark.parametrize("module", [h11_impl, httptools_impl], ids=["h11", "httptools"])
def test_names_of_upstream_s_modules_are_there(module: Any) -> None:
    from urllib.parse import unquote

    from uvicorn.protocols import utils
    from uvicorn.protocols.http import flow_control

    assert module.unquote is unquote
    for name in ("get_local_addr", "get_remote_addr", "is_ssl", "get_client_addr", "get_path_with_query_string"):
        assert getattr(module, name) is getattr(utils, name)
    for name in ("HIGH_WATER_LIMIT", "FlowControl", "service_unavailable", "CLOSE_HEADER"):
        assert getattr(module, name) is getattr(flow_control, name)
    assert issubclass(module.RequestResponseCycle, RequestResponseCycle)
    assert module.RequestResponseCycle.__module__ == module.__name__


def test_values_beside_the_classes_are_of_upstream_s_types() -> None:
    assert h11_impl.STATUS_PHRASES[200] == b"OK"
    assert h11_impl.STATUS_PHRASES[299] == b""
    assert httptools_impl.STATUS_LINE[200] == b"HTTP/1.1 200 OK\r\n"
    assert httptools_impl.HEADER_RE.search(b"a b")
    assert httptools_impl.HEADER_VALUE_RE.search(b"a\nb")


@pytest.mark.parametrize("name", ["websockets_impl", "websockets_sansio_impl", "wsproto_impl"])
def test_error_of_websockets_is_where_upstream_has_it(name: str) -> None:
    from uvicorn.protocols.utils import ClientDisconnected

    module = importlib.import_module(f"uvicorn.protocols.websockets.{name}")
    assert module.ClientDisconnected is ClientDisconnected


def test_names_of_the_supervisor_are_where_upstream_has_them() -> None:
    from uvicorn._subprocess import get_subprocess
    from uvicorn.server import Server
    from uvicorn.supervisors import multiprocess

    assert multiprocess.get_subprocess is get_subprocess
    assert multiprocess.Server is Server


def test_what_workers_are_made_of_can_be_replaced_in_the_module_of_the_supervisor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from uvicorn.server import Server
    from uvicorn.supervisors import Multiprocess, multiprocess

    class Own(Server):
        pass

    made: list[tuple[object, ...]] = []
    original = multiprocess.get_subprocess

    def get_subprocess(*args: Any, **kwargs: Any) -> Any:
        made.append(args)
        return original(*args, **kwargs)

    monkeypatch.setattr(multiprocess, "get_subprocess", get_subprocess)
    monkeypatch.setattr(multiprocess, "Server", Own)
    config = Config("app:app", workers=2)
    supervisor = Multiprocess(config, [])
    worker = multiprocess.Process(config, [])
    assert worker.process.pid is None
    assert made == [(config, worker.target, [])]
    assert type(worker.server) is Own
    of_pool = supervisor._pool._make()
    assert type(of_pool) is multiprocess.Process
    assert of_pool.process.pid is None
    assert len(made) == 2
