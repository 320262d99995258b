from __future__ import annotations

import pytest

from uvicorn.config import Config
from uvicorn.serving.drain import Stage
from uvicorn.serving.kill_deadlines import MARGIN, GracePeriods


async def app(scope: object, receive: object, send: object) -> None:
    raise AssertionError("not called")


def grace(timeout: int | None) -> GracePeriods:
    return GracePeriods.of(Config(app, timeout_graceful_shutdown=timeout, log_config=None))


@pytest.mark.parametrize(("timeout", "drain", "lifespan"), [(None, 25, 5), (5, 5, 5), (0, 0, 5), (100, 100, 5)])
def test_drain_may_begin_later(timeout: int | None, drain: float, lifespan: float) -> None:
    """X7"""
    config = Config(app, timeout_graceful_shutdown=timeout, log_config=None, drain_delay=7.5)
    assert GracePeriods.of(config) == GracePeriods(7.5 + drain + MARGIN, lifespan + MARGIN, MARGIN)


@pytest.mark.parametrize(("timeout", "drain", "lifespan"), [(None, 25, 5), (5, 5, 5), (0, 0, 5), (100, 100, 5)])
def test_kill_deadlines_follow_from_the_timeout(timeout: int | None, drain: float, lifespan: float) -> None:
    """MP-06, X2: the grace periods of the parent lie a little behind those the worker keeps itself."""
    found = grace(timeout)
    assert found == GracePeriods(drain + MARGIN, lifespan + MARGIN, MARGIN)
    assert found.total == drain + lifespan + 2 * MARGIN


def test_waiting_for_ever_has_no_end() -> None:
    """LIFE-19"""
    found = grace(-1)
    assert found == GracePeriods(None, None, None)
    assert found.total is None
    assert found.deadline(0, Stage.ENDED, 0) is None


@pytest.mark.parametrize(
    ("stage", "deadline"),
    [
        (Stage.STARTING, 110),
        (Stage.SERVING, 110),
        (Stage.CLOSING, 110),
        (Stage.CANCELLING, 110),
        (Stage.DONE, 207 + 10),
        (Stage.ENDED, 207 + 5),
    ],
)
def test_deadline_depends_on_how_far_the_worker_has_come(stage: Stage, deadline: float) -> None:
    """X2: a thread that keeps a worker alive is given less time than its requests."""
    assert grace(5).deadline(100, stage, 207) == deadline
