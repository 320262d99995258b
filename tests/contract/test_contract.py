"""Upstream's whole surface, asked the same questions of it and of this: the answers are equal, or listed with a reason.

Upstream's answers are recorded, so they are compared everywhere; where `UPSTREAM_PYTHON` names an interpreter that has
it, the record is held to what it answers now.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from tests.contract.compare import DIFFERENCES, GROUPS, RECORDED_WITH, Comparison, recorded, run_group

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the cases are forks")

upstream_python = os.environ.get("UPSTREAM_PYTHON", "")


@pytest.mark.parametrize("group", GROUPS)
def test_answers_are_upstream_s(group: str) -> None:
    comparison = Comparison(group, recorded(group), run_group(sys.executable, group))
    assert not comparison.differing, "\n".join(comparison.differing)
    assert not comparison.stale(), "explained, but not seen any more"


@pytest.mark.skipif(not upstream_python, reason="UPSTREAM_PYTHON names no Python with upstream uvicorn")
@pytest.mark.skipif(sys.version_info[:2] != RECORDED_WITH, reason="recorded with another Python")
@pytest.mark.parametrize("group", GROUPS)
def test_record_is_what_upstream_answers(group: str) -> None:
    assert run_group(upstream_python, group) == recorded(group)


def test_table_is_of_groups_that_exist() -> None:
    assert DIFFERENCES.keys() <= set(GROUPS)


def compared(group: str, upstream: dict[str, Any], ours: dict[str, Any]) -> tuple[list[str], list[str]]:
    comparison = Comparison(group, {"a case": upstream}, {"a case": ours})
    return comparison.differing, comparison.stale()


def test_difference_that_is_not_listed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DIFFERENCES, "config", {})
    assert compared("config", {"is": 1}, {"is": 1}) == ([], [])
    assert compared("config", {"is": 1}, {"is": 2}) == (["a case: is is 2, upstream's 1"], [])
    assert compared("config", {"is": 1}, {}) == (["a case: is is None, upstream's 1"], [])
    line = 'INFO:     1:1 - "WebSocket /ws" [closed 1000]'
    assert compared("config", {"log": ["a"]}, {"log": ["a", line]}) == ([], [])
    assert compared("config", {"log": ["a"]}, {"log": [line]})[0] != []


@pytest.mark.parametrize("pattern", ["a case", "a *"])
def test_difference_that_is_listed_has_to_be_there(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DIFFERENCES, "config", {pattern: "a reason"})
    assert compared("config", {"is": 1}, {"is": 2}) == ([], [])
    assert compared("config", {"is": 1}, {"is": 1}) == ([], [pattern])


def test_surface_may_be_larger_and_not_smaller() -> None:
    upstream = {"names": {"f": ["sync", "POSITIONAL_OR_KEYWORD a", "KEYWORD_ONLY b?"]}, "defined": ["f"]}
    for own, problem in [
        (["sync", "POSITIONAL_OR_KEYWORD a", "POSITIONAL_OR_KEYWORD c?", "KEYWORD_ONLY b?"], ""),
        (["sync", "POSITIONAL_OR_KEYWORD a", "POSITIONAL_OR_KEYWORD c", "KEYWORD_ONLY b?"], "demands"),
        (["sync", "POSITIONAL_OR_KEYWORD c?", "POSITIONAL_OR_KEYWORD a", "KEYWORD_ONLY b?"], "another place"),
        (["async", "POSITIONAL_OR_KEYWORD a", "KEYWORD_ONLY b?"], "is async"),
        (["sync", "POSITIONAL_OR_KEYWORD a"], "no parameter"),
        (None, "is missing"),
    ]:
        names = {} if own is None else {"f": own, "g": ["class"]}
        differing, _ = compared("surface", upstream, {"names": names})
        assert bool(differing) is bool(problem) and all(problem in line for line in differing)
