"""Where threads, tasks and coroutines are, as lines of text: files, lines and names, never values."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from types import CodeType, FrameType
from typing import Any

MOST_FRAMES = 20
"""Of one stack: the innermost."""

_DEEPEST = 1000
"""Frames that are looked at, of a stack that may be about to overflow."""

_AWAITED = (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await"))

# Frames of the event loop up to the callback, and frames around the application.
_LOOPS = (
    *("/asyncio/runners.py", "/asyncio/base_events.py", "/asyncio/events.py"),
    *("/uvicorn/_compat.py", "/uvicorn/middleware/in_flight.py"),
)


def name_of(code: CodeType) -> str:
    """Return the name of a function, with the class or function around it where Python knows that (3.11)."""
    return getattr(code, "co_qualname", code.co_name)


def _line(frame: FrameType) -> str:
    return line_of(frame.f_code, frame.f_lineno)


def line_of(code: CodeType, number: int | None) -> str:
    """Return file, line and function."""
    return f"{code.co_filename}:{number} in {name_of(code)}"


def lines_at(places: Iterable[tuple[CodeType, int]]) -> list[str]:
    """Return a line for each place of a stack."""
    return _innermost([line_of(*place) for place in places])


def _innermost(lines: list[str]) -> list[str]:
    left_out = len(lines) - MOST_FRAMES
    return lines if left_out <= 0 else [f"... {left_out} more", *lines[left_out:]]


def chain_of(awaitable: Any) -> list[str]:
    """Return the stack of an awaited object: a line for each coroutine, innermost last, and the object it awaits."""
    lines: list[str] = []
    while awaitable is not None and len(lines) < _DEEPEST:
        for frame_name, next_name in _AWAITED:
            if hasattr(awaitable, next_name):
                frame = getattr(awaitable, frame_name, None)
                if frame is not None:
                    lines.append(_line(frame))
                awaitable = getattr(awaitable, next_name)
                break
        else:
            lines.append(f"awaiting {_kind(type(awaitable))}")
            break
    return _innermost(lines)


def _kind(awaited: type) -> str:
    return "receive() or send()" if awaited.__module__ == "uvicorn._native" else awaited.__qualname__


def stack_of(task: asyncio.Task[Any]) -> list[str]:
    """Return where a task is, and, if it waits for another, where that is."""
    return [*chain_of(task.get_coro()), *awaited_by(task)]


def awaited_by(task: asyncio.Task[Any]) -> list[str]:
    """Return the task that a task waits for, if it waits for one."""
    waiter = getattr(task, "_fut_waiter", None)
    return [f"for {called(waiter)}"] if isinstance(waiter, asyncio.Task) else []


def called(task: asyncio.Task[Any]) -> str:
    """Return the name of a task, and the function that it runs."""
    coroutine: Any = task.get_coro()
    return f"{task.get_name()} ({getattr(coroutine, '__qualname__', type(coroutine).__qualname__)})"


def frames_of(thread: int) -> list[FrameType]:
    """Return the frames of a thread from the callback of its event loop on, the innermost last; none if it is gone."""
    frame = sys._current_frames().get(thread)
    frames: list[FrameType] = []
    while frame is not None and len(frames) < _DEEPEST:
        if frame.f_code.co_filename.replace("\\", "/").endswith(_LOOPS) and frames:
            break
        frames.append(frame)
        frame = frame.f_back
    frames.reverse()
    return frames


def lines_of(frames: list[FrameType]) -> list[str]:
    """Return a line for each frame."""
    return _innermost([_line(frame) for frame in frames])
