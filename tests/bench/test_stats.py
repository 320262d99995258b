"""Statistics against scipy and numpy on random data, and against values known by hand."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from bench import report, stats
from bench.stats import Interval
from tests.bench import records
from tests.utils import deep_after

SEEDS = range(5)


def _values(seed: int, count: int = 57) -> list[float]:
    generator = random.Random(seed)
    return [generator.lognormvariate(0, 0.5) for _ in range(count)]


def test_percentiles_are_those_of_numpy() -> None:
    numpy = pytest.importorskip("numpy")
    percents = [0, 12.5, 50, 75, 90, 99, 99.9, 100]
    for values in map(_values, SEEDS):
        found = [stats.percentile(values, percent) for percent in percents]
        assert found == pytest.approx([numpy.percentile(values, percent) for percent in percents])


def test_the_quotient_of_two_ratios_is_less_certain_than_each() -> None:
    one, other = Interval(3.0, 3.0 / 1.3, 3.0 * 1.3), Interval(2.0, 2.0 / 1.2, 2.0 * 1.2)
    found = stats.quotient(one, other)
    reach = math.exp(math.hypot(math.log(1.3), math.log(1.2)))
    assert (found.value, found.low, found.high) == pytest.approx((1.5, 1.5 / reach, 1.5 * reach))
    unknown = stats.paired_ratio([[(3.0, 1.0)]])
    for found in (stats.quotient(unknown, other), stats.quotient(other, unknown)):
        assert (found.low, found.high) == (0.0, math.inf)


# What is held against scipy is one test: to import it takes longer than the rest, and tests are spread over processes.


@pytest.mark.deep
def test_values_are_those_of_scipy() -> None:
    numpy, scipy = pytest.importorskip("numpy"), pytest.importorskip("scipy.stats")
    for freedom in (*range(1, 40), 60, 100, 1000):
        assert stats.t95(freedom) == pytest.approx(scipy.t.ppf(0.975, freedom), rel=2e-4), freedom
    for seed in SEEDS:
        _averages_are_those_of(numpy, scipy, _values(seed))
        _interval_is_that_of(numpy, scipy, _values(seed, 9))
        _runs_give_the_precision(numpy, scipy, _values(seed, 300))


def _averages_are_those_of(numpy: Any, scipy: Any, values: list[float]) -> None:
    assert stats.mad(values) == pytest.approx(scipy.median_abs_deviation(values))
    assert stats.geometric_mean(values) == pytest.approx(scipy.gmean(values))
    assert stats.deviation(values) == pytest.approx(numpy.std(values, ddof=1))
    assert stats.mean(values) == pytest.approx(numpy.mean(values))
    assert stats.median(values) == pytest.approx(numpy.median(values))


def _interval_is_that_of(numpy: Any, scipy: Any, values: list[float]) -> None:
    found = stats.mean_interval(values)
    low, high = scipy.t.interval(0.95, len(values) - 1, loc=numpy.mean(values), scale=scipy.sem(values))
    assert found.low == pytest.approx(low, rel=1e-3)
    assert found.high == pytest.approx(high, rel=1e-3)


def _runs_give_the_precision(numpy: Any, scipy: Any, values: list[float]) -> None:
    needed = stats.runs_needed(values, within=0.01, confidence=0.95)
    error = scipy.norm.ppf(0.975) * numpy.std(values, ddof=1) / needed**0.5
    assert error <= 0.01 * numpy.mean(values) + 1e-12


def _blocks(
    generator: random.Random, blocks: int, *, ratio: float, pairs: int, odd: float
) -> list[list[tuple[float, float]]]:
    """Measurements as they are: each block has its moment, which both sides share; each process has its own layout;
    each burst is a little off. Of a hundred blocks so many (`odd`) are disturbed.
    """
    found = []
    for _ in range(blocks):
        moment = generator.gauss(0, 0.05)
        first, second = (generator.gauss(0, 0.03) for _ in "AB")
        upset = generator.choice((-1, 1)) * generator.uniform(0.1, 0.3) if generator.random() < odd / 100 else 0.0
        found.append(
            [
                (
                    ratio * math.exp(moment + first + upset + generator.gauss(0, 0.02)),
                    math.exp(moment + second + generator.gauss(0, 0.02)),
                )
                for _ in range(pairs)
            ]
        )
    return found


@pytest.mark.parametrize("pairs", [1, 2])
@pytest.mark.parametrize("odd", [pytest.param(0.0, id="calm"), pytest.param(10.0, id="one block in ten disturbed")])
@pytest.mark.parametrize("blocks", deep_after(1, [4, 2, 3, 6, 8, 12]))
def test_the_interval_holds_the_true_ratio_nineteen_times_in_twenty(blocks: int, odd: float, pairs: int) -> None:
    generator = random.Random(blocks)
    runs = 2000
    held = 0
    for _ in range(runs):
        found = stats.paired_ratio(_blocks(generator, blocks, ratio=1.3, pairs=pairs, odd=odd))
        held += found.low <= 1.3 <= found.high
    # Two standard errors of such a count are one per cent.
    assert held / runs >= 0.94


def test_one_block_says_nothing_about_its_spread() -> None:
    found = stats.paired_ratio([[(2.0, 1.0), (2.2, 1.0)]])
    assert found.value == pytest.approx((2.0 * 2.2) ** 0.5)
    assert (found.low, found.high) == (0.0, math.inf)
    assert not found.excludes(1.0)
    assert found.words() == "not known"


def test_bursts_of_one_block_are_one_value() -> None:
    apart = stats.paired_ratio([[(1.0, 1.0)], [(1.0, 1.0)], [(2.0, 1.0)], [(2.0, 1.0)]])
    together = stats.paired_ratio([[(1.0, 1.0), (1.0, 1.0)], [(2.0, 1.0), (2.0, 1.0)]])
    assert apart.value == pytest.approx(together.value)
    assert together.high - together.low > apart.high - apart.low


@pytest.mark.parametrize("blocks", [1, 2, 3, 4, 6, 10])
def test_a_server_against_itself_is_no_better_and_no_worse_nineteen_times_in_twenty(blocks: int) -> None:
    generator = random.Random(blocks)
    runs, claimed = 1000, 0
    for _ in range(runs):
        samples = []
        for number, [(first, second)] in enumerate(_blocks(generator, blocks, ratio=1.0, pairs=1, odd=5.0)):
            samples += records.block(number, [first * 1e-5], [second * 1e-5], "AB")
        found = report.compare(samples, report.METRICS[0])
        assert found is not None
        claimed += found.words().endswith("better")
    assert claimed / runs <= 0.065


def test_a_difference_that_is_there_is_found() -> None:
    generator = random.Random(5)
    found = [stats.paired_ratio(_blocks(generator, 8, ratio=1.15, pairs=1, odd=0)).low > 1 for _ in range(200)]
    assert sum(found) >= 190


def test_pairs_cancel_what_both_sides_share() -> None:
    generator = random.Random(3)
    groups = [[(0.8 * speed, speed)] for speed in (generator.uniform(1, 10) for _ in range(12))]
    found = stats.paired_ratio(groups)
    assert found.value == pytest.approx(0.8)
    assert found.low == pytest.approx(found.high)


def test_the_noise_floor_is_the_far_end_of_the_interval() -> None:
    assert stats.noise_floor(Interval(1.0, 0.97, 1.01)) == pytest.approx(0.03)
    assert stats.noise_floor(Interval(1.0, 0.99, 1.04)) == pytest.approx(0.04)


def test_equal_values_need_one_run() -> None:
    assert stats.runs_needed([5.0, 5.0, 5.0]) == 1


@pytest.mark.parametrize(
    "call", [lambda: stats.percentile([], 50), lambda: stats.mean([]), lambda: stats.paired_ratio([[]])]
)
def test_nothing_has_no_statistics(call: object) -> None:
    with pytest.raises(ValueError, match="nothing"):
        call()  # type: ignore[operator]
