"""Validates and converts the values of settings, wherever they come from.

The type, bounds, choices and form of its row say so. `check` applies them to a value of the command line, the
environment, a file or Python, with the same message.
"""

from __future__ import annotations

import asyncio
import math
import operator
import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from uvicorn.config._declare import Row
from uvicorn.config.errors import SettingError
from uvicorn.importer import import_from_string
from uvicorn.rules.syntax import without_secrets

LONGEST = 10**9
"""Seconds, about 31 years: the clocks of all libraries can count that far."""

TRUE_WORDS = frozenset({"1", "true", "t", "yes", "y", "on"})
FALSE_WORDS = frozenset({"0", "false", "f", "no", "n", "off"})
"""The command line's texts for a boolean."""

_NUMBERS = frozenset({"int", "float"})

_OBJECTS = {
    "Callable": "a function",
    "IO": "a file",
    "RawConfigParser": "a RawConfigParser",
    "bytes": "bytes",
    "dict": "a dict",
    "int": "a whole number",
    "list": "a list of texts",
    "os.PathLike": "a path",
    "Sequence": "a list of texts",
    "type": "a protocol class",
}
"""The names that messages use for the members of a type other than text."""


class _Refused(Exception):
    """The row does not take the value, or one of several; the text says why, if the row does not."""

    value: Any = None


def check(row: Row, value: Any, *, is_command: bool = False, name: str = "") -> Any:
    """Return a value as the setting has it: a number for its text, or a list where there may be several.

    Args:
        row: the setting.
        value: the rejected value.
        is_command: whether that was said by the command line, the environment or a file.
        name: the name of the setting in messages, if it differs.

    Raises:
        SettingError: the setting does not take it.
    """
    if value is row.default or (type(value) is type(row.default) and value == row.default):
        return value
    if value is None:
        is_default = row.none_is_default or (row.kw_only and "None" not in row.kinds)
        return row.default if is_default else None
    return _checked(row, value, values_of(row).convert, is_command, name)


def check_one(row: Row, value: Any) -> Any:
    """Return a value, or one of several, of the command line, the environment or a file; otherwise as `check`."""
    value = _checked(row, value, values_of(row).convert_one, True)
    if row.exists and not os.path.exists(value):
        raise SettingError(f"Cannot use {row.name}={value!r}: it does not exist.")
    return value


def accepts(row: Row, *, is_command: bool = False) -> str:
    """Describe the accepted values, as the end of a sentence: ``a whole number of seconds, at least 0``."""
    return row.form or values_of(row).accepts(is_command)


def _checked(row: Row, value: Any, convert: Any, is_command: bool, name: str = "") -> Any:
    name = name or row.name
    try:
        return convert(value, is_command)
    except _Refused as exc:
        shown = "..." if row.secret else without_secrets(repr(value if exc.value is None else exc.value))
        if exc.args and not row.form:
            raise SettingError(f"Cannot use {name}={shown}: {exc}") from None
        is_limit = row.name.startswith("limit_") and row.default is None and isinstance(values_of(row), Number)
        hint = "; leave it out for no limit" if is_limit else ""
        accepted = accepts(row, is_command=is_command)
        raise SettingError(f"{name} must be {accepted}, not {shown}{hint}.") from None


class Values(ABC):
    """The values that one setting takes."""

    def __init__(self, row: Row) -> None:
        self.row = row

    @abstractmethod
    def accepts(self, is_command: bool = False) -> str:
        """Say it in words."""

    def convert(self, value: Any, is_command: bool) -> Any:
        """Convert a value to the setting's type.

        Raises:
            _Refused: it does not take that.
        """
        return self.convert_one(value, is_command)

    @abstractmethod
    def convert_one(self, value: Any, is_command: bool) -> Any:
        """Do the same for one of several."""


class Switch(Values):
    """On or off."""

    def accepts(self, is_command: bool = False) -> str:
        """Say it in words."""
        return "true or false"

    def convert_one(self, value: Any, is_command: bool) -> Any:
        """Take words, too; an empty value is off, as it is upstream."""
        if isinstance(value, str) and value:
            word = value.strip().lower()
            if word in TRUE_WORDS | FALSE_WORDS:
                return word in TRUE_WORDS
        elif not value and not is_command:
            return value
        elif isinstance(value, (bool, int) if is_command else (bool, int, float)) and value in (0, 1):
            return bool(value)
        raise _Refused


class Number(Values):
    """A number; there may be names for some."""

    def __init__(self, row: Row) -> None:
        super().__init__(row)
        self.is_whole = "float" not in row.kinds
        # Times longer than that pass upstream.
        self.ceiling = LONGEST if row.unit == "seconds" and row.kw_only else sys.maxsize
        # As upstream's may.
        self.has_fractions = not self.is_whole or (row.unit == "seconds" and not row.kw_only)

    def accepts(self, is_command: bool = False) -> str:
        """Say it in words."""
        row = self.row
        words = f"{'a whole number' if self.is_whole else 'a number'}{f' of {row.unit}' if row.unit else ''}"
        least, most = self._least(is_command), row.maximum
        if least is not None and most is not None:
            words += f" from {least} to {most}"
        else:
            bounds = (("greater than", row.above), ("at least", least), ("at most", most))
            words += "".join(f", {text} {bound}" for text, bound in bounds if bound is not None)
        return f"{',' * bool(row.names and ',' in words)} or ".join([words, *(f"`{name}`" for name in row.names)])

    def convert_one(self, value: Any, is_command: bool) -> Any:
        """Take texts of numbers; an empty text means that nothing is set."""
        row = self.row
        if isinstance(value, str) and value in row.names:
            return value
        if not is_command and (value is False or value in ("", [])):
            empty = None if "None" in row.kinds and not row.kw_only else row.default
            value = 0 if value is False else empty
            if value is None:
                return None
        number = self._number(value, is_command)
        least, most = self._least(is_command), row.maximum
        if (
            number is None
            or (row.above is not None and number <= row.above)
            or (least is not None and number < least)
            or (most is not None and number > most)
            or (row.pattern and not re.fullmatch(row.pattern, str(number)))
        ):
            raise _Refused
        if abs(number) > self.ceiling:
            raise _Refused(f"it must be {'at most ' if number > 0 else 'at least -'}{self.ceiling}.")
        return number

    def _least(self, is_command: bool) -> int | None:
        return self.row.cli_minimum if is_command and self.row.cli_minimum is not None else self.row.minimum

    def _number(self, value: Any, is_command: bool) -> int | float | None:
        if isinstance(value, str):
            try:
                value = int(value) if self.is_whole else float(value)
            except ValueError:
                return None
        elif not is_command and not isinstance(value, (int, float)):
            value = _plain(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            return None
        has_fractions = not self.is_whole if is_command else self.has_fractions
        if isinstance(value, float) and not has_fractions:
            return int(value) if value.is_integer() else None
        return value


class Text(Values):
    """A text, or an object of one of the other types that the annotation names."""

    def __init__(self, row: Row) -> None:
        super().__init__(row)
        self.only = row.choices or (() if "str" in row.kinds else row.names)
        self.takes_text = bool(self.only) or row.multiple or "str" in row.kinds
        self.objects = sorted(kind.partition("[")[0] for kind in row.kinds - {"None", "str"})

    def accepts(self, is_command: bool = False) -> str:
        """Say it in words."""
        objects = [_OBJECTS[kind] for kind in self.objects if kind in _OBJECTS and not is_command]
        if self.only or self.row.names:
            texts = [f"one of {', '.join(self.only or self.row.names)}"]
            texts += [] if self.only else ["an import string"]
        else:
            is_path = "os.PathLike" in self.objects
            texts = ["a path" if is_path else "text"] * (self.takes_text and "a path" not in objects)
        return " or ".join([*texts, *objects])

    def convert_one(self, value: Any, is_command: bool) -> Any:
        """Hold texts to the choices, the pattern and the function of the row."""
        row = self.row
        if not value and not isinstance(value, str) and not row.kw_only and not is_command:
            # Programs leave an empty text: upstream takes it as unset.
            return row.default if row.none_is_default and row.kinds == {"str"} else value
        if isinstance(value, str):
            known = value.lower() if row.any_case else value
            if (value and not self.takes_text) or (self.only and known not in self.only):
                raise _Refused
            if row.pattern and not re.fullmatch(row.pattern, value):
                raise _Refused
        elif is_command or not any(_is_of(kind, value) for kind in self.objects):
            raise _Refused
        return self._passed(value)

    def _passed(self, value: Any) -> Any:
        row = self.row
        try:
            if row.parse and isinstance(value, str):
                value = import_from_string(row.parse)(value)
            if row.check:
                import_from_string(row.check)(value)
        except ValueError as exc:
            raise _Refused(str(exc)) from None
        return value


class Several(Text):
    """Any number of texts, paths, or pairs that texts stand for."""

    def accepts(self, is_command: bool = False) -> str:
        """Say it in words."""
        if self.only:
            return f"any of {', '.join(self.only)}"
        return "a list of paths" if "os.PathLike" in self.row.annotation else "a list of texts"

    def convert(self, value: Any, is_command: bool) -> Any:
        """Take one by itself, too."""
        if isinstance(value, (str, os.PathLike)):
            # Where the default is a text, an empty one means something else.
            value = [value] if value or self.row.default else []
        if not isinstance(value, Iterable) or isinstance(value, (bytes, Mapping)):
            if value or self.row.kw_only or is_command:
                raise _Refused
            return self.row.default
        return [self._one_of(item, is_command) for item in value]

    def _one_of(self, item: Any, is_command: bool) -> Any:
        try:
            return self.convert_one(item, is_command)
        except _Refused as exc:
            exc.value = item
            raise

    def convert_one(self, value: Any, is_command: bool) -> Any:
        """Take paths and pairs where they are meant."""
        if isinstance(value, os.PathLike) and "os.PathLike" in self.row.annotation:
            value = os.fspath(value)
        if self.row.parse and _is_pair(value):
            return self._passed(value)
        if not isinstance(value, str):
            raise _Refused
        return super().convert_one(value, is_command)


@cache
def values_of(row: Row) -> Values:
    """Return the values that a row takes."""
    if "bool" in row.kinds:
        return Switch(row)
    if row.kinds <= _NUMBERS | {"None"} and row.kinds & _NUMBERS:
        return Number(row)
    return Several(row) if row.multiple else Text(row)


def _plain(value: Any) -> int | float | None:
    """Return the number that an object stands for, such as NumPy's integers, ``Decimal`` and ``Fraction``."""
    # Classes have these names, too, and arrays of several numbers.
    with suppress(TypeError, ValueError, OverflowError):
        if hasattr(value, "__index__"):
            return operator.index(value)
        if hasattr(value, "__float__"):
            return float(value)
    return None


def _is_of(kind: str, value: Any) -> bool:
    """Whether a value is an object of that type."""
    if kind in ("type", "Callable"):
        return callable(value)
    if kind in ("Sequence", "list"):
        is_list = isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping))
        return is_list and all(isinstance(item, str) for item in value)
    attribute = {"IO": "readline", "RawConfigParser": "sections"}.get(kind)
    if attribute is not None:
        return hasattr(value, attribute)
    known = {
        "asyncio.AbstractEventLoop": asyncio.AbstractEventLoop,  # Ray passes the one it serves in
        "bytes": bytes,
        "dict": dict,
        "int": int,
        "os.PathLike": os.PathLike,
    }
    return kind not in known or (isinstance(value, known[kind]) and not isinstance(value, bool))


def _is_pair(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 2 and all(isinstance(text, str) for text in value)
