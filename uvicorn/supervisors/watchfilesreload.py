"""Reload when the operating system reports a change, through watchfiles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from socket import socket

from watchfiles import watch

from uvicorn.config import Config, is_dir
from uvicorn.supervisors.basereload import BaseReload

DEFAULT_INCLUDES = ("*.py",)
DEFAULT_EXCLUDES = (".*", ".py[cod]", ".sw.*", "~*")


class FileFilter:
    """Which changed files matter: those that match an include pattern, no exclude pattern and no excluded directory.

    A default pattern is dropped when it is given on the opposite side. Patterns apply to the right end of the path.
    """

    def __init__(self, config: Config) -> None:
        defaults = [pattern for pattern in DEFAULT_INCLUDES if pattern not in config.reload_excludes]
        self.includes = list(dict.fromkeys([*defaults, *config.reload_includes]))
        defaults = [pattern for pattern in DEFAULT_EXCLUDES if pattern not in config.reload_includes]
        directories = [pattern for pattern in config.reload_excludes if is_dir(Path(pattern))]
        # Changes are reported with absolute paths.
        self.exclude_dirs = [Path(directory).resolve() for directory in directories]
        patterns = [pattern for pattern in config.reload_excludes if pattern not in directories]
        self.excludes = list(dict.fromkeys([*defaults, *patterns]))

    def __call__(self, path: Path) -> bool:
        """Whether a change of `path` is a reason to reload."""
        return (
            any(path.match(pattern) for pattern in self.includes)
            and not any(path.match(pattern) for pattern in self.excludes)
            and not any(directory in path.parents for directory in self.exclude_dirs)
        )


class WatchFilesReload(BaseReload):
    """Takes the changes below the reload directories from watchfiles: files created, changed and deleted."""

    def __init__(self, config: Config, target: Callable[[list[socket] | None], None], sockets: list[socket]) -> None:
        super().__init__(config, target, sockets)
        self.reloader_name = "WatchFiles"
        self.reload_dirs = list(config.reload_dirs)
        self.watch_filter = FileFilter(config)
        self._is_watching = False  # a generator does nothing before it is asked
        self.watcher = watch(
            *self.reload_dirs,
            watch_filter=None,
            stop_event=self.should_exit,
            # Time and again without changes, so that `should_exit` is seen.
            yield_on_timeout=True,
            ignore_permission_denied=True,
        )

    def should_restart(self) -> list[Path] | None:
        """The files that matter among those reported since the last look."""
        if self._is_watching or self.should_exit.is_set():
            self.pause()
        # No pause before the first look: the child is about to read files whose changes would not be seen.
        self._is_watching = True
        changes = next(self.watcher)
        if not changes:
            return None
        paths = dict.fromkeys(Path(path) for _, path in changes)
        return [path for path in paths if self.watch_filter(path)]
