"""The reloader: its signals and children, whatever tells it to restart; and as the command line runs it."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import pytest

from tests.process import APP_BEGINS, ServerProcess
from tests.utils import as_cwd, is_listening, open_connection, read_until, request, running_thread, wait_for
from uvicorn.config import Config
from uvicorn.serving.kill_deadlines import GracePeriods
from uvicorn.supervisors import ChangeReload
from uvicorn.supervisors.basereload import HANDLED_SIGNALS, BaseReload, _display_path

posix = pytest.mark.skipif(sys.platform == "win32", reason="these signals cannot be sent on Windows")


def serve_nothing(sockets: list[socket.socket] | None) -> None:
    """The target of a child that ends at once."""


def hang(sockets: list[socket.socket] | None) -> None:
    """The target of a child that does not end when it is told to."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    assert sockets
    sockets[0].listen()
    threading.Event().wait()


class Reloader(BaseReload):
    """Restarts when the test says so."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.reloader_name = "Test"
        self.changes: list[list[Path] | None] = []

    def should_restart(self) -> list[Path] | None:
        if not self.changes:
            self.should_exit.set()
            raise StopIteration
        return self.changes.pop(0)


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="uvicorn.error")
    return caplog


@pytest.fixture
def config(tmp_path: Path) -> Config:
    with as_cwd(tmp_path):
        return Config("app:app", reload=True, reload_delay=0, log_config=None)


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock


def test_attributes(config: Config, sock: socket.socket) -> None:
    reloader = BaseReload(config, target=serve_nothing, sockets=[sock])
    assert reloader.config is config
    assert reloader.target is serve_nothing
    assert reloader.sockets == [sock]
    assert reloader.pid == os.getpid()
    assert reloader.reloader_name is None
    assert reloader.is_restarting is False
    assert not reloader.should_exit.is_set()
    assert HANDLED_SIGNALS == (signal.SIGINT, signal.SIGTERM)


def test_strategy_is_a_subclass_matter(config: Config) -> None:
    with pytest.raises(NotImplementedError):
        next(BaseReload(config, target=serve_nothing, sockets=[]))


def test_pause_ends_the_iteration_when_told_to(config: Config) -> None:
    """RLD-22"""
    reloader = BaseReload(config, target=serve_nothing, sockets=[])
    reloader.pause()
    reloader.should_exit.set()
    with pytest.raises(StopIteration):
        reloader.pause()


def test_the_end_of_a_child_is_told_once(config: Config, log: pytest.LogCaptureFixture) -> None:
    """X1: of each child, and what is waited for."""
    reloader = Reloader(config, target=serve_nothing, sockets=[])
    children = []

    def looks() -> Iterator[list[Path] | None]:
        for _ in range(2):
            children.append(reloader.process.pid)
            yield None
            reloader.process.join()
            yield None
            yield [Path("app.py")]
        reloader.process.join()
        reloader.should_exit.set()

    reloader.should_restart = looks().__next__  # type: ignore[method-assign]
    reloader.run()
    ends = [message for message in log.messages if "died" in message]
    assert ends == [f"Child process [{pid}] died (exit status 0), waiting for changes." for pid in children]
    assert not [record for record in log.records if "died" in record.message and record.levelname != "WARNING"]


@posix
def test_a_child_that_is_killed_is_told_of(config: Config, log: pytest.LogCaptureFixture, sock: socket.socket) -> None:
    """X1: nothing else says so where the application cannot."""
    reloader = Reloader(config, target=hang, sockets=[sock])

    def looks() -> Iterator[list[Path] | None]:
        yield None
        assert not [message for message in log.messages if "died" in message]
        reloader.process.kill()
        reloader.process.join()
        yield None
        reloader.should_exit.set()

    reloader.should_restart = looks().__next__  # type: ignore[method-assign]
    reloader.run()
    assert f"Child process [{reloader.process.pid}] died (killed by SIGKILL), waiting for changes." in log.messages


def test_no_room_for_a_child_is_no_end(
    config: Config, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    """X1: the system may have descriptors, processes or memory for it at the next change."""
    reloader = Reloader(config, target=serve_nothing, sockets=[])
    reloader.startup()
    first = reloader.process

    def start(process: SpawnProcess) -> None:
        raise OSError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(SpawnProcess, "start", start)
        reloader.restart()
    assert log.messages[-1] == "No child process can be started (no room), trying again at the next change."
    reloader.restart()
    assert reloader.process is not first
    reloader.shutdown()
    assert reloader.process.exitcode is not None


def test_lines_of_a_run(config: Config, sock: socket.socket, log: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """RLD-02, RLD-04, RLD-05, RLD-08"""
    reloader = Reloader(config, target=serve_nothing, sockets=[sock])
    reloader.changes = [None, [], [tmp_path / "a.py", Path("/etc/b.py")], None]
    with as_cwd(tmp_path):
        reloader.run()
    pid = os.getpid()
    assert log.messages == [
        f"Started reloader process [{pid}] using Test",
        "Test detected changes in 'a.py', '/etc/b.py'. Reloading...",
        f"Stopping reloader process [{pid}]",
    ]
    assert [record.levelname for record in log.records] == ["INFO", "WARNING", "INFO"]
    started, _, stopping = (record.__dict__.get("color_message") for record in log.records)
    assert started == "Started reloader process [\033[36m\033[1m%d\033[0m] using \033[36m\033[1mTest\033[0m"
    assert stopping == "Stopping reloader process [\033[36m\033[1m%d\033[0m]"
    assert sock.fileno() == -1


def test_paths_below_the_current_directory_are_shown_relative(tmp_path: Path) -> None:
    """RLD-04"""
    with as_cwd(tmp_path):
        assert _display_path(Path.cwd() / "pkg" / "app.py") == f"'{Path('pkg', 'app.py')}'"
        assert _display_path(Path("/somewhere/else.py")) == f"'{Path('/somewhere/else.py')}'"


@posix
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_signal_ends_the_reloader(config: Config, name: str) -> None:
    """RLD-08, RLD-09"""
    sig = signal.Signals[name]
    before = signal.getsignal(sig)
    received: list[int] = []
    signal.signal(signal.SIGHUP, lambda number, frame: received.append(number))
    try:
        reloader = Reloader(config, target=serve_nothing, sockets=[])

        def should_restart() -> None:
            signal.raise_signal(sig)
            return reloader.pause()

        reloader.should_restart = should_restart  # type: ignore[method-assign]
        reloader.run()
        # The reloader has ended its child first; then the hang-up takes its course.
        assert received == ([signal.SIGHUP] if sig == signal.SIGHUP else [])
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if sig != signal.SIGHUP:
        assert signal.getsignal(sig) is before


def test_reloader_runs_in_other_threads_too(config: Config) -> None:
    before = signal.getsignal(signal.SIGINT)
    with running_thread(Reloader(config, target=serve_nothing, sockets=[]).run):
        pass
    assert signal.getsignal(signal.SIGINT) is before


@posix
def test_child_that_does_not_end_in_time_is_killed(
    config: Config, sock: socket.socket, log: pytest.LogCaptureFixture
) -> None:
    """RLD-05, X2: upstream waits for ever."""
    reloader = Reloader(config, target=hang, sockets=[sock])
    reloader._grace = GracePeriods(0.1, 0.1, 0.1)
    reloader.startup()
    wait_for(lambda: is_listening(sock.getsockname()))
    reloader.shutdown()
    assert reloader.process.exitcode == -signal.SIGKILL
    assert f"Child process [{reloader.process.pid}] did not end in time, killing it." in log.messages


@posix
def test_second_interrupt_reaches_the_child(config: Config, sock: socket.socket) -> None:
    """K8"""
    reloader = Reloader(config, target=hang, sockets=[sock])
    reloader.startup()
    wait_for(lambda: is_listening(sock.getsockname()))
    reloader.signal_handler(signal.SIGINT, None)
    assert reloader.process.is_alive()
    reloader.signal_handler(signal.SIGINT, None)
    reloader.process.join(30)
    assert reloader.process.exitcode == -signal.SIGINT
    reloader.shutdown()


# As the command line runs it

APP = (
    """
import os

VERSION = "one"
"""
    + APP_BEGINS
    + """    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": VERSION.encode()})
"""
)

READY = "Application startup complete."


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def start(cwd: Path, *arguments: str) -> ServerProcess:
    server = ServerProcess("app:app", "--port", "0", "--reload", "--reload-delay", "0.05", *arguments, cwd=cwd)
    try:
        server.wait_for(READY)
        wait_for(lambda: is_listening(server.address))
    except BaseException:
        server.__exit__(None, None, None)
        raise
    return server


def test_line_of_many_changes_names_some_and_counts_the_others(
    config: Config, log: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """RLD-04: deliberately different, upstream's names thousands."""
    paths = [tmp_path / f"{number}.py" for number in range(5000)]
    reloader = Reloader(config, target=serve_nothing, sockets=[])
    reloader.changes = [paths[:5], paths[:6], paths]
    with as_cwd(tmp_path):
        reloader.run()
    named = "'0.py', '1.py', '2.py', '3.py', '4.py'"
    assert [message for message in log.messages if "detected" in message] == [
        f"Test detected changes in {named}. Reloading...",
        f"Test detected changes in {named} and 1 more. Reloading...",
        f"Test detected changes in {named} and 4995 more. Reloading...",
    ]


def write(path: Path, text: str) -> None:
    """Write it with a modification time that is certainly newer."""
    later = path.stat().st_mtime + 2 if path.exists() else None
    path.write_text(text)
    if later is not None:
        os.utime(path, (later, later))


@pytest.mark.measures_children
@posix
@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_reloader_from_start_to_end(cwd: Path, sig: signal.Signals) -> None:
    """RLD-02, RLD-04, RLD-05, RLD-08, RLD-10"""
    with start(cwd) as server:
        assert b"one" in request(server.address)
        write(cwd / "app.py", APP.replace("one", "two"))
        server.wait_for(READY, count=2)
        assert b"two" in request(server.address)
        assert server.stop(sig) == 0
        name = ChangeReload(Config("app:app", reload=True), target=serve_nothing, sockets=[]).reloader_name
        text = server.error_output
        assert text.startswith(f"INFO:     Will watch for changes in these directories: ['{cwd}']\n")
        assert f"INFO:     Started reloader process [{server.pid}] using {name}\n" in text
        assert f"WARNING:  {name} detected changes in 'app.py'. Reloading...\n" in text
        assert text.count("Finished server process") == 2
        assert text.endswith(f"INFO:     Stopping reloader process [{server.pid}]\n")


@posix
def test_child_that_fails_is_started_again_with_the_next_change_only(cwd: Path) -> None:
    """RLD-06, RLD-07"""
    with start(cwd) as server:
        write(cwd / "app.py", "raise RuntimeError('broken')")
        server.wait_for("RuntimeError: broken")
        write(cwd / "app.py", APP)
        server.wait_for(READY, count=2)
        os.kill(server.pids()[-1], signal.SIGKILL)
        write(cwd / "app.py", APP.replace("one", "three"))
        server.wait_for(READY, count=3)
        assert b"three" in request(server.address)
        assert server.stop() == 0


@posix
def test_hangup_ends_the_child_before_the_reloader(cwd: Path) -> None:
    """RLD-09: upstream's child stays behind and keeps the port."""
    with start(cwd) as server:
        assert server.stop(signal.SIGHUP) == -signal.SIGHUP
        assert "Finished server process" in server.error_output
        assert not is_listening(server.address)


@posix
def test_request_in_progress_is_finished_before_the_reload(cwd: Path) -> None:
    """RLD-05"""
    slow = APP.replace("import os", "import asyncio, os").replace(
        'await send({"type": "http.response.body"',
        'await send({"type": "http.response.body", "body": b"begin ", "more_body": True})\n'
        "    while not os.path.exists('go'):\n"
        "        await asyncio.sleep(0.01)\n"
        '    await send({"type": "http.response.body"',
    )
    (cwd / "app.py").write_text(slow)
    with start(cwd) as server:
        client = open_connection(server.address, b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
        read_until(client, b"begin")
        write(cwd / "app.py", APP.replace("one", "two"))
        server.wait_for("Waiting for connections to close.")
        (cwd / "go").touch()
        assert b"one" in read_until(client, b"0\r\n\r\n")
        client.close()
        server.wait_for(READY, count=2)
        assert server.stop() == 0


@posix
def test_workers_are_ignored_while_reloading(cwd: Path) -> None:
    """RLD-03"""
    with start(cwd, "--workers", "2") as server:
        assert 'WARNING:  "workers" flag is ignored when reloading is enabled.\n' in server.error_output
        assert server.stop() == 0
        assert len(server.pids()) == 1
