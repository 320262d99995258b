"""Threads for work that blocks."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.utils import wait_for
from uvicorn.files.thread_pool import ThreadPool


@pytest.fixture
def pools() -> Iterator[list[ThreadPool]]:
    made: list[ThreadPool] = []
    yield made
    for pool in made:
        pool.shutdown()


def test_calls_are_done_in_no_more_threads_than_there_may_be(pools: list[ThreadPool]) -> None:
    pool = ThreadPool(2)
    pools.append(pool)
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def work(number: int) -> int:
        begun.release()
        assert go_on.wait(30)
        return number

    futures = [pool.submit(work, number) for number in range(5)]
    assert begun.acquire(timeout=30)
    assert begun.acquire(timeout=30)
    assert pool.size == 2
    assert not begun.acquire(blocking=False)
    go_on.set()
    assert [future.result(30) for future in futures] == [0, 1, 2, 3, 4]


def test_a_thread_that_is_free_is_used_again(pools: list[ThreadPool]) -> None:
    pool = ThreadPool(5)
    pools.append(pool)
    names = set()
    for _ in range(5):
        names.add(pool.submit(lambda: threading.current_thread().name).result(30))
        wait_for(lambda: pool._waiting == 1)
    assert names == {"uvicorn-work_1"}


def test_some_threads_are_there_from_the_beginning_and_stay(pools: list[ThreadPool]) -> None:
    pool = ThreadPool(3, least=1, idle=0.01)
    pools.append(pool)
    assert pool.size == 1
    barrier = threading.Barrier(3)
    for future in [pool.submit(barrier.wait, 30) for _ in range(3)]:
        future.result(30)
    wait_for(lambda: pool.size == 1)
    assert pool.submit(lambda: "still served").result(30) == "still served"


def test_without_a_limit_idle_threads_stay(pools: list[ThreadPool]) -> None:
    pool = ThreadPool(3)
    pools.append(pool)
    pool.submit(int).result(30)
    wait_for(lambda: pool._waiting == 1)
    assert pool.size == 1


def test_exceptions_are_those_of_the_future(pools: list[ThreadPool]) -> None:
    pool = ThreadPool(1)
    pools.append(pool)

    def fail() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        pool.submit(fail).result(30)
    assert pool.submit(lambda: 1).result(30) == 1


def test_a_call_that_was_cancelled_is_not_made(pools: list[ThreadPool]) -> None:
    pool = ThreadPool(1)
    pools.append(pool)
    go_on = threading.Event()
    first, second = pool.submit(go_on.wait, 30), pool.submit(pytest.fail, "it was cancelled")
    wait_for(first.running)
    assert second.cancel()
    go_on.set()
    assert first.result(30)
    assert pool.submit(lambda: 1).result(30) == 1


def test_nothing_is_taken_after_the_end() -> None:
    pool = ThreadPool(1)
    go_on = threading.Event()
    first, second = pool.submit(go_on.wait, 30), pool.submit(int)
    wait_for(first.running)
    pool.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(int)
    go_on.set()
    assert first.result(30)
    assert second.cancelled()


def test_an_idle_thread_does_not_keep_the_interpreter_and_one_at_work_does() -> None:
    code = """
import time
from uvicorn.files.thread_pool import ThreadPool
pool = ThreadPool(2, least=2)
pool.submit(lambda: (time.sleep(0.2), print("done")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "done\n"
