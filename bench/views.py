"""Tables that documents show of a stored result: the same figures from another side. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from bench import losses, report, stats, tables
from bench.model import Result, Sample, usable
from bench.report import Table

# What a reader looks for first, in this order, and what it is called.
HEADLINES = {
    "fastapi-api": "FastAPI: validation, a wait, 2 KB of JSON",
    "starlette": "Starlette: a wait, 2 KB of JSON",
    "django": "Django: a form, a wait, 2 KB of JSON",
    "varying": "plain ASGI, 10,000 different GETs of a browser",
    "log-varying": "the same with an access log, written to a file",
    "echo": "plain ASGI, 10 KiB POST echoed, again and again",
    "hello": "plain GET, again and again",
    "identical": "a browser's GET, again and again",
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
    p50, p99 = (report.typical(good, field) for field in ("p50", "p99"))
    lost = len(group) - len(good)
    rate = f"{stats.median([sample.rps for sample in good]):,.0f}"
    return (rate, p50, p99, "ok" if not lost else f"{lost} of {len(group)} void")


def _change(row: Mapping[str, list[Sample]], names: Sequence[str]) -> str:
    rates = [[sample.rps for sample in usable(row.get(name, []))] for name in names]
    return f"{stats.median(rates[1]) / stats.median(rates[0]):.2f}" if all(rates) else "-"


def opening(result: Result) -> list[Table]:
    """What readers look for first: upstream before and this tree after, through wrk."""
    found: dict[str, dict[int, dict[str, list[Sample]]]] = {}
    for case, group in report.groups(result.samples).items():
        if case.client == "wrk" and case.target in ("upstream", "ours"):
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
        yield (f"{count:,}", rate, rate_after, _change(row, ("upstream", "ours")), p50, p50_after, p99, p99_after)


def speedups(result: Result) -> list[Table]:
    """CPU per request relative to the first server of each comparison, where they do the same work."""
    return [tables.speedups(result)]


def headline(result: Result) -> list[Table]:
    """The few figures for a first page: CPU per request of upstream and of this tree, and their ratio."""
    rows = []
    for (workload, _, connections, first, second), chosen in report.comparisons(result.samples).items():
        if workload in HEADLINES and (first, second) == ("ours", "upstream"):
            found = report.speedup(chosen)
            if found is not None:
                times = f"{found.ratio.value:.2f} ({found.ratio.words('.2f')})"
                row = (HEADLINES[workload], str(connections), report.micros(found.first), report.micros(found.second))
                rows.append((*row, times))
    columns = ("server CPU per request, one process", "connections", "upstream 0.54.0", "this fork", "ratio")
    order = [*HEADLINES.values()]
    rows.sort(key=lambda row: order.index(row[0]))
    return [Table("This fork and upstream", columns, tuple(rows))]


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
    """The median and the 99th percentile of the latency by workload and server: medians of the bursts.

    Then those that are certainly longer than another server's.
    """
    table = _matrix(result, "latency: p50 / p99", lambda name: True, tail)
    is_closed = all(one.load.tool in CLOSED and one.load.pipeline == 1 for one in result.samples)
    longer = losses.longer(result)
    return [replace(table, note=f"{table.note} {WAITING}") if is_closed else table, *([longer] if longer.rows else [])]


def arrivals(result: Result) -> list[Table]:
    """The 99th percentile at each arrival rate, and how far its bursts differ: loads in rows, servers in columns."""
    [table] = tables.latency(result, report.extent, {"p99": "p99"})
    server, p99 = table.columns.index("target"), table.columns.index("p99")
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for row in table.rows:
        found.setdefault(row[:server], {})[row[server]] = row[p99]
    return [_pivot("p99 by arrival rate", table.columns[:server], found, table.note)]


def hours(result: Result) -> list[Table]:
    """What each server holds after an hour's worth of requests: applications in rows, servers in columns."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for name, record in result.data["records"].items():
        for one in record.get("hours", []):
            grown = f"{(one['end'] - one['warm']) / 2**20:+.1f}"
            found.setdefault((one["workload"],), {})[name] = f"{report.mib(one['end'])} ({grown})"
    note = (
        "Proportional set size of the process tree after at least 18,000 requests; in brackets the growth since the "
        "first burst of two seconds, or since 900 requests if those took longer."
    )
    more = [
        f"{where}, {report.mib(ours)} MiB (upstream {report.mib(theirs)})"
        for where, name, ours, theirs in losses.grown(result)
        if name == "upstream"
    ]
    note += f" Grew by at least 1 MiB more than with upstream: {'; '.join(more)}." if more else ""
    return [_pivot("memory after a busy hour's requests, MiB", ("workload",), found, note)]


def _costs(result: Result, wanted: Callable[[str], bool]) -> Table:
    title = "CPU per request: median (lowest to highest burst), in microseconds"
    return _matrix(result, title, wanted, _spread)


def _matrix(
    result: Result, title: str, wanted: Callable[[str], bool], cell: Callable[[Sequence[Sample]], str]
) -> Table:
    """A row for each workload, a column for each server."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for case, group in report.groups(result.samples).items():
        if wanted(case.target):
            found.setdefault((case.workload, str(case.connections)), {})[case.target] = cell(group)
    table = _pivot(title, ("workload", "conns"), found, "- : not measured or not applicable.")
    return replace(table, rows=tuple(row for row in table.rows if any(cell != "-" for cell in row[2:])))


def _pivot(title: str, heads: Sequence[str], found: Mapping[tuple[str, ...], Mapping[str, str]], note: str) -> Table:
    """A row for each key, whose parts `heads` names, and a column for each name under any of the keys."""
    names = list(dict.fromkeys(name for cells in found.values() for name in cells))
    rows = tuple((*key, *(cells.get(name, "-") for name in names)) for key, cells in found.items())
    return Table(title, (*heads, *names), rows, note)


def tail(group: Sequence[Sample]) -> str:
    """The median and the 99th percentile of the latency: medians of the bursts."""
    good = [sample for sample in usable(group) if sample.latency]
    if not good:
        return "-" if usable(group) else "failed"
    p50 = f"{report.typical(good, 'p50')} / "
    middle = report.middle(good, "p99")
    if middle is None:
        return f"{p50}too few ({max(map(report.timed, good)):,})"
    p99 = report.micros(middle)
    unanswered = round(stats.median([sample.burst.unanswered for sample in good if sample.burst]))
    connections = good[0].load.connections
    if unanswered * 100 > connections:
        # These have waited until the end.
        p99 = f"over {p99}"
    return p50 + (f"{p99}; {unanswered:,} of {connections:,} unanswered" if unanswered else p99)


def _spread(group: Sequence[Sample]) -> str:
    values = [sample.cpu_per_request * 1e6 for sample in usable(group) if sample.usage]
    if not values:
        return "failed"
    if len(values) == 1:
        return f"{values[0]:.1f} (one burst)"
    return f"{stats.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


# Generators whose connections wait for a response.
CLOSED = ("wrk", "closedloop", "httpx")
WAITING = (
    "Each connection waits for its response before its next request, so latency falls as throughput rises; for servers "
    "at the same load see the fixed arrival rates. Medians, without intervals."
)

VIEWS: dict[str, Callable[[Result], list[Table]]] = {
    "arrivals": arrivals,
    "before": before,
    "brief": brief,
    "cases": cases,
    "concurrency": concurrency,
    "details": details,
    "everything": everything,
    "headline": headline,
    "hours": hours,
    "losses": losses.tables,
    "opening": opening,
    "servers": servers,
    "speedups": speedups,
    "tails": tails,
}
