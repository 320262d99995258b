"""Reload by looking at modification times: for where watchfiles is not installed."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from socket import socket

from uvicorn.config import Config
from uvicorn.config.reload_paths import FileFilter
from uvicorn.supervisors.basereload import BaseReload

logger = logging.getLogger("uvicorn.error")


class StatReload(BaseReload):
    """Looks at files below the reload directories, every `reload_delay` seconds: those that the patterns name.

    Without patterns they are `*.py`. A newer modification time counts; a new file does when it changes for the first
    time.
    """

    def __init__(self, config: Config, target: Callable[[list[socket] | None], None], sockets: list[socket]) -> None:
        super().__init__(config, target, sockets)
        self.reloader_name = "StatReload"
        self.mtimes: dict[Path, float] = {}
        has_patterns = config.reload_excludes or config.reload_includes
        self.watch_filter = FileFilter(config) if has_patterns else None

    def should_restart(self) -> list[Path] | None:
        """The first file found that is newer than at the last look."""
        self.pause()
        file = self._newer_file()
        return None if file is None else [file]

    def _newer_file(self) -> Path | None:
        for file in self.iter_py_files():
            try:
                mtime = file.stat().st_mtime
            except OSError:  # gone since it was listed
                continue
            if mtime > self.mtimes.setdefault(file, mtime):
                return file
        return None

    def _start_child(self) -> None:
        """Start a child, which reads the files as they are now or later."""
        self.mtimes = {}
        self._newer_file()
        super()._start_child()

    def iter_py_files(self) -> Iterator[Path]:
        """Every file that is watched, by the name that upstream has for this."""
        for reload_dir in self.config.reload_dirs:
            if self.watch_filter is None:
                for path in list(reload_dir.rglob("*.py")):
                    yield path.resolve()
                continue
            for directory, _, names in os.walk(reload_dir):
                for path in map(Path(directory).resolve().joinpath, names):
                    if self.watch_filter(path):
                        yield path
