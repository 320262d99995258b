"""Statistics against scipy and numpy on random data, and against values known by hand."""

from __future__ import annotations

import random

import pytest

from bench import stats
from bench.stats import Interval

numpy = pytest.importorskip("numpy")
scipy_stats = pytest.importorskip("scipy.stats")

SEEDS = [pytest.param(seed, id=f"seed{seed}") for seed in range(5)]


def _values(seed: int, count: int = 57) -> list[float]:
    generator = random.Random(seed)
    return [generator.lognormvariate(0, 0.5) for _ in range(count)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("percent", [0, 12.5, 50, 75, 90, 99, 99.9, 100])
def test_percentiles_are_those_of_numpy(seed: int, percent: float) -> None:
    values = _values(seed)
    assert stats.percentile(values, percent) == pytest.approx(numpy.percentile(values, percent))


@pytest.mark.parametrize("seed", SEEDS)
def test_spread_and_averages_are_those_of_scipy(seed: int) -> None:
    values = _values(seed)
    assert stats.mad(values) == pytest.approx(scipy_stats.median_abs_deviation(values))
    assert stats.geometric_mean(values) == pytest.approx(scipy_stats.gmean(values))
    assert stats.deviation(values) == pytest.approx(numpy.std(values, ddof=1))
    assert stats.mean(values) == pytest.approx(numpy.mean(values))
    assert stats.median(values) == pytest.approx(numpy.median(values))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_bootstrap_interval_of_single_values_is_that_of_scipy(seed: int) -> None:
    values = _values(seed, 40)
    ours = stats.bootstrap([[value] for value in values], stats.geometric_mean, resamples=8000, seed=seed)
    theirs = scipy_stats.bootstrap(
        (values,), scipy_stats.gmean, method="percentile", n_resamples=8000, rng=numpy.random.default_rng(seed)
    ).confidence_interval
    width = theirs.high - theirs.low
    assert ours.low == pytest.approx(theirs.low, abs=0.08 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.08 * width)
    assert ours.value == pytest.approx(scipy_stats.gmean(values))


def test_the_interval_holds_the_true_ratio_about_as_often_as_it_says() -> None:
    generator = random.Random(7)
    held = 0
    for _ in range(200):
        groups = []
        for _ in range(8):
            drift = generator.gauss(0, 0.05)
            groups.append([(1.3 * (1 + drift + generator.gauss(0, 0.01)), 1.0 + drift) for _ in range(2)])
        found = stats.paired_ratio(groups, resamples=400)
        held += found.low <= 1.3 <= found.high
    assert 160 <= held <= 200


def test_values_of_one_group_are_drawn_together() -> None:
    apart = [[value] for value in (1.0, 1.0, 1.0, 2.0, 2.0, 2.0)]
    together = [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]
    wide, narrow = (stats.bootstrap(groups, stats.mean) for groups in (together, apart))
    assert wide.value == narrow.value == 1.5
    assert wide.high - wide.low > narrow.high - narrow.low


def test_pairs_cancel_what_both_sides_share() -> None:
    generator = random.Random(3)
    groups = [[(0.8 * speed, speed)] for speed in (generator.uniform(1, 10) for _ in range(12))]
    found = stats.paired_ratio(groups)
    assert found.value == pytest.approx(0.8)
    assert found.low == pytest.approx(found.high)


def test_a_seed_gives_the_same_interval_again() -> None:
    groups = [[value] for value in _values(1)]
    assert stats.bootstrap(groups, stats.median, seed=4) == stats.bootstrap(groups, stats.median, seed=4)


def test_the_noise_floor_is_the_far_end_of_the_interval() -> None:
    assert stats.noise_floor(Interval(1.0, 0.97, 1.01)) == pytest.approx(0.03)
    assert stats.noise_floor(Interval(1.0, 0.99, 1.04)) == pytest.approx(0.04)


@pytest.mark.parametrize("seed", SEEDS)
def test_so_many_runs_as_needed_do_give_the_precision(seed: int) -> None:
    values = [10 + generator for generator in (random.Random(seed).gauss(0, 1) for _ in range(300))]
    needed = stats.runs_needed(values, within=0.01, confidence=0.95)
    error = scipy_stats.norm.ppf(0.975) * numpy.std(values, ddof=1) / needed**0.5
    assert error <= 0.01 * numpy.mean(values) + 1e-12
    assert stats.runs_needed([5.0, 5.0, 5.0]) == 1


@pytest.mark.parametrize(
    "call", [lambda: stats.percentile([], 50), lambda: stats.mean([]), lambda: stats.bootstrap([[]], stats.mean)]
)
def test_nothing_has_no_statistics(call: object) -> None:
    with pytest.raises(ValueError, match="nothing"):
        call()  # type: ignore[operator]
