"""Encoding of response heads and bodies: validation, framing choice, status lines. Once, for every implementation.

Pure functions over bytes. What an application sends is checked before a byte of it can reach the wire, so a header
value with a line break raises in the application and never splits a response (CVE-2020-7695).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from enum import IntEnum
from typing import Any, NamedTuple

from uvicorn.protocols.http.wire.head import TOKEN, Field
from uvicorn.rules import texts
from uvicorn.rules.status import STATUS_PHRASES

STATUS_LINE = {status: f"HTTP/1.1 {status} {phrase}\r\n".encode() for status, phrase in STATUS_PHRASES.items()}

# Named by tracing tools; both search for the first byte that is not allowed (RFC 9110 sections 5.1 and 5.5).
HEADER_RE = re.compile(rb"[^!#$%&'*+\-.^_`|~0-9A-Za-z]")
HEADER_VALUE_RE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")

_is_token = re.compile(TOKEN).fullmatch


class BodyFraming(IntEnum):
    """How the client learns where the body ends (RFC 9112 section 6.3)."""

    NONE = 0
    """There is no body: HEAD, 204, 304. The application's body is dropped."""
    LENGTH = 1
    CHUNKED = 2
    CLOSE = 3
    """The body ends with the connection: HTTP/1.0 clients."""


class _Kind(IntEnum):
    PLAIN = 0
    LENGTH = 1
    CODING = 2
    CONNECTION = 3


# A member looked up on its class costs several times a global, and these are read for each response.
_PLAIN, _LENGTH = _Kind.PLAIN, _Kind.LENGTH
_FRAMING_NONE, _FRAMING_LENGTH = BodyFraming.NONE, BodyFraming.LENGTH


_KINDS = {b"content-length": _Kind.LENGTH, b"transfer-encoding": _Kind.CODING, b"connection": _Kind.CONNECTION}

# Applications send the same few header lines over and over: checked and encoded once. Cleared when full, and values
# long enough to be of one request only are not kept, so it stays below a quarter of a megabyte.
_lines: dict[tuple[bytes, bytes], tuple[bytes, _Kind, int]] = {}
_LINES = 1024
_LINE_BYTES = 128


def _check_field(name: object, value: object) -> tuple[bytes, bytes]:
    """Return the name in lower case and the value without outer white space."""
    if not isinstance(name, bytes) or not isinstance(value, bytes):
        name, value = _copy_field(name, value)
    # By the methods of `bytes` itself: a class derived from it could give the line something that was not looked at.
    name, value = bytes.lower(name), bytes.strip(value, b" \t")
    if not _is_token(name):
        raise RuntimeError(texts.FIELD_NAME)
    if HEADER_VALUE_RE.search(value):
        raise RuntimeError(texts.FIELD_VALUE)
    return name, value


def _copy_field(name: object, value: object) -> tuple[bytes, bytes]:
    try:
        return as_bytes(name), as_bytes(value)
    except TypeError:
        raise TypeError(texts.FIELD_TYPE.format(name=repr(name), value=repr(value))) from None


def _encode_line(name: object, value: object) -> tuple[bytes, _Kind, int]:
    name, value = _check_field(name, value)
    kind = _KINDS.get(name, _Kind.PLAIN)
    length = 0
    if kind is _LENGTH:
        digits = value.lstrip(b"0")
        # Without the zeros in front, of which there may be more digits than int() takes.
        if not value.isdigit() or len(digits) > 20 or (length := int(digits or b"0")) >= 2**64:
            raise RuntimeError(texts.CONTENT_LENGTH)
    return b"%b: %b\r\n" % (name, value), kind, length


def encode_line(header: tuple[bytes, bytes]) -> tuple[bytes, _Kind, int]:
    """Return the header line for a name and a value, the kind of the field, and the number of a Content-Length.

    Raises:
        RuntimeError: the name is not a token, the value holds a control character other than tab, or is no length.
        TypeError: one of them is not bytes-like.
    """
    name, value = header
    encoded = _encode_line(name, value)
    if len(encoded[0]) <= _LINE_BYTES and type(name) is type(value) is bytes:
        if len(_lines) >= _LINES:
            _lines.clear()
        _lines[name, value] = encoded
    return encoded


def check_status(status: int) -> bytes:
    """Return the status line of a final response.

    Raises:
        TypeError: `status` is not an int.
        RuntimeError: it is not in 200..599: 1xx cannot end a request (RFC 9110 section 15.2).
    """
    if not isinstance(status, int):
        raise TypeError(texts.STATUS_TYPE.format(status=repr(status)))
    if not 200 <= status <= 599:
        raise RuntimeError(texts.STATUS.format(status=int(status)))
    return STATUS_LINE[status]


class ResponseHead(NamedTuple):
    """A response head and how its body is to be framed.

    `length` is the number of body bytes that `BodyFraming.LENGTH` promises; `close` says that the connection ends with
    this response.
    """

    data: bytes
    framing: BodyFraming
    length: int
    close: bool


def encode_head(
    status: int,
    headers: Iterable[tuple[bytes, bytes]],
    default_head: bytes,
    head_request: bool = False,
    http_10: bool = False,
    close: bool = False,
) -> ResponseHead:
    """Encode status line and header section; see `encode_parts`."""
    return ResponseHead(*encode_parts(status, headers, default_head, head_request, http_10, close))


def encode_parts(
    status: int,
    headers: Iterable[tuple[bytes, bytes]],
    default_head: bytes,
    head_request: bool,
    http_10: bool,
    close: bool,
) -> tuple[bytes, BodyFraming, int, bool]:
    """Encode status line and header section; return the parts of a `ResponseHead`, which costs a call to make.

    Args:
        headers: the application's, any iterable of (name, value).
        default_head: the server's own lines, in front of those.
        head_request: the request's method is HEAD.
        http_10: the client speaks HTTP/1.0: no chunked coding.
        close: the connection ends after this response.

    Raises:
        RuntimeError: status, header name or header value that may not be sent, or lengths that contradict each other.
        TypeError: a status that is not an int, a header that is not bytes-like.
    """
    # A call of Python code is a noticeable part of a response, so the usual status goes without.
    final = type(status) is int and 200 <= status <= 599
    lines = [STATUS_LINE[status] if final else check_status(status), default_head]
    length = -1
    usual = status != 204 and status != 205
    for header in headers:
        try:
            line, kind, number = _lines[header]
        except (KeyError, TypeError, ValueError):
            # Not met before, or nothing that has a hash: lists and buffers, which upstream takes as well.
            line, kind, number = encode_line(header)
        lines.append(line)
        if kind is not _PLAIN:
            usual = usual and kind is _LENGTH and length < 0
            length = number

    # The usual response names its length, once, and nothing else that matters here.
    if usual and length >= 0:
        framing = _FRAMING_NONE if head_request or status == 304 else _FRAMING_LENGTH
        close = close or http_10
        if close:
            lines.append(b"connection: close\r\n")
    else:
        length, framing, close = _settle(status, lines, head_request, http_10, close)
    lines.append(b"\r\n")
    return b"".join(lines), framing, length, close


def _settle(
    status: int, lines: list[bytes], head_request: bool, http_10: bool, close: bool
) -> tuple[int, BodyFraming, bool]:
    """Choose the framing and make the lines say exactly that; return length, framing, and whether to close.

    Lines stay where the application put them; those that may not be sent become empty.
    """
    special = []
    for index, line in enumerate(lines[2:], 2):
        name, _, value = line[:-2].partition(b": ")
        if name in _KINDS:
            special.append((index, _KINDS[name], value))
    lengths = [value for _, kind, value in special if kind is _LENGTH]
    # HTTP/1.0 knows no codings: drop the application's, and keep its length.
    codings = [value for _, kind, value in special if kind is _Kind.CODING and not http_10]
    options = [value for _, kind, value in special if kind is _Kind.CONNECTION]
    if len(set(lengths)) > 1:
        raise RuntimeError(texts.LENGTHS_CONFLICT)
    says_close = b"close" in [option.strip(b" \t").lower() for option in b",".join(options).split(b",")]

    if head_request or status in (204, 205, 304):
        framing = _FRAMING_NONE
    elif lengths and not codings:
        framing = _FRAMING_LENGTH
    else:
        framing = BodyFraming.CLOSE if http_10 else BodyFraming.CHUNKED
    close = close or says_close or http_10
    # RFC 9110 section 8.6, RFC 9112 section 6.1: neither field with 204, no coding for HTTP/1.0, never both. A 205 says
    # that there is nothing by a length of zero (RFC 9110 section 15.3.6).
    keep_coding = status not in (204, 205) and not http_10
    keep_length = status not in (204, 205) and not codings
    chunked = False
    for index, kind, value in special:
        if kind is _Kind.CODING:
            line = _coding_line(value, chunked)
            lines[index] = line if keep_coding else b""
            chunked = True
        elif kind is _LENGTH:
            lines[index] = lines[index] if keep_length else b""
            keep_length = False
        elif close and value.lower() == b"keep-alive":
            # It would contradict the close beside it (RFC 9112 section 9.6).
            lines[index] = b""
    if status == 205:
        lines.append(b"content-length: 0\r\n")
    elif framing is BodyFraming.CHUNKED and not codings:
        lines.append(b"transfer-encoding: chunked\r\n")
    if close and not says_close:
        lines.append(b"connection: close\r\n")
    return (int(lengths[0]) if lengths else 0), framing, close


def _coding_line(value: bytes, chunked: bool) -> bytes:
    """Return the line of a Transfer-Encoding field, with chunked as its last coding; nothing if it was said before.

    Raises:
        RuntimeError: there is another coding behind chunked (RFC 9112 section 6.1).
    """
    names = [name.strip(b" \t").lower() for name in value.split(b",")]
    others = [name for name in names if name and name != b"chunked"]
    if chunked:
        if others:
            raise RuntimeError(texts.TRANSFER_ENCODING)
        return b""
    return b"transfer-encoding: %b\r\n" % b", ".join([*others, b"chunked"])


def as_bytes(data: Any) -> bytes:
    """Return the present content of a bytes-like object: itself if it cannot change, which only `bytes` promise.

    Raises:
        TypeError: it is not bytes-like.
        ValueError: it is a memoryview that was released.
    """
    return data if type(data) is bytes else bytes(memoryview(data))


def as_body(data: Any) -> bytes:
    """The bytes of a message's body, where None is an empty one, as with upstream."""
    return b"" if data is None else as_bytes(data)


def copy_message(message: Any, *buffers: str) -> Any:
    """Return a copy of an application's message, for a `send()` that must wait.

    What the application does with its own meanwhile, with the list of headers in it and with the buffers, which have
    these keys, changes nothing. Only plain dicts are copied: other objects may answer in their own way, and are asked
    after the wait.

    Raises:
        TypeError: it is no message.
        KeyError: it has no type.
    """
    message["type"]
    if type(message) is not dict:
        return message
    copy = message.copy()
    if type(copy.get("headers")) is list:
        copy["headers"] = copy["headers"].copy()
    for key in buffers:
        if copy.get(key) is not None:
            with suppress(Exception):  # it is refused where it is needed, as it is by a `send()` that need not wait
                copy[key] = as_bytes(copy[key])
    return copy


def encode_chunk(body: bytes, last: bool) -> bytes:
    """Return `body` as one chunk, followed by the last chunk if `last` (RFC 9112 section 7.1)."""
    if not body:
        return b"0\r\n\r\n" if last else b""
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if last else b"%x\r\n%b\r\n" % (len(body), body)


FORBIDDEN_TRAILERS = frozenset(
    b"age authorization cache-control connection content-encoding content-length content-range content-type cookie "
    b"date expect expires host if-match if-modified-since if-none-match if-range if-unmodified-since keep-alive "
    b"location max-forwards pragma proxy-authenticate proxy-authorization proxy-connection range retry-after "
    b"set-cookie te trailer transfer-encoding upgrade vary via warning www-authenticate".split()
)
"""Fields that must be known before the content (RFC 9110 section 6.5.1): fields about framing, the connection, routing,
authentication, requests, the response as a whole and the format of its content."""


def check_trailers(headers: Iterable[tuple[bytes, bytes]]) -> list[Field]:
    """Return the fields of a trailer section.

    Raises:
        RuntimeError: a name or value that may not be sent, or not behind the content.
        TypeError: a name or a value that is not bytes.
    """
    fields = []
    for name, value in headers:
        field = _check_field(name, value)
        if field[0] in FORBIDDEN_TRAILERS:
            raise RuntimeError(texts.TRAILER.format(name=field[0].decode("ascii")))
        fields.append(field)
    return fields


def encode_fields(fields: Iterable[Field]) -> bytes:
    """Return the lines of fields that were checked."""
    return b"".join([b"%b: %b\r\n" % field for field in fields])


def accepts_trailers(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Tell whether the fields of a request say `TE: trailers` (RFC 9110 section 10.1.4)."""
    return any(
        name == b"te" and b"trailers" in [member.strip(b" \t").lower() for member in value.split(b",")]
        for name, value in headers
    )


def check_links(links: Iterable[bytes]) -> list[Field]:
    """Return a Link field for each of `links`, which a 103 response may have (RFC 8297).

    Raises:
        RuntimeError: a link with a control character.
        TypeError: a link that is not bytes.
    """
    fields = []
    for link in links:
        if not isinstance(link, bytes):
            raise TypeError(texts.LINK_TYPE.format(link=repr(link)))
        if HEADER_VALUE_RE.search(link):
            raise RuntimeError(texts.FIELD_VALUE)
        fields.append((b"link", bytes.strip(link, b" \t")))
    return fields


def encode_interim(status: int, fields: Iterable[Field] = ()) -> bytes:
    """Return an interim response (RFC 9110 section 15.2), with fields that were checked."""
    return b"%b%b\r\n" % (STATUS_LINE[status], encode_fields(fields))


def error_response(
    status: int,
    body: bytes,
    default_head: bytes,
    head_request: bool = False,
    headers: Iterable[tuple[bytes, bytes]] = (),
) -> bytes:
    """Return a whole response of the server's own, after which the connection ends.

    A HEAD request gets the head alone (RFC 9110 section 9.3.2). `headers` follow those about the content.
    """
    about = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
    data = encode_head(status, [*about, *headers], default_head, close=True).data
    return data if head_request else data + body
