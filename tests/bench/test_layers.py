"""The harness measures from outside: it imports neither the server nor the tests, and its pure parts do nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from bench.targets import HERE

PURE = (
    *("model", "stats", "plan", "checks", "report", "tables", "charts", "page", "documents", "judge"),
    *("conclusions", "machines", "merge", "parts", "poster", "publication", "scaling", "verdicts", "views"),
)
# What touches files, processes, sockets or the clock.
OUTSIDE = {"os", "subprocess", "socket", "time", "tempfile", "shutil", "threading", "signal"}
# Copied into the directories and interpreters of servers: nothing of the harness is there.
COPIED = (
    "apps",
    "apps_django",
    "apps_fastapi",
    "apps_sse",
    "apps_starlette",
    "apps_picows",
    "inside",
    "micro",
    "pools",
)


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_the_harness_imports_neither_the_server_nor_the_tests() -> None:
    for path in HERE.rglob("*.py"):
        assert not [name for name in _imports(path) if name.split(".")[0] in ("uvicorn", "tests")], path


def test_pure_parts_touch_nothing() -> None:
    for name in PURE:
        assert not OUTSIDE & set(_imports(HERE / f"{name}.py")), name


def test_what_is_copied_to_servers_needs_nothing_of_the_harness() -> None:
    for name in COPIED:
        assert not [one for one in _imports(HERE / f"{name}.py") if one.partition(".")[0] == "bench"], name
