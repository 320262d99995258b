"""Servers as processes: started, watched, measured and ended, with their children."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

import pytest

from bench import process
from bench.errors import BenchError, ServerError
from bench.process import Elsewhere, MemoryWatch, ProcessFigures, Request, Server
from tests.bench import fake


def _server(directory: Path, code: str, *arguments: str) -> Server:
    argv = [sys.executable, "-c", code, *arguments]
    return Server("test", argv, port=1, directory=directory, log=directory / "log", environment={**os.environ})


def _wait(condition: object, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_cpu_of_a_process_is_what_the_process_says_itself() -> None:
    begun, own = process.process_clock(os.getpid()), time.process_time()
    end = own + 0.1
    while time.process_time() < end:
        pass
    assert process.process_clock(os.getpid()) - begun == pytest.approx(time.process_time() - own, abs=0.02)


def test_cpu_of_children_counts_while_they_live_and_after_they_ended(tmp_path: Path) -> None:
    code = """
import subprocess, sys, time
burn = "import time\\nend = time.process_time() + 0.3\\nwhile time.process_time() < end: pass\\n"
print("ready", flush=True)
subprocess.run([sys.executable, "-c", burn])
live = subprocess.Popen([sys.executable, "-c", burn + "print('burnt', flush=True)\\nimport time; time.sleep(60)"])
live.wait()
"""
    server = _server(tmp_path, code)
    try:
        _wait(lambda: "ready" in server.log.read_text())
        before = server.figures()
        _wait(lambda: "burnt" in server.log.read_text())
        usage = process.difference(before, server.figures())
    finally:
        server.stop()
    assert 0.55 <= usage.cpu < 5
    assert usage.user + usage.system == pytest.approx(usage.cpu)
    assert len(usage.processes) == 2


def _figures(pid: int, cpu: float, reaped: float = 0.0) -> ProcessFigures:
    return ProcessFigures(pid, 1, "p", cpu * 0.75, cpu * 0.25, cpu, reaped, 0.0, 5, 7, 1)


def test_a_child_that_ends_between_two_readings_is_counted_once() -> None:
    before = {1: _figures(1, 1.0), 2: _figures(2, 3.0)}
    after = {1: _figures(1, 1.5, reaped=3.25)}
    assert process.difference(before, after).cpu == pytest.approx(0.75)


def test_a_child_that_comes_between_two_readings_is_counted_whole() -> None:
    usage = process.difference({1: _figures(1, 1.0)}, {1: _figures(1, 1.0), 2: _figures(2, 0.5)})
    assert usage.cpu == pytest.approx(0.5)
    assert (usage.voluntary_switches, usage.involuntary_switches) == (5, 7)


def test_stopping_a_server_ends_its_workers_too_even_stubborn_ones(tmp_path: Path) -> None:
    code = """
import subprocess, sys, time
stubborn = '''
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
'''
subprocess.Popen([sys.executable, "-c", stubborn])
time.sleep(600)
"""
    server = _server(tmp_path, code)
    _wait(lambda: "up" in server.log.read_text())
    pids = process.tree(server.pid)
    assert len(pids) == 2
    server.stop()
    _wait(lambda: all(process.read_figures(pid) is None for pid in pids))


def test_a_server_that_ends_says_its_last_words(tmp_path: Path) -> None:
    server = _server(tmp_path, "print('one', flush=True); raise SystemExit('cannot find the application')")
    with pytest.raises(ServerError, match="test ended with status 1: cannot find the application"):
        server.wait_ready(Request(), 20)
    server.stop()


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    server = _server(tmp_path, "import time; time.sleep(600)")
    try:
        with pytest.raises(ServerError, match="did not answer within"):
            server.wait_ready(Request(), 0.2)
    finally:
        server.stop()


def test_a_program_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="none does not start"):
        Server("none", ["/no/such/program"], port=1, directory=tmp_path, log=tmp_path / "log", environment={})


@pytest.mark.parametrize(
    ("options", "request_", "words"),
    [
        pytest.param({"error_every": 1}, Request(), "answers 500 to GET /", id="status"),
        pytest.param({}, Request(response_bytes=99), "13 bytes instead of 99", id="length"),
    ],
)
def test_readiness_is_a_right_answer_not_any_answer(
    options: dict[str, float], request_: Request, words: str, tmp_path: Path
) -> None:
    with fake.running(tmp_path, **options) as server, pytest.raises(ServerError, match=words):
        server.wait_ready(request_, 20)


def test_memory_is_read_for_the_whole_tree(tmp_path: Path) -> None:
    code = """
import subprocess, sys, time
hold = "data = b'x' * 50_000_000\\nprint('held', flush=True)\\nimport time; time.sleep(600)"
subprocess.Popen([sys.executable, "-c", hold])
exec(hold)
"""
    server = _server(tmp_path, code)
    try:
        with MemoryWatch(server.pid) as watch:
            _wait(lambda: server.log.read_text().count("held") == 2)
        held = watch.settled(process.read_memory(server.pid))
    finally:
        server.stop()
    assert held.settled_uss > 100_000_000
    assert held.peak_pss >= held.settled_pss > held.settled_uss * 0.9
    assert len(watch.pids) == 2


def test_children_are_pinned_and_the_harness_is_not() -> None:
    before = os.sched_getaffinity(0)
    one = {min(before)}
    with process.pinned(one):
        assert os.sched_getaffinity(0) == one
    assert os.sched_getaffinity(0) == before
    with process.pinned(()):
        assert os.sched_getaffinity(0) == before


def test_a_port_somebody_listens_on_is_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert process.in_use(listener.getsockname()[1])
    assert not process.in_use(process.free_port())


@pytest.mark.parametrize(
    "url", ["http://example.com:80/", "https://127.0.0.1:8000/", "http://127.0.0.1/", "nonsense", "http://10.0.0.1:80/"]
)
def test_load_goes_to_loopback_only(url: str) -> None:
    with pytest.raises(BenchError, match="load goes to"):
        Elsewhere(url)


def test_a_server_elsewhere_must_be_there() -> None:
    server = Elsewhere(f"http://127.0.0.1:{process.free_port()}/a/b")
    assert server.path == "/a/b"
    with pytest.raises(ServerError, match="no server listens"):
        server.check_alive()


def test_a_process_whose_threads_end_meanwhile_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def vanish(path: str) -> dict[str, int]:
        raise FileNotFoundError(path)

    monkeypatch.setattr(process, "_status", vanish)
    figures = process.read_figures(os.getpid())
    assert figures is not None
    assert figures.cpu > 0
