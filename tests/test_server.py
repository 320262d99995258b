"""The server in the running event loop: its life, its limits, its end; as a process, the ends that are not easy."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import json
import logging
import os
import pickle
import random
import signal
import socket
import struct
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import loops
from tests.process import ServerProcess
from tests.utils import (
    GIL,
    open_connection,
    read_to_end,
    read_until,
    request,
    run_server,
    running_thread,
    server_port,
    turns,
    wait_for,
    wait_until,
)
from uvicorn import server as module
from uvicorn._compat import asyncio_run
from uvicorn.config import Config
from uvicorn.server import Server
from uvicorn.serving.drain import Stage

pytestmark = pytest.mark.anyio

anyloop = loops.factory

App = Callable[[Any, Any, Any], Awaitable[None]]
GET = b"GET / HTTP/1.1\r\nhost: test\r\n\r\n"


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="uvicorn.error")
    return caplog


def lines(log: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in log.records if record.name == "uvicorn.error"]


async def respond(send: Any, body: bytes = b"ok", status: int = 200) -> None:
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    await respond(send)


def make_config(application: App = app, **settings: Any) -> Config:
    # With "auto" the log says so where the native core is missing.
    return Config(application, **{"port": 0, "http": "h11", "log_config": None, **settings})


class Client:
    """A raw connection to the server under test, in the same event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def until(self, marker: bytes) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(marker), 30)

    async def rest(self) -> bytes:
        return await asyncio.wait_for(self.reader.read(), 30)

    def reset(self) -> None:
        """Go away for good: a plain close could be one of the sending side only."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
        )
        self.writer.transport.abort()


@asynccontextmanager
async def connect(server: Server) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server_port(server))
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


class Stopping:
    """`run_server`, but stopped by the test, which then waits for the end."""

    def __init__(self, config: Config) -> None:
        self.server = Server(config)
        self.task = asyncio.create_task(self.server.serve())

    async def __aenter__(self) -> Stopping:
        await wait_until(lambda: self.server.started or self.task.done())
        return self

    async def end(self) -> None:
        await asyncio.wait_for(self.task, 30)

    async def __aexit__(self, *exc: object) -> None:
        self.server.should_exit = True
        self.server.force_exit = True
        await self.end()


# The lines of a life


async def test_lines_from_start_to_end(log: pytest.LogCaptureFixture) -> None:
    """LIFE-01, LIFE-02, LIFE-04, LIFE-07, LIFE-25, API-18"""
    async with run_server(make_config()) as server:
        port = server_port(server)
    pid = os.getpid()
    assert lines(log) == [
        f"Started server process [{pid}]",
        "Waiting for application startup.",
        "Application startup complete.",
        f"Uvicorn running on http://127.0.0.1:{port} (Press CTRL+C to quit)",
        "Shutting down",
        "Waiting for application shutdown.",
        "Application shutdown complete.",
        f"Finished server process [{pid}]",
    ]
    assert {record.levelname for record in log.records} == {"INFO"}
    records = {record.msg: record for record in log.records}
    assert records["Started server process [%d]"].args == (pid,)
    assert records["Finished server process [%d]"].args == (pid,)
    running = records["Uvicorn running on %s://%s:%d (Press CTRL+C to quit)"]
    assert running.args == ("http", "127.0.0.1", port)
    started = records["Started server process [%d]"]
    assert started.__dict__["color_message"] == "Started server process [\033[36m%d\033[0m]"


async def test_lifespan_off_has_no_application_lines(log: pytest.LogCaptureFixture) -> None:
    """LIFE-03"""
    async with run_server(make_config(lifespan="off")):
        pass
    assert [line for line in lines(log) if "pplication" in line] == []


async def test_configuration_is_loaded_by_serving_it() -> None:
    """API-05"""
    config = make_config()
    assert not config.loaded
    async with run_server(config) as server:
        assert config.loaded
        assert server.started


async def test_application_that_does_not_start_is_not_served(log: pytest.LogCaptureFixture) -> None:
    """LSP-07, X3"""

    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("no")

    server = Server(make_config(broken, lifespan="on"))
    with pytest.raises(SystemExit) as caught:
        await server.serve()
    assert caught.value.code == 3
    assert not server.started
    assert server.should_exit
    assert "Finished" not in lines(log)[-1]


@pytest.mark.parametrize("given", [False, True], ids=["", "sockets"])
def test_program_whose_application_does_not_start_ends_with_status_3(given: bool) -> None:
    """LSP-09: also where the program runs the server itself."""

    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed"})

    with socket.create_server(("127.0.0.1", 0)) as sock:
        server = Server(make_config(broken))
        with pytest.raises(SystemExit) as caught:
            server.run(sockets=[sock] if given else None)
        assert caught.value.code == 3
        with pytest.raises(SystemExit) as caught:
            asyncio.run(Server(make_config(broken)).serve([sock] if given else None))
        assert caught.value.code == 3


async def test_startup_main_loop_and_shutdown_can_be_called_one_by_one(log: pytest.LogCaptureFixture) -> None:
    """API-18: as programs do that bring a loop of their own."""
    server = Server(make_config())
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup()
    loop = asyncio.create_task(server.main_loop())
    async with connect(server) as client:
        client.send(GET)
        assert (await client.until(b"ok")).startswith(b"HTTP/1.1 200 OK")
    server.should_exit = True
    await loop
    await server.shutdown()
    assert lines(log)[-1] == "Application shutdown complete."


async def test_should_exit_during_startup_still_shuts_down(log: pytest.LogCaptureFixture) -> None:
    """SIG-11, X3: the socket is bound, the running line logged, and shutdown follows at once."""
    server: Server

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        server.should_exit = True
        await turns()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    server = Server(make_config(slow))
    await server.serve()
    assert server.started
    assert [line.split()[0] for line in lines(log)[2:]] == [
        *("Application", "Uvicorn", "Shutting", "Waiting", "Application", "Finished")
    ]


async def test_forced_end_during_startup_cancels_it(log: pytest.LogCaptureFixture) -> None:
    """K8: a start-up that hangs can be interrupted."""
    cancelled = False

    async def hanging(scope: Any, receive: Any, send: Any) -> None:
        nonlocal cancelled
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled = True

    server = Server(make_config(hanging))
    task = asyncio.create_task(server.serve())
    await wait_until(lambda: "Waiting for application startup." in lines(log))
    server.force_exit = True
    await asyncio.wait_for(task, 30)
    assert cancelled
    assert not server.started
    assert lines(log)[2:] == [
        "Application startup cancelled: the shutdown was forced (second SIGINT, force_exit or a blocked event loop)."
    ]


async def test_stages_are_reported() -> None:
    """The supervisor judges by them."""
    stages: list[Stage] = []
    async with Stopping(make_config()) as stopping:
        stopping.server.on_stage = stages.append
        stopping.server.should_exit = True
        await stopping.end()
    assert stages == [Stage.REFUSING, Stage.CLOSING, Stage.DONE]


async def test_server_goes_on_accepting_while_it_is_not_ready(
    http_protocol_cls: Any, log: pytest.LogCaptureFixture
) -> None:
    """X7: load balancers have time to notice."""
    stages: list[Stage] = []
    config = make_config(http=http_protocol_cls, drain_delay=3600, lifecycle_path="/-/")

    async def ask(target: bytes) -> bytes:
        async with connect(stopping.server) as client:
            client.send(b"GET %b HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n" % target)
            return await client.rest()

    async with Stopping(config) as stopping:
        stopping.server.on_stage = stages.append
        assert b" 200 OK" in await ask(b"/-/ready")
        report = json.loads((await ask(b"/-/status")).partition(b"\r\n\r\n")[2])
        assert (report["pid"], report["stage"], report["ready"], report["requests"]) == (
            os.getpid(),
            "serving",
            True,
            1,
        )
        stopping.server.should_exit = True
        await wait_until(lambda: stages)
        assert b" 503 " in await ask(b"/-/ready")
        assert b" 200 OK" in await ask(b"/-/live")
        answer = await ask(b"/")
        assert answer.endswith(b"ok")
        stopping.server.relieve()
        await stopping.end()
    assert stages == [Stage.LEAVING, Stage.REFUSING, Stage.CLOSING, Stage.DONE]
    assert "Draining: accepting connections for another 3600 seconds. (CTRL+C to force quit)" in lines(log)


async def test_worker_hears_that_others_serve_a_moment_after_it_is_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """X7: the word comes by another way than the signal. It never says that it is not ready."""
    monkeypatch.setattr(module, "RELIEF", 3600)
    stages: list[Stage] = []
    async with Stopping(make_config(drain_delay=7200)) as stopping:
        stopping.server.has_successor = True
        stopping.server.on_stage = stages.append
        stopping.server.should_exit = True
        await turns()
        stopping.server.relieve()
        await stopping.end()
    assert Stage.LEAVING not in stages


async def test_worker_that_nobody_relieves_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """X7"""
    monkeypatch.setattr(module, "RELIEF", 0)
    async with Stopping(make_config(drain_delay=7200)) as stopping:
        stopping.server.has_successor = True
        stopping.server.should_exit = True
        await wait_until(lambda: stopping.server.stage is Stage.LEAVING)
        stopping.server.relieve()
        await stopping.end()


async def test_forced_end_does_not_wait_until_clients_know() -> None:
    """X7, K8: by the second SIGINT."""
    async with Stopping(make_config(drain_delay=3600)) as stopping:
        stopping.server.handle_exit(signal.SIGINT, None)
        await wait_until(lambda: stopping.server.stage is Stage.LEAVING)
        stopping.server._captured_signals.clear()
        stopping.server.force_exit = True
        await stopping.end()


@pytest.mark.parametrize("why", ["relieved", "forced"])
async def test_delay_is_for_servers_that_others_do_not_stand_in_for(why: str) -> None:
    """X7"""
    stages: list[Stage] = []
    async with Stopping(make_config(drain_delay=3600)) as stopping:
        stopping.server.on_stage = stages.append
        if why == "relieved":
            stopping.server.relieve()
        else:
            stopping.server.force_exit = True
        stopping.server.should_exit = True
        await stopping.end()
    assert Stage.LEAVING not in stages


async def test_server_can_be_pickled_before_it_runs() -> None:
    """RLD-05: its `run` is the target of a child process."""

    class Plain(Server):
        pass

    server = Server(make_config(app, workers=1))
    server.should_exit = True
    vars(server)["custom"] = "kept"
    copy = pickle.loads(pickle.dumps(server.run)).__self__
    assert type(copy) is Server
    assert copy.config.port == 0
    assert vars(copy)["custom"] == "kept"
    assert not copy.should_exit
    assert copy.server_state is not server.server_state


# Bind failures


async def test_address_in_use_ends_with_status_3_after_a_lifespan_shutdown(log: pytest.LogCaptureFixture) -> None:
    """LIFE-09, LIFE-10, LIFE-26"""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = Server(make_config(port=taken.getsockname()[1]))
        with pytest.raises(SystemExit) as caught:
            await server.serve()
    assert caught.value.code == 3
    assert not server.started
    assert "error while attempting to bind on address" in lines(log)[3]
    assert "choose another port" in lines(log)[4]
    assert lines(log)[5:] == ["Waiting for application shutdown.", "Application shutdown complete."]


@pytest.mark.skipif(sys.platform == "win32", reason="no such settings on Windows")
@pytest.mark.parametrize("settings", [{"fd": 987}, {"uds": "/nonexistent/directory/s"}], ids=["fd", "uds"])
async def test_descriptor_or_path_that_cannot_be_used_is_an_oserror(
    settings: dict[str, Any], log: pytest.LogCaptureFixture
) -> None:
    """LIFE-09: the application is shut down first."""
    with pytest.raises(OSError):
        await Server(make_config(**settings)).serve()
    assert lines(log)[-1] == "Application shutdown complete."


FAILURES: dict[str, Callable[[pytest.MonkeyPatch, Server], object]] = {
    "a host that is none": lambda patch, server: setattr(server.config, "host", 0),
    "a backlog that is none": lambda patch, server: setattr(server.config, "backlog", "many"),
    "the protocol": lambda patch, server: setattr(server, "_protocol_factory", fail),
    "the sockets' source": lambda patch, server: patch.setattr("uvicorn.listening.sockets.source_of", fail),
    "the line in the log": lambda patch, server: setattr(server, "_log_started_message", fail),
    "what is told of the stage": lambda patch, server: setattr(server, "on_stage", fail_once),
    "certificates": lambda patch, server: setattr(server, "_watch_certificates", fail),
    "the main loop": lambda patch, server: setattr(server, "main_loop", fail),
    "the drain": lambda patch, server: vars(server).update(_refuse=fail, main_loop=return_at_once),
}


def fail(*args: object, **kwargs: object) -> Any:
    raise TypeError("failed")


async def return_at_once() -> None:
    pass


def fail_once(stage: Stage) -> None:
    if stage is Stage.SERVING:
        fail()


@pytest.mark.parametrize("what", FAILURES)
async def test_whatever_fails_once_the_application_has_started_shuts_it_down(
    what: str, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upstream does after a bind failure only."""
    server = Server(make_config(http="auto"))
    FAILURES[what](monkeypatch, server)
    with pytest.raises(TypeError):
        await asyncio.wait_for(server.serve(), 30)
    assert lines(log)[-2:] == ["Waiting for application shutdown.", "Application shutdown complete."]
    assert not any(listener.sockets for listener in server.servers)


async def test_startup_of_a_subclass_that_fails_shuts_the_application_down(log: pytest.LogCaptureFixture) -> None:
    class Failing(Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            fail()

    server = Failing(make_config())
    with pytest.raises(TypeError):
        await server.serve()
    assert lines(log)[-1] == "Application shutdown complete."
    assert lines(log).count("Shutting down") == 1
    assert not any(listener.sockets for listener in server.servers)


async def test_start_that_is_cancelled_while_a_name_is_resolved_shuts_the_application_down(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """API-19"""
    resolving = asyncio.Event()

    async def resolve(*args: object, **kwargs: object) -> None:
        resolving.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    task = asyncio.create_task(Server(make_config(host="a.name.invalid")).serve())
    await asyncio.wait_for(resolving.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 30)
    assert lines(log)[-1] == "Application shutdown complete."


async def test_host_that_is_not_set_is_served_on_all_interfaces(log: pytest.LogCaptureFixture) -> None:
    async with run_server(make_config(host=None)) as server:
        addresses = [sock.getsockname() for listener in server.servers for sock in listener.sockets]
        assert [address[0] for address in addresses] == ["0.0.0.0", "::"]
        for host, address in zip(["127.0.0.1", "::1"], addresses, strict=True):
            assert (await asyncio.to_thread(request, (host, address[1]))).endswith(b"ok")
    assert f"Uvicorn running on http://0.0.0.0:{addresses[0][1]} (Press CTRL+C to quit)" in lines(log)


# Sockets that are given


async def test_given_sockets_are_served_without_a_running_line_and_closed(log: pytest.LogCaptureFixture) -> None:
    """SOCK-15"""
    sockets = [socket.socket() for _ in range(2)]
    for sock in sockets:
        sock.bind(("127.0.0.1", 0))
    addresses = [sock.getsockname() for sock in sockets]
    async with run_server(make_config(), sockets=sockets):
        for address in addresses:
            assert (await asyncio.to_thread(request, address)).endswith(b"ok")
    assert [sock.fileno() for sock in sockets] == [-1, -1]
    assert not any("running" in line for line in lines(log))


async def test_no_sockets_at_all_is_a_server_that_listens_nowhere() -> None:
    """SOCK-15"""
    async with run_server(make_config(), sockets=[]) as server:
        assert server.servers == []


async def test_socket_that_cannot_listen_ends_with_status_3() -> None:
    with socket.socket() as first, socket.socket() as second:
        for sock in (first, second):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        first.bind(("127.0.0.1", 0))
        second.bind(first.getsockname())
        first.listen()
        with pytest.raises(SystemExit) as caught:
            await Server(make_config()).serve(sockets=[second])
        assert caught.value.code == 3


# Connections at the end


async def test_new_connections_are_refused_while_old_ones_finish(http_protocol_cls: Any) -> None:
    """LIFE-13, LIFE-15, K7"""
    go_on = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await go_on.wait()
        await respond(send)

    async with Stopping(make_config(slow, http=http_protocol_cls, lifespan="off")) as stopping:
        address = ("127.0.0.1", server_port(stopping.server))
        async with connect(stopping.server) as client:
            client.send(GET)
            await wait_until(lambda: stopping.server.server_state.tasks)
            stopping.server.should_exit = True
            await wait_until(lambda: not stopping.server.servers[0].sockets)
            with pytest.raises(ConnectionRefusedError):
                open_connection(address)
            go_on.set()
            response = await client.rest()
            assert response.endswith(b"ok")
            assert b"connection: close" in response.lower()
            await stopping.end()


@pytest.mark.parametrize("sent", [b"", b"GET / HT"], ids=["nothing", "part of a head"])
async def test_idle_connections_are_closed_without_a_byte(http_protocol_cls: Any, sent: bytes) -> None:
    """LIFE-14, K7"""
    async with (
        Stopping(make_config(http=http_protocol_cls, timeout_graceful_shutdown=-1)) as stopping,
        connect(stopping.server) as client,
    ):
        client.send(sent)
        await wait_until(lambda: stopping.server.server_state.connections)
        stopping.server.should_exit = True
        assert await client.rest() == b""
        await stopping.end()


async def test_connection_kept_alive_is_closed_without_a_word(
    http_protocol_cls: Any, log: pytest.LogCaptureFixture
) -> None:
    """LIFE-14, K7: neither to the client, which might have asked once more, nor in the log."""
    async with (
        Stopping(make_config(http=http_protocol_cls, timeout_keep_alive=3600)) as stopping,
        connect(stopping.server) as client,
    ):
        client.send(GET)
        await client.until(b"ok")
        stopping.server.should_exit = True
        assert await client.rest() == b""
        await stopping.end()
    assert not any("Waiting for connections" in line for line in lines(log))


async def test_pipelined_request_is_not_answered_any_more(http_protocol_cls: Any) -> None:
    """LIFE-24"""
    go_on = asyncio.Event()
    calls = 0

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        nonlocal calls
        calls += 1
        await go_on.wait()
        await respond(send)

    async with (
        Stopping(make_config(slow, http=http_protocol_cls, lifespan="off")) as stopping,
        connect(stopping.server) as client,
    ):
        client.send(GET)
        await wait_until(lambda: calls)
        stopping.server.should_exit = True
        await wait_until(lambda: not stopping.server.servers[0].sockets)
        client.send(GET)
        await turns()
        go_on.set()
        assert (await client.rest()).count(b"HTTP/1.1 ") == 1
        await stopping.end()
    assert calls == 1


async def test_task_whose_client_has_gone_is_waited_for(log: pytest.LogCaptureFixture) -> None:
    """LIFE-17, LIFE-18, CON-09"""
    go_on = asyncio.Event()
    finished = False

    async def working(scope: Any, receive: Any, send: Any) -> None:
        nonlocal finished
        await go_on.wait()
        finished = True

    async with Stopping(make_config(working, lifespan="off")) as stopping:
        async with connect(stopping.server) as client:
            client.send(GET)
            await wait_until(lambda: stopping.server.server_state.tasks)
            client.reset()
        await wait_until(lambda: not stopping.server.server_state.connections)
        stopping.server.should_exit = True
        await wait_until(lambda: "Waiting for background tasks to complete. (CTRL+C to force quit)" in lines(log))
        go_on.set()
        await stopping.end()
    assert finished


async def test_cancelled_request_is_answered_with_500(http_protocol_cls: Any, log: pytest.LogCaptureFixture) -> None:
    """LIFE-20, LIFE-21, LIFE-22, LIFE-23, K8"""

    async def stuck(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await app(scope, receive, send)
        await asyncio.sleep(3600)

    async with (
        Stopping(make_config(stuck, http=http_protocol_cls, timeout_graceful_shutdown=0)) as stopping,
        connect(stopping.server) as client,
    ):
        client.send(GET)
        await wait_until(lambda: stopping.server.server_state.tasks)
        stopping.server.should_exit = True
        assert (await client.rest()).startswith(b"HTTP/1.1 500 ")
        await stopping.end()
    shown = lines(log)
    assert "Cancel 1 running task(s), timeout graceful shutdown exceeded" in shown
    assert any(line.startswith("Exception in ASGI application") for line in shown)
    assert "Waiting for connections to close. (CTRL+C to force quit)" not in shown
    assert "Application shutdown complete." in shown


async def test_forced_end_skips_the_lifespan(log: pytest.LogCaptureFixture) -> None:
    """LIFE-23, SIG-06, LSP-22, API-18"""

    async def stuck(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await app(scope, receive, send)
        await asyncio.sleep(3600)

    async with (
        Stopping(make_config(stuck, timeout_graceful_shutdown=-1)) as stopping,
        connect(stopping.server) as client,
    ):
        client.send(GET)
        await wait_until(lambda: stopping.server.server_state.tasks)
        stopping.server.should_exit = True
        await wait_until(lambda: any(line.startswith("Waiting for connections") for line in lines(log)))
        stopping.server.force_exit = True
        assert await client.rest() == b""
        await stopping.end()
    assert "Waiting for application shutdown." not in lines(log)
    assert "ASGI 'lifespan' protocol appears unsupported." not in lines(log)


async def test_lifespan_shutdown_has_a_deadline(log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """K8: upstream waits for ever."""
    monkeypatch.setattr(module, "LEAST_LIFESPAN_SHUTDOWN", 0.05)

    async def hanging(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await asyncio.sleep(3600)

    async with Stopping(make_config(hanging, timeout_graceful_shutdown=0)) as stopping:
        stopping.server.should_exit = True
        await stopping.end()
    assert any(line.startswith("Application shutdown not complete after") for line in lines(log))
    assert lines(log)[-1].startswith("Finished")


async def test_lifespan_shutdown_has_none_where_the_drain_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """LIFE-19: a negative timeout waits for ever."""
    monkeypatch.setattr(module, "LEAST_LIFESPAN_SHUTDOWN", 0.0)
    go_on = asyncio.Event()
    ended = False

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        nonlocal ended
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await go_on.wait()
        ended = True

    async with Stopping(make_config(slow, timeout_graceful_shutdown=-1)) as stopping:
        stopping.server.should_exit = True
        await turns(50)
        assert not stopping.task.done()
        go_on.set()
        await stopping.end()
    assert ended


class Held:
    """An application whose requests are answered when the test says so."""

    def __init__(self) -> None:
        self.release = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await app(scope, receive, send)
        await self.release.wait()
        await respond(send)


@asynccontextmanager
async def cancelled_amid_a_request(held: Held, **settings: Any) -> AsyncIterator[tuple[Server, Client]]:
    """A server whose `serve()` was cancelled while `held` had a request."""
    server = Server(make_config(held, **settings))
    task = asyncio.create_task(server.serve())
    await wait_until(lambda: server.started)
    async with connect(server) as client:
        client.send(GET)
        await wait_until(lambda: server.server_state.tasks)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 30)
        yield server, client


async def test_cancelling_serve_waits_for_nobody_and_refuses_new_clients(
    http_protocol_cls: Any, log: pytest.LogCaptureFixture
) -> None:
    """API-19: upstream goes on serving. A request in progress is finished, as the last one of its connection."""
    held = Held()
    async with cancelled_amid_a_request(held, http=http_protocol_cls) as (server, client):
        assert not server.servers[0].sockets
        assert len(server.server_state.connections) == 1
        held.release.set()
        assert b"\r\nconnection: close\r\n" in await client.rest()
        assert "Shutting down" not in lines(log)
        await server.shutdown()
    assert lines(log)[-1] == "Application shutdown complete."


async def test_shutdown_after_a_cancelled_serve_lets_requests_finish(
    http_protocol_cls: Any, log: pytest.LogCaptureFixture
) -> None:
    """API-19: what launchers do."""
    held = Held()
    async with cancelled_amid_a_request(held, http=http_protocol_cls) as (server, client):
        ending = asyncio.create_task(server.shutdown())
        await wait_until(lambda: "Waiting for connections to close. (CTRL+C to force quit)" in lines(log))
        assert server.server_state.tasks
        held.release.set()
        assert (await client.rest()).endswith(b"ok")
        await asyncio.wait_for(ending, 30)
        assert lines(log)[-1] == "Application shutdown complete."
        await asyncio.wait_for(server.shutdown(), 30)  # some do it once more


async def test_shutdown_after_a_cancelled_serve_has_the_deadline_that_was_asked_for(
    log: pytest.LogCaptureFixture,
) -> None:
    """LIFE-22"""
    async with cancelled_amid_a_request(Held(), timeout_graceful_shutdown=0) as (server, _):
        await asyncio.wait_for(server.shutdown(), 30)
        assert not server.server_state.tasks
    assert "Cancel 1 running task(s), timeout graceful shutdown exceeded" in lines(log)


async def serve_one_request(kept: list[weakref.ref[Any]], http: Any) -> None:
    """Serve, and leave it to whoever ends the loop to cancel that."""
    server = Server(make_config(http=http))
    kept += [weakref.ref(server), weakref.ref(server.server_state.connections)]
    task = asyncio.create_task(server.serve())
    await wait_until(lambda: server.started)
    async with connect(server) as client:
        client.send(GET)
        assert (await client.until(b"ok")).endswith(b"ok")
    await wait_until(lambda: not server.server_state.connections)
    assert not task.done()


def test_nothing_is_left_of_servers_that_end_with_their_loops(
    http_protocol_cls: Any, anyloop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """`asyncio.run()` cancels what is left, and nobody calls `shutdown()`: the next lets go of the last."""
    kept: list[weakref.ref[Any]] = []
    for _ in range(3):
        asyncio_run(serve_one_request(kept, http_protocol_cls), loop_factory=anyloop)
    gc.collect()
    assert [ref for ref in kept[:-2] if ref() is not None] == []


def test_run_that_is_cancelled_from_inside_shuts_the_application_down(
    unused_tcp_port: int, log: pytest.LogCaptureFixture
) -> None:
    """Nobody else could: an application may cancel all tasks of its loop."""

    async def cancelling(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await app(scope, receive, send)
        await respond(send)
        (server_task,) = (task for task in asyncio.all_tasks() if "_serve_and_abandon" in repr(task.get_coro()))
        server_task.cancel()

    server = Server(make_config(cancelling, port=unused_tcp_port, loop="asyncio"))

    def run() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            server.run()

    with running_thread(run):
        wait_for(lambda: server.started)
        assert request(("127.0.0.1", unused_tcp_port)).endswith(b"ok")
    assert lines(log)[-1] == "Application shutdown complete."


async def test_cancelling_serve_during_startup_cancels_the_lifespan() -> None:
    """API-19"""
    cancelled = False
    waiting = asyncio.Event()

    async def hanging(scope: Any, receive: Any, send: Any) -> None:
        nonlocal cancelled
        waiting.set()
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled = True

    task = asyncio.create_task(Server(make_config(hanging)).serve())
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled


# Exit flag, ticks and limits


async def test_configuration_that_is_loaded_already_is_served() -> None:
    """API-05: it can be loaded once only."""
    config = make_config()
    config.load()
    async with run_server(config) as server, connect(server) as client:
        client.send(GET)
        await client.until(b"ok")


def test_run_serves_a_configuration_that_is_loaded_already(unused_tcp_port: int) -> None:
    """API-05"""
    config = make_config(port=unused_tcp_port, lifespan="off")
    config.load()
    server = Server(config)
    with running_thread(server.run):
        wait_for(lambda: server.started)
        assert request(("127.0.0.1", unused_tcp_port)).endswith(b"ok")
        server.should_exit = True


async def test_should_exit_can_be_set_by_any_thread() -> None:
    """API-18"""
    async with Stopping(make_config()) as stopping:
        await asyncio.to_thread(setattr, stopping.server, "should_exit", True)
        await stopping.end()


async def test_flags_can_be_taken_back() -> None:
    """API-18"""
    server = Server(make_config())
    for name in ("should_exit", "force_exit"):
        assert getattr(server, name) is False
        setattr(server, name, True)
        assert getattr(server, name) is True
        setattr(server, name, False)
        assert getattr(server, name) is False


async def test_server_that_has_nothing_to_do_sleeps() -> None:
    """LIFE-11, LIFE-12: no background tick."""
    loop = asyncio.get_running_loop()
    async with run_server(make_config(limit_max_requests=10)):
        await turns(50)
        assert not loop._ready  # type: ignore[attr-defined]
        assert [timer for timer in loop._scheduled if not timer.cancelled()] == []  # type: ignore[attr-defined]


async def test_request_limit_ends_the_server(http_protocol_cls: Any, log: pytest.LogCaptureFixture) -> None:
    """LIM-07, LIM-08"""
    async with Stopping(make_config(http=http_protocol_cls, limit_max_requests=2)) as stopping:
        async with connect(stopping.server) as client:
            client.send(GET)
            await client.until(b"ok")
            assert not stopping.task.done()
            client.send(GET)
            await client.until(b"ok")
            await stopping.end()
        assert not stopping.server.should_exit
    assert lines(log).count("Maximum request limit of 2 exceeded. Terminating process.") == 1
    (record,) = [record for record in log.records if "Maximum" in record.msg]
    assert (record.levelname, record.args) == ("INFO", (2,))
    assert "Application shutdown complete." in lines(log)


async def test_server_with_a_successor_serves_on_at_its_limit(
    http_protocol_cls: Any, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MP-21, LIM-08: it says so, and ends when it is told to; the heartbeat goes on."""
    monkeypatch.setattr(module, "NOTIFY_INTERVAL", 0.01)
    stages: list[Stage] = []
    beats = 0

    async def beat() -> None:
        nonlocal beats
        beats += 1

    config = make_config(http=http_protocol_cls, limit_max_requests=1, callback_notify=beat, timeout_notify=0)
    async with Stopping(config) as stopping:
        stopping.server.on_stage = stages.append
        stopping.server.has_successor = True
        async with connect(stopping.server) as client:
            client.send(GET)
            await client.until(b"ok")
            await wait_until(lambda: stages)
            before = beats
            await wait_until(lambda: beats > before + 2)
            client.send(GET)
            await client.until(b"ok")
            assert stages == [Stage.RETIRING]
            assert not stopping.task.done()
            stopping.server.should_exit = True
            await stopping.end()
    assert stages == [Stage.RETIRING, Stage.REFUSING, Stage.CLOSING, Stage.DONE]
    assert lines(log).count("Maximum request limit of 1 exceeded. Terminating process.") == 1


async def test_server_that_is_told_to_end_asks_for_no_successor() -> None:
    """MP-21"""
    stages: list[Stage] = []
    async with Stopping(make_config(limit_max_requests=10)) as stopping:
        stopping.server.on_stage = stages.append
        stopping.server.has_successor = True
        stopping.server.should_exit = True
        await stopping.end()
    assert Stage.RETIRING not in stages


async def test_connection_close_for_all_responses_closes_each_connection(http_protocol_cls: Any) -> None:
    """RES-24"""
    config = make_config(http=http_protocol_cls, headers=[("Connection", "Close")])
    async with run_server(config) as server, connect(server) as client:
        client.send(GET + GET)
        head, _, rest = (await client.rest()).partition(b"\r\n\r\n")
        assert head.lower().count(b"\r\nconnection: close") == head.lower().count(b"connection") == 1
        assert rest == b"ok"


async def test_request_without_a_complete_response_does_not_count(http_protocol_cls: Any) -> None:
    """LIM-17"""

    async def waiting(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "http.request"
        assert (await receive())["type"] == "http.disconnect"

    config = make_config(waiting, http=http_protocol_cls, limit_max_requests=1, lifespan="off")
    async with run_server(config) as server:
        async with connect(server) as client:
            client.send(GET)
            await wait_until(lambda: server.server_state.tasks)
        await wait_until(lambda: not server.server_state.tasks)
        assert server.server_state.total_requests == 0


async def test_jitter_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """LIM-10, API-17"""
    drawn: list[tuple[int, int]] = []

    def randint(low: int, high: int) -> int:
        drawn.append((low, high))
        return high

    monkeypatch.setattr(random, "randint", randint)
    server = Server(make_config(limit_max_requests=10, limit_max_requests_jitter=5))
    assert [server.limit_max_requests, server.limit_max_requests] == [15, 15]
    assert drawn == [(0, 5)]
    assert Server(make_config(limit_max_requests_jitter=5)).limit_max_requests is None


async def test_tick_says_whether_to_end(log: pytest.LogCaptureFixture) -> None:
    """LIFE-11, LIM-08"""
    server = Server(make_config(limit_max_requests=2))
    assert await server.on_tick(0) is False
    server.should_exit = True
    assert await server.on_tick(1) is True
    server.should_exit = False
    server.server_state.total_requests = 2
    assert await server.on_tick(2) is True
    assert lines(log) == ["Maximum request limit of 2 exceeded. Terminating process."]


async def test_callback_is_called_at_once_and_then_when_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """LIFE-27"""
    monkeypatch.setattr(module, "NOTIFY_INTERVAL", 0.05)
    calls: list[float] = []

    async def notify() -> None:
        calls.append(time.time())

    config = make_config(callback_notify=notify, timeout_notify=0)
    async with run_server(config) as server:
        await wait_until(lambda: len(calls) >= 3)
        assert calls[-2] < server.last_notified <= calls[-1]
        monkeypatch.setattr(module, "NOTIFY_INTERVAL", 3600)
        called = len(calls)
        assert await server.on_tick(10) is False
        assert len(calls) == called


async def test_tick_calls_back_each_tenth_time_if_that_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """LIFE-27"""
    now = 1000.0
    monkeypatch.setattr(time, "time", lambda: now)
    calls = 0

    async def notify() -> None:
        nonlocal calls
        calls += 1

    server = Server(make_config(callback_notify=notify, timeout_notify=30))
    for counter in range(1, 10):
        await server.on_tick(counter)
    assert calls == 0
    await server.on_tick(10)
    await server.on_tick(20)
    assert (calls, server.last_notified) == (1, 1000.0)
    now = 1029.0
    await server.on_tick(30)
    assert calls == 1
    now = 1031.0
    await server.on_tick(40)
    assert calls == 2
    now = 500.0  # the clock was set back
    await server.on_tick(50)
    assert calls == 3


async def test_callback_that_fails_ends_the_server_and_its_error_comes_out(log: pytest.LogCaptureFixture) -> None:
    """LIFE-27: unlike upstream's, the sockets are closed and the application is shut down, requests first."""

    async def notify() -> None:
        raise ZeroDivisionError

    server = Server(make_config(callback_notify=notify))
    with pytest.raises(ZeroDivisionError):
        await server.serve()
    assert not server.servers[0].sockets
    assert "Application shutdown complete." in lines(log)


# What programs replace


async def start(server: Server, sockets: list[socket.socket] | None = None) -> None:
    """As programs do that have a main loop of their own."""
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup(sockets=sockets)


class Ticking(Server):
    """Ends by itself, after some calls."""

    calls = 3

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.counters: list[int] = []

    async def on_tick(self, counter: int) -> bool:
        self.counters.append(counter)
        return len(self.counters) >= self.calls or await super().on_tick(counter)


async def test_tick_of_a_subclass_is_called_until_it_ends_the_server(log: pytest.LogCaptureFixture) -> None:
    """LIFE-11: drains, watches of a parent or of a file are written like this."""
    server = Ticking(make_config())
    await asyncio.wait_for(server.serve(), 30)
    assert server.counters == [0, 1, 2]
    assert server.should_exit is False
    assert lines(log)[-1].startswith("Finished")


async def test_tick_of_a_subclass_is_called_ten_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    sleep = asyncio.sleep

    async def no_sleep(delay: float) -> None:
        slept.append(delay)
        await sleep(0)

    server = Ticking(make_config())
    await start(server)
    monkeypatch.setattr(asyncio, "sleep", no_sleep)
    await server.main_loop()
    monkeypatch.undo()
    await server.shutdown()
    assert slept == [0.1, 0.1]


async def test_counter_of_ticks_begins_again_after_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICKS_PER_DAY", 2)
    monkeypatch.setattr(module, "TICK", 0)
    server = Ticking(make_config())
    server.calls = 5
    await asyncio.wait_for(server.serve(), 30)
    assert server.counters == [0, 1, 0, 1, 0]


@pytest.mark.parametrize("where", ["instance", "class"])
async def test_tick_that_is_assigned_is_called(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    server = Server(make_config())
    original, counters = Server.on_tick, []

    async def on_tick(counter: int) -> bool:
        counters.append(counter)
        if counter == 2:
            server.should_exit = True
        return await original(server, counter)

    if where == "instance":
        monkeypatch.setattr(server, "on_tick", on_tick)
    else:
        monkeypatch.setattr(Server, "on_tick", lambda self, counter: on_tick(counter))
    await asyncio.wait_for(server.serve(), 30)
    assert counters == [0, 1, 2]


async def test_tick_of_our_own_is_not_called_without_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without requests costs nothing."""
    calls = 0
    original = Server._notify

    async def notify(self: Server) -> None:
        nonlocal calls
        calls += 1
        await original(self)

    monkeypatch.setattr(Server, "_notify", notify)
    monkeypatch.setattr(module, "TICK", 0)
    async with run_server(make_config()) as server, connect(server) as client:
        for _ in range(3):
            client.send(GET)
            await client.until(b"ok")
        assert calls == 1


class Property(Server):
    """Whose end is decided somewhere else."""

    is_over = False

    @property
    def should_exit(self) -> bool:
        return self.is_over or self._told

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        self._told = value


class Attribute(Server):
    should_exit = False  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("kind", "name"), [(Property, "is_over"), (Property, "should_exit"), (Attribute, "should_exit")]
)
async def test_exit_flag_of_a_subclass_ends_the_server(
    kind: type[Server], name: str, log: pytest.LogCaptureFixture
) -> None:
    server = kind(make_config())
    task = asyncio.create_task(server.serve())
    await wait_until(lambda: server.started)
    setattr(server, name, True)
    await asyncio.wait_for(task, 30)
    assert lines(log)[-1].startswith("Finished")


async def test_forced_end_of_a_subclass_is_noticed(log: pytest.LogCaptureFixture) -> None:
    class Forced(Server):
        force_exit = False  # type: ignore[assignment]

    server = Forced(make_config(Held()))
    task = asyncio.create_task(server.serve())
    await wait_until(lambda: server.started)
    async with connect(server) as client:
        client.send(GET)
        await wait_until(lambda: server.server_state.tasks)
        server.should_exit = True
        await wait_until(lambda: "Waiting for connections to close. (CTRL+C to force quit)" in lines(log))
        server.force_exit = True
        await asyncio.wait_for(task, 30)


@pytest.mark.parametrize("kind", [Ticking, Property, Attribute])
def test_subclass_can_be_sent_to_a_process(kind: type[Server]) -> None:
    server = pickle.loads(pickle.dumps(kind(make_config("tests.test_server:app"))))
    assert type(server) is kind
    assert (server.should_exit, server.force_exit) == (False, False)


async def test_start_is_logged_where_the_loop_takes_the_descriptor(
    monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    """As rloop does."""
    server = Server(make_config())
    listen = server._listen

    async def take(bound: list[socket.socket]) -> list[Any]:
        moved = [socket.socket(fileno=sock.detach()) for sock in bound]
        return await listen(moved)

    monkeypatch.setattr(server, "_listen", take)
    await start(server)
    port = server.servers[0].sockets[0].getsockname()[1]
    assert f"Uvicorn running on http://127.0.0.1:{port} (Press CTRL+C to quit)" in lines(log)
    await server.shutdown()


async def test_message_about_the_start_may_be_another(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    """It is given the sockets, before the server has started."""
    given: list[Any] = []

    class Quiet(Server):
        def _log_started_message(self, listeners: Any) -> None:
            given.append((self.started, [sock.getsockname() for sock in listeners]))
            if len(given) > 1:
                super()._log_started_message(listeners)

    for expected in ([], [f"Uvicorn running on unix socket {tmp_path / 's'} (Press CTRL+C to quit)"]):
        server = Quiet(make_config(uds=str(tmp_path / "s")))
        await start(server)
        assert [line for line in lines(log) if line.startswith("Uvicorn running on")] == expected
        await server.shutdown()
    assert given == [(False, [str(tmp_path / "s")])] * 2
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        server = Quiet(make_config())
        await start(server, [sock])
        await server.shutdown()
    assert len(given) == 2


async def test_wait_for_tasks_may_be_another(log: pytest.LogCaptureFixture) -> None:
    """It is called at each end; the server waits for what it waits for, and no longer than its deadline."""
    called: list[bool] = []

    class Waiting(Server):
        async def _wait_tasks_to_complete(self) -> None:
            called.append(bool(self.server_state.connections))
            await super()._wait_tasks_to_complete()
            called.append(bool(self.server_state.connections))

    server = Waiting(make_config())
    await start(server)
    await server.shutdown()
    assert called == [False, False]
    held = Held()
    server = Waiting(make_config(held))
    await start(server)
    async with connect(server) as client:
        client.send(GET)
        await wait_until(lambda: server.server_state.tasks)
        ending = asyncio.create_task(server.shutdown())
        await wait_until(lambda: len(called) == 3)
        held.release.set()
        assert (await client.rest()).endswith(b"ok")
        await asyncio.wait_for(ending, 30)
    assert called[2:] == [True, False]
    assert lines(log).count("Waiting for connections to close. (CTRL+C to force quit)") == 1


async def test_forced_end_is_not_waited_for() -> None:
    server = Server(make_config(Held()))
    await start(server)
    async with connect(server) as client:
        client.send(GET)
        await wait_until(lambda: server.server_state.tasks)
        server.force_exit = True
        await asyncio.wait_for(server._wait_tasks_to_complete(), 30)
        assert server.server_state.tasks
        await server.shutdown()


@pytest.mark.parametrize("where", ["subclass", "instance"])
@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
async def test_install_signal_handlers_is_not_called_and_signals_end_the_server(
    where: str, log: pytest.LogCaptureFixture
) -> None:
    """Upstream 0.54 has no such method: whatever a program puts there, SIGTERM is a graceful end."""

    def install() -> None:
        raise AssertionError("called")

    class Installing(Server):
        def install_signal_handlers(self) -> None:
            install()

    server = Installing(make_config()) if where == "subclass" else Server(make_config())
    if where == "instance":
        server.install_signal_handlers = install  # type: ignore[attr-defined]
    raised: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda sig, frame: raised.append(sig))
    try:
        task = asyncio.create_task(server.serve())
        await wait_until(lambda: server.started)
        assert signal.getsignal(signal.SIGTERM) == server.handle_exit
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(task, 30)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert raised == [signal.SIGTERM]
    assert lines(log)[0] == (
        "install_signal_handlers is overridden but never called: SIGINT and SIGTERM end the server. Override "
        "capture_signals."
    )
    assert "Application shutdown complete." in lines(log)


def test_install_signal_handlers_is_not_spoken_of_where_no_signal_arrives(
    unused_tcp_port: int, log: pytest.LogCaptureFixture
) -> None:
    """In another thread, where most programs have it, the method has the same effect as none."""

    class Installing(Server):
        def install_signal_handlers(self) -> None:
            raise AssertionError("called")

    server = Installing(make_config(port=unused_tcp_port))
    with running_thread(server.run):
        wait_for(lambda: server.started)
        server.should_exit = True
    assert lines(log)[0].startswith("Started server process")


# Context


variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


@pytest.mark.parametrize(("reset", "expected"), [(False, b"outside"), (True, b"unset")])
async def test_context_of_the_start_reaches_requests_and_no_further(
    http_protocol_cls: Any, reset: bool, expected: bytes
) -> None:
    """CON-11, K6"""

    async def setting(scope: Any, receive: Any, send: Any) -> None:
        seen = variable.get()
        variable.set("by a request")
        await respond(send, seen.encode())

    variable.set("outside")
    config = make_config(setting, http=http_protocol_cls, lifespan="off", reset_contextvars=reset)
    async with run_server(config) as server, connect(server) as client:
        for _ in range(3):
            client.send(GET)
            assert (await client.until(expected)).startswith(b"HTTP/1.1 200")


# In a loop of its own


def test_run_in_another_thread_leaves_signals_alone(unused_tcp_port: int) -> None:
    """SIG-02"""
    server = Server(make_config(port=unused_tcp_port, loop="asyncio"))
    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started)
        assert signal.getsignal(signal.SIGINT) is before
        assert request(("127.0.0.1", unused_tcp_port)).endswith(b"ok")
    finally:
        server.should_exit = True
        thread.join(30)
    assert not thread.is_alive()


def test_run_ends_although_a_task_ignores_its_cancellation(
    unused_tcp_port: int, http_protocol_cls: Any, log: pytest.LogCaptureFixture
) -> None:
    """K8: `asyncio.run` alone would wait for such a task for ever; and thrown away at last, it is no news."""
    release = threading.Event()

    async def stubborn(scope: Any, receive: Any, send: Any) -> None:
        while not release.is_set():
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass

    settings: dict[str, Any] = {"loop": "asyncio", "lifespan": "off", "timeout_graceful_shutdown": 0}
    server = Server(make_config(stubborn, port=unused_tcp_port, http=http_protocol_cls, **settings))
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_for(lambda: server.started)
    client = open_connection(("127.0.0.1", unused_tcp_port), GET)
    wait_for(lambda: server.server_state.tasks)
    server.should_exit = True
    thread.join(30)
    release.set()
    client.close()
    assert not thread.is_alive()
    (task,) = server.server_state.tasks
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    # Without the GIL the native core's is closed in the thread of its loop or, as that is gone, never.
    with contextlib.nullcontext() if GIL or "Native" not in http_protocol_cls.__name__ else pytest.raises(RuntimeError):
        task.get_coro().close()  # type: ignore[union-attr]
    assert "Exception in ASGI application\n" not in lines(log)
    assert any(line.startswith("Abandoning a task that ignores its cancellation") for line in lines(log))


# As a process: K8 and K9

EVERYTHING_AT_ONCE = """
import asyncio

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        print("lifespan shut down", flush=True)
        await send({"type": "lifespan.shutdown.complete"})
    elif scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while True:
            await send({"type": "websocket.send", "text": "tick"})
            await asyncio.sleep(0.01)
    elif scope["path"] == "/stuck":
        await asyncio.sleep(3600)
    elif scope["path"] == "/stubborn":
        print("stubborn", flush=True)
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass
    else:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        while True:
            await send({"type": "http.response.body", "body": b"data: tick\\n\\n", "more_body": True})
            await asyncio.sleep(0.01)
"""

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nhost: test\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n"
)


def occupy(address: tuple[str, int], *paths: bytes) -> list[socket.socket]:
    clients = []
    for path in paths:
        data = UPGRADE if path == b"/ws" else b"GET " + path + b" HTTP/1.1\r\nhost: test\r\n\r\n"
        client = open_connection(address, data)
        if path not in (b"/stuck", b"/stubborn"):
            read_until(client, b"tick")
        clients.append(client)
    return clients


@pytest.fixture
def everything(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(EVERYTHING_AT_ONCE)
    return tmp_path


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("http", ["httptools", "h11"])
def test_endless_streams_and_stuck_tasks_end_with_the_deadline(everything: Path, http: str, loop: str) -> None:
    """K8: and the application is shut down."""
    arguments = ["app:app", "--port", "0", "--http", http, "--loop", loop, "--timeout-graceful-shutdown", "1"]
    with ServerProcess(*arguments, cwd=everything) as server:
        clients = occupy(server.address, b"/", b"/ws", b"/stuck")
        assert server.stop() == -signal.SIGTERM
        assert "lifespan shut down" in server.output
        assert "Finished server process" in server.error_output
        for client in clients:
            client.close()


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_task_that_ignores_its_cancellation_does_not_keep_the_process(everything: Path) -> None:
    """K8"""
    arguments = ["app:app", "--port", "0", "--timeout-graceful-shutdown", "0"]
    with ServerProcess(*arguments, cwd=everything) as server:
        (client,) = occupy(server.address, b"/stubborn")
        server.wait_for("stubborn")
        assert server.stop(signal.SIGINT) == 0
        assert "lifespan shut down" in server.output
        client.close()


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize(("first", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, -signal.SIGTERM)])
def test_second_signal_ends_at_once(everything: Path, first: signal.Signals, status: int) -> None:
    """K8, SIG-06, SIG-08, SIG-09: unfinished connections are closed as they stand."""
    with ServerProcess("app:app", "--port", "0", cwd=everything) as server:
        clients = occupy(server.address, b"/", b"/ws", b"/stuck")
        server.send_signal(first)
        server.wait_for("Waiting for connections to close. (CTRL+C to force quit)")
        assert server.stop(signal.SIGINT) == status
        assert "lifespan shut down" not in server.output
        assert "appears unsupported" not in server.error_output
        assert read_to_end(clients[2]) == b""
        for client in clients:
            client.close()


SATURATED = """
import asyncio, time

async def spin():
    while True:
        time.sleep(0.002)
        await asyncio.sleep(0)

async def app(scope, receive, send):
    assert scope["type"] == "http"
    tasks = [asyncio.ensure_future(spin()) for _ in range(50)]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"spinning", "more_body": True})
    await asyncio.gather(*tasks)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_sigterm_ends_a_saturated_loop(tmp_path: Path, loop: str) -> None:
    """K9"""
    (tmp_path / "app.py").write_text(SATURATED)
    arguments = ["app:app", "--port", "0", "--loop", loop, "--timeout-graceful-shutdown", "1"]
    with ServerProcess(*arguments, cwd=tmp_path) as server:
        client = open_connection(server.address, GET)
        read_until(client, b"spinning")
        assert server.stop() == -signal.SIGTERM
        assert "Cancel 1 running task(s), timeout graceful shutdown exceeded" in server.error_output
        assert "Finished server process" in server.error_output
        client.close()
