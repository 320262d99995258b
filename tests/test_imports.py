"""What a process imports that only serves: each module costs each worker its time and its memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process import ServerProcess

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
        "click",
        "dotenv",
        "h11",
        "httptools",
        "uvicorn.tls.certificates",
        "uvicorn.overload.gate",
        "uvicorn.main",
        "uvicorn.overload.admission",
        "uvicorn.protocols.http.protocol",
        "uvicorn.protocols.websockets.session",
        "uvicorn.supervisors.basereload",
        "uvicorn.tls.context",
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


TELLING_APP = """
import sys

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        said = f"{'click' in sys.modules} {'uvicorn.main' in sys.modules}\\n"
        print(said, end="", flush=True)  # in one write: two processes say it
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
"""

SCRIPT = """
import sys
from uvicorn.main import main
if __name__ == "__main__":
    sys.exit(main())
"""

PROGRAM = """
import sys
import uvicorn
print(f"run as {__name__}\\n", end="", flush=True)  # in one write: two processes say it
if __name__ == "__main__":
    uvicorn.run("app:app", port=0, workers=2)
"""


@pytest.mark.parametrize("name", ["uvicorn", "-m", "program.py"])
def test_worker_does_not_import_the_command_line(tmp_path: Path, name: str) -> None:
    """If it is spawned.

    Of a program of somebody else's it runs the file, as it always had, and imports what that does.
    """
    (tmp_path / "app.py").write_text(TELLING_APP)
    (tmp_path / "uvicorn").write_text(SCRIPT)
    (tmp_path / "program.py").write_text(PROGRAM)
    arguments = [] if name == "program.py" else ["app:app", "--port", "0", "--workers", "2", "--worker-start", "spawn"]
    started = ["-m", "uvicorn"] if name == "-m" else [tmp_path / name]
    with ServerProcess(*arguments, cwd=tmp_path, command=[sys.executable, *started]) as server:
        server.wait_for("False False\n", count=2)
        server.stop()
        assert server.output.count("run as __mp_main__") == (2 if name == "program.py" else 0)


@pytest.mark.parametrize(
    "statement", ["import uvicorn", "import uvicorn.main", "from uvicorn.main import run", "from uvicorn import main"]
)
def test_the_command_has_the_name_of_its_module(statement: str) -> None:
    """In whatever order they are imported, `uvicorn.main` is what it is upstream."""
    program = f"{statement}; import uvicorn, click; assert isinstance(uvicorn.main, click.Command); uvicorn.run"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


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
