"""A limited number of threads for blocking work, kept while they are of use."""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ThreadPool(Executor):
    """Runs calls in threads, in their order; a call waits while all threads are busy.

    Args:
        most: threads there are at most.
        least: threads that are there from the beginning, and stay.
        idle: seconds after which another one that has nothing to do ends; None for never.
        name: the prefix of the threads' names.
    """

    def __init__(self, most: int, least: int = 0, idle: float | None = None, name: str = "uvicorn-work") -> None:
        self._most = most
        self._least = least
        self._idle = idle
        self._name = name
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._threads: set[threading.Thread] = set()
        self._waiting = 0  # threads
        self._made = 0
        self._is_over = False
        with self._lock:
            for _ in range(least):
                self._add_thread()
        # Wait for running calls when the interpreter exits, as the standard library's pools do.
        atexit.register(self.shutdown)

    @property
    def size(self) -> int:
        """Threads there are now."""
        with self._lock:
            return len(self._threads)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn` with these arguments in a thread; the future has its outcome.

        Raises:
            RuntimeError: the pool is shut down.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._is_over:
                raise RuntimeError("the thread pool is shut down")
            self._calls.append((future, lambda: fn(*args, **kwargs)))
            if self._waiting >= len(self._calls):
                self._changed.notify()
            elif len(self._threads) < self._most:
                self._add_thread()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no further calls; queued ones are done, unless they are cancelled."""
        with self._lock:
            self._is_over = True
            cancelled = [self._calls.popleft()[0] for _ in range(len(self._calls) if cancel_futures else 0)]
            threads = list(self._threads)
            self._changed.notify_all()
        atexit.unregister(self.shutdown)
        for future in cancelled:
            future.cancel()
        for thread in threads if wait else ():
            if thread is not threading.current_thread():
                thread.join()

    def _add_thread(self) -> None:
        self._made += 1
        # A daemon, because one that waits for work must not keep the interpreter from exiting.
        thread = threading.Thread(target=self._work, name=f"{self._name}_{self._made}", daemon=True)
        self._threads.add(thread)
        thread.start()

    def _work(self) -> None:
        while (call := self._next()) is not None:
            future, run = call
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = run()
            except BaseException as exc:
                future.set_exception(exc)
            else:
                future.set_result(result)
            # Nothing of a call outlives it here.
            del call, future, run

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """The next call; None when this thread is to end."""
        with self._lock:
            while not self._calls:
                idle = self._idle if len(self._threads) > self._least else None
                if self._is_over or not self._wait(idle):
                    self._threads.discard(threading.current_thread())
                    return None
            return self._calls.popleft()

    def _wait(self, seconds: float | None) -> bool:
        """Wait for a call; false when none came in time, and this thread is one too many."""
        self._waiting += 1
        try:
            came = self._changed.wait(seconds)
        finally:
            self._waiting -= 1
        return came or bool(self._calls) or self._is_over or len(self._threads) <= self._least
