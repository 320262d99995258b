"""Stored results as one document: results, methods and doubts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from bench import checks, parts, report, views
from bench.checks import Seen
from bench.model import MEASURED, Result
from bench.report import Table
from bench.scenario import WORKLOADS

# The heading under which a document says where its figures come from.
DOUBTS = "Where, when, and what to doubt"
# What servers are started for unless a workload says otherwise.
PLAIN = "HTTP/1.1"
# Why a server is measured with options, too.
VARIANT = "a variant, to compare one setting"
NO_SERVER = "no ASGI server, a library on its own"
# Beginnings of the titles of tables that only the report for a browser has: what follows from other tables, and what
# interests developers of the server.
ONLY_IN_REPORT = (
    "where this fork does not win",  # `OPTIMIZATIONS.md` has those of all parts in one table
    "large bodies",
    "newcomers at a busy server",
    "CPU per request: median",
    "hello through httpx",
    "idle WebSockets after",
    "work for allocator",
    "workers: how many",
    "workers: mixed",
    "workers: parallel",
    "workers: peak",
    "workers: profiles",
    "workers: sustained",
)
# Of these tables the document has the rows with this value in this column; the report has them all.
ROWS_SHOWN = {"idle keep-alive connections": ("open", "5,000")}


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

    def measured_by(self) -> str:
        """The commands for a shell, each once; behind one that ran several times, how many times."""
        counted = Counter(self.commands).items()
        return "\n".join(
            f"python -m bench {line}  # {times} times" if times > 1 else f"python -m bench {line}"
            for line, times in counted
        )


def of_part(name: str, result: Result) -> Section:
    """The section of a published part. The result itself records its method, because parts may change later."""
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
    """The document in Markdown: the figures, then once for all of them where they come from and what to doubt.

    Sections without views are left out, and so are tables and rows that only the report for a browser has. Tables with
    the same note have it once.
    """
    sections = [one for one in sections if one.shown]
    text = [f"# {title}", *([introduction] if introduction else [])]
    noted: set[str] = set()
    for one in sections:
        text += [f"## {one.title}", *([one.about] if one.about else [])]
        for table in _shown(one.tables()):
            text.append(report.markdown(replace(table, note="") if table.note in noted else table).rstrip())
            noted.add(table.note)
    return "\n\n".join([*text, *_configurations(sections), *_doubts(sections)]) + "\n"


def _configurations(sections: Sequence[Section]) -> list[str]:
    """A table of the servers with a command for each kind of workload measured, and why these are their best."""
    kinds: dict[str, dict[str, str]] = {}
    reasons: dict[str, str] = {}
    for one in sections:
        for label, described in one.result.environment.get("targets", {}).items():
            used = {_kind(sample.workload) for sample in one.result.samples if sample.target == label} or {PLAIN}
            found = {kind: command for kind, command in described.get("commands", {}).items() if kind in used}
            if found:
                kinds.setdefault(label, {}).update(found)
                reasons[label] = VARIANT if ":" in label else described.get("why") or NO_SERVER
    if not kinds:
        return []
    rows = tuple(
        (label, kind, f"`{command}`", "" if number else reasons[label])
        for label, commands in kinds.items()
        for number, (kind, command) in enumerate(commands.items())
    )
    note = "For one process; module:app is the application, certificate.pem a certificate and its key."
    table = Table("The configuration of each server", ("server", "for", "command", "why it is its best"), rows, note)
    return ["## Configurations", report.markdown(table).rstrip()]


def _kind(workload: str) -> str:
    return WORKLOADS[workload].kind if workload in WORKLOADS else PLAIN


def _shown(tables: Iterable[Table]) -> Iterator[Table]:
    for table in tables:
        if not table.title.startswith(ONLY_IN_REPORT):
            column, value = ROWS_SHOWN.get(table.title, ("", ""))
            at = table.columns.index(column) if column else 0
            yield replace(table, rows=tuple(row for row in table.rows if not column or row[at] == value))


def _doubts(sections: Sequence[Section]) -> list[str]:
    """Where and when everything was measured, of what, and what speaks against it: each thing once."""
    every = len(sections)
    places: dict[str, list[str]] = {}
    servers: dict[str, list[str]] = {}
    notes: dict[str, list[str]] = {}
    for one in sections:
        environment = one.result.environment
        place = f"{report.machine(environment)}; {report.pythons(environment)}"
        places.setdefault(place, []).append(f"{one.title} ({one.result.created})")
        for server in report.servers(environment):
            servers.setdefault(server, []).append(one.title)
        for note in one.result.notes:
            notes.setdefault(note, []).append(one.title)
    # A server that was measured in one version needs no list of places.
    versions: dict[str, list[str]] = {}
    for server in servers:
        versions.setdefault(server.partition(" ")[0], []).append(server)
    told = [
        server + (checks.where(servers[server], every) if len(found) > 1 else "")
        for found in versions.values()
        for server in found
    ]
    doubts = [note + checks.where(titles, every) for note, titles in notes.items()]
    doubts += checks.doubts([Seen(one.result.samples, one.result.environment, one.title) for one in sections])
    text = [f"## {DOUBTS}", *(f"{place}: {'; '.join(titles)}." for place, titles in places.items())]
    text += [f"Servers: {', '.join(told)}."] if told else []
    text += ["\n".join(f"- {doubt}" for doubt in doubts)] if doubts else []
    return text


def anchor(title: str) -> str:
    """The anchor that Markdown viewers make of a heading."""
    return "".join(one for one in title.lower().replace(" ", "-") if one.isalnum() or one == "-")
