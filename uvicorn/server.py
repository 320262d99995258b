"""The server of one event loop: start-up, serving, signals, end.

`serve()` is `startup()`, `main_loop()`, `shutdown()` between two lines in the log; programs that embed a server may
call the three themselves. Nothing here looks at a clock to see whether something has happened: it sleeps until
`should_exit` is set (from any thread or signal handler), the request limit is reached or `callback_notify` is due.
Only where a program has replaced what it waits for (`on_tick`, `should_exit`, `force_exit`) it looks ten times a
second.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, cast

from uvicorn._compat import asyncio_run
from uvicorn.config import Config
from uvicorn.config.errors import STARTUP_FAILURE, blaming, fail
from uvicorn.hooks import original, overrides, replaced
from uvicorn.listening import handover
from uvicorn.listening import sockets as listening
from uvicorn.listening.acceptor import HANDSHAKE_TIMEOUT, Checkpoint, NativeAcceptor
from uvicorn.listening.connection_limit import ConnectionLimit
from uvicorn.listening.loads import WorkerLoad
from uvicorn.logging.ansi import style
from uvicorn.metrics import page as metrics
from uvicorn.metrics.loop_state import LoopBeat, LoopState, beat_interval
from uvicorn.metrics.memory import keep_freed_memory
from uvicorn.metrics.page import Page
from uvicorn.middleware.lifecycle import Report
from uvicorn.serving.buffers import watch_memory
from uvicorn.serving.drain import (
    ENDING,
    FORCED,
    LEAST_LIFESPAN_SHUTDOWN,
    Drain,
    Latch,
    Stage,
    Watched,
    announce_close,
    first_of,
    wait_until_idle,
)
from uvicorn.serving.init_signals import server_has_ended
from uvicorn.serving.interruption import BLOCKED, Backstop
from uvicorn.serving.state import ServerState
from uvicorn.serving.wakeup import awake

if TYPE_CHECKING:
    from uvicorn.lifespan.off import LifespanOff
    from uvicorn.lifespan.on import LifespanOn
    from uvicorn.listening.udp import HTTP3Endpoint
    from uvicorn.listening.udp_slots import UDPSlot, UDPSlots
    from uvicorn.observing.debugging import Debugging, Observer
    from uvicorn.observing.measurement import Measurement
    from uvicorn.observing.probe import Probe
    from uvicorn.tls.renewal import CertificateWatch

__all__ = ["HANDLED_SIGNALS", "STARTUP_FAILURE", "Config", "Server", "ServerState", "asyncio_run", "style"]

HANDLED_SIGNALS: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)
"""Signals that end the server; on Windows also Ctrl+Break."""
if sys.platform == "win32":
    HANDLED_SIGNALS += (signal.SIGBREAK,)

DEFAULT_HANDSHAKE_TIMEOUT = HANDSHAKE_TIMEOUT
"""Seconds for a TLS handshake when `timeout_handshake` is 0: asyncio has no unlimited wait."""

RELIEF = 0.2
"""Seconds a worker that is to end waits for word that others serve in its place, which comes beside the signal."""

NOTIFY_INTERVAL = 1.0
"""Shortest time in seconds between two calls of `callback_notify`."""

TICK = 0.1
"""Seconds between two calls of an `on_tick` that is not ours."""

TICKS_PER_DAY = 864_000
"""Where the counter given to `on_tick` begins again."""

logger = logging.getLogger("uvicorn.error")


@original
class Server:
    """Serves one configuration on one event loop, once.

    Attributes:
        started: whether the sockets are listening.
        should_exit: set it to end the server gracefully; from any thread, signal handler or callback.
        force_exit: set it, too, to end without waiting for clients.
        server_state: connections, tasks and counters, shared with the protocols.
        servers: the listeners, one for each socket.
        last_notified: `time.time()` of the last call of `callback_notify`, 0 before the first.
        on_stage: called with each `Stage` the server enters, on the thread of its event loop.
        on_reload: called with true before and with false after a look for new certificates that SIGHUP asked for, in
            another thread.
        connection_limit: counts connections where they are limited; that of the whole process, if its loops share one.
        has_successor: the supervisor starts another server before ending this one, which then reports RETIRING at its
            request limit and serves until `should_exit` is set.
        stage: how far it has come.
        loop: on which it serves, once it does.
        load_place: where this server tells others that accept from the same sockets how many connections it has.
        metrics_page: where this server counts, if its supervisor serves the metrics; otherwise it serves them itself.
        loop_state: the state of its event loop, for probes, if its supervisor answers those; otherwise it answers them.
        udp_slots: for HTTP/3, from its supervisor; it uses the first one. None if it opens its own.
    """

    lifespan: LifespanOn | LifespanOff
    udp_slots: Sequence[UDPSlot] | None = None  # not reset: the reloader gives it to a server that is pickled later

    def __init__(self, config: Config) -> None:
        self.config = config
        self._reset()
        # A subclass may have properties of its own here, whose setters make them work.
        self.should_exit = False
        self.force_exit = False

    def _reset(self) -> None:
        """Set the state that belongs to one process."""
        self.server_state = ServerState()
        self.servers: list[listening.Listener] = []
        self.started = False
        self.last_notified = 0.0
        self.on_stage: Callable[[Stage], None] = lambda stage: None
        self.on_reload: Callable[[bool], None] = lambda begins: None
        self.has_successor = False
        self.load_place: WorkerLoad | None = None
        self.metrics_page: Page | None = None
        self.loop_state: LoopState | None = None
        self.connection_limit: ConnectionLimit | None = None
        self._certificate_watch: CertificateWatch | None = None
        self._debugging: Debugging | None = None
        self._probe: Probe | None = None
        self._http3: HTTP3Endpoint | None = None
        self._own_slots: UDPSlots | None = None
        self._cleanup = contextlib.ExitStack()  # stops the observers of the event loop
        self.stage = Stage.STARTING
        self.loop: asyncio.AbstractEventLoop | None = None
        self._started_at = time.monotonic()
        self._relieved = Latch()
        self._should_exit = Latch()
        self._force_exit = Latch()
        self._limit_reached = Latch()
        self._source: listening.Source | None = None
        self._captured_signals: list[int] = []
        self._backstop = Backstop(self.end_deadline, functools.partial(setattr, self, "force_exit", True))
        self._stage_since = 0.0
        self._ending_since: float | None = None  # its time has begun
        self._given: list[socket.socket] = []  # while the application starts

    def __getstate__(self) -> dict[str, Any]:
        # `server.run` is pickled to be the target of a child process, which starts from the beginning.
        fresh = object.__new__(type(self))
        fresh._reset()
        return {name: value for name, value in vars(self).items() if name not in vars(fresh)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._reset()
        self.__dict__.update(state)

    @property
    def should_exit(self) -> bool:
        """Whether the server is to end."""
        return bool(self._should_exit)

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        _assign(self._should_exit, value)

    @property
    def force_exit(self) -> bool:
        """Whether the server is to end without waiting for clients."""
        return bool(self._force_exit)

    @force_exit.setter
    def force_exit(self, value: bool) -> None:
        _assign(self._force_exit, value)

    @property
    def loops(self) -> list[asyncio.AbstractEventLoop]:
        """The event loop that it serves on, once it does."""
        return [] if self.loop is None else [self.loop]

    def relieve(self) -> None:
        """Tell a server that ends that another one serves in its place, so it need not accept for `drain_delay`."""
        self._relieved.set()

    def _enter(self, stage: Stage) -> None:
        self.stage = stage
        self._stage_since = time.monotonic()
        if self.loop_state is not None:
            self.loop_state.enter(stage)
        if self._probe is not None:
            self._probe.start(stage)
        self.on_stage(stage)

    def report(self) -> Report:
        """Report the server's state. It is ready from when it accepts until it is to end."""
        state = self.server_state
        return Report(
            pid=os.getpid(),
            stage=self.stage.name.lower(),
            ready=self.stage in (Stage.SERVING, Stage.RETIRING),
            uptime=round(time.monotonic() - self._started_at, 3),
            connections=len(state.connections),
            tasks=len(state.tasks),
            requests=state.total_requests,
        )

    @functools.cached_property
    def limit_max_requests(self) -> int | None:
        """Completed responses after which the server ends, the jitter of this server included; None: unlimited."""
        limit = self.config.limit_max_requests
        if limit is None:
            return None
        return limit + random.randint(0, self.config.limit_max_requests_jitter)

    # The whole of it

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve in an event loop of its own, and return when the server has ended.

        Raises:
            SystemExit: the address could not be bound, or the application could not be imported.
            KeyboardInterrupt: the server has ended, gracefully, because of SIGINT.
        """
        if not self.config.loaded:
            # Before signals are handled: one that comes during a slow import ends it at once.
            self.config.import_app()
        # Behind the import, of which nothing needs to be kept.
        keep_freed_memory()
        # Before the coroutine is made: a loop that cannot be had exits here.
        loop_factory = self.config.get_loop_factory()
        if loop_factory is not None and asyncio._get_running_loop() is None:
            loop_factory = self._made(loop_factory)
        asyncio_run(self._serve_and_abandon(sockets), loop_factory=loop_factory)

    def _made(self, loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> Callable[[], asyncio.AbstractEventLoop]:
        """Have the event loop made now, and return what returns it."""
        loop: object = loop_factory()
        if not callable(getattr(loop, "run_until_complete", None)):
            message = 'Error loading custom loop setup function. "%s" returned %s instead of an event loop.'
            fail(message, self.config.loop, "None" if loop is None else f"an object of type {type(loop).__name__!r}")
        return lambda: cast(asyncio.AbstractEventLoop, loop)

    async def _serve_and_abandon(self, sockets: list[socket.socket] | None) -> None:
        try:
            await self.serve(sockets)
        except asyncio.CancelledError:
            # No caller is left to end it.
            if self.started:
                await self.shutdown(sockets=sockets)
            raise
        finally:
            # A task that ignores its cancellation would keep `asyncio.run()` waiting for ever. The drain has given it
            # its time. In a loop that is not ours it stays where it is.
            for task in list(self.server_state.tasks):
                if not task.done():
                    logger.error("Abandoning a task that ignores its cancellation: %r", task)
                    asyncio._unregister_task(task)
            # The supervisor reports this state, and the event loop may put off its own report.
            self.stage, self._stage_since = Stage.ENDED, time.monotonic()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve in the running event loop until told to end.

        Args:
            sockets: bound sockets to serve instead of the configured address; closed at the end.

        In the main thread SIGINT and SIGTERM end the server. They are raised again when it has ended, so that the
        handlers of the program around it (or the default actions) see them.

        Cancelling the task that runs this ends it at once: new connections are refused, the others end with their next
        response. `shutdown()` may then be awaited for the rest: it waits for requests in progress, and shuts the
        application down.
        """
        if hasattr(self, "install_signal_handlers") and threading.current_thread() is threading.main_thread():
            logger.warning(
                "install_signal_handlers is overridden but never called: SIGINT and SIGTERM end the server. Override "
                "capture_signals."
            )
        with self.capture_signals(), awake():
            try:
                await self._serve(sockets)
            finally:
                # Also where a program captures signals itself: its process goes on.
                self._backstop.stop()

    async def _serve(self, sockets: list[socket.socket] | None) -> None:
        config = self.config
        self.loop = asyncio.get_running_loop()
        _cancelled.let_go()
        if not config.loaded:
            config.load()
        self.lifespan = config.lifespan_class(config)

        self._log("Started server process [%d]")
        if config.recycles_workers and not self.has_successor:
            logger.warning(
                "limit_worker_lifetime and limit_worker_memory have no effect: no parent can replace this process."
            )
        try:
            await self.startup(sockets=sockets)
            if not self.started:
                return
            await self.main_loop()
        except asyncio.CancelledError:
            if self._must_shut_down:
                self._stop_listening()
                announce_close(self.server_state.connections)
                _cancelled.servers.append(self)
            raise
        except BaseException:
            # `callback_notify` has failed, or something of the program's: a `startup`, an `on_tick`.
            if self._must_shut_down:
                await self.shutdown(sockets=sockets)
            raise
        await self.shutdown(sockets=sockets)
        self._log("Finished server process [%d]")

    def _log(self, message: str) -> None:
        color_message = message.replace("%d", style("%d", fg="cyan"))
        logger.info(message, os.getpid(), extra={"color_message": color_message})

    # Start-up

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then listen. When it returns, `started` says whether the server serves.

        Raises:
            SystemExit: the application could not start, or the configured host and port cannot be bound.
            OSError: `uds` or `fd` cannot be used.

        Whatever is raised once the application has started, it has been shut down.
        """
        self._given = list(sockets or ())
        if self._captured_signals:
            self._refuse_early()
        self._open_probe()
        try:
            if not await self._start_application():
                self.should_exit = True
                if self.lifespan.should_exit:
                    sys.exit(STARTUP_FAILURE)  # the log says why
                self._cleanup.close()
                return
            if sockets and not self._given:
                self.started = True
                return
        except BaseException:
            self._cleanup.close()
            raise
        finally:
            self._given = []
        try:
            await self._start_serving(sockets)
        except BaseException:
            if self.started:
                await self.shutdown(sockets=sockets)
            else:
                await self._end_application()
            raise

    async def _start_serving(self, sockets: list[socket.socket] | None) -> None:
        self._start_observing()
        self.server_state.capture_context()
        self.server_state.configure(headers=self.config.encoded_headers, date_header=self.config.date_header)
        if self.limit_max_requests is not None:
            self.server_state.limit_requests(self.limit_max_requests, self._limit_reached.set)
        source = self._source = listening.source_of(self.config, sockets)
        try:
            bound = await source.open()
            self.servers = await self._listen(bound)
        except OSError as exc:
            self._blame(exc, sockets)
        if self.config.http3:
            with blaming("http3=True", status=STARTUP_FAILURE):
                self._serve_http3(bound)
        self._watch_certificates()
        self.config.reporters[asyncio.get_running_loop()] = self.report
        if sockets is None:
            # Some event loops (rloop) take the descriptor out of the socket that they listen on.
            pairs = zip(bound, self.servers, strict=True)
            self._log_started_message([sock if sock.fileno() >= 0 else server.sockets[0] for sock, server in pairs])
        self.started = True
        state, loop = self.server_state, asyncio.get_running_loop()
        self._cleanup.callback(watch_memory(loop, state.connections, self.config.limit_buffers, state.metrics))
        self._enter(Stage.SERVING)
        self._backstop.start_kill_timer()

    def _watch_certificates(self) -> None:
        config = self.config
        if config.ssl is None:
            return
        from uvicorn.tls.renewal import CertificateWatch

        page, place = self.server_state.metrics, self.load_place
        self._certificate_watch = CertificateWatch(
            config.ssl, config.ssl_reload, page, place, config.ticket_secret, self.on_reload
        )
        self._certificate_watch.start()

    def renew_certificates(self) -> None:
        """Look at once whether there are new ones, if `ssl_reload` is set; from any thread or signal handler."""
        if self._certificate_watch is not None:
            self._certificate_watch.wake()

    def _log_started_message(self, listeners: Sequence[socket.socket]) -> None:
        """Log where the server can be reached, `listeners` being the sockets of its configured address."""
        for line in listening.source_of(self.config).describe(listeners):
            line.log(logger)

    async def _start_application(self) -> bool:
        """Run the lifespan's start-up; false when it has failed, or does not complete once the server is to end."""
        given_up = False

        async def give_up_in_time() -> None:
            nonlocal given_up
            await self._flag("should_exit").wait()
            timeout = self.config.graceful_timeout
            await asyncio.sleep(float("inf") if timeout is None else timeout)
            given_up = True

        try:
            await first_of(self.lifespan.startup(), self._flag("force_exit").wait(), give_up_in_time())
        except BaseException:
            await self.lifespan.cancel()
            raise
        if given_up:
            logger.error(
                "Application startup did not complete within %d seconds of the signal (timeout_graceful_shutdown). "
                "Cancelling it.",
                self.config.graceful_timeout,
            )
        if (given_up or self.force_exit) and await self.lifespan.cancel() and not given_up:
            logger.warning("Application startup cancelled: %s.", FORCED)
        return not (given_up or self.force_exit or self.lifespan.should_exit)

    def _start_observing(self) -> None:
        """Observe, count and trace: `metrics`, `debug_requests`, `stall_threshold`, `probe` and `otel_endpoint`."""
        config = self.config
        # All are imported by those that need them.
        measurement: Measurement | None = None
        if self.metrics_page is not None or config.metrics is not None:
            from uvicorn.metrics.route_table import Shape
            from uvicorn.observing.measurement import Measurement

            with blaming(f"metrics={config.metrics!r}", status=STARTUP_FAILURE):
                measurement = Measurement(
                    self.metrics_page,
                    config.metrics or "",
                    config.certificate_names,
                    Shape.of(config),
                    config.loaded_app,
                    self.server_state.tasks,
                )
            self._cleanup.callback(measurement.close)
            self.server_state.metrics = measurement.page
        interval = float("inf")
        if self.loop_state is not None:
            interval = beat_interval(config.probe_lateness)
        if config.in_flight is not None or config.longest_turn:
            from uvicorn.observing.debugging import Debugging, Observer

            page, state = self.server_state.metrics, self.loop_state
            in_flight = config.in_flight
            if in_flight is None:
                from uvicorn.middleware.in_flight import InFlight

                in_flight = InFlight(config.loaded_app)
            observer = Observer(config, in_flight, page, state, interval)
            self._debugging = Debugging(observer, on_signal=config.debug_requests)
            self._cleanup.callback(self._debugging.close)
            if measurement is not None and config.debug_requests:
                measurement.tell_requests(lambda: self.observers)
            if measurement is not None and config.longest_turn:
                measurement.tell_stalls(lambda: self.observers)
        if self.loop_state is not None and not config.longest_turn:
            beat = LoopBeat(asyncio.get_running_loop(), interval, self.loop_state)
            beat.start()
            self._cleanup.callback(beat.stop)
        if config.tracing is not None:
            from uvicorn.tracing.tracer import Tracer

            self.server_state.tracer = tracer = Tracer(config.tracing, self.server_state.metrics, config.loaded_app)
            tracer.start()
            self._cleanup.callback(tracer.close)

    def _open_probe(self) -> None:
        """Answer probes from now on, with the setting `probe`, unless a supervisor or another loop does."""
        address = self.config.probe
        if address is None or self.loop_state is not None:
            return
        from uvicorn.observing.probe import Probe

        self.loop_state = LoopState.make()
        self.loop_state.enter(self.stage)
        with blaming(f"probe={address!r}", status=STARTUP_FAILURE):
            self._probe = Probe(address, self.config.probe_lateness, [self.loop_state])
        self._cleanup.callback(self._probe.close)
        self._probe.start()

    @property
    def observers(self) -> list[Observer]:
        """Those that know what the event loop is doing, once it serves: `debug_requests`, `stall_threshold`."""
        return [] if self._debugging is None else [self._debugging.observer]

    async def _listen(self, bound: list[socket.socket]) -> list[listening.Listener]:
        config = self.config
        if self.connection_limit is None and config.limits_connections:
            self.connection_limit = ConnectionLimit(config.limit_connections, config.limit_connections_per_address)
        tracer = self.server_state.tracer
        try:
            config.settle_encryption()
            listeners = await listening.listen(
                bound,
                self._protocol_factory(asyncio.get_running_loop()),
                backlog=config.backlog,
                context=config.ssl,
                handshake_timeout=config.timeout_handshake or DEFAULT_HANDSHAKE_TIMEOUT,
                place=self.load_place,
                metrics=self.server_state.metrics if tracer is None else tracer.page,
                checkpoint=_checkpoint(config, self.connection_limit, self.server_state.metrics),
            )
        except BaseException:
            for sock in bound:
                sock.close()
            raise
        if config.ssl is not None and not all(isinstance(one, NativeAcceptor) for one in listeners):
            config.rule_out_rustls("the event loop's transports carry it")
        return listeners

    # HTTP/3

    def _serve_http3(self, bound: Sequence[socket.socket]) -> None:
        """Listen on UDP, too, in a slot of the supervisor or in one of its own."""
        from uvicorn.listening import udp

        slots = self.udp_slots
        if slots is None:
            self._own_slots = own = self.config.open_udp_slots(bound, 1)
            slots = own.take()
        if not slots:
            return  # the supervisor has none left, and has logged that
        slot, loop = slots[0], asyncio.get_running_loop()
        checkpoint = _checkpoint(self.config, self.connection_limit, self.server_state.metrics)
        counted = checkpoint.counted(lambda: None)
        fields, alt_svc = self.config.encoded_headers, udp.alt_svc(self.config.http3_alt_svc, slot.ports)

        def make(slot: UDPSlot, descriptors: Sequence[int]) -> udp.NativeListener:
            listener, context = udp.native_listener(), self.config.ssl
            assert listener is not None and context is not None, "Config has checked both"
            pollers = [one.poller for one in self.servers if isinstance(one, NativeAcceptor)]
            if not pollers:
                raise OSError("there is no TCP socket")
            return listener(
                poller=pollers[0],
                descriptors=descriptors,
                factory=self._protocol_factory(loop),
                context=context,
                slot=slot.number,
                generation=slot.generation,
                secret=slot.secret,
                enter=None if counted is None else counted.enter,
                handshake_timeout=self.config.timeout_handshake or DEFAULT_HANDSHAKE_TIMEOUT,
            )

        def announce(is_serving: bool) -> None:
            own = [] if not is_serving or alt_svc is None else [(b"alt-svc", alt_svc.encode("latin-1"))]
            own = [] if any(name == b"alt-svc" for name, _ in fields) else own
            self.server_state.configure(headers=[*fields, *own], date_header=self.config.date_header)

        self._http3 = udp.HTTP3Endpoint(slot, make, announce)
        self._http3.start()
        if self._own_slots is not None:
            self._own_slots.serve(slot)

    def _end_http3(self) -> None:
        if self._http3 is not None:
            self._http3.close()
        if self._own_slots is not None:
            self._own_slots.close()
        self._http3 = self._own_slots = None

    def _protocol_factory(self, loop: asyncio.AbstractEventLoop) -> Callable[[], asyncio.Protocol]:
        config = self.config
        protocol_class = config.http_protocol_class
        arguments: dict[str, Any] = {
            "config": config,
            "server_state": self.server_state,
            "app_state": self.lifespan.state,
            "_loop": loop,
        }
        if isinstance(protocol_class, type) and not replaced(protocol_class):
            factory = getattr(protocol_class, "factory", None)
            if factory is not None:
                return cast(Callable[[], asyncio.Protocol], factory(**arguments, last=config.closes_connections))

        def create_protocol() -> asyncio.Protocol:
            protocol: Any = protocol_class(**arguments)
            if config.closes_connections:
                protocol.announce_close()
            return cast(asyncio.Protocol, protocol)

        return create_protocol

    def _blame(self, exc: OSError, sockets: list[socket.socket] | None) -> NoReturn:
        """Raise the error of an address that cannot be served, with the setting that names it."""
        setting = listening.setting_of(self.config)
        # An error of `bind` names the member of the list.
        if sockets is None and setting is not None and not self.config.bind:
            with blaming(setting, status=STARTUP_FAILURE):
                raise exc
        fail("%s", exc, hint=getattr(exc, "hint", None))

    # Serving

    async def main_loop(self) -> None:
        """Return when the server is to end: `should_exit` is set or the request limit is reached."""
        should_exit = self._flag("should_exit")
        counter = 0
        while not await self.on_tick(counter):
            if not overrides(self, "on_tick"):
                await first_of(should_exit.wait(), self._limit_reached.wait(), timeout=self._time_to_notify())
            else:
                await asyncio.sleep(TICK)
                counter = (counter + 1) % TICKS_PER_DAY
        if self.has_successor and not self.should_exit:
            await self._await_successor()

    async def _await_successor(self) -> None:
        """Report that the request limit is reached, and serve until another server takes over: no client is refused."""
        self._enter(Stage.RETIRING)
        should_exit = self._flag("should_exit")
        while not should_exit:
            await self._notify()
            await first_of(should_exit.wait(), timeout=self._time_to_notify())

    async def on_tick(self, counter: int) -> bool:
        """Do the work that is due, and return whether the server is to end.

        `main_loop()` calls this when something has happened. If a program replaces it, this is called ten times a
        second, with a rising `counter`; each tenth call checks whether `callback_notify` is due.
        """
        if counter % 10 == 0:
            await self._notify()
        if self.should_exit:
            return True
        limit = self.limit_max_requests
        if limit is not None and self.server_state.total_requests >= limit:
            logger.info("Maximum request limit of %d exceeded. Terminating process.", limit)
            return True
        return False

    async def _notify(self) -> None:
        if self.config.callback_notify is not None and not self._time_to_notify():
            self.last_notified = time.time()
            await self.config.callback_notify()

    def _time_to_notify(self) -> float | None:
        """Seconds until `callback_notify` is due; None when there is none."""
        if self.config.callback_notify is None:
            return None
        interval = max(NOTIFY_INTERVAL, self.config.timeout_notify)
        # The clock may be set back; waiting for it to catch up would look like a dead worker.
        elapsed = abs(time.time() - self.last_notified)
        return max(0.0, interval - elapsed)

    def _flag(self, name: str) -> Latch | Watched:
        """`should_exit` or `force_exit` as something that can be waited for."""
        latch: Latch = getattr(self, f"_{name}")
        return Watched(lambda: getattr(self, name)) if overrides(self, name) else latch

    # End

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse new connections, let the present ones end within the deadline, then shut the application down."""
        try:
            if self._http3 is not None:
                self._http3.leave()
            await self._keep_accepting()
            self._ending_since = time.monotonic()
            logger.info("Shutting down")
            timeout, force = self.config.graceful_timeout, self._flag("force_exit")
            drain = Drain(self.server_state, timeout, force, self._enter, self._wait_tasks_to_complete)
            await drain.run(refuse=lambda: self._refuse(sockets))
        finally:
            await self._end_application()

    @property
    def _must_shut_down(self) -> bool:
        """Whether it has started to serve, and its shutdown has not begun."""
        return self.started and self.stage < Stage.LEAVING

    async def _end_application(self) -> None:
        self._stop_listening()  # where something has failed before that
        try:
            await self._end_lifespan()
        finally:
            self._let_go(asyncio.get_running_loop())

    def _let_go(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let go of everything that would keep `loop`, on which this server served, and the application alive."""
        self._end_http3()
        self.server_state.close()
        self._cleanup.close()
        self.config.reporters.pop(loop, None)
        if self in _cancelled.servers:
            _cancelled.servers.remove(self)

    async def _keep_accepting(self) -> None:
        """Serve on for `drain_delay` seconds, so that load balancers see in time that this server is not ready."""
        delay = self.config.drain_delay
        if not delay or not self.servers or self.config.should_reload or self.force_exit or self._relieved:
            return
        over = (self._relieved, self._flag("force_exit"))
        if self.has_successor and await first_of(*(flag.wait() for flag in over), timeout=min(delay, RELIEF)):
            return
        self._enter(Stage.LEAVING)
        logger.info("Draining: accepting connections for another %g seconds. (CTRL+C to force quit)", delay)
        await first_of(*(flag.wait() for flag in over), timeout=delay)

    async def _wait_tasks_to_complete(self) -> None:
        """Return once no client is connected and no request is in progress, or the shutdown is forced."""
        logs = self.config.graceful_timeout != 0
        await first_of(wait_until_idle(self.server_state, logs), self._flag("force_exit").wait())

    async def _refuse(self, sockets: list[socket.socket] | None) -> None:
        self._stop_listening()
        for sock in sockets or []:
            sock.close()
        await first_of(listening.wait_opened(self.servers), self._flag("force_exit").wait())
        if self._http3 is not None:
            await first_of(self._http3.wait_refused(), self._flag("force_exit").wait())

    def _stop_listening(self) -> None:
        """Refuse new connections."""
        if self._certificate_watch is not None:
            self._certificate_watch.stop()
        for server in self.servers:
            server.close()
        if self._http3 is not None:
            self._http3.refuse(is_last=self._own_slots is not None and handover.current.is_in_charge)
        if self._source is not None:
            self._source.release()
            self._source = None

    async def _end_lifespan(self) -> None:
        """Shut the application down in the rest of the drain's time, or a minimum, unless the shutdown is forced."""
        limit = self.config.graceful_timeout
        if limit is not None:
            now = time.monotonic()
            limit = max((self._ending_since or now) + limit - now, LEAST_LIFESPAN_SHUTDOWN)
        forced = self._flag("force_exit")
        in_time = bool(forced) or await first_of(self.lifespan.shutdown(), forced.wait(), timeout=limit)
        if not in_time:
            message = "Application shutdown not complete after %.3g seconds (timeout_graceful_shutdown). Exiting."
            logger.error(message, limit)
        if (not in_time or self.force_exit) and await self.lifespan.cancel() and in_time:
            logger.warning("Application shutdown not completed: %s.", FORCED)

    # Signals

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let `handle_exit` have SIGINT and SIGTERM in the block, then raise those that came again, the latest first.

        Only the main thread may handle signals; in another one this does nothing.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous: dict[int, Any] = {sig: signal.signal(sig, self.handle_exit) for sig in HANDLED_SIGNALS}
        if self.config.ssl_reload is not None and sys.platform != "win32":
            previous[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda sig, frame: self.renew_certificates())
        # A `handle_exit` that a program has replaced may have other ideas of when the server ends.
        if not overrides(self, "handle_exit"):
            self._backstop.start_kill_timer(signal.SIGTERM, signal.SIGINT)
        try:
            yield
        finally:
            self._backstop.stop_timing()  # a timer must not meet other handlers
            for sig, handler in previous.items():
                # None stands for a handler that was not installed from Python, which cannot be put back.
                signal.signal(sig, signal.SIG_DFL if handler is None else handler)
            self._backstop.stop_timing()  # signals may have come meanwhile
            server_has_ended()
        with contextlib.ExitStack() as stack:  # last in, first out; each is raised even if one raises an exception
            for captured in self._captured_signals:
                stack.callback(signal.raise_signal, captured)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the server; a SIGINT when it is ending already forces the end.

        Raises:
            ForcedEnd: the event loop has not noticed, because something blocks it, which ends by this.
        """
        if self._backstop.takes(sig):
            return
        self._captured_signals.append(sig)
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
            self._backstop.interrupt()
        else:
            self.should_exit = True
            self._refuse_early()
            self._backstop.watch()

    def end_deadline(self, told_at: float) -> float:
        """Return the time (`time.monotonic()`) at which a blocked event loop is interrupted.

        `told_at` is when shutdown was requested.
        """
        timeout = self.config.graceful_timeout
        if timeout is None:
            return float("inf")
        if self.stage is Stage.STARTING:
            return told_at + timeout
        if self.stage is Stage.DONE:
            in_time = told_at + self.config.drain_delay + timeout
            return max(in_time, self._stage_since + LEAST_LIFESPAN_SHUTDOWN)
        if self.stage is Stage.ENDED:
            return self._stage_since + BLOCKED
        return told_at + self.config.drain_delay + timeout + ENDING

    def _refuse_early(self) -> None:
        """Hold no sockets that were given while an application starts which is to end at once.

        Clients would hang in their queue, however long that takes.
        """
        while self._given:
            self._given.pop().close()


def _checkpoint(config: Config, limit: ConnectionLimit | None, page: Page | None) -> Checkpoint:
    """Return the limit and the PROXY protocol that connections have to pass, if any is set."""
    if page is None:
        return Checkpoint(config.requires_proxy_header, limit)
    refused, no_header = (functools.partial(page.add, place) for place in (metrics.REFUSED, metrics.NO_PROXY_HEADER))
    return Checkpoint(config.requires_proxy_header, limit, refused, no_header)


class Cancelled(threading.local):
    """Servers of this thread whose `serve()` was cancelled, and whose `shutdown()` was not called.

    The program may call it for as long as the event loop lives. After that the collector cannot tell that such a server
    is over, because the native core is a part of it. So the next server lets go of it.
    """

    def __init__(self) -> None:
        self.servers: list[Server] = []

    def let_go(self) -> None:
        """Let go of those whose event loop is closed."""
        for server in list(self.servers):
            if server.loop is not None and server.loop.is_closed():
                server._let_go(server.loop)


_cancelled = Cancelled()


def _assign(latch: Latch, value: bool) -> None:
    if value:
        latch.set()
    else:
        latch.clear()
