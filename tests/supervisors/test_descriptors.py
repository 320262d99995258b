"""What the parent has open: no more after many workers than after the first ones."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.process import ServerProcess
from tests.utils import deep_after, wait_for

if not sys.platform.startswith("linux"):
    pytest.skip("descriptors are counted in /proc", allow_module_level=True)

RESTARTS = 2

APP = """
async def app(scope, receive, send):
    pass
"""

POOLS = """
[pools.api]
app = "app:app"
uds = "api.sock"

[pools.site]
app = "app:app"
uds = "site.sock"
"""

WAYS = {
    "spawned": ("app:app", "--workers", "2", "--worker-start", "spawn"),
    "forked": ("app:app", "--workers", "2", "--worker-start", "fork"),
    "preloaded": ("app:app", "--workers", "2", "--preload"),
    "with threads": ("app:app", "--workers", "2", "--threads", "2"),
    "in pools": ("--config", "uvicorn.toml"),
    "counted": ("app:app", "--workers", "2", "--metrics", "127.0.0.1:0"),
}


def open_files(pid: int) -> Counter[str]:
    """How many descriptors of each kind a process has."""
    found: Counter[str] = Counter()
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[os.readlink(f"/proc/{pid}/fd/{number}").partition(":[")[0]] += 1
        except FileNotFoundError:  # that of the listing
            continue
    return found


def assert_no_more(pid: int, before: Counter[str]) -> None:
    """What is on its way out may be there for a moment."""
    with contextlib.suppress(AssertionError):
        wait_for(lambda: open_files(pid) <= before, timeout=3.0)
    assert open_files(pid) <= before


@pytest.mark.parametrize("way", deep_after(3, WAYS))
def test_restarts_leave_no_descriptors(tmp_path: Path, way: str) -> None:
    """X1: neither in the parent nor in the workers that it starts later."""
    if way == "in pools" and sys.version_info < (3, 11):
        pytest.skip("no TOML")
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "uvicorn.toml").write_text(POOLS)
    with ServerProcess(
        *WAYS[way], *("--port", "0")[: 0 if way == "in pools" else 2], "--log-level", "debug", cwd=tmp_path
    ) as server:
        first = [int(match[1]) for match in server.wait_for_pattern(r"Child process \[(\d+)\] serves\n", count=2)]
        before = open_files(server.pid)
        of_worker = open_files(first[-1])
        for restart in range(1, RESTARTS + 1):
            server.send_signal(signal.SIGHUP)
            server.wait_for_pattern(r"Child process \[(\d+)\] has ended\n", count=2 * restart)
        last = int(server.wait_for_pattern(r"Child process \[(\d+)\] serves\n", count=2 + 2 * RESTARTS)[-1][1])
        assert_no_more(server.pid, before)
        # Each has the maps of those that it was started beside, of which there may be more in a restart.
        of_worker["/memfd:uvicorn-metrics (deleted)"] = 2 * 3
        assert_no_more(last, of_worker)


def test_deaths_leave_no_descriptors(tmp_path: Path) -> None:
    """X1: as above, of workers that are killed."""
    (tmp_path / "app.py").write_text(APP)
    with ServerProcess(
        "app:app", *WAYS["preloaded"][1:], "--port", "0", "--log-level", "debug", cwd=tmp_path
    ) as server:
        server.wait_for_pattern(r"Child process \[(\d+)\] serves\n", count=2)
        before = open_files(server.pid)
        for death in range(RESTARTS):
            newest = int(server.wait_for_pattern(r"Child process \[(\d+)\] serves\n", count=2 + death)[-1][1])
            os.kill(newest, signal.SIGKILL)
            server.wait_for_pattern(r"died \(killed by SIGKILL\)", count=1 + death)
        server.wait_for_pattern(r"Child process \[(\d+)\] serves\n", count=2 + RESTARTS)
        assert_no_more(server.pid, before)


def test_reloads_leave_no_descriptors(tmp_path: Path) -> None:
    """X1: as above, of the child that is replaced when files change."""
    (tmp_path / "app.py").write_text(APP)
    options = ("--reload", "--reload-delay", "0.1")
    with ServerProcess("app:app", *options, "--port", "0", "--log-level", "debug", cwd=tmp_path) as server:
        server.wait_for("Application startup complete")
        before = open_files(server.pid)
        for reload in range(1, RESTARTS + 1):
            (tmp_path / "app.py").write_text(APP + f"# {reload}\n")
            server.wait_for("Application startup complete", count=1 + reload)
        assert_no_more(server.pid, before)
