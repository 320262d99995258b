"""`pool`: the event pool against no pool, slots against dicts, ways of building bytes."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from bench import environment, process, targets
from bench.allocations import allocation_counter
from bench.commands import common
from bench.errors import BenchError, last_line
from bench.model import Result
from bench.targets import HERE, Target, import_root, interpreter

TIMEOUT = 900.0
# Counting allocations is exact: it needs no million.
COUNTED = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The tree, capacities and operations."""
    parser.add_argument("--target", default="ours", help="the tree, for example ours:root=../other")
    parser.add_argument("--operations", type=common.count, default=1_000_000, help="operations per case")
    parser.add_argument("--capacities", type=common.counts, default=[10, 100, 1000, 10000], help="of the event pool")
    common.output_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Run every case in a child process of the tree's interpreter."""
    target = targets.find(arguments.target)
    if target.name != "ours":
        raise BenchError("only this project has these pools: use ours")
    cores = environment.cores(1)
    order = {"operations": arguments.operations, "capacities": arguments.capacities}
    records = _run(target, order, cores.server, {})
    notes = []
    try:
        for name, figures in _counted(target, order, cores.server).items():
            records[name] |= figures
    except BenchError as exc:
        notes.append(f"allocations were not counted: {exc}")
    described = environment.describe([target], cores)
    data = {"records": records, "operations": arguments.operations}
    result = Result("pool", common.now(), described, data=data, notes=tuple(notes))
    common.deliver(arguments, result)
    return 0


def _counted(target: Target, order: dict[str, Any], cores: tuple[int, ...]) -> dict[str, Any]:
    with allocation_counter() as counter:
        return _run(target, {**order, "operations": COUNTED}, cores, counter.environment)


def _run(target: Target, order: dict[str, Any], cores: tuple[int, ...], extra: dict[str, str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-") as name, process.pinned(cores):
        script = Path(name) / "bench_pools.py"
        shutil.copyfile(HERE / "pools.py", script)
        environ = {**process.clean_environment(), "PYTHONPATH": str(import_root(target)), **extra}
        argv = [interpreter(target), str(script), json.dumps(order)]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, cwd=name, env=environ, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            raise BenchError(f"the pools were not measured within {TIMEOUT:g} s") from None
    if done.returncode != 0:
        raise BenchError(f"the pools cannot be measured: {last_line(done.stderr)}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
