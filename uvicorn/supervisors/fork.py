"""Workers that are forked, with the server in them already, or with the application, too (`preload`).

A fork copies the thread that calls it and no other, so whatever another one holds at that moment is held for ever. That
is why a parent with threads is refused. What a child is not to have of its parent it closes, before anything else: with
the end of a sibling's pipe in its hands neither would ever hear that the parent is gone. In everything else that an
application can see it is as if it had been spawned.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from logging.handlers import BufferingHandler
from multiprocessing.context import SpawnProcess
from multiprocessing.process import ORIGINAL_DIR  # type: ignore[attr-defined]
from multiprocessing.util import Finalize, close_fds, debug  # type: ignore[attr-defined]
from socket import socket
from typing import Any, NoReturn

from uvicorn._subprocess import arguments_of, ensure_main_spec, subprocess_started
from uvicorn.config import Config
from uvicorn.config.errors import blaming
from uvicorn.supervisors.signals import SIGNALS, leave_signals_to_parent

assert sys.platform != "win32", "nothing can be forked here"

from multiprocessing.context import ForkProcess  # noqa: E402
from multiprocessing.popen_fork import Popen  # noqa: E402

WORKERS_IMPORT = (
    "faulthandler",
    "uvicorn.access.log",
    "uvicorn.files.sending",
    "uvicorn.protocols.http.flow_control",
    "uvicorn.protocols.http.scope",
    "uvicorn.tls.extension",
    "uvicorn.rules.websocket_limits",
)
"""Further modules that every worker imports before it serves."""

OWN_THREADS = ("uvicorn-metrics", "uvicorn-probe")
"""Threads of the parent that hold nothing while it forks."""


def preload(config: Config) -> None:
    """Import the application and the server's implementation, so that workers inherit both.

    Raises:
        RuntimeError: that has started threads.
        SystemExit: the application cannot be imported.
    """
    config.load_app()
    config.load_implementations()
    _import_rest()
    with blaming("preload=True"):
        threads = running_threads()
        if threads:
            raise RuntimeError(f"the application has started threads ({threads}), which would be lost in the workers.")
    _freeze()


def load_server(config: Config) -> None:
    """Import the server's implementation without the application, so that workers inherit it."""
    config.load_own_implementations()
    _import_rest()
    _freeze()


def _import_rest() -> None:
    for name in WORKERS_IMPORT:
        import_module(name)


def _freeze() -> None:
    """Exempt all present objects from garbage collection, which would write to them and so unshare their memory."""
    gc.collect()
    gc.freeze()


def running_threads() -> str:
    """The names of other threads, for messages; empty without any."""
    others = [thread.name for thread in threading.enumerate() if thread is not threading.current_thread()]
    names = [name for name in others if name not in OWN_THREADS]
    with suppress(OSError):
        native = len(os.listdir("/proc/self/task")) - len(others) - 1
        names += [f"{native} native"] if native > 0 else []
    return ", ".join(names)


def _two_pipes() -> tuple[int, int, int, int]:
    """Return both, or none if there is no room for both."""
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
        write_kept_records()
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
                look_anew_for_modules()
                if forked.is_preloaded:
                    atexit._clear()  # once is enough, in the parent
                forked.begin()
                signal.pthread_sigmask(signal.SIG_SETMASK, signals)
                code = forked._bootstrap(parent_sentinel=child_r)  # type: ignore[attr-defined]
            finally:
                end_process(code)
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)
        os.close(child_w)
        os.close(child_r)
        forked.parents_ends = (parent_r, parent_w)
        # Not `forked.forget`: a finalizer keeps its arguments alive, and `forked` keeps this alive.
        self.finalizer = Finalize(self, close_fds, forked.parents_ends)
        self.sentinel = parent_r


class ForkedProcess(ForkProcess):
    """A process that calls `begin` before anything else.

    Attributes:
        is_preloaded: whether the application is in it already.
        parents_ends: descriptors that only the parent is to have, once the child runs.
    """

    # The default for processes that the application starts.
    _start_method = "spawn"

    def __init__(
        self, begin: Callable[[], None], target: Callable[..., None], kwargs: dict[str, Any], is_preloaded: bool
    ) -> None:
        super().__init__(target=target, kwargs=kwargs)
        # Applications know the first worker by it, and formatters show it.
        self.name = self.name.replace(ForkedProcess.__name__, SpawnProcess.__name__)
        self.begin = begin
        self.is_preloaded = is_preloaded
        self.parents_ends: tuple[int, ...] = ()

    @staticmethod
    def _Popen(process_obj: Any) -> _Popen:
        debug("forking %s", process_obj)
        return _Popen(process_obj)

    def forget(self) -> None:
        """Called in a sibling that was forked: close them there."""
        for descriptor in self.parents_ends:
            with suppress(OSError):
                os.close(descriptor)


def fork_subprocess(
    config: Config, target: Callable[..., None], sockets: list[socket], begin: Callable[[], None]
) -> ForkedProcess:
    """A process, not started yet, that will call `begin()`, then `target(sockets=sockets)`."""
    ensure_main_spec()
    return ForkedProcess(begin, subprocess_started, arguments_of(config, target, sockets), config.preload)


def look_anew_for_modules() -> None:
    """Forget the cached content of directories, and find a new working directory that has replaced the old one."""
    sys.path[:] = [entry or ORIGINAL_DIR for entry in sys.path]
    sys.path_importer_cache.clear()


def use_default_handlers() -> None:
    """Handle signals as a program does that has just been started, but for those that mean the parent."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in SIGNALS:
        if number == signal.SIGINT:
            signal.signal(number, signal.default_int_handler)
        else:
            signal.signal(number, signal.SIG_DFL)
    leave_signals_to_parent()


def write_kept_records() -> None:
    """Flush log handlers that buffer records: a child would write these again when it reconfigures logging."""
    for reference in list(logging._handlerList):  # type: ignore[attr-defined]
        if isinstance(handler := reference(), BufferingHandler):
            handler.flush()


def end_process(code: int) -> NoReturn:
    """End this process after running the application's exit handlers.

    Whatever is further up the stack is the parent's, and nothing to return to.
    """
    try:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):  # there is none, or it is closed
                stream.flush()
    finally:
        os._exit(code)
