"""A set of workers and what can be done with it: start, replace, scale, drain, watch.

The pool knows workers (`uvicorn.supervisors.worker.Worker`), not what they are made of. It never waits: `watch()` looks
at what has happened and at what is due, does what follows, and returns. Whoever drives it sleeps until one of `sources`
is ready or `next_deadline()` has come, and calls it again.

    started ──▶ serving ──▶ retiring ──▶ told to end ──▶ gone
        └──────────┴────────────┴── dies, falls silent ──▶ replaced

A replacement is ready before the old worker is told to end, so capacity never dips; one starts at a time, and a few end
side by side. A worker that retires (its request limit is reached) serves on until then.

A worker that cannot start costs nobody but itself: it is tried again, ever more slowly. Only if none of the first ones
comes to serve, the pool has failed.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from uvicorn.drain import Stage
from uvicorn.supervisors.limits import FORCED_WAIT, DrainLimits
from uvicorn.supervisors.worker import Worker

FIRST_DELAY = 0.5
"""Seconds before a worker that died before it served is started for the second time; the first time it is at once."""

OVERSLEPT = 1.0
"""Seconds the pool may be called late before it takes itself for having been stopped or suspended."""

LONGEST_DELAY = 8.0
"""Seconds that delay grows to, doubling each time."""

LEAVING_AT_ONCE = 4
"""Old workers that may end side by side in a restart: each is a process, with its memory, beside those that serve."""

KILL_WAIT = 1.0
"""Seconds a killed worker gets to disappear before it is left to be collected later."""

logger = logging.getLogger("uvicorn.error")

W = TypeVar("W", bound=Worker)


@dataclass
class Replacement(Generic[W]):
    """One worker that is being replaced."""

    old: W
    new: W
    deadline: float | None


class Pool(Generic[W]):
    """Keeps `size` workers running.

    Args:
        make: makes a worker, not started yet.
        size: how many to keep.
        limits: how long a worker that was told to end may take.
        ready_timeout: seconds a replacement has until it serves; None for any time.
        clock: seconds, monotonic.

    Attributes:
        workers: those in charge, the newest last.
        failed: the application cannot start: none of the first workers came to serve. The pool is to be drained.
    """

    def __init__(
        self,
        make: Callable[[], W],
        size: int,
        limits: DrainLimits,
        ready_timeout: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.workers: list[W] = []
        self.size = size
        self.failed = False
        self._make = make
        self._limits = limits
        self._ready_timeout = ready_timeout
        self._clock = clock
        self._leaving: dict[W, float] = {}  # told to end, and when
        self._gone: set[W] = set()  # of `_leaving`, while the pool is drained
        self._to_replace: list[W] = []
        self._replacement: Replacement[W] | None = None
        self._replace_again = False
        self._aborted = 0  # replacements in a row
        self._retire_at = 0.0  # no earlier
        self._served: set[W] = set()  # of `workers`
        self._has_served = False
        self._has_failed = False  # a worker that was not killed
        self._failures = 0  # in a row
        self._start_at = 0.0
        self._kill_at: float | None = None
        self._is_draining = False
        self._next_watch: float | None = None

    # Verbs

    def start(self) -> None:
        """Start as many workers as are missing."""
        while len(self.workers) < self.size:
            self.workers.append(self._launch())

    def replace_all(self) -> None:
        """Replace every worker by a new one, one after the other, and these again if it is asked for meanwhile.

        Whoever asks has changed something: what could not start before is tried again at once.
        """
        self._failures, self._start_at = 0, self._clock()
        if self.is_replacing:
            self._replace_again = True
        else:
            self._to_replace = list(self.workers)

    @property
    def is_replacing(self) -> bool:
        """Whether a replacement is going on."""
        return bool(self._to_replace) or self._replacement is not None or self._replace_again

    @property
    def is_settled(self) -> bool:
        """Whether nobody is being replaced or ending."""
        return not self.is_replacing and not self._leaving

    def scale(self, size: int) -> None:
        """Keep `size` workers from now on; superfluous ones, the newest first, end gracefully."""
        self.size = size
        self.start()
        while len(self.workers) > size:
            worker = self.workers.pop()
            self._served.discard(worker)
            self._dismiss(worker)

    def drain(self) -> None:
        """Tell all workers to end and start no more."""
        self._is_draining = True
        if self._replacement is not None:
            self._dismiss(self._replacement.new)
        self._replacement, self._to_replace, self._replace_again = None, [], False
        for worker in self.workers:
            self._leaving[worker] = self._clock()
            worker.terminate()

    def hurry(self) -> None:
        """Tell the workers that are ending not to wait for anybody, and kill them soon."""
        for worker in self._leaving:
            worker.hurry()
        if self._kill_at is None:
            self._kill_at = self._clock() + FORCED_WAIT

    def watch(self) -> None:
        """Take what the workers have reported, bury the dead, kill the silent and the late, start what is missing."""
        now = self._clock()
        self._excuse_own_absence(now)
        for worker in self.everyone:
            worker.listen(now)
        self._look_after_leaving(now)
        if self._is_draining:
            return
        self._look_after_workers(now)
        if self.failed:
            return
        self._replace_next(now)
        start_at = self._time_to_start()
        if start_at is not None and now >= start_at:
            self.start()

    # What to wait for

    @property
    def everyone(self) -> list[W]:
        """Those in charge, those that are ending, and the one that is to take over."""
        new = [] if self._replacement is None else [self._replacement.new]
        return list(dict.fromkeys([*self.workers, *self._leaving, *new]))

    @property
    def sources(self) -> list[Any]:
        """What becomes ready when there is something to `watch`."""
        # A worker that has ended since the last `watch` is one of them: nobody has noticed yet.
        return [source for worker in self.everyone if worker not in self._gone for source in worker.sources]

    def next_deadline(self) -> float | None:
        """When to `watch` if no source becomes ready before; None if nothing is due ever."""
        deadlines = [self._time_to_kill(worker) for worker in self._leaving if worker not in self._gone]
        if not self._is_draining:
            deadlines += [worker.deadline for worker in self.workers]
            deadlines += [self._time_to_kill(worker) for worker in self.workers]
            if self._replacement is not None:
                deadlines.append(self._replacement.deadline)
            deadlines.append(self._time_to_start())
            if any(self._wants_replacement(worker) for worker in self.workers):
                deadlines.append(self._retire_at)
        self._next_watch = min((when for when in deadlines if when is not None), default=None)
        return self._next_watch

    def _excuse_own_absence(self, now: float) -> None:
        """Not to take the time this process did not run itself for silence of the workers."""
        if self._next_watch is not None and now - self._next_watch > OVERSLEPT:
            for worker in self.workers:
                worker.excuse(now - self._next_watch)
        self._next_watch = None

    # Those in charge

    def _launch(self) -> W:
        worker = self._make()
        worker.start()
        return worker

    def _time_to_start(self) -> float | None:
        """When to start the workers that are missing; None if none is, or the others are to show that it is of use."""
        if len(self.workers) >= self.size or (self._has_failed and not self._has_served):
            return None
        return self._start_at

    def _look_after_workers(self, now: float) -> None:
        self._welcome_serving()
        for worker in list(self.workers):
            if worker.exitcode is not None:
                self._bury(worker, now)
            elif worker.is_silent(now):
                self._kill(worker)
                self._bury(worker, now)
            elif self._is_late(worker, now):
                # It has ended by itself (its request limit), but something keeps it from exiting.
                self._kill(worker)
                self._bury(worker, now)
            elif now >= self._retire_at and self._wants_replacement(worker):
                self._to_replace.append(worker)

    def _welcome_serving(self) -> None:
        for worker in self.workers:
            if worker.has_served and worker not in self._served:
                self._served.add(worker)
                self._has_served = True
                self._failures = 0
                logger.debug("Child process [%d] serves", worker.pid)

    def _wants_replacement(self, worker: W) -> bool:
        """Whether the worker has asked for a replacement, and nothing has come of it yet."""
        in_turn = self._replacement is not None and self._replacement.old is worker
        return worker.stage is Stage.RETIRING and not in_turn and worker not in self._to_replace

    def _bury(self, worker: W, now: float) -> None:
        """Take a dead worker out, and decide when, and whether, there is to be another."""
        worker.join(KILL_WAIT)
        worker.listen(now)  # its last words
        self.workers.remove(worker)
        if worker.exitcode is None:
            self._leaving[worker] = now
        self._served.discard(worker)
        self._promote_replacement_of(worker)
        if worker.has_served:
            self._has_served = True
            self._start_at = now
            logger.info("Child process [%d] died", worker.pid)
        else:
            self._failures += 1
            self._start_at = now + restart_delay(self._failures)
            self._report_failure(worker)

    def _report_failure(self, worker: W) -> None:
        """A worker has ended before it served: say why, and what follows."""
        if not worker.exitcode or worker.exitcode < 0:
            logger.info("Child process [%d] died", worker.pid)
        else:
            self._has_failed = True
        self.failed = self._has_failed and not (self.workers or self._has_served)
        if self.failed:
            logger.error("Child process [%d] failed to start, stopping the parent process.", worker.pid)
        elif worker.exitcode and worker.exitcode > 0:
            follows = _announce(restart_delay(self._failures)) if self._has_served else "waiting for the others"
            logger.error("Child process [%d] failed to start (%s), %s.", worker.pid, _how(worker.exitcode), follows)

    def _kill(self, worker: W) -> None:
        worker.kill()
        worker.join(KILL_WAIT)

    # Those that have been told to end

    def _dismiss(self, worker: W) -> None:
        self._leaving[worker] = self._clock()
        worker.terminate()

    def _look_after_leaving(self, now: float) -> None:
        for worker in list(self._leaving):
            if worker.exitcode is not None:
                if self._is_draining:
                    self._gone.add(worker)
                else:
                    worker.join()
                    del self._leaving[worker]
            elif self._is_late(worker, now):
                self._kill(worker)

    def _is_late(self, worker: W, now: float) -> bool:
        deadline = self._time_to_kill(worker)
        if deadline is None or now < deadline:
            return False
        logger.error("Child process [%d] did not end in time, killing it.", worker.pid)
        return True

    def _time_to_kill(self, worker: W) -> float | None:
        told_at = self._leaving.get(worker)
        if told_at is None:
            if worker.stage <= Stage.RETIRING:
                return None
            told_at = worker.stage_since
        deadline = self._limits.deadline(told_at, worker.stage, worker.stage_since)
        return min((when for when in (deadline, self._kill_at) if when is not None), default=None)

    # Replacement

    def _replace_next(self, now: float) -> None:
        if self._replacement is not None:
            self._await_replacement(self._replacement, now)
        if self._replacement is None and len(self._leaving) < LEAVING_AT_ONCE:
            self._begin_replacement(now)

    def _begin_replacement(self, now: float) -> None:
        if self._replace_again and not self._to_replace:
            self._replace_again = False
            self._to_replace = list(self.workers)
        while self._to_replace and self._replacement is None:
            old = self._to_replace.pop(0)
            if old in self.workers:
                deadline = None if self._ready_timeout is None else now + self._ready_timeout
                self._replacement = Replacement(old, self._launch(), deadline)

    def _await_replacement(self, replacement: Replacement[W], now: float) -> None:
        old, new = replacement.old, replacement.new
        if new.exitcode is None and new.is_ready(0):
            self._replacement = None
            self._aborted = 0
            if old in self.workers:  # it may have been superfluous meanwhile
                self.workers[self.workers.index(old)] = new
                self._served.discard(old)
                self._dismiss(old)
            else:
                self._dismiss(new)
        elif new.exitcode is not None:
            self._abort_replacement(replacement, now, f"failed to start ({_how(new.exitcode)})")
        elif replacement.deadline is not None and now >= replacement.deadline:
            self._abort_replacement(replacement, now, "was not ready in time")

    def _abort_replacement(self, replacement: Replacement[W], now: float, reason: str) -> None:
        self._replacement, self._to_replace, self._replace_again = None, [], False
        # A worker that retires will ask again, every time: not at once.
        self._aborted += 1
        self._retire_at = now + restart_delay(self._aborted + 1)
        replacement.new.kill()
        self._leaving[replacement.new] = now
        logger.error(
            "New child process [%d] %s; keeping worker [%d] and aborting the restart.",
            replacement.new.pid,
            reason,
            replacement.old.pid,
        )

    def _promote_replacement_of(self, worker: W) -> None:
        """The old one has died before its replacement was ready: the new one is in charge as it is."""
        if self._replacement is not None and self._replacement.old is worker:
            self.workers.append(self._replacement.new)
            self._replacement = None


def _how(exitcode: int) -> str:
    """How a process has ended."""
    if exitcode >= 0:
        return f"exit status {exitcode}"
    try:
        return f"killed by {signal.Signals(-exitcode).name}"
    except ValueError:  # a real-time signal has no name
        return f"killed by signal {-exitcode}"


def _announce(delay: float) -> str:
    return f"trying again in {delay:g} s" if delay else "trying again"


def restart_delay(failures: int) -> float:
    """Seconds to wait before the next attempt, after `failures` workers in a row have ended before they served."""
    return 0.0 if failures <= 1 else min(FIRST_DELAY * 2.0 ** min(failures - 2, 16), LONGEST_DELAY)
