from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from uvicorn.supervisors.health import Heartbeat, LoopProbe


def test_nothing_is_expected_of_a_worker_that_does_not_serve_yet() -> None:
    """X1: a slow import with the GIL held is not a death."""
    heartbeat = Heartbeat(5)
    assert heartbeat.deadline is None
    assert not heartbeat.is_due(1e9)
    heartbeat.ask(0)
    assert not heartbeat.is_silent(1e9)


@pytest.mark.parametrize(("timeout", "interval"), [(5, 0.5), (1, 0.1), (60, 1.0)])
def test_question_is_due_after_an_interval(timeout: float, interval: float) -> None:
    """MP-15"""
    heartbeat = Heartbeat(timeout)
    heartbeat.hear(100)
    assert heartbeat.deadline == 100 + interval
    assert not heartbeat.is_due(100 + interval * 0.9)
    assert heartbeat.is_due(100 + interval)
    assert not heartbeat.is_silent(1e9)  # nobody has asked


def test_silence_is_judged_from_the_last_sign_of_life() -> None:
    """MP-15: a silent worker is found within the timeout."""
    heartbeat = Heartbeat(5)
    heartbeat.hear(100)
    heartbeat.ask(100.5)
    assert not heartbeat.is_due(101)
    assert heartbeat.deadline == 104
    assert not heartbeat.falls_in_doubt(103.9)
    assert heartbeat.falls_in_doubt(104)
    assert not heartbeat.falls_in_doubt(104)
    assert heartbeat.deadline == 105
    assert not heartbeat.is_silent(104.9)
    assert heartbeat.is_silent(105)


def test_answer_ends_the_wait() -> None:
    """MP-15"""
    heartbeat = Heartbeat(5)
    heartbeat.hear(100)
    heartbeat.ask(100.5)
    heartbeat.hear(104)
    assert not heartbeat.is_silent(1e9)
    assert not heartbeat.falls_in_doubt(1e9)
    assert heartbeat.deadline == 104.5
    heartbeat.ask(104.5)
    assert heartbeat.falls_in_doubt(108), "another silence"


@pytest.mark.parametrize("timeout", [0.5, 5, 10, 30, 3600])
def test_pulse_beats_between_doubt_and_silence(timeout: float) -> None:
    """X6: otherwise a process that runs was said not to."""
    heartbeat = Heartbeat(timeout)
    heartbeat.hear(0)
    heartbeat.ask(heartbeat.interval)
    assert heartbeat.deadline is not None
    assert heartbeat.interval < heartbeat.deadline <= timeout - 2 * heartbeat.interval


def test_time_the_judge_slept_does_not_count() -> None:
    """MP-15: a suspended machine wakes up with live workers."""
    heartbeat = Heartbeat(5)
    heartbeat.excuse(100)
    heartbeat.hear(100)
    heartbeat.ask(100.5)
    heartbeat.excuse(3600)
    assert not heartbeat.is_silent(3704)
    assert heartbeat.is_silent(3705)


class FakeLoop:
    """Turns when the test says so."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.is_closed = False

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        if self.is_closed:
            raise RuntimeError("Event loop is closed")
        self.calls.append(callback)

    def turn(self) -> None:
        while self.calls:
            self.calls.pop()()


def test_loop_that_turns_owes_nothing() -> None:
    """MP-25, X6"""
    loop = FakeLoop()
    now = [100.0]
    probe = LoopProbe(loop, lambda: now[0])  # type: ignore[arg-type]
    assert probe.look() == 0
    now[0] += 3
    assert probe.look() == 3
    assert len(loop.calls) == 1, "one question at a time"
    loop.turn()
    assert probe.look() == 0
    loop.turn()
    loop.is_closed = True
    assert probe.look() == 0
    now[0] += 3
    assert probe.look() == 0


def test_probe_asks_a_real_loop() -> None:
    """X6"""
    loop = asyncio.new_event_loop()
    probe = LoopProbe(loop)
    assert probe.look() == 0
    loop.run_until_complete(asyncio.sleep(0))
    assert probe.look() == 0
    loop.close()
