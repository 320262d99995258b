"""Several workers: a pool of processes, driven by signals."""

from __future__ import annotations

import functools
import logging
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from queue import SimpleQueue
from socket import socket
from typing import TYPE_CHECKING, Any

from uvicorn._subprocess import get_subprocess
from uvicorn.config import Config
from uvicorn.config.errors import STARTUP_FAILURE, blaming
from uvicorn.hooks import original, overrides
from uvicorn.listening import handover
from uvicorn.listening.loads import LoadTable
from uvicorn.logging.ansi import style
from uvicorn.metrics.loop_state import LoopState
from uvicorn.metrics.memory import resident_memory
from uvicorn.metrics.stalls import StallTotals, add_up
from uvicorn.server import Server
from uvicorn.serving.drain import Stage
from uvicorn.serving.init_signals import is_init
from uvicorn.serving.kill_deadlines import GracePeriods
from uvicorn.supervisors.orphans import collect_orphans
from uvicorn.supervisors.recycle import RecycleLimits
from uvicorn.supervisors.signals import SIGNALS, Handlers, SignalQueue, Wakeup, WakingEvent
from uvicorn.supervisors.start import WorkerStart
from uvicorn.supervisors.worker import ProcessWorker, make_server
from uvicorn.supervisors.worker_set import WorkerSet
from uvicorn.worker_events import EventKind, WorkerEvents

__all__ = ["SIGNALS", "Multiprocess", "Process", "Server", "get_subprocess"]

if TYPE_CHECKING:
    from uvicorn.listening.systemd import Share
    from uvicorn.listening.udp_slots import Occupancy
    from uvicorn.observing.debugging import LoopListing
    from uvicorn.observing.exposition import Exposition, MetricsAggregator, WorkerFigures
    from uvicorn.observing.on_demand import Arrivals
    from uvicorn.observing.orders import Answer, Order
    from uvicorn.observing.probe import Probe
    from uvicorn.supervisors.threaded import ThreadedServer
    from uvicorn.supervisors.upgrade import Upgrades

logger = logging.getLogger("uvicorn.error")


class Process(ProcessWorker):
    """A worker that is built from this module's names, so that programs can replace them as with upstream."""

    def _make_process(self, sockets: list[socket]) -> SpawnProcess:
        return get_subprocess(self.config, self.target, sockets)

    def _make_server(self) -> Server | ThreadedServer:
        return Server(self.config) if self.config.threads == 1 else make_server(self.config)


def _changing(name: str) -> Any:
    """Return the method of a list that has this name, and tells the pool what it has changed."""
    method = getattr(list, name)

    @functools.wraps(method)
    def change(self: _Processes, *args: Any, **kwargs: Any) -> Any:
        before = list(self)
        result = method(self, *args, **kwargs)
        self._pool.exchange([one for one in before if one not in self], [one for one in self if one not in before])
        return result

    return change


class _Processes(list[Process]):
    """The workers in charge. Workers that a program puts in are watched and ended like any, removed ones are not."""

    def __init__(self, pool: WorkerSet[Process]) -> None:
        super().__init__(pool.workers)
        self._pool = pool

    append, extend, insert = map(_changing, ("append", "extend", "insert"))
    remove, pop, clear = map(_changing, ("remove", "pop", "clear"))
    __setitem__, __delitem__ = map(_changing, ("__setitem__", "__delitem__"))


@original
class Multiprocess:
    """Keeps `config.workers` processes serving the same sockets until a signal or `should_exit` ends it.

    It sleeps until a worker ends or reports something, a signal arrives, or a deadline has come. Signals are queued by
    their handlers and handled in turn; appending to `signal_queue`, from any thread, does the same as a signal.

    The parent never imports the application, unless that is to be loaded before (`preload`).

    Attributes:
        aggregator: adds up the workers' metrics; None without the setting `metrics`.
        events: counts of worker events.
        refuse: closes the listening sockets in this process too, once the workers are shutting down and `drain_delay`
            has passed; otherwise new clients wait in the backlog until the last worker has ended. Does nothing by
            default: the sockets belong to the caller.
        pool_environment: context manager entered while a process starts.
        notifier: notifies the service manager of these workers; None without one.
        upgrades: starts a successor of this process at SIGUSR2, driven by the parent of several pools if there is one;
            None where a program has made this object.
        is_pool: whether this is one of several pools, whose parent serves metrics and probes, starts successors and
            follows predecessors.
    """

    def __init__(self, config: Config, sockets: list[socket]) -> None:
        self.config = config
        self.sockets = sockets
        self.refuse: Callable[[], None] = lambda: None
        self.pool_environment: Callable[[], AbstractContextManager[None]] = nullcontext
        self.notifier: Share | None = None
        self.upgrades: Upgrades | None = None
        self.is_pool = False
        self._wakeup = Wakeup()
        self.should_exit: threading.Event = WakingEvent(self._wakeup)
        self.signal_queue: list[int] = SignalQueue(self._wakeup)
        # Held while the pool is used: `restart_all` and others may be called while `run` runs in another thread.
        self._lock = threading.RLock()
        grace, ready_timeout = GracePeriods.of(config), config.worker_ready_timeout
        self.events = WorkerEvents(config.on_worker_event)
        self._refuse_at: float | None = None
        self._is_relieved = False  # a successor is in charge
        self._loads: LoadTable | None = None  # opened with the first worker
        self._exposition: Exposition | None = None
        self._probe: Probe | None = None
        self._is_writing = threading.Lock()
        self._start = WorkerStart(config)
        self.aggregator = None if config.metrics is None else _new_aggregator(config)
        self._udp_slots = config.open_udp_slots(sockets, config.workers * config.threads) if config.http3 else None
        self._placed: list[Process] = []
        self._states_made = 0
        self._pool = WorkerSet(
            self._make_worker,
            handover.current.workers_of(config.workers),
            grace,
            ready_timeout,
            recycling=lambda: RecycleLimits.of(config),
            crash_limit=config.limit_worker_crashes,
            events=self.events,
        )

    @property
    def processes(self) -> list[Process]:
        """The workers in charge, the newest last. Programs put in those that they have started, and take some out."""
        return _Processes(self._pool)

    @property
    def processes_num(self) -> int:
        """How many workers there are to be."""
        return self._pool.size

    def _make_worker(self) -> Process:
        worker = Process(self.config, self.sockets)
        if self._start.is_fork():
            worker.fork(self._leave_to_child)
        self._loads = self._loads or LoadTable.make()
        if self._loads is not None:
            places = [self._loads.take() for _ in range(self.config.threads)]
            worker.load_places = [place for place in places if place is not None]
        if self.aggregator is not None:
            worker.metrics_pages = [self.aggregator.page(shared=True) for _ in range(self.config.threads)]
        if self.config.probe is not None:
            self._states_made += 1
            name = f"uvicorn-loops-{os.getpid()}-{id(self):x}-{self._states_made}"
            worker.loop_states = [LoopState.make(f"{name}-{number}") for number in range(self.config.threads)]
        if self._udp_slots is not None:
            worker.udp_slots = self._udp_slots.take(self.config.threads)
            worker.on_leave = self._steer
        worker.pool_environment = self.pool_environment
        worker.should_exit = self.should_exit
        self._placed.append(worker)
        return worker

    def _leave_to_child(self) -> None:
        """Close the parent's own resources in a forked child."""
        self._wakeup.close()
        handover.current.forget()
        if self.upgrades is not None:
            self.upgrades.forget()
        for server in (self._exposition, self._probe):
            if server is not None:
                server.forget()
        for worker in self._placed:
            worker.forget()
        if self._udp_slots is not None:
            self._udp_slots.forget()

    def _steer(self) -> None:
        """Have HTTP/3 connections reach the workers that serve them, new ones those that accept."""
        if self._udp_slots is None:
            return
        self._udp_slots.is_ending = self.should_exit.is_set()
        for worker in self._placed:
            for slot in worker.udp_slots or ():
                self._udp_slots.enter(slot.number, _occupancy(worker))
        self._udp_slots.look()
        self._udp_slots.steer()

    def _take_places_back(self) -> None:
        """Take back the load places of workers that have ended or never started; their counts stay.

        Otherwise other workers would leave connections to them. The pool comes first: it reads there how many
        connections a worker had.
        """
        for worker in [worker for worker in self._placed if self._pool.is_done_with(worker)]:
            self._placed.remove(worker)
            if not self._pool.is_draining:  # else it is still looked at
                worker.close()
            if self._loads is not None:
                for place in worker.load_places:
                    self._loads.give_back(place)
            if self.aggregator is not None:
                for page in worker.metrics_pages:
                    self.aggregator.retire(page)
            for state in worker.loop_states:
                state.close()
            if self._udp_slots is not None:
                for slot in worker.udp_slots or ():
                    self._udp_slots.give_back(slot)

    # Life

    def run(self) -> None:
        """Start the workers, watch over them, and return when the last one has ended.

        Raises:
            SystemExit: none of the first workers could start.
            RuntimeError: workers are to be forked, and there is a reason against that.
        """
        self._start.prepare()
        self._exposition = self._expose()
        self._probe = self._open_probe()
        if not self.is_pool:
            handover.current.drop_rest()  # before workers are forked, which would keep them open
        self._wakeup.open()
        handlers = Handlers(self.signal_queue.append, self._wakeup)
        self._log("Started parent process [%d]")
        try:
            self.init_processes()
            self.handle_signals()  # queued by others before there was anything to wake
            while not self.should_exit.is_set():
                self._sleep()
                self.handle_signals()
                self.keep_subprocess_alive()
                self._notify()
                self._look_after_upgrade()
                if self.config.ticket_secret is not None:
                    self.config.ticket_secret.advance()  # an expired key must not stay in memory
        finally:
            self._stop()
            handlers.restore()
            self._wakeup.close()
            self._loads = None
            for server in (self._exposition, self._probe, self._udp_slots):
                if server is not None:
                    server.close()
        self._log("Stopping parent process [%d]")
        if self._pool.failed:
            sys.exit(STARTUP_FAILURE)

    def _notify(self) -> None:
        if self.notifier is not None:
            if self.is_serving and not self._is_upgrading:
                self.notifier.ready()
            self.notifier.beat_if_due()

    # Upgrade

    @property
    def _is_upgrading(self) -> bool:
        return self.upgrades is not None and self.upgrades.is_under_way

    def _look_after_upgrade(self) -> None:
        """Move on the upgrade by a successor, and the one by which this process succeeds another."""
        if self.is_pool:
            return
        follow_predecessor(self._probe, lambda: self.is_serving)
        if self.upgrades is not None and self.upgrades.look():
            self.relieve()

    @property
    def _own_upgrades(self) -> Upgrades | None:
        """Those that this object drives: of a pool the parent does."""
        return None if self.is_pool else self.upgrades

    @property
    def is_serving(self) -> bool:
        """Whether all workers serve, and none is being replaced."""
        with self._lock:
            return self._pool.is_serving

    def relieve(self) -> None:
        """End because a successor is in charge; from any thread."""
        self._is_relieved = True
        self.should_exit.set()

    def keep(self, size: int) -> None:
        """Start `size` workers, in place of the number that the setting has; before `run`."""
        self._pool.size = size

    def workers_for_successor(self) -> tuple[int, int]:
        """How many workers were set, and how many there are to be since signals have changed that."""
        return self.config.workers, self._pool.size

    def handle_usr2(self) -> None:
        """Start a process that runs the same command and takes over."""
        if self._own_upgrades is None:
            _note_unhandled("USR2")
        else:
            self._own_upgrades.request("SIGUSR2")

    def _expose(self) -> Exposition | None:
        """Serve the workers' metrics, with the setting `metrics`.

        Raises:
            OSError: the address for it cannot be bound.
        """
        if self.aggregator is None or self.config.metrics is None or self.is_pool:
            return None
        from uvicorn.observing.exposition import Exposition, bind

        with blaming(f"metrics={self.config.metrics!r}", status=STARTUP_FAILURE):
            exposition = Exposition(bind(self.config.metrics), self.metrics_text)
        exposition.hand_on({"": self.aggregator})
        if self.config.debug_requests:
            exposition.tell_requests(self.requests_text)
            exposition.measure_on_demand(lambda order, is_over: measurement_of([self], order, is_over))
        if self.config.longest_turn:
            exposition.tell_stalls(lambda as_json: stalls_of([self], as_json))
        exposition.start()
        return exposition

    def _open_probe(self) -> Probe | None:
        """Answer probes for the workers, with the setting `probe`.

        Raises:
            OSError: the address for it cannot be bound.
        """
        address = self.config.probe
        if address is None or self.is_pool:
            return None
        from uvicorn.observing.probe import Probe, readiness

        lateness = self.config.probe_lateness
        with blaming(f"probe={address!r}", status=STARTUP_FAILURE):
            probe = Probe(address, lateness, None, lambda: readiness(self.states(), lateness))
        probe.start()
        return probe

    def states(self) -> list[LoopState]:
        """The states of the event loops of all workers, with the setting `probe`.

        Without the lock: a probe is answered while workers start.
        """
        return [state for worker in list(self._placed) for state in worker.loop_states]

    def metrics_text(self, is_open: bool = False) -> str:
        """The counts of the workers in Prometheus' format, or OpenMetrics; empty without the setting `metrics`."""
        if self.aggregator is None:
            return ""
        return metrics_of([self], is_open)

    def figures(self) -> tuple[list[int], WorkerFigures]:
        """Return the process ids of the workers, and their figures."""
        from uvicorn.observing.exposition import Lost, WorkerFigures

        with self._lock:
            running = [process.pid for process in self._pool.everyone if process.exitcode is None]
            events = dict(self.events.counts)
        sizes = {pid: resident_memory(pid) for pid in running if pid is not None}
        resident = {pid: size for pid, size in sizes.items() if size is not None}
        totals = [] if self.aggregator is None else self.aggregator.totals()
        ends = {} if self.aggregator is None else self.aggregator.certificates(self.config.certificate_names)
        lost = Lost() if self.aggregator is None else self.aggregator.lost
        routes = None if self.aggregator is None else self.aggregator.routes()
        stalls = {} if self.aggregator is None else self.aggregator.stalls()
        return totals, WorkerFigures(resident, events, ends, lost, routes, stalls)

    def requests_text(self, as_json: bool) -> str:
        """The workers' requests and tasks, as a page or as JSON; not called by the thread that runs this."""
        return requests_of([self], as_json)

    def _log(self, message: str) -> None:
        color_message = message.replace("%d", style("%d", fg="cyan", bold=True))
        logger.info(message, os.getpid(), extra={"color_message": color_message})

    def _sleep(self) -> None:
        """Wait for a worker, a signal, another thread or the next deadline."""
        with self._lock:
            due, sources = self._pool.next_deadline(), self._pool.sources
        beat = None if self.notifier is None else self.notifier.due
        upgrade = None if self._own_upgrades is None else self._own_upgrades.next_deadline()
        slots = None if self._udp_slots is None else self._udp_slots.due
        deadline = min(
            (when for when in (due, beat, upgrade, slots, self._refuse_at) if when is not None), default=None
        )
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not self.should_exit.is_set() and not self.is_pool:
            sources = [*sources, *handover.current.sources, *(self.upgrades.sources if self.upgrades else ())]
        if wait([*self._wakeup.sources, *sources], timeout):
            self._wakeup.clear()

    def _stop(self) -> None:
        """End the workers, each in its time; a second SIGINT makes them hurry."""
        if self._own_upgrades is not None:
            self._own_upgrades.abort()
        if self.notifier is not None:
            self.notifier.stopping()
        if self._is_relieved:
            for process in self._pool.everyone:
                process.relieve()
        self.terminate_all()
        with self._lock:
            if not self._pool.is_draining:
                self._pool.drain(tell=False)  # a `terminate_all` of the program's does that its own way
        self._refuse_at = time.monotonic() + (0.0 if self._is_relieved else self.config.drain_delay)
        everyone = self._pool.everyone
        for process in everyone:
            process.wait(0)  # says that it is waited for
            while process.exitcode is None:
                self._refuse_when_due()
                self._sleep()
                self._hurry_on_signal()
                self._watch()
        self._watch()  # the last one may have ended between two looks
        self.join_all()
        for process in everyone:
            if process not in self.processes:
                process.join()
        if self._refuse_at is not None:
            self._refuse_at = 0.0
            self._refuse_when_due()
        if self._own_upgrades is not None:
            self._own_upgrades.join()

    def _refuse_when_due(self) -> None:
        if self._refuse_at is not None and time.monotonic() >= self._refuse_at:
            self._refuse_at = None
            self.refuse()

    def _hurry_on_signal(self) -> None:
        while self.signal_queue:
            if self.signal_queue.pop(0) == signal.SIGINT:
                if self._refuse_at is not None:
                    self._refuse_at = 0.0
                with self._lock:
                    self._pool.hurry()

    def _watch(self) -> None:
        with self._lock:
            self._pool.watch()
            self._take_places_back()
            self._steer()
            # An application that was imported here may have started processes that it waits for itself.
            if is_init() and not self.config.preload:
                collect_orphans()

    # Workers

    def init_processes(self) -> None:
        """Start the workers, unless a signal ends that: to start many takes longer than a shutdown may."""
        with self._lock:
            self._pool.start(self._is_to_end)
        if self._pool.failed:
            self.should_exit.set()

    def _is_to_end(self) -> bool:
        ends = (getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGBREAK"))
        return self.should_exit.is_set() or not set(ends).isdisjoint(self.signal_queue)

    def terminate_all(self) -> None:
        """Tell all workers to end gracefully."""
        with self._lock:
            self._pool.drain()

    def join_all(self) -> None:
        """Wait until all workers have ended."""
        for process in list(self.processes):
            process.join()

    def restart_all(self) -> None:
        """Replace all workers, each once its successor serves; returns when the old ones have ended."""
        with self._lock:
            self._pool.replace_all()
        while not self._pool.is_settled and not self._is_to_end():
            self._watch()
            self._notify()
            self._sleep()

    def keep_subprocess_alive(self) -> None:
        """Replace the workers that have ended or stopped answering; move on whatever else is under way."""
        if self.should_exit.is_set():
            return
        self._watch()
        if self._pool.failed:
            self.should_exit.set()

    # Signals

    def handle_signals(self) -> None:
        """Act on the signals received so far."""
        while self.signal_queue:
            number = self.signal_queue.pop(0)
            name = SIGNALS.get(number, str(number))
            handler: Callable[[], None] | None = getattr(self, f"handle_{name.lower()}", None)
            if handler is not None:
                handler()
            else:
                _note_unhandled(name)

    def handle_int(self) -> None:
        """End."""
        logger.info("Received SIGINT, exiting.")
        self.should_exit.set()

    def handle_term(self) -> None:
        """End."""
        logger.info("Received SIGTERM, exiting.")
        self.should_exit.set()

    def handle_break(self) -> None:
        """End (Ctrl+Break on Windows)."""
        logger.info("Received SIGBREAK, exiting.")
        self.should_exit.set()

    def handle_hup(self) -> None:
        """Replace all workers; signals and other workers are looked after meanwhile."""
        logger.info("Received SIGHUP, restarting processes.")
        if self.notifier is not None:
            self.notifier.reloading()
        if overrides(self, "restart_all"):
            self.restart_all()  # what a program has made of it returns when the old ones have ended
            return
        with self._lock:
            self._pool.replace_all()

    def handle_usr1(self) -> None:
        """Log the workers' requests and tasks, with the setting `debug_requests`."""
        if not self.config.debug_requests:
            _note_unhandled("USR1")
            return
        # The answers come to the thread that handles signals. One of them waits for those, however many signals come.
        if self._is_writing.acquire(blocking=False):
            threading.Thread(target=self._write_requests, name="uvicorn-requests", daemon=True).start()

    def _write_requests(self) -> None:
        try:
            logger.info("%s", self.requests_text(as_json=False))
        finally:
            self._is_writing.release()

    def handle_ttin(self) -> None:
        """One worker more."""
        logger.info("Received SIGTTIN, increasing the number of processes.")
        with self._lock:
            self._pool.scale(self._pool.size + 1)

    def handle_ttou(self) -> None:
        """One worker less, but never none."""
        logger.info("Received SIGTTOU, decreasing number of processes.")
        if self._pool.size <= 1:
            logger.info("Already reached one process, cannot decrease the number of processes anymore.")
            return
        with self._lock:
            self._pool.scale(self._pool.size - 1)


def _occupancy(worker: Process) -> Occupancy:
    """Return the state of a worker's slots."""
    from uvicorn.listening.udp_slots import Occupancy

    if worker.exitcode is not None:
        return Occupancy.FREE
    if worker.is_leaving or worker.stage > Stage.RETIRING:
        return Occupancy.DRAINING
    return Occupancy.STARTING if worker.stage is Stage.STARTING else Occupancy.ACCEPTING


def _note_unhandled(name: str) -> None:
    logger.debug("Received signal %s, but no handler is defined for it.", name)


def _new_aggregator(config: Config) -> MetricsAggregator:
    # Imported where it is wanted: each worker imports this module.
    from uvicorn.metrics.route_table import Shape
    from uvicorn.observing.exposition import MetricsAggregator

    return MetricsAggregator(Shape.of(config))


def _serving(supervisors: Sequence[Multiprocess]) -> list[Process]:
    workers: list[Process] = []
    for supervisor in supervisors:
        with supervisor._lock:
            workers += [one for one in supervisor._pool.everyone if one.has_served and one.exitcode is None]
    return workers


def follow_predecessor(probe: Probe | None, is_serving: Callable[[], bool]) -> None:
    """Move on the succession of this process to the one that it replaces, if it replaces one."""
    succession = handover.current
    if succession.is_taking_over:
        if is_serving():
            if probe is not None:
                probe.start(Stage.SERVING)
            succession.report()
        succession.hear()


def measurement_of(supervisors: Sequence[Multiprocess], order: Order, is_over: threading.Event) -> Answer:
    """Measure all workers that observe their requests, or the one of the order, side by side.

    If any one will do it is the largest: an idle one would not show what leaks.
    """
    from uvicorn.observing.on_demand import collect, no_worker
    from uvicorn.observing.orders import ALL, ANY

    observed = _serving([one for one in supervisors if one.config.debug_requests])
    workers = [worker for worker in observed if order.worker in (ALL, ANY, worker.pid)]
    if order.worker == ANY and len(workers) > 1:
        workers = [max(workers, key=lambda worker: (worker.pid and resident_memory(worker.pid)) or 0)]
    if not workers:
        return no_worker([worker.pid for worker in observed if worker.pid is not None])
    parts: Arrivals = SimpleQueue()
    for worker in workers:
        worker.measure(order, parts)

    def stop() -> None:
        for worker in workers:
            worker.stop_measuring()

    return collect(order, parts, [worker.pid for worker in workers if worker.pid is not None], is_over, stop)


def requests_of(supervisors: Sequence[Multiprocess], as_json: bool) -> str:
    """The requests and tasks of all workers that observe theirs."""
    from uvicorn.observing.debugging import shown

    return shown(_listings_of([one for one in supervisors if one.config.debug_requests]), as_json)


def stalls_of(supervisors: Sequence[Multiprocess], as_json: bool) -> str:
    """The worst stalls of all workers that look for theirs."""
    from uvicorn.observing.debugging import shown_stalls

    return shown_stalls(_listings_of([one for one in supervisors if one.config.longest_turn]), as_json)


def _listings_of(supervisors: Sequence[Multiprocess]) -> list[LoopListing]:
    """The listings of all workers; they are asked side by side."""
    from uvicorn.observing.debugging import PATIENCE

    workers = _serving(supervisors)
    for worker in workers:
        worker.ask_for_requests()
    until = time.monotonic() + (patience := 2 * PATIENCE)
    listings: list[LoopListing] = []
    for worker in workers:
        told = worker.requests(until)
        if told is None:
            logger.warning(
                "Child process [%d] did not list its requests within %g seconds: it is stopped, or code in C keeps its "
                "interpreter locked. The list goes without them; the parent kills the process if it stays silent (%s).",
                worker.pid,
                patience,
                "timeout_worker_healthcheck" if worker.stage <= Stage.RETIRING else "timeout_graceful_shutdown",
            )
        listings += told or []
    return listings


def metrics_of(supervisors: Sequence[Multiprocess], is_open: bool = False) -> str:
    """The counts of the workers of all supervisors, in Prometheus' format, or that of OpenMetrics."""
    from uvicorn.observing.exposition import Lost, WorkerFigures, render

    counted, known = zip(*(supervisor.figures() for supervisor in supervisors), strict=True)
    events: Counter[tuple[EventKind, str | None]] = Counter()
    resident: dict[int, int] = {}
    ends: dict[str, int] = {}
    for figures in known:
        for name, end in figures.certificates.items():
            ends[name] = min(end, ends.get(name, end))
        events.update(figures.events)
        resident.update(figures.resident)
    stalls: StallTotals = {}
    for figures in known:
        add_up(stalls, figures.stalls.items())
    totals = [sum(numbers) for numbers in zip(*counted, strict=True)]
    lost = sum((figures.lost for figures in known), Lost())
    routes = known[0].routes
    for figures in known[1:]:
        if routes is not None and figures.routes is not None:
            routes.update(figures.routes)
    return render(totals, WorkerFigures(resident, events, ends, lost, routes, stalls), is_open)
