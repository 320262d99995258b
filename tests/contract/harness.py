"""What the cases are made with, and what runs them: under any Python that has a `uvicorn`, with nothing of this one.

A case is a function whose result, exception, output and log lines are its outcome. Each runs in a fork of its own, so
that it may patch, configure logging and take signals as a program does.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import gc
import importlib
import json
import os
import random
import re
import select
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.modules["a2wsgi"] = None  # type: ignore[assignment]  # wherever it is installed, the same adapter

import uvicorn  # noqa: E402

HTTP_CORE = "HTTP core: "
"""In a line that says what serves."""

LONGEST = 30
"""Seconds a case may take."""

AT_ONCE = 4
"""Cases that run beside each other; most of their time they wait."""

Case = Callable[[], Any]


# For cases


class App:
    """An application that notes what happens to it, and answers with the path."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.scopes: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while True:
                kind = (await receive())["type"]
                self.events.append(kind)
                await send({"type": f"{kind}.complete"})
                if kind == "lifespan.shutdown":
                    return
        self.scopes.append(scope)
        self.events.append(f"{scope['type']} {scope['path']}")
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            await receive()
            return
        body = scope["path"].encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})


GET = b"GET /%s HTTP/1.1\r\nhost: test\r\n\r\n"
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nhost: test\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


async def asked(address: Any, *requests: bytes) -> list[str]:
    """The first lines of the answers to requests, of one connection."""
    if isinstance(address, str):
        reader, writer = await asyncio.open_unix_connection(address)
    else:
        reader, writer = await asyncio.open_connection(*address[:2])
    answers = []
    for request in requests or (GET % b"",):
        writer.write(request)
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        except (asyncio.IncompleteReadError, ConnectionError):
            answers.append("closed")
            break
        length = re.search(rb"content-length: (\d+)", head.lower())
        body = await reader.readexactly(int(length[1])) if length else b""
        answers.append(f"{head.split(b' ', 2)[1].decode()} {body.decode()}".strip())
    writer.close()
    return answers


def address_of(server: Any) -> Any:
    """Where a server listens: at its IPv4 address, if it has one."""
    sockets = sorted((sock for one in server.servers for sock in one.sockets), key=lambda sock: sock.family)
    address = sockets[0].getsockname()
    return ("127.0.0.1", address[1]) if not isinstance(address, str) and address[0] == "0.0.0.0" else address


async def started(server: Any, task: asyncio.Task[Any]) -> None:
    """Return when the server has, or its task is over, which raises what that has raised."""
    while not server.started and not task.done():
        await asyncio.sleep(0.005)
    if task.done():
        task.result()


async def serving(server: Any, *requests: bytes, sockets: Any = None) -> list[str]:
    """The answers of a server that runs in this event loop, and is then told to end."""
    task = asyncio.ensure_future(server.serve(sockets) if sockets is not None else server.serve())
    try:
        await started(server, task)
        if not server.started:
            return ["not started"]
        address = sockets[0].getsockname() if sockets else address_of(server)
        return await asked(address, *requests)
    finally:
        server.should_exit = True
        await asyncio.wait_for(task, 20)


def served(app: Any = None, *requests: bytes, server: Any = None, **settings: Any) -> dict[str, Any]:
    """What a server with these settings answers, and what its application saw."""
    app = App() if app is None else app
    if server is None:
        server = uvicorn.Server(uvicorn.Config(app, **{"port": 0, **settings}))
    answers = asyncio.run(serving(server, *requests))
    return {"answers": answers, "events": getattr(app, "events", None)}


def free_port() -> int:
    """A port of the loopback interface that nobody has."""
    while True:
        # Not one that the system may give to somebody else meanwhile.
        port = random.randrange(10240, 32768)
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port


def wait_until(condition: Callable[[], object], patience: float = 15) -> None:
    """Return when the condition holds."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.005)


def is_listening(port: int) -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


class Client(threading.Thread):
    """Asks once somebody listens, from a thread; then does what ends the server: by default SIGINT, as Ctrl+C."""

    def __init__(self, port: int, end: Callable[[], object] | None = None, path: bytes = b"") -> None:
        super().__init__(daemon=True)
        self.answers: list[str] = []
        self.port, self.path = port, path
        self.end = end or (lambda: os.kill(os.getpid(), signal.SIGINT))
        self.start()

    def run(self) -> None:
        """Ask, and have it end."""
        try:
            wait_until(lambda: is_listening(self.port))
            self.answers = asyncio.run(asked(("127.0.0.1", self.port), GET % self.path))
        except Exception as exc:
            self.answers = [type(exc).__name__]
        self.end()


def ran(run: Callable[..., Any], app: Any = None, end: Callable[[], object] | None = None, **settings: Any) -> Any:
    """What `run`, which serves until it is told to end, answers and leads to."""
    app = App() if app is None else app
    port = free_port()
    client = Client(port, end)
    outcome: dict[str, Any] = {}
    try:
        run(app, port=port, **settings)
    except BaseException as exc:
        outcome["raises"] = named(exc)
    client.join(0.5 if outcome else 20)
    return {**outcome, "answers": client.answers, "events": getattr(app, "events", None)}


def raised(call: Callable[[], object]) -> str | None:
    """What a call raises, if it does."""
    try:
        call()
    except BaseException as exc:
        return named(exc)
    return None


def named(exc: BaseException) -> str:
    """The type of an exception, and of those that end a program their status."""
    return f"SystemExit {exc.code}" if isinstance(exc, SystemExit) else type(exc).__name__


# Outcomes


def plain(value: Any) -> Any:
    """A value as JSON has it, the same under each `uvicorn`."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return f"bytes {value!r}"
    if isinstance(value, Path):
        return f"path {value}"
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, map(plain, value)))
    if isinstance(value, type):
        return f"class {value.__qualname__}"
    return f"a {type(value).__qualname__}"


SUBSTITUTIONS = [
    (re.compile(r"\S+\.py:\d+: "), ""),
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"\[\d+\]"), "[PID]"),
    (re.compile(r"(127\.0\.0\.1|0\.0\.0\.0|localhost|\[::1?\]|\('127\.0\.0\.1', )(:?)\d{2,5}"), r"\1\2PORT"),
    (re.compile(r"http://:\d+"), "http://:PORT"),
    (re.compile(r" at 0x[0-9a-f]+"), ""),
    (re.compile(r"<Task [^\n]*>"), "<Task>"),
]


def lines_of(text: str) -> list[str]:
    """Lines of output, without what differs from run to run, and without where a traceback comes from."""
    for pattern, replacement in SUBSTITUTIONS:
        text = pattern.sub(replacement, text)
    found: list[str] = []
    is_traceback = False
    for line in text.splitlines():
        if line.startswith(("Traceback ", "  + Exception Group Traceback", "Call stack:")):
            is_traceback = True
        elif is_traceback and line.startswith((" ", "\t")):
            continue
        elif is_traceback:
            is_traceback = False
            found.append(line.partition(":")[0])
        elif line.strip() and not line.startswith((" ", "Message: ", "Arguments: ")) and HTTP_CORE not in line:
            found.append(line.rstrip())
    return found


def outcome_of(run: Case, out: Any, err: Any) -> dict[str, Any]:
    """Run a case here."""
    outcome: dict[str, Any] = {}
    try:
        value = run()
        if isinstance(value, dict):
            outcome |= {key: plain(each) for key, each in value.items()}
        elif value is not None:
            outcome["value"] = plain(value)
    except BaseException as exc:
        outcome["raises"] = named(exc)
        if os.environ.get("CONTRACT_TRACEBACKS"):
            traceback.print_exc(file=sys.__stderr__)
    sys.stdout.flush()
    sys.stderr.flush()
    for name, file in (("out", out), ("log", err)):
        file.seek(0)
        if lines := lines_of(file.read().decode(errors="replace")):
            outcome[name] = lines
    return outcome


def child(run: Case, pipe: int) -> None:
    """Run a case, in a process that ends with it."""
    status = 1
    try:
        os.setsid()
        signal.alarm(LONGEST)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryDirectory() as own:
            os.chdir(own)
            sys.path.insert(0, own)
            if not os.environ.get("CONTRACT_TRACEBACKS"):
                os.dup2(err.fileno(), 2)
            os.dup2(out.fileno(), 1)
            text = json.dumps(outcome_of(run, out, err))
            os.chdir("/")
        with os.fdopen(pipe, "w") as file:
            file.write(text)
        status = 0
    finally:
        os._exit(status)


def started_case(run: Case) -> tuple[int, int]:
    """The process of a case, and where its outcome comes from."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        child(run, writing)
    os.close(writing)
    return pid, reading


MODULES = (
    *("h11", "httptools", "logging.config", "multiprocessing.spawn", "ssl", "uvloop", "websockets.asyncio.server"),
    *("uvicorn.lifespan.on", "uvicorn.logging", "uvicorn.loops.auto", "uvicorn.middleware.proxy_headers"),
    *("uvicorn.protocols.http.auto", "uvicorn.protocols.http.h11_impl", "uvicorn.protocols.http.httptools_impl"),
    *("uvicorn.protocols.websockets.auto", "uvicorn.protocols.websockets.websockets_sansio_impl"),
)
"""What most cases need, imported once instead of in each fork."""


def outcomes(cases: dict[str, Case]) -> dict[str, Any]:
    """Run cases, some beside each other."""
    for name in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()
    found: dict[str, Any] = {}
    waiting: Iterator[tuple[str, Case]] = iter(cases.items())
    running: dict[int, tuple[str, int, bytes]] = {}
    while True:
        while len(running) < AT_ONCE and (following := next(waiting, None)) is not None:
            pid, reading = started_case(following[1])
            running[reading] = (following[0], pid, b"")
        if not running:
            return {name: found[name] for name in cases}
        for reading in select.select(list(running), [], [])[0]:
            name, pid, text = running[reading]
            if more := os.read(reading, 65536):
                running[reading] = (name, pid, text + more)
                continue
            os.close(reading)
            del running[reading]
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            found[name] = json.loads(text) if text else {"ends": status}
