"""The route of a request: the template that its application has matched, such as `/items/{item_id}`.

Frameworks leave it in the scope once they have matched the path, so it is read after the application was called, or
while it runs. Paths as clients send them are never used: there is no end of them.
"""

from __future__ import annotations

from typing import Any, Final

NO_ROUTE: Final = ""
"""The application has matched none, or did not say which."""

_ATTRIBUTES = ("path_format", "path", "rule")
"""Of a route object: FastAPI's and Starlette's, any other's, werkzeug's."""


MOST_ENDPOINTS = 1024
"""Endpoints whose routes are remembered."""


class Routes:
    """Finds the routes of requests and WebSockets by their scopes."""

    def __init__(self) -> None:
        self._of_endpoints: dict[Any, str] = {}

    def of(self, scope: Any) -> str:
        """Return the route; `NO_ROUTE` if the application has left none.

        `scope["route"]` is a text, or an object as FastAPI's (`path_format`, `path`, `rule`). Litestar's is
        `scope["path_template"]`; of Starlette, which leaves the endpoint only, it is that of the router's route.
        """
        route = scope.get("route")
        if route is None:
            template = scope.get("path_template")
            return template if isinstance(template, str) else self._of_endpoint(scope)
        if isinstance(route, str):
            return route
        for name in _ATTRIBUTES:
            found = getattr(route, name, None)
            if isinstance(found, str):
                return found
        return NO_ROUTE

    def _of_endpoint(self, scope: Any) -> str:
        endpoint = scope.get("endpoint")
        routes = getattr(scope.get("app"), "routes", None)
        if endpoint is None or routes is None:
            return NO_ROUTE
        try:
            # A search passes all routes of the application.
            known = self._of_endpoints.get(endpoint)
        except TypeError:  # it cannot be hashed
            return _find(routes, endpoint, "")
        if known is None:
            known = _find(routes, endpoint, "")
            if len(self._of_endpoints) < MOST_ENDPOINTS:
                self._of_endpoints[endpoint] = known
        return known


def _find(routes: Any, endpoint: Any, prefix: str) -> str:
    for route in routes:
        path = getattr(route, "path_format", None) or getattr(route, "path", None)
        if not isinstance(path, str):
            continue
        if getattr(route, "endpoint", None) is endpoint:
            return prefix + path
        below = getattr(route, "routes", None)
        if below:
            found = _find(below, endpoint, prefix + path)
            if found:
                return found
    return NO_ROUTE
