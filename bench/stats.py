"""Statistics on plain sequences of numbers. No I/O, no randomness without a seed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval."""

    value: float
    low: float
    high: float

    def excludes(self, point: float) -> bool:
        """Whether the whole interval lies on one side of a point."""
        return self.low > point or self.high < point


def percentile(values: Sequence[float], percent: float) -> float:
    """The given percentile (0 to 100), linear between neighbours; raises ValueError without values."""
    if not values:
        raise ValueError("percentile of nothing")
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return percentile(values, 50)


def mad(values: Sequence[float]) -> float:
    """Median absolute deviation from the median, unscaled."""
    middle = median(values)
    return median([abs(value - middle) for value in values])


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; raises ValueError without values."""
    if not values:
        raise ValueError("mean of nothing")
    return math.fsum(values) / len(values)


def deviation(values: Sequence[float]) -> float:
    """Sample standard deviation (n - 1); 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    middle = mean(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1))


def geometric_mean(values: Sequence[float]) -> float:
    """Geometric mean of positive values: the right average for ratios."""
    return math.exp(mean([math.log(value) for value in values]))


def bootstrap(
    groups: Sequence[Sequence[float]],
    statistic: Callable[[Sequence[float]], float],
    *,
    confidence: float = 0.95,
    resamples: int = 4000,
    seed: int = 1,
) -> Interval:
    """Percentile bootstrap of a statistic.

    Values of one group (bursts against the same pair of processes) are not independent, so whole groups are drawn.
    Raises ValueError without groups.
    """
    kept = [list(group) for group in groups if group]
    if not kept:
        raise ValueError("bootstrap of nothing")
    value = statistic([one for group in kept for one in group])
    if len(kept) == 1:
        kept = [[one] for one in kept[0]]
    generator = random.Random(seed)
    drawn = []
    for _ in range(resamples):
        chosen = generator.choices(kept, k=len(kept))
        drawn.append(statistic([one for group in chosen for one in group]))
    tail = (1 - confidence) / 2 * 100
    return Interval(value, percentile(drawn, tail), percentile(drawn, 100 - tail))


def paired_ratio(groups: Sequence[Sequence[tuple[float, float]]], *, resamples: int = 4000, seed: int = 1) -> Interval:
    """Ratio first/second of each pair, averaged geometrically, with its bootstrap interval over groups of pairs."""
    ratios = [[first / second for first, second in group] for group in groups]
    return bootstrap(ratios, geometric_mean, resamples=resamples, seed=seed)


def noise_floor(interval: Interval) -> float:
    """How far from 1 a ratio of a thing against itself strays, as a fraction: differences below it mean nothing."""
    return max(abs(interval.low - 1), abs(interval.high - 1))


def runs_needed(values: Sequence[float], *, within: float = 0.01, confidence: float = 0.95) -> int:
    """How many such values would be needed to know their mean to a relative error, at a confidence."""
    spread, middle = deviation(values), mean(values)
    if spread == 0 or middle == 0:
        return 1
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    return max(1, math.ceil((z * spread / (within * abs(middle))) ** 2))
