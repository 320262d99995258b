"""Measure a running server on demand: profiles (`/profile`) and growth of memory (`/memory`) at the debug address.

An `Order` has the parameters of one measurement. Each process carries it out in a thread of its own and emits parts, of
which the last one is marked. The process that answers, which may be their parent, merges the parts. A process that ends
meanwhile leaves those that it has emitted.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from uvicorn._compat import has_gil
from uvicorn.observing.orders import ALL, ANY, KINDS, MEMORY, Answer, Order

if TYPE_CHECKING:
    from uvicorn.observing.debugging import Observer

GRACE = 10.0
"""Seconds beyond its time that a process has to emit its last part."""

HURRY = 1.0
"""The same if the measurement was stopped."""

_POLL = 0.2
"""Seconds between two looks at whether the client has left."""

logger = logging.getLogger("uvicorn.error")


Measure = Callable[[Order, threading.Event], Answer]
"""Carries out an order, until it is done or the event is set."""

Emit = Callable[[Mapping[str, Any]], None]
"""Takes a part of the result."""

Arrivals = queue.SimpleQueue[tuple[int, "str | None"]]
"""Parts as JSON by process id; None says that the process has ended."""


# In the process that is measured


class Job:
    """Carries out one order in a thread, from `start` to `stop` or its time."""

    def __init__(self, order: Order, observers: Sequence[Observer], emit: Emit) -> None:
        self._order = order
        self._observers = observers
        self._emit = emit
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="uvicorn-measure", daemon=True)

    @property
    def is_running(self) -> bool:
        """Whether it has not emitted its last part."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start it.

        Raises:
            RuntimeError: there is no room for a thread.
        """
        self._thread.start()

    def stop(self, wait: float = 0.0) -> None:
        """Have it emit its last part; wait for that at most `wait` seconds."""
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join(wait)

    def _run(self) -> None:
        try:
            self._measure()
        except OSError:
            pass  # the parent is gone
        except Exception:
            logger.exception("Cannot measure this process (%s)", self._order.path)
            self._emit(failure("it failed; see the log"))

    def _measure(self) -> None:
        order, observers = self._order, self._observers
        # Imported where they are wanted.
        if order.path == MEMORY:
            from uvicorn.observing.allocations import measure_growth

            measure_growth(order, observers, self._emit, self._is_over)
        elif not has_gil():
            self._emit(failure("a profile needs an interpreter with the GIL"))
        else:
            from uvicorn.observing.profiling import Sampler

            Sampler(order, observers).run(self._emit, self._is_over.is_set)


def failure(reason: str) -> dict[str, Any]:
    """Return the only part of a process that cannot measure."""
    return {"pid": os.getpid(), "seconds": 0.0, "failure": reason, "last": True}


# In the process that answers


def measure_here(observers: Callable[[], Sequence[Observer]]) -> Measure:
    """Return what measures this process."""

    def measure(order: Order, is_over: threading.Event) -> Answer:
        arrivals: Arrivals = queue.SimpleQueue()
        pid = os.getpid()
        if order.worker not in (ALL, ANY, pid):
            return no_worker([pid])
        job = Job(order, observers(), lambda part: arrivals.put((pid, json.dumps(part))))
        job.start()
        return collect(order, arrivals, [pid], is_over, job.stop)

    return measure


def no_worker(pids: Collection[int]) -> Answer:
    """Return the answer to an order for a process that does not serve."""
    if not pids:
        return Answer.refusal("503 Service Unavailable", "No worker serves; try again.")
    listed = ", ".join(map(str, sorted(pids)))
    return Answer.refusal("400 Bad Request", f"worker must be all or the id of a process that serves: {listed}.")


def collect(
    order: Order, arrivals: Arrivals, pids: Collection[int], is_over: threading.Event, stop: Callable[[], None]
) -> Answer:
    """Merge the parts of these processes as they arrive, and return the answer.

    Once `is_over` is set `stop` is called, and the processes have a moment to emit their last parts.
    """
    # Imported where they are wanted.
    from uvicorn.observing.allocations import Growth
    from uvicorn.observing.profiling import Profile

    result: Profile | Growth = Growth() if order.path == MEMORY else Profile()
    missing = set(pids)
    notes: list[str] = []
    failures: list[str] = []
    began = time.monotonic()
    deadline = began + order.seconds + GRACE
    is_stopped = False
    while missing and (now := time.monotonic()) < deadline:
        if is_over.is_set() and not is_stopped:
            is_stopped = True
            stop()
            deadline = min(deadline, now + HURRY)
        try:
            pid, text = arrivals.get(timeout=_POLL)
        except queue.Empty:
            continue
        if pid not in missing:
            continue
        if text is None:
            missing.discard(pid)
            notes.append(f"Process {pid} ended after {now - began:.1f} of {order.seconds:g} s.")
            continue
        part = json.loads(text)
        if "failure" in part:
            failures.append(f"Process {pid} was not measured: {part['failure']}.")
        else:
            result.add(part)
        if part["last"]:
            missing.discard(pid)
            if "failure" not in part and part["seconds"] < order.seconds - 0.5:
                notes.append(f"Process {pid} was measured for {part['seconds']:.1f} of {order.seconds:g} s.")
    if missing:
        stop()
        notes += [f"Process {pid} did not answer in time: it is stopped or blocked." for pid in sorted(missing)]
    if failures and len(failures) == len(pids):
        return Answer.refusal("501 Not Implemented", "\n".join(failures))
    return Answer("200 OK", KINDS[order.format], _render(order, result, pids, notes + failures).encode())


def _render(order: Order, result: Any, pids: Collection[int], notes: list[str]) -> str:
    workers = f"process {next(iter(pids))}" if len(pids) == 1 else f"{len(pids)} processes"
    for note in notes:
        logger.warning("%s The result is partial (%s).", note, order.path)
    if order.path == MEMORY:
        from uvicorn.observing import allocations

        if order.format == "json":
            return allocations.as_json(result, notes)
        return allocations.as_text(result, order, workers, notes)
    from uvicorn.observing import profiling

    what = "Wall-clock time" if order.idle else "CPU time"
    title = f"{what} of {workers}, {order.seconds:g} s, {result.samples} samples"
    if order.format == "folded":
        return profiling.folded(result, notes)
    if order.format == "speedscope":
        return profiling.speedscope(result, " ".join([title, *notes]))
    return profiling.flame_graph(result, title, notes)
