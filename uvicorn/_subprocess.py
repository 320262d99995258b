"""Child processes that run a server: spawned, given their sockets, and never outliving their parent unnoticed."""

from __future__ import annotations

import _thread
import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from socket import socket

from uvicorn.config import Config, report_fault

# Spawn on every platform: a fork of a parent that has threads, event loops or an imported application is not safe.
spawn = multiprocessing.get_context("spawn")

SETTING_FAILURE = 1
"""Exit status for a setting that cannot be honoured, of which one line tells in the log."""


def get_subprocess(config: Config, target: Callable[..., None], sockets: list[socket]) -> SpawnProcess:
    """A process, not started yet, that will call `target(sockets=sockets)`; all three arguments are pickled."""
    try:
        stdin_fileno: int | None = sys.stdin.fileno()
    except (AttributeError, OSError):  # no standard input, or one that is no file (io.UnsupportedOperation)
        stdin_fileno = None
    kwargs = {"config": config, "target": target, "sockets": sockets, "stdin_fileno": stdin_fileno}
    return spawn.Process(target=subprocess_started, kwargs=kwargs)


def subprocess_started(
    config: Config, target: Callable[..., None], sockets: list[socket], stdin_fileno: int | None
) -> None:
    """Call `target(sockets=sockets)` in the child, with logging as configured and the parent's standard input."""
    if stdin_fileno is not None:
        # multiprocessing puts /dev/null there; a debugger in the application needs the terminal.
        with contextlib.suppress(OSError):
            sys.stdin = os.fdopen(stdin_fileno)
    try:
        config.configure_logging()
        end_with_parent()
        target(sockets=sockets)
    except KeyboardInterrupt:
        pass  # Ctrl+C reaches the whole process group; the parent reports it
    except Exception as exc:
        if not report_fault(exc):
            raise
        sys.exit(SETTING_FAILURE)


def end_with_parent() -> None:
    """Send SIGTERM to this process once its parent is gone, however that ended; nothing if it has no parent.

    A server that went on would hold the port, and nobody would restart or stop it.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        terminate_self()

    threading.Thread(target=watch, name="uvicorn-parent-watch", daemon=True).start()


def terminate_self() -> None:
    """Raise SIGTERM for the main thread of this process, from any thread."""
    if sys.platform == "win32":
        # os.kill() would end the process without running its handler.
        _thread.interrupt_main(signal.SIGTERM)
    else:
        os.kill(os.getpid(), signal.SIGTERM)
