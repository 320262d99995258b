"""What an annotated class becomes."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest

from uvicorn.config._declare import REQUIRED, declarative, rows_of, setting

SHARED: dict[str, int] = {}


@declarative
class Base:
    first: str = setting(help="Needed.", section="One")
    second: int | None = setting(default=3, help="Optional.", section="One")
    third: dict[str, int] = setting(default=SHARED, help="Mutable.", section="Two", kw_only=True)

    def __post_init__(self) -> None:
        self.initialized = True


class Derived(Base):
    second: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self.second = self.second or -1


def test_arguments_become_attributes() -> None:
    instance = Base("a", 4, third={"x": 1})
    assert (instance.first, instance.second, instance.third) == ("a", 4, {"x": 1})


def test_defaults_are_the_objects_themselves() -> None:
    assert Base("a").third is SHARED


def test_a_subclass_takes_the_same_and_resolves_it() -> None:
    derived = Derived("a", None)
    assert derived.initialized
    assert derived.second == -1


def test_the_signature_is_explicit() -> None:
    text = "(self, first: 'str', second: 'int | None' = 3, *, third: 'dict[str, int]' = {}) -> None"
    assert str(inspect.signature(Base.__init__)) == text
    assert str(inspect.signature(Derived.__init__)) == text
    assert list(inspect.signature(Base).parameters) == ["first", "second", "third"]


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        pytest.param((), {}, r"Derived\(\): missing a required argument: 'first'", id="missing"),
        pytest.param(("a", 1, {}), {}, r"Derived\(\): too many positional arguments", id="keyword-only by position"),
        pytest.param(("a",), {"fourth": 1}, r"Derived\(\): got an unexpected keyword argument 'fourth'", id="unknown"),
        pytest.param(("a",), {"first": "b"}, r"Derived\(\): multiple values for argument 'first'", id="twice"),
    ],
)
def test_wrong_arguments_are_a_type_error_that_names_them(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        Derived(*args, **kwargs)


def test_the_rows_are_kept_in_order() -> None:
    rows = rows_of(Base)
    assert [(row.name, row.annotation, row.section) for row in rows.values()] == [
        ("first", "str", "One"),
        ("second", "int | None", "One"),
        ("third", "dict[str, int]", "Two"),
    ]
    assert rows["first"].default is REQUIRED
    assert rows["second"].help == "Optional."


def test_the_rows_leave_the_class() -> None:
    assert not hasattr(Base, "second")


def test_instances_can_be_pickled() -> None:
    copy = pickle.loads(pickle.dumps(Derived("a", 7)))
    assert vars(copy) == vars(Derived("a", 7))
