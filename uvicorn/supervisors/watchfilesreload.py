"""Reload when the operating system reports a change, through watchfiles."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from socket import socket

from watchfiles import watch

from uvicorn.config import Config
from uvicorn.config.reload_paths import FileFilter
from uvicorn.supervisors.basereload import BaseReload

__all__ = ["FileFilter", "WatchFilesReload"]

STEP = 50
"""Milliseconds for one wait for changes."""

LOOK = 5.0
"""Seconds after which a look without changes ends."""


class WatchFilesReload(BaseReload):
    """Takes the changes below the reload directories from watchfiles: files created, changed and deleted."""

    def __init__(self, config: Config, target: Callable[[list[socket] | None], None], sockets: list[socket]) -> None:
        super().__init__(config, target, sockets)
        self.reloader_name = "WatchFiles"
        self.reload_dirs = list(config.reload_dirs)
        self.watch_filter = FileFilter(config)
        self.watcher = watch(
            *self.reload_dirs,
            watch_filter=None,
            stop_event=self.should_exit,
            # Often without changes: it has to be asked once before there are any.
            yield_on_timeout=True,
            rust_timeout=STEP,
            ignore_permission_denied=True,
        )

    def _start_child(self) -> None:
        """Start a child, which reads the files as they are now or later: only later changes matter."""
        # A generator does nothing before it is asked.
        next(self.watcher, None)
        super()._start_child()

    def should_restart(self) -> list[Path] | None:
        """The files that matter among those reported since the last look, which takes a while if there are none."""
        self.pause()
        end = time.monotonic() + LOOK
        while not (changes := next(self.watcher)):
            if time.monotonic() >= end:
                return None
        paths = dict.fromkeys(Path(path) for _, path in changes)
        return [path for path in paths if self.watch_filter(path)]
