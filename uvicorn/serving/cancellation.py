"""Cancels the application's call once its client has disconnected (`on_disconnect="cancel"`).

::

    running ──client_left──▶ grace ──the call returns, or the response is complete──▶ nothing
                               └──the grace has passed──▶ the task is cancelled, and the call ends without a traceback

A client has left when its connection is closed or reset, when it has closed its sending side, and when it has reset its
stream. The protocols call `client_left` then. They do not when the server itself stops.

The task is cancelled as `asyncio.Task.cancel` does it: `finally` blocks run, shielded parts go on, and a call that
catches `CancelledError` returns as it likes. A background task, which runs behind a complete response, goes on.
A WebSocket's application is left alone once it has received `websocket.disconnect` or closed the connection itself: it
knows, and ends its session.

One object serves one event loop. It wraps the application as the protocols call it, so that a server without the
setting has none of this.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

from uvicorn._types import (
    ON_DISCONNECT,
    ASGI3Application,
    ASGIReceiveCallable,
    ASGIReceiveEvent,
    ASGISendCallable,
    ASGISendEvent,
    ProtocolConfig,
)
from uvicorn.access.format import escape
from uvicorn.metrics.page import CANCELLED, Page
from uvicorn.metrics.routes import OTHER, Routes
from uvicorn.rules.paths import PathPatterns

REPORT_INTERVAL = 60.0
"""Seconds that one line of the log covers."""

MOST_ROUTES = 128
"""Routes whose durations are known; of others nothing is said about spared work. No more are counted for one line."""

ROUTES_NAMED = 5
"""Routes in one line of the log."""

LONGEST_ROUTE = 200
"""Characters of a route in the log."""

_WEIGHT = 0.1
"""Of the latest duration, in the average of its route."""

_MEASURED = 256
"""Calls whose durations are all measured; after these every `_EVERY`th."""
_EVERY = 16

logger = logging.getLogger("uvicorn.error")


class _Call:
    """One call of the application.

    Attributes:
        scope: of the request or WebSocket, as the protocol made it.
        task: in which it runs.
        since: by the clock of the event loop.
        request: the protocol's object, which knows whether the response is complete.
        is_complete: the application has sent its last message, perhaps in vain, or knows of a WebSocket's end.
        timer: until the grace has passed.
        is_cancelled: by this module.
    """

    __slots__ = ("scope", "task", "since", "request", "is_complete", "timer", "is_cancelled")

    def __init__(self, scope: Any, task: asyncio.Task[Any] | None, since: float, request: Any) -> None:
        self.scope = scope
        self.task = task
        self.since = since
        self.request = request
        self.is_complete = False
        self.timer: asyncio.TimerHandle | None = None
        self.is_cancelled = False

    @property
    def has_left(self) -> bool:
        """Whether the client had left when the call began."""
        return self.scope["type"] == "http" and getattr(self.request, "disconnected", False)

    @property
    def is_settled(self) -> bool:
        """Whether the client can get nothing more from it."""
        return self.is_complete or (self.scope["type"] == "http" and getattr(self.request, "response_complete", False))

    def watch(
        self, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> tuple[ASGIReceiveCallable, ASGISendCallable]:
        """Return the callables for a WebSocket's application, which notice that it knows of the end."""

        async def watched_receive() -> ASGIReceiveEvent:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                self.is_complete = True
            return message

        async def watched_send(message: ASGISendEvent) -> None:
            await send(message)
            if _is_last(message):
                self.is_complete = True

        return watched_receive, watched_send


class CancelOnDisconnect:
    """Cancels the calls of one event loop whose clients leave.

    Args:
        config: its `on_disconnect` settings.
        loop: the event loop.
        metrics: where cancelled calls are counted, if anywhere.
    """

    def __init__(self, config: ProtocolConfig, loop: asyncio.AbstractEventLoop, metrics: Page | None) -> None:
        self._cancels = config.on_disconnect == "cancel"
        self._grace = config.on_disconnect_grace
        self._exempt = PathPatterns(config.on_disconnect_exempt, config.root_path)
        self._loop = loop
        self._metrics = metrics
        self._calls: dict[int, _Call] = {}
        self._routes = Routes(config.loaded_app)
        self._durations: dict[str, float] = {}
        self._ended = 0
        self._report: asyncio.TimerHandle | None = None
        self._cancelled: Counter[str] = Counter()
        self._ran = 0.0
        self._spared = 0.0

    def wrap(self, app: ASGI3Application) -> ASGI3Application:
        """Return the application as the protocols have to call it."""
        return functools.partial(self.run, app)

    async def run(self, app: ASGI3Application, scope: Any, receive: ASGIReceiveCallable, send: ASGISendCallable) -> Any:
        """Call the application, and return its result."""
        call = _Call(scope, asyncio.current_task(), self._loop.time(), getattr(receive, "__self__", None))
        if scope["type"] == "websocket":
            receive, send = call.watch(receive, send)
        key = id(scope)
        self._calls[key] = call
        try:
            if call.has_left:
                self.client_left(scope)
            return await app(scope, receive, send)
        except asyncio.CancelledError:
            if not (call.is_cancelled and _uncancel(call.task)):
                raise
        finally:
            del self._calls[key]
            if call.timer is not None:
                call.timer.cancel()
            self._ended = ended = self._ended + 1
            if (ended <= _MEASURED or not ended % _EVERY) and not call.is_cancelled:
                self._learn(call)

    def client_left(self, scope: Any) -> None:
        """The client of this request or WebSocket has disconnected: cancel the call after the grace."""
        call = self._calls.get(id(scope))
        if call is None or call.timer is not None or call.is_cancelled or call.is_settled:
            return
        call.timer = self._loop.call_later(self._grace, self._cancel, call)

    def dropped(self, scope: Any, message: Any) -> None:
        """The application has sent this to a client that cannot be reached: behind its last message it goes on."""
        call = self._calls.get(id(scope))
        if call is not None and _is_last(message):
            call.is_complete = True

    def close(self) -> None:
        """The server has ended: write the last report."""
        if self._report is not None:
            self._report.cancel()
            self._write()

    def _wants(self, scope: Any) -> bool:
        """Whether this call is to be cancelled, as the application says, or the settings."""
        offered = (scope.get("extensions") or {}).get(ON_DISCONNECT)
        marked = scope.get(ON_DISCONNECT, offered.get("action") if isinstance(offered, dict) else None)
        if marked in ("cancel", "ignore"):
            return bool(marked == "cancel")
        return self._cancels and scope["path"] not in self._exempt

    def _cancel(self, call: _Call) -> None:
        call.timer = None
        task = call.task
        if task is None or task.done() or call.is_settled or not self._wants(call.scope):
            return
        call.is_cancelled = True
        self._note(call)
        task.cancel()

    # The log and the metrics.

    def _note(self, call: _Call) -> None:
        if self._metrics is not None:
            self._metrics.add(CANCELLED)
            if self._metrics.routes is not None:
                self._metrics.routes.cancelled(call.scope)
        route, ran = self._routes.of(call.scope), self._loop.time() - call.since
        is_counted = route in self._cancelled or len(self._cancelled) < MOST_ROUTES
        self._cancelled[route if is_counted else OTHER] += 1
        self._ran += ran
        self._spared += max(0.0, self._durations.get(route, 0.0) - ran)
        if self._report is None:
            self._report = self._loop.call_later(REPORT_INTERVAL, self._write)

    def _learn(self, call: _Call) -> None:
        """Note how long a call of this route takes that was not cancelled."""
        route, ran = self._routes.of(call.scope), self._loop.time() - call.since
        known = self._durations.get(route)
        if known is not None:
            self._durations[route] = known + _WEIGHT * (ran - known)
        elif len(self._durations) < MOST_ROUTES:
            self._durations[route] = ran

    def _write(self) -> None:
        self._report = None
        cancelled, ran, spared = self._cancelled, self._ran, self._spared
        self._cancelled, self._ran, self._spared = Counter(), 0.0, 0.0
        named = ", ".join(
            f"{escape(route[:LONGEST_ROUTE]) or 'no route'} ({count})"
            for route, count in cancelled.most_common(ROUTES_NAMED)
        )
        logger.info(
            "Cancelled %d requests whose clients had disconnected (on_disconnect), after %.1f seconds of work; by the "
            "average of their routes that spared %.1f seconds: %s.",
            sum(cancelled.values()),
            ran,
            spared,
            named,
        )


def _is_last(message: Any) -> bool:
    """Whether no message of the application follows, as far as it knows."""
    kind = message["type"]
    if kind == "http.response.trailers":
        return not message.get("more_trailers", False)
    if kind in ("http.response.start", "http.response.early_hint", "websocket.accept", "websocket.send"):
        return False
    return kind == "websocket.close" or not message.get("more_body", False)


def _uncancel(task: asyncio.Task[Any] | None) -> bool:
    """Take the request to cancel `task` back; false if others have requested the same."""
    uncancel: Callable[[], int] | None = getattr(task, "uncancel", None)  # from 3.11 on
    return uncancel is None or uncancel() == 0
