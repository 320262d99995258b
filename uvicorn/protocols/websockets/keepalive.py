"""Pings and the deadlines of their pongs, for any session.

A peer is alive if it answers a ping with a pong that carries the ping's payload (RFC 6455 section 5.5.2). Successful
sending proves nothing: output can disappear in buffers for minutes after the peer has gone. But a ping may be queued
behind a download that takes longer than the pong may: while the peer reads, the pong's deadline restarts.
"""

from __future__ import annotations

import asyncio
import os
from typing import Protocol

from uvicorn.rules.grace import GraceTimer


class Pinged(Protocol):
    """The session whose peer is pinged."""

    @property
    def read_paused(self) -> bool:
        """Nothing is read from the peer at the moment, so a pong would not be seen."""

    def unsent(self) -> int:
        """Bytes that the peer has yet to take, those in the kernel included."""

    def has_pending_io(self) -> bool:
        """Whether there is unprocessed input of the peer."""

    def schedule_ping(self) -> None:
        """The time of the next ping is known: call `KeepAlive.schedule`."""

    def send_keepalive_ping(self) -> None:
        """A ping is due: call `KeepAlive.ping`."""

    def send_ping(self, payload: bytes) -> None:
        """Write a ping frame."""

    def keepalive_timeout(self) -> None:
        """The peer did not answer in time: end the connection."""


class KeepAlive:
    """Sends a ping every `interval` seconds and expects its pong within `timeout`.

    Of both, `None` or 0 means off: no pings, or pings without a deadline.

    Attributes:
        ping_timer, pong_timer: timers of the next ping and of the pong's deadline.
        payload: of the ping whose pong is awaited, else `None`.
        sent_at: when the last ping was sent, by the loop's clock.
        rtt: seconds the last answered ping took.
    """

    __slots__ = (
        "interval",
        "timeout",
        "ping_timer",
        "pong_timer",
        "payload",
        "sent_at",
        "rtt",
        "_loop",
        "_session",
        "_unsent",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, session: Pinged, interval: float | None, timeout: float | None
    ) -> None:
        self.interval = interval
        self.timeout = timeout
        self.ping_timer: asyncio.TimerHandle | None = None
        self.pong_timer: GraceTimer | None = None
        self.payload: bytes | None = None
        self.sent_at = 0.0
        self.rtt = 0.0
        self._loop = loop
        self._session: Pinged | None = session
        # Bytes that waited behind the ping, or when its time began again; None once some were taken since.
        self._unsent: int | None = 0

    def start(self) -> None:
        """The connection is open: the first ping is due in one interval."""
        if self.interval and self._session is not None:
            self._session.schedule_ping()

    def stop(self) -> None:
        """Stop pings and deadlines."""
        for timer in (self.ping_timer, self.pong_timer):
            if timer is not None:
                timer.cancel()
        self.ping_timer = self.pong_timer = None
        self.payload = None

    def close(self) -> None:
        """The connection is gone."""
        self.stop()
        self._session = None

    def schedule(self) -> None:
        """Have the next ping sent one interval from now, or after the last one if that was answered."""
        if self._session is not None and self.interval is not None:
            delay = self.interval if self.payload is not None else max(0.0, self.interval - self.rtt)
            self.ping_timer = self._loop.call_later(delay, self._session.send_keepalive_ping)

    def ping(self) -> None:
        """Send a ping that only this peer can answer, now."""
        if self._session is None:
            return
        self.payload = os.urandom(4)
        self.sent_at = self._loop.time()
        self._session.send_ping(self.payload)
        if self.timeout:
            self._unsent = self._session.unsent()
            self.ping_timer = None
            self._await_pong(self.timeout)
        elif self.interval:
            self._session.schedule_ping()

    def pong(self, payload: bytes) -> None:
        """A pong has come. One that does not answer the ping in flight means nothing (section 5.5.3)."""
        if payload != self.payload or self.interval is None or self._session is None:
            return
        self.payload = None
        self.rtt = self._loop.time() - self.sent_at
        if self.pong_timer is not None:
            self.pong_timer.cancel()
            self.pong_timer = None
            self._session.schedule_ping()

    def taken(self) -> None:
        """The peer has read some of the waiting output."""
        self._unsent = None

    def restart_deadline(self) -> None:
        """Reading goes on after a pause: the pong has all of its time again."""
        if self.pong_timer is not None and self.timeout:
            self.pong_timer.cancel()
            self._await_pong(self.timeout)

    def _await_pong(self, seconds: float) -> None:
        assert self._session is not None
        self.pong_timer = GraceTimer(self._loop, seconds, self._pong_due, self._session.has_pending_io)

    def _pong_due(self) -> None:
        if self._session is None:
            return
        if self._session.read_paused or self._is_under_way(self._session.unsent()):
            self.restart_deadline()
        else:
            self._session.keepalive_timeout()

    def _is_under_way(self, unsent: int) -> bool:
        """Whether the ping may still be queued, while the peer reads the output in front of it."""
        before, self._unsent = self._unsent, unsent
        return unsent > 0 and (before is None or unsent < before)
