"""`--ws auto`: the fastest implementation that can be imported, which may be none.

`AutoWebSocketsProtocol` is upstream's name for a class in Python that programs derive theirs from. It is one here, too,
where its library is installed, imported on demand; otherwise `fastest()` serves.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
from typing import TYPE_CHECKING, Any

from uvicorn.hooks import never_used, replaced, replaced_beside

if TYPE_CHECKING:
    AutoWebSocketsProtocol: type[asyncio.Protocol] | None

logger = logging.getLogger("uvicorn.error")

_NATIVE = ("uvicorn.protocols.websockets.native_impl", "NativeWebSocketProtocol")

# In order of preference.
_PYTHON = (
    ("uvicorn.protocols.websockets.websockets_sansio_impl", "WebSocketsSansIOProtocol"),
    ("uvicorn.protocols.websockets.wsproto_impl", "WSProtocol"),
)


def _first(*implementations: tuple[str, str]) -> type[asyncio.Protocol] | None:
    for module, name in implementations:
        try:
            protocol: type[asyncio.Protocol] = getattr(importlib.import_module(module), name)
        except ImportError:
            continue
        return protocol
    return None


_found = _first(_NATIVE, *_PYTHON)


def __getattr__(name: str) -> Any:
    if name != "AutoWebSocketsProtocol":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = _first(*_PYTHON, _NATIVE)
    globals().update(AutoWebSocketsProtocol=value, _given=value)
    return value


def fastest() -> Any:
    """Return the native core, or the implementation in Python where there is none, or programs have replaced something.

    Tools replace methods of the classes in the modules of the Python implementations, or whole classes and functions,
    or the class of this module. The native core would not call them.
    """
    given = globals().get("_given")
    auto = globals().get("AutoWebSocketsProtocol")
    if auto is not given:
        return auto
    is_native = getattr(_found, "__name__", None) == _NATIVE[1]
    is_imported = any(module in sys.modules for module, _ in _PYTHON)
    if not is_native or not (is_imported or replaced_beside("uvicorn.protocols.utils")):
        return _found
    implementation = _first(*_PYTHON)
    if implementation is None:
        return _found
    names = [*replaced(implementation), *replaced_beside(implementation), *never_used(implementation)]
    if not names:
        return _found
    logger.info("WebSocket is not served by the native core, which would not call %s.", ", ".join(names))
    return implementation
