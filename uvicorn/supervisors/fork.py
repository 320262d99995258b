"""Workers that are forked, with the application in them already: `preload`.

A fork copies the thread that calls it and no other, so whatever another one holds at that moment is held for ever. That
is why a parent with threads is refused. What a child is not to have of its parent it closes, before anything else: with
the end of a sibling's pipe in its hands neither would ever hear that the parent is gone.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.util import Finalize, debug
from socket import socket
from typing import Any

from uvicorn._subprocess import arguments_of, subprocess_started
from uvicorn.config import Config
from uvicorn.faults import blaming
from uvicorn.supervisors.signals import SIGNALS

assert sys.platform != "win32", "nothing can be forked here"

from multiprocessing.context import ForkProcess  # noqa: E402
from multiprocessing.popen_fork import Popen  # noqa: E402

OWN_THREADS = ("uvicorn-metrics",)
"""Threads of the parent that hold nothing while it forks."""


def preload(config: Config) -> None:
    """Import the application, and what serves it, so that the workers have it from their beginning.

    Raises:
        RuntimeError: that has started threads.
        SystemExit: the application cannot be imported.
    """
    config.load_app()
    config.load_implementations()
    with blaming("preload=True"):
        threads = _threads()
        if threads:
            raise RuntimeError(f"the application has started threads ({threads}), which would be lost in the workers.")
    # What is here now is no garbage, and a collector that looks at it would write to it: so it stays shared.
    gc.collect()
    gc.freeze()


def _threads() -> str:
    """What runs beside this thread, for people; nothing if nothing does."""
    others = [thread.name for thread in threading.enumerate() if thread is not threading.current_thread()]
    names = [name for name in others if name not in OWN_THREADS]
    with suppress(OSError):
        native = len(os.listdir("/proc/self/task")) - len(others) - 1
        names += [f"{native} native"] if native > 0 else []
    return ", ".join(names)


def _two_pipes() -> tuple[int, int, int, int]:
    """Both or, where there is no room for both, none."""
    first = os.pipe()
    try:
        return *first, *os.pipe()
    except OSError:
        for descriptor in first:
            os.close(descriptor)
        raise


class _Popen(Popen):
    """A child that can be made to forget its siblings."""

    def _launch(self, process_obj: Any) -> None:
        forked: ForkedProcess = process_obj
        code = 1
        parent_r, child_w, child_r, parent_w = _two_pipes()
        # A signal for the child that comes before it has handlers of its own would be taken by those of its parent.
        signals = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which are our own
                self.pid = os.fork()
        except OSError:
            signal.pthread_sigmask(signal.SIG_SETMASK, signals)
            for descriptor in (parent_r, child_w, child_r, parent_w):
                os.close(descriptor)
            raise
        if self.pid == 0:
            try:
                for descriptor in (parent_r, parent_w):
                    os.close(descriptor)
                use_default_handlers()
                forked.begin()
                signal.pthread_sigmask(signal.SIG_SETMASK, signals)
                code = forked._bootstrap(parent_sentinel=child_r)  # type: ignore[attr-defined]
            finally:
                os._exit(code)
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)
        os.close(child_w)
        os.close(child_r)
        forked.parents_ends = (parent_r, parent_w)
        self.finalizer = Finalize(self, forked.forget)
        self.sentinel = parent_r


class ForkedProcess(ForkProcess):
    """A process that calls `begin` before anything else.

    Attributes:
        parents_ends: descriptors that only the parent is to have, once the child runs.
    """

    def __init__(self, begin: Callable[[], None], target: Callable[..., None], kwargs: dict[str, Any]) -> None:
        super().__init__(target=target, kwargs=kwargs)
        self.begin = begin
        self.parents_ends: tuple[int, ...] = ()

    @staticmethod
    def _Popen(process_obj: Any) -> _Popen:
        debug("forking %s", process_obj)
        return _Popen(process_obj)

    def forget(self) -> None:
        """Close them: the process is gone, or it is another child that has nothing to do with it."""
        for descriptor in self.parents_ends:
            with suppress(OSError):
                os.close(descriptor)


def fork_subprocess(
    config: Config, target: Callable[..., None], sockets: list[socket], begin: Callable[[], None]
) -> ForkedProcess:
    """A process, not started yet, that will call `begin()`, then `target(sockets=sockets)`."""
    return ForkedProcess(begin, subprocess_started, arguments_of(config, target, sockets))


def use_default_handlers() -> None:
    """Handle signals as a program does that has just been started."""
    signal.set_wakeup_fd(-1)
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
