"""The checks of a request head, whichever library reads it.

This check precedes llhttp and h11, which are laxer in different places, so that a request means the same to every
implementation and to the servers in front of us (RFC 9112, strict reading). A head that is complete is matched by one
expression before a library gets it (`look_at`); one that came in part, or that is refused, is read byte for byte to
name its first mistake. Pure functions over bytes: no connection, no clock, no configuration but the limits handed in.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

from uvicorn.rules import refusals, syntax, texts
from uvicorn.rules.limits import MAX_LENGTH, MAX_METHOD_LENGTH
from uvicorn.rules.refusals import Refusal
from uvicorn.rules.shortcuts import Shortcut, chosen
from uvicorn.rules.status import STATUS_PHRASES

try:
    from uvicorn import _native
except ImportError:
    _native = None  # type: ignore[assignment]

Field = tuple[bytes, bytes]
"""A header field: its name in lower case, its value without outer white space."""

TOKEN = syntax.TOKEN.encode()
FIELD_LINE = TOKEN + rb":[\t\x20-\x7e\x80-\xff]*"

CHUNKED = -1
"""The body length of a request with chunked coding: known only when it ends."""

# Methods are case-sensitive tokens (RFC 9110 section 9.1). All in use are upper case; one that is not is a mistake or a
# probe, and frameworks disagree about it, so it ends here; and so does "#", which starts a fragment elsewhere.
_METHOD_BYTE = rb"[!$%&'*+\-.^_`|~0-9A-Z]"
_METHOD = _METHOD_BYTE + rb"+"

_PLAIN_TARGET = rb"/[!-\"$&-~]*"
"""In origin-form, with nothing in it that has rules of its own."""
_REQUEST_LINE = rb"(" + _METHOD + rb") (?:(" + _PLAIN_TARGET + rb")|([\x21-\x7e]+)) HTTP/1\.([0-9])\r\n"

match_head = re.compile(_REQUEST_LINE + rb"(?:" + FIELD_LINE + rb"\r\n)*\r\n").fullmatch
"""Match a whole head; groups: method, target if it is plain, target otherwise, minor version."""

_framing_fields = re.compile(
    rb"\n(host|co(?:nnection|ntent-length)|transfer-encoding|upgrade|expect|x-forwarded-(?:for|proto)):[ \t]*([^\r]*)"
).findall

# Runs of bytes that belong together, for a head that is read piece by piece.
_method_run = re.compile(_METHOD).match
_path_run = re.compile(rb"(?:[!\"$&-\x3e@-~]|%[0-9A-Fa-f]{2})+").match
_query_run = re.compile(rb"[!\"$-~]+").match
_name_run = re.compile(rb"[!-9;-~]+").match
_value_run = re.compile(rb"[\t\x20-\x7e\x80-\xff]+").match
_is_token = re.compile(TOKEN).fullmatch
_digits = re.compile(rb"[0-9]")
_percent_begins = re.compile(rb"%[0-9A-Fa-f]?").fullmatch

_begins_with_head = re.compile(rb"(?:\r\n)*HEAD ").match

_VERSION = b"HTTP/0.0\r\n"  # any digits

_broken_percent = re.compile(rb"%(?![0-9A-Fa-f]{2})").search
_absolute_form = re.compile(rb"https?://([^/?]*)(.*)", re.IGNORECASE).fullmatch
_authority = re.compile(
    rb"(?:(?:[A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})*"
    rb"|\[(?P<six>[0-9A-Fa-f:.]+)\]|\[[vV][0-9A-Fa-f]+\.[A-Za-z0-9\-._~!$&'()*+,;=:]+\])(?::(?P<port>[0-9]*))?"
).fullmatch
_transfer_codings = re.compile(
    rb"%b(?:[ \t]*;[ \t]*%b[ \t]*=[ \t]*(?:%b|\"[^\"\\\r\n]*\"))*" % (TOKEN, TOKEN, TOKEN)
).fullmatch


class RequestRefused(Exception):
    """A request that is answered by the server itself: `status` and a `reason` for the operator's log.

    Args:
        refusal: its row in the table.
        limit: the number that the text names, if it names one.
    """

    def __init__(self, refusal: Refusal, limit: float | None = None) -> None:
        self.refusal = refusal
        self.status = refusal.status
        self.reason = refusal.reason if limit is None else refusal.reason.format(limit=str(limit).removesuffix(".0"))
        super().__init__(self.reason)

    @property
    def line(self) -> str:
        """The log line."""
        phrase = STATUS_PHRASES[self.status]
        return texts.REQUEST_REFUSED.format(status=self.status, phrase=phrase, reason=self.reason)


class Framing(NamedTuple):
    """The header section's statements about the rest of the message and the connection.

    `length` is the number of body bytes or `CHUNKED`; `upgrade` the protocols asked for, lower case, if the connection
    header names them; `forwarded` says that there is a field the proxy headers middleware looks at.
    """

    length: int
    keep_alive: bool
    expect_continue: bool
    upgrade: bytes
    forwarded: bool = False

    @property
    def asks_for_websocket(self) -> bool:
        """Whether the connection may become a WebSocket."""
        return self.length == 0 and b"websocket" in [name.strip(b" \t") for name in self.upgrade.split(b",")]


PLAIN = Framing(0, True, False, b"")
"""That of a request without a body, and with nothing said about the connection."""
_PLAIN_CLOSE = Framing(0, False, False, b"")

# Valid hosts seen before: a server's clients use few names, many times.
_known_hosts: set[bytes] = set()
_KNOWN_HOSTS = 1024


class HeadLimits(NamedTuple):
    """The limits of a request head: bytes in all, fields, and bytes of the target."""

    head: int
    fields: int
    target: int

    def allow(self, size: int, method: bytes, target: bytes) -> bool:
        """Tell whether they allow a head of `size` bytes with this method and this target."""
        return size <= self.head and len(target) <= self.target and len(method) <= MAX_METHOD_LENGTH


class HeadScan:
    """Looks for the first mistake in a head, whether that is complete or not.

    The first byte that breaks a rule decides, and beyond the limit none is looked at: so it is the mistake that the
    native core finds, wherever the bytes were cut. For heads of which there is only a part, so that bare LF line ends
    (RFC 9112 section 2.2), a request of HTTP/0.9, which is over with its line, or a TLS hello need not wait for a
    deadline; and to name the mistake where `match_head` only detects one.
    """

    __slots__ = ("limits", "_part", "_method", "_begin", "_at", "_inside", "_fields")

    def __init__(self, limits: HeadLimits) -> None:
        self.limits = limits
        self._part = 0  # of `_PARTS`
        self._method = b""
        self._begin = 0  # of the target, the version or the line that is being read
        self._at = 0  # end of the checked part
        self._inside = False  # the query, or the value of a field
        self._fields = 0

    def advance(self, data: bytes | bytearray) -> None:
        """Look on in `data`: the request line, and all that was given before, with more behind it.

        Raises:
            RequestRefused: 400, 414, 431, 501 or 505.
        """
        limit = self.limits.head
        end = min(len(data), limit)
        while self._part < len(_PARTS) and _PARTS[self._part](self, data, end):
            self._part += 1
        if len(data) > limit and self._part < len(_PARTS):
            if _PARTS[self._part] is not HeadScan._read_fields:
                raise RequestRefused(refusals.LINE_TOO_LONG, limit)
            raise RequestRefused(refusals.HEAD_TOO_LARGE, limit)

    # Each reads one part, as far as it is there; whether it is there to its end.

    def _read_method(self, data: bytes | bytearray, end: int) -> bool:
        if data[:1] in (b"\r", b"\n"):
            if end > 1 or data[:1] == b"\n":
                raise RequestRefused(refusals.LINE_BEGIN)
            return False
        run = _method_run(data, 0, min(end, MAX_METHOD_LENGTH + 1))
        at = run.end() if run else 0
        if at > MAX_METHOD_LENGTH:
            raise RequestRefused(refusals.METHOD_TOO_LONG, MAX_METHOD_LENGTH)
        if at == end:
            return False
        if not at or data[at] != 0x20:
            raise RequestRefused(refusals.METHOD)
        self._method = bytes(data[:at])
        self._begin = self._at = at + 1
        return True

    def _read_target(self, data: bytes | bytearray, end: int) -> bool:
        if not self._inside:
            self._skip(_path_run, data, end)
            self._inside = data[self._at : min(self._at + 1, end)] == b"?"
        if self._inside:
            self._skip(_query_run, data, end)
        begin, at = self._begin, self._at
        if at - begin > self.limits.target:
            raise RequestRefused(refusals.TARGET_TOO_LONG, self.limits.target)
        rest = data[at : min(at + 3, end)]
        if not rest or (not self._inside and _percent_begins(rest)):
            return False
        if rest[:1] == b"%":
            raise RequestRefused(refusals.TARGET_PERCENT)
        if rest[:1] == b"#":
            raise RequestRefused(refusals.TARGET_FRAGMENT)
        if rest[:1] != b" " or at == begin:
            raise RequestRefused(refusals.TARGET)
        self._at += 1
        return True

    def _read_version(self, data: bytes | bytearray, end: int) -> bool:
        at = self._at
        text = bytes(data[at : min(at + len(_VERSION), end)])
        if not _VERSION.startswith(_digits.sub(b"0", text)):
            raise RequestRefused(refusals.VERSION)
        if len(text) < len(_VERSION):
            return False
        if text[5:6] != b"1":
            # RFC 9110 section 15.6.6: the major version is not ours.
            raise RequestRefused(refusals.VERSION_TOO_OLD if text[5:6] == b"0" else refusals.VERSION_UNSUPPORTED)
        split_target(self._method, bytes(data[self._begin : at - 1]))
        self._begin = self._at = at + len(_VERSION)
        self._inside = False
        return True

    def _read_fields(self, data: bytes | bytearray, end: int) -> bool:
        while self._begin < end:
            at = self._begin
            if data[at] == 0x0D:
                return self._line_feed(data, at + 1, end, refusals.HEAD_END)
            if self._fields == self.limits.fields:
                raise RequestRefused(refusals.TOO_MANY_FIELDS, self.limits.fields)
            if not (self._inside or self._read_name(data, end)) or not self._read_value(data, end):
                return False
            self._begin = self._at
            self._inside = False
            self._fields += 1
        return False

    def _read_name(self, data: bytes | bytearray, end: int) -> bool:
        self._skip(_name_run, data, end)
        begin, at = self._begin, self._at
        if at == end:
            return False
        if data[at] != 0x3A or not _is_token(data, begin, at):
            raise RequestRefused(refusals.FIELD_NAME)
        self._at += 1
        self._inside = True
        return True

    def _read_value(self, data: bytes | bytearray, end: int) -> bool:
        self._skip(_value_run, data, end)
        at = self._at
        if at == end:
            return False
        if data[at] != 0x0D:
            raise RequestRefused(refusals.FIELD_VALUE)
        if not self._line_feed(data, at + 1, end, refusals.FIELD_END):
            return False
        self._at += 2
        return True

    def _skip(self, run: Callable[[bytes | bytearray, int, int], re.Match[bytes] | None], data: Any, end: int) -> None:
        """Go behind a run of bytes."""
        found = run(data, self._at, end)
        if found is not None:
            self._at = found.end()

    @staticmethod
    def _line_feed(data: bytes | bytearray, at: int, end: int, otherwise: Refusal) -> bool:
        """Whether an LF is in its place, or has not arrived yet."""
        if at < end and data[at] != 0x0A:
            raise RequestRefused(otherwise)
        return at < end


_PARTS = (HeadScan._read_method, HeadScan._read_target, HeadScan._read_version, HeadScan._read_fields)


def refuse(head: bytes, limits: HeadLimits) -> NoReturn:
    """Raise the reason for refusing a complete head that `match_head` rejects, or that exceeds a limit.

    Raises:
        RequestRefused: always.
    """
    HeadScan(limits).advance(head)
    raise AssertionError("a head that is refused has a mistake")


def asks_for_head(request: bytes | bytearray) -> bool:
    """Tell whether a request, of which there need not be more than the beginning, has the method HEAD.

    The answer to it has no content (RFC 9110 section 9.3.2), a refusal included. Empty lines may precede it.
    """
    return _begins_with_head(request) is not None


RequestLine: TypeAlias = tuple[str, str, str, bytes, bytes, Sequence[str]]
"""A request line as scopes show it: their `method`, `http_version`, `path`, `raw_path` and `query_string`, and the
extensions of its version. Not a class, because it is made, and taken apart, for each request."""

Look: TypeAlias = tuple[bytes, bytes, bytes, bytes | None, bool, Framing, bytes]
"""The facts of a strictly checked head: method, path and query, minor version, the authority that the target names,
whether it asks for https, framing, and the target as it was sent. Not a class, because one is made for each request."""


def look_at(head: bytes, limits: HeadLimits, limit_body: int | None) -> Look:
    """Check a complete head, and return its properties that decide about its message.

    Raises:
        RequestRefused: 400, 413, 414, 417, 431, 501 or 505.
    """
    match = match_head(head)
    if match is None:
        refuse(head, limits)
    method, target, sent, minor = match.groups()
    size = len(head)
    largest, most, longest = limits
    # A field line has four bytes or more.
    if (
        size > largest
        or len(target or sent) > longest
        or len(method) > MAX_METHOD_LENGTH
        or (size > 4 * most and head.count(b"\r\n") - 2 > most)
    ):
        refuse(head, limits)
    host, https = None, False
    if target is None or method == b"CONNECT":
        sent = target or sent
        target, host = split_target(method, sent)
        https = sent[:6].lower() == b"https:"
    else:
        sent = target
    found = _framing_fields(head.lower())
    if len(found) == 1 and found[0][0] == b"host" and found[0][1] in _known_hosts:
        framing = PLAIN if minor != b"0" else _PLAIN_CLOSE
    else:
        framing = examine(minor, found, limit_body)
    if method == b"CONNECT":
        raise RequestRefused(refusals.CONNECT)
    return method, target, minor, host, https, framing, sent


ReadHead: TypeAlias = Callable[[bytes], "tuple[Look, RequestLine | None] | None"]
"""The native `look_at`: returns the same result and the decoded request line, or `None` in place of the line where
decoding needs Python. Returns `None` for a head that breaks a rule, which `look_at` then names."""


def native_reader(
    limits: HeadLimits, limit_body: int | None, root_path: str, extensions: Sequence[str]
) -> ReadHead | None:
    """Return the native `look_at`, or `None` without the native core or without the shortcut `heads`."""
    if _native is None or Shortcut.HEADS not in chosen():
        return None
    return _native.HeadReader(limits, limit_body, PLAIN, None if root_path else extensions).read


def native_field_list() -> object:
    """Return the native collector of the fields that httptools finds. Requires a `native_reader`."""
    return _native.FieldList()


def split_fields(head: bytes, line_end: int) -> list[tuple[bytes, bytes]]:
    """Return the header fields of a head that `match_head` takes; the request line ends before `line_end`."""
    lines = head[line_end:-4].split(b"\r\n") if line_end < len(head) - 2 else []
    fields = (line.partition(b":") for line in lines)
    return [(name.lower(), value.strip(b" \t")) for name, _, value in fields]


def is_authority(value: bytes) -> bool:
    """Tell whether `value` is `uri-host [ ":" port ]` with a host (RFC 9112 section 3.2, RFC 3986 section 3.2.2)."""
    if value in _known_hosts:
        return True
    match = _authority(value)
    if match is None or value[:1] in (b"", b":"):  # RFC 9110 section 4.2.1: an empty host is invalid
        return False
    port = (match["port"] or b"").lstrip(b"0")
    if len(port) > 5 or int(port or b"0") > 65535:
        return False
    if match["six"] is not None:
        try:
            ipaddress.IPv6Address(match["six"].decode("ascii"))
        except ValueError:
            return False
    if len(value) <= 256:
        if len(_known_hosts) >= _KNOWN_HOSTS:
            _known_hosts.clear()
        _known_hosts.add(value)
    return True


def split_target(method: bytes, target: bytes) -> tuple[bytes, bytes | None]:
    """Return the path-and-query part of a target that need not be in origin-form, and the authority it names.

    RFC 9112 section 3.2: absolute-form is accepted from anyone; asterisk-form belongs to OPTIONS; authority-form
    belongs to CONNECT. A fragment is never sent, and "%" only with two hexadecimal digits behind it.

    Raises:
        RequestRefused: 400.
    """
    broken = _broken_percent(target.partition(b"?")[0])
    if b"#" in target[: broken.start() if broken else None]:
        raise RequestRefused(refusals.TARGET_FRAGMENT)
    if broken:
        raise RequestRefused(refusals.TARGET_PERCENT)
    if method == b"CONNECT":
        host, _, port = target.rpartition(b":")
        if host and port.isdigit() and is_authority(target):
            return target, target
        raise RequestRefused(refusals.CONNECT_TARGET)
    if target[:1] == b"/":
        return target, None
    if target == b"*" and method == b"OPTIONS":
        return target, None
    absolute = _absolute_form(target)
    if absolute is None:
        raise RequestRefused(refusals.TARGET)
    host, rest = absolute.groups()
    if not is_authority(host):
        raise RequestRefused(refusals.TARGET_AUTHORITY)
    if rest[:1] != b"/":
        # RFC 9112 section 3.2.4: OPTIONS without path is about the server as a whole.
        rest = b"*" if method == b"OPTIONS" and not rest else b"/" + rest
    return rest, host


def _content_length(value: bytes, limit: int | None) -> int:
    # RFC 9112 section 6.3 lets a list of equal values pass; a strict recipient may refuse it.
    # Without the zeros in front, of which there may be more digits than int() takes.
    digits = value.lstrip(b"0")
    if not value.isdigit() or len(digits) > 19 or (length := int(digits or b"0")) > MAX_LENGTH:
        raise RequestRefused(refusals.LENGTH)
    if limit is not None and length > limit:
        raise RequestRefused(refusals.BODY_TOO_LARGE, limit)
    return length


def _transfer_encoding(values: list[bytes]) -> None:
    """Accept exactly `chunked`; tell the malformed (400) from the merely unknown (501, RFC 9112 section 6.1)."""
    if len(values) == 1 and values[0].lower() == b"chunked":
        return
    codings = [coding.strip(b" \t").lower() for coding in b",".join(values).split(b",")]
    if b"identity" in codings or not all(_transfer_codings(coding) for coding in codings):
        raise RequestRefused(refusals.CODING)
    if b"chunked" in codings[:-1] or (codings[-1] != b"chunked" and len(codings) > 1):
        raise RequestRefused(refusals.CODING_ORDER)
    raise RequestRefused(refusals.CODING_UNSUPPORTED)


def _tokens(values: list[bytes]) -> list[bytes]:
    return [token.strip(b" \t") for token in b",".join(values).lower().split(b",")]


def examine(minor: bytes, headers: list[tuple[bytes, bytes]], limit_body: int | None = None) -> Framing:
    """Read the fields that decide framing and the life of the connection.

    Args:
        minor: the minor version digit.
        headers: lower-case names, and values without white space in front.
        limit_body: bytes of body that may be declared; `None` is any number.

    Raises:
        RequestRefused: 400, 413, 417 or 501.
    """
    host: bytes | None = None
    special: dict[bytes, list[bytes]] | None = None
    for name, value in headers:
        if name == b"host":
            if host is not None:
                raise RequestRefused(refusals.HOST_REPEATED)
            host = value.rstrip(b" \t")
        elif name in _SPECIAL:
            if special is None:
                special = {}
            special.setdefault(name, []).append(value.rstrip(b" \t"))
    if host is None:
        # RFC 9112 section 3.2: required since HTTP/1.1.
        if minor != b"0":
            raise RequestRefused(refusals.HOST_MISSING)
    elif host not in _known_hosts and not is_authority(host):
        raise RequestRefused(refusals.HOST)
    if special is not None:
        return _examine_special(minor, special, limit_body)
    return PLAIN if minor != b"0" else _PLAIN_CLOSE


_FORWARDED = frozenset((b"x-forwarded-for", b"x-forwarded-proto"))
_SPECIAL = _FORWARDED | {b"content-length", b"transfer-encoding", b"connection", b"upgrade", b"expect"}


def _examine_special(minor: bytes, special: dict[bytes, list[bytes]], limit_body: int | None) -> Framing:
    length = 0
    lengths = special.get(b"content-length")
    codings = special.get(b"transfer-encoding")
    if codings is not None:
        # RFC 9112 section 6.1: a length beside a coding, or a coding from an HTTP/1.0 client, is an attack or a bug.
        if lengths is not None:
            raise RequestRefused(refusals.LENGTH_BESIDE_CODING)
        if minor == b"0":
            raise RequestRefused(refusals.CODING_TOO_EARLY)
        _transfer_encoding(codings)
        length = CHUNKED
    elif lengths is not None:
        if len(lengths) > 1:
            raise RequestRefused(refusals.LENGTH_REPEATED)
        length = _content_length(lengths[0], limit_body)

    expect_continue = False
    expectations = special.get(b"expect")
    if expectations is not None and minor != b"0":
        # RFC 9110 section 10.1.1: ignored from HTTP/1.0 clients; the only expectation there is.
        for expectation in filter(None, _tokens(expectations)):
            if expectation != b"100-continue":
                raise RequestRefused(refusals.EXPECTATION)
            expect_continue = True

    options = _tokens(special[b"connection"]) if b"connection" in special else []
    upgrade = b""
    # RFC 9110 section 7.8: ignored from HTTP/1.0 clients, and only meant if the connection header names it.
    if b"upgrade" in special and b"upgrade" in options and minor != b"0":
        upgrade = b",".join(special[b"upgrade"]).lower()
    keep_alive = minor != b"0" and b"close" not in options
    return Framing(length, keep_alive, expect_continue, upgrade, not _FORWARDED.isdisjoint(special))
