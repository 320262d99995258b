"""Results as one HTML page with charts: nothing is loaded from anywhere, and it fits a phone. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from bench import charts, checks, report, stats
from bench.charts import Bar, Series
from bench.model import Result, Sample, usable
from bench.publication import Section
from bench.report import METRICS, Metric, Table
from bench.views import VIEWS

# CPU per request, memory, throughput: what bars are drawn of.
DRAWN = (METRICS[0], METRICS[5], METRICS[1])

STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8881;--accent:#2563eb}
@media (prefers-color-scheme:dark){:root{--accent:#7aa2ff}}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;padding:1rem;max-width:72rem;overflow-wrap:anywhere}
h1{font-size:1.6rem;line-height:1.2;margin:.5rem 0}
h2{font-size:1.25rem;margin:2.5rem 0 .5rem;padding-top:.5rem;border-top:2px solid var(--accent)}
h3{font-size:1rem;margin:1rem 0 .4rem}
p{margin:.4rem 0 .8rem;max-width:46rem}
small,.where{font-size:.82rem;opacity:.8}
a{color:var(--accent)}
nav ol{columns:2 18rem;padding-left:1.4rem;margin:.5rem 0}
.cards,.charts{display:grid;gap:1rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,9.5rem),1fr))}
.charts{grid-template-columns:repeat(auto-fill,minmax(min(100%,20rem),1fr))}
.card,figure{background:var(--soft);border-radius:.5rem;padding:.8rem;margin:0}
.card b{display:block;font-size:1.7rem;line-height:1.2;color:var(--accent)}
.card span{display:block;font-size:.82rem}
figcaption{font-size:.85rem;margin-bottom:.5rem}
svg{width:100%;max-width:26rem;height:auto;display:block}
svg text{font:12.5px system-ui,sans-serif;fill:currentColor}
svg .line{stroke:currentColor}svg .faint{stroke:currentColor;opacity:.18}svg .track{fill:currentColor;opacity:.07}
.wide{overflow-x:auto;margin:.3rem 0}
table{border-collapse:collapse;font-size:.82rem;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap;vertical-align:top}
th.text,td.text{text-align:left}
td.long{white-space:normal;min-width:14rem}
th:first-child,td:first-child{position:sticky;left:0;background:Canvas}
@media (max-width:44rem){
.wide table,.wide tr,.wide td{display:block}.wide tr.head{display:none}
.wide tr{background:var(--soft);border-radius:.5rem;padding:.5rem .7rem;margin:.6rem 0}
.wide td{display:flex;justify-content:space-between;gap:1rem;white-space:normal;border:0;padding:.1rem 0}
.wide td{text-align:right}
.wide td::before{content:attr(data-column);opacity:.7;text-align:left}
.wide td:first-child{position:static;background:none;font-weight:600}
.wide td.long{min-width:0}
}
details{margin:.6rem 0;border:1px solid var(--line);border-radius:.5rem;padding:.2rem .8rem}
summary{cursor:pointer;padding:.35rem 0;font-weight:600}
details.doubts{border-color:#d97706}
ul{padding-left:1.2rem;font-size:.9rem}
pre{overflow-x:auto;font-size:.8rem;background:var(--soft);padding:.6rem;border-radius:.5rem}
"""


def page(title: str, sections: Sequence[Section]) -> str:
    """The whole page."""
    body = []
    if sections:
        first = sections[0].result
        body.append(f'<p class="where">{escape(report.environment_text(first.environment))}</p>')
    if len(sections) > 1:
        links = (f'<li><a href="#{escape(one.name)}">{escape(one.title)}</a></li>' for one in sections)
        body.append(f"<nav><ol>{''.join(links)}</ol></nav>")
    for one in sections:
        body += _section(one)
    return _document(title, body)


def plain(title: str, tables: Sequence[Table]) -> str:
    """A page of tables alone."""
    return _document(title, [_table(table) for table in tables])


def _document(title: str, body: Sequence[str]) -> str:
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
    text = chr(10).join([f"<h1>{escape(title)}</h1>", *body])
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<title>{escape(title)}</title><style>{STYLE}</style></head>\n'
        f"<body>\n{text}\n</body></html>\n"
    )


def _section(section: Section) -> list[str]:
    result = section.result
    parts = [f'<h2 id="{escape(section.name)}">{escape(section.title)}</h2>']
    if section.about:
        parts.append(f"<p>{escape(section.about)}</p>")
    if "headline" in section.shown:
        parts.append(_headline(result))
    parts += [_table(table) for table in section.tables(without=("everything", "headline"))]
    if result.samples:
        parts += _ratios(result.samples)
        parts += _scenes(result.samples)
    parts.append(_charts(_records(result)))
    every = VIEWS["everything"](result)
    if result.samples:
        every += [report.latency_table(result.samples), report.memory_table(result.samples)]
        # The charts above say the same: tables are for those who want every digit.
        shown = "".join(_table(table) for table in every if table.rows)
        parts.append(f"<details><summary>Tables with every figure</summary>{shown}</details>")
    else:
        parts += [_table(table) for table in every]
    doubts = checks.of(result)
    if doubts:
        said = f"<summary>Doubts ({len(doubts)})</summary>{_listing(doubts)}"
        parts.append(f'<details class="doubts">{said}</details>')
    where = f"Measured {result.created}. {report.environment_text(result.environment)}"
    pre = f"<pre>{escape(section.measured_by())}</pre>" if section.commands else ""
    parts.append(f"<details><summary>How and where</summary><p>{escape(where)}</p>{pre}</details>")
    return [part for part in parts if part]


def _headline(result: Result) -> str:
    """The first figures as cards."""
    [table] = VIEWS["headline"](result)
    cards = []
    for name, connections, before, after, times in table.rows:
        value, _, interval = times.partition(" ")
        said = f"{name}, {connections} connections: {after} of server CPU per request, upstream {before} {interval}"
        cards.append(f'<div class="card"><b>{escape(value)}&times;</b><span>{escape(said)}</span></div>')
    return (
        f'<h3>CPU per request, upstream over this fork</h3><div class="cards">{"".join(cards)}</div>' if cards else ""
    )


def _listing(lines: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _rows(table: Table) -> str:
    text = [report.is_text(table, number) for number in range(len(table.columns))]
    head = "".join(_cell("th", cell, left) for cell, left in zip(table.columns, text, strict=True))
    rows = (
        "".join(_cell("td", cell, left, name) for cell, left, name in zip(row, text, table.columns, strict=True))
        for row in table.rows
    )
    note = f"<p><small>{escape(table.note)}</small></p>" if table.note else ""
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="wide"><table><tr class="head">{head}</tr>{body}</table></div>{note}'


def _cell(tag: str, text: str, left: bool, column: str = "") -> str:
    """A cell; narrow screens show its `column` beside it."""
    kind = "text long" if left and len(text) > 40 else "text" if left else ""
    attributes = {"class": kind, "data-column": column}
    written = "".join(f' {name}="{escape(value)}"' for name, value in attributes.items() if value)
    return f"<{tag}{written}>{escape(text)}</{tag}>"


def _table(table: Table) -> str:
    return f"<h3>{escape(table.title)}</h3>{_rows(table)}"


def _figure(caption: str, chart: str) -> str:
    return f"<figure><figcaption>{escape(caption)}</figcaption>{chart}</figure>" if chart else ""


def _charts(figures: Sequence[str]) -> str:
    shown = "".join(figure for figure in figures if figure)
    return f'<div class="charts">{shown}</div>' if shown else ""


def _colours(names: Iterable[str]) -> dict[str, int]:
    """A colour for each target, the same all over a section: ours has the first."""
    ordered = sorted(set(names), key=lambda name: (not name.startswith("ours"), name))
    return {name: number for number, name in enumerate(ordered)}


def _ratios(samples: Sequence[Sample]) -> list[str]:
    """For each workload, how many times the CPU of the first server the others need; the line is 1, equality."""
    colours = _colours(one.target for one in samples)
    scenes: dict[tuple[str, str, int, str], list[Bar]] = {}
    for (workload, mode, connections, first, second), found in report.speedups(samples):
        if first != second:
            one = found.ratio
            # A few blocks give an interval that would dwarf all bars.
            low, high = (one.low, one.high) if found.blocks >= report.FEWEST_BLOCKS else (None, None)
            bar = Bar(second, one.value, f"{one.value:.2f}", low, high, colours[second])
            scenes.setdefault((workload, mode, connections, first), []).append(bar)
    figures = []
    for (workload, mode, connections, first), rows in scenes.items():
        where = f"{workload}, {connections} connections" + (f", {mode}" if mode != "single" else "")
        rows.sort(key=lambda row: row.value)
        caption = f"{where}: CPU per request, times that of {first}; above the line (1) it needs more"
        figures.append(_figure(caption, charts.bars(caption, rows, mark=1.0)))
    return ["<h3>CPU ratios, by pairs</h3>", _charts(figures)] if figures else []


def _scenes(samples: Sequence[Sample]) -> list[str]:
    """For each workload and load: bars for CPU, throughput and memory, and the latency percentiles."""
    colours = _colours(one.target for one in samples)
    scenes: dict[tuple[str, str, str, int], dict[str, list[Sample]]] = {}
    for case, group in report.groups(samples).items():
        if good := usable(group):
            scenes.setdefault((case.workload, case.mode, case.client, case.connections), {})[case.target] = good
    found = []
    for number, ((workload, mode, client, connections), targets) in enumerate(scenes.items()):
        figures = [_metric(metric, targets, colours) for metric in DRAWN]
        lines = [Series(name, _percentiles(group), colours[name]) for name, group in targets.items()]
        title = f"{workload}, {mode}, {client}, {connections:,} connections"
        caption = "latency percentiles, logarithmic"
        drawn = charts.percentiles(f"{title}: {caption}", tuple(report.PERCENTILES.values()), lines)
        figures.append(_figure(caption, drawn))
        shown = " open" if number == 0 else ""
        found.append(f"<details{shown}><summary>{escape(title)}</summary>{_charts(figures)}</details>")
    return found


def _metric(metric: Metric, targets: Mapping[str, list[Sample]], colours: Mapping[str, int]) -> str:
    rows = []
    for name, group in targets.items():
        values = [value for sample in group if (value := metric.of(sample)) is not None]
        if values:
            middle = stats.median(values)
            rows.append(Bar(name, middle, report.figure(metric, middle), min(values), max(values), colours[name]))
    rows.sort(key=lambda row: row.value, reverse=metric.better == "more")
    caption = f"{metric.name} ({metric.better} is better)"
    return _figure(caption, charts.bars(caption, rows))


# What bars are drawn of where a result has no bursts: figures of each target, or of each case.
CHARTED: dict[str, tuple[tuple[str, str, Callable[[float], str]], ...]] = {
    "memory": (
        ("settled_pss", "memory after load, PSS", lambda value: f"{report.mib(value)} MiB"),
        ("idle", "each idle connection, RSS", lambda value: f"{value / 1024:.2f} KiB"),
        ("allocations", "calls of the allocator per request", lambda value: f"{value:.1f}"),
    ),
    "startup": (
        ("ready", "to the first answer", report.micros),
        ("import", "CPU of the import", report.micros),
        ("stop", "to stop", report.micros),
    ),
    "micro": (
        ("instructions", "instructions per operation", lambda value: f"{value:,.0f}"),
        ("ns", "time per operation", lambda value: report.micros(value / 1e9)),
        ("allocations", "calls of the allocator per operation", lambda value: f"{value:.1f}"),
    ),
}


def _records(result: Result) -> list[str]:
    """Bars of the figures of `CHARTED`; less is better in all of them."""
    records = {name: _flat(one) for name, one in result.data.get("records", {}).items()}
    colours, figures = _colours(records), []
    for key, title, form in CHARTED.get(result.kind, ()):
        known = {name: one[key] for name, one in records.items() if key in one}
        rows = [Bar(name, max(0.0, value), form(value), colour=colours[name]) for name, value in known.items()]
        rows.sort(key=lambda row: row.value)
        caption = f"{title} (less is better)"
        figures.append(_figure(caption, charts.bars(caption, rows)))
    return figures


def _flat(record: Any) -> dict[str, float]:
    """The figures of one target: medians of several starts, the largest number of idle connections."""
    if isinstance(record, list):
        return {key: stats.median([one[key] for one in record]) for key in (record[0] if record else {})}
    found = {key: value for key, value in record.items() if isinstance(value, (int, float))}
    idle = record.get("connections")
    return {**found, "idle": idle[-1]["rss"]} if idle else found


def _percentiles(group: Sequence[Sample]) -> list[float]:
    known = [sample.latency for sample in group if sample.latency is not None]
    return [stats.median([getattr(one, field) for one in known]) for field in report.PERCENTILES] if known else []
