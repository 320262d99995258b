"""What a request head must satisfy, whichever library tokenises it.

This stands in front of llhttp and h11, which are laxer in different places, so that a request means the same to every
implementation and to the servers in front of us (RFC 9112, strict reading). Pure functions over bytes: no connection,
no clock, no configuration beyond the limits that are handed in.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
FIELD_LINE = TOKEN + rb":[\t\x20-\x7e\x80-\xff]*"

CHUNKED = -1
"""The body length of a request with chunked coding: known only when it ends."""

MAX_LENGTH = 2**63 - 1
"""Longest body that can be declared: what a signed number of 64 bits holds, as everywhere."""

MAX_METHOD_LENGTH = 64
"""Longest registered method has 16 characters; nobody needs more than this."""

MAX_EMPTY_LINES = 8
"""Empty lines skipped in front of a request line (RFC 9112 section 2.2 asks for at least one)."""

# Methods are case-sensitive tokens (RFC 9110 section 9.1). All in use are upper case; one that is not is a mistake or a
# probe, and frameworks disagree about it, so it ends here; and so does "#", which starts a fragment elsewhere.
_METHOD = rb"[!$%&'*+\-.^_`|~0-9A-Z]+"

_REQUEST_LINE = rb"(" + _METHOD + rb") ([\x21-\x7e]+) HTTP/1\.([0-9])\r\n"

match_head = re.compile(_REQUEST_LINE + rb"(?:" + FIELD_LINE + rb"\r\n)*\r\n").fullmatch
"""Match a whole head; groups: method, target, minor version."""

match_plain_line = re.compile(rb"(" + _METHOD + rb") (/[!-\"$-~]*) HTTP/1\.([1-9])\r\n").fullmatch
"""Match the request line of nearly every request, with the groups of `match_head`: a target in origin-form, without the
fragment that nobody may send, and a version later than 1.0. "CONNECT", and "%" without digits, are matched as well."""

_other_version = re.compile(rb"(?:" + _METHOD + rb") [\x21-\x7e]+ HTTP/([0-9])\.[0-9]\r\n").match
_not_yet_wrong = re.compile(rb"(?:\r\n){0,%d}\r?|(?:\r\n)*%b(?: .*)?" % (MAX_EMPTY_LINES, _METHOD), re.DOTALL).fullmatch
_request_line = re.compile(_REQUEST_LINE).fullmatch
_control = re.compile(rb"[^\t\r\n\x20-\x7e\x80-\xff]|\r[^\n]|(?<!\r)\n").search

_broken_percent = re.compile(rb"%(?![0-9A-Fa-f]{2})").search
_absolute_form = re.compile(rb"https?://([^/?#]+)([^#]*)", re.IGNORECASE).fullmatch
_authority = re.compile(
    rb"(?:(?:[A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})*"
    rb"|\[(?P<six>[0-9A-Fa-f:.]+)\]|\[[vV][0-9A-Fa-f]+\.[A-Za-z0-9\-._~!$&'()*+,;=:]+\])(?::(?P<port>[0-9]*))?"
).fullmatch
_transfer_codings = re.compile(
    rb"%b(?:[ \t]*;[ \t]*%b[ \t]*=[ \t]*(?:%b|\"[^\"\\\r\n]*\"))*" % (TOKEN, TOKEN, TOKEN)
).fullmatch


class RequestRefused(Exception):
    """A request that is answered by the server itself: `status` and a `reason` for the operator's log."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Framing(NamedTuple):
    """What the header section says about the rest of the message and of the connection.

    `length` is the number of body bytes or `CHUNKED`; `upgrade` the protocols asked for, lower case, if the connection
    header names them; `forwarded` says that there is a field the proxy headers middleware looks at.
    """

    length: int
    keep_alive: bool
    expect_continue: bool
    upgrade: bytes
    forwarded: bool = False


_PLAIN = Framing(0, True, False, b"")
_PLAIN_CLOSE = Framing(0, False, False, b"")

# Hosts seen to be valid: a server is asked for few names, many times.
_known_hosts: set[bytes] = set()
_KNOWN_HOSTS = 1024


def check_partial(data: bytes | bytearray, start: int) -> None:
    """Refuse what can no longer become a valid head; `start` is where the bytes not yet looked at begin.

    Without this a request with bare LF line ends (RFC 9112 section 2.2), one of HTTP/0.9, which is over with its line,
    or a TLS hello would wait for its deadline.

    Raises:
        RequestRefused: 400 or 505.
    """
    if _control(data, max(0, start - 1)) or (start < MAX_METHOD_LENGTH and not _not_yet_wrong(data)):
        raise RequestRefused(400, "malformed request head")
    begin = 0
    while data.startswith(b"\r\n", begin):
        begin += 2
    end = data.find(b"\r\n", begin) + 2
    if end > max(1, start):
        # The request line is complete since the last look.
        line = bytes(data[begin:end])
        if not _request_line(line):
            raise refusal(line)


def refusal(head: bytes) -> RequestRefused:
    """Say why `match_head` did not match."""
    other = _other_version(head)
    if other is not None and other[1] >= b"2":
        # RFC 9110 section 15.6.6: the major version is not ours.
        return RequestRefused(505, "unsupported HTTP version")
    return RequestRefused(400, "malformed request head")


def asks_for_head(request: bytes | bytearray) -> bool:
    """Tell whether a request, of which there need not be more than the beginning, has the method HEAD.

    The answer to it has no content (RFC 9110 section 9.3.2), a refusal included. Empty lines may stand in front.
    """
    return request.lstrip(b"\r\n").startswith(b"HEAD ")


def split_fields(head: bytes, line_end: int) -> list[tuple[bytes, bytes]]:
    """Return the header fields of a head that `match_head` takes; the request line ends before `line_end`."""
    lines = head[line_end:-4].split(b"\r\n") if line_end < len(head) - 2 else []
    fields = (line.partition(b":") for line in lines)
    return [(name.lower(), value.strip(b" \t")) for name, _, value in fields]


def is_authority(value: bytes) -> bool:
    """Tell whether `value` is `uri-host [ ":" port ]` (RFC 9112 section 3.2, RFC 3986 section 3.2.2)."""
    if value in _known_hosts:
        return True
    match = _authority(value)
    if match is None:
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
    """Return the path-and-query part of a target that is not plainly in origin-form, and the authority it names.

    RFC 9112 section 3.2: absolute-form is accepted from anyone; asterisk-form belongs to OPTIONS; authority-form
    belongs to CONNECT. A fragment is never sent, and "%" only with two hexadecimal digits behind it.

    Raises:
        RequestRefused: 400.
    """
    if method == b"CONNECT":
        host, _, port = target.rpartition(b":")
        if host and port.isdigit() and is_authority(target):
            return target, target
        raise RequestRefused(400, "CONNECT needs host:port")
    if b"#" in target:
        raise RequestRefused(400, "fragment in the request target")
    if b"%" in target and _broken_percent(target.partition(b"?")[0]):
        raise RequestRefused(400, "malformed percent-encoding in the request target")
    if target[:1] == b"/":
        return target, None
    if target == b"*" and method == b"OPTIONS":
        return target, None
    absolute = _absolute_form(target)
    if absolute is None or not is_authority(absolute[1]) or absolute[1][:1] == b":":
        raise RequestRefused(400, "malformed request target")
    rest = absolute[2]
    if rest[:1] != b"/":
        # RFC 9112 section 3.2.4: OPTIONS without path is about the server as a whole.
        rest = b"*" if method == b"OPTIONS" and not rest else b"/" + rest
    return rest, absolute[1]


def _content_length(value: bytes) -> int:
    # RFC 9112 section 6.3 lets a list of equal values pass; a strict recipient refuses what nobody should send.
    # Without the zeros in front, of which there may be more digits than int() takes.
    digits = value.lstrip(b"0")
    if not value.isdigit() or len(digits) > 19 or (length := int(digits or b"0")) > MAX_LENGTH:
        raise RequestRefused(400, "malformed Content-Length")
    return length


def _transfer_encoding(values: list[bytes]) -> None:
    """Accept exactly `chunked`; tell the malformed (400) from the merely unknown (501, RFC 9112 section 6.1)."""
    if len(values) == 1 and values[0].lower() == b"chunked":
        return
    codings = [coding.strip(b" \t").lower() for coding in b",".join(values).split(b",")]
    if not all(_transfer_codings(coding) for coding in codings):
        raise RequestRefused(400, "malformed Transfer-Encoding")
    if b"chunked" in codings[:-1] or b"identity" in codings:
        raise RequestRefused(400, "chunked must be the last transfer coding, once")
    if codings[-1] != b"chunked" and len(codings) > 1:
        raise RequestRefused(400, "the last transfer coding of a request must be chunked")
    raise RequestRefused(501, "unsupported transfer coding")


def _tokens(values: list[bytes]) -> list[bytes]:
    return [token.strip(b" \t") for token in b",".join(values).lower().split(b",")]


def examine(minor: bytes, headers: list[tuple[bytes, bytes]]) -> Framing:
    """Read the fields that decide framing and the life of the connection.

    `minor` is the minor version digit; `headers` have lower-case names and values without outer white space.

    Raises:
        RequestRefused: 400, 417 or 501.
    """
    host: bytes | None = None
    special: dict[bytes, list[bytes]] | None = None
    for name, value in headers:
        if name == b"host":
            if host is not None:
                raise RequestRefused(400, "more than one Host")
            host = value
        elif name in _SPECIAL:
            if special is None:
                special = {}
            special.setdefault(name, []).append(value)
    if host is None:
        # RFC 9112 section 3.2: required since HTTP/1.1.
        if minor != b"0":
            raise RequestRefused(400, "missing Host")
    elif not host or host[:1] == b":" or (host not in _known_hosts and not is_authority(host)):
        raise RequestRefused(400, "malformed Host")
    if special is not None:
        return _examine_special(minor, special)
    return _PLAIN if minor != b"0" else _PLAIN_CLOSE


_FORWARDED = frozenset((b"x-forwarded-for", b"x-forwarded-proto"))
_SPECIAL = _FORWARDED | {b"content-length", b"transfer-encoding", b"connection", b"upgrade", b"expect"}


def _examine_special(minor: bytes, special: dict[bytes, list[bytes]]) -> Framing:
    length = 0
    lengths = special.get(b"content-length")
    codings = special.get(b"transfer-encoding")
    if codings is not None:
        # RFC 9112 section 6.1: a length beside a coding, or a coding from an HTTP/1.0 client, is an attack or a bug.
        if lengths is not None:
            raise RequestRefused(400, "Content-Length beside Transfer-Encoding")
        if minor == b"0":
            raise RequestRefused(400, "Transfer-Encoding in an HTTP/1.0 request")
        _transfer_encoding(codings)
        length = CHUNKED
    elif lengths is not None:
        if len(lengths) > 1:
            raise RequestRefused(400, "more than one Content-Length")
        length = _content_length(lengths[0])

    expect_continue = False
    expectations = special.get(b"expect")
    if expectations is not None and minor != b"0":
        # RFC 9110 section 10.1.1: ignored from HTTP/1.0 clients; the only expectation there is.
        for expectation in filter(None, _tokens(expectations)):
            if expectation != b"100-continue":
                raise RequestRefused(417, "unknown expectation")
            expect_continue = True

    options = _tokens(special[b"connection"]) if b"connection" in special else []
    upgrade = b""
    # RFC 9110 section 7.8: ignored from HTTP/1.0 clients, and only meant if the connection header names it.
    if b"upgrade" in special and b"upgrade" in options and minor != b"0":
        upgrade = b",".join(special[b"upgrade"]).lower()
    keep_alive = minor != b"0" and b"close" not in options
    return Framing(length, keep_alive, expect_continue, upgrade, not _FORWARDED.isdisjoint(special))
