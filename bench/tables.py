"""Stored results as tables, one function per kind of result. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench import report, scaling, stats
from bench.errors import BenchError
from bench.model import Result, Sample, usable
from bench.report import Rivalry, Table

MISSING = "-"


def tables(result: Result, *, details: bool = False) -> list[Table]:
    """The tables of a stored result; with details, those of every percentile and every kind of memory, too."""
    maker = KINDS.get(result.kind)
    found = maker(result) if maker else samples(result)
    if details and result.samples:
        found += [report.latency_table(result.samples), report.memory_table(result.samples)]
    # A table without rows is about something that was not measured.
    return [table for table in found if table.rows]


def samples(result: Result) -> list[Table]:
    """Medians of each case, the cost of large bodies, waiting times of newcomers, and use of the cores."""
    return [report.samples_table(result.kind, result.samples), *special(result), report.processes_table(result.samples)]


def special(result: Result) -> list[Table]:
    """The tables of workloads that have a figure of their own; without rows where there are none."""
    return [report.bulk_table(result.samples), report.arrivals_table(result.samples)]


Scene = tuple[str, str, int]


def compare(result: Result) -> list[Table]:
    """Two servers: a table of all figures for each workload. More: a table with a row for each server."""
    scenes: dict[Scene, dict[Rivalry, list[Sample]]] = {}
    for key, chosen in report.comparisons(result.samples).items():
        scenes.setdefault(key[:3], {})[key] = chosen
    found = []
    for scene, rivalries in scenes.items():
        noise = floors(rivalries)
        if sum(key[3] != key[4] for key in rivalries) > 1:
            found.append(_rivals(scene, rivalries, noise))
        else:
            found += [_pair(key, chosen, noise) for key, chosen in rivalries.items()]
    if len(scenes) > 1:
        found.insert(0, speedups(result))
    return [*found, *special(result), report.processes_table(result.samples)]


def _pair(key: Rivalry, chosen: Sequence[Sample], noise: Mapping[str, float]) -> Table:
    workload, mode, connections, first, second = key
    title = f"{workload}, {mode}, {connections} connections"
    if first == second:
        title, noise = f"{title}: the noise floor, a server against itself", {}
    try:
        return report.comparison_table(title, chosen, noise)
    except BenchError as exc:
        return Table(title, ("A", "B", "failed"), ((first, second, str(exc)),))


# From the side of the second server, which `report.speedup` puts first.
VERDICTS = {"A better": "better", "B better": "worse"}


def _rivals(scene: Scene, rivalries: Mapping[Rivalry, Sequence[Sample]], noise: Mapping[str, float]) -> Table:
    """The figures of each server, and its CPU relative to A's."""
    workload, mode, connections = scene
    keys = sorted(rivalries, key=lambda key: key[3] != key[4])
    first, rows = keys[0][3], []
    if keys[0][4] != first:
        rows.append(_rival_row(first, [one for one in rivalries[keys[0]] if one.side == "A"], MISSING, MISSING, ""))
    for key in keys:
        name, chosen = key[4], rivalries[key]
        try:
            found = report.speedup(chosen)
        except BenchError:
            found = None
        ratio, interval, verdict = MISSING, MISSING, ""
        if found is not None:
            ratio, interval = f"{found.ratio.value:.2f}", found.ratio.words(".2f")
            words = found.words(noise.get("cpu", 0.0))
            verdict = "noise floor" if name == first else VERDICTS.get(words, words)
        own = [one for one in chosen if one.side == "B"]
        rows.append(_rival_row(name, own, ratio, interval, verdict))
    columns = ("target", "CPU/req", "times A", "95% interval", "verdict", *report.FIGURE_COLUMNS[1:])
    title = f"{workload}, {mode}, {connections} connections; A is {first}"
    note = "Times A: CPU per request over that of A, by pairs; more is worse."
    if any(sample.slot > len(rivalries) for chosen in rivalries.values() for sample in chosen):
        # More bursts than servers in a block: all of them lived at once.
        note += " Servers that run side by side share pages, which lowers the PSS of the one that is there twice."
    return Table(title, columns, tuple(rows), note)


def _rival_row(name: str, group: Sequence[Sample], ratio: str, interval: str, verdict: str) -> tuple[str, ...]:
    cpu, *others = report.figures(group)
    return (name, cpu, ratio, interval, verdict, *others)


def speedups(result: Result) -> Table:
    """For each workload, the CPU per request of each other server relative to A."""
    found: dict[tuple[str, str, int, str], dict[str, str]] = {}
    for (workload, mode, connections, first, second), chosen in report.comparisons(result.samples).items():
        times = _floor(chosen) if first == second else _times(chosen)
        if times != MISSING:
            found.setdefault((workload, mode, connections, first), {})[NOISE if first == second else second] = times
    names = sorted(dict.fromkeys(name for row in found.values() for name in row), key=lambda name: name == NOISE)
    rows = tuple((*map(str, key), *(row.get(name, MISSING) for name in names)) for key, row in found.items())
    note = (
        "CPU per request of a server over that of A: the geometric mean of the pairs, and its 95% interval. Above 1, A "
        "needs less; below 1, more; an interval that includes 1 shows no difference."
    )
    if NOISE in names:
        note += f" {NOISE.capitalize()}: how far A strays from itself; a ratio no further from 1 shows no difference."
    table = Table("CPU per request relative to A", ("workload", "mode", "conns", "A", *names), rows, note)
    return report.without_constants(table, {**report.CONSTANT, "A": "A is {}"})


# What the column of A against itself is called.
NOISE = "noise floor"


def _floor(chosen: Sequence[Sample]) -> str:
    try:
        found = report.noise_floors(chosen)
    except BenchError:
        return "failed"
    return f"{found['cpu']:.0%}" if "cpu" in found else MISSING


def _times(chosen: Sequence[Sample]) -> str:
    try:
        found = report.speedup(chosen)
    except BenchError:
        return "failed"
    return f"{found.ratio.value:.2f} ({found.ratio.words('.2f')})" if found else MISSING


def floors(rivalries: Mapping[Rivalry, Sequence[Sample]]) -> dict[str, float]:
    """The noise floors of a scene, empty if no server was compared with itself, or those bursts were void too."""
    for key, chosen in rivalries.items():
        if key[3] == key[4]:
            try:
                return report.noise_floors(chosen)
            except BenchError:
                break
    return {}


def _cell(record: Mapping[str, Any], key: str, form: Callable[[float], str]) -> str:
    return form(record[key]) if key in record else MISSING


def memory(result: Result) -> list[Table]:
    """Memory held, what idle connections hold, and the allocator's and collector's work."""
    records, name = result.data["records"], result.data["workload"]
    return [
        _table_of(f"memory held, MiB ({name})", HELD_COLUMNS, records, HELD_NOTE),
        _hours(records),
        _idle("idle keep-alive connections", "connections", records),
        _idle("idle WebSockets", "websockets", records),
        _idle("idle WebSockets after one compressed message", "compressed", records),
        _idle("idle HTTP/2 connections after a hundred requests", "http2", records),
        _table_of(f"work for allocator and collector ({name})", WORK_COLUMNS, records, WORK_NOTE),
    ]


Column = tuple[str, str, Callable[[float], str]]

HELD_COLUMNS: tuple[Column, ...] = (
    ("RSS at rest", "rest_rss", report.mib),
    ("PSS at rest", "rest_pss", report.mib),
    ("USS at rest", "rest_uss", report.mib),
    ("PSS peak", "peak_pss", report.mib),
    ("PSS settled", "settled_pss", report.mib),
    ("growth, 2nd burst", "second_growth", report.mib),
)
HELD_NOTE = "Resident, proportional and unique set size of the process tree; growth that does not end is a leak."
WORK_COLUMNS: tuple[Column, ...] = (
    ("allocations/req", "allocations", lambda value: f"{value:.1f}"),
    ("bytes/req", "allocated", lambda value: f"{value:,.0f}"),
    ("bytes left/req", "traced_left_per_request", lambda value: f"{value:.2f}"),
    ("traced peak KiB", "traced_peak", lambda value: f"{value / 1024:,.0f}"),
    ("GC runs/100k req", "gc_runs_per_100k", lambda value: f"{value:.1f}"),
    ("time in GC", "gc_pause_total", lambda value: f"{value:.2%}"),
    ("longest pause", "gc_pause_max", report.micros),
)
WORK_NOTE = (
    "Allocations are counted by a preloaded library (calls and bytes asked of malloc, Python's own allocator switched "
    "off); bytes left and traced peak are tracemalloc's, which sees Python memory only."
)


def _table_of(title: str, columns: Sequence[Column], records: Mapping[str, Mapping[str, Any]], note: str) -> Table:
    """One row for each target of which any of these figures is known."""
    rows = tuple(
        (name, *(_cell(record, key, form) for _, key, form in columns))
        for name, record in records.items()
        if any(key in record for _, key, _ in columns)
    )
    return Table(title, ("target", *(heading for heading, _, _ in columns)), rows, note)


def _hours(records: Mapping[str, Mapping[str, Any]]) -> Table:
    """One row for each workload and target."""
    every = {name: {one["workload"]: one for one in record.get("hours", [])} for name, record in records.items()}
    workloads = dict.fromkeys(workload for found in every.values() for workload in found)
    rows = tuple(
        (workload, name, *(report.mib(found[workload][key]) for key in ("rest", "warm", "end")), requests)
        for workload in workloads
        for name, found in every.items()
        if workload in found
        for requests in (f"{found[workload]['requests']:,} in {found[workload]['seconds']:.0f} s",)
    )
    note = (
        "Proportional set size of the process tree; warm is after the first burst of two seconds, or after 900 "
        "requests if those took longer."
    )
    columns = ("workload", "target", "at rest", "warm", "at the end", "requests")
    return Table("memory after a busy hour's requests, MiB", columns, rows, note)


def _idle(title: str, kind: str, records: Mapping[str, Mapping[str, Any]]) -> Table:
    rows = tuple(
        (
            name,
            f"{one['count']:,}",
            *(_cell(one, key, lambda value: f"{value / 1024:.2f}") for key in ("rss", "pss")),
            _cell(one, "objects", lambda value: f"{round(value, 1) + 0.0:.1f}"),  # No -0.0.
        )
        for name, record in records.items()
        for one in record.get(kind, [])
    )
    note = "What the server's memory grew by for each, the kernel's own not counted; objects are the collector's."
    return Table(title, ("target", "open", "KiB of RSS each", "KiB of PSS each", "objects each"), rows, note)


def startup(result: Result) -> list[Table]:
    """Medians over the starts of each target."""
    rows = []
    for name, starts in result.data["records"].items():
        if not starts:
            rows.append((name, "0", *[""] * 7, "failed"))
            continue
        middle = {key: stats.median([start[key] for start in starts]) for key in starts[0]}
        slowest = max(start["ready"] for start in starts)
        ends = ", ".join(sorted({str(int(start["status"])) for start in starts}))
        times = (middle["ready"], slowest, middle["cpu"], middle["stop"])
        rows.append(
            (
                name,
                str(len(starts)),
                *(report.micros(time) for time in times),
                _cell(middle, "import", report.micros),
                *map(report.mib, (middle["pss"], middle["rss"])),
                ends,
            )
        )
    columns = (
        *("target", "starts", "to first answer", "slowest", "CPU until then", "to stop", "CPU of import"),
        *("PSS MiB", "RSS MiB", "exit status"),
    )
    note = "CPU of import: of an interpreter that imports the server and ends, less one that imports nothing."
    return [Table(f"start-up, {result.data['workload']}, {result.data['mode']}", columns, tuple(rows), note)]


def gate(result: Result) -> list[Table]:
    """Every case judged; failures say so in the last column."""
    rows = []
    for line in result.data["lines"]:
        form = _form(line["case"])
        values = (form.format(line[key]) for key in ("stored", "found", "limit"))
        rows.append((line["case"], *values, line["detail"], "REGRESSION" if line["failed"] else "ok"))
    columns = ("case", "stored", "now", "limit", "interval or change", "verdict")
    note = (
        "A speed-up is upstream's CPU per request divided by this tree's, measured in the same run; "
        "it fails when its whole interval is below the limit. Instructions are counted by callgrind, system calls by "
        "strace, both of one operation. CPU time is over that of a yardstick in the same process; it fails when its "
        "whole interval is above the limit."
    )
    found = [Table("regression gate", columns, tuple(rows), note), *_repeated(result.data.get("repeated", []))]
    return [*found, _proof(result.data.get("proof", []))]


def _form(case: str) -> str:
    """How the values of a case are written."""
    if case.startswith("instructions"):
        return "{:,.0f}"
    return "{:.2f}" if case.startswith("system calls") else "{:.3f}"


def _repeated(cases: Sequence[Mapping[str, Any]]) -> list[Table]:
    """How the values of each case were spread over many runs of the gate."""
    rows = []
    for one in cases:
        form = _form(one["case"])
        values = (form.format(one[key]) for key in ("limit", "lowest", "median", "highest"))
        rows.append((one["case"], *values, str(one["runs"]), str(one["failed"])))
    columns = ("case", "limit", "lowest", "median", "highest", "runs", "failed")
    return [Table("the gate, run again and again on the same tree", columns, tuple(rows))]


def _proof(trees: Sequence[Mapping[str, Any]]) -> Table:
    """How often the gate passed each tree, and which part caught it."""
    rows = tuple((one["tree"], str(one["passed"]), str(one["failed"]), one["by"]) for one in trees)
    return Table("the gate, proven", ("tree", "passed", "failed", "by"), rows)


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
    found = [Table("micro-benchmarks", columns, rows, note)]
    return found + [_places(case, lines) for case, lines in result.data.get("places", {}).items()]


# Lines of a table of places: the rest is small.
SHOWN = 10


def _places(case: str, lines: Sequence[tuple[str, float, float]]) -> Table:
    rows = tuple((name, f"{blocks:.1f}", f"{size:,.0f}") for name, blocks, size in lines[:SHOWN])
    note = "While the application runs; tracemalloc sees Python's memory only. A line that is not here asks for less."
    return Table(f"memory of a request of {case}, by place", ("place", "blocks", "bytes"), rows, note)


_RATE: Column = ("req/s", "rps", lambda value: f"{value:,.0f}")
_P50: Column = ("p50", "p50", report.micros)
_P99: Column = ("p99", "p99", report.micros)
_P999: Column = ("p99.9", "p999", report.micros)
_CPU: Column = ("CPU/req", "cpu", report.micros)
_PSS: Column = ("PSS MiB", "pss", report.mib)
_COUNT: Column = ("workers", "workers", lambda value: f"{value:.0f}")
_MODE: Column = ("mode", "mode", str)
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
    "profiles": (
        _MODE,
        ("to first answer", "first_answer", report.micros),
        ("all up", "complete", report.micros),
        _PSS,
        ("PSS MiB per loop", "pss_per_worker", report.mib),
    ),
    "parallel": (("workload", "workload", str), _MODE, _RATE, _CPU, _P50, _P99, _PSS, _ERRORS),
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


SHARES_NOTE = "Shares of the capacity of one server, by workload"


TAIL = {"p50": "p50", "p90": "p90", "p99": "p99", "p999": "p99.9", "max": "max"}


def latency(
    result: Result,
    tell: Callable[[Sequence[Sample], str], str] = report.typical,
    tail: Mapping[str, str] = TAIL,
) -> list[Table]:
    """For each share of the capacity and number of connections, the `tail` of every server, worded by `tell`."""
    slowest, shares = float(result.data["slowest"]), [int(share) for share in result.data["shares"]]
    bases: dict[str, float] = result.data.get("bases", {})
    several = len(bases) > 1
    rows = []
    for case, group in report.groups(result.samples).items():
        rate = group[0].load.rate or 0.0
        known = [sample for sample in usable(group) if sample.latency]
        cells = [tell(known, field) for field in tail] if known else []
        failed = "ok" if known else f"failed: {group[0].void}"
        if known and len(known) < len(group):
            failed = f"{len(group) - len(known)} of {len(group)} void"
        base = bases.get(case.workload, slowest)
        share = next((one for one in shares if max(1, round(base * one / 100)) == rate), 0)
        where = (list(bases).index(case.workload) if several else 0, share, case.connections)
        names = [f"{rate:,.0f}/s ({share}%)", str(case.connections), case.target]
        rows.append((where, [case.workload, *names] if several else names, cells, failed))
    # Servers keep their order within a load, so that comparable rows are together.
    rows.sort(key=lambda row: row[0])
    filled = tuple((*names, *(cells or [MISSING] * len(tail)), failed) for _, names, cells, failed in rows)
    capacities = ", ".join(f"{name} {rps:,.0f}/s" for name, rps in result.data["capacities"].items())
    note = (
        (f"Shares of {slowest:,.0f} requests per second, {_whose(result.data)}" if not several else SHARES_NOTE)
        + (f" (driven as fast as they go: {capacities})" if capacities else "")
        + ". Each request counts from the moment when it was due, whether or not it could be sent then."
    )
    if any(MISSING in cells for _, _, cells, _ in rows):
        fewest = f"{report.FEWEST['p99']:,} for p99 and {report.FEWEST['p999']:,} for p99.9"
        note += f" - : fewer requests in a burst than the percentile needs, {fewest}."
    columns = (*(["workload"] if several else []), "arrivals", "conns", "target", *tail.values(), "status")
    return [Table("latency at fixed rates" + (", by workload" if several else ""), columns, filled, note)]


def _whose(data: Mapping[str, Any]) -> str:
    """Whose capacity the shares are of."""
    capacities: Mapping[str, float] = data["capacities"]
    name = next((name for name, rps in capacities.items() if rps == data["slowest"]), "")
    is_slowest = not name or data["slowest"] == min(capacities.values())
    return "what the slowest can do" if is_slowest else f"what {name} can do; at 90% slower servers may be overloaded"


def overload(result: Result) -> list[Table]:
    """What each server still answers in time, against what it can do, and how long that takes."""
    data, rows = result.data, []
    for name, record in data["records"].items():
        calm, stormy = record["calm"], record["stormy"]
        rows.append(
            (
                name,
                f"{record['capacity']:,.0f}/s",
                f"{stormy['offered']:,.0f}/s",
                f"{stormy['good']:,.0f}/s",
                f"{stormy['good'] / record['capacity']:.2f}",
                f"{stormy['refused']:,.0f}/s",
                report.micros(calm["p99"]),
                report.micros(stormy["p99"]),
                f"{stormy['p99'] / calm['p99']:.1f}" if calm["p99"] and stormy["p99"] else MISSING,
            )
        )
    note = (
        f"Requests arrive at {data['factor']:g} times the capacity, whether or not others were answered. Goodput is "
        f"the rate of 200 responses within {data['in_time']:g} s of being due; the percentiles cover all 200 "
        f"responses, and leave out what stays unanswered. Unloaded is a fifth of the capacity. The application waits "
        f"{data['sleep_ms']:g} ms and computes for 1 ms."
    )
    if any(MISSING in row for row in rows):
        note += " - : no request was answered with 200."
    columns = ("target", "capacity", "offered", "goodput", "of capacity", "refused", "p99 unloaded", "p99", "times")
    return [Table("overload", columns, tuple(rows), note)]


KINDS: dict[str, Callable[[Result], list[Table]]] = {
    "compare": compare,
    "gate": gate,
    "latency": latency,
    "memory": memory,
    "micro": micro,
    "overload": overload,
    "pool": pool,
    "scaling": scaling.tables,
    "startup": startup,
    "workers": workers,
}
