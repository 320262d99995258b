"""systemd's protocols for services: passed sockets, readiness notification and the watchdog.

A service manager hands over what it knows in environment variables (`sd_listen_fds(3)`, `sd_notify(3)`). Nothing of it
is looked at unless the settings ask for it.
"""

from __future__ import annotations

import asyncio
import enum
import errno
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable

from uvicorn.listening import handover

FIRST_DESCRIPTOR = 3
"""`SD_LISTEN_FDS_START`: the number of the first socket that is handed over; the others follow."""

MOST_DESCRIPTORS = 999_999
"""Sockets that can be meant: no system has a process open more."""

BEATS = 3
"""Keep-alive messages per watchdog interval, so that a late one does no harm."""

logger = logging.getLogger("uvicorn.error")


def passed_descriptors(name: str | None = None) -> list[int]:
    """Return the descriptors of the sockets that this process was handed, all or those of `name` (FileDescriptorName).

    They are closed in programs that this one executes from now on.

    Raises:
        OSError: there are none, or none of this name; they were meant for another process.
    """
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        to = " to this process (LISTEN_PID)" if "LISTEN_PID" in os.environ else ""
        raise OSError(
            errno.ENOTSOCK,
            f"no sockets were handed over{to}; start the server by a systemd socket unit (ListenStream=), or choose "
            "another place",
        )
    number = os.environ.get("LISTEN_FDS") or "0"
    if not number.isdecimal() or len(number) > len(str(MOST_DESCRIPTORS)):
        raise OSError(errno.EINVAL, f"LISTEN_FDS is a number of sockets, not {number!r}")
    count = int(number)
    names = os.environ.get("LISTEN_FDNAMES", "").split(":") if count else []
    names += ["unknown"] * (count - len(names))
    found = [FIRST_DESCRIPTOR + index for index in range(count) if name in (None, names[index])]
    if not found:
        raise OSError(errno.ENOTSOCK, f"the sockets handed over are: {', '.join(names[:count]) or 'none'}")
    for descriptor in found:
        os.set_inheritable(descriptor, False)
    return found


class State(enum.IntEnum):
    """Of a service, or of a part of it."""

    STARTING = 0
    READY = 1
    RELOADING = 2
    STOPPING = 3


class Notifier:
    """Notifies the service manager of a state once all parts of the service have reached it.

    It is ready when all are, reloads when one does, and stops with the first.

    Args:
        address: a path, or with `@` in front a name in the abstract namespace.
        interval: seconds between two keep-alive messages; None without a watchdog.
        parts: how many there are; each has a `Share` in `shares`.
    """

    def __init__(self, address: str, interval: float | None, parts: int = 1) -> None:
        self.interval = interval
        self.shares = [Share(self, index) for index in range(parts)]
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._states = [State.STARTING] * parts
        self._said = State.STARTING
        self._alive: set[int] = set()
        self._has_failed = False
        self._lock = threading.Lock()

    @classmethod
    def from_environment(cls, parts: int = 1) -> Notifier | None:
        """Read `NOTIFY_SOCKET` and `WATCHDOG_USEC`, and remove both so that child processes do not inherit them."""
        address = os.environ.pop("NOTIFY_SOCKET", "")
        microseconds, pid = os.environ.pop("WATCHDOG_USEC", ""), os.environ.pop("WATCHDOG_PID", "")
        if not address:
            logger.warning(
                "systemd notification (systemd=True) is off: NOTIFY_SOCKET is not set. Set Type=notify in the unit."
            )
            return None
        is_watched = microseconds.isdecimal() and int(microseconds) > 0 and pid in ("", str(os.getpid()))
        return cls(address, int(microseconds) / 1_000_000 / BEATS if is_watched else None, parts)

    def enter(self, part: int, state: State) -> None:
        """A part of the service has entered `state`; may be called from any thread."""
        with self._lock:
            self._states[part] = state
            now = self._state()
            if now is self._said or self._said is State.STOPPING:
                return
            self._said = now
            if now is State.READY:
                self._tell("READY=1")
            elif now is State.RELOADING:
                self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
            elif now is State.STOPPING:
                self._tell("STOPPING=1")

    def _state(self) -> State:
        most = max(self._states)
        return most if most > State.READY else min(self._states)

    def hand_over(self, pid: int) -> None:
        """Report that the main process of the service is its successor `pid`, which serves."""
        with self._lock:
            self._tell(f"MAINPID={pid}\nREADY=1")
            self._said = State.STOPPING  # the successor reports from now on

    def beat(self, part: int) -> None:
        """A part of the service is alive; from any thread."""
        with self._lock:
            self._alive.add(part)
            if len(self._alive) == len(self.shares):
                self._alive.clear()
                self._tell("WATCHDOG=1")

    def _tell(self, text: str) -> None:
        # systemd listens to the main process of a service alone, which a process is until its successor is in charge.
        if sys.platform == "win32" or not handover.current.is_in_charge:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.setblocking(False)
                sock.sendto(text.encode(), self._address)
        except OSError as exc:
            if not self._has_failed:
                logger.warning("Cannot notify systemd (NOTIFY_SOCKET): %s", exc)
            self._has_failed = True


class Reloads:
    """Reports parts that reload side by side as one reload, which ends once all have reloaded equally often.

    Args:
        share: passes the report on to systemd.
        parts: their number; each reloads whenever the service does.
    """

    def __init__(self, share: Share, parts: int = 1) -> None:
        self._share = share
        self._counts = [0] * parts
        self._lock = threading.Lock()

    def note(self, part: int, begins: bool) -> None:
        """A part begins to reload, or has done so; from any thread, but from no signal handler."""
        with self._lock:
            if begins:
                self._share.reloading()
                return
            self._counts[part] += 1
            if len(set(self._counts)) == 1:
                self._share.ready()


def shares_of_service(parts: int = 1) -> list[Share]:
    """Return a `Share` for each part of this service; an empty list without a service manager."""
    notifier = Notifier.from_environment(parts)
    return [] if notifier is None else notifier.shares


class Share:
    """One part of the service of a `Notifier`.

    Attributes:
        due: time of the next keep-alive message on `clock`; None without a watchdog.
    """

    def __init__(self, notifier: Notifier, part: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._notifier = notifier
        self._part = part
        self._clock = clock
        self.due: float | None = None if notifier.interval is None else clock()

    def ready(self) -> None:
        """This part serves."""
        self._notifier.enter(self._part, State.READY)

    def reloading(self) -> None:
        """This part is being replaced, and serves meanwhile."""
        self._notifier.enter(self._part, State.RELOADING)

    def stopping(self) -> None:
        """This part ends, and sends no more signs of life."""
        self.due = None
        self._notifier.enter(self._part, State.STOPPING)

    def hand_over(self, pid: int) -> None:
        """The successor `pid` serves, and is the main process of the service from now on."""
        self.due = None
        self._notifier.hand_over(pid)

    def beat_if_due(self) -> None:
        """Give a sign of life, if it is time."""
        interval, now = self._notifier.interval, self._clock()
        if interval is not None and self.due is not None and now >= self.due:
            self.due = now + interval
            self._notifier.beat(self._part)

    def beat_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give signs of life for as long as `loop` turns, in which this is called."""
        if self._notifier.interval is not None:
            self._notifier.beat(self._part)
            loop.call_later(self._notifier.interval, self.beat_on, loop)
