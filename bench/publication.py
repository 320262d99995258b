"""Stored results as one document: what was measured, how, and what a sceptic should know about it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench import parts, report, views
from bench.model import MEASURED, Result
from bench.report import Table


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
    """The whole document in Markdown."""
    text = [f"# {title}", *([introduction] if introduction else [])]
    if len(sections) > 1:
        text.append("\n".join(f"- [{one.title}](#{anchor(one.title)})" for one in sections))
    for one in sections:
        text += [f"## {one.title}", *([one.about] if one.about else []), body(one.result, one.tables())]
        if one.commands:
            text.append("Measured by:")
            text.append("```shell\n" + "\n".join(f"python -m bench {line}" for line in one.commands) + "\n```")
    return "\n\n".join(text) + "\n"


def body(result: Result, shown: Sequence[Table]) -> str:
    """Tables with their environment before, and the doubts about them behind."""
    text = [f"Measured {result.created} on {report.environment_text(result.environment)}."]
    text += [report.markdown(table).rstrip() for table in shown]
    if result.notes:
        notes = "\n".join(f"- {note}" for note in result.notes)
        text.append(f"<details><summary>Doubts ({len(result.notes)})</summary>\n\n{notes}\n\n</details>")
    return "\n\n".join(text)


def anchor(title: str) -> str:
    """The anchor that Markdown viewers make of a heading."""
    return "".join(one for one in title.lower().replace(" ", "-") if one.isalnum() or one == "-")
