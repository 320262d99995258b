"""Whether one worker still answers, and its event loop turns: judged from the times of questions and answers alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

LONGEST_INTERVAL = 1.0
"""Seconds between two questions at most; with a short timeout a tenth of that."""


class Heartbeat:
    """Silence of more than `timeout` seconds is fatal, once the worker serves; before that, nothing is expected of it.

    A worker that has just been spawned imports the application, maybe with the GIL held for a minute: it cannot answer
    and is not dead (X1). All times are seconds on one monotonic clock.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._interval = min(LONGEST_INTERVAL, timeout / 10)
        self._doubt = timeout - 2 * self._interval
        self._heard_at: float | None = None
        self._asked_at: float | None = None
        self._is_in_doubt = False

    @property
    def interval(self) -> float:
        """Seconds from an answer to the next question, and between two beats of a pulse."""
        return self._interval

    def hear(self, now: float) -> None:
        """The worker has reported that it serves, or has answered."""
        self._heard_at = now
        self._asked_at = None
        self._is_in_doubt = False

    def ask(self, now: float) -> None:
        """The worker has been asked."""
        self._asked_at = now

    def is_due(self, now: float) -> bool:
        """Whether it is time to ask."""
        return self._heard_at is not None and self._asked_at is None and now >= self._heard_at + self._interval

    def is_silent(self, now: float) -> bool:
        """Whether a question has gone unanswered for too long."""
        return self._heard_at is not None and self._asked_at is not None and now >= self._heard_at + self._timeout

    def falls_in_doubt(self, now: float) -> bool:
        """Whether the timeout is over but for two beats of a pulse, for the first time since the last report."""
        if self._is_in_doubt or self._heard_at is None or self._asked_at is None:
            return False
        self._is_in_doubt = now >= self._heard_at + self._doubt
        return self._is_in_doubt

    def excuse(self, seconds: float) -> None:
        """Do not count the last `seconds`: the parent itself did not run (a suspended machine, a stopped parent)."""
        if self._heard_at is not None:
            self._heard_at += seconds

    @property
    def deadline(self) -> float | None:
        """When to look again, without a report before."""
        if self._heard_at is None:
            return None
        if self._asked_at is None:
            return self._heard_at + self._interval
        return self._heard_at + (self._timeout if self._is_in_doubt else self._doubt)


class LoopProbe:
    """How long an event loop has owed a turn, for another thread to ask."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.monotonic) -> None:
        self._loop = loop
        self._clock = clock
        self._asked_at: float | None = None

    def look(self) -> float:
        """Seconds since a turn was requested that has not come; 0 if it has, and then the next one is requested."""
        asked_at = self._asked_at
        if asked_at is not None:
            return self._clock() - asked_at
        self._asked_at = self._clock()
        try:
            self._loop.call_soon_threadsafe(self._turn)
        except RuntimeError:  # it is closed
            self._asked_at = None
        return 0.0

    def _turn(self) -> None:
        self._asked_at = None
