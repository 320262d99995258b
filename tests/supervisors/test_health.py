from __future__ import annotations

import pytest

from uvicorn.supervisors.health import Heartbeat


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
    assert heartbeat.deadline == 104.5


def test_time_the_judge_slept_does_not_count() -> None:
    """MP-15: a suspended machine wakes up with live workers."""
    heartbeat = Heartbeat(5)
    heartbeat.excuse(100)
    heartbeat.hear(100)
    heartbeat.ask(100.5)
    heartbeat.excuse(3600)
    assert not heartbeat.is_silent(3704)
    assert heartbeat.is_silent(3705)
