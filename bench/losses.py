"""The figures in which another server does better than this fork, or does so by more than 5% if uncertain. Pure.

Pairs of bursts of one block have an interval; other figures are medians of runs one after the other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench import report, stats
from bench.errors import BenchError
from bench.model import Result, Sample, usable
from bench.report import METRICS, Rivalry, Table
from bench.tables import MISSING
from bench.tables import floors as noise_floors

# The floor, which is not a server to compare with.
FLOOR = "epoll"
# A figure worse by this factor is listed even if the interval includes 1, or if there is none.
WORSE = 1.05
# The figures of a start, and those of memory, by their keys in a record.
STARTS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "ready": ("time to the first answer", report.micros),
    "cpu": ("CPU until the first answer", report.micros),
    "import": ("CPU of import", report.micros),
    "stop": ("time to stop", report.micros),
}
HELD: Mapping[str, str] = {
    "rest_rss": "RSS at rest",
    "rest_pss": "PSS at rest",
    "rest_uss": "USS at rest",
    "peak_pss": "PSS peak",
    "settled_pss": "PSS after load",
    "settled_uss": "USS after load",
}
IDLE = {
    "connections": "connections",
    "websockets": "WebSockets",
    "compressed": "WebSockets, compressed",
    "http2": "connections, HTTP/2",
}

# An hour's requests leave more behind than with another server if they do so by this much, in bytes.
GREW = 2**20

Row = tuple[str, ...]


def tables(result: Result) -> list[Table]:
    """One table, without rows if there are none."""
    finder = KINDS.get(result.kind, _side_by_side)
    columns = ("workload", "figure", "better", "this fork", "the other", "ratio", "95% interval", "excludes 1")
    note = (
        "Ratios are this fork's figure over the other's: worse above 1, of requests per second below. With an "
        "interval, a ratio is the mean of pairs, not the quotient of the two medians. An interval "
        "that includes 1 is listed if the ratio is 5% or more. Of comparisons without a real difference, one in twenty "
        "excludes 1 by chance; within the noise, a server differs from itself as much. Without an interval, there were "
        "no pairs of bursts, and differences from 5% on are listed."
    )
    return [Table("where this fork does not win", columns, tuple(finder(result)), note)]


def _side_by_side(result: Result) -> Iterator[Row]:
    """What pairs show, then what others show that ours was not paired with."""
    every = report.comparisons(result.samples)
    yield from _paired(every)
    paired = {(key[0], name) for key in every for name in key[3:]}
    alone = [one for one in result.samples if one.target == "ours" or (one.workload, one.target) not in paired]
    yield from _bursts(replace(result, samples=tuple(alone)))


def _paired(every: Mapping[Rivalry, Sequence[Sample]]) -> Iterator[Row]:
    floors = {key[:3]: noise_floors({key: chosen}) for key, chosen in every.items() if key[3] == key[4]}
    for (workload, mode, connections, first, second), chosen in every.items():
        if first != second and _is_rival(second):
            known = floors.get((workload, mode, connections), {})
            for row in _lost(second, chosen, known):
                yield (workload, *row)


def _lost(name: str, chosen: Sequence[Sample], floors: Mapping[str, float]) -> Iterator[Row]:
    for metric in METRICS:
        try:
            found = report.compare(chosen, metric)
        except BenchError:
            if usable([one for one in chosen if one.side == "B"]) and not usable([o for o in chosen if o.side == "A"]):
                yield _failed(name)
            return
        if found is None:
            continue
        certain = found.words(floors.get(metric.key, 0.0)) == "B better"
        worse = found.ratio.value if metric.better == "less" else 1 / found.ratio.value
        if certain or worse > WORSE:
            figures = (report.figure(metric, found.first), report.figure(metric, found.second))
            interval = found.ratio.words(".2f")
            row = (metric.name, name, *figures, f"{found.ratio.value:.2f}", interval)
            within = "yes, within the noise" if found.ratio.excludes(1.0) else "no"
            yield (*row, "yes" if certain else within)


def _is_rival(name: str) -> bool:
    return not name.startswith(("ours", FLOOR))


def _failed(name: str) -> Row:
    return ("every figure", name, "failed", *[MISSING] * 4)


def _alone(
    where: str, figure: str, found: Mapping[str, float], form: Callable[[float], str], *, more: bool = False
) -> Iterator[Row]:
    """What others do better in a figure, by their names; with `more`, more of it is better."""
    ours = found.get("ours", 0.0)
    for name, value in found.items():
        less, greater = (ours, value) if more else (value, ours)
        if _is_rival(name) and 0 < less * WORSE < greater:
            yield (where, figure, name, form(ours), form(value), f"{ours / value:.2f}", "-", "-")


def _bursts(result: Result) -> Iterator[Row]:
    """Costs and latency of bursts without pairs."""
    scenes: dict[tuple[str, str], dict[str, list[Sample]]] = {}
    for case, group in report.groups(result.samples).items():
        rate = group[0].load.rate
        told = f", {rate:,.0f}/s" if rate else f" through {case.client}" if case.client == "httpx" else ""
        mode = "" if case.mode == "single" else f", {case.mode}"
        where = f"{case.workload}{mode}{told}, {case.connections} connections"
        scenes.setdefault((case.workload, where), {})[case.target] = usable(group)
    for (workload, where), groups in scenes.items():
        if "ours" in groups and not groups["ours"]:
            for name in (name for name, group in groups.items() if group and _is_rival(name)):
                yield (where, *_failed(name))
        for metric in METRICS:
            if not report.says_nothing(workload, metric):
                found = {name: [value for one in group if (value := metric.of(one))] for name, group in groups.items()}
                middle = {name: stats.median(values) for name, values in found.items() if values}
                form, more = functools.partial(report.figure, metric), metric.better == "more"
                yield from _alone(where, metric.name, middle, form, more=more)


def _starts(result: Result) -> Iterator[Row]:
    records = {name: starts for name, starts in result.data["records"].items() if starts}
    for key, (figure, form) in STARTS.items():
        known = {name: [start[key] for start in starts if key in start] for name, starts in records.items()}
        yield from _alone(
            str(result.data["workload"]), figure, {name: stats.median(one) for name, one in known.items() if one}, form
        )


def _memory(result: Result) -> Iterator[Row]:
    records: Mapping[str, Mapping[str, Any]] = result.data["records"]
    where = str(result.data["workload"])
    for key, figure in HELD.items():
        yield from _alone(where, figure, {name: one[key] for name, one in records.items() if key in one}, _mib)
    hours: dict[str, dict[str, float]] = {}
    idle: dict[str, dict[str, float]] = {}
    for name, record in records.items():
        for one in record.get("hours", []):
            hours.setdefault(one["workload"], {})[name] = one["end"]
        for kind, told in IDLE.items():
            for one in record.get(kind, []):
                idle.setdefault(f"{one['count']:,} idle {told}", {})[name] = one["pss"]
    for where, found in hours.items():
        yield from _alone(where, "PSS after an hour's requests", found, _mib)
    for where, name, ours, theirs in grown(result):
        yield (where, "growth in an hour's requests", name, _mib(ours), _mib(theirs), MISSING, MISSING, MISSING)
    for where, found in idle.items():
        yield from _alone(where, "PSS per connection", found, _kib)


def grown(result: Result) -> Iterator[tuple[str, str, float, float]]:
    """Where memory grew by more than with another server: the workload, that server, the growth of both in bytes."""
    growth = {
        name: {one["workload"]: one["end"] - one["warm"] for one in record.get("hours", []) if "warm" in one}
        for name, record in result.data["records"].items()
    }
    for where, ours in growth.get("ours", {}).items():
        for name, found in growth.items():
            if _is_rival(name) and ours - found.get(where, ours) > GREW:
                yield where, name, ours, found[where]


def longer(result: Result) -> Table:
    """Latencies certainly longer than another server's, by pairs; without rows if there are none or no pairs."""
    found = (row for row in _paired(report.comparisons(result.samples)) if row[1] in ("p50", "p99"))
    rows = tuple((*row[:3], f"{row[5]} ({row[6]})") for row in found if row[-1] == "yes")
    note = "Times: this fork's over the other's, by pairs, with its 95% interval."
    return Table("latency longer than another server's", ("workload", "figure", "server", "times"), rows, note)


def _overload(result: Result) -> Iterator[Row]:
    storms = {name: record["stormy"] for name, record in result.data["records"].items()}
    where = f"{result.data['workload']}, {result.data['factor']:g} times the capacity"
    good = {name: storm["good"] for name, storm in storms.items()}
    yield from _alone(where, "answers in time per second", good, "{:,.0f}".format, more=True)
    for key in ("p50", "p99"):
        yield from _alone(where, key, {name: storm[key] or 0.0 for name, storm in storms.items()}, report.micros)


def _workers(result: Result) -> Iterator[Row]:
    """Rows of the same section, options and place, of which each figure is compared."""
    places: dict[str, dict[str, Mapping[str, Any]]] = {}
    for section, rows in result.data["sections"].items():
        for row in rows:
            name, _, options = row["target"].partition(":")
            told = [f"{row[key]:g} {unit}" for key, unit in PLACES.items() if key in row]
            where = ", ".join(
                one for one in (f"workers: {section}", row.get("workload"), options, *told, row.get("mode")) if one
            )
            places.setdefault(where, {})[name] = row
    for where, found in places.items():
        for key, (figure, form) in MANY.items():
            known = {name: row[key] for name, row in found.items() if row.get(key)}
            yield from _alone(where, figure, known, form, more=key == "rps")


def _mib(value: float) -> str:
    return f"{report.mib(value)} MiB"


def _kib(value: float) -> str:
    return f"{value / 1024:.2f} KiB"


# The figures of many processes, and what tells apart where they were taken, by their keys in a row.
MANY: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "rps": ("requests per second", "{:,.0f}".format),
    "cpu": ("CPU per request", report.micros),
    "p50": ("p50", report.micros),
    "p99": ("p99", report.micros),
    "p999": ("p99.9", report.micros),
    "errors": ("errors", "{:,.0f}".format),
    "first_answer": ("time to the first answer", report.micros),
    "complete": ("time until all answer", report.micros),
    "stop": ("time to stop", report.micros),
    "pss": ("PSS", _mib),
    "after": ("PSS after load", _mib),
}
PLACES: Mapping[str, str] = {"workers": "workers", "connections": "connections", "second": "s"}
KINDS: Mapping[str, Callable[[Result], Iterator[Row]]] = {
    "latency": _bursts,
    "memory": _memory,
    "overload": _overload,
    "run": _bursts,
    "scaling": _bursts,
    "startup": _starts,
    "workers": _workers,
}
