"""Directories whose files the server answers with itself: the setting ``--mount /static=DIR``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from uvicorn.config.default_headers import encode_fields
from uvicorn.config.errors import blaming

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


def resolve_mounts(texts: Iterable[str], cache_controls: Iterable[str] | str | None, default: str) -> list[Mount]:
    """Read the settings `mount` and `mount_cache_control`, whose value is `default` where it says nothing.

    Raises:
        ValueError: one is wrong, or two are for one place; it names the setting.
    """
    mounts: dict[str, Mount] = {}
    for text in texts:
        with blaming(f"mount={text!r}"):
            mount = parse_mount(text)
            if mount.prefix in mounts:
                raise ValueError(f"{mount.prefix or '/'} is mounted twice.")
            mounts[mount.prefix] = mount
    values: dict[str | None, str] = {}
    for text in [cache_controls] if isinstance(cache_controls, str) else cache_controls or ():
        with blaming(f"mount_cache_control={text!r}"):
            prefix, value = parse_cache_control(text)
            encode_fields([("cache-control", value)])
            if prefix in values:
                raise ValueError(f"{'every mount' if prefix is None else prefix or '/'} has a value already.")
            if prefix is not None and prefix not in mounts:
                raise ValueError(f"nothing is mounted at {prefix or '/'}.")
            values[prefix] = value
    common = values.get(None, default)
    return [mount._replace(cache_control=values.get(mount.prefix, common)) for mount in mounts.values()]


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
