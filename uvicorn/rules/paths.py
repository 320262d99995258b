"""Patterns of paths, as settings have them: a path, or with `*` at its end all paths with this prefix."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

PATTERN: Final = r"/[^?#*]*\*?"
"""The regular expression of a pattern."""

FORM: Final = "a path that begins with a slash, with a `*` at most at its end"
"""The same for messages and documents."""


class PathPatterns:
    """Some patterns, below the configured root path.

    Args:
        patterns: each begins with a slash.
        root_path: in front of the path of every request.
    """

    __slots__ = ("_paths", "_prefixes")

    def __init__(self, patterns: Iterable[str], root_path: str = "") -> None:
        patterns = {f"{root_path}{pattern}" for pattern in patterns}
        self._paths = frozenset(pattern for pattern in patterns if not pattern.endswith("*"))
        self._prefixes = tuple(sorted(pattern[:-1] for pattern in patterns if pattern.endswith("*")))

    def __contains__(self, path: str) -> bool:
        return path in self._paths or path.startswith(self._prefixes)

    def __bool__(self) -> bool:
        return bool(self._paths or self._prefixes)
