"""Signals for process 1, as in a container without an init: the kernel drops those that it has no handler for.

So SIGTERM would not end the command while it imports the application, or while it waits for threads of the application
after the server has ended. The default action, which ends any other process there, is made up for by a handler.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from types import FrameType

from uvicorn.serving.interruption import LAST_WAIT, end_after_signals

NATIVE_MARGIN = 1.0
"""Seconds the native core waits longer than a thread of Python's, which says why the process ends."""

logger = logging.getLogger("uvicorn.error")


def is_init() -> bool:
    """Return whether this is process 1, to which the kernel gives orphans and no default actions."""
    return os.getpid() == 1


class DefaultAction:
    """Handles SIGTERM whenever no server does."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._has_served = False
        self._is_ending = False

    def install(self) -> None:
        """Handle SIGTERM from now on. A server that handles it meanwhile puts this back."""
        signal.signal(signal.SIGTERM, self.handle)
        end_after_signals(LAST_WAIT + NATIVE_MARGIN, signal.SIGTERM)

    def server_has_ended(self) -> None:
        """Note that only the exit remains."""
        self._has_served = True
        if signal.getsignal(signal.SIGTERM) == self.handle:
            end_after_signals(LAST_WAIT + NATIVE_MARGIN, signal.SIGTERM)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Exit, within `LAST_WAIT` seconds; at once for a second signal.

        Raises:
            SystemExit: no server has run yet. After one the status is that of a graceful end.
        """
        if os.getpid() != self._pid:  # a fork that the application has made
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        if self._is_ending:
            os._exit(128 + number)
        self._is_ending = True
        try:
            threading.Thread(target=self._end_late, args=(number,), name="uvicorn-exit", daemon=True).start()
        except RuntimeError:  # the interpreter cannot start threads any longer
            os._exit(128 + number)
        if not self._has_served:
            raise SystemExit(128 + number)

    def _end_late(self, number: int) -> None:
        time.sleep(LAST_WAIT)
        logger.error(
            "Process 1 has not exited within %d seconds: an import, a thread or an exit handler of the application "
            "does not end. Killing the process.",
            LAST_WAIT,
        )
        logging.shutdown()
        os._exit(128 + number)


_action: DefaultAction | None = None


def handle_as_default() -> None:
    """Let SIGTERM end process 1 whenever no server handles it; nothing in any other process."""
    global _action
    if is_init():
        _action = DefaultAction()
        _action.install()


def server_has_ended() -> None:
    """Say that a server has put the handlers of the command back."""
    if _action is not None:
        _action.server_has_ended()
