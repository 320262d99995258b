"""`UVICORN_SHORTCUTS`: which shortcuts a server takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from uvicorn.config import Config
from uvicorn.faults import report_fault
from uvicorn.shortcuts import VARIABLE, Shortcut, chosen


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, set(Shortcut)),
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
    assert chosen() == expected


def test_unknown_name_is_one_line_at_the_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, "eager,speed")
    with pytest.raises(ValueError, match="'speed' is no shortcut: name some of coroutines, eager, ") as caught:
        Config("app:app", log_config=None)
    assert report_fault(caught.value)
    assert caplog.messages[0].startswith("Cannot use UVICORN_SHORTCUTS='eager,speed': ")


def test_native_core_knows_the_same_names() -> None:
    source = Path(__file__).parent.parent / "native/bindings/src/base/shortcuts.rs"
    if not source.exists():
        pytest.skip("not in a checkout")
    names = re.findall(r'\(Shortcut::\w+, "(\w+)"\)', source.read_text("utf-8"))
    assert names == [shortcut.value for shortcut in Shortcut]
