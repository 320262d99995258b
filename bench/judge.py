"""The regression gate's judgement: ratios and instruction counts against stored ones. Pure.

Times on a shared machine say nothing; what is compared is how many times less CPU this tree needs than upstream, both
measured in the same minutes, and how many instructions an operation takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.errors import BenchError
from bench.stats import Interval

SCHEMA = 1
# The speed-up may be this much smaller than the stored one, and instructions this much more, before it is a regression.
RATIO_MARGIN = 0.10
INSTRUCTION_MARGIN = 0.05


@dataclass(frozen=True)
class Line:
    """One case judged. `limit` is what `found` was held against; `failed` says the outcome."""

    case: str
    stored: float
    found: float
    limit: float
    detail: str
    failed: bool


def judge_ratio(workload: str, stored: float, found: Interval) -> Line:
    """Fails when the whole interval of the speed-up lies below the stored one less the margin."""
    limit = stored * (1 - RATIO_MARGIN)
    detail = f"{found.low:.3f} to {found.high:.3f}"
    return Line(f"speed-up over upstream, {workload}", stored, found.value, limit, detail, found.high < limit)


def judge_instructions(case: str, stored: float, found: float) -> Line:
    """Fails when an operation takes more instructions than the stored count and the margin."""
    limit = stored * (1 + INSTRUCTION_MARGIN)
    return Line(f"instructions, {case}", stored, found, limit, f"{found / stored - 1:+.1%}", found > limit)


def identity(target: Mapping[str, Any]) -> dict[str, Any]:
    """What instruction counts depend on: the interpreter's build and the parsers' versions."""
    versions = {name: target["versions"][name] for name in ("httptools", "h11") if name in target["versions"]}
    keys = ("python", "implementation", "compiler", "debug", "gil", "optimised")
    return {**{key: target.get(key) for key in keys}, "versions": versions}


def check_stored(stored: Any) -> dict[str, Any]:
    """The stored values, of the right form; raises BenchError when they are not."""
    if not isinstance(stored, dict) or stored.get("schema") != SCHEMA:
        raise BenchError(f"the stored gate values are not of schema {SCHEMA}")
    for name in ("ratios", "instructions"):
        values = stored.get(name)
        if not isinstance(values, dict) or not all(isinstance(v, (int, float)) and v > 0 for v in values.values()):
            raise BenchError(f"the stored gate values have no proper {name}")
    return stored
