"""Run a case on a server inside the running process, and say what came of it."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import importlib.util
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import uvicorn
from tests.random_cases import Lines, captured, new_loop
from tests.relations.case import Case
from tests.relations.clients import Clients
from tests.relations.free import FreeApplication
from tests.relations.player import Application, Failure, Task
from tests.relations.scenes import SCENES
from tests.utils import NATIVE

PurePythonTask: Any = asyncio.tasks._PyTask  # type: ignore[attr-defined]

PATIENCE = 20.0
"""Seconds after which what does not end never will."""

QUIET_TURNS = 3_000
"""Turns of the loop without anything happening after which a case is stuck: no program sleeps for as long."""

QUIET_TIME = 1.0
"""Seconds after its begin before which no case is stuck."""

FREE_QUIET_TURNS = 60
"""The same for free programs, which may wait for each other: turns after which they are let go."""

MOST_SWEEPS = 30

HTTP3 = sys.platform == "linux" and importlib.util.find_spec("aioquic") is not None

LEVELS = {"uvicorn.error": logging.ERROR, "asyncio": logging.ERROR}


@dataclass
class Outcome:
    """What came of a case."""

    notes: dict[tuple[int, int], Any] = field(default_factory=dict)
    #: What each participant's client was sent.
    answers: dict[int, list[str]] = field(default_factory=dict)
    log: list[tuple[str, str, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class ErrorLines(Lines):
    """Keeps errors, and their texts apart: servers may say the same in other words."""

    def __init__(self) -> None:
        super().__init__()
        self.setLevel(logging.ERROR)
        self.texts: list[str] = []

    def keep(self, record: logging.LogRecord, error: str) -> None:
        """Keep where a line comes from, and the type of its exception."""
        if record.name == "asyncio" and error == Failure.__name__ and "never retrieved" in record.getMessage():
            return  # said when the collector comes by: before Python 3.12 `wait_for` does not look at what it cancels
        self.lines.append((record.name, record.levelname, error))
        self.texts.append(record.getMessage() + (f" {record.exc_info[1]!r}" if error and record.exc_info else ""))


def set_factory(loop: asyncio.AbstractEventLoop, name: str) -> None:
    """Have the loop make tasks in this way."""
    classes: dict[str, Any] = {
        "eager": functools.partial(cast(Any, asyncio.Task), eager_start=True),
        "subclass": Task,
        "python": PurePythonTask,
    }
    if (name == "eager" and sys.version_info < (3, 12)) or name not in classes:
        loop.set_task_factory(None)
        return

    # uvloop hands over what eager factories do not take.
    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, eager_start: Any = None, **keywords: Any) -> Any:
        return classes[name](coroutine, loop=loop, **keywords)

    loop.set_task_factory(make)


class Service:
    """A server that has started, on an event loop that turns while a case is run."""

    def __init__(self, loop: str, shortcuts: str | None, **settings: Any) -> None:
        self.application: Any = None
        self.loop = new_loop(loop)
        config = uvicorn.Config(
            self.call,
            host="127.0.0.1",
            port=0,
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            ws_ping_interval=None,
            timeout_keep_alive=10_000,
            **settings,
        )
        self.tls, self.h3 = config.is_ssl, bool(settings.get("http3"))
        self.server = uvicorn.Server(config)
        cast(Any, self.server).capture_signals = contextlib.nullcontext
        before = os.environ.pop("UVICORN_SHORTCUTS", None)
        if shortcuts is not None:
            os.environ["UVICORN_SHORTCUTS"] = shortcuts
        try:
            self.loop.run_until_complete(self._begin())
        finally:
            os.environ.pop("UVICORN_SHORTCUTS", None)
            if before is not None:
                os.environ["UVICORN_SHORTCUTS"] = before

    async def _begin(self) -> None:
        self.serving = asyncio.ensure_future(self.server.serve())
        while not self.server.started:
            assert not self.serving.done(), "the server has ended"
            await asyncio.sleep(0.001)
        self.address = self.server.servers[0].sockets[0].getsockname()

    async def call(self, scope: Any, receive: Any, send: Any) -> Any:
        """The application of the case that is run."""
        return await self.application(scope, receive, send)

    def run(self, case: Case, *, h2: bool) -> Outcome:
        """Run a case."""
        outcome = Outcome()
        with captured(ErrorLines(), LEVELS) as lines:
            try:
                self.loop.run_until_complete(self._run(case, outcome, h2))
            finally:
                set_factory(self.loop, "none")
        outcome.log = sorted(lines.lines)
        outcome.faults += [
            f"logged: {text}" for line, text in zip(lines.lines, lines.texts, strict=True) if line[0] == "asyncio"
        ]
        return outcome

    async def _run(self, case: Case, outcome: Outcome, h2: bool) -> None:
        before = asyncio.all_tasks()
        free = FreeApplication(case) if case.form == "free" else None
        application = self.application = free or Application(case, SCENES)
        set_factory(self.loop, case.factory)
        clients = Clients(case, application, self.address, h2=h2, h3=self.h3, tls=self.tls)
        everybody = set(range(len(case.participants)))
        state = self.server.server_state
        begin = time.monotonic()
        deadline = begin + PATIENCE
        quiet = sweeps = steps = 0
        while application.done != everybody:
            await asyncio.sleep(0)
            moved = clients.step()
            quiet = 0 if moved else quiet + 1
            if free is not None:
                quiet, steps = quiet if free.steps == steps else 0, free.steps
                if quiet > FREE_QUIET_TURNS and sweeps < MOST_SWEEPS:
                    free.sweep({number: one.sent[number] for number, one in clients.of.items()})
                    quiet, sweeps = 0, sweeps + 1
            stuck = quiet > QUIET_TURNS and time.monotonic() > begin + QUIET_TIME
            if stuck or time.monotonic() > deadline:
                self._tell_stuck(application, outcome)
                break
        for _ in range(3):
            await asyncio.sleep(0)
            clients.step()
        deadline = time.monotonic() + PATIENCE / 4
        quiet = 0
        # What is left to say is said before the clients close.
        while quiet < 50:
            await asyncio.sleep(0)
            quiet = 0 if clients.step() else quiet + 1
        clients.close()
        if free is not None:
            free.sweep({})
        application.over = True
        while state.connections or state.tasks or asyncio.all_tasks() - before:
            await asyncio.sleep(0)
            if time.monotonic() > deadline:
                left = [repr(task.get_coro()) for task in asyncio.all_tasks() - before]
                outcome.faults.append(f"left: {len(state.connections)} connections, {len(state.tasks)} tasks, {left}")
                break
        if application.done != everybody or outcome.faults:
            await self._end(before)
        if free is not None and not outcome.faults:
            free.finish()
            for connection in clients.connections:
                for number in connection.members:
                    free.check_answers(number, [said for member, said in connection.answers() if member == number])
        outcome.notes = application.notes
        outcome.faults += application.faults
        self._take_answers(case, clients, outcome)
        self.application = None

    def _tell_stuck(self, application: Application, outcome: Outcome) -> None:
        for number in range(len(application.case.participants)):
            if number not in application.done:
                rest = [
                    place for place in application.case.scenes_of(number) if (number, place) not in application.notes
                ]
                kind = application.case.scenes[rest[0]].kind if rest else "its end"
                outcome.faults.append(f"participant {number} never ends: it is at {rest[:1]}, {kind}")

    async def _end(self, before: set[asyncio.Task[Any]]) -> None:
        """Cancel what did not end by itself."""
        for connection in [*self.server.server_state.connections]:
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()
        for _ in range(5):
            if left := asyncio.all_tasks() - before:
                for task in left:
                    task.cancel()
                await asyncio.wait(left, timeout=1)

    def _take_answers(self, case: Case, clients: Clients, outcome: Outcome) -> None:
        for connection in clients.connections:
            for number, said in connection.answers():
                outcome.answers.setdefault(number, []).append(said)
                if number not in connection.members:
                    outcome.faults.append(f"participant {number} has answered the client of {connection.members}")

    def close(self) -> None:
        """End the server."""
        self.server.should_exit = True
        self.loop.run_until_complete(asyncio.wait_for(self.serving, PATIENCE))
        self.loop.close()


class Services:
    """Servers by what they are started with; each is started when it is first needed."""

    def __init__(self) -> None:
        self._services: dict[Any, Service] = {}

    def run(self, case: Case, core: str, shortcuts: str | None) -> Outcome:
        """Run a case on `core`: "native", "python" or "upstream"."""
        native = core == "native"
        names = ("auto", "auto", case.reader) if native else (case.http, case.ws, "native")
        key = (case.loop, core, shortcuts, case.tls, *names)
        if key not in self._services:
            settings: dict[str, Any] = {"http": names[0], "ws": names[1]}
            if case.tls is not None:
                # rustls is a part of the native core.
                settings |= {"tls": case.tls if NATIVE else "openssl", "ssl_certfile": certificate()}
            if native:
                settings["http2"] = True
                settings |= {"http3": True} if case.tls == "rustls" and HTTP3 else {}
            with contextlib.ExitStack() as stack:
                if core != "upstream":
                    stack.enter_context(read_by(names[2]))
                self._services[key] = Service(case.loop, shortcuts, **settings)
        return self._services[key].run(case, h2=native)

    def close(self) -> None:
        """End them all."""
        for service in self._services.values():
            service.close()
        self._services.clear()


@functools.cache
def certificate() -> str:
    """Make a certificate with its key, for as long as this process lives; the path of both."""
    import pytest  # which upstream's environment need not have

    trustme = pytest.importorskip("trustme")
    directory = tempfile.mkdtemp(prefix="relations-")
    atexit.register(shutil.rmtree, directory)
    path = os.path.join(directory, "certificate.pem")
    trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(path)
    return path


@contextlib.contextmanager
def read_by(reader: str) -> Iterator[None]:
    """Have connections read by the native core where that is possible, or by the transports of the loop."""
    from uvicorn.listening import sockets

    genuine = sockets._poller_for
    if reader == "loop":
        sockets._poller_for = lambda *arguments, **keywords: None
    try:
        yield
    finally:
        sockets._poller_for = genuine
