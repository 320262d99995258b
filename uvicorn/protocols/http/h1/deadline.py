"""The deadline of a connection for its client, and the reason for it: one timer for all of it.

The timer is re-armed when it fires, not for each request: most deadlines are met long before they are over. One that is
over ends nothing before its client was heard (`grace.py`).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

from uvicorn.rules.grace import Grace, has_pending_io


class Waits(IntEnum):
    """The input that a deadline is for."""

    NOTHING = 0
    """It is the application's turn, or there is no limit."""
    FIRST = 1
    """The first request, from its first byte to the end of its head."""
    IDLE = 2
    """Another request."""
    HEAD = 3
    """The rest of its head."""
    BODY = 4
    """More of a body."""
    DISCARD = 5
    """The rest of an unwanted body."""
    LAST_CALL = 6
    """One more request, because the server ends."""
    LINGER = 7
    """The client's end, after the last answer."""


NOTHING = Waits.NOTHING


class Clockwork(Protocol):
    """Where time comes from."""

    real_loop: bool
    """Whether timers and the clock belong together; those of a double do not."""

    @property
    def clock(self) -> Callable[[], float]:
        """Return the time."""


class Deadline:
    """The deadline of one connection.

    Args:
        loop: the event loop.
        transport: of the connection.
        context: in which it calls back. That of a request would live as long as the timer.
        clockwork: read each time.
        expire: called with the expired wait at the deadline.

    Attributes:
        waits: the current wait; `NOTHING` may be assigned, and another reason for the same deadline.
    """

    __slots__ = (
        "waits",
        "timer",
        "_loop",
        "_transport",
        "_context",
        "_clockwork",
        "_expire",
        "_since",
        "_at",
        "_timer_at",
        "_settings",
        "_armed_by",
        "_grace",
        "_granted_by",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        context: contextvars.Context,
        clockwork: Clockwork,
        expire: Callable[[Waits], None],
    ) -> None:
        self.waits = NOTHING
        self.timer: asyncio.TimerHandle | None = None
        self._loop = loop
        self._transport = transport
        self._context = context
        self._clockwork = clockwork
        self._expire: Callable[[Waits], None] | None = expire
        self._since = 0.0
        self._at = 0.0
        self._timer_at = 0.0
        self._settings = 0  # counted, so that a timer knows whether it is still meant
        self._armed_by = 0
        self._grace: Grace | None = None
        self._granted_by = 0

    def set(self, waits: Waits, seconds: float) -> None:
        """Wait for something from now on; zero seconds: for any time."""
        self._settings += 1
        if seconds <= 0 or self._expire is None:
            self.waits = NOTHING
            return
        clockwork = self._clockwork
        self.waits = waits
        self._since = now = clockwork.clock()
        self._at = now + seconds
        timer = self.timer
        if timer is not None:
            # The test double of a loop has timers but no time, so each deadline needs its own timer there.
            if self._timer_at <= self._at and clockwork.real_loop:
                return
            timer.cancel()
        self._arm(now, seconds)

    def put_off(self, seconds: float, longest: float) -> None:
        """Give more time, but never more than `longest` from now on."""
        self._at = min(self._at + seconds, self._clockwork.clock() + longest)
        self._settings += 1

    def extend(self, seconds: float, most: float) -> None:
        """Wait at least for `seconds` from now on, but no longer than `most` since the deadline was set."""
        self._at = max(self._at, min(self._clockwork.clock() + seconds, self._since + most))
        self._settings += 1

    def waited(self) -> float:
        """Return the seconds since the deadline was set."""
        return self._clockwork.clock() - self._since

    def close(self) -> None:
        """Stop waiting, now and for good."""
        self.drop()
        self._expire = None

    def drop(self) -> None:
        """Wait for nothing until the deadline is set again."""
        self.waits = NOTHING
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def look(self) -> None:
        """Notice a deadline that is over by the clock, whatever the timer says."""
        if self.timer is not None and self.waits and self._at <= self._clockwork.clock():
            self.timer.cancel()
            self._judge(self._clockwork.clock(), 0.0)

    def _arm(self, now: float, seconds: float) -> None:
        self._timer_at = now + seconds
        self._armed_by = self._settings
        self.timer = self._context.run(self._loop.call_later, seconds, self._fire)

    def _fire(self) -> None:
        now = self._clockwork.clock()
        if self._at > now and self.waits and (self._settings != self._armed_by or self._clockwork.real_loop):
            self._arm(now, self._at - now)
        else:
            self._judge(now, now - self._timer_at)

    def _judge(self, now: float, lag: float) -> None:
        """The deadline has passed: end the awaited part, unless the client's input could not be read meanwhile."""
        self.timer = None
        waits = self.waits
        if not waits or self._expire is None:
            return
        if self._grace is None or self._granted_by != self._settings:
            self._grace = Grace()
            self._granted_by = self._settings
        longer = self._grace.grant(lag, self.has_pending_input) if self._clockwork.real_loop else 0.0
        if longer:
            self._at = now + longer
            self._arm(now, longer)
            return
        self.waits = NOTHING
        self._expire(waits)

    def has_pending_input(self) -> bool:
        """Whether there is unprocessed input of the client."""
        return has_pending_io(self._transport)
