"""The id of a request: taken over from a trusted peer, or generated.

An id is what a trusted peer says in the field of the setting `request_id_header`, if that is one value of the form that
`is_request_id` knows; else the trace id of its `traceparent` (W3C Trace Context); else 128 bits at random, as 32
hexadecimal digits. What others say is not looked at: a client that chose its id could make its requests look like those
of another client. The scope has it under `request_id`, the response in a field of the same name, unless the application
has such a field of its own.

Random ids come from the operating system many at a time. No id is used twice, also not in the children of a fork. The
native core has the same in `native/bindings/src/asgi/identity.rs`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from uvicorn.access.format import is_request_id
from uvicorn.middleware import proxy_headers
from uvicorn.rules import trace_context
from uvicorn.rules.syntax import TOKEN

if TYPE_CHECKING:
    from uvicorn._types import ProtocolConfig

Field = tuple[bytes, bytes]

DIGITS = 32
"""Of an id that is made."""
BATCH = 256
"""The number of ids for which random bytes are fetched at once."""

_is_field_name = re.compile(TOKEN).fullmatch

# Fields that mean more than an id, or that every response has already.
_TAKEN = frozenset(
    {"connection", "content-length", "content-type", "date", "host", "keep-alive", "location", "server", "set-cookie"}
    | {"te", "traceparent", "tracestate", "trailer", "transfer-encoding", "upgrade"}
)

_forks = 0


def _note_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def check_header(name: str) -> None:
    """Refuse invalid field names, and names of fields with another meaning.

    Raises:
        ValueError: it says why.
    """
    if not _is_field_name(name):
        raise ValueError("it must be the name of a header field.")
    if name.lower() in _TAKEN or name.lower().startswith("sec-websocket-"):
        raise ValueError("this header already has a meaning of its own; choose another.")


def trace_id(traceparent: str) -> str | None:
    """Return the trace id of a `traceparent`, `None` if that is invalid."""
    parent = trace_context.parse(traceparent)
    return None if parent is None else parent.trace


class RequestIds:
    """Finds the ids of the requests of one event loop.

    Args:
        header: the name of the field.
        trusted: as `Config.trusted_proxies` has it; `None` trusts no peer.

    Attributes:
        name: of the field, in lower case.
    """

    __slots__ = ("name", "_trusted", "_digits", "_used", "_forks")

    def __init__(self, header: str, trusted: list[str] | str | None) -> None:
        self.name = header.lower().encode("ascii")
        self._trusted = proxy_headers._TrustedHosts([] if trusted is None else trusted)
        self._digits = ""
        self._used = 0
        self._forks = _forks

    @classmethod
    def from_config(cls, config: ProtocolConfig) -> RequestIds | None:
        """Return those that `config` asks for, `None` if it does not."""
        if not config.request_id:
            return None
        return cls(config.request_id_header, config.trusted_proxies)

    def trusts(self, client: tuple[str, int] | None) -> bool:
        """Whether this peer may choose the ids of its requests."""
        return (client[0] if client else None) in self._trusted

    def of(self, headers: Iterable[Field], client: tuple[str, int] | None) -> str:
        """Return the id of a request that has these headers, names in lower case, and came from this peer."""
        if self.trusts(client):
            taken = self._taken(headers)
            if taken is not None:
                return taken
        return self.make()

    def _taken(self, headers: Iterable[Field]) -> str | None:
        ids: list[str] = []
        parents: list[str] = []
        for name, value in headers:
            if name == self.name:
                ids.append(value.decode("latin-1"))
            elif name == b"traceparent":
                parents.append(value.decode("latin-1"))
        if len(ids) == 1 and is_request_id(ids[0]):
            return ids[0]
        return trace_id(parents[0]) if len(parents) == 1 else None

    def make(self) -> str:
        """Return an unguessable id."""
        used = self._used
        if used >= len(self._digits) or self._forks != _forks:
            self._digits = os.urandom(BATCH * DIGITS // 2).hex()
            self._forks = _forks
            used = 0
        self._used = used + DIGITS
        return self._digits[used : used + DIGITS]

    def line(self, request_id: str) -> bytes:
        """Return the line of a response that says it."""
        return b"%b: %b\r\n" % (self.name, request_id.encode("ascii"))


def with_line(head: bytes, line: bytes) -> bytes:
    """Return the head of a response with `line` at its end, unless that is empty or there is a field of this name."""
    if not line or b"\r\n" + line[: line.index(b":") + 1] in head:
        return head
    return head[:-2] + line + b"\r\n"
