"""Somebody who watches a file instead of a terminal sees that it goes on, and SIGTERM loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bench import model, progress
from bench.commands import common
from bench.progress import Progress
from bench.targets import ROOT
from tests.bench import fake


def _until(condition: object, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_happens_is_said_again_and_again_until_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.02)
    said: list[str] = []

    def lines() -> list[str]:
        said.extend(capsys.readouterr().err.splitlines())
        return said

    shown = Progress()
    shown.say("first")
    _until(lambda: len(lines()) >= 2)
    shown.say("second")
    _until(lambda: any(line.endswith(" s  second") for line in lines()))
    shown.end()
    assert said[0].endswith(" s  first")
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]
    shown.say("third")
    _until(lambda: any("third" in line for line in lines()))
    shown.end()


def test_a_plan_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.02)
    said: list[str] = []

    def lines() -> list[str]:
        said.extend(capsys.readouterr().err.splitlines())
        return said

    with common.bar(5) as step:
        step("ours hello")
        step("upstream hello")
        _until(lines)
    progress.ticker.end()
    assert said[0].endswith("2 of 5: upstream hello")


@pytest.mark.deep
def test_sigterm_keeps_what_was_measured(tmp_path: Path) -> None:
    output = tmp_path / "result.json"
    with fake.running(tmp_path) as server:
        arguments = ["run", "--url", f"http://127.0.0.1:{server.port}/", "--rounds", "1000", "--tool", "closedloop"]
        arguments += ["--seconds", "0.2", "--warm-up", "0", "--connections", "2", "--output", str(output)]
        child = subprocess.Popen(
            [sys.executable, "-m", "bench", *arguments],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        try:
            _until(lambda: _asked(server.port) > 50)
            child.send_signal(signal.SIGTERM)
            _, error = child.communicate(timeout=30)
        finally:
            child.kill()
            child.wait()
    assert error.splitlines()[-1] == "bench: interrupted"
    assert child.returncode == 1
    assert "ended early: interrupted" in model.load(output).notes


def _asked(port: int) -> int:
    from urllib.request import urlopen

    with urlopen(f"http://127.0.0.1:{port}/count", timeout=10) as answer:
        return int(answer.read())
