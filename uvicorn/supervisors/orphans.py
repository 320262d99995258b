"""Collecting orphans where the supervisor is process 1, as in a container without an init.

The kernel gives process 1 the children of every process that ends, and each stays a zombie until process 1 reaps it.
"""

from __future__ import annotations

import multiprocessing.process
import os
import sys
from contextlib import suppress
from multiprocessing import resource_tracker
from typing import Any


def collect_orphans() -> None:
    """Wait for those children that have ended and were not started by this process; blocks for none."""
    if sys.platform != "linux":
        return
    with suppress(ChildProcessError):  # there are no children at all
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
    # Neither module lists its children publicly.
    processes: Any = multiprocessing.process
    tracker: Any = resource_tracker
    own = {process.pid for process in list(processes._children)}
    own.add(tracker._resource_tracker._pid)
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) not in own and _is_zombie_of_ours(name):
            with suppress(ChildProcessError):  # another thread was faster
                os.waitpid(int(name), os.WNOHANG)


def _is_zombie_of_ours(pid: str) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
    except OSError:
        return False
    return state == b"Z" and int(parent) == os.getpid()
