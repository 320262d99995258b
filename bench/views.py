"""Tables that documents show of a stored result: the same figures from another side. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from bench import report, stats, tables
from bench.errors import BenchError
from bench.model import Result, Sample, usable
from bench.report import METRICS, Table

# The floor, which is not a server to compare with.
FLOOR = "epoll"
# A figure worse by this factor is listed even if the interval includes 1.
WORSE = 1.05
# The numbers of connections that readers of such figures know.
OPENING = (1, 10, 50, 100)
# What a reader looks for first, in this order, and what it is called.
HEADLINES = {
    "fastapi": "FastAPI JSON endpoint",
    "varying": "GET, all requests different",
    "log": "plain GET, default settings (access log to a file)",
    "hello": "plain GET, access log off",
    "echo": "10 KiB POST echoed",
    "pipeline": "16 pipelined GETs, which browsers do not send",
}


def everything(result: Result) -> list[Table]:
    """The tables that a command prints."""
    return tables.tables(result)


def details(result: Result) -> list[Table]:
    """The same with every percentile and every kind of memory."""
    return tables.tables(result, details=True)


def concurrency(result: Result) -> list[Table]:
    """By workload and client: connections in rows; rate, p50, p99 and status before (the first target) and after."""
    scenes: dict[tuple[str, str], dict[int, dict[str, list[Sample]]]] = {}
    order = list(dict.fromkeys(sample.target for sample in result.samples))
    # The blocks were shuffled; upstream comes first.
    order.sort(key=lambda name: not name.startswith("upstream"))
    for case, group in report.groups(result.samples).items():
        scenes.setdefault((case.workload, case.client), {}).setdefault(case.connections, {})[case.target] = group
    return [_concurrency(f"{workload} through {client}", rows, order) for (workload, client), rows in scenes.items()]


def _concurrency(title: str, counts: Mapping[int, Mapping[str, list[Sample]]], order: Sequence[str]) -> Table:
    names = [name for name in order if any(name in row for row in counts.values())]
    columns = ["connections"]
    for name in names:
        columns += [f"{name}: req/s", "p50", "p99", "status"]
    two = len(names) == 2
    rows = []
    for count, row in sorted(counts.items()):
        cells = [cell for name in names for cell in _cells(row.get(name, []))]
        rows.append((f"{count:,}", *cells, *([_change(row, names)] if two else [])))
    return Table(title, (*columns, *(["times req/s"] if two else [])), tuple(rows))


def _cells(group: Sequence[Sample]) -> tuple[str, str, str, str]:
    good = usable(group)
    if not good:
        return ("-", "-", "-", f"failed: {group[0].void}" if group else "not measured")
    latencies = [sample.latency for sample in good if sample.latency]
    p50 = report.micros(stats.median([one.p50 for one in latencies])) if latencies else "-"
    p99 = report.micros(stats.median([one.p99 for one in latencies])) if latencies else "-"
    lost = len(group) - len(good)
    rate = f"{stats.median([sample.rps for sample in good]):,.0f}"
    return (rate, p50, p99, "ok" if not lost else f"{lost} of {len(group)} void")


def _change(row: Mapping[str, list[Sample]], names: Sequence[str]) -> str:
    rates = [[sample.rps for sample in usable(row.get(name, []))] for name in names]
    return f"{stats.median(rates[1]) / stats.median(rates[0]):.2f}" if all(rates) else "-"


def opening(result: Result) -> list[Table]:
    """What readers look for first: few connections, upstream before and this tree after, through wrk."""
    found: dict[str, dict[int, dict[str, list[Sample]]]] = {}
    for case, group in report.groups(result.samples).items():
        if case.client == "wrk" and case.connections in OPENING and case.target in ("upstream", "ours"):
            found.setdefault(case.workload, {}).setdefault(case.connections, {})[case.target] = group
    columns = ("connections", "requests/s before", "after", "times", *("p50 before", "after"), *("p99 before", "after"))
    return [
        Table(f"{workload}: upstream before, this fork after", columns, tuple(_before_and_after(rows)))
        for workload, rows in found.items()
    ]


def _before_and_after(rows: Mapping[int, Mapping[str, list[Sample]]]) -> Iterator[tuple[str, ...]]:
    for count, row in sorted(rows.items()):
        (rate, p50, p99, _), (rate_after, p50_after, p99_after, _) = (
            _cells(row.get(name, [])) for name in ("upstream", "ours")
        )
        yield (str(count), rate, rate_after, _change(row, ("upstream", "ours")), p50, p50_after, p99, p99_after)


def speedups(result: Result) -> list[Table]:
    """CPU per request relative to the first server of each comparison."""
    return [tables.speedups(result)]


def headline(result: Result) -> list[Table]:
    """The few figures for a first page: CPU per request of upstream and of this tree, and their ratio."""
    rows = []
    for (workload, _, connections, first, second), chosen in report.comparisons(result.samples).items():
        if workload in HEADLINES and (first, second) == ("ours", "upstream"):
            found = report.speedup(chosen)
            if found is not None:
                times = f"{found.ratio.value:.1f} ({found.ratio.words('.1f')})"
                row = (HEADLINES[workload], str(connections), report.micros(found.first), report.micros(found.second))
                rows.append((*row, times))
    columns = ("server CPU per request, one process", "connections", "upstream 0.54.0", "this fork", "ratio")
    return [in_order(Table("This fork and upstream", columns, tuple(rows)))]


def in_order(table: Table) -> Table:
    """The table of headlines with its rows in their order."""
    order = [*HEADLINES.values()]
    return replace(table, rows=tuple(sorted(table.rows, key=lambda row: order.index(row[0]))))


def servers(result: Result) -> list[Table]:
    """CPU per request by workload and server: the median, and the lowest and highest burst."""
    return [_costs(result, lambda name: True)]


def before(result: Result) -> list[Table]:
    """The same without this tree: what there was before."""
    return [_costs(result, lambda name: not name.startswith("ours"))]


def brief(result: Result) -> list[Table]:
    """A comparison in few tables: speedups, tails, and the figures that some workloads have of their own."""
    return [*speedups(result), *tails(result), *tables.special(result)]


def cases(result: Result) -> list[Table]:
    """Measurements without pairs, in few tables: CPU and tails by workload and server."""
    return [*servers(result), *tails(result)]


def tails(result: Result) -> list[Table]:
    """The 99th percentile of the latency by workload and server: the median of the bursts."""
    return [_matrix(result, "p99", lambda name: True, _tail)]


def _costs(result: Result, wanted: Callable[[str], bool]) -> Table:
    title = "CPU per request: median (lowest to highest burst), in microseconds"
    return _matrix(result, title, wanted, _spread)


def _matrix(
    result: Result, title: str, wanted: Callable[[str], bool], cell: Callable[[Sequence[Sample]], str]
) -> Table:
    """A row for each workload, a column for each server."""
    found: dict[tuple[str, int], dict[str, str]] = {}
    for case, group in report.groups(result.samples).items():
        if wanted(case.target):
            found.setdefault((case.workload, case.connections), {})[case.target] = cell(group)
    names = list(dict.fromkeys(name for row in found.values() for name in row))
    rows = tuple(
        (name, str(count), *(row.get(one, "-") for one in names))
        for (name, count), row in found.items()
        if any(cell != "-" for cell in row.values())
    )
    return Table(title, ("workload", "conns", *names), rows, "- : not measured.")


def _tail(group: Sequence[Sample]) -> str:
    known = [sample.latency.p99 for sample in usable(group) if sample.latency]
    return report.micros(stats.median(known)) if known else "-"


def _spread(group: Sequence[Sample]) -> str:
    values = [sample.cpu_per_request * 1e6 for sample in usable(group) if sample.usage]
    if not values:
        return "failed"
    return f"{stats.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def losses(result: Result) -> list[Table]:
    """Every figure in which another server does better than this tree, beyond the noise, or may do so by much."""
    every = report.comparisons(result.samples)
    floors = {key[:3]: tables.floors({key: chosen}) for key, chosen in every.items() if key[3] == key[4]}
    rows = []
    for (workload, mode, connections, first, second), chosen in every.items():
        if first != second and not second.startswith(FLOOR):
            known = floors.get((workload, mode, connections), {})
            rows += [(workload, *row) for row in _lost(second, chosen, known)]
    columns = ("workload", "figure", "better", "this tree", "the other", "ratio", "95% interval", "certain")
    note = "Not certain: the interval holds 1, so that it may be chance."
    return [Table("where this tree does not win", columns, tuple(rows), note)]


def _lost(name: str, chosen: Sequence[Sample], floors: Mapping[str, float]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for metric in METRICS:
        try:
            found = report.compare(chosen, metric)
        except BenchError:
            return []
        if found is None:
            continue
        certain = found.words(floors.get(metric.key, 0.0)) == "B better"
        worse = found.ratio.value if metric.better == "less" else 1 / found.ratio.value
        if certain or (worse > WORSE and not found.ratio.excludes(1.0)):
            figures = (report.figure(metric, found.first), report.figure(metric, found.second))
            interval = found.ratio.words(".2f")
            row = (metric.name, name, *figures, f"{found.ratio.value:.2f}", interval)
            rows.append((*row, "yes" if certain else "no"))
    return rows


VIEWS: dict[str, Callable[[Result], list[Table]]] = {
    "before": before,
    "brief": brief,
    "cases": cases,
    "concurrency": concurrency,
    "details": details,
    "everything": everything,
    "headline": headline,
    "losses": losses,
    "opening": opening,
    "servers": servers,
    "speedups": speedups,
    "tails": tails,
}
