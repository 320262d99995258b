"""Orphans of a supervisor that is process 1."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process import APP_BEGINS, IN_A_NAMESPACE, ServerProcess, has_namespaces
from tests.utils import is_listening, open_connection, request, wait_for
from uvicorn.protocols.http.auto import CORE
from uvicorn.serving import init_signals
from uvicorn.supervisors import orphans

if sys.platform != "linux":
    pytest.skip("process 1 adopts on Linux", allow_module_level=True)


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends between opening and reading
        return False


def test_only_children_of_others_are_collected() -> None:
    """Whoever has started a worker waits for it, and needs its exit status."""
    worker = multiprocessing.get_context("spawn").Process(target=sys.exit, args=(3,))
    worker.start()
    assert worker.pid is not None
    wait_for(lambda: is_zombie(worker.pid or 0))
    adopted = os.fork()
    if adopted == 0:
        os._exit(0)
    wait_for(lambda: is_zombie(adopted))

    def is_collected() -> bool:
        orphans.collect_orphans()  # as a supervisor does, again and again
        return not Path(f"/proc/{adopted}").exists()

    wait_for(is_collected)
    worker.join()
    assert worker.exitcode == 3


def test_nothing_happens_where_no_child_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        orphans.collect_orphans()
        assert child.poll() is None
        child.communicate(b"\n")
    assert child.returncode == 0


APP = (
    """
import os, subprocess, sys
"""
    + APP_BEGINS
    + """    code = "import os, time; os.fork() and os._exit(0); time.sleep(0.2)"
    subprocess.run([sys.executable, "-c", code])
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body"})
"""
)


@pytest.mark.skipif(not has_namespaces(), reason="this system lets nobody make namespaces of processes")
def test_parent_that_is_process_1_leaves_no_zombies(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    command = [*IN_A_NAMESPACE, sys.executable, "-m", "uvicorn"]
    arguments = ["app:app", "--port", "0", "--workers", "1", "--limit-worker-lifetime", "99"]
    with ServerProcess(*arguments, cwd=tmp_path, command=command) as server:
        wait_for(lambda: is_listening(server.address))
        for _ in range(3):
            request(server.address)
        (init,) = _children(server.pid)
        wait_for(lambda: any("sleep" in _command(pid) for pid in _children(init)))
        wait_for(lambda: not any("sleep" in _command(pid) or is_zombie(pid) for pid in _children(init)))


WAITING = (
    """
import asyncio, os, sys, time
if "importing" in os.environ:
    print("importing", flush=True)
    if os.environ["importing"] == "locked":
        import itertools
        sum(itertools.repeat(1))
    time.sleep(3600)
"""
    + APP_BEGINS
    + """    print("waiting", flush=True)
    await asyncio.to_thread(time.sleep, 3600)
"""
)

TIMED = ["app:app", "--port", "0", "--timeout-graceful-shutdown", "0"]


def _term(server: ServerProcess) -> int:
    (init,) = _children(server.pid)
    os.kill(init, signal.SIGTERM)
    return server.wait(timeout=30)


@pytest.mark.skipif(not has_namespaces(), reason="this system lets nobody make namespaces of processes")
@pytest.mark.parametrize(
    "mode", [[], ["--preload", "--workers", "2"], ["--threads", "2"]], ids=lambda mode: "".join(mode[:1])
)
def test_process_1_obeys_sigterm_while_it_imports(tmp_path: Path, mode: list[str]) -> None:
    """The kernel drops a signal without a handler there."""
    (tmp_path / "app.py").write_text(WAITING)
    command = [*IN_A_NAMESPACE, sys.executable, "-m", "uvicorn"]
    with ServerProcess(*TIMED, *mode, cwd=tmp_path, command=command, env={"importing": "1"}) as server:
        server.wait_for("importing")
        assert _term(server) == 128 + signal.SIGTERM
        assert "Traceback" not in server.error_output


@pytest.mark.skipif(CORE != "native", reason="the kernel's timer is the native core's")
@pytest.mark.skipif(not has_namespaces(), reason="this system lets nobody make namespaces of processes")
@pytest.mark.deep
def test_process_1_obeys_sigterm_while_an_import_locks_the_interpreter(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(WAITING)
    command = [*IN_A_NAMESPACE, sys.executable, "-m", "uvicorn"]
    with ServerProcess(*TIMED, cwd=tmp_path, command=command, env={"importing": "locked"}) as server:
        server.wait_for("importing")
        # The line leaves before the interpreter is locked: a signal in between would still reach its handler.
        (init,) = _children(server.pid)
        begun = _processor_time(init)
        wait_for(lambda: _processor_time(init) > begun + 0.3)
        assert _term(server) == 128 + signal.SIGKILL


@pytest.mark.skipif(not has_namespaces(), reason="this system lets nobody make namespaces of processes")
def test_process_1_does_not_wait_for_threads_of_an_executor(tmp_path: Path) -> None:
    """Any other process dies of the signal that is raised again. Without threads the status is 0, as upstream's."""
    (tmp_path / "app.py").write_text(WAITING)
    command = [*IN_A_NAMESPACE, sys.executable, "-m", "uvicorn"]
    with ServerProcess(*TIMED, cwd=tmp_path, command=command) as server:
        assert server.port
        assert _term(server) == 0
    with ServerProcess(*TIMED, cwd=tmp_path, command=command) as server:
        with open_connection(server.address, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"):
            server.wait_for("waiting")
            assert _term(server) == 128 + signal.SIGTERM
        assert "Application shutdown complete." in server.error_output
        assert "Process 1 has not exited within 5 seconds" in server.error_output


def test_other_processes_keep_the_default_action() -> None:
    before = signal.getsignal(signal.SIGTERM)
    init_signals.handle_as_default()
    assert signal.getsignal(signal.SIGTERM) is before


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends between opening and reading
        return ""


def _processor_time(pid: int) -> float:
    """Return the seconds a process has computed for itself."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11]) / os.sysconf("SC_CLK_TCK")


def _children(pid: int) -> list[int]:
    return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
