"""Several stored results as one: only of the same kind and the same environment. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bench import environment
from bench.errors import BenchError
from bench.model import MEASURED, Result, Sample


def by_kind(results: Sequence[Result]) -> list[Result]:
    """One result per kind; raises BenchError when environments differ, also between kinds (but for the pinning)."""
    kinds: dict[str, list[Result]] = {}
    for result in results:
        environment.same(results[0].environment, result.environment, pinning=False)
        kinds.setdefault(result.kind, []).append(result)
    return [merge(group) for group in kinds.values()]


def merge(results: Sequence[Result]) -> Result:
    """All samples and records together; blocks are numbered through. Raises BenchError when they do not fit."""
    first = results[0]
    samples: list[Sample] = []
    for result in results:
        if result.kind != first.kind:
            raise BenchError(f"results of different kinds: {first.kind} and {result.kind}")
        environment.same(first.environment, result.environment)
        offset = max((sample.block for sample in samples), default=-1) + 1
        samples += [replace(sample, block=sample.block + offset) for sample in result.samples]
    notes = tuple(dict.fromkeys(note for result in results for note in result.notes))
    described = {**first.environment, "targets": _targets(results)}
    return replace(first, environment=described, samples=tuple(samples), data=_data(results), notes=notes)


def _targets(results: Sequence[Result]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for result in results:
        found |= result.environment.get("targets", {})
    return found


# Lists of the gate's findings, which follow each other.
LISTS = ("lines", "proof", "repeated")


def _data(results: Sequence[Result]) -> dict[str, Any]:
    """Join the records of different targets and the gate's lists; everything else must agree."""
    merged: dict[str, Any] = {}
    for result in results:
        for key, value in result.data.items():
            if key == MEASURED:
                merged.setdefault(key, value)
            elif key == "records":
                merged["records"] = _records(merged.get("records", {}), value)
            elif key in LISTS:
                merged[key] = [*merged.get(key, []), *value]
            elif merged.setdefault(key, value) != value:
                raise BenchError(f"results that cannot be merged: {key} is {merged[key]} and {value}")
    return merged


def _records(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """What several measurements of one target found is put together; lists follow each other."""
    merged = dict(first)
    for target, found in second.items():
        old = merged.get(target)
        if isinstance(old, dict) and isinstance(found, dict):
            merged[target] = {**old, **found}
        elif isinstance(old, list) and isinstance(found, list):
            merged[target] = [*old, *found]
        else:
            merged[target] = found
    return merged
