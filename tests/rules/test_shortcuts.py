"""`UVICORN_SHORTCUTS`: which shortcuts a server takes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from uvicorn.config import Config
from uvicorn.config.errors import report_error
from uvicorn.rules.shortcuts import VARIABLE, Shortcut, chosen, proved


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, set(proved())),
        ("none", set()),
        ("", set()),
        ("eager", {Shortcut.EAGER}),
        ("reuse, steps", {Shortcut.REUSE, Shortcut.STEPS}),
    ],
)
def test_the_environment_says_which_are_taken(
    monkeypatch: pytest.MonkeyPatch, value: str | None, expected: set[Shortcut]
) -> None:
    if value is None:
        monkeypatch.delenv(VARIABLE, raising=False)
    else:
        monkeypatch.setenv(VARIABLE, value)
    assert chosen() == expected & proved()


def test_unknown_name_is_one_line_at_the_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, "eager,speed")
    with pytest.raises(ValueError, match="'speed' is not a shortcut: choose from coroutines, eager, ") as caught:
        Config("app:app", log_config=None)
    assert report_error(caught.value)
    assert caplog.messages[0].startswith("Cannot use UVICORN_SHORTCUTS='eager,speed': ")


def test_native_core_knows_the_same_names() -> None:
    source = Path(__file__).parent.parent.parent / "native/bindings/src/base/shortcuts.rs"
    if not source.exists():
        pytest.skip("not in a checkout")
    names = re.findall(r'\(Shortcut::\w+, "(\w+)"\)', source.read_text("utf-8"))
    assert names == [shortcut.value for shortcut in Shortcut]


@pytest.mark.parametrize("other", ["implementation", "later", "free-threaded"])
def test_interpreter_of_which_nothing_is_proved_takes_the_long_way(monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if other == "implementation":
        monkeypatch.setattr(sys, "implementation", SimpleNamespace(name="pypy"))
    elif other == "later":
        monkeypatch.setattr(sys, "version_info", (3, 14, 0, "final", 0))
    else:
        monkeypatch.setattr(sys, "version", "3.13.1 experimental free-threading build (main)")
    assert chosen() == proved() == frozenset()
    monkeypatch.setenv(VARIABLE, "eager,reuse")
    assert chosen() == frozenset()


def test_native_core_without_shortcuts_has_the_slots_of_its_classes_as_they_are_made() -> None:
    """They are chosen when the module is imported."""
    pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)
    code = "import uvicorn._native as native; print(native.Callable.__flags__ >> 11 & 1)"
    for value, expected in (("none", "0"), ("slots", str(int(Shortcut.SLOTS in proved()))), ("speed", "0")):
        done = subprocess.run([sys.executable, "-c", code], env={**os.environ, VARIABLE: value}, capture_output=True)
        assert done.stdout.decode().strip() == expected, done.stderr
