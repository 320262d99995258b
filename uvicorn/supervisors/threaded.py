"""Several event loops in one process: a `Server` in a thread for each, seen from outside as one.

The loops share the application, or each builds its own (`factory`); the rest is a loop's own: its lifespan and its
state, its connections, its limits. They start one after another and end side by side. Signals are the main thread's,
which waits and passes them on.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from types import FrameType
from typing import TYPE_CHECKING, Any

from uvicorn._compat import has_gil
from uvicorn.config import Config
from uvicorn.config.errors import STARTUP_FAILURE, blaming
from uvicorn.listening.connection_limit import ConnectionLimit
from uvicorn.listening.loads import LoadTable, WorkerLoad
from uvicorn.metrics.loop_state import LOOP, LoopState
from uvicorn.metrics.page import Page
from uvicorn.metrics.route_table import Shape
from uvicorn.observing.debugging import Observer, OnSignal, listings_of, shown, shown_stalls
from uvicorn.observing.exposition import Exposition, MetricsAggregator, bind
from uvicorn.observing.measurement import text_of
from uvicorn.observing.on_demand import measure_here
from uvicorn.server import HANDLED_SIGNALS, Server
from uvicorn.serving.drain import ENDING, Stage
from uvicorn.serving.init_signals import server_has_ended
from uvicorn.serving.interruption import BLOCKED, LAST_WAIT, end_after_signals, end_in
from uvicorn.serving.kill_deadlines import FORCED_WAIT
from uvicorn.serving.turn_taking import TurnTaking
from uvicorn.supervisors.health import LoopProbe
from uvicorn.supervisors.signals import Wakeup

if TYPE_CHECKING:
    from uvicorn.listening.udp_slots import UDPSlot, UDPSlots
    from uvicorn.observing.probe import Probe

logger = logging.getLogger("uvicorn.error")


class ThreadedServer:
    """Serves one configuration on `config.threads` event loops.

    Attributes:
        servers: one for each loop, once it runs.
        started: whether all of them serve.
        on_reload: called with the number of a loop and the argument of its server's `on_reload`.
        on_stage: called with each `Stage` that all have reached, and with RETIRING when the first has.
        has_successor: as of a `Server`.
        clean_up: called when all have ended, or before a forced shutdown ends the process because a loop is stuck.
        load_places: where each loop tells the others how many connections it has.
        metrics_pages: where each loop counts, if a supervisor serves the metrics.
        loop_states: the state of each loop, if a supervisor answers probes.
        udp_slots: those for HTTP/3 of the loops, if a supervisor has opened them; some may have none.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.servers: list[Server] = []
        self.started = False
        self.on_stage: Callable[[Stage], None] = lambda stage: None
        self.on_reload: Callable[[int, bool], None] = lambda number, begins: None
        self.has_successor = False
        self.clean_up: Callable[[], None] = lambda: None
        self.load_places: list[WorkerLoad] = []
        self.metrics_pages: list[Page] = []
        self.loop_states: list[LoopState] = []
        self.udp_slots: Sequence[UDPSlot] | None = None
        self._own_slots: UDPSlots | None = None
        self._stage = Stage.STARTING
        self._reached: list[Stage] = []
        self._reporting = threading.Lock()
        self._wakeup = Wakeup()
        self._captured: list[int] = []
        self._told_at = 0.0  # by the first of them
        self._is_forced = False
        self._errors: list[BaseException] = []
        self._over = 0
        self._connection_limit: ConnectionLimit | None = None
        self._probe: Probe | None = None
        if config.limits_connections:
            self._connection_limit = ConnectionLimit(config.limit_connections, config.limit_connections_per_address)

    @property
    def loops(self) -> list[asyncio.AbstractEventLoop]:
        """The event loops that serve."""
        return [loop for server in list(self.servers) if (loop := server.loop) is not None]

    @property
    def observers(self) -> list[Observer]:
        """Those that know what the event loops are doing, with `debug_requests` or `stall_threshold`."""
        return [observer for server in list(self.servers) for observer in server.observers]

    def relieve(self) -> None:
        """Tell all that others serve in their place."""
        for server in list(self.servers):
            server.relieve()

    # The whole of it

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve `sockets`, or the configured address, and return when all loops have ended.

        Raises:
            SystemExit: the application could not be imported, or the address not be bound.
            KeyboardInterrupt: SIGINT has ended them.
        """
        self._probe = self._open_probe()
        try:
            self._run(sockets)
        finally:
            if self._probe is not None:
                self._probe.close()
        self.clean_up()  # the signal may end the process
        self._raise()

    def _run(self, sockets: list[socket.socket] | None) -> None:
        self.config.import_app()  # before there are threads, so that an error in it is logged once
        sockets = self.config.bind_sockets() if sockets is None else sockets
        for sock in sockets:
            # The duplicates share their flags with the original. If it blocked, a loop would wait in `accept` for a
            # connection that another has taken.
            sock.setblocking(False)
        table = None if self.load_places else LoadTable.make()
        if self.config.http3 and self.udp_slots is None:
            with blaming("http3=True", status=STARTUP_FAILURE):
                self._own_slots = self.config.open_udp_slots(sockets, self.config.threads)
                self.udp_slots = self._own_slots.take(self.config.threads)
        exposition = self._expose()
        self._wakeup.open()
        threads: list[threading.Thread] = []
        try:
            with self._signals():
                for number in range(self.config.threads):
                    if self.must_end:
                        break
                    threads.append(self._start(number, sockets, table))
                for sock in sockets:
                    sock.close()
                self._wait_for(threads)
        finally:
            self._wakeup.close()
            if self._own_slots is not None:
                self._own_slots.close()
            if exposition is not None:
                exposition.close()

    def _wait_for(self, threads: list[threading.Thread]) -> None:
        """Wait until all loops have ended; when that is forced or overdue, no longer for any that is blocked."""
        while self._over < len(threads) and not self._is_forced and (left := self._time_left()) > 0:
            end_in(None if left == float("inf") else left + LAST_WAIT)
            self._sleep(None if left == float("inf") else left)
        forced_until = float("inf")
        probes = [LoopProbe(loop) for loop in self.loops]
        while self._over < len(threads):
            end_in(LAST_WAIT)
            if self._is_forced:
                forced_until = min(forced_until, time.monotonic() + FORCED_WAIT)
            self._sleep(BLOCKED / 10)
            blocked = max((probe.look() for probe in probes), default=BLOCKED)
            if blocked >= BLOCKED or time.monotonic() >= forced_until:
                self._end_process("these event loops are blocked", threads)
            if signal.SIGTERM in self._captured and self._have_served and self._time_left() <= 0:
                # This signal would have ended a single event loop at once.
                self._end_process("the application has threads or tasks in these event loops that do not end", threads)
        for thread in threads:
            thread.join()

    def _time_left(self) -> float:
        """Seconds until every loop has had the time of a graceful shutdown."""
        if not self._captured:
            return float("inf")
        return max(server.end_deadline(self._told_at) for server in self.servers) - time.monotonic()

    @property
    def _have_served(self) -> bool:
        """Whether all servers have ended, their threads maybe not: those of executors, which are waited for."""
        return all(server.stage is Stage.ENDED for server in self.servers)

    def _end_process(self, why: str, threads: list[threading.Thread]) -> None:
        """End the process without its threads: a thread that does not check a flag cannot be ended from outside."""
        names = ", ".join(thread.name for thread in threads if thread.is_alive())
        logger.error("Forced shutdown, but %s: %s", why, names)
        self.clean_up()
        logging.shutdown()
        if signal.SIGTERM in self._captured:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)
        os._exit(0 if self.started else STARTUP_FAILURE)

    @property
    def must_end(self) -> bool:
        """Whether something has ended, or is to."""
        return bool(self._captured) or self._over > 0

    def _start(self, number: int, sockets: list[socket.socket], table: LoadTable | None) -> threading.Thread:
        """Start one loop, and wait until it serves."""
        server = Server(self._config_of_loop())
        server.has_successor = self.has_successor
        server.connection_limit = self._connection_limit
        if self.load_places:
            server.load_place = next(iter(self.load_places[number:]), None)
        elif table is not None:
            server.load_place = table.take()
        if self.metrics_pages:
            server.metrics_page = self.metrics_pages[number]
        if self.loop_states:
            server.loop_state = self.loop_states[number]
        if self.udp_slots is not None:
            server.udp_slots = self.udp_slots[number : number + 1]
        self._reached.append(Stage.STARTING)
        turns = TurnTaking()

        def on_stage(stage: Stage) -> None:
            if stage is Stage.SERVING and has_gil():
                turns.start(asyncio.get_running_loop())
            elif stage >= Stage.DONE:
                turns.stop()
            self._note(number, stage)

        server.on_stage = on_stage
        server.on_reload = lambda begins: self.on_reload(number, begins)
        self.servers.append(server)
        own = [sock.dup() for sock in sockets]
        thread = threading.Thread(target=self._serve, args=(server, own), name=f"uvicorn-loop-{number + 1}")
        thread.start()
        while not (server.started or self.must_end):
            self._sleep()
        if self.must_end:
            server.should_exit = True  # it did not exist when the others were ended
        return thread

    def _config_of_loop(self) -> Config:
        """Not loaded yet; limits that are counted by each loop are its part of the process's."""
        config = copy.copy(self.config)
        for name in ("limit_concurrency", "limit_max_requests", "limit_active_requests", "limit_queue"):
            limit = getattr(config, name)
            if isinstance(limit, int):
                setattr(config, name, -(-limit // config.threads))
        # This object serves the metrics and answers probes, for all of them.
        config.metrics = config.probe = None
        return config

    def _serve(self, server: Server, sockets: list[socket.socket]) -> None:
        try:
            server.run(sockets)
        except BaseException as exc:
            self._errors.append(exc)
        finally:
            for sock in sockets:
                sock.close()
            with self._reporting:
                self._over += 1
            # One that has ended by itself ends the others: its connections would be missing here.
            self.stop()
            self._wakeup.set()

    def stop(self) -> None:
        """Tell all loops to end; from any thread."""
        for server in list(self.servers):
            server.should_exit = True

    def _raise(self) -> None:
        errors = [exc for exc in self._errors if not isinstance(exc, KeyboardInterrupt)]
        if errors:
            raise errors[0]
        with contextlib.ExitStack() as stack:  # last in, first out; each is raised even if one raises an exception
            for captured in self._captured:
                stack.callback(signal.raise_signal, captured)

    def _sleep(self, seconds: float | None = None) -> None:
        wait(self._wakeup.sources, seconds)
        self._wakeup.clear()

    # Stages

    def _note(self, number: int, stage: Stage) -> None:
        """Called in the thread of a loop that has reached `stage`."""
        if self._own_slots is not None and self.udp_slots is not None:
            for slot in self.udp_slots[number : number + 1]:
                if stage is Stage.SERVING:
                    self._own_slots.serve(slot)
                elif stage > Stage.RETIRING:
                    self._own_slots.leave(slot)
        with self._reporting:
            self._reached[number] = stage
            if stage is Stage.SERVING:
                self.started = len(self._reached) == self.config.threads and min(self._reached) >= Stage.SERVING
                self._wakeup.set()
                if not self.started:
                    return
            least = min(self._reached)
            if least is Stage.SERVING and Stage.RETIRING in self._reached:
                least = Stage.RETIRING
            if least > self._stage and len(self._reached) == self.config.threads:
                self._stage = least
                if self._probe is not None:
                    self._probe.start(least)
                self.on_stage(least)

    # Signals

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous: dict[int, Any] = {number: signal.signal(number, self.handle_exit) for number in HANDLED_SIGNALS}
        if self.config.ssl_reload is not None and sys.platform != "win32":
            previous[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._handle_hangup)
        timeout = self.config.graceful_timeout
        if timeout is not None:
            grace = self.config.drain_delay + timeout + ENDING + LAST_WAIT
            end_after_signals(grace, signal.SIGTERM, signal.SIGINT)
        wakeup = signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        on_signal = OnSignal(lambda: self.observers)
        if self.config.debug_requests:
            on_signal.start()
        try:
            yield
        finally:
            on_signal.stop()
            signal.set_wakeup_fd(wakeup)
            end_in(None)  # a timer must not meet other handlers
            for number, handler in previous.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
            end_in(None)  # signals may have come meanwhile
            server_has_ended()

    def handle_exit(self, number: int, frame: FrameType | None) -> None:
        """End all loops; a SIGINT when they are ending already forces the end."""
        self._is_forced = self._is_forced or (bool(self._captured) and number == signal.SIGINT)
        if not self._captured:
            self._told_at = time.monotonic()
        self._captured.append(number)
        for server in list(self.servers):
            if self._is_forced:
                server.force_exit = True
            server.should_exit = True
        self._wakeup.set()

    def _handle_hangup(self, number: int, frame: FrameType | None) -> None:
        for server in list(self.servers):
            server.renew_certificates()

    # Metrics

    def _expose(self) -> Exposition | None:
        address = self.config.metrics
        if address is None or self.metrics_pages:
            return None
        aggregator = MetricsAggregator(Shape.of(self.config))
        text = functools.partial(text_of, aggregator, self.config.certificate_names)
        with blaming(f"metrics={address!r}", status=STARTUP_FAILURE):
            exposition = Exposition(bind(address), text)
        exposition.hand_on({"": aggregator})
        if self.config.debug_requests:
            exposition.tell_requests(lambda as_json: shown(listings_of(self.observers), as_json))
            exposition.measure_on_demand(measure_here(lambda: self.observers))
        if self.config.longest_turn:
            exposition.tell_stalls(lambda as_json: shown_stalls(listings_of(self.observers), as_json))
        self.metrics_pages = [aggregator.page(shared=False) for _ in range(self.config.threads)]
        exposition.start()
        return exposition

    # Probes

    def _open_probe(self) -> Probe | None:
        """Answer probes from now on, unless a supervisor does."""
        address = self.config.probe
        is_own = address is not None and not self.loop_states
        if is_own:
            self.loop_states = [LoopState.make() for _ in range(self.config.threads)]
        for number, state in enumerate(self.loop_states, 1):
            state.words[LOOP] = number
        if address is None or not is_own:
            return None
        from uvicorn.observing.probe import Probe

        with blaming(f"probe={address!r}", status=STARTUP_FAILURE):
            probe = Probe(address, self.config.probe_lateness, self.loop_states)
        probe.start()
        return probe
