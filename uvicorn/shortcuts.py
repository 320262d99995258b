"""What the server does in a shorter way than asyncio or the interpreter.

A shortcut must not be distinguishable from the long way. To compare the two, and to find the one at fault, each can be
turned off: `UVICORN_SHORTCUTS=none` in the environment takes the long way everywhere, `UVICORN_SHORTCUTS=eager,reuse`
takes just these shortcuts. Without the variable the server takes all of them.

A server reads the variable when it starts. The native core has the same names in `base/shortcuts.rs`.
"""

from __future__ import annotations

import os
from enum import Enum

VARIABLE = "UVICORN_SHORTCUTS"


class Shortcut(str, Enum):
    """Each row is a shortcut: its name in the environment, and what it is."""

    COROUTINES = "coroutines"
    """The task of a request runs a coroutine of the native core, without one of Python around it."""
    EAGER = "eager"
    """The task of a request takes its first step inside the read that brings the request."""
    WAITERS = "waiters"
    """A WebSocket's `receive()` and `send()` await something lighter than `asyncio.Future`. Needs `coroutines`."""
    WAKEUPS = "wakeups"
    """What waits in a WebSocket's `receive()` goes on inside the read, not in the loop's next turn. Needs `waiters`."""
    STEPS = "steps"
    """A WebSocket application that only awaits messages takes its steps without its task. Needs `wakeups`."""
    REUSE = "reuse"
    """Scopes, cycles, calls, contexts, events and buffers of one request serve the next."""
    TEXTS = "texts"
    """The id of a request is written into the `str` that held the one before, if nothing else refers to it."""
    BYTES = "bytes"
    """A large binary message is received into the `bytes` object that its application gets."""


def chosen() -> frozenset[Shortcut]:
    """Return the shortcuts that a server which starts now takes.

    Raises:
        ValueError: the environment names one that does not exist.
    """
    text = os.environ.get(VARIABLE)
    if text is None:
        return frozenset(Shortcut)
    names = {name.strip() for name in text.split(",")} - {"", "none"}
    known = [shortcut.value for shortcut in Shortcut]
    if unknown := sorted(names.difference(known)):
        raise ValueError(f"{unknown[0]!r} is no shortcut: name some of {', '.join(known)}, or none.")
    return frozenset(Shortcut(name) for name in names)
