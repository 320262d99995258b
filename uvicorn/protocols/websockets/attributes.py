"""What programs read and call of a session, under upstream's names: subclasses of the protocol classes above all."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from uvicorn._types import ASGIReceiveEvent
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.hooks import original
from uvicorn.protocols.websockets.inbox import Inbox
from uvicorn.protocols.websockets.keepalive import KeepAlive
from uvicorn.protocols.websockets.outline import NEVER_CALLED


def _of_keepalive(name: str, meaning: str) -> Any:
    def get(self: Attributes) -> Any:
        return getattr(self.keepalive, name)

    def assign(self: Attributes, value: Any) -> None:
        setattr(self.keepalive, name, value)

    return property(get, assign, doc=meaning)


@original
class Attributes(asyncio.Protocol):
    """The attributes of a session that have a meaning to others.

    Attributes:
        flow: of its transport.
        keepalive: its pings.
        inbox: what the application has not received yet.
    """

    __slots__ = ("flow", "keepalive", "inbox")

    flow: FlowControl
    keepalive: KeepAlive
    inbox: Inbox

    never_called = NEVER_CALLED
    """Methods of upstream's classes that nothing calls; see `uvicorn.protocols.http.hooks`."""

    ping_interval = _of_keepalive("interval", "Seconds between pings; `None` or 0 for none.")
    ping_timeout = _of_keepalive("timeout", "Seconds a pong may take; `None` or 0 for any time.")
    ping_timer = _of_keepalive("ping_timer", "The timer of the next ping.")
    pong_timer = _of_keepalive("pong_timer", "The timer of the pong's deadline.")
    pending_ping_payload = _of_keepalive("payload", "That of the ping whose pong is awaited, else `None`.")
    ping_sent_at = _of_keepalive("sent_at", "When the last ping was sent, by the loop's clock.")
    last_ping_rtt = _of_keepalive("rtt", "Seconds the last answered ping took.")

    def start_keepalive(self) -> None:
        """The connection is open: the first ping is due in one interval."""
        self.keepalive.start()

    def stop_keepalive(self) -> None:
        """No more pings, no more deadlines."""
        self.keepalive.stop()

    def schedule_ping(self, delay: float) -> None:
        """Send the next ping in `delay` seconds."""
        self.keepalive.schedule(delay)

    def send_keepalive_ping(self) -> None:
        """Send a ping, now; called when it is due."""
        self.keepalive.ping()

    @property
    def queue(self) -> deque[ASGIReceiveEvent]:
        """Events the application has not received yet."""
        return self.inbox.queue

    @property
    def disconnected(self) -> bool:
        """The application is, or will be, told that the connection has ended."""
        return self.inbox.end is not None

    @property
    def read_paused(self) -> bool:
        """Reading from the socket is paused because the application does not read."""
        return self.flow.read_paused
