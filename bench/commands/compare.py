"""`compare A B`: servers paired and interleaved, ratios with intervals, and the noise floor of A against itself."""

from __future__ import annotations

import argparse

from bench import plan, report, scenario, targets
from bench.commands import common


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Two targets or more, and the load."""
    parser.add_argument("first", help="target A, for example ours or ours:http=h11")
    parser.add_argument("rivals", nargs="+", help="what A is compared with, one by one, for example upstream")
    parser.add_argument(
        "--blocks",
        type=common.count,
        default=8,
        help="blocks with one burst of each server, in a new process; every second block is mirrored",
    )
    parser.add_argument(
        "--noise", action=argparse.BooleanOptionalAction, default=True, help="also compare A with itself"
    )
    common.load_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Measure and print; exit status 0 when every comparison could be made.

    Against several rivals, one that has no such workload does not count as a failure.
    """
    first, *rivals = targets.find_all([arguments.first, *arguments.rivals])
    chosen = common.scenarios(arguments, scenario.find(arguments.workload), scenario.parse_mode(arguments.mode))
    runner = common.runner(arguments)
    blocks = []
    for one in chosen:
        sides = [*common.able(one, rivals), *([first] if arguments.noise else [])]
        blocks += plan.comparison(one, first, sides, blocks=arguments.blocks, seed=arguments.seed)
    trouble = common.measure(runner, plan.numbered(blocks))
    result = common.finish(arguments, "compare", runner, [first, *rivals], trouble)
    return int(any(not report.paired(samples) for samples in report.comparisons(result.samples).values()))
