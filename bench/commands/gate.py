"""`gate`: for CI: fails when this tree got slower than the stored ratios and instruction counts allow."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import checks, environment, instructions, judge, plan, report, scenario, targets
from bench.commands import common
from bench.errors import BenchError
from bench.judge import Line
from bench.load import generators
from bench.model import Load, Result, Sample
from bench.plan import Scenario
from bench.report import METRICS, Table
from bench.stats import Interval, paired_ratio
from bench.targets import Target

STORED = Path(__file__).resolve().parent.parent / "baselines" / "gate.json"
WORKLOADS = "hello,headers,echo,stream"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to measure and what to hold it against."""
    parser.add_argument("--target", default="ours", help="the tree under judgement, for example ours:root=../other")
    parser.add_argument("--workload", default=WORKLOADS, help="workloads of the paired part; empty for none")
    parser.add_argument("--blocks", type=int, default=4, help="blocks of four bursts per workload")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--stored", type=Path, default=STORED, help="file with the stored values")
    parser.add_argument(
        "--base", type=Path, help="a tree whose instructions are counted now, instead of the stored ones"
    )
    parser.add_argument("--cases", default=",".join(instructions.CASES), help="micro-benchmarks; empty for none")
    parser.add_argument("--update", action="store_true", help="store what is measured instead of judging it")
    common.output_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Exit status 1 when a case fails; what could not be judged is said and does not fail."""
    target, upstream = targets.find(arguments.target), targets.find("upstream")
    stored = {} if arguments.update else _read(arguments.stored)
    cases = [case for case in arguments.cases.split(",") if case]
    notes: list[str] = []
    counts = _counted(target, cases, notes)
    runner = common.plain_runner(1, warm_up=0.5)
    trouble = common.measure(runner, _plan(arguments, target, upstream))
    if trouble:
        raise BenchError(trouble)
    described = environment.describe([target, upstream] if runner.samples else [target], runner.cores)
    ratios = _ratios(runner.samples)
    if arguments.update:
        return _store(arguments, ratios, counts, described)
    lines = [
        judge.judge_ratio(name, stored["ratios"][name], found)
        for name, found in ratios.items()
        if name in stored["ratios"]
    ]
    lines += _judged(arguments, stored, counts, described, notes)
    notes += checks.doubts(runner.samples, described)
    data = {"lines": [line.__dict__ for line in lines]}
    result = Result("gate", common.now(), described, tuple(runner.samples), data, tuple(notes))
    common.deliver(arguments, result)
    return _outcome(lines)


def _outcome(lines: Sequence[Line]) -> int:
    if not lines:
        raise BenchError("nothing was judged")
    failed = [line.case for line in lines if line.failed]
    for case in failed:
        print(f"bench: regression: {case}", file=sys.stderr)
    return int(bool(failed))


def _plan(arguments: argparse.Namespace, target: Target, upstream: Target) -> list[plan.Block]:
    workloads = scenario.find(arguments.workload) if arguments.workload else []
    if workloads:
        generators.require("wrk")
        targets.interpreter(upstream)
    load = Load("wrk", arguments.connections, 1, arguments.seconds)
    blocks = []
    for workload in workloads:
        one = Scenario(workload, scenario.Mode(), load)
        blocks += plan.comparison(one, upstream, target, blocks=arguments.blocks)
    return plan.numbered(blocks)


def _ratios(samples: Sequence[Sample]) -> dict[str, Interval]:
    """Speed-up by workload: CPU per request of upstream over ours. Raises BenchError when a server failed."""
    found = {}
    for (workload, *_), chosen in report.comparisons(samples).items():
        report.compare(chosen, METRICS[0])  # Says why when nothing counts.
        pairs = [[(a.cpu_per_request, b.cpu_per_request) for a, b in block] for block in report.paired(chosen)]
        found[workload] = paired_ratio(pairs)
    return found


def _counted(target: Target, cases: Sequence[str], notes: list[str]) -> dict[str, float]:
    if not cases:
        return {}
    trouble = instructions.missing()
    if trouble:
        notes.append(f"instructions were not counted: {trouble}")
        return {}
    here = instructions.available(target, cases)
    notes += [f"{case} cannot run here" for case in cases if case not in here]
    return instructions.count(target, here) if here else {}


def _judged(
    arguments: argparse.Namespace,
    stored: dict[str, Any],
    counts: dict[str, float],
    described: dict[str, Any],
    notes: list[str],
) -> list[Line]:
    """Instruction counts against those of a base tree, or against stored ones of the same interpreter."""
    if not counts:
        return []
    if arguments.base is not None:
        other = targets.find(f"ours:root={arguments.base}")
        base = instructions.count(other, instructions.available(other, list(counts)))
    elif judge.identity(described["targets"][targets.find(arguments.target).label()]) == stored.get("identity"):
        base = stored["instructions"]
    else:
        notes.append("instructions were not judged: the stored counts are of another interpreter (use --base)")
        return []
    notes += [f"no stored count for {case}" for case in counts if case not in base]
    return [judge.judge_instructions(case, base[case], found) for case, found in counts.items() if case in base]


def _store(
    arguments: argparse.Namespace, ratios: dict[str, Interval], counts: dict[str, float], described: dict[str, Any]
) -> int:
    measured = {name: round(found.value, 4) for name, found in ratios.items()}
    values = {
        "schema": judge.SCHEMA,
        "created": common.now(),
        "identity": judge.identity(described["targets"][targets.find(arguments.target).label()]),
        "ratios": measured,
        "intervals": {name: [round(found.low, 4), round(found.high, 4)] for name, found in ratios.items()},
        "instructions": {case: round(found, 1) for case, found in counts.items()},
    }
    try:
        arguments.stored.write_text(json.dumps(values, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    except OSError as exc:
        raise BenchError(f"cannot write {arguments.stored}: {exc.strerror or exc}") from None
    common.print_table(
        Table("stored", ("case", "value"), tuple((k, f"{v:,.3f}") for k, v in {**measured, **counts}.items())),
        as_markdown=arguments.markdown,
    )
    return 0


def _read(path: Path) -> dict[str, Any]:
    try:
        return judge.check_stored(json.loads(path.read_text(encoding="utf-8")))
    except OSError:
        raise BenchError(f"no stored values in {path.name}: store them with --update") from None
    except ValueError as exc:
        raise BenchError(f"{path.name}: {exc}") from None
