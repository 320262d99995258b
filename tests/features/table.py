"""The table of `docs/features.md`: a cell says what was seen of a feature with a server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.process import ROOT

PAGE = ROOT / "docs" / "features.md"
BEGIN, END = "<!-- features:begin -->", "<!-- features:end -->"

Finding = Mapping[str, bool]
"""What was seen, by part of the feature; a feature that has no parts has one without a name."""

Cells = Mapping[str, Mapping[str, str]]
"""Of each feature what was seen with each server, both by name."""


class NotTried(Exception):
    """Why a feature cannot be seen on this machine."""


@dataclass(frozen=True)
class Seen:
    """A finding, and by which options; `own_code` if these take a function that the user has to write."""

    finding: Finding
    options: str = ""
    own_code: bool = False

    def __str__(self) -> str:
        present = [part for part, there in self.finding.items() if there]
        missing = [part for part, there in self.finding.items() if not there]
        if not present:
            return f"no, with {self.options}" if self.options else "no"
        if missing:
            lacks = f"not {', '.join(missing)}"
            verdict = f"in part: {lacks if len(missing) < len(present) else ', '.join(present) + ' only'}"
        else:
            verdict = "in part: with custom code" if self.own_code else "yes"
        if missing and self.own_code:
            verdict += ", with custom code"
        return f"{verdict} ({self.options})" if self.options else verdict


@dataclass(frozen=True)
class Row:
    """A feature: the group it belongs to, its name on the page, and how it is tried."""

    group: str
    name: str
    about: str


def markdown(rows: Sequence[Row], servers: Mapping[str, str], cells: Cells, notes: Iterable[str] = ()) -> str:
    """The text between the markers: a table for each group.

    `servers` are the titles of the columns, by name.
    """
    lines = [*notes]
    for group in dict.fromkeys(row.group for row in rows):
        of_group = [row for row in rows if row.group == group]
        lines += ["", f"## {group}", "", _line(["Feature", *servers.values()]), _line(["---"] * (len(servers) + 1))]
        lines += [_line([row.name, *(cells[row.name][server] for server in servers)]) for row in of_group]
    return "\n".join(lines).strip()


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def parse(text: str, servers: Sequence[str]) -> dict[str, dict[str, str]]:
    """The cells of what `markdown` has made."""
    found: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        if line.startswith("| ") and not line.startswith(("| Feature | ", "| --- | ")):
            cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            found[cells[0]] = dict(zip(servers, cells[1:], strict=True))
    return found


def between_markers(page: Path = PAGE) -> str:
    """What the page says now."""
    return page.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]


def write(text: str, page: Path = PAGE) -> None:
    """Put it between the markers of the page; raises ValueError if it has none."""
    before, begin, rest = page.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page.name} has no place for the table")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", "utf-8")
