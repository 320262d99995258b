"""Each application of `docs/quickstart.md`, served by the commands below it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import httpx
import pytest

from tests.process import ROOT, ServerProcess
from tests.utils import deep_after, is_listening, wait_for

SECTION = re.compile(r"^## (\w+)\n\n```python\n# main\.py\n(.*?)^```\n\n```shell\n(.*?)^```", re.M | re.S)
SECTIONS = {
    name: (source, re.findall(r"^uvicorn (main:app.*)$", commands, re.M))
    for name, source, commands in SECTION.findall((ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8"))
}

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="servers are stopped by SIGTERM")


def test_the_page_has_every_framework() -> None:
    assert list(SECTIONS) == ["FastAPI", "Starlette", "Litestar", "Django", "Flask"]
    assert all(len(commands) == 2 for _, commands in SECTIONS.values())


@pytest.mark.parametrize("name", deep_after(1, SECTIONS))
def test_applications_answer_while_they_are_developed(name: str, tmp_path: Path) -> None:
    require_answer(name, SECTIONS[name][1][0], tmp_path)


@pytest.mark.parametrize("name", deep_after(1, SECTIONS))
def test_applications_answer_from_several_processes(name: str, tmp_path: Path) -> None:
    """Two, since a test needs no more."""
    require_answer(name, SECTIONS[name][1][1].replace("--workers 4", "--workers 2"), tmp_path)


def require_answer(name: str, command: str, directory: Path) -> None:
    """The application answers, and the server logs no warning."""
    pytest.importorskip(name.lower())
    (directory / "main.py").write_text(SECTIONS[name][0], encoding="utf-8")
    with ServerProcess(*command.split(), "--port", "0", cwd=directory) as server:
        wait_for(lambda: is_listening(server.address))
        answer = httpx.get(f"http://127.0.0.1:{server.port}/", timeout=30, trust_env=False)
        assert (answer.status_code, answer.json()) == (200, {"message": "Hello"})
        server.stop()
        lines = server.error_output.splitlines()
        assert [line for line in lines if not line.startswith("INFO: ")] == [], server.describe()
