"""`scripts/install`, behind `make serve` and `make test`: what it says where there is nothing to install with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a shell script")

TOOLS = ("sh", "dirname", "sort", "head", "cut", "rm", "env")

WITHOUT_INSTALLERS = """
import sys
sys.modules["ensurepip"] = sys.modules["pip"] = None
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A directory with the script in it, and beside it the few programs that every system has."""
    (tmp_path / "clone" / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "install", tmp_path / "clone" / "scripts")
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or tool)
    return tmp_path / "clone"


def install(clone: Path, *arguments: str, **variables: str) -> tuple[int, list[str]]:
    """Exit status and the lines on standard error."""
    run = subprocess.run(
        [clone / "scripts" / "install", *arguments],
        env={"PATH": str(clone.parent / "bin"), **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert not (clone / ".venv").exists()
    return run.returncode, run.stderr.splitlines()


def test_without_python_one_line_says_what_to_install(clone: Path) -> None:
    status, (line,) = install(clone)
    assert status == 1
    assert line == (
        "scripts/install: no CPython >= 3.10 was found; install one, for instance: apt-get install python3 python3-venv"
    )


def test_without_pip_one_line_says_what_to_install(clone: Path) -> None:
    """Debian keeps it, and what would fetch it, in a package of its own."""
    (clone.parent / "sitecustomize.py").write_text(WITHOUT_INSTALLERS)
    status, (line,) = install(clone, PYTHON=sys.executable, PYTHONPATH=str(clone.parent))
    assert status == 1
    assert line.endswith("has neither ensurepip nor pip; install them: apt-get install python3-venv")


@pytest.mark.parametrize("python", ["not-there", os.curdir])
def test_python_that_was_chosen_and_is_none_is_named(clone: Path, python: str) -> None:
    status, (line,) = install(clone, PYTHON=python)
    assert status == 1
    assert line == f"scripts/install: PYTHON={python} is no CPython >= 3.10 with the module venv"


def test_unknown_extras_are_a_usage_error(clone: Path) -> None:
    assert install(clone, "everything") == (2, ["usage: scripts/install [standard|test|dev]"])
