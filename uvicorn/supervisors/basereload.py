"""One child process that is replaced when files change; a subclass decides which changes count."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from socket import socket
from types import FrameType
from typing import Any

from uvicorn._subprocess import get_subprocess
from uvicorn.config import Config
from uvicorn.logging.ansi import style
from uvicorn.serving.init_signals import server_has_ended
from uvicorn.serving.kill_deadlines import FORCED_WAIT, GracePeriods
from uvicorn.worker_events import how_ended

HANDLED_SIGNALS: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)
"""Signals that end the reloader and its child. SIGHUP, where there is one, does so too, and is raised again."""

SIGNAL_INTERVAL = 0.5
"""Seconds between two checks for a second SIGINT while the child ends."""

MOST_PATHS = 5
"""Changed paths that a log line names; of more it gives the number."""

logger = logging.getLogger("uvicorn.error")


class BaseReload:
    """Runs `target(sockets=sockets)` in a child process and restarts it whenever `should_restart` returns changes.

    An iterator over the looks it takes: each `next()` gives the changed paths, or None. It ends when `should_exit` is
    set. A child that dies is left alone until the next change: it has shown its error, and would show it again.

    Attributes:
        refuse: called after the final stop signal to the child, when the sockets are closed.
    """

    def __init__(self, config: Config, target: Callable[[list[socket] | None], None], sockets: list[socket]) -> None:
        self.config = config
        self.target = target
        self.sockets = sockets
        self.refuse: Callable[[], None] = lambda: None
        self.should_exit = threading.Event()
        self.pid = os.getpid()
        self.is_restarting = False
        self.reloader_name: str | None = None
        self._grace = GracePeriods.of(config)
        self._kill_at = math.inf  # the child that is ending
        self._hung_up = False
        self._end_is_known = False  # of this child: it was logged or requested

    def signal_handler(self, sig: int, frame: FrameType | None) -> None:
        """End; a SIGINT that comes while ending makes the child hurry, too."""
        if sys.platform == "win32" and self.is_restarting:
            # Ctrl+C, the only way to end the child gracefully there, comes back to its sender.
            self.is_restarting = False
            return
        if self.should_exit.is_set() and sig == signal.SIGINT:
            self._signal_child(signal.SIGINT)
            self._kill_at = min(self._kill_at, time.monotonic() + FORCED_WAIT)
        if sys.platform != "win32" and sig == signal.SIGHUP:
            self._hung_up = True
        self.should_exit.set()

    def run(self) -> None:
        """Start the child and restart it after each change, until a signal or `should_exit` ends it."""
        with self._handling_signals():
            self.startup()
            for changes in self:
                self._note_end()
                if changes:
                    logger.warning("%s detected changes in %s. Reloading...", self.reloader_name, _display(changes))
                    self.restart()
            self.shutdown()
        if sys.platform != "win32" and self._hung_up:
            signal.raise_signal(signal.SIGHUP)

    @contextlib.contextmanager
    def _handling_signals(self) -> Iterator[None]:
        """Put the previous handlers back afterwards: `uvicorn.run` returns to a program that may go on."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handled = HANDLED_SIGNALS
        if sys.platform != "win32":
            handled += (signal.SIGHUP,)
        previous: dict[int, Any] = {sig: signal.signal(sig, self.signal_handler) for sig in handled}
        if sys.platform != "win32" and signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL:
            previous[signal.SIGUSR2] = signal.signal(signal.SIGUSR2, _refuse_upgrade)
        try:
            yield
        finally:
            for sig, handler in previous.items():
                signal.signal(sig, signal.SIG_DFL if handler is None else handler)
            server_has_ended()

    def pause(self) -> None:
        """Wait for `reload_delay` seconds.

        Raises:
            StopIteration: the reloader is to end.
        """
        if self.should_exit.wait(self.config.reload_delay):
            raise StopIteration()

    def __iter__(self) -> Iterator[list[Path] | None]:
        return self

    def __next__(self) -> list[Path] | None:
        return self.should_restart()

    def startup(self) -> None:
        """Start the first child."""
        message = f"Started reloader process [%d] using {self.reloader_name}"
        color_message = "Started reloader process [{}] using {}".format(
            style("%d", fg="cyan", bold=True), style(str(self.reloader_name), fg="cyan", bold=True)
        )
        logger.info(message, self.pid, extra={"color_message": color_message})
        self._start_child()

    def _start_child(self) -> None:
        process = get_subprocess(config=self.config, target=self.target, sockets=self.sockets)
        process.start()
        self.process = process
        self._end_is_known = False

    def _note_end(self) -> None:
        """Say once that the child has ended by itself: nothing is served until a file changes."""
        exitcode = self.process.exitcode
        if exitcode is None or self._end_is_known or self.should_exit.is_set():
            return
        self._end_is_known = True
        logger.warning("Child process [%d] died (%s), waiting for changes.", self.process.pid, how_ended(exitcode))

    def restart(self) -> None:
        """Let the child end gracefully and start a new one on the same sockets."""
        self.is_restarting = sys.platform == "win32"
        self._terminate_child()
        self._await_child()
        self._end_is_known = True
        try:
            self._start_child()
        except OSError as exc:
            logger.error("No child process can be started (%s), trying again at the next change.", exc)

    def shutdown(self) -> None:
        """Let the child end gracefully, and refuse new connections meanwhile."""
        self._terminate_child()
        for sock in self.sockets:
            sock.close()
        self.refuse()
        self._await_child()
        color_message = f"Stopping reloader process [{style('%d', fg='cyan', bold=True)}]"
        logger.info("Stopping reloader process [%d]", self.pid, extra={"color_message": color_message})

    def _terminate_child(self) -> None:
        if sys.platform == "win32":
            self._signal_child(signal.CTRL_C_EVENT)
        else:
            self._signal_child(signal.SIGTERM)

    def _await_child(self) -> None:
        """SIGKILL if the child has not ended when its own deadlines have passed, or soon after a second SIGINT."""
        limit = self._grace.total
        self._kill_at = math.inf if limit is None else time.monotonic() + limit
        while self.process.exitcode is None and (remaining := self._kill_at - time.monotonic()) > 0:
            self.process.join(min(remaining, SIGNAL_INTERVAL))
        if self.process.exitcode is None:
            logger.error("Child process [%d] did not end in time, killing it.", self.process.pid)
            self.process.kill()
            self.process.join()

    def _signal_child(self, sig: int) -> None:
        if self.process.pid is not None and self.process.exitcode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, sig)

    def should_restart(self) -> list[Path] | None:
        """Wait for the next look and return the paths that have changed, None (or nothing) if none has.

        Raises:
            StopIteration: the reloader is to end.
        """
        raise NotImplementedError("Reload strategies should override should_restart()")


def _refuse_upgrade(number: int, frame: FrameType | None) -> None:
    # Logging in a handler might wait for a lock that the interrupted code holds.
    message = "Ignoring SIGUSR2: with --reload the server cannot be upgraded; change a file or restart it."
    threading.Thread(target=logger.warning, args=(message,), name="uvicorn-upgrade", daemon=True).start()


def _display(paths: Sequence[Path]) -> str:
    """The first paths, and how many more there are: a checkout of another branch changes thousands."""
    text = ", ".join(map(_display_path, paths[:MOST_PATHS]))
    return text if len(paths) <= MOST_PATHS else f"{text} and {len(paths) - MOST_PATHS} more"


def _display_path(path: Path) -> str:
    """The path in quotes, relative if it is below the current directory."""
    try:
        return f"'{path.relative_to(Path.cwd())}'"
    except ValueError:
        return f"'{path}'"
