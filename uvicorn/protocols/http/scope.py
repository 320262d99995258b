"""Build one ASGI http scope."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import quote, unquote

from uvicorn._types import HTTPScope

EXTENSIONS: dict[str, dict[object, object]] = {
    "http.response.trailers": {},
    "http.response.early_hint": {},
    "http.response.pathsend": {},
    "http.response.zerocopysend": {},
}
"""What every implementation supports beyond the specification's main part, as scopes say it.

Each scope has a copy, because middleware is known to add keys of its own, which must not reach other requests; the
empty dicts inside are the same for all.
"""

EXTENSIONS_10 = {name: EXTENSIONS[name] for name in ("http.response.pathsend", "http.response.zerocopysend")}
"""The same for clients of HTTP/1.0, which know neither chunks, where trailers go, nor interim responses."""

_METHODS = {name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")}


class ScopeBase:
    """What all scopes of one connection have in common.

    Args:
        asgi_version: the interface of the application, "2.0" or "3.0".
        root_path: the configured prefix, put in front of each path.
        state: what the lifespan left; copied for each request, never shared between them.
    """

    __slots__ = ("asgi_version", "scheme", "client", "server", "root_path", "raw_root_path", "state")

    def __init__(
        self,
        asgi_version: Literal["2.0", "3.0"],
        scheme: str,
        client: tuple[str, int] | None,
        server: tuple[str, int | None] | None,
        root_path: str,
        state: dict[str, Any],
    ) -> None:
        self.asgi_version = asgi_version
        self.scheme = scheme
        self.client = client
        self.server = server
        self.root_path = root_path
        self.raw_root_path = root_path.encode() if root_path.isascii() else quote(root_path).encode()
        self.state = state

    def build(self, method: bytes, target: bytes, minor: bytes, headers: list[tuple[bytes, bytes]]) -> HTTPScope:
        """Return the scope of one request.

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
        return {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": "1.1" if minor != b"0" else "1.0",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": _METHODS.get(method) or method.decode("ascii"),
            "root_path": self.root_path,
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": headers,
            "state": self.state.copy() if self.state else {},
            "extensions": (EXTENSIONS if minor != b"0" else EXTENSIONS_10).copy(),
        }
