"""Tables inside Markdown documents, between markers, always made from stored results. Pure.

<!-- bench:begin NAME -->            everything about bench/baselines/NAME.json
<!-- bench:begin NAME concurrency --> only one view of it (see `bench.views`)
<!-- bench:end -->
"""

from __future__ import annotations

import re
from collections.abc import Callable

from bench import publication, report
from bench.errors import BenchError
from bench.model import Result
from bench.views import VIEWS

_BLOCK = re.compile(r"(<!-- bench:begin (\S+)(?: (\S+))? -->\n)(.*?)(<!-- bench:end -->)", re.DOTALL)
# Everything that was published, with what a sceptic should know about it.
REPORT = "docs/benchmarks/index.md"
UNMEASURED = "\nNot measured yet.\n\n"


def fill(text: str, stored: Callable[[str], Result | None]) -> str:
    """The document with every block made again from its stored result; `stored` gives None for one not measured yet.

    Raises BenchError for markers that do not match, and what `stored` raises for an unknown name.
    """
    blocks = _BLOCK.findall(text)
    if len(blocks) != text.count("<!-- bench:begin") or len(blocks) != text.count("<!-- bench:end"):
        raise BenchError("a bench:begin marker without its bench:end, or the other way round")
    return _BLOCK.sub(lambda found: f"{found[1]}{block(stored(found[2]), found[3])}{found[5]}", text)


def block(result: Result | None, view: str | None) -> str:
    """What stands between two markers."""
    name = view or "everything"
    if name not in VIEWS:
        raise BenchError(f"unknown view {name!r}: choose from {', '.join(VIEWS)}")
    if result is None:
        return UNMEASURED
    shown = [report.markdown(table).rstrip() for table in VIEWS[name](result) if table.rows]
    return "\n".join(["", *(f"{one}\n" for one in [*shown, source(result)]), ""])


def source(result: Result) -> str:
    """Where the figures come from; what speaks against them is one link away."""
    day = result.created.partition("T")[0]
    return f"Measured {day}: [where, how, and every doubt]({REPORT}#{publication.anchor(publication.DOUBTS)})."
