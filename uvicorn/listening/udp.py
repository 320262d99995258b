"""HTTP/3 on one event loop: its slot of the UDP sockets, the native listener that reads them, and Alt-Svc.

    WAITING ──▶ LISTENING ──▶ LEAVING ──▶ REFUSING ──▶ CLOSED
       └───────────────────────────────────────────────▲

While LISTENING, responses of HTTP/1.1 and HTTP/2 tell clients by Alt-Svc (RFC 7838) that they can change to HTTP/3.
"""

from __future__ import annotations

import asyncio
import enum
import importlib
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from uvicorn.listening.acceptor import OPENING_GRACE
from uvicorn.rules.grace import GraceTimer

if TYPE_CHECKING:
    from uvicorn._native import HTTP3Listener
    from uvicorn.listening.udp_slots import UDPSlot

NO_ALT_SVC = "none"
"""The value of `http3_alt_svc` that sends no such field."""

STEERING_DELAY = 0.1
"""Seconds in which a listener that is to end still accepts connections: until then they are steered to others."""

RETRY_INTERVAL = 1.0
"""Seconds between two tries to lock a slot that another process still reads."""

logger = logging.getLogger("uvicorn.error")


class NativeListener(Protocol):
    """Serves HTTP/3 on the sockets of a slot, on one event loop."""

    def resume(self) -> None:
        """Read datagrams from now on."""

    def stop_accepting(self, is_opened: Callable[[], object]) -> None:
        """Send clients that begin a connection to another worker, by a Retry or by silence; existing ones go on.

        `is_opened` is called once no connection is in its handshake.
        """

    def close(self) -> None:
        """Close all connections and the sockets; does not fail where the event loop is closed."""


def native_listener() -> type[HTTP3Listener] | None:
    """Return the class of the native core; None if there is no native core, or one without HTTP/3."""
    try:
        native = importlib.import_module("uvicorn._native")
    except ImportError:
        return None
    listener: type[HTTP3Listener] | None = getattr(native, "HTTP3Listener", None)
    return listener


def alt_svc(setting: str | None, ports: Iterable[int]) -> str | None:
    """Return the value of the field for HTTP/3 at these UDP ports of the same host; None for no field."""
    if setting is not None:
        return None if setting == NO_ALT_SVC else setting
    # Without `ma` it holds for a day.
    return ", ".join(f'h3=":{port}"' for port in ports)


class State(enum.Enum):
    """The state of an endpoint; the module's diagram shows the transitions."""

    WAITING = 0
    """Another process still reads the slot."""
    LISTENING = 1
    LEAVING = 2
    """Accepts connections, but no longer attracts them."""
    REFUSING = 3
    CLOSED = 4


class HTTP3Endpoint:
    """Serves HTTP/3 in the slot of one event loop.

    Args:
        slot: closed at the end.
        make: makes the listener from duplicates of the slot's sockets.
        announce: called with true when it listens, and with false when clients are no longer to change to it.
    """

    def __init__(
        self,
        slot: UDPSlot,
        make: Callable[[UDPSlot, Sequence[int]], NativeListener],
        announce: Callable[[bool], None],
    ) -> None:
        self.state = State.WAITING
        self._slot = slot
        self._make = make
        self._announce = announce
        self._loop = asyncio.get_running_loop()
        self._listener: NativeListener | None = None
        self._has_refused = self._loop.create_future()
        self._timer: asyncio.TimerHandle | GraceTimer | None = None

    def start(self) -> None:
        """Listen, as soon as no other process reads the slot.

        Raises:
            OSError: the system cannot do it.
        """
        if not self._slot.locks.lock(self._slot.number):
            self._timer = self._loop.call_later(RETRY_INTERVAL, self._start_late)
            return
        descriptors = [os.dup(sock.fileno()) for sock in self._slot.sockets]
        self._listener = self._make(self._slot, descriptors)
        self._listener.resume()
        self.state = State.LISTENING
        self._announce(True)

    def _start_late(self) -> None:
        try:
            self.start()
        except OSError as exc:
            logger.error("Cannot serve HTTP/3: %s.", exc)
            return
        if self.state is State.LISTENING:
            logger.info("Serving HTTP/3, which another process did until now.")

    def leave(self) -> None:
        """Send no more Alt-Svc, and no longer wait for a slot."""
        if self.state is State.LISTENING:
            self.state = State.LEAVING
            self._announce(False)
        elif self.state is State.WAITING:
            self.close()

    def refuse(self, is_last: bool = False) -> None:
        """Accept no more connections, once they are steered to others, or at once if there are none."""
        self.leave()
        if self.state is State.LEAVING:
            self.state = State.REFUSING
            self._timer = self._loop.call_later(0 if is_last else STEERING_DELAY, self._refuse)

    def _refuse(self) -> None:
        if self._listener is None:
            self._end_wait()
            return
        self._timer = GraceTimer(self._loop, OPENING_GRACE, self._end_wait)
        self._listener.stop_accepting(self._end_wait)

    def _end_wait(self) -> None:
        if not self._has_refused.done():
            self._has_refused.set_result(None)

    async def wait_refused(self) -> None:
        """Return once no connection is accepted or in its handshake, soon after `refuse`, or it is closed.

        Its server must not end before.
        """
        await asyncio.shield(self._has_refused)

    def close(self) -> None:
        """Close all connections and the sockets."""
        if self.state is State.LISTENING:
            self._announce(False)
        if self._timer is not None:
            self._timer.cancel()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
            self._slot.locks.unlock(self._slot.number)
        if self.state is not State.CLOSED:
            self.state = State.CLOSED
            self._slot.close()
            if not self._loop.is_closed():
                self._end_wait()
