"""The events for an application: those that wait for it, and the end behind them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from uvicorn._types import ASGIReceiveEvent, WebSocketDisconnectEvent
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, Line


class Inbox:
    """The queue of one session; callers that wait for an event are served in the order of their calls.

    Args:
        capacity: events from which on it is full.
        clock: returns the time.

    Attributes:
        queue: events that the application has not received yet.
        receivers: callers that wait for more.
        end: the last event, which every further call returns; `None` until then.
        took_at: when the application took its last event, or began to answer.
    """

    __slots__ = ("queue", "receivers", "end", "took_at", "_capacity", "_clock", "_size")

    def __init__(self, capacity: int, clock: Callable[[], float]) -> None:
        self.queue: deque[ASGIReceiveEvent] = deque()
        self.receivers = Line()
        self.end: WebSocketDisconnectEvent | None = None
        self.took_at = 0.0
        self._capacity = max(1, capacity)
        self._clock = clock
        self._size = 0  # characters and bytes put into the queue since it was last empty

    def is_awaited(self) -> bool:
        """Tell whether the application has taken everything, and waits for more."""
        return bool(self.receivers) and not self.queue

    def begin(self) -> None:
        """The application has its time to answer from now on."""
        self.took_at = self._clock()

    def put(self, content: str | bytes) -> bool:
        """Add a message. Returns whether that is enough for the application for now."""
        queue = self.queue
        if isinstance(content, str):
            queue.append({"type": "websocket.receive", "text": content})
        else:
            queue.append({"type": "websocket.receive", "bytes": content})
        self._size += len(content)
        full = len(queue) >= self._capacity or self._size > HIGH_WATER_LIMIT
        if self.receivers.waiters:
            self.receivers.move()
        return full

    def put_event(self, event: ASGIReceiveEvent) -> bool:
        """Add an event as it is. Returns whether that is enough for the application for now."""
        self.queue.append(event)
        if event["type"] == "websocket.receive":
            self._size += len(event.get("text") or event.get("bytes") or b"")
        self.receivers.move()
        return len(self.queue) >= self._capacity or self._size > HIGH_WATER_LIMIT

    def put_end(self, code: int, reason: str | None) -> None:
        """Add the last event."""
        self.end = {"type": "websocket.disconnect", "code": code}
        if reason is not None:
            self.end["reason"] = reason
        self.queue.append(self.end.copy())
        self.receivers.move()

    async def wait(self) -> bool:
        """Return when it is the caller's turn, and whether there is something to `take`, or only the end once more."""
        if self.receivers.waiters or not (self.queue or self.end is not None):
            await self.receivers.wait(self._has_event)
        if self.queue:
            return True
        # An application that calls this endlessly must not stop the event loop.
        await asyncio.sleep(0)
        return False

    def take(self) -> ASGIReceiveEvent:
        """Return the next event."""
        event = self.queue.popleft()
        self.took_at = self._clock()
        if not self.queue:
            self._size = 0
        return event

    def repeat_end(self) -> ASGIReceiveEvent:
        """Return the last event again."""
        assert self.end is not None
        return self.end.copy()

    def _has_event(self) -> bool:
        return bool(self.queue) or self.end is not None
