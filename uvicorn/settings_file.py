"""Settings in a file: TOML, whose keys are the names of the settings.

    app = "module:app"
    port = 8080
    workers = 4
    headers = ["Cache-Control:no-store"]

What a value has to be is decided where the command line decides it, so both are told the same way.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Mapping
from typing import Any

from uvicorn.settings import ROWS

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = None

ALSO = ("app_dir",)
"""What the command line takes besides the settings, and a file too."""


class SettingsFileError(ValueError):
    """What is wrong with the file, in one line."""


def read_settings(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the settings that the file at `path` has, by name, as they stand there.

    Raises:
        SettingsFileError: it cannot be read, is no TOML, or has a key or a value that is no setting's.
    """
    return check_settings(_load(path))


def _load(path: str | os.PathLike[str]) -> dict[str, Any]:
    if tomllib is None:
        raise SettingsFileError("it needs Python 3.11 or newer, which can read TOML.")
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as exc:
        raise SettingsFileError(f"{exc.strerror}.") from None
    except ValueError as exc:  # no TOML, or no UTF-8
        raise SettingsFileError(f"it is no TOML: {exc}.") from None


def check_settings(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was found in a file, several values always as a list.

    Raises:
        SettingsFileError: a key is no setting that a file can have, or its value is a table or a list where that has no
            meaning.
    """
    for name, value in found.items():
        _check_name(name)
        is_multiple = name in ROWS and ROWS[name].multiple
        if isinstance(value, dict) or (isinstance(value, list) and not is_multiple):
            raise SettingsFileError(
                f"{name} takes one value, not {'a table' if isinstance(value, dict) else 'a list'}."
            )
        if is_multiple and isinstance(value, list) and not all(isinstance(item, str) for item in value):
            raise SettingsFileError(f"{name} takes texts.")
    return {name: [value] if _is_one_of_several(name, value) else value for name, value in found.items()}


def _check_name(name: str) -> None:
    known = [row.name for row in ROWS.values() if row.cli]
    if name in known or name in ALSO:
        return
    if name in ROWS:
        raise SettingsFileError(f"{name} can only be set in Python.")
    # By the name of its option, too: `header` is not far from `headers`, and `keep-alive` from nothing.
    nearest = difflib.get_close_matches(name.replace("-", "_"), [*known, *ALSO], n=1, cutoff=0.0)
    raise SettingsFileError(f"there is no setting {name!r}; the nearest is {nearest[0]!r}.")


def _is_one_of_several(name: str, value: object) -> bool:
    return name in ROWS and ROWS[name].multiple and not isinstance(value, list)
