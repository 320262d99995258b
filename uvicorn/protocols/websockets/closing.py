"""Ends a connection's transport, so that the peer gets all output, but can never hold the connection forever."""

from __future__ import annotations

import asyncio
from functools import partial

from uvicorn.rules import websocket_limits
from uvicorn.rules.grace import GraceTimer, has_pending_io
from uvicorn.rules.limits import READ_BYTES_PER_SECOND
from uvicorn.serving.write_deadlines import unsent, unsent_by_process


class Closer:
    """Closes one transport, by a deadline.

    Attributes:
        timer: of the deadline, if one is set.
    """

    __slots__ = ("_loop", "_transport", "_unsent", "_seconds", "timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop = loop
        self._transport = transport
        self._unsent = 0  # bytes the peer had to take when the deadline was set
        self._seconds = 0.0
        self.timer: GraceTimer | None = None

    def close(self) -> None:
        """Close once everything is written."""
        self._transport.close()
        self.close_within(websocket_limits.CLOSE_TIMEOUT)

    def close_within(self, seconds: float) -> None:
        """Close in `seconds`, unless the peer does so before. One that is slow but reads gets its time again."""
        self.cancel()
        self._unsent = unsent(self._transport)
        self._seconds = seconds
        self.timer = GraceTimer(self._loop, seconds, self._expire, partial(has_pending_io, self._transport))

    def linger(self) -> None:
        """Close after draining the peer's input, because the kernel would reset the connection otherwise."""
        if self._transport.is_closing():
            return
        self.close_within(websocket_limits.LINGER_SECONDS)
        if self._transport.can_write_eof():
            try:
                self._transport.write_eof()
            except OSError:  # asyncio's: the peer has disconnected without notice
                self._transport.abort()

    def cancel(self) -> None:
        """Cancel the deadline: the connection is gone."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _expire(self) -> None:
        transport = self._transport
        waits = unsent_by_process(transport) > 0
        if waits and self._unsent - unsent(transport) >= self._seconds * READ_BYTES_PER_SECOND:
            self.close_within(websocket_limits.CLOSE_TIMEOUT)
        elif waits or transport.is_closing():
            transport.abort()
        else:
            self.close()
