from __future__ import annotations

import pytest

from uvicorn.config import Config
from uvicorn.drain import Stage
from uvicorn.supervisors.limits import MARGIN, DrainLimits


async def app(scope: object, receive: object, send: object) -> None:
    raise AssertionError("not called")


def limits(timeout: int | None) -> DrainLimits:
    return DrainLimits.of(Config(app, timeout_graceful_shutdown=timeout, log_config=None))


@pytest.mark.parametrize(("timeout", "drain", "lifespan"), [(None, 25, 30), (5, 5, 30), (0, 0, 30), (100, 100, 100)])
def test_drain_may_begin_later(timeout: int | None, drain: float, lifespan: float) -> None:
    """X7"""
    config = Config(app, timeout_graceful_shutdown=timeout, log_config=None, drain_delay=7.5)
    assert DrainLimits.of(config) == DrainLimits(7.5 + drain + MARGIN, lifespan + MARGIN, MARGIN)


@pytest.mark.parametrize(("timeout", "drain", "lifespan"), [(None, 25, 30), (5, 5, 30), (0, 0, 30), (100, 100, 100)])
def test_limits_follow_from_the_graceful_timeout(timeout: int | None, drain: float, lifespan: float) -> None:
    """MP-06, X2: the parent's limits lie a little behind those the worker keeps itself."""
    found = limits(timeout)
    assert found == DrainLimits(drain + MARGIN, lifespan + MARGIN, MARGIN)
    assert found.total == drain + lifespan + 2 * MARGIN


def test_waiting_for_ever_has_no_limits() -> None:
    """LIFE-19"""
    found = limits(-1)
    assert found == DrainLimits(None, None, None)
    assert found.total is None
    assert found.deadline(0, Stage.ENDED, 0) is None


@pytest.mark.parametrize(
    ("stage", "deadline"),
    [
        (Stage.STARTING, 110),
        (Stage.SERVING, 110),
        (Stage.CLOSING, 110),
        (Stage.CANCELLING, 110),
        (Stage.DONE, 207 + 35),
        (Stage.ENDED, 207 + 5),
    ],
)
def test_deadline_depends_on_how_far_the_worker_has_come(stage: Stage, deadline: float) -> None:
    """X2: a thread that keeps a worker alive is given less time than its requests."""
    assert limits(5).deadline(100, stage, 207) == deadline
