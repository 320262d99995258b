"""The opening handshake (RFC 6455 section 4.2): the checks of a client's request, and its answer.

The HTTP protocol has found the head well-formed before it hands a connection over; classes that are given one from
elsewhere need not rely on that, so everything is checked here, by the same rules. Pure functions over bytes.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence

from uvicorn.protocols.http.wire.head import (
    TOKEN,
    HeadLimits,
    HeadScan,
    RequestRefused,
    examine,
    match_head,
    refuse,
    split_fields,
    split_target,
)
from uvicorn.protocols.http.wire.response import encode_line, error_response
from uvicorn.rules import refusals
from uvicorn.rules.websocket_limits import MAX_LOGGED_TARGET

Header = tuple[bytes, bytes]

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_is_key = re.compile(rb"[A-Za-z0-9+/]{22}==").fullmatch
_is_token = re.compile(TOKEN).fullmatch
_request_target = re.compile(rb"(?:\r\n)*[!-~]+ ([!-~]{1,%d})[!-~]*(?: |\Z)" % MAX_LOGGED_TARGET).match

# Fields that the answer sets itself, and fields that a response without body may not have (RFC 9112 section 6.1).
_RESERVED = frozenset(
    (
        b"upgrade",
        b"connection",
        b"sec-websocket-accept",
        b"sec-websocket-extensions",
        b"content-length",
        b"transfer-encoding",
    )
)

# Fields that belong to a status (RFC 9110 sections 15.5.6 and 15.5.22, RFC 6455 section 4.4).
_HINTS: dict[int, list[Header]] = {
    405: [(b"allow", b"GET")],
    426: [(b"upgrade", b"websocket"), (b"connection", b"upgrade, close"), (b"sec-websocket-version", b"13")],
}


class Handshake:
    """A valid request to open a WebSocket.

    Attributes:
        target: path and query as sent.
        headers: names in lower case, values without outer white space, in order.
        key: the key that the answer proves to have read.
        subprotocols: those the client offers, in its order.
        extensions: values of the Sec-WebSocket-Extensions fields.
    """

    __slots__ = ("target", "headers", "key", "subprotocols", "extensions")

    def __init__(self, target: bytes, headers: list[Header], key: bytes, subprotocols: list[str]) -> None:
        self.target = target
        self.headers = headers
        self.key = key
        self.subprotocols = subprotocols
        self.extensions = _values(headers, b"sec-websocket-extensions")


class HandshakeReader:
    """Collects the head of a handshake: bytes in, the handshake out.

    Attributes:
        head: the part of it that is encoded.
    """

    __slots__ = ("head", "_limits", "_end", "_scan")

    def __init__(self, limits: HeadLimits) -> None:
        self.head = bytearray()
        self._end = 0
        self._limits = limits
        self._scan: HeadScan | None = None

    def receive(self, data: bytes) -> Handshake | None:
        """Take more bytes. Returns the handshake once it is complete.

        Raises:
            RequestRefused: see `parse_handshake`.
        """
        head = self.head
        searched = len(head)
        head += data
        # Its end can begin in the last three bytes searched before.
        end = head.find(b"\r\n\r\n", max(0, searched - 3)) + 4
        if end == 3:
            self._scan = self._scan or HeadScan(self._limits)
            self._scan.advance(head)
            return None
        self._end = end
        return parse_handshake(bytes(head[:end]), self._limits)

    def take_rest(self) -> bytes:
        """Return and forget the bytes after the head."""
        rest = bytes(self.head[self._end :])
        self.head = bytearray()
        self._scan = None
        return rest


def parse_handshake(head: bytes, limits: HeadLimits) -> Handshake:
    """Return the handshake that a request head asks for; `head` ends with its empty line.

    Raises:
        RequestRefused: 400, 405, 414, 426, 431, 501 or 505, as the head deserves.
    """
    match = match_head(head)
    if match is None:
        refuse(head, limits)
    method, plain, sent, minor = match.groups()
    target = plain or sent
    headers = split_fields(head, match.end(4) + 2)
    if not limits.allow(len(head), method, target) or len(headers) > limits.fields:
        refuse(head, limits)
    if minor == b"0":
        raise RequestRefused(refusals.WEBSOCKET_VERSION)
    if method != b"GET":
        raise RequestRefused(refusals.WEBSOCKET_METHOD)
    if plain is None:
        target, host = split_target(method, target)
        if host is not None:
            # RFC 9112 section 3.2.2: the authority in the target replaces the Host field.
            headers = [(b"host", host), *(field for field in headers if field[0] != b"host")]
    framing = examine(minor, headers)
    if b"websocket" not in [name.strip(b" \t") for name in framing.upgrade.split(b",")]:
        raise RequestRefused(refusals.WEBSOCKET_UPGRADE)
    if framing.length:
        # Its bytes would be taken for frames.
        raise RequestRefused(refusals.WEBSOCKET_BODY)
    return Handshake(target, headers, _key(headers), _subprotocols(headers))


def requested_target(request: bytes | bytearray) -> str:
    """Return the target of a refused request as one token for a log line: "-" if it is unreadable."""
    match = _request_target(request)
    return match[1].decode("ascii").replace('"', "%22") if match else "-"


def _values(headers: list[Header], name: bytes) -> list[bytes]:
    return [value for other, value in headers if other == name]


def _key(headers: list[Header]) -> bytes:
    """Return the key, after checking the version, which defines the key's meaning."""
    versions = _values(headers, b"sec-websocket-version")
    if not versions:
        raise RequestRefused(refusals.WEBSOCKET_NO_PROTOCOL_VERSION)
    if versions != [b"13"]:
        raise RequestRefused(refusals.WEBSOCKET_PROTOCOL_VERSION)
    keys = _values(headers, b"sec-websocket-key")
    if not keys:
        raise RequestRefused(refusals.WEBSOCKET_NO_KEY)
    if len(keys) > 1 or not _is_key(keys[0]):
        raise RequestRefused(refusals.WEBSOCKET_KEY)
    return keys[0]


def _subprotocols(headers: list[Header]) -> list[str]:
    """Return the offered subprotocols: all fields, split at commas, trimmed (RFC 6455 section 11.3.4)."""
    names = [name.strip(b" \t") for value in _values(headers, b"sec-websocket-protocol") for name in value.split(b",")]
    if not all(_is_token(name) for name in names if name):
        raise RequestRefused(refusals.WEBSOCKET_SUBPROTOCOLS)
    return [name.decode("ascii") for name in names if name]


def accept_response(
    handshake: Handshake,
    default_head: bytes,
    headers: Iterable[Header],
    subprotocol: str | None,
    extension: bytes,
) -> bytes:
    """Return the 101 response.

    Args:
        default_head: the server's own lines; `headers` of the application follow them, except fields that the answer
            sets itself, so that no field comes twice.
        subprotocol: none if empty.
        extension: value of Sec-WebSocket-Extensions, none if empty.

    Raises:
        RuntimeError: a header or the subprotocol that may not be sent.
        TypeError: a header that is not bytes.
    """
    accept = base64.b64encode(hashlib.sha1(handshake.key + _GUID).digest())
    lines = [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"]
    lines.append(b"Sec-WebSocket-Accept: %b\r\n" % accept)
    if extension:
        lines.append(b"Sec-WebSocket-Extensions: %b\r\n" % extension)
    lines.append(default_head)
    for header in headers:
        line = encode_line(header)[0]
        name = line[: line.index(b":")]  # in lower case, and bytes, whatever the application has
        if name not in _RESERVED and not (subprotocol and name == b"sec-websocket-protocol"):
            lines.append(line)
    if subprotocol:
        token = subprotocol.encode()
        if not _is_token(token):
            raise RuntimeError("Invalid WebSocket subprotocol.")
        lines.append(b"Sec-WebSocket-Protocol: %b\r\n" % token)
    lines.append(b"\r\n")
    return b"".join(lines)


def refuse_response(
    status: int, body: bytes, default_head: bytes, head_request: bool = False, fields: Sequence[Header] = ()
) -> bytes:
    """Return a whole response of the server's own that opens nothing, after which the connection ends.

    `fields` follow those that belong to the status.
    """
    return error_response(status, body, default_head, head_request, (*_HINTS.get(status, ()), *fields))
