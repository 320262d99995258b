"""The UDP sockets of HTTP/3, and which event loop reads which.

Each address has a group of sockets (SO_REUSEPORT), the same number for each. A *slot* is one socket of each group, and
belongs to one event loop at a time. The process that starts the workers owns all of them and keeps them open, so that
their numbers in the group never change. It says by a BPF program (`udp_steering`) where datagrams go:

    FREE ──▶ STARTING ──▶ ACCEPTING ──▶ DRAINING ──▶ FREE
      ▲          └────────────┴── ends ────┴──────────┘

New connections go to ACCEPTING slots. Where there is none, they wait in the sockets of those that start, or in the slot
that is given next; when the server ends, they reach those that drain, which refuse them. Existing ones go to their
slots until these are FREE.

A process locks its slots in a file (`SlotLocks`), so a successor (`handover`) sees which ones its predecessor's workers
still read, even if that has been killed. It steers from just before it reports that it serves, so that none is lost
when the predecessor drains. Where datagrams cannot be steered, there is one slot, and the process that has locked it
serves HTTP/3.
"""

from __future__ import annotations

import enum
import errno
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from uvicorn.listening import handover
from uvicorn.listening.handover import HandedSlots
from uvicorn.listening.sockets import AddressError
from uvicorn.listening.udp_steering import MOST_SLOTS, SO_REUSEPORT, attach, program

if sys.platform != "win32":
    import fcntl

SECRET_LENGTH = 32
"""Bytes of the secret of stateless resets and address validation tokens."""

RECEIVE_BUFFER = 2 << 20
"""Bytes of a socket's receive buffer, as far as the system allows it: 20 ms of a gigabit per second."""

LEAST_BUFFER = 512 << 10
"""Bytes of that below which the log names the system's limit."""

KEPT = 2
"""Slots that a process keeps for replacements of its workers when it hands the free ones to a successor."""

LOOK_INTERVAL = 1.0
"""Seconds between two checks which slots a predecessor still reads."""

MOST_STALE = 100_000
"""Datagrams dropped from a slot at most: its buffer holds fewer."""

logger = logging.getLogger("uvicorn.error")

running: list[UDPSlots] = []
"""The slots of this process that are open."""


class Occupancy(enum.Enum):
    """The state of a slot; the module's diagram shows the transitions."""

    FREE = 0
    STARTING = 1
    ACCEPTING = 2
    DRAINING = 3


class Place(NamedTuple):
    """An address with a group of sockets.

    Attributes:
        address: as `bind` takes it.
        is_v6_only: for IPv6, whether IPv4 is left to another socket.
    """

    family: int
    address: tuple[Any, ...]
    is_v6_only: bool = False

    @classmethod
    def of(cls, sock: socket.socket) -> Place:
        """Return that of a bound socket."""
        v6_only = sock.family == socket.AF_INET6 and sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) != 0
        return cls(sock.family, sock.getsockname(), v6_only)

    def bind(self, *, joins: bool) -> socket.socket:
        """Bind a socket, the first one here or one that joins its group.

        Raises:
            OSError: the address is in use, or cannot be used; the first socket never joins the group of another server.
        """
        sock = socket.socket(self.family, socket.SOCK_DGRAM)
        try:
            if joins:
                sock.setsockopt(socket.SOL_SOCKET, SO_REUSEPORT, 1)
            if self.family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, self.is_v6_only)
            sock.setblocking(False)
            _enlarge(sock)
            sock.bind(self.address)
        except OSError as exc:
            sock.close()
            reason = (exc.strerror or str(exc)).lower()
            text = f"error while attempting to bind on UDP address {self.address[:2]!r}: {reason}"
            raise UDPAddressError(exc.errno, text) from None
        return sock


class UDPAddressError(AddressError):
    """A UDP address that cannot be bound."""

    @property
    def hint(self) -> str | None:
        """What to do about it, if that is known."""
        if self.errno == errno.EADDRINUSE:
            return (
                "Another program uses this UDP port (http3), maybe a server that is still shutting down. End it, or "
                "choose another port (--port)."
            )
        if self.errno == errno.EACCES:
            return "UDP ports below 1024 need a privilege (CAP_NET_BIND_SERVICE). Choose another one (--port)."
        return None


class SlotLocks:
    """A file in which each process locks a byte for each of its slots; the kernel unlocks it when the process ends.

    Attributes:
        descriptor: of the file. Closing it, or a duplicate, unlocks all slots of this process (fcntl(2)).
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def make(cls) -> SlotLocks:
        """Return a new file.

        Raises:
            OSError: there is no descriptor left.
        """
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, "HTTP/3 needs Linux")
        return cls(os.memfd_create("uvicorn-slots", os.MFD_CLOEXEC))

    def lock(self, number: int) -> bool:
        """Lock a slot for this process; false if another one has."""
        if sys.platform == "win32":
            return False
        else:
            try:
                fcntl.lockf(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
            except (BlockingIOError, PermissionError):
                return False
            return True

    def unlock(self, number: int) -> None:
        """Unlock a slot of this process."""
        if sys.platform != "win32":
            fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 1, number)

    def is_locked(self, number: int) -> bool:
        """Whether another process has locked it."""
        is_free = self.lock(number)
        if is_free:
            self.unlock(number)
        return not is_free

    def __getstate__(self) -> Any:
        if sys.platform == "win32":
            raise TypeError("there are no locks of slots on Windows")
        else:
            from multiprocessing.reduction import DupFd

            return DupFd(self.descriptor)

    def __setstate__(self, duplicate: Any) -> None:
        self.descriptor = duplicate.detach()


@dataclass(frozen=True)
class UDPSlot:
    """All that an event loop needs to serve HTTP/3; pickled to its process.

    Attributes:
        number: of the slot, the first byte of the connection ids that it issues.
        generation: counts the users of all slots, modulo 256; the third byte of these ids.
        secret: the same for all slots: keys of stateless resets and address validation tokens are derived from it.
        sockets: one for each address, bound and not blocking.
        locks: where the process locks the slot before it reads.
    """

    number: int
    generation: int
    secret: bytes = field(repr=False)
    sockets: Sequence[socket.socket]
    locks: SlotLocks = field(repr=False)

    @property
    def ports(self) -> list[int]:
        """The UDP ports, each once."""
        return list(dict.fromkeys(sock.getsockname()[1] for sock in self.sockets))

    def close(self) -> None:
        """Close these sockets; the slot keeps its own."""
        for sock in self.sockets:
            sock.close()


def count_for(loops: int) -> int:
    """Return how many slots serve this number of event loops, while as many others replace them."""
    return min(2 * loops + 2, MOST_SLOTS)


class UDPSlots:
    """All slots of a server, in the process that owns them.

    Attributes:
        is_steered: whether datagrams are steered; otherwise there is one slot.
        why_not: why not, as a clause.
        is_ending: whether no more workers are going to start.
    """

    def __init__(
        self,
        groups: dict[Place, list[socket.socket]],
        secret: bytes | None = None,
        locks: SlotLocks | None = None,
        foreign: Iterable[int] = (),
    ) -> None:
        self.is_steered = len(next(iter(groups.values()))) > 1
        self.why_not = ""
        self.is_ending = False
        self._groups = groups
        self._secret = secret or os.urandom(SECRET_LENGTH)
        self._locks = locks or SlotLocks.make()
        self._lock = threading.RLock()
        self._given: dict[int, Occupancy] = {}
        self._generation = os.urandom(1)[0]
        self._waiting: int | None = None  # the next slot to be given, if new connections wait there
        self._foreign = set(foreign if self.is_steered else ())  # processes of the predecessor may read them
        self._handed: set[int] | None = None  # to a successor
        self._attached: tuple[frozenset[int], tuple[int, ...]] | None = None
        self._has_failed = self._is_followed = False
        self._is_closed = threading.Event()
        running.append(self)

    @classmethod
    def open(cls, listeners: Iterable[Any], count: int, passed: Sequence[socket.socket] = ()) -> UDPSlots:
        """Open slots for all TCP addresses of `listeners`, or take over those of a predecessor.

        Args:
            listeners: TCP sockets; others are ignored.
            count: how many slots there are to be; with one, datagrams are not steered.
            passed: UDP sockets that a service manager has opened; they are duplicates, and used or closed.

        Raises:
            OSError: an address cannot be bound; or there is none.
        """
        places = [Place.of(sock) for sock in listeners if sock.family in (socket.AF_INET, socket.AF_INET6)]
        own = {Place.of(sock): sock for sock in passed}
        for sock in passed:
            sock.setblocking(False)
            _enlarge(sock)
        places = list(dict.fromkeys([*places, *own]))
        if not places:
            raise OSError(errno.EADDRNOTAVAIL, "HTTP/3 needs an IP address, and there are Unix sockets only")
        taken = handover.current.take_slots([place.address for place in places])
        groups: dict[Place, list[socket.socket]] = {}
        try:
            if taken is not None:
                known = {place.address: place for place in places}
                groups.update({known[group[0].getsockname()]: group for group in taken.groups})
                count = max(count, len(taken.groups[0]))
            for place in places:
                if place not in groups:
                    groups[place] = [own.pop(place) if place in own else place.bind(joins=False)]
            why_not = _fill(groups, count)
            if len({len(group) for group in groups.values()}) > 1:
                # A slot has one number at all addresses.
                raise OSError(errno.EADDRINUSE, f"cannot add UDP addresses to those of the predecessor: {why_not}")
            if taken is None:
                slots = cls(groups)
            else:
                mine = set(taken.free)
                foreign = [number for number in range(len(taken.groups[0])) if number not in mine]
                slots = cls(groups, taken.secret, SlotLocks(taken.locks), foreign)
        except BaseException:
            for group in groups.values():
                for sock in group:
                    sock.close()
            if taken is not None:
                taken.close()
            raise
        finally:
            for sock in own.values():
                sock.close()
        slots.why_not = "" if slots.is_steered else why_not
        handover.current.when_serving(slots.steer)
        handover.current.when_in_charge(slots.steer_again)
        return slots

    @property
    def places(self) -> list[Place]:
        """The addresses."""
        return list(self._groups)

    @property
    def count(self) -> int:
        """How many slots there are."""
        return len(next(iter(self._groups.values())))

    # Slots

    def take(self, loops: int = 1) -> list[UDPSlot]:
        """Give slots to the event loops of one process: fewer than `loops` if there are no more.

        Each has duplicates of the sockets, for the process that is to be started.
        """
        if not self.is_steered:
            return [self._slot(0)]
        with self._lock:
            slots = list[UDPSlot]()
            while len(slots) < loops and (number := self._next_free()) is not None:
                self._given[number] = Occupancy.STARTING
                self._waiting = None
                slots.append(self._slot(number))
        if len(slots) < loops:
            logger.warning(
                "A new worker serves without HTTP/3 on %d of its %d event loops: all %d slots of the UDP sockets are "
                "in use. Send SIGHUP to replace it once others have ended.",
                loops - len(slots),
                loops,
                self.count,
            )
        return slots

    def _slot(self, number: int) -> UDPSlot:
        self._generation = (self._generation + 1) % 256
        sockets = [group[number].dup() for group in self._groups.values()]
        return UDPSlot(number, self._generation, self._secret, sockets, self._locks)

    def _next_free(self) -> int | None:
        free = self._waiting if self._waiting is not None else self._first_unused()
        # A successor that is starting may add slots, too, and both would have the same numbers.
        if free is None and self._handed is None and self.count < MOST_SLOTS:
            return None if _fill(self._groups, self.count + 1) else self.count - 1
        return free

    def _first_unused(self) -> int | None:
        used = self._given.keys() | self._foreign | (self._handed or set())
        return next((number for number in range(self.count) if number not in used), None)

    def serve(self, slot: UDPSlot) -> None:
        """Steer new connections to the slot of a process that has no supervisor, from now on."""
        self.enter(slot.number, Occupancy.ACCEPTING)
        self.steer()
        handover.current.when_in_charge(self.follow_predecessor)

    def leave(self, slot: UDPSlot) -> None:
        """Steer new connections to other slots of such a process, if any accepts."""
        self.is_ending = True
        self.enter(slot.number, Occupancy.DRAINING)
        self.steer()

    def enter(self, number: int, occupancy: Occupancy) -> None:
        """Note the state of a slot that was given; `steer` makes it known to the kernel."""
        with self._lock:
            if number in self._given:
                self._given[number] = occupancy

    def give_back(self, slot: UDPSlot) -> None:
        """Free a slot whose process has ended; datagrams that it did not read are dropped, and clients repeat them."""
        slot.close()
        if not self.is_steered:
            return
        with self._lock:
            self._given.pop(slot.number, None)
            self.steer()
            self._drop_unread(slot.number)

    def _drop_unread(self, number: int) -> None:
        """Drop datagrams that nothing reads, unless they wait for the next worker."""
        if not handover.current.is_in_charge or self._attached is None or number in self._attached[1]:
            return
        for group in self._groups.values():
            with suppress(OSError):  # there are no more
                for _ in range(MOST_STALE):
                    group[number].recv(1)

    # Steering

    def steer(self) -> None:
        """Have the kernel deliver datagrams as the states of the slots say, unless a predecessor or successor does."""
        with self._lock:
            if not self.is_steered or self._is_closed.is_set() or not handover.current.steers:
                return
            plan = self._plan()
            if plan == self._attached:
                return
            code = program(*plan)
            try:
                for group in self._groups.values():
                    attach(group[0], code)
            except OSError as exc:
                if not self._has_failed:
                    logger.warning("Cannot steer UDP datagrams: %s. Some HTTP/3 connections may time out.", exc)
                self._has_failed = True
                return
            self._attached, self._has_failed = plan, False

    def steer_again(self) -> None:
        """Do so although nothing has changed: another process may have steered."""
        with self._lock:
            self._attached = None
            self.steer()

    def _plan(self) -> tuple[frozenset[int], tuple[int, ...]]:
        """Which slots keep their connections, and which share the rest."""

        def among(occupancy: Occupancy) -> list[int]:
            return [number for number in sorted(self._given) if self._given[number] is occupancy]

        accepting, draining = among(Occupancy.ACCEPTING), among(Occupancy.DRAINING)
        holders = frozenset([*accepting, *draining, *self._foreign])
        targets = accepting or among(Occupancy.STARTING) or (draining if self.is_ending else [])
        if targets:
            self._waiting = None
        elif self._waiting is None:
            self._waiting = self._first_unused()
        if not targets:
            targets = [self._waiting] if self._waiting is not None else draining or sorted(self._foreign) or [0]
        return holders, tuple(targets)

    # The predecessor's slots

    @property
    def due(self) -> float | None:
        """When to call `look` next (`time.monotonic()`); None if no slot belongs to a predecessor."""
        if not self._foreign or not handover.current.is_in_charge:
            return None
        return time.monotonic() + LOOK_INTERVAL

    def look(self) -> None:
        """Take over the slots of a predecessor whose processes have ended."""
        with self._lock:
            if not self._foreign or not handover.current.is_in_charge:
                return
            ended = {number for number in self._foreign if not self._locks.is_locked(number)}
            self._foreign -= ended
            self.steer()
            for number in ended:
                self._drop_unread(number)

    def follow_predecessor(self) -> None:
        """Call `look` from a thread for as long as that is necessary, in a process without a supervisor."""
        with self._lock:
            if self._foreign and not self._is_followed:
                self._is_followed = True
                threading.Thread(target=self._follow, name="uvicorn-slots", daemon=True).start()

    def _follow(self) -> None:
        while self._foreign and not self._is_closed.wait(LOOK_INTERVAL):
            self.look()

    # A successor

    def hand_over(self) -> HandedSlots:
        """Describe the slots for a successor, and leave it those that it may use."""
        with self._lock:
            used = self._given.keys() | self._foreign
            free = [number for number in range(self.count) if number not in used]
            self._handed = set(free[min(KEPT, len(free) // 2) :]) if self.is_steered else set()
            if self._waiting in self._handed:
                self._waiting = None
                self.steer()
            descriptors = [[sock.fileno() for sock in group] for group in self._groups.values()]
            return HandedSlots(descriptors, sorted(self._handed), self._locks.descriptor, self._secret.hex())

    def take_back(self) -> None:
        """Use all slots again: the successor has failed, and ended."""
        with self._lock:
            self._handed = None
            self.steer_again()

    # End

    def close(self) -> None:
        """Close all sockets, and the file of locks."""
        if not self._is_closed.is_set():
            self._is_closed.set()
            self.forget()
            os.close(self._locks.descriptor)

    def forget(self) -> None:
        """Close them in a forked child, too, whose slots have duplicates. The file of locks stays open there."""
        if self in running:
            running.remove(self)
        for group in self._groups.values():
            for sock in group:
                sock.close()

    def log(self, loops: int) -> None:
        """Log where HTTP/3 is served, for a server with this number of event loops."""
        ports = ", ".join(map(str, dict.fromkeys(place.address[1] for place in self._groups)))
        if self.is_steered or loops == 1:
            logger.info("HTTP/3 on UDP port %s", ports)
        else:
            logger.warning(
                "Only one of %d event loops serves HTTP/3 (UDP port %s), because datagrams cannot be steered: %s.",
                loops,
                ports,
                self.why_not,
            )
        sock = next(iter(self._groups.values()))[0]
        # The kernel reports twice the number, for its own use.
        size = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        if size < LEAST_BUFFER:
            logger.info(
                "The receive buffers of UDP sockets have %d KiB, which bursts of HTTP/3 may exceed: set the sysctl "
                "net.core.rmem_max to %d.",
                size >> 10,
                RECEIVE_BUFFER,
            )


def _fill(groups: dict[Place, list[socket.socket]], count: int) -> str:
    """Add sockets to each group until it has `count`; say why, as a clause, if that is not possible.

    Then all have as many as before.
    """
    if count <= 1:
        return ""
    before = {place: len(group) for place, group in groups.items()}
    try:
        for place, group in groups.items():
            if len(group) == 1:
                group[0].setsockopt(socket.SOL_SOCKET, SO_REUSEPORT, 1)
            while len(group) < count:
                group.append(place.bind(joins=True))
            if before[place] == 1:
                attach(group[0], program((), (0,)))
    except OSError as exc:
        for place, group in groups.items():
            while len(group) > before[place]:
                group.pop().close()
        return exc.strerror or str(exc)
    return ""


def _enlarge(sock: socket.socket) -> None:
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, option, RECEIVE_BUFFER)
