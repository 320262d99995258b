"""Counts allocations of a process tree through a preloaded library (`c/alloc_count.c`)."""

from __future__ import annotations

import mmap
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.compiler import compiled


@dataclass(frozen=True)
class AllocationCounter:
    """Start processes with `environment`, then `read` what they allocated so far, all together."""

    path: Path
    environment: dict[str, str]

    def read(self) -> tuple[int, int]:
        """Calls of the allocator, and bytes asked of it."""
        calls, size = struct.unpack("=QQ", self.path.read_bytes()[:16])
        return calls, size


@contextmanager
def allocation_counter() -> Iterator[AllocationCounter]:
    """A counter; Python's own allocator is switched off so that every object counts. Raises BenchError without gcc."""
    library = compiled("alloc_count", shared=True)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        path = Path(name) / "allocations"
        path.write_bytes(bytes(mmap.PAGESIZE))
        variables = {"LD_PRELOAD": str(library), "BENCH_ALLOC_FILE": str(path), "PYTHONMALLOC": "malloc"}
        yield AllocationCounter(path, variables)
