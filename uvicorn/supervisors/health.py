"""Whether one worker still answers, judged from the times of questions and answers alone."""

from __future__ import annotations

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
        self._heard_at: float | None = None
        self._asked_at: float | None = None

    def hear(self, now: float) -> None:
        """The worker has reported that it serves, or has answered."""
        self._heard_at = now
        self._asked_at = None

    def ask(self, now: float) -> None:
        """The worker has been asked."""
        self._asked_at = now

    def is_due(self, now: float) -> bool:
        """Whether it is time to ask."""
        return self._heard_at is not None and self._asked_at is None and now >= self._heard_at + self._interval

    def is_silent(self, now: float) -> bool:
        """Whether a question has gone unanswered for too long."""
        return self._heard_at is not None and self._asked_at is not None and now >= self._heard_at + self._timeout

    def excuse(self, seconds: float) -> None:
        """Not to count the last `seconds`: the judge himself was asleep (a suspended machine, a stopped parent)."""
        if self._heard_at is not None:
            self._heard_at += seconds

    @property
    def deadline(self) -> float | None:
        """When to look again, if nothing is heard before."""
        if self._heard_at is None:
            return None
        return self._heard_at + (self._interval if self._asked_at is None else self._timeout)
