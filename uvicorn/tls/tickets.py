"""Session tickets (RFC 5077, RFC 8446 section 4.6.1) that all workers can read.

A client that comes back with a ticket is spared most of a handshake, if the worker that it gets has its key. OpenSSL
makes keys of its own for each context, and Python has no way to set them: `openssl.py` has.

    secret of a period ──one way──▶ that of the next one ──▶ ...
            └─▶ key of the period, for one set of trusted authorities

Old secrets cannot be recovered: an attacker who reads a process's memory can read tickets of this period and the
previous one, and TLS 1.2 traffic of these sessions. TLS 1.3 connections stay secret, since they agree on a key of their
own. Each set of client authorities has a key of its own, so a ticket never admits a client whose certificate these
authorities did not sign.
"""

from __future__ import annotations

import ctypes
import hashlib
import hmac
import os
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from uvicorn.tls.openssl import OpenSSL, TicketCallback, openssl

PERIOD = 6 * 3600
"""Seconds for which tickets are written with one key. For as long again they are read."""

_NAME, _KEY = 16, 32
_IV = 16
_MOST_STEPS = 100_000
"""Periods that the clock may be ahead: 68 years."""

# Answers to OpenSSL (SSL_CTX_set_tlsext_ticket_key_evp_cb).
_NOT_MINE, _GOOD, _RENEW = 0, 1, 2


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
        self._secret = secret or os.urandom(_KEY)
        self._before: bytes | None = None

    def _now(self) -> int:
        return int(self._clock() // PERIOD)

    def advance(self) -> int:
        """Forget expired secrets; returns the present period. It never goes back, even if the clock does."""
        with self._lock:
            steps = min(self._now() - self._period, _MOST_STEPS)
            for _ in range(steps):
                self._before, self._secret = self._secret, _derived(self._secret, b"next period", _KEY)
            self._period += max(0, steps)
            return self._period

    def key(self, purpose: bytes, ago: int = 0) -> bytes | None:
        """Bytes for the present period, or the one before if `ago` is 1; None if unknown."""
        self.advance()
        with self._lock:
            secret = self._before if ago else self._secret
        return None if secret is None else _derived(secret, purpose, _NAME + 2 * _KEY)

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


# As OpenSSL has it.


class _Param(ctypes.Structure):
    """`OSSL_PARAM`."""

    _fields_ = (
        ("key", ctypes.c_char_p),
        ("data_type", ctypes.c_uint),
        ("data", ctypes.c_char_p),
        ("data_size", ctypes.c_size_t),
        ("return_size", ctypes.c_size_t),
    )


_UTF8_STRING, _OCTET_STRING, _UNMODIFIED = 4, 5, ctypes.c_size_t(-1).value


class _Key:
    """One key, as OpenSSL takes it. A ticket is encrypted with AES-256-CBC, then authenticated with HMAC-SHA256."""

    def __init__(self, material: bytes) -> None:
        self.material = material
        self.name = material[:_NAME]
        self.cipher = material[_NAME : _NAME + _KEY]
        # OpenSSL reads the memory behind these pointers; a `bytes` stays where it is for as long as it is held.
        self._mac = material[_NAME + _KEY :]
        self.params = (_Param * 3)(
            _Param(b"key", _OCTET_STRING, self._mac, _KEY, _UNMODIFIED),
            _Param(b"digest", _UTF8_STRING, b"SHA256", 6, _UNMODIFIED),
            _Param(None, 0, None, 0, 0),
        )


class _Keys(NamedTuple):
    period: int
    current: _Key
    before: _Key | None


_lock = threading.Lock()
_callbacks: dict[tuple[int, bytes], tuple[TicketSecret, Any]] = {}
"""The callbacks given to OpenSSL, by secret and purpose. They stay: a connection may outlive its context object."""


def share_tickets(context: ssl.SSLContext, secret: TicketSecret, purpose: bytes) -> None:
    """Have `context` write and read tickets with keys made from `secret`, that are for `purpose` alone.

    Raises:
        RuntimeError: it is not possible here; see `uvicorn.tls.openssl.why_not`.
    """
    library = openssl()
    with _lock:
        known = _callbacks.get((id(secret), purpose))
        if known is None:
            known = _callbacks[id(secret), purpose] = secret, TicketCallback(_answerer(library, secret, purpose))
    library.set_ticket_callback(library.context(context), known[1])


def _answerer(library: OpenSSL, secret: TicketSecret, purpose: bytes) -> Callable[..., int]:
    """Return OpenSSL's callback for each ticket that is written or read, in any thread."""
    keys: _Keys | None = None

    def present() -> _Keys:
        nonlocal keys
        known, period = keys, secret.advance()
        if known is None or known.period != period:
            current, before = secret.key(purpose), secret.key(purpose, 1)
            assert current is not None, "there always is one"
            known = keys = _Keys(period, _Key(current), None if before is None else _Key(before))
        return known

    def answer(connection: int, name: int, iv: int, cipher: int, mac: int, writes: int) -> int:
        try:
            known = present()
            key, result = known.current, _GOOD
            if writes:
                ctypes.memmove(name, key.name, _NAME)
                ctypes.memmove(iv, os.urandom(_IV), _IV)
                initialize = library.encrypt
            else:
                asked = ctypes.string_at(name, _NAME)
                if asked != key.name:
                    if known.before is None or asked != known.before.name:
                        return _NOT_MINE
                    key, result = known.before, _RENEW
                initialize = library.decrypt
            if not initialize(cipher, library.aes, None, key.cipher, iv):
                return _NOT_MINE
            return result if library.set_params(mac, key.params) else _NOT_MINE
        except Exception:
            # A client does without.
            return _NOT_MINE

    return answer


def purpose_of(*parts: bytes) -> bytes:
    """Return a digest of the parts: equal parts share a key."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big") + part)
    return whole.digest()
