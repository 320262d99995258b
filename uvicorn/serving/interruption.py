"""Interrupt a blocked event loop, so that shutdown completes.

Everything else that ends a server runs on its event loop. While a handler, or the start-up of an application, blocks
that, only another thread notices, and only a signal to the main thread makes the blocking call return.

`Backstop` is the server's interface, `Guard` the thread that watches the deadline, `Interruption` the thread that sends
the signal.
"""

from __future__ import annotations

import _thread
import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from uvicorn.serving.state import ForcedEnd

BLOCKED = 1.0
"""Seconds without a turn after which an event loop counts as blocked."""

LAST_WAIT = 5.0
"""Seconds from the interruption of a blocked event loop to the end of its process, even if it is blocked again."""

AGAIN = 0.1
"""Seconds without a turn after which it is interrupted once more in that time."""

logger = logging.getLogger("uvicorn.error")


class Interruption(threading.Thread):
    """Sends SIGINT to the main thread whenever `loop`, which runs there, does not turn for a moment, until `stop`.

    The handler of the signal raises `ForcedEnd`, which ends the blocking call.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name="uvicorn-interruption", daemon=True)
        self._loop = loop
        self._is_over = threading.Event()
        self._sending = threading.Lock()  # nothing is sent once it is over
        self._ask()

    def _ask(self) -> None:
        """Request the next turn.

        Raises:
            RuntimeError: the loop is closed.
        """
        self._has_turned = threading.Event()
        self._is_sent = False
        self._loop.call_soon_threadsafe(self._has_turned.set)

    def stop(self) -> None:
        """Interrupt nothing any more. In the main thread, a signal that was sent arrives before this returns."""
        self._is_over.set()
        self._has_turned.set()
        with self._sending:
            is_sent = self._is_sent
        if is_sent:
            time.sleep(0)  # a call of the system: the signal arrives before there are other handlers
        if self.is_alive():
            self.join(BLOCKED)

    @classmethod
    def of_running_loop(cls) -> Interruption | None:
        """Started, if there is a loop to wait for."""
        loop = asyncio._get_running_loop()
        if loop is None:
            return None
        interruption = cls(loop)
        interruption.start()
        return interruption

    @property
    def is_wanted(self) -> bool:
        """Whether the loop is still blocked, and `stop` was not called."""
        return not self._has_turned.is_set() and not self._is_over.is_set()

    def arrived(self) -> bool:
        """Return whether the signal that is being handled is this one's."""
        is_sent, self._is_sent = self._is_sent, False
        return is_sent

    def loop_stays_blocked(self, seconds: float = BLOCKED) -> bool:
        """Wait a moment, and return whether the loop has not turned."""
        return not self._has_turned.wait(seconds)

    def send(self) -> None:
        """Interrupt the main thread, unless that is no longer wanted."""
        with self._sending:
            if not self.is_wanted:
                return
            self._is_sent = True
            if sys.platform == "win32":
                _thread.interrupt_main()
            else:
                # A call of the system that it sleeps in returns for this.
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def run(self) -> None:
        """Watch the turns: a forced shutdown may block the loop again, in its next turn."""
        with suppress(RuntimeError):
            while not self._is_over.is_set():
                if self.loop_stays_blocked():
                    self.send()
                elif not self._is_over.wait(AGAIN):
                    self._ask()


class Guard(threading.Thread):
    """Ends a server whose event loop is still blocked when its time to shut down is over.

    Args:
        loop: runs in the main thread.
        deadline: returns when (`time.monotonic()`) the server's time is over, which depends on its progress.
        interrupt: called with the interruption that is about to be sent, in this thread.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, deadline: Callable[[], float], interrupt: Callable[[Interruption], None]
    ) -> None:
        super().__init__(name="uvicorn-guard", daemon=True)
        self._loop = loop
        self._deadline = deadline
        self._interrupt = interrupt
        self._is_over = threading.Event()
        self._timing = threading.Lock()  # nothing is set once it is over

    def stop(self) -> None:
        """The server has ended: cancel the timer that would end the process."""
        with self._timing:
            if not self._is_over.is_set():
                self._is_over.set()
                end_in(None)

    def run(self) -> None:
        """Watch until the server has ended, or its loop is closed."""
        try:
            self._watch()
        finally:
            self.stop()

    def _watch(self) -> None:
        while not self._wait(self._deadline() - time.monotonic()):
            if self._deadline() > time.monotonic():
                continue  # the server has come further meanwhile
            try:
                interruption = Interruption(self._loop)
            except RuntimeError:  # the loop is closed
                return
            if not interruption.loop_stays_blocked():
                # The server keeps its deadlines by itself, and takes some moments after them.
                if self._wait(BLOCKED):
                    return
                continue
            self._tell(
                "The event loop is blocked and timeout_graceful_shutdown has passed: interrupting the blocking call."
            )
            self._force(interruption)
            return

    def _tell(self, text: str) -> None:
        """Log an error; behind a handler that blocks, only once that is free."""
        telling = threading.Thread(target=logger.error, args=(text,), name="uvicorn-guard-log", daemon=True)
        with suppress(RuntimeError):  # no room for a thread
            telling.start()
            telling.join(BLOCKED)

    def _wait(self, seconds: float) -> bool:
        """Wait for the end of the server, and return whether it has come. If this thread stops, so does the process."""
        seconds = min(max(0.0, seconds), threading.TIMEOUT_MAX)
        with self._timing:
            if not self._is_over.is_set():
                end_in(seconds + LAST_WAIT)
        return self._is_over.wait(seconds)

    def _force(self, interruption: Interruption) -> None:
        """Interrupt one handler behind the other, all of them in the time of one."""
        until = time.monotonic() + LAST_WAIT
        while True:
            with self._timing:
                if self._is_over.is_set():
                    return
                self._interrupt(interruption)
            interruption.send()
            while True:
                if self._wait(AGAIN):
                    return
                if time.monotonic() >= until:
                    self._tell(f"The event loop is still blocked, killing process [{os.getpid()}].")
                    logging.shutdown()
                    kill_self()
                try:
                    interruption = Interruption(self._loop)
                except RuntimeError:  # the loop is closed
                    return
                if interruption.loop_stays_blocked(AGAIN):
                    break


class Backstop:
    """Ends a server although its event loop may be blocked: at its deadline, or at a second SIGINT.

    Args:
        deadline: returns when (`time.monotonic()`) the server's time is over, given when its shutdown began; infinity
            for never.
        force: called, in any thread, to force the shutdown.
    """

    def __init__(self, deadline: Callable[[float], float], force: Callable[[], None]) -> None:
        self._deadline = deadline
        self._force = force
        self._guard: Guard | None = None
        self._interruption: Interruption | None = None
        self._is_timed = False
        self._is_over = False

    def start_kill_timer(self, *signals: int) -> None:
        """Have the process killed at the deadline after the first of `signals`, even if Python code no longer runs.

        Without `signals`, update the deadline of earlier ones.
        """
        self._is_timed = self._is_timed or bool(signals)
        seconds = self._deadline(0.0) + LAST_WAIT
        if self._is_timed and seconds < float("inf"):
            end_after_signals(seconds, *signals)

    def watch(self) -> None:
        """Watch the deadline: the shutdown begins now."""
        if self._guard is not None:
            return
        loop, told_at = asyncio._get_running_loop(), time.monotonic()
        if loop is None or self._deadline(told_at) == float("inf"):
            end_in(None)  # without a guard nothing puts it off
            return
        self._guard = Guard(loop, lambda: self._deadline(told_at), self._interrupt)
        self._guard.start()

    def interrupt(self) -> None:
        """Interrupt the event loop, unless it turns within a moment; several calls are one."""
        self._interruption = self._interruption or Interruption.of_running_loop()

    def takes(self, number: int) -> bool:
        """Return whether the signal being handled was sent from here, and came too late to interrupt anything.

        Raises:
            ForcedEnd: it was sent from here, and interrupts the running code.
        """
        interruption = self._interruption
        if number != signal.SIGINT or interruption is None or not interruption.arrived():
            return False
        if interruption.is_wanted and not self._is_over:
            raise ForcedEnd
        return True

    def stop(self) -> None:
        """Stop watching: the server has ended.

        Returns when the guard has, in at most `BLOCKED` seconds. A thread that the interpreter finds at its end keeps
        what it refers to, the application for one, whose open files would not be written.
        """
        self._is_over = True
        if self._guard is not None:
            self._guard.stop()
            self._guard.join(BLOCKED)
        if self._interruption is not None:
            self._interruption.stop()

    def stop_timing(self) -> None:
        """Stop watching, and cancel the timer: the program handles its signals again."""
        self.stop()
        end_in(None)

    def _interrupt(self, interruption: Interruption) -> None:
        self._force()
        if self._interruption is not None:
            self._interruption.stop()
        self._interruption = interruption


def kill_self() -> NoReturn:
    """Kill this process."""
    if sys.platform != "win32":
        os.kill(os.getpid(), signal.SIGKILL)
        # Process 1 lives on.
        os._exit(128 + signal.SIGKILL)
    os._exit(1)


def end_after_signals(seconds: float, *signals: int) -> None:
    """Have this process killed this many `seconds` after the first of these signals, unless `end_in` says otherwise.

    Whatever the interpreter is doing: no handler and no thread of Python's runs while code in C keeps the GIL. That
    takes the native core, and Linux. The handlers go on to be called; installing others ends it.
    """
    with suppress(ImportError, OSError):
        from uvicorn._native import end_after_signals

        end_after_signals(seconds, *signals)


def end_in(seconds: float | None) -> None:
    """Have this process killed in `seconds`; None: not before the next signal."""
    with suppress(ImportError):
        from uvicorn._native import end_in

        end_in(seconds)


def end_with_pipe(descriptor: int, seconds: float | None) -> bool:
    """End this process by SIGTERM when the other end of a pipe closes, and kill it `seconds` later, if not None.

    Returns:
        False without the native core, whose thread needs no interpreter for that.
    """
    try:
        from uvicorn import _native
    except ImportError:
        return False
    _native.end_with_pipe(descriptor, seconds)
    return True
