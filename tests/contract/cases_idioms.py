"""What public programs do with a server: each in a few lines, as it is found in many of them."""

# mypy: disable-error-code="attr-defined,assignment,valid-type,misc,has-type,method-assign"

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import importlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import uvicorn

from . import harness
from .harness import GET, UPGRADE, App, asked, ran, served, serving

FOUND: dict[str, harness.Case] = {}


def idiom(case: harness.Case) -> harness.Case:
    """Have it run, under the name of the function."""
    FOUND[case.__name__.replace("_", " ")] = case
    return case


def config_of(app: Any = None, **settings: Any) -> Any:
    """A configuration for a free port."""
    return uvicorn.Config(App() if app is None else app, **{"port": 0, **settings})


# Starting and ending


@idiom
def run_until_ctrl_c() -> Any:
    return ran(uvicorn.run)


@idiom
def run_until_sigterm() -> Any:
    caught: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: caught.append(number))
    return {**ran(uvicorn.run, end=lambda: os.kill(os.getpid(), signal.SIGTERM)), "caught": caught}


@idiom
def run_with_what_is_not_set() -> Any:
    return ran(uvicorn.run, host=None, log_level=None, root_path="", workers=None, reload=None, ssl_keyfile=None)


@idiom
def run_with_values_of_the_environment() -> Any:
    settings = {"access_log": bool(""), "reload": bool(""), "workers": 1, "forwarded_allow_ips": "*"}
    return ran(uvicorn.run, proxy_headers=True, **settings)


@idiom
def run_with_loop_unset() -> Any:
    return ran(uvicorn.run, loop=None)


@idiom
def run_of_an_address_in_use() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        app = App()
        raised = harness.raised(lambda: uvicorn.run(app, port=taken.getsockname()[1]))
    return {"raised": raised, "events": app.events}


@idiom
def run_on_a_unix_socket() -> Any:
    app = App()
    outcome = served(app, uds="s", port=None)
    return {**outcome, "left": os.path.exists("s")}


@idiom
def run_on_a_descriptor() -> Any:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    return served(fd=sock.fileno())


@idiom
def server_in_a_daemon_thread() -> Any:
    app = App()
    server = uvicorn.Server(config_of(app, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    harness.wait_until(lambda: server.started)
    answers = asyncio.run(asked(harness.address_of(server)))
    server.should_exit = True
    thread.join(20)
    return {"answers": answers, "events": app.events, "alive": thread.is_alive()}


@idiom
def server_in_a_thread_with_signals_assigned_away() -> Any:
    app = App()
    server = uvicorn.Server(config_of(app))
    server.install_signal_handlers = lambda: None
    thread = threading.Thread(target=server.run)
    thread.start()
    harness.wait_until(lambda: server.started)
    server.should_exit = True
    thread.join(20)
    return app.events


@idiom
def sigterm_with_signals_assigned_away_in_the_main_thread() -> Any:
    app = App()
    server = uvicorn.Server(config_of(app))
    server.install_signal_handlers = lambda: None
    caught: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: caught.append(number))

    async def main() -> None:
        task = asyncio.ensure_future(server.serve())
        await harness.started(server, task)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(task, 10)

    asyncio.run(main())
    return {"events": app.events, "caught": caught}


@idiom
def server_that_says_when_it_is_ready() -> Any:
    ready = threading.Event()

    class Server(uvicorn.Server):
        async def main_loop(self) -> None:
            ready.set()
            await super().main_loop()

    app = App()
    return {**served(app, server=Server(config_of(app))), "ready": ready.is_set()}


@idiom
def server_that_says_that_it_has_started() -> Any:
    started: list[bool] = []

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets=sockets)
            started.append(self.started)

    app = App()
    return {**served(app, server=Server(config_of(app))), "started": started}


@idiom
def server_with_slots_and_attributes() -> Any:
    class Server(uvicorn.Server):
        __slots__ = ("thread",)

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.thread = None

    app = App()
    return served(app, server=Server(config=config_of(app)))


@idiom
def server_that_leaves_signals_alone() -> Any:
    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Any:
            yield

    app = App()
    before = signal.getsignal(signal.SIGTERM)
    outcome = served(app, server=Server(config_of(app)))
    return {**outcome, "same": signal.getsignal(signal.SIGTERM) == before}


@idiom
def server_whose_handle_exit_is_patched() -> Any:
    original = uvicorn.Server.handle_exit
    seen: list[int] = []

    def handle_exit(self: Any, number: int, frame: Any) -> None:
        seen.append(number)
        original(self, number, frame)

    uvicorn.Server.handle_exit = handle_exit
    return {**ran(uvicorn.run), "seen": seen}


@idiom
def handlers_of_the_loop_that_call_handle_exit() -> Any:
    app = App()

    async def main() -> None:
        server = uvicorn.Server(config_of(app))
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, server.handle_exit, signal.SIGTERM, None)
        signal.signal(signal.SIGTERM, lambda number, frame: None)
        task = asyncio.ensure_future(server.serve())
        await harness.started(server, task)
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(task, 10)

    asyncio.run(main())
    return app.events


@idiom
def serve_in_a_task_that_is_cancelled() -> Any:
    app = App()

    async def main() -> str:
        server = uvicorn.Server(config_of(app))
        task = asyncio.ensure_future(server.serve())
        await harness.started(server, task)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return "cancelled"
        return "returned"

    return {"value": asyncio.run(main())}


@idiom
def serve_in_a_task_group_of_two() -> Any:
    apps = [App(), App()]

    async def main() -> Any:
        servers = [uvicorn.Server(config_of(app, log_level="warning")) for app in apps]
        tasks = [asyncio.ensure_future(server.serve()) for server in servers]
        for server, task in zip(servers, tasks, strict=True):
            await harness.started(server, task)
        answers = [await asked(harness.address_of(server)) for server in servers]
        for server in servers:
            server.should_exit = True
        await asyncio.gather(*tasks)
        return answers

    return {"answers": asyncio.run(main()), "events": [app.events for app in apps]}


@idiom
def parts_of_serve_called_by_hand() -> Any:
    app = App()

    async def main() -> Any:
        config = config_of(app)
        if not config.loaded:
            config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        loop = asyncio.ensure_future(server.main_loop())
        answers = await asked(harness.address_of(server))
        server.should_exit = True
        await loop
        await server.shutdown()
        return answers

    return {"answers": asyncio.run(main()), "events": app.events}


@idiom
def parts_of_serve_with_a_socket_of_the_configuration() -> Any:
    app = App()

    async def main() -> Any:
        config = config_of(app, lifespan="on", log_config=None)
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        sock = config.bind_socket()
        address = sock.getsockname()
        await server.startup(sockets=[sock])
        serving = asyncio.ensure_future(server.main_loop())
        answers = await asked(address)
        server.should_exit = True
        await serving
        await server.shutdown(sockets=[sock])
        return answers

    return {"answers": asyncio.run(main()), "events": app.events}


@idiom
def lifespan_driven_without_a_server() -> Any:
    app = App()

    async def main() -> Any:
        config = config_of(app, lifespan="on")
        config.load()
        lifespan = config.lifespan_class(config)
        await lifespan.startup()
        before = (lifespan.startup_failed, lifespan.should_exit)
        await lifespan.shutdown()
        return before

    return {"value": asyncio.run(main()), "events": app.events}


@idiom
def sockets_that_are_given() -> Any:
    app = App()
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    server = uvicorn.Server(config_of(app))
    answers = asyncio.run(serving(server, sockets=[sock]))
    return {"answers": answers, "events": app.events, "closed": sock.fileno() == -1}


@idiom
def port_of_a_server_that_chose_it() -> Any:
    async def main() -> Any:
        server = uvicorn.Server(config_of())
        task = asyncio.ensure_future(server.serve())
        await harness.started(server, task)
        ports = [sock.getsockname()[1] > 0 for one in server.servers for sock in one.sockets]
        server.should_exit = True
        await task
        return ports

    return {"ports": asyncio.run(main())}


@idiom
def limit_of_requests() -> Any:
    app = App()
    server = uvicorn.Server(config_of(app, limit_max_requests=2))

    async def main() -> Any:
        task = asyncio.ensure_future(server.serve())
        await harness.started(server, task)
        answers = await asked(harness.address_of(server), GET % b"a", GET % b"b")
        await asyncio.wait_for(task, 10)
        return answers

    return {"answers": asyncio.run(main()), "events": app.events}


@idiom
def callback_that_is_told_each_second() -> Any:
    calls: list[int] = []

    async def notify() -> None:
        calls.append(1)

    return {**served(callback_notify=notify, timeout_notify=0), "called": bool(calls)}


@idiom
def callback_that_fails() -> Any:
    async def notify() -> None:
        raise RuntimeError

    app = App()
    raised = harness.raised(lambda: uvicorn.Server(config_of(app, callback_notify=notify)).run())
    return {"raised": raised, "started": app.events[:1]}


# Logging


@idiom
def logging_dictionary_changed_in_place() -> Any:
    log_config = uvicorn.config.LOGGING_CONFIG
    log_config["formatters"]["access"]["fmt"] = "%(asctime).0s[%(levelname)s] %(message)s"
    log_config["formatters"]["default"]["fmt"] = "[%(levelname)s] %(message)s"
    return served(log_config=log_config)


@idiom
def logging_dictionary_copied_with_another_stream() -> Any:
    log_config = copy.deepcopy(uvicorn.config.LOGGING_CONFIG)
    for handler in log_config["handlers"].values():
        handler["stream"] = "ext://sys.stdout"
    return served(log_config=log_config, log_level="warning")


@idiom
def logging_dictionary_with_a_file() -> Any:
    log_config = copy.deepcopy(uvicorn.config.LOGGING_CONFIG)
    log_config["handlers"]["file"] = {"class": "logging.FileHandler", "formatter": "default", "filename": "log"}
    for name in ("uvicorn", "uvicorn.access"):
        log_config["loggers"][name].setdefault("handlers", []).append("file")
    outcome = served(log_config=log_config)
    return {**outcome, "file": harness.lines_of(Path("log").read_text())}


@idiom
def filter_of_the_access_log() -> Any:
    class NoHealth(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            return "/health" not in record.getMessage()

    logging.getLogger("uvicorn.access").addFilter(NoHealth())
    return served(None, GET % b"health", GET % b"other")


@idiom
def filter_that_reads_the_arguments_of_the_access_log() -> Any:
    seen: list[Any] = []

    class Reading(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            _client, *rest = record.args
            seen.append(rest)
            return True

    logging.getLogger("uvicorn.access").addFilter(Reading())
    return {**served(None, GET % b"path?q=1"), "seen": seen}


@idiom
def records_that_propagate_to_the_root() -> Any:
    records: list[str] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.name.startswith("uvicorn"):
                records.append(f"{record.name} {record.levelname} {record.msg}")

    logging.basicConfig(handlers=[Keeping()], level=logging.INFO, force=True)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).handlers = []
        logging.getLogger(name).propagate = True
    outcome = served(log_config=None)
    return {**outcome, "records": [line for line in records if harness.HTTP_CORE not in line]}


@idiom
def subclass_of_the_access_formatter() -> Any:
    base = importlib.import_module("uvicorn.logging").AccessFormatter

    class Formatter(base):
        def formatMessage(self, record: Any) -> str:
            _client, method, path, _version, _status = record.args
            record.__dict__.update(path=path, method=method)
            return str(super().formatMessage(record))

    sys.modules["mine"] = type(sys)("mine")
    sys.modules["mine"].Formatter = Formatter
    log_config = copy.deepcopy(uvicorn.config.LOGGING_CONFIG)
    log_config["formatters"]["access"] = {
        "()": "mine.Formatter",
        "fmt": "%(client_addr).0s%(method)s %(path)s %(status_code)s",
    }
    return served(log_config=log_config)


# Protocol classes


@idiom
def peer_certificate_taken_when_connected() -> Any:
    base = importlib.import_module("uvicorn.protocols.http.h11_impl").H11Protocol

    class Protocol(base):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            inner = self.app
            peer = transport.get_extra_info("ssl_object")

            async def app(scope: Any, receive: Any, send: Any) -> None:
                scope = {**scope, "extensions": {**scope.get("extensions", {}), "mine": peer}}
                await inner(scope, receive, send)

            self.app = app

    app = App()
    outcome = served(app, http=Protocol)
    return {**outcome, "extensions": [sorted(scope["extensions"]) for scope in app.scopes]}


@idiom
def scope_added_to_when_data_has_come() -> Any:
    base = importlib.import_module("uvicorn.protocols.http.httptools_impl").HttpToolsProtocol

    class Protocol(base):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.scope is not None:
                self.scope["mine"] = True

    app = App()
    outcome = served(app, http=Protocol)
    return {**outcome, "mine": [scope.get("mine") for scope in app.scopes]}


@idiom
def scope_as_a_property_of_a_subclass() -> Any:
    base = importlib.import_module("uvicorn.protocols.http.httptools_impl").HttpToolsProtocol

    class Protocol(base):
        @property
        def scope(self) -> Any:
            return self._mine

        @scope.setter
        def scope(self, value: Any) -> None:
            if value is not None:
                value["mine"] = True
            self._mine = value

    app = App()
    outcome = served(app, http=Protocol)
    return {**outcome, "mine": [scope.get("mine") for scope in app.scopes]}


@idiom
def cycle_whose_errors_are_noted() -> Any:
    cycle = importlib.import_module("uvicorn.protocols.http.httptools_impl").RequestResponseCycle
    original = cycle.run_asgi
    noted: list[str] = []

    async def run_asgi(self: Any, app: Any) -> Any:
        async def noting(*args: Any) -> None:
            try:
                await app(*args)
            except Exception as exc:
                noted.append(type(exc).__name__)
                raise

        return await original(self, noting)

    cycle.run_asgi = run_asgi

    async def failing(scope: Any, receive: Any, send: Any) -> None:
        raise LookupError

    return {**served(failing, lifespan="off"), "noted": noted}


@idiom
def h11_protocol_without_a_server() -> Any:
    module = importlib.import_module("uvicorn.protocols.http.h11_impl")
    state = importlib.import_module("uvicorn.server").ServerState()

    class Transport(asyncio.Transport):
        def __init__(self) -> None:
            super().__init__()
            self.data = b""
            self.closed = False

        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return {"sockname": ("127.0.0.1", 80), "peername": ("127.0.0.1", 81)}.get(name, default)

        def write(self, data: Any) -> None:
            self.data += bytes(data)

        def writelines(self, data: Any) -> None:
            self.data += b"".join(data)

        def close(self) -> None:
            self.closed = True

        def is_closing(self) -> bool:
            return self.closed

        def pause_reading(self) -> None: ...

        def resume_reading(self) -> None: ...

        def abort(self) -> None:
            self.closed = True

    async def main() -> Any:
        protocol = module.H11Protocol(config_of(lifespan="off"), state, {}, asyncio.get_running_loop())
        transport = Transport()
        protocol.connection_made(transport)
        protocol.data_received(GET % b"it")
        for _ in range(20):
            await asyncio.sleep(0.005)
        protocol.connection_lost(None)
        return transport.data.split(b"\r\n", 1)[0].decode(), transport.data.endswith(b"/it")

    return {"value": asyncio.run(main())}


# Configuration


@idiom
def configuration_loaded_before_a_fork() -> Any:
    app = App()
    config = config_of(app)
    config.load()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        answers = asyncio.run(serving(uvicorn.Server(config)))
        os.write(writing, repr(answers).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    return os.read(reading, 1000).decode()


@idiom
def configuration_changed_after_it_was_made() -> Any:
    config = config_of()
    config.port, config.host = 0, "127.0.0.1"
    config.log_level = "warning"
    config.headers = [("x-mine", "1")]
    app = App()
    config.app = app
    return served(app, server=uvicorn.Server(config))


@idiom
def middleware_put_around_the_loaded_application() -> Any:
    app = App()
    config = config_of(app)
    config.load()
    inner = config.loaded_app
    seen: list[str] = []

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])
        await inner(scope, receive, send)

    config.loaded_app = outer
    return {**served(app, server=uvicorn.Server(config)), "seen": seen}


@idiom
def configuration_of_a_subclass() -> Any:
    class Config(uvicorn.Config):
        def __init__(self, *args: Any, extra: int = 1, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.extra = extra

        def load(self) -> None:
            super().load()
            self.loaded_app = self.loaded_app

    app = App()
    config = Config(app, port=0, extra=2)
    return {**served(app, server=uvicorn.Server(config)), "extra": config.extra}


@idiom
def event_loop_of_the_program() -> Any:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    app = App()
    answers = loop.run_until_complete(serving(uvicorn.Server(config_of(app, loop="asyncio"))))
    loop.close()
    return {"answers": answers, "events": app.events}


@idiom
def running_event_loop_as_the_setting() -> Any:
    """Ray gives its own."""

    async def serve() -> Any:
        return await serving(uvicorn.Server(config_of(app, loop=asyncio.get_running_loop())))

    app = App()
    return {"answers": asyncio.run(serve()), "events": app.events}


@idiom
def setup_of_the_event_loop_as_before() -> Any:
    return harness.raised(lambda: config_of().setup_event_loop())


@idiom
def loop_factory_of_the_configuration() -> Any:
    names = {}
    for loop in ("none", "asyncio", "auto", "uvloop"):
        factory = config_of(loop=loop).get_loop_factory()
        made = None if factory is None else factory()
        names[loop] = None if made is None else type(made).__module__.partition(".")[0]
        if made is not None:
            made.close()
    return names


@idiom
def version_as_integers() -> Any:
    major, minor, patch = [int(part) for part in uvicorn.__version__.split(".")]
    return {"value": (0, 54, 0) <= (major, minor, patch) < (0, 55, 0)}


@idiom
def trusted_hosts_of_the_middleware() -> Any:
    middleware = importlib.import_module("uvicorn.middleware.proxy_headers").ProxyHeadersMiddleware
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["client"], scope["scheme"]))

    for trusted in ("*", ["*"], "127.0.0.1", ["10.0.0.1"], "", []):
        scope = {
            "type": "http",
            "client": ("127.0.0.1", 5),
            "scheme": "http",
            "headers": [(b"x-forwarded-for", b"1.2.3.4"), (b"x-forwarded-proto", b"https")],
        }
        asyncio.run(middleware(app, trusted_hosts=trusted)(scope, None, None))
    return {"seen": seen}


@idiom
def wsgi_application() -> Any:
    def app(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [("content-length", "2")])
        return [b"ok"]

    return served(app, interface="wsgi")


@idiom
def asgi_2_application() -> Any:
    def app(scope: Any) -> Any:
        async def run(receive: Any, send: Any) -> None:
            await App()(scope, receive, send)

        return run

    return served(app, lifespan="off")


@idiom
def application_as_a_factory_without_saying_so() -> Any:
    return served(App)


@idiom
def application_as_an_import_string() -> Any:
    Path("module.py").write_text(
        "class N: pass\nn = N()\nasync def app(scope, receive, send):\n"
        "    assert scope['type'] == 'http'\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': [(b'content-length', b'0')]})\n"
        "    await send({'type': 'http.response.body'})\nn.app = app\n"
    )
    return {path: served(path)["answers"] for path in ("module:app", "module:n.app")}


@idiom
def application_that_cannot_be_imported() -> Any:
    paths = ("no_module:app", "json:no", "json")
    return [harness.raised(uvicorn.Server(config_of(path)).run) for path in paths]


@idiom
def websocket_beside_http() -> Any:
    return served(None, UPGRADE)


@idiom
def websocket_switched_off() -> Any:
    return served(None, UPGRADE, ws="none")


@idiom
def streams_replaced_by_an_object_that_writes() -> Any:
    class Tee:
        def __init__(self) -> None:
            self.text = ""

        def write(self, text: str) -> None:
            self.text += text

        def flush(self) -> None: ...

        def isatty(self) -> bool:
            return False

    own = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = tee = Tee()
    try:
        outcome = served()
    finally:
        sys.stdout, sys.stderr = own
    return {**outcome, "lines": harness.lines_of(tee.text)}


@idiom
def command_of_a_program_with_the_parameters_of_this_one() -> Any:
    import click

    app, main = App(), uvicorn.main
    command = click.Command("mine", callback=functools.partial(main.callback, app), params=main.params[1:])
    return ran(lambda app, port: command.main(["--port", str(port)], standalone_mode=False), app)


# Supervisors


PROGRAM = """
import sys, uvicorn
from uvicorn.supervisors import ChangeReload, Multiprocess
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": kind + ".complete"})
            if kind == "lifespan.shutdown":
                return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
if __name__ == "__main__":
    port = int(sys.argv[1])
"""


def program(code: str, stop_by: signal.Signals = signal.SIGTERM, ready: bytes = b"startup complete") -> Any:
    """A program of its own that serves, and how it answers and ends."""
    port = harness.free_port()
    Path("program.py").write_text(PROGRAM + "".join(f"    {line}\n" for line in code.splitlines()))
    with open("log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "program.py", str(port)], stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
    harness.wait_until(lambda: ready in Path("log").read_bytes() or process.poll() is not None, 25)
    harness.wait_until(lambda: harness.is_listening(port) or process.poll() is not None)
    answers = asyncio.run(asked(("127.0.0.1", port))) if process.poll() is None else []
    process.send_signal(stop_by)
    return {"answers": answers, "status": process.wait(20)}


for name, code in {
    "two workers": "uvicorn.run('program:app', port=port, workers=2)",
    "reload": "uvicorn.run('program:app', port=port, reload=True)",
    "reloader made by hand": "config = uvicorn.Config('program:app', port=port, reload=True)\n"
    "sock = config.bind_socket()\n"
    "ChangeReload(config, target=uvicorn.Server(config).run, sockets=[sock]).run()",
    "workers made by hand": "config = uvicorn.Config('program:app', port=port, workers=1)\n"
    "sock = config.bind_socket()\n"
    "Multiprocess(config, sockets=[sock]).run()",
    "process of another class": "from uvicorn.supervisors import multiprocess\n"
    "class Process(multiprocess.Process):\n"
    "    def __init__(self, config, sockets):\n"
    "        super().__init__(config, sockets)\n"
    "        self.mine = True\n"
    "multiprocess.Process = Process\n"
    "uvicorn.run(app, port=port)",
    "one process by SIGTERM": "uvicorn.run(app, port=port)",
    "the same with signals assigned away": "server = uvicorn.Server(uvicorn.Config(app, port=port))\n"
    "server.install_signal_handlers = lambda: None\n"
    "server.run()",
    "host that is not set and workers": "uvicorn.run('program:app', host='', port=port, workers=2)",
    "child of multiprocessing": "import multiprocessing\n"
    "process = multiprocessing.get_context('spawn').Process(\n"
    "    target=uvicorn.run, args=('program:app',), kwargs={'port': port})\n"
    "process.start()\n"
    "import signal\n"
    "signal.signal(signal.SIGTERM, lambda *args: process.terminate())\n"
    "process.join()\n"
    "sys.exit(abs(process.exitcode))",
}.items():
    FOUND[f"program: {name}"] = functools.partial(program, code)
FOUND["program: one process by SIGINT"] = functools.partial(program, "uvicorn.run(app, port=port)", signal.SIGINT)


def cases() -> dict[str, harness.Case]:
    """All of them."""
    return dict(FOUND)
