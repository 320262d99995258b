"""`scaling`: each server with one, two, four workers or event loops: CPU per request, tails, a model for many cores.

N of them share N cores with a client of N threads and N times the connections, so that nothing but their number
differs, and all are busy. Where there are fewer cores, all are used.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from bench import environment, plan, scenario, targets
from bench.commands import common
from bench.plan import Scenario
from bench.scenario import Mode

KINDS = ("processes", "threads")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Targets, numbers and the load."""
    parser.add_argument("targets", nargs="*", default=["ours", "upstream"], help="targets, or all")
    parser.add_argument("--counts", type=common.counts, default=[1, 2, 4], help="of workers or event loops")
    common.rounds_argument(parser)
    common.load_arguments(parser)
    parser.set_defaults(workload="varying", server_cores=0)


def execute(arguments: argparse.Namespace) -> int:
    """Measure and print; exit status 1 when nothing counts. A server is left out where it has no such mode."""
    chosen = targets.find_all(arguments.targets)
    workloads = scenario.find(arguments.workload)
    runner = common.runner(arguments)
    unpinned = runner.cores
    runner.place = lambda mode: environment.together(mode.loops)
    groups = []
    for kind in KINDS:
        able = [target for target in chosen if kind in target.modes]
        modes = [Mode(kind, **{kind: count}) for count in arguments.counts]
        scenarios = [grown(one) for mode in modes for one in common.scenarios(arguments, workloads, mode)]
        groups.append((scenarios, able))
    # Round by round, so that the cost of one process and that of several are measured close together.
    blocks = plan.numbered(
        block
        for number in range(arguments.rounds)
        for scenarios, able in groups
        for block in plan.survey(scenarios, able, rounds=1, seed=arguments.seed + number)
    )
    trouble = common.measure(runner, blocks)
    runner.cores = unpinned
    result = common.finish(arguments, "scaling", runner, chosen, trouble)
    return int(all(sample.void for sample in result.samples))


def grown(one: Scenario) -> Scenario:
    """Return a scenario with as many threads of the client as cores serve, and connections for each."""
    by = max(1, len(environment.together(one.mode.loops).server))
    return replace(one, load=replace(one.load, threads=by, connections=one.load.connections * by))
