"""`websocket`: echo and broadcast, by message size and number of sockets."""

from __future__ import annotations

import argparse
from dataclasses import replace

from bench import plan, scenario, targets
from bench.commands import common
from bench.errors import BenchError
from bench.load import generators
from bench.model import Load
from bench.plan import Scenario
from bench.scenario import Workload

APPLICATIONS = {"echo": "websocket", "broadcast": "broadcast"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Targets, patterns and sizes."""
    parser.add_argument("targets", nargs="*", default=["ours", "upstream"], help="targets, or all")
    parser.add_argument("--pattern", default="echo,broadcast", help="echo, broadcast, or both")
    parser.add_argument("--sizes", type=common.counts, default=[16, 1024, 65536], help="message sizes in bytes")
    parser.add_argument("--connections", type=common.counts, default=[50], help="open sockets, comma-separated")
    parser.add_argument("--seconds", type=common.duration, default=3.0, help="length of a burst")
    parser.add_argument("--warm-up", type=common.duration_or_none, default=1.0, help="seconds before the first burst")
    common.rounds_argument(parser)
    common.tolerance_argument(parser)
    parser.add_argument("--seed", type=int, default=1, help="of the order of measurements")
    parser.add_argument("--server-cores", type=common.count, default=1, help="cores the server may use")
    common.output_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Measure and print; exit status 1 when nothing counts."""
    chosen = targets.find_all(arguments.targets)
    runner = common.plain_runner(arguments.server_cores, warm_up=arguments.warm_up, tolerated=arguments.tolerate)
    scenarios = [
        Scenario(workload, scenario.Mode(), Load("websocket", connections, 1, arguments.seconds))
        for workload in _workloads(arguments)
        for connections in arguments.connections
    ]
    generators.require("websocket")
    blocks = plan.survey(scenarios, chosen, rounds=arguments.rounds, seed=arguments.seed)
    trouble = common.measure(runner, blocks)
    result = common.finish(arguments, "websocket", runner, chosen, trouble)
    return int(all(sample.void for sample in result.samples))


def _workloads(arguments: argparse.Namespace) -> list[Workload]:
    base = scenario.WORKLOADS["websocket"]
    found = []
    for pattern in arguments.pattern.split(","):
        if pattern not in APPLICATIONS:
            raise BenchError(f"unknown pattern {pattern!r}: choose from {', '.join(APPLICATIONS)}")
        for size in arguments.sizes:
            name = f"{pattern} {size} B"
            options = {"pattern": pattern}
            found.append(replace(base, name=name, app=APPLICATIONS[pattern], body=b"w" * size, options=options))
    return found
