"""The pool, with workers that do as they are told and a clock that goes when it is told."""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from uvicorn.serving.drain import Stage
from uvicorn.serving.kill_deadlines import FORCED_WAIT, GracePeriods
from uvicorn.supervisors.recycle import MIB, Reason, RecycleLimits
from uvicorn.supervisors.worker_set import (
    LAST_WORDS,
    LEAVING_AT_ONCE,
    OVERSLEPT,
    SAMPLE_INTERVAL,
    STEADY,
    WorkerSet,
    restart_delay,
)
from uvicorn.worker_events import WorkerEvent, WorkerEvents


class FakeWorker:
    """A worker that only remembers; the tests decide what becomes of it."""

    def __init__(self, pid: int, clock: Clock) -> None:
        self.pid: int | None = pid
        self.clock = clock
        self.exitcode: int | None = None
        self.stage = Stage.STARTING
        self.stage_since = clock.now
        self.has_served = False
        self.silent = False
        self.relieved = False
        self.occupies: int | None = None
        self.connected: int | None = None
        self.deadline: float | None = None
        self.has_pulse: bool | None = None
        self.blocked: float | None = None
        self.seems_to_write = False
        self.writes = 0
        self.stacks = ""
        self.excused = 0.0
        self.log: list[str] = []
        self.dies_when_killed = True

    def start(self) -> None:
        self.log.append("start")

    def relieve(self) -> None:
        self.relieved = True

    def terminate(self) -> None:
        self.log.append("terminate")

    def hurry(self) -> None:
        self.log.append("hurry")

    def kill(self) -> None:
        self.log.append("kill")
        if self.dies_when_killed:
            self.exitcode = -9

    def wait(self, timeout: float | None = None) -> None:
        self.log.append("wait")

    def collect(self) -> None:
        self.log.append("collect")

    def join(self) -> None:
        self.log.append("join")

    def can_replace(self) -> bool:
        return self.stage in (Stage.SERVING, Stage.RETIRING)

    def is_silent(self, now: float) -> bool:
        return self.silent

    def excuse(self, seconds: float) -> None:
        self.excused += seconds

    def listen(self, now: float) -> None:
        pass

    def memory(self) -> int | None:
        return self.occupies

    def connections(self) -> int | None:
        return self.connected

    def blockade(self) -> tuple[float, str] | None:
        seconds, self.blocked = self.blocked, None
        return None if seconds is None else (seconds, self.take_stacks())

    def ask_for_stacks(self) -> None:
        self.log.append("stacks")

    def insist_on_stacks(self) -> bool:
        self.log.append("stacks!")
        self.writes = 2
        return self.seems_to_write

    def is_writing(self) -> bool:
        self.writes -= 1
        return self.writes > 0

    def take_stacks(self) -> str:
        stacks, self.stacks = self.stacks, ""
        return stacks

    def take_crash(self) -> str:
        return self.take_stacks()

    @property
    def sources(self) -> list[Any]:
        return [f"sentinel of {self.pid}"]

    # What the tests say

    def reach(self, stage: Stage) -> None:
        self.stage = stage
        self.stage_since = self.clock.now
        self.has_served = self.has_served or stage is Stage.SERVING

    def exit(self, code: int) -> None:
        self.exitcode = code


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A pool of fake workers; `made` are all there ever were."""

    def __init__(
        self, size: int = 2, grace: GracePeriods | None = None, ready_timeout: float | None = 5, **options: Any
    ) -> None:
        self.clock = Clock()
        self.made: list[FakeWorker] = []
        self.has_room = True
        grace = grace or GracePeriods(drain=10, lifespan=20, exit=3)
        self.events: list[WorkerEvent] = []
        options["events"] = WorkerEvents(self.events.append)
        self.pool: WorkerSet[FakeWorker] = WorkerSet(self.make, size, grace, ready_timeout, clock=self.clock, **options)

    def make(self) -> FakeWorker:
        if not self.has_room:
            raise BlockingIOError(errno.EAGAIN, "no room")
        self.made.append(FakeWorker(len(self.made) + 1, self.clock))
        return self.made[-1]

    def watch(self, after: float = 0) -> None:
        self.pool.next_deadline()
        self.clock.now += after
        self.pool._next_watch = None  # the pool was not called late: the test has made time go
        self.pool.watch()

    def serving(self) -> Bench:
        self.pool.start()
        for worker in self.made:
            worker.reach(Stage.SERVING)
        self.watch()
        return self

    @property
    def pids(self) -> list[int | None]:
        return [worker.pid for worker in self.pool.workers]


OUTAGE = (
    "No child process serves: connections wait until a new one is ready; "
    "one that takes 5 seconds is killed (timeout_worker_ready)."
)


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="uvicorn.error")
    return caplog


def test_drain_of_workers_that_have_been_told() -> None:
    bench = Bench(2)
    bench.pool.start()
    bench.pool.drain(tell=False)
    assert bench.pool.is_draining
    assert all("terminate" not in worker.log for worker in bench.made)


# Death and silence


def test_start_goes_on_until_it_is_over() -> None:
    bench = Bench(5)
    bench.pool.start(lambda: len(bench.made) == 2)
    assert bench.pids == [1, 2]
    bench.pool.drain()
    bench.watch(60)
    assert len(bench.made) == 2


def test_pool_starts_as_many_as_asked_for() -> None:
    bench = Bench(3)
    bench.pool.start()
    bench.pool.start()
    assert bench.pids == [1, 2, 3]
    assert all(worker.log == ["start"] for worker in bench.made)


@pytest.mark.parametrize(
    ("code", "how"),
    [(-9, "killed by SIGKILL"), (-15, "killed by SIGTERM"), (0, "exit status 0"), (1, "exit status 1")],
)
def test_worker_that_has_served_is_replaced_at_once(code: int, how: str, log: pytest.LogCaptureFixture) -> None:
    """MP-14, MP-21, X1: an operator who reads errors only learns how it ended, what was lost and what follows."""
    bench = Bench().serving()
    bench.made[0].connected = 3
    bench.made[0].exit(code)
    bench.watch()
    assert bench.pids == [2, 3]
    assert bench.made[0].log == ["start", "wait", "collect"]
    assert log.messages == [f"Child process [1] died ({how}), 3 connections lost, starting another at once."]
    assert log.records[0].levelname == "ERROR"
    assert not bench.pool.failed


def test_worker_that_has_ended_by_itself_is_replaced_without_a_word_of_loss(log: pytest.LogCaptureFixture) -> None:
    """MP-14: somebody sent it SIGTERM, and it finished what it had begun."""
    bench = Bench().serving()
    bench.made[0].reach(Stage.ENDED)
    bench.made[0].exit(0)
    bench.watch()
    assert bench.pids == [2, 3]
    assert [(record.levelname, record.message) for record in log.records] == [("INFO", "Child process [1] died")]


def test_crash_of_a_worker_that_is_ending_is_an_error(log: pytest.LogCaptureFixture) -> None:
    """MP-14: its clients lose what it had promised to finish."""
    bench = Bench().serving()
    bench.pool.drain()
    bench.made[0].connected = 1
    bench.made[0].exit(-11)
    bench.watch()
    assert log.messages == ["Child process [1] died while shutting down (killed by SIGSEGV), 1 connection lost."]
    assert log.records[0].levelname == "ERROR"
    assert bench.events[-1].reason == "SIGSEGV"


def test_silent_worker_is_killed_and_replaced_in_one_go(log: pytest.LogCaptureFixture) -> None:
    """MP-15, MP-17: nobody waits for it."""
    bench = Bench().serving()
    bench.made[0].silent = True
    bench.made[1].silent = True
    bench.watch()
    assert bench.pids == [3, 4]
    assert "kill" in bench.made[0].log
    assert log.messages == [
        "Child process [1] does not answer, killing it, starting another at once (timeout_worker_healthcheck).",
        "Child process [1] died",
        "Child process [2] does not answer, killing it, starting another at once (timeout_worker_healthcheck).",
        "Child process [2] died",
        OUTAGE,
    ]
    assert [record.levelname for record in log.records] == ["ERROR", "INFO", "ERROR", "INFO", "ERROR"]


@pytest.mark.parametrize(("served", "failed"), [(STEADY - 1, True), (STEADY, False)])
def test_only_a_worker_that_falls_silent_soon_counts_as_a_crash_in_a_row(served: float, failed: bool) -> None:
    """MP-18"""
    bench = Bench(1, crash_limit=1).serving()
    bench.watch(after=served)
    bench.made[0].silent = True
    bench.watch()
    assert bench.pool.failed is failed


def test_killed_worker_that_does_not_disappear_is_collected_later() -> None:
    """MP-17: a process in an uninterruptible call cannot be killed yet."""
    bench = Bench(1).serving()
    bench.made[0].silent = True
    bench.made[0].dies_when_killed = False
    bench.watch()
    assert bench.pids == [2]
    assert bench.made[0] in bench.pool.everyone
    bench.made[0].exit(-9)
    bench.watch()
    assert bench.made[0] not in bench.pool.everyone


@pytest.mark.parametrize("code", [0, 1, 3])
def test_pool_whose_first_workers_all_fail_has_failed(code: int, log: pytest.LogCaptureFixture) -> None:
    """MP-18, MP-19, X1: another attempt would end the same way."""
    bench = Bench(ready_timeout=None)
    bench.pool.start()
    bench.made[1].exit(code)
    bench.watch()
    assert not bench.pool.failed
    bench.watch(after=60)
    assert len(bench.made) == 2, "the other one decides whether it is of use"
    bench.made[0].exit(code)
    bench.watch()
    assert bench.pool.failed
    assert len(bench.made) == 2
    assert log.messages == [
        f"Child process [2] failed to start (exit status {code}), waiting for the others.",
        f"Child process [1] failed to start (exit status {code}), stopping the parent process.",
    ]


def test_pool_whose_first_workers_are_all_killed_has_failed(log: pytest.LogCaptureFixture) -> None:
    """X1: one signal may be an accident, but an import that crashes would crash for ever while the port accepts."""
    bench = Bench(1)
    bench.pool.start()
    for _ in range(2):
        bench.made[-1].exit(-11)
        bench.watch()
        assert not bench.pool.failed
        bench.watch(after=0.5)
    bench.made[-1].exit(-11)
    bench.watch()
    assert bench.pool.failed
    assert log.messages == [
        "Child process [1] failed to start (killed by SIGSEGV), trying again.",
        "Child process [2] failed to start (killed by SIGSEGV), trying again in 0.5 s.",
        "Child process [3] failed to start (killed by SIGSEGV), stopping the parent process.",
    ]


def test_pool_whose_first_workers_fail_or_are_killed_has_failed() -> None:
    """X1: nobody is left to show that it is of use."""
    bench = Bench()
    bench.pool.start()
    bench.made[0].exit(3)
    bench.made[1].exit(-9)
    bench.watch()
    assert bench.pool.failed
    assert bench.pool.next_deadline() is None


def test_worker_that_cannot_start_spares_those_that_serve(log: pytest.LogCaptureFixture) -> None:
    """MP-18: a database that took one connection too few must not end the whole service."""
    bench = Bench()
    bench.pool.start()
    bench.made[0].exit(3)
    bench.watch()
    bench.made[1].reach(Stage.SERVING)
    bench.watch()
    assert bench.pids == [2, 3]
    for pid in (3, 4):
        bench.made[-1].exit(3)
        bench.watch()
        assert not bench.pool.failed
        assert log.messages[-1].startswith(f"Child process [{pid}] failed to start (exit status 3), trying again")
    assert log.messages[-1].endswith("trying again in 0.5 s.")
    assert bench.pids == [2]
    assert bench.pool.next_deadline() == bench.clock.now + 0.5
    bench.watch(after=0.5)
    assert bench.pids == [2, 5]
    assert "terminate" not in bench.made[1].log


def test_worker_that_serves_in_the_same_moment_counts(log: pytest.LogCaptureFixture) -> None:
    """MP-18"""
    bench = Bench()
    bench.pool.start()
    bench.made[0].exit(3)
    bench.made[1].reach(Stage.SERVING)
    bench.watch()
    assert log.messages == ["Child process [1] failed to start (exit status 3), trying again."]
    assert bench.pids == [2, 3]


def test_hangup_tries_again_at_once_what_could_not_start() -> None:
    """MP-08, MP-19: whoever has repaired the code does not wait for the next attempt."""
    bench = Bench().serving()
    bench.made[0].exit(-9)
    for _ in range(4):
        bench.watch(after=10)
        bench.made[-1].exit(1)
    bench.watch()
    assert bench.pids == [2]
    bench.pool.replace_all()
    bench.watch()
    assert len(bench.pids) == 2


def test_worker_that_dies_at_import_later_is_started_again_ever_more_slowly() -> None:
    """MP-19: the code on the disk is broken, but others still serve."""
    bench = Bench().serving()
    bench.made[0].exit(-9)
    bench.watch()
    started = []
    for _ in range(8):
        bench.made[-1].exit(1)
        bench.watch()
        count = len(bench.made)
        waited = 0.0
        while len(bench.pool.workers) < 2:
            assert waited < 20
            waited += 0.25
            bench.watch(after=0.25)
        assert not bench.pool.failed
        assert len(bench.made) == count + (waited > 0)
        started.append(waited)
    assert started == [0, 0.5, 1, 2, 4, 8, 8, 8]
    bench.made[-1].reach(Stage.SERVING)
    bench.watch()
    bench.made[-1].exit(-9)
    bench.watch()
    bench.made[-1].exit(1)
    bench.watch()
    assert len(bench.pool.workers) == 2  # the count has started anew


def test_worker_killed_before_it_served_is_started_again() -> None:
    """X1: not its own fault (killed for lack of memory, for one)."""
    bench = Bench(1)
    bench.pool.start()
    bench.made[0].exit(-9)
    bench.watch()
    assert not bench.pool.failed
    assert bench.pids == [2]


def test_no_room_for_another_process_spares_those_that_serve(log: pytest.LogCaptureFixture) -> None:
    """X1: descriptors, processes or memory may be there again in a moment."""
    bench = Bench().serving()
    bench.made[0].exit(-9)
    bench.has_room = False
    started = bench.clock.now
    for delay in (0.5, 1, 2):
        bench.watch()
        said = f"No child process can be started ([Errno {errno.EAGAIN}] no room); 1 of 2 run, trying again in "
        assert log.messages[-1] == f"{said}{delay:g} s."
        assert bench.pool.next_deadline() == bench.clock.now + delay
        bench.clock.now += delay
    assert not bench.pool.failed
    bench.has_room = True
    bench.watch()
    assert bench.pids == [2, 3]
    assert bench.clock.now == started + 3.5


def test_no_room_for_any_process_is_the_end(log: pytest.LogCaptureFixture) -> None:
    """X1"""
    bench = Bench()
    bench.has_room = False
    bench.pool.start()
    assert bench.pool.failed
    assert log.messages == [
        f"No child process can be started ([Errno {errno.EAGAIN}] no room), stopping the parent process."
    ]


def test_room_for_a_part_of_the_first_processes_is_enough() -> None:
    """X1"""
    bench = Bench()
    bench.pool.scale(1)
    bench.has_room = False
    bench.pool.scale(2)
    assert bench.pids == [1]
    assert not bench.pool.failed
    bench.has_room = True
    bench.watch(after=0.5)
    assert bench.pids == [1, 2]


@pytest.mark.parametrize("reason", ["restart", "lifetime"])
def test_no_room_for_a_replacement_keeps_the_old_worker(reason: str, log: pytest.LogCaptureFixture) -> None:
    """MP-09, X4"""
    bench = Bench(recycling=lambda: RecycleLimits(lifetime=60 if reason == "lifetime" else None)).serving()
    bench.has_room = False
    if reason == "restart":
        bench.pool.replace_all()
    bench.watch(after=60)
    assert log.messages[-1] == (
        f"No child process can be started ([Errno {errno.EAGAIN}] no room); "
        "keeping worker [1] and aborting the restart."
    )
    assert bench.pids == [1, 2]
    assert not bench.pool.is_replacing
    bench.has_room = True
    if reason == "restart":
        bench.pool.replace_all()
    bench.watch(after=1)
    assert bench.made[-1].pid == 3


@pytest.mark.parametrize(("failures", "delay"), [(0, 0), (1, 0), (2, 0.5), (3, 1), (6, 8), (7, 8), (10_000, 8)])
def test_restart_delay_doubles_up_to_a_limit(failures: int, delay: float) -> None:
    """MP-19"""
    assert restart_delay(failures) == delay


def test_last_words_of_a_dead_worker_are_heard() -> None:
    """X1: it served, if only for a moment."""
    bench = Bench(1)
    bench.pool.start()
    worker = bench.made[0]

    def listen(now: float) -> None:
        if "wait" in worker.log:
            worker.reach(Stage.SERVING)

    worker.listen = listen  # type: ignore[method-assign]
    worker.exit(1)
    bench.watch()
    assert not bench.pool.failed


def test_worker_that_has_ended_by_itself_but_does_not_exit_is_killed(log: pytest.LogCaptureFixture) -> None:
    """MP-21, X2: its request limit was reached, and a thread holds the process."""
    bench = Bench(1).serving()
    bench.made[0].reach(Stage.CLOSING)
    bench.watch(after=9)
    bench.made[0].reach(Stage.ENDED)
    bench.watch(after=2)
    assert bench.pids == [1]
    bench.watch(after=1)
    assert bench.pids == [2]
    assert log.messages == [
        "Child process [1] did not end in time, killing it, starting another at once (timeout_graceful_shutdown).",
        "Child process [1] died",
        OUTAGE,
    ]
    assert [record.levelname for record in log.records] == ["ERROR", "INFO", "ERROR"]


# Starts that hang


def test_replacements_that_hang_are_killed_and_started_again(log: pytest.LogCaptureFixture) -> None:
    """MP-09, MP-18: a database that is down must not make an outage without a line."""
    bench = Bench().serving()
    for worker in bench.made:
        worker.exit(-9)
    bench.watch()
    assert log.messages[2:] == [OUTAGE]
    assert log.records[2].levelname == "ERROR"
    log.clear()
    told(bench)
    bench.watch(after=5 - LAST_WORDS)
    assert bench.made[2].log[-1] == "stacks"
    bench.made[2].stacks = "File app.py"
    assert bench.pids == [3, 4]
    bench.watch(after=LAST_WORDS)
    assert log.messages == [
        "Child process [3] was not ready within 5 seconds, killing it (timeout_worker_ready).",
        "Child process [3] was stuck here:\nFile app.py",
        "Child process [3] failed to start (killed by SIGKILL), trying again.",
        "Child process [4] was not ready within 5 seconds, killing it (timeout_worker_ready).",
        "Child process [4] failed to start (killed by SIGKILL), trying again in 0.5 s.",
    ]
    assert {record.levelname for record in log.records} == {"ERROR"}
    assert told(bench) == [
        *(("kill", 3, "startup", None), ("crash", 3, "startup", -9)),
        *(("kill", 4, "startup", None), ("crash", 4, "startup", -9)),
    ]
    bench.watch(after=0.5)
    assert bench.pids == [5, 6]
    assert not bench.pool.failed
    for worker in bench.made[4:]:
        worker.reach(Stage.SERVING)
    bench.watch()
    assert bench.pool.is_serving
    assert bench.pool.next_deadline() is None


def test_replacement_that_hangs_is_told_beside_those_that_serve(log: pytest.LogCaptureFixture) -> None:
    """MP-18"""
    bench = Bench().serving()
    bench.made[0].exit(-9)
    bench.watch()
    bench.watch(after=5)
    assert bench.pids == [2, 4]
    assert OUTAGE not in log.messages


def test_first_workers_that_hang_end_the_start(log: pytest.LogCaptureFixture) -> None:
    """MP-18, MP-19"""
    bench = Bench()
    bench.pool.start()
    bench.watch(after=5)
    assert bench.pool.failed
    assert len(bench.made) == 2
    assert log.messages == [
        "Child process [1] was not ready within 5 seconds, killing it (timeout_worker_ready).",
        "Child process [1] failed to start (killed by SIGKILL), waiting for the others.",
        "Child process [2] was not ready within 5 seconds, killing it (timeout_worker_ready).",
        "Child process [2] failed to start (killed by SIGKILL), stopping the parent process.",
    ]


def test_workers_that_may_start_for_ever_are_waited_for(log: pytest.LogCaptureFixture) -> None:
    """MP-09"""
    bench = Bench(1, ready_timeout=None).serving()
    bench.made[0].exit(-9)
    bench.watch()
    assert log.messages[-1] == (
        "No child process serves: connections wait until a new one is ready, however long that takes "
        "(timeout_worker_ready is 0)."
    )
    assert bench.pool.next_deadline() is None
    bench.watch(after=1e6)
    assert bench.pids == [2]


def test_suspension_of_the_parent_is_no_time_to_start() -> None:
    """MP-15"""
    bench = Bench(1)
    bench.pool.start()
    bench.pool.next_deadline()
    bench.clock.now += 3600
    bench.pool.watch()
    assert not bench.pool.failed


# Sleeping


def test_pool_sleeps_until_the_next_thing_is_due() -> None:
    """MP-03: no rounds."""
    bench = Bench().serving()
    assert bench.pool.next_deadline() is None
    bench.made[0].deadline = 1005.0
    bench.made[1].deadline = 1002.0
    assert bench.pool.next_deadline() == 1002.0
    bench.pool.replace_all()
    bench.watch()
    bench.made[0].deadline = bench.made[1].deadline = None
    assert bench.pool.next_deadline() == 1005.0 - LAST_WORDS  # shortly before the replacement is to be ready
    bench.watch(after=5 - LAST_WORDS)
    assert bench.pool.next_deadline() == 1005.0


def test_sources_are_those_of_all_whose_end_was_not_noticed() -> None:
    """MP-03: a worker that dies while the pool gets ready to sleep must wake it."""
    bench = Bench().serving()
    bench.pool.replace_all()
    bench.watch()
    bench.made[2].exit(0)
    assert bench.pool.sources == ["sentinel of 1", "sentinel of 2", "sentinel of 3"]
    bench.watch()
    bench.watch()
    assert bench.pool.sources == ["sentinel of 1", "sentinel of 2"]
    bench.pool.drain()
    bench.made[0].exit(0)
    assert bench.pool.sources == ["sentinel of 1", "sentinel of 2"]
    bench.watch()
    assert bench.pool.sources == ["sentinel of 2"]


def test_pool_that_was_stopped_itself_does_not_blame_the_workers() -> None:
    """MP-15"""
    bench = Bench().serving()
    bench.made[0].deadline = bench.clock.now + 1
    bench.pool.next_deadline()
    bench.clock.now += 1 + OVERSLEPT
    bench.pool.watch()
    assert bench.made[0].excused == 0
    bench.made[0].deadline = bench.clock.now + 1
    bench.pool.next_deadline()
    bench.clock.now += 101
    bench.pool.watch()
    assert [worker.excused for worker in bench.made] == [100, 100]


# Replacement


def test_workers_are_replaced_one_after_the_other_by_ready_ones(log: pytest.LogCaptureFixture) -> None:
    """MP-08"""
    bench = Bench().serving()
    bench.pool.replace_all()
    assert bench.pool.is_replacing
    bench.watch()
    assert [worker.pid for worker in bench.pool.everyone] == [1, 2, 3]
    bench.watch(after=1)
    assert "terminate" not in bench.made[0].log  # capacity never dips
    bench.made[2].reach(Stage.SERVING)
    bench.watch()
    assert bench.pids == [3, 2]
    assert bench.made[0].log[-1] == "terminate"
    assert len(bench.made) == 4, "the next one starts while the old one ends"
    bench.made[3].reach(Stage.SERVING)
    bench.watch()
    assert bench.pids == [3, 4]
    assert not bench.pool.is_settled
    for worker in bench.made[:2]:
        assert worker.log[-1] == "terminate"
        worker.exit(-15)
    bench.watch()
    assert bench.made[0].log[-1] == "join"
    assert bench.pool.is_settled
    assert log.messages == []


def test_only_some_workers_end_side_by_side() -> None:
    """MP-08: each is a process more, with all its memory."""
    bench = Bench(LEAVING_AT_ONCE + 2, GracePeriods(None, None, None)).serving()
    bench.pool.replace_all()
    bench.watch()
    for _ in range(LEAVING_AT_ONCE):
        bench.made[-1].reach(Stage.SERVING)
        bench.watch()
    count = len(bench.made)
    bench.watch(after=3600)
    assert len(bench.made) == count == 2 * LEAVING_AT_ONCE + 2
    assert bench.pool.next_deadline() is None
    bench.made[2].exit(-15)
    bench.watch()
    assert len(bench.made) == count + 1


def test_replacement_may_be_given_any_time() -> None:
    """MP-09"""
    bench = Bench(1, ready_timeout=None).serving()
    bench.pool.replace_all()
    bench.watch()
    assert bench.pool.next_deadline() is None
    bench.watch(after=1e6)
    assert bench.pool.is_replacing


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("late", "was not ready in time"),
        (1, "failed to start (exit status 1)"),
        (-9, "failed to start (killed by SIGKILL)"),
        (-60, "failed to start (killed by signal 60)"),
    ],
)
def test_replacement_that_is_not_ready_aborts_the_restart(
    why: str | int, said: str, log: pytest.LogCaptureFixture
) -> None:
    """MP-09: and a crash is not called late."""
    bench = Bench().serving()
    bench.pool.replace_all()
    bench.watch()
    if isinstance(why, int):
        bench.made[2].exit(why)
        bench.watch()
    else:
        bench.watch(after=5)
    assert bench.pids == [1, 2]
    assert "kill" in bench.made[2].log
    assert log.messages == [f"New child process [3] {said}; keeping worker [1] and aborting the restart."]
    assert log.records[0].levelname == "ERROR"
    bench.watch(after=10)
    assert bench.pool.is_settled
    assert len(bench.made) == 3


def test_second_request_is_carried_out_after_the_first() -> None:
    """MP-10: the code may have changed again meanwhile."""
    bench = Bench(1).serving()
    bench.pool.replace_all()
    bench.watch()
    bench.pool.replace_all()
    for step in (1, 2):
        bench.made[step].reach(Stage.SERVING)
        bench.watch()
        bench.made[step - 1].exit(-15)
        bench.watch()
    assert bench.pids == [3]
    bench.watch()
    assert bench.pool.is_settled


def test_old_worker_that_dies_meanwhile_is_followed_by_its_replacement() -> None:
    """MP-14"""
    bench = Bench(2).serving()
    bench.pool.replace_all()
    bench.watch()
    bench.made[0].exit(-9)
    bench.watch()
    assert bench.pids == [2, 3]
    assert len(bench.made) == 4  # the other one's turn


def test_replacement_of_a_worker_that_was_one_too_many_is_sent_away() -> None:
    """MP-12"""
    bench = Bench(2).serving()
    bench.pool._members[1].reason = Reason.RESTART
    bench.watch()
    bench.pool.scale(1)
    bench.made[2].reach(Stage.SERVING)
    bench.watch()
    assert bench.pids == [1]
    assert bench.made[2].log[-1] == "terminate"


def test_worker_that_is_gone_needs_no_replacement() -> None:
    bench = Bench(2).serving()
    bench.pool.replace_all()
    bench.pool.scale(1)
    bench.made[1].exit(-15)
    bench.watch()
    assert [worker.pid for worker in bench.pool.everyone] == [1, 3]
    bench.made[2].reach(Stage.SERVING)
    bench.watch()
    bench.made[0].exit(-15)
    bench.watch()
    assert bench.pool.is_settled


# Retirement


def test_worker_that_retires_serves_on_until_its_replacement_does() -> None:
    """MP-21: nobody is turned away meanwhile."""
    bench = Bench(2).serving()
    bench.made[0].reach(Stage.RETIRING)
    bench.watch()
    assert bench.pids == [1, 2]
    assert bench.made[0].log == ["start"]
    bench.made[2].reach(Stage.SERVING)
    bench.watch()
    assert bench.pids == [3, 2]
    assert bench.made[0].log == ["start", "terminate"]
    bench.made[0].exit(-15)
    bench.watch(after=3600)
    assert bench.pool.is_settled
    assert len(bench.made) == 3


def test_workers_that_retire_together_are_replaced_one_after_the_other() -> None:
    """MP-21"""
    bench = Bench(2).serving()
    for worker in bench.made[:2]:
        worker.reach(Stage.RETIRING)
    for step in (0, 1):
        bench.watch()
        assert len(bench.made) == 3 + step
        bench.watch(after=1)
        assert len(bench.made) == 3 + step, "the previous one does not serve yet"
        bench.made[2 + step].reach(Stage.SERVING)
        bench.watch()
        bench.watch(after=1)
        assert len(bench.made) == 3 + step, "the previous one has not ended"
        bench.made[step].exit(-15)
    bench.watch()
    assert bench.pids == [3, 4]
    assert bench.pool.is_settled


def test_replacement_may_retire_itself_at_once() -> None:
    """MP-21: with a limit of few requests."""
    bench = Bench(1).serving()
    bench.made[0].reach(Stage.RETIRING)
    bench.watch()
    bench.made[1].reach(Stage.SERVING)
    bench.made[1].reach(Stage.RETIRING)
    bench.watch()
    bench.made[0].exit(-15)
    bench.watch()
    assert bench.pids == [2]
    bench.watch()
    assert len(bench.made) == 3


def test_worker_that_retires_is_kept_while_no_replacement_can_start(log: pytest.LogCaptureFixture) -> None:
    """MP-09, MP-21: the code on the disk is broken; another attempt comes, ever more slowly."""
    bench = Bench(1).serving()
    bench.made[0].reach(Stage.RETIRING)
    waits = []
    for attempt in range(1, 8):
        waited = 0.0
        while len(bench.made) == attempt:
            deadline = bench.pool.next_deadline()
            assert deadline is not None
            step = max(0.0, deadline - bench.clock.now)
            waited += step
            bench.watch(after=step)
        waits.append(waited)
        bench.made[-1].exit(1)
        bench.watch()
        assert bench.pids == [1]
        assert not bench.pool.failed
    assert waits == [0, 0.5, 1, 2, 4, 8, 8]
    assert log.messages[0].endswith("failed to start (exit status 1); keeping worker [1] and aborting the restart.")
    bench.watch(after=8)
    bench.made[-1].reach(Stage.SERVING)
    bench.watch()
    assert bench.pids == [len(bench.made)]


def test_worker_that_retires_may_take_its_time() -> None:
    """MP-21: it has not been told to end."""
    bench = Bench(1).serving()
    bench.made[0].reach(Stage.RETIRING)
    bench.watch(after=3600)
    assert bench.made[0].log == ["start"]


def test_restart_includes_a_worker_that_retires() -> None:
    """MP-08, MP-21"""
    bench = Bench(2).serving()
    bench.made[1].reach(Stage.RETIRING)
    bench.watch()
    bench.pool.replace_all()
    for new, old in ((2, 1), (3, 0), (4, 2)):
        bench.made[new].reach(Stage.SERVING)
        bench.watch()
        bench.made[old].exit(-15)
        bench.watch()
    assert bench.pids == [4, 5]
    assert bench.pool.is_settled


# Recycling


def test_worker_is_recycled_after_its_lifetime(log: pytest.LogCaptureFixture) -> None:
    """MP-21, X4: it serves on until its successor does."""
    bench = Bench(1, recycling=lambda: RecycleLimits(lifetime=60)).serving()
    assert bench.pool.next_deadline() == bench.clock.now + 60
    bench.watch(after=59)
    assert len(bench.made) == 1
    bench.watch(after=1)
    assert bench.pids == [1]
    assert log.messages == ["Recycling child process [1]: it has served for 60 seconds."]
    bench.watch(after=3)
    bench.made[1].reach(Stage.SERVING)
    bench.watch()
    assert bench.pids == [2]
    assert bench.made[0].log == ["start", "terminate"]
    bench.made[0].exit(0)
    bench.watch()
    assert bench.pool.is_settled
    assert bench.pool.next_deadline() == bench.clock.now + 60


def test_each_worker_has_a_lifetime_of_its_own() -> None:
    """X4: they are drawn one by one."""
    lifetimes = iter((60, 70, 80, 90))
    bench = Bench(2, recycling=lambda: RecycleLimits(lifetime=next(lifetimes))).serving()
    bench.watch(after=60)
    assert len(bench.made) == 3
    bench.made[2].reach(Stage.SERVING)
    bench.watch()
    bench.made[0].exit(0)
    bench.watch(after=9)
    assert len(bench.made) == 3
    bench.watch(after=1)
    assert len(bench.made) == 4


@pytest.mark.parametrize("size", [1, 3])
def test_worker_is_recycled_for_its_memory(size: int, log: pytest.LogCaptureFixture) -> None:
    """X4: looked at now and then, of those that serve."""
    bench = Bench(size, recycling=lambda: RecycleLimits(memory=100 * MIB)).serving()
    bench.made[0].occupies = 100 * MIB
    bench.watch(after=SAMPLE_INTERVAL)
    bench.made[0].occupies = 250 * MIB
    bench.watch(after=SAMPLE_INTERVAL / 2)
    assert len(bench.made) == size
    deadline = bench.pool.next_deadline()
    assert deadline == bench.clock.now + SAMPLE_INTERVAL / 2
    bench.watch(after=SAMPLE_INTERVAL / 2)
    assert len(bench.made) == size + 1
    assert log.messages == ["Recycling child process [1]: it occupies 250 MiB."]
    bench.made[-1].occupies = 1000 * MIB  # it imports, and has not served yet
    bench.watch(after=SAMPLE_INTERVAL)
    bench.made[-1].reach(Stage.SERVING)
    bench.watch()
    assert size + 1 in bench.pids
    assert 1 not in bench.pids


def test_memory_that_nobody_limits_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def memory(self: FakeWorker) -> int:
        raise AssertionError

    monkeypatch.setattr(FakeWorker, "memory", memory)
    bench = Bench(1).serving()
    bench.watch(after=3600)
    assert bench.pool.next_deadline() is None


def test_memory_that_is_not_known_is_no_reason() -> None:
    bench = Bench(1, recycling=lambda: RecycleLimits(memory=1)).serving()
    bench.watch(after=SAMPLE_INTERVAL)
    assert len(bench.made) == 1


def test_one_worker_at_a_time_is_recycled() -> None:
    """X4: whatever the reasons, and its end included: each is a process more."""
    limits = iter([RecycleLimits(lifetime=60), RecycleLimits(memory=1)])
    bench = Bench(3, recycling=lambda: next(limits, RecycleLimits())).serving()
    bench.made[1].occupies = 2
    bench.made[2].reach(Stage.RETIRING)
    for step in range(3):
        bench.watch(after=60)
        assert len(bench.made) == 4 + step
        bench.made[-1].reach(Stage.SERVING)
        bench.watch()
        (leaving,) = (worker for worker in bench.made if worker.log[-1] == "terminate")
        bench.watch(after=1)
        assert len(bench.made) == 4 + step
        leaving.exit(0)
    bench.watch()
    reasons = [event.reason for event in bench.events if event.kind == "recycle"]
    assert sorted(map(str, reasons)) == ["lifetime", "memory", "requests"]


def test_recycling_goes_on_where_old_workers_may_take_for_ever() -> None:
    """X4, LIFE-19"""
    bench = Bench(3, GracePeriods(None, None, None), recycling=lambda: RecycleLimits(lifetime=60)).serving()
    bench.watch(after=60)
    bench.made[-1].reach(Stage.SERVING)
    bench.watch()
    assert len(bench.made) == 5


def test_recycling_of_a_worker_that_dies_meanwhile_is_forgotten() -> None:
    """X4, MP-14"""
    bench = Bench(2, recycling=lambda: RecycleLimits(lifetime=60)).serving()
    bench.watch(after=60)
    bench.made[1].exit(-9)
    bench.watch()
    assert bench.pids == [1, 4]
    bench.made[2].reach(Stage.SERVING)
    bench.made[3].reach(Stage.SERVING)
    bench.watch()
    bench.made[0].exit(0)
    bench.watch()
    assert bench.pids == [3, 4]
    assert bench.pool.is_settled


def test_recycling_that_fails_is_tried_again_later(log: pytest.LogCaptureFixture) -> None:
    """X4, MP-09: no worker is given up for one that cannot start."""
    bench = Bench(2, recycling=lambda: RecycleLimits(lifetime=60)).serving()
    bench.watch(after=60)
    bench.made[2].exit(1)
    bench.watch()
    assert bench.pids == [1, 2]
    assert bench.pool.next_deadline() == bench.clock.now + 0.5
    bench.watch()
    assert len(bench.made) == 3
    bench.watch(after=0.5)
    assert len(bench.made) == 4


# Crashes


def test_worker_that_crashes_soon_is_started_again_ever_more_slowly() -> None:
    """X1: a request that kills every worker that sees it must not be a loop of starts."""
    bench = Bench(1).serving()
    waits = []
    for _ in range(7):
        bench.made[-1].exit(-11)
        bench.watch()
        began = bench.clock.now
        while not bench.pool.workers:
            deadline = bench.pool.next_deadline()
            assert deadline is not None
            bench.watch(after=deadline - bench.clock.now)
        waits.append(bench.clock.now - began)
        bench.made[-1].reach(Stage.SERVING)
        bench.watch(after=STEADY / 2)
    assert waits == [0, 0.5, 1, 2, 4, 8, 8]
    assert not bench.pool.failed
    bench.watch(after=STEADY)
    bench.made[-1].exit(-11)
    bench.watch()
    assert len(bench.pids) == 1, "it was steady, so the row has ended"


def test_workers_that_crash_together_are_one_crash() -> None:
    """X1"""
    bench = Bench(4).serving()
    for worker in bench.made[:4]:
        worker.exit(-9)
    bench.watch()
    assert len(bench.pids) == 4


def test_workers_that_are_gone_are_let_go_of() -> None:
    """X1: each holds a pipe and a file."""
    bench = Bench(3).serving()
    for _ in range(3):
        bench.pool.workers[0].exit(-11)
        bench.watch()
        bench.watch(after=8)
        bench.made[-1].reach(Stage.SERVING)
        bench.watch()
    bench.pool.replace_all()
    for _ in range(3):
        bench.watch()
        bench.made[-1].reach(Stage.SERVING)
        bench.watch()
        next(worker for worker in bench.made if worker.log[-1] == "terminate").exit(0)
        bench.watch()
    kept = {
        id(worker) for value in vars(bench.pool).values() if isinstance(value, (set, dict, list)) for worker in value
    }
    gone = [worker.pid for worker in bench.made if worker.exitcode is not None and id(worker) in kept]
    assert gone == []


def test_steady_worker_does_not_hide_a_row_of_crashes() -> None:
    """X1: and it is spared, whatever the limit."""
    bench = Bench(2, crash_limit=2).serving()
    bench.watch(after=STEADY)
    for _ in range(4):
        bench.pool.workers[-1].exit(-11)
        bench.watch()
        bench.watch(after=8)
        bench.made[-1].reach(Stage.SERVING)
        bench.watch()
    bench.pool.workers[-1].exit(-11)
    bench.watch()
    assert bench.pids == [1]
    assert not bench.pool.failed


@pytest.mark.parametrize("serves", [True, False])
def test_pool_gives_up_after_so_many_crashes_and_says_why(serves: bool, log: pytest.LogCaptureFixture) -> None:
    """X1: where somebody is there to notice it."""
    bench = Bench(1, crash_limit=3, ready_timeout=None).serving()
    bench.watch(after=STEADY)
    bench.made[0].exit(-9)
    bench.watch()
    for _ in range(3):
        assert not bench.pool.failed
        bench.watch(after=8)
        if serves:
            bench.made[-1].reach(Stage.SERVING)
            bench.watch()
        bench.made[-1].exit(-11 if serves else 1)
        bench.watch()
    assert bench.pool.failed
    how = "killed by SIGSEGV" if serves else "exit status 1"
    assert log.messages[-1] == (
        f"3 child processes in a row died before they had served for 10 seconds, the last one [4] ({how}); stopping "
        "the parent process. Set limit_worker_crashes to 0 to keep trying."
    )
    # The one before does not promise what does not follow.
    died = f"died ({how})" if serves else f"failed to start ({how})"
    assert log.messages[-2] == f"Child process [4] {died}, stopping the parent process."


# Events


def told(bench: Bench) -> Sequence[tuple[str, int | None, str | None, int | None]]:
    """What the hook was told, and forget it."""
    events = [(event.kind, event.pid, event.reason, event.exitcode) for event in bench.events]
    bench.events.clear()
    return events


def test_events_of_a_life(log: pytest.LogCaptureFixture) -> None:
    """X5"""
    log.set_level(logging.DEBUG, logger="uvicorn.error")
    bench = Bench(1, recycling=lambda: RecycleLimits(lifetime=60)).serving()
    assert told(bench) == [("start", 1, None, None), ("ready", 1, None, None)]
    bench.watch(after=60)
    bench.made[1].reach(Stage.SERVING)
    bench.watch()
    assert told(bench) == [("recycle", 1, "lifetime", None), ("start", 2, None, None), ("ready", 2, None, None)]
    bench.made[0].exit(-15)
    bench.watch()
    bench.made[1].exit(-11)
    bench.watch()
    assert told(bench) == [("exit", 1, None, -15), ("crash", 2, "SIGSEGV", -11), ("start", 3, None, None)]
    crash = next(record for record in log.records if record.message.startswith("Child process [2] died"))
    fields = {name: value for name, value in vars(crash).items() if name.startswith("worker_")}
    assert fields == {
        "worker_event": "crash",
        "worker_pid": 2,
        "worker_reason": "SIGSEGV",
        "worker_exitcode": -11,
        "worker_signal": "SIGSEGV",
    }
    assert bench.pool.events.counts["start", None] == 3
    assert bench.pool.events.counts["recycle", "lifetime"] == 1


def test_events_of_what_is_killed() -> None:
    """X5: its end is no crash."""
    bench = Bench(2).serving()
    told(bench)
    bench.made[0].silent = True
    bench.watch()
    assert told(bench) == [("kill", 1, "unresponsive", None), ("exit", 1, None, -9), ("start", 3, None, None)]
    bench.made[2].reach(Stage.SERVING)
    bench.watch()
    assert told(bench) == [("ready", 3, None, None)]
    bench.pool.replace_all()
    bench.watch()
    assert told(bench) == [("recycle", 2, "restart", None), ("start", 4, None, None)]
    bench.watch(after=5)
    bench.watch()
    assert told(bench) == [("kill", 4, "startup", None), ("exit", 4, None, -9)]
    bench.pool.drain()
    bench.made[1].exit(-11)
    bench.watch()
    bench.watch(after=10)
    bench.watch()
    assert told(bench) == [("crash", 2, "SIGSEGV", -11), ("kill", 3, "deadline", None), ("exit", 3, None, -9)]


def test_end_of_what_does_not_disappear_is_told_once() -> None:
    """MP-17, X5"""
    bench = Bench(1).serving()
    told(bench)
    bench.made[0].silent = True
    bench.made[0].dies_when_killed = False
    bench.watch()
    assert told(bench) == [("kill", 1, "unresponsive", None), ("exit", 1, None, None), ("start", 2, None, None)]
    bench.made[0].exit(-9)
    bench.watch()
    assert told(bench) == []
    assert bench.made[0] not in bench.pool.everyone


@pytest.mark.parametrize(
    ("has_pulse", "why"), [(None, ""), (True, ": its interpreter is locked"), (False, ": its process does not run")]
)
def test_silent_worker_leaves_word_of_why(has_pulse: bool | None, why: str, log: pytest.LogCaptureFixture) -> None:
    """MP-15, X6"""
    bench = Bench(1).serving()
    bench.made[0].silent = True
    bench.made[0].has_pulse = has_pulse
    bench.made[0].stacks = "File app.py"
    bench.watch()
    assert log.messages[:2] == [
        f"Child process [1] does not answer{why}, killing it, starting another at once (timeout_worker_healthcheck).",
        "Child process [1] was stuck here:\nFile app.py",
    ]


def test_blocked_event_loop_is_told_of(log: pytest.LogCaptureFixture) -> None:
    """MP-25, X6: and left alone."""
    bench = Bench(1).serving()
    told(bench)
    bench.made[0].blocked = 7.25
    bench.made[0].stacks = "File app.py"
    bench.watch()
    assert told(bench) == [("blocked", 1, None, None)]
    bench.watch()
    assert told(bench) == []
    assert bench.pids == [1]
    assert log.messages == [
        "The event loop of child process [1] has been blocked for 7.2 seconds.",
        "Child process [1] was stuck here:\nFile app.py",
    ]


def test_crash_leaves_word_of_where(log: pytest.LogCaptureFixture) -> None:
    """X1, X6: also at the end."""
    bench = Bench(2).serving()
    bench.made[0].stacks = "Fatal Python error"
    bench.made[0].exit(-11)
    bench.watch()
    assert log.messages[0] == "Child process [1] crashed here:\nFatal Python error"
    bench.pool.drain()
    bench.made[1].stacks = "Fatal Python error"
    bench.made[1].exit(-11)
    bench.watch()
    assert log.messages[-2] == "Child process [2] crashed here:\nFatal Python error"


@pytest.mark.parametrize(("code", "kind"), [(3, "crash"), (-9, "crash")])
def test_event_of_a_worker_that_cannot_start(code: int, kind: str) -> None:
    """X5"""
    bench = Bench(2)
    bench.pool.start()
    told(bench)
    bench.made[0].exit(code)
    bench.watch()
    assert told(bench)[0] == (kind, 1, "startup", code)


def test_worker_that_ends_gracefully_by_itself_has_not_crashed() -> None:
    """X5: somebody has sent it SIGTERM."""
    bench = Bench(1).serving()
    told(bench)
    bench.made[0].reach(Stage.DONE)
    bench.made[0].exit(-15)
    bench.watch()
    assert told(bench) == [("exit", 1, None, -15), ("start", 2, None, None)]


def test_hook_that_fails_ends_nothing(log: pytest.LogCaptureFixture) -> None:
    """X5"""

    def hook(event: WorkerEvent) -> None:
        raise ZeroDivisionError

    events = WorkerEvents(hook)
    events.tell(WorkerEvent("start", 7), logging.INFO, "Child process [%d] was started")
    assert log.records[-1].exc_info
    assert events.counts["start", None] == 1


# Scaling


def test_scaling_up_starts_and_down_ends_the_newest() -> None:
    """MP-11, MP-12"""
    bench = Bench().serving()
    bench.pool.scale(3)
    assert bench.pids == [1, 2, 3]
    bench.pool.scale(1)
    assert bench.pids == [1]
    assert [worker.log[-1] for worker in bench.made] == ["start", "terminate", "terminate"]
    bench.made[1].exit(-15)
    bench.made[2].exit(-15)
    bench.watch()
    assert bench.pool.is_settled
    assert bench.pids == [1]


def test_worker_that_does_not_end_is_killed(log: pytest.LogCaptureFixture) -> None:
    """MP-06, X2"""
    bench = Bench(2).serving()
    bench.pool.scale(1)
    assert bench.pool.next_deadline() == bench.clock.now + 10 - LAST_WORDS
    bench.watch(after=10 - LAST_WORDS)
    assert bench.made[1].log[-1] == "stacks"
    assert bench.pool.next_deadline() == bench.clock.now + LAST_WORDS
    bench.watch(after=LAST_WORDS - 0.1)
    assert not {"stacks!", "kill"} & set(bench.made[1].log), "a signal may end what would end by itself"
    bench.watch(after=0.1)
    assert bench.made[1].log[-3:] == ["stacks!", "kill", "wait"]
    assert log.messages == ["Child process [2] did not end in time, killing it (timeout_graceful_shutdown)."]


def test_workers_that_are_killed_together_write_their_stacks_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """X6: a frozen group of sixteen kept the parent from its signals for four seconds."""
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    bench = Bench(4).serving()
    for worker in bench.made:
        worker.silent = worker.seems_to_write = True
    bench.watch()
    assert len(waits) == 2
    assert all(worker.log.index("stacks!") < worker.log.index("kill") for worker in bench.made[:4])


@pytest.mark.parametrize("is_silent", [True, False])
def test_killed_worker_that_takes_its_time_is_told_once(is_silent: bool, log: pytest.LogCaptureFixture) -> None:
    """MP-06, X2: its memory is large, or a disk does not answer. Each second there was another kill."""
    bench = Bench(2).serving()
    told(bench)
    bench.made[1].dies_when_killed = False
    if is_silent:
        bench.made[1].silent = True
    else:
        bench.pool.scale(1)
        bench.watch(after=10)
    for _ in range(5):
        bench.watch(after=4)
    assert [event[0] for event in told(bench) if event[1] == 2].count("kill") == 1
    assert bench.made[1].log.count("kill") == 1
    assert sum("[2]" in message and "killing it" in message for message in log.messages) == 1
    bench.made[1].exit(-9)
    bench.watch()
    assert bench.made[1] not in bench.pool.everyone


# The end


def test_workers_that_others_stand_in_for_are_told_so() -> None:
    """X7: they need not wait until clients know."""
    bench = Bench(3).serving()
    bench.pool.scale(2)
    bench.pool.replace_all()
    bench.watch()
    bench.made[3].reach(Stage.SERVING)
    bench.watch()
    assert [worker.relieved for worker in bench.made[:4]] == [True, False, True, False]
    bench.pool.drain()
    assert [worker.relieved for worker in bench.made[:4]] == [True, False, True, False]


def test_drain_ends_all_and_starts_none() -> None:
    """MP-05"""
    bench = Bench().serving()
    bench.pool.replace_all()
    bench.watch()
    bench.pool.drain()
    assert [worker.log[-1] for worker in bench.made] == ["terminate"] * 3
    for worker in bench.made:
        worker.exit(-15)
    bench.watch()
    assert len(bench.made) == 3
    assert bench.pids == [1, 2]
    assert bench.pool.next_deadline() is None


def test_drain_has_a_deadline_for_each_stage() -> None:
    """MP-06, X2"""
    bench = Bench(1).serving()
    bench.pool.drain()
    bench.watch(after=9)
    bench.made[0].reach(Stage.DONE)
    bench.watch(after=19)
    assert "kill" not in bench.made[0].log
    bench.made[0].reach(Stage.ENDED)
    bench.watch(after=2.9)
    assert "kill" not in bench.made[0].log
    bench.watch(after=0.2)
    assert "kill" in bench.made[0].log


def test_drain_without_limits_waits_for_ever() -> None:
    """LIFE-19"""
    bench = Bench(1, GracePeriods(None, None, None)).serving()
    bench.pool.drain()
    bench.watch(after=1e6)
    assert "kill" not in bench.made[0].log
    assert bench.pool.next_deadline() is None


@pytest.mark.parametrize("grace", [GracePeriods(100, 100, 100), GracePeriods(None, None, None)])
def test_hurrying_shortens_the_deadline(grace: GracePeriods) -> None:
    """MP-07, K8"""
    bench = Bench(1, grace).serving()
    bench.pool.drain()
    bench.pool.hurry()
    assert bench.made[0].log[-1] == "hurry"
    assert bench.pool.next_deadline() == bench.clock.now + FORCED_WAIT - LAST_WORDS
    bench.watch(after=FORCED_WAIT / 2)
    bench.pool.hurry()
    bench.watch(after=FORCED_WAIT / 2)
    assert "kill" in bench.made[0].log
