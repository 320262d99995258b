"""The regression gate's judgement: ratios and instruction counts against stored ones. Pure.

Times on a shared machine say little. The gate compares how many instructions an operation takes and how many system
calls a request, which are exact; how much CPU time it takes over that of a yardstick in the same process; and how many
times as much CPU upstream needs as this tree, both measured in the same minutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench import stats
from bench.errors import BenchError
from bench.stats import Interval

# History of the stored form: 1 = first, 2 = speed-ups by load generator, with the machine, 3 = several machines.
SCHEMA = 3
# The speed-up may be this much smaller than the stored one, and instructions this much more, before it is a regression.
RATIO_MARGIN = 0.10
# On another machine than the one they were stored on, where the kernel's share of a request is another.
FOREIGN_MARGIN = 0.25
# Counts repeat to a hundredth of that.
INSTRUCTION_MARGIN = 0.02
# CPU time over that of the yardstick.
TIME_MARGIN = 0.05
# Memory of an idle connection: whole pages are counted.
MEMORY_MARGIN = 0.05
# System calls per request: a stored value is exact but for the beats of timers in between.
CALL_MARGIN, CALL_CHANCE = 0.02, 0.05


@dataclass(frozen=True)
class Line:
    """One case judged. `limit` is what `found` was held against; `failed` says the outcome."""

    case: str
    stored: float
    found: float
    limit: float
    detail: str
    failed: bool


def judge_ratio(case: str, stored: float, found: Interval, margin: float = RATIO_MARGIN) -> Line:
    """Fails when the whole interval of the speed-up lies below the stored one less the margin."""
    limit = stored * (1 - margin)
    detail = found.words()
    return Line(case, stored, found.value, limit, detail, found.high < limit)


def judge_instructions(case: str, stored: float, found: float) -> Line:
    """Fails when an operation takes more instructions than the stored count and the margin."""
    limit = stored * (1 + INSTRUCTION_MARGIN)
    return Line(f"instructions, {case}", stored, found, limit, f"{found / stored - 1:+.1%}", found > limit)


def judge_memory(case: str, stored: float, found: float) -> Line:
    """Fails when an idle connection holds more bytes than are stored and the margin."""
    limit = stored * (1 + MEMORY_MARGIN)
    return Line(f"KiB, {case}", stored / 1024, found / 1024, limit / 1024, f"{found / stored - 1:+.1%}", found > limit)


def judge_time(case: str, stored: float, found: Interval) -> Line:
    """Fails when the whole interval of the CPU time lies above the stored one and the margin."""
    limit = stored * (1 + TIME_MARGIN)
    return Line(f"CPU time, {case}", stored, found.value, limit, found.words(), found.low > limit)


def judge_calls(case: str, stored: float, found: float) -> Line:
    """Fails when a request takes more system calls than are stored."""
    limit = stored * (1 + CALL_MARGIN) + CALL_CHANCE
    return Line(f"system calls, {case}", stored, found, limit, f"{found - stored:+.2f}", found > limit)


def identity(target: Mapping[str, Any]) -> dict[str, Any]:
    """What instruction counts depend on: the interpreter's build, the parsers' versions, the native core's compiler."""
    versions = {name: target["versions"][name] for name in ("httptools", "h11") if name in target["versions"]}
    keys = ("python", "implementation", "compiler", "debug", "gil", "optimised", "compiler_of_native")
    return {**{key: target.get(key) for key in keys}, "versions": versions}


def machine(environment: Mapping[str, Any]) -> str:
    """What stored speed-ups and CPU times belong to: on a virtual machine the kernel tells more than the CPU does."""
    return f"{environment['cpu']}, {environment['cores']} cores, Linux {environment['kernel']}"


def check_stored(stored: Any) -> dict[str, Any]:
    """The stored values, of the right form; raises BenchError when they are not."""
    if not isinstance(stored, dict) or stored.get("schema") != SCHEMA:
        raise BenchError(f"the stored gate values are not of schema {SCHEMA}")
    for part in ("instructions", "calls", "served", "memory"):
        # A part that was added later may be missing; it is then reported as not judged.
        if not _positive(stored.get(part, None if part == "instructions" else {})):
            raise BenchError(f"the stored gate values have no proper {part}")
    machines = stored.get("machines")
    if not isinstance(machines, dict) or not all(map(_proper_machine, machines.values())):
        raise BenchError("the stored gate values have no proper machines")
    return stored


def _proper_machine(values: Any) -> bool:
    """Speed-ups by load generator, and CPU times where they were stored."""
    if not isinstance(values, dict) or not isinstance(values.get("ratios"), dict):
        return False
    return all(map(_positive, values["ratios"].values())) and _positive(values.get("time", {}))


def _positive(values: Any) -> bool:
    return isinstance(values, dict) and all(isinstance(one, (int, float)) and one > 0 for one in values.values())


def repeated(runs: Sequence[Sequence[Line]]) -> list[dict[str, Any]]:
    """What many runs of the gate found for each case: lowest, median and highest value, and how many failed."""
    cases: dict[str, list[Line]] = {}
    for lines in runs:
        for line in lines:
            cases.setdefault(line.case, []).append(line)
    return [
        {
            "case": case,
            "limit": lines[0].limit,
            "lowest": min(line.found for line in lines),
            "median": stats.median([line.found for line in lines]),
            "highest": max(line.found for line in lines),
            "runs": len(lines),
            "failed": sum(line.failed for line in lines),
        }
        for case, lines in cases.items()
    ]


def proof(tree: str, runs: Sequence[Sequence[Line]]) -> dict[str, Any]:
    """What many runs of the gate said of one tree: how often it passed and failed, and which cases failed ever."""
    failed = [[line.case for line in lines if line.failed] for lines in runs]
    caught = sum(bool(cases) for cases in failed)
    seen = ", ".join(dict.fromkeys(case for cases in failed for case in cases)) or "-"
    return {"tree": tree, "passed": len(runs) - caught, "failed": caught, "by": seen}
