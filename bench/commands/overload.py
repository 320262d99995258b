"""`overload`: at several times what a server can do, what is answered in time?

Each server is driven as fast as it goes first, with a few connections: that is its capacity. Limits of the target are
left out of that. Then requests arrive at a fifth of it, which says how long they take unloaded, and at several times of
it, whether or not the server keeps up. What it does in the first seconds of that is not looked at, because limits that
adapt are adapting then. The goodput is the rate of responses in time.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from bench import environment, scenario, targets
from bench.commands import common
from bench.errors import BenchError
from bench.load import generators
from bench.load.overload import IN_TIME, REFUSED, TOO_LATE, OverloadGenerator
from bench.model import Burst, Load, Result
from bench.plan import Scenario
from bench.runner import Runner
from bench.scenario import Workload
from bench.targets import Target

BUSY = Workload("busy", "10 ms of waiting and 1 ms of computing", "busy", response_bytes=13, bound_by="application")
# Connections that keep a server busy without a queue of any length, and a share of the capacity that leaves none.
DRIVING, CALM = 32, 0.2
# Options of a target that would refuse what it is driven with.
LIMITS = ("active", "queue", "concurrency", "backpressure")

Figures = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Targets and the load."""
    parser.add_argument(
        "targets", nargs="*", default=["ours:active=auto", "ours:active=16", "upstream"], help="targets, or all"
    )
    parser.add_argument(
        "--factor", type=common.duration, default=3.0, help="times the capacity that requests arrive at"
    )
    parser.add_argument("--connections", type=common.count, default=512, help="connections that they may come on")
    parser.add_argument("--seconds", type=common.duration, default=6.0, help="length of the measured period")
    parser.add_argument("--settle", type=common.duration, default=6.0, help="seconds of overload before that")
    parser.add_argument("--sleep-ms", type=common.duration_or_none, default=10.0, help="what the application waits")
    common.tolerance_argument(parser)
    common.output_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Measure each target; what cannot be measured on one is noted and the rest goes on."""
    chosen = targets.find_all(arguments.targets)
    generators.require(OverloadGenerator.name)
    knobs = scenario.Knobs(arguments.sleep_ms, 2000, 5.0)
    runner = common.plain_runner(1, warm_up=0.0, knobs=knobs, tolerated=arguments.tolerate)
    records: dict[str, Figures] = {}
    notes: list[str] = []

    def steps() -> None:
        for target in chosen:
            try:
                records[target.label()] = _measured(runner, target, arguments, notes)
            except (BenchError, OSError) as exc:
                notes.append(f"{target.label()}: {exc}")

    trouble = common.guarded(steps)
    described = environment.describe(chosen, runner.cores)
    data = {
        "records": records,
        "factor": arguments.factor,
        "in_time": IN_TIME,
        "sleep_ms": arguments.sleep_ms,
        "workload": BUSY.name,
    }
    result = Result("overload", common.now(), described, data=data, notes=common.noted(notes, trouble))
    common.deliver(arguments, result, trouble)
    return int(not records)


def _measured(runner: Runner, target: Target, arguments: argparse.Namespace, notes: list[str]) -> Figures:
    mode = scenario.parse_mode("single")
    seconds = arguments.seconds

    def under(load: Load) -> Scenario:
        return Scenario(BUSY, mode, load)

    runner.progress(f"{target.label()}: capacity")
    driving = under(Load("closedloop", DRIVING, 1, min(3.0, seconds)))
    free = replace(target, options={name: value for name, value in target.options.items() if name not in LIMITS})
    with runner.alone(free, driving) as (server, directory):
        burst, _ = runner.drive(server, driving, driving.load, directory)
    if not burst.requests or burst.errors:
        raise BenchError(f"no capacity was measured: {dict(burst.errors) or 'no request was answered'}")
    capacity = burst.requests / burst.seconds
    calm = under(_arriving(arguments.connections, min(3.0, seconds), CALM * capacity))
    stormy = under(_arriving(arguments.connections, seconds, arguments.factor * capacity))
    with runner.alone(target, calm) as (server, directory):
        runner.progress(f"{target.label()}: unloaded")
        unloaded, _ = runner.drive(server, calm, calm.load, directory)
        runner.progress(f"{target.label()}: overloaded")
        runner.drive(server, stormy, replace(stormy.load, seconds=arguments.settle), directory)
        loaded, _ = runner.drive(server, stormy, stormy.load, directory)
    for burst in (unloaded, loaded):
        if late := burst.errors.get("sent late by the generator"):
            notes.append(f"{target.label()}: the generator was late with {late} requests")
    return {"capacity": capacity, "calm": _figures(unloaded, calm.load), "stormy": _figures(loaded, stormy.load)}


def _arriving(connections: int, seconds: float, rate: float) -> Load:
    return Load(OverloadGenerator.name, connections, 1, seconds, float(max(1, round(rate))))


def _figures(burst: Burst, load: Load) -> Figures:
    """Figures per second of offered load; later answers are late in any case."""
    errors, latency = dict(burst.errors), burst.latency
    return {
        "offered": load.rate,
        "good": (burst.requests - errors.get(TOO_LATE, 0)) / load.seconds,
        "refused": errors.get(REFUSED, 0) / load.seconds,
        "p50": latency.p50 if latency else None,
        "p99": latency.p99 if latency else None,
        "errors": errors,
    }
