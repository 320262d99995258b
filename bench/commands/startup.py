"""`startup`: from nothing to the first right answer, and back; and what importing the server alone costs."""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import environment, process, scenario, stats, targets
from bench.commands import common
from bench.errors import BenchError, ServerError
from bench.model import Load, Result
from bench.plan import Scenario
from bench.runner import Runner, server_environment
from bench.targets import Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Targets and how often."""
    parser.add_argument("targets", nargs="*", default=["ours", "upstream"], help="targets, or all")
    parser.add_argument("--rounds", type=common.count, default=10, help="starts of each target, interleaved")
    parser.add_argument("--workload", default="hello", help="whose application is loaded")
    parser.add_argument("--mode", default="single", help="single, wsgi, processes=N")
    parser.add_argument("--server-cores", type=common.count, default=1, help="cores the server may use")
    common.output_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Start and stop each target in turn; the first start of each fills caches and is not counted."""
    chosen = targets.find_all(arguments.targets)
    mode = scenario.parse_mode(arguments.mode)
    one = Scenario(scenario.find(arguments.workload)[0], mode, Load("none", 0, 0, 0.0))
    runner = common.plain_runner(arguments.server_cores)
    records: dict[str, list[dict[str, float]]] = {target.label(): [] for target in chosen}
    notes: list[str] = []

    def starts() -> None:
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

    trouble = common.guarded(starts)
    data: dict[str, Any] = {"records": records, "workload": one.workload.name, "mode": str(mode)}
    described = environment.describe(chosen, runner.cores)
    result = Result("startup", common.now(), described, data=data, notes=common.noted(notes, trouble))
    common.deliver(arguments, result, trouble)
    return int(not all(records.values()))


def _once(runner: Runner, target: Target, one: Scenario) -> dict[str, float]:
    with runner.alone(target, one) as (server, _):
        cpu = sum(figures.cpu for figures in server.figures().values())
        held = process.read_memory(server.pid)
        ready = server.ready_after
        begun = time.perf_counter()
        status = server.stop()
        stopped = time.perf_counter() - begun
    found = {"ready": ready, "cpu": cpu, "pss": held.pss, "rss": held.rss, "stop": stopped, "status": status}
    if target.package:
        with process.pinned(runner.cores.server):
            # A start of an interpreter differs from the next by as much as servers differ.
            costs = (_interpreted(target, f"import {target.package}") - _interpreted(target, "pass") for _ in range(3))
            found["import"] = stats.median(list(costs))
    return found


def _interpreted(target: Target, code: str) -> float:
    """CPU seconds of an interpreter of the target's that runs a line; raises ServerError when that fails."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        environ = server_environment(target, Path(name))
        child = subprocess.Popen(
            [targets.interpreter(target), "-c", code],
            cwd=name,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise ServerError(f"{code} fails with status {child.returncode}")
    return usage.ru_utime + usage.ru_stime
