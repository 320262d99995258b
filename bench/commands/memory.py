"""`memory`: what servers hold at rest, under load and per connection, and how much work their allocators get."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import environment, probe, process, scenario, targets
from bench.allocations import allocation_counter
from bench.commands import common
from bench.errors import BenchError
from bench.load.response import ResponseReader, request_bytes
from bench.load.sockets import Client, open_all
from bench.load.websocket import upgrade
from bench.model import Result
from bench.plan import Scenario
from bench.process import MemoryWatch, Server
from bench.runner import SETTLE, Runner, request_of
from bench.targets import Target

ANSWER_TIMEOUT = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Targets and the load."""
    parser.add_argument("targets", nargs="*", default=["ours", "upstream"], help="targets, or all")
    parser.add_argument("--idle", type=int, default=1000, help="idle connections for the figure per connection")
    common.load_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Measure each target; what cannot be measured on one is noted and the rest goes on."""
    chosen = targets.find_all(arguments.targets)
    mode = scenario.parse_mode(arguments.mode)
    [one, *_] = common.scenarios(arguments, scenario.find(arguments.workload)[:1], mode)
    runner = common.runner(arguments)
    records: dict[str, Any] = {}
    notes: list[str] = []
    for target in chosen:
        records[target.label()] = _measure(runner, target, one, arguments.idle, notes)
    described = environment.describe(chosen, runner.cores)
    data = {"records": records, "workload": one.workload.name, "idle": arguments.idle}
    result = Result("memory", common.now(), described, data=data, notes=tuple(notes))
    common.deliver(arguments, result)
    return int(not any(records.values()))


def _measure(runner: Runner, target: Target, one: Scenario, idle: int, notes: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    steps = [_held, _allocations]
    for step in steps if target.python == "none" else [*steps, _collector, _traced]:
        runner.progress(f"{target.label()}: {step.__name__.strip('_')}")
        try:
            found |= step(runner, target, one)
        except BenchError as exc:
            notes.append(f"{target.label()}: {exc}")
    for name, workload in (("connection", "hello"), ("websocket", "websocket")):
        if name == "websocket" and "websocket" not in target.features:
            continue
        runner.progress(f"{target.label()}: idle {name}s")
        try:
            found |= _idle(runner, target, replace(one, workload=scenario.WORKLOADS[workload]), idle, name)
        except (BenchError, OSError) as exc:
            notes.append(f"{target.label()}: idle {name}s: {exc}")
    return found


def _held(runner: Runner, target: Target, one: Scenario) -> dict[str, float]:
    """Memory at rest, at its highest, settled, and what a second burst adds: growth that does not end is a leak."""
    with runner.alone(target, one) as (server, directory):
        rest = process.read_memory(server.pid)
        with MemoryWatch(server.pid) as watch:
            runner.drive(server, one, one.load, directory)
            time.sleep(SETTLE)
        first = process.read_memory(server.pid)
        runner.drive(server, one, one.load, directory)
        time.sleep(SETTLE)
        second = process.read_memory(server.pid)
    return {
        "rest_rss": rest.rss,
        "rest_pss": rest.pss,
        "rest_uss": rest.uss,
        "peak_pss": watch.peak.pss,
        "settled_pss": first.pss,
        "settled_uss": first.uss,
        "second_growth": second.pss - first.pss,
    }


def _collector(runner: Runner, target: Target, one: Scenario) -> dict[str, float]:
    """Runs and pauses of the garbage collector during a burst."""
    with runner.alone(target, one, inside=True) as (server, directory):
        probe.ask_all(server, directory, "gc_start")
        burst, _ = runner.drive(server, one, one.load, directory)
        answers = probe.ask_all(server, directory, "gc_read")
    pauses = [pause for answer in answers.values() for pause in answer["pauses"]]
    requests = max(1, burst.requests)
    return {
        "gc_runs_per_100k": len(pauses) / requests * 100_000,
        "gc_pause_total": sum(pauses) / burst.seconds,
        "gc_pause_max": max(pauses, default=0.0),
    }


def _traced(runner: Runner, target: Target, one: Scenario) -> dict[str, float]:
    """What Python allocations leave behind per request, and hold at most, by tracemalloc."""
    with runner.alone(target, one, inside=True) as (server, directory):
        runner.drive(server, one, replace(one.load, seconds=1), directory)
        before = probe.ask_all(server, directory, "trace_start")
        burst, _ = runner.drive(server, one, one.load, directory)
        time.sleep(SETTLE)
        after = probe.ask_all(server, directory, "trace_read")
    left = sum(after[pid]["current"] - before[pid]["current"] for pid in after if pid in before)
    peak = sum(answer["peak"] for answer in after.values())
    return {"traced_left_per_request": left / max(1, burst.requests), "traced_peak": peak}


def _allocations(runner: Runner, target: Target, one: Scenario) -> dict[str, float]:
    """Calls of the allocator and bytes asked of it per request, by a preloaded counter: Python's and native ones."""
    with allocation_counter() as counter, runner.alone(target, one, counter.environment) as (server, directory):
        runner.drive(server, one, replace(one.load, seconds=1), directory)
        before = counter.read()
        burst, _ = runner.drive(server, one, one.load, directory)
        after = counter.read()
    if before[0] == 0:
        raise BenchError("no allocation was seen (it has an allocator of its own, or makes none)")
    requests = max(1, burst.requests)
    return {"allocations": (after[0] - before[0]) / requests, "allocated": (after[1] - before[1]) / requests}


def _idle(runner: Runner, target: Target, one: Scenario, count: int, name: str) -> dict[str, float]:
    """Memory and collector objects of one open connection that has done its first exchange."""
    inside = target.python != "none"
    with runner.alone(target, one, inside=inside) as (server, directory):
        # The first few connections pay for what the server sets up once.
        _held_open(server, one, 20, name).close()
        time.sleep(SETTLE)
        objects = _objects(server, directory) if inside else 0
        before = process.read_memory(server.pid)
        client = _held_open(server, one, count, name)
        time.sleep(SETTLE)
        after = process.read_memory(server.pid)
        more = _objects(server, directory) if inside else 0
        client.close()
    found = {f"{name}_bytes": (after.pss - before.pss) / count}
    if inside:
        found[f"{name}_objects"] = (more - objects) / count
    return found


def _objects(server: Server, directory: Path) -> int:
    return sum(int(answer["objects"]) for answer in probe.ask_all(server, directory, "objects").values())


def _held_open(server: Server, one: Scenario, count: int, name: str) -> Client:
    client = Client(server.port)
    connections = open_all(client, count)
    if name == "websocket":
        upgrade(client, connections, one.workload.path)
        return client
    request = request_of(one)
    data = request_bytes(request.method, request.path, dict(request.headers or {}), request.body)
    for connection in connections:
        connection.reader = ResponseReader()
        client.send(connection, data)
    waiting, deadline = count, time.perf_counter() + ANSWER_TIMEOUT
    while waiting and time.perf_counter() < deadline:
        for connection, got in client.wait(time.perf_counter() + 0.05):
            assert isinstance(connection.reader, ResponseReader)
            if got is None:
                raise BenchError("the server closed an idle connection")
            waiting -= len(connection.reader.feed(got))
    if waiting:
        raise BenchError(f"{waiting} of {count} connections got no answer")
    return client
