"""The implementations of WebSocket, by the names of the setting."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

#: Implementations of a WebSocket session, all of which behave the same.
WS_PROTOCOLS = {
    "websockets-sansio": "uvicorn.protocols.websockets.websockets_sansio_impl:WebSocketsSansIOProtocol",
    "wsproto": "uvicorn.protocols.websockets.wsproto_impl:WSProtocol",
    "native": "uvicorn.protocols.websockets.native_impl:NativeWebSocketProtocol",
    "native-at-once": "tests.protocols.websocket_at_once:AtOnceWebSocketProtocol",
}


def ws_class(name: str) -> Any:
    """The class of this name; the test is skipped where it was not built."""
    if name.startswith("native"):
        pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)
    module, _, attribute = WS_PROTOCOLS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)
