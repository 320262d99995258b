"""Record callbacks that block an event loop for long: the setting `debug_slow_callback`. For any event loop.

A beat of the loop itself, four times in the time that is too long, says that it turns. A thread looks as often: where
the beat is overdue it takes a sample of the loop's thread. Samples that show the same callback, or the same task,
are one; if the loop turns, or something else runs, it is over. So a loop that is busy with many short callbacks is not
taken for a slow one, nothing is measured of callbacks that are not slow, and the loop may be of C.

Times are as exact as the sampling interval: each end may be off by a quarter of the threshold.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, deque
from datetime import datetime, timezone
from typing import Any, NamedTuple

from uvicorn.observing import stacks

MOST = 32
"""Callbacks that are remembered: the last ones."""

MOST_STACKS = 64
"""Different stacks that are counted of one callback: the first ones. A callback may run for minutes."""

LEAST_INTERVAL = 0.005
"""Seconds between two beats."""

UNSEEN = "unknown: the interpreter was locked, or the process did not run"


class Slow(NamedTuple):
    """One callback, or step of a task, that was slow.

    Attributes:
        when: it began, as ISO 8601 has it, in UTC.
        seconds: for how long it ran; see above.
        what: the task and its coroutine, or the function.
        request: that it was for; empty if for none.
        stack: the most frequent one in the samples; of equals, the first.
    """

    when: str
    seconds: float
    what: str
    request: str
    stack: list[str]


class _Sample(NamedTuple):
    key: object
    began: float
    what: str
    request: str
    stacks: Counter[tuple[str, ...]]


class SlowCallbacks:
    """Watches one event loop from `start` to `stop`, both of which are called in its thread.

    Args:
        loop: to watch.
        threshold: seconds that are too long.
        request_of: says which request a task belongs to, as text; empty if to none.

    Attributes:
        recent: the last ones.
        threshold: as given.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, threshold: float, request_of: Any) -> None:
        self.recent: deque[Slow] = deque(maxlen=MOST)
        self.threshold = threshold
        self._loop = loop
        self._request_of = request_of
        self._interval = max(threshold / 4, LEAST_INTERVAL)
        self._lock = threading.Lock()
        self._thread = threading.get_ident()
        self._due = 0.0
        self._looked_at = 0.0
        self._sample: _Sample | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = threading.Event()

    def start(self) -> None:
        """Watch from now on."""
        self._thread = threading.get_ident()
        self._arm()
        threading.Thread(target=self._watch, name="uvicorn-slow-callbacks", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._is_over.set()
        if self._timer is not None:
            self._timer.cancel()

    def overdue(self) -> float:
        """Return for how many seconds the loop should have turned; 0 if it did in time. From any thread."""
        late = time.monotonic() - self._due
        return late if late > self._interval else 0.0

    def _arm(self) -> None:
        self._due = time.monotonic() + self._interval
        self._timer = self._loop.call_later(self._interval, self._beat)

    def _beat(self) -> None:
        now = time.monotonic()
        with self._lock:
            sample, self._sample = self._sample, None
            if sample is None and now - self._due >= self.threshold:
                sample = _Sample(None, self._due, UNSEEN, "", Counter([()]))
            self._end(sample, now)
        self._arm()

    def _watch(self) -> None:
        while not self._is_over.wait(self._interval):
            self.look()

    def look(self) -> None:
        """Take a sample if the loop is overdue."""
        now = time.monotonic()
        with self._lock:
            if now - self._due >= self._interval:
                self._take(now)
            self._looked_at = now

    def _take(self, now: float) -> None:
        frames = stacks.frames_of(self._thread)
        if not frames:
            return
        task = asyncio.current_task(self._loop)
        key = (None, id(frames[0])) if task is None else (id(task), None)
        sample = self._sample
        began = self._due
        stack = tuple(stacks.lines_of(frames))
        if sample is not None:
            if sample.key == key:
                if stack in sample.stacks or len(sample.stacks) < MOST_STACKS:
                    sample.stacks[stack] += 1
                return
            self._end(sample, now)
            began = self._looked_at
        what = stacks.name_of(frames[0].f_code) if task is None else stacks.called(task)
        request = "" if task is None else self._request_of(task)
        self._sample = _Sample(key, began, what, request, Counter([stack]))

    def _end(self, sample: _Sample | None, now: float) -> None:
        if sample is None or now - sample.began < self.threshold:
            return
        seconds = now - sample.began
        ((stack, _),) = sample.stacks.most_common(1)
        when = datetime.fromtimestamp(time.time() - seconds, timezone.utc).isoformat(timespec="milliseconds")
        self.recent.append(Slow(when, round(seconds, 3), sample.what, sample.request, list(stack)))
