"""`--http auto`: the fastest implementation that can be imported."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
from typing import Any

from uvicorn.protocols.http.hooks import replaced

logger = logging.getLogger("uvicorn.error")

# In order of preference.
_IMPLEMENTATIONS = (
    ("uvicorn.protocols.http.native_impl", "NativeProtocol"),
    ("uvicorn.protocols.http.httptools_impl", "HttpToolsProtocol"),
    ("uvicorn.protocols.http.h11_impl", "H11Protocol"),
)


def _first(implementations: tuple[tuple[str, str], ...]) -> tuple[str, type[asyncio.Protocol]]:
    for module, name in implementations[:-1]:
        try:
            return module, getattr(importlib.import_module(module), name)
        except ImportError:
            continue
    module, name = implementations[-1]
    return module, getattr(importlib.import_module(module), name)


_module, AutoHTTPProtocol = _first(_IMPLEMENTATIONS)

CORE = _module.rpartition(".")[2].removesuffix("_impl")
"""The name of the implementation that was found: native, httptools or h11."""


def unless_replaced(protocol: Any) -> Any:
    """Return `protocol`, or the implementation in Python if that is the native core, which programs cannot look into.

    Tools replace methods of `RequestResponseCycle` and of the protocol classes, or whole classes, in the modules of the
    Python implementations.
    """
    _, *python = _IMPLEMENTATIONS
    if CORE != "native" or protocol is not AutoHTTPProtocol or not any(module in sys.modules for module, _ in python):
        return protocol
    module, implementation = _first(tuple(python))
    names = [*replaced(implementation), *replaced(sys.modules[module].RequestResponseCycle)]
    if not names:
        return protocol
    name, found = module.rpartition(".")[2].removesuffix("_impl"), ", ".join(names)
    logger.info("HTTP is served by %s and not by the native core, which would not call this: %s.", name, found)
    return implementation
