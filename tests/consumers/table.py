"""The table of `docs/compatibility.md`: what was seen of each consumer with either server."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from tests.process import ROOT

PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- consumers:begin -->", "<!-- consumers:end -->"


@dataclass(frozen=True)
class Row:
    """One way to start a consumer: how often it was asked, how it ended, and whether the servers were equal in it."""

    consumer: str
    version: str
    command: str
    upstream: str
    ours: str
    equal: str


TITLES = Row("Consumer", "Version", "Started by", "Upstream", "Ours", "Equal")


def exits(statuses: Mapping[str, int]) -> str:
    """`SIGINT: 0, SIGTERM: -15`, the statuses as Python has them."""
    return ", ".join(f"{name}: {status}" for name, status in statuses.items())


def verdict(differing: Collection[str], reasons: Collection[str]) -> str:
    """Whether the servers were equal, and the differences that are right."""
    if differing:
        return "no"
    return f"yes, but {'; '.join(reasons)}" if reasons else "yes"


def name_of(stop_by: signal.Signals | None) -> str:
    """A signal, or that there was none."""
    return stop_by.name if stop_by else "by itself"


def markdown(rows: Iterable[Row]) -> str:
    """The table as it stands in the page."""
    lines = [TITLES, *sorted(rows, key=lambda row: row.consumer.lower())]
    cells = [[getattr(line, field.name).replace("|", "\\|") for field in fields(Row)] for line in lines]
    first, *rest = ["| " + " | ".join(line) + " |" for line in cells]
    return "\n".join([first, "| " + " | ".join("---" for _ in fields(Row)) + " |", *rest])


def write(rows: Iterable[Row], page: Path = PAGE) -> None:
    """Put rows into the page; those of consumers that were not run stay."""
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    table, _, after = rest.partition(END)
    known = {row.consumer: row for row in parse(table)}
    known |= {row.consumer: row for row in rows}
    page.write_text(f"{before}{BEGIN}\n\n{markdown(known.values())}\n\n{END}{after}", "utf-8")


def parse(table: str) -> list[Row]:
    """The rows of a table that `markdown` has made."""
    lines = [line for line in table.splitlines() if line.startswith("| ")][2:]
    return [Row(*(cell.replace("\\|", "|") for cell in line.strip("| ").split(" | "))) for line in lines]
