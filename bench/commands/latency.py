"""`latency`: at a fixed arrival rate that every server can carry, by load and by number of connections.

First each server is driven at full speed. All servers are then loaded with shares of the slowest one's throughput, or
of a named one's, so that none looks better because it got less load. Requests are due at even distances whether or
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
from bench.runner import Runner
from bench.scenario import Workload
from bench.targets import Target

OPEN = "openloop"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Targets, shares and the load."""
    parser.add_argument("targets", nargs="*", default=["ours", "upstream"], help="targets, or all")
    parser.add_argument("--shares", type=common.counts, default=[30, 60, 90], help="of that capacity, in per cent")
    parser.add_argument("--of", metavar="TARGET", help="whose capacity, instead of the slowest server's")
    parser.add_argument("--capacity", type=common.duration, help="requests per second, instead of measuring it")
    common.rounds_argument(parser)
    common.load_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Measure and print; exit status 1 when nothing counts."""
    chosen = targets.find_all(arguments.targets)
    if arguments.of and arguments.of not in [target.label() for target in chosen]:
        raise BenchError(f"--of names none of the targets: {arguments.of}")
    workloads = scenario.find(arguments.workload)
    for workload in workloads:
        if refusal := common.unable(generators.require(OPEN), workload):
            raise BenchError(refusal)
    arguments.connections = arguments.connections or [64, 512, 1000]
    runner = common.runner(arguments)
    measured = Measured(arguments, runner, chosen, is_one=len(workloads) == 1)
    troubles = [measured.one(workload) for workload in workloads]
    trouble = next(filter(None, troubles), None)
    described = environment.describe(chosen, runner.cores)
    data = {
        "capacities": measured.capacities,
        "slowest": next(iter(measured.bases.values())),
        "bases": measured.bases,
        "shares": arguments.shares,
    }
    result = Result("latency", common.now(), described, tuple(measured.samples), data, common.noted([], trouble))
    common.deliver(arguments, result, trouble)
    return int(all(sample.void for sample in result.samples))


class Measured:
    """Measures one workload after the other.

    `bases` are requests per second, by workload: the arrival rates are shares of them. `capacities` are those of each
    target, named by target, and by workload as well where there are several.
    """

    def __init__(
        self, arguments: argparse.Namespace, runner: Runner, chosen: Sequence[Target], *, is_one: bool
    ) -> None:
        self.samples: list[Sample] = []
        self.bases: dict[str, float] = {}
        self.capacities: dict[str, float] = {}
        self._arguments = arguments
        self._runner = runner
        self._chosen = chosen
        self._is_one = is_one

    def one(self, workload: Workload) -> str | None:
        """Measure a workload; returns why that ended early. Raises BenchError when no capacity can be had."""
        arguments, runner = self._arguments, self._runner
        closed = common.scenarios(arguments, [workload], scenario.parse_mode(arguments.mode))
        able = common.able(closed[0], self._chosen)
        base = arguments.capacity
        if base is None:
            runner.samples = []
            blocks = plan.survey(closed[:1], able, rounds=1, seed=arguments.seed)
            trouble = common.measure(runner, blocks)
            if trouble == common.INTERRUPTED:
                raise KeyboardInterrupt
            found = found_capacities(runner.samples)
            if trouble or not found or (arguments.of and arguments.of not in found):
                reason = trouble or "; ".join(sorted({sample.void or "" for sample in runner.samples}))
                raise BenchError(f"no capacity was measured: {reason}")
            base = found[arguments.of] if arguments.of else min(found.values())
            prefix = "" if self._is_one else f"{workload.name}: "
            self.capacities |= {prefix + name: rps for name, rps in found.items()}
        self.bases[workload.name] = base
        runner.samples = []
        scenarios = [_open(one, base * share / 100) for one in closed for share in arguments.shares]
        trouble = common.measure(runner, plan.survey(scenarios, able, rounds=arguments.rounds, seed=arguments.seed))
        self.samples += runner.samples
        return trouble


def found_capacities(samples: Sequence[Sample]) -> dict[str, float]:
    """Requests per second of each target that was driven as fast as it goes."""
    names = dict.fromkeys(sample.target for sample in usable(samples))
    return {name: stats.median([one.rps for one in usable(samples) if one.target == name]) for name in names}


def _open(one: Scenario, rate: float) -> Scenario:
    """The same at a fixed rate, in whole requests."""
    load = Load(OPEN, one.load.connections, 1, one.load.seconds, float(max(1, round(rate))))
    return replace(one, load=load)
