"""`micro`: one protocol object on a transport double, no sockets: time, instructions, memory per operation."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import environment, instructions, process, stats, targets
from bench.allocations import allocation_counter
from bench.commands import common
from bench.errors import BenchError
from bench.model import Result
from bench.targets import Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The tree, the cases, and how often."""
    parser.add_argument("--target", default="ours", help="the tree, for example ours:root=../other")
    parser.add_argument("--cases", default=",".join(instructions.CASES), help="comma-separated")
    parser.add_argument("--operations", type=common.count, default=2000, help="operations per round")
    parser.add_argument("--rounds", type=common.count, default=5, help="of each case")
    parser.add_argument("--places", action="store_true", help="and which lines ask for the memory of a request")
    parser.add_argument("--no-instructions", action="store_true", help="without callgrind, which takes half a minute")
    common.output_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Measure the cases in child processes of the tree's interpreter; note cases that cannot run here."""
    target = targets.find(arguments.target)
    if target.name != "ours":
        raise BenchError("the cases drive this project's protocols: use ours")
    cases = arguments.cases.split(",")
    cores = environment.cores(1)
    here = instructions.available(target, cases)
    notes = [f"{case} cannot run here" for case in cases if case not in here]
    if not here:
        raise BenchError("none of the cases can run here")
    cases = here
    with process.pinned(cores.server):
        records = _timed(target, cases, arguments)
        _add(records, _micro(target, ["memory", *cases, "--operations", "1000"]))
        try:
            _add(records, _allocations(target, cases))
        except BenchError as exc:
            notes.append(f"allocations were not counted: {exc}")
        if not arguments.no_instructions:
            _count(target, cases, records, notes)
    data = {"records": records}
    if arguments.places:
        with process.pinned(cores.server):
            data["places"] = _micro(target, ["places", *cases])
    result = Result("micro", common.now(), environment.describe([target], cores), data=data, notes=tuple(notes))
    common.deliver(arguments, result)
    return 0


def _micro(target: Target, arguments: Sequence[str], extra: dict[str, str] | None = None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        output = instructions.run_micro(target, arguments, directory=Path(name), extra=extra)
    found: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return found


def _timed(target: Target, cases: Sequence[str], arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    order = ["time", *cases, "--operations", str(arguments.operations), "--rounds", str(arguments.rounds)]
    rounds = _micro(target, order)
    return {case: {"ns": stats.median(values), "best": min(values)} for case, values in rounds.items()}


def _allocations(target: Target, cases: Sequence[str]) -> dict[str, Any]:
    with allocation_counter() as counter:
        return _micro(target, ["allocations", *cases, "--operations", "500"], counter.environment)


def _count(target: Target, cases: Sequence[str], records: dict[str, dict[str, float]], notes: list[str]) -> None:
    trouble = instructions.missing()
    if trouble:
        notes.append(f"instructions were not counted: {trouble}")
        return
    for case, found in instructions.count(target, cases).items():
        records[case]["instructions"] = found


def _add(records: dict[str, dict[str, float]], more: dict[str, dict[str, float]]) -> None:
    for case, figures in more.items():
        records[case] |= figures
