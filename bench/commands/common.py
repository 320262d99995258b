"""What the measuring subcommands share: arguments, progress, keeping and printing results."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import checks, environment, model, report, tables
from bench.environment import Cores
from bench.errors import BenchError
from bench.load import generators
from bench.model import Load, Result, Sample
from bench.plan import Scenario
from bench.report import Table
from bench.runner import Runner
from bench.scenario import Knobs, Mode, Workload
from bench.targets import Target

RESULTS = Path(__file__).resolve().parent.parent / "results"


def load_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of every command that drives load."""
    parser.add_argument("--workload", default="hello", help="comma-separated names, or all (see: list)")
    parser.add_argument("--connections", default="50", help="open connections, comma-separated for several")
    parser.add_argument("--threads", type=int, default=1, help="threads of the client (the server is not touched)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a burst")
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds of load before the first burst")
    parser.add_argument("--tool", default="wrk", help="load generator (see: list)")
    parser.add_argument("--rate", type=float, help="requests per second, for generators with a fixed arrival rate")
    parser.add_argument("--mode", default="single", help="single, wsgi, processes=N, threads=N, hybrid=NxM")
    parser.add_argument("--server-cores", type=int, default=1, help="cores the server may use")
    parser.add_argument("--seed", type=int, default=1, help="of the order of measurements")
    parser.add_argument("--sleep-ms", type=float, default=10, help="of the workload sleep")
    parser.add_argument("--cpu-iterations", type=int, default=2000, help="of the workload cpu")
    parser.add_argument("--io-ms", type=float, default=5, help="of the workload io")
    output_arguments(parser)


def output_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of every command that prints results."""
    parser.add_argument("--json", action="store_true", help="print the stored form instead of tables")
    parser.add_argument("--markdown", action="store_true", help="print tables in Markdown")
    parser.add_argument("--output", type=Path, help="where the result is stored (default: bench/results)")


def runner(arguments: argparse.Namespace) -> Runner:
    """A runner for the arguments of `load_arguments`."""
    knobs = Knobs(arguments.sleep_ms, arguments.cpu_iterations, arguments.io_ms)
    return plain_runner(arguments.server_cores, warm_up=arguments.warm_up, knobs=knobs)


def plain_runner(server_cores: int, *, warm_up: float = 1.0, knobs: Knobs | None = None) -> Runner:
    """A runner that serves on so many cores; the harness itself moves to the client's cores."""
    cores = environment.cores(server_cores)
    if cores.client and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores.client)
    return Runner(cores, warm_up=warm_up, knobs=knobs, progress=progress)


def numbers(text: str) -> list[int]:
    """Comma-separated positive whole numbers; raises BenchError for anything else."""
    words = text.split(",")
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise BenchError(f"not a list of positive numbers: {text!r}")
    return [int(word) for word in words]


def progress(text: str) -> None:
    """One line on standard error per burst, rewritten in place on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[2K{text}")
        sys.stderr.flush()


def scenarios(arguments: argparse.Namespace, workloads: Sequence[Workload], mode: Mode) -> list[Scenario]:
    """One scenario per workload and number of connections; raises BenchError when a generator is missing."""
    found = []
    for workload in workloads:
        tool = workload.generator or arguments.tool
        generators.require(tool)
        for connections in numbers(arguments.connections):
            load = Load(tool, connections, arguments.threads, arguments.seconds, arguments.rate, workload.pipeline)
            found.append(Scenario(workload, mode, load))
    return found


def finish(
    arguments: argparse.Namespace, kind: str, samples: Sequence[Sample], targets: Sequence[Target], cores: Cores
) -> Result:
    """Store the result, print it, and return it."""
    described = environment.describe(targets, cores)
    result = Result(kind, now(), described, tuple(samples), notes=tuple(checks.doubts(samples, described)))
    keep(arguments, result)
    show(arguments, result)
    return result


def now() -> str:
    """This moment, in UTC, for file names and results."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def keep(arguments: argparse.Namespace, result: Result) -> None:
    """Store a result where the arguments say."""
    name = f"{result.created.replace(':', '')}-{result.kind}.json"
    path = arguments.output or RESULTS / name
    model.save(result, path)
    progress("")
    print(f"stored in {os.path.relpath(path)}", file=sys.stderr)


def show(arguments: argparse.Namespace, result: Result) -> None:
    """Print a result in the form the arguments ask for."""
    if arguments.json:
        print(model.to_json(result), end="")
        return
    for line in report.environment_lines(result.environment):
        print(f"- {line}" if arguments.markdown else line)
    for table in tables.tables(result):
        print()
        print_table(table, as_markdown=arguments.markdown)
    for note in result.notes:
        print(f"- doubt: {note}" if arguments.markdown else f"doubt: {note}")


def print_table(table: Table, *, as_markdown: bool) -> None:
    """Print one table, through rich unless Markdown is asked for."""
    if as_markdown:
        print(report.markdown(table))
        return
    from rich.console import Console
    from rich.table import Table as RichTable

    rich = RichTable(title=table.title, title_justify="left")
    for number, column in enumerate(table.columns):
        rich.add_column(column, justify="left" if number == 0 else "right")
    for row in table.rows:
        rich.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 160).print(rich)
