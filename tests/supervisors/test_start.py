"""How workers start: spawned, or forked from a parent that has imported the server only."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from logging.handlers import MemoryHandler
from multiprocessing import resource_tracker
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.process import ServerProcess, is_gone
from tests.supervisors.test_preload import SERVES, descriptors
from tests.utils import request, wait_for
from uvicorn._subprocess import is_command
from uvicorn.config import LOGGING_CONFIG, Config
from uvicorn.config.errors import SettingError
from uvicorn.supervisors import Multiprocess, start
from uvicorn.supervisors.pools import Plan, Pools
from uvicorn.supervisors.signals import PARENTS_SIGNALS
from uvicorn.supervisors.start import WorkerStart, foreign_modules

if sys.platform != "linux":
    pytest.skip("everywhere else workers are spawned", allow_module_level=True)

from uvicorn.supervisors import fork

APP = """
import json, multiprocessing, os, sys, threading

VERSION = {version}
IMPORTED_BY = os.getpid()
parent = multiprocessing.parent_process()
SEEN = {{
    "version": VERSION,
    "imported by": IMPORTED_BY,
    "parent": parent and parent.pid,
    "name": multiprocessing.current_process().name,
    "method": multiprocessing.get_start_method(),
    "main thread": threading.current_thread() is threading.main_thread(),
    "stdin": sys.stdin.fileno(),
    "path": sys.path,
    "tracked": os.readlink(f"/proc/self/fd/{{multiprocessing.resource_tracker.getfd()}}"),
}}

async def app(scope, receive, send):
    if scope["type"] == "http":
        body = json.dumps(SEEN).encode()
        headers = [(b"content-length", b"%d" % len(body))]
        await send({{"type": "http.response.start", "status": 200, "headers": headers}})
        await send({{"type": "http.response.body", "body": body}})
"""

ARGUMENTS = ["app:app", "--port", "0", "--workers", "2", "--log-level", "debug"]


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    write_app(tmp_path, version=1)
    return tmp_path


def write_app(directory: Path, version: int) -> None:
    """In one step: a worker may import it at any moment."""
    (directory / "new.py").write_text(APP.format(version=version))
    (directory / "new.py").replace(directory / "app.py")


def workers(server: ServerProcess, beginning: int = 0, count: int = 2) -> list[int]:
    """Process ids of workers that have come to serve, in order."""
    return [int(match[1]) for match in server.wait_for_pattern(SERVES, count=beginning + count)[beginning:]]


def is_forked(pid: int, server: ServerProcess) -> bool:
    """Whether it has the command line of its parent."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    assert (b"--multiprocessing-fork" in command) != (command == Path(f"/proc/{server.pid}/cmdline").read_bytes())
    return b"--multiprocessing-fork" not in command


def seen_by(server: ServerProcess) -> dict[str, Any]:
    seen: dict[str, Any] = json.loads(request(server.address).partition(b"\r\n\r\n")[2])
    return seen


@pytest.mark.parametrize("script", [False, True], ids=["-m", "script"])
def test_the_command_forks_workers_that_import_the_application(cwd: Path, script: bool) -> None:
    """MP-24"""
    command = [Path(sys.executable).parent / "uvicorn"] if script else [sys.executable, "-m", "uvicorn"]
    with ServerProcess(*ARGUMENTS, "--app-dir", ".", cwd=cwd, command=command) as server:
        pids = workers(server)
        assert all(is_forked(pid, server) for pid in pids)
        assert seen_by(server)["imported by"] in pids
        server.send_signal(signal.SIGTERM)
        assert server.wait() == 0


def test_a_forked_worker_sees_what_a_spawned_one_sees(cwd: Path) -> None:
    """MP-02"""
    seen = []
    for method in ("fork", "spawn"):
        with ServerProcess(*ARGUMENTS[:-4], "--workers", "1", "--limit-worker-lifetime", "1000", "--log-level", "debug",
                           "--worker-start", method, cwd=cwd) as server:  # fmt: skip
            (pid,) = workers(server, count=1)
            assert is_forked(pid, server) == (method == "fork")
            (one,) = [seen_by(server)]
            assert (one.pop("imported by"), one.pop("parent")) == (pid, server.pid)
            # Who looks after shared memory is one process for all workers.
            assert one.pop("tracked") in descriptors(server.pid)
            seen.append(one)
    assert seen[0] == seen[1]
    assert seen[0]["name"] == "SpawnProcess-1"


def test_forked_workers_share_no_descriptors_but_those_of_all(cwd: Path) -> None:
    """MP-20: so each hears of its parent's death."""
    with ServerProcess(*ARGUMENTS, "--metrics", "127.0.0.1:0", cwd=cwd) as server:
        pids = workers(server)
        ours, theirs = (descriptors(pid) for pid in pids)
        assert ours & theirs <= descriptors(server.pid)
        # Standard output, standard error, and the one to whom looks after shared memory.
        assert len([name for name in ours & theirs if name.startswith("pipe:")]) == 3
        assert recorders(pids[0]) == recorders(pids[1])
        # Of a worker's own page the mapping keeps one.
        assert [memory_files(pid, "uvicorn-metrics") for pid in pids] == [1, 1]
        server.process.kill()
        wait_for(lambda: all(is_gone(pid) for pid in pids))


def recorders(pid: int) -> int:
    """How many descriptors it has of what workers leave for their parent."""
    return memory_files(pid, "uvicorn-worker")


def memory_files(pid: int, kind: str) -> int:
    """How many descriptors it has of files of this kind."""
    found = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        with suppress(OSError):
            found.append(os.readlink(f"/proc/{pid}/fd/{number}"))
    return len([name for name in found if kind in name])


@pytest.mark.parametrize("how", ["SIGHUP", "kill -9", "another directory"])
def test_the_next_worker_runs_the_code_as_it_is_then(cwd: Path, how: str) -> None:
    """MP-10, MP-14"""
    place = cwd / "place"
    place.mkdir()
    write_app(place, version=1)
    with ServerProcess(*ARGUMENTS, cwd=place) as server:
        first = workers(server)
        assert seen_by(server)["version"] == 1
        if how == "another directory":
            place.rename(cwd / "before")
            place.mkdir()
        write_app(place, version=2)
        if how == "kill -9":
            for pid in first:
                os.kill(pid, signal.SIGKILL)
        else:
            server.send_signal(signal.SIGHUP)
        second = workers(server, beginning=2)
        wait_for(lambda: all(is_gone(pid) for pid in first))
        assert all(is_forked(pid, server) for pid in second)
        assert seen_by(server)["version"] == 2
        assert server.stop() == 0


def children_of(pid: int) -> list[int]:
    return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_signals_that_mean_the_parent_do_nothing_to_a_worker(cwd: Path, method: str) -> None:
    """They reach it where somebody signals a group, all processes of its command line, or hangs up the terminal."""
    with ServerProcess(*ARGUMENTS, "--worker-start", method, cwd=cwd) as server:
        pids = workers(server)
        # One more looks after shared memory: if it ended, the next would remove what these have made.
        children = children_of(server.pid)
        assert len(children) == len(pids) + 1
        for number in PARENTS_SIGNALS:
            for pid in children:
                os.kill(pid, number)
        assert seen_by(server)["imported by"] in pids
        assert all(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "RS" for pid in children)
        assert server.stop() == 0
        assert f"Child process [{pids[0]}] died" not in server.error_output
    assert len(server.wait_for_pattern(SERVES, count=2)) == 2


def test_signal_of_the_group_does_not_end_a_worker_that_is_being_spawned(cwd: Path) -> None:
    """X8: it ended the new worker, and so the restart; the old code went on serving."""
    with ServerProcess(*ARGUMENTS, "--worker-start", "spawn", cwd=cwd) as server:
        workers(server)
        before = set(children_of(server.pid))
        server.send_signal(signal.SIGHUP)
        wait_for(lambda: set(children_of(server.pid)) - before)
        for pid in set(children_of(server.pid)) - before:
            for number in PARENTS_SIGNALS:
                os.kill(pid, number)
        server.wait_for_pattern(SERVES, count=4)
        assert server.stop() == 0
        assert "failed to start" not in server.error_output


PROGRAM = """
import uvicorn

if __name__ == "__main__":
    uvicorn.run("app:app", port=0, workers=2, log_level="debug", worker_start={method!r})
"""


def test_workers_of_a_program_are_spawned(cwd: Path) -> None:
    (cwd / "program.py").write_text(PROGRAM.format(method="auto"))
    with ServerProcess("program.py", cwd=cwd, command=[sys.executable]) as server:
        assert not [pid for pid in workers(server) if is_forked(pid, server)]
        assert server.stop() == 0


THREAD = "import threading\nthreading.Thread(target=threading.Event().wait, name='of-the-site', daemon=True).start()\n"


@pytest.mark.parametrize("method", ["auto", "fork"])
def test_a_parent_with_a_thread_does_not_fork(cwd: Path, method: str) -> None:
    """X8"""
    (cwd / "site").mkdir()
    (cwd / "site" / "sitecustomize.py").write_text(THREAD)
    with ServerProcess(*ARGUMENTS, "--worker-start", method, cwd=cwd, env={"PYTHONPATH": "site"}) as server:
        if method == "auto":
            assert not [pid for pid in workers(server) if is_forked(pid, server)]
            server.wait_for("Child processes are spawned: there are threads (of-the-site), which would be lost")
            assert server.stop() == 0
        else:
            assert server.wait() == 1
            told = [line for line in server.error_output.splitlines() if "worker_start" in line]
            threads = "there are threads (of-the-site), which would be lost in the workers."
            assert told == [f"ERROR:    Cannot use worker_start='fork': {threads}"]
            assert "Traceback" not in server.error_output


def test_a_parent_with_modules_of_the_application_does_not_fork(cwd: Path) -> None:
    """X8: they would be no newer in a worker than they are in its parent."""
    (cwd / "lines.py").write_text("import logging\nclass Lines(logging.Formatter): ...\n")
    log_config: dict[str, Any] = json.loads(json.dumps(LOGGING_CONFIG))
    log_config["formatters"]["default"] = {"()": "lines.Lines"}
    (cwd / "log.json").write_text(json.dumps(log_config))
    arguments = [*ARGUMENTS, "--log-config", "log.json"]
    reason = "modules have been imported (lines) that each worker must import itself.\n"
    with ServerProcess(*arguments, "--worker-start", "fork", cwd=cwd) as server:
        assert server.wait() == 1
        assert server.error_output.endswith(f"Cannot use worker_start='fork': {reason}")
    with ServerProcess(*arguments, cwd=cwd) as server:
        assert not [pid for pid in workers(server) if is_forked(pid, server)]
        assert f"Child processes are spawned: {reason}" in server.error_output


def test_what_was_installed_anew_meanwhile_is_imported_by_the_next_worker(cwd: Path) -> None:
    """X8"""
    site = cwd / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("")
    with ServerProcess(*ARGUMENTS, cwd=cwd, env={"PYTHONPATH": "site"}) as server:
        assert all(is_forked(pid, server) for pid in workers(server))
        (site / "sitecustomize.py").write_text("VERSION = 2\n")
        server.send_signal(signal.SIGHUP)
        assert not [pid for pid in workers(server, beginning=2) if is_forked(pid, server)]
        server.wait_for("sitecustomize.py).\n")
        assert server.stop() == 0


def test_a_forked_worker_that_ends_runs_its_exit_handlers(cwd: Path) -> None:
    # In one write: two processes say it.
    fails = 'import atexit, sys\natexit.register(sys.stdout.write, "at exit\\n")\nraise SystemExit(7)\n'
    (cwd / "app.py").write_text(fails)
    with ServerProcess(*ARGUMENTS, "--worker-start", "fork", cwd=cwd) as server:
        assert server.wait() == 3
        assert server.output == "at exit\n" * 2


# Decisions


@pytest.fixture
def as_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the command was running that has imported nothing else, and had not forked anything yet."""
    monkeypatch.setattr(start, "is_command", lambda: True)
    monkeypatch.setattr(start, "foreign_modules", list)
    monkeypatch.setattr(fork, "running_threads", str)
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    monkeypatch.setattr(fork, "_freeze", lambda: None)


def prepared(**settings: Any) -> WorkerStart:
    how = WorkerStart(Config("not_there:app", workers=2, log_config=None, **settings))
    how.prepare()
    return how


@pytest.mark.usefixtures("as_command")
@pytest.mark.parametrize("method, is_forked", [("auto", True), ("fork", True), ("spawn", False)])
def test_the_setting_decides(method: str, is_forked: bool) -> None:
    assert prepared(worker_start=method).is_fork() == is_forked


@pytest.mark.usefixtures("as_command")
@pytest.mark.parametrize(
    "name, value, reason",
    [
        ("uvicorn.supervisors.start.sys.platform", "darwin", "this system cannot fork safely."),
        ("uvicorn.supervisors.start.is_command", lambda: False, "the program is not the command uvicorn"),
        ("multiprocessing.parent_process", lambda: object(), "the program is not the command uvicorn"),
        ("sys.gettrace", lambda: print, "a debugger is attached."),
        ("uvicorn.supervisors.fork.running_threads", lambda: "one, 2 native", "there are threads (one, 2 native)"),
        ("uvicorn.supervisors.start.foreign_modules", lambda: ["a", "b"], "modules have been imported (a, b)"),
    ],
)
def test_each_reason_is_looked_at_before_each_fork(
    name: str, value: Any, reason: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """X8: and told of once."""
    how = prepared()
    assert how.is_fork()
    with monkeypatch.context() as patch, caplog.at_level(logging.DEBUG, "uvicorn.error"):
        patch.setattr(name, value)
        assert not how.is_fork()
        assert not how.is_fork()
        assert [record.message for record in caplog.records if reason in record.message] == caplog.messages
        assert len(caplog.messages) == 1
        with pytest.raises(RuntimeError) as caught:
            prepared(worker_start="fork")
        assert reason in str(caught.value)
        assert caught.value.__dict__["_settings_at_fault"] == ("worker_start='fork'",)
    assert how.is_fork()


@pytest.mark.usefixtures("as_command")
def test_variables_of_a_file_take_an_interpreter_that_starts(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("")
    with pytest.raises(RuntimeError, match="env_file"):
        prepared(worker_start="fork", env_file=tmp_path / ".env")


@pytest.mark.usefixtures("as_command")
def test_nothing_is_imported_where_nothing_can_be_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Config] = []
    monkeypatch.setattr(fork, "load_server", loaded.append)
    monkeypatch.setattr(start, "is_command", lambda: False)
    assert not prepared().is_fork()
    assert loaded == []


@pytest.mark.usefixtures("as_command")
def test_a_system_without_room_for_a_process_may_have_some_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def start_tracker() -> None:
        raise BlockingIOError("no room")

    monkeypatch.setattr(resource_tracker, "ensure_running", start_tracker)
    assert prepared().is_fork()


@pytest.mark.usefixtures("as_command")
@pytest.mark.parametrize("name", ["loop", "http", "ws"])
def test_what_an_import_string_names_is_for_the_worker_to_import(name: str) -> None:
    assert prepared(**{name: "not_there:factory"}).is_fork()


@pytest.mark.usefixtures("as_command")
def test_a_module_that_has_changed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """X8"""
    module = ModuleType("changing")
    module.__file__ = str(tmp_path / "changing.py")
    (tmp_path / "changing.py").write_text("1")
    monkeypatch.setitem(sys.modules, "changing", module)
    how = prepared()
    assert how.is_fork()
    (tmp_path / "changing.py").write_text("12")
    assert not how.is_fork()
    (tmp_path / "changing.py").unlink()
    assert not how.is_fork()


def test_foreign_modules_have_code_that_is_neither_ours_nor_pythons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "modules", {"os.path": os.path, "uvicorn.config": start, "click": start})
    for name in ("__editable___app_finder", "_cython_3_0", "_sysconfigdata__linux_x86_64-linux-gnu"):
        sys.modules[name] = ModuleType(name)
    assert foreign_modules() == []
    sys.modules["space"] = namespace = ModuleType("space")
    namespace.__path__ = []
    assert foreign_modules() == []
    sys.modules["application.models"] = sys.modules["built_in"] = ModuleType("built_in")
    assert foreign_modules() == ["application", "built_in"]


def test_the_command_is_known_by_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_command()
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    assert not is_command()
    sys.modules["__main__"].__spec__ = SimpleNamespace(name="uvicorn.__main__")  # type: ignore[assignment]
    assert is_command()


def test_the_modules_of_what_is_set_are_refused_together() -> None:
    for settings, at_fault in (
        ({"worker_start": "fork", "reload": True}, "worker_start='fork'"),
        ({"worker_start": "spawn", "preload": True}, "preload=True"),
    ):
        with pytest.raises(SettingError, match=f"^Cannot use {at_fault}: "):
            Config("app:app", log_config=None, **settings)  # type: ignore[arg-type]


def test_a_method_that_is_none_is_refused() -> None:
    with pytest.raises(SettingError, match=r"^worker_start must be one of auto, spawn, fork, not 'thread'"):
        Config("app:app", log_config=None, worker_start="thread")  # type: ignore[arg-type]


def test_a_parent_of_several_pools_forks_nothing() -> None:
    """Each pool is a thread there."""
    options = {"app": "a:b", "port": 0, "log_config": None, "worker_start": "fork"}
    with pytest.raises(ValueError, match="several pools") as caught:
        Pools([Plan("one", options, {})])
    assert caught.value.__dict__["_settings_at_fault"] == ("worker_start='fork'",)


# The child


@contextmanager
def memory_handler(records: list[str]) -> Iterator[MemoryHandler]:
    target = logging.Handler()
    target.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    handler = MemoryHandler(100, target=target)
    yield handler
    handler.close()
    target.close()


def test_records_that_a_handler_keeps_are_written_before_the_fork() -> None:
    records: list[str] = []
    with memory_handler(records) as handler:
        handler.handle(logging.LogRecord("name", logging.INFO, "", 0, "kept", None, None))
        assert records == []
        fork.write_kept_records()
        assert records == ["kept"]


def test_a_worker_made_for_a_fork_has_the_name_of_a_spawned_one() -> None:
    supervisor = Multiprocess(Config("app:app", workers=2, preload=True, log_config=None), [])
    worker = supervisor._make_worker()
    with worker.parent_conn, worker.child_conn:
        assert worker.process.name.startswith("SpawnProcess-")
        assert multiprocessing.get_context("spawn").Process._start_method == "spawn"  # type: ignore[attr-defined]
        assert fork.ForkedProcess._start_method == "spawn"


OWN_THREAD = """
import threading
from uvicorn.supervisors import fork
over = threading.Event()
others = fork.running_threads()
thread = threading.Thread(target=over.wait)
thread.start()
thread.name = fork.OWN_THREADS[0]
try:
    assert fork.running_threads() == others
finally:
    over.set()
    thread.join()
"""


def test_a_thread_of_the_parents_own_is_no_reason_against_a_fork() -> None:
    """In a process of its own: here threads that earlier tests left behind may end between the two counts."""
    subprocess.run([sys.executable, "-c", OWN_THREAD], check=True, timeout=30)
