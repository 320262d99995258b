"""End what a run of the tests leaves behind, however the run ended: by itself, at ^C, or killed.

A test ends what it has started; this is for those that did not get to it. Beside each process that runs tests there is
one that waits, on a pipe, for its end. Everything started in between has inherited a variable that names the run, in
whatever session or process group it is. Linux only: elsewhere nobody tells the environment of a process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

NAME = "TESTS_STARTED_BY"


def watch() -> None:
    """Have the processes that this one starts from now on killed when it has ended."""
    if sys.platform != "linux":
        return
    run = uuid.uuid4().hex
    end, _ = os.pipe()  # the other end is closed when this process ends
    quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    # In a session of its own: what ends the run must not end it too. It does not bear the name of any run.
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-S", __file__, run],
        {},
        file_actions=[(os.POSIX_SPAWN_DUP2, end, 0), *quiet],
        setsid=True,
    )
    os.close(end)
    os.environ[NAME] = run


def started_by(run: str) -> Iterator[int]:
    """Process ids of those that have inherited the name of the run."""
    name = f"{NAME}={run}".encode()
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            if name in (directory / "environ").read_bytes().split(b"\0"):
                yield int(directory.name)


def main(run: str) -> None:
    """Wait for the end of standard input, then kill until nobody is left."""
    sys.stdin.buffer.read()
    while left := list(started_by(run)):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
