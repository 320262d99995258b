"""The end of a connection from the client's side, which takes effect behind the messages in front of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from uvicorn.protocols.websockets.inbox import Inbox
from uvicorn.rules.grace import GraceTimer, clock_of
from uvicorn.rules.websocket_limits import ANSWER_SECONDS


class PeerEnd:
    """The client has sent its last: a close frame, a mistake, or the end of its stream.

    What that leads to waits until the application has had the chance to answer all before it: until it asks for more,
    ends, or some time after it took the last event.

    Attributes:
        inbox: the events that the application has not received yet.
    """

    __slots__ = ("_loop", "_clock", "inbox", "_act", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, inbox: Inbox) -> None:
        self._loop = loop
        self._clock = clock_of(loop)
        self.inbox = inbox
        self._act: Callable[[], None] | None = None
        self._timer: GraceTimer | None = None

    def __bool__(self) -> bool:
        """Tell whether there is one that has not taken effect."""
        return self._act is not None

    def wait(self, act: Callable[[], None]) -> None:
        """Have `act` called when it takes effect."""
        self._act = act
        if self.inbox.queue:
            self.inbox.begin()
        self._await_answers()

    def take_effect(self) -> None:
        """Let it, if there is one."""
        act, self._act = self._act, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if act is not None:
            act()

    def _await_answers(self) -> None:
        left = self.inbox.took_at + ANSWER_SECONDS - self._clock()
        if left > 0:
            self._timer = GraceTimer(self._loop, left, self._await_answers)
        else:
            self.take_effect()
