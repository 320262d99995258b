from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import Any

import pytest

from uvicorn.serving.turn_taking import BUSY, INTERVAL, LONGEST_INTERVAL, MOMENT, TurnTaking


class Loop(asyncio.BaseEventLoop):
    """Its timers are due when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.delays: list[float] = []
        self.due: list[Callable[[], object]] = []

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self.delays.append(delay)
        self.due = [lambda: callback(*args)]
        return asyncio.TimerHandle(0, callback, args, self, context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self.due.clear()


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    sleeps: list[float] = []
    monkeypatch.setattr(time, "sleep", sleeps.append)
    return sleeps


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    used = [0.0]
    monkeypatch.setattr(time, "thread_time", lambda: used[0])
    return used


def test_a_busy_loop_lets_others_run(loop: Loop, sleeps: list[float], used: list[float]) -> None:
    TurnTaking().start(loop)
    for _ in range(3):
        used[0] += BUSY
        loop.due[0]()
    assert sleeps == [MOMENT] * 3
    assert loop.delays == [INTERVAL] * 4


def test_an_idle_loop_neither_sleeps_nor_wakes_often(loop: Loop, sleeps: list[float], used: list[float]) -> None:
    TurnTaking().start(loop)
    for _ in range(8):
        used[0] += BUSY / 2
        loop.due[0]()
    assert sleeps == []
    assert loop.delays[-3:] == [LONGEST_INTERVAL] * 3
    used[0] += BUSY
    loop.due[0]()
    assert (sleeps, loop.delays[-1]) == ([MOMENT], INTERVAL)


def test_after_its_end_there_is_no_timer(loop: Loop) -> None:
    turns = TurnTaking()
    turns.start(loop)
    turns.stop()
    assert loop.due == []
