"""Latency distributions: HdrHistogram with 3 significant digits, from 1 us to 1 hour."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from bench.errors import LoadError
from bench.model import Latency

LOWEST, HIGHEST, DIGITS = 1, 3_600_000_000, 3


def record(seconds: Iterable[float]) -> Any:
    """A histogram of these latencies; raises LoadError when the hdrhistogram package is missing."""
    histogram = _empty()
    for value in seconds:
        histogram.record_value(min(HIGHEST, max(LOWEST, round(value * 1e6))))
    return histogram


def counted(counts: Iterable[tuple[int, int]]) -> Any:
    """A histogram of values in microseconds, each as often as its count says."""
    histogram = _empty()
    for value, count in counts:
        histogram.record_value(min(HIGHEST, max(LOWEST, value)), count)
    return histogram


def merge(encoded: Iterable[str]) -> Any:
    """The histogram of all that was recorded in the encoded ones."""
    total = _empty()
    for one in encoded:
        total.decode_and_add(one.encode())
    return total


def encode(histogram: Any) -> str:
    """The compressed text form that other HdrHistogram libraries read."""
    text: bytes = histogram.encode()
    return text.decode()


def latency(histogram: Any) -> Latency | None:
    """The percentiles of a histogram, in seconds; None when it is empty."""
    if histogram.get_total_count() == 0:
        return None
    at = histogram.get_value_at_percentile
    return Latency(
        mean=histogram.get_mean_value() / 1e6,
        p50=at(50) / 1e6,
        p75=at(75) / 1e6,
        p90=at(90) / 1e6,
        p95=at(95) / 1e6,
        p99=at(99) / 1e6,
        p999=at(99.9) / 1e6,
        max=histogram.get_max_value() / 1e6,
    )


def _empty() -> Any:
    try:
        module = importlib.import_module("hdrh.histogram")
    except ImportError:
        raise LoadError("hdrhistogram is not installed (pip install -r bench/requirements.txt)") from None
    return module.HdrHistogram(LOWEST, HIGHEST, DIGITS)
