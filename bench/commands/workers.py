"""`workers`: many processes: start-up, memory, load, recycling, leaks, mixed work; ends with what to choose here."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import environment, process, scenario, targets
from bench.commands import common
from bench.errors import BenchError
from bench.load import generators
from bench.load.base import verdict
from bench.model import Burst, Load, Result
from bench.plan import Scenario
from bench.process import MemoryWatch, Server
from bench.runner import SETTLE, Runner
from bench.scenario import Mode, Workload
from bench.targets import Target

SETTLE_TIMEOUT = 180.0
# CPU seconds of the whole tree between two checks: less comes from idle workers' heartbeats, not from start-up.
QUIET, QUIET_PER_WORKER = 0.005, 0.0004
# Bursts of a second without any answer before a server that replaces its workers is given up.
PATIENCE = 30
Record = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Targets, sections and sizes."""
    parser.add_argument("targets", nargs="*", default=["ours", "upstream"], help="targets, or all")
    parser.add_argument("--sections", default=",".join(SECTIONS), help="which parts to measure")
    parser.add_argument(
        "--counts", type=common.counts, default=[1, 10, 50, 100], help="numbers of workers for start-up and memory"
    )
    parser.add_argument("--workers", type=common.count, default=os.cpu_count() or 1, help="workers of the other parts")
    parser.add_argument("--minutes", type=common.duration, default=1.0, help="of sustained load")
    parser.add_argument("--seconds", type=common.duration, default=3.0, help="length of the other bursts")
    parser.add_argument("--connections", type=common.count, default=50, help="open connections")
    parser.add_argument("--tool", choices=["wrk", "closedloop"], default="wrk", help="load generator")
    parser.add_argument("--recycle", type=common.count, default=5000, help="requests after which a worker is replaced")
    parser.add_argument(
        "--leak-requests", type=common.count, default=20000, help="requests to the application that leaks"
    )
    parser.add_argument("--slice", type=common.duration, default=10.0, help="seconds of one line of sustained load")
    parser.add_argument("--server-cores", type=int, default=0, help="cores for the server; 0 shares all cores")
    common.output_arguments(parser)


@dataclass(frozen=True)
class Work:
    """What the sections share."""

    runner: Runner
    arguments: argparse.Namespace
    target: Target

    def scenario(
        self, workload: Workload, workers: int, *, seconds: float | None = None, connections: int = 0
    ) -> Scenario:
        """A workload on `count` worker processes."""
        load = Load(
            self.arguments.tool, connections or self.arguments.connections, 1, seconds or self.arguments.seconds
        )
        mode = Mode("processes", workers) if workers > 1 else Mode()
        return Scenario(workload, mode, load)


def execute(arguments: argparse.Namespace) -> int:
    """Measure every section on every target; a section that fails is noted and the rest goes on."""
    chosen = targets.find_all(arguments.targets)
    names = arguments.sections.split(",")
    for name in names:
        if name not in SECTIONS:
            raise BenchError(f"unknown section {name!r}: choose from {', '.join(SECTIONS)}")
    generators.require(arguments.tool)
    runner = common.plain_runner(arguments.server_cores, warm_up=0.5)
    sections: dict[str, list[Record]] = {name: [] for name in names}
    notes: list[str] = []

    def measure() -> None:
        for target in chosen:
            for name in names:
                runner.progress(f"{target.label()}: {name}")
                try:
                    for record in SECTIONS[name](Work(runner, arguments, target)):
                        sections[name].append(record)
                except BenchError as exc:
                    notes.append(f"{target.label()}: {name}: {exc}")

    # Before what takes its time: an interpreter that does not work is noticed here.
    described = environment.describe(chosen, runner.cores)
    trouble = common.guarded(measure)
    data = {"sections": sections, "recycle": arguments.recycle, "workers": arguments.workers}
    result = Result("workers", common.now(), described, data=data, notes=common.noted(notes, trouble))
    common.deliver(arguments, result, trouble)
    return int(not any(sections.values()))


def startup(work: Work) -> Iterator[Record]:
    """Time until the first answer and until all workers are up, and memory then, for each number of workers."""
    for count in work.arguments.counts:
        one = work.scenario(scenario.WORKLOADS["hello"], count)
        with work.runner.alone(work.target, one) as (server, _):
            first = server.ready_after
            wait_settled(server, count)
            complete = time.perf_counter() - server.started
            held = process.read_memory(server.pid)
            begun = time.perf_counter()
            server.stop()
            stopped = time.perf_counter() - begun
        yield {
            "target": work.target.label(),
            "workers": count,
            "first_answer": first,
            "complete": complete,
            "pss": held.pss,
            "pss_per_worker": held.pss / count,
            "uss": held.uss,
            "stop": stopped,
        }


def profiles(work: Work) -> Iterator[Record]:
    """The same as for `startup`, for as many processes of one event loop, and event loops of one process."""
    for count in work.arguments.counts:
        for mode in _profiles(work.target, count):
            load = Load(work.arguments.tool, 1, 1, work.arguments.seconds)
            with work.runner.alone(work.target, Scenario(scenario.WORKLOADS["hello"], mode, load)) as (server, _):
                first = server.ready_after
                wait_settled(server, mode.processes)
                complete = time.perf_counter() - server.started
                held = process.read_memory(server.pid)
            yield {
                "target": work.target.label(),
                "mode": str(mode),
                "first_answer": first,
                "complete": complete,
                "pss": held.pss,
                "pss_per_worker": held.pss / count,
            }


def parallel(work: Work) -> Iterator[Record]:
    """What a second event loop brings, in a process of its own or in the same: to an echo, and where one computes."""
    for name in ("echo", "cpu"):
        for mode in (Mode(), *_profiles(work.target, 2)):
            load = Load(work.arguments.tool, work.arguments.connections, 1, work.arguments.seconds)
            record = _loaded(work, Scenario(scenario.WORKLOADS[name], mode, load))
            yield {**record, "workload": name, "mode": str(mode)}


def _profiles(target: Target, count: int) -> list[Mode]:
    """The ways in which a server can run `count` event loops."""
    modes = (Mode("processes", processes=count), Mode("threads", threads=count))
    return [mode for mode in modes if mode.kind in target.modes]


def wait_settled(server: Server, count: int) -> None:
    """Wait until `count` processes live and the tree uses no CPU. Raises BenchError at a deadline."""
    deadline, calm, last = time.monotonic() + SETTLE_TIMEOUT, 0, -1.0
    quiet = QUIET + QUIET_PER_WORKER * count
    while calm < 3:
        server.check_alive()
        if time.monotonic() > deadline:
            raise BenchError(f"{server.label}: {count} workers were not up within {SETTLE_TIMEOUT:g} s")
        figures = server.figures()
        cpu = sum(one.cpu for one in figures.values())
        calm = calm + 1 if len(figures) >= count and cpu - last < quiet else 0
        last = cpu
        time.sleep(0.1)


def _burst(work: Work, one: Scenario, server: Server, directory: Path) -> tuple[Record, Burst]:
    """One burst with its cost. Errors are results here and do not void it."""
    before = server.figures()
    burst, _ = work.runner.drive(server, one, one.load, directory)
    usage = process.difference(before, server.figures())
    latency = burst.latency
    record = {
        "target": work.target.label(),
        "workers": max(one.mode.processes, 1),
        "rps": burst.requests / burst.seconds,
        "p50": latency.p50 if latency else 0.0,
        "p99": latency.p99 if latency else 0.0,
        "p999": latency.p999 if latency else 0.0,
        "cpu": usage.cpu / max(1, burst.requests),
        "errors": sum(burst.errors.values()),
        "fault": verdict(burst, one.load) or "",
    }
    return record, burst


def scaling(work: Work) -> Iterator[Record]:
    """Throughput, latency and memory for 1, as many as cores, and twice as many workers: what to choose here."""
    cores = os.cpu_count() or 1
    for count in sorted({1, cores, 2 * cores}):
        yield _loaded(work, work.scenario(scenario.WORKLOADS["hello"], count))


def peak(work: Work) -> Iterator[Record]:
    """Many connections at once on the given number of workers."""
    for connections in (200, 500, 1000):
        one = work.scenario(scenario.WORKLOADS["hello"], work.arguments.workers, connections=connections)
        yield {**_loaded(work, one), "connections": connections}


def mixed(work: Work) -> Iterator[Record]:
    """70% echo of 1 KiB, 30% matrix multiplication, in one stream of requests."""
    workload = Workload(
        "mixed", "70% echo, 30% matrices", "mixed", method="POST", body=b"m" * 1024, options={"post-percent": "70"}
    )
    for count in sorted({1, work.arguments.workers}):
        yield _loaded(work, work.scenario(workload, count))


def _loaded(work: Work, one: Scenario) -> Record:
    with work.runner.alone(work.target, one) as (server, directory):
        wait_settled(server, one.mode.processes)
        work.runner.drive(server, one, replace(one.load, seconds=1), directory)
        record, _ = _burst(work, one, server, directory)
        time.sleep(SETTLE)
        record["pss"] = process.read_memory(server.pid).pss
    return record


def sustained(work: Work) -> Iterator[Record]:
    """The same load for minutes, in slices: does anything drift?"""
    length = work.arguments.slice
    one = work.scenario(scenario.WORKLOADS["hello"], work.arguments.workers, seconds=length)
    with work.runner.alone(work.target, one) as (server, directory):
        wait_settled(server, one.mode.processes)
        for number in range(max(1, round(work.arguments.minutes * 60 / length))):
            record, _ = _burst(work, one, server, directory)
            pss = process.read_memory(server.pid).pss
            yield {**record, "second": (number + 1) * length, "pss": pss}


def recycling(work: Work) -> Iterator[Record]:
    """The same load with and without replacing workers: what replacement costs while it happens."""
    for here in _with_and_without_recycling(work):
        length = here.arguments.slice
        one = here.scenario(scenario.WORKLOADS["hello"], max(2, here.arguments.workers), seconds=length)
        with here.runner.alone(here.target, one) as (server, directory):
            wait_settled(server, one.mode.processes)
            before = set(server.figures())
            with MemoryWatch(server.pid) as watch:
                record, _ = _burst(here, one, server, directory)
            yield {**record, "replaced": len(watch.pids - before)}


def leak(work: Work) -> Iterator[Record]:
    """An application that keeps 10 KiB of every request, with and without replacing workers."""
    workload = Workload("leaking", "keeps 10 KiB of each request", "leaking", response_bytes=13)
    for here in _with_and_without_recycling(work):
        yield _leaking(here, here.scenario(workload, max(2, here.arguments.workers), seconds=1))


def _with_and_without_recycling(work: Work) -> Iterator[Work]:
    """The target as configured, then with worker replacement; raises BenchError if it has no such option."""
    yield work
    if "max-requests" not in work.target.allowed:
        raise BenchError("it has no option to replace workers")
    # Without jitter all workers reach the number at once, which upstream's option is there to avoid.
    limit = str(work.arguments.recycle)
    options = {**work.target.options, "max-requests": limit, "jitter": limit}
    yield replace(work, target=replace(work.target, options=options))


def _leaking(work: Work, one: Scenario) -> Record:
    """Load in short bursts until enough requests were answered; memory before, highest and after."""
    served = errors = silent = 0
    with work.runner.alone(work.target, one) as (server, directory):
        wait_settled(server, one.mode.processes)
        before = process.read_memory(server.pid).pss
        with MemoryWatch(server.pid) as watch:
            while served < work.arguments.leak_requests:
                burst, _ = work.runner.drive(server, one, one.load, directory)
                silent += burst.requests == 0
                if silent > PATIENCE:
                    raise BenchError("the leaking application stopped answering")
                served += burst.requests
                errors += sum(burst.errors.values())
            wait_settled(server, one.mode.processes)
        after = process.read_memory(server.pid).pss
    return {
        "target": work.target.label(),
        "requests": served,
        "before": before,
        "peak": watch.peak.pss,
        "after": after,
        "silent": silent,
        "errors": errors,
    }


SECTIONS: dict[str, Callable[[Work], Iterator[Record]]] = {
    "startup": startup,
    "profiles": profiles,
    "parallel": parallel,
    "scaling": scaling,
    "peak": peak,
    "sustained": sustained,
    "recycling": recycling,
    "leak": leak,
    "mixed": mixed,
}
