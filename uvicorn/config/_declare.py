"""Turn a class of annotated rows into one with an explicit ``__init__``: the only metaprogramming of the package.

``dataclasses`` would do, but for one thing: it refuses a mutable default, and the default of ``log_config`` has always
been a dict that callers may change.
"""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, TypeVar, overload

if sys.version_info >= (3, 11):
    from typing import dataclass_transform
else:
    from typing_extensions import dataclass_transform

__all__ = ["REQUIRED", "Row", "declarative", "rows_of", "setting", "union_members"]

T = TypeVar("T")
ClassT = TypeVar("ClassT", bound=type)

REQUIRED: Any = inspect.Parameter.empty
"""The default of a row that has none."""


class Row:
    """One setting.

    Attributes:
        name, annotation: as in the class; the annotation is text.
        default: the value when nothing is given, or `REQUIRED`.
        help: the effect of the setting. The first sentence is for ``--help``, all of it for the settings page.
        section: where ``--help`` and the settings page list it.
        kw_only: whether it cannot be given by position.
        flag: the command-line option, where it is not the name with dashes.
        cli: whether there is a command-line option.
        run: whether ``uvicorn.run`` takes it.
        choices: the texts it takes, where the annotation admits more.
        any_case: whether upper case in one of these does not matter.
        multiple: whether the command-line option may be repeated.
        lines: whether each line of its variable is a value, because values may have spaces.
        exists: whether the command line insists that this path exists.
        unit: the unit of a number, in the plural.
        minimum, maximum: the smallest and the greatest number it takes.
        above: a number that it has to be greater than, in place of a minimum.
        cli_minimum: the smallest number that the command line and files take, where Python takes smaller ones.
        valued: whether a boolean option takes a value instead of coming as a flag.
        secret: whether the value must not be shown.
        none_is_default: whether None stands for the default.
        pattern: a regular expression that matches the texts it takes, as a whole.
        check: the import string of a function that raises ValueError for a text or pair that it does not take.
        parse: the import string of a function that converts a text, and raises likewise.
        form: description of the values, for messages, if the rest of the row does not give it: ``NAME must be FORM``.
        needs: settings of which one has to be set, or this one is ignored.
        protocols: whether protocols read it: then `_types.ProtocolConfig` has it.
    """

    # Not a dataclass: making one takes longer than importing the rest of the table.
    def __init__(
        self,
        *,
        help: str,
        section: str = "",
        default: Any = REQUIRED,
        kw_only: bool = False,
        flag: str | None = None,
        cli: bool = True,
        run: bool = True,
        choices: tuple[str, ...] = (),
        any_case: bool = False,
        multiple: bool = False,
        lines: bool = False,
        exists: bool = False,
        unit: str = "",
        minimum: int | None = None,
        maximum: int | None = None,
        above: int | None = None,
        cli_minimum: int | None = None,
        valued: bool = False,
        secret: bool = False,
        none_is_default: bool = False,
        pattern: str = "",
        check: str = "",
        parse: str = "",
        form: str = "",
        needs: tuple[str, ...] = (),
        protocols: bool = False,
    ) -> None:
        self.name = ""
        self.annotation = ""
        self.help = help
        self.section = section
        self.default = default
        self.kw_only = kw_only
        self.flag = flag
        self.cli = cli
        self.run = run
        self.choices = choices
        self.any_case = any_case
        self.multiple = multiple
        self.lines = lines
        self.exists = exists
        self.unit = unit
        self.minimum = minimum
        self.maximum = maximum
        self.above = above
        self.cli_minimum = cli_minimum
        self.valued = valued
        self.secret = secret
        self.none_is_default = none_is_default
        self.pattern = pattern
        self.check = check
        self.parse = parse
        self.form = form
        self.needs = needs
        self.protocols = protocols
        self.aliases: Mapping[str, Any] = {}

    @property
    def option(self) -> str:
        """Its command-line option."""
        return self.flag or "--" + self.name.replace("_", "-")

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The members of its type as they are written, aliases resolved: of `int | None` these two."""
        return frozenset(member for member in self._members() if isinstance(member, str))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The literals of its type: all that it takes, or names for some of that."""
        return tuple(name for member in self._members() if isinstance(member, tuple) for name in member)

    def _members(self) -> Iterator[str | tuple[str, ...]]:
        for text in union_members(self.annotation):
            alias = self.aliases.get(text)
            is_union = typing.get_origin(alias) in (typing.Union, types.UnionType)
            for member in typing.get_args(alias) if is_union else (alias,):
                if typing.get_origin(member) is Literal:
                    yield typing.get_args(member)
                else:
                    yield member.__name__ if is_union else text

    def parameter(self) -> inspect.Parameter:
        """Return this row as a parameter of ``__init__``."""
        kind = inspect.Parameter.KEYWORD_ONLY if self.kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Parameter(self.name, kind, default=self.default, annotation=self.annotation)


def union_members(annotation: str) -> list[str]:
    """Return the members of a union that is written with bars."""
    members, depth, begin = [], 0, 0
    for index, character in enumerate(annotation):
        depth += (character == "[") - (character == "]")
        if character == "|" and not depth:
            members.append(annotation[begin:index].strip())
            begin = index + 1
    return [*members, annotation[begin:].strip()]


@overload
def setting(*, help: str, section: str) -> Any: ...
@overload
def setting(
    *,
    default: T,
    help: str,
    section: str,
    kw_only: bool = False,
    flag: str | None = None,
    cli: bool = True,
    run: bool = True,
    choices: tuple[str, ...] = (),
    any_case: bool = False,
    multiple: bool = False,
    lines: bool = False,
    exists: bool = False,
    unit: str = "",
    minimum: int | None = None,
    maximum: int | None = None,
    above: int | None = None,
    cli_minimum: int | None = None,
    valued: bool = False,
    secret: bool = False,
    none_is_default: bool = False,
    pattern: str = "",
    check: str = "",
    parse: str = "",
    form: str = "",
    needs: tuple[str, ...] = (),
    protocols: bool = False,
) -> T: ...
def setting(**details: Any) -> Any:
    """Write down one row of a declared class; see `Row` for the details. Without ``default`` it must be given."""
    return Row(**details)


@dataclass_transform(field_specifiers=(setting,))
def declarative(cls: ClassT) -> ClassT:
    """Give the class an ``__init__`` that takes its rows, assigns them and calls ``__post_init__``.

    ``inspect.signature`` shows every parameter; the rows are kept, in order and by name, in ``__rows__``.
    """
    rows: dict[str, Row] = {}
    aliases = vars(sys.modules[cls.__module__])
    for name, annotation in inspect.get_annotations(cls).items():
        row = rows[name] = cls.__dict__[name]
        row.name, row.annotation, row.aliases = name, annotation, aliases
        delattr(cls, name)
    declared: Any = cls
    declared.__rows__ = rows
    declared.__init__ = _initializer(rows)
    return cls


def rows_of(cls: type) -> Mapping[str, Row]:
    """Return the rows of a declared class by name, in order."""
    rows: dict[str, Row] = vars(cls)["__rows__"]
    return MappingProxyType(rows)


def _initializer(rows: Mapping[str, Row]) -> Any:
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.Signature([first, *(row.parameter() for row in rows.values())], return_annotation=None)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError as exc:
            raise TypeError(f"{type(self).__name__}(): {exc}") from None
        bound.apply_defaults()
        for name in rows:
            setattr(self, name, bound.arguments[name])
        self.__post_init__()

    initializer: Any = __init__
    initializer.__signature__ = signature
    return initializer
