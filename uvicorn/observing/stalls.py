"""Attribute each stall of any event loop to a route, a kind and a stack: the setting `stall_threshold`.

    loop                              watching thread
    beats, four times in the     ───▶ looks as often, without the interpreter if the native core is there;
    threshold                         if a beat is overdue, takes the interpreter and a sample
    beats late: ends the stall   ◀─── samples

A stall is a turn of the loop that lasts longer than the threshold. Its samples are grouped by task and request; each
group gets the time from one look to the next. A turn of many short callbacks is a stall of its largest group if that
has half of the time, otherwise of none.

The kind of a sample follows from the clocks since the previous look: garbage was collected for most of the time; or the
interpreter was locked for long, although Python code gives it up after `sys.getswitchinterval()`; or the loop's thread
used a processor; or it waited. A call in C that returns gives the interpreter to a waiting thread first, so task and
frame are still those of the call. Other threads may wait, too, so the native core also has the main thread itself take
a sample before it goes on, as if a signal had come.

Times may be off by an eighth of the threshold.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import itertools
import logging
import os
import sys
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from time import monotonic_ns
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, Protocol

from uvicorn._compat import has_gil
from uvicorn.access.format import escape
from uvicorn.metrics.loop_state import BEATS, DUE, LoopBeat, LoopState
from uvicorn.metrics.page import Page
from uvicorn.metrics.routes import OTHER
from uvicorn.metrics.stalls import ROUTES, Kind
from uvicorn.middleware.in_flight import LIFESPAN, InFlight, InFlightRequest
from uvicorn.observing import stacks

LEAST_INTERVAL = 0.005
"""Seconds between two beats at least."""

MOST_STACKS = 64
"""Different stacks that are counted of one group: the first ones. A callback may run for minutes."""

MOST_GROUPS = 256
"""Groups of one turn: the first ones."""

LONGEST_TEXT = 200
"""Characters of the name of a task."""

LOG_INTERVAL = 60.0
"""Seconds between two lines in the log."""

LEAST_WAIT = 0.02
"""Seconds of waiting for the interpreter that a computing thread of Python's does not explain."""

SWITCHES = 4
"""The same in multiples of `sys.getswitchinterval()`."""

UNSEEN: Final = "unknown: the interpreter was locked, or the process did not run"
MANY: Final = "many callbacks"

NO_REQUEST: Final = "none"
"""The route of callbacks and tasks without a request."""

UNKNOWN: Final = "unknown"
"""The route of a request whose application has matched none, or does not say which."""

ADVICE: Final[dict[Kind, str]] = {
    "computing": "Move it to a thread (asyncio.to_thread) or a process, or divide it by awaiting asyncio.sleep(0)",
    "gil": "It holds the GIL, so a thread does not help: limit its input, or move it to a process",
    "blocked": "Call an asynchronous library, or move the call to a thread (asyncio.to_thread)",
    "gc": "Call gc.freeze() after startup, keep fewer objects, or raise gc.set_threshold()",
}
"""What to do about a stall of each kind."""

Stack = tuple[tuple[CodeType, int], ...]

logger = logging.getLogger("uvicorn.error")


class Stall(NamedTuple):
    """One stall.

    Attributes:
        route: template of the request's path, `none`, `unknown`, or `lifespan` for tasks that the lifespan has started.
        kind: see `uvicorn.metrics.stalls.Kind`.
        nanoseconds: its duration.
        when: it began, in seconds since the epoch.
        what: the task and its coroutine, or the function.
        request: method and path; empty if there was none.
        stack: the most frequent one, innermost last.
    """

    route: str
    kind: Kind
    nanoseconds: int
    when: float
    what: str
    request: str
    stack: Stack


class StallRecord:
    """The stalls of one route and kind; `worst` is the longest."""

    __slots__ = ("count", "nanoseconds", "worst")

    def __init__(self, worst: Stall) -> None:
        self.count = 0
        self.nanoseconds = 0
        self.worst = worst

    def add(self, stall: Stall) -> None:
        """Count one more."""
        self.count += 1
        self.nanoseconds += stall.nanoseconds
        if stall.nanoseconds > self.worst.nanoseconds:
            self.worst = stall


class Look(NamedTuple):
    """Nanoseconds since the previous look.

    Attributes:
        time: that have passed.
        thread: for which the loop's thread was on a processor; without such a clock the same as `process`.
        process: the same for all threads of the process.
        wait: for the interpreter.
        thread_meanwhile: as `thread`, during that wait.
        is_running: whether the loop's thread was running, or waited for a processor, when the wait began.
    """

    time: int
    thread: int
    process: int
    wait: int
    thread_meanwhile: int
    is_running: bool


class Looks(Protocol):
    """Waits until a loop is overdue: the native `Watchdog`, or `PythonLooks`."""

    def wait(self) -> tuple[int, int, int, int, int, bool] | None:
        """Return the members of a `Look`; None once it is closed."""

    def look(self) -> tuple[int, int, int, int, int, bool]:
        """Return the members of a `Look` at this moment."""

    def close(self) -> None:
        """Have `wait` return; from any thread."""


class PythonLooks:
    """Looks that take the interpreter each time."""

    def __init__(self, words: memoryview, interval: float, clock: int | None) -> None:
        self._words = words
        self._interval = interval
        self._clock = clock
        self._is_closed = threading.Event()
        self._last = self._read()

    def _read(self) -> tuple[int, int, int]:
        thread = process = time.process_time_ns()
        if sys.platform != "win32" and self._clock is not None:
            with contextlib.suppress(OSError):  # the thread has ended
                thread = time.clock_gettime_ns(self._clock)
        return monotonic_ns(), thread, process

    def _passed(self) -> tuple[int, int, int]:
        """Return the nanoseconds by each clock since the last call."""
        before, self._last = self._last, self._read()
        return self._last[0] - before[0], self._last[1] - before[1], self._last[2] - before[2]

    def wait(self) -> tuple[int, int, int, int, int, bool] | None:
        """Return the members of a `Look` as soon as the loop is overdue; None once this is closed."""
        interval = int(self._interval * 1e9)
        patience, pause = interval // 2, interval
        while True:
            expected = monotonic_ns() + pause
            if self._is_closed.wait(pause / 1e9):
                return None
            span, thread, process = self._passed()
            now, due, slept = self._last[0], self._words[DUE], pause
            pause = min(max(due + patience - now, patience), 2 * interval)
            if due and now >= due + patience:
                meanwhile = max(0, thread - slept)
                return span, thread, process, max(0, now - expected), meanwhile, thread > span / 2

    def look(self) -> tuple[int, int, int, int, int, bool]:
        """Return the members of a `Look` at this moment."""
        span, thread, process = self._passed()
        return span, thread, process, 0, 0, thread > span / 2

    def close(self) -> None:
        """Have `wait` return; from any thread."""
        self._is_closed.set()


class _Collections:
    """Measures garbage collection in this process while a loop is watched."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._total = 0
        self._began = 0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        # Called by the collector, often: no lock.
        if phase == "start":
            self._began = monotonic_ns()
        elif self._began:
            self._total += monotonic_ns() - self._began
            self._began = 0

    def total(self) -> int:
        """Return the nanoseconds of all collections so far."""
        began = self._began
        return self._total + (monotonic_ns() - began if began else 0)

    def begin(self) -> None:
        """Measure from now on."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                gc.callbacks.append(self)

    def end(self) -> None:
        """Stop measuring, once no other loop is watched."""
        with self._lock:
            self._users -= 1
            if self._users == 0 and self in gc.callbacks:
                gc.callbacks.remove(self)
                self._began = 0


_collections = _Collections()


class _Group:
    """The samples of one task and request, or of one callback."""

    __slots__ = ("what", "request", "text", "nanoseconds", "kinds", "stacks")

    def __init__(self, what: str, request: InFlightRequest | None, text: str) -> None:
        self.what = what
        self.request = request
        self.text = text
        self.nanoseconds = 0
        self.kinds: Counter[Kind] = Counter()
        self.stacks: Counter[Stack] = Counter()

    def add(self, nanoseconds: int, kind: Kind, stack: Stack) -> None:
        self.nanoseconds += nanoseconds
        self.kinds[kind] += nanoseconds
        if stack in self.stacks or len(self.stacks) < MOST_STACKS:
            self.stacks[stack] += nanoseconds


class StallWatch:
    """Watches one event loop from `start` to `stop`, both of which are called in its thread.

    Args:
        loop: to watch.
        threshold: seconds of a turn that are too long, above 0.
        in_flight: the requests, if they are tracked, which attributes tasks that they have started.
        state: that of the loop, if others read it.
        interval: seconds between two beats at most, as those others need.
        page: counts the stalls, if metrics are served.
        text_of: returns method and path of a request.

    Attributes:
        records: the stalls by route and kind.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        threshold: float,
        in_flight: InFlight,
        state: LoopState | None = None,
        interval: float = float("inf"),
        page: Page | None = None,
        text_of: Any = lambda request: "",
    ) -> None:
        self.records: dict[tuple[str, Kind], StallRecord] = {}
        self.threshold = threshold
        self._loop = loop
        self._in_flight = in_flight
        self._table = None if page is None else page.stalls
        self._text_of = text_of
        self._interval = min(max(threshold / BEATS, LEAST_INTERVAL), interval)
        self._patience = int(self._interval * 1e9) // 2
        self._lock = threading.Lock()
        self._thread = threading.get_ident()
        self._state = state or LoopState.make()
        self._beat = LoopBeat(loop, self._interval, self._state, self.turn)
        self._looks: Looks | None = None
        self._watcher: threading.Thread | None = None
        self._groups: dict[object, _Group] = {}
        self._last: _Group | None = None
        self._counted_to = 0  # the time up to which the groups have theirs; 0 without a stall
        self._collected = _collections.total()
        self._log_at = 0.0
        self._unlogged = 0
        self._worst_unlogged: Stall | None = None

    # Life

    def start(self) -> None:
        """Watch from now on."""
        self._thread = threading.get_ident()
        global _in_main_thread
        if threading.current_thread() is threading.main_thread():
            _in_main_thread = self
        clock: int | None = None
        if sys.platform != "win32" and sys.platform != "darwin":
            clock = time.pthread_getcpuclockid(self._thread)
        self._looks = _looks(self._state.words, self._interval, clock)
        _collections.begin()
        self._beat.start()
        self._watcher = threading.Thread(target=self._watch, args=(self._looks,), name="uvicorn-stalls", daemon=True)
        self._watcher.start()
        # The thread must not come back from the native core to an interpreter that ends.
        atexit.register(self.stop)

    def stop(self) -> None:
        """Stop watching."""
        global _in_main_thread
        looks, self._looks = self._looks, None
        if looks is None:
            return
        if _in_main_thread is self:
            _in_main_thread = None
        atexit.unregister(self.stop)
        looks.close()
        self._beat.stop()
        _collections.end()
        if self._watcher is not None and self._watcher.is_alive():
            self._watcher.join(1.0)
        if self._worst_unlogged is not None:
            self._log()

    def _watch(self, looks: Looks) -> None:
        while (found := looks.wait()) is not None:
            try:
                self.look(Look(*found))
            except Exception:
                logger.exception("Cannot take a sample of a stall (stall_threshold); watching on")

    def overdue(self) -> float:
        """Return the seconds for which the loop should have turned; 0 if it did in time. From any thread."""
        due = self._state.words[DUE]
        late = monotonic_ns() - due if due else 0
        return late / 1e9 if late > self._patience else 0.0

    # Samples

    def look(self, look: Look) -> None:
        """Take a sample, unless the loop has turned meanwhile. Called by the watching thread."""
        with self._lock:
            now = monotonic_ns()
            due = self._state.words[DUE]
            if not due or now - due < self._patience:
                return
            if not self._counted_to:
                # It began between two beats.
                self._counted_to = due - self._patience
            self._take(look, now)

    def look_from_inside(self) -> None:
        """Take a sample in the loop's own thread, wherever that is; unless it holds the lock itself."""
        looks = self._looks
        if looks is None or not self._lock.acquire(blocking=False):
            return
        try:
            now = monotonic_ns()
            due = self._state.words[DUE]
            if due and now - due >= self._patience:
                self._counted_to = self._counted_to or due - self._patience
                self._take(Look(*looks.look()), now)
        finally:
            self._lock.release()

    def _take(self, look: Look, now: int) -> None:
        nanoseconds = now - self._counted_to
        collected = _collections.total()
        kind = _kind_of(look, min(collected - self._collected, look.time))
        self._collected = collected
        frames = stacks.frames_of(self._thread)
        frames = list(itertools.takewhile(lambda frame: frame.f_code not in _OWN_CODE, frames))
        stack: Stack = tuple((frame.f_code, frame.f_lineno or 0) for frame in frames)
        is_foreign = kind == "gil" and _is_of_another_thread(look)
        # Without a GIL only the thread itself may look at its variables.
        scope = _scope_of(frames) if has_gil() or threading.get_ident() == self._thread else None
        group = self._last = self._group_of(stack, None if is_foreign else scope, is_foreign)
        group.add(nanoseconds, kind, stack)
        self._counted_to = now

    def _group_of(self, stack: Stack, scope: Any, is_foreign: bool) -> _Group:
        """Return the group of the code that runs in the loop, for the request of `scope`.

        `is_foreign` says that another thread holds the interpreter.
        """
        task = None if is_foreign else asyncio.current_task(self._loop)
        request = None if task is None else self._in_flight.owner_of(task)
        if request is None and scope is not None:
            request = self._request_of(scope)
        owner = None if request is None else request.scope or request.route()
        key: object = (id(task), id(owner)) if task is not None else (stack[:1] and stack[0][0], is_foreign, id(owner))
        group = self._groups.get(key)
        if group is not None:
            return group
        if len(self._groups) >= MOST_GROUPS:
            return next(reversed(self._groups.values()))
        text = ""
        if is_foreign:
            what = "another thread, which held the GIL"
        elif task is None:
            what = stacks.name_of(stack[0][0]) if stack else UNSEEN
        else:
            what = stacks.called(task)[:LONGEST_TEXT]
            text = "" if request is None else self._text_of(request)
        group = self._groups[key] = _Group(what, request, text)
        return group

    def _request_of(self, scope: Any) -> InFlightRequest:
        routes = self._in_flight.routes
        if scope.get("type") == "lifespan":
            return InFlightRequest(None, self._loop, routes, LIFESPAN)
        return InFlightRequest(scope, self._loop, routes)

    # Ends

    def turn(self, late: int) -> None:
        """End the stall, if there is one: the loop turns, after it was late for these nanoseconds."""
        if self._worst_unlogged is not None and time.monotonic() >= self._log_at:
            self._log()
        if late < self._patience and not self._counted_to:
            self._collected = _collections.total()
            return
        with self._lock:
            stalls = self._end(late)
            # No sample before the next beat has its time.
            self._state.words[DUE] = 0
        for stall in stalls:
            self._count(stall)

    def _end(self, late: int) -> list[Stall]:
        groups, last = list(self._groups.values()), self._last
        total = late + self._patience
        if last is not None:
            # The time since the last sample.
            rest = max(0, monotonic_ns() - self._counted_to)
            last.nanoseconds += rest
        self._groups, self._last, self._counted_to = {}, None, 0
        self._collected = _collections.total()
        if total < self.threshold * 1e9:
            return []
        if not groups:
            unseen = _Group(UNSEEN, None, "")
            unseen.add(total, "blocked", ())
            return [_stall(unseen)]
        long = [group for group in groups if group.nanoseconds >= self.threshold * 0.75e9]
        if not long:
            longest = max(groups, key=lambda group: group.nanoseconds)
            if longest.nanoseconds < total / 2:
                longest.what, longest.request, longest.text = MANY, None, ""
            longest.nanoseconds = total
            long = [longest]
        return [_stall(group) for group in long]

    def _count(self, stall: Stall) -> None:
        if self._table is not None:
            self._table.add(stall.route, stall.kind, stall.nanoseconds)
        key = (stall.route, stall.kind)
        if key not in self.records and len(self.records) >= ROUTES:
            key = (OTHER, stall.kind)
        self.records.setdefault(key, StallRecord(stall)).add(stall)
        self._unlogged += 1
        if self._worst_unlogged is None or stall.nanoseconds > self._worst_unlogged.nanoseconds:
            self._worst_unlogged = stall
        if time.monotonic() >= self._log_at:
            self._log()

    def _log(self) -> None:
        """Log the worst stall since the last line."""
        stall, others = self._worst_unlogged, self._unlogged - 1
        self._worst_unlogged, self._unlogged = None, 0
        self._log_at = time.monotonic() + LOG_INTERVAL
        if stall is None:
            return
        logger.warning(
            "The event loop was stalled for %.3f s by route %s (%s) at %s. %s.%s (stall_threshold)",
            stall.nanoseconds / 1e9,
            escape(stall.route),
            stall.kind,
            place_of(stall.stack) or stall.what,
            ADVICE[stall.kind],
            f" It is the longest of {others + 1} stalls since the last line." if others else "",
        )


def _look_from_inside() -> None:
    if _in_main_thread is not None:
        # The code that runs must not get an error of this one.
        with contextlib.suppress(Exception):
            _in_main_thread.look_from_inside()


_in_main_thread: StallWatch | None = None
_OWN_CODE = frozenset({_Collections.__call__.__code__, _look_from_inside.__code__})


def _looks(words: memoryview, interval: float, clock: int | None) -> Looks:
    if clock is not None:
        with contextlib.suppress(ImportError, NotImplementedError):
            from uvicorn._native import Watchdog

            is_main = threading.current_thread() is threading.main_thread()
            return Watchdog(words, interval, clock, threading.get_native_id(), _look_from_inside if is_main else None)
    return PythonLooks(words, interval, clock)


def _kind_of(look: Look, collected: int) -> Kind:
    """Tell the kind from the clocks since the previous look, and the nanoseconds of garbage collection."""
    if collected > look.time / 2:
        return "gc"
    if has_gil() and look.wait > max(LEAST_WAIT, SWITCHES * sys.getswitchinterval()) * 1e9:
        # On a busy machine code that would give the GIL up may have to wait for a processor first.
        computed = look.thread_meanwhile > (LEAST_WAIT + sys.getswitchinterval()) / 2 * 1e9
        if computed or (not look.is_running and look.wait > look.time / 2):
            return "gil"
    return "computing" if look.is_running or look.thread > look.time / 10 else "blocked"


def _is_of_another_thread(look: Look) -> bool:
    """Tell whether another thread has computed while the loop waited for the interpreter."""
    return look.thread < look.time / 10 and look.process - look.thread > look.time / 2


def _scope_of(frames: Sequence[FrameType]) -> Any:
    """Return the scope of the innermost ASGI callable that runs: its first argument has this name.

    So requests cost nothing while there is no stall.
    """
    for frame in reversed(frames):
        code = frame.f_code
        if "scope" in code.co_varnames[: min(code.co_argcount, 2)]:
            scope = frame.f_locals.get("scope")
            if isinstance(scope, dict) and scope.get("type") in ("http", "websocket", "lifespan"):
                return scope
    return None


def _stall(group: _Group) -> Stall:
    ((kind, _),) = group.kinds.most_common(1)
    ((stack, _),) = group.stacks.most_common(1)
    route = NO_REQUEST if group.request is None else group.request.route() or UNKNOWN
    when = time.time() - group.nanoseconds / 1e9
    return Stall(route, kind, group.nanoseconds, when, group.what, group.text, stack)


# Telling.

_LIBRARIES = (
    *(path + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib") if (path := sysconfig.get_path(name))),
    str(Path(__file__).resolve().parent.parent) + os.sep,
    "<frozen",
)


def place_of(stack: Stack) -> str:
    """Return the innermost place in the application's code, and the one that it has called; empty if there is none."""
    if not stack:
        return ""
    innermost = stacks.line_of(*stack[-1])
    for code, line in reversed(stack):
        if not code.co_filename.startswith(_LIBRARIES):
            own = stacks.line_of(code, line)
            return own if own == innermost else f"{own}, which called {innermost}"
    return innermost


def when_of(seconds: float) -> str:
    """Return a time as ISO 8601 has it, in UTC."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


def sorted_records(records: dict[tuple[str, Kind], StallRecord]) -> Sequence[tuple[str, Kind, StallRecord]]:
    """Return all, those with the most time first; from any thread."""
    found = [(route, kind, record) for (route, kind), record in records.copy().items()]
    return sorted(found, key=lambda one: -one[2].nanoseconds)
