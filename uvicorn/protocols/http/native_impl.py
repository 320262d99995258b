"""HTTP/1.1 in Rust: the class of `uvicorn._native` with the constructor of every other implementation."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn._native as _native
from uvicorn._types import ProtocolConfig
from uvicorn.state import ServerState


class NativeProtocol(_native.HTTPProtocol, asyncio.Protocol):
    """One HTTP/1.1 connection, read, written and timed by the native core.

    Args:
        config: loaded if it is not yet.
        server_state: shared by the connections of one event loop.
        app_state: what the lifespan left, copied into each scope.
        _loop: the running event loop unless given.
    """

    __slots__ = ()

    def __new__(
        cls,
        config: ProtocolConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> NativeProtocol:
        """Make a connection of the server that `server_state` belongs to; the native part of that is made once."""
        server = server_state.protocol_settings
        if not isinstance(server, _native.Server) or server.config is not config:
            if not config.loaded:
                config.load()
            server = _native.Server(config, server_state, _loop or asyncio.get_event_loop())
            server_state.protocol_settings = server
        return super().__new__(cls, server, app_state)
