"""Tables inside Markdown documents, between markers, always made from stored results. Pure.

<!-- bench:begin NAME -->            everything about bench/baselines/NAME.json
<!-- bench:begin NAME concurrency --> only one view of it (see `bench.views`)
<!-- bench:begin all losses -->       that view of every part that was measured; tables of one kind become one
<!-- bench:end -->
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from bench import publication, report
from bench.errors import BenchError
from bench.model import Result
from bench.report import Table
from bench.views import VIEWS

_BLOCK = re.compile(r"(<!-- bench:begin (\S+)(?: (\S+))? -->\n)(.*?)(<!-- bench:end -->)", re.DOTALL)
# All published results with their doubts.
REPORT = "docs/benchmarks/index.md"
# In place of a part's name: every part.
EVERY_PART = "all"
UNMEASURED = "\nNot measured yet.\n\n"


def fill(text: str, stored: Callable[[str], Result | None]) -> str:
    """The document with every block made again from its stored result; `stored` gives None for one not measured yet.

    Raises BenchError for markers that do not match, and what `stored` raises for an unknown name.
    """
    blocks = _BLOCK.findall(text)
    if len(blocks) != text.count("<!-- bench:begin") or len(blocks) != text.count("<!-- bench:end"):
        raise BenchError("a bench:begin marker without its bench:end, or the other way round")

    def filled(found: re.Match[str]) -> str:
        if found[2] == EVERY_PART:
            results = [section.result for section in publication.published(stored)]
        else:
            result = stored(found[2])
            results = [] if result is None else [result]
        return f"{found[1]}{block(results, found[3])}{found[5]}"

    return _BLOCK.sub(filled, text)


def block(results: Sequence[Result], view: str | None) -> str:
    """The text between two markers."""
    name = view or "everything"
    if name not in VIEWS:
        raise BenchError(f"unknown view {name!r}: choose from {', '.join(VIEWS)}")
    if not results:
        return UNMEASURED
    found = [(result, [table for table in VIEWS[name](result) if table.rows]) for result in results]
    joined = _joined(table for _, tables in found for table in tables)
    shown = [report.markdown(table).rstrip() for table in joined]
    # Parts without a table in this view are not named as its source.
    told = source([result for result, tables in found if tables] or results)
    return "\n".join(["", *(f"{one}\n" for one in [*shown, told]), ""])


def _joined(tables: Iterable[Table]) -> list[Table]:
    """Tables of the same title, columns and note as one, with the rows of all."""
    kinds: dict[Table, list[tuple[str, ...]]] = {}
    for table in tables:
        kinds.setdefault(replace(table, rows=()), []).extend(table.rows)
    return [replace(kind, rows=tuple(rows)) for kind, rows in kinds.items()]


def source(results: Sequence[Result]) -> str:
    """Where the figures come from; what speaks against them is one link away."""
    days = sorted({result.created.partition("T")[0] for result in results})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"Measured {when}: [where, how, and what to doubt]({REPORT}#{publication.anchor(publication.DOUBTS)})."
