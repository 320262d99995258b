"""What `--reload` watches: directories, and patterns of the files in them that count."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

logger = logging.getLogger("uvicorn.error")


class ReloadPaths(NamedTuple):
    """Directories that are watched, and those in them that are not; patterns of files that count, and that do not."""

    directories: Sequence[Path] = ()
    excluded_directories: Sequence[Path] = ()
    includes: Sequence[str] = ()
    excludes: Sequence[str] = ()


def watched_paths(dirs: Sequence[str], includes: Sequence[str], excludes: Sequence[str]) -> ReloadPaths:
    """Return what three settings mean together, and log it; the current directory is watched if they name none."""
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
