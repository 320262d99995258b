"""Several workers: as the command line starts them, and as a program drives the supervisor itself."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing.context
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import uvicorn
from tests.process import APP_BEGINS, ServerProcess
from tests.supervisors.load import HTTP2Load, Load
from tests.utils import is_listening, open_connection, read_until, request, run_server, running_thread, wait_for
from uvicorn.config import Config
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process
from uvicorn.worker_events import WorkerEvent

if sys.platform == "win32":
    pytest.skip("these signals cannot be sent on Windows", allow_module_level=True)


APP = (
    """
import asyncio, os

VERSION = "one"
"""
    + APP_BEGINS
    + """    body = f"{VERSION} {os.getpid()}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"begin ", "more_body": True})
    while scope["path"] == "/until-told" and not os.path.exists("go"):
        await asyncio.sleep(0.01)
    if scope["path"] == "/stuck":
        await asyncio.sleep(3600)
    await send({"type": "http.response.body", "body": body})
"""
)

READY = "Application startup complete."


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def served_by(address: tuple[str, int]) -> tuple[str, int]:
    """Version of the application and process id of the worker that has answered, once one listens."""
    wait_for(lambda: is_listening(address))
    match = re.search(rb"(\w+) (\d+)\r\n0\r\n", request(address))
    assert match
    return match[1].decode(), int(match[2])


def is_refused(address: tuple[str, int] | str) -> bool:
    """Whether a client is turned away, and does not wait in a queue."""
    try:
        open_connection(address).close()
    except (ConnectionRefusedError, FileNotFoundError):
        return True
    except ConnectionResetError:  # it was in the queue when that was closed
        return False
    return False


def start(cwd: Path, *arguments: str, workers: int = 2, app: str = "app:app") -> ServerProcess:
    """All workers serve, and the parent knows: their applications are ready a moment before."""
    settings = ["--port", "0", "--workers", str(workers), "--log-level", "debug"]
    server = ServerProcess(app, *settings, *arguments, cwd=cwd)
    try:
        server.wait_for_pattern(r"Child process \[\d+\] serves\n", count=workers)
    except BaseException:
        server.__exit__(None, None, None)
        raise
    return server


def shown(server: ServerProcess, start: str) -> list[str]:
    """The lines that begin like that, in order, without their level."""
    lines = [line.split(maxsplit=1)[1] for line in server.error_output.splitlines() if ":" in line]
    return [line for line in lines if line.startswith(start)]


# Start and end


@pytest.mark.measures_children
@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_lines_from_start_to_end(cwd: Path, sig: signal.Signals) -> None:
    """MP-01, MP-04, MP-05, LSP-21"""
    with start(cwd) as server:
        assert server.stop(sig) == 0
        workers = server.pids()
        lines = [line.split(maxsplit=1)[1] for line in server.error_output.splitlines()]
        kinds = ("Uvicorn", "Started parent", "Received", "Terminated", "Waiting for child", "Stopping parent")
        parents = [line for line in lines if line.startswith(kinds)]
        assert parents[0].startswith("Uvicorn running on http://127.0.0.1:")
        order = sorted(workers)
        assert parents[1:3] == [f"Started parent process [{server.pid}]", f"Received {sig.name}, exiting."]
        assert sorted(parents[3:5]) == [f"Terminated child process [{pid}]" for pid in order]
        waiting = [line for line in parents if line.startswith("Waiting for child")]
        assert sorted(waiting) == [f"Waiting for child process [{pid}]" for pid in order]
        assert parents[-1] == f"Stopping parent process [{server.pid}]"
        assert len(workers) == len(set(workers)) == 2
        assert server.error_output.count("running on") == 1
        assert server.error_output.count("Application shutdown complete.") == 2


def test_requests_in_progress_are_finished(cwd: Path) -> None:
    """MP-06"""
    with start(cwd) as server:
        client = open_connection(server.address, b"GET /until-told HTTP/1.1\r\nhost: test\r\n\r\n")
        read_until(client, b"begin")
        server.send_signal(signal.SIGTERM)
        server.wait_for("Waiting for connections to close.")
        (cwd / "go").touch()
        assert server.wait() == 0
        assert b"one" in read_until(client, b"0\r\n\r\n")
        client.close()


@pytest.mark.measures_children
@pytest.mark.parametrize("where", ["tcp", "uds"])
@pytest.mark.parametrize("mode", [["--workers", "2"], ["--reload"]], ids=["workers", "reload"])
def test_new_clients_are_refused_while_requests_are_finished(cwd: Path, where: str, mode: list[str]) -> None:
    """MP-06, K7: they would hang for the whole drain, where another server might answer them."""
    options = ["--uds", "s"] if where == "uds" else ["--port", "0"]
    with ServerProcess("app:app", *options, *mode, cwd=cwd) as server:
        server.wait_for(READY)
        address: tuple[str, int] | str = str(cwd / "s") if where == "uds" else server.address
        wait_for(lambda: is_listening(address))
        client = open_connection(address, b"GET /until-told HTTP/1.1\r\nhost: test\r\n\r\n")
        read_until(client, b"begin")
        server.send_signal(signal.SIGTERM)
        wait_for(lambda: is_refused(address))
        assert server.process.poll() is None
        (cwd / "go").touch()
        assert b"one" in read_until(client, b"0\r\n\r\n")
        assert server.wait() == 0
        client.close()


@pytest.mark.parametrize("wait", ["await asyncio.sleep(0.01)", "time.sleep(0.01)"], ids=["waiting", "blocked"])
def test_worker_told_to_end_while_it_starts_holds_no_socket(cwd: Path, wait: str) -> None:
    """LIFE-13: new clients are refused, and do not hang in the queue until it has come to its end."""
    (cwd / "slow.py").write_text(f"""
import asyncio, os, time

async def app(scope, receive, send):
    await receive()
    while not os.path.exists("go"):
        {wait}
    await send({{"type": "lifespan.startup.complete"}})
    await receive()
    await send({{"type": "lifespan.shutdown.complete"}})
""")
    with ServerProcess("slow:app", "--port", "0", "--workers", "2", cwd=cwd) as server:
        server.wait_for("Waiting for application startup.", count=2)
        address = server.address
        server.send_signal(signal.SIGTERM)
        wait_for(lambda: not is_listening(address))
        assert server.process.poll() is None
        assert "Finished" not in server.error_output
        (cwd / "go").touch()
        assert server.wait() == 0
        assert server.error_output.count("Application shutdown complete.") == 2


def test_socket_file_of_a_successor_is_left_alone(cwd: Path) -> None:
    """SOCK-11: it may listen at the same path as soon as this one does not any more."""
    path = cwd / "s"
    with ServerProcess("app:app", "--uds", path, "--workers", "2", cwd=cwd) as server:
        server.wait_for(READY, count=2)
        wait_for(lambda: is_listening(str(path)))
        client = open_connection(str(path), b"GET /until-told HTTP/1.1\r\nhost: test\r\n\r\n")
        read_until(client, b"begin")
        server.send_signal(signal.SIGTERM)
        wait_for(lambda: not path.exists())
        with socket.socket(socket.AF_UNIX) as successor:
            successor.bind(str(path))
            (cwd / "go").touch()
            assert server.wait() == 0
            assert path.exists()
        client.close()


def test_sockets_of_a_program_stay_open(supervisor: Multiprocess, sock: socket.socket) -> None:
    """MP-02: as upstream's; the program may have other plans for them."""
    supervisor.signal_queue.append(signal.SIGTERM)
    supervisor.run()
    assert sock.fileno() != -1


def test_parent_never_imports_the_application(cwd: Path) -> None:
    """MP-24"""
    # In one write: two workers share the output.
    (cwd / "app.py").write_text(APP + "os.write(1, b'imported by %d\\n' % os.getpid())\n")
    with start(cwd) as server:
        importers = {int(match[1]) for match in server.wait_for_pattern(r"imported by (\d+)\n", count=2)}
        assert importers == set(server.pids())
        assert server.pid not in importers


def test_second_interrupt_makes_the_workers_hurry(cwd: Path) -> None:
    """MP-07 is a wait without a way out: the second SIGINT is passed on (K8)."""
    with start(cwd, "--timeout-graceful-shutdown", "3600") as server:
        client = open_connection(server.address, b"GET /stuck HTTP/1.1\r\nhost: test\r\n\r\n")
        read_until(client, b"begin")
        server.send_signal(signal.SIGINT)
        server.wait_for("Waiting for connections to close.")
        assert server.stop(signal.SIGINT) == 0
        client.close()


def test_workers_go_on_accepting_while_they_are_not_ready(cwd: Path) -> None:
    """X7: replaced ones do not wait for it, and a second SIGINT ends it."""
    with start(cwd, "--drain-delay", "3600", "--lifecycle-path", "/-/") as server:
        assert request(server.address, "/-/ready").startswith(b"HTTP/1.1 200 ")
        server.send_signal(signal.SIGHUP)
        server.wait_for("Finished server process", count=2)
        server.send_signal(signal.SIGINT)
        server.wait_for("Draining: accepting", count=2)
        assert request(server.address, "/-/ready").startswith(b"HTTP/1.1 503 ")
        assert served_by(server.address)[0] == "one"
        assert server.stop(signal.SIGINT) == 0


HOLDING = """
import threading, time

async def app(scope, receive, send):
    assert scope["type"] == "lifespan"
    await receive()
    threading.Thread(target=time.sleep, args=(3600,)).start()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})
"""

BLOCKING = """
import asyncio, os, time

async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begin %d." % os.getpid(), "more_body": True})
        await asyncio.sleep(0.01)  # in which it leaves
        while True:
            try:
                time.sleep(3600)
            except BaseException:
                pass  # the worker interrupts itself first
"""


def test_thread_that_keeps_a_worker_alive_is_killed_with_it(cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """X2: the worker has done its work (a SIGINT is no death), but does not exit."""
    (cwd / "app.py").write_text(HOLDING)
    with start(cwd, "--timeout-graceful-shutdown", "1", workers=2) as server:
        for pid in server.pids():
            os.kill(pid, signal.SIGINT)
        server.wait_for("did not end in time, killing it", count=2)
        server.wait_for(READY, count=4)


def test_blocked_event_loop_is_killed_at_the_deadline(cwd: Path) -> None:
    """MP-06, MP-25, K8"""
    (cwd / "app.py").write_text(BLOCKING)
    with start(cwd, "--timeout-graceful-shutdown", "0", "--timeout-worker-healthcheck", "1") as server:
        client = open_connection(server.address, b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
        begun = re.search(rb"begin (\d+)\.", read_until(client, b".\r\n"))
        assert begun
        blocked = int(begun[1])
        (other,) = set(server.pids()) - {blocked}
        os.kill(other, signal.SIGSTOP)
        server.wait_for(f"Child process [{other}] died")
        server.wait_for(READY, count=3)
        assert f"Child process [{blocked}] died" not in server.error_output  # blocked is not silent
        assert server.stop() == 0
        assert server.error_output.count("did not end in time, killing it") == 1
        client.close()


@pytest.mark.parametrize("options", [["--uds", "s"]], ids=["uds"])
def test_socket_file_is_served_and_removed_by_the_parent(cwd: Path, options: list[str]) -> None:
    """MP-22, SOCK-11"""
    path = cwd / "s"
    with ServerProcess("app:app", "--uds", path, "--workers", "2", cwd=cwd) as server:
        server.wait_for(READY, count=2)
        wait_for(lambda: is_listening(str(path)))
        assert b"one" in request(str(path))
        assert server.stop() == 0
        assert not path.exists()


@pytest.mark.measures_children
@pytest.mark.parametrize(
    "mode", [[], ["--workers", "2"], ["--threads", "2"], ["--reload"]], ids=["single", "workers", "threads", "reload"]
)
def test_several_places_are_served(cwd: Path, mode: list[str]) -> None:
    """Each by every worker; their files are removed at the end, and one that was left behind is replaced."""
    path = cwd / "s"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    with ServerProcess("app:app", "--bind", "127.0.0.1:0", "--bind", f"unix:{path}", *mode, cwd=cwd) as server:
        server.wait_for(f"Uvicorn running on unix socket {path} (Press CTRL+C to quit)")
        server.wait_for(READY)
        for address in (server.address, str(path)):
            wait_for(partial(is_listening, address))
            assert b"one" in request(address)
        assert server.stop() in (0, -signal.SIGTERM)
        assert not path.exists()


def test_place_that_cannot_be_bound_ends_the_server(cwd: Path) -> None:
    with ServerProcess("app:app", "--bind", "127.0.0.1:0", "--bind", "unix:none/s", cwd=cwd) as server:
        assert server.wait() == 3
        assert "Cannot use bind='unix:none/s': there is no directory 'none'; create it" in server.error_output
        assert "Traceback" not in server.error_output


# Death


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_worker_that_ends_is_replaced(cwd: Path, sig: signal.Signals) -> None:
    """MP-14, X1"""
    with start(cwd) as server:
        victim = server.pids()[0]
        os.kill(victim, sig)
        server.wait_for(READY, count=3)
        assert f"Waiting for child process [{victim}]\n" in server.error_output
        level, how = ("ERROR", " (killed by SIGKILL)") if sig == signal.SIGKILL else ("INFO", "\n")
        assert re.search(rf"{level}: +Child process \[{victim}\] died{re.escape(how)}", server.error_output)
        assert served_by(server.address)[1] in set(server.pids()) - {victim}
        assert server.stop() == 0


def test_silent_workers_hold_up_nobody(cwd: Path) -> None:
    """MP-16, MP-17: they have an hour to answer."""
    with start(cwd, "--timeout-worker-healthcheck", "3600", workers=3) as server:
        first, second, third = server.pids()
        os.kill(first, signal.SIGSTOP)
        os.kill(second, signal.SIGSTOP)
        os.kill(third, signal.SIGKILL)
        server.wait_for(READY, count=4)  # the dead one is replaced while two are silent
        server.send_signal(signal.SIGTTIN)
        server.wait_for("increasing the number of processes.")
        server.wait_for(READY, count=5)
        assert server.error_output.count(" died (") == 1
        os.kill(first, signal.SIGCONT)
        os.kill(second, signal.SIGCONT)
        assert server.stop() == 0


def test_silent_workers_are_killed_when_they_have_had_their_time(cwd: Path) -> None:
    """MP-15, MP-16"""
    with start(cwd, "--timeout-worker-healthcheck", "2", workers=3) as server:
        first, second, third = server.pids()
        os.kill(first, signal.SIGSTOP)
        os.kill(second, signal.SIGSTOP)
        server.wait_for(f"Child process [{first}] died")
        server.wait_for(f"Child process [{second}] died")
        assert f"Child process [{first}] does not answer: its process does not run" in server.error_output
        server.wait_for(READY, count=5)
        assert f"Child process [{third}] died" not in server.error_output
        assert server.stop() == 0


def test_worker_that_cannot_start_its_application_stops_all(cwd: Path) -> None:
    """MP-18: with the status that says so."""
    (cwd / "app.py").write_text(
        "async def app(scope, receive, send):\n"
        "    await send({'type': 'lifespan.startup.failed', 'message': 'no database'})\n"
    )
    with ServerProcess("app:app", "--port", "0", "--workers", "2", cwd=cwd) as server:
        assert server.wait() == 3
        assert re.search(
            r"Child process \[\d+\] failed to start \(exit status 3\), stopping the parent process\.",
            server.error_output,
        )
        assert "died" not in server.error_output
        assert server.error_output.endswith(f"Stopping parent process [{server.pid}]\n")


LOCKING = """
import os

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        try:
            os.close(os.open("lock", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            await send({"type": "lifespan.startup.failed", "message": "locked"})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"one %d" % os.getpid(), "more_body": True})
    await send({"type": "http.response.body"})
"""


def test_worker_that_cannot_start_its_application_spares_the_one_that_serves(cwd: Path) -> None:
    """MP-18: deliberately different, upstream stops."""
    (cwd / "app.py").write_text(LOCKING)
    with ServerProcess("app:app", "--port", "0", "--workers", "2", cwd=cwd) as server:
        server.wait_for_pattern(r"Child process \[\d+\] failed to start \(exit status 3\), trying again")
        served_by(server.address)
        (cwd / "lock").unlink()
        server.wait_for(READY, count=2)
        assert server.stop() == 0
        assert "stopping the parent process" not in server.error_output


@pytest.mark.measures_children
@pytest.mark.parametrize(
    "source",
    [
        pytest.param("raise RuntimeError('no')", id="raises"),
        pytest.param("import sys; sys.exit(0)", id="exits-0"),
        pytest.param("import sys; sys.exit(7)", id="exits", marks=pytest.mark.deep),
        pytest.param("def app(:", id="syntax", marks=pytest.mark.deep),
        pytest.param("import os; os.kill(os.getpid(), 9)", id="is-killed", marks=pytest.mark.deep),
    ],
)
def test_worker_that_dies_at_import_stops_all(cwd: Path, source: str) -> None:
    """MP-19, X1: instead of once a second for ever."""
    (cwd / "app.py").write_text(source)
    with ServerProcess("app:app", "--port", "0", "--workers", "2", cwd=cwd) as server:
        assert server.wait() == 3
        assert server.error_output.count(", stopping the parent process") == 1


@pytest.mark.measures_children
def test_setting_at_fault_that_only_a_worker_can_see_stops_all(cwd: Path) -> None:
    """MP-18, MP-19"""
    arguments = ["app:app", "--port", "0", "--workers", "2", "--http", "not_there:Protocol"]
    with ServerProcess(*arguments, cwd=cwd) as server:
        assert server.wait() == 3
        assert "Traceback" not in server.error_output
        assert "Cannot use http='not_there:Protocol': Could not import module" in server.error_output
        assert server.error_output.count(", stopping the parent process") == 1


def test_application_broken_later_does_not_stop_the_workers_that_serve(cwd: Path) -> None:
    """MP-19, X1: the replacement of a dead worker is tried again, with pauses, until the code is repaired."""
    with start(cwd) as server:
        (cwd / "app.py").write_text("raise RuntimeError('broken')")
        first, second = server.pids()
        os.kill(first, signal.SIGKILL)
        server.wait_for("failed to start (exit status 1), trying again", count=2)
        assert served_by(server.address)[1] == second
        (cwd / "app.py").write_text(APP.replace("one", "two"))
        server.wait_for(READY, count=3)
        assert server.stop() == 0


HOLDING_THE_GIL = """
import ctypes

ctypes.PyDLL(None).usleep(2_500_000)  # a call into C that keeps the GIL
"""


def test_slow_import_with_the_gil_held_is_no_death(cwd: Path) -> None:
    """X1"""
    (cwd / "app.py").write_text(HOLDING_THE_GIL + APP)
    with start(cwd, "--timeout-worker-healthcheck", "1") as server:
        assert "died" not in server.error_output
        assert len(server.pids()) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="limits of another process cannot be set")
@pytest.mark.parametrize(
    "options",
    [["--worker-start", "spawn"], ["--worker-start", "auto"], ["--preload"]],
    ids=["spawned", "forked", "preloaded"],
)
def test_parent_without_descriptors_for_another_worker_serves_on(cwd: Path, options: list[str]) -> None:
    """X1: what it has no room for is tried again."""
    if sys.platform == "linux":  # for the type checker
        import resource

        with start(cwd, *options) as server:
            limits = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{server.pid}/fd")), limits[1]))
            server.send_signal(signal.SIGHUP)
            server.wait_for_pattern(r"No child process can be started \(.*\); keeping worker \[\d+\] and aborting")
            server.send_signal(signal.SIGTTIN)
            server.wait_for_pattern(r"No child process can be started \(.*\); 2 of 3 run, trying again in 1 s\.")
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, limits)
            server.wait_for_pattern(r"Child process \[\d+\] serves\n", count=3)
            assert server.stop() == 0
            assert "Traceback" not in server.error_output


STUCK = """
import asyncio, ctypes, gc, os, signal, threading, time

async def app(scope, receive, send):
    assert scope["type"] == "http"
    if scope["path"] == "/locked":
        lock_the_interpreter()
    if scope["path"] == "/blocked":
        block()
    if scope["path"] == "/crash":
        crash()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"one %d" % os.getpid(), "more_body": True})
    await send({"type": "http.response.body"})

def collect():
    while True:
        gc.collect()

def lock_the_interpreter():
    # Without a GIL it is locked while a collection waits for a thread that does not come back from C.
    threading.Thread(target=collect, daemon=True).start()
    sum(range(10**15))  # a sleep in C would end with the signal that asks for stacks

def block():
    while not os.path.exists("go"):
        time.sleep(0.01)

def crash():
    ctypes.string_at(0)
"""


@pytest.mark.deep
def test_worker_whose_interpreter_is_locked_is_killed_and_says_where(cwd: Path) -> None:
    """MP-15, X6"""
    (cwd / "app.py").write_text(STUCK)
    pytest.importorskip("uvicorn._native")
    with start(cwd, "--timeout-worker-healthcheck", "2") as server:
        client = open_connection(server.address, b"GET /locked HTTP/1.1\r\nhost: test\r\n\r\n")
        (killed,) = server.wait_for_pattern(
            r"Child process \[(\d+)\] does not answer: its interpreter is locked, killing it"
        )
        server.wait_for_pattern(rf"Child process \[{killed[1]}\] was stuck here:\n[^$]*in lock_the_interpreter\n")
        server.wait_for(f"Child process [{killed[1]}] died")
        assert served_by(server.address)[0] == "one"
        assert server.stop() == 0
        client.close()


def test_worker_whose_event_loop_is_blocked_is_left_alone_and_says_where(cwd: Path) -> None:
    """MP-25, X6"""
    (cwd / "app.py").write_text(STUCK)
    with start(cwd, "--timeout-worker-healthcheck", "2") as server:
        client = open_connection(server.address, b"GET /blocked HTTP/1.1\r\nhost: test\r\n\r\n")
        (blocked,) = server.wait_for_pattern(
            r"The event loop of child process \[(\d+)\] has been blocked for [\d.]+ seconds\."
        )
        server.wait_for_pattern(rf"Child process \[{blocked[1]}\] was stuck here:\n[^$]*in block\n")
        (cwd / "go").touch()
        assert f"one {blocked[1]}".encode() in read_until(client, b"0\r\n\r\n")
        assert "died" not in server.error_output
        assert server.stop() == 0
        client.close()


def test_worker_that_crashes_says_where(cwd: Path) -> None:
    """X1, X6"""
    (cwd / "app.py").write_text(STUCK)
    with start(cwd) as server:
        client = open_connection(server.address, b"GET /crash HTTP/1.1\r\nhost: test\r\n\r\n")
        server.wait_for_pattern(r"Child process \[\d+\] crashed here:\nFatal Python error: Segm[^$]*in crash\n")
        server.wait_for_pattern(r"Child process \[\d+\] died")
        assert server.stop() == 0
        client.close()


def test_worker_that_reaches_its_request_limit_is_replaced(cwd: Path) -> None:
    """MP-21, LIM-08: by one that serves before the old one ends."""
    with start(cwd, "--limit-max-requests", "1") as server:
        _, pid = served_by(server.address)
        server.wait_for("Maximum request limit of 1 exceeded. Terminating process.")
        server.wait_for(f"Waiting for child process [{pid}]")
        lines = server.error_output
        assert lines.index(READY, lines.index("Maximum")) < lines.index("Shutting down")
        assert served_by(server.address)[1] != pid
        assert server.stop() == 0


GROWING = """
from tests.supervisors.load import app as load

kept = []

async def app(scope, receive, send):
    if scope["type"] == "http":
        kept.append(b"x" * 1024 * 1024)
    await load(scope, receive, send)
"""


def test_worker_that_grows_is_replaced_even_if_there_is_only_one(cwd: Path) -> None:
    """X4: and no request is lost."""
    (cwd / "app.py").write_text(GROWING)
    with start(cwd, "--limit-worker-memory", "150", workers=1) as server:
        with Load(server.address, "/plain", clients=2) as load:
            server.wait_for_pattern(r"Recycling child process \[\d+\]: it occupies \d+ MiB\.\n", count=2)
            server.wait_for("Finished server process", count=2)
        assert load.lost == {}
        assert server.stop() == 0


def test_worker_that_has_served_for_long_is_replaced(cwd: Path) -> None:
    """X4: --workers is not needed for it."""
    settings = ["--port", "0", "--limit-worker-lifetime", "1", "--limit-worker-lifetime-jitter", "0.5"]
    with ServerProcess("app:app", *settings, cwd=cwd) as server:
        server.wait_for_pattern(r"Recycling child process \[\d+\]: it has served for 1 seconds\.")
        server.wait_for("Started parent process")
        server.wait_for("Finished server process")
        assert served_by(server.address)
        assert server.stop() == 0


def test_application_that_is_an_object_has_nobody_to_replace_its_process(caplog: pytest.LogCaptureFixture) -> None:
    """X4: as with several workers."""
    with pytest.raises(SystemExit) as caught:
        uvicorn.run(app, limit_worker_memory=100, log_config=None)
    assert caught.value.code == 3
    assert "import string" in caplog.messages[-1]


@pytest.mark.anyio
async def test_server_that_nobody_replaces_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """X4: one under --reload, or run by a program."""
    config = Config(app, port=0, lifespan="off", log_config=None, limit_worker_lifetime=60)
    async with run_server(config):
        assert any("no parent can replace this process" in message for message in caplog.messages)


@pytest.mark.parametrize("trigger", ["limit", "restart"])
def test_no_request_is_lost_while_workers_are_replaced(cwd: Path, trigger: str) -> None:
    """MP-08, MP-21, K7: connections in use are told with their next response, and those just accepted are answered."""
    options = ["--limit-max-requests", "50"] if trigger == "limit" else []
    with start(cwd, *options, app="tests.supervisors.load:app") as server, contextlib.ExitStack() as stack:
        kinds = [("/plain", True), ("/stream", True), ("/plain", False)]
        loads = [
            stack.enter_context(Load(server.address, path, clients=4, keep_alive=keep_alive))
            for path, keep_alive in kinds
        ]
        for count in (2, 4):
            if trigger == "restart":
                server.send_signal(signal.SIGHUP)
            server.wait_for("Finished server process", count=count)
        wait_for(lambda: all(load.answered > 4 for load in loads))
        stack.close()
        assert [load.lost for load in loads] == [{}] * len(kinds)
        assert server.stop() == 0


@pytest.mark.parametrize("trigger", ["limit", "restart", "killed"])
def test_no_request_of_http2_is_lost_while_workers_are_replaced(cwd: Path, trigger: str) -> None:
    """MP-08, MP-21, K7: a client asks again for what a GOAWAY or a reset says was not begun, and for nothing else."""
    pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)
    options = ["--http2", *(["--limit-max-requests", "200"] if trigger == "limit" else [])]
    with start(cwd, *options, app="tests.supervisors.load:app") as server, contextlib.ExitStack() as stack:
        loads = [stack.enter_context(HTTP2Load(server.address, path, clients=4)) for path in ("/plain", "/stream")]
        for count in (1, 2) if trigger == "killed" else (2, 4):
            if trigger == "restart":
                server.send_signal(signal.SIGHUP)
            if trigger == "killed":
                # One that is told to end by somebody else: its successor comes when it is gone.
                os.kill(server.pids()[count - 1], signal.SIGTERM)
            server.wait_for("Finished server process", count=count)
        wait_for(lambda: all(load.answered > 100 for load in loads))
        stack.close()
        assert [load.lost for load in loads] == [{}] * len(loads)
        assert server.stop() == 0


# Signals


@pytest.mark.measures_children
def test_hangup_replaces_the_workers_one_by_one_with_new_code(cwd: Path) -> None:
    """MP-08, MP-10"""
    with start(cwd) as server:
        (cwd / "app.py").write_text(APP.replace("one", "two"))
        old = server.pids()
        server.send_signal(signal.SIGHUP)
        server.wait_for("Finished server process", count=2)
        server.wait_for("Terminated child process", count=2)  # said behind the signal, and a child can be faster
        server.wait_for(READY, count=4)
        text = server.error_output
        assert "Received SIGHUP, restarting processes.\n" in text
        new = server.pids()[2:]
        # The successor serves before its predecessor is told to end.
        for successor, predecessor in zip(new, old, strict=True):
            ready = text.index(f"Started server process [{successor}]")
            assert ready < text.index("Terminated child process [", ready)
            assert f"Terminated child process [{predecessor}]" in text
        assert served_by(server.address)[0] == "two"
        assert server.stop() == 0


def test_hangup_with_broken_code_keeps_the_old_workers(cwd: Path) -> None:
    """MP-09"""
    with start(cwd) as server:
        (cwd / "app.py").write_text("raise RuntimeError('broken')")
        server.send_signal(signal.SIGHUP)
        (match,) = server.wait_for_pattern(
            r"New child process \[(\d+)\] failed to start \(exit status 1\); "
            r"keeping worker \[(\d+)\] and aborting the restart\."
        )
        assert int(match[2]) == min(server.pids())
        assert served_by(server.address)[0] == "one"
        assert server.stop() == 0


def test_hangup_with_code_that_starts_too_slowly_keeps_the_old_workers(cwd: Path) -> None:
    """MP-09: and signals are heeded meanwhile."""
    with start(cwd, "--timeout-worker-healthcheck", "2", "--timeout-worker-ready", "2") as server:
        (cwd / "app.py").write_text("import time\ntime.sleep(3600)\n")
        server.send_signal(signal.SIGHUP)
        server.wait_for("restarting processes.")
        server.send_signal(signal.SIGUSR1)
        server.send_signal(signal.SIGTTIN)
        server.wait_for("increasing the number of processes.", timeout=1.9)
        server.wait_for("was not ready in time; keeping worker")
        assert served_by(server.address)[0] == "one"
        assert server.stop() == 0


def test_first_workers_that_never_get_ready_end_the_start(cwd: Path) -> None:
    """MP-09, MP-19: the log says where they hang, although none has ever served."""
    (cwd / "app.py").write_text("import time\ntime.sleep(3600)\n")
    deadline = ["--timeout-worker-healthcheck", "2", "--timeout-worker-ready", "2"]
    with ServerProcess("app:app", "--port", "0", "--workers", "2", *deadline, cwd=cwd) as server:
        server.wait_for("was not ready within 2 seconds, killing it (timeout_worker_ready).", count=2)
        server.wait_for("was stuck here:")
        server.wait_for('app.py", line 2')
        server.wait_for("failed to start (killed by SIGKILL), stopping the parent process.")
        assert server.wait() == 3


def test_number_of_workers_goes_up_and_down(cwd: Path) -> None:
    """MP-11, MP-12"""
    with start(cwd, workers=2) as server:
        server.send_signal(signal.SIGTTIN)
        server.wait_for("Received SIGTTIN, increasing the number of processes.")
        server.wait_for(READY, count=3)
        newest = max(server.pids())
        server.send_signal(signal.SIGTTOU)
        server.wait_for("Received SIGTTOU, decreasing number of processes.")
        server.wait_for(f"Waiting for child process [{newest}]")
        server.send_signal(signal.SIGTTOU)
        server.wait_for("Waiting for child process", count=2)
        server.send_signal(signal.SIGTTOU)
        server.wait_for("Already reached one process, cannot decrease the number of processes anymore.")
        assert served_by(server.address)[1] == min(server.pids())
        assert server.stop() == 0


def test_other_signals_are_only_logged(cwd: Path) -> None:
    """MP-13"""
    with start(cwd, "--log-level", "debug") as server:
        for name in ("QUIT", "USR1", "WINCH"):
            server.send_signal(signal.Signals[f"SIG{name}"])
            server.wait_for(f"DEBUG:    Received signal {name}, but no handler is defined for it.")
        assert server.stop() == 0


# The supervisor driven by a program


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"served"})


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock


@pytest.fixture
def supervisor(sock: socket.socket, caplog: pytest.LogCaptureFixture) -> Iterator[Multiprocess]:
    caplog.set_level(logging.DEBUG, logger="uvicorn.error")
    config = Config(app, workers=2, lifespan="off", log_level="warning", timeout_worker_healthcheck=60)
    logging.getLogger("uvicorn").propagate = True
    logging.getLogger("uvicorn.error").setLevel(logging.DEBUG)
    supervisor = Multiprocess(config, sockets=[sock])
    yield supervisor
    for process in supervisor.processes:
        if process.pid is not None and process.exitcode is None:
            process.kill()
            process.process.join(30)


def test_attributes(supervisor: Multiprocess, sock: socket.socket) -> None:
    """MP-02"""
    assert supervisor.processes == []
    assert supervisor.processes_num == 2
    assert supervisor.signal_queue == []
    assert supervisor.sockets == [sock]
    assert not supervisor.should_exit.is_set()


def test_handlers_are_in_place_while_it_runs(supervisor: Multiprocess, monkeypatch: pytest.MonkeyPatch) -> None:
    """MP-04: and a supervisor that is only made leaves the program as it is."""
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def init_processes() -> None:
        seen.append(signal.getsignal(signal.SIGTERM))
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(supervisor, "init_processes", init_processes)
    supervisor.run()
    assert supervisor.should_exit.is_set()
    assert before not in seen
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("ends", [["SIGTERM"], ["SIGINT"], ["SIGUSR2", "SIGTERM"], ["should_exit"]], ids="-".join)
def test_end_is_heard_while_workers_are_being_started(supervisor: Multiprocess, ends: list[str]) -> None:
    """To start a hundred takes many seconds."""
    start, made = supervisor._make_worker, []

    def make_worker() -> Any:
        made.append(start())
        for name in ends:
            if name == "should_exit":
                supervisor.should_exit.set()
            else:
                signal.raise_signal(getattr(signal, name))
        return made[-1]

    supervisor._pool._make = make_worker
    supervisor.run()
    assert len(made) == 1 and made[0].exitcode is not None


def test_supervisor_opens_nothing_before_it_runs(sock: socket.socket) -> None:
    """MP-03: programs make one to look at it, or to drive it themselves."""
    descriptors = set(os.listdir("/dev/fd"))
    supervisor = Multiprocess(Config(app, workers=2), sockets=[sock])
    supervisor.signal_queue.append(signal.SIGHUP)
    assert set(os.listdir("/dev/fd")) <= descriptors  # what others have left behind may go meanwhile


def test_signal_queued_before_the_run_is_handled(supervisor: Multiprocess) -> None:
    """MP-03"""
    supervisor.signal_queue.append(signal.SIGTERM)
    supervisor.run()
    assert supervisor.signal_queue == []


def test_signal_queued_by_a_thread_ends_the_run(supervisor: Multiprocess, sock: socket.socket) -> None:
    """MP-03, MP-04"""
    with running_thread(supervisor.run):
        wait_for(lambda: len(supervisor.processes) == 2)
        for process in supervisor.processes:
            assert process.wait_until_ready(30)
        assert b"served" in request(sock.getsockname())
        supervisor.signal_queue.append(signal.SIGINT)
        supervisor.join_all()
    assert supervisor.should_exit.is_set()
    assert all(process.exitcode is not None for process in supervisor.processes)


@pytest.mark.parametrize(
    ("ready", "healthcheck", "seconds"),
    [(300, 5, 300), (7.5, 5, 7.5), (300, 600, 600), (0, 5, None)],
    ids=["default", "own", "health check longer", "for ever"],
)
def test_new_workers_have_a_deadline_of_their_own(
    sock: socket.socket, ready: float, healthcheck: int, seconds: float | None
) -> None:
    """MP-09: upstream has the health check's, which few imports of a large application meet."""
    config = Config(app, workers=2, timeout_worker_ready=ready, timeout_worker_healthcheck=healthcheck)
    assert Multiprocess(config, sockets=[sock])._pool._ready_timeout == seconds


def test_other_signals_than_interrupts_change_nothing_while_it_ends(
    supervisor: Multiprocess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MP-07"""
    hurried: list[bool] = []
    monkeypatch.setattr(supervisor._pool, "hurry", lambda: hurried.append(True))
    supervisor.signal_queue += [signal.SIGTERM, signal.SIGHUP]
    supervisor._hurry_on_signal()
    assert not hurried
    supervisor.signal_queue += [signal.SIGTERM, signal.SIGINT]
    supervisor._hurry_on_signal()
    assert hurried
    assert supervisor.signal_queue == []


def test_event_set_by_a_thread_ends_the_run(supervisor: Multiprocess) -> None:
    """MP-03"""
    with running_thread(supervisor.run):
        wait_for(lambda: len(supervisor.processes) == 2)
        supervisor.should_exit.set()


def test_killed_process_is_replaced_while_it_runs(supervisor: Multiprocess) -> None:
    """MP-14"""
    with running_thread(supervisor.run):
        wait_for(lambda: len(supervisor.processes) == 2)
        victim = supervisor.processes[0]
        assert victim.wait_until_ready(30)
        victim.kill()
        assert not victim.is_alive()
        wait_for(lambda: victim not in supervisor.processes and len(supervisor.processes) == 2)
        for process in supervisor.processes:
            assert process.wait_until_ready(30)
            assert process.is_alive(30)
        supervisor.should_exit.set()


def test_one_look_replaces_the_dead(supervisor: Multiprocess) -> None:
    """MP-14"""
    supervisor.init_processes()
    first, second = supervisor.processes
    assert first.wait_until_ready(30) and second.wait_until_ready(30)
    first.kill()
    first.process.join(30)
    supervisor.keep_subprocess_alive()
    assert first not in supervisor.processes
    assert len(supervisor.processes) == 2
    assert supervisor.processes[1].wait_until_ready(30)
    supervisor.terminate_all()
    supervisor.join_all()
    supervisor.should_exit.set()
    supervisor.keep_subprocess_alive()
    assert all(process.exitcode is not None for process in supervisor.processes)


def test_worker_put_in_the_place_of_another_is_supervised_instead(supervisor: Multiprocess) -> None:
    """MP-02: upstream's list is a plain one, and what it contains is watched and ended."""
    supervisor.init_processes()
    first, second = supervisor.processes
    other = Process(supervisor.config, supervisor.sockets)
    other.start()
    supervisor.processes[0] = other
    assert supervisor.processes == [other, second]
    assert other.wait_until_ready(30) and second.wait_until_ready(30)
    supervisor.terminate_all()
    supervisor.join_all()
    assert other.exitcode is not None and second.exitcode is not None
    assert first.exitcode is None
    first.kill()
    first.process.join(30)


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda workers, new: workers.append(new), "abn"),
        (lambda workers, new: workers.extend([new]), "abn"),
        (lambda workers, new: workers.insert(2, new), "abn"),
        (lambda workers, new: workers.__setitem__(1, new), "an"),
        (lambda workers, new: workers.__setitem__(slice(2), [new]), "n"),
        (lambda workers, new: workers.__delitem__(0), "b"),
        (lambda workers, new: workers.remove(workers[0]), "b"),
        (lambda workers, new: workers.pop(), "a"),
        (lambda workers, new: workers.clear(), ""),
    ],
)
def test_workers_in_the_list_are_those_supervised(
    supervisor: Multiprocess, change: Callable[[list[Process], Process], object], left: str
) -> None:
    """MP-02"""
    workers = {name: Process(supervisor.config, supervisor.sockets) for name in "abn"}
    supervisor.processes.extend([workers["a"], workers["b"]])
    change(supervisor.processes, workers["n"])
    assert supervisor.processes == [workers[name] for name in left]


def test_place_of_a_worker_that_could_not_be_started_is_free(
    supervisor: Multiprocess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X1: and so are its descriptors, which may be what there is too little of."""

    def start(process: Process) -> None:
        raise OSError("no room")

    supervisor._pool.scale(1)
    before = set(os.listdir("/dev/fd"))
    monkeypatch.setattr(multiprocessing.context.SpawnProcess, "start", start)
    with pytest.raises(OSError, match="no room"):
        supervisor._make_worker().start()
    assert set(os.listdir("/dev/fd")) <= before
    supervisor._take_places_back()
    (worker,) = supervisor._placed
    worker.kill()
    worker.join()
    worker.parent_conn.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no table of loads")
def test_connections_of_the_dead_are_told_before_their_place_is_free(
    supervisor: Multiprocess, caplog: pytest.LogCaptureFixture
) -> None:
    """X1: also of a worker that dies after the pool has looked, and before places are taken back."""
    supervisor.init_processes()
    worker, _ = supervisor.processes
    assert worker.wait_until_ready(30)
    worker.listen(time.monotonic())
    worker.kill()
    worker.process.join(30)
    (place,) = worker.load_places
    os.pwrite(place.file.descriptor, struct.pack("=I", 3 + 1), 4 * (1 + place.index))
    supervisor._take_places_back()
    supervisor.keep_subprocess_alive()
    assert f"[{worker.pid}] died (killed by SIGKILL), 3 connections lost" in caplog.text
    assert worker not in supervisor._placed
    assert place.connections() is None


def test_first_workers_without_room_end_the_run(supervisor: Multiprocess, monkeypatch: pytest.MonkeyPatch) -> None:
    """X1: with the status of a start that has failed."""

    def make() -> Process:
        raise OSError("no room")

    monkeypatch.setattr(supervisor._pool, "_make", make)
    with pytest.raises(SystemExit) as caught:
        supervisor.run()
    assert caught.value.code == 3


def test_restart_returns_when_all_are_replaced(supervisor: Multiprocess) -> None:
    """MP-08"""
    supervisor.init_processes()
    old = list(supervisor.processes)
    supervisor.restart_all()
    assert not set(old) & set(supervisor.processes)
    assert all(process.exitcode is not None for process in old)
    assert all(process.is_alive(30) for process in supervisor.processes)


def test_restart_of_a_program_gives_way_to_a_signal_that_ends(
    supervisor: Multiprocess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a program makes of `restart_all` handles SIGHUP; meanwhile no other signal is handled."""
    calls: list[str] = []
    restart = Multiprocess.restart_all

    def restart_all(self: Multiprocess) -> None:
        calls.append("restart_all")
        restart(self)

    monkeypatch.setattr(Multiprocess, "restart_all", restart_all)
    monkeypatch.setattr(Process, "can_replace", lambda self: False)
    supervisor.init_processes()
    supervisor.signal_queue.append(signal.SIGHUP)
    with running_thread(supervisor.handle_signals):
        wait_for(lambda: supervisor._pool.is_replacing)
        supervisor.signal_queue.append(signal.SIGTERM)
    assert calls == ["restart_all"]
    assert supervisor.should_exit.is_set()
    supervisor._pool.drain()
    wait_for(lambda: all(process.exitcode is not None for process in supervisor._pool.everyone))


def test_workers_that_a_program_ends_its_own_way_are_waited_for(
    supervisor: Multiprocess, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int | None] = []

    def terminate_all(self: Multiprocess) -> None:
        for process in self.processes:
            told.append(process.pid)
            process.terminate()

    monkeypatch.setattr(Multiprocess, "terminate_all", terminate_all)
    with running_thread(supervisor.run):
        wait_for(lambda: len(supervisor.processes) == 2 and supervisor._pool.is_serving)
        first = list(supervisor.processes)
        supervisor.should_exit.set()
    assert told == [process.pid for process in first]
    assert supervisor.processes == first
    assert [process.exitcode for process in first] == [-signal.SIGTERM] * 2


def test_restart_is_aborted_when_the_new_process_is_never_ready(
    supervisor: Multiprocess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """MP-09: `Process.is_ready` is what decides."""
    supervisor.init_processes()
    old = list(supervisor.processes)
    supervisor._pool._ready_timeout = 0.5
    monkeypatch.setattr(Process, "is_ready", lambda self, timeout=5: False)
    supervisor.restart_all()
    assert supervisor.processes == old
    assert any("was not ready in time; keeping worker" in message for message in caplog.messages)


def test_signals_are_handled_in_turn(supervisor: Multiprocess, caplog: pytest.LogCaptureFixture) -> None:
    """MP-11, MP-12, MP-13"""
    caplog.clear()
    supervisor._pool._make = _Idle  # type: ignore[assignment]
    supervisor.signal_queue.append(12345)
    supervisor.handle_signals()
    supervisor.handle_ttin()
    supervisor.handle_ttou()
    supervisor.handle_ttou()
    supervisor.handle_ttou()
    supervisor.handle_break()
    assert supervisor.processes_num == 1
    assert supervisor.signal_queue == []
    assert supervisor.should_exit.is_set()
    assert caplog.messages == [
        "Received signal 12345, but no handler is defined for it.",
        "Received SIGTTIN, increasing the number of processes.",
        *["Child process [1] was started"] * 3,
        "Received SIGTTOU, decreasing number of processes.",
        "Received SIGTTOU, decreasing number of processes.",
        "Received SIGTTOU, decreasing number of processes.",
        "Already reached one process, cannot decrease the number of processes anymore.",
        "Received SIGBREAK, exiting.",
    ]
    supervisor._pool._members.clear()


def test_hook_hears_in_the_parent_what_becomes_of_workers(sock: socket.socket) -> None:
    """X5: it need not be picklable."""
    events: list[WorkerEvent] = []
    config = Config(app, workers=1, lifespan="off", log_config=None, on_worker_event=lambda event: events.append(event))
    supervisor = Multiprocess(config, sockets=[sock])
    with running_thread(supervisor.run):
        wait_for(lambda: len(events) == 2)
        supervisor.signal_queue.append(signal.SIGTERM)
    (pid,) = {event.pid for event in events}
    assert [event.kind for event in events] == ["start", "ready", "exit"]
    assert pid
    assert events[-1] == WorkerEvent("exit", pid, exitcode=-signal.SIGTERM)
    assert supervisor.events.counts == {("start", None): 1, ("ready", None): 1, ("exit", None): 1}


def test_end_of_a_worker_is_told_however_it_was_noticed(
    supervisor: Multiprocess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X5: also of one that ends right after a look at it."""
    watch = supervisor._watch

    def watch_and_miss_the_end() -> None:
        watch()
        for process in supervisor.processes if supervisor._pool.is_draining else ():
            process.process.join(30)

    monkeypatch.setattr(supervisor, "_watch", watch_and_miss_the_end)
    with running_thread(supervisor.run):
        wait_for(lambda: len(supervisor.processes) == 2)
        assert all(process.wait_until_ready(30) for process in supervisor.processes)
        supervisor.should_exit.set()
    assert supervisor.events.counts["exit", None] == 2


class _Idle:
    """A worker that does nothing."""

    pid = 1
    exitcode = None

    def start(self) -> None:
        pass

    terminate = relieve = start


@pytest.mark.parametrize("preload", [False, True], ids=["spawn", "fork"])
def test_subclass_with_the_constructor_of_upstreams_takes_the_place_of_process(cwd: Path, preload: bool) -> None:
    (cwd / "program.py").write_text(
        "import sys, uvicorn\n"
        "from uvicorn.supervisors import multiprocess\n"
        "class Noting(multiprocess.Process):\n"
        "    def __init__(self, config, sockets):\n"
        "        super().__init__(config, sockets)\n"
        "        print('made', flush=True)\n"
        "    def target(self, sockets=None):\n"
        "        print('target', flush=True)\n"
        "        super().target(sockets)\n"
        "multiprocess.Process = Noting\n"
        "if __name__ == '__main__':\n"
        f"    uvicorn.run('app:app', port=0, workers=2, preload={preload})\n"
    )
    with ServerProcess(cwd=cwd, command=[sys.executable, "program.py"]) as server:
        server.wait_for(READY, count=2)
        assert served_by(server.address)[0] == "one"
        assert server.stop() == 0
    assert [server.output.count(text) for text in ("made", "target")] == [2, 2]


def test_a_subclass_may_start_the_workers_itself(tmp_path: Path) -> None:
    """As faststream does: they are those in charge, and there are no others."""
    (tmp_path / "program.py").write_text(
        "import uvicorn\n"
        "from uvicorn.supervisors.multiprocess import Multiprocess, Process\n\n"
        "async def app(scope, receive, send):\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n"
        "    await send({'type': 'http.response.body'})\n\n"
        "class Own(Multiprocess):\n"
        "    def init_processes(self):\n"
        "        for _ in range(self.processes_num):\n"
        "            process = Process(self.config, self.sockets)\n"
        "            process.start()\n"
        "            self.processes.append(process)\n\n"
        "    def keep_subprocess_alive(self):\n"
        "        super().keep_subprocess_alive()\n"
        "        if all(process.has_served for process in self.processes):\n"
        "            self.signal_queue.append(15)\n\n"
        "if __name__ == '__main__':\n"
        "    config = uvicorn.Config('program:app', port=0, workers=2, lifespan='off')\n"
        "    Own(config, sockets=[config.bind_socket()]).run()\n"
    )
    result = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    started = re.findall(r"Started server process \[(\d+)\]", result.stderr)
    assert len(started) == 2, result.stderr
    assert sorted(re.findall(r"Terminated child process \[(\d+)\]", result.stderr)) == sorted(started)
    assert result.returncode == 0
