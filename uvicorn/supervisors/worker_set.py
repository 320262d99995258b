"""A set of workers and the operations on it: start, replace, scale, drain, watch.

The pool knows the interface of workers (`uvicorn.supervisors.worker.Worker`) only. It never waits: `watch()` handles
new events and due deadlines, and returns. The caller sleeps until one of `sources` is ready or `next_deadline()` has
come, and calls it again.

    started ──▶ serving ──▶ retiring ──▶ told to end ──▶ gone
        └──────────┴────────────┴── dies, falls silent ──▶ replaced

A replacement is ready before the old worker ends, so capacity never dips; one starts at a time, and a few end
side by side. A worker that retires (its request limit is reached) serves on until then, and so does one that is
recycled because of its age or its memory: these one at a time, the end of the old one included.

A worker that cannot start, or crashes soon, leaves the others alone: it is started again, ever more slowly. The pool
fails if none of the first workers comes to serve, or if too many crash in a row while none serves.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from uvicorn.serving.drain import Stage
from uvicorn.serving.grace_periods import FORCED_WAIT, GracePeriods
from uvicorn.supervisors.recycle import MIB, Reason, RecycleLimits
from uvicorn.supervisors.worker import Worker
from uvicorn.worker_events import EventKind, WorkerEvent, WorkerEvents, how_ended, signal_name

FIRST_DELAY = 0.5
"""Seconds before a worker that died before it served is started for the second time; the first time it is at once."""

OVERSLEPT = 1.0
"""Seconds the pool may be called late before it takes itself for having been stopped or suspended."""

LONGEST_DELAY = 8.0
"""Seconds that delay grows to, doubling each time."""

STARTS_AGAIN = 2
"""First workers killed by a signal that are started again before the pool gives up: a signal may be an accident."""

LEAVING_AT_ONCE = 4
"""Old workers that may end side by side in a restart: each is a process, with its memory, beside those that serve."""

KILL_WAIT = 1.0
"""Seconds a killed worker gets to disappear before it is left to be collected later."""

STEADY = 10.0
"""Seconds a worker serves before its crash is one by itself, and no longer one of a row."""

LAST_WORDS = 0.5
"""Seconds before a late worker is killed, when it is asked for its stacks."""

GRACEFUL = (0, -signal.SIGTERM, -signal.SIGINT)
"""Exit statuses of a server after a graceful shutdown."""

LATE = "did not end in time"
"""Why a worker was killed that was to end, for the log."""

KILLED_BY = {"unresponsive": "timeout_worker_healthcheck", "deadline": "timeout_graceful_shutdown"}
"""The setting behind each reason for a kill, for the log."""

STOPPING = "stopping the parent process"
"""The consequence of a worker's end if the pool has failed, for the log."""

SAMPLE_INTERVAL = 1.0
"""Seconds between two looks at the memory of the workers."""

logger = logging.getLogger("uvicorn.error")

W = TypeVar("W", bound=Worker)


@dataclass
class Replacement(Generic[W]):
    """One worker that is being replaced."""

    old: W
    new: W
    deadline: float | None


@dataclass
class Service:
    """The record of a worker that has come to serve."""

    since: float
    limits: RecycleLimits
    memory: int | None = None
    is_steady: bool = False


class WorkerSet(Generic[W]):
    """Keeps `size` workers running.

    Args:
        make: makes a worker, not started yet.
        size: how many to keep.
        grace: how long a worker may take to end.
        ready_timeout: seconds a replacement has until it serves; None for any time.
        clock: seconds, monotonic.
        recycling: draws the limits of one worker.
        crash_limit: crashes in a row after which the pool fails if no worker serves; None or 0 for any number.
        events: receives the events of workers.

    Attributes:
        workers: those in charge, the newest last.
        failed: the application cannot start: none of the first workers came to serve. The pool is to be drained.
        is_draining: no more workers are started, and those that have ended stay among `everyone`.
    """

    def __init__(
        self,
        make: Callable[[], W],
        size: int,
        grace: GracePeriods,
        ready_timeout: float | None,
        clock: Callable[[], float] = time.monotonic,
        *,
        recycling: Callable[[], RecycleLimits] = RecycleLimits,
        crash_limit: int | None = None,
        events: WorkerEvents | None = None,
    ) -> None:
        self.workers: list[W] = []
        self.size = size
        self.failed = False
        self.events = events or WorkerEvents()
        self._make = make
        self._grace = grace
        self._ready_timeout = ready_timeout
        self._clock = clock
        self._recycling = recycling
        self._crash_limit = crash_limit
        self._leaving: dict[W, float] = {}  # asked to end, and when
        self._gone: set[W] = set()  # of `_leaving`, while the pool is drained
        self._killed: set[W] = set()  # killed on purpose: their end does not count as a crash
        self._buried: set[W] = set()  # of `_leaving`: killed and reported, but not gone yet
        self._asked: set[W] = set()  # of those that are late, for their stacks
        self._to_replace: list[W] = []
        self._to_recycle: dict[W, Reason] = {}
        self._replacement: Replacement[W] | None = None
        self._replace_again = False
        self._aborted = 0  # replacements in a row
        self._retire_at = 0.0  # no earlier
        self._served: dict[W, Service] = {}  # of `workers`
        self._has_served = False
        self._has_failed = False  # a worker that was not killed
        self._failures = 0  # to start, in a row
        self._crashes = 0  # of those that had just come to serve, in a row
        self._crashed_beside: set[W] = set()  # in charge when the last of these crashed
        self._in_vain = 0  # workers since the last one that was steady
        self._start_at = 0.0
        self._sample_at = 0.0
        self._kill_at: float | None = None
        self.is_draining = False
        self._next_watch: float | None = None

    # Verbs

    def start(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Start as many workers as are missing, as far as the system has room for them, until `is_over`."""
        while len(self.workers) < self.size and not is_over():
            try:
                self.workers.append(self._launch())
            except OSError as exc:
                self._put_off_start(exc)
                return

    def replace_all(self) -> None:
        """Replace every worker by a new one, one after the other, and these again if it is asked for meanwhile.

        The caller has changed something, so a worker that could not start is tried again at once.
        """
        self._failures, self._crashes, self._in_vain, self._start_at = 0, 0, 0, self._clock()
        if self._to_replace or self._replacement is not None:
            self._replace_again = True
        else:
            self._to_replace = list(self.workers)

    @property
    def is_replacing(self) -> bool:
        """Whether a replacement is going on."""
        return bool(self._to_replace or self._to_recycle or self._replace_again) or self._replacement is not None

    @property
    def is_serving(self) -> bool:
        """Whether all workers serve, and none is being replaced."""
        return len(self._served) == len(self.workers) == self.size and not self.is_replacing

    @property
    def is_settled(self) -> bool:
        """Whether no worker is being replaced or ending."""
        return not self.is_replacing and not self._leaving

    def scale(self, size: int) -> None:
        """Keep `size` workers from now on; superfluous ones, the newest first, end gracefully."""
        self.size = size
        self.start()
        while len(self.workers) > size:
            worker = self.workers.pop()
            self._forget(worker)
            self._dismiss(worker)

    def drain(self) -> None:
        """Tell all workers to end and start no more."""
        self.is_draining = True
        if self._replacement is not None:
            self._dismiss(self._replacement.new)
        self._replacement, self._to_replace, self._replace_again = None, [], False
        self._to_recycle.clear()
        for worker in self.workers:
            self._leaving[worker] = self._clock()
            worker.terminate()

    def hurry(self) -> None:
        """Tell the workers that are ending not to wait for clients, and kill them soon."""
        for worker in self._leaving:
            worker.hurry()
        if self._kill_at is None:
            self._kill_at = self._clock() + FORCED_WAIT

    def watch(self) -> None:
        """Read the workers' reports, remove the dead, kill the silent and the late, start missing ones."""
        now = self._clock()
        self._excuse_own_absence(now)
        for worker in self.everyone:
            worker.listen(now)
        self._look_after_leaving(now)
        if self.is_draining:
            return
        self._look_after_workers(now)
        if self.failed:
            return
        self._replace_next(now)
        start_at = self._time_to_start()
        if start_at is not None and now >= start_at:
            self.start()

    # For the caller to wait

    @property
    def everyone(self) -> list[W]:
        """Those in charge, those that are ending, and the one that is to take over."""
        new = [] if self._replacement is None else [self._replacement.new]
        return list(dict.fromkeys([*self.workers, *self._leaving, *new]))

    def is_done_with(self, worker: W) -> bool:
        """Whether the pool has noted the end of a worker, or never had it."""
        return worker in self._gone or worker not in self.everyone

    @property
    def sources(self) -> list[Any]:
        """Objects that become ready when there is something to `watch`."""
        # They include workers that have ended since the last `watch`, which has yet to note that.
        return [source for worker in self.everyone if worker not in self._gone for source in worker.sources]

    def next_deadline(self) -> float | None:
        """When to `watch` if no source becomes ready before; None if nothing is due ever."""
        deadlines = [self._time_to_act(worker) for worker in self._leaving if worker not in self._gone]
        if not self.is_draining:
            deadlines += [worker.deadline for worker in self.workers]
            deadlines += [self._time_to_act(worker) for worker in self.workers]
            if self._replacement is not None:
                deadlines.append(self._replacement.deadline)
            deadlines.append(self._time_to_start())
            deadlines += [self._time_to_recycle(worker) for worker in self._served]
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
        """A worker that was started.

        Raises:
            OSError: there is no room for another: no process, descriptor or memory is left.
        """
        worker = self._make()
        worker.start()
        self._tell("start", worker, "Child process [%d] was started", level=logging.DEBUG)
        return worker

    def _put_off_start(self, why: OSError) -> None:
        """Try again later if workers serve and the system has no room for another; without any worker, fail."""
        self.failed = not (self.workers or self._has_served)
        if self.failed:
            logger.error("No child process can be started (%s), stopping the parent process.", why)
            return
        self._failures += 1
        delay = restart_delay(self._failures + 1)
        self._start_at = self._clock() + delay
        message = "No child process can be started (%s); %d of %d run, %s."
        logger.error(message, why, len(self.workers), self.size, _trying_again(delay))

    def _tell(
        self, kind: EventKind, worker: W, message: str, *arguments: object, level: int, reason: str | None = None
    ) -> None:
        """Report an event: with the exit status if the worker has ended, which is also the reason of a crash."""
        exitcode = worker.exitcode if kind in ("exit", "crash") else None
        if kind == "crash" and reason is None and exitcode is not None:
            reason = signal_name(-exitcode) if exitcode < 0 else f"status {exitcode}"
        self.events.tell(WorkerEvent(kind, worker.pid, reason, exitcode), level, message, *arguments)

    def _time_to_start(self) -> float | None:
        """When to start the workers that are missing; None if none is, or the others are to show that it is of use."""
        if len(self.workers) >= self.size or (self._has_failed and not self._has_served):
            return None
        return self._start_at

    def _look_after_workers(self, now: float) -> None:
        for worker in self.workers:
            self._welcome(worker, now)
            self._tell_of_blockade(worker)
        self._look_at_memory(now)
        for worker in list(self.workers):
            if worker.exitcode is not None:
                self._bury(worker, now)
            elif worker.is_silent(now):
                self._kill(worker)
                self._bury(worker, now, "unresponsive", f"does not answer{_why(worker)}")
            elif self._is_late(worker, now):
                # It has ended by itself, but something keeps it from exiting.
                self._kill(worker)
                self._bury(worker, now, "deadline", LATE)
            elif now >= self._retire_at and (reason := self._reason_to_recycle(worker, now)) is not None:
                self._to_recycle[worker] = reason

    def _tell_of_blockade(self, worker: W) -> None:
        """Report a blocked event loop; that alone does not get a worker killed."""
        seconds = worker.blocked_for()
        if seconds is not None:
            message = "The event loop of child process [%d] has been blocked for %.1f seconds."
            self._tell("blocked", worker, message, seconds, level=logging.WARNING)
            self._log_stacks(worker, "Child process [%d] is stuck here:\n%s", logging.WARNING)

    def _log_stacks(self, worker: W, message: str, level: int = logging.ERROR) -> None:
        if stacks := worker.take_stacks():
            logger.log(level, message, worker.pid, stacks, extra={"worker_pid": worker.pid})

    def _welcome(self, worker: W, now: float) -> None:
        """Note that a worker serves."""
        if not worker.has_served or worker in self._served:
            return
        since = worker.stage_since if worker.stage is Stage.SERVING else now
        self._served[worker] = Service(since, self._recycling())
        self._has_served = True
        self._failures = 0
        self._tell("ready", worker, "Child process [%d] serves", level=logging.DEBUG)

    def _bury(self, worker: W, now: float, reason: str = "", what: str = "") -> None:
        """Take a dead worker out, and decide when, and whether, there is to be another.

        Of one that was killed `reason` and `what` say why.
        """
        worker.join(KILL_WAIT)
        worker.listen(now)  # its last words
        if not reason:
            self._log_stacks(worker, "Child process [%d] crashed here:\n%s")
        self._note_steady(now)
        self.workers.remove(worker)
        if worker.exitcode is None:
            self._leaving[worker] = now
            self._buried.add(worker)
        is_brief = self._is_brief(worker)
        is_another = worker not in self._crashed_beside  # several that crash together are one
        self._forget(worker)
        self._promote_replacement_of(worker)
        if not worker.has_served:
            self._failures += 1
            self._in_vain += 1
            self._start_at = now + restart_delay(max(self._failures, self._crashes))
            gives_up = self._has_run_in_vain
            if reason:
                self._report_kill(worker, reason, what)
            self._report_failure(worker, gives_up)
        else:
            self._has_served = True
            if is_brief and is_another:
                self._crashes += 1
                self._in_vain += 1
                self._crashed_beside = set(self.workers)
            delay = restart_delay(self._crashes) if is_brief else 0.0
            self._start_at = now + delay
            gives_up = self._has_run_in_vain
            follows = STOPPING if gives_up else f"starting another {_when(delay)}"
            if reason:
                self._report_kill(worker, reason, what, f", {follows}")
            self._report_end(worker, follows)
        self._killed.discard(worker)
        self._asked.discard(worker)
        if gives_up and not self.failed:
            self._give_up(worker)

    def _note_steady(self, now: float) -> None:
        """One that has served long enough shows that it is of use: crashes from now on are a new row."""
        for service in self._served.values():
            if not service.is_steady and now >= service.since + STEADY:
                service.is_steady = True
                self._crashes = self._in_vain = 0

    def _is_brief(self, worker: W) -> bool:
        """Whether a worker that has ended crashed, or stopped answering, soon after it began to serve."""
        service = self._served.get(worker)
        is_crash = worker.stage <= Stage.RETIRING and (worker in self._killed or self._kind_of_end(worker) == "crash")
        return is_crash and (service is None or not service.is_steady)

    def _kind_of_end(self, worker: W) -> EventKind:
        """Classify the end of a worker; one that was killed has been reported as killed."""
        is_graceful = worker in self._leaving or worker.stage > Stage.RETIRING
        return "exit" if worker in self._killed or (is_graceful and worker.exitcode in GRACEFUL) else "crash"

    def _report_end(self, worker: W, follows: str) -> None:
        """Log the end of a worker that has served: an error where something was lost, unless its kill was one."""
        kind = self._kind_of_end(worker)
        if kind == "exit":
            self._tell(kind, worker, "Child process [%d] died", level=logging.INFO)
            return
        message = "Child process [%d] died (%s)%s, %s."
        self._tell(kind, worker, message, _how_ended(worker), _lost_with(worker), follows, level=logging.ERROR)

    def _report_failure(self, worker: W, gives_up: bool) -> None:
        """Log that a worker ended before it served, the reason, and the consequence."""
        by_signal = worker.exitcode is None or worker.exitcode < 0
        self._has_failed = self._has_failed or not by_signal or self._failures >= self.size + STARTS_AGAIN
        self.failed = self._has_failed and not (self.workers or self._has_served)
        if self.failed or gives_up:
            follows = STOPPING
        elif self._has_failed and not self._has_served:
            follows = "waiting for the others"
        else:
            follows = _trying_again(restart_delay(max(self._failures, self._crashes)))
        message = "Child process [%d] failed to start (%s), %s."
        self._tell("crash", worker, message, _how_ended(worker), follows, level=logging.ERROR, reason="startup")

    @property
    def _has_run_in_vain(self) -> bool:
        """Whether the limit of crashes is reached, and no worker serves that would have to be ended."""
        return bool(self._crash_limit and self._in_vain >= self._crash_limit and not self._served)

    def _give_up(self, worker: W) -> None:
        """Let the pool fail, because too many workers crash."""
        self.failed = True
        logger.error(
            "%d child processes in a row died before they had served for %d seconds, the last one [%d] (%s); stopping "
            "the parent process. Set limit_worker_crashes to 0 to keep trying.",
            self._in_vain,
            STEADY,
            worker.pid,
            _how_ended(worker),
        )

    def _forget(self, worker: W) -> None:
        """Remove a worker from those in charge."""
        self._served.pop(worker, None)
        self._to_recycle.pop(worker, None)
        self._crashed_beside.discard(worker)

    def _kill(self, worker: W) -> None:
        self._killed.add(worker)
        worker.kill()
        worker.join(KILL_WAIT)

    def _report_kill(self, worker: W, reason: str, what: str, follows: str = "") -> None:
        """Log why a worker was killed, its lost requests, and the next step."""
        message = "Child process [%d] %s, killing it%s%s (%s)."
        arguments = what, _lost_with(worker), follows, KILLED_BY[reason]
        self._tell("kill", worker, message, *arguments, level=logging.ERROR, reason=reason)
        self._log_stacks(worker, "Child process [%d] was stuck here:\n%s")

    # Those that have served enough

    def _look_at_memory(self, now: float) -> None:
        if now < self._sample_at:
            return
        for worker, service in self._served.items():
            if service.limits.memory is not None and worker.exitcode is None:
                service.memory = worker.memory()
                self._sample_at = now + SAMPLE_INTERVAL

    def _reason_to_recycle(self, worker: W, now: float) -> Reason | None:
        """Why the worker should be replaced; None if nothing says so, or that is under way."""
        service = self._served.get(worker)
        if service is None or self._is_being_replaced(worker):
            return None
        if worker.stage is Stage.RETIRING:
            return Reason.REQUESTS
        return service.limits.reached(now - service.since, service.memory)

    def _is_being_replaced(self, worker: W) -> bool:
        in_turn = self._replacement is not None and self._replacement.old is worker
        return in_turn or worker in self._to_recycle or worker in self._to_replace

    def _time_to_recycle(self, worker: W) -> float | None:
        """When to check whether to replace a worker; None if it reports that, or is being replaced."""
        service = self._served[worker]
        if self._is_being_replaced(worker):
            return None
        if worker.stage is Stage.RETIRING:
            return self._retire_at
        times = [] if service.limits.lifetime is None else [service.since + service.limits.lifetime]
        times += [] if service.limits.memory is None else [self._sample_at]
        return max(min(times), self._retire_at) if times else None

    # Those that are to end

    def _dismiss(self, worker: W) -> None:
        """End a worker while others serve."""
        self._leaving[worker] = self._clock()
        worker.relieve()
        worker.terminate()

    def _look_after_leaving(self, now: float) -> None:
        for worker in list(self._leaving):
            if worker.exitcode is not None:
                self._note_end(worker)
                if self.is_draining:
                    self._gone.add(worker)
                else:
                    worker.join()
                    del self._leaving[worker]
            elif self._is_late(worker, now):
                self._kill(worker)
                self._report_kill(worker, "deadline", LATE)

    def _note_end(self, worker: W) -> None:
        if worker in self._buried:
            self._buried.discard(worker)
        elif worker not in self._gone:
            self._asked.discard(worker)
            if (kind := self._kind_of_end(worker)) == "crash":
                self._log_stacks(worker, "Child process [%d] crashed here:\n%s")
                message = "Child process [%d] died while it was ending (%s)%s."
                self._tell(kind, worker, message, _how_ended(worker), _lost_with(worker), level=logging.ERROR)
            else:
                self._tell(kind, worker, "Child process [%d] has ended", level=logging.DEBUG)
            self._killed.discard(worker)

    def _is_late(self, worker: W, now: float) -> bool:
        """Whether a worker is late to end; shortly before that, it is asked for its stacks."""
        deadline = self._time_to_kill(worker)
        if deadline is not None and now >= deadline - LAST_WORDS and worker not in self._asked:
            self._asked.add(worker)
            worker.ask_for_stacks()
        return deadline is not None and now >= deadline

    def _time_to_act(self, worker: W) -> float | None:
        """When to kill a worker, or to ask for its last words before that."""
        deadline = self._time_to_kill(worker)
        return deadline if deadline is None or worker in self._asked else deadline - LAST_WORDS

    def _time_to_kill(self, worker: W) -> float | None:
        told_at = self._leaving.get(worker)
        if told_at is None:
            if worker.stage <= Stage.RETIRING:
                return None
            told_at = worker.stage_since
        deadline = self._grace.deadline(told_at, worker.stage, worker.stage_since)
        return min((when for when in (deadline, self._kill_at) if when is not None), default=None)

    # Replacement

    def _replace_next(self, now: float) -> None:
        if self._replacement is not None:
            self._await_replacement(self._replacement, now)
        if self._replacement is None and len(self._leaving) < LEAVING_AT_ONCE:
            self._begin_restart(now)
        if self._replacement is None and len(self._leaving) < self._recycled_at_once:
            self._begin_recycling(now)

    @property
    def _recycled_at_once(self) -> int:
        """How many may be recycled side by side, those counted that end; where that may take for ever, others go on."""
        return LEAVING_AT_ONCE if self._grace.drain is None else 1

    def _begin_restart(self, now: float) -> None:
        if self._replace_again and not self._to_replace:
            self._replace_again = False
            self._to_replace = list(self.workers)
        while self._to_replace and self._replacement is None:
            old = self._to_replace.pop(0)
            if old in self.workers:
                message = "Restarting child process [%d]"
                self._begin_replacement(old, now, Reason.RESTART, message, level=logging.DEBUG)

    def _begin_recycling(self, now: float) -> None:
        if not self._to_recycle:
            return
        old, reason = next(iter(self._to_recycle.items()))
        service = self._served[old]
        del self._to_recycle[old]
        if reason is Reason.REQUESTS:
            message = "Recycling child process [%d]: it has reached its limit of requests."
            self._begin_replacement(old, now, reason, message, level=logging.DEBUG)
        elif reason is Reason.LIFETIME:
            message = "Recycling child process [%d]: it has served for %d seconds."
            self._begin_replacement(old, now, reason, message, now - service.since)
        else:
            message = "Recycling child process [%d]: it occupies %d MiB."
            self._begin_replacement(old, now, reason, message, (service.memory or 0) // MIB)

    def _begin_replacement(
        self, old: W, now: float, reason: Reason, message: str, *arguments: object, level: int = logging.INFO
    ) -> None:
        self._tell("recycle", old, message, *arguments, level=level, reason=reason.value)
        deadline = None if self._ready_timeout is None else now + self._ready_timeout
        try:
            self._replacement = Replacement(old, self._launch(), deadline)
        except OSError as exc:
            aborts = "No child process can be started (%s); keeping worker [%d] and aborting the restart."
            logger.error(aborts, exc, old.pid)
            self._give_up_replacing(now)

    def _await_replacement(self, replacement: Replacement[W], now: float) -> None:
        old, new = replacement.old, replacement.new
        if new.exitcode is None and new.is_ready(0):
            self._replacement = None
            self._aborted = 0
            if old in self.workers:  # it may have been superfluous meanwhile
                self.workers[self.workers.index(old)] = new
                self._welcome(new, now)
                self._forget(old)
                self._dismiss(old)
            else:
                self._dismiss(new)
        elif new.exitcode is not None:
            self._abort_replacement(replacement, now, f"failed to start ({how_ended(new.exitcode)})")
        elif replacement.deadline is not None and now >= replacement.deadline:
            self._abort_replacement(replacement, now, "was not ready in time")

    def _give_up_replacing(self, now: float) -> None:
        self._replacement, self._to_replace, self._replace_again = None, [], False
        self._to_recycle.clear()
        # A worker that retires will ask again, every time: not at once.
        self._aborted += 1
        self._retire_at = now + restart_delay(self._aborted + 1)

    def _abort_replacement(self, replacement: Replacement[W], now: float, reason: str) -> None:
        self._give_up_replacing(now)
        kind: EventKind = "kill" if replacement.new.exitcode is None else "crash"
        message = "New child process [%d] %s; keeping worker [%d] and aborting the restart."
        arguments = reason, replacement.old.pid
        self._tell(kind, replacement.new, message, *arguments, level=logging.ERROR, reason="startup")
        self._killed.add(replacement.new)
        replacement.new.kill()
        self._leaving[replacement.new] = now

    def _promote_replacement_of(self, worker: W) -> None:
        """The old one has died before its replacement was ready: the new one is in charge as it is."""
        if self._replacement is not None and self._replacement.old is worker:
            self.workers.append(self._replacement.new)
            self._replacement = None


def _how_ended(worker: Worker) -> str:
    """How a worker has ended that may not be gone yet."""
    return "killed" if worker.exitcode is None else how_ended(worker.exitcode)


def _lost_with(worker: Worker) -> str:
    """The connections that a worker takes with it, as a clause; nothing if it has none, or that is not known."""
    connections = worker.connections()
    return f", {connections} connection{'s' * (connections > 1)} lost" if connections else ""


def _why(worker: Worker) -> str:
    """Explain the silence of a worker that does not answer."""
    if worker.has_pulse is None:
        return ""
    return ": its interpreter is locked" if worker.has_pulse else ": its process does not run"


def _when(delay: float) -> str:
    return f"in {delay:g} s" if delay else "at once"


def _trying_again(delay: float) -> str:
    return f"trying again in {delay:g} s" if delay else "trying again"


def restart_delay(failures: int) -> float:
    """Seconds to wait before the next attempt, after `failures` workers in a row have ended before they served."""
    return 0.0 if failures <= 1 else min(FIRST_DELAY * 2.0 ** min(failures - 2, 16), LONGEST_DELAY)
