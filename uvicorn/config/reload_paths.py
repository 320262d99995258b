"""The files that `--reload` watches: directories, and patterns of the files in them that count."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

logger = logging.getLogger("uvicorn.error")


DEFAULT_INCLUDES = ("*.py",)
DEFAULT_EXCLUDES = (".*", ".py[cod]", ".sw.*", "~*")


class FileFilter:
    """Which changed files matter: those that match an include pattern, no exclude pattern and no excluded directory.

    A default pattern is dropped when it is given on the opposite side. Patterns apply to the right end of the path. An
    include pattern that names a file in full wins over what excludes it.
    """

    def __init__(self, config: _Patterns) -> None:
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
        including = [pattern for pattern in self.includes if path.match(pattern)]
        if not including:
            return False
        if any(str(path).endswith(pattern) for pattern in including):
            return True
        return not (
            any(path.match(pattern) for pattern in self.excludes)
            or any(directory in path.parents for directory in self.exclude_dirs)
        )


class _Patterns(Protocol):
    """The part of the configuration that is read."""

    reload_includes: list[str]
    reload_excludes: list[str]


class ReloadPaths(NamedTuple):
    """Directories that are watched, and those in them that are not; patterns of files that count, and that do not."""

    directories: Sequence[Path] = ()
    excluded_directories: Sequence[Path] = ()
    includes: Sequence[str] = ()
    excludes: Sequence[str] = ()


def watched_paths(dirs: Sequence[str], includes: Sequence[str], excludes: Sequence[str]) -> ReloadPaths:
    """Resolve three settings to the watched paths, and log them; by default the current directory is watched."""
    includes, watched = resolve_reload_patterns([pattern for pattern in includes if pattern not in excludes], dirs)
    excludes, excluded = resolve_reload_patterns(excludes, [])
    directories = [path for path in watched if {path, *path.parents}.isdisjoint(excluded)]
    if not directories:
        if dirs:
            logger.warning(
                "Provided reload directories %s did not contain valid directories, watching current working directory.",
                dirs,
            )
        directories = [Path.cwd()]
    logger.info("Will watch for changes in these directories: %s", sorted(map(str, directories)))
    return ReloadPaths(directories, excluded, includes, excludes)


def is_dir(path: Path) -> bool:
    """Whether the path is a directory; one that cannot be looked at is none."""
    return os.path.isdir(path)


def resolve_reload_patterns(
    patterns_list: Iterable[str], directories_list: Iterable[str | os.PathLike[str]]
) -> tuple[list[str], list[Path]]:
    """Return the patterns without repetition, and the directories among both arguments.

    A pattern stands for directories when it is one or, being a glob, matches some. The directories returned are
    absolute, exist, and none is below another.
    """
    patterns = list(dict.fromkeys(patterns_list))
    candidates = [Path(directory) for directory in directories_list]
    for pattern in patterns:
        candidates += _directories_matching(pattern)
    directories = list(dict.fromkeys(path.resolve() for path in candidates if is_dir(path)))
    return patterns, [path for path in directories if not any(parent in directories for parent in path.parents)]


def _directories_matching(pattern: str) -> list[Path]:
    # ".*" is there for hidden files. Every hidden directory below the current one is not what it means.
    if pattern == ".*":
        return []
    path = Path(pattern)
    if is_dir(path):
        return [path]
    base = Path(path.anchor) if path.anchor else Path.cwd()
    try:
        return sorted(base.glob(str(path.relative_to(path.anchor))))
    except ValueError:
        return []  # no pattern to pathlib ("**.py" before 3.13), but one to the watcher
