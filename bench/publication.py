"""Stored results as one document: what was measured, how, and what a sceptic should know about it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench import parts, report, views
from bench.model import MEASURED, Result
from bench.report import Table

# The heading under which a document says where its figures come from.
DOUBTS = "Where, when, and what to doubt"


@dataclass(frozen=True)
class Section:
    """One result in a document. `commands` are what measured it; `shown` are names of `bench.views`."""

    name: str
    title: str
    result: Result
    about: str = ""
    commands: tuple[str, ...] = ()
    shown: tuple[str, ...] = ("everything",)

    def tables(self, *, without: Sequence[str] = ()) -> list[Table]:
        """The tables of all views but some; those without a row are left out."""
        found = [table for name in self.shown if name not in without for table in views.VIEWS[name](self.result)]
        return [table for table in found if table.rows]


def of_part(name: str, result: Result) -> Section:
    """The section of a published part. How it was measured is told by the result itself: parts change, figures stay."""
    part = parts.find(name)
    told = result.data.get(MEASURED, {})
    commands = tuple(told.get("commands", part.commands))
    return Section(part.name, part.title, result, told.get("about", part.about), commands, part.views)


def of_result(result: Result) -> Section:
    """The section of any stored result."""
    return Section(result.kind, result.kind, result)


def published(stored: Callable[[str], Result | None]) -> list[Section]:
    """A section for every part that has been measured, in the order of the parts."""
    found = ((part.name, stored(part.name)) for part in (*parts.PARTS, *parts.LONG))
    return [of_part(name, result) for name, result in found if result is not None]


def markdown(title: str, sections: Sequence[Section], introduction: str = "") -> str:
    """The whole document in Markdown: the figures, then once for all of them where they come from and what to doubt."""
    text = [f"# {title}", *([introduction] if introduction else [])]
    if len(sections) > 1:
        names = [*(one.title for one in sections), DOUBTS]
        text.append("\n".join(f"- [{name}](#{anchor(name)})" for name in names))
    for one in sections:
        text += [f"## {one.title}", *([one.about] if one.about else [])]
        text += [report.markdown(table).rstrip() for table in one.tables()]
        if one.commands:
            lines = "\n".join(f"python -m bench {line}" for line in one.commands)
            text.append(f"<details><summary>Measured by</summary>\n\n```shell\n{lines}\n```\n\n</details>")
    return "\n\n".join([*text, *_doubts(sections)]) + "\n"


def _doubts(sections: Sequence[Section]) -> list[str]:
    """Where and when everything was measured, and what speaks against it: each thing once, with its sections."""
    places: dict[str, list[str]] = {}
    doubts: dict[str, list[str]] = {}
    for one in sections:
        titles = places.setdefault(report.environment_text(one.result.environment), [])
        titles.append(f"{one.title} ({one.result.created})")
        for note in one.result.notes:
            doubts.setdefault(note, []).append(one.title)
    text = [f"## {DOUBTS}", *(f"{'; '.join(titles)}: {place}." for place, titles in places.items())]
    if doubts:
        text.append("\n".join(f"- {note} ({_where(titles, len(sections))})" for note, titles in doubts.items()))
    return text


def _where(titles: Sequence[str], every: int) -> str:
    return "everywhere" if len(titles) == every > 1 else "; ".join(titles)


def anchor(title: str) -> str:
    """The anchor that Markdown viewers make of a heading."""
    return "".join(one for one in title.lower().replace(" ", "-") if one.isalnum() or one == "-")
