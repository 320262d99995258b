"""Read the vectors: data files into frozen objects, refusing whatever README.md does not describe.

A key that is misspelt must not pass as a check that is never made, so unknown keys are errors.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["ExpectedRequest", "ExpectedResponse", "Vector", "groups", "load"]

DIRECTORY = Path(__file__).parent

#: Most vectors in a group.
GROUP_SIZE = 40

#: What a connection may have come to when the input has been dealt with.
CONNECTION_STATES = frozenset({"open", "closed", "waiting"})

#: How the end of a response's content can be known (RFC 9112 section 6.3).
FRAMINGS = frozenset({"length", "chunked", "close", "none"})


@dataclass(frozen=True)
class ExpectedResponse:
    """One response the client must see, interim ones included."""

    #: The statuses that are right.
    status: frozenset[int]
    #: It may be missing.
    optional: bool
    #: The framings that are right; None: not looked at.
    framing: frozenset[str] | None
    #: The content, decoded from its framing; None: not looked at.
    body: bytes | None
    #: Fields that must be there once, by lower-case name.
    headers: Mapping[bytes, bytes]


@dataclass(frozen=True)
class ExpectedRequest:
    """One request the application must be called with; None: not looked at."""

    method: str | None
    raw_path: bytes | None
    path: str | None
    query_string: bytes | None
    http_version: str | None
    headers: tuple[tuple[bytes, bytes], ...] | None
    body: bytes | None
    #: It may reach the application, but the end of its body never does.
    truncated: bool
    #: It may not reach the application at all.
    optional: bool


@dataclass(frozen=True)
class Vector:
    """Bytes in, outcome: one row of the data."""

    id: str
    rows: tuple[str, ...]
    source: str
    data: bytes
    eof: bool
    app: str
    settings: Mapping[str, int]
    expect: tuple[ExpectedResponse, ...]
    requests: tuple[ExpectedRequest, ...]
    #: The method of the request that is refused before it reaches the application; None: any but HEAD.
    refused: str | None
    #: What the operator is told of it; None: not looked at.
    reason: str | None
    connection: frozenset[str]
    doubtful: str | None

    def methods(self) -> list[str]:
        """The methods of the requests that are answered, as far as the vector knows them."""
        answered = [request.method or "GET" for request in self.requests if not request.truncated]
        return answered if self.refused is None else [*answered, self.refused]

    def __repr__(self) -> str:
        return f"<Vector {self.id}>"  # the bytes can be a megabyte


def octets(text: str | Iterable[str | Mapping[str, Any]]) -> bytes:
    """The bytes a string or an array of strings and repetitions stands for; code points are byte values."""
    if isinstance(text, str):
        return text.encode("latin-1")
    return b"".join(
        part.encode("latin-1") if isinstance(part, str) else part["repeat"].encode("latin-1") * part["times"]
        for part in text
    )


def one_or_more(value: Any) -> frozenset[Any]:
    """A set of the one value, or of those in the array."""
    return frozenset(value) if isinstance(value, list) else frozenset({value})


def optional_octets(value: Any) -> bytes | None:
    """`octets`, where the key may be missing."""
    return None if value is None else octets(value)


def check_keys(table: Mapping[str, Any], known: str, where: str) -> None:
    """Raise ValueError for a key nobody reads."""
    unknown = set(table) - set(known.split())
    if unknown:
        raise ValueError(f"{where}: unknown keys {sorted(unknown)}")


def expected_response(table: Mapping[str, Any], where: str) -> ExpectedResponse:
    """One item of `expect`."""
    check_keys(table, "status optional framing body headers", where)
    framing = one_or_more(table["framing"]) if "framing" in table else None
    if framing is not None and not framing <= FRAMINGS:
        raise ValueError(f"{where}: unknown framing in {sorted(framing)}")
    return ExpectedResponse(
        status=one_or_more(table["status"]),
        optional=table.get("optional", False),
        framing=framing,
        body=optional_octets(table.get("body")),
        headers={octets(name): octets(value) for name, value in table.get("headers", {}).items()},
    )


def expected_request(table: Mapping[str, Any], where: str) -> ExpectedRequest:
    """One item of `requests`."""
    check_keys(table, "method raw_path path query_string http_version headers body truncated optional", where)
    headers = table.get("headers")
    return ExpectedRequest(
        method=table.get("method"),
        raw_path=optional_octets(table.get("raw_path")),
        path=table.get("path"),
        query_string=optional_octets(table.get("query_string")),
        http_version=table.get("http_version"),
        headers=None if headers is None else tuple((octets(name), octets(value)) for name, value in headers),
        body=optional_octets(table.get("body")),
        truncated=table.get("truncated", False),
        optional=table.get("optional", False),
    )


def vector(table: Mapping[str, Any]) -> Vector:
    """One `[[vector]]`."""
    where = table["id"]
    check_keys(table, "id rows source input eof app settings expect requests refused reason connection doubtful", where)
    connection = one_or_more(table["connection"])
    if not connection <= CONNECTION_STATES:
        raise ValueError(f"{where}: unknown connection state in {sorted(connection)}")
    return Vector(
        id=table["id"],
        rows=tuple(table.get("rows", ())),
        source=table["source"],
        data=octets(table["input"]),
        eof=table.get("eof", False),
        app=table.get("app", "echo"),
        settings=table.get("settings", {}),
        expect=tuple(expected_response(item, where) for item in table["expect"]),
        requests=tuple(expected_request(item, where) for item in table.get("requests", ())),
        refused=table.get("refused"),
        reason=table.get("reason"),
        connection=connection,
        doubtful=table.get("doubtful"),
    )


@cache
def load(name: str = "http1") -> tuple[Vector, ...]:
    """The vectors of `<name>.toml`, in its order.

    Raises:
        ValueError: a key, framing or connection state that README.md does not describe, or an id used twice.
    """
    tables = tomllib.loads((DIRECTORY / f"{name}.toml").read_text(encoding="utf-8"))["vector"]
    vectors = tuple(vector(table) for table in tables)
    ids = [row.id for row in vectors]
    twice = {id for id in ids if ids.count(id) > 1}
    if twice:
        raise ValueError(f"{name}.toml: ids used twice: {sorted(twice)}")
    return vectors


@cache
def groups(name: str = "http1") -> Mapping[str, tuple[Vector, ...]]:
    """All vectors of `<name>.toml` in groups of a size that is right for one test, each with a name.

    Those whose ids begin with the same word are together, and numbered groups where they are many.
    """
    words: dict[str, list[Vector]] = {}
    for row in load(name):
        words.setdefault(row.id.partition("-")[0], []).append(row)
    return {
        f"{word}-{start // GROUP_SIZE + 1}": tuple(rows[start : start + GROUP_SIZE])
        for word, rows in words.items()
        for start in range(0, len(rows), GROUP_SIZE)
    }
