"""Each public class and function, made and used as programs do: derived from, replaced, given to others."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import inspect
import logging
import pickle
import threading
from typing import Any

import uvicorn

from . import harness
from .harness import App, served

HTTP = "uvicorn.protocols.http"
WEBSOCKETS = "uvicorn.protocols.websockets"

CLASSES = {
    "Config": "uvicorn.config:Config",
    "Server": "uvicorn.server:Server",
    "ServerState": "uvicorn.server:ServerState",
    "LifespanOn": "uvicorn.lifespan.on:LifespanOn",
    "LifespanOff": "uvicorn.lifespan.off:LifespanOff",
    "AutoHTTPProtocol": f"{HTTP}.auto:AutoHTTPProtocol",
    "H11Protocol": f"{HTTP}.h11_impl:H11Protocol",
    "HttpToolsProtocol": f"{HTTP}.httptools_impl:HttpToolsProtocol",
    "h11 cycle": f"{HTTP}.h11_impl:RequestResponseCycle",
    "httptools cycle": f"{HTTP}.httptools_impl:RequestResponseCycle",
    "FlowControl": f"{HTTP}.flow_control:FlowControl",
    "AutoWebSocketsProtocol": f"{WEBSOCKETS}.auto:AutoWebSocketsProtocol",
    "WSProtocol": f"{WEBSOCKETS}.wsproto_impl:WSProtocol",
    "WebSocketsSansIOProtocol": f"{WEBSOCKETS}.websockets_sansio_impl:WebSocketsSansIOProtocol",
    "ProxyHeadersMiddleware": "uvicorn.middleware.proxy_headers:ProxyHeadersMiddleware",
    "WSGIMiddleware": "uvicorn.middleware.wsgi:WSGIMiddleware",
    "ASGI2Middleware": "uvicorn.middleware.asgi2:ASGI2Middleware",
    "MessageLoggerMiddleware": "uvicorn.middleware.message_logger:MessageLoggerMiddleware",
    "AccessFormatter": "uvicorn.logging:AccessFormatter",
    "DefaultFormatter": "uvicorn.logging:DefaultFormatter",
    "ColourizedFormatter": "uvicorn.logging:ColourizedFormatter",
    "Multiprocess": "uvicorn.supervisors.multiprocess:Multiprocess",
    "Process": "uvicorn.supervisors.multiprocess:Process",
    "BaseReload": "uvicorn.supervisors.basereload:BaseReload",
    "StatReload": "uvicorn.supervisors.statreload:StatReload",
    "WatchFilesReload": "uvicorn.supervisors.watchfilesreload:WatchFilesReload",
    "FileFilter": "uvicorn.supervisors.watchfilesreload:FileFilter",
    "ImportFromStringError": "uvicorn.importer:ImportFromStringError",
    "ClientDisconnected": "uvicorn.protocols.utils:ClientDisconnected",
}

IDENTITIES = [
    ("uvicorn:Config", "uvicorn.config:Config"),
    ("uvicorn:Server", "uvicorn.server:Server"),
    ("uvicorn.main:Config", "uvicorn.config:Config"),
    ("uvicorn.main:Server", "uvicorn.server:Server"),
    ("uvicorn.server:Config", "uvicorn.config:Config"),
    ("uvicorn.supervisors.multiprocess:Server", "uvicorn.server:Server"),
    ("uvicorn.supervisors.multiprocess:Config", "uvicorn.config:Config"),
    ("uvicorn.supervisors:Multiprocess", "uvicorn.supervisors.multiprocess:Multiprocess"),
    ("uvicorn.supervisors:ChangeReload", "uvicorn.supervisors.watchfilesreload:WatchFilesReload"),
    ("uvicorn.main:ChangeReload", "uvicorn.supervisors:ChangeReload"),
    ("uvicorn.main:Multiprocess", "uvicorn.supervisors:Multiprocess"),
    ("uvicorn.config:LOGGING_CONFIG", "uvicorn.main:LOGGING_CONFIG"),
    (f"{HTTP}.auto:AutoHTTPProtocol", f"{HTTP}.httptools_impl:HttpToolsProtocol"),
    (f"{HTTP}.h11_impl:RequestResponseCycle", f"{HTTP}.httptools_impl:RequestResponseCycle"),
    (f"{HTTP}.h11_impl:FlowControl", f"{HTTP}.flow_control:FlowControl"),
    (f"{HTTP}.httptools_impl:FlowControl", f"{HTTP}.flow_control:FlowControl"),
    (f"{HTTP}.h11_impl:service_unavailable", f"{HTTP}.flow_control:service_unavailable"),
    (f"{WEBSOCKETS}.auto:AutoWebSocketsProtocol", f"{WEBSOCKETS}.websockets_sansio_impl:WebSocketsSansIOProtocol"),
    ("uvicorn.server:ServerState", "uvicorn.main:ServerState"),
    ("uvicorn.config:ProxyHeadersMiddleware", "uvicorn.middleware.proxy_headers:ProxyHeadersMiddleware"),
    ("uvicorn.config:WSGIMiddleware", "uvicorn.middleware.wsgi:WSGIMiddleware"),
    ("uvicorn.config:ASGI2Middleware", "uvicorn.middleware.asgi2:ASGI2Middleware"),
    ("uvicorn.config:ImportFromStringError", "uvicorn.importer:ImportFromStringError"),
]


def named(path: str) -> Any:
    """What an import string names."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def identity(one: str, other: str) -> bool:
    """Whether both names are of the same object."""
    return named(one) is named(other)


def arguments_of(name: str, config: Any) -> tuple[Any, ...]:
    """What a class is made of."""
    if name in ("Config",):
        return (App(),)
    if name in ("Server", "LifespanOn", "LifespanOff", "FileFilter"):
        return (config,)
    if name in ("ServerState", "AccessFormatter", "DefaultFormatter", "ColourizedFormatter"):
        return ()
    if "Protocol" in name:
        return (config, named(CLASSES["ServerState"])(), {}, asyncio.get_event_loop())
    if "Middleware" in name:
        return (App(),)
    if name in ("Multiprocess", "Process"):
        return (config, [])
    if "Reload" in name:
        return (config, print, [])
    return ("a text",)


def passing_through(cls: type) -> type:
    """A subclass whose constructor hands its arguments on, and that has an attribute."""

    class PassingThrough(cls):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.added = True

    return PassingThrough


def with_upstreams_parameters(cls: type) -> type:
    """The same, with the parameters of the class by their names."""
    names = [name for name in inspect.signature(cls).parameters if name not in ("args", "kwargs")]
    known = names if cls.__name__ != "Config" else ["app", "host", "port"]

    class Named(cls):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            given = dict(zip(known, args, strict=False)) | kwargs
            super().__init__(**given)
            self.added = True

    return Named


def made(name: str, derive: Any) -> dict[str, Any]:
    """A class, or one derived from it, made of what it is made of."""
    asyncio.set_event_loop(asyncio.new_event_loop())
    config = uvicorn.Config(App(), log_config=None, reload_delay=0.01)
    config.load()
    cls = named(CLASSES[name])
    instance = derive(cls)(*arguments_of(name, config))
    return {"is": isinstance(instance, cls), "added": getattr(instance, "added", None)}


def served_by(setting: str, path: str, *requests: bytes, **settings: Any) -> dict[str, Any]:
    """A subclass of a protocol class, whose attributes are assigned, in use."""
    notes: list[str] = []

    class Derived(named(path)):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.added = 1
            notes.append("made")

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            notes.append("connected")

        def data_received(self, data: bytes) -> None:
            notes.append("data")
            super().data_received(data)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            notes.append("lost")

    outcome = served(None, *requests, **{setting: Derived, **settings})
    return {**outcome, "notes": sorted(set(notes))}


def assigned(path: str, attribute: str, value: Any, *requests: bytes, **settings: Any) -> dict[str, Any]:
    """An attribute of a protocol assigned in the constructor of a subclass."""

    class Assigning(named(path)):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            setattr(self, attribute, value)

    return served(None, *requests, http=Assigning, **settings)


async def other(scope: Any, receive: Any, send: Any) -> None:
    """Another application, to be assigned."""
    await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def connections(**settings: Any) -> dict[str, Any]:
    """What `server_state.connections` has while a request is served, and a WebSocket is open."""
    found: dict[str, Any] = {}
    server: Any = None

    class Looking(App):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] in ("http", "websocket"):
                (connection,) = server.server_state.connections
                names = ("scope", "transport", "app", "config", "loop", "shutdown")
                found[scope["type"]] = [name for name in names if hasattr(connection, name)]
                found[f"{scope['type']} path"] = connection.scope["path"]
                found["tasks"] = len(server.server_state.tasks) > 0
            await super().__call__(scope, receive, send)

    server = uvicorn.Server(uvicorn.Config(Looking(), port=0, **settings))
    answers = [
        *asyncio.run(harness.serving(server, harness.GET % b"one")),
    ]
    server = uvicorn.Server(uvicorn.Config(Looking(), port=0, **settings))
    answers += asyncio.run(harness.serving(server, harness.UPGRADE))
    return {"answers": answers, **found}


def traced_cycle(modules: list[str], **settings: Any) -> dict[str, Any]:
    """`run_asgi` patched in modules, as tracing tools do: how often it runs for one request."""
    calls: list[str] = []

    def traced(original: Any) -> Any:
        async def run_asgi(self: Any, app: Any) -> None:
            calls.append("run")
            await original(self, app)

        return run_asgi

    for module in modules:
        cycle = named(f"{HTTP}.{module}:RequestResponseCycle")
        cycle.run_asgi = traced(cycle.run_asgi)
    return {**served(**settings), "calls": calls}


class Hearing(logging.Logger):
    """A logger that keeps what it is told."""

    def __init__(self) -> None:
        super().__init__("mine", logging.DEBUG)
        self.heard: list[str] = []

    def handle(self, record: logging.LogRecord) -> None:
        """Keep the format of a record."""
        self.heard.append(str(record.msg))


def replaced_logger(module: str, **settings: Any) -> dict[str, Any]:
    """What the logger of a module is told."""
    heard = Hearing()
    importlib.import_module(module).logger = heard  # type: ignore[attr-defined]
    outcome = served(log_config=None, **settings)
    return {**outcome, "heard": [line for line in heard.heard if harness.HTTP_CORE not in line]}


def replaced_logger_of_bind() -> list[str]:
    """What the logger of the configuration is told of a socket that is bound."""
    heard = Hearing()
    importlib.import_module("uvicorn.config").logger = heard  # type: ignore[attr-defined]
    config = uvicorn.Config(App(), port=0, log_config=None)
    config.bind_socket().close()
    return heard.heard


def order_of_methods() -> list[str]:
    """The methods of a server that its own are called by, in the order of their first call."""
    calls: list[str] = []

    class Noting(uvicorn.Server):
        def __getattribute__(self, name: str) -> Any:
            value = super().__getattribute__(name)
            if inspect.ismethod(value) and not name.startswith("_") and name in NAMES:

                @functools.wraps(value)
                def noting(*args: Any, **kwargs: Any) -> Any:
                    if name not in calls:
                        calls.append(name)
                    return value(*args, **kwargs)

                return noting
            return value

    asyncio.run(harness.serving(Noting(uvicorn.Config(App(), port=0))))
    return calls


NAMES = ("run", "serve", "capture_signals", "startup", "main_loop", "on_tick", "shutdown", "handle_exit")


def no_op(name: str) -> dict[str, Any]:
    """A server with a method that does nothing."""

    def nothing(self: Any, *args: Any, **kwargs: Any) -> None:
        return None

    async def nothing_later(self: Any, *args: Any, **kwargs: Any) -> None:
        return None

    @contextlib.contextmanager
    def nothing_around(self: Any) -> Any:
        yield

    body: Any = nothing_around if name == "capture_signals" else nothing
    if name in ("on_tick", "main_loop"):
        body = nothing_later
    cls = type("Quiet", (uvicorn.Server,), {name: body})
    app = App()
    return served(app, server=cls(uvicorn.Config(app, port=0)))


def in_thread(cls: Any) -> dict[str, Any]:
    """A server that runs in a thread, and is told to end."""
    app = App()
    server = cls(uvicorn.Config(app, port=harness.free_port()))
    thread = threading.Thread(target=server.run)
    thread.start()
    harness.wait_until(lambda: server.started)
    answers = asyncio.run(harness.asked(harness.address_of(server)))
    server.should_exit = True
    thread.join()
    return {"answers": answers, "events": app.events}


class NoSignals(uvicorn.Server):
    """As in most programs that run a server in a thread."""

    def install_signal_handlers(self) -> None:
        """Do nothing."""


def pickled() -> dict[str, Any]:
    """What a supervisor hands to a child, there and back."""
    config = pickle.loads(pickle.dumps(uvicorn.Config("module:app", log_config=None, headers=[("a", "b")])))
    server = pickle.loads(pickle.dumps(uvicorn.Server(config).run)).__self__
    return {"app": config.app, "headers": config.headers, "server": type(server).__name__, "started": server.started}


def formatted(path: str, **kwargs: Any) -> list[str]:
    """Lines of a formatter."""
    formatter = named(path)(**kwargs)
    args = ("c", "GET", "/", "1.1", 404)
    record = logging.LogRecord("n", logging.WARNING, "", 0, '%s - "%s %s HTTP/%s" %d', args, None)
    plain = logging.LogRecord("n", logging.INFO, "", 0, "text %s", ("x",), None)
    lines = [formatter.format(record)]
    with contextlib.suppress(Exception):
        lines.append(formatter.format(plain))
    return lines


def cases() -> dict[str, harness.Case]:
    """All of them."""
    found: dict[str, harness.Case] = {}
    for one, another in IDENTITIES:
        found[f"{one} is {another}"] = functools.partial(identity, one, another)
    for name in CLASSES:
        if "cycle" not in name and name != "FlowControl":
            found[f"{name}"] = functools.partial(made, name, lambda cls: cls)
            found[f"{name}, passing through"] = functools.partial(made, name, passing_through)
            if name not in ("ImportFromStringError", "ClientDisconnected"):
                found[f"{name}, by name"] = functools.partial(made, name, with_upstreams_parameters)
    for name in ("AutoHTTPProtocol", "H11Protocol", "HttpToolsProtocol"):
        path = CLASSES[name]
        found[f"{name} served"] = functools.partial(served_by, "http", path, harness.GET % b"a", harness.GET % b"b")
        for attribute, value in (
            *(("app", other), ("ws_protocol_class", None), ("scheme", "https"), ("root_path", "/mine")),
            *(("timeout_keep_alive", 1), ("limit_concurrency", 1), ("access_log", False), ("added", 1)),
        ):
            if attribute not in ("scheme", "root_path"):
                found[f"{name}.{attribute} assigned"] = functools.partial(assigned, path, attribute, value)
    for name in ("AutoHTTPProtocol", "H11Protocol", "HttpToolsProtocol"):
        found[f"{name}.ws_protocol_class assigned, upgrade"] = functools.partial(
            assigned, CLASSES[name], "ws_protocol_class", None, harness.UPGRADE
        )
    for name in ("AutoWebSocketsProtocol", "WSProtocol", "WebSocketsSansIOProtocol"):
        found[f"{name} served"] = functools.partial(served_by, "ws", CLASSES[name], harness.UPGRADE)
    for http, ws in (("auto", "auto"), ("h11", "wsproto"), ("httptools", "websockets-sansio")):
        found[f"connections of {http} and {ws}"] = functools.partial(connections, http=http, ws=ws)
    for http in ("h11", "httptools", "auto"):
        for modules in (["h11_impl", "httptools_impl"], ["h11_impl"], ["httptools_impl"]):
            found[f"{http} with {' and '.join(modules)} traced"] = functools.partial(traced_cycle, modules, http=http)
    for module in ("uvicorn.server", "uvicorn.config", "uvicorn.main"):
        found[f"{module}.logger replaced"] = functools.partial(replaced_logger, module)
    found["uvicorn.config.logger replaced, bind_socket"] = replaced_logger_of_bind
    found["order of methods"] = order_of_methods
    for name in ("capture_signals", "on_tick", "install_signal_handlers", "handle_exit"):
        found[f"no-op {name}"] = functools.partial(no_op, name)
    found["in a thread"] = functools.partial(in_thread, uvicorn.Server)
    found["in a thread, without signals"] = functools.partial(in_thread, NoSignals)
    found["pickled"] = pickled
    for name in ("AccessFormatter", "DefaultFormatter", "ColourizedFormatter"):
        for keywords in ({}, {"use_colors": True}, {"use_colors": False}, {"use_colors": None}, {"fmt": None}):
            found[f"{name} {keywords}"] = functools.partial(
                formatted, CLASSES[name], **{"fmt": "%(levelprefix)s %(message)s", **keywords}
            )
    return found
