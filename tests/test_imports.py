"""What a process imports that only serves: each module costs each worker its time and its memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SERVE = """
import json, sys
import uvicorn.supervisors.multiprocess
from uvicorn import Config, Server

class Ending(Server):
    async def main_loop(self):
        print(json.dumps(sorted(sys.modules)))

Ending(Config("app:app", port=0, log_level="critical", lifespan="off")).run()
"""

APP = "async def app(scope, receive, send): ...\n"


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The modules of a worker that has begun to serve with the native core."""
    pytest.importorskip("uvicorn._native")
    directory: Path = tmp_path_factory.mktemp("imports")
    (directory / "app.py").write_text(APP)
    command = [sys.executable, "-c", SERVE]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "name",
    [
        "a2wsgi",
        "dotenv",
        "h11",
        "httptools",
        "uvicorn.protocols.http.protocol",
        "uvicorn.protocols.websockets.session",
        "uvicorn.supervisors.basereload",
        "watchfiles",
        "websockets",
        "wsproto",
        "yaml",
    ],
)
def test_worker_does_not_import_what_it_does_not_use(imported: set[str], name: str) -> None:
    assert name not in imported


def test_worker_serves_with_the_native_core(imported: set[str]) -> None:
    assert {"app", "uvicorn._native", "uvicorn.protocols.websockets.native_impl"} <= imported


@pytest.mark.parametrize(
    "name",
    [
        "uvicorn.middleware.wsgi.WSGIMiddleware",
        "uvicorn.config.WSGIMiddleware",
        "uvicorn.supervisors.BaseReload",
        "uvicorn.supervisors.ChangeReload",
        "uvicorn.supervisors.Multiprocess",
        "uvicorn.supervisors.basereload.BaseReload",
        "uvicorn._subprocess.get_subprocess",
    ],
)
def test_what_is_imported_late_is_reached_all_the_same(name: str) -> None:
    """Programs name it after `import uvicorn` alone."""
    subprocess.run([sys.executable, "-c", f"import uvicorn; {name}"], check=True, timeout=60)
