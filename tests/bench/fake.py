"""Starts `fake_server.py`, as a process of a test's own or as a target of the harness."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.process import Request, Server, free_port
from bench.targets import Launch, Target

SCRIPT = str(Path(__file__).with_name("fake_server.py"))


@contextmanager
def running(directory: Path, **options: float) -> Iterator[Server]:
    """A fake server that answers; ended on leaving."""
    port = free_port()
    argv = [sys.executable, SCRIPT, str(port), *(f"{name}={value}" for name, value in options.items())]
    server = Server("fake", argv, port=port, directory=directory, log=directory / "fake.log", environment={})
    try:
        server.wait_ready(Request(path="/count"), 20)
        yield server
    finally:
        server.stop()


def target(name: str = "fake", **options: float) -> Target:
    """A fake server as a target; the readiness request is one of those it counts."""

    def command(launch: Launch) -> list[str]:
        return [sys.executable, SCRIPT, str(launch.port), *(f"{key}={value}" for key, value in options.items())]

    return Target(name, "known behaviour", command, python="none")
