"""gunicorn with the worker classes of ``uvicorn.workers``, driven by httpx and websockets."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

from tests.applications.conftest import APPS
from tests.process import ServerProcess

pytest.importorskip("gunicorn")

LISTENING = r"Listening at: http://127\.0\.0\.1:(\d+)"


@contextmanager
def gunicorn(worker_class: str, *options: str, app: str = "starlette_app:app") -> Iterator[tuple[ServerProcess, int]]:
    """Run gunicorn with this worker class while the block runs, then stop it gracefully; gives its port too."""
    command = (sys.executable, "-W", "ignore::DeprecationWarning", "-m", "gunicorn")
    arguments = ("--worker-class", worker_class, "--bind", "127.0.0.1:0", "--chdir", APPS, "--access-logfile", "-")
    with ServerProcess(*arguments, *options, app, command=command) as server:
        port = int(server.wait_for_pattern(LISTENING)[0][1])
        server.wait_for("Application startup complete.")
        yield server, port
        assert server.stop() == 0, server.describe()
        assert "Application shutdown complete." in server.error_output, server.describe()
        complaints = re.findall(r".*(?:\[(?:WARNING|ERROR|CRITICAL)\]|Traceback).*", server.error_output)
        assert complaints == [], server.describe()


@pytest.mark.parametrize("worker_class", ["uvicorn.workers.UvicornWorker", "uvicorn.workers.UvicornH11Worker"])
def test_gunicorn_serves_with_our_worker(worker_class: str) -> None:
    """GUN-01, GUN-04, GUN-09."""
    with gunicorn(worker_class) as (server, port):
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            assert client.get("/state").json() == {"name": "from the lifespan", "seen": []}
            assert len(client.get("/download").content) == 64 * 65536
        with connect(f"ws://127.0.0.1:{port}/echo", proxy=None) as websocket:
            websocket.send("hello")
            assert websocket.recv(30) == "hello"
        server.wait_for('"GET /state HTTP/1.1" 200')
        assert "Uvicorn running on" not in server.error_output


def test_gunicorn_replaces_a_worker_at_its_request_limit() -> None:
    """GUN-03, GUN-08."""
    with gunicorn("uvicorn.workers.UvicornWorker", "--max-requests", "3") as (server, port):
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            for _ in range(3):
                assert client.get("/state").status_code == 200
        server.wait_for("Application startup complete.", count=2)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            assert client.get("/state").status_code == 200


def test_gunicorn_reloads_on_hangup() -> None:
    """GUN-05: the workers leave signals to gunicorn."""
    with gunicorn("uvicorn.workers.UvicornWorker", "--workers", "2") as (server, port):
        server.wait_for("Application startup complete.", count=2)
        server.send_signal(signal.SIGHUP)
        server.wait_for("Application startup complete.", count=4)
        server.wait_for("Application shutdown complete.", count=2)
        assert httpx.get(f"http://127.0.0.1:{port}/state", trust_env=False).status_code == 200


def test_gunicorn_shuts_down_when_the_application_does_not_start(tmp_path: Path) -> None:
    """GUN-07."""
    (tmp_path / "failing.py").write_text(
        "async def app(scope, receive, send):\n"
        "    assert scope['type'] == 'lifespan'\n"
        "    await receive()\n"
        "    await send({'type': 'lifespan.startup.failed', 'message': 'not today'})\n"
    )
    command = (sys.executable, "-W", "ignore::DeprecationWarning", "-m", "gunicorn")
    arguments = ("--worker-class", "uvicorn.workers.UvicornWorker", "--bind", "127.0.0.1:0", "--chdir", tmp_path)
    with ServerProcess(*arguments, "failing:app", command=command, env={"HOME": os.fspath(tmp_path)}) as server:
        assert server.wait() == 3, server.describe()
        assert "not today" in server.error_output
