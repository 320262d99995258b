"""`--http auto`: the fastest implementation that can be imported.

`AutoHTTPProtocol` is upstream's name for a class in Python that programs derive theirs from, to override its methods
and assign its attributes. It is one here, too, imported on demand; otherwise `fastest()` serves.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

from uvicorn.hooks import replaced, replaced_beside

if TYPE_CHECKING:
    AutoHTTPProtocol: type[asyncio.Protocol]

logger = logging.getLogger("uvicorn.error")

_NATIVE = ("uvicorn.protocols.http.native_impl", "NativeProtocol")

# In order of preference.
_PYTHON = (
    ("uvicorn.protocols.http.httptools_impl", "HttpToolsProtocol"),
    ("uvicorn.protocols.http.h11_impl", "H11Protocol"),
)


# Where the functions and classes are that those import.
_BESIDE = ("uvicorn.protocols.utils", "uvicorn.protocols.http.flow_control")

_LIBRARIES = {"httptools": "httptools.HttpRequestParser", "h11": "h11.Connection"}


def _first(*implementations: tuple[str, str]) -> tuple[str, type[asyncio.Protocol]]:
    for module, name in implementations[:-1]:
        try:
            return module, getattr(importlib.import_module(module), name)
        except ImportError as exc:
            _failed[module] = exc
    module, name = implementations[-1]
    return module, getattr(importlib.import_module(module), name)


_failed: dict[str, ImportError] = {}
_module, _found = _first(_NATIVE, *_PYTHON)

CORE = _module.rpartition(".")[2].removesuffix("_impl")
"""The name of the implementation that was found: native, httptools or h11."""

BUILDING = (
    "install Rust 1.88 or later (https://rustup.rs), then reinstall uvicorn (pip install --force-reinstall --no-deps)"
)


def core() -> str:
    """Name the implementation that was found; where it is not the native core, say why and what to do."""
    return CORE if CORE == "native" else f"{CORE} (the native core {absence()})"


def absence() -> str:
    """Say why there is no native core and what to do, as a predicate: ``was not built: install Rust``."""
    failure = _failed.get(_NATIVE[0])
    if failure is not None and not isinstance(failure, ModuleNotFoundError):
        return f"cannot be imported: {failure}; {BUILDING}"
    own = os.path.realpath(os.path.dirname(str(sys.modules["uvicorn"].__file__)))
    others = [os.path.realpath(os.path.join(directory, "uvicorn")) for directory in sys.path]
    hidden = next(filter(_has_core, others), None)
    if hidden is not None and not _has_core(own):
        return f"is hidden: {own} has none and comes before {hidden}; start in another directory"
    return f"was not built: {BUILDING}"


def _has_core(directory: str) -> bool:
    return PathFinder.find_spec("uvicorn._native", [directory]) is not None


def __getattr__(name: str) -> Any:
    if name != "AutoHTTPProtocol":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _, value = _first(*_PYTHON)
    globals().update(AutoHTTPProtocol=value, _given=value)
    return value


def fastest() -> Any:
    """Return the native core, or the implementation in Python where there is none, or programs have replaced something.

    Tools replace methods of `RequestResponseCycle` and of the protocol classes, or whole classes and functions, in the
    modules of the Python implementations and those that these import them from, the library's parser, or the class of
    this module. The native core would not call them.
    """
    given = globals().get("_given")
    auto = globals().get("AutoHTTPProtocol")
    if auto is not given:
        return auto
    modules = [*_LIBRARIES, *(module for module, _ in _PYTHON)]
    if CORE != "native" or not (any(map(sys.modules.__contains__, modules)) or any(map(replaced_beside, _BESIDE))):
        return _found
    module, implementation = _first(*_PYTHON)
    name = module.rpartition(".")[2].removesuffix("_impl")
    names = [*replaced(implementation), *replaced(sys.modules[module].RequestResponseCycle), *replaced_beside(module)]
    if getattr(implementation, "library_is_patched", bool)():
        names.append(_LIBRARIES[name])
    if not names:
        return _found
    logger.info("HTTP is served by %s instead of the native core, which would not call %s.", name, ", ".join(names))
    return implementation
