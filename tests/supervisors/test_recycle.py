"""When a worker has served enough, and how much memory it occupies."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest

from uvicorn.config import Config
from uvicorn.metrics import memory
from uvicorn.metrics.memory import resident_memory
from uvicorn.supervisors.recycle import MIB, Reason, RecycleLimits


def limits(draw: float = 0.0, **settings: Any) -> RecycleLimits:
    return RecycleLimits.of(Config("app:app", log_config=None, **settings), draw=lambda: draw)


def test_no_limits_by_default() -> None:
    """X4"""
    assert limits() == RecycleLimits(None, None)
    assert RecycleLimits().reached(1e9, 1 << 60) is None


@pytest.mark.parametrize(("draw", "seconds"), [(0.0, 100.0), (0.5, 105.0), (1.0, 110.0)])
def test_lifetime_has_jitter(draw: float, seconds: float) -> None:
    """X4"""
    assert limits(draw, limit_worker_lifetime=100, limit_worker_lifetime_jitter=10).lifetime == seconds


def test_memory_is_in_mebibytes() -> None:
    """X4"""
    assert limits(limit_worker_memory=300).memory == 300 * MIB


@pytest.mark.parametrize(
    ("age", "memory", "reason"),
    [
        (59.9, 100, None),
        (60.0, 100, Reason.LIFETIME),
        (0.0, 101, Reason.MEMORY),
        (0.0, None, None),
        (60.0, 101, Reason.LIFETIME),
    ],
)
def test_limits_that_are_reached(age: float, memory: int | None, reason: Reason | None) -> None:
    """X4"""
    assert RecycleLimits(lifetime=60.0, memory=100).reached(age, memory) is reason


def test_memory_of_a_process() -> None:
    """X4"""
    before = resident_memory(os.getpid())
    assert before is not None
    # New pages: the allocator may have some left that other tests have touched.
    with mmap.mmap(-1, 64 * MIB) as ballast:
        ballast.write(bytes(64 * MIB))
        after = resident_memory(os.getpid())
    assert after is not None
    assert after - before > 32 * MIB


def test_memory_of_a_process_that_is_gone() -> None:
    """X4"""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert resident_memory(process.pid) is None


@pytest.mark.skipif(not shutil.which("ps"), reason="no ps")
def test_memory_according_to_ps(monkeypatch: pytest.MonkeyPatch) -> None:
    """X4: on systems without /proc."""
    figure = memory._from_ps(os.getpid())
    assert figure is not None
    assert figure > MIB
    assert memory._from_ps(2**30) is None
    monkeypatch.setenv("PATH", "")
    assert memory._from_ps(os.getpid()) is None
