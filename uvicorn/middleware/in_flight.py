"""Track the requests in flight in an application: the setting `debug_requests`.

It wraps the application only where that is set, so it costs nothing otherwise. The record of a request is dropped when
its application has returned.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import time
from collections.abc import Callable
from typing import Any, Final

from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, Scope, WWWScope
from uvicorn.metrics.routes import Routes

LIFESPAN: Final = "lifespan"
"""The route of tasks that the lifespan has started."""


class InFlightRequest:
    """One request, from the call of the application to its return.

    Attributes:
        scope: of the request, with later changes; `None` when it is over, and for the lifespan.
        loop: on which it is served.
        task: in which the application was called.
        call: the awaitable of the application's call.
        began: when that was, in seconds of `time.monotonic()`.
    """

    __slots__ = ("scope", "loop", "task", "call", "began", "_routes", "_route", "__weakref__")

    def __init__(
        self, scope: WWWScope | None, loop: asyncio.AbstractEventLoop, routes: Routes, route: str = ""
    ) -> None:
        self.scope = scope
        self._routes = routes
        self._route = route
        self.loop = loop
        self.task: asyncio.Task[Any] | None = asyncio.current_task(loop)
        self.call: Any = None
        self.began = time.monotonic()

    def route(self) -> str:
        """Return the route, also when it is over; empty if the application has matched none. From any thread."""
        scope = self.scope
        return self._route if scope is None else self._routes.of(scope)

    def end(self) -> None:
        """It is over: tasks that it has started may hold this for long."""
        self._route = self.route()
        self.scope = self.task = self.call = None


REQUEST: contextvars.ContextVar[InFlightRequest | None] = contextvars.ContextVar("uvicorn_request", default=None)
"""The request of a context."""


def request_of(task: asyncio.Task[Any]) -> InFlightRequest | None:
    """Return the request that a task belongs to: as its own, or as one that was started for it (Python 3.12)."""
    return request_in(task.get_context()) if hasattr(task, "get_context") else None


def request_in(context: contextvars.Context) -> InFlightRequest | None:
    """Return the request to which a context belongs."""
    request = context.get(REQUEST)
    return request if request is not None and request.scope is not None else None


class InFlight(set[InFlightRequest]):
    """The requests that are in flight, on all event loops of one configuration.

    Args:
        app: the application, whose mounts the routes include.

    Attributes:
        routes: finds their routes.
        on_end: called with the scope of each request that ends, while memory is measured.
    """

    on_end: Callable[[WWWScope], None] | None = None

    def __init__(self, app: Any = None) -> None:
        super().__init__()
        self.routes = Routes(app)

    def owner_of(self, task: asyncio.Task[Any]) -> InFlightRequest | None:
        """Return the request that has started a task, even if it is over; `LIFESPAN` is one for this."""
        request = task.get_context().get(REQUEST) if hasattr(task, "get_context") else None
        return request or next((one for one in list(self) if one.task is task), None)

    def of(self, loop: asyncio.AbstractEventLoop) -> list[InFlightRequest]:
        """Return those of one loop, the oldest first; from any thread."""
        return sorted((request for request in list(self) if request.loop is loop), key=lambda request: request.began)


class InFlightMiddleware:
    """Notes each request as long as `app` is at work on it."""

    def __init__(self, app: ASGI3Application, in_flight: InFlight) -> None:
        self.app = app
        self._in_flight = in_flight

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Call the application."""
        if scope["type"] == "lifespan":
            # Its tasks have this context.
            REQUEST.set(InFlightRequest(None, asyncio.get_running_loop(), self._in_flight.routes, LIFESPAN))
            await self.app(scope, receive, send)
            return
        request = InFlightRequest(scope, asyncio.get_running_loop(), self._in_flight.routes)
        token = REQUEST.set(request)
        self._in_flight.add(request)
        try:
            request.call = self.app(scope, receive, send)
            result: object = await request.call
        finally:
            self._in_flight.discard(request)
            if (on_end := self._in_flight.on_end) is not None:
                with contextlib.suppress(Exception):  # an endpoint may be any object
                    on_end(scope)
            request.end()
            with contextlib.suppress(ValueError):  # thrown away in another context
                REQUEST.reset(token)
        return result  # type: ignore[return-value] # what the server says of one is the server's to say
