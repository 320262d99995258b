"""Whether requests are to start eagerly, by how long their first steps are."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter


class Pace:
    """Measures one first step among many.

    An eager start saves a turn of the loop, some microseconds, and lets a new request overtake all that wait for their
    turn. Where steps are long the turn saved does not matter, and a loaded server loses: its requests are at more
    different stages, so that more code and data pass through the caches.

    Args:
        longest: seconds that steps may take on average. A step counts as twice that at most, so that where steps are
            far shorter, a few during which other programs had the core change nothing.
        period: every how many starts one is measured.
        clock: gives seconds.

    Attributes:
        left: starts until one is measured, that one included. The caller counts them down.
        is_short: the others start eagerly.
    """

    __slots__ = ("left", "is_short", "_longest", "_period", "_clock", "_average")

    def __init__(self, longest: float, period: int, clock: Callable[[], float] = perf_counter) -> None:
        self.left = period
        self.is_short = True
        self._longest = longest
        self._period = period
        self._clock = clock
        self._average = 0.0

    def begin(self) -> float:
        """Begin to measure; the step starts eagerly in any case. Return what `end` wants."""
        self.left = self._period
        return self._clock()

    def end(self, begun: float) -> None:
        """Take note of a step that has ended."""
        self._average = (7 * self._average + min(self._clock() - begun, 2 * self._longest)) / 8
        self.is_short = self._average <= self._longest
