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
from typing import Any

from uvicorn.config import Config
from uvicorn.config.errors import STARTUP_FAILURE, blaming, report_error
from uvicorn.listening.sockets import close_later
from uvicorn.observing.exposition import Exposition, bind
from uvicorn.observing.probe import Probe, readiness_of_pools
from uvicorn.serving.init_signals import is_init
from uvicorn.supervisors.multiprocess import Multiprocess, measurement_of, metrics_of, requests_of, stalls_of
from uvicorn.supervisors.orphans import collect_orphans
from uvicorn.supervisors.signals import SIGNALS, Handlers, Wakeup

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
        self.supervisor.tells_metrics = False
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
        exposition = probe = None
        try:
            exposition = self._expose()
            probe = self._open_probe()
            names = [f"uvicorn-pool-{pool.name}" for pool in self.pools]
            threads = [
                threading.Thread(target=self._run, args=(pool,), name=name)
                for pool, name in zip(self.pools, names, strict=True)
            ]
            for thread in threads:
                thread.start()
            while any(pool.outcome is Outcome.NONE for pool in self.pools):
                wait(self._wakeup.sources)
                self._wakeup.clear()
                if self._upgrade_requested:
                    self._upgrade_requested = False
                    logger.warning("Ignoring SIGUSR2: several pools cannot be upgraded; restart the server instead.")
                if is_init():
                    collect_orphans()
            for thread in threads:
                thread.join()
        finally:
            handlers.restore()
            self._wakeup.close()
            for served in (exposition, probe):
                if served is not None:
                    served.close()
            self._close()
        if any(pool.outcome is Outcome.FAILED for pool in self.pools):
            sys.exit(STARTUP_FAILURE)

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
