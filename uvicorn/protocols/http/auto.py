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


def _first() -> type[asyncio.Protocol]:
    for module, name in _IMPLEMENTATIONS[:-1]:
        try:
            chosen: type[asyncio.Protocol] = getattr(importlib.import_module(module), name)
        except ImportError:
            continue
        return chosen
    module, name = _IMPLEMENTATIONS[-1]
    last: type[asyncio.Protocol] = getattr(importlib.import_module(module), name)
    return last


AutoHTTPProtocol = _first()
