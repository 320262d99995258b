"""Stored results as tables, one function per kind of result. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench import report, stats
from bench.errors import BenchError
from bench.model import Result, Sample
from bench.report import Table

MISSING = "-"


def tables(result: Result) -> list[Table]:
    """The tables of a stored result."""
    maker = KINDS.get(result.kind)
    return maker(result) if maker else samples(result)


def samples(result: Result) -> list[Table]:
    """Medians of each case, and who used the cores."""
    return [report.samples_table(result.kind, result.samples), report.processes_table(result.samples)]


def compare(result: Result) -> list[Table]:
    """One table per comparison."""
    found = []
    comparisons = report.comparisons(result.samples)
    floors = {key[:3]: _floors(chosen) for key, chosen in comparisons.items() if key[3] == key[4]}
    for (workload, mode, connections, first, second), chosen in comparisons.items():
        title = f"{workload}, {mode}, {connections} connections"
        if first == second:
            title += ": the noise floor, a server against itself"
        floor = floors.get((workload, mode, connections), {}) if first != second else {}
        try:
            found.append(report.comparison_table(title, chosen, floor))
        except BenchError as exc:
            found.append(Table(title, ("A", "B", "failed"), ((first, second, str(exc)),)))
    return found


def _floors(samples: Sequence[Sample]) -> dict[str, float]:
    """The noise floors, empty when the server against itself did not count either."""
    try:
        return report.noise_floors(samples)
    except BenchError:
        return {}


def _cell(record: Mapping[str, Any], key: str, form: Callable[[float], str]) -> str:
    return form(record[key]) if key in record else MISSING


def memory(result: Result) -> list[Table]:
    """Memory held, and the allocator's and collector's work."""
    records = result.data["records"]
    held = [
        (
            name,
            *(
                _cell(record, key, report.mib)
                for key in ("rest_rss", "rest_pss", "rest_uss", "peak_pss", "settled_pss")
            ),
            _cell(record, "second_growth", report.mib),
            *(
                _cell(record, f"{kind}_bytes", lambda value: f"{value / 1024:.1f}")
                for kind in ("connection", "websocket")
            ),
        )
        for name, record in records.items()
    ]
    work = [
        (
            name,
            _cell(record, "allocations", lambda value: f"{value:.1f}"),
            _cell(record, "allocated", lambda value: f"{value:,.0f}"),
            _cell(record, "traced_left_per_request", lambda value: f"{value:.2f}"),
            _cell(record, "traced_peak", lambda value: f"{value / 1024:,.0f}"),
            _cell(record, "gc_runs_per_100k", lambda value: f"{value:.1f}"),
            _cell(record, "gc_pause_total", lambda value: f"{value:.2%}"),
            _cell(record, "gc_pause_max", report.micros),
            *(_cell(record, f"{kind}_objects", lambda value: f"{value:.1f}") for kind in ("connection", "websocket")),
        )
        for name, record in records.items()
    ]
    held_columns = (
        *("target", "RSS at rest", "PSS at rest", "USS at rest", "PSS peak", "PSS settled", "growth, 2nd burst"),
        *("KiB per idle connection", "KiB per idle WebSocket"),
    )
    work_columns = (
        *("target", "allocations/req", "bytes/req", "bytes left/req", "traced peak KiB", "GC runs/100k req"),
        *("time in GC", "longest pause", "objects/connection", "objects/WebSocket"),
    )
    note = (
        "Allocations are counted by a preloaded library (calls and bytes asked of malloc, Python's own allocator "
        "switched off); bytes left and traced peak are tracemalloc's, which sees Python memory only."
    )
    name = result.data["workload"]
    return [
        Table(f"memory held, MiB ({name})", held_columns, tuple(held), f"{result.data['idle']} idle connections."),
        Table(f"work for allocator and collector ({name})", work_columns, tuple(work), note),
    ]


def startup(result: Result) -> list[Table]:
    """Medians over the starts of each target."""
    rows = []
    for name, starts in result.data["records"].items():
        middle = {key: stats.median([start[key] for start in starts]) for key in ("ready", "cpu", "pss", "rss", "stop")}
        slowest = max((start["ready"] for start in starts), default=0.0)
        ends = ", ".join(sorted({str(int(start["status"])) for start in starts}))
        times = (middle["ready"], slowest, middle["cpu"], middle["stop"])
        rows.append(
            (
                name,
                str(len(starts)),
                *(report.micros(time) for time in times),
                *map(report.mib, (middle["pss"], middle["rss"])),
                ends,
            )
        )
    columns = (
        "target",
        "starts",
        "to first answer",
        "slowest",
        "CPU until then",
        "to stop",
        "PSS MiB",
        "RSS MiB",
        "exit status",
    )
    return [Table(f"start-up, {result.data['workload']}, {result.data['mode']}", columns, tuple(rows))]


def gate(result: Result) -> list[Table]:
    """Every case judged; failures say so in the last column."""
    rows = []
    for line in result.data["lines"]:
        form = "{:,.0f}" if line["case"].startswith("instructions") else "{:.3f}"
        values = (form.format(line[key]) for key in ("stored", "found", "limit"))
        rows.append((line["case"], *values, line["detail"], "REGRESSION" if line["failed"] else "ok"))
    columns = ("case", "stored", "now", "limit", "interval or change", "verdict")
    note = (
        "A speed-up is how many times less CPU per request this tree needs than upstream, measured in the same run; "
        "it fails when its whole interval is below the limit. Instructions are counted by callgrind."
    )
    return [Table("regression gate", columns, tuple(rows), note)]


def pool(result: Result) -> list[Table]:
    """Every case: rates, times of single operations, allocations, collector."""
    rows = tuple(
        (
            name,
            f"{1e9 / figures['ns']:,.0f}",
            f"{figures['ns']:.0f}",
            *(f"{figures[key]:.0f}" for key in ("p50", "p95", "p99", "p999")),
            _cell(figures, "allocations", lambda value: f"{value:.2f}"),
            _cell(figures, "bytes", lambda value: f"{value:.0f}"),
            str(figures["gc_runs"]),
            report.micros(figures["gc_longest"]),
        )
        for name, figures in result.data["records"].items()
    )
    columns = (
        *("case", "op/s", "ns/op", "p50 ns", "p95 ns", "p99 ns", "p99.9 ns"),
        *("allocations/op", "bytes/op", "GC runs", "longest pause"),
    )
    note = (
        f"{result.data['operations']:,} operations per case. Percentiles are of operations timed one by one and "
        "include the clock (first row); those of bursts are averages over one burst."
    )
    found = [Table("pools, objects, bytes", columns, rows, note)]
    native = {name: figures["stats"] for name, figures in result.data["records"].items() if "stats" in figures}
    if native:
        keys = ("created", "reused", "discarded", "idle", "in_use")
        counted = tuple((name, *(f"{one.get(key, 0):,}" for key in keys)) for name, one in native.items())
        found.append(Table("the native buffer pool", ("case", *keys), counted))
    return found


def micro(result: Result) -> list[Table]:
    """Each case: time, instructions, allocations, memory."""
    rows = tuple(
        (
            name,
            _cell(figures, "ns", lambda value: f"{value / 1e3:.2f}"),
            _cell(figures, "best", lambda value: f"{value / 1e3:.2f}"),
            _cell(figures, "instructions", lambda value: f"{value:,.0f}"),
            _cell(figures, "allocations", lambda value: f"{value:.1f}"),
            _cell(figures, "bytes", lambda value: f"{value:,.0f}"),
            _cell(figures, "held", lambda value: f"{value:,.0f}"),
            _cell(figures, "left", lambda value: f"{value:.2f}"),
        )
        for name, figures in result.data["records"].items()
    )
    columns = ("case", "us/op", "best", "instructions/op", "allocations/op", "bytes/op", "bytes held", "bytes left/op")
    note = (
        "Bytes held: by one connection that has served a request (tracemalloc). pipeline is 16 requests per operation."
    )
    return [Table("micro-benchmarks", columns, rows, note)]


Column = tuple[str, str, Callable[[float], str]]

_RATE: Column = ("req/s", "rps", lambda value: f"{value:,.0f}")
_P50: Column = ("p50", "p50", report.micros)
_P99: Column = ("p99", "p99", report.micros)
_P999: Column = ("p99.9", "p999", report.micros)
_CPU: Column = ("CPU/req", "cpu", report.micros)
_PSS: Column = ("PSS MiB", "pss", report.mib)
_COUNT: Column = ("workers", "workers", lambda value: f"{value:.0f}")
_ERRORS: Column = ("errors", "errors", lambda value: f"{value:,.0f}")

WORKER_COLUMNS: dict[str, tuple[Column, ...]] = {
    "startup": (
        _COUNT,
        ("to first answer", "first_answer", report.micros),
        ("all up", "complete", report.micros),
        _PSS,
        ("PSS MiB per worker", "pss_per_worker", report.mib),
        ("USS MiB", "uss", report.mib),
        ("to stop", "stop", report.micros),
    ),
    "scaling": (_COUNT, _RATE, _CPU, _P50, _P99, _PSS, _ERRORS),
    "peak": (
        ("connections", "connections", lambda value: f"{value:.0f}"),
        _RATE,
        _CPU,
        _P50,
        _P99,
        _P999,
        _PSS,
        _ERRORS,
    ),
    "sustained": (("second", "second", lambda value: f"{value:.0f}"), _RATE, _CPU, _P50, _P99, _PSS, _ERRORS),
    "recycling": (
        ("workers replaced", "replaced", lambda value: f"{value:.0f}"),
        _RATE,
        _CPU,
        _P50,
        _P99,
        _P999,
        _ERRORS,
    ),
    "leak": (
        ("requests", "requests", lambda value: f"{value:,.0f}"),
        ("PSS MiB before", "before", report.mib),
        ("highest", "peak", report.mib),
        ("after", "after", report.mib),
        ("seconds without an answer", "silent", lambda value: f"{value:.0f}"),
        _ERRORS,
    ),
    "mixed": (_COUNT, _RATE, _CPU, _P50, _P99, _PSS, _ERRORS),
}


def workers(result: Result) -> list[Table]:
    """One table per section, then what to choose on this machine."""
    found = []
    for name, records in result.data["sections"].items():
        columns = WORKER_COLUMNS[name]
        rows = tuple((one["target"], *(_cell(one, key, form) for _, key, form in columns)) for one in records)
        found.append(Table(f"workers: {name}", ("target", *(title for title, _, _ in columns)), rows))
    scaling = [one for one in result.data["sections"].get("scaling", []) if not one["errors"]]
    if scaling:
        found.append(recommendation(scaling))
    return found


def recommendation(records: Sequence[Mapping[str, Any]]) -> Table:
    """For each server, the number of workers that did best by each measure, among those that made no errors."""
    rows = []
    for target in dict.fromkeys(one["target"] for one in records):
        own = [one for one in records if one["target"] == target]
        fastest = max(own, key=lambda one: float(one["rps"]))
        # A few per cent more throughput are not worth another process.
        enough = min((one for one in own if one["rps"] >= 0.95 * fastest["rps"]), key=lambda one: int(one["workers"]))
        calmest = min(own, key=lambda one: float(one["p99"]))
        rows.append((target, *(f"{one['workers']}" for one in (fastest, enough, calmest)), report.mib(enough["pss"])))
    columns = ("target", "most throughput", "fewest for 95% of it", "lowest p99", "PSS MiB for 95%")
    return Table("workers: how many to choose on this machine (hello)", columns, tuple(rows))


KINDS: dict[str, Callable[[Result], list[Table]]] = {
    "compare": compare,
    "gate": gate,
    "memory": memory,
    "micro": micro,
    "pool": pool,
    "startup": startup,
    "workers": workers,
}
