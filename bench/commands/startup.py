"""`startup`: from nothing to the first right answer, and back."""

from __future__ import annotations

import argparse
import time
from typing import Any

from bench import environment, process, scenario, targets
from bench.commands import common
from bench.errors import BenchError
from bench.model import Load, Result
from bench.plan import Scenario
from bench.runner import Runner
from bench.targets import Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Targets and how often."""
    parser.add_argument("targets", nargs="*", default=["ours", "upstream"], help="targets, or all")
    parser.add_argument("--rounds", type=int, default=10, help="starts of each target, interleaved")
    parser.add_argument("--workload", default="hello", help="whose application is loaded")
    parser.add_argument("--mode", default="single")
    parser.add_argument("--server-cores", type=int, default=1)
    common.output_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Start and stop each target in turn; the first start of each fills caches and is not counted."""
    chosen = targets.find_all(arguments.targets)
    mode = scenario.parse_mode(arguments.mode)
    one = Scenario(scenario.find(arguments.workload)[0], mode, Load("none", 0, 0, 0.0))
    runner = common.plain_runner(arguments.server_cores)
    records: dict[str, list[dict[str, float]]] = {target.label(): [] for target in chosen}
    notes = []
    for number in range(arguments.rounds + 1):
        for target in chosen:
            runner.progress(f"start {number} of {target.label()}")
            try:
                figures = _once(runner, target, one)
            except BenchError as exc:
                notes.append(f"{target.label()}: {exc}")
                continue
            if number:
                records[target.label()].append(figures)
    described = environment.describe(chosen, runner.cores)
    data: dict[str, Any] = {"records": records, "workload": one.workload.name, "mode": str(mode)}
    result = Result("startup", common.now(), described, data=data, notes=tuple(dict.fromkeys(notes)))
    common.deliver(arguments, result)
    return int(not all(records.values()))


def _once(runner: Runner, target: Target, one: Scenario) -> dict[str, float]:
    with runner.alone(target, one) as (server, _):
        cpu = sum(figures.cpu for figures in server.figures().values())
        held = process.read_memory(server.pid)
        ready = server.ready_after
        begun = time.perf_counter()
        status = server.stop()
        stopped = time.perf_counter() - begun
    return {"ready": ready, "cpu": cpu, "pss": held.pss, "rss": held.rss, "stop": stopped, "status": status}
