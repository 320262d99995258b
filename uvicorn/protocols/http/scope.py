"""Build the ASGI scope of a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast
from urllib.parse import quote, unquote

from uvicorn._types import EXTENSIONS_10, EXTENSIONS_WEBSOCKET, HTTPScope, WebSocketScope
from uvicorn.protocols.http.wire.head import RequestLine
from uvicorn.tls.extension import EXTENSION as TLS
from uvicorn.tls.extension import describe

_METHODS = {name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")}


class ScopeBase:
    """The part that all scopes of one connection share.

    Args:
        asgi_version: the interface of the application, "2.0" or "3.0".
        root_path: the configured prefix, put in front of each path.
        state: the state that the lifespan left; copied for each request, never shared between them.
        extensions: names of those that are offered.
        ssl_object: the TLS of the connection, if it has any.
    """

    __slots__ = (
        *("asgi_version", "scheme", "client", "server", "root_path", "raw_root_path", "state", "extensions"),
        *("_ssl_object", "_tls"),
    )

    def __init__(
        self,
        asgi_version: Literal["2.0", "3.0"],
        scheme: str,
        client: tuple[str, int] | None,
        server: tuple[str, int | None] | None,
        root_path: str,
        state: dict[str, Any],
        extensions: Sequence[str] = (),
        ssl_object: Any = None,
    ) -> None:
        self.asgi_version = asgi_version
        self.scheme = scheme
        self.client = client
        self.server = server
        self.mount(root_path)
        self.state = state
        self.extensions = extensions
        self._ssl_object = ssl_object
        self._tls: dict[str, Any] | None = None

    def mount(self, root_path: str) -> None:
        """Put this prefix in front of each path."""
        self.root_path = root_path
        self.raw_root_path = root_path.encode() if root_path.isascii() else quote(root_path).encode()

    def line(self, method: bytes, target: bytes, minor: bytes) -> RequestLine:
        """Return the parts of a request line; the same for all connections with this root path.

        `target` is a path with an optional query, or `*`: both are kept as sent in `raw_path` and `query_string`, and
        the path is percent-decoded once in `path` (undecodable bytes become U+FFFD).
        """
        raw_path, _, query = target.partition(b"?")
        path = raw_path.decode("ascii")
        if "%" in path:
            path = unquote(path)
        if self.root_path:
            path = self.root_path + path
            raw_path = self.raw_root_path + raw_path
        name = _METHODS.get(method) or method.decode("ascii")
        if minor == b"0":
            extensions = [extension for extension in self.extensions if extension in EXTENSIONS_10]
            return name, "1.0", path, raw_path, query, extensions
        return name, "1.1", path, raw_path, query, self.extensions

    def begin(self, headers: list[tuple[bytes, bytes]]) -> HTTPScope:
        """Return a scope without the values of its request line; see `complete`."""
        state = self.state
        scope: Any = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": "1.1",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": self.root_path,
            "headers": headers,
            "state": state.copy() if state else {},
        }
        return cast(HTTPScope, scope)

    def complete(self, scope: HTTPScope, line: RequestLine) -> None:
        """Put the rest into a scope that was begun."""
        method, http_version, path, raw_path, query_string, extensions = line
        scope["http_version"] = http_version
        scope["method"] = method
        scope["path"] = path
        scope["raw_path"] = raw_path
        scope["query_string"] = query_string
        if extensions:
            # Entries that a program has added meanwhile stay.
            scope["extensions"] = {**self._offer(extensions), **scope.get("extensions", {})}

    def build(self, line: RequestLine, headers: list[tuple[bytes, bytes]]) -> HTTPScope:
        """Return the scope of one request."""
        # As `begin` and `complete`, at once.
        method, http_version, path, raw_path, query_string, extensions = line
        state = self.state
        scope: HTTPScope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": http_version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": method,
            "root_path": self.root_path,
            "path": path,
            "raw_path": raw_path,
            "query_string": query_string,
            "headers": headers,
            "state": state.copy() if state else {},
        }
        if extensions:
            scope["extensions"] = self._offer(extensions)
        return scope

    def _offer(self, extensions: Sequence[str]) -> dict[str, dict[Any, Any]]:
        """Return the value for a scope: each request gets its own, since middleware is known to add keys."""
        offered: dict[str, dict[Any, Any]] = {extension: {} for extension in extensions if extension != TLS}
        if TLS in extensions and self._ssl_object is not None:
            if self._tls is None:
                self._tls = describe(self._ssl_object)
            offered[TLS] = self._tls.copy()
        return offered

    def build_websocket(
        self, line: RequestLine, headers: list[tuple[bytes, bytes]], subprotocols: list[str]
    ) -> WebSocketScope:
        """Return the scope of a WebSocket that is asked for."""
        _, http_version, path, raw_path, query_string, _ = line
        shared = [extension for extension in self.extensions if extension in EXTENSIONS_WEBSOCKET]
        return {
            "type": "websocket",
            "asgi": {"version": self.asgi_version, "spec_version": "2.4"},
            "http_version": http_version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": self.root_path,
            "path": path,
            "raw_path": raw_path,
            "query_string": query_string,
            "headers": headers,
            "state": self.state.copy(),
            "subprotocols": subprotocols,
            "extensions": self._offer(["websocket.http.response", *shared]),
        }
