"""Pings and the deadlines of their pongs, for any session.

A peer is alive if it answers a ping with a pong that carries the ping's payload (RFC 6455 section 5.5.2). Nothing else
counts: what we send can disappear in buffers for minutes after the peer has gone.
"""

from __future__ import annotations

import asyncio
import os


class KeepAlive:
    """Sends a ping every `ping_interval` seconds and expects its pong within `ping_timeout`.

    Of both, `None` or 0 means off: no pings, or pings without a deadline. Subclasses provide `loop`, `read_paused`,
    `send_ping` and `keepalive_timeout`.

    Attributes:
        ping_timer, pong_timer: what waits for the next ping to be due, and for the pong.
        pending_ping_payload: of the ping whose pong is awaited, else `None`.
        ping_sent_at: when the last ping was sent, by the loop's clock.
        last_ping_rtt: seconds the last answered ping took.
    """

    __slots__ = (
        "ping_interval",
        "ping_timeout",
        "ping_timer",
        "pong_timer",
        "pending_ping_payload",
        "ping_sent_at",
        "last_ping_rtt",
    )

    loop: asyncio.AbstractEventLoop

    def __init__(self, ping_interval: float | None, ping_timeout: float | None) -> None:
        self.ping_interval = ping_interval
        self.ping_timeout = ping_timeout
        self.ping_timer: asyncio.TimerHandle | None = None
        self.pong_timer: asyncio.TimerHandle | None = None
        self.pending_ping_payload: bytes | None = None
        self.ping_sent_at = 0.0
        self.last_ping_rtt = 0.0

    @property
    def read_paused(self) -> bool:
        """Nothing is read from the peer at the moment, so a pong would not be seen."""
        raise NotImplementedError

    def send_ping(self, payload: bytes) -> None:
        """Write a ping frame."""
        raise NotImplementedError

    def keepalive_timeout(self) -> None:
        """The peer did not answer in time: end the connection."""
        raise NotImplementedError

    def start_keepalive(self) -> None:
        """The connection is open: the first ping is due in one interval."""
        if self.ping_interval:
            self.schedule_ping(self.ping_interval)

    def stop_keepalive(self) -> None:
        """No more pings, no more deadlines."""
        for timer in (self.ping_timer, self.pong_timer):
            if timer is not None:
                timer.cancel()
        self.ping_timer = self.pong_timer = None
        self.pending_ping_payload = None

    def schedule_ping(self, delay: float) -> None:
        """Send the next ping in `delay` seconds."""
        self.ping_timer = self.loop.call_later(max(0.0, delay), self.send_keepalive_ping)

    def send_keepalive_ping(self) -> None:
        """Send a ping that only this peer can answer, now."""
        assert self.ping_interval is not None
        self.pending_ping_payload = os.urandom(4)
        self.ping_sent_at = self.loop.time()
        self.send_ping(self.pending_ping_payload)
        if self.ping_timeout:
            self.ping_timer = None
            self.pong_timer = self.loop.call_later(self.ping_timeout, self._pong_due)
        else:
            self.schedule_ping(self.ping_interval)

    def on_pong(self, payload: bytes) -> None:
        """A pong has come. One that does not answer the ping in flight means nothing (section 5.5.3)."""
        if payload != self.pending_ping_payload:
            return
        assert self.ping_interval is not None
        self.pending_ping_payload = None
        self.last_ping_rtt = self.loop.time() - self.ping_sent_at
        if self.pong_timer is not None:
            self.pong_timer.cancel()
            self.pong_timer = None
            # One interval after the previous ping, not after its answer.
            self.schedule_ping(self.ping_interval - self.last_ping_rtt)

    def restart_deadline(self) -> None:
        """Reading goes on after a pause: the pong has all of its time again."""
        if self.pong_timer is not None:
            assert self.ping_timeout is not None
            self.pong_timer.cancel()
            self.pong_timer = self.loop.call_later(self.ping_timeout, self._pong_due)

    def _pong_due(self) -> None:
        if self.read_paused:
            self.restart_deadline()
        else:
            self.keepalive_timeout()
