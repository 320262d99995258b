"""`websocket`: what messages, handshakes and broadcasts cost, case by case."""

from __future__ import annotations

import argparse

from bench import plan, scenario, targets
from bench.commands import common
from bench.errors import BenchError
from bench.load import generators
from bench.model import Load
from bench.plan import Scenario
from bench.scenario import Workload


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Targets and cases."""
    parser.add_argument("targets", nargs="*", default=["ours", "upstream"], help="targets, or all")
    parser.add_argument("--cases", default="all", help="comma-separated workloads for WebSocket (see: list)")
    parser.add_argument(
        "--connections", type=common.counts, help="open sockets, comma-separated (default: the case's own)"
    )
    parser.add_argument("--seconds", type=common.duration, default=3.0, help="length of a burst")
    parser.add_argument("--warm-up", type=common.duration_or_none, default=1.0, help="seconds before the first burst")
    common.rounds_argument(parser)
    parser.add_argument(
        "--paired", action="store_true", help="each server once per block: the first target against each of the others"
    )
    common.tolerance_argument(parser)
    parser.add_argument("--seed", type=int, default=1, help="of the order of measurements")
    parser.add_argument("--server-cores", type=common.count, default=1, help="cores the server may use")
    common.output_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Measure and print; exit status 1 when nothing counts."""
    chosen = targets.find_all(arguments.targets)
    runner = common.plain_runner(arguments.server_cores, warm_up=arguments.warm_up, tolerated=arguments.tolerate)
    scenarios = [
        Scenario(one, scenario.Mode(), Load("websocket", connections, 1, arguments.seconds, None, one.pipeline))
        for one in _workloads(arguments.cases)
        for connections in arguments.connections or [one.connections]
    ]
    generators.require("websocket")
    first, *rivals = chosen
    seed, rounds = arguments.seed, arguments.rounds
    blocks = plan.numbered(
        block
        for number, one in enumerate(scenarios)
        for block in (
            plan.comparison(one, first, common.able(one, rivals), blocks=rounds, seed=seed)
            if arguments.paired
            else plan.survey([one], common.able(one, chosen), rounds=rounds, seed=seed + number)
        )
    )
    trouble = common.measure(runner, blocks)
    result = common.finish(arguments, "websocket", runner, chosen, trouble)
    return int(all(sample.void for sample in result.samples))


def _workloads(names: str) -> list[Workload]:
    if names == "all":
        return list(scenario.WEBSOCKETS)
    known = {one.name: one for one in scenario.TABLE if one.generator == "websocket"}
    for name in names.split(","):
        if name not in known:
            raise BenchError(f"{name} is no workload for WebSocket: choose from {', '.join(known)}, all")
    return [known[name] for name in names.split(",")]
