"""An installation with the native core and one without: what a server says, and what it serves with."""

from __future__ import annotations

import importlib
import os
import re
import runpy
import shutil
import subprocess
import sys
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socket

import pytest

from tests import conftest
from tests.process import ROOT, ServerProcess
from tests.utils import NATIVE, is_listening, request, wait_for
from uvicorn._subprocess import get_subprocess, spawn
from uvicorn.config import Config

APP = """
async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})
"""
needs_module = pytest.mark.skipif(not NATIVE, reason="the native core was not built")
LINE = "INFO:     Fork of uvicorn 0.54.0; HTTP core: "
RUST = re.findall('^rust-version = "(.*)"$', (ROOT / "native" / "Cargo.toml").read_text(), flags=re.MULTILINE)[0]
COMMAND = "pip install --force-reinstall --no-deps"
HOW = f"install Rust {RUST} or later (https://rustup.rs), then reinstall uvicorn ({COMMAND})"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the application is."""
    tmp_path.joinpath("served.py").write_text(APP)
    return tmp_path


@pytest.fixture
def without_native(tmp_path: Path) -> dict[str, str]:
    """Variables of an interpreter, and of those it starts, that finds no native core."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    # The name site.py looks for; the one of a virtual environment, if there is any, is not needed here.
    hidden.joinpath("sitecustomize.py").write_text("import sys; sys.modules['uvicorn._native'] = None\n")
    return {"PYTHONPATH": f"{Path(__file__).parent.parent}{':' if sys.platform != 'win32' else ';'}{hidden}"}


@pytest.mark.measures_children
@pytest.mark.skipif(sys.platform == "win32", reason="servers are stopped by SIGTERM here")
@pytest.mark.parametrize(
    "options",
    [
        pytest.param([], id="one-process"),
        pytest.param(["--workers", "2"], id="workers"),
        pytest.param(["--reload"], id="reload"),
    ],
)
def test_server_without_the_native_core_says_so_once_and_serves(
    options: list[str], directory: Path, without_native: dict[str, str]
) -> None:
    with ServerProcess("served:app", "--port", "0", *options, cwd=directory, env=without_native) as server:
        server.wait_for("Application startup complete.", count=2 if "--workers" in options else 1)
        wait_for(lambda: is_listening(server.address))
        assert request(server.address).startswith(b"HTTP/1.1 204 ")
        server.stop()
        assert server.error_output.count(LINE) == 1
        assert server.error_output.count(f" (the native core was not built: {HOW})\n") == 1
        assert server.error_output.index(LINE) < server.error_output.index("Application startup complete.")


@pytest.mark.skipif(sys.platform == "win32", reason="servers are stopped by SIGTERM here")
@pytest.mark.parametrize("http", ["auto", "h11"])
def test_server_with_the_native_core_or_another_choice_says_nothing(http: str, directory: Path) -> None:
    if http == "auto" and not NATIVE:
        pytest.skip("the native core was not built")
    with ServerProcess("served:app", "--port", "0", "--http", http, cwd=directory) as server:
        server.wait_for("Application startup complete.")
        server.stop()
        assert "native core" not in server.error_output


def test_version_says_that_the_native_core_was_not_built(without_native: dict[str, str], tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "uvicorn", "--version"],
        cwd=tmp_path,
        env=without_native,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert result.stdout.splitlines()[1].endswith(f" (the native core was not built: {HOW})")


@pytest.fixture
def without_core(tmp_path: Path) -> Path:
    """Return a directory with the sources, as a clone has them: without a core."""
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / "uvicorn", clone / "uvicorn", ignore=shutil.ignore_patterns("_native.*", "__pycache__"))
    return clone


@needs_module
def test_sources_that_hide_an_installed_core_are_named(without_core: Path) -> None:
    path = os.pathsep.join([str(without_core), str(ROOT)])
    command = [sys.executable, "-m", "uvicorn", "--version"]
    done = subprocess.run(
        command, cwd=without_core, env={"PYTHONPATH": path}, capture_output=True, text=True, timeout=60, check=True
    )
    both = rf"{without_core / 'uvicorn'} has none and comes before {ROOT / 'uvicorn'}"
    assert f" (the native core is hidden: {both}; start in another directory)\n" in done.stdout


def test_children_import_the_package_of_their_parent(without_core: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sources of a clone, the current directory, come before the installed package in the path of both."""
    before = [str(without_core), *sys.path]
    monkeypatch.setattr(sys, "path", list(before))
    ours, theirs = spawn.Pipe(duplex=False)
    with ours, theirs:
        process = get_subprocess(Config("served:app"), partial(report_imports, theirs), [])
        process.start()
        assert ours.poll(60)
        assert ours.recv() == (importlib.import_module("uvicorn").__file__, before)
        process.join()
    assert sys.path == before


def report_imports(answer: Connection, sockets: list[socket] | None) -> None:
    answer.send((importlib.import_module("uvicorn").__file__, sys.path))


# Which sources it is of.


@needs_module
@pytest.mark.parametrize("sources", ["of another tree", None])
def test_native_core_of_other_sources_is_not_tested(sources: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("uvicorn._native")
    if Path(str(module.__file__)).parent != ROOT / "uvicorn":
        pytest.skip("it is installed elsewhere")
    monkeypatch.setenv("UVICORN_REQUIRE_NATIVE", "1")
    if conftest.stale_core() is None:
        conftest.refuse_stale_core()
    if sources is None:
        monkeypatch.delattr(module, "SOURCES")
    else:
        monkeypatch.setattr(module, "SOURCES", sources)
    with pytest.raises(pytest.exit.Exception, match=r"_native\..* was not built from the sources in native: "):
        conftest.refuse_stale_core()
    monkeypatch.delenv("UVICORN_REQUIRE_NATIVE")
    conftest.refuse_stale_core()


def test_fingerprint_is_that_of_what_the_module_is_built_from(tmp_path: Path) -> None:
    fingerprint = runpy.run_path(str(ROOT / "native" / "fingerprint.py"))["fingerprint"]
    for name in ("Cargo.toml", "bindings/build.rs", "bindings/src/h1/a.rs", "wire/Cargo.toml", "wire/src/b.rs"):
        before = fingerprint(tmp_path)
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a")
        added = fingerprint(tmp_path)
        (tmp_path / name).write_text("b")
        assert len({before, added, fingerprint(tmp_path)}) == 3
    whole = fingerprint(tmp_path)
    for name in ("target/release/build/out.rs", "wire/tests/c.rs", "wire/fuzz/src/d.rs", "bindings/src/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a")
        assert fingerprint(tmp_path) == whole
