"""SIGTERM of process 1 while no server handles it; `tests/supervisors/test_orphans.py` has real ones."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from uvicorn.serving import init_signals

pytestmark = pytest.mark.skipif(os.name == "nt", reason="no process 1")


class Exited(BaseException):
    """In the place of an exit."""


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What this process, as process 1, has asked of the system."""
    asked: list[Any] = []

    def leave(status: int) -> None:
        asked.append(status)
        raise Exited

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(init_signals, "is_init", lambda: True)
    monkeypatch.setattr(init_signals, "LAST_WAIT", 0)
    monkeypatch.setattr(init_signals, "end_after_signals", lambda seconds, *signals: asked.append(signals))
    monkeypatch.setattr("uvicorn.serving.init_signals.os._exit", leave)
    monkeypatch.setattr(init_signals, "_action", None)
    yield asked
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("has_served", [False, True])
def test_the_first_signal_ends_it_and_the_second_at_once(
    exits: list[Any], has_served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(threading.Thread, "start", lambda self: started.append(self))
    init_signals.handle_as_default()
    if has_served:
        init_signals.server_has_ended()
        signal.raise_signal(signal.SIGTERM)  # it is ending already
    else:
        with pytest.raises(SystemExit, match="143"):
            signal.raise_signal(signal.SIGTERM)
    assert len(started) == 1
    with pytest.raises(Exited):
        signal.raise_signal(signal.SIGTERM)
    assert exits == [(signal.SIGTERM,)] * (1 + has_served) + [143]


def test_an_exit_that_takes_too_long_is_killed(
    exits: list[Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "shutdown", lambda: None)
    with pytest.raises(Exited):
        init_signals.DefaultAction()._end_late(signal.SIGTERM)
    assert exits == [143] and "Process 1 has not exited within" in caplog.text


def test_without_a_thread_it_ends_at_once(exits: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(Exited):
        init_signals.DefaultAction().handle(signal.SIGTERM, None)
    assert exits == [143]


def test_a_fork_of_the_application_takes_the_default_action(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    action = init_signals.DefaultAction()
    action._pid += 1
    monkeypatch.setattr("uvicorn.serving.init_signals.signal.signal", lambda *arguments: asked.append(arguments))

    def leave(number: int) -> None:
        asked.append(number)
        raise Exited

    monkeypatch.setattr("uvicorn.serving.init_signals.signal.raise_signal", leave)
    with pytest.raises(Exited):
        action.handle(signal.SIGTERM, None)
    assert asked == [(signal.SIGTERM, signal.SIG_DFL), signal.SIGTERM]


def test_another_process_than_the_first_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init_signals, "_action", None)
    before = signal.getsignal(signal.SIGTERM)
    init_signals.handle_as_default()
    init_signals.server_has_ended()
    assert signal.getsignal(signal.SIGTERM) is before
