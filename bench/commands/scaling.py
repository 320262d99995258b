"""`scaling`: each server with one, two, four workers or event loops: CPU per request, tails, a model for many cores."""

from __future__ import annotations

import argparse

from bench import plan, scenario, targets
from bench.commands import common
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
    blocks = []
    for kind in KINDS:
        able = [target for target in chosen if kind in target.modes]
        modes = [Mode(kind, **{kind: count}) for count in arguments.counts]
        scenarios = [one for mode in modes for one in common.scenarios(arguments, workloads, mode)]
        blocks += plan.survey(scenarios, able, rounds=arguments.rounds, seed=arguments.seed)
    trouble = common.measure(runner, plan.numbered(blocks))
    result = common.finish(arguments, "scaling", runner, chosen, trouble)
    return int(all(sample.void for sample in result.samples))
