"""Settings in a file: TOML, whose keys are the names of the settings.

    app = "module:app"
    port = 8080
    workers = 4
    headers = ["Cache-Control:no-store"]

    [pools.compute]
    app = "module:compute"
    port = 8081
    environment = { OMP_NUM_THREADS = "4" }

A relative path is relative to the file. Each value has the type of its setting, which `settings.py` says once for the
file, the command line, the environment and Python.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from uvicorn.config._values import check
from uvicorn.config.errors import SettingError
from uvicorn.config.settings import ROWS

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = None

ALSO = ("app_dir",)
"""Options of the command line that are not settings, and that a file may contain too."""

POOLS = "pools"
"""The table of pools, which are tables themselves."""

ENVIRONMENT = "environment"
"""In one of these: the table of variables."""

NOT_OF_A_POOL = (
    *("reload", "preload", "env_file"),
    *("metrics", "metrics_routes", "metrics_buckets", "probe", "probe_lateness"),
)
"""Settings that all pools have in common, because they have one parent."""


class SettingsFileError(ValueError):
    """A mistake in the file, in one line."""


PATHS = ("app_dir", "env_file", "log_config", "uds", "ssl_keyfile", "ssl_certfile", "ssl_ca_certs", "ssl_crl")
"""Settings that are one path."""


@dataclass(frozen=True)
class PoolSettings:
    """One table `[pools.NAME]`: settings that are only this pool's.

    Attributes:
        name: NAME.
        settings: by name, as they are in the file.
        environment: variables that its processes have besides those of the parent.
    """

    name: str
    settings: dict[str, Any]
    environment: dict[str, str]


@dataclass(frozen=True)
class FileSettings:
    """The content of a file: settings by name, and the pools that have others."""

    settings: dict[str, Any]
    pools: list[PoolSettings]


def read_settings(path: str | os.PathLike[str]) -> FileSettings:
    """Return the content of the file at `path`.

    Raises:
        SettingsFileError: it cannot be read, is malformed, or has an unknown key or a wrong value.
    """
    found = _load(path)
    pools = found.pop(POOLS, {})
    if not isinstance(pools, dict) or not all(isinstance(table, dict) for table in pools.values()):
        raise SettingsFileError(f"{POOLS} takes a table for each pool, as in [{POOLS}.NAME].")
    directory = os.path.dirname(path)
    settings = check_settings(found, directory, [POOLS])
    return FileSettings(settings, [_pool(name, table, directory) for name, table in pools.items()])


def located(settings: dict[str, Any], directory: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the settings of a file in `directory` with paths that lead to the same files from anywhere else."""

    def at(path: Any) -> Any:
        return os.path.join(directory, path) if isinstance(path, str) and path else path

    def behind(equals: str, text: Any) -> Any:
        if not isinstance(text, str):
            return text
        name, found, paths = text.partition(equals)
        return name + found + ",".join(map(at, paths.split(",")))

    several: dict[str, Callable[[Any], Any]] = {
        "reload_dirs": at,
        "mount": partial(behind, "="),
        "ssl_cert": partial(behind, "="),
        "bind": lambda text: behind(":", text) if str(text).startswith("unix:") else text,
    }
    return {
        name: at(value) if name in PATHS else [*map(several[name], value)] if name in several else value
        for name, value in settings.items()
    }


def _pool(name: str, table: dict[str, Any], directory: str) -> PoolSettings:
    environment = table.pop(ENVIRONMENT, {})
    try:
        if not isinstance(environment, dict) or not all(isinstance(text, str) for text in environment.values()):
            raise SettingsFileError(f"{ENVIRONMENT} takes a table of texts.")
        for setting in set(NOT_OF_A_POOL) & set(table):
            raise SettingsFileError(f"{setting} must be set outside the pools, for all of them.")
        return PoolSettings(name, check_settings(table, directory, [ENVIRONMENT]), environment)
    except SettingsFileError as exc:
        raise SettingsFileError(f"{POOLS}.{name}: {exc}") from None


def _load(path: str | os.PathLike[str]) -> dict[str, Any]:
    if tomllib is None:
        raise SettingsFileError("it needs Python 3.11 or newer, which can read TOML.")
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as exc:
        raise SettingsFileError(f"{exc.strerror}.") from None
    except ValueError as exc:  # no TOML, or no UTF-8
        raise SettingsFileError(f"it is not TOML: {exc}.") from None


def check_settings(
    found: Mapping[str, Any], directory: str | os.PathLike[str] = "", tables: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the settings of a file in `directory`, several values always as a list.

    `tables` are the names of the tables that it may have.

    Raises:
        SettingsFileError: a key is unknown, or its setting does not take the value.
    """
    for name, value in found.items():
        _check_name(name, tables)
        is_multiple = name in ROWS and ROWS[name].multiple
        if isinstance(value, dict) or (isinstance(value, list) and not is_multiple):
            raise SettingsFileError(f"{name} takes one value, not a {'table' if isinstance(value, dict) else 'list'}.")
    lists = {
        name: [value] if name in ROWS and ROWS[name].multiple and not isinstance(value, list) else value
        for name, value in found.items()
    }
    try:
        return {name: _checked(name, value) for name, value in located(lists, directory).items()}
    except SettingError as exc:
        raise SettingsFileError(str(exc)) from None


def _checked(name: str, value: Any) -> Any:
    if name in ROWS:
        return check(ROWS[name], value, is_command=True)
    if not isinstance(value, str):
        raise SettingError(f"{name} must be text, not {value!r}.")
    return value


def _check_name(name: str, tables: Sequence[str]) -> None:
    known = [row.name for row in ROWS.values() if row.cli]
    if name in known or name in ALSO:
        return
    if name in ROWS:
        raise SettingsFileError(f"{name} can only be set in Python.")
    # By the name of its option, too: `header` is not far from `headers`, and `keep-alive` from nothing.
    nearest = difflib.get_close_matches(name.replace("-", "_"), [*known, *ALSO, *tables], n=1, cutoff=0.0)
    raise SettingsFileError(f"there is no setting {name!r}; the nearest is {nearest[0]!r}.")
