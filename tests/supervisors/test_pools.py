"""Several pools of workers under one parent."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.process import ServerProcess, is_gone
from tests.utils import request, wait_for
from uvicorn.supervisors import pools
from uvicorn.supervisors.pools import Outcome, Plan, PoolEnvironment, Pools

if sys.platform == "win32":
    pytest.skip("these signals cannot be sent on Windows", allow_module_level=True)
if sys.version_info < (3, 11):
    pytest.skip("no TOML", allow_module_level=True)

APP = """
import os

async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
        body = f"{NAME} {os.environ.get('OMP_NUM_THREADS')}".encode()
        await send({"type": "http.response.body", "body": body})
"""

FILE = """
workers = 1
log_level = "debug"
metrics = "127.0.0.1:0"

[pools.api]
app = "app:app"
app_dir = "first"
uds = "api.sock"

[pools.compute]
app = "app:app"
app_dir = "second"
uds = "compute.sock"
workers = 2
threads = 2
environment = { OMP_NUM_THREADS = "4" }
"""


def test_each_pool_has_an_application_and_settings_of_its_own(tmp_path: Path) -> None:
    """The second one has processes of two event loops."""
    for directory in ("first", "second"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "app.py").write_text(f"NAME = {directory!r}\n{APP}")
    (tmp_path / "uvicorn.toml").write_text(FILE)
    with ServerProcess("--config", "uvicorn.toml", cwd=tmp_path) as server:
        pids = [int(match[1]) for match in server.wait_for_pattern(r"Child process \[(\d+)\] serves\n", count=3)]
        assert b"first None" in request(str(tmp_path / "api.sock"))
        assert b"second 4" in request(str(tmp_path / "compute.sock"))
        if sys.platform == "linux":  # each with the variables that an interpreter starts with
            server.wait_for_pattern(r"Child processes are spawned: there are threads \(MainThread\b.*\)", count=2)
        told = server.wait_for_pattern(r"Metrics on http://127\.0\.0\.1:(\d+)/metrics")
        text = request(("127.0.0.1", int(told[0][1])), "/metrics").decode()
        assert 'uvicorn_requests_total{method="GET",status="2xx"} 2\n' in text
        assert 'uvicorn_worker_events_total{event="ready",reason=""} 3\n' in text
        assert text.count("uvicorn_worker_resident_bytes{") == 3
        server.send_signal(signal.SIGHUP)
        server.wait_for_pattern(r"Child process \[(\d+)\] serves\n", count=6)
        wait_for(lambda: all(is_gone(pid) for pid in pids))
        assert server.stop() == 0
        assert server.error_output.count("Started server process") == 2 * (1 + 2 * 2)
        assert server.error_output.count("Fork of uvicorn ") == 1
        assert server.error_output.startswith("INFO:     Fork of uvicorn ")
    assert not (tmp_path / "api.sock").exists()


class Double:
    """Stands for a pool that runs until told, and then fails or not."""

    def __init__(self, plan: Plan, with_banner: bool = False) -> None:
        self.name = plan.name
        self.outcome = Outcome.NONE
        self.fails = bool(plan.options.get("fails"))
        self.supervisor: Any = self
        self.config: Any = self
        self.metrics = self.probe = None
        self.systemd = False
        self.should_exit = threading.Event()
        self.signal_queue: list[int] = []
        self.closed = False

    def run(self) -> None:
        assert self.fails or self.should_exit.wait(30)
        self.outcome = Outcome.FAILED if self.fails else Outcome.ENDED

    def close(self) -> None:
        self.closed = True


def test_a_pool_that_fails_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "Pool", Double)
    several = Pools([Plan("good", {}, {}), Plan("bad", {"fails": True}, {})])
    with pytest.raises(SystemExit) as caught:
        several.run()
    assert caught.value.code == 3
    assert [pool.outcome for pool in several.pools] == [Outcome.ENDED, Outcome.FAILED]
    assert all(pool.closed for pool in several.pools)  # type: ignore[attr-defined]


def test_signals_are_those_of_each_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "Pool", Double)
    several = Pools([Plan("one", {}, {}), Plan("two", {}, {})])
    several.handle(signal.SIGHUP)
    assert [pool.supervisor.signal_queue for pool in several.pools] == [[signal.SIGHUP]] * 2


def test_an_address_that_is_taken_gives_up_those_of_the_others() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as free:
        ports = [free.getsockname()[1], taken.getsockname()[1]]
        free.close()
        options: list[dict[str, Any]] = [{"app": "a:b", "port": port, "log_config": None} for port in ports]
        with pytest.raises(SystemExit) as caught:
            Pools([Plan(str(port), option, {}) for port, option in zip(ports, options, strict=True)])
    assert caught.value.code == 3
    socket.create_server(("127.0.0.1", ports[0])).close()


@pytest.mark.parametrize("setting", ["reload", "preload"])
def test_what_has_no_sense_for_several_is_refused(setting: str) -> None:
    with pytest.raises(ValueError, match="several pools") as caught:
        Pools([Plan("one", {"app": "a:b", "port": 0, "log_config": None, setting: True}, {})])
    assert caught.value.__dict__["_settings_at_fault"] == (f"{setting}=True",)


def test_pool_environment_applies_while_a_worker_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UVICORN_TEST_KEPT", "before")
    monkeypatch.delenv("UVICORN_TEST_NEW", raising=False)
    path = sys.path[:]
    with PoolEnvironment({"UVICORN_TEST_KEPT": "within", "UVICORN_TEST_NEW": "within"}, "src")():
        assert os.environ["UVICORN_TEST_KEPT"] == os.environ["UVICORN_TEST_NEW"] == "within"
        assert sys.path == ["src", *path]
    assert os.environ["UVICORN_TEST_KEPT"] == "before"
    assert "UVICORN_TEST_NEW" not in os.environ
    assert sys.path == path
