"""HTTP/1.1 and HTTP/2 in Rust: the class of `uvicorn._native` with the constructor of every other implementation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import uvicorn._native as _native
from uvicorn._types import ASGI3Application, ProtocolConfig
from uvicorn.hooks import original
from uvicorn.protocols.native_cores import cores_and_state, cores_of
from uvicorn.protocols.utils import is_secure
from uvicorn.serving.state import ServerState


@original
class NativeProtocol(_native.HTTPProtocol, asyncio.Protocol):
    """One connection of HTTP/1.1, or of HTTP/2, read, written and timed by the native core.

    Args:
        config: loaded if it is not yet.
        server_state: shared by the connections of one event loop.
        app_state: the state that the lifespan left, copied into each scope.
        _loop: the running event loop unless given.
    """

    __slots__ = ()

    speaks_http2 = True
    """Where `Config.http2` says so."""

    speaks_http3 = True
    """Where `Config.http3` says so, and the native core has it."""

    never_called = (
        *("on_response_complete", "send_400_response", "timeout_keep_alive_handler", "handle_websocket_upgrade"),
        *("on_message_begin", "on_url", "on_header", "on_headers_complete", "on_body", "on_message_complete"),
        *("handle_events", "_get_upgrade", "_should_upgrade", "_should_upgrade_to_ws", "_unsupported_upgrade_warning"),
        *("_start_asgi_task", "_unset_keepalive_if_required"),
    )
    """Methods of upstream's that nothing calls; see `uvicorn.hooks`."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NativeProtocol:
        """Make a connection of the server that `server_state` belongs to; the native part of that is made once.

        Subclasses may have a constructor of their own, whose arguments this gets: it takes what it knows of them.
        """
        return super().__new__(cls, *cores_and_state(args, kwargs, "protocol_settings"))

    def __init__(
        self,
        config: ProtocolConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Subclasses call this, as of any other implementation; all was done before."""

    @classmethod
    def factory(
        cls,
        config: ProtocolConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        last: bool = False,
    ) -> Callable[[], _native.HTTPProtocol]:
        """Return a factory of connections, equal to the constructor; if `last`, each of them serves one request.

        For servers that have many to make, and for this class as it is: none of its Python is run for a connection.
        """
        cores = cores_of(config, server_state, _loop, "protocol_settings")
        return _native.Factory(cls, cores, app_state, last)

    # Attributes that programs read. Unlike those of the Python implementations, they cannot be assigned.

    @property
    def app(self) -> ASGI3Application:
        """The application behind its middleware."""
        return self.config.loaded_app

    @property
    def scheme(self) -> str | None:
        """`http` or `https`; `None` before there is a connection."""
        transport = self.transport
        if transport is None:
            return None
        return "https" if is_secure(transport) else "http"

    @property
    def access_log(self) -> bool:
        """Whether requests are logged."""
        return self.config.access_log

    @property
    def access_logger(self) -> logging.Logger:
        """The logger of requests."""
        return logging.getLogger("uvicorn.access")
