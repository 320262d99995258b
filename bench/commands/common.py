"""What the measuring subcommands share: arguments, progress, keeping and printing results."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib
import itertools
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import checks, environment, model, report, tables, verdicts
from bench.errors import BenchError
from bench.load import generators
from bench.load.base import Generator
from bench.model import Load, Result
from bench.plan import Block, Scenario
from bench.progress import ticker
from bench.report import Table
from bench.runner import TOLERATED, Runner
from bench.scenario import Knobs, Mode, Workload
from bench.targets import Target

# Of tables that do not go to a terminal, in characters.
WIDTH = 160
# The reason if a user interrupted the measurement.
INTERRUPTED = "interrupted"
# The generator without --tool, and the one that every workload of ordinary requests can have in its place.
TOOL, PLAIN = "wrk", "closedloop"
RESULTS = Path(__file__).resolve().parent.parent / "results"


def load_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of every command that drives load."""
    parser.add_argument("--workload", default="hello", help="comma-separated names, or all (see: list)")
    parser.add_argument(
        "--connections", type=counts, help="open connections, comma-separated (default: the workload's own)"
    )
    parser.add_argument("--threads", type=count, default=1, help="threads of the client (the server is not touched)")
    parser.add_argument("--seconds", type=duration, default=3.0, help="length of a burst (wrk: whole seconds)")
    parser.add_argument("--warm-up", type=duration_or_none, default=1.0, help="seconds of load before the first burst")
    parser.add_argument("--tool", default=TOOL, help="load generator (see: list)")
    parser.add_argument("--rate", type=duration, help="requests per second, for generators with a fixed arrival rate")
    parser.add_argument("--mode", default="single", help="single, wsgi, processes=N")
    parser.add_argument("--server-cores", type=count, default=1, help="cores the server may use")
    tolerance_argument(parser)
    parser.add_argument("--seed", type=int, default=1, help="of the order of measurements")
    parser.add_argument("--sleep-ms", type=duration_or_none, default=10.0, help="of the workload sleep")
    parser.add_argument("--cpu-iterations", type=count, default=2000, help="of the workload cpu")
    parser.add_argument("--io-ms", type=duration_or_none, default=5.0, help="of the workload io")
    output_arguments(parser)


def rounds_argument(parser: argparse.ArgumentParser) -> None:
    """How often each server is measured; comparisons' word for it is accepted as well."""
    parser.add_argument(
        "--rounds", "--blocks", type=count, default=3, help="bursts of each target, each against a fresh process"
    )


def tolerance_argument(parser: argparse.ArgumentParser) -> None:
    """The argument of every command that repeats disturbed bursts."""
    parser.add_argument(
        "--tolerate",
        type=duration_or_none,
        default=TOLERATED,
        metavar="SHARE",
        help="what others may use of the server's cores before a burst is repeated, as a share of one core",
    )


def output_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of every command that prints results."""
    parser.add_argument("--json", action="store_true", help="print the stored form instead of tables")
    parser.add_argument("--markdown", action="store_true", help="print tables in Markdown")
    parser.add_argument("--details", action="store_true", help="also every percentile, and every kind of memory")
    parser.add_argument("--output", type=Path, help="where the result is stored (default: bench/results)")


def runner(arguments: argparse.Namespace) -> Runner:
    """A runner for the arguments of `load_arguments`."""
    knobs = Knobs(arguments.sleep_ms, arguments.cpu_iterations, arguments.io_ms)
    return plain_runner(arguments.server_cores, warm_up=arguments.warm_up, knobs=knobs, tolerated=arguments.tolerate)


def plain_runner(
    server_cores: int, *, warm_up: float = 1.0, knobs: Knobs | None = None, tolerated: float = TOLERATED
) -> Runner:
    """A runner that serves on `server_cores` cores; the harness itself moves to the client's cores."""
    cores = environment.cores(server_cores)
    if cores.client and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores.client)
    return Runner(cores, warm_up=warm_up, knobs=knobs, tolerated=tolerated, progress=progress)


def count(text: str) -> int:
    """The type of an argument that counts something: a whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"not a positive whole number: {text!r}")
    return int(text)


def counts(text: str) -> list[int]:
    """The type of an argument that lists such numbers, separated by commas."""
    words = text.split(",")
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise argparse.ArgumentTypeError(f"not a list of positive numbers: {text!r}")
    return [int(word) for word in words]


def duration(text: str) -> float:
    """The type of an argument that measures something: a finite number above 0."""
    value = duration_or_none(text)
    if value == 0:
        raise argparse.ArgumentTypeError(f"not a positive number: {text!r}")
    return value


def duration_or_none(text: str) -> float:
    """The type of an argument that measures something and may be 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"not a positive number: {text!r}")
    return value


def progress(text: str) -> None:
    """What happens now: a line rewritten in place on a terminal, one every ten seconds elsewhere."""
    ticker.say(text)


def measure(runner: Runner, blocks: Sequence[Block]) -> str | None:
    """Carry out a plan with a progress bar; returns why it ended early, None when it did not.

    Finished measurements are in `runner.samples`.
    """
    bursts = sum(len(block.order) for block in blocks)
    try:
        with bar(bursts) as runner.progress:
            return guarded(lambda: runner.carry_out(blocks))
    finally:
        runner.progress = progress
        ticker.end()


def guarded(work: Callable[[], object]) -> str | None:
    """Do something that may be cut short; returns why it was, None when it was not."""
    try:
        work()
    except KeyboardInterrupt:
        return INTERRUPTED
    except (BenchError, OSError) as exc:
        return str(exc)
    return None


@contextlib.contextmanager
def bar(total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on a terminal with rich, one step per call; elsewhere lines that say how far it is."""
    rich = _rich("progress")
    if rich is None or not sys.stderr.isatty():
        steps = itertools.count(1)
        yield lambda text: ticker.say(f"{next(steps)} of {total}: {text}")
        return
    console = importlib.import_module("rich.console").Console(stderr=True)
    columns = [*rich.Progress.get_default_columns(), rich.TimeElapsedColumn()]
    with rich.Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task("starting", total=total + 1)
        yield lambda text: shown.update(task, advance=1, description=text)


def _rich(name: str) -> Any:
    """A module of rich, None when it is not installed: everything works without it, only plainer."""
    try:
        return importlib.import_module(f"rich.{name}")
    except ImportError:
        return None


def scenarios(arguments: argparse.Namespace, workloads: Sequence[Workload], mode: Mode) -> list[Scenario]:
    """One scenario per workload and number of connections; of `all`, those that the generator can drive.

    Raises BenchError when a generator is missing, or cannot drive a workload that was named.
    """
    found = []
    for workload in workloads:
        own = workload.generator
        if own == PLAIN and (arguments.tool != TOOL or arguments.rate):
            # Its requests are ordinary ones, which others can send, too.
            own = None
        tool = own or arguments.tool
        rate = None if own else arguments.rate
        generator = generators.require(tool)
        for connections in arguments.connections or [workload.connections]:
            load = Load(tool, connections, arguments.threads, arguments.seconds, rate, workload.pipeline)
            cannot = unable(generator, workload)
            refusal = generator.refusal(load) or (cannot and f"{cannot}: choose wrk")
            if refusal is None:
                found.append(Scenario(workload, mode, load))
            elif arguments.workload == "all":
                told(f"left out: {workload.name}: {refusal}")
            else:
                raise BenchError(refusal)
    return found


def able(one: Scenario, rivals: Sequence[Target]) -> list[Target]:
    """The rivals that can serve a scenario; a single one stays, so that its result says why it cannot."""
    refusals = {rival.label(): rival.refusal(one.workload, one.mode) for rival in rivals}
    if len(rivals) == 1:
        return list(rivals)
    for refusal in filter(None, refusals.values()):
        told(f"left out: {refusal}")
    return [rival for rival in rivals if refusals[rival.label()] is None]


def unable(generator: Generator, workload: Workload) -> str | None:
    """Why a generator would not do what a workload is about; None when it would."""
    missing = sorted(workload.asks - generator.abilities)
    return f"{generator.name} does not do what {workload.name} asks for ({', '.join(missing)})" if missing else None


def finish(
    arguments: argparse.Namespace, kind: str, runner: Runner, targets: Sequence[Target], trouble: str | None
) -> Result:
    """Print the result, store it, and return it. Raises BenchError when it ended early, after that."""
    described = environment.describe(targets, runner.cores)
    result = Result(kind, now(), described, tuple(runner.samples), notes=noted([], trouble))
    deliver(arguments, result, trouble)
    return result


def noted(notes: Sequence[str], trouble: str | None) -> tuple[str, ...]:
    """The notes of a result, each once; why it ended early comes first."""
    return tuple(dict.fromkeys([*([f"ended early: {trouble}"] if trouble else []), *notes]))


def deliver(arguments: argparse.Namespace, result: Result, trouble: str | None = None) -> None:
    """Print a result, then store it, so that it is visible even if storing fails.

    Raises BenchError with the trouble that ended it early, after that.
    """
    ticker.end()
    show(arguments, result)
    keep(arguments, result)
    if trouble:
        raise BenchError(trouble)


def now() -> str:
    """This moment, in UTC, for file names and results."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def keep(arguments: argparse.Namespace, result: Result) -> None:
    """Store a result where the arguments say; in the system's temporary directory when that cannot be written.

    Raises BenchError in both cases of trouble, saying where the result is.
    """
    name = f"{result.created.replace(':', '')}-{result.kind}.json"
    path = arguments.output or RESULTS / name
    try:
        model.save(result, path)
    except BenchError as exc:
        refuge = Path(tempfile.gettempdir()) / name
        model.save(result, refuge)
        raise BenchError(f"{exc}; the result is in {refuge}") from None
    told(f"stored in {os.path.relpath(path)}")


def told(text: str) -> None:
    """A line for people, on standard error, in the order it was said."""
    ticker.end()
    sys.stdout.flush()
    print(text, file=sys.stderr, flush=True)


def show(arguments: argparse.Namespace, result: Result) -> None:
    """Print a result in the form the arguments ask for."""
    if arguments.json:
        print(model.to_json(result), end="")
        return
    for line in report.environment_lines(result.environment):
        print(f"- {line}" if arguments.markdown else line)
    for table in tables.tables(result, details=arguments.details):
        print()
        print_table(table, as_markdown=arguments.markdown)
    for verdict in verdicts.of(result):
        print(f"- verdict: {verdict}" if arguments.markdown else f"verdict: {verdict}")
    for doubt in checks.of(result):
        print(f"- doubt: {doubt}" if arguments.markdown else f"doubt: {doubt}")


def print_table(table: Table, *, as_markdown: bool) -> None:
    """Print one table, through rich unless Markdown is asked for."""
    rich = None if as_markdown else _rich("table")
    if rich is None:
        print(report.markdown(table))
        return
    shown = rich.Table(
        title=table.title,
        title_justify="left",
        caption=table.note or None,
        caption_justify="left",
        # Nine columns have to fit a terminal of eighty.
        box=importlib.import_module("rich.box").SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for number, column in enumerate(table.columns):
        shown.add_column(column, justify="left" if report.is_text(table, number) else "right")
    for row in table.rows:
        shown.add_row(*row)
    # Errors of servers may contain [brackets] and :colons:, which must not be read as markup.
    width = None if sys.stdout.isatty() else WIDTH
    console = importlib.import_module("rich.console").Console(width=width, markup=False, emoji=False, highlight=False)
    console.print(shown)
