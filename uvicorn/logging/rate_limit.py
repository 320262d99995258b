"""Limits how often the same problem is logged for one address."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

QUIET_PERIOD = 10.0
"""Seconds before the same line is written again."""

MOST_ADDRESSES = 1024
"""Addresses remembered at a time. Problems of further addresses are not logged."""


class LogRateLimit:
    """Allow one log line per address and `QUIET_PERIOD`. Thread-safe.

    Args:
        clock: monotonic time, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._quiet_until: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._quiet_until)

    def allows(self, address: str) -> bool:
        """Return whether a line about `address` may be written now."""
        with self._lock:
            now = self._clock()
            known = self._quiet_until
            if now < known.get(address, 0.0):
                return False
            known.pop(address, None)
            while known and now >= next(iter(known.values())):
                del known[next(iter(known))]
            if len(known) >= MOST_ADDRESSES:
                return False
            known[address] = now + QUIET_PERIOD
            return True
