"""Reload by looking at modification times: for where watchfiles is not installed."""

from __future__ import annotations

import fnmatch
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from socket import socket

from uvicorn.config import Config
from uvicorn.config.reload_paths import FileFilter
from uvicorn.hooks import original, overrides
from uvicorn.supervisors.basereload import BaseReload

logger = logging.getLogger("uvicorn.error")


@original
class StatReload(BaseReload):
    """Looks at files below the reload directories, every `reload_delay` seconds: those that the patterns name.

    Without patterns they are `*.py`. A newer modification time counts; a new file does when it changes for the first
    time.
    """

    def __init__(self, config: Config, target: Callable[[list[socket] | None], None], sockets: list[socket]) -> None:
        super().__init__(config, target, sockets)
        self.reloader_name = "StatReload"
        # By name: in a large tree, creating, hashing and resolving `Path` objects takes longer than reading the tree.
        self._mtimes: dict[str, float] = {}
        has_patterns = config.reload_excludes or config.reload_includes
        self.watch_filter = FileFilter(config) if has_patterns else None

    @property
    def mtimes(self) -> dict[Path, float]:
        """The modification times at the last look, by path as upstream has them."""
        return {Path(name).resolve(): mtime for name, mtime in self._mtimes.items()}

    @mtimes.setter
    def mtimes(self, mtimes: dict[Path, float]) -> None:
        self._mtimes = {str(path): mtime for path, mtime in mtimes.items()}

    def should_restart(self) -> list[Path] | None:
        """The first file found that is newer than at the last look."""
        self.pause()
        file = self._newer_file()
        return None if file is None else [file]

    def _newer_file(self) -> Path | None:
        mtimes = self._mtimes
        for name in self._names_to_look_at():
            try:
                mtime = os.stat(name).st_mtime
            except OSError:  # gone since it was listed
                continue
            if mtime > mtimes.setdefault(name, mtime):
                return Path(name).resolve()
        return None

    def _start_child(self) -> None:
        """Start a child, which reads the files as they are now or later."""
        self._mtimes = {}
        self._newer_file()
        super()._start_child()

    def iter_py_files(self) -> Iterator[Path]:
        """Every file that is watched, by the name that upstream has for this; a subclass may name others."""
        for name in self._names():
            yield Path(name).resolve()

    def _names_to_look_at(self) -> Iterable[str]:
        return map(str, self.iter_py_files()) if overrides(self, "iter_py_files") else self._names()

    def _names(self) -> Iterator[str]:
        for reload_dir in self.config.reload_dirs:
            for directory, directories, names in os.walk(reload_dir.resolve()):
                prefix = os.path.join(directory, "")
                if self.watch_filter is None:
                    for name in fnmatch.filter(directories + names, "*.py"):
                        yield prefix + name
                    continue
                for name in names:
                    if self.watch_filter(Path(prefix + name)):
                        yield prefix + name
