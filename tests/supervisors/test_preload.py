"""Workers that are forked, with the application in them already."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process import ServerProcess, is_gone
from tests.utils import request, wait_for
from uvicorn.config import Config
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.signals import PARENTS_SIGNALS, SIGNALS, leave_to_parent

if sys.platform in ("win32", "darwin"):
    pytest.skip("nothing is forked here", allow_module_level=True)

from uvicorn.supervisors import fork

APP = """
import os

print("imported by", os.getpid(), flush=True)

async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": b"served by %d" % os.getpid()})
"""


SERVES = r"Child process \[(\d+)\] serves\n"


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def worker_of(address: tuple[str, int]) -> int:
    return int(request(address).rpartition(b" by ")[2].split()[0])


def descriptors(pid: int) -> set[str]:
    """The pipes and sockets that a process has open, by name: two ends of one pipe have the same."""
    found = set()
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/{pid}/fd/{number}"))
    return {name for name in found if name.startswith(("pipe:", "socket:"))}


def test_workers_have_the_application_of_their_parent(cwd: Path) -> None:
    """Of the pipes that two workers have to their parent they share none, so each hears of its death."""
    arguments = ["--port", "0", "--workers", "2", "--preload", "--metrics", "127.0.0.1:0", "--log-level", "debug"]
    with ServerProcess("app:app", *arguments, cwd=cwd) as server:
        first = [int(match[1]) for match in server.wait_for_pattern(SERVES, count=2)]
        assert worker_of(server.address) in first
        server.send_signal(signal.SIGHUP)
        pids = [int(match[1]) for match in server.wait_for_pattern(SERVES, count=4)[2:]]
        wait_for(lambda: all(is_gone(pid) for pid in first))
        assert re.findall(r"imported by (\d+)", server.output) == [str(server.pid)]
        if sys.platform == "linux":
            ours, theirs = (descriptors(pid) for pid in pids)
            # The socket that both accept from, where both may write their log, and to whom looks after shared memory.
            assert ours & theirs <= descriptors(server.pid)
            assert not [name for name in ours & theirs if name.startswith("pipe:")][3:]
        server.process.kill()
        wait_for(lambda: all(is_gone(pid) for pid in pids))


def test_an_application_that_cannot_be_imported_ends_the_parent(tmp_path: Path) -> None:
    with ServerProcess("missing:app", "--port", "0", "--workers", "2", "--preload", cwd=tmp_path) as server:
        assert server.wait() == 3
    assert server.error_output.count("Error loading ASGI app") == 1


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    done: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: done.append("frozen"))
    yield done


def test_preloading_freezes_what_is_there(frozen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork, "running_threads", str)  # other tests may have left some
    fork.preload(Config("tests.deployment_app:app", workers=2, preload=True, log_config=None))
    assert frozen == ["frozen"]
    assert "tests.deployment_app" in sys.modules


def test_threads_are_a_reason_to_refuse(frozen: list[str]) -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="of-the-application")
    thread.start()
    try:
        with pytest.raises(RuntimeError, match=r"started threads \(.*of-the-application.*\)") as caught:
            fork.preload(Config("tests.deployment_app:app", preload=True, log_config=None))
    finally:
        over.set()
        thread.join()
    assert caught.value.__dict__["_settings_at_fault"] == ("preload=True",)
    assert not frozen


@pytest.mark.parametrize("settings, platform", [({"reload": True}, "linux"), ({}, "win32"), ({}, "darwin")])
def test_what_cannot_be_preloaded_is_refused_by_name(
    settings: dict[str, Any], platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uvicorn.config.sys.platform", platform)
    with pytest.raises(ValueError, match=r"^Cannot use preload=True: "):
        Config("app:app", preload=True, log_config=None, **settings)


def test_a_child_forgets_what_is_its_parents() -> None:
    """Called here in the parent itself, which so loses its own ends."""
    supervisor = Multiprocess(Config("app:app", workers=2, preload=True, log_config=None), [])
    worker = supervisor._make_worker()
    ends = os.pipe()
    assert isinstance(worker.process, fork.ForkedProcess)
    worker.process.parents_ends = ends
    supervisor._leave_to_child()
    assert worker.parent_conn.closed
    for descriptor in ends:
        with pytest.raises(OSError):
            os.fstat(descriptor)


@pytest.mark.parametrize("what", ["fork", "pipe"])
def test_a_parent_without_room_for_a_child_is_as_before(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And hears of signals."""
    supervisor = Multiprocess(Config("app:app", workers=2, preload=True, log_config=None), [])
    worker = supervisor._make_worker()
    worker.child_conn.close()
    worker.parent_conn.close()
    room = [True]

    def call(*arguments: Any) -> Any:
        if what == "pipe" and room.pop():
            room.append(False)
            return pipe()
        raise BlockingIOError("no room")

    pipe = os.pipe
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    before = os.listdir("/dev/fd")
    monkeypatch.setattr(os, what, call)
    with pytest.raises(BlockingIOError, match="no room"):
        worker.process.start()
    monkeypatch.undo()
    assert os.listdir("/dev/fd") == before
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask


def test_a_child_handles_signals_as_a_program_does_that_has_just_begun() -> None:
    """But for those that mean its parent."""
    previous = {number: signal.getsignal(number) for number in SIGNALS}
    receiving, sending = socket.socketpair()
    with receiving, sending:
        sending.setblocking(False)
        before = signal.set_wakeup_fd(sending.fileno())
        try:
            for number in SIGNALS:
                signal.signal(number, lambda number, frame: None)
            fork.use_default_handlers()
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            others = {number: signal.getsignal(number) for number in SIGNALS if number != signal.SIGINT}
            assert {number for number, handler in others.items() if handler is leave_to_parent} == PARENTS_SIGNALS
            assert {handler for handler in others.values() if handler is not leave_to_parent} == {signal.SIG_DFL}
            assert signal.set_wakeup_fd(-1) == -1
        finally:
            signal.set_wakeup_fd(before)
            for number, handler in previous.items():
                signal.signal(number, handler)
