"""Spans as OTLP has them in protobuf (opentelemetry-proto, trace.proto): the twin of `native/wire/src/otlp.rs`.

Fields are in the order of both, which tests compare byte for byte. Texts are UTF-8 of at most `MAX_TEXT` bytes: a
collector rejects a whole batch because of one byte that is not.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache

MAX_TEXT = 1024
"""Bytes of a text; the rest is cut off."""

MAX_CACHED = 256
"""Bytes of a text whose encoding is remembered: clients choose hosts, methods and user agents."""

MAX_PORT = 65535

OTHER = "_OTHER"
"""What the semantic conventions write for a method that they do not know, and an error without a name."""

CALLED = b"uvicorn.application.start"
FIRST_BYTE = b"uvicorn.response.start"
"""The events of a span."""

REMOTE_IS_KNOWN = 0x100
REMOTE = 0x200
"""Flags of a span, above those of its trace: the parent is in another process."""

_METHODS = frozenset({"GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"})

_SERVER = b"\x30\x02"  # kind
_ERROR = b"\x7a\x02\x18\x02"  # status
_times = struct.Struct("<BQBQ").pack
_fixed32 = struct.Struct("<I").pack
_fixed64 = struct.Struct("<Q").pack


Server = tuple[str, bytes, bytes, int, bytes, bytes, "int | None"]
"""What many requests have in common: method as it was sent, scheme, route (empty if none is known), status (0: there
was no response), version of HTTP, the name or address under which the server was reached, and its port."""


def varint(number: int) -> bytes:
    """Encode a number that is not negative."""
    if number < 0x80:
        return bytes((number,))
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def delimited(tag: int, content: bytes) -> bytes:
    """Encode a field of bytes, a text or a message; `tag` is that of its number."""
    size = len(content)
    return b"%c%c%b" % (tag, size, content) if size < 0x80 else bytes((tag,)) + varint(size) + content


def text(value: bytes) -> bytes:
    """Make a text of bytes that a client has chosen."""
    if len(value) > MAX_TEXT:
        value = value[:MAX_TEXT]
    return value if value.isascii() else value.decode("utf-8", "replace").encode()


def attribute(name: bytes, value: bytes) -> bytes:
    """Encode an attribute of a span."""
    return delimited(0x4A, key_value(name, value))


def key_value(name: bytes, value: bytes) -> bytes:
    """Encode a `KeyValue` with a text."""
    return delimited(0x0A, name) + delimited(0x12, delimited(0x0A, text(value)))


def number(name: bytes, value: int) -> bytes:
    """Encode an attribute that is a number."""
    return delimited(0x4A, delimited(0x0A, name) + delimited(0x12, b"\x18" + varint(value)))


def _user_agent(value: bytes) -> bytes:
    return attribute(b"user_agent.original", value)


_cached_user_agent = lru_cache(256)(_user_agent)


def _common(server: Server) -> bytes:
    sent, scheme, route, status, version, host, port = server
    method = sent if sent in _METHODS else OTHER
    shown = b"HTTP" if method is OTHER else method.encode()
    parts = [
        delimited(0x2A, text(shown + b" " + route if route else shown)),
        _SERVER,
        attribute(b"http.request.method", method.encode()),
    ]
    if method is OTHER:
        parts.append(attribute(b"http.request.method_original", sent.encode("utf-8", "replace")))
    parts.append(attribute(b"url.scheme", scheme))
    if route:
        parts.append(attribute(b"http.route", route))
    if status:
        parts.append(number(b"http.response.status_code", status))
    parts.append(attribute(b"network.protocol.version", version))
    if host:
        parts.append(attribute(b"server.address", host))
        if port is not None:
            parts.append(number(b"server.port", port))
    return b"".join(parts)


_cached_common = lru_cache(1024)(_common)


def authority(host: bytes) -> tuple[bytes, int | None]:
    """Split the value of `Host`: the name or address, and the port if there is one."""
    if host[:1] == b"[":
        name, _, rest = host[1:].partition(b"]")
        colon, port = rest[:1], rest[1:]
    else:
        name, colon, port = host.partition(b":")
    number = int(port) if colon == b":" and port.isdigit() and len(port) <= 5 else MAX_PORT + 1
    return name, number if number <= MAX_PORT else None


def encode(
    trace: str,
    span: str,
    parent: str,
    state: str,
    flags: int,
    times: tuple[int, int, int, int],
    server: Server,
    path: bytes,
    query: bytes,
    client: tuple[bytes, int],
    user_agent: bytes,
    error: bytes,
) -> bytes:
    """Encode a span, as an element of `ScopeSpans`.

    Args:
        trace, span, parent: hexadecimal ids; `parent` is empty without one.
        state: the `tracestate`, or empty.
        flags: of the trace.
        times: begin, call of the application (0: none), first byte of the response (0: none), and end, in nanoseconds
            since the epoch.
        server: the common part.
        path, query: as they were sent; an empty query is left out.
        client: its address, empty if there is none, and port, or 0.
        user_agent: empty if there was none.
        error: why the request failed; empty if it did not.
    """
    begin, called, first_byte, end = times
    parts = [b"\x0a\x10", bytes.fromhex(trace), b"\x12\x08", bytes.fromhex(span)]
    if state:
        parts.append(delimited(0x1A, state.encode()))
    if parent:
        parts += b"\x22\x08", bytes.fromhex(parent)
    sent, scheme, route, _, _, host, _ = server
    common = _cached_common if max(len(sent), len(scheme), len(route), len(host)) <= MAX_CACHED else _common
    parts += _times(0x39, begin, 0x41, end), common(server), attribute(b"url.path", path)
    if query:
        parts.append(attribute(b"url.query", query))
    address, port = client
    if address:
        parts.append(attribute(b"client.address", address))
        if port:
            parts.append(number(b"client.port", port))
    if user_agent:
        agent = _cached_user_agent if len(user_agent) <= MAX_CACHED else _user_agent
        parts.append(agent(user_agent))
    if error:
        parts.append(attribute(b"error.type", error))
    for time, event in ((called, CALLED), (first_byte, FIRST_BYTE)):
        if time:
            parts.append(delimited(0x5A, b"\x09" + _fixed64(time) + delimited(0x12, event)))
    if error:
        parts.append(_ERROR)
    parts += b"\x85\x01", _fixed32(flags | REMOTE_IS_KNOWN | (REMOTE if parent else 0))
    return delimited(0x12, b"".join(parts))


class Envelope:
    """The body of a request to the collector, in which the service precedes its spans."""

    def __init__(self, resource: Iterable[tuple[str, str]], version: str) -> None:
        sdk = {"telemetry.sdk.language": "python", "telemetry.sdk.name": "uvicorn", "telemetry.sdk.version": version}
        attributes: Mapping[str, str] = {**dict(resource), **sdk}
        encoded = (key_value(name.encode(), value.encode()) for name, value in attributes.items())
        self._resource = delimited(0x0A, b"".join(delimited(0x0A, pair) for pair in encoded))
        self._scope = delimited(0x0A, delimited(0x0A, b"uvicorn") + delimited(0x12, version.encode()))

    def enclose(self, spans: Iterable[bytes]) -> bytes:
        """Return an `ExportTraceServiceRequest` of these spans."""
        return delimited(0x0A, self._resource + delimited(0x12, self._scope + b"".join(spans)))
