"""`--ws auto`: the fastest implementation that can be imported, which may be none."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
from typing import Any

from uvicorn.protocols.http.hooks import replaced

logger = logging.getLogger("uvicorn.error")

_NATIVE = ("uvicorn.protocols.websockets.native_impl", "NativeWebSocketProtocol")

# In order of preference.
_PYTHON = (
    ("uvicorn.protocols.websockets.websockets_sansio_impl", "WebSocketsSansIOProtocol"),
    ("uvicorn.protocols.websockets.wsproto_impl", "WSProtocol"),
)


def _first(implementations: tuple[tuple[str, str], ...]) -> type[asyncio.Protocol] | None:
    for module, name in implementations:
        try:
            protocol: type[asyncio.Protocol] = getattr(importlib.import_module(module), name)
        except ImportError:
            continue
        return protocol
    return None


AutoWebSocketsProtocol = _first((_NATIVE, *_PYTHON))


def unless_replaced(protocol: Any) -> Any:
    """Return `protocol`, or the implementation in Python if that is the native core, which programs cannot look into.

    Tools replace methods of the classes in the modules of the Python implementations, or whole classes.
    """
    is_native = getattr(protocol, "__name__", None) == _NATIVE[1]
    if (
        protocol is not AutoWebSocketsProtocol
        or not is_native
        or not any(module in sys.modules for module, _ in _PYTHON)
    ):
        return protocol
    implementation = _first(_PYTHON)
    names = [] if implementation is None else replaced(implementation)
    if not names:
        return protocol
    found = ", ".join(names)
    logger.info("WebSocket is not served by the native core, which would not call this: %s.", found)
    return implementation
