"""How long a process may take to stop before it is killed.

The server in it keeps deadlines of its own (`uvicorn.serving.drain`, the lifespan's shutdown). These come a little
later, for those that cannot: an event loop that is blocked, a thread that does not let the interpreter exit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from uvicorn.serving.drain import LEAST_LIFESPAN_SHUTDOWN, Stage

MARGIN = 5.0
"""Seconds on top of a deadline the server keeps itself; more than the moments the drain grants after its own."""

FORCED_WAIT = 5.0
"""Seconds processes get to exit in a forced shutdown."""


class ShutdownSettings(Protocol):
    """The settings that grace periods follow from."""

    drain_delay: float

    @property
    def graceful_timeout(self) -> float | None:
        """Seconds; None: unlimited."""


@dataclass(frozen=True)
class GracePeriods:
    """Seconds for each part of an end, at least `lifespan` if the drain has used up the time; None: unlimited."""

    drain: float | None
    lifespan: float | None
    exit: float | None

    @classmethod
    def of(cls, config: ShutdownSettings) -> GracePeriods:
        """Derive them from `drain_delay` and `timeout_graceful_shutdown`."""
        timeout = config.graceful_timeout
        if timeout is None:
            return cls(None, None, None)
        return cls(config.drain_delay + timeout + MARGIN, LEAST_LIFESPAN_SHUTDOWN + MARGIN, MARGIN)

    @property
    def total(self) -> float | None:
        """For a process that does not report how far it has come."""
        if self.drain is None or self.lifespan is None:
            return None
        return self.drain + self.lifespan

    def deadline(self, told_at: float, stage: Stage, reached_at: float) -> float | None:
        """When to kill a process that got its stop signal at `told_at` and reported `stage` at `reached_at`."""
        start, limit = told_at, self.drain
        if stage is Stage.DONE and self.drain is not None and self.lifespan is not None:
            return max(told_at + self.drain, reached_at + self.lifespan)
        if stage is Stage.ENDED:
            start, limit = reached_at, self.exit
        return None if limit is None else start + limit
