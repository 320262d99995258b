"""What public programs do with the protocol classes: each in a few lines, as it is found in several of them."""

# mypy: disable-error-code="attr-defined,assignment,valid-type,misc,has-type,method-assign"

from __future__ import annotations

import asyncio
import dataclasses
import functools
import importlib
import logging
import sys
from collections.abc import Callable
from typing import Any

import uvicorn

from . import harness
from .harness import GET, UPGRADE, address_of, served, started

POST = b"POST /body HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\nhello"
H2C = (
    b"POST /h2c HTTP/1.1\r\nhost: test\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\n"
    b"http2-settings: AAMA\r\ncontent-length: 5\r\n\r\nhello"
)

FOUND: dict[str, harness.Case] = {}


def of(*names: str) -> Callable[[Callable[[str], Any]], Callable[[str], Any]]:
    """Have a case run for each of these implementations."""

    def add(case: Callable[[str], Any]) -> Callable[[str], Any]:
        for name in names:
            FOUND[f"{case.__name__.replace('_', ' ')} ({name})"] = functools.partial(case, name)
        return case

    return add


both = of("httptools", "h11")
everywhere = of("auto", "httptools", "h11")


def module(name: str) -> Any:
    """The module of an implementation; that of `auto` is httptools'."""
    return importlib.import_module(f"uvicorn.protocols.http.{'h11' if name == 'h11' else 'httptools'}_impl")


def protocol(name: str) -> Any:
    """The class of an implementation."""
    return module(name).H11Protocol if name == "h11" else module(name).HttpToolsProtocol


class Reading(harness.App):
    """An application that reads each body, and notes these keys of each scope."""

    def __init__(self, *keys: str) -> None:
        super().__init__()
        self.keys = keys

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await super().__call__(scope, receive, send)
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message.get("body", b"")), message.get("more_body", False)
        known = {key: scope.get(key) for key in self.keys}
        self.events.append(f"{scope['path']} {size} {known}")
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


def peer(transport: Any) -> str:
    """What a program takes from a transport: certificates, mostly."""
    return str(transport.get_extra_info("peername")[0])


# The constructor of a request, replaced: by programs that look for the client's certificate


@everywhere
def constructor_of_cycles_around_the_original(name: str) -> Any:
    cls = module(name).RequestResponseCycle
    original = cls.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.scope["peer"] = peer(kwargs.get("transport") or self.transport)

    cls.__init__ = __init__
    return served(Reading("peer"), GET % b"", POST, GET % b"", http=name)


@of("auto", "httptools")
def constructor_of_cycles_with_upstream_s_parameters(name: str) -> Any:
    cls = module(name).RequestResponseCycle
    original = cls.__init__

    def __init__(self: Any, scope: Any, transport: Any, *args: Any, **kwargs: Any) -> None:
        scope["peer"] = peer(transport)
        original(self, scope, transport, *args, **kwargs)

    cls.__init__ = __init__
    return served(Reading("peer"), GET % b"", POST, GET % b"", http=name)


@of("h11")
def constructor_of_cycles_with_upstream_s_parameters_and_conn(name: str) -> Any:
    cls = module(name).RequestResponseCycle
    original = cls.__init__

    def __init__(self: Any, scope: Any, conn: Any, transport: Any, *args: Any, **kwargs: Any) -> None:
        scope["peer"] = f"{peer(transport)} {type(conn.their_state).__name__}"
        original(self, scope, conn, transport, *args, **kwargs)

    cls.__init__ = __init__
    return served(Reading("peer"), GET % b"", POST, GET % b"", http=name)


@both
def arguments_of_cycles(name: str) -> Any:
    cls = module(name).RequestResponseCycle
    original = cls.__init__
    seen: list[Any] = []

    def __init__(self: Any, scope: Any, **kwargs: Any) -> None:
        seen.append(sorted(kwargs))
        seen.append([kwargs["logger"].name, kwargs["access_logger"].name, kwargs["access_log"]])
        seen.append([name for name, _ in kwargs["default_headers"]])
        original(self, scope=scope, **kwargs)

    cls.__init__ = __init__
    return {**served(Reading(), GET % b"", http=name), "seen": seen}


@both
def class_of_cycles_replaced_by_a_subclass(name: str) -> Any:
    class Cycle(module(name).RequestResponseCycle):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.scope["mine"] = 1

    module(name).RequestResponseCycle = Cycle
    return served(Reading("mine"), GET % b"", POST, http=name)


# What a subclass assigns


@everywhere
def state_of_scopes_assigned_when_connected(name: str) -> Any:
    class Identified(protocol(name)):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.app_state = {**self.app_state, "identity": peer(transport)}
            self.client = ("somebody", 0)

    return served(Reading("state", "client"), GET % b"", POST, http=Identified)


@both
def root_path_assigned_when_connected(name: str) -> Any:
    class Mounted(protocol(name)):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.root_path = "/mounted"

    return served(Reading("root_path", "path", "raw_path"), GET % b"a", GET % b"a", POST, http=Mounted)


@everywhere
def scope_as_a_property_that_adds_to_it(name: str) -> Any:
    class Extended:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._certificate: Any = None
            self._scope: Any = None
            super().__init__(*args, **kwargs)

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._certificate = peer(transport)

        @property
        def scope(self) -> Any:
            return self._scope

        @scope.setter
        def scope(self, value: Any) -> None:
            if value is not None and self._certificate is not None:
                value.setdefault("extensions", {})["certificate"] = self._certificate
            self._scope = value

    mine = type("Mine", (Extended, protocol(name)), {})
    return served(Reading("extensions"), GET % b"", POST, GET % b"again", http=mine)


@both
def attributes_of_a_connection(name: str) -> Any:
    server = uvicorn.Server(uvicorn.Config(harness.App(), port=0, http=name))
    names = "access_log access_logger app app_state asgi_version client config connections cycle flow headers "
    names += "limit_concurrency logger loop root_path scheme scope server server_state tasks timeout_keep_alive "
    names += "timeout_keep_alive_task transport ws_protocol_class "
    names += "conn" if name == "h11" else "expect_100_continue parser pipeline"

    async def main() -> list[str]:
        task = asyncio.ensure_future(server.serve())
        await started(server, task)
        _, writer = await asyncio.open_connection(*address_of(server)[:2])
        while not server.server_state.connections:
            await asyncio.sleep(0.005)
        (connection,) = server.server_state.connections
        found = [each for each in names.split() if hasattr(connection, each)]
        writer.close()
        server.should_exit = True
        await task
        return found

    return asyncio.run(main())


# What a subclass overrides


@both
def upgrade_that_a_program_refuses(name: str) -> Any:
    class Plain(protocol(name)):
        def _should_upgrade(self) -> bool:
            return False

    return served(Reading(), GET % b"", UPGRADE, http=Plain, log_level="error")


@both
def websocket_class_that_a_program_denies(name: str) -> Any:
    class Plain(protocol(name)):
        def _should_upgrade_to_ws(self) -> bool:
            return False

        def _unsupported_upgrade_warning(self) -> None:
            self.logger.error("no websockets: %s", self._get_upgrade())

    return served(Reading(), GET % b"", UPGRADE, http=Plain)


@both
def keep_alive_unset_by_a_program(name: str) -> Any:
    called: list[int] = []

    class Noting(protocol(name)):
        def _unset_keepalive_if_required(self) -> None:
            called.append(1)
            super()._unset_keepalive_if_required()

        def connection_lost(self, exc: Any) -> None:
            super().connection_lost(exc)
            self._unset_keepalive_if_required()

    return {**served(Reading(), GET % b"", POST, http=Noting), "called": len(called) > 2}


@of("httptools")
def start_of_each_application_noted(name: str) -> Any:
    seen: list[Any] = []

    class Noting(protocol(name)):
        def _start_asgi_task(self, cycle: Any, app: Any) -> None:
            seen.append([cycle.scope["path"], callable(app)])
            super()._start_asgi_task(cycle, app)

    return {**served(Reading(), GET % b"", POST, http=Noting), "seen": seen}


def wanted(headers: Any) -> Any:
    """The protocol that these fields ask for."""
    options = [token.strip().lower() for key, value in headers if key == b"connection" for token in value.split(b",")]
    names = [value.lower() for key, value in headers if key == b"upgrade"]
    return names[0] if b"upgrade" in options and names else None


@of("h11")
def upgrade_taken_out_of_the_fields(name: str) -> Any:
    class Tolerant(protocol(name)):
        def _should_upgrade(self) -> bool:
            if wanted(self.headers) == b"websocket":
                return bool(self._should_upgrade_to_ws())
            self.headers[:] = [field for field in self.headers if field[0] not in (b"upgrade", b"http2-settings")]
            return False

    return served(Reading("headers"), GET % b"", H2C, UPGRADE, http=Tolerant, log_level="error")


@of("httptools")
def parser_of_a_program_that_ignores_upgrades(name: str) -> Any:
    import httptools

    class Tolerant(protocol(name)):
        def _should_upgrade(self) -> bool:
            return wanted(self.headers) == b"websocket" and bool(self._should_upgrade_to_ws())

        def _is_ignored(self) -> bool:
            return bool(self.parser.should_upgrade()) and wanted(self.headers) not in (None, b"websocket")

        def on_headers_complete(self) -> None:
            if not self._is_ignored():
                super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            if not self._is_ignored():
                super().on_body(body)

        def on_message_complete(self) -> None:
            if not self._is_ignored():
                super().on_message_complete()

        def data_received(self, data: bytes) -> None:
            self._unset_keepalive_if_required()
            while True:
                try:
                    self.parser.feed_data(data)
                except httptools.HttpParserError:
                    self.send_400_response("Invalid HTTP request received.")
                except httptools.HttpParserUpgrade as exc:
                    if self._should_upgrade():
                        self.handle_websocket_upgrade()
                        return
                    kept = [field for field in self.headers if field[0] not in (b"upgrade", b"connection")]
                    head = b"%s %s HTTP/1.1\r\n" % (self.parser.get_method(), self.url)
                    head += b"".join(b"%s: %s\r\n" % field for field in kept) + b"\r\n"
                    self.parser = httptools.HttpRequestParser(self)
                    self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                    data = head + data[exc.args[0] :]
                    continue
                return

    return served(Reading(), GET % b"", H2C, POST, UPGRADE, http=Tolerant, log_level="error")


@both
def end_of_a_connection_stamped_into_the_scope(name: str) -> Any:
    seen: list[Any] = []

    class Stamping(protocol(name)):
        def connection_lost(self, exc: Any) -> None:
            super().connection_lost(exc)
            for cycle in [self.cycle, *(cycle for cycle, _ in getattr(self, "pipeline", ()))]:
                if cycle is not None and not cycle.response_complete:
                    cycle.scope["state"]["lost"] = True

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"some", "more_body": True})
        while "lost" not in scope["state"]:
            await send({"type": "http.response.body", "body": b"more", "more_body": True})
            await asyncio.sleep(0.005)
        seen.append("lost")

    server = uvicorn.Server(uvicorn.Config(app, port=0, http=Stamping, lifespan="off"))

    async def main() -> None:
        task = asyncio.ensure_future(server.serve())
        await started(server, task)
        reader, writer = await asyncio.open_connection(*address_of(server)[:2])
        writer.write(GET % b"")
        await reader.readuntil(b"some")
        writer.close()
        while not seen:
            await asyncio.sleep(0.005)
        server.should_exit = True
        await task

    asyncio.run(asyncio.wait_for(main(), 20))
    return {"seen": seen}


@both
def invalid_requests_logged_with_what_came(name: str) -> Any:
    cls = protocol(name)
    received, refuse = cls.data_received, cls.send_400_response

    def data_received(self: Any, data: bytes) -> None:
        self._last = data
        received(self, data)

    def send_400_response(self: Any, msg: str) -> None:
        logging.getLogger("uvicorn.error").error("%s %s: %r", msg, peer(self.transport), self._last)
        refuse(self, msg)

    cls.data_received, cls.send_400_response = data_received, send_400_response
    return served(Reading(), b"\x16\x03\x01 no request\r\n\r\n", http=name)["events"]


@both
def protocol_made_by_a_function(name: str) -> Any:
    class Named(protocol(name)):
        def __init__(self, *args: Any, label: str = "", **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.app_state = {"label": label}

    return served(Reading("state"), GET % b"", http=functools.partial(Named, label="mine"))


# What stands beside the classes, replaced in their module


def put_functions(where: Any) -> list[str]:
    """Replace the functions of a module that it calls for each connection or line; return where they note a call."""
    seen: list[str] = []
    results = {"get_client_addr": "somebody", "get_path_with_query_string": "/masked", "is_ssl": True}

    def replacement(name: str, result: Any) -> Any:
        def call(subject: Any) -> Any:
            seen.append(name)
            return result

        return call

    for name, result in {**results, "get_local_addr": ("here", 1), "get_remote_addr": ("there", 2)}.items():
        setattr(where, name, replacement(name, result))
    return seen


@everywhere
def functions_replaced_in_the_module(name: str) -> Any:
    seen = put_functions(module(name))
    app = Reading("client", "server", "scheme")
    return {**served(app, GET % b"a?token=SECRET", GET % b"b?token=SECRET", http=name), "seen": sorted(seen)}


@everywhere
def path_of_the_access_log_replaced_without_an_access_log(name: str) -> Any:
    seen = put_functions(module(name))
    return {**served(None, http=name, access_log=False), "seen": sorted(seen)}


@everywhere
def functions_replaced_before_the_module_is_imported(name: str) -> Any:
    path = module(name).__name__
    del sys.modules[path]
    seen = put_functions(importlib.import_module("uvicorn.protocols.utils"))
    importlib.import_module(path)
    return {**served(Reading("client", "server"), http=path + ":" + protocol(name).__name__), "seen": sorted(set(seen))}


@everywhere
def path_of_the_access_log_that_fails(name: str) -> Any:
    def fails(scope: Any) -> Any:
        raise ValueError

    module(name).get_path_with_query_string = fails
    return served(None, GET % b"", http=name)


@everywhere
def flow_control_replaced_by_a_subclass(name: str) -> Any:
    seen: list[str] = []

    class Flow(module(name).FlowControl):
        def __init__(self, transport: Any) -> None:
            self.noted = True
            seen.append("made")
            super().__init__(transport)

        def resume_writing(self) -> None:
            seen.append("resumed")
            super().resume_writing()

    module(name).FlowControl = Flow
    return {**served(http=name), "seen": seen}


@everywhere
def flow_control_patched(name: str) -> Any:
    seen: list[str] = []
    cls = module(name).FlowControl
    original = cls.__init__

    def __init__(self: Any, transport: Any) -> None:
        seen.append("made")
        original(self, transport)

    cls.__init__ = __init__
    return {**served(http=name), "seen": seen}


@everywhere
def answer_of_a_full_server_replaced(name: str) -> Any:
    async def full(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 503, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"mine"})

    module(name).service_unavailable = full
    return served(http=name, limit_concurrency=1)


@of("auto", "httptools")
def parser_replaced_by_a_function(name: str) -> Any:
    library = importlib.import_module("httptools")
    original = library.HttpRequestParser
    seen: list[str] = []

    def make(protocol: Any) -> Any:
        seen.append("made")
        return original(protocol)

    library.HttpRequestParser = make
    if name == "httptools":
        del sys.modules["uvicorn.protocols.http.httptools_impl"]
    return {**served(Reading(), GET % b"a", POST, GET % b"b", http=name), "made": bool(seen)}


@of("h11")
def connection_of_h11_replaced_by_a_function(name: str) -> Any:
    library = importlib.import_module("h11")
    original = library.Connection
    seen: list[str] = []

    def make(*args: Any, **kwargs: Any) -> Any:
        seen.append("made")
        return original(*args, **kwargs)

    library.Connection = make
    del sys.modules["uvicorn.protocols.http.h11_impl"]
    return {**served(Reading(), GET % b"a", POST, GET % b"b", http=name), "made": bool(seen)}


# WebSockets

sessions = of("websockets-sansio", "wsproto")


def session_module(name: str) -> Any:
    """The module of an implementation; that of `auto` is the first."""
    path = "wsproto_impl" if name == "wsproto" else "websockets_sansio_impl"
    return importlib.import_module(f"uvicorn.protocols.websockets.{path}")


def session(name: str) -> Any:
    """The WebSocket class of an implementation."""
    return getattr(session_module(name), "WSProtocol" if name == "wsproto" else "WebSocketsSansIOProtocol")


class Echo:
    """An application that says what it is told, and notes these keys of each scope."""

    def __init__(self, *keys: str) -> None:
        self.events: list[Any] = []
        self.keys = keys

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.events.append({key: scope.get(key) for key in ("path", *self.keys)})
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"]})
        self.events.append(message["code"])


TEXT = b"\x81\x82\0\0\0\0hi"
CLOSE = b"\x88\x82\0\0\0\0\x03\xe8"


async def conversation(server: Any, sent: tuple[bytes, ...]) -> list[str]:
    """What a client is answered that opens a WebSocket, and sends each of these when it is answered."""
    task = asyncio.ensure_future(server.serve())
    await started(server, task)
    reader, writer = await asyncio.open_connection(*address_of(server)[:2])
    writer.write(UPGRADE)
    answers = [(await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()]
    if answers == ["101"]:
        for data in sent:
            writer.write(data)
            answers.append(repr(await reader.read(100)))
    writer.close()
    server.should_exit = True
    await task
    return answers


def opened(mine: Any, app: Any = None, sent: tuple[bytes, ...] = (TEXT, CLOSE), **settings: Any) -> dict[str, Any]:
    """What comes of a WebSocket of this class."""
    app = Echo() if app is None else app
    settings = {"lifespan": "off", "log_level": "error", "ws_per_message_deflate": False, **settings}
    config = uvicorn.Config(app, port=0, ws=mine, **settings)
    answers = asyncio.run(asyncio.wait_for(conversation(uvicorn.Server(config), sent), 20))
    return {"answers": answers, "events": getattr(app, "events", None)}


@sessions
def application_of_a_session_assigned_when_connected(name: str) -> Any:
    class Verified(session(name)):
        def connection_made(self, transport: Any) -> None:
            app = self.app

            async def verified(scope: Any, receive: Any, send: Any) -> None:
                await app({**scope, "peer": peer(transport)}, receive, send)

            self.app = verified
            super().connection_made(transport)
            self.client = ("somebody", 0)

    return opened(Verified, Echo("peer", "client"))


@sessions
def handshake_marked_by_a_program(name: str) -> Any:
    seen: list[Any] = []

    class Marking(session(name)):
        def handle_connect(self, event: Any) -> None:
            seen.append(event.path if name == "websockets-sansio" else [event.target, event.host])
            super().handle_connect(event)
            if hasattr(self, "scope"):
                self.scope["mark"] = 1

    return {**opened(Marking, Echo("mark")), "seen": seen}


@sessions
def send_that_looks_at_the_transport(name: str) -> Any:
    from uvicorn.protocols.utils import ClientDisconnected

    class Careful(session(name)):
        async def send(self, message: Any) -> None:
            if not self.writable.is_set():
                await self.writable.wait()
            if self.transport.is_closing() or self.close_sent:
                raise ClientDisconnected
            await super().send(message)

    return opened(Careful)


@sessions
def writing_paused_by_a_program(name: str) -> Any:
    seen: list[str] = []

    class Bounded(session(name)):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.set_write_buffer_limits(high=1)

        def pause_writing(self) -> None:
            seen.append("paused")
            self.writable.clear()

        def resume_writing(self) -> None:
            self.writable.set()

        def connection_lost(self, exc: Any) -> None:
            self.writable.set()
            super().connection_lost(exc)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await receive()
        transport = receive.__self__.transport
        receive.__self__.pause_writing()
        asyncio.get_running_loop().call_soon(receive.__self__.resume_writing)
        await send({"type": "websocket.send", "text": "hi"})
        seen.append(str(transport.is_closing()))
        await receive()

    return {**opened(Bounded, app), "seen": seen}


@sessions
def attributes_of_a_session(name: str) -> Any:
    seen: list[Any] = []

    class Reading(session(name)):
        def connection_lost(self, exc: Any) -> None:
            seen.append([self.client[0], self.server[0], self.scheme, self.root_path, self.asgi_version])
            seen.append([self.handshake_complete, self in self.connections, type(self.tasks).__name__])
            seen.append([field for field, _ in self.default_headers])
            super().connection_lost(exc)

    return {**opened(Reading), "seen": seen}


@sessions
def end_of_the_application_noted(name: str) -> Any:
    seen: list[Any] = []

    class Noting(session(name)):
        def on_task_complete(self, task: Any) -> None:
            seen.append(task.done())
            super().on_task_complete(task)

        def send_500_response(self) -> None:
            seen.append(500)
            super().send_500_response()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError

    failed = opened(Noting, app)["answers"]
    return {**opened(Noting), "failed": failed, "seen": seen}


@sessions
def methods_called_for_what_a_client_sends(name: str) -> Any:
    seen: list[str] = []
    cls = session(name)
    names = "handle_text handle_bytes handle_cont handle_message handle_ping handle_pong handle_close"
    names += " send_receive_event_to_app handle_parser_exception"

    def noting(method: str) -> Any:
        def call(self: Any, *args: Any) -> None:
            seen.append(f"{method} {len(args)}")
            getattr(super(mine, self), method)(*args)

        return call

    mine = type("Mine", (cls,), {each: noting(each) for each in names.split() if hasattr(cls, each)})
    fragments = (b"\x01\x81\0\0\0\0a\x89\x81\0\0\0\0p", b"\x80\x81\0\0\0\0b\x8a\x80\0\0\0\0")
    answers = opened(mine, sent=(*fragments, TEXT, CLOSE))["answers"]
    return {"answers": answers, "mistake": opened(mine, sent=(b"\x83\x80\0\0\0\0",))["events"], "seen": seen}


def of_messages(name: str, change: Any) -> Any:
    """A class of a session whose messages pass a function; those for which it has nothing are dropped."""
    if name == "wsproto":

        class Changing(session(name)):
            def handle_message(self, event: Any) -> None:
                if (data := change(event.data)) is not None:
                    super().handle_message(dataclasses.replace(event, data=data))

        return Changing

    class ChangingToo(session(name)):
        def handle_text(self, event: Any) -> None:
            if (data := change(bytes(event.data).decode())) is not None:
                event.data = data.encode()
                super().handle_text(event)

    return ChangingToo


@sessions
def messages_changed_by_a_program(name: str) -> Any:
    return opened(of_messages(name, str.upper))


@sessions
def messages_dropped_by_a_program(name: str) -> Any:
    changing = of_messages(name, lambda text: None if text == "hi" else text)
    return opened(changing, sent=(TEXT + b"\x81\x81\0\0\0\0a", CLOSE))


@sessions
def messages_put_by_a_program(name: str) -> Any:
    def put(self: Any, event: Any) -> None:
        self.queue.put_nowait({"type": "websocket.receive", "text": "put"})

    method = "handle_message" if name == "wsproto" else "handle_text"
    return opened(type("Putting", (session(name),), {method: put}), sent=(TEXT, CLOSE))


@sessions
def close_frame_that_a_program_notes(name: str) -> Any:
    seen: list[Any] = []

    class Noting(session(name)):
        def handle_close(self, event: Any) -> None:
            received = event if name == "wsproto" else self.conn.close_rcvd
            seen.append([int(received.code), received.reason, self.queue.qsize()])
            super().handle_close(event)

    return {**opened(Noting), "seen": seen}


@sessions
def events_of_the_library_taken_by_a_program(name: str) -> Any:
    seen: list[str] = []

    class Taking(session(name)):
        def handle_events(self) -> None:
            for event in self.conn.events() if name == "wsproto" else self.conn.events_received():
                kind = event.opcode.name if hasattr(event, "opcode") else type(event).__name__
                seen.append(kind)
                if kind == "Request":
                    self.handle_connect(event)
                elif kind == "TEXT":
                    self.handle_text(event)
                elif kind == "TextMessage":
                    self.handle_message(event)
                else:
                    self.handle_close(event)

    return {**opened(Taking), "seen": seen}


@of("auto", "websockets-sansio", "wsproto")
def functions_replaced_in_the_module_of_a_session(name: str) -> Any:
    seen = put_functions(session_module(name))
    outcome = opened(name, Echo("client", "server", "scheme"), log_level="info")
    return {**outcome, "seen": sorted(set(seen))}


@sessions
def pings_scheduled_by_a_program(name: str) -> Any:
    seen: list[float] = []

    class Scheduling(session(name)):
        def schedule_ping(self) -> None:
            seen.append(self.ping_interval)
            super().schedule_ping()

    return {**opened(Scheduling, ws_ping_interval=100.0), "seen": seen}


def cases() -> dict[str, harness.Case]:
    """All of them."""
    return dict(FOUND)
