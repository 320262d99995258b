"""Names of upstream's that programs replace or override, and how these are called."""

# mypy: disable-error-code="attr-defined,assignment,valid-type,misc,method-assign"

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import uvicorn

from . import harness
from .harness import GET, UPGRADE, App, asked, serving

FOUND: dict[str, harness.Case] = {}


def case(function: harness.Case) -> harness.Case:
    """Have it run, under the name of the function."""
    FOUND[function.__name__.replace("_", " ")] = function
    return function


# TLS


@case
def create_ssl_context() -> Any:
    calls: list[Any] = []

    def create(*args: Any, **kwargs: Any) -> ssl.SSLContext:
        calls.append([args, kwargs])
        return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    uvicorn.config.create_ssl_context = create
    for settings in ({}, {"ssl_keyfile": "key"}, {"ssl_context_factory": lambda config, default: default()}):
        uvicorn.Config(App(), ssl_certfile="none.pem", ssl_keyfile_password="secret", **settings).load()
    return {"calls": calls}


# The application


class Loading(uvicorn.Config):
    """A configuration that loads another application than it is made with."""

    calls: list[str] = []

    def load_app(self) -> Any:
        try:
            asyncio.get_running_loop()
            self.calls.append("in a loop")
        except RuntimeError:
            self.calls.append("in none")
        return App()


def loaded_by(server: Any) -> dict[str, Any]:
    """How often it is, when a server runs by itself."""

    def ask() -> None:
        harness.wait_until(lambda: server.started)
        answers.extend(asyncio.run(asked(harness.address_of(server))))
        server.should_exit = True

    answers: list[str] = []
    client = threading.Thread(target=ask, daemon=True)
    client.start()
    server.run()
    client.join()
    return {"calls": server.config.calls, "answers": answers}


@case
def load_app_of_a_subclass() -> Any:
    return loaded_by(uvicorn.Server(Loading("none:app", port=0)))


@case
def load_app_patched() -> Any:
    uvicorn.Config.load_app = Loading.load_app
    uvicorn.Config.calls = []
    return loaded_by(uvicorn.Server(uvicorn.Config("none:app", port=0)))


@case
def load_app_of_an_object() -> Any:
    config: Any = uvicorn.Config("none:app", port=0)
    config.calls = []
    config.load_app = functools.partial(Loading.load_app, config)
    return loaded_by(uvicorn.Server(config))


# Proxy headers

FORWARDED = (
    b"GET /%s HTTP/1.1\r\nhost: test\r\nx-forwarded-for: 1.2.3.4:5, 10.0.0.1\r\nx-forwarded-proto: https\r\n\r\n"
)


def client_seen(http: str, calls: list[Any]) -> dict[str, Any]:
    """What an application gets to know of a client behind a proxy, and of one that is not."""
    app = App()
    config = uvicorn.Config(app, port=0, http=http, forwarded_allow_ips="127.0.0.1, 10.0.0.0/8", lifespan="off")
    server = uvicorn.Server(config)
    handshake = UPGRADE.replace(b"\r\n\r\n", b"\r\nx-forwarded-for: 9.9.9.9\r\n\r\n")
    answers = asyncio.run(serving(server, FORWARDED % b"one", GET % b"two", handshake))
    clients = [(scope["type"], scope["client"][0], scope["scheme"]) for scope in app.scopes]
    return {"answers": answers, "clients": clients, "calls": calls}


def deny(calls: list[Any], self: Any, host: Any) -> bool:
    """Trust nobody."""
    calls.append(host)
    return False


def contains_patched(http: str) -> Any:
    from uvicorn.middleware.proxy_headers import _TrustedHosts

    calls: list[Any] = []
    _TrustedHosts.__contains__ = lambda self, host: deny(calls, self, host)
    return client_seen(http, calls)


def class_replaced(http: str) -> Any:
    from uvicorn.middleware import proxy_headers

    calls: list[Any] = []

    class Nobody(proxy_headers._TrustedHosts):
        def __contains__(self, host: Any) -> bool:
            return deny(calls, self, host)

    proxy_headers._TrustedHosts = Nobody
    return client_seen(http, calls)


def class_of_its_own(http: str) -> Any:
    from uvicorn.middleware import proxy_headers

    calls: list[Any] = []

    class Everybody:
        def __init__(self, trusted_hosts: Any) -> None:
            calls.append("made")

        def __contains__(self, host: Any) -> bool:
            calls.append(host)
            return True

        def get_trusted_client_address(self, x_forwarded_for: str) -> tuple[str, int]:
            calls.append(x_forwarded_for)
            return "7.7.7.7", 7

    proxy_headers._TrustedHosts = Everybody
    return client_seen(http, calls)


def function_patched(owner: str, name: str, http: str) -> Any:
    from uvicorn.middleware import proxy_headers

    calls: list[Any] = []
    place: Any = proxy_headers if not owner else getattr(proxy_headers, owner)
    function = getattr(place, name)

    def record(*args: Any) -> Any:
        if not (args and isinstance(args[-1], dict)):
            calls.append(args[1:] if owner else args)
        return function(*args)

    async def call(self: Any, scope: Any, receive: Any, send: Any) -> None:
        calls.append(scope["path"])
        await function(self, scope, receive, send)

    setattr(place, name, call if name == "__call__" else record)
    return client_seen(http, calls)


for http in ("auto", "h11", "httptools"):
    FOUND[f"trusted hosts: contains patched, {http}"] = functools.partial(contains_patched, http)
    FOUND[f"trusted hosts: class replaced, {http}"] = functools.partial(class_replaced, http)
    FOUND[f"trusted hosts: class of its own, {http}"] = functools.partial(class_of_its_own, http)
    for owner, name in (
        ("_TrustedHosts", "_compute_trust"),
        ("_TrustedHosts", "get_trusted_client_address"),
        ("", "_parse_host_port"),
        ("", "_parse_raw_hosts"),
        ("ProxyHeadersMiddleware", "__call__"),
    ):
        FOUND[f"proxy headers: {name} patched, {http}"] = functools.partial(function_patched, owner, name, http)


@case
def attributes_of_trusted_hosts() -> Any:
    from uvicorn.middleware.proxy_headers import _TrustedHosts

    names = ("always_trust", "trusted_literals", "trusted_hosts", "trusted_networks")
    found = {}
    for hosts in ("*", "", "10.0.0.0/8, 1.1.1.1,name", ["::1", "*"], ["*"]):
        found[str(hosts)] = [
            sorted(map(str, value)) if isinstance(value := getattr(_TrustedHosts(hosts), name), set) else value
            for name in names
        ]
    return found


# Logging


def access_logged(http: str, replace: Any) -> dict[str, Any]:
    """The calls of what an agent, or a program, puts in the place of a method of loggers, of requests alone."""
    calls: list[Any] = []
    config = uvicorn.Config(App(), port=0, http=http, lifespan="off")
    replace(logging.getLogger("uvicorn.access"), calls)
    answers = asyncio.run(serving(uvicorn.Server(config), GET % b"one", GET % b"two", GET % b"three"))
    return {"answers": answers, "calls": [call for call in calls if call == "uvicorn.access"]}


def replace_in_class(name: str, logger: Any, calls: list[Any]) -> None:
    """As monitoring agents do."""
    function = getattr(logging.Logger, name)

    def replacement(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(self.name)
        return function(self, *args, **kwargs)

    setattr(logging.Logger, name, replacement)


def replace_in_logger(name: str, logger: Any, calls: list[Any]) -> None:
    """As programs do."""
    method = getattr(logger, name)

    def replacement(*args: Any, **kwargs: Any) -> Any:
        calls.append(logger.name)
        return method(*args, **kwargs)

    setattr(logger, name, replacement)


for http in ("auto", "h11", "httptools"):
    for name in ("info", "makeRecord", "handle", "callHandlers"):
        for place, replace in (("class", replace_in_class), ("logger", replace_in_logger)):
            FOUND[f"logging: {name} of the {place}, {http}"] = functools.partial(
                access_logged, http, functools.partial(replace, name)
            )


# Supervisors

SUPERVISED = """
import os, sys, uvicorn
from uvicorn.supervisors import multiprocess

PARENT = os.environ.setdefault("CASE_PARENT", str(os.getpid()))


def note(name):
    if str(os.getpid()) == PARENT:
        with open("notes", "a") as file:
            print(name, file=file)


class Process(multiprocess.Process):
    def start(self):
        note("start")
        super().start()
        with open("pids", "a") as file:
            print(self.process.pid, file=file)

    def ping(self, timeout=5):
        note("ping")
        return super().ping(timeout)

    def is_alive(self, timeout=5):
        note("is_alive")
        return super().is_alive(timeout)

    def is_ready(self, timeout=5):
        note("is_ready")
        return super().is_ready(timeout)

    def wait_until_ready(self, timeout, should_exit=None):
        note("wait_until_ready" if should_exit is not None else "nothing to wait for")
        return super().wait_until_ready(timeout, should_exit)

    def terminate(self):
        note("terminate")
        super().terminate()

    def kill(self):
        note("kill")
        super().kill()

    def join(self):
        note("join")
        super().join()


class Multiprocess(multiprocess.Multiprocess):
    def init_processes(self):
        note("init_processes")
        super().init_processes()

    def keep_subprocess_alive(self):
        note("keep_subprocess_alive")
        super().keep_subprocess_alive()

    def restart_all(self):
        note("restart_all")
        super().restart_all()
        note("restarted")

    def terminate_all(self):
        note("terminate_all")
        super().terminate_all()

    def join_all(self):
        note("join_all")
        super().join_all()

    def handle_hup(self):
        note("handle_hup")
        super().handle_hup()

    def handle_term(self):
        note("handle_term")
        super().handle_term()


async def app(scope, receive, send):
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


multiprocess.Process = Process
if __name__ == "__main__":
    config = uvicorn.Config("supervised:app", port=int(sys.argv[1]), workers=2)
    Multiprocess(config, sockets=[config.bind_socket()]).run()
"""


def notes() -> list[str]:
    """What the parent process has noted."""
    return Path("notes").read_text().split() if Path("notes").exists() else []


def supervised(*ends: signal.Signals) -> Any:
    """Which methods of subclasses with upstream's signatures are called, and how often those that begin and end."""
    port = harness.free_port()
    Path("supervised.py").write_text(SUPERVISED)
    with open("log", "wb") as log:
        process = subprocess.Popen([sys.executable, "supervised.py", str(port)], stdout=log, stderr=log)

    def has_ended() -> bool:
        return process.poll() is not None

    harness.wait_until(lambda: notes().count("is_alive") >= 4 or has_ended())
    harness.wait_until(lambda: harness.is_listening(port) or has_ended())  # upstream's workers listen, not the parent
    answers = [] if has_ended() else asyncio.run(asked(("127.0.0.1", port)))
    for number in ends:
        if number == signal.SIGKILL:
            os.kill(int(Path("pids").read_text().split()[-1]), number)
            harness.wait_until(lambda: notes().count("start") == 3)
        else:
            process.send_signal(number)
        if number == signal.SIGHUP:
            harness.wait_until(lambda: "restarted" in notes() or has_ended())
    status = process.wait(20)
    counted = ("start", "kill", "join", "terminate_all", "join_all", "restart_all", "init_processes")
    found = notes()
    return {
        "answers": answers,
        "status": status,
        "called": set(found),
        "times": {name: found.count(name) for name in counted},
    }


FOUND["supervised: restart and end"] = functools.partial(supervised, signal.SIGHUP, signal.SIGTERM)
FOUND["supervised: end"] = functools.partial(supervised, signal.SIGTERM)
FOUND["supervised: death and end"] = functools.partial(supervised, signal.SIGKILL, signal.SIGTERM)


def cases() -> dict[str, harness.Case]:
    """All of them."""
    return dict(FOUND)
