"""`compare A B`: two servers, paired and interleaved, ratio with interval."""

from __future__ import annotations

import argparse

from bench import plan, report, scenario, targets
from bench.commands import common


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Two targets and the load."""
    parser.add_argument("first", help="target A, for example ours or ours:http=h11")
    parser.add_argument("second", help="target B, for example upstream")
    parser.add_argument(
        "--blocks", type=int, default=4, help="blocks of four bursts (A B B A), each of fresh processes"
    )
    parser.add_argument("--noise", action="store_true", help="also measure A against itself")
    common.load_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Measure and print; exit status 0 when every comparison could be made."""
    first, second = targets.find_all([arguments.first, arguments.second])
    workloads = scenario.find(arguments.workload)
    chosen = common.scenarios(arguments, workloads, scenario.parse_mode(arguments.mode))
    runner = common.runner(arguments)
    rivals = [(first, second)] + ([(first, first)] if arguments.noise else [])
    plans = [
        plan.comparison(one, a, b, blocks=arguments.blocks, seed=arguments.seed) for one in chosen for a, b in rivals
    ]
    trouble = common.measure(runner, plan.numbered(block for blocks in plans for block in blocks))
    result = common.finish(arguments, "compare", runner, [first, second], trouble)
    return int(any(not report.paired(samples) for samples in report.comparisons(result.samples).values()))
