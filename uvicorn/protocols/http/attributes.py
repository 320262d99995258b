"""The attributes of a connection that programs read and assign, under upstream's names, above all in subclasses.

A connection shares its `settings` with all others of its server. Assigning one of them gives the
connection its own settings. Its values in each scope (`client`, `server`, `scheme`) are the transport's
from `connection_made` on, and may be changed then.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from typing import TYPE_CHECKING, Any, cast

from uvicorn._types import ASGI3Application, Connection, HTTPScope, ProtocolConfig
from uvicorn.access.format import LineFormat
from uvicorn.access.log import AccessLog, FormattedLog
from uvicorn.hooks import original

if TYPE_CHECKING:
    from uvicorn.protocols.http.cycle import RequestResponseCycle
    from uvicorn.protocols.http.h1.input import Input
    from uvicorn.protocols.http.scope import ScopeBase
    from uvicorn.protocols.http.wire.request_reader import RequestReader
    from uvicorn.serving.state import ServerState


def _setting(name: str, meaning: str) -> Any:
    """An attribute that returns a setting."""

    def get(self: Attributes) -> Any:
        return getattr(self.settings, name)

    def assign(self: Attributes, value: Any) -> None:
        setattr(self._own_settings(), name, value)

    return property(get, assign, doc=meaning)


def _in_scopes(name: str, meaning: str) -> Any:
    """An attribute that is the same in all scopes of the connection; `None` before there is one."""

    def get(self: Attributes) -> Any:
        return getattr(self._base, name) if self._is_made else None

    def assign(self: Attributes, value: Any) -> None:
        setattr(self._base, name, value)

    return property(get, assign, doc=meaning)


@original
class Attributes(asyncio.Protocol):
    """The attributes of a connection that have a meaning to others; `HTTPProtocol` is the connection."""

    __slots__ = ("settings", "server_state", "loop", "_app_state", "_base", "_input", "_lost", "_scope")

    settings: Any
    server_state: ServerState
    loop: asyncio.AbstractEventLoop
    _app_state: dict[str, Any]
    _base: ScopeBase
    _input: Input
    _lost: RequestResponseCycle | None
    _reader: RequestReader
    _scope: Any  # while its head is read; and the last one, for classes of the program's

    ws_protocol_class = _setting(
        "ws_protocol_class", "The class that takes over on an upgrade to WebSocket, or `None`."
    )
    timeout_keep_alive = _setting("timeout_idle", "Seconds until a connection that asks nothing more is closed.")
    limit_concurrency = _setting("limit_concurrency", "Connections or tasks from which on a request is answered 503.")

    client = _in_scopes("client", "The peer's address, `None` if it has none.")
    server = _in_scopes("server", "The address of this end.")
    scheme = _in_scopes("scheme", "`http` or `https`.")

    @property
    def _is_made(self) -> bool:
        return hasattr(self, "_input")

    def _own_settings(self) -> Any:
        self.settings = copy.copy(self.settings)
        return self.settings

    @property
    def config(self) -> ProtocolConfig:
        """The configuration the connection was made with."""
        config: ProtocolConfig = self.settings.config
        return config

    @property
    def app(self) -> ASGI3Application:
        """The application behind its middleware."""
        app: ASGI3Application = self.settings.app
        return app

    @app.setter
    def app(self, app: ASGI3Application) -> None:
        self._own_settings().set_app(app)

    @property
    def app_state(self) -> dict[str, Any]:
        """The state that the lifespan left; copied into the scope of each request that begins."""
        return self._app_state

    @app_state.setter
    def app_state(self, state: dict[str, Any]) -> None:
        self._app_state = state
        if self._is_made:
            self._base.state = state

    @property
    def cycle(self) -> RequestResponseCycle | None:
        """That of the request being answered; in a class of the program's also the one whose connection was lost."""
        if self._lost is not None or not self._is_made:
            return self._lost
        return self._input.cycle

    @cycle.setter
    def cycle(self, cycle: RequestResponseCycle | None) -> None:
        self._input.cycle = cycle

    @property
    def scope(self) -> HTTPScope | None:
        """The scope of the request being read or answered, or of the last one if the class is one of the program's."""
        cycle = self.cycle
        scope: HTTPScope | None = self._scope if cycle is None else cycle.scope
        return scope

    @scope.setter
    def scope(self, scope: HTTPScope) -> None:
        cycle = self.cycle
        if cycle is not None:
            cycle.scope = scope
        else:
            self._scope = scope

    @property
    def headers(self) -> list[tuple[bytes, bytes]] | None:
        """The header fields of that request."""
        scope = self.scope
        return None if scope is None else cast("list[tuple[bytes, bytes]]", scope["headers"])

    @headers.setter
    def headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        scope = self.scope
        if scope is not None:
            scope["headers"] = headers

    @property
    def access_log(self) -> bool:
        """Whether requests are logged."""
        return self.settings.access is not None or self.settings.formatted is not None

    @access_log.setter
    def access_log(self, wanted: bool) -> None:
        settings = self._own_settings()
        text = self.config.access_log_format
        if not wanted:
            settings.set_log(None, None)
        elif settings.access_logger is not None:
            settings.set_log(settings.logger_log(settings.access_logger), None)
        elif text is None:
            settings.set_log(AccessLog(self.loop), None)
        else:
            settings.set_log(None, FormattedLog(self.loop, LineFormat(text)))

    @property
    def access_logger(self) -> logging.Logger:
        """The logger of requests."""
        logger: logging.Logger | None = self.settings.access_logger
        return logging.getLogger("uvicorn.access") if logger is None else logger

    @access_logger.setter
    def access_logger(self, logger: logging.Logger) -> None:
        settings = self._own_settings()
        settings.access_logger = logger
        if self.access_log:
            settings.set_log(settings.logger_log(logger), None)

    @property
    def asgi_version(self) -> str:
        """The version of the application's interface."""
        version: str = self.settings.asgi_version
        return version

    @property
    def root_path(self) -> str:
        """The path below which the application is mounted."""
        path: str = self.settings.root_path
        return path

    @root_path.setter
    def root_path(self, path: str) -> None:
        settings = self._own_settings()
        settings.root_path = path
        settings.read_head = None
        if self._is_made:
            self._base.mount(path)
            self._reader.read_in_python()

    @property
    def connections(self) -> set[Connection]:
        """All connections of the server."""
        return self.server_state.connections

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """The tasks of all requests that the server answers."""
        return self.server_state.tasks
