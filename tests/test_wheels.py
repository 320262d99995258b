"""The scripts that build wheels and query an installed one."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import subprocess
import sys
from types import ModuleType

import pytest

from tests.process import ROOT
from tests.utils import NATIVE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the script builds for Linux, on Linux")
BUILD = ROOT / "scripts" / "build-wheels"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script as a module."""
    loader = importlib.machinery.SourceFileLoader("build_wheels", str(BUILD))
    spec = importlib.util.spec_from_loader("build_wheels", loader)
    assert spec is not None
    module = sys.modules["build_wheels"] = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.skipif(not NATIVE, reason="asks the native core")
def test_installed_package_serves_each_protocol() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "check-wheel"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("The native core serves HTTP/1.1, HTTP/2 and WebSocket on 3.")


def test_modules_are_named_as_interpreters_load_them(script: ModuleType) -> None:
    """CPython for musl has its own suffix from 3.11 on."""

    def suffix(platform: str, minor: int, is_free_threaded: bool = False) -> str:
        interpreter = script.Interpreter("python3", minor, 0, is_free_threaded, "manylinux")
        return str(script.PLATFORMS[platform].suffix(interpreter)).format(machine="aarch64")

    assert suffix("manylinux", 13, is_free_threaded=True) == ".cpython-313t-aarch64-linux-gnu.so"
    assert suffix("musllinux", 10) == ".cpython-310-aarch64-linux-gnu.so"
    assert suffix("musllinux", 11) == ".cpython-311-aarch64-linux-musl.so"


def test_newest_release_of_each_abi_is_chosen(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {
        name: script.Interpreter(name, minor, micro, is_free_threaded, platform)
        for name, minor, micro, is_free_threaded, platform in [
            ("old", 12, 1, False, "manylinux"),
            ("new", 12, 11, False, "manylinux"),
            ("free", 13, 0, True, "manylinux"),
            ("musl", 12, 0, False, "musllinux"),
        ]
    }
    monkeypatch.setattr(script.Interpreter, "find", names.get)
    monkeypatch.setattr(script, "candidates", lambda: [*names, "broken"])
    assert [one.path for one in script.interpreters([])] == ["new", "free", "musl"]


def test_program_other_than_an_interpreter_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, BUILD, "--python", "/bin/false"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "build-wheels: /bin/false is no final release of CPython from 3.10 on.\n"
