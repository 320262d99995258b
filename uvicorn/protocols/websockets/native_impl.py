"""WebSocket in Rust: the class of `uvicorn._native` with the constructor of every other implementation."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn._native as _native
from uvicorn._types import ASGI3Application, ProtocolConfig
from uvicorn.hooks import original
from uvicorn.protocols.native_cores import cores_and_state
from uvicorn.protocols.websockets.session_states import CALLED_IN_PYTHON, FRAME_METHODS, LEGACY, SessionState
from uvicorn.serving.state import ServerState


@original
class NativeWebSocketProtocol(_native.WebSocketProtocol, asyncio.Protocol):
    """One WebSocket, read, written and timed by the native core.

    Args:
        config: loaded if it is not yet.
        server_state: shared by the connections of one event loop.
        app_state: what the lifespan left, copied into the scope.
        _loop: the running event loop unless given.
    """

    __slots__ = ()

    stands_on_streams = True
    """It can be opened over HTTP/2 (RFC 8441)."""

    never_called = (*LEGACY, *FRAME_METHODS, *CALLED_IN_PYTHON)
    """Methods of upstream's classes that nothing calls; see `uvicorn.hooks`."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NativeWebSocketProtocol:
        """Make a connection of the server that `server_state` belongs to; the native part of that is made once.

        Subclasses may have a constructor of their own, whose arguments this gets: it takes what it knows of them.
        """
        return super().__new__(cls, *cores_and_state(args, kwargs, "protocol_settings", "websocket_settings"))

    def __init__(
        self,
        config: ProtocolConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Subclasses call this, as of any other implementation; all was done before."""

    # What programs read. Unlike that of the Python implementations, it cannot be assigned.

    @property
    def app(self) -> ASGI3Application:
        """The application behind its middleware."""
        return self.config.loaded_app

    @property
    def state(self) -> SessionState:
        """How far the connection has come."""
        return SessionState(self.stage)

    @property
    def handshake_complete(self) -> bool:
        """The connection was accepted, or refused."""
        return self.state is not SessionState.CONNECTING
