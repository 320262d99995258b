"""Charts as SVG text, as wide as a phone, side by side on wider screens. No script, no network. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

# In the units of the drawing, which are about the pixels of a phone: text keeps its size.
WIDTH, ROW, BAR = 340, 36, 11
COLOURS = (
    *("#2563eb", "#d97706", "#059669", "#9333ea", "#dc2626"),
    *("#0891b2", "#65a30d", "#64748b", "#db2777", "#a16207"),
)


@dataclass(frozen=True)
class Bar:
    """One bar; `text` is the figure as it is written beside its label. `low` and `high` draw a whisker.

    `colour` is a number, the same for the same thing in every chart of a page.
    """

    label: str
    value: float
    text: str
    low: float | None = None
    high: float | None = None
    colour: int = 0


def bars(title: str, rows: Sequence[Bar], *, mark: float | None = None) -> str:
    """Horizontal bars from zero, each below its label; `mark` draws a line at a value, such as a ratio of 1."""
    if not rows:
        return ""
    largest = max(max(row.value, row.high or 0.0, mark or 0.0) for row in rows) or 1.0
    scale = (WIDTH - 4) / largest
    parts = [_open(title, ROW * len(rows))]
    for number, row in enumerate(rows):
        top = ROW * number
        colour = COLOURS[row.colour % len(COLOURS)]
        parts.append(_text(0, top + 13, row.label, "start"))
        parts.append(_text(WIDTH, top + 13, row.text, "end", strong=True))
        parts.append(f'<rect class="track" x="0" y="{top + 18}" width="{WIDTH}" height="{BAR}" rx="2"/>')
        width = max(1.0, row.value * scale)
        parts.append(f'<rect x="0" y="{top + 18}" width="{width:.1f}" height="{BAR}" rx="2" fill="{colour}"/>')
        if row.low is not None and row.high is not None:
            middle = top + 18 + BAR / 2
            parts.append(_line(row.low * scale, middle, row.high * scale, middle, 2))
        if mark is not None:
            parts.append(_line(mark * scale, top + 16, mark * scale, top + 20 + BAR, 1.5))
    return "".join([*parts, "</svg>"])


@dataclass(frozen=True)
class Series:
    """One line of a percentile chart: values in seconds, one per tick."""

    label: str
    values: Sequence[float]
    colour: int = 0


def percentiles(title: str, ticks: Sequence[str], rows: Sequence[Series]) -> str:
    """Latency percentiles on a logarithmic scale, one line for each target."""
    rows = [row for row in rows if row.values and min(row.values) > 0]
    if not rows:
        return ""
    low = 10 ** math.floor(math.log10(min(min(row.values) for row in rows)))
    high = 10 ** math.ceil(math.log10(max(max(row.values) for row in rows)))
    high = high if high > low else low * 10
    top, bottom, left, right = 8, 188, 52, WIDTH - 16
    legend = bottom + 42

    def across(number: int) -> float:
        return left + (right - left) * number / max(1, len(ticks) - 1)

    def down(value: float) -> float:
        return bottom - (bottom - top) * math.log(value / low) / math.log(high / low)

    parts = [_open(title, legend + 18 * ((len(rows) + 1) // 2) - 8)]
    for power in range(round(math.log10(high / low)) + 1):
        decade = low * 10**power
        parts.append(_line(left, down(decade), right, down(decade), 1, faint=True))
        parts.append(_text(left - 6, down(decade) + 4, _time(decade), "end"))
    parts += [_text(across(number), bottom + 18, tick, "middle") for number, tick in enumerate(ticks)]
    for number, row in enumerate(rows):
        colour = COLOURS[row.colour % len(COLOURS)]
        points = " ".join(f"{across(place):.1f},{down(value):.1f}" for place, value in enumerate(row.values))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        # Two columns: seven servers fit below the lines.
        x, y = WIDTH / 2 * (number % 2), legend + 18 * (number // 2)
        parts.append(f'<rect x="{x:.0f}" y="{y - 9}" width="12" height="10" rx="2" fill="{colour}"/>')
        parts.append(_text(x + 18, y, row.label, "start"))
    return "".join([*parts, "</svg>"])


def _time(seconds: float) -> str:
    if seconds > 0.999:
        return f"{seconds:.0f} s"
    return f"{seconds * 1e3:.0f} ms" if seconds > 0.000999 else f"{seconds * 1e6:.0f} us"


def _open(title: str, height: float) -> str:
    title = escape(title)
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{title}"><title>{title}</title>'


def _text(x: float, y: float, text: str, anchor: str, *, strong: bool = False) -> str:
    weight = ' font-weight="600"' if strong else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, width: float, *, faint: bool = False) -> str:
    kind = "faint" if faint else "line"
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line class="{kind}" {ends} stroke-width="{width:g}"/>'
