"""`run`: workloads × targets, medians of several bursts."""

from __future__ import annotations

import argparse

from bench import plan, scenario, targets
from bench.commands import common


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Targets and the load."""
    parser.add_argument("targets", nargs="*", default=["ours"], help="targets, or all")
    parser.add_argument("--rounds", type=int, default=3, help="bursts of each target, each against a fresh process")
    common.load_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Measure and print; exit status 1 when a target has no sample that counts."""
    names = list(targets.TARGETS) if arguments.targets == ["all"] else arguments.targets
    chosen = [targets.find(name) for name in names]
    for target in chosen:
        targets.interpreter(target)
    workloads = scenario.find(arguments.workload)
    scenarios = common.scenarios(arguments, workloads, scenario.parse_mode(arguments.mode))
    runner = common.runner(arguments)
    runner.carry_out(plan.survey(scenarios, chosen, rounds=arguments.rounds, seed=arguments.seed))
    result = common.finish(arguments, "run", runner.samples, chosen, runner.cores)
    return int(all(sample.void for sample in result.samples))
