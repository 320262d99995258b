"""Several event loops in one process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import uvicorn
from tests.utils import request, running_thread, wait_for
from uvicorn.config import Config
from uvicorn.metrics.page import BEGUN, Page
from uvicorn.server import Server
from uvicorn.serving.drain import Stage
from uvicorn.serving.turn_taking import TurnTaking
from uvicorn.supervisors.threaded import ThreadedServer
from uvicorn.supervisors.worker import make_server


class Application:
    """Knows on which loops it was started and asked."""

    def __init__(self) -> None:
        self.started: list[asyncio.AbstractEventLoop] = []
        self.ended: list[asyncio.AbstractEventLoop] = []
        self.fails_at = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        loop = asyncio.get_running_loop()
        if scope["type"] == "lifespan":
            await receive()
            if len(self.started) + 1 == self.fails_at:
                await send({"type": "lifespan.startup.failed"})
                return
            self.started.append(loop)
            scope["state"]["loop"] = loop
            await send({"type": "lifespan.startup.complete"})
            await receive()
            self.ended.append(loop)
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = b"its own" if scope["state"]["loop"] is loop else b"another's"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


def config_of(app: Any, **settings: Any) -> Config:
    return Config(app, **{"threads": 3, "log_config": None, "port": 0, "loop": "asyncio", **settings})


@contextmanager
def serving(server: ThreadedServer) -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        address = sock.getsockname()
        with running_thread(server.run, [sock]):
            try:
                wait_for(lambda: server.started)
                yield address
            finally:
                server.stop()


def test_each_loop_has_a_lifespan_and_a_state_of_its_own(http_protocol_cls: Any) -> None:
    app = Application()
    server = ThreadedServer(config_of(app, http=http_protocol_cls, lifespan="on"))
    stages: list[Stage] = []
    server.on_stage = stages.append
    server.metrics_pages = [Page.make() for _ in range(3)]
    with serving(server) as address:
        assert server.loops == app.started
        assert len(set(app.started)) == 3
        for _ in range(6):
            assert b"its own" in request(address)
        assert not app.ended
    assert sorted(map(id, app.ended)) == sorted(map(id, app.started))
    assert sum(page.words[BEGUN] for page in server.metrics_pages) == 6
    assert stages == sorted(set(stages))
    assert {Stage.SERVING, Stage.DONE} <= set(stages)


def test_a_factory_builds_an_application_for_each_loop() -> None:
    made: list[Application] = []

    def factory() -> Application:
        made.append(Application())
        return made[-1]

    with serving(ThreadedServer(config_of(factory, factory=True, lifespan="on"))) as address:
        assert [len(app.started) for app in made] == [1, 1, 1]
        assert b"its own" in request(address)


def test_the_start_of_a_loop_does_not_block_those_that_accept() -> None:
    """They share the socket: a loop that had come late to a connection would wait in there for the next one."""
    seen: list[bool] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "lifespan"
        await receive()
        seen.append(os.get_blocking(sock.fileno()))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    server = ThreadedServer(config_of(app, lifespan="on"))
    with socket.create_server(("127.0.0.1", 0)) as sock, sock.dup() as given, running_thread(server.run, [given]):
        wait_for(lambda: server.started)
        server.stop()
    assert seen == [False, False, False]


def test_a_loop_that_cannot_start_ends_the_others(caplog: pytest.LogCaptureFixture) -> None:
    app = Application()
    app.fails_at = 2
    server = ThreadedServer(config_of(app, lifespan="on"))
    ends: list[SystemExit] = []

    def run() -> None:
        with pytest.raises(SystemExit) as caught:
            server.run([sock])
        ends.append(caught.value)

    with socket.create_server(("127.0.0.1", 0)) as sock, running_thread(run) as thread:
        thread.join(30)
        assert not thread.is_alive()
    assert [end.code for end in ends] == [3]
    assert not server.started
    assert app.ended == app.started
    assert len(app.started) == 1


def test_an_application_that_cannot_be_imported_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "uvicorn.error")
    with pytest.raises(SystemExit):
        ThreadedServer(config_of("missing_module:app")).run([])
    assert caplog.text.count("Error loading ASGI app") == 1


def test_limits_of_a_process_are_shared_out() -> None:
    server = ThreadedServer(config_of(Application(), limit_concurrency=10, limit_max_requests=2))
    config = server._config_of_loop()
    assert (config.limit_concurrency, config.limit_max_requests) == (4, 1)


@pytest.mark.parametrize("limit, part", [(10, 4), (2, 1), ("auto", "auto"), (None, None)])
def test_active_requests_of_a_process_are_shared_out(limit: Any, part: Any) -> None:
    server = ThreadedServer(config_of(Application(), limit_active_requests=limit, limit_queue=30))
    config = server._config_of_loop()
    assert (config.limit_active_requests, config.limit_queue) == (part, 10)


@pytest.mark.parametrize("has_gil", [True, False])
def test_loops_take_turns_with_the_gil(has_gil: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[asyncio.AbstractEventLoop] = []
    stopped: list[asyncio.AbstractEventLoop] = []
    monkeypatch.setattr("uvicorn.supervisors.threaded.has_gil", lambda: has_gil)
    monkeypatch.setattr(TurnTaking, "start", lambda self, loop: started.append(loop))
    monkeypatch.setattr(TurnTaking, "stop", lambda self: stopped.append(asyncio.get_running_loop()))
    server = ThreadedServer(config_of(Application()))
    with serving(server):
        loops = server.loops
    assert set(started) == (set(loops) if has_gil else set())
    assert set(stopped) == set(loops)


def test_stages_are_those_that_all_have_reached() -> None:
    server = ThreadedServer(config_of(Application(), threads=2))
    server._reached = [Stage.STARTING, Stage.STARTING]
    told: list[Stage] = []
    server.on_stage = told.append
    for number, stage in ((0, Stage.SERVING), (1, Stage.SERVING), (1, Stage.RETIRING), (0, Stage.CLOSING)):
        server._note(number, stage)
    assert told == [Stage.SERVING, Stage.RETIRING]
    server._note(1, Stage.DONE)
    assert told[-1] is Stage.CLOSING


def test_a_second_interrupt_forces_the_end_of_all() -> None:
    server = ThreadedServer(config_of(Application(), threads=2))
    server.servers = [Server(server.config), Server(server.config)]
    server.handle_exit(signal.SIGTERM, None)
    assert [loop.should_exit for loop in server.servers] == [True, True]
    assert not any(loop.force_exit for loop in server.servers)
    server.handle_exit(signal.SIGINT, None)
    assert all(loop.force_exit for loop in server.servers)


def test_each_signal_is_raised_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIG-08: SIGINT's exception does not swallow the SIGTERM before it."""
    raised: list[int] = []

    def raise_signal(number: int) -> None:
        raised.append(number)
        if number == signal.SIGINT:
            raise KeyboardInterrupt

    monkeypatch.setattr(signal, "raise_signal", raise_signal)
    server = ThreadedServer(config_of(Application(), threads=2))
    server._captured = [signal.SIGTERM, signal.SIGINT]
    with pytest.raises(KeyboardInterrupt):
        server._raise()
    assert raised == [signal.SIGINT, signal.SIGTERM]


def test_a_loop_that_starts_when_the_end_was_asked_for_ends() -> None:
    server = ThreadedServer(config_of(Application(), threads=2))
    server._wakeup.open()
    server._captured.append(signal.SIGTERM)  # behind the look at it, before there is a loop to be told
    with socket.create_server(("127.0.0.1", 0)) as sock:
        thread = server._start(0, [sock], None)
        thread.join(30)
    assert not thread.is_alive()
    server._wakeup.close()


def test_a_worker_is_told_that_others_serve() -> None:
    server = ThreadedServer(config_of(Application(), threads=2))
    server.servers = [Server(server.config), Server(server.config)]
    server.relieve()
    assert all(loop._relieved for loop in server.servers)


@pytest.mark.parametrize("threads, kind", [(1, Server), (2, ThreadedServer)])
def test_what_serves_follows_from_the_number_of_loops(threads: int, kind: type) -> None:
    assert type(make_server(config_of(Application(), threads=threads))) is kind


@pytest.mark.parametrize("started", [True, False])
def test_one_process_of_several_loops_has_no_parent(started: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[int] = []

    class Double:
        def __init__(self, config: Config) -> None:
            self.started = started

        def run(self, sockets: list[socket.socket]) -> None:
            served.append(sockets[0].getsockname()[1])

    monkeypatch.setattr("uvicorn.supervisors.threaded.ThreadedServer", Double)
    status = None
    try:
        uvicorn.run(Application(), threads=2, port=0, log_config=None)
    except SystemExit as exc:
        status = exc.code
    assert len(served) == 1
    assert status == (None if started else 3)
