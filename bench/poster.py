"""The one chart of the first page, as SVG for a light and for a dark page. Nothing is loaded from anywhere. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

from bench import report
from bench.errors import BenchError
from bench.model import Result, Sample
from bench.stats import Interval
from bench.views import HEADLINES

OURS = "this fork"
# The servers in the chart, by their figures.
SHOWN = {
    "ours": OURS,
    "fastpysgi": "fastpysgi",
    "granian": "granian",
    "upstream": "uvicorn 0.54",
    "upstream:http=zttp": "uvicorn, zttp",
    "gunicorn": "gunicorn",
    "hypercorn": "hypercorn",
    "daphne": "daphne",
}
# The headlines in the chart: those of the first page. Other repeated requests, and pipelined ones, flatter this server.
DRAWN = ("fastapi-api", "starlette", "django", "varying", "log-varying", "echo")

WIDTH, LABEL, FIGURE = 720, 110, 52
BAR, GAP, HEAD = 15, 4, 30
FONT = "-apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"


@dataclass(frozen=True)
class Theme:
    """Colours of text, of secondary text, of our bars and of the others'."""

    text: str
    soft: str
    ours: str
    others: str


THEMES = {
    "light": Theme("#1f2328", "#59636e", "#2563eb", "#c3cad3"),
    "dark": Theme("#f0f6fc", "#9198a1", "#58a6ff", "#3d444d"),
}


def groups(results: Sequence[Result]) -> dict[str, dict[str, Interval]]:
    """For each workload of the first page, how often each server answers in the CPU time of one answer of upstream's.

    They are ratios of bursts of the same block. A server that could not serve a workload is not in it.
    """
    found: dict[str, dict[str, Interval]] = {}
    for workload in DRAWN:
        samples = [one for result in results for one in result.samples if one.workload == workload]
        bars = {shown: ratio for name, shown in SHOWN.items() if (ratio := _beside_upstream(name, samples))}
        if {OURS, SHOWN["upstream"]} <= set(bars):
            found[HEADLINES[workload]] = dict(sorted(bars.items(), key=lambda bar: bar[1].value, reverse=True))
    return found


def _beside_upstream(name: str, samples: Sequence[Sample]) -> Interval | None:
    """CPU per request of upstream over that of a server; None if one of them was not measured, or failed."""
    if name == "upstream":
        return Interval(1.0, 1.0, 1.0) if any(one.target == name for one in samples) else None
    sides = {"upstream": "A", name: "B"}
    # This fork takes part a second time where a comparison has a noise floor.
    known = [one for one in samples if one.target in sides and (one.target != "ours" or one.side == "A")]
    try:
        found = report.compare([replace(one, side=sides[one.target]) for one in known], report.METRICS[0])
    except BenchError:
        return None
    return found.ratio if found else None


def draw(figures: Mapping[str, Mapping[str, Interval]], theme: Theme) -> str:
    """Bars by workload and server, with lines for the intervals; longer is better."""
    title = "Requests for the same CPU time, as multiples of uvicorn 0.54, with 95% intervals: longer is better"
    longest = max((max(_ends(one)) for bars in figures.values() for one in bars.values()), default=1.0)
    scale = (WIDTH - LABEL - FIGURE) / longest
    parts, top = [_text(0, 16, title, theme.text, bold=True)], 28.0
    for name, bars in figures.items():
        parts.append(_text(0, top + HEAD - 10, name, theme.text))
        top += HEAD
        for server, one in bars.items():
            ours = server == OURS
            colour = theme.ours if ours else theme.others
            parts.append(
                _text(LABEL - 8, top + BAR - 3, server, theme.text if ours else theme.soft, bold=ours, end=True)
            )
            length = max(1.0, one.value * scale)
            parts.append(f'<rect x="{LABEL}" y="{top:g}" width="{length:.1f}" height="{BAR}" rx="2" fill="{colour}"/>')
            low, high = (LABEL + end * scale for end in _ends(one))
            if high > low:
                parts.append(f'<path d="M{low:.1f} {top + BAR / 2:g}H{high:.1f}" stroke="{theme.text}"/>')
            shown = f"{one.value:.2f}\N{MULTIPLICATION SIGN}"
            parts.append(
                _text(
                    max(LABEL + length, high) + 6, top + BAR - 3, shown, theme.text if ours else theme.soft, bold=ours
                )
            )
            top += BAR + GAP
        top += 4
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top:g}" width="{WIDTH}" height="{top:g}" '
        f'role="img" aria-label="{escape(title)}" font-family="{FONT}" font-size="13">'
    )
    return "\n".join([opening, f"<title>{escape(title)}</title>", *parts, "</svg>"]) + "\n"


def _ends(one: Interval) -> tuple[float, float]:
    """From where to where its line is drawn: one of a single block is not known."""
    return (one.value, one.value) if math.isinf(one.high) else (one.low, one.high)


def _text(x: float, y: float, text: str, colour: str, *, bold: bool = False, end: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    anchor = ' text-anchor="end"' if end else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}"{weight}{anchor}>{escape(text)}</text>'
