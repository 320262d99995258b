"""Turn a class of annotated rows into one with an explicit ``__init__``: the only metaprogramming of the package.

``dataclasses`` would do, but for one thing: it refuses a mutable default, and the default of ``log_config`` has always
been a dict that callers may change.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar, overload

if sys.version_info >= (3, 11):
    from typing import dataclass_transform
else:
    from typing_extensions import dataclass_transform

__all__ = ["REQUIRED", "Row", "declarative", "rows_of", "setting"]

T = TypeVar("T")
ClassT = TypeVar("ClassT", bound=type)

REQUIRED: Any = inspect.Parameter.empty
"""The default of a row that has none."""


class Row:
    """One setting.

    Attributes:
        name, annotation: as in the class; the annotation is text.
        default: the value when nothing is given, or `REQUIRED`.
        help: what it does. The first sentence is for ``--help``, all of it for the settings page.
        section: where the settings page lists it.
        kw_only: whether it cannot be given by position.
        flag: the command-line option, where it is not the name with dashes.
        cli: whether there is a command-line option.
        run: whether ``uvicorn.run`` takes it.
        choices: what the command line accepts, where the annotation admits more.
        multiple: whether the command-line option may be repeated.
        lines: whether each line of its variable is a value, because values may have spaces.
        exists: whether the command line insists that this path exists.
        minimum, maximum: the smallest and the greatest number it takes.
        above: a number that it has to be greater than, in place of a minimum.
        cli_minimum: the smallest one that the command line takes, which upstream's refuses as a mistake in the form.
        valued: whether a boolean option takes a value instead of coming as a flag.
        secret: whether the value must not be shown.
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
        multiple: bool = False,
        lines: bool = False,
        exists: bool = False,
        minimum: int | None = None,
        maximum: int | None = None,
        above: int | None = None,
        cli_minimum: int | None = None,
        valued: bool = False,
        secret: bool = False,
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
        self.multiple = multiple
        self.lines = lines
        self.exists = exists
        self.minimum = minimum
        self.maximum = maximum
        self.above = above
        self.cli_minimum = cli_minimum
        self.valued = valued
        self.secret = secret

    @property
    def kinds(self) -> frozenset[str]:
        """The members of its type, by name: of `int | None` these two."""
        return frozenset(self.annotation.split(" | "))

    def number(self, value: Any) -> Any:
        """Return `value`, if this is a number or a text of one: as the number it has to be.

        Whole numbers of seconds may have a fraction where a program sets them, as upstream's may.

        Raises:
            ValueError: it is none, or out of range.
        """
        kinds = self.kinds - {"None"}
        if kinds == {"CountType"}:
            kinds = frozenset({"int"})
            if value == "auto":
                return value
        if value is None or not kinds or not kinds <= {"int", "float"}:
            return value
        is_whole = "float" not in kinds
        wanted = "a whole number" if is_whole else "a number"
        if "CountType" in self.kinds:
            wanted += ", or auto"
        if isinstance(value, str):
            try:
                value = int(value) if is_whole else float(value)
            except ValueError:
                raise ValueError(f"it must be {wanted}.") from None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
            raise ValueError(f"it must be {wanted}.")
        if is_whole and isinstance(value, float) and not self.name.startswith("timeout_"):
            if not value.is_integer():
                raise ValueError(f"it must be {wanted}.")
            value = int(value)
        self._check_range(value)
        return value

    def _check_range(self, value: float) -> None:
        least, most = self.minimum, self.maximum
        hint = "; leave it out for no limit." if self.name.startswith("limit_") and self.default is None else "."
        if self.above is not None and value <= self.above:
            raise ValueError(f"it must be greater than {self.above}{hint}")
        if least is not None and most is not None and not least <= value <= most:
            raise ValueError(f"it must be from {least} to {most}{hint}")
        if least is not None and value < least:
            raise ValueError(f"it must be at least {least}{hint}")
        if math.isinf(value):
            raise ValueError(f"it must be finite{hint}")
        if isinstance(value, int) and value > sys.maxsize:
            raise ValueError(f"it must be at most {sys.maxsize}{hint}")

    def parameter(self) -> inspect.Parameter:
        """Return this row as a parameter of ``__init__``."""
        kind = inspect.Parameter.KEYWORD_ONLY if self.kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Parameter(self.name, kind, default=self.default, annotation=self.annotation)


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
    multiple: bool = False,
    lines: bool = False,
    exists: bool = False,
    minimum: int | None = None,
    maximum: int | None = None,
    above: int | None = None,
    cli_minimum: int | None = None,
    valued: bool = False,
    secret: bool = False,
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
    for name, annotation in inspect.get_annotations(cls).items():
        row = rows[name] = cls.__dict__[name]
        row.name, row.annotation = name, annotation
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
