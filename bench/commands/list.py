"""`list`: what can be measured here."""

from __future__ import annotations

import argparse

from bench import environment, scenario, targets
from bench.commands import common
from bench.errors import BenchError
from bench.load.generators import GENERATORS
from bench.report import Table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Only the form of the output."""
    parser.add_argument("--markdown", action="store_true", help="print tables in Markdown")


def execute(arguments: argparse.Namespace) -> int:
    """Print targets, workloads and load generators, with missing requirements."""
    rows = tuple(
        (t.name, t.about, ", ".join(sorted(t.modes)), ", ".join(sorted(t.allowed)), _state(t)) for t in targets.TABLE
    )
    tables = [
        Table("targets", ("target", "what it is", "modes", "options", "here"), rows),
        Table(
            "workloads",
            ("workload", "what it does", "bound by"),
            tuple((w.name, w.about, w.bound_by) for w in (*scenario.TABLE, *scenario.REAL)),
        ),
        Table(
            "load generators", ("generator", "here"), tuple((g.name, g.missing() or "yes") for g in GENERATORS.values())
        ),
    ]
    for table in tables:
        common.print_table(table, as_markdown=arguments.markdown)
    return 0


def _state(target: targets.Target) -> str:
    try:
        targets.interpreter(target)
    except BenchError as exc:
        return str(exc)
    if target.python != "ours":
        return "yes"
    return f"yes, {'with' if environment.has_native(target) else 'without'} the native core"
