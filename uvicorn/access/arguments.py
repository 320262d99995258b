"""Format the client and the path of a request for a log line."""

from __future__ import annotations

import re
import urllib.parse

from uvicorn._types import WWWScope

# The characters that `urllib.parse.quote` keeps: a path made of them needs no quoting.
_is_quoted = re.compile(r"[A-Za-z0-9_.\-~/]*", re.ASCII).fullmatch


def get_client_addr(scope: WWWScope) -> str:
    """Return the client as `host:port` for a log line; empty if the scope has none."""
    client = scope.get("client")
    if not client:
        return ""
    return f"{client[0]}:{client[1]}"


def get_path_with_query_string(scope: WWWScope) -> str:
    """Return the percent-encoded path, with the query if there is one, as one token for a log line.

    Control characters cannot appear: the path is quoted and a request target holds visible ASCII only. A quotation mark
    of the query is quoted too, because the line puts the request between quotation marks.
    """
    path = scope["path"]
    if not _is_quoted(path):
        path = urllib.parse.quote(path)
    query = scope["query_string"]
    if query:
        return path + "?" + query.decode("latin-1").replace('"', "%22")
    return path
