"""Replace this process by a new one, which runs the same command, without a closed port.

The successor inherits the sockets and serves before this process drains. If it fails, nothing has changed.
`uvicorn.listening.handover` has the diagram and the successor's side.

    PENDING ──▶ READY
       └─────▶ FAILED ──▶ GONE
"""

from __future__ import annotations

import enum
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from uvicorn.config import Config
from uvicorn.listening import handover
from uvicorn.listening.handover import GO, READY, VARIABLE, Description, Handed, Use
from uvicorn.listening.sockets import source_of, unix_paths
from uvicorn.server import Server
from uvicorn.serving.drain import Stage
from uvicorn.serving.init_signals import is_init
from uvicorn.serving.kill_deadlines import GracePeriods
from uvicorn.supervisors.upgrade_status import Status
from uvicorn.worker_events import how_ended

if TYPE_CHECKING:
    import subprocess

    from uvicorn.listening.systemd import Share
    from uvicorn.listening.udp_slots import UDPSlots
    from uvicorn.supervisors.threaded import ThreadedServer

SEND_BUFFER = handover.LARGEST
"""Bytes of the socket to a successor, which takes the whole description before the successor runs."""

EXIT_WAIT = 1.0
"""Seconds from the end of a successor's connection to that of its process, for its exit status."""

INTERVAL = 0.1
"""Seconds between two checks whether a failed successor has ended."""

COUNTS_INTERVAL = 1.0
"""Seconds between the counts that a successor is sent."""

logger = logging.getLogger("uvicorn.error")


@dataclass(frozen=True)
class Start:
    """How this process was started, so that a successor can be started equally.

    Attributes:
        why_not: why that is impossible, as a clause; None if it is possible.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    why_not: str | None = None

    @classmethod
    def now(cls) -> Start:
        """Return it."""
        why_not = None
        origin = handover.origin
        process = sys.modules.get("multiprocessing.process")
        if sys.platform == "win32":
            why_not = "this system cannot hand over sockets"
        elif os.getpid() != origin.pid or (process is not None and process.parent_process() is not None):
            why_not = "another program has forked this process"
        elif not sys.executable or len(sys.argv) == 0 or sys.argv[0] in ("", "-"):
            why_not = "the program was read from standard input"
        arguments = sys.argv if getattr(sys, "frozen", False) else sys.orig_argv
        return cls([sys.executable, *arguments[1:]], origin.environment, origin.directory, why_not)


class State(enum.Enum):
    """The state of a successor; the module's diagram shows the transitions."""

    PENDING = 0
    READY = 1
    FAILED = 2
    GONE = 3


class Attempt:
    """One successor, from its start until it is in charge or gone.

    Args:
        timeout: seconds until it has to serve; None for any time.
        kill_delay: seconds to end after it has failed; None for any time.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self,
        start: Start,
        description: Description,
        descriptors: Iterable[int],
        timeout: float | None,
        kill_delay: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        import subprocess  # needed by few

        self.state = State.PENDING
        self.reason = ""
        self._clock = clock
        self._timeout, self._kill_delay = timeout, kill_delay
        self.control, theirs = socket.socketpair()
        try:
            with theirs:
                with suppress(OSError):  # the buffer stays smaller
                    self.control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
                self.control.settimeout(handover.PATIENCE)
                self.control.sendall(description.encode())
                self.control.setblocking(False)
                self.process: subprocess.Popen[bytes] = subprocess.Popen(
                    start.command,
                    cwd=start.directory,
                    env={**start.environment, VARIABLE: f"{os.getpid()}:{theirs.fileno()}"},
                    pass_fds=[theirs.fileno(), *descriptors],
                )
        except BaseException:
            self.control.close()
            raise
        self._ready_by = None if timeout is None else clock() + timeout
        self._kill_at: float | None = None

    @property
    def sources(self) -> list[socket.socket]:
        """Objects that become readable when it is time to `look`."""
        return [self.control] if self.state is State.PENDING else []

    def next_deadline(self) -> float | None:
        """When to `look` next, unless a source becomes readable before."""
        if self.state is State.PENDING:
            return self._ready_by
        return self._clock() + INTERVAL if self.state is State.FAILED else None

    def look(self) -> State:
        """Note how far it has come."""
        if self.state is State.PENDING:
            self._read_report()
        if self.state is State.FAILED:
            if self._kill_at is not None and self._clock() >= self._kill_at:
                self.process.kill()
                self.process.wait()
            if self.process.poll() is not None:
                self.state = State.GONE
                self.control.close()
        return self.state

    def _read_report(self) -> None:
        try:
            report = self.control.recv(1)
        except BlockingIOError:
            if self._ready_by is not None and self._clock() >= self._ready_by:
                self.fail(f"was not ready within {self._timeout:g} seconds (timeout_worker_ready)")
            return
        except OSError:
            report = b""
        if report == READY:
            self.state = State.READY
        else:
            self._wait(EXIT_WAIT)
            code = self.process.returncode
            self.fail("closed the connection to this process" if code is None else f"ended ({how_ended(code)})")

    def confirm(self) -> bool:
        """Put it in charge; false if it has ended, and so failed. The connection stays open for counts."""
        try:
            self.control.send(GO)
        except OSError:
            self.fail("ended after its report")
            return False
        return True

    def fail(self, reason: str) -> None:
        """Have it end. The connection stays open: a successor that loses it without a word comes in charge."""
        if self.state in (State.FAILED, State.GONE):
            return
        self.state, self.reason = State.FAILED, reason
        self._kill_at = None if self._kill_delay is None else self._clock() + self._kill_delay
        if self.process.poll() is None:
            self.process.terminate()

    def _wait(self, seconds: float) -> None:
        import subprocess

        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)

    def join(self) -> None:
        """Wait until one that has failed has ended."""
        while self.look() is State.FAILED:
            self._wait(INTERVAL)


class Feed:
    """Sends the counts of this process to its successor while this process drains, from a thread, until `close`.

    Args:
        control: the connection to the successor, which is closed at the end.
        counts: returns them, as JSON has them.
    """

    def __init__(self, control: socket.socket, counts: Callable[[], Any]) -> None:
        self._control = control
        self._counts = counts
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="uvicorn-counts", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # OSError: the successor has ended, or its version takes no counts.
        with self._control, suppress(OSError):
            self._control.settimeout(handover.PATIENCE)
            self._send()
            while not self._is_over.wait(COUNTS_INTERVAL):
                self._send()
            self._send()

    def _send(self) -> None:
        self._control.sendall(json.dumps(self._counts()).encode() + b"\n")

    def close(self) -> None:
        """Send the last ones."""
        self._is_over.set()
        self._thread.join(2 * handover.PATIENCE)


class Upgrades:
    """The upgrades of one server: `request` begins one, and `look` returns true once a successor is in charge.

    Args:
        configs: of the server, or of each of its pools.
        listeners: returns the sockets that the server listens on.
        notifier: notifies the service manager; None without one.
        workers: returns how many workers there are, by pool; see `Description`.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        start: Start,
        listeners: Callable[[], Sequence[Any]],
        notifier: Share | None,
        workers: Callable[[], Mapping[str, Sequence[int]]] = dict,
    ) -> None:
        self._workers = workers
        self._notifier = notifier
        self._configs = configs
        self._start = start
        self._listeners = listeners
        self._attempt: Attempt | None = None
        self._feed: Feed | None = None
        self._is_over = False  # this server ends
        self._deciding = threading.Lock()
        self._status = Status()

    # Requests

    def refusal(self) -> str | None:
        """Why there can be no upgrade now, and the remedy, as a clause; None if there can be one."""
        if is_init():
            return (
                "a container ends with its process 1; start another container, or send SIGHUP to a parent of workers "
                "to replace these"
            )
        if self._attempt is not None:
            return f"an upgrade is under way (process [{self._attempt.process.pid}]); wait for its end"
        if not handover.current.is_in_charge:
            return "this process is part of an upgrade that is under way; wait for its end"
        return self._start.why_not

    def request(self, name: str, refusal: str | None = None) -> bool:
        """Start a successor because of the signal `name`, unless there is a reason against that; says so in the log."""
        refusal = refusal or self.refusal()
        if refusal is not None:
            logger.warning("Ignoring %s: %s.", name, refusal)
            if self._attempt is None:
                self._status.begin()
                self._status.end(refusal)
            return False
        try:
            description, descriptors = self._description()
            timeout = _longest(config.worker_ready_timeout for config in self._configs)
            kill_delay = _longest(GracePeriods.of(config).total for config in self._configs)
            self._attempt = Attempt(self._start, description, descriptors, timeout, kill_delay)
        except OSError as exc:
            logger.error(
                "The upgrade failed: no process can be started (%s). Process [%d] keeps serving.", exc, os.getpid()
            )
            self._status.begin()
            self._status.end(f"no process can be started ({exc})")
            _take_slots_back()
            return False
        if self._notifier is not None:
            self._notifier.reloading()
        pid = self._attempt.process.pid
        self._status.begin(pid)
        logger.info("Received %s, starting process [%d] to take over.", name, pid)
        return True

    def _description(self) -> tuple[Description, list[int]]:
        places = [place for config in self._configs for place in source_of(config).places()]
        places = [text for text in places if not text.startswith(("unix:", "fd:", "systemd"))]
        ports = [int(text.rpartition(":")[2]) for text in places]
        sockets = [Handed.of(sock, Use.SERVING, ports, self._paths()) for sock in self._listeners()]
        first = self._configs[0]  # what all pools have in common is in each
        for use, address in ((Use.METRICS, first.metrics), (Use.PROBE, first.probe)):
            if address is not None:
                port = int(address.rpartition(":")[2])
                sockets += [Handed.of(one.listener, use, [port]) for one in _responders(use)]
        # Pools have secrets of their own, because one may ask for certificates of clients and another may not.
        secret = first.ticket_secret if len(self._configs) == 1 else None
        tickets = None if secret is None else secret.encode()
        slots = [own.hand_over() for own in _udp_slots()]
        numbers = [handed.descriptor for handed in sockets]
        numbers += [number for handed in slots for number in handed.all_descriptors()]
        descriptors = dict.fromkeys([*numbers, *_descriptors_of_starter(self._configs)])
        return Description(sockets, tickets, self._workers(), slots), list(descriptors)

    def _paths(self) -> list[str]:
        return [path for config in self._configs for path in unix_paths(config)]

    # Progress

    @property
    def is_under_way(self) -> bool:
        """Whether a successor has started that is neither in charge nor gone."""
        return self._attempt is not None

    @property
    def sources(self) -> list[socket.socket]:
        """Objects that become readable when it is time to `look`."""
        return [] if self._attempt is None else self._attempt.sources

    def next_deadline(self) -> float | None:
        """When to `look` next, unless a source becomes readable before."""
        return None if self._attempt is None else self._attempt.next_deadline()

    def look(self) -> bool:
        """Move the upgrade on; returns whether the successor is in charge now, so that this server is to drain."""
        with self._deciding:
            attempt = self._attempt
            if attempt is None:
                return False
            before = attempt.state
            if attempt.look() is State.READY and not self._is_over and attempt.confirm():
                self._attempt = None
                self._hand_over(attempt)
                return True
            if before is State.PENDING and attempt.state is not State.PENDING:
                self._note_failure(attempt)
            if attempt.state is State.GONE:
                self._attempt = None
                _take_slots_back()
            return False

    def _hand_over(self, attempt: Attempt) -> None:
        pid = attempt.process.pid
        attempt.process.returncode = 0  # it is not awaited here: it outlives this process
        if self._notifier is not None:
            self._notifier.hand_over(pid)
        handover.current.hand_over(self._paths())
        expositions = _responders(Use.METRICS)
        for responder in (*expositions, *_responders(Use.PROBE)):
            responder.close()
        if expositions:
            expositions[0].join()  # so that no answer has more than the successor begins with
            self._feed = Feed(attempt.control, expositions[0].counts)
        else:
            attempt.control.close()
        logger.info("Process [%d] serves, shutting down.", pid)
        self._status.end()

    def _note_failure(self, attempt: Attempt) -> None:
        pid, reason = attempt.process.pid, attempt.reason
        for slots in _udp_slots():
            slots.steer_again()
        if not self._is_over:
            logger.error(
                "The upgrade failed: process [%d] %s. Process [%d] keeps serving. Correct the error that [%d] has "
                "logged, and send the signal again.",
                pid,
                reason,
                os.getpid(),
                pid,
            )
            if self._notifier is not None:
                self._notifier.ready()
        self._status.end(f"process [{pid}] {reason}")

    # End

    def abort(self) -> None:
        """End the successor because this server ends, unless it is in charge."""
        with self._deciding:
            self._is_over = True
            if self._attempt is not None and self._attempt.state in (State.PENDING, State.READY):
                logger.info("Terminating process [%d], which was to take over.", self._attempt.process.pid)
                self._attempt.fail("was terminated with its predecessor")
                self._note_failure(self._attempt)

    def join(self) -> None:
        """Wait until an aborted successor has ended."""
        if self._attempt is not None:
            self._attempt.join()

    def forget(self) -> None:
        """Close the parent's own resources in a forked child."""
        self._status.forget()
        for source in self.sources:
            source.close()

    def close(self) -> None:
        """Give the successor the last counts, and remove the outcome."""
        if self._feed is not None:
            handover.current.await_counts()
            self._feed.close()
        self._status.close()


_RESPONDERS = {Use.METRICS: "uvicorn.observing.exposition", Use.PROBE: "uvicorn.observing.probe"}


def _responders(use: Use) -> list[Any]:
    """The objects of this process that answer at an address of their own for this use, if there are any."""
    module = sys.modules.get(_RESPONDERS[use])
    return [] if module is None else list(module.running)


def _udp_slots() -> list[UDPSlots]:
    """The slots for HTTP/3 of this process, if it has any."""
    module = sys.modules.get("uvicorn.listening.udp_slots")
    return [] if module is None else list(module.running)


def _take_slots_back() -> None:
    """Use the slots that a successor was to have."""
    for slots in _udp_slots():
        slots.take_back()


def _longest(times: Iterable[float | None]) -> float | None:
    """The longest of these times, of which None is any time."""
    found = list(times)
    known = [time for time in found if time is not None]
    return max(known) if len(known) == len(found) else None


def _descriptors_of_starter(configs: Sequence[Config]) -> Iterator[int]:
    """The open descriptors that this process was started with, and a successor finds under the same numbers."""
    numbers = [int(text[3:]) for config in configs for text in config.bind if text.startswith("fd:")]
    numbers += [config.fd for config in configs if config.fd is not None]
    count = os.environ.get("LISTEN_FDS", "")
    if os.environ.get("LISTEN_PID") == str(os.getpid()) and count.isdecimal():
        from uvicorn.listening.systemd import FIRST_DESCRIPTOR

        numbers += range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(count))
    for number in numbers:
        with suppress(OSError):
            os.fstat(number)
            yield number


class ServerUpgrades:
    """Upgrades of a server without a parent, at SIGUSR2, and at SIGHUP unless that has another meaning.

    SIGHUP keeps it if the process has a terminal, whose end the signal reports; if the program or `nohup` has set a
    handler; and with `ssl_reload`, where it checks the certificates.
    """

    def __init__(self, config: Config, start: Start, server: Server | ThreadedServer, notifier: Share | None) -> None:
        self._server = server
        self._upgrades: Upgrades | None = None
        self._requesting = threading.Lock()
        self._stage = Stage.STARTING
        self._has_started = threading.Event()
        self._config, self._start, self._notifier = config, start, notifier
        self._report_before = getattr(server, "on_stage", None)
        server.on_stage = self._note

    @contextmanager
    def handling_signals(self) -> Iterator[None]:
        """Handle both signals in the block, in the main thread."""
        if sys.platform == "win32" or threading.current_thread() is not threading.main_thread() or self._start.why_not:
            yield
            return
        numbers = [signal.SIGUSR2] if _has_terminal() else [signal.SIGUSR2, signal.SIGHUP]
        numbers = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
        self._upgrades = Upgrades([self._config], self._start, self._listeners, self._notifier)
        for number in numbers:
            signal.signal(number, self._handle)
        try:
            yield
        finally:
            for number in numbers:
                if signal.getsignal(number) == self._handle:
                    signal.signal(number, signal.SIG_DFL)
            self._upgrades.close()

    def _handle(self, number: int, frame: object) -> None:
        name = signal.Signals(number).name
        # Logging in a handler might wait for a lock that the interrupted code holds.
        with suppress(RuntimeError):  # no room for a thread
            threading.Thread(target=self._upgrade, args=(name,), name="uvicorn-upgrade", daemon=True).start()

    def _servers(self) -> list[Server]:
        return [self._server] if isinstance(self._server, Server) else list(self._server.servers)

    def _listeners(self) -> list[Any]:
        # Each event loop has a duplicate of every socket.
        return [sock for listener in self._servers()[0].servers for sock in listener.sockets]

    def _upgrade(self, name: str) -> None:
        """Run in a thread: start a successor and watch it."""
        upgrades = self._upgrades
        assert upgrades is not None
        if not self._requesting.acquire(blocking=False):
            upgrades.request(name, upgrades.refusal() or "an upgrade is under way; wait for its end")
            return
        from multiprocessing.connection import wait  # needed by few

        try:
            self._has_started.wait()
            is_ending = self._stage >= Stage.LEAVING
            if not upgrades.request(name, "this process is shutting down; start it again" if is_ending else None):
                return
            while upgrades.is_under_way:
                deadline = upgrades.next_deadline()
                wait(upgrades.sources, None if deadline is None else max(0.0, deadline - time.monotonic()))
                if upgrades.look():
                    self._drain()
        finally:
            self._requesting.release()

    def _drain(self) -> None:
        for server in self._servers():
            for listener in server.servers:
                leave_rest = getattr(listener, "leave_rest", None)
                if leave_rest is not None:
                    leave_rest()
            server.relieve()
        for server in self._servers():
            server.should_exit = True

    def _note(self, stage: Stage) -> None:
        self._stage = stage
        if stage >= Stage.SERVING:
            self._has_started.set()
        if self._report_before is not None:
            self._report_before(stage)
        succession = handover.current
        if stage is Stage.SERVING and succession.is_taking_over:
            threading.Thread(target=succession.wait, name="uvicorn-succession", daemon=True).start()
        elif stage >= Stage.LEAVING and self._upgrades is not None:
            self._upgrades.abort()


def _has_terminal() -> bool:
    """Whether this process has a controlling terminal."""
    if sys.platform == "win32":
        raise NotImplementedError("Windows has no SIGUSR2")
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
