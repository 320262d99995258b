"""Lines of Prometheus' text format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence


def escaped(value: str) -> str:
    """Return the value of a label as the format has it."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def head(name: str, kind: str, text: str) -> tuple[str, str]:
    """Return the lines before the samples of a family; names are without their common prefix."""
    return f"# HELP uvicorn_{name} {text}", f"# TYPE uvicorn_{name} {kind}"


def sample(name: str, labels: str, value: float) -> str:
    """Return the line of a sample; `labels` may be empty."""
    return f"uvicorn_{name}{{{labels}}} {value}" if labels else f"uvicorn_{name} {value}"


def histogram(
    name: str,
    labels: str,
    bounds: Sequence[float],
    numbers: Sequence[int],
    suffix: Callable[[int], str] = lambda bucket: "",
) -> Iterator[str]:
    """Give the samples of a histogram.

    `numbers` are the count of each bucket, of one more for the values above the last bound, and the sum in nanoseconds.
    `suffix` returns the end of the line of a bucket, by its number.
    """
    before = f"{labels}," if labels else ""
    count = 0
    for bucket, bound in enumerate([*map(str, bounds), "+Inf"]):
        count += numbers[bucket]
        yield sample(f"{name}_bucket", f'{before}le="{bound}"', count) + suffix(bucket)
    yield sample(f"{name}_sum", labels, numbers[len(bounds) + 1] / 1e9)
    yield sample(f"{name}_count", labels, count)
