"""What is different on Windows, with the platform and what only it has put in place by hand."""

from __future__ import annotations

import _thread
import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.utils import join_threads
from uvicorn import _subprocess
from uvicorn.config import Config
from uvicorn.listening import sockets
from uvicorn.server import Server
from uvicorn.serving.wakeup import awake
from uvicorn.supervisors.basereload import BaseReload
from uvicorn.supervisors.worker import ProcessWorker

CTRL_C, CTRL_BREAK = 0, 1


async def app(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("not called")


@pytest.fixture
def config() -> Config:
    return Config(app, log_config=None, workers=2)


@pytest.fixture(autouse=True)
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(signal, "CTRL_C_EVENT", CTRL_C, raising=False)
    monkeypatch.setattr(signal, "CTRL_BREAK_EVENT", CTRL_BREAK, raising=False)
    if not hasattr(signal, "SIGBREAK"):
        monkeypatch.setattr(signal, "SIGBREAK", signal.SIGABRT, raising=False)


class Running:
    """A child process that runs."""

    pid = 4321
    exitcode: int | None = None
    was_killed = False

    def kill(self) -> None:
        self.was_killed = True

    def join(self, timeout: float | None = None) -> None:
        self.exitcode = 0

    def start(self) -> None:
        pass


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, sig: sent.append((pid, sig)))
    return sent


@pytest.mark.measures_children
def test_break_is_handled_like_sigterm(tmp_path: Path) -> None:
    """WIN-01"""
    code = (
        "import importlib, signal, sys, uvicorn.server\n"
        "sys.platform = 'win32'\n"
        "signal.SIGBREAK = signal.SIGABRT\n"
        "print(importlib.reload(uvicorn.server).HANDLED_SIGNALS[-1].name)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert found.stdout == "SIGABRT\n"


# Workers


@pytest.fixture
def worker(config: Config) -> Iterator[ProcessWorker]:
    worker = ProcessWorker(config, [])
    worker.process = Running()  # type: ignore[assignment]
    yield worker
    worker.parent_conn.close()
    join_threads("uvicorn-pong")
    worker.child_conn.close()


def test_worker_is_told_to_end_with_ctrl_break(worker: ProcessWorker, sent: list[tuple[int, int]]) -> None:
    """WIN-02"""
    worker.terminate()
    assert sent == [(4321, CTRL_BREAK)]


def test_worker_that_is_to_hurry_is_killed(worker: ProcessWorker, sent: list[tuple[int, int]]) -> None:
    """WIN-02: there is no second signal."""
    worker.hurry()
    assert sent == []
    assert worker.process.was_killed  # type: ignore[attr-defined]


def test_worker_turns_ctrl_break_into_sigterm(worker: ProcessWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """WIN-02"""
    installed: dict[int, Any] = {}
    raised: list[int] = []
    monkeypatch.setattr(signal, "signal", installed.__setitem__)
    monkeypatch.setattr(signal, "raise_signal", raised.append)
    monkeypatch.setattr(Server, "run", lambda self, sockets: setattr(self, "started", True))
    worker.target([])
    installed[signal.SIGBREAK](signal.SIGBREAK, None)  # type: ignore[attr-defined, unused-ignore]
    assert raised == [signal.SIGTERM]


def test_child_raises_sigterm_in_its_main_thread(monkeypatch: pytest.MonkeyPatch, sent: list[tuple[int, int]]) -> None:
    """MP-20: `os.kill` would end the process as it stands."""
    interrupted: list[int] = []
    monkeypatch.setattr(_thread, "interrupt_main", interrupted.append)
    _subprocess.terminate_self()
    assert interrupted == [signal.SIGTERM]
    assert sent == []


# Reload


def test_reloader_ends_its_child_with_ctrl_c_and_ignores_the_echo(
    config: Config, sent: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """WIN-02"""
    reloader = BaseReload(config, target=lambda sockets: None, sockets=[])
    reloader.process = Running()  # type: ignore[assignment]
    monkeypatch.setattr(reloader, "_start_child", lambda: None)
    reloader.restart()
    assert sent == [(4321, CTRL_C)]
    assert reloader.is_restarting
    reloader.signal_handler(signal.SIGINT, None)
    assert not reloader.is_restarting
    assert not reloader.should_exit.is_set()
    reloader.signal_handler(signal.SIGINT, None)
    assert reloader.should_exit.is_set()


# Sockets


def test_address_in_use_cannot_be_taken_over() -> None:
    """WIN-05, SOCK-03: SO_REUSEADDR means that on Windows."""
    (sock,) = sockets.Address("127.0.0.1", 0, "http").bind()
    with sock as bound:
        assert not bound.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)


def test_unix_sockets_are_refused(tmp_path: Path) -> None:
    """WIN-05"""
    with pytest.raises(OSError) as caught:
        sockets.UnixPath(str(tmp_path / "s")).bind()
    assert caught.value.errno == errno.EAFNOSUPPORT


def test_given_sockets_are_shared_with_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """WIN-04"""

    class Sharing:
        def share(self, pid: int) -> bytes:
            return f"shared with {pid}".encode()

    monkeypatch.setattr(socket, "fromshare", lambda data: data, raising=False)
    given = sockets.Given([Sharing()])  # type: ignore[list-item]
    (shared,) = asyncio.run(given.open())
    assert f"{shared!r}" == f"{f'shared with {os.getpid()}'.encode()!r}"


# Signals and the selector loop


def test_selector_loop_is_woken_by_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """WIN-01, WIN-03"""

    async def main() -> int:
        with awake():
            descriptor = signal.set_wakeup_fd(-1)
            signal.set_wakeup_fd(descriptor)
        return descriptor

    loop = asyncio.SelectorEventLoop()
    try:
        assert loop.run_until_complete(main()) >= 0
    finally:
        loop.close()


def test_other_threads_cannot_be_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIG-02"""
    seen: list[int] = []

    async def main() -> None:
        with awake():
            seen.append(1)

    def run() -> None:
        loop = asyncio.SelectorEventLoop()
        try:
            loop.run_until_complete(main())
        finally:
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [1]
