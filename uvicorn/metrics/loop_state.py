"""The state of one event loop, in memory that other threads and the parent read while the loop is blocked.

    stage │ due │ process │ loop        64 bits each

    stage: 1 + the number of a `uvicorn.serving.drain.Stage`; 0 before the process has started
    due: when the loop beats next, in nanoseconds of the monotonic clock; 0 before its first beat
    process, loop: its worker's process id and its number among the loops of the process; 0 if there is only one

The loop beats several times in the time for which it may be late. The native core reads the same words
(`base/watchdog.rs`, `base/probe.rs`).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from time import monotonic_ns

from uvicorn.metrics.page import SharedWords

STAGE, DUE, PROCESS, LOOP = range(4)
"""Places of the numbers."""


BEATS = 4
"""Beats of a loop in the time for which it may be late."""

LONGEST_INTERVAL = 0.25
"""Seconds between two of them at most."""


def beat_interval(lateness: float) -> float:
    """Return the seconds between two beats of a loop that may be late for `lateness` seconds."""
    return min(lateness / BEATS, LONGEST_INTERVAL)


class LoopState(SharedWords):
    """The words of one event loop."""

    COUNT = 4

    def enter(self, stage: int) -> None:
        """Note that the server has entered this stage."""
        self.words[STAGE] = stage + 1


class LoopBeat:
    """Beats on one event loop, from `start` to `stop`, which are called in its thread.

    Args:
        loop: any event loop.
        interval: seconds between two beats.
        state: gets the time of the next beat.
        on_beat: called at each beat, with the time in nanoseconds for which it is late.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        interval: float,
        state: LoopState,
        on_beat: Callable[[int], None] = lambda late: None,
    ) -> None:
        self._loop = loop
        self._interval = interval
        self._nanoseconds = int(interval * 1e9)
        self._words = state.words
        self._on_beat = on_beat
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Beat from now on."""
        # Not in the context of a request; the next timers inherit this one.
        contextvars.Context().run(self._arm)

    def stop(self) -> None:
        """Stop beating."""
        self._words[DUE] = 0
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        self._words[DUE] = monotonic_ns() + self._nanoseconds
        self._timer = self._loop.call_later(self._interval, self._beat)

    def _beat(self) -> None:
        try:
            self._on_beat(monotonic_ns() - self._words[DUE])
        finally:
            self._arm()
