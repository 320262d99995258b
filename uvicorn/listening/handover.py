"""Take over the sockets and ticket keys of a process that this one replaces.

    predecessor                                   successor
    starts it, with sockets and secrets ──────▶   takes those that its settings name, binds the others
    serves   ◀──────────────────────── READY ──   serves, too
    drains   ── GO ───────────────────────────▶   in charge: owns the files of Unix sockets, notifies systemd
             ── counts, until it ends ────────▶   serves metrics, which include them

The environment variable `UVICORN_UPGRADE` has the process id of the predecessor and the descriptor of a socket to it.
The sockets are inherited descriptors. Their addresses and the secret come through that socket, because other processes
of the same user can read an environment. If the predecessor ends before GO, the successor is in charge.
`uvicorn.supervisors.upgrade` is the predecessor's side.
"""

from __future__ import annotations

import enum
import json
import logging
import os
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

VARIABLE = "UVICORN_UPGRADE"
"""The environment variable of a successor: `PID:DESCRIPTOR`."""

READY, GO = b"R", b"G"
"""The successor's report, and its predecessor's answer."""

FORMAT = 1
"""Version of the description. A later one may add members, which this one ignores."""

PATIENCE = 5.0
"""Seconds to wait for the description, which was sent before the successor started."""

LARGEST = 1 << 20
"""Bytes of the largest description."""

FOR_PROCESS = ("LISTEN_PID", "WATCHDOG_PID")
"""Variables by which systemd names the process that its other variables are for."""

MOST_COUNTS = 1 << 26
"""Bytes of the counts of a predecessor."""

LAST_COUNTS = 30.0
"""Seconds that a process with a successor waits at its end for its own predecessor."""

Heir = Callable[[Any], None]
"""Takes the counts of a predecessor as they were sent, or None."""

logger = logging.getLogger("uvicorn.error")


class Origin:
    """How this process was started, noted before a program changes it.

    Attributes:
        pid: the process itself; a fork of it has another.
        environment: its variables.
        directory: its working directory, by the name with symbolic links that a shell gave it, because a deployment may
            change these.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        named = self.environment.get("PWD", "/")
        try:
            self.directory = os.getcwd()
            if os.path.isabs(named) and os.path.samefile(named, self.directory):
                self.directory = named
        except OSError:  # one of them does not exist
            self.directory = getattr(self, "directory", named)


origin = Origin()


class DescriptionError(ValueError):
    """The variable or the description of the predecessor is invalid."""


class Use(str, enum.Enum):
    """The use of a socket."""

    SERVING = "serving"
    METRICS = "metrics"
    PROBE = "probe"


@dataclass(frozen=True)
class Handed:
    """One socket as the predecessor describes it.

    Attributes:
        descriptor: its number, the same in both processes.
        use: only a socket of the same use takes its place.
        port: as configured, so 0 for any free port; None for a Unix socket.
        file: device and inode of the file of a Unix socket; None without a file.
        path: of that file.
        is_owned: whether the server has created the file, and removes it at its end.
    """

    descriptor: int
    use: Use = Use.SERVING
    port: int | None = None
    file: tuple[int, int] | None = None
    path: str | None = None
    is_owned: bool = False

    @classmethod
    def of(cls, sock: Any, use: Use, ports: Iterable[int] = (), owned_paths: Iterable[str] = ()) -> Handed:
        """Describe an open socket; `ports` and `owned_paths` are those of the configuration."""
        name = sock.getsockname()
        if isinstance(name, tuple):
            ports = list(ports)
            return cls(sock.fileno(), use, 0 if 0 in ports and name[1] not in ports else name[1])
        path = os.fsdecode(name)
        return cls(sock.fileno(), use, None, _identity(path), path, path in owned_paths)

    @classmethod
    def parse(cls, members: dict[str, Any]) -> Handed:
        """Read it from JSON.

        Raises:
            ValueError, TypeError, KeyError: it is invalid.
        """
        known = {one.name: members[one.name] for one in fields(cls) if one.name in members}
        if type(known["descriptor"]) is not int or not isinstance(known.get("port"), int | None):
            raise ValueError("a descriptor and a port are integers")
        file = known.get("file")
        known["file"] = None if file is None else (int(file[0]), int(file[1]))
        known["use"] = Use(known.get("use", Use.SERVING))
        return cls(**known)


@dataclass(frozen=True)
class HandedSlots:
    """The slots of HTTP/3 as the predecessor describes them; see `udp_slots`.

    Attributes:
        descriptors: for each address those of its group, in the order of the slots.
        free: the slots that the successor may use.
        locks: the descriptor of the file that shows which slots are read.
        secret: of stateless resets and tokens, in hexadecimal digits.
    """

    descriptors: Sequence[Sequence[int]]
    free: Sequence[int]
    locks: int
    secret: str = field(repr=False)

    @classmethod
    def parse(cls, members: dict[str, Any]) -> HandedSlots:
        """Read it from JSON.

        Raises:
            ValueError, TypeError, KeyError: it is invalid.
        """
        known = cls(**{one.name: members[one.name] for one in fields(cls)})
        numbers = [*known.free, *known.all_descriptors()]
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError("slots and descriptors are integers")
        sizes = {len(group) for group in known.descriptors}
        if len(sizes) != 1 or 0 in sizes or not all(number in range(*sizes) for number in known.free):
            raise ValueError("each address has a socket for each slot")
        if len(bytes.fromhex(known.secret)) < 32:
            raise ValueError("the secret of the slots has 32 bytes")
        return known

    def all_descriptors(self) -> list[int]:
        """Return those of all sockets and of the file."""
        return [*(number for group in self.descriptors for number in group), self.locks]


@dataclass(frozen=True)
class TakenSlots:
    """The same, taken over: sockets and file belong to this process.

    Attributes:
        groups: the sockets of each address.
    """

    groups: Sequence[list[socket.socket]]
    free: Sequence[int]
    locks: int
    secret: bytes = field(repr=False)

    @classmethod
    def of(cls, handed: HandedSlots) -> TakenSlots:
        """Open them.

        Raises:
            DescriptionError: a descriptor is no UDP socket.
        """
        groups = [[_inherited(number) for number in group] for group in handed.descriptors]
        taken = cls(groups, handed.free, handed.locks, bytes.fromhex(handed.secret))
        if any(sock.type != socket.SOCK_DGRAM for group in groups for sock in group):
            taken.close()
            raise DescriptionError("a slot of the predecessor is no UDP socket")
        for group in groups:
            for sock in group:
                sock.setblocking(False)  # the same for all processes, and their duplicates take it from here
        os.set_inheritable(handed.locks, False)
        return taken

    def has(self, address: Any) -> bool:
        """Whether one of them is bound to this address."""
        return any(group[0].getsockname() == address for group in self.groups)

    def close(self) -> None:
        """Close them all."""
        for group in self.groups:
            for sock in group:
                sock.close()
        with suppress(OSError):
            os.close(self.locks)


@dataclass(frozen=True)
class Description:
    """All that a successor takes over.

    Attributes:
        sockets: those that it may serve.
        tickets: the secret of the session tickets, if they are shared.
        workers: by pool, how many workers were set and how many there are; the pool of a server without pools is `""`.
        slots: of HTTP/3; several pools have as many.
    """

    sockets: Sequence[Handed] = ()
    tickets: Sequence[Any] | None = None
    workers: Mapping[str, Sequence[int]] = field(default_factory=dict)
    slots: Sequence[HandedSlots] = ()

    def encode(self) -> bytes:
        """Return one line of JSON."""
        members = {
            "format": FORMAT,
            "sockets": [asdict(sock) for sock in self.sockets],
            "tickets": self.tickets,
            "workers": dict(self.workers),
            "slots": [asdict(slots) for slots in self.slots],
        }
        return json.dumps(members).encode() + b"\n"

    @classmethod
    def parse(cls, text: bytes) -> Description:
        """Read that line.

        Raises:
            DescriptionError: it is invalid.
        """
        try:
            members = json.loads(text)
            if members["format"] < FORMAT:
                raise ValueError(f"format {members['format']} is unknown")
            workers = {pool: (int(set_to), int(kept)) for pool, (set_to, kept) in members.get("workers", {}).items()}
            slots = tuple(HandedSlots.parse(one) for one in members.get("slots", ()))
            return cls([Handed.parse(one) for one in members["sockets"]], members.get("tickets"), workers, slots)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as exc:
            raise DescriptionError(
                f"the description of the predecessor is invalid ({type(exc).__name__}: {exc})"
            ) from exc


class Phase(enum.Enum):
    """The place of this process in a succession."""

    ALONE = 0
    """It has started without a predecessor, or is in charge since that has gone."""
    TAKING_OVER = 1
    """Its predecessor serves, and goes on if this process fails."""
    REPORTED = 2
    """The same, but this process serves, too, and has reported that."""
    HANDED_OVER = 3
    """Its successor is in charge."""


class Succession:
    """The part of this process in a succession.

    Attributes:
        predecessor: process id; None if it has started without one, or that is over.
        tickets: the state of the predecessor's `TicketSecret`; None if it has none.
    """

    def __init__(self) -> None:
        self.phase = Phase.ALONE
        self.predecessor: int | None = None
        self.tickets: Sequence[Any] | None = None
        self._workers: Mapping[str, Sequence[int]] = {}
        self._heirs: list[Heir] = []
        self._slots: list[TakenSlots] = []
        self._when_in_charge: list[Callable[[], object]] = []
        self._when_serving: list[Callable[[], object]] = []
        self._control: socket.socket | None = None
        self._sockets: list[tuple[Handed, socket.socket]] = []
        self._dropped: list[Handed] = []
        self._kept: set[str] = set()
        self._reader: threading.Thread | None = None
        self._feed: socket.socket | None = None  # the same connection, once this process is in charge

    # The successor's side

    def begin(self) -> None:
        """Take the sockets of the predecessor that `UVICORN_UPGRADE` names, and remove the variable.

        Raises:
            DescriptionError: the variable or the description is invalid.
        """
        text = os.environ.pop(VARIABLE, None)
        if text is None:
            return
        if sys.platform == "win32" or re.fullmatch("[0-9]{1,9}:[0-9]{1,9}", text) is None:
            raise DescriptionError(f"{text!r} is not PID:DESCRIPTOR. Unset it; a server sets it for its successor.")
        predecessor, descriptor = map(int, text.split(":"))
        if predecessor != os.getppid() and not _has_died(predecessor, descriptor):
            logger.warning("Ignoring %s=%s: it is meant for a child of process [%s].", VARIABLE, text, predecessor)
            return
        try:
            control = socket.socket(fileno=descriptor)
        except OSError as exc:
            raise DescriptionError(f"{text!r} names no open socket ({exc.strerror}). Unset it.") from None
        self._control = control
        try:
            control.set_inheritable(False)
            control.settimeout(PATIENCE)
            description = Description.parse(_line_from(control))
            for handed in description.sockets:
                self._sockets.append((handed, _inherited(handed.descriptor)))
            for slots in description.slots:
                self._slots.append(TakenSlots.of(slots))
        except BaseException:
            self.forget()
            raise
        for name in FOR_PROCESS:
            if os.environ.get(name) == str(predecessor):
                os.environ[name] = origin.environment[name] = str(os.getpid())
        self.predecessor, self.tickets, self._workers = predecessor, description.tickets, description.workers
        self.phase = Phase.TAKING_OVER

    @property
    def is_taking_over(self) -> bool:
        """Whether the predecessor is still in charge."""
        return self.phase in (Phase.TAKING_OVER, Phase.REPORTED)

    @property
    def is_in_charge(self) -> bool:
        """Whether this process notifies systemd and removes the files of Unix sockets."""
        return self.phase is Phase.ALONE

    def workers_of(self, configured: int, pool: str = "") -> int:
        """Return how many workers to start: as many as the predecessor has, if the setting is the same.

        Signals may have changed the number since the predecessor's start; a changed setting is newer than they are.
        """
        before, running = self._workers.get(pool, (configured, configured))
        return running if before == configured and running > 0 else configured

    def inherit(self, heir: Heir) -> None:
        """Call `heir` with the predecessor's counts whenever these arrive, first when it has stopped serving metrics.

        It is called with None if there is no predecessor, or if that sends no counts.
        """
        if self.is_taking_over:
            self._heirs.append(heir)
        else:
            heir(None)

    def take(self, family: int, address: Any, use: Use = Use.SERVING) -> socket.socket | None:
        """Return the predecessor's socket for a TCP address as configured; None if it has none."""
        if not self._sockets:
            return None
        with suppress(OSError):
            wanted = socket.getaddrinfo(
                address[0] or None, address[1], family, socket.SOCK_STREAM, 0, socket.AI_PASSIVE
            )
            hosts = {_host_of(found[4]) for found in wanted}
            for handed, sock in self._sockets:
                is_same = (handed.use, handed.port, sock.family) == (use, address[1], family)
                if is_same and sock.type == socket.SOCK_STREAM and _host_of(sock.getsockname()) in hosts:
                    return self._claim(handed, sock)
        return None

    def take_file(self, path: str) -> socket.socket | None:
        """Return the predecessor's Unix socket whose file is at `path`; None if it has none."""
        identity = _identity(path)
        for handed, sock in self._sockets:
            is_abstract = path.startswith("\0") and handed.path == path
            if handed.use is Use.SERVING and (is_abstract or (identity is not None and handed.file == identity)):
                self._kept.add(path)
                return self._claim(handed, sock)
        return None

    def take_slots(self, addresses: Sequence[Any]) -> TakenSlots | None:
        """Return the predecessor's slots at one of these addresses; None if it has none.

        Its sockets at other addresses are closed; the predecessor serves them until it ends.
        """
        found = next((slots for slots in self._slots if any(map(slots.has, addresses))), None)
        if found is None:
            return None
        self._slots.remove(found)
        for group in found.groups:
            if group[0].getsockname() not in addresses:
                for sock in group:
                    sock.close()
        return replace(found, groups=[group for group in found.groups if group[0].fileno() >= 0])

    @property
    def steers(self) -> bool:
        """Whether this process says where datagrams go; its predecessor does until this one has reported."""
        return self.phase in (Phase.ALONE, Phase.REPORTED)

    def when_serving(self, callback: Callable[[], object]) -> None:
        """Call it once this process is about to report that it serves, maybe at once or from another thread."""
        if self.phase is Phase.TAKING_OVER:
            self._when_serving.append(callback)
        else:
            callback()

    def when_in_charge(self, callback: Callable[[], object]) -> None:
        """Call it once this process is in charge, maybe at once or from another thread."""
        if self.is_taking_over:
            self._when_in_charge.append(callback)
        else:
            callback()

    def _claim(self, handed: Handed, sock: socket.socket) -> socket.socket:
        self._sockets.remove((handed, sock))
        return sock

    def drop_rest(self) -> None:
        """Close the sockets that the settings no longer name. The predecessor serves them until it ends."""
        for handed, sock in self._sockets:
            self._dropped.append(handed)
            sock.close()
        self._sockets = []
        for slots in self._slots:
            slots.close()
        self._slots = []

    @property
    def sources(self) -> list[socket.socket]:
        """Objects that become readable when it is time to call `hear`; empty once that is over."""
        return [] if self._control is None else [self._control]

    def report(self) -> None:
        """Report, once, that this process serves."""
        if self.phase is not Phase.TAKING_OVER or self._control is None:
            return
        self.drop_rest()
        self.phase = Phase.REPORTED
        for callback in self._when_serving:
            callback()
        with suppress(OSError):  # the predecessor has ended, as `hear` is going to notice
            self._control.send(READY)

    def hear(self) -> bool:
        """Read the predecessor's answer, or its end; returns whether this process has come in charge by that."""
        if self._control is None:
            return False
        self._control.setblocking(False)
        try:
            answer = self._control.recv(1)
        except BlockingIOError:
            return False
        except OSError:
            answer = b""
        if answer == GO:
            logger.info("Took over from process [%d]", self.predecessor)
        else:
            logger.warning("Process [%d] ended before it handed over; serving in its place.", self.predecessor)
        feed, self._control = self._control, None
        self.phase, self.predecessor = Phase.ALONE, None
        for callback in self._when_in_charge:
            callback()
        self._when_in_charge = []
        if self._heirs:
            self._feed = feed
            self._reader = threading.Thread(target=self._read_counts, args=(feed,), name="uvicorn-counts", daemon=True)
            self._reader.start()
        else:
            feed.close()
        self._kept.clear()
        for handed in self._dropped:
            if handed.is_owned and handed.path and _identity(handed.path) == handed.file:
                with suppress(OSError):
                    os.unlink(handed.path)
        self._dropped = []
        return True

    def _read_counts(self, feed: socket.socket) -> None:
        """Pass on the predecessor's counts until it ends; runs in a thread."""
        is_first = True
        with feed, suppress(OSError):
            feed.settimeout(PATIENCE)  # for the first ones, without which there are no metrics
            with feed.makefile("rb") as lines:
                while (line := lines.readline(MOST_COUNTS)).endswith(b"\n"):
                    with suppress(ValueError):
                        counts = json.loads(line)
                        for heir in self._heirs:
                            heir(counts)
                        is_first = False
                    feed.settimeout(None)
        if is_first:
            for heir in self._heirs:
                heir(None)

    def await_counts(self) -> None:
        """Wait until a predecessor that still drains has sent its last counts, so that they can be passed on."""
        if self._reader is not None:
            self._reader.join(LAST_COUNTS)

    def wait(self) -> None:
        """Report, and return when this process is in charge; blocks."""
        self.report()
        while self._control is not None and not self.hear():
            self._control.setblocking(True)
            with suppress(OSError):
                self._control.recv(1, socket.MSG_PEEK)

    def forget(self) -> None:
        """Close the connection and the sockets that were not taken; in a forked child they are its parent's."""
        self.drop_rest()
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    # The predecessor's side

    def hand_over(self, paths: Iterable[str]) -> None:
        """Note that a successor is in charge, and owns the files of the Unix sockets at `paths`."""
        self._kept.update(paths)
        self.phase = Phase.HANDED_OVER

    # Both

    def keeps(self, path: str) -> bool:
        """Whether the file of a Unix socket belongs to another process of the succession."""
        return path in self._kept


current = Succession()
"""The succession of this process; replaced by `begin`."""


def begin() -> None:
    """Begin a server in this process, as the successor of another one if `UVICORN_UPGRADE` says so.

    Raises:
        DescriptionError: the variable or the description is invalid.
    """
    global current
    current = Succession()
    current.begin()


def _has_died(predecessor: int, descriptor: int) -> bool:
    """Whether the predecessor, which has made the socket at `descriptor`, has ended since it started this process."""
    try:
        os.kill(predecessor, 0)
        return False
    except ProcessLookupError:
        pass
    except OSError:
        return False
    if sys.platform != "linux":
        return True
    try:
        sock = socket.socket(fileno=descriptor)
    except OSError:
        return False
    try:
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    except OSError:
        return False
    finally:
        sock.detach()
    return int.from_bytes(credentials[:4], sys.byteorder) == predecessor


def _identity(path: str) -> tuple[int, int] | None:
    """Device and inode of a file; None if there is none."""
    with suppress(OSError, ValueError):  # ValueError: an abstract name has a NUL
        status = os.stat(path)
        return status.st_dev, status.st_ino
    return None


def _host_of(address: Any) -> tuple[str, int]:
    """Host and scope of a socket's address."""
    return address[0].partition("%")[0], address[3] if len(address) > 3 else 0


def _inherited(descriptor: int) -> socket.socket:
    try:
        sock = socket.socket(fileno=descriptor)
    except OSError as exc:
        raise DescriptionError(f"descriptor {descriptor} of the predecessor is no socket ({exc.strerror})") from None
    sock.set_inheritable(False)
    return sock


def _line_from(control: socket.socket) -> bytes:
    """Read the description, and no byte more."""
    text = b""
    try:
        while not text.endswith(b"\n") and len(text) < LARGEST:
            piece = control.recv(65536)
            if not piece:
                break
            text += piece
    except OSError as exc:
        raise DescriptionError(f"the predecessor has sent no description ({exc})") from None
    return text
