"""The server's shortcuts past asyncio and the interpreter.

A shortcut must not be distinguishable from the long way. To compare the two, and to find the one at fault, each can be
turned off: `UVICORN_SHORTCUTS=none` in the environment takes the long way everywhere, `UVICORN_SHORTCUTS=eager,reuse`
takes just these shortcuts. Without the variable the server takes all of them.

Most shortcuts assume something of the interpreter that no document promises. `TABLE` states each assumption, the
versions of CPython on which its test has proved it, and that test. On any other interpreter, on a later version and on
a free-threaded build the server takes the long way. `uvicorn --check` shows which shortcuts a server takes, if not all.

A server reads the variable when it starts. The native core has the same names in `base/shortcuts.rs`.
"""

from __future__ import annotations

import os
import sys
from enum import Enum
from typing import NamedTuple

VARIABLE = "UVICORN_SHORTCUTS"


class Shortcut(str, Enum):
    """Each row is a shortcut: its name in the environment, and its description."""

    COROUTINES = "coroutines"
    """The task of a request runs a coroutine of the native core, without one of Python around it."""
    EAGER = "eager"
    """The task of a request takes its first step inside the read that brings the request, unless steps are long."""
    WAITERS = "waiters"
    """A WebSocket's `receive()` and `send()` await something lighter than `asyncio.Future`. Needs `coroutines`."""
    WAKEUPS = "wakeups"
    """A waiting WebSocket `receive()` resumes inside the read, not in the loop's next turn. Needs `waiters`."""
    STEPS = "steps"
    """A WebSocket application that only awaits messages takes its steps without its task. Needs `wakeups`."""
    REUSE = "reuse"
    """Scopes, cycles, calls, contexts, events and buffers of one request serve the next."""
    TEXTS = "texts"
    """The id of a request is written into the `str` that held the one before, if nothing else refers to it."""
    BYTES = "bytes"
    """A large binary message is received into the `bytes` object that its application gets."""
    VERSIONS = "versions"
    """A dict that was lent is known to be unchanged by its version."""
    CLASSES = "classes"
    """The class of an event loop is known to be unchanged by its version."""
    WALKS = "walks"
    """A message is read in one walk over its dict, which borrows the keys."""
    SLOTS = "slots"
    """The interpreter calls `receive`, `send` and their coroutines by slots, without the handling of arguments."""
    CALLS = "calls"
    """A task is made by its class's `tp_new` and `tp_init`, without a copy of the keywords."""
    HANDLES = "handles"
    """The event loop's handle for the native reader runs each call in a context of its own."""
    LOGGING = "logging"
    """Access lines are formatted and levels compared without calling `logging`, while its set-up is unchanged."""
    HEADS = "heads"
    """The native core checks the heads that httptools or h11 reads, and collects the fields that httptools finds."""
    EVENTS = "events"
    """h11 reads a request without a body by its function for heads, without the state machine around it."""
    SPANS = "spans"
    """The context with the server's span of OpenTelemetry serves the next request. Needs `reuse`."""


Version = tuple[int, int]

EVERY: tuple[Version, ...] = ((3, 10), (3, 11), (3, 12), (3, 13))
"""The versions of CPython that all tests run on."""
SINCE_EAGER_TASKS: tuple[Version, ...] = ((3, 12), (3, 13))


class Row(NamedTuple):
    """An assumption of a shortcut about the interpreter.

    Attributes:
        assumption: which must hold where the shortcut is taken.
        versions: of CPython with the GIL, on which `test` has passed.
        where: the files that rely on it.
        test: which fails where the assumption does not hold.
    """

    assumption: str
    versions: tuple[Version, ...]
    where: tuple[str, ...]
    test: str


_BASE = "native/bindings/src/base"

TABLE = {
    Shortcut.COROUTINES: Row(
        "A task uses `send` and `throw` of its coroutine, and nothing else.",
        EVERY,
        ("native/bindings/src/asgi/cycle.rs", f"{_BASE}/task.rs"),
        "coroutines",
    ),
    Shortcut.EAGER: Row(
        "A task made with `eager_start` takes its first step before the call returns, as the current task.",
        SINCE_EAGER_TASKS,
        (f"{_BASE}/task.rs", "uvicorn/protocols/utils.py"),
        "eager",
    ),
    Shortcut.WAITERS: Row(
        "A task uses only the attributes of an awaited object that `Waiter` has.",
        EVERY,
        (f"{_BASE}/waiter.rs", "native/bindings/src/ws/handshake.rs"),
        "waiters",
    ),
    Shortcut.WAKEUPS: Row(
        "The callback of a task takes the task's next step in the call.",
        EVERY,
        (f"{_BASE}/waiter.rs", "native/bindings/src/ws/events.rs"),
        "wakeups",
    ),
    Shortcut.STEPS: Row(
        "`_enter_task` and `_leave_task` decide what the current task is; entering a second one raises.",
        EVERY,
        ("native/bindings/src/asgi/cycle.rs", f"{_BASE}/home.rs"),
        "steps",
    ),
    Shortcut.REUSE: Row(
        "The reference count of an object counts each holder; `tp_weaklistoffset` leads to weak references.",
        EVERY,
        (f"{_BASE}/ffi/refcount.rs", f"{_BASE}/reuse.rs"),
        "reuse",
    ),
    Shortcut.TEXTS: Row(
        "A `str` of ASCII has its text behind a header of fixed size, and no hash until it is a key or interned.",
        EVERY,
        (f"{_BASE}/ffi/text.rs",),
        "texts",
    ),
    Shortcut.BYTES: Row(
        "A `bytes` object made without content is not shared, and has no hash before its first use.",
        EVERY,
        (f"{_BASE}/ffi/bytes.rs",),
        "bytes",
    ),
    Shortcut.VERSIONS: Row(
        "`ma_version_tag` of a dict changes with each change of the dict, to a number that no dict had (PEP 509).",
        EVERY,
        (f"{_BASE}/ffi/dict.rs",),
        "versions",
    ),
    Shortcut.CLASSES: Row(
        "`tp_version_tag` of a class changes with each change of it or of a base, to a number that no class had.",
        EVERY,
        (f"{_BASE}/ffi/dict.rs", f"{_BASE}/task.rs"),
        "classes",
    ),
    Shortcut.WALKS: Row(
        "`PyDict_Next` gives each item once, in order, while no Python code runs.",
        EVERY,
        (f"{_BASE}/ffi/dict.rs",),
        "walks",
    ),
    Shortcut.SLOTS: Row(
        "Slots of a heap type may be replaced before it is used; instances keep their vectorcall at a fixed offset.",
        EVERY,
        (f"{_BASE}/ffi/slots.rs",),
        "slots",
    ),
    Shortcut.CALLS: Row(
        "A call of a class whose own class is `type` is `tp_new` and then `tp_init`; that of a task keeps no keywords.",
        EVERY,
        (f"{_BASE}/ffi/call.rs",),
        "calls",
    ),
    Shortcut.HANDLES: Row(
        "`_add_reader` of asyncio's loops returns the handle, which calls its callback by `run` of its `_context`.",
        EVERY,
        ("native/bindings/src/tcp/reactor.rs",),
        "handles",
    ),
    Shortcut.LOGGING: Row(
        "`Logger._cache` is cleared when a level changes; what `logging` reads of its objects is in their dicts.",
        EVERY,
        (f"{_BASE}/level.rs", "native/bindings/src/asgi/access/untouched.rs", "uvicorn/access/log.py"),
        "logging",
    ),
    Shortcut.HEADS: Row(
        "httptools looks up `on_header` once for each parser, and calls it with two `bytes` objects.",
        EVERY,
        (
            "native/bindings/src/heads.rs",
            "uvicorn/protocols/http/wire/head.py",
            "uvicorn/protocols/http/httptools_impl.py",
        ),
        "heads",
    ),
    Shortcut.EVENTS: Row(
        "h11's state machine adds nothing to a request without a body, and ends it with `EndOfMessage`.",
        EVERY,
        ("uvicorn/protocols/http/h11_impl.py",),
        "events",
    ),
    Shortcut.SPANS: Row(
        "A context refers to a map, which only copies share, and so to its items; an object refers to its attributes.",
        EVERY,
        (f"{_BASE}/ffi/referents.rs", f"{_BASE}/current_span.rs"),
        "spans",
    ),
}
"""By shortcut. The tests are `test_<name>` in `tests/rules/test_assumptions.py`."""


def is_free_threaded() -> bool:
    """Whether this interpreter was built without the GIL, also where it runs with one."""
    # Not by `sysconfig`: that imports a module with a name of its own for each build, after which no worker is forked.
    return "free-threading build" in sys.version


def proved() -> frozenset[Shortcut]:
    """Return the shortcuts whose assumptions are proved on this interpreter."""
    if sys.implementation.name != "cpython" or is_free_threaded():
        return frozenset()
    version = sys.version_info[:2]
    return frozenset(shortcut for shortcut, row in TABLE.items() if version in row.versions)


def chosen() -> frozenset[Shortcut]:
    """Return the shortcuts that a server which starts now takes: of those that are proved, the ones asked for.

    Raises:
        ValueError: the environment names one that does not exist.
    """
    text = os.environ.get(VARIABLE)
    if text is None:
        return proved()
    names = {name.strip() for name in text.split(",")} - {"", "none"}
    known = [shortcut.value for shortcut in Shortcut]
    if unknown := sorted(names.difference(known)):
        raise ValueError(f"{unknown[0]!r} is not a shortcut: choose from {', '.join(known)}, or none.")
    return proved().intersection(map(Shortcut, names))
