"""The interface of a worker for its pool, and the one kind there is: a server in a process of its own."""

from __future__ import annotations

import contextlib
import enum
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from multiprocessing import Pipe
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from socket import socket
from typing import TYPE_CHECKING, Any, Protocol

from uvicorn._subprocess import get_subprocess
from uvicorn.config import Config
from uvicorn.config.errors import STARTUP_FAILURE
from uvicorn.hooks import original, overrides
from uvicorn.listening.loads import WorkerLoad
from uvicorn.metrics.loop_state import PROCESS, LoopState
from uvicorn.metrics.memory import resident_memory
from uvicorn.metrics.page import CONNECTIONS_CLOSED, CONNECTIONS_OPENED, Page
from uvicorn.server import Server
from uvicorn.serving.drain import Stage
from uvicorn.supervisors.child_end import ChildEnd
from uvicorn.supervisors.health import Heartbeat
from uvicorn.supervisors.recorder import STACKS_SIGNAL, Recorder
from uvicorn.supervisors.signals import holding_parents_signals, leave_signals_to_parent

if TYPE_CHECKING:
    from uvicorn.listening.udp_slots import UDPSlot
    from uvicorn.observing.debugging import LoopListing
    from uvicorn.observing.on_demand import Arrivals
    from uvicorn.observing.orders import Order
    from uvicorn.supervisors.threaded import ThreadedServer

POLL_INTERVAL = 0.1
"""Seconds between two looks of `wait_until_ready`, whose `should_exit` may be any event."""

HEALTH_INTERVAL = 0.5
"""Seconds between two calls of `is_alive`, if a program has overridden that: as upstream calls it."""

FATAL = frozenset(
    -number
    for name in ("SEGV", "ABRT", "BUS", "FPE", "ILL")
    if (number := getattr(signal, f"SIG{name}", None)) is not None
)
"""Exit statuses of a child that has crashed: by signals for which `faulthandler` writes down the stack."""

RELIEVED = b"relieved"
"""Tells a child that its successor serves; any other message is a question."""

REQUESTS = b"requests"
"""Asks a child for the requests in flight on its event loops."""

STACKS = b"stacks"
"""Has a child write down the stacks of its threads."""

MEASURE = b"measure"
"""Begins the order of a measurement, which `orders` describes; without one the child stops the one that runs."""

logger = logging.getLogger("uvicorn.error")


def make_server(config: Config) -> Server | ThreadedServer:
    """Return the server of one process: on one event loop, or on several."""
    if config.threads == 1:
        return Server(config)
    # Imported by those that need it.
    from uvicorn.supervisors.threaded import ThreadedServer

    return ThreadedServer(config)


class Worker(Protocol):
    """A server somewhere else. Its methods return at once, `wait` excepted."""

    @property
    def pid(self) -> int | None:
        """Its name in the log; None before the start."""

    @property
    def exitcode(self) -> int | None:
        """How it has ended, minus the number of the signal that did it; None while it runs."""

    @property
    def stage(self) -> Stage:
        """How far it has come, as it has reported."""

    @property
    def stage_since(self) -> float:
        """When that report came in (`time.monotonic()`)."""

    @property
    def has_served(self) -> bool:
        """Whether it has ever reported that it serves."""

    def start(self) -> None:
        """Start it."""

    def relieve(self) -> None:
        """Tell it, before or after that it is to end, that others serve in its place: it need not go on accepting."""

    def terminate(self) -> None:
        """Tell it to end gracefully."""

    def hurry(self) -> None:
        """Tell it, while it ends, not to wait for clients."""

    def kill(self) -> None:
        """End it without a graceful shutdown."""

    def wait(self, timeout: float | None = None) -> None:
        """Wait until it has ended, at most `timeout` seconds."""

    def collect(self) -> None:
        """Note that it has ended by itself, or was killed."""

    def join(self) -> None:
        """Note that it has ended after `terminate`."""

    def can_replace(self) -> bool:
        """Whether it serves, so that another can end."""

    def is_silent(self, now: float) -> bool:
        """Whether it has stopped answering; asks it again when that is due."""

    def excuse(self, seconds: float) -> None:
        """Not to count the last `seconds` as silence."""

    @property
    def has_pulse(self) -> bool | None:
        """Whether its process runs although it is silent; None if that is not known."""

    def blockade(self) -> tuple[float, str] | None:
        """Seconds for which an event loop has been blocked, if that is longer than it may be, and stacks of that time.

        Said once each time; of several at a time the first has the stacks.
        """

    def ask_for_stacks(self) -> None:
        """Have it write down the stacks of its threads, if it answers."""

    def insist_on_stacks(self) -> bool:
        """Have it write them down, unless it has, whatever its interpreter is doing: only before it is killed.

        Returns whether it may be writing, which takes a moment.
        """

    def is_writing(self) -> bool:
        """Whether it has written nothing since `insist_on_stacks`, or more since the last call."""

    def take_stacks(self) -> str:
        """Return the stacks written down since the last call."""

    def take_crash(self) -> str:
        """Return the stack that a fatal signal has written down; empty if none has ended it."""

    @property
    def deadline(self) -> float | None:
        """When to call `is_silent` next, unless it reports something before."""

    def listen(self, now: float) -> None:
        """Read its reports."""

    def memory(self) -> int | None:
        """Bytes it occupies; None if that cannot be found out."""

    def connections(self) -> int | None:
        """Connections it has, or had when it ended; None if that cannot be found out."""

    @property
    def sources(self) -> list[Any]:
        """Objects that become ready when it has ended or reported something, for `multiprocessing.connection.wait`."""


class Blockade(enum.Enum):
    """How a blocked event loop was handled."""

    NOTICED = 1
    """The child was asked for the stacks of its threads."""
    TOLD = 2
    """The blockade was reported, with the stacks."""


class Talk(enum.Enum):
    """The messages that may still come from the child."""

    REPORTS = 0
    """Reports."""
    ANSWER = 1
    """Reports and the answer to a question. A second question might fill the pipe."""
    NOTHING = 2
    """None: one end of the pipe is closed."""


@original
class ProcessWorker:
    """A server in a process of its own, and a pipe to it.

    The parent sends questions; the child answers each with whether it serves (from a thread, so a blocked event loop is
    no silence) and reports each `Stage` it enters, and for how long its event loop has been blocked. The object is
    copied into the child, where `target` runs.

    Attributes:
        load_places: where each event loop of the child tells the others how many connections it has; to be set before
            `start`.
        should_exit: set when the supervisor is to end; `wait_until_ready` of a subclass gets it.
        metrics_pages: where each of them counts, if the metrics are served; to be set before `start`, too.
        loop_states: the state of each of them, if probes are answered; to be set before `start`, too.
        udp_slots: those for HTTP/3, if it is served: one for each event loop, or fewer; to be set before `start`, too.
        is_leaving: whether its parent has asked it to end, or killed it.
        on_leave: called before its parent asks it to end, and once its parent has waited for its end.
        pool_environment: context manager entered while the process starts.
    """

    def __init__(self, config: Config, sockets: list[socket]) -> None:
        self.config = config
        self._sockets = sockets
        self.pool_environment: Callable[[], AbstractContextManager[None]] = nullcontext
        self.load_places: list[WorkerLoad] = []
        self.metrics_pages: list[Page] = []
        self.loop_states: list[LoopState] = []
        self.udp_slots: list[UDPSlot] | None = None
        self.is_leaving = False
        self.on_leave: Callable[[], None] = lambda: None
        self.should_exit: threading.Event | None = None
        self._health_at = 0.0 if overrides(self, "is_alive", "ping", "_healthcheck") else None
        self.parent_conn, self.child_conn = Pipe()
        self._process: BaseProcess | None = None
        self._begin_child()
        self._writing = threading.Lock()  # to the parent's end
        self._talking = threading.Lock()  # the parent's end: the supervisor listens, another thread may `ping`
        self._heartbeat = Heartbeat(config.timeout_worker_healthcheck)
        self._recorder = Recorder.make()
        self._pulse = 0  # when it had been silent for a while
        self._written = 0  # bytes of stacks, when they were looked at last
        self._blockades: dict[int, Blockade] = {}  # by the place of the event loop
        self._untold: list[tuple[float, str]] = []  # blockades, and their stacks
        self._stage = Stage.STARTING
        self._stage_since = time.monotonic()
        self._has_served = False
        self._has_joined = False
        self._was_killed = False
        self._talk = Talk.REPORTS
        self._pieces: list[bytes] = []
        self._listings: list[LoopListing] = []
        self._is_told = threading.Event()  # the answer to REQUESTS has come; one is awaited at a time
        self._is_told.set()
        self._asking = threading.Lock()  # for that: by the page, and at a signal
        self._parts: Arrivals | None = None  # of a measurement
        self._part: list[str] = []

    def _make_process(self, sockets: list[socket]) -> BaseProcess:
        return get_subprocess(self.config, self.target, sockets)

    def fork(self, begin: Callable[[], None]) -> None:
        """Have `start` fork the child, which first calls `begin`, instead of spawning it.

        Not an argument of the constructor: subclasses have upstream's.
        """
        if sys.platform == "win32":
            raise OSError("nothing can be forked here")
        else:
            from uvicorn.supervisors.fork import fork_subprocess

            self._process = fork_subprocess(self.config, self.target, self._sockets, begin)

    @property
    def process(self) -> BaseProcess:
        """The child; made when first asked for, since each that is made is counted in the names of the next."""
        if self._process is None:
            self._process = self._make_process(self._sockets)
        return self._process

    @process.setter
    def process(self, process: BaseProcess) -> None:
        self._process = process

    def _make_server(self) -> Server | ThreadedServer:
        return make_server(self.config)

    # In the child

    def __getstate__(self) -> dict[str, Any]:
        # The parent's end must not reach the child: it would keep the pipe open when the parent is gone.
        return {
            "config": self.config,
            "child_conn": self.child_conn,
            "load_places": self.load_places,
            "metrics_pages": self.metrics_pages,
            "loop_states": self.loop_states,
            "udp_slots": self.udp_slots,
            "_recorder": self._recorder,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin_child()

    def _begin_child(self) -> None:
        self._server: Server | ThreadedServer | None = None
        self._child_end = ChildEnd(self.child_conn)

    @property
    def server(self) -> Server | ThreadedServer:
        """The server of this worker; made when first asked for, in the process where it is to run."""
        if self._server is None:
            server = self._server = self._make_server()
            server.on_stage = lambda stage: self._child_end.report(stage, server.loops)
            server.has_successor = True
            server.udp_slots = self.udp_slots
            for state in self.loop_states:
                state.words[PROCESS] = os.getpid()
            if isinstance(server, Server):
                server.load_place = next(iter(self.load_places), None)
                server.metrics_page = next(iter(self.metrics_pages), None)
                server.loop_state = next(iter(self.loop_states), None)
            else:
                server.load_places = self.load_places
                server.metrics_pages = self.metrics_pages
                server.loop_states = self.loop_states
        return self._server

    def target(self, sockets: list[socket] | None = None) -> None:
        """Run in the child: answer questions, and serve.

        Raises:
            SystemExit: the server could not start; the parent is not to try again.
        """
        if sys.platform == "win32":
            # The parent can only send Ctrl+Break; the server knows SIGTERM everywhere.
            signal.signal(signal.SIGBREAK, lambda sig, frame: signal.raise_signal(signal.SIGTERM))
        if threading.current_thread() is threading.main_thread():
            leave_signals_to_parent()
        if self._recorder is not None:
            self._recorder.record(Heartbeat(self.config.timeout_worker_healthcheck).interval)
        threading.Thread(target=self.always_pong, name="uvicorn-pong", daemon=True).start()
        try:
            self.server.run(sockets)
        finally:
            self._child_end.report(Stage.ENDED)
        if not self.server.started:
            sys.exit(STARTUP_FAILURE)

    def always_pong(self) -> None:
        """Answer questions until the parent is gone."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                self.pong()

    def pong(self) -> None:
        """Wait for one question and answer it: whether the server serves; or for word that others do.

        Raises:
            EOFError: the parent is gone.
        """
        message = self.child_conn.recv()
        if message == RELIEVED:
            self.server.relieve()
        elif message == STACKS:
            self._write_stacks()
        elif message == REQUESTS:
            self._child_end.answer_requests(self.server)
        elif isinstance(message, bytes) and message.startswith(MEASURE):
            self._child_end.measure(self.server, message[len(MEASURE) :])
        else:
            self._child_end.answer(self.server.started)

    def _write_stacks(self) -> None:
        """Write down the stacks; if that fails, there are none, and questions are answered as before."""
        try:
            if self._recorder is not None:
                self._recorder.write_stacks()
        except Exception:
            logger.exception("Cannot write down the stacks of this process")

    # In the parent: life and death

    @property
    def pid(self) -> int | None:
        """The child's process id; None before `start`."""
        return self.process.pid

    @property
    def exitcode(self) -> int | None:
        """The child's exit status, negative for a signal; None while it runs or has not been started."""
        return self.process.exitcode

    def start(self) -> None:
        """Start the child.

        Raises:
            OSError: there is no room for another process. Nothing is left of this one.
        """
        try:
            with self.pool_environment(), holding_parents_signals():
                self.process.start()
        except OSError:
            self.parent_conn.close()
            self._recorder = None
            raise
        finally:
            # The child has its own by now; with ours closed, its death is the end of the pipe.
            self.child_conn.close()
            self._close_slots()

    def forget(self) -> None:
        """Called in a child that was forked: the parent's ends, of its own pipes and of its siblings', are not its."""
        self.parent_conn.close()
        is_sibling = self.process.pid is not None  # this child's own start has not returned
        for page in (*self.metrics_pages, *self.loop_states):
            if is_sibling:
                page.discard()
            else:
                page.close()  # only the parent's own
        if is_sibling:
            self._recorder = None
        forget = getattr(self.process, "forget", None)
        if forget is not None:
            forget()

    def _close_slots(self) -> None:
        for slot in self.udp_slots or ():
            slot.close()

    def close(self) -> None:
        """Close the parent's resources of a child that has been joined, or was never started.

        The process object closes its own part when the last reference to it is gone.
        """
        self._recorder = None
        self._end_parts()
        if self._talking.acquire(blocking=False):  # else the last reference closes it
            try:
                self._talk = Talk.NOTHING
                self.parent_conn.close()
            finally:
                self._talking.release()

    def relieve(self) -> None:
        """Tell the child that others serve in its place, if that makes a difference to it."""
        if self.config.drain_delay and self.process.pid is not None:
            self._tell(RELIEVED)

    def terminate(self) -> None:
        """Tell the child to end gracefully; nothing if it has ended."""
        self.is_leaving = True
        self.on_leave()
        if self.process.pid is not None and self.process.exitcode is None:
            if sys.platform == "win32":
                self._signal(signal.CTRL_BREAK_EVENT)
            else:
                self._signal(signal.SIGTERM)
            logger.info("Terminated child process [%d]", self.process.pid)

    def hurry(self) -> None:
        """Tell the child, while it ends, not to wait for clients."""
        if sys.platform == "win32":
            # There is no second signal to send.
            self.kill()
        else:
            self._signal(signal.SIGINT)

    def _signal(self, sig: int) -> None:
        if self.process.pid is not None and self.process.exitcode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, sig)

    def kill(self) -> None:
        """End the child without a graceful shutdown."""
        self._was_killed = self.is_leaving = True
        self.process.kill()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the child has ended, at most `timeout` seconds; the first call says so in the log."""
        if not self._has_joined:
            logger.info("Waiting for child process [%d]", self.process.pid)
        self._has_joined = True
        self.process.join(timeout)
        if self.exitcode is not None:
            self.on_leave()

    def join(self) -> None:
        """Wait until the child has ended. A supervisor calls this once for each, when it has."""
        self.wait()

    def collect(self) -> None:
        """Call what upstream calls for a child that has died: `join`, and `kill` if a program has overridden it."""
        if overrides(self, "kill") and not self._was_killed:
            self.kill()
        self.join()

    # In the parent: questions and reports

    def _tell(self, message: bytes) -> None:
        """Send a message, unless the child has closed its end."""
        with contextlib.suppress(OSError), self._writing:
            self.parent_conn.send(message)

    @property
    def stage(self) -> Stage:
        """How far the child has come, as it has reported."""
        return self._stage

    @property
    def stage_since(self) -> float:
        """When that report came in (`time.monotonic()`)."""
        return self._stage_since

    @property
    def has_served(self) -> bool:
        """Whether the child has ever reported that it serves."""
        return self._has_served

    def ping(self, timeout: float = 5) -> bool:
        """Whether the child answers within `timeout` seconds."""
        return self._healthcheck(timeout) is not None

    def is_ready(self, timeout: float = 5) -> bool:
        """Whether the child serves; it is asked, and has `timeout` seconds to answer, unless it has reported so."""
        self.listen(time.monotonic())
        if self._stage in (Stage.SERVING, Stage.RETIRING):
            return self.process.is_alive()
        return self._healthcheck(timeout) is True

    def can_replace(self) -> bool:
        """Whether the child serves; if it does, a `wait_until_ready` that a program has overridden decides."""
        if not overrides(self, "wait_until_ready"):
            return self.is_ready(0)
        self.listen(time.monotonic())
        return self._stage in (Stage.SERVING, Stage.RETIRING) and self.wait_until_ready(
            self.config.timeout_worker_healthcheck, self.should_exit
        )

    def is_alive(self, timeout: float = 5) -> bool:
        """Whether the process exists and answers within `timeout` seconds."""
        return not self._was_killed and self.process.is_alive() and self.ping(timeout)

    def wait_until_ready(self, timeout: float, should_exit: threading.Event | None = None) -> bool:
        """Wait until the child serves; false when it has ended, `should_exit` is set or `timeout` seconds are over."""
        deadline = time.monotonic() + timeout
        while (remaining := deadline - time.monotonic()) > 0:
            if (should_exit is not None and should_exit.is_set()) or not self.process.is_alive():
                return False
            if self.is_ready(min(POLL_INTERVAL, remaining)):
                return True
            # An answer came at once and was no.
            wait([self.parent_conn, self.process.sentinel], min(POLL_INTERVAL, remaining))
        return False

    def _healthcheck(self, timeout: float) -> bool | None:
        """The answer to a question; None if there is none within `timeout` seconds (0 does not ask at all)."""
        if timeout <= 0:
            return None
        deadline = time.monotonic() + timeout
        with self._talking:
            self._take_reports(time.monotonic())
            if not self._send_question():
                return None
            while self._has_message(max(0.0, deadline - time.monotonic())):
                answer = self._take_one(time.monotonic())
                if answer is not None or self._talk is Talk.NOTHING:
                    return answer
        return None

    def is_silent(self, now: float) -> bool:
        """Whether the child has stopped answering; asks it again when that is due."""
        if self._health_at is not None:
            if not self._has_served or now < self._health_at:
                return False
            self._health_at = now + HEALTH_INTERVAL
            return not self.is_alive(timeout=self.config.timeout_worker_healthcheck) and self.exitcode is None
        if self._heartbeat.is_due(now):
            # Asked, too, by a `ping` on another thread; and a child that has closed its end will never answer.
            self._heartbeat.ask(now)
            if self._talking.acquire(blocking=False):
                try:
                    self._send_question()
                finally:
                    self._talking.release()
        if self._heartbeat.falls_in_doubt(now):
            self._pulse = 0 if self._recorder is None else self._recorder.pulse()
            self.take_stacks()  # those of another time
        return self._heartbeat.is_silent(now)

    @property
    def has_pulse(self) -> bool | None:
        """Whether the child's process runs although it is silent; None if that is not known."""
        return None if self._recorder is None or not self._pulse else self._recorder.pulse() != self._pulse

    def blockade(self) -> tuple[float, str] | None:
        """Seconds for which an event loop has been blocked, if longer than an answer may take, and stacks of that time.

        Said once each time; of several at a time the first has the stacks.
        """
        return self._untold.pop(0) if self._untold else None

    def _hear_of_blockades(self, times: tuple[float, ...]) -> None:
        """Ask for the stacks of lasting blockades; tell these at the child's next answer: the stacks are there by then.

        They were asked for before the question.
        """
        patience = self.config.timeout_worker_healthcheck
        stacks = self.take_stacks() if Blockade.NOTICED in self._blockades.values() else ""
        is_new = False
        for place, seconds in enumerate(times):
            blockade = self._blockades.get(place)
            if blockade is Blockade.NOTICED:
                # It may be over: it has lasted for at least as long as an answer may take.
                self._blockades[place] = Blockade.TOLD
                self._untold.append((max(seconds, patience), stacks))
                stacks = ""
            elif seconds >= patience and blockade is None:
                self._blockades[place] = Blockade.NOTICED
                is_new = True
            if seconds < patience:
                self._blockades.pop(place, None)
        if is_new:
            self.ask_for_stacks()

    def ask_for_stacks(self) -> None:
        """Have the child write down the stacks of its threads, by one that keeps the others from running."""
        self.take_stacks()  # those of another time
        self._tell(STACKS)

    def insist_on_stacks(self) -> bool:
        """Have the child write them down in a signal handler, unless it has; whether it may be writing.

        That reads the frames of threads that run, which can end the process, and cuts short whatever call it waits in.
        """
        # Before the first beat of its pulse the signal would kill it; a process that does not run handles none.
        if self._recorder is None or STACKS_SIGNAL is None or not self._recorder.pulse() or self.has_pulse is False:
            return False
        if self._recorder.has_stacks():
            return False
        self._written = self._recorder.size
        self._signal(STACKS_SIGNAL)
        return True

    def is_writing(self) -> bool:
        """Whether the child has written nothing since `insist_on_stacks`, or more since the last call."""
        if self._recorder is None:
            return False
        before, self._written = self._written, self._recorder.size
        return self._written != before or not self._recorder.has_stacks()

    def take_stacks(self) -> str:
        """Return the stacks that the child has written down since the last call."""
        return "" if self._recorder is None else self._recorder.take_stacks()

    def take_crash(self) -> str:
        """Return the stack that a fatal signal has written down; empty if none has ended this process.

        Processes that it has forked may have written theirs.
        """
        return "" if self._recorder is None or self.exitcode not in FATAL else self._recorder.take_crash()

    def excuse(self, seconds: float) -> None:
        """Not to count the last `seconds` as silence."""
        self._heartbeat.excuse(seconds)

    @property
    def deadline(self) -> float | None:
        """When to call `is_silent` next, unless the child reports something before."""
        if self._health_at is not None:
            return self._health_at if self._has_served else None
        return self._heartbeat.deadline

    def ask_for_requests(self) -> None:
        """Ask the child for its requests and tasks, unless it was asked and has not answered."""
        with self._asking:
            if not self._is_told.is_set():
                return
            self._is_told.clear()
        self._tell(REQUESTS)

    def requests(self, until: float) -> list[LoopListing] | None:
        """Return its answer as soon as that is here; None if it is not by then (`time.monotonic()`).

        A child that has ended does nothing.

        Called by another thread than the one that listens.
        """
        return self._listings if self._is_told.wait(max(0.0, until - time.monotonic())) else None

    def measure(self, order: Order, parts: Arrivals) -> None:
        """Have the child measure itself; its parts go to `parts`, from the thread that listens."""
        self._parts = parts
        self._tell(MEASURE + json.dumps(order).encode())
        if self._talk is Talk.NOTHING:
            parts.put((self.pid or 0, None))

    def stop_measuring(self) -> None:
        """Have the child send the last part of its measurement."""
        self._tell(MEASURE)

    def listen(self, now: float) -> None:
        """Read the child's reports, unless a `ping` on another thread is about to."""
        if self._talking.acquire(blocking=False):
            try:
                self._take_reports(now)
            finally:
                self._talking.release()

    def memory(self) -> int | None:
        """Bytes of the child that are in memory; None if that cannot be found out."""
        return None if self.process.pid is None else resident_memory(self.process.pid)

    def connections(self) -> int | None:
        """Connections of the child, open now or when it ended; None without the native core and without metrics."""
        numbers = [number for place in self.load_places if (number := place.connections()) is not None]
        numbers = numbers or [
            page.words[CONNECTIONS_OPENED] - page.words[CONNECTIONS_CLOSED] for page in self.metrics_pages
        ]
        return sum(numbers) if numbers else None

    @property
    def sources(self) -> list[Any]:
        """The end of the process, and the pipe as long as something can come through it."""
        is_closed = self._talk is Talk.NOTHING
        return [self.process.sentinel] if is_closed else [self.process.sentinel, self.parent_conn]

    def _take_reports(self, now: float) -> None:
        while self._talk is not Talk.NOTHING and self._has_message(0.0):
            self._take_one(now)

    def _has_message(self, seconds: float) -> bool:
        """Whether there is something to receive, or is within `seconds`."""
        try:
            return self.parent_conn.poll(seconds)
        except OSError:  # the pipe is broken, or closed here
            self._hear_no_more()
            return False

    def _take_one(self, now: float) -> bool | None:
        """Receive one message: an answer is returned, anything else is remembered."""
        try:
            message = self.parent_conn.recv()
        except (EOFError, OSError):
            self._hear_no_more()
            return None
        if message is not False:
            # Whatever is said from the first sign of serving on is a sign of life.
            self._heartbeat.hear(now)
        if isinstance(message, bool):
            self._talk = Talk.REPORTS
            return message
        if isinstance(message, tuple):
            self._hear_of_blockades(message)
        elif message == b"":
            self._listings, self._pieces = json.loads(b"".join(self._pieces)), []
            self._is_told.set()
        elif isinstance(message, bytes):
            self._pieces.append(message)
        elif isinstance(message, str):
            self._take_piece(message)
        else:
            self._stage = Stage(message)
            self._stage_since = now
            self._has_served = self._has_served or self._stage is Stage.SERVING
        return None

    def _send_question(self) -> bool:
        """Ask whether the child serves, unless an answer is awaited; false if none can come."""
        if self._talk is Talk.REPORTS:
            try:
                with self._writing:
                    self.parent_conn.send(b"ping")
                self._talk = Talk.ANSWER
            except OSError:
                self._hear_no_more()
        return self._talk is not Talk.NOTHING

    def _hear_no_more(self) -> None:
        """Stop listening: the child's end is closed, so its answers never come, and waiting for them ends."""
        self._talk = Talk.NOTHING
        self._listings = []
        self._is_told.set()
        self._end_parts()

    def _end_parts(self) -> None:
        if self._parts is not None:
            self._parts.put((self.pid or 0, None))

    def _take_piece(self, piece: str) -> None:
        """Take a piece of a part of a measurement; an empty one ends it."""
        if piece:
            self._part.append(piece)
            return
        text, self._part = "".join(self._part), []
        if self._parts is not None:
            self._parts.put((self.pid or 0, text))
