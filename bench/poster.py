"""The one chart of the first page, as SVG for a light and for a dark page. Nothing is loaded from anywhere. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from bench import report
from bench.model import Result
from bench.views import HEADLINES

# The servers in the chart beside ours, which comes first; the others follow by their figures.
RIVALS = {
    "fastpysgi": "fastpysgi",
    "granian": "granian",
    "upstream": "uvicorn 0.54",
    "upstream:http=zttp": "uvicorn, zttp",
    "gunicorn": "gunicorn",
    "hypercorn": "hypercorn",
    "daphne": "daphne",
}
# The headlines in the chart. Repeated requests and pipelined ones, which flatter this server, are in the tables only.
DRAWN = ("fastapi-api", "starlette", "django", "varying", "log-varying")
OURS = "this fork"

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


def groups(results: Sequence[Result]) -> dict[str, dict[str, float]]:
    """For each workload of the first page, how often each server answers in the CPU time of one answer of upstream's.

    They are ratios of bursts of the same block. A server that could not serve a workload is not in it.
    """
    against: dict[str, dict[str, float]] = {}
    compared = (pair for result in results for pair in report.speedups(result.samples))
    for (workload, _, _, first, second), times in compared:
        if workload in DRAWN and first == "ours" and second in RIVALS:
            against.setdefault(workload, {})[second] = times.ratio.value
    found = {}
    for workload in DRAWN:
        times_ours = against.get(workload, {})
        if "upstream" in times_ours:
            ours = times_ours["upstream"]
            bars = {OURS: ours, **{RIVALS[name]: ours / times for name, times in times_ours.items()}}
            found[HEADLINES[workload]] = dict(sorted(bars.items(), key=lambda bar: bar[1], reverse=True))
    return found


def draw(figures: Mapping[str, Mapping[str, float]], theme: Theme) -> str:
    """Bars by workload and server; longer is better."""
    title = "Requests for the same CPU time, as multiples of uvicorn 0.54: longer is better"
    longest = max((value for bars in figures.values() for value in bars.values()), default=1.0)
    scale = (WIDTH - LABEL - FIGURE) / longest
    parts, top = [_text(0, 16, title, theme.text, bold=True)], 28.0
    for name, bars in figures.items():
        parts.append(_text(0, top + HEAD - 10, name, theme.text))
        top += HEAD
        for server, value in bars.items():
            ours = server == OURS
            colour = theme.ours if ours else theme.others
            parts.append(
                _text(LABEL - 8, top + BAR - 3, server, theme.text if ours else theme.soft, bold=ours, end=True)
            )
            length = max(1.0, value * scale)
            parts.append(f'<rect x="{LABEL}" y="{top:g}" width="{length:.1f}" height="{BAR}" rx="2" fill="{colour}"/>')
            shown = f"{value:.2f}\N{MULTIPLICATION SIGN}"
            parts.append(_text(LABEL + length + 6, top + BAR - 3, shown, theme.text if ours else theme.soft, bold=ours))
            top += BAR + GAP
        top += 4
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top:g}" width="{WIDTH}" height="{top:g}" '
        f'role="img" aria-label="{escape(title)}" font-family="{FONT}" font-size="13">'
    )
    return "\n".join([opening, f"<title>{escape(title)}</title>", *parts, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, colour: str, *, bold: bool = False, end: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    anchor = ' text-anchor="end"' if end else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}"{weight}{anchor}>{escape(text)}</text>'
