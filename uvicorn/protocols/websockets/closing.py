"""How a connection's transport is ended, so that the peer gets all that was written and never holds it for ever."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.websockets import limits


class Closer:
    """Closes one transport, by a deadline.

    Attributes:
        timer: what waits for the deadline, if one is set.
    """

    __slots__ = ("_loop", "_transport", "_unsent", "timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop = loop
        self._transport = transport
        self._unsent = 0  # bytes in the transport's buffer when the deadline was set
        self.timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Close once everything is written."""
        self._transport.close()
        self.close_within(limits.CLOSE_TIMEOUT)

    def close_within(self, seconds: float) -> None:
        """Close in `seconds`, unless the peer does so before. One that is slow but reads gets its time again."""
        self.cancel()
        self._unsent = self._transport.get_write_buffer_size()
        self.timer = self._loop.call_later(seconds, self._expire)

    def linger(self) -> None:
        """Close, but not while the peer sends what nobody reads: the kernel would reset the connection."""
        if self._transport.is_closing():
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self.close_within(limits.LINGER_SECONDS)

    def cancel(self) -> None:
        """The deadline is not needed any more: the connection is gone."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _expire(self) -> None:
        transport = self._transport
        unsent = transport.get_write_buffer_size()
        if 0 < unsent < self._unsent:
            self.close_within(limits.CLOSE_TIMEOUT)
        elif unsent or transport.is_closing():
            transport.abort()
        else:
            self.close()
