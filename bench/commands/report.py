"""`report`: stored results as Markdown and as one HTML page; and the tables inside documents."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench import documents, merge, model, page
from bench.commands import common
from bench.commands.baseline import BASELINES, read
from bench.errors import BenchError
from bench.targets import ROOT

DOCUMENTS = ("BASELINE_PERFORMANCE.md", "OPTIMIZATIONS.md", "README.md")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Results in; files out."""
    parser.add_argument("files", nargs="*", type=Path, help="stored results; names of baselines are fine, too")
    parser.add_argument("--title", default="ASGI servers measured")
    parser.add_argument("--to", type=Path, help="write Markdown here instead of printing it")
    parser.add_argument("--html", type=Path, help="write one self-contained page here")
    parser.add_argument("--write", action="store_true", help="make the tables between markers in the documents again")
    parser.add_argument(
        "--check", action="store_true", help="fail when those tables do not come from the stored results"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Write what is asked for; with --check, exit status 1 for a document that differs."""
    if arguments.write or arguments.check:
        return _documents(check=arguments.check)
    if not arguments.files:
        raise BenchError("which results? name files or baselines")
    results = merge.by_kind([_load(path) for path in arguments.files])
    text = f"# {arguments.title}\n" + "".join(f"\n## {one.kind}\n{documents.block(one, None)}" for one in results)
    if arguments.html:
        _write(arguments.html, page.page(arguments.title, results))
    if arguments.to:
        _write(arguments.to, text)
    elif not arguments.html:
        print(text, end="")
    return 0


def _load(path: Path) -> model.Result:
    return model.load(path) if path.exists() else read(str(path))


def _documents(*, check: bool) -> int:
    wrong = []
    for name in DOCUMENTS:
        path = ROOT / name
        if not path.exists():
            continue
        old = path.read_text(encoding="utf-8")
        new = documents.fill(old, read)
        if new != old and check:
            wrong.append(name)
        elif new != old:
            _write(path, new)
    if wrong:
        raise BenchError(f"not made from {BASELINES.name}: {', '.join(wrong)} (run: python -m bench report --write)")
    return 0


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise BenchError(f"cannot write {path}: {exc.strerror or exc}") from None
    common.told(f"wrote {path}")
