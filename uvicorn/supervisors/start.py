"""How workers start: as new interpreters, or forked from a parent that has imported the server.

A worker that is forked has the server from its beginning and imports the application itself, as one that is spawned
does. It is as good as that only if there is nothing else in the parent: no module that would be older in the worker
than it is on disk or that has a state, and no thread. So that is looked at before each fork.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
from contextlib import suppress
from multiprocessing import resource_tracker
from types import ModuleType

from uvicorn._subprocess import is_command
from uvicorn.config import Config
from uvicorn.config.errors import blaming
from uvicorn.supervisors.signals import holding_parents_signals

KNOWN = frozenset(
    {
        "uvicorn",
        # Imports of the server, if they are installed and wanted.
        "_yaml",
        "click",
        "colorama",
        "dotenv",
        "h11",
        "httptools",
        "typing_extensions",
        "uvloop",
        "websockets",
        "wsproto",
        "yaml",
        "zuvloop",
        # Modules that interpreters start with: environments, installers, distributions.
        "__main__",
        "__mp_main__",
        "_distutils_hack",
        "_virtualenv",
        "apport_python_hook",
        "cython_runtime",
        "sitecustomize",
        "usercustomize",
    }
)
"""Top-level modules, besides the standard library, that are the same in every process."""

KNOWN_PREFIXES = ("__editable__", "_cython_", "_sysconfigdata_")
"""Of finders for editable installations, of shared modules of extensions, and of modules that `sysconfig` reads."""

Stamp = tuple[int, int, int]

logger = logging.getLogger("uvicorn.error")


class WorkerStart:
    """Decides for each worker how it starts."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._forks = config.preload
        self._stamps: dict[str, Stamp | None] = {}
        self._told: str | None = None

    def prepare(self) -> None:
        """Import the modules that workers start with; called before there are workers or threads.

        Raises:
            RuntimeError: `worker_start` or `preload` asks for a fork, and there is a reason against that.
            SystemExit: the application is to be imported, and cannot be.
        """
        _start_tracker()
        if self._config.preload and sys.platform != "win32":
            from uvicorn.supervisors.fork import preload

            preload(self._config)
        elif self._config.worker_start != "spawn":
            self._load_server()

    def _load_server(self) -> None:
        reason = self._why_not()
        if reason is None and sys.platform != "win32":
            from uvicorn.supervisors.fork import load_server

            load_server(self._config)
            reason = self._why_not()
        self._forks = reason is None
        if reason is not None and self._config.worker_start == "fork":
            with blaming("worker_start='fork'"):
                raise RuntimeError(reason)
        self._tell(reason)

    def is_fork(self) -> bool:
        """Whether the next worker is to be forked; the demands of `fork` and `preload` were checked before."""
        if not self._forks or self._config.preload or self._config.worker_start == "fork":
            return self._forks
        reason = self._why_not()
        self._tell(reason)
        return reason is None

    def _tell(self, reason: str | None) -> None:
        if reason is not None and reason != self._told:
            logger.debug("Child processes are spawned: %s", reason)
        self._told = reason

    def _why_not(self) -> str | None:
        """The reason, as a sentence, why a worker must not be forked now; None if it may be."""
        if sys.platform != "linux" or sys.implementation.name != "cpython":
            return "this system cannot fork safely."
        if not is_command() or multiprocessing.parent_process() is not None:
            return (
                "the program is not the command uvicorn, so workers must not inherit its state; with preload they do."
            )
        if self._config.env_file is not None:
            return "env_file may set variables that only a new interpreter reads."
        if sys.gettrace() is not None:
            return "a debugger is attached."
        if threads := _running_threads():
            return f"there are threads ({threads}), which would be lost in the workers."
        if modules := foreign_modules():
            return f"modules have been imported ({', '.join(modules)}) that each worker must import itself."
        if changed := self._changed():
            return f"imported modules have changed on disk ({changed})."
        return None

    def _changed(self) -> str | None:
        """The file of a module that is not as it was when it was first seen here."""
        for file in [file for module in list(sys.modules.values()) if (file := _file_of(module)) is not None]:
            stamp = _stamp(file)
            if self._stamps.setdefault(file, stamp) != stamp:
                return file
        return None


def _running_threads() -> str:
    if sys.platform == "win32":
        return ""
    else:
        from uvicorn.supervisors.fork import running_threads

        return running_threads()


def foreign_modules() -> list[str]:
    """Top-level modules of this process that are neither Python's nor the server's."""
    names = {name.partition(".")[0] for name in list(sys.modules)} - KNOWN - sys.stdlib_module_names
    return sorted(name for name in names if not name.startswith(KNOWN_PREFIXES) and not _is_namespace(name))


def _is_namespace(name: str) -> bool:
    """Whether it is a package without code, which some installers import when an interpreter starts."""
    module = sys.modules.get(name)
    return _file_of(module) is None and hasattr(module, "__path__")


def _file_of(module: ModuleType | None) -> str | None:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else None


def _stamp(file: str) -> Stamp | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _start_tracker() -> None:
    """Start the process that removes resources which workers share, such as memory, after the last of them.

    Workers' own would remove what others use, and so would one that the parent's signals end: they come to it with the
    process group.
    """
    if sys.platform != "win32":
        with holding_parents_signals(), suppress(OSError):  # without room for a process each worker tries again
            resource_tracker.ensure_running()
