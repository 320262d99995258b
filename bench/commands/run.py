"""`run`: workloads against targets, medians of several bursts."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from bench import plan, scenario, targets
from bench.commands import common
from bench.errors import BenchError
from bench.plan import Scenario
from bench.process import Elsewhere
from bench.runner import Runner
from bench.scenario import Workload


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Targets and the load."""
    parser.add_argument("targets", nargs="*", default=["ours"], help="targets, or all")
    common.rounds_argument(parser)
    parser.add_argument("--port", type=common.count, help="where servers listen (default: a free port each time)")
    parser.add_argument("--url", help="load a server that already runs on loopback, instead of targets")
    parser.add_argument("--by-path", action="store_true", help="with --url: each workload at a path of its name")
    common.load_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Measure and print; exit status 1 when no sample counts."""
    workloads = scenario.find(arguments.workload)
    if arguments.url:
        return _outside(arguments, workloads)
    chosen = targets.find_all(arguments.targets)
    scenarios = common.scenarios(arguments, workloads, scenario.parse_mode(arguments.mode))
    runner = common.runner(arguments)
    runner.port = arguments.port
    blocks = plan.survey(scenarios, chosen, rounds=arguments.rounds, seed=arguments.seed)
    trouble = common.measure(runner, blocks)
    result = common.finish(arguments, "run", runner, chosen, trouble)
    return int(all(sample.void for sample in result.samples))


def _outside(arguments: argparse.Namespace, workloads: Sequence[Workload]) -> int:
    server = Elsewhere(arguments.url)
    for workload in workloads:
        if workload.tls or workload.options:
            raise BenchError(f"{workload.name} needs a server that is started here: leave --url or the workload out")
    placed = [_placed(workload, server, by_path=arguments.by_path) for workload in workloads]
    scenarios = common.scenarios(arguments, placed, scenario.Mode())
    runner = common.runner(arguments)
    trouble = common.guarded(lambda: _bursts(runner, server, scenarios, arguments.rounds))
    result = common.finish(arguments, "run", runner, [], trouble)
    return int(all(sample.void for sample in result.samples))


def _placed(workload: Workload, server: Elsewhere, *, by_path: bool) -> Workload:
    """The workload for a foreign server: its responses are known only if it serves our applications by their names."""
    if by_path:
        return replace(workload, path=f"{server.path.rstrip('/')}/{workload.name}")
    return replace(workload, path=server.path, response_bytes=None)


def _bursts(runner: Runner, server: Elsewhere, scenarios: Sequence[Scenario], rounds: int) -> None:
    for one in scenarios:
        for _ in range(rounds):
            runner.outside(server, one)
