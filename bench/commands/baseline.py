"""`baseline save NAME FILE…` keeps results in the repository; `baseline compare` holds new ones against them.

`baseline progress` shows new results beside the stored ones of upstream and this tree, without other servers installed.
`baseline conclude` says in one line what a result comes to beside stored ones; exit status 1 if it is worse.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench import conclusions, environment, merge, model, report, stats
from bench.commands import common
from bench.errors import BenchError
from bench.model import Result, Sample, usable
from bench.report import METRICS, Metric, Table

BASELINES = Path(__file__).resolve().parent.parent / "baselines"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to do, under which name, with which results."""
    parser.add_argument("action", choices=["save", "compare", "progress", "conclude"])
    parser.add_argument("name", help="of the baseline: bench/baselines/NAME.json; conclude takes several, with commas")
    parser.add_argument("files", nargs="+", type=Path, help="stored results of one kind and one environment")
    parser.add_argument("--markdown", action="store_true", help="print tables in Markdown")


def execute(arguments: argparse.Namespace) -> int:
    """Save or compare; refuses results of different environments."""
    result = merge.merge([model.load(path) for path in arguments.files])
    if arguments.action == "save":
        check_portable(result)
        model.save(result, path_of(arguments.name))
        common.told(f"saved as baseline {arguments.name}")
        return 0
    if arguments.action == "conclude":
        conclusion = conclusions.of([read(name) for name in arguments.name.split(",")], result)
        print(f"conclusion: {conclusion.text}.")
        return int(conclusion.is_worse)
    stored = read(arguments.name)
    if arguments.action == "progress":
        common.print_table(progress(stored, result), as_markdown=arguments.markdown)
        try:
            environment.same_machine(stored.environment, result.environment)
        except BenchError as exc:
            common.told(f"doubt: the improvement is also that of the machine: {exc}")
        return 0
    environment.same_machine(stored.environment, result.environment)
    common.print_table(table(stored, result), as_markdown=arguments.markdown)
    return 0


def path_of(name: str) -> Path:
    """Where a baseline is; raises BenchError for a name that is not a plain word."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise BenchError(f"not a name of a baseline: {name!r}")
    return BASELINES / f"{name}.json"


def read(name: str) -> Result:
    """A stored baseline; raises BenchError when there is none of that name."""
    path = path_of(name)
    if not path.exists():
        known = ", ".join(sorted(one.stem for one in BASELINES.glob("*.json"))) or "none yet"
        raise BenchError(f"no baseline {name!r} (there are: {known})")
    return model.load(path)


def check_portable(result: Result) -> None:
    """Baselines are published: raises BenchError when one names a directory of this machine."""
    if str(Path.home()) in model.to_json(result) or "/tmp/" in model.to_json(result):
        raise BenchError("the result names a directory of this machine; it cannot become a baseline")


def table(stored: Result, result: Result) -> Table:
    """Medians now over medians then, for each case both have. Raises BenchError when they share none."""
    old, new = report.groups(stored.samples), report.groups(result.samples)
    rows = []
    for case, group in new.items():
        if case in old:
            name = f"{case.workload}, {case.client}, {case.connections}"
            rows.append((name, case.target, *(_change(metric, old[case], group) for metric in METRICS)))
    if not rows:
        raise BenchError("the baseline and the new results have no case in common")
    columns = ("case", "target", *(metric.name for metric in METRICS))
    note = "Medians now / then. Measured at different times: for small differences use compare."
    return Table(f"against the baseline of {stored.created}", columns, tuple(rows), note)


def progress(stored: Result, result: Result) -> Table:
    """By connections: upstream and this tree then, this tree now. Raises BenchError when they share no case."""
    then, rows = report.groups(stored.samples), []
    for case, group in report.groups(result.samples).items():
        rates = [one.rps for one in usable(group)]
        before = [_rate(then.get(replace(case, target=name), [])) for name in ("upstream", case.target)]
        if not rates or None in before:
            continue
        upstream, ours = (rate or 0.0 for rate in before)
        now = stats.median(rates)
        spread = (max(rates) - min(rates)) / now
        figures = (f"{upstream:,.0f}", f"{ours:,.0f}", f"{now:,.0f}", f"{now / upstream:.2f}", f"{now / ours:.2f}")
        rows.append((f"{case.workload}, {case.connections}", *figures, f"{spread:.0%}"))
    if not rows:
        raise BenchError("the baseline and the new results have no case in common")
    columns = ("connections", "upstream then", "ours then", "ours now", "now / upstream", "now / then", "spread")
    note = "Requests/s. Spread: from the lowest to the highest burst of now; a change below it says nothing."
    return Table(f"against the baseline of {stored.created}", columns, tuple(rows), note)


def _rate(group: Sequence[Sample]) -> float | None:
    good = usable(group)
    return stats.median([one.rps for one in good]) if good else None


def _change(metric: Metric, old: list[Sample], new: list[Sample]) -> str:
    medians = []
    for group in (old, new):
        values = [value for sample in usable(group) if (value := metric.of(sample))]
        if not values:
            return "-"
        medians.append(stats.median(values))
    return f"{medians[1] / medians[0]:.3f}"
