"""Runs inside a measured server: answers questions about its interpreter on a socket next to this file.

It is copied as `sitecustomize.py` where the server starts, and only for measurements that ask for it. The thread that
answers sleeps in accept() between questions. Standard library only; yappi is imported when profiling is asked for.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))


class Collections:
    """Runs and pauses of the garbage collector, through `gc.callbacks`."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self._begun = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._begun = time.perf_counter()
        else:
            self.pauses.append(time.perf_counter() - self._begun)


collections = Collections()


def trace_start(order: dict[str, Any]) -> dict[str, Any]:
    """Begin to trace allocations."""
    gc.collect()
    tracemalloc.start()
    return trace_read(order)


def trace_read(order: dict[str, Any]) -> dict[str, Any]:
    """Traced bytes now, and the highest since the last reading."""
    gc.collect()
    current, peak = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    return {"current": current, "peak": peak}


def gc_start(order: dict[str, Any]) -> dict[str, Any]:
    """Begin to time collections."""
    collections.pauses.clear()
    if collections not in gc.callbacks:
        gc.callbacks.append(collections)
    return {}


def gc_read(order: dict[str, Any]) -> dict[str, Any]:
    """Every pause since `gc_start`, in seconds."""
    return {"pauses": list(collections.pauses)}


def objects(order: dict[str, Any]) -> dict[str, Any]:
    """Objects the collector knows, after a collection, and memory blocks in use."""
    gc.collect()
    return {"objects": len(gc.get_objects()), "blocks": sys.getallocatedblocks()}


def profile_start(order: dict[str, Any]) -> dict[str, Any]:
    """Begin to profile every thread; `clock` is "cpu" or "wall"."""
    yappi = importlib.import_module("yappi")
    yappi.set_clock_type(order["clock"])
    yappi.start(builtins=True)
    return {}


def profile_stop(order: dict[str, Any]) -> dict[str, Any]:
    """End the profile, save it for pstats at `path`, and return the `top` functions by own time."""
    yappi = importlib.import_module("yappi")
    yappi.stop()
    found = yappi.get_func_stats()
    found.save(order["path"], type="pstat")
    found.sort("tsub", "desc")
    rows = [[one.full_name, one.ncall, one.tsub, one.ttot] for one in list(found)[: order["top"]]]
    yappi.clear_stats()
    return {"rows": rows}


ANSWERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "trace_start": trace_start,
    "trace_read": trace_read,
    "gc_start": gc_start,
    "gc_read": gc_read,
    "objects": objects,
    "profile_start": profile_start,
    "profile_stop": profile_stop,
}


def answer(text: bytes) -> dict[str, Any]:
    """Carry out one order."""
    order = json.loads(text)
    try:
        return ANSWERS[order["do"]](order)
    except Exception as exc:
        # Whatever went wrong is the harness's to report; the server must go on.
        return {"error": f"{type(exc).__name__}: {exc}"}


def serve() -> None:
    """Answer orders until the process ends."""
    path = os.path.join(HERE, f"inside-{os.getpid()}.sock")
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(path)
    except OSError:
        return
    listener.listen(4)
    while True:
        client, _ = listener.accept()
        with client, client.makefile("rwb") as stream:
            for line in stream:
                stream.write(json.dumps(answer(line)).encode() + b"\n")
                stream.flush()


def begin() -> None:
    """Start answering in this process, and in every process forked from it."""
    threading.Thread(target=serve, name="bench", daemon=True).start()


if os.environ.get("BENCH_INSIDE"):
    begin()
    os.register_at_fork(after_in_child=begin)
