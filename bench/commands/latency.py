"""`latency`: at a fixed arrival rate that every server can carry, by load and by number of connections.

First each server is driven at full speed. All servers are then loaded with shares of the slowest one's throughput, so
that none looks better because it got less load. Requests are due at even distances whether or
not the server keeps up, and each counts from the moment when it was due: a server that stalls is charged for all that
wait.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from bench import environment, plan, scenario, stats, targets
from bench.commands import common
from bench.errors import BenchError
from bench.load import generators
from bench.model import Load, Result, Sample, usable
from bench.plan import Scenario

OPEN = "openloop"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Targets, shares and the load."""
    parser.add_argument("targets", nargs="*", default=["ours", "upstream"], help="targets, or all")
    parser.add_argument(
        "--shares", type=common.counts, default=[30, 60, 90], help="of the slowest server's capacity, in per cent"
    )
    parser.add_argument("--capacity", type=common.duration, help="requests per second, instead of measuring it")
    common.rounds_argument(parser)
    common.load_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Measure and print; exit status 1 when nothing counts."""
    chosen = targets.find_all(arguments.targets)
    arguments.connections = arguments.connections or [64, 512, 1000]
    mode = scenario.parse_mode(arguments.mode)
    [workload, *_] = scenario.find(arguments.workload)
    if refusal := common.unable(generators.require(OPEN), workload):
        raise BenchError(refusal)
    closed = common.scenarios(arguments, [workload], mode)
    runner = common.runner(arguments)
    capacities: dict[str, float] = {}
    if arguments.capacity is None:
        blocks = plan.survey(closed[:1], chosen, rounds=1, seed=arguments.seed)
        trouble = common.measure(runner, blocks)
        capacities = found_capacities(runner.samples)
        if trouble or not capacities:
            reason = trouble or "; ".join(sorted({sample.void or "" for sample in runner.samples}))
            raise BenchError(f"no capacity was measured: {reason}")
    slowest = arguments.capacity or min(capacities.values())
    runner.samples = []
    scenarios = [_open(one, slowest * share / 100) for one in closed for share in arguments.shares]
    trouble = common.measure(runner, plan.survey(scenarios, chosen, rounds=arguments.rounds, seed=arguments.seed))
    described = environment.describe(chosen, runner.cores)
    data = {"capacities": capacities, "slowest": slowest, "shares": arguments.shares}
    result = Result("latency", common.now(), described, tuple(runner.samples), data, common.noted([], trouble))
    common.deliver(arguments, result, trouble)
    return int(all(sample.void for sample in result.samples))


def found_capacities(samples: Sequence[Sample]) -> dict[str, float]:
    """Requests per second of each target that was driven as fast as it goes."""
    names = dict.fromkeys(sample.target for sample in usable(samples))
    return {name: stats.median([one.rps for one in usable(samples) if one.target == name]) for name in names}


def _open(one: Scenario, rate: float) -> Scenario:
    """The same at a fixed rate, in whole requests."""
    load = Load(OPEN, one.load.connections, 1, one.load.seconds, float(max(1, round(rate))))
    return replace(one, load=load)
