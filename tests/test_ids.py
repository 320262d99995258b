"""Every id that a test names is in the catalogue (tests/catalogue), and every id there is named by a test."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

AREAS = (
    "ACC API APP BODY CLI CON ENV ERR GUN IF LIFE LIM LOG LSP MP PRX REQ RES RLD SCO SIG SOCK TLS TRC UPG WIN WS WSC "
    "WSE WSGI WSK WSM WSR WSX ZT"
)
BEHAVIOUR = rf"\b(?:{AREAS.replace(' ', '|')})-\d\d\b"
#: Short enough to be something else in code.
THREAT = r"\b[DFHIKLPRSTUWX]\d{1,2}\b"

ROW = {
    "threats.md": re.compile(r"^\| ([A-Z]\d+) \|", re.MULTILINE),
    "behaviour.md": re.compile(r"^- ([A-Z]+-\d\d): \S", re.MULTILINE),
}


def listed(name: str) -> list[str]:
    return ROW[name].findall((ROOT / "tests" / "catalogue" / name).read_text(encoding="utf-8"))


def documented(source: str) -> Iterator[str]:
    """The docstrings and comments of a module: elsewhere such a word may be anything."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            yield ast.get_docstring(node) or ""
    yield from re.findall(r"(?m)#\s.*$", source)


@functools.cache
def named() -> dict[str, str]:
    """Each number that tests or vectors name, with one place where they do."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "tests").rglob("*")):
        if path.suffix not in (".py", ".toml") or path == Path(__file__):
            continue
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            # Parsing all of them takes seconds.
            words = " ".join(documented(text)) if re.search(THREAT, text) else ""
        else:
            words = " ".join(re.findall(r"(?m)^(?:rows|source) = .*$", text))
        numbers = re.findall(BEHAVIOUR, text) + re.findall(THREAT, words)
        found.update(dict.fromkeys(numbers, str(path.relative_to(ROOT))))
    return found


def test_what_tests_name_is_listed() -> None:
    rows = {row for name in ROW for row in listed(name)}
    assert {number: place for number, place in named().items() if number not in rows} == {}


@pytest.mark.parametrize("name", ROW)
def test_what_is_listed_is_named_by_a_test(name: str) -> None:
    rows = listed(name)
    assert len(rows) == len(set(rows))
    assert sorted(set(rows) - named().keys()) == []


def test_numbers_are_found_where_they_are_words() -> None:
    (text,) = (text for text in documented('"""W99, as F1"""\nX = "F98"  \n') if text)
    assert re.findall(THREAT, text) == ["W99", "F1"]
    assert re.findall(BEHAVIOUR, "WSX-19 CON-01 UTF-16") == ["WSX-19", "CON-01"]
