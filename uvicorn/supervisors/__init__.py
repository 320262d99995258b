"""Processes that start, watch and replace other processes: reload and several workers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uvicorn.supervisors.basereload import BaseReload
    from uvicorn.supervisors.multiprocess import Multiprocess

    ChangeReload: type[BaseReload]

__all__ = ["ChangeReload", "Multiprocess"]

_MODULES = ("basereload", "multiprocess", "statreload", "watchfilesreload")


def __getattr__(name: str) -> Any:
    # Imported when first asked for: each worker imports this package, and none watches files.
    value: Any
    if name == "Multiprocess":
        value = importlib.import_module("uvicorn.supervisors.multiprocess").Multiprocess
    elif name == "BaseReload":
        value = importlib.import_module("uvicorn.supervisors.basereload").BaseReload
    elif name == "ChangeReload":
        value = _change_reload()
    elif name in _MODULES:
        return importlib.import_module(f"uvicorn.supervisors.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def _change_reload() -> Any:
    """What notices changes at once, if its library is there, else what looks now and then."""
    try:
        return importlib.import_module("uvicorn.supervisors.watchfilesreload").WatchFilesReload
    except ImportError:
        return importlib.import_module("uvicorn.supervisors.statreload").StatReload
