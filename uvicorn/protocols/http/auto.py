"""`--http auto`: the fastest implementation that can be imported."""

from __future__ import annotations

import asyncio
import importlib

# In order of preference.
_IMPLEMENTATIONS = (
    ("uvicorn.protocols.http.native_impl", "NativeProtocol"),
    ("uvicorn.protocols.http.httptools_impl", "HttpToolsProtocol"),
    ("uvicorn.protocols.http.h11_impl", "H11Protocol"),
)


def _first() -> tuple[str, type[asyncio.Protocol]]:
    for module, name in _IMPLEMENTATIONS[:-1]:
        try:
            return module, getattr(importlib.import_module(module), name)
        except ImportError:
            continue
    module, name = _IMPLEMENTATIONS[-1]
    return module, getattr(importlib.import_module(module), name)


_module, AutoHTTPProtocol = _first()

CORE = _module.rpartition(".")[2].removesuffix("_impl")
"""The name of the implementation that was found: native, httptools or h11."""
