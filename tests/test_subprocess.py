from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import pytest

from tests.process import ROOT, ServerProcess
from tests.utils import wait_for
from uvicorn import _subprocess as module
from uvicorn._subprocess import end_with_parent, get_subprocess, spawn, subprocess_started, terminate_self
from uvicorn.config import Config
from uvicorn.config.errors import blaming
from uvicorn.serving.kill_deadlines import GracePeriods

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals")


async def app(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("not called")


def serve_nothing(sockets: list[socket.socket] | None) -> None:
    """The target of a child that ends at once."""


def report(sockets: list[socket.socket]) -> None:
    """The target of a child that says what it has got, on the first socket."""
    connection, _ = sockets[0].accept()
    with connection:
        text = f"{sys.stdin.fileno()} {logging.getLogger('uvicorn.error').level} {os.getppid()}"
        connection.sendall(text.encode())


@pytest.fixture
def config() -> Config:
    return Config(app, log_level="warning")


def test_processes_are_spawned() -> None:
    """MP-02"""
    assert spawn.get_start_method() == "spawn"


def test_process_is_not_started_yet(config: Config) -> None:
    """MP-02"""
    with socket.socket() as sock:
        process = get_subprocess(config, serve_nothing, [sock])
    assert isinstance(process, SpawnProcess)
    assert process.pid is None


def test_child_has_the_sockets_the_logging_and_the_standard_input(
    config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """MP-02, MP-23, LOG-23"""
    with (tmp_path / "stdin").open("w+") as stdin, socket.socket() as sock:
        monkeypatch.setattr(sys, "stdin", stdin)
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        process = get_subprocess(config, report, [sock])
        process.start()
        with socket.create_connection(sock.getsockname(), timeout=30) as client:
            number, level, parent = client.recv(100).split()
        process.join(30)
    assert process.exitcode == 0
    assert int(level) == logging.WARNING
    assert int(parent) == os.getpid()
    assert int(number) >= 0


@pytest.mark.parametrize("stdin", [None, object()], ids=["none", "no file"])
def test_standard_input_may_be_missing(config: Config, stdin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """MP-23"""
    monkeypatch.setattr(sys, "stdin", stdin)
    process = get_subprocess(config, serve_nothing, [])
    assert process._kwargs["stdin_fileno"] is None  # type: ignore[attr-defined]


def test_target_is_called_with_the_sockets(config: Config) -> None:
    """MP-02"""
    calls: list[Any] = []
    with socket.socket() as sock:
        subprocess_started(config, lambda sockets: calls.append(sockets), [sock], None)
        assert calls == [[sock]]


def test_standard_input_is_reopened_from_the_descriptor(
    config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """MP-23"""
    monkeypatch.setattr(sys, "stdin", sys.stdin)
    path = tmp_path / "stdin"
    path.write_text("typed")
    read: list[str] = []
    descriptor = os.open(path, os.O_RDONLY)
    subprocess_started(config, lambda sockets: read.append(sys.stdin.read()), [], descriptor)
    assert read == ["typed"]
    sys.stdin.close()


def test_descriptor_that_the_child_does_not_have_is_no_error(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """MP-23"""
    before = sys.stdin
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor)
    subprocess_started(config, serve_nothing, [], descriptor)
    assert sys.stdin is before


def test_keyboard_interrupt_in_the_child_is_silent(config: Config) -> None:
    """MP-04: Ctrl+C reaches the whole process group."""

    def interrupted(sockets: Any) -> None:
        raise KeyboardInterrupt

    subprocess_started(config, interrupted, [], None)


def test_mistake_in_a_setting_is_one_line_and_status_1(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    """TLS-04"""

    def mistaken(sockets: Any) -> None:
        with blaming("ssl_certfile='x'"):
            raise ValueError("no certificate")

    with pytest.raises(SystemExit) as caught:
        subprocess_started(config, mistaken, [], None)
    assert caught.value.code == 1
    assert capsys.readouterr().err == "ERROR:    Cannot use ssl_certfile='x': no certificate\n"


def test_any_other_error_comes_out(config: Config) -> None:
    """MP-19"""

    def broken(sockets: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        subprocess_started(config, broken, [], None)


def test_process_without_a_parent_ends_with_nobody() -> None:
    before = threading.active_count()
    end_with_parent()
    assert threading.active_count() == before


@pytest.mark.parametrize(("timeout", "limit"), [(7, "7 seconds"), (None, "any time")])
def test_child_terminates_itself_when_its_parent_is_gone(
    timeout: float | None, limit: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """MP-20: and says why."""
    reader, writer = multiprocessing.Pipe(duplex=False)
    terminated = threading.Event()

    class Parent:
        pid = 123
        sentinel = reader.fileno()

    monkeypatch.setattr(multiprocessing, "parent_process", Parent)
    monkeypatch.setattr(module, "end_with_pipe", lambda descriptor, seconds: False)
    monkeypatch.setattr(module, "terminate_self", terminated.set)
    end_with_parent(None, timeout)
    assert not terminated.is_set()
    writer.close()
    assert terminated.wait(30)
    ((name, level, line),) = caplog.record_tuples
    assert (name, level) == ("uvicorn.error", logging.ERROR)
    assert line.startswith(f"Parent process [123] died. Shutting down process [{os.getpid()}]")
    assert f"{limit} to end (timeout_graceful_shutdown)" in line
    wait_for(lambda: not any(thread.name == "uvicorn-parent-watch" for thread in threading.enumerate()))
    reader.close()


ORPHAN = """
import ctypes, multiprocessing, signal, sys, time
from uvicorn import _subprocess

class Parent:
    pid = 1
    sentinel = 0

multiprocessing.parent_process = Parent
signal.signal(signal.SIGTERM, lambda number, frame: None)
if sys.argv[1] == "python":
    _subprocess.end_with_pipe = lambda descriptor, seconds: False
_subprocess.end_with_parent(0.1)
print("ready", flush=True)
if sys.argv[1] == "native":
    # A mutex that is locked twice, in a call that keeps the interpreter and heeds no signal.
    lock, mutex = ctypes.PyDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)
    lock(mutex)
    lock(mutex)
while True:
    time.sleep(3600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a mutex of zeros")
@pytest.mark.parametrize("watch", ["native", "python"])
def test_orphan_that_does_not_end_is_killed(watch: str) -> None:
    """MP-20: the one that is blocked in C needs a thread without an interpreter."""
    if watch == "native":
        pytest.importorskip("uvicorn._native")
    command = [sys.executable, "-c", ORPHAN, watch]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as orphan:
        assert orphan.stdout is not None and orphan.stdin is not None
        try:
            assert orphan.stdout.readline() == b"ready\n"
            assert orphan.poll() is None
            orphan.stdin.close()
            assert orphan.wait(30) == -signal.SIGKILL
        finally:
            orphan.kill()


def test_orphan_has_as_long_as_its_parent_would_give_it(monkeypatch: pytest.MonkeyPatch, config: Config) -> None:
    """MP-06, MP-20"""
    graces: list[float | None] = []
    monkeypatch.setattr(module, "end_with_parent", lambda grace, timeout: graces.append(grace))
    subprocess_started(config, serve_nothing, [], None)
    subprocess_started(Config(app, timeout_graceful_shutdown=-1), serve_nothing, [], None)
    assert graces == [GracePeriods.of(config).total, None]


def test_pipe_that_is_none_is_not_watched() -> None:
    native = pytest.importorskip("uvicorn._native")
    with pytest.raises(OSError, match="Bad file descriptor"):
        native.end_with_pipe(-1, None)
    with pytest.raises(ValueError, match="negative"):
        native.end_with_pipe(0, -1.0)


@posix
def test_termination_reaches_the_main_thread_from_any_other() -> None:
    """MP-20"""
    received = threading.Event()
    previous = signal.signal(signal.SIGTERM, lambda number, frame: received.set())
    try:
        thread = threading.Thread(target=terminate_self)
        thread.start()
        thread.join()
        wait_for(received.is_set)
    finally:
        signal.signal(signal.SIGTERM, previous)


@posix
@pytest.mark.parametrize("options", [["--workers", "2"], ["--reload"]], ids=["workers", "reload"])
def test_children_end_when_their_parent_is_killed(options: list[str], tmp_path: Path) -> None:
    """MP-20: upstream's go on holding the port."""
    (tmp_path / "app.py").write_text(
        "async def app(scope, receive, send):\n"
        "    for kind in ('startup', 'shutdown'):\n"
        "        await receive()\n"
        "        await send({'type': f'lifespan.{kind}.complete'})\n"
    )
    count = 2 if "--workers" in options else 1
    with ServerProcess("app:app", "--port", "0", *options, cwd=tmp_path) as server:
        server.wait_for("Application startup complete.", count=count)
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
        server.wait_for("Finished server process", count=count)
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            wait_for(lambda: _can_bind(sock, server.port))


def _can_bind(sock: socket.socket, port: int) -> bool:
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True
