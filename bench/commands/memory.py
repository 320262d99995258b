"""`memory`: what servers hold at rest, under load and per connection, and how much work their allocators get."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import environment, probe, process, scenario, targets
from bench.allocations import allocation_counter
from bench.commands import common
from bench.errors import BenchError
from bench.load.base import verdict
from bench.load.http2 import PREFACE, SETTINGS, FrameReader, frame, get, section
from bench.load.response import ResponseReader, request_bytes
from bench.load.sockets import Client, Connection, open_all
from bench.load.websocket import OFFER, say_compressed, upgrade
from bench.model import Result
from bench.plan import Scenario
from bench.process import MemoryWatch, Server
from bench.runner import Runner, request_of
from bench.targets import Target

ANSWER_TIMEOUT = 30.0
# Before memory is read: servers free some of it a little later.
SETTLE = 0.3
# For servers that would close idle connections after seconds, or take no more than a thousand of them.
PATIENT = {"keep-alive": "300", "backpressure": "20000"}
# Connections that pay for the server's one-time set-up.
FIRST = 20
# Connections opened at a time: hypercorn keeps a hundred waiting.
TOGETHER = 50
# Requests of each connection of HTTP/2, and how many are asked together.
ASKED, AT_A_TIME = 100, 10
# Requests of a busy hour: five a second.
HOUR = 18_000

Figures = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Targets and the load."""
    parser.add_argument("targets", nargs="*", default=["ours", "upstream"], help="targets, or all")
    parser.add_argument(
        "--idle", type=common.counts, default=[1000], help="idle connections for the figure per connection"
    )
    parser.add_argument("--steps", default=",".join(STEPS), help="which parts to measure")
    common.load_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Measure each target; what cannot be measured on one is noted and the rest goes on."""
    chosen = targets.find_all(arguments.targets)
    for name in arguments.steps.split(","):
        if name not in STEPS:
            raise BenchError(f"unknown step {name!r}: choose from {', '.join(STEPS)}")
    mode = scenario.parse_mode(arguments.mode)
    every = common.scenarios(arguments, scenario.find(arguments.workload), mode)
    notes: list[str] = []
    work = Work(common.runner(arguments), every, arguments.idle, notes)
    records: dict[str, Figures] = {target.label(): {} for target in chosen}

    def steps() -> None:
        for target in chosen:
            for name in arguments.steps.split(","):
                work.runner.progress(f"{target.label()}: {name}")
                try:
                    records[target.label()] |= STEPS[name](work, target)
                except (BenchError, OSError) as exc:
                    notes.append(f"{target.label()}: {name}: {exc}")

    trouble = common.guarded(steps)
    described = environment.describe(chosen, work.runner.cores)
    data = {"records": records, "workload": work.scenario.workload.name}
    result = Result("memory", common.now(), described, data=data, notes=common.noted(notes, trouble))
    common.deliver(arguments, result, trouble)
    return int(not any(records.values()))


@dataclass(frozen=True)
class Work:
    """What the steps share. All but `hour` take the first scenario only."""

    runner: Runner
    every: list[Scenario]
    idle: list[int]
    notes: list[str]

    @property
    def scenario(self) -> Scenario:
        """The first one."""
        return self.every[0]


def _held(work: Work, target: Target) -> Figures:
    """Memory at rest, at its highest, settled, and what a second burst adds: growth that does not end is a leak."""
    runner, one = work.runner, work.scenario
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


def _hour(work: Work, target: Target) -> Figures:
    """Memory at rest, when it has warmed up, and after as many requests as a busy hour brings, for each workload."""
    able = [one for one in work.every if target.refusal(one.workload, one.mode) is None]
    return {"hours": [{"workload": one.workload.name, **_long(work.runner, target, one)} for one in able]}


def _long(runner: Runner, target: Target, one: Scenario) -> Figures:
    with runner.alone(target, one) as (server, directory):
        found, answered, begun = [process.read_memory(server.pid).pss], 0, time.monotonic()
        for total in (HOUR // 20, HOUR):
            while answered < total:
                burst, _ = runner.drive(server, one, one.load, directory)
                if trouble := verdict(burst, one.load):
                    raise BenchError(f"{one.workload.name}: {trouble}")
                answered += burst.requests
            time.sleep(SETTLE)
            found.append(process.read_memory(server.pid).pss)
    rest, warm, end = found
    seconds = time.monotonic() - begun
    return {"rest": rest, "warm": warm, "end": end, "requests": answered, "seconds": seconds}


def _collector(work: Work, target: Target) -> Figures:
    """Runs and pauses of the garbage collector during a burst."""
    runner, one = work.runner, work.scenario
    if target.python == "none":
        return {}
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


def _traced(work: Work, target: Target) -> Figures:
    """What Python allocations leave behind per request, and hold at most, by tracemalloc."""
    runner, one = work.runner, work.scenario
    if target.python == "none":
        return {}
    with runner.alone(target, one, inside=True) as (server, directory):
        runner.drive(server, one, replace(one.load, seconds=min(1.0, one.load.seconds)), directory)
        before = probe.ask_all(server, directory, "trace_start")
        burst, _ = runner.drive(server, one, one.load, directory)
        time.sleep(SETTLE)
        after = probe.ask_all(server, directory, "trace_read")
    left = sum(after[pid]["current"] - before[pid]["current"] for pid in after if pid in before)
    peak = sum(answer["peak"] for answer in after.values())
    return {"traced_left_per_request": left / max(1, burst.requests), "traced_peak": peak}


def _allocations(work: Work, target: Target) -> Figures:
    """Calls of the allocator and bytes asked of it per request, by a preloaded counter: Python's and native ones."""
    runner, one = work.runner, work.scenario
    with allocation_counter() as counter, runner.alone(target, one, counter.environment) as (server, directory):
        runner.drive(server, one, replace(one.load, seconds=min(1.0, one.load.seconds)), directory)
        before = counter.read()
        burst, _ = runner.drive(server, one, one.load, directory)
        after = counter.read()
    if before[0] == 0:
        raise BenchError("no allocation was seen (it has an allocator of its own, or makes none)")
    requests = max(1, burst.requests)
    return {"allocations": (after[0] - before[0]) / requests, "allocated": (after[1] - before[1]) / requests}


def _idle_connections(work: Work, target: Target) -> Figures:
    """What an open connection holds that has had its first answer, for each number of connections."""
    return _each_count(work, target, "connections", "hello")


def _idle_websockets(work: Work, target: Target) -> Figures:
    """What an open WebSocket holds that has said nothing yet, for each number of them."""
    if "websocket" not in target.features:
        return {}
    return _each_count(work, target, "websockets", "websocket")


def _idle_compressed(work: Work, target: Target) -> Figures:
    """What an open WebSocket holds that has had one compressed message and its answer, for each number of them."""
    if not {"websocket", "permessage-deflate"} <= target.features:
        return {}
    return _each_count(work, target, "compressed", "deflate-64")


def _idle_http2(work: Work, target: Target) -> Figures:
    """What an open HTTP/2 connection holds that has had a hundred answers, for each number of them."""
    if "HTTP/2" not in target.features:
        return {}
    return _each_count(work, target, "http2", "h2")


STEPS: dict[str, Callable[[Work, Target], Figures]] = {
    "held": _held,
    "hour": _hour,
    "allocations": _allocations,
    "collector": _collector,
    "traced": _traced,
    "connections": _idle_connections,
    "websockets": _idle_websockets,
    "compressed": _idle_compressed,
    "http2": _idle_http2,
}


def _each_count(work: Work, target: Target, step: str, workload: str) -> Figures:
    """A number of connections that cannot be had is noted, and leaves the others."""
    found = []
    for count in work.idle:
        try:
            found.append(
                idle(work.runner, target, replace(work.scenario, workload=scenario.WORKLOADS[workload]), count)
            )
        except (BenchError, OSError) as exc:
            work.notes.append(f"{target.label()}: {count} idle of step {step}, which --steps can leave out: {exc}")
    return {step: found}


def idle(runner: Runner, target: Target, one: Scenario, count: int) -> dict[str, float]:
    """Memory and collector objects per open connection after its first exchange."""
    inside = target.python != "none"
    patient = {key: value for key, value in PATIENT.items() if key in target.allowed}
    target = replace(target, options={**target.options, **patient})
    with runner.alone(target, one, inside=inside) as (server, directory):
        with Client(server.port, tls=one.workload.tls) as client:
            _open(client, one, FIRST)
        time.sleep(SETTLE)
        objects = _objects(server, directory) if inside else 0
        before = process.read_memory(server.pid)
        with Client(server.port, tls=one.workload.tls) as client:
            _open(client, one, count)
            time.sleep(SETTLE)
            after = process.read_memory(server.pid)
            more = _objects(server, directory) if inside else 0
            _check_open(client, count)
    found = {"count": count, "pss": (after.pss - before.pss) / count, "rss": (after.rss - before.rss) / count}
    return {**found, "objects": (more - objects) / count} if inside else found


def _check_open(client: Client, count: int) -> None:
    """Raises BenchError when the server has closed some: what it held for them was not measured then."""
    closed = sum(got is None for _, got in client.wait(time.perf_counter()))
    if closed:
        raise BenchError(f"the server closed {closed} of {count} idle connections before they were counted")


def _objects(server: Server, directory: Path) -> int:
    return sum(int(answer["objects"]) for answer in probe.ask_all(server, directory, "objects").values())


def _open(client: Client, one: Scenario, count: int) -> None:
    """Open `count` connections and do an exchange on each; a few at a time, so that no backlog overflows."""
    while (left := count - len(client.connections)) > 0:
        connections = open_all(client, min(left, TOGETHER))
        if one.workload.generator == "websocket":
            deflate = "deflate" in one.workload.options
            upgrade(client, connections, one.workload.path, OFFER if deflate else None)
            if deflate:
                say_compressed(client, connections, one.workload.body)
        elif one.workload.http2:
            _exchange_http2(client, connections, one)
        else:
            _exchange(client, connections, one)


def _exchange_http2(client: Client, connections: Sequence[Connection], one: Scenario) -> None:
    """A hundred requests and their answers on each connection, ten at a time; raises BenchError when one gets none."""
    fields = section(one.workload.path, "http", f"127.0.0.1:{client.port}")
    for connection in connections:
        connection.reader, connection.left = FrameReader(), ASKED
        client.send(connection, PREFACE + frame(SETTINGS, 0, 0) + get(fields, 1, AT_A_TIME))
    waiting, deadline = len(connections), time.perf_counter() + ANSWER_TIMEOUT
    while waiting and time.perf_counter() < deadline:
        for connection, got in client.wait(time.perf_counter() + 0.05):
            reader = connection.reader
            assert isinstance(reader, FrameReader)
            if got is None:
                raise BenchError("the server closed an idle connection")
            ended, answer = reader.feed(got)
            if answer:
                client.send(connection, answer)
            connection.left -= ended
            if ended and connection.left == 0:
                waiting -= 1
            elif ended and connection.left % AT_A_TIME == 0:
                client.send(connection, get(fields, 1 + 2 * (ASKED - connection.left), AT_A_TIME))
    if waiting:
        raise BenchError(f"{waiting} connections got no answer")


def _exchange(client: Client, connections: Sequence[Connection], one: Scenario) -> None:
    """One request and its answer on each connection; raises BenchError when one gets none."""
    request = request_of(one)
    data = request_bytes(request.method, request.path, dict(request.headers or {}), request.body)
    for connection in connections:
        connection.reader = ResponseReader()
        client.send(connection, data)
    waiting, deadline = len(connections), time.perf_counter() + ANSWER_TIMEOUT
    while waiting and time.perf_counter() < deadline:
        for connection, got in client.wait(time.perf_counter() + 0.05):
            assert isinstance(connection.reader, ResponseReader)
            if got is None:
                raise BenchError("the server closed an idle connection")
            waiting -= len(connection.reader.feed(got))
    if waiting:
        raise BenchError(f"{waiting} connections got no answer")
