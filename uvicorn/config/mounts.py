"""Directories whose files the server answers with itself: the setting ``--mount /static=DIR``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

_PATH = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,;:@-]+)*/?")
"""Segments of a path that need no percent-encoding (RFC 3986 section 3.3); none is empty."""


class Mount(NamedTuple):
    """One of them.

    Attributes:
        prefix: where it is found: the path of requests without a slash at its end, so that of `/` is empty.
        directory: absolute.
        cache_control: said of each file; empty to say nothing.
    """

    prefix: str
    directory: str
    cache_control: str = ""

    def __str__(self) -> str:
        return f"{self.prefix or '/'} from {self.directory}"


def parse_mount(text: str) -> Mount:
    """Read `PATH=DIRECTORY`.

    Raises:
        ValueError: it is none, or the directory does not exist.
    """
    path, equals, directory = text.partition("=")
    if not equals or not path.startswith("/") or not directory:
        raise ValueError("write a path and a directory, as in /static=./static.")
    if _PATH.fullmatch(path) is None or {".", ".."} & set(path.split("/")):
        raise ValueError(f"{path!r} is not a request path; write it without percent-encoding.")
    if not os.path.isdir(directory):
        raise ValueError(f"the directory {directory!r} does not exist.")
    return Mount(path.rstrip("/"), os.path.abspath(directory))


def check_prefixes(mounts: Iterable[Mount]) -> None:
    """Refuse two mounts at one place.

    Raises:
        ValueError: it says which.
    """
    seen: set[str] = set()
    for prefix, *_ in mounts:
        if prefix in seen:
            raise ValueError(f"{prefix or '/'} is mounted twice.")
        seen.add(prefix)


def parse_cache_control(text: str) -> tuple[str | None, str]:
    """Read `PATH=VALUE`, or a value for all mounts: the prefix of a mount or `None`, and the value.

    Raises:
        ValueError: a path has no value.
    """
    if not text.startswith("/"):
        return None, text
    path, equals, value = text.partition("=")
    if not equals:
        raise ValueError("write a path and a value, as in /static=public,max-age=3600.")
    return path.rstrip("/"), value.strip(" \t")
