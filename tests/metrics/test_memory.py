"""Memory that is free is given back to the kernel: `uvicorn.metrics.memory`."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from uvicorn.metrics.memory import LOOKS, FreedMemory, Heap, glibc

MIB = 2**20


class _Loop:
    """Notes what is to be called later."""

    def __init__(self) -> None:
        self.later: list[Any] = []

    def is_closed(self) -> bool:
        return False

    def call_later(self, delay: float, callback: Any) -> Any:
        self.later = [callback]
        return SimpleNamespace(cancel=self.later.clear)


def test_memory_is_given_back_once_it_is_free() -> None:
    loop, trimmed = _Loop(), []
    size = {"resident": 40 * MIB, "free": 1 * MIB}

    def trim(kept: int) -> None:
        trimmed.append(kept)
        size["resident"] = 40 * MIB

    freed = FreedMemory(loop, [object()], lambda: size["resident"], lambda: Heap(lambda: size["free"], trim))  # type: ignore[arg-type]
    freed.start()
    freed.watch()
    for resident, free, expected in (
        (40, 1, 0),
        (60, 20, 0),  # not worth while
        (400, 2, 0),  # all of it is in use
        (400, 370, 1),
        (40, 370, 1),  # free, and given back
        (45, 370, 1),
        (400, 370, 2),  # again
    ):
        size.update(resident=resident * MIB, free=free * MIB)
        (look,) = loop.later
        look()
        assert len(trimmed) == expected, (resident, free)
    assert set(trimmed) == {0}
    freed.stop()
    assert not loop.later


def test_nobody_looks_once_all_clients_have_left() -> None:
    loop = _Loop()
    connections = [object()]
    freed = FreedMemory(loop, connections, lambda: 40 * MIB, lambda: None)  # type: ignore[arg-type]
    freed.start()
    assert not loop.later
    freed.watch()
    connections.clear()
    for _ in range(LOOKS):
        (look,) = loop.later
        loop.later.clear()
        look()
    assert not loop.later


def test_memory_is_given_back_that_was_in_use_the_last_time() -> None:
    loop = _Loop()
    trimmed: list[int] = []
    size = {"resident": 40 * MIB, "free": 1 * MIB}
    freed = FreedMemory(
        loop,  # type: ignore[arg-type]
        [object()],
        lambda: size["resident"],
        lambda: Heap(lambda: size["free"], trimmed.append),
    )
    freed.start()
    freed.watch()
    for resident, free, expected in (
        (250, 160, 1),  # nobody knows how much of it the kernel had back
        (250, 160, 1),
        (250, 360, 2),  # it does not grow, and other clients have left
        (60, 360, 2),
        (250, 20, 2),
        (250, 60, 3),
    ):
        size.update(resident=resident * MIB, free=free * MIB)
        (look,) = loop.later
        look()
        assert len(trimmed) == expected, (resident, free)
    freed.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_glibc_tells_what_is_free_and_gives_it_back() -> None:
    heap = glibc()
    if heap is None:
        pytest.skip("the C library is another one")
    code = """
from uvicorn.metrics.memory import glibc, keep_freed_memory, resident_memory
import os
keep_freed_memory()
pieces = [bytes([1]) * 100_000 for _ in range(2000)]
kept = pieces[::200]
used = resident_memory(os.getpid())
heap = glibc()
assert heap.free() < 64 * 2**20
del pieces
assert heap.free() > 100 * 2**20 or resident_memory(os.getpid()) < used - 100 * 2**20
heap.trim(0)
assert resident_memory(os.getpid()) < used - 100 * 2**20
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
