"""Several pools of workers under one parent: each an application, an address and settings of its own.

Each pool is a `Multiprocess` in a thread. The parent receives signals and puts them into the queue of each. When one
pool has ended, for whatever reason, it ends the others.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from uvicorn.config import Config
from uvicorn.config.errors import STARTUP_FAILURE, blaming, report_error
from uvicorn.listening import handover
from uvicorn.listening.sockets import close_later
from uvicorn.observing.exposition import Exposition, bind
from uvicorn.observing.probe import Probe, readiness_of_pools
from uvicorn.serving.init_signals import is_init
from uvicorn.supervisors.multiprocess import (
    Multiprocess,
    follow_predecessor,
    measurement_of,
    metrics_of,
    requests_of,
    stalls_of,
)
from uvicorn.supervisors.orphans import collect_orphans
from uvicorn.supervisors.signals import SIGNALS, Handlers, Wakeup

if TYPE_CHECKING:
    from uvicorn.supervisors.upgrade import Upgrades

INTERVAL = 0.1
"""Seconds between two looks at the pools during an upgrade."""

logger = logging.getLogger("uvicorn.error")

_starting = threading.Lock()
"""Held by the one pool whose variables are those of this process."""


@dataclass(frozen=True)
class Plan:
    """The plan of one pool.

    Attributes:
        name: its name in the log.
        options: settings by name, `app_dir` among them.
        environment: variables of its processes.
    """

    name: str
    options: Mapping[str, Any]
    environment: Mapping[str, str]


class PoolEnvironment:
    """The environment of a process at its start: variables, and the directory in which applications are found."""

    def __init__(self, environment: Mapping[str, str], directory: str | None) -> None:
        self._environment = environment
        self._directory = directory

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """While the block runs they are this process's, and no other pool starts one."""
        with _starting:
            before, path = dict(os.environ), sys.path[:]
            os.environ.update(self._environment)
            if self._directory is not None:
                sys.path.insert(0, self._directory)
            try:
                yield
            finally:
                sys.path[:] = path
                for name in self._environment:
                    if name in before:
                        os.environ[name] = before[name]
                    else:
                        del os.environ[name]


class Outcome(enum.Enum):
    """How a pool has ended."""

    NONE = 0
    """It has not."""
    ENDED = 1
    """Its shutdown was requested, and is complete."""
    FAILED = 2
    """It could not start, or an error ended it, which was logged."""


class Pool:
    """One pool: its configuration, its socket and its supervisor; `with_banner` for the first one.

    Raises:
        SystemExit: its address cannot be bound.
        Exception: a setting is wrong; it names the setting.
    """

    def __init__(self, plan: Plan, with_banner: bool = False) -> None:
        options = dict(plan.options)
        directory = options.pop("app_dir", None)
        self.name = plan.name
        self._cleanup = contextlib.ExitStack()
        pool_environment = PoolEnvironment(plan.environment, directory)
        with pool_environment():
            config = Config(**options)
            config.check()
        for setting, is_set in (
            ("reload=True", config.reload),
            ("preload=True", config.preload),
            ("worker_start='fork'", config.worker_start == "fork"),
        ):
            if is_set:
                with blaming(setting):
                    raise ValueError("it cannot be combined with several pools.")
        config.log_core(with_banner)
        config.log_threads()
        sockets = config.bind_sockets()
        close_later(self._cleanup, config, sockets)
        self.supervisor = Multiprocess(config, sockets)
        self.supervisor.refuse = self._cleanup.close
        self.supervisor.pool_environment = pool_environment
        self.supervisor.is_pool = True
        self.supervisor.keep(handover.current.workers_of(config.workers, plan.name))
        self.sockets = sockets
        self.outcome = Outcome.NONE

    def close(self) -> None:
        """Give up its socket."""
        self._cleanup.close()

    def run(self) -> None:
        """Serve until `should_exit` is set, and set `outcome`."""
        outcome = Outcome.FAILED
        try:
            self.supervisor.run()
            outcome = Outcome.ENDED
        except SystemExit:
            pass  # the error was logged
        except Exception as exc:
            if not report_error(exc):
                logger.exception("Pool %r failed; stopping the parent process", self.name)
        finally:
            self.close()
            self.outcome = outcome


class Pools:
    """Keeps several pools serving until a signal ends them, or one of them has failed.

    Raises:
        SystemExit: the address of one cannot be bound.
        Exception: a setting is wrong; it names the setting.
    """

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._wakeup = Wakeup()
        self.pools: list[Pool] = []
        self._upgrade_requested = False
        self._upgrades: Upgrades | None = None
        self._probe: Probe | None = None
        handover.current.tickets = None  # of a server without pools: these must not share a secret
        try:
            for plan in plans:
                self.pools.append(Pool(plan, with_banner=not self.pools))
            if any(pool.supervisor.config.systemd for pool in self.pools):
                # To the service manager all pools are one service.
                from uvicorn.listening.systemd import shares_of_service

                for pool, share in zip(self.pools, shares_of_service(len(self.pools)), strict=False):
                    pool.supervisor.notifier = share
        except BaseException:
            self._close()
            raise

    def allow_upgrades(self) -> None:
        """Start a successor of this process at SIGUSR2."""
        from uvicorn.supervisors.upgrade import Start, Upgrades

        supervisors = [pool.supervisor for pool in self.pools]
        self._upgrades = Upgrades(
            [supervisor.config for supervisor in supervisors],
            Start.now(),
            lambda: [sock for pool in self.pools for sock in pool.sockets],
            supervisors[0].notifier,
            lambda: {pool.name: pool.supervisor.workers_for_successor() for pool in self.pools},
        )
        for supervisor in supervisors:
            supervisor.upgrades = self._upgrades

    def _close(self) -> None:
        for pool in self.pools:
            pool.close()

    def run(self) -> None:
        """Serve, and return when all pools have ended.

        Raises:
            SystemExit: one has failed.
            OSError: the address for metrics cannot be bound.
        """
        self._wakeup.open()
        handlers = Handlers(self.handle, self._wakeup)
        exposition = None
        try:
            exposition = self._expose()
            self._probe = self._open_probe()
            handover.current.drop_rest()
            names = [f"uvicorn-pool-{pool.name}" for pool in self.pools]
            threads = [
                threading.Thread(target=self._run, args=(pool,), name=name)
                for pool, name in zip(self.pools, names, strict=True)
            ]
            for thread in threads:
                thread.start()
            while any(pool.outcome is Outcome.NONE for pool in self.pools):
                self._sleep()
                self._look_after_upgrade()
                if is_init():
                    collect_orphans()
            for thread in threads:
                thread.join()
        finally:
            handlers.restore()
            self._wakeup.close()
            for served in (exposition, self._probe):
                if served is not None:
                    served.close()
            if self._upgrades is not None:
                self._upgrades.abort()
                self._upgrades.join()
                self._upgrades.close()
            self._close()
        if any(pool.outcome is Outcome.FAILED for pool in self.pools):
            sys.exit(STARTUP_FAILURE)

    def _sleep(self) -> None:
        """Wait for a signal, a pool, or the other side of an upgrade."""
        upgrades, succession = self._upgrades, handover.current
        is_moving = succession.is_taking_over or (upgrades is not None and upgrades.is_under_way)
        sources = [*self._wakeup.sources, *succession.sources, *(upgrades.sources if upgrades is not None else ())]
        # Pools do not report that they serve or end.
        wait(sources, INTERVAL if is_moving else None)
        self._wakeup.clear()

    def _look_after_upgrade(self) -> None:
        """Move on the upgrade by a successor, and the one by which this process succeeds another."""
        upgrades, is_requested = self._upgrades, self._upgrade_requested
        self._upgrade_requested = False
        if upgrades is None:
            return
        supervisors = [pool.supervisor for pool in self.pools]
        is_ending = any(supervisor.should_exit.is_set() for supervisor in supervisors)
        follow_predecessor(
            self._probe, lambda: not is_ending and all(supervisor.is_serving for supervisor in supervisors)
        )
        if is_ending:
            upgrades.abort()
        if is_requested:
            upgrades.request("SIGUSR2", "the server is shutting down; start it again" if is_ending else None)
        if upgrades.look():
            for supervisor in supervisors:
                supervisor.relieve()

    def handle(self, signal: int) -> None:
        """Have each pool act on the signal."""
        if SIGNALS.get(signal) == "USR2":
            self._upgrade_requested = True
            self._wakeup.set()
            return
        for pool in self.pools:
            pool.supervisor.signal_queue.append(signal)

    def _run(self, pool: Pool) -> None:
        pool.run()
        self._wakeup.set()
        for other in self.pools:
            other.supervisor.should_exit.set()

    def _expose(self) -> Exposition | None:
        address = self.pools[0].supervisor.config.metrics
        if address is None:
            return None
        with blaming(f"metrics={address!r}", status=STARTUP_FAILURE):
            exposition = Exposition(bind(address), self.metrics_text)
        supervisors = [pool.supervisor for pool in self.pools]
        exposition.hand_on({pool.name: of for pool in self.pools if (of := pool.supervisor.aggregator) is not None})
        if any(supervisor.config.debug_requests for supervisor in supervisors):
            exposition.tell_requests(lambda as_json: requests_of(supervisors, as_json))
            exposition.measure_on_demand(lambda order, is_over: measurement_of(supervisors, order, is_over))
        if any(supervisor.config.longest_turn for supervisor in supervisors):
            exposition.tell_stalls(lambda as_json: stalls_of(supervisors, as_json))
        exposition.start()
        return exposition

    def _open_probe(self) -> Probe | None:
        """Answer probes for all pools."""
        config = self.pools[0].supervisor.config
        if config.probe is None:
            return None

        def ready() -> tuple[bool, str]:
            return readiness_of_pools([(pool.name, pool.supervisor.states()) for pool in self.pools], lateness)

        lateness = config.probe_lateness
        with blaming(f"probe={config.probe!r}", status=STARTUP_FAILURE):
            probe = Probe(config.probe, lateness, None, ready)
        probe.start()
        return probe

    def metrics_text(self, is_open: bool = False) -> str:
        """The counts of the workers of all pools, in Prometheus' format."""
        return metrics_of([pool.supervisor for pool in self.pools], is_open)
