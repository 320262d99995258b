"""Session tickets (RFC 5077, RFC 8446 section 4.6.1) that all workers can read.

A client that comes back with a ticket is spared most of a handshake, if the worker that it gets has its key. rustls
takes the keys from here; OpenSSL makes its own for each context, and Python has no way to set them.

    secret of a period ──one way──▶ that of the next one ──▶ ...
            └─▶ key of the period, for one set of trusted authorities

Old secrets cannot be recovered: an attacker who reads a process's memory can read tickets of this period and the
previous one, and TLS 1.2 traffic of these sessions. TLS 1.3 connections stay secret, since they agree on a key of their
own. Each set of client authorities has a key of its own, so a ticket never admits a client whose certificate these
authorities did not sign.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

PERIOD = 6 * 3600
"""Seconds for which tickets are written with one key. For as long again they are read."""

KEY_LENGTH = 80
"""Bytes of a key of tickets, and all that is made of it: a name, a cipher's key, a code's key."""

_SECRET = 32
_MOST_STEPS = 100_000
"""Periods that the clock may be ahead: 68 years."""


class TicketSecret:
    """From which the keys of tickets are made; pickled to the workers that are to have the same.

    Args:
        secret: of the present period.
        clock: seconds since the epoch, the same for all workers.
    """

    def __init__(self, secret: bytes | None = None, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._period = self._now()
        self._secret = secret or os.urandom(_SECRET)
        self._before: bytes | None = None

    def _now(self) -> int:
        return int(self._clock() // PERIOD)

    def advance(self) -> int:
        """Forget expired secrets; returns the present period. It never goes back, even if the clock does."""
        with self._lock:
            steps = min(self._now() - self._period, _MOST_STEPS)
            for _ in range(steps):
                self._before, self._secret = self._secret, _derived(self._secret, b"next period", _SECRET)
            self._period += max(0, steps)
            return self._period

    def keys(self, purpose: bytes) -> tuple[int, bytes, bytes | None]:
        """Return the present period, the key of its tickets, and that of the period before if it is known."""
        self.advance()
        with self._lock:
            period, secret, before = self._period, self._secret, self._before
        old = None if before is None else _derived(before, purpose, KEY_LENGTH)
        return period, _derived(secret, purpose, KEY_LENGTH), old

    def encode(self) -> list[Any]:
        """Return its state for JSON, for the process that replaces this one."""
        self.advance()
        with self._lock:
            return [self._period, self._secret.hex(), None if self._before is None else self._before.hex()]

    @classmethod
    def parse(cls, state: Sequence[Any]) -> TicketSecret:
        """Return the secret with this state.

        Raises:
            ValueError, TypeError: it is invalid.
        """
        period, secret, before = state
        own = cls(bytes.fromhex(secret))
        own._period, own._before = int(period), None if before is None else bytes.fromhex(before)
        return own

    def __getstate__(self) -> Any:
        self.advance()
        with self._lock:
            return self._period, self._secret, self._before

    def __setstate__(self, state: Any) -> None:
        self._clock, self._lock = time.time, threading.Lock()
        self._period, self._secret, self._before = state

    def __repr__(self) -> str:
        return "<TicketSecret>"


def _derived(secret: bytes, purpose: bytes, length: int) -> bytes:
    """RFC 5869 section 2.3, with SHA-512."""
    out = block = b""
    while len(out) < length:
        block = hmac.digest(secret, block + purpose + bytes([len(out) // 64 + 1]), "sha512")
        out += block
    return out[:length]


def purpose_of(*parts: bytes) -> bytes:
    """Return a digest of the parts: equal parts share a key."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big") + part)
    return whole.digest()
