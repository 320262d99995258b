"""`profile`: where a server's time goes: yappi inside every process, py-spy flame graphs from outside."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench import probe, process, scenario, targets
from bench.commands import common
from bench.errors import BenchError, ServerError, last_line
from bench.plan import Scenario
from bench.process import Server
from bench.report import Table
from bench.runner import Runner


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One target, the clock and the load."""
    parser.add_argument("target", nargs="?", default="ours")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="cpu", help="what yappi counts")
    parser.add_argument("--top", type=common.count, default=25, help="functions to print, by own time")
    parser.add_argument("--dir", type=Path, help="where profiles are written (default: bench/results/profile-TIME)")
    parser.add_argument("--no-flame", action="store_true", help="without py-spy")
    common.load_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Profile each Python process of the server under load, then take flame graphs in a run of their own."""
    target = targets.find(arguments.target)
    if target.python == "none":
        raise BenchError(f"{target.name} has no Python to profile")
    targets.interpreter(target)
    mode = scenario.parse_mode(arguments.mode)
    [one, *_] = common.scenarios(arguments, scenario.find(arguments.workload)[:1], mode)
    directory = arguments.dir or common.RESULTS / f"profile-{common.now().replace(':', '')}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise BenchError(f"cannot write to {directory}: {exc.strerror or exc}") from None
    runner = common.runner(arguments)
    with runner.alone(target, one, inside=True) as (server, work):
        tables = _yappi(runner, server, one, work, directory, arguments)
    for table in tables:
        common.print_table(table, as_markdown=arguments.markdown)
    if not arguments.no_flame:
        with runner.alone(target, one) as (server, work):
            _flames(runner, server, one, work, directory)
    common.told(f"profiles are in {directory}")
    return 0


def _yappi(
    runner: Runner, server: Server, one: Scenario, work: Path, directory: Path, arguments: argparse.Namespace
) -> list[Table]:
    runner.drive(server, one, one.load, work)
    probe.ask_all(server, work, "profile_start", clock=arguments.clock)
    runner.drive(server, one, one.load, work)
    tables = []
    for pid in process.tree(server.pid):
        socket = work / "stage" / f"inside-{pid}.sock"
        if not socket.exists():
            continue
        path = directory / f"{server.label.replace(':', '-')}-{pid}-{arguments.clock}.pstat"
        answer = probe.ask(socket, "profile_stop", path=str(path), top=arguments.top)
        title = f"{server.label}, process {pid}, {arguments.clock} time"
        tables.append(_table(title, answer["rows"]))
    return tables


def _table(title: str, rows: list[list[Any]]) -> Table:
    total = sum(row[2] for row in rows) or 1.0
    cells = tuple(
        (_short(name), f"{calls:,}", f"{own:.3f}", f"{own / total:.1%}", f"{whole:.3f}")
        for name, calls, own, whole in rows
    )
    return Table(title, ("function", "calls", "own s", "share of these", "with callees s"), cells)


def _short(name: str) -> str:
    """A function's name with the last two parts of its file's path."""
    return "/".join(name.split("/")[-2:])


def _flames(runner: Runner, server: Server, one: Scenario, work: Path, directory: Path) -> None:
    """One flame graph per process, taken while it is under load."""
    beside = Path(sys.executable).parent / "py-spy"
    program = str(beside) if beside.exists() else shutil.which("py-spy")
    if program is None:
        print("no flame graphs: py-spy is not installed (pip install -r bench/requirements.txt)", file=sys.stderr)
        return
    seconds = max(1, round(one.load.seconds) - 1)
    spies = []
    for pid in process.tree(server.pid):
        path = directory / f"{server.label.replace(':', '-')}-{pid}.svg"
        argv = [
            program,
            "record",
            "--pid",
            str(pid),
            "--duration",
            str(seconds),
            "--rate",
            "200",
            "--output",
            str(path),
        ]
        spies.append(subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    try:
        runner.drive(server, one, one.load, work)
    finally:
        for spy in spies:
            _collect(spy)


def _collect(spy: subprocess.Popen[str]) -> None:
    try:
        _, trouble = spy.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        spy.kill()
        spy.communicate()
        raise ServerError("py-spy did not end") from None
    if spy.returncode != 0:
        last = last_line(trouble)
        print(f"no flame graph of one process: {last}", file=sys.stderr)
