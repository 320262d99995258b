"""What counts as overridden, of any class of the server."""

from __future__ import annotations

from typing import Any

import pytest

from uvicorn.hooks import original, overrides


@original
class Ours:
    def __call__(self) -> None:
        pass

    def method(self) -> None:
        pass

    @property
    def value(self) -> int:
        return 1


class Theirs(Ours):
    """Has nothing that counts."""


NAMES = ("__call__", "method", "value")


def test_nothing_is_overridden_at_first() -> None:
    for cls in (Ours, Theirs):
        assert not overrides(cls, *NAMES)
        assert not overrides(cls(), *NAMES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("owner", [Ours, Theirs])
def test_patched_attributes_count(owner: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, name, lambda self: None)
    assert overrides(Theirs(), name) and overrides(Theirs, name)
    assert overrides(Theirs(), *NAMES)
    assert not overrides(Theirs(), *({*NAMES} - {name}))


def test_assigned_attributes_count_for_their_object_alone() -> None:
    theirs: Any = Theirs()
    theirs.method = print
    assert overrides(theirs, "method")
    assert not overrides(Theirs(), "method")


def test_attributes_of_other_classes_are_not_ours() -> None:
    assert overrides(print, "__call__") and overrides(object(), "method")
