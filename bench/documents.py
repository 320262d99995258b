"""Tables inside Markdown documents, between markers, always made from stored results. Pure.

<!-- bench:begin NAME -->            everything about bench/baselines/NAME.json
<!-- bench:begin NAME concurrency --> only the table by number of connections
<!-- bench:end -->
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from bench import report, stats, tables
from bench.errors import BenchError
from bench.model import Result, Sample, usable
from bench.report import Table

_BLOCK = re.compile(r"(<!-- bench:begin (\S+)(?: (\S+))? -->\n)(.*?)(<!-- bench:end -->)", re.DOTALL)


def fill(text: str, stored: Callable[[str], Result]) -> str:
    """The document with every block made again from its stored result.

    Raises BenchError for markers that do not match, and what `stored` raises for an unknown name.
    """
    blocks = _BLOCK.findall(text)
    if len(blocks) != text.count("<!-- bench:begin") or len(blocks) != text.count("<!-- bench:end"):
        raise BenchError("a bench:begin marker without its bench:end, or the other way round")
    return _BLOCK.sub(lambda found: f"{found[1]}{block(stored(found[2]), found[3])}{found[5]}", text)


def block(result: Result, view: str | None) -> str:
    """What stands between two markers."""
    if view is not None and view not in VIEWS:
        raise BenchError(f"unknown view {view!r}: choose from {', '.join(VIEWS)}")
    shown = tables.tables(result) if view is None else VIEWS[view](result)
    lines = [
        f"Measured {result.created}.",
        "",
        *(f"- {line}" for line in report.environment_lines(result.environment)),
        "",
    ]
    parts = ["\n".join(lines), *(report.markdown(table) for table in shown)]
    if result.notes:
        parts.append("Doubts:\n\n" + "".join(f"- {note}\n" for note in result.notes))
    return "\n" + "\n".join(parts) + "\n"


def concurrency(result: Result) -> list[Table]:
    """By workload and client: connections in rows, each target's rate, p50, p99 and status side by side."""
    scenes: dict[tuple[str, str], dict[int, dict[str, list[Sample]]]] = {}
    for case, group in report.groups(result.samples).items():
        scenes.setdefault((case.workload, case.client), {}).setdefault(case.connections, {})[case.target] = group
    found = []
    for (workload, client), counts in scenes.items():
        names = list(dict.fromkeys(name for row in counts.values() for name in row))
        columns = ["connections"]
        for name in names:
            columns += [f"{name} req/s", "p50", "p99", "status"]
        rows = tuple(
            (str(count), *(cell for name in names for cell in _cells(row.get(name, []))))
            for count, row in counts.items()
        )
        found.append(Table(f"{workload} through {client}", tuple(columns), rows))
    return found


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


VIEWS: dict[str, Callable[[Result], list[Table]]] = {"concurrency": concurrency}
