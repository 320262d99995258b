"""Processes that start, watch and replace other processes: reload and several workers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uvicorn.supervisors.basereload import BaseReload
    from uvicorn.supervisors.multiprocess import Multiprocess

    ChangeReload: type[BaseReload]

__all__ = ["ChangeReload", "Multiprocess"]

_MODULES = {
    "BaseReload": "basereload",
    "Multiprocess": "multiprocess",
    "basereload": "basereload",
    "multiprocess": "multiprocess",
    "statreload": "statreload",
    "watchfilesreload": "watchfilesreload",
}
"""The module of each exported name, or the submodule itself."""


def __getattr__(name: str) -> Any:
    # Imported when first asked for: each worker imports this package, and none watches files.
    if name != "ChangeReload" and name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "ChangeReload":
        value = _change_reload()
    else:
        module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
        value = getattr(module, name, module)
    globals()[name] = value
    return value


def _change_reload() -> Any:
    """Return the reloader: one that notices changes at once if its library is there, else one that polls."""
    try:
        return importlib.import_module("uvicorn.supervisors.watchfilesreload").WatchFilesReload
    except ImportError:
        return importlib.import_module("uvicorn.supervisors.statreload").StatReload
