"""Serving a real application: a process started through the command line, and required to end without a complaint."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.process import ServerProcess

APPS = Path(__file__).parent / "apps"

# Servers are stopped by SIGTERM here, which Windows does not have.
collect_ignore_glob = ["test_*.py"] if sys.platform == "win32" else []


@contextmanager
def serving(app: str, *options: str, lifespan: bool = True) -> Iterator[ServerProcess]:
    """Serve ``apps/<app>.py`` while the block runs, then stop gracefully; only INFO lines may have been logged."""
    with ServerProcess(f"{app}:app", "--app-dir", APPS, "--port", "0", *options) as server:
        server.wait_for("Uvicorn running on")
        yield server
        code = server.stop()
        assert code == -signal.SIGTERM, server.describe()
        require_clean_log(server)
        assert ("Application shutdown complete." in server.error_output) is lifespan, server.describe()
        assert f"Finished server process [{server.pid}]" in server.error_output, server.describe()


def require_clean_log(server: ServerProcess) -> None:
    """Every line on either stream is an INFO line of ours."""
    lines = (server.error_output + server.output).splitlines()
    assert lines
    assert [line for line in lines if not re.match(r"INFO:     ", line)] == [], server.describe()


def client_of(server: ServerProcess) -> httpx.Client:
    """An HTTP client for the server, which looks at no proxy settings; of HTTP/2 where that is served."""
    http2 = "--http2" in server.arguments
    base_url = f"http://127.0.0.1:{server.port}"
    return httpx.Client(base_url=base_url, timeout=30, trust_env=False, http1=not http2, http2=http2)


def version_of(server: ServerProcess) -> str:
    """What the access log says of a request of `client_of`."""
    return "HTTP/2" if "--http2" in server.arguments else "HTTP/1.1"


#: HTTP and WebSocket implementation, event loop, and more: the native core by day, all others and HTTP/2 in the night.
COMBINATIONS = [
    pytest.param(("websockets-sansio", "--http", "httptools"), id="httptools", marks=pytest.mark.deep),
    pytest.param(("wsproto", "--http", "h11"), id="h11", marks=pytest.mark.deep),
    pytest.param(("native", "--http", "native", "--loop", "uvloop"), id="native-uvloop"),
    pytest.param(
        ("wsproto", "--http", "native", "--loop", "asyncio", "--http2"),
        id="native-asyncio-http2",
        marks=pytest.mark.deep,
    ),
]


@pytest.fixture(params=COMBINATIONS)
def http_and_ws(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Options that choose each HTTP and each WebSocket implementation at least once."""
    ws, *options = request.param
    if "native" in options:
        pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)
    if "uvloop" in options:
        pytest.importorskip("uvloop")
    return "--ws", ws, *options


@pytest.fixture
def http(http_and_ws: tuple[str, ...]) -> tuple[str, ...]:
    """Options that choose each HTTP implementation in turn."""
    return http_and_ws[2:]
