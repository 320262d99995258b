"""Sample the threads of a process for a while: `GET /profile` at the debug address.

It works from inside, so it needs neither ptrace nor a capability. Weights are CPU time as the kernel counts it for each
thread, so code that waits has none, and a call into C has all of its time.

The main thread is sampled by a timer of CPU time (SIGPROF): its handler runs between two instructions of the code that
computes, wherever that is. Other threads, and the main thread where a program has a use for SIGPROF, are sampled by a
thread that takes the GIL. Threads pass the GIL on where they wait; a sampler that queued for it would see those places
and few others. So it takes the GIL twice, with a random time in between, and the second time within microseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import platform
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import Context
from dis import opmap
from importlib.resources import files
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, TypedDict

from uvicorn.metrics.routes import NO_ROUTE, Routes
from uvicorn.middleware.in_flight import request_in, request_of
from uvicorn.observing.orders import Order
from uvicorn.observing.stacks import name_of
from uvicorn.rules.syntax import printable

if TYPE_CHECKING:
    from uvicorn.observing.debugging import Observer

FLUSH_INTERVAL = 1.0
"""Seconds between two parts of a profile: a worker that crashes loses no more."""

MOST_DEPTH = 200
"""Frames of one stack: the innermost."""

MOST_STACKS = 5000
"""Different stacks of one part."""

MOST_TEXT = 300
"""Characters of the name of a function, a file or a route."""

SWITCH_INTERVAL = 5e-6
"""Seconds after which a thread gives the GIL to the sampler: about 60 microseconds, as Linux wakes threads."""

SPREAD = 1e-3
"""Seconds over which a sample is spread once the sampler has had the GIL, and the switch interval in between.

Only in this time the short interval is set, because threads that wait for the GIL ask for it as often.
"""

RARE_INTERVAL = 0.1
"""Seconds between two samples while the main thread has its timer and the others wait."""

BUSY = 0.005
"""Part of a core that the other threads may need before they are sampled at the full rate."""

OTHER_STACKS = ("(other stacks)", "", 0)
DEEPER = ("(deeper)", "", 0)
NO_REQUEST = "(outside of requests)"
UNKNOWN_ROUTE = "(no route)"

_WAITING = frozenset(
    {
        *(("threading.py", name) for name in ("wait", "wait_for", "join", "_wait_for_tstate_lock", "acquire")),
        *(("thread.py", "_worker"), ("queue.py", "get"), ("selectors.py", "select"), ("socket.py", "accept")),
        *(("connection.py", "_recv"), ("connection.py", "_poll"), ("popen_fork.py", "poll"), ("ssl.py", "read")),
        *(("base_events.py", "_run_once"), ("windows_events.py", "_poll")),
    }
)
"""File and name of functions in which threads wait, for a lock or for something else."""

_FUTEX = {"x86_64": b"202", "aarch64": b"98", "riscv64": b"98", "ppc64le": b"221", "s390x": b"238"}.get(
    platform.machine(), b"-"
)
"""The number of the system call by which Linux lets threads wait for locks, and for the GIL."""

_RESUME = opmap.get("RESUME", -1)
"""The instruction with which functions and coroutines begin and go on (Python 3.11)."""

_AFTER_YIELD = 1
"""Its argument in a generator that goes on, mostly in a loop in C, which has had less time than the generator."""

_RUNS_LOOP = frozenset({("run", "/runners.py"), ("run_in_new_loop", "/_compat.py")})
"""Name and end of the file of functions that run an event loop."""

_RUNNERS = 12
"""Outermost frames of a thread, among which one runs a call in the context of a request."""


class ProfilePart(TypedDict):
    """The samples of one process since its last part.

    A frame has the name of its function, its file and its first line; a route has its name only. `stacks` have the
    places of their frames in `frames`, outermost first, and microseconds. `seconds` have passed since the beginning;
    with `last` no other part follows.
    """

    pid: int
    seconds: float
    samples: int
    frames: list[tuple[str, str, int]]
    stacks: list[tuple[list[int], int]]
    last: bool


_Stack = tuple[int, ...]
"""The ids of code objects, innermost first."""


class _Thread:
    """A thread that is sampled.

    Attributes:
        hits: seconds of its samples since the last part, by scope, whose route may be known only later, and stack.
        cpu: its CPU time at the last sample, in seconds; None if that is unknown.
        counted: CPU time that is part of the profile.
    """

    def __init__(self, native_id: int | None) -> None:
        self.hits: dict[tuple[int, _Stack], tuple[Any, float]] = {}
        # As Linux numbers the clocks of threads. The C library's function must not be called for one that has ended.
        self._clock: int | None = None
        self._state = -1
        if sys.platform == "linux" and native_id is not None:
            self._clock = (~native_id << 3) | 6
            with contextlib.suppress(OSError):
                self._state = os.open(f"/proc/self/task/{native_id}/syscall", os.O_RDONLY | os.O_CLOEXEC)
        self.cpu = self.counted = self.read_clock()

    def hit(self, scope: Any, stack: _Stack, seconds: float) -> None:
        """Note a sample."""
        key = (id(scope), stack)
        _, known = self.hits.get(key, (None, 0.0))
        self.hits[key] = (scope, known + seconds)

    def read_clock(self) -> float | None:
        """Return its CPU time in seconds; None if that is unknown."""
        if sys.platform != "win32" and self._clock is not None:
            try:
                return time.clock_gettime(self._clock)
            except OSError:
                self._clock = None
        return None

    def is_waiting(self, is_in_wait: bool) -> bool:
        """Tell whether it waits; `is_in_wait` if its innermost function is one in which threads do."""
        if sys.platform == "win32" or self._state < 0:
            return is_in_wait
        try:
            state = os.pread(self._state, 16, 0).partition(b" ")[0].strip()
        except OSError:
            return True  # it has ended
        if state == b"running":
            return False
        return state != _FUTEX or is_in_wait

    def close(self) -> None:
        """Close its file."""
        if self._state >= 0:
            os.close(self._state)
            self._state = -1


class Sampler:
    """Samples the threads of this process, its own and those of `observers` included.

    Args:
        order: the parameters.
        observers: of the event loops, which know the requests of their tasks.
    """

    def __init__(self, order: Order, observers: Sequence[Observer]) -> None:
        self._order = order
        self._observers = {observer.thread.ident: observer for observer in observers}
        self._threads: dict[int, _Thread] = {}
        self._codes: dict[int, CodeType] = {}
        self._waits: dict[int, bool] = {}
        self._routes = observers[0].in_flight.routes if observers else Routes()
        self._samples = 0
        self._has_timer = False
        self._are_others_busy = True

    def run(self, emit: Callable[[ProfilePart], None], is_over: Callable[[], bool]) -> None:
        """Sample until the time has passed or `is_over`, and `emit` a part every second, the last in any case."""
        interval = 1 / self._order.rate
        began = previous = flushed = time.monotonic()
        until = began + self._order.seconds
        timer = None if self._order.idle else self._start_timer(interval)
        with SwitchInterval() as switching:
            while previous < until and not is_over():
                pause = interval * random.uniform(0.5, 1.5) if self._are_others_busy else max(interval, RARE_INTERVAL)
                time.sleep(min(pause, max(0.0, until - previous)))
                if self._are_others_busy:
                    switching.set(SWITCH_INTERVAL)
                    time.sleep(random.uniform(0, SPREAD))
                now = time.monotonic()
                self._has_timer = timer is not None and timer.is_running
                self._take(now - previous)
                switching.set(SPREAD if self._are_others_busy else None)
                previous = now
                if now - flushed >= FLUSH_INTERVAL:
                    emit(self._part(now - began, False))
                    flushed = now
        if timer is not None:
            timer.stop()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._observers[threading.main_thread().ident].loop.call_soon_threadsafe(timer.release)
        emit(self._part(time.monotonic() - began, True))
        for thread in self._threads.values():
            thread.close()

    def _start_timer(self, interval: float) -> MainTimer | None:
        main = threading.main_thread()
        observer = self._observers.get(main.ident)
        if observer is None or not MainTimer.is_possible():
            return None
        timer = MainTimer(interval, functools.partial(self._take_main, self._meet(main.ident or 0), main.ident or 0))
        with contextlib.suppress(RuntimeError):  # the loop is closed
            observer.loop.call_soon_threadsafe(timer.start)
        return timer

    def _take_main(self, thread: _Thread, ident: int, frame: FrameType) -> None:
        """Note the stack of the main thread; called in it."""
        before, thread.cpu = thread.cpu, thread.read_clock()
        if before is None or thread.cpu is None:
            return
        self._samples += 1
        scope = self._scope_of(ident, frame) if self._order.by_route else None
        thread.hit(scope, self._stack_of(frame), thread.cpu - before)

    def _take(self, seconds: float) -> None:
        """Note the stacks after `seconds` since the last sample."""
        frames = sys._current_frames()
        del frames[threading.get_ident()]
        if self._has_timer:
            frames.pop(threading.main_thread().ident or 0, None)
        else:
            self._samples += 1
        busy = 0.0
        found: list[tuple[_Thread, Any, _Stack, bool]] = []
        # Reading a file lets other threads run; so all stacks come first.
        for ident, frame in frames.items():
            thread = self._threads.get(ident)
            if thread is None:
                thread = self._meet(ident)
            before, thread.cpu = thread.cpu, thread.read_clock()
            if thread.cpu is None and before is not None:  # another thread with the same id
                thread.close()
                thread = self._meet(ident)
                before = thread.cpu
            busy += seconds if before is None or thread.cpu is None else thread.cpu - before
            if self._order.idle or before is None or thread.cpu != before:
                is_in_wait = self._is_in_wait(frame.f_code)
                if self._order.idle or before is not None or not is_in_wait:
                    scope = self._scope_of(ident, frame) if self._order.by_route else None
                    found.append((thread, scope, self._stack_of(frame), is_in_wait))
        if not self._order.idle:
            # The sampler has held the GIL since, so a thread in a wait computes only if it needs none. Its state would
            # say the same of one that has been woken and takes the GIL as soon as reading that lets go of it.
            found = [one for one in found if not one[3] or one[0].cpu is None or one[0].cpu != one[0].read_clock()]
        del frames
        self._are_others_busy = not self._has_timer or busy > BUSY * seconds
        for thread, scope, stack, is_in_wait in found:
            if self._order.idle or not thread.is_waiting(is_in_wait):
                thread.hit(scope, stack, seconds)

    def _meet(self, ident: int) -> _Thread:
        native_id = next((thread.native_id for thread in threading.enumerate() if thread.ident == ident), None)
        thread = self._threads[ident] = _Thread(native_id)
        return thread

    def _is_in_wait(self, code: CodeType) -> bool:
        known = self._waits.get(id(code))
        if known is None:
            name = code.co_filename.replace("\\", "/").rpartition("/")[2]
            known = self._waits[id(code)] = (name, code.co_name) in _WAITING
            self._codes[id(code)] = code
        return known

    def _stack_of(self, frame: FrameType | None) -> _Stack:
        codes = self._codes
        stack: list[int] = []
        if frame is not None and _is_entered(frame):
            frame = frame.f_back  # which has had the time, or code in C that it has called
        while frame is not None:
            code = frame.f_code
            codes[id(code)] = code  # kept, so that its id remains its
            stack.append(id(code))
            if (code.co_name, code.co_filename[-11:]) in _RUNS_LOOP:
                break  # how the program came to run it says nothing
            if len(stack) == MOST_DEPTH:
                stack.append(0)
                break
            frame = frame.f_back
        return tuple(stack)

    def _scope_of(self, ident: int, frame: FrameType) -> Any:
        """Return the scope of the request that a thread is at work on; None if there is none."""
        observer = self._observers.get(ident)
        if observer is None:
            return _scope_in_thread(frame)
        task = asyncio.current_task(observer.loop)
        if task is None:
            return None
        request = request_of(task) or next((one for one in list(observer.in_flight) if one.task is task), None)
        return None if request is None else request.scope

    def _part(self, seconds: float, last: bool) -> ProfilePart:
        weights: dict[tuple[str, _Stack], float] = {}
        for thread in list(self._threads.values()):
            hits, thread.hits = thread.hits, {}
            scale = self._scale(thread, sum(hit for _, hit in hits.values()))
            for (_, stack), (scope, hit) in hits.items():
                key = (self._route_of(scope), stack)
                if key in weights or len(weights) < MOST_STACKS:
                    weights[key] = weights.get(key, 0.0) + hit * scale
                else:
                    weights["", ()] = weights.get(("", ()), 0.0) + hit * scale
        places: dict[tuple[str, str, int], int] = {}
        stacks = [
            ([places.setdefault(frame, len(places)) for frame in self._frames(route, stack)], round(weight * 1e6))
            for (route, stack), weight in weights.items()
        ]
        samples, self._samples = self._samples, 0
        return {
            "pid": os.getpid(),
            "seconds": round(seconds, 3),
            "samples": samples,
            "frames": list(places),
            "stacks": stacks,
            "last": last,
        }

    def _scale(self, thread: _Thread, total: float) -> float:
        """Return by how much its samples, `total` seconds, are multiplied so that they add up to its CPU time."""
        if self._order.idle or not total or thread.cpu is None or thread.counted is None:
            return 1.0
        cpu, thread.counted = thread.cpu - thread.counted, thread.cpu
        return cpu / total

    def _route_of(self, scope: Any) -> str:
        if not self._order.by_route:
            return ""
        if scope is None:
            return NO_REQUEST
        route = self._routes.of(scope)
        return UNKNOWN_ROUTE if route == NO_ROUTE else route

    def _frames(self, route: str, stack: _Stack) -> Iterator[tuple[str, str, int]]:
        if route:
            yield route[:MOST_TEXT], "", 0
        if not stack:
            yield OTHER_STACKS
        for number in reversed(stack):
            yield _frame_of(self._codes[number]) if number else DEEPER


def _is_entered(frame: FrameType) -> bool:
    """Tell whether a function has only begun, or a coroutine begun to go on: there the interpreter runs handlers."""
    place, code = frame.f_lasti, frame.f_code.co_code
    return place < 0 or (code[place] == _RESUME and code[place + 1] & 3 != _AFTER_YIELD)


def _frame_of(code: CodeType) -> tuple[str, str, int]:
    return name_of(code)[:MOST_TEXT], code.co_filename[-MOST_TEXT:], code.co_firstlineno


def _scope_in_thread(frame: FrameType | None) -> Any:
    """Return the scope of the request in whose context a thread of a pool has called something."""
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    for outer in frames[: -_RUNNERS - 1 : -1]:
        for value in list(outer.f_locals.values()):
            context = _context_in(value)
            if context is not None:
                request = request_in(context)
                return None if request is None else request.scope
    return None


def _context_in(value: Any) -> Context | None:
    """Return the context in which a value runs a function, if it is a call of `Context.run`, or is the context."""
    if isinstance(value, Context):
        return value
    for _ in range(3):  # a lambda around a work item around a partial function
        if isinstance(value, functools.partial):
            owner = getattr(value.func, "__self__", None)
            return owner if isinstance(owner, Context) else None
        cells = getattr(value, "__closure__", None) if callable(value) else None
        if cells:
            value = next((one for cell in cells if callable(one := _content(cell))), None)
        else:
            return None
    return None


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None


class MainTimer:
    """Calls `take` with the current frame of the main thread after each `interval` seconds of CPU time, about.

    Attributes:
        is_running: whether it does.
    """

    def __init__(self, interval: float, take: Callable[[FrameType], None]) -> None:
        self.is_running = False
        self._interval = interval
        self._take = take
        self._is_over = False

    @staticmethod
    def is_possible() -> bool:
        """Tell whether this system has such a timer and no program uses it."""
        if sys.platform == "win32":
            return False
        handler = signal.getsignal(signal.SIGPROF)
        is_free = handler in (signal.SIG_DFL, _ignore) or getattr(handler, "__func__", None) is MainTimer._handle
        return sys.platform == "linux" and is_free and not any(signal.getitimer(signal.ITIMER_PROF))

    def start(self) -> None:
        """Start, in the main thread."""
        if sys.platform != "win32" and not self._is_over:
            signal.signal(signal.SIGPROF, self._handle)
            signal.siginterrupt(signal.SIGPROF, False)
            self.is_running = True
            self._arm()

    def _arm(self) -> None:
        if sys.platform != "win32":
            signal.setitimer(signal.ITIMER_PROF, self._interval * random.uniform(0.5, 1.5))

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._is_over:
            return
        try:
            if frame is not None:
                self._take(frame)
            self._arm()
        except Exception:
            # It would be raised in the application, and logging is not safe here. The sampler's thread takes over.
            self._is_over = True
            self.is_running = False

    def stop(self) -> None:
        """Stop; from any thread. A signal that is on its way finds a handler: without one, it would end the process."""
        self._is_over = True
        self.is_running = False
        if sys.platform != "win32":
            signal.setitimer(signal.ITIMER_PROF, 0)

    def release(self) -> None:
        """Drop the handler's reference to the profile, in the main thread."""
        if sys.platform != "win32" and signal.getsignal(signal.SIGPROF) == self._handle:
            signal.signal(signal.SIGPROF, _ignore)


def _ignore(number: int, frame: FrameType | None) -> None:
    pass


class SwitchInterval:
    """Lets the sampler have the GIL soon, and restores the interval that was set before.

    A program that sets another one meanwhile keeps that.
    """

    def __enter__(self) -> SwitchInterval:
        self._before = self._own = sys.getswitchinterval()
        return self

    def set(self, seconds: float | None) -> None:
        """Set the interval, None for the one before, unless the program has changed it."""
        wanted = self._before if seconds is None else min(seconds, self._before)
        if wanted != self._own and sys.getswitchinterval() == self._own:
            sys.setswitchinterval(wanted)
            self._own = sys.getswitchinterval()

    def __exit__(self, *exc: object) -> None:
        self.set(None)


# Merging and formats.

MOST_MERGED = 50_000
"""Different stacks of a profile."""


class Profile:
    """The samples of all processes.

    Attributes:
        frames: as in a `ProfilePart`.
        stacks: microseconds by places of the frames, outermost first.
        samples: how many were taken.
    """

    def __init__(self) -> None:
        self.frames: list[tuple[str, str, int]] = []
        self.stacks: dict[tuple[int, ...], int] = {}
        self.samples = 0
        self._places: dict[tuple[str, str, int], int] = {}

    def add(self, part: ProfilePart) -> None:
        """Add the samples of one part."""
        places = [self._place(*frame) for frame in part["frames"]]
        self.samples += part["samples"]
        for numbers, weight in part["stacks"]:
            stack = tuple(places[number] for number in numbers)
            if stack not in self.stacks and len(self.stacks) >= MOST_MERGED:
                stack = (self._place(*OTHER_STACKS),)
            self.stacks[stack] = self.stacks.get(stack, 0) + weight

    def _place(self, name: str, file: str, line: int) -> int:
        frame = (name, file, line)
        if (place := self._places.get(frame)) is None:
            place = self._places[frame] = len(self.frames)
            self.frames.append(frame)
        return place

    @property
    def total(self) -> int:
        """Microseconds of all samples."""
        return sum(self.stacks.values())


def folded(profile: Profile, notes: Sequence[str]) -> str:
    """Return a line for each stack, as `flamegraph.pl` and inferno read it, with microseconds; notes as stacks of 1."""
    labels = [_label(*frame) for frame in profile.frames]
    lines = (f"{';'.join(labels[place] for place in stack)} {weight}" for stack, weight in profile.stacks.items())
    remarks = (f"({_label(note, '', 0)}) 1" for note in notes)
    return "".join(f"{line}\n" for line in [*sorted(lines), *remarks])


def _label(name: str, file: str, line: int) -> str:
    text = f"{name} ({file}:{line})" if file else name
    return printable(text).replace(";", "?")


def speedscope(profile: Profile, title: str) -> str:
    """Return a file for https://www.speedscope.app."""
    frames = [
        {"name": name, "file": file, "line": line} if file else {"name": name} for name, file, line in profile.frames
    ]
    return json.dumps(
        {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "exporter": "uvicorn",
            "name": title,
            "activeProfileIndex": 0,
            "shared": {"frames": frames},
            "profiles": [
                {
                    "type": "sampled",
                    "name": title,
                    "unit": "microseconds",
                    "startValue": 0,
                    "endValue": profile.total,
                    "samples": list(profile.stacks),
                    "weights": list(profile.stacks.values()),
                }
            ],
        }
    )


def flame_graph(profile: Profile, title: str, notes: Sequence[str]) -> str:
    """Return a page with a flame graph that needs nothing else."""
    text = json.dumps({"title": title, "notes": notes, "frames": profile.frames, "root": _tree(profile)})
    page = files("uvicorn.observing").joinpath("flame_graph.html").read_text(encoding="utf-8")
    # Names may be anything; within a script only these characters could end it.
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return page.replace("/*DATA*/null", text)


LEAST_SHARE = 1e-4
"""Part of the whole that a frame must have to be in a flame graph."""


def _tree(profile: Profile) -> list[Any]:
    """Return nodes as lists: the place of a frame (-1: the root), microseconds, and the nodes below."""
    root: tuple[int, list[int], dict[int, Any]] = (-1, [0], {})
    for stack, weight in profile.stacks.items():
        node = root
        node[1][0] += weight
        for place in stack:
            node = node[2].setdefault(place, (place, [0], {}))
            node[1][0] += weight
    least = root[1][0] * LEAST_SHARE

    def nested(node: tuple[int, list[int], dict[int, Any]]) -> list[Any]:
        place, (weight,), below = node
        return [place, weight, [nested(one) for one in below.values() if one[1][0] >= least]]

    return nested(root)
