"""The fuzz targets in Python hold for a fixed set of inputs; `scripts/fuzz` gives them others."""

from __future__ import annotations

import pytest

from tests.fuzzing import TARGETS, fuzz, seeds


@pytest.mark.parametrize("name", TARGETS)
def test_target_holds(name: str) -> None:
    """P5, P7, S1"""
    assert fuzz(name, 1, lambda count: count < 400 + len(seeds(name))) >= 400


def test_a_target_that_does_not_hold_says_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(data: bytes) -> None:
        raise ValueError("on purpose")

    monkeypatch.setitem(TARGETS, "forwarded", broken)
    with pytest.raises(AssertionError, match="forwarded is broken by b"):
        fuzz("forwarded", 1, lambda count: True)
