"""How many processes serve, with how many event loops each: `WorkerProfile`, from the settings and the machine."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from uvicorn.config.settings import AUTO, CountType, ProfileType

LOOPS_AT_MOST = 4
"""Event loops of a process in the hybrid profile."""


class WorkerProfile(NamedTuple):
    """`processes` of `threads` event loops each; as text `4x2`."""

    processes: int
    threads: int

    def __str__(self) -> str:
        return f"{self.processes}x{self.threads}"

    @classmethod
    def resolve(
        cls,
        kind: ProfileType | None,
        processes: CountType | None,
        threads: CountType | None,
        processors: int,
        has_gil: bool,
    ) -> WorkerProfile:
        """Keep the given numbers; the profile decides the others, which are 1 without a profile.

        `auto` is the process profile where threads cannot run at the same time, otherwise the thread profile. A number
        that is `auto` is what the kind of profile makes of it; without one it is what the other number leaves of the
        processors, and where both are, that is the profile `auto`.
        """
        if kind is None and processes == threads == AUTO:
            kind = "auto"
        if kind is None and processes == AUTO:
            processes = _share(processors, threads)
        if kind is None and threads == AUTO:
            threads = _share(processors, processes)
        return cls._of_kind(kind, _number(processes), _number(threads), processors, has_gil)

    @classmethod
    def _of_kind(
        cls, kind: ProfileType | None, processes: int | None, threads: int | None, processors: int, has_gil: bool
    ) -> WorkerProfile:
        if kind == "auto":
            kind = "process" if has_gil else "thread"
        if kind == "process":
            return cls(processes or processors, threads or 1)
        if kind == "thread":
            return cls(processes or 1, threads or processors)
        if kind == "hybrid":
            threads = threads or min(LOOPS_AT_MOST, processors)
            return cls(processes or max(1, processors // threads), threads)
        return cls(processes or 1, threads or 1)


def _number(count: CountType | None) -> int | None:
    """None if it is to be found."""
    return count if isinstance(count, int) else None


def _share(processors: int, others: CountType | None) -> int:
    """How many of `processors` there are for each of `others`, at least one."""
    return max(1, processors // max(1, _number(others) or 1))


def processors() -> int:
    """Those that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
