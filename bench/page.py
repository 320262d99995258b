"""Results as one HTML page with charts: nothing is loaded from anywhere, and it fits a phone. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bench import charts, report, stats, tables
from bench.charts import Bar, Series
from bench.errors import BenchError
from bench.model import Result, Sample, usable
from bench.report import METRICS, Metric, Table

TICKS = ("p50", "p75", "p90", "p95", "p99", "p99.9", "max")
FIELDS = ("p50", "p75", "p90", "p95", "p99", "p999", "max")

STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;padding:1rem;max-width:60rem}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2rem}h3{font-size:1rem;margin-bottom:.3rem}
svg{width:100%;max-width:640px;height:auto;display:block}
svg text{font:13px system-ui,sans-serif;fill:currentColor}
svg .line{stroke:currentColor}svg .faint{stroke:currentColor;opacity:.15}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;border-bottom:1px solid #8884;text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}
ul{padding-left:1.2rem}
.doubts{border-left:4px solid #d97706;padding-left:.8rem}
"""


def page(title: str, results: Sequence[Result]) -> str:
    """The whole page for results of any kinds, in order."""
    body = [f"<h1>{escape(title)}</h1>"]
    if results:
        body.append(_listing(report.environment_lines(results[0].environment)))
    for result in results:
        body += _section(result)
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<title>{escape(title)}</title><style>{STYLE}</style></head>\n'
        f"<body>\n{chr(10).join(body)}\n</body></html>\n"
    )


def _section(result: Result) -> list[str]:
    parts = [f"<h2>{escape(result.kind)}, {escape(result.created)}</h2>"]
    if result.notes:
        parts.append(f'<div class="doubts"><h3>Doubts</h3>{_listing(result.notes)}</div>')
    if result.kind == "compare":
        parts += _ratios(result.samples)
    elif result.samples:
        parts += _sample_charts(result.samples)
    return [*parts, *(_table(one) for one in tables.tables(result))]


def _listing(lines: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    note = f"<p>{escape(table.note)}</p>" if table.note else ""
    return f'<h3>{escape(table.title)}</h3><div class="wide"><table><tr>{head}</tr>{rows}</table></div>{note}'


def _ratios(samples: Sequence[Sample]) -> list[str]:
    """One chart per figure: the ratio A / B of every comparison, with its interval; the dashed line is 1."""
    found = []
    for metric in METRICS:
        rows = []
        for (workload, _, connections, first, second), chosen in report.comparisons(samples).items():
            try:
                one = report.compare(chosen, metric)
            except BenchError:
                continue
            if one is None:
                continue
            name = f"{workload} c{connections}" + (" (itself)" if first == second else "")
            rows.append(Bar(name, one.ratio.value, f"{one.ratio.value:.2f}", one.ratio.low, one.ratio.high))
        if rows:
            title = f"{metric.name}: A / B, {metric.better} is better"
            found.append(f"<h3>{escape(title)}</h3>{charts.bars(title, rows, mark=1.0)}")
    return found


def _sample_charts(samples: Sequence[Sample]) -> list[str]:
    """Per workload and load: bars for CPU, memory and throughput, and the latency percentiles."""
    scenes: dict[tuple[str, str, str, int], dict[str, list[Sample]]] = {}
    for case, group in report.groups(samples).items():
        good = usable(group)
        if good:
            scenes.setdefault((case.workload, case.mode, case.client, case.connections), {})[case.target] = good
    colours = {name: number for number, name in enumerate(dict.fromkeys(one.target for one in samples))}
    found = []
    for (workload, mode, client, connections), targets in scenes.items():
        found.append(f"<h3>{escape(f'{workload}, {mode}, {client}, {connections} connections')}</h3>")
        for metric in (METRICS[0], METRICS[1], METRICS[5]):
            found.append(_metric_bars(metric, targets, colours))
        rows = [Series(name, _medians(group), colours[name]) for name, group in targets.items()]
        found.append(charts.percentiles("latency percentiles", TICKS, rows))
    return [part for part in found if part]


def _metric_bars(metric: Metric, targets: dict[str, list[Sample]], colours: dict[str, int]) -> str:
    rows = []
    for name, group in targets.items():
        values = [value for sample in group if (value := metric.of(sample)) is not None]
        if values:
            middle = stats.median(values)
            rows.append(Bar(name, middle, report.figure(metric, middle), colour=colours[name]))
    rows.sort(key=lambda row: row.value, reverse=metric.better == "more")
    title = f"{metric.name} ({metric.better} is better)"
    return f"<p>{escape(title)}</p>{charts.bars(title, rows)}" if rows else ""


def _medians(group: Sequence[Sample]) -> list[float]:
    known = [sample.latency for sample in group if sample.latency is not None]
    return [stats.median([getattr(one, field) for one in known]) for field in FIELDS] if known else []
