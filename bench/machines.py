"""Published results of several machines side by side. Pure.

Each machine has a directory of baselines as `publish` leaves them. Figures of different machines are never put into one
ratio: a row has the ratio that each machine found by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench import parts, report, scaling
from bench.errors import BenchError
from bench.losses import FLOOR
from bench.model import Result
from bench.report import Table


@dataclass(frozen=True)
class Machine:
    """A name for the column, and the results of its parts."""

    name: str
    results: Mapping[str, Result]


def named(found: Sequence[Mapping[str, Result]]) -> list[Machine]:
    """Machines called by processor, cores and kernel; raises BenchError for one without results."""
    machines = []
    for results in found:
        if not results:
            raise BenchError("a machine without results: name directories that hold baselines")
        newest = max(results.values(), key=lambda result: result.created)
        machines.append(Machine(report.machine(newest.environment).partition(";")[0], results))
    names = [one.name for one in machines]
    # The same machine twice, at two times.
    return [
        Machine(f"{one.name} ({number})" if names.count(one.name) > 1 else one.name, one.results)
        for number, one in enumerate(machines, 1)
    ]


def tables(machines: Sequence[Machine]) -> list[Table]:
    """For each part that compares servers, the ratio of CPU per request on each machine; then what workers add."""
    titles = {part.name: part.title for part in (*parts.PARTS, *parts.LONG)}
    found = [_ratios(title, [one.results.get(name) for one in machines], machines) for name, title in titles.items()]
    return [table for table in [*found, _shares(machines)] if table.rows]


def _ratios(title: str, results: Sequence[Result | None], machines: Sequence[Machine]) -> Table:
    rows: dict[tuple[str, str, str], dict[int, str]] = {}
    for number, result in enumerate(results):
        for (workload, mode, _, first, second), one in report.speedups(result.samples if result else ()):
            if first != second and not second.startswith(FLOOR):
                words = f"{one.ratio.value:.2f} ({one.ratio.words('.2f')})"
                rows.setdefault((workload, mode, second), {})[number] = words
    several = len({mode for _, mode, _ in rows}) > 1
    filled = tuple(
        (f"{workload}, {mode}" if several else workload, rival, *(row.get(n, "-") for n in range(len(machines))))
        for (workload, mode, rival), row in rows.items()
    )
    note = "CPU per request of the server over that of this fork, with its 95% interval."
    return Table(title, ("workload", "server", *(one.name for one in machines)), filled, note)


def _shares(machines: Sequence[Machine]) -> Table:
    rows: dict[tuple[str, str], dict[int, str]] = {}
    for number, one in enumerate(machines):
        result = one.results.get("scaling")
        for row in scaling.rows(result.samples) if result else []:
            share = row.share(int(result.environment.get("cores", 1)) if result else 1)
            if share is not None:
                rows.setdefault((row.target, row.kind), {})[number] = f"{share:.1%}"
    filled = tuple(
        (target, kind, *(row.get(n, "-") for n in range(len(machines)))) for (target, kind), row in rows.items()
    )
    columns = ("server", "of", *(one.name for one in machines))
    return Table("CPU per request that each further process or event loop adds (high estimate)", columns, filled)
