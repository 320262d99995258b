"""Charts as SVG text: no script, no network, readable at the width of a phone. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LABEL, VALUE, ROW = 640, 190, 110, 26
COLOURS = ("#2563eb", "#d97706", "#059669", "#9333ea", "#dc2626", "#0891b2", "#65a30d", "#64748b")


@dataclass(frozen=True)
class Bar:
    """One bar; `text` is the figure as it is written beside it. `low` and `high` draw a whisker.

    `colour` is a number, the same for the same thing in every chart of a page.
    """

    label: str
    value: float
    text: str
    low: float | None = None
    high: float | None = None
    colour: int = 0


def bars(title: str, rows: Sequence[Bar], *, mark: float | None = None) -> str:
    """Horizontal bars from zero; `mark` draws a line at a value, such as a ratio of 1."""
    if not rows:
        return ""
    largest = max(max(row.value, row.high or 0.0) for row in rows) or 1.0
    room = WIDTH - LABEL - VALUE
    height = ROW * len(rows) + 8
    parts = [_open(title, height)]
    for number, row in enumerate(rows):
        top = ROW * number + 4
        length = max(1.0, row.value / largest * room)
        colour = COLOURS[row.colour % len(COLOURS)]
        parts.append(_text(LABEL - 8, top + 15, row.label, "end"))
        parts.append(f'<rect x="{LABEL}" y="{top}" width="{length:.1f}" height="{ROW - 8}" rx="2" fill="{colour}"/>')
        end = length
        if row.low is not None and row.high is not None:
            low, high = row.low / largest * room, row.high / largest * room
            parts.append(_line(LABEL + low, top + 9, LABEL + high, top + 9, 2))
            end = max(length, high)
        parts.append(_text(LABEL + end + 6, top + 15, row.text, "start"))
    if mark is not None and mark <= largest:
        place = LABEL + mark / largest * room
        parts.append(_line(place, 0, place, height, 1, dashes="4 3"))
    return "".join([*parts, "</svg>"])


@dataclass(frozen=True)
class Series:
    """One line of a percentile chart: values in seconds, one per tick."""

    label: str
    values: Sequence[float]
    colour: int = 0


def percentiles(title: str, ticks: Sequence[str], rows: Sequence[Series]) -> str:
    """Latency percentiles on a logarithmic scale, one line per target."""
    rows = [row for row in rows if row.values and min(row.values) > 0]
    if not rows:
        return ""
    low = 10 ** math.floor(math.log10(min(min(row.values) for row in rows)))
    high = 10 ** math.ceil(math.log10(max(max(row.values) for row in rows)))
    high = high if high > low else low * 10
    top, bottom, left, right = 10, 210, 70, WIDTH - 20
    height = bottom + 40 + 20 * len(rows)

    def across(number: int) -> float:
        return left + (right - left) * number / max(1, len(ticks) - 1)

    def down(value: float) -> float:
        return bottom - (bottom - top) * math.log(value / low) / math.log(high / low)

    parts = [_open(title, height)]
    decade = low
    while decade <= high * 1.001:
        parts.append(_line(left, down(decade), right, down(decade), 1, faint=True))
        parts.append(_text(left - 6, down(decade) + 4, _time(decade), "end"))
        decade *= 10
    parts += [_text(across(number), bottom + 20, tick, "middle") for number, tick in enumerate(ticks)]
    for number, row in enumerate(rows):
        colour = COLOURS[row.colour % len(COLOURS)]
        points = " ".join(f"{across(place):.1f},{down(value):.1f}" for place, value in enumerate(row.values))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        legend = bottom + 40 + 20 * number
        parts.append(f'<rect x="{left}" y="{legend - 9}" width="14" height="10" fill="{colour}"/>')
        parts.append(_text(left + 22, legend, row.label, "start"))
    return "".join([*parts, "</svg>"])


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:g} s"
    return f"{seconds * 1e3:g} ms" if seconds >= 0.001 else f"{seconds * 1e6:g} us"


def _open(title: str, height: float) -> str:
    title = escape(title)
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{title}"><title>{title}</title>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, width: float, *, dashes: str = "", faint: bool = False) -> str:
    style = f' stroke-dasharray="{dashes}"' if dashes else ""
    kind = "faint" if faint else "line"
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line class="{kind}" {ends} stroke-width="{width:g}"{style}/>'
