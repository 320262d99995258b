"""Several event loops of one process take turns with the GIL.

A thread that waits for the GIL asks its holder for it after five milliseconds (`sys.getswitchinterval`), but starts to
wait again whenever the holder has released it in between. A busy event loop releases it between its callbacks, and has
it back before another thread is awake. So two busy loops change places by chance: one request in a hundred waited for
70 to 90 milliseconds, where those of a single loop take two. A busy loop therefore sleeps for a moment every few
milliseconds; a thread that waits finds the GIL free.
"""

from __future__ import annotations

import asyncio
import contextvars
import time

INTERVAL = 0.004
"""Seconds after which a busy loop lets others run."""
LONGEST_INTERVAL = 0.05
"""Seconds until an idle loop is looked at again."""
BUSY = INTERVAL / 4
"""Seconds of CPU time since the last look that make a loop busy."""
MOMENT = 50e-6
"""Seconds of sleep: about as long as Linux takes to wake another thread."""


class TurnTaking:
    """Lets other threads run while one event loop is busy, from `start` to `stop`, which are called in its thread."""

    def __init__(self) -> None:
        self._used = 0.0
        self._interval = INTERVAL
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take turns from now on."""
        self._used = time.thread_time()
        # Not in the context of a request; the next timers inherit this one.
        contextvars.Context().run(self._arm, loop)

    def stop(self) -> None:
        """Keep the GIL as before."""
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(self._interval, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        used = time.thread_time()
        is_busy = used - self._used >= BUSY
        self._used = used
        self._interval = INTERVAL if is_busy else min(2 * self._interval, LONGEST_INTERVAL)
        if is_busy:
            time.sleep(MOMENT)
        self._arm(loop)
