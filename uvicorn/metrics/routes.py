"""The route of a request: the template that its application has matched, such as `/items/{item_id}`.

Frameworks leave it in the scope once they have matched the path, so it is read after the application was called, or
while it runs. Paths as clients send them are never used: there is no end of them.

A scope names the innermost route only. `RouteMap` knows the prefix of each from the application's own tables: mounts,
sub-applications, included routers. Django, Quart and Flask leave nothing in the scope: `announce_routes` changes that.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

NO_ROUTE: Final = ""
"""The application has matched none, or did not say which."""

OTHER: Final = "other"
"""The route under which those are counted for which a table has no room."""

ORIGINAL_SCOPE: Final = "uvicorn.scope"
"""Key of a scope that is a copy: the original, in which the server looks for the route."""

_ATTRIBUTES = ("path_format", "path", "rule")
"""Of a route object: FastAPI's and Starlette's, any other's, werkzeug's."""

_INNER = ("app", "application", "_app", "wrapped_app")
"""Where middleware keeps the application that it wraps."""

MOST_ENDPOINTS = 1024
"""Endpoints whose routes are remembered."""

MOST_ROUTES = 20_000
"""Routes that a map holds."""

MOST_LEVELS = 16
"""Applications within one another that are searched."""

REBUILD_INTERVAL = 1.0
"""Seconds after which an unknown route makes a map look again: applications add routes while they run."""


class RouteMap:
    """The full templates of the routes that an application has, by route object and by endpoint.

    Args:
        app: the application, with middleware around it.
        clock: in seconds.

    Attributes:
        is_current: whether the last answer was that of the application as it is, not of up to `REBUILD_INTERVAL` ago.
    """

    def __init__(self, app: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._clock = clock
        self._built: float | None = None
        self.is_current = True
        self._known: dict[int, list[str]] = {}
        self._held: list[Any] = []
        """Objects whose ids are keys."""

    def of(self, key: Any) -> list[str]:
        """Return the templates of a route object or an endpoint: several if it is mounted or included repeatedly."""
        found = self._known.get(id(key))
        self.is_current = found is not None
        if found is None:
            now = self._clock()
            if self._built is None or now - self._built >= REBUILD_INTERVAL:
                self._built, self.is_current = now, True
                # Other threads go on with the old table until the new one is complete.
                fresh = RouteMap(self._app, self._clock)
                fresh._add_all(self._app, "", 0)
                self._known, self._held = fresh._known, fresh._held
                found = self._known.get(id(key))
        return found or []

    def _add_all(self, app: Any, prefix: str, level: int) -> bool:
        """Add the routes of an application; false if it has no table of them."""
        for inner in _chain(app):
            routes = getattr(inner, "routes", None)
            if isinstance(routes, (list, tuple)):
                for route in _effective(routes):
                    self._add(route, prefix, level)
                return True
        return False

    def _add(self, route: Any, prefix: str, level: int) -> None:
        if len(self._held) >= MOST_ROUTES or level > MOST_LEVELS:
            return
        endpoint, app = getattr(route, "endpoint", None), getattr(route, "app", None)
        path = getattr(route, "path", None)
        if endpoint is None and app is not None and _is_mount(route):
            below = prefix + (path if isinstance(path, str) else "")
            if not self._add_all(app, below, level + 1):
                self._put(route, below)
                self._put(app, below)
            return
        template = template_of(route)
        if template != NO_ROUTE:
            self._put(getattr(route, "original_route", route), prefix + template)
            if endpoint is not None:
                self._put(endpoint, prefix + template)

    def _put(self, key: Any, template: str) -> None:
        self._held.append(key)
        known = self._known.setdefault(id(key), [])
        if template not in known:
            known.append(template)


class Routes:
    """Finds the routes of requests and WebSockets by their scopes.

    Args:
        app: the application; without it prefixes of mounts are unknown.
    """

    def __init__(self, app: Any = None) -> None:
        self._map = None if app is None else RouteMap(app)
        self._of_endpoints: dict[Any, str] = {}

    def of(self, scope: Any) -> str:
        """Return the route; `NO_ROUTE` if the application has left none, or objects of its own that raise.

        `scope["route"]` is a text, or an object as FastAPI's (`path_format`, `path`, `rule`). Litestar's is
        `scope["path_template"]`; of Starlette before 1.0, which leaves the endpoint only, it is that of the router's
        route.
        """
        try:
            return self.find(scope)[0]
        except Exception:  # of a property of a route object: observing must not end a request
            return NO_ROUTE

    def find(self, scope: Any) -> tuple[str, bool]:
        """Return the route, and whether every scope with the same route object has that route.

        The object is the first of `route`, `path_template` and `endpoint` that the scope has.
        """
        route = scope.get("route")
        if isinstance(route, str):
            return route, True
        if route is None:
            template = scope.get("path_template")
            if isinstance(template, str):
                return template, True
        key = scope.get("endpoint") if route is None else route
        if key is None:
            return NO_ROUTE, False
        known = [] if self._map is None else self._map.of(key)
        if len(known) == 1:
            return known[0], True
        own, is_fixed = _of_context(scope, route) if route is not None else (self._of_endpoint(scope), False)
        if not known:
            return own, is_fixed and (self._map is None or self._map.is_current)
        # The same application mounted twice, or the same router included twice.
        paths = [template for template in known if template.endswith(own)] or known
        return next((template for template in paths if _is_below(template, scope)), paths[0]), False

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


def template_of(route: Any) -> str:
    """Return the template of a route object, `NO_ROUTE` if it has none or is a mount with routes of its own."""
    if _is_mount(route):
        path = getattr(route, "path", None)
        return path if isinstance(path, str) and not getattr(route, "routes", None) else NO_ROUTE
    for name in _ATTRIBUTES:
        found = getattr(route, name, None)
        if isinstance(found, str):
            return found
    return NO_ROUTE


def _is_mount(route: Any) -> bool:
    """Tell whether a route of Starlette leads to another application rather than to an endpoint."""
    return hasattr(route, "routes") and not hasattr(route, "endpoint")


def _of_context(scope: Any, route: Any) -> tuple[str, bool]:
    """Return the template of a route object, and whether it is that of the object alone.

    FastAPI knows more if its router was included with a prefix.
    """
    own = scope.get("fastapi")
    context = own.get("effective_route_context") if isinstance(own, dict) else None
    if context is not None and getattr(context, "original_route", None) is route:
        return template_of(getattr(context, "starlette_route", None) or context), False
    return template_of(route), True


def _effective(routes: Any) -> Iterator[Any]:
    """Give routes, and those of included routers of FastAPI with their prefixes."""
    for route in routes:
        contexts = getattr(route, "effective_route_contexts", None)
        if not callable(contexts):
            yield route
            continue
        for context in contexts():
            inner = getattr(context, "starlette_route", None)
            yield inner if inner is not None and _is_mount(inner) else context


def _chain(app: Any) -> Iterator[Any]:
    """Give an application, and those that it wraps."""
    for _ in range(MOST_LEVELS):
        yield app
        inner = next((found for name in _INNER if (found := getattr(app, name, None)) is not None), None)
        if inner is None:
            return
        app = inner


def _is_below(template: str, scope: Any) -> bool:
    """Tell whether the path of a request begins as a template does."""
    path: str = scope.get("path", "")
    literal = template.partition("{")[0]
    if path.startswith(literal):
        return True
    root: str = scope.get("app_root_path") or ""
    return bool(root) and path.startswith(root + literal)


def _find(routes: Any, endpoint: Any, prefix: str) -> str:
    for route in routes:
        below = getattr(route, "routes", None)
        path = getattr(route, "path", None) if below else template_of(route)
        if not isinstance(path, str):
            continue
        if getattr(route, "endpoint", None) is endpoint:
            return prefix + path
        if below:
            found = _find(below, endpoint, prefix + path)
            if found:
                return found
    return NO_ROUTE


# Frameworks that leave no route in the scope.


def announce_routes(app: Any) -> None:
    """Have the Django, Quart and Flask applications within `app` leave their routes in the scopes of requests.

    Of Django the method that resolves a request is wrapped, on the handler object itself; Quart and Flask have a
    signal. Nothing is imported: an application's framework is there already.
    """
    seen: set[int] = set()
    pending = [(app, 0)]
    while pending:
        one, level = pending.pop()
        if level > MOST_LEVELS or id(one) in seen:
            continue
        seen.add(id(one))
        _announce(one)
        mapping = getattr(one, "application_mapping", None)  # of Django Channels
        below = list(mapping.values()) if isinstance(mapping, dict) else []
        below += [found for name in (*_INNER, "__self__") if (found := getattr(one, name, None)) is not None]
        routes = getattr(one, "routes", None)
        for route in routes if isinstance(routes, (list, tuple)) else ():
            if _is_mount(route):
                below.append(getattr(route, "app", None))
        pending += [(found, level + 1) for found in below]


def _announce(app: Any) -> None:
    django = sys.modules.get("django.core.handlers.base")
    if django is not None and isinstance(app, django.BaseHandler):
        if not hasattr(app.resolve_request, "uvicorn_resolves"):
            app.resolve_request = _Resolving(app.resolve_request)
        return
    for name in ("quart", "flask"):
        framework = sys.modules.get(name)
        kind = getattr(framework, name.capitalize(), None)
        if framework is None or kind is None or not isinstance(app, kind):
            continue
        signals = framework.signals
        for signal, context in (("request_started", "request"), ("websocket_started", "websocket")):
            started = getattr(signals, signal, None)
            if started is not None:
                started.connect(_receiver(framework, context), sender=app, weak=False)
        return


class _Resolving:
    """Django's method that finds the view of a request, which leaves the route in the scope."""

    uvicorn_resolves = True

    def __init__(self, resolve: Callable[[Any], Any]) -> None:
        self._resolve = resolve

    def __call__(self, request: Any) -> Any:
        match = self._resolve(request)
        route = getattr(match, "route", None)
        if isinstance(route, str):
            leave_route(_scope_of(request), "/" + route.removeprefix("/"))
        return match


def _receiver(framework: Any, name: str) -> Callable[..., None]:
    return partial(_started, framework, name)


def _started(framework: Any, name: str, sender: Any, **_: Any) -> None:
    """Leave the rule of the request that werkzeug has matched."""
    request = getattr(framework, name)
    rule = getattr(getattr(request, "url_rule", None), "rule", None)
    if isinstance(rule, str):
        leave_route(_scope_of(request), rule)


def _scope_of(request: Any) -> Any:
    """Return the scope of a framework's request, which that of WSGI has in its environ; `None` if there is none."""
    scope = getattr(request, "scope", None)
    return getattr(request, "environ", {}).get("asgi.scope") if scope is None else scope


def leave_route(scope: Any, route: str) -> None:
    """Put a route into a scope, and into those of which it is a copy."""
    for _ in range(MOST_LEVELS):
        if not isinstance(scope, dict):
            return
        outer = scope.get("route")
        is_mounted = outer is not None and not isinstance(outer, str) and _is_mount(outer)
        scope["route"] = f"{getattr(outer, 'path', '')}{route}" if is_mounted else route
        scope = scope.get(ORIGINAL_SCOPE)
