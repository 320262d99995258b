"""Published results of several machines side by side. Pure.

Each machine has a directory of baselines as `publish` leaves them. Figures of different machines are never put into one
ratio: a row has the ratio that each machine found by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench import checks, parts, report, scaling, views
from bench.checks import Seen
from bench.losses import FLOOR
from bench.model import Result
from bench.report import Table

TITLES = {part.name: part.title for part in (*parts.PARTS, *parts.LONG)}


@dataclass(frozen=True)
class Machine:
    """A name for the column, and the results of its parts."""

    name: str
    results: Mapping[str, Result]

    @property
    def environments(self) -> list[Mapping[str, Any]]:
        """Where its parts were measured."""
        return [one.environment for one in self.results.values()]


Key = tuple[str, ...]
Cells = Iterator[tuple[Key, str]]


def named(found: Sequence[Mapping[str, Result]]) -> list[Machine]:
    """Machines called by processor and cores, numbered where two have the same."""
    names = ["{cpu}, {cores} cores".format(**next(iter(results.values())).environment) for results in found]
    return [
        Machine(f"{name} ({number})" if names.count(name) > 1 else name, results)
        for number, (name, results) in enumerate(zip(names, found, strict=True), 1)
    ]


def tables(machines: Sequence[Machine]) -> list[Table]:
    """Places of measurement; for each part ratios of CPU per request and tails; shares of workers; doubts."""
    columns = ("machine", "hardware and kernel", "measured", "load average before", "Python", "servers")
    found = [Table("machines", columns, tuple(map(_about, machines)))]
    for name, title in TITLES.items():
        note = "CPU per request of the server over that of this fork, with its 95% interval."
        found.append(_side_by_side(title, ("workload", "server"), machines, _each(name, _ratios), note))
        tails = f"{title}: p50 / p99"
        found.append(_side_by_side(tails, ("workload", "server"), machines, _each(name, _tails)))
    note = "The mean with its 95% interval, for as many processes as there are cores."
    shares = "CPU per request that each further process or event loop adds"
    found.append(_side_by_side(shares, ("server", "of"), machines, _each("scaling", _shares), note))
    doubts = tuple((one.name, doubt) for one in machines for doubt in _doubts(one))
    found.append(Table("what to doubt", ("machine", "doubt"), doubts))
    return [table for table in found if table.rows]


def _side_by_side(
    title: str, heads: Sequence[str], machines: Sequence[Machine], cells: Callable[[Machine], Cells], note: str = ""
) -> Table:
    """A row for each key that a machine has, a column for each machine."""
    rows: dict[Key, dict[int, str]] = {}
    for number, one in enumerate(machines):
        for key, cell in cells(one):
            rows.setdefault(key, {})[number] = cell
    filled = tuple((*key, *(row.get(n, "-") for n in range(len(machines)))) for key, row in rows.items())
    return Table(title, (*heads, *(one.name for one in machines)), filled, note)


def _each(name: str, cells: Callable[[Result], Cells]) -> Callable[[Machine], Cells]:
    """The cells of one part of a machine, none where it was not measured."""
    return lambda machine: cells(machine.results[name]) if name in machine.results else iter(())


def _about(machine: Machine) -> tuple[str, ...]:
    """Where, when and of what its parts were measured."""
    every = machine.environments
    days = sorted({one.created.partition("T")[0] for one in machine.results.values()})
    loads = sorted(_load(one) for one in every)
    pythons = dict.fromkeys(report.pythons(one) for one in every)
    servers = dict.fromkeys(server for one in every for server in report.servers(one))
    return (
        machine.name,
        report.machine(every[0]).partition(";")[0],
        " to ".join(dict.fromkeys((days[0], days[-1]))),
        " to ".join(dict.fromkeys((f"{loads[0]:.2f}", f"{loads[-1]:.2f}"))),
        ", ".join(pythons),
        ", ".join(servers),
    )


def _load(environment: Mapping[str, Any]) -> float:
    return float(environment["load_average"][0])


def _ratios(result: Result) -> Cells:
    for (workload, mode, connections, first, second), one in report.speedups(result.samples):
        if first != second and not second.startswith(FLOOR):
            where = _where(result, workload, mode, connections)
            yield (where, second), f"{one.ratio.value:.2f} ({one.ratio.words('.2f')})"


def _where(result: Result, workload: str, mode: str, connections: int) -> str:
    """A workload with whatever tells its cases apart."""
    cases = [(one.mode, one.load.connections) for one in result.samples if one.workload == workload]
    modes, counts = map(set, zip(*cases, strict=True))
    told = [workload, *([mode] if len(modes) > 1 else []), *([f"{connections:,}"] if len(counts) > 1 else [])]
    return ", ".join(told)


def _tails(result: Result) -> Cells:
    """Of comparisons alone: at a fixed rate each machine has another one."""
    paired = {name for key in report.comparisons(result.samples) for name in key[3:]}
    for case, group in report.groups(result.samples).items():
        tail = views.tail(group)
        if case.target in paired and tail != "-" and not case.target.startswith(FLOOR):
            yield (_where(result, case.workload, case.mode, case.connections), case.target), tail


def _shares(result: Result) -> Cells:
    for row in scaling.rows(result.samples):
        share = row.share(int(result.environment.get("cores", 1)))
        if share is not None:
            yield (row.target, row.kind), f"{share.value:.1%} ({share.words('.1%')})"


def _doubts(machine: Machine) -> list[str]:
    results = machine.results.items()
    notes = [f"{note} ({TITLES[name]})" for name, result in results for note in result.notes]
    return notes + checks.doubts([Seen(one.samples, one.environment, TITLES[name]) for name, one in results])
