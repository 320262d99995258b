"""`report`: stored results as Markdown and as one HTML page; and the tables inside documents."""

from __future__ import annotations

import argparse
import functools
import os
from pathlib import Path

from bench import documents, machines, merge, model, page, parts, poster, publication, report
from bench.commands import common
from bench.commands.baseline import BASELINES, read
from bench.errors import BenchError
from bench.model import Result
from bench.targets import ROOT

DOCUMENTS = ("BASELINE_PERFORMANCE.md", "OPTIMIZATIONS.md", "README.md")
# Made as a whole: the report of everything that was published, to read and to look at.
REPORT, PAGE = documents.REPORT, "docs/benchmarks/report.html"
# The chart of the first page, for each of the themes.
CHART, CHARTED = "docs/benchmarks/cpu-{}.svg", ("performance",)
TITLE = "Benchmarks"
INTRODUCTION = """\
The more a framework and an application do, the less a server matters: with [real applications](#real-applications)
most differences in CPU time are small, with [plain requests](#plain-and-repeated-requests) they are large, and yours is
in between.

fastapi-api, starlette, django, varying, log-varying, tls-varying and [workers](#workers-and-event-loops) send 10,000
requests in turn that differ in path, query and one header field, and real applications replay a recording. All others
repeat one request, which favours servers that remember what they have parsed, as this one does. Ratios come from eight
blocks in the first section and four in the others, each with one burst of each server, usually one second long; other
figures are medians of as many, or of up to five, and those of overload, memory, many processes and the WebSockets of
hypercorn, daphne and gunicorn were measured once. Python without profile-guided optimisation, as here, costs servers
written in Python more than others: [with it](../../README.md#performance), ratios to them are smaller. The first
section has every server; the others leave some out, so that all of them together take an hour.

`python -m bench report --write` generates this page from the stored results in `bench/baselines`. The
[report for a browser](report.html) adds charts, every figure, and the command that measured it;
[optimizations](../../OPTIMIZATIONS.md#measured) lists where this server does not win, and
[benchmarking](../benchmarking.md) explains the method and how to repeat it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Results in; files out."""
    parser.add_argument("files", nargs="*", type=Path, help="stored results; names of baselines are fine, too")
    parser.add_argument("--title", default="ASGI servers measured", help="of the report")
    parser.add_argument("--to", type=Path, help="write Markdown here instead of printing it")
    parser.add_argument("--html", type=Path, help="write one self-contained page here")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--machines", nargs="+", type=Path, metavar="DIRECTORY", help="baselines of machines, side by side"
    )
    kinds.add_argument("--write", action="store_true", help="make the tables between markers in the documents again")
    kinds.add_argument(
        "--check", action="store_true", help="fail when those tables do not come from the stored results"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Write the requested output; with --check, exit status 1 for a document that differs."""
    if arguments.files and (arguments.check or arguments.write or arguments.machines):
        raise BenchError("--machines, --write and --check take no other results")
    if arguments.check:
        return _check()
    if arguments.write:
        write_documents(BASELINES, ROOT)
        return 0
    if arguments.machines:
        return _side_by_side(arguments)
    if not arguments.files:
        raise BenchError("which results? name files or baselines")
    results = merge.by_kind([_load(path) for path in arguments.files])
    sections = [publication.of_result(one) for one in results]
    if arguments.html:
        _write(arguments.html, page.page(arguments.title, sections))
    text = publication.markdown(arguments.title, sections)
    if arguments.to:
        _write(arguments.to, text)
    elif not arguments.html:
        print(text, end="")
    return 0


def _side_by_side(arguments: argparse.Namespace) -> int:
    names = [part.name for part in (*parts.PARTS, *parts.LONG)]
    found = [
        {name: model.load(directory / f"{name}.json") for name in names if (directory / f"{name}.json").exists()}
        for directory in arguments.machines
    ]
    for directory, results in zip(arguments.machines, found, strict=True):
        if not results:
            raise BenchError(f"no baselines in {directory}: --machines takes directories as publish leaves them")
    shown = machines.tables(machines.named(found))
    if arguments.html:
        _write(arguments.html, page.plain(arguments.title, shown))
    text = "\n".join([f"# {arguments.title}\n", *map(report.markdown, shown)])
    if arguments.to:
        _write(arguments.to, text)
    elif not arguments.html:
        print(text, end="")
    return 0


def _load(path: Path) -> model.Result:
    return model.load(path) if path.exists() else read(str(path))


def write_documents(baselines: Path, root: Path) -> None:
    """Generate every document from the baselines in a directory; writes changed ones below `root`."""
    for name, text in _documents(baselines).items():
        path = root / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            _write(path, text)


def _check() -> int:
    wrong = []
    for name, text in _documents(BASELINES).items():
        path = ROOT / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            wrong.append(name)
    if wrong:
        raise BenchError(f"not made from {BASELINES.name}: {', '.join(wrong)} (run: python -m bench report --write)")
    return 0


def _documents(baselines: Path) -> dict[str, str]:
    """The expected text of every document by its path: those with markers updated, the report from scratch."""

    @functools.cache
    def stored(name: str) -> Result | None:
        path = baselines / f"{name}.json"
        if not path.exists():
            parts.find(name)
            return None
        return model.load(path)

    found = {}
    for name in DOCUMENTS:
        path = ROOT / name
        if path.exists():
            found[name] = documents.fill(path.read_text(encoding="utf-8"), stored)
    sections = publication.published(stored)
    if sections:
        found[REPORT] = publication.markdown(TITLE, sections, INTRODUCTION)
        found[PAGE] = page.page(TITLE, sections)
    charted = [section.result for section in sections if section.name in CHARTED]
    if charted:
        figures = poster.groups(charted)
        found |= {CHART.format(name): poster.draw(figures, theme) for name, theme in poster.THEMES.items()}
    return found


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise BenchError(f"cannot write {path}: {exc.strerror or exc}") from None
    common.told(f"wrote {os.path.relpath(path)}")
