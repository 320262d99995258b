"""CPU time of the micro-benchmarks over that of a yardstick in the same process: the same on fast and slow machines.

Not to be confused with a clock: a process that has to wait for its core is not charged for it, and of many short rounds
the least disturbed one counts. How a process happens to lie in memory still moves it by a few per cent, so several
processes are measured and their values make an interval.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.instructions import run_micro
from bench.targets import Target

# Both paths, each with and without the access log, and a WebSocket.
CASES = ("native:get", "native:log", "httptools:get", "httptools:log", "websocket:echo")
PROCESSES = 8
OPERATIONS, ROUNDS = 100, 40


def once(target: Target, cases: Sequence[str]) -> dict[str, float]:
    """One process: each case over the yardstick; raises BenchError when a case fails."""
    order = ["ratio", *cases, "--operations", str(OPERATIONS), "--rounds", str(ROUNDS)]
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        output = run_micro(target, order, directory=Path(name))
    found: dict[str, float] = json.loads(output.strip().splitlines()[-1])
    return found


def several(target: Target, cases: Sequence[str], processes: int = PROCESSES) -> dict[str, list[float]]:
    """The values of several processes, by case."""
    runs = [once(target, cases) for _ in range(processes)] if cases else []
    return {case: [run[case] for run in runs] for case in cases}
