"""A set of workers and the operations on it: start, replace, scale, drain, watch.

The set knows the interface of workers (`uvicorn.supervisors.worker.Worker`) only. It never waits: `watch()` handles
new events and due deadlines, and returns. The caller sleeps until one of `sources` is ready or `next_deadline()` has
come, and calls it again.

    ┌── in charge ──────────┐
    │ STARTED ──▶ SERVING ──┼─▶ ENDING ──▶ forgotten
    └─▲───────▲─────────────┘     │ late       ▲
      └───┬───┘ falls silent │    ▼            │
      JOINING ── not ready ──┼─▶ KILLED ───────┤
                             └─▶ BURIED ───────┘

A replacement (JOINING) is ready before the old worker ends, so capacity never dips; one starts at a time, and a few end
side by side. A worker that retires (its request limit is reached) serves on until then, and so does one that
is recycled because of its age or its memory: these one at a time, the end of the old one included.

A worker that cannot start, is not ready in time, or crashes soon, leaves the others alone: it is started again, ever
more slowly. The set fails if none of the first workers comes to serve, or if too many crash in a row while none serves.
"""

from __future__ import annotations

import enum
import logging
import signal
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from uvicorn.serving.drain import Stage
from uvicorn.serving.kill_deadlines import FORCED_WAIT, GracePeriods
from uvicorn.supervisors.recycle import MIB, Reason, RecycleLimits
from uvicorn.supervisors.worker import Worker
from uvicorn.worker_events import EventKind, WorkerEvent, WorkerEvents, how_ended, signal_name

FIRST_DELAY = 0.5
"""Seconds before a worker that died before it served is started for the second time; the first time it is at once."""

OVERSLEPT = 1.0
"""Seconds the set may be called late before it takes itself for having been stopped or suspended."""

LONGEST_DELAY = 8.0
"""Seconds that delay grows to, doubling each time."""

STARTS_AGAIN = 2
"""First workers killed by a signal that are started again before the set gives up: a signal may be an accident."""

LEAVING_AT_ONCE = 4
"""Old workers that may end side by side in a restart: each is a process, with its memory, beside those that serve."""

KILL_WAIT = 1.0
"""Seconds a killed worker gets to disappear before it is left to be collected later."""

STEADY = 10.0
"""Seconds a worker serves before its crash is one by itself, and no longer one of a row."""

LAST_WORDS = 0.5
"""Seconds before a late worker is killed, when it is asked for its stacks."""

STACKS_TIME, STACKS_INTERVAL = 0.25, 0.02
"""Seconds that workers have to write their stacks before they are killed, and between two checks whether they have."""

GRACEFUL = (0, -signal.SIGTERM, -signal.SIGINT)
"""Exit statuses of a server after a graceful shutdown."""

LATE = "did not end in time"
"""Why a worker was killed that was to end, for the log."""

KILLED_BY = {
    "unresponsive": "timeout_worker_healthcheck",
    "deadline": "timeout_graceful_shutdown",
    "startup": "timeout_worker_ready",
}
"""The setting behind each reason for a kill, for the log."""

STOPPING = "stopping the parent process"
"""The consequence of a worker's end if the set has failed, for the log."""

SAMPLE_INTERVAL = 1.0
"""Seconds between two looks at the memory of the workers."""

logger = logging.getLogger("uvicorn.error")

W = TypeVar("W", bound=Worker)


class Phase(enum.IntEnum):
    """The phase of a worker; the module's diagram shows the transitions."""

    JOINING = 0
    """Replaces another worker, which still serves, once it is ready."""
    STARTED = 1
    """In charge, but it has not served yet."""
    SERVING = 2
    """In charge, and serves."""
    ENDING = 3
    """Shuts down gracefully."""
    KILLED = 4
    """Killed on purpose: its end does not count as a crash."""
    BURIED = 5
    """Killed and reported, but its process is not gone yet."""


class Outlook(enum.IntEnum):
    """The experience with the workers so far; it only ever goes forward."""

    OPEN = 0
    """None has served yet, and none has failed by itself."""
    DOUBTFUL = 1
    """One has failed to start, and none has served: the set starts no more until one of the others serves."""
    PROVEN = 2
    """One has served."""
    FAILED = 3
    """The set is to be drained."""


@dataclass(eq=False)
class Member(Generic[W]):
    """One worker and its record.

    Attributes:
        replaces: the member whose place it takes, while it is JOINING.
        ready_by: when it has to serve; None for any time.
        since: when it began to serve; 0 before.
        limits: its lifetime and its memory at most.
        memory: resident bytes, if they are limited.
        is_steady: it has served for `STEADY` seconds.
        reason: why it is to be replaced; None if it is not.
        turn: the member with the lowest number is replaced next.
        told_at: when its shutdown began, or it was killed.
        last_words: seconds before it is killed, late to serve or to end, when it is asked for its stacks; 0 if it was.
        beside_crash: it was in charge when another crashed; several that crash together count once.
    """

    worker: W
    phase: Phase
    replaces: Member[W] | None = None
    ready_by: float | None = None
    since: float = 0.0
    limits: RecycleLimits = field(default_factory=RecycleLimits)
    memory: int | None = None
    is_steady: bool = False
    reason: Reason | None = None
    turn: float = 0.0
    told_at: float | None = None
    last_words: float = LAST_WORDS
    beside_crash: bool = False


class WorkerSet(Generic[W]):
    """Keeps `size` workers running.

    Args:
        make: makes a worker, not started yet.
        size: how many to keep.
        grace: how long a worker may take to end.
        ready_timeout: seconds a new worker has until it serves; None for any time.
        clock: seconds, monotonic.
        recycling: draws the limits of one worker.
        crash_limit: crashes in a row after which the set fails if no worker serves; None or 0 for any number.
        events: receives the events of workers.
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
        self.size = size
        self.events = events or WorkerEvents()
        self._make = make
        self._grace = grace
        self._ready_timeout = ready_timeout
        self._clock = clock
        self._recycling = recycling
        self._crash_limit = crash_limit
        self._members: list[Member[W]] = []  # until their end was noted; those in charge, the newest last
        self._drained: list[W] | None = None  # in charge when the drain began
        self._outlook = Outlook.OPEN
        self._replace_again = False
        self._aborted = 0  # replacements in a row
        self._retire_at = 0.0  # no earlier
        self._failures = 0  # to start, in a row
        self._crashes = 0  # of those that had just come to serve, in a row
        self._in_vain = 0  # workers since the last one that was steady
        self._start_at = 0.0
        self._sample_at = 0.0
        self._kill_at: float | None = None
        self._next_watch: float | None = None

    # Verbs

    def start(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Start as many workers as are missing, as far as the system has room for them, until `is_over`."""
        while len(self._in_charge) < self.size and not is_over():
            try:
                self._launch(Phase.STARTED)
            except OSError as exc:
                if not self._in_charge and self._outlook < Outlook.PROVEN:
                    self._outlook = Outlook.FAILED
                    logger.error("No child process can be started (%s), stopping the parent process.", exc)
                    return
                # Those that run go on.
                self._failures += 1
                delay = restart_delay(self._failures + 1)
                self._start_at = self._clock() + delay
                message = "No child process can be started (%s); %d of %d run, %s."
                logger.error(message, exc, len(self._in_charge), self.size, _trying_again(delay))
                return

    def exchange(self, old: Collection[W], new: Collection[W]) -> None:
        """Let some workers go their own way, and take charge of others that a program has started, in their place.

        These need not be ready in time: what a program runs there may serve without ever reporting so.
        """
        place = next((n for n, member in enumerate(self._members) if member.worker in old), len(self._members))
        self._members[place:place] = [Member(worker, Phase.STARTED) for worker in new]
        self._members = [member for member in self._members if member.worker not in old]

    def replace_all(self) -> None:
        """Replace every worker by a new one, one after the other, and these again if it is asked for meanwhile.

        The caller has changed something, so a worker that could not start is tried again at once.
        """
        self._failures, self._crashes, self._in_vain, self._start_at = 0, 0, 0, self._clock()
        if self._joining is not None or self._is_restarting:
            self._replace_again = True
        else:
            self._restart()

    def scale(self, size: int) -> None:
        """Keep `size` workers from now on; superfluous ones, the newest first, end gracefully."""
        self.size = size
        self.start()
        for member in reversed(self._in_charge[size:]):
            self._dismiss(member)

    def drain(self, *, tell: bool = True) -> None:
        """Tell all workers to end and start no more; without `tell`, something else does that."""
        self._drained = self.workers
        self._replace_again = False
        if (new := self._joining) is not None:
            self._dismiss(new)
        for member in self._in_charge:
            member.phase, member.told_at = Phase.ENDING, self._clock()
            if tell:
                member.worker.terminate()

    def hurry(self) -> None:
        """Tell the workers that are ending not to wait for clients, and kill them soon."""
        for member in self._ending:
            member.worker.hurry()
        if self._kill_at is None:
            self._kill_at = self._clock() + FORCED_WAIT

    def watch(self) -> None:
        """Read the workers' reports, remove the dead, kill the silent and the late, start missing ones."""
        now = self._clock()
        if self._next_watch is not None and now - self._next_watch > OVERSLEPT:
            # While this process did not run it heard no worker.
            for member in self._members:
                member.worker.excuse(now - self._next_watch)
                if member.ready_by is not None:
                    member.ready_by += now - self._next_watch
        self._next_watch = None
        for worker in self.everyone:
            worker.listen(now)
        self._look_after_ending(now)
        if self.is_draining:
            return
        self._look_after_workers(now)
        if self.failed:
            return
        self._replace_next(now)
        start_at = self._time_to_start()
        if start_at is not None and now >= start_at:
            self.start()

    # Views

    @property
    def workers(self) -> list[W]:
        """The workers in charge, the newest last; while the set drains, those that were in charge before."""
        return self._drained or [member.worker for member in self._in_charge]

    @property
    def everyone(self) -> list[W]:
        """The workers in charge, those that are ending, and the one that joins."""
        return [member.worker for member in self._members]

    @property
    def sources(self) -> list[Any]:
        """Objects that become ready when there is something to `watch`."""
        # They include workers that have ended since the last `watch`, which has yet to note that.
        return [source for worker in self.everyone for source in worker.sources]

    @property
    def failed(self) -> bool:
        """Whether the application cannot start, or keeps crashing: drain the set."""
        return self._outlook is Outlook.FAILED

    @property
    def is_draining(self) -> bool:
        """Whether all workers are ending, and no more are started."""
        return self._drained is not None

    @property
    def is_replacing(self) -> bool:
        """Whether a replacement is going on."""
        is_next = any(member.reason is not None for member in self._in_charge)
        return is_next or self._replace_again or self._joining is not None

    @property
    def is_serving(self) -> bool:
        """Whether all workers serve, and none is being replaced."""
        return len(self._in(Phase.SERVING)) == len(self._in_charge) == self.size and not self.is_replacing

    @property
    def is_settled(self) -> bool:
        """Whether no worker is being replaced or ending."""
        return not self.is_replacing and not self._ending

    def is_done_with(self, worker: W) -> bool:
        """Whether the set has noted the end of a worker, or never had it."""
        return worker not in self.everyone

    def _in(self, *phases: Phase) -> list[Member[W]]:
        return [member for member in self._members if member.phase in phases]

    @property
    def _in_charge(self) -> list[Member[W]]:
        return self._in(Phase.STARTED, Phase.SERVING)

    @property
    def _ending(self) -> list[Member[W]]:
        return self._in(Phase.ENDING, Phase.KILLED, Phase.BURIED)

    @property
    def _joining(self) -> Member[W] | None:
        return next(iter(self._in(Phase.JOINING)), None)

    def next_deadline(self) -> float | None:
        """When to `watch` if no source becomes ready before; None if nothing is due ever."""
        deadlines = [self._time_to_act(member) for member in self._ending]
        if not self.is_draining:
            for member in self._in_charge:
                deadlines += [member.worker.deadline, self._time_to_act(member), self._time_to_recycle(member)]
            deadlines += [self._time_to_act(member) for member in self._in(Phase.JOINING)]
            deadlines.append(self._time_to_start())
        self._next_watch = min((when for when in deadlines if when is not None), default=None)
        return self._next_watch

    # Those in charge

    def _launch(self, phase: Phase, replaces: Member[W] | None = None) -> None:
        """Start a worker.

        Raises:
            OSError: there is no room for another: no process, descriptor or memory is left.
        """
        worker = self._make()
        worker.start()
        self._tell("start", worker, "Child process [%d] was started", level=logging.DEBUG)
        ready_by = None if self._ready_timeout is None else self._clock() + self._ready_timeout
        self._members.append(Member(worker, phase, replaces, ready_by))

    def _tell(
        self, kind: EventKind, worker: W, message: str, *arguments: object, level: int, reason: str | None = None
    ) -> None:
        """Report an event: with the exit status if the worker has ended, which is also the reason of a crash."""
        exitcode = worker.exitcode if kind in ("exit", "crash") else None
        if kind == "crash" and reason is None and exitcode is not None:
            reason = signal_name(-exitcode) if exitcode < 0 else f"status {exitcode}"
        self.events.tell(WorkerEvent(kind, worker.pid, reason, exitcode), level, message, *arguments)

    def _time_to_start(self) -> float | None:
        """When to start the workers that are missing; None if none is, or none is to be started."""
        may_start = self._outlook in (Outlook.OPEN, Outlook.PROVEN) and len(self._in_charge) < self.size
        return self._start_at if may_start else None

    def _look_after_workers(self, now: float) -> None:
        has_served = bool(self._in(Phase.SERVING))
        for member in self._in_charge:
            self._welcome(member, now)
            while (blockade := member.worker.blockade()) is not None:
                # That alone does not get a worker killed.
                seconds, stacks = blockade
                message = "The event loop of child process [%d] has been blocked for %.1f seconds."
                self._tell("blocked", member.worker, message, seconds, level=logging.WARNING)
                self._log_stacks(member.worker, stacks, "was stuck", logging.WARNING)
        if now >= self._sample_at:
            for member in self._in_charge:
                if member.limits.memory is not None and member.worker.exitcode is None:
                    member.memory = member.worker.memory()
                    self._sample_at = now + SAMPLE_INTERVAL
        doomed: list[tuple[Member[W], str, str]] = []
        for member in self._in_charge:
            worker = member.worker
            if worker.exitcode is not None:
                self._bury(member, now)
            elif worker.is_silent(now):
                doomed.append((member, "unresponsive", f"does not answer{_why(worker)}"))
            elif self._is_late(member, now):
                if worker.stage is Stage.STARTING:
                    doomed.append((member, "startup", f"was not ready within {self._ready_timeout:g} seconds"))
                else:  # it has ended by itself, but something keeps it from exiting
                    doomed.append((member, "deadline", LATE))
            elif now >= self._retire_at and (reason := self._reason_to_recycle(member, now)) is not None:
                member.reason, member.turn = reason, now
        _insist_on_stacks([member.worker for member, _, _ in doomed])
        for member, cause, what in doomed:
            self._bury(member, now, cause, what)
        if has_served and not self._in(Phase.SERVING) and not self.failed:
            self._report_outage()

    def _report_outage(self) -> None:
        """Log that nothing is served until a new worker is ready."""
        message = "No child process serves: connections wait until a new one is ready"
        if self._ready_timeout is None:
            logger.error("%s, however long that takes (timeout_worker_ready is 0).", message)
        else:
            logger.error(
                "%s; one that takes %g seconds is killed (timeout_worker_ready).", message, self._ready_timeout
            )

    def _log_stacks(self, worker: W, stacks: str, what: str, level: int = logging.ERROR) -> None:
        if stacks:
            message = "Child process [%d] %s here:\n%s"
            logger.log(level, message, worker.pid, what, stacks, extra={"worker_pid": worker.pid})

    def _log_crash(self, worker: W) -> None:
        self._log_stacks(worker, worker.take_crash(), "crashed")

    def _welcome(self, member: Member[W], now: float) -> None:
        """Note that a worker serves."""
        worker = member.worker
        if not worker.has_served or member.phase is Phase.SERVING:
            return
        member.phase, member.limits = Phase.SERVING, self._recycling()
        member.last_words = LAST_WORDS
        member.since = worker.stage_since if worker.stage is Stage.SERVING else now
        self._advance(Outlook.PROVEN)
        self._failures = 0
        self._tell("ready", worker, "Child process [%d] serves", level=logging.DEBUG)

    def _advance(self, outlook: Outlook) -> None:
        self._outlook = max(self._outlook, outlook)

    def _bury(self, member: Member[W], now: float, reason: str = "", what: str = "") -> None:
        """Remove a dead worker, or kill it for `reason`, and decide when, and whether, to start another."""
        worker = member.worker
        if reason:
            self._kill(member)
        worker.wait(KILL_WAIT)
        worker.listen(now)  # its last words
        if not reason:
            self._log_crash(worker)
        for other in [*self._in(Phase.SERVING), member]:
            if other.since and not other.is_steady and now >= other.since + STEADY:
                # From now on crashes are a new row.
                other.is_steady = True
                self._crashes = self._in_vain = 0
        self._members.remove(member)
        if (new := self._joining) is not None and new.replaces is member:
            new.phase, new.replaces = Phase.STARTED, None  # in charge as it is
        if worker.has_served:
            self._advance(Outlook.PROVEN)
            is_crash = member.phase is Phase.KILLED or self._kind_of_end(member) == "crash"
            is_brief = is_crash and worker.stage <= Stage.RETIRING and not member.is_steady
            if is_brief and not member.beside_crash:
                self._crashes += 1
                self._in_vain += 1
                for other in self._in_charge:
                    other.beside_crash = True
            delay = restart_delay(self._crashes) if is_brief else 0.0
        else:
            self._failures += 1
            self._in_vain += 1
            delay = restart_delay(max(self._failures, self._crashes))
        self._start_at = now + delay
        serving = self._in(Phase.SERVING)
        gives_up = bool(self._crash_limit and self._in_vain >= self._crash_limit and not serving)
        if worker.has_served:
            another = f"starting another in {delay:g} s" if delay else "starting another at once"
            follows = f", {STOPPING if gives_up else another}"
            if reason:
                self._report_kill(worker, reason, what, follows)
            self._report_end(member, follows)
        else:
            if reason:
                self._report_kill(worker, reason, what)
            self._report_failure(worker, gives_up, delay, is_overdue=reason == "startup")
        if worker.exitcode is not None:
            worker.collect()
        else:
            member.phase = Phase.BURIED
            self._members.append(member)
        if gives_up and not self.failed:
            self._outlook = Outlook.FAILED
            logger.error(
                "%d child processes in a row died before they had served for %d seconds, the last one [%d] (%s); "
                "stopping the parent process. Set limit_worker_crashes to 0 to keep trying.",
                self._in_vain,
                STEADY,
                worker.pid,
                _how_ended(worker),
            )

    def _kind_of_end(self, member: Member[W]) -> EventKind:
        """Classify the end of a worker; one that was killed has been reported as killed."""
        is_graceful = member.phase is Phase.ENDING or member.worker.stage > Stage.RETIRING
        is_exit = member.phase is Phase.KILLED or (is_graceful and member.worker.exitcode in GRACEFUL)
        return "exit" if is_exit else "crash"

    def _report_end(self, member: Member[W], follows: str = "") -> None:
        """Log how a worker has ended: with an error where something was lost, unless its kill was one."""
        kind, worker, was_told = self._kind_of_end(member), member.worker, member.told_at is not None
        if kind == "crash":
            if was_told:
                self._log_crash(worker)
            message = f"Child process [%d] died{' while shutting down' * was_told} (%s)%s%s."
            self._tell(kind, worker, message, _how_ended(worker), _lost_with(worker), follows, level=logging.ERROR)
        elif was_told:
            self._tell(kind, worker, "Child process [%d] has ended", level=logging.DEBUG)
        else:
            self._tell(kind, worker, "Child process [%d] died", level=logging.INFO)

    def _report_failure(self, worker: W, gives_up: bool, delay: float, is_overdue: bool) -> None:
        """Log that a worker ended before it served, the reason, and the consequence."""
        may_be_accident = not is_overdue and (worker.exitcode is None or worker.exitcode < 0)
        if not may_be_accident or self._failures >= self.size + STARTS_AGAIN:
            self._advance(Outlook.DOUBTFUL)
        if self._outlook is Outlook.DOUBTFUL and not self._in_charge:
            self._outlook = Outlook.FAILED
        if self.failed or gives_up:
            follows = STOPPING
        elif self._outlook is Outlook.DOUBTFUL:
            follows = "waiting for the others"
        else:
            follows = _trying_again(delay)
        message = "Child process [%d] failed to start (%s), %s."
        self._tell("crash", worker, message, _how_ended(worker), follows, level=logging.ERROR, reason="startup")

    def _kill(self, member: Member[W]) -> None:
        member.phase = Phase.KILLED
        member.worker.kill()
        member.worker.wait(KILL_WAIT)

    def _report_kill(self, worker: W, reason: str, what: str, follows: str = "") -> None:
        """Log why a worker was killed, its lost requests, and the next step."""
        message = "Child process [%d] %s, killing it%s%s (%s)."
        arguments = what, _lost_with(worker), follows, KILLED_BY[reason]
        self._tell("kill", worker, message, *arguments, level=logging.ERROR, reason=reason)
        self._log_stacks(worker, worker.take_stacks(), "was stuck")

    # Those that have served enough

    def _reason_to_recycle(self, member: Member[W], now: float) -> Reason | None:
        """Why the worker should be replaced; None if nothing says so, or that is under way."""
        if member.phase is not Phase.SERVING or member.reason is not None:
            return None
        if member.worker.stage is Stage.RETIRING:
            return Reason.REQUESTS
        return member.limits.reached(now - member.since, member.memory)

    def _time_to_recycle(self, member: Member[W]) -> float | None:
        """When to check whether to replace a worker; None if it reports that, or is being replaced."""
        if member.phase is not Phase.SERVING or member.reason is not None:
            return None
        if member.worker.stage is Stage.RETIRING:
            return self._retire_at
        limits = member.limits
        times = [] if limits.lifetime is None else [member.since + limits.lifetime]
        times += [] if limits.memory is None else [self._sample_at]
        return max(min(times), self._retire_at) if times else None

    # Those that are to end

    def _dismiss(self, member: Member[W]) -> None:
        """End a worker while others serve."""
        member.phase, member.told_at = Phase.ENDING, self._clock()
        member.worker.relieve()
        member.worker.terminate()

    def _look_after_ending(self, now: float) -> None:
        late = [member for member in self._ending if member.worker.exitcode is None and self._is_late(member, now)]
        _insist_on_stacks([member.worker for member in late])
        for member in self._ending:
            if member in late:
                self._kill(member)
                self._report_kill(member.worker, "deadline", LATE)
            elif member.worker.exitcode is not None:
                if member.phase is not Phase.BURIED:
                    self._report_end(member)
                self._members.remove(member)
                if not self.is_draining:  # otherwise its supervisor joins it
                    member.worker.join()

    def _is_late(self, member: Member[W], now: float) -> bool:
        """Whether a worker is late to serve or to end; shortly before that, it is asked for its stacks."""
        deadline = self._time_to_kill(member)
        if deadline is None:
            return False
        if member.last_words and now >= deadline - member.last_words:
            member.last_words = 0
            member.worker.ask_for_stacks()
        return now >= deadline

    def _time_to_act(self, member: Member[W]) -> float | None:
        """When to kill a worker, or to ask for its last words before that."""
        deadline = self._time_to_kill(member)
        return None if deadline is None else deadline - member.last_words

    def _time_to_kill(self, member: Member[W]) -> float | None:
        told_at, worker = member.told_at, member.worker
        if member.phase in (Phase.KILLED, Phase.BURIED):
            return None  # nothing is stronger: the system has yet to remove it
        if told_at is None:
            if worker.stage is Stage.STARTING or member.phase is Phase.JOINING:
                return member.ready_by
            if worker.stage <= Stage.RETIRING:
                return None
            told_at = worker.stage_since
        deadline = self._grace.deadline(told_at, worker.stage, worker.stage_since)
        return min((when for when in (deadline, self._kill_at) if when is not None), default=None)

    # Replacement

    @property
    def _is_restarting(self) -> bool:
        """Whether workers are still to be replaced for `replace_all`."""
        return any(member.reason is Reason.RESTART for member in self._in_charge)

    def _restart(self) -> None:
        for member in self._in_charge:
            member.reason, member.turn = Reason.RESTART, 0.0

    def _replace_next(self, now: float) -> None:
        """Continue the replacement in progress, or begin the next; restarts go before recycled workers."""
        if (new := self._joining) is not None:
            self._await_replacement(new, now)
        ending = len(self._ending)
        if self._joining is not None or ending >= LEAVING_AT_ONCE:
            return
        if self._replace_again and not self._is_restarting:
            self._replace_again = False
            self._restart()
        waiting = [member for member in self._in_charge if member.reason is not None]
        if not waiting:
            return
        old = min(waiting, key=lambda member: member.turn)
        # One is recycled at a time, its end included, unless that end has no deadline.
        if old.reason is Reason.RESTART or not ending or self._grace.drain is None:
            self._begin_replacement(old, now)

    def _begin_replacement(self, old: Member[W], now: float) -> None:
        assert old.reason is not None
        worker, message, level, arguments = old.worker, "Recycling child process [%d]: it ", logging.INFO, []
        if old.reason is Reason.RESTART:
            message, level = "Restarting child process [%d]", logging.DEBUG
        elif old.reason is Reason.REQUESTS:
            message, level = message + "has reached its limit of requests.", logging.DEBUG
        elif old.reason is Reason.LIFETIME:
            message, arguments = message + "has served for %d seconds.", [now - old.since]
        else:
            message, arguments = message + "occupies %d MiB.", [(old.memory or 0) // MIB]
        self._tell("recycle", worker, message, *arguments, level=level, reason=old.reason.value)
        try:
            self._launch(Phase.JOINING, old)
        except OSError as exc:
            aborts = "No child process can be started (%s); keeping worker [%d] and aborting the restart."
            logger.error(aborts, exc, worker.pid)
            self._give_up_replacing(now)

    def _await_replacement(self, new: Member[W], now: float) -> None:
        old, worker = new.replaces, new.worker
        assert old is not None
        if worker.exitcode is None and worker.can_replace():
            self._aborted = 0
            if old not in self._in_charge:  # it was superfluous meanwhile
                self._dismiss(new)
                return
            self._members.remove(new)
            self._members[self._members.index(old)] = new
            self._members.append(old)
            new.phase, new.replaces = Phase.STARTED, None  # keep no worker that has ended
            self._welcome(new, now)
            self._dismiss(old)
        elif worker.exitcode is not None:
            self._abort_replacement(new, old, now, f"failed to start ({how_ended(worker.exitcode)})")
        elif self._is_late(new, now):
            self._abort_replacement(new, old, now, "was not ready in time")

    def _give_up_replacing(self, now: float) -> None:
        self._replace_again = False
        for member in self._in_charge:
            member.reason = None
        # A worker that retires will ask again, every time: not at once.
        self._aborted += 1
        self._retire_at = now + restart_delay(self._aborted + 1)

    def _abort_replacement(self, new: Member[W], old: Member[W], now: float, why: str) -> None:
        self._give_up_replacing(now)
        kind: EventKind = "kill" if new.worker.exitcode is None else "crash"
        message = "New child process [%d] %s; keeping worker [%d] and aborting the restart."
        self._tell(kind, new.worker, message, why, old.worker.pid, level=logging.ERROR, reason="startup")
        if kind == "kill":
            _insist_on_stacks([new.worker])
            self._log_stacks(new.worker, new.worker.take_stacks(), "was stuck")
        else:
            self._log_crash(new.worker)
        new.phase, new.told_at = Phase.KILLED, now
        new.worker.kill()


def _insist_on_stacks(workers: Collection[Worker]) -> None:
    """Have workers that are to be killed write down their stacks, and wait for all of them together."""
    writing = [worker for worker in workers if worker.insist_on_stacks()]
    for _ in range(round(STACKS_TIME / STACKS_INTERVAL)):
        if not writing:
            return
        time.sleep(STACKS_INTERVAL)
        writing = [worker for worker in writing if worker.is_writing()]


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


def _trying_again(delay: float) -> str:
    return f"trying again in {delay:g} s" if delay else "trying again"


def restart_delay(failures: int) -> float:
    """Seconds to wait before the next attempt, after `failures` workers in a row have ended before they served."""
    return 0.0 if failures <= 1 else min(FIRST_DELAY * 2.0 ** min(failures - 2, 16), LONGEST_DELAY)
