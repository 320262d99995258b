"""Child processes that run a server: given their sockets, and never outliving their parent unnoticed."""

from __future__ import annotations

import _thread
import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from multiprocessing import context
from multiprocessing.connection import wait
from socket import socket
from types import ModuleType
from typing import Any

from uvicorn.config import Config
from uvicorn.config.errors import SETTING_FAILURE, report_error
from uvicorn.importer import print_import_error
from uvicorn.serving.interruption import end_with_pipe, kill_self

# Unless it is known what would be forked (`supervisors/start.py`): a fork of a parent that has threads, event loops or
# an imported application is not safe.
spawn = multiprocessing.get_context("spawn")

COMMAND = "uvicorn.__main__"
"""The module that `python -m uvicorn` runs."""


logger = logging.getLogger("uvicorn.error")


def get_subprocess(config: Config, target: Callable[..., None], sockets: list[socket]) -> SpawnProcess:
    """A process, not started yet, that will call `target(sockets=sockets)`; all three arguments are pickled."""
    ensure_main_spec()
    return SpawnProcess(target=subprocess_started, kwargs=arguments_of(config, target, sockets))


class SpawnProcess(context.SpawnProcess):
    """A child that imports this package from where its parent has it; its name begins as upstream's.

    The script `uvicorn` imports the installed one. For the child a directory of the application comes first, which may
    be a clone of the sources, without a native core.
    """

    _directory: str | None = None

    def start(self) -> None:
        """Have the directory of the package come first, in the child until it has imported it."""
        file = os.path.realpath(str(sys.modules["uvicorn"].__file__))
        found = PathFinder.find_spec("uvicorn")
        if found is None or os.path.realpath(str(found.origin)) == file:
            super().start()
            return
        self._directory = os.path.dirname(os.path.dirname(file))
        sys.path.insert(0, self._directory)
        try:
            super().start()
        finally:
            sys.path.remove(self._directory)

    def run(self) -> None:
        """Import the application as without that."""
        if self._directory is not None:
            sys.path.remove(self._directory)
        super().run()


def is_command() -> bool:
    """Whether this program is the command `uvicorn`: its script, or `python -m uvicorn`."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    return _is_script(main) if spec is None else spec.name == COMMAND


def ensure_main_spec() -> None:
    """Make the script `uvicorn` equal to `python -m uvicorn`, so that children do not run it for its definitions.

    It has none: running it would only import the command line. Other programs may define what their children need.
    """
    main = sys.modules["__main__"]
    if getattr(main, "__spec__", None) is None and _is_script(main):
        main.__spec__ = ModuleSpec(COMMAND, None, origin=main.__file__)


def _is_script(main: ModuleType) -> bool:
    path = getattr(main, "__file__", None)
    if path is None or "uvicorn.main" not in sys.modules:
        return False
    name, _ = os.path.splitext(os.path.basename(path))
    return name == "uvicorn" and getattr(main, "main", None) is sys.modules["uvicorn.main"].main


def arguments_of(config: Config, target: Callable[..., None], sockets: list[socket]) -> dict[str, Any]:
    """Return the arguments of `subprocess_started`."""
    try:
        stdin_fileno: int | None = sys.stdin.fileno()
    except (AttributeError, OSError):  # no standard input, or it is not a file (io.UnsupportedOperation)
        stdin_fileno = None
    return {"config": config, "target": target, "sockets": sockets, "stdin_fileno": stdin_fileno}


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
        end_with_parent(_longest_end(config), config.graceful_timeout)
        target(sockets=sockets)
    except KeyboardInterrupt:
        pass  # Ctrl+C reaches the whole process group; the parent reports it
    except Exception as exc:
        if not report_error(exc) and not print_import_error(exc):
            raise
        sys.exit(SETTING_FAILURE)


def _longest_end(config: Config) -> float | None:
    """Seconds after which a live parent kills a child that it has asked to exit."""
    # Its package imports this module.
    from uvicorn.serving.kill_deadlines import GracePeriods

    return GracePeriods.of(config).total


def end_with_parent(kill_delay: float | None = None, graceful_timeout: float | None = None) -> None:
    """Log that the parent of this process is gone, however it ended, and send SIGTERM to this process.

    If it went on, it would keep the port with no parent to restart or stop it. A process that has not ended
    `kill_delay` seconds later (None: any time) is killed. With the native core a thread that needs no interpreter does
    both as well, for a process that is blocked in C. Without a parent this does nothing.

    Args:
        kill_delay: seconds from SIGTERM to SIGKILL.
        graceful_timeout: seconds that requests in progress have, for the log.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    if sys.platform != "win32":
        end_with_pipe(parent.sentinel, kill_delay)

    def watch() -> None:
        wait([parent.sentinel])
        limit = "any time" if graceful_timeout is None else f"{graceful_timeout:g} seconds"
        logger.error(
            "Parent process [%d] died. Shutting down process [%d]: its requests have %s to end "
            "(timeout_graceful_shutdown). Start the server again.",
            parent.pid,
            os.getpid(),
            limit,
        )
        terminate_self()
        if kill_delay is not None:
            time.sleep(kill_delay)
            kill_self()

    threading.Thread(target=watch, name="uvicorn-parent-watch", daemon=True).start()


def terminate_self() -> None:
    """Raise SIGTERM for the main thread of this process, from any thread."""
    if sys.platform == "win32":
        # os.kill() would end the process without running its handler.
        _thread.interrupt_main(signal.SIGTERM)
    else:
        os.kill(os.getpid(), signal.SIGTERM)
